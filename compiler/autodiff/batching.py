"""``vmap``: a function of one example, applied to many at once.

Input: a function that declares ops, and tensors with an axis of examples. Output: the same ops over all examples,
declared into the user's graph. The function runs once, on placeholders of one example's shape, in a private
continuation of the graph; then what it declared is declared again with a leading axis wherever a value depends on an
example. What does not depend on one is computed once.

How an op goes over many examples its entry says (``Op.batch``), or why it does not. Composed ops without a rule do so
through what they expand into, loops through their bodies, the user's own derivatives when they are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from staticgrad.base import nests
from staticgrad.base.boundary import boundary
from staticgrad.base.depth import all_levels
from staticgrad.base.errors import GraphError, at_source
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.base.types import Size, int64
from staticgrad.compiler.regions.merge import family_of, union_of
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor, get_default_graph, needed_nodes
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.naming import put_back
from staticgrad.graph.optable import FUNCTIONS, BatchedNode, Primal
from staticgrad.graph.scopes import isolated, no_grad
from staticgrad.ops.batch_rules import by_example
from staticgrad.ops.control.bodies import Body, BodyGraph, draws, why_written
from staticgrad.ops.control.loops import LoopAttributes
from staticgrad.ops.custom import CustomAttributes, OwnRule
from staticgrad.ops.effects import BOUNDS_CHECK
from staticgrad.ops.sources import PLACEHOLDER, SourceAttributes

T = TypeVar("T")


def vmap(fn: Callable[..., T], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., T]:
    """A function that applies ``fn``, written for one example, to all examples along an axis.

    Args:
        fn: declares ops; takes and returns nests. Tensors that it captures belong to no example. ``sg.gradients``
            inside gives gradients by example, also those of captured tensors.
        in_axes: the axis of the examples in each tensor of an argument, or None where an argument is the same for all;
            one for all arguments, or a tuple with one for each (which may be a nest like the argument).
        out_axes: where the axis of the examples shall be in the results; one for all, or a nest like the results.

    Raises:
        GraphError: in a call: no argument has examples, their numbers differ, an axis does not exist, or ``fn``
            writes a variable or registers a hook. Random ops draw for each example by itself.

    Example:
        >>> w = sg.constant([1.0, 2.0])
        >>> xs, ys = sg.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), sg.constant([0.0, 0.0, 1.0])
        >>> per_example = sg.vmap(lambda x, y: sg.gradients((x @ w - y) ** 2, [w])[0])(xs, ys)
        >>> sg.Session().run(per_example)
        array([[2., 0.],
               [0., 4.],
               [4., 4.]], dtype=float32)
        >>> distances = sg.vmap(lambda a, b: sg.sum((a - b) ** 2), in_axes=(0, None))(xs, w)
        >>> sg.Session().run(distances)
        array([4., 2., 1.], dtype=float32)
    """

    @boundary
    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise GraphError(f"vmap: expected one of in_axes for each argument: {len(args)}, actual {len(axes)}")
        leaves = [nests.flatten(arg) for arg in args]
        places = [
            place for axis, arg, flat in zip(axes, args, leaves, strict=True) for place in _spread(axis, arg, flat)
        ]
        return _map(fn, args, [leaf for flat in leaves for leaf in flat], places, out_axes)

    return mapped


def _spread(axis: Any, arg: Any, leaves: Sequence[Any]) -> list[int | None]:
    """The axis of each leaf of an argument."""
    if axis is None or isinstance(axis, int | np.integer):
        return [None if axis is None else int(axis)] * len(leaves)
    found: list[int | None] = []
    nests.map(lambda _, place: found.append(place), arg, axis)
    return found


@all_levels()
def _map(
    fn: Callable[..., Any], args: Sequence[Any], leaves: Sequence[Any], places: Sequence[int | None], out: Any
) -> Any:
    if all(place is None for place in places):
        raise GraphError("vmap: no argument has an axis of examples")
    graph = graph_of(leaves)
    graph = get_default_graph() if _continues(get_default_graph(), graph) else graph
    with graph:
        batched = [x if p is None else _leading(lift(x, graph), p) for x, p in zip(leaves, places, strict=True)]
    sizes = dict.fromkeys(x.shape[0] for x, p in zip(batched, places, strict=True) if p is not None)
    if len(sizes) != 1:
        shared = "" if all(isinstance(size, int) for size in sizes) else '; sg.dim("n") is one size wherever it stands'
        raise GraphError(f"vmap: the numbers of examples differ: {', '.join(map(str, sizes))}{shared}")
    (size,) = sizes
    trace = _Trace(graph)
    with trace:
        inner = [x if p is None else _example(trace, x) for x, p in zip(batched, places, strict=True)]
        results = fn(*nests.pack(tuple(args), inner))
        put_back(trace, "vmap")
        answers = [lift(y, trace) for y in nests.flatten(results)]
    for y in (y for node in trace.nodes[trace.first :] for y in node.outputs):
        if y.hooks or y.retains_grad:
            raise GraphError(
                f"vmap: {y.name!r} is of one example: register hooks and retain gradients outside of the function",
                source=y.source,
            )
    with graph:
        known = {a: _BatchedValue(b, True) for a, b, p in zip(inner, batched, places, strict=True) if p is not None}
        made = _Batcher(trace, size, known).results(answers)
        axes = [out] * len(made) if isinstance(out, int | np.integer) else nests.flatten(out)
        if len(axes) != len(made):
            raise GraphError(f"vmap: expected one of out_axes for each result: {len(made)}, actual {len(axes)}")
        return nests.pack(
            results, [FUNCTIONS.moveaxis(y, 0, axis) if axis else y for y, axis in zip(made, axes, strict=True)]
        )


def _continues(current: Graph, graph: Graph) -> bool:
    return isinstance(current, Derivation) and current.continues(graph)


def _leading(x: Tensor, axis: int) -> Tensor:
    if not isinstance(axis, int | np.integer) or not -x.ndim <= axis < x.ndim:
        raise GraphError(f"vmap: {x.name!r} {x.type} has no axis {axis!r}", source=x.source)
    return FUNCTIONS.moveaxis(x, axis, 0) if axis % x.ndim else x


def _example(trace: Graph, x: Tensor, batched: bool = True) -> Tensor:
    y = trace.add(PLACEHOLDER, (), SourceAttributes(x.shape[int(batched) :], x.dtype), name=x.name).outputs[0]
    y.requires_grad = x.requires_grad
    return y


class _Trace(Derivation):
    """The computation of one example, as a derivation. Its random ops have their places among those of the graph
    around, and the number of the example is one more index of theirs; what that graph reads of others around it, a
    trace reads through it."""

    def __init__(self, base: Graph) -> None:
        super().__init__(base)
        self.example = self.add(PLACEHOLDER, (), SourceAttributes((), int64), name="example").outputs[0]

    def adopt(self, x: Tensor, what: str) -> Tensor:
        return x if self.holds(x) else self.base.adopt(x, what)

    def take_place(self) -> int:
        return self.base.take_place()

    def loop_indices(self) -> tuple[Tensor, ...]:
        return (*self.base.loop_indices(), self.example)


class Examples:
    """A computation of one example whose inputs are met on the way, declared while ``trace`` is current; then over all
    ``size`` examples.

    ``graph`` is where the inputs belong and the results are declared.
    """

    def __init__(self, graph: Graph, size: Size) -> None:
        self.graph, self.size = graph, size
        self.trace: Graph = _Trace(graph)
        self._known: dict[Tensor, _BatchedValue] = {}

    def one(self, x: Tensor) -> Tensor:
        """The stand-in for one example of ``x``, whose first axis is that of the examples."""
        inner = _example(self.trace, x)
        self._known[inner] = _BatchedValue(x, True)
        return inner

    def all(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The results for all examples, along a first axis."""
        assert isinstance(self.trace, _Trace)
        with self.graph:
            return _Batcher(self.trace, self.size, self._known).results(results)


