"""The gradients that backwards of a tape leave: of leaves, variables and retained tensors, for which outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.budgets import within
from support.declaring import Log, f32, leaf

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend")


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
    with pytest.raises(sg.GradientError, match=r"(?s)'plain'.*does not require grad.*test_tape_gradients\.py"):
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
    assert "test_tape_gradients.py" in str(caught.value)
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
        assert "test_tape_gradients.py" in str(caught.value)
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
        tape = within(budget, lambda least: sess.forward(loss, feeds, memory_budget=least))
        tape.backward(loss, retain_graph=True)
        tape.backward(loss)
        for v, expected in zip((w1, b1, w2), values, strict=True):
            np.testing.assert_allclose(sess.grad(v), 2 * expected, rtol=1e-5, atol=1e-6)


def test_a_fed_tensor_that_is_no_leaf_is_a_leaf_of_that_tape(g: sg.Graph) -> None:
    x = leaf(2)
    log = Log()
    h = sg.identity(x * 3.0, name="h")
    h.register_hook(log.hook("h"))
    y = sg.sum(h * h)
    sess = sg.Session(g)
    sess.forward(y, {h: f32(1, 2)}).backward(y)
    assert sess.grad(h).tolist() == [2, 4]
    assert sess.grad(x) is None
    assert log.take() == [("h", [2, 4])]
    sess.zero_grad()
    sess.forward(y, {x: f32(1, 2)}).backward(y)
    assert sess.grad(h) is None
    assert sess.grad(x).tolist() == [18, 36]
    sess.zero_grad()
    sess.forward(h, {h: f32(1, 2)}).backward(h, f32(5, 6))
    assert sess.grad(h).tolist() == [5, 6]


def test_inputs_name_the_tensors_that_accumulate(g: sg.Graph) -> None:
    x, z, other = leaf(2), leaf(2), leaf(2)
    log = Log()
    h = x * x
    k = z * z
    h.register_hook(log.hook("h"))
    k.register_hook(log.hook("k"))
    x.register_hook(log.hook("x"))
    k.retain_grad()
    y = sg.sum(h + k)
    sess = sg.Session(g)
    feeds = {x: f32(1, 2), z: f32(3, 4)}
    tape = sess.forward(y, feeds)
    tape.backward(y, inputs=z)
    assert log.take() == [("k", [1, 1])]
    assert sess.grad(x) is None
    assert sess.grad(z).tolist() == [6, 8]
    assert sess.grad(k).tolist() == [1, 1]
    tape.backward(y, inputs=[x, other])  # what leads to x was not spent
    assert sess.grad(x).tolist() == [2, 4]
    assert sess.grad(other) is None
    assert log.take() == [("h", [1, 1]), ("x", [2, 4])]
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y, inputs=[z])
    sess.zero_grad()
    again = sess.forward(y, feeds)
    again.backward(y, retain_graph=True, inputs=[h])  # no leaf
    assert sess.grad(h).tolist() == [1, 1]
    assert sess.grad(x) is None
    again.backward(y)
    assert (sess.grad(x).tolist(), sess.grad(h).tolist()) == ([2, 4], [1, 1])


def test_inputs_that_are_wrong_are_refused(g: sg.Graph) -> None:
    x, plain = leaf(2), sg.placeholder((2,))
    y = sg.sum(x * plain)
    tape = sg.Session(g).forward(y, {x: f32(1, 2), plain: f32(1, 2)})
    with pytest.raises(sg.GradientError, match="inputs cannot be empty"):
        tape.backward(y, inputs=[])
    with pytest.raises(sg.GradientError, match=f"does not require grad: {plain.name!r}"):
        tape.backward(y, inputs=[plain])
    with pytest.raises(sg.FetchError, match="no tensor of this graph"):
        tape.backward(y, inputs=["x"])
    with pytest.raises(sg.GradientError, match=r"sg\.gradients"):
        tape.backward(y, create_graph=True)
    tape.backward(y)


_DRAWN: list[Callable[[sg.Tensor, sg.Tensor], sg.Tensor]] = [
    lambda a, b: a * b,
    lambda a, b: a + sg.sin(b),
    lambda a, b: sg.exp(-a * a),
    lambda a, b: a.detach() * b,
    lambda a, b: sg.scan(lambda c, _: (c * 0.5 + a, c * b), a, None, length=2)[1][1],
]


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(6))
def test_backwards_for_some_inputs_give_what_one_for_all_gives(g: sg.Graph, seed: int) -> None:
    draw = np.random.default_rng(seed)
    leaves = [leaf(3) for _ in range(4)]
    values = list(leaves)
    for _ in range(12):
        a, b = (values[i] for i in draw.integers(len(values), size=2))
        values.append(_DRAWN[draw.integers(len(_DRAWN))](a, b))
    y = sg.sum(values[-1] + values[-2] * values[-3])
    sess = sg.Session(g)
    feeds = {x: draw.normal(size=3).astype(np.float32) for x in leaves}
    sess.forward(y, feeds).backward(y)
    expected = [sess.grad(x) for x in values]
    some = [values[i] for i in draw.choice(len(values), size=3, replace=False) if values[i].requires_grad]
    sess.zero_grad()
    sess.forward(y, feeds).backward(y, inputs=some)
    for x, whole in zip(values, expected, strict=True):
        got = sess.grad(x)
        if x not in set(some):
            assert got is None
        elif x.is_leaf and whole is not None:
            np.testing.assert_allclose(got, whole, rtol=1e-5, atol=1e-6)
        elif got is not None:
            (symbolic,) = sg.gradients(y, x)
            np.testing.assert_allclose(got, sess.run(symbolic, feeds), rtol=1e-5, atol=1e-6)


def test_accumulated_gradients_are_written_and_removed(g: sg.Graph) -> None:
    x = leaf(2)
    w = sg.Variable(f32(1, 1))
    h = x * w
    y = sg.sum(h)
    step = sg.optim.SGD(lr=1.0).step([w])
    sess = sg.Session(g)
    given = f32(5, 6)
    sess.set_grad(w, given)
    given[...] = 0
    assert sess.grad(w).tolist() == [5, 6]
    sess.forward(y, {x: f32(1, 2)}).backward(y)
    assert sess.grad(w).tolist() == [6, 8]
    sess.set_grad(w, [1.0, 2.0])
    sess.run(step)
    assert sess.get(w).tolist() == [0, -1]
    sess.set_grad(w, None)
    assert sess.grad(w) is None
    assert sess.grad(x).tolist() == [1, 1]
    with pytest.raises(sg.GradientError, match=r"(?s)gradient of.*expected \(2,\).*actual   \(3,\)"):
        sess.set_grad(w, f32(1, 2, 3))
    with pytest.raises(sg.GradientError, match="no gradient adds up for"):
        sess.set_grad(h, f32(1, 2))
    with pytest.raises(sg.FetchError, match="no tensor"):
        sess.set_grad("w", None)


def test_hooks_that_cannot_work_are_refused_at_once(g: sg.Graph) -> None:
    x = leaf(2)
    with pytest.raises(sg.GraphError, match="expected a function of a gradient, actual 3"):
        x.register_hook(3)

    def body(carry: sg.Tensor, _: None) -> tuple[sg.Tensor, None]:
        (carry * 2).retain_grad()
        return carry, None

    with pytest.raises(sg.GradientError, match="belongs to the body of a loop or a branch"):
        sg.scan(body, x, None, length=2)
