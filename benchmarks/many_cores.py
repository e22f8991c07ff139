"""Simulate the workloads of the catalog on more cores than there are here: what is shared, what is too coarse, serial.

    python benchmarks/many_cores.py [--workload NAMES] [--threads 2,4,8,16] [--kernels N] [--below EFFICIENCY] [--real]

**It is a simulation.** A program is run by one thread, in the place of its pool by a recorder that runs the chunks of
each kernel one after the other and notes the processor's clock after each. A schedule of the recorded chunks over n
threads follows, by the rules of the pool (``runtime/parts/threads.py``): a share of neighbours for each thread, then
what others have left; what is not shared is run by the caller alone. A thread starts when it has been handed the work:
how long that takes a thread that spins and one that sleeps is measured here with the pool itself, on two threads; each
further thread that spins starts ``LINE_SECONDS`` later, and those that sleep as they are woken by others. Threads that
spin longer than the pool's patience sleep.

Left out: threads that share caches and memory, as if each had the bandwidth of one thread alone, clocks that fall, and
cores that others use. So the prediction is an upper bound of what chunks and hand-overs allow; kernels over large
arrays (``copy``, ``pointwise_chain``) are bound by the memory of the machine long before. ``--real`` compares the
prediction for two threads with two threads, of which each has a core: their time over that of one, by turns in one
process, best blocks.

Goes out: a table in Markdown of the time of one thread, the part of it that is in chunks, and for each number of
threads the efficiency, the time of one over n times that of n; below it for each workload under ``--below`` on the
largest number of threads up to 8 the kernels that lose most, as microseconds beyond an n-th of their time.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import catalog
import numpy as np
from optimised import optimised
from peers import Settings, staticgrad_program

from staticgrad.base import config
from staticgrad.compiler.machine.target import current_target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.runtime.measured import profile as profiles
from staticgrad.runtime.parts import threads as pools

CAPACITY = 1 << 21  # words of a record
SECONDS = 0.2  # of the calls of a program, FEWEST at least
FEWEST = 5
LINE_SECONDS = 1e-7  # a cache line from one core to another, which each thread that enters or leaves writes
BLOCKS, BLOCK_SECONDS = 12, 0.02  # of the comparison with threads

# What a program is given as its pool: words of which the first is the address of ``run``, the second that of the next
# word of the record, [chunks, clock, clock after each chunk] for each time that a kernel is run. ``idle`` and ``spin``
# are parts: one does nothing, one waits for as many ticks as the first word of its table says.
RECORDER = """
declare i64 @llvm.readcyclecounter()

define void @run(ptr %pool, ptr %part, ptr %table, i64 %chunks) {
entry:
  %place = getelementptr i64, ptr %pool, i64 1
  %record = load ptr, ptr %place
  store i64 %chunks, ptr %record
  %first = getelementptr i64, ptr %record, i64 1
  %start = call i64 @llvm.readcyclecounter()
  store i64 %start, ptr %first
  br label %loop
loop:
  %chunk = phi i64 [ 0, %entry ], [ %next, %loop ]
  %last = phi ptr [ %first, %entry ], [ %word, %loop ]
  call void %part(ptr %table, i64 %chunk, i64 0)
  %word = getelementptr i64, ptr %last, i64 1
  %tick = call i64 @llvm.readcyclecounter()
  store i64 %tick, ptr %word
  %next = add i64 %chunk, 1
  %more = icmp ult i64 %next, %chunks
  br i1 %more, label %loop, label %done
done:
  %end = getelementptr i64, ptr %word, i64 1
  store ptr %end, ptr %place
  ret void
}

define void @idle(ptr %table, i64 %chunk, i64 %worker) {
  ret void
}

define void @spin(ptr %table, i64 %chunk, i64 %worker) {
entry:
  %ticks = load i64, ptr %table
  %start = call i64 @llvm.readcyclecounter()
  br label %loop
loop:
  %now = call i64 @llvm.readcyclecounter()
  %passed = sub i64 %now, %start
  %more = icmp ult i64 %passed, %ticks
  br i1 %more, label %loop, label %done
done:
  ret void
}

