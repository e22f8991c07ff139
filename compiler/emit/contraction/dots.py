"""Dot products: results of so few columns that they cannot fill a register with them.

Each element is a sum in an order that depends on the sizes and the vector width alone.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Index, Module, Value, integer, lanes_of, memory_type, vector
from staticgrad.compiler.emit.microkernel import Matrix, multiply_add, tile_lanes

DOT_ROWS = 4  # at a time


def emit_dots(f: Function, dtype: np.dtype, a: Matrix, x: Value, y: Matrix, rows: Index, depth: int) -> None:
    """``y[r] = Σ_k a[r, k]·x[k]`` with a and x contiguous along k; ``y.row`` is the stride of y.

    Four rows at a time with two vectors of k each keep eight sums going: x is loaded once for four rows, and the
    floor is the two loads a cycle that the rows of a need.
    """
    name = _dot_kernel(f.module, dtype)
    values = [v if isinstance(v, Value) else integer(v) for v in (a.row, y.row, rows, depth)]
    f.call(name, "void", a.base, values[0], x, y.base, *values[1:])


def _dot_kernel(module: Module, dtype: np.dtype) -> str:
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
    pairs, whole = (f.binary("and", depth, integer(-step)) for step in (2 * lanes, lanes))
    with f.loop(0, rows, DOT_ROWS) as outer:
        numbers = [f.min(f.add(outer.index, i), last) for i in range(DOT_ROWS)]
        lines = [f.offset(a, f.mul(r, a_row), element) for r in numbers]
        zeros = [f.const(0, type_)] * (2 * DOT_ROWS)
        with f.loop(0, pairs, 2 * lanes, carry=zeros) as main:
            sums = list(main.carried)
            for half in range(2):
                k = f.add(main.index, half * lanes)
                x_now = f.load(type_, f.offset(x, k, element))
                for i, line in enumerate(lines):
                    s = 2 * i + half
                    sums[s] = multiply_add(f, dtype, f.load(type_, f.offset(line, k, element)), x_now, sums[s])
            main.next(*sums)
        sums = [f.binary("fadd", *main.results[2 * i : 2 * i + 2]) for i in range(DOT_ROWS)]
        with f.loop(pairs, whole, lanes, carry=sums) as last_whole:  # none or one
            x_now = f.load(type_, f.offset(x, last_whole.index, element))
            last_whole.next(
                *(
                    multiply_add(f, dtype, f.load(type_, f.offset(line, last_whole.index, element)), x_now, s)
                    for line, s in zip(lines, last_whole.carried)
                )
            )
        sums = last_whole.results
        if f.target.masked:
            with f.loop(whole, depth, lanes, carry=sums) as masked:
                left = f.splat(f.binary("sub", depth, masked.index), lanes)
                mask = f.compare("icmp slt", f.lane_numbers(left.type), left)
                x_now = f.masked_load(type_, f.offset(x, masked.index, element), mask)
                masked.next(
                    *(
                        multiply_add(
                            f, dtype, f.masked_load(type_, f.offset(line, masked.index, element), mask), x_now, s
                        )
                        for line, s in zip(lines, masked.carried)
                    )
                )
            totals = [sum_lanes(f, s) for s in masked.results]
        else:
            with f.loop(whole, depth, carry=[sum_lanes(f, s) for s in sums]) as rest:
                x_one = f.load(element, f.offset(x, rest.index, element))
                ones = [f.load(element, f.offset(line, rest.index, element)) for line in lines]
                rest.next(*(multiply_add(f, dtype, one, x_one, t) for one, t in zip(ones, rest.carried)))
            totals = rest.results
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
