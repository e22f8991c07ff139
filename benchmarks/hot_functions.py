"""Measure JAX programs whose hot function is ours, beside the same programs in JAX alone, on the CPU.

    python benchmarks/hot_functions.py [--program NAMES] [--seconds S] [--json FILE]

Four programs of kinds whose loops have many small operations, all in float64:

    cable        a cable of compartments with ion channels: exponentials and a tridiagonal system each step
    barrier      a controller that solves a small quadratic program each step, by an interior point method
    oscillators  a carry of 24 numbers, each a leaf of its own
    kernel       the Cholesky factor of a quasi-separable matrix, a Gaussian process's likelihood: a carry of 3 by 3

Each is written once, over names that both systems have. "step" is JAX's ``lax.scan`` over a step of ours, "whole" a
call of a program that holds the whole loop; both are called from ``jax.jit`` by ``staticgrad.jax.wrap``, and gradients
are JAX's ``value_and_grad`` of that. JAX's own program is measured with the loop as written and unrolled four times,
the cable also with XLA's tridiagonal solver, and the fastest of these counts. All take turns; values must agree to
1e-10 before times are told. Goes out: milliseconds of a call, the median of a run, and how many times as long JAX
takes: the median over the turns.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp

import staticgrad as sg
import staticgrad.jax

clock = time.perf_counter
Call = Callable[[], Any]
TOLERANCE = 1e-10


class Jax:
    """The names of JAX. ``unroll``: turns of a loop written out; ``solver``: whether XLA solves tridiagonal systems."""

    def __init__(self, unroll: int = 1, solver: bool = False) -> None:
        self.unroll = unroll
        self.solver = solver

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    def scan(self, body: Any, init: Any, xs: Any, reverse: bool = False) -> Any:
        return jax.lax.scan(body, init, xs, reverse=reverse, unroll=self.unroll)

    def solve(self, a: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b)


class Own:
    """The names of staticgrad."""

    solver = False

    def __getattr__(self, name: str) -> Any:
        return getattr(sg, name)

    def scan(self, body: Any, init: Any, xs: Any, reverse: bool = False) -> Any:
        return sg.scan(body, init, xs, reverse=reverse)

    def solve(self, a: Any, b: Any) -> Any:
        return sg.linalg.solve(a, b)


@dataclass(frozen=True)
class Program:
    """A loop: ``step(o, theta, carry, x) -> (carry, y)`` over the names ``o``; ``start(o, theta)`` is the first carry,
    a list; ``end(o, carry, ys)`` gives the number that is derived by ``theta``, if it is ``derived``. ``variants`` are
    JAX's own: turns written out, and whether XLA solves tridiagonal systems."""

    theta: np.ndarray[Any, Any]
    xs: np.ndarray[Any, Any]
    start: Callable[[Any, Any], list[Any]]
    step: Callable[[Any, Any, list[Any], Any], tuple[list[Any], Any]]
    end: Callable[[Any, list[Any], Any], Any]
    derived: bool = True
    variants: tuple[tuple[int, bool], ...] = ((1, False), (4, False))

    def loop(self, o: Any, theta: Any, xs: Any, step: Any = None) -> Any:
        turn = functools.partial(self.step, o, theta) if step is None else lambda c, x: step(theta, c, x)
        carry, ys = o.scan(turn, self.start(o, theta), xs)
        return self.end(o, carry, ys)


# -- programs ---------------------------------------------------------------------------------------------------------


