"""Ops that move elements without computing: reshape, permute, broadcast, slice, and their writing partners.

``reshape permute_dims broadcast_to slice`` are views; ``concat`` and ``pad`` write. Their derivatives read shapes
only, so none of them saves anything. What has nothing to do gives its operand back, unless that requires a gradient: a
hook on the result is no hook on the operand. Sizes may be such as feeds bind. Slices along them must lie within them,
whatever is bound: their lengths must be known as polynomials of sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.errors import GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor, graph_of, lift
from staticgrad.ops.declare import declare, operands
from staticgrad.ops.sources import as_shape
from staticgrad.optable import FUNCTIONS, PRIMITIVE, Array, Case, Namespace, Op, Primal, public, register
from staticgrad.types import (
    DTYPES,
    Dim,
    Shape,
    Size,
    TensorType,
    broadcast_shapes,
    is_floating,
    normalize_axes,
    normalize_axis,
    product,
    sizes,
)


def _lifted(x: Any) -> Tensor:
    return lift(x, graph_of((x,)))


# -- reshape --------------------------------------------------------------------------------------------------------


@frozen
class ReshapeAttributes:
    """The new shape."""

    shape: Shape

    def leading(self, size: Size) -> ReshapeAttributes:
        return ReshapeAttributes((size, *self.shape))


def _reshape_type(attrs: ReshapeAttributes, x: TensorType) -> TensorType:
    before, after = x.size, product(attrs.shape)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise GraphError(f"reshape: {x} has {before} elements, shape {attrs.shape} has {after}")
    return TensorType(attrs.shape, x.dtype)


RESHAPE = register(
    Op(
        "reshape",
        "The elements in row-major order, in another shape.",
        infer=_reshape_type,
        reference=lambda attrs, x: x.reshape(attrs.shape),
        vjp=lambda o, node, ct: (o.reshape(ct, node.inputs[0].shape),),
        linear=True,
        view=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4),), ReshapeAttributes((2, 6))),
            Case(((2, 3, 4),), ReshapeAttributes((24,))),
            Case(((6,),), ReshapeAttributes((1, 3, 1, 2))),
            Case(((),), ReshapeAttributes((1, 1))),
            Case(((0, 3),), ReshapeAttributes((5, 0))),
        ),
        grad_name="View",
        tags=PRIMITIVE,
    )
)


@public
def reshape(x: Any, shape: Any) -> Tensor:
    """The elements in row-major order, in another shape: a tuple of sizes or an int; one of them may be -1.

    Raises:
        GraphError: the shape has another number of elements, or -1 twice.
    """
    x = _lifted(x)
    wanted = list(shape) if isinstance(shape, tuple | list) else [shape]
    free = [axis for axis, size in enumerate(wanted) if not isinstance(size, Dim) and size == -1]
    if len(free) > 1:
        raise GraphError(f"reshape: only one size can be -1, not {tuple(wanted)}")
    if free:
        wanted[free[0]] = 1
        known = product(as_shape(wanted, "reshape"))
        wanted[free[0]] = _missing_size(x, known, shape)
    target = as_shape(wanted, "reshape")
    return x if target == x.shape and not x.requires_grad else declare(RESHAPE, (x,), ReshapeAttributes(target))


def _missing_size(x: Tensor, known: Size, shape: Any) -> Size:
    total = x.size
    if known == 0 or (isinstance(known, int) and isinstance(total, int) and total % known):
        raise GraphError(f"reshape: {x.type} with {total} elements does not fill shape {shape}")
    return total // known


@public
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from ``start_dim`` to ``end_dim`` as one; the tensor itself where that is one axis, as in PyTorch."""
    tensor: Tensor = _lifted(x)
    shape = tensor.shape
    if not shape:
        return reshape(tensor, (1,))
    first, last = normalize_axis(start_dim, len(shape), "flatten"), normalize_axis(end_dim, len(shape), "flatten")
    if first > last:
        raise GraphError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    if first == last:
        return tensor
    return reshape(tensor, (*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]))


@public
def expand_dims(x: Any, axis: int | tuple[int, ...] = 0) -> Tensor:
    """New axes of size 1 at ``axis``, counted in the result."""
    x = _lifted(x)
    many = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = normalize_axes(many, x.ndim + len(many), "expand_dims")
    rest = iter(x.shape)
    return reshape(x, tuple(1 if i in axes else next(rest) for i in range(x.ndim + len(axes))))


