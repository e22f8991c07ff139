"""Warnings that are given when a program is made: it would run, and silently do something else than was meant.

    mode       a module was declared in training mode, then switched, and not declared again
    stale      gradients were declared, then a tensor on their way got a hook or was frozen, which they do not know
    layer      a program reads weights that nothing trains, while those of an equal layer, made by the same line, are
    repeated   a cell or a turn of a loop has made a module once more, after the first (``staticgrad.graph.reruns``)
    growth     the same call of the program declares the same ops anew and runs them, again and again
    sizes      one executable has compiled a program for each of several sizes, as one cannot serve them

All of it is looked for where a session makes a program, and costs nothing where it has one.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

from staticgrad.base import boundary
from staticgrad.base.errors import (
    DuplicateLayerWarning,
    GrowthWarning,
    ModeWarning,
    RecompileWarning,
    SourceLine,
    StaleGradientWarning,
    is_inside,
    warn,
)
from staticgrad.base.reach import reach
from staticgrad.base.types import Symbol, symbols_of
from staticgrad.graph.graph import GradientCall, Graph, Node, Tensor
from staticgrad.graph.hooks import HOOKED
from staticgrad.graph.reruns import check_repeated

GROWTHS = 3  # how often a call declares the same ops once more and runs them, until that is warned of
MANY_GROWTHS = 10  # the same where programs are used again, or where it cannot be known


class History:
    """The modes of one module: in which it has declared ops, in which it is, and how often it was switched."""

    __slots__ = ("__weakref__", "current", "declared", "graphs", "kind", "switches")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.current = True
        self.declared: set[bool] = set()
        self.graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self.switches = 0

    def switch(self, training: bool) -> None:
        """Take note of another mode. Programs are looked up anew where nothing is declared in it yet."""
        self.current = training
        self.switches += 1
        if training not in self.declared:
            for graph in self.graphs:
                for known in graph.looked_up:
                    known.clear()


class Call:
    """A call of a module that is inside no other call: its kind and the line that made it, which nodes it declared,
    in which mode each module was that looked at its mode, and the variables by name of a module that no other holds."""

    __slots__ = ("first", "kind", "last", "modes", "source", "switched", "variables")

    def __init__(
        self,
        kind: str,
        source: SourceLine | None,
        first: int,
        last: int,
        modes: Mapping[History, bool],
        variables: Sequence[tuple[str, Tensor]],
    ) -> None:
        self.kind = kind
        self.source = source
        self.first, self.last = first, last
        self.modes = dict(modes)
        self.switched = frozenset(history for history in modes if history.switches)
        self.variables = tuple(variables)

    @property
    def alike(self) -> object:
        """A key that is equal for calls of layers that were made by the same line, of the same kind and sizes."""
        return self.kind, self.source, tuple((name, x.type) for name, x in self.variables)


def check_program(
    graph: Graph, fetches: Iterable[Tensor | Node], fed: Iterable[Tensor], is_written: Callable[[Tensor], bool]
) -> None:
    """Warn of what a program of these fetches would silently do.

    Args:
        is_written: whether the session has written a variable.
    """
    check_repeated(graph)
    late = [call for call in graph.calls if any(_is_late(call, h) for h in call.modes)]
    groups = _repeated(graph.calls)
    if not (late or groups or graph.unread):
        return
    cut = {x.op for x in fed}
    starts = [x.op if isinstance(x, Tensor) else x for x in fetches]
    needed = reach(starts, lambda node: () if node in cut else node.before)
    _warn_of_mode(late, needed)
    _warn_of_stale_gradients(graph, needed)
    for group in groups:
        _warn_of_layer(graph, group, needed, is_written)


# -- modes ------------------------------------------------------------------------------------------------------------


def _is_late(call: Call, history: History) -> bool:
    """True if a module has left the mode in which the call declared it, and was never declared in its mode of now. A
    switch to training before the call says that the mode was chosen for it."""
    mode, now = call.modes[history], history.current
    return now != mode and now not in history.declared and not (mode and history in call.switched)


def _warn_of_mode(calls: Sequence[Call], needed: set[Node]) -> None:
    trains = any(node.op.name == "assign" for node in needed)
    serials = {node.serial for node in needed}
    for call in calls:
        history = next(h for h in call.modes if _is_late(call, h))
        if not call.modes[history] and not trains:
            continue  # as where a function switches, declares and switches back
        if serials.isdisjoint(range(call.first, call.last)):
            continue
        modes = ("evaluation", "training")
        before, now = modes[call.modes[history]], modes[history.current]
        part = "" if history.kind == call.kind else f" ({history.kind} in it)"
        warn(
            ModeWarning,
            f"{call.kind}{part}, made at {call.source}, was declared in {before} mode, and is in {now} mode now: what"
            f" was declared stays as it is, so this runs in {before} mode. Call the module once more after"
            f" {'train()' if history.current else 'eval()'}, and run what that declares",
        )


# -- gradients that do not know of a change ---------------------------------------------------------------------------


def _warn_of_stale_gradients(graph: Graph, needed: set[Node]) -> None:
    """Warn where gradients are computed that were declared before what has changed since of a tensor."""
    for (x, what), since in graph.unread.items():
        is_concerned = _passes if what == HOOKED else _updates
        calls = [call for call in graph.gradient_calls if call.last <= since and is_concerned(call, x, needed)]
        if calls:
            again = "Register hooks before" if what == HOOKED else "Freeze before"
            warn(
                StaleGradientWarning,
                f"{x.name!r}, declared at {x.source}: {what} after gradients by it were declared at"
                f" {calls[0].source}, which this runs: they stay as they are. {again} sg.gradients or"
                " minimize, or declare them once more and run those",
            )


def _passes(call: GradientCall, x: Tensor, needed: set[Node]) -> bool:
    """True if gradients are needed that a call has declared and that come from the gradient of ``x``."""
    before = reach([x.op], lambda node: [y.op for y in node.inputs])
    if not any(y is not None and y.op in needed and t.op in before for t, y in zip(call.xs, call.results, strict=True)):
        return False
    return x.op in reach([y.op for y in call.ys], lambda node: [y.op for y in node.inputs if y.requires_grad])


def _updates(call: GradientCall, x: Tensor, needed: set[Node]) -> bool:
    """True if variable ``x`` is written and a gradient by it is needed that a call has declared."""
    is_written = any(node.op.name == "assign" and node.attrs.key == x.op.attrs.key for node in needed)
    found = [y for t, y in zip(call.xs, call.results, strict=True) if t is x and y is not None]
    return is_written and any(y.op in needed for y in found)


# -- layers -----------------------------------------------------------------------------------------------------------


def _repeated(calls: Iterable[Call]) -> list[list[Call]]:
    """First calls of different layers that are alike, where there are several."""
    groups: dict[object, dict[Tensor, Call]] = {}
    for call in calls:
        if call.variables:
            groups.setdefault(call.alike, {}).setdefault(call.variables[0][1], call)
    return [[*group.values()] for group in groups.values() if len(group) > 1]


def _warn_of_layer(
    graph: Graph, group: Sequence[Call], needed: set[Node], is_written: Callable[[Tensor], bool]
) -> None:
    assigned = {node.attrs.key for node in graph.nodes if node.op.name == "assign"}

    def is_trained(call: Call) -> bool:
        trainable = [x for _, x in call.variables if x.requires_grad]
        return any(x.op.attrs.key in assigned or is_written(x) for x in trainable)

    read = [call for call in group if any(x.op in needed for _, x in call.variables)]
    others = [call for call in group if call not in read and is_trained(call)]
    if others and any(not is_trained(call) for call in read):
        call = read[0]
        warn(
            DuplicateLayerWarning,
            f"{call.kind}, made at {call.source}, was made {len(group)} times, each with weights of its own: this reads"
            " weights that nothing has trained or loaded, while those of another are. Make the layer once,"
            " outside of the function that declares it (as an attribute of a sg.nn.Module), and call it twice",
        )


# -- growth -----------------------------------------------------------------------------------------------------------


class Growth:
    """The record of one call of the program: what it had declared when it made a program the last time, how often that
    was the same, and whether a program that it made was used again."""

    __slots__ = ("is_used", "nodes", "repeats", "signature", "start")

    def __init__(self, nodes: int) -> None:
        self.start = self.nodes = nodes  # how many there were before the latest ones, and with them
        self.repeats = 0
        self.signature: object = None
        self.is_used = False

    def note_use(self) -> None:
        """Take note that a program is worth its compilation."""
        self.is_used = True

    @property
    def allowed(self) -> int:
        """The number of repetitions that are warned of."""
        return MANY_GROWTHS if self.is_used else GROWTHS

    def grow(self, graph: Graph) -> Sequence[Node]:
        """Count what was declared since the latest program as a repetition, if it is one. Returns those nodes."""
        start = self.nodes
        new = graph.nodes[start:]
        if new:
            signature = tuple([_signature(node, self.start, start) for node in new])
            self.repeats = self.repeats + 1 if self.signature in (None, signature) else 1
            self.signature = signature
            self.start, self.nodes = start, start + len(new)
        return new


def call_chain() -> object:
    """The lines that are running, from the innermost to the program's first."""
    lines: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


