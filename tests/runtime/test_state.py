"""State, on both backends: variables, order of reads and writes, failures, random numbers, checkpoints, tapes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.ops.effects import assert_
from staticgrad.runtime.parts.locks import LockWord

pytestmark = pytest.mark.usefixtures("backend")

BACKENDS = ("reference", "compiled")


# -- variables --------------------------------------------------------------------------------------------------------


def test_get_and_set(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2), name="w")
    n = sg.Variable(np.array(3), name="n")
    sess, other = sg.Session(g), sg.Session(g)
    read = sess.compile(w * 1.0, [])
    sess.get(w)[...] = 9  # a copy
    assert read().tolist() == [1, 2]
    sess.set(w, [5, 6])
    assert read().tolist() == sess.get(w).tolist() == [5, 6]
    assert other.get(w).tolist() == [1, 2]
    assert sess.get(n).shape == ()
    for bad in (f32(1, 2, 3), np.zeros(2), "text"):
        with pytest.raises(sg.FeedError):
            sess.set(w, bad)
    for foreign in (w + 1, "w", None):
        with pytest.raises(sg.FetchError, match="no variable"):
            sess.get(foreign)


def test_a_given_first_value_stays_what_it_was_in_the_next_session(g: sg.Graph) -> None:
    w = sg.Variable(np.ones(3, np.float32))
    write = sg.assign(w, w + 1)
    for _ in range(2):
        sess = sg.Session(g)
        sess.run(write)
        np.testing.assert_array_equal(sess.run(w), np.full(3, 2, np.float32))


WITHOUT_DRAWS = """
import sys
import numpy as np, staticgrad as sg
y = sg.Variable(np.ones(3, np.float32)) * 2.0
for first in (sg.init.zeros(), sg.init.ones(), sg.init.constant(2.5)):
    y = y + sg.Variable(first, shape=(3,))
