"""Sorting along an axis, the first of what is sorted, and looking up in it.

``sort`` gives values and indices; which of them a program computes follows from what it reads. NaN is the largest, as
in NumPy. Equal elements keep their order. The derivative of sorted values is that of a gather at the indices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPES, Size, TensorType, int64, integer, is_floating, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import operands
from staticgrad.ops.elementwise.copies import widened


@frozen
class SortAttributes:
    """The axis along which elements are sorted, and whether the largest comes first."""

    axis: int
    descending: bool

    def leading(self, size: Size) -> SortAttributes:
        return SortAttributes(self.axis + 1, self.descending)


def _sort_type(attrs: SortAttributes, x: TensorType) -> tuple[TensorType, TensorType]:
    if not 0 <= attrs.axis < x.ndim:
        raise GraphError(f"sort: {x} has no axis {attrs.axis}")
    return x, TensorType(x.shape, int64)


def _rows_type(attrs: SortAttributes, x: TensorType) -> tuple[TensorType, TensorType]:
    if attrs.axis != x.ndim - 1:
        raise GraphError(f"sort_rows: axis {attrs.axis} is not the last one of {x}")
    return _sort_type(attrs, x)


def _sort_reference(attrs: SortAttributes, x: Array) -> tuple[Array, Array]:
    if attrs.descending:  # from the end, so that equal elements keep their order when turned
        turned = np.argsort(np.flip(x, attrs.axis), axis=attrs.axis, kind="stable")
        order = np.flip(x.shape[attrs.axis] - 1 - turned, attrs.axis)
    else:
        order = np.argsort(x, axis=attrs.axis, kind="stable")
    return np.take_along_axis(x, order, attrs.axis), order.astype(np.int64)


def _expand_sort(o: Namespace, node: Primal[SortAttributes]) -> Sequence[Tensor]:
    x, attrs = node.inputs[0], node.attrs
    last = x.ndim - 1
    rows = graph_of((x,)).add(SORT_ROWS, (o.moveaxis(x, attrs.axis, last),), SortAttributes(last, attrs.descending))
    return [o.moveaxis(y, last, attrs.axis) for y in rows.outputs]


def _grid(o: Namespace, indices: Tensor, axis: int) -> list[Tensor]:
    """The index of every axis of the element that an index along ``axis`` names."""
    return [indices if i == axis else o.iota(indices.shape, i) for i in range(indices.ndim)]


def _vjp_sort(o: Namespace, node: Primal[SortAttributes], ct: Tensor | None, _: Tensor) -> Sequence[Tensor | None]:
    if ct is None:
        return (None,)
    return (o.scatter_add(o.zeros_like(ct), ct, *_grid(o, node.outputs[1], node.attrs.axis)),)


def _jvp_sort(o: Namespace, node: Primal[SortAttributes], t: Tensor) -> Sequence[Tensor | None]:
    if not is_floating(node.inputs[0].dtype):
        return None, None
    return o.gather(t, *_grid(o, node.outputs[1], node.attrs.axis)), None


def _cases(rows: bool) -> tuple[Case, ...]:
    forms = (
        ((6,), 0), ((1,), 0), ((0,), 0), ((3, 7), 1), ((2, 3, 21), 2), ((2, 170), 1), ((2, 70), 1), ((5, 0), 1),
        *(() if rows else (((5, 3), 0), ((2, 9, 4), 1))),
    )  # fmt: skip
    return tuple(
        Case((shape,), SortAttributes(axis, descending), distinct=True)
        for shape, axis in forms
        for descending in (False, True)
    )


SORT = register(
    Op(
        "sort",
        "The elements along an axis in order, and the indices at which they were; equal ones keep their order.",
        infer=_sort_type,
        reference=_sort_reference,
        expand=_expand_sort,
        vjp=_vjp_sort,
        jvp=_jvp_sort,
        dtypes=DTYPES,
        cases=_cases(rows=False),
        batch=leading,
    )
)

SORT_ROWS = register(
    Op(
        "sort_rows",
        "``sort`` along the last axis, as kernels do it.",
        infer=_rows_type,
        reference=_sort_reference,
        differentiable=False,
        dtypes=DTYPES,
        cases=_cases(rows=True),
        role="routine",
        batch=leading,
    )
)


def _sorted(what: str, x: TensorLike, axis: int, descending: bool) -> Sequence[Tensor]:
    tensor = lift(x)
    if tensor.ndim == 0:
        raise GraphError(f"{what}: {tensor.name!r} {tensor.type} has no axis")
    return tensor.graph.add(
        SORT, (tensor,), SortAttributes(normalize_axis(axis, tensor.ndim, what), bool(descending))
    ).outputs


@public
def sort(x: TensorLike, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along ``axis``. NaN is the largest: the last, or with ``descending`` the first.

    Args:
        stable: sorts here are stable in any case.

    Raises:
        GraphError: a tensor without axes.

    Example:
        >>> sg.Session().run(sg.sort([2.0, sg.nan, 1.0, 3.0]))
        array([ 1.,  2.,  3., nan], dtype=float32)
        >>> sg.Session().run(sg.sort([[2, 1], [3, 4]], axis=0, descending=True))
        array([[3, 4],
               [2, 1]])
    """
    return _sorted("sort", x, axis, descending)[0]


