"""PyTorch, eager: fused optimizers, results of products written into kept memory, in float64 the reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from workloads import BUILDERS, HEADS, L2, RESNET20, WIDTH, Adam, Array, Momentum, Workload

from peers import Call, Compile

WORKLOADS = frozenset(BUILDERS)
Parameters = dict[str, torch.Tensor]


def seed_scalar(x: torch.Tensor) -> list[torch.Tensor]:
    x.requires_grad_()
    z = 4 * (x * x)
    mean, total = z.mean(), z.sum()
    (by_mean,) = torch.autograd.grad(mean, x, retain_graph=True)
    (by_total,) = torch.autograd.grad(total, x)
    return [mean.detach(), total.detach(), by_mean, by_total]


def logreg(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    w.requires_grad_()
    b.requires_grad_()
    z = x @ w + b
    loss = (F.softplus(z) - y * z).mean() + 0.5 * L2 * (w @ w)
    return [loss.detach(), *torch.autograd.grad(loss, (w, b))]


def black_scholes(*inputs: torch.Tensor) -> list[torch.Tensor]:
    s, k, t, rate, sigma = (x.requires_grad_() for x in inputs)

    def cdf(x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    deviation = sigma * torch.sqrt(t)
    d1 = (torch.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
    price = s * cdf(d1) - k * torch.exp(-rate * t) * cdf(d1 - deviation)
    return [price.detach(), *torch.autograd.grad(price.sum(), (s, k, t, rate, sigma))]


def pointwise_chain(x: torch.Tensor) -> list[torch.Tensor]:
    y = (x * 1.5).add_(0.25).clamp_(-1.0, 2.0)
    return [y.mul_(y).add_(x).abs_().mul_(0.5).sub_(x).neg_()]


FUNCTIONS: dict[str, Callable[..., list[torch.Tensor]]] = {
    "seed_scalar": seed_scalar,
    "logreg_f64": logreg,
    "black_scholes_f64": black_scholes,
    "softmax_512": lambda x: [torch.softmax(x, 1)],
    "layer_norm_512": lambda x, w, b: [F.layer_norm(x, (512,), w, b)],
    "pointwise_chain": pointwise_chain,
    "copy": lambda x: [x.clone()],
}


def dense(p: Parameters, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
    for layer in range(1, depth):
        x = F.relu(F.linear(x, p[f"fc{layer}.w"], p[f"fc{layer}.b"]))
    return F.linear(x, p[f"fc{depth}.w"], p[f"fc{depth}.b"])


def lenet(p: Parameters, buffers: Parameters, x: torch.Tensor) -> torch.Tensor:
    x = F.max_pool2d(F.relu(F.conv2d(x, p["c1.w"], p["c1.b"], padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p["c2.w"], p["c2.b"])), 2)
    return dense(p, x.flatten(1))


def resnet20(p: Parameters, buffers: Parameters, x: torch.Tensor) -> torch.Tensor:
    def normalized(name: str, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
        y = F.conv2d(x, p[f"{name}.w"], stride=stride, padding=1)
        mean, var = buffers[f"{name}.mean"], buffers[f"{name}.var"]
        return F.batch_norm(y, mean, var, p[f"{name}.gamma"], p[f"{name}.beta"], training=True)

    x = F.relu(normalized("stem", x))
    for number, (inputs, outputs, stride) in enumerate(RESNET20):
        y = F.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, outputs - inputs))
        x = F.relu(x + y)
    return dense(p, x.mean((2, 3)), 1)


def transformer_block(p: Parameters, buffers: Parameters, x: torch.Tensor) -> torch.Tensor:
    def layer(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, p[f"{name}.w"], p[f"{name}.b"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), p[f"{name}.w"], p[f"{name}.b"])

    n, s, _ = x.shape
    q, k, v = layer("qkv", norm("norm1", x)).view(n, s, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + layer("out", y.transpose(1, 2).reshape(n, s, WIDTH))
    x = x + layer("down", F.gelu(layer("up", norm("norm2", x))))
    return layer("head", x).flatten(0, 1)


MODELS: dict[str, Callable[[Parameters, Parameters, torch.Tensor], torch.Tensor]] = {
    "mlp_small": lambda p, _, x: dense(p, x),
    "mlp_mnist": lambda p, _, x: dense(p, x),
    "mlp_infer_b1": lambda p, _, x: dense(p, x),
    "lenet": lenet,
    "resnet20": resnet20,
    "transformer_block": transformer_block,
}


def _parameters(arrays: dict[str, Array], double: bool) -> Parameters:
    """Dense weights lie (out, in), as PyTorch's layers keep them."""
    made = {}
    for name, array in arrays.items():
        turned = array.T if name.endswith(".w") and array.ndim == 2 else array
        x = torch.from_numpy(turned.copy())
        made[name] = x.double() if double else x
    return made


def _optimizer(workload: Workload, parameters: Parameters) -> torch.optim.Optimizer:
    match workload.optimizer:
        case Momentum(lr, momentum):
            return torch.optim.SGD(parameters.values(), lr=lr, momentum=momentum, fused=True)
        case Adam(lr, decay):
            return torch.optim.AdamW(parameters.values(), lr=lr, weight_decay=decay, fused=True)
    raise ValueError(f"{workload.name} has no optimizer")


def build(workload: Workload, threads: int, double: bool) -> Compile:
    torch.set_num_threads(threads)
    parameters = _parameters(workload.parameters, double)
    buffers = _parameters(workload.buffers, double)
    call: Call
    if workload.kind == "train":
        model, optimizer = MODELS[workload.name], _optimizer(workload, parameters)
        for p in parameters.values():
            p.requires_grad_()

        def call(x: Array, labels: Array) -> list[Any]:
            logits = model(parameters, buffers, torch.from_numpy(x))
            loss = F.cross_entropy(logits, torch.from_numpy(labels).flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return [loss.detach().numpy()]

    elif workload.kind == "infer":
        model = MODELS[workload.name]

        def call(x: Array) -> list[Any]:
            with torch.inference_mode():
                return [model(parameters, buffers, torch.from_numpy(x)).numpy()]

    elif workload.name.startswith("gemm"):

        def call(a: Array, b: Array) -> list[Any]:
            with torch.inference_mode():
                return [torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()]

    else:
        function = FUNCTIONS[workload.name]

        def call(*arrays: Array) -> list[Any]:
            return [y.numpy() for y in function(*map(torch.from_numpy, arrays))]

    return lambda: call
