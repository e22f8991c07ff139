"""Products by one short function: where a target has no vectors, and code is to be short or memory is.

Input: a contraction and a target. Output: its plan, and the function around it. All products of a dtype in a module
share the function of a row:

    void @row(ptr A, word a_step, ptr B, word b_step, word b_column, ptr C, word c_column, word n, word K)

    C[j·c_column] = Σ_{k < K} A[k·a_step]·B[k·b_step + j·b_column]      0 <= j < n

As a lane takes one element, operands may have any strides: nothing is packed or brought into another order. A few
columns have their sums side by side, so that each element of A is loaded once for them; where fewer are left, the last
one is computed several times.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.contraction.kernel import nested_spans
from staticgrad.compiler.emit.llvm import Function, Index, IRModule, Value, memory_type
from staticgrad.compiler.emit.matrix import write_matrix_kernel
from staticgrad.compiler.emit.microkernel import call_epilogue, multiply_add, span
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.plans.contraction.plain import COLUMNS_AT_ONCE, PlainProduct, PlannedProduct


def emit_product(module: IRModule, planned: PlannedProduct, name: str, epilogue: str | None) -> None:
    """Add the function of a product to ``module`` under ``name``; ``epilogue`` is the name of its ranged nest."""
    write_matrix_kernel(module, planned, name, epilogue, _write)


def _write(
    f: Function, kernel: Contraction, plan: PlainProduct, epilogue: str | None, pointers: list[Value], pool: Value
) -> None:
    element = memory_type(kernel.dtype)
    (a, *a_strides), (b, *b_strides) = (pointers[0], *kernel.a_strides), (pointers[1], *kernel.b_strides)
    c, extra = pointers[2 if kernel.store_raw else -1], pointers[3 if kernel.store_raw else 2 : -1]
    *c_batch, c_row, c_column = plan.raw_strides
    if plan.swapped:
        a, *a_strides, a_row, a_step = b, *b_strides[:-2], b_strides[-1], b_strides[-2]
        b, *b_strides, b_step, b_column = (
            pointers[0],
            *kernel.a_strides[:-2],
            kernel.a_strides[-1],
            kernel.a_strides[-2],
        )
        c_row, c_column = c_column, c_row
    else:
        *a_strides, a_row, a_step = a_strides
        *b_strides, b_step, b_column = b_strides

    def at(base: Value, *terms: tuple[Index, int]) -> Value:
        total: Index = 0
        for index, stride in terms:
            total = f.add(total, f.mul(index, stride))
        return f.offset(base, total, element)

    rows, columns = plan.sizes
    with nested_spans(f, kernel.batch) as batch:
        points: list[tuple[Index, Index]] = [(index, f.add(index, 1)) for index in batch]
        left, right = at(a, *zip(batch, a_strides, strict=True)), at(b, *zip(batch, b_strides, strict=True))
        result = at(c, *zip(batch, c_batch, strict=True))
        with span(f, 0, rows) as i:
            row = at(result, (i, c_row)) if kernel.store_raw else c
            f.call_leaf(f"row.{kernel.dtype.name}", _write_row, (kernel.dtype,), at(left, (i, a_row)), a_step, right,
                        b_step, b_column, row, c_column, columns, kernel.k)  # fmt: skip
            if epilogue is not None and not kernel.store_raw:
                whole = [(i, f.add(i, 1)), (0, columns)]
                raw = f.offset(c, f.sub(0, f.mul(i, c_row)), element)
                call_epilogue(f, epilogue, [raw, *extra], [*points, *(whole[::-1] if plan.swapped else whole)])
        if epilogue is not None and kernel.store_raw:
            call_epilogue(f, epilogue, [c, *extra], [*points, (0, kernel.m), (0, kernel.n)])


def _write_row(f: Function, dtype: np.dtype) -> None:
    a, a_step, b, b_step, b_column, c, c_column, columns, depth = f.params
    element, last = memory_type(dtype), f.sub(columns, 1)
    with f.loop(0, columns, COLUMNS_AT_ONCE) as outer:
        numbers = [outer.index, *(f.min(f.add(outer.index, i), last) for i in range(1, COLUMNS_AT_ONCE))]
        places = [f.offset(b, f.mul(j, b_column), element) for j in numbers]
        with f.loop(0, depth, carry=[a, *places, *[f.const(0, element)] * COLUMNS_AT_ONCE]) as loop:
            (now, *along), sums = loop.carried[:-COLUMNS_AT_ONCE], loop.carried[-COLUMNS_AT_ONCE:]
            factor = f.load(element, now)
            sums = [
                multiply_add(f, dtype, factor, f.load(element, place), total)
                for place, total in zip(along, sums, strict=True)
            ]
            loop.next(f.offset(now, a_step, element), *(f.offset(p, b_step, element) for p in along), *sums)
        for j, total in zip(numbers, loop.results[-COLUMNS_AT_ONCE:], strict=True):
            f.store(total, f.offset(c, f.mul(j, c_column), element))
