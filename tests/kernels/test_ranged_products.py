"""Products of open sizes against NumPy, at many sizes of their ranges, on every target that this machine runs.

All kernels of a group and a target are compiled as one module. Scratch memory is filled with NaN patterns first, and
such patterns lie around operands and results: what is read or written there is found out.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.selection import rotating
from support.targets import HERE

from staticgrad.base.extents import OpenSize, at_sizes, extent_of, open_sizes
from staticgrad.compiler.emit.families import emit_kernel, plan_kernel
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.kernels.nest import Access, Compute, Load, Nest, Store
from staticgrad.compiler.machine.target import TARGETS, Target, current_target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.contraction import plan as contraction_plan
from staticgrad.compiler.plans.contraction import versions
from staticgrad.graph.optable import NO_ATTRIBUTES
from staticgrad.runtime.parts.threads import pool_address

F32, F64, I32, BOOL = (np.dtype(name) for name in ("float32", "float64", "int32", "bool"))
RANGES = {"a": (1, 16), "b": (17, 32), "c": (1, 70), "d": (1, 4), "w": (33, 128)}  # by the first letter of a name
APART = 64  # elements before and behind each array
ORDERS = {"n": (0, 1), "t": (1, 0)}


@dataclass
class Case:
    """A product of open sizes."""

    kernel: Contraction
    layouts: str

    @property
    def sizes(self) -> tuple[OpenSize, ...]:
        return tuple(sorted(open_sizes(self.kernel), key=lambda size: size.number))

    def on(self, target: Target) -> Contraction:
        """The kernel, with an epilogue ``out[i…] = raw[i…] + raw[i…] + bias[i0]`` that reads the raw result where it is
        on a target."""
        kernel = self.kernel
        if kernel.epilogue is None:
            return kernel
        shape, dtype, raw = kernel.epilogue.outer, kernel.dtype, plan_kernel(kernel, target).raw_strides
        body = (
            Load(Access(0, 0, raw), dtype),
            Load(Access(1, 0, (1, *[0] * (len(shape) - 1))), dtype),
            Compute("add", NO_ATTRIBUTES, (0, 0), dtype),
            Compute("add", NO_ATTRIBUTES, (2, 1), dtype),
            Store(Access(2, 0, strides_of(shape, range(len(shape)))), 3),
        )
        return replace(kernel, epilogue=Nest(shape, (), (dtype,) * 3, body))

    @property
    def label(self) -> str:
        k = self.kernel
        kind = "no epilogue" if k.epilogue is None else "epilogue" if k.store_raw else "epilogue alone"
        return f"{k.dtype} {k.batch} {k.m}x{k.k}·{k.k}x{k.n} {self.layouts} {kind}"

    def samples(self, most: int) -> list[tuple[int, ...]]:
        """The sizes of calls: all, or some, of which no two are open, the least and the greatest."""
        ranges = [range(size.low, size.high + 1) for size in self.sizes]
        every = list(itertools.product(*ranges))
        if len(every) <= most:
            return every
        return [every[i] for i in sorted({*range(0, len(every), -(-len(every) // most)), len(every) - 1})]


def strides_of(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array of ``shape`` whose axes lie in memory in ``order``."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def product(
    sizes: Sequence[int | str], layouts: str = "nnn", dtype: np.dtype = F64, epilogue: str = "", shared: str = ""
) -> Case:
    """A product of ``(*batch, m, n, k)``. A size that is a text is open, of the range that its letter says; equal texts
    are one size. "a-1" is one less. ``epilogue`` is "stored" or "alone", or there is none. All batches share an operand
    of ``shared``."""
    names = list(dict.fromkeys(size.removesuffix("-1") for size in sizes if isinstance(size, str)))

    def size_of(size: int | str) -> int:
        if not isinstance(size, str):
            return size
        name = size.removesuffix("-1")
        return extent_of(OpenSize(names.index(name), *RANGES[name[0]], name)) - (name != size)

    known = [size_of(size) for size in sizes]
    batch, (m, n, k) = tuple(known[:-3]), known[-3:]

    def strides(name: str, rows: int, columns: int, layout: str) -> tuple[int, ...]:
        full = () if name in shared else batch
        order = (*range(len(full)), *(len(full) + axis for axis in ORDERS[layout]))
        return (*(0,) * (len(batch) - len(full)), *strides_of((*full, rows, columns), order))

    nest = Nest((*batch, m, n), (), (dtype, dtype, dtype), ()) if epilogue else None
    a, b, c = strides("a", m, k, layouts[0]), strides("b", k, n, layouts[1]), strides("c", m, n, layouts[2])
    return Case(Contraction(dtype, batch, m, n, k, a, b, c, nest, epilogue != "alone"), layouts)


class Memory:
    """An array between patterns that are NaN."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> None:
        count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        self.block = np.full((2 * APART + count) * dtype.itemsize, 0xFF, np.uint8)
        self.inside = self.block[APART * dtype.itemsize :][: count * dtype.itemsize].view(dtype)
        self.array = np.lib.stride_tricks.as_strided(self.inside, shape, [s * dtype.itemsize for s in strides])
        self.address = self.inside.ctypes.data

    @property
    def is_whole(self) -> bool:
        edge = APART * self.inside.itemsize
        return bool((self.block[:edge] == 0xFF).all() and (self.block[-edge:] == 0xFF).all())


