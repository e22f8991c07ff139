"""The public contract of derivatives: all their forms, ties, kinks, guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("g")

INF = np.inf


def test_gradients_in_all_their_forms(backend: str) -> None:
    x, y = sg.placeholder((2,)), sg.placeholder((2,), sg.float64)
    frozen = sg.Variable(f32(3, 4), trainable=False)
    a, b = sg.sum(x * frozen), x * x
    sess = sg.Session(x.graph)
    feeds = {x: f32(5, 7), y: [1, 1]}

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        found = sg.gradients(*args, **kwargs)
        assert isinstance(found, list)
        return [None if v is None else v.tolist() for v in sess.run(found, feeds)]

    assert run(a, x) == [[3, 4]]
    assert run([a], [x, frozen]) == [[3, 4], [5, 7]]
    assert run(b, [x]) == [[10, 14]]
    assert run([a, b], [x]) == [[13, 18]]
    assert run(b, x, grad_ys=f32(1, 10)) == [[10, 140]]
    assert run([a, b], x, grad_ys=[2.0, None]) == [[16, 22]]
    assert run(a, [x, y]) == [[3, 4], None]
    assert run(a, [y, x], unconnected_gradients="zero") == [[0, 0], [3, 4]]
    (zero,) = sg.gradients(a, y, unconnected_gradients="zero")
    assert zero is not None
    assert (zero.dtype, zero.shape) == (sg.float64, (2,))
    assert run(a, a) == [1]
    assert run(x, x) == [[1, 1]]
    with pytest.raises(sg.GradientError):
        sg.gradients(a, y, unconnected_gradients="error")
    with pytest.raises(sg.StaticGradError):
        sg.gradients(a, sg.placeholder((2,), sg.int64))
    with pytest.raises(sg.GraphError):
        sg.gradients(b, x, grad_ys=f32(1, 2, 3))
    with pytest.raises(sg.GraphError):
        sg.gradients(a, x, unconnected_gradients="zeros")


def test_forward_mode_jacobian_and_hessian(backend: str) -> None:
    x, z = sg.placeholder((3,), sg.float64), sg.placeholder((2,), sg.float64)
    y = sg.stack([x[0] * x[1], sg.exp(x[2])])
    s = sg.sum(x**3) + x[0] * x[2]
    at = np.array([2.0, 3.0, 0.5])
    out = sg.Session(x.graph).run(
        {
            "jvp": sg.jvp([y, s, z], x, np.array([1.0, 0.0, 2.0])),
            "none": sg.jvp(y, [x, z], [None, np.ones(2)]),
            "jacobian": sg.jacobian(y, x),
            "wide": sg.jacobian(sg.concat([y, y, y]), x),
            "list": sg.jacobian(y, [x, z]),
            "hessian": sg.hessian(s, x),
        },
        {x: at, z: np.zeros(2)},
    )
    jacobian = np.array([[3, 2, 0], [0, 0, np.exp(0.5)]])
    np.testing.assert_allclose(out["jvp"][0], jacobian @ [1, 0, 2], rtol=1e-12)
    np.testing.assert_allclose(out["jvp"][1], 12 + 0.5 + 2 * (0.75 + 2), rtol=1e-12)
    np.testing.assert_array_equal(out["jvp"][2], np.zeros(2))
    np.testing.assert_array_equal(out["none"][0], np.zeros(2))
    np.testing.assert_allclose(out["jacobian"], jacobian, rtol=1e-12)
    np.testing.assert_allclose(out["wide"], np.concatenate([jacobian] * 3), rtol=1e-12)
    np.testing.assert_allclose(out["list"][0], jacobian, rtol=1e-12)
    np.testing.assert_array_equal(out["list"][1], np.zeros((2, 2)))
    np.testing.assert_allclose(
        out["hessian"], np.diag(6 * at) + np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]]), rtol=1e-12
    )


def test_a_graph_does_not_grow_with_the_size_of_its_jacobian_or_hessian(backend: str) -> None:
    counts = []
    for size in (6, 30):
        start = len(sg.get_default_graph().nodes)
        x = sg.placeholder((size,), sg.float64)
        path, _ = sg.scan(lambda c, r: (c * 0.9 + sg.sin(c * r), None), x, x[:3])
        found = [sg.hessian(sg.sum(path), x), sg.jacobian(path, x), sg.jacobian(path[:2], x)]
        counts.append(len(sg.get_default_graph().nodes) - start)
        at = np.linspace(0.1, 1.0, size)
        h, j, top = sg.Session(x.graph).run(found, {x: at})
        np.testing.assert_allclose(top, j[:2], rtol=1e-12)
        step = np.eye(size)[1] * 1e-5
        slope, (by,) = sg.gradients(sg.sum(path), [x])[0], sg.jvp(path, [x], [np.eye(size)[1]])
        ahead, behind = (sg.Session(x.graph).run(slope, {x: at + d}) for d in (step, -step))
        np.testing.assert_allclose(h[1], (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(j[:, 1], sg.Session(x.graph).run(by, {x: at}), rtol=1e-12)
    assert counts[0] == counts[1]


def test_hooks_and_retained_gradients_see_each_row_of_a_jacobian(backend: str) -> None:
    x = sg.placeholder((2, 3), sg.float64, requires_grad=True)
    h = x * x
    h.retain_grad()
    seen: list[Any] = []
    h.register_hook(lambda ct: seen.append(ct) or ct * 2)
    sess = sg.Session(x.graph)
    rows = sess.run(sg.jacobian(sg.sum(h, axis=1), x), {x: np.ones((2, 3))})
    assert len(seen) == 2
    np.testing.assert_array_equal(rows, 4 * np.eye(2)[:, :, None] * np.ones(3))
    np.testing.assert_array_equal(sess.grad(h), np.full((2, 3), 2.0))


def test_a_second_y_of_a_jacobian_or_hessian_is_refused_by_name() -> None:
    x = sg.placeholder((2,), sg.float64)
    one = sg.sum(x)
    for declare in (lambda: sg.jacobian([one, one], x), lambda: sg.hessian([], x), lambda: sg.hessian(one, [x, x])):
        with pytest.raises(sg.GraphError, match="expected one tensor, actual"):
            declare()


GUARDED: dict[str, tuple[Callable[[sg.Tensor], Any], Callable[[sg.Tensor], Any], list[float], list[float]]] = {
    "log": (lambda x: x > 0, sg.log, [-1, 0, -0.0, 2], [0, 0, 0, 0.5]),
    "sqrt": (lambda x: x > 0, sg.sqrt, [-1, 0, -INF, 4], [0, 0, 0, 0.25]),
    "rsqrt": (lambda x: x > 0, sg.rsqrt, [-1, 0, 4], [0, 0, -0.0625]),
    "1 / x": (lambda x: x != 0, lambda x: 1 / x, [0, 2, -0.0], [0, -0.25, 0]),
    "x / x": (lambda x: x != 0, lambda x: x / x, [0, 2], [0, 0]),
    "pow 0.5": (lambda x: x > 0, lambda x: x**0.5, [-1, 0, 4], [0, 0, 0.25]),
    "pow -1.5": (lambda x: x > 0, lambda x: x**-1.5, [-1, 0, 1], [0, 0, -1.5]),
    "x pow x": (lambda x: x > 0, lambda x: x**x, [-1, 0, 1], [0, 0, 1]),
    "exp": (lambda x: x < 50, sg.exp, [1000, 0, INF], [0, 1, 0]),
    "acos": (lambda x: sg.abs(x) < 1, sg.acos, [1, -1, 2, 0], [0, 0, 0, -1]),
    "atanh": (lambda x: sg.abs(x) < 1, sg.atanh, [1, -1, 3, 0], [0, 0, 0, 1]),
    "norm": (lambda x: x != 0, lambda x: sg.sqrt(x * x), [0, 3, -2], [0, 1, -1]),
    "log of log": (lambda x: x > 1, lambda x: sg.log(sg.log(x)), [0, 1, np.e], [0, 0, 1 / np.e]),
    "log1p": (lambda x: x > -1, sg.log1p, [-1, -3, 1], [0, 0, 0.5]),
    "softplus of 1 / x": (lambda x: x > 0, lambda x: sg.nn.softplus(1 / x), [0, 1], [0, -1 / (1 + np.exp(-1))]),
}


@pytest.mark.parametrize("name", GUARDED)
def test_gradients_behind_a_where_are_finite(backend: str, name: str) -> None:
    condition, function, at, wanted = GUARDED[name]
    x = sg.placeholder((len(at),), sg.float64)
    y = sg.where(condition(x), function(x), 0.0)
    (dx,) = sg.gradients(sg.sum(y), x)
    assert dx is not None
    (ddx,) = sg.gradients(sg.sum(dx), x, unconnected_gradients="zero")
    (tangent,) = sg.jvp(y, x, np.ones(len(at)))
    values, gradient, second, forward = sg.Session(x.graph).run([y, dx, ddx, tangent], {x: np.array(at, np.float64)})
    assert np.isfinite(values).all()
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12, atol=0)
    np.testing.assert_allclose(forward, wanted, rtol=1e-12, atol=0)
    zeros = np.array(wanted) == 0
    assert np.isfinite(second).all()
    assert (gradient[zeros] == 0).all()


def test_the_norm_of_zeros_behind_a_where(backend: str) -> None:
    x = sg.placeholder((2, 3), sg.float64)
    square = sg.sum(x * x, 1)
    norm = sg.where(square > 0, sg.sqrt(square), 0.0)
    (dx,) = sg.gradients(sg.sum(norm), x)
    got = sg.Session(x.graph).run(dx, {x: [[0, 0, 0], [3, 0, 4]]})
    np.testing.assert_allclose(got, [[0, 0, 0], [0.6, 0, 0.8]], rtol=1e-12)


KINKS: dict[str, tuple[Callable[[sg.Tensor], Any], list[float], list[float]]] = {
    "max": (lambda x: x.max(), [3, 1, 3, 2], [0.5, 0, 0.5, 0]),
    "max of three": (lambda x: x.max(), [2, 2, 2, 1], [1 / 3, 1 / 3, 1 / 3, 0]),
    "max of an axis": (lambda x: x.reshape(2, 2).max(1), [1, 1, 5, 6], [0.5, 0.5, 0, 1]),
    "min": (lambda x: x.min(), [3, 1, 1, 2], [0, 0.5, 0.5, 0]),
    "maximum": (lambda x: sg.maximum(x, f32(1, 2, 3, 0)), [1, 1, 4, 0], [0.5, 0, 1, 0.5]),
    "maximum with itself": (lambda x: sg.maximum(x, x), [1, 1, 4, 0], [1, 1, 1, 1]),
    "minimum": (lambda x: sg.minimum(x, 1), [1, 0, 4, 1], [0.5, 1, 0, 0.5]),
    "relu": (lambda x: sg.nn.relu(x), [0, -0.0, 2, -1], [0, 0, 1, 0]),
    "abs": (lambda x: sg.abs(x), [0, -0.0, 2, -3], [0, 0, 1, -1]),
    "sign": (lambda x: sg.sign(x), [0, 1, -1, 2], [0, 0, 0, 0]),
    "clip": (lambda x: sg.clip(x, 0, 1), [0, 1, -1, 0.5], [1, 1, 0, 1]),
    "clip from below": (lambda x: sg.clip(x, min=0), [0, 1, -1, 0.5], [1, 1, 0, 1]),
    "clip from above": (lambda x: x.clip(max=1), [0, 1, 2, 0.5], [1, 1, 0, 1]),
    "floor": (lambda x: sg.floor(x), [0, 1.5, 2, -0.5], [0, 0, 0, 0]),
    "square at 0": (lambda x: x**2, [0, 0, 1, -1], [0, 0, 2, -2]),
    "power 1 at 0": (lambda x: x**1, [0, 1, 2, 3], [1, 1, 1, 1]),
    "power 0 at 0": (lambda x: x**0, [0, 1, 2, 3], [0, 0, 0, 0]),
    "product with a zero": (lambda x: x.prod(), [2, 0, 3, 1], [0, 6, 0, 0]),
    "product with two zeros": (lambda x: x.prod(), [2, 0, 0, 1], [0, 0, 0, 0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_ties_and_kinks(backend: str, name: str) -> None:
    function, at, wanted = KINKS[name]
    x = sg.placeholder((4,), requires_grad=True)
    y = sg.sum(function(x))
    (dx,) = sg.gradients(y, x)
    sess = sg.Session(x.graph)
    np.testing.assert_allclose(sess.run(dx, {x: f32(*at)}), wanted, rtol=1e-6, atol=0)
    sess.forward(y, {x: f32(*at)}).backward(y)
    np.testing.assert_allclose(sess.grad(x), wanted, rtol=1e-6, atol=0)
