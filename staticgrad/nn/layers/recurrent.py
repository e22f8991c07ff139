"""Recurrent layers on ``sg.scan``, with PyTorch's arguments, names of parameters and order of gates.

The input's part of the gates is one product for all steps, before the scan; a step adds the state's part. Results have
the dtype that input, weights and first state are promoted to. Where that is a short float all of this is computed in
float32, and what a layer gives is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTypeLike, computed, float32, integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_floats, promote
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.nn import functional as F
from staticgrad.nn import initializers as init
from staticgrad.nn.module import Module, parameter
from staticgrad.ops.randoms import probability

State = tuple[Tensor, ...]
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


class _Recurrent(Module):
    """Layers and directions of one kind of cell. Parameters are named ``weight_ih_l0``, ``weight_hh_l0``,
    ``bias_ih_l0``, ``bias_hh_l0``, ``weight_hr_l0``, …, with ``_reverse`` for the direction back."""

    _gates = 1  # how many blocks of hidden_size the weights have

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        input_size, hidden_size, num_layers = (
            integer(value, f"{type(self).__name__}: {name}", 1)
            for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers))
        )
        dropout = probability(dropout, f"{type(self).__name__}: dropout")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        bound = 1 / math.sqrt(hidden_size)
        first = init.uniform(-bound, bound)
        rows, size = self._gates * hidden_size, self._state_sizes[0]
        for layer in range(num_layers):
            columns = input_size if layer == 0 else size * self._directions
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, size)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if size != hidden_size:  # h is projected
                    shapes["weight_hr"] = (size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, parameter(first, shape, dtype))

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        """The number of features of each tensor of a state; h is the first."""
        return (self.hidden_size,)

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    def _weights(self) -> list[Tensor]:
        """The weights and biases of all layers and directions."""
        suffixes = [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        found = [getattr(self, name + suffix, None) for suffix in suffixes for name in _NAMES]
        return [weight for weight in found if weight is not None]

    def _run(self, input: TensorLike, initial: Sequence[TensorLike] | None) -> tuple[Tensor, State]:
        x = lift_floats(input, None, self._weights()[0].dtype)
        what = type(self).__name__
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise GraphError(f"{what}: expected an input (steps, [batch,] {self.input_size}), actual {x.shape}")
        o = FUNCTIONS
        batched = x.ndim == 3
        if not batched:
            x = o.expand_dims(x, axis=1)
        elif self.batch_first:
            x = o.swapaxes(x, 0, 1)
        given = self._initial(x, initial, batched)
        kind = promote([t.dtype for t in (x, *given, *self._weights())], (), what)
        x, *first = (o.astype(t, computed(kind)) for t in (x, *given))
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                place = layer * self._directions + direction
                state, hidden = self._layer(x, tuple(s[place] for s in first), suffix, direction == 1)
                outputs.append(hidden)
                last.append(state)
            x = outputs[0] if len(outputs) == 1 else o.concat(outputs, axis=-1)
        x = o.astype(x, kind)
        ends = tuple(o.astype(o.stack([state[i] for state in last]), kind) for i in range(len(self._state_sizes)))
        if not batched:
            return o.squeeze(x, axis=1), tuple(o.squeeze(s, axis=1) for s in ends)
        return (o.swapaxes(x, 0, 1) if self.batch_first else x), ends

    def _initial(self, x: Tensor, initial: Sequence[TensorLike] | None, batched: bool) -> State:
        """The first states, (layers · directions, batch, features) each; by default zeros."""
        o = FUNCTIONS
        shapes = [(self.num_layers * self._directions, x.shape[1], size) for size in self._state_sizes]
        if initial is None:
            return tuple(o.zeros(shape, dtype=self._weights()[0].dtype) for shape in shapes)
        given = tuple(lift_floats(s, x.graph, self._weights()[0].dtype) for s in initial)
        if not batched:
            given = tuple(o.expand_dims(s, axis=1) for s in given)
        for s, shape in zip(given, shapes, strict=True):
            if s.ndim != 3 or (s.shape[0], s.shape[2]) != (shape[0], shape[2]):
                raise GraphError(f"{type(self).__name__}: expected a first state {shape}, actual {s.shape}")
        return given

    def _layer(self, x: Tensor, first: State, suffix: str, reverse: bool) -> tuple[State, Tensor]:
        """One layer in one direction: its last state, and its h at each step."""
        raise TypeError(f"{type(self).__name__} does not define a layer")

    def _parameters(self, suffix: str, dtype: np.dtype) -> list[Any]:
        """The tensors of ``_NAMES`` of one layer and direction in a dtype, None for those that there are not."""
        found = [getattr(self, name + suffix, None) for name in _NAMES]
        return [None if weight is None else FUNCTIONS.astype(weight, dtype) for weight in found]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997, with forget gates), as ``torch.nn.LSTM``.

    i, f, g, o = σ, σ, tanh, σ of ``x W_ihᵀ + b_ih + h W_hhᵀ + b_hh`` in this order; ``c' = f·c + i·g``,
    ``h' = o·tanh(c')``, or with ``proj_size`` that many features ``W_hr`` of it (Sak, Senior, Beaufays 2014).

    Called with an input (steps, batch, input_size), or (batch, steps, input_size) with ``batch_first``, or without the
    batch, and optionally the first ``(h, c)``, each (layers · directions, batch, hidden_size), h of ``proj_size``
    where it is projected. Gives the last layer's h at each step and the last ``(h, c)``.

    Padding of shorter sequences is read like any other step, so the last ``(h, c)`` is the one after it; the h after a
    sequence's own last step is ``output[lengths - 1, sg.arange(n)]``, with ``batch_first`` ``output[sg.arange(n),
    lengths - 1]``. The direction back begins in the padding. See the guide "Sequences of different lengths".

    Args:
        input_size: the features of each step of the input.
        hidden_size: the features of h and c.
        num_layers: how many layers stand on each other; each takes the steps of the one below as its input.
        bias: whether there are ``b_ih`` and ``b_hh``.
        batch_first: (batch, steps, features) instead of (steps, batch, features); states stay as they are.
        dropout: the probability with which what a layer hands to the next is dropped in training.
        bidirectional: a second direction reads from the last step to the first; their features are joined.
        proj_size: the features that h is projected to; 0: none.
        dtype: of the parameters.

    Example:
        >>> rnn = sg.nn.LSTM(input_size=3, hidden_size=5, num_layers=2, batch_first=True)
        >>> x = sg.zeros((2, 7, 3))  # 2 sequences of 7 steps
        >>> output, (h, c) = rnn(x)
        >>> output.shape, h.shape, c.shape
        ((2, 7, 5), (2, 2, 5), (2, 2, 5))
        >>> [name for name, _ in rnn.named_parameters()][:4]
        ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    _gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        proj_size, hidden_size = integer(proj_size, "LSTM: proj_size"), integer(hidden_size, "LSTM: hidden_size", 1)
        if not 0 <= proj_size < hidden_size:
            raise GraphError(f"LSTM: proj_size={proj_size}: expected less than hidden_size={hidden_size}, 0 for none")
        self.proj_size = proj_size
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype=dtype)

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return self.proj_size or self.hidden_size, self.hidden_size

    def forward(
        self, input: TensorLike, hx: tuple[TensorLike, TensorLike] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, (h, c) = self._run(input, hx)
        return output, (h, c)

    def _layer(self, x: Tensor, first: State, suffix: str, reverse: bool) -> tuple[State, Tensor]:
        return lstm_steps(x, first, self._parameters(suffix, x.dtype), reverse)


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., 2014), as ``torch.nn.GRU``.

    With a = ``x W_ihᵀ + b_ih`` and b = ``h W_hhᵀ + b_hh`` in three blocks r, z, n: r, z = σ(a + b),
    ``n = tanh(a_n + r·b_n)``, ``h' = (1 - z)·n + z·h``. Called and answering as ``LSTM``, with h alone as its state,
    and with padding treated as there: the last h is the one after it, ``output[lengths - 1, sg.arange(n)]`` the one
    after a sequence's own last step, and the direction back begins in the padding.

    Args:
        input_size: the features of each step of the input.
        hidden_size: the features of h.
        num_layers: how many layers stand on each other; each takes the steps of the one below as its input.
        bias: whether there are ``b_ih`` and ``b_hh``.
        batch_first: (batch, steps, features) instead of (steps, batch, features); states stay as they are.
        dropout: the probability with which what a layer hands to the next is dropped in training.
        bidirectional: a second direction reads from the last step to the first; their features are joined.
        dtype: of the parameters.

    Example:
        >>> rnn = sg.nn.GRU(input_size=3, hidden_size=5)
        >>> x = sg.zeros((7, 2, 3))  # 7 steps of 2 sequences
        >>> output, last = rnn(x)
        >>> output.shape, last.shape
        ((7, 2, 5), (1, 2, 5))
    """

    _gates = 3

    def forward(self, input: TensorLike, hx: TensorLike | None = None) -> tuple[Tensor, Tensor]:
        output, (h,) = self._run(input, None if hx is None else (hx,))
        return output, h

    def _layer(self, x: Tensor, first: State, suffix: str, reverse: bool) -> tuple[State, Tensor]:
        return gru_steps(x, first, self._parameters(suffix, x.dtype), reverse)


