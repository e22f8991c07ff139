"""Attention: softmax(scale·Q·Kᵀ)·V as one named op (Vaswani et al. 2017).

Few scores are computed at once. Many are computed block by block: for one head after the other, a block of queries
against the keys, whose scores stay in the cache and are never stored as a whole; the backward computes them again
(Dao et al. 2022, "FlashAttention", there with keys in blocks as well). A causal block meets only keys that it can see,
in steps of a quarter of them, so that few kernels of different sizes are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_open, is_same, largest, lowest
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Dim, Shape, TensorType, bool_, broadcast_shapes, int32, number, product, sizes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift_all, lift_floats
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import floating
from staticgrad.ops.neural.softmax import softmax_reference

BLOCKWISE_FROM = 2**21  # scores; fewer are computed at once
BLOCK_SCORES = 2**17  # of one block: they and their gradients stay in a second-level cache
KEY_STEPS = 4  # a causal block meets this many different numbers of keys


@frozen
class AttentionAttributes:
    """The factor of the scores, and whether a query sees only keys up to its own place."""

    scale: float
    causal: bool


def _result_type(
    attrs: AttentionAttributes, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType
) -> TensorType:
    what = "scaled_dot_product_attention"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise GraphError(f"{what}: expected tensors (*, length, features), actual {q}, {k} and {v}")
    require_equal(q.shape[-1], k.shape[-1], what, f"features of the query {q} and the key {k}")
    require_equal(k.shape[-2], v.shape[-2], what, f"lengths of the key {k} and the value {v}")
    batch = _broadcast_batch(what, q, k, v)
    return TensorType((*batch, q.shape[-2], v.shape[-1]), q.dtype)


def _broadcast_batch(what: str, *types: TensorType) -> Shape:
    return broadcast_shapes([t.shape[:-2] for t in types], what)


# -- scores and weights ---------------------------------------------------------------------------------------------


def _weights(
    o: Namespace, attrs: AttentionAttributes, q: Tensor, k: Tensor, mask: Tensor | None, first: int = 0
) -> Tensor:
    """The weights (*, L, S) of keys for queries, of which the first is number ``first``; zeros for a query that sees
    no key."""
    scores = o.matmul(o.multiply(q, attrs.scale), o.matrix_transpose(k))
    if attrs.causal:
        rows, columns = q.shape[-2], k.shape[-2]
        places = o.iota((rows, 1), 0, dtype=int32)
        seen = o.greater_equal(o.add(places, first) if first else places, o.iota((1, columns), 1, dtype=int32))
        scores = o.where(seen, scores, -math.inf)
    if mask is None or k.shape[-2] == 0:
        return o.softmax(scores, -1)
    scores = o.where(mask, scores, -math.inf) if mask.dtype == bool_ else o.add(scores, mask)
    blind = o.equal(o.max(o.stop_gradient(scores), axis=-1, keepdims=True), -math.inf)
    return o.where(blind, 0, o.softmax(o.where(blind, 0, scores), -1))


def _blocks(attrs: AttentionAttributes, queries: int, keys: int) -> Iterator[tuple[int, int, int]]:
    """The first and last query of each block, and how many keys it meets."""
    if is_open(queries) or is_open(keys):
        yield from _open_blocks(attrs, queries, keys)
        return
    rows = max(1, min(queries, BLOCK_SCORES // max(keys, 1)))
    step = -(-keys // KEY_STEPS)
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        yield first, last, min(keys, -(-last // step) * step) if attrs.causal and step else keys


def _open_blocks(attrs: AttentionAttributes, queries: int, keys: int) -> Iterator[tuple[int, int, int]]:
    """``_blocks`` of lengths that are open: the number that the greatest ones have, each with its part of the
    queries."""
    most = largest(queries)
    count = -(-most // max(1, min(most, BLOCK_SCORES // max(largest(keys), 1))))
    count = min(count, max(1, lowest(queries)))
    rows = queries // count
    for block in range(count):
        last = queries if block == count - 1 else (block + 1) * rows
        yield block * rows, last, last if attrs.causal and is_same(queries, keys) else keys


def _is_blockwise(node: Primal[object]) -> bool:
    q, k, v, *mask = node.inputs
    shape = (*broadcast_shapes([x.shape[:-2] for x in (q, k, v)], "attention"), q.shape[-2], k.shape[-2])
    known = all(isinstance(size, int) for x in (q, k, v) for size in x.shape)
    return known and largest(cast(int, product(shape))) >= BLOCKWISE_FROM and (not mask or mask[0].ndim == 2)


def _by_head(node: Primal[object], function: Callable[..., list[Tensor]], operands: Sequence[Tensor]) -> list[Tensor]:
    """``function`` of the operands' matrices, one head after the other."""
    batch = broadcast_shapes([x.shape[:-2] for x in node.inputs[:3]], "attention")
    flat = [
        FUNCTIONS.reshape(FUNCTIONS.broadcast_to(x, (*batch, *x.shape[-2:])), (product(batch), *x.shape[-2:]))
        for x in operands
    ]
    made = FUNCTIONS.map(lambda rows: function(*rows), tuple(flat))
    return [FUNCTIONS.reshape(y, (*batch, *y.shape[1:])) for y in made]


