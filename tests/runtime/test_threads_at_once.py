"""Threads of Python that call the same executables at once: with the GIL they take turns, without it they do not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED
from staticgrad.runtime.session.calls import Calls

THREADS = 6
TURNS = 150


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """With the GIL threads change places as often as they may."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """The results of ``work(0)``, ``work(1)``, …, each in a thread of its own."""
    results: list[Any] = [None] * THREADS
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            start.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_every_thread_gets_the_answer_to_its_own_arrays() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((5, 7))
        exe = sg.Session(graph).compile([sg.tanh(x) @ sg.transpose(x), x + 1], x)
    given = [np.random.default_rng(i).normal(size=(5, 7)).astype(np.float32) for i in range(THREADS)]
    wanted = [exe(values) for values in given]

    def work(number: int) -> None:
        out: list[Any] = [np.empty((5, 5), np.float32), None]
        for turn in range(TURNS):
            got = exe(given[number]) if turn % 2 else exe(given[number], out=out)
            for a, b in zip(got, wanted[number], strict=True):
                np.testing.assert_array_equal(a, b)
            out[1] = None

    at_once(work)


def test_threads_with_other_sizes_share_a_program() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((None,))
        exe = sg.Session(graph).compile(x * 2, x)
    exe(np.ones(100, np.float32))

    def work(number: int) -> None:
        for turn in range(TURNS):
            size = 65 + (7 * turn + number) % 60
            np.testing.assert_array_equal(exe(np.full(size, number, np.float32)), np.full(size, 2 * number))

    at_once(work)


def test_no_write_of_a_variable_is_lost() -> None:
    with sg.Graph() as graph:
        total = sg.Variable(np.zeros(3))
        session = sg.Session(graph)
        step = session.compile(sg.assign(total, total + 1.0))
    at_once(lambda _: [step() for _ in range(TURNS)])
    np.testing.assert_array_equal(session.run(total), np.full(3, float(THREADS * TURNS)))


def test_no_random_number_is_drawn_twice() -> None:
    with sg.Graph() as graph:
        exe = sg.Session(graph).compile(sg.random.uniform((4,), dtype=sg.float64))
    drawn = at_once(lambda _: [tuple(exe().tolist()) for _ in range(TURNS)])
    assert len({row for rows in drawn for row in rows}) == THREADS * TURNS


def test_numbers_of_python_are_a_call_s_own() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((), sg.float64)
        exe = sg.Session(graph).compile(x + 1.0, x)
    exe(0.0)

    def work(number: int) -> None:
        for turn in range(TURNS):
            assert exe(float(number * TURNS + turn)) == number * TURNS + turn + 1.0

    at_once(work)


@pytest.mark.skipif(not IS_FREE_THREADED, reason="with the GIL one call is in the machine code at a time")
def test_without_the_gil_calls_at_once_find_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((80, 80))
        session = sg.Session(graph, num_threads=1)
        exe = session.compile(sg.exp(x @ x) @ x, x)
    ones = np.full((80, 80), 0.01, np.float32)
    wanted = exe(ones)
    monkeypatch.setattr("staticgrad.runtime.running.entries.os.cpu_count", lambda: THREADS)
    (program,) = exe._programs.by_shapes.values()
    fast = program.way.fast
    assert fast is not None
    at_once(lambda _: [np.testing.assert_array_equal(exe(ones), wanted) for _ in range(TURNS)])
    assert 1 < len(fast._chain) <= THREADS
    slow: list[int] = []
    given = Calls.given
    monkeypatch.setattr(Calls, "given", lambda self, values: slow.append(1) or given(self, values))
    at_once(lambda _: [exe(ones) for _ in range(TURNS)])
    assert len(slow) < THREADS * TURNS / 4
