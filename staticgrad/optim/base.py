"""The base of all optimizers: learning rates, groups of variables, state, and how gradients reach the updates.

State beside the variables is made of variables too, so it is saved, restored and planned like them:

    <optimizer>/lr                    the learning rate, float64; ``sess.set(opt.lr, v)`` compiles nothing
    <optimizer>/groups/<i>/lr         that of a group that has a number of its own
    <optimizer>/step                  how many runs have updated, int64; where a learning rate is a schedule
    <var>/<optimizer>/exp_avg, …      slots, of the variable's shape and dtype (float32 for short floats), zero at first
    <var>/<optimizer>/step            how many updates the variable has had, int64

Every update is elementwise over the variable and its slots, so it fuses with the kernel that makes the gradient. What
depends on the step alone is computed once, as float64 scalars.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

from staticgrad.base.boundary import boundary
from staticgrad.base.collection import importing
from staticgrad.base.errors import GraphError, PromotionWarning, called_for, refuse_copies, silent
from staticgrad.base.hints import AbstractAnswering, answer
from staticgrad.base.reach import reach
from staticgrad.base.types import Shape, computed, float64, int64, integer, is_floating
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph
from staticgrad.graph.hooks import FROZEN
from staticgrad.graph.lifting import lift
from staticgrad.graph.naming import Holder, Origin, variables_of
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import isolated, no_grad
from staticgrad.nn import initializers as init
from staticgrad.ops.sources import ACCUMULATED_GRAD, VARIABLE, accumulated_grad
from staticgrad.ops.variables import Variable
from staticgrad.optim.schedules import Schedule

GradAndVar = tuple[Tensor | None, Tensor]
LearningRate = float | Tensor | Schedule
Variables = Tensor | Holder | Iterable[Tensor]  # a module stands for its parameters


def check(condition: bool, what: str, name: str, value: object, expected: str) -> None:
    """Refuse an argument.

    Raises:
        GraphError: the condition does not hold.
    """
    if not condition:
        raise GraphError(f"{what}: {name}={value!r}: expected {expected}")


def variable(x: object, what: str = "an optimizer updates variables") -> Tensor:
    """``x``, which is a variable.

    Raises:
        GraphError: it is none.
    """
    if isinstance(x, Tensor) and x.op.op is VARIABLE:
        return x
    raise GraphError(f"{what}: {x!r} is none", source=getattr(x, "source", None))


def listed(variables: Variables, what: str = "an optimizer updates variables") -> list[Tensor]:
    """The variables that an argument names.

    Raises:
        GraphError: something in it is no variable.
    """
    if isinstance(variables, Holder):
        return [x for x in variables_of(variables) if x.op.attrs.trainable]
    return [variable(x, what) for x in ([variables] if isinstance(variables, Tensor) else variables)]


def depends_on(loss: Tensor) -> list[Tensor]:
    """The variables that a tensor depends on and that require a gradient now, in order of declaration."""
    needed = reach([loss.op], lambda node: [x.op for x in node.inputs])
    found = [node.outputs[0] for node in loss.graph.nodes if node in needed and node.op is VARIABLE]
    for x in found:
        x.graph.unread.pop((x, FROZEN), None)
    return [x for x in found if x.requires_grad]


class ParameterGroup:
    """Some of an optimizer's variables, and the optimizer with the options that they have: ``opt.groups[i]``.

    Example:
        >>> w, b = sg.Variable([1.0, 1.0]), sg.Variable([1.0])
        >>> opt = sg.optim.SGD(lr=0.5, groups=[{"params": [b], "lr": 0.25}])
        >>> train = opt.minimize(sg.sum(w) + sg.sum(b))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w), sess.get(b)
        (array([0.5, 0.5], dtype=float32), array([0.75], dtype=float32))
        >>> sess.set(opt.groups[0].lr, 0.125)
    """

    def __init__(self, params: tuple[Tensor, ...], options: Mapping[str, Any], rule: Optimizer) -> None:
        """Groups are made by an optimizer, from its argument ``groups``."""
        self.params = params
        self.options = dict(options)
        self.rule = rule

    @property
    def lr(self) -> Tensor:
        """The group's learning rate, as ``opt.lr`` is the optimizer's; the same tensor where the group has none."""
        return self.rule.lr

    def __repr__(self) -> str:
        return f"<group of {len(self.params)} variables, {self.options}>"


class Optimizer(metaclass=AbstractAnswering):
    """The base of all optimizers. A subclass says how one variable is updated, and as ``name`` what its state is
    called.

    In their formulas θ is a variable, g its gradient, t the number of the step, counted from 1.

    Args:
        lr: the learning rate: a number of at least 0, which becomes state that ``sess.set(opt.lr, v)`` changes; a
            floating scalar tensor; or a schedule (``sg.optim.schedules``), a function that is given how many runs have
            updated before, a float64 scalar tensor that counts from 0, and gives a scalar.
        groups: variables with options of their own: dicts of "params", the variables (or a module, for its parameters),
            and arguments of the optimizer that differ for them. What is in no group has the optimizer's.
        options: the other arguments of the subclass by name, for groups to take over.

    Raises:
        GraphError: an argument that is out of its range; a group without variables, with an unknown option, with what
            is no variable, or with a variable of another group.

    Example:
        >>> class SignDescent(sg.optim.Optimizer):
        ...     name = "sign"
        ...
        ...     def update(self, gradient, var, lr):
        ...         return [sg.assign(var, var - sg.astype(lr, var.dtype) * sg.sign(gradient))]
        >>> w = sg.Variable([1.0, -1.0])
        >>> train = SignDescent(lr=0.25).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w)
        array([ 0.75, -0.75], dtype=float32)
    """

    name: ClassVar[str] = "optimizer"
    __reduce_ex__ = refuse_copies("an optimizer", "make another one; its state is kept by sess.save")

    def __init__(self, lr: LearningRate, groups: Sequence[Mapping[str, Any]] = (), **options: Any) -> None:
        if not isinstance(lr, Tensor) and not callable(lr):
            expected = "a number of at least 0, a tensor, or a schedule"
            if isinstance(lr, Iterable):
                expected += " (variables are found by minimize(loss), or are its var_list)"
            check(isinstance(lr, Real) and lr >= 0, self.name, "lr", lr, expected)
        self._given_lr = lr
        self._lr: Tensor | None = None
        self._home = self  # whose state it uses: a group's optimizer has that of the optimizer with the groups
        self._place = "lr"  # the name of its learning rate, behind the optimizer's
        self._graph: Graph | None = None
        self._prefix = ""
        self._steps: Tensor | None = None
        self._counted: Node | None = None
        self._slots: dict[tuple[Tensor, str], Tensor] = {}
        self._rules: dict[Tensor, Optimizer] = {}
        self.groups = tuple([self._group(i, group, options) for i, group in enumerate(groups)])

    def __repr__(self) -> str:
        settings = {"lr": self._given_lr, **{n: value for n, value in vars(self).items() if not n.startswith("_")}}
        if not self.groups:
            del settings["groups"]
        return f"{type(self).__name__}({', '.join(f'{n}={value!r}' for n, value in settings.items())})"

    # -- groups -------------------------------------------------------------------------------------------------

    def _group(self, number: int, given: Mapping[str, Any], options: Mapping[str, Any]) -> ParameterGroup:
        """The group that a dict describes: the same optimizer with other options, which shares this one's state."""
        what = f"{self.name}: groups[{number}]"
        if not isinstance(given, Mapping) or "params" not in given:
            raise GraphError(f'{what}: expected a dict with "params", the variables, actual {given!r}')
        own = {name: value for name, value in given.items() if name != "params"}
        known = ("lr", *options)
        for name in own:
            check(name in known, what, "option", name, f"one of {', '.join(known)}")
        params = given["params"]
        if not isinstance(params, Tensor | Holder | Iterable):
            raise GraphError(f"{what}: expected variables as params, actual {params!r}")
        rule = type(self)(**{"lr": 0.0, **options, **own})
        rule._home, rule._place = self, f"groups/{number}/lr" if "lr" in own else "lr"
        variables = tuple(listed(params, f"{what}: params are variables"))
        for x in variables:
            if x in self._rules:
                raise GraphError(f"{what}: variable {x.name!r} is in a group already", source=x.source)
            self._rules[x] = rule
        return ParameterGroup(variables, own, rule)

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def lr(self) -> Tensor:
        """The learning rate, as the variable that keeps it (``sess.set(opt.lr, v)``), the tensor that was given, or
        what the schedule gives for this run. For one run any of them can be fed.

        Example:
            >>> opt = sg.optim.SGD(lr=0.1)
            >>> sess = sg.Session()
            >>> sess.set(opt.lr, 0.01)
            >>> float(sess.get(opt.lr))
            0.01
        """
        return self._learning_rate(get_default_graph() if self._home._graph is None else self._home._graph)

    @property
    def step_count(self) -> Tensor:
        """The int64 variable that counts the runs that have updated, which schedules follow.

        Raises:
            GraphError: no learning rate is a schedule.

        Example:
            >>> opt = sg.optim.SGD(lr=sg.optim.schedules.exponential(1.0, gamma=0.5))
            >>> sess = sg.Session()
            >>> sess.set(opt.step_count, 2)
            >>> float(sess.run(opt.lr))
            0.25
        """
        home = self._home
        home._settle(get_default_graph() if home._graph is None else home._graph)
        if home._steps is None:
            raise GraphError(f"{self.name}: no learning rate is a schedule, so the runs are not counted")
        return home._steps

    def _learning_rate(self, graph: Graph) -> Tensor:
        """The learning rate in ``graph``, to which the optimizer belongs from then on."""
        home = self._home
        home._settle(graph)
        if home is not self and self._place == "lr":
            return home._learning_rate(graph)
        if self._lr is None:
            self._lr = self._declared_lr(graph)
        if self._lr.graph is not graph:
            raise GraphError(f"{self.name}: an optimizer serves one graph, and its learning rate is of another")
        return self._lr

    def _settle(self, graph: Graph) -> None:
        """Let the optimizer belong to ``graph``, and the names of its state be taken there."""
        if self._graph is not None:
            return
        self._graph, self._prefix = graph, _free_prefix(graph, self.name)
        rules = [self, *(group.rule for group in self.groups if group.rule._place != "lr")]
        if any(rule._is_scheduled for rule in rules):
            self._steps = self._state_of_all("step", init.zeros(), int64)
        for rule in rules:
            rule._learning_rate(graph)

    @property
    def _is_scheduled(self) -> bool:
        return callable(self._given_lr) and not isinstance(self._given_lr, Tensor)

    def _declared_lr(self, graph: Graph) -> Tensor:
        """The learning rate as a tensor of ``graph``."""
        given = self._given_lr
        if isinstance(given, Tensor):
            if not is_floating(given.dtype) or given.shape != ():
                raise GraphError(f"{self.name}: expected a floating scalar as lr, actual {given.type}")
            return given
        if callable(given):
            return self._scheduled_lr(graph, given)
        return self._home._state_of_all(self._place, init.constant(float(given)), float64)

    def _scheduled_lr(self, graph: Graph, schedule: Schedule) -> Tensor:
        """The learning rate that a schedule gives for the runs that have been counted, as float64."""
        what = f"{self.name}: the schedule of the learning rate"
        with _shared(graph), called_for(what, None), silent(PromotionWarning):  # it is cast to what is updated
            given = schedule(o.astype(self.step_count, float64))
            if not isinstance(given, Tensor | Real) or lift(given, graph).shape != ():
                raise GraphError(f"{what}: expected it to give a scalar, actual {given!r}")
            rate = o.astype(lift(given, graph, float64), float64)
            return o.identity(rate, name=f"{self._home._prefix}/{self._place}")

    def _state_of_all(self, name: str, value: init.Initializer, dtype: Any) -> Tensor:
        """A scalar variable of the optimizer that belongs to no variable that it updates."""
        assert self._graph is not None
        full_name = f"{self._prefix}/{name}"
        with self._graph:
            x = Variable(value, shape=(), dtype=dtype, name=full_name, trainable=False)
        self._graph.origins[x.name] = Origin(f"{self.name}/{name}", x.source)
        return x

    def _counting(self, graph: Graph) -> list[Node]:
        """The op that counts a run that updates, one for all updates of the optimizer, where a schedule needs it."""
        if self._steps is None:
            return []
        if self._counted is None or not graph.holds(self._counted):
            with _shared(graph):
                self._counted = assign(self._steps, self._steps + 1)
        return [self._counted]

    def slot(
        self,
        var: Tensor,
        name: str,
        initial: init.Initializer | None = None,
        step: bool = False,
        shape: Shape | None = None,
    ) -> Tensor:
        """The variable of this optimizer that belongs to ``var`` under ``name``; made when first asked for.

        Example:
            >>> w = sg.Variable([1.0, 2.0], name="w")
            >>> opt = sg.optim.SGD(lr=0.25, momentum=0.9)
            >>> train = opt.minimize(sg.sum(w**2))
            >>> sess = sg.Session()
            >>> sess.run(train)
            >>> sess.get(opt.slot(w, "momentum_buffer"))
            array([2., 4.], dtype=float32)
        """
        home, key = self._home, (var, name)
        if key not in home._slots:
            own = var.shape if shape is None else shape
            shape, dtype = ((), int64) if step else (own, computed(var.dtype))
            var.graph.settle_names()
            full_name = f"{var.op.attrs.key}/{home._prefix}/{name}"
            value = init.zeros() if initial is None else initial
            with var.graph:
                home._slots[key] = Variable(value, shape=shape, dtype=dtype, name=full_name, trainable=False)
        return home._slots[key]

    # -- what users call ----------------------------------------------------------------------------------------

    @boundary
    def minimize(
        self,
        loss: Tensor,
        var_list: Variables | None = None,
        *,
        distributed: bool = False,
        buckets: int = 1,
        shards: int | None = None,
    ) -> Node:
        """An op that makes one step down the gradient of ``loss``.

        Args:
            loss: a floating tensor.
            var_list: what to update, variables or a module with its parameters; default: the variables that the loss
                depends on. Those that do not require a gradient when this is called (``trainable=False``,
                ``requires_grad_(False)``) are left alone.
            distributed: step down the mean of the gradients of all ranks (``sg.distributed``), each of which is fed
                data of its own. Before a program with such a step runs first in a session (at ``sess.compile`` or at
                the first run), all variables that it reads or writes get rank 0's values.
            buckets: in how many vectors the gradients are reduced. One is reduced behind the backward; several are
                started as soon as their gradients are there, and waited for before the first update.
            shards: a number that the number of ranks divides. The batch, one open size that all ranks are fed equal
                parts of, is divided into that number of shards, whose gradients are added in a fixed order: the same
                bits on 1, 2, … ``shards`` ranks. Neither random numbers nor effects may be part of the loss.

        Raises:
            GraphError: there is nothing to update: no variable, or none that the loss depends on; or shards that
                cannot be made.

        Example:
            >>> x, t = sg.placeholder((4,)), sg.placeholder((4,))
            >>> slope, offset = sg.Variable(0.0), sg.Variable(0.0)
            >>> loss = sg.nn.mse_loss(slope * x + offset, t)
            >>> train = sg.optim.SGD(lr=0.2).minimize(loss)
            >>> step = sg.Session().compile([loss, train, slope], [x, t])
            >>> for _ in range(100):
            ...     value, _, found = step([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 7.0])
            >>> print(found.round(2))
            2.0
        """
        return self.apply_gradients(self._gradients(loss, var_list, distributed, buckets, shards))

    def _gradients(
        self,
        loss: Tensor,
        var_list: Variables | None,
        distributed: bool = False,
        buckets: int = 1,
        shards: int | None = None,
    ) -> list[GradAndVar]:
        """The gradients of ``loss`` by what shall be updated, those of all ranks where it is ``distributed``."""
        with importing():
            from staticgrad.compiler.autodiff.reverse import gradients

        if not isinstance(loss, Tensor):
            raise GraphError(f"{self.name}: expected a loss, a tensor of the graph, actual {loss!r}")
        variables = depends_on(loss) if var_list is None else self._trained(var_list)
        if not variables:
            raise GraphError(f"{self.name}: {loss.name!r} depends on no trainable variable", source=loss.source)
        own = f"{self.name}: minimize"
        check(not isinstance(buckets, bool) and isinstance(buckets, int) and buckets >= 1, own, "buckets", buckets,
              "an int of at least 1")  # fmt: skip
        check(distributed or (buckets == 1 and shards is None), own, "distributed", distributed,
              "True, with buckets or shards")  # fmt: skip
        if shards is None:
            found = gradients(loss, variables)
        else:
            check(buckets == 1, own, "buckets", buckets, "1, with shards")
            found = self._over_shards(loss, variables, integer(shards, f"{own}: shards", 1), gradients)
        if all(gradient is None for gradient in found):
            raise GraphError(
                f"{self.name}: {loss.name!r} depends on none of the variables that it shall update,"
                f" {', '.join(repr(v.name) for v in variables[:3])}{', …' if len(variables) > 3 else ''}",
                source=loss.source,
            )
        if distributed and shards is None:
            from staticgrad.optim.exchange import averaged

            with loss.graph, no_grad():
                found = averaged(found, buckets)
        return list(zip(found, variables, strict=True))

    def _over_shards(
        self, loss: Tensor, variables: Sequence[Tensor], shards: int, derive: Callable[..., Any]
    ) -> list[Tensor | None]:
        from staticgrad.optim.exchange import over_shards

        with loss.graph:
            return list(over_shards(loss, variables, shards, derive, f"{self.name}: minimize"))

    @boundary
    def apply_gradients(self, grads_and_vars: Iterable[GradAndVar]) -> Node:
        """An op that updates each variable from its gradient; a gradient None skips its variable.

        Raises:
            GraphError: a gradient of another shape, what is no variable, or one variable twice.

        Example:
            >>> w = sg.Variable([3.0, 4.0])
            >>> (dw,) = sg.optim.clip_by_global_norm(sg.gradients(sg.sum(w**2), [w]), 1.0)
            >>> train = sg.optim.SGD(lr=1.0).apply_gradients([(dw, w)])
            >>> sess = sg.Session()
            >>> sess.run(train)
            >>> sess.get(w).round(3)
            array([2.4, 3.2], dtype=float32)
        """
        pairs = [(g, variable(v)) for g, v in grads_and_vars]
        variables = [v for _, v in pairs]
        if not pairs:
            raise GraphError(f"{self.name}: there is no variable to update")
        seen: set[int] = set()
        for v in variables:
            if id(v) in seen:
                raise GraphError(f"{self.name}: variable {v.name!r} would be updated twice", source=v.source)
            seen.add(id(v))
        graph = variables[0].graph
        updates: list[Node] = []
        with graph, no_grad():
            for gradient, v in pairs:
                if gradient is not None:
                    updates += self._apply(lift(gradient, graph), v)
            return as_op(o.group(*updates, *self._counting(get_default_graph())))

    @boundary
    def step(self, var_list: Variables | None = None) -> Node:
        """An op that updates from the gradients that backwards of tapes have accumulated in the session.

        A variable without an accumulated gradient is left alone.

        Args:
            var_list: what to update, variables or a module with its parameters; default: all variables of the current
                graph. Those that do not require a gradient when this is called are left alone.

        Raises:
            GraphError: there is nothing to update.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> update = sg.optim.SGD(lr=0.25).step([w])
            >>> sess = sg.Session()
            >>> for _ in range(2):
            ...     with sess.forward(loss := sg.sum(w**2)) as tape:
            ...         tape.backward(loss)
            >>> sess.run(update)
            >>> sess.zero_grad()
            >>> sess.get(w)
            array([0., 0.], dtype=float32)
        """
        if var_list is None:
            graph = get_default_graph() if self._graph is None else self._graph
            found = [v for v in graph.variables.values() if v.requires_grad]
        else:
            found = self._trained(var_list)
        return self.apply_gradients([(accumulated_grad(v), v) for v in found])

    def _trained(self, variables: Variables) -> list[Tensor]:
        """The given variables that require a gradient now."""
        if not isinstance(variables, Tensor | Holder | Iterable):
            raise GraphError(
                f"{self.name}: expected a list of variables, actual {variables!r}; a step is an op, which takes no"
                " closure: train = opt.minimize(loss), and each sess.run(train, feeds) makes one"
            )
        found = listed(variables)
        trained = [v for v in found if v.requires_grad]
        if found and not trained:
            raise GraphError(
                f"{self.name}: none of the variables requires a gradient: requires_grad_() thaws {found[0].name!r}",
                source=found[0].source,
            )
        return trained

    # -- for subclasses -----------------------------------------------------------------------------------------

    def _apply(self, gradient: Tensor, var: Tensor) -> list[Node]:
        if gradient.shape != var.shape:
            raise GraphError(
                f"{self.name}: expected a gradient of shape {var.shape} for {var.name!r}, actual {gradient.type}",
                source=var.source,
            )
        rule = self._rules.get(var, self)
        lr = rule._learning_rate(var.graph)
        source = gradient.op
        updates = rule.update(o.astype(gradient, computed(var.dtype)), var, lr)
        if source.op is ACCUMULATED_GRAD:
            for node in updates:  # also what does not read the gradient (a step count) waits for there being one
                node.control = (*node.control, source)
        return updates

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        """The assignments that update one variable and its slots, of whose dtype the gradient is. ``lr`` is a scalar of
        any floating dtype."""
        raise GraphError(f"{type(self).__name__} does not say how it updates a variable")

    def _count(self, var: Tensor) -> tuple[Tensor, Node]:
        """The number of this update as float64, and the op that counts it."""
        counter = self.slot(var, "step", step=True)
        now = o.add(counter, 1)
        return o.astype(now, float64), assign(counter, now)


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


answer(Optimizer)
