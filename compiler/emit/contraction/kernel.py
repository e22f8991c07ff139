"""Contraction kernels: a planned ``Contraction`` comes in, a function of the module goes out.

What is done is ``plan``'s to say, the parameters are ``emit/matrix.py``'s; here the loops are written, from the
outermost: points of the batch, blocks of B (some columns, some of k: packed for each), groups of row panels, passes
over the block's k (A is packed for each), column panels, row panels. The partial sums of a group stay in C (or scratch)
until its last k; then the group calls the epilogue for its rows and the columns of the block.

A kernel that is shared runs the same pieces as chunks (``emit.parallel``): B is packed first, a panel a chunk, for all.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

from staticgrad.base.extents import is_same, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.contraction.combination import emit_combination
from staticgrad.compiler.emit.contraction.dots import emit_dots
from staticgrad.compiler.emit.contraction.interleave import interleave
from staticgrad.compiler.emit.contraction.packing import pack_rows
from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, integer, memory_type
from staticgrad.compiler.emit.matrix import write_matrix_kernel
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    call_epilogue,
    call_tile,
    copy_matrix,
    pack_panel,
    row_start,
    rows_of,
    span,
)
from staticgrad.compiler.emit.parallel import (
    ChunkFunction,
    ChunkTable,
    chunk_range,
    divide,
    open_part,
    quotient,
    run_chunks,
    unravel,
)
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.plans.contraction.plan import (
    ContractionChunks,
    ContractionPlan,
    PlannedContraction,
    batch_strides,
)

PACKED_ROWS = 32  # of B in a chunk


def emit_contraction(module: IRModule, planned: PlannedContraction, name: str, epilogue: str | None) -> None:
    """Add the function of a contraction to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest."""
    write_matrix_kernel(module, planned, name, epilogue, _write)


def _write(
    f: Function, kernel: Contraction, plan: ContractionPlan, epilogue: str | None, pointers: list[Value], pool: Value
) -> None:
    took("product: several blocks of columns", plan.has_blocks_of_columns)
    took("product: several blocks of terms", plan.has_blocks_of_terms)
    took("product: several passes over a block", plan.has_passes)
    if plan.share is None:
        _ContractionEmitter(f, plan, epilogue, pointers, *_scratch(f, plan, pointers[-1])).emit()
    else:
        _Shared(f, plan, plan.share, epilogue, pointers, pool).emit()


def emit_packing(module: IRModule, kernel: Contraction, plan: ContractionPlan, name: str) -> None:
    """Add ``void @name(ptr B, ptr packed, ptr)``, which packs the operand that ``kernel`` is given packed."""
    f = module.function(name, ["ptr"] * 3)
    source, packed, _ = f.params
    panels = (0, plan.tiling.column_panels)
    _pack(f, plan, packed, source, _OperandBlock(panels, 0, plan.way.k), panels)
    f.finish()


Range = tuple[Index, Index]


@frozen
class _OperandBlock:
    """A block of B: some column panels, ``depth`` terms from ``start`` on."""

    panels: Range
    start: Index
    depth: Index


def _pack(f: Function, plan: ContractionPlan, to: Value, b: Value, block: _OperandBlock, panels: Range) -> None:
    """Pack some column panels of a block of B; ``to`` is where the block is."""
    tiling, element, strides = plan.tiling, memory_type(plan.kernel.dtype), plan.way.b
    source = Matrix(f.offset(b, f.mul(block.start, strides[0]), element), *strides)
    if tiling.terms > 1:
        interleave(f, tiling, to, source, plan.way.k)
        return
    if plan.packs_by_rows:
        pack_rows(f, tiling, to, plan.panel_pitch, source, block.depth, panels)
        return
    with span(f, *panels) as panel:
        skipped = f.mul(_behind(f, panel, block.panels[0]), plan.panel_pitch)
        at = f.offset(to, skipped, element)
        pack_panel(f, tiling, at, source, block.depth, panel, plan.last_depth, plan.has_open_sizes())


def _behind(f: Function, index: Index, first: Index) -> Index:
    """The distance from ``first`` to ``index``."""
    return 0 if index is first else f.sub(index, first)


def _scratch(f: Function, plan: ContractionPlan, given: Value, worker: Index = 0) -> tuple[Value, Value]:
    """The address at which B is packed, and that of the scratch memory after it, if no worker shares them."""
    b = f.offset(given, f.mul(worker, plan.b_bytes + plan.own_bytes), "i8")
    return b, f.offset(b, plan.b_bytes, "i8")


@contextlib.contextmanager
def nested_spans(f: Function, sizes: Sequence[int]) -> Iterator[list[Index]]:
    """Loops over all points of ``sizes`` (all positive)."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(span(f, 0, size)) for size in sizes]


