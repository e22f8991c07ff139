"""Special functions as formulas: expressions with Python's operators over any scalar builder, and over arrays.

A special function is written once, over ``Expression``. ``special`` makes of it how one element is computed, as a
function of its own in the program; ``oracle`` runs the same formula on NumPy arrays, for interpreters and constants.
``tests/ops/test_special.py`` compares both with mpmath. All formulas compute in float64, and float32 is rounded once:
its loops end at fewer digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import NO_ATTRIBUTES, Array
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.elementwise.error import normal_distribution

DOUBLE = np.dtype(np.float64)
# A loop ends where a term is so small compared with its sum: some digits beyond those of the result.
ENOUGH = {4: 2.0**-32, 8: 2.0**-56}


@frozen
class Expression(Generic[V]):
    """A value of a builder with Python's operators; numbers on either side become constants."""

    b: ScalarBuilder[V]
    value: V

    def const(self, number: float | bool) -> Expression[V]:
        dtype = np.dtype(np.bool_) if isinstance(number, bool) else DOUBLE
        return Expression(self.b, self.b.const(number, dtype))

    def _lift(self, other: Expression[V] | float) -> V:
        return other.value if isinstance(other, Expression) else self.const(other).value

    def _of(self, method: Callable[..., V], *others: Expression[V] | float) -> Expression[V]:
        return Expression(self.b, method(self.value, *map(self._lift, others)))

    def __add__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.add, other)

    def __sub__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.sub, other)

    def __mul__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.mul, other)

    def __truediv__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.div, other)

    def __radd__(self, other: float) -> Expression[V]:
        return self + other

    def __rsub__(self, other: float) -> Expression[V]:
        return self.const(other) - self

    def __rmul__(self, other: float) -> Expression[V]:
        return self * other

    def __rtruediv__(self, other: float) -> Expression[V]:
        return self.const(other) / self

    def __neg__(self) -> Expression[V]:
        return self._of(self.b.neg)

    def __abs__(self) -> Expression[V]:
        return self._of(self.b.abs)

    def __lt__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.lt, other)

    def __le__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.le, other)

    def __gt__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.gt, other)

    def __ge__(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.ge, other)

    def equals(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.eq, other)

    def __and__(self, other: Expression[V]) -> Expression[V]:
        return self._of(self.b.logical_and, other)

    def __or__(self, other: Expression[V]) -> Expression[V]:
        return self._of(self.b.logical_or, other)

    def __invert__(self) -> Expression[V]:
        return self._of(self.b.logical_not)

    def fma(self, factor: Expression[V] | float, addend: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.fma, factor, addend)

    def minimum(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.minimum, other)

    def maximum(self, other: Expression[V] | float) -> Expression[V]:
        return self._of(self.b.maximum, other)

    def __getattr__(self, method: str) -> Callable[[], Expression[V]]:
        """The builder's functions of one operand: ``x.exp()``."""
        if method.startswith("__"):
            raise AttributeError(method)
        function: Callable[[V], V] = getattr(self.b, method)
        return lambda: self._of(function)

    def power(self, exponent: Expression[V]) -> Expression[V]:
        return self._of(self.b.pow, exponent)

    def polynomial(self, coefficients: Sequence[float]) -> Expression[V]:
        """Horner's scheme; coefficients from the constant one up."""
        total = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total.fma(self, coefficient)
        return total

    # of conditions

    def where(self, yes: Expression[V] | float, no: Expression[V] | float) -> Expression[V]:
        """``yes`` where this condition holds, else ``no``; both are computed."""
        return Expression(self.b, self.b.select(self.value, self._lift(yes), self._lift(no)))

    def either(self, yes: Callable[[], Expression[V]], no: Callable[[], Expression[V]]) -> Expression[V]:
        """The value of ``yes`` where this condition holds, else that of ``no``; each runs only if needed."""
        return Expression(self.b, self.b.either(self.value, lambda: yes().value, lambda: no().value))


Turn = Callable[[Sequence[Expression[Any]]], tuple[Expression[Any], Sequence[Expression[Any]]]]


def loop(turns: int, start: Sequence[Expression[V]], turn: Turn) -> list[Expression[V]]:
    """Carry values as long as the condition that ``turn`` gives with the next ones holds, ``turns`` times at most."""
    b = start[0].b

    def written(values: Sequence[V]) -> tuple[V, Sequence[V]]:
        goes_on, following = turn([Expression(b, v) for v in values])
        return goes_on.value, [x.value for x in following]

    return [Expression(b, v) for v in b.loop(turns, [x.value for x in start], written)]


Terms = Callable[[Expression[Any]], Sequence[Expression[Any]]]


