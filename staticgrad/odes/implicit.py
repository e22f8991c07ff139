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
from staticgrad.odes.step_sizes import Tolerances
from staticgrad.odes.tableaus import Tableau
from staticgrad.odes.vectors import Slope, Vector, combined, detached, moved, norm, scaled, size
from staticgrad.ops.custom import of_node

ITERATIONS = 10  # of one stage
ENOUGH = 1e-2  # the error of an iteration, of what the tolerances allow
Closed = Callable[[Tensor, Vector, Sequence[Tensor]], Vector]  # of a time, a state and what else it reads


@frozen
class Implicit:
    """A pair whose stages are solved one after the other, to a part of ``tolerances``."""

    pair: Tableau
    tolerances: Tolerances

    def attempt(self, f: Slope, t: Tensor, y: Vector, slope: Vector, h: Tensor) -> Attempt:
        pair = self.pair
        newton = _Newton(f, t, y, h * pair.gamma, self.tolerances.scale(y))
        slopes = [slope]
        for base, time, guess in self._equations(t, y, h, slopes):
            slopes.append(newton.solved(base, time, guess))
        end = moved(y, h, combined(pair.b, slopes))
        error = scaled(h, combined(pair.e, slopes))
        return Attempt(end, error, tuple(slopes), newton.evaluations, newton.converged)

    def derived(self, f: Slope, t: Tensor, y: Vector, h: Tensor) -> tuple[Vector, tuple[Vector, ...]]:
        pair = self.pair
        closed, read = _closed(f, t, y)
        newton = _Newton(f, *(O.stop_gradient(t), detached(y)), O.stop_gradient(h) * pair.gamma, self._scale(y))
        slopes = [f(t, y)]
        for base, time, guess in self._equations(t, y, h, slopes):
            slopes.append(_implicit(closed, newton, base, time, h * pair.gamma, guess, read))
        return moved(y, h, combined(pair.b, slopes)), tuple(slopes)

    def _scale(self, y: Vector) -> Vector:
        return self.tolerances.scale(detached(y))

    def _equations(self, t: Tensor, y: Vector, h: Tensor, slopes: list[Vector]) -> Any:
        """Of each stage after the first: what is known of its state, its time, a guess of its slope. ``slopes`` grows
        meanwhile."""
        pair = self.pair
        for weights, c, guess in zip(pair.a[1:], pair.c[1:], pair.guesses, strict=True):
            yield moved(y, h, combined(weights, slopes)), t + c * h, combined(guess, slopes)


class _Newton:
    """The iterations of one step, which share a matrix."""

    def __init__(self, f: Slope, t: Tensor, y: Vector, shift: Tensor, scale: Vector) -> None:
        self._f, self._shift, self._scale = f, shift, scale
        factors = O.lu_factor(_matrix(f, t, y, shift))
        self._factors = factors[0], factors[2]
        self.converged = O.constant(True)
        self.evaluations: Tensor | int = 1
        self._contraction = O.ones((), dtype=y[0].dtype)  # rate / (1 - rate) of the last iteration

    def solved(self, base: Vector, time: Tensor, guess: Vector) -> Vector:
        """The slope k = f(time, base + shift·k)."""

        def turn(s: dict[str, Any]) -> dict[str, Any]:
            slope = self._f(time, moved(base, self._shift, s["k"]))
            residual = _flat(tuple(a - b for a, b in zip(slope, s["k"], strict=True)))
            change = _shaped(O.lu_solve(*self._factors, residual), s["k"])
            length = norm(scaled(self._shift, change), self._scale)
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
            "k": detached(guess), "length": O.zeros((), dtype=guess[0].dtype),
            "contraction": O.maximum(self._contraction, float(info.eps)) ** 0.8, "tries": 0, "done": False,
            "diverges": O.logical_not(self.converged),
        }  # fmt: skip
        last = O.while_loop(goes_on, turn, begun)
        self._contraction = last["contraction"]
        self.converged = O.logical_and(self.converged, last["done"])
        self.evaluations = self.evaluations + last["tries"]
        return detached(last["k"])


# -- derivatives of a slope -------------------------------------------------------------------------------------------


def _implicit(
    closed: Closed, newton: _Newton, base: Vector, time: Tensor, shift: Tensor, guess: Vector, read: Sequence[Tensor]
) -> Vector:
    """The slope of a stage as a function of what is known of its state, its time, hγ and what f reads."""
    count = len(base)

    def parted(operands: Sequence[Tensor]) -> tuple[Vector, Tensor, Tensor, Sequence[Tensor]]:
        return tuple(operands[:count]), operands[count], operands[count + 1], operands[count + 2 :]

    @O.custom_gradient
    def solved(*operands: Tensor) -> Any:
        base, time, _, _ = parted(operands)
        k = tuple(O.identity(x) for x in newton.solved(detached(base), O.stop_gradient(time), guess))

        def equation(k: Sequence[Tensor], operands: Sequence[Tensor]) -> tuple[Vector, list[Tensor], Tensor]:
            """The right side, the operands that it is a function of, and the matrix of the left side less the right."""
            held = [O.identity(x) for x in operands]
            base, time, shift, read = parted(held)
            right = closed(time, moved(base, shift, tuple(k)), read)
            base, time, shift, read = parted(operands)
            matrix = _matrix(lambda t, y: closed(t, y, read), time, moved(base, shift, tuple(k)), shift)
            return right, held, matrix

        @of_node
        def pulled_back(k: list[Tensor], operands: list[Tensor], *cotangents: Tensor) -> list[Tensor]:
            right, held, matrix = equation(k, operands)
            solution = _shaped(O.solve(O.matrix_transpose(matrix), _flat(cotangents)), tuple(k))
            return gradients(list(right), held, list(solution), unconnected_gradients="zero")

        @of_node
        def pushed_forward(k: list[Tensor], operands: list[Tensor], *tangents: Tensor) -> list[Tensor]:
            right, held, matrix = equation(k, operands)
            return list(_shaped(O.solve(matrix, _flat(jvp(list(right), held, list(tangents)))), tuple(k)))

        return k, pulled_back, pushed_forward

    made: Vector = solved(*base, time, shift, *read)
    return made


def _closed(f: Slope, t: Tensor, y: Vector) -> tuple[Closed, list[Tensor]]:
    """A function of all floating tensors that ``f`` reads, and those that it reads beside its arguments."""
    graph = get_default_graph()
    time, state = O.identity(t), tuple(O.identity(x) for x in y)
    first = len(graph.nodes)
    slope = f(time, state)
    nodes = list(graph.nodes[first:])
    own = {out for node in nodes for out in node.outputs} | {time, *state}
    read = [x for x in dict.fromkeys(x for node in nodes for x in node.inputs) if x not in own and is_floating(x.dtype)]

    def closed(time_now: Tensor, state_now: Vector, read_now: Sequence[Tensor]) -> Vector:
        known = dict(zip((time, *state, *read), (time_now, *state_now, *read_now), strict=True))
        made: dict[Node, Node] = {}
        around = get_default_graph()
        for node in nodes:
            types = tuple(out.type for out in node.outputs)
            control = [made.get(before, before) for before in node.control]
            inputs = [known.get(x, x) for x in node.inputs]
            made[node] = around.add(node.op, inputs, node.attrs, types=types, control=control)
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
