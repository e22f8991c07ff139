"""Derivatives of ops that run bodies: loops again, whose bodies are the derivatives of the bodies.

Input: a loop and the cotangents of its results (or the tangents of its operands). Output: those of its operands
(results). The derivative of a body is linear in them, and also reads values of the body. What it reads is

    a parameter that every turn shares, or a row      read again
    a constant, a view, an elementwise function
    that only the derivative needs                    rematerialized from what it is made of
    a value of a checkpoint, or what a loop in the
    body stacks that shall keep little                rematerialized, unless it was drawn
    anything else                                     *stacked* by the loop itself, one row a turn

Where the stacks would outgrow the caches, values of the body that are cheap to compute are not stacked, but
rematerialized from what takes fewest bytes (``residuals.select``).

So the loop is declared a second time with more stacked results (``Body.origin`` says of what), and the two are one
before anything runs (``merged``). The derivative of a loop in reverse runs the other way round, carries the cotangents
of what the loop carried, and adds up those of what every turn shares. Which carries have a cotangent at all is found by
deriving until nothing is added.

The derivative of a cond is a cond whose branches compute what they need of the branch again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from staticgrad.base.errors import GradientError
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.base.types import TensorType, is_floating
from staticgrad.compiler.autodiff.again import operands_of
from staticgrad.compiler.autodiff.residuals import AS_READ, Remat, keeps_little, remat, select
from staticgrad.compiler.autodiff.scope import DerivativeScope, passes_gradients
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS, Op, Primal
from staticgrad.graph.scopes import isolated
from staticgrad.ops.control.bodies import Body, BodyGraph, effects_of
from staticgrad.ops.control.branches import COND, CondAttributes
from staticgrad.ops.control.loops import SCAN, WHILE, LoopAttributes
from staticgrad.ops.effects import PRINT
from staticgrad.ops.sources import PLACEHOLDER

NEAR_BYTES = 1 << 20  # of stacks that stay in the second cache

Maybe = Tensor | None
# What derives a body: in reverse of a graph, cotangents of tensors, and tensors whose cotangents are asked for;
# forward of a graph, tangents of tensors, and tensors whose tangents are asked for.
Pull = Callable[[Graph, Mapping[Tensor, Tensor], Sequence[Tensor]], dict[Tensor, Tensor]]
Push = Callable[[Graph, Mapping[Tensor, Tensor], Sequence[Tensor]], dict[Tensor, Tensor]]
Again = dict[Tensor, bool]


# -- the derivative of a body, as a body --------------------------------------------------------------------------


@frozen
class _DerivativeBody:
    """A body that computes derivatives, and what it is given.

    ``carries``, ``rows`` and ``shared`` number those of the primal's carries, rows and captured operands (or, in
    reverse, of its stacked results: ``given``) that it speaks of; ``read_*`` those whose values it reads; ``stacked``
    are values of ``forward``, the body that hands them out.
    """

    body: Body
    carries: tuple[int, ...]
    rows: tuple[int, ...]
    shared: tuple[int, ...]
    given: tuple[int, ...]
    read_rows: tuple[int, ...]
    read_shared: tuple[int, ...]
    stacked: tuple[Tensor, ...]
    fresh: tuple[Tensor, ...]  # tensors from outside that the derivative captured
    forward: Body | None


class _Parts:
    """The parameters of a loop's body by what they are."""

    def __init__(self, attrs: LoopAttributes) -> None:
        self.attrs = attrs
        feeds = attrs.body.feeds
        middle = 1 + attrs.carries
        end = middle + attrs.sequences
        self.turn = feeds[0]
        self.carries, self.rows, self.shared = feeds[1:middle], feeds[middle:end], feeds[end:]
        self.next, self.results = attrs.body.fetches[: attrs.carries], attrs.body.fetches[attrs.carries :]


