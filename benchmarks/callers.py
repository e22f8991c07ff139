"""Measure programs inside other loops, and loops inside programs: as C functions, as executables, beside NumPy.

    python benchmarks/callers.py [--seconds S] [--json FILE]

``quad`` integrates exp(-x²) cos(3x), ``nquad`` a product over a square; ``minimize`` finds the minimum of Rosenbrock's
function of 2, 20 and 200 variables, with SciPy's L-BFGS-B around a value and gradient, and with ``sg.minimize``, whose
loop is in the program. ``sampler`` draws 500 times by Hamiltonian Monte Carlo, 20 leapfrog steps each, from the
posterior of eight schools: loops of Python around NumPy or an executable, one program, and one of JAX where that is
installed. All take turns; results must agree before times are told, those of samplers within what chance allows. Goes
out: microseconds of a whole call, the least of those in a run, and the ratio to the function of NumPy.
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


EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
DRAWS, LEAPS, STEP = 500, 20, 0.3


def eight_schools(q: Any, xp: Any) -> Any:
    """The log density of mean, log of the width, and normals, in the functions of a module."""
    mean, log_width, normals = q[0], q[1], q[2:]
    misfit = (EFFECTS - mean - xp.exp(log_width) * normals) / ERRORS
    prior = log_width - 0.5 * (mean / 5.0) ** 2 - xp.log1p((xp.exp(log_width) / 5.0) ** 2)
    return prior - 0.5 * xp.sum(misfit**2) - 0.5 * xp.sum(normals**2)


def eight_schools_numpy(q: Any) -> tuple[Any, Any]:
    """Value and gradient, written by hand."""
    mean, width, normals = q[0], np.exp(q[1]), q[2:]
    misfit = (EFFECTS - mean - width * normals) / ERRORS
    part, ratio = misfit / ERRORS, (width / 5) ** 2
    slope = np.empty(10)
    slope[0] = -mean / 25 + part.sum()
    slope[1] = 1 - 2 * ratio / (1 + ratio) + width * (part @ normals)
    slope[2:] = width * part - normals
    logp = q[1] - 0.5 * (mean / 5) ** 2 - np.log1p(ratio) - 0.5 * misfit @ misfit - 0.5 * normals @ normals
    return logp, slope


def by_python(density: Callable[[Any], Any]) -> Callable[[], Any]:
    """A chain whose loops are Python's: the mean of its draws."""

    def draw() -> Any:
        rng, q = np.random.default_rng(0), np.zeros(10)
        logp, slope = density(q)
        total = np.zeros(10)
        for _ in range(DRAWS):
            size, p = STEP * rng.uniform(0.3, 1.0), rng.normal(size=10)
            end, end_logp, end_slope, end_p = q, logp, slope, p
            for _ in range(LEAPS):
                end_p = end_p + 0.5 * size * end_slope
                end = end + size * end_p
                end_logp, end_slope = density(end)
                end_p = end_p + 0.5 * size * end_slope
            if np.log(rng.random()) < end_logp - logp + 0.5 * (p @ p - end_p @ end_p):
                q, logp, slope = end, end_logp, end_slope
            total += q
        return total / DRAWS

    return draw


def as_program() -> Callable[[], Any]:
    """A chain whose loops are in the program."""
    both = sg.value_and_grad(lambda q: eight_schools(q, sg))

    def leap(state: Any, size: Any) -> Any:
        q, _, slope, p = state
        p = p + 0.5 * size * slope
        q = q + size * p
        logp, slope = both(q)
        return (q, logp, slope, p + 0.5 * size * slope), None

    def draw(state: Any, _: None) -> Any:
        q, logp, slope, total = state
        size = STEP * sg.random.uniform((), 0.3, 1.0, dtype=sg.float64)
        p = sg.random.normal((10,), dtype=sg.float64)
        (*end, end_p), _ = sg.scan(lambda s, _: leap(s, size), (q, logp, slope, p), None, length=LEAPS)
        gained = end[1] - logp + 0.5 * (sg.sum(p * p) - sg.sum(end_p * end_p))
        accepted = sg.log(sg.random.uniform((), dtype=sg.float64)) < gained
        q, logp, slope = (sg.where(accepted, new, old) for new, old in zip(end, (q, logp, slope), strict=True))
        return (q, logp, slope, total + q), None

    with sg.Graph() as graph:
        begin = sg.placeholder((10,), sg.float64)
        (*_, total), _ = sg.scan(draw, (begin, *both(begin), np.zeros(10)), None, length=DRAWS)
        mean = total / DRAWS
    run = sg.Session(graph, num_threads=1).compile(mean, begin)
    return lambda: run(np.zeros(10))


def by_jax() -> Callable[[], Any] | None:
    """The same of JAX; None where that is not installed."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    both = jax.value_and_grad(lambda q: eight_schools(q, jax.numpy))

    def leap(state: Any, size: Any) -> Any:
        q, _, slope, p = state
        p = p + 0.5 * size * slope
        q = q + size * p
        logp, slope = both(q)
        return q, logp, slope, p + 0.5 * size * slope

    def draw(state: Any, key: Any) -> Any:
        q, logp, slope, total = state
        keys = jax.random.split(key, 3)
        size = STEP * jax.random.uniform(keys[0], minval=0.3, maxval=1.0)
        p = jax.random.normal(keys[1], (10,))
        *end, end_p = jax.lax.fori_loop(0, LEAPS, lambda _, s: leap(s, size), (q, logp, slope, p))
        gained = end[1] - logp + 0.5 * (p @ p - end_p @ end_p)
        accepted = jax.numpy.log(jax.random.uniform(keys[2])) < gained
        q, logp, slope = (jax.numpy.where(accepted, new, old) for new, old in zip(end, (q, logp, slope), strict=True))
        return (q, logp, slope, total + q), None

    @jax.jit
    def run(begin: Any, key: Any) -> Any:
        (*_, total), _ = jax.lax.scan(draw, (begin, *both(begin), 0 * begin), jax.random.split(key, DRAWS))
        return total / DRAWS

    key = jax.random.key(0)
    return lambda: np.asarray(run(np.zeros(10), key))


def samplers() -> dict[str, Contestants]:
    """Chains of Hamiltonian Monte Carlo. They draw other numbers, so their means differ a little."""
    both = sg.value_and_grad(lambda q: eight_schools(q, sg), num_threads=1)
    contestants = {BASE: by_python(eight_schools_numpy), "executable": by_python(both), "one program": as_program()}
    jax = by_jax()
    return {"sampler": contestants if jax is None else {**contestants, "JAX": jax}}


def measured(contestants: Contestants, seconds: float, chance: float = 0.0) -> dict[str, float]:
    """The least seconds of a call of each, in turns, after their results were compared; ``chance`` is by how much they
    may differ beside rounding."""
    want = contestants[BASE]()
    for name, call in contestants.items():
        if not np.allclose(call(), want, rtol=1e-5, atol=1e-7 + chance):
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
    for loop, contestants in {**quads(), **minima(), **samplers()}.items():
        found = measured(contestants, given.seconds, 1.5 if loop == "sampler" else 0.0)
        for name, took in found.items():
            rows.append({"loop": loop, "function": name, "seconds": took})
            print(f"| {loop} | {name} | {took * 1e6:.1f} | {took / found[BASE]:.3f} |", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
