"""``sg.least_squares``: the least sum of squared residuals, as one program.

Input: a function of tensors to residuals, or declared residuals, and where to begin. Output: what SciPy's
``least_squares`` gives. The program holds the loop over points, the Jacobian in the cheaper mode, the linear algebra
and the residuals at every step that is tried (``residuals``, ``trust_region``); it is called once. Reading arguments,
the shape of results and a callback's calls are left to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.types import integer, is_floating, number
from staticgrad.compiler.autodiff.forward import jacobian
from staticgrad.functions.minimization.flat import Layout
from staticgrad.functions.minimization.limits import active, moved_inside, require_between, require_order
from staticgrad.functions.minimization.problem import DeclaredValues, Forms, Problem, problem_of
from staticgrad.functions.minimization.residuals import LOSSES, Loss, Residuals, Rho, search
from staticgrad.functions.minimization.results import LeastSquaresResult
from staticgrad.functions.minimization.trust_region import (
    BOTH_STILL,
    ENDED,
    FLAT,
    INVALID,
    STEP_STILL,
    STOPPED,
    VALUE_STILL,
    Levenberg,
    Method,
    Reflective,
    Tolerances,
)
from staticgrad.functions.minimization.watching import watched
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.optable import Array
from staticgrad.optim.quasi_newton import State, Vector
from staticgrad.runtime.session.session import Session

TOLERANCE = {"float64": 1e-8, "float32": 1e-5}  # where none is given
# How a search ended: SciPy's number, and in words.
ENDINGS = {
    FLAT: (1, "the gradient is below gtol"),
    VALUE_STILL: (2, "the cost changed by less than ftol"),
    STEP_STILL: (3, "x changed by less than xtol"),
    BOTH_STILL: (4, "the cost changed by less than ftol, x by less than xtol"),
    ENDED: (0, "max_nfev evaluations were made"),
    INVALID: (-1, "the residuals or their derivatives are not finite at x"),
    STOPPED: (-2, "the callback ended the search"),
}


def least_squares(
    fn: Callable[..., Any] | Tensor,
    x0: Any = None,
    *,
    bounds: Any = None,
    method: Literal["trf", "lm"] = "trf",
    loss: str | Rho = "linear",
    f_scale: float = 1.0,
    args: Sequence[Any] = (),
    wrt: Any = None,
    feeds: Mapping[Tensor, Any] | None = None,
    session: Session | None = None,
    ftol: float | None = None,
    xtol: float | None = None,
    gtol: float | None = None,
    x_scale: Any = None,
    max_nfev: int | None = None,
    callback: Callable[..., Any] | None = None,
    num_threads: int | None = None,
) -> LeastSquaresResult:
    """Find where half the sum of squared residuals is least, between bounds and by a robust loss where these are given.

    The residuals, their Jacobian and the search are one program, which is called once. Calls with the same function or
    residuals, shapes and options compile nothing; data goes into ``args`` or ``feeds``. The Jacobian is derived forward
    or in reverse, whichever takes fewer passes.

    ``"trf"`` is the trust region with reflections of Branch, Coleman and Li (1999), for bounds and robust losses, as
    SciPy has it; ``"lm"`` is Levenberg and Marquardt's method as Moré (1978) and MINPACK have it, for neither.

    Args:
        fn: ``fn(x, *args)`` declares residuals of any shape from tensors; or declared residuals, a floating tensor.
        x0: where to begin, between the bounds: a floating array of any shape; x has that shape. For declared residuals
            a nest like ``wrt`` of arrays; by default the variables' values in ``session``, without one their first
            values.
        bounds: a pair (lower, upper), each None, a number or an array that is broadcast to x, or an object that has
            these as ``lb`` and ``ub``. Lower ones are below upper ones. For declared residuals a nest of that like
            ``wrt``, where names may be missing.
        method: ``"trf"`` or ``"lm"``.
        loss: what becomes of z, the square of a residual over ``f_scale``: ``"linear"`` z, ``"soft_l1"``
            2·(√(1 + z) − 1), ``"huber"`` z up to 1 and then 2·√z − 1, ``"cauchy"`` log(1 + z), ``"arctan"`` atan(z); or
            a function that declares such a one of tensors, from which its derivatives are derived.
        f_scale: from which magnitude on a residual counts as an outlier for the loss.
        args: further operands of ``fn``, arrays or nests of them, by which it isn't derived.
        wrt: by what declared residuals are minimized: a floating variable or placeholder, or a nest of them. Default: a
            dict, by name, of the trainable variables that they depend on.
        feeds: arrays for the placeholders that declared residuals need.
        session: whose values the variables have that they read.
        ftol: ends the search where the cost changed by less than this part of it, as predicted. Default of all three:
            1e-8, of float32 1e-5; 0 is never.
        xtol: ends it where x changed by less than this part of its length.
        gtol: ends it where the largest magnitude of the gradient is below, with bounds each times the distance to the
            bound ahead; of ``"lm"`` the largest cosine of the angle between residuals and a column of the Jacobian.
        x_scale: the magnitude of each element of x, a number or an array like it, or ``"jac"``: by the columns of the
            Jacobian. Default: 1 for ``"trf"``, ``"jac"`` for ``"lm"``.
        max_nfev: evaluations at most; default: 100 times the size of x.
        callback: is called after each iteration: with all that is known as ``intermediate_result`` if that is the name
            of its one argument (x, fun, cost, nit, nfev), else with x. It ends the search by raising ``StopIteration``
            or returning True; what else it raises is raised.
        num_threads: of the session that runs the search.

    Returns:
        The outcome under SciPy's names, ``x``, ``cost``, ``fun``, ``jac``, ``grad``, ``optimality``, ``active_mask``,
        ``nit``, ``nfev``, ``njev``, ``status``, ``message``, ``success``. Of declared residuals what is like x is a
        nest like ``wrt``. Residuals that are not finite at x0 are status −1.

    Raises:
        GraphError: an argument that is none of these, bounds that leave no room, an x0 outside of them.
        GradientError: ``fn`` gives no floating tensor.
        FeedError: a placeholder has no value, or one of another shape or dtype.

    Example:
        >>> t = np.linspace(0, 4, 20)
        >>> def misfit(p, t, y):
        ...     return p[0] * sg.exp(-p[1] * t) + p[2] - y
        >>> y = 3.0 * np.exp(-0.7 * t) + 0.5
        >>> found = sg.least_squares(misfit, np.ones(3), args=(t, y))
        >>> found.success, found.x.round(6)
        (True, array([3. , 0.7, 0.5]))
        >>> held = sg.least_squares(misfit, np.ones(3), args=(t, y), bounds=(0.0, [2.0, np.inf, np.inf]))
        >>> held.x.round(3)[0], held.active_mask
        (np.float64(2.0), array([1, 0, 0]))
        >>> y[5] += 30.0
        >>> sg.least_squares(misfit, np.ones(3), args=(t, y), loss="cauchy", f_scale=0.1).x.round(3)
        array([3. , 0.7, 0.5])
    """
    if method not in ("trf", "lm"):
        raise GraphError(f"least_squares: expected a method of 'trf', 'lm', actual {method!r}")
    if not callable(loss) and loss not in LOSSES:
        raise GraphError(
            f"least_squares: expected a loss of {', '.join(map(repr, LOSSES))}, or a function, actual {loss!r}"
        )
    if method == "lm" and (bounds is not None or loss != "linear"):
        raise GraphError("least_squares: bounds and robust losses go with method 'trf'")
    if max_nfev is not None:
        integer(max_nfev, "least_squares: max_nfev", 1)
    if isinstance(fn, Tensor) and not is_floating(fn.dtype):
        raise GradientError(f"least_squares: expected floating residuals, actual {fn.type}", source=fn.source)
    problem = problem_of(fn, x0, args, wrt, feeds, session, "least_squares", "residual")
    layout, start = problem.layout, problem.layout.joined(problem.starts)
    if not start.size:
        raise GraphError("least_squares: x0 has no element")
    lower, upper = problem.bounds(bounds, "least_squares: bounds", by_element=False)
    is_bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
    is_scaled = (x_scale is None and method == "lm") or (isinstance(x_scale, str) and x_scale == "jac")
    tolerances = [TOLERANCE[layout.dtype.name] if given is None else given for given in (ftol, xtol, gtol)]
    settings = {
        "tolerances": np.array(tolerances, layout.dtype),
        "f_scale": np.array(number(f_scale, "least_squares: f_scale"), layout.dtype),
        "max_nfev": np.array(max_nfev or 100 * start.size),
    }
    if settings["f_scale"] <= 0:
        raise GraphError(f"least_squares: expected an f_scale above 0, actual {f_scale!r}")
    if is_bounded:
        require_order(lower, upper, "least_squares: bounds", strict=True)
        require_between(start, lower, upper, "least_squares")
        start = moved_inside(start, lower, upper)
        settings |= {"lower": lower, "upper": upper}
    if x_scale is not None and not is_scaled:
        settings["x_scale"] = _scales(x_scale, problem)

    is_watched = callback is not None

    def declared(residuals: Residuals, x: Vector, settings: Mapping[str, Tensor]) -> State:
        sides = (settings["lower"], settings["upper"]) if is_bounded else None
        scale = settings.get("x_scale")
        how: Method = Levenberg(scale) if method == "lm" else Reflective(scale, sides, is_scaled)
        costs = Loss(LOSSES[loss] if isinstance(loss, str) else loss, settings["f_scale"])
        limits = Tolerances(*(settings["tolerances"][i] for i in range(3)))
        report = layout.parts if is_watched else None
        return search(residuals, how, costs, layout.vector(x), limits, settings["max_nfev"], report)

    def like_x(parts: Sequence[Array]) -> Any:
        return problem.like_x([a.astype(d, copy=False) for a, d in zip(parts, layout.dtypes, strict=True)])

    forms = Forms(
        lambda fn: _FunctionResiduals(fn, layout),
        lambda y, xs: ([y, *jacobian(y, xs)], []),
        lambda at: _DeclaredResiduals(at, layout),
    )
    key = ("least squares", method, loss, is_scaled, tuple(settings), is_watched)
    starts = layout.split(start)
    got = watched(
        lambda: problem.run(starts, settings, forms, declared, key, num_threads), callback, like_x, "least_squares"
    )
    status, message = ENDINGS[int(got["status"])]
    by_x = [a.reshape((*got["fun"].shape, *a.shape[1:])) for a in layout.split(got["jac"])]
    optimality = got["optimality"] if method == "trf" else np.abs(got["grad"]).max()
    mask = active(got["x"], lower, upper, tolerances[1])
    return LeastSquaresResult(
        x=like_x(layout.split(got["x"])), cost=got["cost"], fun=got["fun"], jac=like_x(by_x),
        grad=like_x(layout.split(got["grad"])), optimality=float(optimality),
        active_mask=problem.like_x(layout.split(mask, [mask.dtype] * len(starts))), nit=int(got["nit"]),
        nfev=int(got["nfev"]), njev=int(got["njev"]), status=status, message=message, success=status > 0,
    )  # fmt: skip


def _scales(x_scale: Any, problem: Problem) -> Array:
    """Those of the vector: a number for all, or a nest like x of what is broadcast to its leaves."""
    layout = problem.layout
    parts = [x_scale] * len(layout.shapes)
    if nests.children(problem.wrt) is not None and nests.children(x_scale) is not None:
        parts = nests.flatten(nests.map(lambda _, scale: scale, problem.wrt, x_scale))
    try:
        scales = layout.joined([np.asarray(part, layout.dtype) for part in parts])
    except (TypeError, ValueError) as error:
        raise GraphError(f"least_squares: x_scale: expected 'jac' or numbers like x, actual {x_scale!r}") from error
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise GraphError(f"least_squares: x_scale: expected 'jac' or numbers above 0, actual {x_scale!r}")
    return scales


class _FunctionResiduals:
    """Residuals that a function of one tensor declares."""

    def __init__(self, fn: Callable[[Vector], Any], layout: Layout) -> None:
        self._fn, self._layout = fn, layout
        self._shape: tuple[Any, ...] = ()

    def values(self, x: Tensor) -> Tensor:
        found = self._fn(self._layout.parts(x))
        if not isinstance(found, Tensor) or not is_floating(found.dtype):
            shown = found.type if isinstance(found, Tensor) else repr(found)
            raise GradientError(f"least_squares: expected a function to floating residuals, actual {shown}")
        self._shape = found.shape
        return self._layout.vector([found])

    def with_jacobian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = O.identity(x)
        f = self.values(x)
        return f, jacobian(f, x)

    def shaped(self, f: Tensor) -> Tensor:
        return O.reshape(f, self._shape)


class _DeclaredResiduals:
    """Residuals that are declared with their derivatives."""

    def __init__(self, at: DeclaredValues, layout: Layout) -> None:
        self._at, self._layout = at, layout

    def values(self, x: Tensor) -> Tensor:
        return self._layout.vector(self._at(self._layout.parts(x), slice(1)))

    def with_jacobian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f, *parts = self._at(self._layout.parts(x), slice(None))
        columns = [O.reshape(part, (-1, size)) for part, size in zip(parts, self._layout.sizes, strict=True)]
        return self._layout.vector([f]), columns[0] if len(columns) == 1 else O.concat(columns, axis=1)

    def shaped(self, f: Tensor) -> Tensor:
        return O.reshape(f, self._at.fetches[0].shape)


__all__ = ["LeastSquaresResult", "least_squares"]
