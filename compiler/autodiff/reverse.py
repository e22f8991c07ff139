"""Reverse mode: a walk of the graph, from what is derived back to what it is derived by, that writes more graph.

Input: tensors of a graph and their cotangents. Output: the cotangents of target tensors, as nodes declared into
the graph that is current; so they can be derived again. Every derived node carries the source line of its primal.

One step of the walk settles a tensor: the cotangents that its users gave it are summed in the order in which they
come, hooks see the sum, then the rule of the op that made the tensor gives the cotangents of its operands. A rule is,
in this order of preference: the entry's ``vjp``; its ``jvp``, transposed; its ``expand``, walked.
No rule is ever asked for a tensor that no target depends on.

The walk is reverse accumulation as in A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from staticgrad.base.collection import collection_held
from staticgrad.base.depth import all_levels
from staticgrad.base.errors import GradientError, GraphError, at_source, called_for, user_source
from staticgrad.base.reach import reach
from staticgrad.base.types import Shape, is_floating
from staticgrad.compiler.autodiff.again import Recomputer
from staticgrad.compiler.autodiff.scope import DerivativeScope, passes_gradients, scope_of
from staticgrad.graph.graph import GradientCall, Graph, Node, Tensor
from staticgrad.graph.hooks import HOOKED, Hook, HookCall
from staticgrad.graph.lifting import graph_of, instead, lift
from staticgrad.graph.optable import FUNCTIONS, Op, Primal
from staticgrad.graph.scopes import control_dependencies, in_derivative, independent_now, isolated
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.effects import ACCUMULATE_GRAD, PRINT, gradient_key
from staticgrad.ops.elementwise.copies import IDENTITY, of_width, rounded, widened

Unconnected = Literal["none", "zero", "error"]
OnTensor = Callable[[Tensor, Tensor], Tensor]
OnNode = Callable[[Node, Sequence[Node]], None]


# -- what the user calls ------------------------------------------------------------------------------------------


@overload
def gradients(
    ys: Any, xs: Any, grad_ys: Any = None, unconnected_gradients: Literal["none"] = "none"
) -> list[Tensor | None]: ...
@overload
def gradients(
    ys: Any, xs: Any, grad_ys: Any = None, *, unconnected_gradients: Literal["zero", "error"]
) -> list[Tensor]: ...
@overload
def gradients(ys: Any, xs: Any, grad_ys: Any, unconnected_gradients: Literal["zero", "error"]) -> list[Tensor]: ...
@overload
def gradients(
    ys: Any, xs: Any, grad_ys: Any = None, unconnected_gradients: Unconnected = "none"
) -> list[Tensor | None]: ...
def gradients(
    ys: Any, xs: Any, grad_ys: Any = None, unconnected_gradients: Unconnected = "none"
) -> list[Tensor] | list[Tensor | None]:
    """The gradient of the sum of ``ys`` by each of ``xs``, as tensors of the same graph.

    Args:
        ys: a floating tensor or a list of them, of any shapes. Where element i of a y depends on row i of an x alone,
            row i of the gradient is that of element i by itself.
        xs: a floating tensor or a list of them; they need not require a gradient.
        grad_ys: weights parallel to ``ys``, each of its y's shape: what is derived is the sum of ``weight * y``.
        unconnected_gradients: what an x gets that no y depends on: ``"none"`` (None), ``"zero"`` or ``"error"``.

    Returns:
        A list parallel to ``xs``; each gradient has the shape and dtype of its x. A run that computes one leaves
        ``sess.grad`` as it is, but for tensors with ``retain_grad`` on the way.

    Raises:
        GradientError: a y or an x is not floating, an op without a derivative is on the way, an unconnected x.
        GraphError: tensors of different graphs, weights that don't fit.

    Example:
        >>> x, y = sg.constant([1.0, 2.0]), sg.constant(3.0)
        >>> dx, dy = sg.gradients(sg.sum(x**2) * y, [x, y])
        >>> sg.Session().run([dx, dy])
        [array([ 6., 12.], dtype=float32), array(5., dtype=float32)]
        >>> (d2x,) = sg.gradients(dx, [x])
        >>> sg.Session().run(d2x)
        array([6., 6.], dtype=float32)
    """
    if unconnected_gradients not in ("none", "zero", "error"):
        raise GraphError(f'unconnected_gradients: expected "none", "zero" or "error", actual {unconnected_gradients!r}')
    targets = tensor_list(xs, "xs")
    outputs = tensor_list(ys, "ys")
    graph = one_graph([*outputs, *targets], "gradients")
    outputs, targets = ([graph.adopt(x, "gradients") for x in group] for group in (outputs, targets))
    with graph, isolated():
        weights: Sequence[Any] = [None] * len(outputs)
        if grad_ys is not None:
            weights = parallel_list(grad_ys, outputs, isinstance(ys, (list, tuple)), "grad_ys", "y")
        scope = scope_of(graph, targets)
        targets = [scope.outermost(x) for x in targets]
        seeds = {scope.outermost(y): ct for y, ct in seed_cotangents(graph, outputs, weights).items()}
        given = {scope.outermost(x) for x in independent_now()}
        finish = finisher(
            graph,
            lambda x: () if x in given else x.hooks,
            lambda x: x.retains_grad and x not in given and graph.holds(x),
        )
        reached: set[Tensor] = set()
        found = backpropagate(
            graph, seeds, targets, flows=lambda y: y not in given, on_tensor=finish, reached=reached, scope=scope
        )
        results = [_connected(x, found.get(x), x in reached, unconnected_gradients) for x in targets]
    call = GradientCall(tuple(outputs), tuple(targets), tuple(results), len(graph.nodes), user_source())
    graph.gradient_calls.append(call)
    return results


def _connected(x: Tensor, gradient: Tensor | None, is_reached: bool, mode: Unconnected) -> Tensor | None:
    if gradient is not None:
        return gradient
    if is_reached:  # through ops like floor, whose derivative is zero
        return FUNCTIONS.zeros_like(x)
    if mode == "none":
        return None
    if mode == "error":
        raise GradientError(f"no y depends on {x.name!r}, so there is no gradient by it", source=x.source)
    return FUNCTIONS.zeros_like(x)


def tensor_list(values: Any, what: str) -> list[Tensor]:
    """A list of floating tensors from a lone one or a sequence.

    Raises:
        GraphError: something is not a tensor.
        GradientError: a tensor is not floating.
    """
    items = list(values) if isinstance(values, (list, tuple)) else [values]
    result = []
    for item in items:
        if not isinstance(item, (Tensor, Node)):
            raise GraphError(f"{what}: expected tensors, actual {item!r}{instead(item)}")
        x = lift(item, item.graph)
        if not is_floating(x.dtype):
            raise GradientError(
                f"{what}: only floating-point tensors have gradients: {x.name!r} is {x.dtype.name}", source=x.source
            )
        result.append(x)
    return result


def one_graph(tensors: Sequence[Tensor], what: str) -> Graph:
    """The graph that derived nodes go into; it holds all ``tensors``."""
    graph = graph_of(tensors)
    for x in tensors:
        graph.adopt(x, what)
    return graph


def parallel_list(values: Any, tensors: Sequence[Tensor], listed: bool, what: str, each: str) -> list[Any]:
    """The values that are given for tensors, in the same order. One that was not ``listed`` may have a list of numbers
    as its value.

    Raises:
        GraphError: they are more or fewer.
    """
    several = isinstance(values, (list, tuple))
    if several and not listed:
        several = len(values) == 1 and (values[0] is None or np.ndim(values[0]) == tensors[0].ndim)
    items = list(values) if several else [values]
    if len(items) != len(tensors):
        raise GraphError(f"{what}: expected one for each {each}: {len(tensors)}, actual {len(items)}")
    return items


def seed_cotangents(graph: Graph, ys: Sequence[Tensor], weights: Sequence[Any]) -> dict[Tensor, Tensor]:
    """The cotangents from which the walk starts: the weights that were given, or ones."""
    seeds: dict[Tensor, Tensor] = {}
    for y, weight in zip(ys, weights, strict=True):
        ct = FUNCTIONS.ones_like(y) if weight is None else as_type_of(graph, weight, y, "grad_ys")
        seeds[y] = ct if y not in seeds else FUNCTIONS.add(seeds[y], ct)
    return seeds


def as_type_of(graph: Graph, value: Any, x: Tensor, what: str) -> Tensor:
    """A cotangent or tangent of ``x`` from a tensor, array or number; a float of another width is cast.

    Raises:
        GraphError: it has another shape, is not floating, or belongs to another graph.
    """
    given = graph.adopt(lift(value, graph, x.dtype), what)
    if not compatible(given.shape, x.shape):
        raise GraphError(f"{what} of {x.name!r}: expected shape {x.shape}, actual {given.shape}", source=x.source)
    if given.dtype != x.dtype:
        given = FUNCTIONS.astype(given, x.dtype)
    return given


# -- the walk -----------------------------------------------------------------------------------------------------


def _everywhere(_: Tensor) -> bool:
    return True


@all_levels()
@collection_held()
def backpropagate(
    graph: Graph,
    cotangents: Mapping[Tensor, Tensor],
    targets: Collection[Tensor],
    *,
    flows: Callable[[Tensor], bool] = _everywhere,
    on_tensor: OnTensor | None = None,
    on_node: OnNode | None = None,
    first: int = 0,
    always: Collection[Tensor] = (),
    reached: set[Tensor] | None = None,
    scope: DerivativeScope | None = None,
) -> dict[Tensor, Tensor]:
    """The cotangents of ``targets``, given those of the tensors they flow from.

    Args:
        graph: current, and holds everything but what ``scope`` takes in; derived nodes are declared into it.
        flows: whether what reaches a tensor is passed on to the operands of its op.
        on_tensor: called once for each tensor that is passed, in reverse order, with its summed cotangent; gives the
            one that goes on (hooks, retained gradients).
        on_node: called after the rule of a node has run, with the nodes that were declared by it.
        first: nodes of the graph before this number are not walked.
        always: tensors that get a cotangent of zeros where they are reached without one (through ops like floor).
        reached: takes the tensors that a derivative leads to, be it zero; a custom rule leads nowhere by None.
        scope: what is walked, the graph alone by default; tensors are handed in and out as its outermost ones.

    Returns:
        A cotangent for each target that one reaches.

    Raises:
        GradientError: an op without a derivative is on the way, or a rule gave a cotangent of a wrong type.
    """
    wanted = set(targets)
    scope = scope or DerivativeScope(graph, around=False)
    again = None if first else Recomputer(graph)
    nodes, varying = _between(scope, cotangents, wanted, flows, first)
    sums = {y: ct for y, ct in cotangents.items() if y in varying}
    found: dict[Tensor, Tensor] = {}
    reached = set() if reached is None else reached
    reached.update(sums)
    for node in reversed(nodes):
        passed: list[Tensor | None] = []
        for y in node.outputs:
            ct = sums.pop(y, None)
            zeros = FUNCTIONS.zeros_like(y) if ct is None and y in always and y in reached else None
            ct = zeros if ct is None else ct
            if ct is not None and on_tensor is not None:
                ct = on_tensor(y, ct)
            if ct is not None and y in wanted:
                found[y] = ct
            goes_on = flows(y) and ct is not None and (zeros is None or not _is_copy(ct, zeros))
            passed.append(ct if goes_on else None)
        operands = [_summed(scope, x, first) for x in node.inputs]
        leads = needs = tuple([x in varying for x in operands])
        onward = any(needs) and any(y in reached and flows(y) for y in node.outputs)
        if not onward or not passes_gradients(node):
            continue
        if any(ct is not None for ct in passed):
            start = len(graph.nodes)
            with in_derivative(node):
                if again is None or scope.is_outside(node):
                    primal = scope.primal(node)
                else:
                    primal = Primal(*again.values(node, passed), node.attrs)
                pulled = pull_back(graph, node.op, primal, passed, needs)
                _collect(node, operands, needs, pulled, sums)
            if node.op.own_rule:
                leads = tuple(need and ct is not None for need, ct in zip(needs, pulled, strict=True))
            if on_node is not None:
                on_node(node, graph.nodes[start:])
        reached.update(x for x, there in zip(operands, leads, strict=True) if there)
    return found


def _is_copy(x: Tensor, of: Tensor) -> bool:
    """True if ``x`` is ``of``, after hooks that only look and accumulations."""
    while x is not of and x.op.op in (IDENTITY, ACCUMULATE_GRAD, PRINT):
        x = x.op.inputs[0]
    return x is of


def _summed(scope: DerivativeScope, x: Tensor, first: int) -> Tensor:
    """The tensor whose cotangents those of ``x`` are summed with: a value that is computed again counts as the
    original, whose hooks see one sum. Not so inside a rule, which knows its operands alone."""
    return x if first else scope.outermost(x.original).original


def _between(
    scope: DerivativeScope, ys: Iterable[Tensor], targets: set[Tensor], flows: Callable[[Tensor], bool], first: int
) -> tuple[list[Node], set[Tensor]]:
    """The nodes from ``targets`` to ``ys`` in order, and the tensors among their outputs that depend on a target."""

    def onward(node: Node) -> list[Node]:
        if not passes_gradients(node) or not any(flows(y) for y in node.outputs):
            return []
        summed = [_summed(scope, x, first) for x in node.inputs]
        return [x.op for x in summed if is_floating(x.dtype) and (x.op.serial >= first or x in targets)]

    reached = reach([y.op for y in ys if y.op.serial >= first or y in targets], onward)
    varying = set(targets)
    nodes = []
    for node in sorted(reached, key=scope.place):
        if passes_gradients(node) and any(_summed(scope, x, first) in varying for x in node.inputs):
            varying.update(y for y in node.outputs if is_floating(y.dtype) and flows(y))
        if any(y in varying for y in node.outputs):
            nodes.append(node)
    return nodes, varying


def _collect(
    node: Node,
    operands: Sequence[Tensor],
    needs: Sequence[bool],
    pulled: Sequence[Tensor | None],
    sums: dict[Tensor, Tensor],
) -> None:
    if len(pulled) != len(node.inputs):
        raise GradientError(
            f"the derivative of op {node.op.name!r}: expected {len(node.inputs)} cotangents, actual {len(pulled)}",
            source=node.source,
        )
    for x, need, ct in zip(operands, needs, pulled, strict=True):
        if not need or ct is None:
            continue
        if ct.dtype != x.dtype or not compatible(ct.shape, x.shape):
            raise GradientError(
                f"the derivative of op {node.op.name!r}: expected a cotangent of {x.type} for its operand"
                f" {x.name!r}, actual {ct.type}",
                source=node.source,
            )
        sums[x] = ct if x not in sums else FUNCTIONS.add(sums[x], ct)


def compatible(a: Shape, b: Shape) -> bool:
    """True if two shapes may be the same once sizes are bound."""
    return len(a) == len(b) and all(
        m == n or not (isinstance(m, int) and isinstance(n, int)) for m, n in zip(a, b, strict=True)
    )


# -- the rule of one node -----------------------------------------------------------------------------------------


def in_float32(primal: Primal[Any]) -> Primal[Any]:
    """The node of float32 as which one of short floats is computed."""
    return replace(primal, inputs=tuple(widened(primal.inputs)), outputs=tuple(widened(primal.outputs)))


def pull_back(
    graph: Graph, op: Op, primal: Primal[Any], cotangents: Sequence[Tensor | None], needs: Sequence[bool]
) -> Sequence[Tensor | None]:
    """The cotangents of a node's operands from those of its results (None: no result of that cotangent is used).

    ``needs`` says which operands' cotangents are used; others may be None or not.
    """
    if op.role == "control":
        from staticgrad.compiler.autodiff import loops

        rule = loops.pull_back_loop if isinstance(primal.attrs, LoopAttributes) else loops.pull_back_cond
        return rule(graph, primal, cotangents, needs, _pull)
    if op.widens(primal.inputs):
        found = pull_back(graph, op, in_float32(primal), widened(cotangents), needs)
        return rounded(found, primal.inputs)
    if op.vjp is not None:
        return op.vjp(FUNCTIONS, replace(primal, needs=tuple(needs)), *cotangents)
    if op.jvp is not None:
        return _transpose(graph, op.jvp, primal, cotangents, needs)
    if op.expand is not None:
        start = len(graph.nodes)
        results = op.expand(FUNCTIONS, primal)
        return _walk_back(graph, results, cotangents, primal.inputs, needs, start)
    raise GradientError(
        f"op {op.name!r} has no derivative: use sg.stop_gradient where none is wanted, or sg.custom_gradient",
        source=primal.outputs[0].source if primal.outputs else None,
    )


def _pull(graph: Graph, seeds: Mapping[Tensor, Tensor], targets: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """The cotangents of the ``targets`` in a body, where hooks are called; retained gradients are those outside."""
    return backpropagate(graph, seeds, targets, on_tensor=finisher(graph, retained=lambda x: False))


def _walk_back(
    graph: Graph,
    results: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    needs: Sequence[bool],
    start: int,
) -> list[Tensor | None]:
    """Cotangents of ``inputs`` through the nodes from number ``start`` on, which lead to ``results``."""
    seeds: dict[Tensor, Tensor] = {}
    for y, ct in zip(results, cotangents, strict=True):
        if ct is not None:
            seeds[y] = ct if y not in seeds else FUNCTIONS.add(seeds[y], ct)
    targets = {x for x, need in zip(inputs, needs, strict=True) if need}
    found = backpropagate(graph, seeds, targets, flows=lambda y: y.op.serial >= start and y not in targets, first=start)
    return [found.pop(x, None) if need else None for x, need in zip(inputs, needs, strict=True)]


def _transpose(
    graph: Graph,
    jvp: Callable[..., Sequence[Any]],
    primal: Primal[Any],
    cotangents: Sequence[Tensor | None],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """The vjp of an op that gives its jvp alone: the jvp is linear in the tangents, so it is walked back from its
    results to them; the value at which that is done doesn't matter, and zeros are taken."""
    tangents = [FUNCTIONS.zeros_like(x) if need else None for x, need in zip(primal.inputs, needs, strict=True)]
    start = len(graph.nodes)
    results = jvp(FUNCTIONS, primal, *tangents)
    pairs = [(y, ct) for y, ct in zip(results, cotangents, strict=True) if y is not None]
    seeds = _walk_back(
        graph, [y for y, _ in pairs], [ct for _, ct in pairs], [t for t in tangents if t is not None],
        [True] * sum(needs), start,
    )  # fmt: skip
    found = iter(seeds)
    return [next(found) if need else None for need in needs]


