"""Elements added around an image, or taken away: ``pad`` as PyTorch has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Dim, integers
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.ops.declare import shown_as
from staticgrad.ops.indexing.subscripts import take

PadMode = Literal["constant", "reflect", "replicate", "circular"]


def _sources(size: int, low: int, high: int, mode: str) -> Array:
    """The index of the element of an axis that stands at each place of the padded one."""
    places = np.arange(-low, size + high)
    if mode == "replicate":
        return np.clip(places, 0, size - 1)
    if mode == "circular":
        return places % size
    period = max(2 * (size - 1), 1)  # reflect
    folded = np.abs(places) % period
    return np.where(folded < size, folded, period - folded)


def _name_of_pad(input: TensorLike, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> str:
    """PyTorch's backward node, by the mode and the number of axes."""
    kinds = {"reflect": "ReflectionPad", "replicate": "ReplicationPad"}
    if mode in kinds:
        return f"{kinds[mode]}{len(pad) // 2}DBackward0"
    return "CopySlices" if mode == "circular" else "ConstantPadNdBackward0"


@shown_as(_name_of_pad)
def pad(input: TensorLike, pad: Sequence[int], mode: PadMode = "constant", value: float | None = None) -> Tensor:
    """Add elements at both ends of the last axes (negative counts: take away).

    Args:
        input: any tensor.
        pad: (before, after) of the last axis, then of the last but one, …
        mode: ``"constant"`` fills with ``value``, by default 0; ``"reflect"``, ``"replicate"`` and ``"circular"``
            repeat elements.

    Raises:
        GraphError: an odd number of counts or too many, more taken away than there is, or an axis that is too short.

    Example:
        >>> x = sg.constant([[1, 2, 3]])
        >>> sg.Session().run(sg.nn.pad(x, (1, 2)))
        array([[0, 1, 2, 3, 0, 0]])
        >>> sg.Session().run(sg.nn.pad(x, (1, 1, 0, 1), mode="replicate"))
        array([[1, 1, 2, 3, 3],
               [1, 1, 2, 3, 3]])
    """
    o = FUNCTIONS
    x = lift(input)
    widths = integers(pad, "pad")
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise GraphError(f"pad: expected two counts for each of some last axes of {x.type}, actual {widths}")
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + [
        (widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)
    ]
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise GraphError(f"pad: mode={mode!r}: expected 'constant', 'reflect', 'replicate' or 'circular'")
    for axis, (low, high) in enumerate(pairs):
        size = x.shape[axis]
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            raise GraphError(f"pad: {(low, high)} takes more away than axis {axis} of {x.type} has")
        if low < 0 or high < 0:
            key = [slice(None)] * axis + [slice(max(-low, 0), size - max(-high, 0))]
            x = x[tuple(key)]
    grown = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if mode == "constant":
        return o.pad(x, grown, value or 0.0) if any(low or high for low, high in grown) else own(x, input)
    for axis, (low, high) in enumerate(grown):
        if low or high:
            x = _pad_by_elements(x, axis, low, high, mode)
    return own(x, input)


def own(x: Tensor, operand: TensorLike) -> Tensor:
    """``x``, or where it is the operand itself a view of it: a hook on the result is no hook on the operand."""
    return FUNCTIONS.reshape(x, x.shape) if x is operand else x


def _pad_by_elements(x: Tensor, axis: int, low: int, high: int, mode: str) -> Tensor:
    size = x.shape[axis]
    if isinstance(size, Dim):
        raise GraphError(f"pad: mode={mode!r} needs an axis of known size, actual {x.type}")
    limit = size - 1 if mode == "reflect" else size if mode == "circular" else max(low, high) if size else 0
    if max(low, high) > limit:
        raise GraphError(f"pad: mode={mode!r} can add at most {limit} to an axis of size {size}, actual {(low, high)}")
    return take(x, _sources(size, low, high, mode), axis=axis)
