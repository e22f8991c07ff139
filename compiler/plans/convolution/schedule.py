"""Schedules of convolution kernels as values: units of work, and sums over segments, alone or in chunks.

How work is cut depends on the sizes and the target alone, and partial sums are added in their order, so that no bit of
a result depends on the number of threads.
"""

from __future__ import annotations

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, wanted_chunks
from staticgrad.compiler.plans.convolution.costs import seconds_of
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan, Scratch
from staticgrad.compiler.plans.convolution.planes import Segments
from staticgrad.compiler.plans.convolution.unstage import UnitResult

SUM_BYTES = 128 << 10  # of weights that a chunk adds up for itself, so that they stay in its caches
MOST_PARTS = 16  # sums that are added in the end


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


class ByUnits(ConvolutionPlan):
    """A plan that does its units one by one, in chunks where the kernel is worth it: what all units share is prepared
    first, then each chunk works in scratch memory of its worker, and the first thread completes the result."""

    __slots__ = ()
    units: Units
    result: UnitResult

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        return self.result.block

    @property
    def is_shared(self) -> bool:
        return self.units.share is not None


class PackingPlan(ByUnits):
    """A plan whose kernel packs its weights before the units, or is given them packed."""

    __slots__ = ()
    packed: Scratch  # packed weights, with the buffer through which they are packed

    @property
    def packs(self) -> bool:
        """The kernel itself packs its weights."""
        return self.scratch.shared != ()

    @property
    def weight_bytes(self) -> int:
        """The bytes of memory in which weights are packed beforehand."""
        return self.packed.shared_bytes


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
        return cut(segments, -(-wanted // 2), wanted)[0] if small and wanted > 1 else 0

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
        """The text of the chunks, after a semicolon; "" where there are none."""
        if self.part:
            return f"; chunks of {self.part} with sums of their own"
        return f"; chunks of {self.share}" if self.share is not None else ""


class SumPlan(ConvolutionPlan):
    """A plan that adds up a result over segments: alone, in chunks of a segment's units, or in runs of segments that
    each have a copy of the scratch area ``sums``."""

    __slots__ = ()
    sharing: SumChunks

    @property
    def is_shared(self) -> bool:
        return self.sharing.part > 0 or self.sharing.share is not None


class SegmentSums(SumPlan):
    """A plan that adds up segment after segment: what all units of one read is brought, then each adds to its sums."""

    __slots__ = ()
    kernel: Convolution
    segments: Segments

    def by_units(self) -> bool:
        """True if chunks of units finish these after the last segment."""
        return True

    @property
    def brought(self) -> int:
        """The number of pieces that are brought for all units of a segment."""
        return 0

    @property
    def pixels(self) -> int:
        """Pixels of a whole segment that an image has."""
        return self.segments.rows * self.kernel.out_width
