"""Reading and adding at indices: ``x[...]``, ``take``, ``take_along_axis``, ``scatter``, ``one_hot``.

Basic indexing (integers, slices, None, Ellipsis) is a slice and a reshape. Integer arrays and tensors become the op
``index``: negative indices wrap once, and anything else out of range is a ``BoundsError`` — of constants when they are
declared, else in the run, by a check that comes before memory is touched. What ``index`` expands into is ``gather``,
whose indices are in range; its derivative is ``index_add``, with the same wrapping and checks, since a program may
compute a gradient without the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.errors import BoundsError, GraphError, SourceLine, user_source
from staticgrad.frozen import frozen
from staticgrad.graph import Node, Tensor, control_dependencies, graph_of, lift
from staticgrad.ops.declare import declare, operands
from staticgrad.ops.effects import BOUNDS_CHECK, BoundsAttributes
from staticgrad.ops.reductions import size_value
from staticgrad.ops.views import SliceAttributes, declare_slice, inverse, slice_length, unslice
from staticgrad.optable import FUNCTIONS, PRIMITIVE, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.types import (
    DTYPES,
    Dim,
    DTypeLike,
    Shape,
    Size,
    TensorType,
    bool_,
    broadcast_shapes,
    dtype_of,
    float32,
    float64,
    int32,
    int64,
    is_floating,
    is_integer,
    is_weak,
    normalize_axis,
    product,
    require_number,
)

SUMMABLE = (float32, float64, int32, int64)

# -- the primitives: indices are in range ---------------------------------------------------------------------------


@frozen
class GatherAttributes:
    """The indexed axes of the tensor, one for each index tensor."""

    axes: tuple[int, ...]


def _remaining(x: TensorType, axes: Sequence[int]) -> Shape:
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
        return TensorType((*_check_indices(name, attrs, x, indices), *_remaining(x, attrs.axes)), x.dtype)

    return infer


def _add_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: GatherAttributes, base: TensorType, updates: TensorType, *indices: TensorType) -> TensorType:
        shape = (*_check_indices(name, attrs, base, indices), *_remaining(base, attrs.axes))
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


def _vjp_gathered(adder: str) -> Callable[..., Sequence[Any]]:
    def vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
        x, *indices = node.inputs
        add = FUNCTIONS.__getattr__(adder)
        return (add(o.zeros_like(x), ct, *indices, axes=node.attrs.axes), *(None for _ in indices))

    return vjp


def _jvp_gathered(reader: str) -> Callable[..., Sequence[Any]]:
    def jvp(o: Namespace, node: Primal, t: Any, *_: Any) -> Sequence[Any]:
        read = FUNCTIONS.__getattr__(reader)
        return (None if t is None else read(t, *node.inputs[1:], axes=node.attrs.axes),)

    return jvp


def _vjp_added(reader: str) -> Callable[..., Sequence[Any]]:
    def vjp(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
        indices = node.inputs[2:]
        read = FUNCTIONS.__getattr__(reader)
        return (ct, read(ct, *indices, axes=node.attrs.axes), *(None for _ in indices))

    return vjp


def _jvp_added(adder: str) -> Callable[..., Sequence[Any]]:
    def jvp(o: Namespace, node: Primal, t_base: Any, t_updates: Any, *_: Any) -> Sequence[Any]:
        base, _updates, *indices = node.inputs
        if t_updates is None:
            return (t_base,)
        start = o.zeros_like(base) if t_base is None else t_base
        return (FUNCTIONS.__getattr__(adder)(start, t_updates, *indices, axes=node.attrs.axes),)

    return jvp


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
        dtypes=DTYPES,
        cases=_read_cases(0),
        tags=PRIMITIVE,
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
        dtypes=SUMMABLE,
        cases=_write_cases(0),
        tags=PRIMITIVE,
    )
)


def _axes_for(indices: Sequence[Tensor], axes: tuple[int, ...] | None) -> GatherAttributes:
    return GatherAttributes(tuple(range(len(indices))) if axes is None else tuple(axes))


def _as_indices(what: str, indices: Sequence[Any], graph: Any) -> tuple[Tensor, ...]:
    """Index tensors as int64 of one common shape.

    Raises:
        GraphError: an index is no integer; of bools, it names ``sg.where``.
    """
    with graph:
        lifted = []
        for index in indices:
            x = lift(_integers(index), graph)
            if x.dtype == bool_:
                raise _mask_error(what)
            if not is_integer(x.dtype):
                raise GraphError(f"{what}: expected integer indices, actual {x.type}")
            lifted.append(FUNCTIONS.astype(x, int64))
        shape = broadcast_shapes([x.shape for x in lifted], what)
        return tuple(FUNCTIONS.broadcast_to(x, shape) for x in lifted)


def _integers(index: Any) -> Any:
    """An empty list is a list of integers."""
    return np.zeros(0, np.int64) if isinstance(index, list | tuple) and not index else index


def _mask_error(what: str) -> GraphError:
    return GraphError(
        f"{what}: a boolean mask would give a result whose shape depends on values;"
        " use sg.where(mask, x, y), or integer indices"
    )


@public
def gather(x: Tensor, *indices: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """The elements of ``x`` at ``indices`` along ``axes`` (the first ones); indices must be in range, unchecked."""
    found = _as_indices("gather", indices, graph_of((x,)))
    return declare(GATHER, (x, *found), _axes_for(found, axes))


@public
def scatter_add(base: Tensor, updates: Tensor, *indices: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """``base`` with ``updates`` added at ``indices`` along ``axes`` (the first ones); indices must be in range,
    unchecked."""
    found = _as_indices("scatter_add", indices, graph_of((base,)))
    return declare(SCATTER_ADD, (base, updates, *found), _axes_for(found, axes))


# -- index and index_add: negative indices wrap, everything else out of range is found ---------------------------------


def _wrapped_reference(name: str, attrs: GatherAttributes, shape: tuple[int, ...], indices: Sequence[Array]) -> Any:
    result = []
    for axis, index in zip(attrs.axes, indices, strict=True):
        wrapped = np.where(index < 0, index + shape[axis], index)
        if wrapped.size and not (wrapped.min() >= 0 and wrapped.max() < shape[axis]):
            wrong = index[(wrapped < 0) | (wrapped >= shape[axis])].flat[0]
            raise BoundsError(f"{name}: index {wrong} is out of range for axis {axis} of size {shape[axis]}")
        result.append(wrapped)
    return result


def _index_reference(attrs: GatherAttributes, x: Array, *indices: Array) -> Array:
    return _gather_reference(attrs, x, *_wrapped_reference("index", attrs, x.shape, indices))


def _index_add_reference(attrs: GatherAttributes, base: Array, updates: Array, *indices: Array) -> Array:
    return _add_reference(attrs, base, updates, *_wrapped_reference("index_add", attrs, base.shape, indices))


def _known_values(index: Tensor) -> Array | None:
    """The values of an index that is part of the program."""
    match index.op.op.name:
        case "constant":
            value: Array = index.op.attrs.value
            return value
        case "full" | "iota" if index.type.static and index.size != 0:
            attrs = index.op.attrs
            if index.op.op.name == "full":
                return np.full((), attrs.value, np.int64)
            return np.array([0, attrs.shape[attrs.axis] - 1], np.int64)
        case "astype" | "broadcast_to" | "reshape":
            source = index.op.inputs[0]
            return _known_values(source) if is_integer(source.dtype) else None
    return None


def _in_range(what: str, index: Tensor, size: Size) -> bool:
    """Whether an index is known to be in [-size, size).

    Raises:
        BoundsError: it is known to be outside.
    """
    values = _known_values(index)
    if values is None or not isinstance(size, int):
        return index.size == 0
    if values.size and (values.min() < -size or values.max() >= size):
        wrong = values.min() if values.min() < -size else values.max()
        raise BoundsError(f"{what}: index {wrong} is out of range for size {size}", source=user_source())
    return True


def _wrapped(o: Namespace, index: Tensor, size: Size) -> Tensor:
    values = _known_values(index)
    if values is not None and not (values.size and values.min() < 0):
        return index
    if isinstance(size, Dim):
        raise GraphError(f"indices are wrapped when the size {size} is bound")
    return o.where(o.less(index, 0), o.add(index, size), index)


def _prepare(o: Namespace, what: str, x: Tensor, attrs: GatherAttributes, indices: Sequence[Tensor]) -> Any:
    """Indices that are wrapped, and the checks that they are in range then."""
    wrapped: list[Tensor] = []
    checks: list[Node] = []
    for axis, index in zip(attrs.axes, indices, strict=True):
        size = x.shape[axis]
        inside = _in_range(what, index, size)
        index = _wrapped(o, index, size)
        wrapped.append(index)
        if not inside:
            limits = BoundsAttributes(size, f"{what}: axis {axis}", wraps=True)
            checks.append(graph_of((index,)).add(BOUNDS_CHECK, (index,), limits))
    return wrapped, checks


def _expand_index(o: Namespace, node: Primal) -> Sequence[Any]:
    x, *indices = node.inputs
    wrapped, checks = _prepare(o, "index", x, node.attrs, indices)
    with control_dependencies(checks):
        return [declare(GATHER, (x, *wrapped), node.attrs)]


def _expand_index_add(o: Namespace, node: Primal) -> Sequence[Any]:
    base, updates, *indices = node.inputs
    wrapped, checks = _prepare(o, "index_add", base, node.attrs, indices)
    with control_dependencies(checks):
        return [declare(SCATTER_ADD, (base, updates, *wrapped), node.attrs)]


INDEX = register(
    Op(
        "index",
        "The elements at indices along some axes, of which negative ones count from the end.",
        infer=_gather_type("index"),
        reference=_index_reference,
        expand=_expand_index,
        vjp=_vjp_gathered("index_add"),
        jvp=_jvp_gathered("index"),
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
        dtypes=SUMMABLE,
        cases=_write_cases(-1),
        grad_name="IndexPut",
    )
)


@public
def index(x: Tensor, *indices: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """The elements of ``x`` at ``indices`` along ``axes`` (the first ones); the axes of the indices come first.

    Raises:
        BoundsError: a constant index is out of range; others are checked in the run.
    """
    found = _as_indices("index", indices, graph_of((x,)))
    attrs = _axes_for(found, axes)
    for axis, one in zip(attrs.axes, found):
        _in_range("index", one, x.shape[axis])
    return declare(INDEX, (x, *found), attrs)


@public
def index_add(base: Tensor, updates: Tensor, *indices: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """``base`` with ``updates`` added at ``indices`` along ``axes`` (the first ones).

    Raises:
        BoundsError: a constant index is out of range; others are checked in the run.
    """
    found = _as_indices("index_add", indices, graph_of((base,)))
    attrs = _axes_for(found, axes)
    for axis, one in zip(attrs.axes, found):
        _in_range("index_add", one, base.shape[axis])
    return declare(INDEX_ADD, (base, updates, *found), attrs)


# -- x[...] ---------------------------------------------------------------------------------------------------------


@frozen
class Subscript:
    """What ``x[key]`` means: a slice of ``x``, then indices along axes, then the axes in their final order and shape.

    ``axes`` and ``indices`` are parallel. After ``index`` the axes of the indices come first; ``place`` is where NumPy
    puts them: where the indexed axes are if they are neighbours, else in front. ``shape`` is the result's.
    """

    slices: SliceAttributes
    axes: tuple[int, ...]
    indices: tuple[Tensor, ...]
    place: int
    shape: Shape


def _is_array(item: Any) -> bool:
    return isinstance(item, Tensor | Node | np.ndarray | list | tuple)


def _expand_key(x: Tensor, key: Any) -> list[Any]:
    """One item for each axis, None for each new one; Ellipsis and what is missing at the end written out."""
    items = list(key) if isinstance(key, tuple) else [key]
    for item in items:
        if isinstance(item, bool | np.bool_) or getattr(item, "dtype", None) == bool_:
            raise _mask_error(f"{x.name!r}[...]")
    consumed = sum(item is not None and item is not Ellipsis for item in items)
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise GraphError(f"{x.name!r}[...]: an index can have one Ellipsis")
    if consumed > x.ndim:
        raise GraphError(f"{x.name!r}[...]: {consumed} indices for {x.type} of {x.ndim} axes")
    position = dots[0] if dots else len(items)
    missing: list[Any] = [slice(None)] * (x.ndim - consumed)
    return [*items[:position], *missing, *items[position + 1 :]]


def _size_or_none(value: Any, what: str) -> Size | None:
    if value is None or isinstance(value, Dim):
        return value
    if isinstance(value, Tensor | Node):
        raise GraphError(f"{what}: bounds of slices are known when declared; use sg.take(x, indices, axis)")
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise GraphError(f"{what}: {value!r} is neither an index nor a bound of a slice") from None


def _bounds_of(item: slice, size: Size, what: str) -> tuple[Size, Size, int]:
    """Start, stop and step in the form of ``SliceAttributes``.

    Bounds of a size that feeds bind are taken to be inside it, which is checked when it is bound.
    """
    start, stop, step = (_size_or_none(value, what) for value in (item.start, item.stop, item.step))
    if isinstance(step, Dim) or step == 0:
        raise GraphError(f"{what}: the step of a slice is a number other than 0")
    step = 1 if step is None else step
    if isinstance(size, int) and not isinstance(start, Dim) and not isinstance(stop, Dim):
        first, last, _ = slice(start, stop, step).indices(size)
        empty = len(range(first, last, step)) == 0
        return (0, 0, 1) if empty else (first, last, step)
    if _empty(start, stop, step):
        return 0, 0, 1
    if start is None:
        start = 0 if step > 0 else size - 1
    elif isinstance(start, int) and start < 0:
        start = start + size
    if stop is None:
        stop = size if step > 0 else -1
    elif isinstance(stop, int) and stop < 0:
        stop = stop + size
    return start, stop, step


def _empty(start: Size | None, stop: Size | None, step: int) -> bool:
    """Whether two bounds, counted from the same end, leave nothing between them."""
    if not isinstance(start, int) or not isinstance(stop, int) or (start < 0) != (stop < 0):
        return False
    return stop <= start if step > 0 else start <= stop


def _integer_bounds(value: Size, size: Size, axis: int, what: str) -> tuple[Size, Size, int]:
    if isinstance(value, int):
        if isinstance(size, int) and not -size <= value < size:
            raise BoundsError(
                f"{what}: index {value} is out of range for axis {axis} of size {size}", source=user_source()
            )
        value = value + size if value < 0 else value
    return value, value + 1, 1


def subscript(x: Tensor, key: Any) -> Subscript:
    """Read a key of ``x[key]`` by NumPy's rules for basic and integer-array indexing.

    Raises:
        GraphError: a boolean mask, too many indices, a float.
        BoundsError: an integer or a constant array out of range.
    """
    what = f"{x.name!r}[...]"
    items = _expand_key(x, key)
    advanced = any(_is_array(item) for item in items)
    bounds: list[tuple[Size, Size, int]] = []
    axes: list[int] = []
    arrays: list[Any] = []
    spots: list[int] = []  # where, among the items, indices stand
    layout: list[Size | None] = []  # the result's axes: a size, or None for the place of the first index
    for spot, item in enumerate(items):
        axis = len(bounds)
        if item is None:
            layout.append(1)
        elif isinstance(item, slice):
            start, stop, step = _bounds_of(item, x.shape[axis], what)
            bounds.append((start, stop, step))
            layout.append(slice_length(start, stop, step))
        elif _is_array(item) or advanced:
            bounds.append((0, x.shape[axis], 1))
            axes.append(axis)
            arrays.append(item)
            spots.append(spot)
            layout.append(None)
        else:
            value = _size_or_none(item, what)
            assert value is not None
            bounds.append(_integer_bounds(value, x.shape[axis], axis, what))
    indices = _as_indices(what, arrays, graph_of((x,))) if arrays else ()
    for axis, one in zip(axes, indices, strict=True):
        _in_range(what, one, x.shape[axis])
    together = not spots or spots[-1] - spots[0] == len(spots) - 1
    first = layout.index(None) if spots and together else 0
    rest = [size for size in layout if size is not None]
    common = indices[0].shape if indices else ()
    place = sum(isinstance(item, slice) for item in items[: spots[0]]) if spots and together else 0
    starts, stops, steps = zip(*bounds, strict=True) if bounds else ((), (), ())
    shape = (*rest[:first], *common, *rest[first:])
    return Subscript(SliceAttributes(starts, stops, steps), tuple(axes), indices, place, shape)


def _placing(key: Subscript, ndim: int) -> tuple[int, ...]:
    """The permutation that brings the axes of the indices from the front to their place."""
    many = key.indices[0].ndim if key.indices else 0
    rest = list(range(many, ndim))
    return (*rest[: key.place], *range(many), *rest[key.place :])


@public
def getitem(x: Any, key: Any) -> Tensor:
    """``x[key]`` with NumPy's basic and integer-array indexing.

    Negative indices wrap once. Slices along a size that feeds bind must lie inside it.

    Raises:
        GraphError: a boolean mask (use ``sg.where``), too many indices, bounds that are tensors.
        BoundsError: an integer or a constant array is out of range; other arrays are checked in the run.
    """
    x = lift(x, graph_of((x,)))
    parsed = subscript(x, key)
    y = declare_slice(x, parsed.slices.starts, parsed.slices.stops, parsed.slices.steps)
    if parsed.indices:
        y = declare(INDEX, (y, *parsed.indices), GatherAttributes(parsed.axes))
        order = _placing(parsed, y.ndim)
        y = y if order == tuple(range(y.ndim)) else FUNCTIONS.permute_dims(y, order)
    own = y is not x and y.shape == parsed.shape
    return y if own else FUNCTIONS.reshape(y, parsed.shape)


@public
def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements at ``indices`` along ``axis``, or of the flattened tensor; negative indices wrap once.

    Returns:
        A tensor in whose shape the shape of ``indices`` stands in the place of ``axis``.

    Raises:
        BoundsError: a constant index is out of range; others are checked in the run.
    """
    x = lift(x, graph_of((x, indices)))
    if axis is None:
        x, axis = FUNCTIONS.reshape(x, -1), 0
    place = normalize_axis(axis, x.ndim, "take")
    y = index(x, indices, axes=(place,))
    many = y.ndim - (x.ndim - 1)
    rest = list(range(many, y.ndim))
    order = (*rest[:place], *range(many), *rest[place:])
    return y if place == 0 else FUNCTIONS.permute_dims(y, order)


