"""The base of convolution kernels of all directions: framed images, weights as strides, the function being written.

Input: an image tensor in any order of axes. Output: the form that tiles read, channels last as ``[group][row][column]
[channel]``, framed with zeros; each image is copied there when it is needed, or read in place where it already has that
form and needs no frame.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from staticgrad.base.extents import OpenSizeError, at_most, highest, is_open, is_same, largest, open_sizes, value_at
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.plan import NO_SCRATCH, Range, Scratch
from staticgrad.compiler.emit.llvm import Function, Index, Value, is_number, memory_type
from staticgrad.compiler.emit.microkernel import Matrix, call_epilogue, copy_matrix, fill_zero, span
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import tile_lanes

Axis = tuple[Index, int, int]  # how many, and how far they lie apart in a copy and in its source
ONE: Axis = (1, 0, 0)
Kind = Literal["forward", "weights"]
ALIAS = 2048  # pixels a multiple of this many bytes apart share few sets of the first cache: conflict misses


@frozen
class Image:
    """An image tensor and the framed channels-last copy that the tiles read.

    Pixel (u, v) of the source stands at (u, v) + offset in a frame of ``height`` × ``width`` pixels.
    """

    dtype: np.dtype
    groups: int
    channels: int  # of one group
    size: tuple[int, int]
    strides: tuple[int, int, int, int]  # n, c, h, w
    offset: tuple[int, int]
    height: int
    width: int
    apart: int  # elements from one pixel of the copy to the next, at least the channels
    padded: bool = False  # more channels of a pixel are read than there are: so it is always copied

    @staticmethod
    def unframed(
        dtype: np.dtype, channels: int, size: tuple[int, int], strides: tuple[int, int, int, int], apart: int = 0,
        padded: bool = False,
    ) -> Image:  # fmt: skip
        """An image that no tap leaves, all channels one group."""
        return Image(dtype, 1, channels, size, strides, (0, 0), *size, apart or channels, padded)

    @property
    def in_place(self) -> bool:
        inside = at_most(self.height, self.size[0]) and at_most(self.width, self.size[1])
        plain = inside and self.offset == (0, 0) and self.groups == 1 and not self.padded
        return plain and (self.strides[1] == 1 or self.channels == 1)

    @property
    def pixel(self) -> int:
        """Elements from one pixel to the next in a row."""
        return self.strides[3] if self.in_place else self.apart

    @property
    def row(self) -> int:
        return self.strides[2] if self.in_place else self.width * self.pixel

    @property
    def group(self) -> int:
        return self.height * self.width * self.pixel

    @property
    def elements(self) -> int:
        """Elements of the copy of one image."""
        return 0 if self.in_place else self.groups * self.group

    @property
    def pitch(self) -> int:
        """Elements from one image to the next, as they are read."""
        return self.strides[0] if self.in_place else self.elements

    def inside(self, axis: int) -> tuple[int, int]:
        """The range of source pixels along ``axis`` that fall into the frame."""
        offset, frame = self.offset[axis], (self.height, self.width)[axis]
        low = max(0, -offset)
        return low, max(low, min(self.size[axis], frame - offset))

    def covered(self) -> bool:
        """True if the copy writes every element of the frame."""
        (h0, h1), (w0, w1) = self.inside(0), self.inside(1)
        whole = is_same(h1 - h0, self.height) and is_same(w1 - w0, self.width)
        return whole and self.pixel == self.channels


@frozen
class WeightStrides:
    """Weights as (group, out, in, i, j) strides from an offset; ``out`` and ``input`` are those of the computation."""

    offset: int
    group: int
    out: int
    input: int
    i: int
    j: int

    def taps(self, kernel: tuple[int, int]) -> int | None:
        """The one stride of the taps i·kw + j, if they have one."""
        if kernel[0] == 1 or self.i == kernel[1] * self.j:
            return self.j
        return self.i if kernel[1] == 1 else None


def kind_of(kernel: Convolution) -> Kind:
    """The kind of a depthwise kernel's tiles."""
    return "weights" if kernel.direction == "weight_grad" else "forward"


def is_depthwise(kernel: Convolution) -> bool:
    """One channel and one filter a group: there is nothing to sum over but taps."""
    return kernel.groups > 1 and kernel.groups == kernel.channels == kernel.filters and kernel.dtype.kind == "f"


