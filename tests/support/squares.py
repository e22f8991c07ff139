"""Least squares problems by their formulas: J. J. Moré, B. S. Garbow & K. E. Hillstrom, Testing unconstrained
optimization software, ACM Trans. Math. Softw. 7 (1981), with its starting points and its minima of the sum of squares.

A problem takes a namespace, ``sg`` or one of NumPy's names, so that other solvers can be asked the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Residuals = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Problem:
    """Residuals of a point; where to begin; the least sums of squares that are known, the best first."""

    residuals: Residuals
    start: tuple[float, ...]
    minima: tuple[float, ...] = (0.0,)


PROBLEMS: dict[str, Problem] = {}


def _problem(name: str, *start: float, minima: tuple[float, ...] = (0.0,)) -> Callable[[Residuals], Residuals]:
    def enter(residuals: Residuals) -> Residuals:
        PROBLEMS[name] = Problem(residuals, start, minima)
        return residuals

    return enter


def _to(n: int) -> Array:
    return np.arange(1.0, n + 1)


@_problem("Rosenbrock", -1.2, 1)
def _rosenbrock(o: Any, x: Any) -> Any:
    return o.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])


@_problem("Freudenstein and Roth", 0.5, -2, minima=(0.0, 48.98425))
def _freudenstein_roth(o: Any, x: Any) -> Any:
    return o.stack([-13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1], -29 + x[0] + ((x[1] + 1) * x[1] - 14) * x[1]])


@_problem("Powell, badly scaled", 0, 1)
def _powell_scaled(o: Any, x: Any) -> Any:
    return o.stack([1e4 * x[0] * x[1] - 1, o.exp(-x[0]) + o.exp(-x[1]) - 1.0001])


@_problem("Brown, badly scaled", 1, 1)
def _brown_scaled(o: Any, x: Any) -> Any:
    return o.stack([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2])


@_problem("Beale", 1, 1)
def _beale(o: Any, x: Any) -> Any:
    return np.array([1.5, 2.25, 2.625]) - x[0] * (1 - x[1] ** _to(3))


@_problem("Jennrich and Sampson", 0.3, 0.4, minima=(124.3622,))
def _jennrich_sampson(o: Any, x: Any) -> Any:
    i = _to(10)
    return 2 + 2 * i - (o.exp(i * x[0]) + o.exp(i * x[1]))


@_problem("Helical valley", -1, 0, 0)
def _helical_valley(o: Any, x: Any) -> Any:
    turns = o.atan2(x[1], x[0]) / (2 * np.pi)
    return o.stack([10 * (x[2] - 10 * turns), 10 * (o.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]])


@_problem("Bard", 1, 1, 1, minima=(8.214877e-3, 17.42869))
def _bard(o: Any, x: Any) -> Any:
    y = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39])
    u = _to(15)
    return y - (x[0] + u / ((16 - u) * x[1] + np.minimum(u, 16 - u) * x[2]))


@_problem("Gaussian", 0.4, 1, 0, minima=(1.127932e-8,))
def _gaussian(o: Any, x: Any) -> Any:
    half = np.array([0.0009, 0.0044, 0.0175, 0.0540, 0.1295, 0.2420, 0.3521])
    t = (8 - _to(15)) / 2
    return x[0] * o.exp(-x[1] * (t - x[2]) ** 2 / 2) - np.concatenate([half, [0.3989], half[::-1]])


@_problem("Meyer", 0.02, 4000, 250, minima=(87.94586,))
def _meyer(o: Any, x: Any) -> Any:
    y = [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872]
    return x[0] * o.exp(x[1] / (45 + 5 * _to(16) + x[2])) - np.array(y, float)


@_problem("Gulf research", 5, 2.5, 0.15)
def _gulf(o: Any, x: Any) -> Any:
    t = _to(99) / 100
    y = 25 + (-50 * np.log(t)) ** (2 / 3)
    return o.exp(-(o.abs(y - x[1]) ** x[2]) / x[0]) - t


@_problem("Box, three-dimensional", 0, 10, 20)
def _box(o: Any, x: Any) -> Any:
    t = 0.1 * _to(10)
    return o.exp(-t * x[0]) - o.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10 * t))


@_problem("Powell, singular", 3, -1, 0, 1)
def _powell_singular(o: Any, x: Any) -> Any:
    return o.stack([x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2])


@_problem("Wood", -3, -1, -3, -1)
def _wood(o: Any, x: Any) -> Any:
    return o.stack([10 * (x[1] - x[0] ** 2), 1 - x[0], 90**0.5 * (x[3] - x[2] ** 2), 1 - x[2],
                    10**0.5 * (x[1] + x[3] - 2), (x[1] - x[3]) / 10**0.5])  # fmt: skip


@_problem("Kowalik and Osborne", 0.25, 0.39, 0.415, 0.39, minima=(3.075056e-4, 1.027348e-3))
def _kowalik_osborne(o: Any, x: Any) -> Any:
    y = np.array([0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246])
    u = np.array([4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
    return y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


@_problem("Brown and Dennis", 25, 5, -5, -1, minima=(85822.20,))
def _brown_dennis(o: Any, x: Any) -> Any:
    t = _to(20) / 5
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


@_problem("Osborne 1", 0.5, 1.5, -1, 0.01, 0.02, minima=(5.464895e-5,))
def _osborne(o: Any, x: Any) -> Any:
    y = [844, 908, 932, 936, 925, 908, 881, 850, 818, 784, 751, 718, 685, 658, 628, 603, 580, 558, 538, 522, 506, 490,
         478, 467, 457, 448, 438, 431, 424, 420, 414, 411, 406]  # fmt: skip
    t = 10 * (_to(33) - 1)
    return np.array(y) / 1000 - (x[0] + x[1] * o.exp(-t * x[3]) + x[2] * o.exp(-t * x[4]))


@_problem("Biggs, six parameters", 1, 2, 1, 1, 1, 1, minima=(0.0, 5.655650e-3))
def _biggs(o: Any, x: Any) -> Any:
    t = 0.1 * _to(13)
    y = np.exp(-t) - 5 * np.exp(-10 * t) + 3 * np.exp(-4 * t)
    return x[2] * o.exp(-t * x[0]) - x[3] * o.exp(-t * x[1]) + x[5] * o.exp(-t * x[4]) - y


def _watson(o: Any, x: Any) -> Any:
    n = x.shape[0]
    t = _to(29)[:, None] / 29
    powers, slopes = t ** np.arange(n), np.arange(1, n) * t ** np.arange(n - 1)
    inner = o.sum(slopes * x[1:], axis=1) - o.sum(powers * x, axis=1) ** 2 - 1
    return o.concat([inner, o.stack([x[0], x[1] - x[0] ** 2 - 1])])


_problem("Watson, 6", *[0] * 6, minima=(2.287670e-3,))(_watson)
_problem("Watson, 9", *[0] * 9, minima=(1.399760e-6,))(_watson)


@_problem("Penalty I, 4", 1, 2, 3, 4, minima=(2.249978e-5,))
def _penalty(o: Any, x: Any) -> Any:
    return o.concat([1e-5**0.5 * (x - 1), o.sum(x * x, axis=0, keepdims=True) - 0.25])


@_problem("Variably dimensioned, 8", *(1 - _to(8) / 8))
def _dimensioned(o: Any, x: Any) -> Any:
    total = o.sum(_to(8) * (x - 1), axis=0, keepdims=True)
    return o.concat([x - 1, total, total * total])


@_problem("Trigonometric, 10", *[1 / 10] * 10, minima=(0.0, 2.795057e-5))
def _trigonometric(o: Any, x: Any) -> Any:
    return 10 - o.sum(o.cos(x), axis=0, keepdims=True) + _to(10) * (1 - o.cos(x)) - o.sin(x)


@_problem("Brown, almost linear, 10", *[0.5] * 10, minima=(0.0, 1.0))
def _brown_linear(o: Any, x: Any) -> Any:
    return o.concat([x[:-1] + o.sum(x, axis=0, keepdims=True) - 11, o.prod(x, axis=0, keepdims=True) - 1])


def _between(n: int) -> Array:
    return _to(n) / (n + 1)


@_problem("Boundary value, 10", *(_between(10) * (_between(10) - 1)))
def _boundary_value(o: Any, x: Any) -> Any:
    none, t = np.zeros(1), _between(10)
    left, right = o.concat([none, x[:-1]]), o.concat([x[1:], none])
    return 2 * x - left - right + (x + t + 1) ** 3 / (2 * 11**2)


@_problem("Integral equation, 10", *(_between(10) * (_between(10) - 1)))
def _integral(o: Any, x: Any) -> Any:
    t = _between(10)
    kernel = np.minimum(t[:, None] * (1 - t), t * (1 - t[:, None]))
    return x + o.sum(kernel * (x + t + 1) ** 3, axis=1) / 22


@_problem("Broyden, tridiagonal, 10", *[-1] * 10)
def _tridiagonal(o: Any, x: Any) -> Any:
    none = np.zeros(1)
    return (3 - 2 * x) * x - o.concat([none, x[:-1]]) - 2 * o.concat([x[1:], none]) + 1


@_problem("Broyden, banded, 10", *[-1] * 10)
def _banded(o: Any, x: Any) -> Any:
    i, j = np.indices((10, 10))
    near = ((j != i) & (j >= i - 5) & (j <= i + 1)).astype(float)
    return x * (2 + 5 * x**2) + 1 - o.sum(near * (x * (1 + x)), axis=1)


@_problem("Linear, full rank", *[1] * 5, minima=(5.0,))
def _linear(o: Any, x: Any) -> Any:
    rest = -2 / 10 * o.sum(x, axis=0, keepdims=True) - 1
    return o.concat([x + rest, rest + np.zeros(5)])


@_problem("Linear, rank 1", *[1] * 5, minima=(10 * 9 / (2 * 21),))
def _rank_one(o: Any, x: Any) -> Any:
    return _to(10) * o.sum(_to(5) * x, axis=0, keepdims=True) - 1


def _chebyquad(o: Any, x: Any) -> Any:
    n = x.shape[0]
    before, last, means = 1.0 + 0 * x, 2 * x - 1, []
    for i in range(1, n + 1):
        means.append(o.sum(last, axis=0) / n + (1 / (i * i - 1) if i % 2 == 0 else 0.0))
        before, last = last, 2 * (2 * x - 1) * last - before
    return o.stack(means)


_problem("Chebyquad, 8", *_between(8), minima=(3.516873e-3,))(_chebyquad)
_problem("Chebyquad, 9", *_between(9))(_chebyquad)
_problem("Chebyquad, 10", *_between(10), minima=(4.772713e-3, 6.503955e-3))(_chebyquad)


class NumPyNames:
    """NumPy under the names that the problems use."""

    abs, cos, exp, prod, sin, sqrt, stack, sum = np.abs, np.cos, np.exp, np.prod, np.sin, np.sqrt, np.stack, np.sum
    atan, atan2, concat = np.arctan, np.arctan2, np.concatenate


def is_minimum(name: str, squares: float) -> bool:
    """Whether a sum of squares is one of those that are known."""
    known = PROBLEMS[name].minima
    return any(math.isclose(squares, minimum, rel_tol=2e-6, abs_tol=1e-14 if minimum == 0 else 0) for minimum in known)
