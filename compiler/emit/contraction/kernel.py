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

from staticgrad.compiler.emit.contraction.dots import emit_dots
from staticgrad.compiler.emit.contraction.narrow import interleave
from staticgrad.compiler.emit.contraction.plan import (
    ContractionChunks,
    ContractionPlan,
    PlannedContraction,
    a_batch,
    b_batch,
)
from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, integer, memory_type
from staticgrad.compiler.emit.matrix import write_matrix_kernel
from staticgrad.compiler.emit.microkernel import (
    Matrix,
    TileOperands,
    call_epilogue,
    call_tile,
    copy_matrix,
    pack_panel,
    span,
)
from staticgrad.compiler.emit.parallel import (
    ChunkFunction,
    ChunkTable,
    chunk_range,
    divide,
    open_part,
    run_chunks,
    unravel,
)
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.modes import took
from staticgrad.frozen import frozen


def emit_contraction(module: IRModule, planned: PlannedContraction, name: str, epilogue: str | None) -> None:
    """Add the function of a contraction to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest."""
    write_matrix_kernel(module, planned, name, epilogue, _write)


def _write(
    f: Function, kernel: Contraction, plan: ContractionPlan, epilogue: str | None, pointers: list[Value], pool: Value
) -> None:
    took("product: several blocks of columns", plan.columns_per_block < plan.tiling.column_panels)
    took("product: several blocks of terms", plan.block_depth < plan.k)
    took("product: several passes over a block", plan.depth_block < plan.block_depth)
    if plan.share is None:
        b, own = _scratch(f, plan, pointers[-1])
        _ContractionEmitter(f, plan, epilogue, pointers, b, own).emit()
    else:
        _Shared(f, plan, plan.share, epilogue, pointers, pool).emit()


def emit_packing(module: IRModule, kernel: Contraction, plan: ContractionPlan, name: str) -> None:
    """Add ``void @name(ptr B, ptr packed, ptr)``, which packs the operand that ``kernel`` is given packed."""
    f = module.function(name, ["ptr"] * 3)
    source, packed, _ = f.params
    _pack(
        f, plan, packed, source, _OperandBlock(0, plan.tiling.column_panels, 0, plan.k), (0, plan.tiling.column_panels)
    )
    f.finish()


@frozen
class _OperandBlock:
    """A block of B: column panels ``first`` to ``end``, ``depth`` terms from ``start`` on."""

    first: Index
    end: Index
    start: Index
    depth: Index


def _pack(
    f: Function, plan: ContractionPlan, to: Value, b: Value, block: _OperandBlock, panels: tuple[Index, Index]
) -> None:
    """Pack some column panels of a block of B; ``to`` is where the block is."""
    tiling, element = plan.tiling, memory_type(plan.kernel.dtype)
    source = Matrix(f.offset(b, f.mul(block.start, plan.b[0]), element), *plan.b)
    if tiling.terms > 1:
        interleave(f, tiling, to, source, plan.k)
        return
    with span(f, *panels) as panel:
        skipped = f.mul(_behind(f, panel, block.first), plan.block_depth * tiling.width)
        pack_panel(f, tiling, f.offset(to, skipped, element), source, block.depth, panel, plan.last_depth)


def _behind(f: Function, index: Index, first: Index) -> Index:
    """The distance of ``index`` behind ``first``."""
    return 0 if index is first else f.sub(index, first)


def _scratch(f: Function, plan: ContractionPlan, given: Value, worker: Index = 0) -> tuple[Value, Value]:
    """The address at which B is packed, and that of the scratch memory behind it, if no worker shares them."""
    nbytes = plan.b_bytes + plan.own_bytes
    if not plan.on_stack:
        b = f.offset(given, f.mul(worker, nbytes), "i8")
    else:
        b = f.stack(nbytes) if nbytes else given
    return b, f.offset(b, plan.b_bytes, "i8")


