"""The process that measures one peer on one workload.

    python benchmarks/measure.py PEER WORKLOAD THREADS SEED [--double]

Comes in, a line each on standard input: ``time SECONDS``, ``memory``, or the end of the input. Goes out, a line of JSON
each: first the phases (import, build, compile with the first call), the answers, a digest of their bits and versions;
then for each ``time`` the seconds of one call in each block of calls; for ``memory`` what the process and the program
needed. It is meant to be started by ``turns.py``, which has set the environment and the processors.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import cycle, islice
from typing import Any, TextIO

import numpy as np
from catalog import load
from optimised import optimised
from peers import PEERS, Call, Settings
from workloads import CHECKED_STEPS, Array, Feed, Workload

SAMPLE = 500  # elements of a large result that are compared
BLOCK_SECONDS = 50e-6  # fast calls are timed in blocks at least this long
clock = time.perf_counter


def megabytes(key: str) -> float:
    """A line of the kernel's report on this process (Linux), in MB; 0 where there is none."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            found = next((line for line in file if line.startswith(key + ":")), "")
    except OSError:
        found = ""
    return round(int(found.split()[1]) / 1024, 1) if found else 0.0


def digest(result: Any) -> list[float]:
    """A sample spread over the result, its mean, and its root mean square."""
    flat = np.asarray(result, np.float64).ravel()
    sample = flat[:: max(1, flat.size // SAMPLE)]
    return [*sample.tolist(), float(flat.mean()), float(np.sqrt(np.mean(flat * flat)))]


class Measurement:
    """One peer, one workload."""

    def __init__(self, peer: str, workload: Workload, threads: int, double: bool) -> None:
        entry = PEERS[peer]
        self.feeds = _aligned(workload, double)
        start = clock()
        module = importlib.import_module(f"peers.{entry.module}")
        imported = clock()
        rss = megabytes("VmRSS")
        self.program = module.build(workload, Settings(threads, double, entry.variant))
        built = clock()
        self.call: Call = self.program.compile()
        first = self.call(*self.feeds[0])
        compiled = clock()
        results = self._results(first, workload)
        self.started: dict[str, Any] = {
            "import_s": imported - start,
            "build_s": built - imported,
            "first_call_s": compiled - built,
            "imported_mb": rss,
            "answers": [digest(result) for result in results],
            "bits": hashlib.sha256(b"".join(np.ascontiguousarray(result).tobytes() for result in results)).hexdigest(),
            "version": metadata.version(entry.modules[0]),
        }
        self.next: Iterator[Feed] = cycle(self.feeds)
        self.block = 0

    def _results(self, first: Sequence[Any], workload: Workload) -> list[Array]:
        """What is checked: the results of a call, or the losses of several steps of training."""
        if workload.kind != "train":
            return [np.array(result) for result in first if result is not None]
        losses = [np.array(first[0])]
        for feed in islice(cycle(self.feeds), 1, CHECKED_STEPS):
            losses.append(np.array(self.call(*feed)[0]))
        return [np.stack(losses)]

    def _warmed(self) -> int:
        """How many calls are timed together, after warming up."""
        optimised(self.call)
        start, calls = clock(), 0
        while clock() - start < 0.05 or calls < 3:
            self.call(*next(self.next))
            calls += 1
        return max(1, round(BLOCK_SECONDS * calls / (clock() - start)))

    def time(self, seconds: float) -> list[float]:
        """Seconds of one call, for each block that fits; at least three."""
        self.block = self.block or self._warmed()
        times: list[float] = []
        end = clock() + seconds
        while len(times) < 3 or clock() < end:
            feeds = list(islice(self.next, self.block))
            start = clock()
            for feed in feeds:
                self.call(*feed)
            times.append((clock() - start) / self.block)
        return times

    def memory(self) -> dict[str, float]:
        """The highest resident memory in MB, and the bytes that the program plans for intermediate values."""
        peak = megabytes("VmHWM")
        temporary = self.program.temporary_bytes
        return {"peak_mb": peak, "temporary_bytes": -1 if temporary is None else temporary()}


def _aligned(workload: Workload, double: bool) -> list[Feed]:
    """Copies that begin at a cache line, as any peer would like them."""

    def copy(array: Array) -> Array:
        array = array.astype(np.float64) if double and array.dtype == np.float32 else array
        memory = np.empty(array.nbytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        place = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        place[...] = array
        return place

    return [tuple(copy(array) for array in feed) for feed in workload.feeds]


def serve(measurement: Measurement, requests: TextIO, replies: TextIO) -> None:
    def reply(value: Any) -> None:
        print(json.dumps(value), file=replies, flush=True)

    reply(measurement.started)
    for line in requests:
        match line.split():
            case ["time", seconds]:
                reply(measurement.time(float(seconds)))
            case ["memory"]:
                reply(measurement.memory())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("workload")
    parser.add_argument("threads", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--double", action="store_true", help="parameters and feeds in float64")
    given = parser.parse_args()
    replies, sys.stdout = sys.stdout, sys.stderr  # what a peer prints is no reply
    workload = load(given.workload, given.seed)
    serve(Measurement(given.peer, workload, given.threads, given.double), sys.stdin, replies)


if __name__ == "__main__":
    main()
