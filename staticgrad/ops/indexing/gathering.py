"""Reading and adding at indices: ``index`` and ``index_add``, of which negative indices count from the end.

Negative indices wrap once, and anything else out of range is a ``BoundsError`` — of constants when they are declared,
else in the run, by a check that comes before memory is touched. What ``index`` expands into is ``gather``, whose
indices are in range; its derivative is ``index_add``, with the same wrapping and checks, since a program may compute a
gradient without the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import BoundsError, GraphError, user_source
from staticgrad.base.extents import is_open, proven
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPES, Dim, Shape, Size, TensorType, bool_, broadcast_shapes, int64, is_integer
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import (
    FUNCTIONS,
    OPS,
    Array,
    BatchedNode,
    Case,
    Namespace,
    Op,
    Primal,
    Range,
    public,
    register,
)
from staticgrad.graph.scopes import control_dependencies
from staticgrad.ops.batch_rules import again, each, every
from staticgrad.ops.declare import NUMERIC, declare
from staticgrad.ops.effects import BOUNDS_CHECK, BoundsAttributes
from staticgrad.ops.indexing.bounds import READS, WRITES, inside, limited, read, require_bounds, some
from staticgrad.ops.sources import known_extremes

# -- the primitives: indices are in range ---------------------------------------------------------------------------


@frozen
class GatherAttributes:
    """The indexed axes of the tensor, one for each index tensor, and the user's function where errors shall name one
    that is not called as the op; ``gather`` and ``scatter_add`` find no errors and name none."""

    axes: tuple[int, ...]
    what: str = ""


def remaining(x: TensorType, axes: Sequence[int]) -> Shape:
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def _check_indices(name: str, attrs: GatherAttributes, x: TensorType, indices: Sequence[TensorType]) -> Shape:
    """The common shape of the index tensors."""
    if len(indices) != len(attrs.axes) or not indices or len(set(attrs.axes)) != len(attrs.axes):
        raise GraphError(f"{name}: expected one index for each of axes {attrs.axes}, actual {len(indices)}")
    for axis, index in zip(attrs.axes, indices, strict=True):
        if not 0 <= axis < x.ndim or index.dtype != int64 or index.ndim != indices[0].ndim:
            raise GraphError(f"{name}: expected int64 indices of one shape for axis {axis} of {x}, actual {index}")
    shape = broadcast_shapes([index.shape for index in indices], name)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for i in indices for a, b in zip(i.shape, shape)):
        raise GraphError(f"{name}: expected indices of one shape, actual {', '.join(map(str, indices))}")
    return shape


def _gather_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: GatherAttributes, x: TensorType, *indices: TensorType) -> TensorType:
        return TensorType((*_check_indices(name, attrs, x, indices), *remaining(x, attrs.axes)), x.dtype)

    return infer


def _add_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: GatherAttributes, base: TensorType, updates: TensorType, *indices: TensorType) -> TensorType:
        shape = (*_check_indices(name, attrs, base, indices), *remaining(base, attrs.axes))
        fits = len(shape) == updates.ndim and all(
            m == n or isinstance(m, Dim) or isinstance(n, Dim) for m, n in zip(updates.shape, shape, strict=True)
        )
        if not fits or updates.dtype != base.dtype:
            raise GraphError(
                f"{name}: expected updates of {TensorType(shape, base.dtype)} for {base}\n  actual   {updates}"
            )
        return base

    return infer


def _gather_reference(attrs: GatherAttributes, x: Array, *indices: Array) -> Array:
    return np.moveaxis(x, attrs.axes, range(len(attrs.axes)))[indices]


def _add_reference(attrs: GatherAttributes, base: Array, updates: Array, *indices: Array) -> Array:
    result = base.copy()
    np.add.at(np.moveaxis(result, attrs.axes, range(len(attrs.axes))), indices, updates)
    return result


# The derivatives of reads are writes and those of writes are reads, at the same indices and with the same attributes.


def _vjp_gathered(adder: str) -> Callable[..., Sequence[Tensor | None]]:
    def vjp(o: Namespace, node: Primal[GatherAttributes], ct: Tensor) -> Sequence[Tensor | None]:
        x, *indices = node.inputs
        return (declare(OPS[adder], (o.zeros_like(x), ct, *indices), node.attrs), *(None for _ in indices))

    return vjp


def _jvp_gathered(reader: str) -> Callable[..., Sequence[Tensor | None]]:
    def jvp(
        o: Namespace, node: Primal[GatherAttributes], t: Tensor | None, *_: Tensor | None
    ) -> Sequence[Tensor | None]:
        return (None if t is None else declare(OPS[reader], (t, *node.inputs[1:]), node.attrs),)

    return jvp


def _vjp_added(reader: str) -> Callable[..., Sequence[Tensor | None]]:
    def vjp(o: Namespace, node: Primal[GatherAttributes], ct: Tensor) -> Sequence[Tensor | None]:
        indices = node.inputs[2:]
        return (ct, declare(OPS[reader], (ct, *indices), node.attrs), *(None for _ in indices))

    return vjp


def _jvp_added(adder: str) -> Callable[..., Sequence[Tensor | None]]:
    def jvp(
        o: Namespace, node: Primal[GatherAttributes], t_base: Tensor | None, t_updates: Tensor | None, *_: Tensor | None
    ) -> Sequence[Tensor | None]:
        base, _updates, *indices = node.inputs
        if t_updates is None:
            return (t_base,)
        start = o.zeros_like(base) if t_base is None else t_base
        return (declare(OPS[adder], (start, t_updates, *indices), node.attrs),)

    return jvp


def _positions(o: Namespace, node: BatchedNode[GatherAttributes], first: int) -> list[Tensor]:
    """The number of the example, and its indices, which are the operands from number ``first`` on."""
    shape: Shape = (node.size, *node.inputs[first].shape[node.batched[first] :])
    return [o.iota(shape, 0), *every(o, node, first)]


def _gather_over_examples(o: Namespace, node: BatchedNode[GatherAttributes]) -> Sequence[Tensor]:
    x, *indices = node.inputs
    if not node.batched[0]:
        return again(node, [x, *every(o, node, 1)], node.attrs)
    moved = tuple(axis + 1 for axis in node.attrs.axes)
    if any(node.batched[1:]):
        return again(node, [x, *_positions(o, node, 1)], GatherAttributes((0, *moved)))
    (made,) = again(node, node.inputs, GatherAttributes(moved))
    return (o.moveaxis(made, indices[0].ndim, 0),)


def _add_over_examples(o: Namespace, node: BatchedNode[GatherAttributes]) -> Sequence[Tensor]:
    attrs = GatherAttributes((0, *(axis + 1 for axis in node.attrs.axes)))
    return again(node, [each(o, node, 0), each(o, node, 1), *_positions(o, node, 2)], attrs)


def _read_cases(low: int) -> tuple[Case, ...]:
    def case(x: tuple[int, ...], index: tuple[int, ...], axes: tuple[int, ...]) -> Case:
        ranges = (Range(), *(Range(low * x[axis], x[axis] - 1) for axis in axes))
        return Case((x, *(index for _ in axes)), GatherAttributes(axes), ranges, (None, *(int64 for _ in axes)))

    return (
        case((5, 3), (4,), (0,)), case((5, 3), (2, 4), (1,)), case((4, 5, 3), (6,), (0, 2)), case((4, 5, 3), (), (1,)),
        case((7,), (0,), (0,)), case((3, 4), (2, 1), (1, 0)),
    )  # fmt: skip


def _write_cases(low: int) -> tuple[Case, ...]:
    def case(base: tuple[int, ...], updates: tuple[int, ...], index: tuple[int, ...], axes: tuple[int, ...]) -> Case:
        ranges = (Range(), Range(), *(Range(low * base[axis], base[axis] - 1) for axis in axes))
        dtypes = (None, None, *(int64 for _ in axes))
        return Case((base, updates, *(index for _ in axes)), GatherAttributes(axes), ranges, dtypes)

    return (
        case((5, 3), (7, 3), (7,), (0,)), case((5, 3), (2, 4, 5), (2, 4), (1,)), case((4, 5, 3), (6, 5), (6,), (0, 2)),
        case((4, 5), (5,), (), (0,)), case((7,), (0,), (0,), (0,)),
    )  # fmt: skip


GATHER = register(
    Op(
        "gather",
        "The elements at indices along some axes; the axes of the indices come first.",
        infer=_gather_type("gather"),
        reference=_gather_reference,
        vjp=_vjp_gathered("scatter_add"),
        jvp=_jvp_gathered("gather"),
        moves=True,
        dtypes=DTYPES,
        cases=_read_cases(0),
        role="gather",
        batch=_gather_over_examples,
    )
)

SCATTER_ADD = register(
    Op(
        "scatter_add",
        "A copy to which updates are added at indices; updates of one place add up.",
        infer=_add_type("scatter_add"),
        reference=_add_reference,
        vjp=_vjp_added("gather"),
        jvp=_jvp_added("scatter_add"),
        dtypes=NUMERIC,
        cases=_write_cases(0),
        role="write",
        filled=1,
        batch=_add_over_examples,
    )
)


def _axes_for(indices: Sequence[Tensor], axes: tuple[int, ...] | None, what: str = "") -> GatherAttributes:
    return GatherAttributes(tuple(range(len(indices))) if axes is None else tuple(axes), what)


def as_indices(what: str, indices: Sequence[TensorLike], graph: Graph) -> tuple[Tensor, ...]:
    """Index tensors as int64 of one common shape.

    Raises:
        GraphError: an index is no integer; of bools, it names ``sg.where``.
    """
    with graph:
        lifted = []
        for index in indices:
            x = lift(_integers(index), graph)
            if x.dtype == bool_:
                raise mask_error(what)
            if not is_integer(x.dtype):
                raise GraphError(f"{what}: expected integer indices, actual {x.type}")
            lifted.append(FUNCTIONS.astype(x, int64))
        shape = broadcast_shapes([x.shape for x in lifted], what)
        return tuple(FUNCTIONS.broadcast_to(x, shape) for x in lifted)


def _integers(index: TensorLike) -> TensorLike:
    """An empty list is a list of integers."""
    return np.zeros(0, np.int64) if isinstance(index, list | tuple) and not index else index


def mask_error(what: str) -> GraphError:
    return GraphError(
        f"{what}: a boolean mask would give a result whose shape depends on values;"
        " use sg.where(mask, x, y), or integer indices"
    )


@public
def gather(x: Tensor, *indices: TensorLike, axes: tuple[int, ...] | None = None) -> Tensor:
    """The elements of ``x`` at ``indices`` along ``axes`` (the first ones); indices must be in range, unchecked."""
    found = as_indices("gather", indices, graph_of((x,)))
    return declare(GATHER, (x, *found), _axes_for(found, axes))


@public
def scatter_add(base: Tensor, updates: Tensor, *indices: TensorLike, axes: tuple[int, ...] | None = None) -> Tensor:
    """``base`` with ``updates`` added at ``indices`` along ``axes`` (the first ones); indices must be in range,
    unchecked."""
    found = as_indices("scatter_add", indices, graph_of((base,)))
    return declare(SCATTER_ADD, (base, updates, *found), _axes_for(found, axes))


# -- index and index_add: negative indices wrap, everything else out of range is found ---------------------------------


def _wrapped_reference(
    name: str, attrs: GatherAttributes, shape: tuple[int, ...], indices: Sequence[Array]
) -> list[Array]:
    result = []
    for axis, index in zip(attrs.axes, indices, strict=True):
        wrapped = np.where(index < 0, index + shape[axis], index)
        if wrapped.size and not (wrapped.min() >= 0 and wrapped.max() < shape[axis]):
            wrong = index[(wrapped < 0) | (wrapped >= shape[axis])].flat[0]
            raise BoundsError(f"{name}: index {wrong} is out of range for axis {axis} of size {shape[axis]}")
        result.append(wrapped)
    return result


def _index_reference(attrs: GatherAttributes, x: Array, *indices: Array) -> Array:
    return _gather_reference(attrs, x, *_wrapped_reference(attrs.what or "index", attrs, x.shape, indices))


def _index_add_reference(attrs: GatherAttributes, base: Array, updates: Array, *indices: Array) -> Array:
    return _add_reference(
        attrs, base, updates, *_wrapped_reference(attrs.what or "index_add", attrs, base.shape, indices)
    )


def in_range(what: str, index: Tensor, size: Size) -> bool:
    """True if an index is known to be in [-size, size).

    Raises:
        BoundsError: it is known to be outside.
    """
    known = known_extremes(index)
    if known is None or not isinstance(size, int):
        return index.size == 0
    least, greatest = known
    if greatest < least or proven(lambda: least >= -size and greatest < size):
        return True
    if is_open(size) or is_open(greatest):
        return False
    wrong = least if least < -size else greatest
    raise BoundsError(f"{what}: index {wrong} is out of range for size {size}", source=user_source())


def _wrapped(o: Namespace, index: Tensor, size: Size) -> Tensor:
    known = known_extremes(index)
    if known is not None and not known[0] < 0:
        return index
    return o.where(o.less(index, 0), o.add(index, size), index)


def _prepare(
    o: Namespace, what: str, x: Tensor, attrs: GatherAttributes, indices: Sequence[Tensor]
) -> tuple[list[Tensor], list[Node]]:
    """Indices that are wrapped, and the checks that they are in range then."""
    wrapped: list[Tensor] = []
    checks: list[Node] = []
    for axis, index in zip(attrs.axes, indices, strict=True):
        size = x.shape[axis]
        inside = in_range(what, index, size)
        index = _wrapped(o, index, size)
        wrapped.append(index)
        if not inside:
            limits = BoundsAttributes(size, f"{what}: axis {axis}", wraps=True)
            checks.append(graph_of((index,)).add(BOUNDS_CHECK, (index,), limits))
    return wrapped, checks


def _expand_index(o: Namespace, node: Primal[GatherAttributes]) -> Sequence[Tensor]:
    x, *indices = node.inputs
    wrapped, checks = _prepare(o, node.attrs.what or "index", x, node.attrs, indices)
    with control_dependencies(checks):
        return [declare(GATHER, (x, *wrapped), GatherAttributes(node.attrs.axes))]


def _expand_index_add(o: Namespace, node: Primal[GatherAttributes]) -> Sequence[Tensor]:
    base, updates, *indices = node.inputs
    wrapped, checks = _prepare(o, node.attrs.what or "index_add", base, node.attrs, indices)
    with control_dependencies(checks):
        return [declare(SCATTER_ADD, (base, updates, *wrapped), GatherAttributes(node.attrs.axes))]


INDEX = register(
    Op(
        "index",
        "The elements at indices along some axes, of which negative ones count from the end.",
        infer=_gather_type("index"),
        reference=_index_reference,
        expand=_expand_index,
        vjp=_vjp_gathered("index_add"),
        jvp=_jvp_gathered("index"),
        moves=True,
        dtypes=DTYPES,
        cases=_read_cases(-1),
    )
)

INDEX_ADD = register(
    Op(
        "index_add",
        "A copy to which updates are added at indices, of which negative ones count from the end.",
        infer=_add_type("index_add"),
        reference=_index_add_reference,
        expand=_expand_index_add,
        vjp=_vjp_added("index"),
        jvp=_jvp_added("index_add"),
        dtypes=NUMERIC,
        cases=_write_cases(-1),
        grad_name="IndexPut",
    )
)


@public
def index(
    x: Tensor,
    *indices: TensorLike,
    axes: tuple[int, ...] | None = None,
    what: str = "",
    bounds: str = "error",
    fill_value: Any = None,
) -> Tensor:
    """The elements of ``x`` at ``indices`` along ``axes`` (the first ones); the axes of the indices come first. Errors
    name the function ``what``. Indices out of range are read as ``bounds`` says (``bounds.py``).

    Raises:
        BoundsError: a constant index is out of range; others are checked in the run.
    """
    found = as_indices(what or "index", indices, graph_of((x,)))
    attrs = _axes_for(found, axes, what)
    require_bounds(what or "index", bounds, READS)
    if bounds != "error":
        return read(what or "index", x, found, attrs.axes, bounds, fill_value)
    for axis, one in zip(attrs.axes, found):
        in_range(what or "index", one, x.shape[axis])
    return declare(INDEX, (x, *found), attrs)


@public
def index_add(
    base: Tensor,
    updates: Tensor,
    *indices: TensorLike,
    axes: tuple[int, ...] | None = None,
    what: str = "",
    bounds: str = "error",
) -> Tensor:
    """``base`` with ``updates`` added at ``indices`` along ``axes`` (the first ones). Errors name the function
    ``what``. Indices out of range are written at as ``bounds`` says (``bounds.py``).

    Raises:
        BoundsError: a constant index is out of range; others are checked in the run.
    """
    found = as_indices(what or "index_add", indices, graph_of((base,)))
    attrs = _axes_for(found, axes, what)
    require_bounds(what or "index_add", bounds, WRITES)
    if bounds != "error":
        sizes = [base.shape[axis] for axis in attrs.axes]
        if 0 in sizes and bounds == "drop":
            return base
        updates = some(inside(found, sizes) if bounds == "drop" else None, updates)
        found = tuple(limited(one, size) for one, size in zip(found, sizes, strict=True))
        if all(isinstance(size, int) and size > 0 for size in sizes):
            return declare(SCATTER_ADD, (base, updates, *found), GatherAttributes(attrs.axes))
    for axis, one in zip(attrs.axes, found):
        in_range(what or "index_add", one, base.shape[axis])
    return declare(INDEX_ADD, (base, updates, *found), attrs)
