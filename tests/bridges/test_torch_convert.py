"""Modules of PyTorch, converted: values, gradients and buffers beside PyTorch's own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import staticgrad as sg  # noqa: E402
import staticgrad.torch  # noqa: E402
from staticgrad.bridges.aten import CONVERTERS  # noqa: E402
from staticgrad.torch import convert  # noqa: E402
from support.aten_cases import FAMILIES, Case  # noqa: E402

TOLERANCES = {np.dtype("float64"): 1e-9, np.dtype("float32"): 2e-5, np.dtype("float16"): 2e-3}


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    torch.manual_seed(0)
    with sg.Graph() as graph:
        yield graph


def dtype_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def placeholders(tensors: Sequence[Any]) -> list[Any]:
    return [sg.placeholder(tuple(t.shape), dtype_of(t)) for t in tensors]


def leaves(nest: Any) -> list[Any]:
    return list(pytree.tree_leaves(nest))


def close(actual: Any, expected: Any, what: str = "", tolerance: float | None = None) -> None:
    expected = expected.detach().numpy(force=True)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), what
    if tolerance is None:
        tolerance = TOLERANCES.get(expected.dtype, 0.0)
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0)), initial=1.0))
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def weighted(ys: Sequence[Any]) -> Any:
    """One number of several results, to which each of their elements contributes otherwise."""
    return sum((y * _weights(y.shape, dtype_of(y))).sum() for y in ys)


def _weights(shape: Any, dtype: str, *, ours: bool = False) -> Any:
    weights = np.cos(np.arange(math.prod(shape)) + 1.0).reshape(tuple(shape)).astype(dtype)
    return weights if ours else torch.tensor(weights)


class Family(nn.Module):
    """Functions, each of its own operands."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, operands: Any) -> Any:
        return [case.function(*own) for case, own in zip(self.cases, operands)]


def agree(cases: Sequence[Case], dtype: Any, tolerance: float | None = None) -> None:
    """Values and gradients of functions, in one program."""
    operands = [
        [x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float64 else x for x in case.operands]
        for case in cases
    ]
    inputs = [placeholders(own) for own in operands]
    results = convert(Family(cases), operands)(inputs)
    fetches, expected, names = [], [], []
    for case, own, xs, ys in zip(cases, operands, inputs, results):
        given = [x.clone().requires_grad_(case.gradients and x.is_floating_point()) for x in own]
        wanted, got = leaves(case.function(*given)), leaves(ys)
        pairs = [(y, w) for y, w in zip(got, wanted, strict=True) if isinstance(y, sg.Tensor) and w.dtype != torch.bfloat16]
        derived = [(y, w) for y, w in pairs if w.requires_grad]
        by = [(x, w) for x, w in zip(xs, given) if w.requires_grad]
        names += [case.name] * len(pairs)
        if derived and by:
            total = sum(sg.sum(y * _weights(w.shape, dtype_of(w), ours=True)) for y, w in derived)
            gradients = sg.gradients(total, [x for x, _ in by], unconnected_gradients="zero")
            wanted_gradients = torch.autograd.grad(weighted([w for _, w in derived]), [w for _, w in by], allow_unused=True)
            pairs += [(a, torch.zeros_like(w) if b is None else b) for a, b, (_, w) in zip(gradients, wanted_gradients, by)]
            names += [f"gradient of {case.name}"] * len(by)
        fetches += [y for y, _ in pairs]
        expected += [w for _, w in pairs]
    feeds = {x: t.numpy() for xs, own in zip(inputs, operands) for x, t in zip(xs, own)}
    for name, actual, wanted in zip(names, sg.Session().run(fetches, feeds), expected, strict=True):
        close(actual, wanted, name, 1e-7 if "hardsigmoid" in name and dtype == torch.float64 else tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_ops_have_pytorchs_values_and_gradients(family: str) -> None:
    agree(FAMILIES[family], torch.float64)
