"""Second derivatives at the values that random samples miss: ties, zeros, ones, the ends of intervals, guards.

Every elementwise op of the table, and ops of rows, are derived twice in four ways (reverse or forward, over reverse or
forward) at all points of a grid of such values. The four agree, and where the first derivative is smooth, as its
differences over two widths say, they are these differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.graph.optable import FUNCTIONS, OPS, Op

Array = np.ndarray[Any, np.dtype[Any]]

GRID = {1: [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0], 2: [-2.0, -1.0, 0.0, 0.5, 1.0, 2.0], 3: [-1.0, 0.0, 1.0]}
WIDTH = 1e-4
# Where a derivative is infinite or does not exist, and something is taken for it.
SINGULAR: dict[str, Callable[..., Array]] = {
    "acosh": lambda x: x < 1,
    "pow": lambda x, e: (x < 0) | ((x == 0) & (e <= 1)),
    "probability_cross_entropy": lambda x, t: (x <= 0) | (x >= 1),
    "gamma_density": lambda a, x: a <= 0,
    "xlogy": lambda x, y: y <= 0,
    "xlog1py": lambda x, y: y <= -1,
}
# Ops that refuse a second derivative by a shape or an order; tests/ops/test_special.py has those by the other operand.
ONCE = {"betainc", "betainc_by_shape", "gamma_draw", "gammainc", "gammainc_by_a", "gammaincc", "iv", "ive", "zeta"}


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Graph():
        yield


def points(count: int) -> list[Array]:
    """One array for each operand: all points of the grid."""
    return [np.array(values) for values in zip(*itertools.product(GRID[count], repeat=count), strict=True)]


def check(name: str, fn: Callable[..., Any], count: int) -> None:
    """Derive ``fn``, of operands that are vectors with nothing between their elements, twice by all of them."""
    xs = [sg.placeholder((None,), sg.float64) for _ in range(count)]
    with np.errstate(all="ignore"):
        y = fn(*xs)
        ones = sg.ones_like(xs[0])
        firsts = sg.gradients(y, xs, unconnected_gradients="zero")
        pushed = [sg.jvp(y, x, ones)[0] for x in xs]
        found: dict[tuple[int, int], list[sg.Tensor]] = {}
        for i, (reverse, forward) in enumerate(zip(firsts, pushed, strict=True)):
            rows = [sg.gradients(slope, xs, unconnected_gradients="zero") for slope in (reverse, forward)]
            for j, x in enumerate(xs):
                columns = [sg.jvp(slope, x, ones)[0] for slope in (reverse, forward)]
                found[i, j] = [rows[0][j], rows[1][j], *columns]
        grid = points(count)
        sess = sg.Session()
        seconds = sess.run(found, dict(zip(xs, grid, strict=True)))
        regular = ~SINGULAR[name](*grid) if name in SINGULAR else np.ones(len(grid[0]), bool)
        for (i, j), ways in seconds.items():
            what = f"{name}: d²/d{i}d{j}"
            for number, way in enumerate([*ways, seconds[j, i][0]]):
                both = regular & (np.isfinite(way) | np.isfinite(ways[0]))
                near(f"{what}, way {number}", grid, way, ways[0], both, 1e-9)
            differences, smooth = _differences(sess, firsts[i], xs, grid, j)
            near(f"{what} beside differences", grid, ways[0], differences, smooth & regular, 1e-4)


def near(what: str, grid: Sequence[Array], actual: Array, expected: Array, where: Array, tolerance: float) -> None:
    wrong = where & ~(np.abs(actual - expected) <= tolerance * (1 + np.abs(expected)))
    at = [tuple(float(x[i]) for x in grid) for i in np.flatnonzero(wrong)]
    assert not at, f"{what} at {at}: expected {expected[wrong]}, actual {actual[wrong]}"


def _differences(
    sess: sg.Session, slope: sg.Tensor, xs: Sequence[sg.Tensor], grid: Sequence[Array], j: int
) -> tuple[Array, Array]:
    """Central differences of the slope by operand j, and where they are trusted: two widths and both sides agree."""

    def value(step: float) -> Array:
        moved: Array = sess.run(slope, {x: v + step * (k == j) for k, (x, v) in enumerate(zip(xs, grid, strict=True))})
        return moved

    here, values = value(0), {step: value(step) for step in (WIDTH, -WIDTH, WIDTH / 4, -WIDTH / 4)}
    wide = (values[WIDTH] - values[-WIDTH]) / (2 * WIDTH)
    narrow = (values[WIDTH / 4] - values[-WIDTH / 4]) / (WIDTH / 2)
    sided = (values[WIDTH] - here) / WIDTH
    scale = 1 + np.abs(wide)
    return wide, (np.abs(wide - narrow) < 1e-4 * scale) & (np.abs(wide - sided) < 1e-2 * scale)


def elementwise_ops() -> list[Op]:
    FUNCTIONS.complete()
    floats = (op for op in OPS.values() if op.elementwise and op.differentiable and sg.float64 in op.dtypes)
    return [op for op in floats if op.cases[0].dtypes is None and op.name not in {"astype", "random_uniform", *ONCE}]


@pytest.mark.parametrize("op", elementwise_ops(), ids=lambda op: op.name)
def test_elementwise_ops_at_ties_zeros_and_guards(op: Op) -> None:
    first = op.cases[0]
    check(op.name, lambda *xs: xs[0].graph.add(op, xs, first.attrs).outputs[0], len(first.shapes))


def of_rows(fn: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of rows as one of the elements of rows; of its results those count that stand first."""

    def function(*xs: sg.Tensor) -> sg.Tensor:
        y = fn(sg.stack(xs, axis=-1))
        return y if y.ndim == 1 else y[:, 0]

    return function


ROWS: dict[str, Callable[[Any], Any]] = {
    "logsumexp": lambda x: sg.logsumexp(x, axis=-1),
    "softmax": sg.nn.softmax,
    "log_softmax": sg.nn.log_softmax,
    "prod": lambda x: sg.prod(x, axis=-1),
    "cumulative_prod": lambda x: sg.flip(sg.cumulative_prod(x, axis=-1), axis=-1),
    "var": lambda x: sg.var(x, axis=-1),
    "std": lambda x: sg.std(x, axis=-1),
    "sort": lambda x: sg.sort(x, axis=-1) ** 2,
    "norm": lambda x: sg.linalg.vector_norm(x, axis=-1),
    "norm 3": lambda x: sg.linalg.vector_norm(x, axis=-1, ord=3),
    "norm 1": lambda x: sg.linalg.vector_norm(x, axis=-1, ord=1),
    "norm 1/2": lambda x: sg.linalg.vector_norm(x, axis=-1, ord=0.5),
    "normalize": lambda x: sg.nn.normalize(x, dim=-1),
    "layer_norm": lambda x: sg.nn.layer_norm(x, (x.shape[-1],)),
    "rms_norm": lambda x: sg.nn.rms_norm(x, (x.shape[-1],), eps=1e-6),
    "det": lambda x: sg.linalg.det(sg.stack([x, x[:, ::-1]], axis=-1)),
}


@pytest.mark.parametrize("name", ROWS)
def test_ops_of_rows_at_ties_zeros_and_guards(name: str) -> None:
    check(name, of_rows(ROWS[name]), 2)
