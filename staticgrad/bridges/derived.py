"""Programs as functions of arrays alone, and the programs of their derivatives: what other frameworks differentiate.

Input: an executable and the types of its feeds. Output: a ``Derivable``: a region with every size a number, cut at the
feeds, and on request those of its derivatives. These are declared into a private continuation of the user's graph,
which stays as it is; feeds are independent variables there, though one may depend on another in the graph.

    f              (x, …) -> (y, …)
    pushforward    (x, …, dx, …) -> (dy, …), linear in the dx
    pullback       (x, …, ct, …) -> (dx, …), linear in the ct; the transpose of the pushforward
    slopes         (x, …) -> (y, …, dy/dx, …), where the y that may be derived are one number

Each is a ``Derivable`` again, so derivatives of any order are programs of ours. A pullback computes what it reads of
the forward by itself: between a forward and its backward a framework keeps what was fed, and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.types import Shape, TensorType, is_floating
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.compiler.regions.cut import cut, needed_for
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor
from staticgrad.graph.scopes import in_rule, unscoped
from staticgrad.ops.control.bodies import draws
from staticgrad.ops.sources import VARIABLE, placeholder
from staticgrad.runtime.running.fetches import leaves_of

if TYPE_CHECKING:
    from staticgrad.runtime.session.executable import Executable

Numbers = tuple[int, ...]


class Derivable:
    """A function and its derivatives.

    Attributes:
        feeds, results: types of what goes in and out, every size a number.
        floating: the numbers of the results that may be derived.
        linear: the numbers of the feeds in which it is linear, for a given value of the others.
        region: what it computes; its fetches are the results, each once.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Mapping[Tensor, TensorType],
        fetches: Sequence[Tensor | Node],
        *,
        check_numerics: bool,
        order: int = 0,
        dual: Dual | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Functions come from ``derivable``, derivatives from functions. ``fetches`` may hold ops, which run for what
        they do. ``lock``: of the graph, which all that is derived in it shares."""
        self._graph = graph
        self._fed = dict(feeds)
        self._fetches = tuple([x for x in fetches if isinstance(x, Tensor)])
        self._ops = [x for x in fetches if isinstance(x, Node)]
        unique = dict.fromkeys(self._fetches)
        self.region = cut(graph, [*unique, *self._ops], feeds, check_numerics=check_numerics)
        made = dict(zip(unique, self.region.fetches, strict=True))
        self.tensors = tuple([made[x] for x in self._fetches])
        self.feeds = tuple(feeds.values())
        self.results = tuple([x.type for x in self.tensors])
        self.floating = tuple([n for n, t in enumerate(self.results) if is_floating(t.dtype)])
        self.order = order
        self._checks = check_numerics
        self._dual = dual
        self.linear = frozenset() if dual is None else frozenset(range(dual.first, len(self.feeds)))
        self._derived: dict[tuple[object, ...], Derivable] = {}
        self._deriving = reentrant_lock() if lock is None else lock

    @property
    def is_number(self) -> bool:
        """True if the results that may be derived are one number in all."""
        return len(self.floating) == 1 and self.results[self.floating[0]].size == 1

    @property
    def variables(self) -> tuple[str, ...]:
        """The keys of the variables that it reads."""
        return tuple(node.attrs.key for node in self.region.graph.nodes if node.op is VARIABLE)

    @property
    def draws(self) -> Node | None:
        """A node that draws random numbers, if there is one."""
        return next((node for node in self.region.graph.nodes if draws(node)), None)

    # -- derivatives --------------------------------------------------------------------------------------------------

    def pushforward(self, by: Numbers, of: Numbers) -> Derivable:
        """The tangents of the results ``of``, from all feeds and the tangents of the feeds ``by``."""

        def declare(xs: list[Tensor], ys: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            tangents = [_like(x) for x in xs]
            return tangents, jvp(ys, xs, tangents)

        return self._derive("pushforward", by, of, declare)

    def pullback(self, by: Numbers, of: Numbers) -> Derivable:
        """The cotangents of the feeds ``by``, from all feeds and the cotangents of the results ``of``."""

        def declare(xs: list[Tensor], ys: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            cotangents = [_like(y) for y in ys]
            return cotangents, gradients(ys, xs, cotangents, "zero")

        return self._derive("pullback", by, of, declare)

    def slopes(self, by: Numbers) -> Derivable:
        """The results, then the derivatives of the number by the feeds ``by``."""

        def declare(xs: list[Tensor], ys: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            return [], [*self._fetches, *gradients(ys, xs, unconnected_gradients="zero")]

        return self._derive("slopes", by, self.floating, declare)

    def transposed(self, by: Numbers, of: Numbers) -> Derivable:
        """The linear function that is transposed: from the other feeds of its origin and cotangents of the results
        ``of`` to those of the feeds ``by``."""
        dual = self._dual
        if dual is None or not self.linear.issuperset(by):
            raise GradientError("a derivative by a feed in which the program is not linear cannot be transposed")
        feeds, results = [n - dual.first for n in by], of
        return dual.make(tuple(feeds), tuple(results))

    def _derive(
        self,
        kind: str,
        by: Numbers,
        of: Numbers,
        declare: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]],
    ) -> Derivable:
        key = (kind, by, of)
        with self._deriving:
            if key not in self._derived:
                self._derived[key] = self._derive_now(kind, by, of, declare)
            return self._derived[key]

    def _derive_now(self, kind: str, by: Numbers, of: Numbers, declare: Callable[..., Any]) -> Derivable:
        drawn = self.draws
        if drawn is not None:
            raise GradientError(
                f"{drawn.name!r} draws random numbers, which a derivative that is another program would draw anew:"
                " feed the numbers, or derive inside of the graph (sg.gradients)",
                source=drawn.source,
            )
        fed = list(self._fed)
        xs, ys = [fed[n] for n in by], [self._fetches[n] for n in of]
        with unscoped(), self._graph, in_rule(fed):
            more, results = declare(xs, ys)
        entering = [self.feeds[n] for n in by] if kind == "pushforward" else [self.results[n] for n in of]
        types = dict(zip(more, entering, strict=False))
        dual: Dual | None = None
        if kind != "slopes":
            opposite = self.pullback if kind == "pushforward" else self.pushforward
            dual = Dual(len(self.feeds), functools.partial(_opposite, opposite, kind, by, of))
        effects = self._ops if kind == "slopes" else []  # they stand for the function itself
        return Derivable(
            self._graph, {**self._fed, **types}, [*results, *effects], check_numerics=self._checks,
            order=self.order + 1, dual=dual, lock=self._deriving,
        )  # fmt: skip


class Dual:
    """The transpose of a linear function, once it is asked for: the number of its ``first`` linear feed, and ``make``,
    which takes the places of linear feeds, and of results, among their kind."""

    def __init__(self, first: int, make: Callable[[Numbers, Numbers], Derivable]) -> None:
        self.first = first
        self.make = make


def _opposite(
    derive: Callable[[Numbers, Numbers], Derivable],
    kind: str,
    by: Numbers,
    of: Numbers,
    feeds: Numbers,
    results: Numbers,
) -> Derivable:
    """The transpose of a pushforward (a pullback) by some of its tangents (cotangents), from some of its results."""
    entering, leaving = (by, of) if kind == "pushforward" else (of, by)
    chosen, wanted = tuple(entering[n] for n in feeds), tuple(leaving[n] for n in results)
    return derive(chosen, wanted) if kind == "pushforward" else derive(wanted, chosen)


def _like(x: Tensor) -> Tensor:
    return placeholder(x.shape, x.dtype)


def derivable(executable: Executable, shapes: Sequence[Shape]) -> Derivable:
    """The function that an executable computes from arrays of these shapes.

    Raises:
        GraphError: there is no tensor among its fetches.
        FeedError: shapes that do not fit.
    """
    leaves = leaves_of(executable.fetches)
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        raise GraphError("expected an executable that fetches tensors, actual one that fetches ops alone")
    types = {x: TensorType(tuple(shape), x.dtype) for x, shape in zip(executable.feeds, shapes, strict=True)}
    graph = Derivation(executable.session.graph)
    return Derivable(graph, types, leaves, check_numerics=executable._programs.options.check_numerics)


def variables_of(executable: Executable) -> frozenset[str]:
    """The keys of the variables that an executable reads, and with it its derivatives."""
    feeds = {x: x.type for x in executable.feeds}
    needed = needed_for(executable.session.graph, leaves_of(executable.fetches), feeds)
    return frozenset(node.attrs.key for node in needed if node.op is VARIABLE)
