"""Products of short numbers: float32 beside what is computed from bfloat16 and from 8 bits, by staticgrad, PyTorch
(oneDNN, FBGEMM) and ONNX Runtime (MLAS), in one process.

    python benchmarks/short.py [--sizes N ...] [--linear MxKxN ...] [--threads N] [--isa native|avx2] [--rounds N]

Square products: ``float32`` as it is; ``medium``, of float32 that may be rounded to bfloat16 (staticgrad's
``Session(matmul_precision="medium")``, PyTorch's ``mkldnn.matmul.fp32_precision = "bf16"``); ``bfloat16``, tensors of
that dtype. Linear maps with weights that are kept: ``float32``, and ``int8`` by dynamic quantisation (``sg.nn.
quantized_linear``, ``torch.ao.quantization.quantize_dynamic``, ONNX's ``DynamicQuantizeLinear`` and ``MatMulInteger``).

The systems take turns; of each turn the fastest block of calls counts. Goes out, for each case: microseconds, the
error, as a part of the sum of the magnitudes of an element's terms, and staticgrad's speed over the best peer's of the
same kind, the median over the turns: above 1 staticgrad is faster.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemm import aligned, block_of, settle, turn
from instruction_sets import environment
from optimised import optimised

OURS = "staticgrad"
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Y = X·Wᵀ, or X·W of square matrices, and the threads that compute it."""

    x: Any
    w: Any
    threads: int


def problem(m: int, k: int, n: int, threads: int, *, linear: bool) -> Problem:
    import numpy as np

    rng = np.random.default_rng(m + k + n)
    w = rng.standard_normal((n, k) if linear else (k, n))
    return Problem(aligned(rng.standard_normal((m, k)).astype("f")), aligned(w.astype("f")), threads)


# -- square products --------------------------------------------------------------------------------------------------


def our_product(given: Problem, kind: str) -> Call:
    import numpy as np

    import staticgrad as sg

    dtype = sg.bfloat16 if kind == "bfloat16" else np.dtype("f")
    graph = sg.Graph()
    with graph:
        a, b = sg.placeholder(given.x.shape, dtype), sg.placeholder(given.w.shape, dtype)
        y = a @ b
    session = sg.Session(graph, num_threads=given.threads, matmul_precision="medium" if kind == "medium" else "highest")
    run = optimised(session.compile(y, [a, b]))
    one, other = (aligned(x.astype(dtype)) for x in (given.x, given.w))
    c = aligned(np.zeros((one.shape[0], other.shape[1]), dtype))
    return lambda: run(one, other, out=c)


def torch_product(given: Problem, kind: str) -> Call:
    import torch

    torch.set_num_threads(given.threads)
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    a, b = (torch.from_numpy(x).to(dtype) for x in (given.x, given.w))
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=dtype)
    settings, precision = torch.backends.mkldnn.matmul, "bf16" if kind == "medium" else "none"

    def call() -> Any:
        settings.fp32_precision = precision
        return torch.matmul(a, b, out=c)

    return call


# -- linear maps -------------------------------------------------------------------------------------------------------


def our_linear(given: Problem, kind: str) -> Call:
    import numpy as np

    import staticgrad as sg

    graph = sg.Graph()
    with graph:
        x, w = sg.placeholder(given.x.shape), sg.Variable(given.w)
        y = (sg.nn.quantized_linear if kind == "int8" else sg.nn.linear)(x, w)
    run = optimised(sg.Session(graph, num_threads=given.threads).compile(y, [x]))
    c = aligned(np.zeros(y.shape, "f"))
    return lambda: run(given.x, out=c)


def torch_linear(given: Problem, kind: str) -> Call:
    import torch

    torch.set_num_threads(given.threads)
    model = torch.nn.Sequential(torch.nn.Linear(given.w.shape[1], given.w.shape[0], bias=False)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.from_numpy(given.w))
    if kind == "int8":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    x = torch.from_numpy(given.x)

    def call() -> Any:
        with torch.inference_mode():
            return model(x)

    return call


