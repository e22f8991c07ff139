"""Measure kernels that are no products: rows, reductions, pairs, pooling, gathers, loops, elementary functions.

    python benchmarks/kernels.py [--case NAMES] [--seed N] [--dtype float32|float64] [--gradient] [--threads N]
                                 [--seconds S] [--peer NAMES] [--drawn N] [--below RATIO] [--isa native|avx2]

What one call does is one function of arrays in memory (``kernel_cases``); NumPy arrays go in and come out, except that
PyTorch keeps its own tensors, which share the memory. With ``--gradient`` it is the gradient for every real operand,
weighted by a constant array. Sizes are the named ones of each case, and ``--drawn`` more that ``--seed`` draws within
its bounds. ``NAMES`` are of cases or families, separated by commas; ``sum_*`` is every name that begins so.

An answer must agree with the first peer's before it is timed. The contestants take turns; the least time of each
counts; malloc keeps its memory for all of them. ``--isa`` is as in ``run.py``. Goes out: a table in Markdown of our
microseconds, with fresh results and with ``out=``, and of each peer's time over ours with fresh results (above 1 we are
faster); the geometric means of those; and what is below ``--below``, worst first.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from instruction_sets import environment
from kernel_cases import FAMILIES, Array, Case, Shapes
from optimised import optimised
from systems import System, installed

import staticgrad as sg

Run = Callable[[], Any]
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}  # for results
TOLERANCE = {"float32": 3e-4, "float64": 1e-9}  # of the largest element
OWN, OUT = "staticgrad", "out="


# -- contestants ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """A case at one size. With a ``weight``, the gradients of its result for the real operands are wanted."""

    name: str
    case: Case
    arrays: Sequence[Array]
    threads: int
    weight: Array | None = None

    def is_real(self, operand: int) -> bool:
        return self.case.kind(operand) in "nu"


def own_runs(system: System, task: Task) -> dict[str, Run]:
    """With fresh results, and with results in given memory."""
    graph = sg.Graph()
    with graph:
        inputs = [sg.placeholder(a.shape, getattr(sg, a.dtype.name)) for a in task.arrays]
        result = task.case.function(system, *inputs)
        fetches, feeds, arrays = [result], inputs, tuple(task.arrays)
        if task.weight is not None:
            real = [x for i, x in enumerate(inputs) if task.is_real(i)]
            weight = sg.placeholder(task.weight.shape, getattr(sg, task.weight.dtype.name))
            fetches = sg.gradients(result, real, grad_ys=weight)
            feeds, arrays = [*inputs, weight], (*arrays, task.weight)
    executable = optimised(sg.Session(graph, num_threads=task.threads).compile(fetches, feeds))
    out = [np.array(result) for result in executable(*arrays)]
    return {OWN: lambda: executable(*arrays), OUT: lambda: executable(*arrays, out=out)}


def numpy_run(system: System, task: Task) -> Run | None:
    if task.weight is not None:
        return None
    function, arrays = task.case.function, task.arrays
    return lambda: [np.ascontiguousarray(function(system, *arrays))]


def torch_run(system: System, task: Task) -> Run:
    torch, function = system.library, task.case.function
    torch.set_num_threads(task.threads)
    tensors = [torch.from_numpy(a) for a in task.arrays]
    if task.weight is None:

        def forward() -> Sequence[Any]:
            with torch.inference_mode():
                return [function(system, *tensors).contiguous()]

        return forward
    leaves = [t.clone().requires_grad_() if task.is_real(i) else t for i, t in enumerate(tensors)]
    real = [leaf for i, leaf in enumerate(leaves) if task.is_real(i)]
    seed = torch.from_numpy(task.weight)
    return lambda: [g.contiguous() for g in torch.autograd.grad(function(system, *leaves), real, seed)]


def jax_run(system: System, task: Task) -> Run:
    jax, function, arrays = system.library, task.case.function, task.arrays
    if task.weight is None:
        compiled = jax.jit(lambda *xs: function(system, *xs))
        return lambda: [compiled(*arrays).block_until_ready()]
    real = [i for i in range(len(arrays)) if task.is_real(i)]

    def gradient(weight: Any, given: tuple[Any, ...]) -> Any:
        def value(*chosen: Any) -> Any:
            replaced = dict(zip(real, chosen, strict=True))
            return function(system, *(replaced.get(i, x) for i, x in enumerate(given)))

        return jax.vjp(value, *(given[i] for i in real))[1](weight)

    compiled = jax.jit(gradient)
    return lambda: jax.block_until_ready(compiled(task.weight, tuple(arrays)))


PEERS: dict[str, Callable[[System, Task], Run | None]] = {"numpy": numpy_run, "torch": torch_run, "jax": jax_run}


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of one call, by contestant."""

    name: str
    shapes: Shapes
    seconds: dict[str, float]

    @property
    def size(self) -> str:
        """Of the first operand, then of those that have others."""
        shapes = dict.fromkeys(self.shapes)
        return " ".join("x".join(map(str, shape)) or "1" for shape in shapes)

    def ratio(self, peer: str) -> float | None:
        return self.seconds[peer] / self.seconds[OWN] if peer in self.seconds else None

    def least(self, peers: Sequence[str]) -> float:
        """The best peer's time over ours."""
        return min((ratio for peer in peers if (ratio := self.ratio(peer))), default=math.inf)


