"""How long it takes from declarations to a program that can be called, by phase, for graphs of many ops.

    python benchmarks/compile_time.py [--graph NAMES] [--sizes NUMBERS] [--peer jax|off] [--limit SECONDS] [--json FILE]

Three graphs, each of a given number of ops before derivation, each with its gradient:

    chain   elementwise ops, each over the result of the one before
    dag     ops of many kinds over random operands, nearly every result of another shape
    rnn     a recurrent net, written out turn by turn, derived by its weights

Each measurement is a process of its own: it declares, derives, compiles and loads, with nothing kept on disk, and runs
once, so that the answers can be compared. Goes out: tables in Markdown, seconds by phase, and for each graph how the
time for an op grows from the smallest size to the largest. A peer's time is that of tracing and compiling.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

OURS = "staticgrad"
SIZES = (1000, 10000, 50000)
LARGEST = 48  # of an axis in ``dag``
clock = time.perf_counter
Arrays = tuple[np.ndarray[Any, Any], ...]
Function = Callable[..., Any]  # of a namespace and tensors: the loss


# -- the graphs ---------------------------------------------------------------------------------------------------


def chain(ops: int, seed: int) -> tuple[Arrays, Function]:
    """tanh(x), y + x, sin(y), y · c, … over 1,000 elements."""
    x = np.random.default_rng(seed).uniform(-1, 1, 1000).astype(np.float32)

    def loss(o: Any, x: Any) -> Any:
        y = x
        for number in range(ops - 1):
            match number % 4:
                case 0:
                    y = o.tanh(y)
                case 1:
                    y = y + x
                case 2:
                    y = o.sin(y)
                case _:
                    y = y * (1.0 + (number % 97) / 1000)
        return o.sum(y)

    return (x,), loss


def rnn(ops: int, seed: int) -> tuple[Arrays, Function]:
    """h ← tanh(x[t] · W + h · U + b), six ops a turn, batch 8, 16 inputs, 32 units."""
    turns = ops // 6
    rng = np.random.default_rng(seed)
    shapes = ((turns, 8, 16), (16, 32), (32, 32), (32,))
    arrays = tuple((0.1 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes)

    def loss(o: Any, x: Any, w: Any, u: Any, b: Any) -> Any:
        h = o.tanh(x[0] @ w + b)
        for turn in range(1, turns):
            h = o.tanh(x[turn] @ w + h @ u + b)
        return o.sum(h * h)

    return arrays, loss


Shape = tuple[int, int]
Draw = tuple[str, int, int, Shape]  # what, numbers of the operands, a shape or axis


def dag(ops: int, seed: int) -> tuple[Arrays, Function]:
    """A drawn program over matrices; what nobody reads is summed at the end."""
    rng = np.random.default_rng(seed)
    shapes: list[Shape] = [(int(r), int(c)) for r, c in rng.integers(LARGEST // 2, LARGEST, (8, 2))]
    arrays = tuple(rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    program: list[Draw] = []
    left = ops
    while left > 0:
        draw, shape, cost = _draw(rng, shapes)
        program.append(draw)
        shapes.append(shape)
        left -= cost
    read = {x for _, a, b, _ in program for x in (a, b)}
    loose = [number for number in range(len(arrays), len(shapes)) if number not in read]

    def loss(o: Any, *inputs: Any) -> Any:
        values = list(inputs)
        for what, a, b, shape in program:
            values.append(_apply(o, what, values[a], values[b], shape))
        total = o.sum(values[loose[0]])
        for number in loose[1:]:
            total = total + o.sum(values[number])
        return total

    return arrays, loss


def _draw(rng: np.random.Generator, shapes: Sequence[Shape]) -> tuple[Draw, Shape, int]:
    """One instruction, the shape of its result, and how many ops it is."""
    a, b = (int(rng.integers(max(0, len(shapes) - 40), len(shapes))) for _ in range(2))
    (r, c), (s, d) = shapes[a], shapes[b]
    low: Shape = (min(r, s), min(c, d))
    match what := str(rng.choice(["tanh", "sin", "product", "sum", "matmul", "rows", "transpose", "outer", "crop"])):
        case "tanh" | "sin":
            return (what, a, a, (r, c)), (r, c), 1
        case "product":  # of what they have in common
            return (what, a, b, low), low, 3
        case "sum":
            return (what, a, a, (r, 1)), (r, 1), 2
        case "matmul":
            inner = min(c, s)
            return (what, a, b, (inner, inner)), (r, d), 4
        case "rows" if r + s <= LARGEST:
            return (what, a, b, (0, low[1])), (r + s, low[1]), 3
        case "outer":  # a column plus a row
            return (what, a, b, (r, d)), (r, d), 3
        case "crop" if r > 4 and c > 4:
            shape = (int(rng.integers(2, r)), int(rng.integers(2, c)))
            return (what, a, a, shape), shape, 1
    return ("transpose", a, a, (c, r)), (c, r), 1


def _apply(o: Any, what: str, x: Any, y: Any, shape: Shape) -> Any:
    rows, columns = shape
    match what:
        case "tanh":
            return o.tanh(x)
        case "sin":
            return o.sin(x)
        case "product":
            return x[:rows, :columns] * y[:rows, :columns]
        case "sum":
            return o.tanh(o.sum(x, axis=1, keepdims=True))
        case "matmul":
            return o.tanh(x[:, :rows] @ y[:rows])
        case "rows":
            return o.concat([x[:, :columns], y[:, :columns]], axis=0)
        case "outer":
            return x[:, :1] + y[:1]
        case "crop":
            return x[:rows, :columns]
    return o.permute_dims(x, (1, 0))


DATA = {"rnn": 1}  # operands at the beginning that no gradient is asked for
GRAPHS: dict[str, Callable[[int, int], tuple[Arrays, Function]]] = {"chain": chain, "dag": dag, "rnn": rnn}


# -- one measurement ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds by phase, in order, and a number that depends on every gradient."""

    phases: dict[str, float]
    answer: list[float]

    @property
    def total(self) -> float:
        return sum(self.phases.values())


