"""Ops that combine the elements along axes: sums, products, extremes, means, variances, positions of extremes.

``sum prod max min any all`` are primitives; the others are composed of them. What a mean divides by may be a size that
feeds bind: it is then the value of the op ``shape``. ``unbroadcast`` is how every rule undoes broadcasting.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.errors import GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor, get_default_graph, graph_of, lift
from staticgrad.ops.declare import NUMERIC, declare, operands
from staticgrad.optable import FUNCTIONS, PRIMITIVE, REAL, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.types import (
    DTYPES,
    DTypeLike,
    Shape,
    Size,
    TensorType,
    bool_,
    dtype_of,
    float32,
    float64,
    int32,
    int64,
    is_floating,
    normalize_axes,
    normalize_axis,
    sizes,
)
from staticgrad.types import product as size_of

Axis = int | tuple[int, ...] | None

NUMBERS = NUMERIC.value
FLOATS = (float32, float64)


@frozen
class ReduceAttributes:
    """Which axes go (sorted, counted from the front), and whether they stay with size 1."""

    axes: tuple[int, ...]
    keepdims: bool

    def leading(self, size: Size) -> ReduceAttributes:
        return ReduceAttributes(tuple(axis + 1 for axis in self.axes), self.keepdims)


# -- shapes of reductions -------------------------------------------------------------------------------------------


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape with the reduced axes of size 1."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def reduced_shape(shape: Shape, attrs: ReduceAttributes | VarianceAttributes) -> Shape:
    if attrs.keepdims:
        return kept_shape(shape, attrs.axes)
    return tuple(size for axis, size in enumerate(shape) if axis not in attrs.axes)


def reduced_size(shape: Shape, axes: Sequence[int]) -> Size:
    """How many elements go into one result."""
    return size_of(tuple(shape[axis] for axis in axes))


def spread(o: Namespace, y: Any, x: Any, axes: Sequence[int]) -> Any:
    """A result of a reduction of ``x`` over ``axes``, with those axes kept: it broadcasts against ``x``."""
    return o.reshape(y, kept_shape(x.shape, axes))


def fill(o: Namespace, y: Any, x: Any, axes: Sequence[int]) -> Any:
    """A result of a reduction of ``x`` over ``axes``, repeated to the shape of ``x``."""
    return o.broadcast_to(spread(o, y, x, axes), x.shape)


def count(o: Namespace, x: Any, axes: Sequence[int]) -> Any:
    """How many elements of ``x`` go into one result: a Python float, or a tensor where feeds bind a size."""
    size = reduced_size(x.shape, axes)
    return float(size) if isinstance(size, int) else size_value(size, x.dtype)


# -- sizes as values ------------------------------------------------------------------------------------------------


@frozen
class ShapeAttributes:
    """The sizes whose values are asked for."""

    sizes: Shape


SHAPE = register(
    Op(
        "shape",
        "Sizes as values, known when they are bound.",
        infer=lambda attrs: TensorType((len(attrs.sizes),), int64),
        reference=lambda attrs: np.array(attrs.sizes, np.int64).reshape(len(attrs.sizes)),
        expand=lambda o, node: [o.constant(np.array(node.attrs.sizes, np.int64).reshape(len(node.attrs.sizes)))],
        differentiable=False,
        dtypes=(float32,),
        cases=(Case((), ShapeAttributes((2, 3))), Case((), ShapeAttributes(()))),
    )
)


@public
def shape(x: Any) -> Tensor:
    """The sizes of ``x`` as an int64 vector: a constant where they are declared, else what the feeds bind."""
    x = lift(x, graph_of((x,)))
    with graph_of((x,)) as graph:
        if x.type.static:
            return FUNCTIONS.constant(np.array(x.shape, np.int64).reshape(x.ndim))
        return graph.add(SHAPE, (), ShapeAttributes(x.shape)).outputs[0]


def size_value(size: Size, dtype: np.dtype) -> Tensor:
    """A size as a 0-d tensor of the current graph."""
    values = get_default_graph().add(SHAPE, (), ShapeAttributes((size,))).outputs[0]
    return FUNCTIONS.astype(FUNCTIONS.reshape(values, ()), dtype)


# -- the primitives -------------------------------------------------------------------------------------------------


def _reduce_type(name: str, accepts: tuple[np.dtype, ...], neutral: bool) -> Callable[..., TensorType]:
    def infer(attrs: ReduceAttributes, x: TensorType) -> TensorType:
        if x.dtype not in accepts:
            raise GraphError(f"{name}: not defined for {x.dtype.name}")
        if attrs.axes and not 0 <= attrs.axes[0] <= attrs.axes[-1] < x.ndim:
            raise GraphError(f"{name}: axes {attrs.axes} are out of range for {x}")
        if not neutral and reduced_size(x.shape, attrs.axes) == 0:
            raise GraphError(f"{name}: there is no {name} of no elements: {x} over axes {attrs.axes}")
        return TensorType(reduced_shape(x.shape, attrs), x.dtype)

    return infer


def _reduce_reference(function: Any) -> Callable[[ReduceAttributes, Array], Array]:
    def evaluate(attrs: ReduceAttributes, x: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64) if x.dtype == np.float32 else x
            result = function(wide, axis=attrs.axes, keepdims=attrs.keepdims)
        return np.asarray(result).astype(x.dtype)

    return evaluate


_SHAPES: tuple[tuple[tuple[int, ...], ReduceAttributes], ...] = (
    ((3, 4), ReduceAttributes((1,), False)),
    ((3, 4), ReduceAttributes((0,), True)),
    ((2, 3, 5), ReduceAttributes((0, 2), False)),
    ((2, 3, 5), ReduceAttributes((0, 1, 2), False)),
    ((4,), ReduceAttributes((), False)),
    ((1, 37), ReduceAttributes((1,), True)),
    ((0, 3), ReduceAttributes((1,), False)),
)
_EMPTY = ((2, 0, 3), ReduceAttributes((1,), False))


def reduce_cases(values: Range = REAL, *, neutral: bool = True, distinct: bool = False) -> tuple[Case, ...]:
    shapes = (*_SHAPES, _EMPTY) if neutral else _SHAPES
    return tuple(Case((shape,), attrs, (values,), distinct=distinct) for shape, attrs in shapes)


def _numbered(name: str, whole: int, along: int) -> Callable[[Primal], str]:
    """PyTorch numbers the overloads of a reduction: over everything, and along axes."""

    def backward_name(node: Primal) -> str:
        everything = len(node.attrs.axes) == node.inputs[0].ndim and not node.attrs.keepdims
        return f"{name}Backward{whole if everything else along}"

    return backward_name


def _vjp_sum(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    return (fill(o, ct, node.inputs[0], node.attrs.axes),)


SUM = register(
    Op(
        "sum",
        "The sum along axes.",
        infer=_reduce_type("sum", NUMBERS, neutral=True),
        reference=_reduce_reference(np.sum),
        vjp=_vjp_sum,
        linear=True,
        dtypes=NUMBERS,
        cases=reduce_cases(),
        grad_name=_numbered("Sum", 0, 1),
        tags=PRIMITIVE,
    )
)


def _halves(v: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The first half along the last axis, as much after it, and the odd one out (or None)."""
    half = size // 2
    odd = v[..., 2 * half :] if size % 2 else None
    return v[..., :half], v[..., half : 2 * half], odd


