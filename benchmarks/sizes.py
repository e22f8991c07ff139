"""Measure programs with open sizes: what serving a range of sizes costs, and a GPT whose context grows.

    python benchmarks/sizes.py ratios [--program NAMES] [--drawn N] [--seed N] [--threads N] [--seconds S] [--json FILE]
    python benchmarks/sizes.py growing [--system NAMES] [--tokens N] [--width N] [--layers N] [--runs N] [--threads N]
                                       [--seed N] [--json FILE]

``ratios``: the programs of ``tests/support/sized_programs.py`` at realistic widths, each in two sessions: one compiles
for ranges of sizes, the other for each size. At the largest size of each range and at sizes that are drawn their
results are compared, then they take turns, and the least time of a call of each counts. Goes out: a table of
microseconds and of the time of the exact program over that of the range (above 1 the range is faster), with the
geometric mean and the worst; and what the first call at a drawn size takes over the least of those that follow, after
the ranges have been compiled. ``NAMES`` are separated by commas; ``gpt*`` is every name that begins so.

``growing``: each system writes tokens with one small GPT, from a context of one token on, in a fresh process with
nothing kept on disk (``growing.py``). Scores and tokens must agree with NumPy's in float64 before the times are told.
Goes out: the seconds of the import, until the first token, until the last, and with the import, of the fastest of
several runs. ``staticgrad_exact`` compiles for each length, as JAX does, ``staticgrad_one_range`` says how long texts
get; a system that is not installed is left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import growing
import numpy as np
from turns import POOLS, processors

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support import sized_programs
from support.sized_programs import Array, Kind, SizedProgram, Sizes, range_of

HERE = Path(__file__).resolve().parent
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
TOLERANCE = {"float32": 1e-3, "float64": 1e-10}  # of the largest element: training steps follow each other
ALLOWED = 1e-3  # seconds that a call at a new size may take more
TURNS = 8  # at least
FOLLOWING = 5  # calls at a drawn size, whose least its first call is compared with
REFERENCE = "numpy"
WRITERS = tuple(name for name in growing.STEPS if name != REFERENCE)
OPTIONAL = {"onnxruntime": ("onnxruntime", "onnx")}  # modules that a system needs, where not just its own
clock = time.perf_counter
Call = Callable[[], Any]


def programs() -> list[SizedProgram]:
    """The programs at widths of small models that are used."""
    p = sized_programs
    return [
        p.mlp(F32, (784, 256, 128, 10)), p.mlp(F32, (784, 256, 128, 10), trains=True),
        p.convnet(F32, (16, 32)), p.convnet(F32, (16, 32), normed=True),
        p.gpt(F32, 65, 64, 4), p.gpt(F32, 65, 64, 4, writes=True), p.lstm(F32, 32, 64, most=(64, 32)),
        p.lotka_volterra(F64), p.distances(F32, 16, most=(512, 64)), p.gaussian_process(F64, most=256),
    ]  # fmt: skip


# -- ratios -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """The seconds of a call of the exact program and of the one of a range. ``new``: of a drawn size, by how much its
    first call took longer than the least of those that follow."""

    program: str
    sizes: Sizes
    exact: float
    ranged: float
    new: float | None

    @property
    def ratio(self) -> float:
        return self.exact / self.ranged


class Contestant:
    """A program in a session of its own, which compiles for ranges or for each size."""

    def __init__(self, program: SizedProgram, kind: Kind, threads: int) -> None:
        declared = program.declare()
        self.program = program
        self._session = sized_programs.session(declared.graph, kind, num_threads=threads)
        self._executable = self._session.compile(declared.fetches, list(declared.feeds))
        self._state = [(x, self._session.get(x)) for x in declared.graph.variables.values()] if declared.trains else []

    def call(self, sizes: Sizes) -> Call:
        """A call at these sizes, which returns results by name."""
        executable, arrays = self._executable, self.program.arrays(sizes)
        return lambda: executable(*arrays)

    def reset(self) -> None:
        """Let what training has changed be as it was first."""
        for variable, value in self._state:
            self._session.set(variable, value)


def maxima(program: SizedProgram) -> list[Sizes]:
    """The largest sizes of ranges; of several open sizes the ranges of one number go together."""
    last = [range_of(most)[1] for most in program.most]
    doubled = itertools.takewhile(lambda n: n <= max(last), (range_of(1)[1] << k for k in itertools.count()))
    return list(dict.fromkeys(tuple(min(n, most) for most in last) for n in doubled))


def drawn(program: SizedProgram, count: int, seed: int) -> list[Sizes]:
    """Different sizes between 1 and the most that the program is tried with, none of them the largest of ranges."""
    rng = np.random.default_rng([seed, len(program.dims)])
    found: dict[Sizes, None] = {}
    while len(found) < count:
        sizes = tuple(int(rng.integers(1, most + 1)) for most in program.most)
        if sizes != top(sizes):
            found[sizes] = None
    return list(found)


def top(sizes: Sizes) -> Sizes:
    """The largest sizes of the ranges that some sizes lie in."""
    return tuple(range_of(size)[1] for size in sizes)


def seconds_of(call: Call) -> float:
    start = clock()
    call()
    return clock() - start


def check(program: SizedProgram, sizes: Sizes, got: dict[str, Array], want: dict[str, Array]) -> None:
    """Refuse results that differ by more than rounding."""
    for name, x in want.items():
        if x is not None and x.dtype.kind == "f":
            difference = float(np.abs(got[name] - x).max(initial=0))
            if difference > TOLERANCE[x.dtype.name] * max(float(np.abs(x).max(initial=0)), 1e-3):
                raise SystemExit(f"{program.name} {sizes}: {name} of the range differs by {difference}")


def measured(program: SizedProgram, given: argparse.Namespace) -> Iterator[Row]:
    """A row for each size, the largest ones of ranges first."""
    exact, ranged = (Contestant(program, kind, given.threads) for kind in ("exact", "ranges"))
    for sizes in (*maxima(program), *drawn(program, given.drawn, given.seed)):
        calls = [contestant.call(sizes) for contestant in (exact, ranged)]
        is_largest = sizes == top(sizes)
        if not is_largest:
            ranged.call(top(sizes))()  # compiles the range, if need be
        for contestant in (exact, ranged):
            contestant.reset()
        start = clock()
        got = calls[1]()
        first = clock() - start
        check(program, sizes, got, calls[0]())
        new = None if is_largest else first - min(seconds_of(calls[1]) for _ in range(FOLLOWING))
        best = in_turn(calls, given.seconds)
        yield Row(program.name, sizes, best[0], best[1], new)


def in_turn(calls: Sequence[Call], seconds: float) -> list[float]:
    """The least time of each call, in turns; the two change places from turn to turn."""
    best = [math.inf] * len(calls)
    order = list(range(len(calls)))
    end, turns = clock() + seconds * len(calls), 0
    while clock() < end or turns < TURNS:
        turns += 1
        for place in order:
            for _ in range(4):
                best[place] = min(best[place], seconds_of(calls[place]))
        order.reverse()
    return best


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def size_text(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


def report_ratios(rows: Iterator[Row]) -> list[Row]:
    """Print the table row by row, then means and worst; the rows come back."""
    print("| program | size | exact, µs | range, µs | exact/range | first call at a size, ms more |")
    print("|---|---|---:|---:|---:|---:|")
    found = []
    for row in rows:
        found.append(row)
        new = "" if row.new is None else f"{row.new * 1e3:.3f}"
        times = " | ".join(f"{seconds * 1e6:.1f}" for seconds in (row.exact, row.ranged))
        print(f"| {row.program} | {size_text(row.sizes)} | {times} | {row.ratio:.2f} | {new} |", flush=True)
    print()
    by_program = itertools.groupby(found, lambda row: row.program)
    for name, group in [*((name, list(group)) for name, group in by_program), ("all", found)]:
        worst = min(group, key=lambda row: row.ratio)
        mean = geometric_mean([row.ratio for row in group])
        where = size_text(worst.sizes) if name != "all" else f"{worst.program} {size_text(worst.sizes)}"
        print(f"{name}: geometric mean {mean:.2f}, worst {worst.ratio:.2f} at {where}")
    firsts = [row.new for row in found if row.new is not None]
    if firsts:
        over = sum(new > ALLOWED for new in firsts)
        middle, most = statistics.median(firsts) * 1e3, max(firsts) * 1e3
        print(f"first calls at a size: {middle:.3f} ms more in the median, {most:.3f} at most; {over} of {len(firsts)}")
        print(f"  take more than {ALLOWED * 1e3:g} ms more")
    return found


def ratios(given: argparse.Namespace) -> int:
    wanted = [p for p in programs() if is_among(p.name, given.program)]
    if not wanted:
        raise SystemExit(f"--program: expected some of {', '.join(p.name for p in programs())}")
    rows = report_ratios(row for program in wanted for row in measured(program, given))
    save(given.json, [asdict(row) for row in rows])
    return 0


def is_among(name: str, patterns: str) -> bool:
    """True if one of the patterns between commas is of this name."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split(","))


