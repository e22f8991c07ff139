"""Determinants of square matrices: ``det``, ``slogdet``.

The derivative of a determinant is the matrix of cofactors. Where the matrix is regular that is det(A)·A⁻ᵀ. Where it is
singular, or so nearly that this would cancel, it follows from the singular values of the matrix when its rows and
columns are scaled (whose errors are relative to the largest): with A = U·diag(s)·Vᵀ and
σ = det(U)·det(V), which is 1 or -1,

    cofactors      σ·U·diag(g)·Vᵀ           g[i] = the product of all s but s[i]
    derivative     σ·U·M(Uᵀ·T·V)·Vᵀ         in the direction T, with G[i, j] = the product of all s but s[i] and s[j]
                   M(P)[i, i] = Σ G[i, j]·P[j, j] over j ≠ i,    M(P)[i, j] = -G[i, j]·P[j, i]

in which nothing is divided. It is symmetric in T and a cotangent, so the vjp is the jvp.

The other derivatives: M. Giles, Collected matrix derivative results for forward and reverse mode (2008).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from staticgrad.base.types import FLOATS, TensorType
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import NO_ATTRIBUTES, Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.graph.results import SlogdetResult
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.declare import declare
from staticgrad.ops.linalg.elimination import exchanged, factored, of_known_size, system_solution
from staticgrad.ops.linalg.square import UNIT, check_square, square_cases, square_type, transpose_of
from staticgrad.ops.linalg.vectors import scaled_columns

# -- cofactors ------------------------------------------------------------------------------------------------------


def _all_but(o: Namespace, s: Tensor, places: int) -> Tensor:
    """The products of all numbers of each vector but ``places`` of them: (…, n), or (…, n, n) whose diagonal is 0."""
    n = s.shape[-1]
    grid = (n,) * (places + 1)
    number = o.iota(grid, places)
    left_out = [o.equal(number, o.iota(grid, axis)) for axis in range(places)]
    some = left_out[0] if places == 1 else o.logical_or(*left_out)
    products = o.prod(o.where(some, 1, o.expand_dims(s, tuple(range(-places - 1, -1)))), axis=-1)
    return products if places == 1 else o.where(o.equal(o.iota((n, n), 0), o.iota((n, n), 1)), 0, products)


def _orientation(o: Namespace, u: Tensor, vh: Tensor) -> Tensor:
    """det(U)·det(V) of orthogonal matrices, 1 or -1, with two axes to broadcast."""
    return o.expand_dims(o.stop_gradient(o.sign(o.multiply(o.det(u), o.det(vh)))), (-2, -1))


def _expand_cofactors(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    u, s, vh = o.svd(node.inputs[0], full_matrices=False)
    return [o.multiply(o.matmul(scaled_columns(o, u, _all_but(o, s, 1)), vh), _orientation(o, u, vh))]


def _cofactors_rule(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor]:
    u, s, vh = o.svd(node.inputs[0], full_matrices=False)
    p = o.matmul(transpose_of(u), o.matmul(t, transpose_of(vh)))
    others = _all_but(o, s, 2)
    diagonal = o.matmul(others, o.expand_dims(o.diagonal(p), -1))
    moved = o.multiply(others, transpose_of(p))
    n = s.shape[-1]
    middle = o.subtract(o.multiply(o.eye(n, dtype=s.dtype), diagonal), moved)
    return [o.multiply(o.matmul(u, o.matmul(middle, vh)), _orientation(o, u, vh))]


def _cofactors_reference(attrs: NoAttributes, a: Array) -> Array:
    """Each as the determinant of what is left without its row and column."""
    wide, n = a.astype(np.float64), a.shape[-1]
    result = np.empty(a.shape)
    for i in range(n):
        for j in range(n):
            left = np.delete(np.delete(wide, i, axis=-2), j, axis=-1)
            result[..., i, j] = (-1) ** (i + j) * np.linalg.det(left)
    return result.astype(a.dtype)


COFACTORS = register(
    Op(
        "cofactors",
        "The cofactors of matrices, by singular values: the derivative of their determinants, of singular ones too.",
        infer=square_type("cofactors"),
        reference=_cofactors_reference,
        expand=_expand_cofactors,
        vjp=_cofactors_rule,
        jvp=_cofactors_rule,
        dtypes=FLOATS,
        cases=tuple(Case((shape,)) for shape in ((3, 3), (1, 1), (2, 4, 4), (0, 3, 3), (6, 6))),
        tolerance=100.0,
        batch=last_axes,
    )
)


# -- determinants ---------------------------------------------------------------------------------------------------


def _det_type(attrs: NoAttributes, x: TensorType) -> TensorType:
    check_square("det", x)
    return TensorType(x.shape[:-2], x.dtype)


def _slogdet_type(attrs: NoAttributes, x: TensorType) -> tuple[TensorType, TensorType]:
    check_square("slogdet", x)
    return (TensorType(x.shape[:-2], x.dtype),) * 2


def _expand_det(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    lu, _, parity = factored(node.inputs[0])
    return [o.multiply(parity, o.prod(o.diagonal(lu), axis=-1))]


def _expand_slogdet(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    lu, _, parity = factored(node.inputs[0])
    pivots = o.diagonal(lu)
    sign = o.multiply(parity, o.prod(o.sign(pivots), axis=-1))
    return [sign, o.sum(o.log(o.abs(pivots)), axis=-1)]


def _times_inverse(o: Namespace, x: Tensor, scale: Tensor) -> Tensor:
    """scale · x⁻ᵀ."""
    inverse = system_solution(x, o.broadcast_to(o.eye(x.shape[-1], dtype=x.dtype), x.shape), True)
    return o.multiply(o.expand_dims(scale, (-2, -1)), inverse)


def _scales(o: Namespace, x: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Exponents of powers of two for rows (…, n, 1) and columns (…, 1, n), whose sum is ``total``, an integer: divided
    by both, the largest elements of all rows and columns are about as large as each other."""
    n, magnitude = x.shape[-1], o.log2(o.abs(o.stop_gradient(x)))
    there = o.isfinite(magnitude)

    def mean(values: Tensor, axis: int) -> Tensor:
        count = o.sum(o.astype(there, values.dtype), axis=axis, keepdims=True)
        return o.divide(o.sum(o.where(there, values, 0), axis=axis, keepdims=True), o.maximum(count, 1))

    def largest(rows: Tensor, columns: Tensor, axis: int) -> Tensor:
        rest = o.where(there, o.subtract(magnitude, o.add(rows, columns)), -math.inf)
        found = o.max(rest, axis=axis, keepdims=True)
        return o.where(o.isfinite(found), found, 0)

    rows = mean(magnitude, -1)  # by geometric means first: the largest alone do not say how zeros are to be scaled
    columns = mean(o.subtract(magnitude, rows), -2)
    rows = mean(o.subtract(magnitude, columns), -1)
    columns = mean(o.subtract(magnitude, rows), -2)
    rows = o.floor(o.add(rows, largest(rows, columns, -1)))
    columns = o.floor(o.add(columns, largest(rows, columns, -2)))
    excess = o.subtract(_grand_sum(o, rows, columns), total)
    shared = o.floor(o.divide(excess, n))
    one_more = o.less(o.iota((n, 1), 0), o.subtract(excess, o.multiply(shared, n)))
    return o.subtract(rows, o.add(shared, o.astype(one_more, rows.dtype))), columns


