"""Results: fresh arrays that own their memory, which is recycled when nobody has it any more."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name
from support.concurrency import in_threads

import staticgrad as sg
from staticgrad.graph.graph import Graph
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts import results
from staticgrad.runtime.parts.results import RECORD, RECYCLED_FROM, IdleRecord, RecyclerWord
from staticgrad.runtime.running.frames import IDLE_FRAMES

pytestmark = pytest.mark.skipif(results.recycler() is None, reason="no POSIX memory here")
BYTE = np.dtype(np.uint8)
OURS, NUMPYS = "staticgrad", "default_allocator"


@pytest.fixture
def pool() -> Iterator[results.Recycler]:
    """The process's pool, empty; its limit is restored."""
    found = results.recycler()
    assert found is not None
    gc.collect()
    found.trim()
    limit = found.words[RecyclerWord.LIMIT]
    yield found
    found.words[RecyclerWord.LIMIT] = limit
    found.trim()


def block(nbytes: int) -> Array:
    return results.empty((nbytes,), BYTE)


def address(array: Array) -> int:
    found: int = array.ctypes.data
    return found


def idle(pool: results.Recycler) -> list[int]:
    """The capacities of the idle blocks; what the pool counts agrees."""
    count = int(pool.words[RecyclerWord.COUNT])
    records = pool.words[RecyclerWord.RECORDS :].reshape(-1, RECORD)[:count]
    assert pool.words[RecyclerWord.IDLE] == records[:, IdleRecord.CAPACITY].sum()
    return sorted(records[:, IdleRecord.CAPACITY].tolist())


def doubled(*shape: int) -> tuple[Any, Array]:
    """An executable with a result as large as its feed, and a feed."""
    with Graph() as graph:
        x = sg.placeholder(shape)
        exe = sg.Session(graph, num_threads=1).compile(x * 2.0, [x])
    return exe, np.random.default_rng(0).normal(size=shape).astype(np.float32)


def call_entry(exe: Any, value: Array) -> Array:
    found: Array = exe(value)
    return found


def call_python(exe: Any, value: Array) -> Array:
    found: Array = exe._calls.run(value)
    return found


def call_session(exe: Any, value: Array) -> Array:
    found: Array = exe.session.run(exe.fetches, {exe.feeds[0]: value})
    return found


CALLS = [call_entry, call_python, call_session]


# -- what users see ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (RECYCLED_FROM // 4,), (200, 301), (2, 0, 7)])
def test_results_are_ordinary_arrays(call: Callable[[Any, Array], Array], shape: tuple[int, ...]) -> None:
    exe, value = doubled(*shape)
    result = call(exe, value)
    assert type(result) is np.ndarray
    assert result.base is None
    assert result.flags.owndata
    assert result.flags.writeable
    assert result.flags.c_contiguous
    assert result.shape == shape
    np.testing.assert_array_equal(result, value * np.float32(2))


