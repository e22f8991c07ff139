"""The data of a Stan program: arrays by name, of the types that the program declares."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.bridges.stan.form import Sized
from staticgrad.bridges.stan.values import number
from staticgrad.graph.optable import Array


def read(data: Any) -> Mapping[str, Any]:
    """Data by name: a mapping, JSON text, or the path of a JSON file.

    Raises:
        StaticGradError: it is none of these.
    """
    if data is None:
        return {}
    if isinstance(data, Mapping):
        return data
    if isinstance(data, str) and data.lstrip().startswith("{"):
        return dict(json.loads(data))
    if isinstance(data, (str, os.PathLike)):
        with open(data) as file:
            return dict(json.load(file))
    raise StaticGradError(f"stan: expected data as a mapping, JSON text or a path, actual {type(data).__name__}")


def bind(data: Mapping[str, Any], name: str, sized: Sized, sizes: tuple[int, ...]) -> Any:
    """The value of a variable of the data: a number, or an array of the declared sizes.

    Raises:
        StaticGradError: it is missing, or of another shape or kind.
    """
    if name not in data:
        raise StaticGradError(f"stan: the data have no {name!r}, which the program declares")
    if "Complex" in sized.base + sized.element or "Tuple" in sized.base + sized.element + sized.raw:
        raise StaticGradError(f"stan: {name}: complex numbers and tuples are not converted")
    try:
        found: Array = np.asarray(data[name], np.float64)
    except (TypeError, ValueError):
        raise StaticGradError(f"stan: {name}: expected numbers in an array of the shape {sizes}") from None
    if found.size != int(np.prod(sizes, dtype=np.int64)) or (found.ndim > 1 and found.size and found.shape != sizes):
        raise StaticGradError(f"stan: {name}: expected the shape {sizes}, actual {found.shape}")
    if sized.integer:
        whole = found.astype(np.int64)
        if not np.array_equal(whole, found):
            raise StaticGradError(f"stan: {name}: expected integers")
        found = whole
    return number(found.reshape(sizes))
