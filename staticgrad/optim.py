"""Optimizers: a gradient and a variable in, an op that updates the variable out. Formulas and defaults are PyTorch's.

State beside the variables is made of variables too, so it is saved, restored and planned like them:

    <optimizer>/lr                    the learning rate, float64; ``sess.set(opt.lr, v)`` compiles nothing
    <var>/<optimizer>/exp_avg, …      slots, of the variable's shape and dtype, zero at first
    <var>/<optimizer>/step            how many updates the variable has had, int64

Every update is elementwise over the variable and its slots, so it fuses with the kernel that makes the gradient. What
depends on the step alone is computed once, as float64 scalars.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, ClassVar

from staticgrad import init
from staticgrad.collection import importing
from staticgrad.errors import GraphError
from staticgrad.graph import Graph, Node, Tensor, get_default_graph, no_grad
from staticgrad.lifting import lift
from staticgrad.ops.sources import accumulated_grad
from staticgrad.ops.variables import Variable
from staticgrad.optable import FUNCTIONS as o
from staticgrad.reach import reach
from staticgrad.types import float64, int64, is_floating

GradAndVar = tuple[Tensor | None, Tensor]


def _check(condition: bool, what: str, name: str, value: object, expected: str) -> None:
    if not condition:
        raise GraphError(f"{what}: {name}={value!r}: expected {expected}")


def _variable(x: Tensor | Node) -> Tensor:
    if isinstance(x, Tensor) and x.op.op.name == "variable":
        return x
    raise GraphError(f"an optimizer updates variables: {x!r} is none")


def depends_on(loss: Tensor) -> list[Tensor]:
    """The trainable variables that a tensor depends on, in order of declaration."""
    needed = reach([loss.op], lambda node: [x.op for x in node.inputs])
    found = [node for node in loss.graph.nodes if node in needed and node.op.name == "variable"]
    return [node.outputs[0] for node in found if node.attrs.trainable]


class Optimizer:
    """What all optimizers share. A subclass says how one variable is updated.

    In their formulas θ is a variable, g its gradient, t the number of the step, counted from 1.

    Args:
        lr: the learning rate: a number of at least 0, which becomes state that ``sess.set(opt.lr, v)`` changes, or a
            floating scalar tensor.

    Raises:
        GraphError: an argument that is out of its range.
    """

    name: ClassVar[str] = "optimizer"

    def __init__(self, lr: float | Tensor) -> None:
        if not isinstance(lr, Tensor):
            _check(isinstance(lr, Real) and lr >= 0, self.name, "lr", lr, "a number of at least 0, or a tensor")
        self._given_lr = lr
        self._lr: Tensor | None = None
        self._prefix = ""
        self._slots: dict[tuple[Tensor, str], Tensor] = {}

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def lr(self) -> Tensor:
        """The learning rate: the variable that keeps it (``sess.set(opt.lr, v)``), or the tensor that was given."""
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
        if self._lr.graph is not graph:
            raise GraphError(f"{self.name}: an optimizer serves one graph, and its learning rate is of another")
        return self._lr

    def slot(self, var: Tensor, name: str, initial: init.Initializer | None = None, step: bool = False) -> Tensor:
        """The variable of this optimizer that belongs to ``var`` under ``name``; made when first asked for."""
        key = (var, name)
        if key not in self._slots:
            shape, dtype = ((), int64) if step else (var.shape, var.dtype)
            full_name = f"{var.op.attrs.key}/{self._prefix}/{name}"
            value = init.zeros() if initial is None else initial
            with var.graph:
                self._slots[key] = Variable(value, shape=shape, dtype=dtype, name=full_name, trainable=False)
        return self._slots[key]

    # -- what users call ----------------------------------------------------------------------------------------

    def minimize(self, loss: Tensor, var_list: Sequence[Tensor] | None = None) -> Node:
        """An op that makes one step down the gradient of ``loss``.

        Args:
            loss: a floating tensor.
            var_list: what to update; default: the trainable variables that the loss depends on.

        Raises:
            GraphError: there is nothing to update.
        """
        with importing():
            from staticgrad.compiler.autodiff.reverse import gradients

        variables = depends_on(loss) if var_list is None else [_variable(v) for v in var_list]
        if not variables:
            raise GraphError(f"{self.name}: {loss.name!r} depends on no trainable variable", source=loss.source)
        return self.apply_gradients(list(zip(gradients(loss, variables), variables, strict=True)))

    def apply_gradients(self, grads_and_vars: Iterable[GradAndVar]) -> Node:
        """An op that updates each variable from its gradient; a gradient None skips its variable.

        Raises:
            GraphError: a gradient of another shape, what is no variable, or one variable twice.
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

    def step(self, var_list: Sequence[Tensor] | None = None) -> Node:
        """An op that updates from the gradients that backwards of tapes have accumulated in the session.

        A variable without an accumulated gradient is left alone.

        Args:
            var_list: what to update; default: all trainable variables of the current graph.

        Raises:
            GraphError: there is nothing to update.
        """
        if var_list is None:
            graph = get_default_graph() if self._lr is None else self._lr.graph
            found = [v for v in graph.variables.values() if v.op.attrs.trainable and is_floating(v.dtype)]
        else:
            found = [_variable(v) for v in var_list]
        return self.apply_gradients([(accumulated_grad(v), v) for v in found])

    # -- for subclasses -----------------------------------------------------------------------------------------

    def _apply(self, gradient: Tensor, var: Tensor) -> list[Node]:
        if gradient.shape != var.shape:
            raise GraphError(
                f"{self.name}: expected a gradient of shape {var.shape} for {var.name!r}, actual {gradient.type}",
                source=var.source,
            )
        lr = self._learning_rate(var.graph)
        source = gradient.op
        if gradient.dtype != var.dtype:
            gradient = o.astype(gradient, var.dtype)
        updates = self.update(gradient, var, lr)
        if source.op.name == "accumulated_grad":
            for node in updates:  # also what does not read the gradient (a step count) waits for there being one
                node.control = (*node.control, source)
        return updates

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        """The assignments that update one variable and its slots. ``lr`` is a scalar of any floating dtype."""
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
    """The op that writes ``value`` to a variable."""
    return _op(o.assign(var, value))


