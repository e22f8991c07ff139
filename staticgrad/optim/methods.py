"""The optimizers: how each updates one variable. Formulas and defaults are PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

from staticgrad.base.types import computed, float64, number
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn import initializers as init
from staticgrad.optim.arguments import LearningRate, check
from staticgrad.optim.base import Optimizer
from staticgrad.optim.state import assign

Groups = Sequence[Mapping[str, Any]]


def value_of(var: Tensor) -> Tensor:
    """A variable in the dtype that its update is computed in: float32 for short floats."""
    return o.astype(var, computed(var.dtype))


def _like(scalar: float | Tensor, var: Tensor) -> float | Tensor:
    """A float64 scalar in the dtype that a variable's update is computed in."""
    return o.astype(scalar, computed(var.dtype)) if isinstance(scalar, Tensor) else scalar


def _decayed(gradient: Tensor, var: Tensor, weight_decay: float) -> Tensor:
    """The gradient with that of ½·weight_decay·‖var‖² added."""
    return gradient + weight_decay * value_of(var) if weight_decay else gradient


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
    check(two, what, "betas", betas, "two numbers in [0, 1)")
    return float(betas[0]), float(betas[1])


class SGD(Optimizer):
    """Stochastic gradient descent: θ ← θ - lr·g. With momentum µ (Polyak 1964): b ← µ·b + g, θ ← θ - lr·b.

    Args:
        lr: the learning rate: a number, a tensor or a schedule.
        momentum: µ.
        nesterov: θ ← θ - lr·(g + µ·b) (Nesterov 1983, as Sutskever et al. 2013 write it).
        weight_decay: λ; λ·θ is added to g.
        dampening: τ: b ← µ·b + (1 - τ)·g from the second step on.
        maximize: go up the gradient.
        lazy, groups: rows without a gradient keep what they have; variables with options of their own. ``Optimizer``
            says more.

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
        lr: LearningRate = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        dampening: float = 0.0,
        maximize: bool = False,
        lazy: bool = False,
        groups: Groups = (),
    ) -> None:
        super().__init__(
            lr,
            groups,
            lazy=lazy,
            momentum=momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
            dampening=dampening,
            maximize=maximize,
        )
        self.momentum, self.nesterov = number(momentum, f"{self.name}: momentum", 0.0), bool(nesterov)
        self.dampening = number(dampening, f"{self.name}: dampening")
        alone = self.momentum > 0 and self.dampening == 0
        check(not nesterov or alone, self.name, "nesterov", nesterov, "a positive momentum with it, and no dampening")
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
        return [*updates, assign(var, value_of(var) - _like(lr, var) * g)]


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): θ ← θ - lr·m̂ / (√v̂ + eps), where m ← β₁·m + (1 - β₁)·g, v ← β₂·v + (1 - β₂)·g²,
    m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ).

    Args:
        lr: the learning rate: a number, a tensor or a schedule.
        betas: (β₁, β₂).
        eps: keeps the quotient finite.
        weight_decay: λ; λ·θ is added to g.
        amsgrad: the largest v so far in the place of v (Reddi, Kale, Kumar 2018).
        maximize: go up the gradient.
        lazy, groups: rows without a gradient keep what they have; variables with options of their own. ``Optimizer``
            says more.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.Adam(lr=0.5).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w).round(3)
        array([ 0.5, -1.5], dtype=float32)
    """

    name = "adam"
    _decoupled: ClassVar[bool] = False

    def __init__(
        self,
        lr: LearningRate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
        groups: Groups = (),
    ) -> None:
        super().__init__(
            lr, groups, lazy=lazy, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )
        self.betas = _check_betas(self.name, betas)
        self.eps, self.weight_decay = (
            number(eps, f"{self.name}: eps", 0.0),
            number(weight_decay, f"{self.name}: weight_decay", 0.0),
        )
        self.amsgrad, self.maximize = bool(amsgrad), bool(maximize)

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        g = -gradient if self.maximize else gradient
        value = value_of(var)
        if self._decoupled and self.weight_decay:
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
        lr: the learning rate: a number, a tensor or a schedule.
        betas: (β₁, β₂).
        eps: keeps the quotient finite.
        weight_decay: λ; it does not pass through m and v.
        amsgrad: the largest v so far in the place of v (Reddi, Kale, Kumar 2018).
        maximize: go up the gradient.
        lazy, groups: rows without a gradient keep what they have; variables with options of their own. ``Optimizer``
            says more.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> train = sg.optim.AdamW(lr=0.5, weight_decay=0.1).minimize(sg.sum(w**2))
        >>> sess = sg.Session()
        >>> sess.run(train)
        >>> sess.get(w).round(3)
        array([ 0.45, -1.4 ], dtype=float32)
    """

    name = "adamw"
    _decoupled = True

    def __init__(
        self,
        lr: LearningRate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
        groups: Groups = (),
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, amsgrad, maximize=maximize, lazy=lazy, groups=groups)


class RMSprop(Optimizer):
    """RMSprop (Hinton's lecture 6e, 2012): v ← α·v + (1 - α)·g², θ ← θ - lr·g / (√v + eps).

    Args:
        lr: the learning rate: a number, a tensor or a schedule.
        alpha: α, in [0, 1].
        eps: keeps the quotient finite.
        weight_decay: λ; λ·θ is added to g.
        momentum: µ: b ← µ·b + g / (√v + eps), θ ← θ - lr·b.
        centered: the running mean of g, squared, is taken from v (Graves 2013).
        maximize: go up the gradient.
        lazy, groups: rows without a gradient keep what they have; variables with options of their own. ``Optimizer``
            says more.

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
        lr: LearningRate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
        groups: Groups = (),
    ) -> None:
        super().__init__(
            lr,
            groups,
            lazy=lazy,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )
        self.alpha = number(alpha, f"{self.name}: alpha", 0.0)
        check(self.alpha <= 1, self.name, "alpha", alpha, "a number in [0, 1]")
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
        return [*updates, assign(var, value_of(var) - _like(lr, var) * direction)]


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan, Singer 2011): s ← s + g², θ ← θ - lr / (1 + (t - 1)·lr_decay)·g / (√s + eps).

    Args:
        lr: the learning rate: a number, a tensor or a schedule.
        lr_decay: how fast the learning rate falls.
        weight_decay: λ; λ·θ is added to g.
        initial_accumulator_value: what s begins with.
        eps: keeps the quotient finite.
        maximize: go up the gradient.
        lazy, groups: rows without a gradient keep what they have; variables with options of their own. ``Optimizer``
            says more.

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
        lr: LearningRate = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        lazy: bool = False,
        groups: Groups = (),
    ) -> None:
        super().__init__(
            lr,
            groups,
            lazy=lazy,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            maximize=maximize,
        )
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
        return [*updates, assign(var, value_of(var) - _like(rate, var) * (g / (o.sqrt(total) + self.eps)))]