@public
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """The elements whose place along ``axis`` the indices give, and whose other places are the indices' own.

    Args:
        indices: integers with as many axes as ``x``; the other axes broadcast against those of ``x``.

    Raises:
        GraphError: another number of axes.
        BoundsError: a constant index is out of range; others are checked in the run.
    """
    graph = graph_of((x, indices))
    with graph:
        x = lift(x, graph)
        (places,) = _as_indices("take_along_axis", (indices,), graph)
        if places.ndim != x.ndim:
            raise GraphError(f"take_along_axis: expected indices of {x.ndim} axes, actual {places.type}")
        along = normalize_axis(axis, x.ndim, "take_along_axis")
        lines = [tuple(1 if i == along else n for i, n in enumerate(t.shape)) for t in (x, places)]
        common = broadcast_shapes(lines, "take_along_axis")
        x = FUNCTIONS.broadcast_to(x, (*common[:along], x.shape[along], *common[along + 1 :]))
        shape = (*common[:along], places.shape[along], *common[along + 1 :])
        places = FUNCTIONS.broadcast_to(places, shape)
        grid = [places if i == along else FUNCTIONS.iota(shape, i) for i in range(len(shape))]
        return index(x, *grid)


# -- scatter --------------------------------------------------------------------------------------------------------

