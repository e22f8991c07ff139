"""Pads: a pad that only elementwise ops read becomes a view, windows of one element that hang over the border.

As a write it costs a fill and a copy, and memory of its own; as a view its readers load what is there and take zero
elsewhere. The gradient of a slice is a pad, so that the sum of such gradients becomes one kernel: that of a stencil
reads each cotangent once instead of filling, storing and adding one array for each of its points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from staticgrad.compiler.kernels.access import VIEWS
from staticgrad.compiler.kernels.families import users_of
from staticgrad.compiler.region import Region, rebuild
from staticgrad.graph import Node, Tensor
from staticgrad.ops.windows import WindowAttributes
from staticgrad.optable import FUNCTIONS as o
from staticgrad.types import sizes


def pads(region: Region) -> Region:
    if not any(node.op.name == "pad" for node in region.graph.nodes):
        return region
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

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        return (_hanging_over(node, inputs[0]),) if node.op.name == "pad" and is_view(node) else None

    return rebuild(region, visit)


def _padded_axes(node: Node) -> list[int]:
    return [axis for axis, sides in enumerate(zip(node.attrs.low, node.attrs.high, strict=True)) if any(sides)]


def _is_plain_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) > 0


def _shows_other_than_zero(x: Tensor) -> bool:
    """Whether windows with another value outside are on the way to memory: a load knows one such value."""
    while x.op.op.name in VIEWS:
        if x.op.op.name == "window" and not _is_plain_zero(x.op.attrs.value):
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
    return o.permute_dims(y, back)  # type: ignore[no-any-return]
