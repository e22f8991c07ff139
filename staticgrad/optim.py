"""Optimizers: a gradient and a variable in, an op that updates the variable out. Formulas and defaults are PyTorch's.

State beside the variables is made of variables too, so it is saved, restored and planned like them:

    <optimizer>/lr                    the learning rate, float64; ``sess.set(opt.lr, v)`` compiles nothing
    <var>/<optimizer>/exp_avg, …      slots, of the variable's shape and dtype (float32 for short floats), zero at first
    <var>/<optimizer>/step            how many updates the variable has had, int64

Every update is elementwise over the variable and its slots, so it fuses with the kernel that makes the gradient. What
depends on the step alone is computed once, as float64 scalars.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, ClassVar, NoReturn

from staticgrad import init
from staticgrad.boundary import boundary, expose
from staticgrad.collection import importing
from staticgrad.errors import GraphError
from staticgrad.graph import Graph, Node, Tensor, get_default_graph, no_grad
from staticgrad.hints import answer, missing_from_module
from staticgrad.lifting import lift
from staticgrad.naming import Origin
from staticgrad.ops.elementwise.copies import widened
from staticgrad.ops.sources import accumulated_grad
from staticgrad.ops.variables import Variable
from staticgrad.optable import FUNCTIONS as o
from staticgrad.reach import reach
from staticgrad.types import computed, float64, int64, is_floating, is_short_float, number

GradAndVar = tuple[Tensor | None, Tensor]


def _check(condition: bool, what: str, name: str, value: object, expected: str) -> None:
    if not condition:
        raise GraphError(f"{what}: {name}={value!r}: expected {expected}")


def _variable(x: Tensor | Node) -> Tensor:
    if isinstance(x, Tensor) and x.op.op.name == "variable":
        return x
    raise GraphError(f"an optimizer updates variables: {x!r} is none")


def depends_on(loss: Tensor) -> list[Tensor]:
    """The variables that a tensor depends on and that require a gradient now, in order of declaration."""
    needed = reach([loss.op], lambda node: [x.op for x in node.inputs])
    found = [node.outputs[0] for node in loss.graph.nodes if node in needed and node.op.name == "variable"]
    return [x for x in found if x.requires_grad]


class Optimizer:
    """The base of optimizers. A subclass says in ``update`` how one variable and its slots are updated.

    In their formulas θ is a variable, g its gradient, t the number of the step, counted from 1.

    Args:
        lr: the learning rate: a number of at least 0, which becomes state that ``sess.set(opt.lr, v)`` changes, or a
            floating scalar tensor.

    Raises:
        GraphError: an argument that is out of its range.

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

    def __init__(self, lr: float | Tensor) -> None:
        if not isinstance(lr, Tensor):
            expected = "a number of at least 0, or a tensor"
            if isinstance(lr, Iterable):
                expected += " (variables are found by minimize(loss), or are its var_list)"
            _check(isinstance(lr, Real) and lr >= 0, self.name, "lr", lr, expected)
        self._given_lr = lr
        self._lr: Tensor | None = None
        self._prefix = ""
        self._slots: dict[tuple[Tensor, str], Tensor] = {}

    def __repr__(self) -> str:
        settings = {"lr": self._given_lr, **{n: value for n, value in vars(self).items() if not n.startswith("_")}}
        return f"{type(self).__name__}({', '.join(f'{n}={value!r}' for n, value in settings.items())})"

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def lr(self) -> Tensor:
        """The learning rate, as the variable that keeps it (``sess.set(opt.lr, v)``), or as the tensor that was given.

        Example:
            >>> opt = sg.optim.SGD(lr=0.1)
            >>> sess = sg.Session()
            >>> sess.set(opt.lr, 0.01)
            >>> float(sess.get(opt.lr))
            0.01
        """
        return self._learning_rate(get_default_graph() if self._lr is None else self._lr.graph)

    def _learning_rate(self, graph: Graph) -> Tensor:
        """The learning rate in ``graph``, to which the optimizer belongs from then on."""
        if self._lr is None:
            self._prefix = _free_prefix(graph, self.name)
            if isinstance(self._given_lr, Tensor):
                if not is_floating(self._given_lr.dtype) or self._given_lr.shape != ():
                    raise GraphError(f"{self.name}: expected a floating scalar as lr, actual {self._given_lr.type}")
                self._lr = self._given_lr
            else:
                value = init.constant(float(self._given_lr))
                with graph:
                    self._lr = Variable(value, shape=(), dtype=float64, name=f"{self._prefix}/lr", trainable=False)
                graph.origins[self._lr.name] = Origin(f"{self.name}/lr", self._lr.source)
        if self._lr.graph is not graph:
            raise GraphError(f"{self.name}: an optimizer serves one graph, and its learning rate is of another")
        return self._lr

    def slot(self, var: Tensor, name: str, initial: init.Initializer | None = None, step: bool = False) -> Tensor:
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
        key = (var, name)
        if key not in self._slots:
            shape, dtype = ((), int64) if step else (var.shape, computed(var.dtype))
            var.graph.settle_names()
            full_name = f"{var.op.attrs.key}/{self._prefix}/{name}"
            value = init.zeros() if initial is None else initial
            with var.graph:
                self._slots[key] = Variable(value, shape=shape, dtype=dtype, name=full_name, trainable=False)
        return self._slots[key]

    # -- what users call ----------------------------------------------------------------------------------------

    @boundary
    def minimize(self, loss: Tensor, var_list: Sequence[Tensor] | None = None) -> Node:
        """An op that makes one step down the gradient of ``loss``.

        Args:
            loss: a floating tensor.
            var_list: what to update; default: the variables that the loss depends on. Those that do not require a
                gradient when this is called (``trainable=False``, ``requires_grad_(False)``) are left alone.

        Raises:
            GraphError: there is nothing to update.

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
        with importing():
            from staticgrad.compiler.autodiff.reverse import gradients

        if not isinstance(loss, Tensor):
            raise GraphError(f"{self.name}: expected a loss, a tensor of the graph, actual {loss!r}")
        variables = depends_on(loss) if var_list is None else self._trained(var_list)
        if not variables:
            raise GraphError(f"{self.name}: {loss.name!r} depends on no trainable variable", source=loss.source)
        return self.apply_gradients(list(zip(gradients(loss, variables), variables, strict=True)))

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
        pairs = [(g, _variable(v)) for g, v in grads_and_vars]
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
            return _op(o.group(*updates))

    @boundary
    def step(self, var_list: Sequence[Tensor] | None = None) -> Node:
        """An op that updates from the gradients that backwards of tapes have accumulated in the session.

        A variable without an accumulated gradient is left alone.

        Args:
            var_list: what to update; default: all variables of the current graph. Those that do not require a gradient
                when this is called are left alone.

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
            graph = get_default_graph() if self._lr is None else self._lr.graph
            found = [v for v in graph.variables.values() if v.requires_grad]
        else:
            found = self._trained(var_list)
        return self.apply_gradients([(accumulated_grad(v), v) for v in found])

    def _trained(self, variables: Sequence[Tensor]) -> list[Tensor]:
        """Those of some variables that require a gradient now."""
        if not isinstance(variables, Iterable):
            raise GraphError(
                f"{self.name}: expected a list of variables, actual {variables!r}; a step is an op, which takes no"
                " closure: train = opt.minimize(loss), and each sess.run(train, feeds) makes one"
            )
        found = [_variable(v) for v in variables]
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
        lr = self._learning_rate(var.graph)
        source = gradient.op
        updates = self.update(o.astype(gradient, computed(var.dtype)), var, lr)
        if source.op.name == "accumulated_grad":
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


