"""What users write most, with the types that a strict type checker has to find; it runs, too.

``tests/check_types.py`` checks this file together with the package: every ``assert_type`` must hold, and every ignored
error must be one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, assert_type

import numpy as np

import staticgrad as sg

Array = np.ndarray[Any, np.dtype[Any]]


def sources_and_operators() -> None:
    x = sg.placeholder((4, 3), sg.float32, name="x")
    w = sg.Variable(np.zeros((3, 2), np.float32), name="w")
    assert_type(x, sg.Tensor)
    assert_type(w, sg.Tensor)
    assert_type(x @ w + 1.0, sg.Tensor)
    assert_type(2 * x[:, 0] - x.mean(axis=1), sg.Tensor)
    assert_type(np.eye(4, dtype=np.float32) @ x, sg.Tensor)
    assert_type(np.float32(2.0) * x - np.ones(3, np.float32), sg.Tensor)
    assert_type(x > 0, sg.Tensor)
    assert_type(sg.sum(sg.exp(x) * 2, axis=-1), sg.Tensor)
    assert_type(sg.topk(x, 2), tuple[sg.Tensor, sg.Tensor])
    assert_type(sg.unstack(x), tuple[sg.Tensor, ...])
    assert_type(sg.assign(w, w * 2), sg.Node)
    (sorted_x,) = sg.py_call(np.sort, [x], [(sg.float32, (4, 3))])
    assert_type(sorted_x, sg.Tensor)
    assert_type(sg.py_call(print, [x], []), sg.Node)
    assert_type(x.dtype, np.dtype[Any])
    assert_type(x.graph, sg.Graph)
    assert_type(x.name, str)


class Block(sg.nn.Module):
    """A module of the user's own: a call has the types of its ``forward``."""

    def __init__(self, features: int) -> None:
        self.inner = sg.nn.Linear(features, features)
        self.norm = sg.nn.BatchNorm1d(features)
        self.scale = sg.Variable(0.5)

    def forward(self, x: sg.Tensor, residual: bool = True) -> tuple[sg.Tensor, sg.Tensor]:
        y = sg.nn.relu(self.norm(self.inner(x)))
        return (x if residual else 0) + y * self.scale, y


class Other(sg.nn.Module):
    """A module whose ``forward`` takes and gives no tensors."""

    def forward(self, names: list[str], *, count: int = 2) -> dict[str, int]:
        return dict.fromkeys(names, count)


class Called(sg.nn.Module):
    """A module with a ``__call__`` of its own."""

    def __call__(self, x: float) -> float:
        return x * 2


class Wider(sg.nn.Linear):
    """A layer of the package with more arguments."""

    def forward(self, input: Any, scale: float = 1.0) -> sg.Tensor:
        return super().forward(input) * scale


def layers() -> None:
    x = sg.zeros((8, 4))
    assert_type(sg.nn.Linear(4, 3)(x), sg.Tensor)
    assert_type(sg.nn.Sequential(sg.nn.Linear(4, 3), sg.nn.ReLU())(x), sg.Tensor)
    assert_type(sg.nn.Dropout(0.5)(sg.nn.LayerNorm(4)(x)), sg.Tensor)
    assert_type(sg.nn.Embedding(5, 2)([1, 2]), sg.Tensor)
    assert_type(sg.nn.Identity()(x), sg.Tensor)
    image = sg.zeros((2, 3, 8, 8))
    assert_type(sg.nn.MaxPool2d(2)(sg.nn.Conv2d(3, 4, 3)(image)), sg.Tensor)
    places, found = sg.nn.MaxPool2d(2, return_indices=True)(image)
    assert_type((places, found), tuple[sg.Tensor, sg.Tensor])
    rows = sg.zeros((5, 2, 4))
    assert_type(sg.nn.LSTM(4, 3)(rows), tuple[sg.Tensor, tuple[sg.Tensor, sg.Tensor]])
    assert_type(sg.nn.GRU(4, 3)(rows), tuple[sg.Tensor, sg.Tensor])
    assert_type(sg.nn.MultiheadAttention(4, 2)(rows, rows, rows), tuple[sg.Tensor, sg.Tensor | None])
    assert_type(sg.nn.Linear(4, 3).weight, sg.Tensor)


def modules() -> None:
    x = sg.zeros((8, 4))
    block = Block(4)
    assert_type(block(x), tuple[sg.Tensor, sg.Tensor])
    assert_type(block(x, residual=False), tuple[sg.Tensor, sg.Tensor])
    assert_type(Other()(["a"], count=3), dict[str, int])
    assert_type(Called()(1.5), float)
    assert_type(Wider(4, 3)(x, scale=2.0), sg.Tensor)
    some: sg.nn.Module = block
    assert_type(some(x), Any)
    for layer in sg.nn.ModuleList([sg.nn.Linear(4, 4)]):
        x = layer(x)
    assert_type(block.parameters(), list[sg.Tensor])
    assert_type(block.eval(), Block)
    net: Callable[[sg.Tensor], sg.Tensor] = sg.nn.Tanh()
    assert_type(net(x), sg.Tensor)
    if x.name == "":  # what follows is for the type checker alone
        block("x")  # type: ignore[arg-type]
        block(x, colour="red")  # type: ignore[call-arg]


