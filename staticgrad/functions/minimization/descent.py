"""Searches without bounds: iterations of a direction and a line search along it.

Input: an objective, a method's parts, the first point. Output: the last state. A point is a vector of tensors, in the
sense of ``quasi_newton``, whose direction and line search L-BFGS uses.

    L-BFGS       directions and line search are those of ``quasi_newton``
    Newton-CG    Nocedal and Wright, Numerical Optimization, 2nd ed., Algorithm 7.1: conjugate gradients on the Newton
                 equations, ended early, or where the curvature is negative
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.functions.minimization.watching import told
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.optim.quasi_newton import (
    Pairs,
    State,
    Vector,
    choose,
    dot,
    first_step,
    is_finite,
    largest,
    least_curvature,
    length,
    line_search,
    minus,
    plus,
    times,
)

RUNNING, FLAT, STILL, STUCK, INVALID, ENDED, STOPPED = range(7)  # how it stands with a search


class Objective(Protocol):
    """A function to be minimized, which declares its value, gradient and curvature."""

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]: ...

    def hvp(self, x: Vector, v: Vector) -> Vector:
        """The product of the Hessian at ``x`` with ``v``."""
        ...


class Advance(Protocol):
    """A method's way from point to point. ``state`` has the point ``x``, its ``f`` and ``g``, and the ``memory``."""

    def memory(self, x: Vector) -> Any:
        """The first memory."""
        ...

    def direction(self, objective: Objective, state: State) -> tuple[Vector, Tensor, Tensor | None]:
        """The direction, the first step along it, and the longest that is allowed."""
        ...

    def downhill(self, x: Vector, g: Vector) -> Vector:
        """The direction where that of the method does not fall; 0 at a minimum."""
        ...

    def remembered(self, memory: Any, step: Vector, change: Vector, falls: Tensor) -> Any:
        """With a step and the change of the gradient along it; ``falls``: whether the method's direction did."""
        ...


@frozen(eq=False)
class Limits:
    """The ends of a search: the gradient that is flat, the change of the value that is none, the number of iterations;
    and what of a point a callback is told, None without one."""

    gtol: Tensor
    ftol: Tensor
    maxiter: Tensor
    report: Callable[[Any], Sequence[Tensor]] | None

    def told(self, status: Tensor, s: State) -> Tensor:
        """The standing of a search after an iteration to a new state."""
        if self.report is None:
            return status
        stop = told(s["f"], s["f"], s["nit"], s["nfev"], self.report(s["x"]))
        return O.where(stop, STOPPED, status)


def descend(objective: Objective, steps: Advance, x: Vector, limits: Limits) -> State:
    """Iterations until one of the reasons to end."""
    f, g = objective.value_and_grad(x)
    is_flat = largest(steps.downhill(x, g)) <= limits.gtol
    status = O.where(is_finite(f, g), O.where(is_flat, FLAT, RUNNING), INVALID)

    def turn(s: State) -> State:
        d, first, longest = steps.direction(objective, s)
        down = steps.downhill(s["x"], s["g"])
        falls = dot(s["g"], d) < 0  # false for NaN
        d = choose(falls, d, down)
        slope = dot(s["g"], d)
        a, f, g, evaluated = line_search(
            objective.value_and_grad, s["x"], d, s["f"], s["g"], slope, first,
            longest=None if longest is None else O.where(falls, longest, 1.0),
        )  # fmt: skip
        change = (s["f"] - f) / O.maximum(O.maximum(O.abs(s["f"]), O.abs(f)), 1.0)
        x = plus(s["x"], a, d)
        is_flat = largest(steps.downhill(x, g)) <= limits.gtol
        ended = O.where(is_flat, FLAT, O.where(change <= limits.ftol, STILL, RUNNING))
        new = {
            "x": x, "f": f, "g": g, "nit": s["nit"] + 1, "nfev": s["nfev"] + evaluated,
            "memory": steps.remembered(s["memory"], times(a, d), minus(g, s["g"]), falls),
        }  # fmt: skip
        return new | {"status": limits.told(O.where(a > 0, ended, STUCK), new)}

    begun = {"x": x, "f": f, "g": g, "nit": 0, "nfev": 1, "memory": steps.memory(x), "status": status}
    last: State = O.while_loop(lambda s: O.logical_and(s["status"] == RUNNING, s["nit"] < limits.maxiter), turn, begun)
    return {name: last[name] for name in ("x", "f", "g", "nit", "nfev", "status")}


@frozen
class LimitedMemory:
    """L-BFGS, with the last steps and changes of the gradient."""

    history: int

    def memory(self, x: Vector) -> Any:
        return Pairs.none(x, self.history).state()

    def direction(self, objective: Objective, state: State) -> tuple[Vector, Tensor, Tensor | None]:
        pairs = Pairs(**state["memory"])
        return pairs.direction(state["g"]), O.where(pairs.begun, 1.0, first_step(state["g"])), None

    def downhill(self, x: Vector, g: Vector) -> Vector:
        return times(-1.0, g)

    def remembered(self, memory: Any, step: Vector, change: Vector, falls: Tensor) -> Any:
        # Where the direction was of no use all pairs are forgotten.
        pairs = Pairs(**memory).forgotten(O.logical_not(falls))
        return pairs.entered(step, change, least_curvature(step, change)).state()


class NewtonCG:
    """Newton's steps as far as conjugate gradients go."""

    def memory(self, x: Vector) -> Any:
        return ()

    def direction(self, objective: Objective, state: State) -> tuple[Vector, Tensor, Tensor | None]:
        return _newton_direction(objective, state), O.ones_like(state["f"]), None

    def downhill(self, x: Vector, g: Vector) -> Vector:
        return times(-1.0, g)

    def remembered(self, memory: Any, step: Vector, change: Vector, falls: Tensor) -> Any:
        return memory


def _newton_direction(objective: Objective, state: State) -> Vector:
    x, g = state["x"], state["g"]
    size = length(g)
    enough = O.minimum(0.5, O.sqrt(size)) * size
    most = 20 * max(1, sum(int(np.prod(part.shape)) for part in x))
    eps = 3 * np.finfo(x[0].dtype).eps

    def turn(s: State) -> State:
        hp = objective.hvp(x, s["p"])
        curvature, rr = dot(s["p"], hp), dot(s["r"], s["r"])
        curved = curvature > eps * dot(s["p"], s["p"])
        a = rr / O.where(curved, curvature, 1.0)
        z = choose(curved, plus(s["z"], a, s["p"]), choose(s["count"] == 0, s["p"], s["z"]))
        r = choose(curved, plus(s["r"], a, hp), times(0.0, s["r"]))  # without curvature there is nothing left to do
        p = plus(times(-1.0, r), dot(r, r) / rr, s["p"])
        return {"z": z, "r": r, "p": p, "count": s["count"] + 1}

    def goes_on(s: State) -> Tensor:
        return O.logical_and(length(s["r"]) > enough, s["count"] < most)

    begun = {"z": times(0.0, x), "r": g, "p": times(-1.0, g), "count": 0}
    last: State = O.while_loop(goes_on, turn, begun)
    z: Vector = last["z"]
    return z
