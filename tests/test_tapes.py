"""Tapes: what a backward needs, spends and gives back; hooks and retained gradients; what is refused."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.concurrency import in_threads

import staticgrad as sg
from staticgrad.compiler.autodiff.retention import Ledger

pytestmark = pytest.mark.usefixtures("backend")

AGAIN = "Trying to backward through the graph a second time"
Array = np.ndarray[Any, Any]


def leaf(*shape: Any, name: str | None = None) -> sg.Tensor:
    x: sg.Tensor = sg.placeholder(shape, name=name, requires_grad=True)
    return x


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


class Log:
    """What a graph calls in a run, in order."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def hook(self, label: str) -> Callable[[sg.Tensor], None]:
        """A hook that notes its label and the gradient's value in each backward."""

        def note(grad: sg.Tensor) -> None:
            sg.py_call(lambda value: self.entries.append((label, value.tolist())), [grad], [])

        return note

    def take(self) -> list[Any]:
        entries, self.entries = self.entries, []
        return entries


# -- which ops save ---------------------------------------------------------------------------------------------------

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


# -- gradients --------------------------------------------------------------------------------------------------------


def test_grad_is_none_where_there_is_none(g: sg.Graph) -> None:
    x, other, plain = leaf(2), leaf(2), sg.placeholder((2,))
    w = sg.Variable(f32(1, 1), trainable=False)
    h = x * plain
    y = sg.sum(h + w)
    sess = sg.Session(g)
    assert sess.grad(x) is None
    sess.forward(y, {x: f32(1, 2), plain: f32(3, 4)}).backward(y)
    assert sess.grad(x).tolist() == [3, 4]
    for none in (other, plain, w, h, y):
        assert sess.grad(none) is None
    got = sess.grad(x)
    got[...] = 100
    assert sess.grad(x).tolist() == [3, 4]
    sess.zero_grad()
    assert sess.grad(x) is None
    with pytest.raises(sg.FetchError):
        sess.grad("x")


def test_running_symbolic_gradients_changes_no_leafs_gradient(g: sg.Graph) -> None:
    x = leaf(2)
    h = x * x
    h.retain_grad()
    (dx,) = sg.gradients(sg.sum(h * 3), x)
    sess = sg.Session(g)
    for count in (1, 2):
        assert sess.run(dx, {x: f32(1, 2)}).tolist() == [6, 12]
        assert sess.grad(x) is None
        assert sess.grad(h).tolist() == [3 * count, 3 * count]


def test_retained_gradients_add_up_over_backwards(g: sg.Graph) -> None:
    x = leaf(2)
    h = x * x
    h.retain_grad()
    a, b = sg.sum(h * 3), sg.sum(h)
    a.retain_grad()
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: f32(1, 2)})
    tape.backward(a, retain_graph=True)
    assert sess.grad(h).tolist() == [3, 3]
    assert sess.grad(a) == 1
    tape.backward(b)
    assert sess.grad(h).tolist() == [4, 4]
    assert sess.grad(a) == 1
    assert sess.grad(b) is None
    assert sess.grad(x).tolist() == [8, 16]
    sess.forward(b, {x: f32(1, 2)}).backward(b)
    assert sess.grad(h).tolist() == [5, 5]
    sess.zero_grad()
    assert sess.grad(h) is None


def test_retain_grad_needs_something_that_requires_it(g: sg.Graph) -> None:
    plain = sg.placeholder((2,), name="plain")
    with pytest.raises(sg.GradientError, match=r"(?s)'plain'.*does not require grad.*test_tapes\.py"):
        plain.retain_grad()
    with pytest.raises(sg.GradientError, match="does not require grad"):
        plain.register_hook(lambda grad: None)
    x = leaf(2)
    x.retain_grad()  # a leaf keeps its gradient anyway, once
    y = sg.sum(x * 2)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(0, 0)}).backward(y)
    assert sess.grad(x).tolist() == [2, 2]