@all_levels()
def over_examples(
    graph: Graph, fetches: Sequence[Tensor], feeds: Collection[Tensor], varying: Collection[Tensor], size: int
) -> tuple[Graph, list[Tensor], list[Tensor]]:
    """A computation that is declared already, for one example, over ``size`` examples.

    Args:
        feeds: where the graph is cut.
        varying: those of the feeds that differ between examples.

    Returns:
        a private continuation of the graph, in it the fetches, with a first axis of examples, and for each of
        ``feeds`` the tensor to feed: for one of ``varying`` a placeholder with that axis, for others themselves.

    Raises:
        GraphError: an op that does not go over examples, or one that draws random numbers: declared without the number
            of an example, it would draw the same for all.
    """

    fed, differing = set(feeds), set(varying)

    def before(node: Node) -> list[Node]:
        return [*(x.op for x in node.value_inputs if x not in fed), *node.control]

    needed = reach([x.op for x in fetches if x not in fed], before)
    derivation = Derivation(graph)
    trace = _Trace(derivation)
    with derivation, isolated():
        inside: list[Tensor] = []
        for x in feeds:
            attrs = SourceAttributes((size, *x.shape), x.dtype)
            with at_source(x.source):
                inside.append(derivation.add(PLACEHOLDER, (), attrs, name=x.name).outputs[0] if x in differing else x)
        known = {x: _BatchedValue(y, True) for x, y in zip(feeds, inside, strict=True) if x in differing}
        nodes = []
        for node in graph.nodes:
            if node not in needed:
                continue
            if draws(node):
                raise GraphError("random numbers would be the same for all examples", source=node.source)
            if not differing.isdisjoint(node.inputs):
                differing.update(y for y in node.outputs if y not in fed)
                nodes.append(node)
        batcher = _Batcher(trace, size, known)
        batcher.declare(nodes)
        return derivation, [batcher.all(batcher.value(y)) for y in fetches], inside


