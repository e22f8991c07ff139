"""The oracle's programs as PyTorch runs them: its ops under staticgrad's names, and a player of scripts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from .declared import ARRAY, OPERATORS, Axes, key_of
from .scripts import (
    CHANGED,
    FREED,
    NO_GRAD,
    NOT_SCALAR,
    WRONG_SHAPE,
    Action,
    Array,
    Assign,
    Backward,
    Forward,
    Gradients,
    Hook,
    Leaf,
    Notes,
    Recipe,
    Refused,
    Remove,
    Retain,
    Value,
    Zero,
    perform,
    words,
)

T = torch.Tensor


def dims_of(x: T, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(axis) if isinstance(axis, Sequence) else (axis,)


def reduction(function: Callable[..., T], whole: Callable[[T], T] | None = None) -> Callable[..., T]:
    """``whole`` is what PyTorch's users write for all axes, where it is another op."""

    def reduce(x: T, axis: Axes = None, keepdims: bool = False, **rest: Any) -> T:
        if axis is None and not keepdims and whole is not None:
            return whole(x)
        return function(x, dims_of(x, axis), keepdim=keepdims, **rest)

    return reduce


def spread(function: Callable[..., T]) -> Callable[..., T]:
    """Of ``torch.var`` and ``torch.std``, with the array API's default."""

    def reduce(x: T, dim: tuple[int, ...], keepdim: bool, correction: int = 0) -> T:
        return function(x, dim, correction=correction, keepdim=keepdim)

    return reduce


def prod(x: T, axis: int | None = None) -> T:
    return x.prod() if axis is None else x.prod(axis)


RENAMED = {"identity": torch.clone, "equal": torch.eq, "stop_gradient": torch.detach, "vecdot": torch.linalg.vecdot}
NEURAL = words(
    "relu relu6 leaky_relu elu selu gelu silu softplus mish softsign hardtanh hardswish linear normalize max_pool2d"
    " conv1d conv2d mse_loss l1_loss huber_loss smooth_l1_loss kl_div binary_cross_entropy_with_logits softmax"
    " log_softmax scaled_dot_product_attention"
)

