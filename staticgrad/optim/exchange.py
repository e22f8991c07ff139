"""Gradients of several processes: what ``opt.minimize(loss, distributed=True)`` declares between the gradients and the
updates.

    averaged         gradients of this rank's batch -> their means over the ranks, in buckets
    over_shards      a loss -> the mean of its gradients over fixed shards of the batch, which the ranks share out

The gradient of a table that names few rows, in a number that is known, is no part of a bucket: each rank adds up its
own rows, all ranks get the rows of all and add them in the order of the ranks. So the bits are the same on every rank,
and those of a reduction that adds the ranks' gradients in that order, as every one does on two ranks.

A *bucket* is one contiguous vector of gradients, into which the kernels that make them store. Several are reduced while
the backward goes on: each is started when its last gradient is there, and waited for after the whole backward.

The sum over shards has one order, whoever computes which shard: neighbours are added in pairs as long as their number
is even, then what is left from the first to the last. A rank adds the pairs that are its own; the rest, gathered from
all ranks, each of them adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from staticgrad.base.collection import importing
from staticgrad.base.errors import GraphError, at_source
from staticgrad.base.reach import reach
from staticgrad.base.types import Dim, Size, Symbol, as_declared, bind, computed, int64
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import control_dependencies
from staticgrad.ops.collectives import end_reduce, gathered, reduced, size, start_reduce
from staticgrad.ops.control.bodies import draws, is_ordered
from staticgrad.ops.indexing.slots import slots_of
from staticgrad.ops.sources import PLACEHOLDER, VARIABLE
from staticgrad.optim.rows import added_again, terms_of

Gradients = Sequence[Tensor | None]


def averaged(gradients: Gradients, buckets: int) -> list[Tensor | None]:
    """The means over the ranks, in at most ``buckets`` vectors of each dtype."""
    if size() == 1:
        return list(gradients)
    made = [g for g in gradients if g is not None]
    few = dict.fromkeys(g for g in made if _is_of_few_rows(g))
    made = [g for g in made if g not in few]
    pieces = [piece for dtype in _dtypes(made) for piece in _pieces([g for g in made if g.dtype == dtype], buckets)]
    means: dict[Tensor, Tensor] = {}
    if buckets == 1:
        vectors = [reduced(_vector(piece), equalizes=not i) for i, piece in enumerate(pieces)]
        means |= {g: _averaged_rows(g, equalizes=not i and not pieces) for i, g in enumerate(few)}
    else:
        started = [start_reduce(_vector(piece), equalizes=not i) for i, piece in enumerate(pieces)]
        means |= {g: _averaged_rows(g, equalizes=not i and not pieces) for i, g in enumerate(few)}
        vectors = [end_reduce(one) for one in started]
    for piece, vector in zip(pieces, vectors, strict=True):
        means |= zip(piece, _parts(vector, piece, 1 / size()), strict=True)
    return [None if g is None else means[g] for g in gradients]


def _dtypes(tensors: Iterable[Tensor]) -> list[object]:
    return list(dict.fromkeys(x.dtype for x in tensors))


def _pieces(gradients: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """The distinct gradients in the order in which the backward makes them, cut into pieces of about equal size."""
    ordered = sorted(dict.fromkeys(gradients), key=lambda g: g.op.serial)
    if count == 1 or not all(g.type.static for g in ordered):
        return [ordered]
    total, done = sum(g.type.nbytes for g in ordered), 0
    found: list[list[Tensor]] = [[] for _ in range(count)]
    for g in ordered:
        middle = done + g.type.nbytes // 2
        found[min(count - 1, middle * count // max(total, 1))].append(g)
        done += g.type.nbytes
    return [piece for piece in found if piece]


def _vector(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors side by side; short floats as float32, in which they are added up."""
    return o.bucket([o.astype(x, computed(x.dtype)) for x in tensors])