@public
def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Without axes of size 1: those in ``axis``, or all.

    Raises:
        GraphError: a named axis has another size.
    """
    x = _lifted(x)
    if axis is None:
        return reshape(x, tuple(size for size in x.shape if size != 1))
    axes = normalize_axes(axis, x.ndim, "squeeze")
    for i in axes:
        if isinstance(x.shape[i], int) and x.shape[i] != 1:
            raise GraphError(f"squeeze: axis {i} of {x.name!r} {x.type} has size {x.shape[i]}, not 1")
    return reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in axes))


# -- permutations ---------------------------------------------------------------------------------------------------


@frozen
class PermuteAttributes:
    """Axis number i of the result is axis ``perm[i]`` of the operand."""

    perm: tuple[int, ...]

    def leading(self, size: Size) -> PermuteAttributes:
        return PermuteAttributes((0, *(axis + 1 for axis in self.perm)))


def _permute_type(attrs: PermuteAttributes, x: TensorType) -> TensorType:
    if sorted(attrs.perm) != list(range(x.ndim)):
        raise GraphError(f"permute_dims: {attrs.perm} is no permutation of the axes of {x}")
    return TensorType(tuple(x.shape[axis] for axis in attrs.perm), x.dtype)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes ``perm``."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


PERMUTE_DIMS = register(
    Op(
        "permute_dims",
        "The axes in another order.",
        infer=_permute_type,
        reference=lambda attrs, x: np.transpose(x, attrs.perm),
        vjp=lambda o, node, ct: (o.permute_dims(ct, inverse(node.attrs.perm)),),
        linear=True,
        view=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 4),), PermuteAttributes((1, 0))),
            Case(((2, 3, 4),), PermuteAttributes((2, 0, 1))),
            Case(((2, 3, 1, 5),), PermuteAttributes((0, 2, 1, 3))),
            Case(((),), PermuteAttributes(())),
            Case(((0, 3),), PermuteAttributes((1, 0))),
        ),
        grad_name="Permute",
        tags=PRIMITIVE,
    )
)


@public
def permute_dims(x: Any, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order: axis i of the result is ``axes[i]`` of ``x``."""
    y = _lifted(x)
    perm = tuple(normalize_axis(int(axis), y.ndim, "permute_dims") for axis in axes)
    same = perm == tuple(range(y.ndim)) and not y.requires_grad
    return y if same else declare(PERMUTE_DIMS, (y,), PermuteAttributes(perm))


@public
def transpose(x: Any, axes: tuple[int, ...] | None = None) -> Tensor:
    """``permute_dims``; without ``axes`` their order is reversed."""
    x = _lifted(x)
    return permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


@public
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    x = _lifted(x)
    a, b = normalize_axis(axis1, x.ndim, "swapaxes"), normalize_axis(axis2, x.ndim, "swapaxes")
    perm = list(range(x.ndim))
    perm[a], perm[b] = b, a
    return permute_dims(x, tuple(perm))


@public
def matrix_transpose(x: Any) -> Tensor:
    """The last two axes exchanged.

    Raises:
        GraphError: fewer than two axes.
    """
    x = _lifted(x)
    if x.ndim < 2:
        raise GraphError(f"matrix_transpose: expected at least two axes, actual {x.name!r} {x.type}")
    return swapaxes(x, -1, -2)


@public
def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
    """Axes moved to new places, the others in their order."""
    x = _lifted(x)
    sources = (source,) if isinstance(source, int) else tuple(source)
    places = (destination,) if isinstance(destination, int) else tuple(destination)
    from_axes = [normalize_axis(axis, x.ndim, "moveaxis") for axis in sources]
    to_axes = [normalize_axis(axis, x.ndim, "moveaxis") for axis in places]
    if len(set(from_axes)) != len(from_axes) or len(set(to_axes)) != len(from_axes):
        raise GraphError(f"moveaxis: expected as many distinct axes, actual {sources} and {places}")
    perm = [axis for axis in range(x.ndim) if axis not in from_axes]
    for place, axis in sorted(zip(to_axes, from_axes, strict=True)):
        perm.insert(place, axis)
    return permute_dims(x, tuple(perm))


