"""Products: ``dot_general`` and ``conv_general_dilated``."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import dtype_of
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.versions import dtype_of_type
from staticgrad.bridges.jaxpr.views import padded
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _wide(node: Any, operands: Sequence[Tensor]) -> list[Tensor]:
    """Operands in the dtype in which their products are summed: the wider one of theirs and the result's."""
    wanted = dtype_of_type(node.outvars[0].aval)
    dtypes = [x.dtype for x in operands] + [wanted]
    floats = [d for d in dtypes if d.kind not in "biu"] or dtypes
    dtype = max(floats, key=lambda d: d.itemsize)
    if dtype.kind == "b":
        dtype = dtype_of(np.int32)
    return [cast(x, dtype) for x in operands]


@converts("dot_general")
def dot_general(at: JaxScope, node: Any) -> Tensor:
    x, y = _wide(node, at.tensors(node.invars))
    result = contracted(x, y, node.params["dimension_numbers"])
    return result != 0 if dtype_of_type(node.outvars[0].aval).kind == "b" else result


def contracted(x: Tensor, y: Tensor, dimensions: Any) -> Tensor:
    """Results have the batch axes first, then those of the first operand, then those of the second."""
    (xs, ys), (batch_xs, batch_ys) = dimensions
    free = iter(string.ascii_letters)
    first = [next(free) for _ in range(x.ndim)]
    second = [""] * y.ndim
    for mine, theirs in zip((*xs, *batch_xs), (*ys, *batch_ys)):
        second[theirs] = first[mine]
    second = [name or next(free) for name in second]
    kept = [first[n] for n in batch_xs] + [c for n, c in enumerate(first) if n not in (*xs, *batch_xs)]
    kept += [c for n, c in enumerate(second) if n not in (*ys, *batch_ys)]
    return o.einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", x, y)


# -- convolutions ------------------------------------------------------------------------------------------------------


@converts("conv_general_dilated")
def conv_general_dilated(at: JaxScope, node: Any) -> Tensor:
    """Images and kernels are brought into the order (batch, channels, sizes …) and (out, in, sizes …)."""
    p = node.params
    specs = p["dimension_numbers"]
    x, w = (
        o.permute_dims(operand, tuple(spec))
        for operand, spec in zip(_wide(node, at.tensors(node.invars)), (specs.lhs_spec, specs.rhs_spec))
    )
    axes = x.ndim - 2
    widths = [(0, 0, 0)] * 2 + [(*pad, step - 1) for pad, step in zip(p["padding"], p["lhs_dilation"])]
    x = padded(x, widths, 0)
    groups = p["feature_group_count"]
    if p["batch_group_count"] > 1:
        x, groups = _batch_as_channels(x, p["batch_group_count"]), p["batch_group_count"]
    y = _convolved(x, w, list(p["window_strides"]), list(p["rhs_dilation"]), groups, axes)
    return o.permute_dims(y, tuple(np.argsort(specs.out_spec).tolist()))


def _batch_as_channels(x: Tensor, groups: int) -> Tensor:
    """(g·n, c, …) as (n, g·c, …): a group of images meets a group of filters."""
    parts = o.reshape(x, (groups, -1, *x.shape[1:]))
    parts = o.moveaxis(parts, 0, 1)
    return o.reshape(parts, (parts.shape[0], groups * parts.shape[2], *x.shape[2:]))


def _convolved(x: Tensor, w: Tensor, strides: list[int], dilations: list[int], groups: int, axes: int) -> Tensor:
    if math.prod(x.shape) == 0 or math.prod(w.shape) == 0:
        raise RefusedError("a convolution of no elements")
    if axes == 0:
        batch, filters = x.shape[0], w.shape[0]
        parts = o.reshape(x, (batch, groups, -1)), o.reshape(w, (groups, -1, w.shape[1]))
        return o.reshape(o.einsum("ngc,gfc->ngf", *parts), (batch, filters))
    if axes > 3:
        raise RefusedError(f"a convolution over {axes} axes")
    if x.dtype.kind in "iu":
        raise RefusedError(f"a convolution of {x.dtype}")
    convolve: Callable[..., Tensor] = getattr(o, f"conv{axes}d")
    return convolve(x, w, None, strides, 0, dilations, groups)
