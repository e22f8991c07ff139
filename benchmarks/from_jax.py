"""Functions of JAX, converted, beside ``jax.jit``: value and gradient of each function of ``jax_functions.py``.

    python benchmarks/from_jax.py [--functions NAMES] [--sizes 0,1] [--rounds N] [--seconds N] [--json FILE]
                                  [--history FOLDER]

All arguments are fed, parameters too, as arrays of NumPy, and results are read as such. Both answers must agree before
anything is timed. CPU is that of all threads of the process, of a call; the two take turns, and the figure is the
median of the rounds. Set-up is all from a function to its first result: tracing and compilation, of ours conversion as
well, without kept programs. What programs of ours have in common, such as the threads' machinery, is compiled by then,
as it is in JAX's package; ``--first`` counts it as well. Import is what ``staticgrad.jax`` takes after JAX, and that of
JAX after NumPy, each in an interpreter of its own, with bytecode as an installation has it, and without the collection
of garbage that was there before. A process a function and size. Needs the extras ``jax`` and ``bench``, with flax and
optax for networks.
"""

from __future__ import annotations

import argparse
import compileall
import fnmatch
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import history
import numpy as np
from figures import MEDIANS, RATIO

ROOT = Path(__file__).parents[1]
IMPORTS = {"staticgrad": ("jax, jax.numpy", "staticgrad.jax"), "jax": ("numpy", "jax, jax.numpy")}

# Sums in threads, with which the machinery of all programs is compiled.
MACHINERY = """
import numpy, staticgrad
x = staticgrad.placeholder((1 << 20,))
staticgrad.Session().compile(staticgrad.sum(staticgrad.sin(x)), x)(numpy.ones(1 << 20, numpy.float32))
"""


def imports() -> dict[str, float]:
    """Seconds of CPU that each import takes after another one."""

    def seconds(before: str, imported: str) -> float:
        code = f"import gc, time, {before}; gc.freeze(); start = time.process_time(); import {imported};"
        code += "print(time.process_time() - start)"
        found = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
        return statistics.median(found)

    return {name: seconds(*each) for name, each in IMPORTS.items()}


def calls_in(call: Callable[[], Any], seconds: float) -> int:
    """The number of calls that take about so long."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        call()
        count += 1
    return count


def cpu(call: Callable[[], Any], count: int) -> float:
    """Microseconds of CPU of a call, of all threads."""
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count * 1e6


def measure(name: str, size: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Figures of one function at one size, in this process."""
    import jax
    from jax_functions import FUNCTIONS

    import staticgrad as sg
    from staticgrad.jax import convert

    jax.config.update("jax_enable_x64", True)
    fn, args = FUNCTIONS[name](size)
    args = [np.asarray(a) for a in args]
    by = [n for n, a in enumerate(args) if a.dtype.kind == "f"]

    start = time.process_time()
    with sg.Graph() as graph:
        xs = [sg.placeholder(a.shape, a.dtype) for a in args]
        y = convert(fn, max_steps=200)(*xs)
        slopes = sg.gradients(y, [xs[n] for n in by], unconnected_gradients="zero")
    exe = sg.Session(graph).compile([y, *slopes], xs)
    mine = exe(*args)
    ours = time.process_time() - start

    start = time.process_time()
    compiled = jax.jit(jax.value_and_grad(fn, argnums=tuple(by)))
    value, found = compiled(*args)
    theirs = [np.asarray(value), *map(np.asarray, found)]
    others = time.process_time() - start

    wrong = max(
        float(np.max(np.abs(a - b), initial=0) / (1 + np.max(np.abs(b), initial=0))) for a, b in zip(mine, theirs)
    )
    figures = {"function": name, "size": size, "difference": wrong, "setup": ours, "setup_jax": others}
    if wrong > 1e-8:
        return figures | {"wrong": True}

    def call() -> None:
        exe(*args)

    def call_jax() -> None:
        value, found = compiled(*args)
        for each in (value, *found):
            np.asarray(each)

    counts = [max(1, calls_in(c, seconds / 4)) for c in (call, call_jax)]
    turns = [[cpu(c, n) for c, n in zip((call, call_jax), counts)] for _ in range(rounds)]
    figures["call"], figures["call_jax"] = (statistics.median(column) for column in zip(*turns))
    return figures