# -- broadcasting ---------------------------------------------------------------------------------------------------


@frozen
class BroadcastAttributes:
    """The shape to broadcast to."""

    shape: Shape


def _broadcast_type(attrs: BroadcastAttributes, x: TensorType) -> TensorType:
    shape = attrs.shape
    fits = len(shape) >= x.ndim and all(
        size == 1 or size == target or isinstance(size, Dim) or isinstance(target, Dim)
        for size, target in zip(x.shape, shape[len(shape) - x.ndim :], strict=True)
    )
    if not fits:
        raise GraphError(f"broadcast_to: {x} does not broadcast to shape {shape}")
    return TensorType(shape, x.dtype)


BROADCAST_TO = register(
    Op(
        "broadcast_to",
        "The elements repeated along axes of size 1 and new leading ones.",
        infer=_broadcast_type,
        reference=lambda attrs, x: np.broadcast_to(x, attrs.shape),
        vjp=lambda o, node, ct: (o.unbroadcast(ct, node.inputs[0].shape),),
        linear=True,
        view=True,
        dtypes=DTYPES,
        cases=(
            Case(((3, 1),), BroadcastAttributes((3, 4))),
            Case(((4,),), BroadcastAttributes((2, 3, 4))),
            Case(((),), BroadcastAttributes((2, 3))),
            Case(((1, 1),), BroadcastAttributes((5, 1))),
            Case(((1,),), BroadcastAttributes((0, 4))),
        ),
        grad_name="Expand",
        tags=PRIMITIVE,
    )
)


@public
def broadcast_to(x: Any, shape: Any) -> Tensor:
    """The tensor repeated to a shape, by NumPy's rule."""
    x = _lifted(x)
    target = as_shape(shape, "broadcast_to")
    return x if target == x.shape and not x.requires_grad else declare(BROADCAST_TO, (x,), BroadcastAttributes(target))


@public
def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """The tensors, all repeated to their common shape; dtypes stay."""
    graph = graph_of(arrays)
    with graph:
        xs = [lift(x, graph) for x in arrays]
        shape = broadcast_shapes([x.shape for x in xs], "broadcast_arrays")
        return [broadcast_to(x, shape) for x in xs]


# -- slices ---------------------------------------------------------------------------------------------------------


@frozen
class SliceAttributes:
    """For each axis the first index, the one before which to stop, and the step.

    Positive steps have 0 <= start <= stop <= size, negative ones -1 <= stop <= start < size, where -1 means before the
    first element.
    """

    starts: tuple[Size, ...]
    stops: tuple[Size, ...]
    steps: tuple[int, ...]

    def leading(self, size: Size) -> SliceAttributes:
        return SliceAttributes((0, *self.starts), (size, *self.stops), (1, *self.steps))


def slice_length(start: Size, stop: Size, step: int) -> Size:
    """How many indices there are from ``start`` to before ``stop``."""
    span = stop - start if step > 0 else start - stop
    return span if step in (1, -1) else (span + (abs(step) - 1)) // abs(step)


def _slice_type(attrs: SliceAttributes, x: TensorType) -> TensorType:
    if not len(attrs.starts) == len(attrs.stops) == len(attrs.steps) == x.ndim:
        raise GraphError(f"slice: expected bounds for {x.ndim} axes of {x}")
    lengths = []
    for start, stop, step, size in zip(attrs.starts, attrs.stops, attrs.steps, x.shape, strict=True):
        _check_slice(start, stop, step, size, x)
        lengths.append(slice_length(start, stop, step))
    return TensorType(tuple(lengths), x.dtype)


def _check_slice(start: Size, stop: Size, step: int, size: Size, x: TensorType) -> None:
    if isinstance(start, Dim) or isinstance(stop, Dim) or isinstance(size, Dim):
        return  # checked again when feeds have bound the sizes
    inside = 0 <= start <= stop <= size if step > 0 else -1 <= stop <= start < size and step < 0
    if not inside:
        raise GraphError(f"slice: {start}:{stop}:{step} is out of range for size {size} of {x}")


