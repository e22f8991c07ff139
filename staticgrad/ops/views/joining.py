"""Tensors side by side, and cut apart again: ``concat``, ``bucket``, ``stack``, ``split``, ``unstack``, ``roll``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    Dim,
    Size,
    TensorType,
    integer,
    integers,
    is_floating,
    larger,
    normalize_axis,
    product,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, BatchedNode, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.batch_rules import every, leading
from staticgrad.ops.declare import declare, not_known, operands, shown_as
from staticgrad.ops.views.reshaping import reshape
from staticgrad.ops.views.slicing import bounds_within, slice_axis


@frozen
class ConcatAttributes:
    """The axis along which operands follow each other."""

    axis: int

    def leading(self, size: Size) -> ConcatAttributes:
        return ConcatAttributes(self.axis + 1)


def _concat_type(attrs: ConcatAttributes, *types: TensorType) -> TensorType:
    first, axis = types[0], attrs.axis
    total: Size = 0
    shape = list(first.shape)
    for other in types:
        if other.dtype != first.dtype or other.ndim != first.ndim or not 0 <= axis < first.ndim:
            raise GraphError(f"concat: expected operands of one dtype and rank, actual {first} and {other}")
        for i, size in enumerate(other.shape):
            if i == axis:
                total = total + size
            elif isinstance(shape[i], Dim) and isinstance(size, int):
                shape[i] = size
            elif isinstance(size, int) and size != shape[i]:
                raise GraphError(f"concat: {first} and {other} differ in axis {i}, not only in axis {axis}")
    shape[axis] = total
    return TensorType(tuple(shape), first.dtype)


def _vjp_concat(o: Namespace, node: Primal[ConcatAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    result = []
    place: Size = 0
    for x in node.inputs:
        size = x.shape[node.attrs.axis]
        result.append(slice_axis(ct, node.attrs.axis, place, place + size) if is_floating(x.dtype) else None)
        place = place + size
    return result


def _jvp_joined(name: str) -> Callable[..., Sequence[Tensor | None]]:
    def jvp(o: Namespace, node: Primal[ConcatAttributes], *tangents: Tensor | None) -> Sequence[Tensor | None]:
        filled = [o.zeros_like(x) if t is None else t for x, t in zip(node.inputs, tangents, strict=True)]
        return (FUNCTIONS.__getattr__(name)(filled, axis=node.attrs.axis),)

    return jvp


CONCAT = register(
    Op(
        "concat",
        "Operands one after the other along an axis.",
        infer=_concat_type,
        reference=lambda attrs, *xs: np.concatenate(xs, axis=attrs.axis),
        vjp=_vjp_concat,
        jvp=_jvp_joined("concat"),
        moves=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4), (3, 2)), ConcatAttributes(1)),
            Case(((1, 4), (3, 4), (2, 4)), ConcatAttributes(0)),
            Case(((2, 3, 2), (2, 1, 2)), ConcatAttributes(1)),
            Case(((5,),), ConcatAttributes(0)),
            Case(((0, 2), (3, 2)), ConcatAttributes(0)),
        ),
        grad_name="Cat",
        role="write",
        cheap=True,
        batch=leading,
    )
)


def _split_bucket(o: Namespace, node: Primal[object], ct: Tensor) -> Sequence[Tensor | None]:
    result: list[Tensor | None] = []
    start: Size = 0
    for x in node.inputs:
        part = slice_axis(ct, 0, start, start + x.size)
        result.append(o.reshape(part, x.shape) if is_floating(x.dtype) else None)
        start = start + x.size
    return result


def _push_bucket(o: Namespace, node: Primal[object], *tangents: Tensor | None) -> Sequence[Tensor | None]:
    return (bucket([o.zeros_like(x) if t is None else t for x, t in zip(node.inputs, tangents, strict=True)]),)


def _buckets(o: Namespace, node: BatchedNode[object]) -> Sequence[Tensor]:
    return (o.concat([o.reshape(x, (node.size, product(x.shape[1:]))) for x in every(o, node)], axis=1),)


def _bucket_type(attrs: object, *xs: TensorType) -> TensorType:
    if len({x.dtype for x in xs}) != 1:
        raise GraphError(f"bucket: expected operands of one dtype, actual {', '.join(map(str, xs))}")
    return TensorType((sum((x.size for x in xs[1:]), xs[0].size),), xs[0].dtype)


BUCKET = register(
    Op(
        "bucket",
        "The elements of tensors of any shapes in row-major order, one tensor after the other.",
        infer=_bucket_type,
        reference=lambda attrs, *xs: np.concatenate([x.reshape(-1) for x in xs]),
        vjp=_split_bucket,
        jvp=_push_bucket,
        moves=True,
        dtypes=DTYPES,
        cases=(Case(((3, 4), (), (2, 1, 5))), Case(((4,),)), Case(((0, 2), (3, 2)))),
        role="write",
        cheap=True,
        batch=_buckets,
    )
)


@public
def bucket(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of the elements of tensors, into which the kernels that make them store."""
    return declare(BUCKET, tensors)