print(sg.Session().run(y).sum(), "numpy.random" in sys.modules)
"""


def test_first_values_that_are_not_drawn_import_no_generators() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DRAWS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["16.5", "False"]


def test_variables_of_a_program_lie_side_by_side(g: sg.Graph) -> None:
    a, b, later = (sg.Variable(np.full(5, i, np.float32), name=str(i)) for i in range(3))
    sess = sg.Session(g)
    sess.store.initialize(["0", "1"])
    first = [sess.store.array(key) for key in ("0", "1")]
    assert first[1].ctypes.data - first[0].ctypes.data == 64
    assert sess.run(a + b + later).tolist() == [3] * 5
    assert [sess.store.array(key) is array for key, array in zip("01", first, strict=True)] == [True, True]


def test_first_values_do_not_depend_on_the_order_of_use(g: sg.Graph) -> None:
    a = sg.Variable(sg.init.normal(), shape=(4,), name="a")
    b = sg.Variable(sg.init.normal(), shape=(4,), name="b")
    one, two, other = sg.Session(g), sg.Session(g), sg.Session(g, seed=1)
    first = one.get(a), one.get(b)
    second = two.run([b, a])
    np.testing.assert_array_equal(first[0], second[1])
    np.testing.assert_array_equal(first[1], second[0])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other.get(a))


def test_reads_see_the_start_of_the_run(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2), name="w")
    write = sg.assign(w, w * 2)
    with sg.control_dependencies([write]):
        after = sg.identity(w)
    sess = sg.Session(g)
    out = sess.run({"before": w, "write": write, "after": after, "sum": w + 1})
    assert out["before"].tolist() == [1, 2]
    assert out["write"] is None
    assert out["after"].tolist() == [2, 4]
    assert out["sum"].tolist() == [2, 3]
    assert sess.get(w).tolist() == [2, 4]
    out["before"][...] = 0
    assert sess.get(w).tolist() == [2, 4]


def test_what_is_declared_after_a_write_runs_it_only_where_that_is_meant(g: sg.Graph) -> None:
    """A variable, and an array that is used outside as well, do not bring the write with them."""
    w, ones = sg.Variable(f32(1, 2), name="w"), f32(1, 1)
    with sg.control_dependencies([sg.assign(w, w * 2)]):
        v = sg.Variable(f32(3, 3), name="v")
        after = sg.identity(w) + ones
    sess = sg.Session(g)
    assert sess.run(v * 2).tolist() == [6, 6]
    assert sess.run(w + ones).tolist() == [2, 3]
    assert sess.get(w).tolist() == [1, 2]
    assert sess.run(after).tolist() == [3, 5]


def test_two_unordered_writes_are_refused(g: sg.Graph) -> None:
    w = sg.Variable(f32(1), name="w")
    first, second = sg.assign(w, w + 1), sg.assign(w, w * 3)
    with sg.control_dependencies([first]):
        third = sg.assign(w, w * 3)
    sess = sg.Session(g)
    with pytest.raises(sg.GraphError, match="'w' is written twice"):
        sess.run([first, second])
    sess.run(third)
    assert sess.get(w) == 6


def test_a_variable_may_be_fed(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2), name="w")
    write = sg.assign(w, w + 1)
    sess = sg.Session(g)
    assert sess.run(w * 2, {w: f32(5, 5)}).tolist() == [10, 10]
    assert sess.get(w).tolist() == [1, 2]
    with pytest.raises(sg.FeedError, match="'w' is fed and written"):
        sess.run(write, {w: f32(5, 5)})


def test_a_training_step_counts(g: sg.Graph) -> None:
    w = sg.Variable(np.zeros((3, 2), np.float32), name="w")
    x = sg.placeholder((4, 3))
    loss = sg.sum((x @ w - 1.0) ** 2)
    (dw,) = sg.gradients(loss, [w])
    assert dw is not None
    train = sg.assign(w, w - 0.05 * dw)
    sess = sg.Session(g)
    step = sess.compile([loss, train], x)
    a = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    losses = [float(step(a)[0]) for _ in range(20)]
    assert losses[0] == 8
    assert losses == sorted(losses, reverse=True)
    expected = np.zeros((3, 2), np.float32)
    for _ in range(20):
        expected -= 0.05 * 2 * a.T @ (a @ expected - 1)
    np.testing.assert_allclose(sess.get(w), expected, rtol=1e-4, atol=1e-5)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_run_that_fails_leaves_all_state_as_it_was(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2, 3), name="w")
    i = sg.placeholder((), sg.int64)
    noise = sg.random.uniform((3,))
    write = sg.assign(w, w + sg.take(w, i) + noise)
    sess, twin = sg.Session(g), sg.Session(g)
    step = sess.compile(write, i)
    for _ in range(2):
        with pytest.raises(sg.BoundsError, match="3"):
            step(np.array(3))
    assert sess.get(w).tolist() == [1, 2, 3]
    step(np.array(2))
    twin.run(write, {i: 2})
    np.testing.assert_array_equal(sess.get(w), twin.get(w))


def test_a_python_function_may_raise(g: sg.Graph) -> None:
    class Mine(Exception):
        pass

    def fail(a: Array) -> Array:
        if a[0] > 0:
            raise Mine("from the user")
        return a + 1

    w = sg.Variable(f32(1), name="w")
    x = sg.placeholder((1,))
    (y,) = sg.py_call(fail, [x], [(sg.float32, (1,))])
    write = sg.assign(w, w + y)
    sess = sg.Session(g)
    exe = sess.compile([y, write], x)
    with pytest.raises(Mine, match="from the user"):
        exe(f32(1))
    assert sess.get(w) == 1
    assert exe(f32(0))[0] == 1
    assert sess.get(w) == 2


def test_checks_name_what_and_where(g: sg.Graph) -> None:
    x = sg.placeholder((2,))
    with sg.control_dependencies([assert_(sg.all(x > 0), "x must be positive")]):
        y = x * 1.5
    sess = sg.Session(g)
    assert sess.run(y, {x: [1, 2]}).tolist() == [1.5, 3]
    with pytest.raises(sg.StaticGradError, match=r"(?s)x must be positive.*test_state\.py"):
        sess.run(y, {x: [1, -2]})


def test_numbers_are_checked_on_request(g: sg.Graph) -> None:
    x = sg.placeholder((2,))
    y = sg.log(x) * 0.0
    a = f32(1, 0)
    assert np.isnan(sg.Session(g).run(y, {x: a})[1])
    with pytest.raises(sg.NumericsError, match=r"(?s)'log'.*test_state\.py"):
        sg.Session(g, check_numerics=True).run(y, {x: a})


def test_a_python_function_may_use_the_session(g: sg.Graph) -> None:
    w = sg.Variable(f32(1), name="w")
    x = sg.placeholder((1,))
    bump = sg.assign(w, w + 1)
    sess = sg.Session(g)

    def inner(a: Array) -> Array:
        sess.run(bump)
        return a + sess.get(w)

    (y,) = sg.py_call(inner, [x], [(sg.float32, (1,))])
    exe = sess.compile(y, x)
    assert exe(f32(0)) == 2
    assert exe(f32(0)) == 3


# -- random numbers and checkpoints -----------------------------------------------------------------------------------


def test_each_run_draws_anew(g: sg.Graph) -> None:
    x = sg.random.uniform((4,))
    y = sg.constant(f32(1))
    one, two = sg.Session(g, seed=7), sg.Session(g, seed=7)
    first, second = one.run(x), one.run(x)
    assert not np.array_equal(first, second)
    two.run(y)  # draws nothing
    again = two.compile([x], [])
    np.testing.assert_array_equal(again()[0], first)
    np.testing.assert_array_equal(again()[0], second)
    assert not np.array_equal(first, sg.Session(g, seed=8).run(x))
    sg.Session(g, seed=-1).run(x)
    sg.Session(g, seed=2**64 - 1).run(x)


def trainable(g: sg.Graph) -> tuple[Tensor, Any]:
    w = sg.Variable(sg.init.normal(), shape=(3,), name="w")
    count = sg.Variable(np.array(0), name="opt/step", trainable=False)
    train = sg.group(sg.assign(w, w * 0.9 + sg.random.uniform((3,))), sg.assign(count, count + 1))
    return w, train


def test_training_resumes_bit_for_bit(g: sg.Graph, tmp_path: Path) -> None:
    w, train = trainable(g)
    sess = sg.Session(g, seed=3)
    for _ in range(3):
        sess.run(train)
    sess.save(tmp_path / "state.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]
    other = sg.Session(g, seed=11)
    other.run(train)
    other.restore(tmp_path / "state.safetensors")
    np.testing.assert_array_equal(sess.get(w), other.get(w))
    for _ in range(2):
        sess.run(train)
        other.run(train)
    np.testing.assert_array_equal(sess.get(w), other.get(w))
    assert other.get(g.variables["opt/step"]) == 5


def test_the_file_is_safetensors(g: sg.Graph, tmp_path: Path) -> None:
    sg.Variable(f32(1, 2), name="layer.weight")
    sg.Session(g).save(tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["layer.weight"]["dtype"] == "F32"
    assert header["layer.weight"]["shape"] == [2]


def test_a_wrong_file_changes_nothing(g: sg.Graph, tmp_path: Path) -> None:
    w, train = trainable(g)
    sess = sg.Session(g)
    sess.run(train)
    path = tmp_path / "file"
    sess.save(path)
    whole = path.read_bytes()
    sess.run(train)
    before, runs = sess.get(w), sess.store.runs_drawn
    damaged = [b"", b"junk" * 10, whole[:-1], whole[: len(whole) // 2], whole + b"x", b"\xff" * 8 + whole[8:]]
    damaged += [whole.replace(b"staticgrad.checkpoint", b"somebody.checkpoints"), whole.replace(b'"F32"', b'"I32"')]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(sg.FormatError, match="file"):
            sess.restore(path)
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            sess.restore(path)
            sess.set(w, before)
            sess.store.change(random=(0, runs))
        except sg.FormatError:
            pass
    with pytest.raises(FileNotFoundError):
        sess.restore(tmp_path / "missing")
    np.testing.assert_array_equal(sess.get(w), before)
    assert sess.store.runs_drawn == runs


def test_names_that_differ_are_reported(tmp_path: Path) -> None:
    with sg.Graph() as g:
        sg.Variable(f32(1), name="old")
        sg.Variable(f32(1), name="both")
    with sg.Graph() as h:
        sg.Variable(f32(1), name="new")
        sg.Variable(f32(1), name="both")
    sg.Session(g).save(tmp_path / "file")
    said = r"(?s)missing in the file: 'new'.*not in the graph: 'old'\nstrict=False passes them over"
    with pytest.raises(sg.FormatError, match=said):
        sg.Session(h).restore(tmp_path / "file")


# -- tapes ------------------------------------------------------------------------------------------------------------


def test_forward_then_backward(g: sg.Graph) -> None:
    w = sg.Variable(f32(2, 3), name="w")
    x = sg.placeholder((2,))
    y = sg.sum(sg.exp(w * x))
    sess = sg.Session(g)
    a = f32(0.5, 0.25)
    assert sess.grad(w) is None
    tape = sess.forward(y, {x: a})
    value = np.sum(np.exp(sess.get(w) * a))
    np.testing.assert_allclose(tape[y], value, rtol=1e-6)
    tape.backward(y)
    expected = a * np.exp(sess.get(w) * a)
    np.testing.assert_allclose(sess.grad(w), expected, rtol=1e-6)
    assert tape.memory.live_bytes == 0
    np.testing.assert_allclose(tape[y], value, rtol=1e-6)
    with pytest.raises(sg.BuffersFreedError, match="second time"):
        tape.backward(y)
    again = sess.forward([y], {x: a})
    again.backward(y, retain_graph=True)
    np.testing.assert_allclose(sess.grad(w), 2 * expected, rtol=1e-6)
    again.backward([y])
    np.testing.assert_allclose(sess.grad(w), 3 * expected, rtol=1e-6)
    sess.zero_grad()
    assert sess.grad(w) is None
    assert sess.grad(x) is None


def test_fed_arrays_that_are_saved_are_copied(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    y = x * x
    sess = sg.Session(g)
    a = f32(1, 2)
    tape = sess.forward(y, {x: a})
    a[...] = 100
    tape.backward(y, grad=f32(1, 10))
    assert sess.grad(x) is not None
    np.testing.assert_allclose(sess.grad(x), [2, 40])


def test_without_grad_only_a_single_element(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    y = x * 2.0
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2)})
    with pytest.raises(sg.GradientError, match="scalar"):
        tape.backward(y)
    with pytest.raises((sg.GradientError, sg.FeedError)):
        tape.backward(y, grad=f32(1, 2, 3))
    with pytest.raises(sg.FetchError):
        tape.backward(x)
    with pytest.raises(sg.FetchError):
        tape[x]


def test_a_variable_that_changed_is_refused_before_anything_runs(g: sg.Graph) -> None:
    w = sg.Variable(f32(2), name="w")
    x = sg.placeholder((1,), requires_grad=True)
    y = w * x
    write = sg.assign(w, w + 1)
    sess = sg.Session(g)
    for change in (lambda: sess.set(w, f32(3)), lambda: sess.run(write), lambda: sess.compile([write], [])()):
        tape = sess.forward(y, {x: f32(1)})
        change()
        with pytest.raises(sg.StateChangedError, match="'w'"):
            tape.backward(y)
        assert sess.grad(x) is None
        assert sess.grad(w) is None


def test_tapes_side_by_side(g: sg.Graph) -> None:
    x = sg.placeholder((None,), requires_grad=True)
    y = sg.sum(sg.exp(x))
    sess = sg.Session(g)
    tapes = [sess.forward(y, {x: f32(v)}) for v in (0, 1, 2)]
    for tape, v in reversed(list(zip(tapes, (0, 1, 2), strict=True))):
        sess.zero_grad()
        tape.backward(y)
        np.testing.assert_allclose(sess.grad(x), np.exp(f32(v)), rtol=1e-6)


def test_a_tape_gives_back_what_it_kept(g: sg.Graph) -> None:
    x = sg.placeholder((1000,), requires_grad=True)
    y = sg.exp(x)
    with sg.no_grad():
        z = sg.exp(x)
    sess = sg.Session(g)
    a = np.zeros(1000, np.float32)
    assert sess.forward(z, {x: a}).memory.saved_bytes == 0
    tape = sess.forward(y, {x: a})
    assert tape.memory.saved_bytes == tape.memory.live_bytes == tape.memory.retain_bytes == 4000
    assert "test_state.py" in str(tape.memory)
    block = weakref.ref(tape._context.block)
    with tape:
        pass
    assert tape.memory.live_bytes == 0
    assert list(tape._programs.blocks.idle) == [block()]
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y, grad=a)


def test_a_shared_trunk_is_spent(g: sg.Graph) -> None:
    x = sg.placeholder((3,), requires_grad=True)
    trunk = sg.exp(x)
    a, b = sg.sum(trunk), sg.sum(trunk * 2.0)
    sess = sg.Session(g)
    v = f32(0, 1, 2)
    tape = sess.forward([a, b], {x: v})
    tape.backward(a)
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(b)
    np.testing.assert_allclose(sess.grad(x), np.exp(v), rtol=1e-6)
    ordered = sess.forward([a, b], {x: v}, backward_order=[a, b])
    ordered.backward(a)
    ordered.backward(b)
    np.testing.assert_allclose(sess.grad(x), 4 * np.exp(v), rtol=1e-6)


def test_retained_gradients_of_a_run(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    h = x * 3.0
    h.retain_grad()
    y = sg.sum(h * h)
    (dx,) = sg.gradients(y, [x])
    sess = sg.Session(g)
    sess.run(dx, {x: f32(1, 2)})
    np.testing.assert_allclose(sess.grad(h), [6, 12])
    assert sess.grad(x) is None


def test_an_optimizer_steps_from_accumulated_gradients(g: sg.Graph) -> None:
    w, v = sg.Variable(f32(1), name="w"), sg.Variable(f32(1), name="v")
    y, z = sg.sum(w * 2.0), sg.sum(v * 3.0)
    step = sg.optim.SGD(lr=0.5).step()
    sess = sg.Session(g)
    update = sess.compile(step, [])
    update()
    assert (sess.get(w), sess.get(v)) == (1, 1)
    sess.forward(y).backward(y)
    update()
    assert (sess.get(w), sess.get(v)) == (0, 1)
    sess.forward(z).backward(z)
    update()
    assert (sess.get(w), sess.get(v)) == (-1, -0.5)
    sess.zero_grad()
    update()
    assert (sess.get(w), sess.get(v)) == (-1, -0.5)


def test_a_variable_without_a_gradient_counts_no_step(g: sg.Graph) -> None:
    w, v = sg.Variable(f32(1), name="w"), sg.Variable(f32(1), name="v")
    y = sg.sum(w * v.detach())
    optimizer = sg.optim.Adam(lr=0.1)
    step = optimizer.step()
    sess = sg.Session(g)
    sess.run(step)
    sess.forward(y).backward(y)
    sess.run(step)
    counts = {key: int(sess.get(x)) for key, x in g.variables.items() if key.endswith("/step")}
    assert sorted(counts.values()) == [0, 1]
    assert counts[next(key for key in counts if key.startswith("w/"))] == 1
    np.testing.assert_allclose(sess.get(w), 0.9, rtol=1e-5)
    assert sess.get(v) == 1


# -- threads ----------------------------------------------------------------------------------------------------------


def test_gradients_that_overflow_add_up_whatever_numpy_is_told_to_do_then(g: sg.Graph) -> None:
    w = sg.Variable(np.full(2, 3e38, np.float32))
    y = sg.sum(w * w)
    sess = sg.Session(g)
    with np.errstate(over="ignore"):
        tapes = [sess.forward(y, {}) for _ in range(2)]
    for tape in tapes:
        with np.errstate(over="raise"):
            tape.backward(y, 0.5)
    assert np.isinf(sess.grad(w)).all()
    assert not sess.store.lock.words[LockWord.WRITING]


def test_a_change_that_fails_half_way_is_no_write_that_goes_on(g: sg.Graph) -> None:
    w = sg.Variable(np.zeros(2, np.float32))
    store = sg.Session(g).store
    with pytest.raises(ValueError, match="broadcast"):
        store.write({w.name: np.zeros(3, np.float32)})
    assert not store.lock.words[LockWord.WRITING]


@pytest.mark.parametrize("size", [4, 300_000])
def test_writers_take_turns_and_readers_see_whole_values(g: sg.Graph, size: int) -> None:
    w = sg.Variable(np.zeros(size, np.float32), name="w")
    write = sg.assign(w, w + 1)
    sess = sg.Session(g)
    add, read = sess.compile([write], []), sess.compile([sg.max(w), sg.min(w)], [])
    failures: list[object] = []

    def writer() -> None:
        for _ in range(25):
            add()

    def reader() -> None:
        for _ in range(25):
            high, low = read()
            if high != low or np.ptp(sess.get(w)) != 0:
                failures.append((high, low))

    threads = [threading.Thread(target=t) for t in (writer, reader, writer, reader)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert sess.get(w)[0] == 50


def test_runs_in_threads_draw_different_numbers(g: sg.Graph) -> None:
    x = sg.random.uniform((4,))
    sess = sg.Session(g)
    exe = sess.compile(x, [])
    drawn: list[bytes] = []
    threads = [threading.Thread(target=lambda: drawn.extend(exe().tobytes() for _ in range(50))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(drawn)) == 150
    assert sess.store.runs_drawn == 150
