"""Control flow: loops and branches against the same graphs written out, against NumPy and finite differences."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.autodiff import loops

Array = np.ndarray[Any, np.dtype[Any]]
SETTINGS = [("compiled", "plan"), ("compiled", "poison"), ("reference", "plan")]


@pytest.fixture(params=SETTINGS, ids=lambda s: "-".join(s), autouse=True)
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    backend, memory = request.param
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    monkeypatch.setenv("STATICGRAD_MEMORY", memory)
    monkeypatch.setenv("STATICGRAD_VERIFY", "1")
    return str(backend)


@pytest.fixture
def graph() -> Any:
    graph = sg.Graph()
    with graph:
        yield graph


def values(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def run(fetches: Any, feeds: dict[Any, Any] | None = None, seed: int = 0) -> Any:
    with sg.Session(seed=seed) as session:
        return session.run(fetches, feeds or {})


def same(fetches: Any, expected: Any, feeds: dict[Any, Any]) -> None:
    for a, b in zip(sg.nest.flatten(run(fetches, feeds)), sg.nest.flatten(run(expected, feeds)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def unrolled(fn: Callable[[Any, Any], Any], carry: Any, rows: list[Any]) -> tuple[Any, Any]:
    ys = []
    for row in rows:
        carry, y = fn(carry, row)
        ys.append(y)
    return carry, sg.stack(ys)


# -- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_sums_up(graph: sg.Graph, reverse: bool) -> None:
    x = sg.placeholder((7, 3), sg.float64)
    last, sums = sg.scan(lambda c, v: (c + v, c + v), np.zeros(3), x, reverse=reverse)
    data = values(0, 7, 3)
    got = run([last, sums], {x: data})
    want = np.cumsum(data[::-1], 0)[::-1] if reverse else np.cumsum(data, 0)
    np.testing.assert_allclose(got[0], want[0 if reverse else -1])
    np.testing.assert_allclose(got[1], want)


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_lengths_and_rows_before_the_turn(graph: sg.Graph, length: int) -> None:
    last, before = sg.scan(lambda c, _: (c * 2.0, c), 1.0, length=length)
    got = run([last, before])
    assert got[0] == 2.0**length
    np.testing.assert_array_equal(got[1], 2.0 ** np.arange(length))


def test_nests_and_numbers_in_the_carry(graph: sg.Graph) -> None:
    x = sg.placeholder((4,), sg.float32)

    def step(c: dict[str, Any], row: tuple[Any, Any]) -> Any:
        return {"n": c["n"] + 1, "s": c["s"] * row[0], "k": 3}, (row[1], [c["n"], None])

    last, (rows, (numbers, nothing)) = sg.scan(step, {"n": 0, "s": 1.0, "k": 2.5}, (x, x * 2.0))
    assert nothing is None
    assert last["k"].dtype == sg.float32
    data = np.array([1, 2, 3, 4], np.float32)
    got = run([last, rows, numbers], {x: data})
    assert got[0] == {"n": 4, "s": 24.0, "k": 3.0}
    np.testing.assert_array_equal(got[1], 2 * data)
    np.testing.assert_array_equal(got[2], np.arange(4))


def test_map(graph: sg.Graph) -> None:
    x = sg.placeholder((5, 3), sg.float64)
    y = sg.map(lambda v: sg.sum(v * v), x)
    data = values(1, 5, 3)
    got, slope = run([y, sg.gradients(y, x)[0]], {x: data})
    np.testing.assert_allclose(got, (data**2).sum(1))
    np.testing.assert_allclose(slope, 2 * data)


def test_sizes_that_feeds_bind(graph: sg.Graph) -> None:
    x = sg.placeholder((None, None), sg.float64)
    w = sg.placeholder((), sg.float64)
    last, _ = sg.scan(lambda c, v: (c * w + sg.sum(v), None), sg.constant(0.0, sg.float64), x)
    (slope,) = sg.gradients(last, w)
    for n, m in ((4, 2), (1, 3), (0, 2)):
        data = values(2, n, m)
        got = run([last, slope], {x: data, w: 0.5})
        powers = np.arange(n)[::-1]
        np.testing.assert_allclose(got[0], (0.5**powers * data.sum(1)).sum())
        np.testing.assert_allclose(got[1], sum(p * 0.5 ** (p - 1) * s for p, s in zip(powers, data.sum(1)) if p))


# -- derivatives --------------------------------------------------------------------------------------------------


def rnn() -> tuple[Callable[[Any, Any], Any], list[Any], dict[Any, Any]]:
    w, x = sg.Variable(values(3, 4, 4) * 0.3), sg.placeholder((3, 3, 4), sg.float64)
    h = sg.placeholder((3, 4), sg.float64)

    def step(carry: Any, row: Any) -> Any:
        new = sg.tanh(carry @ w + row)
        return new, new * new

    return step, [w, x, h], {x: values(4, 3, 3, 4), h: values(5, 3, 4)}


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_any_order_are_those_of_the_unrolled(graph: sg.Graph, reverse: bool) -> None:
    step, (w, x, h), feeds = rnn()
    found = []
    for looped in (True, False):
        if looped:
            last, ys = sg.scan(step, h, x, reverse=reverse)
        else:
            rows = [x[i] for i in range(3)]
            last, ys = unrolled(step, h, rows[::-1] if reverse else rows)
            ys = sg.flip(ys, axis=0) if reverse else ys
        loss = sg.sum(last) + sg.sum(ys * sg.exp(ys))
        first = sg.gradients(loss, [w, x, h])
        weight = sum(sg.sum(g * g) for g in first)
        second = sg.gradients(weight, [w, x, h])
        tangents = sg.jvp([loss, ys, first[0]], [w, x], [w * 0.5, x])
        third = sg.jvp(second, [h], [h])
        found.append([last, ys, first, second, tangents, third])
    same(*found, feeds)


def test_only_what_is_asked_for(graph: sg.Graph) -> None:
    step, (w, x, h), feeds = rnn()
    for wrt in ([w], [x], [h]):
        last, _ = sg.scan(step, h, x)
        expected, _ = unrolled(step, h, [x[i] for i in range(3)])
        same(sg.gradients(last, wrt), sg.gradients(expected, wrt), feeds)


def test_carries_that_no_cotangent_reaches(graph: sg.Graph) -> None:
    x = sg.placeholder((4,), sg.float64)

    def step(c: Any, v: Any) -> Any:
        a, b, n = c
        return (a * v, sg.sin(a) + b, n + 1), sg.floor(v)

    (a, b, _), _ = sg.scan(step, (sg.ones((), dtype=sg.float64), sg.zeros((), dtype=sg.float64), 0), x)
    data = values(6, 4)
    got = run([sg.gradients(a, x), sg.gradients(b, x, unconnected_gradients="zero")], {x: data})
    np.testing.assert_allclose(got[0][0], data.prod() / data)
    shift = 1e-6 * np.eye(4)

    def second(v: Array) -> float:
        return float(sum(np.sin(np.prod(v[:i])) for i in range(4)))

    want = [(second(data + s) - second(data - s)) / 2e-6 for s in shift]
    np.testing.assert_allclose(got[1][0], want, atol=1e-8)


def test_loops_in_loops(graph: sg.Graph) -> None:
    a, v = sg.placeholder((3, 3), sg.float64), sg.placeholder((3,), sg.float64)

    def outer(c: Any, _: Any) -> Any:
        d, ys = sg.scan(lambda d, _: (sg.sin(a @ d) + c, d * d), c, length=2)
        return d, sg.sum(ys)

    last, ys = sg.scan(outer, v, length=3)
    looped = sg.sum(last * last) + sg.sum(ys)
    total, c = sg.zeros((), dtype=sg.float64), v
    for _ in range(3):
        d = c
        for _ in range(2):
            total, d = total + sg.sum(d * d), sg.sin(a @ d) + c
        c = d
    written = total + sg.sum(c * c)
    found = []
    for loss in (looped, written):
        first = sg.gradients(loss, [a, v])
        weight = sg.sum(first[0] * first[0]) + sg.sum(first[1])
        found.append([loss, first, sg.gradients(weight, [a, v]), sg.jvp(first, [a], [a])])
    same(*found, {a: values(7, 3, 3) * 0.5, v: values(8, 3)})


def test_gradients_inside_a_body(graph: sg.Graph) -> None:
    x, w = sg.placeholder((3,), sg.float64), sg.placeholder((3,), sg.float64)

    def descend(c: Any, _: Any) -> Any:
        loss = sg.sum((c * w - 1.0) ** 2)
        slope, by_w = sg.gradients(loss, [c, w])
        return c - 0.1 * slope, by_w

    def by_hand(c: Any, _: Any) -> Any:
        error = 2 * (c * w - 1.0)
        return c - 0.1 * error * w, error * c

    last, by_w = sg.scan(descend, x, length=4)
    expected, rows = unrolled(by_hand, x, [None] * 4)
    through = [sg.gradients(sg.sum(y * y), [x, w]) for y in (last, expected)]
    same([last, by_w, through[0]], [expected, rows, through[1]], {x: values(9, 3), w: values(10, 3)})


def test_several_results_of_an_op_that_no_turn_changes(graph: sg.Graph) -> None:
    a, x = sg.placeholder((3, 3), sg.float64), sg.placeholder((4,), sg.float64)

    def step(c: Any, v: Any) -> Any:
        first, logarithm = sg.linalg.slogdet(a)
        return c + v * logarithm * sg.topk(a[0], 2)[0][0], first * v

    last, ys = sg.scan(step, sg.zeros((), dtype=sg.float64), x)
    data = np.eye(3) * 2 + 0.1
    got = run([last, ys], {a: data, x: np.arange(4.0)})
    np.testing.assert_allclose(got[0], 6 * np.linalg.slogdet(data)[1] * 2.1)
    np.testing.assert_allclose(got[1], np.arange(4.0))


def test_hooks_inside_a_body(graph: sg.Graph) -> None:
    x = sg.placeholder((3,), sg.float64)
    scale = sg.placeholder((), sg.float64)

    def step(c: Any, v: Any) -> Any:
        y = c * v
        y.register_hook(lambda g: g * scale)
        return y, None

    last, _ = sg.scan(step, sg.ones((), dtype=sg.float64), x)
    (slope,) = sg.gradients(last, x)
    data = values(11, 3)
    got = run(slope, {x: data, scale: 0.5})
    np.testing.assert_allclose(got, data.prod() / data * 0.5 ** np.array([3, 2, 1]))


def test_stop_gradient_and_no_grad_inside(graph: sg.Graph) -> None:
    x = sg.placeholder((3,), sg.float64)

    def step(c: Any, v: Any) -> Any:
        with sg.no_grad():
            a = c * 2.0
        return a + v * v, sg.stop_gradient(v) * v

    last, ys = sg.scan(step, sg.zeros((), dtype=sg.float64), x)
    data = values(12, 3)
    got = run(sg.gradients([last, ys], x), {x: data})
    np.testing.assert_allclose(got[0], data + np.array([0, 0, 2 * data[2]]))


def test_tapes_through_a_scan(graph: sg.Graph) -> None:
    step, (w, x, h), feeds = rnn()
    last, ys = sg.scan(step, h, x)
    loss = sg.sum(last) + sg.sum(ys * ys)
    (want,) = sg.gradients(loss, w)
    with sg.Session() as session:
        tape = session.forward([loss, ys], feeds)
        tape.backward(loss, retain_graph=True)
        expected = session.run(want, feeds)
        np.testing.assert_allclose(session.grad(w), expected, rtol=1e-9)
        tape.backward(loss)
        np.testing.assert_allclose(session.grad(w), 2 * expected, rtol=1e-9)
        with pytest.raises(sg.BuffersFreedError):
            tape.backward(loss)
    assert last.grad_fn is not None
    assert last.grad_fn.name == "ScanBackward0"


def two_carries(x: sg.Tensor) -> list[sg.Tensor]:
    first = (sg.ones((3,), dtype=x.dtype), sg.ones((3,), dtype=x.dtype))
    return list(sg.scan(lambda c, row: ((sg.tanh(c[0] + row) * c[1], sg.sin(c[1] * row)), None), first, x)[0])


def carry_and_rows(x: sg.Tensor) -> list[sg.Tensor]:
    last, ys = sg.scan(lambda c, row: (sg.tanh(c + row), sg.nn.layer_norm(c * row, (3,))), x[0], x)
    return [last, ys, ys[1] * last]


def of_while(x: sg.Tensor) -> list[sg.Tensor]:
    return list(
        sg.while_loop(
            lambda s: s[2] < 4,
            lambda s: (sg.cos(s[0]) * s[1], sg.exp(-s[1] * x[0]), s[2] + 1),
            (x[1], x[2], 0),
            max_steps=6,
        )[:2]
    )


def of_lstm(x: sg.Tensor) -> list[sg.Tensor]:
    y, (h, c) = sg.nn.LSTM(3, 4, dtype=sg.float64)(sg.expand_dims(x, 1))
    return [y, h, c]


TOGETHER = [two_carries, carry_and_rows, of_while, of_lstm]


@pytest.mark.parametrize(
    ("declare", "near"), [*((declare, loops.NEAR_BYTES) for declare in TOGETHER), (carry_and_rows, 32)]
)
def test_two_results_of_one_loop_go_backward_together(
    graph: sg.Graph, declare: Callable[[sg.Tensor], list[sg.Tensor]], near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its results a tape is asked for, and whatever the loop had better stack for them."""
    monkeypatch.setattr(loops, "NEAR_BYTES", near)
    x = sg.placeholder((5, 3), sg.float64, requires_grad=True)
    results = declare(x)
    losses = [sg.sum(y * y) for y in results]
    wanted = sg.gradients([2 * loss for loss in losses], x)[0]
    pairs = list(itertools.combinations(losses, 2))
    half = [sg.gradients(list(pair), x)[0] for pair in pairs]
    feeds = {x: values(30, 5, 3)}
    with sg.Session() as session:
        whole, *parts = session.run([wanted, *half], feeds)
        tape = session.forward([*results, *losses], feeds)
        for pair, part in zip(pairs, parts, strict=True):
            tape.backward(pair, retain_graph=True)
            np.testing.assert_allclose(session.grad(x), part, rtol=1e-9, atol=1e-12)
            session.zero_grad()
        tape.backward(losses, retain_graph=True)
        tape.backward(results, grad=[2 * tape[y] for y in results])
        np.testing.assert_allclose(session.grad(x), whole, rtol=1e-9, atol=1e-12)