def _several(what: str, arrays: Iterable[TensorLike] | Tensor) -> tuple[Tensor, ...]:
    several = [*arrays] if isinstance(arrays, Iterable) and not isinstance(arrays, Tensor) else []
    if not several:
        raise GraphError(f"{what}: expected a list of tensors, actual {arrays!r}")
    return operands(what, *several)


@public
def concat(arrays: Sequence[TensorLike], axis: int | None = 0) -> Tensor:
    """Tensors one after the other along ``axis``; None joins them flattened.

    Raises:
        GraphError: no tensors, or shapes that differ elsewhere than along ``axis``.

    Example:
        >>> sg.Session().run(sg.concat([[[1, 2]], [[3, 4], [5, 6]]]))
        array([[1, 2],
               [3, 4],
               [5, 6]])
        >>> sg.Session().run(sg.concat([[[1, 2]], [[3, 4]]], axis=1))
        array([[1, 2, 3, 4]])
    """
    xs = _several("concat", arrays)
    if axis is None:
        xs, axis = tuple(reshape(x, -1) for x in xs), 0
    place = normalize_axis(axis, xs[0].ndim, "concat")
    return xs[0] if len(xs) == 1 and not xs[0].requires_grad else declare(CONCAT, xs, ConcatAttributes(place))


def _stack_type(attrs: ConcatAttributes, *types: TensorType) -> TensorType:
    widened = [TensorType((*t.shape[: attrs.axis], 1, *t.shape[attrs.axis :]), t.dtype) for t in types]
    return _concat_type(attrs, *widened)


def _vjp_stack(o: Namespace, node: Primal[ConcatAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    parts = o.unstack(ct, axis=node.attrs.axis)
    return [part if is_floating(x.dtype) else None for part, x in zip(parts, node.inputs, strict=True)]


STACK = register(
    Op(
        "stack",
        "Operands of one shape, joined along a new axis.",
        infer=_stack_type,
        reference=lambda attrs, *xs: np.stack(xs, axis=attrs.axis),
        expand=lambda o, node: [
            o.concat([o.expand_dims(x, node.attrs.axis) for x in node.inputs], axis=node.attrs.axis)
        ],
        vjp=_vjp_stack,
        jvp=_jvp_joined("stack"),
        moves=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4), (3, 4)), ConcatAttributes(0)),
            Case(((3, 4), (3, 4), (3, 4)), ConcatAttributes(2)),
            Case(((), ()), ConcatAttributes(0)),
            Case(((2, 3),), ConcatAttributes(1)),
        ),
        batch=leading,
    )
)


