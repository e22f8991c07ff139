"""Trust regions for sums of squares: which step a method proposes, and what follows from how good it was.

Input: residuals f (m,) and their Jacobian J (m, n) at a point, both tensors. Output: steps of at most the length that
is trusted, in the variables' scale, until one lowers the cost ‖f‖²/2. ``least_squares`` makes its loop of these.

    Levenberg   J. J. Moré, The Levenberg-Marquardt algorithm: implementation and theory, Numerical Analysis (ed.
                Watson), 1978: what MINPACK's ``lmder`` does, with its constants and its reasons to end
    Reflective  M. A. Branch, T. F. Coleman & Y. Li, A subspace, interior, and conjugate gradient method for
                large-scale bound-constrained minimization problems, SIAM J. Sci. Comput. 21 (1999), as SciPy's ``trf``
                has it: points stay inside the bounds, variables are scaled by how far the bound is towards which they
                move, and a step that would leave is cut, reflected, or goes along the gradient, whichever is best

Both ask for the step of the least ‖J·p + f‖ with ‖p‖ ≤ Δ in scaled variables. J, with f as one more column, becomes
triangular by Householder reflections, and the triangle's singular values (T. F. Chan, An improved algorithm for
computing the singular value decomposition, 1982) give ‖p‖ as a function of the damping, whose equation ‖p‖ = Δ is
solved by Moré's safeguarded Newton steps. JᵀJ is never formed, so that nearly dependent columns keep their digits.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.optim.quasi_newton import State

RUNNING, FLAT, VALUE_STILL, STEP_STILL, BOTH_STILL, ENDED, INVALID, STOPPED = range(8)
DAMPINGS = 10  # that are tried for one step
FACTOR = 100.0  # times the length of the first point is trusted at first, by Moré
LEAST_REDUCTION = 1e-4  # of the predicted one that a step has to achieve, by Moré


def norm(x: Tensor) -> Tensor:
    return O.sqrt(O.sum(x * x))


def first_of(*cases: tuple[Tensor, int]) -> Tensor:
    """The number of the first condition that holds, ``RUNNING`` if none does."""
    found: Tensor | int = RUNNING
    for condition, number in reversed(cases):
        found = O.where(condition, number, found)
    assert isinstance(found, Tensor)
    return found


def is_over(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where b is 0."""
    return O.where(b != 0, a / O.where(b != 0, b, 1.0), 0.0)


# -- the step of a given length ---------------------------------------------------------------------------------------