def _grand_sum(o: Namespace, *tensors: Tensor) -> Tensor:
    """The sum of all elements of matrices, (…, 1, 1)."""
    return functools.reduce(o.add, [o.sum(x, axis=(-2, -1), keepdims=True) for x in tensors])


def _times_power(o: Namespace, x: Tensor, exponent: Tensor) -> Tensor:
    """x · 2**exponent, by four factors: the power alone may be out of range where the product is not."""
    quarter = o.floor(o.multiply(exponent, 0.25))
    limit = float(np.finfo(x.dtype).maxexp - 2)
    for part in (quarter, quarter, quarter, o.subtract(exponent, o.multiply(quarter, 3))):
        x = o.multiply(x, o.exp2(o.clip(part, -limit, limit)))
    return x


def _cofactors(o: Namespace, x: Tensor) -> Tensor:
    """The cofactors of ``x``, from those of what its rows and columns are scaled to: without that, rows that differ in
    scale would be taken for a sign of a singular matrix, whose small cofactors drown in the rounding of large ones.

    The scales multiply to about the determinant, so that of the scaled matrix is neither too large nor too small.
    """
    if x.shape[-1] == 0:
        return o.zeros_like(x)
    pivots = o.log2(o.abs(o.expand_dims(o.diagonal(factored(x)[0]), -1)))
    total = o.floor(_grand_sum(o, o.where(o.isfinite(pivots), pivots, 0)))
    rows, columns = _scales(o, x, total)
    found = _scaled_cofactors(o, _times_power(o, x, o.negative(o.add(rows, columns))))
    return _times_power(o, found, o.subtract(total, o.add(rows, columns)))


