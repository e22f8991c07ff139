"""Scalarize: neighbours of few elements become one nest without dimensions, whose values stay in registers.

Input: steps in order. Output: the same order with runs of small nests joined. Every element is unrolled, and what
one nest stores and another loads passes as a value: a loop over the state of a pendulum, a filter or a small system of
equations would otherwise wait, kernel after kernel, for memory that was written a moment ago. Keeping the elements of
arrays in registers is what Callahan, Carr and Kennedy (PLDI 1990) call scalar replacement.

Neighbours in an order run at one time without harm, so nothing is asked about dependencies. All elements are loaded
before the first is stored; a buffer that no other step touches is not stored at all. Products of a few rows and columns
join as the nests that they stand for.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from staticgrad.base.extents import is_open, open_sizes
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import phase
from staticgrad.compiler.kernels.access import Affine
from staticgrad.compiler.kernels.body import STEP_OF, BodyBuilder, InstructionCopier
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Instr, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.plans.nest.facts import Facts, analyse, closure, cost_of, dtype_of, literals_of
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.program.memories import Memory, Operand, Temp
from staticgrad.compiler.program.step import Step, with_nest
from staticgrad.graph.optable import NO_ATTRIBUTES, OPS

MOST_EXTRA = 32  # instructions that the elements of a nest take one by one, beyond those for a vector of them
PRODUCT_COST = 160  # of a kernel that multiplies small matrices, in instructions
MOST_INSTRUCTIONS = 512  # of a joint nest
NAMES = 3  # that a joint step is called by


@frozen
class _Small:
    """A step, its elements unrolled as a nest, and the operands of that."""

    step: Step
    nest: Nest
    operands: tuple[Operand, ...]


@phase("scalarize")
def scalarize(steps: Sequence[Step], planner: KernelPlanner, others: Sequence[Step] = ()) -> list[Step]:
    """The steps with runs of small nests joined. ``others`` are steps that may touch the same buffers."""
    users = Counter(memory for step in (*steps, *others) for memory in step.memories)
    found: list[Step] = []
    instead: dict[Step, Step] = {}
    run: list[_Small] = []

    def close() -> None:
        if len(run) > 1:
            joint = _joint(run, users, planner)
            took("scalarize: small nests joined")
            took("scalarize: small products joined", any(isinstance(small.step.kernel, Contraction) for small in run))
            found.append(joint)
            instead.update((small.step, joint) for small in run)
        else:
            found.extend(small.step for small in run)
        run.clear()

    candidates = [_candidate(step) for step in steps]
    beside = [None, *candidates, None]
    for number, (step, candidate) in enumerate(zip(steps, candidates, strict=True)):
        alone = beside[number] is None and beside[number + 2] is None
        small = None if candidate is None or alone else _small(step, *candidate)
        if small is None or not _fits(run, small):
            close()
        if small is None:
            found.append(step)
        else:
            run.append(small)
    close()
    for step in found:
        after = dict.fromkeys(instead.get(other, other) for other in step.after)
        step.after = [other for other in after if other is not step]
    return found


# -- one step -------------------------------------------------------------------------------------------------------


Parts = Sequence[tuple[Nest, Sequence[Operand]]]


def _candidate(step: Step) -> tuple[Parts, int] | None:
    """The nests that a step stands for and what they cost as they are, if their elements could be unrolled."""
    if isinstance(step.kernel, Nest):
        parts: Parts = [(step.kernel, step.operands)]
        cost = 0
    elif isinstance(step.kernel, Contraction) and not open_sizes(step.kernel) and _is_plain_product(step.kernel):
        parts = _product(step, step.kernel)
        cost = PRODUCT_COST
    else:
        return None
    for nest, _ in parts:
        facts = analyse(nest)
        if any(map(is_open, nest.dims)) or not 0 < math.prod(nest.dims) * len(facts.needed) <= MOST_INSTRUCTIONS:
            return None
        if open_sizes(nest):
            return None
        known = _known(nest)
        if not all(_is_plain(nest, number, known) for number in facts.needed):
            return None
        cost += _cost(nest, facts.needed - known)
        if _least(nest, facts, known) > MOST_EXTRA + cost:
            return None
    return parts, cost


def _small(step: Step, parts: Parts, cost: int) -> _Small | None:
    """The step if its elements may as well be computed one by one."""
    operands = tuple(dict.fromkeys(operand for _, given in parts for operand in given))
    apart = _written_once(parts, operands, passing={o.memory for o in operands} - {o.memory for o in step.operands})
    return _Small(step, apart, operands) if _cost(apart, range(len(apart.body))) - cost <= MOST_EXTRA else None


def _is_plain_product(kernel: Contraction) -> bool:
    """True for a float product without a batch whose points take turns in scratch memory, and whose operands are where
    others see them."""
    plain = kernel.dtype.kind == "f" and not kernel.grouping
    return plain and kernel.packed is None and (kernel.store_raw or not kernel.batch)


def _product(step: Step, kernel: Contraction) -> Parts:
    """The nest that a contraction stands for, and that of its epilogue."""
    *_, m, n, k = dims = (*kernel.batch, kernel.m, kernel.n, kernel.k)
    batch = len(kernel.batch)
    assert step.planned is not None
    c_strides = step.planned.raw_strides
    a, b, *rest = step.operands
    if kernel.store_raw:
        c, *rest = rest
    else:
        extent = 1 + sum(stride * (size - 1) for stride, size in zip(c_strides, dims))
        c = Operand(Temp(f"{step.name}.raw", extent * kernel.dtype.itemsize, "product of a few elements", step.source))
    # A flipped operand is read from where it points backward; an access counts from where its memory begins.
    (a, a_first), (b, b_first) = (_from_its_begin(operand, kernel.dtype.itemsize) for operand in (a, b))
    row, column = kernel.a_strides[-2:], kernel.b_strides[-2:]
    body = (
        Load(Access(0, a_first, (*kernel.a_strides[:batch], row[0], 0, row[1])), kernel.dtype),
        Load(Access(1, b_first, (*kernel.b_strides[:batch], 0, column[1], column[0])), kernel.dtype),
        Compute("multiply", NO_ATTRIBUTES, (0, 1), kernel.dtype),
        Reduce("sum", 2, kernel.dtype),
        Store(Access(2, 0, (*c_strides, 0)), 3),
    )
    nest = Nest((*kernel.batch, m, n), (k,), (kernel.dtype,) * 3, body)
    return [(nest, (a, b, c))] + ([] if kernel.epilogue is None else [(kernel.epilogue, (c, *rest))])


def _from_its_begin(operand: Operand, itemsize: int) -> tuple[Operand, int]:
    """The whole memory that an operand points into, and the number of the element that it points at."""
    return Operand(operand.memory), operand.offset // itemsize


def _written_once(parts: Parts, operands: Sequence[Operand], passing: Collection[Memory]) -> Nest:
    """``_written``, which is remembered: of many steps most are equal up to the memories that they touch."""
    numbers: dict[Memory, int] = {}
    places = tuple((numbers.setdefault(o.memory, len(numbers)), o.offset) for o in operands)
    place = {operand: number for number, operand in enumerate(operands)}
    given = tuple((nest, literals_of(nest), tuple(place[o] for o in own)) for nest, own in parts)
    return _remembered(given, places, frozenset(number for memory, number in numbers.items() if memory in passing))


@functools.lru_cache(maxsize=1024)
def _remembered(
    given: tuple[tuple[Nest, tuple[str, ...], tuple[int, ...]], ...],
    places: tuple[tuple[int, int], ...],
    passing: frozenset[int],
) -> Nest:
    return _unrolled([(nest, own) for nest, _, own in given], places, passing)


def _written(parts: Parts, operands: Sequence[Operand], passing: Collection[Memory]) -> Nest:
    """Nests whose accesses are all plain as one, with every element unrolled. What hangs on indices alone is a number;
    ``passing`` are memories that are not stored."""
    place = {operand: number for number, operand in enumerate(operands)}
    given = [(nest, tuple(place[o] for o in own)) for nest, own in parts]
    return _unrolled(given, [(o.memory, o.offset) for o in operands], passing)


def _unrolled(
    parts: Sequence[tuple[Nest, Sequence[int]]], places: Sequence[tuple[Hashable, int]], passing: Collection[Hashable]
) -> Nest:
    """The same of nests with the numbers of their operands; ``places`` are what each points into, and where."""
    dtypes = {places[number][0]: dtype for nest, own in parts for number, dtype in zip(own, nest.args, strict=True)}
    body = _Registers(places, [dtypes[base] for base, _ in places])
    for nest, own in parts:
        facts = analyse(nest)
        inner = range(len(nest.outer), len(nest.dims))
        elements = frozenset(number for number in facts.needed if facts.element[number])
        for point in product(*map(range, nest.outer)):
            where = [*map(Affine, point), *(Affine() for _ in inner)]
            InstructionCopier(body, nest, where, own, inner).copy(sorted(facts.needed), elements)
    return body.nest(passing)


def _dtypes(parts: Parts) -> dict[Memory, np.dtype]:
    return {o.memory: dtype for nest, operands in parts for o, dtype in zip(operands, nest.args, strict=True)}


def _known(nest: Nest) -> set[int]:
    """The values that hang on indices alone."""
    found: set[int] = set()
    for number, instr in enumerate(nest.body):
        match instr:
            case Iota() | Constant():
                found.add(number)
            case Compute(_, _, args, dtype) if dtype.kind in "bi" and found.issuperset(args):
                found.add(number)
    return found


def _is_plain(nest: Nest, number: int, known: set[int]) -> bool:
    """True if it is known of an element where it lies and whether it is there, and of a reduction what it repeats."""
    match nest.body[number]:
        case Load(access, _, guard) | Store(access, _, _, guard):
            return not access.terms and (guard is None or guard in known)
        case Reduce(kind, arg, dtype):
            return kind in STEP_OF and dtype_of(nest, arg) == dtype
        case _:
            return True


def _least(nest: Nest, facts: Facts, known: set[int]) -> int:
    """The fewest instructions that the elements can take: a store each, of something that is loaded or computed."""
    stores = [(n, i) for n in facts.needed if isinstance(i := nest.body[n], Store) and i.guard is None]
    return sum((2 - (i.value in known)) * math.prod(nest.dims[d] for d in facts.depends[n]) for n, i in stores)


def _cost(nest: Nest, numbers: Iterable[int]) -> int:
    return sum(max(1, cost_of(nest, number)) for number in numbers)


# -- several --------------------------------------------------------------------------------------------------------


def _fits(run: Sequence[_Small], small: _Small) -> bool:
    """True if a step may be joined to those of a run: not too long, and of one mind about the dtype of each memory."""
    own = _dtypes([(small.nest, small.operands)])
    others = _dtypes([(other.nest, other.operands) for other in run])
    return sum(len(other.nest.body) for other in (*run, small)) <= MOST_INSTRUCTIONS and all(
        others.get(memory, dtype) == dtype for memory, dtype in own.items()
    )


def _joint(run: Sequence[_Small], users: Counter[Memory], planner: KernelPlanner) -> Step:
    steps = [small.step for small in run]
    operands = list(dict.fromkeys(operand for small in run for operand in small.operands))
    own = Counter(memory for step in steps for memory in step.memories)
    passing = {memory for memory, count in own.items() if isinstance(memory, Temp) and count == users[memory]}
    names = list(dict.fromkeys(step.name for step in steps))
    joint = replace(
        steps[-1],
        name="_".join(names[:NAMES]) + ("_etc" if len(names) > NAMES else ""),
        family="pointwise",
        writes=tuple(dict.fromkeys(memory for step in steps for memory in step.writes)),
        adds=tuple(dict.fromkeys(memory for step in steps for memory in step.adds)),
        fills=False,
        scratch=None,
        after=list(dict.fromkeys(other for step in steps for other in step.after)),
    )
    nest = _written([(small.nest, small.operands) for small in run], operands, passing)
    joint = with_nest(joint, nest, operands)
    assert joint.kernel is not None
    joint.planned = planner.plan(joint.kernel)
    return joint


class _Registers(BodyBuilder):
    """A body without dimensions that knows what lies in memory: no element is loaded twice, or after it was stored.
    Input: what the arguments point into and the bytes from there, and their dtypes."""

    def __init__(self, places: Sequence[tuple[Hashable, int]], dtypes: Sequence[np.dtype]) -> None:
        super().__init__(0)
        self._places = places
        self._dtypes = tuple(dtypes)
        self._elements: dict[tuple[Hashable, int], int] = {}
        self._stores: dict[tuple[Hashable, int], Store] = {}

    def nest(self, passing: Collection[Hashable]) -> Nest:
        """The nest, without stores to the memories in ``passing`` and what only they need."""
        stores = [store for (base, _), store in self._stores.items() if base not in passing]
        whole = Nest((), (), self._dtypes, (*self.instrs, *stores))
        wanted = closure(whole, range(len(self.instrs), len(whole.body)))
        if len(wanted) == len(whole.body):
            return whole
        body = BodyBuilder(0)
        InstructionCopier(body, whole, (), range(len(self._dtypes))).copy(sorted(wanted), frozenset())
        return replace(whole, body=tuple(body.instrs))

    def add(self, instr: Instr) -> int:
        match instr:
            case Load(access, dtype, guard):
                if not self._holds(guard):
                    return super().add(Constant(dtype.type(0).item(), dtype))
                key = self._key(access)
                if key not in self._elements:
                    self._elements[key] = super().add(Load(access, dtype))
                return self._elements[key]
            case Store(access, value, mode, guard):
                if self._holds(guard):
                    self._store(access, value, mode == "add")
                return -1
            case Compute("where", _, (condition, a, b)) if isinstance(self.instrs[condition], Constant):
                return a if self._holds(condition) else b
            case Compute():
                return super().add(self._folded(instr))
            case _:
                return super().add(instr)

    def _store(self, access: Access, value: int, adds: bool) -> None:
        dtype = self._dtypes[access.arg]
        if adds:
            value = self.compute("add", self.add(Load(access, dtype)), value, dtype=dtype)
        key = self._key(access)
        self._elements[key] = value
        self._stores[key] = Store(access, value)

    def _key(self, access: Access) -> tuple[Hashable, int]:
        base, offset = self._places[access.arg]
        return base, offset + access.offset * self._dtypes[access.arg].itemsize

    def _holds(self, guard: int | None) -> bool:
        """True if an element is there, which is known, as every index is a number."""
        if guard is None:
            return True
        known = self.instrs[guard]
        assert isinstance(known, Constant)
        return bool(known.value)

    def _folded(self, instr: Compute) -> Instr:
        """The instruction as a constant if it follows from indices alone, else as it is."""
        operands = [self.instrs[arg] for arg in instr.args]
        known = [np.asarray(x.value, x.dtype) for x in operands if isinstance(x, Constant) and x.dtype.kind in "bi"]
        if len(known) < len(operands) or instr.dtype.kind not in "bi":
            return instr
        return Constant(np.asarray(OPS[instr.op].reference(instr.attrs, *known)).item(), instr.dtype)