@frozen(eq=False)
class Triangle:
    """A linear model ‖A·p + f‖ of residuals, by the triangle R of A = Q·R.

    Attributes:
        r: (n, n), upper triangular.
        values: (n,), the singular values of A in descending order.
        rows: (n, n), the right singular vectors.
        parts: (n,), f by left singular vectors.
    """

    r: Tensor
    values: Tensor
    rows: Tensor
    parts: Tensor

    @staticmethod
    def of(a: Tensor, f: Tensor) -> Triangle:
        rows, n = a.shape
        both = O.concat([a, f[:, None]], axis=1)
        if isinstance(rows, int) and rows <= n:
            both = O.concat([both, O.zeros((n + 1 - rows, n + 1), dtype=a.dtype)])
        r = O.qr(both).R
        u, values, vectors = O.svd(r[:n, :n], full_matrices=False)
        return Triangle(r[:n, :n], values, vectors, O.sum(u * r[:n, n:], axis=0))

    def square(self, p: Tensor) -> Tensor:
        """‖A·p‖²"""
        product = self.times(p)
        return O.sum(product * product)

    def times(self, p: Tensor) -> Tensor:
        """A·p, turned: lengths and angles are as they are there."""
        return O.sum(self.r * p, axis=1)

    def step(self, radius: Tensor, damping: Tensor, tolerance: float, as_minpack: bool) -> tuple[Tensor, Tensor]:
        """The step within the radius and its damping, 0 where it needs none; a damped one is as long as the radius to
        the tolerance. ``damping``: where the search for it begins.

        ``as_minpack``: an undamped step may be longer by the tolerance, the search does not begin below a step from 0,
        and the damping is the last one that was tried; else it is one step of Newton better.
        """
        s, sf = self.values, self.values * self.parts
        eps = float(np.finfo(s.dtype).eps) * s.size
        known = O.logical_and(s > eps * s[0], s > 0)
        undamped = O.where(known, self.parts / O.where(known, s, 1.0), 0.0)
        fits = norm(undamped) <= (1.0 + tolerance if as_minpack else 1.0) * radius

        def excess(damping: Tensor) -> tuple[Tensor, Tensor]:
            """By how much the step of this damping is longer than the radius, and Newton's step for that."""
            denominator = s * s + damping
            length = norm(is_over(sf, denominator))
            slope = -O.sum(is_over(sf * sf, denominator * denominator * denominator))
            return length - radius, is_over((length - radius) * length, slope)

        def bettered(at: Tensor, over: Tensor, newton: Tensor) -> Tensor:
            """The next damping, by a step for the reciprocal of the length."""
            return at - (over + radius) / radius * newton

        over, newton = excess(0.0 * radius)
        low = O.where(known[-1], bettered(0.0 * radius, over, newton) if as_minpack else -newton, 0.0)
        high = norm(sf) / radius

        def turn(state: State) -> State:
            low, high, at = state["low"], state["high"], state["at"]
            outside = O.logical_or(O.logical_or(at < low, at > high), at <= 0)
            at = O.where(outside, O.maximum(0.001 * high, O.sqrt(low * high)), at)
            over, newton = excess(at)
            found = O.abs(over) <= tolerance * radius
            next_at = bettered(at, over, newton)
            return {
                "low": O.maximum(low, at - newton), "high": O.where(over < 0, at, high),
                "at": O.where(found, at, next_at) if as_minpack else next_at, "count": state["count"] + 1,
                "found": found,
            }  # fmt: skip

        begun = {"low": low, "high": high, "at": O.clip(damping, low, high) if as_minpack else damping, "count": 0,
                 "found": fits}  # fmt: skip
        last: State = O.while_loop(
            lambda state: O.logical_and(O.logical_not(state["found"]), state["count"] < DAMPINGS), turn, begun
        )
        at = O.where(fits, 0.0, O.maximum(last["at"], 0.0))
        by_value = O.where(fits, undamped, is_over(sf, s * s + at))
        return -O.sum(self.rows * by_value[:, None], axis=0), at


# -- methods ----------------------------------------------------------------------------------------------------------


@frozen(eq=False)
class Tolerances:
    """Tolerances that end a search: each a tensor of shape ()."""

    ftol: Tensor
    xtol: Tensor
    gtol: Tensor


@frozen(eq=False)
class Here:
    """A point: the residuals and the Jacobian, scaled for a robust loss, and what follows.

    Attributes:
        x: (n,). ``f``: (m,). ``jacobian``: (m, n). ``g``: (n,), the gradient of the cost.
        cost: of shape ().
        is_first: whether it is the first point.
    """

    x: Tensor
    f: Tensor
    jacobian: Tensor
    g: Tensor
    cost: Tensor
    is_first: Tensor


