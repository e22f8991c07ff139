"""Matrices as products of an orthonormal and a triangular one, by Householder reflections.

The primitive is ``householder``, whose operands and results have vectors as rows. The derivative of ``qr``: S. Walter &
L. Lehmann, Algorithmic differentiation of linear algebra functions (2010).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Size, TensorType
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.graph.results import QRResult
from staticgrad.ops.batch_rules import last_axes, leading
from staticgrad.ops.declare import FLOAT, accepted, shown_as
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.linalg.matrices import common_batch, float_matrix, known_sizes, matrix
from staticgrad.ops.linalg.square import UNIT, transpose_of
from staticgrad.ops.linalg.triangular import triangular
from staticgrad.ops.linalg.vectors import fixed_sizes, spread_values


@frozen
class HouseholderAttributes:
    """The number of columns of Q: that of A's columns, or that of its rows."""

    columns: int

    def leading(self, size: Size) -> HouseholderAttributes:
        return self


def _householder_type(attrs: HouseholderAttributes, at: TensorType) -> tuple[TensorType, TensorType]:
    columns, rows = fixed_sizes("householder", at)
    if rows < columns or attrs.columns not in (rows, columns):
        raise GraphError(f"householder: expected rows at least as long as they are many, actual {at}")
    batch = at.shape[:-2]
    return TensorType((*batch, attrs.columns, rows), at.dtype), TensorType((*batch, columns, columns), at.dtype)


def _householder_reference(attrs: HouseholderAttributes, at: Array) -> tuple[Array, Array]:
    a = np.swapaxes(at.astype(np.float64), -1, -2)
    q, r = np.linalg.qr(a, mode="complete" if attrs.columns > a.shape[-1] else "reduced")
    r = r[..., : a.shape[-1], :]
    return np.swapaxes(q, -1, -2).astype(at.dtype), np.swapaxes(r, -1, -2).astype(at.dtype)


def _no_derivative(o: Namespace, node: Primal[HouseholderAttributes], *given: Tensor | None) -> Sequence[Tensor | None]:
    raise GradientError("vectors that complete an orthonormal basis are not determined: they have no derivative")


HOUSEHOLDER = register(
    Op(
        "householder",
        "Qᵀ and Rᵀ of Aᵀ, for a matrix with no fewer rows than columns.",
        infer=_householder_type,
        reference=_householder_reference,
        vjp=_no_derivative,
        jvp=_no_derivative,
        dtypes=FLOATS,
        cases=(
            Case(((3, 3),), HouseholderAttributes(3), differentiable=()),
            Case(((2, 3, 5),), HouseholderAttributes(3), differentiable=()),
            Case(((1, 1),), HouseholderAttributes(1), differentiable=()),
            Case(((1, 4),), HouseholderAttributes(4), differentiable=()),
            Case(((7, 40),), HouseholderAttributes(7), differentiable=()),
            Case(((2, 7, 20),), HouseholderAttributes(20), differentiable=()),
            Case(((0, 2, 3),), HouseholderAttributes(2), differentiable=()),
            Case(((0, 3),), HouseholderAttributes(3), differentiable=()),
        ),
        tolerance=50.0,
        role="routine",
        batch=leading,
    )
)


