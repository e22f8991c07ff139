"""The interface with which an op says how one element is computed, without saying on what machine.

An entry of the op table hands a function of a ``ScalarBuilder`` and of one value for each operand, and gets the value
of one element: ``lambda b, x, y: b.add(x, y)``. Each backend has its own builder; values are opaque but for ``dtype``.

Values are of dtype bool, int32, int64, uint8, float32 or float64, and inside an expression also uint32 and uint64.
Operands of one call have one dtype and the result has it too, except where a method says otherwise. Every method is
total: for each input there is a result and nothing traps. Where NumPy gives a result, it is this one (integers wrap
around); where NumPy only warns or depends on the machine, the result is x86's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np


class ScalarValue(Protocol):
    """The interface that the values of every backend share."""

    @property
    def dtype(self) -> np.dtype: ...


V = TypeVar("V", bound=ScalarValue)


class ScalarBuilder(Protocol[V]):
    """The operations on one element. See the module's docstring for what holds for all of them."""

    # -- constants and conversions

    def const(self, value: float | int | bool, dtype: np.dtype) -> V: ...

    def cast(self, x: V, dtype: np.dtype) -> V:
        """NumPy's ``astype``. To bool: ``x != 0``, NaN is True. Float to integer truncates; NaN, infinities and what
        is out of range give the smallest integer (uint8 and uint32: the low bits of what a wider integer gives)."""
        ...

    # -- arithmetic

    def add(self, x: V, y: V) -> V:
        """x + y; of bools: or."""
        ...

    def sub(self, x: V, y: V) -> V:
        """x - y; of bools: exclusive or."""
        ...

    def mul(self, x: V, y: V) -> V:
        """x · y; of bools: and."""
        ...

    def neg(self, x: V) -> V: ...

    def abs(self, x: V) -> V: ...

    def sign(self, x: V) -> V:
        """-1, 0 or 1; NaN for NaN."""
        ...

    def copysign(self, x: V, y: V) -> V:
        """The magnitude of the float ``x`` with the sign bit of ``y``, also of zeros and NaNs."""
        ...

    def div(self, x: V, y: V) -> V:
        """True division of floats."""
        ...

    def floor_divide(self, x: V, y: V) -> V:
        """``np.floor_divide``; of integers, by zero is 0 and the smallest by -1 is the smallest."""
        ...

    def remainder(self, x: V, y: V) -> V:
        """``np.remainder``, with the sign of ``y``; of integers, by zero is 0."""
        ...

    def minimum(self, x: V, y: V) -> V:
        """The smaller; NaN if either is NaN."""
        ...

    def maximum(self, x: V, y: V) -> V:
        """The larger; NaN if either is NaN."""
        ...

    def fma(self, x: V, y: V, z: V) -> V:
        """x·y + z of floats: rounded once where the machine has the instruction, else twice."""
        ...

    # -- comparison and choice: comparisons give bool, false for NaN except ``ne``

    def eq(self, x: V, y: V) -> V: ...

    def ne(self, x: V, y: V) -> V: ...

    def lt(self, x: V, y: V) -> V: ...

    def le(self, x: V, y: V) -> V: ...

    def gt(self, x: V, y: V) -> V: ...

    def ge(self, x: V, y: V) -> V: ...

    def select(self, condition: V, x: V, y: V) -> V:
        """``x`` where the bool ``condition`` holds, else ``y``; both are computed."""
        ...

    def either(self, condition: V, then: Callable[[], V], otherwise: Callable[[], V]) -> V:
        """The value of ``then`` where the bool ``condition`` holds, else that of ``otherwise``: each of them runs for
        all elements at hand if one of them needs it, and not at all if none does."""
        ...

    def loop(self, turns: int, start: Sequence[V], turn: Callable[[Sequence[V]], tuple[V, Sequence[V]]]) -> list[V]:
        """Values that are carried from turn to turn, at most ``turns`` of them.

        ``turn`` gives a bool and the next values. An element takes over the values and stays in the loop as long as the
        bool holds; the turn in which it first does not hold is its last, whose values it also takes over.
        """
        ...

    def outlined(self, write: Callable[..., V], how: tuple[Any, ...], *values: V) -> V:
        """``write(builder, *how, *values)`` as a function of its own, for expressions that are long or loop; ``write``
        and ``how`` can be hashed and tell it apart."""
        ...

    def logical_and(self, x: V, y: V) -> V: ...

    def logical_or(self, x: V, y: V) -> V: ...

    def logical_xor(self, x: V, y: V) -> V: ...

    def logical_not(self, x: V) -> V: ...

    # -- bits of integers and bools

    def bit_and(self, x: V, y: V) -> V: ...

    def bit_or(self, x: V, y: V) -> V: ...

    def bit_xor(self, x: V, y: V) -> V: ...

    def bit_not(self, x: V) -> V: ...

    def shift_left(self, x: V, count: V) -> V:
        """0 where ``count`` is negative or not below the width."""
        ...

    def shift_right(self, x: V, count: V) -> V:
        """Arithmetic for signed dtypes; a ``count`` that is negative or not below the width shifts everything out."""
        ...

    def bit_cast(self, x: V, dtype: np.dtype) -> V:
        """The same bits as an element of another dtype of as many bits, short floats among them; no bools."""
        ...

    def bit_leading_zeros(self, x: V) -> V:
        """The number of zeros above the highest bit that is set, in the dtype of ``x``; the width for 0."""
        ...

    def bit_count(self, x: V) -> V:
        """The number of bits that are set, in the dtype of ``x``."""
        ...

    # -- classification and rounding of floats

    def isnan(self, x: V) -> V: ...

    def isfinite(self, x: V) -> V: ...

    def isinf(self, x: V) -> V: ...

    def floor(self, x: V) -> V: ...

    def ceil(self, x: V) -> V: ...

    def trunc(self, x: V) -> V: ...

    def round(self, x: V) -> V:
        """To the nearest integer, halves to the even one."""
        ...

    # -- elementary functions of floats

    def exp(self, x: V) -> V: ...

    def exp2(self, x: V) -> V: ...

    def expm1(self, x: V) -> V: ...

    def log(self, x: V) -> V: ...

    def log2(self, x: V) -> V: ...

    def log10(self, x: V) -> V: ...

    def log1p(self, x: V) -> V: ...

    def sqrt(self, x: V) -> V: ...

    def rsqrt(self, x: V) -> V:
        """1 / sqrt(x)."""
        ...

    def tanh(self, x: V) -> V: ...

    def sigmoid(self, x: V) -> V:
        """1 / (1 + exp(-x)), accurate also where the result is tiny."""
        ...

    def silu(self, x: V) -> V:
        """x·sigmoid(x), rounded once where it is denormal."""
        ...

    def erf(self, x: V) -> V: ...

    def erfc(self, x: V) -> V: ...

    def normal(self, x: V) -> V:
        """The distribution function of the standard normal distribution, erfc(-x / sqrt(2)) / 2."""
        ...

    def gaussian(self, x: V) -> V:
        """exp(-x² / 2), accurate also where x² is large."""
        ...

    def erfinv(self, x: V) -> V: ...

    def sin(self, x: V) -> V: ...

    def cos(self, x: V) -> V: ...

    def tan(self, x: V) -> V: ...

    def asin(self, x: V) -> V: ...

    def acos(self, x: V) -> V: ...

    def atan(self, x: V) -> V: ...

    def atan2(self, y: V, x: V) -> V:
        """The angle in [-pi, pi] of the point (x, y)."""
        ...

    def sinh(self, x: V) -> V: ...

    def cosh(self, x: V) -> V: ...

    def pow(self, x: V, y: V) -> V:
        """x to the power y. Floats: every special case of IEEE 754 ``pow``. Integers: exact, wrapping around; a
        negative exponent gives the truncated power: 1 for x = 1, ±1 for x = -1, else 0."""
        ...

    # -- random bits

    def threefry(self, key0: V, key1: V, counter_hi: V, counter_lo: V) -> tuple[V, V]:
        """Threefry-2x32 with 20 rounds (Salmon et al., SC'11) of uint32 values: two words of random bits."""
        ...

    def bits_to_unit(self, word: V) -> V:
        """uint32 to float32, uniform in [0, 1): the upper 24 bits, divided by 2**24."""
        ...

    def bits_to_unit64(self, word0: V, word1: V) -> V:
        """Two uint32 to float64, uniform in [0, 1): 53 bits (27 of ``word0``, 26 of ``word1``), divided by 2**53."""
        ...