def _part(mask: Tensor | None, first: int, last: int, keys: int) -> Tensor | None:
    """The mask of some queries and the first ``keys`` keys; an axis of size 1 serves all."""
    if mask is None:
        return None
    rows = slice(None) if mask.shape[0] == 1 else slice(first, last)
    return mask[rows, slice(None) if mask.shape[1] == 1 else slice(0, keys)]


# -- the entry ------------------------------------------------------------------------------------------------------


def _expand(o: Namespace, node: Primal[AttentionAttributes]) -> Sequence[Tensor]:
    q, k, v, *given = node.inputs
    mask = given[0] if given else None
    if not _is_blockwise(node):
        return [o.matmul(_weights(o, node.attrs, q, k, mask), v)]

    def head(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        parts = [
            o.matmul(_weights(o, node.attrs, q[a:b], k[:n], _part(mask, a, b, n), a), v[:n])
            for a, b, n in _blocks(node.attrs, *sizes((q.shape[0], k.shape[0])))
        ]
        return [o.concat(parts, axis=0)]

    return _by_head(node, head, (q, k, v))


def _pull_block(
    o: Namespace,
    attrs: AttentionAttributes,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    ct: Tensor,
    first: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The cotangents of queries, keys, values and scores."""
    weights = _weights(o, attrs, q, k, mask, first)
    dw = o.matmul(ct, o.matrix_transpose(v))
    ds = o.multiply(weights, o.subtract(dw, o.sum(o.multiply(weights, dw), axis=-1, keepdims=True)))
    dk = o.matmul(o.matrix_transpose(ds), o.multiply(q, attrs.scale))
    return o.multiply(o.matmul(ds, k), attrs.scale), dk, o.matmul(o.matrix_transpose(weights), ct), ds


def _pull_head(
    o: Namespace, attrs: AttentionAttributes, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, ct: Tensor
) -> list[Tensor]:
    """The cotangents of one head, block by block, the last first: it meets all keys."""
    queries: list[Tensor] = []
    sums: list[Tensor] = []
    for a, b, n in reversed(list(_blocks(attrs, *sizes((q.shape[0], k.shape[0]))))):
        dq, *more, _ = _pull_block(o, attrs, q[a:b], k[:n], v[:n], _part(mask, a, b, n), ct[a:b], a)
        queries.insert(0, dq)
        rest = k.shape[0] - n
        whole = [o.pad_with(part, (0, 0), (rest, 0), (0, 0), 0.0) if rest else part for part in more]
        sums = [o.add(part, before) for part, before in zip(whole, sums, strict=True)] if sums else whole
    return [o.concat(queries, axis=0), *sums]


def _vjp(o: Namespace, node: Primal[AttentionAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    q, k, v, *given = node.inputs
    mask = given[0] if given else None
    floating_mask = mask is not None and mask.dtype != bool_ and node.wanted[3]
    if _is_blockwise(node) and not floating_mask:

        def head(q: Tensor, k: Tensor, v: Tensor, ct: Tensor) -> list[Tensor]:
            return _pull_head(o, node.attrs, mask, q, k, v, ct)

        pulled = [*_by_head(node, head, (q, k, v, ct)), None]
    else:
        pulled = list(_pull_block(o, node.attrs, q, k, v, mask, ct))
    found: list[Tensor | None] = [o.unbroadcast(d, x.shape) for d, x in zip(pulled, (q, k, v), strict=False)]
    if mask is not None:
        found.append(o.unbroadcast(pulled[3], mask.shape) if floating_mask else None)
    return found


def _reference(attrs: AttentionAttributes, q: Array, k: Array, v: Array, *mask: Array) -> Array:
    scores = np.einsum("...ld,...sd->...ls", q, k) * np.asarray(attrs.scale, q.dtype)
    if attrs.causal:
        scores = np.where(np.tri(*scores.shape[-2:]).astype(bool), scores, -np.inf).astype(q.dtype)
    if mask:
        hidden = np.where(mask[0], scores, -np.inf) if mask[0].dtype == np.bool_ else scores + mask[0]
        scores = hidden.astype(q.dtype)
    weights = np.nan_to_num(softmax_reference(scores, -1), nan=0.0)
    return np.asarray(np.einsum("...ls,...sd->...ld", weights, v))


ATTENTION = register(
    Op(
        "scaled_dot_product_attention",
        "softmax(scale·Q·Kᵀ)·V, with keys hidden by a mask or by causality.",
        infer=_result_type,
        reference=_reference,
        expand=_expand,
        vjp=_vjp,
        dtypes=FLOATS,
        cases=(
            Case(((2, 3, 4), (2, 5, 4), (2, 5, 6)), AttentionAttributes(0.5, False)),
            Case(((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)), AttentionAttributes(0.5, True)),
            Case(((3, 4), (5, 4), (5, 2), (3, 5)), AttentionAttributes(0.3, False), dtypes=(None, None, None, bool_)),
            Case(((2, 3, 4), (2, 5, 4), (2, 5, 6), (3, 5)), AttentionAttributes(0.5, False)),
        ),
        grad_name="ScaledDotProductAttention",
        tolerance=8.0,
    )
)


def _shared_heads(x: Tensor, query: Tensor, what: str) -> Tensor:
    """Keys or values with each head repeated for the group of queries' heads that share it."""
    if min(x.ndim, query.ndim) < 3:
        raise GraphError(f"{what}: enable_gqa needs an axis of heads, the third from the end, actual {x!r}, {query!r}")
    own, wanted = x.shape[-3], query.shape[-3]
    if isinstance(own, Dim) or isinstance(wanted, Dim) or own == 0 or wanted % own:
        raise GraphError(f"{what}: enable_gqa: the {wanted} heads of {query!r} are no multiple of the {own} of {x!r}")
    return x if own == wanted else FUNCTIONS.repeat(x, wanted // own, axis=-3)


@public
def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    attn_mask: TensorLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query·keyᵀ·scale + mask)·value (Vaswani et al. 2017).

    Args:
        query: (…, L, E).
        key: (…, S, E).
        value: (…, S, V).
        attn_mask: broadcasts to (…, L, S): bool (True: takes part) or floating (added to the scores).
        dropout_p: probability that a weight is dropped.
        is_causal: query i sees the keys 0 … i; not together with a mask.
        scale: default 1 / sqrt(E).
        enable_gqa: groups of queries share a key and a value (Ainslie et al. 2023, arXiv:2305.13245): heads, the third
            axis from the end, may be fewer in ``key`` and ``value``, by a whole factor.

    Returns:
        (…, L, V); zeros for a query that sees no key.

    Raises:
        GraphError: shapes that do not agree, or both a mask and ``is_causal``.

    Example:
        >>> q, k, v = sg.ones((1, 2, 4)), sg.ones((1, 2, 4)), sg.constant([[[0.0], [10.0]]])
        >>> sg.Session().run(sg.nn.scaled_dot_product_attention(q, k, v, is_causal=True))
        array([[[0.],
                [5.]]], dtype=float32)
        >>> q, k = sg.zeros((8, 4, 10, 16)), sg.zeros((8, 4, 20, 16))
        >>> sg.nn.scaled_dot_product_attention(q, k, sg.zeros((8, 4, 20, 32))).shape
        (8, 4, 10, 32)
    """
    o, what = FUNCTIONS, "scaled_dot_product_attention"
    q, k, v = lift_all((query, key, value), what=what)
    floating(q, what)
    if attn_mask is not None and is_causal:
        raise GraphError(f"{what}: give attn_mask or is_causal, not both")
    if enable_gqa:
        k, v = _shared_heads(k, q, what), _shared_heads(v, q, what)
    mask: tuple[Tensor, ...] = ()
    if attn_mask is not None:
        given = lift_floats(attn_mask, q.graph, q.dtype)
        mask = (given if given.dtype in (bool_, q.dtype) else o.astype(given, q.dtype),)
    if scale is None:
        if isinstance(q.shape[-1], Dim):
            raise GraphError(f"{what}: expected a scale, since the features of {q.type} are not known")
        scale = 1 / math.sqrt(max(q.shape[-1], 1))
    attrs = AttentionAttributes(number(scale, f"{what}: scale"), is_causal)
    if dropout_p == 0:
        return q.graph.add(ATTENTION, (q, k, v, *mask), attrs).outputs[0]
    with q.graph:
        weights = _weights(o, attrs, q, k, mask[0] if mask else None)
        return o.matmul(o.dropout(weights, dropout_p), v)
