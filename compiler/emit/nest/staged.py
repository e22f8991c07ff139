"""Staged rows of a nest: blocks of short rows are transposed to scratch memory before sweeps, and back after them."""

from __future__ import annotations

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import Function, Value
from staticgrad.compiler.emit.nest.addresses import Addresses
from staticgrad.compiler.emit.nest.scope import LoopScope
from staticgrad.compiler.emit.nest.tiles import Tiles
from staticgrad.compiler.kernels.nest import Access
from staticgrad.compiler.plans.nest.plan import NestPlan


@frozen
class StagedRows:
    """The staged copies of one nest's short rows."""

    f: Function
    plan: NestPlan
    addresses: Addresses

    def take(self, scope: LoopScope) -> None:
        """Transpose the rows of a block that are loaded to scratch memory."""
        for access, tiles in self._tiles(scope, self.plan.loaded):
            tiles.take(self.addresses.at(scope, access, self._dtype(access), 0), self._staged_root(access))

    def give(self, scope: LoopScope) -> None:
        """Transpose the rows of a block that are stored back from scratch memory."""
        for access, tiles in self._tiles(scope, self.plan.stored):
            tiles.give(self._staged_root(access), self.addresses.at(scope, access, self._dtype(access), 0))

    def _tiles(self, scope: LoopScope, accesses: frozenset[Access]) -> list[tuple[Access, Tiles]]:
        if not self._is_staging(scope):
            return []
        size, lanes = self.plan.nest.dims[-1], scope.block.lanes
        chosen = [access for access in self.plan.staged if access in accesses]
        return [(x, Tiles(self.f, self._dtype(x), lanes, size, self.addresses.step(x))) for x in chosen]

    def _is_staging(self, scope: LoopScope) -> bool:
        return bool(self.plan.staged) and scope.block.mask is None and scope.block.lanes == self.plan.lanes

    def _dtype(self, access: Access) -> np.dtype:
        return self.plan.nest.args[access.arg]

    def _staged_root(self, access: Access) -> Value:
        return self.addresses.roots[self.plan.staged[access].arg]

    def found(self, scope: LoopScope, access: Access) -> Access:
        """The access to the elements of ``access`` while a block of rows is worked on: the staged copy, if there is
        one."""
        return self.plan.staged.get(access, access) if self._is_staging(scope) else access
