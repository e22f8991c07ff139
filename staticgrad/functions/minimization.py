"""``sg.minimize``: a whole optimisation as one program.

Input: a function of tensors to one number, and where to begin. Output: what SciPy's ``minimize`` gives. The loop over
iterations, the line search in it and the function itself are one compiled program that is called once.

    L-BFGS       directions and line search are those of ``quasi_newton``
    Newton-CG    Nocedal and Wright, Numerical Optimization, 2nd ed., Algorithm 7.1: conjugate gradients on the Newton
                 equations, ended early, or where the curvature is negative

All searches end at a point that has been evaluated and is no worse than the one before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, computed, int64, is_floating
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.compiler.autodiff.substitution import substituted
from staticgrad.compiler.regions.cut import cut, needed_for
from staticgrad.functions.function import KEPT, ArrayFunction, value_and_grad
from staticgrad.graph.graph import Derivation, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.optable import Array
from staticgrad.graph.scopes import isolated
from staticgrad.ops.control.bodies import why_written
from staticgrad.ops.effects import ASSIGN
from staticgrad.ops.sources import PLACEHOLDER, VARIABLE, placeholder
from staticgrad.optim.arguments import depends_on
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
from staticgrad.runtime.running.binding import as_array
from staticgrad.runtime.session.executable import Executable
from staticgrad.runtime.session.session import Session

Method = Literal["lbfgs", "newton-cg"]
TOLERANCES = {"float64": (1e-5, 2.2e-9), "float32": (1e-4, 1e-6)}  # gtol and ftol, where none are given
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
    fn: Callable[..., Any] | Tensor,
    x0: Any = None,
    method: Method = "lbfgs",
    *,
    args: Sequence[Any] = (),
    wrt: Any = None,
    feeds: Mapping[Tensor, Any] | None = None,
    session: Session | None = None,
    gtol: float | None = None,
    ftol: float | None = None,
    maxiter: int = 1000,
    history: int = 10,
    num_threads: int | None = None,
) -> OptimizeResult:
    """Find a minimum of a function of one array, or of a declared loss.

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
        gtol: the largest magnitude of an element of the gradient at which the search ends; default: 1e-5, of float32
            1e-4.
        ftol: the change of the value, of the larger of 1 and its magnitude, at which it ends; default: 2.2e-9, of
            float32 1e-6.
        maxiter: iterations at most.
        history: pairs of steps that L-BFGS remembers.
        num_threads: of the session that runs the search.

    Returns:
        An ``OptimizeResult``. For a loss its ``x`` and ``jac`` are nests like ``wrt``.

    Raises:
        GraphError: an unknown method, an x0 that is not floating, a loss that depends on nothing to minimize it by or
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
    options = (method, history, num_threads)
    if isinstance(fn, Tensor):
        if args:
            raise GraphError("minimize: args are for functions; a loss takes feeds={placeholder: array}")
        return _minimize_loss(fn, x0, wrt, feeds or {}, session, options, (gtol, ftol, maxiter))
    for name, value in (("wrt", wrt), ("feeds", feeds), ("session", session)):
        if value is not None:
            raise GraphError(f"minimize: {name} is for a declared loss, a tensor; a function takes x0 and args")
    start = np.asarray(x0)
    if start.dtype.name not in TOLERANCES:
        raise GraphError(f"minimize: x0: expected float32 or float64, actual {start.dtype}")
    got = _program(fn, options)(start, *_limits(start.dtype, gtol, ftol, maxiter), tuple(args))
    return _result(got, got["x"][0], got["g"][0])


def _limits(dtype: np.dtype, gtol: float | None, ftol: float | None, maxiter: int) -> tuple[Array, Array]:
    """The tolerances, in the dtype of the search, and the most iterations."""
    near, small = TOLERANCES[dtype.name]
    return np.array([near if gtol is None else gtol, small if ftol is None else ftol], dtype), np.array(maxiter)


def _result(got: State, x: Any, jac: Any) -> OptimizeResult:
    status = int(got["status"]) or ENDED
    reached = status in (FLAT, STILL)
    counts = int(got["nit"]), int(got["nfev"])
    return OptimizeResult(x, got["f"], jac, *counts, reached, 0 if reached else status, MESSAGES[status])


def _program(fn: Callable[..., Any], options: tuple[Any, ...]) -> ArrayFunction:
    """The function of arrays that searches with these options, the one of earlier calls if ``fn`` was there."""
    known = _KNOWN.setdefault(fn, {})
    if options not in known:
        method, history, threads = options
        weak = weakref.ref(fn)  # what is kept under the function must not keep it

        def search(x: Tensor, tolerances: Tensor, maxiter: Tensor, args: tuple[Any, ...]) -> dict[str, Tensor]:
            function = weak()
            assert function is not None
            return _search(_OfFunction(function, args), _step(method, history), (x,), tolerances, maxiter)

        known[options] = ArrayFunction(search, (), {"num_threads": threads})
    return known[options]


# -- declared losses ---------------------------------------------------------------------------------------------------


