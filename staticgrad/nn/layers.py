"""Layers: modules with PyTorch's constructor arguments, names of parameters and first values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staticgrad import init
from staticgrad.errors import GraphError
from staticgrad.graph import Tensor, TensorLike, control_dependencies, get_default_graph, lift, no_grad
from staticgrad.nn import functional as F
from staticgrad.nn.module import Module, Scope
from staticgrad.ops.convolution import pair
from staticgrad.optable import FUNCTIONS, Array
from staticgrad.types import DTypeLike, bool_, float32, int64

Sizes = int | Sequence[int]


def _repr_of(**values: Any) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _fan_bound(fan_in: int) -> init.Initializer:
    """±1/√fan in: what biases begin with."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return init.uniform(-bound, bound)


_WEIGHT = init.kaiming_uniform(a=math.sqrt(5))

# -- affine maps --------------------------------------------------------------------------------------------------


class Linear(Module):
    """``x @ weight.T + bias``: (\\*, in_features) to (\\*, out_features)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: DTypeLike = float32,
        first_bias: init.Initializer | None = None,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        initial = _fan_bound(in_features) if first_bias is None else first_bias
        scope = Scope("linear")
        self.weight = scope.variable("weight", _WEIGHT, (out_features, in_features), dtype)
        self.bias = scope.variable("bias", initial, (out_features,), dtype) if bias else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {_repr_of(bias=self.bias is not None)}"


@dataclass(frozen=True, slots=True)
class _RowOfZeros:
    """Another initializer, but one row is zero."""

    inner: init.Initializer
    row: int

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        value = self.inner.make(shape, dtype, rng)
        value[self.row] = 0
        return value


class Embedding(Module):
    """A table of vectors: indices (\\*) to (\\*, embedding_dim). The row ``padding_idx`` is zero and is not trained."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, dtype: DTypeLike = float32
    ) -> None:
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        first: init.Initializer = init.normal()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise GraphError(f"Embedding: padding_idx={padding_idx} for {num_embeddings} rows")
            first = _RowOfZeros(first, padding_idx)
        self.weight = Scope("embedding").variable("weight", first, (num_embeddings, embedding_dim), dtype)

    def forward(self, input: TensorLike) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


# -- convolution --------------------------------------------------------------------------------------------------


