"""``sg.check_gradients`` passes what is right and says with numbers what is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.functions import checking

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_functions_of_nests_pass(order: int) -> None:
    def fn(pair: dict[str, sg.Tensor], index: sg.Tensor) -> list[sg.Tensor]:
        return [sg.take(sg.sin(pair["a"]) * pair["b"], index, axis=0), sg.sum(pair["a"] ** 3)]

    pair = {"a": RNG.normal(size=(4, 3)).astype(np.float32), "b": RNG.normal(size=3)}
    sg.check_gradients(fn, [pair, np.array([0, 2, 2])], order=order)


def test_declared_tensors_pass_and_their_graph_stays() -> None:
    graph = sg.Graph()
    with graph:
        x = sg.placeholder((None, 3), sg.float64)
        w = sg.Variable(RNG.normal(size=(3, 2)))
        y = sg.tanh(x @ w)
    nodes = len(graph.nodes)
    feeds = {x: RNG.normal(size=(4, 3))}
    sg.check_gradients(y, feeds)
    sg.check_gradients({"y": y}, {**feeds, w: RNG.normal(size=(3, 2))})
    assert len(graph.nodes) == nodes


@pytest.mark.parametrize("order", [1, 2])
def test_a_wrong_derivative_is_named_with_its_numbers(order: int) -> None:
    def fn(x: sg.Tensor) -> sg.Tensor:
        if order == 1:
            return sg.stop_gradient(x) * x  # derives to x instead of 2 x
        # The value of x³/3 and its derivative x², which is taken for a constant.
        return sg.stop_gradient(x * x) * (x - sg.stop_gradient(x)) + sg.stop_gradient(x**3 / 3)

    sg.check_gradients(fn, [np.array([0.5, 1.0])], order=order - 1)
    with pytest.raises(sg.GradientError, match=f"order {order}, reverse mode") as caught:
        sg.check_gradients(fn, [np.array([0.5, 1.0])], order=2)
    text = str(caught.value)
    expected, actual = (float(re.search(rf"{word} +(\S+)", text)[1]) for word in ("expected", "actual"))
    assert abs(expected - actual) > 0.01
    assert "test_checking.py" in text


def test_cotangents_depend_on_the_results_as_of_a_loss_that_is_not_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    derive, found = checking.gradients, list[Any]()

    def gradients(ys: Any, xs: Any, weights: Any, **options: Any) -> Any:
        found.extend(derive(weights, xs))
        return derive(ys, xs, weights, **options)

    monkeypatch.setattr(checking, "gradients", gradients)
    sg.check_gradients(sg.tanh, [np.array([0.5, 1.0])], order=1)
    assert found
    assert None not in found


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="floating"):
        sg.check_gradients(lambda x: x + 1, [np.arange(3)])
    with pytest.raises(sg.GraphError, match="expected tensors and a dict"):
        sg.check_gradients([], {})
    for alone in (2.0, np.ones(3)):
        with pytest.raises(sg.GraphError, match="a list with a value for each argument"):
            sg.check_gradients(lambda x: x * x, alone)  # type: ignore[arg-type]
