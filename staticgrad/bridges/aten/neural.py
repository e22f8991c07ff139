"""Normalisations, softmax, attention, losses, random numbers: their converters.

Random bits are staticgrad's own: the same distributions as PyTorch's, other draws.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staticgrad.base.types import Size, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.aten.dialect import AtenCall, converts
from staticgrad.bridges.importer import RefusedError
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops import randoms
from staticgrad.ops.distributions import categorical
from staticgrad.ops.distributions import randint as integers

REDUCTIONS = ("none", "mean", "sum")  # by PyTorch's numbers


# -- normalisation -----------------------------------------------------------------------------------------------------


@converts("layer_norm")
def layer_norm(x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    return o.layer_norm(x, tuple(normalized_shape), weight, bias, eps)


def _moments(x: Tensor, axes: tuple[int, ...], eps: float) -> list[Tensor]:
    """The mean and the reciprocal standard deviation, which PyTorch keeps for its backward."""
    return [o.mean(x, axes, keepdims=True), o.rsqrt(o.var(x, axes, keepdims=True) + eps)]


@converts("native_layer_norm")
def native_layer_norm(x: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> list[Tensor]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    return [layer_norm(x, normalized_shape, weight, bias, eps), *_moments(x, axes, eps)]


@converts("rms_norm", "_fused_rms_norm")
def rms_norm(at: AtenCall, x: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    y = o.rms_norm(x, tuple(normalized_shape), weight, eps)
    return y if at.op == "rms_norm" else [y, None]


@converts("group_norm")
def group_norm(x: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    return o.group_norm(x, num_groups, weight, bias, eps)


@converts("native_group_norm")
def native_group_norm(
    x: Tensor, weight: Any, bias: Any, N: Size, C: Size, HxW: Size, group: int, eps: float
) -> list[Tensor]:
    rows = o.reshape(x, (N, group, -1))
    mean, scale = (o.squeeze(y, -1) for y in _moments(rows, (-1,), eps))
    return [o.group_norm(x, group, weight, bias, eps), mean, scale]


@converts("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    x: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> list[Any]:
    return [o.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps), None, None]


@converts(
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_batch_norm",
    "_batch_norm_with_update_functional", "_batch_norm_no_update",
)  # fmt: skip
def batch_norm(
    x: Tensor,
    weight: Any,
    bias: Any,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    running_mean: Any = None,
    running_var: Any = None,
) -> list[Any]:
    """The result, PyTorch's moments for its backward, and the new running statistics."""
    if not training:
        y = o.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        return [y, None, None, running_mean, running_var]
    axes = (0, *range(2, x.ndim))
    y = o.batch_norm(x, None, None, weight, bias, True, momentum, eps)
    mean, scale = (o.reshape(moment, (x.shape[1],)) for moment in _moments(x, axes, eps))
    if running_mean is None:
        return [y, mean, scale]
    spread = o.var(x, axes, correction=1.0)
    new = [old * (1 - momentum) + cast(now, old.dtype) * momentum
           for old, now in ((running_mean, o.mean(x, axes)), (running_var, spread))]  # fmt: skip
    return [y, mean, scale, *new]


