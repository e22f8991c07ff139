"""A matrix times a vector by dot products: the matrix is contiguous along k.

Each element is a sum in an order that depends on the sizes and the vector width alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.microkernel import Matrix, multiply_add, tile_lanes

DOT_ROWS = 8  # at a time


def emit_dots(f: Function, dtype: np.dtype, a: Matrix, x: Value, y: Matrix, rows: Index, depth: int) -> None:
    """``y[r] = Σ_k a[r, k]·x[k]`` with a and x contiguous along k; ``y.row`` is the stride of y.

    Eight rows at a time keep eight sums going, as many as hide the latency of a multiply-add, and as many streams as
    memory likes: x is loaded once for them, and the floor is the two loads a cycle that the rows of a need.
    """
    name = _dot_kernel(f.module, dtype)
    values = [v if isinstance(v, Value) else integer(v) for v in (a.row, y.row, rows, depth)]
    f.call(name, "void", a.base, values[0], x, y.base, *values[1:])


def _dot_kernel(module: IRModule, dtype: np.dtype) -> str:
    """``(a, a_row, x, y, y_row, rows, depth)``. A runt of rows is computed with its last row repeated."""
    key = ("dots", dtype)
    name = module.shared(key)
    if name is not None:
        return name
    f = module.function(module.unique(f"dots.{dtype.name}"), ("ptr", "i64", "ptr", "ptr", "i64", "i64", "i64"))
    a, a_row, x, y, y_row, rows, depth = f.params
    element, lanes = memory_type(dtype), tile_lanes(f.target, dtype)
    type_ = vector(element, lanes)
    last = f.binary("sub", rows, integer(1))
    whole = f.binary("and", depth, integer(-lanes))
    with f.loop(0, rows, DOT_ROWS) as outer:
        numbers = [f.min(f.add(outer.index, i), last) for i in range(DOT_ROWS)]
        lines = [f.offset(a, f.mul(r, a_row), element) for r in numbers]

        def add(sums: Sequence[Value], k: Value, load: Callable[[Value], Value]) -> list[Value]:
            x_now = load(f.offset(x, k, element))
            rows = (load(f.offset(line, k, element)) for line in lines)
            return [multiply_add(f, dtype, row, x_now, total) for row, total in zip(rows, sums, strict=True)]

        with f.loop(0, whole, lanes, carry=[f.const(0, type_)] * DOT_ROWS) as main:
            main.next(*add(main.carried, main.index, lambda at: f.load(type_, at)))
        if f.target.isa.predicated:
            with f.loop(whole, depth, lanes, carry=main.results) as rest:  # none or one
                left = f.splat(f.binary("sub", depth, rest.index), lanes)
                mask = f.compare("icmp slt", f.lane_numbers(left.type), left)
                rest.next(*add(rest.carried, rest.index, lambda at: f.masked_load(type_, at, mask)))
            totals = [sum_lanes(f, total) for total in rest.results]
        else:
            with f.loop(whole, depth, carry=[sum_lanes(f, total) for total in main.results]) as rest:
                rest.next(*add(rest.carried, rest.index, lambda at: f.load(element, at)))
            totals = list(rest.results)
        for number, total in zip(numbers, totals):
            f.store(total, f.offset(y, f.mul(number, y_row), element))
    return module.share(key, f.finish())


def sum_lanes(f: Function, value: Value) -> Value:
    """The sum of a float vector's lanes, halves first."""
    lanes = lanes_of(value.type)
    while lanes > 2:
        lanes //= 2
        low = f.shuffle(value, None, range(lanes))
        high = f.shuffle(value, None, range(lanes, 2 * lanes))
        value = f.binary("fadd", low, high)
    return f.binary("fadd", f.extract(value, 0), f.extract(value, 1)) if lanes == 2 else value
