"""QR, eigenvalues of symmetric matrices, singular values, what is made of them, and their derivatives.

The primitives ``householder symmetric_eigen jacobi_svd`` are what kernels compute; vectors are rows in their operands
and results. What users call is composed of them and has its derivative in closed form:

    qr      S. Walter & L. Lehmann, Algorithmic differentiation of linear algebra functions (2010)
    eigh    M. Giles, Collected matrix derivative results for forward and reverse mode (2008)
    svd     J. Townsend, Differentiating the singular value decomposition (2016)
    pinv    G. Golub & V. Pereyra, The differentiation of pseudo-inverses, SIAM J. Numer. Anal. 10 (1973)

Vectors of equal eigenvalues or singular values are not determined, so they have no derivative: its terms between equal
values are taken for zero, which is right for what does not depend on the choice. Of each vector the element of largest
magnitude is positive (of singular vectors, that of the one with fewer elements).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.errors import GradientError, GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.lifting import TensorLike, graph_of
from staticgrad.ops.declare import FLOATS, added
from staticgrad.ops.factorisations import UNIT, check_square, each_or_nan, symmetric, triangular
from staticgrad.ops.matrices import float_matrix, known_sizes
from staticgrad.optable import FUNCTIONS, PRIMITIVE, Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.types import Shape, Size, TensorType, sizes


def _transposed(x: Tensor) -> Tensor:
    return FUNCTIONS.matrix_transpose(x)


def _spread(x: Array) -> Array:
    """Matrices whose values are well apart."""
    sizes = np.arange(1, min(x.shape[-2:]) + 1)
    result: Array = np.asarray(0.2 * x)
    result[..., sizes - 1, sizes - 1] += sizes
    return result


def _fixed(name: str, x: TensorType) -> tuple[int, int]:
    rows, columns = x.shape[-2:] if x.ndim >= 2 else (None, None)
    if not isinstance(rows, int) or not isinstance(columns, int) or x.dtype not in FLOATS:
        raise GraphError(f"{name}: expected matrices of floats, of sizes known when declared, actual {x}")
    return rows, columns


def _flipped(x: Array, signs: Array) -> Array:
    """Columns times signs."""
    return np.asarray(x * signs[..., None, :])


def _signs(x: Array) -> Array:
    """For each column ±1, so that times it the first element of largest magnitude is positive."""
    if not x.size:
        return np.ones((*x.shape[:-2], x.shape[-1]))
    place = np.argmax(np.abs(x), axis=-2)
    return np.asarray(np.copysign(1.0, np.take_along_axis(x, place[..., None, :], -2)[..., 0, :]))


# -- QR -------------------------------------------------------------------------------------------------------------


@frozen
class HouseholderAttributes:
    """How many columns of Q are made: as many as A has columns, or as it has rows."""

    columns: int

    def leading(self, size: Size) -> HouseholderAttributes:
        return self


def _householder_type(attrs: HouseholderAttributes, at: TensorType) -> tuple[TensorType, TensorType]:
    columns, rows = _fixed("householder", at)
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
        "Qᵀ and Rᵀ of Aᵀ, for a matrix with at least as many rows as columns.",
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
        tags=PRIMITIVE,
    )
)


def _householder(a: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Q with so many columns, and R."""
    qt, rt = graph_of((a,)).add(HOUSEHOLDER, (_transposed(a),), HouseholderAttributes(columns)).outputs
    return _transposed(qt), _transposed(rt)


def _qr_type(attrs: NoAttributes, a: TensorType) -> tuple[TensorType, TensorType]:
    rows, columns = _fixed("qr", a)
    if rows < columns:
        raise GraphError(f"qr: expected at least as many rows as columns, actual {a}")
    return a, TensorType((*a.shape[:-2], columns, columns), a.dtype)


def _vjp_qr(o: Namespace, node: Primal[NoAttributes], cq: Tensor | None, cr: Tensor | None) -> Sequence[Tensor | None]:
    q, r = node.outputs
    inner = o.zeros_like(r)
    if cr is not None:
        inner = o.add(inner, o.matmul(r, _transposed(o.triu(cr))))
    if cq is not None:
        inner = o.subtract(inner, o.matmul(_transposed(cq), q))
    mirrored = o.add(o.tril(inner), _transposed(o.tril(inner, -1)))
    total = o.matmul(q, mirrored)
    if cq is not None:
        total = o.add(total, cq)
    return (_transposed(triangular(r, _transposed(total), lower=False)),)  # X·Rᵀ = total


