"""Prices: what each hook, retained gradient, print and callback adds to a program or a tape.

Input: what was compiled, as declared. Output: for each intervention the difference to the same thing compiled
without it. Nothing is estimated: both are lowered, scheduled and placed. Machine code is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from staticgrad.base.errors import SourceLine
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, bind, product
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.regions.cut import bind_feeds, cut, needed_for
from staticgrad.compiler.regions.interventions import Intervention, interventions
from staticgrad.compiler.tapes.plan import TapePlan
from staticgrad.graph.graph import Graph, Node, Tensor


@frozen
class Price:
    """The cost that one intervention adds.

    ``kept_bytes`` are held after the call: a retained gradient, values that a tape saves. ``arena_bytes`` are more in
    the arena. Lost fusion shows as ``kernels`` more (calls out apart) and ``moved_bytes`` more that kernels read and
    write. Negative: less.
    """

    what: str
    source: SourceLine | None
    kept_bytes: int
    arena_bytes: int
    kernels: int
    moved_bytes: int


@frozen
class _Sum:
    """The sums that are compared, of one or several programs."""

    kept: int
    arena: int
    kernels: int
    moved: int

    @staticmethod
    def of(programs: Sequence[Program], kept: int = 0) -> _Sum:
        costs = [cost for program in programs for cost in program.costs if cost.family != "call"]
        moved = sum(cost.bytes for cost in costs)
        return _Sum(kept, max((p.arena_bytes for p in programs), default=0), len(costs), moved)


def program_prices(
    graph: Graph,
    fetches: Sequence[Tensor | Node],
    feeds: Mapping[Tensor, TensorType],
    options: CompileOptions,
) -> tuple[Price, ...]:
    """The prices in the program that computes ``fetches``."""

    def total(without: Intervention | None) -> _Sum:
        region = cut(graph, fetches, feeds, check_numerics=options.check_numerics, without=without)
        return _Sum.of([compile_region(region, options)])

    bindings = bind_feeds(graph, feeds)
    found = interventions(graph, needed_for(graph, fetches, feeds))
    return _compare(found, total, lambda x: TensorType(bind(x.shape, bindings), x.dtype).nbytes)


def tape_prices(plan: TapePlan, options: CompileOptions) -> tuple[Price, ...]:
    """The prices in a forward and the backward of all its outputs in one traversal, retaining; of a plan for ranges of
    sizes those at the greatest."""
    plan = plan.at_greatest()

    def total(without: Intervention | None) -> _Sum:
        tape = plan if without is None else plan.without(without)
        regions = [tape.forward]
        ys = [y for y in dict.fromkeys(tape.outputs) if y.requires_grad]
        if ys:
            regions.append(tape.backward(ys, [product(y.shape) != 1 for y in ys]).region)
        return _Sum.of([compile_region(region, options) for region in regions], sum(s.nbytes for s in tape.residuals))

    return _compare(plan.interventions(), total, plan.nbytes)


def _compare(
    found: Sequence[Intervention], total: Callable[[Intervention | None], _Sum], nbytes: Callable[[Tensor], int]
) -> tuple[Price, ...]:
    """``total`` compiles without an intervention and adds up; ``nbytes`` is the size of a retained gradient."""
    if not found:
        return ()
    whole = total(None)
    prices = []
    for i in found:
        less = total(i)
        kept = whole.kept - less.kept + (0 if i.retained is None else nbytes(i.retained))
        prices.append(
            Price(
                i.what, i.source, kept, whole.arena - less.arena, whole.kernels - less.kernels,
                whole.moved - less.moved,
            )
        )  # fmt: skip
    return tuple(prices)