def test_training_in_a_loop(graph: sg.Graph) -> None:
    step, (_, x, h), feeds = rnn()
    last, _ = sg.scan(step, h, x)
    loss = sg.sum(last * last)
    train = sg.optim.SGD(lr=0.1).minimize(loss)
    with sg.Session() as session:
        first, _ = session.run([loss, train], feeds)
        for _ in range(20):
            session.run(train, feeds)
        assert session.run(loss, feeds) < 0.5 * first


# -- random numbers and effects -----------------------------------------------------------------------------------


def test_each_turn_draws_its_own(graph: sg.Graph) -> None:
    def outer(c: Any, _: Any) -> Any:
        c, inner = sg.scan(lambda d, _: (d, sg.random.uniform((2,))), c, length=3)
        return c, (sg.random.uniform((2,)), inner)

    _, (a, b) = sg.scan(outer, (), length=4)
    one, other = run([a, b], seed=1)
    drawn = np.concatenate([one.ravel(), other.ravel()])
    assert len(np.unique(drawn)) == drawn.size == 32
    np.testing.assert_array_equal(run(a, seed=1), one)
    assert not np.array_equal(run(a, seed=2), one)


def test_the_backward_sees_what_was_drawn(graph: sg.Graph) -> None:
    w = sg.Variable(np.ones(50))
    last, masks = sg.scan(lambda c, _: (c + (y := sg.nn.dropout(w, 0.5)), y), np.zeros(50), length=6)
    total, slope, rows = run([last, sg.gradients(last, w)[0], masks])
    np.testing.assert_allclose(slope, total)
    np.testing.assert_allclose(rows.sum(0), total)


