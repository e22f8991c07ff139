"""The primitives that combine the elements along axes: ``sum prod max min any all``.

Other ops that reduce are composed of them and share what is said here of shapes: which axes go, what is left, how a
result is spread again. ``unbroadcast`` is how every rule undoes broadcasting.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_exactly, is_open, is_same
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    Dim,
    DTypeLike,
    Shape,
    Size,
    TensorType,
    bool_,
    int64,
    is_floating,
    normalize_axes,
    stretches,
    takes,
    uint64,
)
from staticgrad.base.types import product as size_of
from staticgrad.graph.graph import Node, Tensor, show_as
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, REAL, Array, Case, F, Namespace, Op, Primal, Range, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import NUMERIC, declare, operands
from staticgrad.ops.sizes import size_value

Axis = int | tuple[int, ...] | None

NUMBERS = NUMERIC


@frozen
class ReduceAttributes:
    """The axes that are reduced (sorted, counted from the front), and whether they stay with size 1."""

    axes: tuple[int, ...]
    keepdims: bool

    def leading(self, size: Size) -> ReduceAttributes:
        return ReduceAttributes(tuple(axis + 1 for axis in self.axes), self.keepdims)


# -- shapes of reductions -------------------------------------------------------------------------------------------


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape with the reduced axes of size 1."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape of the result."""
    if keepdims:
        return kept_shape(shape, axes)
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def reduced_size(shape: Shape, axes: Sequence[int]) -> Size:
    """The number of elements that go into one result."""
    return size_of(tuple(shape[axis] for axis in axes))


