"""Sixty classic problems whose second derivatives are sparse: what ``sparse.py`` measures and tests compare.

Each is entered by a function of about how many variables there shall be, which gives a start, the objective and
perhaps constraints. These are functions of a namespace ``o`` and a vector ``x`` in the style of NumPy: the module of
NumPy, ``jax.numpy``, ``staticgrad`` and ``CASADI`` here compute the same formula. Constants are arrays of NumPy; ``o``
has sums, elementary functions, ``concat`` of vectors, and ``reshape``, by rows, into matrices that are only sliced.

Sources, in which each problem's docstring says the name or number:

- TR 767: Lukšan, Vlček: Sparse and partially separable test problems for unconstrained and equality constrained
  optimization. Institute of Computer Science, Prague, technical report 767 (1999).
- CUTEst: Gould, Orban, Toint: CUTEst: a constrained and unconstrained testing environment with safe threads for
  mathematical optimization. Computational Optimization and Applications 60 (2015), by the names of its files.
- COPS: Dolan, Moré, Munson: Benchmarking optimization software with COPS 3.0. Argonne National Laboratory, technical
  memorandum 273 (2004). Bounds are left out, since they have no derivatives. Differential equations are discretized by
  the trapezoidal rule, which COPS has for some of them and collocation for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Function = Callable[[Any, Any], Any]  # of a namespace and a vector
Made = tuple[Any, Function] | tuple[Any, Function, Function]  # a start, the objective, perhaps constraints


@dataclass(frozen=True)
class Problem:
    """A problem of some size: minimize ``objective(o, x)``, where ``constraints(o, x)``, a vector, are bounded."""

    name: str
    start: np.ndarray
    objective: Function
    constraints: Function | None

    @property
    def size(self) -> int:
        return len(self.start)


PROBLEMS: dict[str, Callable[[int], Problem]] = {}


def problem(make: Callable[[int], Made]) -> Callable[[int], Made]:
    """Enter what makes a problem of about so many variables."""

    def made(size: int) -> Problem:
        start, objective, *rest = make(size)
        return Problem(make.__name__, np.asarray(start, np.float64), objective, rest[0] if rest else None)

    PROBLEMS[make.__name__] = made
    return make


class Casadi:
    """CasADi's expressions in the style of NumPy: vectors are columns, and matrices have rows of elements in a row."""

    def __getattr__(self, name: str) -> Any:
        import casadi as ca

        return getattr(ca, {"abs": "fabs"}.get(name, name))

    def sum(self, x: Any) -> Any:
        import casadi as ca

        return ca.sum1(ca.vec(x))

    def concat(self, xs: Sequence[Any]) -> Any:
        import casadi as ca

        return ca.vertcat(*xs)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        import casadi as ca

        rows, columns = (*shape, 1)[:2]
        return ca.reshape(ca.vec(x.T), columns, rows).T


CASADI = Casadi()


def cycle(size: int, *values: float) -> np.ndarray:
    """The values over and over."""
    return np.resize(np.array(values), size)


def every(x: Any, first: int, step: int, count: int) -> Any:
    """So many elements of a vector."""
    return x[first : first + step * (count - 1) + 1 : step]


def numbers(count: int) -> np.ndarray:
    """1, 2, …"""
    return np.arange(1.0, count + 1)


def with_zeros(o: Any, x: Any) -> Any:
    """A vector between two zeros."""
    return o.concat([np.zeros(1), x, np.zeros(1)])


# -- chains of the technical report -----------------------------------------------------------------------------------


def rosenbrock(o: Any, x: Any) -> Any:
    return o.sum(100 * (x[:-1] ** 2 - x[1:]) ** 2 + (x[:-1] - 1) ** 2)


def wood(o: Any, x: Any, coupled: float = 0.1) -> Any:
    n = x.shape[0] // 2 - 1
    a, b, c, d = (every(x, k, 2, n) for k in range(4))
    wells = 100 * (a**2 - b) ** 2 + (a - 1) ** 2 + 90 * (c**2 - d) ** 2 + (c - 1) ** 2
    return o.sum(wells + 10 * (b + d - 2) ** 2 + coupled * (b - d) ** 2)


