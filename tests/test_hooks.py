"""Hooks: when they run, what they see, return, read and write, and that one that raises changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.declaring import Array, Log, f32, leaf

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend")


def test_hooks_run_in_order_on_outputs_intermediates_and_leaves(g: sg.Graph) -> None:
    x = leaf(2)
    log = Log()
    h = x * 2
    y = sg.sum(h)
    x.register_hook(log.hook("x, first"))
    x.register_hook(lambda grad: grad * 10)
    x.register_hook(log.hook("x, third"))
    h.retain_grad()
    h.register_hook(lambda grad: grad + 1)
    h.register_hook(log.hook("h"))
    y.register_hook(log.hook("y"))
    y.register_hook(lambda grad: grad * 3)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(0, 0)}).backward(y)
    assert log.take() == [("y", 1.0), ("h", [4, 4]), ("x, first", [8, 8]), ("x, third", [80, 80])]
    assert sess.grad(h).tolist() == [4, 4]
    assert sess.grad(x).tolist() == [80, 80]


def test_a_hook_sees_the_sum_over_all_uses_once(g: sg.Graph) -> None:
    x = leaf(2)
    log = Log()
    h = x * 1
    h.register_hook(log.hook("h"))
    x.register_hook(log.hook("x"))
    y = sg.sum(h * 2 + h * f32(3, 4)) + sg.sum(x)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(0, 0)}).backward(y)
    assert log.take() == [("h", [5, 6]), ("x", [6, 7])]


def test_hooks_are_read_when_forward_is_called(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * 2)
    sess = sg.Session(g)
    feeds = {x: f32(0, 0)}

    def gradient(tape: sg.Tape) -> list[float]:
        sess.zero_grad()
        tape.backward(y)
        values: list[float] = sess.grad(x).tolist()
        return values

    plain = sess.forward(y, feeds)
    handle = x.register_hook(lambda grad: grad * 5)
    hooked = sess.forward(y, feeds)
    handle.remove()
    handle.remove()  # nothing more to remove
    assert gradient(plain) == [2, 2]
    assert gradient(hooked) == [10, 10]
    assert gradient(sess.forward(y, feeds)) == [2, 2]


def test_retain_grad_is_read_when_forward_is_called(g: sg.Graph) -> None:
    x = leaf(1)
    h = x * 2
    y = sg.sum(h * 3)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1)})
    h.retain_grad()
    tape.backward(y)
    assert sess.grad(h) is None
    sess.forward(y, {x: f32(1)}).backward(y)
    assert sess.grad(h) == 3


def test_a_hook_may_return_an_array_and_be_registered_twice(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * 1)

    def double(grad: sg.Tensor) -> sg.Tensor:
        return grad * 2

    x.register_hook(lambda grad: f32(7, 8))
    first, _ = x.register_hook(double), x.register_hook(double)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(0, 0)}).backward(y)
    assert sess.grad(x).tolist() == [28, 32]
    first.remove()
    sess.zero_grad()
    sess.forward(y, {x: f32(0, 0)}).backward(y)
    assert sess.grad(x).tolist() == [14, 16]


def test_hooks_are_read_when_gradients_is_called(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * 2)
    (before,) = sg.gradients(y, x)
    handle = x.register_hook(lambda grad: grad * 5)
    (hooked,) = sg.gradients(y, x)
    handle.remove()
    (after,) = sg.gradients(y, x)
    values = sg.Session(g).run([before, hooked, after], {x: f32(0, 0)})
    assert [v.tolist() for v in values] == [[2, 2], [10, 10], [2, 2]]


def test_a_hook_runs_again_in_a_double_backward(g: sg.Graph) -> None:
    x = leaf()
    calls: list[str] = []

    def hook(grad: sg.Tensor) -> sg.Tensor:
        calls.append(grad.name)
        return grad * 2

    x.register_hook(hook)
    (dx,) = sg.gradients(x**3, x)  # 2 * 3 x²
    (ddx,) = sg.gradients(dx, x)  # 2 * 12 x
    assert len(calls) == 2
    values = sg.Session(g).run([dx, ddx], {x: 1.0})
    assert [float(v) for v in values] == [6, 24]


def test_a_hook_may_read_other_tensors_and_variables(g: sg.Graph) -> None:
    x = leaf(2)
    scale = sg.Variable(f32(2, 3), trainable=False)
    h = sg.exp(x)
    y = sg.sum(h)
    h.register_hook(lambda grad: grad * scale * h)
    sess = sg.Session(g)
    at = f32(0.5, -1)
    tape = sess.forward(y, {x: at})
    tape.backward(y)
    np.testing.assert_allclose(sess.grad(x), np.exp(at) ** 2 * f32(2, 3), rtol=1e-6)
    tape = sess.forward(y, {x: at})
    sess.set(scale, f32(0, 5))  # no derivative saved it, and the hook reads it now
    sess.zero_grad()
    tape.backward(y)
    np.testing.assert_allclose(sess.grad(x), np.exp(at) ** 2 * f32(0, 5), rtol=1e-6)


def test_a_hook_may_write_a_variable(g: sg.Graph) -> None:
    x, w = leaf(1), sg.Variable(f32(2))
    calls = sg.Variable(0, trainable=False)
    h = x * w
    h.register_hook(lambda grad: sg.assign(calls, calls + 1))
    decay = h.register_hook(lambda grad: sg.assign(w, w - 0.5 * grad))
    y = sg.sum(h)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(3)})
    tape.backward(y, retain_graph=True)
    assert (sess.get(calls), sess.get(w)) == (1, 1.5)
    assert (sess.grad(x), sess.grad(w)) == (2, 3)
    with pytest.raises(sg.StateChangedError):  # the product saved it
        tape.backward(y)
    assert sess.get(calls) == 1
    decay.remove()
    tape = sess.forward(y, {x: f32(3)})
    tape.backward(y, retain_graph=True)
    tape.backward(y)
    assert sess.get(calls) == 3
    sess.run(sg.gradients(y, x), {x: f32(3)})
    assert sess.get(calls) == 4


@pytest.mark.parametrize("wrong", [lambda grad: sg.sum(grad), lambda grad: grad.astype(sg.float64), lambda grad: "no"])
def test_a_hook_must_return_a_gradient_of_the_same_type(g: sg.Graph, wrong: Callable[[sg.Tensor], Any]) -> None:
    x = leaf(2, name="x")
    x.register_hook(wrong)
    y = sg.sum(x * 2)
    sess = sg.Session(g)
    with pytest.raises(sg.StaticGradError):
        sess.forward(y, {x: f32(0, 0)}).backward(y)
    with pytest.raises(sg.StaticGradError):
        sg.gradients(y, x)
    assert sess.grad(x) is None


def test_a_hook_that_raises_leaves_everything_as_it_was(g: sg.Graph) -> None:
    x, w, v = leaf(2), sg.Variable(f32(1, 1)), sg.Variable(f32(0, 0))
    h = x * w
    h.retain_grad()
    y = sg.sum(h * h + v)
    armed = [False]

    def fail(value: Array) -> None:
        if armed[0]:
            raise KeyError("armed")

    def hook(grad: sg.Tensor) -> None:
        sg.py_call(fail, [grad], [])

    x.register_hook(hook)
    h.register_hook(hook)
    sess = sg.Session(g)

    def grads() -> list[Any]:
        return [None if a is None else a.tolist() for a in map(sess.grad, (x, w, v, h))]

    for expected in ([None] * 4, [[2, 4], [2, 8], [1, 1], [2, 4]]):
        tape = sess.forward(y, {x: f32(1, 2)})
        before = tape.memory
        armed[0] = True
        for _ in range(2):
            with pytest.raises(KeyError, match="armed"):
                tape.backward(y)
            assert grads() == expected
            assert tape.memory == before
        armed[0] = False
        tape.backward(y)
    assert grads() == [[4, 8], [4, 16], [2, 2], [4, 8]]