@pytest.mark.parametrize("call", CALLS)
def test_large_results_come_from_the_pool(call: Callable[[Any, Array], Array]) -> None:
    for elements, who in ((RECYCLED_FROM // 4 - 1, NUMPYS), (RECYCLED_FROM // 4, OURS)):
        exe, value = doubled(elements)
        assert get_handler_name(call(exe, value)) == who


@pytest.mark.parametrize("call", CALLS)
def test_dropped_results_are_recycled(pool: results.Recycler, call: Callable[[Any, Array], Array]) -> None:
    exe, value = doubled(1000, 300)
    before = int(pool.words[RecyclerWord.RECYCLED])
    places = {address(call(exe, value)) for _ in range(5)}
    assert len(places) == 1
    assert pool.words[RecyclerWord.RECYCLED] == before + 4


def test_held_results_are_never_changed() -> None:
    exe, value = doubled(500, 200)
    held: list[tuple[Any, float]] = []
    for number in range(12):
        value[:] = number
        result = exe(value)
        views = (result, result[3:, ::2].T, memoryview(result[7]), result.reshape(-1).view(np.uint32), iter(result))
        held.append((views[number % len(views)], 2.0 * number))
        del result, views
    for view, want in held:
        rows = np.stack(list(view)) if not isinstance(view, (np.ndarray, memoryview)) else np.asarray(view)
        assert (rows.view(np.float32) == np.float32(want)).all()


def test_several_results_of_a_call_lie_apart() -> None:
    with Graph() as graph:
        x = sg.placeholder((300, 200))
        fetches = [x + float(number) for number in range(6)]
        train = sg.assign(sg.Variable(np.zeros(2, np.float32)), np.ones(2, np.float32))
        exe = sg.Session(graph).compile([*fetches, train], [x])
    value = np.zeros((300, 200), np.float32)
    for _ in range(3):
        *found, nothing = exe(value)
        assert nothing is None
        assert [get_handler_name(result) for result in found] == [OURS] * 6
        for number, result in enumerate(found):
            assert (result == number).all()


def test_a_result_can_be_resized() -> None:
    exe, value = doubled(RECYCLED_FROM)
    result, want = exe(value), value * np.float32(2)
    result.resize(3 * RECYCLED_FROM)
    np.testing.assert_array_equal(result[:RECYCLED_FROM], want)
    assert not result[RECYCLED_FROM:].any()
    result.resize(10)
    np.testing.assert_array_equal(result, want[:10])
    assert get_handler_name(result) == OURS


def test_other_arrays_keep_their_allocator() -> None:
    exe, value = doubled(RECYCLED_FROM)
    result = exe(value)
    for other in (np.empty(RECYCLED_FROM), result + 1, result.copy(), result[::2].copy()):
        assert get_handler_name(other) == NUMPYS
    assert get_handler_name() == NUMPYS


def test_results_begin_at_a_cache_line() -> None:
    held = [block(nbytes) for nbytes in (RECYCLED_FROM, RECYCLED_FROM + 1, 3_000_000, 5_000_001)]
    assert all(address(array) % 64 == 0 for array in held)


def test_too_large_a_result_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        block(1 << 50)
    assert get_handler_name() == NUMPYS
    with Graph() as graph:
        x = sg.placeholder(())
        huge = sg.broadcast_to(x, (1 << 48,))
        for fetches in (huge, [sg.identity(x), huge]):
            exe = sg.Session(graph, num_threads=1).compile(fetches, [x])
            for _ in range(2):
                with pytest.raises(MemoryError):
                    exe(np.float32(1)[None].reshape(()))
                assert get_handler_name() == NUMPYS


# -- the pool ---------------------------------------------------------------------------------------------------------


def test_a_block_serves_a_little_less_but_not_much_less(pool: results.Recycler) -> None:
    first = address(block(1_000_000))
    assert address(block(950_000)) == first
    smaller = block(500_000)
    assert address(smaller) != first
    assert idle(pool) == [1_003_520]  # whole pages
    assert address(block(1_000_001)) == first


def test_the_end_of_a_large_block_is_a_huge_page_where_little_is_wasted(pool: results.Recycler) -> None:
    whole = 4 * results.HUGE_PAGE - results.HEADER
    held = block(7_900_000)
    assert (address(held) - results.HEADER) % results.HUGE_PAGE == 0
    del held
    assert idle(pool) == [whole]
    for nbytes, capacity in ((5_000_000, 5_001_216), (40 << 20, 40 << 20)):  # the ends: two fifths, and the header
        pool.trim()
        block(nbytes)
        assert idle(pool) == [capacity]


def test_what_is_idle_has_a_limit(pool: results.Recycler) -> None:
    pool.words[RecyclerWord.LIMIT] = 1_000_000
    held = [block(nbytes) for nbytes in (200_000, 300_000, 400_000, 1_500_000, 100_000)]
    while held:
        held.pop(0)
        assert sum(idle(pool)) <= 1_000_000
    assert idle(pool) == [102_400, 303_104, 401_408]  # the first is given up, the largest was never kept


def test_idle_blocks_are_limited_in_number(pool: results.Recycler) -> None:
    held = [block(RECYCLED_FROM) for _ in range(results.MOST_IDLE + 20)]
    held.clear()
    assert len(idle(pool)) == results.MOST_IDLE


def test_blocks_without_use_are_given_up(pool: results.Recycler) -> None:
    block(10_000_000)
    assert len(idle(pool)) == 1
    for _ in range(results.PATIENCE // 2 + 2):
        block(RECYCLED_FROM)
    assert idle(pool) == [RECYCLED_FROM]


def test_trim_gives_all_back(pool: results.Recycler) -> None:
    held = block(300_000)
    block(200_000)
    assert len(idle(pool)) == 1
    results.trim()
    assert idle(pool) == []
    held[:] = 1


def test_closing_a_session_gives_idle_memory_back(pool: results.Recycler) -> None:
    exe, value = doubled(500, 300)
    held, want = exe(value), value * np.float32(2)
    exe(value)
    assert len(idle(pool)) == 1
    exe.session.close()
    assert idle(pool) == []
    np.testing.assert_array_equal(held, want)


def test_a_pool_that_is_taken_is_not_waited_for(pool: results.Recycler) -> None:
    kept = block(300_000)
    pool.words[RecyclerWord.LOCK] = 1
    try:
        array = block(300_000)
        array[:] = 7
        del array, kept
        results.trim()
    finally:
        pool.words[RecyclerWord.LOCK] = 0
    assert idle(pool) == []


def test_many_threads_take_and_give() -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        held: list[Array] = []
        for number in range(300):
            array = block(int(rng.integers(RECYCLED_FROM, 4 * RECYCLED_FROM)))
            array[:: results.PAGE] = array[-1] = (seed * 31 + number) % 251
            held.append(array)
            if len(held) > 5:
                found = held.pop(int(rng.integers(len(held))))
                if len(set(found[:: results.PAGE].tolist()) | {int(found[-1])}) != 1:
                    wrong.append((seed, number))

    in_threads(6, work)
    assert not wrong


def test_arenas_of_calls_at_once_are_recycled(pool: results.Recycler) -> None:
    with Graph() as graph:
        x = sg.placeholder((400, 400))
        y = sg.matmul(sg.exp(sg.matmul(x, x) * 0.01), x)
        exe = sg.Session(graph, num_threads=1).compile(y, [x])
    value = np.random.default_rng(1).normal(size=(400, 400)).astype(np.float32)
    want = exe(value).tobytes()
    wrong: list[int] = []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait()
        if any(exe._calls.run(value).tobytes() != want for _ in range(5)):
            wrong.append(number)

    in_threads(6, work)
    assert not wrong
    native = exe._programs.native()
    assert exe.memory.arena_bytes > RECYCLED_FROM
    assert 1 <= len(native.frames) <= IDLE_FRAMES
    assert all(frame.arena_address % 64 == 0 for frame in native.frames)
    assert all(get_handler_name(frame.arena) == OURS for frame in native.frames)


def in_child(work: Callable[[], bool]) -> int:
    """The exit status of a forked child: 0 if the work is right."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("locked", [0, 1])
def test_a_forked_child_has_a_pool_of_its_own(pool: results.Recycler, locked: int) -> None:
    exe, value = doubled(400, 300)
    result = exe(value)
    want = result.tobytes()
    block(500_000)

    def work() -> bool:
        pool.words[RecyclerWord.RECYCLED] = 0
        same = all(exe(value).tobytes() == want for _ in range(3))
        return same and int(pool.words[RecyclerWord.RECYCLED]) >= 2 and result.tobytes() == want

    pool.words[RecyclerWord.LOCK] = locked  # another thread of the parent is at the pool while it forks
    try:
        assert in_child(work) == 0
    finally:
        pool.words[RecyclerWord.LOCK] = 0
    assert result.tobytes() == want


def test_results_outlive_the_interpreter() -> None:
    text = (
        "import builtins, sys, numpy as np, staticgrad as sg\n"
        "x = sg.placeholder((300, 300))\n"
        "exe = sg.Session().compile([x * 2.0, x + 1.0], [x])\n"
        "class Late:\n"
        "    def __init__(self, kept): self.kept = kept\n"
        "    def __del__(self): self.kept[0][:] = 3\n"
        "builtins.kept = Late(exe(np.ones((300, 300), np.float32)))\n"
        "sys.kept = exe(np.ones((300, 300), np.float32))\n"
        "cycle = [exe(np.ones((300, 300), np.float32))]; cycle.append(cycle)\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