class _ContractionEmitter:
    """Writes the loops of one plan. B is packed at ``packed_b``; ``own`` is scratch memory of one worker."""

    def __init__(
        self, f: Function, plan: ContractionPlan, epilogue: str | None, pointers: Sequence[Value], packed_b: Value,
        own: Value,
    ) -> None:  # fmt: skip
        kernel = plan.kernel
        self.f = f
        self.plan = plan
        self.epilogue = epilogue
        self.element = memory_type(kernel.dtype)
        self.a, self.b = pointers[1 - plan.b_number], pointers[plan.b_number]
        self.strides = batch_strides(kernel, plan.swapped)
        self.packed_b = self.b if kernel.packed is not None else packed_b
        self.packed_a = own
        self.tile = f.offset(own, plan.a_bytes, "i8")
        self.c = pointers[2] if kernel.store_raw else self.tile
        self.extra = pointers[3 if kernel.store_raw else 2 : -1]

    def _at(self, base: Value, *terms: tuple[Index, Index]) -> Value:
        total: Index = 0
        for index, stride in terms:
            total = self.f.add(total, self.f.mul(index, stride))
        return self.f.offset(base, total, self.element)

    def _a(self, batch: Sequence[Index]) -> Value:
        return self._at(self.a, *zip(batch, self.strides[0]))

    def _b(self, batch: Sequence[Index]) -> Value:
        return self._at(self.b, *zip(batch, self.strides[1]))

    def _c(self, batch: Sequence[Index]) -> Value:
        return self._at(self.c, *zip(batch, self.plan.kernel.c_strides[:-2]))

    # -- loops ----------------------------------------------------------------------------------------------------

    def emit(self) -> None:
        plan, sizes = self.plan, self.plan.kernel.batch
        if plan.pack_b and plan.b_outside:
            with self.blocks() as block:
                self.bring([0] * len(sizes), block, block.panels)
                with nested_spans(self.f, sizes) as batch:
                    self._groups(batch, block)
        else:
            with nested_spans(self.f, sizes) as batch:
                self.point(batch)

    def point(self, batch: list[Index]) -> None:
        """All of one point of the batch."""
        with self.blocks() as block:
            self.bring(batch, block, block.panels)
            self._groups(batch, block)

    @contextlib.contextmanager
    def blocks(self) -> Iterator[_OperandBlock]:
        """The blocks of B: all of k for some columns, then the next columns."""
        plan, f = self.plan, self.f
        with span(f, 0, plan.tiling.column_panels, plan.columns_per_block) as first:
            panels = self.panels_from(first)
            if not plan.has_blocks_of_terms:
                yield self.block_at(panels, 0)
            else:
                with span(f, 0, self.turning(plan.way.k), plan.block_depth) as start:
                    yield self.block_at(panels, start)

    def turning(self, stop: Index) -> Index:
        """The end of a loop over terms, which turns once where there may be none: tiles store zeros then."""
        return stop if lowest(self.plan.way.k) > 0 else self.f.max(stop, 1)

    def panels_from(self, first: Index) -> Range:
        """The panels of the block whose first one is ``first``."""
        return first, self.f.min(self.f.add(first, self.plan.columns_per_block), self.plan.tiling.column_panels)

    def block_at(self, panels: Range, start: Index) -> _OperandBlock:
        """The block of some panels from term ``start`` on."""
        return _OperandBlock(panels, start, self.f.min(self.plan.block_depth, self.f.sub(self.plan.way.k, start)))

    def _groups(self, batch: list[Index], block: _OperandBlock) -> None:
        """All rows of one block."""
        panels, step = self.plan.tiling.row_panels, self.plan.panels_per_group
        with span(self.f, 0, panels, step) as top:
            bottom = self.f.min(self.f.add(top, step), panels)
            self.piece(batch, block, block.panels, (top, bottom))

    def bring(self, batch: list[Index], block: _OperandBlock, panels: Range) -> None:
        """Pack some column panels of a block, if the kernel packs any, or copy the column of dot products."""
        plan, f = self.plan, self.f
        if plan.packs_b:
            _pack(f, plan, self.packed_b, self._b(batch), block, panels)
        elif plan.copies_column:
            column = Matrix(self._b(batch), *plan.way.b)
            copy_matrix(f, plan.kernel.dtype, Matrix(self.packed_b, 1, plan.way.k), column, plan.way.k, 1)

    # -- a group of row panels by a strip of column panels, by all of a block's k -----------------------------------

    def piece(self, batch: list[Index], block: _OperandBlock, strip: Range, panels: Range) -> None:
        plan, f, way = self.plan, self.f, self.plan.way
        rows = rows_of(f, plan.tiling, *panels)
        if plan.dots:
            self._dots(batch, rows)
            return
        columns = (f.mul(strip[0], plan.tiling.width), f.min(f.mul(strip[1], plan.tiling.width), way.n))
        if is_same(plan.depth_block, way.k):
            self._pass(batch, block, strip, panels, rows[0], columns[0], 0)
        else:
            with span(f, block.start, self.turning(f.add(block.start, block.depth)), plan.depth_block) as start:
                self._pass(batch, block, strip, panels, rows[0], columns[0], start)
        if plan.via_scratch:
            to = Matrix(self._at(self._c(batch), (rows[0], plan.c[0]), (columns[0], plan.c[1])), *plan.c)
            size = (f.sub(rows[1], rows[0]), f.sub(columns[1], columns[0]))
            least = min(plan.tiling.heights()[-1], lowest((way.n - 1) % plan.tiling.width + 1))  # of a piece
            block_c = Matrix(self.tile, plan.tile_stride, 1)
            copy_matrix(f, plan.kernel.dtype, to, block_c, *size, least, False, plan.has_open_sizes())
        if self.epilogue is None:
            return
        if isinstance(block.start, int):
            self._finish(batch, rows, columns)
        else:
            reached = f.index(f.add(block.start, plan.block_depth))
            with f.when(f.compare("icmp sge", reached, f.index(way.k))):
                self._finish(batch, rows, columns)

    def _dots(self, batch: list[Index], rows: Range) -> None:
        """The dot products of some rows."""
        plan, f, a = self.plan, self.f, self.plan.way.a
        x = self.packed_b if plan.copies_column else self._b(batch)
        y = self._at(self._c(batch), (rows[0], plan.c[0])) if plan.kernel.store_raw else self.tile
        lines = Matrix(self._at(self._a(batch), (rows[0], a[0])), a[0], 1)
        emit_dots(f, plan.kernel.dtype, lines, x, Matrix(y, plan.c[0], 1), f.sub(rows[1], rows[0]), plan.way.k)
        self._finish(batch, rows, (0, 1))

    def _finish(self, batch: list[Index], rows: Range, columns: Range) -> None:
        """Call the epilogue for a block that is complete."""
        if self.epilogue is None:
            return
        plan, f, raw = self.plan, self.f, self.c
        if not plan.kernel.store_raw:  # as if the whole result lay around the block
            skipped = f.add(f.mul(rows[0], plan.c[0]), f.mul(columns[0], plan.c[1]))
            raw = f.offset(self.tile, f.sub(0, skipped), self.element)
        ranges = [(index, f.add(index, 1)) for index in batch]
        ranges += [columns, rows] if plan.swapped else [rows, columns]
        call_epilogue(f, self.epilogue, [raw, *self.extra], ranges)

    def _pass(
        self, batch: list[Index], block: _OperandBlock, columns: Range, panels: Range, row0: Index, column0: Index,
        start: Index,
    ) -> None:  # fmt: skip
        """Add one pass over k to all tiles of a group of row panels and a strip of column panels."""
        plan, f, way, tiling = self.plan, self.f, self.plan.way, self.plan.tiling
        depth = f.min(plan.depth_block, f.sub(way.k, start))
        a = self._at(self._a(batch), (row0, way.a[0]), (start, way.a[1]))
        a_row, a_step = way.a
        if plan.pack_a:
            rows, least = f.sub(row_start(f, tiling, panels[1]), row0), min(plan.last_pass, tiling.heights()[-1])
            a_row, a_step = plan.packed_a_strides
            packed = Matrix(self.packed_a, a_row, a_step)
            copy_matrix(f, way.dtype, packed, Matrix(a, *way.a), rows, depth, least, asks=plan.has_open_sizes())
            a = self.packed_a
        if plan.combines:
            c = self.tile if plan.in_tile else self._at(self._c(batch), (column0, 1))
            lines = Matrix(self._at(self._b(batch), (column0, 1)), *way.b)
            count = f.sub(f.min(f.mul(columns[1], tiling.width), way.n), column0)
            emit_combination(f, way.dtype, c, a, a_step, lines, count, depth)
            return
        c_stride = plan.tile_stride if plan.in_tile else plan.c[0]
        c = self.tile if plan.in_tile else self._at(self._c(batch), (row0, c_stride), (column0, 1))
        if plan.pack_b:
            b_panel = plan.panel_pitch
            term, b_stride = (1, plan.block_depth) if tiling.of_dots else (tiling.width, tiling.width * tiling.terms)
            skipped = columns[0] if plan.kernel.packed is not None else _behind(f, columns[0], block.panels[0])
            b = self._at(self.packed_b, (skipped, b_panel), (_behind(f, start, block.start), term))
        else:
            b_panel, b_stride = tiling.width * way.b[1], way.b[1] if tiling.of_dots else way.b[0]
            b = self._at(self._b(batch), (start, way.b[0]), (column0, way.b[1]))
        tiles = (columns, panels)
        with span(f, *tiles[plan.rows_first]) as outer, span(f, *tiles[not plan.rows_first]) as inner:
            i, j = (outer, inner) if plan.rows_first else (inner, outer)
            along, row = f.sub(j, columns[0]), f.sub(row_start(f, tiling, i), row0)
            c_at = self._at(c, (along, tiling.width), (row, c_stride))
            at = TileOperands(
                self._at(a, (row, a_row)), a_row, a_step, self._at(b, (along, b_panel)), b_stride, c_at, c_stride,
                depth, start if isinstance(start, Value) else 0,
            )  # fmt: skip
            call_tile(f, tiling, plan.layout, i, j, at)


