"""Facts about a nest, before anything is decided about how it is run.

    simplify   sizes 0 and 1 go, dimensions that follow each other in every access become one: a nest for a nest
    analyse    what each value varies along, after how many reductions it is known, whether anybody needs it
    contractions  which sums take a product in the same instruction
    first_index  which reductions are over as soon as one element is found
    cost_of    about how many instructions a value takes

Dimensions and instructions are numbered as in the nest.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import proven
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.compiler.kernels.nest import (
    Access,
    Compute,
    Constant,
    Instr,
    Iota,
    Load,
    Nest,
    Reduce,
    Running,
    Store,
    identity,
)
from staticgrad.compiler.machine.op_costs import op_cost
from staticgrad.graph.graph import Node
from staticgrad.graph.optable import NO_ATTRIBUTES
from staticgrad.ops.randoms import RANDOM_UNIFORM

ENDLESS = 1 << 62  # an index that may be anything
RUNNING_COST = 3  # instructions of a running combination: what was combined is loaded and stored

_NOTHING = Constant(0, np.dtype(np.int64))


# -- instructions ---------------------------------------------------------------------------------------------------


def literals_of(nest: Nest) -> tuple[str, ...]:
    """A key that tells equal nests apart: constants and attributes count by their text, as 0.0 equals -0.0, and 1
    True."""
    return tuple(
        repr(i.value) if isinstance(i, Constant) else _attributes_key(i.attrs)
        for i in nest.body
        if isinstance(i, Constant | Compute)
    )


def _attributes_key(attrs: object) -> str:
    """A text that tells attributes apart that compare equal."""
    return "" if attrs is NO_ATTRIBUTES else repr(attrs)


def access_of(instr: Instr) -> Access | None:
    return instr.access if isinstance(instr, Load | Store) else None


def lane_operands(instr: Instr) -> tuple[int, ...]:
    """The values that an instruction reads, without those that its address is made of."""
    match instr:
        case Compute():
            return instr.args
        case Load():
            return () if instr.guard is None else (instr.guard,)
        case Store():
            return (instr.value,) if instr.guard is None else (instr.value, instr.guard)
        case Reduce() | Running():
            return (instr.arg,)
        case _:
            return ()


def operands(instr: Instr) -> tuple[int, ...]:
    """Every value that an instruction reads."""
    access = access_of(instr)
    return lane_operands(instr) + (tuple(value for value, _ in access.terms) if access else ())


def cost_of(nest: Nest, number: int) -> int:
    """The estimated number of vector instructions of a computed value; divisions and roots count six."""
    instr = nest.body[number]
    if isinstance(instr, Running):
        return RUNNING_COST
    if not isinstance(instr, Compute):
        return 0
    return op_cost(instr.op, _attributes_key(instr.attrs), instr.attrs, tuple(dtype_of(nest, a) for a in instr.args))


def node_cost(node: Node) -> int:
    """The estimated number of vector instructions that a nest needs for a node; a few where that depends on its
    operands."""
    if not node.op.elementwise:
        return 4
    # A draw's scalar reads two key words and the index of its element, which are no operands.
    operands = (np.dtype(np.int64),) * 3 if node.op is RANDOM_UNIFORM else tuple(x.dtype for x in node.inputs)
    return op_cost(node.op.name, _attributes_key(node.attrs), node.attrs, operands)


def dtype_of(nest: Nest, number: int) -> np.dtype:
    instr = nest.body[number]
    assert not isinstance(instr, Store)
    return instr.dtype


# -- simplify -------------------------------------------------------------------------------------------------------


def simplify(nest: Nest) -> Nest | None:
    """The same work with fewer dimensions, instructions numbered as before; None where there is nothing to do."""
    if 0 in nest.outer:
        return None
    if 0 in nest.inner:
        nest = _without_elements(nest)
    sizes = nest.dims
    nest = _renumber(nest, [d for d, size in enumerate(sizes) if size != 1])
    merged = _mergeable(nest)
    while merged:
        nest = _merge(nest, *merged)
        merged = _mergeable(nest)
    return nest


def _without_elements(nest: Nest) -> Nest:
    """An inner dimension has size 0: reductions give their identities and nothing else happens to elements."""
    element = analyse(nest).element
    body: list[Instr] = []
    for number, instr in enumerate(nest.body):
        if isinstance(instr, Reduce):
            body.append(Constant(identity(instr.kind, instr.dtype), instr.dtype))
        else:
            body.append(_NOTHING if element[number] else instr)
    flat = replace(nest, body=tuple(body))
    return _renumber(flat, list(range(len(nest.outer))))


def _renumber(nest: Nest, kept: list[int]) -> Nest:
    """Leave out the dimensions that are not in ``kept``: their index is 0."""
    if len(kept) == len(nest.dims):
        return nest
    number = {d: i for i, d in enumerate(kept)}

    def visit(instr: Instr) -> Instr:
        if isinstance(instr, Iota):
            return Iota(number[instr.dim]) if instr.dim in number else _NOTHING
        if isinstance(instr, Load | Store):
            strides = tuple(instr.access.strides[d] for d in kept)
            return replace(instr, access=replace(instr.access, strides=strides))
        return instr

    outer = tuple(nest.dims[d] for d in kept if d < len(nest.outer))
    inner = tuple(nest.dims[d] for d in kept if d >= len(nest.outer))
    return Nest(outer, inner, nest.args, tuple(visit(instr) for instr in nest.body))


def _mergeable(nest: Nest) -> tuple[int, int] | None:
    """Dimensions a, b such that stepping a once is stepping b to its end, everywhere."""
    counted = {instr.dim for instr in nest.body if isinstance(instr, Iota)}
    accesses = [access for instr in nest.body if (access := access_of(instr))]
    split = len(nest.outer)
    groups = (range(split), range(split, len(nest.dims)))
    for a, b in itertools.chain.from_iterable(itertools.permutations(group, 2) for group in groups):
        if {a, b} & counted or (nest.is_ordered and 0 in (a, b)):
            continue
        if proven(lambda: all(x.strides[a] == x.strides[b] * nest.dims[b] for x in accesses)):  # noqa: B023
            return a, b
    return None


def _merge(nest: Nest, a: int, b: int) -> Nest:
    sizes = list(nest.dims)
    sizes[b] *= sizes[a]
    split = len(nest.outer)
    grown = replace(nest, outer=tuple(sizes[:split]), inner=tuple(sizes[split:]))
    return _renumber(grown, [d for d in range(len(sizes)) if d != a])


def split_outer(nest: Nest, dim: int, size: int) -> Nest:
    """Cut an outer dimension into chunks of ``size``, a divisor: ``dim`` counts the chunks, the new last outer
    dimension runs inside one. Iotas must not count ``dim``."""
    rows = len(nest.outer)

    def visit(instr: Instr) -> Instr:
        if isinstance(instr, Iota):
            return replace(instr, dim=instr.dim + (instr.dim >= rows))
        if isinstance(instr, Load | Store):
            strides = list(instr.access.strides)
            step = strides[dim]
            strides[dim] = step * size
            strides.insert(rows, step)
            return replace(instr, access=replace(instr.access, strides=tuple(strides)))
        return instr

    outer = list(nest.outer)
    outer[dim] //= size
    return replace(nest, outer=(*outer, size), body=tuple(visit(instr) for instr in nest.body))


# -- analyse --------------------------------------------------------------------------------------------------------


@frozen
class Facts:
    """For each instruction: the dimensions along which its value varies, how many reductions, one after the other, come
    before it, whether it belongs to the elements, whether a store needs it."""

    depends: tuple[frozenset[int], ...]
    stage: tuple[int, ...]
    element: tuple[bool, ...]
    needed: frozenset[int]


@functools.lru_cache(maxsize=1024)
def analyse(nest: Nest) -> Facts:
    outer = frozenset(range(len(nest.outer)))
    depends: list[frozenset[int]] = []
    stage: list[int] = []
    element: list[bool] = []
    for instr in nest.body:
        dims = frozenset[int]().union(*(depends[v] for v in operands(instr)))
        before = max((stage[v] for v in operands(instr)), default=0)
        if isinstance(instr, Iota):
            dims = frozenset((instr.dim,))
        elif access := access_of(instr):
            dims |= {d for d, stride in enumerate(access.strides) if stride and nest.dims[d] != 1}
        elif isinstance(instr, Reduce) and nest.inner:
            dims &= outer
            before += 1
        elif isinstance(instr, Running):
            dims |= {0}
        depends.append(dims)
        stage.append(before)
        element.append(not dims <= outer)
    return Facts(tuple(depends), tuple(stage), tuple(element), closure(nest, stores_of(nest)))


def contractions(nest: Nest, facts: Facts) -> dict[int, int]:
    """Additions, subtractions and sums that take a product in the same instruction: their numbers, and the products'.

    A product is taken in if nothing else uses it and it is not computed further outside. Of two products that are
    added the second is; of two that are subtracted none, so that equal ones cancel.
    """
    uses: dict[int, int] = defaultdict(int)
    for number in facts.needed:
        for value in operands(nest.body[number]):
            uses[value] += 1

    def is_product(value: int, user: int) -> bool:
        instr = nest.body[value]
        if not isinstance(instr, Compute) or instr.op != "multiply" or instr.dtype.kind != "f" or uses[value] != 1:
            return False
        return facts.depends[value] == facts.depends[user]

    found: dict[int, int] = {}
    for number in facts.needed:
        match nest.body[number]:
            case Reduce("sum", arg, dtype) if nest.inner and dtype_of(nest, arg) == dtype and is_product(arg, arg):
                if facts.depends[arg].issuperset(range(len(nest.outer), len(nest.dims))):
                    found[number] = arg
            case Compute("add" | "subtract" as op, _, (a, b), dtype) if dtype.kind == "f":
                products = [value for value in (a, b) if is_product(value, number)]
                if products and (op == "add" or len(products) == 1):
                    found[number] = products[-1]
    return found


def first_index(nest: Nest, number: int) -> tuple[int, bool] | None:
    """The condition whose first index a reduction finds along the only inner dimension, and the value of the condition
    at which an index counts; None for other reductions."""
    match nest.body[number]:
        case Reduce("min", arg, dtype) if len(nest.inner) == 1 and dtype.kind == "i":
            chosen = nest.body[arg]
        case _:
            return None
    if not isinstance(chosen, Compute) or chosen.op != "where" or chosen.dtype != dtype:
        return None
    condition, yes, no = chosen.args
    for counts, index, none in ((True, yes, no), (False, no, yes)):
        match nest.body[index], nest.body[none]:
            case Iota(dim), Constant(value) if dim == len(nest.outer) and value == np.iinfo(dtype).max:
                return condition, counts
    return None


def stores_of(nest: Nest) -> list[int]:
    return [number for number, instr in enumerate(nest.body) if isinstance(instr, Store)]


def is_divisible(nest: Nest, dim: int) -> bool:
    """True if what happens at different indices along an outer dimension can happen at once: additions never meet.

    Sums i·s over dimensions with |s| at least that of ``dim`` are then told apart by their largest index that differs,
    as in a number system: each stride is larger than all that smaller ones can reach. Indirect indices count as
    dimensions without end. Nothing happens at once along the dimension in which a nest is ordered.
    """
    if dim == 0 and nest.is_ordered:
        return False
    adds = [x for n in stores_of(nest) if isinstance(x := nest.body[n], Store) and x.mode == "add"]
    targets = [store.access.arg for store in adds]
    if len(set(targets)) != len(targets):
        return False
    return proven(lambda: all(_is_told_apart(nest, store, dim) for store in adds))


def _is_told_apart(nest: Nest, store: Store, dim: int) -> bool:
    """True if a store reaches different addresses at different indices along ``dim``."""
    steps = [(abs(s), size - 1) for s, size in zip(store.access.strides, nest.dims, strict=True) if size != 1]
    steps += [(abs(s), ENDLESS) for _, s in store.access.terms]
    if (step := abs(store.access.strides[dim])) == 0:
        return False
    if any(s >= step and s <= _reach(steps, s) for s, _ in steps):
        return False
    return sum(s == step for s, _ in steps) <= 1


def _reach(steps: list[tuple[int, int]], below: int) -> int:
    """The greatest sum of indices times strides over the dimensions whose strides are below ``below``."""
    return sum(s * last for s, last in steps if s < below)


def is_all_divisible(nest: Nest | None) -> bool:
    """True if a nest may be run piece by piece along any of its outer dimensions, the pieces at once."""
    return nest is None or all(is_divisible(nest, d) for d, size in enumerate(nest.outer) if size != 1)


def closure(nest: Nest, roots: Iterable[int]) -> frozenset[int]:
    """``roots`` and all values that they need."""
    return frozenset(reach(roots, lambda number: operands(nest.body[number])))
