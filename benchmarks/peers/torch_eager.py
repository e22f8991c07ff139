"""PyTorch, eager: fused optimizers, results of products written into kept memory, in float64 the reference.

The variant ``channels_last`` keeps images and convolution weights NHWC in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import models
import torch
import torch.nn.functional as F
from models import Activation
from workloads import Array, Workload

from peers import Call, Program, Settings

T: TypeAlias = torch.Tensor
Parameters: TypeAlias = dict[str, T]
ACTIVATIONS: dict[Activation, Callable[[T], T]] = {
    "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu,
}  # fmt: skip


# -- functions --------------------------------------------------------------------------------------------------------


def squares(_: models.Squares, x: T) -> list[T]:
    x.requires_grad_()
    z = 4 * (x * x)
    mean, total = z.mean(), z.sum()
    (by_mean,) = torch.autograd.grad(mean, x, retain_graph=True)
    (by_total,) = torch.autograd.grad(total, x)
    return [mean.detach(), total.detach(), by_mean, by_total]


def logistic_loss(model: models.Logistic, w: T, b: T, x: T, y: T) -> T:
    z = x @ w + b
    return (F.softplus(z) - y * z).mean() + 0.5 * model.l2 * (w @ w)


def logistic(model: models.Logistic, x: T, y: T, w: T, b: T) -> list[T]:
    loss = logistic_loss(model, w.requires_grad_(), b.requires_grad_(), x, y)
    return [loss.detach(), *torch.autograd.grad(loss, (w, b))]


def call_price(s: T, k: T, t: T, rate: T, sigma: T) -> T:
    def cdf(x: T) -> T:
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    deviation = sigma * torch.sqrt(t)
    d1 = (torch.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
    return s * cdf(d1) - k * torch.exp(-rate * t) * cdf(d1 - deviation)


def black_scholes(_: models.BlackScholes, *inputs: T) -> list[T]:
    price = call_price(*(x.requires_grad_() for x in inputs))
    return [price.detach(), *torch.autograd.grad(price.sum(), inputs)]


def chain(_: models.Chain, x: T) -> list[T]:
    y = (x * 1.5).add_(0.25).clamp_(-1.0, 2.0)
    return [y.mul_(y).add_(x).abs_().mul_(0.5).sub_(x).neg_()]


FUNCTIONS: dict[type, Callable[..., list[T]]] = {
    models.Squares: squares,
    models.Logistic: logistic,
    models.BlackScholes: black_scholes,
    models.Softmax: lambda _, x: [torch.softmax(x, 1)],
    models.LayerNorm: lambda _, x, w, b: [F.layer_norm(x, w.shape, w, b)],
    models.Chain: chain,
    models.Copy: lambda _, x: [x.clone()],
}


# -- networks: parameters, running statistics and a batch come in, logits (rows, classes) go out ----------------------


def dense(p: Parameters, x: T, depth: int, activation: Activation = "relu") -> T:
    for layer in range(1, depth):
        x = ACTIVATIONS[activation](F.linear(x, p[f"fc{layer}.w"], p[f"fc{layer}.b"]))
    return F.linear(x, p[f"fc{depth}.w"], p[f"fc{depth}.b"])


def convnet(model: models.ConvNet, p: Parameters, buffers: Parameters, x: T) -> T:
    for number, padding in enumerate(model.paddings, 1):
        x = F.conv2d(x, p[f"c{number}.w"], p[f"c{number}.b"], padding=padding)
        x = F.max_pool2d(ACTIVATIONS[model.activation](x), 2)
    return dense(p, x.flatten(1), model.depth, model.activation)


def resnet(model: models.ResNet, p: Parameters, buffers: Parameters, x: T) -> T:
    def normalized(name: str, x: T, stride: int = 1) -> T:
        y = F.conv2d(x, p[f"{name}.w"], stride=stride, padding=1)
        mean, var = buffers[f"{name}.mean"], buffers[f"{name}.var"]
        return F.batch_norm(y, mean, var, p[f"{name}.gamma"], p[f"{name}.beta"], training=True)

    x = F.relu(normalized("stem", x))
    for number, (inputs, outputs, stride) in enumerate(model.blocks):
        y = F.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, outputs - inputs))
        x = F.relu(x + y)
    return dense(p, x.mean((2, 3)), 1)


def transformer(model: models.Transformer, p: Parameters, buffers: Parameters, x: T) -> T:
    def layer(name: str, x: T) -> T:
        return F.linear(x, p[f"{name}.w"], p[f"{name}.b"])

    def norm(name: str, x: T) -> T:
        return F.layer_norm(x, (width,), p[f"{name}.w"], p[f"{name}.b"])

    n, s, width = x.shape
    parts = layer("qkv", norm("norm1", x)).view(n, s, 3, model.heads, width // model.heads)
    q, k, v = parts.permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=model.causal)
    x = x + layer("out", y.transpose(1, 2).reshape(n, s, width))
    x = x + layer("down", F.gelu(layer("up", norm("norm2", x))))
    return layer("head", x).flatten(0, 1)


def lstm(_: models.Recurrent, p: Parameters, buffers: Parameters, x: T) -> T:
    """What ``torch.nn.LSTM`` calls; its second bias is zero."""
    zeros = x.new_zeros(1, len(x), p["wh"].shape[1])
    weights = [p["wx"], p["wh"], p["b"], torch.zeros_like(p["b"])]
    hidden, _h, _c = torch.lstm(x, [zeros, zeros], weights, True, 1, 0.0, True, False, True)
    return dense(p, hidden.flatten(0, 1), 1)


NETWORKS: dict[type, Callable[[Any, Parameters, Parameters, T], T]] = {
    models.Perceptron: lambda model, p, _, x: dense(p, x, model.depth, model.activation),
    models.ConvNet: convnet,
    models.ResNet: resnet,
    models.Transformer: transformer,
    models.Recurrent: lstm,
}


# -- building ---------------------------------------------------------------------------------------------------------


def parameters_of(arrays: dict[str, Array], settings: Settings) -> Parameters:
    """Weights of products lie (out, in), as PyTorch's layers keep them."""
    made = {}
    for name, array in arrays.items():
        x = torch.from_numpy((array.T if array.ndim == 2 else array).copy())
        if settings.variant == "channels_last" and array.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        made[name] = x.double() if settings.double else x
    return made


