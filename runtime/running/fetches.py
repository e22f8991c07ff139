"""Fetches: nests of tensors and ops that users ask for, and results in their places."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from staticgrad.base import nests
from staticgrad.base.errors import FeedError, FetchError
from staticgrad.graph.graph import Node, Tensor
from staticgrad.runtime.running.binding import Argument


def leaves_of(fetches: Any) -> list[Tensor | Node]:
    """The tensors and ops in a nest of fetches.

    Raises:
        FetchError: something else is in it.
    """
    if isinstance(fetches, (Tensor, Node)):
        return [fetches]
    leaves = nests.flatten(fetches)
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, Node)):
            raise FetchError(f"cannot fetch {leaf!r}: expected tensors and ops of the session's graph")
    return leaves


def structure_of(fetches: Any) -> Any:
    """A hashable key that is equal for two nests of fetches with the same parts in the same places."""
    if isinstance(fetches, (Tensor, Node)):
        return id(fetches)
    if type(fetches) in (list, tuple):
        return (type(fetches), *map(structure_of, fetches))
    parts = nests.children(fetches)
    if parts is None:
        raise TypeError(f"{fetches!r} is no tensor")
    keys = tuple(fetches) if isinstance(fetches, Mapping) else ()
    return (type(fetches), keys, *map(structure_of, parts))


LEAVES = (Tensor, Node, Argument)


def packer(fetches: Any) -> Callable[[Sequence[Any]], Any]:
    """A function that puts a flat sequence of results into the nest of ``fetches``."""
    kind, parts = type(fetches), nests.children(fetches) or ()
    if all(isinstance(part, LEAVES) for part in parts):
        if kind is dict:
            keys = tuple(fetches)
            return lambda values: dict(zip(keys, values, strict=True))
        if kind in (list, tuple):
            return kind
    return _part_packer(fetches, itertools.count())


def _part_packer(fetches: Any, numbers: Iterator[int]) -> Callable[[Sequence[Any]], Any]:
    """The same for a part of a nest, whose results are the next of ``numbers``."""
    parts = nests.children(fetches)
    if parts is None:
        return operator.itemgetter(next(numbers))
    packers, kind = [_part_packer(part, numbers) for part in parts], type(fetches)
    if fetches is None:
        return lambda values: None
    if kind is list:
        return lambda values: [pack(values) for pack in packers]
    if kind is tuple:
        return lambda values: tuple([pack(values) for pack in packers])
    if kind is dict:
        pairs = list(zip(fetches, packers, strict=True))
        return lambda values: {key: pack(values) for key, pack in pairs}
    return lambda values: nests.rebuild(fetches, [pack(values) for pack in packers])


def flatten_like(structure: Any, values: Any, what: str) -> list[Any]:
    """The parts of ``values`` that stand where ``structure`` has leaves; a part may be None.

    Raises:
        FeedError: the nests differ.
    """
    if isinstance(structure, LEAVES):
        return [values]
    pairs = _beside(structure, values)
    if pairs is None:
        raise FeedError(f"{what}: expected the nest of the fetches, a {type(structure).__name__}, actual {values!r}")
    return [leaf for s, v in pairs for leaf in flatten_like(s, v, what)]


def _beside(structure: Any, values: Any) -> list[tuple[Any, Any]] | None:
    """The parts of a nest, each with the part of ``values`` in its place; None where these are no such nest."""
    if structure is None:
        return []
    if isinstance(structure, (dict, Mapping)):
        same = isinstance(values, (dict, Mapping)) and values.keys() == structure.keys()
        return [(structure[k], values[k]) for k in structure] if same else None
    if isinstance(structure, (list, tuple)):
        same = isinstance(values, (list, tuple)) and len(values) == len(structure)
        return list(zip(structure, values, strict=True)) if same else None
    if isinstance(structure, nests.Parted):
        return structure.__beside__(values)
    if not is_dataclass(structure) or type(values) is not type(structure):
        return None
    return [(getattr(structure, f.name), getattr(values, f.name)) for f in fields(structure) if f.init]


def filled(structure: Any, given: Any, results: Iterator[Any]) -> Any:
    """``given``, a nest like ``structure``, with the next of ``results`` in each place of a leaf. Lists and dicts that
    lacked one are changed, other containers made anew."""
    if isinstance(structure, LEAVES):
        return next(results)
    pairs = _beside(structure, given) or []
    parts = [filled(part, before, results) for part, before in pairs]
    if all(part is before for part, (_, before) in zip(parts, pairs, strict=True)):
        return given
    if isinstance(structure, nests.Parted):
        return structure.__with__(parts)
    if isinstance(given, list):
        given[:] = parts
    elif isinstance(given, MutableMapping):
        given.update(zip(structure, parts, strict=True))
    else:
        return nests.rebuild(structure if isinstance(given, Mapping) else given, parts)
    return given
