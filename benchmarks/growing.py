"""One system writes with a small GPT, in a process of its own: the context grows by a token with each call.

    python benchmarks/growing.py SYSTEM [--tokens N] [--width N] [--layers N] [--threads N] [--seed N]

Every system has the same weights, begins with one token and appends the likeliest next one. Before the clock starts
NumPy is imported, the weights are drawn and, for ONNX Runtime, the model is written. Then the system is imported, and
after that all is counted until the last token: declaring the net or loading the model, compiling, calls. Goes out: a
line of JSON with the seconds and with the scores of each token. ``sizes.py growing`` runs this file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Weights = dict[str, Any]
Step = Callable[[Sequence[int]], Array]  # a context to the scores of the token that follows
MODULES = {
    "staticgrad": "staticgrad", "staticgrad_one_range": "staticgrad", "staticgrad_exact": "staticgrad", "jax": "jax",
    "torch": "torch", "onnxruntime": "onnxruntime", "numpy": "numpy",
}  # fmt: skip
LETTERS, HEADS = 65, 2
clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Written:
    """The seconds of the import, until the first token and until the last one; the tokens, and the scores of each."""

    import_s: float
    first_s: float
    total_s: float
    tokens: list[int]
    scores: list[list[float]]


# -- the net --------------------------------------------------------------------------------------------------------


def draw_weights(tokens: int, width: int, layers: int, seed: int) -> dict[str, Array]:
    """Weights by name in float32: matrices (inputs, outputs), norms' weights and biases."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"head": (width, LETTERS)}
    for i in range(layers):
        shapes |= {f"{i}.qkv": (width, 3 * width), f"{i}.out": (width, width)}
        shapes |= {f"{i}.up": (width, 4 * width), f"{i}.down": (4 * width, width)}
    found = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    found |= {"letter": rng.standard_normal((LETTERS, width)), "place": rng.standard_normal((tokens, width))}
    for norm in ("norm", *(f"{i}.{name}" for i in range(layers) for name in ("norm1", "norm2"))):
        found |= {f"{norm}.w": rng.uniform(0.5, 1.5, width), f"{norm}.b": rng.standard_normal(width) / 4}
    for name in [name for name in found if name.endswith(("qkv", "out", "up", "down"))]:
        found[f"{name}.b"] = rng.standard_normal(found[name].shape[1]) / 4
    return {name: x.astype(np.float32) for name, x in found.items()}