class Lion(Optimizer):
    """Lion (Chen et al. 2023): θ ← θ·(1 - lr·λ) - lr·sign(β₁·m + (1 - β₁)·g), then m ← β₂·m + (1 - β₂)·g.

    Args:
        lr: the learning rate: a number, a tensor or a schedule.
        betas: (β₁, β₂).
        weight_decay: λ, decoupled from the gradient.
        lazy, groups: rows without a gradient keep what they have; variables with options of their own. ``Optimizer``
            says more.

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
        self,
        lr: LearningRate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        lazy: bool = False,
        groups: Groups = (),
    ) -> None:
        super().__init__(lr, groups, lazy=lazy, betas=betas, weight_decay=weight_decay)
        self.betas, self.weight_decay = (
            _check_betas(self.name, betas),
            number(weight_decay, f"{self.name}: weight_decay", 0.0),
        )

    def update(self, gradient: Tensor, var: Tensor, lr: Tensor) -> list[Node]:
        slot = self.slot(var, "exp_avg")
        direction = o.sign(_average(slot, gradient, self.betas[0]))
        updates = [assign(slot, _average(slot, gradient, self.betas[1]))]
        rate = _like(lr, var)
        value = value_of(var)
        if self.weight_decay:
            value = value * (1.0 - rate * self.weight_decay)
        return [*updates, assign(var, value - rate * direction)]