@frozen
class _BatchedValue:
    """The value that stands for a traced tensor: one for all examples, or (``batched``) one for each along axis 0."""

    tensor: Tensor
    batched: bool


class _Batcher:
    """Declares what was traced again, over ``size`` examples, into the current graph."""

    def __init__(self, trace: _Trace, size: Size, known: dict[Tensor, _BatchedValue]) -> None:
        self.size = size
        self._trace = trace
        self._known = known
        self._made: dict[Node, tuple[Node, ...]] = {}
        self._families: dict[object, list[Node]] = {}  # of the scans that are declared together
        self._scanned: dict[
            object, tuple[list[_BatchedValue], dict[Tensor, _BatchedValue]]
        ] = {}  # carries and rows of a family

    def results(self, answers: Sequence[Tensor]) -> list[Tensor]:
        """The values of traced tensors for all examples."""
        self.declare(self._needed(answers))
        return [self.all(self.value(y)) for y in answers]

    def declare(self, nodes: Sequence[Node]) -> None:
        """Declare traced nodes for all examples."""
        self._families = {}
        for node in nodes:
            if isinstance(node.attrs, LoopAttributes):
                self._families.setdefault(family_of(node), []).append(node)
        for node in nodes:
            self._declare(node)

    def later(self) -> _Batcher:
        """Another one that goes on from here, in whatever graph is current then."""
        other = _Batcher(self._trace, self.size, dict(self._known))
        other._made = dict(self._made)
        return other

    def ruled(
        self, rule: OwnRule, node: Node, outputs: Sequence[_BatchedValue], given: Sequence[_BatchedValue]
    ) -> list[_BatchedValue | None]:
        """The results, for all examples, of a rule of a traced node that is called with cotangents or tangents of one
        example."""
        with self._trace:
            inner = [_example(self._trace, v.tensor, v.batched) for v in given]
            made = rule(Primal(node.inputs, node.outputs, node.attrs), inner)
            found = [None if g is None else lift(g, self._trace) for g in made]
        self._known.update(zip(inner, given, strict=True))
        self._known.update(zip(node.outputs, outputs, strict=True))
        self.declare(self._needed([g for g in found if g is not None]))
        return [None if g is None else self.value(g) for g in found]

    def _needed(self, answers: Sequence[Tensor]) -> list[Node]:
        """The traced nodes that the answers need, in order."""
        needed = needed_nodes(answers, ())
        examples = {x.op for x in (*self._known, self._trace.example)}
        traced = self._trace.nodes[self._trace.first :]
        return [node for node in traced if node in needed and node not in examples and node not in self._made]

    def value(self, x: Tensor) -> _BatchedValue:
        """Tensors of the graph around are the same for all examples."""
        if x is self._trace.example and x not in self._known:
            self._known[x] = _BatchedValue(FUNCTIONS.iota((self.size,), 0), True)
        return self._known.get(x) or _BatchedValue(x, False)

    def all(self, value: _BatchedValue) -> Tensor:
        """The value for each example."""
        x = value.tensor
        return x if value.batched else FUNCTIONS.broadcast_to(x, (self.size, *x.shape))

    def _declare(self, node: Node) -> None:
        graph = get_default_graph()
        refused = node.op.batch
        if isinstance(refused, str):
            why = f"{refused}{why_written(node.graph.nodes)}"
            raise GraphError(f"vmap: {node.op.name} inside of the function: {why}", source=node.source)
        operands = [self.value(x) for x in node.inputs]
        batched = any(v.batched for v in operands)
        start = len(graph.nodes)
        with at_source(node.source), isolated():
            if node.blocked:
                with no_grad():
                    outputs = self._outputs(node, operands, batched)
            else:
                outputs = self._outputs(node, operands, batched)
        made = tuple(graph.nodes[start:])
        self._made[node] = made
        control = tuple(dict.fromkeys(new for before in node.control for new in self._made.get(before, (before,))))
        for new in made:
            new.control = tuple(dict.fromkeys((*new.control, *control)))
        self._known.update(
            (y, z if isinstance(z, _BatchedValue) else _BatchedValue(z, batched))
            for y, z in zip(node.outputs, outputs, strict=True)
        )

    def _outputs(
        self, node: Node, operands: Sequence[_BatchedValue], batched: bool
    ) -> Sequence[Tensor | _BatchedValue]:
        op, attrs = node.op, node.attrs
        if isinstance(attrs, CustomAttributes):
            return _custom(self, node, operands)
        if not batched:
            return get_default_graph().add(op, [v.tensor for v in operands], attrs).outputs
        if isinstance(attrs, LoopAttributes):
            return (_scan if attrs.condition is None else _while)(self, node, operands)
        if op.batch is None and op.role == "composed":
            return self._expanded(node)
        rule = op.batch if callable(op.batch) else by_example
        return rule(FUNCTIONS, self.over(node, operands))

    def over(self, node: Node, operands: Sequence[_BatchedValue]) -> BatchedNode[Any]:
        """The node as its rule sees it."""
        inputs, batched = tuple(v.tensor for v in operands), tuple(v.batched for v in operands)
        return BatchedNode(node.op, inputs, batched, node.attrs, self.size)

    def _expanded(self, node: Node) -> Sequence[_BatchedValue]:
        """A composed op: its expansion is traced for one example, then declared for all."""
        start = len(self._trace.nodes)
        assert node.op.expand is not None
        with self._trace, isolated():
            results = node.op.expand(FUNCTIONS, Primal(node.inputs, (), node.attrs))
        for new in self._trace.nodes[start:]:
            self._declare(new)
        return [self.value(y) for y in results]


