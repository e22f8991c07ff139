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

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError, refuse_copies
from staticgrad.base.hints import AbstractAnswering, answer
from staticgrad.base.types import Shape, computed, float64
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.lifting import lift
from staticgrad.graph.naming import Holder
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import no_grad
from staticgrad.nn import initializers as init
from staticgrad.ops.sources import ACCUMULATED_GRAD, accumulated_grad
from staticgrad.optim.arguments import GradAndVar, LearningRate, Variables, check, listed, trained, variable
from staticgrad.optim.gradients import gradients_of
from staticgrad.optim.rows import keeping_others, named_rows
from staticgrad.optim.state import OptimizerState, Rate, as_op, assign


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
        lazy: where the gradient of a variable names rows, as that of a table of embeddings does, the others keep their
            values and their state: no decay, no momentum. Without it the update is that of a gradient with zeros
            there, which is as fast for ``SGD`` and ``Adagrad`` without momentum and weight decay, and is a pass over
            the whole table for the others.
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

    def __init__(
        self, lr: LearningRate, groups: Sequence[Mapping[str, Any]] = (), *, lazy: bool = False, **options: Any
    ) -> None:
        if not isinstance(lr, Tensor) and not callable(lr):
            expected = "a number of at least 0, a tensor, or a schedule"
            if isinstance(lr, Iterable):
                expected += " (variables are found by minimize(loss), or are its var_list)"
            check(isinstance(lr, Real) and lr >= 0, self.name, "lr", lr, expected)
        self.lazy = bool(lazy)
        self._state = OptimizerState(self.name)
        self._rate = Rate(lr, self._state)
        self._rules: dict[Tensor, Optimizer] = {}
        self.groups = tuple([self._group(i, group, {**options, "lazy": lazy}) for i, group in enumerate(groups)])

    def __repr__(self) -> str:
        settings = {"lr": self._rate.given, **{n: value for n, value in vars(self).items() if not n.startswith("_")}}
        for option in ("groups", "lazy"):
            if not settings[option]:
                del settings[option]
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
        rule._state = self._state
        rule._rate = Rate(own["lr"], self._state, f"groups/{number}/lr") if "lr" in own else self._rate
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
        return self._rate.tensor(self._state.graph)

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
        self._state.settle(self._state.graph)
        if self._state.steps is None:
            raise GraphError(f"{self.name}: no learning rate is a schedule, so the runs are not counted")
        return self._state.steps

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
        return self._state.slot(var, name, initial, step, shape)

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
            buckets: in how many vectors the gradients are reduced. One is reduced after the backward; several are
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
        return self.apply_gradients(gradients_of(self.name, loss, var_list, distributed, buckets, shards))

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
            return as_op(o.group(*updates, *self._state.counting(get_default_graph())))

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
            found = [v for v in self._state.graph.variables.values() if v.requires_grad]
        else:
            found = trained(var_list, self.name)
        return self.apply_gradients([(accumulated_grad(v), v) for v in found])

    # -- for subclasses -----------------------------------------------------------------------------------------

    def _apply(self, gradient: Tensor, var: Tensor) -> list[Node]:
        if gradient.shape != var.shape:
            raise GraphError(
                f"{self.name}: expected a gradient of shape {var.shape} for {var.name!r}, actual {gradient.type}",
                source=var.source,
            )
        rule = self._rules.get(var, self)
        lr = rule._rate.tensor(var.graph)
        source = gradient.op
        updates = rule.update(o.astype(gradient, computed(var.dtype)), var, lr)
        if rule.lazy and (named := named_rows(gradient)) is not None:
            updates = keeping_others(updates, named, var)
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


answer(Optimizer)
