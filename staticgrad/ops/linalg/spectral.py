"""Functions of symmetric matrices, A = V·diag(w)·Vᵀ: f(A) = V·diag(f(w))·Vᵀ, among them ``sqrtm`` and ``logm``.

Equal eigenvalues have no vectors of their own, and yet f(A) has derivatives, by divided differences of f: with
Ẽ = Vᵀ·E·V

    first     V·X·Vᵀ    X[i, j] = f[w[i], w[j]]·Ẽ[i, j]
    second    V·X·Vᵀ    X[i, j] = Σ f[w[i], w[k], w[j]]·(Ẽ[i, k]·F̃[k, j] + F̃[i, k]·Ẽ[k, j]) over k

(Y. Daleckii and S. Krein 1965; N. Higham, Functions of Matrices, 2008, section 3.2.) The derivatives are symmetric in
directions and cotangents. The ops are given the numbers f(w) and both kinds of differences, which are computed of w cut
off from gradients, and are derived by A and the directions alone: a third derivative by A would need third differences,
one by a tensor that f reads those of that derivative of f. Both are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GradientError
from staticgrad.base.types import FLOATS, TensorType
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.declare import added, declare
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.linalg.divided import Difference, Function, second_difference
from staticgrad.ops.linalg.matrices import float_matrix, known_sizes
from staticgrad.ops.linalg.square import UNIT, check_square, symmetric, transpose_of
from staticgrad.ops.linalg.vectors import scaled_columns, spread_values

# -- the ops --------------------------------------------------------------------------------------------------------


def _vectors(o: Namespace, a: Tensor) -> Tensor:
    return o.eigh(a)[1]


def _inside(o: Namespace, v: Tensor, x: Tensor) -> Tensor:
    """Vᵀ·x·V of the symmetric part of x."""
    return o.matmul(transpose_of(v), o.matmul(symmetric(x), v))


def _outside(o: Namespace, v: Tensor, x: Tensor) -> Tensor:
    return symmetric(o.matmul(v, o.matmul(x, transpose_of(v))))


def _expand_function(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a, y = node.inputs[:2]
    v = _vectors(o, a)
    return [symmetric(o.matmul(scaled_columns(o, v, y), transpose_of(v)))]


def _refuse_if(given: bool, why: str) -> None:
    if given:
        raise GradientError(f"functions of symmetric matrices: {why}")


_PARAMETER = (
    "the function of an eigenvalue reads a tensor by which it is derived, and only derivatives by the matrix are known"
)
_THIRD = "they are derived twice by the matrix, and not a third time"


def _vjp_function(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    _refuse_if(any(node.wanted[1:]), _PARAMETER)
    a, _, first, second = node.inputs
    return declare(SLOPE, (a, ct, first, second)), None, None, None


def _jvp_function(
    o: Namespace, node: Primal[NoAttributes], ta: Tensor | None, *others: Tensor | None
) -> Sequence[Tensor | None]:
    _refuse_if(any(t is not None for t in others), _PARAMETER)
    a, _, first, second = node.inputs
    return (None if ta is None else declare(SLOPE, (a, ta, first, second)),)


def _expand_slope(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a, e, first, _ = node.inputs
    v = _vectors(o, a)
    return [_outside(o, v, o.multiply(first, _inside(o, v, e)))]


def _vjp_slope(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    _refuse_if(any(node.wanted[2:]), _PARAMETER)
    a, e, first, second = node.inputs
    by_matrix = declare(CURVATURE, (a, e, ct, second)) if node.wanted[0] else None
    return by_matrix, declare(SLOPE, (a, ct, first, second)), None, None


def _jvp_slope(
    o: Namespace, node: Primal[NoAttributes], ta: Tensor | None, te: Tensor | None, *others: Tensor | None
) -> Sequence[Tensor | None]:
    _refuse_if(any(t is not None for t in others), _PARAMETER)
    a, e, first, second = node.inputs
    by_matrix = None if ta is None else declare(CURVATURE, (a, e, ta, second))
    along = None if te is None else declare(SLOPE, (a, te, first, second))
    return (added(o, by_matrix, along),)


def _expand_curvature(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a, e, f, second = node.inputs
    v = _vectors(o, a)
    x, y = o.expand_dims(_inside(o, v, e), -1), o.expand_dims(_inside(o, v, f), -3)
    half = o.sum(o.multiply(second, o.multiply(x, y)), axis=-2)
    return [_outside(o, v, o.add(half, transpose_of(half)))]


def _vjp_curvature(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    _refuse_if(node.wanted[0], _THIRD)
    _refuse_if(node.wanted[3], _PARAMETER)
    a, e, f, second = node.inputs
    return None, declare(CURVATURE, (a, ct, f, second)), declare(CURVATURE, (a, e, ct, second)), None


def _jvp_curvature(
    o: Namespace,
    node: Primal[NoAttributes],
    ta: Tensor | None,
    te: Tensor | None,
    tf: Tensor | None,
    other: Tensor | None,
) -> Sequence[Tensor | None]:
    _refuse_if(ta is not None, _THIRD)
    _refuse_if(other is not None, _PARAMETER)
    a, e, f, second = node.inputs
    by_first = None if te is None else declare(CURVATURE, (a, te, f, second))
    by_second = None if tf is None else declare(CURVATURE, (a, e, tf, second))
    return (added(o, by_first, by_second),)


def _type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: NoAttributes, a: TensorType, *others: TensorType) -> TensorType:
        check_square(name, a)
        return a

    return infer


def _bases(a: Array) -> Array:
    wide = a.astype(np.float64)
    return np.linalg.eigh((wide + np.swapaxes(wide, -1, -2)) / 2)[1]


def _between(v: Array, x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(np.swapaxes(v, -1, -2) @ (wide + np.swapaxes(wide, -1, -2)) / 2 @ v)


def _function_reference(attrs: NoAttributes, a: Array, y: Array, first: Array, second: Array) -> Array:
    v = _bases(a)
    return np.asarray((v * y[..., None, :].astype(np.float64)) @ np.swapaxes(v, -1, -2)).astype(a.dtype)


def _slope_reference(attrs: NoAttributes, a: Array, e: Array, first: Array, second: Array) -> Array:
    v = _bases(a)
    made = v @ (first * _between(v, e)) @ np.swapaxes(v, -1, -2)
    return np.asarray((made + np.swapaxes(made, -1, -2)) / 2).astype(a.dtype)


def _curvature_reference(attrs: NoAttributes, a: Array, e: Array, f: Array, second: Array) -> Array:
    v = _bases(a)
    half = np.einsum("...ikj,...ik,...kj->...ij", second.astype(np.float64), _between(v, e), _between(v, f))
    made = v @ (half + np.swapaxes(half, -1, -2)) @ np.swapaxes(v, -1, -2)
    return np.asarray((made + np.swapaxes(made, -1, -2)) / 2).astype(a.dtype)


def _cases(*ranks: int, differentiable: tuple[int, ...]) -> tuple[Case, ...]:
    """Operands with this number of axes of the matrix's size; random differences belong to no function, so that finite
    differences by the matrix mean nothing."""
    return tuple(
        Case(
            tuple((*batch, *(n,) * rank) for rank in ranks), ranges=(UNIT,) * len(ranks), prepared=spread_values,
            differentiable=differentiable,
        )
        for batch, n in (((), 3), ((2,), 2), ((), 1), ((0,), 3), ((2,), 0), ((), 5))
    )  # fmt: skip


FUNCTION = register(
    Op(
        "matrix_function",
        "A function of symmetric matrices, of its values at their eigenvalues and its divided differences.",
        infer=_type("matrix_function"),
        reference=_function_reference,
        expand=_expand_function,
        vjp=_vjp_function,
        jvp=_jvp_function,
        dtypes=FLOATS,
        cases=_cases(2, 1, 2, 3, differentiable=()),
        tolerance=300.0,
        batch=last_axes,
    )
)

SLOPE = register(
    Op(
        "matrix_function_slope",
        "The derivative of a function of symmetric matrices in a direction.",
        infer=_type("matrix_function_slope"),
        reference=_slope_reference,
        expand=_expand_slope,
        vjp=_vjp_slope,
        jvp=_jvp_slope,
        dtypes=FLOATS,
        cases=_cases(2, 2, 2, 3, differentiable=(1,)),
        tolerance=300.0,
        batch=last_axes,
    )
)

CURVATURE = register(
    Op(
        "matrix_function_curvature",
        "The second derivative of a function of symmetric matrices in two directions.",
        infer=_type("matrix_function_curvature"),
        reference=_curvature_reference,
        expand=_expand_curvature,
        vjp=_vjp_curvature,
        jvp=_jvp_curvature,
        dtypes=FLOATS,
        cases=_cases(2, 2, 2, 3, differentiable=()),
        tolerance=300.0,
        batch=last_axes,
    )
)

# -- functions ------------------------------------------------------------------------------------------------------

ASYMMETRY = 0.01  # of the largest element: what differs more from its transpose was not meant to be symmetric


def matrix_function(
    what: str,
    x: TensorLike,
    f: Function,
    first: Difference,
    second: Callable[[Tensor, Tensor, Tensor], Tensor],
    domain: Function | None = None,
) -> Tensor:
    """f of symmetric matrices, with its divided differences, at what ``domain`` makes of their eigenvalues."""
    given = float_matrix(what, x)
    known_sizes(what, given)
    check_square(what, given.type)

    def compose(x: Tensor) -> Tensor:
        o = FUNCTIONS
        w = _eigenvalues(o, x)
        if domain is not None:
            w = domain(w)
        pairs = [o.expand_dims(w, axis) for axis in (-1, -2)]
        triples = [o.expand_dims(w, axes) for axes in ((-2, -1), (-3, -1), (-3, -2))]
        return declare(FUNCTION, (x, f(w), first(*pairs), second(*triples)))

    return rounded_once(compose, given)


def _eigenvalues(o: Namespace, x: Tensor) -> Tensor:
    """The eigenvalues of symmetric matrices, without a gradient; NaN for matrices that are not symmetric."""
    x = o.stop_gradient(x)
    if x.shape[-1] == 0:
        return o.eigvalsh(x)
    skew = o.max(o.abs(o.subtract(x, transpose_of(x))), axis=(-2, -1))
    other = o.greater(skew, o.multiply(o.max(o.abs(x), axis=(-2, -1)), ASYMMETRY))
    return o.where(o.expand_dims(other, -1), math.nan, o.eigvalsh(x))


def _semidefinite(w: Tensor) -> Tensor:
    """Eigenvalues, 0 for those that are negative by no more than rounding explains."""
    o = FUNCTIONS
    rounding = float(np.finfo(w.dtype).eps) * int(w.shape[-1])
    least = o.multiply(o.expand_dims(o.vector_norm(w, axis=-1), -1), -rounding)
    return o.where(o.logical_and(o.less(w, 0), o.greater_equal(w, least)), 0, w)


def _nonnegative(w: Tensor) -> Tensor:
    """Eigenvalues, NaN for negative ones, at which a logarithm would have differences nevertheless."""
    return FUNCTIONS.where(FUNCTIONS.less(w, 0), math.nan, w)


def _log_difference(o: Namespace, a: Tensor, b: Tensor) -> Tensor:
    """log[a, b]: 2·artanh(z)/(b − a) with z = (b − a)/(b + a) where that is small."""
    distance, total = o.subtract(b, a), o.add(a, b)
    equal = o.equal(distance, 0)
    z = o.divide(distance, total)
    near = o.less(o.abs(z), 0.5)
    inner = o.where(o.logical_and(near, o.not_equal(z, 0)), z, 0.5)
    ratio = o.where(o.equal(z, 0), 1, o.divide(o.atanh(inner), inner))
    far = o.divide(o.subtract(o.log(b), o.log(a)), o.where(equal, 1, distance))
    return o.where(near, o.multiply(o.divide(2, total), ratio), far)


@public
def sqrtm(x: TensorLike) -> Tensor:
    """The square roots of symmetric positive semidefinite matrices: S symmetric, positive semidefinite, S·S = x.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Derivatives are right to the second order, at equal
    eigenvalues, too; of singular matrices they are infinite or NaN. The result is NaN for matrices with a negative
    eigenvalue (other than by rounding), and for those that differ from their transpose by more than a hundredth of
    their largest element, of which ``scipy.linalg.sqrtm`` takes roots as well.

    Args:
        x: (…, n, n), n known when declared.

    Raises:
        GraphError: no square matrices of a size known when declared.

    Example:
        >>> sg.Session().run(sg.linalg.sqrtm([[5.0, 4.0], [4.0, 5.0]])).round(4)
        array([[2., 1.],
               [1., 2.]], dtype=float32)
    """
    o = FUNCTIONS

    def first(a: Tensor, b: Tensor) -> Tensor:
        return o.reciprocal(o.add(o.sqrt(a), o.sqrt(b)))

    def second(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return o.negative(o.multiply(first(a, b), o.multiply(first(b, c), first(a, c))))

    return matrix_function("sqrtm", x, o.sqrt, first, second, _semidefinite)


@public
def logm(x: TensorLike) -> Tensor:
    """The logarithms of symmetric positive definite matrices: the symmetric L whose exponential is x.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Derivatives are right to the second order, at equal
    eigenvalues, too. The result is NaN, or infinite, for matrices that are not positive definite, and NaN for those
    that differ from their transpose by more than a hundredth of their largest element, of which ``scipy.linalg.logm``
    takes logarithms as well.

    Args:
        x: (…, n, n), n known when declared.

    Raises:
        GraphError: no square matrices of a size known when declared.

    Example:
        >>> sg.Session().run(sg.linalg.logm(sg.eye(2) * float(np.exp(2.0)))).round(4)
        array([[2., 0.],
               [0., 2.]], dtype=float32)
    """
    o = FUNCTIONS

    def first(a: Tensor, b: Tensor) -> Tensor:
        return _log_difference(o, a, b)

    def second(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return second_difference(o, first, lambda x: o.negative(o.reciprocal(o.multiply(x, x))), a, b, c)

    return matrix_function("logm", x, o.log, first, second, _nonnegative)
