"""Depthwise convolutions, all three directions: one channel and one filter a group, nothing to sum over but taps.

Images are read where they lie if their channels are contiguous, and copied channels last if not; none is framed, as
``row_tile`` leaves out the taps that lie outside. A row of the result is cut in tiles of a few pixels; for each
filter rows that lie outside are left out too. Weights are packed as ``[phase][i][j][channel]``.

By weights every chunk of the work (some rows of some images) adds up weights of its own, and these are added in their
order: how many chunks there are depends on the sizes alone, so no sum depends on the number of threads.
"""

from __future__ import annotations

import itertools

from staticgrad.base.extents import highest, largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import multiply_add_cycles, seconds_of
from staticgrad.compiler.plans.convolution.depthwise_planes import is_planes
from staticgrad.compiler.plans.convolution.images import Image, WeightStrides, has_open_images, is_depthwise, kind_of
from staticgrad.compiler.plans.convolution.plan import Area, Scratch, areas
from staticgrad.compiler.plans.convolution.row_tile import RowTile, most_pixels, vectors_at_once
from staticgrad.compiler.plans.convolution.schedule import ByUnits, SumChunks, SumPlan, Units
from staticgrad.compiler.plans.convolution.taps import Taps, forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import aligned_bytes, round_up, tile_lanes

TURNED = 0.1  # cycles a byte of images whose channels are not contiguous
ROW_BLOCK_BYTES = 64 << 10  # of the result between two epilogues, or of a unit of work
CHUNK_PIXELS = 256  # by weights at least: each chunk clears weights of its own, which are added in the end
WEIGHT_BYTES = 12 << 10  # of the weights of a block of channels, which stay in the first cache


@frozen
class TileRun:
    """``count`` tiles of one kind beside each other, from pixel ``start`` of a phase on."""

    start: int
    count: int
    tile: RowTile


