"""What a tape keeps, and when it gives that back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.declaring import Array, f32, leaf

import staticgrad as sg
from staticgrad.compiler.tapes.plan import plan_tape

pytestmark = pytest.mark.usefixtures("backend")


def test_values_of_outputs_are_there_as_long_as_the_tape(g: sg.Graph) -> None:
    x = leaf(2)
    e = sg.exp(x)
    y = sg.sum(e * e)
    sess = sg.Session(g)
    at = f32(0, 1)
    tape = sess.forward({"e": e, "rest": (y, None)}, {x: at})
    first = tape[e]
    first[...] = 7
    at[...] = 9
    np.testing.assert_allclose(tape[e], np.exp(f32(0, 1)), rtol=1e-6)
    tape.backward(y)
    np.testing.assert_allclose(sess.grad(x), 2 * np.exp(2 * f32(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(tape[e], np.exp(f32(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(tape[y], 1 + np.e**2, rtol=1e-6)
    with pytest.raises(sg.FetchError, match="only of its outputs"):
        tape[x]


def test_a_forward_under_no_grad_keeps_nothing(g: sg.Graph) -> None:
    x, w = leaf(64, 64), sg.Variable(np.ones((64, 64), np.float32))
    with sg.no_grad():
        y = sg.sum(sg.exp(x @ w) * x)
    z = sg.sum(sg.exp(x @ w) * x)
    sess = sg.Session(g)
    feeds = {x: np.zeros((64, 64), np.float32)}
    assert sess.forward(y, feeds).memory.saved_bytes == 0
    assert sess.forward(z, feeds).memory.saved_bytes >= 64 * 64 * 4


def test_what_is_kept_is_given_back_with_the_last_backward(g: sg.Graph) -> None:
    x = leaf(1000)
    trunk = sg.exp(x)
    a, b = sg.sum(trunk * trunk), sg.sum(sg.sin(trunk))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: np.zeros(1000, np.float32)})
    m = tape.memory
    assert m.saved_bytes == m.live_bytes == 4000  # exp's value serves all
    assert m.retain_bytes == 4000
    assert [(n.nbytes, n.live) for n in m.buffers] == [(4000, True)]
    assert "exp" in str(m)
    assert "test_tapes.py" in str(m)
    tape.backward(a, retain_graph=True)
    assert tape.memory.live_bytes == 4000
    tape.backward(b, retain_graph=True)
    tape.backward(a)
    assert tape.memory.live_bytes == 4000  # sin saves it too, and is not spent
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(b)
    tape = sess.forward([a, b], {x: np.zeros(1000, np.float32)})
    tape.backward([a, b])
    assert (tape.memory.saved_bytes, tape.memory.live_bytes, tape.memory.retain_bytes) == (4000, 0, 0)


def test_consuming_one_head_gives_back_what_it_alone_saves(g: sg.Graph) -> None:
    x, v = leaf(100), leaf(50)
    a, b = sg.sum(sg.exp(x)), sg.sum(sg.exp(v))
    sess = sg.Session(g)
    tape = sess.forward([a, b], {x: np.zeros(100, np.float32), v: np.zeros(50, np.float32)})
    assert tape.memory.live_bytes == 600
    tape.backward(a)
    assert tape.memory.live_bytes == 200
    tape.backward(b)
    assert tape.memory.live_bytes == 0


TWICE: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "layer_norm": lambda x: sg.nn.layer_norm(x, (8,)),
    "rms_norm": lambda x: sg.nn.rms_norm(x, (8,)),
    "group_norm": lambda x: sg.reshape(sg.nn.group_norm(sg.reshape(x, (4, 4, 2)), 2), (4, 8)),
    "cross_entropy": lambda x: sg.expand_dims(sg.nn.cross_entropy(x, np.arange(4), reduction="none"), 1) * x,
    "cumulative_prod": lambda x: sg.cumulative_prod(x, axis=1),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("disabled", ["", "cse"])
@pytest.mark.parametrize("name", TWICE)
def test_an_op_declared_twice_on_one_operand_may_be_consumed(
    g: sg.Graph, name: str, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What both ops save is one value in memory, which lives until the last of them has read it."""
    monkeypatch.setenv("STATICGRAD_DISABLE", disabled)
    rng = np.random.default_rng(0)
    x = sg.placeholder((4, 8), sg.float64, requires_grad=True)
    w, v = (sg.Variable(rng.normal(size=(8, 8))) for _ in range(2))
    twice = TWICE[name]
    y = sg.sum(sg.nn.gelu(twice(x) * sg.nn.sigmoid(twice(x) @ w)) @ v)
    feeds = {x: rng.normal(size=(4, 8))}
    reads = plan_tape(g, [y], {x: x.type}).backward([y]).reads
    assert len(set(reads)) == len(reads)
    grads = []
    for retain_graph in (True, False):
        with sg.Session(g) as sess:
            sess.forward(y, feeds).backward(y, retain_graph=retain_graph)
            grads.append([sess.grad(z) for z in (x, w, v)])
    for retained, consumed in zip(*grads, strict=True):
        np.testing.assert_array_equal(consumed, retained)


