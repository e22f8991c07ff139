"""``exe.profile``: each kernel's time, on a copy of the session's state."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.runtime.running.native import NativeRunner


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")


def training(size: int = 96) -> tuple[sg.Session, sg.Executable, sg.Tensor, list[np.ndarray]]:
    x, t = sg.placeholder((32, size)), sg.placeholder((32,), sg.int64)
    w = sg.Variable(np.random.default_rng(0).normal(size=(size, 10)).astype(np.float32), name="w")
    noise = sg.random.uniform((32, size))
    loss = sg.nn.cross_entropy((x + noise) @ w, t)
    train = sg.optim.SGD(lr=0.1, momentum=0.9).minimize(loss)
    sess = sg.Session(sg.get_default_graph(), num_threads=1)
    feeds = [np.ones((32, size), np.float32), np.arange(32) % 10]
    return sess, sess.compile([loss, train], [x, t]), w, feeds


def test_every_kernel_has_its_time_cost_and_line(g: sg.Graph) -> None:
    _, step, _, feeds = training()
    profile = step.profile(*feeds)
    costs = step.cost.kernels
    assert [(k.name, k.flops, k.bytes, k.source) for k in profile.kernels] == [
        (c.name, c.flops, c.bytes, c.source) for c in costs
    ]
    assert all(k.seconds >= 0 for k in profile.kernels)
    assert all(k.floor > 0 for k in profile.kernels if k.flops or k.bytes)
    assert all(k.fraction == pytest.approx(k.floor / k.seconds) for k in profile.kernels if k.seconds)
    assert profile.seconds > 0
    product = max(profile.kernels, key=lambda k: k.flops)
    assert product.gflops == pytest.approx(product.flops / product.seconds / 1e9)
    assert product.gbytes == pytest.approx(product.bytes / product.seconds / 1e9)
    text = str(profile)
    assert all(k.name in text for k in profile.kernels)
    assert f"{profile.calls} calls" in text
    assert "cross_entropy" in text


def test_the_time_of_a_kernel_is_that_between_two_readings_of_the_clock(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = itertools.count(1000, 1000)
    monkeypatch.setattr(NativeRunner, "ticks", lambda self: next(begins) + np.cumsum([0, 100, 700]))
    x = sg.placeholder((64, 64))
    exe = sg.Session(g, num_threads=1).compile([x @ x, sg.sum(x)], [x])
    first, second = exe.profile(np.ones((64, 64), np.float32)).kernels
    assert second.seconds == pytest.approx(7 * first.seconds)


def test_nothing_of_the_session_changes(g: sg.Graph) -> None:
    sess, step, w, feeds = training()
    step(*feeds)
    before, compiled = sess.get(w), sess.compile_count
    step.profile(*feeds)
    np.testing.assert_array_equal(sess.get(w), before)
    assert sess.compile_count == compiled
    other = sg.Session(g, num_threads=1)
    again = other.compile(step.fetches, list(step.feeds))
    again(*feeds)
    np.testing.assert_array_equal(step(*feeds)[0], again(*feeds)[0])  # random numbers go on as without it


def test_accumulated_gradients_are_read_and_kept(g: sg.Graph) -> None:
    w = sg.Variable(np.ones(3, np.float32), name="w")
    loss = sg.sum(w * w)
    opt = sg.optim.SGD(lr=0.1)
    step_op = opt.step([w])
    sess = sg.Session(g)
    with sess.forward(loss) as tape:
        tape.backward(loss)
    step = sess.compile(step_op)
    assert step.profile().kernels
    np.testing.assert_array_equal(sess.grad(w), np.full(3, 2, np.float32))
    np.testing.assert_array_equal(sess.get(w), np.ones(3, np.float32))


def test_a_trace_for_chrome(g: sg.Graph, tmp_path: Path) -> None:
    _, step, _, feeds = training()
    profile = step.profile(*feeds)
    profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert [event["name"] for event in events] == [k.name for k in profile.kernels]
    ends = [event["ts"] + event["dur"] for event in events]
    assert [event["ts"] for event in events] == pytest.approx([0.0, *ends[:-1]])
    assert sum(event["dur"] for event in events) == pytest.approx(profile.seconds * 1e6)
    assert {event["ph"] for event in events} == {"X"}


def test_wrong_feeds_and_the_reference_backend_are_refused(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sg.placeholder((3,))
    exe = sg.Session(g).compile(x * 2, [x])
    with pytest.raises(sg.FeedError, match="expected 1 arrays"):
        exe.profile()
    with pytest.raises(sg.FeedError):
        exe.profile(np.ones((4,), np.float32))
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with pytest.raises(sg.StaticGradError, match="no kernels"):
        exe.profile(np.ones((3,), np.float32))