def _like(scalar: float | Tensor, var: Tensor) -> float | Tensor:
    """A float64 scalar in the variable's dtype."""
    return o.astype(scalar, var.dtype) if isinstance(scalar, Tensor) else scalar


def _decayed(gradient: Tensor, var: Tensor, weight_decay: float) -> Tensor:
    """The gradient with that of ½·weight_decay·‖var‖² added."""
    return gradient + weight_decay * var if weight_decay else gradient


def _average(slot: Tensor, value: Tensor, beta: float) -> Tensor:
    """beta·slot + (1 - beta)·value."""
    return slot * beta + value * (1 - beta)


def _unbias(beta: float, step: Tensor) -> Tensor:
    """1 - beta**step, accurate where that is tiny."""
    if beta == 0:
        return o.ones((), dtype=float64)
    return o.negative(o.expm1(step * math.log(beta)))


def _check_betas(what: str, betas: tuple[float, float]) -> tuple[float, float]:
    _check(len(betas) == 2 and all(0 <= b < 1 for b in betas), what, "betas", betas, "two numbers in [0, 1)")
    return float(betas[0]), float(betas[1])


class SGD(Optimizer):
    """Stochastic gradient descent: θ ← θ - lr·g. With momentum µ (Polyak 1964): b ← µ·b + g, θ ← θ - lr·b.

    Args:
        lr: the learning rate, a number or a tensor.
        momentum: µ.
        nesterov: θ ← θ - lr·(g + µ·b) (Nesterov 1983, as Sutskever et al. 2013 write it).
        weight_decay: λ; λ·θ is added to g.
        maximize: go up the gradient.
    """

    name = "sgd"

    def __init__(
        self,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr)
        _check(momentum >= 0, self.name, "momentum", momentum, "at least 0")
        _check(not nesterov or momentum > 0, self.name, "nesterov", nesterov, "a positive momentum with it")
        self.momentum, self.nesterov = float(momentum), bool(nesterov)
        self.weight_decay, self.maximize = float(weight_decay), bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = _decayed(-gradient if self.maximize else gradient, var, self.weight_decay)
        updates = []
        if self.momentum:
            slot = self.slot(var, "momentum_buffer")
            buffer = slot * self.momentum + g
            updates.append(assign(slot, buffer))
            g = g + self.momentum * buffer if self.nesterov else buffer
        return [*updates, assign(var, var - _like(lr, var) * g)]


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
        _check(eps >= 0, self.name, "eps", eps, "at least 0")
        self.eps, self.weight_decay = float(eps), float(weight_decay)
        self.amsgrad, self.maximize = bool(amsgrad), bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = -gradient if self.maximize else gradient
        value = var
        if self.decoupled and self.weight_decay:
            value = var * _like(1.0 - o.astype(lr, float64) * self.weight_decay, var)
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
    ) -> None:
        super().__init__(lr)
        _check(0 <= alpha <= 1, self.name, "alpha", alpha, "a number in [0, 1]")
        _check(momentum >= 0, self.name, "momentum", momentum, "at least 0")
        self.alpha, self.eps, self.weight_decay = float(alpha), float(eps), float(weight_decay)
        self.momentum, self.centered = float(momentum), bool(centered)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = _decayed(gradient, var, self.weight_decay)
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
        return [*updates, assign(var, var - _like(lr, var) * direction)]


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan, Singer 2011): s ← s + g², θ ← θ - lr / (1 + (t - 1)·lr_decay)·g / (√s + eps).

    Args:
        lr: the learning rate, a number or a tensor.
        lr_decay: how fast the learning rate falls.
        weight_decay: λ; λ·θ is added to g.
        initial_accumulator_value: what s begins with.
        eps: keeps the quotient finite.
    """

    name = "adagrad"

    def __init__(
        self,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(lr)
        _check(initial_accumulator_value >= 0, self.name, "initial_accumulator_value", initial_accumulator_value, "≥ 0")
        self.lr_decay, self.weight_decay, self.eps = float(lr_decay), float(weight_decay), float(eps)
        self.initial = float(initial_accumulator_value)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = _decayed(gradient, var, self.weight_decay)
        slot = self.slot(var, "sum", init.constant(self.initial))
        total = slot + g * g
        updates = [assign(slot, total)]
        rate = lr
        if self.lr_decay:
            step, counted = self._count(var)
            updates.append(counted)
            rate = o.astype(lr, float64) / ((step - 1.0) * self.lr_decay + 1.0)
        return [*updates, assign(var, var - _like(rate, var) * (g / (o.sqrt(total) + self.eps)))]


class Lion(Optimizer):
    """Lion (Chen et al. 2023): θ ← θ·(1 - lr·λ) - lr·sign(β₁·m + (1 - β₁)·g), then m ← β₂·m + (1 - β₂)·g.

    Args:
        lr: the learning rate, a number or a tensor.
        betas: (β₁, β₂).
        weight_decay: λ, decoupled from the gradient.
    """

    name = "lion"

    def __init__(
        self, lr: float | Tensor = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(lr)
        self.betas, self.weight_decay = _check_betas(self.name, betas), float(weight_decay)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        slot = self.slot(var, "exp_avg")
        direction = o.sign(_average(slot, gradient, self.betas[0]))
        updates = [assign(slot, _average(slot, gradient, self.betas[1]))]
        rate = _like(lr, var)
        value = var * (1.0 - rate * self.weight_decay) if self.weight_decay else var
        return [*updates, assign(var, value - rate * direction)]


# -- gradients together -------------------------------------------------------------------------------------------


def global_norm(tensors: Sequence[Tensor | None]) -> Tensor:
    """The 2-norm of all elements of all tensors (None counts as empty).

    Raises:
        GraphError: there is no tensor.
    """
    there = [x for x in tensors if x is not None]
    if not there:
        raise GraphError("global_norm: expected at least one tensor")
    return o.sqrt(functools.reduce(o.add, [o.sum(o.square(x)) for x in there]))


def clip_by_global_norm(grads: Sequence[Any], max_norm: float | Tensor) -> list[Any]:
    """All gradients times min(1, max_norm / (norm + 1e-6)) for their common 2-norm, as ``clip_grad_norm_`` of PyTorch.

    Args:
        grads: tensors or None, as ``sg.gradients`` gives them.
        max_norm: a number or a scalar tensor.

    Returns:
        A list parallel to ``grads``; None stays None.
    """
    if all(g is None for g in grads):
        return list(grads)
    factor = o.minimum(o.divide(max_norm, o.add(global_norm(grads), 1e-6)), 1.0)
    return [None if g is None else o.multiply(g, o.astype(factor, g.dtype)) for g in grads]


__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Lion", "Optimizer", "RMSprop", "clip_by_global_norm", "global_norm"]
