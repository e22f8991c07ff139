"""The floor that the machine sets for the time of a kernel or a whole program.

    python -m staticgrad.runtime.measured.machine THREADS

Output, one line of JSON: the rate of fused multiply-adds on registers for each dtype, in operations a second, and
for growing sizes the seconds of a copy, all with that many threads at once. A ``MeasuredMachine`` made of it gives
floors: the larger of flops over the peak and bytes over the bandwidth of a copy of equal size, so that what stays in
a cache is held against the cache. The benchmarks start it in a process whose processors they have set; profiles take a
``sketch``.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.target import current_target
from staticgrad.compiler.native.module import NativeModule

DTYPES = {"float32": "float", "float64": "double"}
SKETCH = 4  # turns shorter and copies fewer by this factor
CHAINS = 12  # independent sums: enough to hide an add's latency, few enough for sixteen registers
TURNS = 15
TURN_SECONDS = 0.01
COPIES = tuple(2**power for power in range(12, 28))  # bytes copied: read once, written once
MOST_BYTES = 1e12  # a second; where the copy is too quick to be timed, nothing else is fast either


@frozen
class MeasuredMachine:
    """``flops``: a second, by dtype. ``copies``: bytes read and written, and seconds of it, sizes rising."""

    flops: dict[str, float]
    copies: tuple[tuple[int, float], ...]

    def bandwidth(self, traffic: int) -> float:
        """Bytes a second at which ``traffic`` bytes pass, between the two sizes measured around it."""
        sizes = [float(np.log(size)) for size, _ in self.copies]
        rates = [size / seconds for size, seconds in self.copies]
        return float(np.interp(np.log(max(traffic, 1)), sizes, rates))

    def floor(self, flops: int, traffic: int, dtype: str) -> float:
        """Seconds under which no implementation gets, as long as it multiplies as the formula does."""
        return max(flops / self.flops[dtype], traffic / self.bandwidth(traffic))


def from_json(value: Any) -> MeasuredMachine:
    return MeasuredMachine(
        dict(value["flops"]), tuple((int(size), float(seconds)) for size, seconds in value["copies"])
    )


# -- measuring -------------------------------------------------------------------------------------------------------


def _fused(dtype: str, lanes: int) -> str:
    """``float fused_<dtype>(i64 turns)``: each turn does one multiply-add on each of the chains' registers."""
    vector = f"<{lanes} x {DTYPES[dtype]}>"
    fma = f"@llvm.fmuladd.v{lanes}f{32 if dtype == 'float32' else 64}"
    lines = [
        f"declare {vector} {fma}({vector}, {vector}, {vector})",
        f"define {vector} @fused_{dtype}(i64 %turns, {vector} %x) {{",
        "entry:", "  br label %loop", "loop:", "  %i = phi i64 [0, %entry], [%next, %loop]",
    ]  # fmt: skip
    chains = range(CHAINS)
    lines += [f"  %a{c} = phi {vector} [%x, %entry], [%b{c}, %loop]" for c in chains]
    lines += [f"  %b{c} = call {vector} {fma}({vector} %a{c}, {vector} %x, {vector} %x)" for c in chains]
    lines += [
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %turns",
        "  br i1 %more, label %loop, label %end",
    ]
    lines += ["end:", *(f"  %s{c} = fadd {vector} %{f's{c - 1}' if c else 'b0'}, %b{c}" for c in chains)]
    return "\n".join([*lines, f"  ret {vector} %s{CHAINS - 1}", "}"])


def _driver(dtype: str, lanes: int) -> str:
    """``void drive_<dtype>(i64 turns, ptr x)``: as above on memory, so that ctypes can call it."""
    vector = f"<{lanes} x {DTYPES[dtype]}>"
    return f"""define void @drive_{dtype}(i64 %turns, ptr %place) {{
  %x = load {vector}, ptr %place, align 8
  %y = call {vector} @fused_{dtype}(i64 %turns, {vector} %x)
  store {vector} %y, ptr %place, align 8
  ret void
}}"""


COPY = """declare ptr @memcpy(ptr, ptr, i64)
define void @copies(i64 %turns, ptr %to, ptr %from, i64 %bytes) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %ignored = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %end
end:
  ret void
}"""


def _together(calls: Sequence[Callable[[], None]]) -> float:
    """Seconds from the first start to the last end of the calls, each on a thread and a processor of its own."""
    gate = threading.Barrier(len(calls))
    spans: list[tuple[float, float]] = []
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def work(number: int, call: Callable[[], None]) -> None:
        if processors:
            os.sched_setaffinity(0, {processors[number % len(processors)]})  # of this thread alone
        gate.wait()
        start = time.perf_counter()
        call()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=work, args=given) for given in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _seconds(calls: Callable[[int], list[Callable[[], None]]], coarse: int) -> float:
    """The seconds of one turn, the least of several measurements, each of turns enough to be timed."""
    turns, enough = 1, TURN_SECONDS / coarse
    while True:
        if _together(calls(turns)) >= enough:
            least = min(_together(calls(turns)) for _ in range(-(-TURNS // coarse)))
            if least >= enough / 2:  # else other processes had made one turn look long
                return least / turns
        turns *= 2


def _peak(function: Callable[[int, int], None], dtype: str, lanes: int, threads: int, coarse: int) -> float:
    """Operations a second of all threads; a multiply-add is two."""
    places = [np.full(lanes, 0.5, dtype) for _ in range(threads)]

    def calls(turns: int) -> list[Callable[[], None]]:
        return [partial(function, turns, place.ctypes.data) for place in places]

    return 2 * CHAINS * lanes * threads / _seconds(calls, coarse)


def _copying(function: Callable[[int, int, int, int], None], size: int, threads: int, coarse: int) -> float:
    """Seconds of a copy of ``size`` bytes, each thread its part."""
    part = size // threads
    memory = [(np.zeros(part, np.uint8), np.ones(part, np.uint8)) for _ in range(threads)]

    def calls(turns: int) -> list[Callable[[], None]]:
        return [partial(function, turns, to.ctypes.data, source.ctypes.data, part) for to, source in memory]

    return max(_seconds(calls, coarse), 2 * size / MOST_BYTES)


@functools.cache
def sketch(threads: int) -> MeasuredMachine:
    """The machine measured in a fraction of a second, on the processors that this process may use; once a process."""
    return from_json(measure(threads, SKETCH))


def measure(threads: int, coarse: int = 1) -> dict[str, Any]:
    """The figures of this machine, as ``from_json`` reads them; ``coarse`` times quicker and so much less sure."""
    target = current_target()
    lanes = {dtype: target.lanes(np.dtype(dtype)) for dtype in DTYPES}
    parts = [part for dtype in DTYPES for part in (_fused(dtype, lanes[dtype]), _driver(dtype, lanes[dtype]))]
    native = NativeModule("\n".join([*parts, COPY]), target)
    count, pointer = ctypes.c_int64, ctypes.c_void_p
    flops = {}
    for dtype in DTYPES:
        drive = ctypes.CFUNCTYPE(None, count, pointer)(native.address(f"drive_{dtype}"))
        flops[dtype] = _peak(drive, dtype, lanes[dtype], threads, coarse)
    copies = ctypes.CFUNCTYPE(None, count, pointer, pointer, count)(native.address("copies"))
    sizes = COPIES[::coarse]
    return {"flops": flops, "copies": [(2 * size, _copying(copies, size, threads, coarse)) for size in sizes]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("threads", type=int)
    print(json.dumps(measure(parser.parse_args().threads)))


if __name__ == "__main__":
    main()
