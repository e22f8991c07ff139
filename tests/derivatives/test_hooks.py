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


def test_a_gradient_of_another_float_width_from_a_hook_is_cast(g: sg.Graph) -> None:
    """It was refused."""
    x = leaf(2)
    log = Log()
    x.register_hook(lambda grad: sg.astype(grad, sg.float64) * 2)
    x.register_hook(log.hook("x"))
    y = sg.sum(x * 3)
    sess = sg.Session(g)
    sess.forward(y, {x: f32(0, 0)}).backward(y)
    assert log.take() == [("x", [6, 6])]
    assert sess.grad(x).dtype == np.float32


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


@pytest.mark.parametrize("wrong", [lambda grad: sg.sum(grad), lambda grad: grad.astype(sg.int64), lambda grad: "no"])
def test_a_hook_must_return_a_floating_gradient_of_the_same_shape(
    g: sg.Graph, wrong: Callable[[sg.Tensor], Any]
) -> None:
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


def test_an_optimizer_steps_inside_the_backward(g: sg.Graph) -> None:
    x, t = sg.placeholder((8, 3)), sg.placeholder((8, 2))
    first, second = (sg.Variable(np.full(shape, 0.1, np.float32)) for shape in ((3, 4), (4, 2)))
    loss = sg.nn.mse_loss(sg.tanh(x @ first) @ second, t)
    draw = np.random.default_rng(0)
    feeds = {x: draw.normal(size=(8, 3)).astype(np.float32), t: draw.normal(size=(8, 2)).astype(np.float32)}
    train = sg.optim.Adam(lr=0.1).minimize(loss)
    plain = sg.Session(g)
    expected = [plain.run([loss, train], feeds)[0] for _ in range(4)]

    steps = {w: sg.optim.Adam(lr=0.1) for w in (first, second)}
    handles = [w.register_post_accumulate_grad_hook(lambda w: steps[w].step([w])) for w in (first, second)]
    sess = sg.Session(g)
    for value in expected:
        tape = sess.forward(loss, feeds)
        np.testing.assert_allclose(tape[loss], value, rtol=1e-5)
        tape.backward(loss)
        sess.zero_grad()
    np.testing.assert_allclose(sess.get(first), plain.get(first), rtol=1e-5)
    before = sess.get(second)
    sess.forward(loss, feeds).backward(loss, inputs=[first])
    np.testing.assert_array_equal(sess.get(second), before)
    assert (sess.get(first) != plain.get(first)).any()
    for handle in handles:
        handle.remove()
    before = sess.get(first)
    sess.forward(loss, feeds).backward(loss)
    np.testing.assert_array_equal(sess.get(first), before)


@pytest.mark.parametrize("form", ["elementwise", "reduced", "turned", "product"])
def test_a_post_accumulate_grad_hook_sees_the_sum_so_far(g: sg.Graph, form: str) -> None:
    x = sg.placeholder((3, 3), sg.float64)
    w = sg.Variable(np.eye(3))
    seen = sg.Variable(np.zeros((3, 3)), trainable=False)
    y = sg.sum(x @ w)
    forms: dict[str, Any] = {
        "elementwise": lambda v: v * 2.0,
        "reduced": lambda v: v / v.sum(),
        "turned": lambda v: v.T + v,
        "product": lambda v: v @ v,
    }

    def note(leaf: sg.Tensor) -> None:
        assert leaf is w
        sg.assign(seen, forms[form](sg.accumulated_grad(w)))

    w.register_post_accumulate_grad_hook(note)
    sess = sg.Session(g)
    value = np.arange(9.0).reshape(3, 3)
    total = np.zeros((3, 3))
    for _ in range(3):
        tape = sess.forward(y, {x: value})
        for retain in (True, False):
            tape.backward(y, retain_graph=retain)
            total = total + value.T @ np.ones((3, 3))
            np.testing.assert_allclose(sess.grad(w), total)
            np.testing.assert_allclose(sess.get(seen), forms[form](total))


def test_post_accumulate_grad_hooks_have_a_price(g: sg.Graph) -> None:
    w = sg.Variable(np.ones((4, 4), np.float32))
    y = sg.sum(w * w)
    opt = sg.optim.SGD(lr=0.1)

    def step(leaf: sg.Tensor) -> None:
        opt.step([leaf])

    w.register_post_accumulate_grad_hook(step)
    sess = sg.Session(g)
    prices = sess.forward(y).memory.prices
    if sess.forward(y).memory.peak_bytes:  # the interpreter plans nothing
        assert [price.what for price in prices] == [f"post accumulate grad hook 'step' of {w.name!r}"]
        assert prices[0].moved_bytes > 0


