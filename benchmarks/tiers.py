"""Quick and optimised code: how long each takes to make and to run, and how long the first answer takes.

    python benchmarks/tiers.py [--workloads A,B] [--runs 5]

For each workload, on one thread and without a cache on disk: the milliseconds of making the machine code of its program
quickly and well; the microseconds of a call of either; the milliseconds to the first answer with two tiers and with
optimised code alone, in turn, each in a fresh process whose modules are compiled already. The least of several runs is
told. CPU time is told for code and first answers, as threads make code beside each other; the thread that makes
optimised code is not among it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
NAMES = ("seed_scalar", "mlp_small", "lenet", "lstm", "transformer_block", "resnet20")
TIERS = ("1", "0")  # both tiers; optimised code alone


def prepared(name: str) -> tuple[Callable[[], Any], Any]:
    """A function that compiles a workload, and its feeds."""
    from catalog import load
    from peers import Settings
    from peers.staticgrad_program import build

    loaded = load(name, 0)
    return build(loaded, Settings(1)).compile, loaded.feeds[0]


def first_answer(name: str) -> None:
    """Print the CPU seconds to the first answer in this process, but for those of imports and the declaration."""
    import numpy as np

    import staticgrad as sg
    from staticgrad.compiler.native import tiers

    x = sg.placeholder((2, 2))
    sg.Session().run(sg.exp(x) @ x, {x: np.zeros((2, 2), np.float32)})  # imports
    compiled, feeds = prepared(name)
    tiers._THREAD.add = lambda code: None  # type: ignore[method-assign]  # its time would be counted
    begun = time.process_time()
    compiled()(*feeds)
    spent = time.process_time() - begun
    print(spent, flush=True)
    os._exit(0)


def least_first_answers(name: str, runs: int) -> list[float]:
    """The least CPU seconds to the first answer, with both tiers and with one."""
    found: list[list[float]] = [[], []]
    for _ in range(runs):
        for number, tiers in enumerate(TIERS):
            environment = {**os.environ, "STATICGRAD_CACHE": "0", "STATICGRAD_TIERS": tiers}
            command = [sys.executable, str(Path(__file__)), "--first-answer", name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found[number].append(float(done.stdout))
    return [min(times) for times in found]


def code_seconds(name: str, runs: int) -> list[float]:
    """The least CPU seconds of making the code of a workload's program, quickly and well, and of a call of either."""
    from staticgrad.compiler.machine.target import current_target
    from staticgrad.compiler.native.codegen import objects

    found = []
    texts: Sequence[str] = ()
    for tiers in ("first", "0"):
        os.environ["STATICGRAD_TIERS"] = tiers
        compiled, feeds = prepared(name)
        executable = compiled()
        executable(*feeds)
        texts = texts or executable._programs.native().program.modules
        calls = []
        for _ in range(10 * runs):
            begun = time.perf_counter()
            executable(*feeds)
            calls.append(time.perf_counter() - begun)
        making = []
        for _ in range(runs):
            begun = time.process_time()
            objects(texts, current_target(), quick=tiers == "first")
            making.append(time.process_time() - begun)
        found += [min(making), min(calls)]
    quick, quick_call, best, best_call = found
    return [quick, best, quick_call, best_call]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(NAMES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first-answer", metavar="WORKLOAD", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(FOLDER))
    os.environ["STATICGRAD_CACHE"] = "0"
    if given.first_answer:
        first_answer(given.first_answer)
    print(f"{'':20} {'code ms':>16} {'call us':>18} {'first answer ms':>18}")
    print(f"{'':20} {'quick':>8}{'best':>8} {'quick':>9}{'best':>9} {'tiers':>9}{'best':>9}")
    for name in given.workloads.split(","):
        quick, best, quick_call, best_call = code_seconds(name, given.runs)
        tiers, alone = least_first_answers(name, given.runs)
        print(
            f"{name:20} {quick * 1e3:8.0f}{best * 1e3:8.0f} {quick_call * 1e6:9.0f}{best_call * 1e6:9.0f}"
            f" {tiers * 1e3:9.0f}{alone * 1e3:9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
