"""Matrix products of drawn shapes: staticgrad beside NumPy (OpenBLAS), PyTorch (MKL) and JAX (XLA), in one process.

    python benchmarks/gemm.py [--shapes N] [--seed N] [--dtype NAMES] [--transposes NAMES] [--threads N] [--max SIZE]
                              [--kind product|matvec|batched] [--shape MxNxK[xBATCH][:nt] ...] [--fresh] [--rounds N]

Sizes are drawn log-uniformly from 8 to ``--max``, half of them as multiples of 16; a quarter of the products are skinny
(one size of 8 to 32). ``tn`` is Aᵀ·B of arrays in row-major order. ``matvec`` has n = 1 or m = 1, ``batched`` 2 to 64
products at once. An answer is compared with rows of the float64 product first; a wrong one is reported, not timed.

Then the peers take turns; of each turn the fastest block of calls counts, and the ratio is the median over the turns of
the best peer's time over staticgrad's: above 1 staticgrad is faster. Results go into kept memory (JAX has no such way);
with ``--fresh`` every call makes a new one. Operands of PyTorch and JAX are tensors of their own, made beforehand. Goes
out: a line for each shape, slowest ratio first, then the geometric mean, the worst and, for each way of transposing,
its mean. On a busy machine repeat what looks slow with ``--shape``. An OpenBLAS that takes the processor for one
without AVX-512 is told better by the environment: ``OPENBLAS_CORETYPE=SkylakeX``.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optimised import optimised

POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
OURS = "staticgrad"
PEERS = {"numpy": "numpy", "torch": "torch", "jax": "jax"}
BLOCK_SECONDS = 200e-6  # fast calls are timed in blocks of at least this long
CHECKED_ROWS = 32
REST_SECONDS = 0.1  # between turns of several threads: those of OpenBLAS go on looking for work that long
clock = time.perf_counter
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """C[batch, m, n] = A·B over k, in a dtype; ``ways`` says for A and B whether they lie transposed in memory."""

    m: int
    n: int
    k: int
    batch: int
    ways: str
    dtype: str

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        batch = f"x{self.batch}" if self.batch > 1 else ""
        return f"{self.m}x{self.n}x{self.k}{batch}:{self.ways} {self.dtype}"


# -- shapes ---------------------------------------------------------------------------------------------------------


def drawn_size(rng: random.Random, least: int, most: int) -> int:
    size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    return max(least, size // 16 * 16) if rng.random() < 0.5 and size >= 16 else size


def drawn_shape(rng: random.Random, given: argparse.Namespace) -> Shape:
    sizes = [drawn_size(rng, 8, given.max) for _ in range(3)]
    batch = 1
    if given.kind == "product" and rng.random() < 0.25:
        sizes[rng.randrange(3)] = drawn_size(rng, 8, 32)
    elif given.kind == "matvec":
        sizes[rng.randrange(2)] = 1
    elif given.kind == "batched":
        batch = drawn_size(rng, 2, 64)
        sizes = [max(8, size // 8) for size in sizes]
    return Shape(*sizes, batch, rng.choice(given.transposes.split(",")), rng.choice(given.dtype.split(",")))


def named_shape(text: str, dtype: str) -> Shape:
    """``MxNxK``, ``MxNxKxBATCH``, with ``:nt`` behind it."""
    sizes, _, ways = text.partition(":")
    m, n, k, *batch = map(int, sizes.split("x"))
    return Shape(m, n, k, batch[0] if batch else 1, ways or "nn", dtype)


# -- peers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """A shape with its operands: arrays as they lie in memory, ``turned`` ones to be read transposed."""

    shape: Shape
    a: Any
    b: Any
    c: Any
    fresh: bool

    @property
    def turned(self) -> tuple[bool, bool]:
        return self.shape.ways[0] == "t", self.shape.ways[1] == "t"


def problem_of(shape: Shape, fresh: bool) -> Problem:
    import numpy as np

    rng = np.random.default_rng(shape.m + shape.n + shape.k)
    lead = (shape.batch,) if shape.batch > 1 else ()

    def operand(rows: int, columns: int, turned: bool) -> Any:
        size = (columns, rows) if turned else (rows, columns)
        return aligned(rng.standard_normal((*lead, *size)).astype(shape.dtype))

    turned = shape.ways[0] == "t", shape.ways[1] == "t"
    c = aligned(np.zeros((*lead, shape.m, shape.n), shape.dtype))
    return Problem(shape, operand(shape.m, shape.k, turned[0]), operand(shape.k, shape.n, turned[1]), c, fresh)


def aligned(array: Any) -> Any:
    """A copy that begins at a cache line, as any peer would like it."""
    import numpy as np

    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    place = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def swap(x: Any, turned: bool) -> Any:
    """The transposed matrix, as a view, where asked for."""
    return x.swapaxes(-1, -2) if turned else x


def by_staticgrad(problem: Problem, threads: int) -> Call:
    import staticgrad as sg

    graph = sg.Graph()
    with graph:
        a, b = (sg.placeholder(x.shape, problem.shape.dtype) for x in (problem.a, problem.b))
        axes = tuple(range(a.ndim - 2))
        last = (*axes, a.ndim - 1, a.ndim - 2)
        left, right = (sg.permute_dims(x, last) if t else x for x, t in zip((a, b), problem.turned))
        product = left @ right
    executable = optimised(sg.Session(graph, num_threads=threads).compile(product, [a, b]))
    one, other, c = problem.a, problem.b, problem.c
    return (lambda: executable(one, other)) if problem.fresh else (lambda: executable(one, other, out=c))


def by_numpy(problem: Problem, threads: int) -> Call:
    import numpy as np

    a, b = (swap(x, t) for x, t in zip((problem.a, problem.b), problem.turned))
    c = problem.c
    return (lambda: np.matmul(a, b)) if problem.fresh else (lambda: np.matmul(a, b, out=c))


def by_torch(problem: Problem, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    a, b = (swap(torch.from_numpy(x), t) for x, t in zip((problem.a, problem.b), problem.turned))
    c = torch.from_numpy(problem.c)
    return (lambda: torch.matmul(a, b)) if problem.fresh else (lambda: torch.matmul(a, b, out=c))


def by_jax(problem: Problem, threads: int) -> Call:
    import jax

    jax.config.update("jax_enable_x64", True)
    left, right = problem.turned
    product = jax.jit(lambda a, b: swap(a, left) @ swap(b, right))
    a, b = jax.device_put(problem.a), jax.device_put(problem.b)
    return lambda: product(a, b).block_until_ready()


CALLS = {OURS: by_staticgrad, "numpy": by_numpy, "torch": by_torch, "jax": by_jax}


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """What was measured of one shape: microseconds of each peer, and the median ratio to the best of them."""

    shape: Shape
    least_us: dict[str, float]
    ratio: float
    wrong: list[str]


def error_of(problem: Problem, result: Any) -> float:
    """The largest error in some rows, in units of what rounding each term once would make of it."""
    import numpy as np

    a, b = (swap(x, t) for x, t in zip((problem.a, problem.b), problem.turned))
    rows = np.random.default_rng(0).permutation(problem.shape.m)[:CHECKED_ROWS]
    some, whole = a[..., rows, :].astype(np.float64), b.astype(np.float64)
    error = np.abs(np.asarray(result)[..., rows, :] - some @ whole)
    scale = np.abs(some) @ np.abs(whole) * float(np.finfo(problem.shape.dtype).eps)
    return float(np.max(error / (scale + 1e-300), initial=0.0))


def block_of(call: Call) -> int:
    """How many calls are timed together."""
    call()
    start = clock()
    call()
    return max(1, round(BLOCK_SECONDS / max(clock() - start, 1e-7)))


def turn(call: Call, block: int, seconds: float) -> float:
    """Seconds of a call in the fastest block of a turn; the first block is not counted."""
    least, end, count = math.inf, clock() + seconds, 0
    while count < 3 or clock() < end:
        start = clock()
        for _ in range(block):
            call()
        if count:
            least = min(least, (clock() - start) / block)
        count += 1
    return least


def measure(shape: Shape, given: argparse.Namespace, peers: Sequence[str]) -> Row:
    problem = problem_of(shape, given.fresh)
    calls = {peer: CALLS[peer](problem, given.threads) for peer in (OURS, *peers)}
    wrong = []
    for peer, call in list(calls.items()):
        problem.c[...] = math.nan
        error = error_of(problem, call())
        if not error <= 4:
            wrong.append(f"{peer} is off by {error:.1f} roundings")
            del calls[peer]
    blocks = {peer: block_of(call) for peer, call in calls.items()}
    turns: dict[str, list[float]] = defaultdict(list)
    for _ in range(given.rounds):
        for peer, call in calls.items():
            time.sleep(REST_SECONDS if given.threads > 1 else 0)
            turns[peer].append(turn(call, blocks[peer], given.seconds))
    ratios = [
        min(turns[peer][i] for peer in calls if peer != OURS) / turns[OURS][i]
        for i in range(given.rounds)
        if OURS in calls and len(calls) > 1
    ]
    least = {peer: min(times) * 1e6 for peer, times in turns.items()}
    return Row(shape, least, statistics.median(ratios) if ratios else math.nan, wrong)


# -- reports --------------------------------------------------------------------------------------------------------


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def line_of(row: Row, peers: Sequence[str]) -> str:
    cells = [f"{row.shape!s:<28}"]
    cells += [f"{row.least_us[p]:>12,.1f}" if p in row.least_us else f"{'wrong':>12}" for p in (OURS, *peers)]
    speed = row.shape.flops / row.least_us[OURS] / 1e3 if OURS in row.least_us else math.nan
    return " ".join([*cells, f"{speed:>10,.1f}", f"{row.ratio:>7.2f}"])


def report(rows: Sequence[Row], peers: Sequence[str], threads: int) -> None:
    heads = " ".join(f"{peer + ', µs':>12}" for peer in (OURS, *peers))
    print(f"\n{'shape':<28} {heads} {'GFLOP/s':>10} {'ratio':>7}")
    measured = sorted((row for row in rows if row.ratio > 0), key=lambda row: row.ratio)
    for row in measured:
        print(line_of(row, peers))
    if measured:
        slow = sum(row.ratio < 0.85 for row in measured)
        print(
            f"\n{len(measured)} shapes, {threads} thread(s): geometric mean "
            f"{geometric_mean([row.ratio for row in measured]):.3f}, worst {measured[0].ratio:.2f}, {slow} below 0.85"
        )
    groups: dict[str, list[float]] = defaultdict(list)
    for row in measured:
        groups[f"{row.shape.dtype} {row.shape.ways}"].append(row.ratio)
    print("  ".join(f"{name} {geometric_mean(found):.2f}" for name, found in sorted(groups.items())))
    for row in rows:
        for text in row.wrong:
            print(f"wrong: {row.shape}: {text}")


# -- the command ----------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="float32,float64", metavar="NAMES")
    parser.add_argument("--transposes", default="nn,nt,tn,tt", metavar="NAMES")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--max", type=int, default=2048, metavar="SIZE")
    parser.add_argument("--kind", choices=("product", "matvec", "batched"), default="product")
    parser.add_argument("--shape", nargs="+", metavar="MxNxK[xBATCH][:nt]", help="these instead of drawn ones")
    parser.add_argument("--fresh", action="store_true", help="each call makes a new result")
    parser.add_argument("--peers", default="numpy,torch,jax", metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each peer's turn")
    return parser.parse_args(arguments)


def settle(threads: int) -> None:
    """Start this process anew with pools of one size, on so many processors: libraries look when they are loaded."""
    pools = dict.fromkeys(POOLS, str(threads)) | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    # Threads that wait for more work would disturb whoever has the next turn.
    pools |= {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "0"}
    if any(os.environ.get(name) != value for name, value in pools.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | pools)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-threads:]))


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    settle(given.threads)
    peers = [peer for peer in given.peers.split(",") if importlib.util.find_spec(PEERS[peer])]
    rng = random.Random(given.seed)
    if given.shape:
        shapes = [named_shape(text, dtype) for text in given.shape for dtype in given.dtype.split(",")]
    else:
        shapes = [drawn_shape(rng, given) for _ in range(given.shapes)]
    rows = []
    for number, shape in enumerate(shapes):
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(shapes)} {shape!s:<40}", end="", file=sys.stderr, flush=True)
        rows.append(measure(shape, given, peers))
    report(rows, peers, given.threads)
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