def powell(o: Any, x: Any) -> Any:
    n = x.shape[0] // 2 - 1
    a, b, c, d = (every(x, k, 2, n) for k in range(4))
    return o.sum((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4)


def cragg_levy(o: Any, x: Any) -> Any:
    n = x.shape[0] // 2 - 1
    a, b, c, d = (every(x, k, 2, n) for k in range(4))
    return o.sum((o.exp(a) - b) ** 4 + 100 * (b - c) ** 6 + o.tan(c - d) ** 4 + a**8 + (d - 1) ** 2)


def tridiagonal(o: Any, x: Any) -> Any:
    """Broyden's tridiagonal residuals."""
    z = with_zeros(o, x)
    return (3 - 2 * x) * x - z[:-2] - z[2:] + 1


def banded(o: Any, x: Any) -> Any:
    """Broyden's banded residuals: the terms of five elements before, of the element itself and of the next one."""
    n, q = x.shape[0], x * (1 + x)
    z = o.concat([np.zeros(5), q, np.zeros(1)])
    return (2 + 5 * x**2) * x + 1 + sum(z[k : k + n] for k in range(7))


def five_diagonal(x: Any) -> Any:
    a, b, c, d, e = x[:-4], x[1:-3], x[2:-2], x[3:-1], x[4:]
    return 8 * c * (c**2 - b) - 2 * (1 - c) + 4 * (c - d**2) + b**2 - a + d - e**2


def power(o: Any, residuals: Any) -> Any:
    return o.sum(o.abs(residuals) ** (7 / 3))


@problem
def chained_rosenbrock(n: int) -> Made:
    """TR 767, unconstrained 1: minimized alone."""
    return cycle(n, -1.2, 1.0), rosenbrock


@problem
def lukvle1(n: int) -> Made:
    """TR 767, 5.1: Rosenbrock's function under trigonometric and exponential constraints."""

    def limits(o: Any, x: Any) -> Any:
        a, b, c = x[:-2], x[1:-1], x[2:]
        return 3 * b**3 + 2 * c - 5 + o.sin(b - c) * o.sin(b + c) + 4 * b - a * o.exp(a - b) - 3

    return cycle(n, -1.2, 1.0), rosenbrock, limits


@problem
def lukvle2(n: int) -> Made:
    """TR 767, 5.2: Wood's function under Broyden's banded constraints."""

    def limits(o: Any, x: Any) -> Any:
        return banded(o, x)[5:-2]

    return cycle(n // 2 * 2, -2.0, 1.0), wood, limits


@problem
def lukvle3(n: int) -> Made:
    """TR 767, 5.3: Powell's function under two constraints, at both ends of the chain."""

    def limits(o: Any, x: Any) -> Any:
        a, b, y, z = x[0:1], x[1:2], x[-2:-1], x[-1:]
        first = 3 * a**3 + 2 * b - 5 + o.sin(a - b) * o.sin(a + b)
        return o.concat([first, 4 * z - y * o.exp(y - z) - 3])

    return cycle(n // 4 * 4, 3.0, -1.0, 0.0, 1.0), powell, limits


@problem
def lukvle4(n: int) -> Made:
    """TR 767, 5.4: Cragg's and Levy's function under tridiagonal constraints."""

    def limits(o: Any, x: Any) -> Any:
        a, b, c = x[:-2], x[1:-1], x[2:]
        return 8 * b * (b**2 - a) - 2 * (1 - b) + 4 * (b - c**2)

    return cycle(n // 4 * 4, 1.0, 2.0, 2.0, 2.0), cragg_levy, limits


@problem
def broyden_tridiagonal(n: int) -> Made:
    """TR 767, unconstrained 5: with the power 7/3."""
    return np.full(n, -1.0), lambda o, x: power(o, tridiagonal(o, x))


@problem
def lukvle5(n: int) -> Made:
    """TR 767, 5.5: Broyden's tridiagonal function under constraints of five elements each."""
    return np.full(n, -1.0), lambda o, x: power(o, tridiagonal(o, x)), lambda o, x: five_diagonal(x)


@problem
def lukvle6(n: int) -> Made:
    """TR 767, 5.6: Broyden's banded function under exponential constraints."""

    def limits(o: Any, x: Any) -> Any:
        count = (x.shape[0] - 1) // 2
        a, b, c = (every(x, k, 2, count) for k in range(3))
        return 4 * b - (a - c) * o.exp(a - b - c) - 3

    return np.full(n // 2 * 2 - 1, 3.0), lambda o, x: power(o, banded(o, x)), limits


@problem
def broydn7d(n: int) -> Made:
    """CUTEst's BROYDN7D: Broyden's tridiagonal function, of which the halves of the vector are coupled."""

    def objective(o: Any, x: Any) -> Any:
        z, half = with_zeros(o, x), x.shape[0] // 2
        near = (3 - 2 * x) * x - z[:-2] - 2 * z[2:] + 1
        return power(o, near) + power(o, x[:half] + x[half:])

    return np.ones(n // 2 * 2), objective


@problem
def trigonometric_tridiagonal(n: int) -> Made:
    """TR 767, 5.7: the objective, minimized alone."""

    def objective(o: Any, x: Any) -> Any:
        s = with_zeros(o, o.sin(x))
        return o.sum(numbers(x.shape[0]) * (1 - o.cos(x) + s[:-2] - s[2:]))

    return np.ones(n), objective


@problem
def lukvle8(n: int) -> Made:
    """TR 767, 5.8: an augmented Lagrangian in groups of five under a discrete boundary value problem."""

    def objective(o: Any, x: Any) -> Any:
        a, b, c, d, e = (x[k::5] for k in range(5))
        squares = a**2 + b**2 + c**2 + d**2 + e**2
        first, second, third = squares - 10 + 0.002008, b * c - 5 * d * e + 0.0019, a**3 + b**3 + 1 + 0.000261
        return o.sum(o.exp(a * b * c * d * e) + 10 * (first**2 + second**2 + third**2))

    def limits(o: Any, x: Any) -> Any:
        h = 1 / (x.shape[0] + 1)
        place = h * numbers(x.shape[0] - 2)
        return 2 * x[1:-1] + h**2 * (x[1:-1] + place + 1) ** 3 / 2 - x[:-2] - x[2:]

    return cycle(n // 10 * 10, -1.0, 2.0), objective, limits


@problem
def generalized_brown(n: int) -> Made:
    """TR 767, 5.9: the objective, minimized alone."""

    def objective(o: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        return o.sum((a - 3) ** 2 / 1000 - (a - b) + o.exp(20 * (a - b)))

    return cycle(n, 0.0, -0.1), objective


@problem
def lukvle10(n: int) -> Made:
    """TR 767, 5.10: powers of variables by variables under Broyden's tridiagonal constraints."""

    def objective(o: Any, x: Any) -> Any:
        a, b = x[::2] ** 2, x[1::2] ** 2
        return o.sum(a ** (b + 1) + b ** (a + 1))

    def limits(o: Any, x: Any) -> Any:
        return (3 - 2 * x[1:-1]) * x[1:-1] + 1 - x[:-2] - 2 * x[2:]

    return cycle(n // 2 * 2, -1.0, 1.0), objective, limits


@problem
def lukvle11(n: int) -> Made:
    """TR 767, 5.11: problem 46 of Hock and Schittkowski in a chain."""
    m = max(1, (n - 2) // 3)

    def objective(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 3, m) for k in range(5))
        return o.sum((a - b) ** 2 + (c - 1) ** 2 + (d - 1) ** 4 + (e - 1) ** 6)

    def limits(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 3, m) for k in range(5))
        return o.concat([a**2 * d + o.sin(d - e) - 1, b + c**4 * d**2 - 2])

    return cycle(3 * m + 2, 2.0, 1.5, 0.5), objective, limits


@problem
def lukvle12(n: int) -> Made:
    """TR 767, 5.12: problem 47 of Hock and Schittkowski in a chain."""
    m = max(1, (n - 1) // 4)

    def objective(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 4, m) for k in range(5))
        return o.sum((a - b) ** 2 + (b - c) ** 2 + (c - d) ** 4 + (d - e) ** 4)

    def limits(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 4, m) for k in range(5))
        return o.concat([a + b**2 + c**2 - 3, b + d + c**2 - 1, a * e - 1])

    return cycle(4 * m + 1, 2.0, 1.5, -1.0, 0.5), objective, limits


@problem
def lukvle13(n: int) -> Made:
    """TR 767, 5.13: a modification of problem 48 of Hock and Schittkowski in a chain."""
    m = max(1, (n - 2) // 3)

    def objective(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 3, m) for k in range(5))
        return o.sum((a - 1) ** 2 + (b - c) ** 2 + (d - e) ** 4)

    def limits(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 3, m) for k in range(5))
        return o.concat([a + b**2 + c + d + e - 5, c**2 - 2 * (d + e) - 3])

    return cycle(3 * m + 2, 3.0, 5.0, -3.0), objective, limits


@problem
def lukvle16(n: int) -> Made:
    """TR 767, 5.16: a modification of problem 51 of Hock and Schittkowski in a chain."""
    m = max(1, (n - 1) // 4)

    def objective(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 4, m) for k in range(5))
        return o.sum((a - b) ** 4 + (b + c - 2) ** 2 + (d - 1) ** 2 + (e - 1) ** 2)

    def limits(o: Any, x: Any) -> Any:
        a, b, c, d, e = (every(x, k, 4, m) for k in range(5))
        return o.concat([a**2 + 3 * b - 4, c**2 + d - 2 * e, b**2 - e])

    return cycle(4 * m + 1, 2.5, 0.5, 2.0, -1.0), objective, limits


# -- unconstrained problems of CUTEst ---------------------------------------------------------------------------------


@problem
def arwhead(n: int) -> Made:
    """CUTEst's ARWHEAD: all variables are coupled with the last one."""
    return np.ones(n), lambda o, x: o.sum((x[:-1] ** 2 + x[-1] ** 2) ** 2 - 4 * x[:-1] + 3)


@problem
def bdqrtic(n: int) -> Made:
    """CUTEst's BDQRTIC: a band, and the last variable with all."""

    def objective(o: Any, x: Any) -> Any:
        near = sum((k + 1) * x[k : k - 4] ** 2 for k in range(4))
        return o.sum((3 - 4 * x[:-4]) ** 2 + (near + 5 * x[-1] ** 2) ** 2)

    return np.ones(n), objective


@problem
def brybnd(n: int) -> Made:
    """Broyden's banded system as a sum of squares: number 31 of Moré, Garbow and Hillstrom (CUTEst's BRYBND)."""

    def objective(o: Any, x: Any) -> Any:
        count, q = x.shape[0], x * (1 + x)
        z = o.concat([np.zeros(5), q, np.zeros(1)])
        return o.sum((x * (2 + 5 * x**2) + 1 - sum(z[k : k + count] for k in (0, 1, 2, 3, 4, 6))) ** 2)

    return np.full(n, -1.0), objective


@problem
def cosine(n: int) -> Made:
    """CUTEst's COSINE."""
    return np.ones(n), lambda o, x: o.sum(o.cos(x[:-1] ** 2 - 0.5 * x[1:]))


@problem
def curly10(n: int) -> Made:
    """CUTEst's CURLY10: sums of eleven elements."""

    def objective(o: Any, x: Any) -> Any:
        z = o.concat([x, np.zeros(10)])
        q = sum(z[k : k + x.shape[0]] for k in range(11))
        return o.sum(q * (q * (q**2 - 20) - 0.1))

    return 1e-4 * numbers(n) / (n + 1), objective


def dixmaan(alpha: float, beta: float, gamma: float, delta: float, powers: Sequence[int]) -> Function:
    """The family of Dixon and Maany, whose terms are weighted by powers of i / n."""

    def objective(o: Any, x: Any) -> Any:
        n = x.shape[0]
        m, w = n // 3, numbers(n) / n
        a, b, c, d = (w**k for k in powers)
        near = o.sum(beta * b[:-1] * x[:-1] ** 2 * (x[1:] + x[1:] ** 2) ** 2)
        middle = o.sum(gamma * c[: 2 * m] * x[: 2 * m] ** 2 * x[m:] ** 4)
        return 1 + o.sum(alpha * a * x**2) + near + middle + o.sum(delta * d[:m] * x[:m] * x[2 * m :])

    return objective


@problem
def dixmaanb(n: int) -> Made:
    """CUTEst's DIXMAANB."""
    return np.full(n // 3 * 3, 2.0), dixmaan(1.0, 0.0625, 0.0625, 0.0625, (0, 0, 0, 0))


@problem
def dqdrtic(n: int) -> Made:
    """CUTEst's DQDRTIC: a quadratic function, whose Hessian is constant."""
    return np.full(n, 3.0), lambda o, x: o.sum(x[:-2] ** 2 + 100 * x[1:-1] ** 2 + 100 * x[2:] ** 2)


@problem
def edensch(n: int) -> Made:
    """CUTEst's EDENSCH."""

    def objective(o: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        return 16 + o.sum((a - 2) ** 4 + (a * b - 2 * b) ** 2 + (b + 1) ** 2)

    return np.full(n, 8.0), objective


@problem
def eg2(n: int) -> Made:
    """CUTEst's EG2: the first variable with all."""
    return np.zeros(n), lambda o, x: o.sum(o.sin(x[0] + x[:-1] ** 2 - 1)) + 0.5 * o.sin(x[-1] ** 2)


@problem
def engval1(n: int) -> Made:
    """CUTEst's ENGVAL1."""
    return np.full(n, 2.0), lambda o, x: o.sum((x[:-1] ** 2 + x[1:] ** 2) ** 2 - 4 * x[:-1] + 3)


@problem
def fletcbv3(n: int) -> Made:
    """CUTEst's FLETCBV3: a boundary value problem of Fletcher, scaled by 1e-8."""

    def objective(o: Any, x: Any) -> Any:
        h2, p = (x.shape[0] + 1) ** -2.0, 1e-8
        bends = x[0] ** 2 + o.sum((x[:-1] - x[1:]) ** 2) + x[-1] ** 2
        return 0.5 * p * bends - p * o.sum((1 + 2 / h2) * x + o.cos(x) / h2)

    return numbers(n) / (n + 1), objective


@problem
def freuroth(n: int) -> Made:
    """CUTEst's FREUROTH."""

    def objective(o: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        return o.sum((a - 13 + ((5 - b) * b - 2) * b) ** 2 + (a - 29 + ((1 + b) * b - 14) * b) ** 2)

    return np.concatenate([[0.5, -2.0], np.zeros(n - 2)]), objective


@problem
def genhumps(n: int) -> Made:
    """CUTEst's GENHUMPS, from a start nearer to the minimum."""

    def objective(o: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        return o.sum((o.sin(20 * a) * o.sin(20 * b)) ** 2 + 0.05 * (a**2 + b**2))

    return np.full(n, -5.062), objective


@problem
def indef(n: int) -> Made:
    """CUTEst's INDEF: first and last variable with all."""

    def objective(o: Any, x: Any) -> Any:
        return o.sum(x) + 0.5 * o.sum(o.cos(2 * x[1:-1] - x[0] - x[-1]))

    return numbers(n) / (n + 1), objective


@problem
def liarwhd(n: int) -> Made:
    """CUTEst's LIARWHD: the first variable with all."""
    return np.full(n, 4.0), lambda o, x: o.sum(4 * (x**2 - x[0]) ** 2 + (x - 1) ** 2)


@problem
def modbeale(n: int) -> Made:
    """CUTEst's MODBEALE: Beale's function of pairs, which are coupled."""

    def objective(o: Any, x: Any) -> Any:
        a, b = x[::2], x[1::2]
        pairs = (1.5 - a * (1 - b)) ** 2 + (2.25 - a * (1 - b**2)) ** 2 + (2.625 - a * (1 - b**3)) ** 2
        return o.sum(pairs) + o.sum(((6 * x[1:-1:2] - x[2::2]) / 50) ** 2)

    return np.ones(n // 2 * 2), objective


@problem
def morebv(n: int) -> Made:
    """CUTEst's MOREBV: a discrete boundary value problem as a sum of squares."""

    def objective(o: Any, x: Any) -> Any:
        h = 1 / (x.shape[0] + 1)
        z = with_zeros(o, x)
        return o.sum((2 * x - z[:-2] - z[2:] + h**2 / 2 * (x + h * numbers(x.shape[0]) + 1) ** 3) ** 2)

    place = numbers(n) / (n + 1)
    return place * (place - 1), objective


@problem
def ncb20b(n: int) -> Made:
    """CUTEst's NCB20B: sums over windows of twenty elements."""

    def objective(o: Any, x: Any) -> Any:
        count, y = x.shape[0] - 19, x / (1 + x**2)
        inside = sum(y[k : k + count] for k in range(20))
        linear = sum(x[k : k + count] for k in range(20))
        weights = 0.1 / numbers(count)
        return 2 * x.shape[0] + o.sum(weights * inside**2 - 0.2 * linear) + 100 * o.sum(x**4)

    return np.zeros(n), objective


@problem
def noncvxun(n: int) -> Made:
    """CUTEst's NONCVXUN: elements that lie apart by a rule of their numbers."""
    places = np.arange(1, n + 1)

    def objective(o: Any, x: Any) -> Any:
        v = x + x[(2 * places - 1) % n] + x[(3 * places - 1) % n]
        return o.sum(v**2 + 4 * o.cos(v))

    return numbers(n), objective


@problem
def nondquar(n: int) -> Made:
    """CUTEst's NONDQUAR: the last variable with all, and pairs."""

    def objective(o: Any, x: Any) -> Any:
        return (x[0] - x[1]) ** 2 + (x[-2] - x[-1]) ** 2 + o.sum((x[:-2] + x[1:-1] + x[-1]) ** 4)

    return cycle(n, 1.0, -1.0), objective


@problem
def quartc(n: int) -> Made:
    """CUTEst's QUARTC: a diagonal."""
    return np.full(n, 2.0), lambda o, x: o.sum((x - numbers(n)) ** 4)


@problem
def schmvett(n: int) -> Made:
    """CUTEst's SCHMVETT."""

    def objective(o: Any, x: Any) -> Any:
        a, b, c = x[:-2], x[1:-1], x[2:]
        return -o.sum(1 / (1 + (a - b) ** 2) + o.sin((np.pi * b + c) / 2) + o.exp(-(((a + c) / b - 2) ** 2)))

    return np.full(n, 0.5), objective


@problem
def sinquad(n: int) -> Made:
    """CUTEst's SINQUAD: first and last variable with all."""

    def objective(o: Any, x: Any) -> Any:
        inner = o.sin(x[1:-1] - x[-1]) - x[0] ** 2 + x[1:-1] ** 2
        return (x[0] - 1) ** 4 + o.sum(inner**2) + (x[-1] ** 2 - x[0] ** 2) ** 2

    return np.full(n, 0.1), objective


def scattered(n: int) -> list[np.ndarray]:
    places = np.arange(1, n + 1)
    return [(k * places - 1) % n for k in (2, 3, 5, 7, 11)]


@problem
def sparsine(n: int) -> Made:
    """CUTEst's SPARSINE: six elements each, of which five lie apart by a rule of their numbers."""

    def objective(o: Any, x: Any) -> Any:
        s = o.sin(x)
        return 0.5 * o.sum(numbers(n) * (s + sum(s[places] for places in scattered(n))) ** 2)

    return np.full(n, 0.5), objective


@problem
def sparsqur(n: int) -> Made:
    """CUTEst's SPARSQUR: as SPARSINE, of squares."""

    def objective(o: Any, x: Any) -> Any:
        s = 0.5 * x**2
        return 0.5 * o.sum(numbers(n) * (s + sum(s[places] for places in scattered(n))) ** 2)

    return np.full(n, 0.5), objective


@problem
def srosenbr(n: int) -> Made:
    """CUTEst's SROSENBR: Rosenbrock's function of pairs."""
    return cycle(n // 2 * 2, -1.2, 1.0), lambda o, x: o.sum(100 * (x[1::2] - x[::2] ** 2) ** 2 + (x[::2] - 1) ** 2)


@problem
def tointgss(n: int) -> Made:
    """CUTEst's TOINTGSS."""

    def objective(o: Any, x: Any) -> Any:
        a, b, c = x[:-2], x[1:-1], x[2:]
        return o.sum((10 / (x.shape[0] - 2) + c**2) * (2 - o.exp(-((a - b) ** 2) / (0.1 + c**2))))

    return np.full(n, 3.0), objective


@problem
def woods(n: int) -> Made:
    """CUTEst's WOODS: Wood's function of fours."""

    def objective(o: Any, x: Any) -> Any:
        a, b, c, d = (x[k::4] for k in range(4))
        wells = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
        return o.sum(wells + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2) + 19.8 * (b - 1) * (d - 1))

    return cycle(n // 4 * 4, -3.0, -1.0), objective


# -- grids ------------------------------------------------------------------------------------------------------------


def side(n: int) -> int:
    return max(3, round(n**0.5))


@problem
def minimal_surface(n: int) -> Made:
    """COPS 17: the area over triangles of a grid, whose border starts on the parabola of the obstacle problem."""
    m = side(n)
    h = 1 / (m - 1)

    def objective(o: Any, x: Any) -> Any:
        v = o.reshape(x, (m, m))
        down, right = (v[1:, :] - v[:-1, :]) / h, (v[:, 1:] - v[:, :-1]) / h
        lower = o.sqrt(1 + down[:, :-1] ** 2 + right[:-1, :] ** 2)
        upper = o.sqrt(1 + down[:, 1:] ** 2 + right[1:, :] ** 2)
        return 0.5 * h**2 * (o.sum(lower) + o.sum(upper))

    t = np.linspace(0, 1, m)
    return (np.ones((m, 1)) * (1 - (2 * t - 1) ** 2)).ravel(), objective


@problem
def torsion(n: int) -> Made:
    """COPS 15: elastic-plastic torsion, a quadratic function, whose Hessian is constant."""
    m = side(n)
    h = 1 / (m - 1)

    def objective(o: Any, x: Any) -> Any:
        v = o.reshape(x, (m, m))
        bends = o.sum((v[1:, :-1] - v[:-1, :-1]) ** 2 + (v[:-1, 1:] - v[:-1, :-1]) ** 2)
        bends = bends + o.sum((v[1:, 1:] - v[:-1, 1:]) ** 2 + (v[1:, 1:] - v[1:, :-1]) ** 2)
        load = o.sum(v[:-1, :-1] + v[1:, :-1] + v[:-1, 1:]) + o.sum(v[1:, 1:] + v[1:, :-1] + v[:-1, 1:])
        return 0.25 * bends - 5 * h**2 / 6 * load

    rows = np.minimum(np.arange(m), np.arange(m)[::-1]) * h
    return np.minimum(rows[:, None], rows).ravel(), objective


@problem
def journal_bearing(n: int) -> Made:
    """COPS 16: the pressure in a journal bearing, a quadratic function with a weight that varies."""
    m = side(n)
    h, k, eccentricity = 2 * np.pi / (m - 1), 20 / (m - 1), 0.1
    angle = h * np.arange(m)[:, None] * np.ones((1, m))
    weight, wedge = (1 + eccentricity * np.cos(angle)) ** 3, eccentricity * np.sin(angle)

    def objective(o: Any, x: Any) -> Any:
        v = o.reshape(x, (m, m))
        down, right = ((v[1:, :] - v[:-1, :]) / h) ** 2, ((v[:, 1:] - v[:, :-1]) / k) ** 2
        lower = (2 * weight[:-1, :-1] + weight[1:, :-1]) / 3 * (down[:, :-1] + right[:-1, :])
        upper = (2 * weight[1:, 1:] + weight[:-1, 1:]) / 3 * (down[:, 1:] + right[1:, :])
        return h * k * (0.25 * (o.sum(lower) + o.sum(upper)) - o.sum(wedge * v))

    return np.maximum(np.sin(angle), 0).ravel(), objective


@problem
def bratu(n: int) -> Made:
    """The energy of Bratu's equation, steady combustion (MINPACK-2's SSC), on triangles of a grid."""
    m, heat = side(n), 5.0
    h = 1 / (m - 1)

    def objective(o: Any, x: Any) -> Any:
        v = o.reshape(x, (m, m))
        bends = o.sum((v[1:, :] - v[:-1, :]) ** 2) + o.sum((v[:, 1:] - v[:, :-1]) ** 2)
        return 0.5 * bends - heat * h**2 * o.sum(o.exp(v))

    t = np.linspace(0, 1, m)
    return np.minimum(np.minimum(t, 1 - t)[:, None], np.minimum(t, 1 - t)).ravel(), objective


# -- control and shapes -----------------------------------------------------------------------------------------------


def parts(x: Any, count: int) -> list[Any]:
    """So many vectors of equal length, one after the other."""
    n = x.shape[0] // count
    return [x[k * n : (k + 1) * n] for k in range(count)]


def moves(x: Any, slope: Any, step: Any) -> Any:
    """What the trapezoidal rule leaves of a differential equation."""
    return x[1:] - x[:-1] - 0.5 * step * (slope[1:] + slope[:-1])


@problem
def hanging_chain(n: int) -> Made:
    """COPS 3: the constraint of the length couples all."""
    m = n // 2
    h = 1 / (m - 1)

    def objective(o: Any, z: Any) -> Any:
        x, u = parts(z, 2)
        f = x * o.sqrt(1 + u**2)
        return 0.5 * h * o.sum(f[1:] + f[:-1])

    def limits(o: Any, z: Any) -> Any:
        x, u = parts(z, 2)
        f = o.sqrt(1 + u**2)
        return o.concat([moves(x, u, h), o.reshape(0.5 * h * o.sum(f[1:] + f[:-1]) - 4, (1,)), x[:1] - 1, x[-1:] - 3])

    t = np.linspace(0, 1, m)
    return np.concatenate([8 * t * (0.5 * t - 0.25) + 1, 8 * (t - 0.25)]), objective, limits


@problem
def cam_shape(n: int) -> Made:
    """COPS 4."""
    turn = 2 * np.pi / (5 * (n + 1))

    def limits(o: Any, r: Any) -> Any:
        z = o.concat([np.ones(2), r, np.full(1, 2.0)])
        a, b, c = z[:-2], z[1:-1], z[2:]
        return o.concat(
            [2 * np.cos(turn) * a * c - b * (a + c), z[2:] - z[1:-1], 2 * np.cos(turn) * r[-1:] ** 2 - 4 * r[-1:]]
        )

    return np.full(n, 1.5), lambda o, r: -np.pi / n * o.sum(r), limits


@problem
def channel_flow(n: int) -> Made:
    """COPS 7: injected flow, whose derivatives are states; there is nothing to minimize."""
    m, reynolds = n // 4, 10.0
    h = 1 / (m - 1)

    def limits(o: Any, x: Any) -> Any:
        u, v, w, z = parts(x, 4)
        ends = [u[:1], u[-1:] - 1, v[:1], v[-1:]]
        return o.concat(
            [moves(u, v, h), moves(v, w, h), moves(w, z, h), moves(z, reynolds * (v * w - u * z), h), *ends]
        )

    t = np.linspace(0, 1, m)
    start = np.concatenate([t**2 * (3 - 2 * t), 6 * t * (1 - t), 6 - 12 * t, np.full(m, -12.0)])
    return start, lambda o, x: 0 * x[0], limits


@problem
def robot_arm(n: int) -> Made:
    """COPS 8: in the least time, a variable that is coupled with all."""
    m, reach = (n - 1) // 9, 5.0

    def limits(o: Any, x: Any) -> Any:
        step = x[-1] / (m - 1)
        rho, the, phi, rho1, the1, phi1, pull, turn, lift = parts(x[:-1], 9)
        inertia = ((reach - rho) ** 3 + rho**3) / 3
        slopes = [rho1, the1, phi1, pull / reach, turn / (inertia * o.sin(phi) ** 2), lift / inertia]
        return o.concat([moves(state, slope, step) for state, slope in zip((rho, the, phi, rho1, the1, phi1), slopes)])

    t = np.linspace(0, 1, m)
    still = np.zeros(m)
    states = [np.full(m, 4.5), 2 * np.pi / 3 * t**2, np.full(m, np.pi / 4), still, 4 * np.pi / 3 * t, still]
    return np.concatenate([*states, still, still, still, [1.0]]), lambda o, x: x[-1], limits


@problem
def particle_steering(n: int) -> Made:
    """COPS 9: in the least time, a variable that is coupled with all."""
    m, push = (n - 1) // 5, 100.0

    def limits(o: Any, x: Any) -> Any:
        step = x[-1] / (m - 1)
        a, b, c, d, u = parts(x[:-1], 5)
        slopes = [c, d, push * o.cos(u), push * o.sin(u)]
        return o.concat([moves(state, slope, step) for state, slope in zip((a, b, c, d), slopes)])

    t = np.linspace(0, 1, m)
    start = np.concatenate([np.zeros(m), 5 * t, 45 * t, 5 * t, np.zeros(m), [1.0]])
    return start, lambda o, x: x[-1], limits


@problem
def goddard_rocket(n: int) -> Made:
    """COPS 10: the greatest height; the final time is coupled with all."""
    m = (n - 1) // 4

    def limits(o: Any, x: Any) -> Any:
        step = x[-1] / (m - 1)
        height, speed, mass, thrust = parts(x[:-1], 4)
        drag = 310 * speed**2 * o.exp(-500 * (height - 1))
        slopes = [speed, (thrust - drag) / mass - 1 / height**2, -2 * thrust]
        return o.concat([moves(state, slope, step) for state, slope in zip((height, speed, mass), slopes)])

    t = np.linspace(0, 1, m)
    start = np.concatenate([np.ones(m), t * (1 - t), 1 - 0.4 * t, np.full(m, 1.75), [1.0]])
    return start, lambda o, x: -x[m - 1], limits


@problem
def hang_glider(n: int) -> Made:
    """COPS 11: the greatest range in a thermal updraft; the final time is coupled with all."""
    m = (n - 1) // 5

    def limits(o: Any, z: Any) -> Any:
        step = z[-1] / (m - 1)
        x, y, vx, vy, lift = parts(z[:-1], 5)
        r = (x / 100 - 2.5) ** 2
        w = vy - 2.5 * (1 - r) * o.exp(-r)
        speed = o.sqrt(vx**2 + w**2)
        force = 0.5 * 1.13 * 14 * speed
        up, back = lift * force, (0.034 + 0.069662 * lift**2) * force
        slopes = [vx, vy, (-up * w - back * vx) / 100, (up * vx - back * w) / 100 - 9.81]
        return o.concat([moves(state, slope, step) for state, slope in zip((x, y, vx, vy), slopes)])

    t = np.linspace(0, 1, m)
    states = [13.23 * 100 * t, 1000 - 100 * t, np.full(m, 13.23), np.full(m, -1.288), np.ones(m)]
    return np.concatenate([*states, [100.0]]), lambda o, z: -z[m - 1], limits


@problem
def catalyst_mixing(n: int) -> Made:
    """COPS 14."""
    m = n // 3
    h = 1 / (m - 1)

    def limits(o: Any, z: Any) -> Any:
        a, b, u = parts(z, 3)
        flow = u * (10 * b - a)
        return o.concat([moves(a, flow, h), moves(b, -flow - (1 - u) * b, h), a[:1] - 1, b[:1]])

    start = np.concatenate([np.ones(m), np.zeros(m), np.zeros(m)])
    return start, lambda o, z: z[m - 1] + z[2 * m - 1] - 1, limits


@problem
def nonlinear_beam(n: int) -> Made:
    """CUTEst's CLNLBEAM: a clamped beam under a force, as a problem of control."""
    m = n // 3
    h = 1 / (m - 1)

    def objective(o: Any, z: Any) -> Any:
        t, _, u = parts(z, 3)
        f = u**2 + 350 * o.cos(t)
        return 0.5 * h * o.sum(f[1:] + f[:-1])

    def limits(o: Any, z: Any) -> Any:
        t, x, u = parts(z, 3)
        return o.concat([moves(x, o.sin(t), h), moves(t, u, h)])

    bend = 0.05 * np.cos(np.linspace(0, 1, m))
    return np.concatenate([bend, bend, np.zeros(m)]), objective, limits


@problem
def gas_oil(n: int) -> Made:
    """COPS 12: rates of reactions from measurements, of which there are more here; rates are coupled with all."""
    m = (n - 3) // 2
    h = 1 / (m - 1)
    t = np.linspace(0, 1, m)
    measured = 1 / (1 + 14 * t), 0.35 * np.exp(-3.5 * t) * (1 - np.exp(-20 * t))

    def objective(o: Any, x: Any) -> Any:
        a, b = parts(x[3:], 2)
        return o.sum((a - measured[0]) ** 2 + (b - measured[1]) ** 2)

    def limits(o: Any, x: Any) -> Any:
        a, b = parts(x[3:], 2)
        cracked = x[0] * a**2
        ends = [a[:1] - 1, b[:1]]
        return o.concat([moves(a, -cracked - x[2] * a**2, h), moves(b, cracked - x[1] * b, h), *ends])

    return np.concatenate([[12.0, 8.0, 2.0], *measured]), objective, limits


@problem
def polygon(n: int) -> Made:
    """COPS 1: the largest polygon of diameter 1; each pair of corners has a constraint, so there are few corners."""
    m = max(4, min(n // 2, 40))
    first, second = np.triu_indices(m, 1)

    def objective(o: Any, x: Any) -> Any:
        r, angle = parts(x, 2)
        return -0.5 * o.sum(r[1:] * r[:-1] * o.sin(angle[1:] - angle[:-1]))

    def limits(o: Any, x: Any) -> Any:
        r, angle = parts(x, 2)
        a, b = r[first], r[second]
        return o.concat([a**2 + b**2 - 2 * a * b * o.cos(angle[first] - angle[second]) - 1, angle[1:] - angle[:-1]])

    k = numbers(m)
    return np.concatenate([4 * k * (m + 1 - k) / (m + 1) ** 2, np.pi * k / m]), objective, limits
