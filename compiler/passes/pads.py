"""Pads: a sum of pads that lie side by side becomes a concatenation where it needs memory, and any other pad that only
elementwise ops read a view, windows of one element that hang over the border.

The gradient of a tensor that is split is such a sum: as a concatenation its parts are stored by the kernels that make
them, and nothing is added. Each part is still added to a zero, which makes -0.0 of a part the 0.0 that the sum has.

As a write a pad costs a fill and a copy, and memory of its own; as a view its readers load what is there and take zero
elsewhere. The gradient of a slice is a pad, so that the sum of such gradients becomes one kernel: that of a stencil
reads each cotangent once instead of filling, storing and adding one array for each of its points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.base.extents import is_same, proven
from staticgrad.base.types import is_floating, sizes
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.windows import WINDOW, WindowAttributes


def pads(region: Region) -> Region:
    if not any(node.op.name == "pad" for node in region.graph.nodes):
        return region
    return _as_views(dce(_joined(region)))


# -- side by side ---------------------------------------------------------------------------------------------------


def _joined(region: Region) -> Region:
    """Sums of pads that cover their result, each element once, as concatenations."""
    users = users_of(region)
    fetched = set(region.fetches)

    def has_memory(x: Tensor) -> bool:
        """True if ``x`` is stored: something reads it that does not compute it on the way."""
        return x in fetched or any(
            has_memory(user.outputs[0]) if user.op.view else user.op.role not in ("elementwise", "reduction")
            for user in users[x]
        )

    sums: set[Node] = set()  # of nothing but pads, which nothing else reads
    for node in region.graph.nodes:
        if node.op.name == "add" and all(
            (x.op.op.name == "pad" or x.op in sums)
            and is_same(x.shape, node.outputs[0].shape)
            and x not in fetched
            and len(users[x]) == 1
            for x in node.inputs
        ):
            sums.add(node)
    if not sums:
        return region

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node not in sums or node.outputs[0].dtype.kind not in "fiu" or not has_memory(node.outputs[0]):
            return None
        axis = _common_axis(_pads_of(node.inputs))
        if axis is None:
            return None
        parts = sorted(_pads_of(inputs), key=lambda pad: pad.attrs.low[axis])
        return (o.concat([plus_zero(pad.inputs[0]) for pad in parts], axis=axis),)

    return rebuild(region, visit)


def _common_axis(pads: Sequence[Node]) -> int | None:
    """The one axis along which all pads hang over zeros and their operands lie side by side, without gap or overlap."""
    axes = {axis for pad in pads for axis in _padded_axes(pad)}
    if len(axes) != 1 or any(any(pad.attrs.interior) or not _is_plain_zero(pad.attrs.value) for pad in pads):
        return None
    (axis,) = axes
    parts = [(pad.attrs.low[axis], sizes(pad.inputs[0].shape)[axis]) for pad in pads]
    whole = sizes(pads[0].outputs[0].shape)[axis]
    return axis if proven(lambda: _fill(parts, whole)) else None


def _fill(parts: Sequence[tuple[int, int]], whole: int) -> bool:
    """True if parts, each from an offset of a size, lie side by side and are the whole."""
    end = 0
    for low, size in sorted(parts):
        if low != end or size == 0:
            return False
        end += size
    return end == whole


def _pads_of(tensors: Sequence[Tensor]) -> list[Node]:
    """The pads at the leaves of sums."""
    stack, found = [x.op for x in tensors], []
    while stack:
        node = stack.pop()
        if node.op.name == "pad":
            found.append(node)
        else:
            stack += [x.op for x in node.inputs]
    return found


def plus_zero(x: Tensor) -> Tensor:
    """``x`` with 0.0 in the place of -0.0, as adding a zero leaves it."""
    return o.add(x, o.full((), 0.0, dtype=x.dtype)) if is_floating(x.dtype) else x


# -- views ----------------------------------------------------------------------------------------------------------


def _as_views(region: Region) -> Region:
    """Pads that only elementwise ops read, as windows."""
    users = users_of(region)
    fetched = set(region.fetches)

    def is_view(node: Node) -> bool:
        result = node.outputs[0]
        read = users[result]
        return (
            len(_padded_axes(node)) <= 2
            and not any(node.attrs.interior)
            and _is_plain_zero(node.attrs.value)
            and not _shows_other_than_zero(node.inputs[0])
            and result not in fetched
            and bool(read)
            and all(user.op.elementwise for user in read)
        )

    views = {node for node in region.graph.nodes if node.op.name == "pad" and is_view(node)}

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        return (_hanging_over(node, inputs[0]),) if node in views else None

    return rebuild(region, visit) if views else region


def _padded_axes(node: Node) -> list[int]:
    widths = enumerate(zip(node.attrs.low, node.attrs.high, strict=True))
    return [axis for axis, sides in widths if not all(is_same(side, 0) for side in sides)]


def _is_plain_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) > 0


def _shows_other_than_zero(x: Tensor) -> bool:
    """True if windows with another value outside are on the way to memory: a load knows one such value."""
    while x.op.op.view:
        if x.op.op is WINDOW and not _is_plain_zero(x.op.attrs.value):
            return True
        x = x.op.inputs[0]
    return False


def _hanging_over(node: Node, x: Tensor) -> Tensor:
    """The pad as a view: its axes are moved to the end, looked at by windows of one element, and moved back."""
    low, high = node.attrs.low, node.attrs.high
    moved = _padded_axes(node)
    moved = [*(axis for axis in range(x.ndim) if axis not in moved), *moved]
    back = tuple(moved.index(axis) for axis in range(x.ndim))
    sides = [(low[axis], high[axis]) for axis in moved[-2:]]
    y = o.permute_dims(x, tuple(moved))
    if x.ndim == 1:
        sides = [(0, 0), *sides]
        y = o.reshape(y, (1, *sizes(y.shape)))
    window = WindowAttributes((1, 1), (1, 1), (sides[0], sides[1]), (1, 1), 0.0)
    shape = sizes(node.outputs[0].shape)
    y = o.reshape(o.window(y, window), tuple(shape[axis] for axis in moved))
    return o.permute_dims(y, back)
