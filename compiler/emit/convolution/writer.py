"""The writer that emitters of all plans share: operands, scratch memory and epilogue of the function of a kernel.

Input: the function, and the pointers that it is given. Output: addresses of elements and scratch areas, copies of
arrays from one order of axes to another, images brought into their frames.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from staticgrad.base.extents import at_most, highest, is_open, is_same
from staticgrad.compiler.emit.llvm import Function, Index, Value, is_number, memory_type
from staticgrad.compiler.emit.microkernel import Matrix, call_epilogue, copy_matrix, fill_zero, span
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.images import Image
from staticgrad.compiler.plans.convolution.plan import NO_SCRATCH, Scratch

Range = tuple[Index, Index]
Axis = tuple[Index, int, int]  # how many, and how far they lie apart in a copy and in its source
ONE: Axis = (1, 0, 0)


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
        """The element at ``Σ index·stride`` from ``base``."""
        total: Index = 0
        for index, stride in terms:
            total = self.f.add(total, self.f.mul(index, stride))
        return self.f.offset(base, total, self.element)

    def area(self, name: str, number: Index = 0) -> Value:
        """The address of the scratch area of this name, the worker's own if it is one of those; of an area with several
        parts the part with this ``number``."""
        return self.f.offset(self.scratch, place_area(self._areas, self.f, name, self._own, number), "i8")

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


def place_area(scratch: Scratch, f: Function, name: str, own: Index, number: Index) -> Index:
    """The offset of an area, or of one of its copies, in bytes; the worker's areas begin at ``own``."""
    for first, areas in ((0, scratch.shared), (own, scratch.own)):
        at = 0
        for area in areas:
            if area.name == name:
                return f.add(first, f.add(at, f.mul(number, area.nbytes)))
            at += area.nbytes * area.copies
    raise KeyError(f"no scratch area is called {name}")
