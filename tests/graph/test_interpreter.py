"""The interpreter: what a run gives, in which order things happen, and that it changes nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.ops.effects import assert_
from staticgrad.ops.interpreter import Outcome, call_function, evaluate


@dataclass(frozen=True)
class Work:
    """A graph with what goes in and out."""

    graph: Graph
    feeds: tuple[Tensor, ...] = ()
    fetches: tuple[Tensor, ...] = ()
    effects: tuple[Node, ...] = ()


def run(work: Work, *arrays: Any, state: dict[str, Array] | None = None, key: Sequence[int] = (0, 0)) -> Outcome:
    values = [np.asarray(a, x.dtype) for a, x in zip(arrays, work.feeds, strict=True)]
    return evaluate(work, values, lambda attrs: (state or {})[attrs.key], np.array(key, np.int64))


def test_values_in_the_order_of_the_fetches() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((3,))
        y = sg.exp(x)
        z = y + 1
    out = run(Work(g, (x,), (z, x, y)), [0, 1, 2]).values
    np.testing.assert_allclose(out[2], np.exp([0, 1, 2]), rtol=1e-6)
    np.testing.assert_allclose(out[0], out[2] + 1)
    np.testing.assert_array_equal(out[1], [0, 1, 2])


def test_any_tensor_may_be_fed() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((2,))
        y = sg.exp(x)
        z = y * 2
    assert run(Work(g, (y,), (z,)), [3, 4]).values[0].tolist() == [6, 8]


def test_a_placeholder_that_is_needed_is_named() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((2,), name="images")
        y = x * 2
    with pytest.raises(sg.FeedError, match=r"'images'.*\n.*test_interpreter"):
        run(Work(g, (), (y,)))


def test_only_what_is_needed_is_computed() -> None:
    calls: list[str] = []

    def note(a: Array) -> Array:
        calls.append("called")
        return a

    with sg.Graph() as g:
        x = sg.placeholder(())
        sg.py_call(note, [x], [(sg.float32, ())])
        y = x + 1
    run(Work(g, (x,), (y,)), 1.0)
    assert not calls


def test_a_write_is_reported_and_reads_see_the_old_value() -> None:
    with sg.Graph() as g:
        w = sg.Variable(np.zeros(2, np.float32), name="w")
        write = sg.assign(w, w + 1)
        twice = w * 2
        new = _tensor(write) * 2
    state = {"w": np.array([1, 2], np.float32)}
    outcome = run(Work(g, (), (twice, new)), state=state)
    assert outcome.values[0].tolist() == [2, 4]
    assert outcome.values[1].tolist() == [4, 6]
    assert outcome.writes["w"].tolist() == [2, 3]
    assert state["w"].tolist() == [1, 2]


def _tensor(value: Node | Tensor) -> Tensor:
    return value.outputs[0] if isinstance(value, Node) else value


def test_random_numbers_follow_from_the_key() -> None:
    with sg.Graph() as g:
        x = sg.random.uniform((5,))
        y = sg.random.uniform((5,))
    work = Work(g, (), (x, y))
    first, again, later = run(work).values, run(work).values, run(work, key=(0, 1)).values
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], later[0])


def test_an_index_out_of_range_is_a_bounds_error() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((3,))
        i = sg.placeholder((), sg.int64)
        y = sg.take(x, i)
    work = Work(g, (x, i), (y,))
    assert run(work, [1, 2, 3], 2).values[0] == 3
    with pytest.raises(sg.BoundsError):
        run(work, [1, 2, 3], 3)


def test_results_of_a_python_function_are_checked() -> None:
    types = [TensorType((2,), np.dtype("float32"))]
    a = np.zeros(2, np.float32)
    assert call_function(lambda x: x + 1, [a], types, None)[0].tolist() == [1, 1]
    for wrong in (lambda x: x.astype(np.float64), lambda x: x[:1], lambda x: (x, x), lambda x: None):
        with pytest.raises(sg.StaticGradError, match="py_call"):
            call_function(wrong, [a], types, None)


def test_a_python_function_gets_copies() -> None:
    def spoil(x: Array) -> Array:
        x[...] = 9
        return x

    a = np.zeros(2, np.float32)
    call_function(spoil, [a], [TensorType((2,), np.dtype("float32"))], None)
    assert a.tolist() == [0, 0]


def test_print_shows_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((2,))
        y = sg.print(x, "x is") * 2
    run(Work(g, (x,), (y,)), [1, 2])
    assert capsys.readouterr().out == "x is [1. 2.]\n"


def test_a_failed_assertion_names_its_message() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((2,))
        with sg.control_dependencies([assert_(x > 0, "x must be positive")]):
            y = x * 1.5
    work = Work(g, (x,), (y,))
    assert run(work, [1, 2]).values[0].tolist() == [1.5, 3]
    with pytest.raises(sg.StaticGradError, match="x must be positive"):
        run(work, [1, -2])
