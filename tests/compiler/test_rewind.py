"""Loops that keep few states for their derivative in reverse, and compute the others again: ``checkpoint=``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.budgets import within

import staticgrad as sg
from staticgrad.graph.graph import Tensor
from staticgrad.ops.control.rewinding import least_advances, schedule_of

Array = np.ndarray[Any, np.dtype[Any]]
LENGTH, ROWS, WIDTH = 9, 8, 24  # products of more than a few elements, which are not written out


@pytest.fixture(params=["compiled", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STATICGRAD_BACKEND", request.param)
    return str(request.param)


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over the turns are added up turn by turn, with and without checkpoints."""
    monkeypatch.setenv("STATICGRAD_DISABLE", "sums")


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in ("MEMORY", "BACKEND"):
        monkeypatch.delenv(f"STATICGRAD_{switch}", raising=False)


# -- the schedule -----------------------------------------------------------------------------------------------------


def advanced(turns: int, slots: int, taken: int | None = None) -> int:
    """The turns that are run to reverse ``taken`` of ``turns``, with no more snapshots than there are slots."""
    ends, run = schedule_of(turns, slots).ends, 0
    stack = [0]
    for turn in reversed(range(turns if taken is None else taken)):
        at = stack[-1]
        while at < turn:
            at, run = at + 1, run + 1
            if ends[at] > turn:
                stack.append(at)
        assert len(stack) <= slots
        if stack[-1] == turn:
            stack.pop()
    return run


@functools.cache
def fewest(turns: int, slots: int) -> int:
    if turns < 2:
        return 0
    if slots == 1:
        return turns * (turns - 1) // 2
    return min(m + fewest(turns - m, slots - 1) + fewest(m, slots) for m in range(1, turns))


def test_a_schedule_takes_the_fewest_turns() -> None:
    for turns in range(1, 40):
        for slots in range(1, turns + 1):
            assert advanced(turns, slots) == fewest(turns, slots) == least_advances(turns, slots)


def test_a_loop_that_ends_early_follows_the_same_schedule() -> None:
    for slots in (1, 2, 3, 5, 8):
        for taken in range(31):
            assert advanced(30, slots, taken) <= fewest(30, slots)


def test_a_schedule_of_many_turns() -> None:
    plan = schedule_of(200, 19)
    assert (len(plan.starts), plan.repeats) == (19, 1)
    assert plan.advances < 200
    long = schedule_of(100_000, 50)
    assert long.slots == len(long.starts) == 50
    assert long.repeats <= 4


# -- gradients are the same to the bit ----------------------------------------------------------------------------


Loop = Callable[..., list[Tensor]]