def spread(o: Namespace, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """A result of a reduction of ``x`` over ``axes``, with those axes kept: it broadcasts against ``x``."""
    return o.reshape(y, kept_shape(x.shape, axes))


def fill(o: Namespace, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """A result of a reduction of ``x`` over ``axes``, repeated to the shape of ``x``."""
    return o.broadcast_to(spread(o, y, x, axes), x.shape)


def count(o: Namespace, x: Tensor, axes: Sequence[int]) -> float | Tensor:
    """The number of elements of ``x`` that go into one result: a Python float, or a tensor where feeds bind a size."""
    size = reduced_size(x.shape, axes)
    return float(size) if isinstance(size, int) and not is_open(size) else size_value(size, x.dtype)


# -- the primitives -------------------------------------------------------------------------------------------------


def _reduce_type(name: str, accepts: tuple[np.dtype, ...], neutral: bool) -> Callable[..., TensorType]:
    def infer(attrs: ReduceAttributes, x: TensorType) -> TensorType:
        if not takes(accepts, x.dtype):
            raise GraphError(f"{name}: not defined for {x.dtype.name}")
        if attrs.axes and not 0 <= attrs.axes[0] <= attrs.axes[-1] < x.ndim:
            raise GraphError(f"{name}: axes {attrs.axes} are out of range for {x}")
        if not neutral and is_exactly(reduced_size(x.shape, attrs.axes), 0):
            raise GraphError(f"{name}: there is no {name} of no elements: {x} over axes {attrs.axes}")
        return TensorType(reduced_shape(x.shape, attrs.axes, attrs.keepdims), x.dtype)

    return infer


def reduce_reference(function: Callable[..., Array]) -> Callable[[ReduceAttributes, Array], Array]:
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


@frozen
class Numbered:
    """PyTorch numbers the overloads of a reduction: over everything, and along axes, be it all of them."""

    name: str
    whole: int
    along: int

    def __call__(self, node: Node) -> str:
        everything = len(node.attrs.axes) == node.inputs[0].ndim and not node.attrs.keepdims
        return f"{self.name}Backward{self.whole if everything else self.along}"


def _vjp_sum(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    return (fill(o, ct, node.inputs[0], node.attrs.axes),)


SUM = register(
    Op(
        "sum",
        "The sum along axes.",
        infer=_reduce_type("sum", NUMBERS, neutral=True),
        reference=reduce_reference(np.sum),
        vjp=_vjp_sum,
        linear=True,
        dtypes=NUMBERS,
        cases=reduce_cases(),
        grad_name=Numbered("Sum", 0, 1),
        role="reduction",
        batch=leading,
    )
)


def _halves(v: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The first half along the last axis, as much after it, and the odd one out (or None)."""
    half = size // 2
    odd = v[..., 2 * half :] if size % 2 else None
    return v[..., :half], v[..., half : 2 * half], odd


def _vjp_product_tree(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Tensor:
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


def _vjp_product_open(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Tensor:
    """The cotangent for sizes that feeds bind, by the products of what is before and after each element: right at
    zeros, in every order of derivation."""
    x, axes = node.inputs[0], node.attrs.axes
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    perm = (*kept, *axes)
    turned = o.permute_dims(x, perm)
    lines = o.reshape(turned, (*(x.shape[axis] for axis in kept), reduced_size(x.shape, axes)))
    others = o.reshape(o.product_of_others(lines), turned.shape)
    inverse = tuple(int(axis) for axis in np.argsort(perm))
    return o.multiply_no_nan(o.permute_dims(others, inverse), spread(o, ct, x, axes))


def _vjp_prod(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, axes = node.inputs[0], node.attrs.axes
    size = reduced_size(x.shape, axes)
    if not isinstance(size, int):
        return (_vjp_product_open(o, node, ct),)
    return (o.zeros_like(x) if size == 0 else _vjp_product_tree(o, node, ct),)


PROD = register(
    Op(
        "prod",
        "The product along axes.",
        infer=_reduce_type("prod", NUMBERS, neutral=True),
        reference=reduce_reference(np.prod),
        vjp=_vjp_prod,
        dtypes=NUMBERS,
        cases=reduce_cases(Range(0.5, 1.5)),
        grad_name=Numbered("Prod", 0, 1),
        role="reduction",
        batch=leading,
    )
)


def _winners(o: Namespace, node: Primal[ReduceAttributes]) -> tuple[Tensor, Tensor]:
    """A mask of the extremes, and the number of them in each place of the result, with axes kept."""
    x, axes = node.inputs[0], node.attrs.axes
    wins = o.equal(x, spread(o, node.outputs[0], x, axes))
    return wins, o.sum(o.astype(wins, x.dtype), axis=axes, keepdims=True)


def _vjp_extreme(o: Namespace, node: Primal[ReduceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, axes = node.inputs[0], node.attrs.axes
    wins, ties = _winners(o, node)
    return (o.where(wins, spread(o, ct, x, axes) / ties, 0),)


def _jvp_extreme(o: Namespace, node: Primal[ReduceAttributes], t: Tensor) -> Sequence[Tensor | None]:
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
            reference=reduce_reference(function),
            vjp=_vjp_extreme,
            jvp=_jvp_extreme,
            dtypes=DTYPES,
            cases=reduce_cases(neutral=False, distinct=True),
            grad_name=Numbered(name.capitalize(), 1, 0),
            role="reduction",
            batch=leading,
        )
    )
    for name, adjective, function in (("max", "largest", np.max), ("min", "smallest", np.min))
)

ANY, ALL = (
    register(
        Op(
            name,
            f"True where {quantity} true along axes.",
            infer=_reduce_type(name, (bool_,), neutral=True),
            reference=reduce_reference(function),
            differentiable=False,
            dtypes=(bool_,),
            cases=reduce_cases(),
            role="reduction",
            batch=leading,
        )
    )
    for name, quantity, function in (("any", "one is", np.any), ("all", "all are", np.all))
)


def reduced(op: Op, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    y = declare(op, (x,), ReduceAttributes(normalize_axes(axis, x.ndim, op.name), bool(keepdims)))
    if axis is not None and isinstance(op.grad_name, Numbered):
        return show_as(y, f"{op.grad_name.name}Backward{op.grad_name.along}", (x,))
    return y


def _totals(what: str, x: TensorLike, dtype: DTypeLike | None) -> Tensor:
    """The operand of a sum or product, in the dtype of the result."""
    if dtype is None:
        x = operands(what, x)[0]
        dtype = total_dtype(x.dtype)
    return FUNCTIONS.astype(x, dtype)


def total_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of sums and products: int64 of bools and signed integers, uint64 of unsigned ones, else the same."""
    return dtype if is_floating(dtype) else uint64 if dtype.kind == "u" else int64


_ALONG_AXES = """
Args:
    axis: an axis, several of them, or None for all; negative ones count from the end.
    keepdims: keep these axes, with size 1, so that the result broadcasts against ``x``.

Returns:
    A tensor with the shape of ``x`` without these axes.

Raises:
    GraphError: an axis that is out of range or given twice{also}.
"""


def along_axes(also: str = "") -> Callable[[F], F]:
    """Make a function public, and document what all functions along axes have in common; ``also``: what they refuse."""

    def documented(function: F) -> F:
        summary, mark, example = (inspect.getdoc(function) or "").partition("\nExample:")
        function.__doc__ = f"{summary.rstrip()}\n{_ALONG_AXES.format(also=also)}{mark}{example}"
        return public(function)

    return documented


NO_ELEMENT = ", or no element along them"


@along_axes()
def sum(x: TensorLike, axis: Axis = None, *, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """The sum along ``axis``, in ``dtype``; by default int64 of bools and signed integers, uint64 of unsigned ones.

    Example:
        >>> sg.Session().run(sg.sum([[1.0, 2.0], [3.0, 4.0]], axis=0))
        array([4., 6.], dtype=float32)
        >>> sg.Session().run(sg.sum(np.array([200, 100], np.uint8)))
        array(300, dtype=uint64)
    """
    return reduced(SUM, _totals("sum", x, dtype), axis, keepdims)


@along_axes()
def prod(x: TensorLike, axis: Axis = None, *, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """The product along ``axis``, in ``dtype``; by default int64 of bools and signed integers, uint64 of unsigned ones.

    Example:
        >>> sg.Session().run(sg.prod([[1.0, 2.0], [3.0, 4.0]], axis=1))
        array([ 2., 12.], dtype=float32)
    """
    return reduced(PROD, _totals("prod", x, dtype), axis, keepdims)


@along_axes(NO_ELEMENT)
def max(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest element along ``axis``; NaN if there is one. The gradient is split evenly among ties.

    Example:
        >>> x = sg.constant([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
        >>> y = sg.max(x, axis=1)
        >>> sg.Session().run(y)
        array([3., 2.], dtype=float32)
        >>> sg.Session().run(sg.gradients(y, x)[0])
        array([[0. , 0.5, 0.5],
               [1. , 0. , 0. ]], dtype=float32)
    """
    return reduced(MAX, operands("max", x)[0], axis, keepdims)


@along_axes(NO_ELEMENT)
def min(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element along ``axis``; NaN if there is one. The gradient is split evenly among ties.

    Example:
        >>> sg.Session().run(sg.min([[1.0, 3.0], [2.0, sg.nan]], axis=1))
        array([ 1., nan], dtype=float32)
        >>> sg.Session().run(sg.min([[1.0, 3.0], [2.0, 0.0]], axis=1, keepdims=True))
        array([[1.],
               [0.]], dtype=float32)
    """
    return reduced(MIN, operands("min", x)[0], axis, keepdims)


@along_axes()
def any(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Test that at least one element along ``axis`` is true; of no elements it is False.

    Example:
        >>> sg.Session().run(sg.any([[0.0, 1.0], [0.0, 0.0]], axis=1))
        array([ True, False])
    """
    return reduced(ANY, FUNCTIONS.astype(x, bool_), axis, keepdims)


@along_axes()
def all(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Test that all elements along ``axis`` are true; of no elements it is True.

    Example:
        >>> sg.Session().run(sg.all([[True, True], [True, False]], axis=1))
        array([ True, False])
    """
    return reduced(ALL, FUNCTIONS.astype(x, bool_), axis, keepdims)


@along_axes()
def count_nonzero(x: TensorLike, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The number of elements along ``axis`` that are not zero, as int64.

    Example:
        >>> sg.Session().run(sg.count_nonzero([[0.0, 1.0], [2.0, 3.0]], axis=1))
        array([1, 2])
    """
    return sum(FUNCTIONS.not_equal(x, 0), axis, keepdims=keepdims)


@public
def unbroadcast(x: Tensor, shape: Shape) -> Tensor:
    """Undo broadcasting: the sum of ``x`` over the axes along which ``shape`` was stretched to its shape."""
    if is_same(x.shape, shape):
        return x
    lead = x.ndim - len(shape)
    if lead < 0:
        return FUNCTIONS.broadcast_to(x, shape)
    stretched = [axis for axis, size in enumerate(shape) if stretches(size) and x.shape[lead + axis] != size]
    axes = (*range(lead), *(lead + axis for axis in stretched))
    total = reduced(SUM, x, axes, keepdims=False) if axes else x
    for axis in [axis for axis in stretched if isinstance(shape[axis], Dim)]:  # of a size that may be 0
        ones = tuple(1 if place in stretched else size for place, size in enumerate(shape))
        kept: list[slice] = [slice(None)] * axis + [slice(shape[axis])]
        total = FUNCTIONS.getitem(FUNCTIONS.reshape(total, (*shape[:axis], *ones[axis:])), tuple(kept))
    if is_same(total.shape, shape):
        return total
    narrower = [m == 1 and n != 1 for m, n in zip(total.shape, shape)] if total.ndim == len(shape) else []
    if builtins.any(narrower):
        return FUNCTIONS.broadcast_to(total, shape)
    return FUNCTIONS.reshape(total, shape)