# -- functions with derivatives of their own, loops -----------------------------------------------------------------


def _custom(b: _Batcher, node: Node, operands: Sequence[_BatchedValue]) -> Sequence[_BatchedValue]:
    """The user's rules are traced for one example when a derivative is taken, then declared for all; also those of a
    function that is the same for all examples, since they know the traced tensors."""
    attrs: CustomAttributes = node.attrs
    values = operands[attrs.results :]
    batched = any(v.batched for v in operands)

    def ruled(
        rule: OwnRule | None, outputs: Sequence[Tensor], given: Sequence[_BatchedValue]
    ) -> list[_BatchedValue | None]:
        assert rule is not None
        found = b.later().ruled(rule, node, [_BatchedValue(y, batched) for y in outputs], given)
        if not batched and any(g is not None and g.batched for g in found):
            raise GraphError(
                f"vmap: a rule of {attrs.name!r} reads an example, though its results are the same for all: hand the"
                f" example to {attrs.name!r} as an argument",
                source=node.source,
            )
        return found

    def pulled_back(primal: Primal[Any], cotangents: Sequence[Tensor]) -> list[Any]:
        found = ruled(attrs.rule, primal.outputs, [_BatchedValue(ct, batched) for ct in cotangents])
        added: list[Any] = [None if g is None else b.all(g) if batched else g.tensor for g in found]
        for number, (g, v) in enumerate(zip(added, values, strict=False)):  # their numbers are compared later
            if g is not None and batched and not v.batched:  # the gradients of one that examples share add up
                added[number] = FUNCTIONS.sum(g, axis=0)
        return added

    def pushed_forward(primal: Primal[Any], tangents: Sequence[Tensor]) -> list[Any]:
        given = [_BatchedValue(t, v.batched) for t, v in zip(tangents, values, strict=True)]
        found = ruled(attrs.forward, primal.outputs, given)
        return [None if g is None else b.all(g) if batched else g.tensor for g in found]

    rules = (None if attrs.rule is None else pulled_back, None if attrs.forward is None else pushed_forward)
    results = [b.all(v) if batched else v.tensor for v in operands[: attrs.results]]
    inputs = [*results, *(v.tensor for v in values)]
    made = get_default_graph().add(node.op, inputs, replace(attrs, rule=rules[0], forward=rules[1]))
    return [_BatchedValue(y, batched) for y in made.outputs]


