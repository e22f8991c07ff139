"""Rows: what follows a product of flattened rows works on the product's own matrix.

``x (*lead, k) @ w`` is a product of the matrix (prod(lead), k) after which a reshape brings ``lead`` back. A kernel
takes in what has the shape of its result, so the bias, the activation or the residual after that reshape would be
passes over memory. This pass moves the reshape down, after elementwise ops and reductions:

    f(reshape a, b, …)          = reshape f(a, b as rows, …)
    sum over lead (reshape a)   = reshape (sum over rows a),  sum over the last axis likewise

``b as rows`` needs no memory: a scalar, a vector along the last axis, one number for each row, or a tensor of the
whole shape that is reshaped where it lies. An op with another operand stays where it is, and so does one whose result
a kernel could store straight where it belongs (a concat, a pad), or that finds an operand in a register that would
have to be stored for a reshape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from staticgrad.base.extents import is_same
from staticgrad.base.types import sizes
from staticgrad.compiler.kernels.access import is_reshape
from staticgrad.compiler.regions.region import Region, rebuild, users_of
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Role
from staticgrad.ops.contraction import DOT
from staticgrad.ops.grouped import GROUPED_DOT

Shape = tuple[int, ...]
# Ops that read through a reshape what they could read without.
READERS: frozenset[Role] = frozenset({"elementwise", "view", "matrix", "reduction", "control"})
STORES: frozenset[Role] = frozenset({"store", "write"})


def rows(region: Region) -> Region:
    """Move reshapes of products down."""
    if not any(is_reshape(node) and _is_shown(node.inputs[0].op) for node in region.graph.nodes):
        return region
    users = users_of(region)
    flat: set[Tensor] = set()  # matrices of the new graph that are shown as (*lead, n)

    def matrix(x: Tensor) -> Tensor | None:
        """The matrix that a reshape shows, if it is a product or a result of this pass; else None."""
        base = x.op.inputs[0] if is_reshape(x.op) else None
        if base is None or not (base.op.op in (DOT, GROUPED_DOT) or base in flat) or base.ndim != 2:
            return None
        return base if _is_rows_of(sizes(base.shape), sizes(x.shape)) else None

    def may_move(node: Node) -> bool:
        """Only what is stored for one reader alone is stored straight where it belongs."""
        read = users[node.outputs[0]]
        allowed = READERS | STORES if len(read) > 1 else READERS
        return all(user.op.role in allowed for user in read)

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if is_reshape(node):
            return _composed(node, inputs[0])
        if node.op.role not in ("elementwise", "reduction") or not may_move(node):
            return None
        result = node.outputs[0]
        reduces = node.op.role == "reduction"
        lead = sizes((node.inputs[0] if reduces else result).shape)[:-1]
        if not any(matrix(x) is not None and sizes(x.shape)[:-1] == lead for x in inputs):
            return None
        moved = _reduced(node, inputs[0]) if reduces else _applied(node, inputs, lead, users)
        if moved is None:
            return None
        flat.add(moved)
        return (o.reshape(moved, result.shape),)

    return rebuild(region, visit)


def _is_shown(node: Node) -> bool:
    """True if this pass may have something to do with a reshape of what the node gives."""
    return node.op in (DOT, GROUPED_DOT) or is_reshape(node)


def _composed(node: Node, x: Tensor) -> Sequence[Tensor] | None:
    """A reshape of what this pass has put after one."""
    if not is_reshape(x.op):
        return None
    base, shape = x.op.inputs[0], node.outputs[0].shape
    return (base if is_same(base.shape, shape) else o.reshape(base, shape),)


def _is_rows_of(matrix: Shape, shape: Shape) -> bool:
    """True if ``shape`` is (*lead, n) of a matrix (prod(lead), n), with more than one axis in front."""
    return len(shape) > 2 and shape[-1] == matrix[-1] and math.prod(shape[:-1]) == matrix[0]


def _reduced(node: Node, x: Tensor) -> Tensor | None:
    """A reduction (which keeps its axes) over all axes of the rows, over the last one, or over both."""
    lead, axes = set(range(x.ndim - 1)), set(node.attrs.axes)
    if axes not in (lead, {x.ndim - 1}, lead | {x.ndim - 1}):
        return None
    kept = (*((0,) if lead <= axes else ()), *((1,) if x.ndim - 1 in axes else ()))
    return _again(node, (x.op.inputs[0],), kept)


def _again(node: Node, inputs: Sequence[Tensor], axes: tuple[int, ...] | None = None) -> Tensor:
    attrs = node.attrs if axes is None else replace(node.attrs, axes=axes)
    return get_default_graph().add(node.op, inputs, attrs).outputs[0]


def _applied(
    node: Node, inputs: Sequence[Tensor], lead: Shape, users: Mapping[Tensor, Sequence[Node]]
) -> Tensor | None:
    """An elementwise op on matrices; ``lead`` is how the rows are shown."""
    found = []
    for x, old in zip(inputs, node.inputs, strict=True):
        if _is_found_in_register(old) and len(users[old]) == 1 and not is_reshape(x.op):
            return None
        as_rows = _as_rows(x, lead)
        if as_rows is None:
            return None
        found.append(as_rows)
    return _again(node, found)


def _is_found_in_register(x: Tensor) -> bool:
    return x.op.op.nest and x.ndim > 2


def _as_rows(x: Tensor, lead: Shape) -> Tensor | None:
    """The operand of an op on (prod(lead), n) that stands for one on (*lead, n)."""
    shape = sizes(x.shape)
    last = shape[-1:]
    if math.prod(shape[:-1]) == 1:  # the same for all rows
        return x if len(shape) < 2 else o.reshape(x, last)
    if shape[:-1] != lead:
        return None
    wanted = (math.prod(lead), *last)
    if is_reshape(x.op) and sizes(x.op.inputs[0].shape) == wanted:
        return x.op.inputs[0]
    return o.reshape(x, wanted)
