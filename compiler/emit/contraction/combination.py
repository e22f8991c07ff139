"""A row times a matrix of contiguous rows, as a combination of these: y[j] = Σ_k x[k]·b[k, j].

A tile of one row is as wide as registers allow, a few lines of each row of the matrix, and goes down all rows: where
they lie a page or more apart no line is foreseen. Here eight rows at once are read from end to end, streams that
prefetchers follow, and the sums wait in y, in the first cache: for each ``TERMS`` vectors of the matrix one of y is
loaded and stored. The floor is the bandwidth of the cache, or memory, that the matrix comes from. Each element is one
sum in the order of k, whatever the vectors are and however columns are shared.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, memory_type
from staticgrad.compiler.emit.microkernel import Matrix, fill_zero, multiply_add

TERMS, FEW_TERMS = 8, 2  # rows at once; fewer where code is to be short
SUMS_BYTES = 8 << 10  # of y that waits in the first cache


def emit_combination(
    f: Function, dtype: np.dtype, y: Value, x: Value, x_step: Index, b: Matrix, columns: Index, depth: Index
) -> None:  # fmt: skip
    """``y[j] = Σ_k x[k·x_step]·b[k, j]`` for ``columns`` j and ``depth`` k, with b contiguous along j."""
    f.call_leaf(f"combination.{dtype.name}", _write_combination, (dtype,), y, x, x_step, b.base, b.row, columns, depth)


def _write_combination(f: Function, dtype: np.dtype) -> None:
    """Write the combination, some columns after the other."""
    y, x, x_step, b, b_row, columns, depth = f.params
    element, terms = memory_type(dtype), FEW_TERMS if f.target.machine.compact else TERMS
    at_once = f.target.machine.sized(SUMS_BYTES) // dtype.itemsize
    whole = f.binary("and", depth, integer(-terms))

    def add(start: Index, stop: Value, several: int, y_now: Value, count: Value, places: list[Value]) -> list[Value]:
        """Add ``several`` rows at once to ``count`` sums; where the next number and the next row are."""
        with f.loop(start, stop, several, carry=places) as rows:
            x_now, b_now = rows.carried
            numbers = [f.load(element, f.offset(x_now, f.mul(i, x_step), element)) for i in range(several)]
            lines = [f.offset(b_now, f.mul(i, b_row), element) for i in range(several)]
            for part in vector_parts(f, dtype, count):
                with part.turns() as (loop, some):
                    total = some.load(f, f.offset(y_now, loop.index, element))
                    for number, line in zip(numbers, lines, strict=True):
                        along = some.load(f, f.offset(line, loop.index, element))
                        total = multiply_add(f, dtype, some.splat(f, number), along, total)
                    some.store(f, total, f.offset(y_now, loop.index, element))
            rows.next(f.offset(x_now, f.mul(several, x_step), element), f.offset(b_now, f.mul(several, b_row), element))
        return rows.results

    with f.loop(0, columns, at_once) as block:
        count = f.index(f.min(at_once, f.sub(columns, block.index)))
        y_now = f.offset(y, block.index, element)
        fill_zero(f, dtype, y_now, count)
        places = add(0, whole, terms, y_now, count, [x, f.offset(b, block.index, element)])
        add(whole, depth, 1, y_now, count, places)
