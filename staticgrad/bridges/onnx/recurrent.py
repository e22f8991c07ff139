"""ONNX's recurrent layers: RNN, GRU and LSTM, each direction one scan over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Activation = Callable[[Tensor, float | None, float | None], Tensor]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x, a, b: o.relu(x),
    "tanh": lambda x, a, b: o.tanh(x),
    "sigmoid": lambda x, a, b: o.sigmoid(x),
    "affine": lambda x, a, b: x * _or(a, 1.0) + _or(b, 0.0),
    "leakyrelu": lambda x, a, b: o.leaky_relu(x, _or(a, 0.01)),
    "thresholdedrelu": lambda x, a, b: o.where(x > _or(a, 1.0), x, 0),
    "scaledtanh": lambda x, a, b: o.tanh(x * _or(b, 1.0)) * _or(a, 1.0),
    "hardsigmoid": lambda x, a, b: o.clip(x * _or(a, 0.2) + _or(b, 0.5), 0, 1),
    "elu": lambda x, a, b: o.elu(x, _or(a, 1.0)),
    "softsign": lambda x, a, b: o.softsign(x),
    "softplus": lambda x, a, b: o.logaddexp(x, 0),
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
USES_PARAMETERS = {"affine": 2, "leakyrelu": 1, "thresholdedrelu": 1, "scaledtanh": 2, "hardsigmoid": 2, "elu": 1}


def _activations(node: OnnxNode, directions: int) -> list[list[Callable[[Tensor], Tensor]]]:
    """The functions of each direction. Parameters are listed for those functions that have some."""
    names = [n.lower() for n in node.attr("activations", DEFAULTS[node.operator] * directions)]
    alphas, betas = iter(node.attr("activation_alpha", [])), iter(node.attr("activation_beta", []))
    made: list[Callable[[Tensor], Tensor]] = []
    for name in names:
        if name not in ACTIVATIONS:
            raise RefusedError(f"the activation {name} is not converted")
        uses = USES_PARAMETERS.get(name, 0)
        alpha, beta = next(alphas, None) if uses else None, next(betas, None) if uses > 1 else None
        function = ACTIVATIONS[name]
        limit = node.attr("clip")

        def apply(x: Tensor, f: Activation = function, a: Any = alpha, b: Any = beta, limit: Any = limit) -> Tensor:
            return f(x if limit is None else o.clip(x, -limit, limit), a, b)

        made.append(apply)
    count = len(names) // directions
    return [made[count * d : count * (d + 1)] for d in range(directions)]


@converts("RNN", "GRU", "LSTM")
def recurrent(at: OnnxScope, node: OnnxNode) -> list[Tensor]:
    x, w, r, b, lengths, *states = at.operands(node, 8)
    by_batch = bool(node.attr("layout", 0))
    x = o.swapaxes(x, 0, 1) if by_batch else x
    turned = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node.attr("direction", "forward")]
    functions = _activations(node, len(turned))
    size, kind = r.shape[-1], node.operator
    found = []
    for place, reverse in enumerate(turned):
        bias = o.zeros(2 * GATES[kind] * size, dtype=x.dtype) if b is None else b[place]
        start = [_start(each, place, by_batch, x, size) for each in states[: 2 if kind == "LSTM" else 1]]
        peep = states[2][place] if kind == "LSTM" and states[2] is not None else None
        found.append(_direction(node, x, (w[place], r[place], bias, peep), start, lengths, reverse, functions[place]))
    y = o.stack([outputs for outputs, _ in found], axis=1)  # (time, direction, batch, hidden)
    last = [o.stack([state[k] for _, state in found]) for k in range(len(found[0][1]))]
    if by_batch:
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
