"""A function as it is traced: the same code, with stand-ins in the place of modules, functions and arrays around it.

Nothing of the user's is changed. The function's globals become a dict that looks names up in the module's own and gives
a stand-in for what it finds; its closure and default values likewise; so do functions that it calls, methods and
instances of classes that are written in Python outside of installed libraries, and modules that are imported while it
runs.
"""

from __future__ import annotations

import abc
import builtins
import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from staticgrad.base.errors import is_inside
from staticgrad.bridges.numpy.array import is_traced, value_of
from staticgrad.bridges.numpy.modules import HANDLED, array_from_outside, is_array_function, module_stand_in, stand_in
from staticgrad.bridges.numpy.namespace import n

_LIBRARIES = tuple(
    os.path.join(path, "") for path in {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))}
)
_EMPTY = CellType()
_EAGER = ("__name__", "__package__", "__spec__", "__file__", "__loader__", "__path__", "__doc__")


def _installed_package(fn: Any) -> str | None:
    """The folder of the package that a function comes from, unless that has stand-ins."""
    name = (getattr(fn, "__module__", None) or "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    in_package = file is not None and os.path.basename(file) == "__init__.py" and name not in HANDLED
    return os.path.join(os.path.dirname(file), "") if in_package and file is not None else None


class _Globals(dict[str, Any]):
    """Global names: what was assigned to them in the trace, else stand-ins for what they are."""

    def __init__(self, rebuilding: Rebuilding, names: dict[str, Any]) -> None:
        super().__init__({name: names[name] for name in _EAGER if name in names})
        self["__builtins__"] = rebuilding.builtins
        self._rebuilding, self._names = rebuilding, names

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._rebuilding.of(self._names[name])
        return value


class _UserModule:
    """In the place of a module of the user's: its functions are rebuilt."""

    def __init__(self, rebuilding: Rebuilding, real: ModuleType) -> None:
        self._rebuilding, self._real = rebuilding, real

    def __getattr__(self, name: str) -> Any:
        return self._rebuilding.of(getattr(self._real, name))


class Rebuilding:
    """All that was rebuilt for one trace, by the identity of what it stands for."""

    def __init__(self, fn: Any = None) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}
        self._package = _installed_package(fn)
        self.builtins = {**vars(builtins), "__import__": self._import, "max": _extreme(max), "min": _extreme(min)}

    def of(self, found: Any) -> Any:
        """The stand-in for something that a function finds."""
        made = self._made.get(id(found))
        if made is not None:
            return made[1]
        return self._keep(found, self._new(found))

    def function(self, fn: FunctionType) -> FunctionType:
        """A function rebuilt, also if it is a library's."""
        made = self._made.get(id(fn))
        return made[1] if made is not None and isinstance(made[1], FunctionType) else self._function(fn, keep=False)

    def _keep(self, found: Any, made: Any) -> Any:
        if made is not found:
            self._made[id(found)] = found, made
        return made

    def _new(self, found: Any) -> Any:
        if isinstance(found, FunctionType):
            return self._function(found) if self._is_users(found.__code__.co_filename) else stand_in(found)
        if isinstance(found, ModuleType):
            if found.__name__.split(".")[0] in HANDLED:
                return module_stand_in(found)
            return _UserModule(self, found) if self._is_users(getattr(found, "__file__", None)) else found
        if isinstance(found, np.vectorize):
            return stand_in(np.vectorize)(self.of(found.pyfunc))
        if isinstance(found, MethodType) and isinstance(found.__func__, FunctionType):
            return MethodType(self.of(found.__func__), self.of(found.__self__))
        if isinstance(found, functools.partial):
            named = {name: self.of(value) for name, value in found.keywords.items()}
            return functools.partial(self.of(found.func), *map(self.of, found.args), **named)
        if type(found) is np.ndarray:
            return array_from_outside(found) if found.dtype.kind in "biuf" else found
        if is_array_function(found):
            return stand_in(found)
        inner = getattr(found, "py_func", None) or getattr(found, "__wrapped__", None)  # of numba, of functools
        if isinstance(inner, FunctionType) and not isinstance(found, type):
            return self.of(inner) if self._is_users(inner.__code__.co_filename) else stand_in(found)
        if isinstance(found, type):
            return self._class(found)
        if self._is_users_class(type(found)):
            return self._instance(found)
        return stand_in(found)

    def _function(self, fn: FunctionType, keep: bool = True) -> FunctionType:
        cells = fn.__closure__ or ()
        own = tuple(self._made.setdefault(id(cell), (cell, CellType()))[1] for cell in cells)
        made = FunctionType(fn.__code__.replace(), self._globals(fn), fn.__name__, None, own or None)
        if keep:
            self._keep(fn, made)  # before what it refers to, which may be itself
        for cell, new in zip(cells, own, strict=True):
            if new == _EMPTY != cell:
                new.cell_contents = self.of(cell.cell_contents)
        made.__defaults__ = tuple(map(self.of, fn.__defaults__)) if fn.__defaults__ else None
        made.__kwdefaults__ = {k: self.of(v) for k, v in fn.__kwdefaults__.items()} if fn.__kwdefaults__ else None
        made.__dict__.update(fn.__dict__)
        made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__
        return made

    def _globals(self, fn: FunctionType) -> _Globals:
        names = fn.__globals__
        made = self._made.get(id(names))
        if made is None:
            made = self._made[id(names)] = names, _Globals(self, names)
        return made[1]

    def _class(self, cls: type) -> type:
        """A subclass whose methods are rebuilt, and those of its bases, for a class of the user's."""
        if not self._is_users_class(cls):
            return cls
        bases = (*(self.of(base) for base in cls.__bases__ if self._is_users_class(base)), cls)
        made = type(cls)(cls.__name__, bases, {"__module__": cls.__module__, "__qualname__": cls.__qualname__})
        self._keep(cls, made)  # before its methods, which may refer to it
        for name, value in vars(cls).items():
            attribute = self._attribute(value)
            if attribute is not None:
                setattr(made, name, attribute)
        return made

    def _attribute(self, value: Any) -> Any:
        """A rebuilt attribute of a class; None for what a subclass inherits as it is."""
        if isinstance(value, FunctionType):
            return self.of(value) if self._is_users(value.__code__.co_filename) else None
        if isinstance(value, (staticmethod, classmethod)):
            return type(value)(self.of(value.__func__))
        if isinstance(value, property):
            return property(*(None if f is None else self.of(f) for f in (value.fget, value.fset, value.fdel)))
        return self.of(value) if type(value) is np.ndarray else None

    def _instance(self, found: Any) -> Any:
        """The object with a copy of its attributes, as one of the rebuilt class."""
        state = getattr(found, "__dict__", None)
        if state is None:
            return found
        made = object.__new__(self.of(type(found)))
        self._keep(found, made)
        made.__dict__.update({name: self.of(value) for name, value in state.items()})
        return made

    def _is_users(self, file: str | None) -> bool:
        """True if code of a file is the user's own, or of the installed package that the function comes from."""
        if file is None or (self._package is not None and file.startswith(self._package)):
            return file is not None
        is_library = file.startswith((*_LIBRARIES, "<frozen ")) or is_inside(file)
        return not is_library and not {"site-packages", "dist-packages"} & set(file.split(os.sep))

    def _is_users_class(self, cls: type) -> bool:
        """True if the methods of a class can be rebuilt: it is of ordinary kind and written by the user."""
        if type(cls) not in (type, abc.ABCMeta) or issubclass(cls, (BaseException, tuple)) or "__slots__" in vars(cls):
            return False
        codes = [f.__code__ for f in vars(cls).values() if isinstance(f, FunctionType)]
        return any(self._is_users(code.co_filename) for code in codes)

    def _import(self, *arguments: Any, **named: Any) -> Any:
        return self.of(builtins.__import__(*arguments, **named))


def _extreme(real: Any) -> Callable[..., Any]:
    """Python's ``max`` or ``min``; of numbers that are traced the first extreme one, as ``where`` chooses it."""

    @functools.wraps(real)
    def extreme(*arguments: Any, **named: Any) -> Any:
        items = list(arguments[0]) if len(arguments) == 1 else list(arguments)
        if named or not any(map(is_traced, items)) or any(np.ndim(value_of(item)) for item in items):
            return real(items, **named) if len(arguments) == 1 else real(*items, **named)
        best, *rest = items
        for item in rest:
            best = n.where(item > best if real is max else item < best, item, best)[()]
        return best

    return extreme
