"""Small neighbours become one nest whose values stay in registers, and compute what they did before."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.graph.optable import Array


def right_side(p: sg.Tensor, v: sg.Tensor) -> sg.Tensor:
    """Lorenz (1963)."""
    return sg.stack([p[0] * (v[1] - v[0]), v[0] * (p[1] - v[2]) - v[1], v[0] * v[1] - p[2] * v[2]])


class Orbit:
    """Steps of Euler's method over a state of three numbers, with the gradient by the parameters."""

    def __init__(self, steps: int = 20) -> None:
        with sg.Graph() as self.graph:
            self.p = sg.placeholder((3,), sg.float64, name="p")

            def turn(v: sg.Tensor, _: Any) -> tuple[sg.Tensor, sg.Tensor]:
                new = v + 0.01 * right_side(self.p, v)
                return new, new[0]

            self.last, self.path = sg.scan(turn, np.ones(3), None, length=steps)
            (self.gradient,) = sg.gradients(sg.sum(self.path) + sg.sum(self.last), [self.p])

    def run(self) -> list[Array]:
        return sg.Session(self.graph).run([self.path, self.gradient], {self.p: np.array([10.0, 28.0, 8 / 3])})


def turn_kernels(text: str) -> list[int]:
    """How many kernels one turn of each loop runs."""
    return [
        len(re.findall(r"^    \d+: ", loop, re.M)) for loop in re.split(r"^\d+: ", text, flags=re.M) if "turns" in loop
    ]


def test_a_turn_over_a_small_state_is_one_kernel() -> None:
    orbit = Orbit()
    with sg.Session(orbit.graph) as session:
        assert turn_kernels(session.compile(orbit.path, [orbit.p]).text("kernels")) == [1]
        assert turn_kernels(session.compile(orbit.gradient, [orbit.p]).text("kernels")) == [1, 1]


def test_what_passes_between_small_kernels_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((4,), sg.float64)
        y = sg.concat([x[1:] * 2, x[:1]], axis=0)
        z = sg.sum(y * y) + sg.prod(x)
    exe = sg.Session(graph).compile(z, [x])
    assert exe.memory.arena_bytes == 0
    monkeypatch.setenv("STATICGRAD_DISABLE", "scalarize")
    assert sg.Session(graph).compile(z, [x]).memory.arena_bytes > 0


@pytest.mark.parametrize("target", HERE)
def test_the_same_values_with_and_without(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    together = Orbit().run()
    monkeypatch.setenv("STATICGRAD_DISABLE", "scalarize")
    for a, b in zip(together, Orbit().run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_long_tensors_and_costly_functions_stay_vectors() -> None:
    def kernels(size: int, function: Callable[[sg.Tensor], sg.Tensor]) -> int:
        with sg.Graph() as graph:
            x = sg.placeholder((size,), sg.float64)
            y = sg.concat([function(x[1:]), function(x[:1])], axis=0)
        return len(sg.Session(graph).compile(y + y[0], [x]).cost.kernels)

    assert kernels(4, lambda x: x + 1) == 1
    assert kernels(400, lambda x: x + 1) > 1
    assert kernels(8, sg.erfc) > 1


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_a_variable_that_small_kernels_read_and_write_is_read_before(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    with sg.Graph() as graph:
        w = sg.Variable(np.array([1.0, 2.0, 3.0]), name="w")
        total = sg.sum(w) + w[0]
        new = sg.assign(w, w * 2 + total)
        later = sg.sum(new * w)
    with sg.Session(graph) as session:
        before, after, _ = session.run([total, later, new])
        assert (before, after) == (7.0, 9.0 + 2 * 11.0 + 3 * 13.0)
        np.testing.assert_array_equal(session.get(w), [9.0, 11.0, 13.0])


@pytest.mark.parametrize("target", HERE)
def test_special_values_pass_as_they_do_through_memory(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x_value = np.array([np.nan, -0.0, np.inf, 1.0], np.float32)
    with sg.Graph() as graph:
        x = sg.placeholder((4,), sg.float32)
        padded = sg.nn.pad(x, (1, 2), value=-0.0)
        results = [
            padded, sg.flip(padded, axis=0) + padded, sg.max(x[1:]), sg.min(x), sg.any(x > 1), sg.all(padded < 2),
            sg.sum(x[1:2]), sg.argmax(x[1:]), sg.cumulative_sum(padded), sg.astype(x[1:2], sg.int32) % 3,
        ]  # fmt: skip
    compiled = sg.Session(graph).run(results, {x: x_value})
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for number, (got, want) in enumerate(zip(compiled, sg.Session(graph).run(results, {x: x_value}), strict=True)):
        np.testing.assert_array_equal(got, want)
        if number < 2:
            np.testing.assert_array_equal(np.signbit(got[1:]), np.signbit(want[1:]))


def test_padding_is_decided_when_the_elements_are_written_down() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((5,), sg.float64)
        padded = sg.nn.pad(x[1:], (1, 1), value=7.0)
        y = padded * 2 + sg.sum(x)
    exe = sg.Session(graph).compile([y, padded[0]], [x])
    text = exe.text("kernels")
    assert len(exe.cost.kernels) == 1
    assert "guard" not in text
    assert "where" not in text
    assert text.count("load") == 5
    got, seven = exe(np.arange(5.0))
    np.testing.assert_array_equal(got, [24.0, 12.0, 14.0, 16.0, 18.0, 24.0])
    assert seven == 7.0


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", [sg.float32, sg.float64])
def test_small_products_join_their_neighbours(target: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A covariance and its update: products with and without epilogue, transposed, batched, of vectors, of nothing."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    rng = np.random.default_rng(0)
    with sg.Graph() as graph:
        a = sg.placeholder((2, 3), dtype, name="a")
        p = sg.placeholder((3, 3), dtype, name="p")
        v = sg.placeholder((2, 3, 1), dtype, name="v")
        s = a @ p @ a.T + np.eye(2, dtype=dtype)
        gain = sg.nn.relu(p @ a.T / s[0, 0])
        each = sg.matmul(v, a[:, None, :]) * s[0, 0] + 1  # a batch of two, and what follows it
        nothing = a[:, :0] @ p[:0]
        y = sg.sum(gain @ s) + sg.sum(each) + sg.sum(nothing)
        results = [s, gain, each, nothing, y, *sg.gradients(y, [a, p, v])]
    feeds = {x: rng.normal(size=x.shape).astype(dtype) for x in (a, p, v)}
    with sg.Session(graph) as session:
        assert len(session.compile([s, gain], [a, p]).cost.kernels) == 1
        compiled = session.run(results, feeds)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for got, want in zip(compiled, sg.Session(graph).run(results, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5 if dtype == sg.float32 else 1e-12, atol=1e-5)


def sources(exe: sg.Executable) -> Sequence[object]:
    return [kernel.source for kernel in exe.cost.kernels]


def test_kernels_of_fetched_views_name_the_users_line() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((5, 3))
        y = (x + 1).T
        z = x[2]
    for source in sources(sg.Session(graph).compile([y, z, x], [x])):
        assert source is not None
        assert str(source).startswith(__file__)


def test_kernels_of_loops_name_no_line_of_the_standard_library() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((40,))
        last, rows = sg.scan(lambda c, _: (sg.flip(c, axis=0), c), x, None, length=5)
    text = sg.Session(graph).compile([last, rows], [x]).text("kernels")
    assert __file__ in text
    assert "contextlib" not in text
