"""Running sums and products along an axis, and the recurrence that their derivatives are made of.

``cumulative_sum cumulative_prod linear_recurrence`` are primitives. The derivative of a running sum is a running sum
from the other end. With P the running product of x and cotangents g,

    dx[k] = P[k−1] · S[k],    S[k] = g[k] + x[k+1]·S[k+1]

which needs no division, so it is right where elements are zero. S is a first-order linear recurrence; its own
derivatives are again recurrences, so all orders follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTypeLike,
    Size,
    TensorType,
    bool_,
    dtype_of,
    integer,
    is_floating,
    normalize_axis,
    takes,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.declare import NUMERIC, added, declare, operands
from staticgrad.ops.elementwise.copies import rounded_once
from staticgrad.ops.reductions import total_dtype
from staticgrad.ops.views.joining import concat
from staticgrad.ops.views.slicing import bounds_within, slice_axis


@frozen
class CumulativeAttributes:
    """The axis along which elements follow each other, and whether from its end."""

    axis: int
    reverse: bool

    def leading(self, size: Size) -> CumulativeAttributes:
        return CumulativeAttributes(self.axis + 1, self.reverse)


def same_type(name: str) -> Callable[..., TensorType]:
    def infer(attrs: CumulativeAttributes, *types: TensorType) -> TensorType:
        first = types[0]
        if not 0 <= attrs.axis < first.ndim or not takes(NUMERIC, first.dtype) or any(t != first for t in types):
            listed = ", ".join(map(str, types))
            raise GraphError(f"{name}: expected numbers of one type with an axis {attrs.axis}, actual {listed}")
        return first

    return infer


def running(accumulate: Callable[..., Array]) -> Callable[..., Array]:
    """Along an axis, from its end where asked for; floats are computed in float64 and rounded once."""

    def reference(attrs: CumulativeAttributes, x: Array) -> Array:
        wide = x.astype(np.float64) if is_floating(x.dtype) else x
        ordered = np.flip(wide, attrs.axis) if attrs.reverse else wide
        with np.errstate(all="ignore"):
            y = accumulate(ordered, axis=attrs.axis, dtype=wide.dtype)
        return np.asarray(np.flip(y, attrs.axis) if attrs.reverse else y).astype(x.dtype)

    return reference


def _recurrence_reference(attrs: CumulativeAttributes, a: Array, b: Array) -> Array:
    wide = np.float64 if is_floating(b.dtype) else b.dtype
    factors, terms = (np.moveaxis(x.astype(wide), attrs.axis, 0) for x in (a, b))
    result = np.zeros_like(terms)
    state = np.zeros_like(terms[:1].sum(0))
    places = range(len(terms))
    with np.errstate(all="ignore"):
        for k in reversed(places) if attrs.reverse else places:
            state = factors[k] * state + terms[k]
            result[k] = state
    return np.moveaxis(result, 0, attrs.axis).astype(b.dtype)


def before(x: Tensor, attrs: CumulativeAttributes, first: float) -> Tensor:
    """The element before each element in the order of the sum; ``first`` before the first one."""
    size, axis = x.shape[attrs.axis], attrs.axis
    edge, none = [0] * x.ndim, (0,) * x.ndim
    edge[axis] = 1
    low, high = (none, tuple(edge)) if attrs.reverse else (tuple(edge), none)

    def padded(y: Tensor) -> Tensor:
        return FUNCTIONS.pad_with(y, low, high, none, x.dtype.type(first).item())

    if isinstance(size, int):
        return padded(slice_axis(x, axis, 1, size) if attrs.reverse else slice_axis(x, axis, 0, size - 1))
    longer = padded(x)  # so that a size of 0 has a slice, too
    return slice_axis(longer, axis, 1, size + 1) if attrs.reverse else slice_axis(longer, axis, 0, size)


def turned(attrs: CumulativeAttributes) -> CumulativeAttributes:
    return CumulativeAttributes(attrs.axis, not attrs.reverse)


def recurrence(a: Tensor, b: Tensor, attrs: CumulativeAttributes) -> Tensor:
    return declare(LINEAR_RECURRENCE, (a, b), attrs)


def _vjp_sum(o: Namespace, node: Primal[CumulativeAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    return (declare(CUMULATIVE_SUM, (ct,), turned(node.attrs)),)


def _vjp_prod(o: Namespace, node: Primal[CumulativeAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, y, attrs = node.inputs[0], node.outputs[0], node.attrs
    if x.shape[attrs.axis] == 0:
        return (ct,)
    back = turned(attrs)
    return (o.multiply(recurrence(before(x, back, 0), ct, back), before(y, attrs, 1)),)


def _jvp_prod(o: Namespace, node: Primal[CumulativeAttributes], t: Tensor) -> Sequence[Tensor | None]:
    x, y, attrs = node.inputs[0], node.outputs[0], node.attrs
    if x.shape[attrs.axis] == 0:
        return (t,)
    return (recurrence(x, o.multiply(t, before(y, attrs, 1)), attrs),)


def _vjp_recurrence(o: Namespace, node: Primal[CumulativeAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    (a, _), s, attrs = node.inputs, node.outputs[0], node.attrs
    if a.shape[attrs.axis] == 0:
        return ct, ct
    back = turned(attrs)
    terms = recurrence(before(a, back, 0), ct, back)
    return o.multiply(terms, before(s, attrs, 0)), terms


def _jvp_recurrence(
    o: Namespace, node: Primal[CumulativeAttributes], ta: Tensor | None, tb: Tensor | None
) -> Sequence[Tensor | None]:
    (a, _), s, attrs = node.inputs, node.outputs[0], node.attrs
    if a.shape[attrs.axis] == 0:
        return (ta if tb is None else tb,)
    moved = None if ta is None else o.multiply(ta, before(s, attrs, 0))
    return (recurrence(a, added(o, moved, tb), attrs),)


def cumulative_cases(arity: int, where: Range, distinct: bool = False) -> tuple[Case, ...]:
    forms = (
        ((5,), 0), ((1,), 0), ((0,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 5, 3), 1), ((2, 0, 3), 1), ((37,), 0),
        ((2, 67), 1), ((6, 19), 0), ((3, 0), 0),
    )  # fmt: skip
    return tuple(
        Case((shape,) * arity, CumulativeAttributes(axis, reverse), (where,) * arity, distinct=distinct)
        for shape, axis in forms
        for reverse in (False, True)
    )


CUMULATIVE_SUM = register(
    Op(
        "cumulative_sum",
        "Sums of the elements up to each, along an axis.",
        infer=same_type("cumulative_sum"),
        reference=running(np.cumsum),
        vjp=_vjp_sum,
        linear=True,
        dtypes=NUMERIC,
        cases=cumulative_cases(1, Range()),
        grad_name="Cumsum",
        role="routine",
        batch=leading,
    )
)

CUMULATIVE_PROD = register(
    Op(
        "cumulative_prod",
        "Products of the elements up to each, along an axis.",
        infer=same_type("cumulative_prod"),
        reference=running(np.cumprod),
        vjp=_vjp_prod,
        jvp=_jvp_prod,
        dtypes=NUMERIC,
        cases=cumulative_cases(1, Range(-1.5, 1.5)),
        grad_name="Cumprod",
        tolerance=4.0,
        role="routine",
        batch=leading,
    )
)

LINEAR_RECURRENCE = register(
    Op(
        "linear_recurrence",
        "s[k] = a[k]·s[k−1] + b[k] along an axis, from zero.",
        infer=same_type("linear_recurrence"),
        reference=_recurrence_reference,
        vjp=_vjp_recurrence,
        jvp=_jvp_recurrence,
        dtypes=NUMERIC,
        cases=cumulative_cases(2, Range(-1.2, 1.2)),
        tolerance=4.0,
        role="routine",
        batch=leading,
    )
)


def along(what: str, x: Tensor, axis: int | None) -> int:
    """The axis of a running function, which may be left out for one-dimensional tensors."""
    if axis is None and x.ndim != 1:
        raise GraphError(f"{what}: axis must be given for {x.name!r} {x.type}, which is not one-dimensional")
    return normalize_axis(0 if axis is None else axis, x.ndim, what)


def _cumulative(
    op: Op, x: TensorLike, axis: int | None, dtype: DTypeLike | None, include_initial: bool, initial: int, reverse: bool
) -> Tensor:
    kind = None if dtype is None else dtype_of(dtype)
    tensor = operands(op.name, x)[0] if kind is None else FUNCTIONS.astype(x, kind)
    place = along(op.name, tensor, axis)
    if kind is None:
        kind = total_dtype(tensor.dtype)
    if not takes(NUMERIC, kind):
        raise GraphError(f"{op.name}: expected a dtype among {', '.join(d.name for d in NUMERIC)}, actual {kind.name}")
    y = declare(op, (FUNCTIONS.astype(tensor, kind),), CumulativeAttributes(place, bool(reverse)))
    if not include_initial:
        return y
    shape = (*y.shape[:place], 1, *y.shape[place + 1 :])
    first = FUNCTIONS.full(shape, initial, dtype=kind)
    return concat([y, first] if reverse else [first, y], axis=place)


@public
def cumulative_sum(
    x: TensorLike,
    axis: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The sums of the elements up to and including each, along ``axis``.

    Args:
        axis: may be left out for one-dimensional tensors.
        dtype: of the sums; default: that of ``x`` for floats, int64 for bools and signed integers, uint64 for
            unsigned ones.
        include_initial: begin with 0, which makes the result one longer.
        reverse: from the last element to the first, each sum with all elements after its own.

    Raises:
        GraphError: no ``axis`` for a tensor that has not one dimension.

    Example:
        >>> sg.Session().run(sg.cumulative_sum([1.0, 2.0, 3.0]))
        array([1., 3., 6.], dtype=float32)
        >>> sg.Session().run(sg.cumulative_sum([[1, 2], [3, 4]], axis=1, include_initial=True))
        array([[0, 1, 3],
               [0, 3, 7]])
    """
    return _cumulative(CUMULATIVE_SUM, x, axis, dtype, include_initial, 0, reverse)


