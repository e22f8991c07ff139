"""Matrix products: staticgrad beside NumPy (OpenBLAS), PyTorch (MKL), JAX (XLA), oneDNN and ONNX Runtime (MLAS), in
one process.

    python benchmarks/gemm.py [drawn|grid] [--shapes N] [--seed N] [--dtype NAMES] [--transposes NAMES] [--threads N]
                              [--max SIZE] [--kind NAMES] [--shape MxNxK[xBATCH][:nt][+relu] ...] [--isa native|avx2]
                              [--peers NAMES] [--fresh] [--rounds N]

``drawn`` sizes are log-uniform from 8 to ``--max``, half of them multiples of 16; a quarter of the products are skinny
(one size of 8 to 32). ``--kind matvec`` has n = 1 or m = 1, ``batched`` 2 to 64 products at once. ``grid`` is sixty
shapes by kind: square, tall, wide, few or many terms, small ones in batches, a matrix by a vector, and those of a dense
layer with its backward. ``tn`` is Aᵀ·B of arrays in row-major order; ``+relu`` has a bias and a ReLU behind it. An
answer is compared with rows of the float64 product first; a wrong one is reported, not timed.

Then the peers take turns; of each turn the fastest block of calls counts, and the ratio is the median over the turns of
the best peer's time over staticgrad's: above 1 staticgrad is faster. Results go into kept memory (only NumPy, PyTorch
and staticgrad have such a way); with ``--fresh`` every call makes a new one. Operands of peers are tensors of their
own, made beforehand. Goes out: a line for each shape, slowest ratio first, with the part of the machine's floor that is
reached (``staticgrad.runtime.measured.machine``: multiply-adds over their peak, or bytes over the bandwidth of a copy),
then the geometric mean, the worst and, for each way of transposing, its mean. On a busy machine repeat what looks slow
with ``--shape``. ``--isa avx2`` holds every system to AVX2 (``instruction_sets.py``); ONNX Runtime, which takes no
notice, is left out. An OpenBLAS that takes the processor for one without AVX-512 is told better by the environment:
``OPENBLAS_CORETYPE=SkylakeX``.
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

from instruction_sets import environment
from optimised import optimised

from staticgrad.runtime.measured.machine import MeasuredMachine, sketch

POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SETTLED = "GEMM_SETTLED"  # in the environment: the process has been started anew
OURS = "staticgrad"
PEERS = {"numpy": "numpy", "torch": "torch", "jax": "jax", "onednn": "torch", "onnxruntime": "onnxruntime"}
# The shapes of the grid by kind; those of ``dense`` are a layer's forward, with its epilogue, and its backward.
GRID = {
    "square": "64 96 128 192 256 384 512 768 1024 1536 2048",
    "turned": "256x256x256:nt 256x256x256:tn 512x512x512:nt 512x512x512:tn 512x512x512:tt 1000x1000x1000:nt "
    "1000x1000x1000:tn 1024x1024x1024:nt 1024x1024x1024:tn 2048x2048x2048:nt 2048x2048x2048:tn",
    "tall": "4096x16x256 4096x32x512 4096x64x64 4096x128x512 10000x100x100",
    "wide": "16x4096x256 32x4096x512 64x4096x64 128x4096x512 100x10000x100",
    "few_terms": "512x512x8 1024x1024x16 1000x1000x32 2048x2048x64",
    "many_terms": "16x16x8192 32x32x4096 64x64x8192 128x128x4096 100x100x10000",
    "batched": "16x16x16x256 32x32x32x64 64x64x64x64 128x64x64x96 128x128x64x96:nt 100x100x100x16",
    "vector": "1024x1x1024 4096x1x512 1x1024x1024 1x4096x512:nt 512x1x4096:tn",
    "dense": "32x512x512+relu 128x1024x784+relu 256x3072x768+relu 512x512x2048+relu 768x3072x256:tn 256x768x3072:nt "
    "784x1024x128:tn 128x784x1024:nt",
}  # fmt: skip
BLOCK_SECONDS = 200e-6  # fast calls are timed in blocks of at least this long
CHECKED_ROWS = 32
REST_SECONDS = 0.1  # between turns of several threads: those of OpenBLAS go on looking for work that long
clock = time.perf_counter
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """C[batch, m, n] = A·B over k, in a dtype; ``ways`` says for A and B whether they lie transposed in memory. With
    ``relu`` a bias of n elements is added and what is negative becomes 0."""

    m: int
    n: int
    k: int
    batch: int
    ways: str
    dtype: str
    relu: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def traffic(self) -> int:
        """The bytes of both operands and of the result."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return self.batch * elements * (4 if self.dtype == "float32" else 8)

    def __str__(self) -> str:
        batch = f"x{self.batch}" if self.batch > 1 else ""
        return f"{self.m}x{self.n}x{self.k}{batch}:{self.ways}{'+relu' * self.relu} {self.dtype}"