def recurrence(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
    """A layer over rows, two carries, one of which the derivative does not read."""

    def turn(c: tuple[Tensor, Tensor], row: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        h = sg.tanh(c[0] @ w + row)
        return (h, c[1] + sg.sum(h)), h

    (h, total), hs = sg.scan(turn, (x, sg.zeros((), dtype=x.dtype)), rows, **how)
    return [sg.sum(h * h) + total + sg.sum(sg.sin(hs[3]))]


def field(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
    """Sums over what surrounds an element, with a parameter."""

    def turn(u: Tensor, _: None) -> tuple[Tensor, tuple[()]]:
        around = sg.roll(u, 1, 0) + sg.roll(u, -1, 1) - 2.0 * u
        return u + 0.1 * (sg.mean(w) * around + u * (1 - u)), ()

    u, _ = sg.scan(turn, x, length=LENGTH, **how)
    return [sg.sum(u * u * u)]


def drawn(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
    """Random numbers of each turn, and its number."""
    key = iter(range(100))

    def turn(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        noise = sg.random.normal((ROWS, WIDTH), seed=next(key))
        y = sg.sin(sg.nn.dropout(c * row, 0.3, seed=next(key)) + noise * sg.mean(w))
        return sg.exp(-y * y) + c, y

    c, ys = sg.scan(turn, x, rows, **how)
    return [sg.sum(c), sg.sum(ys * ys)]


def read_elsewhere(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
    """Stacked results that are results, too."""

    def turn(c: Tensor, row: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = sg.exp(sg.tanh(c) * row)
        return sg.sin(y) * c, (y, sg.cos(y @ w))

    c, (ys, zs) = sg.scan(turn, x, rows, **how)
    return [sg.sum(c) + sg.sum(ys) * 0.1, ys, sg.sum(zs * zs)]


def indexed(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
    """Indices that are checked, and integers and flags that are carried."""

    def turn(c: tuple[Tensor, Tensor, Tensor], row: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        u, i, up = c
        part = w[i]
        v = sg.where(up, u * part + row, u - sg.sin(row * part))
        return (v, (i + 2) % WIDTH, sg.sum(v) > 0), sg.sum(v)

    (u, _, _), ys = sg.scan(turn, (x, sg.constant(0), sg.constant(True)), rows, **how)
    return [sg.sum(u * u), sg.sum(ys)]


def steps(x: Tensor, w: Tensor, rows: Tensor, most: int = LENGTH, **how: Any) -> list[Tensor]:
    """A while_loop that ends early."""
    how.pop("reverse", None)

    def turn(s: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return sg.tanh(s[0] @ w) * 1.1 + sg.sin(s[0]), s[1] + 1

    u, n = sg.while_loop(lambda s: s[1] < 6, turn, (x, sg.constant(0)), max_steps=most, **how)
    return [sg.sum(u * u), n]


def nested(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
    def inner(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        c = sg.sin(c * row) + sg.tanh(c @ w)
        return c, c * 0.5

    def outer(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        c, ys = sg.scan(inner, c * row, rows[:5], **how)
        return c, sg.sum(ys)

    c, ys = sg.scan(outer, x, rows, **how)
    return [sg.sum(c * c), sg.sum(ys * ys)]


LOOPS: dict[str, Loop] = {
    f.__name__: f for f in (recurrence, field, drawn, read_elsewhere, indexed, steps, nested)
}  # fmt: skip


class Declared:
    """A loop and its gradients, compiled."""

    def __init__(self, loop: Loop, order: int = 1, dtype: Any = np.float32, **how: Any) -> None:
        with sg.Graph() as graph:
            x = sg.placeholder((ROWS, WIDTH), dtype, requires_grad=True)
            w = sg.placeholder((WIDTH, WIDTH), dtype, requires_grad=True)
            rows = sg.placeholder((LENGTH, ROWS, WIDTH), dtype, requires_grad=True)
            made = loop(x, w, rows, **how)
            xs = [x, w, rows]
            self.grads = sg.gradients(made[0], xs, unconnected_gradients="zero")
            if order > 1:
                squares = sum((sg.sum(d * d) for d in self.grads[1:]), sg.sum(self.grads[0] ** 2))
                self.grads += sg.gradients(squares, xs, unconnected_gradients="zero")
        self.graph, self.feeds, self.made = graph, xs, made
        self.session = sg.Session(graph, seed=3, num_threads=1)

    def compiled(self, **options: Any) -> Any:
        return self.session.compile([*self.made, *self.grads], self.feeds, **options)

    def arrays(self) -> list[Array]:
        rng = np.random.default_rng(0)
        return [(0.3 * rng.normal(size=x.shape)).astype(x.dtype) for x in self.feeds]


@functools.cache
def expected(name: str, backend: str, reverse: bool) -> list[Array]:
    made = Declared(LOOPS[name], reverse=reverse)
    return list(made.compiled()(*made.arrays()))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_gradients_are_the_same_to_the_bit(name: str, reverse: bool, backend: str) -> None:
    for slots in (1, 3, 5, LENGTH - 1, LENGTH + 5) if backend == "compiled" else (1, 4):
        made = Declared(LOOPS[name], reverse=reverse, checkpoint=slots)
        for a, b in zip(made.compiled()(*made.arrays()), expected(name, backend, reverse), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("taken", [0, 1, 4, LENGTH])
def test_a_loop_that_ends_early_is_rewound_from_where_it_ended(taken: int, backend: str) -> None:
    def counted(x: Tensor, w: Tensor, rows: Tensor, **how: Any) -> list[Tensor]:
        def turn(s: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return sg.sin(s[0] @ w) + s[0] * rows[0], s[1] + 1

        u, n = sg.while_loop(lambda s: s[1] < taken, turn, (x, sg.constant(0)), max_steps=LENGTH, **how)
        return [sg.sum(u * u), n]

    plain = Declared(counted)
    arrays = plain.arrays()
    known = plain.compiled()(*arrays)
    for slots in (1, 3, 6):
        for a, b in zip(Declared(counted, checkpoint=slots).compiled()(*arrays), known, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["recurrence", "field", "read_elsewhere", "steps", "nested"])
def test_second_derivatives_agree(name: str) -> None:
    plain = Declared(LOOPS[name], order=2, dtype=np.float64)
    arrays = plain.arrays()
    known = plain.compiled()(*arrays)
    for a, b in zip(
        Declared(LOOPS[name], order=2, dtype=np.float64, checkpoint=3).compiled()(*arrays), known, strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_derivatives_agree_with_differences() -> None:
    def fn(x: Tensor, rows: Tensor) -> Tensor:
        return sg.scan(lambda c, row: (sg.tanh(c * row) + sg.sin(c), c * c), x, rows, checkpoint=2)[1]

    rng = np.random.default_rng(2)
    sg.check_gradients(fn, [rng.normal(size=(2, 3)), rng.normal(size=(7, 2, 3))], order=2)


def test_many_examples_at_once(backend: str) -> None:
    found = []
    for slots in (None, 3):
        with sg.Graph() as graph:
            xs = sg.placeholder((5, ROWS), requires_grad=True)
            w = sg.placeholder((), requires_grad=True)

            def one(x: Tensor, slots: int | None = slots, w: Tensor = w) -> Tensor:
                c, ys = sg.scan(lambda c, _: (sg.sin(c * w) + c, c * c), x, length=LENGTH, checkpoint=slots)
                return sg.sum(c) + sg.sum(ys)

            loss = sg.sum(sg.vmap(one)(xs))
            fetches = sg.gradients(loss, [xs, w])
        feeds = {xs: np.random.default_rng(1).normal(size=(5, ROWS)).astype(np.float32), w: np.float32(0.4)}
        found.append(sg.Session(graph).run(fetches, feeds))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_derivatives_read_one_loop(backend: str) -> None:
    found = []
    for slots in (None, 3):
        with sg.Graph() as graph:
            x = sg.placeholder((ROWS, WIDTH), requires_grad=True)
            y = sg.scan(lambda c, _: (sg.sin(sg.exp(c * 0.1)) * c, ()), x, length=LENGTH, checkpoint=slots)[0]
            fetches = [sg.gradients(sg.sum(y), x)[0], sg.gradients(sg.sum(y * y), x)[0]]
        feed = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
        found.append(sg.Session(graph).run(fetches, {x: feed}))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def forward(made: Declared, feeds: Any, budget: int | float | None) -> Any:
    return made.session.forward(made.made[0], feeds, memory_budget=budget)


@pytest.mark.parametrize("name", ["recurrence", "drawn", "read_elsewhere", "steps", "nested"])
def test_tapes_give_the_same_gradients(name: str) -> None:
    found = []
    budgets = (None,) if name == "drawn" else (None, 0.2)  # what was drawn is kept
    for how, budget in (({}, None), *(({"checkpoint": 3}, b) for b in budgets), *(({}, b) for b in budgets)):
        made = Declared(LOOPS[name], **how)
        feeds = dict(zip(made.feeds, made.arrays(), strict=True))
        tape = within(budget, functools.partial(forward, made, feeds))
        tape.backward(made.made[0])
        found.append([made.session.grad(x) for x in made.feeds if made.session.grad(x) is not None])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_effects_happen_once(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((3,), requires_grad=True)

        def turn(c: Tensor, _: None) -> tuple[Tensor, tuple[()]]:
            with sg.control_dependencies([sg.assert_(sg.all(c > -2), "low")]):
                return sg.sin(sg.print(c * 1.5, "turn")) + c, ()

        y = sg.scan(turn, x, length=5, checkpoint=2)[0]
        (dx,) = sg.gradients(sg.sum(y), x)
    session = sg.Session(graph)
    session.run(dx, {x: np.float32([0.1, 0.2, 0.3])})
    assert capsys.readouterr().out.count("turn") == 5
    with pytest.raises(sg.StaticGradError, match="low"):
        session.run(dx, {x: np.float32([0.1, 0.2, -9.0])})


def test_functions_of_python_are_called_once_a_turn(backend: str) -> None:
    calls = []

    def double(a: Array) -> Array:
        calls.append(1)
        return 2 * a

    with sg.Graph() as graph:
        x = sg.placeholder((3,), requires_grad=True)

        def turn(c: Tensor, _: None) -> tuple[Tensor, tuple[()]]:
            scale = sg.py_call(double, [sg.stop_gradient(c)], [(np.float32, (3,))])[0]
            return sg.sin(c) * scale, ()

        y = sg.scan(turn, x, length=5, checkpoint=2)[0]
        (dx,) = sg.gradients(sg.sum(y), x)
    sg.Session(graph).run(dx, {x: np.float32([0.1, 0.2, 0.3])})
    assert len(calls) == 5


# -- memory -------------------------------------------------------------------------------------------------------

FIELD = 64 * 64 * 4  # bytes
TURNS = 60


def diffused(call: Callable[..., Any] = lambda fn, *inputs: fn(*inputs), **how: Any) -> tuple[sg.Graph, Any, Any]:
    """A field through time: a graph, its feeds, its loss and gradients."""

    def turn(u: Tensor, _: None) -> tuple[Tensor, tuple[()]]:
        return u + 0.1 * (a * (sg.roll(u, 1, 0) - u) + u * (1 - u)), ()

    with sg.Graph() as graph:
        x = sg.placeholder((64, 64), requires_grad=True)
        a = sg.placeholder((), requires_grad=True)
        u = call(lambda x: sg.scan(turn, x, length=TURNS, **how)[0], x)
        loss = sg.sum(u * u)
        return graph, [x, a], [loss, *sg.gradients(loss, [x, a])]


def compiled(made: tuple[sg.Graph, Any, Any], **options: Any) -> Any:
    graph, feeds, fetches = made
    return sg.Session(graph, num_threads=1).compile(fetches, feeds, **options)


def fields(exe: Any) -> float:
    return float(exe.memory.arena_bytes / FIELD)


def arguments() -> tuple[Array, np.float32]:
    return np.random.default_rng(0).random((64, 64), np.float32), np.float32(0.3)


@pytest.mark.usefixtures("planned")
def test_snapshots_lie_in_one_place() -> None:
    """As many fields as there are snapshots, and some for a turn; nothing is copied."""
    plain = fields(compiled(diffused()))
    assert plain > TURNS
    sizes = [fields(compiled(diffused(checkpoint=slots))) for slots in (1, 5, 10, 20)]
    assert sizes[0] < 10
    np.testing.assert_allclose(np.diff(sizes), [4, 5, 10], atol=0.1)


@pytest.mark.usefixtures("planned")
def test_the_text_of_a_program_says_what_is_run_again() -> None:
    text = compiled(diffused(checkpoint=10)).text("kernels")
    assert f"loop {TURNS} turns, 10 snapshots of 1 carries" in text
    plan = schedule_of(TURNS, 10)
    assert f"rewound loop of {TURNS} turns, 10 snapshots; {plan.advances} turns run again, each at most 1 times" in text


@pytest.mark.usefixtures("planned")
def test_a_checkpoint_of_a_loop_keeps_what_it_began_with() -> None:
    """It kept all of it: the loop that is run again became one with the first."""
    text = compiled(diffused(sg.checkpoint)).text("graph")
    assert text.count("scan(") == 3  # forward, again with its states, back


@pytest.mark.usefixtures("planned")
def test_loops_in_loops_keep_little() -> None:
    """Checkpoints of inner loops were stacked by the outer one: more than nothing saved."""
    found = {}
    for name, call, how in (
        ("plain", lambda fn, x: fn(x), {}),
        ("checkpointed", sg.checkpoint, {}),
        ("few states", lambda fn, x: fn(x), {"checkpoint": 3}),
    ):
        with sg.Graph() as graph:
            x = sg.placeholder((64, 64), requires_grad=True)

            def inner(u: Tensor, how: Any = how) -> Tensor:
                made: Tensor = sg.scan(lambda u, _: (u + 0.1 * sg.sin(u), ()), u, length=8, **how)[0]
                return made

            def turn(u: Tensor, _: None, call: Any = call, inner: Any = inner) -> tuple[Tensor, tuple[()]]:
                return call(inner, u), ()

            loss = sg.sum(sg.scan(turn, x, length=10, **how)[0] ** 2)
            fetches = [loss, *sg.gradients(loss, x)]
        exe = compiled((graph, [x], fetches))
        found[name] = fields(exe), exe(arguments()[0])
    assert found["plain"][0] > 80
    assert found["checkpointed"][0] < 10 + 8 + 8
    assert found["few states"][0] < 3 + 3 + 10
    for _, (a, b) in found.values():
        np.testing.assert_array_equal(a, found["plain"][1][0])
        np.testing.assert_allclose(b, found["plain"][1][1], rtol=1e-5)


@pytest.mark.usefixtures("planned")
def test_a_tape_of_a_loop_keeps_what_it_began_with() -> None:
    kept = []
    for how, budget in (({}, None), ({"checkpoint": 7}, None), ({}, 0.5)):
        graph, feeds, fetches = diffused(**how)
        tape = sg.Session(graph).forward(fetches[0], dict(zip(feeds, arguments(), strict=True)), memory_budget=budget)
        kept.append(tape.memory.saved_bytes / FIELD)
    assert kept[0] > TURNS
    assert max(kept[1:]) < 3


@pytest.mark.usefixtures("planned")
def test_a_budget_reaches_into_loops() -> None:
    """It was refused. More budget never takes more than it allows, nor runs more turns again."""
    made = diffused()
    plain = compiled(made)
    whole = plain.memory.arena_bytes
    known = plain(*arguments())
    flops = []
    for part in (1.0, 0.8, 0.5, 0.3, 0.2, 0.15):
        exe = compiled(made, memory_budget=part)
        assert exe.memory.arena_bytes <= part * whole
        flops.append(exe.cost.flops)
        for a, b in zip(exe(*arguments()), known, strict=True):
            np.testing.assert_array_equal(a, b)
    assert flops == sorted(flops)
    assert flops[0] == plain.cost.flops
    with pytest.raises(sg.StaticGradError, match=r"memory_budget of 1000 bytes: the least found is \d+ bytes") as least:
        compiled(made, memory_budget=1000)
    nbytes = int(str(least.value).split("least found is ")[1].split()[0])
    assert nbytes < 0.15 * whole
    assert compiled(made, memory_budget=nbytes).memory.arena_bytes == nbytes


# -- what is asked for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [0, -1, 2.0, True, "3"])
def test_a_checkpoint_that_is_no_number_of_states_is_refused(slots: Any) -> None:
    with sg.Graph():
        x = sg.placeholder((3,))
        for declare in (
            lambda: sg.scan(lambda c, _: (c, ()), x, length=3, checkpoint=slots),
            lambda: sg.while_loop(lambda c: sg.sum(c) < 0, lambda c: c, x, max_steps=3, checkpoint=slots),
        ):
            with pytest.raises(sg.GraphError, match="checkpoint: expected an int of at least 1"):
                declare()


def test_a_while_loop_without_a_bound_keeps_no_states() -> None:
    with sg.Graph(), pytest.raises(sg.GraphError, match="needs max_steps"):
        sg.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, sg.placeholder(()), checkpoint=2)


def test_loops_of_any_length_are_compiled_for_each() -> None:
    with sg.Graph() as graph:
        rows = sg.placeholder((None, 3), requires_grad=True)
        x = sg.placeholder((3,), requires_grad=True)
        y = sg.scan(lambda c, row: (sg.sin(c * row) + sg.exp(c), ()), x, rows, checkpoint=2)[0]
        fetches = sg.gradients(sg.sum(y), [x, rows])
    exe = sg.Session(graph).compile(fetches, [x, rows])
    for length in (1, 2, 5, 20):
        plain = Declared.__new__(Declared)
        with sg.Graph() as other:
            a, b = sg.placeholder((3,), requires_grad=True), sg.placeholder((length, 3), requires_grad=True)
            z = sg.scan(lambda c, row: (sg.sin(c * row) + sg.exp(c), ()), a, b)[0]
            plain.grads = sg.gradients(sg.sum(z), [a, b])
        feeds = [
            np.float32([-0.1, -3.2, -2.3]),
            np.random.default_rng(length).normal(size=(length, 3)).astype(np.float32),
        ]
        for p, q in zip(exe(*feeds), sg.Session(other).compile(plain.grads, [a, b])(*feeds), strict=True):
            np.testing.assert_array_equal(p, q)


def test_a_file_of_a_graph_says_how_many_states_are_kept() -> None:
    graph, _, _ = diffused(checkpoint=7)
    text = graph.text(full=True)
    assert "checkpoint=7" in text
    assert sg.parse(text).text(full=True) == text
    assert "checkpoint" not in diffused()[0].text(full=True)