def _free_prefix(graph: Graph, name: str) -> str:
    """The optimizer's name, or one with a number where the graph has state of another one of that name."""
    number, prefix = 0, name
    while f"{prefix}/lr" in graph.variables or any(f"/{prefix}/" in key for key in graph.variables):
        number += 1
        prefix = f"{name}_{number}"
    return prefix


def _op(value: Tensor | Node) -> Node:
    return value if isinstance(value, Node) else value.op


def assign(var: Tensor, value: Tensor) -> Node:
    """The op that writes ``value`` to a variable, in the variable's dtype."""
    return _op(o.assign(var, o.astype(value, var.dtype)))


def _value(var: Tensor) -> Tensor:
    """A variable in the dtype that its update is computed in: float32 for short floats."""
    return o.astype(var, computed(var.dtype))


def _like(scalar: float | Tensor, var: Tensor) -> float | Tensor:
    """A float64 scalar in the dtype that a variable's update is computed in."""
    return o.astype(scalar, computed(var.dtype)) if isinstance(scalar, Tensor) else scalar


def _decayed(gradient: Tensor, var: Tensor, weight_decay: float) -> Tensor:
    """The gradient with that of ½·weight_decay·‖var‖² added."""
    return gradient + weight_decay * _value(var) if weight_decay else gradient