def _parts(vector: Tensor, like: Sequence[Tensor], factor: float) -> list[Tensor]:
    """The parts of a vector in the shapes of ``like``, times a factor."""
    found: list[Tensor] = []
    start: Size = 0
    for x in like:
        part: Tensor = vector[start : start + x.size] if len(like) > 1 else vector
        found.append(o.astype(o.reshape(part, x.shape) * factor, x.dtype))
        start = start + x.size
    return found


# -- few rows -------------------------------------------------------------------------------------------------------


def _is_of_few_rows(gradient: Tensor) -> bool:
    """True if a gradient's rows are updated alone when those of all ranks are added, and fewer are sent so."""
    with importing():
        from staticgrad.compiler.passes.row_updates import LEAST_ELEMENTS, ROWS_FOR_INDEX

    terms = terms_of(gradient)
    if not terms or not all(x.type.static for x in (gradient, *(term.inputs[2] for term in terms))):
        return False
    count = sum(math.prod(map(int, term.inputs[2].shape)) for term in terms)
    return 0 < size() * ROWS_FOR_INDEX * count <= gradient.shape[0] and gradient.size >= LEAST_ELEMENTS


def _averaged_rows(gradient: Tensor, equalizes: bool) -> Tensor:
    """The mean over the ranks of a gradient that is a sum of terms, of which the rows travel that have one."""
    rows, rest = gradient.shape[0], gradient.shape[1:]
    terms = terms_of(gradient)
    control = dict.fromkeys(before for term in terms for before in term.control)
    with control_dependencies(list(control)):
        indices = [o.astype(o.reshape(term.inputs[2], (-1,)), int64) for term in terms]
        found = slots_of([o.where(o.less(index, 0), o.add(index, rows), index) for index in indices])
        own: dict[Tensor, Tensor] = {}
        for term, slot in zip(terms, found.slots, strict=True):
            updates = o.reshape(term.inputs[1], (*slot.shape, *rest))
            zeros = o.zeros((*found.row.shape, *rest), dtype=updates.dtype)
            own[term.outputs[0]] = o.scatter_add(zeros, updates, slot)
        index = gathered(found.row, equalizes=equalizes)
        updates = gathered(added_again(gradient, own))
    wide = computed(gradient.dtype)
    total = o.index_add(o.zeros(gradient.shape, dtype=wide), o.astype(updates, wide), index)
    return o.astype(total * (1 / size()), gradient.dtype)


# -- shards ---------------------------------------------------------------------------------------------------------

Derive = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor | None]]


def over_shards(loss: Tensor, variables: Sequence[Tensor], shards: int, derive: Derive, what: str) -> Gradients:
    """The mean over the shards of a batch of the gradients that ``derive`` finds of the loss of each.

    Raises:
        GraphError: the ranks cannot share out the shards evenly, it is not known what the batch is, or the loss draws
            random numbers or has effects.
    """
    if shards % size():
        raise GraphError(f"{what}: expected a number of shards that {size()} ranks divide, actual shards={shards}")
    own, batch = shards // size(), _ShardedLoss(loss, what)
    pieces: list[list[Tensor]] = []  # the variables of each vector of gradients, one for each dtype

    def of_shard(rows: Sequence[Tensor]) -> Sequence[Tensor]:
        found = derive(batch.again(rows, own), variables)
        made = {x: g for x, g in zip(variables, found, strict=True) if g is not None}
        pieces.extend([x for x, g in made.items() if g.dtype == dtype] for dtype in _dtypes(made.values()))
        return tuple(_vector([made[x] for x in piece]) for piece in pieces)

    rows = tuple([o.shards(x, own) for x in batch.fed])
    means: dict[Tensor, Tensor] = {}
    for number, vectors in enumerate(o.map(of_shard, rows)):
        total = _added(vectors, own, equalizes=number == 0)
        means |= zip(pieces[number], _parts(total, pieces[number], 1 / shards), strict=True)
    return [means.get(x) for x in variables]