class _Extraction:
    """Moves the nodes of a derivation that depend on ``seeds`` into a body of their own."""

    def __init__(
        self,
        derivation: BodyGraph,
        known: Iterable[Tensor],
        seeds: Iterable[Tensor],
        again: Mapping[Tensor, bool] | None = None,
    ) -> None:
        self.derivation = derivation
        self.again = again or {}
        self.first = derivation.first
        self.known = set(known)
        self.active: set[Tensor] = set(seeds)
        self.fresh = list(derivation.captured.items())[derivation.first_capture :]
        self.outside = {parameter for _, parameter in self.fresh}
        self.of_checkpoints: set[Tensor] = set()  # values of checkpoints rematerialized, and what rules make of them
        for node in derivation.nodes[self.first :]:
            if any(x in self.active for x in node.inputs):
                self.active.update(node.outputs)
            if any(x in self.outside for x in node.inputs):
                self.outside.update(node.outputs)
            if node.epoch or any(x in self.of_checkpoints for x in node.inputs):
                self.of_checkpoints.update(node.outputs)
        self.stacked: dict[Tensor, list[Tensor]] = {}  # and what each stands for: itself, and when computed again
        self.parameters: dict[Tensor, None] = {}
        self.nodes: set[Node] = set()

    def find(self, results: Iterable[Tensor]) -> None:
        """Find the nodes that ``results`` take, and what these read."""
        stack = [*results]
        seen = set(stack)
        while stack:
            x = stack.pop()
            node = x.op
            if x in self.known or (x in self.active and node.op is PLACEHOLDER):
                self.parameters[x] = None
                continue
            if x in self.outside and node.op is PLACEHOLDER:
                continue
            if x not in self.active and not self.again.get(x.original, self._is_rematerialized(node)):
                self.stacked.setdefault(x.original, []).append(x)  # the forward body waits for no cotangent
                continue
            self.nodes.add(node)
            before = [y for c in node.control if c.serial >= self.first for y in (*c.inputs,)]
            self.nodes.update(c for c in node.control if c.serial >= self.first)
            for y in (*node.inputs, *before):
                if y not in seen:
                    seen.add(y)
                    stack.append(y)

    def _is_rematerialized(self, node: Node) -> bool:
        """True if the derivative rematerializes it, where stacks stay in the caches."""
        most = Remat.ELEMENTWISE if node.serial >= self.first else Remat.VIEW
        if node.outputs[0] in self.of_checkpoints:
            most = Remat.BODIES
        if node.serial >= self.first and keeps_little(node):
            most = Remat.BODIES
        return node.outputs[0] in self.outside or remat(node) <= most

    def thinned(self, stacked_anyway: set[Tensor]) -> Again:
        """A choice, for each value between the body's parameters and what is stacked now, of whether it is computed
        again, with the fewest bytes in all."""

        def operands(x: Tensor) -> Sequence[Tensor] | None:
            is_cheap = remat(x.op) in AS_READ and not x.op.control
            return [y for y in x.op.inputs if not self._is_free(y)] if is_cheap else None

        kept = select(self.stacked, operands, lambda x: 0 if x in stacked_anyway else x.type.nbytes)
        again = reach(self.stacked, lambda x: () if x in kept else operands(x) or ())
        return {x: x not in kept for x in again}

    def _is_free(self, x: Tensor) -> bool:
        return x in self.known or x in self.outside or remat(x.op) is Remat.FREE

    def write(self, graph: BodyGraph, tensors: dict[Tensor, Tensor]) -> None:
        """Copy the nodes; ``tensors`` has what stands for the parameters and stacked values."""
        for stacked, values in self.stacked.items():
            tensors.update(dict.fromkeys(values, tensors[stacked]))
        made: dict[Node, Node] = {}
        for node in self.derivation.nodes:
            if node in self.nodes:
                inputs = tuple(tensors[x] for x in node.inputs)
                made[node] = graph.clone(node, inputs, tuple(made[c] for c in node.control if c in made))
                for y, new in zip(node.outputs, made[node].outputs, strict=True):
                    tensors.setdefault(y, new)


