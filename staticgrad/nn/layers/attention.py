"""Attention in several heads, with its projections."""

from __future__ import annotations

import math

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTypeLike, bool_, float32, integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_all, lift_floats
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.nn import functional as F
from staticgrad.nn import initializers as init
from staticgrad.nn.layers.affine import Linear
from staticgrad.nn.module import Module, parameter
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.randoms import probability


class MultiheadAttention(Module):
    """Attention with several heads (Vaswani et al. 2017): concat(softmax(QᵢKᵢᵀ/√d)·Vᵢ) of the heads i, projected.

    Args:
        embed_dim: E, the features of queries, keys and values.
        num_heads: divides E.
        dropout: probability that a weight is dropped in training.
        bias: whether the projections have biases.
        add_bias_kv: a key and a value that are learned follow those of each example.
        add_zero_attn: a key and a value of zeros follow all others.
        kdim: the features of keys, if they have others.
        vdim: the features of values, likewise.
        batch_first: operands (N, L, E) instead of (L, N, E).
        dtype: of the parameters.

    Raises:
        GraphError: features that do not fall into the heads.

    Example:
        >>> attention = sg.nn.MultiheadAttention(embed_dim=16, num_heads=4, batch_first=True)
        >>> x = sg.zeros((8, 10, 16))
        >>> values, weights = attention(x, x, x)
        >>> values.shape, weights.shape
        ((8, 10, 16), (8, 10, 10))
        >>> [name for name, _ in attention.named_parameters()]
        ['in_proj_weight', 'in_proj_bias', 'out_proj.weight', 'out_proj.bias']
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        what = "MultiheadAttention"
        embed_dim, num_heads = integer(embed_dim, f"{what}: embed_dim", 1), integer(num_heads, f"{what}: num_heads", 1)
        kdim, vdim = (
            embed_dim if size is None else integer(size, f"{what}: {name}", 1)
            for name, size in (("kdim", kdim), ("vdim", vdim))
        )
        if embed_dim % num_heads:
            raise GraphError(f"MultiheadAttention: {embed_dim} features do not fall into {num_heads} heads")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = probability(dropout, f"{what}: dropout")
        rows = 3 * embed_dim
        sizes, first = (embed_dim, kdim, vdim), init.xavier_uniform()
        if sizes == (embed_dim,) * 3:
            self.in_proj_weight = parameter(first, (rows, embed_dim), dtype)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                parameter(first, (embed_dim, size), dtype) for size in sizes
            )
        self.add_zero_attn = add_zero_attn
        self.in_proj_bias = parameter(init.zeros(), (rows,), dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, first_bias=init.zeros())
        self.bias_k, self.bias_v = (
            parameter(init.xavier_normal(), (1, 1, embed_dim), dtype) if add_bias_kv else None for _ in "kv"
        )

    def forward(
        self,
        query: TensorLike,
        key: TensorLike,
        value: TensorLike,
        key_padding_mask: TensorLike | None = None,
        need_weights: bool = True,
        attn_mask: TensorLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the weights (averaged over heads) where they are asked for.

        Args:
            query: (L, N, E), or (N, L, E) with ``batch_first``; (L, E) of one example.
            key: (S, N, kdim), likewise.
            value: (S, N, vdim), likewise.
            key_padding_mask: (N, S), or (S,) of one example; True (or a number that is added to scores) hides a key
                from all queries.
            attn_mask: (L, S) or (N·heads, L, S); True hides, numbers are added to scores.
            is_causal: query i sees the keys 0 … i.

        Raises:
            GraphError: operands that are not all of three dimensions, or all of two.
        """
        o = FUNCTIONS
        graph = self.out_proj.weight.graph
        kind = self.out_proj.weight.dtype
        operands = [lift_floats(x, graph, kind) for x in (query, key, value)]
        if all(x.ndim == 2 for x in operands):
            batch = 0 if self.batch_first else 1
            padding = None if key_padding_mask is None else o.expand_dims(lift_floats(key_padding_mask, graph, kind), 0)
            q, k, v = (o.expand_dims(x, batch) for x in operands)
            result, weights = self.forward(q, k, v, padding, need_weights, attn_mask, average_attn_weights, is_causal)
            return o.squeeze(result, batch), None if weights is None else o.squeeze(weights, 0)
        if any(x.ndim != 3 for x in operands):
            raise GraphError(f"MultiheadAttention: expected three dimensions, actual {[str(x.type) for x in operands]}")
        if not self.batch_first:
            operands = [o.permute_dims(x, (1, 0, 2)) for x in operands]
        with graph:
            heads = [self._heads(x, i) for i, x in enumerate(operands)]
            q, k, v = lift_all(heads, what="MultiheadAttention")
            mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
            k, v, mask = self._with_shared(k, v, mask)
            weights = _attention_weights(q, k, mask) if need_weights or (self.dropout and self.training) else None
            if weights is not None and self.dropout and self.training:
                attended = o.matmul(F.dropout(weights, self.dropout), v)
            else:
                attended = F.scaled_dot_product_attention(q, k, v, mask)
            n, _, length, _ = attended.shape
            joined = o.reshape(o.permute_dims(attended, (0, 2, 1, 3)), (n, length, self.embed_dim))
            result = self.out_proj(joined)
            if not self.batch_first:
                result = o.permute_dims(result, (1, 0, 2))
        if not need_weights:
            return result, None
        return result, o.mean(weights, axis=1) if average_attn_weights else weights

    def _heads(self, x: Tensor, part: int) -> Tensor:
        """(N, L, E) to (N, heads, L, E / heads), through the projection of query, key or value."""
        o = FUNCTIONS
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        together = getattr(self, "in_proj_weight", None)
        weight = getattr(self, f"{'qkv'[part]}_proj_weight") if together is None else together[rows]
        y = F.linear(x, weight, bias)
        n, length, _ = y.shape
        split = o.reshape(y, (n, length, self.num_heads, self.embed_dim // self.num_heads))
        return o.permute_dims(split, (0, 2, 1, 3))

    def _with_shared(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values followed by those that all examples share, which no mask hides."""
        o = FUNCTIONS
        n, heads, _, size = k.shape

        def extended(x: Tensor, bias: Tensor | None) -> Tensor:
            shared = [] if bias is None else [o.reshape(bias, (1, heads, 1, size))]
            if self.add_zero_attn:
                shared.append(o.zeros((1, heads, 1, size), dtype=x.dtype))
            return o.concat([x, *(o.broadcast_to(row, (n, heads, 1, size)) for row in shared)], axis=2)

        count = (self.bias_k is not None) + self.add_zero_attn
        if count == 0:
            return k, v, mask
        return extended(k, self.bias_k), extended(v, self.bias_v), None if mask is None else F.pad(mask, (0, count))

    def _mask(
        self, q: Tensor, k: Tensor, key_padding: TensorLike | None, attn_mask: TensorLike | None, causal: bool
    ) -> Tensor | None:
        """All masks as one that is added to the scores."""
        o = FUNCTIONS
        total: Tensor | None = None
        length, keys = q.shape[-2], k.shape[-2]
        if key_padding is not None:
            padding = _additive(lift_floats(key_padding, q.graph, q.dtype), q.dtype)
            total = o.reshape(padding, (padding.shape[0], 1, 1, keys))
        if attn_mask is not None:
            given = _additive(lift_floats(attn_mask, q.graph, q.dtype), q.dtype)
            if given.ndim == 3:
                given = o.reshape(given, (q.shape[0], self.num_heads, length, keys))
            total = given if total is None else o.add(total, given)
        if causal and attn_mask is None:
            seen = o.greater_equal(o.iota((length, 1), 0), o.iota((1, keys), 1))
            hidden = o.where(seen, o.zeros((), dtype=q.dtype), -math.inf)
            total = hidden if total is None else o.add(total, hidden)
        return total


def _additive(mask: Tensor, dtype: np.dtype) -> Tensor:
    """A mask in which True hides, as numbers to add to scores."""
    o = FUNCTIONS
    if mask.dtype == bool_:
        return o.where(mask, o.full((), -math.inf, dtype=dtype), 0)
    return o.astype(mask, dtype)


def _attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q·Kᵀ / √d + mask): (N, heads, L, S)."""
    o = FUNCTIONS
    scale = 1 / math.sqrt(int(q.shape[-1]))

    def weights(q: Tensor, k: Tensor, *mask: Tensor) -> Tensor:
        scores = o.matmul(o.multiply(q, scale), o.matrix_transpose(k))
        return F.softmax(o.add(scores, mask[0]) if mask else scores, -1)

    return rounded_once(weights, q, k, *([] if mask is None else [mask]))
