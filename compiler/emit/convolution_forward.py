"""Convolution forward and its transpose by data: batch-reduce products of framed images with packed weights.

* ``forward``: rows of tiles are pixels along q, columns are filters, terms are runs of (j, c), blocks are filter rows
  i. Weights are packed as ``[group][panel][i][j][c][filters]``.
* ``input_grad``: the same with the weights flipped and transposed, of a framed y. With strides above one the pixels
  of x fall into stride × stride *phases* by their remainders; each is a forward convolution of its own, of stride one
  and with the taps that reach that phase (no zeros are multiplied).

Depthwise convolutions keep all channels in one frame: vectors run along the channels, and the microkernel multiplies
element by element; terms are taps j, blocks filter rows i.

Results whose channels are contiguous are written where they belong; others are written to a scratch block and
transposed from there. The epilogue is called for each block of output rows. A kernel that takes long is cut in chunks
(``emit.parallel``): images, or blocks of rows where there are few of those.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from staticgrad.compiler.emit.convolution_images import (
    ALIAS,
    Chunks,
    Image,
    Weights,
    Writer,
    is_depthwise,
    is_run,
    seconds_of,
    slack_of,
    x_image,
)
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    Tiling,
    aligned_bytes,
    call_tile,
    choose_tiling,
    fill_zero,
    round_up,
    span,
)
from staticgrad.compiler.emit.parallel import chunk_range, cut, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution

ROW_BLOCK_BYTES = 192 << 10  # of the result between two epilogues
PANEL_BYTES = 256 << 10  # of packed weights that one pass over a block of rows uses
MANY_IMAGES = 8  # a kernel that takes long is cut between them
ROW_BLOCKS = 16  # of all images, where it is cut within them


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
    weights: Weights
    run: bool  # the taps of a filter row and their channels are contiguous
    tiling: Tiling
    tap_rows: int  # filter rows of one pass
    packed: int  # where its packed weights start, in elements

    @property
    def panel_elements(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels * self.tiling.width


@dataclass(frozen=True, slots=True)
class Forward:
    """Phases over one framed image: what both ``forward`` (one phase) and ``input_grad`` are."""

    image: Image
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
    def is_shared(self) -> bool:
        return self.share is not None

    def scratch_bytes(self, workers: int) -> int:
        return self.shared_bytes + (workers if self.is_shared else 1) * self.own_bytes

    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """Of the scratch block in which the epilogue finds the result."""
        return 0, 1, self.columns * self.tile_pixel, self.tile_pixel

    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        if self.share is None:
            _emit_forward(Writer(f, kernel, epilogue, pointers), self)
        else:
            _share_forward(Chunks(f, kernel, epilogue, pointers, pool, FORWARD_WORDS), self, self.share)

    @property
    def shared_bytes(self) -> int:
        """The scratch memory that all workers use."""
        return self.weight_bytes + (self.image_bytes if self.share == 0 else 0)

    @property
    def own_bytes(self) -> int:
        """The scratch memory that each worker needs for itself."""
        return self.tile_bytes + (0 if self.share == 0 else self.image_bytes)


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


def _forward_geometry(kernel: Convolution, target: Target) -> tuple[Image, list[tuple[_Taps, _Taps]]]:
    """The framed image and the taps of every phase."""
    if kernel.direction == "forward":
        return x_image(kernel, target), [(_forward_taps(kernel, 0), _forward_taps(kernel, 1))]
    vertical, top, height = _backward_taps(kernel, 0)
    horizontal, left, width = _backward_taps(kernel, 1)
    groups = 1 if is_depthwise(kernel) else kernel.groups
    channels = kernel.filters // groups
    aliased = channels * kernel.dtype.itemsize % ALIAS == 0
    image = Image(kernel.dtype, groups, channels, (kernel.out_height, kernel.out_width), kernel.y_strides,
                   (-top, -left), height, width, aliased, slack_of(kernel, target))  # fmt: skip
    return image, [(v, h) for v in vertical for h in horizontal]


def _phase_weights(kernel: Convolution, taps: tuple[_Taps, _Taps]) -> Weights:
    o, c, i, j = kernel.w_strides
    plain = kernel.direction == "forward" or is_depthwise(kernel)  # depthwise, o numbers both channels and filters
    out, channel = (o, c) if plain else (c, o)
    start = taps[0].start * i + taps[1].start * j
    return Weights(start, kernel.filters // kernel.groups * o, out, channel, taps[0].stride * i, taps[1].stride * j)


@functools.lru_cache(maxsize=4096)
def forward_plan(kernel: Convolution, target: Target) -> Forward:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = _forward_geometry(kernel, target)
    back = kernel.direction == "input_grad"
    rows, columns = (kernel.height, kernel.width) if back else (kernel.out_height, kernel.out_width)
    depthwise = is_depthwise(kernel)
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
        run, terms = depthwise or is_run(image, taken[1], taps[1].dilation), taken[1] * channels
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
    wanted = wanted_chunks(seconds_of(kernel, target))
    if wanted > 1 and (kernel.batch >= MANY_IMAGES or flat) and kernel.batch > 1:
        share = cut(kernel.batch, wanted)[0]
    elif wanted > 1 and not flat and rows > spacing:
        share, most = 0, min(most, -(-rows * kernel.batch // ROW_BLOCKS))
    row_block = rows if flat else round_up(-(-rows // -(-rows // most)), spacing)
    block = 0 if direct else min(row_block, rows) * columns * tile_pixel
    return Forward(
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


FORWARD_WORDS = 1  # the number of the image whose rows are shared


def _emit_forward(writer: Writer, plan: Forward) -> None:
    frame, tile = writer.area(plan.weight_bytes), writer.area(plan.weight_bytes + plan.image_bytes)
    _pack_phases(writer, plan)
    _some_images(writer, plan, (0, plan.images), frame, tile)


def _share_forward(chunks: Chunks, plan: Forward, share: int) -> None:
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


def _pack_phases(writer: Writer, plan: Forward) -> None:
    for phase in plan.phases:
        _pack_weights(writer, plan, phase, writer.f.offset(writer.area(0), phase.packed, writer.element))


def _some_images(writer: Writer, plan: Forward, images: tuple[Index, Index], frame: Value, tile: Value) -> None:
    f, image = writer.f, plan.image
    writer.clear_frame(image, frame)
    with span(f, *images) as number:
        pixels = writer.frame(image, writer.first, number, frame)
        with span(f, 0, plan.rows, plan.row_block) as p0:
            p1 = f.min(f.add(p0, plan.row_block), plan.rows)
            _image_rows(writer, plan, pixels, tile, number, (p0, p1))


def _image_rows(
    writer: Writer, plan: Forward, pixels: Value, tile: Value, number: Index, rows: tuple[Index, Index]
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


def _pack_weights(writer: Writer, plan: Forward, phase: _Phase, to: Value) -> None:
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
    writer: Writer, plan: Forward, phase: _Phase, pixels: Value, packed: Value, tile: Value, number: Index,
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


def _store_block(writer: Writer, plan: Forward, tile: Value, number: Index, block: tuple[Index, Index]) -> None:
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