def _jvp_qr(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    q, r = node.outputs
    quotient = o.solve_triangular(r, t, upper=True, left=False)
    inner = o.matmul(_transposed(q), quotient)
    below = o.tril(inner, -1)
    upper = o.subtract(inner, o.subtract(below, _transposed(below)))
    return o.subtract(quotient, o.matmul(q, upper)), o.matmul(o.triu(upper), r)


QR = register(
    Op(
        "qr",
        "Q with orthonormal columns and an upper triangular R, for a matrix with at least as many rows as columns.",
        infer=_qr_type,
        reference=lambda attrs, a: tuple(y.astype(a.dtype) for y in np.linalg.qr(a.astype(np.float64))),
        expand=lambda o, node: _householder(node.inputs[0], int(node.inputs[0].shape[-1])),
        vjp=_vjp_qr,
        jvp=_jvp_qr,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), ranges=(UNIT,), prepared=_spread)
            for shape in ((3, 3), (2, 5, 3), (1, 1), (9, 4), (0, 3, 2), (4, 1))
        ),
        grad_name="LinalgQr",
        tolerance=50.0,
    )
)


@public
def qr(x: TensorLike, *, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Matrices as products of Q with orthonormal columns and an upper triangular R, by Householder reflections.

    Args:
        x: (\\*batch, m, n), of full rank for derivatives.
        mode: "reduced": Q (\\*batch, m, k) and R (\\*batch, k, n), k = min(m, n); "complete": Q (\\*batch, m, m) and R
            (\\*batch, m, n), for m > n without a derivative.

    Raises:
        GraphError: another mode, no matrices of sizes known when declared.
    """
    o = FUNCTIONS
    if mode not in ("reduced", "complete"):
        raise GraphError(f'qr: expected mode "reduced" or "complete", actual {mode!r}')
    a = float_matrix("qr", x)
    m, n = known_sizes("qr", a)
    if m < n:  # of the left square; what is right of it follows
        q, left = qr(a[..., :m])
        return q, o.concat([left, o.matmul(_transposed(q), a[..., m:])], axis=-1)
    if mode == "complete" and m > n:
        q, r = _householder(a, m)
        return q, o.concat([r, o.zeros((*a.shape[:-2], m - n, n), dtype=a.dtype)], axis=-2)
    q, r = a.graph.add(QR, (a,)).outputs
    return q, r


# -- eigenvalues ----------------------------------------------------------------------------------------------------


def _eigen_type(name: str) -> Callable[..., tuple[TensorType, TensorType]]:
    def infer(attrs: NoAttributes, a: TensorType) -> tuple[TensorType, TensorType]:
        check_square(name, a)
        return TensorType(a.shape[:-1], a.dtype), a

    return infer


def _eigen_of(a: Array) -> tuple[Array, Array]:
    wide = a.astype(np.float64)
    values, vectors = each_or_nan(lambda x: tuple(np.linalg.eigh(x)), (wide + np.swapaxes(wide, -1, -2)) / 2)
    return values.astype(a.dtype), _flipped(vectors, _signs(vectors)).astype(a.dtype)


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
            Case((shape,), prepared=lambda x: _spread(x) + np.swapaxes(_spread(x), -1, -2))
            for shape in (*_SYMMETRIC_SHAPES, (40, 40))
        ),
        tolerance=300.0,
        tags=PRIMITIVE,
    )
)


def _expand_eigh(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a = symmetric(node.inputs[0])
    values, rows = graph_of((a,)).add(SYMMETRIC_EIGEN, (a,)).outputs
    return [values, _transposed(rows)]


def _one_over_differences(o: Namespace, x: Tensor) -> Tensor:
    """1/(x[j] − x[i]) at (i, j), 0 where they are equal."""
    difference = o.subtract(o.expand_dims(x, -2), o.expand_dims(x, -1))
    same = o.equal(difference, 0)
    return o.where(same, 0, o.divide(1, o.where(same, 1, difference)))


def _scaled_columns(o: Namespace, x: Tensor, factors: Tensor) -> Tensor:
    return o.multiply(x, o.expand_dims(factors, -2))


def _vjp_eigh(
    o: Namespace, node: Primal[NoAttributes], cw: Tensor | None, cv: Tensor | None
) -> Sequence[Tensor | None]:
    w, v = node.outputs
    vt = _transposed(v)
    scaled = None if cw is None else o.matmul(_scaled_columns(o, v, cw), vt)
    turned = None
    if cv is not None:
        inner = o.multiply(_one_over_differences(o, w), o.matmul(vt, cv))
        turned = o.matmul(v, o.matmul(inner, vt))
    return (symmetric(added(o, scaled, turned)),)


def _jvp_eigh(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    w, v = node.outputs
    inner = o.matmul(_transposed(v), o.matmul(symmetric(t), v))
    values = o.sum(o.multiply(inner, o.eye(inner.shape[-1], dtype=inner.dtype)), axis=-1)
    return values, o.matmul(v, o.multiply(_one_over_differences(o, w), inner))


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
        cases=tuple(Case((shape,), ranges=(UNIT,), prepared=_spread) for shape in _SYMMETRIC_SHAPES[:6]),
        grad_name="LinalgEigh",
        tolerance=300.0,
    )
)


@public
def eigh(x: TensorLike) -> tuple[Tensor, Tensor]:
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Of each vector the element of largest magnitude is
    positive. Derivatives of vectors of equal eigenvalues do not exist; their terms are taken for zero.

    Args:
        x: (\\*batch, n, n), n known when declared.

    Returns:
        (\\*batch, n) and (\\*batch, n, n).

    Raises:
        GraphError: no square matrices of a size known when declared.
    """
    a = float_matrix("eigh", x)
    known_sizes("eigh", a)
    values, vectors = a.graph.add(EIGH, (a,)).outputs
    return values, vectors


@public
def eigvalsh(x: TensorLike) -> Tensor:
    """The eigenvalues of symmetric matrices in ascending order: the first result of ``eigh``."""
    return eigh(x)[0]


# -- singular values ------------------------------------------------------------------------------------------------


def _jacobi_type(attrs: NoAttributes, at: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    columns, rows = _fixed("jacobi_svd", at)
    if rows < columns:
        raise GraphError(f"jacobi_svd: expected rows at least as long as they are many, actual {at}")
    batch = at.shape[:-2]
    return at, TensorType((*batch, columns), at.dtype), TensorType((*batch, columns, columns), at.dtype)


def _svd_of(a: Array) -> tuple[Array, Array, Array]:
    u, s, vh = each_or_nan(lambda x: tuple(np.linalg.svd(x, full_matrices=False)), a.astype(np.float64))
    v = np.swapaxes(vh, -1, -2)
    signs = _signs(u if a.shape[-2] < a.shape[-1] else v)
    vh = np.swapaxes(_flipped(v, signs), -1, -2)
    return _flipped(u, signs).astype(a.dtype), s.astype(a.dtype), vh.astype(a.dtype)


def _jacobi_reference(attrs: NoAttributes, at: Array) -> tuple[Array, Array, Array]:
    u, s, vh = _svd_of(np.swapaxes(at, -1, -2))
    return np.swapaxes(u, -1, -2), s, vh


JACOBI_SVD = register(
    Op(
        "jacobi_svd",
        "Singular values and vectors, as rows, of Aᵀ, for a matrix with at least as many rows as columns.",
        infer=_jacobi_type,
        reference=_jacobi_reference,
        differentiable=False,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), prepared=_spread)
            for shape in ((3, 3), (2, 3, 5), (1, 1), (1, 4), (7, 40), (20, 20), (0, 2, 3), (2, 0, 3))
        ),
        tolerance=300.0,
        tags=PRIMITIVE,
    )
)