def _minimize_loss(
    loss: Tensor, x0: Any, wrt: Any, feeds: Mapping[Tensor, Any], session: Session | None,
    options: tuple[Any, ...], limits: tuple[Any, ...],
) -> OptimizeResult:  # fmt: skip
    graph = loss.graph
    if loss.shape != () or not is_floating(loss.dtype):
        raise GradientError(f"minimize: expected a loss of one floating number, actual {loss.type}", source=loss.source)
    graph.settle_names()
    if wrt is None:
        wrt = {x.op.attrs.key: x for x in depends_on(loss)}
    xs: list[Tensor] = nests.flatten(wrt)
    _check_places(loss, xs, feeds)
    reader = Session(graph) if session is None else session
    given: list[Any] = [None] * len(xs)
    if x0 is not None:
        nests.map(lambda x, value: given.__setitem__(xs.index(x), value), wrt, x0)
    starts = [_start(x, value, reader) for x, value in zip(xs, given, strict=True)]
    fed = {**dict(zip(xs, starts, strict=True)), **{x: as_array(x, value) for x, value in feeds.items()}}
    needed = needed_for(graph, [loss], {x: TensorType(value.shape, x.dtype) for x, value in fed.items()})
    _check_writes(needed)
    read = [node.outputs[0] for node in needed if node.op is VARIABLE and node.outputs[0] not in fed]
    fed.update((x, reader.get(x)) for x in read)
    key = (graph.version, loss, tuple(xs), tuple((x, value.shape) for x, value in fed.items()), options)
    executable: Executable | None = graph.searches.get(key)
    if executable is None:
        if len(graph.searches) >= KEPT:
            graph.searches.clear()
        executable = graph.searches[key] = _declare_search(loss, xs, fed, options)
    dtype = _dtype(xs)
    got = executable(*fed.values(), *_limits(dtype, *limits))
    x, jac = (
        nests.pack(wrt, [np.asarray(part, x.dtype) for part, x in zip(got[name], xs, strict=True)])
        for name in ("x", "g")
    )
    return _result(got, x, jac)


def _dtype(xs: Sequence[Tensor]) -> np.dtype:
    """The dtype of a search over these."""
    return np.result_type(*[computed(x.dtype) for x in xs])


def _check_places(loss: Tensor, xs: Sequence[Tensor], feeds: Mapping[Tensor, Any]) -> None:
    """Refuse what a loss cannot be minimized by."""
    if not xs:
        raise GraphError(f"minimize: {loss.name!r} depends on no trainable variable; wrt= says by what it is minimized",
                         source=loss.source)  # fmt: skip
    for x in xs:
        if not isinstance(x, Tensor) or x.op.op not in (VARIABLE, PLACEHOLDER) or not is_floating(x.dtype):
            raise GraphError(f"minimize: wrt: expected floating variables or placeholders, actual {x!r}")
        if x in feeds:
            raise GraphError(f"minimize: {x.name!r} is fed and in wrt; x0 says where to begin", source=x.source)
    if len(set(xs)) < len(xs):
        raise GraphError("minimize: wrt: a tensor is there twice")


def _check_writes(needed: Sequence[Node]) -> None:
    """Refuse a loss that cannot be evaluated many times without being a step of training."""
    for node in needed:
        if node.op is ASSIGN:
            raise GraphError(
                f"minimize: the loss writes a variable, {node.inputs[0].name!r}{why_written(needed)}",
                source=node.source,
            )


def _start(x: Tensor, value: Any, session: Session) -> Array:
    """The value with which the search begins for one tensor."""
    if value is None:
        if x.op.op is not VARIABLE:
            raise GraphError(f"minimize: {x.name!r} is no variable: x0 says where to begin", source=x.source)
        return session.get(x)
    return np.asarray(value, x.dtype)


def _declare_search(loss: Tensor, xs: Sequence[Tensor], fed: Mapping[Tensor, Array], options: Any) -> Executable:
    """The search as a program of its own. The derivatives are declared in a continuation of the loss's graph, with its
    hooks and rules, and cut out of it; the graph stays as it is."""
    method, history, threads = options
    types = {x: TensorType(value.shape, x.dtype) for x, value in fed.items()}
    with Derivation(loss.graph) as derivation, isolated():
        slopes = gradients(loss, xs, unconnected_gradients="error")
        fetches, directions = [loss, *slopes], []
        if method == "newton-cg":
            directions = [placeholder(x.shape, x.dtype) for x in xs]
            fetches += jvp(slopes, xs, directions)
            types.update((v, types[x]) for v, x in zip(directions, xs, strict=True))
        region = cut(derivation, fetches, types)
    dtype, count = _dtype(xs), len(xs)
    objective = _OfLoss(region.fetches, region.feeds[:count], region.feeds[len(fed) :], dtype)
    with region.graph as graph:
        limits = placeholder((2,), dtype), placeholder((), int64)
        begun = tuple(O.astype(x, dtype) for x in region.feeds[:count])
        found = _search(objective, _step(method, history), begun, *limits)
    return Session(graph, num_threads=threads).compile(found, [*region.feeds[: len(fed)], *limits])


