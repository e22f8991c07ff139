"""A net out of an ONNX file, trained further here and written back, its training step too.

    python examples/onnx_file.py

The file has what an exporter writes: a small convolutional classifier with named weights and a batch whose size is
open. Here its head has not been trained. It is loaded as a module, whose parameters are the file's initializers, and
trained on pictures of bars; then the model is written as ONNX again, and so is a whole step of its training, with the
backward and the optimizer as ordinary nodes, which any runtime of ONNX can run on another machine.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import staticgrad as sg
import staticgrad.onnx

SIZE, CLASSES, BATCH, STEPS = 12, 3, 48, 120
NODES: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    ("Conv", ("image", "conv.weight", "conv.bias"), "seen", {"pads": [1, 1, 1, 1]}),
    ("Relu", ("seen",), "bright", {}),
    ("MaxPool", ("bright",), "small", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("Flatten", ("small",), "flat", {}),
    ("Gemm", ("flat", "head.weight", "head.bias"), "scores", {"transB": 1}),
)


def exported(path: Path) -> None:
    """Write the file that another system would have written."""
    rng = np.random.default_rng(0)
    weights = {
        "conv.weight": rng.normal(size=(6, 1, 3, 3)) / 3,
        "conv.bias": np.zeros(6),
        "head.weight": rng.normal(size=(CLASSES, 6 * (SIZE // 2) ** 2)) * 0.01,
        "head.bias": np.zeros(CLASSES),
    }
    graph = helper.make_graph(
        [helper.make_node(name, inputs, [output], **how) for name, inputs, output, how in NODES],
        "bars",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)


def bars(count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Noisy pictures (count, 1, SIZE, SIZE) of a bar that lies, stands or leans, and which of them it is."""
    kinds = rng.integers(0, CLASSES, count)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    across = np.stack([rows, columns, rows + columns])[kinds]
    place = rng.uniform(3, SIZE - 3, count) * np.where(kinds == 2, 2, 1)
    pictures = np.abs(across - place[:, None, None]) < 1.5
    return (pictures + rng.normal(0, 0.5, pictures.shape))[:, None].astype(np.float32), kinds


def main() -> None:
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bars.onnx"
        exported(path)
        with sg.Graph() as graph:
            net = staticgrad.onnx.load(path)
            (image,) = net.placeholders()
            kind = sg.placeholder((image.shape[0],), sg.int64, name="kind")
            scores = net(image)
            loss = sg.nn.cross_entropy(scores, kind)
            train = sg.optim.Adam(lr=0.01).minimize(loss)
        sess = sg.Session(graph, seed=0)
        predict, step = sess.compile({"scores": scores}, [image]), sess.compile([loss, train], [image, kind])

        tests, kinds = bars(600, rng)

        def right() -> float:
            return float(np.mean(predict(tests)["scores"].argmax(1) == kinds))

        print(f"{', '.join(name for name, _ in net.named_parameters())}: {right():.0%} right as loaded")
        for _ in range(STEPS):
            step(*bars(BATCH, rng))
        print(f"after {STEPS} steps: {right():.0%} right")
        assert right() > 0.9

        model = staticgrad.onnx.save(path, predict)
        (again,) = staticgrad.onnx.backend.run_model(onnx.load(path), [tests])
        assert np.allclose(again, predict(tests)["scores"], atol=1e-5)
        print(f"written again: {', '.join(node.op_type for node in model.graph.node)}")

        model = staticgrad.onnx.save(Path(folder) / "step.onnx", step)
        state = json.loads({each.key: each.value for each in model.metadata_props}["staticgrad.state"])
        print(f"a step of training: {len(model.graph.node)} nodes, which give {len(state)} variables new values")


if __name__ == "__main__":
    main()
