"""The axes of a nest as its loads and stores see them: which are contiguous, jump, or stay the same along vectors.

A nest, what it says, a vector axis and its lanes go in; accesses, axes and costs in instructions of a vector come out.
"""

from __future__ import annotations

from staticgrad.base.extents import highest, is_open, largest, lowest
from staticgrad.compiler.kernels.nest import Access, Load, Nest, Store
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.columns import is_staged, tile_width
from staticgrad.compiler.plans.nest.facts import Facts, access_of, cost_of, stores_of

# Up to this cost a body is repeated for each vector of a tile that is transposed in registers.
TILED_COST = 4
# Elements up to which rows are transposed in registers where the lanes are rows.
LONGEST_STAGED = 64
# Cost of a shuffle of such a transpose: one unit of the processor has all of them.
SHUFFLE_COST = 1.5
# Cost of a lane that reads a row of memory of its own, which a sweep leaves before it has taken more of it.
STRIDED_COST = 2.0
# Least number of vectors of a tile of loads that is transposed in registers.
NARROWEST_TILE = 4
# Cost that must be saved for each vector, so that loads which jump along the vectors and are the same in every turn of
# another loop are done once for several of its turns; results then come and go row by row.
STILL_COST = 32


def collides(nest: Nest, facts: Facts, dim: int) -> bool:
    """True if lanes along ``dim`` would add to one address, or would have to wait for each other."""
    if dim == 0 and nest.is_ordered:
        return True
    is_outer = dim < len(nest.outer)
    for number in stores_of(nest):
        store = nest.body[number]
        assert isinstance(store, Store)
        if store.mode == "add" and (is_outer or facts.element[number]):
            moving = any(dim in facts.depends[value] for value, _ in store.access.terms)
            if moving or store.access.strides[dim] == 0:
                return True
    return False


def staged_accesses(nest: Nest, facts: Facts, dim: int | None, lanes: int, target: Target) -> list[Access]:
    """The accesses whose rows are transposed in registers where lanes along ``dim`` are rows: those of short rows whose
    elements lie side by side, if no other access reaches the memory of one."""
    if dim is None or dim >= len(nest.outer) or len(nest.inner) != 1 or lanes < 4:
        return []
    size = nest.inner[0]
    if highest(size) > LONGEST_STAGED or (lowest(size) < lanes and not target.isa.predicated):
        return []
    reached = [i for n in sorted(facts.needed) if isinstance(i := nest.body[n], Load | Store)]

    def fits(instr: Load | Store) -> bool:
        access = instr.access
        plain = instr.guard is None and not (isinstance(instr, Store) and instr.mode == "add")
        others = [other for other in reached if other.access.arg == access.arg and other.access != access]
        alone = not any(isinstance(other, Store) for other in ([instr, *others] if others else []))
        return plain and alone and nest.args[access.arg].itemsize >= 4 and is_staged(access, dim, len(nest.dims) - 1)

    return list(dict.fromkeys(instr.access for instr in reached if fits(instr)))


