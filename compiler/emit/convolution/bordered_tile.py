"""The tile of convolutions over narrow rows: its first and its last row leave out the taps that lie in the padding.

    void @tile(ptr A, i64 a_row, i64 a_tap, i64 a_block, ptr B, i64 b, ptr C, i64 c, i64 K, i64 taps, i64 left,
               i64 right, i64 blocks, i64 accumulate, i64 last)

    C[i, j] (+)= Σ_{s < blocks} Σ_{t < taps} Σ_{k < K} A[i·a_row + s·a_block + t·a_tap + k]·B[(s·taps + t)·K + k, j]

over all t but the first ``left`` for row 0 and the last ``right`` for the last row, where A is zero. Rows of B and C
are contiguous, ``b`` and ``c`` elements apart; ``accumulate`` and ``last`` are those of the ``microkernel``.

A row of 7 pixels with 3 taps that keep its width reads 21 pixels, of which 2 are padding: it takes a tenth less time.
The function has the loop over k three times, so it is used where the part that is left out is worth its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value
from staticgrad.compiler.emit.microkernel import MicroTile, TileWriter, Tiling, choose_tile, multiply_add
from staticgrad.frozen import frozen

_PARAMS = ("ptr", "i64", "i64", "i64", "ptr", "i64", "ptr", *["i64"] * 8)


@frozen
class BorderedOperands:
    """The addresses and strides of the operands of one tile, in elements, and the taps that are left out."""

    a: Value
    a_row: Index
    a_tap: Index
    a_block: Index
    b: Value
    b_stride: Index
    c: Value
    c_stride: Index
    depth: Index
    taps: Index
    left: Index
    right: Index
    blocks: Index
    accumulate: Index


def call_bordered_tile(
    f: Function, tiling: Tiling, row_panel: Index, column_panel: Index, at: BorderedOperands
) -> None:
    """Call the function for one tile of a tiling: only its first row panel leaves out taps on the left, only its last
    one on the right."""
    end = tiling.row_panels - 1
    left, right = _only(f, row_panel, 0, at.left), _only(f, row_panel, end, at.right)
    function, valid = choose_tile(f, tiling, _bordered_tile, "rows", row_panel, column_panel)
    integers = (at.depth, at.taps, left, right, at.blocks, at.accumulate, valid)
    before = ", ".join(str(f.index(i)) for i in (at.a_row, at.a_tap, at.a_block))
    after = ", ".join(str(f.index(i)) for i in integers)
    f.line(
        f"call void {function.text}({at.a}, {before}, {at.b}, {f.index(at.b_stride)}, {at.c}, {f.index(at.c_stride)},"
        f" {after})"
    )


def _only(f: Function, number: Index, where: int, value: Index) -> Index:
    """``value`` if ``number`` is ``where``, else 0."""
    if value == 0:
        return 0
    if isinstance(number, int):
        return value if number == where else 0
    return f.select(f.compare("icmp eq", number, f.index(where)), f.index(value), f.index(0))


def _bordered_tile(module: IRModule, tile: MicroTile) -> str:
    """The name of the function for ``tile`` in ``module``, emitted when first asked for."""
    key = ("bordered tile", tile)
    name = module.shared(key)
    if name is not None:
        return name
    stem = f"bordered_tile.{tile.dtype.name}.{tile.rows}x{tile.vectors}{'.edge' if tile.edge else ''}"
    f = module.function(module.unique(stem), _PARAMS)
    a, a_row, a_tap, a_block, b, b_stride, c, c_stride, count, taps, left, right, blocks, accumulate, last = f.params
    writer = TileWriter(f, tile, last)
    c_rows = [f.offset(c, f.mul(i, c_stride), writer.element) for i in range(tile.rows)]
    offsets = [f.mul(i, a_row) for i in range(tile.rows)]
    inner = f.binary("sub", f.binary("sub", taps, left), right)
    whole = range(tile.rows)
    writer.prefetch_c(c_rows, accumulate)

    def add(some: Sequence[int], number: Value, state: Sequence[Value]) -> list[Value]:
        """``number`` taps, for some of the rows: pointers into A and B and the sums, before and after."""
        with f.loop(0, number, carry=state) as tap:
            a_now, b_now, *sums = tap.carried
            a_rows = {i: f.offset(a_now, offsets[i], writer.element) for i in some}
            with f.loop(0, count, carry=[b_now, *sums]) as loop:
                row, *sums = loop.carried
                columns = [writer.load(row, j) for j in range(tile.vectors)]
                for i in some:
                    x = f.splat(f.load(writer.element, f.offset(a_rows[i], loop.index, writer.element)), writer.lanes)
                    for s, column in enumerate(columns, i * tile.vectors):
                        sums[s] = multiply_add(f, tile.dtype, x, column, sums[s])
                loop.next(f.offset(row, b_stride, writer.element), *sums)
            tap.next(f.offset(a_now, a_tap, writer.element), *loop.results)
        return list(tap.results)

    with f.loop(0, blocks, carry=[a, b, *[f.const(0, writer.type)] * (tile.rows * tile.vectors)]) as block:
        state = list(block.carried)
        for some, number in ((whole[1:], left), (whole, inner), (whole[:-1], right)):
            state = add(some, number, state)
        block.next(f.offset(block.carried[0], a_block, writer.element), *state[1:])
    writer.store(c_rows, accumulate, block.results[2:])
    return module.share(key, f.finish())
