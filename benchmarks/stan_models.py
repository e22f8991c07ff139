"""Measure Stan programs compiled by staticgrad beside stanli, which interprets them.

    python benchmarks/stan_models.py [--model NAMES] [--folder PATH] [--rounds N] [--seconds S] [--json FILE]
                                     [--history FOLDER]

A program is a file ``NAME.stan`` of the folder, with its data in ``NAME.json`` (or under ``data`` there); without a
folder those of ``tests/data/stan``. Each system has a process of its own with empty caches: seconds of set-up from the
source and the data until value and gradient have been computed once, imports not counted; values and gradients at a
few points, which must agree within 1e-9 but for a constant (stanli drops constants); microseconds of a gradient, called
through ctypes, the least of some rounds. Goes out: a table in Markdown. It needs ``pip install '.[stan]'`` in a
checkout.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import history
import numpy as np
from figures import RATIO

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "stan"
OURS, THEIRS = "staticgrad", "stanli"
POINTS, TOLERANCE = 5, 1e-9


def data_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return found.get("data", found)


def ours(path: Path) -> Any:
    """A function of the addresses of vector, gradient and value, and the number of unconstrained numbers."""
    import staticgrad.stan

    model = staticgrad.stan.compile(path, data_of(path))
    model.logp(np.zeros(model.n_dim))
    function, n = model.cfunc().ctypes, model.n_dim
    return lambda x, grad, value: function(n, x, grad, value, None), n


def theirs(path: Path) -> Any:
    import stanli

    model = stanli.Model(path, data=data_of(path))
    pointer = ctypes.POINTER(ctypes.c_double)
    grad, n = stanli._lib.stanli_grad, model.n_unconstrained

    def call(x: int, slope: int, value: int) -> int:
        return int(grad(model._m, ctypes.cast(x, pointer), ctypes.cast(value, pointer), ctypes.cast(slope, pointer)))

    zeros, slope, value = np.zeros(n), np.zeros(n), np.zeros(1)
    call(zeros.ctypes.data, slope.ctypes.data, value.ctypes.data)
    return call, n


def measure(system: str, path: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Set-up, values, gradients and microseconds of one system."""
    __import__("staticgrad.stan" if system == OURS else "stanli")
    start = time.perf_counter()
    call, n = (ours if system == OURS else theirs)(path)
    found: dict[str, Any] = {"setup": time.perf_counter() - start, "n": n, "values": [], "gradients": []}
    points = np.random.default_rng(1).normal(size=(POINTS, n)) * 0.5
    value, grad = np.zeros(1), np.zeros(n)
    for x in points:
        status = call(x.ctypes.data, grad.ctypes.data, value.ctypes.data)
        found["values"].append(float(value[0]) if status == 0 else None)
        found["gradients"].append(grad.tolist())
    x = points[0]
    arguments = (x.ctypes.data, grad.ctypes.data, value.ctypes.data)
    best = float("inf")
    for _ in range(rounds):
        calls, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            for _ in range(10):
                call(*arguments)
            calls += 10
        best = min(best, spent / calls)
    return found | {"microseconds": best * 1e6}


def asked(system: str, path: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """What a process of its own measures."""
    command = [sys.executable, __file__, "--serve", system, str(path), str(rounds), str(seconds)]
    environment = {**os.environ, "STATICGRAD_CACHE": "0"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode:
        return {"error": run.stderr.strip().splitlines()[-1][:120]}
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def differing(a: dict[str, Any], b: dict[str, Any]) -> str:
    """How values, but for a constant, and gradients differ, where they do."""
    pairs = [
        (v, w, s, t) for v, w, s, t in zip(a["values"], b["values"], a["gradients"], b["gradients"]) if w is not None
    ]
    for v, w, s, t in pairs:
        constant = pairs[0][0] - pairs[0][1]
        if v is None or abs(v - w - constant) > TOLERANCE * max(1.0, abs(w)):
            return f"values differ: {v} {w}"
        if np.max(np.abs(np.subtract(s, t)) / np.maximum(1.0, np.max(np.abs(t)))) > TOLERANCE:
            return "gradients differ"
    return ""


def tables(found: dict[str, Any]) -> dict[str, history.Table]:
    """What the history keeps of programs on which both agree: times of gradients and set-ups."""
    return {
        title: {
            name: {who: row[who][key] for who in (OURS, THEIRS)} | {RATIO: row[OURS][key] / row[THEIRS][key]}
            for name, row in found.items()
        }
        for title, key in (("µs of a gradient", "microseconds"), ("seconds of a set-up", "setup"))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="*", help="names of programs, with wildcards, separated by commas")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--json", type=Path)
    history.add_option(parser)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        system, path, rounds, seconds = options.serve
        print(json.dumps(measure(system, Path(path), int(rounds), float(seconds))))
        return
    kept = history.opened(parser, options, "model", "folder")
    found: dict[str, Any] = {}
    agreeing: dict[str, Any] = {}
    print("| program | numbers | set-up, s | stanli | a gradient, µs | stanli | |\n|---|---|---|---|---|---|---|")
    for path in sorted(options.folder.glob("*.stan")):
        if not any(fnmatch.fnmatch(path.stem, name) for name in options.model.split(",")):
            continue
        a, b = (asked(system, path, options.rounds, options.seconds) for system in (OURS, THEIRS))
        found[path.stem] = {OURS: a, THEIRS: b}
        if "error" in a or "error" in b:
            print(f"| {path.stem} | {a.get('error', '')} {b.get('error', '')} |")
            continue
        differs = differing(a, b)
        if not differs:
            agreeing[path.stem] = found[path.stem]
        times = f"{a['setup']:.2f} | {b['setup']:.2f} | {a['microseconds']:.1f} | {b['microseconds']:.1f}"
        print(f"| {path.stem} | {a['n']} | {times} | {differs} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found))
    if kept is not None:
        settings = {"rounds": options.rounds, "seconds": options.seconds}
        kept.append("stan_models", tables(agreeing), ("stanli",), settings=settings)


if __name__ == "__main__":
    main()
