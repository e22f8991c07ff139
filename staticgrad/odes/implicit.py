"""Attempts of implicit Runge-Kutta pairs with one diagonal coefficient γ and an explicit first stage.

Input and output are those of ``explicit``. The slope k of a stage solves k = f(t + c h, y + h Σ a_j k_j + hγ k) with
the slopes k_j before it, by the simplified Newton method (Hairer and Wanner, Solving Ordinary Differential Equations
II, 2nd ed., IV.8): the matrix I - hγ ∂f/∂y is that at the beginning of the step, factored once an attempt; an iteration
ends by the rate at which it converges, and where it diverges or takes long the attempt is refused.

The derivatives of a slope are not those of the iteration. They follow from the equation by the theorem of implicit
functions, with the matrix at the stage itself, by rules that read the slope and can be derived again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import is_floating, sizes
from staticgrad.compiler.autodiff.forward import jacobian, jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.odes.explicit import Attempt
from staticgrad.odes.step_sizes import StepTolerances
from staticgrad.odes.tableaus import Tableau
from staticgrad.odes.vectors import Slope, Vector, combined, detached, difference, moved, norm, scaled, size
from staticgrad.ops.custom import of_node

ITERATIONS = 10  # of one stage
ENOUGH = 1e-2  # the error of an iteration, of what the tolerances allow
Closed = Callable[[Tensor, Vector, Sequence[Tensor]], Vector]  # of a time, a state and what else it reads


@frozen
class Implicit:
    """A pair whose stages are solved one after the other, in the turns of a loop, to a part of ``tolerances``."""

    pair: Tableau
    tolerances: StepTolerances

    def attempt(self, f: Slope, t: Tensor, y: Vector, slope: Vector, h: Tensor) -> Attempt:
        newton = _Newton.of_step(f, t, y, h * self.pair.gamma, self.tolerances.scale(y))
        slopes, state = self._stages(t, y, slope, h, newton.solved, newton.begun())
        end = moved(y, h, combined(self.pair.b, slopes))
        error = scaled(h, combined(self.pair.e, slopes))
        return Attempt(end, error, slopes, 1 + state["evaluations"], state["converged"])

    def derived(self, f: Slope, t: Tensor, y: Vector, h: Tensor) -> tuple[Vector, tuple[Vector, ...]]:
        closed, read = _closed(f, t, y)
        shift, still = h * self.pair.gamma, detached(y)
        newton = _Newton.of_step(f, O.stop_gradient(t), still, O.stop_gradient(shift), self.tolerances.scale(still))

        def solved(base: Vector, time: Tensor, guess: Vector, state: Iteration) -> tuple[Vector, Iteration]:
            found, state = newton.solved(detached(base), O.stop_gradient(time), detached(guess), state)
            return _defined(closed, found, base, time, shift, read), state

        slopes, _ = self._stages(t, y, f(t, y), h, solved, newton.begun())
        return moved(y, h, combined(self.pair.b, slopes)), slopes

    def _stages(
        self, t: Tensor, y: Vector, slope: Vector, h: Tensor, solved: Solve, state: Iteration
    ) -> tuple[tuple[Vector, ...], Iteration]:
        """The slopes of all stages, and the state of the iterations in the end."""
        pair, dtype = self.pair, y[0].dtype
        count = pair.stages
        weights, guesses = np.zeros((2, count - 1, count))
        for number in range(1, count):
            weights[number - 1, :number] = pair.a[number]
            guesses[number - 1, : len(pair.guesses[number - 1])] = pair.guesses[number - 1]
        rows = [O.constant(table, dtype) for table in (weights, guesses, np.eye(count)[1:])]
        times = O.constant(np.array(pair.c[1:]), t.dtype)

        def turn(carry: Any, row: Any) -> Any:
            slopes, state = carry
            weights, guess, place, c = row
            found, state = solved(moved(y, h, mixed(weights, slopes)), t + c * h, mixed(guess, slopes), state)
            return (tuple(x + outer(place, k) for x, k in zip(slopes, found, strict=True)), state), None

        begun = tuple(outer(O.constant(np.eye(count)[0], dtype), k) for k in slope)
        (slopes, state), _ = O.scan(turn, (begun, state), (*rows, times))
        return tuple(tuple(x[number] for x in slopes) for number in range(count)), state


Iteration = dict[str, Tensor]
Solve = Callable[[Vector, Tensor, Vector, Iteration], tuple[Vector, Iteration]]


def mixed(weights: Tensor, slopes: Vector) -> Vector:
    """Σ w_i k_i over the first axis of slopes that are stacked."""
    return tuple(O.sum(O.reshape(weights, (-1, *(1,) * (x.ndim - 1))) * x, 0) for x in slopes)


def outer(weights: Tensor, x: Tensor) -> Tensor:
    return O.reshape(weights, (-1, *(1,) * x.ndim)) * O.expand_dims(x, 0)


@frozen(eq=False)
class _Newton:
    """The iterations of one step, which share the factors of a matrix."""

    f: Slope
    factors: tuple[Tensor, Tensor]
    shift: Tensor
    scale: Vector

    @staticmethod
    def of_step(f: Slope, t: Tensor, y: Vector, shift: Tensor, scale: Vector) -> _Newton:
        factors = O.lu_factor(_matrix(f, t, y, shift))
        return _Newton(f, (factors[0], factors[2]), shift, scale)

    def begun(self) -> Iteration:
        """The state of iterations: if all have converged, their evaluations, and rate / (1 - rate) of the last one."""
        return {
            "converged": O.constant(True), "evaluations": O.constant(0),
            "contraction": O.ones((), dtype=self.scale[0].dtype),
        }  # fmt: skip

    def solved(self, base: Vector, time: Tensor, guess: Vector, state: Iteration) -> tuple[Vector, Iteration]:
        """The slope k = f(time, base + shift·k)."""

        def turn(s: dict[str, Any]) -> dict[str, Any]:
            slope = self.f(time, moved(base, self.shift, s["k"]))
            residual = _flat(difference(slope, s["k"]))
            change = _shaped(O.lu_solve(*self.factors, residual), s["k"])
            length = norm(scaled(self.shift, change), self.scale)
            later = s["tries"] > 0
            rate = O.where(later, length / O.where(s["length"] == 0, 1.0, s["length"]), 0.0)
            contraction = O.where(later, rate / O.where(rate < 1, 1 - rate, 1.0), s["contraction"])
            diverges = O.logical_or(O.logical_not(O.isfinite(length)), O.logical_and(later, rate >= 1))
            done = O.logical_or(contraction * length <= ENOUGH, length == 0)
            return {
                "k": tuple(a + b for a, b in zip(s["k"], change, strict=True)),
                "length": length, "contraction": contraction, "tries": s["tries"] + 1,
                "done": O.logical_and(done, O.logical_not(diverges)), "diverges": diverges,
            }  # fmt: skip

        def goes_on(s: dict[str, Any]) -> Tensor:
            return O.logical_not(O.logical_or(O.logical_or(s["done"], s["diverges"]), s["tries"] >= ITERATIONS))

        info: Any = np.finfo(guess[0].dtype)
        begun = {
            "k": guess, "length": O.zeros((), dtype=guess[0].dtype),
            "contraction": O.maximum(state["contraction"], float(info.eps)) ** 0.8, "tries": 0, "done": False,
            "diverges": O.logical_not(state["converged"]),
        }  # fmt: skip
        last = O.while_loop(goes_on, turn, begun)
        found: Iteration = {
            "converged": O.logical_and(state["converged"], last["done"]),
            "evaluations": state["evaluations"] + last["tries"], "contraction": last["contraction"],
        }  # fmt: skip
        return detached(last["k"]), {name: O.stop_gradient(x) for name, x in found.items()}


# -- derivatives of a slope -------------------------------------------------------------------------------------------


def _defined(
    closed: Closed, found: Vector, base: Vector, time: Tensor, shift: Tensor, read: Sequence[Tensor]
) -> Vector:
    """The slope of a stage that was ``found``, as a function of what is known of its state, its time, hγ and what the
    equation reads."""
    count = len(base)

    def parted(operands: Sequence[Tensor]) -> tuple[Vector, Tensor, Tensor, Sequence[Tensor]]:
        return tuple(operands[:count]), operands[count], operands[count + 1], operands[count + 2 :]

    def varying(operands: Sequence[Tensor]) -> list[Tensor]:
        return [x for x in operands if is_floating(x.dtype)]

    def equation(k: Sequence[Tensor], operands: Sequence[Tensor]) -> tuple[Vector, list[Tensor], Tensor]:
        """The right side, the operands that it is a function of, and the matrix of the left side less the right."""
        held = [O.identity(x) for x in operands]
        base, time, shift, read = parted(held)
        right = closed(time, moved(base, shift, tuple(k)), read)
        base, time, shift, read = parted(operands)
        matrix = _matrix(lambda t, y: closed(t, y, read), time, moved(base, shift, tuple(k)), shift)
        return right, varying(held), matrix

    @O.custom_gradient
    def slope(*operands: Tensor) -> Any:
        @of_node
        def pulled_back(k: list[Tensor], operands: list[Tensor], *cotangents: Tensor) -> list[Tensor | None]:
            right, held, matrix = equation(k, operands)
            solution = _shaped(O.solve(O.matrix_transpose(matrix), _flat(cotangents)), tuple(k))
            slopes = iter(gradients(list(right), held, list(solution), unconnected_gradients="zero"))
            return [next(slopes) if is_floating(x.dtype) else None for x in operands]

        @of_node
        def pushed_forward(k: list[Tensor], operands: list[Tensor], *tangents: Tensor) -> list[Tensor]:
            right, held, matrix = equation(k, operands)
            return list(_shaped(O.solve(matrix, _flat(jvp(list(right), held, varying(tangents)))), tuple(k)))

        return tuple(O.identity(x) for x in found), pulled_back, pushed_forward

    made: Vector = slope(*base, time, shift, *read)
    return made


def _closed(f: Slope, t: Tensor, y: Vector) -> tuple[Closed, list[Tensor]]:
    """A function of all tensors that ``f`` reads, and those that it reads beside its arguments."""
    graph = get_default_graph()
    time, state = O.identity(t), tuple(O.identity(x) for x in y)
    first = len(graph.nodes)
    slope = f(time, state)
    nodes = list(graph.nodes[first:])
    own = {out for node in nodes for out in node.outputs} | {time, *state}
    read = [x for x in dict.fromkeys(x for node in nodes for x in node.inputs) if x not in own]

    def closed(time_now: Tensor, state_now: Vector, read_now: Sequence[Tensor]) -> Vector:
        known = dict(zip((time, *state, *read), (time_now, *state_now, *read_now), strict=True))
        made: dict[Node, Node] = {}
        around = get_default_graph()
        for node in nodes:
            inputs = [known[x] for x in node.inputs]
            control = [made[before] for before in node.control if before in made]
            made[node] = around.add(node.op, inputs, node.attrs, control=control)
            known.update(zip(node.outputs, made[node].outputs, strict=True))
        return tuple(known.get(x, x) for x in slope)

    return closed, read


# -- matrices ---------------------------------------------------------------------------------------------------------


def _matrix(f: Slope, t: Tensor, y: Vector, shift: Tensor) -> Tensor:
    """I - shift·∂f/∂y, of all elements in a row."""
    at = O.identity(_flat(y))
    slope = jacobian(_flat(f(t, _shaped(at, y))), at)
    return O.eye(size(y), dtype=at.dtype) - O.astype(shift, at.dtype) * slope


def _flat(x: Sequence[Tensor]) -> Tensor:
    parts = [O.reshape(part, (-1,)) for part in x]
    return parts[0] if len(parts) == 1 else O.concat(parts, 0)


def _shaped(row: Tensor, like: Vector) -> Vector:
    """The vector with the elements of a row."""
    counts = [math.prod(sizes(x.shape)) for x in like]
    ends = np.cumsum(counts)
    return tuple(
        O.reshape(row[int(end) - count : int(end)], x.shape) for x, count, end in zip(like, counts, ends, strict=True)
    )
