"""The transpose of a convolution by weights where a group has few channels or filters: lanes are pixels.

Tiles of few filters or channels would leave most lanes idle, or take longer to pack than to multiply. Here rows of
tiles are planes of y, read in place, columns are planes of x moved by a tap (``planes``), and terms are
pixels, which the lanes take by turns (``dot_tile``). The vectors of sums are kept in scratch memory, ``[panel
of filters][tap][filter][channel][lane]``, and their lanes are added when all images are done.

The work is a sequence of *segments*, some images or a block of rows of one, such that the planes of a panel of channels
and some filters stay in the first cache. A chunk is a panel of channels of one group with all segments; where there are
few of these panels, a run of segments, with partial sums of its own that are added in their order. So no sum depends on
the number of threads.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import highest, largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import cut, wanted_chunks
from staticgrad.compiler.plans.convolution.costs import seconds_of
from staticgrad.compiler.plans.convolution.images import row_major_weights
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.planes import Planes, Segments, has_y_by_planes, pixels_of, reads_planes
from staticgrad.compiler.plans.convolution.schedule import SumChunks, SumPlan, share_of
from staticgrad.compiler.plans.tiles import aligned_bytes, tile_lanes

TILE_BYTES = 36 << 10  # of the planes of a tile in a segment, which stay in the first cache
ENOUGH_UNITS = 8  # panels of channels, so that threads have work of their own
MOST_PARTS = 8  # sums that are added in the end


@frozen
class Panels:
    """``count`` in ``number`` panels of ``size``, or one less from number ``tall`` on."""

    count: int
    size: int

    @staticmethod
    def of(count: int, most: int) -> Panels:
        return Panels(count, -(-count // -(-count // most)))

    @property
    def number(self) -> int:
        return -(-self.count // self.size)

    @property
    def tall(self) -> int:
        return self.count - self.number * (self.size - 1)

    def kinds(self) -> tuple[tuple[int, int], ...]:
        """The sizes that occur, and how often."""
        found = ((self.size, self.tall), (self.size - 1, self.number - self.tall))
        return tuple(kind for kind in found if kind[1])


@frozen
class DotWeights(SumPlan):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    kernel: Convolution
    planes: Planes
    segments: Segments
    lanes: int
    channels: Panels  # of a group
    filters: Panels
    sharing: SumChunks  # units are panels of channels of all groups, with all segments, or each with runs of them
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> DotWeights | None:
        suits = kernel.dtype.kind == "f" and reads_planes(kernel, target) and has_y_by_planes(largest(kernel))
        return dot_weights_plan(kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Those of all tiles: multiply-adds, two a cycle with a latency of four, or loads, two a cycle, half of which
        meet two lines; and for each segment the sums, which are read and written."""
        pixels = self.segments.rows * kernel.out_width
        steps = -(-pixels // self.lanes) / pixels
        cycles = 0.0
        for columns, panels in self.channels.kinds():
            for rows, more in self.filters.kinds():
                step = max(rows * columns / 2, 4.0, 0.75 * (rows + columns))
                sums = (1.5 * rows * columns + 20) / (pixels * self.segments.together)
                cycles += panels * more * (step * steps + sums)
        return kernel.groups * pixels_of(kernel) * cycles * kernel.kernel[0] * kernel.kernel[1]

    @property
    def tile(self) -> int:
        """The sums of the largest tile, lane by lane."""
        return self.filters.size * self.channels.size * self.lanes

    @property
    def way(self) -> str:
        tile = f"tiles {self.filters.size}x{self.channels.size}"
        segments = self.segments.text
        segments += ", the next prefetched" * (self.segments.together == 1)
        return f"weights by dot products of planes: {tile}; {segments}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return row_major_weights(kernel)


def dot_weights_plan(kernel: Convolution, target: Target) -> DotWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    lanes, size, taps = tile_lanes(target, kernel.dtype), kernel.dtype.itemsize, kernel.kernel[0] * kernel.kernel[1]
    channels, filters = _panels(kernel, target)
    each = Planes.of(kernel, Segments(1, 1, 1, 1), False).each
    segments = Segments.of(kernel, target.sized(TILE_BYTES) // size // (channels.size * each + filters.size))
    planes = Planes.of(kernel, segments, False)
    units = kernel.groups * channels.number
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    number = highest(segments.number)
    parts = min(MOST_PARTS, wanted, number) if units < ENOUGH_UNITS else 1
    part = cut(number, -(-parts // 2), parts)[0] if parts > 1 else 0
    sharing = SumChunks(segments.number, units, None if part else share_of(units, wanted), part)
    sum_bytes = aligned_bytes(kernel.filters * kernel.channels // kernel.groups * taps, kernel.dtype)
    vectors = filters.number * filters.size * channels.size * taps * lanes  # sums of a panel, lane by lane
    scratch = Scratch(
        (
            Area("sums", sum_bytes, highest(sharing.parts)),
            Area("raw", 0 if sharing.part or kernel.store_raw else sum_bytes),
        ),
        areas(kernel.dtype, planes=channels.size * each * planes.pitch, vectors=vectors),
    )
    return DotWeights(kernel, planes, segments, lanes, channels, filters, sharing, scratch)


def _panels(kernel: Convolution, target: Target) -> tuple[Panels, Panels]:
    """Channels and filters of a group in panels that fit the registers of a tile."""
    registers, temporaries = target.isa.registers, 2 if target.isa.fma else 3
    # With the same number of filters, and the sums of all pairs.
    most = max(1, (math.isqrt(4 * (registers - temporaries) + 1) - 1) // 2)
    channels = Panels.of(kernel.of_group[0], most)
    most = min(8, (registers - temporaries - channels.size) // channels.size)
    return channels, Panels.of(kernel.of_group[1], most)