def _filters(
    layer: str, scope: Scope, channels: tuple[int, int], groups: int, kernel: tuple[int, ...], dtype: DTypeLike
) -> tuple[Tensor, init.Initializer]:
    """Weights (channels[0], channels[1] / groups, *kernel), and what biases beside them begin with."""
    first, second = channels
    if groups < 1 or first % groups or second % groups:
        raise GraphError(f"{layer}: {first} and {second} channels do not fall into {groups} groups")
    shape = (first, second // groups, *kernel)
    return scope.variable("weight", _WEIGHT, shape, dtype), _fan_bound(math.prod(shape[1:]))


class _Convolution(Module):
    """What convolutions over one and two axes share: all but the function that computes them."""

    axes = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Any = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        layer, scope = type(self).__name__, Scope(f"conv{self.axes}d")
        self.kernel_size = pair(kernel_size, f"{layer}: kernel_size", 1)[: self.axes]
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.weight, first = _filters(layer, scope, (out_channels, in_channels), groups, self.kernel_size, dtype)
        self.bias = scope.variable("bias", first, (out_channels,), dtype) if bias else None

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, {_repr_of(kernel_size=self.kernel_size)}"


class Conv1d(_Convolution):
    """One-dimensional convolution of (N, in_channels, L)."""

    axes = 1

    def forward(self, input: TensorLike) -> Tensor:
        return F.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """Two-dimensional convolution of (N, in_channels, H, W)."""

    axes = 2

    def forward(self, input: TensorLike) -> Tensor:
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose2d(Module):
    """The transpose of a two-dimensional convolution: (N, in_channels, H, W) to a larger image."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        layer, scope = type(self).__name__, Scope("conv_transpose2d")
        kernel = pair(kernel_size, f"{layer}: kernel_size", 1)
        self.groups, self.dilation = groups, dilation
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.weight, first = _filters(layer, scope, (in_channels, out_channels), groups, kernel, dtype)
        self.bias = scope.variable("bias", first, (out_channels,), dtype) if bias else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


# -- normalisation ------------------------------------------------------------------------------------------------


class _BatchNorm(Module):
    """Batch norm with running statistics. Training: the batch's own statistics, and the running ones are updated."""

    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        scope, shape = Scope(type(self).__name__.lower()), (num_features,)
        self.weight = scope.variable("weight", init.ones(), shape, dtype) if affine else None
        self.bias = scope.variable("bias", init.zeros(), shape, dtype) if affine else None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        self.num_batches_tracked: Tensor | None = None
        if track_running_stats:
            self.running_mean = scope.variable("running_mean", init.zeros(), shape, dtype, trainable=False)
            self.running_var = scope.variable("running_var", init.ones(), shape, dtype, trainable=False)
            self.num_batches_tracked = scope.variable("num_batches_tracked", init.zeros(), (), int64, trainable=False)

    def forward(self, input: TensorLike) -> Tensor:
        x = lift(input, get_default_graph())
        if x.ndim not in self.ranks:
            raise GraphError(f"{type(self).__name__}: expected an input of {self.ranks} dimensions, actual {x.type}")
        if self.training and self.num_batches_tracked is not None:
            return self._train(x, self.num_batches_tracked)
        own = self.training or self.running_mean is None  # without running statistics the batch's own always serve
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, 0.0, self.eps)

    def _train(self, x: Tensor, counter: Tensor) -> Tensor:
        o = FUNCTIONS
        with x.graph, no_grad():
            count = o.add(o.latest_value(counter), 1)
            counted = o.assign(counter, count)
            momentum = self.momentum  # None: the running statistics are the means over all batches so far
            weight = o.divide(1.0, o.astype(count, x.dtype)) if momentum is None else momentum
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True, weight, self.eps)
        with x.graph, control_dependencies([counted]):
            return o.identity(y)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {_repr_of(eps=self.eps, momentum=self.momentum)}"


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of (N, C, H, W)."""

    ranks = (4,)


def _shape_of(sizes: Sizes) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, then weight and bias."""

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        shape = self.normalized_shape = _shape_of(normalized_shape)
        self.eps = eps
        scope = Scope("layernorm")
        self.weight = scope.variable("weight", init.ones(), shape, dtype) if elementwise_affine else None
        self.bias = scope.variable("bias", init.zeros(), shape, dtype) if elementwise_affine and bias else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, {_repr_of(eps=self.eps)}"


class RMSNorm(Module):
    """Root mean square 1 over the last axes, then weight."""

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        shape = self.normalized_shape = _shape_of(normalized_shape)
        self.eps = eps
        self.weight = Scope("rmsnorm").variable("weight", init.ones(), shape, dtype) if elementwise_affine else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, {_repr_of(eps=self.eps)}"


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels, then weight and bias by channel."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: DTypeLike = float32
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise GraphError(f"GroupNorm: {num_channels} channels do not fall into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        scope = Scope("groupnorm")
        self.weight = scope.variable("weight", init.ones(), (num_channels,), dtype) if affine else None
        self.bias = scope.variable("bias", init.zeros(), (num_channels,), dtype) if affine else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, {_repr_of(eps=self.eps)}"


# -- layers without parameters ------------------------------------------------------------------------------------


class Dropout(Module):
    """Zero elements with probability ``p`` while training."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, input: TensorLike) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return _repr_of(p=self.p)


class Identity(Module):
    """The input."""

    def forward(self, input: TensorLike) -> Any:
        return input


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, input: TensorLike) -> Tensor:
        return F.relu(input)


class LeakyReLU(Module):
    """x where it is positive, else negative_slope·x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, input: TensorLike) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)


class ELU(Module):
    """x where it is positive, else alpha·(exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, input: TensorLike) -> Tensor:
        return F.elu(input, self.alpha)


class GELU(Module):
    """x·Φ(x)."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, input: TensorLike) -> Tensor:
        return F.gelu(input, self.approximate)


class SiLU(Module):
    """x·σ(x)."""

    def forward(self, input: TensorLike) -> Tensor:
        return F.silu(input)


class Softplus(Module):
    """log(1 + exp(beta·x)) / beta."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, input: TensorLike) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: TensorLike) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: TensorLike) -> Tensor:
        return F.sigmoid(input)


class Softmax(Module):
    """The softmax along one axis."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: TensorLike) -> Tensor:
        return F.softmax(input, self.dim)


class LogSoftmax(Module):
    """The logarithm of the softmax along one axis."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: TensorLike) -> Tensor:
        return F.log_softmax(input, self.dim)


class Flatten(Module):
    """The axes from ``start_dim`` to ``end_dim`` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: TensorLike) -> Tensor:
        return FUNCTIONS.flatten(input, self.start_dim, self.end_dim)