def staging_cost(size: int, lanes: int) -> float:
    """The instructions for one vector of a tile of rows of ``size`` elements that is staged or unstaged."""
    width = tile_width(size, lanes)
    tiles = -(-size // width)
    return tiles * (lanes + SHUFFLE_COST * (lanes - width + width * (width.bit_length() - 1))) / size


def is_near(stride: int, lanes: int) -> bool:
    """True if elements ``stride`` apart lie in so few vectors that loading those and shuffling takes fewer instructions
    than there are lanes."""
    return not is_open(stride) and stride > 1 and 2 * stride - 1 < lanes


def is_far(nest: Nest, access: Access, dim: int, target: Target) -> bool:
    """True if a step along ``dim`` leads to a row of memory that is far away."""
    return largest(abs(access.strides[dim])) * nest.args[access.arg].itemsize >= target.machine.far_bytes


def is_turned(access: Access, vector: int, across: int) -> bool:
    """True if a load jumps along the vectors and is contiguous across them."""
    return access.strides[across] == 1 and abs(largest(access.strides[vector])) > 1 and not access.terms


def _is_left(access: Access, inner: range, dim: int) -> bool:
    """True if sweeps do not go along the rows of memory in which the lanes lie."""
    return bool(inner) and not any(abs(access.strides[d]) == 1 for d in inner if d != dim)


def memory_cost(instr: Load | Store, facts: Facts, dim: int, lanes: int, inner: range, gathered: float = 1.0) -> float:
    """The instructions for one vector along ``dim`` of a load or store in a nest with the dimensions ``inner``;
    ``gathered`` is the cost of a lane that is loaded by itself."""
    stride = abs(largest(instr.access.strides[dim]))
    moving = any(dim in facts.depends[value] for value, _ in instr.access.terms)
    if is_near(instr.access.strides[dim], lanes) and not moving and instr.guard is None:
        adds = isinstance(instr, Store) and instr.mode == "add"
        return 4.0 * stride if adds else 2.0 * stride
    scattered = stride > 1 or moving
    lane = STRIDED_COST if stride > 1 and not moving and _is_left(instr.access, inner, dim) else 1.0
    if isinstance(instr, Load):
        return gathered * lane * lanes if scattered else 1.0
    return (2.0 if instr.mode == "add" else 1.0) * (1.5 * lane * lanes if scattered or stride == 0 else 1.0)


def transposed_axis(nest: Nest, facts: Facts, vector: int | None) -> int | None:
    """The axis along which a load is contiguous that jumps along the vector axis, in a nest without inner ones."""
    if vector is None or nest.inner:
        return None
    for number in sorted(facts.needed):
        instr = nest.body[number]
        if isinstance(instr, Load) and abs(largest(instr.access.strides[vector])) > 1:
            for dim, stride in enumerate(instr.access.strides):
                if stride == 1 and dim != vector and nest.dims[dim] != 1:
                    return dim
    return None


def still_axis(nest: Nest, facts: Facts, vector: int | None, lanes: int) -> int | None:
    """The axis along which loads that jump along the vectors stay the same: the loop along it is inside of that over
    vectors, so that they are loaded once for many turns. Only among inner axes where there are any."""
    split = len(nest.outer)
    if vector is None or (nest.inner and vector < split):
        return None
    reached = [(i, i.access) for n in sorted(facts.needed) if isinstance(i := nest.body[n], Load | Store)]
    if any(isinstance(i, Store) and i.mode == "add" for i, _ in reached):
        return None
    inner = range(split, len(nest.dims))
    costs = {(i, x): memory_cost(i, facts, vector, lanes, inner) for i, x in reached if x.strides[vector] or x.terms}
    best, most = None, 0.0
    for dim in inner if nest.inner else range(split):
        if dim == vector or nest.dims[dim] == 1:
            continue
        moving = [x for (i, x) in costs if x.strides[dim] or x.terms]
        still = sum(cost for (i, x), cost in costs.items() if isinstance(i, Load) and x not in moving and cost > 1)
        if still > STILL_COST * len(moving) and still >= most:
            best, most = dim, still
    return best


def tiled_axis(nest: Nest, facts: Facts, vector: int | None, lanes: int) -> int | None:
    """The axis of the tiles in which loads are transposed: only for short bodies, which are unrolled for each vector of
    a tile."""
    across = transposed_axis(nest, facts, vector)
    if across is None or vector is None:
        return None
    if highest(nest.dims[vector]) < lanes or highest(nest.dims[across]) < min(lanes, NARROWEST_TILE):
        return None
    accesses = [x for instr in nest.body if (x := access_of(instr))]
    if any(x.terms for x in accesses) or any(nest.args[x.arg].itemsize < 4 for x in accesses):
        return None
    return across if sum(cost_of(nest, number) for number in facts.needed) <= TILED_COST else None


def loop_order(nest: Nest, facts: Facts, vector: int | None, lanes: int) -> tuple[int, ...]:
    """Large strides outside. The vector axis is the innermost of its group, but where a transposed load runs along
    another axis, or loads stay the same along it: then that one is inside, so that each cache line is used while it is
    near."""
    accesses = [x for number in sorted(facts.needed) if (x := access_of(nest.body[number]))]
    across = transposed_axis(nest, facts, vector)
    across = still_axis(nest, facts, vector, lanes) if across is None else across

    def reach(dim: int) -> int:
        return sum(abs(largest(x.strides[dim])) for x in accesses)

    split = len(nest.outer)
    groups = [sorted(group, key=reach, reverse=True) for group in (range(split), range(split, len(nest.dims)))]
    for group in groups:
        if vector in group:
            group.remove(vector)
            group.append(vector)
    if across is not None:
        group = groups[across >= split]
        group.remove(across)
        group.append(across)
    if nest.is_ordered:
        groups[0].sort(key=bool)  # dimension 0 is the outermost
    return (*groups[0], *groups[1])
