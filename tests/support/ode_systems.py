"""Classic differential equations, for tests and benchmarks: dy/dt as functions of any library's arrays.

Input: a namespace with ``stack``, ``cos`` and ``exp`` over arrays (``numpy``, ``staticgrad``, ``jax.numpy``). Output: a
function of a time, a state and parameters. ``python tests/support/ode_systems.py`` writes ``tests/data/odes.json``: the
state at the end of each and its derivative in the direction of the state and the parameters themselves, by SciPy's
methods of order 8 (of stiff ones Radau, of order 5) at a tolerance of 1e-12 on the equation and its variation, whose
product with the Jacobian is the imaginary part of a complex step.

Sources: Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I and II (Arenstorf, Brusselator, Euler's
rigid body, van der Pol, Robertson, OREGO, HIRES); Lorenz (1963); Lotka and Volterra; Duffing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data" / "odes.json"


@dataclass(frozen=True)
class OdeSystem:
    """dy/dt = ``rates(xp, t, y, p)`` from ``y0`` over the time ``span``; ``atol`` fits the smallest component."""

    rates: Callable[[Any, Any, Any, Any], list[Any]]
    y0: tuple[float, ...]
    p: tuple[float, ...]
    span: float
    stiff: bool = False
    atol: float = 1.0  # of the relative tolerance

    def slope(self, xp: Any) -> Callable[[Any, Any, Any], Any]:
        return lambda t, y, p: xp.stack(self.rates(xp, t, y, p))


def _lotka_volterra(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    return [p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]]


def _van_der_pol(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    return [y[1], p[0] * (1 - y[0] * y[0]) * y[1] - y[0]]


def _robertson(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] * y[1]
    return [b - a, a - b - c, c]


def _lorenz(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    return [p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]]


def _brusselator(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    cubic = y[0] * y[0] * y[1]
    return [p[0] + cubic - (p[1] + 1) * y[0], p[1] * y[0] - cubic]


def _arenstorf(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    a, b = y[0] + p[0], y[0] - (1 - p[0])
    square = y[1] * y[1]
    near, far = (a * a + square) ** -1.5, (b * b + square) ** -1.5
    pulled = (1 - p[0]) * near + p[0] * far
    return [
        y[2], y[3], y[0] + 2 * y[3] - (1 - p[0]) * a * near - p[0] * b * far, y[1] - 2 * y[2] - y[1] * pulled,
    ]  # fmt: skip


def _hires(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    bound = p[5] * y[5] * y[7]
    return [
        -p[0] * y[0] + p[1] * y[1] + p[2] * y[2] + p[3],
        p[0] * y[0] - 8.75 * y[1],
        -10.03 * y[2] + p[1] * y[3] + 0.035 * y[4],
        8.32 * y[1] + p[0] * y[2] - 1.12 * y[3],
        -1.745 * y[4] + p[1] * y[5] + p[1] * y[6],
        -bound + p[4] * y[3] + p[0] * y[4] - p[1] * y[5] + p[4] * y[6],
        bound - 1.81 * y[6],
        -bound + 1.81 * y[6],
    ]


def _orego(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    return [
        p[0] * (y[1] + y[0] * (1 - p[1] * y[0] - y[1])),
        (y[2] - (1 + y[0]) * y[1]) / p[0],
        p[2] * (y[0] - y[2]),
    ]


def _duffing(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    return [y[1], y[0] - y[0] * y[0] * y[0] - p[0] * y[1] + p[1] * xp.cos(p[2] * t)]


def _rigid_body(xp: Any, t: Any, y: Any, p: Any) -> list[Any]:
    return [p[0] * y[1] * y[2], p[1] * y[2] * y[0], p[2] * y[0] * y[1]]


SYSTEMS = {
    "lotka_volterra": OdeSystem(_lotka_volterra, (1.0, 2.0), (1.5, 1.0, 1.0, 3.0), 10.0),
    "van_der_pol": OdeSystem(_van_der_pol, (2.0, 0.0), (1.0,), 10.0),
    "lorenz": OdeSystem(_lorenz, (1.0, 1.0, 1.0), (10.0, 28.0, 8 / 3), 3.0),
    "brusselator": OdeSystem(_brusselator, (1.5, 3.0), (1.0, 3.0), 10.0),
    "arenstorf": OdeSystem(
        _arenstorf, (0.994, 0.0, 0.0, -2.00158510637908252), (0.012277471,), 17.0652165601579626
    ),
    "duffing": OdeSystem(_duffing, (1.0, 0.0), (0.2, 0.3, 1.2), 15.0),
    "rigid_body": OdeSystem(_rigid_body, (1.0, 0.0, 0.9), (-2.0, 1.25, -0.5), 20.0),
    "stiff_van_der_pol": OdeSystem(_van_der_pol, (2.0, 0.0), (1000.0,), 1000.0, stiff=True),
    "robertson": OdeSystem(_robertson, (1.0, 0.0, 0.0), (0.04, 1e4, 3e7), 1e4, stiff=True, atol=1e-5),
    "hires": OdeSystem(
        _hires, (1.0, 0, 0, 0, 0, 0, 0, 0.0057), (1.71, 0.43, 8.32, 0.0007, 0.69, 280.0), 321.8122, stiff=True,
        atol=1e-3,
    ),
    "orego": OdeSystem(_orego, (1.0, 2.0, 3.0), (77.27, 8.375e-6, 0.161), 30.0, stiff=True),
}  # fmt: skip


def references() -> dict[str, dict[str, list[float]]]:
    """Of each system the state at the end, and its derivative in the direction of ``y0`` and ``p``."""
    found: dict[str, dict[str, list[float]]] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def solve(system: OdeSystem, tolerance: float) -> dict[str, list[float]]:
    """One reference, by SciPy."""
    from scipy.integrate import solve_ivp

    n, step = len(system.y0), 1e-20
    p = np.array(system.p)

    def varied(t: float, z: Any) -> Any:
        y = z[:n] + 1j * step * z[n:]
        made = np.stack(system.rates(np, t, y, p * (1 + 1j * step)))
        return np.concatenate([made.real, made.imag / step])

    start = np.array([*system.y0, *system.y0])
    method = "Radau" if system.stiff else "DOP853"
    made = solve_ivp(varied, (0, system.span), start, method, rtol=tolerance, atol=tolerance * system.atol * 1e-2)
    assert made.success, made.message
    return {"end": made.y[:n, -1].tolist(), "tangent": made.y[n:, -1].tolist()}


if __name__ == "__main__":
    found = {}
    for name, system in SYSTEMS.items():
        found[name] = solve(system, 3e-14 if not system.stiff else 1e-12)
        rough = solve(system, 1e-12 if not system.stiff else 1e-11)
        off = [np.max(np.abs(np.subtract(rough[k], found[name][k]))) / np.max(np.abs(found[name][k])) for k in rough]
        print(name, *off, flush=True)
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
