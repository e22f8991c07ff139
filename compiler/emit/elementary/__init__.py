"""Elementary functions as vector code: values of lanes go in, LLVM IR is written, values of lanes come out.

Every function takes and gives ``Num``: float or double, for one lane or many, with the same bits for any number of
lanes. Nothing calls a C library; the special values are those of C's Annex F. Two cases leave the straight line, by a
branch that is taken if any lane needs it: huge angles, and remainders whose quotient is huge. Writers of loops must
therefore ask ``Function.current_block`` after the body where they need its last block.

Errors are below 2 units of the last place, denormal results included, also on targets without a fused multiply-add:
``tests/kernels/test_elementary.py`` checks them against mpmath. Methods: argument reduction in two or three parts
(Cody & Waite, *Software Manual for the Elementary Functions*, 1980), then a polynomial.

Coefficients: weighted minimax polynomials in the relative error of the function (Remez exchange in 38 digits with
mpmath); the first ones were rounded to the format one after another and the rest fitted again. Each table says
interval, what is approximated, and the largest error after rounding. Rational functions interpolate at Chebyshev nodes.

Two rules keep LLVM's undefined cases away: rounding adds a magic number (a float-to-integer conversion of NaN would be
poison), and clamping compares so that NaN stays.

A third one keeps masks fast: results that vanish are made 0 before the operation that would underflow, for which x86
takes more than a hundred cycles (``tests/kernels/test_underflow.py``). Results that are denormal do cost that.

    number, rounding, exponent, lookup, rare
                                        what the functions are written with
    exponential                         exp, exp2, expm1, tanh, sigmoid, silu, sinh, cosh
    logarithm, power                    log, log2, log10, log1p, pow
    error                               erf, erfc, erfinv, the normal distribution
    circular, inverse_circular          sin, cos, tan; asin, acos, atan
    remainder                           floating remainder and floored quotient
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from staticgrad.compiler.emit.elementary import (
        circular,
        error,
        exponential,
        inverse_circular,
        logarithm,
        power,
        remainder,
        rounding,
        short,
    )

__all__ = [
    "circular", "error", "exponential", "inverse_circular", "logarithm", "power", "remainder", "rounding", "short",
]  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    """A module, imported when a program has the first of its functions."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
