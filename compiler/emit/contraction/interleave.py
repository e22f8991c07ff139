"""Packing of narrow products: B with several terms of each column side by side (``plans/contraction/narrow.py``)."""

from __future__ import annotations

import numpy as np

from staticgrad.base.extents import at_most, is_open
from staticgrad.compiler.emit.lanes import first_lanes
from staticgrad.compiler.emit.llvm import Function, Value, is_number, lanes_of, memory_type, vector
from staticgrad.compiler.emit.microkernel import Matrix, copy_matrix, fill_zero
from staticgrad.compiler.plans.contraction.narrow import packed_elements
from staticgrad.compiler.plans.tiles import Tiling, tile_lanes


def interleave(f: Function, tiling: Tiling, to: Value, source: Matrix, depth: int) -> None:
    """Pack a ``depth`` × n matrix as ``[depth / terms][width][terms]``. What the last group of terms and the last
    columns lack is zero. For dot products as ``[n][depth]``."""
    dtype, terms, n = tiling.dtype, tiling.terms, tiling.n
    if tiling.of_dots:
        copy_matrix(f, dtype, Matrix(to, 1, depth), source, depth, n, asks=is_open(depth) or is_open(n))
        return
    element, row = memory_type(dtype), tiling.width * tiling.terms
    groups, rest = divmod(depth, terms)
    by_rows = source.column == 1 and f.target.isa.predicated
    if not is_number(rest, 0) or not (by_rows or at_most(tiling.width, n)):
        fill_zero(f, dtype, to, packed_elements(tiling, depth))
    if by_rows:
        stem = f"interleave_rows{terms}.{dtype.name}"
        f.call_leaf(stem, _interleave_rows, (dtype, terms), to, source.base, source.row, n, groups, row)
    elif source.row == 1:
        stem = f"interleave_columns{terms}.{dtype.name}"
        f.call_leaf(stem, _interleave_columns, (dtype, terms), to, source.base, source.column, n, groups, row)
    else:
        for term in range(terms):
            each = Matrix(f.offset(to, term, element), row, terms)
            line = Matrix(
                f.offset(source.base, f.mul(source.row, term), element), f.mul(source.row, terms), source.column
            )
            copy_matrix(f, dtype, each, line, groups, n)
    if not is_number(rest, 0):
        last = Matrix(f.offset(to, groups * row, element), 1, terms)
        behind = f.offset(source.base, f.mul(source.row, groups * terms), element)
        copy_matrix(f, dtype, last, Matrix(behind, source.row, source.column), rest, n)


def _interleave_rows(f: Function, dtype: np.dtype, terms: int) -> None:
    """Interleave rows that are contiguous; the target masks."""
    to, source, source_row, columns, groups, to_row = f.params
    element, lanes = memory_type(dtype), tile_lanes(f.target, dtype)
    part = lanes // terms
    with f.loop(0, groups, carry=[to, source]) as group:
        to_now, source_now = group.carried
        lines = [f.offset(source_now, f.mul(source_row, term), element) for term in range(terms)]
        with f.loop(0, columns, part) as column:
            some = first_lanes(f, dtype, f.binary("sub", columns, column.index), part)
            parts = [some.load(f, f.offset(x, column.index, element)) for x in lines]
            f.store(_zip(f, parts), f.offset(to_now, f.mul(column.index, terms), element))
        group.next(f.offset(to_now, to_row, element), f.offset(source_now, f.mul(source_row, terms), element))


def _zip(f: Function, parts: list[Value]) -> Value:
    """The first lanes of all parts, then the second ones, and so on."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [_zip_two(f, low, high) for low, high in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _zip_two(f: Function, low: Value, high: Value) -> Value:
    from_each = lanes_of(low.type)
    return f.shuffle(low, high, [lane for i in range(from_each) for lane in (i, from_each + i)])


def _interleave_columns(f: Function, dtype: np.dtype, terms: int) -> None:
    """Interleave columns that are contiguous, and move by groups of terms."""
    to, source, source_column, columns, groups, to_row = f.params
    element = memory_type(dtype)
    with f.loop(0, columns, carry=[to, source]) as column:
        to_now, source_now = column.carried
        with f.loop(0, groups, carry=[to_now, source_now]) as group:
            to_at, source_at = group.carried
            f.store(f.load(vector(element, terms), source_at), to_at)
            group.next(f.offset(to_at, to_row, element), f.offset(source_at, terms, element))
        column.next(f.offset(to_now, terms, element), f.offset(source_now, source_column, element))