def lstm_steps(x: Tensor, first: State, weights: Sequence[Any], reverse: bool) -> tuple[State, Tensor]:
    """The last state of one layer of an LSTM in one direction, and its h at each step, as one scan.

    Args:
        x: (steps, batch, features).
        first: the first h and c, (batch, features of each).
        weights: the tensors of ``_NAMES``; None for those that there are not.
    """
    w, u, b, d, r = weights
    bias = None if b is None or d is None else b + d
    projected = _projected(x, w, bias)

    def step(state: State, row: Tensor) -> tuple[State, Tensor]:
        h, c = state
        i, f, g, o = _split(row + F.linear(h, u), 4)
        c = F.sigmoid(f) * c + F.sigmoid(i) * FUNCTIONS.tanh(g)
        h = F.sigmoid(o) * FUNCTIONS.tanh(c)
        if r is not None:
            h = F.linear(h, r)
        return (h, c), h

    return FUNCTIONS.scan(step, first, projected, reverse=reverse)


def gru_steps(x: Tensor, first: State, weights: Sequence[Any], reverse: bool) -> tuple[State, Tensor]:
    """As ``lstm_steps``, of a GRU, whose state is h alone."""
    w, u, b, d, _ = weights
    projected = _projected(x, w, b)

    def step(state: State, row: Tensor) -> tuple[State, Tensor]:
        (h,) = state
        ar, az, an = _split(row, 3)
        br, bz, bn = _split(F.linear(h, u, d), 3)
        r, z = F.sigmoid(ar + br), F.sigmoid(az + bz)
        n = FUNCTIONS.tanh(an + r * bn)
        h = n + z * (h - n)
        return (h,), h

    return FUNCTIONS.scan(step, first, projected, reverse=reverse)


def plain_steps(
    x: Tensor, first: State, weights: Sequence[Any], reverse: bool, activation: Any
) -> tuple[State, Tensor]:
    """As ``lstm_steps``, of h' = activation(W x + b + U h + d), whose state is h alone."""
    w, u, b, d, _ = weights
    bias = None if b is None or d is None else b + d
    projected = _projected(x, w, bias)

    def step(state: State, row: Tensor) -> tuple[State, Tensor]:
        h = activation(row + F.linear(state[0], u))
        return (h,), h

    return FUNCTIONS.scan(step, first, projected, reverse=reverse)


def _projected(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """The input's part of the gates at all steps, as one product."""
    rows = FUNCTIONS.reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))
    return FUNCTIONS.reshape(F.linear(rows, w, bias), (*x.shape[:2], w.shape[0]))


def _split(x: Tensor, parts: int) -> list[Tensor]:
    """Equal blocks of the last axis."""
    return list(FUNCTIONS.split(x, parts, axis=-1))