class MaxPool2d(Module):
    """The largest element of each window."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, input: TensorLike) -> Tensor:
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class AvgPool2d(Module):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: TensorLike) -> Tensor:
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AdaptiveAvgPool2d(Module):
    """Means over windows that share an image out evenly."""

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        self.output_size = output_size

    def forward(self, input: TensorLike) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


# -- containers ---------------------------------------------------------------------------------------------------


class Sequential(Module):
    """Modules one after the other; given as arguments (named ``"0"``, ``"1"``, …) or as one dict."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        named: dict[str, object]
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named = dict(modules[0])
        else:
            named = {str(number): module for number, module in enumerate(modules)}
        for name, module in named.items():
            if not isinstance(module, Module):
                raise TypeError(f"Sequential holds modules, not {module!r}")
            setattr(self, name, module)

    def forward(self, input: TensorLike) -> Any:
        for module in self.children():
            input = module(input)
        return input

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: int) -> Module:
        return list(self.children())[index]


class ModuleList(Module):
    """Modules in a list, so that their variables are found."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Add one module at the end."""
        setattr(self, str(len(self)), module)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: int) -> Module:
        return list(self.children())[index]


# -- attention ----------------------------------------------------------------------------------------------------


class MultiheadAttention(Module):
    """Attention with several heads (Vaswani et al. 2017). ``batch_first``: (N, L, E) instead of (L, N, E)."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = False,
        dtype: DTypeLike = float32,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise GraphError(f"MultiheadAttention: {embed_dim} features do not fall into {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        scope, rows = Scope("multiheadattention"), 3 * embed_dim
        self.in_proj_weight = scope.variable("in_proj_weight", init.xavier_uniform(), (rows, embed_dim), dtype)
        self.in_proj_bias = scope.variable("in_proj_bias", init.zeros(), (rows,), dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, first_bias=init.zeros())

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
            key: (S, N, E), likewise.
            value: (S, N, E), likewise.
            key_padding_mask: (N, S), or (S,) of one example; True (or a number that is added to scores) hides a key
                from all queries.
            attn_mask: (L, S) or (N·heads, L, S); True hides, numbers are added to scores.
            is_causal: query i sees the keys 0 … i.

        Raises:
            GraphError: operands that are not all of three dimensions, or all of two.
        """
        o = FUNCTIONS
        graph = self.in_proj_weight.graph
        operands = [lift(x, graph) for x in (query, key, value)]
        if all(x.ndim == 2 for x in operands):
            batch = 0 if self.batch_first else 1
            padding = None if key_padding_mask is None else o.expand_dims(lift(key_padding_mask, graph), 0)
            q, k, v = (o.expand_dims(x, batch) for x in operands)
            result, weights = self.forward(q, k, v, padding, need_weights, attn_mask, average_attn_weights, is_causal)
            return o.squeeze(result, batch), None if weights is None else o.squeeze(weights, 0)
        if any(x.ndim != 3 for x in operands):
            raise GraphError(f"MultiheadAttention: expected three dimensions, actual {[str(x.type) for x in operands]}")
        if not self.batch_first:
            operands = [o.permute_dims(x, (1, 0, 2)) for x in operands]
        with graph:
            q, k, v = (self._heads(x, i) for i, x in enumerate(operands))
            mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
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
        y = F.linear(x, self.in_proj_weight[rows], bias)
        n, length, _ = y.shape
        split = o.reshape(y, (n, length, self.num_heads, self.embed_dim // self.num_heads))
        return o.permute_dims(split, (0, 2, 1, 3))

    def _mask(
        self, q: Tensor, k: Tensor, key_padding: TensorLike | None, attn_mask: TensorLike | None, causal: bool
    ) -> Tensor | None:
        """All masks as one that is added to the scores."""
        o = FUNCTIONS
        total: Tensor | None = None
        length, keys = q.shape[-2], k.shape[-2]
        if key_padding is not None:
            padding = _additive(lift(key_padding, q.graph), q.dtype)
            total = o.reshape(padding, (padding.shape[0], 1, 1, keys))
        if attn_mask is not None:
            given = _additive(lift(attn_mask, q.graph), q.dtype)
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
    scores = o.matmul(o.multiply(q, scale), o.matrix_transpose(k))
    return F.softmax(scores if mask is None else o.add(scores, mask), -1)