def _varying(parts: _Parts, seeds: set[Tensor]) -> set[Tensor]:
    """The floating tensors of the body that vary with the parameters ``seeds``, turn after turn."""
    varying = set(seeds)
    while True:
        before = len(varying)
        for node in parts.attrs.body.graph.nodes:
            if passes_gradients(node) and any(x in varying for x in node.inputs):
                varying.update(y for y in node.outputs if is_floating(y.dtype))
        varying.update(c for c, new in zip(parts.carries, parts.next, strict=True) if new in varying)
        if len(varying) == before:
            return varying


def _derivation(graph: Graph, body: Body) -> BodyGraph:
    return BodyGraph(graph, body.graph)


def _forward(body: Body, derivation: BodyGraph, stacked: Sequence[Tensor]) -> Body | None:
    """The body, handing out ``stacked`` too; None where it need not."""
    if not stacked:
        return None
    fetches = (*body.fetches, *stacked)
    effects = tuple(dict.fromkeys((*body.effects, *effects_of(derivation.nodes, stacked))))
    return Body(derivation, body.feeds, fetches, effects, origin=body.root)


def _outgrows(parts: _Parts, stacked: Iterable[Tensor]) -> bool:
    """True if stacks do not stay in the caches; sizes that only feeds bind are taken for small."""
    length = parts.attrs.length
    anyway = set(parts.results)
    added = [x for x in stacked if x not in anyway]
    if not isinstance(length, int) or not all(x.type.static for x in added):
        return False
    return length * sum(x.type.nbytes for x in added) > NEAR_BYTES


def _finish(
    graph: Graph,
    parts: _Parts,
    derivation: BodyGraph,
    seeds: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]],
    results: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]],
    numbers: Mapping[str, tuple[int, ...]],
    choose: Callable[[_Extraction], Again],
) -> _DerivativeBody:
    """A body out of what was derived: its parameters are the turn, carries, rows and captured values. ``choose`` says
    what is rematerialized where stacks outgrow the caches.

    Args:
        seeds: carried, row and shared cotangents or tangents, parameters of the derivation.
        results: next carries, sums (added to in each turn), rows.
    """
    body = parts.attrs.body
    known = (parts.turn, *parts.rows, *parts.shared)
    every = [x for group in results for x in group]
    given = [x for group in seeds for x in group]
    found = _Extraction(derivation, known, given)
    found.find(every)
    if _outgrows(parts, found.stacked):
        found = _Extraction(derivation, known, given, choose(found))
        found.find(every)
    read_rows = tuple(i for i, x in enumerate(parts.rows) if x in found.parameters)
    read_shared = tuple(i for i, x in enumerate(parts.shared) if x in found.parameters)
    stacked = tuple(sorted(found.stacked, key=lambda x: (x.op.serial, x.index)))
    made = BodyGraph(graph)
    tensors: dict[Tensor, Tensor] = {}

    def xs(items: Iterable[Tensor]) -> list[Tensor]:
        found = list(items)
        for x in found:
            tensors[x] = made.parameter(x.type, x.op.name)
        return [tensors[x] for x in found]

    with made, isolated():
        made.turn = xs([parts.turn])[0]
        carries = xs(seeds[0])
        sums = [made.parameter(x.type, "sum") for x in results[1]]
        rows = [*xs(seeds[1]), *xs(parts.rows[i] for i in read_rows), *xs(stacked)]
        shared = [*xs(seeds[2]), *xs(parts.shared[i] for i in read_shared), *xs(p for _, p in found.fresh)]
        found.write(made, tensors)
        added = [FUNCTIONS.add(total, tensors[x]) for total, x in zip(sums, results[1], strict=True)]
        fetches = (*(tensors[x] for x in results[0]), *added, *(tensors[x] for x in results[2]))
    made.finalized = True
    feeds = (made.turn, *carries, *sums, *rows, *shared)
    linear = Body(made, feeds, fetches, effects_of(made.nodes, fetches))
    handed_out = set(parts.results)
    forward = _forward(body, derivation, [x for x in stacked if x not in handed_out])
    fresh = tuple(outside for outside, _ in found.fresh)
    return _DerivativeBody(
        linear, numbers["carries"], numbers["rows"], numbers["shared"], numbers["given"], read_rows, read_shared,
        stacked, fresh, forward,
    )  # fmt: skip