def _added(rows: Tensor, own: int, equalizes: bool) -> Tensor:
    """The sum of the rows of all ranks, of which ``own`` are here, in the order that the module's docstring gives."""
    rows, own = _paired(rows, own)
    if size() > 1:
        rows = gathered(rows, equalizes=equalizes)
    rows, left = _paired(rows, own * size())
    total: Tensor = rows[0]
    for number in range(1, left):
        total = total + rows[number]
    return total


def _paired(rows: Tensor, count: int) -> tuple[Tensor, int]:
    while count % 2 == 0:
        rows, count = rows[0::2] + rows[1::2], count // 2
    return rows, count


class _ShardedLoss:
    """The part of a loss that depends on the batch: placeholders whose first axis is an open size, and the nodes that
    follow from them, which are declared again for a part of that size."""

    def __init__(self, loss: Tensor, what: str) -> None:
        self.loss = loss
        graph: Graph = loss.graph
        needed = reach([loss.op], lambda node: [*(x.op for x in node.inputs), *node.control])
        nodes = [node for node in graph.nodes if node in needed]
        given = [node.outputs[0] for node in nodes if node.op is PLACEHOLDER]
        self.fed = [x for x in given if x.ndim and isinstance(x.shape[0], Dim)]
        self.symbols = {symbol for x in self.fed if (symbol := _lone(x.shape[0])) is not None}
        if not self.fed or any(_lone(x.shape[0]) is None for x in self.fed):
            shapes = ", ".join(f"{x.name!r} {as_declared(x.shape)}" for x in given)
            raise GraphError(
                f"{what}: shards are parts of the batch, which has to be an open size and the first axis of what is fed"
                f"\n  expected placeholders such as sg.placeholder((None, 8))\n  actual   {shapes or 'none'}",
                source=loss.source,
            )
        moved: set[Tensor] = set(self.fed)
        self.nodes: list[Node] = []
        for node in nodes:
            if node.op is PLACEHOLDER:
                continue
            if is_ordered(node) or (node.op.state and node.op is not VARIABLE) or draws(node):
                why = "draws random numbers" if draws(node) else "has an effect"
                raise GraphError(
                    f"{what}: {node.name!r} ({node.op.name}) {why}, which would not be the same for other numbers of"
                    " ranks: shards need a loss that follows from the batch and the variables alone",
                    source=node.source,
                )
            if not moved.isdisjoint(node.inputs) or bind(node.attrs, _PartSizes(self.symbols, 2)) != node.attrs:
                self.nodes.append(node)
                moved.update(node.outputs)

    def again(self, rows: Sequence[Tensor], parts: int) -> Tensor:
        """The loss of a part of the batch, in the current graph."""
        known: dict[Tensor, Tensor] = dict(zip(self.fed, rows, strict=True))
        bindings = _PartSizes(self.symbols, parts)
        nodes: dict[Node, Node] = {}
        for node in self.nodes:
            inputs, checks = [known.get(x, x) for x in node.inputs], [nodes[n] for n in node.control if n in nodes]
            with at_source(node.source):
                made = rows[0].graph.add(node.op, inputs, bind(node.attrs, bindings), control=checks)
            nodes[node] = made
            known |= zip(node.outputs, made.outputs, strict=True)
        return known[self.loss]


def _lone(size: Size) -> Symbol | None:
    """The symbol that a size is, if it is one."""
    match size:
        case Dim(terms=(((Symbol() as symbol,), 1),)):
            return symbol
    return None


class _PartSizes(dict[Symbol, Any]):
    """Bindings of some symbols to one of that number of equal parts, and of every other to itself."""

    def __init__(self, symbols: Iterable[Symbol], parts: int) -> None:
        super().__init__({symbol: Dim((((symbol,), 1),)) // parts for symbol in symbols})

    def __missing__(self, symbol: Symbol) -> Dim:
        return Dim((((symbol,), 1),))
