"""erf, erfc, the inverse of erf, the normal distribution function and the bell curve that is its derivative."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from staticgrad.compiler.emit.elementary.exponent import mantissa_and_exponent, power_of_two, scaled
from staticgrad.compiler.emit.elementary.exponential import EXP, EXP_SHORT, exp_of_sum, expm1_reduced, reduce_exp
from staticgrad.compiler.emit.elementary.logarithm import log_short, log_tail
from staticgrad.compiler.emit.elementary.lookup import looked_up
from staticgrad.compiler.emit.elementary.number import (
    DOUBLE,
    FLOAT,
    Num,
    fast_two_sum,
    from_double,
    polynomial,
    quotient,
    to_double,
    two_product,
    two_sum,
)
from staticgrad.compiler.emit.elementary.piecewise import (
    ERF,
    INTERVALS,
    interpolated,
    interval,
    is_piecewise,
    piecewise,
)

# erf(t)/t - 1 in t^2: t <= 7/8, 2^-25.9; t <= 1, 2^-56.0
ERF_SMALL = {
    "float": (1.2837917e-01, -3.761255e-01, 1.1282455e-01, -2.6791463e-02, 5.0321813e-03, -6.203254e-04),
    "double": (
        0.12837916709551256, -0.37612638903183415, 0.11283791670942503, -0.0268661706431568, 0.005223977608272965,
        -0.00085483260897013, 0.00012055299495228193, -1.492483990642138e-05, 1.644881384161403e-06,
        -1.6219690347485127e-07, 1.376998795548152e-08, -7.890491147809288e-10,
    ),
}  # fmt: skip

# erfc(t)^(-1/8) - 1 on [7/8, 4], error in erf: 2^-25.6
ERF_LARGE_FLOAT = (
    -1.7280552e-03, 1.5079193e-01, 6.612733e-02, 5.5654824e-02, -2.1519825e-02, 1.3441615e-02, -3.1243628e-03,
    4.6863384e-04,
)  # fmt: skip

# exp(t^2)·erfc(t)/q in q = 1/(1 + 3t/8) on t in [0.98, 6], error in erf: 2^-56.7
ERF_LARGE_DOUBLE = (
    0.21157192112223688, 0.211544242812776, 0.19708179492181988, 0.1636410707012556, 0.14417268466089203,
    0.0039058283815865506, 0.24917440693371276, -0.4493377174248981, 0.6664109198029189, -0.7359235810188884,
    0.4817595778879353, -0.16892302810073104, 0.024921989235249572,
)  # fmt: skip

# log(t·erfc(t)) + t^2 - ERFC_LEVEL in 1/(t + 5/4) - ERFC_CENTER on t in [0.78, 27.4]: 2^-56.6
ERFC_LEVEL = -0.640625
ERFC_CENTER = 0.2637574257000146
ERFC_LOG = (
    0.002017549702057424, -0.652530548184801, -2.20321317988473, -3.0258512020600574, -2.0733146464477987,
    -3.4450444324191207, -10.046485573199071, -10.970988731627095, -9.860851233174014, -41.9141644625897,
    -61.630794762895796, -30.387419074280338, -201.66820409793158, -359.81103710252535, -43.42973763071992,
    -1138.080502176111, -2115.904692220265, 950.6424299544154, -7796.471216167567, -15620.652577803976,
    13081.312755249568, -20583.586031492632, -64569.2052734139, -113666.91337337725, -387835.8210065086,
)  # fmt: skip

# exp(x^2/2)·erfc(x·√½)·(x + 3/2), and exp(x^2)·erfc(x)·(x + 7/8), in q = (x - 7/2)/(x + 7/2): 2^-26.7, 2^-28.9
ERFCX_CENTER = 3.5
MILLS, MILLS_OFFSET = (
    1.0634515, -0.38256484, 0.12742965, 0.014456158, -0.041456882, 0.019193232, -0.0008040148, -0.002422652,
    0.00032544782, 0.00028384605,
), 1.5  # fmt: skip
ERFCX_FLOAT, ERFCX_OFFSET = (
    0.67940974, -0.17847899, 0.082146265, -0.011742143, -0.022136996, 0.026948314, -0.018028777, 0.007989798,
    -0.0020411606, -0.00012609207, 0.00024181875,
), 0.875  # fmt: skip

# exp(t^2)·erfc(t)/q in q = 1/(1 + t/4), for float results on t in [0, 10.2]: 2^-30.1
ERFCX = (
    0.14094543188619202, 0.14326951316094427, 0.11504674210306041, 0.25122521648011215, -0.3452431903769571,
    1.272767912272038, -1.998270883562544, 2.599062963693529, -2.0025593553707424, 1.0172857135349076,
    -0.1935300629482681,
)  # fmt: skip


def erf(x: Num) -> Num:
    """t + t·P(t²) for small t = |x|, else 1 - erfc(t), erfc(t) as the eighth power of 1/(1 + P(t)) (float) or exp(-t²)
    times a polynomial (double). Or piece by piece."""
    if is_piecewise(x):
        return piecewise(abs(x), ERF).copysign(x)
    form = x.format
    t = abs(x).at_most(4.0 if form is FLOAT else 6.0)
    square = t * t
    small = polynomial(square, ERF_SMALL[x.element]).fma(t, t)
    if form is FLOAT:
        growth = polynomial(t, ERF_LARGE_FLOAT)
        for _ in range(3):
            growth = growth.fma(growth, growth + growth)  # 1 + growth is squared
        complement = 1.0 / (growth + 1.0)
        cut = 0.875
    else:
        q = 1.0 / t.fma(0.375, 1.0)
        n, r = reduce_exp(-square)
        complement = (expm1_reduced(r) + 1.0) * (power_of_two(n) * q) * polynomial(q, ERF_LARGE_DOUBLE)
        cut = 1.0
    return (t < cut).where(small, 1.0 - complement).copysign(x)


ERFCX_STEP = 0.328125  # 31 of them reach to where erfc is 0 in float
ERFC_VANISHES = 10.3  # within the last interval, and the power of two in exp(-t²) is one that vanishes


GAUSSIAN_VANISHES = {"float": ERFC_VANISHES, "double": 27.33}  # over √2, in the same way


@functools.cache
def erfcx_pieces() -> NDArray[np.float64]:
    """exp(t²)·erfc(t) around multiples of the step: the rounding error of the constant, the powers of the distance from
    1 to 6, and the constant."""
    found = np.stack([
        interpolated(lambda t: math.exp(t * t) * math.erfc(t), i * ERFCX_STEP, ERFCX_STEP / 2, 7)
        for i in range(INTERVALS)
    ], axis=1)  # fmt: skip
    constant = found[0].astype(np.float32)
    return np.concatenate([found[:1] - constant, found[1:], [constant]])


ROOT_HALF = math.sqrt(0.5)


def _magnitude(x: Num, largest: float, halved: bool) -> tuple[Num, Num, Num]:
    """|x|, and t² in two parts for t = |x|, at most ``largest``, or ``halved`` for t = |x|·√½, whose square is not that
    of a rounded number."""
    magnitude = abs(x).at_most(largest * math.sqrt(2.0) if halved else largest)
    square, rest = two_product(magnitude, magnitude)
    return (magnitude, square * 0.5, rest * 0.5) if halved else (magnitude, square, rest)


def _bell(x: Num, halved: bool) -> tuple[Num, Num, Num]:
    """|x|, and exp(-t²) as a growth g and n: (1 + g)·2^n. Both functions of floats that need it write it alike, so that
    a kernel that has both has it once."""
    t, square, rest = _magnitude(x, ERFC_VANISHES, halved)
    n = square.fma(-math.log2(math.e), FLOAT.magic) - FLOAT.magic
    r = n.fma(-FLOAT.ln2_hi, -square) + n.fma(-FLOAT.ln2_lo, -rest)
    return t, expm1_reduced(r), n


def _by_pieces(x: Num, halved: bool) -> Num:
    """erfc of floats as exp(-t²) times a polynomial of an interval, added up from its small terms."""
    t, growth, n = _bell(x, halved)
    index, d = interval(t * ROOT_HALF if halved else t, ERFCX_STEP)
    *powers, constant = (looked_up(index, x, row) for row in erfcx_pieces().tolist())
    small = powers[-1]
    for power in reversed(powers[:-1]):
        small = small.fma(d, power)
    grown = (constant + small).fma(growth, small)
    return _reflect(scaled(constant + grown, n), x)


def _by_quotients(x: Num, halved: bool) -> Num:
    """erfc of floats as exp(-t²)·P(q)/(t + c), q = (t - k)/(t + k), a form that M. Shepherd and J. Laframboise (Math.
    Comp. 36, 1981) have for all t. The divisor takes most of the change, so that P is nearly constant and its error
    small; P, its product with 1/(t + c) and that quotient are corrected by what their rounding left. 2.3 ULP."""
    t, growth, n = _bell(x, halved)
    (constant, *others), offset = (MILLS, MILLS_OFFSET) if halved else (ERFCX_FLOAT, ERFCX_OFFSET)
    q = (t - ERFCX_CENTER) / (t + ERFCX_CENTER)
    slope = polynomial(q, others)
    value = slope.fma(q, constant)
    value_rest = slope.fma(q, constant - value)
    inverse = 1.0 / (t + offset)
    error = (-inverse).fma(t, (-inverse).fma(offset, 1.0))
    product, rest = two_product(value, inverse)
    rest = value_rest.fma(inverse, product.fma(error, rest))
    return _reflect(scaled(product + product.fma(growth, rest), n), x)


def erfc(x: Num) -> Num:
    return _complement(x, False)


def normal(x: Num) -> Num:
    """erfc(-x·√½) / 2."""
    return _complement(-x, True) * 0.5


def gaussian(x: Num) -> Num:
    """exp(-x²/2) with x² in two parts."""
    if x.format is FLOAT and x.f.target.isa.fuses("float"):
        _, growth, n = _bell(x, True)
        return scaled(growth + 1.0, n)
    _, square, rest = _magnitude(x, GAUSSIAN_VANISHES[x.element], True)
    mantissa, n = exp_of_sum(-square, -rest)
    return scaled(mantissa, n)


def _complement(x: Num, halved: bool) -> Num:
    """erfc, ``halved`` of x·√½.

    With t = |x|: exp(g(t) - t²)/t in double, the exponent summed up in parts, the quotient rounded once, and
    1 - erf(x) for small x. Float is computed in float where there are multiply-adds, else in double as exp(-t²)·q·P(q),
    q = 1/(1 + t/4), after Shepherd and Laframboise. 2 - that for negative x."""
    if is_piecewise(x):
        return _by_pieces(x, halved)
    if x.format is FLOAT and x.f.target.isa.fuses("float"):
        return _by_quotients(x, halved)
    wide = to_double(x)
    if x.element == "float":
        t = abs(wide * ROOT_HALF if halved else wide).at_most(10.2)
        q = 1.0 / t.fma(0.25, 1.0)
        mantissa, n = exp_of_sum(-(t * t), t.const(0.0), EXP_SHORT)
        return from_double(_reflect(mantissa * power_of_two(n) * (q * polynomial(q, ERFCX)), wide), x)
    t, square, rest = _magnitude(x, 27.3, halved)
    t = t * ROOT_HALF if halved else t
    above, above_rest = two_sum(t, t.const(1.25))
    inverse = 1.0 / (t * above)
    q = inverse * t
    product, error = two_product(q, above)
    q_rest = (((1.0 - product) - error) - q * above_rest) * q
    logarithm = polynomial((q - ERFC_CENTER) + q_rest, ERFC_LOG)
    n = ((logarithm + ERFC_LEVEL) - square).fma(math.log2(math.e), DOUBLE.magic) - DOUBLE.magic
    r, r_rest = two_sum(n.fma(-DOUBLE.ln2_hi, -square) + ERFC_LEVEL, n.fma(-DOUBLE.ln2_lo, logarithm))
    inverse = inverse * above
    product, error = two_product(inverse, t)
    inverse_rest = ((r_rest - rest) + ((1.0 - product) - error)) * inverse
    curve = polynomial(r, EXP["double"]) * (r * r)
    low = curve.fma(inverse, (r + curve).fma(inverse_rest, inverse_rest))
    mantissa = r.fma(inverse, low) + inverse
    far = _reflect(scaled(mantissa, n), wide)
    side = t.copysign(x)
    near = polynomial(t * t, ERF_SMALL["double"]).fma(-side, 1.0 - side)
    return (t < 0.8).where(near, far)


def _reflect(complement: Num, x: Num) -> Num:
    return (x < 0.0).where(2.0 - complement, complement)


# -- its inverse ----------------------------------------------------------------------------------------------------

# float: erfinv(x)/x as P/Q in 9/16 - x^2 for |x| <= 3/4, 2^-30.5
# double: (erfinv(x)/x - sqrt(pi)/2)/x^2 likewise, 2^-53.8 of itself
ERFINV_CENTER_FLOAT = (
    (1.0845597961026865, 3.187364245103567, 2.3484663555878127, 0.3079453064139121, -0.009507896073223568),
    (1.0, 3.457603171319833, 3.3396342165068806, 0.8119406409598796),
)
ERFINV_CENTER = (
    (
        0.3525917712783408, 2.059469512986408, 4.407837850104241, 4.22351138704758, 1.7585943480776234,
        0.24815741858863785, 0.002211238980119621, -6.720562520763592e-05,
    ),
    (
        1.0, 6.899880637305737, 18.303422840108635, 23.431249694997753, 14.859993037502228, 4.258316473550999,
        0.4061680561255792,
    ),
)  # fmt: skip
HALF_ROOT_PI = 0.886226925452758
HALF_ROOT_PI_REST = -3.8332932499128993e-17

# erfinv as P/Q in s - 1.4375, s = sqrt(-log((1-|x|)/2)): float on [1.44, 4.17], 2^-27.7; double on [1.44, 3],
# 2^-54.0, and in s - 3 on [3, 6.13], 2^-55.1
TAIL_START, FAR_TAIL_START = 1.4375, 3.0
ERFINV_TAIL_FLOAT = (
    (0.8078117874268155, 2.170213534102999, 1.6312185699351207, 0.4360109031672397, 0.03453189112687958),
    (1.0, 1.1523517543504826, 0.3872039784438285, 0.0345175265088639),
)
ERFINV_TAIL = (
    (
        0.8078117826712862, 2.9620902178527566, 3.969568981200141, 2.6176204665498775, 0.9295859223630245,
        0.1777429119999565, 0.016635704857559934, 0.0005554494015367991,
    ),
    (
        1.0, 2.132625251167427, 1.7779603814642848, 0.7346157629433676, 0.1564608463585012, 0.01584339955645184,
        0.0005553909034527437,
    ),
)  # fmt: skip
ERFINV_FAR_TAIL = (
    (
        2.5919264457764877, 3.2101293213149034, 1.4922566255635366, 0.3286446028145479, 0.03539025811850215,
        0.001717812845486889, 2.8687618660219403e-05, 0.0,
    ),
    (
        1.0, 0.8196408043264106, 0.24050587800747994, 0.03058105009846331, 0.0016319358959512543,
        2.8685943632481125e-05, 1.637903957399784e-11,
    ),
)  # fmt: skip


def _chosen_polynomial(mask: Num, x: Num, yes: Sequence[float], no: Sequence[float]) -> Num:
    """The polynomial ``yes`` where the mask is on, else ``no``."""
    result = mask.where(x.const(yes[-1]), no[-1])
    for one, other in zip(reversed(yes[:-1]), reversed(no[:-1]), strict=True):
        result = result.fma(x, mask.where(x.const(one), other))
    return result


def _polynomial_in_two(mask: Num, x: Num, yes: Sequence[float], no: Sequence[float]) -> tuple[Num, Num]:
    """``_chosen_polynomial``, its last step in twice the precision."""
    product, product_rest = two_product(x, _chosen_polynomial(mask, x, yes[1:], no[1:]))
    total, rest = two_sum(mask.where(x.const(yes[0]), no[0]), product)
    return total, rest + product_rest


def _tail_argument(complement: Num) -> tuple[Num, Num]:
    """sqrt(-log(complement)) as a sum of two, for complement below 1/4 (double)."""
    mantissa, exponent = mantissa_and_exponent(complement)
    tail = log_tail(mantissa - 1.0, exponent * DOUBLE.ln2_lo)
    high, low = fast_two_sum(-(exponent * DOUBLE.ln2_hi), 1.0 - mantissa)
    high, lower = fast_two_sum(high, -tail)
    root = high.sqrt()
    product, error = two_product(root, root)
    return root, ((high - product) - error + (low + lower)) / (root + root)


def erfinv(x: Num) -> Num:
    """Rational functions of 9/16 - x^2, and of s = sqrt(-log((1-|x|)/2)) in the tails, in the manner of Wichura's
    AS 241 (Applied Statistics 37, 1988); float in double. One division serves all."""
    wide = to_double(x)
    t = abs(wide)
    central = t <= 0.75
    complement = t.fma(-0.5, 0.5)
    u = t.fma(-t, 0.5625)
    if x.element == "float":
        center_p, center_q = (polynomial(u, c) for c in ERFINV_CENTER_FLOAT)
        center_p = t * center_p
        v = (-log_short(complement)).sqrt() - TAIL_START
        tail_p, tail_q = (polynomial(v, c) for c in ERFINV_TAIL_FLOAT)
    else:
        center_p, center_q = (polynomial(u, c) for c in ERFINV_CENTER)
        center_p = t * t * t * center_p
        s, rest = _tail_argument(complement)
        far = s > FAR_TAIL_START
        v = (s - far.where(s.const(FAR_TAIL_START), TAIL_START)) + rest
        (tail_p, p_rest), (tail_q, q_rest) = (
            _polynomial_in_two(far, v, one, other) for one, other in zip(ERFINV_FAR_TAIL, ERFINV_TAIL, strict=True)
        )
    above, below = central.where(center_p, tail_p), central.where(center_q, tail_q)
    if x.element == "float":
        result = above / below
    else:
        result = quotient(above, central.where(0.0, p_rest), below, central.where(0.0, q_rest))
        result = central.where(t.fma(HALF_ROOT_PI, t.fma(HALF_ROOT_PI_REST, result)), result)
    edge = t.equals(1.0).where(wide.const(math.inf), math.nan)
    return from_double((t < 1.0).where(result, edge).copysign(wide), x)