def test_prints_once_a_turn_and_in_order(graph: sg.Graph, capfd: pytest.CaptureFixture[str]) -> None:
    x = sg.placeholder((3,), sg.float64)

    def step(c: Any, v: Any) -> Any:
        sg.print(v, "row")
        return sg.print(c * v, "carry"), None

    last, _ = sg.scan(step, sg.ones((), dtype=sg.float64), x)
    with sg.control_dependencies([sg.print(last, "last")]):
        end = sg.identity(last)
    run([end, sg.gradients(end, x)], {x: [2.0, 3.0, 4.0]})
    lines = capfd.readouterr().out.split("\n")[:-1]
    assert lines == ["row 2.0", "carry 2.0", "row 3.0", "carry 6.0", "row 4.0", "carry 24.0", "last 24.0"]


def test_calls_of_python(graph: sg.Graph) -> None:
    seen: list[float] = []

    def note(v: Array) -> Array:
        seen.append(float(v))
        return v * 2

    x = sg.placeholder((3,), sg.float64)

    def step(c: Any, v: Any) -> Any:
        (doubled,) = sg.py_call(note, [sg.stop_gradient(v)], [(sg.float64, ())])
        return c + doubled * v, doubled

    last, ys = sg.scan(step, sg.zeros((), dtype=sg.float64), x)
    got = run([last, ys, sg.gradients(last, x)[0]], {x: [1.0, 2.0, 3.0]})
    assert seen == [1.0, 2.0, 3.0]
    assert got[0] == 28.0
    np.testing.assert_array_equal(got[2], [2, 4, 6])


