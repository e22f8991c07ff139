"""PyTensor's elementwise ops, reductions, shapes, joins, sorts and checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import as_tensor, cast, promoted, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, body_of, converts, entries, of_tensors, require_static
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
    given = range(ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(int(a) % ndim for a in given)


def _ordered(function: Reduction) -> Reduction:
    """A largest or smallest element; bools are compared as numbers."""
    return lambda x, axis: function(cast(x, np.uint8) if x.dtype == bool else x, axis)


SUMS: dict[str, Reduction] = {
    "Add": lambda x, axis: o.sum(x, axis, dtype=x.dtype),
    "Mul": lambda x, axis: o.prod(x, axis, dtype=x.dtype),
    "MulWithoutZeros": lambda x, axis: o.prod(o.where(x == 0, o.ones_like(x), x), axis, dtype=x.dtype),
}
LOGICAL: dict[str, Reduction] = {
    "AND": lambda x, axis: o.all(x, axis),
    "OR": lambda x, axis: o.any(x, axis),
    "XOR": lambda x, axis: o.not_equal(o.sum(cast(x, np.int64), axis) % 2, 0),
}
REDUCTIONS: dict[str, Reduction] = {
    **SUMS, **LOGICAL, "Maximum": _ordered(lambda x, axis: o.max(x, axis)),
    "Minimum": _ordered(lambda x, axis: o.min(x, axis)),
}  # fmt: skip


@converts("CAReduce")
def reduce(at: Translation, node: Any) -> Tensor:
    op, x, name = node.op, at.tensor(node.inputs[0]), type(node.op.scalar_op).__name__
    if name not in REDUCTIONS:
        raise RefusedError(f"a reduction by {op.scalar_op} is not converted")
    if name in LOGICAL and x.dtype != bool:
        raise RefusedError(f"a reduction of integers by {op.scalar_op} is not converted")
    accumulated = getattr(op, "acc_dtype", None) or (node.outputs[0].type.dtype if name in SUMS else x.dtype)
    axes = _axes(op.axis, x.ndim)
    return REDUCTIONS[name](cast(x, accumulated), axes) if axes else x


def _flat_last(x: Tensor, axis: Any) -> Tensor:
    """Some axes, None for all, as one, the last."""
    axes = _axes(axis, x.ndim)
    others = [a for a in range(x.ndim) if a not in axes]
    return o.reshape(o.permute_dims(x, (*others, *axes)), (*(x.shape[a] for a in others), -1))


def _along(function: Reduction, x: Tensor, axis: Any) -> Tensor:
    """A function along one axis, along several: None for all, which are made one first."""
    axes = _axes(axis, x.ndim)
    if len(axes) == 1:
        return function(x, axes[0])
    order = [*(a for a in range(x.ndim) if a not in axes), *axes]
    result = o.reshape(function(_flat_last(x, axes), -1), [x.shape[a] for a in order])
    return o.permute_dims(result, np.argsort(order).tolist())


def _cumulative(op: Any, x: Tensor) -> Tensor:
    function = o.cumulative_sum if op.mode == "add" else o.cumulative_prod
    return function(o.reshape(x, (-1,)), 0) if op.axis is None else function(x, op.axis)


def _softmax_grad(op: Any, dy: Tensor, y: Tensor) -> Tensor:
    return dy * y - y * o.sum(dy * y, _axes(op.axis, y.ndim), keepdims=True)


of_tensors({
    "Argmax": lambda op, x: o.argmax(_flat_last(x, op.axis), -1),
    "MaxAndArgmax": lambda op, x: [function(_flat_last(x, op.axis), -1) for function in (o.max, o.argmax)],
    "CumOp": _cumulative,
    "Softmax": lambda op, x: _along(o.softmax, x, op.axis),
    "LogSoftmax": lambda op, x: _along(o.log_softmax, x, op.axis),
    "SoftmaxGrad": _softmax_grad,
})  # fmt: skip


# -- shapes ------------------------------------------------------------------------------------------------------------


@converts("SpecifyShape")
def specify_shape(at: Translation, node: Any) -> Any:
    x, *sizes = node.inputs
    for axis, (size, actual) in enumerate(zip(sizes, at.shape(x), strict=True)):
        expected = at.known(size, "the specified shape")
        if expected is not None and int(expected) != actual:
            raise AssertionError(f"SpecifyShape: axis {axis} of {x}: expected size {int(expected)}, actual {actual}")
    return at.value(x)


def _sizes(at: Translation, variable: Any, what: str) -> list[int]:
    return [int(size) for size in np.ravel(at.known(variable, what))]


@converts("Reshape")
def reshape(at: Translation, node: Any) -> Tensor:
    x, sizes = at.tensor(node.inputs[0]), _sizes(at, node.inputs[1], "the new shape")
    if -1 not in sizes and math.prod(sizes) != math.prod(x.shape):
        raise ValueError(f"cannot reshape array of size {math.prod(x.shape)} into shape {tuple(sizes)}")
    return o.reshape(x, tuple(sizes))


@converts("SplitDims")
def split_dims(at: Translation, node: Any) -> Tensor:
    x, axis = at.tensor(node.inputs[0]), node.op.axis
    return o.reshape(x, (*x.shape[:axis], *_sizes(at, node.inputs[1], "the new shape"), *x.shape[axis + 1 :]))


def _join_dims(op: Any, x: Tensor) -> Tensor:
    start, end = op.start_axis, op.start_axis + op.n_axes
    return o.reshape(x, (*x.shape[:start], math.prod(x.shape[start:end]), *x.shape[end:]))


def _joined_axis(at: Translation, node: Any, place: int) -> tuple[int, list[Any]]:
    """The axis of a join or a split, and the operands beside it: PyTensor 2 has it among these, 3 in the op."""
    operands = list(node.inputs)
    axis = getattr(node.op, "axis", None)
    return int(at.known(operands.pop(place), "the axis") if axis is None else axis), operands


@converts("Join")
def join(at: Translation, node: Any) -> Tensor:
    axis, parts = _joined_axis(at, node, 0)
    return o.concat([cast(x, node.outputs[0].type.dtype) for x in at.tensors(parts)], axis=axis)


@converts("Split")
def split(at: Translation, node: Any) -> list[Tensor]:
    along, (x, lengths) = _joined_axis(at, node, 1)
    sizes, whole = _sizes(at, lengths, "the lengths of the parts"), at.tensor(x)
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


def _arange(at: Translation, node: Any) -> Tensor:
    start, stop, step = (at.known(v, "the length of the result").item() for v in node.inputs)
    places, dtype = o.arange(max(0, math.ceil((stop - start) / step)), dtype=np.dtype(np.int64)), node.op.dtype
    return cast(places, dtype) * np.array(step, dtype) + np.array(start, dtype)


def _eye(at: Translation, node: Any) -> Tensor:
    n, m, k = at.known_sizes(node.inputs)
    return o.eye(n, m, k=k, dtype=dtype_of(node.op.dtype))


def _make_vector(op: Any, *xs: Tensor) -> Tensor:
    dtype = dtype_of(op.dtype)
    return o.stack([cast(x, dtype) for x in xs]) if xs else o.zeros(0, dtype=dtype)


def _fill_diagonal(op: Any, x: Tensor, value: Tensor) -> Tensor:
    return o.scatter(x, (np.arange(min(map(int, x.shape))),) * x.ndim, cast(value, x.dtype))


def _fill_diagonal_offset(at: Translation, node: Any) -> Tensor:
    x, value = at.tensors(node.inputs[:2])
    k, (height, width) = int(at.known(node.inputs[2], "the offset")), at.shape(node.inputs[0])
    rows = np.arange(max(0, -k), max(0, -k, min(height, width - k)))
    return o.scatter(x, (rows, rows + k), cast(value, x.dtype))


def _repeat(at: Translation, node: Any) -> Tensor:
    counts = at.known(node.inputs[1], "how often elements are repeated")
    return o.repeat(at.tensor(node.inputs[0]), int(counts) if counts.ndim == 0 else counts, axis=node.op.axis)


entries({
    "ViewOp DeepCopyOp TensorFromScalar ScalarFromTensor CpuContiguous Unbroadcast": (
        lambda at, node: at.value(node.inputs[0])
    ),
    "Shape": lambda at, node: np.array(at.shape(node.inputs[0]), np.int64),
    "Shape_i": lambda at, node: np.array(at.shape(node.inputs[0])[node.op.i], np.int64),
    "AllocEmpty": lambda at, node: o.zeros(at.known_sizes(node.inputs), dtype=dtype_of(node.op.dtype)),
    "ARange": _arange,
    "Eye": _eye,
    "FillDiagonalOffset": _fill_diagonal_offset,
    "Repeat": _repeat,
})  # fmt: skip
of_tensors({
    "JoinDims": _join_dims,
    "MakeVector": _make_vector,
    "ExtractDiag": lambda op, x: o.diagonal(o.moveaxis(x, (op.axis1, op.axis2), (-2, -1)), offset=op.offset),
    "FillDiagonal": _fill_diagonal,
})  # fmt: skip


# -- orders and positions ----------------------------------------------------------------------------------------------


@converts("SortOp", "ArgSortOp")
def sort(at: Translation, node: Any) -> Tensor:
    x, axis = at.tensor(node.inputs[0]), at.known(node.inputs[1], "the axis")
    function = o.sort if type(node.op).__name__ == "SortOp" else o.argsort
    return function(o.reshape(x, (-1,)), 0) if axis is None else function(x, int(axis))


def _searchsorted(op: Any, x: Tensor, v: Tensor, sorter: Tensor | None = None) -> Tensor:
    return o.searchsorted(*promoted(x, v), side=op.side, sorter=sorter)


of_tensors({"SearchsortedOp": _searchsorted})


@converts("UnravelIndex")
def unravel_index(at: Translation, node: Any) -> list[Tensor]:
    index, dims = at.tensor(node.inputs[0]), _sizes(at, node.inputs[1], "the shape")
    if node.op.order not in ("C", "F"):
        raise RefusedError(f"the order {node.op.order!r} is not converted")
    fits = o.all((index >= 0) & (index < math.prod(dims)))
    rest, found = at.checked(index, fits, ValueError, "index is out of bounds for the shape"), {}
    for axis in range(len(dims)) if node.op.order == "F" else reversed(range(len(dims))):
        found[axis] = o.remainder(rest, dims[axis])
        rest = o.floor_divide(rest, dims[axis])
    return [found[axis] for axis in range(len(dims))]


@converts("RavelMultiIndex")
def ravel_multi_index(at: Translation, node: Any) -> Tensor:
    *indices, last = node.inputs
    dims, op, total = _sizes(at, last, "the shape"), node.op, as_tensor(np.int64(0))
    for axis in range(len(dims)) if op.order == "C" else reversed(range(len(dims))):
        index, size = cast(at.tensor(indices[axis]), np.int64), dims[axis]
        if op.mode == "wrap":
            index = o.remainder(index, size)
        elif op.mode == "clip":
            index = o.clip(index, 0, size - 1)
        else:
            fits = o.all((index >= 0) & (index < size))
            index = at.checked(index, fits, ValueError, "invalid entry in coordinates array")
        total = total * size + index
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


entries({"OpFromGraph": lambda at, node: at.call(body_of(node.op), [at.value(v) for v in node.inputs])})
