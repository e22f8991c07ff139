"""``sg.minimize``: a whole optimisation as one program.

Input: a function of tensors to one number, and where to begin. Output: what SciPy's ``minimize`` gives. The loop over
iterations, the line search in it and the function itself are one compiled program that is called once.

    L-BFGS       Liu and Nocedal, On the limited memory BFGS method for large scale optimization, 1989: the product of
                 the inverse Hessian with the gradient, in two loops over the last steps and changes of the gradient
    Newton-CG    Nocedal and Wright, Numerical Optimization, 2nd ed., Algorithm 7.1: conjugate gradients on the Newton
                 equations, ended early, or where the curvature is negative
    line search  the strong Wolfe conditions by bracketing and zooming (Algorithms 3.5 and 3.6) with cubic interpolation
                 (3.59)

All searches end at a point that has been evaluated and is no worse than the one before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.errors import GraphError
from staticgrad.frozen import frozen
from staticgrad.functions import ArrayFunction, value_and_grad
from staticgrad.graph import Tensor
from staticgrad.optable import FUNCTIONS as O
from staticgrad.optable import Array

Method = Literal["lbfgs", "newton-cg"]
ValueAndGrad = Callable[[Tensor], tuple[Tensor, Tensor]]

ARMIJO, CURVATURE = 1e-4, 0.9  # the constants of the Wolfe conditions, for quasi-Newton steps
SEARCHED = 25  # evaluations of one line search
FURTHER = 4.0  # times as long is the next step while the value falls
INSIDE = 0.1  # of the bracket: nearer to its ends no point is tried, but where the value at the high end is not finite
TOLERANCES = {"float64": (1e-5, 2.2e-9), "float32": (1e-4, 1e-6)}  # gtol and ftol, where none are given
BRACKETING, ZOOMING, FOUND = 0, 1, 2  # stages of a line search
RUNNING, FLAT, STILL, STUCK, INVALID, ENDED = range(6)  # how it stands with an optimisation
MESSAGES = {
    FLAT: "the gradient is below gtol",
    STILL: "the value changed by less than ftol",
    STUCK: "the line search found no lower value",
    INVALID: "the value or the gradient at x0 is not finite",
    ENDED: "maxiter iterations were made",
}


@frozen(eq=False)
class OptimizeResult:
    """The outcome of an optimisation, under SciPy's names.

    Attributes:
        x: the best point. ``fun`` and ``jac``: the value and the gradient there.
        nit: iterations; ``nfev``: evaluations of the value with its gradient.
        success: whether a tolerance was reached; ``status`` is 0 then; ``message`` says in words how it ended.
    """

    x: Array
    fun: Array
    jac: Array
    nit: int
    nfev: int
    success: bool
    status: int
    message: str


_KNOWN: weakref.WeakKeyDictionary[Callable[..., Any], dict[object, ArrayFunction]] = weakref.WeakKeyDictionary()


def minimize(
    fn: Callable[..., Any],
    x0: Any,
    method: Method = "lbfgs",
    *,
    args: Sequence[Any] = (),
    gtol: float | None = None,
    ftol: float | None = None,
    maxiter: int = 1000,
    history: int = 10,
    num_threads: int | None = None,
) -> OptimizeResult:
    """Find a minimum of a function of one array.

    The function, its gradient and the search are one program, which is called once: between two evaluations
    nothing runs in Python. Calls with the same ``fn``, shapes and options compile nothing.

    Args:
        fn: ``fn(x, *args)`` declares one floating number from tensors.
        x0: where to begin: a floating array of any shape; x has that shape.
        method: ``"lbfgs"``, or ``"newton-cg"``, which also multiplies by the Hessian.
        args: further operands of ``fn``, arrays or nests of them, by which it isn't derived.
        gtol: the largest magnitude of an element of the gradient at which the search ends; default: 1e-5, of float32
            1e-4.
        ftol: the change of the value, of the larger of 1 and its magnitude, at which it ends; default: 2.2e-9, of
            float32 1e-6.
        maxiter: iterations at most.
        history: pairs of steps that L-BFGS remembers.
        num_threads: of the session.

    Raises:
        GraphError: an unknown method, an x0 that is not floating.
        GradientError: ``fn`` gives no lone floating number.

    Example:
        >>> def rosenbrock(x):
        ...     return sg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
        >>> found = sg.minimize(rosenbrock, np.zeros(4))
        >>> found.success, np.round(found.x, 4)
        (True, array([1., 1., 1., 1.]))
        >>> sg.minimize(rosenbrock, np.zeros(4), method="newton-cg").nit < 50
        True
    """
    if method not in ("lbfgs", "newton-cg"):
        raise GraphError(f"minimize: expected a method of 'lbfgs', 'newton-cg', actual {method!r}")
    start = np.asarray(x0)
    if start.dtype.name not in TOLERANCES:
        raise GraphError(f"minimize: x0: expected float32 or float64, actual {start.dtype}")
    near, small = TOLERANCES[start.dtype.name]
    limits = [near if gtol is None else gtol, small if ftol is None else ftol]
    options = (method, history, num_threads)
    program = _program(fn, options)
    tolerances = np.array(limits, start.dtype)
    got = program(start, tolerances, np.array(maxiter), tuple(args))
    status = int(got["status"]) or ENDED
    reached = status in (FLAT, STILL)
    counts = int(got["nit"]), int(got["nfev"])
    return OptimizeResult(
        got["x"], got["f"], got["g"], *counts, reached, 0 if reached else status, MESSAGES[status]
    )  # fmt: skip


def _program(fn: Callable[..., Any], options: tuple[Any, ...]) -> ArrayFunction:
    """The function of arrays that searches with these options, the one of earlier calls if ``fn`` was there."""
    known = _KNOWN.setdefault(fn, {})
    if options not in known:
        method, history, threads = options
        weak = weakref.ref(fn)  # what is kept under the function must not keep it

        def search(x: Tensor, tolerances: Tensor, maxiter: Tensor, args: tuple[Any, ...]) -> dict[str, Tensor]:
            function = weak()
            assert function is not None
            both = value_and_grad(function)
            step = _lbfgs(history) if method == "lbfgs" else _newton_cg
            return _search(lambda at: both(at, *args), step, x, tolerances, maxiter)

        known[options] = ArrayFunction(search, (), {"num_threads": threads})
    return known[options]


# -- searches ---------------------------------------------------------------------------------------------------------


State = dict[str, Any]
# From the function and a state: the direction, the first step along it, what is remembered of it.
Step = tuple[Callable[[ValueAndGrad, State], tuple[Tensor, Tensor]], Callable[[Tensor], Any], Callable[..., Any]]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return O.sum(a * b)


def _largest(x: Tensor) -> Tensor:
    return O.max(O.abs(x)) if x.size else O.sum(O.abs(x))


def _search(fg: ValueAndGrad, step: Step, x: Tensor, tolerances: Tensor, maxiter: Tensor) -> dict[str, Tensor]:
    """Iterations until one of the reasons to end."""
    direction, first_memory, remember = step
    gtol, ftol = tolerances[0], tolerances[1]
    f, g = fg(x)
    finite = O.logical_and(O.isfinite(f), O.all(O.isfinite(g)))
    status = O.where(finite, O.where(_largest(g) <= gtol, FLAT, RUNNING), INVALID)

    def turn(s: State) -> State:
        d, first = direction(fg, s)
        slope = _dot(s["g"], d)
        falls = slope < 0
        d, slope = O.where(falls, d, -s["g"]), O.where(falls, slope, -_dot(s["g"], s["g"]))
        a, f, g, evaluated = _line_search(fg, s["x"], d, s["f"], s["g"], slope, first)
        change = (s["f"] - f) / O.maximum(O.maximum(O.abs(s["f"]), O.abs(f)), 1.0)
        ended = O.where(_largest(g) <= gtol, FLAT, O.where(change <= ftol, STILL, RUNNING))
        moved = a > 0
        return {
            "x": s["x"] + a * d, "f": f, "g": g, "nit": s["nit"] + 1, "nfev": s["nfev"] + evaluated,
            "status": O.where(moved, ended, STUCK),
            "memory": remember(s["memory"], a * d, g - s["g"], falls),
        }  # fmt: skip

    begun = {
        "x": x, "f": f, "g": g, "nit": 0, "nfev": 1, "status": status, "memory": first_memory(x),
    }  # fmt: skip
    last: State = O.while_loop(lambda s: O.logical_and(s["status"] == RUNNING, s["nit"] < maxiter), turn, begun)
    return {name: last[name] for name in ("x", "f", "g", "nit", "nfev", "status")}


def _lbfgs(history: int) -> Step:
    """Directions from the last steps and changes of the gradient, the newest first."""

    def first_memory(x: Tensor) -> State:
        pairs = O.zeros((history, *x.shape), x.dtype)
        return {"s": pairs, "y": pairs, "rho": O.zeros((history,), x.dtype), "scale": O.zeros((), x.dtype)}

    def direction(fg: ValueAndGrad, state: State) -> tuple[Tensor, Tensor]:
        m, g = state["memory"], state["g"]
        q, alphas = g, []
        for i in range(history):
            alphas.append(m["rho"][i] * _dot(m["s"][i], q))
            q = q - alphas[i] * m["y"][i]
        begun = m["scale"] > 0
        r = O.where(begun, m["scale"], 1.0) * q
        for i in reversed(range(history)):
            r = r + (alphas[i] - m["rho"][i] * _dot(m["y"][i], r)) * m["s"][i]
        # Nothing is known of the scale of the first step but that of the gradient.
        return -r, O.where(begun, 1.0, O.minimum(1.0, 1.0 / O.sum(O.abs(g))))

    def remember(memory: State, s: Tensor, y: Tensor, falls: Tensor) -> State:
        sy, yy = _dot(s, y), _dot(y, y)
        curved = sy > np.finfo(s.dtype).eps * yy
        kept = O.where(falls, memory["rho"], 0.0)  # where the direction was of no use all pairs are forgotten

        def entered(rows: Tensor, row: Tensor) -> Tensor:
            return O.where(curved, O.concat([row[None], rows[:-1]]), rows)

        return {
            "s": entered(memory["s"], s), "y": entered(memory["y"], y),
            "rho": entered(kept, 1.0 / O.where(curved, sy, 1.0)),
            "scale": O.where(curved, sy / O.where(curved, yy, 1.0), memory["scale"]),
        }  # fmt: skip

    return direction, first_memory, remember


def _newton_direction(fg: ValueAndGrad, state: State) -> tuple[Tensor, Tensor]:
    """The Newton step as far as conjugate gradients go."""
    x, g = state["x"], state["g"]
    size = O.sum(O.abs(g))
    enough = O.minimum(0.5, O.sqrt(size)) * size
    most = 20 * max(1, int(np.prod(x.shape)))

    def turn(s: State) -> State:
        at = O.identity(x)
        (hp,) = jvp([fg(at)[1]], [at], [s["p"]])
        curvature, rr = _dot(s["p"], hp), _dot(s["r"], s["r"])
        curved = curvature > 3 * np.finfo(x.dtype).eps * _dot(s["p"], s["p"])
        a = rr / O.where(curved, curvature, 1.0)
        z = O.where(curved, s["z"] + a * s["p"], O.where(s["count"] == 0, s["p"], s["z"]))
        r = O.where(curved, s["r"] + a * hp, 0 * s["r"])  # without curvature there is nothing left to do
        p = -r + _dot(r, r) / rr * s["p"]
        return {"z": z, "r": r, "p": p, "count": s["count"] + 1}

    def goes_on(s: State) -> Tensor:
        return O.logical_and(O.sum(O.abs(s["r"])) > enough, s["count"] < most)

    begun = {"z": 0 * x, "r": g, "p": -g, "count": 0}
    return O.while_loop(goes_on, turn, begun)["z"], O.ones_like(state["f"])


_newton_cg: Step = (_newton_direction, lambda x: (), lambda memory, s, y, falls: memory)


# -- the line search --------------------------------------------------------------------------------------------------


def _line_search(
    fg: ValueAndGrad, x: Tensor, d: Tensor, f0: Tensor, g0: Tensor, slope0: Tensor, first: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A step along ``d`` that fulfils the strong Wolfe conditions, the value and the gradient there, and how many were
    evaluated. If none is found in time it is the lowest point that was; a step of 0 says that there was none.

    ``low`` is the best point so far that falls enough, ``high`` the other end of the bracket; each is a step, a value
    and a slope. The gradient of ``low`` goes along with it.
    """
    zero = 0 * f0

    def turn(s: State) -> State:
        a, low, high = s["a"], s["low"], s["high"]
        f, g = fg(x + a * d)
        here = (a, f, _dot(g, d))
        falls = O.logical_and(f <= f0 + ARMIJO * a * slope0, f < low[1])  # false for NaN
        is_found = O.logical_and(falls, O.abs(here[2]) <= -CURVATURE * slope0)
        is_bracketing = s["stage"] == BRACKETING
        turns = O.where(is_bracketing, here[2] >= 0, here[2] * (high[0] - low[0]) >= 0)
        next_high = _choose(falls, _choose(turns, low, high), here)
        next_low = _choose(falls, here, low)
        goes_further = O.logical_and(is_bracketing, O.logical_and(falls, O.logical_not(turns)))
        stage = O.where(is_found, FOUND, O.where(goes_further, BRACKETING, ZOOMING))
        return {
            "stage": stage, "count": s["count"] + 1, "low": next_low, "high": next_high,
            "a": O.where(goes_further, FURTHER * a, _between(next_low, next_high)),
            "g": O.where(falls, g, s["g"]),
        }  # fmt: skip

    begun = {
        "stage": O.where(slope0 < 0, BRACKETING, FOUND), "count": 0, "low": (zero, f0, slope0),
        "high": (zero, f0, slope0), "a": first, "g": g0,
    }  # fmt: skip
    last: State = O.while_loop(lambda s: O.logical_and(s["stage"] != FOUND, s["count"] < SEARCHED), turn, begun)
    a, f, _ = last["low"]
    return a, f, last["g"], last["count"]


def _choose(condition: Tensor, a: Sequence[Tensor], b: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(O.where(condition, x, y) for x, y in zip(a, b, strict=True))


def _between(low: Sequence[Tensor], high: Sequence[Tensor]) -> Tensor:
    """The minimum of the cubic through the values and slopes of both ends; their middle where there is none inside, a
    point near the low end where the value at the other is not finite."""
    (a, fa, sa), (b, fb, sb) = low, high
    width = b - a
    d1 = sa + sb - 3.0 * (fb - fa) / width
    d2 = O.sign(width) * O.sqrt(d1 * d1 - sa * sb)
    found = b - width * (sb + d2 - d1) / (sb - sa + 2.0 * d2)
    part = (found - a) / width
    inside = O.logical_and(part >= INSIDE, part <= 1 - INSIDE)  # false for NaN
    return O.where(inside, found, a + O.where(O.isfinite(fb), 0.5 * width, INSIDE * width))


__all__ = ["OptimizeResult", "minimize"]
