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

from staticgrad.compiler.emit.llvm import INDEX, Function, Index, IRModule, Value
from staticgrad.compiler.emit.microkernel import (
    MicroTile,
    TileOperands,
    TileWriter,
    choose_below,
    choose_tile,
    multiply_add,
)
from staticgrad.compiler.plans.tiles import Tiling

_PARAMS = ("ptr", INDEX, INDEX, INDEX, "ptr", INDEX, "ptr", *[INDEX] * 8)


def call_bordered_tile(
    f: Function, tiling: Tiling, row_panel: Index, column_panel: Index, at: TileOperands, tap: int, taps: int,
    beside: tuple[int, int],
) -> None:  # fmt: skip
    """Call the function for one tile of a tiling. The depth of ``at`` is that of one of ``taps`` taps, ``tap`` elements
    apart; only the first row panel leaves out taps on the left, only the last one on the right: as many as ``beside``
    says."""
    left, right, none = *map(f.index, beside), f.index(0)
    left = choose_below(f, row_panel, 1, left, none)
    right = choose_below(f, row_panel, tiling.row_panels - 1, none, right)
    function, valid = choose_tile(f, tiling, _bordered_tile, "rows", row_panel, column_panel)
    f.call(function, "void", at.a, at.a_row, tap, at.a_block, at.b, at.b_stride, at.c, at.c_stride, at.depth, taps,
           left, right, at.blocks, at.accumulate, valid)  # fmt: skip


def _bordered_tile(module: IRModule, tile: MicroTile) -> str:
    """The name of the function for ``tile`` in ``module``, emitted when first asked for."""
    stem = f"bordered_tile.{tile.dtype.name}.{tile.rows}x{tile.vectors}{'.edge' if tile.edge else ''}"
    return module.leaf(stem, _PARAMS, _write_bordered_tile, tile)


def _write_bordered_tile(f: Function, tile: MicroTile) -> None:
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
                    x = f.factor(writer.element, f.offset(a_rows[i], loop.index, writer.element), writer.lanes)
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
