"""What a call costs on each Python, beside NumPy's cheapest call on the same one.

    python benchmarks/interpreters.py [--rounds N] [--seconds S] [--json FILE] [PYTHON ...]

``PYTHON`` are interpreters that have staticgrad; by default this one and those that ``make test-pythons`` has made. The
cases of staticgrad are those of ``calls.py`` on small arrays. NumPy's cheapest call is the least of some ufuncs of one
array that are given where the result goes. Each interpreter measures in a process of its own, all on one processor;
they take turns, and the least time of a case counts.

Goes out: a table in Markdown, in nanoseconds, and in parentheses as parts of NumPy's cheapest call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from calls import Case, number, ours, take_turns

MADE = Path(__file__).resolve().parent.parent / "build" / "pythons"
UFUNCS = ("negative", "positive", "absolute", "square", "logical_not")
ELEMENTS = 4
Times = dict[str, float]  # seconds by case; the least of NumPy's under CHEAPEST
CHEAPEST = "numpy"


def cheapest() -> list[Case]:
    """NumPy's calls, with nothing but positional arguments."""
    x = np.ones(ELEMENTS, np.float32)
    outs = {name: np.empty(ELEMENTS, bool if name == "logical_not" else np.float32) for name in UFUNCS}
    return [Case("numpy", f, "f(x, out)", {"f": getattr(np, f), "x": x, "out": out}) for f, out in outs.items()]


def measure(rounds: int, seconds: float) -> Times:
    """The times of this interpreter."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = take_turns([*ours(ELEMENTS, small=True), *cheapest()], rounds, seconds)
    times = {case.name: case.least for case in found if case.peer != "numpy"}
    return times | {CHEAPEST: min(case.least for case in found if case.peer == "numpy")}


def label() -> str:
    """What this interpreter is."""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return f"{'.'.join(map(str, sys.version_info[:3]))}{'' if has_gil else ' without the GIL'}, NumPy {np.__version__}"


def table(times: dict[str, Times]) -> str:
    """A line for each case, a column for each interpreter."""
    lines = ["| call, ns | " + " | ".join(times) + " |", "|---|" + "---:|" * len(times)]
    for case in next(iter(times.values())):
        cells = (f"{number(each[case] * 1e9)} ({each[case] / each[CHEAPEST]:.2f})" for each in times.values())
        name = "NumPy's cheapest" if case == CHEAPEST else case
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each interpreter")
    parser.add_argument("--seconds", type=float, default=0.01, metavar="S", help="of a case's turn")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured there")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        print(json.dumps([label(), measure(3, given.seconds)]))
        return 0
    pythons = given.pythons or [sys.executable, *sorted(map(str, MADE.glob("*/bin/python3*")))]
    least: dict[str, Times] = {}
    for _ in range(given.rounds):
        for python in pythons:
            command = [python, __file__, "--child", "--seconds", str(given.seconds)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            name, times = json.loads(done.stdout.splitlines()[-1])
            before = least.setdefault(name, times)
            least[name] = {case: min(time, before[case]) for case, time in times.items()}
    print(table(least))
    if given.json is not None:
        Path(given.json).write_text(json.dumps(least, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