def _svd_type(attrs: NoAttributes, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    rows, columns = _fixed("svd", a)
    least, batch = min(rows, columns), a.shape[:-2]
    u, s, vh = (TensorType((*batch, *ends), a.dtype) for ends in ((rows, least), (least,), (least, columns)))
    return u, s, vh


def _expand_svd(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a = node.inputs[0]
    rows, columns = sizes(a.shape[-2:])
    wide = rows < columns
    ut, s, vt = graph_of((a,)).add(JACOBI_SVD, (a if wide else _transposed(a),)).outputs
    return [_transposed(vt), s, ut] if wide else [_transposed(ut), s, vt]


def _without(o: Namespace, basis: Tensor, x: Tensor) -> Tensor:
    """What of the columns of ``x`` is orthogonal to those of ``basis``."""
    return o.subtract(x, o.matmul(basis, o.matmul(_transposed(basis), x)))


def _differences_of_squares(o: Namespace, s: Tensor) -> Tensor:
    """1/(s[j]² − s[i]²) at (i, j), 0 where they are equal."""
    x, y = o.expand_dims(s, -2), o.expand_dims(s, -1)
    product = o.multiply(o.subtract(x, y), o.add(x, y))
    same = o.equal(product, 0)
    return o.where(same, 0, o.divide(1, o.where(same, 1, product)))


def _vjp_svd(
    o: Namespace, node: Primal[NoAttributes], cu: Tensor | None, cs: Tensor | None, cvh: Tensor | None
) -> Sequence[Tensor | None]:
    u, s, vh = node.outputs
    v, (rows, columns) = _transposed(vh), sizes((u.shape[-2], vh.shape[-1]))
    size = o.eye(s.shape[-1], dtype=s.dtype)
    middle = o.multiply(o.expand_dims(cs, -1), size) if cs is not None else None
    sides: list[Tensor] = []

    def skew(product: Tensor) -> Tensor:
        difference = o.subtract(product, _transposed(product))
        return o.multiply(_differences_of_squares(o, s), difference)

    if cu is not None:
        middle = added(o, middle, _scaled_columns(o, skew(o.matmul(_transposed(u), cu)), s))
        if rows > columns:
            sides.append(o.matmul(_scaled_columns(o, _without(o, u, cu), o.reciprocal(s)), vh))
    if cvh is not None:
        cv = _transposed(cvh)
        middle = added(o, middle, o.multiply(o.expand_dims(s, -1), skew(o.matmul(vh, cv))))
        if rows < columns:
            sides.append(o.matmul(u, _transposed(_scaled_columns(o, _without(o, v, cv), o.reciprocal(s)))))
    return (added(o, o.matmul(u, o.matmul(middle, vh)), *sides),)


def _jvp_svd(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor | None]:
    u, s, vh = node.outputs
    v = _transposed(vh)
    inner = o.matmul(_transposed(u), o.matmul(t, v))
    factors = _differences_of_squares(o, s)
    values = o.sum(o.multiply(inner, o.eye(s.shape[-1], dtype=s.dtype)), axis=-1)
    right, left = _scaled_columns(o, inner, s), o.multiply(o.expand_dims(s, -1), inner)
    du = o.matmul(u, o.multiply(factors, o.add(right, _transposed(right))))
    dv = o.matmul(v, o.multiply(factors, o.add(left, _transposed(left))))
    rows, least, columns = sizes((u.shape[-2], s.shape[-1], vh.shape[-1]))
    if rows > least:
        du = o.add(du, _scaled_columns(o, _without(o, u, o.matmul(t, v)), o.reciprocal(s)))
    if columns > least:
        dv = o.add(dv, _scaled_columns(o, _without(o, v, o.matmul(_transposed(t), u)), o.reciprocal(s)))
    return du, values, _transposed(dv)


SVD = register(
    Op(
        "svd",
        "Singular values in descending order, and as many left and right singular vectors.",
        infer=_svd_type,
        reference=lambda attrs, a: _svd_of(a),
        expand=_expand_svd,
        vjp=_vjp_svd,
        jvp=_jvp_svd,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape,), ranges=(UNIT,), prepared=_spread)
            for shape in ((3, 3), (2, 5, 3), (3, 5), (1, 1), (2, 1, 4), (0, 3, 2))
        ),
        grad_name="LinalgSvd",
        tolerance=300.0,
    )
)


