"""The Hurwitz zeta function: the sum of (q + k)^-s over k = 0, 1, ….

Terms are summed until they vanish or until q + k is so large that Euler and Maclaurin's formula gives the rest (NIST
Digital Library of Mathematical Functions, 25.11.28): its terms fall as (s + 2j)² / (2π (q + k))².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from staticgrad.base.errors import GraphError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Case, Namespace, Range, public
from staticgrad.ops.declare import FLOAT, accepted, declare
from staticgrad.ops.elementwise.entry import BINARY_SHAPES, elementwise, scaled
from staticgrad.ops.elementwise.expressions import Expression, loop, special
from staticgrad.ops.elementwise.gamma import BERNOULLI

E = Expression[Any]
_TURNS = 100_000
_FROM, _PER_ORDER = 10.0, 0.7  # the least q + k from which the formula serves: 10 + 0.7 s


def _zeta(attrs: object, enough: float, s: E, q: E) -> E:
    whole = q.equals(q.floor())
    # Powers of negative numbers are real for whole orders, and infinite where a term is one of 0.
    defined = (s > 1.0) & ((q > 0.0) | s.equals(s.floor()))
    edge = ((s.equals(1.0) & ~q.isnan()) | ((q <= 0.0) & whole & (s > 1.0))).where(q.const(math.inf), math.nan)
    regular = defined & ~((q <= 0.0) & whole) & s.isfinite() & q.isfinite()
    ends = (s > 1.0) & ((q.isinf() & (q > 0.0)) | (s.isinf() & (q >= 1.0)))
    at_end = (s.isinf() & q.equals(1.0)).where(q.const(1.0), 0.0)
    edge = ends.where(at_end, (s.isinf() & (s > 1.0) & (q < 1.0) & (q > 0.0)).where(q.const(math.inf), edge))
    s, q = regular.where(s, 2.0), regular.where(q, 1.0)
    far = _FROM + _PER_ORDER * s

    def turn(carried: Sequence[E]) -> tuple[E, Sequence[E]]:
        place, total, _ = carried
        term = place.power(-s)
        total = total + term
        following = place + 1.0
        going = (following < far) & ((place < 1.0) | (abs(term) > enough * 0.01 * abs(total)))
        return going, (following, total, term)

    start = q < far
    place, total, _ = loop(_TURNS, (q, q.const(0.0), q.const(0.0)), lambda c: _unless(start, turn, c))
    r = 1.0 / place
    square, factor, series = r * r, s * r, q.const(0.0)
    for j, value in enumerate(BERNOULLI, start=1):
        series = series + factor * (value / math.factorial(2 * j))
        factor = factor * (s + float(2 * j - 1)) * (s + float(2 * j)) * square
    power = place.power(-s)
    rest = power * (place / (s - 1.0) + 0.5 + series)
    ended = place < far
    return regular.where(total + ended.where(q.const(0.0), rest), edge)


def _unless(start: E, turn: Any, carried: Sequence[E]) -> tuple[E, Sequence[E]]:
    """A turn, or where none is needed the values as they are."""
    going, values = turn(carried)
    return start & going, [start.where(new, old) for new, old in zip(values, carried, strict=True)]


def _refuse(o: Namespace, t: Tensor, y: Tensor, *operands: Tensor) -> Tensor:
    raise GraphError(
        "zeta has no derivative by its order\n  expected a derivative by q\n  actual   one by s: sg.stop_gradient(s)"
        " leaves it out"
    )


_formula = special(_zeta)
_ZETA = elementwise(
    "zeta", "The Hurwitz zeta function.", _formula.scalar, _formula.reference, FLOAT,
    (_refuse, scaled(lambda o, y, s, q: o.negative(o.multiply(s, o.zeta(o.add(s, 1.0), q))))),
    tuple(Case(shapes, ranges=(Range(1.2, 9.0), Range(0.3, 15.0)), differentiable=(1,)) for shapes in BINARY_SHAPES),
    tolerance=20.0,
)  # fmt: skip


@public
def zeta(s: TensorLike, q: TensorLike = 1.0) -> Tensor:
    """The Hurwitz zeta function, the sum of (q + k)**-s over k from 0 on; for q = 1 Riemann's.

    Elementwise, with NumPy's broadcasting and promotion. Infinite for s = 1 and for q = 0, -1, …; NaN for s below 1,
    and for other negative q unless s is whole. Derived by ``q`` to any order, but not by ``s``.

    Example:
        >>> sg.Session().run(sg.zeta([2.0, 4.0])).round(4)
        array([1.6449, 1.0823], dtype=float32)
        >>> sg.Session().run(sg.zeta(2.0, [1.0, 2.0])).round(4)
        array([1.6449, 0.6449], dtype=float32)
    """
    return declare(_ZETA, accepted("zeta", FLOAT, s, q))
