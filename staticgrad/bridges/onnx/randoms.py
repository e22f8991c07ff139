"""ONNX's operators that draw random numbers. The numbers are those of the session, or of the node's own seed."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from staticgrad.base.types import float64, int32, is_floating
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.casts import converted, target
from staticgrad.bridges.onnx.dialect import OnnxScope, converts, size
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.distributions import categorical
from staticgrad.ops.randoms import bernoulli, normal, uniform


def _seed(node: OnnxNode) -> int | None:
    """A whole number for the node's seed, which is a float."""
    seed = node.attr("seed")
    return None if seed is None else int.from_bytes(struct.pack("<f", seed), "little")


def _drawn(node: OnnxNode, shape: Any, dtype: np.dtype) -> Tensor:
    wide = dtype if is_floating(dtype) else float64
    if node.operator.startswith("RandomUniform"):
        return cast(uniform(shape, node.attr("low", 0.0), node.attr("high", 1.0), dtype=wide, seed=_seed(node)), dtype)
    return cast(normal(shape, node.attr("mean", 0.0), node.attr("scale", 1.0), dtype=wide, seed=_seed(node)), dtype)


@converts("RandomNormal", "RandomUniform")
def draw(at: OnnxScope, node: OnnxNode) -> Tensor:
    return _drawn(node, tuple(map(size, node.attr("shape"))), target(node.attr("dtype", 1)))


@converts("RandomNormalLike", "RandomUniformLike")
def draw_like(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.value(node.inputs[0])
    return _drawn(node, x.shape, target(node.attr("dtype")) if node.attr("dtype") else x.dtype)


@converts("Bernoulli")
def coin(at: OnnxScope, node: OnnxNode) -> Tensor:
    x = at.tensor(node.inputs[0])
    return converted(bernoulli(x, seed=_seed(node)), target(node.attr("dtype")) if node.attr("dtype") else x.dtype)


@converts("Multinomial")
def classes(at: OnnxScope, node: OnnxNode) -> Tensor:
    x, count = at.tensor(node.inputs[0]), node.attr("sample_size", 1)
    drawn = categorical(o.broadcast_to(o.expand_dims(x, 1), (x.shape[0], count, x.shape[1])), seed=_seed(node))
    return cast(drawn, target(node.attr("dtype")) if node.attr("dtype") else int32)


@converts("Dropout")
def dropout(at: OnnxScope, node: OnnxNode) -> list[Any]:
    x = at.tensor(node.inputs[0])
    ratio = float(at.steering(node, 1, "the ratio of a dropout")) if node.has(1) else node.attr("ratio", 0.5)
    trains = node.has(2) and bool(at.steering(node, 2, "the mode of a dropout"))
    if not trains or ratio == 0:
        return [x, o.full(x.shape, True, dtype=bool)]
    if not 0 <= ratio < 1:
        raise RefusedError(f"a dropout of the ratio {ratio}")
    keep = bernoulli(1 - ratio, x.shape, seed=_seed(node))
    return [o.where(keep, x / (1 - ratio), 0), keep]
