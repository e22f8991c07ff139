"""Calls of a tape: what is refused and changes nothing, what earlier calls have spent, draws, calls from threads."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.budgets import within
from support.concurrency import in_threads
from support.declaring import Array, Log, f32, leaf

import staticgrad as sg
from staticgrad.compiler.autodiff.retention import Ledger
from staticgrad.runtime.running.kept import TapeContext

pytestmark = pytest.mark.usefixtures("backend")


# -- what is refused changes nothing ----------------------------------------------------------------------------------


def test_a_refused_backward_changes_nothing(g: sg.Graph) -> None:
    x = leaf(3)
    log = Log()
    h = x * x
    h.register_hook(log.hook("h"))
    h.retain_grad()
    a, b = sg.sum(h), sg.sum(h * h)
    w = sg.Variable(f32(1, 1, 1))
    c = sg.sum(x * w)
    sess = sg.Session(g)
    tape = sess.forward([a, b, c], {x: f32(1, 2, 3)})
    tape.backward(a)
    sess.set(w, f32(2, 2, 2))

    def state() -> tuple[Any, ...]:
        return sess.grad(x).tolist(), sess.grad(h).tolist(), sess.grad(w), tape.memory, tape[a], tape[b]

    before = state()
    assert log.take() == [("h", [1, 1, 1])]
    refused: list[tuple[Any, Any, type[Exception]]] = [
        (b, None, sg.BuffersFreedError),
        (c, None, sg.StateChangedError),
        ([a, b, c], None, sg.BuffersFreedError),
        (a, f32(1, 2), sg.GradientError),
        (x, None, sg.FetchError),
        ([], None, sg.FetchError),
    ]
    for outputs, grad, error in refused:
        with pytest.raises(error):
            tape.backward(outputs, grad=grad)
        assert state() == before
        assert log.take() == []


@pytest.mark.parametrize("change", ["set", "assign", "step", "restore"])
def test_a_saved_variable_that_changes_is_refused(g: sg.Graph, change: str, tmp_path: Path) -> None:
    x = sg.placeholder((2,))
    w, free = sg.Variable(f32(1, 2), name="w"), sg.Variable(f32(5, 6), name="free")
    y = sg.sum(w * w * x + free)
    train = sg.optim.SGD(lr=0.1).apply_gradients([(sg.ones((2,)), w)])
    write, write_free = sg.assign(w, w * 2), sg.assign(free, free * 2)
    sess = sg.Session(g)
    feeds = {x: f32(1, 1)}
    sess.save(tmp_path / "state")
    tape = sess.forward(y, feeds)
    sess.set(free, f32(0, 0))  # addition does not save it
    sess.run(write_free)
    {
        "set": lambda: sess.set(w, f32(1, 2)),
        "assign": lambda: sess.run(write),
        "step": lambda: sess.run(train),
        "restore": lambda: sess.restore(tmp_path / "state"),
    }[change]()
    with pytest.raises(sg.StateChangedError, match=r"(?s)'w'.*test_tape_calls\.py") as caught:
        tape.backward(y)
    assert isinstance(caught.value, RuntimeError)
    assert sess.grad(w) is None
    assert sess.grad(free) is None
    sess.set(w, f32(3, 3))
    tape = sess.forward(y, feeds)
    sess.set(free, f32(9, 9))
    tape.backward(y)
    assert sess.grad(w).tolist() == [6, 6]
    assert sess.grad(free).tolist() == [1, 1]


def test_a_variable_that_another_output_saved_may_change(g: sg.Graph) -> None:
    x, w = leaf(2), sg.Variable(f32(1, 2))
    a, b = sg.sum(x * w), sg.sum(sg.exp(x))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: f32(0, 0)})
    sess.set(w, f32(0, 0))
    tape.backward(b)
    assert sess.grad(x).tolist() == [1, 1]
    with pytest.raises(sg.StateChangedError):
        tape.backward(a)


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_the_gradient_of_dropout_uses_the_mask_of_its_value(g: sg.Graph) -> None:
    x = leaf(400)
    y = sg.nn.dropout(x, 0.5)
    total = sg.sum(y)
    (dx,) = sg.gradients(total, x)
    sess = sg.Session(g, seed=3)
    ones = {x: np.ones(400, np.float32)}
    value, gradient = sess.run([y, dx], ones)
    np.testing.assert_array_equal(value, gradient)
    assert set(np.unique(value)) == {0, 2}
    tapes = [sess.forward([y, total], ones) for _ in range(3)]
    sess.run(y, ones)  # draws of other runs don't matter
    for tape in reversed(tapes):
        for budget_free in (True, False):
            sess.zero_grad()
            tape.backward(total, retain_graph=budget_free)
            np.testing.assert_array_equal(sess.grad(x), tape[y])
    assert not np.array_equal(tapes[0][y], tapes[1][y])


def test_a_budget_does_not_change_what_was_drawn(g: sg.Graph) -> None:
    x = leaf(400)
    h = sg.nn.dropout(sg.exp(x), 0.5)
    total = sg.sum(h * h)
    sess = sg.Session(g, seed=3)
    tape = within(0, lambda budget: sess.forward([h, total], {x: np.zeros(400, np.float32)}, memory_budget=budget))
    tape.backward(total)
    np.testing.assert_array_equal(sess.grad(x), 4 * tape[h])


# -- histories --------------------------------------------------------------------------------------------------------


def test_a_backward_that_another_tape_has_had_looks_at_no_graph(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = leaf(3), sg.Variable(f32(1, 2, 3))
    h = sg.exp(x) * w
    a, b = sg.sum(h * h), sg.sum(sg.sin(h))
    sess = sg.Session(g)
    admitted: list[Any] = []
    admit = Ledger.admit
    monkeypatch.setattr(Ledger, "admit", lambda *args: admitted.append(args) or admit(*args))
    found = []
    for order in (None, None, [a, b, a], [a, b, a]):
        sess.zero_grad()
        tape = sess.forward([a, b], {x: f32(0, 1, 2)}, backward_order=order)
        for y, retain in ((a, True), (b, True), (a, False)):
            tape.backward(y, retain_graph=retain)
        with pytest.raises(sg.StaticGradError):
            tape.backward(b)
        found.append((sess.grad(x).tolist(), sess.grad(w).tolist(), tape.memory.live_bytes, len(admitted)))
        admitted.clear()
    assert found[0][:3] == found[1][:3]
    assert found[2][:3] == found[3][:3]
    assert [count for *_, count in found] == [4, 1, 4, 1]  # what is refused is asked about each time


def test_retaining_again_and_again_is_one_step(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(2)
    y = sg.sum(x * x)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2)})
    tape.backward(y, retain_graph=True)
    monkeypatch.setattr(Ledger, "admit", None)
    for _ in range(400):
        tape.backward(y, retain_graph=True)
    assert sess.grad(x).tolist() == [802, 1604]
    assert sess.compile_count == 2


def test_the_message_names_the_call_that_gave_the_values_back(g: sg.Graph) -> None:
    x = leaf(2)
    a, b = sg.sum(x * x), sg.sum(sg.exp(x))
    sess = sg.Session(g)
    for retained in (2, 0):
        tape = sess.forward([a, b], {x: f32(1, 2)})
        for _ in range(retained):
            tape.backward(a, retain_graph=True)
        tape.backward(b)
        tape.backward(a)
        for y, number in ((b, retained + 1), (a, retained + 2)):
            with pytest.raises(sg.BuffersFreedError, match=f"backward number {number} .of {y.name!r}"):
                tape.backward(y)


def test_a_backward_of_the_same_tape_inside_a_backward_counts_too(g: sg.Graph) -> None:
    x = leaf(2)
    a, b = sg.sum(x * x), sg.sum(sg.exp(x))
    tape: list[Any] = []

    def inside(value: Array) -> None:
        if tape:
            tape.pop().backward(b)

    a.register_hook(lambda grad: sg.py_call(inside, [grad], []) and None)
    sess = sg.Session(g)
    outer = sess.forward([a, b], {x: f32(0, 0)})
    tape.append(outer)
    outer.backward(a)
    assert sess.grad(x).tolist() == [1, 1]
    assert outer.memory.live_bytes == 0
    for y in (a, b):
        with pytest.raises(sg.BuffersFreedError):
            outer.backward(y)


def test_a_backward_inside_a_backward_leaves_what_the_outer_one_reads(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives back what both read, but works elsewhere."""
    x = leaf(8, 8)
    e = sg.exp(x)
    h = sg.sin(e)
    z = sg.identity(h)
    a, b = sg.sum(sg.nn.layer_norm(h * sg.tanh(e), (8,)) * z), sg.sum(h * h)
    tapes: list[Any] = []
    z.register_hook(lambda grad: sg.py_call(lambda _: [t.backward(b) for t in tapes] and None, [grad], []) and None)
    sess = sg.Session(g)
    feeds = {x: np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)}
    tape = sess.forward([a, b], feeds)
    tape.backward(a, retain_graph=True)
    tape.backward(b)
    want = sess.grad(x)
    for memory in ("plan", "poison"):
        monkeypatch.setenv("STATICGRAD_MEMORY", memory)
        sess = sg.Session(g)
        tapes[:] = [tape := sess.forward([a, b], feeds)]
        tape.backward(a)
        np.testing.assert_allclose(sess.grad(x), want, rtol=1e-5, atol=1e-6)