def test_several_outputs_in_one_traversal(g: sg.Graph) -> None:
    x = leaf(3)
    log = Log()
    h = x * x
    h.register_hook(log.hook("h"))
    a, b = sg.sum(h), h * 2
    sess = sg.Session(g)
    at = f32(1, 2, 3)
    tape = sess.forward((a, b), {x: at})
    tape.backward([a, b], grad=[None, f32(1, 0, 2)])
    np.testing.assert_array_equal(sess.grad(x), 2 * at * f32(3, 1, 5))
    assert log.take() == [("h", [3, 1, 5])]
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(a)
    sess.zero_grad()
    tape = sess.forward([a, b], {x: at})
    tape.backward([a, a])
    np.testing.assert_array_equal(sess.grad(x), 4 * at)
    for outputs, grads in (([a, b], [None]), ([a, b], None), ([a, b], [1.0, 1.0])):
        with pytest.raises(sg.StaticGradError):
            sess.forward([a, b], {x: at}).backward(outputs, grad=grads)


def test_a_non_scalar_output_needs_a_gradient(g: sg.Graph) -> None:
    x = leaf(2, 2)
    y = x * x
    one = sg.sum(y, keepdims=True)
    sess = sg.Session(g)
    at = np.ones((2, 2), np.float32)
    tape = sess.forward([y, one], {x: at})
    with pytest.raises(sg.GradientError, match="grad can be implicitly created only for scalar outputs") as caught:
        tape.backward(y)
    assert isinstance(caught.value, RuntimeError)
    assert "test_tapes.py" in str(caught.value)
    with pytest.raises(sg.GradientError, match="shape"):
        tape.backward(y, grad=f32(1, 2))
    assert sess.grad(x) is None
    tape.backward(one, retain_graph=True)
    assert sess.grad(x).tolist() == [[2, 2], [2, 2]]
    tape.backward(y, grad=[[1, 2], [3, 4]])
    assert sess.grad(x).tolist() == [[4, 6], [8, 10]]


def test_backward_of_what_requires_no_gradient(g: sg.Graph) -> None:
    x = sg.placeholder((), name="x")
    w = leaf()
    y, z = x * 2, w * 2
    sess = sg.Session(g)
    tape = sess.forward([y, z], {x: 1, w: 1})
    text = "does not require grad and does not have a grad_fn"
    for outputs in (y, [z, y]):
        with pytest.raises(sg.GradientError, match=text) as caught:
            tape.backward(outputs)
        assert isinstance(caught.value, RuntimeError)
        assert "test_tapes.py" in str(caught.value)
    assert sess.grad(w) is None
    tape.backward(z)
    assert sess.grad(w) == 2
    with pytest.raises(sg.FetchError):
        tape.backward(w)


def test_a_leaf_may_itself_be_an_output(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2))
    log = Log()
    w.register_hook(log.hook("w"))
    sess = sg.Session(g)
    tape = sess.forward(w)
    assert tape[w].tolist() == [1, 2]
    tape.backward(w, grad=f32(3, 4))
    tape.backward(w, grad=f32(3, 4))
    assert sess.grad(w).tolist() == [6, 8]
    assert log.take() == [("w", [3, 4])] * 2


def test_a_derivative_that_is_zero_gives_a_gradient_of_zeros(g: sg.Graph) -> None:
    x, w = leaf(2), leaf(2)
    log = Log()
    h = x * 2
    h.retain_grad()
    h.register_hook(log.hook("h"))
    y = sg.sum(sg.floor(h) + w)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(1.3, 2.4), w: f32(0, 0)}).backward(y)
    assert sess.grad(h).tolist() == [0, 0]
    assert sess.grad(x).tolist() == [0, 0]
    assert sess.grad(w).tolist() == [1, 1]
    assert log.take() == [("h", [0, 0])]
    (dx,) = sg.gradients(y, x)
    assert sess.run(dx, {x: f32(1, 2)}).tolist() == [0, 0]


def test_a_fed_intermediate_ends_the_gradient(g: sg.Graph) -> None:
    x, w = leaf(2), leaf(2)
    h = sg.exp(x)
    y = sg.sum(h * w)
    sess = sg.Session(g)
    tape = sess.forward(y, {h: f32(3, 4), w: f32(1, 1)})
    tape.backward(y)
    assert tape[y] == 7
    assert sess.grad(w).tolist() == [3, 4]
    assert sess.grad(x) is None


