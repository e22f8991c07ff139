"""Sweeps: which element values each pass over the inner dimensions computes, keeps, and reads back.

A nest with its costs goes in, the parts of its passes come out; spans and memory make these the sweeps of a plan.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.nest import Load, Reduce, Store
from staticgrad.compiler.plans.nest.costs import KEEP_COST, VectorNest
from staticgrad.compiler.plans.nest.facts import operands
from staticgrad.compiler.plans.nest.spans import Span


@frozen
class Sweep:
    """One pass over the inner dimensions. ``members`` are the element instructions that it runs; it reads the values
    in ``reloads`` back from where they were kept and keeps those in ``saves``. ``spans`` cut the vector axis where
    that is an inner one."""

    members: frozenset[int]
    reductions: tuple[int, ...]
    reloads: frozenset[int]
    saves: frozenset[int]
    spans: tuple[Span, ...]


@frozen
class SweepPart:
    """The values that one pass over the inner dimensions computes, and those that it reads back."""

    members: frozenset[int]
    reloads: frozenset[int]


def parts_of(v: VectorNest) -> list[SweepPart]:
    """The passes over the inner dimensions of a nest, in order."""
    if not v.nest.inner:
        return []
    roots = _roots(v)
    first: dict[int, int] = {}
    return [_part(v, s, roots[s], first) for s in sorted(roots)]


def _roots(v: VectorNest) -> dict[int, list[int]]:
    """The purposes of each sweep: its reductions and element stores. A store goes in the earliest sweep that can;
    one that overwrites what is loaded must wait for the last."""
    body, facts = v.nest.body, v.facts
    read = {i.access.arg for n, i in enumerate(body) if isinstance(i, Load) and facts.element[n]}
    sweep_of: dict[int, int] = {}
    for number in sorted(facts.needed):
        instr = body[number]
        if isinstance(instr, Reduce):
            sweep_of[number] = facts.stage[instr.arg]
        elif isinstance(instr, Store) and facts.element[number]:
            sweep_of[number] = facts.stage[number]
    last = max(sweep_of.values(), default=-1)
    roots: dict[int, list[int]] = {s: [] for s in range(last + 1)}
    for number, s in sweep_of.items():
        instr = body[number]
        overwrites = isinstance(instr, Store) and instr.access.arg in read
        roots[last if overwrites else s].append(number)
    return roots


def _part(v: VectorNest, s: int, roots: list[int], first: dict[int, int]) -> SweepPart:
    """The element instructions of sweep ``s``, and the values that it reads back instead of computing them."""
    members: set[int] = set()
    reloads: set[int] = set()
    stack = list(roots)
    while stack:
        number = stack.pop()
        if number in members or number in reloads:
            continue
        is_root = isinstance(v.nest.body[number], Reduce | Store)
        if not is_root and not v.facts.element[number]:
            continue
        if isinstance(v.nest.body[number], Reduce) and number not in roots:
            continue
        if v.costs[number] >= KEEP_COST and first.setdefault(number, s) < s:
            reloads.add(number)
            continue
        members.add(number)
        stack.extend(operands(v.nest.body[number]))
    return SweepPart(frozenset(members), frozenset(reloads))
