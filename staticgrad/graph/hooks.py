"""Hooks of tensors: functions that are called with a gradient when it is derived, or once it is accumulated.

A tensor and a function go in, a handle that removes the function comes out; the tensor keeps its functions (``Hooks``).
A graph notes which changes of its tensors the gradients that were declared before do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from staticgrad.base.errors import GradientError, GraphError, called_for
from staticgrad.base.frozen import frozen
from staticgrad.base.reach import reach
from staticgrad.graph.scopes import isolated

if TYPE_CHECKING:
    from staticgrad.graph.graph import Graph, Node, Tensor

Hook = Callable[["Tensor"], "Tensor | None"]
HOOKED, FROZEN = "a hook was registered", "it was frozen"  # what of a tensor changed


@frozen(eq=False)
class AccumulationHook:
    """A function to be called after a gradient was accumulated, and what it declared when it was registered."""

    function: Callable[[Tensor], object]
    nodes: tuple[Node, ...]


@frozen(eq=False)
class HookCall:
    """One run of a hook while a gradient was derived: what it was given and gave, and what it declared."""

    tensor: Tensor
    hook: Callable[[Tensor], object]
    before: Tensor
    after: Tensor
    nodes: tuple[Node, ...]
    kind: str = "hook"


class Hooks:
    """The hooks of a tensor in the order of registration: those that its gradient goes ``through``, and those that run
    ``after`` it was accumulated. A key is the version of the graph that the registration has made."""

    __slots__ = ("after", "through")

    def __init__(self) -> None:
        self.through: dict[int, Hook] = {}
        self.after: dict[int, AccumulationHook] = {}


class HookHandle:
    """Removes the hook that it was returned for."""

    def __init__(self, tensor: Tensor, hooks: dict[int, Hook] | dict[int, AccumulationHook], key: int) -> None:
        self._tensor = tensor
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        if self._hooks.pop(self._key, None) is not None:
            if not self._tensor.hooks:
                self._tensor.op.graph.unread.pop((self._tensor, HOOKED), None)
            self._tensor.graph.touch()

    def __repr__(self) -> str:
        return f"<hook of {self._tensor.name!r}{'' if self._key in self._hooks else ', removed'}>"


def note_change(x: Tensor, what: str) -> None:
    """Take note of what gradients that were declared before do not know."""
    graph = x.op.graph
    if graph.gradient_calls:
        graph.unread[x, what] = len(graph.nodes)


def hooks_of(x: Tensor) -> Hooks:
    """The hooks of a tensor, to which more can be added."""
    x._hooks = x._hooks or Hooks()
    return x._hooks


def add_hook(x: Tensor, hook: Hook) -> HookHandle:
    """Register a function that the gradient of ``x`` goes through.

    Raises:
        GraphError: the hook is no function.
        GradientError: the tensor does not require a gradient.
    """
    if not callable(hook):
        raise GraphError(f"a hook of {x.name!r}: expected a function of a gradient, actual {hook!r}")
    if not x.requires_grad:
        raise GradientError(f"cannot register a hook on {x.name!r}: it does not require grad", source=x.source)
    key, through = x.graph.touch(), hooks_of(x).through
    through[key] = hook
    note_change(x, HOOKED)
    return HookHandle(x, through, key)


def add_accumulation_hook(x: Tensor, hook: Callable[[Tensor], object], graph: Graph) -> HookHandle:
    """Register a function that runs after the gradient of ``x`` was accumulated, and declare now in ``graph`` what it
    does.

    Raises:
        GraphError: the hook is no function, or it reads the accumulated gradient of another tensor, or one that was
            declared before it.
        GradientError: the tensor is no leaf, or it does not require a gradient.
    """
    if not callable(hook):
        raise GraphError(f"a post accumulate grad hook of {x.name!r}: expected a function, actual {hook!r}")
    if not (x.requires_grad and x.is_leaf):
        raise GradientError(
            f"post accumulate grad hooks are for leaves that require grad, which {x.name!r} is not", source=x.source
        )
    start = len(graph.nodes)
    with graph, isolated(), called_for(f"a post accumulate grad hook of {x.name!r}", x.source):
        hook(x)
    nodes = tuple([node for node in graph.nodes[start:] if node not in graph.shared_by_updates])
    _check_gradients_read(x, nodes)
    key, after = x.graph.touch(), hooks_of(x).after
    after[key] = AccumulationHook(hook, nodes)
    return HookHandle(x, after, key)


def _check_gradients_read(x: Tensor, nodes: Sequence[Node]) -> None:
    """Check that a post accumulate grad hook reads no accumulated gradient but that of its tensor, which it declares
    itself: only what it declares is declared again for the backward, which adds to it.

    Raises:
        GraphError: it reads another one, maybe through tensors that it did not declare.
    """
    declared = set(nodes)
    for node in reach(nodes, lambda node: [operand.op for operand in node.inputs]):
        if node.op.name != "accumulated_grad" or (node in declared and node.attrs.key == f"{x.op.name}:{x.index}"):
            continue
        why = "to which the same backward may add later"
        if node not in declared:
            why = "which was declared before it, and so is that of before the backward: declare it in the hook"
        raise GraphError(
            f"a post accumulate grad hook of {x.name!r} reads the accumulated gradient {node.attrs.key!r}, {why}",
            source=x.source,
        )
