"""Measure programs inside SciPy's loops: as C functions, as executables, beside functions of NumPy.

    python benchmarks/callers.py [--seconds S] [--json FILE]

``quad`` integrates exp(-x²) cos(3x), ``nquad`` a product over a square; ``minimize`` finds the minimum of Rosenbrock's
function of 2, 20 and 200 variables, with SciPy's L-BFGS-B around a value and gradient, and with ``sg.minimize``, whose
loop is in the program. All take turns; results must agree before times are told. Goes out: microseconds of a whole
call, the least of those in a run, and the ratio to the function of NumPy.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import integrate, optimize

import staticgrad as sg

Contestants = dict[str, Callable[[], Any]]
BASE = "NumPy"
clock = time.perf_counter


def quads() -> dict[str, Contestants]:
    """Integrals, with the integrand as three kinds of function."""
    with sg.Graph() as graph:
        x, y = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
        wave, bump = sg.exp(-x * x) * sg.cos(3 * x), sg.exp(-x * y)
    session = sg.Session(graph, num_threads=1)
    one, two = session.compile(wave, x), session.compile(bump, [x, y])
    first, second = one.cfunc("scalar").low_level_callable(), two.cfunc("scalars").low_level_callable()
    square = [[0.0, 1.0], [0.0, 2.0]]
    return {
        "quad": {
            BASE: lambda: integrate.quad(lambda x: math.exp(-x * x) * math.cos(3 * x), 0, 10)[0],
            "executable": lambda: integrate.quad(one, 0, 10)[0],
            "C function": lambda: integrate.quad(first, 0, 10)[0],
        },
        "nquad": {
            BASE: lambda: integrate.nquad(lambda x, y: math.exp(-x * y), square)[0],
            "executable": lambda: integrate.nquad(two, square)[0],
            "C function": lambda: integrate.nquad(second, square)[0],
        },
    }


def rosenbrock(x: Any) -> Any:
    return sg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_numpy(x: Any) -> tuple[float, Any]:
    """Value and gradient, written by hand."""
    a, b = x[1:] - x[:-1] ** 2, 1 - x[:-1]
    slope = np.zeros_like(x)
    slope[1:] = 200 * a
    slope[:-1] -= 400 * a * x[:-1] + 2 * b
    return float(100 * a @ a + b @ b), slope


def minima() -> dict[str, Contestants]:
    """Minima of Rosenbrock's function."""
    both = sg.value_and_grad(rosenbrock)
    options = {"gtol": 1e-8, "ftol": 0.0, "maxiter": 5000, "maxfun": 10_000}

    def by_scipy(fn: Callable[..., Any], start: Any) -> Callable[[], Any]:
        return lambda: optimize.minimize(fn, start, jac=True, method="L-BFGS-B", options=options).x

    def by_program(start: Any) -> Callable[[], Any]:
        return lambda: sg.minimize(rosenbrock, start, gtol=1e-8, ftol=0.0, maxiter=5000, num_threads=1).x

    return {
        f"minimize {n}": {
            BASE: by_scipy(rosenbrock_numpy, np.zeros(n)),
            "executable": by_scipy(both, np.zeros(n)),
            "sg.minimize": by_program(np.zeros(n)),
        }
        for n in (2, 20, 200)
    }


def measured(contestants: Contestants, seconds: float) -> dict[str, float]:
    """The least seconds of a call of each, in turns, after their results were compared."""
    want = contestants[BASE]()
    for name, call in contestants.items():
        if not np.allclose(call(), want, rtol=1e-5, atol=1e-7):
            raise SystemExit(f"{name} gives another result")
    best = dict.fromkeys(contestants, math.inf)
    end = clock() + seconds
    while clock() < end:
        for name, call in contestants.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="of each comparison")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    print("| loop | function | µs | of NumPy's time |")
    print("|---|---|---:|---:|")
    rows = []
    for loop, contestants in {**quads(), **minima()}.items():
        found = measured(contestants, given.seconds)
        for name, took in found.items():
            rows.append({"loop": loop, "function": name, "seconds": took})
            print(f"| {loop} | {name} | {took * 1e6:.1f} | {took / found[BASE]:.3f} |", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