def cable(steps: int = 400, compartments: int = 32) -> Program:
    """Hodgkin and Huxley's membrane (A quantitative description of membrane current, 1952) along a cable: gates by
    exponential Euler, the potential by an implicit step."""
    dt, coupling = 0.025, 2.0
    zeros = np.zeros(compartments)
    inner = np.full(compartments, 2.0)
    inner[[0, -1]] = 1.0
    upper, lower = np.full(compartments, -dt * coupling), np.full(compartments, -dt * coupling)
    upper[-1], lower[0] = 0.0, 0.0
    first = np.zeros(compartments)
    first[0] = 1.0

    def thomas(o: Any, diagonal: Any, right: Any) -> Any:
        """The tridiagonal system by elimination (Thomas)."""
        if o.solver:
            return jax.lax.linalg.tridiagonal_solve(jnp.asarray(lower), diagonal, jnp.asarray(upper), right[:, None])[
                :, 0
            ]

        def down(carry: Any, row: Any) -> Any:
            c, d = carry
            low, mid, up, b = row
            pivot = 1.0 / (mid - low * c)
            c, d = up * pivot, (b - low * d) * pivot
            return (c, d), (c, d)

        zero = 0.0 * right[0]
        _, (cs, ds) = o.scan(down, (zero, zero), (lower, diagonal, upper, right))

        def up_again(x: Any, row: Any) -> Any:
            c, d = row
            x = d - c * x
            return x, x

        return o.scan(up_again, zero, (cs, ds), reverse=True)[1]

    def relax(o: Any, gate: Any, opening: Any, closing: Any) -> Any:
        rate = opening + closing
        limit = opening / rate
        return limit + (gate - limit) * o.exp(-dt * rate)

    def step(o: Any, theta: Any, carry: list[Any], current: Any) -> Any:
        v, m, h, n = carry
        u = v + 65.0
        m = relax(o, m, 0.1 * (u - 25.01) / (1.0 - o.exp((25.01 - u) / 10.0)), 4.0 * o.exp(-u / 18.0))
        h = relax(o, h, 0.07 * o.exp(-u / 20.0), 1.0 / (1.0 + o.exp((30.0 - u) / 10.0)))
        n = relax(o, n, 0.01 * (u - 10.01) / (1.0 - o.exp((10.01 - u) / 10.0)), 0.125 * o.exp(-u / 80.0))
        sodium, potassium, leak = theta[0] * m * m * m * h, theta[1] * n * n * n * n, theta[2]
        diagonal = 1.0 + dt * (coupling * inner + sodium + potassium + leak)
        right = v + dt * (sodium * 50.0 - potassium * 77.0 - leak * 54.4 + current * first)
        v = thomas(o, diagonal, right)
        return [v, m, h, n], v[-1]

    return Program(
        np.array([120.0, 36.0, 0.3]), 40.0 * (np.arange(steps) < steps // 4),
        lambda o, theta: [level + zeros + 0.0 * theta[0] for level in (-65.0, 0.05, 0.6, 0.32)], step,
        lambda o, carry, ys: o.mean((ys + 60.0) ** 2), variants=((1, False), (4, False), (1, True), (4, True)),
    )  # fmt: skip


def barrier(steps: int = 200, iterations: int = 12) -> Program:
    """A point mass that is driven to the origin around two discs. The thrust nearest to the wanted one that keeps both
    barriers is found by a primal-dual interior point method (Nocedal and Wright, Numerical Optimization, 2nd ed.,
    section 16.6), a fixed number of iterations."""
    centers, radii, most = np.array([[1.5, 1.4], [0.7, 0.2]]), np.array([0.5, 0.3]), 3.0
    box = np.concatenate([np.eye(2), -np.eye(2)])
    unit = np.eye(2)

    def program(o: Any, wanted: Any, rows: Any, limits: Any) -> Any:
        """The u nearest to ``wanted`` with rows @ u <= limits."""
        count = len(box) + len(centers)
        u, slack, price = 0.0 * wanted, 0.0 * limits + 1.0, 0.0 * limits + 1.0
        for _ in range(iterations):
            gap = o.sum(slack * price) / count * 0.1
            dual = u - wanted + rows.T @ price
            primal = rows @ u + slack - limits
            weight = price / slack
            right = -dual - rows.T @ ((gap - price * slack + price * primal) / slack)
            du = o.solve(unit + rows.T @ (weight[:, None] * rows), right)
            dslack = -primal - rows @ du
            dprice = (gap - price * slack - price * dslack) / slack
            ratio = o.max(o.maximum(-dslack / slack, -dprice / price))
            length = 1.0 / o.maximum(1.0, ratio / 0.95)
            u, slack, price = u + length * du, slack + length * dslack, price + length * dprice
        return u

    def step(o: Any, theta: Any, carry: list[Any], push: Any) -> Any:
        (state,) = carry
        position, speed = state[:2], state[2:]
        wanted = -theta[0] * position - theta[1] * speed + push
        away = position - centers
        distance = o.sum(away * away, axis=1) - radii * radii
        rate = 2.0 * (away @ speed)
        rows = o.concat([box, -2.0 * away])
        free = 2.0 * o.sum(speed * speed) + 4.0 * rate + 4.0 * distance
        bounds = o.ones(4, dtype="float64") * most
        limits = o.concat([bounds, free])
        u = program(o, wanted, rows, limits)
        moved = [position + 0.05 * speed, speed + 0.05 * u]
        return [o.concat(moved)], o.sum(u * u)

    pushes = 0.1 * np.random.default_rng(0).normal(size=(steps, 2))
    begun = np.array([2.5, 2.0, 0.0, 0.0])
    return Program(
        np.array([1.0, 1.8]), pushes, lambda o, theta: [begun + 0.0 * theta[0]], step,
        lambda o, carry, ys: o.mean(ys) + o.sum(carry[0] ** 2), derived=False,
    )  # fmt: skip


def oscillators(steps: int = 1000, count: int = 12) -> Program:
    """A ring of pendulums, a position and a speed each, by symplectic Euler."""

    def step(o: Any, theta: Any, carry: list[Any], drive: Any) -> Any:
        at, speed = carry[:count], carry[count:]
        pulls = [
            theta[0] * (at[i - 1] + at[(i + 1) % count] - 2.0 * at[i]) - theta[1] * o.sin(at[i]) for i in range(count)
        ]
        speed = [0.999 * v + 0.01 * p for v, p in zip(speed, pulls, strict=True)]
        speed[0] = speed[0] + 0.01 * drive
        at = [x + 0.01 * v for x, v in zip(at, speed, strict=True)]
        return [*at, *speed], at[count // 2]

    return Program(
        np.array([4.0, 1.5]), np.sin(0.03 * np.arange(steps)),
        lambda o, theta: [0.1 * i + 0.0 * theta[0] for i in range(2 * count)], step,
        lambda o, carry, ys: o.mean(ys**2),
    )  # fmt: skip


def kernel(points: int = 2000) -> Program:
    """The likelihood of a Gaussian process whose kernel is Matérn's of order 5/2, a quasi-separable matrix of rank 3:
    its Cholesky factor and the solution with it, in one pass (Foreman-Mackey et al., Fast and scalable Gaussian process
    modeling, 2017)."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.05, 0.15, points))
    data = np.stack([np.diff(times, prepend=times[0]), np.sin(times) + 0.1 * rng.normal(size=points)], 1)
    unit = np.eye(3)

    def step(o: Any, theta: Any, carry: list[Any], x: Any) -> Any:
        f, g = carry  # of the factor, and of the solution
        gap, y = x[0], x[1]
        rate = o.exp(theta[0])
        variance, noise = o.exp(theta[1]), o.exp(theta[2])
        d = rate * gap
        # exp(F gap) of x''' = -rate³ x - 3 rate² x' - 3 rate x'', in units of the rate
        generator = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -3.0, -3.0]]) + unit
        squared = generator @ generator
        move = o.exp(-d) * (unit + d * generator + 0.5 * d * d * squared)
        still = variance * np.array([[1.0, 0.0, -1.0 / 3.0], [0.0, 1.0 / 3.0, 0.0], [-1.0 / 3.0, 0.0, 1.0]])
        f = move @ f @ move.T
        g = move @ g
        pivot = still[0, 0] + noise - f[0, 0]
        column = (still[:, 0] - f[:, 0]) / pivot
        rest = y - g[0]
        f = f + pivot * column[:, None] * column[None, :]
        g = g + column * rest
        return [f, g], o.log(pivot) + rest * rest / pivot

    return Program(
        np.array([0.0, 0.0, -4.0]), data,
        lambda o, theta: [np.zeros((3, 3)) + 0.0 * theta[0], np.zeros(3) + 0.0 * theta[0]], step,
        lambda o, carry, ys: 0.5 * o.mean(ys),
    )  # fmt: skip


PROGRAMS: dict[str, Callable[[], Program]] = {
    "cable": cable, "barrier": barrier, "oscillators": oscillators, "kernel": kernel,
}  # fmt: skip


# -- contestants ------------------------------------------------------------------------------------------------------


def by_jax(program: Program, unroll: int, solver: bool) -> Callable[..., Any]:
    return functools.partial(program.loop, Jax(unroll, solver))


def our_step(program: Program) -> Callable[..., Any]:
    """JAX's loop over a step of ours."""
    with sg.Graph() as graph:
        theta = sg.placeholder(program.theta.shape, sg.float64, name="theta")
        types = [sg.placeholder(x.shape, sg.float64) for x in program.start(Jax(), program.theta)]
        x = sg.placeholder(program.xs.shape[1:], sg.float64, name="x")
        carry, y = program.step(Own(), theta, types, x)
        step = staticgrad.jax.wrap(sg.Session(graph, num_threads=1).compile((carry, y), [theta, *types, x]))
    return lambda theta, xs: program.loop(Jax(), theta, xs, lambda theta, c, x: step(theta, *c, x))


def our_whole(program: Program) -> Callable[..., Any]:
    with sg.Graph() as graph:
        theta = sg.placeholder(program.theta.shape, sg.float64, name="theta")
        xs = sg.placeholder(program.xs.shape, sg.float64, name="xs")
        value = program.loop(Own(), theta, xs)
    wrapped: Callable[..., Any] = staticgrad.jax.wrap(sg.Session(graph, num_threads=1).compile(value, [theta, xs]))
    return wrapped


def calls(program: Program, gradient: bool) -> tuple[list[str], dict[str, Call]]:
    """The names of JAX's own among the contestants, and all of them, compiled."""
    functions = {f"JAX, unroll {u}{', XLA solver' * s}": by_jax(program, u, s) for u, s in program.variants}
    own = list(functions)
    functions |= {"step": our_step(program), "whole": our_whole(program)}
    theta, xs = jnp.asarray(program.theta), jnp.asarray(program.xs)

    def call(function: Callable[..., Any]) -> Call:
        compiled = jax.jit(jax.value_and_grad(function) if gradient else function)
        return lambda: jax.block_until_ready(compiled(theta, xs))

    return own, {name: call(function) for name, function in functions.items()}


def measured(contestants: dict[str, Call], base: str, seconds: float) -> dict[str, list[float]]:
    """The seconds of the calls of each, in turns, after their results were compared."""
    want = [np.asarray(x) for x in jax.tree.leaves(contestants[base]())]
    for name, call in contestants.items():
        for got, wanted in zip(jax.tree.leaves(call()), want, strict=True):
            error = np.max(np.abs(got - wanted)) / np.max(np.abs(wanted))
            if not error < TOLERANCE:
                raise SystemExit(f"{name} gives another result: relative error {error:.1e}")
    took: dict[str, list[float]] = {name: [] for name in contestants}
    end = clock() + seconds
    while clock() < end or len(took[base]) < 3:
        for name, call in contestants.items():
            start = clock()
            call()
            took[name].append(clock() - start)
    return took


def rows_of(name: str, program: Program, seconds: float) -> list[dict[str, Any]]:
    """What was measured of a program: a row for JAX and for each way in which ours takes part."""
    rows: list[dict[str, Any]] = []
    for gradient in (False, True) if program.derived else (False,):
        own, contestants = calls(program, gradient)
        took = measured(contestants, own[0], seconds)
        best = min(own, key=lambda each: statistics.median(took[each]))
        for each in (best, "step", "whole"):
            ratios = [theirs / ours for theirs, ours in zip(took[best], took[each], strict=True)]
            rows.append({
                "program": name, "what": "value and gradient" if gradient else "value", "by": each,
                "seconds": statistics.median(took[each]), "ratio": statistics.median(ratios),
            })  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=",".join(PROGRAMS), metavar="NAMES", help="some of the four, by commas")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="of each comparison")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    print("| program | what | by | ms | JAX's time over it |")
    print("|---|---|---|---:|---:|")
    rows = []
    for name in given.program.split(","):
        for row in rows_of(name, PROGRAMS[name](), given.seconds):
            rows.append(row)
            shown = f"{row['seconds'] * 1e3:.3f} | {row['ratio']:.2f}"
            print(f"| {name} | {row['what']} | {row['by']} | {shown} |", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