def _scan(b: _Batcher, node: Node, operands: Sequence[_BatchedValue]) -> Sequence[_BatchedValue | Tensor]:
    """All examples in one loop, in whose turns what depends on an example has an axis for them. A loop that stands
    several times, for its results and for what derivatives read, becomes one."""
    attrs: LoopAttributes = node.attrs
    family = family_of(node)
    if family not in b._scanned:
        bodies = [other.attrs.body for other in b._families.get(family, [node])]
        union = union_of(bodies)
        if attrs.counted or any(effect.op is not BOUNDS_CHECK for effect in union.effects):
            return by_example(FUNCTIONS, b.over(node, operands))
        carries, rows = _turns(b, attrs, _continuable(union, bodies), operands)
        b._scanned[family] = carries, dict(zip(union.fetches[attrs.carries :], rows, strict=True))
    carries, by_result = b._scanned[family]
    return [*carries, *(by_result[x] for x in attrs.body.fetches[attrs.carries :])]


def _continuable(union: Body, bodies: Sequence[Body]) -> Body:
    """The union of ``bodies`` in a graph that more can be declared into: that of the body which holds all others, since
    rules of the user's own know its tensors, else a new one."""
    longest = max((body.graph for body in bodies), key=lambda graph: len(graph.nodes))
    if len(longest.nodes) == len(union.graph.nodes):
        return replace(union, graph=longest)
    made = rebuild(Region(union.graph, union.feeds, union.fetches, union.effects), lambda node, inputs: None)
    return Body(made.graph, made.feeds, made.fetches, made.effects)


