"""The tables of NumPy's functions, and how a call of one becomes that of its entry: arguments, operands and results.

    UFUNCS      by name: a function of tensors in the dtypes of the loop that NumPy chooses
    FUNCTIONS   by path (``numpy.sum``): a function of tensors in the place of arrays
    WRITTEN     by path: the function written in NumPy's own terms, which is traced
    OF_TYPES    paths of functions whose results follow from shapes and dtypes

An entry is a function, or the name of an op. A path is the module and name under which NumPy documents a function. The
arguments of a call are bound by the signature that NumPy's function has: an entry is handed those that it names and are
not the default, the operands by place if it has other names for them. Any other argument is refused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter
from typing import Any, TypeVar

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.array import TracedArray, arrays_in, known, traced
from staticgrad.bridges.numpy.cells import check_dtype
from staticgrad.bridges.numpy.trace import current
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o

F = TypeVar("F", bound=Callable[..., Any])
Table = dict[str, Callable[..., Any] | str]

UFUNCS: Table = {}
FUNCTIONS: Table = {}
WRITTEN: Table = {}
OF_TYPES = {f"numpy.{name}" for name in (
    "zeros_like", "ones_like", "empty_like", "shape", "ndim", "size", "result_type", "iscomplexobj", "isrealobj",
    "isscalar", "can_cast", "broadcast_shapes", "shares_memory", "may_share_memory", "min_scalar_type", "common_type",
)}  # fmt: skip
# Arguments that say how something is computed or stored, and not what.
_UNHEEDED = frozenset((
    "dtype", "copy", "order", "subok", "like", "device", "casting", "kind", "stable", "optimize", "requirements",
    "overwrite_input", "overwrite_a", "overwrite_b", "overwrite_ab", "check_finite", "assume_unique", "assume_a",
    "hermitian", "driver", "lapack_driver", "lwork", "disp", "blocksize", "ndmax",
))  # fmt: skip


class Unconverted(Exception):
    """An entry of a table finds arguments that it has nothing for."""


def same(table: Table, home: str, names: str) -> None:
    """Enter ops for functions of the same meaning, under their own name or another one: ``amax=max``."""
    for name in names.split():
        theirs, _, ours = name.partition("=")
        table[home + theirs] = ours or theirs


def enter(table: Table, *paths: str) -> Callable[[F], F]:
    """A decorator that enters a function under these paths."""

    def enter(entry: F) -> F:
        for path in paths:
            if path in table:
                raise ValueError(f"{path} is converted twice")
            table[path] = entry
        return entry

    return enter


def entry_of(table: Table, path: str) -> Callable[..., Any]:
    """The function that a table has under a path."""
    entry = table[path]
    return getattr(o, entry) if isinstance(entry, str) else entry


def path_of(function: Any) -> str:
    """The path of a function, without the private modules in which it is defined."""
    home = (getattr(function, "__module__", None) or "numpy").split(".")
    return ".".join([*(name for name in home if name[0] != "_"), getattr(function, "__name__", str(function))])


def without_out(function: Any, arguments: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any], Any]:
    """The arguments of a call without the array into which it writes its result, and this, or None."""
    theirs, named = _signature(function), dict(named)
    if "out" in named or theirs is None or "out" not in theirs.parameters:
        return arguments, named, named.pop("out", None)
    bound = theirs.bind(*arguments, **named)
    out = bound.arguments.pop("out", None)
    return list(bound.args), bound.kwargs, out


def apply(entry: Callable[..., Any], function: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """The result of an entry for the arguments of a call of NumPy's function.

    Raises:
        Unconverted: the call has an argument that the entry does not take.
    """
    theirs, ours = _signature(function), _signature(entry)
    if ours is None:
        return entry(*arguments, **named)
    operands: list[Any] = []
    options: dict[str, Any] = {}
    if theirs is None:  # a function in C before NumPy 2.4
        operands, options = list(arguments), named
    else:
        for name, value in theirs.bind(*arguments, **named).arguments.items():
            kind, default = theirs.parameters[name].kind, theirs.parameters[name].default
            if kind is Parameter.VAR_POSITIONAL:
                operands += value
            elif kind is Parameter.VAR_KEYWORD:
                options |= value
            elif default is Parameter.empty:
                operands.append(value)
            elif not (value is np._NoValue or value is default or (type(value) is type(default) and value == default)):
                options[name] = value
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in ours.parameters.values())
    others = set() if takes_any else set(options) - set(ours.parameters)
    if not others <= _UNHEEDED:
        raise Unconverted(f"the argument {min(others - _UNHEEDED)} is not converted")
    options = {name: value for name, value in options.items() if name not in others}
    bound = ours.bind(*operands, **options)
    for name, value in bound.arguments.items():
        bound.arguments[name] = _lifted(ours.parameters[name], value)
    return entry(*bound.args, **bound.kwargs)


@functools.cache
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _lifted(parameter: Parameter, value: Any) -> Any:
    """A value for a parameter of an op: a tensor, or several, where the op takes such."""
    kind = str(parameter.annotation)
    if "TensorLike" not in kind or value is None or isinstance(value, str):
        return value
    several = parameter.kind is Parameter.VAR_POSITIONAL or kind.startswith("Sequence")
    return [tensor_of(x) for x in value] if several and not isinstance(value, Tensor) else tensor_of(value)


# -- operands ---------------------------------------------------------------------------------------------------------


def tensor_of(x: Any) -> Tensor:
    """Any operand, also a nested sequence, as a tensor of NumPy's dtype for it."""
    if type(x) is TracedArray:
        return x.tensor()
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (list, tuple)) and has_tensors(x):
        return o.stack(weak([tensor_of(each) for each in x]))
    return o.constant(np.asarray(x))


def tensor_as(x: Any, dtype: np.dtype) -> Tensor:
    """An operand as a tensor of the dtype."""
    if type(x) is TracedArray:
        return cast(x.tensor(), dtype)
    value = np.asarray(x).astype(dtype)
    if value.ndim:
        return o.constant(value)
    numbers, key = current().numbers, (get_default_graph(), dtype, value.tobytes())
    if key not in numbers:
        numbers[key] = o.constant(value)
    return numbers[key]  # type: ignore[no-any-return]


def has_tensors(x: Any) -> bool:
    """True if something is a tensor, or a sequence with one."""
    return any(map(has_tensors, x)) if isinstance(x, (list, tuple)) else isinstance(x, Tensor)


def weak(xs: Sequence[Any]) -> list[Any]:
    """Operands in one dtype, where numbers that came from Python take that of the others; None stays."""
    tensors = [None if x is None else tensor_of(x) for x in xs]
    given = [x for x in tensors if x is not None]
    dtype = np.result_type(*(x.dtype for x in [x for x in given if x.ndim] or given))
    if dtype.kind != "f" and any(x.dtype.kind == "f" for x in given):
        dtype = np.dtype(np.float64)
    return [None if x is None else cast(x, dtype) for x in tensors]


def of_selected(name: str, x: Tensor, mask: Tensor, **named: Any) -> Any:
    """A reduction of the elements where a mask is true."""
    chosen = o.where(mask, x, np.asarray(NEUTRAL[name], x.dtype))
    if name != "mean":
        return getattr(o, name)(chosen, **named)
    return o.sum(chosen, **named) / o.count_nonzero(o.broadcast_to(mask, x.shape), **named)


# What elements outside of the mask are to a reduction.
NEUTRAL = {"sum": 0, "prod": 1, "any": False, "all": True, "mean": 0, "max": -np.inf, "min": np.inf}


# -- results ----------------------------------------------------------------------------------------------------------


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
