"""Integrate with SciPy, without Python between two evaluations: the integrand is a compiled program's C function.

    python examples/quad_c_pointer.py

The radial part of the hydrogen atom's 3p orbital must have norm 1, and the mean distance of its electron from the
nucleus must be 12.5 Bohr radii (Bethe and Salpeter, Quantum Mechanics of One- and Two-Electron Atoms, 1957, (3.20)).
Then an atom with another charge: the charge is an argument of the program that SciPy hands over as user data, so the
same address serves all charges.
"""

from __future__ import annotations

import numpy as np
from scipy import integrate

import staticgrad as sg


def density(r: sg.Tensor, charge: sg.Tensor) -> sg.Tensor:
    """The probability to find an electron of the orbital 3p at radius r, by r."""
    x = charge * r
    radial = charge**1.5 * 8 / (27 * 6**0.5) * (1 - x / 6) * x * sg.exp(-x / 3)
    return (radial * r) ** 2


def main() -> None:
    with sg.Graph() as graph:
        r, charge = sg.placeholder((), sg.float64, name="r"), sg.placeholder((1,), sg.float64, name="charge")
        found_at = density(r, charge[0])
    session = sg.Session(graph)
    norm = session.compile(found_at, [r, charge]).cfunc("scalar")
    mean = session.compile(found_at * r, [r, charge]).cfunc("scalar")
    print(f"SciPy calls {norm.signature} at {norm.address:#x}")
    for protons in (1.0, 2.0, 26.0):
        user = np.array([protons])
        whole, _ = integrate.quad(norm.low_level_callable(user), 0, np.inf)
        distance, _ = integrate.quad(mean.low_level_callable(user), 0, np.inf)
        print(f"charge {protons:g}: norm {whole:.6f}, mean distance {distance:.6f} Bohr radii")
        assert abs(whole - 1) < 1e-6
        assert abs(distance - 12.5 / protons) < 1e-5


if __name__ == "__main__":
    main()
