"""Loops out of unrolled graphs: where there are some, where there are none, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.regions.repeats import Repetition, repetitions

Array = np.ndarray[Any, np.dtype[Any]]
Declared = tuple[list[sg.Tensor], list[sg.Tensor], list[Array]]  # fetches, feeds, arrays


def recurrence(turns: int = 150, shape: tuple[int, ...] = (4,)) -> Declared:
    """A state that is stepped, with its gradient."""
    start, drive = sg.placeholder(shape, sg.float64), sg.placeholder((turns, *shape), sg.float64)
    state = start
    for turn in range(turns):
        rate = 1.0 / (1.0 + sg.exp(-state))
        state = state + 0.1 * (drive[turn] - state * rate)
    loss = sg.sum(state * state)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape), rng.normal(size=(turns, *shape))]
    return [state, loss, *sg.gradients(loss, [start, drive])], [start, drive], arrays


def trades(odd: Sequence[int] = (), stacked: bool = True, count: int = 120) -> Declared:
    """A book of options, each with a strike of its own, with its Greeks; the ``odd`` ones have another formula."""
    spot, vol = sg.placeholder((count,), sg.float64), sg.placeholder((), sg.float64)
    strikes = np.linspace(0.8, 1.2, count)
    values, total = [], sg.constant(0.0, dtype=sg.float64)
    for i, strike in enumerate(strikes):
        distance = (sg.log(spot[i] / float(strike)) + 0.5 * vol * vol) / vol
        value = spot[i] * sg.ndtr(distance) - float(strike) * sg.ndtr(distance - vol)
        values.append(value * value if i in odd else value)
        total = total + values[-1]
    book = sg.sum(sg.stack(values)) if stacked else total
    return [book, *sg.gradients(book, [spot, vol])], [spot, vol], [np.linspace(0.9, 1.1, count), np.asarray(0.2)]


def scans_of(declare: Callable[[], Declared], monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    """How many loops the program has, once its results are those of the unrolled one."""
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    with sg.Graph() as graph:
        fetches, feeds, arrays = declare()
    found: list[list[Array]] = []
    loops: list[int] = []
    for disabled in ("", "reroll"):
        monkeypatch.setenv("STATICGRAD_DISABLE", disabled)
        with sg.Session(graph) as session:
            executable = session.compile(fetches, feeds, **options)
            found.append(executable(*arrays))
            loops.append(executable.text("graph").count(" scan("))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    assert loops[1] == 0
    return loops[0]


def test_a_recurrence_is_a_loop_forward_and_one_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scans_of(recurrence, monkeypatch) == 2


@pytest.mark.parametrize("stacked", [True, False])
def test_a_book_of_equal_trades_is_a_loop_forward_and_one_backward(
    stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scans_of(lambda: trades(stacked=stacked), monkeypatch) == 2


def test_the_gradient_of_what_each_turn_reads_once_has_no_negative_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded and added to others, a row's -0.0 becomes 0.0."""
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    with sg.Graph() as graph:
        x, a, b = sg.placeholder((400,), sg.float64), sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
        total = sg.constant(0.0, dtype=sg.float64)
        for i in range(400):
            total = total + x[i] * a * b
        with sg.Session(graph) as session:
            executable = session.compile(sg.gradients(total, [x]), [x, a, b])
            (gradient,) = executable(np.linspace(-1.0, 1.0, 400), np.asarray(-1e-200), np.asarray(1e-200))
            assert executable.text("graph").count(" scan(") >= 1
    assert not np.signbit(gradient).any()


def test_trades_of_another_formula_are_between_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scans_of(lambda: trades(odd=[120], count=240), monkeypatch) == 4


def test_a_loop_has_few_ops_where_the_unrolled_graph_has_thousands() -> None:
    with sg.Graph() as graph:
        fetches, feeds, _ = recurrence(turns=400, shape=())
    assert len(graph.nodes) > 8000
    with sg.Session(graph) as session:
        text = session.compile(fetches, feeds).text("graph")
    assert text.count("\n") < 600


def test_short_graphs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scans_of(lambda: recurrence(turns=20), monkeypatch) == 0


def test_large_values_stay_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scans_of(lambda: recurrence(turns=60, shape=(50_000,)), monkeypatch) == 0


def test_programs_with_a_budget_of_memory_stay_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scans_of(recurrence, monkeypatch, memory_budget=1.0) == 0


def test_what_is_assigned_or_printed_in_between_stays(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Effects are in no loop, so they happen in their order."""

    def printed() -> Declared:
        x = sg.placeholder((), sg.float64)
        y = x
        for turn in range(200):
            y = sg.tanh(y * 0.9 + 0.1) + 0.01
            if turn % 50 == 49:
                y = sg.print(y, f"turn {turn}:")
        return [y, *sg.gradients(y, [x])], [x], [np.asarray(0.5)]

    scans_of(printed, monkeypatch)
    lines = [line.split(":")[0] for line in capfd.readouterr().out.splitlines() if line.startswith("turn")]
    assert lines == [f"turn {n}" for n in (49, 99, 149, 199)] * 2


def test_repetitions_are_found_by_their_shortest_period() -> None:
    keys = np.array([90, 91, *([1, 2, 2, 3] * 20), 92, *([5, 6] * 30), 93], np.int64)
    found = repetitions(keys, 8, 20)
    assert found == [Repetition(2, 4, 20), Repetition(83, 2, 30)]
    assert found[0].end == 82
    assert list(found[0].turn(19)) == [78, 79, 80, 81]
    assert found[1].joined(4) == Repetition(83, 8, 7)
    assert found[1].without(1, 2) == Repetition(85, 2, 27)


def test_one_other_key_ends_a_repetition() -> None:
    keys = np.array([1, 2, 3] * 40, np.int64)
    keys[61] = 7
    assert repetitions(keys, 8, 20) == [Repetition(0, 3, 20), Repetition(62, 3, 19)]