FUNCTIONS: dict[str, Callable[..., T]] = {
    **{name: RENAMED.get(name) or getattr(torch, name) for name in ARRAY},
    **{name: getattr(F, name) for name in NEURAL},
    "sigmoid": torch.sigmoid,
    "log_sigmoid": F.logsigmoid,
    "sum": reduction(torch.sum, torch.sum),
    "mean": reduction(torch.mean, torch.mean),
    "max": reduction(torch.amax, torch.max),
    "min": reduction(torch.amin, torch.min),
    "prod": prod,
    "var": reduction(spread(torch.var)),
    "std": reduction(spread(torch.std)),
    "logsumexp": reduction(torch.logsumexp),
    **OPERATORS,
    "where_number": lambda c, x, number: torch.where(c, x, number),
    "clip": lambda x, low, high: torch.clamp(x, low, high),
    "reshape": lambda x, shape: x.reshape(shape),
    "permute_dims": lambda x, axes: x.permute(axes),
    "matrix_transpose": lambda x: x.mT,
    "getitem": lambda x, key: x[key_of(key)],
    "index": lambda x, places: x[torch.tensor(places)],
    "take": lambda x, places, axis: torch.index_select(x, axis, torch.tensor(places)),
    "flip": lambda x, axis: torch.flip(x, dims_of(x, axis)),
    "roll": lambda x, shift, axis: torch.roll(x, shift, axis),
    "squeeze": lambda x, axis: torch.squeeze(x, axis),
    "expand_dims": lambda x, axis: torch.unsqueeze(x, axis),
    "broadcast_to": lambda x, shape: torch.broadcast_to(x, shape),
    "concat": lambda *xs, axis: torch.cat(xs, axis),
    "stack": lambda *xs, axis: torch.stack(xs, axis),
    "split": lambda x, sections, axis, piece: torch.split(x, x.shape[axis] // sections, axis)[piece],
    "unstack": lambda x, axis, piece: torch.unbind(x, axis)[piece],
    "pad": lambda x, pad, value=0.0: F.pad(x, pad, value=value),
    "tile": lambda x, repetitions: x.repeat(*repetitions),
    "repeat": lambda x, repeats, axis: x.repeat_interleave(repeats, axis),
    "einsum": lambda *xs, subscripts: torch.einsum(subscripts, *xs),
    "tensordot": lambda x, y, axes: torch.tensordot(x, y, dims=axes),
    "layer_norm": lambda x, *parameters: F.layer_norm(x, (x.shape[-1],), *parameters),
    "rms_norm": lambda x, *parameters: F.rms_norm(x, (x.shape[-1],), *parameters),
    "group_norm": lambda x, *parameters, num_groups: F.group_norm(x, num_groups, *parameters),
    "batch_norm": lambda x, *parameters: F.batch_norm(x, None, None, *parameters, training=True),
    "embedding": lambda weight, places: F.embedding(torch.tensor(places), weight),
    "cross_entropy": lambda x, labels: F.cross_entropy(x, torch.tensor(labels)),
    "nll_loss": lambda x, labels: F.nll_loss(x, torch.tensor(labels)),
}

REFUSALS = {
    FREED: "Trying to backward through the graph a second time",
    NO_GRAD: "does not require grad and does not have a grad_fn",
    NOT_SCALAR: "grad can be implicitly created only for scalar outputs",
    WRONG_SHAPE: "Mismatch in shape",
    CHANGED: "has been modified by an inplace operation",
}


def reason_of(error: RuntimeError) -> str:
    for reason, text in REFUSALS.items():
        if text in str(error):
            return reason
    raise error


def tensor(value: Any, shape: Sequence[int] | None = None) -> T:
    array = np.asarray(value, np.float64)
    return torch.tensor(array if shape is None else array.reshape(shape))


class Eager:
    """Plays a script in eager mode: each forward makes all tensors but the variables anew."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._variables = {i: self._leaf(leaf) for i, leaf in enumerate(recipe.leaves) if leaf.kind == "variable"}
        self._tapes: dict[int, list[T]] = {}
        self._hooks: dict[int, Hook] = {}
        self._retained: list[int] = []
        self._made: list[list[T]] = []  # the tensors of every tape, by number
        self._current: list[T] = []  # those of the tape whose backward runs, which hooks read
        self._registered: dict[int, Any] = {}
        self._notes: Notes = []

    @staticmethod
    def _leaf(leaf: Leaf, value: Any = None) -> T:
        made = tensor(leaf.value if value is None else value, leaf.shape)
        return made.requires_grad_(leaf.requires_grad)

    def hook(self, action: Hook) -> None:
        self._hooks[action.handle] = action
        if action.tensor in self._variables:
            self._registered[action.handle] = self._register(action, self._variables[action.tensor])

    def remove(self, action: Remove) -> None:
        del self._hooks[action.handle]
        if action.handle in self._registered:
            self._registered.pop(action.handle).remove()

    def _register(self, action: Hook, x: T) -> Any:
        def hook(grad: T) -> T | None:
            if action.noted:
                self._notes.append((action.handle, grad.detach().numpy().copy()))
            if action.kind == "times":
                assert action.other is not None
                return grad * self._current[action.other].detach()
            number = action.number
            return {
                "scale": lambda: grad * number,
                "shift": lambda: grad + number,
                "clamp": lambda: grad.clamp(-number, number),
                "look": lambda: None,
            }[action.kind]()

        return x.register_hook(hook)

    def retain(self, action: Retain) -> None:
        self._retained.append(action.tensor)

    def forward(self, action: Forward) -> None:
        fed = iter(action.feeds)
        leaves = []
        for i, leaf in enumerate(self._recipe.leaves):
            value = next(fed) if leaf.kind == "fed" else None
            leaves.append(self._variables[i] if leaf.kind == "variable" else self._leaf(leaf, value))
        made = self._recipe.tensors(leaves, FUNCTIONS, torch.no_grad)
        for hook in self._hooks.values():
            if hook.tensor not in self._variables:
                self._register(hook, made[hook.tensor])
        for i in self._retained:
            made[i].retain_grad()
        self._tapes[action.tape] = made
        self._made.append(made)

    def backward(self, action: Backward) -> Notes:
        self._notes = []
        made = self._current = self._tapes[action.tape]
        grads = None
        if action.grads is not None:
            grads = [None if g is None else tensor(g) for g in action.grads]
        try:
            torch.autograd.backward([made[i] for i in action.outputs], grads, retain_graph=action.retain_graph)
        except RuntimeError as error:
            raise Refused(reason_of(error)) from error
        return self._notes

    def value(self, action: Value) -> Array:
        return np.array(self._tapes[action.tape][action.output].detach().numpy())

    def gradients(self, action: Gradients) -> list[Array | None]:
        return [self._gradient(i) for i in action.tensors]

    def _gradient(self, i: int) -> Array | None:
        made = [self._variables[i]] if i in self._variables else [tensors[i] for tensors in self._made]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a tensor that is no leaf and retains nothing it is None
            there = [x.grad.numpy() for x in made if x.grad is not None]
        return np.sum(there, axis=0) if there else None

    def zero(self, action: Zero) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in [*self._variables.values(), *(x for tensors in self._made for x in tensors)]:
                if x.grad is not None:
                    x.grad = None

    def assign(self, action: Assign) -> None:
        with torch.no_grad():
            x = self._variables[action.variable]
            x.copy_(tensor(action.value, x.shape))


def answers(recipe: Recipe, actions: Sequence[Action]) -> list[Any]:
    """PyTorch's answers. What it refuses is left out when the script goes on: it is played again from the start."""
    player, done, result = Eager(recipe), [], []
    for action in actions:
        answer = perform(player, action)
        result.append(answer)
        if isinstance(action, Backward) and answer[0] == "refused":
            player = Eager(recipe)
            for earlier in done:
                perform(player, earlier)
        else:
            done.append(action)
    return result
