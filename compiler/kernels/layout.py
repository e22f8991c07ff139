"""Layout: in which order the axes of a tensor lie in the program's own memory.

Images (N, C, H, W) around convolutions are kept channels last, the order in which the convolution kernels want them,
and so are the windows over them, (N, C, OH, OW, KH, KW). But where a convolution reads and writes no images but users',
and what is computed from those, all stay in planes, for which there are kernels as well. Overlapping windows over
anything else keep the places of a window, (KH, KW), outside: what is next to each other along OW is then next to each
other in memory. Everything else, and everything the user sees, is row-major. A layout is a choice of strides: kernels
take any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from staticgrad.base.extents import is_same
from staticgrad.base.types import sizes
from staticgrad.compiler.kernels.access import is_reshape, is_view, row_major, source_of
from staticgrad.compiler.regions.region import Order, Region, users_of
from staticgrad.graph.graph import Node, Tensor
from staticgrad.ops.contraction import DOT
from staticgrad.ops.convolution import CONVOLUTION_WEIGHT_GRAD
from staticgrad.ops.elementwise.copies import IDENTITY
from staticgrad.ops.grouped import GROUPED_DOT
from staticgrad.ops.sources import FULL, IOTA
from staticgrad.ops.windows import FOLD, WINDOW, WindowAttributes

IMAGE_RANKS = (4, 6)  # axes of images, and of windows over images


def overlaps(window: WindowAttributes) -> bool:
    """True if two windows may share a place."""
    spans = (d * (k - 1) + 1 for d, k in zip(window.dilation, window.kernel, strict=True))
    return any(span > step for span, step in zip(spans, window.stride, strict=True))


class _Images:
    """Spreads a mark from tensor to tensor: what is marked is an image or windows over one, kept channels last."""

    def __init__(self, region: Region) -> None:
        self.users = users_of(region)
        self.fetched = {source_of(x) for x in region.fetches}
        self.marked: set[Tensor] = set()
        self._queue: deque[Tensor] = deque()
        self.layers = [
            tuple(map(source_of, _images_of(node)))
            for node in region.graph.nodes
            if node.op.role == "matrix" and node.op not in (DOT, GROUPED_DOT)
        ]
        for x in (x for layer in self.layers for x in layer):
            self._mark(x)
        while self._queue:
            x = self._queue.popleft()
            for y in self._around(x):
                self._mark(y)

    def _mark(self, x: Tensor) -> None:
        x = source_of(x)
        if x.ndim in IMAGE_RANKS and x not in self.marked and x.op.op is not IDENTITY:
            self.marked.add(x)
            self._queue.append(x)

    def _around(self, x: Tensor) -> Iterator[Tensor]:
        """The tensors whose elements are computed from those of ``x``, or the other way, channel by channel."""
        for node in (x.op, *self.users[x]) if x.op.op.role != "source" else self.users[x]:
            if node.op.role in ("elementwise", "reduction"):
                yield from (y for y in (*node.inputs, *node.outputs) if _same_windows(x, y))
            elif node.op in (WINDOW, FOLD) or (is_reshape(node) and _is_window_reshape(node)):
                yield from (node.inputs[0], node.outputs[0])

    def kept(self) -> set[Tensor]:
        """The images that have memory of the program's own, but for what is only read as rows of all its elements and
        what stands between a single layer and the user."""
        planes = self._in_planes()
        return {
            x
            for x in self.marked - planes
            if _takes_strides(x.op) and not self._is_users(x) and not is_view(x) and not self._is_flattened(x)
        }

    def _is_users(self, x: Tensor) -> bool:
        """True if ``x`` lies as users hold it."""
        return x.op.op.role == "source" or x in self.fetched

    def _is_held(self, x: Tensor) -> bool:
        """True if ``x`` is in memory of the user's or the session's."""
        return x in self.fetched or (x.op.op.role == "source" and not x.op.op.rematerializable)

    def _in_planes(self) -> set[Tensor]:
        """The images that are computed element by element with some that users hold, if convolutions read and write no
        other images but users': then all of them may lie in planes, and nothing has to be transposed."""
        found: set[Tensor] = set()
        left = set(self.marked)
        while left:
            group = self._group(left.pop())
            left -= group
            touching = [layer for layer in self.layers if group.intersection(layer)]
            others = {x for layer in touching for x in layer} - group
            alone = any(map(self._is_held, group)) and all(map(self._is_users, others))
            if alone and all(x.ndim == 4 for x in group):
                found |= group
        return found

    def _group(self, x: Tensor) -> set[Tensor]:
        """All marked tensors that are computed with ``x`` element by element, with what they are computed with."""
        group, queue = {x}, deque([x])
        while queue:
            around = {source_of(y) for y in self._around(queue.popleft())} & self.marked
            queue.extend(around - group)
            group |= around
        return group

    def _is_flattened(self, x: Tensor) -> bool:
        """True if a reshape that no channels-last memory can serve reads ``x`` and no convolution does."""
        users = list(self.users[x])
        flattened = False
        while users:
            node = users.pop()
            if node.op.role == "matrix":
                return False
            if is_reshape(node):
                if _is_window_reshape(node):
                    users.extend(self.users[node.outputs[0]])
                else:
                    flattened = True
        return flattened and x.op.op.role != "matrix"


