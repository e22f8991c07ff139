"""Results of NumPy's functions as arrays: the tensor that a converter gives, and the value that NumPy computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.array import TracedArray, arrays_in, known, traced
from staticgrad.bridges.numpy.cells import check_dtype
from staticgrad.graph.graph import Tensor


def paired(result: Any, expected: Any, is_example: bool, what: str) -> Any:
    """Tensors and the values that NumPy computes as arrays; the dtypes are NumPy's.

    Raises:
        GraphError: a tensor has another shape than the value.
    """
    if isinstance(expected, (tuple, list)):
        return like(expected, [paired(*pair, is_example, what) for pair in zip(result, expected, strict=True)])
    if type(result) is TracedArray:
        return result
    if result is None:  # a converter's word for what follows from shapes and dtypes
        return known(expected)
    if not isinstance(result, Tensor):
        raise TypeError(f"{what}: expected a tensor of a converter, actual {type(result).__name__}")
    dtype = np.asarray(expected).dtype
    if not check_dtype(dtype, what, is_example):
        return known(expected)
    result = cast(result, dtype)
    if result.shape != np.shape(expected):
        raise GraphError(f"{what}: NumPy gives {dtype.name}{list(np.shape(expected))}, actual {result.type}")
    if type(expected) is np.ndarray and (expected.base is not None or not expected.flags.writeable):
        expected = expected.copy()
    return traced(expected, result, is_example)


def all_known(expected: Any, given: Iterable[TracedArray] = ()) -> Any:
    """Values that depend on no argument as arrays, copied where they lie in the memory of one that is given."""
    if isinstance(expected, (tuple, list)):
        return like(expected, [all_known(part, given) for part in expected])
    if type(expected) is np.ndarray and any(np.may_share_memory(expected, x.value) for x in given):
        expected = expected.copy()
    return known(expected)


def like(expected: Any, parts: list[Any]) -> Any:
    """A tuple, named or not, or a list of the kind of another one."""
    return type(expected)(*parts) if hasattr(expected, "_fields") else type(expected)(parts)


def is_example(nest: Any) -> bool:
    """True if all traced arrays of a nest have values of an example."""
    return all(x.is_example for x in arrays_in(list(nest)) if not x.is_known)


def of_tensor(x: Any) -> Any:
    """The array of a tensor that no example has a value for; anything else as it is."""
    if not isinstance(x, Tensor):
        return x
    value = np.ones([int(size) for size in x.shape], x.dtype)
    return traced(value if value.ndim else value[()], x, False)