def _remember(body: Body, key: object, make: Callable[[], _DerivativeBody]) -> _DerivativeBody:
    """Derive once, unless what was derived belongs to the graph around (hooks may read of it)."""
    known = body.memo.get(key)
    if known is None:
        known = make()
        if not known.fresh:
            body.memo[key] = known
    return known


# -- loops --------------------------------------------------------------------------------------------------------


def pull_back_loop(
    graph: Graph, primal: Primal[Any], cotangents: Sequence[Maybe], needs: Sequence[bool], pull: Pull
) -> list[Maybe]:
    """The cotangents of a loop's operands from those of its results.

    Raises:
        GradientError: a while_loop without ``max_steps``.
    """
    attrs: LoopAttributes = primal.attrs
    if attrs.length is None:
        raise GradientError("while_loop: its gradient in reverse needs max_steps", source=primal.outputs[0].source)
    counted = int(attrs.counted)
    first = attrs.first_result
    last, rows = tuple(cotangents[: attrs.carries]), tuple(cotangents[first:])
    given = (tuple(ct is not None for ct in last), tuple(ct is not None for ct in rows))
    wanted = tuple(need and is_floating(x.dtype) for need, x in zip(needs, primal.inputs, strict=True))[counted:]
    key = ("reverse", attrs.carries, attrs.sequences, attrs.length, wanted, given)
    linear = _remember(attrs.body, key, lambda: _reversed(graph, attrs, wanted, given, pull))
    result: list[Maybe] = [None] * len(primal.inputs)
    if not linear.body.fetches:
        return result
    stacks = _stacks(graph, primal, linear)
    o = FUNCTIONS
    carried = [o.zeros_like(primal.outputs[j]) if (ct := last[j]) is None else ct for j in linear.carries]
    shared = primal.inputs[counted + attrs.carries + attrs.sequences :]
    sums = [o.zeros_like(shared[i]) for i in linear.shared]
    sequences = primal.inputs[counted + attrs.carries : counted + attrs.carries + attrs.sequences]
    read = [
        *(ct for k in linear.given if (ct := rows[k]) is not None),
        *(sequences[i] for i in linear.read_rows),
        *stacks,
    ]
    captured = [*(shared[i] for i in linear.read_shared), *linear.fresh]
    count = _count(primal)
    backward = LoopAttributes(
        linear.body, None, len(carried) + len(sums), len(read), attrs.length, not attrs.reverse, bool(count),
        attrs.checkpoint,
    )  # fmt: skip
    outputs = graph.add(SCAN, [*count, *carried, *sums, *read, *captured], backward).outputs
    for number, j in enumerate(linear.carries):
        result[counted + j] = outputs[number] if needs[counted + j] else None
    for number, i in enumerate(linear.shared):
        result[counted + attrs.carries + attrs.sequences + i] = outputs[len(carried) + number]
    for number, i in enumerate(linear.rows):
        result[counted + attrs.carries + i] = outputs[backward.carries + number]
    return result


def _count(primal: Primal[Any]) -> list[Tensor]:
    """The number of turns that a loop took, where that is not its length, as a list of one tensor; else no tensor."""
    attrs: LoopAttributes = primal.attrs
    if attrs.condition is not None:
        return [primal.outputs[attrs.carries]]
    return [primal.inputs[0]] if attrs.counted else []


def _stacks(graph: Graph, primal: Primal[Any], linear: _DerivativeBody) -> list[Tensor]:
    """The stacked values that the derivative reads: results of the loop, or of the loop declared again."""
    attrs: LoopAttributes = primal.attrs
    results = attrs.body.fetches[attrs.carries :]
    more: dict[Tensor, Tensor] = dict(zip(results, primal.outputs[attrs.first_result :], strict=True))
    if linear.forward is not None:
        home, inputs, node = _home(graph, primal)
        with home:
            again = home.add(_op_of(primal), inputs, replace(attrs, body=linear.forward))
        again.epoch, again.control = node.epoch, node.control  # in a checkpoint, those of the loop that is run again
        stacked = zip(linear.forward.fetches[attrs.carries :], again.outputs[attrs.first_result :], strict=True)
        more.update((x, y) for x, y in stacked if x not in more)
    return [more[x] for x in linear.stacked]


