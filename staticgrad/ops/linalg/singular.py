"""Singular values and vectors, and what is made of them: ``matrix_rank`` and ``pinv``.

The primitive is ``jacobi_svd``, whose vectors are rows. The derivatives:

    svd     J. Townsend, Differentiating the singular value decomposition (2016)
    pinv    G. Golub & V. Pereyra, The differentiation of pseudo-inverses, SIAM J. Numer. Anal. 10 (1973)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Shape, Size, TensorType, number, sizes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.graph.results import SVDResult
from staticgrad.ops.batch_rules import last_axes, leading
from staticgrad.ops.declare import added, declare
from staticgrad.ops.elementwise.copies import widened
from staticgrad.ops.linalg.matrices import float_matrix, known_sizes
from staticgrad.ops.linalg.orthogonal import householder
from staticgrad.ops.linalg.square import UNIT, each_or_nan, transpose_of
from staticgrad.ops.linalg.vectors import (
    fixed_sizes,
    flipped,
    off_diagonal,
    one_over_differences,
    pairs,
    scaled_columns,
    signs_of,
    spread_values,
)


def _jacobi_type(attrs: NoAttributes, at: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    columns, rows = fixed_sizes("jacobi_svd", at)
    if rows < columns:
        raise GraphError(f"jacobi_svd: expected rows at least as long as they are many, actual {at}")
    batch = at.shape[:-2]
    return at, TensorType((*batch, columns), at.dtype), TensorType((*batch, columns, columns), at.dtype)


def _svd_of(a: Array) -> tuple[Array, Array, Array]:
    u, s, vh = each_or_nan(lambda x: tuple(np.linalg.svd(x, full_matrices=False)), a.astype(np.float64))
    v = np.swapaxes(vh, -1, -2)
    signs = signs_of(u if a.shape[-2] < a.shape[-1] else v)
    vh = np.swapaxes(flipped(v, signs), -1, -2)
    return flipped(u, signs).astype(a.dtype), s.astype(a.dtype), vh.astype(a.dtype)


def _jacobi_reference(attrs: NoAttributes, at: Array) -> tuple[Array, Array, Array]:
    u, s, vh = _svd_of(np.swapaxes(at, -1, -2))
    return np.swapaxes(u, -1, -2), s, vh


JACOBI_SVD = register(
    Op(
        "jacobi_svd",
        "Singular values and vectors, as rows, of Aᵀ, for a matrix with no fewer rows than columns.",
        infer=_jacobi_type,
        reference=_jacobi_reference,
        differentiable=False,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), prepared=spread_values)
            for shape in ((3, 3), (2, 3, 5), (1, 1), (1, 4), (7, 40), (20, 20), (0, 2, 3), (2, 0, 3))
        ),
        tolerance=300.0,
        role="routine",
        batch=last_axes,
    )
)


def _svd_type(attrs: NoAttributes, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    rows, columns = fixed_sizes("svd", a)
    least, batch = min(rows, columns), a.shape[:-2]
    u, s, vh = (TensorType((*batch, *ends), a.dtype) for ends in ((rows, least), (least,), (least, columns)))
    return u, s, vh


def _expand_svd(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a = node.inputs[0]
    rows, columns = sizes(a.shape[-2:])
    wide = rows < columns
    ut, s, vt = graph_of((a,)).add(JACOBI_SVD, (a if wide else transpose_of(a),)).outputs
    return [transpose_of(vt), s, ut] if wide else [transpose_of(ut), s, vt]


def _without(o: Namespace, basis: Tensor, x: Tensor) -> Tensor:
    """The component of the columns of ``x`` that is orthogonal to those of ``basis``."""
    return o.subtract(x, o.matmul(basis, o.matmul(transpose_of(basis), x)))


def _differences_of_squares(o: Namespace, s: Tensor) -> Tensor:
    """1/(s[j]² − s[i]²) at (i, j), 0 on the diagonal, elsewhere NaN where they are equal but for rounding."""
    sums = o.add(*pairs(o, s))
    return o.divide(one_over_differences(o, s), o.where(o.equal(sums, 0), 1, sums))


def _vjp_svd(
    o: Namespace, node: Primal[NoAttributes], cu: Tensor | None, cs: Tensor | None, cvh: Tensor | None
) -> Sequence[Tensor | None]:
    u, s, vh = node.outputs
    v, (rows, columns) = transpose_of(vh), sizes((u.shape[-2], vh.shape[-1]))
    size = o.eye(s.shape[-1], dtype=s.dtype)
    middle = o.multiply(o.expand_dims(cs, -1), size) if cs is not None else None
    sides: list[Tensor] = []

    def skew(product: Tensor) -> Tensor:
        difference = o.subtract(product, transpose_of(product))
        return o.multiply(_differences_of_squares(o, s), difference)

    if cu is not None:
        middle = added(o, middle, scaled_columns(o, skew(o.matmul(transpose_of(u), cu)), s))
        if rows > columns:
            sides.append(o.matmul(scaled_columns(o, _without(o, u, cu), o.reciprocal(s)), vh))
    if cvh is not None:
        cv = transpose_of(cvh)
        middle = added(o, middle, o.multiply(o.expand_dims(s, -1), skew(o.matmul(vh, cv))))
        if rows < columns:
            sides.append(o.matmul(u, transpose_of(scaled_columns(o, _without(o, v, cv), o.reciprocal(s)))))
    return (added(o, o.matmul(u, o.matmul(middle, vh)), *sides),)


def _jvp_svd(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    u, s, vh = node.outputs
    v = transpose_of(vh)
    inner = o.matmul(transpose_of(u), o.matmul(t, v))
    factors = _differences_of_squares(o, s)
    values = o.sum(o.multiply(inner, o.eye(s.shape[-1], dtype=s.dtype)), axis=-1)
    right, left = scaled_columns(o, inner, s), o.multiply(o.expand_dims(s, -1), inner)
    du = o.matmul(u, o.multiply(factors, o.add(right, transpose_of(right))))
    dv = o.matmul(v, o.multiply(factors, o.add(left, transpose_of(left))))
    rows, least, columns = sizes((u.shape[-2], s.shape[-1], vh.shape[-1]))
    if rows > least:
        du = o.add(du, scaled_columns(o, _without(o, u, o.matmul(t, v)), o.reciprocal(s)))
    if columns > least:
        dv = o.add(dv, scaled_columns(o, _without(o, v, o.matmul(transpose_of(t), u)), o.reciprocal(s)))
    return du, values, transpose_of(dv)


_SPREAD_CASES = tuple(
    Case((shape,), ranges=(UNIT,), prepared=spread_values)
    for shape in ((3, 3), (2, 5, 3), (3, 5), (1, 1), (2, 1, 4), (0, 3, 2))
)

SVD = register(
    Op(
        "svd",
        "Singular values in descending order, and the left and right singular vectors of each.",
        infer=_svd_type,
        reference=lambda attrs, a: _svd_of(a),
        expand=_expand_svd,
        vjp=_vjp_svd,
        jvp=_jvp_svd,
        dtypes=FLOATS,
        cases=_SPREAD_CASES,
        grad_name="LinalgSvd",
        tolerance=300.0,
        batch=last_axes,
    )
)


@public
def svd(x: TensorLike, *, full_matrices: bool = True) -> SVDResult:
    """Matrices as products U·diag(S)·Vh with orthonormal columns of U and rows of Vh.

    Of each pair of vectors the element of largest magnitude of the right one (for m < n of the left one) is positive.
    Vectors of equal singular values have no derivative: where it is asked for it is NaN, and that of the values alone
    is right. The further vectors that ``full_matrices`` asks for have none.

    Args:
        x: (…, m, n), m and n known when declared; k = min(m, n).
        full_matrices: whether U is (…, m, m) and Vh (…, n, n) instead of (…, m, k) and (…, k, n).

    Returns:
        A named tuple: ``U``, ``S`` (…, k) in descending order, and ``Vh``.

    Raises:
        GraphError: no matrices of sizes known when declared.

    Example:
        >>> u, s, vh = sg.linalg.svd(np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), full_matrices=False)
        >>> u.shape, vh.shape
        ((3, 2), (2, 2))
        >>> sg.Session().run(s).round(4)
        array([3., 2.])
    """
    o = FUNCTIONS
    a = float_matrix("svd", x)
    m, n = known_sizes("svd", a)
    u, s, vh = a.graph.add(SVD, (a,)).outputs
    if full_matrices and m > n:
        u = o.concat([u, householder(u, m)[0][..., n:]], axis=-1)
    if full_matrices and n > m:
        vh = o.concat([vh, transpose_of(householder(transpose_of(vh), n)[0][..., m:])], axis=-2)
    return SVDResult(u, s, vh)


@public
def svdvals(x: TensorLike) -> Tensor:
    """The singular values of matrices in descending order.

    Example:
        >>> sg.Session().run(sg.linalg.svdvals([[3.0, 0.0], [0.0, -4.0]])).round(4)
        array([4., 3.], dtype=float32)
    """
    return svd(x, full_matrices=False)[1]


def _tolerance(values: Tensor, shape: Shape, rtol: float | None) -> Tensor:
    """The bound below which singular values count as zero: ``rtol`` (max(m, n) times the machine's precision) of the
    largest."""
    if values.shape[-1] == 0:
        return FUNCTIONS.zeros((*values.shape[:-1], 1), dtype=values.dtype)
    factor = max(sizes(shape[-2:])) * float(np.finfo(values.dtype).eps) if rtol is None else rtol
    return FUNCTIONS.multiply(FUNCTIONS.max(values, axis=-1, keepdims=True), factor)


@public
def matrix_rank(x: TensorLike, *, rtol: float | None = None) -> Tensor:
    """The rank of matrices: how many singular values are above ``rtol`` (default: max(m, n) times the machine's
    precision) times the largest, as int64.

    Args:
        x: (…, m, n), m and n known when declared.

    Returns:
        (…).

    Example:
        >>> sg.Session().run(sg.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        array(1)
    """
    o = FUNCTIONS
    (a,) = widened([float_matrix("matrix_rank", x)])
    values = svdvals(a)
    limit = _tolerance(values, a.shape, rtol if rtol is None else number(rtol, "matrix_rank: rtol"))
    return o.count_nonzero(o.greater(values, limit), axis=-1)


# -- norms ----------------------------------------------------------------------------------------------------------


@frozen
class SpectralNormAttributes:
    """The singular values that make the norm: "all" by their sum, the "largest" or the "smallest" one."""

    values: Literal["all", "largest", "smallest"]

    def leading(self, size: Size) -> SpectralNormAttributes:
        return self


def _shares(o: Namespace, values: str, s: Tensor) -> Tensor:
    """The derivative of a norm by each singular value; equal extremes share it."""
    if values == "all":
        return o.ones_like(s)
    extreme = (o.max if values == "largest" else o.min)(s, axis=-1, keepdims=True)
    there = o.astype(o.equal(s, extreme), s.dtype)
    return o.divide(there, o.sum(there, axis=-1, keepdims=True))


def _expand_norm(o: Namespace, node: Primal[SpectralNormAttributes]) -> Sequence[Tensor]:
    combine = {"all": o.sum, "largest": o.max, "smallest": o.min}[node.attrs.values]
    return [combine(svd(node.inputs[0], full_matrices=False)[1], axis=-1)]


def _expand_norm_slope(o: Namespace, node: Primal[SpectralNormAttributes]) -> Sequence[Tensor]:
    u, s, vh = svd(node.inputs[0], full_matrices=False)
    return [o.matmul(scaled_columns(o, u, _shares(o, node.attrs.values, s)), vh)]


def _norm_slope_rule(o: Namespace, node: Primal[SpectralNormAttributes], t: Tensor) -> Sequence[Tensor]:
    """The derivative of U·diag(c)·Vh for shares c that are constant, symmetric in a tangent and a cotangent: that of
    the sum of all has no differences of values, and that of an extreme one none between two others."""
    u, s, vh = svd(node.inputs[0], full_matrices=False)
    v, shares = transpose_of(vh), _shares(o, node.attrs.values, s)
    inner = o.matmul(transpose_of(u), o.matmul(t, v))
    if node.attrs.values == "all":
        sums = o.add(*pairs(o, s))
        middle = off_diagonal(o, o.divide(o.subtract(inner, transpose_of(inner)), sums))
    else:
        (sj, si), (cj, ci) = pairs(o, s), pairs(o, shares)
        factors = o.where(o.logical_and(o.equal(ci, 0), o.equal(cj, 0)), 0, _differences_of_squares(o, s))
        same = o.multiply(inner, o.subtract(o.multiply(sj, cj), o.multiply(si, ci)))
        other = o.multiply(transpose_of(inner), o.subtract(o.multiply(si, cj), o.multiply(sj, ci)))
        middle = o.multiply(factors, o.add(same, other))
    terms = [o.matmul(u, o.matmul(middle, vh))]
    over = o.divide(shares, o.where(o.equal(shares, 0), 1, s))
    rows, columns = sizes((u.shape[-2], vh.shape[-1]))
    if rows > columns:
        terms.append(o.matmul(scaled_columns(o, _without(o, u, o.matmul(t, v)), over), vh))
    if columns > rows:
        side = _without(o, v, o.matmul(transpose_of(t), u))
        terms.append(o.matmul(u, transpose_of(scaled_columns(o, side, over))))
    return [added(o, *terms)]


def _norm_type(attrs: SpectralNormAttributes, a: TensorType) -> TensorType:
    fixed_sizes("spectral_norm", a)
    if attrs.values != "all" and 0 in a.shape[-2:]:
        raise GraphError(f"matrix_norm: there is no {attrs.values} singular value of matrices without elements: {a}")
    return TensorType(a.shape[:-2], a.dtype)


def _norm_reference(attrs: SpectralNormAttributes, a: Array) -> Array:
    s = _svd_of(a.astype(np.float64))[1]
    norm = np.sum(s, axis=-1) if attrs.values == "all" else s[..., 0 if attrs.values == "largest" else -1]
    return np.asarray(norm).astype(a.dtype)


def _norm_slope_reference(attrs: SpectralNormAttributes, a: Array) -> Array:
    u, s, vh = _svd_of(a.astype(np.float64))
    extreme = {"all": s, "largest": s[..., :1], "smallest": s[..., -1:]}[attrs.values]
    shares = (s == extreme).astype(np.float64)
    if attrs.values != "all":
        shares /= np.sum(shares, axis=-1, keepdims=True)
    return np.asarray((u * shares[..., None, :]) @ vh).astype(a.dtype)


_NORM_CASES = tuple(
    Case(case.shapes, SpectralNormAttributes(values), case.ranges, prepared=case.prepared)
    for values in ("all", "largest", "smallest")
    for case in _SPREAD_CASES
)

NORM_SLOPE = register(
    Op(
        "spectral_norm_slope",
        "The derivative of a norm of singular values.",
        infer=lambda attrs, a: (fixed_sizes("spectral_norm_slope", a), a)[1],
        reference=_norm_slope_reference,
        expand=_expand_norm_slope,
        vjp=_norm_slope_rule,
        jvp=_norm_slope_rule,
        dtypes=FLOATS,
        cases=_NORM_CASES,
        tolerance=300.0,
        batch=leading,
    )
)

NORM = register(
    Op(
        "spectral_norm",
        "The sum of the singular values, the largest or the smallest one.",
        infer=_norm_type,
        reference=_norm_reference,
        expand=_expand_norm,
        vjp=lambda o, node, ct: [o.multiply(o.expand_dims(ct, (-2, -1)), declare(NORM_SLOPE, node.inputs, node.attrs))],
        jvp=lambda o, node, t: [o.sum(o.multiply(declare(NORM_SLOPE, node.inputs, node.attrs), t), axis=(-2, -1))],
        dtypes=FLOATS,
        cases=_NORM_CASES,
        tolerance=300.0,
        batch=leading,
    )
)


@public
def spectral_norm(a: Tensor, values: Literal["all", "largest", "smallest"]) -> Tensor:
    """The norms of matrices that follow from singular values, which ``matrix_norm`` declares."""
    known_sizes("matrix_norm", a)
    return declare(NORM, (a,), SpectralNormAttributes(values))


# -- what rank and inverses follow from -----------------------------------------------------------------------------


@frozen
class PinvAttributes:
    """Singular values up to ``rtol`` of the largest count as zero; None: max(m, n) times the machine's precision."""

    rtol: float | None

    def leading(self, size: Size) -> PinvAttributes:
        return self


def _pinv_type(attrs: PinvAttributes, a: TensorType) -> TensorType:
    rows, columns = fixed_sizes("pinv", a)
    return TensorType((*a.shape[:-2], columns, rows), a.dtype)


def _pinv_reference(attrs: PinvAttributes, a: Array) -> Array:
    rcond = max(a.shape[-2:]) * float(np.finfo(a.dtype).eps) if attrs.rtol is None else attrs.rtol
    return np.asarray(each_or_nan(lambda x: np.linalg.pinv(x, rcond), a.astype(np.float64))).astype(a.dtype)


def _expand_pinv(o: Namespace, node: Primal[PinvAttributes]) -> Sequence[Tensor]:
    a = node.inputs[0]
    u, s, vh = svd(a, full_matrices=False)
    used = o.greater(s, _tolerance(s, a.shape, node.attrs.rtol))
    inverse = o.where(used, o.divide(1, o.where(used, s, 1)), 0)
    return [o.matmul(scaled_columns(o, transpose_of(vh), inverse), transpose_of(u))]


def _remainders(o: Namespace, a: Tensor, p: Tensor) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """x ↦ (1 − A·P)·x, and x ↦ x·(1 − P·A)."""
    return (
        lambda x: o.subtract(x, o.matmul(a, o.matmul(p, x))),
        lambda x: o.subtract(x, o.matmul(o.matmul(x, p), a)),
    )


def _vjp_pinv(o: Namespace, node: Primal[PinvAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    a, p = node.inputs[0], node.outputs[0]
    pt, back = transpose_of(p), transpose_of(ct)
    left, right = _remainders(o, a, p)
    total = o.negative(o.matmul(pt, o.matmul(ct, pt)))
    total = o.add(total, left(o.matmul(back, o.matmul(p, pt))))
    return (o.add(total, right(o.matmul(pt, o.matmul(p, back)))),)


def _jvp_pinv(o: Namespace, node: Primal[PinvAttributes], t: Tensor) -> Sequence[Tensor | None]:
    a, p = node.inputs[0], node.outputs[0]
    pt, tt = transpose_of(p), transpose_of(t)
    total = o.negative(o.matmul(p, o.matmul(t, p)))
    first = o.matmul(p, o.matmul(pt, tt))
    second = o.matmul(tt, o.matmul(pt, p))
    total = o.add(total, o.subtract(first, o.matmul(o.matmul(first, a), p)))
    return (o.add(total, o.subtract(second, o.matmul(p, o.matmul(a, second)))),)


PINV = register(
    Op(
        "pinv",
        "Moore and Penrose's inverses.",
        infer=_pinv_type,
        reference=_pinv_reference,
        expand=_expand_pinv,
        vjp=_vjp_pinv,
        jvp=_jvp_pinv,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), PinvAttributes(None), (UNIT,), prepared=spread_values)
            for shape in ((3, 3), (2, 5, 3), (3, 5), (1, 1), (2, 1, 4), (0, 3), (2, 3, 0))
        ),
        grad_name="LinalgPinv",
        tolerance=300.0,
        batch=leading,
    )
)


@public
def pinv(x: TensorLike, *, rtol: float | None = None) -> Tensor:
    """Moore and Penrose's inverses of matrices. Derivatives are right where the rank does not change.

    Args:
        x: (…, m, n), m and n known when declared.
        rtol: singular values up to so much of the largest count as zero; default: max(m, n) times the machine's
            precision.

    Returns:
        (…, n, m).

    Raises:
        GraphError: no matrices of sizes known when declared.

    Example:
        >>> sg.Session().run(sg.linalg.pinv([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])).round(4)
        array([[1. , 0. , 0. ],
               [0. , 0.5, 0. ]], dtype=float32)
    """
    a = float_matrix("pinv", x)
    known_sizes("pinv", a)
    return a.graph.add(PINV, (a,), PinvAttributes(rtol if rtol is None else number(rtol, "pinv: rtol"))).outputs[0]
