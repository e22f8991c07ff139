"""``sg.pad`` in all its modes beside NumPy's, and between elements and with negative widths beside its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

RNG = np.random.default_rng(5)
REPEATING = ["edge", "reflect", "symmetric", "wrap"]


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives are right in graphs; what these are compiled to is right by tests of their ops."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def test_pads_are_numpys() -> None:
    """Also by more elements than an axis has, where what is repeated is repeated again."""
    x, one = RNG.normal(size=(3, 4)), RNG.normal(size=(1,))
    widths = [((1, 2), (0, 3)), ((2, 2), (3, 3)), ((0, 0), (7, 9)), ((5, 1), (0, 0))]
    cases = [(x, pair, mode) for pair in widths for mode in REPEATING] + [(one, ((2, 3),), mode) for mode in REPEATING]
    feeds = [sg.placeholder(array.shape, sg.float64) for array, _, _ in cases]
    got = run(
        [sg.pad(feed, pair, mode=mode) for feed, (_, pair, mode) in zip(feeds, cases, strict=True)],
        dict(zip(feeds, [array for array, _, _ in cases], strict=True)),
    )
    for value, (array, pair, mode) in zip(got, cases, strict=True):
        np.testing.assert_array_equal(value, np.pad(array, pair, mode), err_msg=f"{mode} {pair}")


def test_pytorchs_names_of_modes_are_taken() -> None:
    x = sg.constant([[1, 2, 3]])
    for theirs, ours in (("replicate", "edge"), ("circular", "wrap")):
        np.testing.assert_array_equal(*run([sg.pad(x, 1, mode=theirs), sg.pad(x, 1, mode=ours)]))


def between(x: np.ndarray, low: int, high: int, interior: int, value: float) -> np.ndarray:
    """The definition for one axis: an endless row of ``value`` with the elements in it, of which a part is taken."""
    reach = 50
    length = len(x) + max(len(x) - 1, 0) * interior
    row = np.full(length + 2 * reach, value)
    row[reach : reach + length : interior + 1] = x
    return row[reach - low : reach + length + high]


@pytest.mark.parametrize("size", [0, 1, 4])
def test_pads_between_elements_and_negative_ones_are_their_definition(size: int) -> None:
    x = RNG.normal(size=size)
    feed = sg.placeholder((size,), sg.float64)
    ways = [
        (low, high, interior) for low in (-3, -1, 0, 2) for high in (-2, 0, 3) for interior in (0, 1, 2)
        if size + max(size - 1, 0) * interior + low + high >= 0 and size
    ] or [(2, 1, 3), (0, 4, 1)]  # fmt: skip
    got = run([sg.pad(feed, (low, high), value=7.0, interior=interior) for low, high, interior in ways], {feed: x})
    for value, (low, high, interior) in zip(got, ways, strict=True):
        np.testing.assert_array_equal(value, between(x, low, high, interior, 7.0), err_msg=f"{low, high, interior}")


def test_pads_of_open_sizes_repeat_what_an_axis_has() -> None:
    x = sg.placeholder((sg.dim("n"), 3), sg.float64)
    modes = [sg.pad(x, ((2, 2), (1, 0)), mode=mode) for mode in REPEATING]
    taken = sg.pad(x, ((-1, 2), (0, 0)), value=5.0)
    with sg.Session() as session:
        for size in (3, 6):
            value = RNG.normal(size=(size, 3))
            *repeated, less = session.run([*modes, taken], {x: value})
            for got, mode in zip(repeated, REPEATING, strict=True):
                np.testing.assert_array_equal(got, np.pad(value, ((2, 2), (1, 0)), mode))
            np.testing.assert_array_equal(less, np.pad(value[1:], ((0, 2), (0, 0)), constant_values=5.0))
        with pytest.raises(sg.StaticGradError):
            session.run(modes[1], {x: np.ones((2, 3))})  # one element to mirror, two are asked for


@pytest.mark.usefixtures("interpreted")
def test_pads_have_derivatives_in_both_modes_and_go_over_examples() -> None:
    x = RNG.normal(size=(3, 4))
    for mode in REPEATING:
        sg.check_gradients(lambda x, mode=mode: sg.sum(sg.sin(sg.pad(x, ((1, 2), (0, 6)), mode=mode))), [x])
    sg.check_gradients(lambda x: sg.sum(sg.sin(sg.pad(x, ((-1, 2), (1, -2)), interior=(1, 2)))), [x])
    many = RNG.normal(size=(5, 3, 4))
    got = run(sg.vmap(lambda x: sg.pad(x, ((1, -1), (2, 1)), mode="reflect"))(sg.constant(many)))
    np.testing.assert_array_equal(got, [np.pad(one[:-1], ((1, 0), (2, 1)), "reflect") for one in many])


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: sg.pad(sg.zeros((2,)), 1, mode="mirror"), "expected a mode of constant, edge"),
        (lambda: sg.pad(sg.zeros((2, 0)), 1, mode="edge"), "no elements to repeat on axis 1"),
        (lambda: sg.pad(sg.zeros((2,)), 1, mode="wrap", interior=1), "interior"),
        (lambda: sg.pad(sg.zeros((2, 2)), 1, interior=(1,)), "an interior for each axis"),
        (lambda: sg.pad(sg.zeros((2,)), 1, interior=-1), "interior"),
        (lambda: sg.pad(sg.zeros((2,)), (-2, -1)), r"at most 2 elements away from axis 0 .* actual \(-2, -1\)"),
        (lambda: sg.pad(sg.zeros((2, 2)), ((1, 2, 3), (1, 2, 3))), "a pair of widths for each axis"),
    ],
)
def test_pads_that_make_no_sense_are_refused(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words):
        declare()
