"""Sparse derivatives by parts, functions of elements of x that are read by constant indices, beside dense ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT
from support.selection import rotating

import staticgrad as sg
from staticgrad.compiler.autodiff import sparse
from staticgrad.compiler.autodiff.elements import elements

sys.path.append(str(ROOT / "benchmarks"))
from sparse_problems import PROBLEMS

PAIRS = np.triu_indices(9, 1)
PLACES = np.random.default_rng(0).integers(0, 12, (5, 7))


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By parts wherever there are parts."""
    monkeypatch.setattr(sparse, "FEW", 0)
    monkeypatch.setattr(sparse, "_is_better", lambda by_parts, whole: True)
    monkeypatch.setattr(sparse, "elements", lambda graph, y, x, most: elements(graph, y, x, 100))


def agree(fn: Callable[[Any], Any], x: Any, mode: str = "by parts") -> None:
    """Jacobian and Hessian (of what is one number, else of a sum with weights) are those of dense derivatives."""
    with sg.Graph() as graph:
        at = sg.placeholder(x.shape, sg.float64)
        y = fn(at)
        energy = y if y.ndim == 0 else sg.sum(np.cos(np.arange(float(y.size))).reshape(y.shape) * y)
        first, second = sg.sparse_jacobian(y, at), sg.sparse_hessian(energy, at)
        wanted = [sg.reshape(sg.jacobian(y, at), first.shape), sg.reshape(sg.hessian(energy, at), second.shape)]
        lower = second.lower()
    assert mode in first.mode or first.colors < 2
    assert mode in second.mode
    found, exact = sg.Session(graph).run([(first, second, lower, first.T), wanted], {at: x})
    dense = [matrix.toarray() for matrix in found]
    for matrix, other in zip(dense, (*exact, np.tril(exact[1]), exact[0].T), strict=True):
        np.testing.assert_allclose(matrix, other, rtol=1e-12, atol=1e-12 * max(1, np.abs(other).max()))


CASES: dict[str, Callable[[Any], Any]] = {
    "pairs": lambda x: sg.exp(-((x[PAIRS[0]] - x[PAIRS[1]]) ** 2)),
    "functions before the choice": lambda x: sg.sum((sg.sin(x)[PLACES] * x[PLACES[::-1]]) ** 2),
    "both a function and its argument": lambda x: x + sg.exp(x)[::-1] * x[(np.arange(12) * 5) % 12],
    "shapes": lambda x: sg.sum(sg.reshape(x, (3, 4))[:, 1:] * sg.cos(sg.reshape(x, (3, 4)).T[:3, :]), axis=1),
    "constants between": lambda x: sg.sum(sg.concat([x[3:5], np.ones(2), x[:1]]) ** 3) * sg.sum(x[PLACES]),
    "a weight of each element": lambda x: sg.tanh(np.arange(12.0) * x)[PLACES] ** 2 * x[0],
    "a loop": lambda x: sg.scan(lambda c, z: (c * z + sg.sin(c), c * z), x[3], x[PLACES[0]])[1],
    "a loop that captures": lambda x: sg.scan(lambda c, z: (c * z + sg.sin(x[2]), c), x[3], x[PLACES[0]])[1],
    "products": lambda x: sg.sin(x[PLACES] @ np.cos(np.arange(7.0))) * x[PLACES[:, 2]],
    "a part of what has constants": lambda x: sg.sum(
        (z := sg.concat([np.zeros(2), x * (1 + x), np.zeros(1)]))[2:-1] ** 2 * z[:-3] * x[::-1]
    ),
    "a kink": lambda x: sg.sum(sg.maximum(x, 0.1)[PLACES] ** 2 * x[PLACES]),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_by_parts_are_the_dense_ones(forced: None, name: str) -> None:
    agree(CASES[name], np.random.default_rng(1).normal(size=12) + 0.3)


@pytest.mark.parametrize("name", rotating(PROBLEMS, 6))
def test_problems_by_parts(forced: None, name: str) -> None:
    problem = PROBLEMS[name](24)
    at = problem.start + 1e-2 * np.random.default_rng(0).normal(size=problem.size)
    agree(lambda x: problem.objective(sg, x), at, "")
    if problem.constraints is not None:
        agree(lambda x: problem.constraints(sg, x), at, "")


def test_parts_are_chosen_where_they_need_less(tmp_path: object) -> None:
    with sg.Graph():
        x = sg.placeholder((60,), sg.float64)
        first, second = np.triu_indices(60, 1)
        apart = sg.sparse_hessian(sg.sum(sg.cos(x[first] - x[second])), x)
        near = sg.sparse_hessian(sg.sum(sg.cos(x[1:] - x[:-1])), x)
    assert (apart.colors, apart.mode) == (2, "forward over reverse, by parts")
    assert (near.colors, near.mode) == (3, "forward over reverse")


def test_what_is_watched_or_chosen_by_values_has_no_parts() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((12,), sg.float64, requires_grad=True)
        chosen = x[PLACES]
        assert elements(graph, sg.sum(chosen**2 * x[3]), x, 10) is not None
        assert elements(graph, sg.sum(chosen**2 * x[3]), x, 1) is None
        assert elements(graph, sg.sum(x * x), x, 10) is None
        assert elements(graph, sg.sum(sg.sort(x)[PLACES] ** 2), x, 10) is None
        chosen.register_hook(lambda g: 2 * g)
        assert elements(graph, sg.sum(chosen**2), x, 10) is None
