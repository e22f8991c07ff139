"""Gradients together: their common norm, and gradients scaled down to one."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np

from staticgrad.base.errors import GraphError, PromotionWarning, silent
from staticgrad.base.types import float64, is_floating, is_short_float
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import lift
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.elementwise.copies import widened

G = TypeVar("G", bound=Tensor | None)


def global_norm(tensors: Sequence[Tensor | None]) -> Tensor:
    """The 2-norm of all elements of all tensors (None counts as empty), of integers as float64. It is a short float
    where all tensors are of that one dtype.

    Raises:
        GraphError: there is no tensor, or something else.

    Example:
        >>> sg.Session().run(sg.optim.global_norm([sg.constant([3.0]), None, sg.constant([4.0])]))
        array(5., dtype=float32)
    """
    there = [x for x in _checked(tensors, "global_norm") if x is not None]
    if not there:
        raise GraphError("global_norm: expected at least one tensor")
    norm, kinds = _norm(_wide(there)), {x.dtype for x in there}
    return o.astype(norm, kinds.pop()) if len(kinds) == 1 and is_short_float(there[0].dtype) else norm


def _checked(tensors: Any, what: str) -> list[Tensor | None]:
    """A list of tensors, of arrays the tensors of their values, and None.

    Raises:
        GraphError: it is none.
    """
    if isinstance(tensors, Tensor | str) or not isinstance(tensors, Iterable):
        raise GraphError(f"{what}: expected a list of tensors or None, actual {tensors!r}")
    listed = list(tensors)
    for x in listed:
        if x is not None and not isinstance(x, Tensor | np.ndarray):
            raise GraphError(f"{what}: expected a list of tensors or None, actual {x!r} in it")
    return [x if x is None else lift(x) for x in listed]


def _wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Short floats as float32, integers as float64."""
    return [x if is_floating(x.dtype) else o.astype(x, float64) for x in widened(tensors)]


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    with silent(PromotionWarning):  # tensors of several dtypes have a norm of the widest
        return o.sqrt(functools.reduce(o.add, [o.sum(o.square(x)) for x in tensors]))


def clip_by_global_norm(grads: Sequence[G], max_norm: float | Tensor) -> list[G]:
    """All gradients times min(1, max_norm / (norm + 1e-6)) for their common 2-norm, as ``clip_grad_norm_`` of PyTorch.

    Args:
        grads: tensors or None, as ``sg.gradients`` gives them.
        max_norm: a number or a scalar tensor.

    Returns:
        A list parallel to ``grads``; None stays None, and integers become float64.

    Raises:
        GraphError: what is no list of tensors, or no number.

    Example:
        >>> grads = [sg.constant([3.0]), None, sg.constant([4.0])]
        >>> clipped = sg.optim.clip_by_global_norm(grads, 1.0)
        >>> first, _, last = sg.Session().run(clipped)
        >>> first.round(3), last.round(3)
        (array([0.6], dtype=float32), array([0.8], dtype=float32))
    """
    what = "clip_by_global_norm"
    given = _checked(grads, what)
    if not isinstance(max_norm, Tensor | Real | np.ndarray) or getattr(max_norm, "ndim", 0) > 0:
        raise GraphError(f"{what}: max_norm: expected a number or a scalar tensor, actual {max_norm!r}")
    there = [g for g in given if g is not None]
    if not there:
        return cast(list[G], given)
    wide = _wide(there)
    with silent(PromotionWarning):  # it is cast to what it scales
        factor = o.minimum(o.divide(max_norm, o.add(_norm(wide), 1e-6)), 1.0)
    clipped = [o.multiply(g, o.astype(factor, g.dtype)) for g in wide]
    result = iter([o.astype(c, g.dtype) if is_floating(g.dtype) else c for c, g in zip(clipped, there, strict=True)])
    return [cast(G, None if g is None else next(result)) for g in given]
