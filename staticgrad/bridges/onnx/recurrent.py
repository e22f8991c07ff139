"""ONNX's recurrent layers: RNN, GRU and LSTM, each direction one scan over time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx import elementwise
from staticgrad.bridges.onnx.dialect import converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    **{name.lower(): function for name, function in elementwise.ACTIVATIONS.items()},
    "affine": lambda x, *, alpha=1.0, beta=0.0: x * alpha + beta,
    "scaledtanh": lambda x, *, alpha=1.0, beta=1.0: o.tanh(x * beta) * alpha,
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _activations(node: OnnxNode, directions: int) -> list[list[Callable[[Tensor], Tensor]]]:
    """The functions of each direction. Parameters are listed for those functions that have some."""
    names = [n.lower() for n in node.attr("activations", DEFAULTS[node.operator] * directions)]
    given = {name: iter(node.attr(f"activation_{name}", [])) for name in ("alpha", "beta")}
    limit = node.attr("clip")
    made: list[Callable[[Tensor], Tensor]] = []
    for name in names:
        if name not in ACTIVATIONS:
            raise RefusedError(f"the activation {name} is not converted")
        taken = [each for each in inspect.signature(ACTIVATIONS[name]).parameters if each in given]
        values = {each: value for each in taken if (value := next(given[each], None)) is not None}
        function = functools.partial(ACTIVATIONS[name], **values)
        made.append(
            function if limit is None else lambda x, f=function: f(o.clip(x, -limit, limit))  # type: ignore[misc]
        )
    count = len(names) // directions
    return [made[count * d : count * (d + 1)] for d in range(directions)]


@converts("RNN", "GRU", "LSTM")
def recurrent(
    node: OnnxNode, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None, hidden: Tensor | None,
    cell: Tensor | None, peepholes: Tensor | None, *, direction: str, layout: int = 0,
) -> list[Tensor]:  # fmt: skip
    x = o.swapaxes(x, 0, 1) if layout else x
    turned = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    functions = _activations(node, len(turned))
    size, kind = r.shape[-1], node.operator
    found = []
    for place, reverse in enumerate(turned):
        bias = o.zeros(2 * GATES[kind] * size, dtype=x.dtype) if b is None else b[place]
        states = [hidden, cell] if kind == "LSTM" else [hidden]
        start = [_start(each, place, bool(layout), x, size) for each in states]
        peep = None if peepholes is None else peepholes[place]
        found.append(_direction(node, x, (w[place], r[place], bias, peep), start, lengths, reverse, functions[place]))
    y = o.stack([outputs for outputs, _ in found], axis=1)  # (time, direction, batch, hidden)
    last = [o.stack([state[k] for _, state in found]) for k in range(len(found[0][1]))]
    if layout:
        return [o.permute_dims(y, (2, 0, 1, 3)), *(o.swapaxes(each, 0, 1) for each in last)]
    return [y, *last]


def _start(state: Tensor | None, place: int, by_batch: bool, x: Tensor, size: Any) -> Tensor:
    if state is None:
        return o.zeros((x.shape[1], size), dtype=x.dtype)
    return state[:, place] if by_batch else state[place]


def _direction(
    node: OnnxNode,
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor, Tensor | None],
    start: Sequence[Tensor],
    lengths: Tensor | None,
    reverse: bool,
    functions: Sequence[Callable[[Tensor], Tensor]],
) -> tuple[Tensor, Sequence[Tensor]]:
    """Outputs of all times and the last state of one direction. Times past a sequence's length leave the state."""
    w, r, bias, peep = weights
    half = GATES[node.operator] * r.shape[-1]
    step = _steps(node, r, bias[half:], peep, functions)
    given = o.matmul(x, w.T) + bias[:half]
    times = o.arange(x.shape[0])

    def turn(state: Any, now: Any) -> Any:
        row, time = now
        new = step(row, state)
        if lengths is None:
            return new, new[0]
        runs = o.expand_dims(time < lengths, -1)
        return [o.where(runs, a, b) for a, b in zip(new, state)], o.where(runs, new[0], 0)

    state, outputs = o.scan(turn, list(start), (given, times), reverse=reverse)
    return outputs, state


def _steps(
    node: OnnxNode, r: Tensor, bias: Tensor, peep: Tensor | None, functions: Sequence[Callable[[Tensor], Tensor]]
) -> Callable[[Tensor, Sequence[Tensor]], list[Tensor]]:
    """One step: from what the input gives to the gates, and the state, to the new state."""
    size = int(r.shape[-1])
    f, g, h = [*functions, functions[-1], functions[-1]][:3]

    def parts(x: Tensor, count: int) -> list[Tensor]:
        return o.split(x, [size * k for k in range(1, count)], axis=-1)

    def rnn(row: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
        return [f(row + o.matmul(state[0], r.T) + bias)]

    def gru(row: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
        (before,) = state
        update_in, reset_in, new_in = parts(row, 3)
        gates = o.matmul(before, r[: 2 * size].T) + bias[: 2 * size]
        update_own, reset_own = parts(gates, 2)
        update, reset = f(update_in + update_own), f(reset_in + reset_own)
        if node.attr("linear_before_reset", 0):
            own = reset * (o.matmul(before, r[2 * size :].T) + bias[2 * size :])
        else:
            own = o.matmul(reset * before, r[2 * size :].T) + bias[2 * size :]
        return [(1 - update) * g(new_in + own) + update * before]

    def lstm(row: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
        before, cell = state
        enter, out, forget, new = parts(row + o.matmul(before, r.T) + bias, 4)
        peeps = (0, 0, 0) if peep is None else [cell * part for part in parts(peep, 3)]
        enter = f(enter + peeps[0])
        forget = 1 - enter if node.attr("input_forget", 0) else f(forget + peeps[2])
        after = forget * cell + enter * g(new)
        out = f(out + (0 if peep is None else after * parts(peep, 3)[1]))
        return [out * h(after), after]

    return {"RNN": rnn, "GRU": gru, "LSTM": lstm}[node.operator]
