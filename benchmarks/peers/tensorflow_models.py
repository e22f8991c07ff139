"""The workloads in TensorFlow's functions, for sessions and for XLA alike; images NHWC and kernels HWIO inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import models
import numpy as np
import tensorflow as tf
from models import Activation
from workloads import Array, Workload

Tree = dict[str, Any]
Gradients = Callable[[Any, list[Any]], list[Any]]
ACTIVATIONS: dict[Activation, Callable[[Any], Any]] = {
    "relu": tf.nn.relu, "tanh": tf.tanh, "sigmoid": tf.sigmoid, "silu": tf.nn.silu,
    "gelu": lambda x: tf.nn.gelu(x, approximate=False),
}  # fmt: skip


# -- functions: what is differentiated, and the results of a call from its gradients ----------------------------------


def squares(x: Any) -> tuple[Any, Any]:
    z = 4 * (x * x)
    return tf.reduce_mean(z), tf.reduce_sum(z)


def logistic(model: models.Logistic, x: Any, y: Any, w: Any, b: Any) -> Any:
    z = tf.linalg.matvec(x, w) + b
    return tf.reduce_mean(tf.nn.softplus(z) - y * z) + 0.5 * model.l2 * tf.reduce_sum(w * w)


def call_price(s: Any, k: Any, t: Any, rate: Any, sigma: Any) -> Any:
    def cdf(x: Any) -> Any:
        return 0.5 * (1 + tf.math.erf(x / math.sqrt(2)))

    deviation = sigma * tf.sqrt(t)
    d1 = (tf.math.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / deviation
    return s * cdf(d1) - k * tf.exp(-rate * t) * cdf(d1 - deviation)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * weight + bias


def chain(x: Any) -> Any:
    y = tf.minimum(tf.maximum(x * 1.5 + 0.25, -1.0), 2.0)
    return -(tf.abs(y * y + x) * 0.5 - x)


def forward(model: Any, inputs: list[Any]) -> list[Any]:
    """The functions that nobody differentiates."""
    match model:
        case models.Product():
            return [tf.matmul(*inputs)]
        case models.Softmax():
            return [tf.nn.softmax(inputs[0])]
        case models.LayerNorm():
            return [layer_norm(*inputs)]
        case models.Chain():
            return [chain(inputs[0])]
        case models.Copy():
            return [tf.identity(inputs[0])]
    raise ValueError(f"{type(model).__name__} is not one of the functions")


# -- networks: parameters and a batch to logits (rows, classes), and new running statistics ---------------------------


def dense(p: Tree, x: Any, depth: int, activation: Activation = "relu") -> Any:
    for layer in range(1, depth):
        x = ACTIVATIONS[activation](tf.matmul(x, p[f"fc{layer}.w"]) + p[f"fc{layer}.b"])
    return tf.matmul(x, p[f"fc{depth}.w"]) + p[f"fc{depth}.b"]


def convolution(w: Any, x: Any, padding: int, stride: int = 1) -> Any:
    around = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
    return tf.nn.conv2d(x, w, stride, around)


def convnet(model: models.ConvNet, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    x = tf.transpose(x, (0, 2, 3, 1))
    for number, padding in enumerate(model.paddings, 1):
        x = tf.nn.bias_add(convolution(p[f"c{number}.w"], x, padding), p[f"c{number}.b"])
        x = tf.nn.max_pool2d(ACTIVATIONS[model.activation](x), 2, 2, "VALID")
    return dense(p, tf.reshape(x, (x.shape[0], -1)), model.depth, model.activation), {}


def resnet(model: models.ResNet, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    new: Tree = {}

    def normalized(name: str, x: Any, stride: int = 1) -> Any:
        y = convolution(p[f"{name}.w"], x, 1, stride)
        y, mean, var = tf.compat.v1.nn.fused_batch_norm(y, p[f"{name}.gamma"], p[f"{name}.beta"], epsilon=1e-5)
        # the variance that comes out is already the unbiased one
        new[f"{name}.mean"] = 0.9 * buffers[f"{name}.mean"] + 0.1 * mean
        new[f"{name}.var"] = 0.9 * buffers[f"{name}.var"] + 0.1 * var
        return y

    x = tf.nn.relu(normalized("stem", tf.transpose(x, (0, 2, 3, 1))))
    for number, (inputs, outputs, stride) in enumerate(model.blocks):
        y = tf.nn.relu(normalized(f"b{number}.1", x, stride))
        y = normalized(f"b{number}.2", y)
        if stride > 1:
            x = tf.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, outputs - inputs)))
        x = tf.nn.relu(x + y)
    return dense(p, tf.reduce_mean(x, (1, 2)), 1), new


def transformer(model: models.Transformer, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    """Layers read their rows as one matrix."""
    n, s, width = x.shape
    x = tf.reshape(x, (n * s, width))

    def layer(name: str, x: Any) -> Any:
        return tf.matmul(x, p[f"{name}.w"]) + p[f"{name}.b"]

    def norm(name: str, x: Any) -> Any:
        return layer_norm(x, p[f"{name}.w"], p[f"{name}.b"])

    parts = tf.reshape(layer("qkv", norm("norm1", x)), (n, s, 3, model.heads, width // model.heads))
    q, k, v = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
    scores = tf.matmul(q, k, transpose_b=True) * (1 / math.sqrt(width // model.heads))
    if model.causal:
        scores += np.triu(np.full((s, s), -np.inf, np.float32), 1)
    y = tf.matmul(tf.nn.softmax(scores), v)
    x = x + layer("out", tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (n * s, width)))
    x = x + layer("down", tf.nn.gelu(layer("up", norm("norm2", x)), approximate=False))
    return layer("head", x), {}


def lstm_step(p: Tree, row: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, f, g, o = tf.split(row + tf.matmul(h, p["wh"]), 4, axis=1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def lstm(_: models.Recurrent, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    """The steps one after the other in the graph: no loop's bookkeeping in a session."""
    batch, steps, inputs = x.shape
    rows = tf.reshape(tf.transpose(x, (1, 0, 2)), (steps * batch, inputs))
    rows = tf.split(tf.matmul(rows, p["wx"]) + p["b"], steps)
    h = c = tf.zeros((batch, p["wh"].shape[0]), x.dtype)
    outputs = []
    for row in rows:
        h, c = lstm_step(p, row, h, c)
        outputs.append(h)
    return dense(p, tf.reshape(tf.stack(outputs, 1), (batch * steps, -1)), 1), {}


NETWORKS: dict[type, Callable[[Any, Tree, Tree, Any], tuple[Any, Tree]]] = {
    models.Perceptron: lambda model, p, buffers, x: (dense(p, x, model.depth, model.activation), {}),
    models.ConvNet: convnet,
    models.ResNet: resnet,
    models.Transformer: transformer,
    models.Recurrent: lstm,
}


def cross_entropy(logits: Any, labels: Any) -> Any:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(labels, (-1,)), logits)
    return tf.reduce_mean(losses)


def parameters_of(workload: Workload) -> dict[str, Array]:
    """Convolution weights HWIO; the first dense weight after them reads channels last."""
    made = {}
    channels = 0
    for name, array in workload.parameters.items():
        if array.ndim == 4:
            array = array.transpose(2, 3, 1, 0)
            channels = array.shape[-1]
        elif isinstance(workload.model, models.ConvNet) and name == "fc1.w":
            array = array.reshape(channels, -1, array.shape[1]).swapaxes(0, 1).reshape(array.shape)
        made[name] = np.ascontiguousarray(array)
    return made
