"""Convolution with 3×3 taps and stride 1, forward and by data, by minimal filtering: fewer multiplications.

An image is cut in tiles of m×m pixels of the result. Each tile of n×n = (m+2)×(m+2) pixels is transformed, and so is
the filter; what was a convolution is then n² products of matrices, tiles × channels by channels × filters, of whose
results the tiles of the result are transformed back (``filtering``). Vectors of the transforms lie along channels and
filters, so images are read channels last, from *strips* framed with zeros as ``forward`` reads them.

    unit     some rows of tiles of an image, for all filters or a part of them: rows are brought into a strip
    block    some tiles of a unit: ``data[n²][tile][channel]`` is written, ``sums[n²][tile][filter]`` computed from it
             by the tiles of the microkernel, and transformed into the result
    weights  ``[n²][panel][channel][filters of the panel]``, transformed by whoever packs weights

So everything between the strip and the result stays in the second cache where channels and filters are few; where they
are many, a block has more tiles, so that the weights are read seldom.

The floor is that of the products, n²/(9·m²) of the multiply-adds of ``forward``: 1/2.25 with F(2×2). Beside it stand
transforms of about 24 + 18 cycles for each vector of channels and of filters of a tile, against n²·filters/2 cycles for
a vector of channels: with 64 of them 8 %.

Rounding errors of F(2×2, 3×3) are about those of ``forward`` if pixels of a tile are of about the same size; they are
relative to the largest one. What is not finite makes a whole tile NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from staticgrad.base.extents import highest, is_open, largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.chunks import wanted_chunks
from staticgrad.compiler.plans.convolution.costs import multiply_add_cycles, seconds_of, turning
from staticgrad.compiler.plans.convolution.filtering import TAPS, Filtering, filterings
from staticgrad.compiler.plans.convolution.images import (
    ALIAS,
    WeightStrides,
    has_open_images,
    inputs_and_outputs,
)
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan, Scratch, areas
from staticgrad.compiler.plans.convolution.planes import odd_lines
from staticgrad.compiler.plans.convolution.schedule import PackingPlan, Units
from staticgrad.compiler.plans.convolution.strips import Strip
from staticgrad.compiler.plans.convolution.taps import forward_geometry, phase_weights
from staticgrad.compiler.plans.convolution.unstage import UnitResult
from staticgrad.compiler.plans.tiles import Tiling, choose_tiling, round_up, tile_lanes

BLOCK_BYTES = 384 << 10  # of the transformed tiles of a block and their products: they stay in the second cache
LEAST_TILES = 48  # of a block, so that weights are read seldom
FAR_TILES, FAR_WEIGHTS = 96, 2 << 20  # of a block, where weights have more bytes and stay in no cache
STRIP_BYTES = 160 << 10
UNITS = 16  # of all images at least, where the work is shared
ENOUGH_UNITS = 8  # for more of them filters are not cut in parts
LEAST_PART = 64  # filters of a part of a unit at least: each part transforms the tiles again
WEIGHT_CHANNELS = 32  # whose taps are packed before they are transformed
WORTH = 1.1  # how much fewer cycles have to be
READ_BYTES = 16  # of weights in a cycle
WRITTEN_BYTES = 8  # of weights that stay in no cache
P = TypeVar("P", bound=ConvolutionPlan)


@frozen
class Winograd(PackingPlan):
    """The plan of a kernel; sizes are elements unless said otherwise."""

    filtering: Filtering
    strip: Strip
    size: tuple[int, int]  # of the result
    grid: tuple[int, int]  # tiles of an image
    units: Units  # of each image ``parts`` for each block of rows
    rows: int  # of tiles in a unit
    parts: int  # of the outputs
    part_panels: int  # column panels of a part
    inputs: int
    outputs: int
    weights: WeightStrides
    tiling: Tiling  # tiles of a block × outputs
    data_pitch: int  # from tile to tile of a block
    sums_pitch: int
    result: UnitResult
    packed: Scratch  # transformed weights, with the buffer through which they are packed
    scratch: Scratch

    @staticmethod
    def make(kernel: Convolution, target: Target) -> Winograd | None:
        suits = kernel.direction != "weight_grad" and suits_filtering(kernel, target)
        return fastest(winograd_plan, kernel, target) if suits and reaches_all(kernel) else None

    def cycles(self, kernel: Convolution, target: Target) -> float:
        """Cycles of the products and the transforms, and what images in planes cost every plan."""
        filtering, lanes, batch = self.filtering, tile_lanes(target, kernel.dtype), kernel.batch
        tiles = batch * self.grid[0] * self.grid[1]
        inputs, outputs = -(-self.inputs // lanes), -(-self.outputs // lanes)
        products = filtering.products * tiles * outputs * (self.inputs / 2 + target.machine.products.filtered_cycles)
        transforms = tiles * (inputs * filtering.data_cycles * self.parts + outputs * filtering.result_cycles)
        moved = batch * kernel.height * kernel.width * (inputs + outputs)
        more = filtering.products - TAPS**2  # weights than others read
        weights = self.inputs * outputs * (filtering.weight_cycles + more * lanes * kernel.dtype.itemsize / READ_BYTES)
        if self.weights_are_far(target):
            weights += self.weight_bytes / WRITTEN_BYTES
        turned = (turning(kernel, target) - 1) * multiply_add_cycles(kernel, target, self.outputs)
        return WORTH * (products + transforms + moved + weights + turned)

    @property
    def tiles(self) -> int:
        """The tiles of a block."""
        return self.tiling.m

    @property
    def blocks(self) -> int:
        """The blocks of a unit."""
        return -(-self.rows * self.grid[1] // self.tiles)

    @property
    def data_plane(self) -> int:
        """Elements from one of the n² matrices of transformed tiles to the next."""
        return odd_lines(self.tiles * self.data_pitch, self.tiling.dtype)

    @property
    def sums_plane(self) -> int:
        """The same of products."""
        return odd_lines(self.tiles * self.sums_pitch, self.tiling.dtype)

    @property
    def panel_elements(self) -> int:
        """Elements of one of the n² matrices of a panel of weights."""
        return self.inputs * self.tiling.width

    @property
    def weight_plane(self) -> int:
        """Elements from one of the n² matrices of weights to the next."""
        return odd_lines(self.tiling.column_panels * self.panel_elements, self.tiling.dtype)

    def weights_are_far(self, target: Target) -> bool:
        """True if transformed weights stay in no cache."""
        return self.weight_bytes > target.sized(FAR_WEIGHTS)

    @property
    def ragged(self) -> bool:
        """True if the last tiles of an image have more pixels than it."""
        return any(size % self.filtering.outputs for size in self.size)

    @property
    def way(self) -> str:
        weights = "transforms weights" if self.packs else "weights given transformed"
        parts = f" for one of {self.parts} parts of the filters" if self.parts > 1 else ""
        share = f", {self.units.share} a chunk" if self.units.share is not None else ""
        return (
            f"{self.filtering.text}, {self.grid[0]}x{self.grid[1]} tiles: {self.filtering.products} products in"
            f" {self.tiling.text}; {weights}, strips of {self.strip.rows} rows{self.result.text}; {self.units.count}"
            f" units of {self.rows} rows of tiles{parts}, blocks of {self.tiles} tiles{share}"
        )


def suits_filtering(kernel: Convolution, target: Target) -> bool:
    """True if minimal filtering is for a kernel of any direction."""
    if kernel.dtype != "float32" or kernel.groups != 1 or has_open_images(kernel):
        return False
    if any(map(is_open, (*kernel.x_strides[1:], *kernel.y_strides[1:]))):
        return False
    plain = kernel.kernel == (TAPS, TAPS) and kernel.stride == kernel.dilation == (1, 1)
    by_vectors = tile_lanes(target, kernel.dtype) > 1 and not target.machine.compact
    return plain and by_vectors and 0 not in (*kernel.of_group, kernel.height, kernel.width)


def reaches_all(kernel: Convolution) -> bool:
    """True if all taps reach some pixels of the result."""
    _, ((vertical, horizontal),) = forward_geometry(kernel)
    return vertical.number == horizontal.number == TAPS


def fastest(plan: Callable[[Convolution, Target, Filtering], P], kernel: Convolution, target: Target) -> P:
    """The plan by the algorithm that seems fastest, of those that the precision of the kernel allows."""
    allowed, greatest = filterings(kernel), largest(kernel)
    best = (
        min(allowed, key=lambda how: plan(greatest, target, how).cycles(greatest, target))
        if allowed[1:]
        else allowed[0]
    )
    return plan(kernel, target, best)


def pitch_of(channels: int, lanes: int, dtype: np.dtype) -> int:
    """The elements from pixel to pixel of images whose channels are read by whole vectors: a vector more where pixels
    would fall into few sets of the cache."""
    whole = round_up(channels, lanes)
    return whole + (lanes if whole * dtype.itemsize % ALIAS == 0 else 0)


def winograd_plan(kernel: Convolution, target: Target, filtering: Filtering) -> Winograd:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, ((vertical, horizontal),) = forward_geometry(kernel)
    m, lanes, size = filtering.outputs, tile_lanes(target, kernel.dtype), kernel.dtype.itemsize
    batch, outputs, height, width = kernel.result_sizes
    inputs = inputs_and_outputs(kernel)[0]
    grid = -(-height // m), -(-width // m)
    apart, padded = pitch_of(inputs, lanes, kernel.dtype), inputs % lanes != 0
    frame = grid[0] * m + TAPS - 1, grid[1] * m + TAPS - 1
    image = replace(image, height=frame[0], width=frame[1], apart=apart, padded=padded)
    wanted = wanted_chunks(seconds_of(kernel, target), target)
    result = UnitResult.of_pixels(kernel, pitch_of(outputs, lanes, kernel.dtype))
    row_bytes = m * image.width * apart * size
    most = target.sized(STRIP_BYTES) // row_bytes
    if wanted > 1:
        most = min(most, -(-grid[0] * highest(batch) // UNITS))
    are_far = filtering.products * inputs * outputs * size > target.sized(FAR_WEIGHTS)
    least_tiles = target.sized(FAR_TILES if are_far else LEAST_TILES, 4)
    most = max(most, -(-least_tiles // grid[1]))
    rows = -(-grid[0] // -(-grid[0] // most))
    bands = -(-grid[0] // rows)
    divisible = result.direct or not kernel.store_raw
    least = -(-min(wanted, ENOUGH_UNITS) // (highest(batch) * bands))  # parts for enough units
    wide = max(1, min(least, outputs // target.sized(LEAST_PART, 16))) if divisible else 1
    tile_bytes = filtering.products * (apart + round_up(outputs, lanes) // wide) * size
    tiles = rows * grid[1]
    blocks = max(1, tiles // max(least_tiles, target.sized(BLOCK_BYTES) // tile_bytes))
    together = min(tiles, round_up(-(-tiles // blocks), target.machine.products.usual_rows))
    tiling = choose_tiling(target, kernel.dtype, together, outputs, inputs)
    if are_far and target.machine.products.low_tiles:
        tiling = replace(tiling, far=True)
    part_panels = -(-tiling.column_panels // wide)
    parts = -(-tiling.column_panels // part_panels)
    sums_pitch = round_up(min(outputs, part_panels * tiling.width), lanes)
    strip = Strip.choose(image, [vertical], rows * m)
    weights, buffer = areas(
        kernel.dtype,
        weights=filtering.products * odd_lines(tiling.column_panels * inputs * tiling.width, kernel.dtype),
        buffer=TAPS * TAPS * min(inputs, WEIGHT_CHANNELS) * tiling.width,
    )
    own = areas(
        kernel.dtype,
        strip=max(strip.elements, buffer.nbytes // size),
        data=filtering.products * odd_lines(tiling.m * apart, kernel.dtype),
        sums=filtering.products * odd_lines(tiling.m * sums_pitch, kernel.dtype),
        tile=result.elements(min(height, rows * m)),
        spare=round_up(outputs, lanes),
    )
    shared = (weights,) if kernel.packed is None else ()
    return Winograd(
        filtering=filtering,
        strip=strip,
        size=(height, width),
        grid=grid,
        units=Units.of(batch, 1, bands * parts, wanted),
        rows=rows,
        parts=parts,
        part_panels=part_panels,
        inputs=inputs,
        outputs=outputs,
        weights=phase_weights(kernel, (vertical, horizontal)),
        tiling=tiling,
        data_pitch=apart,
        sums_pitch=sums_pitch,
        result=result,
        packed=Scratch((weights, buffer)),
        scratch=Scratch(shared, own),
    )
