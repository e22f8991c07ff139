"""What keeping costs, in bytes: planned, reported, and found in the memory of the process."""

from __future__ import annotations

import gc
import re
import runpy
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT
from support import nets
from support.nets import deep

import staticgrad as sg
from staticgrad.base.addresses import data_address
from staticgrad.runtime.running.frames import CallFrame
from staticgrad.runtime.running.native import NativeRunner
from staticgrad.runtime.session.executable import Executable
from staticgrad.runtime.session.tape import Tape

EXAMPLES = ROOT / "examples"
SLACK = 1 << 16  # bytes behind the arena in which nothing may change

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture
def g() -> Any:
    graph = sg.Graph()
    with graph:
        yield graph


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in ("MEMORY", "BACKEND"):
        monkeypatch.delenv(f"STATICGRAD_{switch}", raising=False)


# -- what is touched is what is planned -------------------------------------------------------------------------------


def touched(exe: Executable, arrays: list[Array]) -> int:
    """The end of what a run writes in its arena: bytes that change under two patterns, and behind which none does."""
    assert exe._programs.latest is not None
    runner = exe._programs.latest.runner
    assert isinstance(runner, NativeRunner)
    changed = np.zeros(0, bool)
    for pattern in (0x5A, 0xA5):
        frame = runner.frames.new()
        larger = CallFrame(0, runner.program.arena_bytes + SLACK)
        frame.arena, frame.arena_address = larger.arena, data_address(larger.arena)
        frame.arena.fill(pattern)
        runner.frames.clear()
        runner.frames.append(frame)
        exe._calls.run(*arrays)
        different = frame.arena != pattern
        changed = different if not changed.size else changed | different
    return int(np.flatnonzero(changed)[-1]) + 1 if changed.any() else 0


@pytest.mark.parametrize("budget", [None, 0.6])
def test_the_highest_byte_that_a_run_touches_is_the_end_of_the_plan(g: sg.Graph, budget: float | None) -> None:
    net = nets.training(lambda: nets.mlp(64, *[128] * 9, 10), (128, 64), lambda: sg.optim.Adam(lr=0.01))
    sess = sg.Session(g, num_threads=1)
    exe = sess.compile([net.loss, net.train], list(net.feeds), memory_budget=budget)
    end = touched(exe, list(net.feeds.values()))
    planned = exe.memory.arena_bytes
    assert end <= planned
    last = [b for b in exe.memory.buffers if b.offset + b.nbytes > planned - 64]
    assert end > max(b.offset for b in last)  # rows of a kernel's scratch may have room at their ends
    if not any("scratch" in b.reason for b in last):
        assert planned - end < 64


