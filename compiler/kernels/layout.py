"""Layout: in which order the axes of a tensor lie in the program's own memory.

Four-dimensional values around convolutions are kept channels last, the order in which the convolution kernels want
them; everything else, and everything the user sees, is row-major. A layout is a choice of strides: kernels take any.
"""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.compiler.kernels.access import is_view, row_major, source_of
from staticgrad.compiler.kernels.families import MATRIX, REDUCTIONS, SOURCES, users_of
from staticgrad.compiler.region import Region
from staticgrad.graph import Tensor
from staticgrad.ops.elementwise import IDENTITY
from staticgrad.types import sizes

CHANNELS_LAST = (0, 2, 3, 1)


def image_tensors(region: Region) -> set[Tensor]:
    """The tensors that are kept channels last: inputs and outputs of convolutions, and what is elementwise with them.

    Only memory of the program's own can have a layout, so feeds, variables and fetches stay out.
    """
    marked: set[Tensor] = set()
    users = users_of(region)
    fetched = {source_of(x) for x in region.fetches}
    stack: list[Tensor] = []

    def mark(x: Tensor) -> None:
        x = source_of(x)
        if x.ndim == 4 and x not in marked and x.op.op is not IDENTITY:
            marked.add(x)
            stack.append(x)

    for node in region.graph.nodes:
        if node.op.name in MATRIX and node.op.name != "dot":
            images = {"convolution": (node.inputs[0], node.outputs[0]),
                      "convolution_input_grad": (node.inputs[0], node.outputs[0]),
                      "convolution_weight_grad": node.inputs}[node.op.name]  # fmt: skip
            for x in images:
                mark(x)
    while stack:
        x = stack.pop()
        around = [x.op, *users[x]] if x.op.op.name not in SOURCES else users[x]
        for node in around:
            if node.op.elementwise:
                for y in (*node.inputs, *node.outputs):
                    if y.shape == x.shape:
                        mark(y)
            elif node.op.name == "window":
                for reduce in users[node.outputs[0]]:
                    if reduce.op.name in REDUCTIONS:
                        for view in users[reduce.outputs[0]]:
                            if view.op.name == "reshape":
                                mark(view.outputs[0])
    return {x for x in marked if x.op.op.name not in SOURCES and x not in fetched and not is_view(x)}


def strides_with(images: set[Tensor]) -> Callable[[Tensor], tuple[int, ...]]:
    """The strides of a tensor's own memory under a layout."""

    def strides_of(x: Tensor) -> tuple[int, ...]:
        shape = sizes(x.shape)
        if x.op.op.name == "full":
            return (0,) * len(shape)
        if x.op.op.name == "iota":  # its "address" is its value
            return tuple(int(axis == x.op.attrs.axis) for axis in range(len(shape)))
        if x not in images:
            return row_major(shape)
        strides = [0] * 4
        for axis, stride in zip(CHANNELS_LAST, row_major([shape[a] for a in CHANNELS_LAST]), strict=True):
            strides[axis] = stride
        return tuple(strides)

    return strides_of
