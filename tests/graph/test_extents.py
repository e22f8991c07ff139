"""Extents: they compute as the numbers do that they stand for, and their bounds and answers hold at all sizes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.extents import OpenSize, OpenSizeError, extent_of, highest, is_exactly, is_open, lowest, value_at

RANGES = ((1, 16), (2, 16), (17, 32), (1, 7))
N, M = (extent_of(OpenSize(number, 1, 16, name)) for number, name in enumerate("nm"))


def rounded_up(a: Any, b: Any) -> Any:
    return -(-a // b)


OPERATORS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, rounded_up)


@pytest.mark.parametrize("start", range(0, 1000, 250))
def test_random_extents_are_what_numbers_are(start: int) -> None:
    for seed in range(start, start + 250):
        rng = np.random.default_rng(seed)
        ranges = [RANGES[int(rng.integers(len(RANGES)))] for _ in "nm"]
        points = list(itertools.product(*(range(low, high + 1) for low, high in ranges)))
        made: list[tuple[Any, list[int]]] = [
            (extent_of(OpenSize(number, *ends, "nm"[number])), [point[number] for point in points])
            for number, ends in enumerate(ranges)
        ]
        numbers = [(number, [number] * len(points)) for number in (1, 2, 3, 5, 8, 16)]
        for _ in range(int(rng.integers(1, 5))):
            (a, xs), (b, ys) = made[int(rng.integers(len(made)))], [*made, *numbers][int(rng.integers(len(made) + 6))]
            function = OPERATORS[int(rng.integers(len(OPERATORS)))]
            try:
                made.append((function(a, b), [function(x, y) for x, y in zip(xs, ys, strict=True)]))
            except (OpenSizeError, ZeroDivisionError):
                continue
        extent, values = made[-1]
        assert [value_at(extent, point) for point in points] == values, f"seed {seed}: {extent}"
        assert lowest(extent) <= min(values) <= max(values) <= highest(extent), f"seed {seed}: {extent!r}"
        for number in (0, 1, 4, 17):
            _check(lambda e=extent, k=number: is_exactly(e, k), [v == number for v in values])
            if is_open(extent) and number > 2:  # where rules about 0 and 1 decide nothing
                _check(lambda e=extent, k=number: e < k, [v < number for v in values])


def _check(question: Callable[[], bool], answers: list[bool]) -> None:
    try:
        answer = question()
    except OpenSizeError:
        return
    assert {answer} == set(answers)


@pytest.mark.parametrize(
    ("question", "cuts"),
    [
        (lambda: N - 2 < 0, {"n": (2,)}),
        (lambda: N + 1 > 4, {"n": (4,)}),
        (lambda: N == 3, {"n": (3, 4)}),
        (lambda: is_exactly(N - 1, 0), {"n": (2,)}),
        (lambda: is_exactly(N * M, 1), {"n": (2,), "m": (2,)}),
        (lambda: is_exactly(N % 2, 0), {}),
        (lambda: N == M, {}),
        (lambda: range(N), {}),
    ],
)
def test_what_is_left_open_says_where_to_cut_a_range(question: Callable[[], Any], cuts: dict[str, Any]) -> None:
    with pytest.raises(OpenSizeError) as caught:
        question()
    assert {str(size): firsts for size, firsts in caught.value.cuts.items()} == cuts


def test_each_size_is_asked_where_bounds_say_little() -> None:
    assert not N // 2 > N
    assert not N - 2 * ((N + 1) // 2) + 1 < 0
    assert lowest(8 * M * N - 8 * N) == 0


# -- programs for parts of a range ------------------------------------------------------------------------------------

F = sg.float64


def compiled(build: Callable[[sg.Tensor], Any], sizes: tuple[int, ...]) -> tuple[list[Any], int]:
    """What a program of an (n, 3) array gives at some sizes, or the class of its error, and how many are compiled."""
    found: list[Any] = []
    with sg.Graph() as graph:
        x = sg.placeholder((None, 3), F)
        y = build(x)
    with sg.Session(graph) as session:
        for size in sizes:
            try:
                found.append(session.run(y, {x: np.arange(3.0 * size).reshape(size, 3)}))
            except sg.StaticGradError as error:
                found.append(type(error))
        return found, session.compile_count


def test_a_maximum_of_no_rows_is_refused_within_a_range() -> None:
    found, programs = compiled(lambda x: sg.max(x[1:], 0), (7, 1, 2, 16))
    assert found[1] is sg.GraphError
    for size, y in zip((7, 2, 16), (found[0], *found[2:]), strict=True):
        np.testing.assert_array_equal(y, np.arange(3.0) + 3 * (size - 1))
    assert programs == 1


def test_the_position_of_no_element_is_refused_within_a_range() -> None:
    found, programs = compiled(lambda x: sg.argmax(x[1:], 0), (1, 7, 5))
    assert found[0] is sg.GraphError
    np.testing.assert_array_equal(found[1], [5, 5, 5])
    assert programs == 1


def test_statistics_of_one_example_are_refused_within_a_range() -> None:
    found, programs = compiled(lambda x: sg.nn.batch_norm(x, None, None, training=True), (4, 1, 2))
    assert found[1] is sg.GraphError
    np.testing.assert_allclose(found[2], [[-1.0] * 3, [1.0] * 3], atol=1e-5)
    assert programs == 1


def test_slices_of_several_rows_have_a_program_for_fewer_rows_and_one_for_the_rest_of_a_range() -> None:
    found, programs = compiled(lambda x: x[-3:], (2, 3, 9, 16, 1))
    np.testing.assert_array_equal(found[0], np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(found[2], np.arange(18.0, 27).reshape(3, 3))
    assert programs == 2


def test_rows_at_numbers_below_an_open_size() -> None:
    found, programs = compiled(lambda x: sg.take(x, sg.constant([0, -1, 4]), axis=0), (5, 16, 4))
    np.testing.assert_array_equal(found[1][:, 0], [0, 45, 12])
    assert found[2] is sg.BoundsError
    assert programs == 1


def test_a_product_of_no_terms_within_a_range() -> None:
    """It left what lay there."""
    found, programs = compiled(lambda x: sg.matrix_transpose(x[1:]) @ sg.sin(x[1:]), (1, 2, 6))
    np.testing.assert_array_equal(found[0], np.zeros((3, 3)))
    x = np.arange(3.0, 6)
    np.testing.assert_allclose(found[1], np.outer(x, np.sin(x)))
    assert programs <= 2


def test_sizes_that_are_served_are_reported(g: sg.Graph) -> None:
    x = sg.placeholder((sg.dim("n"), 3), F)
    exe = sg.Session().compile(x[-3:], x)
    exe(np.ones((5, 3)))
    assert "n from 3 to 16" in str(exe.memory)
    assert exe.profile(np.ones((4, 3)))