def test_checks_in_a_body_end_the_run(graph: sg.Graph) -> None:
    x = sg.placeholder((4,), sg.float64)
    w = sg.Variable(np.zeros(()))

    def step(c: Any, v: Any) -> Any:
        sg.assert_(v > 0, "all positive")
        return c + v, None

    last, _ = sg.scan(step, sg.zeros((), dtype=sg.float64), x)
    write = sg.assign(w, last)
    with sg.Session() as session:
        assert session.run(write.outputs[0], {x: [1.0, 2, 3, 4]}) == 10
        with pytest.raises(sg.StaticGradError, match="all positive"):
            session.run(write, {x: [1.0, 2, -3, 4]})
        assert session.get(w) == 10


def test_bounds_in_a_body(graph: sg.Graph) -> None:
    table, index = sg.placeholder((5,), sg.float64), sg.placeholder((3,), sg.int64)
    last, _ = sg.scan(lambda c, i: (c + sg.take(table, i), None), sg.zeros((), dtype=sg.float64), index)
    data = values(13, 5)
    got = run([last, sg.gradients(last, table)[0]], {table: data, index: [1, 4, 1]})
    np.testing.assert_allclose(got[0], data[[1, 4, 1]].sum())
    np.testing.assert_allclose(got[1], [0, 2, 0, 0, 1])
    with pytest.raises(sg.BoundsError, match="9"):
        run(last, {table: data, index: [1, 9, 1]})