_MODES = ("set", "add", "max", "min")


@public
def scatter(x: Any, index: Any, updates: Any, mode: str = "set") -> Tensor:
    """A copy of ``x`` in which ``updates`` are written at ``x[index]``.

    Args:
        index: any key of ``x[...]``.
        updates: broadcasts to the shape of ``x[index]``, and is cast to the dtype of ``x`` where that is safe.
        mode: ``"set"`` (of several updates of one place the last stays), ``"add"``, ``"max"`` or ``"min"`` (with what
            was there). Index tensors of n elements whose values are not known when declared cost n² comparisons,
            except for ``"add"``.

    Raises:
        GraphError: another mode, updates that do not fit, a boolean mask.
        BoundsError: an integer or a constant array is out of range; other arrays are checked in the run.
    """
    if mode not in _MODES:
        raise GraphError(f"scatter: mode is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    graph = graph_of((x, updates))
    with graph:
        x = lift(x, graph)
        new = _updates_for(x, updates, graph)
        if x.dtype not in SUMMABLE:
            wide = scatter(FUNCTIONS.astype(x, int32), index, FUNCTIONS.astype(new, int32), mode)
            return FUNCTIONS.astype(wide, x.dtype)
        key = subscript(x, index)
        part = declare_slice(x, key.slices.starts, key.slices.stops, key.slices.steps)
        new = _arranged(part, FUNCTIONS.broadcast_to(new, key.shape), key)
        if key.indices:
            part = _write_at(part, new, key, mode)
        else:
            part = new if mode == "set" else _COMBINE[mode](part, new)
        return _put_back(x, part, key.slices)


def _updates_for(x: Tensor, updates: Any, graph: Any) -> Tensor:
    if is_weak(updates):
        require_number(updates, x.dtype, "scatter")
    new = lift(updates, graph, x.dtype)
    if new.dtype != x.dtype and not np.can_cast(new.dtype, x.dtype, "safe"):
        raise GraphError(f"scatter: updates {new.type} are not cast safely to {x.dtype.name} of {x.name!r}")
    return FUNCTIONS.astype(new, x.dtype)


def _arranged(part: Tensor, new: Tensor, key: Subscript) -> Tensor:
    """Updates from the shape of the subscript to that in which the axes of the indices come first."""
    if not key.indices:
        return FUNCTIONS.reshape(new, part.shape)
    front = (*key.indices[0].shape, *_remaining(part.type, key.axes))
    perm = _placing(key, len(front))
    placed = FUNCTIONS.reshape(new, tuple(front[axis] for axis in perm))
    return FUNCTIONS.permute_dims(placed, inverse(perm))


_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: FUNCTIONS.add(a, b),
    "max": lambda a, b: FUNCTIONS.maximum(a, b),
    "min": lambda a, b: FUNCTIONS.minimum(a, b),
}


