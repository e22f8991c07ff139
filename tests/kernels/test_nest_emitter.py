"""Nests run as compiled code against a plain NumPy evaluation of the same nests, on every target of this machine."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from support.nests import F32, F64, I32, I64, RUNNABLE, U8, Array, B, Compiled, check, normal, op

from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.families import emit_kernel, plan_kernel
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.emit.nest.kernel import ranged_function
from staticgrad.compiler.emit.nest.tiles import Tiles
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Instr, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.machine.target import AVX2, AVX512, GENERIC, Target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.nest.facts import dtype_of, simplify
from staticgrad.compiler.plans.nest.indices import narrowed
from staticgrad.compiler.plans.nest.planning import plan_nest
from staticgrad.compiler.plans.nest.spans import spans_of
from staticgrad.graph.optable import NO_ATTRIBUTES
from staticgrad.ops.elementwise.copies import AstypeAttributes

# -- kernels by name ------------------------------------------------------------------------------------------------


def softmax(rows: int, size: int, dtype: np.dtype = F32, *, column: bool = False, in_place: bool = False) -> Nest:
    strides = (1, rows) if column else (size, 1)
    x, y = Access(0, 0, strides), Access(0 if in_place else 1, 0, strides)
    body: tuple[Instr, ...] = (
        Load(x, dtype),
        Reduce("max", 0, dtype),
        op("subtract", 0, 1, dtype=dtype),
        op("exp", 2, dtype=dtype),
        Reduce("sum", 3, dtype),
        op("divide", 3, 4, dtype=dtype),
        Store(y, 5),
    )
    return Nest((rows,), (size,), (dtype,) if in_place else (dtype, dtype), body)


def row_sum(rows: int, size: int, kind: Any = "sum", dtype: np.dtype = F32) -> Nest:
    body = (Load(Access(0, 0, (size, 1)), dtype), Reduce(kind, 0, dtype), Store(Access(1, 0, (1, 0)), 1))
    return Nest((rows,), (size,), (dtype, dtype), body)


def column_sum(rows: int, size: int, kind: Any = "sum", dtype: np.dtype = F32) -> Nest:
    body = (Load(Access(0, 0, (1, size)), dtype), Reduce(kind, 0, dtype), Store(Access(1, 0, (1, 0)), 1))
    return Nest((size,), (rows,), (dtype, dtype), body)


def layer_norm(rows: int, size: int) -> Nest:
    x, row = Access(0, 0, (size, 1)), (0, 1)
    body = (
        Load(x, F32),
        Reduce("sum", 0, F32),
        Constant(1 / size, F32),
        op("multiply", 1, 2),
        op("subtract", 0, 3),
        op("multiply", 4, 4),
        Reduce("sum", 5, F32),
        op("multiply", 6, 2),
        Constant(1e-5, F32),
        op("add", 7, 8),
        op("sqrt", 9),
        op("divide", 4, 10),
        Load(Access(1, 0, row), F32),
        op("multiply", 11, 12),
        Load(Access(2, 0, row), F32),
        op("add", 13, 14),
        Store(Access(3, 0, (size, 1)), 15),
        Store(Access(4, 0, (1, 0)), 3),
    )
    return Nest((rows,), (size,), (F32,) * 5, body)


def transpose(rows: int, columns: int, dtype: np.dtype = F32) -> Nest:
    body = (Load(Access(0, 0, (1, rows)), dtype), Store(Access(1, 0, (columns, 1)), 0))
    return Nest((rows, columns), (), (dtype, dtype), body)


SHAPES = [(1, 1), (3, 1), (1, 7), (5, 10), (4, 16), (3, 33), (20, 5), (7, 64), (2, 100), (3, 200), (17, 19), (2, 515)]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_softmax(dtype: np.dtype) -> None:
    nests = [
        softmax(r, c, dtype, column=col, in_place=i)
        for r, c in SHAPES
        for col, i in ((False, False), (False, True), (True, False))
    ]
    data = [[normal(n.outer[0], n.inner[0], dtype=dtype), normal(n.outer[0], n.inner[0], dtype=dtype)] for n in nests]
    check(nests, [arrays[: len(n.args)] for n, arrays in zip(nests, data, strict=True)], rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [F32, F64, U8], ids=str)
def test_rows_of_every_length_have_all_their_elements(dtype: np.dtype) -> None:
    """What is left of whole vectors is run under a mask, or in halves, quarters and so on."""
    sizes = range(1, 68)
    nests = [row_sum(3, size, kind, dtype) for kind in ("sum", "max") for size in sizes]
    data = [[np.arange(3 * n.inner[0]).astype(dtype), np.zeros(3, dtype)] for n in nests]
    if dtype != U8:
        nests += [softmax(3, size, dtype) for size in sizes]
        data += [[normal(3, size, dtype=dtype), np.zeros(3 * size, dtype)] for size in sizes]
    check(nests, data, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda target: target.name)
def test_long_chains_of_instructions_are_interleaved_where_the_target_asks_for_it(target: Target) -> None:
    def lanes(size: int, name: str, dtype: np.dtype = F32, rows: int = 50) -> int:
        body = (Load(Access(0, 0, (size, 1)), dtype), op(name, 0, dtype=dtype), Store(Access(1, 0, (size + 1, 1)), 1))
        plan = plan_nest(Nest((rows, size), (), (dtype, dtype), body), target)
        assert plan is not None
        return plan.lanes

    one = target.lanes(F32)
    assert lanes(100, "exp") == one * target.machine.interleaved
    assert lanes(100, "exp", F64) == one * target.machine.interleaved // 2
    assert lanes(100, "negative") == one
    assert lanes(2 * one - 1, "exp") <= one
    assert lanes(100, "exp", rows=3) == one, "code that takes longer to make than it saves"
    plan = plan_nest(softmax(50, 100), target)
    assert plan is not None
    assert plan.lanes == one * target.machine.interleaved


def test_layer_norm() -> None:
    nests = [layer_norm(r, c) for r, c in SHAPES if c > 1]
    data = [
        [normal(r, c), normal(c), normal(c), np.zeros(r * c, F32), np.zeros(r, F32)]
        for r, c in ((n.outer[0], n.inner[0]) for n in nests)
    ]
    check(nests, data, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all"])
def test_reductions(kind: str) -> None:
    dtypes = [B] if kind in ("any", "all") else [F32, F64, I32, I64, U8, B]
    nests, data = [], []
    rng = np.random.default_rng(1)
    sizes = [(3, 1), (5, 37), (40, 6), (3, 150)]
    for dtype, (rows, size), make in itertools.product(dtypes, sizes, [row_sum, column_sum]):
        nests.append(make(rows, size, kind, dtype))
        values = rng.integers(0, 2, rows * size) if kind == "prod" else rng.integers(-5, 100, rows * size)
        results = rows if make is row_sum else size
        data.append([(values % 2 if dtype == B else values).astype(dtype), np.zeros(results, dtype)])
    check(nests, data)


@pytest.mark.parametrize("columns", [31, 333, 515, 1000])
def test_columns_are_reduced_in_blocks_of_several_sizes(columns: int) -> None:
    """Where each turn visits another row, blocks of many vectors come first, then smaller ones, then a masked one."""
    nests = [column_sum(300, columns), column_sum(9, columns, "max", F64), softmax(columns, 20, column=True)]
    rng = np.random.default_rng(columns)
    data = [
        [rng.integers(-9, 9, 300 * columns).astype(F32), np.zeros(columns, F32)],
        [normal(9, columns, dtype=F64), np.zeros(columns, F64)],
        [normal(20, columns), np.zeros(20 * columns, F32)],
    ]
    check(nests, data, rtol=3e-6, atol=1e-7)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 9, 10, 16, 17, 21])
def test_short_rows_pass_through_tiles(size: int, dtype: np.dtype) -> None:
    rng = np.random.default_rng(size)
    nests, data = [], []
    for rows in (3, 16, 53):
        for in_place in (False, True):
            nests.append(softmax(rows, size, dtype, in_place=in_place))
            data.append([normal(rows, size, dtype=dtype), np.zeros(rows * size, dtype)][: 2 - in_place])
        nests.append(row_sum(rows, size, "max", I32 if dtype == F32 else I64))
        data.append([rng.integers(-99, 99, rows * size).astype(nests[-1].args[0]), np.zeros(rows, nests[-1].args[0])])
    check(nests, data, rtol=3e-6, atol=1e-7)
    plan = plan_nest(softmax(53, 7, dtype), AVX512)
    assert plan is not None
    assert set(plan.staged) == {Access(0, 0, (7, 1)), Access(1, 0, (7, 1))}


def test_rows_that_are_also_reached_in_another_way_are_not_transposed() -> None:
    """A row is stored from its end: what lies in scratch memory would not be what memory holds."""
    body = (Load(Access(0, 0, (5, 1)), F32), Reduce("sum", 0, F32), op("add", 0, 1), Store(Access(0, 4, (5, -1)), 2))
    plan = plan_nest(Nest((64,), (5,), (F32,), body), AVX512)
    assert plan is not None
    assert not plan.staged


def apart(rows: int, size: int, dtype: np.dtype, read: int, write: int, mode: Literal["set", "add"]) -> Nest:
    """The last element is the end of the array, of what is read and of what is written."""
    x = Access(0, read - 1, (read * size, read))
    body = (Load(x, dtype), op("add", 0, 0, dtype=dtype), Store(Access(1, write - 1, (write * size, write)), 1, mode))
    return Nest((rows, size), (), (dtype, dtype), body)


@pytest.mark.parametrize(
    ("dtype", "mode", "turn"),
    [(dtype, mode, 2 * i + j) for i, dtype in enumerate([F32, F64, I64, U8]) for j, mode in enumerate(("set", "add"))],
)
def test_elements_apart_are_reached_up_to_the_last_and_no_further(
    dtype: np.dtype, mode: Literal["set", "add"], turn: int
) -> None:
    """Behind the end of an array lie the guards, in front of a page perhaps nothing. Every size meets all steps, each
    in another dtype or mode."""
    sizes = [2, 3, 7, 8, 9, 15, 16, 17, 28, 31, 33]
    steps = [(2, 1), (1, 2), (3, 2), (1, 3), (7, 1), (1, 7), (8, 8), (9, 9)]
    cases = [(size, *steps[i % len(steps)]) for i, size in enumerate(sizes, turn)]
    nests = [apart(5, size, dtype, read, write, mode) for size, read, write in cases]
    data = [
        [np.arange(5 * size * read).astype(dtype), np.arange(5 * size * write).astype(dtype)]
        for size, read, write in cases
    ]
    check(nests, data)


def test_positions_are_counted_in_half_the_width() -> None:
    narrow = Compute("astype", AstypeAttributes(I32), (0,), I32)
    body = (Iota(1), narrow, Load(Access(0, 0, (37, 1)), I32), op("add", 1, 2, dtype=I32), Reduce("min", 3, I32))
    nest = Nest((5,), (37,), (I32, I32), (*body, Store(Access(1, 0, (1, 0)), 4)))
    rng = np.random.default_rng(0)
    check([nest], [[rng.integers(-99, 99, 5 * 37).astype(I32), np.zeros(5, I32)]])
    module = IRModule(AVX512)
    emit_kernel(module, plan_kernel(nest, AVX512), "main")
    assert "trunc <" not in module.text()


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_tiles_are_turned_and_turned_back(lanes: int) -> None:
    """Rows of every width; nothing beside them is written."""
    for size in range(2, 2 * lanes + 3):
        step = size + 3
        module = IRModule(AVX512)
        f = module.function("main", ["ptr"] * 3, internal=False)
        tiles = Tiles(f, F32, lanes, size, step)
        tiles.take(f.params[0], f.params[1])
        tiles.give(f.params[1], f.params[2])
        f.finish()
        rows = np.arange(lanes * step, dtype=F32)
        columns, back = np.zeros(lanes * size, F32), np.full(lanes * step, -1, F32)
        if AVX512 not in RUNNABLE:
            continue
        native = NativeModule(module.text(), AVX512)
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(native.address("main"))
        run(rows.ctypes.data, columns.ctypes.data, back.ctypes.data)
        matrix = rows.reshape(lanes, step)[:, :size]
        np.testing.assert_array_equal(columns.reshape(size, lanes), matrix.T)
        np.testing.assert_array_equal(back.reshape(lanes, step)[:, :size], matrix)
        assert (back.reshape(lanes, step)[:, size:] == -1).all()


def test_blocks_of_vectors_cover_an_axis_once() -> None:
    for size, copies, ratio, target in itertools.product((1, 16, 100, 1000, 4096), (1, 4, 16), (2, 4, 64), RUNNABLE):
        spans = spans_of(size, 8, copies, target, 1, ratio)
        assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
        assert spans[-1].stop == size
        assert all(span.masked or (span.stop - span.start) % span.step == 0 for span in spans)


def test_rows_far_apart_are_prefetched_and_near_ones_are_not() -> None:
    def text(rows: int, columns: int) -> str:
        module = IRModule(AVX512)
        emit_kernel(module, plan_kernel(column_sum(rows, columns), AVX512), "main")
        return module.text()

    assert "llvm.prefetch" in text(4096, 2048)
    assert "llvm.prefetch" not in text(64, 2048)  # the second cache holds it
    assert "llvm.prefetch" not in text(100_000, 8)  # the next row is on the same page


def middle_sum(parts: int, rows: int, columns: int, kind: Any = "sum", dtype: np.dtype = F32) -> Nest:
    load = Load(Access(0, 0, (rows * columns, 1, columns)), dtype)
    store = Store(Access(1, 0, (columns, 1, 0)), 1)
    return Nest((parts, columns), (rows,), (dtype, dtype), (load, Reduce(kind, 0, dtype), store))


def is_in_panels(nest: Nest, target: Target) -> bool:
    plan = plan_nest(nest, target)
    return plan is not None and plan.panel is not None


@pytest.mark.parametrize("rows", [9, 16, 23])
@pytest.mark.parametrize("columns", [2048, 2500, 2051])
def test_far_rows_are_reduced_panel_by_panel(rows: int, columns: int) -> None:
    cases = [("sum", F32), ("max", F32), ("max", F64), ("sum", I64), ("min", I32), ("prod", F64)]
    cases += [("any", B), ("all", B)] if columns > 2048 else []
    nests = [middle_sum(72 // dtype.itemsize, rows, columns, kind, dtype) for kind, dtype in cases]
    assert all(is_in_panels(nest, target) for nest in nests for target in RUNNABLE)
    rng = np.random.default_rng(rows)
    data = []
    for nest, (_, dtype) in zip(nests, cases, strict=True):
        values = rng.integers(0, 2, math.prod(nest.dims)) if dtype == B else rng.integers(-2, 3, math.prod(nest.dims))
        data.append([values.astype(dtype), np.zeros(math.prod(nest.outer), dtype)])
    check(nests, data)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("shape", [(300, 25, 16), (256, 33, 40), (301, 40, 63)], ids=str)
def test_far_rows_beside_short_rows_that_are_transposed_in_registers(
    shape: tuple[int, int, int], dtype: np.dtype
) -> None:
    """sum(a + permute_dims(b, (2, 0, 1)), axis=2): rows of b are pages apart, those of a are staged."""
    rows, columns, size = shape
    body = (
        Load(Access(0, 0, (columns * size, size, 1)), dtype),
        Load(Access(1, 0, (1, size * rows, rows)), dtype),
        op("add", 0, 1, dtype=dtype),
        Reduce("sum", 2, dtype),
        Store(Access(2, 0, (columns, 1, 0)), 3),
    )
    nest = Nest((rows, columns), (size,), (dtype,) * 3, body)
    a, b = normal(rows, columns, size, dtype=dtype), normal(columns, size, rows, dtype=dtype, seed=1)
    check([nest], [[a, b, np.zeros(rows * columns, dtype)]], rtol=1e-5, atol=1e-4)


def test_what_a_panel_computes_with_is_loaded_and_stored_where_it_belongs() -> None:
    """Values of columns before and after the reductions, elements that are stored, a result over what was loaded."""
    parts, rows, columns = 16, 19, 2055
    element, column, result = (rows * columns, 1, columns), (0, 1, 0), (columns, 1, 0)
    body: tuple[Instr, ...] = (
        Load(Access(0, 0, element), F32),
        Load(Access(1, 0, column), F32),
        op("subtract", 0, 1),
        op("multiply", 2, 2),
        Reduce("sum", 3, F32),
        Reduce("max", 2, F32),
        Store(Access(2, 0, element), 2),
        Load(Access(3, 0, result), F32),
        op("multiply", 4, 1),
        op("add", 8, 7),
        op("add", 9, 5),
        Store(Access(3, 0, result), 10),
    )
    nest = Nest((parts, columns), (rows,), (F32,) * 4, body)
    assert all(is_in_panels(nest, target) for target in RUNNABLE)
    x, m = normal(parts, rows, columns), normal(columns)
    check([nest], [[x, m, np.zeros_like(x), normal(parts, columns)]], rtol=1e-5, atol=1e-5)


def test_empty_reductions_give_identities() -> None:
    cases = [("sum", F32), ("prod", F32), ("max", F32), ("min", I32), ("max", U8), ("any", B), ("all", B), ("max", I64)]
    nests = [row_sum(3, 0, kind, dtype) for kind, dtype in cases]
    nests += [column_sum(5, 0), softmax(4, 0), softmax(0, 4)]
    data: list[list[Array]] = [[np.zeros(0, dtype), np.ones(3, dtype)] for _, dtype in cases]
    data += [[np.zeros(0, F32), np.zeros(0, F32)]] * 3
    check(nests, data)


def log_sum_exp(rows: int, size: int) -> Nest:
    read, row = Load(Access(0, 0, (size, 1)), F32), Access(1, 0, (1, 0))
    steps = (Reduce("max", 0, F32), op("subtract", 0, 1), op("exp", 2), Reduce("sum", 3, F32), op("log", 4))
    return Nest((rows,), (size,), (F32, F32), (read, *steps, op("add", 5, 1), Store(row, 6)))


def test_log_sum_exp() -> None:
    nests = [log_sum_exp(r, c) for r, c in [(1, 3), (5, 16), (9, 64), (35, 10), (7, 130)]]
    check(nests, [[normal(*n.dims) * 9, np.zeros(n.outer[0], F32)] for n in nests], rtol=1e-6)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_row_has_the_same_bits_alone_and_in_a_group(dtype: np.dtype) -> None:
    for target, size in itertools.product(RUNNABLE, (16, 32, 50, 64)):
        many, one = softmax(11, size, dtype), softmax(1, size, dtype)
        plan = plan_nest(many, target)
        assert plan is not None
        assert plan.group == 4 or target is not AVX512 or size == 16
        if not plan.vector_is_inner:
            continue  # lanes are rows: another order of the sum
        values = normal(11, size, dtype=dtype).reshape(11, size) * 5
        values[6, 3] = np.nan
        run = Compiled([many, one], target)
        _, grouped = run(0, [values.ravel(), np.zeros(11 * size, dtype)])
        for row in range(11):
            _, alone = run(1, [values[row].copy(), np.zeros(size, dtype)])
            np.testing.assert_array_equal(grouped.reshape(11, size)[row], alone, err_msg=f"{target.name} {size} {row}")


def test_rows_whose_stores_meet_are_not_grouped() -> None:
    body = (Load(Access(0, 64, (64, 1)), F32), Reduce("max", 0, F32), op("subtract", 0, 1))
    shifted = Nest((8,), (64,), (F32,), (*body, Store(Access(0, 0, (64, 1)), 2)))
    plan, apart = plan_nest(shifted, AVX512), plan_nest(log_sum_exp(8, 64), AVX512)
    assert plan is not None
    assert apart is not None
    assert (plan.group, apart.group) == (1, 4)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_are_nan_where_a_nan_is(kind: str) -> None:
    nests, data = [], []
    for at, (rows, size) in itertools.product([0, 1, 9, 17, 29, 66, -1], [(2, 67), (3, 130)]):
        values = normal(rows, size)
        values.reshape(rows, size)[1, at] = np.nan
        values.reshape(rows, size)[0, at] = np.inf
        nests += [row_sum(rows, size, kind), column_sum(rows, size, kind)]
        data += [[values, np.zeros(rows, F32)], [values, np.zeros(size, F32)]]
    check(nests, data)


def test_long_sums_are_accurate() -> None:
    nests = [row_sum(1, 100_003), row_sum(1, 1_000_000), column_sum(60_000, 8)]
    data = [[np.abs(normal(n.outer[0], n.inner[0])) + 1, np.zeros(n.outer[0], F32)] for n in nests]
    check(nests, data, rtol=1e-6)


def test_sums_over_dimensions_that_do_not_merge_are_accurate() -> None:
    def nest(a: int, b: int) -> Nest:
        body = (Load(Access(0, 0, (b + 1, 1)), F32), Reduce("sum", 0, F32), Store(Access(1, 0, (0, 0)), 1))
        return Nest((), (a, b), (F32, F32), body)

    nests = [nest(300, 300), nest(2000, 20), nest(7, 20_000)]
    data = [[np.abs(normal(n.inner[0], n.inner[1] + 1)) + 1, np.zeros(1, F32)] for n in nests]
    check(nests, data, rtol=1e-6)


# -- memory ---------------------------------------------------------------------------------------------------------


def test_transposes() -> None:
    sizes = [(16, 16), (33, 18), (5, 70), (64, 48), (1, 9), (40, 8), (8, 40), (50, 13), (13, 50), (4, 40), (3, 40)]
    nests = [transpose(r, c, dtype) for r, c in sizes for dtype in (F32, F64, U8, B)]
    data = []
    for nest in nests:
        values = normal(*nest.dims) * 50
        data.append([(values > 0 if nest.args[0] == B else np.abs(values)).astype(nest.args[0])] * 2)
    check(nests, data)


def test_reversed_and_strided_accesses() -> None:
    def nest(n: int, read: int, write: int) -> Nest:
        first = -read * (n - 1) if read < 0 else 0
        last = -write * (n - 1) if write < 0 else 0
        body = (Load(Access(0, first, (read,)), F32), op("add", 0, 0), Store(Access(1, last, (write,)), 1))
        return Nest((n,), (), (F32, F32), body)

    nests = [nest(n, r, w) for n in (16, 37) for r in (1, -1, 2, -2, 3) for w in (1, -1, 2, 3)]
    check(nests, [[normal(n.dims[0], 3), normal(n.dims[0], 3, seed=1)] for n in nests])


def padding(n: int, before: int, after: int) -> Nest:
    """y = x with zeros around it."""
    body = (
        Iota(0),
        Constant(before, I64),
        op("less", 0, 1, dtype=B),
        Constant(before + n, I64),
        op("less", 0, 3, dtype=B),
        Constant(False, B),
        op("where", 2, 5, 4, dtype=B),
        Load(Access(0, -before, (1,)), F32, guard=6),
        Store(Access(1, 0, (1,)), 7),
    )
    return Nest((n + before + after,), (), (F32, F32), body)


def test_masked_accesses_are_written_so_that_every_supported_llvm_reads_them() -> None:
    """LLVM up to 21 refuses a masked access without its alignment as an operand; LLVM 22 reads that form too."""
    module = IRModule(GENERIC)
    function = module.function("accesses", ["ptr", "ptr"])
    source, result = function.params
    mask = function.load("<4 x i1>", source)
    places = function.emit("<4 x ptr>", f"getelementptr float, {source}, <4 x i64> <i64 3, i64 1, i64 2, i64 0>")
    loaded, gathered = masked.load(function, "<4 x float>", source, mask), masked.gather(function, "float", places)
    value = function.binary("fadd", loaded, gathered)
    masked.store(function, value, result, mask)
    masked.scatter(function, value, places, mask)
    function.finish()
    calls = [line for line in module.text().splitlines() if "llvm.masked" in line]
    assert len(calls) == 8
    assert all(re.search(r"i32 4, <4 x i1>" if "call" in line else r"i32, <4 x i1>", line) for line in calls)
    NativeModule(module.text(), GENERIC)


def test_guarded_loads_read_nothing_outside() -> None:
    nests = [padding(n, b, a) for n, b, a in [(5, 2, 3), (30, 17, 40), (64, 1, 0), (1, 0, 3)]]
    check(nests, [[normal(len_), np.ones(n.dims[0], F32)] for n, len_ in zip(nests, (5, 30, 64, 1), strict=True)])


@pytest.mark.parametrize("short", [U8, np.dtype(np.int16)], ids=str)
@pytest.mark.parametrize("dtype", [I32, I64, F32, F64], ids=str)
def test_what_is_cut_short_is_stored_without_what_was_cut_off(dtype: np.dtype, short: np.dtype) -> None:
    """The last element of 17 was stored as wide as it had been before, over what lies behind the result."""
    convert = op("astype", 0, dtype=short, attrs=AstypeAttributes(short))
    read, write = Load(Access(0, 0, (1,)), dtype), Store(Access(1, 0, (1,)), 1)
    nests = [Nest((n,), (), (dtype, short), (read, convert, write)) for n in range(1, 70)]
    check(nests, [[(np.arange(n) % 100).astype(dtype), np.zeros(n, short)] for n in range(1, 70)])


def test_guarded_stores_write_nothing_else() -> None:
    nests, data = [], []
    for n, mode, dtype, stride in itertools.product((7, 40), ("set", "add"), (F32, I64, U8), (1, -1, 2)):
        first = n - 1 if stride < 0 else 0
        store = Store(Access(2, first, (stride,)), 0, mode, guard=1)
        loads = Load(Access(0, 0, (1,)), dtype), Load(Access(1, 0, (1,)), B)
        nests.append(Nest((n,), (), (dtype, B, dtype), (*loads, store)))
        values = np.arange(2 * n)
        data.append([values[:n].astype(dtype), values[:n] % 3 == 0, (values + 100).astype(dtype)])
    check(nests, data)


def embedding(rows: int, size: int, *, add: bool) -> Nest:
    """y[i, j] = table[index[i], j], or table[index[i], j] += x[i, j]."""
    table = Access(1, 0, (0, 1), ((0, size),))
    index = Load(Access(0, 0, (1, 0)), I64)
    if add:
        body: tuple[Instr, ...] = (index, Load(Access(2, 0, (size, 1)), F32), Store(table, 1, "add"))
    else:
        body = (index, Load(table, F32), Store(Access(2, 0, (size, 1)), 1))
    return Nest((rows, size), (), (I64, F32, F32), body)


def test_indirect_accesses() -> None:
    nests, data = [], []
    for rows, size, add in itertools.product((1, 9, 30), (1, 5, 40), (False, True)):
        index = np.random.default_rng(2).integers(0, 4, rows)
        values = [np.round(normal(n) * 100).astype(F32) for n in (4 * size, rows * size)]
        nests.append(embedding(rows, size, add=add))
        data.append([index, *values])
    check(nests, data)


def test_gather_along_the_vector_axis() -> None:
    body = (
        Load(Access(0, 0, (1,)), I64),
        Load(Access(1, 3, (0,), ((0, 2),)), F64),
        Store(Access(2, 0, (0,), ((0, 1),)), 1),
    )
    nests = [Nest((n,), (), (I64, F64, F64), body) for n in (4, 37)]
    rng = np.random.default_rng(3)
    data = [[rng.permutation(n), normal(2 * n + 3, dtype=F64), normal(n, dtype=F64)] for n in (4, 37)]
    check(nests, data)


def max_pool(n: int, channels: int, window: int, *, channels_last: bool) -> Nest:
    out = n // window
    if channels_last:
        read = n * channels * window, window * channels, 1, n * channels, channels
        write = out * channels, channels, 1, 0, 0
    else:
        read = n * window, window, n * n, n, 1
        write = out, 1, out * out, 0, 0
    body = (Load(Access(0, 0, read), F32), Reduce("max", 0, F32), Store(Access(1, 0, write), 1))
    return Nest((out, out, channels), (window, window), (F32, F32), body)


def test_max_pool() -> None:
    sizes = [(8, 3, 2), (12, 20, 3), (40, 2, 2)]
    nests = [max_pool(n, c, w, channels_last=last) for n, c, w in sizes for last in (False, True)]
    check(nests, [[normal(12800), np.zeros(3200, F32)] for _ in nests])


def test_pooling_neither_gathers_nor_scatters() -> None:
    """Neighbours in a row with stride 3 are lanes, not planes, although these fill vectors."""
    pool = max_pool(51, 64, 3, channels_last=False)
    load, _, store = pool.body
    assert isinstance(load, Load)
    assert isinstance(store, Store)
    gradient = (Load(replace(store.access, arg=0), F32), Store(replace(load.access, arg=1), 0, "add"))
    for nest in (pool, replace(pool, body=gradient)):
        module = IRModule(AVX512)
        emit_kernel(module, plan_kernel(nest, module.target), "main")
        assert "gather" not in module.text()
        assert "scatter" not in module.text()


def test_dtypes_mix_in_one_body() -> None:
    """Bytes become floats, floats an index, the index an address; a comparison becomes a number."""

    def convert(x: int, dtype: np.dtype) -> Compute:
        return op("astype", x, dtype=dtype, attrs=AstypeAttributes(dtype))

    def nest(rows: int, size: int) -> Nest:
        body = (
            Load(Access(0, 0, (size, 1)), U8),
            convert(0, F32),
            convert(1, I64),
            Load(Access(1, 0, (0, 0), ((2, 1),)), F64),
            convert(3, F32),
            op("add", 1, 4),
            op("less", 4, 1, dtype=B),
            convert(6, I64),
            Reduce("sum", 7, I64),
            convert(8, I32),
            Store(Access(2, 0, (size, 1)), 5),
            Store(Access(3, 0, (1, 0)), 9),
        )
        return Nest((rows,), (size,), (U8, F64, F32, I32), body)

    nests = [nest(3, 50), nest(40, 3), nest(2, 7)]
    table = np.arange(256, dtype=F64)[::-1].copy()
    data = [
        [
            np.arange(n.outer[0] * n.inner[0]).astype(U8),
            table,
            normal(n.outer[0], n.inner[0]),
            np.zeros(n.outer[0], I32),
        ]
        for n in nests
    ]
    check(nests, data)


def test_transposed_tiles_with_work() -> None:
    """Row and column operands beside a transposed load, whole tiles and their edges."""

    def nest(rows: int, size: int) -> Nest:
        body = (
            Load(Access(0, 0, (1, rows)), F32),
            Load(Access(1, 0, (1, 0)), F32),
            Load(Access(2, 0, (0, 1)), F32),
            op("add", 0, 1),
            op("multiply", 3, 2),
            Iota(0),
            Iota(1),
            op("less", 5, 6, dtype=B),
            Store(Access(3, 0, (size, 1)), 4, guard=7),
            Store(Access(4, 0, (0, 1)), 0, "add"),
        )
        return Nest((rows, size), (), (F32,) * 5, body)

    nests = [nest(r, s) for r, s in [(16, 16), (33, 50), (70, 20), (9, 40), (40, 13)]]
    data = [[np.round(9 * normal(n)) for n in (r * s, r, s, r * s, s)] for r, s in (n.outer for n in nests)]
    check(nests, data)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_coordinates_of_pairs_are_gathered_once_for_many_rows(dtype: np.dtype) -> None:
    """Each pair of points reads all coordinates of both: those of the second point jump along the vectors."""

    def nest(rows: int, columns: int, size: int) -> Nest:
        body: list[Instr] = [Constant(0.0, dtype)]
        for k in range(size):
            total, at = len(body) - 1, len(body)
            body += [Load(Access(0, k, (size, 0)), dtype), Load(Access(1, k, (0, size)), dtype)]
            body += [op("subtract", at, at + 1, dtype=dtype), op("multiply", at + 2, at + 2, dtype=dtype)]
            body.append(op("add", total, at + 3, dtype=dtype))
        last = len(body) - 1
        body += [Iota(0), Iota(1), op("less", last + 1, last + 2, dtype=B), Load(Access(2, 0, (columns, 1)), dtype)]
        body += [op("where", last + 3, last, last + 4, dtype=dtype), Store(Access(2, 0, (columns, 1)), last + 5)]
        return Nest((rows, columns), (), (dtype,) * 3, tuple(body))

    nests = [nest(*shape) for shape in ((40, 40, 20), (64, 33, 17), (128, 100, 12), (37, 5, 16), (3, 70, 13))]
    data = [[normal(len(n.body), n.outer[i], dtype=dtype) for i in (0, 1)] for n in nests]
    check(nests, [[*d, normal(*n.outer, dtype=dtype)] for n, d in zip(nests, data, strict=True)], rtol=1e-5)
    without_iota = replace(nests[2], body=(*nests[2].body[:-6], Store(Access(2, 0, (100, 1)), len(nests[2].body) - 7)))
    plan = plan_nest(without_iota, AVX512)
    assert plan is not None
    assert [plan.nest.dims[dim] for dim in plan.order] == [2, 100, 64]
    assert plan.vector == plan.order[1]
    check([without_iota], [[*data[2], normal(128, 100, dtype=dtype)]], rtol=1e-5)


def test_coordinates_of_pairs_are_gathered_once_for_many_rows_of_a_sum() -> None:
    def nest(parts: int, rows: int, columns: int, size: int) -> Nest:
        body: list[Instr] = [Constant(0.0, F32)]
        for k in range(size):
            total, at = len(body) - 1, len(body)
            body += [Load(Access(0, k, (rows * size, size, 0)), F32), Load(Access(1, k, (0, 0, size)), F32)]
            body += [op("subtract", at, at + 1), op("multiply", at + 2, at + 2), op("add", total, at + 3)]
        last = len(body) - 1
        body += [Reduce("sum", last, F32), Reduce("max", last, F32)]
        body += [Store(Access(2 + i, 0, (1, 0, 0)), last + 1 + i) for i in range(2)]
        return Nest((parts,), (rows, columns), (F32,) * 4, tuple(body))

    shapes = [(5, 20, 40, 16), (3, 7, 33, 20), (1, 40, 300, 12), (4, 300, 5, 17)]
    nests = [nest(*shape) for shape in shapes]
    data = [[normal(p * r, k), normal(c, k), np.zeros(p, F32), np.zeros(p, F32)] for p, r, c, k in shapes]
    plan = plan_nest(nests[0], AVX512)
    assert plan is not None
    assert (plan.vector, plan.order) == (2, (0, 2, 1))
    check(nests, data, rtol=1e-5)


def test_additions_to_one_address_all_count() -> None:
    def nest(rows: int, size: int, strides: tuple[int, int]) -> Nest:
        body = (Load(Access(0, 0, (size, 1)), F32), Store(Access(1, 0, strides), 0, "add"))
        return Nest((rows, size), (), (F32, F32), body)

    nests = [nest(9, 20, strides) for strides in [(0, 1), (1, 0), (0, 0), (1, 1), (20, 1)]]
    check(nests, [[np.round(normal(9, 20) * 9), np.ones(180, F32)] for _ in nests])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_chunks_of_columns_take_whole_lines_of_each_row(dtype: np.dtype) -> None:
    """Where rows that meet are added up only columns are shared out: every chunk visits all rows."""
    row = Load(Access(1, 0, (1, 0)), I64)
    add = Store(Access(2, 0, (0, 1), ((1, 512),)), 0, "add")
    nest = Nest((5000, 512), (), (dtype, I64, dtype), (Load(Access(0, 0, (512, 1)), dtype), row, add))
    for target in (AVX2, AVX512, GENERIC):
        plan = plan_nest(nest, target)
        assert plan is not None
        assert plan.share is not None
        assert plan.share.dim == 1
        assert plan.share.size * dtype.itemsize % 64 == 0
        assert plan.share.chunks > 1


def test_a_value_stored_anyway_is_not_kept_in_scratch() -> None:
    body = (
        Load(Access(0, 0, (50, 1)), F32),
        op("exp", 0),
        Store(Access(1, 0, (50, 1)), 1),
        Reduce("sum", 1, F32),
        op("divide", 1, 3),
        Store(Access(2, 0, (50, 1)), 4),
    )
    nest = Nest((3,), (50,), (F32,) * 3, body)
    assert plan_kernel(nest, GENERIC).scratch_bytes(1) == 0
    assert plan_kernel(softmax(3, 50), GENERIC).scratch_bytes(1) == 256
    check([nest], [[normal(150), np.zeros(150, F32), np.zeros(150, F32)]], rtol=3e-6)


# -- ranges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", RUNNABLE, ids=lambda t: t.name)
def test_ranged(target: Target) -> None:
    """A tile of an epilogue: y = x + bias of the row or of the column, residual in another layout."""
    rows, size = 23, 61
    body = (
        Load(Access(0, 0, (size, 1)), F32),
        Load(Access(1, 0, (0, 1)), F32),
        op("add", 0, 1),
        Load(Access(1, 0, (1, 0)), F32),
        op("multiply", 2, 3),
        Load(Access(2, 0, (1, rows)), F32),
        op("add", 4, 5),
        Iota(1),
        Constant(40, I64),
        op("less", 7, 8, dtype=B),
        Store(Access(0, 0, (size, 1)), 6, guard=9),
        Store(Access(3, 0, (0, 1)), 6, "add"),
    )
    nest = Nest((rows, size), (), (F32,) * 4, body)
    ranges = [[(0, 23), (0, 61)], [(3, 11), (16, 48)], [(5, 6), (7, 8)], [(4, 4), (0, 9)], [(2, 9), (10, 33)]]
    run = Compiled([nest] * len(ranges), target, list(ranges))
    data = [np.round(normal(n) * 9) for n in (rows * size, size, rows * size, size)]
    for i, ((lo0, hi0), (lo1, hi1)) in enumerate(ranges):
        found = run(i, data)
        x, bias, residual, total = (a.copy() for a in data)
        tile = np.s_[lo0:hi0, lo1:hi1]
        z = (x.reshape(rows, size) + bias) * bias[:rows, None] + residual.reshape(size, rows).T
        below = np.arange(size)[lo1:hi1] < 40
        x.reshape(rows, size)[tile] = np.where(below, z[tile], x.reshape(rows, size)[tile])
        total[lo1:hi1] += z[tile].sum(0)
        for a, b in zip(found, (x, bias, residual, total), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3)


def test_a_ranged_nest_has_no_inner_dimensions() -> None:
    with pytest.raises(ValueError, match="no inner"):
        ranged_function(IRModule(GENERIC), row_sum(2, 3))


# -- the plan -------------------------------------------------------------------------------------------------------


def test_dimensions_merge_and_units_go() -> None:
    access = Access(0, 0, (60, 12, 12, 4, 1))
    nest = Nest((3, 5, 1, 3, 4), (), (F32, F32), (Load(access, F32), Store(Access(1, 0, access.strides), 0)))
    simple = simplify(nest)
    assert simple is not None
    assert simple.outer == (180,)
    counted = Nest(nest.outer, (), nest.args, (*nest.body, Iota(0), Store(Access(1, 0, (60, 12, 12, 4, 1)), 2)))
    simple = simplify(counted)
    assert simple is not None
    assert sorted(simple.outer) == [3, 60]


@pytest.mark.parametrize(
    ("nest", "axis", "lanes"),
    [
        (row_sum(512, 512), 1, 16),
        (column_sum(512, 512), 0, 16),
        (softmax(512, 512), 1, 16),
        (softmax(128, 10), 0, 16),
        (softmax(128, 16), 1, 16),
        (softmax(128, 512, F64), 1, 8),
        (softmax(128, 512, column=True), 0, 16),
        (softmax(10, 10000, F64, column=True), 0, 8),  # lanes along a column would each leave a row of memory
        (max_pool(12, 64, 3, channels_last=True), 2, 16),
        (embedding(100, 64, add=True), 1, 16),
        (row_sum(1, 3), None, 1),
        (log_sum_exp(8192, 64), 1, 16),  # its rows are read twice: lanes along them would gather twice
    ],
)
def test_the_vector_axis(nest: Nest, axis: int | None, lanes: int) -> None:
    plan = plan_nest(nest, AVX512)
    assert plan is not None
    assert (plan.vector, plan.lanes) == (axis, lanes)


def test_equal_nests_are_shared() -> None:
    module = IRModule(AVX2)

    def scaled(by: float) -> Nest:
        body = (Load(Access(0, 0, (1,)), F32), Constant(by, F32), op("multiply", 0, 1), Store(Access(1, 0, (1,)), 2))
        return Nest((8,), (), (F32, F32), body)

    def named(by: float) -> str:
        return emit_kernel(module, plan_kernel(scaled(by), AVX2), "main")

    assert named(2.0) == named(2.0)
    assert named(0.0) != named(-0.0)
    assert ranged_function(module, scaled(2.0)) == ranged_function(module, scaled(2.0)) != named(2.0)
    assert ranged_function(module, scaled(0.0)) != ranged_function(module, scaled(-0.0))


# -- indices in 32 bits -----------------------------------------------------------------------------------------------


def shifted(rows: int, size: int, by: int, *, shows: bool = False) -> Nest:
    """Rows of ``size`` out of rows of ``size - 2``, with zeros around; ``shows`` stores the index that is compared."""
    body: list[Instr] = [
        Iota(1),
        Constant(by, I64),
        op("subtract", 0, 1, dtype=I64),
        Constant(0, I64),
        op("greater_equal", 2, 3, dtype=B),
        Constant(size - 2, I64),
        op("less", 2, 5, dtype=B),
        op("logical_and", 4, 6, dtype=B),
        Load(Access(0, -by, (size - 2, 1)), F32, 7),
        Compute("astype", AstypeAttributes(F32), (2,), F32),
        op("add", 8, 9),
        Store(Access(1, 0, (size, 1)), 10),
    ]
    if shows:
        body.append(Store(Access(2, 0, (size, 1)), 2))
    return Nest((rows, size), (), (F32, F32, I64)[: 2 + shows], tuple(body))


def test_guards_in_half_the_width() -> None:
    sizes = [(1, 3), (2, 4), (5, 17), (3, 37), (2, 130)]
    nests = [shifted(r, n, by, shows=shows) for r, n in sizes for by in (0, 1, 2) for shows in (False, True)]
    data: list[list[Array]] = [
        [normal(r, n - 2), np.zeros(r * n, F32), np.zeros(r * n, I64)][: len(nest.args)]
        for nest in nests
        for r, n in [nest.dims]
    ]
    check(nests, data)


def test_an_index_that_is_seen_or_does_not_fit_stays_wide() -> None:
    def widths(nest: Nest) -> list[np.dtype]:
        found = narrowed(nest)
        assert found.dims == nest.dims
        assert len(found.body) == len(nest.body)
        return [dtype_of(found, number) for number in (0, 1, 2, 3, 5)]

    assert widths(shifted(3, 10, 1)) == [I32] * 5
    assert widths(shifted(3, 10, 1, shows=True)) == [I64] * 5
    assert widths(shifted(1, 2**31, 0)) == [I32] * 5
    assert widths(shifted(1, 2**31 + 1, 0)) == [I64] * 5
    assert widths(shifted(1, 2**31, 2**31 - 1)) == [I32] * 5
    assert widths(shifted(1, 10, 2**31)) == [I64] * 5


# -- the first index ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("width", [I32, I64], ids=str)
def test_the_first_index_of_its_kind_ends_the_search(counts: bool, width: np.dtype) -> None:
    """Also none, the first, the last, and several in one turn."""

    def nest(rows: int, size: int, dtype: np.dtype) -> Nest:
        body = (
            Load(Access(0, 0, (size, 1)), dtype),
            Load(Access(1, 0, (1, 0)), dtype),
            op("greater" if counts else "less_equal", 0, 1, dtype=B),
            Iota(1),
            Constant(int(np.iinfo(width).max), width),
            Compute("astype", AstypeAttributes(I32), (3,), I32) if width == I32 else Iota(1),
            Compute("where", NO_ATTRIBUTES, (2, 5, 4) if counts else (2, 4, 5), width),
            Reduce("min", 6, width),
            Store(Access(2, 0, (1, 0)), 7),
        )
        return Nest((rows,), (size,), (dtype, dtype, width), body)

    rng = np.random.default_rng(5)
    nests, data = [], []
    for size in (1, 7, 16, 63, 64, 65, 128, 130, 257, 1000):
        for dtype in (F32, F64, I32):
            x = rng.integers(0, 100, (9, size)).astype(dtype)
            x[1, -1] = x[2, 0] = x[3, size // 2] = x[3, size // 3 :][:2] = 200
            bound = np.array([300, 150, 150, 150, 98, 90, 50, 150, 95]).astype(dtype)
            if dtype.kind == "f":
                x[7, size // 2] = np.nan
            nests.append(nest(9, size, dtype))
            data.append([x.ravel(), bound, np.zeros(9, width)])
    check(nests, data)
