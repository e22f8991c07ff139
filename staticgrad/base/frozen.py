"""``frozen`` and ``record``: dataclasses with slots, most of which is made when it is first needed.

Most of what ``dataclass(frozen=True, slots=True)`` costs is six functions that it writes as text and compiles for each
class, most of which a process never calls; over the classes of this package that is more than half of what importing
it takes. Here comparison, hashing and printing are functions that all classes share, and the initializer is compiled
when it has been called a few times. ``fields``, ``replace``, ``match`` and type checkers see a dataclass like any
other. Every field is one of each object: there is no ``ClassVar``.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields, is_dataclass
from types import ModuleType
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform, overload

OFTEN = 16  # calls of an initializer, with which compiling it begins to pay

C = TypeVar("C", bound=type)
Declared = dict[str, "Field[Any]"]


@overload
def frozen(cls: C) -> C: ...
@overload
def frozen(*, eq: bool = True) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: C | None = None, *, eq: bool = True) -> C | Callable[[C], C]:
    """Make a class a frozen dataclass with slots. With ``eq=False`` its objects are equal to themselves alone."""
    return (lambda cls: _made(cls, eq)) if cls is None else _made(cls, eq)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def record(cls: C) -> C:
    """Make a class a dataclass with slots whose fields may be assigned. Its objects are equal to themselves alone, and
    shown like any other."""
    return _made(cls, eq=False, is_frozen=False)


def _made(cls: C, eq: bool, is_frozen: bool = True) -> C:
    """The class once more, as slots have to be named before it is made."""
    own = cls.__dict__
    inherited: Declared = getattr(cls, "__dataclass_fields__", {})
    annotations = own.get("__annotations__", {})
    new = {name: _field(name, type_, own.get(name, MISSING)) for name, type_ in annotations.items()}
    declared = inherited | new
    content = {name: value for name, value in own.items() if name not in new and name not in _OF_OBJECTS}
    content |= {"__dataclass_fields__": declared, "__slots__": tuple([name for name in new if name not in inherited])}
    content |= {"__qualname__": cls.__qualname__, "__signature__": _Signature()}
    content["__match_args__"] = tuple([name for name, f in declared.items() if f.init and not f.kw_only])
    content |= {"__getstate__": _state, "__setstate__": _restore}
    if is_frozen:
        content |= {"__setattr__": _refuse, "__delattr__": _refuse}
        content.setdefault("__repr__", _shown)
    if eq:
        content |= _comparing(declared)
    made: Any = type(cls)(cls.__name__, cls.__bases__, content)
    made.__init__ = _first_init(made)
    return cast(C, made)


_OF_OBJECTS = ("__dict__", "__weakref__")


_A_FIELD = vars(dataclasses)["_FIELD"]  # what tells a field from a ClassVar


def _field(name: str, type_: Any, default: Any) -> Field[Any]:
    """The field as ``dataclass`` fills it in."""
    if default.__class__.__hash__ is None:
        raise ValueError(f"the default {default!r} would be every object's: give a factory")
    field: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
    field.name, field.type, field._field_type = name, type_, _A_FIELD
    if field.kw_only is MISSING:
        field.kw_only = False
    made: Field[Any] = field
    return made


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


def _shown(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _comparing(declared: Declared) -> dict[str, Any]:
    """Equality and hash by the values of the fields that are compared."""
    names = [name for name, field in declared.items() if field.compare]
    values: Callable[[Any], object] = operator.attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(values(self) == values(other))

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


class _Signature:
    """The descriptor that gives ``inspect.signature`` and ``help`` the arguments of a class's initializer, from its
    fields."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        made = [
            inspect.Parameter(f.name, kinds[bool(f.kw_only)], default=_default_shown(f), annotation=f.type)
            for f in sorted(fields(owner), key=lambda f: bool(f.kw_only))
            if f.init
        ]
        return inspect.Signature(made, return_annotation=None)


def _default_shown(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is MISSING else _FACTORY


_FACTORY = vars(dataclasses)["_HAS_DEFAULT_FACTORY"]  # shown as <factory>

# -- the initializer ------------------------------------------------------------------------------------------------


def _first_init(made: Any) -> Callable[..., None]:
    calls = 0
    names = made.__match_args__ if len(made.__match_args__) == len(made.__dataclass_fields__) else ()

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        """Set the fields; when this is called often, or in a way that has to be refused, leave it to a compiled one."""
        nonlocal calls
        calls += 1
        values: Iterable[tuple[str, Any]] | None = None
        if calls < OFTEN:
            every = args and len(args) == len(names) and not kwargs
            values = zip(names, args, strict=True) if every else _values(made, args, kwargs)
        if values is None:
            made.__init__ = _compiled_init(made)
            made.__init__(self, *args, **kwargs)
            return
        for name, value in values:
            object.__setattr__(self, name, value)
        if hasattr(made, "__post_init__"):
            self.__post_init__()

    return __init__


def _values(made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[tuple[str, Any]] | None:
    """The fields and values that an initializer sets with these arguments, or None if they are wrong."""
    given = {**dict(zip(made.__match_args__, args, strict=False)), **kwargs}
    if len(given) < len(args) + len(kwargs):
        return None
    values = {}
    for name, field in made.__dataclass_fields__.items():
        if field.init and name in given:
            values[name] = given.pop(name)
        elif field.default is not MISSING:
            values[name] = field.default
        elif field.default_factory is not MISSING:
            values[name] = field.default_factory()
        elif field.init:
            return None
    return None if given else values.items()


def _compiled_init(made: Any) -> Callable[..., None]:
    """An initializer as ``dataclass`` writes it: an argument for each field, keyword-only ones last."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    positional, keywords, lines = [], [], []
    assigned = "  _set(self, {!r}, {})" if made.__setattr__ is _refuse else "  self.{} = {}"
    for name, field in made.__dataclass_fields__.items():
        value = argument = name
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
        lines.append(assigned.format(name, value))
    if hasattr(made, "__post_init__"):
        lines.append("  self.__post_init__()")
    arguments = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({arguments}):\n" + "\n".join(lines or ["  pass"]), known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def defined_in(module: ModuleType) -> dict[str, type]:
    """The dataclasses that a module defines, by their names; not those that it imports."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
    }