def test_sizes_that_feeds_bind(g: sg.Graph) -> None:
    x = sg.placeholder((None, 2))
    w = sg.Variable(f32(1, 2))
    y = sg.mean(x * w)
    sess = sg.Session(g)
    one = sess.forward(y, {x: np.ones((3, 2), np.float32)})
    two = sess.forward(y, {x: np.full((5, 2), 2, np.float32)})
    two.backward(y)
    np.testing.assert_allclose(sess.grad(w), [1, 1])
    one.backward(y)
    np.testing.assert_allclose(sess.grad(w), [1.5, 1.5])


def test_gradients_of_different_sizes_do_not_add(g: sg.Graph) -> None:
    x, w = leaf(None, name="x"), sg.Variable(f32(2))
    y = sg.sum(x * w)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(1, 2)}).backward(y)
    tape = sess.forward(y, {x: f32(1, 2, 3)})
    with pytest.raises(sg.GradientError, match=r"(?s)'x'.*zero_grad"):
        tape.backward(y)
    assert sess.grad(x).tolist() == [2, 2]
    assert sess.grad(w).tolist() == [3]
    sess.zero_grad()
    tape.backward(y)
    assert sess.grad(x).tolist() == [2, 2, 2]


def test_a_fed_variable_is_the_fed_value(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2))
    y = sg.sum(w * w)
    sess = sg.Session(g)
    tape = sess.forward(y, {w: f32(5, 6)})
    sess.set(w, f32(9, 9))
    tape.backward(y)
    assert sess.grad(w).tolist() == [10, 12]


def test_a_gradient_through_most_of_a_network(g: sg.Graph) -> None:
    rng = np.random.default_rng(0)
    x, t = sg.placeholder((6, 5)), sg.placeholder((6,), sg.int64)
    w1 = sg.Variable(rng.normal(size=(8, 5)).astype(np.float32))
    b1 = sg.Variable(rng.normal(size=(8,)).astype(np.float32))
    w2 = sg.Variable(rng.normal(size=(3, 8)).astype(np.float32))
    h = sg.nn.layer_norm(sg.nn.gelu(sg.nn.linear(x, w1, b1)), (8,))
    loss = sg.nn.cross_entropy(sg.nn.linear(h, w2), t)
    symbolic = sg.gradients(loss, [w1, b1, w2])
    feeds = {x: rng.normal(size=(6, 5)).astype(np.float32), t: [0, 1, 2, 2, 1, 0]}
    sess = sg.Session(g)
    values = sess.run(symbolic, feeds)
    for budget in (None, 0):
        sess.zero_grad()
        tape = sess.forward(loss, feeds, memory_budget=budget)
        tape.backward(loss, retain_graph=True)
        tape.backward(loss)
        for v, expected in zip((w1, b1, w2), values, strict=True):
            np.testing.assert_allclose(sess.grad(v), 2 * expected, rtol=1e-5, atol=1e-6)


# -- hooks ------------------------------------------------------------------------------------------------------------


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


# -- what a tape keeps ------------------------------------------------------------------------------------------------


