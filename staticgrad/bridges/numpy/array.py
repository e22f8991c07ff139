"""The array of a trace: an ndarray to the function that is traced, a tensor to the graph.

It has the value that NumPy computes at the example arguments, so shapes, dtypes, views, broadcasting and errors are
NumPy's own, and a cell (``cells``) with the tensor of this value. One that is *known* depends on no argument; it has no
tensor until something traced is written into it. Scalars are such arrays too: their value is a NumPy scalar or a Python
number (which is weak, as NEP 50 says), and they are never written to.

Operators and methods of NumPy's functions are in ``namespace``, calls of these in ``calls``, subscripts in
``subscripts``; they enter themselves here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from staticgrad.bridges.numpy import trace
from staticgrad.bridges.numpy.cells import Cell, Storage
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


class Handlers(NamedTuple):
    """Functions to which arrays hand on."""

    ufunc: Callable[..., Any]
    function: Callable[..., Any]
    take: Callable[[Any, Any], Any]
    put: Callable[[Any, Any, Any], None]


_handlers: list[Handlers] = []


def enter(handlers: Handlers) -> None:
    """Say what arrays hand on to."""
    _handlers[:] = [handlers]


def call_ufunc(*arguments: Any) -> Any:
    """The result of a ufunc, as ``elementwise`` gives it."""
    return _handlers[0].ufunc(*arguments)


def call(function: Any, *arguments: Any, **named: Any) -> Any:
    """The result of a function of NumPy."""
    return _handlers[0].function(function, arguments, named)


def _asked(what: str, way_out: str, convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """A method that asks for the value."""

    def method(self: TracedArray, *arguments: Any) -> Any:
        self.asked(what, trace.ELSEWHERE if way_out is trace.NUMBER and trace.is_storing() else way_out)
        return convert(self.value, *arguments)

    return method


class TracedArray:
    """An array, or a scalar, with its value at the example arguments and its cell."""

    __slots__ = ("cell", "value")

    def __init__(self, value: Any, cell: Cell) -> None:
        self.value, self.cell = value, cell

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def __class__(self) -> type:  # functions ask isinstance(x, np.ndarray), isinstance(x, float)
        return type(self.value)

    @__class__.setter
    def __class__(self, _: type) -> None:
        raise TypeError("the type of a traced array cannot be changed")

    @property
    def is_known(self) -> bool:
        return not self.cell.storage.is_traced

    @property
    def is_example(self) -> bool:
        return self.cell.storage.is_example

    def tensor(self) -> Tensor:
        return self.cell.read()

    def asked(self, what: str, way_out: str) -> None:
        """Refuse, or freeze, ``what`` asks for the value, unless that is known."""
        if not self.is_known:
            trace.current().depends(what, way_out, self.is_example)

    def known(self, what: str, way_out: str = trace.COUNT) -> Any:
        """The value, for what has to be known when the function is traced."""
        self.asked(what, way_out)
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name in _OF_VALUES and hasattr(self.value, name):
            return getattr(self.value, name)
        if name.startswith("__") or not hasattr(self.value, name):
            raise AttributeError(f"{type(self.value).__name__!r} object has no attribute {name!r}")
        what = f".{name}"
        trace.current().refuse(what, "this attribute of arrays has no counterpart here", self.is_example)
        return getattr(self.value, name)

    @property
    def shape(self) -> tuple[int, ...]:
        self.cell.ask()
        return np.shape(self.value)

    dtype = property(lambda self: np.asarray(self.value).dtype)
    ndim = property(lambda self: np.ndim(self.value))
    size = property(lambda self: math.prod(self.shape))
    T = property(lambda self: self.transpose())
    mT = property(lambda self: self.swapaxes(-1, -2))
    flat = property(lambda self: self.reshape(-1))
    imag = property(lambda self: known(np.imag(self.value)))

    @property
    def real(self) -> Any:
        return known(np.real(self.value)) if self.dtype.kind == "c" else self

    def __repr__(self) -> str:
        return repr(self.value) if self.is_known else f"<traced {self.dtype.name}{list(self.shape)}>"

    def __format__(self, spec: str) -> str:
        if not self.is_known and not spec:
            return repr(self)
        self.asked("formatting", trace.TEXT)
        return format(self.value, spec)

    # -- what asks for a value ----------------------------------------------------------------------------------------

    __bool__ = _asked("bool() of an array, as of if and while", trace.BRANCH, bool)
    __float__ = _asked("float()", trace.NUMBER, float)
    __int__ = _asked("int()", trace.NUMBER, int)
    __complex__ = _asked("complex()", trace.NUMBER, complex)
    __index__ = _asked("a count, as of range()", trace.COUNT, operator.index)
    tolist = _asked("tolist()", trace.NUMBER, lambda value: np.asarray(value).tolist())
    tobytes = _asked("tobytes()", trace.NUMBER, lambda value: np.asarray(value).tobytes())

    def __hash__(self) -> int:
        if isinstance(self.value, np.ndarray):
            raise TypeError("unhashable type: 'numpy.ndarray'")
        self.asked("hash(), as of the key of a dict", trace.COUNT)
        return hash(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self.asked("an array outside of the trace", trace.ELSEWHERE)
        return np.array(self.value, dtype)

    def __len__(self) -> int:
        return len(self.value) if not self.shape else self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool(call(np.any, self == item))

    def item(self, *place: Any) -> Any:
        x = self if self.ndim == 0 and not place else self.reshape(-1)[place[0] if place else 0]
        if not isinstance(x, TracedArray):
            return x.item()
        return x if x.is_known else traced(np.asarray(x.value).item(), o.reshape(x.tensor(), ()), x.is_example)

    # -- elements -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        return _handlers[0].take(self, key)

    def __setitem__(self, key: Any, new: Any) -> None:
        _handlers[0].put(self, key, new)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __array_wrap__(self, x: Any, *_: Any) -> Any:
        return x

    # -- functions as operators and methods ---------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: object, arguments: Any, options: dict[str, Any]) -> Any:
        return call(function, *arguments, **options)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return call_ufunc(np.rint, "__call__", (self,), {}, round)
        return call(np.round, self, digits)

    def astype(self, dtype: Any, *_: Any, copy: bool = True, **__: Any) -> Any:
        """The array in another dtype; itself with ``copy=False`` if it has that one."""
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return call(np.array, self, dtype)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        return call(np.clip, self, min, max, out)

    def copy(self, order: str = "C") -> Any:
        return call(np.array, self)

    def reshape(self, *shape: Any, order: str = "C", **_: Any) -> Any:
        sizes = shape[0] if len(shape) == 1 else shape
        return call(np.reshape, self, sizes, order)

    def transpose(self, *axes: Any) -> Any:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes or None
        return call(np.transpose, self, given)

    def flatten(self, order: str = "C") -> Any:
        return call(np.array, call(np.ravel, self, order))


_OF_VALUES = frozenset({"itemsize", "nbytes", "strides", "flags", "base", "device", "is_integer"})


class ScalarKind(type):
    """The class of stand-ins for NumPy's types of numbers, which convert traced arrays: ``np.float64(x)``.

    To ``isinstance``, and as a dtype, they are the type that they stand for.
    """

    real: Any

    def __call__(cls, *arguments: Any) -> Any:
        if any(map(is_traced, arguments)):
            return call(np.array, arguments[0], cls.real)[()]
        return cls.real(*value_of(arguments))

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.real, name)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)

    def __eq__(cls, other: object) -> bool:
        return bool(cls.real == value_of(other))

    def __hash__(cls) -> int:
        return hash(cls.real)


def traced(value: Any, tensor: Tensor, is_example: bool = True) -> TracedArray:
    """An array of its own memory."""
    return TracedArray(value, Storage(value, tensor, is_example))


def known(value: Any) -> Any:
    """An array that depends on no argument, so that traced ones can be written into it; a scalar as it is."""
    return TracedArray(value, Storage(value)) if type(value) is np.ndarray else value


def is_traced(value: object) -> bool:
    """True if something is an array, or a scalar, that depends on an argument."""
    return type(value) is TracedArray and not value.is_known


def value_of(nest: Any) -> Any:
    """A nest with the values at the example in the place of arrays."""
    kind = type(nest)
    if kind is TracedArray:
        return nest.value
    if kind is tuple or kind is list:
        return kind(map(value_of, nest))
    if kind is dict:
        return {key: value_of(part) for key, part in nest.items()}
    if kind is ScalarKind:
        return nest.real
    if kind is slice:
        return slice(value_of(nest.start), value_of(nest.stop), value_of(nest.step))
    return nest


def arrays_in(nest: Any) -> Iterator[TracedArray]:
    """The arrays of a nest."""
    kind = type(nest)
    if kind is TracedArray:
        yield nest
    elif kind is tuple or kind is list:
        for part in nest:
            yield from arrays_in(part)
    elif kind is dict:
        yield from arrays_in(list(nest.values()))
