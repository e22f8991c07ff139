"""``frozen``: a frozen dataclass with slots, whose initializer is compiled when it is first called.

Most of what ``dataclass(frozen=True, slots=True)`` costs is six functions that it writes as text and compiles for each
class, most of which a process never calls; over the classes of this package that is more than half of what importing
it takes. Here comparison, hashing and printing are functions that all classes share. ``fields``, ``replace``, ``match``
and type checkers see a dataclass like any other.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform, overload

C = TypeVar("C", bound=type)


@overload
def frozen(cls: C) -> C: ...
@overload
def frozen(*, eq: bool = True) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: C | None = None, *, eq: bool = True) -> C | Callable[[C], C]:
    """Make a class a frozen dataclass with slots. With ``eq=False`` its objects are equal to themselves alone."""
    return (lambda cls: _made(cls, eq)) if cls is None else _made(cls, eq)


def _made(cls: C, eq: bool) -> C:
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    own = cls.__dict__
    methods: dict[str, Any] = {"__init__": _first_init(made), "__setattr__": _refuse, "__delattr__": _refuse}
    methods |= {"__getstate__": _state, "__setstate__": _restore}
    if "__repr__" not in own:
        methods["__repr__"] = _shown
    if eq:
        methods |= _comparing(made)
    for name, method in methods.items():
        setattr(made, name, method)
    return cast(C, made)


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, f.name) for f in fields(self))


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _shown(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _comparing(made: Any) -> dict[str, Any]:
    """Equality and hash by the values of the fields that are compared."""
    names = [field.name for field in fields(made) if field.compare]
    values: Callable[[Any], object] = operator.attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(values(self) == values(other))

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


# -- the initializer ------------------------------------------------------------------------------------------------


def _first_init(made: Any) -> Callable[..., None]:
    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        """Take the place of this one, then do what it should."""
        made.__init__ = _compiled_init(made)
        made.__init__(self, *args, **kwargs)

    return __init__


def _compiled_init(made: Any) -> Callable[..., None]:
    """As ``dataclass`` writes it: an argument for each field, keyword-only ones last."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    positional, keywords, lines = [], [], []
    for field in fields(made):
        name, value = field.name, field.name
        argument = name
        if field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            argument = f"{name}=_default_{name}"
        elif field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            argument = f"{name}=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        if not field.init:
            if argument == name:
                continue
            value = f"_default_{name}" if field.default is not MISSING else f"_make_{name}()"
        elif field.kw_only:
            keywords.append(argument)
        else:
            positional.append(argument)
        lines.append(f"  _set(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("  self.__post_init__()")
    arguments = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({arguments}):\n" + "\n".join(lines or ["  pass"]), known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init