def _average(slot: Tensor, value: Tensor, beta: float) -> Tensor:
    """beta·slot + (1 - beta)·value."""
    return slot * beta + value * (1 - beta)


def _unbias(beta: float, step: Tensor) -> Tensor:
    """1 - beta**step, accurate where that is tiny."""
    if beta == 0:
        return o.ones((), dtype=float64)
    return o.negative(o.expm1(step * math.log(beta)))


def _check_betas(what: str, betas: Any) -> tuple[float, float]:
    two = (
        isinstance(betas, Sequence)
        and len(betas) == 2
        and all(isinstance(b, Real) and 0 <= float(b) < 1 for b in betas)
    )
    _check(two, what, "betas", betas, "two numbers in [0, 1)")
    return float(betas[0]), float(betas[1])


answer(Optimizer)


class SGD(Optimizer):
    """Stochastic gradient descent: θ ← θ - lr·g. With momentum µ (Polyak 1964): b ← µ·b + g, θ ← θ - lr·b.

    Args:
        lr: the learning rate, a number or a tensor.
        momentum: µ.
        nesterov: θ ← θ - lr·(g + µ·b) (Nesterov 1983, as Sutskever et al. 2013 write it).
        weight_decay: λ; λ·θ is added to g.
        dampening: τ: b ← µ·b + (1 - τ)·g from the second step on.
        maximize: go up the gradient.

    Example:
        >>> w = sg.Variable([1.0, 2.0])
        >>> opt = sg.optim.SGD(lr=0.25)
        >>> train = opt.minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w)
        array([0.5, 1. ], dtype=float32)
        >>> sess.set(opt.lr, 0.0)
        >>> sess.run(train)
        >>> sess.get(w)
        array([0.5, 1. ], dtype=float32)
    """

    name = "sgd"

    def __init__(
        self,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        dampening: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr)
        self.momentum, self.nesterov = number(momentum, f"{self.name}: momentum", 0.0), bool(nesterov)
        self.dampening = number(dampening, f"{self.name}: dampening")
        alone = self.momentum > 0 and self.dampening == 0
        _check(not nesterov or alone, self.name, "nesterov", nesterov, "a positive momentum with it, and no dampening")
        self.weight_decay, self.maximize = number(weight_decay, f"{self.name}: weight_decay", 0.0), bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = _decayed(-gradient if self.maximize else gradient, var, self.weight_decay)
        updates = []
        if self.momentum:
            slot = self.slot(var, "momentum_buffer")
            buffer = slot * self.momentum + g
            if self.dampening:
                step, counted = self._count(var)
                buffer = o.where(o.equal(step, 1.0), g, slot * self.momentum + g * (1 - self.dampening))
                updates.append(counted)
            updates.append(assign(slot, buffer))
            g = g + self.momentum * buffer if self.nesterov else buffer
        return [*updates, assign(var, _value(var) - _like(lr, var) * g)]


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): θ ← θ - lr·m̂ / (√v̂ + eps), where m ← β₁·m + (1 - β₁)·g, v ← β₂·v + (1 - β₂)·g²,
    m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ).

    Args:
        lr: the learning rate, a number or a tensor.
        betas: (β₁, β₂).
        eps: keeps the quotient finite.
        weight_decay: λ; λ·θ is added to g.
        amsgrad: the largest v so far in the place of v (Reddi, Kale, Kumar 2018).
        maximize: go up the gradient.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.Adam(lr=0.5).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w).round(3)
        array([ 0.5, -1.5], dtype=float32)
    """

    name = "adam"
    decoupled: ClassVar[bool] = False

    def __init__(
        self,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr)
        self.betas = _check_betas(self.name, betas)
        self.eps, self.weight_decay = (
            number(eps, f"{self.name}: eps", 0.0),
            number(weight_decay, f"{self.name}: weight_decay", 0.0),
        )
        self.amsgrad, self.maximize = bool(amsgrad), bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = -gradient if self.maximize else gradient
        value = _value(var)
        if self.decoupled and self.weight_decay:
            value = value * _like(1.0 - o.astype(lr, float64) * self.weight_decay, var)
        elif self.weight_decay:
            g = _decayed(g, var, self.weight_decay)
        step, counted = self._count(var)
        first, second = self.slot(var, "exp_avg"), self.slot(var, "exp_avg_sq")
        mean, square = _average(first, g, self.betas[0]), _average(second, g * g, self.betas[1])
        updates = [counted, assign(first, mean), assign(second, square)]
        if self.amsgrad:
            largest = self.slot(var, "max_exp_avg_sq")
            square = o.maximum(largest, square)
            updates.append(assign(largest, square))
        size = _like(o.astype(lr, float64) / _unbias(self.betas[0], step), var)
        root = _like(o.rsqrt(_unbias(self.betas[1], step)), var)
        return [*updates, assign(var, value - size * (mean / (o.sqrt(square) * root + self.eps)))]


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): θ ← θ·(1 - lr·λ) before each step.

    Args:
        lr: the learning rate, a number or a tensor.
        betas: (β₁, β₂).
        eps: keeps the quotient finite.
        weight_decay: λ; it does not pass through m and v.
        amsgrad: the largest v so far in the place of v (Reddi, Kale, Kumar 2018).
        maximize: go up the gradient.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.AdamW(lr=0.5, weight_decay=0.1).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w).round(3)
        array([ 0.45, -1.4 ], dtype=float32)
    """

    name = "adamw"
    decoupled = True

    def __init__(
        self,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class RMSprop(Optimizer):
    """RMSprop (Hinton's lecture 6e, 2012): v ← α·v + (1 - α)·g², θ ← θ - lr·g / (√v + eps).

    Args:
        lr: the learning rate, a number or a tensor.
        alpha: α, in [0, 1].
        eps: keeps the quotient finite.
        weight_decay: λ; λ·θ is added to g.
        momentum: µ: b ← µ·b + g / (√v + eps), θ ← θ - lr·b.
        centered: the running mean of g, squared, is taken from v (Graves 2013).
        maximize: go up the gradient.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.RMSprop(lr=0.01).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w).round(3)
        array([ 0.9, -1.9], dtype=float32)
    """

    name = "rmsprop"

    def __init__(
        self,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr)
        self.alpha = number(alpha, f"{self.name}: alpha", 0.0)
        _check(self.alpha <= 1, self.name, "alpha", alpha, "a number in [0, 1]")
        self.eps, self.weight_decay = (
            number(eps, f"{self.name}: eps", 0.0),
            number(weight_decay, f"{self.name}: weight_decay", 0.0),
        )
        self.momentum, self.centered = number(momentum, f"{self.name}: momentum", 0.0), bool(centered)
        self.maximize = bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = _decayed(-gradient if self.maximize else gradient, var, self.weight_decay)
        slot = self.slot(var, "square_avg")
        square = _average(slot, g * g, self.alpha)
        updates, variance = [assign(slot, square)], square
        if self.centered:
            mean_slot = self.slot(var, "grad_avg")
            mean = _average(mean_slot, g, self.alpha)
            updates.append(assign(mean_slot, mean))
            variance = square - mean * mean
        direction = g / (o.sqrt(variance) + self.eps)
        if self.momentum:
            buffer_slot = self.slot(var, "momentum_buffer")
            direction = buffer_slot * self.momentum + direction
            updates.append(assign(buffer_slot, direction))
        return [*updates, assign(var, _value(var) - _like(lr, var) * direction)]


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan, Singer 2011): s ← s + g², θ ← θ - lr / (1 + (t - 1)·lr_decay)·g / (√s + eps).

    Args:
        lr: the learning rate, a number or a tensor.
        lr_decay: how fast the learning rate falls.
        weight_decay: λ; λ·θ is added to g.
        initial_accumulator_value: what s begins with.
        eps: keeps the quotient finite.
        maximize: go up the gradient.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.Adagrad(lr=0.5).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w).round(3)
        array([ 0.5, -1.5], dtype=float32)
    """

    name = "adagrad"

    def __init__(
        self,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr)
        self.initial = number(initial_accumulator_value, f"{self.name}: initial_accumulator_value", 0.0)
        self.lr_decay, self.eps = number(lr_decay, f"{self.name}: lr_decay", 0.0), number(eps, f"{self.name}: eps", 0.0)
        self.weight_decay, self.maximize = number(weight_decay, f"{self.name}: weight_decay", 0.0), bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = _decayed(-gradient if self.maximize else gradient, var, self.weight_decay)
        slot = self.slot(var, "sum", init.constant(self.initial))
        total = slot + g * g
        updates = [assign(slot, total)]
        rate = lr
        if self.lr_decay:
            step, counted = self._count(var)
            updates.append(counted)
            rate = o.astype(lr, float64) / ((step - 1.0) * self.lr_decay + 1.0)
        return [*updates, assign(var, _value(var) - _like(rate, var) * (g / (o.sqrt(total) + self.eps)))]


class Lion(Optimizer):
    """Lion (Chen et al. 2023): θ ← θ·(1 - lr·λ) - lr·sign(β₁·m + (1 - β₁)·g), then m ← β₂·m + (1 - β₂)·g.

    Args:
        lr: the learning rate, a number or a tensor.
        betas: (β₁, β₂).
        weight_decay: λ, decoupled from the gradient.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.Lion(lr=0.25).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w)
        array([ 0.75, -1.75], dtype=float32)
    """

    name = "lion"

    def __init__(
        self, lr: float | Tensor = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(lr)
        self.betas, self.weight_decay = (
            _check_betas(self.name, betas),
            number(weight_decay, f"{self.name}: weight_decay", 0.0),
        )

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        slot = self.slot(var, "exp_avg")
        direction = o.sign(_average(slot, gradient, self.betas[0]))
        updates = [assign(slot, _average(slot, gradient, self.betas[1]))]
        rate = _like(lr, var)
        value = _value(var)
        if self.weight_decay:
            value = value * (1.0 - rate * self.weight_decay)
        return [*updates, assign(var, value - rate * direction)]


# -- gradients together -------------------------------------------------------------------------------------------


def global_norm(tensors: Sequence[Tensor | None]) -> Tensor:
    """The 2-norm of all elements of all tensors (None counts as empty), of integers as float64. It is a short float
    where all tensors are of that one dtype.

    Raises:
        GraphError: there is no tensor.

    Example:
        >>> sg.Session().run(sg.optim.global_norm([sg.constant([3.0]), None, sg.constant([4.0])]))
        array(5., dtype=float32)
    """
    there = [x for x in tensors if x is not None]
    if not there:
        raise GraphError("global_norm: expected at least one tensor")
    norm, kinds = _norm(_wide(there)), {x.dtype for x in there}
    return o.astype(norm, kinds.pop()) if len(kinds) == 1 and is_short_float(there[0].dtype) else norm


def _wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Short floats as float32, integers as float64."""
    return [x if is_floating(x.dtype) else o.astype(x, float64) for x in widened(tensors)]


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    return o.sqrt(functools.reduce(o.add, [o.sum(o.square(x)) for x in tensors]))


