"""Recurrent cells: what a turn takes beside its products, what unrolled steps share; values as the interpreter says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array

STEPS, BATCH, INPUTS, UNITS = 8, 6, 16, 24


def lstm(x: Tensor) -> Tensor:
    return sg.nn.LSTM(INPUTS, UNITS)(x)[0]


def gru(x: Tensor) -> Tensor:
    return sg.nn.GRU(INPUTS, UNITS, bidirectional=True)(x)[0]


def _cell(w: Tensor, u: Tensor, b: Tensor) -> Callable[[Any, Tensor], tuple[Any, Tensor]]:
    def turn(state: Any, row: Tensor) -> tuple[Any, Tensor]:
        h, c = state
        i, f, g, o = sg.split(row @ sg.transpose(w) + b + h @ sg.transpose(u), 4, axis=-1)
        c = sg.nn.sigmoid(f) * c + sg.nn.sigmoid(i) * sg.tanh(g)
        h = sg.nn.sigmoid(o) * sg.tanh(c)
        return (h, c), h

    return turn


def _weights() -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(1)
    shapes = ((4 * UNITS, INPUTS), (4 * UNITS, UNITS), (4 * UNITS,))
    w, u, b = (sg.Variable((rng.normal(size=shape) * 0.2).astype(np.float32)) for shape in shapes)
    return w, u, b


def written(x: Tensor) -> Tensor:
    zeros = sg.zeros((BATCH, UNITS))
    return sg.scan(_cell(*_weights()), (zeros, zeros), x)[1]


def unrolled(x: Tensor) -> Tensor:
    turn, outputs = _cell(*_weights()), []
    state: Any = (sg.zeros((BATCH, UNITS)),) * 2
    for step in range(STEPS):
        state, h = turn(state, x[step])
        outputs.append(h)
    return sg.stack(outputs)


NETS = {f.__name__: f for f in (lstm, gru, written, unrolled)}


class Net:
    """A net with the loss of its results and a step of training."""

    def __init__(self, name: str) -> None:
        with sg.Graph() as self.graph:
            self.x = sg.placeholder((STEPS, BATCH, INPUTS))
            self.y = NETS[name](self.x)
            self.loss = sg.mean(sg.square(self.y - 0.3))
            self.train = sg.optim.SGD(lr=0.5).minimize(self.loss)
        self.batch = np.random.default_rng(2).normal(size=self.x.shape).astype(np.float32)

    def trained(self, threads: int = 1) -> list[Array]:
        """The losses of some steps, and what the net gives after them."""
        session = sg.Session(self.graph, num_threads=threads, seed=0)
        train = session.compile([self.loss, self.train], [self.x])
        losses = [train(self.batch)[0] for _ in range(4)]
        return [*losses, session.run(self.y, {self.x: self.batch})]


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("name", list(NETS))
def test_training_gives_what_the_interpreter_gives(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(name)
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    got, again = net.trained(), net.trained(threads=2)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    want = net.trained()
    for a, b, expected in zip(got, again, want, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_what_is_added_to_the_product_of_a_turn_is_no_pass_of_its_own(name: str) -> None:
    net = Net(name)
    _, *turns = sg.Session(net.graph).compile(net.y, net.x).text("kernels").split(" turns")
    assert turns
    assert all(turn.count(": contraction dot(") == 1 for turn in turns)


def _kernels(exe: sg.Executable, family: str) -> list[str]:
    return [line for line in exe.text("kernels").splitlines() if f": {family} " in line.partition("(")[0]]


def test_unrolled_steps_pack_each_weight_once() -> None:
    net = Net("unrolled")
    session = sg.Session(net.graph)
    for exe in (session.compile(net.y, net.x), session.compile([net.loss, net.train], net.x)):
        packs = _kernels(exe, "pack")
        assert len(packs) == len({line.split("(")[1].split(",")[0] for line in packs})


def test_the_gradient_of_a_weight_of_unrolled_steps_is_one_product() -> None:
    net = Net("unrolled")
    session = sg.Session(net.graph)
    forward = len(_kernels(session.compile(net.loss, net.x), "contraction"))
    training = len(_kernels(session.compile([net.loss, net.train], net.x), "contraction"))
    assert training - forward == STEPS - 1 + 2  # back to each state but the first, and for w and u