class _Shared:
    """Writes the function that has chunks run, and the functions of the chunks."""

    def __init__(
        self, f: Function, plan: ContractionPlan, share: ContractionChunks, epilogue: str | None,
        pointers: Sequence[Value], pool: Value,
    ) -> None:  # fmt: skip
        self.f = f
        self.plan = plan
        self.share = share
        self.epilogue = epilogue
        self.pool = pool
        self.batch = plan.kernel.batch
        # The words of the table: the block's first panel and first k, then the point of the batch.
        self.table = ChunkTable.fill(f, pointers, 2 + len(self.batch))
        self.own = _ContractionEmitter(f, plan, epilogue, pointers, pointers[-1], pointers[-1])
        # The number of points of the batch that are worked on at once.
        self.beside = 1 if plan.point_by_point else math.prod(self.batch)

    def emit(self) -> None:
        plan, f, strip = self.plan, self.f, self.share.strip
        if self.share.points:
            points = math.prod(self.batch)
            self._run(self._points(points), -(-points // self.share.points))
            return
        pack, pieces = self._packing() if plan.packs_b else None, self._pieces()
        with nested_spans(f, self.batch if plan.point_by_point else ()) as batch:
            for number, index in enumerate(batch):
                self.table.set_word(2 + number, index)
            with self.own.blocks() as block:
                self.table.set_word(0, block.panels[0])
                self.table.set_word(1, block.start)
                panels = f.sub(block.panels[1], block.panels[0])
                if pack is not None:
                    parts = quotient(f, f.add(block.depth, PACKED_ROWS - 1), PACKED_ROWS)
                    self._run(pack, parts if plan.packs_by_rows else panels)
                else:  # the column of dot products, if any
                    self.own.bring([0] * len(self.batch), block, (0, 1))
                reached = f.add(panels, strip - 1)
                strips = reached // strip if isinstance(reached, int) else f.binary("sdiv", reached, integer(strip))
                self._run(pieces, f.mul(strips, plan.groups * self.beside))

    def _run(self, part: str, chunks: Index) -> None:
        run_chunks(self.f, self.pool, part, self.table, chunks)

    def _open(self, suffix: str) -> tuple[ChunkFunction, Value]:
        """Begin a part; also where B is packed, or scratch memory begins."""
        part = open_part(self.f.module, f"{self.f.name}.{suffix}", len(self.table.pointers))
        return part, part.table.pointers[-1]

    def _emitter(self, part: ChunkFunction, packed_b: Value, own: Value) -> _ContractionEmitter:
        return _ContractionEmitter(part.f, self.plan, self.epilogue, part.table.pointers, packed_b, own)

    def _points(self, points: int) -> str:
        """A chunk: some points of the batch, with scratch memory of its worker for everything."""
        part, scratch = self._open("points")
        emitter = self._emitter(part, *_scratch(part.f, self.plan, scratch, part.worker))
        with span(part.f, *chunk_range(part.f, part.chunk, self.share.points, points)) as point:
            emitter.point(unravel(part.f, point, self.batch))
        return part.f.finish()

    def _packing(self) -> str:
        """A chunk: packing one panel of B, or some rows of all panels."""
        plan, (part, packed_b) = self.plan, self._open("pack")
        f = part.f
        if plan.packs_by_rows:
            skipped = f.mul(part.chunk, PACKED_ROWS)
            packed_b = f.offset(packed_b, f.mul(skipped, plan.tiling.width), memory_type(plan.kernel.dtype))
        emitter = self._emitter(part, packed_b, packed_b)
        block = self._block_of(part, emitter)
        if plan.packs_by_rows:
            depth = f.min(PACKED_ROWS, f.sub(block.depth, skipped))
            some = _OperandBlock(block.panels, f.add(block.start, skipped), depth)
            emitter.bring(self._batch_of(part), some, block.panels)
        else:
            panel = f.add(block.panels[0], part.chunk)
            emitter.bring(self._batch_of(part), block, (panel, f.add(panel, 1)))
        return f.finish()

    def _block_of(self, part: ChunkFunction, emitter: _ContractionEmitter) -> _OperandBlock:
        """The block that the table says."""
        panels = emitter.panels_from(part.table.word(0))
        return emitter.block_at(panels, part.table.word(1) if self.plan.has_blocks_of_terms else 0)

    def _batch_of(self, part: ChunkFunction) -> list[Index]:
        """The point of the batch that the table says."""
        if self.plan.b_outside:
            return [0] * len(self.batch)
        return [part.table.word(2 + number) for number in range(len(self.batch))]

    def _pieces(self) -> str:
        """A chunk: one group of rows in one strip of columns, of one point of the batch."""
        plan = self.plan
        part, packed_b = self._open("piece")
        f = part.f
        own = f.offset(packed_b, f.add(plan.b_bytes, f.mul(part.worker, plan.own_bytes)), "i8")
        emitter = self._emitter(part, packed_b, own)
        block = self._block_of(part, emitter)
        rest, group = divide(f, part.chunk, plan.groups)
        top = f.mul(group, plan.panels_per_group)
        bottom = f.min(f.add(top, plan.panels_per_group), plan.tiling.row_panels)
        strip, point = divide(f, rest, self.beside)
        batch = self._batch_of(part) if plan.point_by_point else unravel(f, point, self.batch)
        first = f.add(block.panels[0], f.mul(strip, self.share.strip))
        end = f.min(f.add(first, self.share.strip), block.panels[1])
        emitter.piece(batch, block, (first, end), (top, bottom))
        return f.finish()
