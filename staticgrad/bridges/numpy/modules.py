"""Stand-ins for modules in a function that is traced: NumPy, SciPy, ``math`` and their functions.

A stand-in gives everything of its module; functions take traced arrays. What NumPy makes is a known array, so that
traced values can be written into it later, and random numbers are asked for in the trace.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.bridges.numpy import functions, matrices, special, trace, written
from staticgrad.bridges.numpy.array import ScalarKind, TracedArray, arrays_in, is_traced, known, value_of
from staticgrad.bridges.numpy.calls import call
from staticgrad.bridges.numpy.cells import Storage
from staticgrad.bridges.numpy.distributions import DistributionStandIn
from staticgrad.bridges.numpy.elementwise import call_ufunc
from staticgrad.bridges.numpy.namespace import n
from staticgrad.bridges.numpy.tables import of_tensor

TABLES = (functions, matrices, special, written)  # which enter their functions
HANDLED = ("numpy", "scipy", "math", "random", "staticgrad")
_SCALARS: dict[Any, ScalarKind] = {
    kind: ScalarKind(kind.__name__, (), {"real": kind, "dtype": np.dtype(kind)})
    for kind in {*np.sctypeDict.values()}
    if issubclass(kind, (np.number, np.bool_))
}
_FREE = ("numpy.testing", "numpy.typing", "numpy.exceptions", "numpy.dtypes", "scipy.constants")


class StandIn:
    """In the place of something real."""

    def __init__(self, real: Any) -> None:
        self._real = real


_ZEROED: dict[Any, Any] = {np.empty: np.zeros, np.empty_like: np.zeros_like}  # memory of chance would be in the program
_OPERANDS = {"reduce": 1, "accumulate": 1, "reduceat": 2, "outer": 2, "at": 3}  # of methods of ufuncs


class FunctionStandIn(StandIn):
    """In the place of a function of NumPy, SciPy or ``math``."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result = call(_ZEROED.get(self._real, self._real), arguments, named)
        return module_stand_in(result) if isinstance(result, ModuleType) else result

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not isinstance(self._real, np.ufunc) or name not in _OPERANDS:
            return found

        def method(*arguments: Any, **named: Any) -> Any:
            named |= dict(zip(("axis", "dtype", "out"), arguments[_OPERANDS[name] :]))
            return call_ufunc(self._real, name, arguments[: _OPERANDS[name]], named)

        return method


class RandomStandIn(StandIn):
    """In the place of ``numpy.random``, of a generator, or of the module ``random``: draws are asked for."""

    def __init__(self, real: Any, name: str) -> None:
        super().__init__(real)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if (isinstance(found, type) and issubclass(found, Exception)) or not callable(found):
            return found

        def draw(*arguments: Any, **named: Any) -> Any:
            if isinstance(found, type) or name == "default_rng":  # what draws, or the bits for it
                result = found(*value_of(list(arguments)), **value_of(named))
                return RandomStandIn(result, f"{self._name}.{type(result).__name__}") if _draws(result) else result
            if name == "seed":
                return None
            trace.current().depends(f"{self._name}.{name}", trace.DRAWS)
            if name == "shuffle":
                return found(arguments[0].value if type(arguments[0]) is TracedArray else arguments[0])
            return known(found(*value_of(list(arguments)), **value_of(named)))

        return draw


def _draws(x: Any) -> bool:
    return any(hasattr(x, name) for name in ("normal", "random", "gauss"))


class StaticgradStandIn(StandIn):
    """In the place of staticgrad: its functions take traced arrays and give them, without a value at the example."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if isinstance(found, type) or not callable(found):
            return StaticgradStandIn(found) if isinstance(found, ModuleType) else found
        return _declaring(found)


def _declaring(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that takes traced arrays and gives them; functions of arrays that it makes do so too."""

    def declare(*arguments: Any, **named: Any) -> Any:
        tensors = [_inward(x) for x in arguments]
        return nests.map(_outward, fn(*tensors, **{key: _inward(x) for key, x in named.items()}))

    return declare


