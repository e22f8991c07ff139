"""OpenVINO: a model compiled for latency in float32, one request used again, memory shared with NumPy's arrays."""

from __future__ import annotations

from typing import Any

import openvino as ov
from workloads import Array, Workload

from peers import Call, Program, Settings
from peers.onnx_graphs import model_of


def build(workload: Workload, settings: Settings) -> Program:
    core = ov.Core()
    model = core.read_model(model_of(workload))
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # by default bfloat16 where the processor has it
        "INFERENCE_NUM_THREADS": settings.threads,
        "NUM_STREAMS": 1,
    }

    def compile() -> Call:
        request = core.compile_model(model, "CPU", config).create_infer_request()

        def call(*arrays: Array) -> list[Any]:
            return [request.infer(list(arrays), share_inputs=True, share_outputs=True)[0]]

        return call

    return Program(compile)
