"""The array of a trace: an ndarray to the function that is traced, a tensor to the graph.

It has the value that NumPy computes at the example arguments, so shapes, dtypes, views, broadcasting and errors are
NumPy's own, and a cell (``cells``) with the tensor of this value. One that is *known* depends on no argument; it has no
tensor until something traced is written into it. Scalars are such arrays too: their value is a NumPy scalar or a Python
number (which is weak, as NEP 50 says), and they are never written to.

Operators, methods and NumPy's functions are in ``calls``, subscripts in ``subscripts``, which enter themselves here.
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


def call(function: Any, *arguments: Any, **named: Any) -> Any:
    """The result of a function of NumPy."""
    return _handlers[0].function(function, arguments, named)


def _binary(ufunc: np.ufunc, apply: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], ...]:
    """The methods of an operator, of the one with operands swapped, and of the one in place."""

    def method(self: TracedArray, other: Any) -> Any:
        return _handlers[0].ufunc(ufunc, "__call__", (self, other), {}, apply)

    def swapped(self: TracedArray, other: Any) -> Any:
        return _handlers[0].ufunc(ufunc, "__call__", (other, self), {}, apply)

    def in_place(self: TracedArray, other: Any) -> Any:
        if not isinstance(self.value, np.ndarray):
            return method(self, other)
        return _handlers[0].ufunc(ufunc, "__call__", (self, other), {"out": (self,)}, None)

    return method, swapped, in_place


def _unary(ufunc: np.ufunc, apply: Callable[[Any], Any]) -> Callable[..., Any]:
    def method(self: TracedArray) -> Any:
        return _handlers[0].ufunc(ufunc, "__call__", (self,), {}, apply)

    return method


def _function(function: Any) -> Callable[..., Any]:
    """A method that is the function of NumPy, of the array and further arguments."""

    def method(self: TracedArray, *arguments: Any, **named: Any) -> Any:
        return _handlers[0].function(function, (self, *arguments), named)

    return method


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

    @property
    def dtype(self) -> np.dtype:
        return np.asarray(self.value).dtype

    @property
    def ndim(self) -> int:
        return np.ndim(self.value)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> Any:
        return known(np.real(self.value)) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Any:
        return known(np.imag(self.value))

    @property
    def flat(self) -> Any:
        return self.reshape(-1)

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
        return bool(_handlers[0].function(np.any, (self == item,), {}))

    def item(self, *place: Any) -> Any:
        x = self if self.ndim == 0 and not place else self.reshape(-1)[place[0] if place else 0]
        if not isinstance(x, TracedArray):
            return x.item()
        return x if x.is_known else TracedArray(np.asarray(x.value).item(), _scalar(x.tensor(), x.is_example))

    # -- elements -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        return _handlers[0].take(self, key)

    def __setitem__(self, key: Any, new: Any) -> None:
        _handlers[0].put(self, key, new)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def fill(self, number: Any) -> None:
        self[...] = number

    def sort(self, axis: int = -1, kind: Any = None, **_: Any) -> None:
        """Sort in place."""
        self[...] = _handlers[0].function(np.sort, (self, axis), {})

    def partition(self, kth: Any, axis: int = -1, **_: Any) -> None:
        """Sort in place, which is a partition too."""
        self.sort(axis)

    def argpartition(self, kth: Any, axis: int = -1, **_: Any) -> Any:
        """The places of the sorted elements, which are a partition too."""
        return self.argsort(axis)

    def __array_wrap__(self, x: Any, *_: Any) -> Any:
        return x

    # -- functions as operators and methods ---------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return _handlers[0].ufunc(ufunc, method, inputs, options, None)

    def __array_function__(self, function: Any, types: object, arguments: Any, options: dict[str, Any]) -> Any:
        return _handlers[0].function(function, arguments, options)

    __add__, __radd__, __iadd__ = _binary(np.add, operator.add)
    __sub__, __rsub__, __isub__ = _binary(np.subtract, operator.sub)
    __mul__, __rmul__, __imul__ = _binary(np.multiply, operator.mul)
    __truediv__, __rtruediv__, __itruediv__ = _binary(np.true_divide, operator.truediv)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(np.floor_divide, operator.floordiv)
    __mod__, __rmod__, __imod__ = _binary(np.remainder, operator.mod)
    __pow__, __rpow__, __ipow__ = _binary(np.power, operator.pow)
    __matmul__, __rmatmul__, __imatmul__ = _binary(np.matmul, operator.matmul)
    __and__, __rand__, __iand__ = _binary(np.bitwise_and, operator.and_)
    __or__, __ror__, __ior__ = _binary(np.bitwise_or, operator.or_)
    __xor__, __rxor__, __ixor__ = _binary(np.bitwise_xor, operator.xor)
    __lshift__, __rlshift__, __ilshift__ = _binary(np.left_shift, operator.lshift)
    __rshift__, __rrshift__, __irshift__ = _binary(np.right_shift, operator.rshift)
    __divmod__, __rdivmod__, _ = _binary(np.divmod, divmod)
    __eq__ = _binary(np.equal, operator.eq)[0]
    __ne__ = _binary(np.not_equal, operator.ne)[0]
    __lt__ = _binary(np.less, operator.lt)[0]
    __le__ = _binary(np.less_equal, operator.le)[0]
    __gt__ = _binary(np.greater, operator.gt)[0]
    __ge__ = _binary(np.greater_equal, operator.ge)[0]
    __neg__ = _unary(np.negative, operator.neg)
    __pos__ = _unary(np.positive, operator.pos)
    __abs__ = _unary(np.absolute, abs)
    __invert__ = _unary(np.invert, operator.invert)
    __floor__, __ceil__, __trunc__ = (_unary(f, m) for f, m in ((np.floor, math.floor), (np.ceil, math.ceil),
                                                                (np.trunc, math.trunc)))  # fmt: skip

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return _handlers[0].ufunc(np.rint, "__call__", (self,), {}, round)
        return _handlers[0].function(np.round, (self, digits), {})

    def astype(self, dtype: Any, *_: Any, copy: bool = True, **__: Any) -> Any:
        """The array in another dtype; itself with ``copy=False`` if it has that one."""
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return _handlers[0].function(np.array, (self, dtype), {})

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        return _handlers[0].function(np.clip, (self, min, max), {} if out is None else {"out": out})

    def copy(self, order: str = "C") -> Any:
        return _handlers[0].function(np.array, (self,), {})

    def reshape(self, *shape: Any, order: str = "C", **_: Any) -> Any:
        sizes = shape[0] if len(shape) == 1 else shape
        return _handlers[0].function(np.reshape, (self, sizes), {} if order == "C" else {"order": order})

    def transpose(self, *axes: Any) -> Any:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes or None
        return _handlers[0].function(np.transpose, (self, given), {})

    def flatten(self, order: str = "C") -> Any:
        return _handlers[0].function(np.array, (self.reshape(-1),), {})

    sum, prod, mean, std, var, any, all = map(_function, (np.sum, np.prod, np.mean, np.std, np.var, np.any, np.all))
    min, max, argmin, argmax, ptp = map(_function, (np.min, np.max, np.argmin, np.argmax, np.ptp))
    cumsum, cumprod, round, ravel = map(_function, (np.cumsum, np.cumprod, np.round, np.ravel))
    swapaxes, squeeze, repeat, take = map(_function, (np.swapaxes, np.squeeze, np.repeat, np.take))
    diagonal, trace, dot, argsort = map(_function, (np.diagonal, np.trace, np.dot, np.argsort))
    searchsorted, nonzero, compress, choose = map(_function, (np.searchsorted, np.nonzero, np.compress, np.choose))
    conj, conjugate = map(_function, (np.conj, np.conjugate))


_OF_VALUES = frozenset({"itemsize", "nbytes", "strides", "flags", "base", "device", "is_integer"})


def _scalar(tensor: Tensor, is_example: bool) -> Storage:
    return Storage(0, o.reshape(tensor, ()), is_example)


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
    storage = Storage(value, tensor, is_example)
    return TracedArray(value, storage)


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