@public
def stack(arrays: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Tensors of one shape, joined along a new axis: n of them give a size n in the place of ``axis``.

    Raises:
        GraphError: no tensors, or different shapes.

    Example:
        >>> sg.Session().run(sg.stack([[1, 2], [3, 4]]))
        array([[1, 2],
               [3, 4]])
        >>> sg.Session().run(sg.stack([[1, 2], [3, 4]], axis=1))
        array([[1, 3],
               [2, 4]])
    """
    xs = _several("stack", arrays)
    return declare(STACK, xs, ConcatAttributes(normalize_axis(axis, xs[0].ndim + 1, "stack")))


def _fixed_size(x: Tensor, axis: int, what: str) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise not_known(what, f"the size {size} of axis {axis} of {x.name!r}")
    return size


@public
@shown_as("UnbindBackward0")
def unstack(x: TensorLike, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of ``x`` at each place of ``axis``, without that axis.

    Raises:
        GraphError: the size of the axis is bound by feeds.

    Example:
        >>> x, y = sg.unstack(sg.constant([[1, 2], [3, 4]]), axis=1)
        >>> sg.Session().run([x, y])
        [array([1, 3]), array([2, 4])]
    """
    x = lift(x)
    i = normalize_axis(axis, x.ndim, "unstack")
    shape = (*x.shape[:i], *x.shape[i + 1 :])
    size = _fixed_size(x, i, "unstack")
    return tuple([reshape(slice_axis(x, i, place, place + 1), shape) for place in range(size)])


@public
@shown_as("SplitBackward0")
def split(x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """As ``np.split``: into a number of equal parts, or before each of the given indices.

    Where feeds bind the size and it is no multiple of the number, the last part has the rest too.

    Raises:
        GraphError: the size is no multiple of the number of parts.

    Example:
        >>> [part.shape for part in sg.split(sg.zeros(6), 3)]
        [(2,), (2,), (2,)]
        >>> [part.shape for part in sg.split(sg.zeros((2, 6)), [1, 4], axis=1)]
        [(2, 1), (2, 3), (2, 2)]
    """
    x = lift(x)
    i = normalize_axis(axis, x.ndim, "split")
    size = x.shape[i]
    if not np.iterable(indices_or_sections):
        sections = integer(indices_or_sections, "split: indices_or_sections", 1)
        if isinstance(size, int) and size % sections:
            raise GraphError(f"split: axis {i} of {x.name!r} {x.type} has no {sections} equal parts")
        bounds = [place * (size // sections) for place in range(sections)] + [size]
    else:
        bounds = [0, *integers(indices_or_sections, "split: indices_or_sections"), size]
    parts = [slice_axis(x, i, *bounds_within(a, b, 1, size)) for a, b in itertools.pairwise(bounds)]
    return [reshape(x, x.shape) if part is x else part for part in parts]


@public
@shown_as("RollBackward0")
def roll(x: TensorLike, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements moved on by ``shift`` places along ``axis``, those at the end to the front.

    Without ``axis`` the flattened tensor is rolled.

    Example:
        >>> sg.Session().run(sg.roll([1, 2, 3, 4], 1))
        array([4, 1, 2, 3])
        >>> sg.Session().run(sg.roll([[1, 2], [3, 4]], -1, axis=0))
        array([[3, 4],
               [1, 2]])
    """
    x = y = lift(x)
    if axis is None:
        return reshape(roll(reshape(y, -1), shift, 0), y.shape)
    axes, shifts = integers(axis, "roll: axis"), integers(shift, "roll: shift")
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise GraphError(f"roll: expected a shift for each axis, actual {shift} and {axis}")
    for amount, place in zip(shifts, axes, strict=True):
        i = normalize_axis(place, y.ndim, "roll")
        size = y.shape[i]
        some = larger(size, 1)
        cut = some * ((amount + some - 1) // some) - amount if amount > 0 else -amount - some * (-amount // some)
        if cut != 0:
            y = concat([slice_axis(y, i, cut, size), slice_axis(y, i, 0, cut)], axis=i)
    return reshape(x, x.shape) if y is x else y