def _write_at(part: Tensor, new: Tensor, key: Subscript, mode: str) -> Tensor:
    o, axes = FUNCTIONS, key.axes
    if mode == "add":
        return index_add(part, new, *key.indices, axes=axes)
    count = product(key.indices[0].shape)
    if count == 0:
        return part
    rest = _remaining(part.type, axes)
    new = o.reshape(new, (count, *rest))
    indices = [o.reshape(one, (count,)) for one in key.indices]
    same, last = _meetings(part, key)
    if same is not None and mode != "set":
        new = _extreme_of_meeting(same, new, mode)
    if last is not None:
        new = o.where(o.reshape(last, (count, *(1 for _ in rest))), new, 0)
    written = index_add(o.zeros_like(part), new, *indices, axes=axes)
    places = o.zeros(tuple(part.shape[axis] for axis in axes), dtype=int32)
    hit = o.greater(index_add(places, o.ones((count,), dtype=int32), *indices), 0)
    order = [axes.index(axis) for axis in sorted(axes)]
    spread = tuple(size if axis in axes else 1 for axis, size in enumerate(part.shape))
    hit = o.reshape(o.permute_dims(hit, tuple(order)), spread)
    return o.where(hit, written if mode == "set" else _COMBINE[mode](part, written), part)


def _meetings(part: Tensor, key: Subscript) -> tuple[Any, Any]:
    """Which pairs of updates go to one place, and which updates are the last of their place; None: no two meet."""
    o = FUNCTIONS
    last = _known_last(part, key)
    if last is not None and last.all():
        return None, None
    count = product(key.indices[0].shape)
    places: Any = 0
    for one, axis in zip(key.indices, key.axes, strict=True):
        size = part.shape[axis]
        extent = size if isinstance(size, int) else size_value(size, int64)
        line = o.reshape(one, (count,))
        places = o.add(o.multiply(places, extent), o.where(o.less(line, 0), o.add(line, extent), line))
    same = o.equal(o.reshape(places, (count, 1)), o.reshape(places, (1, count)))
    if last is not None:
        return same, o.constant(last)
    number = o.iota((count,), 0)
    later = o.less(o.reshape(number, (count, 1)), o.reshape(number, (1, count)))
    return same, o.logical_not(o.any(o.logical_and(same, later), axis=1))