def x_image(kernel: Convolution) -> Image:
    """x, framed by its padding."""
    height, width = (_frame_size(kernel, axis) for axis in range(2))
    groups = 1 if is_depthwise(kernel) else kernel.groups
    channels = kernel.channels // groups
    return Image(kernel.dtype, groups, channels, (kernel.height, kernel.width), kernel.x_strides,
                 kernel.padding, height, width, unaliased(kernel.dtype, channels, kernel.stride[1]))  # fmt: skip


def _frame_size(kernel: Convolution, axis: int) -> int:
    """The pixels along an axis of the frame of x that taps read; with a stride of an open size as many more as all of x
    needs, as the last ones of a row may be read or not."""
    count, stride = (kernel.out_height, kernel.out_width)[axis], kernel.stride[axis]
    reach = (count - 1) * stride + (kernel.kernel[axis] - 1) * kernel.dilation[axis] + 1
    if stride == 1 or not is_open(reach):
        return reach
    size = (kernel.height, kernel.width)[axis] + kernel.padding[axis]
    return size + max(0, most(reach - size))


def most(extent: int) -> int:
    """The greatest number of an extent of one open size.

    Raises:
        OpenSizeError: it has several.
    """
    if not is_open(extent):
        return extent
    if len(sizes := open_sizes(extent)) != 1:
        raise OpenSizeError(f"{extent} depends on several sizes", extent)
    (size,) = sizes
    return max(value_at(extent, [number] * (size.number + 1)) for number in range(size.low, size.high + 1))


