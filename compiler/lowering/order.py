"""An order of groups that stays right while groups are merged: which of them may become one kernel.

Groups depend on each other; two may be merged only if neither depends on the other by a way that leaves both, or the
merged one would have to run before and after what lies on that way. Asking each time for all ways would be quadratic.
So every group has a *rank* that is higher than those of all groups that it depends on; a way between two groups passes
only such that have ranks between theirs, and mostly there are none. When a merge has made ranks wrong, those between
are dealt out anew.

The algorithm is that of D. Pearce and P. Kelly, "A dynamic topological sort algorithm for directed acyclic graphs",
Journal of Experimental Algorithmics 11 (2006), for merging instead of inserting. A search that has looked at
``BUDGET`` dependencies gives up and answers no, so that a region of n nodes is fused in time proportional to n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from staticgrad.base.frozen import record

BUDGET = 400


@record
class Ordered:
    """A member of an ``Order``. ``before`` are those that it depends on, True where the dependency must go through
    memory, ``after`` those that depend on it."""

    rank: int = 0
    before: dict[Ordered, bool] = field(default_factory=dict)
    after: dict[Ordered, None] = field(default_factory=dict)


class Order:
    """Members in a valid order, under additions at the end and merges."""

    def __init__(self) -> None:
        self._next = 0

    def add(self, item: Ordered, before: Mapping[Ordered, bool]) -> None:
        """Add a member that nothing depends on yet, and what it depends on."""
        item.rank = self._next
        self._next += 1
        for other, through_memory in before.items():
            item.before[other] = through_memory
            other.after[item] = None

    def merge(self, a: Ordered, b: Ordered) -> bool:
        """Make ``a`` and ``b`` one, which is ``a``, if that is allowed; the answer is whether it was."""
        first, last = (a, b) if a.rank < b.rank else (b, a)
        if last.before.get(first, False):
            return False
        if all(other.rank < first.rank for other in last.before if other is not first):
            rank = first.rank
        elif all(other.rank > last.rank for other in first.after if other is not last):
            rank = last.rank
        else:
            between = self._between(first, last)
            if between is None:
                return False
            rank = self._deal_out(first, last, *between)
        self._join(a, b)
        a.rank = rank
        return True

    @staticmethod
    def _between(first: Ordered, last: Ordered) -> tuple[list[Ordered], list[Ordered]] | None:
        """The successors of ``first`` and the predecessors of ``last`` with ranks between them; None if there is a path
        from the one to the other, or if this cannot be said within the budget."""
        budget = BUDGET
        above: set[Ordered] = set()
        stack = [first]
        while stack:
            item = stack.pop()
            budget -= len(item.after)
            if budget < 0:
                return None
            for other in item.after:
                if other is last:
                    if item is not first:
                        return None
                elif other.rank < last.rank and other not in above:
                    above.add(other)
                    stack.append(other)
        below: set[Ordered] = set()
        stack = [last]
        while stack:
            item = stack.pop()
            budget -= len(item.before)
            if budget < 0:
                return None
            for other in item.before:
                if other.rank > first.rank and other not in below:
                    below.add(other)
                    stack.append(other)
        return sorted(above, key=_rank), sorted(below, key=_rank)

    @staticmethod
    def _deal_out(first: Ordered, last: Ordered, above: list[Ordered], below: list[Ordered]) -> int:
        """Give what ``last`` depends on the lowest of all their ranks, what depends on ``first`` the highest; the rank
        of the merged one lies between."""
        ranks = sorted(item.rank for item in (first, last, *above, *below))
        for item, rank in zip(below, ranks, strict=False):
            item.rank = rank
        for item, rank in zip(reversed(above), reversed(ranks), strict=False):
            item.rank = rank
        return ranks[len(below)]

    @staticmethod
    def _join(a: Ordered, b: Ordered) -> None:
        a.before.pop(b, None)
        b.before.pop(a, None)
        a.after.pop(b, None)
        b.after.pop(a, None)
        for other, through_memory in b.before.items():
            del other.after[b]
            other.after[a] = None
            a.before[other] = a.before.get(other, False) or through_memory
        for other in b.after:
            through_memory = other.before.pop(b)
            other.before[a] = other.before.get(a, False) or through_memory
            a.after[other] = None


def _rank(item: Ordered) -> int:
    return item.rank
