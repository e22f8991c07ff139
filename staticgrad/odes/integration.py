"""``sg.odeint``: the solution of an ordinary differential equation, as one loop of the program.

Input: a function dy/dt = fn(t, y), a state y0 at the first of some times. Output: the states at these times.

    turn          one attempt: a step of a Runge-Kutta pair, its error, the size of the next attempt; after an accepted
                  step the states at the times within it are written by the pair's interpolant, so that steps do not
                  have to end at these
    many times    a loop over them makes attempts until it has come to each; the loop of turns is there for derivatives
    derivatives   those of the accepted steps as they were made (the discrete adjoint): their sizes are constants. A
                  turn is declared twice, as an attempt for its values and as a step for its derivatives
                  (``surrogate``); the second is a checkpoint that begins with the time, state and size of the step, so
                  that a backward pass keeps these three of each turn and computes the stages again. In a rejected turn
                  the size is zero, and no stage of the attempt is derived
    event         the loop stops before the step in which the function changes its sign; what remains, up to the root on
                  the interpolant, is declared behind the loop. The time of the root has the derivatives of two Newton
                  steps from it: by the theorem of implicit functions, up to the third order

Under ``vmap`` the loop goes on until the last example is at its end, and each takes its own steps. Pairs are left to
``explicit``, ``implicit`` and ``tableaus``, step sizes to ``step_sizes``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import float32, float64, integer, is_weak
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.odes.dense import Curve, curve
from staticgrad.odes.explicit import Explicit, Stepper
from staticgrad.odes.implicit import Implicit
from staticgrad.odes.roots import bracketed
from staticgrad.odes.step_sizes import Controller, StepTolerances, first_step, too_small
from staticgrad.odes.tableaus import DOPRI5, KVAERNO5, TSIT5
from staticgrad.odes.vectors import Vector, chosen, norm
from staticgrad.ops.control.bodies import require_function, same_type
from staticgrad.ops.sources import CONSTANT
from staticgrad.ops.surrogates import surrogate

Method = Literal["dopri5", "tsit5", "kvaerno5"]
METHODS = ("dopri5", "tsit5", "kvaerno5")
FEW = 16  # times between the first and the last that each turn looks at
State = dict[str, Any]
ENDED, EVENT, MAX_STEPS, STUCK = range(4)  # how it stands with an integration
GOING = ENDED


class ODEResult(NamedTuple):
    """The outcome of an integration.

    Attributes:
        ys: the states at the times, stacked along axis 0; NaN where the integration did not come.
        t_end: the time at which it ended: the last one, or that of the event; ``y_end`` the state there.
        status: 0 the last time was reached, 1 the event happened, 2 ``max_steps`` attempts were not enough, 3 steps
            became too small, which is so where the equation gives values that are not finite; int64.
        steps: accepted steps; ``rejected``: attempts that were not; ``evaluations`` of ``fn``; int64.
    """

    ys: Any
    t_end: Tensor
    y_end: Any
    status: Tensor
    steps: Tensor
    rejected: Tensor
    evaluations: Tensor


def odeint(
    fn: Callable[[Any, Any], Any],
    y0: Any,
    ts: Any,
    *,
    rtol: Any = 1e-6,
    atol: Any = 1e-9,
    method: Method = "dopri5",
    max_steps: int = 4096,
    event: Callable[[Any, Any], Any] | None = None,
    full_output: bool = False,
) -> Any:
    """The solution of dy/dt = ``fn(t, y)`` with y = ``y0`` at ``ts[0]``, at all of ``ts``, inside the compiled program.

    Steps have the sizes that the tolerances ask for: a Runge-Kutta pair estimates the error of each, and its
    interpolant gives the states at times within a step. Under ``vmap`` each example takes its own steps.

    Derivatives flow to ``y0``, to ``ts`` and to all tensors and variables that ``fn`` uses, in both modes and to any
    order. They are those of the steps as they were taken (the discrete adjoint), whose sizes are constants. A backward
    pass keeps time, size and state of each attempt, ``max_steps`` rows, and computes the stages again.

    Args:
        fn: ``fn(t, y)`` gives dy/dt, a nest like ``y0``. The time comes first, as in SciPy's ``solve_ivp``; it has the
            dtype of y.
        y0: a floating tensor, float32 or float64, or a nest of tensors of one of these dtypes; of known sizes.
        ts: a row of times that increase, or decrease. Their number is known.
        rtol, atol: the error of a step, as the root of the mean square of all elements, is at most 1 if that of each
            element is divided by ``atol + rtol·|y|``. Each a number, an array or tensor, or a nest like ``y0``.
        method: ``"dopri5"`` (Dormand and Prince) or ``"tsit5"`` (Tsitouras), explicit pairs of order 5(4) whose
            interpolants are of order 4; or ``"kvaerno5"`` (Kværnø), an L-stable implicit pair of order 5(4) for stiff
            equations, with a dense matrix ∂f/∂y and an interpolant of order 4.
        max_steps: attempts at most, with those that are rejected.
        event: ``event(t, y)`` gives one number. The integration ends where it first changes its sign, at the root of it
            on the interpolant. A sign change within a step that has the same sign at both ends is not seen.
        full_output: return an ``ODEResult`` also without an event.

    Returns:
        The states at ``ts``, a nest like ``y0`` with an axis of times in front. Rows to which the integration did not
        come are NaN: those behind the event, and all further ones where ``max_steps`` attempts were not enough or steps
        became too small. With ``event`` or ``full_output`` an ``ODEResult``, a named tuple: these states ``ys``; the
        time ``t_end`` at which the integration ended and the state ``y_end`` there, both with derivatives (that of the
        time of an event is by the theorem of implicit functions, up to the third order); ``status``, which is 0 at the
        last time, 1 at the event, 2 after ``max_steps`` and 3 where steps became too small; the numbers of ``steps``,
        of ``rejected`` attempts and of ``evaluations`` of ``fn``.

    Raises:
        GraphError: a y0 that is not floating, times that are no row or out of order, an ``fn`` that gives another
            structure, shape or dtype than y0, an unknown method.

    Source: Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I, 2nd ed. (1993), II.4-6; Hairer and
    Wanner, II, 2nd ed. (1996), IV.8; Tsitouras (2011) and Kværnø (2004) for their pairs.

    Example:
        >>> rate, start = sg.constant(2.0, sg.float64), sg.constant([1.0, 3.0], sg.float64)
        >>> y = sg.odeint(lambda t, y: -rate * y, start, [0.0, 0.5, 1.0])
        >>> slope, = sg.gradients(y[-1, 0], [rate])  # -exp(-rate)
        >>> sg.Session().run([y, slope])[0].round(5)
        array([[1.     , 3.     ],
               [0.36788, 1.10364],
               [0.13534, 0.40601]])

        When a ball hits the ground, and how that changes with the height from which it falls:

        >>> height = sg.constant(20.0, sg.float64)
        >>> fall = sg.odeint(
        ...     lambda t, y: {"x": y["v"], "v": -9.81}, {"x": height, "v": sg.constant(0.0, sg.float64)}, [0.0, 10.0],
        ...     event=lambda t, y: y["x"],
        ... )
        >>> np.round(sg.Session().run([fall.t_end, *sg.gradients(fall.t_end, [height])]), 5)
        array([2.01928, 0.05048])
    """
    what = "odeint"
    require_function(f"{what}: fn", fn, "t", "y")
    if event is not None:
        require_function(f"{what}: event", event, "t", "y")
    most = integer(max_steps, f"{what}: max_steps", 1)
    if method not in METHODS:
        raise GraphError(f"{what}: expected a method of {', '.join(map(repr, METHODS))}, actual {method!r}")
    leaves = nests.flatten(y0)
    graph = graph_of([*leaves, ts])
    with graph:
        system = _System(fn, event, y0, _first(what, y0, leaves))
        times = _times(what, ts, system.dtype)
        tolerances = StepTolerances(*(system.spread(what, name, v) for name, v in (("rtol", rtol), ("atol", atol))))
        stepper, controller = _method(method, tolerances)
        made = _Integration(system, times, tolerances, stepper, controller, most).result()
    return made if full_output or event is not None else made.ys


def _method(method: Method, tolerances: StepTolerances) -> tuple[Stepper, Controller]:
    if method == "kvaerno5":
        return Implicit(KVAERNO5, tolerances), Controller(1 / 5, 0.08)
    return Explicit(DOPRI5 if method == "dopri5" else TSIT5), Controller(1 / 5, 0.04)


def _first(what: str, y0: Any, leaves: Sequence[Any]) -> Vector:
    """The state at the first time.

    Raises:
        GraphError: nothing in it, leaves that are not all float32 or all float64, or of sizes that only feeds bind.
    """
    state = tuple(lift(x) for x in leaves)
    if not state:
        raise GraphError(f"{what}: y0: expected a nest of tensors, actual {y0!r}")
    for x, path in zip(state, nests.paths(y0), strict=True):
        if x.dtype not in (float32, float64):
            raise GraphError(
                f"{what}: y0{path}: expected float32 or float64, actual {x.type}; sg.astype(y0, sg.float32) is one",
                source=x.source,
            )
        if not x.type.static:
            raise GraphError(f"{what}: y0{path}: expected sizes that are known, actual {x.type}", source=x.source)
        if x.dtype != state[0].dtype:
            raise GraphError(f"{what}: y0{path}: expected {state[0].dtype.name}, as the others, actual {x.type}")
    return state


def _times(what: str, ts: Any, dtype: np.dtype) -> Tensor:
    """The times, in the dtype of the state or a wider one.

    Raises:
        GraphError: not a row of at least one time, or known ones that are out of order.
    """
    x = lift(ts, None, dtype)
    if x.ndim != 1 or x.shape[0] == 0 or not isinstance(x.shape[0], int):
        raise GraphError(f"{what}: ts: expected a row of times whose number is known, actual {x.type}", source=x.source)
    if x.op.op is CONSTANT:
        known = x.op.attrs.value
        steps = np.diff(known)
        if not np.isfinite(known).all() or not ((steps >= 0).all() or (steps <= 0).all()):
            raise GraphError(f"{what}: ts: expected times that increase, or that decrease, actual {known!r}")
    return O.astype(x, np.result_type(x.dtype, dtype) if x.dtype in (float32, float64) else dtype)


class _System:
    """The equation, between the user's nests and vectors."""

    def __init__(
        self, fn: Callable[[Any, Any], Any], event: Callable[[Any, Any], Any] | None, nest: Any, state: Vector
    ) -> None:
        self._fn, self._event, self._nest = fn, event, nest
        self.state = state
        self.dtype = state[0].dtype

    def slope(self, t: Tensor, y: Vector) -> Vector:
        """dy/dt.

        Raises:
            GraphError: the function gives another nest, or tensors of other types.
        """
        answer = self._fn(O.astype(t, self.dtype), self.packed(y))
        found: list[Any] = []
        try:
            nests.map(lambda _, new: found.append(new), self._nest, answer)
        except GraphError as error:
            raise GraphError(f"odeint: fn gives another structure than y0: {error.message}") from None
        paths = nests.paths(self._nest)
        return tuple(self._fitted(new, x, path) for new, x, path in zip(found, self.state, paths, strict=True))

    def _fitted(self, value: Any, like: Tensor, path: str) -> Tensor:
        if is_weak(value) or (isinstance(value, np.ndarray) and value.shape == like.shape):
            return O.broadcast_to(O.constant(np.asarray(value, self.dtype)), like.shape)
        x = lift(value)
        if not same_type(x.type, like.type):
            raise GraphError(
                f"odeint: fn gives dy/dt of another type than y0{path}"
                f"\n  expected {like.type}, as y0{path}\n  actual   {x.type}, {x.name!r} that fn returns",
                source=x.source,
            )
        return x

    def mark(self, t: Tensor, y: Vector) -> Tensor:
        """The function whose root is the event."""
        assert self._event is not None
        x = lift(self._event(O.astype(t, self.dtype), self.packed(y)), None, self.dtype)
        if x.shape != () or x.dtype not in (float32, float64):
            raise GraphError(f"odeint: event: expected a function to one floating number, actual {x.type}",
                             source=x.source)  # fmt: skip
        return x

    @property
    def has_event(self) -> bool:
        return self._event is not None

    def packed(self, y: Sequence[Tensor]) -> Any:
        return nests.pack(self._nest, list(y))

    def spread(self, what: str, name: str, value: Any) -> Vector:
        """A tolerance for each leaf: one number for all, or a nest like the state."""
        many = nests.children(value) is not None and nests.children(self._nest) is not None
        parts = nests.flatten(value) if many else [value] * len(self.state)
        if len(parts) != len(self.state):
            raise GraphError(f"{what}: {name}: expected a number or a nest like y0, actual {value!r}")
        return tuple(O.stop_gradient(O.astype(lift(v, None, self.dtype), self.dtype)) for v in parts)