def _known_last(part: Tensor, key: Subscript) -> Array | None:
    """Which updates are the last of their place, where all indices are part of the program."""
    flat = np.zeros(1, np.int64)
    for one, axis in zip(key.indices, key.axes, strict=True):
        values, size = _all_values(one), part.shape[axis]
        if values is None or not isinstance(size, int):
            return None
        flat = flat * size + np.where(values < 0, values + size, values).ravel()
    _, first_from_the_end = np.unique(flat[::-1], return_index=True)
    last = np.zeros(len(flat), np.bool_)
    last[len(flat) - 1 - first_from_the_end] = True
    return last


def _all_values(index: Tensor) -> Array | None:
    """Every value of an index that is part of the program."""
    if index.op.op.name not in ("constant", "full", "iota", "astype", "broadcast_to", "reshape"):
        return None
    values = [_all_values(x) for x in index.op.inputs]
    if not index.type.static or any(value is None for value in values):
        return None
    return np.asarray(index.op.op.reference(index.op.attrs, *values))


def _extreme_of_meeting(same: Tensor, new: Tensor, mode: str) -> Tensor:
    """For each update the extreme of all updates of its place."""
    o = FUNCTIONS
    others = o.reshape(new, (1, *new.shape))
    least = -np.inf if is_floating(new.dtype) else int(np.iinfo(new.dtype).min)
    most = np.inf if is_floating(new.dtype) else int(np.iinfo(new.dtype).max)
    pairs = o.reshape(same, (*same.shape, *(1 for _ in new.shape[1:])))
    chosen = o.where(pairs, others, least if mode == "max" else most)
    return FUNCTIONS.__getattr__(mode)(chosen, axis=1)


