"""Stan's indices, from 1 on, as those of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.stan.values import Index


def within(index: Sequence[tuple[str, Any]], sizes: Sequence[int], name: Any) -> list[Index]:
    """The index of the first axes of an array, from 0 on.

    Raises:
        StaticGradError: it is out of range.
    """
    if len(index) > len(sizes):
        raise StaticGradError(f"stan: {name} has {len(sizes)} axes, the index {len(index)}")
    found: list[Index] = []
    for (kind, args), count in zip(index, sizes):
        match kind:
            case "IndexAll":
                found.append(slice(None))
                continue
            case "IndexSingle" | "IndexMulti":
                at = args[0]
            case "IndexUpfrom":
                at = slice(int(args[0]), count)
            case "IndexDownfrom":
                at = slice(1, int(args[0]))
            case "IndexBetween":
                at = slice(int(args[0]), int(args[1]))
            case _:
                raise RefusedError(f"an index of the kind {kind}")
        if isinstance(at, slice):
            low, high, at = at.start, at.stop, slice(at.start - 1, max(at.stop, at.start - 1))
            if low > high:
                at = slice(0, 0)
                low = high = 1 if count else 0
        elif np.ndim(at) == 0:
            low = high = int(at)
            at = low - 1
        else:
            at = np.asarray(at, np.int64)
            low, high = (int(at.min()), int(at.max())) if at.size else (1, count)
            at = at - 1
            if at.size and np.array_equal(at, np.arange(at[0], at[0] + at.size)):
                at = slice(int(at[0]), int(at[0]) + at.size)
        if (low < 1 or high > count) and not (low == high == 0):
            raise StaticGradError(
                f"stan: an index of {name} is out of range: expected 1 to {count}, actual {low} to {high}"
            )
        found.append(at)
    return found
