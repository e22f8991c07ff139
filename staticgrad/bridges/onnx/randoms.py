"""ONNX's operators that draw random numbers. The numbers are those of the session, or of the node's own seed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.types import bool_, float64, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Number, Value
from staticgrad.bridges.onnx.casts import converted, target
from staticgrad.bridges.onnx.dialect import converts, converts_all, size
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
