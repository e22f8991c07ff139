"""Well-known examples of PyTorch's autograd, declared statically: the numbers and the refusals are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.declaring import leaf

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend")

AGAIN = "Trying to backward through the graph a second time"


# -- retain_graph -----------------------------------------------------------------------------------------------------


def test_two_losses_share_a_graph(g: sg.Graph) -> None:
    x = leaf(1, 4)
    y = x**2
    z = 4 * y
    loss1, loss2 = z.mean(), z.sum()
    sess = sg.Session(g)
    feeds = {x: [[1, 2, 3, 4]]}
    tape = sess.forward([loss1, loss2], feeds)
    assert tape[loss1] == 30
    assert tape[loss2] == 120
    tape.backward(loss1)
    np.testing.assert_array_equal(sess.grad(x), [[2, 4, 6, 8]])
    for kind in (sg.BuffersFreedError, RuntimeError):
        with pytest.raises(kind, match=AGAIN):
            tape.backward(loss2)
    np.testing.assert_array_equal(sess.grad(x), [[2, 4, 6, 8]])

    sess.zero_grad()
    tape = sess.forward([loss1, loss2], feeds)
    tape.backward(loss1, retain_graph=True)
    tape.backward(loss2)
    np.testing.assert_array_equal(sess.grad(x), [[10, 20, 30, 40]])


def test_the_sum_of_losses_is_one_backward(g: sg.Graph) -> None:
    x = leaf(1, 4)
    z = 4 * x**2
    total = z.mean() + z.sum()
    sess = sg.Session(g)
    sess.forward(total, {x: [[1, 2, 3, 4]]}).backward(total)
    np.testing.assert_array_equal(sess.grad(x), [[10, 20, 30, 40]])


def test_four_backwards_of_which_the_last_is_refused(g: sg.Graph) -> None:
    a = leaf(1, 4)
    b = a**2
    c = b * 2
    d, e = c.mean(), c.sum()
    sess = sg.Session(g)
    tape = sess.forward([d, e], {a: [[1, 2, 3, 4]]})
    by_d, by_e = np.array([[1, 2, 3, 4]]), np.array([[4, 8, 12, 16]])
    tape.backward(d, retain_graph=True)
    np.testing.assert_array_equal(sess.grad(a), by_d)
    tape.backward(e, retain_graph=True)
    np.testing.assert_array_equal(sess.grad(a), by_d + by_e)
    tape.backward(d)
    np.testing.assert_array_equal(sess.grad(a), 2 * by_d + by_e)
    with pytest.raises(sg.BuffersFreedError, match=AGAIN) as caught:
        tape.backward(e)
    assert "backward number 3" in str(caught.value)
    assert repr(d.name) in str(caught.value)
    assert "retain_graph=True" in str(caught.value)
    assert "test_tutorials.py" in str(caught.value)
    np.testing.assert_array_equal(sess.grad(a), 2 * by_d + by_e)


def test_gradients_add_up_until_they_are_zeroed(g: sg.Graph) -> None:
    w = leaf()
    y = w * 3
    sess = sg.Session(g)
    assert sess.grad(w) is None
    for expected in (3, 6):
        tape = sess.forward(y, {w: 2.0})
        tape.backward(y)
        assert sess.grad(w) == expected
    sess.zero_grad()
    assert sess.grad(w) is None
    sess.forward(y, {w: 2.0}).backward(y)
    assert sess.grad(w) == 3


def trunk_of_convolutions(x: sg.Tensor) -> tuple[list[sg.Tensor], sg.Tensor]:
    rng = np.random.default_rng(0)
    sizes = ((4, 3), (4, 4), (5, 4))
    weights = [sg.Variable((rng.normal(size=(o, i, 3, 3)) / 6).astype(np.float32)) for o, i in sizes]
    for w in weights:
        x = sg.nn.relu(sg.nn.conv2d(x, w, padding=1))
    return weights, x


def test_a_shared_trunk_of_convolutions_with_two_heads(g: sg.Graph) -> None:
    x = sg.placeholder((2, 3, 8, 8))
    weights, trunk = trunk_of_convolutions(x)
    wide = sg.nn.avg_pool2d(trunk, 8).reshape(2, 5)
    left = sg.Variable(np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5))
    right = sg.Variable(np.linspace(1, -1, 10, dtype=np.float32).reshape(2, 5))
    one = sg.nn.cross_entropy(sg.nn.linear(wide, left), np.array([0, 2]))
    two = sg.mean(sg.nn.linear(wide, right) ** 2)
    expected = sg.gradients(one + two, [*weights, left, right])
    image = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    sess = sg.Session(g)

    tape = sess.forward([one, two], {x: image})
    tape.backward(one)
    with pytest.raises(sg.BuffersFreedError, match=AGAIN):
        tape.backward(two)
    assert sess.grad(right) is None

    sess.zero_grad()
    tape = sess.forward([one, two], {x: image})
    tape.backward(one, retain_graph=True)
    assert sess.grad(right) is None
    tape.backward(two)
    for w, wanted in zip([*weights, left, right], sess.run(expected, {x: image}), strict=True):
        np.testing.assert_allclose(sess.grad(w), wanted, rtol=2e-5, atol=2e-6)
        assert np.abs(wanted).max() > 1e-3

    sess.zero_grad()
    tape = sess.forward([one, two], {x: image}, backward_order=[one, two])
    tape.backward(one)
    tape.backward(two)
    assert tape.memory.live_bytes == 0
    for w, wanted in zip([*weights, left, right], sess.run(expected, {x: image}), strict=True):
        np.testing.assert_allclose(sess.grad(w), wanted, rtol=2e-5, atol=2e-6)


# -- hooks and retained gradients -------------------------------------------------------------------------------------


def quadratic() -> tuple[sg.Tensor, sg.Tensor, sg.Tensor, sg.Tensor]:
    """x, y = x + 2, z = 3 y² and its mean."""
    x = leaf(2, 2)
    y = x + 2
    z = y * y * 3
    return x, y, z, z.mean()


ONES = np.ones((2, 2), np.float32)


def test_the_mean_of_a_square(g: sg.Graph) -> None:
    x, y, z, out = quadratic()
    assert y.grad_fn is not None
    assert y.grad_fn.name == "AddBackward0"
    sess = sg.Session(g)
    tape = sess.forward([out, z], {x: ONES})
    assert tape[out] == 27
    np.testing.assert_array_equal(tape[z], 27 * ONES)
    tape.backward(out)
    np.testing.assert_array_equal(sess.grad(x), 4.5 * ONES)
    assert sess.grad(y) is None


def test_a_hook_and_a_retained_gradient_see_the_same(g: sg.Graph, capfd: pytest.CaptureFixture[str]) -> None:
    x, y, _, out = quadratic()
    y.register_hook(lambda grad: sg.print(grad, "grad of y"))
    y.retain_grad()
    sess = sg.Session(g)
    tape = sess.forward(out, {x: ONES})
    assert "grad of y" not in capfd.readouterr().out
    tape.backward(out)
    printed = capfd.readouterr().out
    assert printed.count("grad of y") == 1
    assert printed.count("4.5") == 4
    np.testing.assert_array_equal(sess.grad(y), 4.5 * ONES)
    np.testing.assert_array_equal(sess.grad(x), 4.5 * ONES)


def test_a_hook_prints_once_for_each_backward(g: sg.Graph, capfd: pytest.CaptureFixture[str]) -> None:
    x, y, _, out = quadratic()

    def hook(grad: sg.Tensor) -> None:
        sg.print(grad, "hooked")

    y.register_hook(hook)
    sess = sg.Session(g)
    tape = sess.forward(out, {x: ONES})
    for count in (1, 2, 3):
        tape.backward(out, retain_graph=True)
        assert capfd.readouterr().out.count("hooked") == 1
        np.testing.assert_array_equal(sess.grad(x), 4.5 * count * ONES)


def test_a_hook_that_doubles(g: sg.Graph) -> None:
    v = leaf(3)
    handle = v.register_hook(lambda grad: grad * 2)
    sess = sg.Session(g)
    y = sg.sum(v * 1)
    tape = sess.forward(v, {v: [0, 0, 0]})
    tape.backward(v, grad=[1, 2, 3])
    np.testing.assert_array_equal(sess.grad(v), [2, 4, 6])
    handle.remove()
    sess.zero_grad()
    sess.forward(y, {v: [0, 0, 0]}).backward(y)
    np.testing.assert_array_equal(sess.grad(v), [1, 1, 1])


def test_the_chain_of_a_linear_unit(g: sg.Graph) -> None:
    x, w, b = sg.placeholder(()), leaf(), leaf()
    y = w * x
    z = y + b
    assert (x.requires_grad, w.requires_grad, y.requires_grad, z.requires_grad) == (False, True, True, True)
    assert (x.is_leaf, w.is_leaf, b.is_leaf, y.is_leaf, z.is_leaf) == (True, True, True, False, False)
    y.retain_grad()
    sess = sg.Session(g)
    tape = sess.forward(z, {x: 3, w: 0.5, b: 1})
    tape.backward(z, retain_graph=True)
    assert (sess.grad(w), sess.grad(b), sess.grad(y), sess.grad(x)) == (3, 1, 1, None)
    tape.backward(z)
    assert (sess.grad(w), sess.grad(b), sess.grad(y)) == (6, 2, 2)


def test_vector_jacobian_products_add_up(g: sg.Graph) -> None:
    inp = leaf(4, 5)
    out = ((inp + 1) ** 2).T
    sess = sg.Session(g)
    tape = sess.forward(out, {inp: np.eye(4, 5, dtype=np.float32)})
    ones = np.ones((5, 4), np.float32)
    wanted = 2 * np.eye(4, 5) + 2
    tape.backward(out, grad=ones, retain_graph=True)
    np.testing.assert_array_equal(sess.grad(inp), wanted)
    tape.backward(out, grad=ones, retain_graph=True)
    np.testing.assert_array_equal(sess.grad(inp), 2 * wanted)
    sess.zero_grad()
    tape.backward(out, grad=ones, retain_graph=True)
    np.testing.assert_array_equal(sess.grad(inp), wanted)


def test_a_weighted_gradient_of_a_vector(g: sg.Graph) -> None:
    x = leaf(3)
    y = x * 2
    for _ in range(9):
        y = y * 2
    sess = sg.Session(g)
    sess.forward(y, {x: [0.1, -0.4, 0.3]}).backward(y, grad=[0.1, 1.0, 0.0001])
    np.testing.assert_allclose(sess.grad(x), [102.4, 1024, 0.1024], rtol=1e-6)


# -- what requires a gradient -----------------------------------------------------------------------------------------


def test_no_grad_cuts_one_path(g: sg.Graph) -> None:
    x = leaf()
    y1 = x * 1
    with sg.no_grad():
        y2 = x**3
        with sg.enable_grad():
            inner = x * 1
    y3 = y1 + y2
    assert (x.requires_grad, y1.requires_grad, y2.requires_grad, y3.requires_grad) == (True, True, False, True)
    assert inner.requires_grad
    assert y2.grad_fn is None
    assert y2.is_leaf
    sess = sg.Session(g)
    tape = sess.forward([y3, y2], {x: 1.0})
    tape.backward(y3)
    assert tape[y3] == 2
    assert sess.grad(x) == 1
    with pytest.raises(sg.GradientError, match="does not require grad and does not have a grad_fn"):
        tape.backward(y2)


def test_detach_cuts_one_path(g: sg.Graph) -> None:
    x = leaf()
    cut = (x**3).detach()
    out = x + cut
    also = x + sg.stop_gradient(x**3)
    assert not cut.requires_grad
    assert cut.is_leaf
    sess = sg.Session(g)
    tape = sess.forward([out, also], {x: 2.0})
    assert tape[out] == tape[also] == 10
    tape.backward([out, also])
    assert sess.grad(x) == 2
    assert sess.run(sg.gradients(also, x), {x: 2.0})[0] == 1


def test_requires_grad_is_asked_for_later(g: sg.Graph) -> None:
    x = sg.placeholder((2, 2))
    a = (x * 3) / (x - 3)
    assert not a.requires_grad
    assert a.requires_grad_() is a
    assert a.requires_grad
    assert a.is_leaf
    assert a.grad_fn is None
    b = (a * a).sum()
    assert b.grad_fn is not None
    assert b.grad_fn.name == "SumBackward0"
    sess = sg.Session(g)
    sess.forward(b, {x: [[1, 2], [4, 5]]}).backward(b)
    np.testing.assert_allclose(sess.grad(a), [[-3, -12], [24, 15]], rtol=1e-6)
    assert sess.grad(x) is None
    with pytest.raises(sg.GraphError, match="no leaf"):
        b.requires_grad_(False)
    a.requires_grad_(False)
    assert not (a * a).requires_grad


@pytest.mark.parametrize(
    "declare",
    [
        lambda: sg.placeholder((2,), sg.int64, requires_grad=True),
        lambda: sg.placeholder((2,), sg.int32, name="n").requires_grad_(),
        lambda: sg.constant([True, False]).requires_grad_(),
        lambda: sg.argmax(sg.placeholder((2,)), axis=0).requires_grad_(),
    ],
)
def test_integers_cannot_require_gradients(g: sg.Graph, declare: Callable[[], sg.Tensor]) -> None:
    for kind in (sg.GraphError, ValueError):
        with pytest.raises(kind, match="only floating-point tensors can require gradients") as caught:
            declare()
    assert "test_tutorials.py" in str(caught.value)


def test_leaves(g: sg.Graph) -> None:
    a = leaf(3)
    w = sg.Variable(np.ones(3, np.float32))
    frozen = sg.Variable(np.ones(3, np.float32), trainable=False)
    fixed = sg.constant([1.0, 2.0, 3.0])
    assert all(x.is_leaf for x in (a, w, frozen, fixed, fixed + 1, frozen * 2))
    assert not any(x.is_leaf for x in (a + 1, w * 2, a.reshape(3, 1)))
    assert [x.requires_grad for x in (a, w, frozen, fixed, w + a)] == [True, True, False, False, True]
    assert all(x.grad_fn is None for x in (a, w, fixed))


def names(x: sg.Tensor) -> tuple[str, list[tuple[str | None, int]]]:
    assert x.grad_fn is not None
    return x.grad_fn.name, [(f and f.name, i) for f, i in x.grad_fn.next_functions]


LEAF, NONE = ("AccumulateGrad", 0), (None, 0)


def test_backward_nodes_in_pytorchs_form(g: sg.Graph) -> None:
    x, v, w = leaf(2, 2), leaf(2, 2), sg.placeholder((2, 2))
    assert names(x + 2) == names(2 + x) == ("AddBackward0", [LEAF, NONE])
    assert names(x * 3) == names(3 * x) == ("MulBackward0", [LEAF, NONE])
    assert names(x - v) == ("SubBackward0", [LEAF, LEAF])
    assert names(x / 3) == ("DivBackward0", [LEAF, NONE])
    assert names(w * x) == ("MulBackward0", [NONE, LEAF])
    assert names(w @ x) == ("MmBackward0", [NONE, LEAF])
    assert names(x**2)[0] == "PowBackward0"
    assert names(x**2)[1][0] == LEAF
    assert names(x.mean()) == ("MeanBackward0", [LEAF])
    assert names(x.sum()) == ("SumBackward0", [LEAF])
    assert names(x.sum(1)) == ("SumBackward1", [LEAF])
    assert names(sg.exp(x)) == ("ExpBackward0", [LEAF])
    assert names(-x) == ("NegBackward0", [LEAF])
    assert names(sg.nn.relu(x)) == ("ReluBackward0", [LEAF])
    assert names(x.reshape(4)) == ("ViewBackward0", [LEAF])
    assert names(sg.concat([x, w, v])) == ("CatBackward0", [LEAF, NONE, LEAF])
    assert names(sg.maximum(x, w)) == ("MaximumBackward0", [LEAF, NONE])
    assert names(sg.where(w > 0, x, w)) == ("WhereBackward0", [LEAF, NONE])
    assert names(x.detach() * v) == ("MulBackward0", [NONE, LEAF])


def test_backward_nodes_are_walked(g: sg.Graph) -> None:
    x, _, z, out = quadratic()
    assert names(out) == ("MeanBackward0", [("MulBackward0", 0)])
    f = out.grad_fn
    path = []
    while f is not None and f.next_functions:
        path.append(f.name)
        f = f.next_functions[0][0]
    assert path == ["MeanBackward0", "MulBackward0", "MulBackward0", "AddBackward0"]
    assert f is not None
    assert f.name == "AccumulateGrad"
    assert f.next_functions == ()
    assert z.grad_fn == out.grad_fn.next_functions[0][0]
    again = x * x
    first, second = again.grad_fn.next_functions
    assert first == second


# -- higher orders ----------------------------------------------------------------------------------------------------


def test_derivatives_of_the_fourth_power(g: sg.Graph) -> None:
    x = sg.placeholder((3,), sg.float64)
    derivatives = [x**4]
    for _ in range(5):
        derivatives += sg.gradients(derivatives[-1], x, unconnected_gradients="zero")
    at = np.array([1.0, 2.0, -3.0])
    values = sg.Session(g).run(derivatives, {x: at})
    wanted = [at**4, 4 * at**3, 12 * at**2, 24 * at, np.full(3, 24.0), np.zeros(3)]
    for value, expected in zip(values, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-13)


def test_a_gradient_may_be_part_of_a_loss(g: sg.Graph) -> None:
    x = leaf()
    (dx,) = sg.gradients(x**3, x)
    penalty = dx**2  # 9 x⁴
    sess = sg.Session(g)
    tape = sess.forward(penalty, {x: 2.0})
    tape.backward(penalty)
    assert tape[penalty] == 144
    assert sess.grad(x) == 36 * 8


# -- loops ------------------------------------------------------------------------------------------------------------


def test_a_line_is_fitted(g: sg.Graph) -> None:
    x, t = sg.placeholder((20,)), sg.placeholder((20,))
    w, b = sg.Variable(0.0, name="w"), sg.Variable(0.0, name="b")
    loss = sg.mean((w * x + b - t) ** 2)
    step = sg.optim.SGD(lr=0.3).step()
    points = np.linspace(-1, 1, 20, dtype=np.float32)
    sess = sg.Session(g)
    for _ in range(60):
        sess.zero_grad()
        with sess.forward(loss, {x: points, t: 2 * points + 1}) as tape:
            tape.backward(loss)
        sess.run(step)
    np.testing.assert_allclose([sess.get(w), sess.get(b)], [2, 1], atol=1e-3)


def test_accumulating_over_parts_is_the_whole_batch(g: sg.Graph) -> None:
    x = sg.placeholder((None, 3))
    w = sg.Variable(np.ones((3, 1), np.float32))
    loss = sg.sum((x @ w) ** 2) / 8
    data = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    sess = sg.Session(g)
    for part in (data[:2], data[2:4], data[4:]):
        sess.forward(loss, {x: part}).backward(loss)
    np.testing.assert_allclose(sess.grad(w), data.T @ (data @ np.ones((3, 1))) / 4, rtol=1e-5)