def test_zeroed_gradients_begin_anew(g: sg.Graph) -> None:
    x = leaf(None)
    y = sg.sum(x * x)
    sess = sg.Session(g)
    for count in (2, 2, 3, 2):
        sess.zero_grad()
        sess.zero_grad()
        at = np.arange(count, dtype=np.float32)
        tape = sess.forward(y, {x: at})
        assert sess.grad(x) is None
        tape.backward(y, retain_graph=True)
        once = sess.grad(x)
        tape.backward(y)
        np.testing.assert_array_equal(once, 2 * at)
        np.testing.assert_array_equal(sess.grad(x), 4 * at)


# -- blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 1])
def test_a_tape_that_is_closed_during_a_backward_releases_its_block_after_it(g: sg.Graph, threads: int) -> None:
    x = leaf(2)
    h = sg.exp(x)
    y = sg.sum(h * h)
    idle: list[int] = []

    def inside(value: Array) -> None:
        if threads:
            in_threads(threads, lambda _: tape.close())
        else:
            tape.close()
        idle.append(len(blocks.idle))

    y.register_hook(lambda grad: sg.py_call(inside, [grad], []) and None)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(0, 0)})
    blocks = tape._programs.blocks
    tape.backward(y, retain_graph=True)
    assert idle == [0]
    assert len(blocks.idle) == 1
    assert sess.grad(x).tolist() == [2, 2]
    with pytest.raises(sg.BuffersFreedError, match="closed"):
        tape.backward(y)