def _slice_index(attrs: SliceAttributes) -> tuple[slice, ...]:
    return tuple(
        np.s_[start : (None if stop == -1 and step < 0 else stop) : step]
        for start, stop, step in zip(attrs.starts, attrs.stops, attrs.steps, strict=True)
    )


def _slice_reference(attrs: SliceAttributes, x: Array) -> Array:
    if any(start == stop for start, stop in zip(attrs.starts, attrs.stops, strict=True)):
        type_ = _slice_type(attrs, TensorType(x.shape, x.dtype))
        return np.zeros(sizes(type_.shape), x.dtype)
    return x[_slice_index(attrs)]


def unslice(y: Tensor, attrs: SliceAttributes, shape: Shape) -> Tensor:
    """``y`` in the places of a tensor of ``shape`` that the slice reads, zeros elsewhere.

    A pad around and between, of ``y`` flipped where the slice counts down.
    """
    down = tuple(axis for axis, step in enumerate(attrs.steps) if step < 0)
    low: list[Size] = []
    high: list[Size] = []
    for start, stop, step, size in zip(attrs.starts, attrs.stops, attrs.steps, shape, strict=True):
        before, after = _unread(start, stop, step, size)
        low.append(before)
        high.append(after)
    interior = tuple(abs(step) - 1 for step in attrs.steps)
    return pad_with(flip(y, axis=down) if down else y, tuple(low), tuple(high), interior)


def _unread(start: Size, stop: Size, step: int, size: Size) -> tuple[Size, Size]:
    """How many elements come before the first and after the last that a slice reads."""
    length = slice_length(start, stop, step)
    if length == 0:
        return size, 0
    if step == 1:
        return start, size - stop
    reach = (length - 1) * abs(step)
    first = start if step > 0 else start - reach
    return first, size - first - reach - 1


