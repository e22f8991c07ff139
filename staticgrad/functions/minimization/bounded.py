"""Steps between bounds: L-BFGS-B.

Input: a point of one vector x (n,) between bounds, its gradient, the last steps and changes of the gradient. Output: a
direction to a point between the bounds, and how far along it they allow. ``descend`` makes its search of these.

R. H. Byrd, P. Lu, J. Nocedal & C. Zhu, A limited memory algorithm for bound constrained optimization, SIAM J. Sci.
Comput. 16 (1995): the generalised Cauchy point is the first minimum of the quadratic model along the projected gradient
path; what is at a bound there is held, and the model's minimum over all else is the target (direct primal method). It
is projected onto the bounds, or the way to it is cut where it leaves them if the projection does not fall: J. L.
Morales & J. Nocedal, Remark on Algorithm 778, ACM Trans. Math. Softw. 38 (2011).

The model's Hessian is θI − W·M·Wᵀ, W = [Y, θS] (n, 2m). A BFGS update is the same for a step and its change scaled by
one number, so pairs are kept scaled to step·change = 1: M⁻¹ = [[−I, Lᵀ], [L, θSᵀS]], and M follows from the Cholesky
factor of θSᵀS + L·Lᵀ. Rows without a pair are zero, and stay so in M.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.functions.minimization.descent import Objective
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.optim.quasi_newton import State, Vector, choose, dot, least_curvature


@frozen(eq=False)
class Bounded:
    """L-BFGS-B with ``history`` pairs between ``lower`` and ``upper`` (n,)."""

    history: int
    lower: Tensor
    upper: Tensor

    def memory(self, x: Vector) -> Any:
        rows = O.zeros((self.history, *x[0].shape), dtype=x[0].dtype)
        return {"steps": rows, "changes": rows, "filled": O.zeros((self.history,), dtype=x[0].dtype),
                "theta": O.ones((), dtype=x[0].dtype)}  # fmt: skip

    def remembered(self, memory: Any, step: Vector, change: Vector, falls: Tensor) -> Any:
        curvature = dot(step, change)
        curved = curvature > least_curvature(step, change)
        root = O.sqrt(O.where(curved, curvature, 1.0))
        kept = O.where(falls, 1.0, 0.0 * root)  # where the direction was of no use all pairs are forgotten

        def put(rows: Tensor, row: Tensor) -> Tensor:
            rows = rows * kept
            return O.where(curved, O.concat([row[None], rows[:-1]]), rows)

        theta = O.where(curved, dot(change, change) / O.where(curved, curvature, 1.0),
                        O.where(falls, memory["theta"], 1.0))  # fmt: skip
        return {
            "steps": put(memory["steps"], step[0] / root), "changes": put(memory["changes"], change[0] / root),
            "filled": put(memory["filled"], O.ones_like(root)), "theta": theta,
        }  # fmt: skip

    def downhill(self, x: Vector, g: Vector) -> Vector:
        return (self._projected(x[0] - g[0]) - x[0],)

    def _projected(self, x: Tensor) -> Tensor:
        return O.minimum(O.maximum(x, self.lower), self.upper)

    def direction(self, objective: Objective, state: State) -> tuple[Vector, Tensor, Tensor | None]:
        x, g, memory = state["x"][0], state["g"][0], state["memory"]
        begun = memory["filled"][0] > 0
        model = _Quadratic.of(memory)
        cauchy, held, along = self._cauchy_point(x, g, model)
        best = self._minimum_within(x, g, model, cauchy, held, along)
        target = O.where(begun, best, cauchy)
        d = target - x
        safe = O.where(d != 0, d, 1.0)
        room = O.where(d > 0, (self.upper - x) / safe, O.where(d < 0, (self.lower - x) / safe, np.inf))
        longest = O.where(begun, O.maximum(O.min(room), 1.0), 1.0)
        size = O.sqrt(O.sum(d * d))
        # Of the scale nothing is known at first; where everything is bounded the bounds tell of it.
        is_boxed = O.all(O.logical_and(O.isfinite(self.lower), O.isfinite(self.upper)))
        cautious = O.minimum(1.0, 1.0 / O.where(size > 0, size, 1.0))
        first = O.where(O.logical_or(begun, is_boxed), 1.0, cautious)
        return (d,), first, longest

    def _cauchy_point(self, x: Tensor, g: Tensor, model: _Quadratic) -> tuple[Tensor, Tensor, Tensor]:
        """The first minimum of the model along x − t·g between the bounds; whether each element is at a bound there;
        Wᵀ(point − x)."""
        n = x.shape[0]
        assert isinstance(n, int)
        safe = O.where(g != 0, g, 1.0)
        times = O.where(g < 0, (x - self.upper) / safe, O.where(g > 0, (x - self.lower) / safe, np.inf))
        moves = times > 0
        d = O.where(moves, -g, 0.0)
        order = O.argsort(times)
        theta, m = model.theta, model.middle
        slope = -O.sum(d * d)
        p = model.across(d)
        curvature = -theta * slope - O.sum(p * (m @ p))
        least = float(np.finfo(x.dtype).eps) * theta * O.sum(d * d)
        zero = 0.0 * slope

        def goes_on(s: State) -> Tensor:
            """True if the next bound comes before the minimum."""
            next_time = times[order[O.minimum(s["count"], n - 1)]]
            return O.logical_and(s["count"] < n, s["time"] + s["left"] >= next_time)

        def turn(s: State) -> State:
            i = order[s["count"]]
            time, gi = times[i], g[i]
            passed = time - s["time"]
            moved = O.where(gi < 0, self.upper[i], self.lower[i]) - x[i]
            w = model.row(i)
            mw = m @ w
            c = s["c"] + passed * s["p"]
            slope = s["slope"] + passed * s["curvature"] + gi * gi + theta * gi * moved - gi * O.sum(mw * c)
            curvature = s["curvature"] - theta * gi * gi - 2.0 * gi * O.sum(mw * s["p"]) - gi * gi * O.sum(mw * w)
            curvature = O.maximum(curvature, least)
            left = O.maximum(-slope / O.where(curvature > 0, curvature, 1.0), 0.0)
            return {"count": s["count"] + 1, "time": time, "left": left, "slope": slope, "curvature": curvature, "c": c,
                    "p": s["p"] + gi * w}  # fmt: skip

        begun = {
            "count": O.sum(O.where(moves, 0, 1)), "time": zero,
            "left": -slope / O.where(curvature > 0, curvature, 1.0), "slope": slope, "curvature": curvature,
            "c": O.zeros_like(p), "p": p,
        }  # fmt: skip
        last: State = O.while_loop(goes_on, turn, begun)
        time = last["time"] + last["left"]
        point = O.where(moves, self._projected(x + time * d), x)
        held = O.where(moves, times <= time, g != 0)
        point = O.where(O.logical_and(held, moves), O.where(g < 0, self.upper, self.lower), point)
        return point, held, model.across(point - x)

    def _minimum_within(
        self, x: Tensor, g: Tensor, model: _Quadratic, cauchy: Tensor, held: Tensor, along: Tensor
    ) -> Tensor:
        """The minimum of the model over what is not held, moved inside."""
        theta = model.theta
        held = O.logical_or(held, O.logical_or(cauchy <= self.lower, cauchy >= self.upper))
        free = O.where(held, 0.0, O.ones_like(x))
        rest = free * (g + theta * (cauchy - x) - model.back(model.middle @ along))
        v = O.solve(model.inverse - model.gram(free) / theta, model.across(rest))
        step = -rest / theta - free * model.back(v) / (theta * theta)
        projected = self._projected(cauchy + step)
        falls = O.sum((projected - x) * g) < 0
        safe = O.where(step != 0, step, 1.0)
        parts = O.where(step > 0, (self.upper - cauchy) / safe, O.where(step < 0, (self.lower - cauchy) / safe, np.inf))
        cut = self._projected(cauchy + O.minimum(1.0, O.min(parts)) * step)
        (found,) = choose(falls, (projected,), (cut,))
        return O.where(O.isfinite(O.sum(found)), found, cauchy)


@frozen(eq=False)
class _Quadratic:
    """The quadratic model: its Hessian is θI − W·M·Wᵀ.

    Attributes:
        theta: of shape (). ``columns``: Wᵀ, (2m, n).
        inverse: M⁻¹, (2m, 2m). ``middle``: M.
    """

    theta: Tensor
    columns: Tensor
    inverse: Tensor
    middle: Tensor

    @staticmethod
    def of(memory: State) -> _Quadratic:
        steps, changes, filled, theta = (memory[name] for name in ("steps", "changes", "filled", "theta"))
        count = steps.shape[0]
        unit, empty = O.eye(count, dtype=steps.dtype), O.diag(1.0 - filled)
        lower = O.triu(steps @ changes.T, 1)  # the newest pair is the first
        square = theta * (steps @ steps.T) + empty
        factor = O.cholesky(square + lower @ lower.T)
        half = O.solve_triangular(factor, O.concat([lower, unit], axis=1), upper=False)
        below = O.solve_triangular(factor.T, half, upper=True)
        above = lower.T @ below - O.concat([unit, 0.0 * unit], axis=1)
        inverse = O.concat([O.concat([-unit, lower.T], axis=1), O.concat([lower, square], axis=1)])
        return _Quadratic(theta, O.concat([changes, theta * steps]), inverse, O.concat([above, below]))

    def across(self, v: Tensor) -> Tensor:
        """Wᵀv"""
        return O.sum(self.columns * v, axis=1)

    def back(self, v: Tensor) -> Tensor:
        """W·v"""
        return O.sum(self.columns * v[:, None], axis=0)

    def row(self, i: Tensor) -> Tensor:
        """Row i of W."""
        return self.columns[:, i]

    def gram(self, weights: Tensor) -> Tensor:
        """WᵀDW, D diagonal."""
        return (self.columns * weights) @ self.columns.T