def check_growth(graph: Graph, known: Any) -> Growth | None:
    """Warn where the same call makes programs, one after the other, of what it has just declared once more: the third
    time if each was run but once, the tenth if they were used again, as where several models are trained in turn.

    Args:
        known: what a session keeps of such calls, by their lines. The session's method that the user has called is
            two calls up.

    Returns:
        What is known of the call, for the session to note uses; None for functions of this package that declare and
        run, as ``check_gradients``.
    """
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename == boundary.__file__:
        frame = frame.f_back
    if frame is not None and is_inside(frame.f_code.co_filename):
        return None
    chain = call_chain()
    growth: Growth | None = known.get(chain)
    if growth is None:
        made: Growth = known.put(chain, Growth(len(graph.nodes)))
        return made
    new = growth.grow(graph)
    if new and growth.repeats == growth.allowed:
        warn(
            GrowthWarning,
            f"each time this line runs the graph has grown by the same {len(new)} ops, the newest declared at"
            f" {new[-1].source}, and another program is compiled. Declare what is run before the loop, and feed what"
            " changes; graph.finalize() refuses every further op",
        )
    return growth


def _signature(node: Node, before: int, start: int) -> object:
    """A key that is equal for a node and one that the same line declares once more.

    Args:
        before, start: the numbers of the first node of the latest growth, and of the one that this node is of. An
            operand of either is known by its place there, an older one by itself.
    """
    operands = tuple([(x.op.serial - start, x.index) if x.op.serial >= before else id(x) for x in node.inputs])
    initial = node.attrs.initial if node.op.name == "variable" else None
    filled = getattr(initial, "fill", type(initial))
    called = getattr(getattr(node.attrs, "function", None), "__code__", None)
    return node.op.name, node.source, tuple([y.type for y in node.outputs]), operands, filled, called