# -- growing ----------------------------------------------------------------------------------------------------------


def is_installed(system: str) -> bool:
    modules = OPTIONAL.get(system, (growing.MODULES[system],))
    return all(importlib.util.find_spec(module) is not None for module in modules)


def systems(asked: str) -> list[str]:
    """The systems that are there; a line for each that is not."""
    found = []
    for name in WRITERS:
        if not is_among(name, asked):
            continue
        if name == "staticgrad_exact" and not sized_programs.HAS_RANGES:
            print(f"{name}: left out: every program is exact", file=sys.stderr)
        elif not is_installed(name):
            print(f"{name}: left out: not installed", file=sys.stderr)
        else:
            found.append(name)
    return found


def written(system: str, given: argparse.Namespace) -> growing.Written:
    """The outcome of a fresh process with empty caches."""
    options = [f"--{name}={getattr(given, name)}" for name in ("tokens", "width", "layers", "threads", "seed")]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"STATICGRAD_CACHE_DIR": folder, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        environment = os.environ | dict.fromkeys(POOLS, str(given.threads)) | settings
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first run writes what an installation has
        command = [sys.executable, str(HERE / "growing.py"), system, *options]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return growing.Written(**json.loads(done.stdout.splitlines()[-1]))


def mismatch(got: growing.Written, want: growing.Written) -> str:
    """A text that says where tokens or scores differ; empty if they agree."""
    if got.tokens != want.tokens:
        place = next(i for i, (a, b) in enumerate(zip(got.tokens, want.tokens, strict=True)) if a != b)
        return f"token {place} differs"
    difference = np.abs(np.array(got.scores) - want.scores).max()
    return f"scores differ by {difference:.1e}" if difference > 1e-4 * np.abs(want.scores).max() else ""


