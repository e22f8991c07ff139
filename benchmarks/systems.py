"""NumPy, PyTorch, JAX and staticgrad under one set of names, so that a case of ``kernel_cases`` is written once.

A system has the array functions of its library, under NumPy's names, and the functions below under PyTorch's.
``System`` composes them of array functions; a library that has one itself uses its own. What comes in and goes out of
them are the library's arrays.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad import nn

EPSILON = 1e-5


class System:
    """Functions composed of the array functions that ``library`` offers."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    # activations

    def relu(self, x: Any) -> Any:
        return self.maximum(x, 0)

    def sigmoid(self, x: Any) -> Any:
        return 1 / (1 + self.exp(-x))

    def silu(self, x: Any) -> Any:
        return x * self.sigmoid(x)

    def softplus(self, x: Any) -> Any:
        return self.logaddexp(x, self.zeros_like(x))

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + self.erf(x * math.sqrt(0.5)))

    def gelu_tanh(self, x: Any) -> Any:
        return 0.5 * x * (1 + self.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    def leaky_relu(self, x: Any) -> Any:
        return self.where(x > 0, x, x * 0.01)

    def elu(self, x: Any) -> Any:
        return self.where(x > 0, x, self.expm1(x))

    # rows

    def logsumexp(self, x: Any, axis: int) -> Any:
        top = self.max(x, axis, keepdims=True)
        return self.squeeze(top + self.log(self.sum(self.exp(x - top), axis, keepdims=True)), axis)

    def softmax(self, x: Any, axis: int = -1) -> Any:
        powers = self.exp(x - self.max(x, axis, keepdims=True))
        return powers / self.sum(powers, axis, keepdims=True)

    def log_softmax(self, x: Any) -> Any:
        shifted = x - self.max(x, -1, keepdims=True)
        return shifted - self.log(self.sum(self.exp(shifted), -1, keepdims=True))

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        return -self.mean(self.log_softmax(x)[self.arange(x.shape[0]), labels])

    def rsqrt(self, x: Any) -> Any:
        return 1 / self.sqrt(x)

    def normalized(self, x: Any, axis: Any) -> Any:
        centred = x - self.mean(x, axis, keepdims=True)
        return centred * self.rsqrt(self.mean(centred * centred, axis, keepdims=True) + EPSILON)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.normalized(x, -1) * w + b

    def rms_norm(self, x: Any, w: Any) -> Any:
        return x * self.rsqrt(self.mean(x * x, -1, keepdims=True) + EPSILON) * w

    def batch_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.normalized(x, 0) * w + b

    def image_norm(self, x: Any) -> Any:
        """Batch normalization of NCHW images, without weights."""
        return self.normalized(x, (0, 2, 3))

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Causal attention of (heads, places, features) each."""
        places = q.shape[1]
        weights = q @ self.permute(k, (0, 2, 1)) / math.sqrt(q.shape[2])
        seen = self.tril(self.ones((places, places), dtype=bool))
        return self.softmax(self.where(seen, weights, -math.inf)) @ v

    # memory

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return self.transpose(x, axes)

    def add_at(self, x: Any, index: Any, updates: Any) -> Any:
        """``x`` with rows of ``updates`` added at ``index``."""
        raise NotImplementedError

    def max_pool(self, x: Any, size: int, stride: int) -> Any:
        return self.max(self._windows(x, size, stride), (-2, -1))

    def avg_pool(self, x: Any, size: int, stride: int) -> Any:
        return self.mean(self._windows(x, size, stride), (-2, -1))

    def _windows(self, x: Any, size: int, stride: int) -> Any:
        raise NotImplementedError

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)

    # loops

    def scan(self, turn: Any, carry: Any, rows: Any) -> tuple[Any, Any]:
        """``carry, y = turn(carry, row)`` for each row: the last carry, and all y on top of each other."""
        results = []
        for row in rows:
            carry, y = turn(carry, row)
            results.append(y)
        return carry, self.stack(results)


class NumPy(System):
    def add_at(self, x: Any, index: Any, updates: Any) -> Any:
        result = x.copy()
        np.add.at(result, index, updates)
        return result

    def _windows(self, x: Any, size: int, stride: int) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
        return windows[:, :, ::stride, ::stride]


class Jax(System):
    def __getattr__(self, name: str) -> Any:
        for place in (self.library.numpy, self.library.nn, self.library.lax):
            if hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(name)

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.sigmoid, self.silu, self.softplus, self.elu = (
            library.nn.sigmoid, library.nn.silu, library.nn.softplus, library.nn.elu,
        )  # fmt: skip
        self.rsqrt, self.erfinv, self.logsumexp = library.lax.rsqrt, library.lax.erf_inv, library.nn.logsumexp
        self.softmax, self.log_softmax, self.scan = library.nn.softmax, library.nn.log_softmax, library.lax.scan

    def gelu(self, x: Any) -> Any:
        return self.library.nn.gelu(x, approximate=False)

    def gelu_tanh(self, x: Any) -> Any:
        return self.library.nn.gelu(x, approximate=True)

    def add_at(self, x: Any, index: Any, updates: Any) -> Any:
        return x.at[index].add(updates)

    def max_pool(self, x: Any, size: int, stride: int) -> Any:
        return self._pool(x, -np.inf, self.library.lax.max, size, stride)

    def avg_pool(self, x: Any, size: int, stride: int) -> Any:
        return self._pool(x, 0.0, self.library.lax.add, size, stride) / size**2

    def _pool(self, x: Any, start: float, combine: Any, size: int, stride: int) -> Any:
        return self.library.lax.reduce_window(
            x, np.array(start, x.dtype)[()], combine, (1, 1, size, size), (1, 1, stride, stride), "VALID"
        )


class Torch(System):
    def __getattr__(self, name: str) -> Any:
        for place in (self.library, self.library.nn.functional, self.library.special):
            if hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(name)

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        F = library.nn.functional
        self.relu, self.sigmoid, self.silu, self.softplus = library.relu, library.sigmoid, F.silu, F.softplus
        self.leaky_relu, self.elu, self.gelu, self.rsqrt = F.leaky_relu, F.elu, F.gelu, library.rsqrt
        self.cross_entropy, self.logsumexp, self.softmax = F.cross_entropy, library.logsumexp, library.softmax

    def gelu_tanh(self, x: Any) -> Any:
        return self.library.nn.functional.gelu(x, approximate="tanh")

    def log_softmax(self, x: Any) -> Any:
        return self.library.log_softmax(x, -1)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.library.nn.functional.layer_norm(x, (x.shape[-1],), w, b)

    def rms_norm(self, x: Any, w: Any) -> Any:
        return self.library.nn.functional.rms_norm(x, (x.shape[-1],), w, EPSILON)

    def batch_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.library.nn.functional.batch_norm(x, None, None, w, b, training=True)

    def image_norm(self, x: Any) -> Any:
        return self.library.nn.functional.batch_norm(x, None, None, training=True)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.library.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.library.amax(x, () if axis is None else axis, keepdims)

    def var(self, x: Any, axis: Any) -> Any:
        return self.library.var(x, axis, correction=0)

    def maximum(self, x: Any, y: Any) -> Any:
        return self.library.clamp_min(x, y) if isinstance(y, int | float) else self.library.maximum(x, y)

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    def sort(self, x: Any, axis: int) -> Any:
        return self.library.sort(x, axis)[0]

    def take(self, x: Any, index: Any, axis: int) -> Any:
        return self.library.index_select(x, axis, index)

    def add_at(self, x: Any, index: Any, updates: Any) -> Any:
        return x.index_add(0, index, updates)

    def max_pool(self, x: Any, size: int, stride: int) -> Any:
        return self.library.nn.functional.max_pool2d(x, size, stride)

    def avg_pool(self, x: Any, size: int, stride: int) -> Any:
        return self.library.nn.functional.avg_pool2d(x, size, stride)

    def clip(self, x: Any, low: float, high: float) -> Any:
        return self.library.clamp(x, low, high)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self.library, dtype))


class Own(System):
    """staticgrad itself."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sg if hasattr(sg, name) else nn, name)

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.relu, self.sigmoid, self.silu, self.softplus = nn.relu, nn.sigmoid, nn.silu, nn.softplus
        self.leaky_relu, self.elu, self.gelu, self.rsqrt = nn.leaky_relu, nn.elu, nn.gelu, sg.rsqrt
        self.cross_entropy, self.logsumexp, self.permute = nn.cross_entropy, sg.logsumexp, sg.permute_dims
        self.softmax, self.log_softmax, self.scan = nn.softmax, lambda x: nn.log_softmax(x, -1), sg.scan

    def gelu_tanh(self, x: Any) -> Any:
        return nn.gelu(x, approximate="tanh")

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return nn.layer_norm(x, (x.shape[-1],), w, b)

    def rms_norm(self, x: Any, w: Any) -> Any:
        return nn.rms_norm(x, (x.shape[-1],), w, EPSILON)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return nn.scaled_dot_product_attention(q, k, v, is_causal=True)

    def cumsum(self, x: Any, axis: int) -> Any:
        return sg.cumulative_sum(x, axis=axis)

    def add_at(self, x: Any, index: Any, updates: Any) -> Any:
        return sg.scatter(x, index, updates, mode="add")

    def max_pool(self, x: Any, size: int, stride: int) -> Any:
        return nn.max_pool2d(x, size, stride)

    def avg_pool(self, x: Any, size: int, stride: int) -> Any:
        return nn.avg_pool2d(x, size, stride)

    def cast(self, x: Any, dtype: str) -> Any:
        return sg.astype(x, getattr(sg, dtype))


def installed() -> dict[str, System]:
    """The systems by name, those that this interpreter can import."""
    found: dict[str, System] = {"staticgrad": Own(sg), "numpy": NumPy(np)}
    for name, kind in (("torch", Torch), ("jax", Jax)):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        if name == "jax":
            library.config.update("jax_enable_x64", True)
        found[name] = kind(library)
    return found
