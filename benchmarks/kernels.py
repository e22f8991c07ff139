"""Measure kernels that are no products: rows, reductions, pairs, pooling, gathers, elementary functions.

    python benchmarks/kernels.py [--case NAMES] [--seed N] [--dtype float32|float64] [--gradient] [--threads N]
                                 [--seconds S] [--peer NAMES] [--drawn N]

What one call does is one function of arrays in memory; NumPy arrays go in and come out, except that PyTorch keeps its
own tensors, which share the memory. With ``--gradient`` it is the gradient for every operand, weighted by a constant
array. Shapes are the named ones of each case, and ``--drawn`` more that ``--seed`` draws within its bounds.

An answer must agree with the first peer's before it is timed. The contestants take turns; the least time of each
counts. Goes out: a table in Markdown of microseconds, nanoseconds for each element of the first operand, and each
peer's time over ours (above 1 we are faster), with the geometric mean of those.
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
from numpy.typing import NDArray

import staticgrad as sg

Array = NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]
Function = Callable[..., Any]
Run = Callable[[], Sequence[Any]]
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}  # for results
TOLERANCE = {"float32": 3e-4, "float64": 1e-9}  # of the largest element
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A function as each system writes it. ``shapes`` are of its operands; ``draw`` makes others."""

    shapes: Sequence[Shapes]
    ours: Function
    torch: Function | None = None
    jax: Function | None = None
    draw: Callable[[np.random.Generator], Shapes] | None = None
    positive: bool = False  # operands are drawn from (0, 1), else from the normal distribution


def rows(rng: np.random.Generator) -> Shapes:
    return ((int(2 ** rng.uniform(3, 12)), int(2 ** rng.uniform(2, 12))),)


def affine(shape: tuple[int, int]) -> Shapes:
    return shape, shape[-1:], shape[-1:]


def pairs(rng: np.random.Generator) -> Shapes:
    n, d = int(2 ** rng.uniform(7, 11.5)), int(rng.integers(1, 17))
    return ((n, d),)


def square_distances(x: Any) -> Any:
    return ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1)