def optimizer_of(workload: Workload, parameters: Parameters) -> torch.optim.Optimizer:
    match workload.optimizer:
        case models.Momentum(lr, momentum):
            return torch.optim.SGD(parameters.values(), lr=lr, momentum=momentum, fused=True)
        case models.Adam(lr, 0.0):
            return torch.optim.Adam(parameters.values(), lr=lr, fused=True)
        case models.Adam(lr, decay):
            return torch.optim.AdamW(parameters.values(), lr=lr, weight_decay=decay, fused=True)
    raise ValueError(f"{workload.name} has no optimizer")


def training(
    workload: Workload,
    settings: Settings,
    networks: dict[type, Callable[..., T]] = NETWORKS,
    compiled: Callable[[Any], Any] = lambda f: f,
) -> Call:
    """Forward and loss through ``compiled``, backward, a fused update."""
    parameters = parameters_of(workload.parameters, settings)
    buffers = parameters_of(workload.buffers, settings)
    optimizer = optimizer_of(workload, parameters)
    for p in parameters.values():
        p.requires_grad_()
    model, network = workload.model, networks[type(workload.model)]
    last = settings.variant == "channels_last"

    def loss_of(x: T, labels: T) -> T:
        return F.cross_entropy(network(model, parameters, buffers, x), labels.flatten())

    compute = compiled(loss_of)

    def call(x: Array, labels: Array) -> list[Any]:
        fed = torch.from_numpy(x)
        fed = fed.contiguous(memory_format=torch.channels_last) if last else fed
        loss = compute(fed, torch.from_numpy(labels))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return [loss.detach().numpy()]

    return call


def _inference(workload: Workload, settings: Settings) -> Call:
    parameters = parameters_of(workload.parameters, settings)
    model, network = workload.model, NETWORKS[type(workload.model)]

    def call(x: Array) -> list[Any]:
        with torch.inference_mode():
            return [network(model, parameters, {}, torch.from_numpy(x)).numpy()]

    return call


def _product() -> Call:
    kept: list[T] = []

    def call(a: Array, b: Array) -> list[Any]:
        with torch.inference_mode():
            x, y = torch.from_numpy(a), torch.from_numpy(b)
            if not kept:
                kept.append(x.new_empty(len(a), b.shape[1]))
            return [torch.mm(x, y, out=kept[0]).numpy()]

    return call


def _function(workload: Workload) -> Call:
    model, function = workload.model, FUNCTIONS[type(workload.model)]

    def call(*arrays: Array) -> list[Any]:
        return [y.numpy() for y in function(model, *map(torch.from_numpy, arrays))]

    return call


def build(workload: Workload, settings: Settings) -> Program:
    torch.set_num_threads(settings.threads)
    if workload.kind == "train":
        call = training(workload, settings)
    elif workload.kind == "infer":
        call = _inference(workload, settings)
    elif isinstance(workload.model, models.Product):
        call = _product()
    else:
        call = _function(workload)
    return Program(lambda: call)
