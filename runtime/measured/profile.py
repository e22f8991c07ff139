"""Profiles: how long each kernel of a program takes.

Input: a loaded program that notes the processor's clock after each step, and what it is fed. Output: the median
time of each kernel over many calls, with its rates and the user's source line; as a table, or as a trace that Chrome
and Perfetto show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from staticgrad.base.errors import SourceLine
from staticgrad.base.files import path_of
from staticgrad.base.frozen import frozen
from staticgrad.base.tables import table
from staticgrad.graph.optable import Array
from staticgrad.runtime.measured.machine import sketch

if TYPE_CHECKING:
    from staticgrad.runtime.running.native import NativeRunner

WARM_CALLS = 3
FEWEST_CALLS, MOST_CALLS, SECONDS = 5, 2000, 0.3  # calls, within the time and these bounds
CALIBRATION_SECONDS = 0.02


NUMBERS = ("µs", "%", "GFLOP/s", "GB/s", "% of floor")  # columns of a profile


@frozen
class KernelTime:
    """One kernel: the seconds it takes, the operations it does, the bytes it reads and writes at least once.

    ``floor`` are the seconds under which no implementation gets: the operations at the machine's peak, or a copy of
    these bytes, whichever takes longer; both measured here. Elementary functions count nothing in it.
    """

    name: str
    family: str
    seconds: float
    flops: int
    bytes: int
    floor: float
    source: SourceLine | None

    @property
    def gflops(self) -> float:
        """10⁹ floating-point operations a second."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """10⁹ bytes a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def fraction(self) -> float:
        """The part of the floor that is reached; 1 is as fast as the machine allows."""
        return self.floor / self.seconds if self.seconds else 0.0


@frozen
class Profile:
    """The kernels of a program in the order in which they run, each with its median time over ``calls`` calls."""

    kernels: tuple[KernelTime, ...]
    calls: int

    @property
    def seconds(self) -> float:
        """All kernels together."""
        return sum(k.seconds for k in self.kernels)

    @property
    def _head(self) -> str:
        return f"{self.seconds * 1e6:.2f} µs in {len(self.kernels)} kernels, medians of {self.calls} calls"

    def __repr__(self) -> str:
        return f"<profile: {self._head}>"

    def _repr_html_(self) -> str:
        from staticgrad.runtime.measured.pictures import time_html

        kernels = self._sorted
        longest = kernels[0].seconds if kernels else 0.0
        rows = [(k.seconds / longest if longest else 0.0, self._numbers(k), k.name, k.source) for k in kernels]
        return time_html(self._head, NUMBERS, rows)

    @property
    def _sorted(self) -> list[KernelTime]:
        """The kernels, those first that took longest."""
        return sorted(self.kernels, key=lambda k: k.seconds, reverse=True)

    def _numbers(self, k: KernelTime) -> tuple[str, ...]:
        """The numbers of a kernel, as ``NUMBERS`` names them."""
        part = f"{100 * k.seconds / self.seconds:.1f}" if self.seconds else ""
        return f"{k.seconds * 1e6:.2f}", part, f"{k.gflops:.1f}", f"{k.gbytes:.1f}", f"{100 * k.fraction:.0f}"

    def __str__(self) -> str:
        rows = [(*self._numbers(k), k.family, k.name, str(k.source or "")) for k in self._sorted]
        header = (*NUMBERS, "family", "kernel", "source")
        return self._head + "\n" + table(header, rows, right=(0, 1, 2, 3, 4)) if rows else self._head

    def save(self, path: str | PathLike[str]) -> None:
        """Write one call as a trace in Chrome's format (JSON), which Chrome and Perfetto open."""
        place = path_of(path)
        events, begin = [], 0.0
        for k in self.kernels:
            rates = {"GFLOP/s": round(k.gflops, 2), "GB/s": round(k.gbytes, 2), "flops": k.flops, "bytes": k.bytes,
                     "fraction of the floor": round(k.fraction, 3)}  # fmt: skip
            events.append({
                "name": k.name, "cat": k.family, "ph": "X", "pid": 0, "tid": 0, "ts": begin * 1e6,
                "dur": k.seconds * 1e6, "args": {**rates, "source": str(k.source or "")},
            })  # fmt: skip
            begin += k.seconds
        with open(place, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)


def profile(runner: NativeRunner, arrays: Sequence[Array]) -> Profile:
    """Run a timed program repeatedly."""
    for _ in range(WARM_CALLS):
        runner.run(arrays)
    begin, first = time.perf_counter(), runner.ticks()[0]
    spans: list[Array] = []
    while len(spans) < FEWEST_CALLS or (len(spans) < MOST_CALLS and time.perf_counter() - begin < SECONDS):
        runner.run(arrays)
        spans.append(np.diff(runner.ticks()))
    time.sleep(max(0.0, CALIBRATION_SECONDS - (time.perf_counter() - begin)))
    runner.run(arrays)
    pace = (time.perf_counter() - begin) / max(int(runner.ticks()[0] - first), 1)  # seconds of a tick
    medians = np.median(spans, axis=0) * pace
    machine = sketch(runner.interface.workers)
    return Profile(
        tuple(
            KernelTime(
                cost.name,
                cost.family,
                float(seconds),
                cost.flops,
                cost.bytes,
                machine.floor(cost.flops, cost.bytes, cost.dtype),
                cost.source,
            )
            for cost, seconds in zip(runner.costs, medians, strict=True)
        ),
        len(spans),
    )
