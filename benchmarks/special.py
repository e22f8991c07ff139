"""How much longer elementwise ops take for special arguments than for ordinary ones.

    python benchmarks/special.py [--op NAMES] [--dtype float32|float64] [--size N] [--seconds S] [--above RATIO]

Every elementwise op of the op table runs on one thread, over an array filled with one special value, its other operands
ordinary ones: what masks and padding hold (infinities, -1e9, -1e4), zeros, ones, large numbers, NaN, numbers whose
exponential is denormal, and denormal ones. The arrays take turns; the median time of each counts. ``NAMES`` are
separated by commas; ``log*`` is every name that begins so. Goes out: a table in Markdown of the microseconds for
ordinary arguments, and of each ratio over that which is above ``--above``. x86 takes more than a hundred cycles for
an operation with a denormal operand or result, so the last columns are never empty.
"""

from __future__ import annotations

import argparse
import fnmatch
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from optimised import optimised

import staticgrad as sg
from staticgrad.errors import StaticGradError
from staticgrad.graph import optable
from staticgrad.ops.declare import declare

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
FLOAT = np.dtype(np.float32)
SPECIAL = ("-inf", "-1e9", "-1e4", "-100", "-1", "0", "1", "100", "1e4", "1e9", "inf", "nan")
STEEP = {"float32": ("-95", "1e-40"), "float64": ("-730", "1e-310")}  # exponential denormal; denormal


def elementwise_ops(patterns: Sequence[str]) -> Iterator[tuple[str, optable.Op, optable.Case]]:
    """The elementwise ops, with each of the attributes that tests sample."""
    optable.FUNCTIONS.complete()
    for name, op in sorted(optable.OPS.items()):
        if op.elementwise and FLOAT in op.dtypes and any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            cases = {repr(case.attrs): case for case in reversed(op.cases)}
            for i, case in enumerate(reversed(cases.values())):
                yield name if i == 0 else f"{name} ({i + 1})", op, case


def ordinary(case: optable.Case, given: argparse.Namespace) -> list[Array]:
    """Operands as tests sample them, each of ``given.size`` elements."""
    rng = np.random.default_rng(0)
    ranges = case.ranges or (optable.REAL,) * len(case.shapes)
    dtypes = case.dtypes or (None,) * len(case.shapes)
    return [
        rng.uniform(r.low, r.high, given.size).astype(dtype or given.dtype)
        for r, dtype in zip(ranges, dtypes, strict=True)
    ]


def runs(op: optable.Op, case: optable.Case, given: argparse.Namespace) -> list[Run]:
    """A call for ordinary arguments, and one for each special value as the first operand of the dtype; no calls where
    the op takes none of that."""
    arrays = ordinary(case, given)
    place = next((i for i, a in enumerate(arrays) if a.dtype == given.dtype), None)
    graph = sg.Graph()
    with graph:
        inputs = [sg.placeholder(a.shape, a.dtype) for a in arrays]
        try:
            result = declare(op, inputs, case.attrs)
        except StaticGradError:
            return []
    if place is None:
        return []
    executable = optimised(sg.Session(graph, num_threads=1).compile([result], inputs))

    def call(operands: Sequence[Array]) -> Run:
        out = [np.array(r) for r in executable(*operands)]
        return lambda: executable(*operands, out=out)

    filled = [np.full(given.size, value, given.dtype) for value in (*SPECIAL, *STEEP[given.dtype])]
    return [call(arrays), *(call([*arrays[:place], f, *arrays[place + 1 :]]) for f in filled)]


def medians(calls: Sequence[Run], seconds: float) -> list[float]:
    """The median time of each, in turns."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", type=lambda text: text.split(","), default=["*"])
    parser.add_argument("--dtype", choices=tuple(STEEP), default="float32")
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--above", type=float, default=3.0)
    given = parser.parse_args()
    columns = ("op", "µs", *SPECIAL, *STEEP[given.dtype])
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for name, op, case in elementwise_ops(given.op):
        if calls := runs(op, case, given):
            usual, *others = medians(calls, given.seconds)
            cells = [f"{t / usual:.0f}" if t > given.above * usual else "" for t in others]
            print("| " + " | ".join((name, f"{usual * 1e6:.1f}", *cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