def _put_back(x: Tensor, part: Tensor, slices: SliceAttributes) -> Tensor:
    """``x`` with ``part`` in the place of its slice."""
    if part.shape == x.shape and all(step == 1 for step in slices.steps):
        return part
    o = FUNCTIONS
    inside = unslice(o.full(part.shape, True, dtype=bool_), slices, x.shape)
    return o.where(inside, unslice(part, slices, x.shape), x)


# -- one_hot --------------------------------------------------------------------------------------------------------


@frozen
class OneHotAttributes:
    """How many classes there are, and the dtype of the result."""

    num_classes: Size
    dtype: np.dtype


def _one_hot_type(attrs: OneHotAttributes, labels: TensorType) -> TensorType:
    if not is_integer(labels.dtype):
        raise GraphError(f"one_hot: expected integer labels, actual {labels}")
    return TensorType((*labels.shape, attrs.num_classes), attrs.dtype)


def _check_labels(attrs: OneHotAttributes, labels: Array, source: SourceLine | None) -> None:
    if labels.size and (labels.min() < 0 or labels.max() >= attrs.num_classes):
        wrong = labels[(labels < 0) | (labels >= attrs.num_classes)].flat[0]
        raise BoundsError(f"one_hot: label {wrong} is out of range for {attrs.num_classes} classes", source=source)


