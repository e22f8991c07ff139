"""The parts that searches for a minimum share: vectors of several tensors, the L-BFGS direction, the line search.

Input: a function of a vector that declares its value and gradient, tensors of a point. Output: tensors of a direction,
of a step along it. ``sg.minimize`` and ``sg.optim.LBFGS`` make their loops of these. A vector is a tuple of tensors of
any shapes and one floating dtype, whose elements count as those of one long vector: nothing is copied to be in a row.

    L-BFGS       Liu and Nocedal, On the limited memory BFGS method for large scale optimization, 1989: the product of
                 the inverse Hessian with the gradient, in two loops over the last steps and changes of the gradient
    line search  the strong Wolfe conditions by bracketing and zooming (Nocedal and Wright, Numerical Optimization, 2nd
                 ed., Algorithms 3.5 and 3.6) with cubic interpolation (3.59)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O

Vector = tuple[Tensor, ...]
ValueAndGrad = Callable[[Vector], tuple[Tensor, Vector]]
State = dict[str, Any]

ARMIJO, CURVATURE = 1e-4, 0.9  # the constants of the Wolfe conditions, for quasi-Newton steps
SEARCHED = 25  # evaluations of one line search
FURTHER = 4.0  # times as long is the next step while the value falls
WRITTEN_OUT = 16  # pairs
INSIDE = 0.1  # of the bracket: nearer to its ends no point is tried, but where the value at the high end is not finite
BRACKETING, ZOOMING, FOUND = 0, 1, 2  # stages of a line search


# -- vectors ----------------------------------------------------------------------------------------------------------


def total(parts: Sequence[Tensor]) -> Tensor:
    return functools.reduce(lambda a, b: a + b, parts)


def dot(a: Vector, b: Vector) -> Tensor:
    return total([O.sum(x * y) for x, y in zip(a, b, strict=True)])


def length(a: Vector) -> Tensor:
    """The sum of all magnitudes."""
    return total([O.sum(O.abs(x)) for x in a])


def largest(a: Vector) -> Tensor:
    """The largest magnitude of an element, 0 if there is none."""
    found = [O.max(O.abs(x)) if x.size else O.sum(O.abs(x)) for x in a]
    return functools.reduce(O.maximum, found)


def plus(a: Vector, scale: Tensor | float, b: Vector) -> Vector:
    """a + scale·b"""
    return tuple(x + scale * y for x, y in zip(a, b, strict=True))


def times(scale: Tensor | float, a: Vector) -> Vector:
    return tuple(scale * x for x in a)


def minus(a: Vector, b: Vector) -> Vector:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def choose(condition: Tensor, a: Sequence[Tensor], b: Sequence[Tensor]) -> Vector:
    return tuple(O.where(condition, x, y) for x, y in zip(a, b, strict=True))


def is_finite(f: Tensor, g: Vector) -> Tensor:
    return functools.reduce(O.logical_and, [O.all(O.isfinite(x)) for x in g], O.isfinite(f))


# -- L-BFGS -----------------------------------------------------------------------------------------------------------


@frozen(eq=False)
class Pairs:
    """The last steps and the changes of the gradient along them, the newest first.

    Attributes:
        steps, changes: of each part of a vector a tensor with a row for each pair; rows without a pair are zero.
        inverses: 1 / step·change of each pair, 0 where there is none.
        scale: step·change / change·change of the newest pair, by which the inverse Hessian begins; 0 without one.
    """

    steps: Vector
    changes: Vector
    inverses: Tensor
    scale: Tensor

    @staticmethod
    def none(x: Vector, history: int) -> Pairs:
        rows = tuple(O.zeros((history, *part.shape), part.dtype) for part in x)
        return Pairs(rows, rows, O.zeros((history,), x[0].dtype), O.zeros((), x[0].dtype))

    @staticmethod
    def kept(steps: Vector, changes: Vector) -> Pairs:
        """From the rows alone: those without a pair are zero."""
        history = steps[0].shape[0]

        def by_row(a: Vector, b: Vector) -> Tensor:
            return total([O.sum(O.reshape(x * y, (history, -1)), axis=1) for x, y in zip(a, b, strict=True)])

        curvature, square = by_row(steps, changes), by_row(changes, changes)
        filled = curvature > 0
        inverses = O.where(filled, 1.0 / O.where(filled, curvature, 1.0), 0.0)
        return Pairs(steps, changes, inverses, _quotient(filled[0], curvature[0], square[0]))

    def direction(self, g: Vector) -> Vector:
        """Minus the product of the inverse Hessian with the gradient; minus the gradient without pairs."""
        rows = (self.steps, self.changes, self.inverses)

        def newest_first(q: Vector, row: tuple[Vector, Vector, Tensor]) -> tuple[Vector, Tensor]:
            step, change, inverse = row
            part = inverse * dot(step, q)
            return plus(q, -part, change), part

        def oldest_first(r: Vector, row: tuple[Vector, Vector, Tensor, Tensor]) -> tuple[Vector, None]:
            step, change, inverse, part = row
            return plus(r, part - inverse * dot(change, r), step), None

        q, parts = _fold(newest_first, g, rows)
        r, _ = _fold(oldest_first, times(O.where(self.begun, self.scale, 1.0), q), (*rows, parts), reverse=True)
        return tuple(-part for part in r)

    @property
    def begun(self) -> Tensor:
        """True where there is a pair."""
        return self.scale > 0

    def entered(self, step: Vector, change: Vector, least: Tensor | float) -> Pairs:
        """With one more pair, if its curvature step·change is above ``least``; the oldest goes."""
        curvature = dot(step, change)
        curved = curvature > least

        def put(rows: Tensor, row: Tensor) -> Tensor:
            return O.where(curved, O.concat([row[None], rows[:-1]]), rows)

        inverse = 1.0 / O.where(curved, curvature, 1.0)
        return Pairs(
            tuple(map(put, self.steps, step)),
            tuple(map(put, self.changes, change)),
            put(self.inverses, inverse),
            O.where(curved, _quotient(curved, curvature, dot(change, change)), self.scale),
        )

    def forgotten(self, condition: Tensor) -> Pairs:
        """Without any pair where the condition holds."""
        zero = O.zeros_like(self.scale)
        return Pairs(self.steps, self.changes, O.where(condition, 0.0, self.inverses),
                     O.where(condition, zero, self.scale))  # fmt: skip

    def state(self) -> State:
        """As a state of a loop, of which ``Pairs(**state)`` makes it again."""
        return {"steps": self.steps, "changes": self.changes, "inverses": self.inverses, "scale": self.scale}


def _fold(turn: Callable[..., Any], carry: Vector, rows: Any, reverse: bool = False) -> tuple[Vector, Any]:
    """``O.scan``, written out if there are few rows: that is up to a fifth faster for short vectors."""
    count = nests.flatten(rows)[0].shape[0]
    if count > WRITTEN_OUT:
        found: tuple[Vector, Any] = O.scan(turn, carry, rows, reverse=reverse)
        return found
    results = {}
    for i in reversed(range(count)) if reverse else range(count):
        carry, results[i] = turn(carry, nests.map(lambda x, i=i: x[i], rows))
    return carry, None if reverse else O.stack([results[i] for i in range(count)])


def _quotient(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where the condition does not hold."""
    return O.where(condition, a / O.where(condition, b, 1.0), 0.0)


