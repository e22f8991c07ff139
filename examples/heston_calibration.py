"""Heston's model calibrated to a surface of option prices, between bounds, as one program.

    python examples/heston_calibration.py

Prices of calls for all strikes and maturities are one integral of the characteristic function (Heston 1993, in the form
that is continuous: Albrecher, Mayer, Schoutens and Tistaert, The little Heston trap, 2007; one integral: Lewis 2001),
by a rule of fixed points. The residuals are differences to the quotes over the vegas of Black and Scholes, which are
differences of implied volatility to first order. ``sg.least_squares`` finds five parameters: the model, its Jacobian
and the trust region are one program. Two quotes are wrong; a robust loss takes no notice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

SPOT, RATE = 100.0, 0.02
MONEYNESS, YEARS = np.linspace(0.8, 1.2, 9), np.array([0.25, 0.5, 1.0, 2.0])
STRIKES, MATURITIES = (a.ravel() for a in np.meshgrid(SPOT * MONEYNESS, YEARS))
NAMES = ("variance", "reversion", "mean variance", "volatility of variance", "correlation")
LOWER, UPPER = np.array([1e-3, 0.1, 1e-3, 0.05, -0.99]), np.array([0.5, 10.0, 0.5, 2.0, 0.5])
TRUE = np.array([0.045, 1.8, 0.06, 0.55, -0.65])
START = np.array([0.1, 1.0, 0.1, 0.3, 0.0])

POINTS, WEIGHTS = np.polynomial.legendre.leggauss(96)
U, WEIGHTS = 50.0 * (POINTS + 1), 50.0 * WEIGHTS  # of [0, 100]


def prices(p: sg.Tensor) -> sg.Tensor:
    """Calls for each pair of ``STRIKES`` and ``MATURITIES``. Complex numbers are pairs of a real and an imaginary part,
    each a row of ``U`` for each call."""
    variance, reversion, mean, wobble, correlation = (p[i] for i in range(5))
    u, years = U[None, :], MATURITIES[:, None]
    # With φ at u − i/2 the integrand is φ·exp(iu·log-moneyness) over u² + 1/4.
    slope = (reversion - 0.5 * correlation * wobble + 0.0 * u, -correlation * wobble * u)
    square = wobble**2 * (u**2 + 0.25)
    root = _root(slope[0] ** 2 - slope[1] ** 2 + square, 2 * slope[0] * slope[1])
    minus, plus = (slope[0] - root[0], slope[1] - root[1]), (slope[0] + root[0], slope[1] + root[1])
    ratio = _over(minus, plus)
    shrunk = sg.exp(-root[0] * years)
    fade = (shrunk * sg.cos(root[1] * years), -shrunk * sg.sin(root[1] * years))
    part = _times(ratio, fade)
    rest = (1 - part[0], -part[1])
    by_variance = _over(_times(minus, (1 - fade[0], -fade[1])), rest)
    quotient = _over(rest, (1 - ratio[0], -ratio[1]))
    log = (0.5 * sg.log(quotient[0] ** 2 + quotient[1] ** 2), sg.atan2(quotient[1], quotient[0]))
    exponents = [
        (mean * reversion * (minus[i] * years - 2 * log[i]) + variance * by_variance[i]) / wobble**2 for i in (0, 1)
    ]
    angle = u * (np.log(SPOT / STRIKES) + RATE * MATURITIES)[:, None] + exponents[1]
    integral = (sg.exp(exponents[0]) * sg.cos(angle) / (u**2 + 0.25)) @ WEIGHTS
    discount = np.sqrt(SPOT * STRIKES) * np.exp(-0.5 * RATE * MATURITIES)
    value: sg.Tensor = SPOT - discount * integral / np.pi
    return value


def _times(a: Any, b: Any) -> Any:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _over(a: Any, b: Any) -> Any:
    size = b[0] ** 2 + b[1] ** 2
    return (a[0] * b[0] + a[1] * b[1]) / size, (a[1] * b[0] - a[0] * b[1]) / size


def _root(re: Any, im: Any) -> Any:
    """The square root with a positive real part."""
    real = sg.sqrt(0.5 * (sg.sqrt(re**2 + im**2) + re))
    return real, im / (2 * real)


def vegas(volatility: float = 0.22) -> Any:
    """Those of Black and Scholes, by which differences of prices become differences of volatility."""
    spread = volatility * np.sqrt(MATURITIES)
    d = (np.log(SPOT / STRIKES) + RATE * MATURITIES) / spread + spread / 2
    return SPOT * np.sqrt(MATURITIES / (2 * np.pi)) * np.exp(-d * d / 2)


def misfit(p: sg.Tensor, quotes: sg.Tensor, weights: sg.Tensor) -> sg.Tensor:
    """In volatilities."""
    return (prices(p) - quotes) / weights


def main() -> None:
    rng = np.random.default_rng(0)
    quotes = sg.function(prices)(TRUE) + 0.001 * vegas() * rng.normal(size=STRIKES.size)
    quotes[[4, 22]] *= [1.3, 0.8]  # wrong ones
    fits = {}
    for loss in ("linear", "soft_l1"):
        fits[loss] = sg.least_squares(
            misfit, START, args=(quotes, vegas()), bounds=(LOWER, UPPER), x_scale="jac", loss=loss, f_scale=0.002
        )
        print(f"{loss}: {fits[loss].nfev} evaluations, {fits[loss].message}")
    fitted, surface = fits["soft_l1"], sg.function(prices)(fits["soft_l1"].x)
    print(f"{'':24}{'true':>8}{'linear':>10}{'soft_l1':>10}")
    for i, name in enumerate(NAMES):
        print(f"{name:24}{TRUE[i]:8.3f}{fits['linear'].x[i]:10.3f}{fitted.x[i]:10.3f}")
    print(f"off by more than one volatility point: {int((np.abs(surface - quotes) / vegas() > 0.01).sum())} quotes")


if __name__ == "__main__":
    main()
