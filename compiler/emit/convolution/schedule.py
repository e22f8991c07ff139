"""Schedules of convolution kernels: loops over units of work, and sums over segments, alone or in chunks.

Input: a plan, and the emitter of its class, which writes one unit or segment. Output: the loops around that, the
functions of chunks with their scratch memory, and partial sums added in their order.

Which loops are data and which are code: those over units and chunks are values of the plan (``ByUnits``,
``SumChunks``), copies are lists of axes (``ConvolutionWriter.rearrange``), tiles are values. The loops between, four to
eleven in each emitter, are code, because they are no nests with bounds known beforehand: which taps a row reaches hangs
on the row, prefetches of the next block stand between the tiles of this one, and an address that one loop has moved
goes on in the next. As values they would need expressions of each other's indices, whose writer would be longer than
what it replaced.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from staticgrad.compiler.emit.convolution.planes import Segment, segment_at
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import span
from staticgrad.compiler.emit.parallel import ChunkFunction, ChunkTable, chunk_range, divide, open_part, run_chunks
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan, Scratch
from staticgrad.compiler.plans.convolution.schedule import ByUnits, SegmentSums, SumPlan, Units


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


P = TypeVar("P", bound=ConvolutionPlan)
U = TypeVar("U", bound=ByUnits)
S = TypeVar("S", bound=SumPlan)
G = TypeVar("G", bound=SegmentSums)


class PlanEmitter(abc.ABC, Generic[P]):
    """The base of what writes the functions of kernels, a class for each class of plans."""

    def __init__(self, plan: P) -> None:
        self.plan = plan

    @abc.abstractmethod
    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        """Write the body of the function."""


@contextlib.contextmanager
def each_unit(units: Units, f: Function, chunk: Value | None) -> Iterator[tuple[Index, Range]]:
    """The units of a chunk, or all: the image and its rows."""
    with unit_numbers(units, f, chunk) as unit:
        yield unit_at(units, f, unit)


@contextlib.contextmanager
def unit_numbers(units: Units, f: Function, chunk: Value | None) -> Iterator[Index]:
    """The numbers of the units of a chunk, or of all."""
    numbers = (0, units.count) if chunk is None else chunk_range(f, chunk, units.share or 1, units.count)
    with span(f, *numbers) as unit:
        yield unit


def unit_at(units: Units, f: Function, unit: Index) -> tuple[Index, Range]:
    """The image and the rows of a unit."""
    number, block = divide(f, unit, units.blocks)
    low = f.mul(block, units.rows)
    return number, (low, f.min(f.add(low, units.rows), units.total_rows))


class UnitsEmitter(PlanEmitter[U]):
    """Writes a plan that does its units one by one: what comes before them, the units, and what comes after them."""

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

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        if not self.plan.is_shared:
            writer = ConvolutionWriter(f, kernel, epilogue, pointers, self.plan.scratch)
            self.prepare(writer)
            self.work(writer, None)
            self.complete(writer)
            return
        chunks = Chunks(f, kernel, epilogue, pointers, pool, self.plan.scratch)
        self.prepare_shared(chunks)
        part, writer = chunks.open("units")
        self.work(writer, part.chunk)
        chunks.run(part.f.finish(), self.plan.units.chunks)
        self.complete(chunks.own)


class PackingEmitter(UnitsEmitter[U]):
    """Writes a plan that is given its weights packed, or packs them itself."""

    @abc.abstractmethod
    def pack(self, f: Function, kernel: Convolution, weights: Value, packed: Value) -> None:
        """Write the packing of weights, into memory of ``weight_bytes``."""


class SumEmitter(PlanEmitter[S]):
    """Writes a plan that adds up a result over segments: what some of these add, and what finishes the sums."""

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
        self.add(writer, sums, (0, self.plan.sharing.segments), 0)
        self.finish(writer, sums)

    def emit_units(self, chunks: Chunks, share: int) -> None:
        """Write it segment after segment, in chunks of ``share`` units."""
        raise NotImplementedError

    @property
    def words(self) -> int:
        """The number of words of the table that chunks of units read."""
        return 0

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        if self.plan.sharing.part:
            self._emit_parts(Chunks(f, kernel, epilogue, pointers, pool, self.plan.scratch))
        elif self.plan.sharing.share is not None:
            chunks = Chunks(f, kernel, epilogue, pointers, pool, self.plan.scratch, self.words)
            self.emit_units(chunks, self.plan.sharing.share)
        else:
            self.emit_alone(ConvolutionWriter(f, kernel, epilogue, pointers, self.plan.scratch))

    @property
    def apart(self) -> int:
        """The number of units that each have runs of segments of their own."""
        return 1

    def _emit_parts(self, chunks: Chunks) -> None:
        """Some segments are a chunk, with sums of its own; these are added in their order."""
        part, writer = chunks.open("segments")
        f, cuts = part.f, self.plan.sharing
        unit, number = (0, part.chunk) if self.apart == 1 else divide(f, part.chunk, cuts.parts)
        segments = chunk_range(f, f.index(number), cuts.part, cuts.segments)
        self.add(writer, writer.area("sums", number), segments, unit)
        chunks.run(f.finish(), self.apart * cuts.parts)
        self.finish(chunks.own, add_up(chunks.own, "sums", cuts.parts))


class SegmentsEmitter(SumEmitter[G]):
    """Writes a plan that adds up segment after segment."""

    @abc.abstractmethod
    def add_segment(self, writer: ConvolutionWriter, sums: Value, segment: Segment, later: Index, units: Range) -> None:
        """Write what a segment adds to some units; their sums begin where ``later`` is 0."""

    @abc.abstractmethod
    def finish_units(self, writer: ConvolutionWriter, sums: Value, units: Range) -> None:
        """Write what brings the complete sums of some units into their place, with calls of the epilogue."""

    def bring(self, writer: ConvolutionWriter, segment: Segment, pieces: Range) -> None:
        """Write what brings some of these pieces."""

    def add(self, writer: ConvolutionWriter, sums: Value, segments: Range, unit: Index) -> None:
        with span(writer.f, *segments) as number:
            segment = segment_at(self.plan.segments, writer.f, number)
            if self.plan.brought:
                self.bring(writer, segment, (0, self.plan.brought))
            later = writer.f.sub(number, segments[0])
            self.add_segment(writer, sums, segment, later, (0, self.plan.sharing.units))

    @property
    def words(self) -> int:
        """One: the segment's number."""
        return 1

    def emit_units(self, chunks: Chunks, share: int) -> None:
        plan = self.plan
        bring = self._bring_part(chunks) if plan.brought else None
        part, writer = chunks.open("panels")
        f, number, sums = part.f, part.table.word(0), self.sums(writer)
        units = chunk_range(f, part.chunk, share, plan.sharing.units)
        self.add_segment(writer, sums, segment_at(plan.segments, f, number), number, units)
        if plan.by_units():
            with f.when(f.compare("icmp eq", number, f.index(plan.sharing.segments - 1))):
                self.finish_units(writer, sums, units)
        add = f.finish()
        with span(chunks.f, 0, plan.sharing.segments) as segment:
            chunks.table.set_word(0, segment)
            if bring is not None:
                chunks.run(bring, plan.brought)
            chunks.run(add, -(-plan.sharing.units // share))
        if not plan.by_units():
            self.finish(chunks.own, self.sums(chunks.own))

    def _bring_part(self, chunks: Chunks) -> str:
        """A chunk: one of the pieces that all units of a segment read."""
        part, writer = chunks.open("pack")
        segment = segment_at(self.plan.segments, part.f, part.table.word(0))
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
