"""Convolution kernels: a ``Convolution`` comes in, a function of the module goes out.

    void @name(ptr first, ptr second, [ptr result], ptr epilogue arguments…, ptr scratch, [ptr pool])

All three directions are batch-reduce products of the one microkernel over channels-last images in scratch memory
(Georganas et al., "High-performance deep learning via a single building block", IPDPS 2020). The image that is read
is copied there one at a time, framed with zeros, as ``[group][row][column][channel]``, whatever its strides; it is
read in place where it already has that form and needs no frame. For a pixel the taps of one filter row and their
channels are then one contiguous run (without dilation), and the filter's rows are the blocks of the batch.

* ``forward``: rows of tiles are pixels along q, columns are filters, terms are runs of (j, c), blocks are filter rows
  i. Weights are packed as ``[group][panel][i][j][c][filters]``.
* ``input_grad``: the same with the weights flipped and transposed, of a framed y. With strides above one the pixels
  of x fall into stride × stride *phases* by their remainders; each is a forward convolution of its own, of stride one
  and with the taps that reach that phase (no zeros are multiplied).
* ``weight_grad``: rows of tiles are runs of (j, c) for one i, columns are filters, terms are output columns q, blocks
  are output rows p; the sum over images is carried in the result, ``[i][j][c][filter]``. Small images are taken
  several at a time, so that a tile of the result stays in the first cache over all of them.

Depthwise convolutions (one channel and one filter a group) keep all channels in one frame: vectors run along the
channels, and the microkernel multiplies element by element. Their terms are taps j, their blocks filter rows i, or for
weights rows of tiles are taps j, terms are columns q and blocks rows p.

Results whose channels are contiguous are written where they belong; others are written to a scratch block and
transposed from there. The epilogue is called for each block of output rows, or once for weights.

A kernel that takes long is cut in chunks (``emit.parallel``): images, or blocks of rows where there are few of those;
for weights first the images that are copied, then the tiles of the result, each over all these images, and at the end
the filters that are stored. So no sum is cut.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, Module, Value, integer, memory_type
from staticgrad.compiler.emit.microkernel import (
    Layout,
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    call_epilogue,
    call_tile,
    choose_tiling,
    copy_matrix,
    fill_zero,
    round_up,
    span,
    tile_lanes,
)
from staticgrad.compiler.emit.parallel import (
    NO_POOL,
    Part,
    Table,
    chunk_range,
    cut,
    open_part,
    run_chunks,
    unravel,
    wanted_chunks,
)
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution

ROW_BLOCK_BYTES = 192 << 10  # of the result between two epilogues
PANEL_BYTES = 256 << 10  # of packed weights that one pass over a block of rows uses
IMAGES_BYTES = 1 << 20  # of images that are multiplied into the weights' gradient at a time
STORE_FILTERS = 16  # whose weights are transposed out of scratch memory together
FLOPS_PER_LANE = 7e9  # a second: for deciding whether to share work, so roughly
MANY_IMAGES = 8  # a kernel that takes long is cut between them
ROW_BLOCKS = 16  # of all images, where it is cut within them
ALIAS = 2048  # pixels a multiple of this many bytes apart share few sets of the first cache


@dataclass(frozen=True, slots=True)
class _Image:
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
    slack: int  # elements behind the last pixel that are read too

    @property
    def in_place(self) -> bool:
        inside = self.height <= self.size[0] and self.width <= self.size[1]
        plain = inside and self.offset == (0, 0) and self.groups == 1 and self.slack == 0
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
        return 0 if self.in_place else self.groups * self.group + self.slack

    def inside(self, axis: int) -> tuple[int, int]:
        """The range of source pixels along ``axis`` that fall into the frame."""
        offset, frame = self.offset[axis], (self.height, self.width)[axis]
        low = max(0, -offset)
        return low, max(low, min(self.size[axis], frame - offset))

    def covered(self) -> bool:
        """Whether the copy writes every element of the frame."""
        (h0, h1), (w0, w1) = self.inside(0), self.inside(1)
        whole = h1 - h0 == self.height and w1 - w0 == self.width
        return whole and self.pixel == self.channels and self.slack == 0


@dataclass(frozen=True, slots=True)
class _Weights:
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


@dataclass(frozen=True, slots=True)
class _Taps:
    """The taps along one axis that reach the pixels ``first + t·spacing`` of a result, t < count.

    In the frame they are read at ``origin + t·step + u·dilation``, u < number; tap u is element ``start + u·stride``
    of the weights' axis.
    """

    first: int
    spacing: int
    count: int
    origin: int
    step: int
    dilation: int
    number: int
    start: int
    stride: int


@dataclass(frozen=True, slots=True)
class _Phase:
    """A forward convolution for the pixels of a result with one remainder along each axis."""

    taps: tuple[_Taps, _Taps]
    kernel: tuple[int, int]
    channels: int  # that one tap sums over; 0 if no tap reaches the phase: its pixels are zero
    weights: _Weights
    run: bool  # the taps of a filter row and their channels are contiguous
    tiling: Tiling
    tap_rows: int  # filter rows of one pass
    packed: int  # where its packed weights start, in elements

    @property
    def panel_elements(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels * self.tiling.width


@dataclass(frozen=True, slots=True)
class _Forward:
    """Phases over one framed image: what both ``forward`` (one phase) and ``input_grad`` are."""

    image: _Image
    phases: tuple[_Phase, ...]
    depthwise: bool
    images: int
    outputs: int  # channels of the result, of one group
    rows: int
    columns: int
    flat: bool  # rows are one run of pixels: a single row to the tiles
    result: tuple[int, int, int, int]  # strides n, o, p, q
    direct: bool  # tiles are written into the result
    row_block: int  # rows of the result between two epilogues, a multiple of the phases' spacing
    tile_pixel: int  # elements from pixel to pixel in the scratch block
    share: int | None  # images of a chunk, 0 if blocks of rows are chunks, None if the work is not cut
    weight_bytes: int
    image_bytes: int
    tile_bytes: int

    @property
    def shared_bytes(self) -> int:
        """The scratch memory that all workers use."""
        return self.weight_bytes + (self.image_bytes if self.share == 0 else 0)

    @property
    def own_bytes(self) -> int:
        """The scratch memory that each worker needs for itself."""
        return self.tile_bytes + (0 if self.share == 0 else self.image_bytes)


@dataclass(frozen=True, slots=True)
class _WeightGrad:
    """The transpose by weights."""

    image: _Image
    depthwise: bool
    channels: int  # of w
    run: bool
    tiling: Tiling
    y_in_place: bool
    y_row: int  # strides of y as it is read
    y_pixel: int
    direct: bool
    result_row: int  # elements from one (i, j, c) to the next in the scratch result
    together: int  # images at a time
    x_pitch: int  # elements from one image to the next as they are read
    y_pitch: int
    share: int | None  # tiles of a chunk, None if the work is not cut
    image_bytes: int
    y_bytes: int
    result_bytes: int


def _empty(kernel: Convolution) -> bool:
    """Whether the result has no elements."""
    images, spatial = (kernel.batch,), (kernel.out_height, kernel.out_width)
    sizes = {
        "forward": (*images, kernel.filters, *spatial),
        "input_grad": (*images, kernel.channels, kernel.height, kernel.width),
        "weight_grad": (kernel.filters, kernel.channels // kernel.groups, *kernel.kernel),
    }
    return 0 in sizes[kernel.direction]


def _is_depthwise(kernel: Convolution) -> bool:
    """One channel and one filter a group: there is nothing to sum over but taps."""
    return kernel.groups > 1 and kernel.groups == kernel.channels == kernel.filters and kernel.dtype.kind == "f"


def _slack(kernel: Convolution, target: Target) -> int:
    """What whole vectors of channels read behind the last pixel of a depthwise image on machines without masks."""
    lanes = tile_lanes(target, kernel.dtype)
    return 0 if target.masked or not _is_depthwise(kernel) else -kernel.channels % lanes


def _forward_taps(kernel: Convolution, axis: int) -> _Taps:
    """All taps of one axis of a forward convolution."""
    size = (kernel.out_height, kernel.out_width)[axis]
    return _Taps(0, 1, size, 0, kernel.stride[axis], kernel.dilation[axis], kernel.kernel[axis], 0, 1)


def _backward_taps(kernel: Convolution, axis: int) -> tuple[tuple[_Taps, ...], int, int]:
    """The phases of one axis of the transpose by data, the frame's first pixel of y, and its size.

    Pixel h of x gets y[p]·w[i] where p·stride + i·dilation − padding = h. For h = first + t·stride these are the taps
    with first + padding − i·dilation a multiple of the stride; the last of them reads the first pixel of y.
    """
    size = (kernel.height, kernel.width)[axis]
    stride, dilation, padding = kernel.stride[axis], kernel.dilation[axis], kernel.padding[axis]
    phases, low, high = [], [], []
    for first in range(min(stride, size)):
        reach = [i for i in range(kernel.kernel[axis]) if (first + padding - i * dilation) % stride == 0]
        count = -(-(size - first) // stride)
        if not reach:
            phases.append(_Taps(first, stride, count, 0, 1, 1, 0, 0, 1))
            continue
        apart = reach[1] - reach[0] if len(reach) > 1 else 1
        origin = (first + padding - reach[-1] * dilation) // stride
        phases.append(_Taps(first, stride, count, origin, 1, max(1, apart * dilation // stride), len(reach),
                            reach[-1], -apart))  # fmt: skip
        low.append(origin)
        high.append((first + padding - reach[0] * dilation) // stride + count)
    start = min(low, default=0)
    moved = (replace(taps, origin=taps.origin - start if taps.number else 0) for taps in phases)
    return tuple(moved), start, max(high, default=1) - start


def _x_image(kernel: Convolution, target: Target) -> _Image:
    """x, framed by its padding."""
    height, width = (
        (size - 1) * kernel.stride[i] + (kernel.kernel[i] - 1) * kernel.dilation[i] + 1
        for i, size in enumerate((kernel.out_height, kernel.out_width))
    )
    groups = 1 if _is_depthwise(kernel) else kernel.groups
    channels = kernel.channels // groups
    aliased = channels * kernel.stride[1] * kernel.dtype.itemsize % ALIAS == 0
    return _Image(kernel.dtype, groups, channels, (kernel.height, kernel.width), kernel.x_strides,
                  kernel.padding, height, width, aliased, _slack(kernel, target))  # fmt: skip


def _forward_geometry(kernel: Convolution, target: Target) -> tuple[_Image, list[tuple[_Taps, _Taps]]]:
    """The framed image and the taps of every phase."""
    if kernel.direction == "forward":
        return _x_image(kernel, target), [(_forward_taps(kernel, 0), _forward_taps(kernel, 1))]
    vertical, top, height = _backward_taps(kernel, 0)
    horizontal, left, width = _backward_taps(kernel, 1)
    groups = 1 if _is_depthwise(kernel) else kernel.groups
    channels = kernel.filters // groups
    aliased = channels * kernel.dtype.itemsize % ALIAS == 0
    image = _Image(kernel.dtype, groups, channels, (kernel.out_height, kernel.out_width), kernel.y_strides,
                   (-top, -left), height, width, aliased, _slack(kernel, target))  # fmt: skip
    return image, [(v, h) for v in vertical for h in horizontal]


def _phase_weights(kernel: Convolution, taps: tuple[_Taps, _Taps]) -> _Weights:
    o, c, i, j = kernel.w_strides
    plain = kernel.direction == "forward" or _is_depthwise(kernel)  # depthwise, o numbers both channels and filters
    out, channel = (o, c) if plain else (c, o)
    start = taps[0].start * i + taps[1].start * j
    return _Weights(start, kernel.filters // kernel.groups * o, out, channel, taps[0].stride * i, taps[1].stride * j)


def _is_run(image: _Image, taps: int, dilation: int) -> bool:
    return taps == 1 or (dilation == 1 and image.pixel == image.channels)


def _forward_plan(kernel: Convolution, target: Target) -> _Forward:
    """The plan of a kernel; the epilogue has no part in it."""
    return _make_forward_plan(replace(kernel, epilogue=None), target)


@functools.lru_cache(maxsize=4096)
def _make_forward_plan(kernel: Convolution, target: Target) -> _Forward:
    image, geometry = _forward_geometry(kernel, target)
    back = kernel.direction == "input_grad"
    rows, columns = (kernel.height, kernel.width) if back else (kernel.out_height, kernel.out_width)
    depthwise = _is_depthwise(kernel)
    total, size = kernel.channels if back else kernel.filters, kernel.dtype.itemsize
    outputs = total // image.groups
    result = kernel.x_strides if back else kernel.y_strides
    direct = kernel.store_raw and (result[1] == 1 or total == 1)
    flat = kernel.kernel == (1, 1) and len(geometry) == 1 and (not direct or result[2] == columns * result[3])
    flat = flat and geometry[0][0].step * image.row == columns * geometry[0][1].step * image.pixel
    phases, packed = [], 0
    for taps in geometry:
        reached = taps[0].number > 0 and taps[1].number > 0
        channels = (1 if depthwise else image.channels) if reached else 0
        taken = (taps[0].number, taps[1].number) if reached else (1, 1)
        run, terms = depthwise or _is_run(image, taken[1], taps[1].dilation), taken[1] * channels
        m = rows * columns if flat else taps[1].count
        tiling = choose_tiling(target, kernel.dtype, m, outputs, terms * taken[0], depthwise)
        most = max(1, PANEL_BYTES // max(1, terms * tiling.width * size))
        phase = _Phase(taps, taken, channels, _phase_weights(kernel, taps), run, tiling,
                       min(taken[0], most) if run else 1, packed)  # fmt: skip
        phases.append(phase)
        packed += image.groups * tiling.column_panels * phase.panel_elements
    lanes, spacing = phases[0].tiling.lanes, geometry[0][0].spacing
    tile_pixel = round_up(total, lanes) + (lanes if total * size % ALIAS == 0 else 0)
    most = max(1, ROW_BLOCK_BYTES // (columns * total * size), -(-64 // columns))
    share: int | None = None
    wanted = wanted_chunks(_seconds(kernel, target))
    if wanted > 1 and (kernel.batch >= MANY_IMAGES or flat) and kernel.batch > 1:
        share = cut(kernel.batch, wanted)[0]
    elif wanted > 1 and not flat and rows > spacing:
        share, most = 0, min(most, -(-rows * kernel.batch // ROW_BLOCKS))
    row_block = rows if flat else round_up(-(-rows // -(-rows // most)), spacing)
    block = 0 if direct else min(row_block, rows) * columns * tile_pixel
    return _Forward(
        image=image,
        phases=tuple(phases),
        depthwise=depthwise,
        images=kernel.batch,
        outputs=outputs,
        rows=rows,
        columns=columns,
        flat=flat,
        result=result,
        direct=direct,
        row_block=row_block,
        tile_pixel=tile_pixel,
        share=share,
        weight_bytes=aligned_bytes(packed, kernel.dtype),
        image_bytes=aligned_bytes(image.elements, kernel.dtype),
        tile_bytes=aligned_bytes(block, kernel.dtype),
    )


def _weight_grad_plan(kernel: Convolution, target: Target) -> _WeightGrad:
    """The plan of a kernel; the epilogue has no part in it."""
    return _make_weight_grad_plan(replace(kernel, epilogue=None), target)


@functools.lru_cache(maxsize=4096)
def _make_weight_grad_plan(kernel: Convolution, target: Target) -> _WeightGrad:
    image = _x_image(kernel, target)
    depthwise, channels = _is_depthwise(kernel), kernel.channels // kernel.groups
    run = depthwise or _is_run(image, kernel.kernel[1], kernel.dilation[1])
    outputs, size = kernel.filters // image.groups, kernel.dtype.itemsize
    m = channels * (kernel.kernel[1] if run else 1)
    depth = max(1, kernel.out_height * kernel.out_width)
    tiling = choose_tiling(target, kernel.dtype, m, outputs, depth, depthwise)
    y_in_place = (kernel.y_strides[1] == 1 or kernel.filters == 1) and (target.masked or not tiling.edge)
    # Whole vectors of a last panel may be read: the rows of a copy have room for one more vector.
    y_pixel = kernel.y_strides[3] if y_in_place else round_up(kernel.filters + tiling.lanes - 1, tiling.lanes)
    y_row = kernel.y_strides[2] if y_in_place else kernel.out_width * y_pixel
    o, c, _, j = kernel.w_strides
    regular = not run or depthwise or kernel.kernel[1] == 1 or j == channels * c  # rows of tiles have one stride
    direct = kernel.store_raw and (o == 1 or kernel.filters == 1) and regular
    result_row = round_up(kernel.filters, tiling.lanes)
    result = 0 if direct else kernel.kernel[0] * kernel.kernel[1] * channels * result_row
    y = kernel.out_height * kernel.out_width * kernel.filters if y_in_place else kernel.out_height * y_row
    pair = max(1, (image.groups * image.height * image.width * image.channels + y) * size)
    together = max(1, min(kernel.batch, IMAGES_BYTES // pair))
    x_pitch = image.strides[0] if image.in_place else image.elements
    y_pitch = kernel.y_strides[0] if y_in_place else y
    taps = kernel.kernel[0] * (1 if run else kernel.kernel[1])
    tiles = image.groups * taps * tiling.column_panels * tiling.row_panels
    wanted = wanted_chunks(_seconds(kernel, target) * together / max(1, kernel.batch))
    return _WeightGrad(
        image=image,
        depthwise=depthwise,
        channels=channels,
        run=run,
        tiling=tiling,
        y_in_place=y_in_place,
        y_row=y_row,
        y_pixel=y_pixel,
        direct=direct,
        result_row=result_row,
        together=together,
        x_pitch=x_pitch,
        y_pitch=y_pitch,
        share=cut(tiles, wanted)[0] if wanted > 1 and tiles > 1 else None,
        image_bytes=aligned_bytes(together * image.elements, kernel.dtype),
        y_bytes=aligned_bytes(0 if y_in_place else together * y, kernel.dtype),
        result_bytes=aligned_bytes(result, kernel.dtype),
    )


def _seconds(kernel: Convolution, target: Target) -> float:
    """About how long the kernel takes on one core."""
    products = kernel.batch * kernel.filters * kernel.out_height * kernel.out_width
    terms = kernel.channels // kernel.groups * kernel.kernel[0] * kernel.kernel[1]
    rate = FLOPS_PER_LANE * tile_lanes(target, kernel.dtype)
    return 2 * products * terms / (rate / 4 if _is_depthwise(kernel) or kernel.dtype.kind != "f" else rate)


def is_shared(kernel: Convolution, target: Target) -> bool:
    """Whether the kernel is worth the threads of a pool."""
    if _empty(kernel):
        return False
    if kernel.direction == "weight_grad":
        return _weight_grad_plan(kernel, target).share is not None
    return _forward_plan(kernel, target).share is not None


def scratch_bytes(kernel: Convolution, target: Target, workers: int = 1) -> int:
    """The scratch memory that the kernel needs, run by so many workers: a multiple of 64 bytes."""
    if _empty(kernel):
        return 0
    if kernel.direction == "weight_grad":
        back = _weight_grad_plan(kernel, target)
        return back.image_bytes + back.y_bytes + back.result_bytes
    plan = _forward_plan(kernel, target)
    return plan.shared_bytes + (workers if plan.share is not None else 1) * plan.own_bytes


def raw_strides(kernel: Convolution, target: Target) -> tuple[int, int, int, int]:
    """The strides of the result's four indices at which the epilogue finds the raw result."""
    stored = {"forward": kernel.y_strides, "input_grad": kernel.x_strides, "weight_grad": kernel.w_strides}
    if kernel.store_raw or _empty(kernel):
        return stored[kernel.direction]
    if kernel.direction == "weight_grad":
        back = _weight_grad_plan(kernel, target)
        row, channels = back.result_row, back.channels
        return (1, row, kernel.kernel[1] * channels * row, channels * row)
    plan = _forward_plan(kernel, target)
    return (0, 1, plan.columns * plan.tile_pixel, plan.tile_pixel)


