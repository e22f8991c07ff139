"""Calls of NumPy's functions with traced arrays: NumPy computes the value at the example, the tables the tensor.

Where nothing that is passed depends on an argument NumPy alone is called. Functions without an entry that NumPy or
SciPy write in Python are traced themselves; their results are compared with the value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError, UnsupportedError
from staticgrad.bridges.numpy import array, subscripts, trace
from staticgrad.bridges.numpy.array import ScalarKind, TracedArray, arrays_in, is_traced, value_of
from staticgrad.bridges.numpy.cells import check_dtype
from staticgrad.bridges.numpy.elementwise import call_ufunc
from staticgrad.bridges.numpy.moves import may_be_view, moved, places_of, view_of
from staticgrad.bridges.numpy.subscripts import reduced
from staticgrad.bridges.numpy.tables import (
    FUNCTIONS,
    OF_TYPES,
    WRITTEN,
    Unconverted,
    all_known,
    apply,
    entry_of,
    has_tensors,
    is_example,
    like,
    of_tensor,
    paired,
    path_of,
    tensor_of,
    without_out,
)

_NONE = "this function is not converted"


def call(function: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """The result of a function of NumPy, SciPy or ``math``."""
    if isinstance(function, np.ufunc):
        return call_ufunc(function, "__call__", arguments, named)
    path = path_of(function)
    if path.startswith("numpy.atleast") and len(arguments) > 1:
        return tuple(call(function, [x], {}) for x in arguments)
    arguments, named, out = without_out(function, [of_tensor(x) for x in arguments], named)
    given = list(arrays_in([arguments, named]))
    has_traced, has_example = any(map(is_traced, given)), is_example(given)
    if path in WRITTEN and has_traced:
        try:
            return apply(entry_of(WRITTEN, path), function, arguments, named)
        except Unconverted as error:
            trace.current().refuse(path, str(error), has_example)
    expected = function(*value_of(arguments), **value_of(named))
    if isinstance(expected, (ModuleType, np.dtype, type)) or _asks_for_a_type(path, expected):
        return expected
    if may_be_view(path) and given and (view := _view(path, function, arguments, named, expected)) is not None:
        return view
    if not has_traced:
        for x in given:
            x.cell.storage.touch()  # the function may have written into it
        result = all_known(expected, given)
    elif (total := reduced(path, arguments, named)) is not None:
        result = paired(total, expected, has_example, path)
    else:
        result = _converted(path, function, arguments, named, expected, has_example)
    if out is None:
        return result
    out[...] = result
    return out


def _asks_for_a_type(path: str, expected: Any) -> bool:
    return isinstance(expected, bool) and "array_api" in path and path.rpartition(".")[2].startswith("is_")


def _converted(
    path: str, function: Any, arguments: list[Any], named: dict[str, Any], expected: Any, has_example: bool
) -> Any:
    """The result by the tables, or by tracing the function itself; what neither can do is refused."""
    is_array = isinstance(expected, np.ndarray)
    if path in OF_TYPES or (is_array and not check_dtype(expected.dtype, path, has_example)):
        return all_known(expected)
    reason = _NONE
    try:
        result = _apply(path, function, arguments, named)
        if result is not NotImplemented:
            return paired(result, expected, has_example, path)
        rebuilt = None if path.startswith("numpy.fft") else _rebuilt(function)
        result = NotImplemented if rebuilt is None else rebuilt(*arguments, **named)
        if result is not NotImplemented and (not has_example or _agree(value_of(result), expected)):
            return result
    except UnsupportedError:
        raise
    except Unconverted as error:
        reason = str(error)
    except Exception as error:  # a library's code may ask anything of an array
        if path in FUNCTIONS and not isinstance(error, (TypeError, GraphError)):
            raise
        reason = f"{_NONE} ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    trace.current().refuse(path, reason, has_example)
    return all_known(expected)


def _apply(path: str, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
    """Tensors by the table, or by moving elements; NotImplemented without an entry."""
    given, options = [_argument(x) for x in arguments], {name: _argument(value) for name, value in named.items()}
    if path in FUNCTIONS:
        return apply(entry_of(FUNCTIONS, path), function, given, options)
    if not may_be_view(path) or not has_tensors(given):
        return NotImplemented
    rest, options = value_of(arguments[1:]), value_of(named)
    return moved(path, tensor_of(given[0]), lambda x: function(x, *rest, **options))


def _argument(nest: Any) -> Any:
    """An argument for the tables: tensors for what is traced, values for what is known."""
    kind = type(nest)
    if kind is TracedArray:
        return nest.value if nest.is_known else nest.tensor()
    if kind is tuple or kind is list:
        return kind(map(_argument, nest))
    if kind is ScalarKind:
        return nest.real
    if kind is float:
        return np.float64(nest)  # where a lone Python float would make a tensor of float32
    return nest


def _rebuilt(function: Any) -> Callable[..., Any] | None:
    """A function of NumPy or SciPy that is written in Python, as it is traced; None for others."""
    inner, rebuild = inspect.unwrap(function), trace.current().rebuild
    return rebuild(inner) if rebuild is not None and isinstance(inner, FunctionType) else None


def _agree(found: Any, expected: Any) -> bool:
    """True if values are equal up to rounding, as far as they are numbers."""
    if isinstance(expected, (tuple, list)):
        return len(found) == len(expected) and all(map(_agree, found, expected))
    if not isinstance(expected, (np.ndarray, np.generic, float, int)) or np.asarray(expected).dtype.kind not in "biuf":
        return True
    return np.shape(found) == np.shape(expected) and np.allclose(found, expected, 1e-6, 1e-9, equal_nan=True)


def _view(path: str, function: Any, arguments: list[Any], named: dict[str, Any], expected: Any) -> Any:
    """The result as a view of the first argument, if it is one; a list of them of a list."""
    x = arguments[0]
    if type(x) is not TracedArray or not isinstance(x.value, np.ndarray) or not x.value.size:
        return None

    def places() -> Any:
        return function(places_of(x.shape), *value_of(arguments[1:]), **value_of(named))

    if isinstance(expected, (list, tuple)):
        return like(
            expected, [view_of(x, part, partial(np.asarray, at)) for part, at in zip(expected, places(), strict=True)]
        )
    if expected is x.value or not np.may_share_memory(expected, x.value):
        return x if expected is x.value else None
    return view_of(x, expected, places, lambda t: _apply(path, function, [t, *arguments[1:]], named))


array.enter(array.Handlers(call_ufunc, call, subscripts.take, subscripts.put))
