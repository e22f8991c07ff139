"""What finding roots takes beside SciPy's ``root`` and, where it is installed, Optimistix.

    python benchmarks/implicit.py [--only NAMES] [--rounds N]

The systems are those of Moré, Garbow and Hillstrom that have as many equations as unknowns
(``tests/support/systems_of_equations.py``), from their standard starts. SciPy's ``hybr`` differences the Jacobian;
Optimistix' ``Dogleg`` derives it, under ``jax.jit`` in float64, to the tolerances that ``sg.root`` has by default. The
solvers take turns; the best time of each counts. Goes out, in Markdown: the evaluations of the residual, those for
Jacobians apart, and the microseconds of a call; F where a solver says that it failed. Then what the gradient of a
solution costs of the solution itself.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from optimised import optimised

import staticgrad as sg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.systems_of_equations import SYSTEMS, System

Solver = Callable[[], tuple[bool, str]]  # whether it converged, and how many evaluations it took
STEPS = 200


class _NumPy:
    """NumPy under the names that systems use."""

    concat, atan2 = staticmethod(np.concatenate), staticmethod(np.arctan2)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def ours(system: System, method: Any) -> Solver:
    with sg.Graph() as graph:
        start = sg.placeholder(system.start.shape, sg.float64)
        found = sg.root(lambda x: system.residual(sg, x), start, method=method, max_steps=STEPS, full_output=True)
    solve = optimised(sg.Session(graph, num_threads=1).compile(tuple(found), [start]))

    def run() -> tuple[bool, str]:
        _, _, status, _, evaluations, jacobians = solve(system.start)
        return status == 0, f"{evaluations} + {jacobians} J"

    return run


def scipys(system: System) -> Solver:
    o = _NumPy()

    def run() -> tuple[bool, str]:
        with np.errstate(all="ignore"):
            found = scipy.optimize.root(lambda x: system.residual(o, x), system.start, method="hybr")
        return found.success, str(found.nfev)

    return run


def optimistixs(system: System) -> Solver | None:
    try:
        import jax
        import optimistix
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    names = _Jax(jax.numpy)
    solver = optimistix.Dogleg(rtol=1e-10, atol=1e-12)

    @jax.jit
    def solve(start: Any) -> Any:
        found = optimistix.root_find(
            lambda x, _: system.residual(names, x), solver, start, max_steps=STEPS, throw=False
        )
        return found.value, found.result == optimistix.RESULTS.successful, found.stats["num_steps"]

    def run() -> tuple[bool, str]:
        _, success, steps = solve(system.start)
        return bool(success), f"{int(steps)} steps"

    return run


class _Jax:
    """jax.numpy under the names that systems use."""

    def __init__(self, names: Any) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, {"concat": "concatenate", "atan2": "arctan2"}.get(name, name))


def seconds(solver: Callable[[], Any]) -> float:
    """Of a call, by as many as take a millisecond."""
    count, took = 1, 0.0
    while True:
        begun = time.perf_counter()
        for _ in range(count):
            solver()
        took = time.perf_counter() - begun
        if took > 1e-3:
            return took / count
        count *= 2


def table(names: list[str], rounds: int) -> None:
    print("| system | n | newton | µs | broyden | µs | SciPy | µs | Optimistix | µs |")
    print("|---|---:|---|---:|---|---:|---|---:|---|---:|")
    for name in names:
        system = SYSTEMS[name]
        solvers = [ours(system, "newton"), ours(system, "broyden"), scipys(system), optimistixs(system)]
        best = [np.inf] * len(solvers)
        for _ in range(rounds):
            for number, solver in enumerate(solvers):
                if solver is not None:
                    best[number] = min(best[number], seconds(solver))
        cells = [name, str(len(system.start))]
        for solver, took in zip(solvers, best, strict=True):
            success, count = (True, "–") if solver is None else solver()
            cells += [count if success else f"{count} F", "–" if solver is None else f"{1e6 * took:.3g}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def gradients(rounds: int) -> None:
    """The time of a root and of its gradient, for a system of n unknowns."""
    print("\n| n | root, µs | root and gradient | and Hessian times a vector |")
    print("|---:|---:|---:|---:|")
    for n in (1, 2, 8, 32, 128):
        rng = np.random.default_rng(0)
        w = rng.normal(size=(n, n)) / n**0.5
        with sg.Graph() as graph:
            b = sg.placeholder((n,), sg.float64)
            x = sg.root(lambda x, w=w, b=b: x + 0.3 * sg.tanh(w @ x) - b, np.zeros(n))
            y = sg.sum(x**2)
            slope = sg.gradients(y, [b])[0]
            session = sg.Session(graph, num_threads=1)
            programs = [
                optimised(session.compile(fetches, [b])) for fetches in ([y], [y, slope], [y, slope, sg.hvp(y, b, b)])
            ]
        point = rng.normal(size=n)
        calls = [lambda program=program, point=point: program(point) for program in programs]
        best = [np.inf] * 3
        for _ in range(rounds):
            for number, call in enumerate(calls):
                best[number] = min(best[number], seconds(call))
        print(f"| {n} | {1e6 * best[0]:.3g} | {best[1] / best[0]:.2f} | {best[2] / best[0]:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="names of systems, separated by commas; * for any letters")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    patterns = given.only.split(",")
    table([name for name in SYSTEMS if any(fnmatch.fnmatch(name, p) for p in patterns)], given.rounds)
    gradients(given.rounds)


if __name__ == "__main__":
    main()
