"""Running: running sums down the rows of a matrix join the nests before and after them.

Input: steps in order, with planned kernels. Output: the same order, in which a running sum, product or extreme along
the first axis of a matrix is part of a nest with its neighbours: the nest that makes its elements, the one that reads
its results, or both. By itself it is a pass over memory that does one operation an element.

    for row                     first to last, or last to first where the running sum is reversed
        for column              in vectors
            element             what the nest before computes
            running             what the column has combined so far, in a row of scratch memory
            element             what the nest after computes, its sums over a row too

Neighbours in an order run at one time without harm. What is asked is whether they may run row by row: what one part
stores and another loads must be the same element in the same iteration, and passes as a value; anything else that they
share is refused. A buffer that no other step touches is not stored at all. Rows stay in order, so a joint nest is not
cut in chunks of rows: where the parts would be shared by threads, it must be, too. Running several passes over the rows
of an array as one is the fusion of loops of Allen and Cocke (A Catalogue of Optimizing Transformations, 1971).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.compiler.kernels.access import Affine
from staticgrad.compiler.kernels.body import BodyBuilder, InstructionCopier
from staticgrad.compiler.kernels.nest import Access, Instr, Load, Nest, Reduce, Running, Store
from staticgrad.compiler.kernels.routines import Batch, Cumulation
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.costs import KEEP_COST
from staticgrad.compiler.plans.nest.facts import access_of, analyse, closure, cost_of
from staticgrad.compiler.plans.nest.plan import NestPlan
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import SCRATCH, Memory, Operand, Temp
from staticgrad.compiler.program.step import Step, with_nest

MOST_ROW_BYTES = 1 << 14  # of a row of a matrix, which has to stay in the first cache from one row to the next
MOST_INSTRUCTIONS = 256  # of a joint nest
MANY_REGISTERS = 32
NAMES = 3  # that a joint step is called by


@phase("running")
def join_running(
    steps: Sequence[Step], planner: KernelPlanner, target: Target, workers: int, others: Sequence[Step] = ()
) -> list[Step]:
    """The steps with running sums as parts of nests. ``others`` are steps that may touch the same buffers."""
    if not any(_cumulation(step) for step in steps):
        return list(steps)
    users = Counter(memory for step in (*steps, *others) for memory in step.memories)
    found: list[Step] = []
    instead: dict[Step, Step] = {}
    left = list(reversed(steps))
    while left:
        step = left.pop()
        joint, parts = None, [step]
        if (routine := _cumulation(step)) is not None:
            before, after = found[-1:], [other for other in left[-1:] if _may_follow(other, target)]
            for parts in ([*before, step, *after], [*before, step], [step, *after]):
                if len(parts) > 1 and (joint := _joint(parts, step, routine, users, planner, workers)) is not None:
                    break
        if joint is None:
            found.append(step)
            continue
        del found[len(found) - (parts[0] is not step) :], left[len(left) - (parts[-1] is not step) :]
        took("running: a running sum joined with its neighbours")
        took("running: a reversed one", routine is not None and routine.reverse)
        instead.update((part, joint) for part in parts)
        found.append(joint)
    for step in found:
        earlier = dict.fromkeys(_latest(other, instead) for other in step.after)
        step.after = [other for other in earlier if other is not step]
    return found


def _latest(step: Step, instead: dict[Step, Step]) -> Step:
    while step in instead:
        step = instead[step]
    return step


def _cumulation(step: Step) -> Cumulation | None:
    """The running sum that a step is, if it is one of a single matrix of numbers of known sizes."""
    kernel = step.kernel
    if not isinstance(kernel, Batch) or not isinstance(kernel.routine, Cumulation) or kernel.count != 1:
        return None
    routine = kernel.routine
    if routine.kind == "recurrence" or open_sizes(routine) or routine.length < 2 or routine.width < 2:
        return None
    plain = routine.dtype.kind in "fi" and routine.dtype.itemsize >= 4
    return routine if plain and routine.width * routine.dtype.itemsize <= MOST_ROW_BYTES else None


def _may_follow(step: Step, target: Target) -> bool:
    """True unless a step computes elementary functions and registers are few. A turn is then a chain of many dependent
    instructions, of which the processor has fewer under way the longer all of the turn is: two passes are faster."""
    nest = step.kernel
    if not isinstance(nest, Nest) or target.isa.registers >= MANY_REGISTERS:
        return True
    return all(cost_of(nest, number) < KEEP_COST for number in range(len(nest.body)))


class _OutOfOrderError(Exception):
    """Parts may not run row by row."""


def _joint(
    parts: Sequence[Step],
    step: Step,
    routine: Cumulation,
    users: Counter[Memory],
    planner: KernelPlanner,
    workers: int,
) -> Step | None:
    """Parts as one step; None where they may not be one, or would not be run well."""
    beside = [part for part in parts if part is not step]
    nests = [part.kernel for part in beside]
    sizes = _sizes(nests, routine)
    if sizes is None or any(part.fills or part.check or part.callback or part.loop for part in beside):
        return None
    operands = list(dict.fromkeys(operand for part in parts for operand in part.operands))
    own = Counter(memory for part in parts for memory in part.memories)
    passing = {m for m, count in own.items() if isinstance(m, Temp) and count == users[m]}
    body = _JointBody(operands, len(sizes))
    try:
        for part in parts:
            nest = _running_nest(routine, sizes) if part is step else part.kernel
            assert isinstance(nest, Nest)
            body.take(nest, part.operands, turned=routine.reverse and not nest.is_ordered)
    except _OutOfOrderError:
        return None
    inner = any(isinstance(nest, Nest) and nest.inner for nest in nests)
    outer = (sizes[:1], sizes[1:]) if inner else (sizes, ())
    nest = body.nest(*outer, passing)
    if len(nest.body) > MOST_INSTRUCTIONS or not _is_in_one_sweep(nest):
        return None
    names = list(dict.fromkeys(part.name for part in parts))
    joint = replace(
        parts[-1],
        name="_".join(names[:NAMES]) + ("_etc" if len(names) > NAMES else ""),
        family="row" if inner else "pointwise",
        writes=tuple(dict.fromkeys(memory for part in parts for memory in part.writes)),
        adds=tuple(dict.fromkeys(memory for part in parts for memory in part.adds)),
        scratch=None,
        after=list(dict.fromkeys(other for part in parts for other in part.after)),
    )
    joint = with_nest(joint, nest, operands)
    assert joint.kernel is not None
    joint.planned = planned = planner.plan(joint.kernel)
    if not _is_well_run(planned.plan) or _loses_threads(parts, planned.is_shared):
        return None
    joint.scratch = Temp(
        f"{joint.name}.scratch", planned.scratch_bytes(workers), f"{SCRATCH} of one kernel", step.source
    )
    return joint


def _sizes(nests: Sequence[object], routine: Cumulation) -> tuple[int, ...] | None:
    """The sizes of the dimensions that the neighbours have, the rows of the matrix first; None where they are not
    nests over its elements."""
    if not all(isinstance(nest, Nest) and not open_sizes(nest) and _is_over_rows(nest) for nest in nests):
        return None
    found = {nest.dims for nest in nests if isinstance(nest, Nest)}
    sizes = found.pop()
    return None if found or sizes[:1] != (routine.length,) or math.prod(sizes[1:]) != routine.width else sizes


def _is_over_rows(nest: Nest) -> bool:
    """True if all dimensions but that of the rows are inner ones, or none is and nothing is reduced."""
    return len(nest.outer) == 1 or (not nest.inner and not any(isinstance(instr, Reduce) for instr in nest.body))


def _running_nest(routine: Cumulation, sizes: tuple[int, ...]) -> Nest:
    """A running sum as a nest, its rows in the order in which they are combined."""
    strides = [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    first = (routine.length - 1) * routine.width if routine.reverse else 0
    strides[0] *= -1 if routine.reverse else 1
    own, result = (Access(arg, first, tuple(strides)) for arg in (0, 1))
    assert routine.kind != "recurrence"
    body = (Load(own, routine.dtype), Running(routine.kind, 0, routine.dtype), Store(result, 1))
    return Nest(sizes, (), (routine.dtype,) * 2, body)


def _is_in_one_sweep(nest: Nest) -> bool:
    """True if no element waits for a sum over its row, and everything that runs has an element of its own in every
    column."""
    facts = analyse(nest)
    running = [n for n in facts.needed if isinstance(nest.body[n], Running)]
    varies = all(facts.depends[n].issuperset(d for d, size in enumerate(nest.dims) if size != 1) for n in running)
    return bool(running) and varies and not any(facts.element[n] and facts.stage[n] for n in facts.needed)


def _is_well_run(plan: object) -> bool:
    """True if rows follow each other and vectors lie along them."""
    return (
        isinstance(plan, NestPlan)
        and plan.running is not None
        and plan.order == (0, 1)
        and plan.vector == 1
        and len(plan.sweeps) <= 1
        and plan.across is None
        and plan.panel is None
        and not plan.staged
    )


def _loses_threads(parts: Sequence[Step], is_shared: bool) -> bool:
    """True if a part is cut in chunks for threads, and all of them as one are not."""
    return not is_shared and any(part.planned is not None and part.planned.is_shared for part in parts)


@frozen
class _Element:
    """The element of a memory that an iteration touches: its byte at the first one, and bytes from one to the next."""

    dtype: np.dtype
    first: int
    strides: tuple[int, ...]


class _JointBody(BodyBuilder):
    """The body of a joint nest, which knows what each iteration has stored."""

    def __init__(self, operands: Sequence[Operand], rank: int) -> None:
        super().__init__(rank)
        self._operands = tuple(operands)
        self._place = {operand: number for number, operand in enumerate(operands)}
        self._dtypes: dict[int, np.dtype] = {}  # of operands, by number
        self._sizes: tuple[int, ...] = ()
        self._stores: list[Store] = []
        self._stored: dict[Memory, tuple[_Element, int]] = {}  # by earlier parts and this one: where, and the value
        self._loaded: dict[Memory, set[_Element | None]] = {}

    def take(self, nest: Nest, operands: Sequence[Operand], *, turned: bool) -> None:
        """Add the instructions of a part, its last row first if it is ``turned``.

        Raises:
            _OutOfOrderError: it touches what another part stores in another iteration.
        """
        args = [self._place[operand] for operand in operands]
        for arg, dtype in zip(args, nest.args, strict=True):
            if self._dtypes.setdefault(arg, dtype) != dtype:
                raise _OutOfOrderError
        self._sizes = nest.dims
        where = [Affine.index(dim) for dim in range(self.rank)]
        if turned:
            where[0] = where[0].times(-1).plus(nest.dims[0] - 1)
        InstructionCopier(self, nest, where, args).copy(sorted(analyse(nest).needed), frozenset())

    def nest(self, outer: tuple[int, ...], inner: tuple[int, ...], passing: Collection[Memory]) -> Nest:
        """The nest, without stores to the memories in ``passing`` and what only they need."""
        stores = [store for store in self._stores if self._operands[store.access.arg].memory not in passing]
        args = tuple(self._dtypes[number] for number in range(len(self._operands)))
        whole = Nest(outer, inner, args, (*self.instrs, *stores))
        body = BodyBuilder(self.rank)
        where = [Affine.index(dim) for dim in range(self.rank)]
        wanted = closure(whole, range(len(self.instrs), len(whole.body)))
        InstructionCopier(body, whole, where, range(len(args))).copy(sorted(wanted), frozenset())
        return replace(whole, body=tuple(body.instrs))

    def add(self, instr: Instr) -> int:
        access = access_of(instr)
        if access is None:
            return super().add(instr)
        memory, element = self._operands[access.arg].memory, self._element(access)
        if isinstance(instr, Load):
            if memory in self._stored:
                stored, value = self._stored[memory]
                if stored != element or instr.guard is not None or element is None:
                    raise _OutOfOrderError
                return value
            self._loaded.setdefault(memory, set()).add(element)
            return super().add(instr)
        assert isinstance(instr, Store)
        plain = instr.mode == "set" and instr.guard is None and element is not None
        if not plain or memory in self._stored or self._loaded.get(memory, {element}) != {element}:
            raise _OutOfOrderError
        assert element is not None
        self._stored[memory] = (element, instr.value)
        self._stores.append(instr)
        return -1

    def _element(self, access: Access) -> _Element | None:
        """None where values say which it is."""
        if access.terms:
            return None
        operand, dtype = self._operands[access.arg], self._dtypes[access.arg]
        size = dtype.itemsize
        strides = [stride * size if n != 1 else 0 for stride, n in zip(access.strides, self._sizes, strict=True)]
        return _Element(dtype, operand.offset + access.offset * size, tuple(strides))
