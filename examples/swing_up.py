"""A pendulum is swung up by a motor too weak to lift it: the torques are found by gradients through the physics.

    python examples/swing_up.py

A rollout is a ``sg.scan`` over the torques of all instants. The cost is derived by every one of them in one backward
pass through time, and one call of the compiled program makes an Adam step on the whole plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

STEPS, DT = 100, 0.05
GRAVITY, STRONGEST = 9.81, 4.0  # the motor holds the pendulum up to sin(angle) = 0.4
HANGING = np.array([np.pi, 0.0])  # angle from upright, angular velocity


def rollout(torques: sg.Tensor, start: Any) -> sg.Tensor:
    """Angles and velocities (steps, 2) after each instant, by semi-implicit Euler steps."""

    def step(state: sg.Tensor, torque: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        angle, velocity = state[0], state[1]
        velocity = velocity + DT * (GRAVITY * sg.sin(angle) + torque)
        state = sg.stack([angle + DT * velocity, velocity])
        return state, state

    return sg.scan(step, start, torques)[1]


def plan(iterations: int = 800) -> tuple[list[float], Any, Any]:
    """The cost before each iteration, the torques in the end, and where they lead."""
    with sg.Graph() as graph:
        raw = sg.Variable(sg.init.normal(0.0, 0.1), shape=(STEPS,), dtype=sg.float64, name="torques")
        torques = STRONGEST * sg.tanh(raw)
        path = rollout(torques, HANGING)
        late = np.linspace(0.0, 1.0, STEPS) ** 4  # what counts is where it ends
        height = (1 - sg.cos(path[:, 0])) * 10 + path[:, 1] ** 2
        cost = sg.sum(height * late) + 1e-3 * sg.sum(torques**2)
        improve = sg.optim.Adam(lr=0.05).minimize(cost)
        session = sg.Session(graph, seed=3)
        step = session.compile([cost, improve], [])
    costs = [float(step()[0]) for _ in range(iterations)]
    found, reached = session.run([torques, path])
    return costs, found, reached


def main() -> None:
    costs, torques, path = plan()
    print(f"cost {costs[0]:.1f} -> {costs[-1]:.2f}, strongest torque {np.abs(torques).max():.2f}")
    for instant in range(0, STEPS, 9):
        angle, velocity = path[instant]
        print(f"  {instant * DT:4.2f} s  height {np.cos(angle):5.2f}  velocity {velocity:5.2f}")


if __name__ == "__main__":
    main()
