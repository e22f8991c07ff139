"""Computing again instead of keeping: by declaration (``sg.checkpoint``) and by budget (``memory_budget=``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import nets
from support.random_graphs import random_graph

import staticgrad as sg
from staticgrad.compiler.steps import recompute
from staticgrad.compiler.steps.recompute import OverBudgetError, fit
from staticgrad.graph.graph import Tensor
from staticgrad.runtime.session.executable import Executable

Array = np.ndarray[Any, np.dtype[Any]]
BATCH, WIDTH = 256, 32


@pytest.fixture
def g() -> Any:
    graph = sg.Graph()
    with graph:
        yield graph


@pytest.fixture(params=["compiled", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STATICGRAD_BACKEND", request.param)
    return str(request.param)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in ("MEMORY", "BACKEND"):
        monkeypatch.delenv(f"STATICGRAD_{switch}", raising=False)


def plain(fn: Callable[..., Any], *inputs: Any) -> Any:
    return fn(*inputs)


def weights(count: int) -> list[Tensor]:
    rng = np.random.default_rng(0)
    return [sg.Variable(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) * 0.2) for _ in range(count)]


class Net:
    """Blocks of two layers with dropout, each declared by ``call``; gradients of first and second order."""

    def __init__(self, call: Callable[..., Any], blocks: int = 2) -> None:
        self.graph = sg.Graph()
        with self.graph:
            self.x = sg.placeholder((BATCH, WIDTH), requires_grad=True)
            self.w = weights(2 * blocks)
            y = self.x
            for a, b in zip(self.w[::2], self.w[1::2], strict=True):
                y = call(self.block, y, {"a": a, "b": b})
            self.loss = sg.mean(y * y)
            self.first = sg.gradients(self.loss, [self.x, *self.w])
            self.second = sg.gradients([sg.sum(d * d) for d in self.first], [self.x, *self.w])
        self.sess = sg.Session(self.graph, seed=1)
        self.feed = np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32)

    @staticmethod
    def block(x: Tensor, w: dict[str, Tensor]) -> Tensor:
        return sg.tanh(sg.nn.dropout(sg.tanh(x @ w["a"]), 0.25) @ w["b"]) + x


# -- sg.checkpoint ----------------------------------------------------------------------------------------------------


def test_gradients_are_the_same_to_the_bit(backend: str) -> None:
    nets = Net(plain), Net(sg.checkpoint)
    losses, first, second = zip(*(n.sess.run((n.loss, n.first, n.second), {n.x: n.feed}) for n in nets), strict=True)
    assert losses[0] == losses[1]
    for a, b in zip(*first, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(*second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_tapes_draw_what_their_forward_drew(backend: str) -> None:
    grads = []
    for net in (Net(plain), Net(sg.checkpoint)):
        net.sess.run(net.loss, {net.x: net.feed})  # so that the tapes' run numbers are not 0
        tapes = [net.sess.forward(net.loss, {net.x: net.feed}) for _ in range(2)]
        for tape in tapes:
            tape.backward(net.loss)
        grads.append([net.sess.grad(v) for v in (net.x, *net.w)])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("planned")
def test_less_is_kept() -> None:
    """Of five blocks of about five values only the inputs stay, and one block's values at a time."""
    arenas, saved = [], []
    for net in (Net(plain, 5), Net(sg.checkpoint, 5)):
        arenas.append(net.sess.compile([net.loss, net.first], [net.x]).memory.arena_bytes)
        tape = net.sess.forward(net.loss, {net.x: net.feed})
        saved.append(tape.memory.saved_bytes)
    assert arenas[1] < 0.65 * arenas[0]
    assert saved[1] <= 6 * BATCH * WIDTH * 4 + 1024
    assert saved[1] < 0.5 * saved[0]


