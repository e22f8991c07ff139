"""Interventions: what a user put into the midst of a computation to look at it or change it.

Input: a declared graph and the nodes of it that are needed. Output: hooks, retained gradients, prints and
callbacks, each with what stands for its results where it is left out. ``cut`` can leave one out; ``prices`` compares
the program with and without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from staticgrad.base.errors import SourceLine
from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.hooks import HookCall
from staticgrad.ops.effects import ACCUMULATE_GRAD, PRINT, PY_CALL, gradient_key


@frozen(eq=False)
class Intervention:
    """``what`` it is for people, and the user's line. ``nodes`` go with it, ``instead`` says which tensor stands for a
    result; a callback's results (``fed``) are taken as fed then. ``retained`` or ``hooked`` is the tensor whose
    gradient it is about, ``hook`` the function."""

    what: str
    source: SourceLine | None
    nodes: frozenset[Node]
    instead: Mapping[Tensor, Tensor] = field(default_factory=dict)
    fed: tuple[Tensor, ...] = ()
    retained: Tensor | None = None
    hooked: Tensor | None = None
    hook: Callable[..., object] | None = None

    def standing_for(self, x: Tensor) -> Tensor:
        """The tensor that is read where ``x`` was declared to be read."""
        while x in self.instead:
            x = self.instead[x]
        return x


def interventions(graph: Graph, needed: Collection[Node]) -> list[Intervention]:
    """The interventions that take part in computing ``needed``, in order of declaration."""
    hooks = _hooks(graph, needed)
    found = [(min(n.serial for n in i.nodes), i) for i in hooks]
    retained = gradient_tensors(graph)
    for node in set(needed).difference(*(i.nodes for i in hooks)):
        made = _of_node(node, retained)
        if made is not None:
            found.append((node.serial, made))
    return [i for _, i in sorted(found, key=lambda item: item[0])]


def gradient_tensors(graph: Graph) -> dict[str, Tensor]:
    """The tensors with a retained gradient, by the key under which it adds up."""
    return {gradient_key(y): y for node in graph.nodes for y in node.outputs if y.retains_grad}


def _of_node(node: Node, retained: Mapping[str, Tensor]) -> Intervention | None:
    if node.op is ACCUMULATE_GRAD and node.attrs.key in retained:
        x = retained[node.attrs.key]
        instead = {node.outputs[0]: node.inputs[0]}
        return Intervention(f"retain_grad of {x.name!r}", x.source, frozenset([node]), instead, retained=x)
    if node.op is PRINT:
        instead = {node.outputs[0]: node.inputs[0]}
        return Intervention(f"print of {node.inputs[0].name!r}", node.source, frozenset([node]), instead)
    if node.op is PY_CALL:
        called = getattr(node.attrs.function, "__name__", "a function")
        return Intervention(f"py_call of {called}", node.source, frozenset([node]), fed=node.outputs)
    return None


def _hooks(graph: Graph, needed: Collection[Node]) -> list[Intervention]:
    """Hooks that declared something that is needed; the calls of one hook are one intervention."""
    calls: dict[tuple[str, Tensor, object], list[HookCall]] = {}
    for call in graph.hook_calls:
        if any(node in needed for node in call.nodes):
            calls.setdefault((call.kind, call.tensor, call.hook), []).append(call)
    return [
        Intervention(
            f"{kind} {getattr(hook, '__name__', '')!r} of {x.name!r}",
            _defined_at(hook) or x.source,
            frozenset(node for call in of_one for node in call.nodes),
            {call.after: call.before for call in of_one if call.after is not call.before},
            hooked=x,
            hook=of_one[0].hook,
        )
        for (kind, x, hook), of_one in calls.items()
    ]


def _defined_at(hook: object) -> SourceLine | None:
    code = getattr(hook, "__code__", None)
    return SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
