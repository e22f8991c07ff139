"""TensorFlow 2: one function a call, compiled by XLA, with variables that it changes in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import models
import numpy as np
import tensorflow as tf
from workloads import Array, Workload

from peers import Call, Program, Settings
from peers.tensorflow_models import (
    NETWORKS,
    Tree,
    call_price,
    cross_entropy,
    dense,
    forward,
    logistic,
    lstm_step,
    parameters_of,
    squares,
)


def _function(workload: Workload, inputs: list[Any]) -> list[Any]:
    model = workload.model
    if not isinstance(model, models.Squares | models.Logistic | models.BlackScholes):
        return forward(model, inputs)
    wanted = inputs[2:] if isinstance(model, models.Logistic) else inputs
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(wanted)
        match model:
            case models.Squares():
                values = list(squares(inputs[0]))
            case models.Logistic():
                values = [logistic(model, *inputs)]
            case models.BlackScholes():
                values = [call_price(*inputs)]
    return [*values, *(gradient for value in values for gradient in tape.gradient(value, wanted))]


def lstm(_: models.Recurrent, p: Tree, buffers: Tree, x: Any) -> tuple[Any, Tree]:
    """A loop: XLA compiles unrolled steps for minutes."""
    batch, steps, inputs = x.shape
    hidden = p["wh"].shape[0]
    rows = tf.reshape(tf.transpose(x, (1, 0, 2)), (steps * batch, inputs))
    rows = tf.reshape(tf.matmul(rows, p["wx"]) + p["b"], (steps, batch, 4 * hidden))
    outputs = tf.TensorArray(x.dtype, steps, element_shape=(batch, hidden))

    def step(number: Any, h: Any, c: Any, outputs: Any) -> tuple[Any, ...]:
        h, c = lstm_step(p, rows[number], h, c)
        return number + 1, h, c, outputs.write(number, h)

    zeros = tf.zeros((batch, hidden), x.dtype)
    start = (tf.constant(0), zeros, zeros, outputs)
    *_, outputs = tf.while_loop(lambda number, *_: number < steps, step, start, maximum_iterations=steps)
    return dense(p, tf.reshape(tf.transpose(outputs.stack(), (1, 0, 2)), (batch * steps, hidden)), 1), {}


def _updates(workload: Workload, variables: list[Any]) -> Callable[[list[Any]], None]:
    """Gradients to new values of the variables; the optimizer's state lies in variables of its own."""
    first = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
    second = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
    count = tf.Variable(0.0, trainable=False)

    def apply(gradients: list[Any]) -> None:
        match workload.optimizer:
            case models.Momentum(lr, momentum):
                for v, g, m in zip(variables, gradients, first, strict=True):
                    v.assign_sub(lr * (m.assign(momentum * m + g) if momentum else g))
            case models.Adam(lr, decay):
                count.assign_add(1.0)
                size, scale = lr / (1 - 0.9**count), 1 / (1 - 0.999**count)
                for v, g, m, s in zip(variables, gradients, first, second, strict=True):
                    new, square = m.assign(0.9 * m + 0.1 * g), s.assign(0.999 * s + 0.001 * g * g)
                    v.assign(v * (1 - lr * decay) - size * new / (tf.sqrt(square * scale) + 1e-8))

    return apply


def _training(workload: Workload) -> Callable[..., list[Any]]:
    p = {name: tf.Variable(array) for name, array in parameters_of(workload).items()}
    buffers = {name: tf.Variable(array, trainable=False) for name, array in workload.buffers.items()}
    networks: dict[type, Callable[..., Any]] = {**NETWORKS, models.Recurrent: lstm}
    network = networks[type(workload.model)]
    variables = list(p.values())
    apply = _updates(workload, variables)

    def step(x: Any, labels: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            logits, new = network(workload.model, p, buffers, x)
            loss = cross_entropy(logits, labels)
        apply(tape.gradient(loss, variables))
        for name, value in new.items():
            buffers[name].assign(value)
        return [loss]

    return step


def build(workload: Workload, settings: Settings) -> Program:
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if workload.kind == "train":
        function = _training(workload)
    elif workload.kind == "infer":
        p = {name: tf.constant(array) for name, array in parameters_of(workload).items()}
        network = NETWORKS[type(workload.model)]

        def function(x: Any) -> list[Any]:
            return [network(workload.model, p, {}, x)[0]]

    else:

        def function(*inputs: Any) -> list[Any]:
            return _function(workload, list(inputs))

    signature = [tf.TensorSpec(array.shape, array.dtype) for array in workload.feeds[0]]

    def compile() -> Call:
        compiled = tf.function(function, input_signature=signature, jit_compile=True).get_concrete_function()

        def call(*arrays: Array) -> list[Any]:
            return [np.asarray(y) for y in compiled(*map(tf.convert_to_tensor, arrays))]

        return call

    return Program(compile)