# -- searches ---------------------------------------------------------------------------------------------------------


class Objective(Protocol):
    """A function to be minimized, which declares its value, gradient and curvature."""

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]: ...

    def hvp(self, x: Vector, v: Vector) -> Vector:
        """The product of the Hessian at ``x`` with ``v``."""
        ...


class _OfFunction:
    """A function of one tensor."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._both = value_and_grad(fn)
        self._args = args

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]:
        value, slope = self._both(x[0], *self._args)
        return value, (slope,)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        at = O.identity(x[0])
        return tuple(jvp([self._both(at, *self._args)[1]], [at], list(v)))


class _OfLoss:
    """A loss that is declared with its gradient, and perhaps the products of its Hessian with ``directions``, by
    tensors that stand for the point. The search has one dtype, the point's tensors have their own."""

    def __init__(
        self, fetches: Sequence[Tensor], point: Sequence[Tensor], directions: Sequence[Tensor], dtype: np.dtype
    ) -> None:
        count = len(point)
        self._value_and_slopes, self._products = fetches[: count + 1], fetches[count + 1 :]
        self._point, self._directions = point, directions
        self._dtype = dtype

    def value_and_grad(self, x: Vector) -> tuple[Tensor, Vector]:
        value, *slopes = self._evaluated(self._value_and_slopes, self._point, x)
        return value, tuple(slopes)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        return tuple(self._evaluated(self._products, (*self._point, *self._directions), (*x, *v)))

    def _evaluated(self, fetches: Sequence[Tensor], places: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        given = {place: O.astype(value, place.dtype) for place, value in zip(places, values, strict=True)}
        return [O.astype(y, self._dtype) for y in substituted(fetches, given, "minimize")]


# Of an objective and a state: the direction and the first step along it. Of a point: what is remembered at first.
# Of that, a step, the change of the gradient, and whether the direction fell: what is remembered then.
Step = tuple[Callable[[Objective, State], tuple[Vector, Tensor]], Callable[[Vector], Any], Callable[..., Any]]


def _search(objective: Objective, step: Step, x: Vector, tolerances: Tensor, maxiter: Tensor) -> State:
    """Iterations until one of the reasons to end."""
    direction, first_memory, remember = step
    gtol, ftol = tolerances[0], tolerances[1]
    f, g = objective.value_and_grad(x)
    status = O.where(is_finite(f, g), O.where(largest(g) <= gtol, FLAT, RUNNING), INVALID)

    def turn(s: State) -> State:
        d, first = direction(objective, s)
        slope = dot(s["g"], d)
        falls = slope < 0
        d = choose(falls, d, times(-1.0, s["g"]))
        slope = O.where(falls, slope, -dot(s["g"], s["g"]))
        a, f, g, evaluated = line_search(objective.value_and_grad, s["x"], d, s["f"], s["g"], slope, first)
        change = (s["f"] - f) / O.maximum(O.maximum(O.abs(s["f"]), O.abs(f)), 1.0)
        ended = O.where(largest(g) <= gtol, FLAT, O.where(change <= ftol, STILL, RUNNING))
        return {
            "x": plus(s["x"], a, d), "f": f, "g": g, "nit": s["nit"] + 1, "nfev": s["nfev"] + evaluated,
            "status": O.where(a > 0, ended, STUCK),
            "memory": remember(s["memory"], times(a, d), minus(g, s["g"]), falls),
        }  # fmt: skip

    begun = {
        "x": x, "f": f, "g": g, "nit": 0, "nfev": 1, "status": status, "memory": first_memory(x),
    }  # fmt: skip
    last: State = O.while_loop(lambda s: O.logical_and(s["status"] == RUNNING, s["nit"] < maxiter), turn, begun)
    return {name: last[name] for name in ("x", "f", "g", "nit", "nfev", "status")}


def _lbfgs(history: int) -> Step:
    """Directions from the last steps and changes of the gradient."""

    def direction(objective: Objective, state: State) -> tuple[Vector, Tensor]:
        pairs = Pairs(**state["memory"])
        return pairs.direction(state["g"]), O.where(pairs.begun, 1.0, first_step(state["g"]))

    def remember(memory: State, step: Vector, change: Vector, falls: Tensor) -> State:
        # Where the direction was of no use all pairs are forgotten.
        pairs = Pairs(**memory).forgotten(O.logical_not(falls))
        return pairs.entered(step, change, least_curvature(step, change)).state()

    return direction, lambda x: Pairs.none(x, history).state(), remember


def _newton_direction(objective: Objective, state: State) -> tuple[Vector, Tensor]:
    """The Newton step as far as conjugate gradients go."""
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
    return O.while_loop(goes_on, turn, begun)["z"], O.ones_like(state["f"])


def _step(method: Method, history: int) -> Step:
    return _lbfgs(history) if method == "lbfgs" else (_newton_direction, lambda x: (), lambda memory, *_: memory)


__all__ = ["OptimizeResult", "minimize"]
