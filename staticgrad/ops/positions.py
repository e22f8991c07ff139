"""Positions of the extremes along an axis: of the first of equal ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_exactly, is_open
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPES, TensorType, int32, int64, is_floating, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.ops.declare import declare, operands
from staticgrad.ops.reductions import reduced_shape
from staticgrad.ops.views.slicing import slice_axis

BLOCK = 2048  # elements of a long row whose extreme is known apart
LONG = 8 * BLOCK


@frozen
class ArgAttributes:
    """The axis along which a position is looked for, and whether it stays with size 1."""

    axis: int
    keepdims: bool


def _arg_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: ArgAttributes, x: TensorType) -> TensorType:
        if is_exactly(x.shape[attrs.axis], 0):
            raise GraphError(f"{name}: there is no element along axis {attrs.axis} of {x}")
        return TensorType(reduced_shape(x.shape, (attrs.axis,), attrs.keepdims), int64)

    return infer


def _expand_arg(extreme: str) -> Callable[[Namespace, Primal[ArgAttributes]], Sequence[Tensor]]:
    def expand(o: Namespace, node: Primal[ArgAttributes]) -> Sequence[Tensor]:
        x, axis = node.inputs[0], node.attrs.axis
        reduce = FUNCTIONS.__getattr__(extreme)
        known = [n for n in x.shape if isinstance(n, int) and not is_open(n)]
        if axis == x.ndim - 1 and len(known) == x.ndim and known[axis] >= LONG:
            found = _in_blocks(o, x, known, reduce)
        else:
            found = o.astype(_first_equal(o, x, reduce(x, axis=axis, keepdims=True), axis), int64)
        return [found if node.attrs.keepdims else o.squeeze(found, axis)]

    return expand


def _first_equal(o: Namespace, x: Tensor, best: Tensor, axis: int) -> Tensor:
    """The first position along an axis at which there is the extreme, or NaN; the axis stays."""
    other = o.not_equal(x, best)
    if is_floating(x.dtype):  # what is left where one comparison holds is compared again: one instruction
        other = o.logical_and(other, o.equal(x, x))
    # places of half the width where they fit: a register holds twice the number
    extent = x.shape[axis]
    width = int32 if isinstance(extent, int) and extent <= np.iinfo(np.int32).max else int64
    places = o.iota(tuple(n if i == axis else 1 for i, n in enumerate(x.shape)), axis, dtype=width)
    return o.min(o.where(other, int(np.iinfo(width).max), places), axis=axis, keepdims=True)


def _in_blocks(o: Namespace, x: Tensor, shape: Sequence[int], reduce: Callable[..., Tensor]) -> Tensor:
    """The first position of the extreme of long rows, which are read once: of the extremes of blocks the first that is
    that of all tells the block in which it is looked for. The last block, of what fills no whole one, begins in the
    one before it, in which there is no such element then."""
    *outer, size = shape
    axis, count = len(outer), size // BLOCK
    whole = slice_axis(x, axis, 0, count * BLOCK)
    bests = reduce(o.reshape(whole, (*outer, count, BLOCK)), axis=axis + 1)
    if size % BLOCK:
        last = reduce(slice_axis(x, axis, size - BLOCK, size), axis=axis, keepdims=True)
        bests = o.concat([bests, last], axis=axis)
    best = reduce(bests, axis=axis, keepdims=True)
    block = o.astype(_first_equal(o, bests, best, axis), int64)
    start = o.minimum(block * BLOCK, size - BLOCK)
    rows = [o.iota((*(n if i == d else 1 for i, n in enumerate(outer)), 1), d) for d in range(axis)]
    piece = o.gather(x, *rows, start + o.iota((BLOCK,)), axes=tuple(range(axis + 1)))
    return start + o.astype(_first_equal(o, piece, best, axis), int64)


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


def _position(op: Op, x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    x = operands(op.name, x)[0]
    if axis is not None:
        return declare(op, (x,), ArgAttributes(normalize_axis(axis, x.ndim, op.name), bool(keepdims)))
    found = declare(op, (FUNCTIONS.reshape(x, (-1,)),), ArgAttributes(0, False))
    return FUNCTIONS.reshape(found, (1,) * x.ndim) if keepdims else found


@public
def argmax(x: TensorLike, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The int64 position of the first largest element along ``axis``, or in the flattened tensor; NaN wins.

    Raises:
        GraphError: there is no element along the axis.

    Example:
        >>> sg.Session().run(sg.argmax([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]], axis=1))
        array([1, 0])
        >>> sg.Session().run(sg.argmax([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]]))
        array(1)
    """
    return _position(ARGMAX, x, axis, keepdims)


@public
def argmin(x: TensorLike, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The int64 position of the first smallest element along ``axis``, or in the flattened tensor; NaN wins.

    Raises:
        GraphError: there is no element along the axis.

    Example:
        >>> sg.Session().run(sg.argmin([[1.0, 3.0, 1.0], [2.0, 0.0, 1.0]], axis=1, keepdims=True))
        array([[0],
               [1]])
    """
    return _position(ARGMIN, x, axis, keepdims)
