"""The transpose of a convolution by weights where several taps read each pixel of x: plane by plane, tap by tap.

Rows of tiles are channels (where there are few, channels and taps), columns are filters, terms are output pixels of a
block, blocks of the sum are images; a tile is added up for each tap. What is read of x are copies of its planes moved
by the taps (``planes``), of y the pixels of a panel of filters, packed as ``[panel][image][pixel][filter]``
(or y itself, where that is channels last and few channels read it). Sums lie as ``[panel][c][i][j][filter]``; when a
panel of channels is complete, they are transposed to the weights. So images may be in the layout of users, plane by
plane, or channels last: all that differs is how panels are made.

The work is a sequence of *segments*, some images or a block of rows of one, such that a panel of each operand stays in
the second cache; all taps of a tile read what was brought there. Where there is only one, a tile's sums never leave the
first cache. A kernel that takes long is cut in chunks: where the weights are few, runs of segments, whose partial sums
are added in their order; else the panels of filters that are packed, and then the panels of channels. So no sum depends
on the number of threads.
"""

from __future__ import annotations

import math

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import row_major_weights
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.planes import Planes, Segments, pixels_of, reads_planes
from staticgrad.compiler.plans.convolution.schedule import SegmentSums, SumChunks
from staticgrad.compiler.plans.tiles import (
    USUAL_ROWS,
    Tiling,
    aligned_bytes,
    choose_tiling,
    round_up,
    tile_lanes,
    tiling_cost,
)

SEGMENT_BYTES = 384 << 10  # of a panel of x and one of y, which stay in the second cache
Y_BYTES = 4 << 20  # of all panels of y
FEW_CHANNELS = 4  # for which y is not worth packing where its filters are next to each other


@frozen
class PlaneWeights(SegmentSums):
    """The plan of a kernel; sizes are elements unless said otherwise, of one group."""

    kernel: Convolution
    planes: Planes
    unfolded: bool  # rows of tiles are channels and taps
    tiling: Tiling
    y_in_place: bool
    segments: Segments
    sharing: SumChunks  # units are panels of channels of all groups
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> PlaneWeights | None:
        return plane_weights_plan(kernel, target) if reads_planes(kernel, target) else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Those of all tiles, with the packing of y."""
        pixels = pixels_of(kernel)
        packing = 0.0 if self.y_in_place else target.machine.packed_y * self.filters * pixels
        return kernel.groups * (self.taps * tiling_cost(self.tiling, pixels) + packing)

    @property
    def filters(self) -> int:
        return self.kernel.of_group[1]

    @property
    def taps(self) -> int:
        """Sums of a row of tiles."""
        return 1 if self.unfolded else math.prod(self.kernel.kernel)

    @property
    def y_panel(self) -> int:
        return self.segments.together * self.pixels * self.tiling.width

    @property
    def kept(self) -> bool:
        """True if the sums of all tiles are kept, because a tile is added to more than once."""
        return self.segments.number != 1 or self.unfolded

    def by_units(self) -> bool:
        return self.kept and not self.unfolded and not self.sharing.part

    @property
    def brought(self) -> int:
        """Panels of filters of all groups."""
        return 0 if self.y_in_place else self.kernel.groups * self.tiling.column_panels

    @property
    def way(self) -> str:
        segments = self.segments.text
        y = "y in place" if self.y_in_place else "y packed"
        return f"weights by planes: {self.tiling.text}; {segments}, {y}{self.sharing.text}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result."""
        return row_major_weights(kernel)


def plane_weights_plan(kernel: Convolution, target: Target) -> PlaneWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    (channels, filters), size = kernel.of_group, kernel.dtype.itemsize
    height, width, (kh, kw) = kernel.out_height, kernel.out_width, kernel.kernel
    unfolded = channels < USUAL_ROWS
    _, s_o, s_p, s_q = kernel.y_strides
    pixels_run = (s_o == 1 or kernel.filters == 1) and (s_p == width * s_q or height == 1)
    lanes = tile_lanes(target, kernel.dtype)
    y_in_place = pixels_run and (target.isa.predicated or filters % lanes == 0) and channels <= FEW_CHANNELS
    columns = filters if y_in_place else round_up(filters, lanes)
    m = channels * (kh * kw if unfolded else 1)
    tiling = choose_tiling(target, kernel.dtype, m, columns, height * width)

    each = 1 if unfolded else Planes.of(kernel, Segments(1, 1, 1, 1), False).each
    panels = (tiling.rows * each + (0 if y_in_place else tiling.width)) * size
    segments = Segments.of(
        kernel, min(target.sized(SEGMENT_BYTES) // panels, target.sized(Y_BYTES) // (kernel.filters * size))
    )
    number = segments.number
    planes = Planes.of(kernel, segments, unfolded)
    taps = 1 if unfolded else kh * kw
    all_sums = kernel.groups * tiling.column_panels * tiling.width * m * taps
    sharing = SumChunks.choose(kernel, target, number, kernel.groups * tiling.row_panels, all_sums * size)
    kept = number != 1 or unfolded
    weights = kernel.filters * channels * kh * kw
    padded = 0 if y_in_place else kernel.groups * tiling.column_panels * tiling.width  # filters
    x, y, raw = areas(
        kernel.dtype,
        planes=tiling.rows * each * planes.pitch,
        y=padded * segments.together * segments.rows * width,
        raw=0 if kernel.store_raw else weights,
    )
    sum_bytes = aligned_bytes(all_sums if kept else tiling.rows * taps * tiling.width, kernel.dtype)
    sums = Area("sums", sum_bytes, sharing.places)
    if sharing.part:
        scratch = Scratch((raw, sums), (x, y))
    else:
        scratch = Scratch((raw, y, sums), (x,)) if kept else Scratch((raw, y), (x, sums))
    return PlaneWeights(kernel, planes, unfolded, tiling, y_in_place, segments, sharing, scratch)