def test_the_last_backward_and_close_release_the_block_without_a_finalizer(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(TapeContext, "__del__")
    x = leaf(2)
    h = sg.exp(x)
    a, b = sg.sum(h * h), sg.sum(sg.sin(x))
    sess = sg.Session(g)
    for last in ("backward", "close"):
        tape = sess.forward([a, b], {x: f32(1, 2)})
        idle = tape._programs.blocks.idle
        assert not idle
        tape.backward(a, retain_graph=True)
        tape.backward(a)
        assert not idle
        tape.backward(b) if last == "backward" else tape.close()
        assert len(idle) == 1
        tape.close()
        tape._context.release()
        assert len(idle) == 1


# -- threads ----------------------------------------------------------------------------------------------------------


def test_tapes_in_several_threads_count_every_gradient(g: sg.Graph) -> None:
    x, w = sg.placeholder((8,)), sg.Variable(np.ones(8, np.float32))
    y = sg.sum(x * w * w)
    sess = sg.Session(g)

    def work(number: int) -> None:
        for _ in range(25):
            with sess.forward(y, {x: np.full(8, number + 1, np.float32)}) as tape:
                assert tape[y] == 8 * (number + 1)
                tape.backward(y)

    in_threads(4, work)
    np.testing.assert_array_equal(sess.grad(w), np.full(8, 2 * 25 * (1 + 2 + 3 + 4)))


def test_of_threads_that_consume_one_tape_one_succeeds(g: sg.Graph) -> None:
    x = leaf(4)
    h = sg.exp(x)
    y = sg.sum(h * h)
    sess = sg.Session(g)
    succeeded: list[int] = []

    def work(number: int) -> None:
        for retain in (True, True, False):
            with contextlib.suppress(sg.BuffersFreedError):
                tape.backward(y, retain_graph=retain)
                succeeded.append(number)

    for _ in range(20):
        sess.zero_grad()
        succeeded.clear()
        tape = sess.forward(y, {x: np.zeros(4, np.float32)})
        in_threads(3, work)
        assert 3 <= len(succeeded) <= 7
        np.testing.assert_array_equal(sess.grad(x), np.full(4, 2 * len(succeeded)))
        assert tape.memory.live_bytes == 0


def test_backward_without_an_argument_takes_the_only_output(g: sg.Graph) -> None:
    x = leaf(2)
    total = sg.sum(x * x)
    sess = sg.Session(g)
    sess.forward(total, {x: f32(1, 2)}).backward()
    np.testing.assert_array_equal(sess.grad(x), f32(2, 4))
    with pytest.raises(sg.FetchError, match=r"the tape has 2 outputs: pass one of them \('sum', 'exp'\), or"):
        sess.forward([total, sg.exp(x)], {x: f32(1, 2)}).backward()
    with pytest.raises(sg.GradientError, match="implicitly created only for scalar outputs"):
        sess.forward(x * x, {x: f32(1, 2)}).backward()


@pytest.mark.parametrize("name", ["gradient", "grad_outputs", "grad_tensors"])
def test_other_words_for_grad_are_answered(g: sg.Graph, name: str) -> None:
    x = leaf(2)
    y = x * x
    tape = sg.Session(g).forward(y, {x: f32(1, 2)})
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{name}': write grad="):
        tape.backward(y, **{name: f32(1, 1)})
