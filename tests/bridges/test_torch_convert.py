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
from support.torch_models import MODELS  # noqa: E402

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


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model in float64 and its inputs."""
    build, inputs = MODELS[name]
    model, given = build().double(), inputs()
    model(*given)  # lazy layers
    return model, given


def same_as_pytorch(model: Any, given: Sequence[Any]) -> None:
    """Outputs, gradients by all parameters and inputs, and buffers afterwards."""
    net = convert(model, *given)
    xs = placeholders(given)
    outputs = leaves(net(*xs))
    given = [x.clone().requires_grad_(x.is_floating_point()) for x in given]
    wanted = leaves(model(*given))
    ours = dict(net.named_parameters())
    theirs = dict(model.named_parameters())
    assert list(ours) == list(theirs)
    by = [(x, t) for x, t in zip(xs, given) if t.requires_grad] + [(ours[name], theirs[name]) for name in ours]
    loss = sum(sg.sum(y * _weights(w.shape, dtype_of(w), ours=True)) for y, w in zip(outputs, wanted, strict=True))
    gradients = sg.gradients(loss, [x for x, _ in by], unconnected_gradients="zero")
    expected = torch.autograd.grad(weighted(wanted), [t for _, t in by], allow_unused=True, materialize_grads=True)
    sess = sg.Session()
    feeds = {x: t.detach().numpy() for x, t in zip(xs, given)}
    got_outputs, got_gradients = sess.run([outputs, gradients], feeds)
    for actual, want in zip(got_outputs, wanted):
        close(actual, want, "output")
    names = [*(f"input {n}" for n in range(len(by) - len(ours))), *ours]
    for name, actual, want in zip(names, got_gradients, expected, strict=True):
        close(actual, want, name)
    values = net.state_dict(sess)
    assert list(values) == list(model.state_dict())
    for name, want in model.state_dict().items():
        close(values[name].numpy(), want, name)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_does_in_pytorch(name: str) -> None:
    model, given = made(name)
    same_as_pytorch(model, given)