def unaliased(dtype: np.dtype, channels: int, stride: int = 1) -> int:
    """Elements from one pixel of a copy to the next, of which a tile reads some at a fixed distance: a line more than
    its channels where those would fall into few sets of the cache."""
    return channels + (LINE // dtype.itemsize if channels * stride * dtype.itemsize % ALIAS == 0 else 0)


def is_run(image: Image, taps: int, dilation: int) -> bool:
    return taps == 1 or (dilation == 1 and image.pixel == image.channels)


def seconds_of(kernel: Convolution, target: Target) -> float:
    """The estimated seconds of the kernel on one core, of the greatest sizes."""
    kernel = largest(kernel)
    products = kernel.batch * kernel.filters * kernel.out_height * kernel.out_width
    terms = kernel.channels // kernel.groups * kernel.kernel[0] * kernel.kernel[1]
    rate = target.machine.convolution_flops_per_lane * tile_lanes(target, kernel.dtype)
    return 2 * products * terms / (rate / 4 if is_depthwise(kernel) or kernel.dtype.kind != "f" else rate)


class ConvolutionWriter:
    """The function under construction and what all directions share."""

    def __init__(
        self, f: Function, kernel: Convolution, epilogue: str | None, pointers: Sequence[Value],
        scratch: Scratch = NO_SCRATCH, worker: Index = 0,
    ) -> None:  # fmt: skip
        self.f = f
        self.kernel = kernel
        self.dtype = kernel.dtype
        self.element = memory_type(kernel.dtype)
        self.epilogue = epilogue
        self.first, self.second = pointers[:2]
        self.result = pointers[2] if kernel.store_raw else None
        self.extra = pointers[3 if kernel.store_raw else 2 : -1]
        self.scratch = pointers[-1]
        self._areas = scratch
        self._own = f.add(scratch.shared_bytes, f.mul(worker, scratch.own_bytes))  # where the worker's areas begin

    @property
    def result_pointer(self) -> Value:
        """The result, of a kernel that stores it."""
        if self.result is None:
            raise ValueError("this kernel does not store its raw result")
        return self.result

    def at(self, base: Value, *terms: Range) -> Value:
        """The element at ``Σ index·stride`` behind ``base``."""
        total: Index = 0
        for index, stride in terms:
            total = self.f.add(total, self.f.mul(index, stride))
        return self.f.offset(base, total, self.element)

    def area(self, name: str, number: Index = 0) -> Value:
        """The address of the scratch area of this name, the worker's own if it is one of those; of an area with several
        parts the part with this ``number``."""
        return self.f.offset(self.scratch, self._areas.place(self.f, name, self._own, number), "i8")

    def bytes_of(self, name: str) -> int:
        """The bytes of a scratch area, or of each of its copies."""
        return self._areas.find(name).nbytes

    def copy(
        self, to: Matrix, source: Matrix, rows: Index, columns: Index, least: int = 0, along_source: bool = True,
        asks: bool = False,
    ) -> None:  # fmt: skip
        copy_matrix(self.f, self.dtype, to, source, rows, columns, least, along_source, asks)

    def rearrange(self, to: Value, source: Value, *axes: Axis, least: int = 0, along_source: bool = True) -> None:
        """Copy an array whose elements lie apart in one way at ``to`` and in another at ``source``. Neighbouring axes
        that are one run on both sides are one. Of those left the one along which ``to`` is written and the one along
        which the source is read are those of a matrix, the others are loops. An axis that the source has backwards is
        read forwards. ``least`` and ``along_source`` are those of ``copy_matrix``."""
        f, behind, kept = self.f, (0, 0), list[Axis]()
        asks = any(is_open(count) for count, _, _ in axes)  # there may be fewer than a block has
        for count, a, b in axes:
            if b < 0 and abs(a) != 1 and isinstance(count, int):
                behind, a, b = (behind[0] + (count - 1) * a, behind[1] + (count - 1) * b), -a, -b
            if kept and isinstance(count, int) and is_same(kept[-1][1:], (count * a, count * b)):
                count = f.mul(kept.pop()[0], count)
            if count != 1:
                kept.append((count, a, b))
        if any(is_number(count, 0) for count, _, _ in kept):
            return
        column = min(kept, key=lambda axis: highest(abs(axis[1])), default=ONE)
        row = min(kept, key=lambda axis: highest(abs(axis[2])) or math.inf, default=ONE)
        if is_same(row, column):
            row = next((axis for axis in reversed(kept) if not is_same(axis, column)), ONE)
        source, to = f.offset(source, behind[1], self.element), f.offset(to, behind[0], self.element)
        with contextlib.ExitStack() as loops:
            for count, a, b in kept:
                if not (is_same((count, a, b), row) or is_same((count, a, b), column)):
                    index = loops.enter_context(span(f, 0, count))
                    to, source = self.at(to, (index, a)), self.at(source, (index, b))
            matrices = Matrix(to, row[1], column[1]), Matrix(source, row[2], column[2])
            self.copy(*matrices, row[0], column[0], least, along_source, asks)

    def finish(self, raw: Value, ranges: list[Range]) -> None:
        if self.epilogue is not None:
            call_epilogue(self.f, self.epilogue, [raw, *self.extra], ranges)

    def clear_frame(self, image: Image, to: Value, count: Index = 1) -> None:
        """Zero ``count`` frames once: every image overwrites the same pixels of its frame."""
        if not image.in_place and not image.covered():
            fill_zero(self.f, self.dtype, to, self.f.mul(count, image.elements))

    def clear_around(self, to: Value, row: int, rows: Index, inside: Range) -> None:
        """Zero those of ``rows`` rows of a frame, of ``row`` elements each, that do not lie ``inside`` of an image."""
        f, (low, high) = self.f, inside
        fill_zero(f, self.dtype, to, f.mul(low, row))
        fill_zero(f, self.dtype, self.at(to, (high, row)), f.mul(f.sub(rows, high), row))

    def frame(self, image: Image, source: Value, number: Index, to: Value) -> Value:
        """Bring image ``number`` into its framed form; returns where that is."""
        base = self.at(source, (number, image.strides[0]))
        if image.in_place:
            return base
        self.frame_rows(image, base, to, image.group, image.inside(0))
        return to

    def frame_rows(self, image: Image, base: Value, to: Value, apart: int, rows: Range) -> None:
        """Bring some rows of the image at ``base`` into a frame whose row 0 would be at ``to``, and whose groups lie
        ``apart`` elements from each other."""
        (w0, w1), (low, high), (_, s_c, s_h, s_w) = image.inside(1), rows, image.strides
        if w0 >= w1 or image.channels == 0 or (isinstance(low, int) and isinstance(high, int) and at_most(high, low)):
            return
        pixel, left = image.pixel, w0 + image.offset[1]
        with span(self.f, 0, image.groups) as group, span(self.f, low, high) as h:
            at = self.at(to, (group, apart), (self.f.add(h, image.offset[0]), image.row), (left, pixel))
            source = self.at(base, (group, image.channels * s_c), (h, s_h), (w0, s_w))
            self.rearrange(at, source, (w1 - w0, pixel, s_w), (image.channels, 1, s_c))
