"""Arrays with an axis of scenarios, read block by block: what a caller gives comes in, arrays for a program go out.

Rows may be an array, also one in a file (``np.memmap``), a ``range``, or whatever else has ``shape`` and ``dtype`` and
gives an array when it is sliced, such as a dataset of HDF5 or Zarr. Only blocks that are computed are read, and only
where their elements do not lie as the program reads them they are copied, so that memory does not grow with the number
of scenarios. A list or a tensor of another framework is made an array first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staticgrad.base.errors import FeedError
from staticgrad.base.types import TensorType, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.foreign import as_numpy
from staticgrad.runtime.running.binding import Argument, as_array, ready


def shaped(x: Tensor, value: Any) -> Any:
    """The feed of ``x`` as something that has a shape and that can be sliced."""
    if isinstance(value, np.ndarray | range):
        return value
    foreign = as_numpy(value, f"feed of {x.name!r}", x.source)
    if foreign is not None:
        return foreign
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype") and hasattr(value, "__getitem__"):
        return value
    try:
        return value if isinstance(value, int | float | bool) else np.asarray(value)
    except ValueError as error:
        raise FeedError(f"feed of {x.name!r}: {type(value).__name__} is no array: {error}", source=x.source) from error


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of what ``shaped`` gives."""
    if isinstance(value, range):
        return (len(value),)
    return tuple(map(int, getattr(value, "shape", ())))


class Rows:
    """The scenarios of a feed.

    Args:
        x: the fed tensor; ``shape`` that of one scenario.
        value: what ``shaped`` gives.
        original: what the caller gave.
    """

    __slots__ = ("_value", "_x", "count", "nbytes", "shape")

    def __init__(self, x: Tensor, shape: tuple[int, ...], value: Any, original: Any) -> None:
        self._x = x
        self.shape = shape
        self._value = value
        self.count = shape_of(value)[0]
        self.nbytes = x.dtype.itemsize * int(np.prod(shape, dtype=np.int64))  # of one scenario
        if value is not original and isinstance(original, list | tuple):  # whose numbers are of any floating dtype
            self._value = as_array(self._argument(self.count), original)
        self.block(0, min(1, self.count))  # refuses another dtype

    @property
    def array(self) -> Array | None:
        """The array that holds the scenarios, if one does."""
        return self._value if isinstance(self._value, np.ndarray) else None

    def _argument(self, count: int) -> Argument:
        return Argument(self._x.name, TensorType((count, *self.shape), self._x.dtype))

    def block(self, start: int, stop: int) -> Array:
        """The scenarios from ``start`` to ``stop``, as a program reads them.

        Raises:
            FeedError: a dtype that does not cast safely.
        """
        part = np.asarray(self._value[start:stop])
        if isinstance(self._value, range) and is_floating(self._x.dtype):  # integers of Python become any float
            part = part.astype(self._x.dtype)
        if ready(part, self._x.dtype):
            return part
        return as_array(self._argument(stop - start), part)
