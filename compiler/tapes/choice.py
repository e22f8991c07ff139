"""The choice of the residuals that a tape keeps, so that everything its backwards read can be had.

Input: what backwards read, and how much may be rematerialized. Output: the values to keep, and for each of them
who reads it or what is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from staticgrad.base.errors import GraphError, MemoryBudgetWarning, warn
from staticgrad.compiler.autodiff.residuals import Remat, keeps_little, remat, select
from staticgrad.compiler.tapes.reads import Reads
from staticgrad.graph.graph import Derivation, Node, Tensor
from staticgrad.ops.sources import VARIABLE

MOST = (Remat.VIEW, Remat.ELEMENTWISE, Remat.KERNEL, Remat.BODIES)  # that is rematerialized of declared ops, by level
_BISECTIONS = 6  # of where in the graph repeating ends; each costs a minimum cut


class ResidualChoice:
    """A choice of the values that a tape keeps, so that backwards can have everything that they read.

    Level 0 rematerializes views, and what rules write elementwise (``2 * x`` is not kept in addition to ``x``, but the
    mask ``x > 0`` is if ``x`` isn't needed otherwise). Of the ops before node number ``before`` and of those that rules
    write, level 1 rematerializes the elementwise ones too, level 2 all but draws, loops, branches and effects, level 3
    loops and branches too.
    """

    def __init__(
        self,
        graph: Derivation,
        reads: Reads,
        fed: Mapping[Tensor, int],
        outputs: Collection[Tensor],
        written: frozenset[str],
        level: int,
        before: int,
    ) -> None:
        self._graph = graph
        self._reads = reads
        self._fed = fed
        self._outputs = outputs
        self._written = written
        self._level = level
        self._before = before
        self.kept: dict[Tensor, None] = {}

    @property
    def runs_loops_again(self) -> bool:
        """True if a backward may run loops again, which then keep few states themselves."""
        return MOST[self._level] >= Remat.BODIES

    def is_free(self, x: Tensor) -> bool:
        """True if a backward has it without anything being kept."""
        node = x.op
        if x in self._fed or self._is_bound_to_forward(node):
            return False
        return remat(node) is Remat.FREE or (node.op is VARIABLE and node.attrs.key not in self._written)

    def _is_bound_to_forward(self, node: Node) -> bool:
        """Declared after other nodes: repeating it would repeat those."""
        return bool(node.control)

    def _is_rematerialized(self, x: Tensor) -> bool:
        """True if a backward may compute it again."""
        node = x.op
        if x in self._fed or self._is_bound_to_forward(node):
            return False
        is_derived = node.serial >= self._graph.first
        most = MOST[self._level] if is_derived or node.serial < self._before else Remat.VIEW
        if is_derived:
            most = max(most, Remat.BODIES if keeps_little(node) else Remat.ELEMENTWISE)
        return Remat.FREE < remat(node) <= most

    def choose(self, wanted: Iterable[Tensor], nbytes: Callable[[Tensor], int]) -> None:
        """Fill ``kept``, in the order of the graph."""

        def needed(xs: Iterable[Tensor]) -> list[Tensor]:
            return [x for x in map(self._reads.same, xs) if not self.is_free(x)]

        def operands(x: Tensor) -> Sequence[Tensor] | None:
            return needed(x.op.value_inputs) if self._is_rematerialized(x) else None

        def cost(x: Tensor) -> int:
            return 0 if x in self._outputs else 2 * nbytes(x) + (x.op.serial >= self._graph.first)

        chosen = select(needed(wanted), operands, cost)
        self.kept = dict.fromkeys(sorted(chosen, key=lambda x: (x.op.serial, x.index)))

    def base_of(self, wanted: Iterable[Tensor], *, strict: bool = True) -> list[Tensor]:
        """The tensors where the computation of ``wanted`` begins: kept ones and free ones. Unless ``strict``, also
        those that are neither and are not rematerialized."""
        stack, seen = list(wanted), set(wanted)
        found = []
        while stack:
            x = stack.pop()
            if self._reads.same(x) in self.kept or not self._is_rematerialized(x):
                if strict and self._reads.same(x) not in self.kept and not self.is_free(x):
                    raise GraphError(f"the plan of a tape lacks {x.name!r}", source=x.source)
                found.append(x)
                continue
            for y in x.op.value_inputs:
                if y not in seen:
                    seen.add(y)
                    stack.append(y)
        return sorted(found, key=lambda x: (x.op.serial, x.index))

    def readers(self, wanted: Mapping[Tensor, set[Node | None]]) -> dict[Tensor, set[Node | None]]:
        """For each residual, who reads it or what is computed from it."""
        result: dict[Tensor, set[Node | None]] = {x: set() for x in self.kept}
        for x, who in wanted.items():
            for base in self.base_of([x]):
                same = self._reads.same(base)
                if same in result:
                    result[same] |= who
        return result


def choose_within(
    budget: int | float | None,
    choice: Callable[[int, int, Collection[Tensor]], ResidualChoice],
    outputs: Collection[Tensor],
    nodes: int,
    nbytes: Callable[[Tensor], int],
    warns: bool,
) -> ResidualChoice:
    """The choice of what to keep; over the budget, the least that has to be repeated to meet it: cheap ops before
    others, and those that come first in the graph before later ones, since their values would be kept longest; at last
    in the place of outputs too, which are there anyway but count as kept.

    Args:
        budget: bytes, or as a float a part of what would be kept otherwise.
        choice: gives the choice of a level, the node before which it repeats, and outputs that cost nothing.
        outputs: those of the tape.
        nodes: the number of declared nodes.
        nbytes: gives the bytes of a tensor.
        warns: whether users hear that no choice meets the budget.
    """

    def size(made: ResidualChoice) -> int:
        return sum(map(nbytes, made.kept))

    tried = [choice(0, 0, outputs)]
    if budget is None:
        return tried[0]
    limit = int(budget * size(tried[0])) if isinstance(budget, float) else budget
    if size(tried[0]) <= limit:
        return tried[0]
    for level, free in ((1, outputs), (2, outputs), (2, ()), (3, outputs), (3, ())):
        best = choice(level, nodes, free)
        if size(best) <= limit:
            low, high = 0, nodes
            for _ in range(_BISECTIONS):
                middle = (low + high) // 2
                made = choice(level, middle, free)
                if size(made) <= limit:
                    best, high = made, middle
                else:
                    low = middle
            return best
        tried.append(best)
    least = min(tried, key=size)
    if warns:
        largest = max(least.kept, key=nbytes)
        warn(
            MemoryBudgetWarning,
            f"memory_budget of {limit} bytes: the least found is {size(least)} bytes ({size(tried[0])} bytes with"
            f" nothing computed again), {nbytes(largest)} of them for {largest.name!r}, declared at {largest.source}:"
            " the tape keeps the least",
        )
    return least