@public
def argsort(x: TensorLike, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The int64 indices that put the elements in order along ``axis``; those of equal elements in increasing order.

    NaN is the largest: the last, or with ``descending`` the first.

    Args:
        stable: sorts here are stable in any case.

    Raises:
        GraphError: a tensor without axes.

    Example:
        >>> sg.Session().run(sg.argsort([20.0, 10.0, 20.0]))
        array([1, 0, 2])
        >>> sg.Session().run(sg.argsort([20.0, 10.0, 20.0], descending=True))
        array([0, 2, 1])
    """
    return _sorted("argsort", x, axis, descending)[1]


@public
def lexsort(keys: Sequence[TensorLike] | Tensor, axis: int = -1) -> Tensor:
    """The int64 indices that put elements in order along ``axis`` by several keys: by the last one, those that are
    equal there by the one before it, and so on; those that are equal in all in increasing order.

    Args:
        keys: a list of tensors of one shape, or a tensor of which axis 0 goes over them.

    Raises:
        GraphError: no key, or keys of several shapes.

    Example:
        >>> surnames, names = np.array([2, 0, 2]), np.array([1, 5, 0])
        >>> sg.Session().run(sg.lexsort([names, surnames]))
        array([1, 2, 0])
    """
    o = FUNCTIONS
    rows = list(o.unstack(keys)) if isinstance(keys, Tensor) else list(keys)
    graph = graph_of(rows)
    with graph:
        found = widened([lift(row, graph) for row in rows])
        sizes = [{n for n in sizes if isinstance(n, int)} for sizes in zip(*(row.shape for row in found), strict=False)]
        if len({row.ndim for row in found}) != 1 or any(len(known) > 1 for known in sizes):
            raise GraphError(f"lexsort: expected keys of one shape, actual {', '.join(str(row.type) for row in found)}")
        order = argsort(found[0], axis)
        place = normalize_axis(axis, order.ndim, "lexsort")
        for key in found[1:]:
            finer = argsort(o.gather(key, *_grid(o, order, place)), place)
            order = o.gather(order, *_grid(o, finer, place))
        return order


# -- the first of them ------------------------------------------------------------------------------------------------


@frozen
class TopkAttributes:
    """The axis along which elements are sorted, how many of them are kept, and whether those are the largest."""

    axis: int
    k: int
    largest: bool

    def leading(self, size: Size) -> TopkAttributes:
        return TopkAttributes(self.axis + 1, self.k, self.largest)


def _topk_type(attrs: TopkAttributes, x: TensorType) -> tuple[TensorType, TensorType]:
    if not 0 <= attrs.axis < x.ndim:
        raise GraphError(f"topk: {x} has no axis {attrs.axis}")
    size = x.shape[attrs.axis]
    if attrs.k < 0 or (isinstance(size, int) and attrs.k > size):
        raise GraphError(f"topk: expected k of 0 to {size}, the size of axis {attrs.axis} of {x}, actual {attrs.k}")
    shape = (*x.shape[: attrs.axis], attrs.k, *x.shape[attrs.axis + 1 :])
    return TensorType(shape, x.dtype), TensorType(shape, int64)


def _first(attrs: TopkAttributes) -> tuple[slice, ...]:
    return (*(slice(None),) * attrs.axis, slice(0, attrs.k))


def _topk_reference(attrs: TopkAttributes, x: Array) -> tuple[Array, Array]:
    values, order = _sort_reference(SortAttributes(attrs.axis, attrs.largest), x)
    return values[_first(attrs)], order[_first(attrs)]


def _expand_topk(o: Namespace, node: Primal[TopkAttributes]) -> Sequence[Tensor]:
    x, attrs = node.inputs[0], node.attrs
    both = graph_of((x,)).add(SORT, (x,), SortAttributes(attrs.axis, attrs.largest)).outputs
    return [y[_first(attrs)] for y in both]


def _vjp_topk(o: Namespace, node: Primal[TopkAttributes], ct: Tensor | None, _: Tensor) -> Sequence[Tensor | None]:
    if ct is None:
        return (None,)
    return (o.scatter_add(o.zeros_like(node.inputs[0]), ct, *_grid(o, node.outputs[1], node.attrs.axis)),)


TOPK = register(
    Op(
        "topk",
        "The first elements along an axis when they are sorted, and the indices at which they were.",
        infer=_topk_type,
        reference=_topk_reference,
        expand=_expand_topk,
        vjp=_vjp_topk,
        jvp=_jvp_sort,
        dtypes=DTYPES,
        cases=tuple(
            Case((shape,), TopkAttributes(axis, k, largest), distinct=True)
            for shape, axis, k in (((6,), 0, 2), ((3, 7), 1, 7), ((5, 3), 0, 1), ((2, 9, 4), 1, 4), ((4,), 0, 0))
            for largest in (True, False)
        ),
        batch=leading,
    )
)


@public
def topk(x: TensorLike, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The ``k`` largest elements along ``axis``, the largest first, and where they were.

    Among equal elements the one with the lowest index comes first. NaN is the largest. Gradients flow to the elements
    that were chosen.

    Args:
        x: a tensor of any dtype, of at least one axis.
        k: how many, at most the size of the axis.
        axis: along which elements are compared.
        largest: without it the ``k`` smallest, the smallest first.
        sorted: results here are sorted in any case.

    Returns:
        The values and their int64 indices, both of the shape of ``x`` with ``k`` in the place of the axis.

    Raises:
        GraphError: a tensor without axes, or ``k`` is no number of elements that the axis has.

    Example:
        >>> values, indices = sg.topk([0.5, 2.0, 1.0, 2.0], 3)
        >>> sg.Session().run([values, indices])
        [array([2., 2., 1.], dtype=float32), array([1, 3, 2])]
    """
    tensor = lift(x)
    if tensor.ndim == 0:
        raise GraphError(f"topk: {tensor.name!r} {tensor.type} has no axis")
    attrs = TopkAttributes(normalize_axis(axis, tensor.ndim, "topk"), integer(k, "topk: k"), bool(largest))
    values, indices = graph_of((tensor,)).add(TOPK, (tensor,), attrs).outputs
    return values, indices


MOST_COMPARED = 256  # boundaries; among more a search by halves is faster than a comparison with each (measured)


@public
def searchsorted(x1: TensorLike, x2: TensorLike, *, side: str = "left", sorter: TensorLike | None = None) -> Tensor:
    """The indices at which elements would have to be put into a sorted one-dimensional tensor to keep it sorted, as
    int64.

    Costs a comparison of each pair, vectorised; among many boundaries a search by halves.

    Args:
        x1: (n,), in ascending order, or in any order with ``sorter``; or rows (…, n) of which each is in order.
        x2: the elements, of any shape; (…, m) for rows.
        side: "left": before equal ones; "right": after them.
        sorter: indices that sort ``x1``.

    Returns:
        The shape of ``x2``.

    Raises:
        GraphError: another ``side``, no boundary axis, or rows and elements of several numbers of axes.

    Example:
        >>> sg.Session().run(sg.searchsorted([1.0, 3.0, 5.0], [0.0, 3.0, 9.0]))
        array([0, 1, 3])
        >>> sg.Session().run(sg.searchsorted([1.0, 3.0, 5.0], [0.0, 3.0, 9.0], side="right"))
        array([0, 2, 3])
    """
    o = FUNCTIONS
    bounds, values = operands("searchsorted", x1, x2, quiet=True)
    if bounds.ndim == 0 or side not in ("left", "right"):
        raise GraphError(f'searchsorted: expected (n,) and side "left" or "right", actual {bounds.type} and {side!r}')
    if bounds.ndim > 1:
        if bounds.ndim != values.ndim or sorter is not None:
            raise GraphError(f"searchsorted: expected rows (…, n) and (…, m), actual {bounds.type} and {values.type}")
        edges, wanted = o.expand_dims(bounds, -2), o.expand_dims(values, -1)
        return o.sum(_comes_before(edges, wanted, side), axis=-1, dtype=int64)
    if sorter is not None:
        bounds = o.take(bounds, sorter, axis=0)
    size = bounds.shape[0]
    if isinstance(size, int) and size > MOST_COMPARED:
        return _by_halves(bounds, values, side, size)
    edges = o.reshape(bounds, (*(1 for _ in values.shape), size))
    return o.sum(_comes_before(edges, o.expand_dims(values, -1), side), axis=-1, dtype=int64)


def _comes_before(edges: Tensor, wanted: Tensor, side: str) -> Tensor:
    """True where an edge stays in front of an element; NaN is the largest, and equal to itself."""
    o = FUNCTIONS
    if side == "left":
        before = o.less(edges, wanted)
        later = o.logical_and(o.isnan(wanted), o.logical_not(o.isnan(edges))) if is_floating(edges.dtype) else None
    else:
        before = o.less_equal(edges, wanted)
        later = o.isnan(wanted) if is_floating(edges.dtype) else None
    return before if later is None else o.logical_or(before, later)


def _by_halves(bounds: Tensor, values: Tensor, side: str, size: int) -> Tensor:
    """The number of edges in front of each element, from its highest bit down."""
    o = FUNCTIONS
    place = o.zeros(values.shape, dtype=int64)
    for bit in reversed(range(size.bit_length())):
        further = o.add(place, 1 << bit)
        edge = o.gather(bounds, o.minimum(o.subtract(further, 1), size - 1))
        goes = o.logical_and(o.less_equal(further, size), _comes_before(edge, values, side))
        place = o.where(goes, further, place)
    return place


@public
def isin(x1: TensorLike, x2: TensorLike, *, invert: bool = False) -> Tensor:
    """True for each element of ``x1`` that is equal to some element of ``x2``; with ``invert`` for each that is equal
    to none.

    Costs a comparison of each pair, vectorised. NaN is equal to nothing.

    Returns:
        bools of the shape of ``x1``.

    Example:
        >>> sg.Session().run(sg.isin([1, 2, 3, 4], [2, 4]))
        array([False,  True, False,  True])
    """
    o = FUNCTIONS
    values, wanted = operands("isin", x1, x2, quiet=True)
    pairs = o.equal(o.expand_dims(values, -1), o.reshape(wanted, (*(1 for _ in values.shape), wanted.size)))
    found = o.any(pairs, axis=-1)
    return o.logical_not(found) if invert else found
