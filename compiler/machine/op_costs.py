"""About how many vector instructions an op takes: a number for each method of ``ScalarBuilder``.

Input: an op, its attributes, the dtypes of its operands; output: a number, the same for every target, since the
constants that it is compared with were fitted to it. Divisions and roots count six, as they hold their port. Functions
of floats were counted in the text that is written for vectors of 8 on AVX2; a test counts again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import is_short_float
from staticgrad.graph.optable import OPS

TURNS = 16  # that loops are taken to make until all lanes have left
FREE = 2  # instructions of an op that run while its operands are loaded and its results stored
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isfinite", "isinf"})
# Methods that take the same number of instructions of every dtype; what is not listed takes one.
PLAIN = {
    "fma": 2, "copysign": 2, "floor": 2, "ceil": 2, "trunc": 2, "round": 2, "isfinite": 3, "isinf": 3, "shift_left": 4,
    "shift_right": 4, "bit_leading_zeros": 14, "bit_count": 10, "div": 6,
    "sqrt": 7, "rsqrt": 13, "bits_to_unit": 3, "bits_to_unit64": 7, "threefry": 80,
}  # fmt: skip
# Of floats of 32 and of 64 bits.
OF_FLOATS = {
    "minimum": (4, 4), "maximum": (4, 4), "floor_divide": (160, 160), "remainder": (141, 140),
    "exp": (28, 35), "exp2": (28, 35), "expm1": (27, 34), "log": (38, 46), "log2": (37, 45), "log10": (40, 48),
    "log1p": (50, 58), "pow": (121, 186), "tanh": (42, 49), "sigmoid": (30, 37), "silu": (34, 41),
    "erf": (38, 71), "erfc": (75, 133),
    "normal": (78, 138), "gaussian": (40, 47),
    "erfinv": (82, 173), "sin": (180, 196), "cos": (175, 191), "tan": (202, 229), "asin": (37, 60), "acos": (48, 71),
    "atan": (39, 45), "atan2": (66, 72), "sinh": (46, 56), "cosh": (36, 43),
}  # fmt: skip
# Short floats: from float32, and to float32.
SHORT_FLOATS = {"float16": (24, 13), "bfloat16": (10, 3)}
FROM_DOUBLE = {"float16": 34}  # which is not rounded twice


@frozen
class CountedValue:
    """A value that is only counted: its dtype is known, and nothing else."""

    dtype: np.dtype


class InstructionCounter:
    """A ``ScalarBuilder`` that adds up in ``total`` what its methods take."""

    def __init__(self) -> None:
        self.total = 0

    def const(self, value: float, dtype: np.dtype) -> CountedValue:
        return CountedValue(dtype)

    def cast(self, x: CountedValue, dtype: np.dtype) -> CountedValue:
        self.total += cast_cost(x.dtype, dtype)
        return CountedValue(dtype)

    def bit_cast(self, x: CountedValue, dtype: np.dtype) -> CountedValue:
        return CountedValue(dtype)

    def select(self, condition: CountedValue, x: CountedValue, y: CountedValue) -> CountedValue:
        self.total += 1
        return x

    def either(
        self, condition: CountedValue, then: Callable[[], CountedValue], otherwise: Callable[[], CountedValue]
    ) -> CountedValue:
        return self.select(condition, then(), otherwise())

    def loop(
        self,
        turns: int,
        start: Sequence[CountedValue],
        turn: Callable[..., tuple[CountedValue, Sequence[CountedValue]]],
    ) -> list[CountedValue]:
        before = self.total
        turn(start)
        self.total += (min(turns, TURNS) - 1) * (self.total - before)
        return list(start)

    def outlined(self, write: Callable[..., CountedValue], how: tuple[Any, ...], *values: CountedValue) -> CountedValue:
        return write(self, *how, *values)

    def threefry(self, *words: CountedValue) -> tuple[CountedValue, CountedValue]:
        self.total += PLAIN["threefry"]
        return words[0], words[0]

    def bits_to_unit(self, word: CountedValue) -> CountedValue:
        self.total += PLAIN["bits_to_unit"]
        return CountedValue(np.dtype(np.float32))

    def bits_to_unit64(self, *words: CountedValue) -> CountedValue:
        self.total += PLAIN["bits_to_unit64"]
        return CountedValue(np.dtype(np.float64))

    def __getattr__(self, method: str) -> Any:
        def counted(x: CountedValue, *others: CountedValue) -> CountedValue:
            self.total += method_cost(method, x.dtype)
            return CountedValue(np.dtype(np.bool_)) if method in COMPARISONS else x

        return counted


@functools.lru_cache(maxsize=4096)
def op_cost(op: str, key: str, attrs: object, dtypes: tuple[np.dtype, ...]) -> int:
    """About how many vector instructions an elementwise op takes in addition to its loads and stores, one at least;
    ``key`` tells attributes apart that compare equal."""
    rule: Any = OPS[op].scalar
    counter = InstructionCounter()
    rule(counter, attrs, *map(CountedValue, dtypes))
    return max(1, counter.total - FREE)


def method_cost(method: str, dtype: np.dtype) -> int:
    """About how many vector instructions a method of ``ScalarBuilder`` takes for operands of a dtype."""
    if dtype.kind == "f":
        if method in OF_FLOATS:
            return OF_FLOATS[method][dtype.itemsize == 8]
        return {"abs": 2, "sign": 5}.get(method) or PLAIN.get(method, 1)
    return _of_integers(method, dtype) if dtype.kind in "iu" else PLAIN.get(method, 1)


def _of_integers(method: str, dtype: np.dtype) -> int:
    signed, narrow = dtype.kind == "i", dtype.itemsize < 4
    match method:
        case "abs":
            return 2 if signed else 0
        case "sign":
            return 5 if signed else 3
        case "minimum" | "maximum":
            return 2
        case "pow":
            return 31 if signed else 21
        case "floor_divide" | "remainder" if signed:
            return 24 if dtype.itemsize == 8 else 27 + narrow
        case "floor_divide" | "remainder":
            return 16 if narrow else 12
    return PLAIN.get(method, 1)


def cast_cost(given: np.dtype, to: np.dtype) -> int:
    """About how many vector instructions a conversion takes."""
    if given == to:
        return 0
    single = np.dtype(np.float32)
    if is_short_float(given):
        return SHORT_FLOATS[given.name][1] + cast_cost(single, to)
    if is_short_float(to):
        if given.itemsize == 8 and given.kind == "f" and to.name in FROM_DOUBLE:
            return FROM_DOUBLE[to.name]
        return cast_cost(given, single) + SHORT_FLOATS[to.name][0]
    if given.kind == "f" and to.kind in "iu":
        guarded = 6 if to.kind == "i" else 7
        return 16 if to.name == "uint64" else guarded + (to.kind == "i" and to.itemsize < 4)
    whole = given.kind in "iu" and to.kind in "iu"
    return 0 if whole and given.itemsize == to.itemsize else 1