# -- cond and while_loop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holds", [True, False])
def test_cond(graph: sg.Graph, holds: bool) -> None:
    p, x = sg.placeholder((), sg.bool), sg.placeholder((3,), sg.float64)
    ran: list[str] = []

    def branch(name: str, y: Any) -> Any:
        (z,) = sg.py_call(lambda v: (ran.append(name), v)[1], [sg.stop_gradient(x)], [(sg.float64, (3,))])
        return y + 0.0 * z

    y = sg.cond(p, lambda: branch("then", sg.sin(x) * x), lambda: branch("else", sg.exp(x)))
    data = values(14, 3)
    np.testing.assert_allclose(run(y, {p: holds, x: data}), np.sin(data) * data if holds else np.exp(data))
    assert ran == ["then" if holds else "else"]
    z = sg.cond(p, lambda: sg.sin(x) * x, lambda: sg.exp(x))
    (first,) = sg.gradients(z, x)
    (second,) = sg.gradients(first, x)
    (tangent,) = sg.jvp(z, x, x)
    got = run([first, second, tangent], {p: holds, x: data})
    sine, cosine = np.sin(data), np.cos(data)
    want = [cosine * data + sine, 2 * cosine - data * sine] if holds else [np.exp(data)] * 2
    np.testing.assert_allclose(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1])
    np.testing.assert_allclose(got[2], want[0] * data)


def test_a_carry_that_no_branch_gives_a_gradient_to_gets_none(graph: sg.Graph) -> None:
    @sg.custom_gradient
    def never_derived(x: Any) -> Any:
        def rule(ct: Any) -> Any:
            raise AssertionError("derived, though nothing that depends on it is")

        return sg.identity(x), rule

    def step(carry: tuple[Any, Any], _: Any) -> Any:
        x, kept = carry
        x, kept = sg.cond(x > 2, lambda: (x * sg.stop_gradient(kept), never_derived(kept)), lambda: (x * 2, kept))
        return (x, kept), None

    x, w = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
    (last, _), _ = sg.scan(step, (x, w), None, length=3)
    assert run(sg.gradients(last, x), {x: 0.9, w: 5.0})[0] == 2 * 2 * 5.0


def test_a_cond_in_a_scan(graph: sg.Graph) -> None:
    x, w = sg.placeholder((4,), sg.float64), sg.placeholder((), sg.float64)

    def step(c: Any, v: Any) -> Any:
        c = sg.cond(v > 0, lambda: c * w, lambda: c + sg.sin(v * w))
        return c, None

    last, _ = sg.scan(step, w, x)
    expected = w
    for i in range(4):
        expected = sg.where(x[i] > 0, expected * w, expected + sg.sin(x[i] * w))
    found = []
    for y in (last, expected):
        first = sg.gradients(y, [x, w])
        found.append([y, first, sg.gradients(sg.sum(first[0]) + first[1], [x, w])])
    same(*found, {x: np.array([0.5, -1.0, 2.0, -0.3]), w: 1.3})


def newton(steps: int | None) -> tuple[Any, Any, Any]:
    a = sg.placeholder((), sg.float64)

    def improve(state: tuple[Any, Any]) -> Any:
        return 0.5 * (state[0] + a / state[0]), state[1] + 1

    root, count = sg.while_loop(
        lambda s: sg.abs(s[0] * s[0] - a) > 1e-12, improve, (sg.ones((), dtype=sg.float64), 0), max_steps=steps
    )
    return a, root, count


@pytest.mark.parametrize("steps", [None, 50])
def test_while_loop_finds_a_root(graph: sg.Graph, steps: int | None) -> None:
    a, root, count = newton(steps)
    (tangent,) = sg.jvp(root, a, 1.0)
    for number in (2.0, 9.0, 1.0):
        got = run([root, count, tangent], {a: number})
        np.testing.assert_allclose(got[0], np.sqrt(number))
        assert 0 <= got[1] < 12
        np.testing.assert_allclose(got[2], 0.5 / np.sqrt(number) if got[1] else 0.0, rtol=1e-9)


def test_while_loop_in_reverse(graph: sg.Graph) -> None:
    a, root, _ = newton(40)
    (first,) = sg.gradients(root, a)
    (second,) = sg.gradients(first, a)
    got = run([first, second], {a: 2.0})
    np.testing.assert_allclose(got[0], 0.5 / np.sqrt(2), rtol=1e-9)
    np.testing.assert_allclose(got[1], -0.25 * 2**-1.5, rtol=1e-6)


def test_while_loop_stops_at_its_bound(graph: sg.Graph) -> None:
    x = sg.placeholder((), sg.float64)
    y = sg.while_loop(lambda s: s < 100.0, lambda s: s * 3.0, x, max_steps=2)
    got = run([y, sg.gradients(y, x)[0]], {x: 2.0})
    assert got == [18.0, 9.0]
    assert run([y, sg.gradients(y, x)[0]], {x: 50.0}) == [150.0, 3.0]