def _vjp_slice(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    return (unslice(ct, node.attrs, node.inputs[0].shape),)


SLICE = register(
    Op(
        "slice",
        "Every so-many-th element between bounds, along each axis.",
        infer=_slice_type,
        reference=_slice_reference,
        vjp=_vjp_slice,
        linear=True,
        view=True,
        dtypes=DTYPES,
        cases=(
            Case(((5, 6),), SliceAttributes((1, 0), (4, 6), (1, 1))),
            Case(((5, 6),), SliceAttributes((0, 1), (5, 6), (2, 3))),
            Case(((5, 6),), SliceAttributes((4, 4), (-1, 0), (-1, -2))),
            Case(((2, 3, 4),), SliceAttributes((1, 0, 3), (2, 3, -1), (1, 1, -3))),
            Case(((4,),), SliceAttributes((2,), (2,), (1,))),
            Case(((0, 3),), SliceAttributes((0, 0), (0, 2), (1, 1))),
        ),
        tags=PRIMITIVE,
    )
)


def declare_slice(x: Tensor, starts: Sequence[Size], stops: Sequence[Size], steps: Sequence[int]) -> Tensor:
    """A slice of every axis; the tensor itself where everything is taken."""
    attrs = SliceAttributes(tuple(starts), tuple(stops), tuple(steps))
    if attrs == SliceAttributes((0,) * x.ndim, x.shape, (1,) * x.ndim):
        return x
    return declare(SLICE, (x,), attrs)


def slice_axis(x: Tensor, axis: int, start: Size, stop: Size, step: int = 1) -> Tensor:
    """A slice of one axis (not negative), everything of the others."""
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    bounds: list[Size] = list(starts)
    bounds[axis], stops[axis], steps[axis] = start, stop, step
    return declare_slice(x, bounds, stops, steps)


@public
def flip(x: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements in reverse order along ``axis``, or along all axes."""
    x = y = _lifted(x)
    for i in normalize_axes(axis, y.ndim, "flip"):
        if y.shape[i] != 0:
            y = slice_axis(y, i, y.shape[i] - 1, -1, -1)
    return reshape(x, x.shape) if y is x else y


@public
def roll(x: Any, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements moved on by ``shift`` places along ``axis``, those at the end to the front.

    Without ``axis`` the flattened tensor is rolled. A size that feeds bind must not be below the shift.
    """
    x = y = _lifted(x)
    if axis is None:
        return reshape(roll(reshape(y, -1), shift, 0), y.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(shifts) != len(axes):
        raise GraphError(f"roll: expected a shift for each axis, actual {shift} and {axis}")
    for amount, place in zip(shifts, axes, strict=True):
        i = normalize_axis(place, y.ndim, "roll")
        size = y.shape[i]
        if size == 0:
            continue
        cut: Size = (-amount) % size if isinstance(size, int) else -amount if amount <= 0 else size - amount
        if cut != 0:
            y = concat([slice_axis(y, i, cut, size), slice_axis(y, i, 0, cut)], axis=i)
    return reshape(x, x.shape) if y is x else y


# -- concatenation --------------------------------------------------------------------------------------------------


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


def _vjp_concat(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    result = []
    place: Size = 0
    for x in node.inputs:
        size = x.shape[node.attrs.axis]
        result.append(slice_axis(ct, node.attrs.axis, place, place + size) if is_floating(x.dtype) else None)
        place = place + size
    return result


def _jvp_joined(name: str) -> Any:
    def jvp(o: Namespace, node: Primal, *tangents: Any) -> Sequence[Any]:
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
        dtypes=DTYPES,
        cases=(
            Case(((3, 4), (3, 2)), ConcatAttributes(1)),
            Case(((1, 4), (3, 4), (2, 4)), ConcatAttributes(0)),
            Case(((2, 3, 2), (2, 1, 2)), ConcatAttributes(1)),
            Case(((5,),), ConcatAttributes(0)),
            Case(((0, 2), (3, 2)), ConcatAttributes(0)),
        ),
        grad_name="Cat",
        tags=PRIMITIVE,
    )
)


def _several(what: str, arrays: Any) -> tuple[Tensor, ...]:
    if isinstance(arrays, Tensor) or not arrays:
        raise GraphError(f"{what}: expected a list of tensors, actual {arrays!r}")
    return operands(what, *arrays)


@public
def concat(arrays: Any, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along ``axis``; None joins them flattened.

    Raises:
        GraphError: no tensors, or shapes that differ elsewhere than along ``axis``.
    """
    xs = _several("concat", arrays)
    if axis is None:
        xs, axis = tuple(reshape(x, -1) for x in xs), 0
    place = normalize_axis(axis, xs[0].ndim, "concat")
    return xs[0] if len(xs) == 1 and not xs[0].requires_grad else declare(CONCAT, xs, ConcatAttributes(place))


def _stack_type(attrs: ConcatAttributes, *types: TensorType) -> TensorType:
    widened = [TensorType((*t.shape[: attrs.axis], 1, *t.shape[attrs.axis :]), t.dtype) for t in types]
    return _concat_type(attrs, *widened)


def _vjp_stack(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
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
        dtypes=DTYPES,
        cases=(
            Case(((3, 4), (3, 4)), ConcatAttributes(0)),
            Case(((3, 4), (3, 4), (3, 4)), ConcatAttributes(2)),
            Case(((), ()), ConcatAttributes(0)),
            Case(((2, 3),), ConcatAttributes(1)),
        ),
    )
)


@public
def stack(arrays: Any, axis: int = 0) -> Tensor:
    """Tensors of one shape, joined along a new axis."""
    xs = _several("stack", arrays)
    return declare(STACK, xs, ConcatAttributes(normalize_axis(axis, xs[0].ndim + 1, "stack")))


def _fixed_size(x: Tensor, axis: int, what: str) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise GraphError(f"{what}: the size {size} of axis {axis} of {x.name!r} must be known when declared")
    return size


@public
def unstack(x: Any, axis: int = 0) -> list[Tensor]:
    """The parts of ``x`` at each place of ``axis``, without that axis."""
    x = _lifted(x)
    i = normalize_axis(axis, x.ndim, "unstack")
    shape = (*x.shape[:i], *x.shape[i + 1 :])
    return [reshape(slice_axis(x, i, place, place + 1), shape) for place in range(_fixed_size(x, i, "unstack"))]


@public
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """As ``np.split``: into so many equal parts, or before each of the given indices.

    Raises:
        GraphError: the size is no multiple of the number of parts.
    """
    x = _lifted(x)
    i = normalize_axis(axis, x.ndim, "split")
    size = x.shape[i]
    if isinstance(indices_or_sections, int | np.integer):
        sections = int(indices_or_sections)
        if sections < 1 or (isinstance(size, int) and size % sections):
            raise GraphError(f"split: axis {i} of {x.name!r} {x.type} has no {sections} equal parts")
        bounds = [place * (size // sections) for place in range(sections)] + [size]
    else:
        total = _fixed_size(x, i, "split")
        bounds = [0, *(range(total)[int(cut) :].start for cut in indices_or_sections), total]
    parts = [slice_axis(x, i, a, b if _ordered(a, b) else a) for a, b in itertools.pairwise(bounds)]
    return [reshape(x, x.shape) if part is x else part for part in parts]


def _ordered(a: Size, b: Size) -> bool:
    return not (isinstance(a, int) and isinstance(b, int)) or a <= b


# -- padding --------------------------------------------------------------------------------------------------------


@frozen
class PadAttributes:
    """For each axis how much of ``value`` comes before, after, and between two elements; none is negative."""

    low: tuple[Size, ...]
    high: tuple[Size, ...]
    interior: tuple[int, ...]
    value: float | int | bool

    def leading(self, size: Size) -> PadAttributes:
        return PadAttributes((0, *self.low), (0, *self.high), (0, *self.interior), self.value)


def _padded_size(size: Size, low: Size, high: Size, interior: int) -> Size:
    if interior == 0:
        return low + size + high
    inner = size if size == 0 else size + (size - 1) * interior
    return low + inner + high


def _pad_type(attrs: PadAttributes, x: TensorType) -> TensorType:
    if not len(attrs.low) == len(attrs.high) == len(attrs.interior) == x.ndim:
        raise GraphError(f"pad: expected widths for {x.ndim} axes of {x}")
    if any(isinstance(width, int) and width < 0 for width in (*attrs.low, *attrs.high, *attrs.interior)):
        raise GraphError(f"pad: widths of {x} are negative: before {attrs.low}, after {attrs.high}")
    axes = zip(x.shape, attrs.low, attrs.high, attrs.interior, strict=True)
    return TensorType(tuple(_padded_size(*axis) for axis in axes), x.dtype)


def _pad_reference(attrs: PadAttributes, x: Array) -> Array:
    shape = _pad_type(attrs, TensorType(x.shape, x.dtype)).shape
    result = np.full(sizes(shape), attrs.value, x.dtype)
    result[_pad_index(attrs, x.shape)] = x
    return result


def _pad_index(attrs: PadAttributes, shape: tuple[int, ...]) -> tuple[slice, ...]:
    widths = zip(attrs.low, attrs.interior, shape, strict=True)
    return tuple(np.s_[low : low + size + max(size - 1, 0) * gap : gap + 1] for low, gap, size in widths)


def _vjp_pad(o: Namespace, node: Primal, ct: Any) -> Sequence[Any]:
    x, attrs = node.inputs[0], node.attrs
    stops = tuple(
        low + (size if gap == 0 or size == 0 else (size - 1) * (gap + 1) + 1)
        for low, gap, size in zip(attrs.low, attrs.interior, x.shape, strict=True)
    )
    return (declare_slice(ct, attrs.low, stops, tuple(gap + 1 for gap in attrs.interior)),)


PAD = register(
    Op(
        "pad",
        "One value around and between the elements.",
        infer=_pad_type,
        reference=_pad_reference,
        vjp=_vjp_pad,
        jvp=lambda o, node, t: (o.pad_with(t, node.attrs.low, node.attrs.high, node.attrs.interior),),
        dtypes=DTYPES,
        cases=(
            Case(((3, 4),), PadAttributes((1, 0), (2, 1), (0, 0), 0)),
            Case(((3, 4),), PadAttributes((0, 1), (0, 0), (1, 2), 1)),
            Case(((2, 3, 2),), PadAttributes((0, 0, 3), (0, 2, 0), (0, 1, 0), 0)),
            Case(((),), PadAttributes((), (), (), 0)),
            Case(((0,),), PadAttributes((2,), (1,), (0,), 1)),
        ),
        grad_name="ConstantPadNd",
        tags=PRIMITIVE,
    )
)


@public
def pad_with(
    x: Tensor, low: tuple[Size, ...], high: tuple[Size, ...], interior: tuple[int, ...], value: float | int | bool = 0
) -> Tensor:
    """``value`` before, after and between the elements of each axis: the op as it is, all widths given."""
    if not any(width != 0 for width in (*low, *high, *interior)) and not x.requires_grad:
        return x
    return declare(PAD, (x,), PadAttributes(tuple(low), tuple(high), tuple(interior), value))


@public
def pad(x: Any, pad_width: Any, value: float | int | bool = 0) -> Tensor:
    """``value`` around a tensor, as ``np.pad`` with mode "constant".

    Args:
        pad_width: ``(before, after)`` for each axis, one such pair for all, or one int for both sides of all axes.

    Raises:
        GraphError: a negative width, or not as many pairs as axes.
    """
    x = _lifted(x)
    if isinstance(pad_width, int | np.integer | Dim):
        pairs = [(pad_width, pad_width)] * x.ndim
    else:
        items = list(pad_width)
        flat = all(isinstance(item, int | np.integer | Dim) for item in items)
        if flat and len(items) == 2:
            pairs = [(items[0], items[1])] * x.ndim
        elif flat and len(items) == 1:
            pairs = [(items[0], items[0])] * x.ndim
        elif not flat and len(items) in (1, x.ndim):
            pairs = [tuple(item) for item in items] * (x.ndim if len(items) == 1 else 1)
        else:
            raise GraphError(f"pad: expected a pair of widths for each axis of {x.type}, actual {pad_width!r}")
    low, high = as_widths(pairs, 0), as_widths(pairs, 1)
    kind = x.dtype.type(value).item()
    return pad_with(x, low, high, (0,) * x.ndim, kind)


def as_widths(pairs: Sequence[Any], side: int) -> tuple[Size, ...]:
    return as_shape([pair[side] for pair in pairs], "pad")


# -- repetition -----------------------------------------------------------------------------------------------------


@public
def tile(x: Any, repetitions: int | tuple[int, ...]) -> Tensor:
    """The whole tensor repeated along its axes, as ``np.tile``."""
    x = _lifted(x)
    counts = (repetitions,) if isinstance(repetitions, int | Dim) else tuple(repetitions)
    counts = (1,) * (x.ndim - len(counts)) + counts
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    apart = tuple(size for pair in zip(counts, shape, strict=True) for size in (1, pair[1]))
    repeated = tuple(size for pair in zip(counts, shape, strict=True) for size in pair)
    whole = tuple(count * size for count, size in zip(counts, shape, strict=True))
    return reshape(broadcast_to(reshape(x, apart), repeated), whole)


def _repeated(repeats: Any, x: Tensor, axis: int) -> Array:
    """Which element of an axis stands at each place when the n-th is repeated ``repeats[n]`` times."""
    size = x.shape[axis]
    if isinstance(repeats, Tensor) or isinstance(size, Dim):
        culprit = repeats if isinstance(repeats, Tensor) else x
        raise GraphError(f"repeat: the size of the result is not known from {culprit!r}", source=culprit.source)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or counts.size not in (1, size) or (counts < 0).any():
        raise GraphError(f"repeat: expected one or {size} counts for axis {axis} of {x!r}, actual {repeats!r}")
    return np.repeat(np.arange(size), counts)


@public
def repeat(x: Any, repeats: int | Sequence[int] | Array, axis: int | None = None) -> Tensor:
    """Each element ``repeats`` times in a row along ``axis``, or of the flattened tensor.

    Args:
        repeats: a number, or one for each element along the axis.

    Raises:
        GraphError: a negative number, a tensor, or another number of numbers than the axis has elements.
    """
    x = _lifted(x)
    if axis is None:
        return repeat(reshape(x, -1), repeats, 0)
    i = normalize_axis(axis, x.ndim, "repeat")
    if not isinstance(repeats, (int, np.integer, Dim)):
        return FUNCTIONS.take(x, _repeated(repeats, x, i), axis=i)
    before, size, after = x.shape[:i], x.shape[i], x.shape[i + 1 :]
    spread = broadcast_to(reshape(x, (*before, size, 1, *after)), (*before, size, repeats, *after))
    return reshape(spread, (*before, size * repeats, *after))