def test_post_accumulate_grad_hooks_that_cannot_work_are_refused(g: sg.Graph) -> None:
    w, other = (sg.Variable(np.ones(2, np.float32)) for _ in range(2))
    h = w * other
    with pytest.raises(sg.GradientError, match="are for leaves that require grad"):
        h.register_post_accumulate_grad_hook(lambda leaf: None)
    with pytest.raises(sg.GradientError, match="are for leaves that require grad"):
        sg.placeholder((2,)).register_post_accumulate_grad_hook(lambda leaf: None)
    with pytest.raises(sg.GraphError, match="expected a function"):
        w.register_post_accumulate_grad_hook(3)
    with pytest.raises(sg.GraphError, match=r"reads the accumulated gradient 'variable_1:0'"):
        w.register_post_accumulate_grad_hook(lambda leaf: sg.print(sg.accumulated_grad(other)))


def test_a_post_accumulate_grad_hook_refuses_gradients_that_were_declared_before_it(g: sg.Graph) -> None:
    w, other = (sg.Variable(np.ones(2, np.float32)) for _ in range(2))
    seen = sg.Variable(np.zeros(2, np.float32), trainable=False)
    for before in (sg.accumulated_grad(w), sg.accumulated_grad(w) * 2, sg.accumulated_grad(other) + 1):
        with pytest.raises(sg.GraphError, match=r"gradient 'variable(_1)?:0', which was declared before it"):
            w.register_post_accumulate_grad_hook(lambda leaf, before=before: sg.assign(seen, before))
    assert not w.accumulation_hooks


def test_accumulated_gradients_that_there_never_are_are_refused(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    for wrong in (sg.constant([1, 2]), sg.constant([1.0]), x * 2):
        with pytest.raises(sg.GradientError, match="accumulated_grad: no gradient adds up for"):
            sg.accumulated_grad(wrong)
    with pytest.raises(sg.GraphError, match="accumulated_grad: expected a tensor, actual 3"):
        sg.accumulated_grad(3)
    y = x * 2
    y.retain_grad()
    assert [sg.accumulated_grad(t).shape for t in (x, y)] == [(2,), (2,)]


@pytest.mark.parametrize("form", ["elementwise", "reduced", "product"])
def test_what_a_hook_makes_of_a_variable_is_of_its_value_in_the_backward(g: sg.Graph, form: str) -> None:
    x = sg.placeholder((4, 4), sg.float64, requires_grad=True)
    state = sg.Variable(np.full((4, 4), 0.5), trainable=False)
    forms: dict[str, Any] = {
        "elementwise": lambda v: v * 0.5,
        "reduced": lambda v: v * v.sum(),
        "product": lambda v: v @ v,
    }
    h = x * x
    h.register_hook(lambda grad: sg.assign(state, forms[form](state)))
    y = sg.sum(h)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: np.ones((4, 4))})
    expected = np.full((4, 4), 0.5)
    for _ in range(3):
        tape.backward(y, retain_graph=True)
        expected = forms[form](expected)
        np.testing.assert_allclose(sess.get(state), expected)


@pytest.mark.parametrize("size", [8, 100])
def test_a_hook_multiplies_by_the_gradient_that_it_adds_to(g: sg.Graph, size: int) -> None:
    """A product stored the sum into the operand that it was still reading."""
    w = sg.Variable(np.eye(size, dtype=np.float32))
    x = sg.placeholder((size, size))
    w.register_hook(lambda grad: sg.matmul(grad, sg.accumulated_grad(w)) + grad)
    y = sg.sum(x @ w)
    sess = sg.Session(g)
    before = np.tri(size, dtype=np.float32) / size
    sess.set_grad(w, before)
    value = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    sess.forward(y, {x: value}).backward(y)
    given = value.sum(0)[:, None] * np.ones((1, size))
    np.testing.assert_allclose(sess.grad(w), before + given @ before + given, rtol=1e-4, atol=1e-3)


def test_what_a_post_accumulate_hook_declares_without_operands_is_of_the_backward(g: sg.Graph) -> None:
    """A constant and a draw behind an assignment were computed by the forward, which ran the assignment, too."""
    x = sg.placeholder((3,))
    w, count, noise = sg.Variable(np.ones(3, np.float32)), sg.Variable(np.float32(0)), sg.Variable(np.zeros(3, "f4"))

    def hook(parameter: sg.Tensor) -> sg.Tensor:
        step = sg.assign(w, w - 0.1 * sg.accumulated_grad(w))
        with sg.control_dependencies([step]):
            return sg.group(step, sg.assign(count, count + 1.0), sg.assign(noise, sg.random.uniform((3,))))

    w.register_post_accumulate_grad_hook(hook)
    y = sg.sum(w * x)
    sess = sg.Session(g, seed=3)
    tape = sess.forward(y, {x: f32(1, 1, 1)})
    assert sess.get(w).tolist() == [1, 1, 1]
    drawn = []
    for number, left in enumerate((0.9, 0.7, 0.4), 1):
        tape.backward(y, retain_graph=True)
        np.testing.assert_allclose(sess.get(w), np.full(3, left), rtol=1e-6)
        assert sess.get(count) == number
        drawn.append(sess.get(noise).tolist())
    assert len(set(map(tuple, drawn))) == 3
