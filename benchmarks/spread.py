"""How much the processes of one program differ: several fresh ones each workload, which take turns.

    python benchmarks/spread.py [--workload NAMES] [--peer NAME] [--processes N] [--threads N] [--rounds N]
                                [--seconds S] [--seed N] [--isa native|avx2] [--most RATIO]

A process lays its arrays, variables and arena where the system gives it memory, and keeps these places: what depends on
them (pages, sets of a cache, addresses equal modulo 4096) lasts as long as the process, so no length of a run averages
it out. All processes of a workload are started first and then measured in turn; a round is over when each was. What the
machine does meanwhile meets all of them alike: a process is compared with the others by the median over the rounds of
its time over the round's median. The last column is the largest of these over the smallest, beside that of even and odd
rounds of one process, below which nothing can be told. Exit status 1 where ``--most`` is passed, or where processes
give other bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from catalog import NAMED
from peers import PEERS
from run import chosen
from turns import OURS, Plan, Process


def measured(plan: Plan, peer: str, workload: str, count: int) -> tuple[list[list[float]], int]:
    """Seconds of a call by process and round, and how many different answers there were."""
    processes: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="spread-") as folder:
        try:
            for _ in range(count):
                processes.append(Process(plan, peer, workload, Path(folder)))
            times: list[list[float]] = [[] for _ in processes]
            for turn in range(plan.rounds + 1):
                for process, found in zip(processes, times, strict=True):
                    median = statistics.median(process.ask(f"time {plan.seconds}"))
                    if turn:  # the first one fetches code and pages
                        found.append(median)
            return times, len({process.started["bits"] for process in processes})
        finally:
            for process in processes:
                process.end()


def relative(times: Sequence[Sequence[float]]) -> list[float]:
    """By process, its time over that of the usual process of the same round."""
    usual = [statistics.median(turn) for turn in zip(*times, strict=True)]
    return [statistics.median(t / u for t, u in zip(found, usual, strict=True)) for found in times]


def noise(times: Sequence[Sequence[float]]) -> float:
    """The largest ratio between the even and the odd rounds of one process."""
    even, odd = relative([found[::2] for found in times]), relative([found[1::2] for found in times])
    return max(max(a / b, b / a) for a, b in zip(even, odd, strict=True))


def main(arguments: list[str]) -> int:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--workload", metavar="NAMES", help="some of: " + ", ".join(NAMED))
    add("--peer", default=OURS, choices=PEERS)
    add("--processes", type=int, default=10, metavar="N")
    add("--threads", type=int, default=1, metavar="N")
    add("--rounds", type=int, default=6, metavar="N")
    add("--seconds", type=float, default=0.2, metavar="S", help="of each turn")
    add("--seed", type=int, default=0, metavar="N", help="of the data")
    add("--isa", choices=("native", "avx2"), default="")
    add("--most", type=float, metavar="RATIO", help="of the slowest process over the fastest")
    given = made.parse_args(arguments)
    if given.processes < 2 or given.rounds < 2:
        made.error("--processes, --rounds: expected at least 2")
    names = chosen(given.workload, tuple(NAMED), "--workload")
    plan = Plan(names, (given.peer,), given.threads, given.seed, given.rounds, given.seconds, isa=given.isa)
    print(f"{given.processes} processes of {given.peer}, {given.threads} threads, {given.rounds} rounds\n")
    print("| workload | µs of a call | slowest over fastest | noise | each over the usual |")
    print("| --- | ---: | ---: | ---: | --- |")
    failed = False
    for name in names:
        times, answers = measured(plan, given.peer, name, given.processes)
        ratios = sorted(relative(times))
        usual = statistics.median(statistics.median(found) for found in times) * 1e6
        spread = ratios[-1] / ratios[0]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        note = "" if answers == 1 else f" **{answers} different answers**"
        print(f"| {name} | {usual:.4g} | {spread:.3f} | {noise(times):.3f} | {each}{note} |", flush=True)
        failed |= answers != 1 or (given.most is not None and spread > given.most)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