def test_without_a_bound_there_is_no_reverse(graph: sg.Graph) -> None:
    a, root, _ = newton(None)
    with pytest.raises(sg.GradientError, match="max_steps"):
        sg.gradients(root, a)


# -- what is refused ----------------------------------------------------------------------------------------------


def test_bad_declarations(graph: sg.Graph) -> None:
    x = sg.placeholder((3, 2))
    w = sg.Variable(np.zeros(2, np.float32))
    with pytest.raises(sg.GraphError, match="keeps its types"):
        sg.scan(lambda c, v: (sg.sum(c), None), np.zeros(2, np.float32), x)
    with pytest.raises(sg.GraphError, match="structure"):
        sg.scan(lambda c, v: ((c, c), None), np.zeros(2, np.float32), x)
    with pytest.raises(sg.GraphError, match="length"):
        sg.scan(lambda c, v: (c, None), 0.0)
    with pytest.raises(sg.GraphError, match="length"):
        sg.scan(lambda c, v: (c, None), 0.0, x, length=4)
    with pytest.raises(sg.GraphError, match="carry, y"):
        sg.scan(lambda c, v: c, 0.0, x)
    with pytest.raises(sg.GraphError, match="written outside"):
        sg.scan(lambda c, v: (sg.assign(w, v), None), np.zeros(2, np.float32), x)
    with pytest.raises(sg.GraphError, match="bool"):
        sg.while_loop(lambda s: s, lambda s: s + 1.0, 0.0)
    with pytest.raises(sg.GraphError, match="bool"):
        sg.cond(sg.sum(x), lambda: x, lambda: x)
    with pytest.raises(sg.GraphError, match="differ"):
        sg.cond(True, lambda: x, lambda: w)
    with pytest.raises(sg.GraphError, match="structure") as caught:
        sg.cond(True, lambda: x, lambda: (x, x))
    assert str(caught.value).count("declared at") == 1
    leaked: list[Any] = []
    sg.scan(lambda c, v: (leaked.append(c), (c, None))[1], 0.0, x)
    with pytest.raises(sg.GraphError):
        leaked[0] + 1.0


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda x: sg.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y), (0, x)),
            r"cond_fn: expected a function of \(state\), actual one of \(i, y\); init, and so the state, is one nest",
        ),
        (lambda x: sg.while_loop(lambda s: s[0] < 3, lambda i, y: (i + 1, y), (0, x)), "body_fn: .*, actual one of"),
        (lambda x: sg.scan(lambda c: c, 0.0, x), r"scan: fn: expected a function of \(carry, x\), actual one of \(c\)"),
        (lambda x: sg.map(lambda: 0, x), r"map: fn: expected a function of \(x\), actual one of \(\)"),
        (lambda x: sg.cond(True, lambda x: x, lambda: x), r"cond: then_fn: expected a function of \(\), actual one of"),
        (lambda x: sg.cond(True, lambda: x, x), r"cond: else_fn: expected a function of \(\), actual <tensor"),
    ],
)
def test_functions_of_other_arguments_are_refused_before_anything_is_declared(
    graph: sg.Graph, declare: Callable[[sg.Tensor], object], message: str
) -> None:
    x = sg.placeholder((3,))
    count = len(graph.nodes)
    with pytest.raises(sg.GraphError, match=message):
        declare(x)
    assert len(graph.nodes) == count


def test_functions_of_every_kind_are_called(graph: sg.Graph) -> None:
    x = sg.constant([1.0, 4.0])
    double = functools.partial(sg.multiply, 2.0)
    found = sg.Session(graph).run([sg.map(f, x) for f in (sg.sqrt, double, sg.nn.Identity(), lambda *args: args[0])])
    np.testing.assert_array_equal(found, [[1, 2], [2, 8], [1, 4], [1, 4]])


