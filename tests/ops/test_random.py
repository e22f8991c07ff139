"""What ``sg.random`` draws has the distribution that it says, and depends on the key alone.

Draws are those of fixed seeds, so every figure here is the same in every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.stats

import staticgrad as sg

COUNT = 4000
LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.4]))
WEIGHTS = np.array([1.0, 0.0, 3.0, 4.0])

DRAWS: dict[str, Callable[..., sg.Tensor]] = {
    "categorical": lambda **o: sg.random.categorical(LOGITS, shape=(COUNT,), **o),
    "randint": lambda **o: sg.random.randint((COUNT,), -5, 1000, **o),
    "choice": lambda **o: sg.random.choice(4, (COUNT,), p=WEIGHTS, **o),
    "choice without replacement": lambda **o: sg.random.choice(COUNT, (300,), False, **o),
    "exponential": lambda **o: sg.random.exponential((COUNT,), 2.0, **o),
    "gamma": lambda **o: sg.random.gamma(0.7, (COUNT,), **o),
}


def drawn(x: sg.Tensor, seed: int = 0) -> Any:
    return sg.Session(sg.get_default_graph(), seed=seed).run(x)


def p_of_counts(indices: Any, expected: Any) -> float:
    """Of a χ² test that the indices are drawn with these probabilities."""
    expected = np.asarray(expected) / np.sum(expected)
    counts = np.bincount(indices.ravel(), minlength=len(expected))
    there = expected > 0
    assert not counts[~there].any()
    return float(scipy.stats.chisquare(counts[there], expected[there] * counts.sum()).pvalue)


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_follows_from_seed_run_and_place_alone(name: str) -> None:
    draw = DRAWS[name]
    with sg.Graph() as graph:
        first, second, own, same = draw(), draw(), draw(seed=3), draw(seed=3)
        other = draw(seed=4)
    results = []
    for threads in (1, 2):
        sess = sg.Session(graph, num_threads=threads, seed=5)
        results.append([sess.run([first, second, own, same, other]) for _ in range(2)])
    for one, two in zip(*results, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    (a, b, c, d, e), again = results[0]
    np.testing.assert_array_equal(c, d)
    for x, y in ((a, b), (c, e), (a, again[0]), (c, again[2]), (a, sg.Session(graph, seed=6).run(first))):
        assert (x != y).any()


@pytest.mark.parametrize("name", DRAWS)
def test_turns_of_a_loop_draw_different_numbers(g: sg.Graph, name: str) -> None:
    rows = drawn(sg.scan(lambda carry, _: (carry, DRAWS[name]()), 0, None, length=3)[1])
    assert (rows[0] != rows[1]).any()
    assert (rows[1] != rows[2]).any()


# -- integers -------------------------------------------------------------------------------------------------------


def test_categories_come_with_their_probabilities(g: sg.Graph) -> None:
    x = drawn(sg.random.categorical(LOGITS + 100, shape=(COUNT,)))
    assert x.dtype == np.int64
    assert p_of_counts(x, np.exp(LOGITS)) > 0.01


def test_categories_along_an_axis_and_several_draws(g: sg.Graph) -> None:
    never = np.array([[-np.inf, 0.0, -np.inf], [0.0, -np.inf, -np.inf]])
    assert drawn(sg.random.categorical(never)).tolist() == [1, 0]
    assert drawn(sg.random.categorical(never.T.astype(np.float32), axis=0)).tolist() == [1, 0]
    assert drawn(sg.random.categorical(never, shape=(5, 2))).tolist() == [[1, 0]] * 5
    rows = sg.placeholder((None, 4), sg.float64)
    x = sg.Session(g).run(sg.random.categorical(rows), {rows: np.tile(LOGITS, (COUNT, 1))})
    assert p_of_counts(x, np.exp(LOGITS)) > 0.01


def test_integers_are_drawn_equally_often(g: sg.Graph) -> None:
    x = drawn(sg.random.randint((COUNT,), -3, 4))
    assert x.dtype == np.int64
    assert p_of_counts(x + 3, np.ones(7)) > 0.01
    bounds = np.array([0, 10, -40]), np.array([2, 15, -37])
    rows = drawn(sg.random.randint((COUNT, 3), *bounds, dtype=sg.int8))
    assert rows.dtype == np.int8
    for column, low, high in zip(rows.T, *bounds, strict=True):
        assert p_of_counts(column - low, np.ones(high - low)) > 0.01
    wide = drawn(sg.random.randint((COUNT,), -(2**52), 2**52))
    assert scipy.stats.kstest(wide / 2.0**53 + 0.5, "uniform").pvalue > 0.01
    assert drawn(sg.random.randint((9,), 255, 256, dtype=sg.uint8)).tolist() == [255] * 9


def test_elements_are_chosen_by_weight(g: sg.Graph) -> None:
    x = drawn(sg.random.choice(np.array([10.0, 11, 12, 13]), (COUNT,), p=WEIGHTS))
    assert p_of_counts(x.astype(int) - 10, WEIGHTS) > 0.01
    assert p_of_counts(drawn(sg.random.choice(5, (COUNT,))), np.ones(5)) > 0.01
    table = np.arange(12).reshape(3, 4)
    columns = drawn(sg.random.choice(table, (2, 5), axis=1))
    assert columns.shape == (3, 2, 5)
    np.testing.assert_array_equal(columns[1] - columns[0], 4)
    assert drawn(sg.random.choice(np.array([7, 7]))) == 7


def test_elements_are_chosen_once_without_replacement(g: sg.Graph) -> None:
    order = drawn(sg.random.choice(50, (10, 5), False))
    assert sorted(order.ravel()) == list(range(50))
    pairs = drawn(sg.map(lambda _: sg.random.choice(4, (2,), False, p=WEIGHTS), np.zeros(COUNT)))
    share = WEIGHTS / WEIGHTS.sum()
    then = np.array([[0 if i == j else share[i] * share[j] / (1 - share[i]) for j in range(4)] for i in range(4)])
    assert p_of_counts(pairs[:, 0] * 4 + pairs[:, 1], then.ravel()) > 0.01


# -- floats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponential_numbers(g: sg.Graph, dtype: str) -> None:
    x = drawn(sg.random.exponential((COUNT,), 3.0, dtype=dtype))
    assert x.dtype == dtype
    assert scipy.stats.kstest(x.astype(float), scipy.stats.expon(scale=3).cdf).pvalue > 0.01


@pytest.mark.share(3)
@pytest.mark.parametrize("alpha", [0.05, 0.7, 1.0, 2.5, 100.0, 1e9])
def test_numbers_of_the_gamma_distribution(g: sg.Graph, alpha: float) -> None:
    x = drawn(sg.random.gamma(alpha, (COUNT,), 2.0, dtype=sg.float64))
    assert scipy.stats.kstest(x, scipy.stats.gamma(alpha, scale=2).cdf).pvalue > 0.01
    narrow = drawn(sg.random.gamma(alpha, (3, 5), 2.0))
    assert (narrow.dtype, narrow.shape) == (np.float32, (3, 5))


def test_parameters_of_the_gamma_distribution_where_it_is_none(g: sg.Graph) -> None:
    alphas = sg.constant(np.array([0.0, -1.0, np.inf, np.nan, -0.5]))
    np.testing.assert_array_equal(drawn(sg.random.gamma(alphas)), [0, np.nan, np.inf, np.nan, np.nan])


def test_gradients_flow_to_the_shape_of_the_gamma_distribution_in_both_modes(g: sg.Graph) -> None:
    """A number that is drawn keeps its value of the distribution function: it is that quantile of the next shape."""
    alphas = np.array([0.02, 0.3, 1.0, 4.5, 80.0])
    alpha = sg.placeholder((5,), sg.float64)
    x = sg.random.gamma(alpha, (40, 5))
    (slope,), (tangent,) = (
        sg.gradients(sg.sum(sg.log(x)), [alpha]),
        sg.jvp([x], [alpha], [sg.ones((5,), dtype=sg.float64)]),
    )
    value, got, along = sg.Session(g, seed=3).run([x, slope, tangent], {alpha: alphas})
    with mpmath.workdps(40):
        for column, a in enumerate(alphas):
            for row in range(8):
                y = mpmath.mpf(value[row, column])
                step = mpmath.mpf(10) ** -15
                below, above = (
                    mpmath.gammainc(mpmath.mpf(a) + sign * step, 0, y, regularized=True) for sign in (-1, 1)
                )
                density = mpmath.exp((a - 1) * mpmath.log(y) - y - mpmath.loggamma(a))
                np.testing.assert_allclose(
                    along[row, column], float(-(above - below) / (2 * step) / density), rtol=1e-9
                )
    np.testing.assert_allclose(got, (along / value).sum(0), rtol=1e-12)
    with pytest.raises(sg.GraphError, match="derived by a once"):
        sg.gradients(slope, [alpha])


def test_gradients_flow_to_scales_of_the_gamma_distribution(g: sg.Graph) -> None:
    alpha, scale = (sg.placeholder((3,), sg.float64, requires_grad=True) for _ in range(2))
    for x in (sg.random.gamma(alpha, (5, 3), scale), sg.random.exponential((5, 3), scale)):
        slope = sg.gradients(sg.sum(x), [scale])
        value, (got,) = sg.Session(g).run([x, slope], {alpha: [0.5, 1.0, 2.0], scale: [1.0, 2.0, 3.0]})
        np.testing.assert_allclose(got, value.sum(0) / [1, 2, 3], rtol=1e-12)
    assert sg.gradients(sg.random.gamma(sg.stop_gradient(alpha)), [alpha]) == [None]


def test_batched_functions_draw_for_each_example(g: sg.Graph) -> None:
    rows = drawn(sg.vmap(lambda a: sg.random.gamma(a, (2,)))(np.ones(3)))
    assert len(np.unique(rows)) == 6
    assert len(np.unique(drawn(sg.vmap(lambda a: sg.random.randint((), 0, 2**40) + a)(np.zeros(9, np.int64))))) == 9


REFUSED: list[Callable[[], object]] = [
    lambda: sg.random.categorical(1.0),
    lambda: sg.random.categorical(LOGITS[None], shape=(3, 2)),
    lambda: sg.random.randint((2,), 3, 3),
    lambda: sg.random.randint((2,), 0.0, 3.0),
    lambda: sg.random.randint((2,), 0, 300, dtype=sg.uint8),
    lambda: sg.random.randint((2,), 0, 2**60),
    lambda: sg.random.randint((2,), 0, 2, dtype=sg.float32),
    lambda: sg.random.choice(0, (2,)),
    lambda: sg.random.choice(3, (4,), False),
    lambda: sg.random.choice(3, p=[0.5, 0.5]),
    lambda: sg.random.choice(2, p=[0.5, -0.5]),
    lambda: sg.random.choice(1.5),
    lambda: sg.random.exponential((2,), -1.0),
    lambda: sg.random.exponential((2,), dtype=sg.int32),
    lambda: sg.random.gamma(-1.0),
    lambda: sg.random.gamma(1.0, scale=-1.0),
    lambda: sg.random.gamma(1.0, dtype=sg.int32),
]


@pytest.mark.parametrize("draw", REFUSED)
def test_what_cannot_be_drawn(g: sg.Graph, draw: Callable[[], object]) -> None:
    with pytest.raises(sg.GraphError):
        draw()


def test_words_are_extended_where_llvm_does_not_look_for_a_way_through_all_rounds(g: sg.Graph) -> None:
    """Without it LLVM walks through all rounds, again along each path."""
    x = sg.placeholder((8, 32))
    text = sg.Session(g).compile(sg.nn.dropout(x, 0.5), x).text("llvm")
    extended = re.findall(r"zext i32 (%\w+) to i64", text)
    assert extended
    for word in extended:
        assert f"{word} = freeze" in text
