"""The tile whose terms are lanes: products of runs that are contiguous on both sides, summed lane by lane.

    void @tile(ptr A, i64 a_row, ptr B, i64 b_row, ptr C, i64 K, i64 blocks, i64 a_block, i64 b_block, i64 accumulate)

    C[i, j, k mod lanes] (+)= Σ_{s < blocks} Σ_{k < K} A_s[i, k]·B_s[j, k]      0 <= i < rows, 0 <= j < columns

``A_s`` is A moved on by ``s·a_block`` elements, B likewise; C is contiguous, a vector for each pair, whose lanes are
added up when all terms are in. ``accumulate`` 0 overwrites C. Neither operand is packed or broadcast: a tile of r × c
takes r + c loads for r·c multiply-adds. The remainder of K is read under masks, or one by one where there are none.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import INDEX, Function, IRModule, Value, integer, memory_type, vector
from staticgrad.compiler.plans.tiles import tile_lanes

_PARAMS = ("ptr", INDEX, "ptr", INDEX, "ptr", *[INDEX] * 5)


@frozen
class DotTile:
    dtype: np.dtype  # a float
    rows: int
    columns: int


def dot_tile(module: IRModule, tile: DotTile) -> str:
    """The name of the function for ``tile`` in ``module``, emitted when first asked for."""
    stem = f"dot_tile.{tile.dtype.name}.{tile.rows}x{tile.columns}"
    return module.leaf(stem, _PARAMS, _write_dot_tile, tile)


def _write_dot_tile(f: Function, tile: DotTile) -> None:
    a, a_row, b, b_row, c, count, blocks, a_block, b_block, accumulate = f.params
    element, lanes = memory_type(tile.dtype), tile_lanes(f.target, tile.dtype)
    type_ = vector(element, lanes)
    places = [f.offset(c, s * lanes, element) for s in range(tile.rows * tile.columns)]
    zeros = [f.const(0, type_)] * len(places)
    again = f.compare("icmp ne", accumulate, integer(0))
    sums = f.choose(again, lambda: [f.load(type_, place) for place in places], lambda: zeros)
    parts = vector_parts(f, tile.dtype, count, lanes=lanes)
    with f.loop(0, blocks, carry=[a, b, *sums]) as block:
        a_now, b_now, *sums = block.carried
        a_rows = [f.offset(a_now, f.mul(i, a_row), element) for i in range(tile.rows)]
        b_rows = [f.offset(b_now, f.mul(j, b_row), element) for j in range(tile.columns)]

        for part in parts:
            with part.turns(sums) as (loop, some):
                columns, rows = (
                    [_first_lane(f, type_, some.load(f, f.offset(line, loop.index, element))) for line in lines]
                    for lines in (b_rows, a_rows)
                )
                products = [(row, column) for row in rows for column in columns]
                loop.next(*(f.fma(x, y, s) for (x, y), s in zip(products, loop.carried, strict=True)))
            sums = loop.results
        block.next(f.offset(a_now, a_block, element), f.offset(b_now, b_block, element), *sums)
    for place, value in zip(places, block.results[2:], strict=True):
        f.store(value, place)


def _first_lane(f: Function, type_: str, value: Value) -> Value:
    """A vector of type ``type_``: ``value`` if it is one, else that in the first lane and zeros."""
    return value if type_ == value.type else f.insert(f.const(0, type_), value, 0)
