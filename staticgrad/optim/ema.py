"""Exponential moving averages of variables."""

from __future__ import annotations

from staticgrad.base.errors import GraphError
from staticgrad.base.types import computed, float64, int64, is_floating, is_short_float, number
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import no_grad
from staticgrad.nn import initializers as init
from staticgrad.ops.variables import Variable
from staticgrad.optim.arguments import Variables, listed
from staticgrad.optim.state import assign


class EMA:
    """Exponential moving averages of variables, kept as variables: a ← decay·a + (1 - decay)·θ.

    The first update copies the variables. The averages are named ``<var>/ema`` (float32 for short floats) and are saved
    and restored with the session.

    To evaluate with them, swap them in and out again, or feed them for one run::

        sess.run(swap)                                # the variables hold the averages, and the other way around
        accuracy = sess.run(correct, {x: images, t: labels})
        sess.run(swap)                                # as before

        sess.run(correct, {x: images, t: labels, **{w: sess.get(ema[w]) for w in ema.variables}})

    Args:
        decay: how much of the average stays in an update, in [0, 1).
        warmup: min(decay, (1 + n) / (10 + n)) in its place for update n = 0, 1, …, so that the averages of a short
            training are not those of its first steps.

    Raises:
        GraphError: a decay out of its range.

    Example:
        >>> w = sg.Variable([1.0, 2.0])
        >>> train = sg.optim.SGD(lr=0.25).minimize(sg.sum(w * w))
        >>> ema = sg.optim.EMA(decay=0.5)
        >>> with sg.control_dependencies([train]):
        ...     update = ema.update()
        >>> sess = sg.Session()
        >>> for _ in range(2):
        ...     _ = sess.run([train, update])
        >>> sess.get(w), sess.get(ema[w])
        (array([0.25, 0.5 ], dtype=float32), array([0.375, 0.75 ], dtype=float32))
    """

    def __init__(self, decay: float = 0.999, *, warmup: bool = False) -> None:
        self.decay = number(decay, "EMA: decay", 0.0)
        if self.decay >= 1:
            raise GraphError(f"EMA: decay={decay!r}: expected a number in [0, 1)")
        self.warmup = bool(warmup)
        self._prefix = ""
        self._averages: dict[Tensor, tuple[Tensor, Tensor]] = {}  # each with how many updates it has had

    @property
    def variables(self) -> list[Tensor]:
        """The variables that are averaged."""
        return list(self._averages)

    def update(self, var_list: Variables | None = None) -> Node:
        """An op that moves the averages towards the variables.

        It reads the variables as they are at the start of a run, or with the writes that it is declared after::

            with sg.control_dependencies([train]):
                update = ema.update()

        Args:
            var_list: what to average, variables or a module with its parameters; default: the variables of the current
                graph that require a gradient now.

        Raises:
            GraphError: there is nothing to average, or what is no floating variable.
        """
        if var_list is None:
            found = [x for x in get_default_graph().variables.values() if x.requires_grad]
        else:
            found = [self._averaged(x) for x in listed(var_list, "EMA averages variables")]
        if not found:
            raise GraphError("EMA.update: there is no variable to average")
        graph = found[0].graph
        with graph, no_grad():
            return _run_all([node for x in found for node in self._updates(x)])

    def average(self, var: Tensor) -> Tensor:
        """The variable that keeps the average of ``var``; ``ema[var]`` is the same. It holds zeros before the first
        update.

        Raises:
            GraphError: it is not averaged.
        """
        return self._kept(var)[0]

    __getitem__ = average

    def swap(self) -> Node:
        """An op that exchanges the variables and their averages; run again, it puts them back. Those that have had no
        update stay.

        Raises:
            GraphError: nothing is averaged yet; or a variable of 16 bits, whose average would be rounded.
        """
        for x in self._averages:
            if is_short_float(x.dtype):
                raise GraphError(
                    f"EMA.swap: the average of {x.name!r} is float32 and would be rounded to {x.dtype.name}: save the"
                    " variables and use copy_to, or feed the averages",
                    source=x.source,
                )
        return self._exchanged(both=True)

    def copy_to(self) -> Node:
        """An op that assigns the averages to the variables. Those that have had no update stay.

        Raises:
            GraphError: nothing is averaged yet.
        """
        return self._exchanged(both=False)

    def _exchanged(self, both: bool) -> Node:
        if not self._averages:
            raise GraphError("EMA: no variable is averaged yet: declare update() first")
        writes: list[Node] = []
        with next(iter(self._averages)).graph, no_grad():
            for x, (average, count) in self._averages.items():
                known = o.greater(count, 0)
                writes.append(assign(x, o.where(known, average, x)))
                if both:
                    writes.append(assign(average, o.where(known, x, average)))
            return _run_all(writes)

    def _updates(self, var: Tensor) -> list[Node]:
        """The assignments of one update."""
        average, count = self._kept(var, make=True)
        kind, done = average.dtype, o.astype(count, float64)
        decay = o.full_like(done, self.decay)
        if self.warmup:
            decay = o.minimum(decay, (1.0 + done) / (10.0 + done))
        stays = o.where(o.equal(count, 0), 0.0, decay)
        moved = average * o.astype(stays, kind) + o.astype(var, kind) * o.astype(1.0 - stays, kind)
        return [assign(average, moved), assign(count, count + 1)]

    def _kept(self, var: Tensor, make: bool = False) -> tuple[Tensor, Tensor]:
        """The average of a variable and the number of its updates."""
        if not isinstance(var, Tensor) or var not in self._averages:
            if not make:
                raise GraphError(f"EMA: {var!r} is not averaged: declare update() first")
            var.graph.settle_names()
            self._prefix = self._prefix or _free_prefix(var.graph)
            name = f"{var.op.attrs.key}/{self._prefix}"
            with var.graph:
                average = Variable(init.zeros(), shape=var.shape, dtype=computed(var.dtype), name=name, trainable=False)
                count = Variable(init.zeros(), shape=(), dtype=int64, name=f"{name}/step", trainable=False)
            self._averages[var] = average, count
        return self._averages[var]

    def _averaged(self, x: Tensor) -> Tensor:
        if not is_floating(x.dtype):
            raise GraphError(f"EMA averages floating variables: {x.name!r} is {x.dtype.name}")
        return x


def _free_prefix(graph: Graph) -> str:
    """The name of the averages, or one with a number where the graph has other averages of that name."""
    number, prefix = 0, "ema"
    while any(key.endswith(f"/{prefix}") for key in graph.variables):
        number += 1
        prefix = f"ema_{number}"
    return prefix


def _run_all(nodes: list[Node]) -> Node:
    group: Node = o.group(*nodes)
    return group