# -- one module a target ----------------------------------------------------------------------------------------


def compiled(cases: list[Case], target: Target) -> NativeModule:
    """All kernels as one module, with functions ``run0``, ``run1``, …; the last argument are the sizes of the call."""
    module = IRModule(target, has_sizes=True)
    for number, case in enumerate(cases):
        kernel = case.on(target)
        planned = plan_kernel(kernel, target)
        name = emit_kernel(module, planned, f"kernel{number}")
        f = module.function(f"run{number}", ["ptr"] * (len(kernel.args) + 1 + planned.is_shared), internal=False)
        f.call(name, "void", *f.params)
        f.finish()
    return NativeModule(module.texts(), target)


def operand(rng: np.random.Generator, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> Memory:
    memory = Memory(shape, strides, dtype)
    if dtype.kind == "f":
        memory.inside[:] = rng.standard_normal(memory.inside.shape)
    else:
        memory.inside[:] = rng.integers(0, 2 if dtype.kind == "b" else 9, memory.inside.shape)
    return memory


def check(native: NativeModule, case: Case, number: int, sizes: tuple[int, ...], threads: int = 1) -> np.ndarray:
    """Run a kernel at some sizes; what it computes is returned."""
    rng = np.random.default_rng(number)
    planned = plan_kernel(case.on(native.target), native.target)
    kernel, dtype, what = at_sizes(case.kernel, sizes), case.kernel.dtype, f"{native.target.name}: {case.label} {sizes}"
    batch, m, n, k = kernel.batch, kernel.m, kernel.n, kernel.k
    a = operand(rng, (*batch, m, k), kernel.a_strides, dtype)
    b = operand(rng, (*batch, k, n), kernel.b_strides, dtype)
    c = Memory((*batch, m, n), kernel.c_strides, dtype)
    arrays = [a, b] + [c] * kernel.store_raw
    if kernel.epilogue is not None:
        bias = operand(rng, ((*batch, m)[0],), (1,), dtype)
        out = Memory((*batch, m, n), strides_of((*batch, m, n), range(len(batch) + 2)), dtype)
        arrays += [bias, out]
    scratch = np.full(planned.scratch_bytes(threads) + 128, 0xFF, np.uint8)
    start = -scratch.ctypes.data % 64
    pointers = [array.address for array in arrays] + [scratch.ctypes.data + start]
    pointers += [pool_address(threads)] * planned.is_shared
    table = np.array(sizes, np.int64)
    pointers.append(table.ctypes.data)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(native.address(f"run{number}"))(*pointers)
    assert all(array.is_whole for array in arrays), f"{what}: wrote behind an array"
    assert (scratch[start + planned.scratch_bytes(threads) :] == 0xFF).all(), f"{what}: wrote behind its scratch memory"

    wide = F64 if dtype.kind == "f" else dtype
    expected = a.array.astype(wide) @ b.array.astype(wide)
    eps = 20 * np.finfo(dtype).eps if dtype.kind == "f" else 0
    tolerance = eps * (np.abs(a.array.astype(F64)) @ np.abs(b.array.astype(F64)))
    if kernel.store_raw:
        _compare(c.array, expected, tolerance, what)
    if kernel.epilogue is None:
        return c.array
    shift = bias.array.astype(wide).reshape(-1, *[1] * (expected.ndim - 1))
    _compare(out.array, expected + expected + shift, 3 * tolerance + 2 * eps * np.abs(shift), what)
    return out.array


def _compare(got: np.ndarray, expected: np.ndarray, tolerance: np.ndarray, what: str) -> None:
    error = np.abs(got.astype(F64) - expected.astype(F64))
    assert (error <= tolerance).all(), f"{what}: off by {np.nanmax(error)}"


# -- cases ------------------------------------------------------------------------------------------------------


def some(shapes: Sequence[Any], kinds: Sequence[Any], dtypes: Sequence[np.dtype], turn: int) -> list[Case]:
    """Products of each shape, of kinds in turn: the layouts, the epilogue, what batches share. Each ``turn`` pairs them
    differently."""
    return [
        product(sizes, *(kind := kinds[(number + 3 * turn) % len(kinds)])[:1], dtypes[(number + turn) % len(dtypes)],
                *kind[1:])
        for number, sizes in enumerate(shapes)
    ]  # fmt: skip


def general_cases(turn: int) -> list[Case]:
    """Each size open, and several, over operands and results that lie in any way."""
    shapes = (
        ("a", 30, 20), (20, "a", 30), (20, 30, "a"), ("a", "a2", 20), ("a", 20, "a2"), (9, "a", "a2"),
        ("a", "a2", "a3"), ("a", "a", "a"), ("b", "b2", "b"), ("c", 33, 40), (33, "c", 40), (10, 21, "c"),
        ("b", "c", "a"),
    )  # fmt: skip
    kinds = (("nnn", "", ""), ("ntn", "", ""), ("tnn", "stored", ""), ("ttn", "alone", ""), ("nnt", "", ""),
             ("nnn", "alone", ""), ("ntn", "stored", ""), ("ttt", "", ""))  # fmt: skip
    return some(shapes, kinds, (F64, F32), turn)


def batch_cases(turn: int) -> list[Case]:
    """An open batch, and open matrices in one."""
    shapes = (
        ("d", 5, 6, 7),
        ("d", "a", 6, 7),
        (3, 5, "a", 9),
        ("d", 2, "a", 6, "a2"),
        ("d", 17, 1, 40),
        (2, "d", 4, 4, "a"),
    )
    kinds = (("nnn", "", ""), ("ntn", "", "b"), ("tnn", "alone", ""), ("nnn", "stored", "a"), ("nnt", "", ""))
    return some(shapes, kinds, (F32, F64), turn)


def special_cases(turn: int) -> list[Case]:
    """Columns and rows alone, dot products, terms side by side, integers, rows of many vectors."""
    vectors = (("a", 1, 40), (1, "c", 40), (40, 1, "c"), ("c", 1, "c2"), (1, 1, "c"), (1, "a", "c"), ("b", 1, "a"))
    narrow = (
        ("c", 5, 64), ("c", 12, 100), ("a", 6, 64), (40, "d", 64), (5, "a", 300), ("a", "a", 300), ("a", 5, "c"),
        ("d", 4, "c"), (40, 3, "c"), ("c", 12, "c2"),
    )  # fmt: skip
    orders = tuple((layouts, "", "") for layouts in ("nnn", "ntn", "tnn", "nnt"))
    kinds = (("nnn", "", ""), ("ntn", "", ""), ("nnt", "alone", ""), ("ntn", "alone", ""))
    whole = (("a", 9, 12), (9, "a", 12), ("a", "a2", "a3"))
    return [
        *some(vectors, orders, (F64, F32), turn),
        *some(narrow, kinds, (F64, F32), turn),
        *some(whole, orders, (I32, BOOL), turn),
        product(("a", 300, 50)),
        product(("a", 300, 50), "ntn", F32),
        product((7, "b", 700)),
        product((1, 700, "b"), "nnn", (F64, F32)[turn % 2]),
        product((1, "c", 900), ("nnn", "tnn")[turn % 2]),
    ]


def empty_cases(turn: int) -> list[Case]:
    """Terms of which there may be none in a range."""
    shapes = ((3, 2, "a-1"), (20, 30, "a-1"), ("d", 5, 6, "a-1"), (1, 40, "c-1"), (40, 1, "c-1"), (1, 1, "c-1"),
              (5, "a", "c-1"), (40, 3, "c-1"))  # fmt: skip
    kinds = (("nnn", "", ""), ("ntn", "alone", ""), ("tnn", "stored", ""), ("nnt", "", ""), ("ttn", "alone", ""))
    return some(shapes, kinds, (F64, F32, I32), turn)


GROUPS = {"general": general_cases, "batches": batch_cases, "special": special_cases, "empty": empty_cases}


@pytest.mark.parametrize(("group", "name"), rotating([(group, name) for name in HERE for group in GROUPS], 3))
def test_products_of_open_sizes_match_numpy(group: str, name: str) -> None:
    cases = GROUPS[group](HERE.index(name))
    native = compiled(cases, TARGETS[name])
    for number, case in enumerate(cases):
        for sizes in case.samples(16):
            check(native, case, number, sizes)


PANELS = dict.fromkeys(("PANEL_BYTES", "SHORT_PANEL_BYTES", "LOW_PANEL_BYTES", "LOW_SHORT_PANEL_BYTES"), 2048)
BLOCKS = {
    "small blocks": {**PANELS, "DEPTH_BYTES": 4096, "BLOCK_BYTES": 16384, "FAR_BLOCK_BYTES": 16384},
    "one pass": {**PANELS, "DEPTH_BYTES": 2048, "BLOCK_BYTES": 1, "FAR_BLOCK_BYTES": 1},
}


@pytest.fixture(params=BLOCKS)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Products are cut in small blocks."""
    for name, value in BLOCKS[request.param].items():
        monkeypatch.setattr(contraction_plan, name, value)
    _forget_plans()
    yield request.param
    _forget_plans()


def _forget_plans() -> None:
    contraction_plan._make_plan.cache_clear()
    versions._parts.cache_clear()


@pytest.mark.parametrize("name", rotating(HERE, len(HERE)))
def test_blocks_of_open_sizes_match_numpy(blocks: str, name: str) -> None:
    """Blocks of columns and terms, passes and groups of which a call has some, or one that is short."""
    shapes = (
        ("c", 150, 200),
        (70, "c", 200),
        (30, 70, "c"),
        ("c", "c2", "c3"),
        (3, "c", "c", "c"),
        ("d", "a", 40, "c"),
        (30, 70, "c-1"),
    )
    kinds = (("nnn", "", ""), ("ntn", "alone", ""), ("ttn", "", ""), ("nnt", "stored", ""), ("tnn", "alone", ""))
    cases = some(shapes, kinds, (F64, F32), HERE.index(name))
    native = compiled(cases, TARGETS[name])
    for number, case in enumerate(cases):
        for sizes in case.samples(9):
            check(native, case, number, sizes)


def test_threads_have_the_same_bits_for_any_number(blocks: str) -> None:
    target = current_target()
    shapes = (("w", 300, 300), (300, "w", 300), (300, 300, "w"), ("w", 100, 64, 64), (2, "w", "w", 200))
    orders = tuple((layouts, "", "") for layouts in ("nnn", "ntn", "nnt"))
    cases = [*some(shapes, orders, (F64,), 0), *some(shapes, orders[1:], (F64,), 0)]
    assert all(plan_kernel(case.kernel, target).is_shared for case in cases)
    native = compiled(cases, target)
    for number, case in enumerate(cases):
        for sizes in case.samples(3):
            one, two, three = (check(native, case, number, sizes, threads) for threads in (1, 2, 3))
            np.testing.assert_array_equal(two, one, err_msg=case.label)
            np.testing.assert_array_equal(three, one, err_msg=case.label)