# -- shapes ---------------------------------------------------------------------------------------------------------


def drawn_size(rng: random.Random, least: int, most: int) -> int:
    size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    return max(least, size // 16 * 16) if rng.random() < 0.5 and size >= 16 else size


def drawn_shape(rng: random.Random, given: argparse.Namespace) -> Shape:
    sizes = [drawn_size(rng, 8, given.max) for _ in range(3)]
    batch = 1
    if given.kind in (None, "product") and rng.random() < 0.25:
        sizes[rng.randrange(3)] = drawn_size(rng, 8, 32)
    elif given.kind == "matvec":
        sizes[rng.randrange(2)] = 1
    elif given.kind == "batched":
        batch = drawn_size(rng, 2, 64)
        sizes = [max(8, size // 8) for size in sizes]
    return Shape(*sizes, batch, rng.choice(given.transposes.split(",")), rng.choice(given.dtype.split(",")))


def named_shape(text: str, dtype: str) -> Shape:
    """``N`` for a square, ``MxNxK``, ``MxNxKxBATCH``, with ``:nt`` and ``+relu`` behind it."""
    product, _, epilogue = text.partition("+")
    sizes, _, ways = product.partition(":")
    numbers = [int(size) for size in sizes.split("x")]
    m, n, k, *batch = numbers * 3 if len(numbers) == 1 else numbers
    return Shape(m, n, k, batch[0] if batch else 1, ways or "nn", dtype, epilogue == "relu")


def grid_texts(kinds: Sequence[str]) -> list[str]:
    """The shapes of some kinds of the grid, or of all."""
    return [text for kind, texts in GRID.items() if not kinds or kind in kinds for text in texts.split()]


# -- peers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """A shape with its operands: arrays as they lie in memory, ``turned`` ones to be read transposed."""

    shape: Shape
    a: Any
    b: Any
    bias: Any
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
    a, b = operand(shape.m, shape.k, turned[0]), operand(shape.k, shape.n, turned[1])
    return Problem(shape, a, b, rng.standard_normal(shape.n).astype(shape.dtype), c, fresh)


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
        feeds, given = [a, b], [problem.a, problem.b]
        if problem.shape.relu:
            feeds.append(sg.placeholder(problem.bias.shape, problem.shape.dtype))
            given.append(problem.bias)
            product = sg.nn.relu(product + feeds[2])
    executable = optimised(sg.Session(graph, num_threads=threads).compile(product, feeds))
    c = problem.c
    return (lambda: executable(*given)) if problem.fresh else (lambda: executable(*given, out=c))


def by_numpy(problem: Problem, threads: int) -> Call:
    import numpy as np

    a, b = (swap(x, t) for x, t in zip((problem.a, problem.b), problem.turned))
    c, bias = problem.c, problem.bias

    def dense(out: Any = c) -> Any:
        z = np.matmul(a, b, out=out)
        return np.maximum(np.add(z, bias, out=z), 0, out=z)

    if problem.shape.relu:
        return (lambda: dense(None)) if problem.fresh else dense
    return (lambda: np.matmul(a, b)) if problem.fresh else (lambda: np.matmul(a, b, out=c))


def by_torch(problem: Problem, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    a, b = (swap(torch.from_numpy(x), t) for x, t in zip((problem.a, problem.b), problem.turned))
    c, bias = torch.from_numpy(problem.c), torch.from_numpy(problem.bias)
    if problem.shape.relu:
        fresh = problem.fresh
        return lambda: (torch.addmm(bias, a, b) if fresh else torch.addmm(bias, a, b, out=c)).relu_()
    return (lambda: torch.matmul(a, b)) if problem.fresh else (lambda: torch.matmul(a, b, out=c))


def by_jax(problem: Problem, threads: int) -> Call:
    import jax

    jax.config.update("jax_enable_x64", True)
    left, right = problem.turned
    product = jax.jit(lambda a, b: swap(a, left) @ swap(b, right))
    dense = jax.jit(lambda a, b, bias: jax.nn.relu(swap(a, left) @ swap(b, right) + bias))
    a, b, bias = jax.device_put(problem.a), jax.device_put(problem.b), jax.device_put(problem.bias)
    if problem.shape.relu:
        return lambda: dense(a, b, bias).block_until_ready()
    return lambda: product(a, b).block_until_ready()


def by_onednn(problem: Problem, threads: int) -> Call | None:
    """oneDNN's product, with its epilogue, of PyTorch's tensors: of float32, and of no batch."""
    import torch

    shape = problem.shape
    if shape.dtype != "float32" or shape.batch > 1:
        return None
    torch.set_num_threads(threads)
    a, b = (swap(torch.from_numpy(x), t) for x, t in zip((problem.a, problem.b), problem.turned))
    weight, bias, after = b.T, torch.from_numpy(problem.bias) if shape.relu else None, "relu" if shape.relu else "none"
    dense = torch.ops.mkldnn._linear_pointwise
    return lambda: dense(a, weight, bias, after, [], "")


def by_onnxruntime(problem: Problem, threads: int) -> Call:
    import onnxruntime as ort
    from onnx import TensorProto, helper

    shape = problem.shape
    dtype = TensorProto.FLOAT if shape.dtype == "float32" else TensorProto.DOUBLE
    given = {"a": problem.a, "b": problem.b} | ({"bias": problem.bias} if shape.relu else {})
    if shape.batch > 1:
        names = [f"{name}t" if turned else name for name, turned in zip("ab", problem.turned)]
        nodes = [
            helper.make_node("Transpose", [name], [f"{name}t"], perm=[0, 2, 1])
            for name, turned in zip("ab", problem.turned) if turned
        ]  # fmt: skip
        nodes.append(helper.make_node("MatMul", names, ["z"]))
    else:
        a, b = map(int, problem.turned)
        nodes = [helper.make_node("Gemm", [*given], ["z"], transA=a, transB=b)]
    if shape.relu:
        nodes.append(helper.make_node("Relu", ["z"], ["y"]))
    result = nodes[-1].output[0]
    inputs = [helper.make_tensor_value_info(name, dtype, array.shape) for name, array in given.items()]
    outputs = [helper.make_tensor_value_info(result, dtype, problem.c.shape)]
    graph = helper.make_graph(nodes, "product", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    binding.bind_output(result)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return binding

    return call


CALLS = {
    OURS: by_staticgrad, "numpy": by_numpy, "torch": by_torch, "jax": by_jax, "onednn": by_onednn,
    "onnxruntime": by_onnxruntime,
}  # fmt: skip


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
    exact = some @ whole
    if problem.shape.relu:
        exact = np.maximum(exact + problem.bias, 0)
    array = result.get_outputs()[0].numpy() if hasattr(result, "get_outputs") else np.asarray(result)
    error = np.abs(array[..., rows, :] - exact)
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
    made = {peer: CALLS[peer](problem, given.threads) for peer in (OURS, *peers)}
    calls = {peer: call for peer, call in made.items() if call is not None}
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


def line_of(row: Row, peers: Sequence[str], machine: MeasuredMachine) -> str:
    cells = [f"{row.shape!s:<32}"]
    for peer in (OURS, *peers):
        cells.append(f"{row.least_us[peer]:.1f}" if peer in row.least_us else "")
        cells[-1] = cells[-1].rjust(len(peer) + 4)
    us, shape = row.least_us.get(OURS, math.nan), row.shape
    floor = machine.floor(shape.flops, shape.traffic, shape.dtype) * 1e6
    return " ".join([*cells, f"{shape.flops / us / 1e3:>8.1f}", f"{floor / us:>6.2f}", f"{row.ratio:>6.2f}"])


def report(rows: Sequence[Row], peers: Sequence[str], threads: int) -> None:
    machine = sketch(threads)
    peaks = ", ".join(f"{rate / 1e9:.1f} GFLOP/s in {dtype}" for dtype, rate in machine.flops.items())
    print(f"\nthe machine's peaks: {peaks}")
    heads = " ".join(f"{peer}, µs" for peer in (OURS, *peers))
    print(f"{'shape':<32} {heads} {'GFLOP/s':>8} {'floor':>6} {'ratio':>6}")
    measured = sorted((row for row in rows if row.ratio > 0), key=lambda row: row.ratio)
    for row in measured:
        print(line_of(row, peers, machine))
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
    parser.add_argument("mode", nargs="?", choices=("drawn", "grid"), default="drawn")
    parser.add_argument("--shapes", type=int, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="float32,float64", metavar="NAMES")
    parser.add_argument("--transposes", default="nn,nt,tn,tt", metavar="NAMES")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--max", type=int, default=2048, metavar="SIZE")
    parser.add_argument("--kind", help=f"drawn: product (default), matvec or batched; grid: some of {', '.join(GRID)}")
    parser.add_argument("--shape", nargs="+", metavar="MxNxK[xBATCH][:nt][+relu]", help="these instead of drawn ones")
    parser.add_argument("--isa", choices=("native", "avx2"), default="", help="all that the processor has, or AVX2")
    parser.add_argument("--fresh", action="store_true", help="each call makes a new result")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each peer's turn")
    given = parser.parse_args(arguments)
    known = [*GRID] if given.mode == "grid" else ["product", "matvec", "batched"]
    if given.kind is not None and not {*given.kind.split(",")} <= {*known}:
        parser.error(f"--kind: expected {', '.join(known)}")
    return given


def settle(threads: int, isa: str) -> None:
    """Start this process anew with pools of one size, on so many processors and with one instruction set: libraries
    look when they are loaded."""
    pools = dict.fromkeys(POOLS, str(threads)) | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    # Threads that wait for more work would disturb whoever has the next turn.
    pools |= {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "0"}
    wanted = environment("" if os.environ.get(SETTLED) else isa, os.environ) | pools | {SETTLED: "1"}
    if dict(os.environ) != wanted:
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-threads:]))


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    settle(given.threads, given.isa)
    peers = [peer for peer in given.peers.split(",") if importlib.util.find_spec(PEERS[peer])]
    if given.isa == "avx2" and "onnxruntime" in peers:
        peers.remove("onnxruntime")  # it asks the processor
    rng = random.Random(given.seed)
    if given.shape:
        shapes = [named_shape(text, dtype) for text in given.shape for dtype in given.dtype.split(",")]
    elif given.mode == "grid":
        texts = grid_texts(given.kind.split(",") if given.kind else ())
        shapes = [named_shape(text, dtype) for dtype in given.dtype.split(",") for text in texts]
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
