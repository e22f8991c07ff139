"""Fetched nests: what an executable fetches, and how the results of a program get there.

Input: a nest of tensors and ops, later the results of a program, one for each tensor. Output: a result for each mention
of a tensor, in a nest of the same form, or in the arrays that a caller gives as ``out``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import FeedError
from staticgrad.base.types import TensorType
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.descriptors import Nest
from staticgrad.runtime.parts.foreign import as_numpy
from staticgrad.runtime.running.binding import check_out
from staticgrad.runtime.running.fetches import packer


class Fetched:
    """A nest of tensors and ops that is fetched.

    Attributes:
        nest: the nest, in containers of its own: those of the caller may change later.
        leaves: the tensors and ops in it, in order.
        tensors: the tensors, each once; a program has one result for each.
        places: for each leaf the number of its tensor, -1 for an op.
        is_single, is_flat: whether the nest is a tensor, or a list, tuple or dict of leaves.
        kind: of a flat nest, what an entry in machine code is told of it.
        pack: puts a result for each leaf into such a nest.
    """

    __slots__ = ("_is_plain", "is_flat", "is_single", "kind", "leaves", "nest", "pack", "places", "tensors")

    def __init__(self, fetches: Any, leaves: Sequence[Tensor | Node]) -> None:
        self.nest = nests.map(lambda leaf: leaf, fetches)
        self.leaves = tuple(leaves)
        self.tensors: tuple[Tensor, ...] = tuple({id(x): x for x in leaves if isinstance(x, Tensor)}.values())
        numbers = {id(x): i for i, x in enumerate(self.tensors)}
        self.places = [numbers.get(id(leaf), -1) for leaf in leaves]
        self._is_plain = self.places == list(range(len(self.tensors)))  # results are the leaves, one for one
        self.is_single = isinstance(fetches, Tensor)
        parts = [*fetches.values()] if type(fetches) is dict else fetches if type(fetches) in (list, tuple) else ()
        same = len(parts) == len(leaves) and all(a is b for a, b in zip(parts, leaves, strict=True))
        self.is_flat = same and type(fetches) in (list, tuple, dict)
        self.kind: Nest = tuple(fetches) if type(fetches) is dict else tuple if type(fetches) is tuple else None
        self.pack = packer(self.nest)

    @property
    def wanted(self) -> list[Tensor | Node]:
        """The tensors and ops whose values a program computes, each once."""
        ops = {id(leaf): leaf for leaf in self.leaves if isinstance(leaf, Node)}
        return [*self.tensors, *ops.values()]

    @property
    def mentioned(self) -> list[tuple[Tensor, int]]:
        """The tensors, as often as they are mentioned, and which result each is."""
        return [(self.tensors[place], place) for place in self.places if place >= 0]

    def spread(self, results: Sequence[Array], outs: Sequence[Any] | None) -> list[Array | None]:
        """A result for each leaf: None for ops, an array of its own for each mention of a tensor."""
        if self._is_plain:
            return list(results)
        spread: list[Array | None] = []
        used: set[int] = set()
        for leaf, place in enumerate(self.places):
            if place < 0:
                spread.append(None)
                continue
            value = results[place]
            given = None if outs is None else outs[leaf]
            if given is not None and given is not value:
                given[...] = value
                value = given
            elif place in used and given is None:
                value = value.copy()
            used.add(place)
            spread.append(value)
        return spread

    def out_arrays(self, outs: Sequence[Any]) -> list[Any]:
        """Arrays over the memory of what is given as ``out``, where it is no array and has such memory."""
        found = []
        for place, given in zip(self.places, outs, strict=True):
            array = None
            if given is not None and place >= 0 and not isinstance(given, np.ndarray):
                x = self.tensors[place]
                array = as_numpy(given, f"out for {x.name!r}", x.source)
            found.append(given if array is None else array)
        return found

    def out_by_tensor(
        self, outs: Sequence[Any], types: Sequence[TensorType], arrays: Sequence[Array]
    ) -> list[Array | None]:
        """For each tensor the array into which a program writes it, the first of ``outs`` for it, or None.

        Args:
            outs: an array for each leaf, or None.
            types: those of the results.
            arrays: what is fed.

        Raises:
            FeedError: results cannot be written to one of ``outs``.
        """
        leaves = [(place, given) for place, given in zip(self.places, outs, strict=True)]
        for place, given in leaves:
            if place < 0 and given is not None:
                raise FeedError("out: an op has no result; expected None in its place")
        kept = [(place, given) for place, given in leaves if place >= 0]
        check_out(
            [given for _, given in kept],
            [types[place] for place, _ in kept],
            [self.tensors[place] for place, _ in kept],
            arrays,
        )
        first: list[Array | None] = [None] * len(self.tensors)
        for place, given in reversed(kept):
            first[place] = given
        return first
