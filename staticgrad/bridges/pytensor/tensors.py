"""PyTensor's elementwise ops, reductions, shapes, joins, sorts and checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import cast, promoted, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, body_of, converts, require_static
from staticgrad.bridges.pytensor.scalars import apply
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Reduction = Callable[..., Tensor]


# -- elementwise and reduced -------------------------------------------------------------------------------------------


@converts("Elemwise")
def elemwise(at: Translation, node: Any) -> list[Tensor]:
    operands = [at.value(v) for v in node.inputs]
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    for variable, x in zip(node.inputs, operands):
        require_static(node, variable, x.shape, shape)
    return [spread(x, shape) for x in apply(at, node.op.scalar_op, operands, node.outputs[0].type.dtype)]


@converts("DimShuffle")
def dim_shuffle(at: Translation, node: Any) -> Tensor:
    x, order = at.tensor(node.inputs[0]), node.op.new_order
    kept = [axis for axis in order if axis != "x"]
    dropped = [axis for axis in range(x.ndim) if axis not in kept]
    if any(x.shape[axis] != 1 for axis in dropped):
        raise ValueError(
            f"{node}: cannot drop the axes {dropped} of a tensor of shape {x.shape}: they are not of size 1"
        )
    x = o.permute_dims(x, (*kept, *dropped))
    sizes = iter(x.shape)
    return o.reshape(x, tuple(1 if axis == "x" else next(sizes) for axis in order))


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(int(a) % ndim for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))


REDUCTIONS: dict[str, Reduction] = {
    "Add": lambda x, axis: o.sum(x, axis, dtype=x.dtype),
    "Mul": lambda x, axis: o.prod(x, axis, dtype=x.dtype),
    "MulWithoutZeros": lambda x, axis: o.prod(o.where(x == 0, o.ones_like(x), x), axis, dtype=x.dtype),
    "Maximum": lambda x, axis: cast(o.max(cast(x, np.uint8), axis), bool) if x.dtype == bool else o.max(x, axis),
    "Minimum": lambda x, axis: cast(o.min(cast(x, np.uint8), axis), bool) if x.dtype == bool else o.min(x, axis),
    "AND": lambda x, axis: o.all(x, axis),
    "OR": lambda x, axis: o.any(x, axis),
    "XOR": lambda x, axis: o.not_equal(o.sum(cast(x, np.int64), axis) % 2, 0),
}


@converts("CAReduce")
def reduce(at: Translation, node: Any) -> Tensor:
    op, x = node.op, at.tensor(node.inputs[0])
    name = type(op.scalar_op).__name__
    if name not in REDUCTIONS:
        raise RefusedError(f"a reduction by {op.scalar_op} is not converted")
    out = node.outputs[0].type.dtype
    if name in ("AND", "OR", "XOR") and x.dtype != bool:
        raise RefusedError(f"a reduction of integers by {op.scalar_op} is not converted")
    accumulated = getattr(op, "acc_dtype", None) or (out if name in ("Add", "Mul", "MulWithoutZeros") else x.dtype)
    axes = _axes(op.axis, x.ndim)
    if axes:
        x = REDUCTIONS[name](cast(x, accumulated), axes)
    return cast(x, out)


@converts("Argmax")
def argmax(at: Translation, node: Any) -> Tensor:
    x = at.tensor(node.inputs[0])
    return o.argmax(_flat_last(x, _axes(node.op.axis, x.ndim)), -1)


@converts("MaxAndArgmax")
def max_and_argmax(at: Translation, node: Any) -> list[Tensor]:
    x = at.tensor(node.inputs[0])
    flat = _flat_last(x, _axes(node.op.axis, x.ndim))
    return [o.max(flat, -1), o.argmax(flat, -1)]


def _flat_last(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """These axes as one, the last."""
    others = [axis for axis in range(x.ndim) if axis not in axes]
    shape = (*(x.shape[axis] for axis in others), math.prod(x.shape[axis] for axis in axes))
    return o.reshape(o.permute_dims(x, (*others, *axes)), shape)


@converts("CumOp")
def cumulative(at: Translation, node: Any) -> Tensor:
    x, axis, dtype = at.tensor(node.inputs[0]), node.op.axis, dtype_of(node.outputs[0].type.dtype)
    if axis is None:
        x, axis = o.reshape(x, (-1,)), 0
    function = o.cumulative_sum if node.op.mode == "add" else o.cumulative_prod
    return function(x, axis, dtype=dtype)


@converts("Softmax")
def softmax(at: Translation, node: Any) -> Tensor:
    return _along(o.softmax, at.tensor(node.inputs[0]), node.op.axis)


@converts("LogSoftmax")
def log_softmax(at: Translation, node: Any) -> Tensor:
    return _along(o.log_softmax, at.tensor(node.inputs[0]), node.op.axis)


def _along(function: Reduction, x: Tensor, axis: Any) -> Tensor:
    """A function along one axis, along several: None for all, which are made one first."""
    axes = _axes(axis, x.ndim)
    if len(axes) == 1:
        return function(x, axes[0])
    others = [a for a in range(x.ndim) if a not in axes]
    moved = o.permute_dims(x, (*others, *axes))
    result = o.reshape(function(_flat_last(x, axes), -1), moved.shape)
    return o.permute_dims(result, np.argsort([*others, *axes]).tolist())


@converts("SoftmaxGrad")
def softmax_grad(at: Translation, node: Any) -> Tensor:
    dy, y = at.tensors(node.inputs)
    product = dy * y
    return product - y * o.sum(product, _axes(node.op.axis, y.ndim), keepdims=True)


# -- shapes ------------------------------------------------------------------------------------------------------------


@converts("ViewOp", "DeepCopyOp", "TensorFromScalar", "ScalarFromTensor", "CpuContiguous", "Unbroadcast")
def same(at: Translation, node: Any) -> Any:
    return at.value(node.inputs[0])


@converts("Shape")
def shape(at: Translation, node: Any) -> Any:
    return np.array(at.shape(node.inputs[0]), np.int64)


@converts("Shape_i")
def shape_i(at: Translation, node: Any) -> Any:
    return np.array(at.shape(node.inputs[0])[node.op.i], np.int64)


@converts("SpecifyShape")
def specify_shape(at: Translation, node: Any) -> Any:
    x, *sizes = node.inputs
    for axis, (size, actual) in enumerate(zip(sizes, at.shape(x), strict=True)):
        expected = at.known(size, "the specified shape")
        if expected is not None and int(expected) != actual:
            raise AssertionError(f"SpecifyShape: axis {axis} of {x}: expected size {int(expected)}, actual {actual}")
    return at.value(x)


@converts("Reshape")
def reshape(at: Translation, node: Any) -> Tensor:
    sizes = [int(size) for size in at.known(node.inputs[1], "the new shape")]
    x = at.tensor(node.inputs[0])
    if -1 not in sizes and math.prod(sizes) != math.prod(x.shape):
        raise ValueError(f"cannot reshape array of size {math.prod(x.shape)} into shape {tuple(sizes)}")
    return o.reshape(x, tuple(sizes))


@converts("JoinDims")
def join_dims(at: Translation, node: Any) -> Tensor:
    x, op = at.tensor(node.inputs[0]), node.op
    start = op.start_axis
    joined = math.prod(x.shape[start : start + op.n_axes])
    return o.reshape(x, (*x.shape[:start], joined, *x.shape[start + op.n_axes :]))


@converts("SplitDims")
def split_dims(at: Translation, node: Any) -> Tensor:
    x, axis = at.tensor(node.inputs[0]), node.op.axis
    sizes = [int(size) for size in np.ravel(at.known(node.inputs[1], "the new shape"))]
    return o.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


@converts("MakeVector")
def make_vector(at: Translation, node: Any) -> Tensor:
    dtype = dtype_of(node.outputs[0].type.dtype)
    return o.stack([cast(x, dtype) for x in at.tensors(node.inputs)]) if node.inputs else o.zeros(0, dtype=dtype)


def _joined_axis(at: Translation, node: Any, place: int) -> tuple[int, list[Any]]:
    """The axis of a join or a split, and the operands beside it: PyTensor 2 has it among these, 3 in the op."""
    operands = list(node.inputs)
    axis = getattr(node.op, "axis", None)
    return int(at.known(operands.pop(place), "the axis") if axis is None else axis), operands


@converts("Join")
def join(at: Translation, node: Any) -> Tensor:
    at_axis, parts = _joined_axis(at, node, 0)
    dtype = node.outputs[0].type.dtype
    return o.concat([cast(x, dtype) for x in at.tensors(parts)], axis=at_axis)


@converts("Split")
def split(at: Translation, node: Any) -> list[Tensor]:
    along, (x, lengths) = _joined_axis(at, node, 1)
    sizes = [int(size) for size in at.known(lengths, "the lengths of the parts")]
    whole = at.tensor(x)
    if len(sizes) != len(node.outputs):
        raise ValueError(f"{node}: expected {len(node.outputs)} lengths of parts, actual {len(sizes)}")
    if min(sizes) < 0:
        raise ValueError("Split sizes cannot be negative")
    if sum(sizes) != whole.shape[along]:
        raise ValueError(
            f"Split sizes do not sum to the input length on the axis: {sum(sizes)} != {whole.shape[along]}"
        )
    return list(o.split(whole, np.cumsum(sizes)[:-1].tolist(), axis=along)) if len(sizes) > 1 else [whole]


@converts("Alloc")
def alloc(at: Translation, node: Any) -> Tensor:
    value, *sizes = node.inputs
    x, target = at.tensor(value), at.known_sizes(sizes)
    require_static(node, value, x.shape, target)
    return o.broadcast_to(x, target)


@converts("AllocEmpty")
def alloc_empty(at: Translation, node: Any) -> Tensor:
    return o.zeros(at.known_sizes(node.inputs), dtype=dtype_of(node.op.dtype))


@converts("ARange")
def arange(at: Translation, node: Any) -> Tensor:
    start, stop, step = (at.known(v, "the length of the result").item() for v in node.inputs)
    length = max(0, math.ceil((stop - start) / step))
    dtype = node.outputs[0].type.dtype
    return cast(o.arange(length, dtype=dtype_of("int64")), dtype) * np.array(step, dtype) + np.array(start, dtype)


@converts("Eye")
def eye(at: Translation, node: Any) -> Tensor:
    n, m, k = at.known_sizes(node.inputs)
    return o.eye(n, m, k=k, dtype=dtype_of(node.op.dtype))


@converts("ExtractDiag")
def extract_diag(at: Translation, node: Any) -> Tensor:
    op, x = node.op, at.tensor(node.inputs[0])
    return o.diagonal(o.moveaxis(x, (op.axis1, op.axis2), (-2, -1)), offset=op.offset)


@converts("FillDiagonal")
def fill_diagonal(at: Translation, node: Any) -> Tensor:
    x, value = at.tensors(node.inputs)
    return o.scatter(x, (np.arange(min(map(int, x.shape))),) * x.ndim, cast(value, x.dtype))


@converts("FillDiagonalOffset")
def fill_diagonal_offset(at: Translation, node: Any) -> Tensor:
    x, value, offset = node.inputs
    k, whole = int(at.known(offset, "the offset")), at.tensor(x)
    height, width = map(int, whole.shape)
    rows = np.arange(max(0, -k), max(0, -k, min(height, width - k)))
    return o.scatter(whole, (rows, rows + k), cast(at.tensor(value), whole.dtype))


@converts("Repeat")
def repeat(at: Translation, node: Any) -> Tensor:
    x, repeats = node.inputs
    counts = at.known(repeats, "how often elements are repeated")
    return o.repeat(at.tensor(x), int(counts) if counts.ndim == 0 else counts, axis=node.op.axis)


# -- orders and positions ----------------------------------------------------------------------------------------------


def _sorted_axis(at: Translation, node: Any) -> tuple[Tensor, int]:
    x, axis = at.tensor(node.inputs[0]), at.known(node.inputs[1], "the axis")
    return (o.reshape(x, (-1,)), 0) if axis is None else (x, int(axis))


@converts("SortOp")
def sort(at: Translation, node: Any) -> Tensor:
    x, axis = _sorted_axis(at, node)
    return o.sort(x, axis)


@converts("ArgSortOp")
def arg_sort(at: Translation, node: Any) -> Tensor:
    x, axis = _sorted_axis(at, node)
    return o.argsort(x, axis)


@converts("SearchsortedOp")
def searchsorted(at: Translation, node: Any) -> Tensor:
    x, v, *sorter = at.tensors(node.inputs)
    x, v = promoted(x, v)
    return o.searchsorted(x, v, side=node.op.side, sorter=sorter[0] if sorter else None)


@converts("UnravelIndex")
def unravel_index(at: Translation, node: Any) -> list[Tensor]:
    index, dims = at.tensor(node.inputs[0]), [int(d) for d in at.known(node.inputs[1], "the shape")]
    order = range(len(dims)) if node.op.order == "F" else reversed(range(len(dims)))
    if node.op.order not in ("C", "F"):
        raise RefusedError(f"the order {node.op.order!r} is not converted")
    fits = o.all((index >= 0) & (index < math.prod(dims)))
    rest, found = at.checked(index, fits, ValueError, "index is out of bounds for the shape"), {}
    for axis in order:
        found[axis] = o.remainder(rest, dims[axis])
        rest = o.floor_divide(rest, dims[axis])
    return [found[axis] for axis in range(len(dims))]


@converts("RavelMultiIndex")
def ravel_multi_index(at: Translation, node: Any) -> Tensor:
    *indices, last = node.inputs
    dims, op = [int(d) for d in at.known(last, "the shape")], node.op
    total: Tensor | None = None
    order = range(len(dims)) if op.order == "C" else reversed(range(len(dims)))
    for axis in order:
        index = cast(at.tensor(indices[axis]), np.int64)
        if op.mode == "wrap":
            index = o.remainder(index, dims[axis])
        elif op.mode == "clip":
            index = o.clip(index, 0, dims[axis] - 1)
        else:
            index = at.checked(
                index, o.all((index >= 0) & (index < dims[axis])), ValueError, "invalid entry in coordinates array"
            )
        total = index if total is None else total * dims[axis] + index
    assert total is not None
    return total


# -- checks and graphs in nodes ----------------------------------------------------------------------------------------


@converts("CheckAndRaise")
def check_and_raise(at: Translation, node: Any) -> Any:
    x, *conditions = node.inputs
    value = at.value(x)
    if not isinstance(value, (Tensor, np.ndarray)):
        raise RefusedError("what is checked is no array")
    for condition in conditions:
        holds = at.value(condition)
        if isinstance(holds, Tensor) or not np.all(holds):
            checked = value if isinstance(value, Tensor) else at.tensor(x)
            value = at.checked(checked, o.all(at.tensor(condition) != 0), node.op.exc_type, node.op.msg)
    return value


@converts("OpFromGraph")
def op_from_graph(at: Translation, node: Any) -> list[Any]:
    return at.call(body_of(node.op), [at.value(v) for v in node.inputs])
