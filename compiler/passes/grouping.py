"""Grouping: products whose operands may be bfloat16 become products of groups, which the processor multiplies by one
instruction (``ops/grouped.py``), two terms where one of float32 is.

These are products of bfloat16 tensors, which ``expand`` has widened, and with the precision "medium" those of float32,
whose operands are rounded here; sums are of float32 in both. An operand that is contiguous along k is rounded where it
is computed, or read where it lies if it is bfloat16 already; one that is contiguous along its other axis has two rows
side by side in each 32 bits.

    (m, k), k contiguous       -> astype bfloat16, as (m, ⌈k/2⌉, 2)
    (k, n), n contiguous       -> row 2i | row 2i + 1 << 16, as int32 (⌈k/2⌉, n)

Input: a region after all other passes, a target, a precision. Left alone: products on targets without the instruction,
small ones, for which bringing operands into form takes longer than is saved, and sums over an open number of terms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from staticgrad.base.extents import is_open, largest
from staticgrad.base.types import Precision, dtype_of, float32, int32, sizes
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.passes.bodies import rewritten
from staticgrad.compiler.passes.cse import cse
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.passes.expand import expand
from staticgrad.compiler.passes.loops import hoist
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.contraction import DOT
from staticgrad.ops.control.bodies import Body, bodies_of
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.elementwise.copies import ASTYPE
from staticgrad.ops.grouped import GROUPINGS, grouped_dot, groups
from staticgrad.ops.sources import CONSTANT, VARIABLE
from staticgrad.ops.views.permuting import PERMUTE_DIMS

TERMS = GROUPINGS["bfloat16"].terms
LEAST_SAVED = 2000  # cycles: what two kernels more take


def grouping(region: Region, target: Target, precision: Precision, prepares: bool) -> Region:
    """The region with products of groups, its bodies too. What follows from variables is kept from call to call if the
    program ``prepares``, and writes none."""
    if "bfloat16" not in target.isa.prefers_groups:
        return region
    writes = any(node.op.role == "store" for node in region.graph.nodes)
    given = {x for node in region.graph.nodes for x in node.outputs if node.op in (VARIABLE, CONSTANT)}
    return _grouped(region, target, precision, given if prepares and not writes else set())


def _grouped(region: Region, target: Target, precision: Precision, lasting: Collection[Tensor]) -> Region:
    """The same; operands that follow from ``lasting`` tensors are rounded for many products at once."""
    found = {node for node in region.graph.nodes if _may_group(node, precision) and _pays(node, target, lasting)}
    if not found and not any(map(bodies_of, region.graph.nodes)):
        return region

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if bodies_of(node):
            new = get_default_graph().clone(node, inputs)
            new.attrs = node.attrs.with_bodies([_body(node, body, target, precision) for body in bodies_of(node)])
            return new.outputs
        if node not in found:
            return None
        a, b = inputs
        return (grouped_dot(_operand(a, of_rows=True), _operand(b, of_rows=False), "bfloat16"),)

    return dce(cse(hoist(expand(rebuild(region, visit)))))


def _body(node: Node, body: Body, target: Target, precision: Precision) -> Body:
    """A body with products of groups. What a loop captures, and what follows from that, stays the same in all turns."""
    loop = node.attrs if isinstance(node.attrs, LoopAttributes) and node.attrs.condition is None else None
    captured = body.feeds[1 + loop.carries + loop.sequences :] if loop is not None else ()
    return rewritten(body, lambda region: _grouped(region, target, precision, set(captured)))


def _may_group(node: Node, precision: Precision) -> bool:
    if node.op is not DOT or node.inputs[0].dtype != float32:
        return False
    return precision == "medium" or all(_short(x) is not None for x in node.inputs)


def _short(x: Tensor) -> Tensor | None:
    """The bfloat16 tensor whose values ``x`` has, which may have changed its last two axes since; else None."""
    base = x.op.inputs[0] if _is_turned(x) else x
    widened = base.op.op is ASTYPE and base.op.inputs[0].dtype.name == "bfloat16"
    return base.op.inputs[0] if widened else None


def _is_turned(x: Tensor) -> bool:
    """True if ``x`` shows matrices with their axes exchanged."""
    axes = tuple(range(x.ndim))
    return x.op.op is PERMUTE_DIMS and x.op.attrs.perm == (*axes[:-2], axes[-1], axes[-2])


def _pays(node: Node, target: Target, lasting: Collection[Tensor]) -> bool:
    """True if fewer multiply-adds save more than rounding the operands takes, but for those that are kept. Two
    multiply-adds a cycle have two terms each in groups."""
    a, b = (sizes(x.shape) for x in node.inputs)
    m, k, n = a[-2], a[-1], b[-1]
    if is_open(k) or 0 in (m, k, n) or any(is_open(size) for size in (*a[:-2], *b[:-2])):
        return False
    points, m, n = math.prod(a[:-2]), largest(m), largest(n)
    taken = sum(size * k for size, x in zip((m, n), node.inputs, strict=True) if not _is_given(x, lasting))
    saved = points * m * n * k / (2 * TERMS * target.lanes(float32))
    return saved > points * taken * target.machine.products.rounded_cycles + target.sized(LEAST_SAVED)


def _is_given(x: Tensor, lasting: Collection[Tensor]) -> bool:
    """True if rounding ``x`` takes no time of a call, or of a turn."""
    base = x
    while base.op.op.view:
        base = base.op.inputs[0]
    return base in lasting or _short(x) is not None


def _operand(x: Tensor, *, of_rows: bool) -> Tensor:
    """The operand A, ``of_rows``, or B in groups along k."""
    turned, short = _is_turned(x), _short(x)
    base = x.op.inputs[0] if turned else x
    base = base if short is None else short
    if of_rows != turned:  # k is the last axis
        found = groups(o, _rounded(base), TERMS)
        return found if of_rows else o.swapaxes(found, -3, -2)
    if base.shape[-2] % TERMS:
        base = o.pad(base, ((0, 0),) * (base.ndim - 2) + ((0, 1), (0, 0)))
    lower, upper = (_bits(base[..., first::TERMS, :]) for first in range(TERMS))
    words = o.bitwise_or(lower, o.bitwise_left_shift(upper, 16))
    return o.matrix_transpose(words) if of_rows else words


def _rounded(x: Tensor) -> Tensor:
    return o.astype(x, dtype_of("bfloat16"))


def _bits(x: Tensor) -> Tensor:
    """The bits of a bfloat16 as int32."""
    return o.astype(o.bitcast(_rounded(x), "uint16"), int32)