def torch_cases() -> Any:
    """PyTorch's functions; nothing where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def jax_cases() -> Any:
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    return jax


def build_cases() -> dict[str, Case]:
    """All cases by name. Peers' functions are looked up when they are called."""
    torch, jax = torch_cases(), jax_cases()
    F = torch.nn.functional if torch else None
    jnn, jnp = (jax.nn, jax.numpy) if jax else (None, None)
    nn = sg.nn
    matrices: list[Shapes] = [((512, 512),), ((64, 4096),), ((10000, 10),), ((8192, 64),)]
    labels = np.random.default_rng(0).integers(0, CLASSES, 1 << 16)

    def jax_norm(x: Any, w: Any, b: Any) -> Any:
        mean = jnp.mean(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * w + b

    def jax_rms(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * w

    def jax_batch(x: Any, w: Any, b: Any) -> Any:
        mean, variance = jnp.mean(x, 0), jnp.var(x, 0)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w + b

    def our_batch(x: Any, w: Any, b: Any) -> Any:
        mean = sg.mean(x, 0)
        centred = x - mean
        return centred * sg.rsqrt(sg.mean(centred * centred, 0) + 1e-5) * w + b

    cases = {
        "softmax": Case(
            matrices, lambda x: nn.softmax(x, -1), lambda x: F.softmax(x, -1), lambda x: jnn.softmax(x), rows
        ),
        "log_softmax": Case(
            matrices, lambda x: nn.log_softmax(x, -1), lambda x: F.log_softmax(x, -1),
            lambda x: jnn.log_softmax(x), rows,
        ),
        "logsumexp": Case(
            matrices, lambda x: sg.logsumexp(x, -1), lambda x: torch.logsumexp(x, -1),
            lambda x: jnn.logsumexp(x, -1), rows,
        ),
        "cross_entropy": Case(
            [((512, CLASSES),), ((65536, CLASSES),)],
            lambda x: nn.cross_entropy(x, sg.constant(labels[: x.shape[0]])),
            lambda x: F.cross_entropy(x, torch.from_numpy(labels[: x.shape[0]])),
            lambda x: -jnp.mean(jnn.log_softmax(x)[jnp.arange(x.shape[0]), labels[: x.shape[0]]]),
        ),
        "layer_norm": Case(
            [affine((512, 512)), affine((4096, 768)), affine((10000, 32))],
            lambda x, w, b: nn.layer_norm(x, (x.shape[-1],), w, b),
            lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), jax_norm,
            lambda rng: affine(rows(rng)[0]),  # type: ignore[arg-type]
        ),
        "rms_norm": Case(
            [((512, 512), (512,)), ((4096, 768), (768,))],
            lambda x, w: x * sg.rsqrt(sg.mean(x * x, -1, keepdims=True) + 1e-5) * w,
            lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-5), jax_rms,
        ),
        "batch_norm": Case(
            [affine((512, 512)), affine((20000, 64))], our_batch,
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), jax_batch,
        ),
        "gelu": Case([((512, 512),), ((2048, 2048),)], lambda x: nn.gelu(x), lambda x: F.gelu(x),
                     lambda x: jnn.gelu(x, approximate=False), rows),
        "chain": Case(
            [((512, 512),), ((3000, 3000),)], lambda x: sg.exp(-x * x) * x + 2.0 * x - 1.0,
            lambda x: torch.exp(-x * x) * x + 2.0 * x - 1.0, lambda x: jnp.exp(-x * x) * x + 2.0 * x - 1.0, rows,
        ),
        "transpose": Case(
            [((512, 512),), ((2000, 3000),), ((100000, 8),)], lambda x: sg.permute_dims(x, (1, 0)),
            lambda x: x.T.contiguous(), lambda x: x.T + 0, rows,
        ),
        "max_pool": Case(
            [((16, 32, 56, 56),), ((8, 64, 112, 112),)], lambda x: nn.max_pool2d(x, 2),
            lambda x: F.max_pool2d(x, 2),
            lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        ),
        "take_rows": Case(
            [((10000, 64),), ((1000, 512),)],
            lambda x: sg.take(x, sg.constant(labels[:20000] * 7 + 3), 0),
            lambda x: x[torch.from_numpy(labels[:20000] * 7 + 3)],
            lambda x: x[jnp.asarray(labels[:20000] * 7 + 3)],
        ),
        "kernel_sum": Case(
            [((n, d),) for n in (512, 2048) for d in (2, 16)] + [((4096, 3),)],
            lambda x: sg.sum(sg.exp(-square_distances(x)), 1), lambda x: torch.exp(-square_distances(x)).sum(1),
            lambda x: jnp.exp(-square_distances(x)).sum(1), pairs,
        ),
        "pair_logsumexp": Case(
            [((512, 4),), ((2048, 8),)], lambda x: sg.logsumexp(-square_distances(x), 1),
            lambda x: torch.logsumexp(-square_distances(x), 1), lambda x: jnn.logsumexp(-square_distances(x), 1), pairs,
        ),
    }  # fmt: skip
    for axis in (0, 1, None):
        name = f"sum_{'all' if axis is None else axis}"
        shapes: list[Shapes] = [((100000, 8),), ((1000, 1000),), ((64, 4096),)]
        cases[name] = Case(
            shapes, lambda x, axis=axis: sg.sum(x, axis), lambda x, axis=axis: x.sum() if axis is None else x.sum(axis),
            lambda x, axis=axis: x.sum(axis), rows,
        )  # fmt: skip
    for name in ("exp", "log", "tanh", "erf", "erfc", "erfinv", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
                 "cosh", "expm1", "log1p", "sigmoid", "exp2", "log2", "sqrt", "rsqrt"):  # fmt: skip
        cases[name] = Case(
            [((512, 512),)], getattr(nn if name == "sigmoid" else sg, name),
            getattr(torch, name, None) if torch else None, _jax_elementary(jax, name), rows,
            positive=name in ("log", "log2", "sqrt", "rsqrt", "asin", "acos", "erfinv"),
        )  # fmt: skip
    cases["pow"] = Case(
        [((512, 512), (512, 512))], lambda x, y: x**y, lambda x, y: x**y, lambda x, y: x**y, positive=True
    )
    return cases


def _jax_elementary(jax: Any, name: str) -> Function | None:
    if jax is None:
        return None
    for place in (jax.numpy, jax.lax, jax.nn):
        if hasattr(place, name):
            found: Function = getattr(place, name)
            return found
    return None


# -- contestants ----------------------------------------------------------------------------------------------------


def ours(case: Case, arrays: Sequence[Array], weight: Array | None, threads: int) -> Run:
    graph = sg.Graph()
    with graph:
        inputs = [sg.placeholder(a.shape, getattr(sg, a.dtype.name)) for a in arrays]
        out = case.ours(*inputs)
        fetches = [out] if weight is None else sg.gradients(out, inputs, grad_ys=sg.constant(weight))
    executable = sg.Session(graph, num_threads=threads).compile(fetches, inputs)
    return lambda: executable(*arrays)


