"""Iterations that find roots and fixed points, as loops of the program.

Input: a function that declares the residual of a vector (of a fixed point: F(x) - x), and where to begin.
Output: the last point with its residual, how the iteration ended, and how many steps it took. Nothing of an iteration
is derived; what its result depends on, ``implicit`` says.

    newton       J·d = -f, with shorter steps towards the steepest descent of ‖f‖² as far as the linear model is
                 trusted: Powell, A Hybrid Method for Nonlinear Equations (1970), with the scale and radius of MINPACK
                 (Moré, Garbow and Hillstrom, User Guide for MINPACK-1, 1980)
    broyden      the same with a J, and its inverse, that each step corrects: Broyden, A Class of Methods for Solving
                 Nonlinear Simultaneous Equations (1965), the first of its methods
    bracket      Chandrupatla, A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function
                 without using derivatives (1997), element by element
    repeated     x = F(x), again and again
    anderson     the same with the last differences combined: Walker and Ni, Anderson Acceleration for Fixed-Point
                 Iterations (2011)

Newton's and Broyden's methods end where a whole step of Newton's, the estimate of the error that remains before it, is
below the tolerance. Broyden's approximate step is checked by one product with the Jacobian: a step d with
‖J·d + f‖ ≤ ‖f‖/10 is an inexact Newton step (Dembo, Eisenstat and Steihaug, 1982).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import bool_
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.ops.linalg.elimination import inv, system_solution

Function = Callable[[Tensor], Tensor]
State = dict[str, Any]

CONVERGED, ENDED, STUCK, INVALID = 0, 1, 2, 3  # how an iteration ended
RUNNING = -1
FALL = 1e-4  # of what the model says has to come about at least
SHORTEST = 0.1  # the next step that is tried, of one at which the residual is not finite
SEARCHED, FEW = 60, 3  # steps that are tried along a model at most; along one of an approximate Jacobian
FIRST = 100.0  # the radius within which a model is trusted at first, of the distance of x from zero
INEXACT = 0.1  # of a residual that an approximate step of Newton's may leave
GROWTH = 4.0  # of ‖f‖² by one step of Anderson's method, which begins anew then
RIDGE = 1e-10  # of the normal equations of Anderson's method, relative to their trace


@frozen(eq=False)
class Found:
    """The end of an iteration: the point and its residual, the status, the steps that were taken, and how many
    residuals and Jacobians were computed."""

    x: Tensor
    residual: Tensor
    status: Tensor
    steps: Tensor
    evaluations: Tensor
    jacobians: Tensor


@frozen
class StoppingRule:
    """The end of an iteration: at an error of ``atol`` + ``rtol``·‖x‖, or after ``steps``."""

    rtol: float
    atol: float
    steps: int

    def near(self, x: Tensor, size: Tensor) -> Tensor:
        """True where ``size`` is below the error that is allowed at ``x``."""
        return size <= self.atol + self.rtol * largest(x)


@frozen(eq=False)
class JacobianAt:
    """A Jacobian as what it does to a vector: it is solved with, multiplied by, and multiplied by transposed; and the
    lengths of its columns, or what stands for them."""

    solve: Function
    times: Function
    transposed: Function
    scale: Tensor


def largest(x: Tensor) -> Tensor:
    """The largest magnitude of an element of a vector."""
    return O.max(O.abs(x))


def square(x: Tensor) -> Tensor:
    return O.sum(x * x)


def solved(j: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """The x with J·x = b, or Jᵀ·x = b, of vectors."""
    return system_solution(j, b[:, None], transposed)[:, 0]


def _count(number: int = 0) -> Tensor:
    return O.constant(number, dtype=np.int64)


def _is_finite(x: Tensor) -> Tensor:
    return O.all(O.isfinite(x))


def _run(turn: Callable[[State], State], x: Tensor, f: Tensor, most: int, **memory: Any) -> Found:
    """Turns over a state of the point, its residual, counts and ``memory``, from one whose residual is known."""
    begun = {
        "x": x, "f": f, "steps": _count(), "evaluations": _count(1), "jacobians": _count(), **memory,
        "status": O.where(_is_finite(f), O.where(O.all(f == 0), CONVERGED, RUNNING), INVALID),
    }  # fmt: skip

    def counted(s: State) -> State:
        return {**s, **turn(s), "steps": s["steps"] + 1}

    last = O.while_loop(lambda s: O.logical_and(s["status"] == RUNNING, s["steps"] < most), counted, begun)
    status = O.where(last["status"] == RUNNING, ENDED, last["status"])
    return Found(last["x"], last["f"], status, last["steps"], last["evaluations"], last["jacobians"])


# -- systems ----------------------------------------------------------------------------------------------------------


def newton(fn: Function, jacobian: Callable[[Tensor], JacobianAt], x0: Tensor, limits: StoppingRule) -> Found:
    """A root of the system ``fn``, whose Jacobian at a point ``jacobian`` declares."""

    def turn(s: State) -> State:
        x, f = s["x"], s["f"]
        linear = jacobian(x)
        scale = O.maximum(s["scale"], linear.scale)
        model = _TrustedModel(f, linear, linear.solve(-f), scale)
        near = O.logical_and(model.is_newton, limits.near(x, largest(model.newton)))
        radius = O.where(s["steps"] == 0, model.first_radius(x), s["radius"])
        step = _step(fn, x, model, radius, near, SEARCHED)
        return {
            **step.state(s), "scale": scale, "jacobians": s["jacobians"] + 1,
            "status": _status(near, step, model, O.logical_not(step.falls)),
        }  # fmt: skip

    return _run(turn, x0, fn(x0), limits.steps, radius=O.zeros((), dtype=x0.dtype), scale=O.zeros_like(x0))


def broyden(
    fn: Function, jacobian: Callable[[Tensor], Tensor], product: Callable[[Tensor, Tensor], Tensor],
    x0: Tensor, limits: StoppingRule,
) -> Found:  # fmt: skip
    """A root of the system ``fn``, whose Jacobian at a point ``jacobian`` declares as a matrix, and its product with a
    vector ``product``. It is computed at first, after a step that failed, and where short steps are not Newton's."""

    def turn(s: State) -> State:
        x, f, stale = s["x"], s["f"], s["stale"]

        def fresh() -> tuple[Tensor, Tensor]:
            j = jacobian(x)
            return j, inv(j)

        j, inverse = O.cond(stale, fresh, lambda: (s["jacobian"], s["inverse"]))
        scale = O.maximum(s["scale"], columns(j))
        model = _TrustedModel(f, _with_inverse(j, inverse), -(inverse @ f), scale)
        close = O.logical_and(model.is_newton, limits.near(x, largest(model.newton)))
        near = O.cond(close, lambda: square(product(x, model.newton) + f) <= INEXACT**2 * square(f), lambda: close)
        radius = O.where(s["steps"] == 0, model.first_radius(x), s["radius"])
        step = _step(fn, x, model, radius, near, O.where(stale, SEARCHED, FEW))
        moved, change = step.x - x, step.f - f
        image = inverse @ change
        curvature, length = O.sum(moved * image), square(moved)
        kept = O.logical_and(step.falls, O.abs(curvature) > float(np.finfo(x.dtype).eps) * length)
        by_length, by_curvature = (O.where(kept, 1.0 / O.where(kept, a, 1.0), 0.0) for a in (length, curvature))
        failed = O.logical_not(step.falls)
        return {
            **step.state(s),
            "scale": scale,
            "jacobian": j + O.outer(change - j @ moved, moved * by_length),
            "inverse": inverse + O.outer(moved - image, (moved @ inverse) * by_curvature),
            "close": close,
            "stale": O.logical_or(failed, O.logical_and(close, s["close"])),
            "jacobians": s["jacobians"] + O.astype(stale, np.int64),
            "status": _status(near, step, model, O.logical_and(failed, stale)),
        }

    none = O.zeros((x0.shape[0], x0.shape[0]), dtype=x0.dtype)
    return _run(
        turn, x0, fn(x0), limits.steps, radius=O.zeros((), dtype=x0.dtype), scale=O.zeros_like(x0),
        jacobian=none, inverse=none, stale=O.ones((), dtype=bool_), close=O.zeros((), dtype=bool_),
    )  # fmt: skip


