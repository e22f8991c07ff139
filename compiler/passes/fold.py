"""Fold: what depends on constants alone is computed now, by the ops' references, and becomes a constant.

Large results stay computed (a program shall not carry megabytes that it can make), and so do calls of references that
complain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from staticgrad.base.extents import is_open, open_sizes
from staticgrad.base.types import sizes
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.graph.text import is_uniform
from staticgrad.ops.control.bodies import bodies_of
from staticgrad.ops.sources import CONSTANT, FULL, MOST_CARRIED


def constant_value(x: Tensor) -> Array | None:
    """The value of a constant or a filled tensor, else None."""
    if x.op.op is CONSTANT:
        value: Array = x.op.attrs.value
        return value
    if open_sizes(x.shape):
        return None
    if x.op.op is FULL and is_open(x.op.attrs.value):
        return None
    if x.op.op is FULL and math.prod(sizes(x.shape)) <= MOST_CARRIED:
        return np.full(sizes(x.shape), x.op.attrs.value, x.dtype)
    return None


def as_tensor(array: Array) -> Tensor:
    """A constant, or ``full`` where all elements have the same bits."""
    if is_uniform(array):
        return FUNCTIONS.full(array.shape, array.ravel()[0].item(), dtype=array.dtype)
    return FUNCTIONS.constant(array)


def fold(region: Region) -> Region:
    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node.op is CONSTANT and node.outputs[0].size != 0:
            return (as_tensor(node.attrs.value),) if is_uniform(node.attrs.value) else None
        if node.op.effect or node.op.draws or node.control or not inputs or bodies_of(node):
            return None
        if node.op.name == "broadcast_to":  # a constant of one element serves its readers as well
            return None
        if not all(x.op.op in (CONSTANT, FULL) for x in inputs):
            return None
        if any(open_sizes(y.shape) or math.prod(sizes(y.shape)) > MOST_CARRIED for y in node.outputs):
            return None
        values = [constant_value(x) for x in inputs]
        if any(value is None for value in values):
            return None
        with np.errstate(all="ignore"):
            result = node.op.reference(node.attrs, *values)
        results = result if isinstance(result, tuple) else (result,)
        return [
            as_tensor(np.asarray(r).astype(y.dtype).reshape(sizes(y.shape)))
            for r, y in zip(results, node.outputs, strict=True)
        ]

    return rebuild(region, visit)
