"""Programs over scenarios: ``exe.map`` beside calls of the executable in a loop, and beside NumPy without gradients.

    python benchmarks/scenarios.py [--case option,libor] [--rounds N] [--threads 1,2] [--executor processes,loky,dask]

Microseconds a scenario, the least of several rounds in which all take turns; for executors whole seconds would say more
of starting workers than of them, so each is started once. ``option`` is a price with two derivatives, declared for one
scenario; ``libor`` the book of ``examples/libor.py`` with 160 derivatives, which draws its paths itself. The executable
is called with the number of rows a call at which it is fastest, of those that are tried (``best of``). NumPy computes
the values alone, with as many rows at a time. Sums of all ways are compared first; those of map have the same bits.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import libor

Way = Callable[[], Any]


class OptionCase:
    """A call option and two of its derivatives over drawn numbers, declared for one scenario."""

    count, rows = 1 << 20, (1 << 10, 1 << 12, 1 << 14, 1 << 16)

    def __init__(self) -> None:
        self.z = np.random.default_rng(0).normal(size=self.count)

    @staticmethod
    def declared(shape: tuple[Any, ...]) -> tuple[sg.Graph, list[sg.Tensor], list[sg.Tensor]]:
        with sg.Graph() as graph:
            spot, vol = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
            z = sg.placeholder(shape, sg.float64)
            payoff = sg.maximum(spot * sg.exp(vol * z - vol * vol / 2) - 100.0, 0.0)
            value = payoff.sum() if shape else payoff
            return graph, [value, *sg.gradients(value, [spot, vol])], [spot, vol, z]

    def mapped(self, threads: int, executor: Any = None) -> Way:
        graph, fetches, feeds = self.declared(())
        exe = sg.Session(graph, num_threads=threads).compile(fetches, feeds)
        return lambda: exe.map(100.0, 0.2, self.z, reduce="sum", executor=executor)

    def called(self, rows: int) -> Way:
        graph, fetches, feeds = self.declared((rows,))
        exe = sg.Session(graph, num_threads=1).compile(fetches, feeds, wait=True)
        blocks = self.z.reshape(-1, rows)
        return lambda: np.sum([exe(100.0, 0.2, block) for block in blocks], axis=0)

    def in_numpy(self, rows: int) -> Way:
        def run() -> float:
            blocks = self.z.reshape(-1, rows)
            return sum(float(np.maximum(100.0 * np.exp(0.2 * z - 0.02) - 100.0, 0.0).sum()) for z in blocks)

        return run

    def check(self, found: Any, other: Any) -> None:
        np.testing.assert_allclose(found, other, rtol=1e-9)


class LiborCase:
    """The book of the example, over paths that the program draws."""

    count, rows = 1 << 13, (16, 64, 256)

    def mapped(self, threads: int, executor: Any = None) -> Way:
        book = libor.pricer(threads)
        paths = range(self.count)
        return lambda: book.map(libor.FORWARDS, libor.VOLATILITIES, paths, reduce="mean", executor=executor)

    def called(self, rows: int) -> Way:
        exe = libor.pricer(1)
        path = np.arange(rows)
        exe(libor.FORWARDS, libor.VOLATILITIES, path)
        exe.wait()
        calls = range(self.count // rows)

        def run() -> Any:
            found = [exe(libor.FORWARDS, libor.VOLATILITIES, path) for _ in calls]
            return {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}

        return run

    def in_numpy(self, rows: int) -> Way:
        draw = np.random.default_rng(0)
        calls = range(self.count // rows)
        return lambda: np.mean([_numpy_values(draw.normal(size=(libor.STEPS, rows))).mean() for _ in calls])

    def check(self, found: Any, other: Any) -> None:
        error = (found["square"] / self.count) ** 0.5
        assert abs(found["price"] - (other["price"] if isinstance(other, dict) else other)) < 8 * error


def _numpy_values(z: Any) -> Any:
    """The values of the book, float64[paths], with NumPy."""
    rates = np.repeat(libor.FORWARDS[:, None], z.shape[1], axis=1)
    for step in range(libor.STEPS):
        alive, volatility = rates[step + 1 :], libor.VOLATILITIES[: libor.RATES - step - 1, None]
        drift = libor.PERIOD * volatility
        summed = np.cumsum(drift * alive / (1 + libor.PERIOD * alive), axis=0)
        alive *= np.exp(drift * summed + volatility * (libor.PERIOD**0.5 * z[step] - 0.5 * drift))
    bonds = np.cumprod(1 / (1 + libor.PERIOD * rates[libor.STEPS :]), axis=0)
    annuities = np.cumsum(libor.PERIOD * bonds, axis=0)
    swaps = bonds[libor.MATURITIES - 1] + libor.FIXED[:, None] * annuities[libor.MATURITIES - 1] - 1
    return -100 * np.minimum(swaps, 0).sum(axis=0) / np.prod(1 + libor.PERIOD * rates[: libor.STEPS], axis=0)


CASES: dict[str, type[OptionCase | LiborCase]] = {"option": OptionCase, "libor": LiborCase}


@contextlib.contextmanager
def started(name: str, workers: int) -> Iterator[Any]:
    """An executor of so many workers."""
    if name == "processes":
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            yield pool
    else:
        made = libor.executor_of(name, workers)
        assert made is not None, f"--executor: expected processes, loky, dask or mpi, actual {name!r}"
        with made() as pool:
            yield pool


def measured(name: str, rounds: int, threads: list[int], executors: list[str]) -> None:
    case = CASES[name]()
    with contextlib.ExitStack() as stack:
        ways: dict[str, Way] = {f"map, threads {n}": case.mapped(n) for n in threads}
        for kind in executors:
            pool = stack.enter_context(started(kind, 2))
            ways[f"map, {kind} 2"] = case.mapped(1, pool)
        ways |= {f"called {rows}": case.called(rows) for rows in case.rows}
        ways |= {f"NumPy {rows}": case.in_numpy(rows) for rows in case.rows}
        results = {way: run() for way, run in ways.items()}
        first = next(iter(results.values()))
        mapped = [bits(result) for way, result in results.items() if way.startswith("map")]
        assert len(set(mapped)) == 1, "map: other bits"
        for way, other in results.items():
            if not (way.startswith("NumPy") and name == "option"):
                case.check(first, other)
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(rounds):
            for way, run in ways.items():
                begun = time.perf_counter()
                run()
                best[way] = min(best[way], time.perf_counter() - begun)
    called, numpy = (min(t for way, t in best.items() if way.startswith(kind)) for kind in ("called", "NumPy"))
    print(f"\n{name}, {case.count:,} scenarios: µs a scenario; times as long as called, and as NumPy, at their best")
    for way, seconds in best.items():
        print(f"  {way:<20}{seconds / case.count * 1e6:10.4f}{seconds / called:9.2f}{seconds / numpy:9.2f}")


def bits(result: Any) -> bytes:
    """The bytes of all arrays."""
    return b"".join(np.asarray(x).tobytes() for x in (result.values() if isinstance(result, dict) else result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--executor", default="")
    asked = parser.parse_args()
    for name in asked.case.split(","):
        measured(
            name, asked.rounds, [int(n) for n in asked.threads.split(",")], [*filter(None, asked.executor.split(","))]
        )


if __name__ == "__main__":
    main()
