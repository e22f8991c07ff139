"""Nests of fetches as JSON: what comes out of an entry, and how its results are called.

structure ::= number of a result | null | ["list", structure, …] | ["tuple", structure, …]
            | ["dict", [key, …], structure, …]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.graph.graph import Node, Tensor


def described_nest(fetches: Any) -> tuple[Any, list[str]]:
    """The structure of a nest, and for each result the keys under which it stands, joined by slashes; an empty text
    where there are none. Ops have no result.

    Raises:
        GraphError: two keys are the same text.
    """
    names: list[str] = []
    return _structure(fetches, "", names), names


def _structure(fetches: Any, key: str, names: list[str]) -> Any:
    if isinstance(fetches, Tensor):
        names.append(key)
        return len(names) - 1
    if fetches is None or isinstance(fetches, Node):
        return None
    parts, keys = nests.children(fetches) or (), _keys(fetches)
    if keys is None:
        found = [_structure(part, key, names) for part in parts]
        return ["list" if isinstance(fetches, list) else "tuple", *found]
    if len({*map(str, keys)}) < len(keys):
        raise GraphError(f"export: expected keys that are different texts, actual {keys}")
    inside = [f"{key}/{own}" if key else str(own) for own in keys]
    found = [_structure(part, name, names) for part, name in zip(parts, inside, strict=True)]
    if isinstance(fetches, tuple):  # a named one
        return ["tuple", *found]
    return ["dict", [own if isinstance(own, int) else str(own) for own in keys], *found]


def _keys(fetches: Any) -> list[Any] | None:
    """The keys of a nest that has some."""
    if isinstance(fetches, Mapping):
        return list(fetches)
    if isinstance(fetches, nests.Parted):
        return list(fetches.__parts__)
    if is_dataclass(fetches):
        return [field.name for field in fields(fetches) if field.init]
    names = getattr(fetches, "_fields", None)
    return None if names is None else list(names)
