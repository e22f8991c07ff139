"""The error function, its complement and its inverse, and the bell curve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array, Namespace
from staticgrad.ops.declare import FLOAT
from staticgrad.ops.elementwise.entry import INSIDE_UNIT, scaled, unary


def _bell(o: Namespace, x: Tensor) -> Tensor:
    """2/sqrt(pi) exp(-x²), the derivative of erf."""
    return o.square(o.gaussian(x)) * (2.0 / math.sqrt(math.pi))


def split_square(x: Any) -> tuple[Any, Any]:
    """x² and its rounding error (Dekker, Numer. Math. 18, 1971), of x below 2^970."""
    square = x * x
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    low = x - high
    return square, ((high * high - square) + 2.0 * high * low) + low * low


def _gaussian(x: Array) -> Array:
    square, rest = split_square(np.minimum(np.abs(x), 40.0))
    return np.asarray(np.exp(square * -0.5) * (1.0 - rest * 0.5))


def normal_distribution(x: Array) -> Array:
    """erfc(-x/sqrt(2)) / 2: of the rounded quotient, times what the rounding takes from the exponent."""
    t = np.clip(x, -40.0, 40.0) * -math.sqrt(0.5)
    (rounded, rounded_rest), (square, rest) = split_square(t), split_square(np.clip(x, -40.0, 40.0))
    correction = np.where(t > 0.5, (rounded - square * 0.5) + (rounded_rest - rest * 0.5), 0.0)
    return np.asarray(_math_erfc(t) * 0.5 * (1.0 + correction))


math_erf = np.vectorize(math.erf, otypes=[np.float64])
_math_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _exact_erfinv(x: float) -> float:
    """Wichura's quantile of the normal distribution (AS 241), then a step of Newton's method against ``math.erf``."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if x in (-1, 1) else math.nan
    if x == 0:
        return x
    import statistics  # slow to import, and only the oracle needs it

    tail = (1 - math.fabs(x)) / 2
    y = -statistics.NormalDist().inv_cdf(tail) / math.sqrt(2)
    missing = math.erf(y) - math.fabs(x) if math.fabs(x) < 0.5 else 2 * tail - math.erfc(y)
    y -= missing * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


gaussian = unary(
    "gaussian", "exp(-x² / 2), with all digits also where x² is large.", "gaussian", _gaussian, FLOAT,
    scaled(lambda o, y, x: o.negative(x * y)),
)  # fmt: skip

erf = unary(
    "erf", "The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
    "erf", math_erf, FLOAT, scaled(lambda o, y, x: _bell(o, x)),
    example=("sg.erf([0.0, 1.0, sg.inf])", "array([0. , 0.8427..., 1. ], dtype=float32)"),
)  # fmt: skip

erfc = unary(
    "erfc", "1 - erf(x), accurate where it is tiny.", "erfc", _math_erfc, FLOAT,
    scaled(lambda o, y, x: o.negative(_bell(o, x))),
    example=("sg.erfc([0.0, 5.0])", "array([1.000...e+00, 1.537...e-12], dtype=float32)"),
)  # fmt: skip

erfinv = unary(
    "erfinv", "The inverse of erf; infinite at -1 and 1.", "erfinv",
    np.vectorize(_exact_erfinv, otypes=[np.float64]), FLOAT,
    scaled(lambda o, y, x: o.exp(y * y) * (math.sqrt(math.pi) / 2)), INSIDE_UNIT, tolerance=2.0,
    example=("sg.erfinv([0.0, 0.5, 1.0])", "array([0. , 0.4769..., inf], dtype=float32)"),
)  # fmt: skip
