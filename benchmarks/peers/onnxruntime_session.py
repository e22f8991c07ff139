"""ONNX Runtime: an inference session with all its optimizations, weights as constants."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort
from workloads import Array, Workload

from peers import Call, Program, Settings
from peers.onnx_graphs import model_of


def build(workload: Workload, settings: Settings) -> Program:
    model = model_of(workload)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = settings.threads, 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL

    def compile() -> Call:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [x.name for x in session.get_inputs()]

        def call(*arrays: Array) -> list[Any]:
            results: list[Any] = session.run(None, dict(zip(names, arrays, strict=True)))
            return results

        return call

    return Program(compile)
