"""The greatest height of a rocket: Goddard's problem as IPOPT solves it, with exact sparse derivatives.

    python examples/optimal_control.py

A rocket burns its fuel against drag and gravity so as to climb highest. Where thrust is neither full nor off it
follows a singular arc. Time is divided into 400 steps of the trapezoidal rule, and the final time is unknown as well:
problem 10 of Dolan, Moré and Munson, Benchmarking optimization software with COPS 3.0 (2004), where the best height
is 1.01283. The Hessian of the Lagrangian is sparse but for the final time, which meets every state. Without it, by
L-BFGS, IPOPT has not come there after 1,000 iterations.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import casadi
import numpy as np

import staticgrad as sg

STEPS = 400
DRAG, DECAY, FUEL, STRONGEST = 310.0, 500.0, 0.6, 3.5  # of the earth's radius, its gravity and the mass at start


def unpacked(z: Any) -> tuple[Any, ...]:
    """Height, speed, mass and thrust at all instants, and the final time."""
    n = STEPS + 1
    return (*(z[k * n : (k + 1) * n] for k in range(4)), z[4 * n])


def gaps(z: Any) -> Any:
    """What the steps leave of the equations of motion."""
    height, speed, mass, thrust, final = unpacked(z)
    drag = DRAG * speed**2 * sg.exp(-DECAY * (height - 1))
    slopes = (speed, (thrust - drag) / mass - 1 / height**2, -2 * thrust)
    return sg.concat([
        x[1:] - x[:-1] - 0.5 * final / STEPS * (dx[1:] + dx[:-1])
        for x, dx in zip((height, speed, mass), slopes, strict=True)
    ])  # fmt: skip


def solver(folder: Path, exact: bool = True) -> Any:
    """IPOPT, by second derivatives or by what it learns of them from gradients (L-BFGS)."""
    size = 4 * (STEPS + 1) + 1
    with sg.Graph() as graph:
        z = sg.placeholder((size,), sg.float64, name="z")
        fetches = {"cost": -z[STEPS], "gaps": gaps(z)}
    with sg.Session(graph) as session:
        session.compile(fetches, z).export(folder / "rocket.so", format="shared", signature="casadi")
    rocket, x = casadi.external("rocket", str(folder / "rocket.so")), casadi.MX.sym("z", size)
    cost, equations = rocket(x)
    options = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.max_iter": 1000}
    if not exact:
        options["ipopt.hessian_approximation"] = "limited-memory"
    return casadi.nlpsol("solver", "ipopt", {"x": x, "f": cost, "g": equations}, options)


def climb(solve: Any) -> tuple[Any, ...]:
    """The best height, speed, mass and thrust at all instants, and the final time."""
    t, ones = np.linspace(0, 1, STEPS + 1), np.ones(STEPS + 1)
    start = np.concatenate([ones, t * (1 - t), 1 - (1 - FUEL) * t, STRONGEST / 2 * ones, [1.0]])
    low = np.concatenate([ones, 0 * ones, FUEL * ones, 0 * ones, [0.01]])
    high = np.concatenate([np.inf * ones, np.inf * ones, ones, STRONGEST * ones, [np.inf]])
    for bound in (low, high):
        height, speed, mass, *_ = unpacked(bound)
        height[0], speed[0], mass[0] = 1, 0, 1  # at rest, with all its mass
    mass[-1] = FUEL  # all fuel is burnt
    return unpacked(np.array(solve(x0=start, lbx=low, ubx=high, lbg=0, ubg=0)["x"])[:, 0])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        solve = solver(Path(folder))
        height, _, _, thrust, final = climb(solve)
        stats = solve.stats()
    jacobian, hessian = (solve.get_function(name).sparsity_out(k) for name, k in (("nlp_jac_g", 1), ("nlp_hess_l", 0)))
    print(f"{jacobian.size2()} unknowns: {jacobian.nnz()} elements of the Jacobian, {hessian.nnz()} of the Hessian")
    print(f"height {height[-1]:.5f} after {final:.4f}, in {stats['iter_count']} iterations of IPOPT")
    burning = thrust > 1e-3
    full = np.mean(thrust[burning] > STRONGEST - 1e-3)
    print(f"burns for {np.mean(burning):.0%} of the time, at full thrust for {full:.0%} of that")
    if abs(height[-1] - 1.01283) > 1e-4:
        raise AssertionError("another height than COPS has")


if __name__ == "__main__":
    main()
