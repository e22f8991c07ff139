"""PyTorch through ``torch.compile``, whose Inductor needs a C++ compiler.

The variant ``calls`` compiles what its documentation would: in training the forward pass with the loss (its backward
is compiled with it) beside a fused optimizer; of functions value and gradient as one; for inference with weights
frozen. The variant ``step`` compiles forward, backward and update as one function that changes parameters in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import models
import torch
import torch.nn.functional as F
from workloads import Array, Workload

from peers import Call, Program, Settings
from peers.torch_eager import NETWORKS, Parameters, T, call_price, logistic_loss, parameters_of, training
from peers.torch_eager import lstm as eager_lstm


def squares(_: models.Squares, x: T) -> list[T]:
    def z(x: T) -> T:
        return 4 * (x * x)

    by_mean, mean = torch.func.grad_and_value(lambda x: z(x).mean())(x)
    by_total, total = torch.func.grad_and_value(lambda x: z(x).sum())(x)
    return [mean, total, by_mean, by_total]


def logistic(model: models.Logistic, x: T, y: T, w: T, b: T) -> list[T]:
    def loss(w: T, b: T) -> T:
        return logistic_loss(model, w, b, x, y)

    gradients, value = torch.func.grad_and_value(loss, argnums=(0, 1))(w, b)
    return [value, *gradients]


def black_scholes(_: models.BlackScholes, *inputs: T) -> list[T]:
    def total(*inputs: T) -> tuple[T, T]:
        price = call_price(*inputs)
        return price.sum(), price

    gradients, (_total, price) = torch.func.grad_and_value(total, argnums=tuple(range(5)), has_aux=True)(*inputs)
    return [price, *gradients]


def chain(_: models.Chain, x: T) -> list[T]:
    y = (x * 1.5 + 0.25).clamp(-1.0, 2.0)
    return [-((y * y + x).abs() * 0.5 - x)]


FUNCTIONS: dict[type, Callable[..., list[T]]] = {
    models.Squares: squares,
    models.Logistic: logistic,
    models.BlackScholes: black_scholes,
    models.Product: lambda _, a, b: [a @ b],
    models.Softmax: lambda _, x: [torch.softmax(x, 1)],
    models.LayerNorm: lambda _, x, w, b: [F.layer_norm(x, w.shape, w, b)],
    models.Chain: chain,
    models.Copy: lambda _, x: [x.clone()],
}


def lstm(model: models.Recurrent, p: Parameters, buffers: Parameters, x: T) -> T:
    """PyTorch's own layer, left out of the compiled graph as ``torch.compile`` does with ``torch.nn.LSTM``."""
    y: T = torch.compiler.disable(eager_lstm)(model, p, buffers, x)
    return y


def _function(workload: Workload) -> Call:
    model, function = workload.model, FUNCTIONS[type(workload.model)]
    compiled = torch.compile(lambda *inputs: function(model, *inputs))

    def call(*arrays: Array) -> list[Any]:
        return [y.numpy() for y in compiled(*map(torch.from_numpy, arrays))]

    return call


def _inference(workload: Workload, settings: Settings) -> Call:
    import torch._inductor.config as inductor

    inductor.freezing = True
    module = _Network(workload, settings).eval()
    compiled = torch.compile(module)

    def call(x: Array) -> list[Any]:
        with torch.no_grad():
            return [compiled(torch.from_numpy(x)).numpy()]

    return call


class _Network(torch.nn.Module):
    """A network whose parameters Inductor may freeze, as it only does with those of modules."""

    def __init__(self, workload: Workload, settings: Settings) -> None:
        super().__init__()
        self.model, self.network = workload.model, NETWORKS[type(workload.model)]
        kept = parameters_of(workload.parameters, settings)
        self.names = {name: name.replace(".", "_") for name in kept}
        for name, p in kept.items():
            self.register_parameter(self.names[name], torch.nn.Parameter(p, requires_grad=False))

    def forward(self, x: T) -> T:
        parameters = {name: getattr(self, attribute) for name, attribute in self.names.items()}
        return self.network(self.model, parameters, {}, x)


def _step(workload: Workload, settings: Settings) -> Call:
    parameters = parameters_of(workload.parameters, settings)
    buffers = parameters_of(workload.buffers, settings)
    model, network = workload.model, NETWORKS[type(workload.model)]
    first = {name: torch.zeros_like(p) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p) for name, p in parameters.items()}
    count = torch.zeros(())

    def loss_of(parameters: Parameters, x: T, labels: T) -> T:
        return F.cross_entropy(network(model, parameters, buffers, x), labels.flatten())

    def momentum(rule: models.Momentum, gradients: Parameters) -> None:
        for name, p in parameters.items():
            g = gradients[name]
            p.sub_(rule.lr * (first[name].mul_(rule.momentum).add_(g) if rule.momentum else g))

    def adam(rule: models.Adam, gradients: Parameters) -> None:
        count.add_(1)
        unbiased, scale = 1 - 0.9**count, 1 - 0.999**count
        for name, p in parameters.items():
            g = gradients[name]
            m, v = first[name].mul_(0.9).add_(0.1 * g), second[name].mul_(0.999).add_(0.001 * g * g)
            p.mul_(1 - rule.lr * rule.decay).sub_(rule.lr * (m / unbiased) / (torch.sqrt(v / scale) + 1e-8))

    def step(x: T, labels: T) -> T:
        gradients, loss = torch.func.grad_and_value(loss_of)(parameters, x, labels)
        match workload.optimizer:
            case models.Momentum() as rule:
                momentum(rule, gradients)
            case models.Adam() as rule:
                adam(rule, gradients)
        return loss

    compiled = torch.compile(step)
    return lambda x, labels: [compiled(torch.from_numpy(x), torch.from_numpy(labels)).numpy()]


def build(workload: Workload, settings: Settings) -> Program:
    torch.set_num_threads(settings.threads)
    if workload.kind == "train":
        if settings.variant == "step":
            call = _step(workload, settings)
        else:
            call = training(workload, settings, {**NETWORKS, models.Recurrent: lstm}, torch.compile)
    elif workload.kind == "infer":
        call = _inference(workload, settings)
    else:
        call = _function(workload)
    return Program(lambda: call)
