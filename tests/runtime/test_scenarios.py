"""Programs over scenarios: values as those of single calls, and the same bits however the work is shared out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.scenarios import bits, numbers, of_one, of_rows

import staticgrad as sg
from staticgrad.runtime.scenarios.tree import TreeSum
from staticgrad.runtime.session import mapping

Array = np.ndarray[Any, np.dtype[Any]]
SPAWN = get_context("spawn")  # a fork has the threads of the tests before


# -- values -----------------------------------------------------------------------------------------------------------


def test_a_program_of_one_scenario_over_many() -> None:
    exe, zs = of_one(), numbers(1000)
    found = exe.map(100.0, 0.2, zs)
    for place in (0, 1, 500, 999):
        np.testing.assert_allclose([x[place] for x in found], exe(100.0, 0.2, zs[place]), rtol=1e-13)
    for reduce, total in (("sum", 1000), ("mean", 1)):
        for one, all_ in zip(exe.map(100.0, 0.2, zs, reduce=reduce), found, strict=True):
            np.testing.assert_allclose(one, all_.mean() * total, rtol=1e-13)


def test_a_program_of_rows() -> None:
    exe, w, x = of_rows(), numbers(3, seed=1), numbers(20_000, 3)
    whole = exe(w, x)
    found = exe.map(w, x, reduce="sum")
    np.testing.assert_allclose(found["sum"], whole["sum"], rtol=1e-12)
    np.testing.assert_allclose(found["y"], whole["y"].sum(), rtol=1e-12)
    np.testing.assert_allclose(found["slope"], whole["slope"], rtol=1e-11)
    means = sg.Session(exe.session.graph).compile([exe.fetches["y"], exe.fetches["y"].mean()], [*exe.feeds])
    rows, mean = means.map(w, x, reduce="mean")
    np.testing.assert_allclose([rows, mean], whole["y"].mean(), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 4097])
def test_any_number_of_scenarios(n: int) -> None:
    exe, w, x = of_rows(), numbers(3, seed=1), numbers(n, 3)
    np.testing.assert_allclose(exe.map(w, x, reduce="sum")["sum"], exe(w, x)["sum"], rtol=1e-12)
    rows = sg.Session(exe.session.graph).compile(exe.fetches["y"], [*exe.feeds])
    np.testing.assert_array_equal(rows.map(w, x), rows.map(w, x, block=1))
    np.testing.assert_allclose(rows.map(w, x), exe(w, x)["y"], rtol=1e-14)


def test_the_number_of_scenarios_of_a_call_may_be_given() -> None:
    with sg.Graph() as graph:
        n = sg.dim("n")
        x, w = sg.placeholder((n, 2), name="x"), sg.placeholder((None,), name="w")
        count, call = sg.sum(x * 0 + 1) / 2, sg.sum(w * 0) + 1
    exe = sg.Session(graph).compile([count, call], {x: (8, 2), w: (5,)})
    rows = np.zeros((20, 2), np.float32)
    counted, calls = exe.map(rows, np.zeros(5, np.float32), reduce="sum")
    assert (counted, calls) == (20, 3)  # calls of 8, 8 and 4
    assert exe.map(rows[:8], np.zeros(5, np.float32), reduce="sum")[1] == 1


def test_dtypes_of_sums_and_means() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((), sg.int32)
        y = sg.astype(x, sg.float32) / 3
    exe = sg.Session(graph).compile([x, x > 4, y], x)
    found = exe.map(np.arange(10, dtype=np.int32), reduce="sum")
    assert [(str(v.dtype), float(v)) for v in found[:2]] == [("int64", 45.0), ("int64", 5.0)]
    assert found[2].dtype == np.float32
    assert found[2] == np.float32(np.float64(np.arange(10, dtype=np.float32) / np.float32(3)).sum())
    assert [float(v) for v in exe.map(np.arange(10, dtype=np.int32), reduce="mean")[:2]] == [4.5, 0.5]


def test_variables_are_those_of_the_session_now() -> None:
    with sg.Graph() as graph:
        x, w = sg.placeholder((), sg.float64), sg.Variable(np.float64(2.0))
        y = x * w
    sess = sg.Session(graph)
    exe = sess.compile(y, x)
    assert exe.map([1.0, 2.0], reduce="sum") == 6.0
    sess.set(w, 5.0)
    assert exe.map([1.0, 2.0], reduce="sum") == 15.0


def test_loops_and_gathers_of_one_scenario() -> None:
    with sg.Graph() as graph:
        x, table = sg.placeholder((3,), sg.float64), sg.placeholder((None,), sg.float64)
        total, _ = sg.scan(lambda carry, row: (carry * 0.5 + row, row), sg.zeros((), dtype=sg.float64), x)
        y = total + sg.take(table, sg.astype(sg.abs(x[0]) * 2, sg.int64))
    exe = sg.Session(graph).compile(y, [x, table])
    xs, values = np.clip(numbers(200, 3), -2, 2), np.arange(6.0)
    np.testing.assert_allclose(exe.map(xs, values), [exe(row, values) for row in xs], rtol=1e-14)


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_random_numbers_of_rows() -> None:
    with sg.Graph() as graph:
        numbers_ = sg.placeholder((sg.dim("paths"),), name="number")
        z = sg.random.normal((numbers_.shape[0],), dtype=sg.float64)

    def run(threads: int, **how: Any) -> list[Array]:
        return sg.Session(graph, num_threads=threads, seed=7).compile([z, z * z], numbers_).map(range(50_001), **how)

    found = run(1)
    assert len(np.unique(found[0])) == 50_001
    np.testing.assert_allclose([found[0].mean(), found[1].mean()], [0, 1], atol=0.02)
    assert bits(found) == bits(run(3)) == bits(run(2, block=7))
    sess = sg.Session(graph, seed=7)
    first, second = (sess.compile(z, numbers_).map(range(100)) for _ in range(2))
    assert not np.intersect1d(first, second).size


def test_random_numbers_of_one_scenario() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((), sg.float64)
        z = x + sg.random.uniform((), dtype=sg.float64)
    found = sg.Session(graph, seed=1).compile(z, x).map(np.zeros(300))
    assert len(np.unique(found)) == 300
    assert bits(found) == bits(sg.Session(graph, seed=1, num_threads=2).compile(z, x).map(np.zeros(300), block=8))


# -- the same bits ----------------------------------------------------------------------------------------------------


def test_bits_depend_on_no_block_and_no_threads() -> None:
    n = 30_011
    w, x, zs = numbers(3, seed=1), numbers(n, 3), numbers(n)
    rows = {repr(bits(list(of_rows(t).map(w, x, reduce="sum", block=b).values())))
            for t, b in ((1, None), (2, None), (3, 1), (2, 100), (4, 5000), (1, n), (2, 10 * n))}  # fmt: skip
    ones = {repr(bits(of_one(t).map(100.0, 0.2, zs, reduce="mean", block=b)))
            for t, b in ((1, None), (2, None), (3, 1), (2, 100), (4, 5000), (1, n))}  # fmt: skip
    assert len(rows) == len(ones) == 1


def test_a_tree_of_parts_has_the_bits_of_the_tree_of_leaves() -> None:
    rng = np.random.default_rng(0)
    for count in (*range(1, 40), 100, 257):
        leaves = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(count)]

        def total(parts: Sequence[Array]) -> Array:
            tree = TreeSum()
            for part in parts:
                tree.add([part.copy()])
            return tree.total()[0]

        for size in (2, 4, 16, 64):
            parts = [total(leaves[at : at + size]) for at in range(0, count, size)]
            assert total(parts).tobytes() == total(leaves).tobytes()
        np.testing.assert_allclose(total(leaves), np.sum(leaves, axis=0), rtol=1e-9, atol=1e-6)


def test_processes_give_the_same_bits() -> None:
    w, x, zs = numbers(3, seed=1), numbers(30_011, 3), numbers(30_011)
    rows, one = of_rows(), of_one()
    with ProcessPoolExecutor(2, SPAWN) as pool, ThreadPoolExecutor(2) as threads:
        for executor in (pool, threads):
            assert bits([*rows.map(w, x, reduce="sum").values()]) == bits(
                [*rows.map(w, x, reduce="sum", executor=executor).values()]
            )
            assert bits(one.map(100.0, 0.2, zs)) == bits(one.map(100.0, 0.2, zs, executor=executor, block=1000))


# -- what goes wrong --------------------------------------------------------------------------------------------------


class Killing(ProcessPoolExecutor):
    """A pool, one of whose workers is killed after some blocks."""

    kills = 1

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = super().submit(*args, **kwargs)
        if Killing.kills and len(self._pending_work_items) > 3:
            Killing.kills -= 1
            os.kill(next(iter(self._processes)), signal.SIGKILL)
        return future


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signals")
def test_a_worker_that_is_killed_changes_nothing() -> None:
    exe, zs = of_one(2), numbers(200_000)
    wanted = exe.map(100.0, 0.2, zs, reduce="mean")
    made: list[Killing] = []

    def make() -> Killing:
        made.append(Killing(2, SPAWN))
        return made[-1]

    Killing.kills = 1
    found = exe.map(100.0, 0.2, zs, reduce="mean", block=8192, executor=make)
    assert (bits(found), len(made)) == (bits(wanted), 2)
    Killing.kills = 1
    with make() as pool, pytest.warns(sg.ExecutorWarning, match="threads of this process") as caught:
        found = exe.map(100.0, 0.2, zs, reduce="mean", block=8192, executor=pool)
    assert bits(found) == bits(wanted)
    assert caught[0].filename == __file__


class Failing:
    """An executor that computes at once, and loses every third block; of ``always`` all of them."""

    def __init__(self, always: bool = False) -> None:
        self.calls, self.always = 0, always
        self.whole: list[bool] = []

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        self.calls += 1
        self.whole.append(args[1] is not None)
        future: Future[Any] = Future()
        if self.always or self.calls % 3 == 0:
            future.set_exception(OSError("the connection was lost"))
        else:
            future.set_result(function(*args))
        return future


def test_a_block_that_was_lost_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    exe, zs = of_one(), numbers(100_000)
    failing = Failing()
    assert bits(exe.map(100.0, 0.2, zs, executor=failing, block=16384)) == bits(exe.map(100.0, 0.2, zs))
    assert failing.calls == 10
    with pytest.raises(OSError, match="connection") as caught:
        exe.map(100.0, 0.2, zs, executor=Failing(always=True))
    assert "attempt 3" in caught.value.__notes__[0]
    monkeypatch.setattr(mapping, "SMALL", 0)  # a long program is sent once, and again where a worker lacks it
    failing = Failing()
    exe.map(101.0, 0.2, zs, executor=failing, block=16384)
    assert failing.whole.count(True) == 1


def test_a_check_that_fails_says_in_which_scenarios() -> None:
    with sg.Graph() as graph:
        x, table = sg.placeholder((), sg.int64), sg.placeholder((5,), sg.float64)
        y = sg.take(table, x)
    exe = sg.Session(graph).compile(y, [x, table])
    at = np.zeros(100_000, np.int64)
    at[70_000] = 9
    with ProcessPoolExecutor(1, SPAWN) as pool:
        for executor in (None, pool):
            with pytest.raises(sg.BoundsError, match="index 9 is out of range for size 5") as caught:
                exe.map(at, np.zeros(5), executor=executor)
            first, last = map(int, caught.value.__notes__[0].split("scenarios ")[1].split(" to "))
            assert 0 < first <= 70_000 <= last < 99_999


def test_what_is_refused() -> None:
    one, rows, w, x = of_one(), of_rows(), np.zeros(3), np.zeros((10, 3))
    with pytest.raises(sg.FeedError, match="no array has an axis of scenarios"):
        one.map(100.0, 0.2, 0.0)
    with pytest.raises(sg.FeedError, match="numbers of scenarios differ: 'vol' has 4, 'z' has 3"):
        one.map(100.0, np.zeros(4), np.zeros(3))
    with pytest.raises(sg.FeedError, match="expected 3 arrays"):
        one.map(1.0, 2.0)
    with pytest.raises(sg.FeedError, match="expected scenarios, actual none"):
        one.map(1.0, 2.0, [])
    with pytest.raises(sg.FeedError, match=r"feed of 'x': wrong shape\n  expected \('scenarios', 3\)"):
        rows.map(w, np.zeros((10, 4)), reduce="sum")
    with pytest.raises(sg.FeedError, match="does not cast"):
        rows.map(w, x.astype(np.complex128), reduce="sum")
    with pytest.raises(sg.FetchError, match=r"has no axis of scenarios, of size scenarios.*reduce='sum'"):
        rows.map(w, x)
    with pytest.raises(sg.StaticGradError, match="reduce: expected None, 'sum' or 'mean', actual 'max'"):
        rows.map(w, x, reduce="max")  # type: ignore[arg-type]
    with pytest.raises(sg.StaticGradError, match="block: expected a number of scenarios, actual 0"):
        rows.map(w, x, reduce="sum", block=0)
    with pytest.raises(sg.StaticGradError, match="executor: expected one with submit"):
        rows.map(w, x, reduce="sum", executor=3)
    with sg.Graph() as graph:
        a, b = sg.placeholder((None,), name="a"), sg.placeholder((None,), name="b")
        v = sg.Variable(0.0)
        s, t, written = sg.sum(a) * b, a, sg.assign(v, sg.sum(a))
    sess = sg.Session(graph)
    with pytest.raises(sg.FeedError, match=r"not the same: 'a' \(None,\), 'b' \(None,\). Declare"):
        sess.compile(s, [a, b]).map([1.0], [2.0], reduce="sum")
    with pytest.raises(sg.FetchError, match="expected tensors, actual ops"):
        sess.compile([t, written.op if isinstance(written, sg.Tensor) else written], [a]).map([1.0])


def test_the_reference_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with pytest.raises(sg.StaticGradError, match="map: the reference backend"):
        of_one().map(100.0, 0.2, numbers(10))


def test_programs_that_write_are_refused() -> None:
    with sg.Graph() as graph:
        x, v = sg.placeholder((), sg.float64), sg.Variable(np.float64(0.0), name="total")
        with sg.control_dependencies([sg.assign(v, v + x)]):
            y = x * 2
    with pytest.raises(sg.StaticGradError, match="writes the variable"):
        sg.Session(graph).compile(y, x).map([1.0, 2.0])


# -- memory, files, progress ------------------------------------------------------------------------------------------


def test_results_and_arrays_in_files(tmp_path: Path) -> None:
    exe, w = of_rows(), numbers(3, seed=1)
    rows = sg.Session(exe.session.graph).compile([exe.fetches["y"]], [*exe.feeds])
    n = 5000
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(n, 3))
    x[:] = numbers(n, 3)
    out = np.memmap(tmp_path / "y", np.float64, "w+", shape=(n,))
    (found,) = rows.map(w, x, out=[out])
    assert found is out
    np.testing.assert_array_equal(out, rows.map(w, np.asarray(x))[0])
    np.testing.assert_array_equal(out, rows.map(w, np.asfortranarray(x))[0])
    np.testing.assert_array_equal(out, rows.map(w, x.tolist())[0])
    with pytest.raises(sg.FeedError, match="expected float64"):
        rows.map(w, x, out=[np.empty(n, np.float32)])


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    of_one(2).map(100.0, 0.2, numbers(100_000), block=16384, progress=lambda *now: told.append(now))
    assert told == [(min(16384 * i, 100_000), 100_000) for i in range(1, 8)]
    of_one().map(100.0, 0.2, numbers(10), progress=True)
    with pytest.raises(sg.StaticGradError, match="progress: expected True or a function"):
        of_one().map(100.0, 0.2, numbers(10), progress=3)  # type: ignore[arg-type]


def test_calls_at_once() -> None:
    exe, zs = of_one(2), numbers(50_000)
    wanted, found = bits(exe.map(100.0, 0.2, zs, reduce="sum")), []

    def run() -> None:
        found.append(bits(exe.map(100.0, 0.2, zs, reduce="sum")))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


MEMORY = """
import resource, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from support import scenarios
n = int(sys.argv[2])
exe = scenarios.of_rows(2)
x = np.broadcast_to(np.arange(3.0), (n, 3))
exe.map(np.ones(3), x, reduce="sum")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_scenarios() -> None:
    def most(n: int) -> int:
        command = [sys.executable, "-c", MEMORY, str(Path(__file__).parents[1]), str(n)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 10

    few, many = most(500_000), most(4_000_000)  # of 96 MB, were they an array
    assert many - few < 24 << 20


WORKER = """
import sys
for name in ("llvmlite", "networkx", "scipy"):
    sys.modules[name] = None
from staticgrad.runtime.scenarios.work import run_block
"""


def test_a_worker_needs_numpy_alone(tmp_path: Path) -> None:
    import pickle

    class Writing:
        def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
            (tmp_path / "task").write_bytes(pickle.dumps((function, args)))
            code = WORKER + (
                f"import pickle; f, a = pickle.load(open({str(tmp_path / 'task')!r}, 'rb'))\n"
                f"pickle.dump(f(*a), open({str(tmp_path / 'result')!r}, 'wb'))\n"
                "assert not any(name.startswith('staticgrad.compiler.pass') for name in sys.modules)\n"
            )
            subprocess.run([sys.executable, "-c", code], check=True)
            future: Future[Any] = Future()
            future.set_result(pickle.loads((tmp_path / "result").read_bytes()))
            return future

    exe, zs = of_one(), numbers(1000)
    assert bits(exe.map(100.0, 0.2, zs, executor=Writing(), block=1000)) == bits(exe.map(100.0, 0.2, zs))