def _one_hot_reference(attrs: OneHotAttributes, labels: Array) -> Array:
    _check_labels(attrs, labels, None)
    return np.eye(int(attrs.num_classes), dtype=attrs.dtype)[labels]


def _expand_one_hot(o: Namespace, node: Primal) -> Sequence[Any]:
    labels, attrs = node.inputs[0], node.attrs
    limits = BoundsAttributes(attrs.num_classes, "one_hot")
    check = graph_of((labels,)).add(BOUNDS_CHECK, (labels,), limits)
    with control_dependencies([check]):
        hit = o.equal(o.expand_dims(labels, -1), o.iota((attrs.num_classes,), 0, dtype=labels.dtype))
    return [o.astype(hit, attrs.dtype)]


ONE_HOT = register(
    Op(
        "one_hot",
        "1 at the label's place along a new last axis, 0 elsewhere.",
        infer=_one_hot_type,
        reference=_one_hot_reference,
        expand=_expand_one_hot,
        differentiable=False,
        dtypes=(int32, int64),
        cases=(
            Case(((3,),), OneHotAttributes(4, int64), (Range(0, 3),)),
            Case(((2, 3),), OneHotAttributes(5, float32), (Range(0, 4),)),
            Case(((),), OneHotAttributes(3, bool_), (Range(0, 2),)),
        ),
    )
)


@public
def one_hot(input: Any, num_classes: Size = -1, *, dtype: DTypeLike = int64) -> Tensor:
    """1 at the label's place along a new last axis, 0 elsewhere.

    Args:
        input: integer labels in [0, num_classes).
        num_classes: -1 takes one more than the largest label, which must be a constant then.

    Raises:
        GraphError: labels that are no integers, or ``num_classes=-1`` for labels that are not constant.
        BoundsError: a constant label is out of range; others are checked in the run.
    """
    labels = operands("one_hot", input)[0]
    known = _all_values(labels)
    if num_classes == -1:
        if known is None:
            raise GraphError("one_hot: num_classes must be given for labels that are not constant")
        num_classes = int(known.max(initial=-1)) + 1
    attrs = OneHotAttributes(num_classes, dtype_of(dtype))
    if known is not None and isinstance(num_classes, int) and is_integer(labels.dtype):
        _check_labels(attrs, known, user_source())
    return declare(ONE_HOT, (labels,), attrs)
