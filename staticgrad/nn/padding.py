"""Elements added around an image, or taken away: ``pad`` as PyTorch has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from staticgrad.base.errors import GraphError
from staticgrad.base.types import integers
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.declare import shown_as
from staticgrad.ops.views.padding import OTHER_NAMES, cropped, extended, most_repeated

PadMode = Literal["constant", "reflect", "replicate", "circular"]


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
    if any(width < 0 for width in widths):
        x = cropped("pad", x, pairs)
    grown = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if mode == "constant":
        return o.pad(x, grown, value or 0.0) if any(low or high for low, high in grown) else own(x, input)
    for axis, (low, high) in enumerate(grown):
        _check_repeated(x, axis, low, high, mode)
        x = extended("pad", x, axis, low, high, OTHER_NAMES.get(mode, mode))
    return own(x, input)


def own(x: Tensor, operand: TensorLike) -> Tensor:
    """``x``, or where it is the operand itself a view of it: a hook on the result is no hook on the operand."""
    return FUNCTIONS.reshape(x, x.shape) if x is operand else x


def _check_repeated(x: Tensor, axis: int, low: int, high: int, mode: str) -> None:
    """Refuse what PyTorch refuses: more elements than the axis has."""
    size = x.shape[axis]
    limit = most_repeated(size, mode) if isinstance(size, int) and mode != "replicate" else max(low, high)
    if max(low, high) > limit:
        raise GraphError(f"pad: mode={mode!r} can add at most {limit} to an axis of size {size}, actual {(low, high)}")
