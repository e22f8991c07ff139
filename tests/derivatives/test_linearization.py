"""``sg.linearize`` and ``sg.ggn_product``, and products with Hessians in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staticgrad as sg

RNG = np.random.default_rng(0)
W, V = RNG.normal(size=(3, 4)), RNG.normal(size=(5, 3, 4))


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session().run(fetches, feeds or {})


def test_tangents_are_nests_like_x() -> None:
    x = {"a": sg.placeholder((3,), sg.float64), "b": [sg.placeholder((), sg.float64)]}
    y = sg.sin(x["a"]) * x["b"][0], sg.sum(x["a"]) ** 2
    along = sg.linearize(y, x)
    u, b = RNG.normal(size=3), 0.7
    feeds = {x["a"]: np.arange(3.0), x["b"][0]: 2.0}
    both, first = run([along({"a": u, "b": [b]}), along({"a": u, "b": [None]})], feeds)
    a = np.arange(3.0)
    np.testing.assert_allclose(both[0], 2 * np.cos(a) * u + np.sin(a) * b, rtol=1e-14)
    np.testing.assert_allclose(both[1], 2 * 3 * u.sum(), rtol=1e-14)
    np.testing.assert_allclose(first[0], 2 * np.cos(a) * u, rtol=1e-14)


def test_many_tangents_share_one_forward() -> None:
    w = sg.placeholder((3, 4), sg.float64)
    y = sg.tanh(w @ np.arange(4.0))
    along = sg.linearize(y, w)
    vs = sg.placeholder((5, 3, 4), sg.float64)
    exe = sg.Session().compile([sg.vmap(along)(vs), *[along(vs[i]) for i in range(5)]], [w, vs])
    together, *apart = exe(W, V)
    np.testing.assert_allclose(together, np.array(apart), rtol=1e-13)
    slope = 1 - np.tanh(W @ np.arange(4.0)) ** 2
    np.testing.assert_allclose(together, slope * (V @ np.arange(4.0)), rtol=1e-12)
    assert exe.text("graph").count("tanh(") == 1


def test_the_derivative_is_linear_and_transposed_by_gradients() -> None:
    x, v = sg.placeholder((4,), sg.float64), sg.placeholder((4,), sg.float64)
    y = sg.exp(x[1:] * x[:-1])
    u = RNG.normal(size=3)
    product = sg.linearize(y, x)(v)
    transposed, expected, again = run(
        [*sg.gradients(product, [v], [u]), *sg.gradients(y, [x], [u]), *sg.gradients(sg.sum(product), [x])],
        {x: np.arange(4.0) / 4, v: np.ones(4)},
    )
    np.testing.assert_allclose(transposed, expected, rtol=1e-13)
    assert again.shape == (4,)


def test_gauss_newton_is_the_square_of_the_jacobian_for_squares() -> None:
    x = {"a": sg.placeholder((3,), sg.float64), "b": sg.placeholder((), sg.float64)}
    residual = sg.sin(x["a"]) * x["b"] - np.array([0.1, 0.2, 0.3])
    v = {"a": RNG.normal(size=3), "b": np.array(0.4)}
    found = sg.ggn_product(0.5 * sg.sum(residual**2), residual, x, v)
    jacobians = sg.jacobian(residual, [x["a"], x["b"]])
    found, jacobians = run([found, jacobians], {x["a"]: np.arange(3.0), x["b"]: 2.0})
    j = np.column_stack(jacobians)
    expected = j.T @ j @ np.append(v["a"], v["b"])
    np.testing.assert_allclose(np.append(found["a"], found["b"]), expected, rtol=1e-13)


def test_gauss_newton_of_cross_entropy_is_fisher_s_information() -> None:
    w, features = sg.placeholder((3, 4), sg.float64), RNG.normal(size=(6, 3))
    scores = features @ w
    loss = sg.sum(sg.nn.cross_entropy(scores, np.arange(6) % 4, reduction="none"))
    v = RNG.normal(size=(3, 4))
    product, p = run([sg.ggn_product(loss, scores, w, v), sg.nn.softmax(scores, 1)], {w: W})
    change = features @ v
    expected = features.T @ (p * change - p * np.sum(p * change, axis=1, keepdims=True))
    np.testing.assert_allclose(product, expected, rtol=1e-12)


@pytest.mark.parametrize("loop", ["map", "scan", "vmap"])
def test_products_with_hessians_in_loops(loop: str) -> None:
    """Also by what the body reads from outside, whose second derivatives go through it."""
    w, rows = sg.placeholder((3,), sg.float64), sg.placeholder((4, 3), sg.float64)
    v = RNG.normal(size=3)

    def curved(row: Any) -> Any:
        y = sg.sum(sg.exp(w * row)) + sg.prod(w + row)
        return sg.hvp(y, row, v), sg.hvp(y, w, v), sg.ggn_product(y**2, y, row, v), sg.linearize(y, w)(v)

    if loop == "map":
        found = sg.map(curved, rows)
    elif loop == "scan":
        _, found = sg.scan(lambda c, row: (c, curved(row)), (), rows)
    else:
        found = sg.vmap(curved)(rows)
    row = sg.placeholder((3,), sg.float64)
    alone = sg.Session().compile(curved(row), [row, w])
    given, at = RNG.normal(size=(4, 3)), RNG.normal(size=3)
    expected = zip(*(alone(one, at) for one in given), strict=True)
    for some, value in zip(run(found, {rows: given, w: at}), expected, strict=True):
        np.testing.assert_allclose(some, np.array(value), rtol=1e-11, atol=1e-13)
    total = sg.sum(found[0])
    (slope,) = sg.gradients(total, [rows])  # a third derivative
    h = 1e-5
    lower, upper = (sg.Session().run(total, {rows: given + s * 1.0, w: at}) for s in (-h, h))
    assert run(slope, {rows: given, w: at}).sum() == pytest.approx((upper - lower) / (2 * h), rel=1e-6)


def test_what_is_refused() -> None:
    x, n = sg.placeholder((3,), sg.float64), sg.placeholder((), sg.int64)
    along = sg.linearize(x * 2, x)
    with pytest.raises(sg.GraphError, match=r"tangents of .*: expected shape \(3,\), actual \(2,\)"):
        along(np.zeros(2))
    with pytest.raises(sg.GraphError, match="nests differ"):
        sg.linearize(x * 2, [x, x])([np.zeros(3)])
    with pytest.raises(sg.GradientError, match="linearize: x"):
        sg.linearize(x, n)
    with pytest.raises(sg.GradientError, match=r"ggn_product: loss: expected one number, actual float64\[3\]"):
        sg.ggn_product(x, x, x, x)
    with pytest.raises(sg.GradientError, match="no y depends on"):
        sg.ggn_product(sg.sum(x), sg.exp(x), x, x)
