"""What saves goes back once: which ops save operands or results for a backward, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.declaring import f32, leaf

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend")

AGAIN = "Trying to backward through the graph a second time"

W = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], np.float32)
X = np.array([[1.0, 2.0, 3.0], [0.5, 0.25, 4.0]], np.float32)

FREE: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "x + 2": lambda x: x + 2,
    "x + w": lambda x: x + W,
    "x - 2": lambda x: x - 2,
    "2 - x": lambda x: 2 - x,
    "-x": lambda x: -x,
    "x + x": lambda x: x + x,
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(),
    "mean of an axis": lambda x: x.mean(0, keepdims=True),
    "reshape": lambda x: x.reshape(3, 2),
    "transpose": lambda x: x.T,
    "expand": lambda x: sg.broadcast_to(x, (4, 2, 3)),
    "concat": lambda x: sg.concat([x, W, x]),
    "stack": lambda x: sg.stack([x, x]),
    "slice": lambda x: x[:, ::2],
    "row": lambda x: x[1],
    "flip": lambda x: sg.flip(x, axis=1),
    "squeeze": lambda x: sg.squeeze(x[None], 0),
    "cast": lambda x: x.astype(sg.float64),
    "pad": lambda x: sg.nn.pad(x, (1, 1)),
    "floor": lambda x: sg.floor(x),
    "identity": lambda x: sg.identity(x),
}
SAVING: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "x * 3": lambda x: x * 3,
    "3 * x": lambda x: 3 * x,
    "x * 1": lambda x: x * 1,
    "x / 3": lambda x: x / 3,
    "x * w": lambda x: x * W,
    "x / w": lambda x: x / W,
    "x ** 2": lambda x: x**2,
    "x ** 1": lambda x: x**1,
    "2 ** x": lambda x: 2**x,
    "exp": lambda x: sg.exp(x),
    "log": lambda x: sg.log(x),
    "sqrt": lambda x: sg.sqrt(x),
    "sin": lambda x: sg.sin(x),
    "abs": lambda x: sg.abs(x),
    "relu": lambda x: sg.nn.relu(x),
    "gelu": lambda x: sg.nn.gelu(x),
    "sigmoid": lambda x: sg.nn.sigmoid(x),
    "softmax": lambda x: sg.nn.softmax(x, -1),
    "log softmax": lambda x: sg.nn.log_softmax(x, -1),
    "maximum": lambda x: sg.maximum(x, W),
    "max": lambda x: x.max(),
    "prod": lambda x: x.prod(),
    "log sum exp": lambda x: x.logsumexp(1),
    "variance": lambda x: x.var(),
    "clip": lambda x: x.clip(1, 2),
    "where": lambda x: sg.where(W > 2, x, W),
    "matmul": lambda x: x @ W.T,
    "linear": lambda x: sg.nn.linear(x, W),
    "gather": lambda x: x[np.array([1, 0, 1])],
    "dropout": lambda x: sg.nn.dropout(x, 0.5),
    "mean squared error": lambda x: sg.nn.mse_loss(x, W),
    "layer norm": lambda x: sg.nn.layer_norm(x, (3,)),
}


@pytest.mark.parametrize("name", [*FREE, *SAVING])
def test_what_saves_goes_back_once(g: sg.Graph, name: str) -> None:
    x = leaf(2, 3)
    y = sg.sum({**FREE, **SAVING}[name](x))
    sess = sg.Session(g)
    tape = sess.forward(y, {x: X})
    tape.backward(y)
    once = sess.grad(x)
    assert once is not None
    if name in FREE:
        assert tape.memory.saved_bytes == 0
        tape.backward(y)
        np.testing.assert_array_equal(sess.grad(x), 2 * once)
    else:
        with pytest.raises(sg.BuffersFreedError, match=AGAIN):
            tape.backward(y)
        np.testing.assert_array_equal(sess.grad(x), once)
    assert tape.memory.live_bytes == 0


def test_what_needs_no_gradient_saves_nothing(g: sg.Graph) -> None:
    x, fixed = leaf(3), sg.placeholder((3,))
    y = sg.sum(x + sg.exp(fixed * fixed))
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2, 3), fixed: f32(1, 2, 3)})
    tape.backward(y)
    tape.backward(y)
    assert sess.grad(x).tolist() == [2, 2, 2]
    assert tape.memory.saved_bytes == 0


def test_the_rule_knows_declared_ops_whatever_is_compiled(g: sg.Graph) -> None:
    x = leaf(3)
    y = sg.sum(x * 3 * (1 / 3))
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2, 3)})
    assert tape.memory.saved_bytes == 0  # constants are part of the program
    tape.backward(y)
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y)


def test_heads_without_a_common_trunk_do_not_disturb_each_other(g: sg.Graph) -> None:
    x = leaf(3)
    a, b = sg.sum(x * x), sg.sum(sg.exp(x))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: f32(1, 2, 3)})
    tape.backward(a)
    tape.backward(b)
    np.testing.assert_allclose(sess.grad(x), 2 * f32(1, 2, 3) + np.exp(f32(1, 2, 3)), rtol=1e-6)
    for y in (a, b, [a, b]):
        with pytest.raises(sg.BuffersFreedError):
            tape.backward(y)


def test_a_trunk_that_saves_nothing_serves_both_heads(g: sg.Graph) -> None:
    x = leaf(3)
    trunk = (x + 1).reshape(3, 1)
    a, b = sg.sum(trunk * trunk), sg.sum(sg.exp(trunk))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: f32(0, 0, 0)})
    tape.backward(a)
    tape.backward(b)
    np.testing.assert_allclose(sess.grad(x), np.full(3, 2 + np.e), rtol=1e-6)