define i64 @timed(ptr %pool, ptr %part, ptr %table, i64 %chunks) {
  %run = load ptr, ptr %pool
  %start = call i64 @llvm.readcyclecounter()
  call void %run(ptr %pool, ptr %part, ptr %table, i64 %chunks)
  %end = call i64 @llvm.readcyclecounter()
  %ticks = sub i64 %end, %start
  ret i64 %ticks
}
"""


# -- what is recorded -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel, or a loop of several: its name and seconds, and of each time that chunks of it are run the seconds
    before, since the step began or chunks were run last, and those of each chunk."""

    name: str
    seconds: float
    shared: tuple[tuple[float, np.ndarray], ...]

    @property
    def chunks(self) -> str:
        """The numbers of chunks, as text."""
        counts = sorted({len(durations) for _, durations in self.shared})
        return f"{' or '.join(map(str, counts))} chunks" if counts else "serial"


class Recorder:
    """Runs programs and notes their chunks."""

    def __init__(self) -> None:
        self.module = NativeModule(RECORDER, current_target())
        self.words = np.zeros(CAPACITY + 2, np.int64)
        self.words[0] = self.module.address("run")

    def steps(self, executable: Any, feeds: Sequence[Any]) -> list[Step]:
        """The steps of a program on these feeds, medians over several calls."""
        found: list[list[Step]] = []

        def recorded(runner: Any, arrays: Sequence[Any]) -> None:
            runner.calling.pool = self.words.ctypes.data
            found.append(self._steps(runner, arrays))

        original, profiles.profile = profiles.profile, recorded
        try:
            executable.profile(*feeds)
        finally:
            profiles.profile = original
        return found[0]

    def _steps(self, runner: Any, arrays: Sequence[Any]) -> list[Step]:
        clocks, records = [], []
        begin = time.perf_counter()
        while len(clocks) < FEWEST + 2 or time.perf_counter() - begin < SECONDS:
            self.words[1] = self.words[2:].ctypes.data
            runner.run(arrays)
            end = (int(self.words[1]) - self.words[2:].ctypes.data) // 8
            if end > CAPACITY:
                raise MemoryError("the record of a call is longer than what was planned for it")
            clocks.append(runner.ticks())
            records.append(self.words[2 : 2 + end].copy())
        pace = seconds_of_a_tick()
        kept = [number for number, record in enumerate(records) if len(record) == len(records[-1])][2:]
        # Differences are taken before medians: that of a clock says nothing.
        steps = np.median([np.diff(clocks[i]) for i in kept], axis=0) * pace
        passed = np.median([np.diff(records[i], prepend=0) for i in kept], axis=0) * pace if len(records[-1]) else []
        record, ends = records[-1], clocks[-1]
        shared: list[list[tuple[float, np.ndarray]]] = [[] for _ in steps]
        place, before, of = 0, 0, -1
        while place < len(record):
            count, start = int(record[place]), int(record[place + 1])
            number = int(np.searchsorted(ends, start, side="right")) - 1
            since = before if number == of else int(ends[number])
            durations = np.asarray(passed[place + 2 : place + 2 + count])
            shared[number].append((max(start - since, 0) * pace, durations))
            before, of = int(record[place + 1 + count]), number
            place += 2 + count
        names = [cost.name for cost in runner.costs]
        return [Step(name, float(s), tuple(runs)) for name, s, runs in zip(names, steps, shared, strict=True)]


def seconds_of_a_tick() -> float:
    """Seconds between two ticks of the processor's clock."""
    read = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)(RECORD.module.address("timed"))
    spin, ticks = RECORD.module.address("spin"), np.array([20_000_000], np.int64)
    RECORD.words[1] = RECORD.words[2:].ctypes.data
    begin = time.perf_counter()
    passed = read(RECORD.words.ctypes.data, spin, ticks.ctypes.data, 1)
    return (time.perf_counter() - begin) / passed