def test_values_of_outputs_are_there_as_long_as_the_tape(g: sg.Graph) -> None:
    x = leaf(2)
    e = sg.exp(x)
    y = sg.sum(e * e)
    sess = sg.Session(g)
    at = f32(0, 1)
    tape = sess.forward({"e": e, "rest": (y, None)}, {x: at})
    first = tape[e]
    first[...] = 7
    at[...] = 9
    np.testing.assert_allclose(tape[e], np.exp(f32(0, 1)), rtol=1e-6)
    tape.backward(y)
    np.testing.assert_allclose(sess.grad(x), 2 * np.exp(2 * f32(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(tape[e], np.exp(f32(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(tape[y], 1 + np.e**2, rtol=1e-6)
    with pytest.raises(sg.FetchError, match="only of its outputs"):
        tape[x]


def test_a_forward_under_no_grad_keeps_nothing(g: sg.Graph) -> None:
    x, w = leaf(64, 64), sg.Variable(np.ones((64, 64), np.float32))
    with sg.no_grad():
        y = sg.sum(sg.exp(x @ w) * x)
    z = sg.sum(sg.exp(x @ w) * x)
    sess = sg.Session(g)
    feeds = {x: np.zeros((64, 64), np.float32)}
    assert sess.forward(y, feeds).memory.saved_bytes == 0
    assert sess.forward(z, feeds).memory.saved_bytes >= 64 * 64 * 4


def test_what_is_kept_is_given_back_with_the_last_backward(g: sg.Graph) -> None:
    x = leaf(1000)
    trunk = sg.exp(x)
    a, b = sg.sum(trunk * trunk), sg.sum(sg.sin(trunk))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: np.zeros(1000, np.float32)})
    m = tape.memory
    assert m.saved_bytes == m.live_bytes == 4000  # exp's value serves all
    assert m.retain_bytes == 4000
    assert [(n.nbytes, n.live) for n in m.buffers] == [(4000, True)]
    assert "exp" in str(m)
    assert "test_tapes.py" in str(m)
    tape.backward(a, retain_graph=True)
    assert tape.memory.live_bytes == 4000
    tape.backward(b, retain_graph=True)
    tape.backward(a)
    assert tape.memory.live_bytes == 4000  # sin saves it too, and is not spent
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(b)
    tape = sess.forward([a, b], {x: np.zeros(1000, np.float32)})
    tape.backward([a, b])
    assert (tape.memory.saved_bytes, tape.memory.live_bytes, tape.memory.retain_bytes) == (4000, 0, 0)


def test_consuming_one_head_gives_back_what_it_alone_saves(g: sg.Graph) -> None:
    x, v = leaf(100), leaf(50)
    a, b = sg.sum(sg.exp(x)), sg.sum(sg.exp(v))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: np.zeros(100, np.float32), v: np.zeros(50, np.float32)})
    assert tape.memory.live_bytes == 600
    tape.backward(a)
    assert tape.memory.live_bytes == 200
    tape.backward(b)
    assert tape.memory.live_bytes == 0


def test_a_declared_order_keeps_each_value_to_its_last_use(g: sg.Graph) -> None:
    x = leaf(100)
    trunk = sg.exp(x)
    a, b = sg.sum(sg.sin(trunk + 1)), sg.sum(sg.cos(trunk * trunk))
    sess = sg.Session(g)
    at = np.linspace(0, 1, 100, dtype=np.float32)
    tape = sess.forward([a, b], {x: at}, backward_order=[a, b])
    with pytest.raises(sg.StaticGradError, match="order"):
        tape.backward(b)
    assert sess.grad(x) is None
    start = tape.memory.live_bytes
    tape.backward(a)
    assert 0 < tape.memory.live_bytes <= start
    tape.backward(b)
    assert tape.memory.live_bytes == 0
    e = np.exp(at.astype(np.float64))
    np.testing.assert_allclose(sess.grad(x), e * np.cos(e + 1) - 2 * e * e * np.sin(e * e), rtol=1e-4, atol=1e-4)
    with pytest.raises(sg.StaticGradError):
        tape.backward(a)


def test_an_order_may_name_several_at_once_and_one_again(g: sg.Graph) -> None:
    x = leaf(2)
    h = sg.exp(x)
    a, b, c = sg.sum(h * h), sg.sum(sg.sin(h)), sg.sum(h)
    sess = sg.Session(g)
    tape = sess.forward([a, b, c], {x: f32(0, 0)}, backward_order=[[a, b], c, a])
    tape.backward([b, a])
    tape.backward(c)
    assert tape.memory.live_bytes > 0
    tape.backward(a)
    assert tape.memory.live_bytes == 0
    np.testing.assert_allclose(sess.grad(x), np.full(2, 2 + 2 + 1 + np.cos(1)), rtol=1e-6)
    for foreign in ([x], [sg.sum(h)]):
        with pytest.raises(sg.StaticGradError):
            sess.forward(a, {x: f32(0, 0)}, backward_order=foreign)


def test_very_many_outputs(g: sg.Graph) -> None:
    x = leaf(2)
    h = sg.exp(x)
    ys = [sg.sum(h * float(i + 1)) for i in range(60)]
    sess = sg.Session(g)
    tape = sess.forward(ys, {x: f32(0, 0)})
    tape.backward(ys[3], retain_graph=True)
    assert sess.grad(x).tolist() == [4, 4]
    tape.backward(ys[4:10], retain_graph=True)
    assert sess.grad(x).tolist() == [49, 49]
    tape.backward(ys[10])
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(ys[11])


def test_outputs_of_every_kind(g: sg.Graph) -> None:
    x, n = leaf(2), sg.placeholder((2,), sg.int64)
    more, y = n + 1, sg.sum(x * x)
    sess = sg.Session(g)
    at = f32(1, 2)
    tape = sess.forward([x, more, y, n], {x: at, n: [1, 2]})
    at[...] = 0
    assert [tape[v].tolist() for v in (x, more, y, n)] == [[1, 2], [2, 3], 5, [1, 2]]
    tape.backward(y)
    assert sess.grad(x).tolist() == [2, 4]
    with pytest.raises(sg.GradientError, match="does not require grad"):
        tape.backward(more)


def test_a_backward_inside_a_run(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * x)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2)})

    def inside(value: Array) -> Array:
        tape.backward(y)
        return value

    (z,) = sg.py_call(inside, [x], [(sg.float32, (2,))])
    sess.run(z, {x: f32(0, 0)})
    assert sess.grad(x).tolist() == [2, 4]


