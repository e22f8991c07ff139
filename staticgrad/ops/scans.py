"""Running extremes and log-sums along an axis, and running values of any associative function.

``cumulative_max cumulative_min`` are primitives; their derivative goes to the last element, in the order of the run,
that is the extreme so far. With the running maximum m of x, a running log-sum is a first-order linear recurrence of
numbers of at most 1, so nothing overflows, and so are its derivatives:

    s[k] = exp(m[k−1] − m[k])·s[k−1] + exp(x[k] − m[k]),    y[k] = m[k] + log s[k]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.base.types import bool_, int64, is_floating, normalize_axis, uint8
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Namespace, Op, Primal, Range, public, register
from staticgrad.graph.scopes import no_grad
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.control.bodies import require_function
from staticgrad.ops.cumulative import (
    CumulativeAttributes,
    along,
    before,
    cumulative_cases,
    recurrence,
    running,
    same_type,
    turned,
)
from staticgrad.ops.declare import FLOAT, NUMERIC, accepted, declare, operands
from staticgrad.ops.views.slicing import slice_axis

# -- extremes -------------------------------------------------------------------------------------------------------


def _places(o: Namespace, x: Tensor, y: Tensor, attrs: CumulativeAttributes) -> Tensor:
    """The place along the axis of each running extreme ``y``: the last one, in the order of the run, that holds it; of
    NaN the last one."""
    hit = o.equal(x, y)
    if is_floating(x.dtype):
        hit = o.logical_or(hit, o.isnan(x))
    never = np.iinfo(int64).max if attrs.reverse else 0
    found = o.where(hit, o.iota(x.shape, attrs.axis), never)
    return declare(CUMULATIVE_MIN if attrs.reverse else CUMULATIVE_MAX, (found,), attrs)


def _grid(o: Namespace, node: Primal[CumulativeAttributes]) -> list[Tensor]:
    places = _places(o, node.inputs[0], node.outputs[0], node.attrs)
    return [places if i == node.attrs.axis else o.iota(places.shape, i) for i in range(places.ndim)]


def _vjp_extreme(o: Namespace, node: Primal[CumulativeAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    return (o.scatter_add(o.zeros_like(ct), ct, *_grid(o, node)),)


def _jvp_extreme(o: Namespace, node: Primal[CumulativeAttributes], t: Tensor) -> Sequence[Tensor | None]:
    return (o.gather(t, *_grid(o, node)),)


def _extreme(name: str, doc: str, accumulate: Callable[..., Any]) -> Op:
    return register(
        Op(
            name,
            doc,
            infer=same_type(name),
            reference=running(accumulate),
            vjp=_vjp_extreme,
            jvp=_jvp_extreme,
            dtypes=NUMERIC,
            cases=cumulative_cases(1, Range(), distinct=True),
            grad_name="Cummaxmin",
            role="routine",
            batch=leading,
        )
    )


CUMULATIVE_MAX = _extreme("cumulative_max", "The largest element up to each, along an axis.", np.maximum.accumulate)
CUMULATIVE_MIN = _extreme("cumulative_min", "The smallest element up to each, along an axis.", np.minimum.accumulate)


def _running_extreme(
    op: Op, what: str, x: TensorLike, axis: int | None, reverse: bool, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]:
    (tensor,) = operands(what, x)
    attrs = CumulativeAttributes(along(what, tensor, axis), bool(reverse))
    own = FUNCTIONS.astype(tensor, uint8) if tensor.dtype == bool_ else tensor
    y = declare(op, (own,), attrs)
    result = FUNCTIONS.astype(y, bool_) if tensor.dtype == bool_ else y
    if not return_indices:
        return result
    with y.graph, no_grad():
        return result, _places(FUNCTIONS, own, y, attrs)


@overload
def cummax(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, return_indices: Literal[False] = False
) -> Tensor: ...


@overload
def cummax(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...


@public
def cummax(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest of the elements up to and including each, along ``axis``. From a NaN on, all are NaN.

    The gradient of each goes to the element that it is; of equal ones to the last in the order of the run.

    Args:
        axis: may be left out for one-dimensional tensors.
        reverse: from the last element to the first, each maximum with all elements after its own.
        return_indices: a pair: also the int64 place along the axis of the element that each is.

    Raises:
        GraphError: no ``axis`` for a tensor that has not one dimension.

    Example:
        >>> sg.Session().run(sg.cummax([1.0, 3.0, 2.0, 3.0], return_indices=True))
        (array([1., 3., 3., 3.], dtype=float32), array([0, 1, 1, 3]))
    """
    return _running_extreme(CUMULATIVE_MAX, "cummax", x, axis, reverse, return_indices)


@overload
def cummin(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, return_indices: Literal[False] = False
) -> Tensor: ...


