"""Long rows are sorted by partitions where the target has them: in order, at every length, in bounded work."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.emit.routines import quicksort
from staticgrad.compiler.machine.target import TARGETS, Target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.routines import partitions, sorting

PARTITIONING = [name for name in HERE if TARGETS[name].isa.partitions]
WORDS = [np.dtype(np.int32), np.dtype(np.int64)]
Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("unfolded")


@functools.cache
def sorter(name: str, dtype: np.dtype) -> tuple[NativeModule, Any]:
    module = IRModule(TARGETS[name])
    called = quicksort.sorter(module, dtype)
    f = module.function("run", ["ptr", "ptr", "ptr", "i64", "i64"], "i64", internal=False)
    f.ret(f.call(called, "i64", *f.params))
    f.finish()
    native = NativeModule(module.text(), TARGETS[name])
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
    return native, prototype(native.address("run"))


def used(name: str, row: Array) -> float:
    """Sort a row in place: how often each of its words was partitioned, on average; infinite where that was given up.
    Nothing behind the row is written."""
    target, lanes = TARGETS[name], TARGETS[name].lanes(row.dtype)
    words = np.concatenate([row, np.full(partitions.behind(target, row.dtype), 77, row.dtype)])
    spare, stack = np.empty(row.size + lanes, row.dtype), np.empty(partitions.STACK_BYTES, np.uint8)
    work = partitions.work(target, row.dtype, row.size)
    _, run = sorter(name, row.dtype)
    left = run(words.ctypes.data, spare.ctypes.data, stack.ctypes.data, row.size, work)
    np.testing.assert_array_equal(words[row.size :], 77)
    if left < 0:
        return float("inf")
    np.testing.assert_array_equal(words[: row.size], np.sort(row))
    return float(work - left) / max(1, row.size)


def drawn(dtype: np.dtype, size: int) -> dict[str, Array]:
    rng, info = np.random.default_rng(size), np.iinfo(dtype)
    any_ = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    up = np.sort(any_)
    rows = {
        "any": any_, "up": up, "down": up[::-1], "few": any_ % 5, "equal": np.full(size, info.max, dtype),
        "least": np.full(size, info.min, dtype), "ends": np.where(any_ % 2, info.min, info.max),
        "pipe": np.concatenate([up[::2], up[1::2][::-1]]), "saw": np.arange(size) % 37, "nearly": up + any_ % 2,
        "one": np.where(np.arange(size) == size // 3, 1, 0),
    }  # fmt: skip
    return {name: row.astype(dtype) for name, row in rows.items()}


@pytest.mark.parametrize("dtype", WORDS, ids=str)
@pytest.mark.parametrize("name", PARTITIONING)
def test_words_of_every_number_are_sorted_in_little_work(name: str, dtype: np.dtype) -> None:
    target = TARGETS[name]
    lanes, most = target.lanes(dtype), partitions.shortest(target, dtype)
    edges = (lanes, most // 2, most, 2 * most, 4 * most)
    for size in sorted({0, 1, 2, 3, 1000, 5000, *(edge + d for edge in edges for d in (-1, 0, 1))}):
        least = max(0, np.log2(max(1, size) / most))
        for kind, row in drawn(dtype, size).items():
            assert used(name, row) <= 1.6 * least + 3, f"{kind} {size}"


def adversary(target: Target, dtype: np.dtype, size: int) -> Array:
    """A row of which each pivot is among the least words: where it is looked for, the next ones are put."""
    lanes = target.lanes(dtype)
    row, given, left = np.full(size, size, dtype), 0, np.arange(size)
    while left.size > partitions.shortest(target, dtype):
        step = (left.size - lanes) // 4
        places = left[np.concatenate([step * k + np.arange(lanes) for k in (1, 2, 3)])]
        new = places[row[places] == size]
        row[new] = np.arange(given, given + new.size)
        given += new.size
        found = np.median(row[places].reshape(3, lanes), axis=0)
        for apart in (lanes // 3, 1):
            found = np.median([np.roll(found, -apart * k) for k in range(3)], axis=0)
        below = row[left] < found[0]
        left = left[~below] if below.any() else left[row[left] > found[0]]
    return row


@pytest.mark.parametrize("dtype", WORDS, ids=str)
@pytest.mark.parametrize("name", PARTITIONING)
def test_a_row_made_against_the_pivots_is_given_up(name: str, dtype: np.dtype) -> None:
    assert used(name, adversary(TARGETS[name], dtype, 5000)) == float("inf")


@pytest.mark.parametrize("name", PARTITIONING)
@pytest.mark.parametrize("gives_up", [False, True], ids=["partitions", "given up"])
@pytest.mark.parametrize("code", ["float32", "float64", "int32", "uint32", "int64", "uint64"])
def test_long_rows_as_numpy(name: str, gives_up: bool, code: str, monkeypatch: Any) -> None:
    """Values of either order, and indices, also where partitions are given up at once."""
    monkeypatch.setenv("STATICGRAD_TARGET", name)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    if gives_up:
        monkeypatch.setattr(partitions, "work", lambda *_: 0)
    rng, dtype = np.random.default_rng(3), np.dtype(code)
    for rows, length in ((2, sorting.RANKED + 1), (20, sorting.BESIDE + 1)):
        values = rng.integers(0, 2**32, (rows, length)).astype(dtype)
        values[0] %= 7
        if dtype.kind == "f":
            values[rng.random(values.shape) < 0.1] = np.nan
            values[rng.random(values.shape) < 0.1] = -0.0
            values[rng.random(values.shape) < 0.1] = 0.0
            values[rng.random(values.shape) < 0.1] *= -1
        x = sg.placeholder(values.shape, dtype)
        fetches = [sg.sort(x), sg.sort(x, descending=True), sg.argsort(x), sg.argsort(x, descending=True)]
        both = [sg.topk(x, length // 2)[k] for k in (0, 1)]
        got = sg.Session(sg.get_default_graph()).run([*fetches, *both], {x: values})
        order = np.argsort(values, kind="stable")
        back = length - 1 - np.argsort(values[:, ::-1], kind="stable")[:, ::-1]
        np.testing.assert_array_equal(got[0], np.sort(values))
        np.testing.assert_array_equal(got[1], np.sort(values)[:, ::-1])
        np.testing.assert_array_equal(got[2], order)
        np.testing.assert_array_equal(got[3], back)
        np.testing.assert_array_equal(got[4], np.take_along_axis(values, back, 1)[:, : length // 2])
        np.testing.assert_array_equal(got[5], back[:, : length // 2])