def _vjp_product_tree(o: Namespace, node: Primal, ct: Any) -> Any:
    """The cotangent through a balanced tree of multiplications: right at zeros, in every order of derivation."""
    x, axes = node.inputs[0], node.attrs.axes
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    perm = (*kept, *axes)
    lines = tuple(x.shape[axis] for axis in kept)
    size = int(reduced_size(x.shape, axes))
    level = o.reshape(o.permute_dims(x, perm), (*lines, size))
    pairs = []
    while size > 1:
        a, b, odd = _halves(level, size)
        size -= size // 2
        pairs.append((a, b))
        level = o.multiply(a, b) if odd is None else o.concat([o.multiply(a, b), odd], axis=-1)
    grad = o.reshape(ct, (*lines, 1))
    for a, b in reversed(pairs):
        half = a.shape[-1]
        inner = grad if grad.shape[-1] == half else grad[..., :half]
        rest = [] if grad.shape[-1] == half else [grad[..., half:]]
        grad = o.concat([o.multiply_no_nan(b, inner), o.multiply_no_nan(a, inner), *rest], axis=-1)
    inverse = tuple(int(axis) for axis in np.argsort(perm))
    return o.permute_dims(o.reshape(grad, tuple(x.shape[axis] for axis in perm)), inverse)


