"""Schedules of convolution kernels: loops over units of work, and sums over segments, alone or in chunks.

Input: a plan, which says how many units or segments there are and writes what one of them does. Output: the loops
around that, the functions of chunks with their scratch memory, and partial sums added in their order, so that no bit
of a result depends on the number of threads.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, seconds_of
from staticgrad.compiler.emit.convolution.plan import ConvolutionPlan, Range, Scratch
from staticgrad.compiler.emit.convolution.planes import Segment, Segments
from staticgrad.compiler.emit.convolution.unstage import UnitResult
from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import span
from staticgrad.compiler.emit.parallel import ChunkFunction, ChunkTable, chunk_range, divide, open_part, run_chunks
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, wanted_chunks

SUM_BYTES = 128 << 10  # of weights that a chunk adds up for itself, so that they stay in its caches
MOST_PARTS = 16  # sums that are added in the end


class Chunks:
    """A function that has chunks run, and the functions of the chunks. The table has ``words`` words."""

    def __init__(
        self,
        f: Function,
        kernel: Convolution,
        epilogue: str | None,
        pointers: Sequence[Value],
        pool: Value,
        scratch: Scratch,
        words: int = 0,
    ) -> None:
        self.f = f
        self.kernel = kernel
        self.epilogue = epilogue
        self.pool = pool
        self.scratch = scratch
        self.table = ChunkTable.fill(f, pointers, words)
        self.own = ConvolutionWriter(f, kernel, epilogue, pointers, scratch)

    def open(self, suffix: str) -> tuple[ChunkFunction, ConvolutionWriter]:
        part = open_part(self.f.module, f"{self.f.name}.{suffix}", len(self.table.pointers))
        pointers = part.table.pointers
        return part, ConvolutionWriter(part.f, self.kernel, self.epilogue, pointers, self.scratch, part.worker)

    def run(self, part: str, chunks: Index) -> None:
        run_chunks(self.f, self.pool, part, self.table, chunks)


def share_of(units: int, wanted: int) -> int | None:
    """The number of units in one of about ``wanted`` chunks of the greatest sizes; None where the work is not cut."""
    units = highest(units)
    return cut(units, wanted)[0] if wanted > 1 and units > 1 else None


@frozen
class Units:
    """The work in units: the blocks of ``rows`` rows of every image; ``share`` units are a chunk."""

    images: int
    rows: int
    total_rows: int
    share: int | None  # a number, of whatever sizes; None if the work is not cut

    @staticmethod
    def of(images: int, rows: int, total_rows: int, wanted: int) -> Units:
        """The units in about ``wanted`` chunks."""
        return Units(images, rows, total_rows, share_of(images * -(-total_rows // rows), wanted))

    @property
    def blocks(self) -> int:
        """Units of one image."""
        return -(-self.total_rows // self.rows)

    @property
    def count(self) -> int:
        return self.images * self.blocks

    def text(self, of: str = "rows") -> str:
        """The units, what each has several of, and how many are a chunk."""
        text = f"{self.count} units of {self.rows} {of}"
        return text if self.share is None else f"{text}, {self.share} a chunk"

    @property
    def chunks(self) -> int:
        return 1 if self.share is None else -(-self.count // self.share)

    @contextlib.contextmanager
    def each(self, f: Function, chunk: Value | None) -> Iterator[tuple[Index, Range]]:
        """The units of a chunk, or all: the image and its rows."""
        with self.numbers(f, chunk) as unit:
            yield self.at(f, unit)

    @contextlib.contextmanager
    def numbers(self, f: Function, chunk: Value | None) -> Iterator[Index]:
        """The numbers of the units of a chunk, or of all."""
        units = (0, self.count) if chunk is None else chunk_range(f, chunk, self.share or 1, self.count)
        with span(f, *units) as unit:
            yield unit

    def at(self, f: Function, unit: Index) -> tuple[Index, Range]:
        """The image and the rows of a unit."""
        number, block = divide(f, unit, self.blocks)
        low = f.mul(block, self.rows)
        return number, (low, f.min(f.add(low, self.rows), self.total_rows))


class ByUnits(ConvolutionPlan):
    """A plan that does its units one by one, in chunks where the kernel is worth it: what all units share is prepared
    first, then each chunk works in scratch memory of its worker, and the first thread completes the result."""

    __slots__ = ()
    units: Units
    result: UnitResult

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        return self.result.block

    def prepare(self, writer: ConvolutionWriter) -> None:
        """Write what comes before the units: nothing, unless a plan says otherwise."""
        return

    @abc.abstractmethod
    def work(self, writer: ConvolutionWriter, chunk: Value | None) -> None:
        """Write the units of a chunk, or all."""

    def prepare_shared(self, chunks: Chunks) -> None:
        """Write what comes before them where they are in chunks: threads may do a part of it."""
        self.prepare(chunks.own)

    def complete(self, writer: ConvolutionWriter) -> None:
        """Write what comes after them: nothing, unless a plan says otherwise."""
        return

    @property
    def is_shared(self) -> bool:
        return self.units.share is not None

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        if not self.is_shared:
            writer = ConvolutionWriter(f, kernel, epilogue, pointers, self.scratch)
            self.prepare(writer)
            self.work(writer, None)
            self.complete(writer)
            return
        chunks = Chunks(f, kernel, epilogue, pointers, pool, self.scratch)
        self.prepare_shared(chunks)
        part, writer = chunks.open("units")
        self.work(writer, part.chunk)
        chunks.run(part.f.finish(), self.units.chunks)
        self.complete(chunks.own)


# -- sums over segments ---------------------------------------------------------------------------------------------


@frozen
class SumChunks:
    """The chunks of a sum over segments: ``share`` of the ``units`` that the result consists of, one segment after the
    other; or a run of ``part`` segments, whose partial sums are added in their order. So no sum depends on the number
    of threads."""

    segments: int
    units: int
    share: int | None = None  # None where units are no chunks
    part: int = 0  # 0 where no chunk has sums of its own

    @staticmethod
    def choose(kernel: Convolution, target: Target, segments: int, units: int, sum_bytes: int) -> SumChunks:
        """Chunks with sums of their own where these stay in a core's cache, else the units of a segment."""
        part = SumChunks.part_of(kernel, target, segments, sum_bytes)
        wanted = wanted_chunks(seconds_of(kernel, target) / highest(segments), target)
        return SumChunks(segments, units, None if part else share_of(units, wanted), part)

    @staticmethod
    def part_of(kernel: Convolution, target: Target, segments: int, sum_bytes: int, fewest: int = 1) -> int:
        """The number of segments of a chunk with sums of its own, ``fewest`` or about that number; 0 where the sums do
        not stay in a core's cache, or one chunk is all. Threads then share no line of memory but at the end."""
        segments = highest(segments)
        wanted = min(MOST_PARTS, wanted_chunks(seconds_of(kernel, target), target), segments // fewest)
        small = kernel.dtype.kind == "f" and sum_bytes <= target.sized(SUM_BYTES)
        return cut(segments, wanted)[0] if small and wanted > 1 else 0

    @property
    def parts(self) -> int:
        """The number of partial sums, which are added in the end."""
        return -(-self.segments // self.part) if self.part else 0

    @property
    def places(self) -> int:
        """The number of sums that there is memory for: that of the greatest sizes, one at least."""
        return max(1, highest(self.parts))

    @property
    def text(self) -> str:
        """The text of the chunks, behind a semicolon; "" where there are none."""
        if self.part:
            return f"; chunks of {self.part} with sums of their own"
        return f"; chunks of {self.share}" if self.share is not None else ""


class SumPlan(ConvolutionPlan):
    """A plan that adds up a result over segments: alone, in chunks of a segment's units, or in runs of segments that
    each have a copy of the scratch area ``sums``."""

    __slots__ = ()
    sharing: SumChunks

    @abc.abstractmethod
    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        """Write what some segments add to ``sums``, which begin with them; ``unit`` is the first of the chunk's."""

    @abc.abstractmethod
    def finish(self, writer: ConvolutionWriter, sums: Value) -> None:
        """Write what brings complete sums into their place, and the call of the epilogue."""

    def sums(self, writer: ConvolutionWriter) -> Value:
        """The address of all sums, where no chunk has sums of its own."""
        return writer.area("sums")

    def emit_alone(self, writer: ConvolutionWriter) -> None:
        """Write all of it for one thread."""
        sums = self.sums(writer)
        self.add(writer, sums, (0, self.sharing.segments), 0)
        self.finish(writer, sums)

    def emit_units(self, chunks: Chunks, share: int) -> None:
        """Write it segment after segment, in chunks of ``share`` units."""
        raise NotImplementedError

    @property
    def words(self) -> int:
        """The number of words of the table that chunks of units read."""
        return 0

    @property
    def is_shared(self) -> bool:
        return self.sharing.part > 0 or self.sharing.share is not None

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        if self.sharing.part:
            self._emit_parts(Chunks(f, kernel, epilogue, pointers, pool, self.scratch))
        elif self.sharing.share is not None:
            chunks = Chunks(f, kernel, epilogue, pointers, pool, self.scratch, self.words)
            self.emit_units(chunks, self.sharing.share)
        else:
            self.emit_alone(ConvolutionWriter(f, kernel, epilogue, pointers, self.scratch))

    @property
    def apart(self) -> int:
        """The number of units that each have runs of segments of their own."""
        return 1

    def _emit_parts(self, chunks: Chunks) -> None:
        """Some segments are a chunk, with sums of its own; these are added in their order."""
        part, writer = chunks.open("segments")
        f, cuts = part.f, self.sharing
        unit, number = (0, part.chunk) if self.apart == 1 else divide(f, part.chunk, cuts.parts)
        segments = chunk_range(f, f.index(number), cuts.part, cuts.segments)
        self.add(writer, writer.area("sums", number), segments, unit)
        chunks.run(f.finish(), self.apart * cuts.parts)
        self.finish(chunks.own, add_up(chunks.own, "sums", cuts.parts))


class SegmentSums(SumPlan):
    """A plan that adds up segment after segment: what all units of one read is brought, then each adds to its sums."""

    __slots__ = ()
    kernel: Convolution
    segments: Segments

    @abc.abstractmethod
    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        """Write what a segment adds to some units; their sums begin where ``later`` is 0."""

    @abc.abstractmethod
    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        """Write what brings the complete sums of some units into their place, with calls of the epilogue."""

    def by_units(self) -> bool:
        """True if chunks of units finish these after the last segment."""
        return True

    @property
    def brought(self) -> int:
        """The number of pieces that are brought for all units of a segment."""
        return 0

    def bring(self, writer: ConvolutionWriter, segment: Segment, pieces: Range) -> None:
        """Write what brings some of these pieces."""

    @property
    def pixels(self) -> int:
        """Pixels of a whole segment that an image has."""
        return self.segments.rows * self.kernel.out_width

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        with span(writer.f, *segments) as number:
            segment = self.segments.at(writer.f, number)
            if self.brought:
                self.bring(writer, segment, (0, self.brought))
            later = writer.f.sub(number, segments[0])
            self.add_segment(writer, sums, segment, later, (0, self.sharing.units))

    @property
    def words(self) -> int:
        """One: the segment's number."""
        return 1

    def emit_units(self, chunks: Chunks, share: int) -> None:
        bring = self._bring_part(chunks) if self.brought else None
        part, writer = chunks.open("panels")
        f, number, sums = part.f, part.table.word(0), self.sums(writer)
        units = chunk_range(f, part.chunk, share, self.sharing.units)
        self.add_segment(writer, sums, self.segments.at(f, number), number, units)
        if self.by_units():
            with f.when(f.compare("icmp eq", number, f.index(self.sharing.segments - 1))):
                self.finish_units(writer, sums, units)
        add = f.finish()
        with span(chunks.f, 0, self.sharing.segments) as segment:
            chunks.table.set_word(0, segment)
            if bring is not None:
                chunks.run(bring, self.brought)
            chunks.run(add, -(-self.sharing.units // share))
        if not self.by_units():
            self.finish(chunks.own, self.sums(chunks.own))

    def _bring_part(self, chunks: Chunks) -> str:
        """A chunk: one of the pieces that all units of a segment read."""
        part, writer = chunks.open("pack")
        segment = self.segments.at(part.f, part.table.word(0))
        self.bring(writer, segment, (part.chunk, part.f.add(part.chunk, 1)))
        return part.f.finish()


def add_up(writer: ConvolutionWriter, name: str, count: int) -> Value:
    """Add the copies of a scratch area of floats to the first of them, in their order; where that is."""
    f, first = writer.f, writer.area(name)
    with span(f, 1, count) as number:
        _add_array(writer, first, writer.area(name, number), writer.bytes_of(name) // writer.dtype.itemsize)
    return first


def _add_array(writer: ConvolutionWriter, to: Value, source: Value, count: int) -> None:
    """``to[k] += source[k]``."""
    f = writer.f
    for part in vector_parts(f, writer.dtype, count, masked=False):
        with part.turns() as (loop, some):
            at = f.offset(to, loop.index, writer.element)
            value = some.load(f, f.offset(source, loop.index, writer.element))
            some.store(f, f.binary("fadd", some.load(f, at), value), at)
