"""Added: products that a graph adds up become one product over all their terms.

    A₀·B₀ + A₁·B₁ + … + x    =>    [A₀ A₁ …]·[B₀; B₁; …] + x

The gradient of a weight that an unrolled recurrence reads in each step is such a sum; one product over all steps goes
over the result once, where each of many would store it and each addition read it. What ``sums`` does for loops, this
does for graphs without one, and for the several steps of one turn. Input: a region of primitives. Left alone: sums of
fewer than ``LEAST_TERMS`` products, products whose factors have more elements than their result, and those of which
something else is read too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from staticgrad.base.extents import proven
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType
from staticgrad.compiler.machine.modes import took
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.passes.sums import behind_views, without_transpose
from staticgrad.compiler.regions.region import Region, awaited_in, rebuild
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.contraction import DOT

LEAST_TERMS = 4
Views = tuple[tuple[str, Any], ...]


@frozen
class _AddedProducts:
    """A sum: ``inner`` says of each operand that is met, from the left and before its own, whether it is a sum of the
    same tree; ``groups`` has the terms that make one product, by their numbers from the left."""

    inner: tuple[bool, ...]
    groups: tuple[tuple[int, ...], ...]


def added(region: Region) -> Region:
    """Rewrite every sum; the products of before go."""
    if sum(node.op is DOT for node in region.graph.nodes) < LEAST_TERMS:
        return region
    found = _found(region)
    if not found:
        return region
    took("added: products of a sum joined")

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        return (_joined(found[node], inputs),) if node in found else None

    return dce(rebuild(region, visit))


def _found(region: Region) -> dict[Node, _AddedProducts]:
    """The sums that are worth it, by their last addition."""
    nodes = region.graph.nodes
    uses = Counter([*region.fetches, *(x for node in nodes for x in node.inputs)])
    awaited = awaited_in(region)

    def is_lone(x: Tensor) -> bool:
        return uses[x] == 1 and not x.op.control and not x.op.epoch and x.op not in awaited

    def is_sum(node: Node) -> bool:
        return node.op.name == "add" and proven(lambda: all(x.type == node.outputs[0].type for x in node.inputs))

    found: dict[Node, _AddedProducts] = {}
    inside: set[Node] = set()
    for root in reversed(nodes):
        if root in inside or not is_sum(root):
            continue
        inner, terms, stack = list[bool](), list[Tensor](), list(reversed(root.inputs))
        while stack:
            x = stack.pop()
            inner.append(is_lone(x) and is_sum(x.op))
            if inner[-1]:
                inside.add(x.op)
                stack += reversed(x.op.inputs)
            else:
                terms.append(x)
        alike: dict[tuple[Views, TensorType], list[int]] = {}
        for number, x in enumerate(terms):
            product, views = behind_views(x)
            if _is_worth_joining(product) and all(map(is_lone, (product, *(v.outputs[0] for v in views)))):
                key = tuple([(view.op.name, view.attrs) for view in views]), product.type
                alike.setdefault(key, []).append(number)
        groups = tuple([tuple(numbers) for numbers in alike.values() if len(numbers) >= LEAST_TERMS])
        if groups:
            found[root] = _AddedProducts(tuple(inner), groups)
    return found


def _is_worth_joining(x: Tensor) -> bool:
    """True if a product of two matrices of known sizes has no more elements in its factors than in its result, and a
    factor that is computed, and so put where all are: those of feeds would be copied beside them."""
    if x.op.op is not DOT or x.ndim != 2:
        return False
    a, b = x.op.inputs
    known = all(type(n) is int for n in (*a.shape, *b.shape))
    if all(behind_views(y)[0].op.op.role == "source" for y in (a, b)):
        return False
    return known and (a.shape[0] + b.shape[1]) * a.shape[1] <= a.shape[0] * b.shape[1]


def _joined(found: _AddedProducts, operands: Sequence[Tensor]) -> Tensor:
    """The sum, of which the operands of the last addition are given."""
    terms, stack = list[Tensor](), list(reversed(operands))
    for is_inner in found.inner:
        x = stack.pop()
        if is_inner:
            stack += reversed(x.op.inputs)
        else:
            terms.append(x)
    totals = {numbers[0]: _product([terms[i] for i in numbers]) for numbers in found.groups}
    gone = {i for numbers in found.groups for i in numbers[1:]}
    first, *rest = [totals.get(i, x) for i, x in enumerate(terms) if i not in gone]
    for x in rest:
        first = o.add(first, x)
    return first


def _product(terms: Sequence[Tensor]) -> Tensor:
    """The sum of products with the same views of them, as one product."""
    products, views = zip(*map(behind_views, terms), strict=True)
    factors = [without_transpose(x.op.inputs[0]) for x in products]
    if all(is_transposed for _, is_transposed in factors):
        left = o.permute_dims(o.concat([a for a, _ in factors], axis=0), (1, 0))
    else:
        left = o.concat([x.op.inputs[0] for x in products], axis=1)
    total = o.dot(left, o.concat([x.op.inputs[1] for x in products], axis=0))
    for view in views[0]:
        total = get_default_graph().clone(view, (total,)).outputs[0]
    return total