def test_a_declared_order_keeps_each_value_to_its_last_use(g: sg.Graph) -> None:
    x = leaf(100)
    trunk = sg.exp(x)
    a, b = sg.sum(sg.sin(trunk + 1)), sg.sum(sg.cos(trunk * trunk))
    sess = sg.Session(g)
    at = np.linspace(0, 1, 100, dtype=np.float32)
    tape = sess.forward([a, b], {x: at}, backward_order=[a, b])
    with pytest.raises(sg.StaticGradError, match="order"):
        tape.backward(b)
    assert sess.grad(x) is None
    start = tape.memory.live_bytes
    tape.backward(a)
    assert 0 < tape.memory.live_bytes <= start
    tape.backward(b)
    assert tape.memory.live_bytes == 0
    e = np.exp(at.astype(np.float64))
    np.testing.assert_allclose(sess.grad(x), e * np.cos(e + 1) - 2 * e * e * np.sin(e * e), rtol=1e-4, atol=1e-4)
    with pytest.raises(sg.StaticGradError):
        tape.backward(a)


def test_an_order_may_name_several_at_once_and_one_again(g: sg.Graph) -> None:
    x = leaf(2)
    h = sg.exp(x)
    a, b, c = sg.sum(h * h), sg.sum(sg.sin(h)), sg.sum(h)
    sess = sg.Session(g)
    tape = sess.forward([a, b, c], {x: f32(0, 0)}, backward_order=[[a, b], c, a])
    tape.backward([b, a])
    tape.backward(c)
    assert tape.memory.live_bytes > 0
    tape.backward(a)
    assert tape.memory.live_bytes == 0
    np.testing.assert_allclose(sess.grad(x), np.full(2, 2 + 2 + 1 + np.cos(1)), rtol=1e-6)
    for foreign in ([x], [sg.sum(h)]):
        with pytest.raises(sg.StaticGradError):
            sess.forward(a, {x: f32(0, 0)}, backward_order=foreign)


def test_very_many_outputs(g: sg.Graph) -> None:
    x = leaf(2)
    h = sg.exp(x)
    ys = [sg.sum(h * float(i + 1)) for i in range(60)]
    sess = sg.Session(g)
    tape = sess.forward(ys, {x: f32(0, 0)})
    tape.backward(ys[3], retain_graph=True)
    assert sess.grad(x).tolist() == [4, 4]
    tape.backward(ys[4:10], retain_graph=True)
    assert sess.grad(x).tolist() == [49, 49]
    tape.backward(ys[10])
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(ys[11])


@pytest.mark.parametrize("more", [0, 20])
def test_any_results_of_a_loop_with_long_stacks_go_backward(g: sg.Graph, more: int) -> None:
    """What is computed again instead of stacked was chosen for each set of outputs by itself, so that others read what
    was not kept. Very many outputs are planned together alone."""
    first, rows = (sg.placeholder(shape, sg.float64, requires_grad=True) for shape in ((3200,), (16, 3200)))

    def step(c: sg.Tensor, row: sg.Tensor) -> tuple[sg.Tensor, tuple[sg.Tensor, ...]]:
        a, b = sg.sin(c), sg.sin(2 * c)
        return sg.tanh(c), (sg.sin(a + b + row), sg.sin(a + b - row), sg.sin(a + row) + sg.sin(b + row))

    results = sg.scan(step, first, rows)[1]
    outputs = [*map(sg.sum, results), *(sg.sum(results[0] * float(k)) for k in range(2, 2 + more))]
    gradients = [sg.gradients(y, [first, rows]) for y in outputs[:3]]
    sess = sg.Session(g)
    rng = np.random.default_rng(0)
    feeds = {first: rng.normal(size=3200), rows: rng.normal(size=(16, 3200))}
    want = sess.run(gradients, feeds)
    for chosen in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        sess.zero_grad()
        sess.forward(outputs, feeds).backward([outputs[k] for k in chosen])
        for number, x in enumerate((first, rows)):
            np.testing.assert_allclose(sess.grad(x), sum(want[k][number] for k in chosen), rtol=1e-12, atol=1e-12)


