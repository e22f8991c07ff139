"""What follows from variables alone is computed again exactly when one of them has changed."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.selection import rotating
from support.targets import EVERY, HERE

import staticgrad as sg
from staticgrad.compiler.emit.families import packed_kernel, plan_kernel
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.machine.target import Target, current_target, named
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.plans.contraction.blocking import blockings
from staticgrad.compiler.plans.contraction.plan import ContractionPlan
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.steps.prepare import REASON
from staticgrad.graph.optable import Array

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


class Net:
    """A convolution, a product and a bias that another kernel makes, all of variables."""

    def __init__(self, groups: int = 1, stride: int = 1, rows: int = 24) -> None:
        with sg.Graph() as self.graph:
            self.x = sg.placeholder((rows, 8, 6, 6), name="x")
            self.w = sg.Variable(normal(20, 8 // groups, 3, 3), name="w")
            self.v = sg.Variable(normal(40, 20), name="v")
            self.b = sg.Variable(normal(40), name="b")
            y = sg.nn.relu(sg.nn.conv2d(self.x, self.w, stride=stride, padding=1, groups=groups))
            bias = sg.cumulative_sum(self.b)  # a routine: no other kernel computes it on its way
            self.y = sg.nn.linear(sg.sum(y, (2, 3)), self.v, bias)
            self.train = sg.optim.SGD(lr=1e-6).minimize(sg.mean(self.y**2))
        self.groups, self.stride = groups, stride

    def expected(self, session: sg.Session, x: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
        with monkeypatch.context() as patch:
            patch.setenv("STATICGRAD_BACKEND", "reference")
            other = sg.Session(self.graph)
            for variable in (self.w, self.v, self.b):
                other.set(variable, session.get(variable))
            answer: Array = other.run(self.y, {self.x: x})
        return answer


def kept(exe: sg.Executable) -> list[str]:
    return [buffer.name for buffer in exe.memory.buffers if buffer.reason == REASON]


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_MEMORY", "plan")  # poison would overwrite what is kept


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(
    ("groups", "stride", "rows"), [(1, 1, 24), (2, 1, 3), (1, 2, 24), (1, 1, 1), (1, 1, 2), (1, 1, 9)]
)
def test_answers_follow_every_change_of_a_variable(
    target: str, groups: int, stride: int, rows: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    net = Net(groups, stride, rows)
    session = sg.Session(net.graph, num_threads=2)
    exe, train = session.compile(net.y, [net.x]), session.compile(net.train, [net.x])
    x = normal(rows, 8, 6, 6)

    def agrees() -> None:
        expected = net.expected(session, x, monkeypatch)
        np.testing.assert_allclose(exe(x), expected, atol=1e-5 * np.abs(expected).max())

    agrees()
    session.save(tmp_path / "state")
    before = exe(x)
    for variable in (net.w, net.v, net.b):
        session.set(variable, session.get(variable) * 1.5)
        agrees()
    train(x)
    agrees()
    session.restore(tmp_path / "state")
    np.testing.assert_array_equal(exe(x), before)


def test_weights_are_packed_once() -> None:
    net = Net()
    session = sg.Session(net.graph)
    exe = session.compile(net.y, [net.x])
    names = kept(exe)
    assert {"w.packed", "v.packed"} <= set(names)
    assert len(names) == 3  # and the sums of b
    x = normal(24, 8, 6, 6)
    before = exe(x)
    for variable in (net.w, net.v, net.b):
        session.store.array(variable.name)[...] = 0  # behind the session's back: no version says so
    np.testing.assert_array_equal(exe(x), before)
    session.set(net.w, session.get(net.w))
    np.testing.assert_array_equal(exe(x), np.zeros((24, 40), np.float32))


def test_packed_weights_give_the_bits_of_weights_packed_at_each_call() -> None:
    net = Net()
    x = normal(24, 8, 6, 6)
    with net.graph:
        fed = [sg.placeholder(v.shape) for v in (net.w, net.v)]
        y = sg.nn.relu(sg.nn.conv2d(net.x, fed[0], padding=1))
        other = sg.nn.linear(sg.sum(y, (2, 3)), fed[1], sg.cumulative_sum(net.b))
    session = sg.Session(net.graph)
    weights = {p: session.get(v) for p, v in zip(fed, (net.w, net.v), strict=True)}
    np.testing.assert_array_equal(session.run(net.y, {net.x: x}), session.run(other, {net.x: x, **weights}))


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 16, 33])
def test_few_rows_by_kept_weights(rows: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is computed another way around than with weights that are fed, also where its epilogue reads it."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    with sg.Graph() as graph:
        x = sg.placeholder((rows, 70))
        w, v, b = sg.Variable(normal(50, 70)), sg.Variable(normal(50, 30)), sg.Variable(normal(50))
        hidden = sg.tanh(sg.nn.linear(x, w, b))
        y = [hidden, hidden @ v, sg.permute_dims(hidden @ v, (1, 0)) * 2.0]
    session, fed = sg.Session(graph), normal(rows, 70)
    first = np.tanh(fed @ session.get(w).T + session.get(b))
    second = first @ session.get(v)
    for actual, expected in zip(session.run(y, {x: fed}), (first, second, 2 * second.T), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_programs_that_write_or_that_have_a_budget_prepare_nothing() -> None:
    net = Net()
    session = sg.Session(net.graph)
    with net.graph:
        counter = sg.Variable(np.float32(0), name="counter")
        count = sg.assign(counter, counter + 1)
    assert not kept(session.compile([net.y, count], [net.x]))
    assert not kept(session.compile([net.y, net.train], [net.x]))
    assert not kept(session.compile(net.y, [net.x], memory_budget=1.0))


def test_what_grows_is_computed_at_every_call() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((64,))
        p = sg.Variable(normal(64), name="p")
        gaps = sg.cumulative_sum(p)[:, None] - sg.sort(p)[None, :]
        y = sg.cumulative_sum(gaps, axis=1) @ x
    session = sg.Session(graph)
    exe, fed = session.compile(y, [x]), normal(64)
    value = session.get(p)
    expected = np.cumsum(np.cumsum(value)[:, None] - np.sort(value)[None, :], axis=1) @ fed
    np.testing.assert_allclose(exe(fed), expected, rtol=1e-3, atol=1e-3)
    assert not kept(exe)


def test_a_fed_variable_is_not_kept() -> None:
    net = Net()
    session = sg.Session(net.graph)
    x = normal(24, 8, 6, 6)
    exe = session.compile(net.y, [net.x, net.w])
    assert "w.packed" not in kept(exe)
    before = exe(x, session.get(net.w))
    np.testing.assert_array_equal(exe(x, np.zeros((20, 8, 3, 3), np.float32)) == before, np.zeros((24, 40), bool))
    np.testing.assert_array_equal(exe(x, session.get(net.w)), before)


def test_calls_at_once_each_see_one_state() -> None:
    """Two states, a thread that switches between them: every answer belongs to one of the two."""
    net = Net(rows=48)
    session = sg.Session(net.graph, num_threads=1)
    exe = session.compile(net.y, [net.x])
    x = normal(48, 8, 6, 6)
    values = [normal(20, 8, 3, 3), normal(20, 8, 3, 3)]
    answers = []
    for value in values:
        session.set(net.w, value)
        answers.append(exe(x))
    wrong: list[Array] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            y = exe(x)
            if not any(np.array_equal(y, answer) for answer in answers):
                wrong.append(y)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        session.set(net.w, values[turn % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_kept_program_prepares_for_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path))
    x = normal(24, 8, 6, 6)
    for _ in range(2):  # the second net finds the program of the first
        net = Net()
        session = sg.Session(net.graph)
        answer = session.compile(net.y, [net.x])(x)
        expected = net.expected(session, x, monkeypatch)
        np.testing.assert_allclose(answer, expected, atol=1e-5 * np.abs(expected).max())


def test_profiles_count_no_time_for_what_is_kept() -> None:
    """The clock is not read between prepared steps, but as often as there are such in a row behind them."""
    net = Net()
    options = CompileOptions(current_target(), timed=True, prepares=True)
    program = compile_region(cut(net.graph, [net.y], {net.x: net.x.type}), options)
    packs = [cost for cost in program.costs if cost.family == "pack"]
    assert len(packs) == 2
    functions = program.llvm_text.split("\ndefine ")
    (prepared,) = (text for text in functions if "@main.steps0(" in text.partition("\n")[0])
    clock = "call i64 @llvm.read"
    assert clock not in prepared
    readings = [text.count(clock) for text in functions]
    assert sum(readings) == max(readings) == len(program.costs) + 1
    profile = sg.Session(net.graph).compile(net.y, [net.x]).profile(normal(24, 8, 6, 6))
    assert [kernel.family for kernel in profile.kernels].count("pack") == 2


@pytest.mark.parametrize("target", [name for name in HERE if named(name).isa.vector_bytes >= 32])
@pytest.mark.parametrize("transposed", [False, True])
def test_weights_of_few_columns_are_packed_with_terms_side_by_side(
    transposed: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    with sg.Graph() as graph:
        x = sg.placeholder((60, 301), name="x")
        w = sg.Variable(normal(4, 301) if transposed else normal(301, 4), name="w")
        y = x @ (sg.permute_dims(w, (1, 0)) if transposed else w)
    session = sg.Session(graph)
    exe, given = session.compile(y, [x]), normal(60, 301)
    assert kept(exe)
    for _ in range(2):
        weights = session.get(w).T if transposed else session.get(w)
        np.testing.assert_allclose(exe(given), given @ weights, rtol=1e-4, atol=1e-4)
        session.set(w, normal(*session.get(w).shape))


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("turns", [2, 9])
@pytest.mark.parametrize("turned", [False, True])
def test_what_all_turns_of_a_loop_multiply_by_is_packed_before_it(
    target: str, turns: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recurrent layer packed its weights in every step. Few turns aren't worth it; the weights may be trained."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    xs, weights = normal(turns, 40, 256), normal(256, 256) / 64
    with sg.Graph() as graph:
        x, w = sg.placeholder(xs.shape), sg.Variable(weights)
        by = sg.permute_dims(w, (1, 0)) if turned else w
        last, _ = sg.scan(lambda h, row: ((h := sg.tanh(row + h @ by)), h), sg.zeros((40, 256)), x)
        train = sg.optim.SGD(lr=1e-3).minimize(sg.sum(last))
    exe = sg.Session(graph).compile([last, train], [x])
    (answer, _), (again, _) = exe(xs), exe(xs)
    for given, w_now in ((answer, weights), (again, weights - 1e-3 * _gradient(xs, weights, turned=turned))):
        h = np.zeros((40, 256))
        for row in xs.astype(np.float64):
            h = np.tanh(row + h @ (w_now.T if turned else w_now))
        np.testing.assert_allclose(given, h, rtol=0, atol=2e-4)
    assert ("pack for contraction" in exe.text("kernels")) <= (turns > 2)


def _gradient(xs: Array, weights: Array, *, turned: bool) -> Array:
    """Of the sum of the last state, by the weights."""
    w = (weights.T if turned else weights).astype(np.float64)
    states = [np.zeros((xs.shape[1], xs.shape[2]))]
    for row in xs.astype(np.float64):
        states.append(np.tanh(row + states[-1] @ w))
    cotangent, total = np.ones_like(states[0]), np.zeros_like(w)
    for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
        inner = cotangent * (1 - after * after)
        total += before.T @ inner
        cotangent = inner @ w.T
    gradient: Array = total.T if turned else total
    return gradient


@pytest.mark.parametrize("size", [8, None])
def test_a_constant_that_all_turns_multiply_by_is_packed(size: int | None) -> None:
    """Where no variable was packed beside it, the packing never ran, and the loop read what lay there."""
    xs, weights = normal(8, 6), normal(6, 6) / 3
    with sg.Graph() as graph:
        x, w = sg.placeholder((size, 6)), sg.constant(weights)
        last, _ = sg.scan(lambda h, row: (sg.sin(row + h @ w), None), sg.zeros(6), x)
        slope = sg.gradients(sg.sum(last), x)[0]
    exe = sg.Session(graph).compile(slope, x)
    h, inner = np.zeros(6), []
    for row in xs.astype(np.float64):
        inner.append(np.cos(row + h @ weights))
        h = np.sin(row + h @ weights)
    wanted, cotangent = [], np.ones(6)
    for factor in reversed(inner):
        wanted.insert(0, cotangent * factor)
        cotangent = wanted[0] @ weights.T
    for _ in range(2):
        np.testing.assert_allclose(exe(xs), wanted, rtol=0, atol=1e-5)
    assert "pack for contraction" in exe.text("kernels")


def one_of(rng: np.random.Generator, *choices: int) -> int:
    return int(rng.choice(choices))


def drawn_layer(rng: np.random.Generator) -> tuple[sg.Tensor, sg.Tensor]:
    """A placeholder and a product or convolution of it with a variable, of a drawn size, layout and epilogue."""
    dtype = sg.float32 if rng.random() < 0.5 else sg.float64

    def variable(*shape: int) -> sg.Tensor:
        return sg.Variable(rng.normal(size=shape).astype(dtype))

    if rng.random() < 0.25:
        size, kernel, stride = one_of(rng, 4, 7, 8, 14), one_of(rng, 1, 3), one_of(rng, 1, 2)
        channels, filters = one_of(rng, 1, 2, 3, 4, 8, 16), one_of(rng, 1, 2, 3, 6, 8, 20)
        x = sg.placeholder((one_of(rng, 1, 2, 5), channels, size, size), dtype)
        y = sg.nn.conv2d(x, variable(filters, channels, kernel, kernel), stride=stride, padding=kernel // 2)
        return x, sg.nn.relu(y) if rng.random() < 0.5 else y
    m, n = (one_of(rng, 1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 17, 24, 32, 33, 48, 64) for _ in range(2))
    k = one_of(rng, 1, 3, 4, 8, 12, 16, 33, 64) * one_of(rng, 1, 1, 4, 9)
    x, kind = sg.placeholder((m, k), dtype), rng.integers(3)
    y = (x @ variable(n, k).T, x @ variable(k, n), variable(n, k) @ x.T)[kind]
    return x, sg.nn.relu(y + variable(int(y.shape[-1]))) if rng.random() < 0.5 else y


@pytest.mark.parametrize("seed", rotating(range(16), 8))
@pytest.mark.parametrize("target", EVERY)
def test_what_is_kept_packed_changes_no_bits(target: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A C function and an export keep nothing from call to call, an executable does: all add up in one order."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    rng = np.random.default_rng(seed)
    with sg.Graph() as graph:
        layers = [drawn_layer(rng) for _ in range(12)]
    feeds, fetches = [x for x, _ in layers], [y for _, y in layers]
    arrays = [rng.normal(size=x.shape).astype(x.dtype) for x in feeds]
    with sg.Session(graph, num_threads=1) as session:
        executable = session.compile(fetches, feeds)
        alone = [np.empty(y.shape, y.dtype) for y in fetches]
        assert executable.cfunc("slots").raw(*arrays, *alone) == 0
        for kept_result, result in zip(executable(*arrays), alone, strict=True):
            np.testing.assert_array_equal(kept_result, result)


@pytest.mark.parametrize("target", EVERY)
def test_a_product_kept_packed_or_measured_has_as_many_sums_an_element(target: str) -> None:
    """16x12 by a variable of 12x1: the transpose has four sums for each element, and was taken where it is packed."""
    sizes = (1, 2, 3, 5, 8, 9, 12, 16, 17, 33)
    for m, n, k, a, b in itertools.product(sizes, sizes, (3, 12, 64), (False, True), (False, True)):
        strides = (1, m) if a else (k, 1), (1, k) if b else (n, 1)
        kernel = Contraction(np.dtype(np.float32), (), m, n, k, *strides, (n, 1))
        usual = planned_sums(kernel, named(target))
        for number in (0, 1):
            packed = packed_kernel(kernel, named(target), number)
            assert packed is None or packed.plan.tiling.chains == usual, (m, n, k, strides, number)
        for blocking in blockings(kernel, named(target)):
            assert planned_sums(replace(kernel, blocking=blocking), named(target)) == usual, blocking


def planned_sums(kernel: Contraction, target: Target) -> int:
    """The number of sums of each element."""
    plan: Any = plan_kernel(kernel, target).plan
    return plan.tiling.chains if isinstance(plan, ContractionPlan) else 1