def columns(j: Tensor) -> Tensor:
    """The lengths of the columns of a matrix."""
    return O.sqrt(O.sum(j * j, axis=0))


def _with_inverse(j: Tensor, inverse: Tensor) -> JacobianAt:
    return JacobianAt(lambda b: inverse @ b, lambda v: j @ v, lambda v: v @ j, columns(j))


class _TrustedModel:
    """The linear model of a residual around a point, and the path of steps that Powell's method takes along it."""

    def __init__(self, f: Tensor, linear: JacobianAt, newton: Tensor, scale: Tensor) -> None:
        """``newton`` is the step that solves it, or would if there were a solution; ``scale`` what one of each unknown
        is worth."""
        self.f = f
        self.scale = O.where(scale > 0, scale, 1.0)
        image = linear.times(newton)
        self.is_newton = square(image + f) <= 0.25 * square(f)  # false for NaN
        self.newton, self._image = O.where(self.is_newton, newton, 0.0), O.where(self.is_newton, image, 0.0)
        slope = linear.transposed(f)
        steepest = slope / (self.scale * self.scale)
        image = linear.times(steepest)
        curvature = square(image)
        length = O.where(curvature > 0, O.sum(slope * steepest) / O.where(curvature > 0, curvature, 1.0), 0.0)
        self._lowest, self._lowest_image = -length * steepest, -length * image
        self._to_newton, self._to_lowest = self.size(self.newton), self.size(self._lowest)

    def size(self, x: Tensor) -> Tensor:
        return O.sqrt(square(self.scale * x))

    def first_radius(self, x: Tensor) -> Tensor:
        size = self.size(x)
        return O.where(size > 0, FIRST * size, FIRST)

    def step(self, radius: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """The step of a length of at most ``radius``, and the residual that the model has there: Newton's if it is
        short enough or a ``whole`` one is asked for; else on the way to the lowest point along the steepest descent,
        and from there to Newton's."""
        is_inside = O.logical_and(self.is_newton, O.logical_or(self._to_newton <= radius, whole))
        near = self._to_lowest >= radius
        between = self.newton - self._lowest
        a, b = square(self.scale * between), O.sum(self.scale * self.scale * between * self._lowest)
        c = O.minimum(self._to_lowest * self._to_lowest - radius * radius, 0.0)
        root = b + O.sqrt(O.maximum(b * b - a * c, 0.0))  # as -c/root, of whose terms none cancel where b > 0
        along = O.where(root > 0, -c / O.where(root > 0, root, 1.0), 1.0)
        along = O.where(self.is_newton, O.clip(along, 0.0, 1.0), 0.0)
        first = O.where(near, radius / O.where(self._to_lowest > 0, self._to_lowest, 1.0), 1.0 - along)
        first = O.where(is_inside, 0.0, first)
        second = O.where(is_inside, 1.0, O.where(near, 0.0, along))
        return (
            first * self._lowest + second * self.newton,
            self.f + first * self._lowest_image + second * self._image,
        )


@frozen(eq=False)
class _ModelStep:
    """A point at which ‖f‖² is lower, its residual, and whether there is one, else where the step began; how many
    points were tried, and how far the model is trusted next."""

    x: Tensor
    f: Tensor
    falls: Tensor
    tried: Tensor
    radius: Tensor

    def state(self, s: State) -> State:
        return {"x": self.x, "f": self.f, "radius": self.radius, "evaluations": s["evaluations"] + self.tried}


def _step(
    fn: Function, x: Tensor, model: _TrustedModel, radius: Tensor, near: Tensor, most: Tensor | int
) -> _ModelStep:
    """A step of the model's, ever shorter until ‖f‖² falls as the model says; if ``near``, the whole step alone."""
    before = square(model.f)
    shortest = float(np.finfo(x.dtype).eps) * model.size(x)

    def turn(s: State) -> State:
        radius = s["radius"]
        moved, left = model.step(radius, near)
        at = x + moved
        here = fn(at)
        value, length = square(here), model.size(moved)
        ratio = (before - value) / (before - square(left))
        falls = O.logical_or(ratio >= FALL, O.logical_and(near, value < before))  # false for NaN
        shorter = O.minimum(radius, length)
        shorter = O.where(O.isfinite(value), 0.5 * shorter, SHORTEST * shorter)
        longer = O.where(ratio >= 0.5, O.maximum(radius, 2.0 * length), radius)
        longer = O.where(O.abs(ratio - 1.0) <= 0.1, 2.0 * length, O.where(ratio < 0.1, 0.5 * length, longer))
        following = O.where(falls, longer, shorter)
        ended = O.logical_or(O.logical_or(falls, near), O.logical_not(shorter > shortest))
        return {
            "radius": following, "x": O.where(falls, at, s["x"]), "f": O.where(falls, here, s["f"]), "falls": falls,
            "tried": s["tried"] + 1, "ended": ended,
        }  # fmt: skip

    no = O.zeros((), dtype=bool_)
    begun = {"radius": radius, "x": x, "f": model.f, "falls": no, "tried": _count(), "ended": no}
    last = O.while_loop(lambda s: O.logical_and(O.logical_not(s["ended"]), s["tried"] < most), turn, begun)
    return _ModelStep(last["x"], last["f"], last["falls"], last["tried"], last["radius"])


def _status(near: Tensor, step: _ModelStep, model: _TrustedModel, stuck: Tensor) -> Tensor:
    """The status after a step; one that is ``stuck`` is at a root as far as rounding lets it be known if Newton's step
    is short."""
    is_root = O.logical_or(near, O.all(step.f == 0))
    half_precision = float(np.finfo(step.x.dtype).eps) ** 0.5
    is_short = O.logical_and(model.is_newton, largest(model.newton) <= half_precision * largest(step.x))
    return O.where(is_root, CONVERGED, O.where(stuck, O.where(is_short, CONVERGED, STUCK), RUNNING))


# -- brackets ---------------------------------------------------------------------------------------------------------


def bracket(fn: Function, low: Tensor, high: Tensor, rtol: float, atol: float | None, most: int) -> Found:
    """A root of each element of ``fn``, which goes element by element, between ``low`` and ``high``.

    ``a`` is the newest point, the root lies between it and ``b``, ``c`` is the point before. The next one is that of
    the inverse parabola through the three where this is increasing between them, else the middle.
    """
    f_low, f_high = fn(low), fn(high)
    least = float(np.finfo(low.dtype).eps) ** 2 * O.abs(high - low) if atol is None else atol
    zero = O.logical_or(f_low == 0, f_high == 0)
    opposite = O.logical_or(zero, O.sign(f_low) * O.sign(f_high) < 0)

    def turn(s: State) -> State:
        a, b, fa, fb = s["a"], s["b"], s["fa"], s["fb"]
        at = a + s["t"] * (b - a)
        f = fn(at)
        same = O.sign(f) == O.sign(fa)
        c, fc = O.where(same, a, b), O.where(same, fa, fb)
        b, fb = O.where(same, b, a), O.where(same, fb, fa)
        a, fa = at, f
        xm, fm = _best(a, b, fa, fb)
        part = (2.0 * rtol * O.abs(xm) + least) / O.abs(b - a)
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        smooth = O.logical_and(phi * phi < xi, (1.0 - phi) * (1.0 - phi) < 1.0 - xi)  # false for NaN
        t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        part = O.minimum(part, 0.5)
        t = O.clip(O.where(smooth, t, 0.5), part, 1.0 - part)
        done = O.logical_or(part >= 0.5, fm == 0)
        new = {"a": a, "b": b, "fa": fa, "fb": fb, "t": t, "steps": s["steps"] + 1,
               "status": O.where(O.isfinite(f), O.where(done, CONVERGED, RUNNING), INVALID)}  # fmt: skip
        runs = s["status"] == RUNNING
        return {name: O.where(runs, new[name], s[name]) if name in new else s[name] + 1 for name in s}

    steps = O.zeros(low.shape, dtype=np.int64)
    begun = {
        "a": high, "b": low, "fa": f_high, "fb": f_low, "t": O.full_like(low, 0.5), "steps": steps, "turns": _count(),
        "status": O.where(opposite, O.where(zero, CONVERGED, RUNNING), INVALID),
    }  # fmt: skip
    last = O.while_loop(lambda s: O.logical_and(O.any(s["status"] == RUNNING), s["turns"] < most), turn, begun)
    x, f = _best(last["a"], last["b"], last["fa"], last["fb"])
    status = O.where(last["status"] == RUNNING, ENDED, last["status"])
    return Found(x, f, status, last["steps"], last["steps"] + 2, O.zeros_like(steps))


def _best(a: Tensor, b: Tensor, fa: Tensor, fb: Tensor) -> tuple[Tensor, Tensor]:
    """The end of a bracket with the smaller residual."""
    first = O.abs(fa) <= O.abs(fb)
    return O.where(first, a, b), O.where(first, fa, fb)


# -- fixed points -----------------------------------------------------------------------------------------------------


def repeated(fn: Function, x0: Tensor, limits: StoppingRule) -> Found:
    """A fixed point of x + ``fn(x)``, by repetition."""

    def turn(s: State) -> State:
        x = s["x"] + s["f"]
        f = fn(x)
        return {"x": x, "f": f, "evaluations": s["evaluations"] + 1, "status": _settled(limits, x, f)}

    return _run(turn, x0, fn(x0), limits.steps)


def anderson(fn: Function, x0: Tensor, limits: StoppingRule, history: int) -> Found:
    """A fixed point of x + ``fn(x)``: the next point combines the last ones so that their residuals cancel."""

    def turn(s: State) -> State:
        x, f = s["x"], s["f"]
        points, residuals = s["points"], s["residuals"]  # differences of the last x and of their residuals, by rows
        products = residuals @ O.matrix_transpose(residuals)
        trace = O.sum(residuals * residuals)
        unit = O.eye(history, dtype=x.dtype)
        weights = solved(products + O.where(trace > 0, RIDGE * trace, 1.0) * unit, residuals @ f)
        mixed = x + f - weights @ (points + residuals)
        at = O.where(_is_finite(mixed), mixed, x + f)
        left = fn(at)
        grew = square(left) > GROWTH * square(f)  # then the last points say nothing of what is near
        points = O.concat([(at - x)[None], points[:-1]])
        residuals = O.concat([(left - f)[None], residuals[:-1]])
        return {
            "x": at, "f": left, "points": O.where(grew, 0.0, points), "residuals": O.where(grew, 0.0, residuals),
            "evaluations": s["evaluations"] + 1, "status": _settled(limits, at, left),
        }  # fmt: skip

    none = O.zeros((history, x0.shape[0]), dtype=x0.dtype)
    return _run(turn, x0, fn(x0), limits.steps, points=none, residuals=none)


def _settled(limits: StoppingRule, x: Tensor, f: Tensor) -> Tensor:
    """The status of a point from which the next one differs by ``f``."""
    return O.where(_is_finite(f), O.where(limits.near(x, largest(f)), CONVERGED, RUNNING), INVALID)
