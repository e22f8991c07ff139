"""Derivatives declared inside bodies by, or through, tensors that are declared outside: they equal those declared
plainly, in every kind of body, and so do derivatives of what the bodies give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

Make = Callable[[], Any]
W = np.array([1.0, 2.0, 3.0])
V = np.array([1.0, -1.0, 0.5])


@pytest.fixture(autouse=True)
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[sg.Graph]:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph() as graph:
        yield graph


def parts() -> sg.Tensor:
    return sg.constant(np.array([0.25, 0.75]))


def zeros() -> sg.Tensor:
    return sg.zeros((3,), dtype=sg.float64)


BODIES: dict[str, Callable[[Make], Any]] = {
    "scan": lambda make: sg.scan(lambda c, p: (c + make() * p, None), zeros(), parts())[0],
    "rows of a scan": lambda make: sg.scan(lambda c, p: (c, make() * p), 0.0, parts(), reverse=True)[1].sum(axis=0),
    "map": lambda make: sg.sum(sg.map(lambda p: make() * p, parts()), axis=0),
    "while": lambda make: sg.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + make() / 2), (0, zeros()), max_steps=3
    )[1],
    "cond": lambda make: sg.cond(sg.sum(parts()) > 0.5, make, zeros),
    "vmap": lambda make: sg.sum(sg.vmap(lambda p: make() * p)(parts()), axis=0),
    "checkpoint": lambda make: sg.checkpoint(lambda p: make() * p, sg.sum(parts())),
    "map in a cond in a scan": lambda make: BODIES["scan"](lambda: BODIES["cond"](lambda: BODIES["map"](make))),
    "vmap in a scan": lambda make: BODIES["scan"](lambda: BODIES["vmap"](make)),
    "while in a vmap": lambda make: BODIES["vmap"](lambda: BODIES["while"](make)),
    "scan in a checkpoint": lambda make: BODIES["checkpoint"](lambda: BODIES["scan"](make)),
}
OUTSIDE: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "elementwise": lambda w: w**2,
    "a product": lambda w: sg.matmul(sg.constant(np.outer(V, W)), sg.sin(w)),
    "a scan": lambda w: sg.scan(lambda c, r: (sg.tanh(c + r * w), c * r), w, sg.stack([w * w, sg.sin(w)]))[1][1],
    "a cond": lambda w: sg.cond(sg.sum(w) > 0.0, lambda: sg.cos(w) * w, lambda: w),
    "a while_loop": lambda w: sg.while_loop(
        lambda s: s[1] < 2, lambda s: (sg.sin(s[0]) * w, s[1] + 1), (w, 0), max_steps=3
    )[0],
    "a checkpoint": lambda w: sg.checkpoint(lambda a: sg.exp(sg.sin(a)) * a, w),
    "a gradient": lambda w: sg.gradients(sg.sum(sg.sin(w) ** 3), w)[0],
}  # fmt: skip


def gradient(h: sg.Tensor, w: sg.Tensor) -> Any:
    return sg.gradients(sg.sum(h * w), w, unconnected_gradients="error")[0]


def tangent(h: sg.Tensor, w: sg.Tensor) -> Any:
    return sg.jvp(h * h * w, w, V)[0]


def hessian_product(h: sg.Tensor, w: sg.Tensor) -> Any:
    (slope,) = sg.gradients(sg.sum(h * h * w), w)
    return sg.jvp(slope, w, V)[0]


def hessian(h: sg.Tensor, w: sg.Tensor) -> Any:
    return sg.hessian(sg.sum(h * h * w), w) @ V


def jacobian(h: sg.Tensor, w: sg.Tensor) -> Any:
    return sg.jacobian(h * w, w) @ V


def same(*groups: Any) -> None:
    found = [sg.nest.flatten(group) for group in sg.Session().run(list(groups))]
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("body", BODIES)
def test_a_tangent_of_a_slope_declared_outside_is_not_zero_inside_a_body(body: str) -> None:
    w = sg.Variable(W)
    (slope,) = sg.gradients(sg.sum(w**3), w)
    inside = BODIES[body](lambda: sg.jvp(slope, w, np.ones(3))[0])
    np.testing.assert_allclose(sg.Session().run(inside), [6, 12, 18])


@pytest.mark.parametrize("body", BODIES)
def test_a_gradient_through_a_tensor_declared_outside_is_no_partial_one_inside_a_body(body: str) -> None:
    w = sg.Variable(W)
    h = w**2
    inside = BODIES[body](lambda: gradient(h, w))
    np.testing.assert_allclose(sg.Session().run(inside), [3, 12, 27])


@pytest.mark.parametrize("derive", [gradient, tangent, hessian_product, hessian, jacobian])
@pytest.mark.parametrize("outside", OUTSIDE)
def test_what_stands_outside_of_the_body_is_derived_through(outside: str, derive: Callable[..., Any]) -> None:
    w = sg.Variable(W)
    h = OUTSIDE[outside](w)
    results = [
        derive(h, w),
        BODIES["scan"](lambda: derive(h, w)),
        BODIES["map in a cond in a scan"](lambda: derive(h, w)),
    ]
    losses = [sg.sum(sg.sin(z)) for z in results]
    again = [[sg.gradients(loss, w)[0], sg.jvp(loss, w, V)[0]] for loss in losses]
    same(*zip(results, again, strict=True))


def test_derivatives_in_bodies_agree_with_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")

    def descend(w: sg.Tensor, steps: sg.Tensor) -> sg.Tensor:
        h = sg.sin(w) * w

        def step(c: sg.Tensor, rate: sg.Tensor) -> Any:
            by_w, by_c = sg.gradients(sg.sum(h * c * c), [w, c])
            return c - rate * (by_w + sg.tanh(by_c)), None

        return sg.scan(step, w * 0.5, steps)[0]

    sg.check_gradients(descend, [W * 0.3, np.array([0.1, 0.2])], order=2)


def test_a_gradient_inside_a_body_is_weighted_by_what_the_turn_gives() -> None:
    w, rows = sg.Variable(W), sg.constant(np.stack([V, W]))
    h = sg.exp(w * 0.1)
    by_turn = sg.map(lambda row: sg.gradients(h, w, grad_ys=row)[0], rows)
    same(by_turn, sg.stack([sg.gradients(h, w, grad_ys=rows[k])[0] for k in range(2)]))


def test_carries_and_rows_are_given_to_the_body_and_no_derivative_goes_through_them() -> None:
    w = sg.Variable(W)
    h = w**2
    _, found = sg.scan(lambda c, row: (c, sg.gradients(c * row * w, w)[0]), h, sg.stack([h, h]))
    np.testing.assert_allclose(sg.Session().run(found)[1], W**4)
    with pytest.raises(sg.GradientError, match="no y depends on"):
        sg.map(lambda row: sg.gradients(row, w, unconnected_gradients="error")[0], sg.stack([h, h]))


def test_what_an_inner_gradient_is_not_connected_to_is_still_said() -> None:
    w, u = sg.Variable(W), sg.Variable(V)
    h = w**2
    found: list[Any] = []
    sg.map(lambda p: (found.extend(sg.gradients(h * p, [w, u])), p)[1], parts())
    assert found[0] is not None
    assert found[1] is None
    with pytest.raises(sg.GradientError, match="no y depends on"):
        sg.map(lambda p: sg.gradients(h * p, u, unconnected_gradients="error")[0], parts())


def test_hooks_of_tensors_outside_see_the_gradient_inside_a_body() -> None:
    w = sg.Variable(W)
    h = w**2
    h.register_hook(lambda g: g * 10)
    w.retain_grad()
    same(gradient(h, w), *[BODIES[body](lambda: gradient(h, w)) for body in ("scan", "cond", "vmap in a scan")])
    same(jacobian(h, w), BODIES["scan"](lambda: jacobian(h, w)))


def test_a_loop_outside_that_prints_does_not_print_again_for_a_derivative_inside(capsys: Any) -> None:
    w = sg.Variable(W)
    _, rows = sg.scan(lambda c, p: (c, sg.exp(sg.print(w * p, "turn"))), 0.0, parts())
    inside = BODIES["map"](lambda: gradient(rows[1], w))
    sg.Session().run([rows, inside])
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("turn") == 2


def test_tapes_go_through_a_body_with_a_derivative_by_a_tensor_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
    w = sg.Variable(W)
    h = sg.sin(w) * w
    loss = sg.sum(sg.sin(BODIES["scan"](lambda: hessian_product(h, w))))
    plain = sg.sum(sg.sin(hessian_product(h, w)))
    session = sg.Session()
    with session.forward(loss) as tape:
        tape.backward(loss)
    np.testing.assert_allclose(session.grad(w), session.run(sg.gradients(plain, w)[0]), rtol=1e-10)
