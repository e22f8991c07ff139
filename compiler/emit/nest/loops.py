"""Loops of a nest: turns by vectors, tiles, strips, blocks of long sums, and those that belong to a chunk.

Input: a ``NestPlan`` and what one turn computes. Output: the loop around it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from staticgrad.base.extents import at_most, is_open, is_same, largest, proven
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.lanes import leading_lanes
from staticgrad.compiler.emit.llvm import Function, Index, Value, integer, is_number, suffix
from staticgrad.compiler.emit.nest.accumulators import Accumulators
from staticgrad.compiler.emit.nest.scope import LoopScope, VectorBlock
from staticgrad.compiler.emit.nest.values import NestValues
from staticgrad.compiler.kernels.nest import Store
from staticgrad.compiler.plans.nest.axes import NARROWEST_TILE
from staticgrad.compiler.plans.nest.facts import closure, first_index
from staticgrad.compiler.plans.nest.plan import LONGEST_CHAIN, NestPlan
from staticgrad.compiler.plans.nest.sharing import NestChunks
from staticgrad.compiler.plans.nest.spans import Span

SHORTEST_BLOCK = 128  # turns

Gathered = list[Value]  # the accumulators of the sweep that is open
Body = Callable[[LoopScope, Gathered], Gathered]


@frozen
class Window:
    """The indices ``[low, high)`` of a chunk."""

    share: NestChunks
    low: Index
    high: Index


class Loops:
    """The loops of one nest in one function.

    Args:
        bounds: of a ranged nest, the first index of each dimension and the one past the last.
        window: the chunk that the function runs, if the nest is shared.
    """

    def __init__(
        self,
        f: Function,
        plan: NestPlan,
        values: NestValues,
        sums: Accumulators,
        bounds: dict[int, tuple[Value, Value]],
        window: Window | None,
    ) -> None:
        self.f = f
        self.plan = plan
        self.nest = plan.nest
        self.body = plan.nest.body
        self.values = values
        self.sums = sums
        self.bounds = bounds
        self.window = window

    def over(self, scope: LoopScope, level: int, accumulators: Gathered, body: Body) -> Gathered:
        """Write the loop of ``level`` around ``body``: the accumulators after it."""
        dim = self.plan.order[level]
        if self.bounds:
            self._ranged(scope, dim, body)
            return []
        if dim == self.plan.across:
            return self._tiles(scope, level, accumulators, body)
        if dim != self.plan.vector:
            return self.turns(scope, level, Span(0, self.nest.dims[dim], 1, 1), accumulators, body)
        if self.plan.strip is not None and scope.strip is None:
            self._strips(scope, level, self.plan.strip, body)
            return []
        spans = scope.sweep.plan.spans if scope.sweep and self.plan.vector_is_inner else self.plan.spans
        for span in spans:
            inner = scope.nested(VectorBlock(span.lanes, span.copies))
            self.values.splat(inner)
            accumulators = self.turns(inner, level, span, accumulators, self._masked(span, dim, body))
        return accumulators

    def _strips(self, scope: LoopScope, level: int, rows: int, body: Body) -> None:
        """The loop over vectors once for each strip of whole tiles, and at last for the rows that fill none."""
        assert self.plan.across is not None
        size = self.nest.dims[self.plan.across]
        whole = size // self.plan.lanes * self.plan.lanes
        with self.f.loop(0, whole, rows) as loop:
            strip = (loop.index, self.f.min(self.f.add(loop.index, rows), whole))
            self.over(replace(scope.nested(), strip=strip), level, [], body)
        if not proven(lambda: whole == size):
            self.over(replace(scope.nested(), strip=(whole, size)), level, [], body)

    def _tiles(self, scope: LoopScope, level: int, accumulators: Gathered, body: Body) -> Gathered:
        """The axis across the vectors, a tile of them at a time where a whole vector is open: square tiles, narrower
        ones where less is left, single vectors at last."""
        dim, lanes = self.plan.order[level], scope.block.lanes
        at, size = scope.strip or (0, self.nest.dims[dim])
        width = lanes if scope.block.mask is None else 1
        if not isinstance(at, int) or not isinstance(size, int):
            strip = scope if width == 1 else scope.nested(VectorBlock(lanes, width, across=dim))
            return self._counted(strip, dim, at, size, width, accumulators, body)
        while width >= min(lanes, NARROWEST_TILE):
            end = at + (size - at) // width * width
            if not proven(lambda: end == at):  # noqa: B023
                tile = scope.nested(VectorBlock(lanes, width, across=dim))
                accumulators = self.turns(tile, level, Span(at, end, 1, width), accumulators, body)
            at, width = end, width // 2
        if not proven(lambda: at == size):
            accumulators = self.turns(scope, level, Span(at, size, 1, 1), accumulators, body)
        return accumulators

    def _masked(self, span: Span, dim: int, body: Body) -> Body:
        if not span.masked:
            return body

        def inside(scope: LoopScope, accumulators: Gathered) -> Gathered:
            left = self.f.sub(span.stop, scope.index[dim])
            mask = leading_lanes(self.f, span.lanes, left)
            scope.block = VectorBlock(span.lanes, 1, mask, count=left)
            return body(scope, accumulators)

        return inside

    def turns(self, scope: LoopScope, level: int, span: Span, accumulators: Gathered, body: Body) -> Gathered:
        """The turns of one loop; those of long sums in blocks."""
        dim = self.plan.order[level]
        if self.window is not None and dim == self.window.share.dim:
            return self._in_window(scope, self.window, span, body)
        if scope.panel is not None and dim == self.plan.order[-1]:
            return self._counted(scope, dim, *scope.panel, 1, accumulators, body)
        if at_most(span.start + 1, span.stop) and is_same(span.turns, 1):
            return body(scope.at(dim, span.start), accumulators)
        if (search := self._search(scope, dim, span)) is not None:
            return body(scope.at(dim, self._first_turn(scope, dim, span, *search)), accumulators)
        block = self._block_turns(scope, level, span)
        if block is None:
            return self._counted(scope, dim, span.start, span.stop, span.step, accumulators, body)
        if block == 1:

            def fresh(inner: LoopScope, total: Gathered) -> Gathered:
                return self.sums.added(inner, total, body(inner, self.sums.neutral(inner)))

            return self._counted(scope, dim, span.start, span.stop, span.step, accumulators, fresh)
        with self.f.loop(span.start, span.stop, span.step * block, carry=accumulators) as loop:
            stop = self.f.min(self.f.add(loop.index, span.step * block), span.stop)
            part = self._counted(scope, dim, loop.index, stop, span.step, self.sums.neutral(scope), body)
            loop.next(*self.sums.added(scope, loop.carried, part))
        return loop.results

    def _search(self, scope: LoopScope, dim: int, span: Span) -> tuple[int, bool] | None:
        """The condition and its value, as ``first_index``, of a sweep in vectors that only looks for the first index;
        else None."""
        sweep = None if scope.sweep is None else scope.sweep.plan
        if sweep is None or dim != self.plan.vector or span.lanes == 1 or span.masked or len(sweep.reductions) != 1:
            return None
        if not at_most(span.start + 1, span.stop):
            return None
        if sweep.saves or any(isinstance(self.body[number], Store) for number in sweep.members):
            return None
        return first_index(self.nest, sweep.reductions[0])

    def _first_turn(self, scope: LoopScope, dim: int, span: Span, condition: int, counts: bool) -> Value:
        """The index of the first turn in which the condition is what ``counts``, or of the last one."""
        assert scope.sweep is not None
        sweep = scope.sweep.plan
        wanted = closure(self.nest, [condition]) & (sweep.members | sweep.reloads)
        numbers = sorted(n for n in wanted if self.plan.levels[n] == len(self.plan.order))

        def goes_on(carried: Sequence[Value]) -> Value:
            inner = scope.at(dim, carried[0])
            self.values.instructions(inner, numbers)
            masks = [self.values.operand(inner, condition, span.lanes, copy).value for copy in range(span.copies)]
            together = functools.reduce(lambda a, b: self.f.binary("or" if counts else "and", a, b), masks)
            name = f"llvm.vector.reduce.{'or' if counts else 'and'}.{suffix(together.type)}"
            found = self.f.intrinsic(name, "i1", together)
            nothing = self.f.binary("xor", found, Value("true", "i1")) if counts else found
            last = span.stop - span.step
            return self.f.binary("and", nothing, self.f.compare("icmp slt", carried[0], self.f.index(last)))

        with self.f.repeat([self.f.index(span.start)], goes_on) as loop:
            following = self.f.add(loop.carried[0], span.step)
            assert isinstance(following, Value)
            loop.next(following)
        return loop.results[0]

    def _in_window(self, scope: LoopScope, window: Window, span: Span, body: Body) -> Gathered:
        """The turns of an outer loop that belong to the chunk."""
        low: Index = window.low
        if not is_number(span.start, 0) and isinstance(low, Value):
            low = self.f.max(low, span.start)
        high = window.high
        if not proven(lambda: span.stop == self.nest.dims[window.share.dim]):
            high = self.f.min(high, span.stop)
        self._ranged_turns(scope, window.share.dim, low, high, span.step, body)
        return []

    def _counted(
        self, scope: LoopScope, dim: int, start: Index, stop: Index, step: int, accumulators: Gathered, body: Body
    ) -> Gathered:
        some = not (is_open(start) or is_open(stop))
        if isinstance(start, int) and isinstance(stop, int):
            some = at_most(start + 1, stop)
        with self.f.loop(start, stop, step, carry=accumulators, nonempty=some) as loop:
            loop.next(*body(scope.at(dim, loop.index), loop.carried))
        return loop.results

    def _block_turns(self, scope: LoopScope, level: int, span: Span) -> int | None:
        """The number of turns of this loop that a block of a long floating sum takes (None: the sum is not cut here).

        Rounding errors grow with the number of terms that one accumulator takes; with blocks of about the square
        root of that number they grow with the root (Higham, Accuracy and Stability of Numerical Algorithms, §4.2).
        """
        if not self.sums.are_floating(scope):
            return None
        inside = largest(math.prod(self._trips(scope, dim) for dim in self.plan.order[level + 1 :]))
        span_turns = largest(span.turns)
        terms = span_turns * inside
        target = self.f.target
        if terms <= target.sized(LONGEST_CHAIN):
            return None
        wanted = max(target.sized(SHORTEST_BLOCK), 1 << math.isqrt(terms).bit_length())
        turns = max(1, wanted // inside)
        return turns if turns < span_turns else None

    def _trips(self, scope: LoopScope, dim: int) -> int:
        size = self.nest.dims[dim]
        if dim != self.plan.vector or scope.sweep is None:
            return size
        return max((largest(span.turns) for span in scope.sweep.plan.spans), default=size)

    def _ranged(self, scope: LoopScope, dim: int, body: Body) -> None:
        """A loop with bounds that are known at run time."""
        low, high = self.bounds[dim]
        start: Index = low
        if dim == self.plan.vector:
            lanes = self.plan.lanes
            inner = scope.nested(VectorBlock(lanes))
            self.values.splat(inner)
            count = self.f.sub(high, low)
            assert isinstance(count, Value)
            whole = self.f.binary("and", count, integer(-lanes))
            start = self.f.add(low, whole)
            self._ranged_turns(inner, dim, low, start, lanes, body)
            if self.f.target.isa.predicated:
                assert isinstance(start, Value)
                with self.f.when(self.f.compare("icmp slt", start, high)):
                    tail = inner.at(dim, start)
                    left = self.f.sub(high, start)
                    tail.block = VectorBlock(lanes, 1, leading_lanes(self.f, lanes, left), count=left)
                    body(tail, [])
                return
        self._ranged_turns(scope, dim, start, high, 1, body)

    def _ranged_turns(self, scope: LoopScope, dim: int, start: Index, stop: Index, step: int, body: Body) -> None:
        with self.f.loop(start, stop, step) as loop:
            body(scope.at(dim, loop.index), [])