# -- what is simulated ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pool:
    """Seconds until a thread that spins has been handed its work and it is known that it is done; the same of one that
    sleeps; and those that waking one takes of who wakes it."""

    handed: float
    woken: float
    signal: float


def measured_pool() -> Pool:
    """The pool of this machine."""
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)(RECORD.module.address("timed"))
    spin, idle = RECORD.module.address("spin"), RECORD.module.address("idle")
    pace, two, eight = seconds_of_a_tick(), pools.pool_address(2), pools.pool_address(8)

    def best(pool: int, part: int, chunks: int, seconds: float, pause: float, times: int) -> float:
        ticks = np.array([seconds / pace], np.int64)
        found = []
        for _ in range(times):
            time.sleep(pause)
            if not pause:
                run(pool, idle, ticks.ctypes.data, chunks)
            found.append(run(pool, part, ticks.ctypes.data, chunks) * pace - seconds)
        return max(0.0, float(np.percentile(found, 25)))

    return Pool(
        handed=best(two, spin, 2, 20e-6, 0.0, 300),
        woken=best(two, spin, 2, 300e-6, 1e-3, 60),
        signal=best(eight, idle, 1 + pools.WOKEN_BY_ONE, 0.0, 1e-3, 60) / pools.WOKEN_BY_ONE,
    )


def woken(workers: int, pool: Pool) -> list[float]:
    """When the caller and workers that sleep begin: each that is awake wakes some more, then takes chunks."""
    waking, starts = [0.0], list[float]()
    while waking:
        now = heapq.heappop(waking)
        more = min(pools.WOKEN_BY_ONE, workers - len(starts) - len(waking))
        for number in range(1, more + 1):
            heapq.heappush(waking, now + number * pool.signal + pool.woken - pool.signal)
        starts.append(now + more * pool.signal)
    return starts


