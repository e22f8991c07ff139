"""``sg.minimize``: a whole optimisation as one program.

Input: a function of tensors to one number, or a declared loss, and where to begin. Output: what SciPy's ``minimize``
gives. The loop over iterations, the line search in it and the function itself are one compiled program that is called
once: that of ``descent``, with bounds by the steps of ``bounded``. All searches end at a point that has been evaluated
and is no worse than the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.types import is_floating
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.functions.function import value_and_grad
from staticgrad.functions.minimization.bounded import Bounded
from staticgrad.functions.minimization.descent import (
    ENDED,
    FLAT,
    INVALID,
    STILL,
    STOPPED,
    STUCK,
    LimitedMemory,
    Limits,
    NewtonCG,
    Objective,
    descend,
)
from staticgrad.functions.minimization.flat import Layout
from staticgrad.functions.minimization.limits import require_order
from staticgrad.functions.minimization.problem import DeclaredValues, Forms, problem_of
from staticgrad.functions.minimization.results import OptimizeResult
from staticgrad.functions.minimization.watching import watched
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.optable import Array
from staticgrad.ops.sources import placeholder
from staticgrad.optim.quasi_newton import State, Vector
from staticgrad.runtime.session.session import Session

Method = Literal["lbfgs", "newton-cg"]
TOLERANCES = {"float64": (1e-5, 2.2e-9), "float32": (1e-4, 1e-6)}  # gtol and ftol, where none are given
# How a search ended: SciPy's number for a callback's stop, and in words.
MESSAGES = {
    FLAT: "the gradient is below gtol",
    STILL: "the value changed by less than ftol",
    STUCK: "the line search found no lower value",
    INVALID: "the value or the gradient at x0 is not finite",
    ENDED: "maxiter iterations were made",
    STOPPED: "the callback ended the search",
}
OF_CALLBACK = 99  # SciPy's status where a callback ended a search


def minimize(
    fn: Callable[..., Any] | Tensor,
    x0: Any = None,
    method: Method = "lbfgs",
    *,
    args: Sequence[Any] = (),
    wrt: Any = None,
    feeds: Mapping[Tensor, Any] | None = None,
    session: Session | None = None,
    bounds: Any = None,
    gtol: float | None = None,
    ftol: float | None = None,
    maxiter: int = 1000,
    history: int = 10,
    callback: Callable[..., Any] | None = None,
    num_threads: int | None = None,
) -> OptimizeResult:
    """Find a minimum of a function of one array, or of a declared loss.

    ``"lbfgs"`` with bounds is L-BFGS-B: Byrd, Lu, Nocedal and Zhu (1995), with the projection of Morales and Nocedal
    (2011).

    The function, its gradient and the search are one program, which is called once: between two evaluations
    nothing runs in Python. Calls with the same function or loss, shapes and options compile nothing.

    A declared loss is minimized over variables or placeholders of its graph. Nothing is written: variables keep
    their values, and ``sess.set`` takes what was found (``sg.optim.LBFGS`` trains variables in place). Random numbers
    of the loss, such as those of dropout, are drawn once for the whole search.

    Args:
        fn: ``fn(x, *args)`` declares one floating number from tensors; or a loss, a floating tensor of shape ().
        x0: where to begin: a floating array of any shape; x has that shape. For a loss a nest like ``wrt`` of arrays;
            by default the variables' values in ``session``, without one their first values.
        method: ``"lbfgs"``, or ``"newton-cg"``, which also multiplies by the Hessian.
        args: further operands of ``fn``, arrays or nests of them, by which it isn't derived.
        wrt: by what a loss is minimized: a floating variable or placeholder, or a nest of them. Default: a dict, by
            name, of the trainable variables that it depends on.
        feeds: arrays for the placeholders that a loss needs.
        session: whose values the variables have that a loss reads.
        bounds: between which x stays, of ``"lbfgs"``: a pair (lower, upper), each None, a number or an array that is
            broadcast to x; or a list of such pairs, one for each element of x (n,), also for n = 2, unless it is two
            arrays; or an object that has lower and upper ones as ``lb`` and ``ub``. An element whose bounds are equal
            is held. What is outside at first is moved to its bound. For a loss a nest of that like ``wrt``, where names
            may be missing.
        gtol: the largest magnitude of an element of the gradient at which the search ends, with bounds of what is left
            of a step along it between these; default: 1e-5, of float32 1e-4.
        ftol: the change of the value, of the larger of 1 and its magnitude, at which it ends; default: 2.2e-9, of
            float32 1e-6.
        maxiter: iterations at most.
        history: pairs of steps that L-BFGS remembers.
        callback: is called after each iteration: with all that is known as ``intermediate_result`` if that is the name
            of its one argument (x, fun, nit, nfev), else with x. It ends the search by raising ``StopIteration`` or
            returning True; what else it raises is raised.
        num_threads: of the session that runs the search.

    Returns:
        The outcome under SciPy's names, ``x``, ``fun``, ``jac``, ``nit``, ``nfev``, ``njev``, ``status``, ``message``,
        ``success``. For a loss its ``x`` and ``jac`` are nests like ``wrt``.

    Raises:
        GraphError: an unknown method, an x0 that is not floating, bounds of another form or with a lower one above its
            upper one, a loss that depends on nothing to minimize it by or
            that writes variables, an argument that is for the other kind of ``fn``.
        GradientError: ``fn`` gives no lone floating number.
        FeedError: a placeholder that the loss needs has no value, or one of another shape or dtype.

    Example:
        >>> def rosenbrock(x):
        ...     return sg.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
        >>> found = sg.minimize(rosenbrock, np.zeros(4))
        >>> found.success, np.round(found.x, 4)
        (True, array([1., 1., 1., 1.]))
        >>> sg.minimize(rosenbrock, np.zeros(4), method="newton-cg").nit < 50
        True
        >>> sg.minimize(rosenbrock, np.zeros(4), bounds=(None, 0.5)).x.round(2)
        array([0.5 , 0.26, 0.08, 0.01])
        >>> t = sg.placeholder((3,), sg.float64)
        >>> slope, offset = (sg.Variable(np.float64(0), name=name) for name in ("slope", "offset"))
        >>> loss = sg.mean((slope * np.arange(3.0) + offset - t) ** 2)
        >>> best = sg.minimize(loss, feeds={t: [1.0, 3.0, 5.0]}).x
        >>> {name: float(value.round(4)) for name, value in best.items()}
        {'slope': 2.0, 'offset': 1.0}
    """
    if method not in ("lbfgs", "newton-cg"):
        raise GraphError(f"minimize: expected a method of 'lbfgs', 'newton-cg', actual {method!r}")
    if not isinstance(history, int) or history < 1:
        raise GraphError(f"minimize: history={history!r}: expected an int of at least 1")
    if bounds is not None and method != "lbfgs":
        raise GraphError("minimize: bounds go with method 'lbfgs'")
    if isinstance(fn, Tensor) and (fn.shape != () or not is_floating(fn.dtype)):
        raise GradientError(f"minimize: expected a loss of one floating number, actual {fn.type}", source=fn.source)
    problem = problem_of(fn, x0, args, wrt, feeds, session, "minimize", "loss")
    layout, starts = problem.layout, problem.starts
    near, small = TOLERANCES[layout.dtype.name]
    tolerances = [near if gtol is None else gtol, small if ftol is None else ftol]
    settings = {"tolerances": np.array(tolerances, layout.dtype), "maxiter": np.array(maxiter)}
    if bounds is not None:
        lower, upper = problem.bounds(bounds, "minimize: bounds", by_element=True)
        require_order(lower, upper, "minimize: bounds", strict=False)
        settings |= {"lower": lower, "upper": upper}
        starts = layout.split(np.clip(layout.joined(starts), lower, upper))

    is_bounded, is_watched = bounds is not None, callback is not None

    def search(objective: Objective, x: Vector, settings: Mapping[str, Tensor]) -> State:
        gtol, ftol = settings["tolerances"][0], settings["tolerances"][1]
        report = (lambda x: layout.parts(x[0]) if is_bounded else x) if is_watched else None
        limits = Limits(gtol, ftol, settings["maxiter"], report)
        if not is_bounded:
            return descend(objective, LimitedMemory(history) if method == "lbfgs" else NewtonCG(), x, limits)
        steps = Bounded(history, settings["lower"], settings["upper"])
        last = descend(_Flat(objective, layout), steps, (layout.vector(x),), limits)
        return last | {name: layout.parts(last[name][0]) for name in ("x", "g")}

    def derived(loss: Tensor, xs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        slopes = gradients(loss, xs, unconnected_gradients="error")
        if method != "newton-cg":
            return [loss, *slopes], []
        directions = [placeholder(x.shape, x.dtype) for x in xs]
        return [loss, *slopes, *jvp(slopes, xs, directions)], directions

    def like_x(parts: Sequence[Array]) -> Any:
        return problem.like_x([np.asarray(a, d) for a, d in zip(parts, layout.dtypes, strict=True)])

    forms = Forms(_FunctionObjective, derived, lambda at: _LossObjective(at, len(layout.shapes)))
    key = ("minimize", method, history, is_bounded, is_watched)
    got = watched(lambda: problem.run(starts, settings, forms, search, key, num_threads), callback, like_x, "minimize")
    status = int(got["status"]) or ENDED
    reached, nfev = status in (FLAT, STILL), int(got["nfev"])
    return OptimizeResult(
        x=like_x(got["x"]), fun=got["f"], jac=like_x(got["g"]), nit=int(got["nit"]), nfev=nfev, njev=nfev,
        success=reached, status=0 if reached else OF_CALLBACK if status == STOPPED else status,
        message=MESSAGES[status],
    )  # fmt: skip


class _FunctionObjective:
    """A function of one tensor."""

    def __init__(self, fn: Callable[[Vector], Any]) -> None:
        self._both = value_and_grad(lambda x: fn((x,)))

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]:
        value, slope = self._both(x[0])
        return value, (slope,)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        at = O.identity(x[0])
        return tuple(jvp([self._both(at)[1]], [at], list(v)))


class _LossObjective:
    """A loss that is declared with its gradient by ``count`` tensors, and perhaps the products of its Hessian."""

    def __init__(self, at: DeclaredValues, count: int) -> None:
        self._at, self._count = at, count

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]:
        value, *slopes = self._at(x, slice(self._count + 1))
        return value, tuple(slopes)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        return tuple(self._at((*x, *v), slice(self._count + 1, None)))


class _Flat:
    """An objective of one vector."""

    def __init__(self, objective: Objective, layout: Layout) -> None:
        self._objective, self._layout = objective, layout

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]:
        value, slopes = self._objective.value_and_grad(self._layout.parts(x[0]))
        return value, (self._layout.vector(slopes),)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        products = self._objective.hvp(self._layout.parts(x[0]), self._layout.parts(v[0]))
        return (self._layout.vector(products),)


__all__ = ["OptimizeResult", "minimize"]