def gradients() -> None:
    w = sg.Variable([1.0, 2.0])
    loss = sg.sum(w**2)
    assert_type(sg.gradients(loss, [w]), list[sg.Tensor | None])
    assert_type(sg.gradients(loss, w, None, "none"), list[sg.Tensor | None])
    (slope,) = sg.gradients(loss, [w], unconnected_gradients="error")
    assert_type(slope, sg.Tensor)
    assert_type(sg.gradients(loss, [w], None, "zero"), list[sg.Tensor])
    assert_type(sg.jvp([loss], [w], [slope]), list[sg.Tensor])
    assert_type(sg.jacobian(slope, w), sg.Tensor)
    assert_type(sg.jacobian(slope, [w]), list[sg.Tensor])
    assert_type(sg.hessian(loss, w), sg.Tensor)


def optimizers() -> None:
    w = sg.Variable([1.0, 2.0])
    loss = sg.sum(w**2)
    opt = sg.optim.AdamW(lr=sg.optim.schedules.cosine(1e-3, steps=10), groups=[{"params": [w], "weight_decay": 0.0}])
    assert_type(opt.minimize(loss), sg.Node)
    assert_type(opt.lr, sg.Tensor)
    slopes = sg.gradients(loss, [w], unconnected_gradients="zero")
    clipped = sg.optim.clip_by_global_norm(slopes, 1.0)
    assert_type(clipped, list[sg.Tensor])
    assert_type(sg.optim.clip_by_global_norm(sg.gradients(loss, [w]), 1.0), list[sg.Tensor | None])
    assert_type(sg.optim.SGD(0.1, momentum=0.9).apply_gradients([(clipped[0], w)]), sg.Node)
    ema = sg.optim.EMA()
    assert_type(ema.update([w]), sg.Node)
    assert_type(ema[w], sg.Tensor)


def sessions() -> None:
    x = sg.placeholder((2,), name="x")
    w = sg.Variable([1.0, 2.0])
    loss = sg.sum(w * x)
    train = sg.optim.Adam(lr=1e-3).minimize(loss)
    feeds = {x: np.ones(2, np.float32)}
    with sg.Session(num_threads=1) as sess:
        assert_type(sess.run(loss, feeds), Array)
        assert_type(sess.run([loss, w], feeds), list[Array])
        assert_type(sess.run({"loss": loss, "w": w}, feeds), dict[str, Array])
        assert_type(sess.run([loss, train], feeds), Any)
        assert_type(sess.run((loss, {"w": w}), feeds), Any)
        sess.run(train, feeds)
        assert_type(float(sess.run(loss, {x: [1.0, 2.0]})), float)
        assert_type(sess.get(w), Array)
        step = sess.compile([loss, train], [x])
        assert_type(step, sg.Executable)
        assert_type(step(feeds[x]), Any)
        assert_type(step.memory.arena_bytes, int)
        with sess.forward([loss], feeds) as tape:
            assert_type(tape, sg.Tape)
            assert_type(tape[loss], Array)
            tape.backward(loss)
        assert_type(sess.grad(w), Array | None)


class State(NamedTuple):
    position: sg.Tensor
    speed: sg.Tensor


def control() -> None:
    xs = sg.placeholder((5, 2), name="xs")

    def turn(carry: sg.Tensor, x: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        return carry + x, sg.sum(x)

    def leap(state: State, _: None) -> tuple[State, None]:
        return State(state.position + state.speed, state.speed), None

    assert_type(sg.scan(turn, np.zeros(2, np.float32), xs), tuple[sg.Tensor, sg.Tensor])
    last, rest = sg.scan(leap, State(sg.zeros(2), sg.ones(2)), length=3)
    assert_type(last, State)
    assert_type(last.position, sg.Tensor)
    assert rest is None
    total, totals = sg.scan(lambda carry, x: (carry + x, carry), sg.zeros(2), xs)
    assert (total.shape, totals.shape) == ((2,), (5, 2))

    def row_of(x: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        return x * 2, sg.sum(x)

    assert_type(sg.map(row_of, xs), tuple[sg.Tensor, sg.Tensor])
    assert_type(sg.vmap(row_of)(xs), tuple[sg.Tensor, sg.Tensor])

    def doubled(x: sg.Tensor) -> sg.Tensor:
        return x * 2

    assert_type(sg.checkpoint(doubled, xs), sg.Tensor)
    assert_type(sg.while_loop(lambda x: x < 10.0, doubled, sg.constant(1.0)), sg.Tensor)
    x = sg.sum(xs)
    assert_type(sg.cond(x > 0, lambda: sg.sqrt(x), lambda: -x), sg.Tensor)
    assert_type(sg.cond(x > 0, lambda: x, lambda: 0.0), sg.Tensor)
    assert_type(sg.cond(x > 0, lambda: (x, -x), lambda: (-x, x)), tuple[sg.Tensor, sg.Tensor])

    @sg.custom_gradient
    def straight(x: sg.Tensor) -> tuple[sg.Tensor, Callable[[sg.Tensor], sg.Tensor]]:
        return sg.round(x), lambda ct: ct

    assert_type(straight(x), sg.Tensor)


PROGRAMS = (sources_and_operators, layers, modules, gradients, optimizers, sessions, control)
