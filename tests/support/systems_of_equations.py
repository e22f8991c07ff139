"""Systems of equations with known roots: those of J. Moré, B. Garbow and K. Hillstrom, Testing Unconstrained
Optimization Software, ACM Transactions on Mathematical Software 7 (1981), that have as many equations as unknowns.
Where the paper gives a sum of squares with more terms, Wood's and Watson's, the system is its gradient.

Each has the residual, as a function of a namespace (``sg``, or NumPy's) and of x, the standard start, and a root where
the paper gives one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen

Residual = Callable[[Any, Any], Any]  # of the namespace and x


@frozen(eq=False)
class System:
    """A system of equations: where searches begin, and a root if it is known."""

    residual: Residual
    start: np.ndarray
    root: np.ndarray | None = None


def _rosenbrock(o: Any, x: Any) -> Any:
    return o.stack([1 - x[0], 10 * (x[1] - x[0] ** 2)])


def _powell_singular(o: Any, x: Any) -> Any:
    a, b, c, d = (x[i] for i in range(4))
    return o.stack([a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2])


def _powell_badly_scaled(o: Any, x: Any) -> Any:
    return o.stack([1e4 * x[0] * x[1] - 1, o.exp(-x[0]) + o.exp(-x[1]) - 1.0001])


def _wood(o: Any, x: Any) -> Any:
    a, b, c, d = (x[i] for i in range(4))
    first, second = b - a**2, d - c**2
    return o.stack([
        -400 * a * first - 2 * (1 - a),
        200 * first + 20.2 * (b - 1) + 19.8 * (d - 1),
        -360 * c * second - 2 * (1 - c),
        180 * second + 20.2 * (d - 1) + 19.8 * (b - 1),
    ])  # fmt: skip


def _helical_valley(o: Any, x: Any) -> Any:
    turns = o.atan2(x[1], x[0]) / (2 * np.pi)
    turns = o.where(turns < -0.25, turns + 1, turns)  # the paper's angle is from -1/4 to 3/4 of a turn
    return o.stack([10 * (x[2] - 10 * turns), 10 * (o.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]])


def _watson(n: int) -> Residual:
    t = (np.arange(1, 30) / 29)[:, None]
    j = np.arange(n)
    powers = t**j  # of the values, by term and coefficient
    slopes = np.where(j > 0, j * t ** np.maximum(j - 1, 0), 0.0)

    def gradient(o: Any, x: Any) -> Any:
        value = powers @ x
        f = slopes @ x - value**2 - 1
        first, second = x[0], x[1] - x[0] ** 2 - 1
        rest = o.concat([o.stack([2 * (first - 2 * first * second), 2 * second]), np.zeros(n - 2)])
        return 2 * (slopes.T @ f - powers.T @ (2 * value * f)) + rest

    return gradient


def _chebyquad(o: Any, x: Any) -> Any:
    n = x.shape[0]
    y = 2 * x - 1
    before, now, found = 1.0 + 0 * y, y, []
    for i in range(1, n + 1):
        integral = 0.0 if i % 2 else -1.0 / (i * i - 1)
        found.append(o.mean(now) - integral)
        before, now = now, 2 * y * now - before
    return o.stack(found)


def _brown_almost_linear(o: Any, x: Any) -> Any:
    n = x.shape[0]
    return o.concat([x[:-1] + o.sum(x) - (n + 1), o.stack([o.prod(x) - 1])])


def _shifted(o: Any, x: Any) -> tuple[Any, Any]:
    """The elements before and after each; zero beyond the ends."""
    zero = np.zeros(1)
    return o.concat([zero, x[:-1]]), o.concat([x[1:], zero])


def _boundary_value(o: Any, x: Any) -> Any:
    n = x.shape[0]
    h = 1 / (n + 1)
    before, after = _shifted(o, x)
    return 2 * x - before - after + h**2 / 2 * (x + h * np.arange(1.0, n + 1) + 1) ** 3


def _integral_equation(o: Any, x: Any) -> Any:
    n = x.shape[0]
    h = 1 / (n + 1)
    t = h * np.arange(1.0, n + 1)
    cube = (x + t + 1) ** 3
    lower = np.tril(np.outer(1 - t, t))
    upper = np.triu(np.outer(t, 1 - t), 1)
    return x + h / 2 * ((lower + upper) @ cube)


def _trigonometric(o: Any, x: Any) -> Any:
    n = x.shape[0]
    return n - o.sum(o.cos(x)) + np.arange(1.0, n + 1) * (1 - o.cos(x)) - o.sin(x)


def _variably_dimensioned(o: Any, x: Any) -> Any:
    n = x.shape[0]
    weighted = o.sum(np.arange(1.0, n + 1) * (x - 1))
    return x - 1 + np.arange(1.0, n + 1) * weighted * (1 + 2 * weighted**2)


def _broyden_tridiagonal(o: Any, x: Any) -> Any:
    before, after = _shifted(o, x)
    return (3 - 2 * x) * x - before - 2 * after + 1


def _broyden_banded(o: Any, x: Any) -> Any:
    n = x.shape[0]
    distance = np.subtract.outer(np.arange(n), np.arange(n))  # row less column
    near = ((distance <= 5) & (distance >= -1) & (distance != 0)).astype(float)
    return x * (2 + 5 * x**2) + 1 - near @ (x * (1 + x))


def _middle(n: int) -> np.ndarray:
    t = np.arange(1.0, n + 1) / (n + 1)
    return t * (t - 1)


SYSTEMS = {
    "rosenbrock": System(_rosenbrock, np.array([-1.2, 1.0]), np.ones(2)),
    "powell singular": System(_powell_singular, np.array([3.0, -1.0, 0.0, 1.0]), np.zeros(4)),
    "powell badly scaled": System(
        _powell_badly_scaled, np.array([0.0, 1.0]), np.array([1.09815932969982e-5, 9.10614673986652])
    ),
    "wood": System(_wood, np.array([-3.0, -1.0, -3.0, -1.0])),
    "helical valley": System(_helical_valley, np.array([-1.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0])),
    "watson": System(_watson(6), np.zeros(6)),
    "chebyquad 5": System(_chebyquad, np.arange(1, 6) / 6),
    "chebyquad 7": System(_chebyquad, np.arange(1, 8) / 8),
    "chebyquad 9": System(_chebyquad, np.arange(1, 10) / 10),
    "brown almost linear": System(_brown_almost_linear, np.full(10, 0.5)),
    "discrete boundary value": System(_boundary_value, _middle(10)),
    "discrete integral equation": System(_integral_equation, _middle(10)),
    "trigonometric": System(_trigonometric, np.full(10, 0.1)),
    "variably dimensioned": System(_variably_dimensioned, 1 - np.arange(1, 11) / 10, np.ones(10)),
    "broyden tridiagonal": System(_broyden_tridiagonal, np.full(10, -1.0)),
    "broyden banded": System(_broyden_banded, np.full(10, -1.0)),
}
