"""The pipeline: a region comes in, a program goes out, in one function that reads from top to bottom.

    cut          user's graph    -> region                       (regions/cut.py, before this)
    passes       region          -> region of primitives         (passes/, last grouping.py)
    materialize  values that need memory of their own get it     (passes/materialize.py)
    lower        region          -> steps with kernels           (lowering/)
    inline       steps           -> fewer steps, fewer buffers   (steps/inline.py)
    split        steps           -> some in parts for threads    (steps/split.py)
    prepare      steps           -> those that can be kept apart (steps/prepare.py)
    plan kernels kernels         -> how each is run              (steps/planning.py)
    schedule     steps           -> steps in order               (program/schedule.py)
    scalarize    steps in order  -> small neighbours joined      (steps/scalarize.py)
    running      steps in order  -> with running sums in nests   (steps/running.py)
    recompute    steps, a budget -> steps, some of them repeated (steps/recompute.py)
    place        live intervals  -> offsets                      (memory/)
    emit         steps, offsets  -> LLVM text                    (emit/)

Where repeated steps do not meet a budget, all from the passes on is done again with loops that keep fewer states
(passes/rewind.py). Loading the text and running it is the runtime's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from staticgrad.base.collection import collection_held
from staticgrad.base.depth import all_levels
from staticgrad.base.errors import StaticGradError
from staticgrad.base.extents import OpenSize, open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.compiler.describe import describe_flows
from staticgrad.compiler.emit.entry import emit_entry
from staticgrad.compiler.emit.families import planner_of
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.lowering.lower import lower
from staticgrad.compiler.machine.modes import count_on
from staticgrad.compiler.machine.target import in_turns
from staticgrad.compiler.memory.plan import donate, plan_memory
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.passes import passes_without
from staticgrad.compiler.passes.grouping import grouping
from staticgrad.compiler.passes.materialize import materialize
from staticgrad.compiler.placement.problems import Pinned
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.costs import step_cost
from staticgrad.compiler.program.memories import Memory
from staticgrad.compiler.program.plan import Plan
from staticgrad.compiler.program.program import BufferPlan, Later, Program, Stepwise
from staticgrad.compiler.program.schedule import schedule
from staticgrad.compiler.program.slots import SizesSlot, Slot
from staticgrad.compiler.program.step import PackedFeed, Part, Step
from staticgrad.compiler.regions.region import Region
from staticgrad.compiler.stages import Stages
from staticgrad.compiler.steps.inline import inline
from staticgrad.compiler.steps.invariants import packed_before
from staticgrad.compiler.steps.planning import plan_kernels, share_packing
from staticgrad.compiler.steps.prepare import kept_buffers, packed_once, prepare, summary
from staticgrad.compiler.steps.running import join_running
from staticgrad.compiler.steps.scalarize import scalarize
from staticgrad.compiler.steps.split import split_reductions
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.scopes import unscoped
from staticgrad.graph.text import print_nodes
from staticgrad.ops.control.bodies import bodies_of

_BISECTIONS = 4  # of how many states loops keep within a budget; each lowers the program once more

Places = Mapping[Tensor, tuple[Memory, tuple[int, ...]]]


@unscoped()
@all_levels()
@collection_held()
def compile_region(region: Region, options: CompileOptions, pinned: Sequence[Pinned] = ()) -> Program:
    """Compile: see the module's docstring for the stages. What is ``pinned`` lies in the arena before the program
    runs."""
    count_on(options.target.isa)
    stages = Stages()
    stages.region("cut", region)
    planner = planner_of(options.target)
    if options.memory_budget is None:
        made = _lowered(region, options, planner, stages, pinned)
    else:
        made = _fitting(region, options.memory_budget, lambda tried: _lowered(tried, options, planner, stages, pinned))
    region, slots, steps, places = made.region, made.slots, [*made.first, *made.rest], made.places
    prepared, kept = summary(made.first), kept_buffers(made.first, made.rest)
    steps = donate(steps, pinned)
    share, seconds = options.memory != "none", options.planning_seconds
    plan = plan_memory(steps, share=share, seconds=seconds, pinned=pinned, lasting=kept)
    slots = (*slots, *(prepared.slots if prepared is not None else ()), *_sizes(region))
    flows = Later(functools.partial(describe_flows, steps, slots, plan))
    stages.text("kernels", lambda: "\n".join(flow.text for flow in flows.value))
    poison = options.memory == "poison"
    stepwise = options.stepwise and not options.timed
    entry = emit_entry(steps, slots, plan, options.target, poison=poison, timed=options.timed, prepared=prepared,
                       stepwise=stepwise, tiers=options.tiers)  # fmt: skip
    return stages.done(
        Program(
            slots=slots,
            arena_bytes=plan.arena_bytes,
            lower_bound_bytes=plan.lower_bound_bytes,
            buffers=_buffers(plan),
            checks=entry.checks,
            costs=tuple(step_cost(step) for step in steps),
            modules=entry.texts,
            target=options.target.name,
            later_flows=flows,
            later_graph_text=Later(functools.partial(print_nodes, region.graph.nodes)),
            borrows=bool(pinned),
            workers=options.workers if entry.shares else 1,
            polls=entry.polls,
            hot_modules=entry.hot_modules,
            products=tuple(tuple(dict.fromkeys(_products(step))) for step in steps),
            stepwise=Stepwise(tuple(steps), plan.offsets, region, places) if stepwise else None,
        )
    )


@frozen
class _Lowered:
    """A region after all passes, its slots, the steps that may be kept from call to call and the others, in order, and
    where its tensors lie."""

    region: Region
    slots: tuple[Slot, ...]
    first: list[Step]
    rest: list[Step]
    places: Places


def _lowered(
    region: Region, options: CompileOptions, planner: KernelPlanner, stages: Stages, pinned: Sequence[Pinned]
) -> _Lowered:
    """A region that was cut, from its passes to its steps in order."""
    unrolled = {"reroll"} if options.memory_budget is not None else set()  # of which a budget reaches every step
    for step in passes_without(options.disabled | unrolled):
        region = stages.region(step.name, step.apply(region))
    prepares = _may_prepare(options, pinned)
    region = stages.region("grouping", grouping(region, options.target, options.precision, prepares))
    region = stages.region("materialize", materialize(region))
    slots, steps, places = _kernels(region, options, planner)
    first, rest = prepare(steps, planner) if prepares else ([], steps)
    if not first and options.memory_budget is None:
        rest = packed_once(rest, planner)
    first, rest = _ordered(first, options, planner, rest), _ordered(rest, options, planner, first)
    return _Lowered(region, slots, first, rest, places)


def _fitting(region: Region, budget: int | float, lowered: Callable[[Region], _Lowered]) -> _Lowered:
    """A program that fits a budget, with steps that run twice, else with loops that keep fewer and fewer states, too.

    Raises:
        StaticGradError: nothing that was found does.
    """
    from staticgrad.compiler.steps.recompute import OverBudgetError, fit

    def tried(region: Region, budget: int | float) -> _Lowered:
        made = lowered(region)
        return replace(made, rest=fit(made.rest, budget, lambda steps: plan_memory(steps).arena_bytes))

    try:
        return tried(region, budget)
    except OverBudgetError as error:
        over = error
    if not any(bodies_of(node) for node in region.graph.nodes):
        raise StaticGradError(str(over))
    from staticgrad.compiler.passes.rewind import keeping, levels

    for level in levels(region):
        try:
            found = tried(keeping(region, level), over.limit)
        except OverBudgetError as error:
            over = OverBudgetError(over.limit, min(over.least, error.least), over.whole)
            continue
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            share = (low + high) / 2
            try:
                found, low = tried(keeping(region, replace(level, share=share)), over.limit), share
            except OverBudgetError:
                high = share
        return found
    raise StaticGradError(str(over))


def _sizes(region: Region) -> tuple[SizesSlot, ...]:
    """The slot of the open sizes, if there are some: of the feeds and of all else, since a backward may need a size
    that no value has which it is fed."""
    sizes = open_sizes(tuple([x.type.shape for x in region.feeds])) | _sizes_in(region.graph)
    return (SizesSlot(tuple(sorted(sizes, key=lambda size: size.number))),) if sizes else ()


def _sizes_in(graph: Graph) -> frozenset[OpenSize]:
    """The open sizes on which shapes and attributes of a graph depend, those of bodies too."""
    found: set[OpenSize] = set()
    for node in graph.nodes:
        found |= open_sizes((node.attrs, tuple([y.type.shape for y in node.outputs])))
        found.update(*(_sizes_in(body.graph) for body in bodies_of(node)))
    return frozenset(found)


def _may_prepare(options: CompileOptions, pinned: Sequence[Pinned]) -> bool:
    """True if the arena is the program's own and may be larger than one call needs."""
    return options.prepares and options.memory == "plan" and options.memory_budget is None and not pinned


