"""Convolution forward and its transpose by data: batch-reduce products of framed images with packed weights.

* ``forward``: rows of tiles are pixels along q, columns are filters, terms are runs of (j, c), blocks are filter rows
  i. Weights are packed as ``[group][panel][i][j][c][filters]``.
* ``input_grad``: the same with the weights flipped and transposed, of a framed y. With strides above one the pixels
  of x fall into stride × stride *phases* by their remainders; each is a forward convolution of its own, of stride one
  and with the taps that reach that phase (no zeros are multiplied).

Results whose channels are contiguous are written where they belong; others are written to a scratch block and
transposed from there. The epilogue is called for each block of output rows. A kernel that takes long is cut in chunks
(``emit.parallel``): images, or blocks of rows where there are few of those; before that, panels of weights where these
are many.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from staticgrad.compiler.emit.convolution_images import (
    ALIAS,
    Chunks,
    Image,
    Writer,
    is_run,
    seconds_of,
)
from staticgrad.compiler.emit.convolution_packing import Packing, Phase
from staticgrad.compiler.emit.convolution_taps import forward_geometry, phase_rows, phase_weights
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    aligned_bytes,
    call_tile,
    choose_tiling,
    round_up,
    span,
)
from staticgrad.compiler.emit.parallel import chunk_range, cut, wanted_chunks
from staticgrad.compiler.emit.target import Target
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.frozen import frozen

ROW_BLOCK_BYTES = 192 << 10  # of the result between two epilogues
PANEL_BYTES = 256 << 10  # of packed weights that one pass over a block of rows uses
MANY_IMAGES = 8  # a kernel that takes long is cut between them
ROW_BLOCKS = 16  # of all images, where it is cut within them


@frozen
class Forward:
    """Phases over one framed image: what both ``forward`` (one phase) and ``input_grad`` are."""

    image: Image
    packing: Packing
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
    packed_bytes: int
    weight_bytes: int  # of packed weights, with the buffer through which they are packed
    packs: bool  # whether the kernel itself packs its weights
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
        return self.frame_at + (self.image_bytes if self.share == 0 else 0)

    @property
    def frame_at(self) -> int:
        """Where in the scratch memory the framed image lies, behind the weights."""
        return self.weight_bytes if self.packs else 0

    def pack(self, f: Function, kernel: Convolution, weights: Value, packed: Value) -> None:
        """Write the packing of weights, into memory of ``weight_bytes``."""
        pointers = [weights, weights, *[weights] * kernel.store_raw, packed]
        self.packing.pack_all(Writer(f, kernel, None, pointers), packed, f.offset(packed, self.packed_bytes, "i8"))

    @property
    def own_bytes(self) -> int:
        """The scratch memory that each worker needs for itself."""
        return self.tile_bytes + (0 if self.share == 0 else self.image_bytes)


@functools.lru_cache(maxsize=4096)
def forward_plan(kernel: Convolution, target: Target) -> Forward:
    """The plan of a kernel without epilogue, which has no part in it."""
    image, geometry = forward_geometry(kernel)
    back = kernel.direction == "input_grad"
    rows, columns = (kernel.height, kernel.width) if back else (kernel.out_height, kernel.out_width)
    total, size = kernel.channels if back else kernel.filters, kernel.dtype.itemsize
    outputs = total // image.groups
    result = kernel.x_strides if back else kernel.y_strides
    direct = kernel.store_raw and (result[1] == 1 or total == 1)
    flat = kernel.kernel == (1, 1) and len(geometry) == 1 and (not direct or result[2] == columns * result[3])
    flat = flat and geometry[0][0].step * image.row == columns * geometry[0][1].step * image.pixel
    phases: list[Phase] = []
    packed = 0
    for taps in geometry:
        reached = taps[0].number > 0 and taps[1].number > 0
        channels = image.channels if reached else 0
        taken = (taps[0].number, taps[1].number) if reached else (1, 1)
        run, terms = is_run(image, taken[1], taps[1].dilation), taken[1] * channels
        m = rows * columns if flat else taps[1].count
        tiling = choose_tiling(target, kernel.dtype, m, outputs, terms * taken[0])
        most = max(1, PANEL_BYTES // max(1, terms * tiling.width * size))
        phase = Phase(taps, taken, channels, phase_weights(kernel, taps), run, tiling,
                       min(taken[0], most) if run else 1, packed)  # fmt: skip
        phases.append(phase)
        packed += image.groups * tiling.column_panels * phase.panel_elements
    packing = Packing.choose(kernel, tuple(phases), image.groups, outputs)
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
        packing=packing,
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
        packed_bytes=aligned_bytes(packed, kernel.dtype),
        weight_bytes=aligned_bytes(packed, kernel.dtype) + packing.buffer_bytes(kernel),
        packs=not kernel.packed,
        image_bytes=aligned_bytes(image.elements, kernel.dtype),
        tile_bytes=aligned_bytes(block, kernel.dtype),
    )


FORWARD_WORDS = 1  # the number of the image whose rows are shared


def _emit_forward(writer: Writer, plan: Forward) -> None:
    frame, tile = writer.area(plan.frame_at), writer.area(plan.frame_at + plan.image_bytes)
    if plan.packs:
        plan.packing.pack_all(writer, writer.area(0), writer.area(plan.packed_bytes))
    _some_images(writer, plan, (0, plan.images), frame, tile)


def _share_forward(chunks: Chunks, plan: Forward, share: int) -> None:
    """Images in chunks of ``share``, or for 0 one image after the other, whose blocks of rows are the chunks."""
    if plan.packs and plan.packing.worth_sharing(chunks.kernel):
        plan.packing.share(chunks)
    elif plan.packs:
        plan.packing.pack_all(chunks.own, chunks.own.area(0), chunks.own.area(plan.packed_bytes))
    part, writer = chunks.open("rows" if share == 0 else "images")
    f = part.f
    own = f.add(plan.shared_bytes, f.mul(part.worker, plan.own_bytes))
    if share:
        tile = writer.area(f.add(own, plan.image_bytes))
        _some_images(writer, plan, chunk_range(f, part.chunk, share, plan.images), writer.area(own), tile)
        chunks.run(f.finish(), -(-plan.images // share))
        return
    number, frame, image = part.table.word(0), plan.frame_at, plan.image
    pixels = writer.at(writer.first, (number, image.strides[0])) if image.in_place else writer.area(frame)
    rows = chunk_range(f, part.chunk, plan.row_block, plan.rows)
    _image_rows(writer, plan, pixels, writer.area(own), number, rows)
    name = f.finish()
    chunks.own.clear_frame(image, chunks.own.area(frame))
    with span(chunks.f, 0, plan.images) as each:
        chunks.own.frame(image, chunks.own.first, each, chunks.own.area(frame))
        chunks.table.set_word(0, each)
        chunks.run(name, -(-plan.rows // plan.row_block))


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
    f, image, packed = writer.f, plan.image, writer.area(0) if plan.packs else writer.second
    with span(f, 0, image.groups) as group:
        for phase in plan.packing.phases:
            weights = f.offset(packed, phase.packed, writer.element)
            _row_block(writer, plan, phase, pixels, weights, tile, number, group, rows)
    raw = writer.result
    if raw is None:
        raw = writer.at(tile, (rows[0], -plan.columns * plan.tile_pixel))
    elif not plan.direct:
        _store_block(writer, plan, tile, number, rows)
    outputs = plan.outputs * image.groups
    writer.finish(raw, [(number, f.add(number, 1)), (0, outputs), rows, (0, plan.columns)])


def _row_block(
    writer: Writer, plan: Forward, phase: Phase, pixels: Value, packed: Value, tile: Value, number: Index,
    group: Index, block: tuple[Index, Index],
) -> None:  # fmt: skip
    """All filters of one group for the pixels of one phase in the output rows of ``block``."""
    f, image, tiling = writer.f, plan.image, phase.tiling
    (kh, kw), channels, (vertical, horizontal) = phase.kernel, phase.channels, phase.taps
    rows = (0, 1) if plan.flat else phase_rows(f, vertical, block)
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
    a_stride = horizontal.step * image.pixel
    with span(f, 0, tiling.column_panels) as panel, span(f, 0, kh, phase.tap_rows) as i:
        b = writer.at(b_base, (panel, phase.panel_elements), (i, kw * channels * tiling.width))
        a_taps = writer.at(a_base, (i, vertical.dilation * image.row))
        c_panel = writer.at(c_base, (panel, tiling.width))
        with span(f, *rows) as p:
            a_line = writer.at(a_taps, (p, vertical.step * image.row))
            c_line = writer.at(c_panel, (p, vertical.spacing * c_row))
            with span(f, 0, tiling.row_panels) as q_panel:
                q = tiling.row_start(f, q_panel)
                at = TileOperands(writer.at(a_line, (q, a_stride)), a_stride, 1, b, tiling.width,
                                  writer.at(c_line, (q, c_stride)), c_stride, kw * channels, i)  # fmt: skip
                if phase.run:
                    blocks = f.min(phase.tap_rows, f.sub(kh, i))
                    at = replace(at, blocks=blocks, a_block=vertical.dilation * image.row,
                                 b_block=kw * channels * tiling.width)  # fmt: skip
                else:
                    at = replace(at, depth=channels, blocks=kw, a_block=horizontal.dilation * image.pixel,
                                 b_block=channels * tiling.width)  # fmt: skip
                call_tile(f, tiling, "rows", q_panel, panel, at)


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