def makespan(durations: np.ndarray, threads: int, pool: Pool, asleep: bool) -> float:
    """The seconds in which the pool runs chunks that take so long, from the call until all is done."""
    count, workers = len(durations), threads - 1
    if not workers:
        return float(durations.sum())
    bounds = [((i * count) + workers) // threads if i else 0 for i in range(threads)] + [count]
    place = bounds[:-1]
    starts = woken(workers, pool) if asleep else [0.0, *(pool.handed + i * LINE_SECONDS for i in range(workers))]
    queue = [(start, thread) for thread, start in enumerate(starts)]
    heapq.heapify(queue)
    closed, end = float("inf"), 0.0
    while queue:
        now, thread = heapq.heappop(queue)
        if now > closed and now == starts[thread]:
            continue  # the gate is closed
        owner = next((o % threads for o in range(thread, thread + threads)
                      if place[o % threads] < bounds[o % threads + 1]), None)  # fmt: skip
        if owner is None:
            end = max(end, now)
            closed = now if thread == 0 else closed
            continue
        chunk = place[owner]
        place[owner] += 1
        heapq.heappush(queue, (now + float(durations[chunk]), thread))
    return end


@dataclass(frozen=True, slots=True)
class Schedule:
    """A program on some threads: its seconds, and those of each step."""

    seconds: float
    steps: tuple[float, ...]


def schedule(steps: Sequence[Step], threads: int, pool: Pool) -> Schedule:
    """The program on so many threads. Calls follow each other without a pause."""
    patience = pools.SPIN_SECONDS
    shared = [number for number, step in enumerate(steps) if step.shared]
    idle = sum(step.seconds for step in steps[shared[-1] :]) if shared else 0.0
    idle -= sum(before + float(d.sum()) for number in shared[-1:] for before, d in steps[number].shared)
    found: list[float] = []
    for step in steps:
        total = step.seconds
        rest = step.seconds
        for before, durations in step.shared:
            idle += before
            took = makespan(durations, threads, pool, idle > patience)
            total += took - float(durations.sum())
            rest -= before + float(durations.sum())
            idle = 0.0
        idle += max(rest, 0.0)
        found.append(total)
    return Schedule(sum(found), tuple(found))


# -- what is measured beside it ---------------------------------------------------------------------------------------


def gain_of_two(workload: Any) -> float:
    """The time of a call on one thread over that on two, by turns."""
    calls = [optimised(staticgrad_program.build(workload, Settings(n)).compile()) for n in (1, 2)]
    feed = workload.feeds[0]

    def block(call: Any, count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call(*feed)
        return (time.perf_counter() - begin) / count

    counts = [max(1, int(BLOCK_SECONDS / min(block(call, 1) for _ in range(3)))) for call in calls]
    times = [[block(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(BLOCKS)]
    one, two = np.min(times, axis=0)
    return float(one / two)


# -- the report -------------------------------------------------------------------------------------------------------


def lost(steps: Sequence[Step], found: Schedule, threads: int, limit: int) -> Iterator[str]:
    """The kernels that lose most, a line for each."""
    beyond = [took - step.seconds / threads for step, took in zip(steps, found.steps, strict=True)]
    for number in np.argsort(beyond)[::-1][:limit]:
        step = steps[number]
        if beyond[number] * threads < 0.02 * sum(s.seconds for s in steps):
            return
        yield (f"{1e6 * beyond[number]:10.1f} of {1e6 * step.seconds:9.1f} -> {1e6 * found.steps[number]:9.1f} us"
               f"  {step.chunks:14} {step.name}")  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="*", help="names or patterns, separated by commas")
    parser.add_argument("--threads", default="2,4,8,16")
    parser.add_argument("--kernels", type=int, default=6, help="lines for each workload that is below")
    parser.add_argument("--below", type=float, default=0.75)
    parser.add_argument("--real", action="store_true", help="also measure two threads")
    chosen = parser.parse_args()
    patterns = chosen.workload.split(",")
    chosen.names = [name for name in catalog.NAMED if any(fnmatch.fnmatchcase(name, p) for p in patterns)]
    chosen.names += [name for name in patterns if name.startswith("drawn_")]
    chosen.counts = [int(n) for n in chosen.threads.split(",")]
    return chosen


def main() -> None:
    """Run the command line."""
    chosen = parse()
    programs = []
    for name in chosen.names:
        workload = catalog.load(name)
        programs.append((name, workload, optimised(staticgrad_program.build(workload, Settings(1)).compile())))
    pool = measured_pool()
    print(f"simulated for {config.get('TARGET') or 'this machine'}; a thread that spins has its work and is done with "
          f"it in {1e6 * pool.handed:.2f} us, one that sleeps in {1e6 * pool.woken:.1f}, "
          f"{1e6 * pool.signal:.1f} of them of who wakes it\n")  # fmt: skip
    real = "| two, predicted | two, measured " if chosen.real else ""
    print(f"| workload | one thread, us | in chunks | {' | '.join(f'{n} threads' for n in chosen.counts)} {real}|")
    print("|---" * (3 + len(chosen.counts) + 2 * chosen.real) + "|")
    lines: list[str] = []
    worst = max([n for n in chosen.counts if n <= 8], default=chosen.counts[0])
    for name, workload, executable in programs:
        steps = RECORD.steps(executable, workload.feeds[0])
        one = sum(step.seconds for step in steps)
        part = sum(float(d.sum()) for step in steps for _, d in step.shared) / one
        found = {n: schedule(steps, n, pool) for n in {*chosen.counts, 2}}
        shown = [f"{one / (n * found[n].seconds):.2f}" for n in chosen.counts]
        if chosen.real:
            shown += [f"{one / found[2].seconds:.2f}", f"{gain_of_two(workload):.2f}"]
        print(f"| {name} | {1e6 * one:.1f} | {part:.2f} | {' | '.join(shown)} |", flush=True)
        efficiency = one / (worst * found[worst].seconds)
        if efficiency < chosen.below:
            lines.append(f"\n{name}, {efficiency:.2f} on {worst} threads")
            lines.extend(lost(steps, found[worst], worst, chosen.kernels))
    print("\n".join(lines))


RECORD = Recorder()

if __name__ == "__main__":
    main()