def test_tapes_live_side_by_side(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * x)
    sess, other = sg.Session(g), sg.Session(g)
    tapes = [sess.forward(y, {x: np.full(2, i, np.float32)}) for i in range(4)]
    apart = other.forward(y, {x: f32(9, 9)})
    for i in (2, 0, 3, 1):
        sess.zero_grad()
        tapes[i].backward(y, retain_graph=True)
        assert sess.grad(x).tolist() == [2 * i, 2 * i]
        assert tapes[i][y] == 2 * i * i
    assert other.grad(x) is None
    apart.backward(y)
    assert other.grad(x).tolist() == [18, 18]
    tapes[0].backward(y)
    with pytest.raises(sg.BuffersFreedError):
        tapes[0].backward(y)
    tapes[1].backward(y)


def test_with_and_garbage_collection_give_everything_back(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(sg.exp(x))
    sess = sg.Session(g)
    with sess.forward(y, {x: f32(1, 2)}) as tape:
        tape.backward(y, retain_graph=True)
        assert tape.memory.live_bytes == 8
    assert tape.memory.live_bytes == 0
    for use in (lambda: tape.backward(y), lambda: tape[y]):
        with pytest.raises(sg.StaticGradError):
            use()
    dropped = sess.forward(y, {x: f32(1, 2)})
    gone = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert gone() is None


def test_a_tape_keeps_its_session_until_it_is_closed(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(sg.exp(x))
    tape = sg.Session(g).forward(y, {x: f32(0, 0)})
    gc.collect()
    tape.backward(y)
    with sg.Session(g) as sess:
        tape = sess.forward(y, {x: f32(0, 0)})
    for use in (lambda: tape.backward(y), lambda: tape[y], lambda: sess.forward(y, {x: f32(0, 0)})):
        with pytest.raises(sg.StaticGradError, match="closed"):
            use()


def test_fed_arrays_that_are_saved_are_copied(g: sg.Graph) -> None:
    x, w = sg.placeholder((2,)), leaf(2)
    y = sg.sum(x * w)
    sess = sg.Session(g)
    a, b = f32(1, 2), f32(3, 4)
    tape = sess.forward(y, {x: a, w: b})
    a[...] = b[...] = 0
    tape.backward(y)
    assert sess.grad(w).tolist() == [1, 2]


def test_a_large_operand_that_is_only_compared_is_kept_as_a_mask(g: sg.Graph) -> None:
    x = leaf(1024)
    y = sg.sum(sg.nn.relu(x + 1))
    sess = sg.Session(g)
    at = np.linspace(-2, 0, 1024, dtype=np.float32)
    tape = sess.forward(y, {x: at})
    assert tape.memory.saved_bytes <= 4096
    tape.backward(y)
    np.testing.assert_array_equal(sess.grad(x), (at + 1 > 0).astype(np.float32))


def test_a_budget_computes_again_what_it_does_not_keep(g: sg.Graph) -> None:
    x = leaf(256)
    y = x
    for _ in range(6):
        y = sg.sin(y)
    y = sg.sum(y)
    sess = sg.Session(g)
    at = np.linspace(-1, 1, 256, dtype=np.float32)
    results, sizes = [], []
    for budget in (None, 3 * 1024, 1024):
        sess.zero_grad()
        tape = sess.forward(y, {x: at}, memory_budget=budget)
        sizes.append(tape.memory.saved_bytes)
        tape.backward(y)
        results.append(sess.grad(x))
        with pytest.raises(sg.BuffersFreedError):  # the rule knows nothing of budgets
            tape.backward(y)
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[1] <= 3 * 1024
    assert sizes[2] <= 1024
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-6, atol=1e-7)


def test_the_report_can_be_drawn(g: sg.Graph, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    x = leaf(16)
    y = sg.sum(sg.exp(x))
    tape = sg.Session(g).forward(y, {x: np.zeros(16, np.float32)})
    tape.memory.plot(tmp_path / "tape.png")
    assert (tmp_path / "tape.png").stat().st_size > 1000


# -- what is refused changes nothing ----------------------------------------------------------------------------------


def test_a_refused_backward_changes_nothing(g: sg.Graph) -> None:
    x = leaf(3)
    log = Log()
    h = x * x
    h.register_hook(log.hook("h"))
    h.retain_grad()
    a, b = sg.sum(h), sg.sum(h * h)
    w = sg.Variable(f32(1, 1, 1))
    c = sg.sum(x * w)
    sess = sg.Session(g)
    tape = sess.forward([a, b, c], {x: f32(1, 2, 3)})
    tape.backward(a)
    sess.set(w, f32(2, 2, 2))

    def state() -> tuple[Any, ...]:
        return sess.grad(x).tolist(), sess.grad(h).tolist(), sess.grad(w), tape.memory, tape[a], tape[b]

    before = state()
    assert log.take() == [("h", [1, 1, 1])]
    refused: list[tuple[Any, Any, type[Exception]]] = [
        (b, None, sg.BuffersFreedError),
        (c, None, sg.StateChangedError),
        ([a, b, c], None, sg.BuffersFreedError),
        (a, f32(1, 2), sg.GradientError),
        (x, None, sg.FetchError),
        ([], None, sg.FetchError),
    ]
    for outputs, grad, error in refused:
        with pytest.raises(error):
            tape.backward(outputs, grad=grad)
        assert state() == before
        assert log.take() == []


@pytest.mark.parametrize("change", ["set", "assign", "step", "restore"])
def test_a_saved_variable_that_changes_is_refused(g: sg.Graph, change: str, tmp_path: Path) -> None:
    x = sg.placeholder((2,))
    w, free = sg.Variable(f32(1, 2), name="w"), sg.Variable(f32(5, 6), name="free")
    y = sg.sum(w * w * x + free)
    train = sg.optim.SGD(lr=0.1).apply_gradients([(sg.ones((2,)), w)])
    write, write_free = sg.assign(w, w * 2), sg.assign(free, free * 2)
    sess = sg.Session(g)
    feeds = {x: f32(1, 1)}
    sess.save(tmp_path / "state")
    tape = sess.forward(y, feeds)
    sess.set(free, f32(0, 0))  # addition does not save it
    sess.run(write_free)
    {
        "set": lambda: sess.set(w, f32(1, 2)),
        "assign": lambda: sess.run(write),
        "step": lambda: sess.run(train),
        "restore": lambda: sess.restore(tmp_path / "state"),
    }[change]()
    with pytest.raises(sg.StateChangedError, match=r"(?s)'w'.*test_tapes\.py") as caught:
        tape.backward(y)
    assert isinstance(caught.value, RuntimeError)
    assert sess.grad(w) is None
    assert sess.grad(free) is None
    sess.set(w, f32(3, 3))
    tape = sess.forward(y, feeds)
    sess.set(free, f32(9, 9))
    tape.backward(y)
    assert sess.grad(w).tolist() == [6, 6]
    assert sess.grad(free).tolist() == [1, 1]


def test_a_variable_that_another_output_saved_may_change(g: sg.Graph) -> None:
    x, w = leaf(2), sg.Variable(f32(1, 2))
    a, b = sg.sum(x * w), sg.sum(sg.exp(x))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: f32(0, 0)})
    sess.set(w, f32(0, 0))
    tape.backward(b)
    assert sess.grad(x).tolist() == [1, 1]
    with pytest.raises(sg.StateChangedError):
        tape.backward(a)


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_the_gradient_of_dropout_uses_the_mask_of_its_value(g: sg.Graph) -> None:
    x = leaf(400)
    y = sg.nn.dropout(x, 0.5)
    total = sg.sum(y)
    (dx,) = sg.gradients(total, x)
    sess = sg.Session(g, seed=3)
    ones = {x: np.ones(400, np.float32)}
    value, gradient = sess.run([y, dx], ones)
    np.testing.assert_array_equal(value, gradient)
    assert set(np.unique(value)) == {0, 2}
    tapes = [sess.forward([y, total], ones) for _ in range(3)]
    sess.run(y, ones)  # draws of other runs don't matter
    for tape in reversed(tapes):
        for budget_free in (True, False):
            sess.zero_grad()
            tape.backward(total, retain_graph=budget_free)
            np.testing.assert_array_equal(sess.grad(x), tape[y])
    assert not np.array_equal(tapes[0][y], tapes[1][y])