def _scaled_cofactors(o: Namespace, x: Tensor) -> Tensor:
    """The cofactors of ``x``: by its inverse, or by singular values where its pivots say that it is nearly singular."""
    n, determinant = x.shape[-1], o.det(x)
    pivots = o.abs(o.diagonal(factored(x)[0]))
    least = float(np.finfo(x.dtype).eps) ** 0.25  # an error of eps/least² in the derivatives of the inverse
    singular = o.less_equal(o.min(pivots, axis=-1), o.multiply(o.max(pivots, axis=-1), least))

    def some() -> Tensor:
        there = o.expand_dims(singular, (-2, -1))
        regular = o.where(there, o.eye(n, dtype=x.dtype), x)
        spread = o.eye(n, dtype=x.dtype) * o.iota((n,), 0, dtype=x.dtype)  # whose singular vectors have derivatives
        return o.where(there, declare(COFACTORS, (o.where(there, x, spread),)), _times_inverse(o, regular, determinant))

    found: Tensor = o.cond(o.any(singular), some, lambda: _times_inverse(o, x, determinant))
    return found


def _vjp_det(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor]:
    found = _cofactors(o, node.inputs[0])
    return [o.multiply(o.expand_dims(ct, (-2, -1)), found)]


def _jvp_det(o: Namespace, node: Primal[NoAttributes], t: Tensor) -> Sequence[Tensor]:
    found = _cofactors(o, node.inputs[0])
    return [o.sum(o.multiply(found, t), axis=(-2, -1))]


def _trace_of_quotient(o: Namespace, x: Tensor, t: Tensor) -> Tensor:
    """The trace of x⁻¹·t."""
    return o.trace(system_solution(x, t))


def _badly_scaled(x: Array) -> Array:
    """Regular matrices whose rows and columns differ in scale."""
    scale = 8.0 ** np.arange(x.shape[-1])
    return np.asarray(scale[:, None] * exchanged(x) / scale)


DET = register(
    Op(
        "det",
        "Determinants.",
        infer=_det_type,
        reference=lambda attrs, x: np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype),
        expand=_expand_det,
        vjp=_vjp_det,
        jvp=_jvp_det,
        dtypes=FLOATS,
        cases=(*square_cases((NO_ATTRIBUTES,), exchanged), Case(((2, 4, 4),), ranges=(UNIT,), prepared=_badly_scaled)),
        grad_name="LinalgDet",
        tolerance=50.0,
        batch=last_axes,
    )
)

SLOGDET = register(
    Op(
        "slogdet",
        "The signs of determinants, and the logarithms of their magnitudes.",
        infer=_slogdet_type,
        reference=lambda attrs, x: tuple(
            np.asarray(y).astype(x.dtype) for y in np.linalg.slogdet(x.astype(np.float64))
        ),
        expand=_expand_slogdet,
        vjp=lambda o, node, _, ct: (None if ct is None else _times_inverse(o, node.inputs[0], ct),),
        jvp=lambda o, node, t: (None, _trace_of_quotient(o, node.inputs[0], t)),
        dtypes=FLOATS,
        cases=square_cases((NO_ATTRIBUTES,), exchanged),
        grad_name="LinalgSlogdet",
        tolerance=50.0,
        batch=last_axes,
    )
)


@public
def det(x: TensorLike) -> Tensor:
    """The determinants of square matrices; the first and second derivatives of singular ones are right, too.

    Args:
        x: (…, n, n).

    Returns:
        (…).

    Raises:
        GraphError: no square matrices of a size known when declared.

    Example:
        >>> a = sg.constant([[2.0, 1.0], [1.0, 3.0]])
        >>> sg.Session().run([sg.linalg.det(a), sg.gradients(sg.linalg.det(a), a)[0]])
        [array(5., dtype=float32), array([[ 3., -1.],
               [-1.,  2.]], dtype=float32)]
    """
    return declare(DET, (of_known_size("det", x),))


@public
def slogdet(x: TensorLike) -> SlogdetResult:
    """The signs of the determinants of square matrices (0 of singular ones), and the logarithms of their magnitudes.

    Args:
        x: (…, n, n).

    Returns:
        A named tuple: ``sign`` and ``logabsdet``, (…) each.

    Raises:
        GraphError: no square matrices of a size known when declared.

    Example:
        >>> sign, logarithm = sg.linalg.slogdet(-np.eye(3) * 1e-200)
        >>> sg.Session().run([sign, logarithm])
        [array(-1.), array(-1381.5510558)]
    """
    a = of_known_size("slogdet", x)
    return SlogdetResult(*a.graph.add(SLOGDET, (a,)).outputs)