def _home(graph: Graph, primal: Primal[Any]) -> tuple[Graph, Sequence[Tensor], Node]:
    """The graph that a loop stands in, its operands there, and its node: what it is declared again with becomes one
    with it."""
    scope = DerivativeScope(graph, around=True)
    node = scope.outermost(primal.outputs[0]).op
    return (scope.home(node), operands_of(node), node) if scope.is_outside(node) else (graph, primal.inputs, node)


def _op_of(primal: Primal[Any]) -> Op:
    """The op of a node with these attributes."""
    from staticgrad.ops.control.loops import EFFECTFUL_SCAN, EFFECTFUL_WHILE

    attrs: LoopAttributes = primal.attrs
    bodies = (attrs.body,) if attrs.condition is None else (attrs.body, attrs.condition)
    if any(body.effects for body in bodies):
        return EFFECTFUL_SCAN if attrs.condition is None else EFFECTFUL_WHILE
    return SCAN if attrs.condition is None else WHILE


def _reversed(
    graph: Graph,
    attrs: LoopAttributes,
    wanted: Sequence[bool],
    given: tuple[Sequence[bool], Sequence[bool]],
    pull: Pull,
    choose: Callable[[_Extraction], Again] | None = None,
) -> _DerivativeBody:
    """The derivative for the cotangents that are ``given``; ``choose`` is ``_again_of_all`` unless another is given."""
    parts = _Parts(attrs)
    operands = (*parts.carries, *parts.rows, *parts.shared)
    varying = _varying(parts, {x for x, need in zip(operands, wanted, strict=True) if need})
    targets = [x for x in operands if x in varying]
    flowing = {j for j, there in enumerate(given[0]) if there and parts.next[j] in varying}
    rows = tuple(k for k, there in enumerate(given[1]) if there and parts.results[k] in varying)
    while True:
        derivation = _derivation(graph, attrs.body)
        carries = tuple(sorted(flowing))
        with derivation, isolated():
            seeds = [derivation.parameter(parts.next[j].type, "grad") for j in carries]
            row_seeds = [derivation.parameter(parts.results[k].type, "grad") for k in rows]
            cotangents: dict[Tensor, Tensor] = {}
            ends = [*(parts.next[j] for j in carries), *(parts.results[k] for k in rows)]
            for y, ct in zip(ends, (*seeds, *row_seeds), strict=True):
                cotangents[y] = ct if y not in cotangents else FUNCTIONS.add(cotangents[y], ct)
            found = pull(derivation, cotangents, targets)
            reached = {j for j, c in enumerate(parts.carries) if c in varying and c in found}
            if reached <= flowing:
                new = [found.get(parts.carries[j]) for j in carries]
                known = [
                    FUNCTIONS.zeros_like(c) if x is None else x
                    for x, c in zip(new, (parts.carries[j] for j in carries), strict=True)
                ]
                break
        flowing |= reached
    asked = {x for x, need in zip(operands, wanted, strict=True) if need}
    row_numbers = tuple(i for i, x in enumerate(parts.rows) if x in asked and x in found)
    shared = tuple(i for i, x in enumerate(parts.shared) if x in asked and x in found)
    numbers = {"carries": carries, "rows": row_numbers, "shared": shared, "given": rows}
    results = (known, [found[parts.shared[i]] for i in shared], [found[parts.rows[i]] for i in row_numbers])
    choose = choose or (lambda _: _again_of_all(graph, attrs, pull))
    return _finish(graph, parts, derivation, (seeds, row_seeds, ()), results, numbers, choose)


