"""Queries about dtypes, under the array API standard's names.

Input: dtypes, or tensors and arrays in place of theirs; for ``result_type`` Python numbers as well. Output: an
answer at once; nothing is declared. Promotion is NumPy 2's (NEP 50), as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTypeLike, dtype_of, is_floating, is_integer, is_weak, numpy_dtype
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import promote

__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]

KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def _dtype_in(value: Any) -> np.dtype:
    """The dtype of a tensor or an array, or the dtype that ``value`` stands for."""
    return value.dtype if isinstance(value, Tensor | np.ndarray | np.generic) else dtype_of(value)


@frozen
class FloatInfo:
    """The limits of a floating dtype: its bits, the distance from 1 to the next larger number, its largest and smallest
    finite number, the smallest positive one that has all digits.

    Example:
        >>> sg.finfo(sg.float32).max > 3e38
        True
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype


def finfo(type: Any) -> FloatInfo:
    """The limits of a floating dtype, or of a tensor's, as Python numbers: ``bits``, ``eps``, ``max``, ``min``,
    ``smallest_normal``, and the ``dtype``.

    Raises:
        GraphError: the dtype is not floating.

    Example:
        >>> sg.finfo("float32").bits, sg.finfo(sg.float16).eps
        (32, 0.0009765625)
    """
    dtype = _dtype_in(type)
    if not is_floating(dtype):
        raise GraphError(f"finfo: expected a floating dtype, actual {dtype.name}")
    finfo_of: Callable[[np.dtype], np.finfo[Any]] = np.finfo
    if dtype.kind != "f":
        import ml_dtypes

        finfo_of = ml_dtypes.finfo
    found = finfo_of(dtype)
    eps, most, least, smallest = (float(x) for x in (found.eps, found.max, found.min, found.smallest_normal))
    return FloatInfo(int(found.bits), eps, most, least, smallest, dtype)


def iinfo(type: Any) -> np.iinfo[Any]:
    """The limits of an integer dtype, or of a tensor's: ``bits``, ``max``, ``min``, and the ``dtype``.

    Raises:
        GraphError: the dtype is no integer.

    Example:
        >>> sg.iinfo("uint8").max, sg.iinfo(sg.constant(1)).bits
        (255, 64)
    """
    dtype = _dtype_in(type)
    if not is_integer(dtype):
        raise GraphError(f"iinfo: expected an integer dtype, actual {dtype.name}")
    return np.iinfo(dtype)


def isdtype(dtype: DTypeLike, kind: str | DTypeLike | tuple[str | DTypeLike, ...]) -> bool:
    """Tell if a dtype is of a kind, or of one of several; a dtype as kind is the dtype itself.

    Args:
        kind: ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``,
            ``"complex floating"``, ``"numeric"``, or a dtype.

    Raises:
        GraphError: no such kind.

    Example:
        >>> sg.isdtype("int64", "integral"), sg.isdtype("int64", ("bool", "real floating"))
        (True, False)
    """
    given = numpy_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(given, one) for one in kind)
    if isinstance(kind, str) and kind in KINDS:
        return ("f" if is_floating(given) else given.kind) in KINDS[kind]
    return given == dtype_of(kind)


def can_cast(from_: Any, to: DTypeLike) -> bool:
    """Tell if promotion may turn a dtype, or the dtype of a tensor or array, into another.

    Example:
        >>> sg.can_cast("int32", "float64"), sg.can_cast("float64", "int32")
        (True, False)
    """
    return np.can_cast(_dtype_in(from_), dtype_of(to))


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype in which tensors, arrays, dtypes and Python numbers meet in one op.

    Raises:
        GraphError: nothing is given, or something that has no dtype.

    Example:
        >>> sg.result_type("int32", "float32").name, sg.result_type("float32", 2.0).name
        ('float64', 'float32')
        >>> sg.result_type(sg.constant([1, 2]), sg.constant(2.0)).name
        'float64'
    """
    if not arrays_and_dtypes:
        raise GraphError("result_type: expected at least one tensor, dtype or number")
    strong = [_dtype_in(value) for value in arrays_and_dtypes if not is_weak(value)]
    return promote(strong, [value for value in arrays_and_dtypes if is_weak(value)], "result_type")
