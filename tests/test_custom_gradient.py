"""``sg.custom_gradient``: rules of users in runs and tapes, of any order, with hooks, loops and recomputation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

X = np.array([0.5, -1.0, 2.0], np.float64)


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


@sg.custom_gradient
def clipped(x: Any) -> Any:
    """The identity, whose gradient is limited to [-1, 1]."""
    return sg.identity(x), lambda ct: sg.clip(ct, -1.0, 1.0)


@sg.custom_gradient
def exponential(x: Any) -> Any:
    y = sg.exp(x)
    return y, lambda ct: ct * y


@sg.custom_gradient
def product(a: Any, b: Any) -> Any:
    """Two results of two arguments; the gradient of ``a`` is three times the right one."""
    return {"sum": a + b, "product": a * b}, lambda s, p: (3 * (s + p * b), s + p * a)


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


def test_the_rule_takes_the_place_of_the_derivative() -> None:
    x = sg.constant(X)
    np.testing.assert_array_equal(run(sg.gradients(5 * clipped(x), [x])[0]), np.ones(3))
    np.testing.assert_array_equal(run(sg.gradients(-0.25 * clipped(x), [x])[0]), np.full(3, -0.25))


def test_values_are_those_of_the_function() -> None:
    np.testing.assert_allclose(run(exponential(sg.constant(X))), np.exp(X))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_any_order(order: int) -> None:
    x = sg.constant(X)
    y = exponential(2 * x)
    for _ in range(order):
        (y,) = sg.gradients(y, [x])
    np.testing.assert_allclose(run(y), 2**order * np.exp(2 * X), rtol=1e-12)


def test_forward_mode_uses_the_rule() -> None:
    x = sg.constant(X)
    (t,) = sg.jvp([exponential(x)], [x], [np.array([1.0, 2.0, 3.0])])
    np.testing.assert_allclose(run(t), np.exp(X) * [1, 2, 3], rtol=1e-12)
    a, b = sg.constant(X), sg.constant(X[::-1].copy())
    (t,) = sg.jvp([product(a, b)["product"]], [a], [np.ones(3)])
    np.testing.assert_allclose(run(t), 3 * X[::-1], rtol=1e-12)


def test_several_arguments_and_a_nest_of_results() -> None:
    a, b = sg.constant(X), sg.constant(X[::-1].copy())
    made = product(a, b)
    assert set(made) == {"sum", "product"}
    da, db = run(sg.gradients(made["product"], [a, b]))
    np.testing.assert_allclose(da, 3 * X[::-1])  # the cotangent of the unused sum is zeros
    np.testing.assert_allclose(db, X)


def test_tapes_save_what_the_rule_reads_and_refuse_a_second_backward() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    y = sg.sum(exponential(x))
    assert exponential(x).grad_fn is not None
    sess = sg.Session(sg.get_default_graph())
    tape = sess.forward(y, {x: X})
    tape.backward(y)
    np.testing.assert_allclose(sess.grad(x), np.exp(X))
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y)


def test_a_rule_that_reads_nothing_may_go_back_twice() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    y = sg.sum(clipped(x))
    sess = sg.Session(sg.get_default_graph())
    tape = sess.forward(y, {x: X})
    tape.backward(y)
    tape.backward(y)
    np.testing.assert_array_equal(sess.grad(x), np.full(3, 2.0))


def test_inside_a_loop_and_under_a_checkpoint() -> None:
    x = sg.constant(X)
    last, _ = sg.scan(lambda carry, _: (exponential(carry * 0.1), carry), x, None, length=3)
    (dx,) = sg.gradients(last, [x])
    plain = x
    for _ in range(3):
        plain = sg.exp(plain * 0.1)
    (expected,) = sg.gradients(plain, [x])
    got, want = run([dx, expected])
    np.testing.assert_allclose(got, want, rtol=1e-12)
    (again,) = sg.gradients(sg.checkpoint(lambda v: exponential(v * 0.1), x), [x])
    np.testing.assert_allclose(run(again), 0.1 * np.exp(0.1 * X), rtol=1e-12)


def test_hooks_and_retained_gradients_see_the_rules_result() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    h = 2 * x
    h.retain_grad()
    h.register_hook(lambda grad: grad * 10)
    y = sg.sum(exponential(h))
    sess = sg.Session(sg.get_default_graph())
    sess.forward(y, {x: X}).backward(y)
    np.testing.assert_allclose(sess.grad(h), 10 * np.exp(2 * X))
    np.testing.assert_allclose(sess.grad(x), 20 * np.exp(2 * X))


def test_gradients_flow_to_the_arguments_alone() -> None:
    x, other = sg.constant(X), sg.constant(X)

    @sg.custom_gradient
    def scaled(v: Any) -> Any:
        return v * other, lambda ct: ct * other

    dx, none = sg.gradients(scaled(x), [x, other])
    assert none is None
    np.testing.assert_allclose(run(dx), X)


def test_bad_rules_are_refused() -> None:
    x = sg.constant(X)

    @sg.custom_gradient
    def forgot(v: Any) -> Any:
        return v

    with pytest.raises(sg.GraphError, match=r"forgot.*results, rule"):
        forgot(x)

    @sg.custom_gradient
    def many(v: Any) -> Any:
        return v * 1.0, lambda ct: [ct, ct]

    with pytest.raises(sg.GradientError, match=r"many.*expected one for each.*1,.*actual 2"):
        sg.gradients(many(x), [x])

    @sg.custom_gradient
    def misshapen(v: Any) -> Any:
        return v * 1.0, sg.sum

    with pytest.raises(sg.GradientError, match="custom_gradient"):
        sg.gradients(misshapen(x), [x])
    with pytest.raises(sg.GraphError, match="expected a function"):
        sg.custom_gradient(3)
