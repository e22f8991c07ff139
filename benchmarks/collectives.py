"""Measure collective operations: what our all_reduce costs beside mpi4py's, and how much of it a backward hides.

    python benchmarks/collectives.py reduce [--ranks N] [--rounds N] [--json FILE]
    python benchmarks/collectives.py step [--ranks N] [--rounds N] [--width N] [--layers N] [--batch N] [--json FILE]

Each starts itself under the ``mpiexec`` beside the interpreter, or the one on the path, one thread a rank.

``reduce``: sums of 1 to 4 Mi float32 over the ranks, by a program of one op and by ``comm.Allreduce`` on the same
arrays, which take turns. Their results are compared first. Goes out: microseconds of each (the median over the rounds
of the slowest rank), the median ratio within a round, and of the latency α and the seconds per byte β that fit our
times best in proportion: t = α + β n, n the bytes of the vector.

``step``: a training step of a dense network on each rank's own batch, without communication (each rank for itself), and
with one, two and four buckets; the steps take turns. Goes out: milliseconds of each, and what communication adds to a
step: its ratio to the one without.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from optimised import optimised

import staticgrad as sg
from staticgrad.base.world import World, world

SIZES = tuple(4**k for k in range(12))  # elements of float32: 4 bytes to 16 MiB
SECONDS = 0.02  # of a turn, about
BUCKETS = (1, 2, 4)
clock = time.perf_counter


@dataclass(frozen=True)
class Row:
    """One measured case: seconds of ours and of what it is compared with, and the median ratio within a round."""

    name: str
    ours: float
    other: float
    ratio: float


def turns(calls: Sequence[Callable[[], Any]], rounds: int, here: World) -> list[list[float]]:
    """The seconds of a call, of the slowest rank, for each call in each round, in which they take turns."""
    count = 1
    for call in calls:  # all ranks make as many calls
        call()
        begun = clock()
        call()
        slowest = _slowest(here, clock() - begun)
        count = max(count, min(1000, int(SECONDS / max(slowest, 1e-7))))
    found: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        for i in np.roll(np.arange(len(calls)), number):
            here.barrier()
            begun = clock()
            for _ in range(count):
                calls[i]()
            found[i].append(_slowest(here, (clock() - begun) / count))
    return found


def _slowest(here: World, seconds: float) -> float:
    return float(here.all_reduce(np.array([seconds]), "max")[0])


def compared(name: str, ours: Sequence[float], other: Sequence[float]) -> Row:
    ratios = [a / b for a, b in zip(ours, other, strict=True)]
    return Row(name, statistics.median(ours), statistics.median(other), statistics.median(ratios))


def measure_reduce(given: argparse.Namespace, here: World) -> list[Row]:
    """A row for each size."""
    rows = []
    for count in SIZES:
        with sg.Graph() as graph:
            x = sg.placeholder((count,))
            step = optimised(sg.Session(graph).compile(sg.distributed.all_reduce(x), x))
        values, result = np.full(count, here.rank + 1, np.float32), np.empty(count, np.float32)
        received = np.empty_like(values)

        def ours(step: Any = step, values: Any = values, result: Any = result) -> None:
            step(values, out=result)

        def theirs(values: Any = values, received: Any = received) -> None:
            if here.comm is None:
                received[...] = values
            else:
                here.comm.Allreduce(values, received)

        ours(), theirs()  # type: ignore[func-returns-value]
        np.testing.assert_array_equal(result, received)
        first, second = turns([ours, theirs], given.rounds, here)
        rows.append(compared(str(4 * count), first, second))
    return rows


def fitted(rows: Sequence[Row]) -> tuple[float, float]:
    """α in seconds and β in seconds per byte, of least relative error."""
    nbytes, seconds = np.array([float(row.name) for row in rows]), np.array([row.ours for row in rows])
    matrix = np.stack([1 / seconds, nbytes / seconds], 1)
    alpha, beta = np.linalg.lstsq(matrix, np.ones(len(rows)), rcond=None)[0]
    return float(alpha), float(beta)


def measure_steps(given: argparse.Namespace, here: World) -> list[Row]:
    """A row for each number of buckets, beside the step without communication."""
    rng = np.random.default_rng(here.rank)
    images = rng.normal(size=(given.batch, given.width)).astype(np.float32)
    targets = rng.normal(size=(given.batch, given.width)).astype(np.float32)
    steps = []
    for buckets in (0, *BUCKETS):
        with sg.Graph() as graph:
            x, t = sg.placeholder(images.shape), sg.placeholder(targets.shape)
            layers = [sg.nn.Linear(given.width, given.width) for _ in range(given.layers)]
            y = x
            for layer in layers:
                y = sg.nn.relu(layer(y))
            loss = sg.nn.mse_loss(y, t)
            how: dict[str, Any] = {"distributed": True, "buckets": buckets} if buckets else {}
            train = sg.optim.SGD(lr=1e-3).minimize(loss, **how)
            step = optimised(sg.Session(graph).compile([loss, train], [x, t]))
        steps.append(lambda step=step: step(images, targets))
    alone, *together = turns(steps, given.rounds, here)
    return [compared(f"buckets={n}", seconds, alone) for n, seconds in zip(BUCKETS, together, strict=True)]


def launched(arguments: Sequence[str], ranks: int) -> int:
    """Run this script in so many processes."""
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        sys.exit("there is no mpiexec: pip install mpich mpi4py")
    pools = dict.fromkeys(("STATICGRAD_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [launcher, "-n", str(ranks), sys.executable, __file__, *arguments, "--inside"]
    return subprocess.run(command, env=os.environ | pools).returncode


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("reduce", "step"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.inside:
        return launched(arguments, given.ranks)
    here = world()
    rows = measure_reduce(given, here) if given.what == "reduce" else measure_steps(given, here)
    if here.rank == 0:
        report(given.what, rows)
        if given.json is not None:
            given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def report(what: str, rows: Sequence[Row]) -> None:
    """Print the table."""
    if what == "reduce":
        print(f"{'bytes':>10} {'ours µs':>10} {'mpi4py µs':>10} {'ratio':>6} {'ours GB/s':>10}")
        for row in rows:
            speed = float(row.name) / row.ours / 1e9
            print(f"{row.name:>10} {1e6 * row.ours:>10.2f} {1e6 * row.other:>10.2f} {row.ratio:>6.2f} {speed:>10.2f}")
        alpha, beta = fitted(rows)
        print(f"t = {1e6 * alpha:.2f} µs + n / {1e-9 / beta:.2f} GB/s")
        return
    print(f"{'step':>12} {'ms':>8} {'alone ms':>9} {'ratio':>6}")
    for row in rows:
        print(f"{row.name:>12} {1e3 * row.ours:>8.2f} {1e3 * row.other:>9.2f} {row.ratio:>6.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