def emit_convolution(
    module: Module, kernel: Convolution, name: str, epilogue: str | None, shared: bool = False
) -> None:
    """Add the function of ``kernel`` to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest. If
    ``shared`` it takes a pool, else its chunks, where it has some, run one after the other."""
    extra = len(kernel.epilogue.args) - 1 if kernel.epilogue is not None else 0
    f = module.function(name, ["ptr"] * (2 + kernel.store_raw + extra + 1 + shared))
    pointers, pool = (f.params[:-1], f.params[-1]) if shared else (f.params, NO_POOL)
    if not _empty(kernel):
        if kernel.direction == "weight_grad":
            back = _weight_grad_plan(kernel, module.target)
            if back.share is None:
                _emit_weight_grad(_Writer(f, kernel, epilogue, pointers), back)
            else:
                _share_weight_grad(_Chunks(f, kernel, epilogue, pointers, pool, WEIGHT_WORDS), back, back.share)
        else:
            plan = _forward_plan(kernel, module.target)
            if plan.share is None:
                _emit_forward(_Writer(f, kernel, epilogue, pointers), plan)
            else:
                _share_forward(_Chunks(f, kernel, epilogue, pointers, pool, FORWARD_WORDS), plan, plan.share)
    f.finish()


class _Writer:
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

    def copy(self, to: Matrix, source: Matrix, rows: Index, columns: Index) -> None:
        copy_matrix(self.f, self.dtype, to, source, rows, columns)

    def finish(self, raw: Value, ranges: list[tuple[Index, Index]]) -> None:
        if self.epilogue is not None:
            call_epilogue(self.f, self.epilogue, [raw, *self.extra], ranges)

    def clear_frame(self, image: _Image, to: Value, count: int = 1) -> None:
        """Zero ``count`` frames once: every image overwrites the same pixels of its frame."""
        if not image.in_place and not image.covered():
            fill_zero(self.f, self.dtype, to, count * image.elements)

    def frame(self, image: _Image, source: Value, number: Index, to: Value) -> Value:
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


