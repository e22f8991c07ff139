"""Sparse derivatives: ``sg.sparse_jacobian``, ``sg.sparse_hessian``, ``sg.sparsity``.

Input: tensors of a graph, of known sizes. Output: the derivative as a program that computes its elements and no zeros.
All but the values is known when it is declared: a tangent is pushed through the graph once, in a continuation of it
that is thrown away, and the pattern of the result by the tangent is the derivative's. Columns, or rows, that no row
(column) meets twice get one colour. One derivation, vectorised over the colours, computes the sums of the columns of
each; every element stands alone in one of them, and is read from there. Patterns and colours are the compiler's
(``sparsity.py`` and ``coloring.py`` of its derivatives).

Where there are many colours the same is tried by parts (``elements.py``); elements are sums of what is derived then.

Curtis, Powell and Reid, "On the Estimation of Sparse Jacobian Matrices" (1974); Powell and Toint, "On the Estimation of
Sparse Hessian Matrices" (1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.reach import reach
from staticgrad.compiler.autodiff.batching import Examples, vmap
from staticgrad.compiler.autodiff.coloring import Coloring, columns_colored, fewest, symmetric_colored
from staticgrad.compiler.autodiff.elements import Elements, elements
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.patterns import Pattern, from_pairs
from staticgrad.compiler.autodiff.reverse import gradients, one_graph, tensor_list
from staticgrad.compiler.autodiff.sparsity import patterns_of
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.graph.scopes import isolated
from staticgrad.graph.sparse import Read, SparseTensor, made_of
from staticgrad.ops.interpreter import evaluate
from staticgrad.ops.sources import CONSTANT, FULL, IOTA, PLACEHOLDER, SourceAttributes

Derivative = Callable[[Tensor], Tensor]  # in a direction
FEW = 8  # colors, of which no fewer are sought


class SparsePlaces(NamedTuple):
    """The places at which a matrix may differ from zero, in CSR order: int64 arrays of one length."""

    rows: Array
    cols: Array


def sparsity(y: Any, x: Any) -> SparsePlaces:
    """The places at which the Jacobian of ``y`` by ``x`` may differ from zero, elements counted in row-major order.

    Args:
        y, x: floating tensors of sizes that are known when declared.

    Returns:
        A named tuple ``(rows, cols)`` of int64 arrays, in the order of ``sg.sparse_jacobian``'s elements.

    Raises:
        GradientError, GraphError: as ``sg.sparse_jacobian``.

    Example:
        >>> x = sg.placeholder((4,))
        >>> sg.sparsity(x[1:] * x[:-1], x).cols
        array([0, 1, 1, 2, 2, 3])
    """
    output, variable = _lone(y, "sparsity: y"), _lone(x, "sparsity: x")
    graph = one_graph([output, variable], "sparsity")
    with graph, isolated():
        return SparsePlaces(
            *_OneDirection(graph, variable, lambda t: jvp([output], [variable], [t])[0]).pattern.pairs()
        )


def sparse_jacobian(y: Any, x: Any) -> SparseTensor:
    """The derivative of every element of ``y`` by every element of ``x``, without the elements that are always zero.

    The places of the others are found in the graph: they never depend on values, and some elements may be zero; where
    values decide (an index that is computed, a sort) all that may differ from zero is kept. The program derives in a
    direction for each color, forward over columns or in reverse over rows, whichever computes less.

    Args:
        y, x: floating tensors of any shapes, of sizes that are known when declared. Elements are counted in row-major
            order.

    Returns:
        A ``SparseTensor`` of shape ``(y.size, x.size)``. Fetched it is a ``scipy.sparse.csr_array``.

    Raises:
        GradientError: y or x is not floating, or an op without a derivative is on the way.
        GraphError: a size is known only when fed.

    Source: Curtis, Powell and Reid (1974); Gebremedhin, Manne and Pothen (2005).

    Example:
        >>> x = sg.placeholder((1000,), sg.float64)
        >>> jacobian = sg.sparse_jacobian(x[1:] * x[:-1], x)
        >>> jacobian
        <SparseTensor 999 x 1000, 1998 elements, 2 colors, forward>
        >>> sg.Session().run(jacobian, {x: np.arange(1000.0)})[10, 11]
        np.float64(10.0)
    """
    output, variable = _lone(y, "sparse_jacobian: y"), _lone(x, "sparse_jacobian: x")
    graph = one_graph([output, variable], "sparse_jacobian")
    with graph, isolated():
        columns = _size(variable)
        shape = (_size(output), columns)
        found = _jacobian_directions(graph, output, variable)
        if found.coloring.count > FEW:
            parts = elements(graph, output, variable, found.coloring.count // 2)
            if parts is not None:
                by_parts = _jacobian_directions(graph, parts.output, parts.vector, parts.slope)
                if _is_better(by_parts, found):
                    return _summed(by_parts, parts, found, shape)
        return _read(found, shape)


def sparse_hessian(y: Any, x: Any) -> SparseTensor:
    """The second derivative of ``y``, which has one element, by ``x``, without the elements that are always zero.

    Places are found as for ``sg.sparse_jacobian``, in the gradient. The program computes products of the Hessian with a
    direction for each color of a star coloring, forward over reverse; of two elements that are equal it reads one.

    Args:
        y: a floating tensor of one element, such as the Lagrangian ``sigma * f + sg.sum(multipliers * g)``.
        x: a floating tensor of any shape and a size that is known when declared.

    Returns:
        A ``SparseTensor`` of shape ``(x.size, x.size)`` with both triangles; its ``lower()`` has one.

    Raises:
        GradientError: y or x is not floating, or an op without a derivative is on the way.
        GraphError: y has more than one element, or a size is known only when fed.

    Source: star coloring after Gebremedhin, Tarafdar, Manne and Pothen (2007).

    Example:
        >>> x = sg.placeholder((1000,), sg.float64)
        >>> y = sg.sum(100 * (x[:-1] ** 2 - x[1:]) ** 2 + (x[:-1] - 1) ** 2)
        >>> sg.sparse_hessian(y, x).lower()
        <SparseTensor 1000 x 1000, 1999 elements, 3 colors, forward over reverse>
    """
    output, variable = _lone(y, "sparse_hessian: y"), _lone(x, "sparse_hessian: x")
    if output.size != 1:
        raise GraphError(
            f"sparse_hessian: expected a y of one element, actual shape {output.shape}", source=output.source
        )
    graph = one_graph([output, variable], "sparse_hessian")
    (slope,) = gradients([output], [variable], unconnected_gradients="zero")
    with graph, isolated():
        size = _size(variable)
        found = _hessian_directions(graph, slope, variable)
        if found.coloring.count > FEW:
            parts = elements(graph, output, variable, found.coloring.count // 2)
            if parts is not None:
                (inner,) = gradients([parts.output], [parts.vector], unconnected_gradients="zero")
                by_parts = _hessian_directions(graph, inner, parts.vector, parts.slope)
                if _is_better(by_parts, found):
                    return _summed(by_parts, parts, found, (size, size), inner)
        return _read(found, (size, size))


class _Directions(NamedTuple):
    """The way in which a matrix is told: its places, the colors, what is derived in the direction of each, and a
    measure of the time that all take. ``like`` is what directions are of: x, or in reverse y."""

    rows: Array
    cols: Array
    coloring: Coloring
    like: Tensor
    derivative: Derivative
    mode: str
    work: int


def _jacobian_directions(graph: Graph, output: Tensor, variable: Tensor, slope: Tensor | None = None) -> _Directions:
    """The directions of the Jacobian, whose columns are multiplied by a slope if one is given."""

    def forward(t: Tensor) -> Tensor:
        return jvp([output], [variable], [_times(slope, t)])[0]

    def reverse(ct: Tensor) -> Tensor:
        (found,) = gradients([output], [variable], [ct], unconnected_gradients="zero")
        return _times(slope, found)

    ahead = _OneDirection(graph, variable, forward)
    rows, cols = ahead.pattern.pairs()
    shape = (_size(output), _size(variable))
    by_rows = None
    if not ahead.is_watched and fewest(cols, shape[1]) < fewest(rows, shape[0]):
        by_rows = columns_colored(cols, rows, shape[::-1])
        cost = by_rows.count * _OneDirection(graph, output, reverse).work
        back = _Directions(rows, cols, by_rows, output, reverse, "reverse", cost)
        if cost <= fewest(rows, shape[0]) * ahead.work:
            return back
    by_columns = columns_colored(rows, cols, shape)
    cost = by_columns.count * ahead.work
    if by_rows is not None and back.work < cost:
        return back
    return _Directions(rows, cols, by_columns, variable, forward, "forward", cost)


def _hessian_directions(graph: Graph, gradient: Tensor, variable: Tensor, slope: Tensor | None = None) -> _Directions:
    """The directions of the Hessian, whose rows and columns are multiplied by a slope if one is given."""

    def product(t: Tensor) -> Tensor:
        return _times(slope, jvp([gradient], [variable], [_times(slope, t)])[0])

    one = _OneDirection(graph, variable, product)
    rows, cols = _symmetric(one.pattern)
    coloring = symmetric_colored(rows, cols, _size(variable))
    return _Directions(rows, cols, coloring, variable, product, "forward over reverse", coloring.count * one.work)


def _is_better(by_parts: _Directions, whole: _Directions) -> bool:
    return by_parts.work < whole.work


def _times(slope: Tensor | None, x: Tensor) -> Tensor:
    return x if slope is None else slope * x


class _OneDirection:
    """A derivative in one direction, declared in a continuation of the graph: its pattern by the direction, and the
    elements that its ops read and write for it.

    Attributes:
        nodes: those that the result needs.
        pattern: by the elements of the direction.
        vague: the nodes of which values decide what depends on what, once the pattern is known.
        work: a measure of the time that one direction takes.
        is_watched: whether a hook or a kept gradient sees each gradient on the way.
    """

    def __init__(self, graph: Graph, like: Tensor, derivative: Derivative) -> None:
        trace = Examples(graph, 1).trace
        first = len(trace.nodes)
        with trace, isolated():
            direction = trace.add(PLACEHOLDER, (), SourceAttributes(like.shape, like.dtype)).outputs[0]
            self._result = derivative(direction)
        self._direction = direction
        self._trace = trace
        self.vague: dict[Node, None] = {}
        needed = reach([self._result.op], lambda node: [x.op for x in node.inputs])
        self.nodes = [node for node in trace.nodes if node in needed]
        self.work = _work(self.nodes, direction)
        self.is_watched = any(z.hooks or z.retains_grad for node in trace.nodes[:first] for z in node.outputs)

    @property
    def pattern(self) -> Pattern:
        """The elements of the direction that each element of the result depends on."""
        region = Region(self._trace, (self._direction,), (self._result,))
        (found,) = patterns_of(region, self._direction, self.vague)
        if found is not None:
            return found
        size = _size(self._result)
        return Pattern(np.zeros(size, np.int64), np.zeros(2, np.int64), np.zeros(0, np.int64), _size(self._direction))


def _work(nodes: Sequence[Node], direction: Tensor) -> int:
    """The elements that those of ``nodes`` read and write which depend on a direction."""
    found = {direction}
    total = 0
    for node in nodes:
        if any(x in found for x in node.inputs):
            found.update(node.outputs)
            total += sum(_elements(x) for x in (*node.inputs, *node.outputs))
    return max(total, 1)


def _elements(x: Tensor) -> int:
    return math.prod(map(int, x.shape)) if x.type.static else 1


def _symmetric(pattern: Pattern) -> SparsePlaces:
    """The places of a pattern and those across the diagonal, in CSR order."""
    rows, cols = pattern.pairs()
    both = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    return SparsePlaces(*from_pairs(*both, pattern.width, pattern.width).pairs())


def _derived(found: _Directions) -> Tensor:
    """The derivative in all directions, one after the other, as a vector."""
    coloring, like = found.coloring, found.like
    directions = coloring.colors == np.arange(coloring.count)[:, None]
    seeds = FUNCTIONS.constant(directions.astype(like.dtype).reshape(coloring.count, *like.shape))
    made = vmap(found.derivative)(seeds)
    return FUNCTIONS.reshape(made, (math.prod(made.shape),))


def _known(derived: Tensor) -> Array | None:
    """The value of a derivative that neither a feed nor the state of a session has to do with, as that of a linear
    function; None where one has."""
    needed = reach([derived.op], lambda node: [x.op for x in node.inputs])
    sources = (CONSTANT, FULL, IOTA)
    if any(n.op.effect or n.op.draws or (n.op.role == "source" and n.op not in sources) for n in needed):
        return None
    region = Region(derived.graph, (), (derived,))
    return evaluate(region, (), _no_variable).values[0]


def _no_variable(attrs: object) -> Array:
    raise AssertionError(f"{attrs} is read by a derivative that is known")


def _numbers(found: _Directions, total: int) -> Array:
    """The place of each element of the matrix in the vector (total,) of what is derived."""
    return found.coloring.reads * (total // found.coloring.count) + found.coloring.rows


def _read(found: _Directions, shape: tuple[int, int]) -> SparseTensor:
    """The elements of a matrix, each read from the derivative in the direction of a color."""
    rows, cols = found.rows, found.cols
    if not len(rows):
        empty = Read(FUNCTIONS.zeros((0,), dtype=found.like.dtype), np.zeros(0, np.int64))
        return made_of(empty, rows, cols, shape, 0, found.mode)
    source = _derived(found)
    read = Read(source, _numbers(found, _size(source)), None, _known(source))
    return made_of(read, rows, cols, shape, found.coloring.count, found.mode)


def _summed(
    by_parts: _Directions, parts: Elements, whole: _Directions, shape: tuple[int, int], gradient: Tensor | None = None
) -> SparseTensor:
    """The elements of a matrix, each the sum of those of the matrix by ``parts``; of a Hessian ``gradient`` is that by
    parts. The places are those of the matrix as a whole."""
    rows, cols = by_parts.rows, parts.places[by_parts.cols]
    if gradient is not None:
        rows = parts.places[rows]
    source = _derived(by_parts)
    numbers = _numbers(by_parts, _size(source))
    if gradient is not None and parts.bend is not None:
        numbers = np.concatenate([numbers, _size(source) + np.arange(len(parts.places))])
        rows, cols = np.concatenate([rows, parts.places]), np.concatenate([cols, parts.places])
        source = FUNCTIONS.concat([source, parts.bend * gradient])
    keys, wanted = rows * shape[1] + cols, whole.rows * shape[1] + whole.cols
    into = np.searchsorted(wanted, keys)
    kept = np.flatnonzero(wanted[np.minimum(into, len(wanted) - 1)] == keys)  # others are zero by a rule
    order = kept[np.argsort(into[kept], kind="stable")]
    read = Read(source, numbers[order], into[order], _known(source))
    return made_of(read, whole.rows, whole.cols, shape, by_parts.coloring.count, f"{by_parts.mode}, by parts")


def _lone(value: Any, what: str) -> Tensor:
    tensors = tensor_list(value, what)
    if len(tensors) != 1:
        raise GraphError(f"{what}: expected one tensor, actual {len(tensors)}")
    return tensors[0]


def _size(x: Tensor) -> int:
    if not x.type.static:
        raise GraphError(
            f"sparse derivatives: expected sizes that are known when declared, actual {x.name!r} {x.type}",
            source=x.source,
        )
    return math.prod(map(int, x.shape))