class LocalModel(Protocol):
    """The residuals near a point, as a method sees them.

    Attributes:
        optimality: a measure of the gradient, 0 at a minimum; the search ends where it is below ``gtol``.
        radius: that is trusted at the point.
        memory: of the method, for the next point.
    """

    optimality: Tensor
    radius: Tensor
    memory: State

    def propose(self, radius: Tensor, damping: Tensor) -> State:
        """A step: its ``x``, and by other names what ``judge`` reads."""
        ...

    def judge(
        self, tried: State, cost: Tensor, finite: Tensor, radius: Tensor, damping: Tensor, limits: Tolerances
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """True if a proposed step with this cost is taken; the next radius and damping; how the search stands."""
        ...


class Method(Protocol):
    """A way to find steps. ``scale``: what a variable's unit is worth, (n,); None: by the columns of the Jacobian."""

    def begin(self, x: Tensor) -> State:
        """The first memory."""
        ...

    def model(self, here: Here, memory: State, radius: Tensor) -> LocalModel: ...


def column_scale(jacobian: Tensor, known: Tensor, is_first: Tensor) -> Tensor:
    """The inverse scale of variables: the largest norms of the columns so far, 1 where they are 0 at first."""
    lengths = O.sqrt(O.sum(jacobian * jacobian, axis=0))
    return O.where(is_first, O.where(lengths == 0, 1.0, lengths), O.maximum(known, lengths))


@frozen(eq=False)
class Levenberg:
    """Moré's method."""

    scale: Tensor | None

    def begin(self, x: Tensor) -> State:
        return {"weights": O.ones_like(x)}

    def model(self, here: Here, memory: State, radius: Tensor) -> LocalModel:
        return _LevenbergModel(here, memory, radius, self.scale)


class _LevenbergModel:
    def __init__(self, here: Here, memory: State, radius: Tensor, scale: Tensor | None) -> None:
        jacobian, is_first = here.jacobian, here.is_first
        weights = column_scale(jacobian, memory["weights"], is_first) if scale is None else 1.0 / scale
        self._weights, self._here = weights, here
        self._size = O.sqrt(2.0 * here.cost)
        self._length = norm(weights * here.x)
        first = O.where(self._length > 0, FACTOR * self._length, FACTOR)
        self.radius = O.where(is_first, first, radius)
        self.memory = {"weights": weights}
        lengths = O.sqrt(O.sum(jacobian * jacobian, axis=0))
        self.optimality = O.max(is_over(O.abs(here.g), self._size * lengths))
        self._triangle = Triangle.of(jacobian / weights, here.f)

    def propose(self, radius: Tensor, damping: Tensor) -> State:
        step, damping = self._triangle.step(radius, damping, 0.1, as_minpack=True)
        return {"x": self._here.x + step / self._weights, "step": step, "damping": damping}

    def judge(
        self, tried: State, cost: Tensor, finite: Tensor, radius: Tensor, damping: Tensor, limits: Tolerances
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        damping, before = tried["damping"], self._size
        length, size = norm(tried["step"]), O.where(finite, O.sqrt(2.0 * cost), np.inf)
        radius = O.where(self._here.is_first, O.minimum(radius, length), radius)
        quotient = is_over(size, before)
        actual = O.where(0.1 * size < before, 1.0 - quotient * quotient, -1.0)
        linear = is_over(self._triangle.square(tried["step"]), before * before)
        damped = is_over(damping * length * length, before * before)
        predicted, slope = linear + 2.0 * damped, -(linear + damped)
        ratio = is_over(actual, predicted)
        factor = O.where(actual >= 0, 0.5, is_over(0.5 * slope, slope + 0.5 * actual))
        factor = O.where(O.logical_or(0.1 * size >= before, factor < 0.1), 0.1, factor)
        is_poor = ratio <= 0.25
        is_good = O.logical_and(O.logical_not(is_poor), O.logical_or(damping == 0, ratio >= 0.75))
        next_radius = O.where(is_poor, factor * O.minimum(radius, 10.0 * length),
                              O.where(is_good, 2.0 * length, radius))  # fmt: skip
        next_damping = O.where(is_poor, damping / factor, O.where(is_good, 0.5 * damping, damping))
        taken = ratio >= LEAST_REDUCTION
        reached = O.where(taken, norm(self._weights * tried["x"]), self._length)
        still = O.logical_and(O.logical_and(O.abs(actual) <= limits.ftol, predicted <= limits.ftol), ratio <= 2)
        short = next_radius <= limits.xtol * reached
        return taken, next_radius, next_damping, _settled(still, short)


@frozen(eq=False)
class Reflective:
    """The interior trust region with reflections. ``bounds``: lower and upper ones, (n,) each; None: there are none."""

    scale: Tensor | None
    bounds: tuple[Tensor, Tensor] | None
    is_scaled: bool  # by the columns of the Jacobian

    def begin(self, x: Tensor) -> State:
        return {"weights": O.ones_like(x)}

    def model(self, here: Here, memory: State, radius: Tensor) -> LocalModel:
        if self.is_scaled:
            weights = column_scale(here.jacobian, memory["weights"], here.is_first)
        else:
            weights = O.ones_like(here.x) if self.scale is None else 1.0 / self.scale
        return _ReflectiveModel(here, weights, radius, self.bounds)


class _ReflectiveModel:
    def __init__(self, here: Here, weights: Tensor, radius: Tensor, bounds: tuple[Tensor, Tensor] | None) -> None:
        x, g, jacobian = here.x, here.g, here.jacobian
        self._here, self._bounds = here, bounds
        self.memory = {"weights": weights}
        if bounds is None:
            self._unit, rows, f = 1.0 / weights, jacobian / weights, here.f
            self.optimality = O.max(O.abs(g))
            start = norm(x * weights)
        else:
            distance, change = _distances(x, g, *bounds)
            self.optimality = O.max(O.abs(g * distance))
            distance = O.where(change != 0, distance * weights, distance)
            self._unit = O.sqrt(distance) / weights
            curvature = g * change / weights
            rows = O.concat([jacobian * self._unit, O.diag(O.sqrt(curvature))])
            f = O.concat([here.f, O.zeros_like(x)])
            start = norm(x * weights / O.sqrt(distance))
        self._slope = self._unit * g
        self._triangle = Triangle.of(rows, f)
        self.radius = O.where(here.is_first, O.where(start > 0, start, 1.0), radius)

    def propose(self, radius: Tensor, damping: Tensor) -> State:
        step, damping = self._triangle.step(radius, damping, 0.01, as_minpack=False)
        length = norm(step)
        step = O.where(damping > 0, step * is_over(radius, length), step)
        x, unit = self._here.x, self._unit
        if self._bounds is None:
            return {"x": x + unit * step, "step": step, "damping": damping, "value": self._value(step)}
        step, value = self._inside(step, radius)
        return {"x": _strictly_inside(x + unit * step, *self._bounds), "step": step, "damping": damping, "value": value}

    def _value(self, step: Tensor) -> Tensor:
        """The change of the cost by the model."""
        return 0.5 * self._triangle.square(step) + O.sum(self._slope * step)

    def _inside(self, step: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """The best of the step, if it stays between the bounds, or of the step that is cut before it meets one, its
        reflection there, and the way down the gradient; and the change of the cost by the model."""
        assert self._bounds is not None
        lower, upper = self._bounds
        x, unit, slope, triangle = self._here.x, self._unit, self._slope, self._triangle
        back = O.maximum(0.995, 1.0 - self.optimality)  # how near to a bound a step goes
        moved = unit * step
        stays = O.all(O.logical_and(x + moved >= lower, x + moved <= upper))

        part, hits = _to_bound(x, moved, lower, upper)
        part = O.where(stays, 1.0, part)
        cut = part * step
        turned = O.where(hits, -step, step)
        far, _ = _to_bound(x + unit * cut, unit * turned, lower, upper)
        square, inner = O.sum(turned * turned), O.sum(cut * turned)
        room = O.maximum(radius * radius - O.sum(cut * cut), 0.0)
        root = O.sqrt(inner * inner + square * room)
        edge = is_over(O.where(inner > 0, room, root - inner), O.where(inner > 0, inner + root, square))
        most = O.minimum(far, edge)
        least = O.where(most > 0, is_over((1.0 - back) * part, most), 0.0)
        most = O.where(most > 0, O.where(far <= edge, back * far, edge), -1.0)
        along, before = triangle.times(turned), triangle.times(cut)
        stride, change = _lowest(
            0.5 * O.sum(along * along), O.sum(slope * turned) + O.sum(before * along), least, O.maximum(most, least)
        )
        reflected_value = O.where(least <= most, self._value(cut) + change, np.inf)
        reflected = cut + stride * turned

        cut = back * cut
        down = -slope
        wall, _ = _to_bound(x, unit * down, lower, upper)
        end = is_over(radius, norm(down))
        end = O.where(wall < end, back * wall, end)
        stride, down_value = _lowest(0.5 * triangle.square(down), O.sum(slope * down), 0.0 * end, end)
        cut_value = self._value(cut)

        takes_cut = O.logical_and(cut_value < reflected_value, cut_value < down_value)
        takes_reflected = O.logical_and(reflected_value < cut_value, reflected_value < down_value)
        found = O.where(takes_cut, cut, O.where(takes_reflected, reflected, stride * down))
        value = O.where(takes_cut, cut_value, O.where(takes_reflected, reflected_value, down_value))
        return O.where(stays, step, found), O.where(stays, self._value(step), value)

    def judge(
        self, tried: State, cost: Tensor, finite: Tensor, radius: Tensor, damping: Tensor, limits: Tolerances
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        length, predicted = norm(tried["step"]), -tried["value"]
        actual = O.where(finite, self._here.cost - cost, -1.0)
        nothing = O.logical_and(predicted == 0, actual == 0)
        ratio = O.where(nothing, 1.0, O.where(predicted > 0, is_over(actual, predicted), 0.0))
        is_poor = O.logical_or(ratio < 0.25, O.logical_not(finite))
        is_good = O.logical_and(ratio > 0.75, length > 0.95 * radius)
        next_radius = O.where(is_poor, 0.25 * length, O.where(is_good, 2.0 * radius, radius))
        next_damping = O.where(finite, tried["damping"] * is_over(radius, next_radius), tried["damping"])
        x = self._here.x
        still = O.logical_and(actual < limits.ftol * self._here.cost, ratio > 0.25)
        short = norm(tried["x"] - x) < limits.xtol * (limits.xtol + norm(x))
        settled = O.where(finite, _settled(still, short), RUNNING)
        return actual > 0, next_radius, next_damping, settled


def _settled(still: Tensor, short: Tensor) -> Tensor:
    return first_of((O.logical_and(still, short), BOTH_STILL), (still, VALUE_STILL), (short, STEP_STILL))


# -- bounds -----------------------------------------------------------------------------------------------------------


def _distances(x: Tensor, g: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The distances of the bounds towards which each variable moves down, 1 where there is none, and the derivative of
    that."""
    up = O.logical_and(g < 0, O.isfinite(upper))
    down = O.logical_and(g > 0, O.isfinite(lower))
    distance = O.where(up, upper - x, O.where(down, x - lower, 1.0))
    return distance, O.where(up, -1.0, O.where(down, 1.0, 0.0 * x))


def _to_bound(x: Tensor, step: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The part of a step up to the first bound, infinite if there is none, and which variables meet one there."""
    moves = step != 0
    safe = O.where(moves, step, 1.0)
    parts = O.where(moves, O.maximum((lower - x) / safe, (upper - x) / safe), np.inf)
    least = O.min(parts)
    return least, parts == least


def _strictly_inside(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The next number inside for what is at a bound or behind it, the middle where there is none."""
    inside = O.where(x <= lower, O.nextafter(lower, upper), O.where(x >= upper, O.nextafter(upper, lower), x))
    tight = O.logical_or(inside < lower, inside > upper)
    return O.where(tight, 0.5 * (O.where(tight, lower, 0.0) + O.where(tight, upper, 0.0)), inside)


def _lowest(a: Tensor, b: Tensor, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
    """The t between two numbers at which a·t² + b·t is lowest, and its value there."""
    middle = O.clip(O.where(a > 0, -0.5 * is_over(b, a), least), least, most)
    best, value = middle, middle * (a * middle + b)
    for t in (least, most):
        other = t * (a * t + b)
        best, value = O.where(other < value, t, best), O.minimum(other, value)
    return best, value
