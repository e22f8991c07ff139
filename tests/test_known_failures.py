"""Where compiled automatic differentiation is known to fail: asked for by users of many frameworks, held by tests here.

Hooks and retained gradients inside compiled programs, orders and removals, derivatives of derivatives in a loss,
memory between two heads, NaN behind ``where``, recomputation, compiling once, buffers handed in, growing graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

Array = np.ndarray[Any, Any]


@pytest.fixture(params=("compiled", "reference"), autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv("STATICGRAD_BACKEND", name)
    return name


@pytest.fixture
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def leaf(*shape: Any, name: str | None = None) -> sg.Tensor:
    x: sg.Tensor = sg.placeholder(shape, sg.float64, name=name, requires_grad=True)
    return x


def f64(*values: float) -> Array:
    return np.array(values, np.float64)


# -- hooks and retained gradients -------------------------------------------------------------------------------------

VIEWS_THAT_CHANGE_NOTHING: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "reshape": lambda x: x.reshape(3),
    "broadcast_to": lambda x: sg.broadcast_to(x, (3,)),
    "permute_dims": lambda x: sg.permute_dims(x, (0,)),
    "slice": lambda x: x[:],
    "ellipsis": lambda x: x[...],
    "concat": lambda x: sg.concat([x]),
    "pad": lambda x: sg.nn.pad(x, (0, 0)),
    "flip": lambda x: sg.flip(x, axis=()),
    "roll": lambda x: sg.roll(x, 0, axis=0),
    "squeeze": lambda x: sg.squeeze(x),
    "split": lambda x: sg.split(x, 1)[0],
    "tile": lambda x: sg.tile(x, 1),
    "repeat": lambda x: sg.repeat(x, 1, axis=0),
}


@pytest.mark.parametrize("view", VIEWS_THAT_CHANGE_NOTHING)
def test_a_hook_on_a_view_that_changes_nothing_is_no_hook_on_its_operand(g: sg.Graph, view: str) -> None:
    x = leaf(3)
    v = VIEWS_THAT_CHANGE_NOTHING[view](x)
    v.register_hook(lambda grad: grad * 10)
    v.retain_grad()
    y = sg.sum(v * 2) + sg.sum(x)
    sess = sg.Session(g)
    sess.forward(y, {x: f64(1, 2, 3)}).backward(y)
    assert sess.grad(x).tolist() == [21, 21, 21]
    assert sess.grad(v).tolist() == [20, 20, 20]


def test_a_hook_sees_a_gradient_that_goes_no_further(g: sg.Graph) -> None:
    x = leaf(2)
    seen: list[Any] = []
    h = sg.sign(x) * 3
    h.register_hook(lambda grad: sg.py_call(lambda value: seen.append(value.tolist()), [grad], []) and None)
    y = sg.sum(h)
    sess = sg.Session(g)
    sess.forward(y, {x: f64(1, -2)}).backward(y)
    assert seen == [[1, 1]]
    assert sess.grad(x).tolist() == [0, 0]


def test_a_hook_where_no_gradient_arrives_sees_zeros_and_may_give_one(g: sg.Graph) -> None:
    x = leaf(2)
    h = x * 2
    h.register_hook(lambda grad: grad + 1)
    y = sg.sum(sg.floor(h))
    sess = sg.Session(g)
    sess.forward(y, {x: f64(1, 2)}).backward(y)
    assert sess.grad(x).tolist() == [2, 2]
