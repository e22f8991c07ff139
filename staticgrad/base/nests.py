"""Nests: tuples, lists, dicts and dataclasses of anything, to any depth. None is an empty nest; all else is a leaf.

    Nest ::= None | leaf | tuple of Nest | list of Nest | {key: Nest} | dataclass with Nest fields | Parted

Dicts keep the order of their keys; named tuples and dataclasses come back as what they were. A plain tuple may stand
for a named one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError


class Parted:
    """A value of this package that is a nest of some of its attributes: ``__parts__`` names them. To its users these
    names are none of its own."""

    __parts__: ClassVar[tuple[str, ...]] = ()

    def __with__(self, parts: Sequence[Any]) -> Any:
        """The same kind of value over other parts."""
        raise NotImplementedError

    def __beside__(self, given: Any) -> list[tuple[Any, Any]] | None:
        """Each part with what stands for it in ``given``, into which results are to be written; None: it is no such
        value."""
        raise NotImplementedError


def children(nest: Any) -> Sequence[Any] | None:
    """The parts of a nest in order; None for a leaf.

    Example:
        >>> sg.nest.children({"a": 1, "b": [2, 3]}), sg.nest.children(1), sg.nest.children(None)
        ((1, [2, 3]), None, ())
    """
    if nest is None:
        return ()
    if isinstance(nest, (tuple, list)):
        return tuple(nest)
    if isinstance(nest, (dict, Mapping)):
        return tuple(nest.values())
    if is_dataclass(nest) and not isinstance(nest, type):
        return tuple(getattr(nest, f.name) for f in fields(nest) if f.init)
    if isinstance(nest, Parted):
        return tuple(getattr(nest, name) for name in nest.__parts__)
    return None


def rebuild(nest: Any, parts: Sequence[Any]) -> Any:
    """The same kind of nest over other parts.

    Example:
        >>> sg.nest.rebuild({"a": 1, "b": 2}, [10, 20])
        {'a': 10, 'b': 20}
    """
    if nest is None:
        return None
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*parts)
    if isinstance(nest, (tuple, list)):
        return type(nest)(parts)
    if isinstance(nest, (dict, Mapping)):
        mapping: Any = type(nest)
        return mapping(zip(nest, parts, strict=True))
    if isinstance(nest, Parted):
        return nest.__with__(parts)
    names = [f.name for f in fields(nest) if f.init]
    return replace(nest, **dict(zip(names, parts, strict=True)))


def flatten(nest: Any) -> list[Any]:
    """The leaves of a nest, left to right.

    Example:
        >>> sg.nest.flatten({"a": 1, "b": (2, [3, None])})
        [1, 2, 3]
    """
    parts = children(nest)
    if parts is None:
        return [nest]
    return [leaf for part in parts for leaf in flatten(part)]


def paths(nest: Any) -> list[str]:
    """The path to each leaf, in the order of ``flatten``, as Python writes it after the name of the nest.

    Example:
        >>> sg.nest.paths({"a": 1, "b": (2, [3, None])})
        ["['a']", "['b'][0]", "['b'][1][0]"]
    """
    parts = children(nest)
    if parts is None:
        return [""]
    if isinstance(nest, (dict, Mapping)):
        places = [f"[{key!r}]" for key in nest]
    elif nest is None or (isinstance(nest, (tuple, list)) and not hasattr(nest, "_fields")):
        places = [f"[{i}]" for i in range(len(parts))]
    else:
        names = nest.__parts__ if isinstance(nest, Parted) else getattr(nest, "_fields", None)
        names = names or [f.name for f in fields(nest) if f.init]
        places = [f".{name}" for name in names]
    return [place + inner for place, part in zip(places, parts, strict=True) for inner in paths(part)]


@boundary
def map(function: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """``function`` of the leaves that stand in the same place of each nest, in the nest of the first.

    Raises:
        GraphError: the nests differ in structure, or the function is none.

    Example:
        >>> sg.nest.map(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
        {'a': 11, 'b': (22, 33)}
    """
    if not callable(function):
        raise GraphError(f"nest.map: expected a function of leaves, then the nests, actual {function!r}")
    return _map(function, nest, others)


def _map(function: Callable[..., Any], nest: Any, others: Sequence[Any]) -> Any:
    parts = children(nest)
    if parts is None:
        return function(nest, *others)
    columns = [children(other) for other in others]
    for other, column in zip(others, columns, strict=True):
        same = _is_of_kind(other, nest) and column is not None and len(column) == len(parts)
        if not same or (isinstance(nest, Mapping) and list(nest) != list(other)):
            raise GraphError(f"nests differ: expected the structure of {nest!r}, actual {other!r}")
    results = [
        _map(function, part, [column[i] for column in columns if column is not None]) for i, part in enumerate(parts)
    ]
    return rebuild(nest, results)


def _is_of_kind(nest: Any, other: Any) -> bool:
    """True if two containers may stand in the same place: they are of one type, or tuples of which one has no names."""
    kinds = type(nest), type(other)
    return kinds[0] is kinds[1] or (tuple in kinds and all(issubclass(kind, tuple) for kind in kinds))


@boundary
def pack(nest: Any, leaves: Collection[Any]) -> Any:
    """The structure of ``nest`` over other leaves, in the order of ``flatten``.

    Raises:
        GraphError: the number of leaves is another.

    Example:
        >>> sg.nest.pack({"a": 1, "b": (2, 3)}, ["x", "y", "z"])
        {'a': 'x', 'b': ('y', 'z')}
    """
    expected = len(flatten(nest))
    if not isinstance(leaves, Collection):
        raise GraphError(f"nest.pack: expected {expected} leaves in a list, actual {leaves!r}")
    if len(leaves) != expected:
        raise GraphError(f"pack: expected {expected} leaves for {nest!r}, actual {len(leaves)}")
    return _pack(nest, iter(leaves))


def _pack(nest: Any, leaves: Iterator[Any]) -> Any:
    parts = children(nest)
    if parts is None:
        return next(leaves)
    return rebuild(nest, [_pack(part, leaves) for part in parts])