def _images_of(convolution: Node) -> tuple[Tensor, ...]:
    """The two images of a convolution or of one of its transposes."""
    if convolution.op is CONVOLUTION_WEIGHT_GRAD:
        return convolution.inputs
    return convolution.inputs[0], convolution.outputs[0]


def _takes_strides(node: Node) -> bool:
    """True if the kernel that computes a node writes with any strides: loops, branches, routines and calls do not."""
    return node.op.nest or node.op.role in ("matrix", "write")


def _same_windows(x: Tensor, y: Tensor) -> bool:
    """Equal shapes, or both of windows, one of which has one element for each window."""
    a, b = sizes(x.shape), sizes(y.shape)
    return a == b or (len(a) == len(b) == 6 and a[:4] == b[:4] and (1, 1) in (a[4:], b[4:]))


def _is_window_reshape(node: Node) -> bool:
    """(N, C, H, W) to (N, C, H, W, 1, 1) or back."""
    a, b = sizes(node.inputs[0].shape), sizes(node.outputs[0].shape)
    short, long = sorted((a, b), key=len)
    return len(short) == 4 and long == (*short, 1, 1)


def _overlapping(region: Region) -> set[Tensor]:
    """The tensors that a nest computes element by element with the windows of an image, where those overlap."""
    users = users_of(region)
    queue: deque[Tensor] = deque()
    for node in region.graph.nodes:
        if node.op is WINDOW and overlaps(node.attrs):
            queue.append(node.outputs[0])
        elif node.op is FOLD and overlaps(node.attrs.window):
            queue.append(node.inputs[0])
    marked = set(queue)
    while queue:
        x = queue.popleft()
        for node in (x.op, *users[x]):
            if node.op.elementwise and node.op is not IDENTITY:
                same = {y for y in (*node.inputs, *node.outputs) if is_same(y.shape, x.shape)} - marked
                marked |= same
                queue.extend(same)
    fetched = {source_of(x) for x in region.fetches}
    return {x for x in marked - fetched if x.op.op.elementwise and x.op.op is not IDENTITY}


def layouts(region: Region) -> dict[Tensor, Order]:
    """The order of the axes of each tensor that is not row-major.

    Only memory of the program's own can have a layout, so feeds, variables and fetches stay out.
    """
    found: dict[Tensor, Order] = {}
    for x in _overlapping(region):
        lead = tuple(range(x.ndim - 4))
        found[x] = (*lead, x.ndim - 2, x.ndim - 1, x.ndim - 4, x.ndim - 3)
    for x in _Images(region).kept():
        found[x] = (0, *range(2, x.ndim), 1)
    return found


def strides_with(orders: Mapping[Tensor, Order]) -> Callable[[Tensor], tuple[int, ...]]:
    """The strides of a tensor's own memory under a layout."""

    def strides_of(x: Tensor) -> tuple[int, ...]:
        shape = sizes(x.shape)
        if x.op.op is FULL:
            return (0,) * len(shape)
        if x.op.op is IOTA:  # its "address" is its value
            return tuple(int(axis == x.op.attrs.axis) for axis in range(len(shape)))
        order = orders.get(x)
        if order is None:
            return row_major(shape)
        strides = [0] * len(shape)
        for axis, stride in zip(order, row_major([shape[a] for a in order]), strict=True):
            strides[axis] = stride
        return tuple(strides)

    return strides_of