def test_a_budget_does_not_change_what_was_drawn(g: sg.Graph) -> None:
    x = leaf(400)
    h = sg.nn.dropout(sg.exp(x), 0.5)
    total = sg.sum(h * h)
    sess = sg.Session(g, seed=3)
    tape = sess.forward([h, total], {x: np.zeros(400, np.float32)}, memory_budget=0)
    tape.backward(total)
    np.testing.assert_array_equal(sess.grad(x), 4 * tape[h])


# -- histories --------------------------------------------------------------------------------------------------------


def test_a_backward_that_another_tape_has_had_looks_at_no_graph(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = leaf(3), sg.Variable(f32(1, 2, 3))
    h = sg.exp(x) * w
    a, b = sg.sum(h * h), sg.sum(sg.sin(h))
    sess = sg.Session(g)
    admitted: list[Any] = []
    admit = Ledger.admit
    monkeypatch.setattr(Ledger, "admit", lambda *args: admitted.append(args) or admit(*args))
    found = []
    for order in (None, None, [a, b, a], [a, b, a]):
        sess.zero_grad()
        tape = sess.forward([a, b], {x: f32(0, 1, 2)}, backward_order=order)
        for y, retain in ((a, True), (b, True), (a, False)):
            tape.backward(y, retain_graph=retain)
        with pytest.raises(sg.StaticGradError):
            tape.backward(b)
        found.append((sess.grad(x).tolist(), sess.grad(w).tolist(), tape.memory.live_bytes, len(admitted)))
        admitted.clear()
    assert found[0][:3] == found[1][:3]
    assert found[2][:3] == found[3][:3]
    assert [count for *_, count in found] == [4, 1, 4, 1]  # what is refused is asked about each time


def test_retaining_again_and_again_is_one_step(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(2)
    y = sg.sum(x * x)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2)})
    tape.backward(y, retain_graph=True)
    monkeypatch.setattr(Ledger, "admit", None)
    for _ in range(400):
        tape.backward(y, retain_graph=True)
    assert sess.grad(x).tolist() == [802, 1604]
    assert sess.compile_count == 2