class _Chunks:
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
        self.table = Table.fill(f, pointers, words)
        self.own = _Writer(f, kernel, epilogue, pointers)

    def open(self, suffix: str) -> tuple[Part, _Writer]:
        part = open_part(self.f.module, f"{self.f.name}.{suffix}", len(self.table.pointers))
        return part, _Writer(part.f, self.kernel, self.epilogue, part.table.pointers)

    def run(self, part: str, chunks: Index) -> None:
        run_chunks(self.f, self.pool, part, self.table, chunks)


# -- forward and by data ----------------------------------------------------------------------------------------

FORWARD_WORDS = 1  # the number of the image whose rows are shared


def _emit_forward(writer: _Writer, plan: _Forward) -> None:
    frame, tile = writer.area(plan.weight_bytes), writer.area(plan.weight_bytes + plan.image_bytes)
    _pack_phases(writer, plan)
    _some_images(writer, plan, (0, plan.images), frame, tile)


def _share_forward(chunks: _Chunks, plan: _Forward, share: int) -> None:
    """Images in chunks of ``share``, or for 0 one image after the other, whose blocks of rows are the chunks."""
    _pack_phases(chunks.own, plan)
    part, writer = chunks.open("rows" if share == 0 else "images")
    f = part.f
    own = f.add(plan.shared_bytes, f.mul(part.worker, plan.own_bytes))
    if share:
        tile = writer.area(f.add(own, plan.image_bytes))
        _some_images(writer, plan, chunk_range(f, part.chunk, share, plan.images), writer.area(own), tile)
        chunks.run(f.finish(), -(-plan.images // share))
        return
    number, frame, image = part.table.word(0), plan.weight_bytes, plan.image
    pixels = writer.at(writer.first, (number, image.strides[0])) if image.in_place else writer.area(frame)
    rows = chunk_range(f, part.chunk, plan.row_block, plan.rows)
    _image_rows(writer, plan, pixels, writer.area(own), number, rows)
    name = f.finish()
    chunks.own.clear_frame(image, chunks.own.area(frame))
    with span(chunks.f, 0, plan.images) as each:
        chunks.own.frame(image, chunks.own.first, each, chunks.own.area(frame))
        chunks.table.set_word(0, each)
        chunks.run(name, -(-plan.rows // plan.row_block))


def _pack_phases(writer: _Writer, plan: _Forward) -> None:
    for phase in plan.phases:
        _pack_weights(writer, plan, phase, writer.f.offset(writer.area(0), phase.packed, writer.element))


def _some_images(writer: _Writer, plan: _Forward, images: tuple[Index, Index], frame: Value, tile: Value) -> None:
    f, image = writer.f, plan.image
    writer.clear_frame(image, frame)
    with span(f, *images) as number:
        pixels = writer.frame(image, writer.first, number, frame)
        with span(f, 0, plan.rows, plan.row_block) as p0:
            p1 = f.min(f.add(p0, plan.row_block), plan.rows)
            _image_rows(writer, plan, pixels, tile, number, (p0, p1))


def _image_rows(
    writer: _Writer, plan: _Forward, pixels: Value, tile: Value, number: Index, rows: tuple[Index, Index]
) -> None:
    """A block of rows of the result of one image."""
    f, image, packed = writer.f, plan.image, writer.area(0)
    with span(f, 0, image.groups) as group:
        for phase in plan.phases:
            weights = f.offset(packed, phase.packed, writer.element)
            _row_block(writer, plan, phase, pixels, weights, tile, number, group, rows)
    raw = writer.result
    if raw is None:
        raw = writer.at(tile, (rows[0], -plan.columns * plan.tile_pixel))
    elif not plan.direct:
        _store_block(writer, plan, tile, number, rows)
    outputs = plan.outputs * image.groups
    writer.finish(raw, [(number, f.add(number, 1)), (0, outputs), rows, (0, plan.columns)])


def _pack_weights(writer: _Writer, plan: _Forward, phase: _Phase, to: Value) -> None:
    """Weights into ``[group][panel][i][j][c][filters of the panel]``, zero where a panel lacks filters."""
    f, tiling, weights = writer.f, phase.tiling, phase.weights
    channels, (kh, kw), width = phase.channels, phase.kernel, tiling.width
    if phase.panel_elements == 0:
        return
    source = f.offset(writer.second, weights.offset, writer.element)
    taps = weights.taps(phase.kernel)
    by_channel = weights.out != 1 and weights.input != 1 and kh * kw > 1

    def pack(group: Index, panel: Index, columns: int) -> None:
        at = writer.at(to, (group, tiling.column_panels * phase.panel_elements), (panel, phase.panel_elements))
        if columns < width:
            fill_zero(f, writer.dtype, at, phase.panel_elements)
        base = writer.at(source, (group, weights.group), (f.mul(panel, width), weights.out))
        if by_channel and taps is not None:  # for each channel, a matrix of taps × filters
            last = kh * kw - 1 if taps < 0 else 0  # flipped taps: read forwards, write backwards
            step = -channels * width if taps < 0 else channels * width
            with span(f, 0, channels) as c:
                target = writer.at(at, (last * channels, width), (c, width))
                origin = writer.at(base, (last, taps), (c, weights.input))
                writer.copy(Matrix(target, step, 1), Matrix(origin, abs(taps), weights.out), kh * kw, columns)
            return
        with span(f, 0, kh) as i, span(f, 0, kw) as j:
            tap = f.add(f.mul(i, kw), j)
            origin = writer.at(base, (i, weights.i), (j, weights.j))
            target = writer.at(at, (tap, channels * width))
            writer.copy(Matrix(target, width, 1), Matrix(origin, weights.input, weights.out), channels, columns)

    whole = plan.outputs // width
    with span(f, 0, plan.image.groups) as group:
        if whole:
            with span(f, 0, whole) as panel:
                pack(group, panel, width)
        if whole < tiling.column_panels:
            pack(group, whole, plan.outputs - whole * width)


def _phase_rows(f: Function, taps: _Taps, block: tuple[Index, Index]) -> tuple[Index, Index]:
    """The rows t of a phase that lie in ``block`` of the result; the block starts at a multiple of the spacing."""
    low, high = block
    if taps.spacing == 1:
        return block
    if isinstance(low, int):  # the only block
        return 0, taps.count
    spacing = integer(taps.spacing)
    start = f.binary("sdiv", low, spacing)
    size = f.add(f.sub(high, low), taps.spacing - 1 - taps.first)
    count = size // taps.spacing if isinstance(size, int) else f.binary("sdiv", size, spacing)
    return start, f.add(start, count)


def _row_block(
    writer: _Writer, plan: _Forward, phase: _Phase, pixels: Value, packed: Value, tile: Value, number: Index,
    group: Index, block: tuple[Index, Index],
) -> None:  # fmt: skip
    """All filters of one group for the pixels of one phase in the output rows of ``block``."""
    f, image, tiling = writer.f, plan.image, phase.tiling
    (kh, kw), channels, (vertical, horizontal) = phase.kernel, phase.channels, phase.taps
    rows = (0, 1) if plan.flat else _phase_rows(f, vertical, block)
    if plan.direct and writer.result is not None:
        r_n, r_o, c_row, c_pixel = plan.result
        c_base = writer.at(writer.result, (number, r_n), (group, plan.outputs * r_o))
    else:
        c_row, c_pixel = plan.columns * plan.tile_pixel, plan.tile_pixel
        c_base = writer.at(tile, (group, plan.outputs), (0 if plan.flat else block[0], -c_row))
    c_base = f.offset(c_base, vertical.first * c_row + horizontal.first * c_pixel, writer.element)
    c_stride = horizontal.spacing * c_pixel
    a_base = writer.at(pixels, (group, image.group)) if image.groups > 1 else pixels
    a_base = f.offset(a_base, vertical.origin * image.row + horizontal.origin * image.pixel, writer.element)
    b_base = writer.at(packed, (group, tiling.column_panels * phase.panel_elements))
    a_stride, a_step = horizontal.step * image.pixel, horizontal.dilation * image.pixel if plan.depthwise else 1
    with span(f, 0, tiling.column_panels) as panel, span(f, 0, kh, phase.tap_rows) as i:
        b = writer.at(b_base, (panel, phase.panel_elements), (i, kw * channels * tiling.width))
        a_taps = writer.at(a_base, (i, vertical.dilation * image.row), (panel, tiling.width * plan.depthwise))
        c_panel = writer.at(c_base, (panel, tiling.width))
        with span(f, *rows) as p:
            a_line = writer.at(a_taps, (p, vertical.step * image.row))
            c_line = writer.at(c_panel, (p, vertical.spacing * c_row))
            with span(f, 0, tiling.row_panels) as q_panel:
                q = tiling.row_start(f, q_panel)
                at = TileOperands(writer.at(a_line, (q, a_stride)), a_stride, a_step, b, tiling.width,
                                  writer.at(c_line, (q, c_stride)), c_stride, kw * channels, i)  # fmt: skip
                if phase.run:
                    blocks = f.min(phase.tap_rows, f.sub(kh, i))
                    at = replace(at, blocks=blocks, a_block=vertical.dilation * image.row,
                                 b_block=kw * channels * tiling.width)  # fmt: skip
                else:
                    at = replace(at, depth=channels, blocks=kw, a_block=horizontal.dilation * image.pixel,
                                 b_block=channels * tiling.width)  # fmt: skip
                call_tile(f, tiling, "lanes" if plan.depthwise else "rows", q_panel, panel, at)


def _store_block(writer: _Writer, plan: _Forward, tile: Value, number: Index, block: tuple[Index, Index]) -> None:
    """Transpose a block of rows from scratch to where the result wants it."""
    f = writer.f
    r_n, r_o, r_p, r_q = plan.result
    outputs = plan.outputs * plan.image.groups
    base = writer.at(writer.result_pointer, (number, r_n))
    if plan.flat and r_p == plan.columns * r_q:
        source = Matrix(tile, 1, plan.tile_pixel)
        writer.copy(Matrix(base, r_o, r_q), source, outputs, plan.rows * plan.columns)
        return
    with span(f, *block) as p:
        line = writer.at(tile, (f.sub(p, block[0]), plan.columns * plan.tile_pixel))
        to = writer.at(base, (p, r_p))
        writer.copy(Matrix(to, r_o, r_q), Matrix(line, 1, plan.tile_pixel), outputs, plan.columns)


# -- by weights -------------------------------------------------------------------------------------------------

WEIGHT_WORDS = 2  # the images that are worked on, from and to
WORTH_STORING = 1 << 15  # weights: fewer are stored by one thread


def _weights_result(writer: _Writer, plan: _WeightGrad) -> tuple[Value, tuple[int, int, int, int]]:
    """Where the tiles add up, and its strides of o, c, i, j."""
    if plan.direct and writer.result is not None:
        return writer.result, writer.kernel.w_strides
    row, channels = plan.result_row, plan.channels
    strides = (1, row, writer.kernel.kernel[1] * channels * row, channels * row)
    return writer.area(plan.image_bytes + plan.y_bytes), strides


def _share_weight_grad(chunks: _Chunks, plan: _WeightGrad, share: int) -> None:
    """The images that are taken together are copied in parallel, then the tiles of the result are added to."""
    f, kernel, table = chunks.f, chunks.kernel, chunks.table
    copies = not (plan.image.in_place and plan.y_in_place)
    copy, (tiles, count) = _copy_part(chunks, plan) if copies else None, _tiles_part(chunks, plan, share)
    with span(f, 0, kernel.batch, plan.together) as start:
        end = f.min(f.add(start, plan.together), kernel.batch)
        table.set_word(0, start)
        table.set_word(1, end)
        if copy is not None:
            chunks.run(copy, f.sub(end, start))
        chunks.run(tiles, count)
    weights = kernel.filters * plan.channels * kernel.kernel[0] * kernel.kernel[1]
    if weights < WORTH_STORING or kernel.filters < 2 * STORE_FILTERS:
        _finish_weights(chunks.own, plan)
        return
    part, writer = chunks.open("store")
    whole = kernel.filters // STORE_FILTERS
    if kernel.filters % STORE_FILTERS == 0:
        _finish_filters(writer, plan, part.f.mul(part.chunk, STORE_FILTERS), STORE_FILTERS)
    else:
        with part.f.when(part.f.compare("icmp eq", part.chunk, integer(whole))):
            _finish_filters(writer, plan, whole * STORE_FILTERS, kernel.filters % STORE_FILTERS)
        with part.f.when(part.f.compare("icmp slt", part.chunk, integer(whole))):
            _finish_filters(writer, plan, part.f.mul(part.chunk, STORE_FILTERS), STORE_FILTERS)
    chunks.run(part.f.finish(), -(-kernel.filters // STORE_FILTERS))


def _copy_part(chunks: _Chunks, plan: _WeightGrad) -> str:
    """A chunk: one image of x and y, brought into the form that is read."""
    part, writer = chunks.open("copy")
    f, start = part.f, part.table.word(0)
    frame, y_copy = writer.area(0), writer.area(plan.image_bytes)
    with f.when(f.compare("icmp eq", start, integer(0))):
        writer.clear_frame(plan.image, writer.at(frame, (part.chunk, plan.x_pitch)))
        if not plan.y_in_place:
            fill_zero(f, writer.dtype, writer.at(y_copy, (part.chunk, plan.y_pitch)), plan.y_pitch)
    number = f.add(start, part.chunk)
    _copy_image(writer, plan, frame, y_copy, start, (number, f.add(number, 1)))
    return f.finish()


def _tiles_part(chunks: _Chunks, plan: _WeightGrad, share: int) -> tuple[str, int]:
    """A chunk: some tiles of the result. Returns the part and how many chunks there are."""
    part, writer = chunks.open("tiles")
    f, start, end = part.f, part.table.word(0), part.table.word(1)
    pixels, y = _image_places(writer, plan, writer.area(0), writer.area(plan.image_bytes), start)
    grid = _tile_grid(writer.kernel, plan)
    count = math.prod(grid)
    with span(f, *chunk_range(f, part.chunk, share, count)) as number:
        _weight_tile(writer, plan, pixels, y, unravel(f, number, grid), (start, end))
    return f.finish(), -(-count // share)


def _tile_grid(kernel: Convolution, plan: _WeightGrad) -> tuple[int, ...]:
    """How many groups, taps i and j, column panels and row panels the tiles of the result are."""
    kh, kw = kernel.kernel
    return plan.image.groups, kh, 1 if plan.run else kw, plan.tiling.column_panels, plan.tiling.row_panels


def _finish_filters(writer: _Writer, plan: _WeightGrad, first: Index, count: int) -> None:
    """Store some filters, and call the epilogue for them."""
    source, _ = _weights_result(writer, plan)
    if writer.result is not None and not plan.direct:
        _store_filters(writer, plan, source, first, count)
    ranges = [(first, writer.f.add(first, count)), (0, plan.channels), *((0, size) for size in writer.kernel.kernel)]
    writer.finish(source if writer.result is None else writer.result, ranges)


def _finish_weights(writer: _Writer, plan: _WeightGrad) -> None:
    """Store all filters, and call the epilogue once."""
    source, _ = _weights_result(writer, plan)
    if writer.result is not None and not plan.direct:
        _store_weights(writer, plan, source)
    ranges: list[tuple[Index, Index]] = [(0, writer.kernel.filters), (0, plan.channels)]
    ranges += [(0, size) for size in writer.kernel.kernel]
    writer.finish(source if writer.result is None else writer.result, ranges)


def _emit_weight_grad(writer: _Writer, plan: _WeightGrad) -> None:
    f, kernel, image = writer.f, writer.kernel, plan.image
    frame, y_copy = writer.area(0), writer.area(plan.image_bytes)
    if kernel.batch == 0 or kernel.out_height == 0 or kernel.out_width == 0:
        result, strides = _weights_result(writer, plan)
        _zero_weights(writer, plan, result, strides[1:])
    else:
        writer.clear_frame(image, frame, plan.together)
        if not plan.y_in_place:
            fill_zero(f, writer.dtype, y_copy, plan.together * plan.y_pitch)
        with span(f, 0, kernel.batch, plan.together) as start:
            end = f.min(f.add(start, plan.together), kernel.batch)
            _copy_image(writer, plan, frame, y_copy, start, (start, end))
            pixels, y = _image_places(writer, plan, frame, y_copy, start)
            with contextlib.ExitStack() as stack:
                tile = [stack.enter_context(span(f, 0, size)) for size in _tile_grid(writer.kernel, plan)]
                _weight_tile(writer, plan, pixels, y, tile, (start, end))
    _finish_weights(writer, plan)


def _zero_weights(writer: _Writer, plan: _WeightGrad, result: Value, strides: tuple[int, int, int]) -> None:
    """The sum over nothing."""
    f, (kh, kw) = writer.f, writer.kernel.kernel
    c, i, j = strides
    with span(f, 0, kh) as tap_i, span(f, 0, kw) as tap_j, span(f, 0, plan.channels) as channel:
        row = writer.at(result, (tap_i, i), (tap_j, j), (channel, c))
        fill_zero(f, writer.dtype, row, writer.kernel.filters)


def _image_places(writer: _Writer, plan: _WeightGrad, frame: Value, y_copy: Value, start: Index) -> tuple[Value, Value]:
    """Where image ``start`` of x and y is read, the first of those that are taken together."""
    image = plan.image
    pixels = writer.at(writer.first, (start, image.strides[0])) if image.in_place else frame
    y = writer.at(writer.second, (start, writer.kernel.y_strides[0])) if plan.y_in_place else y_copy
    return pixels, y


def _copy_image(
    writer: _Writer, plan: _WeightGrad, frame: Value, y_copy: Value, start: Index, images: tuple[Index, Index]
) -> None:
    """Bring some images of x and y into the form that is read, ``start`` being the first of those taken together."""
    f, kernel, image = writer.f, writer.kernel, plan.image
    s_n, s_o, s_p, s_q = kernel.y_strides
    if not image.in_place:
        with span(f, *images) as number:
            to = writer.at(frame, (f.sub(number, start), plan.x_pitch))
            writer.frame(image, writer.first, number, to)
    if plan.y_in_place:
        return
    with span(f, *images) as number, span(f, 0, kernel.out_height) as p:
        to = writer.at(y_copy, (f.sub(number, start), plan.y_pitch), (p, plan.y_row))
        base = writer.at(writer.second, (number, s_n), (p, s_p))
        writer.copy(Matrix(to, plan.y_pixel, 1), Matrix(base, s_q, s_o), kernel.out_width, kernel.filters)


def _weight_tile(
    writer: _Writer, plan: _WeightGrad, pixels: Value, y: Value, tile: Sequence[Index], images: tuple[Index, Index]
) -> None:
    """Add what images give to one tile: of a group, for a tap (i, j), in a column panel, a row panel."""
    f, kernel, image, tiling = writer.f, writer.kernel, plan.image, plan.tiling
    group, i, j, panel, row_panel = tile
    outputs = kernel.filters // image.groups
    result, (o, c, i_stride, j_stride) = _weights_result(writer, plan)
    # Rows of tiles are runs of (j, c), of c alone, or the taps j of every channel.
    layout: Layout = "lanes" if plan.depthwise else "columns"
    a_row, c_row = (kernel.dilation[1] * image.pixel, j_stride) if plan.depthwise else (1, c)
    a_base = writer.at(pixels, (group, image.group)) if image.groups > 1 else pixels
    a_tap = writer.at(a_base, (i, kernel.dilation[0] * image.row), (j, kernel.dilation[1] * image.pixel))
    a_panel = writer.at(a_tap, (panel, tiling.width * plan.depthwise))
    b = writer.at(y, (group, outputs), (panel, tiling.width))
    c_panel = writer.at(result, (group, outputs * o), (i, i_stride), (j, j_stride), (panel, tiling.width))
    m = tiling.row_start(f, row_panel)
    with span(f, *images) as number:
        local = f.sub(number, images[0])
        at = TileOperands(
            writer.at(a_panel, (m, a_row), (local, plan.x_pitch)), a_row, kernel.stride[1] * image.pixel,
            writer.at(b, (local, plan.y_pitch)), plan.y_pixel,
            writer.at(c_panel, (m, c_row)), c_row, kernel.out_width, number, kernel.out_height,
            kernel.stride[0] * image.row, plan.y_row,
        )  # fmt: skip
        call_tile(f, tiling, layout, row_panel, panel, at)


def _store_weights(writer: _Writer, plan: _WeightGrad, source: Value) -> None:
    """Copy the scratch result to the strides of w."""
    f, filters = writer.f, writer.kernel.filters
    if _stored_taps(writer.kernel) is None:
        _store_filters(writer, plan, source, 0, filters)
        return
    # Few filters at a time, whose lines of w stay in the cache.
    whole = filters // STORE_FILTERS * STORE_FILTERS
    if whole:
        with span(f, 0, whole, STORE_FILTERS) as first:
            _store_filters(writer, plan, source, first, STORE_FILTERS)
    if whole < filters:
        _store_filters(writer, plan, source, whole, filters - whole)


def _stored_taps(kernel: Convolution) -> int | None:
    """The stride of the taps in w, where for each channel a matrix of taps × filters is transposed."""
    (kh, kw), (o, c, i, j) = kernel.kernel, kernel.w_strides
    taps = _Weights(0, 0, o, c, i, j).taps((kh, kw))
    return taps if kh * kw > 1 and c != 1 and o != 1 else None


def _store_filters(writer: _Writer, plan: _WeightGrad, source: Value, first: Index, count: int) -> None:
    """Copy some filters of the scratch result to the strides of w."""
    f, (kh, kw), channels, row = writer.f, writer.kernel.kernel, plan.channels, plan.result_row
    o, c, i, j = writer.kernel.w_strides
    origin = writer.at(source, (first, 1))
    result = writer.at(writer.result_pointer, (first, o))
    taps = _stored_taps(writer.kernel)
    if taps is not None:
        with span(f, 0, channels) as channel:
            to = Matrix(writer.at(result, (channel, c)), taps, o)
            writer.copy(to, Matrix(writer.at(origin, (channel, row)), channels * row, 1), kh * kw, count)
        return
    with span(f, 0, kh) as tap_i, span(f, 0, kw) as tap_j:
        to = Matrix(writer.at(result, (tap_i, i), (tap_j, j)), c, o)
        lines = writer.at(origin, (f.add(f.mul(tap_i, kw), tap_j), channels * row))
        writer.copy(to, Matrix(lines, row, 1), channels, count)