@pytest.mark.usefixtures("planned")
def test_it_is_not_undone(g: sg.Graph) -> None:
    x = sg.placeholder((64, 64), requires_grad=True)
    w = sg.Variable(np.eye(64, dtype=np.float32))
    y = sg.checkpoint(lambda v: sg.tanh(sg.tanh(v @ w) @ w), x)
    (dx,) = sg.gradients(sg.sum(y * y), x)
    exe = sg.Session(g).compile(dx, [x])
    products = [line for line in exe.text("graph").split("\n") if " dot(" in line]
    assert len(products) == 6  # two forward, two again, two back


def looped(call: Callable[..., Any]) -> tuple[sg.Graph, Tensor, list[Tensor]]:
    """A scan over blocks of products and draws, each of which is computed by ``call``, with its gradients."""
    with sg.Graph() as graph:
        x = sg.placeholder((BATCH, WIDTH), requires_grad=True)
        a, b = weights(2)
        weight = {"a": a, "b": b}

        def step(state: Tensor, _: None) -> tuple[Tensor, Tensor]:
            state = call(lambda v: Net.block(sg.tanh(Net.block(v, weight) @ a), weight), state)
            return state, state

        states = sg.scan(step, x, None, length=20)[1]
        first = sg.gradients(sg.sum(states * states), [x, a, b])
        second = sg.gradients(sg.sum(first[0] * first[0]), [x, a])
    return graph, x, [*first, *second]


def test_a_checkpoint_in_a_loop_changes_no_gradient(backend: str) -> None:
    feed = np.random.default_rng(3).normal(size=(BATCH, WIDTH)).astype(np.float32)
    nets = [looped(call) for call in (plain, sg.checkpoint)]
    found = [sg.Session(graph, seed=1).run(wanted, {x: feed}) for graph, x, wanted in nets]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(a).max())


LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda v: sg.nn.layer_norm(v, v.shape[-1:]),
    "max": lambda v: v * sg.max(v, -1, keepdims=True),
    "prod": lambda v: v * sg.prod(v, -1, keepdims=True),
    "cumulative_prod": lambda v: sg.cumulative_prod(v, axis=-1),
    "attention": lambda v: sg.nn.scaled_dot_product_attention(v, v * 2, sg.sin(v)),
    "sort": lambda v: sg.sort(v, axis=-1) * sg.sin(v),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("loop", ["scan", "map", "while_loop"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_checkpoint_in_a_loop_may_need_values_that_only_rules_make(backend: str, layer: str, loop: str) -> None:
    """They were stacked by the forward loop, which had to have the cotangents that they come behind."""

    def declared(call: Callable[..., Any]) -> list[Tensor]:
        def turn(c: Tensor, row: Tensor) -> Tensor:
            made: Tensor = call(lambda c, row: sg.tanh(LAYERS[layer](c * row + row)), c, row)
            return made

        if loop == "scan":
            y = sg.scan(lambda c, row: (turn(c, row), c * row), first, rows)[1]
        elif loop == "map":
            y = sg.map(lambda row: turn(first, row), rows)
        else:
            y = sg.while_loop(lambda s: s[1] < 3, lambda s: (turn(s[0], rows[0]), s[1] + 1), (first, 0), max_steps=4)[0]
        gradients = sg.gradients(sg.sum(sg.sin(y)), [first, rows], unconnected_gradients="zero")
        squares = sg.sum(sg.square(gradients[1]))
        return [y, *gradients, *sg.gradients(squares, [first, rows], unconnected_gradients="zero")]

    with sg.Graph() as graph:
        first = sg.placeholder((4, 3), sg.float64, requires_grad=True)
        rows = sg.placeholder((5, 4, 3), sg.float64, requires_grad=True)
        both = declared(plain), declared(sg.checkpoint)
    rng = np.random.default_rng(0)
    feeds = {first: rng.normal(size=(4, 3)), rows: rng.normal(size=(5, 4, 3))}
    for a, b in zip(*sg.Session(graph).run(both, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("planned")
def test_a_checkpoint_in_a_loop_keeps_what_lies_between_turns() -> None:
    """Its values were stacked as they were computed again, in the forward loop, before the gradients they wait for."""
    nets = [looped(call) for call in (plain, sg.checkpoint)]
    arenas = [sg.Session(graph).compile(wanted[:3], [x]).memory.arena_bytes for graph, x, wanted in nets]
    assert arenas[1] < 0.65 * arenas[0]


def test_checkpoints_in_checkpoints(backend: str) -> None:
    def inner(x: Tensor, w: Tensor) -> Tensor:
        return sg.tanh(sg.sin(x @ w) * x)

    def outer(call: Callable[..., Any], x: Tensor, a: Tensor, b: Tensor) -> dict[str, Any]:
        y = call(inner, x, a)
        return {"last": call(inner, y * 2, b), "between": [y]}

    found = []
    for call in (plain, sg.checkpoint):
        graph = sg.Graph()
        with graph:
            x = sg.placeholder((8, WIDTH), requires_grad=True)
            a, b = weights(2)
            made = call(outer, call, x, a, b)
            y = sg.sum(made["last"] * made["between"][0])
            first = sg.gradients(y, [x, a, b])
            second = sg.gradients([sg.sum(d**2) for d in first], [x, a, b])
        feed = np.random.default_rng(2).normal(size=(8, WIDTH)).astype(np.float32)
        found.append(sg.Session(graph).run([*first, *second], {x: feed}))
    for p, q in zip(*found, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-4)


def test_derivatives_of_a_checkpoint_agree_with_differences() -> None:
    w = np.random.default_rng(0).normal(size=(3, 3))

    def fn(x: Tensor, y: Tensor) -> Tensor:
        z = sg.checkpoint(lambda u: sg.tanh(u @ y) * sg.sin(u), x)
        return sg.checkpoint(lambda u, v: sg.exp(u * 0.3) * v, z, x)

    sg.check_gradients(fn, [np.random.default_rng(1).normal(size=(4, 3)), w], order=3)


def test_gradients_inside_a_checkpoint(backend: str) -> None:
    found = []
    for call in (plain, sg.checkpoint):
        graph = sg.Graph()
        with graph:
            x = sg.placeholder((5,), requires_grad=True)

            def slope(v: Tensor) -> Tensor:
                (d,) = sg.gradients(sg.sum(sg.sin(v) * v), v)
                assert d is not None
                return d * v

            (dx,) = sg.gradients(sg.sum(call(slope, x) ** 2), x)
        found.append(sg.Session(graph).run(dx, {x: np.arange(5, dtype=np.float32)}))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)


def test_effects_happen_once(g: sg.Graph, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = sg.placeholder((4, 3), requires_grad=True)
    norm = sg.nn.BatchNorm1d(3)

    def fn(v: Tensor) -> Tensor:
        return sg.tanh(sg.print(norm(sg.sin(v)), "value"))

    y = sg.sum(sg.checkpoint(fn, x))
    (dx,) = sg.gradients(y, x)
    sess = sg.Session(g)
    feed = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    sess.run(dx, {x: feed})
    assert capsys.readouterr().out.count("value") == 1
    mean = sess.get(norm.running_mean)
    np.testing.assert_allclose(mean, 0.1 * np.sin(feed).mean(0), rtol=1e-4, atol=1e-6)
    with sess.forward(y, {x: feed}) as tape:
        tape.backward(y)
    assert capsys.readouterr().out.count("value") == 1
    np.testing.assert_allclose(sess.grad(x), sess.run(dx, {x: feed}), rtol=1e-5, atol=1e-6)


def test_hooks_see_one_gradient(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((4,), requires_grad=True)
    inside: list[Tensor] = []

    def fn(v: Tensor) -> Tensor:
        inside.append(sg.sin(v))
        return inside[0] * sg.exp(inside[0])

    y = sg.sum(sg.checkpoint(fn, x))
    inside[0].register_hook(lambda grad: grad * 2)
    inside[0].retain_grad()
    sess = sg.Session(g)
    at = np.linspace(0, 1, 4, dtype=np.float32)
    sess.forward(y, {x: at}).backward(y)
    s = np.sin(at.astype(np.float64))
    np.testing.assert_allclose(sess.grad(inside[0]), 2 * np.exp(s) * (1 + s), rtol=1e-5)
    np.testing.assert_allclose(sess.grad(x), 2 * np.exp(s) * (1 + s) * np.cos(at), rtol=1e-5)


def test_the_rule_of_retention_knows_nothing_of_it(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((4,), requires_grad=True)
    y = sg.sum(sg.checkpoint(lambda v: sg.sin(v) * v, x))
    sess = sg.Session(g)
    tape = sess.forward(y, {x: np.ones(4, np.float32)})
    tape.backward(y, retain_graph=True)
    tape.backward(y)
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y)


def test_what_is_no_function_is_refused(g: sg.Graph) -> None:
    with pytest.raises(sg.GraphError, match="expected a function"):
        sg.checkpoint(sg.placeholder((2,)), 1)


# -- memory_budget in runs --------------------------------------------------------------------------------------------


class Trained:
    """A training step compiled with a budget, and what three steps make of the variables."""

    def __init__(self, declare: Callable[[], nets.Training], budget: int | float | None) -> None:
        graph = sg.Graph()
        with graph:
            net = declare()
        sess = sg.Session(graph, num_threads=1)
        self.exe: Executable = sess.compile([net.loss, net.train], list(net.feeds), memory_budget=budget)
        self.losses = [float(self.exe(*net.feeds.values())[0]) for _ in range(3)]
        self.variables = [sess.get(v) for v in graph.variables.values()]


def deep_mlp() -> nets.Training:
    return nets.training(lambda: nets.mlp(*[256] * 24, 10), (512, 256), lambda: sg.optim.SGD(lr=0.01))


def resnet() -> nets.Training:
    return nets.training(nets.resnet20, (32, 3, 32, 32), lambda: sg.optim.SGD(lr=0.01))


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("declare", [deep_mlp, resnet])
def test_training_in_two_fifths_of_the_memory(declare: Callable[[], nets.Training]) -> None:
    """The same bits, and less than the forward, a third of the operations, twice."""
    whole, small = Trained(declare, None), Trained(declare, 0.4)
    assert small.exe.memory.arena_bytes <= 0.4 * whole.exe.memory.arena_bytes
    assert small.losses == whole.losses
    for a, b in zip(small.variables, whole.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    assert small.exe.cost.flops < 1.3 * whole.exe.cost.flops
    again = [k for k in small.exe.cost.kernels if k.name.endswith("_again")]
    assert len(small.exe.cost.kernels) == len(whole.exe.cost.kernels) + len(again)


def small_mlp() -> nets.Training:
    return nets.training(lambda: nets.mlp(*[64] * 16, 10), (128, 64), lambda: sg.optim.SGD(lr=0.01))


@pytest.mark.usefixtures("planned")
def test_smaller_budgets_repeat_more_until_none_fits() -> None:
    whole = Trained(small_mlp, None)
    arena, flops = whole.exe.memory.arena_bytes, whole.exe.cost.flops
    assert Trained(small_mlp, arena).exe.cost.flops == flops  # nothing is repeated for nothing
    costs = []
    for part in (0.9, 0.7, 0.5):
        made = Trained(small_mlp, int(part * arena))
        assert made.exe.memory.arena_bytes <= part * arena
        assert made.losses == whole.losses
        costs.append(made.exe.cost.flops)
    assert flops < costs[0] <= costs[1] <= costs[2]
    with pytest.raises(sg.StaticGradError, match=r"memory_budget of 1000 bytes: the least found is \d+ bytes"):
        Trained(small_mlp, 1000)


@pytest.mark.parametrize("budget", [-1, 0.0, 1.5, float("nan")])
def test_senseless_budgets_are_refused(g: sg.Graph, budget: float) -> None:
    x = sg.placeholder((2,))
    with pytest.raises(sg.StaticGradError, match="memory_budget"):
        sg.Session(g).compile(x + 1, [x], memory_budget=budget)


@pytest.mark.usefixtures("planned")
def test_shapes_that_come_later_have_the_budget_too(g: sg.Graph) -> None:
    rows = sg.placeholder((None, 64))
    y = rows
    for _ in range(12):
        y = sg.tanh(y @ sg.Variable(np.eye(64, dtype=np.float32)))
    (d,) = sg.gradients(sg.sum(y * y), rows)
    sess = sg.Session(g)
    exe, small = sess.compile(d, [rows]), sess.compile(d, [rows], memory_budget=0.65)
    for n in (64, 200):
        feed = np.random.default_rng(n).normal(size=(n, 64)).astype(np.float32)
        np.testing.assert_array_equal(exe(feed), small(feed))
        assert small.memory.arena_bytes <= 0.65 * exe.memory.arena_bytes


@pytest.mark.parametrize("memory", ["plan", "poison"])
def test_any_values_may_be_given_up(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed again, results stay; a wrong lifetime would show in poisoned memory."""
    monkeypatch.setenv("STATICGRAD_MEMORY", memory)
    rng = np.random.default_rng(0)
    repeated = 0

    def give_up(steps: Any, budget: float, arena_bytes: Any) -> Any:
        for _ in range(2):  # what is computed again may be given up again
            problem = recompute._PeakProblem(steps)
            chosen = [value for value in problem.values if rng.random() < 0.7]
            steps = recompute._repeat(problem, frozenset(temp for value in chosen for temp in value.temps))
        return steps

    monkeypatch.setattr("staticgrad.compiler.steps.recompute.fit", give_up)
    first = {"plan": 100, "poison": 108}[memory]
    for seed in range(first, first + 8):
        made = random_graph(seed, ops=24)
        with made.graph:
            grads = [d for d in sg.gradients(made.loss, made.leaves) if d is not None]
        fetches = [made.loss, *grads]
        sess = sg.Session(made.graph, num_threads=1)
        whole = sess.compile(fetches, list(made.feeds))
        other = sess.compile(fetches, list(made.feeds), memory_budget=1.0)
        repeated += len(other.cost.kernels) - len(whole.cost.kernels)
        for a, b in zip(other(*made.feeds.values()), whole(*made.feeds.values()), strict=True):
            np.testing.assert_array_equal(a, b)
    assert repeated > 10


def test_steps_that_fit_stay_as_they_are() -> None:
    assert fit([], 0, lambda steps: 0) == []
    steps: list[Any] = []
    assert fit(steps, 0.5, lambda tried: 0) == steps


@pytest.mark.usefixtures("planned")
def test_a_budget_counts_scratch_memory_and_gaps_where_nothing_is_worth_repeating(g: sg.Graph) -> None:
    x = sg.placeholder((7, 3), sg.float64)
    y = sg.nn.batch_norm(sg.nn.normalize(x), None, None, training=True)
    fetches = sg.gradients(sg.sum(y * y * y), x)
    sess = sg.Session(g)
    arena = sess.compile(fetches, x).memory.arena_bytes
    with pytest.raises(sg.StaticGradError, match=rf"the least found is {arena} bytes \({arena} bytes"):
        sess.compile(fetches, x, memory_budget=arena - 64)
    steps: list[Any] = []
    with pytest.raises(OverBudgetError, match="the least found is 8 bytes"):
        fit(steps, 7, lambda tried: 8)


# -- memory_budget in tapes -------------------------------------------------------------------------------------------


def test_a_part_of_what_a_tape_would_keep(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((256,), requires_grad=True)
    y = x
    for _ in range(8):
        y = sg.sin(y)
    total = sg.sum(y)
    at = np.linspace(-1, 1, 256, dtype=np.float32)
    results, sizes = [], []
    for budget in (None, 0.5, 0.2):
        sess = sg.Session(g)
        tape = sess.forward(total, {x: at}, memory_budget=budget)
        sizes.append(tape.memory.saved_bytes)
        tape.backward(total)
        results.append(sess.grad(x))
    assert sizes[1] <= 0.5 * sizes[0]
    assert sizes[2] <= 0.2 * sizes[0]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-6, atol=1e-7)


def chain(g: sg.Graph) -> tuple[sg.Tensor, sg.Tensor]:
    """1,000 floats through six ops that are each saved, and their sum."""
    x = sg.placeholder((1000,), name="x", requires_grad=True)
    y = x * 1.0
    for _ in range(3):
        y = sg.tanh(sg.sin(y))
    return x, sg.sum(y)


def test_a_tape_that_cannot_meet_its_budget_warns_and_keeps_the_least(g: sg.Graph, backend: str) -> None:
    """It kept 4,000 bytes for a budget of 1."""
    x, total = chain(g)
    feeds = {x: np.linspace(-1, 1, 1000, dtype=np.float32)}
    sess = sg.Session(g)
    whole = sess.forward(total, feeds).memory.saved_bytes
    for budget in (1, 0, 0.01, 3999):
        with pytest.warns(sg.MemoryBudgetWarning, match=r"of \d+ bytes: the least found is 4000 bytes") as caught:
            assert sess.forward(total, feeds, memory_budget=budget).memory.saved_bytes == 4000
    (warning,) = caught
    assert f"({whole} bytes with nothing computed again), 4000 of them for 'x'" in str(warning.message)
    assert "sg.placeholder((1000,)" in str(warning.message)
    tape = sess.forward(total, feeds, memory_budget=4000)
    assert tape.memory.saved_bytes == 4000
    tape.backward(total)
    least = sess.grad(x)
    sess.zero_grad()
    sess.forward(total, feeds).backward(total)
    np.testing.assert_allclose(least, sess.grad(x), rtol=1e-6)


def test_a_large_output_counts_in_the_budget_of_a_tape(g: sg.Graph) -> None:
    x = sg.placeholder((), requires_grad=True)
    y = sg.exp(sg.broadcast_to(x, (1000,)))
    sess = sg.Session(g)
    assert sess.forward(y, {x: 0.5}).memory.saved_bytes == 4000
    tape = sess.forward(y, {x: 0.5}, memory_budget=100)
    assert tape.memory.saved_bytes == 4
    tape.backward(y, np.ones(1000, np.float32))
    np.testing.assert_allclose(sess.grad(x), 1000 * np.exp(0.5), rtol=1e-5)


@pytest.mark.parametrize("budget", ["1MB", True, [1], -1, 2.0])
def test_a_budget_that_is_no_number_of_bytes_is_refused(g: sg.Graph, budget: Any) -> None:
    x, total = chain(g)
    sess = sg.Session(g)
    for use in (
        lambda: sess.forward(total, memory_budget=budget),
        lambda: sess.compile(total, x, memory_budget=budget),
    ):
        with pytest.raises(sg.StaticGradError, match=r"memory_budget .*: expected bytes as an int, or a part of the"):
            use()


def test_a_tape_with_a_budget_that_is_just_met_has_prices(g: sg.Graph) -> None:
    """What it is compared with may need more, which is no reason to refuse it."""
    x = sg.placeholder((1000,), requires_grad=True)
    h = sg.sin(x)
    h.register_hook(lambda grad: sg.ones((1000,)))
    total = sg.sum(h * sg.random.uniform((1000,)))  # which are not read where the hook takes no gradient
    tape = sg.Session(g).forward(total, {x: np.ones(1000, np.float32)}, memory_budget=4000)
    assert [price.kept_bytes for price in tape.memory.prices] == [-4000]