def test_outputs_of_every_kind(g: sg.Graph) -> None:
    x, n = leaf(2), sg.placeholder((2,), sg.int64)
    more, y = n + 1, sg.sum(x * x)
    sess = sg.Session(g)
    at = f32(1, 2)
    tape = sess.forward([x, more, y, n], {x: at, n: [1, 2]})
    at[...] = 0
    assert [tape[v].tolist() for v in (x, more, y, n)] == [[1, 2], [2, 3], 5, [1, 2]]
    tape.backward(y)
    assert sess.grad(x).tolist() == [2, 4]
    with pytest.raises(sg.GradientError, match="does not require grad"):
        tape.backward(more)


def test_a_backward_inside_a_run(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * x)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2)})

    def inside(value: Array) -> Array:
        tape.backward(y)
        return value

    (z,) = sg.py_call(inside, [x], [(sg.float32, (2,))])
    sess.run(z, {x: f32(0, 0)})
    assert sess.grad(x).tolist() == [2, 4]


def test_tapes_live_side_by_side(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(x * x)
    sess, other = sg.Session(g), sg.Session(g)
    tapes = [sess.forward(y, {x: np.full(2, i, np.float32)}) for i in range(4)]
    apart = other.forward(y, {x: f32(9, 9)})
    for i in (2, 0, 3, 1):
        sess.zero_grad()
        tapes[i].backward(y, retain_graph=True)
        assert sess.grad(x).tolist() == [2 * i, 2 * i]
        assert tapes[i][y] == 2 * i * i
    assert other.grad(x) is None
    apart.backward(y)
    assert other.grad(x).tolist() == [18, 18]
    tapes[0].backward(y)
    with pytest.raises(sg.BuffersFreedError):
        tapes[0].backward(y)
    tapes[1].backward(y)


def test_with_and_garbage_collection_give_everything_back(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(sg.exp(x))
    sess = sg.Session(g)
    with sess.forward(y, {x: f32(1, 2)}) as tape:
        tape.backward(y, retain_graph=True)
        assert tape.memory.live_bytes == 8
    assert tape.memory.live_bytes == 0
    for use in (lambda: tape.backward(y), lambda: tape[y]):
        with pytest.raises(sg.StaticGradError):
            use()
    dropped = sess.forward(y, {x: f32(1, 2)})
    gone = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert gone() is None


def test_a_tape_keeps_its_session_until_it_is_closed(g: sg.Graph) -> None:
    x = leaf(2)
    y = sg.sum(sg.exp(x))
    tape = sg.Session(g).forward(y, {x: f32(0, 0)})
    gc.collect()
    tape.backward(y)
    with sg.Session(g) as sess:
        tape = sess.forward(y, {x: f32(0, 0)})
    for use in (lambda: tape.backward(y), lambda: tape[y], lambda: sess.forward(y, {x: f32(0, 0)})):
        with pytest.raises(sg.StaticGradError, match="closed"):
            use()


def test_fed_arrays_that_are_saved_are_copied(g: sg.Graph) -> None:
    x, w = sg.placeholder((2,)), leaf(2)
    y = sg.sum(x * w)
    sess = sg.Session(g)
    a, b = f32(1, 2), f32(3, 4)
    tape = sess.forward(y, {x: a, w: b})
    a[...] = b[...] = 0
    tape.backward(y)
    assert sess.grad(w).tolist() == [1, 2]


def test_a_large_operand_that_is_only_compared_is_kept_as_a_mask(g: sg.Graph) -> None:
    x = leaf(1024)
    y = sg.sum(sg.nn.relu(x + 1))
    sess = sg.Session(g)
    at = np.linspace(-2, 0, 1024, dtype=np.float32)
    tape = sess.forward(y, {x: at})
    assert tape.memory.saved_bytes <= 4096
    tape.backward(y)
    np.testing.assert_array_equal(sess.grad(x), (at + 1 > 0).astype(np.float32))


def test_a_budget_computes_again_what_it_does_not_keep(g: sg.Graph) -> None:
    x = leaf(256)
    y = x
    for _ in range(6):
        y = sg.sin(y)
    y = sg.sum(y)
    sess = sg.Session(g)
    at = np.linspace(-1, 1, 256, dtype=np.float32)
    results, sizes = [], []
    for budget in (None, 3 * 1024, 1024):
        sess.zero_grad()
        tape = sess.forward(y, {x: at}, memory_budget=budget)
        sizes.append(tape.memory.saved_bytes)
        tape.backward(y)
        results.append(sess.grad(x))
        with pytest.raises(sg.BuffersFreedError):  # the rule knows nothing of budgets
            tape.backward(y)
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[1] <= 3 * 1024
    assert sizes[2] <= 1024
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-6, atol=1e-7)


def test_the_report_can_be_drawn(g: sg.Graph, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    x = leaf(16)
    y = sg.sum(sg.exp(x))
    tape = sg.Session(g).forward(y, {x: np.zeros(16, np.float32)})
    tape.memory.plot(tmp_path / "tape.png")
    assert (tmp_path / "tape.png").stat().st_size > 1000