@frozen(eq=False)
class _TriedStep:
    """The step of an attempt: whether it is taken, whether it leads to the last time, its size (zero if it is not
    taken), the time at its end, and its interpolant."""

    moves: Tensor
    lands: Tensor
    h: Tensor
    arrival: Tensor
    path: Curve


class _Integration:
    """The loop and what stands around it."""

    def __init__(
        self, system: _System, times: Tensor, tolerances: StepTolerances, stepper: Stepper, controller: Controller,
        most: int,
    ) -> None:  # fmt: skip
        self._system, self._tolerances, self._stepper, self._controller = system, tolerances, stepper, controller
        self._most = most
        self._times = times
        self._start, self._last, self._goal = times[0], times[-1], O.stop_gradient(times[-1])
        self._between = times[1:-1]
        self._sign = O.where(self._goal < O.stop_gradient(self._start), O.constant(-1.0, times.dtype), 1.0)

    def result(self) -> ODEResult:
        """The states at all times, and how the integration ended."""
        y0, system = self._system.state, self._system
        begun = self._begun()
        last = O.while_loop(self._goes_on, self._turn, begun, max_steps=self._most)
        if self._is_swept:
            last = self._swept(begun, last)
        t, y, rows, status = last["t"], last["y"], last["rows"], last["status"]
        if system.has_event:
            t, y, rows = self._with_event(last)
        ended = t == self._goal
        status = O.where(O.logical_and(ended, status == GOING), ENDED, O.where(status == GOING, MAX_STEPS, status))
        reached = self._not_after(self._between, t)
        ys = [self._stacked(a, row, z, reached, ended) for a, row, z in zip(y0, rows or y0, y, strict=True)]
        counts = last["steps"], last["rejected"], last["evaluations"]
        return ODEResult(system.packed(ys), t, system.packed(y), status, *counts)

    @property
    def _is_swept(self) -> bool:
        """True if turns that look at all times between would take long."""
        return self._between.shape[0] > FEW

    def _swept(self, begun: State, derived: State) -> State:
        """The values of an integration whose derivatives are those of ``derived``: a loop over the times between, which
        makes attempts until it has come to each."""
        start = {**begun, "rows": (), "tries": 0}
        flat = tuple(O.zeros_like(x) for x in start["y"])
        nothing = Curve(start["t"], O.zeros_like(start["t"]), start["y"], (flat,) * len(self._stepper.pair.dense[0]))

        def until(time: Tensor, s: State, path: Curve) -> tuple[State, Curve]:
            def goes_on(carry: tuple[State, Curve]) -> Tensor:
                s, _ = carry
                arrived = self._not_after(time, s["t"])
                return O.logical_and(O.logical_and(self._goes_on(s), s["tries"] < self._most), O.logical_not(arrived))

            def turn(carry: tuple[State, Curve]) -> tuple[State, Curve]:
                s, path = carry
                made, step = self._attempted(s)
                made["tries"] = s["tries"] + 1
                new = nests.map(lambda a, b: O.where(step.moves, a, b), step.path, path)
                return {name: made[name] for name in s}, new

            found: tuple[State, Curve] = O.while_loop(goes_on, turn, (s, path))
            return found

        def row(carry: tuple[State, Curve], time: Tensor) -> tuple[tuple[State, Curve], Vector]:
            s, path = until(time, *carry)
            return (s, path), path.at(time, self._not_after(time, s["t"]))

        still = nests.map(O.stop_gradient, (start, nothing))
        carry, rows = O.scan(row, still, O.stop_gradient(self._between))
        last, _ = until(self._goal, *carry)
        return {
            **{name: nests.map(O.stop_gradient, x) for name, x in last.items()},
            "t": surrogate(O.stop_gradient(last["t"]), derived["t"]),
            "y": tuple(surrogate(O.stop_gradient(x), z) for x, z in zip(last["y"], derived["y"], strict=True)),
            "rows": tuple(surrogate(O.stop_gradient(x), z) for x, z in zip(rows, derived["rows"], strict=True)),
        }

    def _stacked(self, first: Tensor, rows: Tensor, end: Tensor, reached: Tensor, ended: Tensor) -> Tensor:
        """The states at all times, those that were not reached NaN."""
        count = self._times.shape[0]
        parts = [O.expand_dims(first, 0)]
        if count > 2:
            flags = O.reshape(reached, (count - 2, *(1,) * first.ndim))
            parts.append(O.where(flags, rows, np.nan))
        if count > 1:
            parts.append(O.expand_dims(O.where(ended, end, np.nan), 0))
        return O.concat(parts, 0)

    def _not_after(self, times: Tensor, t: Tensor) -> Tensor:
        return self._sign * (times - t) <= 0

    def _begun(self) -> State:
        system, t, y = self._system, self._start, self._system.state
        slope = system.slope(t, y)
        still, at_rest = (tuple(O.stop_gradient(x) for x in v) for v in (y, slope))
        h = first_step(
            system.slope, O.stop_gradient(t), still, at_rest, self._goal - O.stop_gradient(t), self._stepper.pair.order,
            self._tolerances,
        )  # fmt: skip
        state: State = {
            "t": t, "y": y, "slope": at_rest, "h": O.stop_gradient(h), "error": O.constant(1e-4, self._system.dtype),
            "refused": False, "status": GOING, "steps": 0, "rejected": 0, "evaluations": 2, "rows": (),
        }  # fmt: skip
        if self._between.shape[0]:
            at_once = O.expand_dims(self._between == O.stop_gradient(t), 1)
            count = self._between.shape[0]
            state["rows"] = tuple(
                O.where(O.reshape(at_once, (count, *(1,) * x.ndim)), O.expand_dims(x, 0), 0.0) for x in y
            )
        if system.has_event:
            state["mark"] = O.stop_gradient(system.mark(t, y))
        return state

    def _goes_on(self, s: State) -> Tensor:
        return O.logical_and(s["t"] != self._goal, s["status"] == GOING)

    def _turn(self, s: State) -> State:
        """One attempt, and the step if it is accepted, with its derivatives."""
        made, step = self._attempted(s)
        rows = s["rows"]

        def derived(t: Tensor, y: Vector) -> tuple[Tensor, Vector, Vector]:
            lands = O.logical_and(step.moves, step.lands)
            h = O.where(lands, self._last - t, step.h)  # the last step is as long as what is left
            end, slopes = self._stepper.derived(self._system.slope, t, y, h)
            path = curve(self._stepper.pair, t, h, y, slopes)
            return t + h, end, self._added(path, rows, t, step.arrival) if rows else ()

        then, behind, added = O.checkpoint(derived, s["t"], s["y"])
        made["t"] = surrogate(made["t"], then)
        made["y"] = tuple(map(surrogate, made["y"], behind))
        if self._is_swept:
            made["rows"] = added  # whose values nothing reads
        elif rows:
            made["rows"] = tuple(map(surrogate, self._written(step.path, rows, s["t"], step.arrival), added))
        return {name: made[name] for name in s}

    def _attempted(self, s: State) -> tuple[State, _TriedStep]:
        """The values of the state after one attempt, but for the rows, and the step."""
        system, pair = self._system, self._stepper.pair
        t, y, h = s["t"], s["y"], s["h"]
        left = self._goal - t
        lands = 1.01 * O.abs(h) >= O.abs(left)
        h = O.stop_gradient(O.where(lands, left, h))
        attempt = self._stepper.attempt(system.slope, t, y, s["slope"], h)
        error = norm(attempt.error, self._tolerances.scale(y, attempt.y))
        if attempt.converged is not None:
            error = O.where(attempt.converged, error, np.inf)
        accepted, proposed, remembered = self._controller.next(h, error, s["error"], s["refused"])
        arrival = O.where(lands, self._goal, t + h)
        stuck = O.logical_and(O.logical_not(accepted), too_small(t, proposed))
        made: State = {"status": O.where(stuck, STUCK, GOING), "rows": s["rows"]}
        moves = accepted
        if system.has_event:
            mark = system.mark(arrival, attempt.y)
            happens = O.logical_and(accepted, self._changes(s["mark"], mark))
            moves = O.logical_and(accepted, O.logical_not(happens))
            proposed = O.where(happens, h, proposed)
            made["status"] = O.where(happens, EVENT, made["status"])
            made["mark"] = O.where(moves, mark, s["mark"])
        arrival = O.where(moves, arrival, t)
        made |= {
            "t": arrival,
            "y": chosen(moves, attempt.y, y),
            "slope": chosen(moves, attempt.slopes[-1], s["slope"]),
            "h": proposed, "error": remembered, "refused": O.logical_not(accepted),
            "steps": s["steps"] + O.astype(moves, np.int64),
            "rejected": s["rejected"] + O.astype(O.logical_not(accepted), np.int64),
            "evaluations": s["evaluations"] + attempt.evaluations,
        }  # fmt: skip
        for name in ("slope", "h", "error"):
            made[name] = nests.map(O.stop_gradient, made[name])
        taken = O.stop_gradient(O.where(moves, h, 0.0))
        path = curve(pair, t, h, y, attempt.slopes)
        return made, _TriedStep(moves, lands, taken, O.stop_gradient(arrival), path)

    def _inside(self, t: Tensor, arrival: Tensor) -> Tensor:
        """True for the times between that lie behind ``t`` and not behind ``arrival``."""
        return O.logical_and(O.logical_not(self._not_after(self._between, t)), self._not_after(self._between, arrival))

    def _written(self, path: Curve, rows: Vector, t: Tensor, arrival: Tensor) -> Vector:
        inside = self._inside(t, arrival)
        flags = [O.reshape(inside, (*inside.shape, *(1,) * (x.ndim - 1))) for x in rows]
        new = path.at(self._between, inside)
        return tuple(O.where(flag, row, x) for flag, row, x in zip(flags, new, rows, strict=True))

    def _added(self, path: Curve, rows: Vector, t: Tensor, arrival: Tensor) -> Vector:
        """The rows of ``_written`` as a sum: no row is written twice, so that cotangents of rows pass by all turns."""
        nothing = tuple(O.zeros_like(x) for x in rows)
        return tuple(x + new for x, new in zip(rows, self._written(path, nothing, t, arrival), strict=True))

    @staticmethod
    def _changes(before: Tensor, now: Tensor) -> Tensor:
        falls, rises = (O.logical_and(a > 0, b <= 0) for a, b in ((before, now), (-before, -now)))
        return O.logical_or(falls, rises)

    def _with_event(self, s: State) -> tuple[Tensor, Vector, Vector]:
        """The time, the state and the rows where the integration ended: at the event where there was one."""
        system, t, y = self._system, s["t"], s["y"]
        happened = s["status"] == EVENT
        h = O.stop_gradient(O.where(happened, s["h"], 0.0))
        _, slopes = self._stepper.derived(system.slope, t, y, h)
        path = curve(self._stepper.pair, t, h, y, slopes)

        def mark(time: Tensor) -> Tensor:
            (state,) = (path.at(time, O.ones_like(time, dtype=np.bool_)),)
            return system.mark(time, state)

        found = bracketed(lambda part: mark(t + part * h), s["mark"], t.dtype)
        time = root = O.stop_gradient(t + found * h)
        for _ in range(2):
            value = O.astype(mark(time), t.dtype)
            (slope,) = jvp([value], [time], [O.ones_like(time)])
            time = time - value / O.where(slope == 0, 1.0, slope)
        time = O.where(happened, surrogate(root, time), t)
        rows = self._written(path, s["rows"], t, O.stop_gradient(time)) if s["rows"] else ()
        return time, path.at(time, happened), rows


__all__ = ["ODEResult", "odeint"]