def _kernels(
    region: Region, options: CompileOptions, planner: KernelPlanner
) -> tuple[tuple[Slot, ...], list[Step], Places]:
    """The slots of a region, its steps, not yet in order, and where its tensors lie."""
    part = functools.cache(functools.partial(_part, options, planner))
    fusion, blockings = "fuse" not in options.disabled, dict(options.blockings)
    lowered = lower(region, planner, part, blockings, options.precision, fusion=fusion)
    inlined = lowered.steps if {"fuse", "inline"} & options.disabled else inline(lowered.steps, options.target)
    return lowered.slots, split_reductions(inlined, options.target), lowered.places


def _ordered(
    steps: Sequence[Step], options: CompileOptions, planner: KernelPlanner, others: Sequence[Step] = ()
) -> list[Step]:
    """The steps with their kernels planned, in the order in which they run. ``others`` touch the same buffers."""
    plan_kernels(steps, planner, options.workers)
    order = schedule(steps, greedy="schedule" not in options.disabled)
    order = order if "scalarize" in options.disabled else scalarize(order, planner, others)
    order = (
        order
        if "running" in options.disabled
        else join_running(order, planner, options.target, options.workers, others)
    )
    if options.memory_budget is None:  # which is met where each has what is free when it runs
        share_packing(order)
    return order