def _again_of_all(graph: Graph, attrs: LoopAttributes, pull: Pull) -> Again:
    """The values that the derivative of all results by all operands computes again. That of some of them reads no more
    then, so that a tape which keeps what all of them read has kept what any of them does."""
    memo, key = attrs.body.memo, ("again", attrs.carries, attrs.sequences, attrs.length)
    if key not in memo:
        parts = _Parts(attrs)
        found: Again = {}

        def note(extraction: _Extraction) -> Again:
            found.update(extraction.thinned(set(parts.results)))
            return found

        wanted = [is_floating(x.dtype) for x in (*parts.carries, *parts.rows, *parts.shared)]
        given = [is_floating(x.dtype) for x in parts.next], [is_floating(x.dtype) for x in parts.results]
        with contextlib.suppress(GradientError):  # of an op that some of them do not pass
            _reversed(graph, attrs, wanted, (given[0], given[1]), pull, note)
        memo[key] = found
    again: Again = memo[key]
    return again


def push_forward_loop(graph: Graph, primal: Primal[Any], tangents: Sequence[Maybe], push: Push) -> list[Maybe]:
    """The tangents of a loop's results from those of its operands."""
    attrs: LoopAttributes = primal.attrs
    counted = int(attrs.counted)
    given = tuple(t is not None for t in tangents)[counted:]
    if attrs.length is None:
        return _push_while(graph, primal, tangents, push)
    key = ("forward", attrs.carries, attrs.sequences, attrs.length, given)
    linear = _remember(attrs.body, key, lambda: _tangents(graph, attrs, given, push))
    result: list[Maybe] = [None] * len(primal.outputs)
    if not linear.body.fetches:
        return result
    o = FUNCTIONS
    middle, end = counted + attrs.carries, counted + attrs.carries + attrs.sequences
    carried = []
    for j in linear.carries:
        t = tangents[counted + j]
        carried.append(o.zeros_like(primal.inputs[counted + j]) if t is None else t)
    sequences, shared = primal.inputs[middle:end], primal.inputs[end:]
    varied = [t for t in tangents[middle:end] if t is not None]
    read = [*varied, *(sequences[i] for i in linear.read_rows), *_stacks(graph, primal, linear)]
    directions = [t for t in tangents[end:] if t is not None]
    captured = [*directions, *(shared[i] for i in linear.read_shared), *linear.fresh]
    count = _count(primal)
    made = LoopAttributes(linear.body, None, len(carried), len(read), attrs.length, attrs.reverse, bool(count))
    outputs = graph.add(SCAN, [*count, *carried, *read, *captured], made).outputs
    for number, j in enumerate(linear.carries):
        result[j] = outputs[number]
    for number, k in enumerate(linear.given):
        result[attrs.first_result + k] = outputs[len(carried) + number]
    return result


def _tangents(graph: Graph, attrs: LoopAttributes, given: Sequence[bool], push: Push) -> _DerivativeBody:
    parts = _Parts(attrs)
    operands = (*parts.carries, *parts.rows, *parts.shared)
    moving = {x for x, there in zip(operands, given, strict=True) if there}
    flowing = {j for j, c in enumerate(parts.carries) if c in moving}
    rows = [x for x in parts.rows if x in moving]
    shared = [x for x in parts.shared if x in moving]
    while True:
        derivation = _derivation(graph, attrs.body)
        carries = tuple(sorted(flowing))
        with derivation, isolated():
            carried = [parts.carries[j] for j in carries]
            of_carries, of_rows, of_shared = (
                [derivation.parameter(x.type, "tangent") for x in xs] for xs in (carried, rows, shared)
            )
            tangents = [*of_carries, *of_rows, *of_shared]
            seeds = dict(zip([*carried, *rows, *shared], tangents, strict=True))
            found = push(derivation, seeds, attrs.body.fetches)
            reached = {j for j, y in enumerate(parts.next) if y in found}
            if reached <= flowing:
                new = [found[y] if (y := parts.next[j]) in found else FUNCTIONS.zeros_like(y) for j in carries]
                break
        flowing |= reached
    stacked = tuple(k for k, y in enumerate(parts.results) if y in found)
    numbers: dict[str, tuple[int, ...]] = {"carries": carries, "rows": (), "shared": (), "given": stacked}
    results = (new, (), [found[parts.results[k]] for k in stacked])
    seeds_of = (of_carries, of_rows, of_shared)
    return _finish(graph, parts, derivation, seeds_of, results, numbers, lambda x: x.thinned(set(parts.results)))