PEAK = """
import sys
import numpy as np
import staticgrad as sg

def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key + ":"))

graph = sg.Graph()
with graph:
    x = sg.placeholder((4096, 1024))
    y = x
    weights = [sg.Variable(np.full((1024, 1024), 1e-3, np.float32)) for _ in range(36)]
    for w in weights:
        y = sg.tanh(y @ w)
    loss = sg.mean(y * y)
    train = sg.optim.SGD(lr=0.1).minimize(loss)
sess = sg.Session(graph, num_threads=1)
exe = sess.compile([loss, train], [x])
for w in weights:
    sess.store.array(w.op.attrs.key)
batch = np.zeros((4096, 1024), np.float32)
batch.fill(0.5)
before = status("VmRSS")
exe(batch)
print(before, status("VmHWM"), exe.memory.arena_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the kernel's report on the process")
def test_the_memory_of_a_process_is_what_was_predicted(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", PEAK], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, peak, arena = map(int, run.stdout.split())
    assert arena > 500e6
    assert abs(peak - before - arena) < 0.1 * arena


# -- two entries: retaining and consuming -----------------------------------------------------------------------------


def test_the_table_of_two_heads(capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(str(EXAMPLES / "two_heads.py"))
    net = module["network"]()
    together, retained, declared = module["measure"](net)
    assert together.peak < retained.peak
    assert declared.peak <= retained.peak
    assert together.saved == retained.saved == declared.saved == retained.after_first
    assert declared.after_first < retained.after_first
    assert together.after_first == 0
    for row in (retained, declared):
        for expected, actual in zip(together.gradients, row.gradients, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
    module["main"]()
    rows = re.findall(r"^(\S.*?) {2,}([\d,]+) +([\d,]+) +([\d,]+)$", capsys.readouterr().out, re.MULTILINE)
    assert [row[0] for row in rows] == ["both in one backward", "retain, then consume", "declared order"]


def test_micro_batches_learn(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "micro_batches.py"))["main"]()
    losses = [float(text) for text in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert losses[-1] < 0.7 * losses[0]


def squared(width: int = 64, depth: int = 5) -> tuple[sg.Tensor, sg.Tensor, list[sg.Tensor]]:
    """A deep net whose last values are squared and summed."""
    x, y, between = deep(width, depth)
    return x, sg.sum(y * y), between


def test_retaining_costs_what_is_reported(g: sg.Graph) -> None:
    x, y, _ = squared()
    sess = sg.Session(g)
    feeds = {x: np.ones((64, 64), np.float32)}
    tape = sess.forward(y, feeds)
    price = tape.memory.retain_bytes
    assert price == tape.memory.saved_bytes > 0
    tape.backward(y, retain_graph=True)
    assert tape.memory.live_bytes == price
    tape.backward(y)
    assert tape.memory.live_bytes == 0
    gradient = sess.grad(x)
    sess.zero_grad()
    for _ in range(2):
        sess.forward(y, feeds).backward(y)
    np.testing.assert_array_equal(sess.grad(x), gradient)


def backward_texts(tape: Tape) -> list[str]:
    runners = tape._programs.runners.values()
    return [runner.program.kernels_text for runner in runners if isinstance(runner, NativeRunner)]


def backward_bytes(tape: Tape) -> list[int]:
    runners = tape._programs.runners.values()
    return [runner.program.arena_bytes for runner in runners if isinstance(runner, NativeRunner)]


def test_a_retained_gradient_costs_its_tensor_and_a_hook_nothing(g: sg.Graph) -> None:
    x, y, between = squared()
    feeds = {x: np.ones((64, 64), np.float32)}

    def compiled() -> tuple[int, set[str]]:
        sess = sg.Session(g)
        tape = sess.forward(y, feeds)
        tape.backward(y, retain_graph=True)
        grads = {name for name in (f"{v.op.name}:{v.index}" for v in between) if sess.store.has_gradient(name)}
        (arena,) = backward_bytes(tape)
        return arena, grads

    plain, _ = compiled()
    handle = between[2].register_hook(lambda grad: grad * 2)
    assert compiled()[0] == plain  # a symbolic hook is fused
    handle.remove()
    between[2].retain_grad()
    arena, grads = compiled()
    assert grads == {f"{between[2].op.name}:0"}
    assert arena <= plain  # the gradient lies in memory of its own, which has the tensor's size
    sess = sg.Session(g)
    sess.forward(y, feeds).backward(y)
    kept = sess.grad(between[2])
    assert kept is not None
    assert kept.nbytes == 64 * 64 * 4


def test_a_hook_that_prints_takes_no_memory(g: sg.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    x, y, _ = squared()
    feeds = {x: np.ones((64, 64), np.float32)}
    arenas = []
    for printing in (False, True):
        if printing:
            y.register_hook(lambda grad: sg.print(grad, "grad"))
        sess = sg.Session(g)
        tape = sess.forward(y, feeds)
        tape.backward(y, grad=np.float32(1), retain_graph=True)
        arenas += backward_bytes(tape)
    assert "grad" in capsys.readouterr().out
    assert arenas[1] - arenas[0] <= 64  # a pointer for the call and the printed number


def test_accumulation_is_part_of_the_kernel_that_makes_the_gradient(g: sg.Graph) -> None:
    x, y, _ = squared(depth=3)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: np.ones((64, 64), np.float32)})
    tape.backward(y)
    (text,) = backward_texts(tape)
    heads = [line for line in text.split("\n") if re.match(r"\d+: ", line)]
    adding = [line for line in heads if "grad:" in line]
    assert len(adding) == 4  # one kernel for each of three weights and x
    assert all(re.match(r"\d+: contraction", line) for line in adding)


def test_steps_from_accumulated_gradients(g: sg.Graph) -> None:
    x = sg.placeholder((8, 4))
    w = sg.Variable(np.ones((4, 2), np.float32))
    y = sg.mean((x @ w) ** 2)
    step = sg.optim.SGD(lr=0.1).step()
    sess = sg.Session(g)
    rng = np.random.default_rng(0)
    total = np.zeros((4, 2), np.float32)
    for _ in range(3):
        batch = rng.normal(size=(8, 4)).astype(np.float32)
        with sess.forward(y, {x: batch}) as tape:
            tape.backward(y)
        total += 2 / 16 * batch.T @ (batch @ np.ones((4, 2), np.float32))
    sess.run(step)
    np.testing.assert_allclose(sess.get(w), 1 - 0.1 * total, rtol=1e-5)


# -- declared orders --------------------------------------------------------------------------------------------------


def test_a_declared_order_gives_back_at_the_last_read(g: sg.Graph) -> None:
    x, v = (sg.placeholder((100,), requires_grad=True) for _ in range(2))
    trunk = sg.exp(x)
    a, b, c = sg.sum(sg.sin(trunk)), sg.sum(trunk * v), sg.sum(sg.cos(v) * 2)
    feeds = {x: np.linspace(0, 1, 100, dtype=np.float32), v: np.ones(100, np.float32)}
    sess = sg.Session(g)
    tape = sess.forward([a, b, c], feeds, backward_order=[a, [b], c])
    live = [tape.memory.live_bytes]
    for y in (a, b, c):
        with pytest.raises(sg.GradientError, match="order"):
            tape.backward([c, a])
        tape.backward(y)
        live.append(tape.memory.live_bytes)
    assert live == [800, 800, 400, 0]  # exp(x) goes with b, v with c
    expected = sg.Session(g)
    for y in (a, b, c):
        expected.forward([a, b, c], feeds).backward(y)
    for leaf in (x, v):
        np.testing.assert_allclose(sess.grad(leaf), expected.grad(leaf), rtol=1e-6)


def test_several_outputs_in_one_traversal_count_shared_ops_once(g: sg.Graph) -> None:
    x = sg.placeholder((4,), requires_grad=True)
    h = sg.exp(x)
    calls: list[int] = []
    h.register_hook(lambda grad: calls.append(1))
    a, b = sg.sum(h * h), sg.sum(sg.sin(h))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: np.zeros(4, np.float32)})
    calls.clear()
    tape.backward([a, b], [np.float32(2), None])
    assert len(calls) == 1
    np.testing.assert_allclose(sess.grad(x), np.full(4, 4 + np.cos(1)), rtol=1e-6)


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_the_next_tape_takes_the_block_of_the_last(g: sg.Graph) -> None:
    x, y, _ = squared()
    sess = sg.Session(g)
    feeds = {x: np.ones((64, 64), np.float32)}
    for _ in range(2):  # after the first the size of a block is known
        with sess.forward(y, feeds) as tape:
            tape.backward(y)
    addresses = set()
    for _ in range(4):
        tape = sess.forward(y, feeds)
        addresses.add(data_address(tape._context.block.memory))
        tape.backward(y)
    assert len(addresses) == 1
    first, second = sess.forward(y, feeds), sess.forward(y, feeds)
    assert data_address(first._context.block.memory) != data_address(second._context.block.memory)


def test_a_forgotten_tape_gives_its_block_back(g: sg.Graph) -> None:
    x, y, _ = squared()
    sess = sg.Session(g)
    tape = sess.forward(y, {x: np.ones((64, 64), np.float32)})
    programs, gone = tape._programs, weakref.ref(tape)
    del tape
    gc.collect()
    assert gone() is None
    assert len(programs.blocks.idle) == 1
    block = weakref.ref(programs.blocks.idle[0])
    sess.close()
    del programs
    gc.collect()
    assert block() is None


def test_values_of_a_consumed_tape_are_right_whatever_lies_in_its_block(g: sg.Graph) -> None:
    """Consuming works among kept values; tapes side by side don't see each other's."""
    x, y, between = squared(depth=6)
    z = sg.mean(between[2])
    sess, other = sg.Session(g), sg.Session(g)
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(64, 64)).astype(np.float32) for _ in range(3)]
    tapes = [sess.forward([y, z], {x: batch}, backward_order=[z, y]) for batch in batches]
    for tape in tapes:
        tape.backward(z)
    for tape in reversed(tapes):
        tape.backward(y)
    for batch in batches:
        for output in (z, y):
            tape = other.forward([y, z], {x: batch})
            tape.backward(output, retain_graph=True)
    np.testing.assert_allclose(sess.grad(x), other.grad(x), rtol=1e-5, atol=1e-6)