@contextlib.contextmanager
def nested_spans(f: Function, sizes: Sequence[int]) -> Iterator[list[Index]]:
    """Loops over all points of ``sizes`` (all positive)."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(span(f, 0, size)) for size in sizes]


class _ContractionEmitter:
    """Writes the loops of one plan. B is packed at ``packed_b``; ``own`` is scratch memory of one worker."""

    def __init__(
        self,
        f: Function,
        plan: ContractionPlan,
        epilogue: str | None,
        pointers: Sequence[Value],
        packed_b: Value,
        own: Value,
    ) -> None:
        kernel = plan.kernel
        self.f = f
        self.plan = plan
        self.epilogue = epilogue
        self.element = memory_type(kernel.dtype)
        self.a, self.b = pointers[1 - plan.b_number], pointers[plan.b_number]
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

    def emit(self) -> None:
        plan, f = self.plan, self.f
        if plan.pack_b and plan.b_outside:
            with self.blocks() as block:
                self.pack_b([0] * len(plan.kernel.batch), block, (block.first, block.end))
                with nested_spans(f, plan.kernel.batch) as batch:
                    self._block(batch, block)
        else:
            with nested_spans(f, plan.kernel.batch) as batch:
                self.point(batch)

    def point(self, batch: list[Index]) -> None:
        """All of one point of the batch."""
        if self.plan.dots:
            x = self.dot_vector(batch)
            with self._groups() as (top, bottom):
                self.dot_group(batch, x, top, bottom)
            return
        with self.blocks() as block:
            self.pack_b(batch, block, (block.first, block.end))
            self._block(batch, block)

    @contextlib.contextmanager
    def blocks(self) -> Iterator[_OperandBlock]:
        """The blocks of B: all of k for some columns, then the next columns."""
        plan, f = self.plan, self.f
        with span(f, 0, plan.tiling.column_panels, plan.columns_per_block) as first:
            end = f.min(f.add(first, plan.columns_per_block), plan.tiling.column_panels)
            if plan.block_depth == plan.k:
                yield _OperandBlock(first, end, 0, plan.k)
                return
            with span(f, 0, plan.k, plan.block_depth) as start:
                yield self.block_at(first, end, start)

    def block_at(self, first: Index, end: Index, start: Index) -> _OperandBlock:
        plan, f = self.plan, self.f
        return _OperandBlock(first, end, start, f.min(plan.block_depth, f.sub(plan.k, start)))

    @contextlib.contextmanager
    def _groups(self) -> Iterator[tuple[Index, Index]]:
        """The row panels of each group."""
        panels, step = self.plan.tiling.row_panels, self.plan.panels_per_group
        with span(self.f, 0, panels, step) as top:
            yield top, self.f.min(self.f.add(top, step), panels)

    def _operand(self, base: Value, strides: Sequence[int], batch: list[Index]) -> Value:
        return self._at(base, *zip(batch, strides))

    def pack_b(self, batch: list[Index], block: _OperandBlock, panels: tuple[Index, Index]) -> None:
        """Pack some column panels of a block, if the kernel packs any."""
        plan = self.plan
        if plan.pack_b and plan.kernel.packed is None:
            base = self._operand(self.b, b_batch(plan.kernel, plan.swapped), batch)
            _pack(self.f, plan, self.packed_b, base, block, panels)

    def _block(self, batch: list[Index], block: _OperandBlock) -> None:
        """All rows of one block."""
        with self._groups() as (top, bottom):
            self.piece(batch, block, (block.first, block.end), (top, bottom))

    def piece(
        self, batch: list[Index], block: _OperandBlock, strip: tuple[Index, Index], panels: tuple[Index, Index]
    ) -> None:
        """A group of row panels by a strip of the column panels of a block, by all of the block's k."""
        plan, f = self.plan, self.f
        (first, end), (top, bottom) = strip, panels
        rows = (plan.tiling.row_start(f, top), plan.tiling.row_start(f, bottom))
        columns = (f.mul(first, plan.tiling.width), f.min(f.mul(end, plan.tiling.width), plan.n))
        if plan.k == 0:
            self._depth(batch, block, strip, panels, rows[0], columns[0], 0)
        else:
            with span(f, block.start, f.add(block.start, block.depth), plan.depth_block) as start:
                self._depth(batch, block, strip, panels, rows[0], columns[0], start)
        if plan.via_scratch:
            target = self._at(self._c(batch), (rows[0], plan.c[0]), (columns[0], plan.c[1]))
            size = (f.sub(rows[1], rows[0]), f.sub(columns[1], columns[0]))
            raw = Matrix(self.tile, plan.tile_stride, 1)
            least = self._least_piece()
            copy_matrix(f, plan.kernel.dtype, Matrix(target, *plan.c), raw, *size, least, along_source=False)
        if self.epilogue is None:
            return
        if isinstance(block.start, int):
            self._finish(batch, rows, columns)
        else:
            reached = f.index(f.add(block.start, plan.block_depth))
            with f.when(f.compare("icmp sge", reached, integer(plan.k))):
                self._finish(batch, rows, columns)

    def _c(self, batch: list[Index]) -> Value:
        return self._operand(self.c, self.plan.kernel.c_strides[:-2], batch)

    def _least_piece(self) -> int:
        """The fewest rows or columns that a piece may have."""
        tiling = self.plan.tiling
        return min(tiling.heights()[-1], tiling.n - (tiling.column_panels - 1) * tiling.width)

    def _finish(self, batch: list[Index], rows: tuple[Index, Index], columns: tuple[Index, Index]) -> None:
        """Call the epilogue for a block that is complete."""
        if self.epilogue is None:
            return
        plan, f = self.plan, self.f
        raw = self.c
        if not plan.kernel.store_raw:  # as if the whole result lay around the block
            skipped = f.add(f.mul(rows[0], plan.c[0]), f.mul(columns[0], plan.c[1]))
            raw = f.offset(self.tile, f.sub(0, skipped), self.element)
        ranges = [(index, f.add(index, 1)) for index in batch]
        ranges += [columns, rows] if plan.swapped else [rows, columns]
        call_epilogue(f, self.epilogue, [raw, *self.extra], ranges)

    def _depth(
        self,
        batch: list[Index],
        block: _OperandBlock,
        columns: tuple[Index, Index],
        panels: tuple[Index, Index],
        row0: Index,
        column0: Index,
        start: Index,
    ) -> None:
        """Add one pass over k to all tiles of a group of row panels and a strip of column panels."""
        plan, f = self.plan, self.f
        tiling, kernel = plan.tiling, plan.kernel
        depth = f.min(plan.depth_block, f.sub(plan.k, start))
        a = self._operand(self.a, a_batch(kernel, plan.swapped), batch)
        a = self._at(a, (row0, plan.a[0]), (start, plan.a[1]))
        a_row, a_step = plan.a
        if plan.pack_a:
            rows = f.sub(tiling.row_start(f, panels[1]), row0)
            last_depth = plan.k - (-(-plan.k // plan.depth_block) - 1) * plan.depth_block
            a_row, a_step = plan.packed_a_strides
            copy_matrix(f, kernel.dtype, Matrix(self.packed_a, a_row, a_step), Matrix(a, *plan.a), rows, depth,
                        min(last_depth, tiling.heights()[-1]))  # fmt: skip
            a = self.packed_a
        in_tile = plan.via_scratch or not kernel.store_raw
        c_stride = plan.tile_stride if in_tile else plan.c[0]
        c = self.tile if in_tile else self._at(self._c(batch), (row0, c_stride), (column0, 1))
        if plan.pack_b:
            b_panel = plan.block_depth * tiling.width
            term, b_stride = (1, plan.block_depth) if tiling.of_dots else (tiling.width, tiling.width * tiling.terms)
            skipped = columns[0] if plan.kernel.packed is not None else _behind(f, columns[0], block.first)
            b = self._at(self.packed_b, (skipped, b_panel), (_behind(f, start, block.start), term))
        else:
            b_panel, b_stride = tiling.width * plan.b[1], plan.b[1] if tiling.of_dots else plan.b[0]
            b = self._operand(self.b, b_batch(kernel, plan.swapped), batch)
            b = self._at(b, (start, plan.b[0]), (column0, plan.b[1]))
        tiles = (columns, panels)
        with span(f, *tiles[plan.rows_first]) as outer, span(f, *tiles[not plan.rows_first]) as inner:
            i, j = (outer, inner) if plan.rows_first else (inner, outer)
            along, row = f.sub(j, columns[0]), f.sub(tiling.row_start(f, i), row0)
            accumulate: Index = 0
            if isinstance(start, Value):
                accumulate = start
            c_at = self._at(c, (along, tiling.width), (row, c_stride))
            at = TileOperands(self._at(a, (row, a_row)), a_row, a_step, self._at(b, (along, b_panel)), b_stride,
                              c_at, c_stride, depth, accumulate)  # fmt: skip
            call_tile(f, tiling, plan.layout, i, j, at)

    def dot_vector(self, batch: list[Index], *, copied: bool = False) -> Value:
        """The column of B, contiguous; ``copied`` if that is done already."""
        plan, f, kernel = self.plan, self.f, self.plan.kernel
        x = self._operand(self.b, b_batch(kernel, plan.swapped), batch)
        if plan.b[0] == 1:
            return x
        if not copied:
            copy_matrix(f, kernel.dtype, Matrix(self.packed_b, 1, plan.k), Matrix(x, *plan.b), plan.k, 1)
        return self.packed_b

    def dot_group(self, batch: list[Index], x: Value, top: Index, bottom: Index) -> None:
        """The dot products of a group of row panels."""
        plan, f, kernel = self.plan, self.f, self.plan.kernel
        a = self._operand(self.a, a_batch(kernel, plan.swapped), batch)
        rows = (plan.tiling.row_start(f, top), plan.tiling.row_start(f, bottom))
        y = self._at(self._c(batch), (rows[0], plan.c[0])) if kernel.store_raw else self.tile
        lines = Matrix(self._at(a, (rows[0], plan.a[0])), plan.a[0], 1)
        emit_dots(f, kernel.dtype, lines, x, Matrix(y, plan.c[0], 1), f.sub(rows[1], rows[0]), plan.k)
        self._finish(batch, rows, (0, 1))


class _Shared:
    """Writes the function that has chunks run, and the functions of the chunks."""

    def __init__(
        self,
        f: Function,
        plan: ContractionPlan,
        share: ContractionChunks,
        epilogue: str | None,
        pointers: Sequence[Value],
        pool: Value,
    ) -> None:
        self.f = f
        self.plan = plan
        self.share = share
        self.epilogue = epilogue
        self.pool = pool
        self.batch = plan.kernel.batch
        if plan.on_stack and plan.b_bytes and not share.points:
            pointers = (*pointers[:-1], f.stack(plan.b_bytes))
        # The words of the table: the block's first panel and first k, then the point of the batch.
        self.table = ChunkTable.fill(f, pointers, 2 + len(self.batch))
        self.own = _ContractionEmitter(f, plan, epilogue, pointers, pointers[-1], pointers[-1])

    def emit(self) -> None:
        plan, f = self.plan, self.f
        if self.share.points:
            points = math.prod(self.batch)
            run_chunks(f, self.pool, self._points(points), self.table, -(-points // self.share.points))
        elif plan.dots:
            self.own.dot_vector([0] * len(self.batch))
            self._run_block(_OperandBlock(0, 1, 0, plan.k), None, self._pieces())
        elif plan.pack_b and not plan.b_outside:
            packing, pieces = self._packing(), self._pieces()
            with nested_spans(f, self.batch) as batch:
                for number, index in enumerate(batch):
                    self.table.set_word(2 + number, index)
                with self.own.blocks() as block:
                    self._run_block(block, packing, pieces)
        else:
            packs = plan.pack_b and plan.kernel.packed is None
            pack, pieces = self._packing() if packs else None, self._pieces()
            with self.own.blocks() as block:
                self._run_block(block, pack, pieces)

    @property
    def _beside(self) -> int:
        """The number of points of the batch that are worked on at once."""
        return 1 if self.plan.pack_b and not self.plan.b_outside else math.prod(self.batch)

    def _run_block(self, block: _OperandBlock, pack: str | None, pieces: str) -> None:
        """One block: its panels are packed, then its pieces computed."""
        f = self.f
        self.table.set_word(0, block.first)
        self.table.set_word(1, block.start)
        panels = f.sub(block.end, block.first)
        if pack is not None:
            run_chunks(f, self.pool, pack, self.table, panels)
        reached = f.add(panels, self.share.strip - 1)
        strip = self.share.strip
        strips = reached // strip if isinstance(reached, int) else f.binary("sdiv", reached, integer(strip))
        run_chunks(f, self.pool, pieces, self.table, f.mul(strips, self.plan.groups * self._beside))

    def _open(self, suffix: str) -> ChunkFunction:
        """Begin a part."""
        return open_part(self.f.module, f"{self.f.name}.{suffix}", len(self.table.pointers))

    def _emitter(self, part: ChunkFunction, packed_b: Value, own: Value) -> _ContractionEmitter:
        return _ContractionEmitter(part.f, self.plan, self.epilogue, part.table.pointers, packed_b, own)

    def _points(self, points: int) -> str:
        """A chunk: some points of the batch, with scratch memory of its worker for everything."""
        part = self._open("points")
        emitter = self._emitter(part, *_scratch(part.f, self.plan, part.table.pointers[-1], part.worker))
        low, high = chunk_range(part.f, part.chunk, self.share.points, points)
        with span(part.f, low, high) as point:
            emitter.point(unravel(part.f, point, self.batch))
        return part.f.finish()

    def _packing(self) -> str:
        """A chunk: packing one panel of B."""
        part = self._open("pack")
        packed_b = part.table.pointers[-1]
        emitter = self._emitter(part, packed_b, packed_b)
        block = self._block_of(part, emitter)
        panel = part.f.add(block.first, part.chunk)
        emitter.pack_b(self._batch_of(part), block, (panel, part.f.add(panel, 1)))
        return part.f.finish()

    def _block_of(self, part: ChunkFunction, emitter: _ContractionEmitter) -> _OperandBlock:
        """The block that the table says."""
        plan, f, first = self.plan, part.f, part.table.word(0)
        end = f.min(f.add(first, plan.columns_per_block), plan.tiling.column_panels)
        if plan.block_depth == plan.k:
            return _OperandBlock(first, end, 0, plan.k)
        return emitter.block_at(first, end, part.table.word(1))

    def _batch_of(self, part: ChunkFunction) -> list[Index]:
        """The point of the batch that the table says."""
        if self.plan.b_outside:
            return [0] * len(self.batch)
        return [part.table.word(2 + number) for number in range(len(self.batch))]

    def _pieces(self) -> str:
        """A chunk: one group of rows in one strip of columns, of one point of the batch."""
        plan = self.plan
        part = self._open("piece")
        f, packed_b = part.f, part.table.pointers[-1]
        if plan.on_stack:
            own = f.stack(plan.own_bytes) if plan.own_bytes else packed_b
        else:
            own = f.offset(packed_b, f.add(plan.b_bytes, f.mul(part.worker, plan.own_bytes)), "i8")
        emitter = self._emitter(part, packed_b, own)
        block = self._block_of(part, emitter)
        rest, group = divide(f, part.chunk, plan.groups)
        top = f.mul(group, plan.panels_per_group)
        bottom = f.min(f.add(top, plan.panels_per_group), plan.tiling.row_panels)
        strip, point = divide(f, rest, self._beside)
        each = plan.pack_b and not plan.b_outside
        batch = self._batch_of(part) if each else unravel(f, point, self.batch)
        if plan.dots:
            emitter.dot_group(batch, emitter.dot_vector(batch, copied=True), top, bottom)
        else:
            first = f.add(block.first, f.mul(strip, self.share.strip))
            end = f.min(f.add(first, self.share.strip), block.end)
            emitter.piece(batch, block, (first, end), (top, bottom))
        return f.finish()
