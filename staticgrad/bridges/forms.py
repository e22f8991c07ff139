"""Compositions that several dialects have as ops of their own: division as C has it.

Our own division and remainder are rounded down, as NumPy's and Python's. The operands have one dtype.
"""

from __future__ import annotations

from staticgrad.base.types import is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def truncated_quotient(x: Tensor, y: Tensor) -> Tensor:
    """The quotient of integers, rounded towards zero; of a division by 0 that of ``floor_divide``."""
    quotient = o.floor_divide(x, y)
    return quotient if x.dtype.kind != "i" else quotient + cast(_is_apart(o.remainder(x, y), x, y), x.dtype)


def truncated_remainder(x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a division that is rounded towards zero, as C's ``%`` and ``fmod``: it has the sign of ``x`` and
    is exact. Of a division by 0 it is NaN for floats, and that of ``remainder`` for integers."""
    if is_floating(x.dtype):
        size = o.remainder(o.where(o.signbit(x), -x, x), o.where(y < 0, -y, y))
        return o.where(o.signbit(x), -size, size)
    rest = o.remainder(x, y)
    return rest if x.dtype.kind != "i" else o.where(_is_apart(rest, x, y), rest - y, rest)


def _is_apart(rest: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A mask of the elements for which rounding down and towards zero differ."""
    return o.logical_and(o.not_equal(rest, 0), o.not_equal(x < 0, y < 0))