@overload
def cummin(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...


@public
def cummin(
    x: TensorLike, axis: int | None = None, *, reverse: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The smallest of the elements up to and including each, along ``axis``. From a NaN on, all are NaN.

    The gradient of each goes to the element that it is; of equal ones to the last in the order of the run.

    Args:
        axis: may be left out for one-dimensional tensors.
        reverse: from the last element to the first, each minimum with all elements after its own.
        return_indices: a pair: also the int64 place along the axis of the element that each is.

    Raises:
        GraphError: no ``axis`` for a tensor that has not one dimension.

    Example:
        >>> sg.Session().run(sg.cummin([3.0, 1.0, 2.0], reverse=True))
        array([1., 1., 2.], dtype=float32)
    """
    return _running_extreme(CUMULATIVE_MIN, "cummin", x, axis, reverse, return_indices)


# -- logarithms of sums ---------------------------------------------------------------------------------------------


def _decay(o: Namespace, low: Tensor, high: Tensor) -> Tensor:
    """exp(low − high), which is at most 1; 1 for two equal infinities."""
    same = o.logical_and(o.equal(low, high), o.isinf(low))
    return o.exp(o.where(same, 0, low - high))


def _expand_logsum(o: Namespace, node: Primal[CumulativeAttributes]) -> Sequence[Tensor]:
    x, attrs = node.inputs[0], node.attrs
    if x.shape[attrs.axis] == 0:
        return [x]
    most = declare(CUMULATIVE_MAX, (x,), attrs)
    scale = o.where(o.isfinite(most), most, 0)
    total = recurrence(_decay(o, before(most, attrs, -math.inf), most), o.exp(x - scale), attrs)
    return [o.log(total) + scale]


def _share(o: Namespace, x: Tensor, y: Tensor) -> Tensor:
    """The part that each element has in its own log-sum; 0 of minus infinity."""
    return o.where(o.equal(x, -math.inf), 0, _decay(o, x, y))


def _vjp_logsum(o: Namespace, node: Primal[CumulativeAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    x, y, back = node.inputs[0], node.outputs[0], turned(node.attrs)
    if x.shape[back.axis] == 0:
        return (ct,)
    return (_share(o, x, y) * recurrence(_decay(o, y, before(y, back, math.inf)), ct, back),)


def _jvp_logsum(o: Namespace, node: Primal[CumulativeAttributes], t: Tensor) -> Sequence[Tensor | None]:
    x, y, attrs = node.inputs[0], node.outputs[0], node.attrs
    if x.shape[attrs.axis] == 0:
        return (t,)
    return (recurrence(_decay(o, before(y, attrs, -math.inf), y), _share(o, x, y) * t, attrs),)


LOGCUMSUMEXP = register(
    Op(
        "logcumsumexp",
        "The logarithm of the sum of the exponentials of the elements up to each, along an axis.",
        infer=same_type("logcumsumexp"),
        reference=running(np.logaddexp.accumulate),
        expand=_expand_logsum,
        vjp=_vjp_logsum,
        jvp=_jvp_logsum,
        dtypes=FLOAT,
        cases=cumulative_cases(1, Range(-3.0, 3.0)),
        tolerance=4.0,
        batch=leading,
    )
)


@public
def logcumsumexp(x: TensorLike, axis: int | None = None, *, reverse: bool = False) -> Tensor:
    """log(cumulative_sum(exp(x))) along ``axis``, without overflow. Integers and bools are computed as float64.

    Args:
        axis: may be left out for one-dimensional tensors.
        reverse: from the last element to the first, each sum with all elements after its own.

    Raises:
        GraphError: no ``axis`` for a tensor that has not one dimension.

    Example:
        >>> sg.Session().run(sg.logcumsumexp([1000.0, 1000.0, -sg.inf]))
        array([1000.    , 1000.693..., 1000.693...], dtype=float32)
    """
    (tensor,) = accepted("logcumsumexp", FLOAT, x)
    return declare(LOGCUMSUMEXP, (tensor,), CumulativeAttributes(along("logcumsumexp", tensor, axis), bool(reverse)))


# -- any associative function ---------------------------------------------------------------------------------------


@public
def associative_scan(fn: Callable[[Any, Any], Any], xs: Any, axis: int = 0, *, reverse: bool = False) -> Any:
    """The running values of an associative function along ``axis``: y[0] = x[0], y[k] = fn(y[k−1], x[k]).

    Neighbours are combined in pairs, then pairs of pairs: about 2·log₂(n) calls of ``fn`` on slices, 2·n elements in
    all, in the place of n turns of ``sg.scan``. Along an axis whose size feeds bind it is such a loop.

    Args:
        fn: of two nests like ``xs``, whose tensors are shorter along ``axis`` and otherwise shaped alike; it combines
            the elements at each place and returns such a nest. fn(fn(a, b), c) has to equal fn(a, fn(b, c)).
        xs: a nest of tensors that are equally long along ``axis``.
        reverse: from the last element to the first: y[k] = fn(y[k+1], x[k]).

    Returns:
        A nest like ``xs``.

    Raises:
        GraphError: tensors without the axis or of several lengths, or ``fn`` changes structure, shapes or dtypes.

    Example:
        >>> a, b = sg.constant([0.5, 0.5, 2.0]), sg.constant([1.0, 1.0, 1.0])
        >>> compose = lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1])
        >>> sg.Session().run(sg.associative_scan(compose, (a, b)))
        (array([0.5 , 0.25, 0.5 ], dtype=float32), array([1. , 1.5, 4. ], dtype=float32))
    """
    require_function("associative_scan: fn", fn, "a", "b")
    graph = graph_of(nests.flatten(xs))
    with graph:
        leaves = [lift(x, graph) for x in nests.flatten(xs)]
        places = [normalize_axis(axis, x.ndim, "associative_scan") for x in leaves]
        lengths = {x.shape[place] for x, place in zip(leaves, places, strict=True)}
        known = {size for size in lengths if isinstance(size, int)}
        if len(known) > 1 or len(set(places)) != 1:
            listed = ", ".join(str(x.type) for x in leaves)
            raise GraphError(f"associative_scan: expected tensors of one length along axis {axis}, actual {listed}")
        scanned = _Scanned(fn, xs, places[0])
        if reverse:
            leaves = [FUNCTIONS.flip(x, scanned.axis) for x in leaves]
        made = scanned.all(leaves) if lengths == known else scanned.one_by_one(leaves)
        return nests.pack(xs, [FUNCTIONS.flip(x, scanned.axis) for x in made] if reverse else made)


class _Scanned:
    """An associative function of lists of leaves along an axis."""

    def __init__(self, fn: Callable[[Any, Any], Any], nest: Any, axis: int) -> None:
        self.fn, self.nest, self.axis = fn, nest, axis

    def combined(self, first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
        answer = self.fn(nests.pack(self.nest, list(first)), nests.pack(self.nest, list(second)))
        found = [lift(x) for x in nests.flatten(answer)]
        if [x.type for x in found] != [x.type for x in first]:
            expected, actual = (", ".join(str(x.type) for x in xs) for xs in (first, found))
            raise GraphError(f"associative_scan: fn changes types\n  expected {expected}\n  actual   {actual}")
        return found

    def part(self, leaves: Sequence[Tensor], start: int, stop: int, step: int = 1) -> list[Tensor]:
        return [slice_axis(x, self.axis, start, stop, step) for x in leaves]

    def all(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Odd places are the running values of pairs; each even one follows from the odd one before it."""
        size = leaves[0].shape[self.axis]
        assert isinstance(size, int)
        if size < 2:
            return list(leaves)
        half = size // 2
        odd = self.all(self.combined(self.part(leaves, 0, 2 * half, 2), self.part(leaves, 1, 2 * half, 2)))
        first = self.part(leaves, 0, 1)
        if size == 2:
            return [FUNCTIONS.concat(pair, axis=self.axis) for pair in zip(first, odd, strict=True)]
        rest = (size - 1) // 2
        later = self.combined(self.part(odd, 0, rest), self.part(leaves, 2, size, 2))
        even = [FUNCTIONS.concat(pair, axis=self.axis) for pair in zip(first, later, strict=True)]
        return [self._alternating(x, y, half) for x, y in zip(even, odd, strict=True)]

    def _alternating(self, even: Tensor, odd: Tensor, half: int) -> Tensor:
        axis, o = self.axis, FUNCTIONS
        (whole,) = self.part([even], 0, half)
        shape = (*odd.shape[:axis], 2 * half, *odd.shape[axis + 1 :])
        pairs = o.reshape(o.stack([whole, odd], axis=axis + 1), shape)
        size = even.shape[axis]
        return pairs if size == half else o.concat([pairs, *self.part([even], half, half + 1)], axis=axis)

    def one_by_one(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """In a loop, for a length that is not known. The first turn replaces what the loop begins with."""
        o, axis = FUNCTIONS, self.axis
        rows = [o.moveaxis(x, axis, 0) for x in leaves]
        start = [o.zeros(row.shape[1:], dtype=row.dtype) for row in rows]

        def turn(carry: Any, row: Any) -> tuple[Any, Any]:
            began, old = carry
            new = [o.expand_dims(x, axis) for x in row]
            made = self.combined([o.expand_dims(x, axis) for x in old], new)
            kept = [o.squeeze(o.where(began, y, x), axis) for x, y in zip(new, made, strict=True)]
            return (o.full((), True, dtype=bool_), kept), kept

        _, made = o.scan(turn, (o.full((), False, dtype=bool_), start), rows)
        return [o.moveaxis(x, 0, axis) for x in made]
