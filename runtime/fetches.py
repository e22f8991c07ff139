"""Fetches: nests of tensors and ops that users ask for, and results in their places."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from staticgrad import nest
from staticgrad.errors import FeedError, FetchError
from staticgrad.graph import Node, Tensor


def leaves_of(fetches: Any) -> list[Tensor | Node]:
    """The tensors and ops in a nest of fetches.

    Raises:
        FetchError: something else is in it.
    """
    if isinstance(fetches, (Tensor, Node)):
        return [fetches]
    leaves = nest.flatten(fetches)
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, Node)):
            raise FetchError(f"cannot fetch {leaf!r}: expected tensors and ops of the session's graph")
    return leaves


def structure_of(fetches: Any) -> Any:
    """What two nests of fetches have in common if they have the same parts in the same places: a hashable key."""
    if isinstance(fetches, (Tensor, Node)):
        return id(fetches)
    if type(fetches) in (list, tuple):
        return (type(fetches), *map(structure_of, fetches))
    parts = nest.children(fetches)
    if parts is None:
        raise TypeError(f"{fetches!r} is no tensor")
    keys = tuple(fetches) if isinstance(fetches, Mapping) else ()
    return (type(fetches), keys, *map(structure_of, parts))


def packer(fetches: Any) -> Callable[[Sequence[Any]], Any]:
    """A function that puts a flat sequence of results into the nest of ``fetches``."""
    kind, parts = type(fetches), nest.children(fetches) or ()
    if all(isinstance(part, (Tensor, Node)) for part in parts):
        if kind is dict:
            keys = tuple(fetches)
            return lambda values: dict(zip(keys, values, strict=True))
        if kind in (list, tuple):
            return kind
    return _part_packer(fetches, itertools.count())


def _part_packer(fetches: Any, numbers: Iterator[int]) -> Callable[[Sequence[Any]], Any]:
    """The same for a part of a nest, whose results are the next of ``numbers``."""
    parts = nest.children(fetches)
    if parts is None:
        return operator.itemgetter(next(numbers))
    packers = [_part_packer(part, numbers) for part in parts]
    return lambda values: nest.rebuild(fetches, [pack(values) for pack in packers])


def flatten_like(structure: Any, values: Any, what: str) -> list[Any]:
    """The parts of ``values`` that stand where ``structure`` has leaves; a part may be None.

    Raises:
        FeedError: the nests differ.
    """
    if structure is None:
        return []
    if isinstance(structure, (Tensor, Node)):
        return [values]
    pairs: list[tuple[Any, Any]]
    if isinstance(structure, (dict, Mapping)):
        same = isinstance(values, (dict, Mapping)) and values.keys() == structure.keys()
        pairs = [(structure[k], values[k]) for k in structure] if same else []
    elif isinstance(structure, (list, tuple)):
        same = isinstance(values, (list, tuple)) and len(values) == len(structure)
        pairs = list(zip(structure, values, strict=True)) if same else []
    else:
        same = is_dataclass(structure) and type(values) is type(structure)
        names = [f.name for f in fields(structure)] if same else []
        pairs = [(getattr(structure, n), getattr(values, n)) for n in names]
    if not same:
        raise FeedError(f"{what}: expected the nest of the fetches, a {type(structure).__name__}, actual {values!r}")
    return [leaf for s, v in pairs for leaf in flatten_like(s, v, what)]
