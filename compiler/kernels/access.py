"""Index maps: where an element of a tensor lies in memory, seen through views.

A consumer names an element by affine expressions of its loop indices, one for each axis of the tensor it reads.
``resolve`` walks up the views (reshape, permute, broadcast, slice, window) to the tensor that has memory, rewriting the
expressions on the way, and ends with one affine address and the guards under which it may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.base.extents import highest, is_open, proven
from staticgrad.base.frozen import frozen
from staticgrad.base.types import sizes
from staticgrad.graph.graph import Node, Tensor


@frozen
class Affine:
    """``offset + Σ factor·index[dim]``; terms are sorted by dim and have no zero factors."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Affine) -> Affine:
        factors = dict(self.terms)
        for dim, factor in other.terms:
            factors[dim] = factors.get(dim, 0) + factor
        return Affine(self.offset + other.offset, tuple(sorted((d, f) for d, f in factors.items() if f)))

    def times(self, scale: int) -> Affine:
        return Affine(self.offset * scale, tuple((d, f * scale) for d, f in self.terms if scale))

    def plus(self, offset: int) -> Affine:
        return Affine(self.offset + offset, self.terms)

    @staticmethod
    def index(dim: int) -> Affine:
        return Affine(0, ((dim, 1),))


ZERO = Affine()


@frozen
class Guard:
    """``0 <= index < size``: memory may be read only where this holds; elsewhere the value is ``fill``."""

    index: Affine
    size: int
    fill: float


@frozen
class Path:
    """An element of ``base``: its index expressions (one an axis) or its address, and the guards of the way there."""

    base: Tensor
    address: Affine
    guards: tuple[Guard, ...]


@frozen
class Blocked:
    """No affine address exists; it would if ``tensor`` had memory of its own, in row-major order."""

    tensor: Tensor


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a C-contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if is_open(size) else max(size, 1)
    return tuple(reversed(strides))


def is_reshape(node: Node) -> bool:
    """True if a node shows the elements of its operand in their row-major order, under another shape."""
    return node.op.name == "reshape"


def behind_reshapes(x: Tensor) -> Tensor:
    """The tensor whose memory is that of ``x`` too, if it is row-major."""
    while is_reshape(x.op):
        x = x.op.inputs[0]
    return x


StridesOf = Callable[[Tensor], tuple[int, ...]]


def is_view(x: Tensor) -> bool:
    return x.op.op.view


def source_of(x: Tensor) -> Tensor:
    """The tensor whose memory an alias shares."""
    while x.op.op.role in ("alias", "store"):
        x = x.op.inputs[0]
    return x


def broadcast_map(shape: Sequence[int], domain: Sequence[int]) -> tuple[Affine, ...]:
    """The indices of a tensor of ``shape`` inside a loop nest over ``domain``, by NumPy's broadcasting."""
    lead = len(domain) - len(shape)
    return tuple(ZERO if size == 1 else Affine.index(lead + axis) for axis, size in enumerate(shape))


def dot_address(indices: Sequence[Affine], strides: Sequence[int]) -> Affine:
    total = ZERO
    for index, stride in zip(indices, strides, strict=True):
        total = total + index.times(stride)
    return total


def resolve(x: Tensor, indices: tuple[Affine, ...], strides_of: StridesOf) -> Path | Blocked:
    """Walk up the views of ``x``; see the module's docstring."""
    guards: list[Guard] = []
    while True:
        x = source_of(x)
        if not is_view(x):
            return Path(x, dot_address(indices, strides_of(x)), tuple(guards))
        operand = x.op.inputs[0]
        attrs = x.op.attrs
        name = x.op.op.name
        if name == "permute_dims":
            moved = [ZERO] * len(indices)
            for axis, source in enumerate(attrs.perm):
                moved[source] = indices[axis]
            indices = tuple(moved)
        elif name == "broadcast_to":
            lead = x.ndim - operand.ndim
            indices = tuple(
                ZERO if size == 1 else indices[lead + axis] for axis, size in enumerate(sizes(operand.shape))
            )
        elif name == "slice":
            indices = tuple(
                index.times(step).plus(start)
                for index, start, step in zip(indices, attrs.starts, attrs.steps, strict=True)
            )
        elif name == "window":
            indices = _through_window(x, indices, guards)
        else:
            regrouped = regroup(sizes(operand.shape), sizes(x.shape), indices)
            if regrouped is None:
                base = _through_reshapes(operand)
                shape = sizes(base.shape)
                if is_view(base) or strides_of(base) != row_major(shape):
                    return Blocked(operand)
                return Path(base, dot_address(indices, row_major(sizes(x.shape))), tuple(guards))
            indices = regrouped
        x = operand


def _through_window(x: Tensor, indices: tuple[Affine, ...], guards: list[Guard]) -> tuple[Affine, ...]:
    attrs, operand = x.op.attrs, x.op.inputs[0]
    *lead, oh, ow, kh, kw = indices
    result = list(lead)
    for axis, (outer, inner) in enumerate(((oh, kh), (ow, kw))):
        low, high = attrs.padding[axis]
        index = outer.times(attrs.stride[axis]) + inner.times(attrs.dilation[axis])
        index = index.plus(-low)
        if low or high:
            guards.append(Guard(index, sizes(operand.shape)[axis - 2], attrs.value))
        result.append(index)
    return tuple(result)


def _through_reshapes(x: Tensor) -> Tensor:
    x = source_of(x)
    while is_reshape(x.op):
        x = source_of(x.op.inputs[0])
    return x


def _reaches(total: int, size: int) -> bool:
    """True if a product of sizes is as large as a size, or does not become it with further factors."""
    if not is_open(total) and not is_open(size):
        return total >= size
    return proven(lambda: total == size) or highest(total) > highest(size)


def regroup(inner: Sequence[int], outer: Sequence[int], indices: tuple[Affine, ...]) -> tuple[Affine, ...] | None:
    """The indices of a reshape's operand (shape ``inner``) from those of its result (shape ``outer``).

    Axes are matched in groups of equal size. A group with one operand axis merges its result axes, which is affine;
    one that splits an operand axis the other way is not, and gives None.
    """
    result: list[Affine] = []
    position = 0
    wide = [i for i, size in enumerate(outer) if size != 1]
    for size in inner:
        if size == 1:
            result.append(ZERO)
            continue
        total, group = 1, []
        while position < len(wide) and not _reaches(total, size):
            group.append(wide[position])
            total *= outer[wide[position]]
            position += 1
        if not proven(lambda: total == size):  # noqa: B023
            return None
        merged = ZERO
        for axis in group:
            merged = merged.times(outer[axis]) + indices[axis]
        result.append(merged)
    return tuple(result) if position == len(wide) else None