def first_step(g: Vector) -> Tensor:
    """The length of a first step along minus the gradient: nothing is known of the scale but that of the gradient."""
    return O.minimum(1.0, 1.0 / length(g))


def least_curvature(step: Vector, change: Vector) -> Tensor:
    """Below this step·change is nothing but rounding errors."""
    return float(np.finfo(step[0].dtype).eps) * dot(change, change)


# -- the line search --------------------------------------------------------------------------------------------------


def line_search(
    fg: ValueAndGrad, x: Vector, d: Vector, f0: Tensor, g0: Vector, slope0: Tensor, first: Tensor,
    most: int | Tensor = SEARCHED, longest: Tensor | None = None,
) -> tuple[Tensor, Tensor, Vector, Tensor]:  # fmt: skip
    """A step along ``d`` that fulfils the strong Wolfe conditions, the value and the gradient there, and how many were
    evaluated. If none is found in time it is the lowest point that was; a step of 0 says that there was none. No step
    is above ``longest``, which is taken where the value still falls there.

    ``low`` is the best point so far that falls enough, ``high`` the other end of the bracket; each is a step, a value
    and a slope. The gradient of ``low`` goes along with it.
    """
    zero = 0 * f0

    def turn(s: State) -> State:
        a, low, high = s["a"], s["low"], s["high"]
        f, g = fg(plus(x, a, d))
        here = (a, f, dot(g, d))
        falls = O.logical_and(f <= f0 + ARMIJO * a * slope0, f < low[1])  # false for NaN
        is_found = O.logical_and(falls, O.abs(here[2]) <= -CURVATURE * slope0)
        is_bracketing = s["stage"] == BRACKETING
        turns = O.where(is_bracketing, here[2] >= 0, here[2] * (high[0] - low[0]) >= 0)
        next_high = choose(falls, choose(turns, low, high), here)
        next_low = choose(falls, here, low)
        goes_further = O.logical_and(is_bracketing, O.logical_and(falls, O.logical_not(turns)))
        further = FURTHER * a
        if longest is not None:
            is_found = O.logical_or(is_found, O.logical_and(goes_further, a >= longest))
            further = O.minimum(further, longest)
        stage = O.where(is_found, FOUND, O.where(goes_further, BRACKETING, ZOOMING))
        return {
            "stage": stage, "count": s["count"] + 1, "low": next_low, "high": next_high,
            "a": O.where(goes_further, further, _between(next_low, next_high)),
            "g": choose(falls, g, s["g"]),
        }  # fmt: skip

    begun = {
        "stage": O.where(slope0 < 0, BRACKETING, FOUND), "count": 0, "low": (zero, f0, slope0),
        "high": (zero, f0, slope0), "a": first if longest is None else O.minimum(first, longest), "g": g0,
    }  # fmt: skip
    last: State = O.while_loop(lambda s: O.logical_and(s["stage"] != FOUND, s["count"] < most), turn, begun)
    a, f, _ = last["low"]
    return a, f, last["g"], last["count"]


def _between(low: Sequence[Tensor], high: Sequence[Tensor]) -> Tensor:
    """The minimum of the cubic through the values and slopes of both ends; their middle where there is none inside, a
    point near the low end where the value at the other is not finite."""
    (a, fa, sa), (b, fb, sb) = low, high
    width = b - a
    d1 = sa + sb - 3.0 * (fb - fa) / width
    d2 = O.sign(width) * O.sqrt(d1 * d1 - sa * sb)
    found = b - width * (sb + d2 - d1) / (sb - sa + 2.0 * d2)
    part = (found - a) / width
    inside = O.logical_and(part >= INSIDE, part <= 1 - INSIDE)  # false for NaN
    return O.where(inside, found, a + O.where(O.isfinite(fb), 0.5 * width, INSIDE * width))
