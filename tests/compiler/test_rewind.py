"""Loops that keep few states for their derivative in reverse, and compute the others again: ``checkpoint=``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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

    (h, total), hs = sg.scan(turn, (x, sg.constant(0.0)), rows, **how)
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
    for slots in (1, 2, 3, 5, LENGTH - 1, LENGTH, LENGTH + 5):
        made = Declared(LOOPS[name], reverse=reverse, checkpoint=slots)
        for a, b in zip(made.compiled()(*made.arrays()), expected(name, backend, reverse), strict=True):
            np.testing.assert_array_equal(a, b)