def _push_while(graph: Graph, primal: Primal[Any], tangents: Sequence[Maybe], push: Push) -> list[Maybe]:
    """Without a bound nothing can be stacked: one loop carries the values and their tangents."""
    attrs: LoopAttributes = primal.attrs
    assert attrs.condition is not None
    parts = _Parts(attrs)
    given = tuple(t is not None for t in tangents)
    linear = _tangents(graph, attrs, given, push)
    if not linear.carries:
        return [None] * len(primal.outputs)
    moving = [parts.shared[i] for i, there in enumerate(given[attrs.carries :]) if there]
    derivation = _derivation(graph, attrs.body)
    with derivation, isolated():
        carried = [derivation.parameter(parts.carries[j].type, "tangent") for j in linear.carries]
        shared = [derivation.parameter(x.type, "tangent") for x in moving]
        seeds = dict(zip((*(parts.carries[j] for j in linear.carries), *moving), (*carried, *shared), strict=True))
        found = push(derivation, seeds, parts.next)
        new = [found[y] if (y := parts.next[j]) in found else FUNCTIONS.zeros_like(y) for j in linear.carries]
    fresh = list(derivation.captured.items())[derivation.first_capture :]
    feeds = (parts.turn, *parts.carries, *carried, *parts.shared, *shared, *(p for _, p in fresh))
    body = Body(derivation, feeds, (*parts.next, *new), attrs.body.effects)
    test = BodyGraph(graph, attrs.condition.graph)
    old = attrs.condition.feeds
    ignored = [test.parameter(x.type, "tangent") for x in (*carried, *shared, *(p for _, p in fresh))]
    split = len(carried)
    test_feeds = (*old[: 1 + attrs.carries], *ignored[:split], *old[1 + attrs.carries :], *ignored[split:])
    condition = Body(test, test_feeds, attrs.condition.fetches, attrs.condition.effects)
    o = FUNCTIONS
    first = [o.zeros_like(primal.inputs[j]) if (t := tangents[j]) is None else t for j in linear.carries]
    directions = [t for t in tangents[attrs.carries :] if t is not None]
    inputs = [
        *primal.inputs[: attrs.carries], *first, *primal.inputs[attrs.carries :], *directions, *(x for x, _ in fresh)
    ]  # fmt: skip
    made = LoopAttributes(body, condition, attrs.carries + len(first), 0, None)
    outputs = graph.add(_op_of(primal), inputs, made).outputs
    result: list[Maybe] = [None] * len(primal.outputs)
    for number, j in enumerate(linear.carries):
        result[j] = outputs[attrs.carries + number]
    return result


# -- cond ---------------------------------------------------------------------------------------------------------


def pull_back_cond(
    graph: Graph, primal: Primal[Any], cotangents: Sequence[Maybe], needs: Sequence[bool], pull: Pull
) -> list[Maybe]:
    """The cotangents of a cond's operands: a cond of the branches' derivatives."""
    numbers = [k for k, ct in enumerate(cotangents) if ct is not None]
    wanted = [i for i, x in enumerate(primal.inputs[1:]) if needs[1 + i] and is_floating(x.dtype)]

    def derive(body: Body, derivation: BodyGraph, given: Sequence[Tensor]) -> list[_Derived]:
        seeds: dict[Tensor, Tensor] = {}
        for k, ct in zip(numbers, given, strict=True):
            y = body.fetches[k]
            seeds[y] = ct if y not in seeds else FUNCTIONS.add(seeds[y], ct)
        targets = [body.feeds[i] for i in wanted]
        found = pull(derivation, seeds, targets)
        return [(found.get(x), x) for x in targets]

    if not wanted or not numbers:
        return [None] * len(primal.inputs)
    given = [ct for ct in cotangents if ct is not None]
    result: list[Maybe] = [None] * len(primal.inputs)
    for i, ct in zip(wanted, _derived_cond(graph, primal, given, derive), strict=True):
        result[1 + i] = ct
    return result