def next_scores(o: Any, w: Weights, text: Any) -> Any:
    """The scores (letters,) of what follows a text (places,), in the terms of a system of ``systems``."""

    def linear(name: str, x: Any) -> Any:
        return x @ w[name] + w[f"{name}.b"]

    def norm(name: str, x: Any) -> Any:
        return o.layer_norm(x, w[f"{name}.w"], w[f"{name}.b"])

    places, width = text.shape[0], w["letter"].shape[1]
    x = w["letter"][text] + w["place"][o.arange(places)]
    for i in range(sum(name.endswith("qkv") for name in w)):
        heads = o.reshape(linear(f"{i}.qkv", norm(f"{i}.norm1", x)), (places, 3, HEADS, width // HEADS))
        q, k, v = (o.permute(heads[:, part], (1, 0, 2)) for part in range(3))
        mixed = o.reshape(o.permute(o.attention(q, k, v), (1, 0, 2)), (places, width))
        x = x + linear(f"{i}.out", mixed)
        x = x + linear(f"{i}.down", o.gelu_tanh(linear(f"{i}.up", norm(f"{i}.norm2", x))))
    return norm("norm", x[-1]) @ w["head"]


class Onnx:
    """The same net as an ONNX graph, whose length is open."""

    def __init__(self, weights: dict[str, Array]) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._to_tensor = helper, numpy_helper.from_array
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._named = {name: self._constant(x) for name, x in weights.items()}

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(self._to_tensor(np.asarray(value), name))
        return name

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _linear(self, name: str, x: str) -> str:
        return self._op("Gemm", x, self._named[name], self._named[f"{name}.b"])

    def _norm(self, name: str, x: str) -> str:
        w, b = self._named[f"{name}.w"], self._named[f"{name}.b"]
        return self._op("LayerNormalization", x, w, b, axis=-1, epsilon=1e-5)

    def _attention(self, i: int, x: str, mask: str, width: int) -> str:
        split = self._constant([-1, 3, HEADS, width // HEADS])
        parts = self._op("Transpose", self._op("Reshape", self._linear(f"{i}.qkv", x), split), perm=[1, 2, 0, 3])
        q, k, v = (self._op("Gather", parts, self._constant(part), axis=0) for part in range(3))
        scaled = self._op("Mul", q, self._constant(np.float32((width // HEADS) ** -0.5)))
        weights = self._op("Add", self._op("MatMul", scaled, self._op("Transpose", k, perm=[0, 2, 1])), mask)
        mixed = self._op("MatMul", self._op("Softmax", weights, axis=-1), v)
        joined = self._op("Reshape", self._op("Transpose", mixed, perm=[1, 0, 2]), self._constant([-1, width]))
        return self._linear(f"{i}.out", joined)

    def model(self) -> bytes:
        """A checked model from ``text`` (places,) to scores (letters,)."""
        import onnx

        op, width = self._op, self._weights["letter"].shape[1]
        places = op("Shape", "text")
        low = self._helper.make_tensor("low", onnx.TensorProto.FLOAT, (1,), [-np.inf])
        square = op("ConstantOfShape", op("Concat", places, places, axis=0), value=low)
        mask = op("Trilu", square, self._constant(1), upper=1)  # zero where a place is seen
        at = op("Range", self._constant(0), op("Squeeze", places), self._constant(1))
        x = op("Add", op("Gather", self._named["letter"], "text"), op("Gather", self._named["place"], at))
        for i in range(sum(name.endswith("qkv") for name in self._weights)):
            x = op("Add", x, self._attention(i, self._norm(f"{i}.norm1", x), mask, width))
            wide = op("Gelu", self._linear(f"{i}.up", self._norm(f"{i}.norm2", x)), approximate="tanh")
            x = op("Add", x, self._linear(f"{i}.down", wide))
        last = self._norm("norm", op("Gather", x, self._constant(-1), axis=0))
        result = op("MatMul", last, self._named["head"])
        value = self._helper.make_tensor_value_info
        inputs, outputs = value("text", onnx.TensorProto.INT64, ["places"]), value(result, 1, [LETTERS])
        graph = self._helper.make_graph(self._nodes, "gpt", [inputs], [outputs], self._constants)
        made = self._helper.make_model(graph, opset_imports=[self._helper.make_opsetid("", 20)], ir_version=10)
        onnx.checker.check_model(made, full_check=True)
        data: bytes = made.SerializeToString()
        return data


# -- systems: weights come in, a step goes out ------------------------------------------------------------------------


def by_staticgrad(
    library: Any, weights: dict[str, Array], threads: int, most: int | None = None, **options: Any
) -> Step:
    from systems import Own

    sg, own = library, Own(library)
    with sg.Graph() as graph:
        text = sg.placeholder((sg.dim("places", max=most),), sg.int64, name="text")
        variables = {name: sg.Variable(x, name=name) for name, x in weights.items()}
        scores = next_scores(own, variables, text)
    step: Any = sg.Session(graph, num_threads=threads, **options).compile(scores, [text])
    return lambda tokens: step(np.array(tokens))


def by_staticgrad_one_range(library: Any, weights: dict[str, Array], threads: int) -> Step:
    return by_staticgrad(library, weights, threads, most=len(weights["place"]))


def by_staticgrad_exact(library: Any, weights: dict[str, Array], threads: int) -> Step:
    return by_staticgrad(library, weights, threads, sizes="exact")


def by_jax(library: Any, weights: dict[str, Array], threads: int) -> Step:
    from systems import Jax

    system, held = Jax(library), {name: library.numpy.asarray(x) for name, x in weights.items()}
    step = library.jit(lambda w, text: next_scores(system, w, text))
    return lambda tokens: np.asarray(step(held, np.array(tokens, np.int32)))


def by_torch(library: Any, weights: dict[str, Array], threads: int) -> Step:
    from systems import Torch

    library.set_num_threads(threads)
    system, held = Torch(library), {name: library.from_numpy(x) for name, x in weights.items()}

    def step(tokens: Sequence[int]) -> Array:
        with library.inference_mode():
            scores: Array = next_scores(system, held, library.tensor(tokens)).numpy()
            return scores

    return step


def by_onnxruntime(library: Any, model: bytes, threads: int) -> Step:
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = library.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def step(tokens: Sequence[int]) -> Array:
        (scores,) = session.run(None, {"text": np.array(tokens)})
        return scores

    return step


def by_numpy(library: Any, weights: dict[str, Array], threads: int) -> Step:
    """The reference, in float64."""
    from systems import NumPy

    system, held = NumPy(library), {name: x.astype(np.float64) for name, x in weights.items()}
    return lambda tokens: next_scores(system, held, np.array(tokens))


STEPS: dict[str, Callable[[Any, Any, int], Step]] = {
    "staticgrad": by_staticgrad, "staticgrad_one_range": by_staticgrad_one_range,
    "staticgrad_exact": by_staticgrad_exact, "jax": by_jax, "torch": by_torch, "onnxruntime": by_onnxruntime,
    "numpy": by_numpy,
}  # fmt: skip


def write(system: str, given: argparse.Namespace) -> Written:
    weights: Any = draw_weights(given.tokens, given.width, given.layers, given.seed)
    if system == "onnxruntime":
        weights = Onnx(weights).model()
    started = clock()
    library = importlib.import_module(MODULES[system])
    imported = clock() - started
    importlib.import_module("systems")
    tokens, scores, first = [0], [], 0.0
    started = clock()
    step = STEPS[system](library, weights, given.threads)
    for _ in range(given.tokens):
        scores.append(step(tokens))
        tokens.append(int(scores[-1].argmax()))
        first = first or clock() - started
    total = clock() - started
    return Written(imported, first, total, tokens, [x.tolist() for x in scores])


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what both commands are given."""
    parser.add_argument("--tokens", type=int, default=60, metavar="N", help="how many are written")
    parser.add_argument("--width", type=int, default=32, metavar="N", help="of the net")
    parser.add_argument("--layers", type=int, default=2, metavar="N", help="of the net")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the weights")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=tuple(STEPS))
    arguments(parser)
    given = parser.parse_args()
    print(json.dumps(asdict(write(given.system, given))))


if __name__ == "__main__":
    main()