@public
def svd(x: TensorLike, *, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices as products U·diag(S)·Vh with orthonormal columns of U and rows of Vh.

    Of each pair of vectors the element of largest magnitude of the right one (for m < n of the left one) is positive.
    Derivatives of vectors of equal singular values do not exist; their terms are taken for zero. The further vectors
    that ``full_matrices`` asks for have none.

    Args:
        x: (\\*batch, m, n), m and n known when declared; k = min(m, n).
        full_matrices: whether U is (\\*batch, m, m) and Vh (\\*batch, n, n) instead of (…, m, k) and (…, k, n).

    Returns:
        U, S (\\*batch, k) in descending order, and Vh.

    Raises:
        GraphError: no matrices of sizes known when declared.
    """
    o = FUNCTIONS
    a = float_matrix("svd", x)
    m, n = known_sizes("svd", a)
    u, s, vh = a.graph.add(SVD, (a,)).outputs
    if full_matrices and m > n:
        u = o.concat([u, _householder(u, m)[0][..., n:]], axis=-1)
    if full_matrices and n > m:
        vh = o.concat([vh, _transposed(_householder(_transposed(vh), n)[0][..., m:])], axis=-2)
    return u, s, vh


@public
def svdvals(x: TensorLike) -> Tensor:
    """The singular values of matrices in descending order."""
    return svd(x, full_matrices=False)[1]


def _tolerance(values: Tensor, shape: Shape, rtol: float | None) -> Tensor:
    """What counts as zero among singular values: ``rtol`` (max(m, n) times the machine's precision) of the largest."""
    factor = max(sizes(shape[-2:])) * float(np.finfo(values.dtype).eps) if rtol is None else rtol
    return FUNCTIONS.multiply(FUNCTIONS.max(values, axis=-1, keepdims=True), factor)


@public
def matrix_rank(x: TensorLike, *, rtol: float | None = None) -> Tensor:
    """How many singular values of matrices are above ``rtol`` (max(m, n) times the machine's precision) times the
    largest, as int64.

    Args:
        x: (\\*batch, m, n), m and n positive and known when declared.

    Returns:
        (\\*batch,).
    """
    o = FUNCTIONS
    values = svdvals(x)
    limit = _tolerance(values, float_matrix("matrix_rank", x).shape, rtol)
    return o.count_nonzero(o.greater(values, limit), axis=-1)


@frozen
class PinvAttributes:
    """Singular values up to ``rtol`` of the largest count as zero; None: max(m, n) times the machine's precision."""

    rtol: float | None

    def leading(self, size: Size) -> PinvAttributes:
        return self


def _pinv_type(attrs: PinvAttributes, a: TensorType) -> TensorType:
    rows, columns = _fixed("pinv", a)
    return TensorType((*a.shape[:-2], columns, rows), a.dtype)


def _pinv_reference(attrs: PinvAttributes, a: Array) -> Array:
    rcond = max(a.shape[-2:]) * float(np.finfo(a.dtype).eps) if attrs.rtol is None else attrs.rtol
    return np.asarray(each_or_nan(lambda x: np.linalg.pinv(x, rcond), a.astype(np.float64))).astype(a.dtype)


def _expand_pinv(o: Namespace, node: Primal[PinvAttributes]) -> Sequence[Tensor]:
    a = node.inputs[0]
    u, s, vh = svd(a, full_matrices=False)
    used = o.greater(s, _tolerance(s, a.shape, node.attrs.rtol))
    inverse = o.where(used, o.divide(1, o.where(used, s, 1)), 0)
    return [o.matmul(_scaled_columns(o, _transposed(vh), inverse), _transposed(u))]


def _remainders(o: Namespace, a: Tensor, p: Tensor) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """x ↦ (1 − A·P)·x, and x ↦ x·(1 − P·A)."""
    return (
        lambda x: o.subtract(x, o.matmul(a, o.matmul(p, x))),
        lambda x: o.subtract(x, o.matmul(o.matmul(x, p), a)),
    )


def _vjp_pinv(o: Namespace, node: Primal[PinvAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    a, p = node.inputs[0], node.outputs[0]
    pt, back = _transposed(p), _transposed(ct)
    left, right = _remainders(o, a, p)
    total = o.negative(o.matmul(pt, o.matmul(ct, pt)))
    total = o.add(total, left(o.matmul(back, o.matmul(p, pt))))
    return (o.add(total, right(o.matmul(pt, o.matmul(p, back)))),)


def _jvp_pinv(o: Namespace, node: Primal[PinvAttributes], t: Tensor) -> Sequence[Tensor | None]:
    a, p = node.inputs[0], node.outputs[0]
    pt, tt = _transposed(p), _transposed(t)
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
            Case((shape,), PinvAttributes(None), (UNIT,), prepared=_spread)
            for shape in ((3, 3), (2, 5, 3), (3, 5), (1, 1), (2, 1, 4))
        ),
        grad_name="LinalgPinv",
        tolerance=300.0,
    )
)


@public
def pinv(x: TensorLike, *, rtol: float | None = None) -> Tensor:
    """Moore and Penrose's inverses of matrices. Derivatives are right where the rank does not change.

    Args:
        x: (\\*batch, m, n), m and n positive and known when declared.
        rtol: singular values up to so much of the largest count as zero; default: max(m, n) times the machine's
            precision.

    Returns:
        (\\*batch, n, m).

    Raises:
        GraphError: no matrices of sizes known when declared.
    """
    a = float_matrix("pinv", x)
    known_sizes("pinv", a)
    return a.graph.add(PINV, (a,), PinvAttributes(rtol)).outputs[0]