def continued_fraction(turns: int, enough: float, first: Expression[V], terms: Terms) -> Expression[V]:
    """first + p1/(q1 + p2/(q2 + …)) with (p, q) = ``terms(n)``, by the recurrence of numerators and denominators, which
    are divided by the last denominator in each turn (DLMF 3.10.1)."""

    def turn(carried: Sequence[Expression[Any]]) -> tuple[Expression[Any], Sequence[Expression[Any]]]:
        n, value, value_0, below_0 = carried
        p, q = terms(n)
        scale = 1.0 / (q + p * below_0)
        found = (q * value + p * value_0) * scale
        return abs(found - value) > enough * abs(found), (n + 1.0, found, value * scale, scale)

    return loop(turns, (first.const(1.0), first, first.const(1.0), first.const(0.0)), turn)[1]


def derived_fraction(
    turns: int, enough: float, first: Expression[V], first_by: Expression[V], terms: Terms
) -> tuple[Expression[V], Expression[V]]:
    """A continued fraction and its derivative, by the derivatives of the recurrence; (p, q, p', q') = ``terms(n)``."""

    def turn(carried: Sequence[Expression[Any]]) -> tuple[Expression[Any], Sequence[Expression[Any]]]:
        n, value, value_0, below_0, above_by, above_by_0, below_by, below_by_0, slope = carried
        p, q, p_by, q_by = terms(n)
        scale = 1.0 / (q + p * below_0)
        found = (q * value + p * value_0) * scale
        above = (q * above_by + q_by * value + p * above_by_0 + p_by * value_0) * scale
        below = (q * below_by + q_by + p * below_by_0 + p_by * below_0) * scale
        following = above - found * below
        going = (abs(following - slope) > enough * abs(following)) | (abs(found - value) > enough * abs(found))
        carry = (n + 1.0, found, value * scale, scale, above, above_by * scale, below, below_by * scale, following)
        return going, carry

    one, zero = first.const(1.0), first.const(0.0)
    found = loop(turns, (one, first, one, zero, first_by, zero, zero, zero, first_by), turn)
    return found[1], found[8]


Formula = Callable[..., Expression[Any]]  # formula(attrs, enough, *operands)


@frozen
class Special:
    """An op's formula in two forms: ``scalar``, one element in a function of its own, and ``reference``."""

    scalar: Callable[..., Any]
    reference: Callable[..., Array]

    def arrays(self, *xs: Array) -> Array:
        """The reference of an op without attributes."""
        return self.reference(NO_ATTRIBUTES, *xs)


def special(formula: Formula) -> Special:
    def write(b: ScalarBuilder[V], attrs: object, *xs: V) -> V:
        dtype = xs[0].dtype
        wide = [Expression(b, b.cast(x, DOUBLE)) for x in xs]
        value: V = b.cast(formula(attrs, ENOUGH[dtype.itemsize], *wide).value, dtype)
        return value

    def scalar(b: ScalarBuilder[V], attrs: object, *xs: V) -> V:
        return b.outlined(write, (attrs,), *xs)

    def reference(attrs: object, *xs: Array) -> Array:
        return np.asarray(write(ArrayBuilder(), attrs, *np.broadcast_arrays(*xs)))

    write.__name__ = formula.__name__
    return Special(scalar, reference)


_ONE_BY_ONE = {name: np.vectorize(getattr(math, name), otypes=[np.float64]) for name in ("erf", "erfc")}


_METHODS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "minimum": np.minimum, "maximum": np.maximum, "pow": np.power, "copysign": np.copysign,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "select": np.where, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_not": np.logical_not, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "floor": np.floor, "round": np.rint, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "normal": normal_distribution, **_ONE_BY_ONE,
}  # fmt: skip


class ArrayBuilder:
    """A ``ScalarBuilder`` whose values are NumPy arrays, with what formulas ask for."""

    def __getattr__(self, method: str) -> Any:
        return _METHODS[method]

    def const(self, value: float | bool, dtype: np.dtype) -> Array:
        return np.array(value, dtype)

    def cast(self, x: Array, dtype: np.dtype) -> Array:
        return x.astype(dtype)

    def fma(self, x: Array, y: Array, z: Array) -> Array:
        return np.asarray(x * y + z)

    def either(self, condition: Array, then: Callable[[], Array], otherwise: Callable[[], Array]) -> Array:
        if condition.all():
            return then()
        return np.where(condition, then(), otherwise()) if condition.any() else otherwise()

    def loop(
        self, turns: int, start: Sequence[Array], turn: Callable[..., tuple[Array, Sequence[Array]]]
    ) -> list[Array]:
        values, inside = list(start), np.array(True)
        for _ in range(turns):
            stays, following = turn(values)
            values = [np.where(inside, new, old) for new, old in zip(following, values, strict=True)]
            inside = inside & stays
            if not inside.any():
                break
        return values

    def outlined(self, write: Callable[..., Array], how: tuple[Any, ...], *values: Array) -> Array:
        return write(self, *how, *values)
