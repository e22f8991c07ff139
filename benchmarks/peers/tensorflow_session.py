"""TensorFlow 1: a graph, a session, and a callable made once for fixed fetches and feeds."""

from __future__ import annotations

from typing import Any

import models
import tensorflow as tf
from workloads import Workload

from peers import Call, Program, Settings
from peers.tensorflow_models import (
    NETWORKS,
    call_price,
    cross_entropy,
    forward,
    logistic,
    parameters_of,
    squares,
)

v1 = tf.compat.v1


def _function(workload: Workload, inputs: list[Any]) -> list[Any]:
    match workload.model:
        case models.Squares():
            mean, total = squares(inputs[0])
            return [mean, total, *tf.gradients(mean, inputs), *tf.gradients(total, inputs)]
        case models.Logistic() as model:
            loss = logistic(model, *inputs)
            return [loss, *tf.gradients(loss, inputs[2:])]
        case models.BlackScholes():
            price = call_price(*inputs)
            return [price, *tf.gradients(price, inputs)]
    return forward(workload.model, inputs)


def _optimizer(rule: models.Optimizer | None) -> Any:
    match rule:
        case models.Momentum(lr, 0.0):
            return v1.train.GradientDescentOptimizer(lr)
        case models.Momentum(lr, momentum):
            return v1.train.MomentumOptimizer(lr, momentum)
        case models.Adam(lr):
            return v1.train.AdamOptimizer(lr)
    raise ValueError("no optimizer")


def _training(workload: Workload, inputs: list[Any]) -> list[Any]:
    p = {name: v1.Variable(array, name=name) for name, array in parameters_of(workload).items()}
    buffers = {name: v1.Variable(array, name=name, trainable=False) for name, array in workload.buffers.items()}
    logits, new = NETWORKS[type(workload.model)](workload.model, p, buffers, inputs[0])
    loss = cross_entropy(logits, inputs[1])
    rule, variables = workload.optimizer, list(p.values())
    gradients = tf.gradients(loss, variables)
    before: list[Any] = [loss]
    if isinstance(rule, models.Adam) and rule.decay:  # decoupled: from the parameter as it was before the step
        with tf.control_dependencies(gradients):
            before += [v1.assign(v, v * (1 - rule.lr * rule.decay)) for v in variables]
    with tf.control_dependencies(before):
        step = _optimizer(rule).apply_gradients(zip(gradients, variables, strict=True))
    statistics = [v1.assign(buffers[name], value) for name, value in new.items()]
    return [loss, tf.group(step, *statistics)]


def build(workload: Workload, settings: Settings) -> Program:
    graph = tf.Graph()
    with graph.as_default():
        inputs = [v1.placeholder(array.dtype, array.shape) for array in workload.feeds[0]]
        if workload.kind == "function":
            fetches = _function(workload, inputs)
        elif workload.kind == "train":
            fetches = _training(workload, inputs)
        else:
            p = {name: v1.Variable(array, name=name) for name, array in parameters_of(workload).items()}
            fetches = [NETWORKS[type(workload.model)](workload.model, p, {}, inputs[0])[0]]
        first = v1.global_variables_initializer()
    config = v1.ConfigProto(intra_op_parallelism_threads=settings.threads, inter_op_parallelism_threads=1)
    session = v1.Session(graph=graph, config=config)
    session.run(first)

    def compile() -> Call:
        call: Call = session.make_callable(fetches, feed_list=inputs)
        return call

    return Program(compile)
