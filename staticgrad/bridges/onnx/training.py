"""ONNX's optimizers and gradients, in the domain ``ai.onnx.preview.training``."""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

DOMAIN = "ai.onnx.preview.training::"


@converts(DOMAIN + "Gradient")
def gradient(at: OnnxScope, node: OnnxNode) -> Sequence[Tensor]:
    names = [*node.attr("xs"), *node.attr("zs", [])]
    if list(node.inputs) != names:
        raise RefusedError("a gradient at other values than those of the graph is not converted")
    return gradients(at.tensor(node.attr("y")), at.tensors(node.attr("xs")), unconnected_gradients="zero")


def _groups(at: OnnxScope, node: OnnxNode, count: int) -> tuple[Tensor, Tensor, list[tuple[Tensor, ...]]]:
    """The learning rate, the step, and for each variable its operands: itself, its gradient, its slots."""
    rate, step, *rest = at.tensors(node.inputs)
    size = len(rest) // count
    return rate, step, list(zip(*(rest[size * k : size * (k + 1)] for k in range(count))))


def _regular(node: OnnxNode, x: Tensor, slope: Tensor) -> Tensor:
    return o.add(slope, x * node.attr("norm_coefficient", 0.0))


@converts(DOMAIN + "Adagrad")
def adagrad(at: OnnxScope, node: OnnxNode) -> Sequence[Tensor]:
    rate, step, groups = _groups(at, node, 3)
    rate = rate / (1 + o.astype(step, rate.dtype) * node.attr("decay_factor", 0.0))
    xs, squares = [], []
    for x, slope, before in groups:
        slope = _regular(node, x, slope)
        squares.append(before + o.square(slope))
        xs.append(x - rate * slope / (o.sqrt(squares[-1]) + node.attr("epsilon", 1e-6)))
    return [*xs, *squares]


@converts(DOMAIN + "Momentum")
def momentum(at: OnnxScope, node: OnnxNode) -> Sequence[Tensor]:
    rate, step, groups = _groups(at, node, 3)
    alpha, beta = node.attr("alpha"), o.where(step > 0, node.attr("beta"), 1.0)
    xs, moments = [], []
    for x, slope, before in groups:
        slope = _regular(node, x, slope)
        moments.append(before * alpha + o.astype(beta, x.dtype) * slope)
        nesterov = node.attr("mode") == "nesterov"
        xs.append(x - rate * (slope + moments[-1] * alpha if nesterov else moments[-1]))
    return [*xs, *moments]


@converts(DOMAIN + "Adam")
def adam(at: OnnxScope, node: OnnxNode) -> Sequence[Tensor]:
    rate, step, groups = _groups(at, node, 4)
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    time = o.astype(step, rate.dtype)
    corrected = rate * o.sqrt(1 - o.pow(o.full((), beta, dtype=rate.dtype), time))
    corrected = corrected / (1 - o.pow(o.full((), alpha, dtype=rate.dtype), time))
    rate = o.where(step > 0, corrected, rate)
    xs, means, squares = [], [], []
    for x, slope, mean, square in groups:
        slope = _regular(node, x, slope)
        means.append(mean * alpha + slope * (1 - alpha))
        squares.append(square * beta + o.square(slope) * (1 - beta))
        new = x - rate * means[-1] / (o.sqrt(squares[-1]) + node.attr("epsilon", 1e-6))
        xs.append(new * (1 - node.attr("norm_coefficient_post", 0.0)))
    return [*xs, *means, *squares]
