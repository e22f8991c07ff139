"""Normalisations, attention, losses, random numbers: their converters.

Random bits are staticgrad's own: the same distributions as PyTorch's, other draws.
"""

from __future__ import annotations

import math
from typing import Any

from staticgrad.base.types import Size, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import BOOL, AtenCall, as_given, converts, direct, entries, in_result
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops import randoms
from staticgrad.ops.distributions import categorical
from staticgrad.ops.distributions import randint as integers

direct(as_given, "layer_norm group_norm rms_norm scaled_dot_product_attention dropout")
direct(as_given, "binary_cross_entropy huber_loss kl_div smooth_l1_loss")
direct(in_result, "l1_loss mse_loss")


# -- normalisation -----------------------------------------------------------------------------------------------------


def _moments(x: Tensor, axes: tuple[int, ...], eps: float) -> list[Tensor]:
    """The mean and the reciprocal standard deviation, which PyTorch keeps for its backward."""
    return [o.mean(x, axes, keepdims=True), o.rsqrt(o.var(x, axes, keepdims=True) + eps)]


def _layer_norm(x: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> list[Tensor]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    return [o.layer_norm(x, normalized_shape, weight, bias, eps), *_moments(x, axes, eps)]


def _group_norm(x: Tensor, weight: Any, bias: Any, N: Size, C: Size, HxW: Size, group: int, eps: float) -> list[Tensor]:
    moments = _moments(o.reshape(x, (N, group, -1)), (-1,), eps)
    return [o.group_norm(x, group, weight, bias, eps), *(o.squeeze(y, -1) for y in moments)]


@converts(
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "native_batch_norm", "_batch_norm_with_update_functional", "_batch_norm_no_update",
)  # fmt: skip
def batch_norm(
    at: AtenCall, x: Tensor, weight: Any, bias: Any, training: Any, momentum: float, eps: float, running_mean: Any,
    running_var: Any,
) -> list[Any]:  # fmt: skip
    """The result, PyTorch's moments for its backward, and the new running statistics."""
    if training is False or "no_training" in at.op:
        y = o.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        return [y, None, None, running_mean, running_var]
    axes = (0, *range(2, x.ndim))
    y = o.batch_norm(x, None, None, weight, bias, True, momentum, eps)
    moments = [o.reshape(moment, (x.shape[1],)) for moment in _moments(x, axes, eps)]
    if running_mean is None:
        return [y, *moments]
    pairs = (running_mean, o.mean(x, axes)), (running_var, o.var(x, axes, correction=1.0))
    return [y, *moments, *(old * (1 - momentum) + cast(now, old.dtype) * momentum for old, now in pairs)]


@converts("_safe_softmax")
def safe_softmax(at: AtenCall, x: Tensor, dim: int) -> Tensor:
    x = at.cast(x)
    masked = o.all(x == -math.inf, dim, keepdims=True)
    return o.where(masked, 0.0, o.softmax(o.where(masked, 0.0, x), dim))


@converts("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, per_sample_weights: Any, include_last_offset: bool,
    padding_idx: int,
) -> list[Any]:  # fmt: skip
    """Sums or means of rows of a table; bags begin at offsets."""
    if mode == 2:
        raise RefusedError("maxima of bags are not converted")
    count, bags = indices.shape[0], offsets.shape[0] - bool(include_last_offset)
    of = o.searchsorted(offsets[:bags], o.arange(count, dtype=offsets.dtype), side="right") - 1
    counted = o.ones((count,), dtype=weight.dtype)
    if padding_idx >= 0:
        counted = o.astype(indices != padding_idx, weight.dtype)
    factors = counted if per_sample_weights is None else counted * per_sample_weights
    rows = o.take(weight, indices, axis=0) * o.expand_dims(factors, -1)
    total = o.scatter(o.zeros((bags, weight.shape[1]), dtype=weight.dtype), (of,), rows, mode="add")
    size = o.scatter(o.zeros((bags,), dtype=weight.dtype), (of,), counted, mode="add")
    mean = total / o.expand_dims(o.maximum(size, 1.0), -1)
    return [mean if mode == 1 else total, of, o.astype(size, indices.dtype), None]


entries({
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "cross_entropy_loss": lambda x, target, weight, reduction, ignore_index, label_smoothing: o.cross_entropy(
        x, target, weight, ignore_index, reduction, label_smoothing
    ),
    "nll_loss nll_loss2d nll_loss_nd": lambda x, target, weight, reduction, ignore_index: o.nll_loss(
        x, target, weight, ignore_index, reduction
    ),
    "binary_cross_entropy_with_logits": lambda x, target, weight, pos_weight, reduction: (
        o.binary_cross_entropy_with_logits(x, target, weight, reduction, pos_weight)
    ),
})  # fmt: skip


# -- random numbers ----------------------------------------------------------------------------------------------------


def _dropout(x: Tensor, p: float, train: bool | None) -> list[Tensor]:
    if train is False or p in (0, 1):
        dropped = p == 1 and train is not False
        return [o.zeros_like(x) if dropped else x, o.full(x.shape, not dropped, dtype=BOOL)]
    keep = randoms.bernoulli(1 - p, x.shape)
    return [o.apply_dropout(x, keep, p), keep]


def _rrelu(x: Tensor, noise: Tensor, lower: float, upper: float, training: bool) -> list[Tensor]:
    """A leaky ReLU; in training each element has a slope of its own, which is the second result."""
    if not training:
        return [o.leaky_relu(x, (lower + upper) / 2), noise]
    slopes = o.where(x >= 0, 1.0, randoms.uniform(x.shape, lower, upper, dtype=x.dtype))
    return [x * slopes, slopes]


def _multinomial(x: Tensor, num_samples: int, replacement: bool) -> Tensor:
    if not replacement or not is_floating(x.dtype):
        raise RefusedError("draws without replacement are not converted")
    return o.moveaxis(categorical(o.log(x), shape=(num_samples, *x.shape[:-1])), 0, -1)


def _size(x: Any, size: Any) -> tuple[Size, ...]:
    return tuple(x.shape if size is None else size)


entries({
    "native_dropout": _dropout,
    "rrelu_with_noise_functional": _rrelu,
    "rand rand_like": lambda at, size, x: randoms.uniform(_size(x, size), dtype=at.dtype),
    "randn randn_like": lambda at, size, x: randoms.normal(_size(x, size), dtype=at.dtype),
    "randint randint_like": lambda at, high, low, size, x: cast(integers(_size(x, size), low or 0, high), at.dtype),
    "randperm": lambda at, n: cast(randoms.permutation(n), at.dtype),
    "bernoulli": lambda at, x, p: cast(randoms.bernoulli(*([x] if p is None else [p, x.shape])), at.dtype),
    "normal_functional": lambda at, x, mean, std: randoms.normal(x.shape, mean, std, dtype=at.dtype),
    "multinomial": _multinomial,
})  # fmt: skip
