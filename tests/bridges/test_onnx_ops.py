"""Every op, from its entry: written as ONNX and run by ONNX Runtime, against its NumPy reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.op_cases import TESTED, TOLERANCE, declare, typed
from support.sampling import Array, operands, relative_error
from support.selection import rotating

import staticgrad as sg
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import Op

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
import staticgrad.onnx  # noqa: E402

UNWRITTEN = {  # ops that ONNX has no counterpart for, and that are not composed of others that it has
    *("random_uniform", "random_key", "random_turn", "bucket", "linear_recurrence", "pow"),
    *("cumulative_prod", "cumulative_max", "cumulative_min", "logcumsumexp"),
    *("erfinv", "zeta", "gammainc", "gammaincc", "gammainc_by_a", "betainc", "betainc_by_shape", "iv", "ive"),
    *("bitcast", "clz", "popcount", "nextafter"),
    *(
        "triangular_solve",
        "cholesky_factor",
        "cholesky",
        "lu_factor",
        "lu",
        "solve",
        "slogdet",
        "expm",
        "householder",
        "qr",
    ),
    *("cofactors", "jacobi_svd", "svd", "spectral_norm", "spectral_norm_slope", "pinv", "symmetric_eigen", "eigh"),
    *("matrix_function", "matrix_function_slope", "matrix_function_curvature"),
}
LOOSER = 8.0  # than for our own kernels: ONNX Runtime's functions, and what is composed of several
runtime.set_default_logger_severity(4)


@pytest.mark.parametrize("op", rotating(TESTED, 8), ids=lambda op: op.name)
def test_onnx_runtime_computes_what_the_reference_does(op: Op, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    path = tmp_path / "op.onnx"
    for dtype in typed(op):
        graph = Graph()
        feeds: dict[Tensor, Array] = {}
        fetches: list[Tensor] = []
        for case in op.cases:
            xs, ys = declare(graph, op, case, dtype)
            feeds.update(zip(xs, operands(op, case, dtype), strict=True))
            fetches += ys
        executable = sg.Session(graph).compile(fetches, list(feeds))
        try:
            model = staticgrad.onnx.save(path, executable)
        except sg.UnsupportedError:
            assert op.name in UNWRITTEN
            continue
        try:
            session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
            continue  # the model is right, but this runtime has no kernel of some operator for the dtype
        given = {info.name: np.asarray(array) for info, array in zip(model.graph.input, feeds.values(), strict=True)}
        with np.errstate(all="ignore"):
            found, wanted = session.run(None, given), executable(*feeds.values())
            for actual, expected in zip(found, wanted, strict=True):
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
                limit = TOLERANCE.get(expected.dtype.name, 0.0) * op.tolerance * LOOSER
                limit = max(limit, 1e-5) if expected.dtype == np.float32 else limit
                assert relative_error(actual, expected) <= limit, f"{op.name} of {dtype.name}"


def test_no_op_is_listed_that_does_not_exist() -> None:
    assert {op.name for op in TESTED} >= UNWRITTEN