# -- hooks and retained gradients ---------------------------------------------------------------------------------


def finisher(
    graph: Graph,
    hooks: Callable[[Tensor], Sequence[Hook]] = lambda x: x.hooks,
    retained: Callable[[Tensor], bool] = lambda x: x.retains_grad,
    on_hook: OnNode | None = None,
) -> OnTensor:
    """A function that finishes the summed cotangent of each tensor: its hooks, then, if retained, its accumulation.

    ``on_hook`` is called with the node whose result was hooked and the nodes that its hooks declared.
    """

    def finish(x: Tensor, ct: Tensor) -> Tensor:
        called = hooks(x)
        if called:
            x.op.graph.unread.pop((x, HOOKED), None)
        for hook in called:
            start = len(graph.nodes)
            before, ct = ct, _call_hook(graph, hook, x, ct)
            made = tuple(graph.nodes[start:])
            graph.hook_calls.append(HookCall(x, hook, before, ct, made))
            if on_hook is not None:
                on_hook(x.op, made)
        return accumulated(x, ct) if retained(x) else ct

    return finish


def accumulated(x: Tensor, ct: Tensor) -> Tensor:
    """The cotangent, added to the session's gradient of ``x`` when it is computed."""
    with at_source(x.source):
        return FUNCTIONS.accumulate_grad(ct, gradient_key(x))


