"""The oracle's programs as staticgrad declares and runs them.

``FUNCTIONS`` has the ops by name, ``Declared`` plays scripts. ``answers.py`` has the same for PyTorch. Attributes come
from JSON, where lists stand for tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from support.budgets import within

import staticgrad as sg

from .scripts import (
    CHANGED,
    FREED,
    NO_GRAD,
    NOT_SCALAR,
    WRONG_SHAPE,
    Array,
    Assign,
    Backward,
    Forward,
    Gradients,
    Hook,
    Notes,
    Recipe,
    Refused,
    Remove,
    Retain,
    Value,
    Zero,
    words,
)

T = sg.Tensor
Axes = int | Sequence[int] | None


def axes_of(axis: Axes) -> int | tuple[int, ...] | None:
    return tuple(axis) if isinstance(axis, Sequence) else axis


def key_of(key: Sequence[Any]) -> tuple[Any, ...]:
    """An index from JSON: ``[start, stop, step]`` is a slice, a number takes one place, ``null`` is a new axis."""
    return tuple(slice(*part) if isinstance(part, list) else part for part in key)


def reduction(name: str) -> Callable[..., T]:
    function = getattr(sg, name)

    def reduce(x: T, axis: Axes = None, keepdims: bool = False, **rest: Any) -> T:
        result: T = function(x, axes_of(axis), keepdims=keepdims, **rest)
        return result

    return reduce


ARRAY = words(
    "negative exp log sqrt rsqrt reciprocal square abs sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh"
    " exp2 expm1 log1p log2 log10 erf erfc lgamma floor ceil round trunc sign identity stop_gradient add"
    " subtract multiply divide maximum minimum atan2 hypot pow logaddexp where greater less equal matmul outer vecdot"
)
NEURAL = words(
    "sigmoid relu relu6 leaky_relu elu selu gelu silu softplus mish softsign hardtanh hardswish log_sigmoid linear"
    " softmax log_softmax normalize max_pool2d conv1d conv2d mse_loss l1_loss huber_loss smooth_l1_loss kl_div"
    " binary_cross_entropy_with_logits scaled_dot_product_attention"
)
REDUCTIONS = words("sum mean max min prod var std logsumexp")

OPERATORS: dict[str, Callable[..., Any]] = {  # of tensors of either
    "add_number": lambda x, number: x + number,
    "subtract_number": lambda x, number: x - number,
    "number_subtract": lambda x, number: number - x,
    "multiply_number": lambda x, number: x * number,
    "number_multiply": lambda x, number: number * x,
    "divide_number": lambda x, number: x / number,
    "number_divide": lambda x, number: number / x,
    "pow_number": lambda x, number: x**number,
    "number_pow": lambda x, number: number**x,
    "greater_number": lambda x, number: x > number,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sg, name) for name in ARRAY},
    **{name: getattr(sg.nn, name) for name in NEURAL},
    **{name: reduction(name) for name in REDUCTIONS},
    **OPERATORS,
    "where_number": lambda c, x, number: sg.where(c, x, number),
    "clip": lambda x, low, high: sg.clip(x, low, high),
    "reshape": lambda x, shape: sg.reshape(x, tuple(shape)),
    "permute_dims": lambda x, axes: sg.permute_dims(x, tuple(axes)),
    "matrix_transpose": lambda x: x.mT,
    "getitem": lambda x, key: x[key_of(key)],
    "index": lambda x, places: x[np.array(places)],
    "take": lambda x, places, axis: sg.take(x, np.array(places), axis=axis),
    "flip": lambda x, axis: sg.flip(x, axis=axes_of(axis)),
    "roll": lambda x, shift, axis: sg.roll(x, shift, axis=axis),
    "squeeze": lambda x, axis: sg.squeeze(x, axis),
    "expand_dims": lambda x, axis: sg.expand_dims(x, axis=axis),
    "broadcast_to": lambda x, shape: sg.broadcast_to(x, tuple(shape)),
    "concat": lambda *xs, axis: sg.concat(list(xs), axis=axis),
    "stack": lambda *xs, axis: sg.stack(list(xs), axis=axis),
    "split": lambda x, sections, axis, piece: sg.split(x, sections, axis=axis)[piece],
    "unstack": lambda x, axis, piece: sg.unstack(x, axis=axis)[piece],
    "pad": lambda x, pad, value=0.0: sg.nn.pad(x, pad, value=value),
    "tile": lambda x, repetitions: sg.tile(x, tuple(repetitions)),
    "repeat": lambda x, repeats, axis: sg.repeat(x, repeats, axis=axis),
    "einsum": lambda *xs, subscripts: sg.einsum(subscripts, *xs),
    "tensordot": lambda x, y, axes: sg.tensordot(x, y, axes=axes),
    "layer_norm": lambda x, *parameters: sg.nn.layer_norm(x, (x.shape[-1],), *parameters),
    "rms_norm": lambda x, *parameters: sg.nn.rms_norm(x, (x.shape[-1],), *parameters),
    "group_norm": lambda x, *parameters, num_groups: sg.nn.group_norm(x, num_groups, *parameters),
    "batch_norm": lambda x, *parameters: sg.nn.batch_norm(x, None, None, *parameters, training=True),
    "embedding": lambda weight, places: sg.nn.embedding(np.array(places), weight),
    "cross_entropy": lambda x, labels: sg.nn.cross_entropy(x, np.array(labels)),
    "nll_loss": lambda x, labels: sg.nn.nll_loss(x, np.array(labels)),
}

REFUSALS: dict[str, tuple[type[Exception], str]] = {
    FREED: (sg.BuffersFreedError, "Trying to backward through the graph a second time"),
    NO_GRAD: (sg.GradientError, "does not require grad and does not have a grad_fn"),
    NOT_SCALAR: (sg.GradientError, "grad can be implicitly created only for scalar outputs"),
    WRONG_SHAPE: (sg.GradientError, "shape"),
    CHANGED: (sg.StateChangedError, ""),
}


def reason_of(error: Exception) -> str:
    """The oracle's word for a refusal; anything else is raised again."""
    for reason, (kind, text) in REFUSALS.items():
        if type(error) is kind and text in str(error):
            return reason
    raise error