def agree(got: Sequence[Any], want: Sequence[Any], dtype: str) -> bool:
    for a, b in zip(got, want, strict=True):
        x, y = (np.asarray(v.detach() if hasattr(v, "detach") else v, np.float64) for v in (a, b))
        if x.size and np.max(np.abs(x - y)) > TOLERANCE[dtype] * max(1.0, float(np.max(np.abs(y)))):
            return False
    return True


def least(runs: dict[str, Run], seconds: float) -> dict[str, float]:
    """The least time of one call of each, in turns."""
    best = dict.fromkeys(runs, math.inf)
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end:
        for name, run in runs.items():
            for _ in range(4):
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def measured(name: str, case: Case, shapes: Shapes, given: argparse.Namespace, systems: dict[str, System]) -> Row:
    rng = np.random.default_rng(given.seed)
    arrays = case.arrays(shapes, np.dtype(given.dtype), rng)
    task = Task(name, case, arrays, given.threads)
    if given.gradient:
        (result,) = own_runs(systems[OWN], task)[OWN]()
        weight = rng.standard_normal(np.shape(result)).astype(given.dtype)
        task = Task(name, case, arrays, given.threads, weight)
    runs = own_runs(systems[OWN], task)
    for peer in given.peer:
        if peer in systems and peer not in case.without and (run := PEERS[peer](systems[peer], task)):
            runs[peer] = run
    answers = {peer: run() for peer, run in runs.items()}
    for peer, answer in answers.items():
        if not agree(answers[OWN], answer, given.dtype):
            raise SystemExit(f"{name} {shapes}: staticgrad and {peer} differ")
    return Row(name, shapes, least(runs, given.seconds))


def all_rows(given: argparse.Namespace) -> Iterator[Row]:
    systems, rng = installed(), np.random.default_rng(given.seed)
    for family, cases in FAMILIES.items():
        for name, case in cases.items():
            wanted = any(fnmatch.fnmatch(name, w) or family == w for w in given.case)
            if not wanted or (given.gradient and not case.gradient):
                continue
            drawn = [case.draw(rng) for _ in range(given.drawn)] if case.draw else []
            for shapes in (*case.sizes, *drawn):
                yield measured(name, case, shapes, given, systems)


# -- reporting ------------------------------------------------------------------------------------------------------


def report(rows: Iterator[Row], peers: Sequence[str], below: float) -> None:
    print("| case | size | µs | µs, out= |" + "".join(f" {peer} |" for peer in peers))
    print("|---|---|---|---|" + "---|" * len(peers))
    found = []
    for row in rows:
        found.append(row)
        cells = "".join(" |" if (ratio := row.ratio(peer)) is None else f" {ratio:.2f} |" for peer in peers)
        print(f"| {row.name} | {row.size} | {_micros(row, OWN)} | {_micros(row, OUT)} |{cells}", flush=True)
    print()
    for peer in peers:
        ratios = [ratio for row in found if (ratio := row.ratio(peer)) is not None]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{peer}: geometric mean {mean:.2f}, least {min(ratios):.2f}")
    for row in sorted(found, key=lambda row: row.least(peers)):
        if row.least(peers) < below:
            print(f"below {below:.2f}: {row.name} {row.size}: {row.least(peers):.2f}")


def _micros(row: Row, contestant: str) -> str:
    return f"{row.seconds[contestant] * 1e6:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=lambda text: text.split(","), default=["*"])
    parser.add_argument("--peer", type=lambda text: [p for p in text.split(",") if p], default=list(PEERS))
    parser.add_argument("--dtype", choices=tuple(TOLERANCE), default="float32")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--below", type=float, default=0.95)
    parser.add_argument("--isa", choices=("native", "avx2"), default="")
    given = parser.parse_args()
    if not KEPT_MEMORY.items() <= os.environ.items():  # malloc reads them when a process starts
        one = "--xla_cpu_multi_thread_eigen=false" if given.threads == 1 else ""
        variables = environment(given.isa, {**os.environ, **KEPT_MEMORY, "XLA_FLAGS": one})
        os.execve(sys.executable, [sys.executable, *sys.argv], variables)
    report(all_rows(given), given.peer, given.below)


if __name__ == "__main__":
    main()