def _call_hook(graph: Graph, hook: Hook, x: Tensor, ct: Tensor) -> Tensor:
    """The gradient after one hook. Effects that the hook declared, and on which its result doesn't depend already,
    run when the gradient is computed; an op in place of a gradient (an assign, an assertion) is such an effect."""
    start = len(graph.nodes)
    with at_source(None), called_for(f"a hook of {x.name!r}", x.source):
        returned = hook(ct)
        result = ct if returned is None or isinstance(returned, Node) else lift(returned, graph, ct.dtype)
    if not graph.holds(result):
        raise GradientError(f"a hook of {x.name!r} returned {result.name!r} of another graph", source=x.source)
    result = of_width(result, x.dtype)
    if result.dtype != x.dtype or not compatible(result.shape, x.shape):
        raise GradientError(
            f"a hook of {x.name!r} returned a gradient of another type: expected {x.type}, actual {result.type}",
            source=x.source,
        )
    loose = [node for node in graph.nodes[start:] if node.op.effect]
    if loose:
        known = _dependencies(result, start)
        loose = [node for node in loose if node not in known]
    if loose:
        with at_source(x.source), control_dependencies(loose):
            result = FUNCTIONS.identity(result)
    return result


def _dependencies(x: Tensor, first: int) -> set[Node]:
    """The nodes from number ``first`` on that ``x`` depends on."""
    return reach([x.op], lambda node: [before for before in node.before if before.serial >= first])