def onnx_linear(given: Problem, kind: str) -> Call:
    """As ONNX Runtime's own tool writes it, with a scale for each output."""
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    float_, (m, k), n = onnx.TensorProto.FLOAT, given.x.shape, given.w.shape[0]
    ends = [helper.make_tensor_value_info(name, float_, shape) for name, shape in (("x", (m, k)), ("y", (m, n)))]
    if kind == "float32":
        nodes, kept = [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": np.ascontiguousarray(given.w.T)}
    else:
        step = np.abs(given.w).max(1) / 127
        whole = np.rint(given.w / step[:, None]).astype(np.int8).T.copy()
        kept = {"w": whole, "step": step, "zero": np.zeros(n, np.int8)}
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "point"]),
            helper.make_node("MatMulInteger", ["q", "w", "point", "zero"], ["sums"]),
            helper.make_node("Cast", ["sums"], ["exact"], to=float_),
            helper.make_node("Mul", ["scale", "step"], ["both"]),
            helper.make_node("Mul", ["exact", "both"], ["y"]),
        ]
    initial = [numpy_helper.from_array(value, name) for name, value in kept.items()]
    graph = helper.make_graph(nodes, "linear", ends[:1], ends[1:], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = given.threads, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": given.x})[0]


PRODUCTS = {OURS: our_product, "torch": torch_product}
LINEAR = {OURS: our_linear, "torch": torch_linear, "onnxruntime": onnx_linear}


# -- measuring ---------------------------------------------------------------------------------------------------------


def error_of(given: Problem, result: Any, *, linear: bool) -> float:
    import numpy as np

    w = given.w.T if linear else given.w
    rows = slice(0, 16)
    some = given.x[rows].astype(np.float64)
    result = result.float() if type(result).__module__ == "torch" else result
    off = np.abs(np.asarray(result)[rows].astype(np.float64) - some @ w)
    return float(np.max(off / (np.abs(some) @ np.abs(w))))


def report(
    name: str, given: Problem, makers: dict[str, Any], kinds: Sequence[str], options: argparse.Namespace
) -> None:
    linear = makers is LINEAR
    calls: dict[tuple[str, str], Call] = {}
    for kind in kinds:
        for system, make in makers.items():
            if importlib.util.find_spec(system) is not None and not (kind == "medium" and system == "onnxruntime"):
                calls[kind, system] = make(given, kind)
    errors = {key: error_of(given, call(), linear=linear) for key, call in calls.items()}
    blocks = {key: block_of(call) for key, call in calls.items()}
    turns: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for key, call in calls.items():
            turns[key].append(turn(call, blocks[key], options.seconds))
    print(f"\n{name}, {given.threads} thread(s)")
    for kind in kinds:
        peers = [system for what, system in calls if what == kind and system != OURS]
        best = [min(turns[kind, peer][i] for peer in peers) for i in range(options.rounds)] if peers else []
        ratio = statistics.median(b / own for b, own in zip(best, turns[kind, OURS])) if best else float("nan")
        gain = statistics.median(a / b for a, b in zip(turns["float32", OURS], turns[kind, OURS]))
        cells = [
            f"{system} {min(turns[kind, system]) * 1e6:,.1f} µs (off by {errors[kind, system]:.1e})"
            for system in (OURS, *peers)
        ]
        print(f"  {kind:<9} {'; '.join(cells)}; to the best peer {ratio:.2f}, to our float32 {gain:.2f}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 512, 1024, 2048], metavar="N")
    parser.add_argument("--linear", nargs="*", default=["1x1024x1024", "32x1024x1024", "256x768x3072"], metavar="MxKxN")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--isa", choices=("native", "avx2"), default="native")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each system's turn")
    options = parser.parse_args(arguments)
    held = environment(options.isa, os.environ)
    if held != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], held)
    settle(options.threads)
    for n in options.sizes:
        given = problem(n, n, n, options.threads, linear=False)
        report(f"product {n}x{n}x{n}", given, PRODUCTS, ("float32", "medium", "bfloat16"), options)
    for text in options.linear:
        m, k, n = map(int, text.split("x"))
        given = problem(m, k, n, options.threads, linear=True)
        report(f"linear {m}x{k} to {n}", given, LINEAR, ("float32", "int8"), options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
