"""Linear layers in 8 bits: their error is bounded as documented, on every instruction set; weights are quantised when
they have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.large_checks import environment
from support.targets import EXTENDED, HERE

import staticgrad as sg

RNG = np.random.default_rng(5)
Array = np.ndarray[Any, np.dtype[Any]]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def bound(x: Array, w: Array) -> Array:
    """The documented one: half a step of each operand times the other, and both together; the rounding of float32."""
    x, w = np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64))
    step_x, step_w = x.max(-1, keepdims=True) / 127, w.max(-1) / 127
    quantised = (step_x * w.sum(-1) + step_w * x.sum(-1, keepdims=True)) / 2 + x.shape[-1] * step_x * step_w / 4
    return np.asarray(1.0001 * quantised + 2.0**-20 * (x @ w.T) + 1e-30)


@pytest.mark.parametrize("target", [*HERE, *(name for name in EXTENDED if not name.endswith("-small"))])
def test_a_quantised_linear_map_is_off_by_no_more_than_is_documented(target: str) -> None:
    for m, k, n in ((1, 1, 1), (3, 5, 7), (33, 130, 65), (1, 64, 48), (70, 301, 10)):
        x, w, b = normal(m, k), normal(n, k) * 10.0 ** RNG.integers(-3, 3, (n, 1)).astype(np.float32), normal(n)
        x[0] *= 1e-6
        with sg.Graph() as g, environment(TARGET=target, CACHE="0"):
            feeds = sg.placeholder((m, k)), sg.placeholder((n, k)), sg.placeholder((n,))
            y = sg.nn.quantized_linear(*feeds)
            found = sg.Session(g).run(y, dict(zip(feeds, (x, w, b), strict=True)))
        exact = x.astype(np.float64) @ w.astype(np.float64).T + b
        assert (np.abs(found - exact) <= bound(x, w) + 2.0**-22 * np.abs(exact)).all(), (target, m, k, n)


def test_rows_of_zeros_and_of_next_to_nothing_give_the_bias() -> None:
    x = np.zeros((3, 8), np.float32)
    x[1], x[2] = 1e-38, 3e-44
    found = sg.Session().run(sg.nn.quantized_linear(x, normal(4, 8), np.arange(4, dtype=np.float32)))
    np.testing.assert_allclose(found, np.tile(np.arange(4), (3, 1)), atol=1e-36)


def test_extreme_sums_do_not_overflow() -> None:
    k = 66_311
    ones = np.ones((2, k), np.float32)
    ones[1] = -1
    found = sg.Session().run(sg.nn.quantized_linear(ones, ones))
    np.testing.assert_allclose(found, [[k, -k], [-k, k]], rtol=1e-6)
    with pytest.raises(sg.GraphError, match="66311 inputs"):
        sg.nn.quantized_linear(sg.zeros((1, k + 1)), sg.zeros((1, k + 1)))


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(sg.GraphError, match="float32"):
        sg.nn.quantized_linear(sg.zeros((2, 3), sg.float64), sg.zeros((4, 3), sg.float64))


def test_a_quantised_net_keeps_its_parameters_and_follows_them() -> None:
    with sg.Graph() as g:
        net = sg.nn.Sequential(sg.nn.Linear(40, 64), sg.nn.Tanh(), sg.nn.Linear(64, 6))
        x = sg.placeholder((9, 40))
        exact = net(x)
        names = [name for name, _ in net.named_parameters()]
        assert sg.nn.quantize_dynamic(net) is net
        quantised = net(x)
        update = sg.assign(net[0].weight, net[0].weight * 0.5)
    assert [name for name, _ in net.named_parameters()] == names
    sess, batch = sg.Session(g, seed=0), normal(9, 40)
    run = sess.compile([exact, quantised], [x])
    for _ in range(2):
        want, found = run(batch)
        assert 0 < np.abs(found - want).max() < 0.03 * np.abs(want).max()
        sess.run(update)


def test_weights_are_quantised_and_packed_before_a_call() -> None:
    with sg.Graph() as g:
        x, w = sg.placeholder((8, 256)), sg.Variable(normal(256, 256))
        y = sg.nn.quantized_linear(x, w)
    text = sg.Session(g).compile(y, [x]).text("kernels")
    assert "pack for contraction int32 of int8 in groups" in text
    assert "B given packed" in text


def test_a_module_without_linear_layers_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="Linear"):
        sg.nn.quantize_dynamic(sg.nn.Sequential(sg.nn.ReLU()))


def test_no_gradient_passes_a_quantised_layer() -> None:
    x = sg.Variable(normal(2, 3))
    assert sg.gradients(sg.sum(sg.nn.quantized_linear(x, normal(4, 3))), [x]) == [None]