def householder(a: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Q with that number of columns, and R."""
    qt, rt = graph_of((a,)).add(HOUSEHOLDER, (transpose_of(a),), HouseholderAttributes(columns)).outputs
    return transpose_of(qt), transpose_of(rt)


def _qr_type(attrs: NoAttributes, a: TensorType) -> tuple[TensorType, TensorType]:
    rows, columns = fixed_sizes("qr", a)
    if rows < columns:
        raise GraphError(f"qr: expected no fewer rows than columns, actual {a}")
    return a, TensorType((*a.shape[:-2], columns, columns), a.dtype)


def _vjp_qr(o: Namespace, node: Primal[NoAttributes], cq: Tensor | None, cr: Tensor | None) -> Sequence[Tensor | None]:
    q, r = node.outputs
    inner = o.zeros_like(r)
    if cr is not None:
        inner = o.add(inner, o.matmul(r, transpose_of(o.triu(cr))))
    if cq is not None:
        inner = o.subtract(inner, o.matmul(transpose_of(cq), q))
    mirrored = o.add(o.tril(inner), transpose_of(o.tril(inner, -1)))
    total = o.matmul(q, mirrored)
    if cq is not None:
        total = o.add(total, cq)
    return (transpose_of(triangular(r, transpose_of(total), lower=False)),)  # X·Rᵀ = total


def _jvp_qr(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    q, r = node.outputs
    quotient = o.solve_triangular(r, t, upper=True, left=False)
    inner = o.matmul(transpose_of(q), quotient)
    below = o.tril(inner, -1)
    upper = o.subtract(inner, o.subtract(below, transpose_of(below)))
    return o.subtract(quotient, o.matmul(q, upper)), o.matmul(o.triu(upper), r)


QR = register(
    Op(
        "qr",
        "Q with orthonormal columns and an upper triangular R, for a matrix with no fewer rows than columns.",
        infer=_qr_type,
        reference=lambda attrs, a: tuple(y.astype(a.dtype) for y in np.linalg.qr(a.astype(np.float64))),
        expand=lambda o, node: householder(node.inputs[0], int(node.inputs[0].shape[-1])),
        vjp=_vjp_qr,
        jvp=_jvp_qr,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), ranges=(UNIT,), prepared=spread_values)
            for shape in ((3, 3), (2, 5, 3), (1, 1), (9, 4), (0, 3, 2), (4, 1))
        ),
        grad_name="LinalgQr",
        tolerance=50.0,
        batch=last_axes,
    )
)


@public
def qr(x: TensorLike, *, mode: str = "reduced") -> QRResult:
    """Matrices as products of Q with orthonormal columns and an upper triangular R, by Householder reflections.

    Args:
        x: (…, m, n), of full rank for derivatives.
        mode: "reduced": Q (…, m, k) and R (…, k, n), k = min(m, n); "complete": Q (…, m, m) and R
            (…, m, n), for m > n without a derivative.

    Returns:
        A named tuple: ``Q`` and ``R``.

    Raises:
        GraphError: another mode, no matrices of sizes known when declared.

    Example:
        >>> q, r = sg.linalg.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
        >>> sg.Session().run(q @ r).round(4)
        array([[3., 1.],
               [4., 2.]])
        >>> q, r = sg.linalg.qr(sg.zeros((5, 3)), mode="complete")
        >>> q.shape, r.shape
        ((5, 5), (5, 3))
    """
    o = FUNCTIONS
    if mode not in ("reduced", "complete"):
        raise GraphError(f'qr: expected mode "reduced" or "complete", actual {mode!r}')
    a = float_matrix("qr", x)
    m, n = known_sizes("qr", a)
    if m < n:  # of the left square; what is right of it follows
        q, left = qr(a[..., :m])
        return QRResult(q, o.concat([left, o.matmul(transpose_of(q), a[..., m:])], axis=-1))
    if mode == "complete" and m > n:
        q, r = householder(a, m)
        return QRResult(q, o.concat([r, o.zeros((*a.shape[:-2], m - n, n), dtype=a.dtype)], axis=-2))
    return QRResult(*a.graph.add(QR, (a,)).outputs)


@public
@shown_as("LinalgHouseholderProductBackward0")
def householder_product(a: TensorLike, tau: TensorLike) -> Tensor:
    """The first columns of the product of Householder reflections, as LAPACK's ``geqrf`` leaves them and ``orgqr``
    multiplies them out.

    Reflection i is I − tau[i]·v·vᵀ, where v is 0 before place i, 1 there, and below it column i of ``a``. Their product
    is I − V·T·Vᵀ with a triangular T (R. Schreiber & C. Van Loan, A storage-efficient WY representation for products of
    Householder transformations, 1989), so that derivatives are those of products of matrices.

    Args:
        a: (…, m, n), m ≥ n; what is on and above the diagonal is not read.
        tau: (…, k), k ≤ n.

    Returns:
        (…, m, n).

    Raises:
        GraphError: no matrices of sizes known when declared, fewer rows than columns, or more reflections than columns.

    Example:
        >>> q = sg.linalg.householder_product(np.array([[0.0], [1.0]]), np.array([1.0]))
        >>> sg.Session().run(q)
        array([[ 0.],
               [-1.]])
    """
    what = "householder_product"
    x, scales = accepted(what, FLOAT, a, tau)
    m, n = known_sizes(what, matrix(what, x))
    k = scales.shape[-1] if scales.ndim else None
    if m < n or not isinstance(k, int) or k > n:
        raise GraphError(
            f"{what}: expected a (…, m, n) and tau (…, k) with m ≥ n ≥ k, actual {x.name!r} {x.type} and"
            f" {scales.name!r} {scales.type}"
        )
    x, columns = common_batch(what, x, FUNCTIONS.expand_dims(scales, -1))
    return rounded_once(lambda x, columns: _product_of_reflections(FUNCTIONS, x, columns, k), x, columns)


def _product_of_reflections(o: Namespace, a: Tensor, tau: Tensor, count: int) -> Tensor:
    """``tau`` (…, k, 1)."""
    m, n = known_sizes("householder_product", a)
    v = o.add(o.tril(a[..., :count], -1), o.eye(m, count, dtype=a.dtype))
    start = o.eye(m, n, dtype=a.dtype)
    between = o.multiply(o.triu(o.matmul(transpose_of(v), v), 1), tau)
    inner = o.multiply(tau, o.matmul(transpose_of(v), o.broadcast_to(start, a.shape)))
    return o.subtract(start, o.matmul(v, triangular(between, inner, lower=False, unit=True)))