def ours(graph: str, ops: int, seed: int) -> Measured:
    import staticgrad as sg
    from staticgrad.base.phases import watched

    arrays, loss = GRAPHS[graph](ops, seed)
    with sg.Graph():
        sg.Session(num_threads=1).run(sg.ones(3) + 1)  # what is set up once
    with watched() as inner, sg.Graph() as declared:
        begun = clock()
        inputs = [sg.placeholder(array.shape, "float32") for array in arrays]
        y = loss(sg, *inputs)
        made = clock()
        fetches = [y, *sg.gradients(y, inputs[DATA.get(graph, 0) :])]
        derived = clock()
        executable = sg.Session(declared, num_threads=1).compile(fetches, inputs)
        ended = clock()
    known = dict(inner)
    phases = {"declare": made - begun, "derive": derived - made, **known}
    phases["other"] = ended - derived - sum(known.values())
    return Measured(phases, _digest(executable(*arrays)))


def jax(graph: str, ops: int, seed: int) -> Measured:
    import jax as peer
    import jax.numpy as jnp

    arrays, loss = GRAPHS[graph](ops, seed)
    peer.jit(lambda x: x + 1)(jnp.zeros(3))  # what is set up once
    begun = clock()
    function = peer.jit(
        peer.value_and_grad(lambda *x: loss(jnp, *x), argnums=tuple(range(DATA.get(graph, 0), len(arrays))))
    )
    traced = function.lower(*arrays)
    made = clock()
    program = traced.compile()
    ended = clock()
    y, grads = program(*arrays)
    return Measured({"trace": made - begun, "compile": ended - made}, _digest([y, *grads]))


def _digest(results: Sequence[Any]) -> list[float]:
    return [float(np.abs(np.asarray(result, np.float64)).sum()) for result in results]


SYSTEMS: dict[str, Callable[[str, int, int], Measured]] = {OURS: ours, "jax": jax}


def measure(system: str, graph: str, ops: int, seed: int, limit: float) -> Measured | str:
    """One measurement in a process of its own, or why there is none."""
    command = [sys.executable, __file__, "--one", system, "--graph", graph, "--sizes", str(ops), "--seed", str(seed)]
    environment = {**os.environ, "STATICGRAD_CACHE": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"more than {limit:.0f} s"
    if done.returncode:
        return "failed: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
    found = json.loads(done.stdout.splitlines()[-1])
    return Measured(found["phases"], found["answer"])


# -- the tables ---------------------------------------------------------------------------------------------------


def table(graph: str, sizes: Sequence[int], found: dict[tuple[str, int], Measured | str]) -> str:
    """Seconds by phase for each size, then the time for an op against that at the smallest size."""
    mine = {size: m for size in sizes if isinstance(m := found[OURS, size], Measured)}
    names = dict.fromkeys(name for m in mine.values() for name in m.phases)
    lines = [f"### {graph}", "", "| phase | " + " | ".join(f"{size:,} ops" for size in sizes) + " |"]
    lines.append("|---" * (1 + len(sizes)) + "|")

    def row(name: str, cells: Sequence[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    for name in names:
        row(name, [f"{mine[size].phases.get(name, 0.0):.3f}" if size in mine else "" for size in sizes])
    for system in dict.fromkeys(system for system, _ in found):
        cells = [found.get((system, size), "") for size in sizes]
        row(f"**{system}**, s", [f"{c.total:.3f}" if isinstance(c, Measured) else c for c in cells])
    first = sizes[0]
    if first in mine:
        each = {size: m.total / size for size, m in mine.items()}
        row("µs an op", [f"{1e6 * each[size]:.0f}" if size in each else "" for size in sizes])
        row("growth", [f"{each[size] / each[first]:.2f}" if size in each else "" for size in sizes])
    return "\n".join(lines)


def disagreement(a: Measured, b: Measured) -> float:
    """The largest relative difference of two systems' answers."""
    return max(abs(x - y) / (1e-3 + max(abs(x), abs(y))) for x, y in zip(a.answer, b.answer, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graph", default=",".join(GRAPHS), help="names, separated by commas")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of ops")
    parser.add_argument("--peer", default="jax", choices=["jax", "off"])
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one measurement may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="a file for everything that was measured")
    parser.add_argument("--one", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    graphs, sizes = options.graph.split(","), [int(size) for size in options.sizes.split(",")]
    if options.one:
        m = SYSTEMS[options.one](graphs[0], sizes[0], options.seed)
        print(json.dumps({"phases": m.phases, "answer": m.answer}))
        return
    with_peer = options.peer != "off" and importlib.util.find_spec(options.peer) is not None
    everything: dict[str, Any] = {}
    for graph in graphs:
        found: dict[tuple[str, int], Measured | str] = {}
        for size in sizes:
            for system in [OURS, options.peer] if with_peer else [OURS]:
                found[system, size] = measure(system, graph, size, options.seed, options.limit)
        print(table(graph, sizes, found), end="\n\n", flush=True)
        for size in sizes:
            a, b = found[OURS, size], found.get((options.peer, size))
            if isinstance(a, Measured) and isinstance(b, Measured) and (difference := disagreement(a, b)) > 0.02:
                print(f"{graph}, {size} ops: the answers differ by {difference:.1%}\n")
        everything[graph] = {
            f"{system} {size}": m if isinstance(m, str) else {"phases": m.phases, "answer": m.answer}
            for (system, size), m in found.items()
        }
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