# -- sizes ------------------------------------------------------------------------------------------------------------


class Refusal(Protocol):
    """Why a program needs some sizes known: its text says it."""

    @property
    def symbols(self) -> frozenset[Symbol]: ...


def warn_of_sizes(
    feeds: Sequence[Tensor], refused: Sequence[Refusal], shapes: Sequence[Sequence[tuple[int, ...]]]
) -> None:
    """Warn that each of several sizes of ``feeds`` has a program of its own.

    Args:
        refused: why, one after the other.
        shapes: those of the feeds of the calls so far.
    """
    fixed = frozenset().union(*(why.symbols for why in refused))
    found = []
    for number, x in enumerate(feeds):
        axes = [axis for axis, size in enumerate(x.shape) if fixed.intersection(symbols_of((size,)))]
        for axis in axes:
            sizes = ", ".join(map(str, dict.fromkeys(given[number][axis] for given in shapes)))
            found.append(f"{x.name!r} on axis {axis} (so far {sizes})")
    why = "; ".join(dict.fromkeys(map(str, refused)))
    warn(
        RecompileWarning,
        f"each size of {' and of '.join(found)} compiles a program of its own, as no program for a range of sizes is to"
        f" be had: {why}. Declare the size as a number, or pad to a few sizes; with sess.compile(..., sizes='exact')"
        " nothing is warned of",
    )
