"""What convolution kernels of all directions share: framed images, weights as strides, the function being written.

In: an image tensor in any order of axes. Out: the form that tiles read, channels last as ``[group][row][column]
[channel]``, framed with zeros; each image is copied there when it is needed, or read in place where it already has that
form and needs no frame.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from staticgrad.compiler.emit.convolution.plan import ConvolutionPlan
from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, memory_type
from staticgrad.compiler.emit.microkernel import Matrix, call_epilogue, copy_matrix, fill_zero, span, tile_lanes
from staticgrad.compiler.emit.parallel import ChunkFunction, ChunkTable, chunk_range, divide, open_part, run_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

ALIAS = 2048  # pixels a multiple of this many bytes apart share few sets of the first cache


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
    pad_pixel: bool  # keep pixels apart from equal sets of the cache

    @property
    def in_place(self) -> bool:
        inside = self.height <= self.size[0] and self.width <= self.size[1]
        plain = inside and self.offset == (0, 0) and self.groups == 1
        return plain and (self.strides[1] == 1 or self.channels == 1)

    @property
    def pixel(self) -> int:
        """Elements from one pixel to the next in a row."""
        if self.in_place:
            return self.strides[3]
        return self.channels + (64 // self.dtype.itemsize if self.pad_pixel else 0)

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

    def inside(self, axis: int) -> tuple[int, int]:
        """The range of source pixels along ``axis`` that fall into the frame."""
        offset, frame = self.offset[axis], (self.height, self.width)[axis]
        low = max(0, -offset)
        return low, max(low, min(self.size[axis], frame - offset))

    def covered(self) -> bool:
        """Whether the copy writes every element of the frame."""
        (h0, h1), (w0, w1) = self.inside(0), self.inside(1)
        whole = h1 - h0 == self.height and w1 - w0 == self.width
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


def is_depthwise(kernel: Convolution) -> bool:
    """One channel and one filter a group: there is nothing to sum over but taps."""
    return kernel.groups > 1 and kernel.groups == kernel.channels == kernel.filters and kernel.dtype.kind == "f"


def x_image(kernel: Convolution) -> Image:
    """x, framed by its padding."""
    height, width = (
        (size - 1) * kernel.stride[i] + (kernel.kernel[i] - 1) * kernel.dilation[i] + 1
        for i, size in enumerate((kernel.out_height, kernel.out_width))
    )
    groups = 1 if is_depthwise(kernel) else kernel.groups
    channels = kernel.channels // groups
    aliased = channels * kernel.stride[1] * kernel.dtype.itemsize % ALIAS == 0
    return Image(kernel.dtype, groups, channels, (kernel.height, kernel.width), kernel.x_strides,
                  kernel.padding, height, width, aliased)  # fmt: skip


def is_run(image: Image, taps: int, dilation: int) -> bool:
    return taps == 1 or (dilation == 1 and image.pixel == image.channels)


def seconds_of(kernel: Convolution, target: Target) -> float:
    """About how long the kernel takes on one core."""
    products = kernel.batch * kernel.filters * kernel.out_height * kernel.out_width
    terms = kernel.channels // kernel.groups * kernel.kernel[0] * kernel.kernel[1]
    rate = target.machine.convolution_flops_per_lane * tile_lanes(target, kernel.dtype)
    return 2 * products * terms / (rate / 4 if is_depthwise(kernel) or kernel.dtype.kind != "f" else rate)


class ConvolutionWriter:
    """The function under construction and what all directions share."""

    def __init__(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: Sequence[Value]) -> None:
        self.f = f
        self.kernel = kernel
        self.dtype = kernel.dtype
        self.element = memory_type(kernel.dtype)
        self.epilogue = epilogue
        self.first, self.second = pointers[:2]
        self.result = pointers[2] if kernel.store_raw else None
        self.extra = pointers[3 if kernel.store_raw else 2 : -1]
        self.scratch = pointers[-1]

    @property
    def result_pointer(self) -> Value:
        """The result, of a kernel that stores it."""
        if self.result is None:
            raise ValueError("this kernel does not store its raw result")
        return self.result

    def at(self, base: Value, *terms: tuple[Index, Index]) -> Value:
        """The element at ``Σ index·stride`` behind ``base``."""
        total: Index = 0
        for index, stride in terms:
            total = self.f.add(total, self.f.mul(index, stride))
        return self.f.offset(base, total, self.element)

    def area(self, offset: Index) -> Value:
        """The scratch area that starts ``offset`` bytes in."""
        return self.f.offset(self.scratch, offset, "i8")

    def copy(
        self, to: Matrix, source: Matrix, rows: Index, columns: Index, least: int = 0, along_source: bool = True
    ) -> None:
        copy_matrix(self.f, self.dtype, to, source, rows, columns, least, along_source)

    def finish(self, raw: Value, ranges: list[tuple[Index, Index]]) -> None:
        if self.epilogue is not None:
            call_epilogue(self.f, self.epilogue, [raw, *self.extra], ranges)

    def clear_frame(self, image: Image, to: Value, count: int = 1) -> None:
        """Zero ``count`` frames once: every image overwrites the same pixels of its frame."""
        if not image.in_place and not image.covered():
            fill_zero(self.f, self.dtype, to, count * image.elements)

    def frame(self, image: Image, source: Value, number: Index, to: Value) -> Value:
        """Bring image ``number`` into its framed form; returns where that is."""
        base = self.at(source, (number, image.strides[0]))
        if image.in_place:
            return base
        (h0, h1), (w0, w1) = image.inside(0), image.inside(1)
        if h0 >= h1 or w0 >= w1 or image.channels == 0:
            return to
        _, s_c, s_h, s_w = image.strides
        rows, columns = w1 - w0, image.channels
        with span(self.f, 0, image.groups) as group, span(self.f, h0, h1) as h:
            row, start = self.f.add(h, image.offset[0]), (w0 + image.offset[1]) * image.pixel
            at = self.f.offset(self.at(to, (group, image.group), (row, image.row)), start, self.element)
            origin = self.at(base, (group, image.channels * s_c), (h, s_h), (w0, s_w))
            if s_c == 1 and s_w == columns == image.pixel:  # pixels are adjacent on both sides: one run
                self.copy(Matrix(at, 0, 1), Matrix(origin, 0, 1), 1, rows * columns)
            else:
                self.copy(Matrix(at, image.pixel, 1), Matrix(origin, s_w, s_c), rows, columns)
        return to


class Chunks:
    """A function that has chunks run, and the functions of the chunks. The table has ``words`` words."""

    def __init__(
        self,
        f: Function,
        kernel: Convolution,
        epilogue: str | None,
        pointers: Sequence[Value],
        pool: Value,
        words: int,
    ) -> None:
        self.f = f
        self.kernel = kernel
        self.epilogue = epilogue
        self.pool = pool
        self.table = ChunkTable.fill(f, pointers, words)
        self.own = ConvolutionWriter(f, kernel, epilogue, pointers)

    def open(self, suffix: str) -> tuple[ChunkFunction, ConvolutionWriter]:
        part = open_part(self.f.module, f"{self.f.name}.{suffix}", len(self.table.pointers))
        return part, ConvolutionWriter(part.f, self.kernel, self.epilogue, part.table.pointers)

    def run(self, part: str, chunks: Index) -> None:
        run_chunks(self.f, self.pool, part, self.table, chunks)


@frozen
class Units:
    """The work in units: the blocks of ``rows`` rows of every image; ``share`` units are a chunk."""

    images: int
    rows: int
    total_rows: int
    share: int | None  # None if the work is not cut

    @property
    def blocks(self) -> int:
        """Units of one image."""
        return -(-self.total_rows // self.rows)

    @property
    def count(self) -> int:
        return self.images * self.blocks

    @property
    def chunks(self) -> int:
        return 1 if self.share is None else -(-self.count // self.share)

    @contextlib.contextmanager
    def each(self, f: Function, chunk: Value | None) -> Iterator[tuple[Index, tuple[Index, Index]]]:
        """The units of a chunk, or all: the image and its rows."""
        with self.numbers(f, chunk) as unit:
            yield self.at(f, unit)

    @contextlib.contextmanager
    def numbers(self, f: Function, chunk: Value | None) -> Iterator[Index]:
        """The numbers of the units of a chunk, or of all."""
        units = (0, self.count) if chunk is None else chunk_range(f, chunk, self.share or 1, self.count)
        with span(f, *units) as unit:
            yield unit

    def at(self, f: Function, unit: Index) -> tuple[Index, tuple[Index, Index]]:
        """The image and the rows of a unit."""
        number, block = divide(f, unit, self.blocks)
        low = f.mul(block, self.rows)
        return number, (low, f.min(f.add(low, self.rows), self.total_rows))


class ByUnits(ConvolutionPlan):
    """A plan that does its units one by one, in chunks where the kernel is worth it: what all units share is prepared
    first, then each chunk works in scratch memory of its worker, and the first thread completes the result."""

    __slots__ = ()
    units: Units

    @abc.abstractmethod
    def prepare(self, writer: ConvolutionWriter) -> None:
        """Write what comes before the units."""

    @abc.abstractmethod
    def work(self, writer: ConvolutionWriter, chunk: Value | None, own: Index) -> None:
        """Write the units of a chunk, or all; the worker's scratch memory begins at byte ``own``."""

    def prepare_shared(self, chunks: Chunks) -> None:
        """Write what comes before them where they are in chunks: threads may do a part of it."""
        self.prepare(chunks.own)

    def complete(self, writer: ConvolutionWriter) -> None:
        """Write what comes after them: nothing, unless a plan says otherwise."""
        return

    def units_text(self, of: str = "rows") -> str:
        """The units, what each has several of, and how many are a chunk."""
        units = self.units
        text = f"{units.count} units of {units.rows} {of}"
        return text if units.share is None else f"{text}, {units.share} a chunk"

    @property
    def is_shared(self) -> bool:
        return self.units.share is not None

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        if not self.is_shared:
            writer = ConvolutionWriter(f, kernel, epilogue, pointers)
            self.prepare(writer)
            self.work(writer, None, self.shared_bytes)
            self.complete(writer)
            return
        chunks = Chunks(f, kernel, epilogue, pointers, pool, 0)
        self.prepare_shared(chunks)
        part, writer = chunks.open("units")
        self.work(writer, part.chunk, part.f.add(self.shared_bytes, part.f.mul(part.worker, self.own_bytes)))
        chunks.run(part.f.finish(), self.units.chunks)
        self.complete(chunks.own)


def add_up(writer: ConvolutionWriter, at: int, nbytes: int, count: int, arrays: int) -> Value:
    """Add arrays of ``count`` floats in scratch memory, ``nbytes`` apart, to the first of them, in their order; that
    lies at byte ``at``."""
    f, first = writer.f, writer.area(at)
    with span(f, 1, arrays) as number:
        _add_array(writer, first, writer.area(f.add(at, f.mul(number, nbytes))), count)
    return first


def _add_array(writer: ConvolutionWriter, to: Value, source: Value, count: int) -> None:
    """``to[k] += source[k]``."""
    f = writer.f
    for part in vector_parts(f, writer.dtype, count, masked=False):
        with part.turns() as (loop, some):
            at = f.offset(to, loop.index, writer.element)
            value = some.load(f, f.offset(source, loop.index, writer.element))
            some.store(f, f.binary("fadd", some.load(f, at), value), at)
