"""The Cholesky factor of positive definite matrices.

Its derivative: I. Murray, Differentiation of the Cholesky decomposition (arXiv:1602.07527).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Size
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import NO_ATTRIBUTES, Array, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.batch_rules import last_axes, leading
from staticgrad.ops.declare import declare
from staticgrad.ops.linalg.matrices import float_matrix
from staticgrad.ops.linalg.square import each_or_nan, square_cases, square_type, symmetric, transpose_of
from staticgrad.ops.linalg.triangular import triangular


def _definite(x: Array) -> Array:
    """Symmetric positive definite matrices."""
    return np.asarray(x @ np.swapaxes(x, -1, -2) / max(x.shape[-1], 1) + np.eye(x.shape[-1], dtype=x.dtype))


@frozen
class CholeskyAttributes:
    """The attributes of a factorisation: with ``upper`` the factor is the upper triangular one."""

    upper: bool

    def leading(self, size: Size) -> CholeskyAttributes:
        return self


def _upper_factor(x: Array) -> Array:
    wide = np.swapaxes(x.astype(np.float64), -1, -2)
    factor = np.swapaxes(each_or_nan(np.linalg.cholesky, wide), -1, -2)
    failed = np.isnan(factor).any(axis=(-2, -1), keepdims=True)
    return np.asarray(np.where(failed, np.triu(np.full_like(factor, np.nan)), factor), x.dtype)


def _cholesky_reference(attrs: CholeskyAttributes, x: Array) -> Array:
    factor = _upper_factor((x + np.swapaxes(x, -1, -2)) / 2)
    return factor if attrs.upper else np.swapaxes(factor, -1, -2)


def _expand_cholesky(o: Namespace, node: Primal[CholeskyAttributes]) -> Sequence[Tensor]:
    factor = declare(CHOLESKY_FACTOR, (symmetric(node.inputs[0]),))
    return [factor if node.attrs.upper else transpose_of(factor)]


def _halved(o: Namespace, x: Tensor) -> Tensor:
    """The lower triangle with half the diagonal: Φ of the paper."""
    return o.multiply(o.add(o.tril(x), o.tril(x, -1)), 0.5)


def _vjp_cholesky(o: Namespace, node: Primal[CholeskyAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    factor, upper = node.outputs[0], node.attrs.upper
    lower_ct = transpose_of(ct) if upper else ct
    product = o.matmul(factor if upper else transpose_of(factor), o.tril(lower_ct))
    back = triangular(factor, _halved(o, product), lower=not upper, transposed=not upper)
    whole = triangular(factor, transpose_of(back), lower=not upper, transposed=not upper)
    return (symmetric(whole),)


def _jvp_cholesky(o: Namespace, node: Primal[CholeskyAttributes], t: Tensor) -> Sequence[Tensor | None]:
    factor, upper = node.outputs[0], node.attrs.upper
    half = triangular(factor, symmetric(t), lower=not upper, transposed=upper)
    inner = triangular(factor, transpose_of(half), lower=not upper, transposed=upper)
    lower = o.matmul(transpose_of(factor) if upper else factor, _halved(o, inner))
    return (transpose_of(lower) if upper else lower,)


CHOLESKY_FACTOR = register(
    Op(
        "cholesky_factor",
        "The upper U with Uᵀ·U = A, of whose upper triangle it is made.",
        infer=square_type("cholesky_factor"),
        reference=lambda attrs, x: _upper_factor(x),
        differentiable=False,
        dtypes=FLOATS,
        cases=(*square_cases((NO_ATTRIBUTES,), _definite), Case(((5, 5),)), Case(((70, 70),), prepared=_definite)),
        tolerance=20.0,
        role="routine",
        batch=last_axes,
    )
)

CHOLESKY = register(
    Op(
        "cholesky",
        "The triangular factor of symmetric positive definite matrices.",
        infer=square_type("cholesky"),
        reference=_cholesky_reference,
        expand=_expand_cholesky,
        vjp=_vjp_cholesky,
        jvp=_jvp_cholesky,
        dtypes=FLOATS,
        cases=square_cases((CholeskyAttributes(False), CholeskyAttributes(True)), _definite),
        grad_name="LinalgCholeskyEx",
        tolerance=20.0,
        batch=leading,
    )
)


@public
def cholesky(x: TensorLike, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L·Lᵀ = x of symmetric positive definite matrices, or with ``upper`` Lᵀ.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Of a matrix that is not positive definite, or has NaN,
    the whole triangle is NaN, as in JAX (NumPy raises ``LinAlgError``); other matrices of its batch are as they are.

    Args:
        x: (…, n, n).

    Returns:
        (…, n, n), zero in the other triangle.

    Raises:
        GraphError: no square matrices.

    Example:
        >>> a = np.array([[4.0, 2.0], [2.0, 5.0]])
        >>> sg.Session().run(sg.linalg.cholesky(a))
        array([[2., 0.],
               [1., 2.]])
    """
    return declare(CHOLESKY, (float_matrix("cholesky", x),), CholeskyAttributes(bool(upper)))
