"""Eigenvalues and eigenvectors of symmetric matrices.

The primitive is ``symmetric_eigen``, whose vectors are rows. The derivative of ``eigh``: M. Giles, Collected matrix
derivative results for forward and reverse mode (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.types import FLOATS, TensorType
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of
from staticgrad.graph.optable import Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.graph.results import EighResult
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.declare import added
from staticgrad.ops.linalg.matrices import float_matrix, known_sizes
from staticgrad.ops.linalg.square import UNIT, check_square, each_or_nan, symmetric, transpose_of
from staticgrad.ops.linalg.vectors import flipped, one_over_differences, scaled_columns, signs_of, spread_values


def _eigen_type(name: str) -> Callable[..., tuple[TensorType, TensorType]]:
    def infer(attrs: NoAttributes, a: TensorType) -> tuple[TensorType, TensorType]:
        check_square(name, a)
        return TensorType(a.shape[:-1], a.dtype), a

    return infer


def _eigen_of(a: Array) -> tuple[Array, Array]:
    wide = a.astype(np.float64)
    values, vectors = each_or_nan(lambda x: tuple(np.linalg.eigh(x)), (wide + np.swapaxes(wide, -1, -2)) / 2)
    return values.astype(a.dtype), flipped(vectors, signs_of(vectors)).astype(a.dtype)


def _eigen_rows(attrs: NoAttributes, a: Array) -> tuple[Array, Array]:
    values, vectors = _eigen_of(a)
    return values, np.swapaxes(vectors, -1, -2)


_SYMMETRIC_SHAPES = ((3, 3), (1, 1), (2, 2), (2, 5, 5), (9, 9), (0, 3, 3), (2, 0, 0), (20, 20))

SYMMETRIC_EIGEN = register(
    Op(
        "symmetric_eigen",
        "The eigenvalues of a symmetric matrix in ascending order, and the eigenvectors as rows.",
        infer=_eigen_type("symmetric_eigen"),
        reference=_eigen_rows,
        differentiable=False,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), prepared=lambda x: spread_values(x) + np.swapaxes(spread_values(x), -1, -2))
            for shape in (*_SYMMETRIC_SHAPES, (40, 40))
        ),
        tolerance=300.0,
        role="routine",
        batch=last_axes,
    )
)


def _expand_eigh(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a = symmetric(node.inputs[0])
    values, rows = graph_of((a,)).add(SYMMETRIC_EIGEN, (a,)).outputs
    return [values, transpose_of(rows)]


def _vjp_eigh(
    o: Namespace, node: Primal[NoAttributes], cw: Tensor | None, cv: Tensor | None
) -> Sequence[Tensor | None]:
    w, v = node.outputs
    vt = transpose_of(v)
    scaled = None if cw is None else o.matmul(scaled_columns(o, v, cw), vt)
    turned = None
    if cv is not None:
        inner = o.multiply(one_over_differences(o, w), o.matmul(vt, cv))
        turned = o.matmul(v, o.matmul(inner, vt))
    return (symmetric(added(o, scaled, turned)),)


def _jvp_eigh(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    w, v = node.outputs
    inner = o.matmul(transpose_of(v), o.matmul(symmetric(t), v))
    values = o.sum(o.multiply(inner, o.eye(inner.shape[-1], dtype=inner.dtype)), axis=-1)
    return values, o.matmul(v, o.multiply(one_over_differences(o, w), inner))


EIGH = register(
    Op(
        "eigh",
        "Eigenvalues and eigenvectors of symmetric matrices.",
        infer=_eigen_type("eigh"),
        reference=lambda attrs, a: _eigen_of(a),
        expand=_expand_eigh,
        vjp=_vjp_eigh,
        jvp=_jvp_eigh,
        dtypes=FLOATS,
        cases=tuple(Case((shape,), ranges=(UNIT,), prepared=spread_values) for shape in _SYMMETRIC_SHAPES[:6]),
        grad_name="LinalgEigh",
        tolerance=300.0,
        batch=last_axes,
    )
)


@public
def eigh(x: TensorLike) -> EighResult:
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Of each vector the element of largest magnitude is
    positive. Vectors of equal eigenvalues have no derivative: where it is asked for it is NaN, and that of the values
    alone is right; ``sg.linalg.funm`` derives functions of symmetric matrices at equal eigenvalues, too.

    Args:
        x: (…, n, n), n known when declared.

    Returns:
        A named tuple: ``eigenvalues`` (…, n) and ``eigenvectors`` (…, n, n).

    Raises:
        GraphError: no square matrices of a size known when declared.

    Example:
        >>> values, vectors = sg.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])
        >>> sg.Session().run([values, vectors])
        [array([1., 2.], dtype=float32), array([[0., 1.],
               [1., 0.]], dtype=float32)]
    """
    a = float_matrix("eigh", x)
    known_sizes("eigh", a)
    return EighResult(*a.graph.add(EIGH, (a,)).outputs)


@public
def eigvalsh(x: TensorLike) -> Tensor:
    """The eigenvalues of symmetric matrices in ascending order: the first result of ``eigh``.

    Example:
        >>> sg.Session().run(sg.linalg.eigvalsh([[2.0, 1.0], [1.0, 2.0]])).round(4)
        array([1., 3.], dtype=float32)
    """
    return eigh(x)[0]
