"""Tables in registers: AVX-512 picks each lane's element out of two registers with one instruction.

Input: a row of constants and the numbers of those that are wanted; output: these constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.compiler.emit.elementary.exponent import per_register
from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.llvm import Value, float_literal, vector

REGISTER_BITS = 512


def looked_up(index: Num, like: Num, row: Sequence[float]) -> Num:
    """The element of ``row``, in each lane, whose number are the lowest bits of ``index``, in the format of ``like``: a
    row of 32 floats or 16 doubles."""
    half = len(row) // 2
    low, high = (_constants(part, like.element) for part in (row[:half], row[half:]))
    kind = "ps" if like.element == "float" else "pd"

    def write(operands: Sequence[Num], bits: int) -> Num:
        name = f"llvm.x86.avx512.vpermi2var.{kind}.{bits}"
        return Num(like.f, like.f.intrinsic(name, low.type, low, operands[1].value, high))

    return per_register(like, [index], write, REGISTER_BITS)


def _constants(values: Sequence[float], element: str) -> Value:
    items = ", ".join(f"{element} {float_literal(value, element)}" for value in values)
    return Value(f"<{items}>", vector(element, len(values)))