def test_the_message_names_the_call_that_gave_the_values_back(g: sg.Graph) -> None:
    x = leaf(2)
    a, b = sg.sum(x * x), sg.sum(sg.exp(x))
    sess = sg.Session(g)
    for retained in (2, 0):
        tape = sess.forward([a, b], {x: f32(1, 2)})
        for _ in range(retained):
            tape.backward(a, retain_graph=True)
        tape.backward(b)
        tape.backward(a)
        for y, number in ((b, retained + 1), (a, retained + 2)):
            with pytest.raises(sg.BuffersFreedError, match=f"backward number {number} .of {y.name!r}"):
                tape.backward(y)


def test_a_backward_of_the_same_tape_inside_a_backward_counts_too(g: sg.Graph) -> None:
    x = leaf(2)
    a, b = sg.sum(x * x), sg.sum(sg.exp(x))
    tape: list[Any] = []

    def inside(value: Array) -> None:
        if tape:
            tape.pop().backward(b)

    a.register_hook(lambda grad: sg.py_call(inside, [grad], []) and None)
    sess = sg.Session(g)
    outer = sess.forward([a, b], {x: f32(0, 0)})
    tape.append(outer)
    outer.backward(a)
    assert sess.grad(x).tolist() == [1, 1]
    assert outer.memory.live_bytes == 0
    for y in (a, b):
        with pytest.raises(sg.BuffersFreedError):
            outer.backward(y)


