"""Convolutions by minimal filtering: the algorithms, how exact they are beside plain sums, and when they are chosen."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from support.matrix_cases import Case, Direction, convolution_case
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.types import Precision
from staticgrad.compiler.emit.convolution.kernel import EMITTERS, PLANNER, emit_convolution
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target, compact, named
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.plans.convolution.choice import ConvolutionPlanner
from staticgrad.compiler.plans.convolution.filtering import F2, F4, Filtering, transposed
from staticgrad.compiler.plans.convolution.weights_winograd import WinogradWeights
from staticgrad.compiler.plans.convolution.winograd import Winograd
from staticgrad.graph.optable import Array

DIRECTIONS: tuple[Direction, ...] = ("forward", "input_grad", "weight_grad")
BY_FILTERING = Winograd, WinogradWeights
LOSS: dict[Precision, float] = {"highest": 4, "high": 16}  # errors beside those of plain sums: of F(2×2), of F(4×4)


def filtered(filtering: Filtering, x: Array, w: Array) -> Array:
    data, weights, results = map(np.array, (filtering.data, filtering.weights, filtering.results))
    y: Array = results @ ((weights @ w @ weights.T) * (data @ x @ data.T)) @ results.T
    return y


@pytest.mark.parametrize("filtering", [F2, F4], ids=lambda filtering: filtering.text)
def test_minimal_filtering_is_a_convolution(filtering: Filtering) -> None:
    r, m = np.random.default_rng(0), filtering.outputs
    x, w = r.normal(size=(filtering.side, filtering.side)), r.normal(size=(3, 3))
    plain = [[np.sum(x[p : p + 3, q : q + 3] * w) for q in range(m)] for p in range(m)]
    np.testing.assert_allclose(filtered(filtering, x, w), plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("filtering", [F2, F4], ids=lambda filtering: filtering.text)
def test_the_transpose_by_weights_is_their_gradient(filtering: Filtering) -> None:
    r, m = np.random.default_rng(1), filtering.outputs
    x, w, dy = r.normal(size=(filtering.side, filtering.side)), r.normal(size=(3, 3)), r.normal(size=(m, m))
    data, back, weights = map(np.array, (filtering.data, transposed(filtering.results), transposed(filtering.weights)))
    dw = weights @ ((back @ dy @ back.T) * (data @ x @ data.T)) @ weights.T
    assert np.sum(dw * w) == pytest.approx(np.sum(filtered(filtering, x, w) * dy))


@functools.cache
def layers(direction: Direction) -> tuple[Case, ...]:
    sizes = ((1, 64, (28, 28), 48), (2, 17, (13, 9), 20), (1, 256, (14, 14), 32))
    cases = []
    for batch, channels, size, filters in sizes:
        case = convolution_case(direction, batch, channels, size, filters, (3, 3), padding=(1, 1), images="NHWC")
        cases.append(case)
    return tuple(cases)


def error(kernel: Convolution, case: Case, planner: ConvolutionPlanner, target: Target) -> float:
    """The root of the mean square of the errors of a kernel with the plan that a planner gives it."""
    planned = planner.planned(kernel, target)
    module = IRModule(target)
    emit_convolution(module, replace(planned, is_shared=False), "kernel", None)
    f = module.function("run", ["ptr"] * 4, internal=False)
    f.call("kernel", "void", *f.params)
    f.finish()
    native = NativeModule(module.texts(), target)
    memory = np.zeros(planned.scratch_bytes(1) + 64, np.uint8)
    case.result.fill(99)
    pointers = [a.ctypes.data for a in (*case.operands, case.result)] + [-(-memory.ctypes.data // 64) * 64]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(native.address("run"))(*pointers)
    return float(np.sqrt(np.mean((case.result.astype(np.float64) - case.expected) ** 2)))


@pytest.mark.parametrize("precision", LOSS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("target", HERE)
def test_errors_are_about_those_of_plain_sums(target: str, direction: Direction, precision: Precision) -> None:
    plain = ConvolutionPlanner(tuple(kind for kind in EMITTERS if kind not in BY_FILTERING))
    for case in layers(direction):
        kernel = replace(cast(Convolution, case.kernel), precision=precision)
        assert isinstance(PLANNER.plan(kernel, named(target)), BY_FILTERING)
        found, expected = (error(kernel, case, planner, named(target)) for planner in (PLANNER, plain))
        assert found <= LOSS[precision] * expected, f"{case.label}: {found / expected:.1f}"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", HERE)
def test_few_digits_are_lost_only_where_it_is_allowed(name: str, direction: Direction) -> None:
    target = named(name)
    for case in layers(direction):
        kernel = cast(Convolution, case.kernel)
        for precision in LOSS:
            plan = PLANNER.plan(replace(kernel, precision=precision), target)
            assert isinstance(plan, BY_FILTERING)
            assert precision == "high" or plan.filtering == F2
        assert not isinstance(PLANNER.plan(kernel, compact(target)), BY_FILTERING)
        assert not isinstance(PLANNER.plan(replace(kernel, dtype=np.dtype("float64")), target), BY_FILTERING)
        assert not isinstance(PLANNER.plan(replace(kernel, dilation=(2, 2)), target), BY_FILTERING)


@pytest.mark.parametrize("precision", LOSS)
@pytest.mark.parametrize("target", HERE)
def test_verified_training_steps_accept_filtering(
    target: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_VERIFY", "2")
    r = np.random.default_rng(2)
    with sg.Graph() as graph:
        x = sg.placeholder((2, 16, 12, 14))
        w = sg.Variable(r.normal(size=(24, 16, 3, 3)).astype(np.float32))
        v = sg.Variable(r.normal(size=(16, 24, 3, 3)).astype(np.float32))
        y = sg.nn.conv2d(sg.nn.relu(sg.nn.conv2d(x, w, padding=1)), v, padding=1)
        slopes = sg.gradients(sg.mean(y * y), [x, w, v])
    with sg.Session(graph, matmul_precision=precision) as session:
        exe = session.compile([y, *slopes], [x])
        assert "F(2×2" in exe.text("kernels") or "F(4×4" in exe.text("kernels")
        exe(r.normal(size=(2, 16, 12, 14)).astype(np.float32))
