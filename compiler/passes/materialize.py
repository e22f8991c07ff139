"""Materialize: the last pass before kernels. It chooses the layouts of tensors, once.

It puts a copy (``identity``) wherever a value must have memory of its own in row-major order although nothing computes
it there: a view or source that is fetched, written to a variable or handed to Python, a view of a view that no affine
address reaches, an operand of a matrix kernel that is not plain memory, an operand of a write (concat, pad, fold,
scatter_add) that no nest produces for it alone, or that a control edge names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from staticgrad.base.errors import at_source
from staticgrad.base.phases import phase
from staticgrad.base.types import int32, sizes
from staticgrad.compiler.kernels.access import (
    Blocked,
    Path,
    behind_reshapes,
    broadcast_map,
    is_reshape,
    is_view,
    resolve,
    source_of,
)
from staticgrad.compiler.kernels.layout import IMAGE_RANKS, layouts, strides_with
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS, Op
from staticgrad.ops.collectives import COLLECTIVES
from staticgrad.ops.contraction import DOT
from staticgrad.ops.effects import PY_CALL
from staticgrad.ops.elementwise.copies import IDENTITY
from staticgrad.ops.grouped import GROUPED_DOT, are_groups
from staticgrad.ops.sources import FULL

CONSTANT_BYTES = 64  # up to here a filled tensor that is printed is part of the program


def has_memory(x: Tensor) -> bool:
    """True if a kernel or a call writes ``x``."""
    return x.op.op.role not in ("source", "view", "alias", "store")


def _is_readable(x: Tensor) -> bool:
    """True if ``x`` is in memory: a kernel has written it, or it is given."""
    return has_memory(x) or (x.op.op.role == "source" and not x.op.op.fill)


@phase("materialize")
def materialize(region: Region) -> Region:
    region = _own_fetches(region)
    region = replace(region, layouts=layouts(region))
    orders, strides_of = region.layouts, strides_with(region.layouts)
    users = users_of(region)
    fetched = set(map(behind_reshapes, region.fetches))
    awaited = {before for node in region.graph.nodes for before in node.control}

    def blocked(x: Tensor) -> Tensor | None:
        """The tensor on the way up from ``x`` that needs memory, if the address of ``x`` is not affine."""
        if not is_view(source_of(x)):
            return None
        shape = sizes(x.shape)
        path = resolve(x, broadcast_map(shape, shape), strides_of)
        return path.tensor if isinstance(path, Blocked) else None

    need: set[Tensor] = set()
    for node in region.graph.nodes:
        for x in node.inputs if not node.op.view else ():
            found = blocked(x)
            while found is not None and found not in need:
                need.add(found)
                found = blocked(found)  # which the copy reads

    def plain(x: Tensor) -> bool:
        """True if a matrix kernel can read ``x`` where it lies."""
        shape = sizes(x.shape)
        path = resolve(x, broadcast_map(shape, shape), strides_of)
        if isinstance(path, Blocked):  # by what a copy will give memory, at row-major strides
            return path.tensor in need and behind_reshapes(x) is path.tensor
        return not path.guards and not path.base.op.op.fill

    def in_groups(x: Tensor) -> bool:
        """True if the groups of short numbers that ``x`` has lie in one piece each."""
        path = resolve(x, broadcast_map(shape, shape), strides_of) if (shape := sizes(x.shape)) else None
        if x.dtype == int32 or not isinstance(path, Path):
            return True
        factors = dict(path.address.terms)
        return are_groups(tuple(factors.get(axis, 0) for axis in range(len(shape))), shape[-1])

    def fits(op: Op, position: int, x: Tensor) -> bool:
        """True if operand number ``position`` of an op can be used as it is."""
        if op.role == "matrix":
            return plain(x) and (op is not GROUPED_DOT or in_groups(x))
        if op is PY_CALL:  # not a feed's or a variable's own memory: Python could write there
            return has_memory(x) and x not in orders
        if op.role == "alias":
            return _is_readable(x) and x not in orders
        if op.role in ("control", "routine") or op in COLLECTIVES:
            x = behind_reshapes(x)
            return _is_readable(x) and x not in orders
        if x.op in awaited and op.filled == position:  # what the fill waits for may wait for it
            return False
        if (op.role == "store" and position == 0) or (op.role == "write" and op.filled in (None, position)):
            return len(users[x]) == 1 and x not in fetched and x.op.op.nest
        if op.role == "gather" and position == 0:
            return _is_readable(x)
        return True

    def copied(x: Tensor, op: Op) -> Tensor:
        if op.role == "alias" and x.op.op is FULL and x.type.nbytes <= CONSTANT_BYTES:
            return FUNCTIONS.constant(np.full(sizes(x.shape), x.op.attrs.value, x.dtype))
        return get_default_graph().add(IDENTITY, (x,)).outputs[0]

    unfit: dict[Node, list[int]] = {}  # found while every operand is what it was
    for node in region.graph.nodes:
        shows = is_reshape(node)
        for position, x in enumerate(node.inputs):
            if not fits(node.op, position, x) or (shows and x in need):
                unfit.setdefault(node, []).append(position)

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node not in unfit:
            return None
        new = list(inputs)
        for position in unfit[node]:
            new[position] = copied(inputs[position], node.op)
        return get_default_graph().clone(node, new).outputs

    return rebuild(region, visit)


def _may_show(x: Tensor) -> bool:
    """True if a kernel can write ``x`` where a reshape of it is fetched: it is row-major in any layout."""
    return (x.ndim not in IMAGE_RANKS and x.op.op.nest) or (x.ndim == 2 and x.op.op in (DOT, GROUPED_DOT))


def _own_fetches(region: Region) -> Region:
    """Each fetch is a tensor that a kernel writes, or one that is no reshaped image, and no two are the same."""
    fetches: list[Tensor] = []
    taken: set[Tensor] = set()
    whole = set(region.fetches)
    for x in region.fetches:
        base = behind_reshapes(x)
        if base is not x and _may_show(base) and base not in whole and base not in taken:
            taken.add(base)
            fetches.append(x)
            continue
        if not has_memory(x) or x in taken or x.op.op is PY_CALL:
            with at_source(x.source):
                x = region.graph.add(IDENTITY, (x,)).outputs[0]
        taken.add(x)
        fetches.append(x)
    return Region(region.graph, region.feeds, tuple(fetches), region.effects)
