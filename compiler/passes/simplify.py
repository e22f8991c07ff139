"""Simplify: one rule a line with its algebra, right for every value (NaN, infinities, signed zeros).

x − 0 = x                      x · 1 = x / 1 = x               x ↑ 2½ = x·x·√x, x ↑ −1½ = y·√y with y = 1 / x
−(−x) = x                      where(true, a, b) = a           where(c, a, a) = a
casts, reshapes, permutations, broadcasts compose
concat(a, b)[i:j] = a[i:j]     concat(concat(a, b)[i:], c) = concat(a[i:], b, c)
f(broadcast x, y) = f(x, y)    reduce over no axis = x         reduce = reshape ∘ reduce with kept axes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.extents import is_open, is_same, open_sizes
from staticgrad.base.types import Shape, is_floating, sizes
from staticgrad.compiler.kernels.access import is_reshape
from staticgrad.compiler.passes.fold import constant_value
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.elementwise.copies import ASTYPE
from staticgrad.ops.sources import FULL
from staticgrad.ops.views.joining import CONCAT
from staticgrad.ops.views.slicing import SLICE, SliceAttributes, declare_slice

MOST_PIECES = 48  # of a concat that slices are sought in, all of them for each slice

Inputs = tuple[Tensor, ...]
Rule = Callable[[Node, Inputs], "Tensor | None"]


def uniform(x: Tensor) -> float | None:
    """The number that every element of a constant has, if there is one."""
    if x.op.op is FULL:
        return None if is_open(x.op.attrs.value) else float(x.op.attrs.value)
    value = constant_value(x)
    return float(value) if value is not None and value.ndim == 0 else None


def _keeps(x: Tensor, node: Node) -> Tensor | None:
    """``x`` may stand for the node only with the node's shape and dtype."""
    return x if is_same(x.type, node.outputs[0].type) else None


def _subtract(node: Node, inputs: Inputs) -> Tensor | None:
    zero = uniform(inputs[1])
    return _keeps(inputs[0], node) if zero == 0 and not np.signbit(zero) else None


def _multiply(node: Node, inputs: Inputs) -> Tensor | None:
    a, b = inputs
    if uniform(b) == 1:
        return _keeps(a, node)
    return _keeps(b, node) if uniform(a) == 1 else None


def _multiply_no_nan(node: Node, inputs: Inputs) -> Tensor | None:
    factor, x = inputs
    number = uniform(x)
    if number is None or number == 0 or not np.isfinite(number):
        return None
    return _keeps(factor, node) if number == 1 else o.multiply(factor, x)


def _divide(node: Node, inputs: Inputs) -> Tensor | None:
    return _keeps(inputs[0], node) if uniform(inputs[1]) == 1 else None


# Exponents of which products, roots and a reciprocal are within two units in the last place.
POWERS = {"f": (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0), "iu": (1.0, 2.0, 3.0, 4.0)}


def _pow(node: Node, inputs: Inputs) -> Tensor | None:
    x, exponent = inputs
    number = uniform(exponent)
    known = any(number in powers for kinds, powers in POWERS.items() if x.dtype.kind in kinds)
    return _power(x, number) if known and number is not None and is_same(x.type, node.outputs[0].type) else None


def _power(x: Tensor, exponent: float) -> Tensor:
    if exponent % 1 == 0:
        return _whole_power(x if exponent > 0 else o.reciprocal(x), abs(exponent))
    positive = o.add(x, _number(0.0, x))  # -0 becomes 0
    if exponent == -0.5:
        value = o.rsqrt(positive)
    else:
        base = positive if exponent > 0 else o.reciprocal(positive)
        value = o.sqrt(base)
        if abs(exponent) > 1:
            value = o.multiply(_whole_power(base, abs(exponent) - 0.5), value)
    return o.where(o.equal(x, _number(-math.inf, x)), _number(math.inf if exponent > 0 else 0.0, x), value)


def _whole_power(x: Tensor, exponent: float) -> Tensor:
    if exponent == 1:
        return x
    square = o.multiply(x, x)
    return square if exponent == 2 else o.multiply(square, x if exponent == 3 else square)


def _number(value: float, like: Tensor) -> Tensor:
    return o.full((), value, dtype=like.dtype)


def _negative(node: Node, inputs: Inputs) -> Tensor | None:
    return inputs[0].op.inputs[0] if inputs[0].op.op.name == "negative" else None


def _where(node: Node, inputs: Inputs) -> Tensor | None:
    if inputs[1] is inputs[2]:
        return _keeps(inputs[1], node)
    condition = uniform(inputs[0])
    return None if condition is None else _keeps(inputs[1] if condition else inputs[2], node)


def _passes_through(node: Node, inputs: Inputs) -> Tensor | None:
    return inputs[0]  # effects that it was declared after run in any case: they are in the region's list


def _astype(node: Node, inputs: Inputs) -> Tensor | None:
    x = inputs[0]
    if x.op.op is ASTYPE and np.can_cast(x.op.inputs[0].dtype, x.dtype, "safe"):  # there and back
        x = x.op.inputs[0]
    if x.op.op is FULL and is_floating(x.dtype) and is_floating(node.outputs[0].dtype):
        return o.full(x.shape, x.op.attrs.value, dtype=node.outputs[0].dtype)
    return _keeps(x, node)


def _reshape(node: Node, inputs: Inputs) -> Tensor | None:
    x = inputs[0]
    if x.op.op is FULL:
        return o.full(node.outputs[0].shape, x.op.attrs.value, dtype=x.dtype)
    if is_reshape(x.op):
        return o.reshape(x.op.inputs[0], node.outputs[0].shape)
    return _keeps(x, node)


