"""Elements: a function of x as one of the elements of x that its parts read, each as often as it is read.

Input: an output and a variable on which it depends. Output: the vector v of all that is read where elements of x meet
for the first time, each element of it a function of one element of x, and the output as a function of v. Of a sum of
terms that read a few elements each, found by constant indices, the Hessian by v has a small block for each term, which
few colours tell, where that by x may be dense: v_p depends on x at place[p] alone, so that

    H_x[i, j] = sum of v'_p H_v[p, q] v'_q over places p of i and q of j, and on the diagonal v''_p times the gradient

Such functions are *partially separable*: A. Griewank and Ph. L. Toint, "On the Unconstrained Optimization of Partially
Separable Functions" (1982).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from staticgrad.base.reach import reach
from staticgrad.compiler.autodiff.again import operands_of
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.sparsity import patterns_of
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS, Array

MOST = 20_000_000  # elements of v


class Elements(NamedTuple):
    """A function of the elements of a variable.

    Attributes:
        vector: v, a tensor (m,).
        places: which element of x each element of v depends on, int64 (m,).
        output: the function of v.
        slope, bend: first and second derivative of each element of v; None where v is a choice of elements of x.
    """

    vector: Tensor
    places: Array
    output: Tensor
    slope: Tensor | None
    bend: Tensor | None


def elements(graph: Graph, output: Tensor, variable: Tensor, most: int) -> Elements | None:
    """The output as a function of elements that are chosen in at most ``most`` ways, about the number of colours of
    its Hessian. None where there are more, where nothing is chosen or values choose, and where hooks watch."""
    between = _between(output, variable)
    if between is None:
        return None
    tensors = [y for node in between for y in node.outputs]
    vague: dict[Node, None] = {}
    patterns = patterns_of(Region(graph, (variable,), tuple(tensors)), variable, vague)
    if vague:
        return None
    size = math.prod(map(int, variable.shape))
    places = {variable: np.arange(size)}
    depends = {variable, *tensors}
    for y, pattern in zip(tensors, patterns, strict=True):
        if pattern is None or any(x in depends and x not in places for x in operands_of(y.op)):
            continue
        if len(pattern.rows) == _size(y) and np.all(pattern.counts[pattern.rows] == 1):
            places[y] = pattern.indices[pattern.indptr[pattern.rows]]
    outer = _chosen_from(between, places)
    inner = [node for node in between if node not in outer]
    read = list({x: None for node in inner for x in operands_of(node) if x is variable or x.op in outer})
    if not outer or output.op in outer or len(read) > most or sum(len(places[x]) for x in read) > MOST:
        return None
    vector = FUNCTIONS.concat([FUNCTIONS.reshape(x, (len(places[x]),)) for x in read])
    values, at = dict[Tensor, Tensor](), 0
    for x in read:
        values[x] = FUNCTIONS.reshape(vector[at : at + len(places[x])], x.shape)
        at += len(places[x])
    for node in inner:
        inputs = [values.get(x, x) for x in operands_of(node)]
        new = graph.add(node.op, inputs, node.attrs, types=tuple([y.type for y in node.outputs]))
        new.epoch, new.part = node.epoch, node.part
        values.update(zip(node.outputs, new.outputs, strict=True))
    slope = bend = None
    if not all(map(_moves, outer)):
        ones = FUNCTIONS.constant(np.ones(variable.shape, variable.dtype))
        (slope,) = jvp([vector], [variable], [ones])
        (bend,) = jvp([slope], [variable], [ones])
    return Elements(vector, np.concatenate([places[x] for x in read]), values[output], slope, bend)


def _chosen_from(between: Sequence[Node], places: Collection[Tensor]) -> set[Node]:
    """The nodes that choose among functions of one element, and those that compute what they choose from."""
    known, found = set(between), set[Node]()
    for node in reversed(between):
        if any(y not in places for y in node.outputs):
            continue
        if _moves(node):
            found.add(node)
        if node in found:
            found.update(x.op for x in operands_of(node) if x in places and x.op in known)
    return found


def _between(output: Tensor, variable: Tensor) -> list[Node] | None:
    """The nodes through which an output depends on a variable, in order; None if one of them cannot be declared again
    or is watched."""
    needed = reach([output.op], lambda node: [x.op for x in operands_of(node)])
    depends, found = {variable}, list[Node]()
    for node in sorted(needed, key=lambda node: node.serial):
        if any(x in depends for x in operands_of(node)):
            depends.update(node.outputs)
            found.append(node)
            if (
                node.op.state
                or node.control
                or any(y.hooks or y.retains_grad or not y.type.static for y in node.outputs)
            ):
                return None
    return found


def _moves(node: Node) -> bool:
    """True if each element of the result is one of the operands or a constant, whatever their values are."""
    op = node.op
    return op.view or (op.moves and op.role in ("write", "gather", "composed") and not op.own_rule)


def _size(x: Tensor) -> int:
    return math.prod(map(int, x.shape))