def test_zeroed_gradients_begin_anew(g: sg.Graph) -> None:
    x = leaf(None)
    y = sg.sum(x * x)
    sess = sg.Session(g)
    for count in (2, 2, 3, 2):
        sess.zero_grad()
        sess.zero_grad()
        at = np.arange(count, dtype=np.float32)
        tape = sess.forward(y, {x: at})
        assert sess.grad(x) is None
        tape.backward(y, retain_graph=True)
        once = sess.grad(x)
        tape.backward(y)
        np.testing.assert_array_equal(once, 2 * at)
        np.testing.assert_array_equal(sess.grad(x), 4 * at)


def test_a_block_goes_back_when_nobody_works_in_it(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(sg.exp(x))
    tape = sg.Session(g).forward(y, {x: f32(1, 2)})
    idle, used = tape._programs.blocks.idle, tape._kept  # as a backward does that runs in another thread
    tape.close()
    assert not idle
    del used
    assert len(idle) == 1


# -- threads ----------------------------------------------------------------------------------------------------------


def test_tapes_in_several_threads_count_every_gradient(g: sg.Graph) -> None:
    x, w = sg.placeholder((8,)), sg.Variable(np.ones(8, np.float32))
    y = sg.sum(x * w * w)
    sess = sg.Session(g)

    def work(number: int) -> None:
        for _ in range(25):
            with sess.forward(y, {x: np.full(8, number + 1, np.float32)}) as tape:
                assert tape[y] == 8 * (number + 1)
                tape.backward(y)

    in_threads(4, work)
    np.testing.assert_array_equal(sess.grad(w), np.full(8, 2 * 25 * (1 + 2 + 3 + 4)))


def test_of_threads_that_consume_one_tape_one_succeeds(g: sg.Graph) -> None:
    x = leaf(4)
    h = sg.exp(x)
    y = sg.sum(h * h)
    sess = sg.Session(g)
    succeeded: list[int] = []

    def work(number: int) -> None:
        for retain in (True, True, False):
            with contextlib.suppress(sg.BuffersFreedError):
                tape.backward(y, retain_graph=retain)
                succeeded.append(number)

    for _ in range(20):
        sess.zero_grad()
        succeeded.clear()
        tape = sess.forward(y, {x: np.zeros(4, np.float32)})
        in_threads(3, work)
        assert 3 <= len(succeeded) <= 7
        np.testing.assert_array_equal(sess.grad(x), np.full(4, 2 * len(succeeded)))
        assert tape.memory.live_bytes == 0
