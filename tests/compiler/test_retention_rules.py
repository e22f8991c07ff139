"""Retention: what nodes save, which backwards are refused, what a tape keeps and gives back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.budgets import within

from staticgrad.base.types import TensorType, dim, float64
from staticgrad.compiler.autodiff.retention import Ledger, ledger_of
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.compiler.autodiff.saves import Saved, saves
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.tapes.plan import TapePlan, plan_tape
from staticgrad.errors import BuffersFreedError, FetchError, GradientError
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Array
from staticgrad.graph.scopes import control_dependencies
from staticgrad.ops.effects import gradient_key
from staticgrad.ops.interpreter import evaluate


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph() as g:
        yield g


def leaf(*shape: Any, name: str | None = None) -> Tensor:
    x: Tensor = o.placeholder(shape, float64, name=name, requires_grad=True)
    return x


X = np.array([0.5, -1.25, 2.0])


# -- saves -------------------------------------------------------------------------------------------------------


def test_what_nodes_save() -> None:
    x, w = leaf(3), leaf(3)
    fixed = o.placeholder((3,), float64)
    assert saves((x * 3).op) == Saved(operands=(1,))
    assert saves((x * w).op) == Saved(operands=(0, 1))
    assert saves((x * fixed).op) == Saved(operands=(1,))
    assert saves(o.exp(x).op) == Saved(results=(0,))
    assert saves((x**2).op).operands[0] == 0
    for free in (x + 3, x - w, -x, o.sum(x), o.mean(x), o.reshape(x, (3, 1))):
        assert not saves(free.op), free


def test_what_needs_no_gradient_saves_nothing() -> None:
    fixed = o.placeholder((3,), float64)
    assert not saves((fixed * fixed).op)


# -- the ledger: PyTorch's rule on the declared graph --------------------------------------------------------------


def back(ledger: Ledger[Tensor], *args: Any, **options: Any) -> tuple[Tensor, ...]:
    """Do a backward, if it is admitted; what it releases."""
    kept, passage = ledger.state.kept, ledger.admit(*args, **options)
    ledger.commit(passage)
    assert passage.released == set(kept).difference(ledger.state.kept)
    return tuple(x for x in kept if x in passage.released)


def two_losses() -> tuple[Tensor, Tensor]:
    z = 4 * leaf(3, name="x") ** 2
    return o.mean(z), o.sum(z)


def test_a_shared_trunk_is_spent_by_the_first_loss() -> None:
    first, second = two_losses()
    ledger = ledger_of([first, second])
    back(ledger, [first])
    with pytest.raises(BuffersFreedError, match="Trying to backward through the graph a second time") as caught:
        back(ledger, [second])
    text = str(caught.value)
    assert "backward number 1" in text
    assert repr(first.name) in text
    assert "retain_graph=True" in text
    assert "4 * leaf" in text  # the line of the op that saves


def test_retaining_the_first_allows_the_second() -> None:
    first, second = two_losses()
    ledger = ledger_of([first, second])
    assert back(ledger, [first], retain_graph=True) == ()
    freed = back(ledger, [second])
    assert freed
    assert ledger.state.kept == ()


def test_what_saves_nothing_may_go_back_twice() -> None:
    x = leaf(3)
    free, saving = o.sum(x + 2), o.sum(x * 3)
    for y, refused in ((free, False), (saving, True)):
        ledger = ledger_of([y])
        back(ledger, [y])
        if refused:
            with pytest.raises(BuffersFreedError):
                back(ledger, [y])
        else:
            back(ledger, [y])


def test_two_heads_back_in_turns() -> None:
    trunk = leaf(3) ** 2
    d, e = o.sum(trunk * trunk), o.sum(o.exp(trunk))
    ledger = ledger_of([d, e])
    back(ledger, [d], retain_graph=True)
    back(ledger, [e], retain_graph=True)
    back(ledger, [d])
    with pytest.raises(BuffersFreedError):
        back(ledger, [e])


def test_heads_without_a_common_trunk_do_not_disturb_each_other() -> None:
    x = leaf(3)
    d, e = o.sum(x * x), o.sum(o.exp(x))
    ledger = ledger_of([d, e])
    back(ledger, [d])
    back(ledger, [e])


def test_a_refused_backward_changes_nothing() -> None:
    first, second = two_losses()
    extra = o.sum(o.exp(leaf(3)))
    ledger = ledger_of([first, second, extra])
    back(ledger, [first])
    before = (ledger.state.kept, ledger.state.nodes)
    with pytest.raises(BuffersFreedError):
        back(ledger, [extra, second])
    assert (ledger.state.kept, ledger.state.nodes) == before
    back(ledger, [extra])


def test_a_declared_order_gives_back_at_the_last_use() -> None:
    trunk = o.exp(leaf(3))
    a, b = o.sum(trunk * trunk), o.sum(o.sin(trunk))
    ledger = ledger_of([a, b], order=[a, b])
    with pytest.raises(GradientError, match="out of the declared backward_order"):
        back(ledger, [b])
    back(ledger, [a])
    assert trunk in ledger.state.kept
    back(ledger, [b])
    assert ledger.state.kept == ()
    with pytest.raises(GradientError, match="all were done"):
        back(ledger, [b])


def test_backwards_that_make_no_sense() -> None:
    x = leaf(3)
    plain = o.sum(o.placeholder((3,), float64))
    y = x * 2
    ledger = ledger_of([y, plain])
    with pytest.raises(GradientError, match="element 0 of tensors does not require grad and does not have a grad_fn"):
        back(ledger, [plain])
    with pytest.raises(GradientError, match="grad can be implicitly created only for scalar outputs"):
        back(ledger, [y])
    with pytest.raises(GradientError, match=r"expected shape \(3,\), actual \(2,\)"):
        back(ledger, [y], [(2,)])
    with pytest.raises(FetchError):
        back(ledger, [x])
    back(ledger, [y], [(3,)])


# -- tapes --------------------------------------------------------------------------------------------------------


class Tape:
    """A tape on the interpreter: what the runtime does, without compiling."""

    def __init__(self, plan: TapePlan, arrays: Sequence[Any], state: Mapping[str, Array] | None = None) -> None:
        self.plan = plan
        self.ledger = Ledger(plan.retention())
        self.state = state or {}
        self.arrays = [np.asarray(a, float64) for a in arrays]
        self.fetched = evaluate(plan.forward, self.arrays, self.read).values
        self.grads: dict[str, Array] = {}

    def read(self, attrs: Any) -> Array:
        return self.state[attrs.key]

    def backward(self, *ys: Tensor, grad: Any = None, retain_graph: bool = False) -> None:
        given = [grad is not None] * len(ys)
        passage = self.ledger.admit(ys, [None if grad is None else np.shape(grad)] * len(ys), retain_graph)
        back = self.plan.backward(ys, given)
        reads = [(self.fetched if s.origin == "fetched" else self.arrays)[s.index] for s in back.reads]
        assert all(s in self.ledger.state.kept for s in back.reads)
        extra = [] if grad is None else [np.asarray(grad, float64)]
        for key, array in evaluate(back.region, [*reads, *extra], self.read).gradients.items():
            self.grads[key] = self.grads.get(key, 0) + array
        self.ledger.commit(passage)

    def grad(self, x: Tensor) -> Any:
        return self.grads.get(gradient_key(x))


def types(*arrays: Any) -> list[TensorType]:
    return [TensorType(np.shape(a), float64) for a in arrays]


def test_a_tape_goes_back_once_or_more() -> None:
    x = leaf(3)
    h = o.exp(x)
    y = o.sum(h * x)
    plan = plan_tape(x.graph, [y], dict(zip([x], types(X))))
    assert {s.tensor for s in plan.residuals} == {h, x}
    tape = Tape(plan, [X])
    np.testing.assert_allclose(tape.fetched[0], (np.exp(X) * X).sum())
    tape.backward(y, retain_graph=True)
    expected = np.exp(X) * (X + 1)
    np.testing.assert_allclose(tape.grad(x), expected)
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), 2 * expected)
    assert tape.ledger.state.kept == ()
    with pytest.raises(BuffersFreedError):
        tape.backward(y)


def test_the_users_graph_stays_as_it_is() -> None:
    x = leaf(3)
    y = o.sum(o.exp(x))
    x.register_hook(lambda g: g * 2 + o.sum(x))
    before, version = list(x.graph.nodes), x.graph.version
    x.graph.finalize()
    tape = Tape(plan_tape(x.graph, [y], {x: types(X)[0]}), [X])
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), 2 * np.exp(X) + X.sum())
    assert x.graph.nodes == before
    assert x.graph.version == version


def test_hooks_run_once_for_each_derived_output_and_are_read_when_planned() -> None:
    x = leaf(3)
    count: list[int] = []
    handle = x.register_hook(lambda g: count.append(1))
    y = o.sum(x * x)
    plan = plan_tape(x.graph, [y], {x: types(X)[0]})
    handle.remove()
    x.register_hook(lambda g: g * 100)
    for _ in range(2):
        tape = Tape(plan, [X])
        tape.backward(y)
        np.testing.assert_allclose(tape.grad(x), 2 * X)
    assert count == [1]


def test_what_is_kept_is_what_is_read() -> None:
    x = leaf(3)
    y = o.sum(o.reshape((x + 1) * 3, (3, 1)))
    assert plan_tape(x.graph, [y], {x: types(X)[0]}).residuals == ()
    squared = o.sum(x**2)
    (only,) = plan_tape(x.graph, [squared], {x: types(X)[0]}).residuals
    assert (only.tensor, only.origin, only.nbytes) == (x, "fed", 24)
    assert "saved by" in only.reason


def test_of_a_large_operand_that_is_only_compared_the_mask_is_kept() -> None:
    x = leaf(3)
    h = x + 1
    y = o.sum(o.where(h > 0, h, 0.0))
    (mask,) = plan_tape(x.graph, [y], {x: types(X)[0]}).residuals
    assert mask.nbytes == 3


def test_views_of_what_is_kept_are_made_again() -> None:
    x = leaf(3)
    h = o.exp(x)
    y = o.sum(o.reshape(h, (3, 1)) * o.reshape(h, (1, 3)))
    plan = plan_tape(x.graph, [y], {x: types(X)[0]})
    assert [s.tensor for s in plan.residuals] == [h]
    tape = Tape(plan, [X])
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), 2 * np.exp(X).sum() * np.exp(X))


def test_two_outputs_one_at_a_time_and_together() -> None:
    x = leaf(3)
    h = o.exp(x)
    a, b = o.sum(h * 2), o.sum(h * h)
    plan = plan_tape(x.graph, [a, b], {x: types(X)[0]})
    expected = 2 * np.exp(X) + 2 * np.exp(2 * X)
    apart, together = Tape(plan, [X]), Tape(plan, [X])
    apart.backward(a, retain_graph=True)
    apart.backward(b)
    together.backward(a, b)
    np.testing.assert_allclose(apart.grad(x), expected)
    np.testing.assert_allclose(together.grad(x), expected)


def test_a_given_gradient_weighs() -> None:
    x = leaf(3)
    y = x * x
    tape = Tape(plan_tape(x.graph, [y], {x: types(X)[0]}), [X])
    tape.backward(y, grad=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(tape.grad(x), 2 * X * [1, 2, 3])


def test_retained_gradients_are_added_under_their_key() -> None:
    x = leaf(3)
    h = x * 3
    h.retain_grad()
    y = o.sum(h * h)
    tape = Tape(plan_tape(x.graph, [y], {x: types(X)[0]}), [X])
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(h), 6 * X)
    np.testing.assert_allclose(tape.grad(x), 18 * X)


def test_a_fed_intermediate_ends_the_gradient() -> None:
    x, w = leaf(3), leaf(3)
    h = o.exp(x)
    y = o.sum(h * w)
    plan = plan_tape(x.graph, [y], dict(zip([h, w], types(X, X))))
    tape = Tape(plan, [X, X])
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(w), X)
    assert tape.grad(x) is None


def test_sizes_are_bound_by_the_feeds() -> None:
    rows = dim("rows")
    x = leaf(rows, 2)
    y = o.sum(o.exp(o.reshape(x, (rows * 2,))))
    array = np.arange(6.0).reshape(3, 2) / 6
    tape = Tape(plan_tape(x.graph, [y], {x: types(array)[0]}), [array])
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), np.exp(array))
    assert [s.nbytes for s in tape.plan.residuals] == [48]


def test_effects_of_the_forward_happen_once(capsys: pytest.CaptureFixture[str]) -> None:
    x = leaf(3)
    h = o.print(o.exp(x), "forward")
    h.register_hook(lambda g: o.print(g, "backward"))
    y = o.sum(h * h)
    tape = Tape(plan_tape(x.graph, [y], {x: types(X)[0]}), [X])
    assert capsys.readouterr().out.count("forward") == 1
    tape.backward(y, retain_graph=True)
    tape.backward(y)
    out = capsys.readouterr().out
    assert (out.count("forward"), out.count("backward")) == (0, 2)


def test_variables_are_not_kept_but_read_again() -> None:
    x = leaf(3)
    w = o.Variable(X, name="w")
    y = o.sum(x * w)
    plan = plan_tape(x.graph, [y], {x: types(X)[0]})
    assert plan.variables == ("w",)
    assert [s.tensor for s in plan.residuals] == [x]
    tape = Tape(plan, [X], {"w": X + 1})
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), X + 1)
    np.testing.assert_allclose(tape.grad(w), X)
    assert plan.backward([y]).variables == ("w",)


def test_a_variable_that_the_forward_writes_is_kept() -> None:
    x = leaf(3)
    w = o.Variable(X, name="w")
    old = x * w
    with control_dependencies([o.assign(w, w + 10)]):
        new = x * w
    y = o.sum(old + new)
    plan = plan_tape(x.graph, [y], {x: types(X)[0]})
    assert plan.variables == ()
    tape = Tape(plan, [X], {"w": X})
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), X + (X + 10))
    assert tape.fetched[0] == (X * X + X * (X + 10)).sum()
    np.testing.assert_allclose(tape.grad(w), 2 * X)


def test_effects_of_hooks_are_the_backwards_own(capsys: pytest.CaptureFixture[str]) -> None:
    x = leaf(3)
    count = o.Variable(np.array(0.0), name="count", trainable=False)
    h, check = x * x, o.assert_
    h.register_hook(lambda g: o.assign(count, count + 1.0))
    h.register_hook(lambda g: check(o.all(g < 5), "small"))
    y = o.sum(h)
    plan = plan_tape(x.graph, [y], {x: types(X)[0]})
    assert not plan.forward.effects
    assert [n.op.name for n in plan.backward([y]).region.effects] == ["assign", "assertion", "accumulate_grad"]
    tape = Tape(plan, [X], {"count": np.array(0.0)})
    tape.backward(y)
    np.testing.assert_allclose(tape.grad(x), 2 * X)


def test_what_hooks_read_of_a_node_that_saves_nothing_stays() -> None:
    x = leaf(3)
    other = o.exp(o.placeholder((3,), float64, name="other"))
    h = x + 1
    h.register_hook(lambda g: g * other)
    y = o.sum(h)
    feeds = dict(zip([x, other.graph.nodes[1].outputs[0]], types(X, X)))
    tape = Tape(plan_tape(x.graph, [y], feeds), [X, X])
    for times in (1, 2):
        tape.backward(y)
        np.testing.assert_allclose(tape.grad(x), times * np.exp(X))
    (kept,) = tape.ledger.state.kept
    assert (kept.tensor, kept.reason) == (other, "read by a hook")


def test_a_memory_budget_computes_again_instead_of_keeping() -> None:
    x = leaf(3)
    h = x
    for _ in range(6):
        h = o.tanh(h)
    y = o.sum(h)
    feeds = {x: types(X)[0]}
    plans = [plan_tape(x.graph, [y], feeds, memory_budget=budget) for budget in (None, 100, 30)]
    assert [sum(s.nbytes for s in plan.residuals) for plan in plans] == [6 * 24, 4 * 24, 24]
    results = []
    for plan in plans:
        tape = Tape(plan, [X])
        tape.backward(y)
        results.append(tape.grad(x))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_many_outputs_are_planned_together() -> None:
    x = leaf(3)
    ys = [o.sum(o.exp(x) * float(i + 1)) for i in range(10)]
    plan = plan_tape(x.graph, ys, {x: types(X)[0]})
    tape = Tape(plan, [X])
    tape.backward(ys[3])
    np.testing.assert_allclose(tape.grad(x), 4 * np.exp(X))
    tape.backward(*ys[4:6])
    np.testing.assert_allclose(tape.grad(x), 15 * np.exp(X))


# -- random graphs --------------------------------------------------------------------------------------------------

UNARY: list[Callable[[Tensor], Tensor]] = [
    o.tanh, o.exp, lambda x: x * x, lambda x: -x, lambda x: x + 1.0, lambda x: o.permute_dims(x, (1, 0)),
    lambda x: o.where(x > 0, x, 0.1 * x), lambda x: x.detach() * x, lambda x: o.reshape(o.reshape(x, (9,)), (3, 3)),
    lambda x: o.maximum(x, 0.3), lambda x: x / (1.0 + o.max(o.abs(x)).detach()),
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b]


def random_graph(rng: np.random.Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Three leaves of 3 × 3 and the sums of the last tensors of a random program, some with hooks."""
    leaves = [leaf(3, 3) for _ in range(3)]
    pool = list(leaves)

    def pick() -> Tensor:
        return pool[rng.integers(len(pool))]

    for _ in range(rng.integers(4, 14)):
        unary = rng.random() < 0.6
        h = UNARY[rng.integers(len(UNARY))](pick()) if unary else BINARY[rng.integers(len(BINARY))](pick(), pick())
        if rng.random() < 0.2:
            h.register_hook(partial(o.multiply, pick()))
        if rng.random() < 0.2:
            h.retain_grad()
        pool.append(h)
    return leaves, [o.sum(h) for h in pool[-3:]]


@pytest.mark.parametrize("seed", range(24))
def test_tapes_of_random_graphs_agree_with_gradients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves, outputs = random_graph(rng)
    graph = leaves[0].graph
    arrays = [rng.normal(size=(3, 3)) for _ in leaves]
    feeds = dict(zip(leaves, types(*arrays), strict=True))
    plan = within([None, 200, 0][seed % 3], lambda budget: plan_tape(graph, outputs, feeds, memory_budget=budget))
    for ys in (*[[y] for y in outputs], outputs):
        tape = Tape(plan, arrays)
        tape.backward(*ys)
        expected = gradients(ys, leaves, unconnected_gradients="zero")
        fetches = [dx for dx in expected if dx is not None]
        for x, value in zip(leaves, evaluate(cut(graph, fetches, feeds), arrays, tape.read).values, strict=True):
            actual = tape.grad(x)
            np.testing.assert_allclose(0 * value if actual is None else actual, value, rtol=1e-9, atol=1e-12)
    tape = Tape(plan, arrays)  # whatever the ledger admits finds what it reads: asserted in Tape.backward
    for index in rng.permutation(len(outputs)):
        with contextlib.suppress(BuffersFreedError):
            tape.backward(outputs[index])