def _turns(
    b: _Batcher, attrs: LoopAttributes, body: Body, operands: Sequence[_BatchedValue]
) -> tuple[list[_BatchedValue], list[_BatchedValue]]:
    """The last carries and the stacked results of a scan over all examples."""
    count, end = attrs.carries, attrs.carries + attrs.sequences
    varying = _varying(body, [v.batched for v in operands], count)
    stacked: list[bool] = []

    def turn(carries: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        given = [*carries, *rows, *(v.tensor for v in operands[end:])]
        values = _one_turn(b, body, [_BatchedValue(x, flag) for x, flag in zip(given, varying, strict=True)])
        following = [b.all(v) if flag else v.tensor for v, flag in zip(values, varying, strict=False)]
        stacked[:] = [v.batched for v in values[count:]]
        return tuple(following[:count]), tuple(v.tensor for v in values[count:])

    init = [b.all(v) if flag else v.tensor for v, flag in zip(operands[:count], varying, strict=False)]
    rows = [FUNCTIONS.moveaxis(v.tensor, 1, 0) if v.batched else v.tensor for v in operands[count:end]]
    last, made = FUNCTIONS.scan(
        turn, tuple(init), tuple(rows), length=attrs.length, reverse=attrs.reverse, checkpoint=attrs.checkpoint
    )
    results = [FUNCTIONS.moveaxis(y, 1, 0) if flag else y for y, flag in zip(made, stacked, strict=True)]
    return (
        [_BatchedValue(y, flag) for y, flag in zip(last, varying, strict=False)],
        [_BatchedValue(y, flag) for y, flag in zip(results, stacked, strict=True)],
    )


def _one_turn(b: _Batcher, body: Body, given: Sequence[_BatchedValue]) -> list[_BatchedValue]:
    """The results of a body, declared for all examples into that of a loop over all of them."""
    around = get_default_graph()
    assert isinstance(around, BodyGraph)
    assert around.turn is not None
    known = dict(zip(body.feeds, [_BatchedValue(around.turn, False), *given], strict=True))
    inner = _Batcher(_Trace(body.graph), b.size, known)
    needed = needed_nodes(body.fetches, body.effects)
    inner.declare([node for node in body.graph.nodes if node in needed and node.op is not PLACEHOLDER])
    return [inner.value(y) for y in body.fetches]


def _while(b: _Batcher, node: Node, operands: Sequence[_BatchedValue]) -> Sequence[_BatchedValue | Tensor]:
    """All examples in one loop as long as the condition holds for any; those for which it does not stay as they are.
    One whose turns hand out more than the state, which derivatives inside of the function read, goes by example."""
    attrs: LoopAttributes = node.attrs
    body, condition, count = attrs.body, attrs.condition, attrs.carries
    assert condition is not None
    if len(body.fetches) > count or body.effects or condition.effects or len(b._families.get(family_of(node), [])) > 1:
        return by_example(FUNCTIONS, b.over(node, operands))
    varying = _varying(body, [v.batched for v in operands], count)
    apart = condition.fetches[0] in _reached(condition, varying)
    if apart:
        varying[:count] = [True] * count
    captured = [_BatchedValue(v.tensor, flag) for v, flag in zip(operands[count:], varying[count:], strict=True)]

    def given(state: Sequence[Tensor]) -> list[_BatchedValue]:
        return [*(_BatchedValue(x, flag) for x, flag in zip(state, varying, strict=False)), *captured]

    def goes_on(state: Any) -> Tensor:
        (more,) = _one_turn(b, condition, given(state[1:]))
        return FUNCTIONS.any(more.tensor) if more.batched else more.tensor

    def turn(state: Any) -> tuple[Tensor, ...]:
        taken, *old = state
        values = _one_turn(b, body, given(old))
        new = [b.all(v) if flag else v.tensor for v, flag in zip(values, varying, strict=False)]
        if not apart:
            return (taken + 1, *new)
        more = b.all(_one_turn(b, condition, given(old))[0])
        kept = [FUNCTIONS.where(_wide(more, x.ndim), x, before) for x, before in zip(new, old, strict=True)]
        return (taken + FUNCTIONS.astype(more, int64), *kept)

    init = [b.all(v) if flag else v.tensor for v, flag in zip(operands[:count], varying, strict=False)]
    taken = FUNCTIONS.zeros((b.size,) if apart else (), dtype=int64)
    taken, *last = FUNCTIONS.while_loop(
        goes_on, turn, (taken, *init), max_steps=attrs.length, checkpoint=attrs.checkpoint
    )
    return [*(_BatchedValue(x, flag) for x, flag in zip(last, varying, strict=False)), _BatchedValue(taken, apart)]


def _wide(x: Tensor, rank: int) -> Tensor:
    """A value by example with axes of size 1 after its own, to broadcast against ``rank`` axes."""
    return FUNCTIONS.reshape(x, (x.shape[0], *(1,) * (rank - 1)))


def _reached(body: Body, flags: Sequence[bool]) -> set[Tensor]:
    """The values of a body that differ between examples, if the operands with ``flags`` do."""
    found = {x for x, flag in zip(body.feeds[1:], flags, strict=True) if flag}
    for node in body.graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _varying(body: Body, given: Sequence[bool], carries: int) -> list[bool]:
    """Flags of the operands of a loop that differ between examples: those that do from the start, and carries that come
    to."""
    flags = list(given)
    while True:
        found = _reached(body, flags)
        new = [flag or y in found for flag, y in zip(flags[:carries], body.fetches, strict=False)]
        if new == flags[:carries]:
            return flags
        flags[:carries] = new