def clip_by_global_norm(grads: Sequence[Any], max_norm: float | Tensor) -> list[Any]:
    """All gradients times min(1, max_norm / (norm + 1e-6)) for their common 2-norm, as ``clip_grad_norm_`` of PyTorch.

    Args:
        grads: tensors or None, as ``sg.gradients`` gives them.
        max_norm: a number or a scalar tensor.

    Returns:
        A list parallel to ``grads``; None stays None, and integers become float64.

    Example:
        >>> grads = [sg.constant([3.0]), None, sg.constant([4.0])]
        >>> clipped = sg.optim.clip_by_global_norm(grads, 1.0)
        >>> first, _, last = sg.Session().run(clipped)
        >>> first.round(3), last.round(3)
        (array([0.6], dtype=float32), array([0.8], dtype=float32))
    """
    there = [g for g in grads if g is not None]
    if not there:
        return list(grads)
    wide = _wide(there)
    factor = o.minimum(o.divide(max_norm, o.add(_norm(wide), 1e-6)), 1.0)
    clipped = [o.multiply(g, o.astype(factor, g.dtype)) for g in wide]
    result = iter([o.astype(c, g.dtype) if is_floating(g.dtype) else c for c, g in zip(clipped, there, strict=True)])
    return [None if g is None else next(result) for g in grads]


__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Lion", "Optimizer", "RMSprop", "clip_by_global_norm", "global_norm"]

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
