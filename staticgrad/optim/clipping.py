"""Gradients together: their common norm, and gradients scaled down to one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from staticgrad.errors import GraphError
from staticgrad.graph import Tensor
from staticgrad.ops.elementwise.copies import widened
from staticgrad.optable import FUNCTIONS as o
from staticgrad.types import float64, is_floating, is_short_float


def global_norm(tensors: Sequence[Tensor | None]) -> Tensor:
    """The 2-norm of all elements of all tensors (None counts as empty), of integers as float64. It is a short float
    where all tensors are of that one dtype.

    Raises:
        GraphError: there is no tensor.

    Example:
        >>> sg.Session().run(sg.optim.global_norm([sg.constant([3.0]), None, sg.constant([4.0])]))
        array(5., dtype=float32)
    """
    there = [x for x in tensors if x is not None]
    if not there:
        raise GraphError("global_norm: expected at least one tensor")
    norm, kinds = _norm(_wide(there)), {x.dtype for x in there}
    return o.astype(norm, kinds.pop()) if len(kinds) == 1 and is_short_float(there[0].dtype) else norm


def _wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Short floats as float32, integers as float64."""
    return [x if is_floating(x.dtype) else o.astype(x, float64) for x in widened(tensors)]


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    return o.sqrt(functools.reduce(o.add, [o.sum(o.square(x)) for x in tensors]))


def clip_by_global_norm(grads: Sequence[Any], max_norm: float | Tensor) -> list[Any]:
    """All gradients times min(1, max_norm / (norm + 1e-6)) for their common 2-norm, as ``clip_grad_norm_`` of PyTorch.

    Args:
        grads: tensors or None, as ``sg.gradients`` gives them.
        max_norm: a number or a scalar tensor.

    Returns:
        A list parallel to ``grads``; None stays None, and integers become float64.

    Example:
        >>> grads = [sg.constant([3.0]), None, sg.constant([4.0])]
        >>> clipped = sg.optim.clip_by_global_norm(grads, 1.0)
        >>> first, _, last = sg.Session().run(clipped)
        >>> first.round(3), last.round(3)
        (array([0.6], dtype=float32), array([0.8], dtype=float32))
    """
    there = [g for g in grads if g is not None]
    if not there:
        return list(grads)
    wide = _wide(there)
    factor = o.minimum(o.divide(max_norm, o.add(_norm(wide), 1e-6)), 1.0)
    clipped = [o.multiply(g, o.astype(factor, g.dtype)) for g in wide]
    result = iter([o.astype(c, g.dtype) if is_floating(g.dtype) else c for c, g in zip(clipped, there, strict=True)])
    return [None if g is None else next(result) for g in grads]
