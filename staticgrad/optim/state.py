"""The state of an optimizer in a graph: its learning rates, how many runs have updated, and slots of variables.

It is made of variables, so that it is saved, restored and planned like them. An optimizer shares its state with the
groups that have options of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from numbers import Real
from typing import Any

from staticgrad.base.errors import GraphError, PromotionWarning, called_for, silent
from staticgrad.base.types import Shape, computed, float64, int64, is_floating
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph
from staticgrad.graph.lifting import lift
from staticgrad.graph.naming import Origin
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import isolated, no_grad
from staticgrad.nn import initializers as init
from staticgrad.ops.variables import Variable
from staticgrad.optim.arguments import LearningRate
from staticgrad.optim.schedules import Schedule


class OptimizerState:
    """The state of an optimizer, ``name``, which belongs to a graph once it is first asked for there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.prefix = ""  # of the names of its variables
        self.rates: list[Rate] = []
        self.steps: Tensor | None = None  # where a learning rate is a schedule: how many runs have updated
        self._graph: Graph | None = None
        self._counted: Node | None = None
        self._slots: dict[tuple[Tensor, str], Tensor] = {}

    @property
    def graph(self) -> Graph:
        """The graph that it belongs to, or would belong to now."""
        return get_default_graph() if self._graph is None else self._graph

    def settle(self, graph: Graph) -> None:
        """Let the optimizer belong to ``graph``, and the names of its state be taken there."""
        if self._graph is not None:
            return
        self._graph, self.prefix = graph, _free_prefix(graph, self.name)
        if any(rate.is_scheduled for rate in self.rates):
            self.steps = self.scalar("step", init.zeros(), int64)
        for rate in self.rates:
            rate.tensor(graph)

    def scalar(self, name: str, value: init.Initializer, dtype: Any) -> Tensor:
        """A scalar variable of the optimizer that belongs to no variable that it updates."""
        with self.graph as graph:
            x = Variable(value, shape=(), dtype=dtype, name=f"{self.prefix}/{name}", trainable=False)
        graph.origins[x.name] = Origin(f"{self.name}/{name}", x.source)
        return x

    def slot(self, var: Tensor, name: str, initial: init.Initializer | None, step: bool, shape: Shape | None) -> Tensor:
        """The variable that belongs to ``var`` under ``name``, made when first asked for: a count of steps, or of the
        ``shape``, by default that of ``var``."""
        key = var, name
        if key not in self._slots:
            own = var.shape if shape is None else shape
            shape, dtype = ((), int64) if step else (own, computed(var.dtype))
            var.graph.settle_names()
            full_name = f"{var.op.attrs.key}/{self.prefix}/{name}"
            value = init.zeros() if initial is None else initial
            with var.graph:
                self._slots[key] = Variable(value, shape=shape, dtype=dtype, name=full_name, trainable=False)
        return self._slots[key]

    def counting(self, graph: Graph) -> list[Node]:
        """The op that counts a run that updates, one for all updates of the optimizer, where a schedule needs it."""
        if self.steps is None:
            return []
        if self._counted is None or not graph.holds(self._counted):
            with _shared(graph):
                self._counted = assign(self.steps, self.steps + 1)
        return [self._counted]


class Rate:
    """A learning rate as it was given, and the tensor that it is in the graph of the optimizer; ``place`` is its name
    behind that of the optimizer."""

    def __init__(self, given: LearningRate, state: OptimizerState, place: str = "lr") -> None:
        self.given = given
        self.place = place
        self._state = state
        self._tensor: Tensor | None = None
        state.rates.append(self)

    @property
    def is_scheduled(self) -> bool:
        return callable(self.given) and not isinstance(self.given, Tensor)

    def tensor(self, graph: Graph) -> Tensor:
        """The learning rate in ``graph``, to which the optimizer belongs from then on.

        Raises:
            GraphError: it belongs to another one.
        """
        self._state.settle(graph)
        if self._tensor is None:
            self._tensor = self._declared(graph)
        if self._tensor.graph is not graph:
            name = self._state.name
            raise GraphError(f"{name}: an optimizer serves one graph, and its learning rate is of another")
        return self._tensor

    def _declared(self, graph: Graph) -> Tensor:
        given = self.given
        if isinstance(given, Tensor):
            if not is_floating(given.dtype) or given.shape != ():
                raise GraphError(f"{self._state.name}: expected a floating scalar as lr, actual {given.type}")
            return given
        if callable(given):
            return self._scheduled(graph, given)
        return self._state.scalar(self.place, init.constant(float(given)), float64)

    def _scheduled(self, graph: Graph, schedule: Schedule) -> Tensor:
        """The learning rate that a schedule gives for the runs that have been counted, as float64."""
        what = f"{self._state.name}: the schedule of the learning rate"
        assert self._state.steps is not None
        with _shared(graph), called_for(what, None), silent(PromotionWarning):  # it is cast to what is updated
            given = schedule(o.astype(self._state.steps, float64))
            if not isinstance(given, Tensor | Real) or lift(given, graph).shape != ():
                raise GraphError(f"{what}: expected it to give a scalar, actual {given!r}")
            rate = o.astype(lift(given, graph, float64), float64)
            return o.identity(rate, name=f"{self._state.prefix}/{self.place}")


@contextlib.contextmanager
def _shared(graph: Graph) -> Iterator[None]:
    """Declare in ``graph``, for all updates of an optimizer, whatever surrounds the one that is declared now."""
    start = len(graph.nodes)
    with graph, isolated(), no_grad():
        yield
    graph.shared_by_updates.update(graph.nodes[start:])


def _free_prefix(graph: Graph, name: str) -> str:
    """The optimizer's name, or one with a number where the graph has state of another one of that name."""
    number, prefix = 0, name
    while any(_is_state(key, prefix) for key in graph.variables):
        number += 1
        prefix = f"{name}_{number}"
    return prefix


def _is_state(key: str, prefix: str) -> bool:
    """True for names of what the optimizer ``prefix`` keeps."""
    own = key in (f"{prefix}/lr", f"{prefix}/step", f"{prefix}/iterations") or key.startswith(f"{prefix}/groups/")
    return own or f"/{prefix}/" in key


def as_op(value: Tensor | Node) -> Node:
    return value if isinstance(value, Node) else value.op


def assign(var: Tensor, value: Tensor) -> Node:
    """The op that writes ``value`` to a variable, in the variable's dtype."""
    return as_op(o.assign(var, o.astype(value, var.dtype)))
