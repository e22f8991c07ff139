"""Collective operations: what the processes of a run compute together, through MPI (``staticgrad.base.world``).

    all_reduce      the sum, maximum or minimum over the ranks, on every rank
    all_gather      the operands of all ranks, one after the other
    reduce_scatter  an equal part of the sum for each rank, in their order
    broadcast       the operand of rank ``root``
    reduce          the sum on rank ``root``, elsewhere zeros: the transpose of ``broadcast``
    reduce_start    an ``all_reduce`` that goes on while others compute, until ``reduce_wait`` gives its result
    barrier         nothing, once all ranks are there

They are effects: all ranks run the same ones in the order in which they were declared. Derivatives are those of what
the ranks compute together: the cotangents of all ranks are those of one number, the sum of what each of them derives.
So the transpose of a sum is a sum, that of a gather a scatter, and the other way round.

Each entry's compiled form is a call of one of MPI's functions (``runtime/running/mpi.c``), its reference mpi4py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPES, TensorType, bool_, float64, int64, integer, is_floating
from staticgrad.base.world import REDUCTIONS, world
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, OPS, BatchedNode, Case, Namespace, Op, Primal, Role, register
from staticgrad.ops.batch_rules import again, each, last_axes

NUMBERS = tuple(dtype for dtype in DTYPES if dtype != bool_)


@frozen
class CollectiveAttributes:
    """The number of ranks, what they reduce by, and the rank that gives or gets something alone. ``equalizes``: before
    a program with it runs first in a session, rank 0 gives all ranks its variables."""

    ranks: int
    reduction: str = "sum"
    root: int = 0
    equalizes: bool = False


Attributes = CollectiveAttributes  # short, for the rules below


def _collect(name: str, x: Tensor, attrs: Attributes) -> Tensor:
    """The result of a collective op, in the current graph."""
    return get_default_graph().add(OPS[name], (x,), attrs).outputs[0]


# -- derivatives ----------------------------------------------------------------------------------------------------


def _pull_back_reduced(o: Namespace, node: Primal[Attributes], ct: Tensor) -> Sequence[Tensor | None]:
    """The sum of all cotangents; for an extreme, split evenly among the ranks that have it."""
    total = _collect("all_reduce", ct, Attributes(node.attrs.ranks))
    if node.attrs.reduction == "sum":
        return (total,)
    chosen, share = _chosen(o, node)
    return (o.where(chosen, total * share, o.zeros_like(total)),)


def _push_forward_reduced(o: Namespace, node: Primal[Attributes], t: Tensor) -> Sequence[Tensor | None]:
    if node.attrs.reduction != "sum":
        chosen, share = _chosen(o, node)
        t = o.where(chosen, t * share, o.zeros_like(t))
    return (_collect("all_reduce", t, Attributes(node.attrs.ranks)),)


def _chosen(o: Namespace, node: Primal[Attributes]) -> tuple[Tensor, Tensor]:
    """A mask of the places where this rank has the extreme, and one over the number of ranks that do."""
    (x,), (y,) = node.inputs, node.outputs
    chosen = o.equal(x, o.stop_gradient(y))
    count = _collect("all_reduce", o.astype(chosen, x.dtype), Attributes(node.attrs.ranks))
    return chosen, o.reciprocal(o.stop_gradient(count))


def _no_derivative(o: Namespace, node: Primal[object], *_: Tensor | None) -> Sequence[Tensor | None]:
    raise GradientError(
        "what opt.minimize reduces over the ranks has no derivative: derive sg.distributed.all_reduce of gradients",
        source=node.outputs[0].source,
    )


# -- over many examples ---------------------------------------------------------------------------------------------


def _over_examples(o: Namespace, node: BatchedNode[Attributes]) -> Sequence[Tensor]:
    """The axis of examples goes after the one along which ranks lie side by side."""
    (y,) = again(node, (o.moveaxis(node.inputs[0], 0, 1),), node.attrs)
    return (o.moveaxis(y, 1, 0),)


def _start_over_examples(o: Namespace, node: BatchedNode[Attributes]) -> Sequence[Tensor]:
    """At once: all examples are one vector."""
    y = _collect("all_reduce", node.inputs[0], Attributes(node.attrs.ranks, node.attrs.reduction))
    return y, o.zeros((node.size, 1), dtype=int64)


# -- the entries ----------------------------------------------------------------------------------------------------


def _gathered_type(attrs: Attributes, x: TensorType) -> TensorType:
    return TensorType((attrs.ranks * x.shape[0], *x.shape[1:]), x.dtype)


def _scattered_type(attrs: Attributes, x: TensorType) -> TensorType:
    first = x.shape[0]
    if isinstance(first, int) and first % attrs.ranks:
        raise GraphError(f"reduce_scatter: axis 0 of {x} cannot be divided evenly among {attrs.ranks} ranks")
    return TensorType((first // attrs.ranks, *x.shape[1:]), x.dtype)


def _ordered(name: str, doc: str, *, role: Role = "effect", **entry: Any) -> Op:
    """The entry of an op that all ranks run in one order."""
    return register(Op(name, doc, effect=True, ordered=True, role=role, **entry))


def _meet(attrs: Attributes) -> tuple[()]:
    world().barrier()
    return ()


ALL_REDUCE = _ordered(
    "all_reduce",
    "The sum, maximum or minimum over the ranks, on every rank.",
    infer=lambda attrs, x: x,
    reference=lambda attrs, x: world().all_reduce(x, attrs.reduction),
    vjp=_pull_back_reduced,
    jvp=_push_forward_reduced,
    dtypes=NUMBERS,
    cases=tuple(Case(((3, 4),), Attributes(1, reduction)) for reduction in REDUCTIONS),
    batch=last_axes,
)

ALL_GATHER = _ordered(
    "all_gather",
    "The operands of all ranks, one after the other along axis 0.",
    infer=_gathered_type,
    reference=lambda attrs, x: world().all_gather(x),
    vjp=lambda o, node, ct: (_collect("reduce_scatter", ct, node.attrs),),
    jvp=lambda o, node, t: (_collect("all_gather", t, node.attrs),),
    moves=True,
    dtypes=DTYPES,
    cases=(Case(((3, 4),), Attributes(1)),),
    batch=_over_examples,
)

REDUCE_SCATTER = _ordered(
    "reduce_scatter",
    "An equal part of the sum over the ranks for each of them, along axis 0.",
    infer=_scattered_type,
    reference=lambda attrs, x: world().reduce_scatter(x),
    vjp=lambda o, node, ct: (_collect("all_gather", ct, node.attrs),),
    jvp=lambda o, node, t: (_collect("reduce_scatter", t, node.attrs),),
    dtypes=NUMBERS,
    cases=(Case(((3, 4),), Attributes(1)),),
    batch=_over_examples,
)

BROADCAST = _ordered(
    "broadcast",
    "The operand of one rank, on every rank.",
    infer=lambda attrs, x: x,
    reference=lambda attrs, x: world().broadcast(x, attrs.root),
    vjp=lambda o, node, ct: (_collect("reduce", ct, node.attrs),),
    jvp=lambda o, node, t: (_collect("broadcast", t, node.attrs),),
    moves=True,
    dtypes=DTYPES,
    cases=(Case(((3, 4),), Attributes(1)),),
    batch=last_axes,
)

REDUCE = _ordered(
    "reduce",
    "The sum over the ranks on one rank, zeros on the others.",
    infer=lambda attrs, x: x,
    reference=lambda attrs, x: world().reduce(x, attrs.root),
    vjp=lambda o, node, ct: (_collect("broadcast", ct, node.attrs),),
    jvp=lambda o, node, t: (_collect("reduce", t, node.attrs),),
    dtypes=NUMBERS,
    cases=(Case(((3, 4),), Attributes(1)),),
    batch=last_axes,
)

REDUCE_START = _ordered(
    "reduce_start",
    "A sum over the ranks that is there when ``reduce_wait`` gives it, and the number of the request.",
    infer=lambda attrs, x: (x, TensorType((1,), int64)),
    reference=lambda attrs, x: (world().all_reduce(x, attrs.reduction), np.zeros(1, np.int64)),
    vjp=_no_derivative,
    jvp=_no_derivative,
    dtypes=NUMBERS,
    cases=(Case(((3, 4),), Attributes(1)),),
    batch=_start_over_examples,
)

REDUCE_WAIT = _ordered(
    "reduce_wait",
    "The result of ``reduce_start``, of which the operands are, once it is there.",
    infer=lambda attrs, x, request: x,
    reference=lambda attrs, x, request: x,
    vjp=_no_derivative,
    jvp=_no_derivative,
    role="alias",
    moves=True,
    dtypes=NUMBERS,
    batch=lambda o, node: (each(o, node, 0),),  # it is there
)

BARRIER = _ordered(
    "barrier",
    "Nothing, once all ranks are there.",
    infer=lambda attrs: (),
    reference=_meet,
    differentiable=False,
    batch=last_axes,
)

COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, REDUCE_START, REDUCE_WAIT, BARRIER)


# -- what users call ------------------------------------------------------------------------------------------------


def rank() -> int:
    """The number of this process among those that compute together, from 0: 0 without ``mpiexec``.

    Raises:
        StaticGradError: this process was started as one of several, and mpi4py is not installed
            (``pip install '.[mpi]'`` in a checkout).

    Example:
        >>> sg.distributed.rank()
        0
    """
    return world().rank


def size() -> int:
    """The number of processes that compute together: 1 without ``mpiexec``.

    Raises:
        StaticGradError: as for ``rank``.

    Example:
        >>> mine = np.arange(10)[sg.distributed.rank() :: sg.distributed.size()]
        >>> len(mine)
        10
    """
    return world().size


def all_reduce(x: TensorLike, op: str = "sum") -> Tensor:
    """The sum, mean, maximum or minimum over the ranks of tensors of one shape, element by element, on every rank.

    All ranks have to run it, and it is run where its result is used or fetched, as are the other functions of this
    module; in one program they keep the order of declaration. Its derivative is that of the sum over all ranks of what
    each of them derives. Where several ranks have an extreme, its gradient is split evenly among them. What comes of
    NaN as a maximum or minimum depends on MPI.

    Args:
        x: of any shape, the same on all ranks. For a sum, numbers; means of integers are float64.
        op: "sum", "mean", "max" or "min".

    Returns:
        A tensor of the shape of ``x``; on one process ``x``.

    Raises:
        GraphError: another ``op``, or a sum of bools.

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> sg.Session().run(sg.distributed.all_reduce(x, "mean"))  # of each process: the same on one
        array([1., 2.], dtype=float32)
    """
    x = lift(x)
    if op not in (*REDUCTIONS, "mean"):
        raise GraphError(f"all_reduce: expected 'sum', 'mean', 'max' or 'min' as op, actual {op!r}", source=x.source)
    if x.dtype == bool_ and op in ("sum", "mean"):
        raise GraphError(f"all_reduce: expected numbers, actual {x.type}; write .astype(sg.int64)", source=x.source)
    with graph_of((x,)):
        if op == "mean" and not is_floating(x.dtype):
            x = FUNCTIONS.astype(x, float64)
        if size() == 1:
            return x
        reduction = "sum" if op == "mean" else op
        y = _collect("all_reduce", x, Attributes(size(), reduction))
        return y * (1.0 / size()) if op == "mean" else y


def all_gather(x: TensorLike) -> Tensor:
    """The tensors of all ranks, which have one shape, one after the other along axis 0, on every rank.

    Returns:
        A tensor of shape ``(size() * n, …)`` for one of shape ``(n, …)``; a number becomes a vector of ``size()``.

    Example:
        >>> x = sg.constant([[1.0, 2.0]])
        >>> sg.distributed.all_gather(x).shape == (sg.distributed.size(), 2)
        True
    """
    x = lift(x)
    with graph_of((x,)):
        if x.ndim == 0:
            x = FUNCTIONS.reshape(x, (1,))
        return x if size() == 1 else _collect("all_gather", x, Attributes(size()))


def reduce_scatter(x: TensorLike) -> Tensor:
    """The sum over the ranks of tensors of one shape, divided among them along axis 0: rank r gets its r-th part.

    Returns:
        A tensor of shape ``(n, …)`` for one of shape ``(size() * n, …)``.

    Raises:
        GraphError: axis 0 is not divided evenly, there is none, or what shall be added up are bools.

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> sg.Session().run(sg.distributed.reduce_scatter(x))  # all of it, on one process
        array([1., 2.], dtype=float32)
    """
    x = lift(x)
    if x.ndim == 0 or x.dtype == bool_:
        raise GraphError(f"reduce_scatter: expected numbers with an axis 0 to divide, actual {x.type}", source=x.source)
    with graph_of((x,)):
        return x if size() == 1 else _collect("reduce_scatter", x, Attributes(size()))


def broadcast(x: TensorLike, root: int = 0) -> Tensor:
    """The tensor of rank ``root``, on every rank; those of the others, of the same shape, are not looked at.

    Raises:
        GraphError: there is no such rank.

    Example:
        >>> sg.Session().run(sg.distributed.broadcast(sg.constant(3.0)))
        array(3., dtype=float32)
    """
    x, number = lift(x), integer(root, "broadcast: root", 0)
    if number >= size():
        raise GraphError(f"broadcast: root: expected a rank below {size()}, actual {number}", source=x.source)
    with graph_of((x,)):
        return x if size() == 1 else _collect("broadcast", x, Attributes(size(), root=number))


def barrier() -> Node:
    """An op that ends once all ranks have come to it; it runs where it is fetched, or named in
    ``sg.control_dependencies``.

    Example:
        >>> sg.Session().run(sg.distributed.barrier())
    """
    return FUNCTIONS.group() if size() == 1 else get_default_graph().add(BARRIER, (), Attributes(size()))


# -- what optimizers call -------------------------------------------------------------------------------------------


def start_reduce(x: Tensor, *, equalizes: bool = False) -> tuple[Tensor, Tensor]:
    """The operands of ``end_reduce`` for the sum of ``x`` over the ranks, which begins now."""
    y, request = x.graph.add(REDUCE_START, (x,), Attributes(size(), equalizes=equalizes)).outputs
    return y, request


def end_reduce(started: tuple[Tensor, Tensor]) -> Tensor:
    """The sum over the ranks that was started."""
    return started[0].graph.add(REDUCE_WAIT, started, Attributes(size())).outputs[0]


def reduced(x: Tensor, *, equalizes: bool = False) -> Tensor:
    """The sum of ``x`` over the ranks, at once."""
    return x.graph.add(ALL_REDUCE, (x,), Attributes(size(), equalizes=equalizes)).outputs[0]


def gathered(x: Tensor, *, equalizes: bool = False) -> Tensor:
    """``x`` of all ranks along axis 0."""
    return x.graph.add(ALL_GATHER, (x,), Attributes(size(), equalizes=equalizes)).outputs[0]
