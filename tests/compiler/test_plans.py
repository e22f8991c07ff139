"""Steps and plans of programs as text, loops included: which kernels they have, how each is run, where buffers lie.

The texts are of one target, which need not be this machine's, since nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import Precision
from staticgrad.compiler.emit.families import plan_kernel
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.machine.target import TARGETS, named
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Tensor

Declared = tuple[Sequence[Any], Sequence[Tensor]]


def regression() -> Declared:
    x, t = sg.placeholder((100, 8)), sg.placeholder((100,))
    loss = sg.nn.mse_loss(sg.nn.Linear(8, 1)(x).squeeze(1), t)
    return [loss, sg.optim.SGD(lr=0.1).minimize(loss)], [x, t]


def mlp_training() -> Declared:
    x, labels = sg.placeholder((64, 784)), sg.placeholder((64,), sg.int64)
    net = sg.nn.Sequential(sg.nn.Linear(784, 128), sg.nn.ReLU(), sg.nn.Linear(128, 10))
    loss = sg.nn.cross_entropy(net(x), labels)
    return [loss, sg.optim.Adam(lr=1e-3).minimize(loss)], [x, labels]


def convolutions() -> Declared:
    x, labels = sg.placeholder((16, 1, 28, 28)), sg.placeholder((16,), sg.int64)
    net = sg.nn.Sequential(
        sg.nn.Conv2d(1, 8, 3), sg.nn.ReLU(), sg.nn.MaxPool2d(2), sg.nn.Conv2d(8, 16, 3), sg.nn.ReLU(),
        sg.nn.Flatten(), sg.nn.Linear(16 * 11 * 11, 10),
    )  # fmt: skip
    loss = sg.nn.cross_entropy(net(x), labels)
    return [loss, *sg.gradients(loss, net.parameters())], [x, labels]


def depthwise() -> Declared:
    x, w = sg.placeholder((4, 32, 24, 24)), sg.placeholder((32, 1, 3, 3))
    y = sg.nn.conv2d(x, w, padding=1, groups=32)
    return [y, *sg.gradients(sg.sum(y * y), [x, w])], [x, w]


def pointwise_convolution() -> Declared:
    x, w = sg.placeholder((4, 64, 14, 14)), sg.placeholder((128, 64, 1, 1))
    y = sg.nn.relu(sg.nn.conv2d(x, w))
    return [y, *sg.gradients(sg.sum(y * y), [x, w])], [x, w]


def attention() -> Declared:
    q, k, v = (sg.placeholder((2, 4, 64, 16)) for _ in range(3))
    y = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
    return [y, *sg.gradients(sg.sum(y), [q, k, v])], [q, k, v]


def layer_norm() -> Declared:
    x, w = sg.placeholder((512, 300)), sg.placeholder((300,))
    y = sg.nn.layer_norm(x, (300,), w)
    return [y, *sg.gradients(sg.sum(y * y), [x, w])], [x, w]


def long_sum() -> Declared:
    x = sg.placeholder((1_000_000,), sg.float64)
    return [sg.sum(x), sg.max(x), sg.mean(sg.exp(x))], [x]


def transposed() -> Declared:
    x = sg.placeholder((1000, 700))
    return [sg.sin(x.T), sg.sum(x, axis=0)], [x]


def recurrence() -> Declared:
    x, state = sg.placeholder((20, 8, 16)), sg.placeholder((8, 32))
    w, u = sg.placeholder((16, 32)), sg.placeholder((32, 32))
    last, _ = sg.scan(lambda h, row: (sg.tanh(row @ w + h @ u),) * 2, state, x)
    return [last, *sg.gradients(sg.sum(last), [w, u])], [x, state, w, u]


def newton() -> Declared:
    a = sg.placeholder((100,), sg.float64)
    root = sg.while_loop(lambda y: sg.max(sg.abs(y * y - a)) > 1e-9, lambda y: 0.5 * (y + a / y), a + 1.0, max_steps=50)
    return [root], [a]


def branches() -> Declared:
    x = sg.placeholder((50, 50))
    return [sg.cond(sg.sum(x) > 0, lambda: x @ x, lambda: sg.exp(x))], [x]


def embedding() -> Declared:
    tokens, table = sg.placeholder((32, 20), sg.int64), sg.placeholder((1000, 64))
    y = sg.sum(sg.nn.embedding(tokens, table), axis=1)
    return [y, *sg.gradients(sg.sum(y * y), [table])], [tokens, table]


def routines() -> Declared:
    x = sg.placeholder((10, 30, 30), sg.float64)
    spd = x @ x.mT + sg.constant(30.0, sg.float64) * sg.eye(30, dtype=sg.float64)
    return [sg.sort(x), sg.cumulative_sum(x, axis=1), sg.linalg.cholesky(spd), sg.linalg.solve(spd, x)], [x]


def inference() -> Declared:
    x = sg.placeholder((1, 256))
    net = sg.nn.Sequential(sg.nn.Linear(256, 256), sg.nn.GELU(), sg.nn.Linear(256, 64))
    return [net(x)], [x]


PROGRAMS: tuple[Callable[[], Declared], ...] = (
    regression, mlp_training, convolutions, depthwise, pointwise_convolution, attention, layer_norm, long_sum,
    transposed, recurrence, newton, branches, embedding, routines, inference,
)  # fmt: skip


@pytest.mark.parametrize("declare", PROGRAMS, ids=lambda declare: declare.__name__)
def test_kernels_are_run_in_this_way(declare: Callable[[], Declared], golden: Callable[[str, str], None]) -> None:
    with Graph() as graph:
        fetches, feeds = declare()
    region = cut(graph, fetches, {x: x.type for x in feeds})
    program = compile_region(region, CompileOptions(named("avx512"), workers=2, prepares=True))
    text = "\n".join(flow.text for flow in program.flows)
    golden(f"plan_{declare.__name__}.txt", re.sub(r"  # .*", "", text) + "\n")


@pytest.mark.parametrize(
    ("m", "n", "k", "taken"),
    [(1000, 5, 30, "of the transpose"), (64, 64, 64, "tiles 8x32 of 64x64 "), (64, 3, 256, "4 terms side by side")],
)
def test_the_text_of_a_product_tells_which_blockings_lost_where_that_is_asked_for(
    m: int, n: int, k: int, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Contraction(np.dtype("float32"), (), m, n, k, (k, 1), (n, 1), (n, 1))
    usual = plan_kernel(kernel, TARGETS["avx512"]).text
    monkeypatch.setenv("STATICGRAD_EXPLAIN", "1")
    text = plan_kernel(kernel, TARGETS["avx512"]).text
    first, *lost = text.removeprefix(f"{usual}\nchoice: ").split("; ")
    assert taken in first
    times = [re.fullmatch(r"tiles .* ([\d.]+) times that", each) for each in lost]
    assert lost
    assert all(found is not None and float(found[1]) >= 0.95 for found in times)  # turning has to pay


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_a_precision_reaches_every_product(precision: Precision) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((8, 8))
        image = sg.placeholder((1, 2, 8, 8))
        turned = sg.scan(lambda h, _: (h @ x, None), x, length=3)[0]
        y = sg.sum(turned) + sg.sum(sg.nn.conv2d(image, sg.ones((2, 2, 3, 3))))
    with sg.Session(g, matmul_precision=precision) as sess:
        compiled = sess.compile(y, [x, image])
    told = f"precision {precision}"
    text = compiled.text("kernels")
    kinds = [line for line in text.splitlines() if line.strip().startswith(("contraction ", "convolution "))]
    assert len(kinds) >= 2
    assert all((told in line) == (precision != "highest") for line in kinds), text
