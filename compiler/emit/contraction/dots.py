"""A matrix times a vector by dot products: the matrix is contiguous along k.

Each element is a sum in an order that depends on the sizes and the vector width alone.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.lanes import vector_parts
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, memory_type, vector
from staticgrad.compiler.emit.microkernel import Matrix, multiply_add
from staticgrad.compiler.emit.nest.reduction import across_lanes
from staticgrad.compiler.plans.tiles import tile_lanes

DOT_ROWS = 8  # at a time


def emit_dots(f: Function, dtype: np.dtype, a: Matrix, x: Value, y: Matrix, rows: Index, depth: int) -> None:
    """``y[r] = Σ_k a[r, k]·x[k]`` with a and x contiguous along k; ``y.row`` is the stride of y.

    Eight rows at a time keep eight sums going, which hide the latency of a multiply-add, and eight streams from memory:
    x is loaded once for them, and the floor is the two loads a cycle that the rows of a need.
    """
    f.call_leaf(f"dots.{dtype.name}", _write_dots, (dtype,), a.base, a.row, x, y.base, y.row, rows, depth)


def _write_dots(f: Function, dtype: np.dtype) -> None:
    """Write the products. A runt of rows is computed with its last row repeated."""
    a, a_row, x, y, y_row, rows, depth = f.params
    element, lanes = memory_type(dtype), tile_lanes(f.target, dtype)
    last = f.binary("sub", rows, integer(1))
    parts = vector_parts(f, dtype, depth, lanes=lanes)
    with f.loop(0, rows, DOT_ROWS) as outer:
        numbers = [f.min(f.add(outer.index, i), last) for i in range(DOT_ROWS)]
        lines = [f.offset(a, f.mul(r, a_row), element) for r in numbers]

        sums = [f.const(0, vector(element, lanes))] * DOT_ROWS
        for part in parts:
            if part.is_single:
                sums = [across_lanes(f, "sum", dtype, total) for total in sums]
            with part.turns(sums) as (loop, some):
                x_now = some.load(f, f.offset(x, loop.index, element))
                along = (some.load(f, f.offset(line, loop.index, element)) for line in lines)
                pairs = zip(along, loop.carried, strict=True)
                loop.next(*(multiply_add(f, dtype, row, x_now, total) for row, total in pairs))
            sums = loop.results
        for number, total in zip(numbers, [across_lanes(f, "sum", dtype, total) for total in sums], strict=True):
            f.store(total, f.offset(y, f.mul(number, y_row), element))
