"""The workloads without derivatives as ONNX graphs, for the runtimes that read them."""

from __future__ import annotations

from typing import Any

import models
import onnx
from models import Activation
from onnx import TensorProto, helper, numpy_helper
from workloads import Workload

OPSET = 20  # the first with Gelu
ACTIVATIONS: dict[Activation, str] = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "gelu": "Gelu"}
CHAIN = (
    ("Mul", "x0", "1.5"), ("Add", "a", "0.25"), ("Max", "b", "-1.0"), ("Min", "c", "2.0"), ("Mul", "d", "d"),
    ("Add", "e", "x0"), ("Abs", "f"), ("Mul", "g", "0.5"), ("Sub", "h", "x0"), ("Neg", "i"),
)  # fmt: skip


def _chain() -> tuple[list[Any], list[Any], str]:
    """Each op's result is named by the next letter."""
    nodes = [helper.make_node(op, inputs, ["abcdefghij"[n]]) for n, (op, *inputs) in enumerate(CHAIN)]
    numbers = sorted({x for _, *inputs in CHAIN for x in inputs if x[-1].isdigit() and x != "x0"})
    return nodes, [helper.make_tensor(x, TensorProto.FLOAT, (), [float(x)]) for x in numbers], "j"


def _perceptron(workload: Workload, model: models.Perceptron) -> tuple[list[Any], list[Any], str]:
    constants = [numpy_helper.from_array(array, name) for name, array in workload.parameters.items()]
    nodes, x = [], "x0"
    for layer in range(1, model.depth + 1):
        nodes.append(helper.make_node("Gemm", [x, f"fc{layer}.w", f"fc{layer}.b"], [f"z{layer}"]))
        x = f"z{layer}"
        if layer == model.depth:
            break
        if model.activation == "silu":
            nodes.append(helper.make_node("Sigmoid", [x], [f"s{layer}"]))
            nodes.append(helper.make_node("Mul", [x, f"s{layer}"], [f"y{layer}"]))
        else:
            nodes.append(helper.make_node(ACTIVATIONS[model.activation], [x], [f"y{layer}"]))
        x = f"y{layer}"
    return nodes, constants, x


def _nodes(workload: Workload) -> tuple[list[Any], list[Any], str]:
    """Nodes, constants and the name of the result."""
    match workload.model:
        case models.Perceptron() as model:
            return _perceptron(workload, model)
        case models.Product():
            return [helper.make_node("MatMul", ["x0", "x1"], ["y"])], [], "y"
        case models.Softmax():
            return [helper.make_node("Softmax", ["x0"], ["y"], axis=1)], [], "y"
        case models.LayerNorm():
            node = helper.make_node("LayerNormalization", ["x0", "x1", "x2"], ["y"], axis=-1, epsilon=1e-5)
            return [node], [], "y"
        case models.Chain():
            return _chain()
    raise ValueError(f"{workload.name} is not an ONNX graph")


def _shape(workload: Workload) -> tuple[int, ...]:
    """Of the result."""
    first, *rest = workload.feeds[0]
    match workload.model:
        case models.Perceptron(depth):
            return len(first), workload.parameters[f"fc{depth}.b"].size
        case models.Product():
            return len(first), rest[0].shape[1]
    return first.shape


def model_of(workload: Workload) -> bytes:
    """A checked model with inputs ``x0``, ``x1``, … and one result."""
    nodes, constants, result = _nodes(workload)
    inputs = [
        helper.make_tensor_value_info(f"x{n}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for n, array in enumerate(workload.feeds[0])
    ]
    output = helper.make_tensor_value_info(result, TensorProto.FLOAT, _shape(workload))
    graph = helper.make_graph(nodes, "workload", inputs, [output], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    data: bytes = made.SerializeToString()
    return data