class Declared:
    """Plays a script on a session.

    Args:
        memory_budget: of every forward: what is refused and what comes out must not depend on it.
    """

    def __init__(self, recipe: Recipe, memory_budget: int | None = None) -> None:
        self._budget = memory_budget
        self._fed: list[T] = []
        with sg.Graph() as graph:
            self._tensors = recipe.tensors([self._leaf(leaf) for leaf in recipe.leaves], FUNCTIONS, sg.no_grad)
        self._session = sg.Session(graph)
        self._tapes: dict[int, sg.Tape] = {}
        self._handles: dict[int, Any] = {}
        self._notes: Notes = []

    def _leaf(self, leaf: Any) -> T:
        if leaf.kind == "fed":
            x: T = sg.placeholder(leaf.shape, sg.float64, requires_grad=leaf.requires_grad)
            self._fed.append(x)
            return x
        value = np.asarray(leaf.value, np.float64).reshape(leaf.shape)
        made = sg.constant(value) if leaf.kind == "constant" else sg.Variable(value, trainable=leaf.requires_grad)
        return made

    def hook(self, action: Hook) -> None:
        def hook(grad: T) -> T | None:
            if action.noted:
                sg.py_call(lambda value: self._notes.append((action.handle, value.copy())), [grad], [])
            if action.kind == "times":
                assert action.other is not None
                return grad * self._tensors[action.other]
            number = action.number
            return {
                "scale": lambda: grad * number,
                "shift": lambda: grad + number,
                "clamp": lambda: sg.clip(grad, -number, number),
                "look": lambda: None,
            }[action.kind]()

        self._handles[action.handle] = self._tensors[action.tensor].register_hook(hook)

    def remove(self, action: Remove) -> None:
        self._handles.pop(action.handle).remove()

    def retain(self, action: Retain) -> None:
        self._tensors[action.tensor].retain_grad()

    def forward(self, action: Forward) -> None:
        feeds = {x: np.asarray(v, np.float64) for x, v in zip(self._fed, action.feeds, strict=True)}
        outputs = [self._tensors[i] for i in action.outputs]
        self._tapes[action.tape] = within(
            self._budget, lambda budget: self._session.forward(outputs, feeds, memory_budget=budget)
        )

    def backward(self, action: Backward) -> Notes:
        self._notes = []
        outputs = [self._tensors[i] for i in action.outputs]
        lone = len(outputs) == 1
        grads: Any = action.grads
        if grads is not None and lone:
            (grads,) = grads
        try:
            self._tapes[action.tape].backward(outputs[0] if lone else outputs, grads, action.retain_graph)
        except sg.StaticGradError as error:
            assert not self._notes, "a refused backward ran"
            raise Refused(reason_of(error)) from error
        return self._notes

    def value(self, action: Value) -> Array:
        return self._tapes[action.tape][self._tensors[action.output]]

    def gradients(self, action: Gradients) -> list[Array | None]:
        return [self._session.grad(self._tensors[i]) for i in action.tensors]

    def zero(self, action: Zero) -> None:
        self._session.zero_grad()

    def assign(self, action: Assign) -> None:
        self._session.set(self._tensors[action.variable], np.asarray(action.value, np.float64))
