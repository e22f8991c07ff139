"""Planets are weighed from where they were seen: masses and initial velocities, by gradients through their orbits.

    python examples/n_body.py

A star and two planets attract one another in a plane; a ``sg.scan`` moves them by the leapfrog (kick, drift, kick),
which conserves energy but for a small oscillation. Their positions are seen through noise. One call of the compiled
program simulates the whole time, runs the loop backwards for the derivative of the squared errors by every mass and
velocity, and makes an Adam step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import staticgrad as sg

STEPS, DT, NOISE = 400, 0.03, 1e-3
EVERY = 8  # steps from one observation to the next
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.7]])
MASSES = np.array([1.0, 0.03, 0.06])  # in units where the constant of gravitation is 1
VELOCITIES = np.array([[0.04, -0.03], [0.0, 1.0], [-0.8, 0.0]])
GUESSED_MASSES = np.array([0.8, 0.01, 0.01])
GUESSED_VELOCITIES = np.array([[0.06, 0.0], [0.05, 0.95], [-0.85, 0.05]])
OTHERS = 1 - np.eye(len(MASSES))
Array = np.ndarray[Any, np.dtype[Any]]


class Orbits(NamedTuple):
    places: sg.Tensor  # (STEPS, bodies, 2), after each step
    energies: sg.Tensor  # (STEPS,)


class Fit(NamedTuple):
    losses: list[float]
    masses: Array
    velocities: Array


def distances(x: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
    """From each body to each (bodies, bodies, 2), and how far that is; 1 from a body to itself."""
    between = x[None, :, :] - x[:, None, :]
    return between, sg.sqrt(sg.sum(between**2, axis=-1) + np.eye(len(MASSES)))


def acceleration(x: sg.Tensor, masses: sg.Tensor) -> sg.Tensor:
    between, far = distances(x)
    return sg.sum((masses * OTHERS / far**3)[:, :, None] * between, axis=1)


def energy(x: sg.Tensor, v: sg.Tensor, masses: sg.Tensor) -> sg.Tensor:
    _, far = distances(x)
    moving = 0.5 * sg.sum(masses * sg.sum(v**2, axis=-1))
    return moving - 0.5 * sg.sum(OTHERS * masses[:, None] * masses[None, :] / far)


State = tuple[sg.Tensor, sg.Tensor, sg.Tensor]  # positions, velocities, accelerations


def simulate(masses: sg.Tensor, velocities: sg.Tensor) -> Orbits:
    def step(state: State, _: None) -> tuple[State, tuple[sg.Tensor, sg.Tensor]]:
        x, v, a = state
        v = v + DT / 2 * a
        x = x + DT * v
        a = acceleration(x, masses)
        v = v + DT / 2 * a
        return (x, v, a), (x, energy(x, v, masses))

    start = (sg.constant(PLACES), velocities, acceleration(sg.constant(PLACES), masses))
    _, (places, energies) = sg.scan(step, start, None, length=STEPS)
    return Orbits(places, energies)


def truth() -> tuple[Array, Array]:
    """Positions (STEPS, bodies, 2) and energies (STEPS,) of the true system."""
    with sg.Graph() as graph:
        orbits = simulate(sg.constant(MASSES), sg.constant(VELOCITIES))
    places, energies = sg.Session(graph).run(orbits)
    return places, energies


def observations(places: Array, seed: int = 0) -> Array:
    seen = places[EVERY - 1 :: EVERY]
    return seen + np.random.default_rng(seed).normal(scale=NOISE, size=seen.shape)


def fit(seen: Array, iterations: int = 6000) -> Fit:
    """The loss before each iteration, 1 where errors are as large as the noise, and what was found in the end."""
    with sg.Graph() as graph:
        logs = sg.Variable(np.log(GUESSED_MASSES), name="log_masses")
        velocities = sg.Variable(GUESSED_VELOCITIES, name="velocities")
        masses = sg.exp(logs)
        errors = simulate(masses, velocities).places[EVERY - 1 :: EVERY] - seen
        loss = sg.mean((errors / NOISE) ** 2)
        rate = sg.optim.schedules.cosine(0.01, iterations)
        train = sg.optim.Adam(lr=rate).minimize(loss)
        session = sg.Session(graph)
        step = session.compile([loss, train], [])
    losses = [float(step()[0]) for _ in range(iterations)]
    return Fit(losses, *session.run([masses, velocities]))


def main() -> None:
    places, energies = truth()
    wobble = np.abs(energies / energies[0] - 1).max()
    print(f"energy {energies[0]:.4f}, within {wobble:.1e} of itself over {STEPS} steps")
    found = fit(observations(places))
    print(f"squared error in units of the noise: {found.losses[0]:.0f} -> {found.losses[-1]:.3f}")
    for number, (mass, true) in enumerate(zip(found.masses, MASSES, strict=True)):
        print(f"  mass {number}: {mass:.4f}, true {true}")
    worst = np.abs(found.velocities - VELOCITIES).max()
    print(f"  velocities: within {worst:.1e} of the true ones")
    assert wobble < 2e-3
    assert found.losses[-1] < 1.2
    assert np.allclose(found.masses, MASSES, rtol=0.02)
    assert worst < 5e-3


if __name__ == "__main__":
    main()
