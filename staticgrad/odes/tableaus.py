"""Runge-Kutta pairs as numbers.

A pair of s stages gives, from the slopes k_i at times t + c_i h, a step y + h Σ b_i k_i of its order, an estimate
h Σ e_i k_i of that step's error, and between both ends y + h Σ b_i(θ) k_i with b_i(θ) = Σ_j dense[i][j] θ^(j+1). In all
pairs here the last stage is the slope at the end of the step (a_s = b), with which the next step begins.

    DOPRI5     Dormand and Prince, A family of embedded Runge-Kutta formulae, 1980; the values between by Hairer,
               Nørsett and Wanner, Solving Ordinary Differential Equations I, 2nd ed., II.6 (the continuous extension of
               order 4)
    TSIT5      Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption, 2011,
               with its interpolant of order 4
    KVAERNO5   Kværnø, Singly diagonally implicit Runge-Kutta methods with an explicit first stage, 2004: the stiffly
               accurate pair 5(4) of seven stages, L-stable, γ = 0.26. All its stages have order 2, so that five
               conditions (of 1, c, c², c³ and A c²) make an interpolant of order 4: here the one of least norm that has
               the step's value and slope at both ends. Newton's method starts at the quadratic through the first slopes
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen

Row = tuple[float, ...]


@frozen
class Tableau:
    """The numbers of a pair. ``gamma`` is the diagonal of an implicit pair, whose first stage is explicit; ``guesses``
    then has for each stage after the first the weights of earlier slopes at which its own slope is looked for."""

    name: str
    order: int
    a: tuple[Row, ...]  # of each stage the weights of the slopes before it
    c: Row
    b: Row
    e: Row
    dense: tuple[Row, ...]
    gamma: float = 0.0
    guesses: tuple[Row, ...] = ()

    @property
    def stages(self) -> int:
        return len(self.b)


def _polynomials(rows: Sequence[np.ndarray]) -> tuple[Row, ...]:
    """Coefficients from θ on of polynomials that begin with a constant of zero."""
    degree = max(len(row) for row in rows)
    padded = [np.concatenate([row, np.zeros(degree - len(row))]) for row in rows]
    return tuple(tuple(float(v) for v in row[1:]) for row in padded)


def _product(*factors: Sequence[float]) -> np.ndarray:
    """The product of polynomials, whose coefficients begin with the constant."""
    made = np.ones(1)
    for factor in factors:
        made = np.convolve(made, factor)
    return made


def _continuous(b: Row, d: Row) -> tuple[Row, ...]:
    """Hermite's cubic by the value and the slopes at both ends, the first and the last, and θ²(1 - θ)² Σ d_i k_i."""
    value, bump = np.array([0.0, 0.0, 3.0, -2.0, 0.0]), np.array([0.0, 0.0, 1.0, -2.0, 1.0])
    rows = [weight * value + more * bump for weight, more in zip(b, d, strict=True)]
    rows[0] += np.array([0.0, 1.0, -2.0, 1.0, 0.0])
    rows[-1] += np.array([0.0, 0.0, -1.0, 1.0, 0.0])
    return _polynomials(rows)


_B = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0)

DOPRI5 = Tableau(
    "dopri5", 5,
    a=(
        (), (1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _B[:-1],
    ),
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    b=_B,
    e=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    dense=_continuous(_B, (
        -12715105075 / 11282082432, 0.0, 87487479700 / 32700410799, -10690763975 / 1880347072,
        701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423,
    )),
)  # fmt: skip

_T = (
    0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774, 0.0,
)  # fmt: skip

TSIT5 = Tableau(
    "tsit5", 5,
    a=(
        (), (0.161,), (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        _T[:-1],
    ),
    c=(0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    b=_T,
    e=(
        -0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629, 0.5823571654525552,
        -0.45808210592918697, 1 / 66,
    ),
    dense=_polynomials([
        -1.0530884977290216 * _product((0, 1), (-1.3299890189751412, 1), (0.7139816917074209, -1.4364028541716351, 1)),
        0.1017 * _product((0, 0, 1), (1.2949852507374631, -2.1966568338249754, 1)),
        2.490627285651252793 * _product((0, 0, 1), (1.57803468208092486, -2.38535645472061657, 1)),
        -16.54810288924490272 * _product((0, 0, 1), (-1.21712927295533244, 1), (-0.61620406037800089, 1)),
        47.37952196281928122 * _product((0, 0, 1), (-1.203071208372362603, 1), (-0.658047292653547382, 1)),
        -34.87065786149660974 * _product((0, 0, 1), (-1.2, 1), (-2 / 3, 1)),
        2.5 * _product((0, 0, 1), (-1, 1), (-0.6, 1)),
    ]),
)  # fmt: skip

_G = 0.26
_K = (
    0.13659751177640291, 0.0, -0.05496908796538376, -0.04118626728321046, 0.62993304899016403, 0.06962479448202728, _G,
)  # fmt: skip
_K4 = (0.13855640231268224, 0.0, -0.04245337201752043, 0.02446657898003141, 0.61943039072480676, _G, 0.0)

KVAERNO5 = Tableau(
    "kvaerno5", 5,
    a=(
        (), (_G,), (0.13, 0.84033320996790809),
        (0.22371961478320505, 0.47675532319799699, -0.06470895363112615),
        (0.16648564323248321, 0.10450018841591720, 0.03631482272098715, -0.13090704451073998),
        _K4[:5], _K[:6],
    ),
    c=(0.0, 2 * _G, 1.230333209967908, 0.8957659843500759, 0.43639360985864756, 1.0, 1.0),
    b=_K,
    e=tuple(x - y for x, y in zip(_K, _K4, strict=True)),
    dense=(
        (1.0, -2.072037588795685, 1.6904652246969831, -0.4818301241248949),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 0.8427243190616528, -1.9053249899848435, 1.0076315829578062),
        (0.0, -0.666585713642222, 1.1684263581516023, -0.5430269117925917),
        (0.0, 3.256928814399382, -3.994125432838113, 1.367129667428892),
        (0.0, -0.6050255205697066, 1.4885502190675217, -0.8138999040157882),
        (0.0, -0.7560043104533863, 1.5520086209067765, -0.5360043104533894),
    ),
    gamma=_G,
    guesses=(
        (1.0,), (-1.3660254037844386, 2.3660254037844384),
        (-0.1965055261312219, 0.8113579546496623, 0.3851475714815596),
        (0.10375304369958756, 0.9379946980664303, -0.04174774176601807),
        (-0.17281112873898063, 0.6235784481025847, 0.549232680636396),
        (0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    ),
)  # fmt: skip