def _permute(node: Node, inputs: Inputs) -> Tensor | None:
    x, perm = inputs[0], node.attrs.perm
    if perm == tuple(range(len(perm))):
        return x
    if x.op.op.name == "permute_dims":
        return o.permute_dims(x.op.inputs[0], tuple(x.op.attrs.perm[axis] for axis in perm))
    return None


def _broadcast(node: Node, inputs: Inputs) -> Tensor | None:
    x = inputs[0]
    if x.op.op is FULL:
        return o.full(node.outputs[0].shape, x.op.attrs.value, dtype=x.dtype)
    return _keeps(x, node)


def _slice(node: Node, inputs: Inputs) -> Tensor | None:
    x, attrs = inputs[0], node.attrs
    if all(step > 0 for step in attrs.steps) and (whole := _keeps(x, node)) is not None:
        return whole
    pieces = _pieces(x, attrs)
    return pieces[0] if len(pieces) == 1 else None


def _concat(node: Node, inputs: Inputs) -> Tensor | None:
    if len(inputs) == 1:
        return inputs[0]
    axis = node.attrs.axis
    found = [
        _pieces(x.op.inputs[0], x.op.attrs) if x.op.op is SLICE and _joins(x.op.inputs[0], axis) else [x]
        for x in inputs
    ]
    joined = [piece for x, pieces in zip(inputs, found, strict=True) for piece in pieces or [x]]
    return o.concat(joined, axis=axis) if len(inputs) < len(joined) <= MOST_PIECES else None


def _joins(x: Tensor, axis: int) -> bool:
    return x.op.op is CONCAT and x.op.attrs.axis == axis


def _pieces(x: Tensor, attrs: SliceAttributes) -> list[Tensor]:
    """The operands of a concat that a slice of it consists of, each cut to size; none where ``x`` is no concat, or the
    slice leaves out every other element."""
    if x.op.op is not CONCAT or len(x.op.inputs) > MOST_PIECES or any(step != 1 for step in attrs.steps):
        return []
    if open_sizes((attrs.starts, attrs.stops, tuple([piece.type.shape for piece in x.op.inputs]))):
        return []
    axis, at, pieces = x.op.attrs.axis, 0, []
    for piece in x.op.inputs:
        size = sizes(piece.shape)[axis]
        start, stop = max(attrs.starts[axis] - at, 0), min(attrs.stops[axis] - at, size)
        if start < stop:
            starts = (*attrs.starts[:axis], start, *attrs.starts[axis + 1 :])
            stops = (*attrs.stops[:axis], stop, *attrs.stops[axis + 1 :])
            cut = declare_slice(piece, starts, stops, attrs.steps)
            pieces.append(piece if is_same(cut.type, piece.type) else cut)
        at += size
    return pieces


def _pad(node: Node, inputs: Inputs) -> Tensor | None:
    return _keeps(inputs[0], node)


def _reduce(node: Node, inputs: Inputs) -> Tensor | None:
    x, axes = inputs[0], node.attrs.axes
    return _keeps(x, node) if all(is_same(sizes(x.shape)[axis], 1) for axis in axes) else None


RULES: dict[str, Rule] = {
    "subtract": _subtract, "multiply": _multiply, "multiply_no_nan": _multiply_no_nan, "divide": _divide, "pow": _pow,
    "negative": _negative, "where": _where, "astype": _astype, "reshape": _reshape, "permute_dims": _permute,
    "broadcast_to": _broadcast, "slice": _slice, "concat": _concat, "pad": _pad,
    **dict.fromkeys(("identity", "once", "stop_gradient", "positive"), _passes_through),
}  # fmt: skip


def _without_broadcasts(node: Node, inputs: Inputs) -> Inputs:
    """Elementwise ops broadcast by themselves: drop ``broadcast_to`` where another operand gives the shape."""
    shape = sizes(node.outputs[0].shape)
    result = list(inputs)
    for position, x in enumerate(inputs):
        narrow = _narrow(x)
        if narrow is x:
            continue
        others = [sizes(y.shape) for i, y in enumerate(result) if i != position]
        if _broadcast_to(shape, [*others, sizes(narrow.shape)]):
            result[position] = narrow
    return tuple(result)


def _broadcast_to(shape: Shape, shapes: list[Shape]) -> bool:
    """True if these shapes, which fit each other, give ``shape`` without further repetitions."""
    rank = max(map(len, shapes))
    wide = [all(len(s) < rank - axis or s[axis - rank] == 1 for s in shapes) for axis in range(rank)]
    return rank == len(shape) and not any(alone and size != 1 for alone, size in zip(wide, shape, strict=True))


def _narrow(x: Tensor) -> Tensor:
    if x.op.op.name == "broadcast_to":
        return x.op.inputs[0]
    if x.op.op is FULL and x.ndim:
        return o.full((), x.op.attrs.value, dtype=x.dtype)
    return x


def simplify(region: Region) -> Region:
    def visit(node: Node, inputs: Inputs) -> Sequence[Tensor] | None:
        if node.op.elementwise and len(inputs) > 1:
            inputs = _without_broadcasts(node, inputs)
            if any(x.ndim != y.ndim or x.shape != y.shape for x, y in zip(inputs, node.inputs, strict=True)):
                again = get_default_graph().clone(node, inputs)
                better = RULES[node.op.name](again, inputs) if node.op.name in RULES else None
                return again.outputs if better is None else (better,)
        rule = _reduce if node.op.role == "reduction" else RULES.get(node.op.name)
        if rule is None or node.op.effect:
            return None
        better = rule(node, inputs)
        return None if better is None else (better,)

    return rebuild(region, visit)
