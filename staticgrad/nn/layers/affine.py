"""Layers whose parameters are a matrix: ``Linear`` and ``Embedding``; what weights and biases begin with."""

from __future__ import annotations

import math

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTypeLike, float32, integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array
from staticgrad.nn import functional as F
from staticgrad.nn import initializers as init
from staticgrad.nn.module import Module, parameter, repr_of
from staticgrad.ops.neural.embedding import refuse_options


def fan_bound(fan_in: int) -> init.Initializer:
    """±1/√fan in: what biases begin with."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return init.uniform(-bound, bound)


WEIGHT = init.kaiming_uniform(a=math.sqrt(5))


class Linear(Module):
    """``x @ weight.T + bias``: (…, in_features) to (…, out_features).

    Args:
        in_features: the last size of the input.
        out_features: the last size of the result.
        bias: whether there is one.
        dtype: of the parameters.
        first_bias: what it begins with; None: uniform in ±1/√in_features, as the weights (He et al. 2015, a = √5).

    Example:
        >>> layer = sg.nn.Linear(3, 2)
        >>> layer(sg.zeros((8, 3))).shape
        (8, 2)
        >>> {name: p.shape for name, p in layer.named_parameters()}
        {'weight': (2, 3), 'bias': (2,)}
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: DTypeLike = float32,
        first_bias: init.Initializer | None = None,
    ) -> None:
        in_features = self.in_features = integer(in_features, "Linear: in_features", 0)
        out_features = self.out_features = integer(out_features, "Linear: out_features", 0)
        initial = fan_bound(in_features) if first_bias is None else first_bias
        self.weight = parameter(WEIGHT, (out_features, in_features), dtype)
        self.bias = parameter(initial, (out_features,), dtype) if bias else None
        self.quantized = False  # ``sg.nn.quantize_dynamic`` sets it

    def forward(self, input: TensorLike) -> Tensor:
        return (F.quantized_linear if self.quantized else F.linear)(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        quantized = {"quantized": True} if self.quantized else {}
        return f"{self.in_features}, {self.out_features}, {repr_of(bias=self.bias is not None, **quantized)}"


@frozen
class _RowOfZeros:
    """Another initializer, but one row is zero."""

    inner: init.Initializer
    row: int

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        value = self.inner.make(shape, dtype, rng)
        value[self.row] = 0
        return value


class Embedding(Module):
    """A table of vectors: indices (…) to (…, embedding_dim). The row ``padding_idx`` is zero and is not trained.

    Args:
        num_embeddings: the number of rows.
        embedding_dim: the size of a row.
        padding_idx: a row that is zero and is not trained; None: no row.
        max_norm: as PyTorch has it; anything but None is refused.
        norm_type: of ``max_norm``; it changes nothing.
        scale_grad_by_freq: as PyTorch has it; True is refused.
        sparse: PyTorch's; it changes nothing, as ``sg.nn.embedding`` says.
        dtype: of the table.

    Example:
        >>> table = sg.nn.Embedding(1000, 64, padding_idx=0)
        >>> tokens = sg.placeholder((8, 20), sg.int64)
        >>> table(tokens).shape, table.weight.shape
        ((8, 20, 64), (1000, 64))
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        refuse_options("Embedding", max_norm, scale_grad_by_freq)
        num_embeddings = self.num_embeddings = integer(num_embeddings, "Embedding: num_embeddings", 0)
        embedding_dim = self.embedding_dim = integer(embedding_dim, "Embedding: embedding_dim", 0)
        self.padding_idx = padding_idx
        first: init.Initializer = init.normal()
        if padding_idx is not None:
            padding_idx = self.padding_idx = integer(padding_idx, "Embedding: padding_idx")
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise GraphError(f"Embedding: padding_idx={padding_idx} for {num_embeddings} rows")
            first = _RowOfZeros(first, padding_idx)
        self.weight = parameter(first, (num_embeddings, embedding_dim), dtype)

    def forward(self, input: TensorLike) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
