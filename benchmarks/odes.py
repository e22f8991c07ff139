"""Accuracy by work of ``sg.odeint`` beside SciPy and Diffrax, on classic differential equations.

    python benchmarks/odes.py [--systems NAMES] [--tolerances NUMBERS] [--seconds S] [--gradients] [--quick]

Goes out: a table in Markdown, a row for each system, tolerance and solver: the largest error at the end over the
largest component (with ``--gradients`` the error of the derivative in the direction of the initial values and
parameters), against the references of ``tests/data/odes.json``; accepted and rejected steps, evaluations of the right
side, microseconds of a call, and their ratio to the first solver of the row's kind, explicit or implicit. The solvers
of a tolerance take turns for some seconds, and the shortest call of each counts. One thread; JAX in 64 bits. Peers that
are not installed are left out. SciPy's right sides are Python functions of NumPy scalars, as users write them.

Gradients are in reverse, by all initial values and parameters; Diffrax's are those of ``RecursiveCheckpointAdjoint``,
its default.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.ode_systems import SYSTEMS, OdeSystem, references

TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10)
MOST = 20000  # attempts


@dataclass(frozen=True)
class Outcome:
    """What a call gives: the state at the end or a gradient's product with the direction, steps, rejected attempts and
    evaluations, -1 where unknown."""

    value: Any
    steps: int
    rejected: int
    evaluations: int


Call = Callable[[], Any]


@dataclass(frozen=True)
class Solver:
    """A way to solve a system: ``prepare`` compiles, and gives a call and a function of its result."""

    name: str
    implicit: bool
    prepare: Callable[[OdeSystem, float, bool], tuple[Call, Callable[[Any], Outcome]]]


def ours(method: Any) -> Solver:
    def prepare(system: OdeSystem, tolerance: float, derived: bool) -> tuple[Call, Callable[[Any], Outcome]]:
        with sg.Graph() as graph:
            y0, p = sg.placeholder((len(system.y0),), sg.float64), sg.placeholder((len(system.p),), sg.float64)
            slope = system.slope(sg)
            found = sg.odeint(
                lambda t, y: slope(t, y, p), y0, [0.0, system.span], method=method, rtol=tolerance,
                atol=tolerance * system.atol, max_steps=MOST, full_output=True,
            )  # fmt: skip
            counts = [found.steps, found.rejected, found.evaluations]
            last = sg.gradients(sg.sum(found.y_end), [y0, p]) if derived else [found.y_end]
        step = sg.Session(graph, num_threads=1).compile([counts, last], [y0, p])
        arrays = np.array(system.y0), np.array(system.p)
        step(*arrays)
        step.wait()

        def outcome(made: Any) -> Outcome:
            numbers, last = made
            return Outcome(directed(last, arrays) if derived else last[0], *map(int, numbers))

        return lambda: step(*arrays), outcome

    return Solver(f"staticgrad {method}", method == "kvaerno5", prepare)


def directed(slopes: Sequence[Any], directions: Sequence[Any]) -> float:
    return float(sum(np.sum(np.asarray(a) * b) for a, b in zip(slopes, directions, strict=True)))


def scipys(method: str) -> Solver:
    from scipy.integrate import solve_ivp

    def prepare(system: OdeSystem, tolerance: float, derived: bool) -> tuple[Call, Callable[[Any], Outcome]]:
        class Scalars:
            cos = staticmethod(np.cos)

        def call() -> Any:
            return solve_ivp(
                lambda t, y: system.rates(Scalars, t, y, system.p), (0, system.span), system.y0, method,
                rtol=tolerance, atol=tolerance * system.atol,
            )  # fmt: skip

        return call, lambda made: Outcome(made.y[:, -1], len(made.t) - 1, -1, made.nfev)

    return Solver(f"SciPy {method}", method in ("Radau", "LSODA"), prepare)


def diffraxes(name: str) -> Solver:
    import diffrax
    import jax

    jax.config.update("jax_enable_x64", True)

    def prepare(system: OdeSystem, tolerance: float, derived: bool) -> tuple[Call, Callable[[Any], Outcome]]:
        import jax.numpy as jnp

        slope = system.slope(jnp)
        term = diffrax.ODETerm(lambda t, y, p: slope(t, y, p))
        pi = {"pcoeff": 0.3, "icoeff": 0.4}  # as Diffrax advises for stiff equations
        controller = diffrax.PIDController(
            rtol=tolerance, atol=tolerance * system.atol, **(pi if name == "Kvaerno5" else {})
        )

        def end(y0: Any, p: Any) -> tuple[Any, Any]:
            made = diffrax.diffeqsolve(
                term, getattr(diffrax, name)(), 0.0, system.span, None, y0, p, stepsize_controller=controller,
                max_steps=MOST, throw=False,
            )  # fmt: skip
            return made.ys[-1], [made.stats["num_accepted_steps"], made.stats["num_rejected_steps"]]

        def gradient(y0: Any, p: Any) -> tuple[Any, Any]:
            return jax.grad(lambda y0, p: (lambda y, n: (jnp.sum(y), n))(*end(y0, p)), (0, 1), has_aux=True)(y0, p)

        step = jax.jit(gradient if derived else end)
        arrays = jnp.array(system.y0), jnp.array(system.p)

        def outcome(made: Any) -> Outcome:
            last, counts = made
            return Outcome(directed(last, arrays) if derived else np.asarray(last), *map(int, counts), -1)

        return lambda: jax.block_until_ready(step(*arrays)), outcome

    return Solver(f"Diffrax {name}", name == "Kvaerno5", prepare)


def solvers(system: OdeSystem, derived: bool) -> list[Solver]:
    """Those that are for a system: of stiff ones the implicit ones."""
    found = [ours(method) for method in ("tsit5", "dopri5", "kvaerno5")]
    if importlib.util.find_spec("scipy") and not derived:
        found += [scipys(method) for method in ("RK45", "DOP853", "Radau", "LSODA")]
    if importlib.util.find_spec("diffrax"):
        found += [diffraxes(name) for name in ("Tsit5", "Dopri5", "Kvaerno5")]
    return [solver for solver in found if solver.implicit or not system.stiff]


def measured(calls: Sequence[Call], seconds: float) -> list[float]:
    """The shortest time of each call, in microseconds: they take turns."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or float("inf") in best:
        for number, call in enumerate(calls):
            for _ in range(5):
                start = time.perf_counter()
                call()
                taken = time.perf_counter() - start
                best[number] = min(best[number], 1e6 * taken)
                if taken > seconds / 50:
                    break
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--tolerances", default=",".join(map(str, TOLERANCES)))
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for each system and tolerance")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    names = ["lotka_volterra", "orego"] if given.quick else given.systems.split(",")
    tolerances = [1e-6] if given.quick else [float(text) for text in given.tolerances.split(",")]
    seconds = 0.2 if given.quick else given.seconds
    known = references()
    print("| system | tolerance | solver | error | steps | rejected | evaluations | µs | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        system = SYSTEMS[name]
        for tolerance in tolerances:
            chosen = solvers(system, given.gradients)
            prepared = [solver.prepare(system, tolerance, given.gradients) for solver in chosen]
            outcomes = [outcome(call()) for call, outcome in prepared]
            times = measured([call for call, _ in prepared], seconds)
            firsts: dict[bool, float] = {}
            exact = np.array(known[name]["tangent"]).sum() if given.gradients else np.array(known[name]["end"])
            for solver, made, taken in zip(chosen, outcomes, times, strict=True):
                error = np.max(np.abs(made.value - exact)) / np.max(np.abs(exact))
                ratio = taken / firsts.setdefault(solver.implicit, taken)
                counts = ["" if n < 0 else str(n) for n in (made.steps, made.rejected, made.evaluations)]
                cells = [name, f"{tolerance:.0e}", solver.name, f"{error:.1e}", *counts, f"{taken:.1f}", f"{ratio:.2f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
