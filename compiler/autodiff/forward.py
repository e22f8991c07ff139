"""Forward mode: tangents are carried from the operands of each node to its results; again by writing more graph.

Input: tensors of a graph and tangents of those that vary. Output: the tangents of what is asked for. A rule is,
in this order of preference: the entry's ``jvp``; the op itself, where it is linear; its ``expand``, walked; its
``vjp``, transposed (the vjp is linear in the cotangent, and its transpose is the jvp).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, overload

from staticgrad.base.depth import all_levels
from staticgrad.base.errors import GradientError, GraphError, at_source
from staticgrad.base.reach import reach
from staticgrad.base.types import is_floating
from staticgrad.compiler.autodiff.batching import vmap
from staticgrad.compiler.autodiff.reverse import (
    as_type_of,
    backpropagate,
    compatible,
    gradients,
    in_float32,
    one_graph,
    parallel_list,
    pull_back,
    tensor_list,
)
from staticgrad.compiler.autodiff.scope import DerivativeScope, passes_gradients, scope_of
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS, Op, Primal
from staticgrad.graph.scopes import independent_now, isolated
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.elementwise.copies import rounded, widened

# -- what the user calls ------------------------------------------------------------------------------------------


def jvp(ys: Any, xs: Any, tangents: Any) -> list[Tensor]:
    """The derivative of each of ``ys`` in the direction ``tangents`` of ``xs``.

    Args:
        ys: a floating tensor or a list of them.
        xs: a floating tensor or a list of them.
        tangents: parallel to ``xs``, each of its x's shape; tensors or arrays, None is zero.

    Returns:
        A list parallel to ``ys``; each tangent has its y's shape and dtype, zeros where y depends on no x.

    Raises:
        GradientError: a y or an x is not floating, or an op without a derivative is on the way.
        GraphError: tensors of different graphs, tangents that don't fit.

    Example:
        >>> x = sg.constant([1.0, 2.0, 3.0])
        >>> (dy,) = sg.jvp(x**2, [x], [[1.0, 0.0, -1.0]])
        >>> sg.Session().run(dy)
        array([ 2.,  0., -6.], dtype=float32)
    """
    outputs, inputs = tensor_list(ys, "ys"), tensor_list(xs, "xs")
    directions = parallel_list(tangents, inputs, isinstance(xs, (list, tuple)), "tangents", "x")
    graph = one_graph([*outputs, *inputs], "jvp")
    outputs, inputs = ([graph.adopt(x, "jvp") for x in group] for group in (outputs, inputs))
    with graph, isolated():
        scope = scope_of(graph, inputs)
        seeds: dict[Tensor, Tensor] = {}
        for x, t in zip(map(scope.outermost, inputs), directions, strict=True):
            if t is not None:
                given = as_type_of(graph, t, x, "tangents")
                seeds[x] = given if x not in seeds else FUNCTIONS.add(seeds[x], given)
        ends = [scope.outermost(y) for y in outputs]
        independent = {scope.outermost(x) for x in independent_now()}
        found = propagate(graph, seeds, ends, scope=scope, independent=independent)
        return [found[y] if y in found else FUNCTIONS.zeros_like(y) for y in ends]


@overload
def jacobian(y: Any, x: Tensor | Node) -> Tensor: ...
@overload
def jacobian(y: Any, x: Sequence[Tensor | Node]) -> list[Tensor]: ...
def jacobian(y: Any, x: Tensor | Node | Sequence[Tensor | Node]) -> Tensor | list[Tensor]:
    """The derivative of every element of ``y`` by every element of ``x``: ``y.shape + x.shape``.

    Forward mode where ``x.size <= y.size``, else reverse mode; all elements of the smaller one go through one
    derivation together, as examples of a ``vmap``. An open size counts as the larger one; where both are open it is
    forward mode. A list (or tuple) for ``x`` gives a list.

    Raises:
        GradientError: y or an x is not floating, or an op without a derivative is on the way.

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> y = sg.stack([x[0] * x[1], x[0] + x[1], x[0] ** 2])
        >>> sg.Session().run(sg.jacobian(y, x))
        array([[2., 1.],
               [1., 1.],
               [2., 0.]], dtype=float32)
    """
    output, inputs = _lone(y, "jacobian: y"), tensor_list(x, "x")
    graph = one_graph([output, *inputs], "jacobian")
    with graph, isolated():
        backward = [v for v in inputs if _is_larger(v, output)]
        found = dict(zip(backward, _by_rows(output, backward), strict=True)) if backward else {}
        result = [found[v] if v in found else _by_columns(output, v) for v in inputs]
    return result if isinstance(x, (list, tuple)) else result[0]


def hessian(y: Any, x: Any) -> Tensor:
    """The second derivative of ``y``, which has one element, by ``x``: ``x.shape + x.shape``. Forward over reverse.

    Raises:
        GradientError: y or x is not floating, or an op without a derivative is on the way.
        GraphError: y has more than one element, or a number of them that is known only when fed.

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> sg.Session().run(sg.hessian(x[0] ** 2 * x[1], x))
        array([[4., 2.],
               [2., 0.]], dtype=float32)
    """
    output, variable = _lone(y, "hessian: y"), _lone(x, "hessian: x")
    if output.size != 1:
        raise GraphError(f"hessian: expected a y of one element, actual shape {output.shape}", source=output.source)
    (slope,) = gradients([output], [variable], unconnected_gradients="zero")
    assert slope is not None
    return jacobian(slope, variable)


def _lone(value: Any, what: str) -> Tensor:
    tensors = tensor_list(value, what)
    if len(tensors) != 1:
        raise GraphError(f"{what}: expected one tensor, actual {len(tensors)}")
    return tensors[0]


def _is_larger(x: Tensor, y: Tensor) -> bool:
    """True if ``x`` has more elements than ``y``, as far as that is known when declared."""
    if not isinstance(y.size, int):
        return False
    return not isinstance(x.size, int) or x.size > y.size


def _basis(x: Tensor) -> Tensor:
    """The unit vectors in the shape of ``x``, one after the other."""
    return FUNCTIONS.reshape(FUNCTIONS.eye(x.size, dtype=x.dtype), (x.size, *x.shape))


def _by_columns(y: Tensor, x: Tensor) -> Tensor:
    shape = (*y.shape, *x.shape)
    if x.size == 0:
        return FUNCTIONS.zeros(shape, dtype=y.dtype)
    columns = vmap(lambda unit: jvp([y], [x], [unit])[0], out_axes=-1)(_basis(x))
    return FUNCTIONS.reshape(columns, shape)


def _by_rows(y: Tensor, xs: Sequence[Tensor]) -> list[Tensor]:
    def row(unit: Tensor) -> list[Any]:
        return gradients([y], list(xs), [unit], unconnected_gradients="zero")

    shapes, size = [(*y.shape, *x.shape) for x in xs], y.size
    assert isinstance(size, int)  # open ones are forward mode's
    if not size:
        return [FUNCTIONS.zeros(shape, dtype=y.dtype) for shape in shapes]
    basis = _basis(y)
    before = _ancestors(scope_of(get_default_graph(), xs), [y], 0)
    if any(z.hooks or z.retains_grad for node in before for z in node.outputs):  # they see each gradient
        found = [FUNCTIONS.stack(parts) for parts in zip(*(row(basis[i]) for i in range(size)), strict=True)]
    else:
        found = vmap(row)(basis)
    return [FUNCTIONS.reshape(rows, shape) for rows, shape in zip(found, shapes, strict=True)]


# -- the walk -----------------------------------------------------------------------------------------------------


@all_levels()
def propagate(
    graph: Graph,
    tangents: Mapping[Tensor, Tensor],
    ys: Iterable[Tensor],
    *,
    first: int = 0,
    scope: DerivativeScope | None = None,
    independent: Collection[Tensor] = (),
) -> dict[Tensor, Tensor]:
    """The tangents of those of ``ys`` that vary, given those of the tensors they depend on.

    Args:
        graph: current, and holds everything but what ``scope`` takes in; derived nodes are declared into it.
        first: nodes of the graph before this number are not walked.
        scope: what is walked, the graph alone by default; tensors are handed in and out as its outermost ones.
        independent: tensors that vary with nothing but what ``tangents`` says.
    """
    scope = scope or DerivativeScope(graph, around=False)
    known = dict(tangents)
    for node in _ancestors(scope, ys, first, independent):
        if not passes_gradients(node):
            continue
        inputs = [known.get(scope.outermost(x)) for x in node.inputs]
        if all(t is None for t in inputs):
            continue
        with at_source(node.source):
            pushed = push_forward(graph, node.op, scope.primal(node), inputs)
        for y, t in zip(node.outputs, pushed, strict=True):
            if t is None or y in independent:
                continue
            if t.dtype != y.dtype or not compatible(t.shape, y.shape):
                raise GradientError(
                    f"the tangent rule of op {node.op.name!r}: expected {y.type}, actual {t.type}", source=node.source
                )
            known[y] = t if y not in tangents else FUNCTIONS.add(tangents[y], t)
    return known


def _ancestors(
    scope: DerivativeScope, ys: Iterable[Tensor], first: int, independent: Collection[Tensor] = ()
) -> list[Node]:
    """The nodes that ``ys`` depend on, in order, up to what is ``independent``."""

    def makers(tensors: Iterable[Tensor]) -> list[Node]:
        return [x.op for x in map(scope.outermost, tensors) if x.op.serial >= first and x not in independent]

    return sorted(reach(makers(ys), lambda node: makers(node.inputs)), key=scope.place)


# -- the rule of one node -----------------------------------------------------------------------------------------


def push_forward(
    graph: Graph, op: Op, primal: Primal[Any], tangents: Sequence[Tensor | None]
) -> Sequence[Tensor | None]:
    """The tangents of a node's results from those of its operands (None: does not vary)."""
    if op.role == "control":
        from staticgrad.compiler.autodiff import loops

        rule = loops.push_forward_loop if isinstance(primal.attrs, LoopAttributes) else loops.push_forward_cond
        return rule(graph, primal, tangents, propagate)
    if op.widens(primal.inputs):
        return rounded(push_forward(graph, op, in_float32(primal), widened(tangents)), primal.outputs)
    if op.jvp is not None:
        return op.jvp(FUNCTIONS, primal, *tangents)
    if op.linear:
        return _apply(graph, op, primal, tangents)
    if op.expand is not None and not op.own_rule:
        start = len(graph.nodes)
        results = op.expand(FUNCTIONS, primal)
        varying = {x: t for x, t in zip(primal.inputs, tangents, strict=True) if t is not None}
        found = propagate(graph, varying, results, first=start)
        return [found.get(y) for y in results]
    if op.vjp is not None:
        return _transpose(graph, op, primal, tangents)
    raise GradientError(
        f"op {op.name!r} has no derivative: use sg.stop_gradient where none is wanted, or sg.custom_gradient",
        source=primal.outputs[0].source if primal.outputs else None,
    )


