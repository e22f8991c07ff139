"""A cart swings up its pole and holds it: nonlinear model predictive control by IPOPT, with exact sparse derivatives.

    python examples/nmpc.py

At every instant the forces of the next two seconds are planned: the least of a cost over states and forces, where each
state follows from the one before by a Runge-Kutta step (multiple shooting). Cost and dynamics are one program, exported
once for CasADi with its sparse Jacobian and the Hessian of the Lagrangian. IPOPT, called through CasADi, solves each
plan, from the one before; the first force is applied, and the next plan begins where the cart is then.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import casadi
import numpy as np

import staticgrad as sg

AHEAD, DT, SECONDS = 40, 0.05, 4.0
CART, POLE, LENGTH, GRAVITY = 1.0, 0.3, 0.5, 9.81  # kg, kg, m, m/s²
STRONGEST, FARTHEST = 15.0, 1.5  # the force, the place of the cart
HANGING = np.array([0.0, np.pi, 0.0, 0.0])  # place, angle from upright, and their velocities
WEIGHTS = np.array([1.0, 10.0, 0.1, 0.1])


def slope(states: Any, forces: Any) -> Any:
    """The derivatives (n, 4) of states (n, 4) by time."""
    angle, spin = states[:, 1], states[:, 3]
    sin, cos = sg.sin(angle), sg.cos(angle)
    push = forces + POLE * LENGTH * spin**2 * sin
    drop = (GRAVITY * sin * (CART + POLE) - push * cos) / (LENGTH * (CART + POLE * sin**2))
    return sg.stack([states[:, 2], spin, (push - POLE * GRAVITY * sin * cos) / (CART + POLE * sin**2), drop], axis=1)


def step(states: Any, forces: Any) -> Any:
    """The states after a time step, by the classical Runge-Kutta method."""
    first = slope(states, forces)
    second = slope(states + DT / 2 * first, forces)
    third = slope(states + DT / 2 * second, forces)
    return states + DT / 6 * (first + 2 * second + 2 * third + slope(states + DT * third, forces))


def planner(folder: Path) -> Any:
    """IPOPT for the states and forces, one vector, that follow after a state."""
    with sg.Graph() as graph:
        z, now = sg.placeholder((5 * AHEAD,), sg.float64, name="z"), sg.placeholder((4,), sg.float64, name="now")
        states, forces = sg.reshape(z[: 4 * AHEAD], (AHEAD, 4)), z[4 * AHEAD :]
        before = sg.concat([now[None], states[:-1]])
        tilt = sg.stack([states[:, 0], 2 * sg.sin(states[:, 1] / 2), states[:, 2], states[:, 3]], axis=1)
        cost = sg.sum(WEIGHTS * tilt**2) + 1e-3 * sg.sum(forces**2)
        gaps = sg.reshape(step(before, forces) - states, (4 * AHEAD,))
    with sg.Session(graph) as session:
        exe = session.compile({"cost": cost, "gaps": gaps}, [z, now])
        exe.export(folder / "plan.so", format="shared", signature="casadi")
    plan = casadi.external("plan", str(folder / "plan.so"))
    z, now = casadi.MX.sym("z", 5 * AHEAD), casadi.MX.sym("now", 4)
    cost, gaps = plan(z, now)
    options = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-6}
    return casadi.nlpsol("planner", "ipopt", {"x": z, "p": now, "f": cost, "g": gaps}, options)


def shifted(states: Any, forces: Any) -> Any:
    """A plan an instant later, where the last one stays."""
    return np.concatenate([states[1:], states[-1:]]), np.append(forces[1:], forces[-1])


def control(solve: Any, seconds: float = SECONDS) -> tuple[Any, Any, list[int], list[float]]:
    """The states and forces of the closed loop, and the iterations and milliseconds of each plan."""
    follow = sg.function(lambda state, force: step(state[None], force[None])[0])
    limits = np.concatenate([np.tile([FARTHEST, np.inf, np.inf, np.inf], AHEAD), np.full(AHEAD, STRONGEST)])
    now, states, forces = HANGING, np.tile(HANGING, (AHEAD, 1)), np.zeros(AHEAD)
    path, applied, iterations, spent = [now], [], list[int](), list[float]()
    for _ in range(round(seconds / DT)):
        begun = time.perf_counter()
        start = np.concatenate([states.ravel(), forces])
        found = np.array(solve(x0=start, p=now, lbx=-limits, ubx=limits, lbg=0, ubg=0)["x"])[:, 0]
        spent.append(1e3 * (time.perf_counter() - begun))
        iterations.append(solve.stats()["iter_count"])
        states, forces = found[: 4 * AHEAD].reshape(AHEAD, 4), found[4 * AHEAD :]
        applied.append(forces[0])
        now = follow(now, np.float64(forces[0]))
        path.append(now)
        states, forces = shifted(states, forces)
    return np.array(path), np.array(applied), iterations, spent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        solve = planner(Path(folder))
        path, forces, iterations, spent = control(solve)
    hessian = solve.get_function("nlp_hess_l").sparsity_out(0)
    print(f"{5 * AHEAD} unknowns, {4 * AHEAD} equations, {hessian.nnz()} elements in a triangle of the Hessian")
    print(
        f"iterations: {iterations[0]} for the first plan, {np.median(iterations[1:]):.0f} in the median of the others"
    )
    print(f"{np.median(spent):.1f} ms for a plan in the median, of {1e3 * DT:.0f} that there are")
    print(f"strongest force {np.abs(forces).max():.1f} N, farthest place {np.abs(path[:, 0]).max():.2f} m")
    for instant in range(0, len(path), 10):
        place, angle, *_ = path[instant]
        print(f"  {instant * DT:4.2f} s  cart at {place:5.2f} m  height of the pole {np.cos(angle):5.2f}")
    if np.cos(path[-20:, 1]).min() < 0.99:
        raise AssertionError("the pole does not stand")


if __name__ == "__main__":
    main()
