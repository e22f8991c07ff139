"""``sg.root`` and ``sg.fixed_point``: tensors that are defined by an equation.

Input: a function f that declares a residual of x and of whatever else it reads, θ, and where to begin. Output: an x
with f(x, θ) = 0, found by an iteration in the compiled program (``iterations``), and derivatives by θ.

    derivative   dx = -J⁻¹·(∂f/∂θ)·dθ with J = ∂f/∂x at the x that was found; in reverse θ̄ = -(∂f/∂θ)ᵀ·J⁻ᵀ·x̄

The function is traced once, as a body whose captures are θ. The x that was found is cut off from what the iteration
made it of, and goes with θ into a node whose rules declare these products from the body at the node's own results. So
the rules are derived like anything else, x by the rules again, to any order; a tape keeps what the rules read of x and
θ, and nothing of the iteration.

J is a matrix, which is factored. With one unknown it is a number, and with ``bracket``, element by element, one for
each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from staticgrad.base import nests
from staticgrad.base.depth import one_level
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, float32, float64, integer, is_floating
from staticgrad.compiler.autodiff.forward import jacobian, jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.compiler.autodiff.substitution import applied
from staticgrad.functions import iterations
from staticgrad.functions.iterations import CONVERGED, Found, JacobianAt, StoppingRule, columns, solved
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.scopes import control_dependencies, in_body
from staticgrad.ops.control.bodies import Body, BodyGraph, close, require_function, same_type
from staticgrad.ops.custom import of_operands

METHODS = ("newton", "broyden", "bracket")
TOLERANCES = {"float64": (1e-10, 1e-12), "float32": (1e-5, 1e-6)}  # rtol and atol where none are given


class RootResult(NamedTuple):
    """The outcome of ``sg.root`` or ``sg.fixed_point``.

    Attributes:
        x: the solution, NaN where there is none.
        residual: the residual at the last point, like ``x``.
        status: int64: 0 where it converged, 1 after ``max_steps``, 2 where no step makes the residual smaller, 3 where
            the residual is not finite or does not change its sign between the ends of a bracket. Of shape (), with
            ``method="bracket"`` one for each element.
        steps: int64, the steps that were taken; like ``status``.
        nfev: int64, the residuals that were computed; ``njev``: the Jacobians, without that of a derivative.
    """

    x: Any
    residual: Any
    status: Tensor
    steps: Tensor
    nfev: Tensor
    njev: Tensor


# -- the equation -----------------------------------------------------------------------------------------------------


@frozen(eq=False)
class _Equation:
    """A traced residual: ``body`` over the leaves of an unknown, which are of ``types``, and the tensors that it
    captured; with ``of_fixed_point`` the residual is what the body gives less the unknown. A vector has the elements of
    all leaves in a row. With ``by_element`` each element of the residual is of that element of the lone leaf alone, and
    there is no vector but this leaf."""

    body: Body
    types: tuple[TensorType, ...]
    captured: tuple[Tensor, ...]
    by_element: bool = False
    of_fixed_point: bool = False

    @property
    def size(self) -> int:
        return sum(_size(t) for t in self.types)

    def at(self, x: Tensor, captured: Sequence[Tensor] | None = None) -> Tensor:
        """The residual of a vector, as a vector."""
        y = self.joined(applied(self.body, [*self.split(x), *(self.captured if captured is None else captured)]))
        return y - x if self.of_fixed_point else y

    def split(self, x: Tensor) -> list[Tensor]:
        """The leaves of a vector."""
        if self.by_element:
            return [x]
        found, first = [], 0
        for t in self.types:
            last = first + _size(t)
            found.append(O.reshape(x[first:last], t.shape))
            first = last
        return found

    def joined(self, leaves: Sequence[Tensor]) -> Tensor:
        if self.by_element:
            return leaves[0]
        parts = [O.reshape(x, (-1,)) for x in leaves]
        return parts[0] if len(parts) == 1 else O.concat(parts)

    def jacobian(self, x: Tensor, captured: Sequence[Tensor] | None = None) -> Tensor:
        """The derivative of the residual at a vector by that, as a matrix."""
        at = O.identity(x)
        return jacobian(self.at(at, captured), at)

    def product(self, x: Tensor, v: Tensor) -> Tensor:
        """The product of the Jacobian at ``x`` with ``v``."""
        at = O.identity(x)
        return jvp(self.at(at), at, v)[0]

    def linear(self, x: Tensor, captured: Sequence[Tensor] | None = None) -> JacobianAt:
        """The Jacobian at a vector."""
        if self.by_element or self.size == 1:
            at = O.identity(x)
            (slope,) = jvp(self.at(at, captured), at, O.ones_like(at))
            return JacobianAt(lambda b: b / slope, lambda v: slope * v, lambda v: slope * v, O.abs(slope))
        return _dense(self.jacobian(x, captured))

    def adjoint(self, x: Tensor, captured: Sequence[Tensor]) -> JacobianAt:
        """The transposed Jacobian at a vector."""
        if self.by_element or self.size == 1:
            return self.linear(x, captured)
        j = self.jacobian(x, captured)
        return JacobianAt(lambda b: solved(j, b, True), lambda v: v @ j, lambda v: j @ v, columns(j))


def _dense(j: Tensor) -> JacobianAt:
    return JacobianAt(lambda b: solved(j, b), lambda v: j @ v, lambda v: v @ j, columns(j))


def _size(t: TensorType) -> int:
    return math.prod(int(n) for n in t.shape if isinstance(n, int))


def _traced(what: str, fn: Callable[[Any], Any], x0: Any, leaves: Sequence[Tensor], outer: Graph) -> _Equation:
    """The function of a nest like ``x0``, whose leaves are ``leaves``."""
    graph = BodyGraph(outer, what=what)
    with one_level(what), graph, in_body():
        unknown = []
        for x in leaves:
            parameter = graph.parameter(x.type, x.op.name)
            parameter.requires_grad = True
            unknown.append(parameter)
        answer = fn(nests.pack(x0, unknown))
        found = [graph.adopt(lift(y, graph), what) for y in nests.flatten(answer)]
    types = tuple(x.type for x in leaves)
    _check_residual(what, types, found, nests.paths(answer))
    body = close(graph, [*unknown, *graph.captured.values()], found, what)
    return _Equation(body, types, tuple(graph.captured))


def _check_residual(what: str, types: Sequence[TensorType], found: Sequence[Tensor], paths: Sequence[str]) -> None:
    """Refuse residuals that are not like the unknown.

    Raises:
        GraphError: there are more or fewer, or of other types.
    """
    if len(found) != len(types):
        raise GraphError(f"{what}: expected a result of fn for each leaf of x0: {len(types)}, actual {len(found)}")
    for t, y, path in zip(types, found, paths, strict=True):
        if not same_type(y.type, t):
            other = f": give x0 dtype=sg.{y.dtype.name}" if y.dtype in (float32, float64) and y.shape == t.shape else ""
            raise GraphError(
                f"{what}: fn returns tensors of the types of x0{other}"
                f"\n  expected {t}, as x0{path}\n  actual   {y.type}, {y.name!r} that fn returns",
                source=y.source,
            )


def _leaves(what: str, x0: Any) -> tuple[Graph, list[Tensor]]:
    """The graph of an unknown's leaves, and these.

    Raises:
        GraphError: there is none, or something is not float32 or float64, or they are not of one dtype.
    """
    values = nests.flatten(x0)
    outer = graph_of(values)
    with outer:
        leaves = [outer.adopt(lift(x, outer), what) for x in values]
    if not leaves:
        raise GraphError(f"{what}: expected an x0 with a tensor, actual {x0!r}")
    for x in leaves:
        if x.dtype not in (float32, float64) or x.dtype != leaves[0].dtype:
            expected = "float32 or float64" if x is leaves[0] else f"{leaves[0].dtype.name}, as the first of x0"
            raise GraphError(f"{what}: x0: expected {expected}, actual {x.type} ({x.name!r})", source=x.source)
        if not x.type.static:
            raise GraphError(f"{what}: x0: expected sizes that are known, actual {x.type}", source=x.source)
        if x.size == 0:
            raise GraphError(f"{what}: x0: expected elements, actual {x.type} ({x.name!r})", source=x.source)
    return outer, leaves


# -- the derivative ---------------------------------------------------------------------------------------------------


def _defined(what: str, equation: _Equation, x: Tensor) -> list[Tensor]:
    """The leaves of a solution, with the derivatives that the equation gives them by what it captured."""
    varying = [i for i, t in enumerate(equation.captured) if is_floating(t.dtype)]

    def moving(operands: Sequence[Tensor]) -> list[Tensor]:
        return [operands[i] for i in varying]

    def solution(*captured: Tensor) -> Any:
        at = O.stop_gradient(x)
        leaves = [O.identity(leaf) for leaf in equation.split(at)]

        @of_operands
        def pull(now: list[Tensor], *cotangents: Tensor) -> list[Tensor | None]:
            here = equation.joined(leaves)
            weights = equation.adjoint(here, now).solve(-equation.joined(cotangents))
            found = gradients(equation.at(here, now), moving(now), weights)
            made: list[Tensor | None] = [None] * len(now)
            for i, ct in zip(varying, found, strict=True):
                made[i] = ct
            return made

        @of_operands
        def push(now: list[Tensor], *tangents: Tensor) -> list[Tensor]:
            here = equation.joined(leaves)
            (change,) = jvp(equation.at(here, now), moving(now), moving(tangents))
            return equation.split(equation.linear(here, now).solve(-change))

        return leaves, pull, push

    if not varying:
        return [O.stop_gradient(leaf) for leaf in equation.split(x)]
    solution.__name__ = what
    return list(O.custom_gradient(solution)(*equation.captured))


def _result(what: str, equation: _Equation, x0: Any, found: Found, check: bool, full: bool, tried: str) -> Any:
    """The value that a function returns for the end of an iteration."""
    converged = found.status == CONVERGED
    dependencies = []
    if check:
        dependencies = [O.assert_(O.all(converged), f"{what} did not converge ({tried})")]
    with control_dependencies(dependencies):
        x = O.where(converged, found.x, np.nan)
    solution = nests.pack(x0, _defined(what, equation, x))
    if not full:
        return solution
    residual = nests.pack(x0, [O.stop_gradient(f) for f in equation.split(found.residual)])
    return RootResult(solution, residual, found.status, found.steps, found.evaluations, found.jacobians)


# -- what users call --------------------------------------------------------------------------------------------------


def root(
    fn: Callable[[Any], Any],
    x0: Any,
    *,
    method: Literal["newton", "broyden", "bracket"] = "newton",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 100,
    check: bool = False,
    full_output: bool = False,
) -> Any:
    """An x with ``fn(x) = 0``, found inside the compiled program, and with the derivatives that this equation gives it.

    ``fn`` is called once, with tensors that stand for x. It may use any tensor or variable from outside, θ, and
    derivatives flow to these by the implicit function theorem: dx = -J⁻¹·(∂fn/∂θ)·dθ, where J is the derivative of
    ``fn`` by x. That goes in both modes, to any order, and under ``vmap``, where each example takes its own steps. Of
    the iteration nothing is kept, and none flows to ``x0``.

    An iteration that does not converge gives NaN.

    Args:
        fn: gets x, a nest like ``x0``; returns a tensor of the same shape and dtype for each, in any nest. With
            ``"bracket"`` each element of the result depends on that element of x alone.
        x0: where to begin: a tensor of float32 or float64, of known sizes, or a nest of them, whose elements count as
            one vector. With ``"bracket"`` a pair of tensors (low, high), between which ``fn`` changes its sign.
        method: ``"newton"``, which computes the Jacobian in each step; ``"broyden"``, which corrects that of the first
            one and needs more steps, each of one or a few evaluations; ``"bracket"`` of elements by themselves, which
            converges wherever ``fn`` is continuous.
        rtol, atol: x is found where the step that is left is at most atol + rtol·‖x‖, of the largest elements; that of
            Newton's method is taken then, after which the error is of the order of its square. Default: 1e-10 and
            1e-12, of float32 1e-5 and 1e-6. With ``"bracket"`` the root lies within 2·(atol + 2·rtol·‖x‖); default: a
            unit in the last place, and the square of that, of the first width.
        max_steps: of the iteration.
        check: end the run with an error where it does not converge, instead of NaN.
        full_output: return all that is known of the search.

    Returns:
        x, a nest like ``x0`` (like one of its ends with ``"bracket"``); with ``full_output`` a named tuple with the
        fields ``x``, ``residual``, ``status``, ``steps``, ``nfev`` and ``njev``, as ``RootResult`` says.

    Raises:
        GraphError: ``fn`` returns something of other types, ``x0`` is not floating or has no known size, an unknown
            method, or ``fn`` writes a variable.

    Source: Powell, A Hybrid Method for Nonlinear Equations (1970); Broyden, A Class of Methods for Solving Nonlinear
    Simultaneous Equations (1965); Chandrupatla, A new hybrid quadratic/bisection algorithm (1997).

    Example:
        >>> a = sg.constant(2.0)
        >>> x = sg.root(lambda x: x**3 - a, 1.0)
        >>> np.round(sg.Session().run([x, *sg.gradients(x, [a])]), 4)  # and 1 / (3·x²)
        array([1.2599, 0.21  ], dtype=float32)
        >>> prices = sg.constant([0.5, 1.0, 2.0])
        >>> rates = sg.root(lambda r: sg.exp(-r * 10) - prices, (-1.0 + 0 * prices, 1.0 + 0 * prices), method="bracket")
        >>> np.round(sg.Session().run(rates), 4)
        array([ 0.0693,  0.    , -0.0693], dtype=float32)
    """
    require_function("root: fn", fn, "x")
    if method not in METHODS:
        raise GraphError(f"root: expected a method of {', '.join(map(repr, METHODS))}, actual {method!r}")
    steps = integer(max_steps, "root: max_steps", 0)
    tried = f"method={method!r}, max_steps={steps}"
    if method == "bracket":
        return _bracketed(fn, x0, (rtol, atol, steps), check, full_output, tried)
    outer, leaves = _leaves("root", x0)
    equation = _traced("root", fn, x0, leaves, outer)
    with outer:
        limits = _limits(leaves[0].dtype, rtol, atol, steps)
        begun = equation.joined([O.stop_gradient(x) for x in leaves])
        if method == "newton":
            found = iterations.newton(equation.at, equation.linear, begun, limits)
        else:
            found = iterations.broyden(equation.at, equation.jacobian, equation.product, begun, limits)
        return _result("root", equation, x0, found, check, full_output, tried)


def _limits(dtype: np.dtype, rtol: float | None, atol: float | None, steps: int) -> StoppingRule:
    defaults = TOLERANCES[dtype.name]
    return StoppingRule(defaults[0] if rtol is None else rtol, defaults[1] if atol is None else atol, steps)


def _bracketed(
    fn: Callable[[Any], Any], x0: Any, limits: tuple[float | None, float | None, int],
    check: bool, full: bool, tried: str,
) -> Any:  # fmt: skip
    if not isinstance(x0, tuple) or len(x0) != 2:
        raise GraphError(f"root: expected x0 = (low, high) for method='bracket', actual {x0!r}")
    outer, ends = _leaves("root", x0)
    with outer:
        low, high = (O.stop_gradient(x) for x in O.broadcast_arrays(*ends))
        traced = _traced("root", fn, low, [low], outer)
        equation = replace(traced, by_element=True)
        rtol, atol, steps = limits
        near = float(np.finfo(low.dtype).eps) if rtol is None else rtol
        found = iterations.bracket(equation.at, low, high, near, atol, steps)
        return _result("root", equation, low, found, check, full, tried)


def fixed_point(
    fn: Callable[[Any], Any],
    x0: Any,
    *,
    method: Literal["repeated", "anderson"] = "repeated",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 1000,
    history: int = 5,
    check: bool = False,
    full_output: bool = False,
) -> Any:
    """An x with ``fn(x) = x``, found by applying ``fn`` again and again inside the compiled program.

    Derivatives are those of ``sg.root``, of the equation ``fn(x) - x = 0``: in both modes, to any order, under
    ``vmap``, with nothing of the iteration kept. An iteration that does not converge gives NaN.

    Args:
        fn: gets x, a nest like ``x0``; returns the next one, of the same shapes and dtypes.
        x0: where to begin: a tensor of float32 or float64, of known sizes, or a nest of them.
        method: ``"repeated"``, or ``"anderson"``, which combines the last points so that what they differ by from
            their successors cancels; it needs fewer steps where ``fn`` contracts slowly, and may not converge where
            repetition does.
        rtol, atol: x is found where ``fn`` changes it by at most atol + rtol·‖x‖, of the largest elements; if ``fn``
            makes distances smaller by a factor q, the error is at most q/(1-q) of that. Defaults as in ``sg.root``.
        max_steps: of the iteration.
        history: points that ``"anderson"`` combines.
        check, full_output: as in ``sg.root``; the residual is ``fn(x) - x``.

    Returns:
        x, a nest like ``x0``; with ``full_output`` a ``RootResult``.

    Raises:
        GraphError: as ``sg.root``.

    Source: Walker and Ni, Anderson Acceleration for Fixed-Point Iterations (2011).

    Example:
        >>> a = sg.constant(1.0)
        >>> x = sg.fixed_point(lambda x: sg.cos(a * x), 0.5, method="anderson")
        >>> np.round(sg.Session().run([x, *sg.gradients(x, [a])]), 4)
        array([ 0.7391, -0.2975], dtype=float32)
    """
    require_function("fixed_point: fn", fn, "x")
    if method not in ("repeated", "anderson"):
        raise GraphError(f"fixed_point: expected a method of 'repeated', 'anderson', actual {method!r}")
    steps = integer(max_steps, "fixed_point: max_steps", 0)
    count = integer(history, "fixed_point: history", 1)
    outer, leaves = _leaves("fixed_point", x0)
    equation = replace(_traced("fixed_point", fn, x0, leaves, outer), of_fixed_point=True)
    with outer:
        limits = _limits(leaves[0].dtype, rtol, atol, steps)
        begun = equation.joined([O.stop_gradient(x) for x in leaves])
        if method == "repeated":
            found = iterations.repeated(equation.at, begun, limits)
        else:
            found = iterations.anderson(equation.at, begun, limits, count)
        tried = f"method={method!r}, max_steps={steps}"
        return _result("fixed_point", equation, x0, found, check, full_output, tried)


__all__ = ["RootResult", "fixed_point", "root"]