@public
def cumulative_prod(
    x: TensorLike,
    axis: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The products of the elements up to and including each, along ``axis``; zeros have right derivatives too.

    Args:
        axis: may be left out for one-dimensional tensors.
        dtype: of the products; default: that of ``x`` for floats, int64 for bools and signed integers, uint64 for
            unsigned ones.
        include_initial: begin with 1, which makes the result one longer.
        reverse: from the last element to the first, each product with all elements after its own.

    Raises:
        GraphError: no ``axis`` for a tensor that has not one dimension.

    Example:
        >>> sg.Session().run(sg.cumulative_prod([2, 3, 4]))
        array([ 2,  6, 24])
    """
    return _cumulative(CUMULATIVE_PROD, x, axis, dtype, include_initial, 1, reverse)


@public
def product_of_others(x: Tensor) -> Tensor:
    """For each element along the last axis, the product of all others."""
    forth, back = (CumulativeAttributes(x.ndim - 1, reverse) for reverse in (False, True))
    earlier, later = (before(declare(CUMULATIVE_PROD, (x,), attrs), attrs, 1) for attrs in (forth, back))
    return FUNCTIONS.multiply(earlier, later)


@public
def diff(
    x: TensorLike, axis: int = -1, *, n: int = 1, prepend: TensorLike | None = None, append: TensorLike | None = None
) -> Tensor:
    """The differences of neighbours along ``axis``, taken ``n`` times (0: ``x`` itself); of bools, whether they differ.

    Args:
        prepend: what comes before the first element, with the number of axes of ``x``.
        append: what comes after the last one.

    Raises:
        GraphError: a negative ``n``, or a tensor without axes.

    Example:
        >>> sg.Session().run(sg.diff([1.0, 4.0, 9.0, 16.0]))
        array([3., 5., 7.], dtype=float32)
        >>> sg.Session().run(sg.diff([1.0, 4.0, 9.0, 16.0], n=2, prepend=[0.0]))
        array([2., 2., 2.], dtype=float32)
    """
    n = integer(n, "diff: n", 0)
    ends = [x] if n == 0 else [part for part in (prepend, x, append) if part is not None]
    parts = operands("diff", *ends)
    place = normalize_axis(axis, parts[0].ndim, "diff")
    y = concat(parts, axis=place) if len(parts) > 1 else parts[0]
    return rounded_once(lambda y: _differences(y, place, n), y)


def _differences(y: Tensor, place: int, n: int) -> Tensor:
    for _ in range(n):
        size = y.shape[place]
        bounds = bounds_within(1, None, 1, size), bounds_within(None, -1, 1, size)
        later, earlier = (slice_axis(y, place, *ends) for ends in bounds)
        y = FUNCTIONS.not_equal(later, earlier) if y.dtype == bool_ else FUNCTIONS.subtract(later, earlier)
    return y
