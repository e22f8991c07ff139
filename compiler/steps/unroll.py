"""Unroll: a short outer dimension is written index by index, where values would be computed again along it.

Input: a nest. Output: the same nest with fewer outer dimensions and a longer body. A gradient of pairwise
distances loops over pairs and coordinates, (i, k) × j: what belongs to the pair would be computed for every k; with k
unrolled it is computed once, and there is a reduction for each k.
"""

from __future__ import annotations

import math

from staticgrad.base.extents import is_open
from staticgrad.compiler.kernels.access import Affine
from staticgrad.compiler.kernels.body import BodyBuilder, InstructionCopier
from staticgrad.compiler.kernels.nest import Nest, Store
from staticgrad.compiler.plans.nest.facts import analyse, cost_of

LONGEST = 64  # indices that are unrolled
MOST_INSTRUCTIONS = 512  # of a body after unrolling
WORTH = 8  # instructions that are computed again at each index


def unroll(nest: Nest) -> Nest:
    """The nest without the outer dimensions along which it would compute much again."""
    while (dim := _worth_unrolling(nest)) is not None:
        nest = _unrolled(nest, dim)
    return nest


def _worth_unrolling(nest: Nest) -> int | None:
    if not nest.inner or 0 in nest.dims or any(isinstance(i, Store) and i.mode == "add" for i in nest.body):
        return None
    facts = analyse(nest)
    elements = [n for n in facts.needed if facts.element[n]]
    rest = {dim for dim in range(len(nest.outer)) if not is_open(nest.outer[dim]) and 1 < nest.outer[dim] <= LONGEST}
    for dim in sorted(rest, key=lambda d: nest.outer[d]):
        varying = [n for n in facts.needed if dim in facts.depends[n]]
        again = sum(cost_of(nest, n) for n in elements if dim not in facts.depends[n])
        length = len(facts.needed) + len(varying) * (nest.outer[dim] - 1)
        rows = math.prod(nest.outer) // nest.outer[dim]
        if again >= WORTH and length <= MOST_INSTRUCTIONS and rows != 1:
            return dim
    return None


def _unrolled(nest: Nest, dim: int) -> Nest:
    facts = analyse(nest)
    kept = [d for d in range(len(nest.dims)) if d != dim]
    where = {d: Affine.index(i) for i, d in enumerate(kept)}
    body = BodyBuilder(len(kept))
    args = range(len(nest.args))
    # Reductions are over what is left of the nest, so each index is copied by itself; what they share is there once.
    stores: list[tuple[int, InstructionCopier]] = []
    for index in range(nest.outer[dim]):
        copier = InstructionCopier(body, nest, [where.get(d, Affine(index)) for d in range(len(nest.dims))], args)
        copier.copy([n for n in sorted(facts.needed) if not isinstance(nest.body[n], Store)], frozenset())
        stores += [(n, copier) for n in sorted(facts.needed) if isinstance(nest.body[n], Store)]
    for number, copier in stores:
        copier.copy([number], frozenset())
    outer = tuple(nest.outer[d] for d in kept if d < len(nest.outer))
    return Nest(outer, nest.inner, nest.args, tuple(body.instrs))