@converts("softmax", "_softmax", "special_softmax")
def softmax(at: AtenCall, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return o.softmax(at.cast(x), dim) if x.ndim else o.ones_like(at.cast(x))


@converts("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(at: AtenCall, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return o.log_softmax(at.cast(x), dim) if x.ndim else o.zeros_like(at.cast(x))


@converts("_safe_softmax")
def safe_softmax(at: AtenCall, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = at.cast(x)
    masked = o.all(x == -math.inf, dim, keepdims=True)
    return o.where(masked, 0.0, o.softmax(o.where(masked, 0.0, x), dim))


@converts("scaled_dot_product_attention")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return o.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@converts("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Any]:
    """Sums, means or maxima of rows of a table; bags begin at offsets."""
    if scale_grad_by_freq or mode == 2:
        raise RefusedError("maxima of bags, and gradients scaled by frequency, are not converted")
    count, bags = indices.shape[0], offsets.shape[0] - bool(include_last_offset)
    places = o.arange(count, dtype=offsets.dtype)
    of = o.searchsorted(offsets[:bags], places, side="right") - 1
    rows = o.take(weight, indices, axis=0)
    counted = o.ones((count,), dtype=weight.dtype)
    if padding_idx >= 0:
        counted = o.astype(indices != padding_idx, weight.dtype)
    rows = rows * o.expand_dims(counted if per_sample_weights is None else counted * per_sample_weights, -1)
    total = o.scatter(o.zeros((bags, weight.shape[1]), dtype=weight.dtype), (of,), rows, mode="add")
    size = o.scatter(o.zeros((bags,), dtype=weight.dtype), (of,), counted, mode="add")
    if mode == 1:
        total = total / o.expand_dims(o.maximum(size, 1.0), -1)
    return [total, of, o.astype(size, indices.dtype), None]


# -- losses ------------------------------------------------------------------------------------------------------------


@converts("cross_entropy_loss")
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    return o.cross_entropy(x, target, weight, ignore_index, REDUCTIONS[reduction], label_smoothing)


@converts("nll_loss", "nll_loss2d", "nll_loss_nd")
def nll_loss(x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Tensor:
    return o.nll_loss(x, target, weight, ignore_index, REDUCTIONS[reduction])


@converts("mse_loss")
def mse_loss(at: AtenCall, x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return o.mse_loss(at.cast(x), at.cast(target), REDUCTIONS[reduction])


@converts("l1_loss")
def l1_loss(at: AtenCall, x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return o.l1_loss(at.cast(x), at.cast(target), REDUCTIONS[reduction])


@converts("smooth_l1_loss")
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    return o.smooth_l1_loss(x, target, REDUCTIONS[reduction], beta)


@converts("huber_loss")
def huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    return o.huber_loss(x, target, REDUCTIONS[reduction], delta)


@converts("kl_div")
def kl_div(x: Tensor, target: Tensor, reduction: int = 1, log_target: bool = False) -> Tensor:
    return o.kl_div(x, target, REDUCTIONS[reduction], log_target)


@converts("binary_cross_entropy")
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1) -> Tensor:
    return o.binary_cross_entropy(x, target, weight, REDUCTIONS[reduction])


@converts("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Tensor:
    return o.binary_cross_entropy_with_logits(x, target, weight, REDUCTIONS[reduction], pos_weight)


# -- random numbers ----------------------------------------------------------------------------------------------------


@converts("dropout")
def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    return o.dropout(x, p, train)


@converts("native_dropout")
def native_dropout(x: Tensor, p: float, train: bool | None) -> list[Tensor]:
    if train is False or p == 0:
        return [x, o.ones(x.shape, dtype=np.dtype(bool))]
    if p == 1:
        return [o.zeros_like(x), o.zeros(x.shape, dtype=np.dtype(bool))]
    keep = randoms.bernoulli(1 - p, x.shape)
    return [o.apply_dropout(x, keep, p), keep]


@converts("rrelu_with_noise_functional")
def rrelu(x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False) -> list[Tensor]:
    """A leaky ReLU; in training each element has a slope of its own, which is the second result."""
    if not training:
        return [o.leaky_relu(x, (lower + upper) / 2), noise]
    slopes = o.where(x >= 0, 1.0, randoms.uniform(x.shape, lower, upper, dtype=x.dtype))
    return [x * slopes, slopes]


def _size(x: Any, size: Any) -> tuple[Size, ...]:
    return tuple(x.shape if size is None else size)


@converts("rand", "rand_like")
def rand(at: AtenCall, size: Any = None, x: Any = None, dtype: Any = None) -> Tensor:
    return randoms.uniform(_size(x, size), dtype=at.dtype)


@converts("randn", "randn_like")
def randn(at: AtenCall, size: Any = None, x: Any = None, dtype: Any = None) -> Tensor:
    return randoms.normal(_size(x, size), dtype=at.dtype)


@converts("randint", "randint_like")
def randint(at: AtenCall, high: int, low: int = 0, size: Any = None, x: Any = None, dtype: Any = None) -> Tensor:
    return cast(integers(_size(x, size), low, high), at.dtype)


@converts("randperm")
def randperm(at: AtenCall, n: Size, dtype: Any = None) -> Tensor:
    return cast(randoms.permutation(n), at.dtype)


@converts("bernoulli")
def bernoulli(at: AtenCall, x: Tensor, p: Any = None) -> Tensor:
    drawn = randoms.bernoulli(x) if p is None else randoms.bernoulli(p, x.shape)
    return cast(drawn, at.dtype)


@converts("normal_functional")
def normal(at: AtenCall, x: Tensor, mean: float = 0, std: float = 1) -> Tensor:
    return randoms.normal(x.shape, mean, std, dtype=at.dtype)


@converts("multinomial")
def multinomial(x: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    if not replacement or not is_floating(x.dtype):
        raise RefusedError("draws without replacement are not converted")
    rows = o.log(x)
    draws = categorical(rows, shape=(num_samples, *x.shape[:-1]))
    return o.moveaxis(draws, 0, -1)