def _vjp_product_zeros(o: Namespace, node: Primal, ct: Any) -> Any:
    """The cotangent for sizes that feeds bind: the product of the others, by division where nothing is zero."""
    x, axes = node.inputs[0], node.attrs.axes
    zero = o.equal(x, 0)
    zeros = o.sum(o.astype(zero, x.dtype), axis=axes, keepdims=True)
    rest = o.prod(o.where(zero, 1, x), axis=axes, keepdims=True)
    others = o.where(o.equal(zeros, 0), rest / o.where(zero, 1, x), 0)
    others = o.where(o.logical_and(zero, o.equal(zeros, 1)), rest, others)
    return o.multiply_no_nan(others, spread(o, ct, x, axes))


def _vjp_prod(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, axes = node.inputs[0], node.attrs.axes
    size = reduced_size(x.shape, axes)
    if not isinstance(size, int):
        return (_vjp_product_zeros(o, node, ct),)
    return (o.zeros_like(x) if size == 0 else _vjp_product_tree(o, node, ct),)


PROD = register(
    Op(
        "prod",
        "The product along axes.",
        infer=_reduce_type("prod", NUMBERS, neutral=True),
        reference=_reduce_reference(np.prod),
        vjp=_vjp_prod,
        dtypes=NUMBERS,
        cases=reduce_cases(Range(0.5, 1.5)),
        grad_name=_numbered("Prod", 0, 1),
        tags=PRIMITIVE,
    )
)


def _winners(o: Namespace, node: Primal) -> tuple[Any, Any]:
    """Where the extremes are, and how many there are in each place of the result, with axes kept."""
    x, axes = node.inputs[0], node.attrs.axes
    wins = o.equal(x, spread(o, node.outputs[0], x, axes))
    return wins, o.sum(o.astype(wins, x.dtype), axis=axes, keepdims=True)


def _vjp_extreme(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, axes = node.inputs[0], node.attrs.axes
    wins, ties = _winners(o, node)
    return (o.where(wins, spread(o, ct, x, axes) / ties, 0),)


def _jvp_extreme(o: Namespace, node: Primal, t: Any) -> Sequence[Any]:
    axes = node.attrs.axes
    wins, ties = _winners(o, node)
    total = o.sum(o.where(wins, t, 0) / ties, axis=axes, keepdims=True)
    return (total if node.attrs.keepdims else o.reshape(total, node.outputs[0].shape),)


MAX, MIN = (
    register(
        Op(
            name,
            f"The {adjective} along axes; NaN if there is one. Its derivative is split evenly among ties.",
            infer=_reduce_type(name, DTYPES, neutral=False),
            reference=_reduce_reference(function),
            vjp=_vjp_extreme,
            jvp=_jvp_extreme,
            dtypes=DTYPES,
            cases=reduce_cases(neutral=False, distinct=True),
            grad_name=_numbered(name.capitalize(), 1, 0),
            tags=PRIMITIVE,
        )
    )
    for name, adjective, function in (("max", "largest", np.max), ("min", "smallest", np.min))
)

ANY, ALL = (
    register(
        Op(
            name,
            f"Whether {quantity} along axes true.",
            infer=_reduce_type(name, (bool_,), neutral=True),
            reference=_reduce_reference(function),
            differentiable=False,
            dtypes=(bool_,),
            cases=reduce_cases(),
            tags=PRIMITIVE,
        )
    )
    for name, quantity, function in (("any", "one is", np.any), ("all", "all are", np.all))
)


def _reduced(op: Op, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    return declare(op, (x,), ReduceAttributes(normalize_axes(axis, x.ndim, op.name), bool(keepdims)))


def _totals(what: str, x: Any, dtype: DTypeLike | None) -> Tensor:
    """The operand of a sum or product, in the dtype of the result: integers and bools as int64."""
    x = operands(what, x)[0]
    target = dtype_of(dtype) if dtype is not None else x.dtype if is_floating(x.dtype) else int64
    return FUNCTIONS.astype(x, target)


@public
def sum(x: Any, axis: Axis = None, *, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """The sum along ``axis`` (an int, a tuple of ints, or None for all); integers and bools give int64."""
    return _reduced(SUM, _totals("sum", x, dtype), axis, keepdims)


@public
def prod(x: Any, axis: Axis = None, *, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """The product along ``axis`` (an int, a tuple of ints, or None for all); integers and bools give int64."""
    return _reduced(PROD, _totals("prod", x, dtype), axis, keepdims)


@public
def max(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest element along ``axis``; NaN if there is one. The gradient is split evenly among ties.

    Raises:
        GraphError: there is no element along the axes.
    """
    return _reduced(MAX, operands("max", x)[0], axis, keepdims)


@public
def min(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element along ``axis``; NaN if there is one. The gradient is split evenly among ties.

    Raises:
        GraphError: there is no element along the axes.
    """
    return _reduced(MIN, operands("min", x)[0], axis, keepdims)


@public
def any(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Whether one element along ``axis`` is true; False of none."""
    return _reduced(ANY, FUNCTIONS.astype(operands("any", x)[0], bool_), axis, keepdims)


@public
def all(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Whether all elements along ``axis`` are true; True of none."""
    return _reduced(ALL, FUNCTIONS.astype(operands("all", x)[0], bool_), axis, keepdims)


@public
def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """How many elements along ``axis`` are not zero, as int64."""
    return sum(FUNCTIONS.not_equal(x, 0), axis, keepdims=keepdims)


@public
def unbroadcast(x: Tensor, shape: Shape) -> Tensor:
    """Undo broadcasting: the sum of ``x`` over the axes along which ``shape`` was stretched to its shape."""
    if x.shape == shape:
        return x
    lead = x.ndim - len(shape)
    if lead < 0:
        return FUNCTIONS.broadcast_to(x, shape)
    stretched = [lead + axis for axis, size in enumerate(shape) if size == 1 and x.shape[lead + axis] != 1]
    axes = (*range(lead), *stretched)
    total = _reduced(SUM, x, axes, keepdims=False) if axes else x
    if total.shape == shape:
        return total
    narrower = [m == 1 and n != 1 for m, n in zip(total.shape, shape)] if total.ndim == len(shape) else []
    if builtins.any(narrower):
        return FUNCTIONS.broadcast_to(total, shape)
    return FUNCTIONS.reshape(total, shape)


# -- means and variances --------------------------------------------------------------------------------------------


def _float_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: ReduceAttributes | VarianceAttributes, x: TensorType) -> TensorType:
        if x.dtype not in FLOATS:
            raise GraphError(f"{name}: expected float32 or float64, actual {x}")
        return TensorType(reduced_shape(x.shape, attrs), x.dtype)

    return infer


def _vjp_mean(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, axes = node.inputs[0], node.attrs.axes
    return (fill(o, _over(o, ct, count(o, x, axes)), x, axes),)


def _over(o: Namespace, x: Any, divisor: Any) -> Any:
    return x if isinstance(divisor, float) and divisor == 1 else o.divide(x, divisor)


def _expand_mean(o: Namespace, node: Primal) -> Sequence[Any]:
    x, attrs = node.inputs[0], node.attrs
    total = o.sum(x, axis=attrs.axes, keepdims=attrs.keepdims)
    return [_over(o, total, count(o, x, attrs.axes))]


MEAN = register(
    Op(
        "mean",
        "The arithmetic mean along axes.",
        infer=_float_type("mean"),
        reference=_reduce_reference(np.mean),
        expand=_expand_mean,
        vjp=_vjp_mean,
        linear=True,
        dtypes=FLOATS,
        cases=reduce_cases(neutral=False),
        grad_name=_numbered("Mean", 0, 1),
    )
)


def _floats(what: str, x: Any) -> Tensor:
    x = operands(what, x)[0]
    return x if is_floating(x.dtype) else FUNCTIONS.astype(x, float64)


@public
def mean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The arithmetic mean along ``axis`` (an int, a tuple of ints, or None for all); of integers it is float64."""
    return _reduced(MEAN, _floats("mean", x), axis, keepdims)


@frozen
class VarianceAttributes:
    """Which axes go, whether they stay with size 1, and what is taken from the number of elements divided by."""

    axes: tuple[int, ...]
    keepdims: bool
    correction: float


def _degrees_of_freedom(o: Namespace, x: Any, attrs: VarianceAttributes) -> Any:
    number = count(o, x, attrs.axes)
    if isinstance(number, float):
        return builtins.max(number - attrs.correction, 0.0)
    return o.maximum(number - attrs.correction, 0)


def _centred(o: Namespace, x: Any, axes: tuple[int, ...]) -> Any:
    return x - o.mean(x, axis=axes, keepdims=True)


def _expand_var(o: Namespace, node: Primal) -> Sequence[Any]:
    x, attrs = node.inputs[0], node.attrs
    squares = o.square(_centred(o, x, attrs.axes))
    total = o.sum(squares, axis=attrs.axes, keepdims=attrs.keepdims)
    return [_over(o, total, _degrees_of_freedom(o, x, attrs))]


def _vjp_var(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, attrs = node.inputs[0], node.attrs
    each = _over(o, ct * 2.0, _degrees_of_freedom(o, x, attrs))
    return (o.multiply_no_nan(_centred(o, x, attrs.axes), spread(o, each, x, attrs.axes)),)


def _vjp_std(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, attrs, y = node.inputs[0], node.attrs, node.outputs[0]
    flat = o.equal(y, 0)  # all elements equal: the derivative is taken as 0
    each = o.where(flat, 0, _over(o, ct, _degrees_of_freedom(o, x, attrs)) / o.where(flat, 1, y))
    return (o.multiply_no_nan(_centred(o, x, attrs.axes), spread(o, each, x, attrs.axes)),)


def _moment_reference(function: Any) -> Callable[[VarianceAttributes, Array], Array]:
    def evaluate(attrs: VarianceAttributes, x: Array) -> Array:
        with np.errstate(all="ignore"):
            result = function(x.astype(np.float64), axis=attrs.axes, ddof=attrs.correction, keepdims=attrs.keepdims)
        return np.asarray(result).astype(x.dtype)

    return evaluate


_MOMENT_CASES = (
    Case(((3, 4),), VarianceAttributes((1,), False, 0.0)),
    Case(((3, 4),), VarianceAttributes((0,), True, 1.0)),
    Case(((2, 3, 5),), VarianceAttributes((0, 2), False, 1.0)),
    Case(((2, 3, 5),), VarianceAttributes((0, 1, 2), False, 0.5)),
)

VAR, STD = (
    register(
        Op(
            name,
            doc,
            infer=_float_type(name),
            reference=_moment_reference(function),
            expand=expansion,
            vjp=vjp,
            dtypes=FLOATS,
            cases=_MOMENT_CASES,
            tolerance=2.0,
        )
    )
    for name, doc, function, expansion, vjp in (
        ("var", "The variance along axes.", np.var, _expand_var, _vjp_var),
        (
            "std",
            "The standard deviation along axes; its derivative where all elements are equal is 0.",
            np.std,
            lambda o, node: [o.sqrt(_expand_var(o, node)[0])],
            _vjp_std,
        ),
    )
)


def _moment(op: Op, x: Any, axis: Axis, correction: float, keepdims: bool) -> Tensor:
    x = _floats(op.name, x)
    axes = normalize_axes(axis, x.ndim, op.name)
    return declare(op, (x,), VarianceAttributes(axes, bool(keepdims), float(correction)))


@public
def var(x: Any, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along ``axis``: the sum of squared distances from the mean over ``n - correction``."""
    return _moment(VAR, x, axis, correction, keepdims)


@public
def std(x: Any, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of ``var``; where all elements are equal its gradient is 0."""
    return _moment(STD, x, axis, correction, keepdims)


# -- log-sum-exp and positions --------------------------------------------------------------------------------------


def _logsumexp_type(attrs: ReduceAttributes, x: TensorType) -> TensorType:
    if reduced_size(x.shape, attrs.axes) == 0:
        raise GraphError(f"logsumexp: there is no element along axes {attrs.axes} of {x}")
    return _float_type("logsumexp")(attrs, x)


def _logsumexp_reference(attrs: ReduceAttributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        for axis in attrs.axes:
            wide = np.logaddexp.reduce(wide, axis=axis, keepdims=True)
    return np.asarray(wide.reshape(reduced_shape(x.shape, attrs))).astype(x.dtype)


def _expand_logsumexp(o: Namespace, node: Primal) -> Sequence[Any]:
    x, attrs = node.inputs[0], node.attrs
    largest = o.max(x, axis=attrs.axes, keepdims=True)
    shift = o.where(o.isfinite(largest), largest, 0)
    y = o.log(o.sum(o.exp(x - shift), axis=attrs.axes, keepdims=True)) + shift
    return [y if attrs.keepdims else o.reshape(y, reduced_shape(x.shape, attrs))]


def _softmax_terms(o: Namespace, node: Primal) -> Any:
    """exp(x - y): 1 for an infinite x that decides, 0 where every x is -infinity."""
    x = node.inputs[0]
    y = spread(o, node.outputs[0], x, node.attrs.axes)
    shift = o.where(o.equal(y, -math.inf), 0, y)
    return o.exp(o.where(o.equal(x, shift), 0, x - shift))


def _vjp_logsumexp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    return (o.multiply_no_nan(_softmax_terms(o, node), spread(o, ct, node.inputs[0], node.attrs.axes)),)


def _jvp_logsumexp(o: Namespace, node: Primal, t: Any) -> Sequence[Any]:
    weighted = o.multiply_no_nan(_softmax_terms(o, node), t)
    return (o.sum(weighted, axis=node.attrs.axes, keepdims=node.attrs.keepdims),)


LOGSUMEXP = register(
    Op(
        "logsumexp",
        "log(sum(exp(x))) along axes, without overflow.",
        infer=_logsumexp_type,
        reference=_logsumexp_reference,
        expand=_expand_logsumexp,
        vjp=_vjp_logsumexp,
        jvp=_jvp_logsumexp,
        dtypes=FLOATS,
        cases=reduce_cases(Range(-6.0, 6.0), neutral=False),
        tolerance=2.0,
    )
)


@public
def logsumexp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along ``axis``, without overflow; its gradient is the softmax, finite at infinities too.

    Raises:
        GraphError: there is no element along the axes.
    """
    return _reduced(LOGSUMEXP, _floats("logsumexp", x), axis, keepdims)


@frozen
class ArgAttributes:
    """The axis along which a position is looked for, and whether it stays with size 1."""

    axis: int
    keepdims: bool


def _arg_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: ArgAttributes, x: TensorType) -> TensorType:
        if x.shape[attrs.axis] == 0:
            raise GraphError(f"{name}: there is no element along axis {attrs.axis} of {x}")
        return TensorType(reduced_shape(x.shape, ReduceAttributes((attrs.axis,), attrs.keepdims)), int64)

    return infer


def _expand_arg(extreme: str) -> Callable[[Namespace, Primal], Sequence[Any]]:
    def expand(o: Namespace, node: Primal) -> Sequence[Any]:
        x, axis = node.inputs[0], node.attrs.axis
        best = FUNCTIONS.__getattr__(extreme)(x, axis=axis, keepdims=True)
        hit = o.equal(x, best)
        if is_floating(x.dtype):
            hit = o.logical_or(hit, o.isnan(x))
        # places of half the width where they fit: twice as many go in a register
        width = int32 if sizes(x.shape)[axis] <= np.iinfo(np.int32).max else int64
        places = o.iota(tuple(n if i == axis else 1 for i, n in enumerate(x.shape)), axis, dtype=width)
        first = o.min(o.where(hit, places, int(np.iinfo(width).max)), axis=axis, keepdims=True)
        found = o.astype(first, int64)
        return [found if node.attrs.keepdims else o.squeeze(found, axis)]

    return expand


_ARG_CASES = (
    Case(((3, 4),), ArgAttributes(1, False)),
    Case(((3, 4),), ArgAttributes(0, True), (Range(0, 2),)),
    Case(((2, 3, 5),), ArgAttributes(1, False)),
    Case(((7,),), ArgAttributes(0, False), (Range(0, 1),)),
)

ARGMAX, ARGMIN = (
    register(
        Op(
            f"arg{extreme}",
            f"The first position of the {adjective} element along an axis; of the first NaN if there is one.",
            infer=_arg_type(f"arg{extreme}"),
            reference=lambda attrs, x, function=function: function(x, axis=attrs.axis, keepdims=attrs.keepdims),
            expand=_expand_arg(extreme),
            differentiable=False,
            dtypes=DTYPES,
            cases=_ARG_CASES,
        )
    )
    for extreme, adjective, function in (("max", "largest", np.argmax), ("min", "smallest", np.argmin))
)


def _position(op: Op, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    x = operands(op.name, x)[0]
    if axis is not None:
        return declare(op, (x,), ArgAttributes(normalize_axis(axis, x.ndim, op.name), bool(keepdims)))
    found = declare(op, (FUNCTIONS.reshape(x, (-1,)),), ArgAttributes(0, False))
    return FUNCTIONS.reshape(found, (1,) * x.ndim) if keepdims else found


@public
def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The int64 position of the first largest element along ``axis``, or in the flattened tensor; NaN wins.

    Raises:
        GraphError: there is no element along the axis.
    """
    return _position(ARGMAX, x, axis, keepdims)


@public
def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The int64 position of the first smallest element along ``axis``, or in the flattened tensor; NaN wins.

    Raises:
        GraphError: there is no element along the axis.
    """
    return _position(ARGMIN, x, axis, keepdims)
