"""Elements several times: ``tile`` and ``repeat``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import Dim, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array, public
from staticgrad.ops.declare import shown_as
from staticgrad.ops.sources import as_shape
from staticgrad.ops.views.broadcasting import broadcast_to
from staticgrad.ops.views.reshaping import reshape


@public
@shown_as("RepeatBackward0")
def tile(x: TensorLike, repetitions: int | tuple[int, ...]) -> Tensor:
    """The whole tensor repeated along its axes, as ``np.tile``.

    Args:
        repetitions: for each axis how often, counted from the last; more of them than axes add axes in front.

    Raises:
        GraphError: a negative number.

    Example:
        >>> sg.Session().run(sg.tile([1, 2], 3))
        array([1, 2, 1, 2, 1, 2])
        >>> sg.tile(sg.zeros((2, 3)), (2, 1)).shape
        (4, 3)
    """
    x = lift(x)
    counts = as_shape(repetitions, "tile: repetitions")
    counts = (1,) * (x.ndim - len(counts)) + counts
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    apart = tuple(size for pair in zip(counts, shape, strict=True) for size in (1, pair[1]))
    repeated = tuple(size for pair in zip(counts, shape, strict=True) for size in pair)
    whole = tuple(count * size for count, size in zip(counts, shape, strict=True))
    return reshape(broadcast_to(reshape(x, apart), repeated), whole)


def _repeated(repeats: int | Sequence[int] | Array, x: Tensor, axis: int) -> Array:
    """The index of the element of an axis that stands at each place when the n-th is repeated ``repeats[n]`` times."""
    size = x.shape[axis]
    if isinstance(repeats, Tensor) or isinstance(size, Dim):
        culprit = repeats if isinstance(repeats, Tensor) else x
        raise GraphError(f"repeat: the size of the result is not known from {culprit!r}", source=culprit.source)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or counts.size not in (1, size) or (counts < 0).any():
        raise GraphError(f"repeat: expected one or {size} counts for axis {axis} of {x!r}, actual {repeats!r}")
    return np.repeat(np.arange(size), counts)


@public
def repeat(x: TensorLike, repeats: int | Sequence[int] | Array, axis: int | None = None) -> Tensor:
    """Each element ``repeats`` times in a row along ``axis``, or of the flattened tensor.

    Args:
        repeats: a number, or one for each element along the axis.

    Raises:
        GraphError: a negative number, a tensor, or another number of numbers than the axis has elements.

    Example:
        >>> sg.Session().run(sg.repeat([1, 2, 3], 2))
        array([1, 1, 2, 2, 3, 3])
        >>> sg.Session().run(sg.repeat([[1, 2], [3, 4]], [1, 2], axis=0))
        array([[1, 2],
               [3, 4],
               [3, 4]])
    """
    x = lift(x)
    if axis is None:
        return repeat(reshape(x, -1), repeats, 0)
    i = normalize_axis(axis, x.ndim, "repeat")
    if not isinstance(repeats, (int, np.integer, Dim)):
        return FUNCTIONS.take(x, _repeated(repeats, x, i), axis=i)
    before, size, after = x.shape[:i], x.shape[i], x.shape[i + 1 :]
    spread = broadcast_to(reshape(x, (*before, size, 1, *after)), (*before, size, repeats, *after))
    return reshape(spread, (*before, size * repeats, *after))
