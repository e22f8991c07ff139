"""``torch.nn.LSTM``, ``GRU`` and ``RNN``: each layer and direction is one scan over the steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn.layers.recurrent import gru_steps, lstm_steps, plain_steps

Steps = Callable[[Tensor, tuple[Tensor, ...], Sequence[Any], bool], tuple[tuple[Tensor, ...], Tensor]]
STEPS: dict[str, Steps] = {
    "lstm": lstm_steps,
    "gru": gru_steps,
    "rnn_tanh": functools.partial(plain_steps, activation=o.tanh),
    "rnn_relu": functools.partial(plain_steps, activation=o.relu),
}


def _weights(params: Sequence[Tensor], has_biases: bool, projected: bool) -> Iterator[list[Any]]:
    """The parameters of each layer and direction: two weights, two biases, the projection; None for absent ones."""
    given = iter(params)
    for weight in given:
        recurrent = next(given)
        biases = [next(given), next(given)] if has_biases else [None, None]
        yield [weight, recurrent, *biases, next(given) if projected else None]


def _layers(
    steps: Steps, x: Tensor, first: Sequence[Tensor], weights: list[list[Any]], layers: int, dropout: float,
    bidirectional: bool, batch_first: bool,
) -> list[Tensor]:  # fmt: skip
    """The last layer's h at each step, and the last states, (layers · directions, batch, features) each."""
    directions = 2 if bidirectional else 1
    x = o.swapaxes(x, 0, 1) if batch_first else x
    ends: list[tuple[Tensor, ...]] = []
    for layer in range(layers):
        x = o.dropout(x, dropout) if layer and dropout else x
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            end, hidden = steps(x, tuple(state[place] for state in first), weights[place], direction == 1)
            ends.append(end)
            outputs.append(hidden)
        x = outputs[0] if directions == 1 else o.concat(outputs, axis=-1)
    return [o.swapaxes(x, 0, 1) if batch_first else x, *(o.stack(list(states)) for states in zip(*ends))]


@converts("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(
    at: AtenCall, x: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> list[Tensor]:  # fmt: skip
    steps, first = STEPS[at.op], hx if at.op == "lstm" else (hx,)
    weights = list(_weights(params, has_biases, at.op == "lstm" and hx[0].shape[-1] != hx[1].shape[-1]))
    return _layers(steps, x, first, weights, num_layers, dropout if train else 0.0, bidirectional, batch_first)