@frozen
class DepthwisePhase:
    """The tiles, taps and weights of the pixels of a result with one remainder along each axis."""

    image: Image  # as the taps count its pixels
    places: Image  # as it lies where it is read
    taps: tuple[Taps, Taps]
    weights: WeightStrides
    segments: tuple[TileRun, ...]
    block: int  # channels at a time: whole vectors of which the weights stay in the first cache
    packed: int  # where its packed weights start, in elements

    @staticmethod
    def of(kernel: Convolution, target: Target, image: Image, taps: tuple[Taps, Taps], packed: int) -> DepthwisePhase:
        """The phase with these taps."""
        places = Image.unframed(kernel.dtype, kernel.channels, image.size, image.strides)
        segments = _segments(kernel, target, taps[1], image) if taps[0].count and taps[1].count else ()
        unit = tile_lanes(target, kernel.dtype) * max((run.tile.vectors for run in segments), default=1)
        weights = max(1, taps[0].number * taps[1].number * kernel.channels * kernel.dtype.itemsize)
        block = round_up(-(-kernel.channels // -(-weights // target.sized(WEIGHT_BYTES))), unit)
        return DepthwisePhase(image, places, taps, phase_weights(kernel, taps), segments, block, packed)


def _segments(kernel: Convolution, target: Target, taps: Taps, image: Image) -> tuple[TileRun, ...]:
    """Tiles of balanced widths over the pixels of a row."""
    kind = kind_of(kernel)
    tiles = -(-taps.count // most_pixels(target, taps.number))
    most = -(-taps.count // tiles)
    tall = taps.count - tiles * (most - 1)
    lanes, channels = tile_lanes(target, kernel.dtype), kernel.channels
    vectors = vectors_at_once(target, kind, most, taps.number, channels // lanes)
    ragged = channels % (lanes * vectors) != 0

    def reach(t: int) -> tuple[int, int]:
        base = taps.origin - image.offset[1] + t * taps.step
        inside = [u for u in range(taps.number) if 0 <= base + u * taps.dilation < image.size[1]]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def tile(start: int, size: int) -> RowTile:
        pixels = tuple(reach(t) for t in range(start, start + size))
        return RowTile(kind, kernel.dtype, taps.number, taps.step, taps.dilation, pixels, vectors, ragged)

    sizes = [most] * tall + [most - 1] * (tiles - tall)
    found = [(start, tile(start, size)) for start, size in zip(itertools.accumulate(sizes, initial=0), sizes)]
    grouped = (list(some) for _, some in itertools.groupby(found, key=lambda entry: entry[1]))
    return tuple(TileRun(some[0][0], len(some), some[0][1]) for some in grouped)


def _is_for(kernel: Convolution, target: Target) -> bool:
    """True if a kernel is depthwise and its images are not done plane by plane. Tiles are written for one width."""
    return is_depthwise(kernel) and not has_open_images(kernel) and not is_planes(largest(kernel), target)


def _cycles(kernel: Convolution, target: Target) -> float:
    """Lanes are the channels; images whose channels are not contiguous are turned."""
    x, y = kernel.height * kernel.width, kernel.out_height * kernel.out_width
    turned = sum(pixels for pixels, strides in ((x, kernel.x_strides), (y, kernel.y_strides)) if strides[1] != 1)
    nbytes = kernel.batch * kernel.channels * turned * kernel.dtype.itemsize
    return multiply_add_cycles(kernel, target, kernel.channels) + TURNED * nbytes


def _units(kernel: Convolution, target: Target, rows: int, columns: int, spacing: int, whole: bool) -> Units:
    """``whole`` images are one unit each, as they are copied by who works on them."""
    row_bytes = columns * kernel.channels * kernel.dtype.itemsize
    most = rows if whole else max(1, target.sized(ROW_BLOCK_BYTES) // max(1, row_bytes))
    wanted, batch = wanted_chunks(seconds_of(kernel, target), target), highest(kernel.batch)
    if kernel.direction == "weight_grad":
        wanted = min(wanted, batch * rows * columns // target.sized(CHUNK_PIXELS))
    if wanted > 1 and not whole:
        most = min(most, -(-rows * max(1, batch) // wanted))
    block = max(spacing, round_up(-(-rows // -(-rows // most)), spacing))
    return Units.of(kernel.batch, block, rows, wanted)


# -- forward and by data ----------------------------------------------------------------------------------------
@frozen
class Depthwise(ByUnits):
    """The plan of a kernel forward or by data."""

    phases: tuple[DepthwisePhase, ...]
    result: UnitResult
    units: Units
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> Depthwise | None:
        suits = _is_for(kernel, target) and kernel.direction != "weight_grad"
        return depthwise_plan(kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        return _cycles(kernel, target)

    @property
    def way(self) -> str:
        return f"channels as lanes: {len(self.phases)} phases{self.result.text}; {self.units.text()}"


def depthwise_plan(kernel: Convolution, target: Target) -> Depthwise:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    _, channels, rows, columns = kernel.result_sizes
    phases: list[DepthwisePhase] = []
    packed = 0
    for taps in geometry:
        phases.append(DepthwisePhase.of(kernel, target, image, taps, packed))
        packed += taps[0].number * taps[1].number * channels
    places = phases[0].places
    units = _units(kernel, target, rows, columns, geometry[0][0].spacing, not places.in_place)
    result = UnitResult.of_pixels(kernel, round_up(channels, tile_lanes(target, kernel.dtype)))
    own = areas(kernel.dtype, image=places.elements, tile=result.elements(min(units.rows, rows)))
    return Depthwise(tuple(phases), result, units, Scratch(areas(kernel.dtype, weights=packed), own))


# -- by weights -------------------------------------------------------------------------------------------------
@frozen
class DepthwiseWeights(SumPlan):
    """The plan of the transpose by weights."""

    phase: DepthwisePhase
    y_places: Image
    units: Units
    part: int  # elements of the weights that one chunk adds up
    sharing: SumChunks
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> DepthwiseWeights | None:
        suits = _is_for(kernel, target) and kernel.direction == "weight_grad"
        return depthwise_weights_plan(kernel, target) if suits else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        return _cycles(kernel, target)

    @property
    def way(self) -> str:
        return f"weights, channels as lanes; {self.units.text()}"

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch result, ``[i][j][channel]``."""
        return 1, self.part, kernel.kernel[1] * kernel.channels, kernel.channels


def depthwise_weights_plan(kernel: Convolution, target: Target) -> DepthwiseWeights:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, (taps,) = forward_geometry(kernel)
    rows, columns = size = kernel.out_height, kernel.out_width
    phase = DepthwisePhase.of(kernel, target, image, taps, 0)
    y_places = Image.unframed(kernel.dtype, kernel.channels, size, kernel.y_strides)
    whole = not (phase.places.in_place and y_places.in_place)
    units = Units(0, 1, 1, None) if 0 in size else _units(kernel, target, rows, columns, 1, whole)
    part = kernel.kernel[0] * kernel.kernel[1] * kernel.channels
    sharing = SumChunks(units.count, 1, None, units.share or 0)
    sums = Area("sums", aligned_bytes(part, kernel.dtype), sharing.places)
    own = areas(kernel.dtype, x=phase.places.elements, y=y_places.elements)
    return DepthwiseWeights(phase, y_places, units, part, sharing, Scratch((sums,), own))