def table(rows: list[dict[str, Any]], spent: dict[str, float]) -> str:
    """All figures as a table of Markdown, with the medians and means that count."""
    lines = [
        "| function | size | CPU a call, µs | `jax.jit`, µs | ratio | set-up, s | JAX's, s | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        size = ("small", "large")[row["size"]]
        if "call" not in row:
            lines.append(f"| `{row['function']}` | {size} | {row.get('failed', 'wrong')} | | | | | |")
            continue
        ratio = row["call"] / row["call_jax"]
        lines.append(
            f"| `{row['function']}` | {size} | {row['call']:.1f} | {row['call_jax']:.1f} | {ratio:.3f} |"
            f" {row['setup']:.2f} | {row['setup_jax']:.2f} | {row['difference']:.0e} |"
        )
    for size, what in enumerate(("small", "large")):
        ratios = [row["call"] / row["call_jax"] for row in rows if row["size"] == size and "call" in row]
        if ratios:
            setups = [row["setup"] / row["setup_jax"] for row in rows if row["size"] == size and "call" in row]
            lines.append(
                f"\nOf the {len(ratios)} {what} ones: median ratio {statistics.median(ratios):.3f},"
                f" geometric mean {statistics.geometric_mean(ratios):.3f}, greatest {max(ratios):.3f};"
                f" set-up, median ratio {statistics.median(setups):.2f}."
            )
    mine, theirs = spent["staticgrad"], spent["jax"]
    lines.append(f"\nImport: {mine:.2f} s, JAX {theirs:.2f} s, ratio {mine / theirs:.2f}.")
    return "\n".join(lines)


def tables(rows: list[dict[str, Any]], spent: dict[str, float]) -> dict[str, history.Table]:
    """What the history keeps: the medians of ratios, and times of calls and set-ups by function and size."""
    kept: dict[str, history.Table] = {MEDIANS: {}, "µs of CPU of a call": {}, "seconds of CPU of a set-up": {}}
    for size, what in enumerate(("small", "large")):
        of_size = [row for row in rows if row["size"] == size]
        ratios = [[row[key] / row[f"{key}_jax"] for row in of_size] for key in ("call", "setup")]
        call, setup = map(statistics.median, ratios)
        kept[MEDIANS][what] = {"functions": len(of_size), "call": call, "set-up": setup}
        for title, key in zip(list(kept)[1:], ("call", "setup"), strict=True):
            for row in of_size:
                times = {"staticgrad": row[key], "jax.jit": row[f"{key}_jax"], RATIO: row[key] / row[f"{key}_jax"]}
                kept[title][f"{row['function']}, {what}"] = times
    return kept | {"seconds of CPU": {"import": spent}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", default="*", help="names, with * and ?, separated by commas")
    parser.add_argument("--sizes", default="0,1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of calls in a round")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--first", action="store_true", help="count the machinery of all programs as set-up")
    history.add_option(parser)
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.rounds, given.seconds)))
        return
    kept = history.opened(parser, given, "functions", "sizes", "first")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from jax_functions import FUNCTIONS

    names = [n for n in FUNCTIONS if any(fnmatch.fnmatch(n, pattern) for pattern in given.functions.split(","))]
    for package in ("staticgrad", "compiler", "runtime"):
        compileall.compile_dir(ROOT / package, quiet=1)
    machinery = tempfile.TemporaryDirectory()
    if not given.first:
        environment = {**os.environ, "STATICGRAD_CACHE_DIR": machinery.name}
        subprocess.run([sys.executable, "-c", MACHINERY], env=environment, check=True)
    rows = []
    for size in map(int, given.sizes.split(",")):
        for name in names:
            with tempfile.TemporaryDirectory() as cache:
                shutil.copytree(machinery.name, cache, dirs_exist_ok=True)
                command = [sys.executable, __file__, "--one", name, str(size)]
                command += ["--rounds", str(given.rounds), "--seconds", str(given.seconds)]
                environment = {**os.environ, "STATICGRAD_CACHE_DIR": cache}
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
            failed = {"function": name, "size": size, "failed": (done.stderr.strip().splitlines() or ["?"])[-1][:80]}
            rows.append(json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else failed)
            print(f"{name}, {size}: done", file=sys.stderr)
    spent = imports()
    print(table(rows, spent))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "imports": spent}, file, indent=1)
    if not all("call" in row for row in rows):
        sys.exit("some functions failed or gave wrong values")
    if kept is not None:
        settings = {"rounds": given.rounds, "seconds": given.seconds}
        kept.append("from_jax", tables(rows, spent), ("jax",), threads=len(os.sched_getaffinity(0)), settings=settings)


if __name__ == "__main__":
    main()
