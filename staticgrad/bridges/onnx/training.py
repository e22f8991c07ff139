"""ONNX's optimizers and gradients, in the domain ``ai.onnx.preview.training``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, converts
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

DOMAIN = "ai.onnx.preview.training::"
Update = Callable[..., Sequence[Tensor]]


@converts(DOMAIN + "Gradient")
def gradient(at: OnnxScope, node: OnnxNode, *, xs: list[str], y: str, zs: Sequence[str] = ()) -> Sequence[Tensor]:
    if list(node.inputs) != [*xs, *zs]:
        raise RefusedError("a gradient at other values than those of the graph is not converted")
    return gradients(at.tensor(y), at.tensors(xs), unconnected_gradients="zero")


def _updated(update: Update, operands: Sequence[Tensor], count: int, regular: float) -> list[Tensor]:
    """The new variables and slots: all of the first kind, then all of the next. An update takes a variable, its
    gradient with that of its norm, and its slots, of which there are ``count`` less 2."""
    size = len(operands) // count
    groups = zip(*(operands[size * k : size * (k + 1)] for k in range(count)))
    rows = [update(x, o.add(slope, x * regular), *slots) for x, slope, *slots in groups]
    return [each for column in zip(*rows) for each in column]


@converts(DOMAIN + "Adagrad")
def adagrad(
    rate: Tensor, step: Tensor, *operands: Tensor, decay_factor: float, epsilon: float, norm_coefficient: float
) -> list[Tensor]:
    rate = rate / (1 + o.astype(step, rate.dtype) * decay_factor)

    def update(x: Tensor, slope: Tensor, squares: Tensor) -> Sequence[Tensor]:
        squares = squares + o.square(slope)
        return x - rate * slope / (o.sqrt(squares) + epsilon), squares

    return _updated(update, operands, 3, norm_coefficient)


@converts(DOMAIN + "Momentum")
def momentum(
    rate: Tensor, step: Tensor, *operands: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> list[Tensor]:
    weight = o.where(step > 0, beta, 1.0)

    def update(x: Tensor, slope: Tensor, moment: Tensor) -> Sequence[Tensor]:
        moment = moment * alpha + o.astype(weight, x.dtype) * slope
        return x - rate * (slope + moment * alpha if mode == "nesterov" else moment), moment

    return _updated(update, operands, 3, norm_coefficient)


@converts(DOMAIN + "Adam")
def adam(
    rate: Tensor, step: Tensor, *operands: Tensor, alpha: float, beta: float, epsilon: float, norm_coefficient: float,
    norm_coefficient_post: float,
) -> list[Tensor]:  # fmt: skip
    def remaining(factor: float) -> Tensor:
        return 1 - o.pow(o.full((), factor, dtype=rate.dtype), o.astype(step, rate.dtype))

    speed = o.where(step > 0, rate * o.sqrt(remaining(beta)) / remaining(alpha), rate)

    def update(x: Tensor, slope: Tensor, mean: Tensor, square: Tensor) -> Sequence[Tensor]:
        mean = mean * alpha + slope * (1 - alpha)
        square = square * beta + o.square(slope) * (1 - beta)
        new = x - speed * mean / (o.sqrt(square) + epsilon)
        return new * (1 - norm_coefficient_post), mean, square

    return _updated(update, operands, 4, norm_coefficient)
