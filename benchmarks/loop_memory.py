"""Derivatives of long loops: the memory and the time that they take when few states are kept.

    python benchmarks/loop_memory.py [--size N] [--turns N] [--rounds N] [--only NAMES]

Two fields over time, each on N×N cells in float32: ``growth``, one of diffusion and logistic growth, and ``spots``, the
two of Gray and Scott. The gradient of a sum of squares at the end by the first field and the coefficients is computed
by a program that keeps what it reads of each turn, by programs with ``checkpoint=``, with ``memory_budget=``, by a scan
of checkpointed scans, and, where JAX is installed, by ``jax.grad`` of ``lax.scan``, plain and as a scan of
``jax.checkpoint`` over shorter scans. Memory is counted in fields: of staticgrad the arena, of JAX the temporary memory
that XLA reports. All take turns, on one thread; times are the best of the rounds, ratios are to our plain program.
Gradients are compared first.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import staticgrad as sg
from staticgrad.base.tables import table

Array = np.ndarray[Any, Any]
Fields = tuple[Any, ...]
Step = Callable[[Any, Fields, Fields], Fields]  # a system's functions, fields, coefficients -> fields
Call = Callable[..., Any]
clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Way:
    """A program: its name, the bytes that it takes, a call with the arrays."""

    name: str
    nbytes: int
    call: Call


# -- the fields -----------------------------------------------------------------------------------------------------


def around(o: Any, u: Any) -> Any:
    """The sum over the four neighbours, less four times the cell; the ends meet."""
    return o.roll(u, 1, 0) + o.roll(u, -1, 0) + o.roll(u, 1, 1) + o.roll(u, -1, 1) - 4.0 * u


def growth(o: Any, fields: Fields, coefficients: Fields) -> Fields:
    (u,), (a, b) = fields, coefficients
    return (u + 0.1 * (a * around(o, u) + b * u * (1.0 - u)),)


def spots(o: Any, fields: Fields, coefficients: Fields) -> Fields:
    (u, v), (feed, kill) = fields, coefficients
    reaction = u * v * v
    return (
        u + 0.16 * around(o, u) - reaction + feed * (1.0 - u),
        v + 0.08 * around(o, v) + reaction - (feed + kill) * v,
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """A step, how many fields it has, and coefficients."""

    step: Step
    fields: int
    coefficients: tuple[float, ...]


WORKLOADS = {"growth": Workload(growth, 1, (0.3, 0.9)), "spots": Workload(spots, 2, (0.035, 0.06))}


# -- the programs ---------------------------------------------------------------------------------------------------


def ours(work: Workload, size: int, turns: int, name: str, *, inner: int = 1, budget: float | None = None,
         checkpoint: int | None = None) -> Way:  # fmt: skip
    """A program of staticgrad; ``inner`` turns are one checkpoint."""
    with sg.Graph() as graph:
        first = tuple(sg.placeholder((size, size), requires_grad=True) for _ in range(work.fields))
        coefficients = tuple(sg.placeholder((), requires_grad=True) for _ in work.coefficients)

        def step(fields: Fields, _: None) -> tuple[Fields, tuple[()]]:
            return work.step(sg, fields, coefficients), ()

        def several(fields: Fields, _: None) -> tuple[Fields, tuple[()]]:
            return sg.checkpoint(lambda *fields: sg.scan(step, fields, length=inner)[0], *fields), ()

        turn = step if inner == 1 else several
        last, _ = sg.scan(turn, first, length=turns // inner, checkpoint=checkpoint)
        loss = sum((sg.sum(u * u) for u in last[1:]), sg.sum(last[0] * last[0]))
        feeds = [*first, *coefficients]
        fetches = [loss, *sg.gradients(loss, feeds)]
    exe = sg.Session(graph, num_threads=1).compile(fetches, feeds, memory_budget=budget)
    exe.wait()
    return Way(name, exe.memory.arena_bytes, exe)


def of_jax(work: Workload, size: int, turns: int, name: str, inner: int = 1) -> Way:
    import jax
    import jax.numpy as jnp

    def several(fields: Fields, coefficients: Fields, count: int) -> Fields:
        last: Fields = jax.lax.scan(lambda c, _: (work.step(jnp, c, coefficients), None), fields, length=count)[0]
        return last

    def loss(*arrays: Any) -> Any:
        fields, coefficients = arrays[: work.fields], arrays[work.fields :]
        if inner == 1:
            last = several(fields, coefficients, turns)
        else:
            block = jax.checkpoint(lambda fields, coefficients: several(fields, coefficients, inner))
            last, _ = jax.lax.scan(lambda c, _: (block(c, coefficients), None), fields, length=turns // inner)
        return sum(jnp.sum(u * u) for u in last)

    numbers = tuple(range(work.fields + len(work.coefficients)))
    given = [jax.ShapeDtypeStruct((size, size), np.float32)] * work.fields
    given += [jax.ShapeDtypeStruct((), np.float32)] * len(work.coefficients)
    made = jax.jit(jax.value_and_grad(loss, numbers)).lower(*given).compile()

    def call(*arrays: Array) -> Any:
        value, gradients = made(*arrays)
        return [np.asarray(x) for x in (value, *gradients)]

    return Way(name, made.memory_analysis().temp_size_in_bytes, call)


def ways(work: Workload, size: int, turns: int) -> list[Way]:
    """All programs, the plain one first."""
    few = math.isqrt(2 * turns) - 1  # with which each turn is run again once at most
    short = max(n for n in range(1, math.isqrt(turns) + 1) if turns % n == 0)
    found = [
        ours(work, size, turns, "plain"),
        ours(work, size, turns, f"checkpoint={few}", checkpoint=few),
        ours(work, size, turns, f"checkpoint={few // 2}", checkpoint=few // 2),
        ours(work, size, turns, "memory_budget=0.3", budget=0.3),
        ours(work, size, turns, f"scan of {turns // short} checkpoints", inner=short),
    ]
    if importlib.util.find_spec("jax") is None:
        print("JAX is not installed: left out")
        return found
    found.append(of_jax(work, size, turns, "JAX"))
    found.append(of_jax(work, size, turns, f"JAX, scan of {turns // short} checkpoints", short))
    return found


# -- measuring ------------------------------------------------------------------------------------------------------


def check(made: Sequence[Way], arrays: Sequence[Array]) -> None:
    """Gradients are those of the plain program, the sums over cells and turns to rounding."""
    known = made[0].call(*arrays)
    for way in made[1:]:
        for a, b in zip(way.call(*arrays), known, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * np.abs(b).max(), err_msg=way.name)


def measure(made: Sequence[Way], arrays: Sequence[Array], rounds: int) -> list[float]:
    best = [math.inf] * len(made)
    for _ in range(rounds):
        for number, way in enumerate(made):
            begun = clock()
            way.call(*arrays)
            best[number] = min(best[number], clock() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default=",".join(WORKLOADS))
    asked = parser.parse_args()
    for name in asked.only.split(","):
        work = WORKLOADS[name]
        rng = np.random.default_rng(0)
        arrays: list[Array] = [rng.random((asked.size, asked.size), dtype=np.float32) for _ in range(work.fields)]
        arrays += [np.asarray(x, np.float32) for x in work.coefficients]
        made = ways(work, asked.size, asked.turns)
        check(made, arrays)
        seconds = measure(made, arrays, asked.rounds)
        field = arrays[0].nbytes
        rows = [
            (way.name, f"{way.nbytes / field:.1f}", f"{took * 1e3:.2f}", f"{took / seconds[0]:.2f}")
            for way, took in zip(made, seconds, strict=True)
        ]
        print(f"{name}: {asked.turns} turns of {work.fields} × {asked.size}×{asked.size} cells\n")
        print(table(("program", "fields", "ms", "over plain"), rows, (1, 2, 3)), end="\n\n")


if __name__ == "__main__":
    main()