def torchs(case: Case, arrays: Sequence[Array], weight: Array | None, threads: int) -> Run | None:
    torch = torch_cases()
    if torch is None or case.torch is None:
        return None
    torch.set_num_threads(threads)
    function, tensors = case.torch, [torch.from_numpy(a) for a in arrays]
    if weight is None:

        def forward() -> Sequence[Any]:
            with torch.inference_mode():
                return [function(*tensors)]

        return forward
    leaves = [t.clone().requires_grad_() for t in tensors]
    seed = torch.from_numpy(weight)
    return lambda: torch.autograd.grad(function(*leaves), leaves, seed)


def jaxs(case: Case, arrays: Sequence[Array], weight: Array | None, threads: int) -> Run | None:
    jax = jax_cases()
    if jax is None or case.jax is None:
        return None
    function = case.jax
    if weight is None:
        compiled = jax.jit(function)
        return lambda: [compiled(*arrays).block_until_ready()]
    gradient = jax.jit(lambda *xs: jax.vjp(function, *xs)[1](weight))
    return lambda: jax.block_until_ready(gradient(*arrays))


CONTESTANTS = {"staticgrad": ours, "torch": torchs, "jax": jaxs}


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of one call, by contestant."""

    name: str
    shapes: Shapes
    seconds: dict[str, float]


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


def measured(name: str, case: Case, shapes: Shapes, given: argparse.Namespace) -> Row:
    rng = np.random.default_rng(given.seed)
    dtype = np.dtype(given.dtype)
    arrays = [(rng.random(s) if case.positive else rng.standard_normal(s)).astype(dtype) for s in shapes]
    weight = None
    if given.gradient:
        (result,) = ours(case, arrays, None, given.threads)()
        weight = rng.standard_normal(np.shape(result)).astype(dtype)
    runs: dict[str, Run] = {}
    for peer in ("staticgrad", *given.peer):
        run = CONTESTANTS[peer](case, arrays, weight, given.threads)
        if run is not None:
            runs[peer] = run
    answers = {peer: run() for peer, run in runs.items()}
    for peer, answer in answers.items():
        if not agree(answers["staticgrad"], answer, given.dtype):
            raise SystemExit(f"{name} {shapes}: staticgrad and {peer} differ")
    return Row(name, shapes, least(runs, given.seconds))


def all_rows(given: argparse.Namespace) -> Iterator[Row]:
    rng = np.random.default_rng(given.seed)
    for name, case in build_cases().items():
        if not any(fnmatch.fnmatch(name, wanted) for wanted in given.case):
            continue
        drawn = [case.draw(rng) for _ in range(given.drawn)] if case.draw else []
        for shapes in (*case.shapes, *drawn):
            yield measured(name, case, shapes, given)


def report(rows_: Iterator[Row], peers: Sequence[str]) -> None:
    print("| case | shape | µs | ns an element |" + "".join(f" {peer} |" for peer in peers))
    print("|---|---|---|---|" + "---|" * len(peers))
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    for row in rows_:
        own = row.seconds["staticgrad"]
        cells = []
        for peer in peers:
            if peer in row.seconds:
                ratios[peer].append(row.seconds[peer] / own)
            cells.append(f" {row.seconds[peer] / own:.2f} |" if peer in row.seconds else " |")
        size = max(1, math.prod(row.shapes[0]))
        shape = "x".join(map(str, row.shapes[0]))
        print(f"| {row.name} | {shape} | {own * 1e6:.1f} | {own * 1e9 / size:.3f} |" + "".join(cells), flush=True)
    for peer, found in ratios.items():
        if found:
            mean = math.exp(sum(map(math.log, found)) / len(found))
            print(f"\n{peer}: geometric mean {mean:.2f}, least {min(found):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=lambda text: text.split(","), default=["*"])
    parser.add_argument("--peer", type=lambda text: [p for p in text.split(",") if p], default=["torch", "jax"])
    parser.add_argument("--dtype", choices=tuple(TOLERANCE), default="float32")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.2)
    given = parser.parse_args()
    if not KEPT_MEMORY.items() <= os.environ.items():  # malloc reads them when a process starts
        one = "--xla_cpu_multi_thread_eigen=false" if given.threads == 1 else ""
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT_MEMORY, "XLA_FLAGS": one})
    report(all_rows(given), given.peer)


if __name__ == "__main__":
    main()