def _part(options: CompileOptions, planner: KernelPlanner, region: Region, captured: int | None = None) -> Part:
    """The body of a loop, from materialize to place, as a function of its own. Its feeds from number ``captured`` on
    are the same in many turns."""
    if captured is not None:
        planner = planner_of(in_turns(options.target))
    slots, unordered, _ = _kernels(materialize(region), options, planner)
    packed: tuple[PackedFeed, ...] = ()
    if captured is not None and options.memory_budget is None:
        unordered, slots, packed = packed_before(unordered, slots, captured, planner)
    steps = _ordered(unordered, options, planner)
    return Part(tuple(steps), slots, plan_memory(steps, share=options.memory != "none"), packed)


def _products(step: Step) -> list[Contraction]:
    """The contractions of a step, those inside of a loop too, without their epilogues."""
    if isinstance(step.kernel, Contraction):
        return [step.kernel.product]
    parts = step.loop.parts if step.loop is not None else ()
    return [product for part in parts for inner in part.steps for product in _products(inner)]


def _buffers(plan: Plan) -> tuple[BufferPlan, ...]:
    return tuple(
        BufferPlan(t.name, t.nbytes, plan.offsets[t], interval.first, interval.last, t.reason, t.source)
        for t, interval in zip(plan.temps, plan.intervals, strict=True)
    )