def _apply(graph: Graph, op: Op, primal: Primal[Any], tangents: Sequence[Tensor | None]) -> Sequence[Tensor]:
    """A linear op applied to the tangents; what does not vary has the tangent zero, and indices stay."""
    operands = []
    for x, t in zip(primal.inputs, tangents, strict=True):
        if t is None and is_floating(x.dtype):
            t = FUNCTIONS.zeros_like(x)
        operands.append(x if t is None else t)
    return graph.add(op, operands, primal.attrs).outputs


def _transpose(graph: Graph, op: Op, primal: Primal[Any], tangents: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The jvp of an op that gives its vjp alone: the vjp is walked back from its results to the cotangents it got, at
    which it is linear; so their value doesn't matter, and zeros are taken."""
    zeros = [FUNCTIONS.zeros_like(y) if is_floating(y.dtype) else None for y in primal.outputs]
    needs = [t is not None for t in tangents]
    start = len(graph.nodes)
    pulled = pull_back(graph, op, primal, zeros, needs)
    seeds: dict[Tensor, Tensor] = {}
    for ct, t in zip(pulled, tangents, strict=True):
        if ct is not None and t is not None:
            seeds[ct] = t if ct not in seeds else FUNCTIONS.add(seeds[ct], t)
    targets = {z for z in zeros if z is not None}
    found = backpropagate(graph, seeds, targets, flows=lambda y: y.op.serial >= start and y not in targets, first=start)
    return [None if z is None else found.get(z) for z in zeros]
