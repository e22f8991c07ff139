"""The one matrix microkernel, and the copies that bring operands into the form it reads.

Input: a ``MicroTile`` (how many rows and vectors of C stay in registers). Output: the name of a function of the module,
emitted once however many contractions, convolutions and shapes use it:

    void @tile(ptr A, i64 a_row, i64 a_step, ptr B, i64 b, ptr C, i64 c, i64 K, i64 blocks, i64 a_block, i64 b_block,
               i64 accumulate, i64 last)

    C[i, j] (+)= Σ_{s < blocks} Σ_{k < K} A_s[i, k]·B_s[k, j]      0 <= i < rows, 0 <= j < vectors·lanes

``A_s`` is A moved on by ``s·a_block`` elements, with strides ``a_row`` (of i) and ``a_step`` (of k), one of which is
known: ``layout="rows"`` has k contiguous, ``layout="columns"`` has i contiguous. Rows of ``B_s`` are contiguous, ``b``
elements apart; rows of C are contiguous, ``c`` elements apart. ``accumulate`` 0 overwrites C. With ``edge`` the last
vector has ``last`` valid lanes (0 … lanes); the others are neither stored nor, where the target has masks, read.
The batch of strided blocks is what makes one function serve both products and convolutions (a block is one row of
the filter); see Georganas et al., "High-performance deep learning via a single building block" (IPDPS 2020).

Registers: ``rows·vectors`` accumulators, ``vectors`` rows of B, one broadcast element of A. Of AVX-512's 32 that is 8·3
+ 3 + 1 = 28 (8×48 float32, 8×24 float64), of AVX2's 16 it is 6·2 + 2 + 1 = 15 (6×16, 6×8) or 4·3 + 3 + 1 = 16 (4×24,
4×12), of the 16 of a machine without fused multiply-add 4·2 + 2 + 1 + a product = 12 (4×8, 4×4); an odd tile may use
all but one. The floor is two multiply-adds of ``lanes`` elements each cycle, 4·lanes flops × clock: 8×48 takes 24/2 =
12 cycles for each k, in which it also loads 8 + 3 operands of the 24 that two load ports could bring and issues about
45 of at least 72 µops. 6×16 takes 6 cycles and issues 23 µops with each row's pointer in a register (``opaque``), 28
with one from which the others follow: compared with NumPy 0.83 -> 0.95 at 1024 on a busy AMD Zen 3. So k needs no
unrolling, and the code stays small (machine code costs about 33 µs an instruction to make). A chain of multiply-adds
has a latency of four cycles: tiles of less than eight accumulators are bound by it. Tiles of 13×32, 12×32, 9×48, 8×48
and 6×64 all reach the floor from the first cache (AMD Zen 5, one thread).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import at_most, highest, is_open, is_same, lowest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.grouped import multiply_add_groups, sums_of
from staticgrad.compiler.emit.lanes import Lanes, first_lanes, joined, prefetch, transposed, vector_parts
from staticgrad.compiler.emit.llvm import (
    INDEX,
    CountedLoop,
    Function,
    Index,
    IRModule,
    Value,
    integer,
    is_number,
    lanes_of,
    memory_type,
    phi,
    vector,
)
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import MOST_VECTORS, Layout, Tiling, tile_lanes

SHORT_ROW_BYTES = 256  # of a copy
STRIDED_AT_ONCE = 4  # elements that a copy with any strides moves in a turn


# -- tiles ------------------------------------------------------------------------------------------------------


@frozen
class MicroTile:
    """The part of C that one call of a microkernel keeps in registers: ``rows`` × ``vectors`` vectors."""

    dtype: np.dtype
    rows: int
    vectors: int
    layout: Layout
    edge: bool
    terms: int = 1
    far: bool = False
    far_a: bool = False
    chains: int = 1
    exact: bool = False
    grouping: str = ""


def microkernel(module: IRModule, tile: MicroTile) -> str:
    """The name of the microkernel for ``tile`` in ``module``, emitted when first asked for."""
    stem = f"tile.{tile.dtype.name}.{tile.rows}x{tile.vectors}.{tile.layout}{'.edge' * tile.edge}{'.far' * tile.far}"
    stem += ".far_a" * tile.far_a
    stem += f".{tile.chains}chains" if tile.chains > 1 else ""
    stem += ".exact" * tile.exact
    stem += f".{tile.grouping}" if tile.grouping else ""
    if tile.terms > 1:
        return module.leaf(f"{stem}.by{tile.terms}", _TILE_PARAMS, _write_side_by_side, tile)
    return module.leaf(stem, _TILE_PARAMS, _write_microkernel, tile)


class TileWriter:
    """Loads and stores of one tile, whose last vector of a row is masked if it is an edge tile. Without masks in the
    machine operands are padded, unless the tile says that they are ``exact``: whole vectors of them may be read."""

    def __init__(self, f: Function, tile: MicroTile, last: Value) -> None:
        self.f = f
        self.tile = tile
        self.element = memory_type(tile.dtype)
        self.lanes = tile_lanes(f.target, tile.dtype)
        self.type = vector(self.element, self.lanes)
        whole = [Lanes(self.type)] * tile.vectors
        self._stored = [*whole[1:], first_lanes(f, tile.dtype, last, self.lanes)] if tile.edge else whole
        self._read = self._stored if f.target.isa.predicated or tile.exact else whole

    def _at(self, row: Value, j: int) -> Value:
        return self.f.offset(row, j * self.lanes, self.element)

    def load(self, row: Value, j: int) -> Value:
        """Vector ``j`` of a row of B."""
        return self._read[j].load(self.f, self._at(row, j))

    def prefetch_c(self, c_rows: Sequence[Value], accumulate: Value) -> None:
        """Prefetch C, which is read when the sums are complete: a tile takes longer than the third cache."""
        if not self.f.target.isa.prefetches:
            return
        with self.f.when(self.f.compare("icmp ne", accumulate, integer(0))):
            for row in c_rows:
                for j in range(self.tile.vectors):
                    prefetch(self.f, self._at(row, j))

    def store(self, c_rows: Sequence[Value], accumulate: Value, sums: Sequence[Value]) -> None:
        """Store the sums in C, added to it where they are only a part of it."""
        f = self.f
        places = [(self._stored[j], row, j) for row in c_rows for j in range(self.tile.vectors)]
        start, load, ready = f.current_block, f.label("load"), f.label("ready")
        f.branch_if(f.compare("icmp ne", accumulate, integer(0)), load, ready)
        f.block(load)
        add = {"f": "fadd", "b": "or"}.get(self.tile.dtype.kind, "add")
        loaded = (some.load(f, self._at(row, j)) for some, row, j in places)
        added = [f.binary(add, old, value) for old, value in zip(loaded, sums, strict=True)]
        f.branch(ready)
        f.block(ready)
        totals = [f.emit(v.type, phi((v, start), (total, load))) for v, total in zip(sums, added, strict=True)]
        for (some, row, j), total in zip(places, totals, strict=True):
            some.store(f, total, self._at(row, j))


def multiply_add(f: Function, dtype: np.dtype, a: Value, b: Value, c: Value) -> Value:
    """a·b + c in the arithmetic of ``dtype``: fused for floats, wrapping for integers, or-of-ands for bools."""
    if dtype.kind == "f":
        return f.fma(a, b, c)
    if dtype.kind == "b":
        return f.binary("or", f.binary("and", a, b), c)
    return f.binary("add", f.binary("mul", a, b), c)


_TILE_PARAMS = ("ptr", INDEX, INDEX, "ptr", INDEX, "ptr", *[INDEX] * 7)


def _write_microkernel(f: Function, tile: MicroTile) -> None:
    a, a_row, a_step, b, b_stride, c, c_stride, count, blocks, a_block, b_block, accumulate, last = f.params
    writer = TileWriter(f, tile, last)
    element = writer.element
    c_rows = [f.offset(c, f.mul(i, c_stride), element) for i in range(tile.rows)]
    # Along contiguous k all rows share one index from their own pointers; else one pointer of A moves.
    indexed = tile.layout == "rows"
    rows = [f.mul(i, a_row) if indexed else i for i in range(tile.rows)]
    costs = f.target.machine.products
    apart: Callable[[Value], Value] = f.opaque if costs.row_pointers else lambda pointer: pointer
    writer.prefetch_c(c_rows, accumulate)
    each, ahead = tile.rows * tile.vectors, costs.prefetch_turns
    if tile.grouping:
        add = functools.partial(multiply_add_groups, f, tile.grouping)
    else:
        add = functools.partial(multiply_add, f, tile.dtype)

    def turn(moving: Sequence[Value], index: Index, sums: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """One term: where the next one is, and the sums with it."""
        if tile.far:  # before the loads, which would wait for memory
            later = f.offset(moving[0], f.mul(b_stride, ahead), element)
            for j in range(0, tile.vectors, max(1, LINE // f.target.isa.vector_bytes)):  # a line each
                prefetch(f, f.offset(later, j * writer.lanes, element), near=False)
        if tile.far_a:
            prefetch(f, f.offset(moving[1], f.mul(a_step, ahead), element), near=False)
        b_vectors = [writer.load(moving[0], j) for j in range(tile.vectors)]
        added = []
        for i in range(tile.rows):
            base = f.offset(a_rows[i], index, element) if indexed else f.offset(moving[1], rows[i], element)
            a_vector = f.factor(element, base, writer.lanes)
            row = sums[i * tile.vectors : (i + 1) * tile.vectors]
            added += [add(a_vector, b, total) for b, total in zip(b_vectors, row, strict=True)]
        return [f.offset(p, by, element) for p, by in zip(moving, (b_stride, a_step))], added

    sums = [f.const(0, writer.type)] * (each * tile.chains)
    with f.loop(0, blocks, carry=[a, b, *sums]) as block:
        a_now, b_now, *sums = block.carried
        a_rows = [apart(f.offset(a_now, row, element)) for row in rows] if indexed else []
        moving = [b_now] if indexed else [b_now, a_now]
        whole = count if tile.chains == 1 else f.binary("and", count, integer(-tile.chains))
        with f.loop(0, whole, tile.chains, carry=[*moving, *sums]) as inner:
            now, sums = inner.carried[: len(moving)], inner.carried[len(moving) :]
            chains = [sums[start : start + each] for start in range(0, len(sums), each)]
            for number, chain in enumerate(chains):
                now, chains[number] = turn(now, f.add(inner.index, number), chain)
            inner.next(*now, *itertools.chain(*chains))
        results = inner.results
        if tile.chains > 1:
            with f.loop(whole, count, carry=results) as rest:
                now, sums = rest.carried[: len(moving)], rest.carried[len(moving) :]
                now, first = turn(now, rest.index, sums[:each])
                rest.next(*now, *first, *sums[each:])
            results = rest.results
        block.next(f.offset(a_now, a_block, element), f.offset(b_now, b_block, element), *results[len(moving) :])
    sums = block.results[2:]
    while len(sums) > each:
        half = len(sums) // 2
        plus = "fadd" if tile.dtype.kind == "f" else "add"
        sums = [f.binary(plus, *pair) for pair in zip(sums[:half], sums[half:], strict=True)]
    writer.store(c_rows, accumulate, sums)


def _write_side_by_side(f: Function, tile: MicroTile) -> None:
    """A tile of few columns: lane ``j·terms + t`` of a vector sums the products of column j whose k is t more than a
    multiple of ``terms``. B comes in that order, ``b`` elements from one such group of k to the next; of A a group is
    broadcast at once. Where ``terms`` is the number of lanes a vector is of one column: these are dot products, and B
    is read where it lies, contiguous along k, with columns ``b`` elements apart. The lanes of a column are added at the
    end, halves of groups first."""
    a, a_row, _, b, b_stride, c, c_stride, count, _, _, _, accumulate, last = f.params
    lanes, terms = tile_lanes(f.target, tile.dtype), tile.terms
    stored = replace(tile, vectors=-(-tile.vectors // terms), edge=True, terms=1)
    writer = TileWriter(f, stored, last)
    element = writer.element
    c_rows = [f.offset(c, f.mul(i, c_stride), element) for i in range(tile.rows)]
    a_rows = [f.offset(a, f.mul(i, a_row), element) for i in range(tile.rows)]
    writer.prefetch_c(c_rows, accumulate)
    in_place = terms == lanes
    apart, step = (b_stride, integer(lanes)) if in_place else (integer(lanes), b_stride)  # of vectors and groups of B
    columns = [f.mul(j, apart) for j in range(tile.vectors)]

    def add(b_vectors: list[Value], a_groups: list[Value], sums: list[Value]) -> list[Value]:
        repeated = [_repeat(f, a_group, lanes) for a_group in a_groups]
        products = [(a_vector, b_vector) for a_vector in repeated for b_vector in b_vectors]
        return [multiply_add(f, tile.dtype, *pair, total) for pair, total in zip(products, sums, strict=True)]

    carried = [b, *[f.const(0, writer.type)] * (tile.rows * tile.vectors)]
    for part in vector_parts(f, tile.dtype, count, lanes=terms, masked=True):  # what lies past A is not read
        with part.turns(carried) as (loop, some):
            b_now, *sums = loop.carried
            b_lanes = some if in_place else Lanes(writer.type)
            b_vectors = [b_lanes.load(f, f.offset(b_now, column, element)) for column in columns]
            sums = add(b_vectors, [some.load(f, f.offset(row, loop.index, element)) for row in a_rows], sums)
            loop.next(f.offset(b_now, step, element), *sums)
        carried = loop.results
    sums = []
    for i in range(tile.rows):
        sums += _add_groups(f, carried[1 + i * tile.vectors : 1 + (i + 1) * tile.vectors], terms)
    writer.store(c_rows, accumulate, sums)


def _repeat(f: Function, group: Value, lanes: int) -> Value:
    """A few elements over and over, in ``lanes`` lanes: a load that broadcasts, where they have just been loaded."""
    return f.shuffle(group, None, [lane % lanes_of(group.type) for lane in range(lanes)])


def _add_groups(f: Function, vectors: list[Value], terms: int) -> list[Value]:
    """The sums of each ``terms`` lanes, in vectors of the same length, of which there are fewer; the last one repeats
    sums to be whole."""
    lanes = lanes_of(vectors[0].type)
    while terms > 1:
        pairs = [(vectors[i], vectors[min(i + 1, len(vectors) - 1)]) for i in range(0, len(vectors), 2)]
        vectors = [
            f.binary("fadd", f.shuffle(low, high, range(0, 2 * lanes, 2)), f.shuffle(low, high, range(1, 2 * lanes, 2)))
            for low, high in pairs
        ]
        terms //= 2
    return vectors


def row_start(f: Function, tiling: Tiling, panel: Index) -> Index:
    """The first row of row panel ``panel`` (``row_panels`` gives m)."""
    if is_open(tiling.m) and isinstance(panel, int):
        if is_number(panel, 0):
            return 0
        if is_same(panel, tiling.row_panels):
            return tiling.m
    elif not is_open(tiling.m) and tiling.tall == tiling.row_panels:
        return f.min(f.mul(panel, tiling.rows), tiling.m)
    return f.add(f.mul(panel, tiling.rows - 1), f.min(panel, tiling.tall))


def rows_of(f: Function, tiling: Tiling, first: Index, end: Index | None = None) -> tuple[Index, Index]:
    """The rows of row panels ``first`` up to ``end``, or of this one alone."""
    return row_start(f, tiling, first), row_start(f, tiling, f.add(first, 1) if end is None else end)


@frozen
class TileOperands:
    """The operands of one tile: pointers, strides in elements, and the batch of blocks that is summed."""

    a: Value
    a_row: Index
    a_step: Index
    b: Value
    b_stride: Index
    c: Value
    c_stride: Index
    depth: Index
    accumulate: Index = 0
    blocks: Index = 1
    a_block: Index = 0
    b_block: Index = 0


def call_tile(
    f: Function, tiling: Tiling, layout: Layout, row_panel: Index, column_panel: Index, at: TileOperands
) -> None:
    """Call the microkernel for one tile of a tiling; the panels may be known only at run time."""
    function, valid = choose_tile(f, tiling, microkernel, layout, row_panel, column_panel)
    f.call(function, "void", at.a, at.a_row, at.a_step, at.b, at.b_stride, at.c, at.c_stride, at.depth, at.blocks,
           at.a_block, at.b_block, at.accumulate, valid)  # fmt: skip


def choose_tile(
    f: Function, tiling: Tiling, emit: Callable[[IRModule, MicroTile], str], layout: Layout, row_panel: Index,
    column_panel: Index,
) -> tuple[Value, Value]:  # fmt: skip
    """The function for one tile of a tiling, of those that ``emit`` names, and the valid lanes of its last vector."""
    dtype = sums_of(tiling.grouping) if tiling.grouping else tiling.dtype

    def name(rows: int, vectors: int, edge: bool) -> str:
        return emit(f.module, MicroTile(dtype, rows, vectors, layout, edge, tiling.terms, tiling.far, tiling.far_a,
                             tiling.chains_of_tile(rows, vectors), tiling.exact and edge, tiling.grouping))  # fmt: skip

    inner, last = tiling.column_kinds()
    end = tiling.column_panels - 1
    if tiling.has_open_sizes():
        pairs = [_open_pair(f, tiling, name, inner, last, rows) for rows in (tiling.rows, tiling.rows - 1)]
        pairs = pairs[: 1 if is_number(tiling.row_panels, 1) or len(tiling.heights()) == 1 else 2]
    else:
        pairs = [(f.symbol(name(rows, *inner)), f.symbol(name(rows, *last))) for rows in tiling.heights()]
    by_column = [choose_below(f, column_panel, end, a, b) for a, b in pairs]
    function = by_column[0] if len(by_column) == 1 else choose_below(f, row_panel, tiling.tall, *by_column)
    return function, choose_below(f, column_panel, end, *(f.index(tiling.stored(last=last)) for last in (False, True)))


def _open_pair(
    f: Function, tiling: Tiling, name: Callable[[int, int, bool], str], inner: tuple[int, bool],
    last: tuple[int, bool], rows: int,
) -> tuple[Value, Value]:  # fmt: skip
    """The functions for a row panel of an open number of rows, in the inner column panels and in the last one."""
    heights = tiling.heights()
    several = tiling.open_vectors or (last[0],)
    of_last = {(h, v): name(h, v, last[1]) for h in heights for v in several}
    chosen = _one_of(f, of_last, rows, tiling.last_vectors)
    if is_number(tiling.column_panels, 1):
        return chosen, chosen
    return _one_of(f, {(h, inner[0]): name(h, *inner) for h in heights}, rows, inner[0]), chosen


def _one_of(f: Function, names: dict[tuple[int, int], str], rows: int, vectors: int) -> Value:
    """The function for a number of rows and vectors, of which ``names`` has those that occur: it is looked up once,
    when the function under construction begins."""
    if len(names) == 1:
        return f.symbol(next(iter(names.values())))
    wide = 2 * MOST_VECTORS  # more vectors than any tile has
    number, numbers = rows * wide + vectors, tuple(sorted((h * wide + v, name) for (h, v), name in names.items()))
    if not is_open(number):
        return f.symbol(dict(numbers)[number])
    key = (_write_lookup, numbers)
    function = f.module.shared(key)
    if function is None:
        lookup = f.module.function(f.module.unique("tile_of"), [INDEX], "ptr")
        _write_lookup(lookup, numbers)
        function = f.module.share(key, lookup.finish())
    return f.opening.call(function, "ptr", number)


def _write_lookup(f: Function, numbers: Sequence[tuple[int, str]]) -> None:
    """Return the function of a number, of those in ascending order."""

    def chosen(among: Sequence[tuple[int, str]]) -> Value:
        if len(among) == 1:
            return f.symbol(among[0][1])
        half = len(among) // 2
        is_less = f.compare("icmp slt", f.params[0], integer(among[half][0]))
        return f.select(is_less, chosen(among[:half]), chosen(among[half:]))

    f.ret(chosen(numbers))


def choose_below(f: Function, index: Index, limit: int, below: Value, otherwise: Value) -> Value:
    """``below`` where ``index < limit``, else ``otherwise``."""
    if below == otherwise:
        return below
    if isinstance(index, int):
        if at_most(index + 1, limit):
            return below
        if at_most(limit, index):
            return otherwise
    return f.select(f.compare("icmp slt", f.index(index), f.index(limit)), below, otherwise)


# -- loops over constants ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def span(f: Function, start: Index, stop: Index, step: int = 1) -> Iterator[Index]:
    """``f.loop`` that is no loop where it turns once: then the index is ``start`` itself.

    Constants must not be an empty range; a range known at run time may be.
    """
    if isinstance(start, int) and isinstance(stop, int) and at_most(start + 1, stop) and at_most(stop, start + step):
        yield start
        return
    loop: CountedLoop
    with f.loop(start, stop, step) as loop:
        yield loop.index


def by_width(f: Function, tiling: Tiling, panel: Index, columns: int, write: Callable[[int], None]) -> None:
    """Call ``write`` for the columns that a panel has of ``columns`` in all: the last panel may have fewer."""
    width, ragged = tiling.width, (columns - 1) % tiling.width + 1
    if is_same(ragged, width):
        write(width)
    elif is_number(tiling.column_panels, 1) if is_open(columns) else isinstance(panel, int):
        write(ragged)
    else:
        at, last = f.index(panel), f.index(tiling.column_panels - 1)
        with f.when(f.compare("icmp slt", at, last)):
            write(width)
        with f.when(f.compare("icmp eq", at, last)):
            write(ragged)


# -- copies -----------------------------------------------------------------------------------------------------


@frozen
class Matrix:
    """A matrix in memory: the address of its first element, strides of its rows and columns in elements."""

    base: Value
    row: Index
    column: Index

    @property
    def turned(self) -> Matrix:
        """The transpose."""
        return Matrix(self.base, self.column, self.row)


def copy_matrix(
    f: Function, dtype: np.dtype, to: Matrix, source: Matrix, rows: Index, columns: Index, least: int = 0,
    along_source: bool = True, asks: bool = False,
) -> None:  # fmt: skip
    """``to[r, c] = source[r, c]``: by vectors where columns are contiguous on both sides, through register
    transposes where rows are contiguous on one side and columns on the other, else element by element.

    ``least`` is a lower bound of sizes that are known only at run time (register transposes need a whole block); with
    ``asks`` their size is asked for at run time. Register transposes go along the lines of the source, or along those
    of ``to``: of the two that should be the side whose lines may lie pages apart, since lines that are left half done
    evict each other (conflict misses).
    """
    if is_number(rows, 0) or is_number(columns, 0):
        return

    def one_by_one() -> None:
        f.call_leaf(f"copy_strided.{dtype.name}", _write_strided_copy, (dtype,), to.base, to.row, to.column,
                    source.base, source.row, source.column, rows, columns)  # fmt: skip

    if to.column == 1 and source.column == 1:
        lines = _far_lines(f.target, dtype, source.row, columns)
        _copy_rows(f, dtype, lines, to.base, to.row, source.base, source.row, rows, columns)
    elif to.row == 1 and source.row == 1:
        _copy_rows(f, dtype, 0, to.base, to.column, source.base, source.column, columns, rows)
    elif to.column == 1 and source.row == 1 and _transpose_side(f.target, dtype):
        lines = _block_lines(f.target, dtype, rows, columns, least)
        _turn(f, dtype, to, source, rows, columns, lines, along_source, asks, one_by_one)
    elif to.row == 1 and source.column == 1 and _transpose_side(f.target, dtype):
        lines = _block_lines(f.target, dtype, columns, rows, least)
        _turn(f, dtype, to.turned, source.turned, columns, rows, lines, along_source, asks, one_by_one)
    else:
        one_by_one()


def _turn(
    f: Function, dtype: np.dtype, to: Matrix, source: Matrix, rows: Index, columns: Index, lines: int,
    along_source: bool, asks: bool, otherwise: Callable[[], None],
) -> None:  # fmt: skip
    """Copy columns that are contiguous in the source as rows, by blocks of ``lines`` if there are any, or else
    ``otherwise``."""

    def transpose(lines: int) -> None:
        how = (dtype, lines, along_source)
        f.call_leaf(f"transpose.{dtype.name}", _write_transpose, how, to.base, to.row, source.base, source.column, rows,
                    columns)  # fmt: skip

    side, whole = _transpose_side(f.target, dtype), f.target.lanes(dtype)
    if lines == whole or (lines and not asks):
        transpose(lines)
    elif asks:
        done = f.label("turned")
        for width in (whole, side):
            fits, after = f.label("fits"), f.label("narrower")
            room = f.min(f.sub(rows, side), f.sub(columns, width))
            f.branch_if(f.compare("icmp sge", f.index(room), integer(0)), fits, after)
            f.block(fits)
            transpose(width)
            f.branch(done)
            f.block(after)
        otherwise()
        f.branch(done)
        f.block(done)
    else:
        otherwise()


def fill_zero(f: Function, dtype: np.dtype, to: Value, count: Index) -> None:
    """Set ``count`` elements from ``to`` on to zero."""
    if not is_number(count, 0):
        f.call_leaf(f"zero.{dtype.name}", _write_zeros, (dtype,), to, count)


def _transpose_side(target: Target, dtype: np.dtype) -> int:
    """The side of the square that 16 bytes of a register transpose; 0 for elements that are moved one by one, as all
    are without vectors."""
    side = {4: 4, 8: 2}.get(dtype.itemsize, 0)
    return side if side <= target.lanes(dtype) else 0


def _block_lines(target: Target, dtype: np.dtype, rows: Index, columns: Index, least: int) -> int:
    """The number of lines of the source in a block of a transpose to ``rows`` rows: a whole vector where there are
    enough, else the side of a square; 0 if registers do not help."""
    along, across = (lowest(s) if isinstance(s, int) else least for s in (rows, columns))
    side = _transpose_side(target, dtype)
    if side == 0 or min(along, across) < side:
        return 0
    lanes = target.lanes(dtype)
    return lanes if across >= lanes else side


def _far_lines(target: Target, dtype: np.dtype, row: Index, columns: Index) -> int:
    """The number of cache lines of each row of a copy that are worth prefetching: those of short rows that are far
    apart, which no prefetcher foresees. 0 where registers are many: their rows are not short."""
    if not target.machine.products.low_tiles or not isinstance(row, int) or not isinstance(columns, int):
        return 0
    row, nbytes = highest(row), highest(columns) * dtype.itemsize
    return -(-nbytes // LINE) if row * dtype.itemsize >= target.machine.far_bytes and nbytes <= SHORT_ROW_BYTES else 0


def _copy_rows(
    f: Function, dtype: np.dtype, far_lines: int, to: Value, to_row: Index, source: Value, source_row: Index,
    rows: Index, columns: Index,
) -> None:  # fmt: skip
    """Copy rows that are contiguous on both sides. Without masks the remainder of a row is moved in pieces of a power
    of two, if its length is known, else one by one. That number of lines of each row is prefetched some rows ahead."""
    rest = None
    if isinstance(columns, int) and not is_open(columns) and not f.target.isa.predicated:
        rest = columns % f.target.lanes(dtype)
    stem = f"copy_rows.{dtype.name}{'.far' * (far_lines > 0)}"
    f.call_leaf(stem, _write_row_copy, (dtype, rest, far_lines), to, to_row, source, source_row, rows, columns)


def _write_row_copy(f: Function, dtype: np.dtype, rest: int | None, far_lines: int) -> None:
    to, to_row, source, source_row, rows, columns = f.params
    element = memory_type(dtype)
    parts = vector_parts(f, dtype, columns, rest=rest)
    with f.loop(0, rows, carry=[to, source]) as row:
        to_now, source_now = row.carried
        if far_lines:
            later = f.offset(source_now, f.mul(source_row, f.target.machine.products.prefetch_turns), element)
            for line in range(far_lines):
                prefetch(f, f.offset(later, line * LINE, "i8"), near=False)
        for part in parts:
            with part.turns() as (loop, some):
                value = some.load(f, f.offset(source_now, loop.index, element))
                some.store(f, value, f.offset(to_now, loop.index, element))
        row.next(f.offset(to_now, to_row, element), f.offset(source_now, source_row, element))


def _write_strided_copy(f: Function, dtype: np.dtype) -> None:
    """Copy with any strides, one by one, four a turn: a load and a store each, of which processors do two a cycle."""
    to, to_row, to_column, source, source_row, source_column, rows, columns = f.params
    element = memory_type(dtype)
    several = 1 if f.target.machine.compact else STRIDED_AT_ONCE
    whole = f.binary("and", columns, integer(-several)) if several > 1 else columns

    def move(start: Index, stop: Value, at_once: int, places: list[Value]) -> list[Value]:
        with f.loop(start, stop, at_once, carry=places) as column:
            targets, sources = ([place] for place in column.carried)
            for _ in range(at_once):
                targets.append(f.offset(targets[-1], to_column, element))
                sources.append(f.offset(sources[-1], source_column, element))
            values = [f.load(element, place) for place in sources[:-1]]
            for value, place in zip(values, targets[:-1], strict=True):
                f.store(value, place)
            column.next(targets[-1], sources[-1])
        return column.results

    with f.loop(0, rows, carry=[to, source]) as row:
        to_now, source_now = row.carried
        places = move(0, whole, several, [to_now, source_now])
        if several > 1:
            move(whole, columns, 1, places)
        row.next(f.offset(to_now, to_row, element), f.offset(source_now, source_row, element))


def _write_transpose(f: Function, dtype: np.dtype, width: int, along_source: bool) -> None:
    """Copy transposed: ``to[r·to_row + c] = source[c·source_column + r]``.

    A block is ``width`` lines of the source, a vector of ``to``, by the elements that 16 bytes hold: pieces of 16 bytes
    of the lines are gathered in vectors, so that squares within 16 bytes are all that has to be transposed and lines of
    ``to`` are written by whole vectors. The last blocks of each direction overlap the ones before, so rows and columns
    must be those of a block at least.
    """
    to, to_row, source, source_column, rows, columns = f.params
    element, side = memory_type(dtype), _transpose_side(f.target, dtype)
    last_row, last_column = f.binary("sub", rows, integer(side)), f.binary("sub", columns, integer(width))

    def lines(base: Value, first: Index, stride: Value, count: int) -> list[Value]:
        return [f.offset(base, f.mul(f.add(first, i), stride), element) for i in range(count)]

    def move(sources: list[Value], r: Index, targets: list[Value], c: Index) -> None:
        pieces = [f.load(vector(element, side), f.offset(line, r, element)) for line in sources]
        square = [joined(f, pieces[i::side]) for i in range(side)]
        for value, line in zip(transposed(f, square), targets, strict=True):
            f.store(value, f.offset(line, c, element))

    if along_source:
        with f.loop(0, columns, width) as outer:
            c = f.min(outer.index, last_column)
            sources = lines(source, c, source_column, width)
            with f.loop(0, rows, side) as inner:
                r = f.min(inner.index, last_row)
                move(sources, r, lines(to, r, to_row, side), c)
    else:  # a vector of lines of the source is read whole, before the next lines of ``to``
        with f.loop(0, rows, width) as outer, f.loop(0, columns, width) as middle:
            c = f.min(middle.index, last_column)
            sources = lines(source, c, source_column, width)
            with f.loop(outer.index, f.min(f.add(outer.index, width), rows), side) as inner:
                r = f.min(inner.index, last_row)
                move(sources, r, lines(to, r, to_row, side), c)


def _write_zeros(f: Function, dtype: np.dtype) -> None:
    """Set elements to zero."""
    to, count = f.params
    for part in vector_parts(f, dtype, count, masked=False):
        with part.turns() as (loop, some):
            some.store(f, f.const(0, some.type), f.offset(to, loop.index, memory_type(dtype)))


def pack_panel(
    f: Function, tiling: Tiling, to: Value, source: Matrix, depth: Index, panel: Index, least: int, asks: bool = False
) -> None:  # fmt: skip
    """Pack the columns of one panel of a ``depth`` × n matrix as ``[depth][width]``; ``depth`` is ``least`` or more.
    With ``asks`` it is asked for at run time.

    What a last panel lacks is zero, so that whole vectors of it may be read.
    """
    dtype, width = tiling.dtype, tiling.width
    base = f.offset(source.base, f.mul(f.mul(panel, width), source.column), memory_type(dtype))

    def write(columns: int) -> None:
        if not tiling.masked if is_open(columns) else columns < width:  # masks read no vector that is not there
            fill_zero(f, dtype, to, f.mul(depth, width))
        lines = Matrix(base, source.row, source.column)
        copy_matrix(f, dtype, Matrix(to, width, 1), lines, depth, columns, least, asks=asks)

    by_width(f, tiling, panel, tiling.n, write)


def call_epilogue(f: Function, name: str, pointers: list[Value], ranges: list[tuple[Index, Index]]) -> None:
    """Call a ranged nest: pointers (the raw result first), then a (lo, hi) pair for each outer dimension."""
    f.call(name, "void", *pointers, *(bound for pair in ranges for bound in pair))
