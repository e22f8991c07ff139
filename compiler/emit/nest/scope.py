"""Places of the code of a nest: which loops are open around one, and what is known there."""

from __future__ import annotations

from dataclasses import field, replace

from staticgrad.base.frozen import frozen, record
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.scalars.lane import Lane
from staticgrad.compiler.plans.nest.sweeps import Sweep


@frozen
class VectorBlock:
    """The elements that one turn of the innermost loops covers: ``copies`` vectors of ``lanes``, of which ``mask`` are
    inside (the first ``count``, or all of them if it is larger). The vectors follow each other along the vector axis,
    or stand side by side along the axis ``across``. With ``rows`` the lanes are the rows of a group, whatever the
    vector axis is."""

    lanes: int = 1
    copies: int = 1
    mask: Value | None = None
    across: int | None = None
    rows: bool = False
    count: Index | None = None


PointerKey = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]]
Rows = tuple[Index, Index]  # the first, and the one past the last


@frozen
class Pointer:
    """An address as far as it is known: with the dimensions and the indirect terms that are already in it."""

    value: Value
    dims: frozenset[int] = frozenset()
    terms: frozenset[int] = frozenset()


@frozen
class OpenSweep:
    """A sweep while it is written, and of each accumulator its reduction and its type."""

    plan: Sweep
    slots: tuple[tuple[int, str], ...]


@record
class LoopScope:
    """One place of the code. ``values[n]`` holds the copies of instruction n, one where all are the same; scalars where
    the lanes are the same. ``sweep``, and the rows of a ``panel`` or ``strip``, are those that are open."""

    index: dict[int, Index] = field(default_factory=dict)
    values: dict[int, list[Lane]] = field(default_factory=dict)
    splats: dict[tuple[int, int], Lane] = field(default_factory=dict)  # by instruction and copy
    pointers: dict[PointerKey, Pointer] = field(default_factory=dict)
    products: dict[tuple[int, int], Index] = field(default_factory=dict)
    block: VectorBlock = field(default_factory=VectorBlock)
    sweep: OpenSweep | None = None
    panel: Rows | None = None
    strip: Rows | None = None

    def nested(self, block: VectorBlock | None = None) -> LoopScope:
        """The scope inside a loop: all that is known here, and what is found there does not come out."""
        inner = replace(
            self,
            index=dict(self.index),
            values=dict(self.values),
            splats=dict(self.splats),
            pointers=dict(self.pointers),
            products=dict(self.products),
        )
        if block is not None and block != self.block:
            inner.block = block
            inner.splats = {}
        return inner

    def at(self, dim: int, index: Index) -> LoopScope:
        """The scope inside a turn of a loop: at this index of ``dim``."""
        inner = self.nested()
        inner.index[dim] = index
        return inner
