"""Residuals, their Jacobian and the losses that make robust costs of them; the search for the least sum of squares.

Input: residuals as a function of one vector, a method of ``trust_region``, a loss, the first point. Output: a state, of
which ``least_squares`` makes its result. One turn of the outer loop is a point: residuals and Jacobian are evaluated,
the method makes its model, and the inner loop tries steps, of each the residuals alone, until one is taken. When a
reason to end is known the last point is evaluated in one more turn, so that program has the Jacobian in one place.

A robust loss ρ makes the cost s²/2·Σ ρ((f/s)²). Rows of f and J are scaled so that Gauss-Newton steps are those of that
cost: B. Triggs et al., Bundle adjustment — a modern synthesis, Vision Algorithms (2000), 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from staticgrad.base.errors import GradientError
from staticgrad.base.frozen import frozen
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.functions.minimization.trust_region import (
    ENDED,
    FLAT,
    INVALID,
    RUNNING,
    STOPPED,
    Here,
    Method,
    Tolerances,
)
from staticgrad.functions.minimization.watching import told
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.optim.quasi_newton import State

Rho = Callable[[Tensor], Tensor]

LOSSES: dict[str, Rho | None] = {
    "linear": None,
    "soft_l1": lambda z: 2.0 * (O.sqrt(1.0 + z) - 1.0),
    "huber": lambda z: O.where(z <= 1, z, 2.0 * O.sqrt(O.maximum(z, 1.0)) - 1.0),
    "cauchy": O.log1p,
    "arctan": O.atan,
}


class Residuals(Protocol):
    """Residuals (m,) of a vector (n,)."""

    def values(self, x: Tensor) -> Tensor: ...

    def with_jacobian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """They and the (m, n) derivatives."""
        ...

    def shaped(self, f: Tensor) -> Tensor:
        """In the shape that the user gave them."""
        ...


@frozen(eq=False)
class Loss:
    """The function ρ of squared residuals, None for themselves, and the magnitude from which on it matters."""

    rho: Rho | None
    scale: Tensor

    def cost(self, f: Tensor) -> Tensor:
        if self.rho is None:
            return 0.5 * O.sum(f * f)
        z = f / self.scale
        return 0.5 * self.scale * self.scale * O.sum(self._rho(z * z))

    def scaled(self, f: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals and Jacobian whose product is the gradient of the cost, and whose square is near its Hessian."""
        if self.rho is None:
            return f, jacobian
        z = O.identity(O.square(f / self.scale))
        (first,) = gradients(O.sum(self._rho(z)), [z], unconnected_gradients="zero")
        (second,) = gradients(O.sum(first), [z], unconnected_gradients="zero")
        curvature = O.maximum(first + 2.0 * second * z, float(np.finfo(f.dtype).eps))
        root = O.sqrt(curvature)
        return f * first / root, jacobian * root[:, None]

    def _rho(self, z: Tensor) -> Tensor:
        assert self.rho is not None
        found = self.rho(z)
        if not isinstance(found, Tensor) or found.type != z.type:
            shown = found.type if isinstance(found, Tensor) else repr(found)
            raise GradientError(f"least_squares: loss: expected a function of z to ρ(z), {z.type}, actual {shown}")
        return found


def search(
    residuals: Residuals, method: Method, loss: Loss, x: Tensor, limits: Tolerances, max_nfev: Tensor,
    report: Callable[[Tensor], tuple[Tensor, ...]] | None,
) -> State:  # fmt: skip
    """Points until one of the reasons to end. ``report``: makes of a point the tensors that a callback is told."""
    zero = 0.0 * O.sum(x)
    f = O.zeros_like(residuals.values(x))  # read for its shape alone: no code comes of it
    rows = O.zeros((*f.shape, *x.shape), dtype=x.dtype)

    def turn(s: State) -> State:
        x, is_first = s["x"], s["njev"] == 0
        f, jacobian = residuals.with_jacobian(x)
        scaled_f, scaled_jacobian = loss.scaled(f, jacobian)
        g = O.sum(scaled_jacobian * scaled_f[:, None], axis=0)
        cost = loss.cost(f)
        model = method.model(Here(x, scaled_f, scaled_jacobian, g, cost, is_first), s["memory"], s["radius"])
        valid = O.logical_and(O.all(O.isfinite(f)), O.all(O.isfinite(jacobian)))
        status = O.where(O.logical_and(model.optimality <= limits.gtol, s["status"] != STOPPED), FLAT, s["status"])
        status = O.where(O.logical_and(status == RUNNING, s["nfev"] >= max_nfev), ENDED, status)
        status = O.where(valid, status, INVALID)
        goes_on = status == RUNNING

        def attempt(a: State) -> State:
            tried = model.propose(a["radius"], a["damping"])
            f_new = residuals.values(tried["x"])
            finite = O.all(O.isfinite(f_new))
            cost_new = loss.cost(f_new)
            taken, radius, damping, settled = model.judge(tried, cost_new, finite, a["radius"], a["damping"], limits)
            return {
                "x": O.where(taken, tried["x"], x), "f": O.where(taken, f_new, f),
                "cost": O.where(taken, cost_new, cost),
                "taken": taken, "radius": radius, "damping": damping, "status": settled, "nfev": a["nfev"] + 1,
            }  # fmt: skip

        def tries(a: State) -> Tensor:
            may = O.logical_and(a["status"] == RUNNING, a["nfev"] < max_nfev)
            return O.logical_and(may, O.logical_not(a["taken"]))

        a: State = O.while_loop(tries, attempt, {
            "x": x, "f": f, "cost": cost, "taken": O.zeros_like(goes_on), "radius": model.radius,
            "damping": s["damping"], "status": status, "nfev": s["nfev"],
        })  # fmt: skip
        nit = s["nit"] + O.where(goes_on, 1, 0)
        status = a["status"]
        if report is not None:
            stop = told(residuals.shaped(a["f"]), a["cost"], nit, a["nfev"], report(a["x"]), goes_on)
            status = O.where(stop, STOPPED, status)
        return {
            "x": a["x"], "f": f, "jac": scaled_jacobian, "grad": g, "cost": cost, "optimality": model.optimality,
            "radius": a["radius"], "damping": a["damping"], "memory": model.memory, "nfev": a["nfev"],
            "njev": s["njev"] + 1, "nit": nit, "status": status, "done": O.logical_not(goes_on),
        }  # fmt: skip

    begun = {
        "x": x, "f": f, "jac": rows, "grad": O.zeros_like(x), "cost": zero, "optimality": zero, "radius": zero + 1.0,
        "damping": zero, "memory": method.begin(x), "nfev": 1, "njev": 0, "nit": 0, "status": RUNNING, "done": False,
    }  # fmt: skip
    last: State = O.while_loop(lambda s: O.logical_not(s["done"]), turn, begun)
    found = {name: last[name] for name in ("x", "jac", "grad", "cost", "optimality", "nfev", "njev", "nit", "status")}
    return found | {"fun": residuals.shaped(last["f"])}
