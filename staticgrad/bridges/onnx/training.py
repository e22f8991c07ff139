"""ONNX's random numbers, which are those of the session or of a node's own seed, and its optimizers and gradients, in
the domain ``ai.onnx.preview.training``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.types import bool_, float64, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Number, Value
from staticgrad.bridges.onnx.casts import converted, target
from staticgrad.bridges.onnx.dialect import OnnxScope, converts, converts_all, size
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.distributions import categorical
from staticgrad.ops.randoms import bernoulli, normal, uniform


def _seed(seed: float | None) -> int | None:
    """A whole number for the seed of a node, which is a float."""
    return None if seed is None else int.from_bytes(struct.pack("<f", seed), "little")


def _drawn(draw: Callable[..., Tensor], shape: Any, dtype: Any, seed: float | None, *how: float) -> Tensor:
    wide = dtype if is_floating(dtype) else float64
    return cast(draw(tuple(map(size, shape)), *how, dtype=wide, seed=_seed(seed)), dtype)


def _normal(*, shape: Sequence[int], dtype: int, mean: float, scale: float, seed: float | None) -> Tensor:
    return _drawn(normal, shape, target(dtype), seed, mean, scale)


def _uniform(*, shape: Sequence[int], dtype: int, low: float, high: float, seed: float | None) -> Tensor:
    return _drawn(uniform, shape, target(dtype), seed, low, high)


def _normal_like(x: Value, *, dtype: int, mean: float, scale: float, seed: float | None) -> Tensor:
    return _drawn(normal, x.shape, target(dtype) if dtype else x.dtype, seed, mean, scale)


def _uniform_like(x: Value, *, dtype: int, low: float, high: float, seed: float | None) -> Tensor:
    return _drawn(uniform, x.shape, target(dtype) if dtype else x.dtype, seed, low, high)


converts_all({"RandomNormal": _normal, "RandomUniform": _uniform, "RandomNormalLike": _normal_like,
              "RandomUniformLike": _uniform_like})  # fmt: skip


@converts("Bernoulli")
def coin(x: Tensor, *, dtype: int, seed: float | None) -> Tensor:
    return converted(bernoulli(x, seed=_seed(seed)), target(dtype) if dtype else x.dtype)


@converts("Multinomial")
def classes(x: Tensor, *, dtype: int, sample_size: int, seed: float | None) -> Tensor:
    drawn = categorical(o.broadcast_to(o.expand_dims(x, 1), (x.shape[0], sample_size, x.shape[1])), seed=_seed(seed))
    return cast(drawn, target(dtype))


@converts("Dropout")
def dropout(x: Tensor, ratio: Number = 0.5, trains: Number = False, *, seed: float | None) -> list[Any]:
    if not trains or ratio == 0:
        return [x, o.full(x.shape, True, dtype=bool_)]
    if not 0 <= ratio < 1:
        raise RefusedError(f"a dropout of the ratio {ratio}")
    keep = bernoulli(1 - ratio, x.shape, seed=_seed(seed))
    return [o.where(keep, x / (1 - ratio), 0), keep]


# -- optimizers and gradients ------------------------------------------------------------------------------------------


DOMAIN = "ai.onnx.preview.training::"
Update = Callable[..., Sequence[Tensor]]


@converts(DOMAIN + "Gradient")
def gradient(at: OnnxScope, node: OnnxNode, *, xs: list[str], y: str, zs: Sequence[str] = ()) -> Sequence[Tensor]:
    if list(node.inputs) != [*xs, *zs]:
        raise RefusedError("a gradient at other values than those of the graph is not converted")
    return gradients(at.tensor(y), at.tensors(xs), unconnected_gradients="zero")


def _updated(update: Update, operands: Sequence[Tensor], count: int, regular: float) -> list[Tensor]:
    """The new variables and slots: all of the first kind, then all of the next. An update takes a variable, its
    gradient with that of its norm, and its slots, of which there are ``count`` less 2."""
    size = len(operands) // count
    groups = zip(*(operands[size * k : size * (k + 1)] for k in range(count)))
    rows = [update(x, o.add(slope, x * regular), *slots) for x, slope, *slots in groups]
    return [each for column in zip(*rows) for each in column]


@converts(DOMAIN + "Adagrad")
def adagrad(
    rate: Tensor, step: Tensor, *operands: Tensor, decay_factor: float, epsilon: float, norm_coefficient: float
) -> list[Tensor]:
    rate = rate / (1 + o.astype(step, rate.dtype) * decay_factor)

    def update(x: Tensor, slope: Tensor, squares: Tensor) -> Sequence[Tensor]:
        squares = squares + o.square(slope)
        return x - rate * slope / (o.sqrt(squares) + epsilon), squares

    return _updated(update, operands, 3, norm_coefficient)


@converts(DOMAIN + "Momentum")
def momentum(
    rate: Tensor, step: Tensor, *operands: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> list[Tensor]:
    weight = o.where(step > 0, beta, 1.0)

    def update(x: Tensor, slope: Tensor, moment: Tensor) -> Sequence[Tensor]:
        moment = moment * alpha + o.astype(weight, x.dtype) * slope
        return x - rate * (slope + moment * alpha if mode == "nesterov" else moment), moment

    return _updated(update, operands, 3, norm_coefficient)


@converts(DOMAIN + "Adam")
def adam(
    rate: Tensor, step: Tensor, *operands: Tensor, alpha: float, beta: float, epsilon: float, norm_coefficient: float,
    norm_coefficient_post: float,
) -> list[Tensor]:  # fmt: skip
    def remaining(factor: float) -> Tensor:
        return 1 - o.pow(o.full((), factor, dtype=rate.dtype), o.astype(step, rate.dtype))

    speed = o.where(step > 0, rate * o.sqrt(remaining(beta)) / remaining(alpha), rate)

    def update(x: Tensor, slope: Tensor, mean: Tensor, square: Tensor) -> Sequence[Tensor]:
        mean = mean * alpha + slope * (1 - alpha)
        square = square * beta + o.square(slope) * (1 - beta)
        new = x - speed * mean / (o.sqrt(square) + epsilon)
        return new * (1 - norm_coefficient_post), mean, square

    return _updated(update, operands, 4, norm_coefficient)