def _outward(x: Any) -> Any:
    return _declaring(x) if is_array_function(x) else of_tensor(x)


def is_array_function(x: Any) -> bool:
    """True if x is what ``sg.function`` or ``sg.value_and_grad`` made of a function."""
    return getattr(type(x), "is_called_with_tensors", False) is True


def _inward(nest: Any) -> Any:
    """Tensors in the place of arrays; functions take tensors and give them."""
    if isinstance(nest, FunctionType):
        return lambda *xs, **named: _inward(nest(*nests.map(of_tensor, xs), **named))
    return nests.map(lambda x: x.tensor() if type(x) is TracedArray else x, nest)


class ModuleStandIn(StandIn):
    """In the place of a module of NumPy or SciPy, or of ``math``."""

    def __getattr__(self, name: str) -> Any:
        return stand_in(getattr(self._real, name), self._real)

    def __dir__(self) -> list[str]:
        return dir(self._real)


def stand_in(found: Any, home: ModuleType | None = None) -> Any:
    """The stand-in for something of NumPy, SciPy, ``math`` or staticgrad; itself where nothing has to be."""
    if isinstance(found, ModuleType):
        return module_stand_in(found)
    if is_array_function(found):
        return _declaring(found)
    if isinstance(found, np.ufunc):
        return FunctionStandIn(found)
    if isinstance(found, (np.random.Generator, np.random.RandomState, random.Random)):
        return RandomStandIn(found, "rng")
    if found is np.r_ or found is np.c_:
        return _Joined(found)
    where = getattr(found, "__module__", None) or ""
    if where.startswith(("numpy.random", "scipy.stats._qmc")) and callable(found):
        return getattr(module_stand_in(np.random if where[0] == "n" else sys.modules[where]), found.__name__)
    if isinstance(found, type):
        if found in _SCALARS:
            return _SCALARS[found]
        return _vectorize if found is np.vectorize else found
    if where.startswith("scipy.stats") and hasattr(found, "rvs"):
        return DistributionStandIn(getattr(found, "name", type(found).__name__), found)
    if isinstance(getattr(found, "__self__", None), (np.random.RandomState, random.Random)):
        return getattr(RandomStandIn(found.__self__, "np.random"), found.__name__)
    if callable(found) and isinstance(found, (FunctionType, BuiltinFunctionType, type(np.sum))):
        home_name = home.__name__ if home is not None else where
        return FunctionStandIn(found) if home_name.split(".")[0] in ("numpy", "scipy", "math") else found
    return found


def module_stand_in(module: ModuleType) -> Any:
    """The stand-in for a module; itself where nothing has to be."""
    name = module.__name__
    if name.split(".")[0] not in HANDLED or name.startswith(_FREE):
        return module
    if name.startswith("staticgrad"):
        return StaticgradStandIn(module)
    if name in ("random", "numpy.random") or name.startswith(("scipy.stats.qmc", "scipy.stats._qmc")):
        return RandomStandIn(module, "np.random" if name == "numpy.random" else name)
    return ModuleStandIn(module)


class _Joined(StandIn):
    """``np.r_`` and ``np.c_`` of arrays, numbers and slices."""

    def __getitem__(self, key: Any) -> Any:
        items = key if type(key) is tuple else (key,)
        if not any(map(is_traced, arrays_in(list(items)))):
            return known(self._real[value_of(key)])
        parts = [known(self._real[item]) if isinstance(item, slice) else item for item in items]
        return n.hstack(parts) if self._real is np.r_ else n.column_stack(parts)


class _vectorize:
    """``np.vectorize``: the function of each element, one after the other."""

    def __init__(self, function: Callable[..., Any], *_: Any, **__: Any) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        spread = n.broadcast_arrays(*arguments)
        shape = spread[0].shape
        stacked = n.array([self._function(*(x[place] for x in spread)) for place in np.ndindex(shape)])
        return stacked.reshape(shape)[()]


def array_from_outside(value: np.ndarray) -> TracedArray:
    """An array that the function finds, which it may read."""
    own = value.view()
    own.flags.writeable = False
    return TracedArray(own, Storage(own))