# -- recurrent layers ---------------------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm_by_hand(x: Array, p: dict[str, Array], suffix: str, size: int) -> tuple[Array, Array, Array]:
    h = c = np.zeros((x.shape[1], size))
    outputs = []
    for row in x:
        gates = row @ p["weight_ih" + suffix].T + p["bias_ih" + suffix] + h @ p["weight_hh" + suffix].T
        i, f, g, o = np.split(gates + p["bias_hh" + suffix], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def gru_by_hand(x: Array, p: dict[str, Array], suffix: str, size: int) -> tuple[Array, Array]:
    h = np.zeros((x.shape[1], size))
    outputs = []
    for row in x:
        ar, az, an = np.split(row @ p["weight_ih" + suffix].T + p["bias_ih" + suffix], 3, axis=1)
        br, bz, bn = np.split(h @ p["weight_hh" + suffix].T + p["bias_hh" + suffix], 3, axis=1)
        z = sigmoid(az + bz)
        h = (1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h
        outputs.append(h)
    return np.stack(outputs), h


def first_values(module: Any) -> dict[str, Array]:
    return {n: values(i, *v.shape) * 0.5 for i, (n, v) in enumerate(module.named_parameters())}


def test_lstm(graph: sg.Graph) -> None:
    lstm = sg.nn.LSTM(5, 4, num_layers=2, dtype=sg.float64)
    x = sg.placeholder((6, 3, 5), sg.float64)
    y, (h, c) = lstm(x)
    assert [n for n, _ in lstm.named_parameters()][:4] == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"
    ]  # fmt: skip
    p, data = first_values(lstm), values(20, 6, 3, 5)
    with sg.Session() as session:
        lstm.load_state_dict(session, p)
        got = session.run([y, h, c], {x: data})
    below, h0, c0 = lstm_by_hand(data, p, "_l0", 4)
    want, h1, c1 = lstm_by_hand(below, p, "_l1", 4)
    for a, b in zip(got, (want, np.stack([h0, h1]), np.stack([c0, c1])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_gru_both_ways_batch_first(graph: sg.Graph) -> None:
    gru = sg.nn.GRU(5, 4, batch_first=True, bidirectional=True, dtype=sg.float64)
    x = sg.placeholder((3, 6, 5), sg.float64)
    y, h = gru(x)
    p, data = first_values(gru), values(21, 3, 6, 5)
    with sg.Session() as session:
        gru.load_state_dict(session, p)
        got = session.run([y, h], {x: data})
    rows = data.swapaxes(0, 1)
    there, h0 = gru_by_hand(rows, p, "_l0", 4)
    back, h1 = gru_by_hand(rows[::-1], p, "_l0_reverse", 4)
    want = np.concatenate([there, back[::-1]], axis=-1).swapaxes(0, 1)
    np.testing.assert_allclose(got[0], want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(got[1], np.stack([h0, h1]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_of_recurrent_layers(graph: sg.Graph, kind: str) -> None:
    module = getattr(sg.nn, kind)(3, 4, dtype=sg.float64)
    x = sg.placeholder((5, 2, 3), sg.float64)
    first = sg.placeholder((1, 2, 4), sg.float64)
    y, _ = module(x, (first, first * 0.5) if kind == "LSTM" else first)
    loss = sg.sum(y * sg.sin(y))
    leaves = [x, first, *module.parameters()]
    slopes = sg.gradients(loss, leaves)
    (slope,) = sg.jvp(loss, leaves, [sg.ones_like(v) for v in leaves])
    total = sum(sg.sum(g) for g in slopes)
    p, feeds = first_values(module), {x: values(22, 5, 2, 3), first: values(23, 1, 2, 4)}
    step = 1e-6
    with sg.Session() as session:
        module.load_state_dict(session, p)
        forward, backward = session.run([slope, total], feeds)
        ends = []
        for by in (step, -step):
            module.load_state_dict(session, {n: v + by for n, v in p.items()})
            ends.append(session.run(loss, {k: v + by for k, v in feeds.items()}))
    np.testing.assert_allclose(forward, backward, rtol=1e-10)
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), backward, rtol=1e-6)


def test_weights_that_turns_share_are_summed_in_one_product(graph: sg.Graph, setting: str) -> None:
    if setting != "compiled":
        return
    w, x = sg.Variable(np.zeros((8, 8))), sg.placeholder((16, 4, 8), sg.float64)
    last, _ = sg.scan(lambda h, row: (sg.tanh(h @ w + row), None), np.zeros((4, 8)), x)
    (slope,) = sg.gradients(last, w)
    with sg.Session() as session:
        text = session.compile(slope, [x]).text("kernels")
    turns = text.split("reversed")[1]
    assert "4x8 · 8x8" in turns  # of the state's cotangent
    assert "8x64 · 64x8" in turns.split("loop")[-1]  # of the weight, after the loop


# -- what is compiled ---------------------------------------------------------------------------------------------


def kernels(fetches: Any, feeds: list[Any]) -> str:
    with sg.Session() as session:
        text = session.compile(fetches, feeds).text("kernels")
    return "\n".join(line.split("  # ")[0] for line in text.split("\n"))  # without the lines of this file


def test_what_is_the_same_in_every_turn_is_computed_before(graph: sg.Graph, setting: str) -> None:
    w, v = sg.placeholder((8, 8), sg.float64), sg.placeholder((8, 8), sg.float64)
    x = sg.placeholder((5, 8), sg.float64)

    def step(c: Any, row: Any) -> Any:
        return sg.tanh(c @ (w @ v).T + row * sg.exp(sg.sum(v))), sg.sum(w, 0) + c

    last, ys = sg.scan(step, np.zeros(8), x)
    expected, rows = unrolled(step, sg.constant(np.zeros(8)), [x[i] for i in range(5)])
    feeds = {w: values(30, 8, 8), v: values(31, 8, 8) * 0.1, x: values(32, 5, 8)}
    found = [[a, b, sg.gradients(sg.sum(a) + sg.sum(b), [w, v, x])] for a, b in ((last, ys), (expected, rows))]
    same(*found, feeds)
    if setting == "compiled":
        before, inside = kernels([last, ys], [w, v, x]).split("turns")
        assert "8x8 · 8x8" in before
        assert "8x8 · 8x8" not in inside


def test_what_nobody_uses_is_not_computed(graph: sg.Graph, setting: str) -> None:
    x, w = sg.placeholder((5, 8), sg.float64), sg.placeholder((8,), sg.float64)

    def step(c: Any, row: Any) -> Any:
        a, b, n = c
        return (a * row, b + sg.exp(a * w), n), (sg.sin(b), a)

    (a, b, _), (sines, _) = sg.scan(step, (np.ones(8), np.zeros(8), 1.0), x)
    data, weights = values(33, 5, 8), values(34, 8)
    np.testing.assert_allclose(run(a, {x: data, w: weights}), data.prod(0))
    powers = np.concatenate([np.ones((1, 8)), np.cumprod(data, 0)[:-1]])
    totals = np.cumsum(np.exp(powers * weights), 0)
    got = run([b, sines], {x: data, w: weights})
    np.testing.assert_allclose(got[0], totals[-1])
    np.testing.assert_allclose(got[1], np.sin(np.concatenate([np.zeros((1, 8)), totals[:-1]])))
    if setting == "compiled":
        assert "exp" not in kernels(a, [x, w])
        assert "sin" not in kernels(b, [x, w])


def test_sums_start_where_the_carry_did(graph: sg.Graph) -> None:
    x, y = sg.placeholder((6, 4, 3), sg.float64), sg.placeholder((6, 4, 5), sg.float64)
    first = sg.placeholder((3, 5), sg.float64)

    def step(c: Any, row: tuple[Any, Any]) -> Any:
        a, b = row
        return (c[0] + a.T @ b, c[1] + sg.sum(a, 0)), None

    for reverse in (False, True):
        (products, totals), _ = sg.scan(step, (first, np.ones(3)), (x, y), reverse=reverse)
        p, q, r = values(35, 6, 4, 3), values(36, 6, 4, 5), values(37, 3, 5)
        got = run([products, totals, sg.gradients(products, [x, first])], {x: p, y: q, first: r})
        np.testing.assert_allclose(got[0], r + np.einsum("tbi,tbj->ij", p, q))
        np.testing.assert_allclose(got[1], 1 + p.sum((0, 1)))
        np.testing.assert_allclose(got[2][0], np.broadcast_to(q.sum(2, keepdims=True), p.shape))
        np.testing.assert_allclose(got[2][1], np.ones((3, 5)))


# -- what loops stack for their derivatives -----------------------------------------------------------------------


def bodies(steps: int, count: int) -> tuple[sg.Graph, list[sg.Tensor], list[sg.Tensor]]:
    """Bodies that attract each other, a rolled and padded copy among them; the gradients of first and second order."""
    with sg.Graph() as graph:
        places, speeds = (sg.placeholder((count, 3), sg.float64, name=name) for name in ("places", "speeds"))
        push = sg.placeholder((steps, count, 1), sg.float64, name="push")

        def turn(carry: Any, push: sg.Tensor) -> Any:
            x, v = carry
            apart = sg.expand_dims(x, axis=1) - sg.expand_dims(sg.roll(x, 1, axis=0), axis=0)
            square = sg.sum(sg.where(apart > 0, apart, 0.5 * apart) ** 2, axis=-1) + 1.0
            v = v * (1 + 0.01 * push) - 0.01 * sg.sum(apart / sg.expand_dims(square * sg.sqrt(square), axis=-1), axis=1)
            return (x + 0.01 * v, v), x[0]

        (x, _), rows = sg.scan(turn, (places, speeds), push)
        loss = sg.sum(x * x) + sg.sum(rows)
        first = sg.gradients(loss, [places, speeds, push])
        second = sg.gradients(sg.sum(first[0] ** 2), [places, push])
        tangents = sg.jvp(first[1], [places], [np.ones((count, 3))])
    return graph, [places, speeds, push], [loss, *first, *second, *tangents]


def test_cheap_values_are_computed_again_where_stacks_outgrow_the_caches(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    steps, count = 7, 5
    arrays = [rng.normal(size=shape) for shape in ((count, 3), (count, 3), (steps, count, 1))]
    results, stacks = [], []
    for near in (1 << 30, 0):
        monkeypatch.setattr(loops, "NEAR_BYTES", near)
        graph, feeds, fetches = bodies(steps, count)
        with sg.Session(graph) as session:
            results.append(session.run(fetches, dict(zip(feeds, arrays, strict=True))))
        stacks.append(sum(y.type.nbytes for n in graph.nodes if n.op.name == "scan" for y in n.outputs[2:]))
    assert stacks[1] < 0.7 * stacks[0]
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