def grow(given: argparse.Namespace) -> int:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors(given.threads))
    want = written(REFERENCE, given)
    found: dict[str, growing.Written] = {}
    failed = False
    print(f"| system | import, s | first token, s | {given.tokens} tokens, s | with the import, s |")
    print("|---|---:|---:|---:|---:|")
    for name in systems(given.system):
        runs = [written(name, given) for _ in range(given.runs)]
        wrong = next(filter(None, (mismatch(run, want) for run in runs)), "")
        failed |= bool(wrong)
        best = found[name] = min(runs, key=lambda run: run.import_s + run.total_s)
        times = (best.import_s, best.first_s, best.total_s, best.import_s + best.total_s)
        cells = [wrong, "", "", ""] if wrong else [f"{seconds:.2f}" for seconds in times]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    save(given.json, {name: asdict(run) for name, run in found.items()})
    return int(failed)


# -- the command ------------------------------------------------------------------------------------------------------


def save(path: Path | None, record: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("ratios", help="exact programs and those of ranges, in turn")
    one.set_defaults(run=ratios)
    one.add_argument("--program", metavar="NAMES", default="*")
    one.add_argument("--drawn", type=int, default=10, metavar="N", help="sizes of a program that are drawn")
    one.add_argument("--seed", type=int, default=0, metavar="N", help="of the sizes")
    one.add_argument("--threads", type=int, default=1, metavar="N")
    one.add_argument("--seconds", type=float, default=0.2, metavar="S", help="of each program at each size")
    other = commands.add_parser("growing", help="a GPT writes, beside other systems")
    other.set_defaults(run=grow)
    other.add_argument("--system", metavar="NAMES", default="*", help="some of: " + ", ".join(WRITERS))
    growing.arguments(other)
    other.add_argument("--runs", type=int, default=3, metavar="N", help="processes of each system")
    for command in (one, other):
        command.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    given = parser.parse_args(arguments)
    status: int = given.run(given)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