def push_forward_cond(graph: Graph, primal: Primal[Any], tangents: Sequence[Maybe], push: Push) -> list[Maybe]:
    """The tangents of a cond's results: a cond of the branches' derivatives."""
    moving = [i for i, t in enumerate(tangents[1:]) if t is not None]
    numbers = [k for k, y in enumerate(primal.outputs) if is_floating(y.dtype)]

    def derive(body: Body, derivation: BodyGraph, given: Sequence[Tensor]) -> list[_Derived]:
        seeds = {body.feeds[i]: t for i, t in zip(moving, given, strict=True)}
        ys = [body.fetches[k] for k in numbers]
        found = push(derivation, seeds, ys)
        return [(found.get(y), y) for y in ys]

    given = [t for t in tangents[1:] if t is not None]
    if not given or not numbers:
        return [None] * len(primal.outputs)
    result: list[Maybe] = [None] * len(primal.outputs)
    for k, t in zip(numbers, _derived_cond(graph, primal, given, derive), strict=True):
        result[k] = t
    return result


_Derived = tuple[Maybe, Tensor]  # a cotangent or tangent, None for one that is zero, and whose it is
_Derive = Callable[[Body, BodyGraph, Sequence[Tensor]], list[_Derived]]


def _derived_cond(graph: Graph, primal: Primal[Any], given: Sequence[Tensor], derive: _Derive) -> list[Maybe]:
    """The results of a cond of what ``derive`` declares for each branch, None where neither branch leads to one."""
    attrs: CondAttributes = primal.attrs
    written: list[tuple[BodyGraph, list[Tensor], list[_Derived]]] = []
    for branch in (attrs.then, attrs.otherwise):
        body = _silent(branch)
        derivation = _derivation(graph, body)
        with derivation, isolated():
            seeds = [derivation.parameter(TensorType(x.shape, x.dtype), "given") for x in given]
            written.append((derivation, [*body.feeds, *seeds], derive(body, derivation, seeds)))
    fresh = list(dict.fromkeys(x for d, _, _ in written for x in list(d.captured)[d.first_capture :]))
    kept = [any(x is not None for x, _ in pair) for pair in zip(*(made for _, _, made in written), strict=True)]
    if not any(kept):
        return [None] * len(kept)
    bodies = []
    for derivation, feeds, made in written:
        every = (*feeds, *(derivation.adopt(x, "cond") for x in fresh))
        with derivation, isolated():
            some = [pair for pair, there in zip(made, kept, strict=True) if there]
            fetches = tuple(FUNCTIONS.zeros_like(of) if x is None else x for x, of in some)
        bodies.append(Body(derivation, every, fetches, effects_of(derivation.nodes, fetches)))
    outputs = iter(graph.add(COND, [*primal.inputs, *given, *fresh], CondAttributes(*bodies)).outputs)
    return [next(outputs) if there else None for there in kept]


def _silent(body: Body) -> Body:
    """The body without what it prints and asserts, to be computed a second time."""
    if not body.effects:
        return body
    if "silent" not in body.memo:
        region = Region(body.graph, body.feeds, body.fetches)

        def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
            return inputs if node.op is PRINT else None

        made = rebuild(_without_control(region), visit)
        graph = BodyGraph(body.graph.outer if isinstance(body.graph, BodyGraph) else Graph(), made.graph)
        body.memo["silent"] = Body(graph, made.feeds, made.fetches, effects_of(graph.nodes, made.fetches))
    silent: Body = body.memo["silent"]
    return silent


def _without_control(region: Region) -> Region:
    """The region without the order of effects, which would keep them."""
    made = rebuild(region, lambda node, inputs: get_default_graph().clone(node, inputs).outputs)
    for node in made.graph.nodes:
        node.control = tuple(n for n in node.control if not n.op.ordered)
    return made
