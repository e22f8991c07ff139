"""Cut: from a user's graph to a region.

Input: a declared graph, what is fetched, what is fed and with which sizes. Output: a region that holds only what
the fetches need, with every size a number and every fed tensor a placeholder. Left to others: expansion and all
rewriting (passes), checking fed values (runtime).

What is decided here, because it speaks of declarations: which effects run and in which order, which reads of a
variable see a new value (``latest_value`` those of the writes that the fetches need), that no two writes of a variable
are unordered.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from staticgrad.base.collection import collection_held
from staticgrad.base.depth import all_levels
from staticgrad.base.errors import FeedError, FetchError, GraphError, at_source
from staticgrad.base.extents import OpenSizeError
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach
from staticgrad.base.types import Symbol, TensorType, as_declared, bind, infer_again, stretches, unify
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.scopes import unscoped
from staticgrad.ops.control.bodies import bodies_of, is_ordered
from staticgrad.ops.effects import ASSIGN, LATEST_VALUE
from staticgrad.ops.sources import PLACEHOLDER, VARIABLE, SourceAttributes

if TYPE_CHECKING:
    from staticgrad.compiler.regions.interventions import Intervention


@unscoped()
@all_levels()
@collection_held()
@phase("cut")
def cut(
    graph: Graph,
    fetches: Sequence[Tensor | Node],
    feeds: Mapping[Tensor, TensorType],
    *,
    check_numerics: bool = False,
    known: Mapping[Symbol, int] | None = None,
    without: Intervention | None = None,
    same: Mapping[Tensor, Tensor] | None = None,
) -> Region:
    """Copy what ``fetches`` need out of ``graph``, cut at ``feeds``, as though ``without`` had not been declared.

    Args:
        same: of feeds that are given one array, declared apart, the first: the region has one feed for all of them.

    Raises:
        FetchError, FeedError: something of another graph, a placeholder that is needed and not fed, sizes that
            contradict each other, a fed variable that is written.
        GraphError: two writes of one variable without an order.
    """
    graph.settle_names()
    check_fetches(graph, fetches)
    bindings = bind_feeds(graph, feeds, known)
    if without is not None:
        fetches = [f if isinstance(f, Node) else without.standing_for(f) for f in fetches if f not in without.nodes]
        feeds = {**feeds, **{y: TensorType(bind(y.shape, bindings), y.dtype) for y in without.fed}}
    needed = _needed(fetches, feeds, without)
    writes = _writes(needed, feeds)
    _check_order_of_writes(writes)
    same = same or {}
    maker = _NodeCopier(feeds, bindings, writes, same)
    for node in graph.nodes:
        if node in needed or any(y in feeds for y in node.outputs):
            maker.copy(node, node in needed)
        elif without is not None:
            maker.pass_over(node, without)
    tensors = maker.tensors
    outputs = tuple(tensors[f] for f in fetches if isinstance(f, Tensor))
    fed = tuple(tensors[x] for x in feeds if same.get(x, x) is x)
    region = Region(maker.graph, fed, outputs, tuple(maker.effects))
    has_bodies = any(bodies_of(node) for node in region.graph.nodes)
    if has_bodies:
        from staticgrad.compiler.regions.merge import merged

        region = merged(region)
    if check_numerics:
        from staticgrad.compiler.regions.numerics import guarded

        region = guarded(region)
    elif has_bodies:
        _order_effects(region)
    return region


def check_fetches(graph: Graph, fetches: Sequence[Tensor | Node]) -> None:
    """Refuse what a graph does not hold.

    Raises:
        FetchError: something belongs to another graph, or to the body of a loop or a branch.
    """
    for fetch in fetches:
        if not graph.holds(fetch):
            where = fetch.graph.whereabouts(fetch, "the session's") + graph.again_elsewhere(fetch)
            raise FetchError(f"cannot fetch: {where}", source=fetch.source if fetch.graph.keeps_gradients else None)


def _order_effects(region: Region) -> None:
    """Loops with effects are among those that keep their order; they can be put there only once they are merged."""
    last: Node | None = None
    for node in region.graph.nodes:
        if is_ordered(node):
            if last is not None and last not in node.control:
                node.control = (*node.control, last)
            last = node


def bind_feeds(
    graph: Graph, feeds: Mapping[Tensor, TensorType], known: Mapping[Symbol, int] | None = None
) -> dict[Symbol, int]:
    """The sizes that the feeds bind, and those ``known`` before, checked against the declared shapes."""
    bindings: dict[Symbol, int] = dict(known or {})
    for x, fed in feeds.items():
        if not graph.holds(x):
            raise FeedError(f"cannot feed: {x.graph.whereabouts(x, 'the one that is cut')}")
        if len(fed.shape) != x.ndim:
            raise FeedError(
                f"feed of {x.name!r}: expected shape {as_declared(x.shape)}, actual {fed.shape}", source=x.source
            )
    unify([(x, bind(fed.shape, bindings)) for x, fed in feeds.items()], bindings)
    return bindings


def needed_for(graph: Graph, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType]) -> list[Node]:
    """The declared nodes that ``fetches`` need, in order."""
    needed = _needed(fetches, feeds, None)
    return [node for node in graph.nodes if node in needed]


def _needed(
    fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, TensorType], without: Intervention | None
) -> set[Node]:
    def before(node: Node) -> list[Node]:
        operands = node.value_inputs
        if without is not None:
            operands = tuple([x if x in feeds else without.standing_for(x) for x in operands])
        control = [other for other in node.control if without is None or other not in without.nodes]
        return [*(x.op for x in operands if x not in feeds), *control]

    starts = [f if isinstance(f, Node) else f.op for f in fetches if not (isinstance(f, Tensor) and f in feeds)]
    return reach(starts, before)


def _writes(needed: set[Node], feeds: Mapping[Tensor, TensorType]) -> dict[str, list[Node]]:
    writes: dict[str, list[Node]] = {}
    fed = {x.op.attrs.key: x for x in feeds if x.op.op is VARIABLE}
    for node in needed:
        if node.op is ASSIGN:
            key = node.attrs.key
            if key in fed:
                raise FeedError(f"variable {key!r} is fed and written in the same run\n  written at {node.source}")
            writes.setdefault(key, []).append(node)
    return {key: sorted(nodes, key=lambda n: n.serial) for key, nodes in writes.items()}


def _check_order_of_writes(writes: Mapping[str, list[Node]]) -> None:
    for key, nodes in writes.items():
        for first, second in itertools.pairwise(nodes):
            if not _comes_after(second, first, writes):
                raise GraphError(
                    f"variable {key!r} is written twice in one run, in no order: at {first.source} and at"
                    f" {second.source}; order them with sg.control_dependencies",
                    source=second.source,
                )


def _comes_after(second: Node, first: Node, writes: Mapping[str, list[Node]]) -> bool:
    stack, seen = [second], {second}
    while stack:  # most often the answer is a step away, so that not all that is before is looked at
        node = stack.pop()
        if node is first:
            return True
        latest = _continued(node, writes) if node.op is LATEST_VALUE else None
        for before in node.before if latest is None else (*node.before, latest):
            if before not in seen:
                seen.add(before)
                stack.append(before)
    return False


def _continued(node: Node, writes: Mapping[str, list[Node]]) -> Node | None:
    """The write whose result a ``latest_value`` is; None: it is the value at the start of the run."""
    earlier = [write for write in writes.get(node.attrs.key, ()) if write.serial < node.serial]
    return earlier[-1] if earlier else None


def written_before(node: Node) -> dict[str, Node]:
    """The assigns that ``node`` was declared after, by the variable they write."""
    found = [before for before in reach(node.control, lambda n: n.control) if before.op is ASSIGN]
    return {before.attrs.key: before for before in sorted(found, key=lambda n: n.serial)}


class _NodeCopier:
    """Copies nodes in order, with sizes bound, operands replaced and effects chained."""

    def __init__(
        self,
        feeds: Mapping[Tensor, TensorType],
        bindings: Mapping[Symbol, int],
        writes: Mapping[str, list[Node]],
        same: Mapping[Tensor, Tensor],
    ) -> None:
        self.graph = Graph()
        self.tensors: dict[Tensor, Tensor] = {}
        self.effects: list[Node] = []
        self._nodes: dict[Node, Node] = {}
        self._feeds = feeds
        self._bindings = bindings
        self._writes = writes
        self._same = same
        self._last: Node | None = None

    def copy(self, node: Node, needed: bool) -> None:
        if needed and not (node.op is PLACEHOLDER and node.outputs[0] in self._feeds):
            if node.op is PLACEHOLDER:
                raise FeedError(f"placeholder {node.name!r} is needed but not fed\n  declared at {node.source}")
            self._copy_op(node)
        for y in node.outputs:
            if y in self._feeds:
                self.tensors[y] = x = self._fed(y)
                self._nodes.setdefault(node, x.op)

    def _fed(self, y: Tensor) -> Tensor:
        """The placeholder of a feed."""
        first = self._same.get(y, y)
        if first is not y:
            return self.tensors[first]
        attrs = SourceAttributes(bind(y.shape, self._bindings), y.dtype)
        with at_source(y.source):
            return self.graph.add(PLACEHOLDER, (), attrs, name=y.name).outputs[0]

    def pass_over(self, node: Node, without: Intervention) -> None:
        """Let other tensors stand in for the results of ``node``, which is left out, where these are read."""
        for y in node.outputs:
            x = without.standing_for(y)
            if x is not y and x in self.tensors:
                self.tensors[y] = self.tensors[x]

    def _copy_op(self, node: Node) -> None:
        if node.op is LATEST_VALUE:
            write = _continued(node, self._writes)
            self.tensors[node.outputs[0]] = self.tensors[node.inputs[0] if write is None else write.outputs[0]]
            return
        attrs = self._attributes(node)
        inputs = self._operands(node)
        control = [self._nodes[before] for before in node.control if before in self._nodes] if node.control else []
        if node.op.ordered and self._last is not None:
            control.append(self._last)
        types = tuple([y.type for y in node.outputs])
        if attrs is not node.attrs or False in [x.type.static for x in (*node.inputs, *node.outputs)]:
            self._check_broadcast(node, inputs)
            declared = (x.type for x in node.value_inputs)
            with at_source(node.source):
                try:
                    types = infer_again(node.op.infer, attrs, declared, (x.type for x in inputs))
                except OpenSizeError as error:
                    error.asked_by(node.name, node.source)
                    raise
        new = Node(
            self.graph, node.op, inputs, attrs, types, node.name, tuple(dict.fromkeys(control)), node.source,
            node.blocked,
        )  # fmt: skip
        new.epoch, new.part = node.epoch, node.part
        self.graph.nodes.append(new)
        self._nodes[node] = new
        for y, made in zip(node.outputs, new.outputs, strict=True):
            self.tensors[y] = made
        if node.op.effect:
            self.effects.append(new)
            if node.op.ordered:
                self._last = new

    def _attributes(self, node: Node) -> object:
        if not self._bindings:
            return node.attrs
        try:
            return bind(node.attrs, self._bindings)
        except KeyError as error:
            raise GraphError(f"the size {error.args[0].name} is not bound", source=node.source) from None
        except OpenSizeError as error:
            error.asked_by(node.name, node.source)
            raise

    def _operands(self, node: Node) -> tuple[Tensor, ...]:
        """The operands of the copied node: new values of variables where the node was declared after their write, else
        the values as declared."""
        changed = written_before(node) if node.control else {}
        if not changed:
            return tuple([self.tensors[x] for x in node.value_inputs])
        result = []
        for x in node.value_inputs:
            write = changed.get(x.op.attrs.key) if x.op.op is VARIABLE and x not in self._feeds else None
            result.append(self.tensors[write.outputs[0] if write is not None else x])
        return tuple(result)

    def _check_broadcast(self, node: Node, inputs: tuple[Tensor, ...]) -> None:
        if not node.op.elementwise:
            return
        result = bind(node.outputs[0].shape, self._bindings)
        for declared, x in zip(node.inputs, inputs, strict=True):
            for axis in range(-x.ndim, 0):
                free = not isinstance(declared.shape[axis], int) and not stretches(declared.shape[axis])
                if free and x.shape[axis] != result[axis]:
                    raise FeedError(
                        f"{node.op.name}: {declared.name!r} has size {x.shape[axis]} on axis {axis}, expected"
                        f" {result[axis]}: a size that is None when declared never broadcasts\n"
                        f"  declared at {node.source}"
                    )
