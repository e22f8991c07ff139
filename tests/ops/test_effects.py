"""Effects and state: what runs, how often and in which order; what a run that fails leaves behind; what is drawn."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.budgets import within
from support.concurrency import in_threads
from support.declaring import f32

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend")

Array = np.ndarray[Any, Any]


class Log:
    """What a graph calls in a run, in order."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def note(self, label: str, *inputs: Any) -> sg.Node:
        """An op that notes a label and values."""

        def append(*values: Array) -> None:
            self.entries.append((label, *(v.tolist() for v in values)))

        node: sg.Node = sg.py_call(append, list(inputs), [])
        return node

    def passing(self, label: str, x: sg.Tensor) -> sg.Tensor:
        """``x``, noted when it is computed."""

        def append(value: Array) -> Array:
            self.entries.append(label)
            return value

        (result,) = sg.py_call(append, [x.detach()], [(x.dtype, x.shape)])
        return x + (result - result)

    def take(self) -> list[Any]:
        entries, self.entries = self.entries, []
        return entries


# -- effects of a forward happen once ---------------------------------------------------------------------------------


def test_effects_of_the_forward_run_once_however_many_backwards_follow(
    g: sg.Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    count = sg.Variable(0, name="count", trainable=False)
    log = Log()
    h = log.passing("call", sg.print(sg.exp(x), "value"))
    with sg.control_dependencies([sg.assign(count, count + 1)]):
        h = sg.identity(h)
    a, b = sg.sum(h * h), sg.sum(sg.sin(h))
    sess = sg.Session(g)
    for budget in (None, 0):
        tape = within(budget, lambda least: sess.forward([a, b], {x: f32(0, 1)}, memory_budget=least))
        for _ in range(3):
            tape.backward(a, retain_graph=True)
        tape.backward([a, b])
        assert capfd.readouterr().out.count("value") == 1
        assert log.take() == ["call"]
    assert sess.get(count) == 2
    assert sess.grad(x) is not None


def test_batch_norm_counts_a_batch_once(g: sg.Graph) -> None:
    x = sg.placeholder((4, 2), requires_grad=True)
    mean = sg.Variable(np.zeros(2, np.float32), trainable=False)
    var = sg.Variable(np.ones(2, np.float32), trainable=False)
    y = sg.nn.batch_norm(x, mean, var, training=True)
    other = sg.sum(x)
    loss = sg.sum(y**3)
    (dx,) = sg.gradients(loss, x)
    batch = np.array([[1, 2], [3, 5], [2, 8], [6, 1]], np.float32)
    after_one = 0.1 * batch.mean(0), 0.9 + 0.1 * batch.var(0, ddof=1)
    after_two = 0.9 * after_one[0] + 0.1 * batch.mean(0), 0.9 * after_one[1] + 0.1 * batch.var(0, ddof=1)

    def check(sess: sg.Session, expected: tuple[Array, Array]) -> None:
        np.testing.assert_allclose(sess.get(mean), expected[0], rtol=1e-5)
        np.testing.assert_allclose(sess.get(var), expected[1], rtol=1e-5)

    sess = sg.Session(g)
    sess.run(other, {x: batch})
    check(sess, (np.zeros(2), np.ones(2)))
    value, gradient, _ = sess.run([y, dx, loss], {x: batch})
    check(sess, after_one)
    np.testing.assert_allclose(value.mean(0), 0, atol=1e-6)
    sess.run(loss, {x: batch})
    check(sess, after_two)

    sess = sg.Session(g)
    tape = within(0, lambda budget: sess.forward(loss, {x: batch}, memory_budget=budget))
    check(sess, after_one)
    tape.backward(loss, retain_graph=True)
    tape.backward(loss)
    check(sess, after_one)
    np.testing.assert_allclose(sess.grad(x), 2 * gradient, rtol=1e-5, atol=1e-5)


def test_batch_norm_with_plain_tensors_or_in_evaluation_updates_nothing(g: sg.Graph) -> None:
    x = sg.placeholder((4, 2))
    mean, var = sg.Variable(f32(1, 2), trainable=False), sg.Variable(f32(4, 9), trainable=False)
    evaluated = sg.nn.batch_norm(x, mean, var, eps=0.0)
    fed_mean, fed_var = sg.placeholder((2,)), sg.placeholder((2,))
    trained = sg.nn.batch_norm(x, fed_mean, fed_var, training=True)
    alone = sg.nn.batch_norm(x, None, None, training=True)
    batch = np.array([[1, 2], [3, 5], [5, 8], [7, -1]], np.float32)
    sess = sg.Session(g)
    first, _, _ = sess.run([evaluated, trained, alone], {x: batch, fed_mean: f32(0, 0), fed_var: f32(1, 1)})
    np.testing.assert_allclose(first, (batch - f32(1, 2)) / f32(2, 3), rtol=1e-6)
    assert sess.get(mean).tolist() == [1, 2]
    assert sess.get(var).tolist() == [4, 9]


def test_two_calls_of_one_batch_norm_update_in_order(g: sg.Graph) -> None:
    a, b = sg.placeholder((3, 1)), sg.placeholder((3, 1))
    mean, var = sg.Variable(f32(0), trainable=False), sg.Variable(f32(1), trainable=False)
    first = sg.nn.batch_norm(a, mean, var, training=True)
    second = sg.nn.batch_norm(b, mean, var, training=True)
    va, vb = np.array([[1], [2], [3]], np.float32), np.array([[4], [8], [9]], np.float32)
    sess = sg.Session(g)
    sess.run([second, first], {a: va, b: vb})
    np.testing.assert_allclose(sess.get(mean), 0.9 * (0.1 * 2) + 0.1 * 7, rtol=1e-6)
    np.testing.assert_allclose(sess.get(var), 0.9 * (0.9 + 0.1 * 1) + 0.1 * 7, rtol=1e-6)
    sess = sg.Session(g)
    sess.run(second, {b: vb})  # the first is not computed
    np.testing.assert_allclose(sess.get(mean), 0.7, rtol=1e-6)


# -- what runs, and in which order ------------------------------------------------------------------------------------


def test_only_effects_that_are_needed_run(g: sg.Graph) -> None:
    x = sg.placeholder((2,))
    log = Log()
    used, unused = log.passing("used", x), log.passing("unused", x)
    fetched = log.note("fetched", x)
    sg.py_call(lambda v: log.entries.append("alone"), [x], [])
    sess = sg.Session(g)
    feeds = {x: f32(1, 2)}
    sess.run(used + 1, feeds)
    assert log.take() == ["used"]
    assert sess.run([fetched, x], feeds)[0] is None
    assert log.take() == [("fetched", [1, 2])]
    sess.run([unused], {**feeds, unused: f32(0, 0)})
    assert log.take() == []
    sess.run(x, feeds)
    assert log.take() == []


def test_effects_keep_the_order_of_declaration(g: sg.Graph, capfd: pytest.CaptureFixture[str]) -> None:
    x = sg.placeholder(())
    log = Log()

    def say(text: str, value: sg.Tensor) -> sg.Tensor:
        return sg.print(log.passing(text, value), text)

    a, b, c = say("a", x), say("b", x * 2), say("c", x * 3)
    sess = sg.Session(g)
    for fetches in itertools.permutations([a, b, c]):
        sess.run(list(fetches), {x: 1})
        assert log.take() == ["a", "b", "c"]
        printed = capfd.readouterr().out
        assert printed.index("a") < printed.index("b") < printed.index("c")
    sess.run(c + a, {x: 1})
    assert log.take() == ["a", "c"]


def test_equal_effects_are_not_merged(g: sg.Graph) -> None:
    x = sg.placeholder(())
    log = Log()

    def count(v: Array) -> Array:
        log.entries.append("n")
        return v

    (first,) = sg.py_call(count, [x], [(sg.float32, ())])
    (second,) = sg.py_call(count, [x], [(sg.float32, ())])
    assert sg.Session(g).run(first + second, {x: 2}) == 4
    assert log.take() == ["n", "n"]


def test_control_dependencies_and_groups(g: sg.Graph) -> None:
    x = sg.placeholder(())
    log = Log()
    first, second = log.note("first", x), log.note("second", x)
    with sg.control_dependencies([first]):
        y = x + 1
    both = sg.group(second, first)
    sess = sg.Session(g)
    assert sess.run(y, {x: 1}) == 2
    assert log.take() == [("first", 1)]
    assert sess.run(both, {x: 1}) is None
    assert log.take() == [("first", 1), ("second", 1)]
    assert sess.run({"both": both, "y": y}, {x: 1}) == {"both": None, "y": np.float32(2)}
    assert log.take() == [("first", 1), ("second", 1)]


def test_a_python_call_gets_and_gives_arrays(g: sg.Graph) -> None:
    x, n = sg.placeholder((2, 3)), sg.placeholder((), sg.int64)
    seen: list[Any] = []

    def function(a: Array, b: Array) -> tuple[Array, Array]:
        seen.append((type(a), a.dtype, a.shape, b.dtype, b.shape))
        return a.sum(1), np.asarray(b * 2)

    total, double = sg.py_call(function, [x.T, n], [(sg.float32, (3,)), (sg.int64, ())])
    sess = sg.Session(g)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = sess.run([total, double], {x: values, n: 4})
    np.testing.assert_array_equal(out[0], values.sum(0))
    assert out[1] == 8
    assert seen == [(np.ndarray, np.dtype("float32"), (3, 2), np.dtype("int64"), ())]
    for wrong in (lambda a: a.astype(np.int32), lambda a: a[:1], lambda a: None, lambda a: (a, a)):
        (bad,) = sg.py_call(wrong, [x], [(sg.float32, (2, 3))])
        with pytest.raises(sg.StaticGradError):
            sess.run(bad, {x: values})


class Broken(io.StringIO):
    """Output that can't be written to."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


@pytest.mark.parametrize("backend", ["compiled"], indirect=True)
def test_what_a_print_raises_is_raised_after_the_run(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """State is written as a whole, and only once; of several errors the first is raised."""
    x = sg.placeholder((2,))
    count = sg.Variable(np.zeros(2, np.float32), name="count")
    shown, more = sg.print(x, "x"), sg.print(x + 1, "more")
    with sg.control_dependencies([shown, more]):
        counted = sg.assign(count, count + x)
    sess = sg.Session(g)
    exe = sess.compile([counted, x * 2], [x])
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Broken())
        for runs in (1, 2):
            with pytest.raises(BrokenPipeError, match="x"):
                exe(f32(1, 2))
            assert sess.get(count).tolist() == [runs, 2 * runs]
    assert exe(f32(1, 2))[1].tolist() == [2, 4]  # nothing is left of the errors
    assert sess.get(count).tolist() == [3, 6]


@pytest.mark.parametrize("backend", ["compiled"], indirect=True)
def test_a_backward_whose_print_fails_has_been_done(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    h = x * x
    h.register_hook(lambda grad: sg.print(grad, "gradient"))
    y = sg.sum(h * h)
    sess = sg.Session(g)
    tape = sess.forward(y, {x: f32(1, 2)})
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Broken())
        for times, retain in ((1, True), (2, False)):
            with pytest.raises(BrokenPipeError):
                tape.backward(y, retain_graph=retain)
            assert sess.grad(x).tolist() == [4 * times, 32 * times]
        with pytest.raises(BrokenPipeError):
            sess.forward(sg.print(y, "y"), {x: f32(1, 2)})
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y)


def test_gradients_pass_a_print_and_need_a_rule_for_a_python_call(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    y = sg.sum(sg.print(x, "x") * 2)
    (called,) = sg.py_call(lambda v: v, [x], [(sg.float32, (2,))])
    mixed = sg.sum(called * x)
    around = sg.sum(called.detach() * x)
    sess = sg.Session(g)
    assert sess.run(sg.gradients(y, x), {x: f32(1, 2)})[0].tolist() == [2, 2]
    for derive in (
        lambda: sg.gradients(mixed, x),
        lambda: sess.forward(mixed, {x: f32(1, 2)}).backward(mixed),
    ):
        with pytest.raises(sg.GradientError, match=r"(?s)py_call.*no derivative.*test_effects\.py"):
            derive()
    assert sess.grad(x) is None
    sess.forward([around, mixed, called], {x: f32(1, 2)}).backward(around)
    assert sess.grad(x).tolist() == [1, 2]


# -- reads and writes of variables ------------------------------------------------------------------------------------


def test_reads_see_the_value_at_the_start(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2), name="w")
    before = w * 1.0
    write = sg.assign(w, w + 10)
    after_declared = w * 1.0
    own = sg.identity(write)
    with sg.control_dependencies([write]):
        new = sg.identity(w)
        derived = sg.sum(w * w)
    sess = sg.Session(g)
    out = sess.run([before, w, after_declared, own, new, derived, write])
    assert [v.tolist() for v in out[:3]] == [[1, 2]] * 3
    assert [v.tolist() for v in out[3:5]] == [[11, 12]] * 2
    assert out[5] == 121 + 144
    assert out[6] is None
    assert sess.get(w).tolist() == [11, 12]
    assert sess.run(new).tolist() == [21, 22]  # the write is needed for it
    assert sess.run(after_declared).tolist() == [21, 22]


def test_a_chain_of_writes(g: sg.Graph) -> None:
    w = sg.Variable(1.0, name="w")
    writes = [sg.assign(w, w + 1)]
    for _ in range(3):
        with sg.control_dependencies([writes[-1]]):
            writes.append(sg.assign(w, w * 2))
    sess = sg.Session(g)
    values = sess.run([sg.identity(v) for v in writes] + [w])
    assert [float(v) for v in values] == [2, 4, 8, 16, 1]
    assert sess.get(w) == 16


def test_two_variables_are_swapped(g: sg.Graph) -> None:
    a, b = sg.Variable(np.arange(100, dtype=np.float32)), sg.Variable(np.full(100, 7, np.float32))
    swap = sg.group(sg.assign(a, b), sg.assign(b, a))
    rotate = [sg.assign(a, b), sg.assign(b, a)]
    sess = sg.Session(g)
    for fetches in (swap, rotate, [a, rotate, b], swap):
        old = sess.get(a), sess.get(b)
        sess.run(fetches)
        np.testing.assert_array_equal(sess.get(a), old[1])
        np.testing.assert_array_equal(sess.get(b), old[0])


def test_a_write_that_reads_its_variable_in_another_order(g: sg.Graph) -> None:
    w = sg.Variable(np.arange(2000, dtype=np.float32), name="w")
    m = sg.Variable(np.arange(64 * 48, dtype=np.float32).reshape(64, 48) % 7, name="m")
    backwards, shifted = sg.assign(w, sg.flip(w)), sg.assign(w, sg.roll(w, 1) + w)
    product = sg.assign(m, (m @ m.T @ m) * 1e-3)
    sess = sg.Session(g)
    value, matrix = sess.get(w), sess.get(m)
    sess.run(backwards)
    np.testing.assert_array_equal(sess.get(w), value[::-1])
    sess.run(shifted)
    np.testing.assert_array_equal(sess.get(w), np.roll(value[::-1], 1) + value[::-1])
    old = sess.run([m, product])[0]
    np.testing.assert_array_equal(old, matrix)
    np.testing.assert_allclose(sess.get(m), (matrix @ matrix.T @ matrix) * np.float32(1e-3), rtol=1e-5)


def test_two_unordered_writes_are_refused(g: sg.Graph) -> None:
    w = sg.Variable(1.0, name="w")
    a, b = sg.assign(w, 2.0), sg.assign(w, 3.0)
    sess = sg.Session(g)
    for fetches in ([a, b], sg.group(a, b)):
        with pytest.raises(sg.GraphError, match=r"(?s)'w'.*test_effects\.py.*test_effects\.py"):
            sess.run(fetches)
    assert sess.get(w) == 1
    sess.run(b)
    assert sess.get(w) == 3
    opt = sg.optim.SGD(lr=0.1)
    one, two = opt.minimize(w * 2), opt.minimize(w * 3)
    with pytest.raises(sg.GraphError):
        sess.run([one, two])


def test_feeding_a_variable(g: sg.Graph) -> None:
    w = sg.Variable(f32(1, 2), name="w")
    y, write = w * 2, sg.assign(w, w + 1)
    sess = sg.Session(g)
    out = sess.run([y, w], {w: f32(5, 6)})
    assert [v.tolist() for v in out] == [[10, 12], [5, 6]]
    assert sess.get(w).tolist() == [1, 2]
    with pytest.raises(sg.FeedError, match="'w'"):
        sess.run([y, write], {w: f32(5, 6)})
    assert sess.run(y).tolist() == [2, 4]


def test_writes_that_do_not_fit(g: sg.Graph) -> None:
    w, n = sg.Variable(f32(1, 2), name="w"), sg.Variable(np.array([1, 2]), name="n")
    for target, value in ((w, f32(1, 2, 3)), (w, np.zeros(2)), (n, 1.5), (n, w), (w + 1, f32(1, 2))):
        with pytest.raises(sg.GraphError, match=r"test_effects\.py"):
            sg.assign(target, value)
    sess = sg.Session(g)
    sess.run([sg.assign(w, 3), sg.assign(n, np.array([4, 5], np.int32))])
    assert sess.get(w).tolist() == [3, 3]
    assert sess.get(n).tolist() == [4, 5]


# -- a run that fails -------------------------------------------------------------------------------------------------


def broken(kind: str, x: sg.Tensor, i: sg.Tensor) -> sg.Tensor:
    """A tensor whose computation fails when ``i`` is 3."""
    if kind == "bounds":
        return x[i]
    if kind == "label":
        return sg.nn.cross_entropy(sg.reshape(x, (1, 3)), sg.reshape(i, (1,)))
    if kind == "call":

        def fail(value: Array) -> Array:
            if value == 3:
                raise ZeroDivisionError("mine")
            return np.float32(value)

        return sg.py_call(fail, [i], [(sg.float32, ())])[0]
    declare = sg.assert_
    with sg.control_dependencies([declare(i < 3, "i is too large")]):
        return sg.sum(x)


ERRORS: dict[str, type[Exception]] = {
    "bounds": sg.BoundsError, "label": sg.BoundsError, "call": ZeroDivisionError, "assertion": sg.StaticGradError,
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("dependent", [False, True])
def test_a_run_that_fails_changes_no_state(g: sg.Graph, kind: str, dependent: bool) -> None:
    i = sg.placeholder((), sg.int64)
    w, v, count = sg.Variable(f32(1, 2, 3)), sg.Variable(f32(4, 5, 6)), sg.Variable(0)
    mean, var = sg.Variable(f32(0)), sg.Variable(f32(1))
    normal = sg.nn.batch_norm(sg.reshape(w, (3, 1)), mean, var, training=True)
    write = sg.assign(w, w * 2 + sg.random.uniform((3,)))
    if dependent:
        with sg.control_dependencies([write]):
            bad = broken(kind, sg.identity(w), i)
    else:
        bad = broken(kind, v, i)
    fetches = [sg.assign(count, count + 1), write, bad, sg.assign(v, sg.flip(w)), normal]
    sess, twin = sg.Session(g, seed=1), sg.Session(g, seed=1)
    step = sess.compile(fetches, i)
    variables = (w, v, count, mean, var)

    def state(s: sg.Session) -> list[Any]:
        return [s.get(x).tolist() for x in variables]

    before = state(sess)
    for _ in range(2):
        with pytest.raises(ERRORS[kind]):
            step(np.array(3))
        assert state(sess) == before
    step(np.array(1))
    twin.run(fetches, {i: 1})
    assert state(sess) == state(twin) != before


def test_a_failing_forward_or_backward_changes_nothing(g: sg.Graph) -> None:
    i = sg.placeholder((), sg.int64)
    x = sg.placeholder((3,), requires_grad=True)
    count = sg.Variable(0, trainable=False)
    with sg.control_dependencies([sg.assign(count, count + 1)]):
        y = x[i] * 2
    sess = sg.Session(g)
    with pytest.raises(sg.BoundsError):
        sess.forward(y, {x: f32(1, 2, 3), i: 3})
    assert sess.get(count) == 0
    tape = sess.forward(y, {x: f32(1, 2, 3), i: -1})
    assert tape[y] == 6
    tape.backward(y)
    assert sess.grad(x).tolist() == [0, 0, 2]
    assert sess.get(count) == 1


def test_numerics_are_checked_on_request(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    w = sg.Variable(f32(0, 0))
    y = sg.log(x)
    write = sg.assign(w, y)
    loose, strict = sg.Session(g), sg.Session(g, check_numerics=True)
    loose.run(write, {x: f32(1, 0)})
    assert loose.get(w).tolist() == [0, -np.inf]
    for run in (lambda: strict.run(write, {x: f32(1, 0)}), lambda: strict.forward(y, {x: f32(1, 0)})):
        with pytest.raises(sg.NumericsError, match=r"(?s)'log'.*test_effects\.py") as caught:
            run()
        assert isinstance(caught.value, FloatingPointError)
    assert strict.get(w).tolist() == [0, 0]
    strict.run(write, {x: f32(1, 1)})


def test_integer_traps_end_nothing(g: sg.Graph) -> None:
    a, b = sg.placeholder((4,), sg.int64), sg.placeholder((4,), sg.int64)
    s = sg.placeholder((4,), sg.int32)
    x = sg.placeholder((4,))
    sess = sg.Session(g)
    smallest = np.iinfo(np.int64).min
    va, vb = np.array([7, -7, smallest, 5]), np.array([0, 2, -1, -3])
    quotient, remainder = sess.run([a // b, a % b], {a: va, b: vb})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(quotient, va // vb)
        np.testing.assert_array_equal(remainder, va % vb)
    sess.run(s << s, {s: np.array([40, -1, 31, 0], np.int32)})
    assert sess.run(x.astype(sg.int64), {x: f32(1.9, -1.9, 3, 0)}).tolist() == [1, -1, 3, 0]
    sess.run(x.astype(sg.int32), {x: f32(np.nan, np.inf, -np.inf, 1e30)})


class RandomProgram:
    """Variables, writes in declared orders, calls and checks that fail when a flag says so; some of it is fetched."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.log: list[Any] = []
        with sg.Graph() as self.graph:
            start = np.arange(1.0, 7.0).reshape(2, 3)
            self.variables = [sg.Variable(start * (k + 1)) for k in range(3)]
            self.x, self.flag = sg.placeholder((2, 3), sg.float64), sg.placeholder((), sg.int64)
            self.pool, self.ops = [self.x, *self.variables], list[Any]()
            self.last: dict[int, Any] = {}
            for _ in range(self.rng.integers(4, 16)):
                self.declare(0)
            self.fetches = [*self.some(self.pool, 4), *self.some(self.ops, 4)]

    def some(self, items: list[Any], most: int) -> list[Any]:
        order = self.rng.permutation(len(items))
        return [items[i] for i in order[: self.rng.integers(1, most + 1)]]

    def pick(self) -> Any:
        return self.pool[self.rng.integers(len(self.pool))]

    def pure(self) -> sg.Tensor:
        a, b = self.pick(), self.pick()
        forms = (
            lambda: a + b, lambda: sg.flip(a, axis=1), lambda: a.reshape(3, 2).T, lambda: sg.tanh(a * 0.1),
            lambda: (a @ b.T) @ b * 1e-2, lambda: a * sg.sum(b) * 1e-2,
        )  # fmt: skip
        return forms[self.rng.integers(len(forms))]()

    def declare(self, depth: int) -> None:
        kind = self.rng.integers(10)
        if kind < 4:
            self.pool.append(self.pure())
        elif kind < 6:
            number = int(self.rng.integers(3))
            v = self.variables[number]
            with sg.control_dependencies([self.last[number]] if number in self.last else []):
                write = sg.assign(v, self.pick() * 0.5 + (v, self.pick(), sg.flip(v, axis=0))[kind % 3] * 0.25)
            self.last[number] = write
            self.ops.append(write)
            self.pool.append(sg.identity(write))
        elif kind == 6:
            label = len(self.ops)
            note = sg.py_call(lambda a: self.log.append((label, round(float(a.sum()), 5))), [self.pick()], [])
            self.ops.append(note)
        elif kind == 7:
            self.pool += sg.py_call(self.fail, [self.pick(), self.flag], [(sg.float64, (2, 3))])
        elif kind == 8:
            declare = sg.assert_
            check = declare(sg.logical_or(self.flag != 2, sg.sum(self.pick()) > 1e9), "the flag is two")
            self.ops.append(check)
            with sg.control_dependencies([check]):
                self.pool.append(self.pick() + 1)
        elif self.ops and depth < 2:
            with sg.control_dependencies(self.some(self.ops, 2)):
                for _ in range(self.rng.integers(1, 4)):
                    self.declare(depth + 1)

    @staticmethod
    def fail(a: Array, flag: Array) -> Array:
        if flag == 1:
            raise KeyError("the flag is one")
        return a

    def run(self) -> list[Any]:
        """What five runs gave, or the errors that they raised; the state after each; what was noted."""
        sess = sg.Session(self.graph)
        outcomes: list[Any] = []
        for flag in (0, 1, 2, 0, 3):
            before = [sess.get(v) for v in self.variables]
            self.log.clear()
            try:
                results = sess.run(self.fetches, {self.x: np.linspace(-1, 1, 6).reshape(2, 3), self.flag: flag})
                outcomes += [r for r in results if r is not None] + [list(self.log)]
            except (KeyError, sg.StaticGradError) as error:
                outcomes.append(type(error).__name__)
                for v, value in zip(self.variables, before, strict=True):
                    np.testing.assert_array_equal(sess.get(v), value)
            outcomes += [sess.get(v) for v in self.variables]
        return outcomes


@pytest.mark.parametrize("backend", ["compiled"], indirect=True)
@pytest.mark.parametrize("first", range(0, 40, 8))
def test_random_programs_with_state_are_what_the_reference_says(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 8):
        program = RandomProgram(seed)
        compiled = program.run()
        with monkeypatch.context() as patch:
            patch.setenv("STATICGRAD_BACKEND", "reference")
            expected = program.run()
        assert len(compiled) == len(expected), seed
        for got, wanted in zip(compiled, expected, strict=True):
            if isinstance(wanted, np.ndarray):
                np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
            else:
                assert str(got) == str(wanted), seed


# -- state over runs --------------------------------------------------------------------------------------------------


def network() -> tuple[sg.Tensor, sg.Tensor, sg.Tensor, sg.Node, Any]:
    """Feeds, loss, training op and optimizer of a small network that draws and normalises."""
    x, t = sg.placeholder((8, 4)), sg.placeholder((8,), sg.int64)
    layers = sg.nn.Sequential(
        sg.nn.Linear(4, 6), sg.nn.BatchNorm1d(6), sg.nn.ReLU(), sg.nn.Dropout(0.5), sg.nn.Linear(6, 3)
    )
    loss = sg.nn.cross_entropy(layers(x), t)
    optimizer = sg.optim.Adam(lr=0.01)
    return x, t, loss, optimizer.minimize(loss), optimizer


def test_training_resumes_bit_for_bit(g: sg.Graph, tmp_path: Path) -> None:
    x, t, loss, train, optimizer = network()
    rng = np.random.default_rng(0)
    batches = [{x: rng.normal(size=(8, 4)).astype(np.float32), t: rng.integers(0, 3, 8)} for _ in range(8)]
    sess = sg.Session(g, seed=5)
    for feeds in batches[:4]:
        sess.run(train, feeds)
    sess.set(optimizer.lr, 0.02)
    sess.save(tmp_path / "state.safetensors")
    wanted = [sess.run([loss, train], feeds)[0].tobytes() for feeds in batches[4:]]
    resumed = sg.Session(g, seed=99)
    resumed.restore(tmp_path / "state.safetensors")
    assert [resumed.run([loss, train], feeds)[0].tobytes() for feeds in batches[4:]] == wanted
    for name, variable in g.variables.items():
        assert sess.get(variable).tobytes() == resumed.get(variable).tobytes(), name
    fresh = sg.Session(g, seed=99)
    assert [fresh.run([loss, train], feeds)[0].tobytes() for feeds in batches[4:]] != wanted


def test_a_damaged_checkpoint_changes_nothing(g: sg.Graph, tmp_path: Path) -> None:
    w = sg.Variable(f32(1, 2), name="w")
    path = tmp_path / "state"
    sess = sg.Session(g)
    sess.save(path)
    data = path.read_bytes()
    sess.set(w, f32(3, 4))
    for cut in (b"", data[:7], data[:-1], data + b"x", b"\xff" * 64, data[:8] + b"[" * (len(data) - 8)):
        path.write_bytes(cut)
        with pytest.raises(sg.FormatError) as caught:
            sess.restore(path)
        assert isinstance(caught.value, ValueError)
        assert sess.get(w).tolist() == [3, 4]
    with sg.Graph() as other:
        sg.Variable(f32(1, 2, 3), name="w")
    path.write_bytes(data)
    with pytest.raises(sg.StaticGradError, match="w"):
        sg.Session(other).restore(path)
    with sg.Graph() as third:
        sg.Variable(f32(1, 2), name="v")
    with pytest.raises(sg.StaticGradError, match=r"(?s)'v'.*'w'|'w'.*'v'"):
        sg.Session(third).restore(path)
    sess.restore(path)
    assert sess.get(w).tolist() == [1, 2]


def test_sessions_have_states_of_their_own(g: sg.Graph) -> None:
    w = sg.Variable(sg.init.normal(), shape=(3,), name="w")
    double = sg.assign(w, w * 2)
    a, b, c = sg.Session(g, seed=1), sg.Session(g, seed=1), sg.Session(g, seed=2)
    start = a.get(w)
    np.testing.assert_array_equal(b.get(w), start)
    assert not np.array_equal(c.get(w), start)
    a.run(double)
    np.testing.assert_array_equal(a.get(w), 2 * start)
    np.testing.assert_array_equal(b.get(w), start)


def test_changing_the_learning_rate_compiles_nothing(g: sg.Graph) -> None:
    w = sg.Variable(f32(1))
    optimizer = sg.optim.SGD(lr=0.5)
    train = optimizer.minimize(sg.sum(w * 2))
    sess = sg.Session(g)
    sess.run(train)
    count = sess.compile_count
    sess.set(optimizer.lr, 0.25)
    sess.run(train)
    assert sess.compile_count == count
    assert sess.get(w) == 1 - 0.5 * 2 - 0.25 * 2


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_random_numbers_follow_from_seed_run_and_place(g: sg.Graph) -> None:
    a, b = sg.random.uniform((3,)), sg.random.normal((2, 2))
    mask = sg.random.bernoulli(0.5, (64,))
    order = sg.random.permutation(10)
    sess, twin, other = sg.Session(g, seed=3), sg.Session(g, seed=3, num_threads=1), sg.Session(g, seed=4)
    first = sess.run([a, b, mask, order])
    second = sess.run([a, b, mask, order])
    again = twin.run([order, b, a, mask])  # another order of fetches
    for v, w in zip(first, (again[2], again[1], again[3], again[0]), strict=True):
        np.testing.assert_array_equal(v, w)
    np.testing.assert_array_equal(twin.run({"b": b})["b"], second[1])  # and fewer of them
    for v, w in zip(first, second, strict=True):
        assert not np.array_equal(v, w)
    assert not np.array_equal(first[0], other.run(a))
    assert sorted(first[3].tolist()) == list(range(10))
    assert (first[0] >= 0).all()
    assert (first[0] < 1).all()
    assert 12 < first[2].sum() < 52


def test_one_draw_is_one_value_in_a_run(g: sg.Graph) -> None:
    u = sg.random.uniform((5,))
    v = sg.random.uniform((5,))
    sess = sg.Session(g)
    a, b, c = sess.run([u + 0, sg.exp(u), v])
    np.testing.assert_allclose(np.exp(a), b, rtol=1e-6)
    assert not np.array_equal(a, c)


def test_a_seed_of_its_own(g: sg.Graph) -> None:
    a = sg.random.uniform((4,), seed=7)
    sg.random.uniform((4,))
    b = sg.random.uniform((4,), seed=7)
    one, two = sg.Session(g, seed=1).run([a, b])
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, sg.Session(g, seed=2).run(a))
    sess = sg.Session(g)
    assert not np.array_equal(sess.run(a), sess.run(a))  # the run still counts


def test_the_moments_of_what_is_drawn(g: sg.Graph) -> None:
    n = 40_000
    u, z = sg.random.uniform((n,), -1.0, 3.0), sg.random.normal((n,), 2.0, 0.5, dtype=sg.float64)
    mask = sg.random.bernoulli(0.3, (n,))
    vu, vz, vm = sg.Session(g, seed=11).run([u, z, mask])
    assert (vu.dtype, vz.dtype, vm.dtype) == (np.float32, np.float64, np.bool_)
    tolerance = 5 / np.sqrt(n)
    assert abs(vu.mean() - 1) < tolerance * 1.16
    assert abs(vu.var() - 16 / 12) < tolerance * 2
    assert abs(vz.mean() - 2) < tolerance * 0.5
    assert abs(vz.std() - 0.5) < tolerance * 0.5
    assert abs(vm.mean() - 0.3) < tolerance * 0.5


def test_a_fed_draw_is_what_is_fed(g: sg.Graph) -> None:
    u = sg.random.uniform((2,))
    assert sg.Session(g).run(u * 2, {u: f32(1, 2)}).tolist() == [2, 4]


# -- threads ----------------------------------------------------------------------------------------------------------


def test_many_runs_in_many_threads(g: sg.Graph) -> None:
    x = sg.placeholder((16, 16))
    y = {"sum": sg.sum(x @ x), "max": sg.max(sg.exp(x * 0.01), 1)}
    sess = sg.Session(g)
    exe = sess.compile(y, x)

    def work(number: int) -> None:
        a = np.random.default_rng(number).normal(size=(16, 16)).astype(np.float32)
        wanted = np.sum(a @ a), np.exp(a * np.float32(0.01)).max(1)
        for i in range(200):
            out = exe(a) if i % 2 else sess.run(y, {x: a})
            np.testing.assert_allclose(out["sum"], wanted[0], rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(out["max"], wanted[1], rtol=1e-5)

    in_threads(4, work)


@pytest.mark.parametrize("size", [4, 40_000])
def test_training_steps_in_many_threads_all_count(g: sg.Graph, size: int) -> None:
    w, n = sg.Variable(np.zeros(size, np.float32)), sg.Variable(0, trainable=False)
    x = sg.placeholder((size,))
    train = sg.optim.SGD(lr=1.0).minimize(sg.sum(w * x))
    step = sg.group(train, sg.assign(n, n + 1))
    sess = sg.Session(g)
    exe = sess.compile(step, x)
    runs = 100

    def work(number: int) -> None:
        a = np.full(size, number + 1, np.float32)
        for i in range(runs):
            if i % 2:
                exe(a)
            else:
                sess.run(step, {x: a})

    in_threads(4, work)
    assert sess.get(n) == 4 * runs
    np.testing.assert_array_equal(sess.get(w), np.full(size, -runs * (1 + 2 + 3 + 4)))


def check_once(exe: sg.Executable) -> None:
    if os.environ["STATICGRAD_BACKEND"] == "compiled":  # the interpreter merges nothing
        assert exe.text("graph").count("bounds_check(") == 1


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_bad_label_is_found_when_only_the_gradient_is_fetched(g: sg.Graph, smoothing: float) -> None:
    x, t = sg.placeholder((3, 4), requires_grad=True), sg.placeholder((3,), sg.int64)
    loss = sg.nn.cross_entropy(x, t, label_smoothing=smoothing)
    (dx,) = sg.gradients(loss, [x])
    sess, logits = sg.Session(g), np.zeros((3, 4), np.float32)
    assert sess.run(dx, {x: logits, t: np.array([0, 3, -100])}).shape == (3, 4)
    with pytest.raises(sg.BoundsError, match="label"):
        sess.run(dx, {x: logits, t: np.array([0, 4, 1])})
    check_once(sess.compile([loss, dx], [x, t]))
    tape = sess.forward(loss, {x: logits, t: np.array([0, 1, 2])})
    tape.backward(loss)  # the forward has checked


def test_embedding_and_its_gradient_check_the_indices_once(g: sg.Graph) -> None:
    w, i = sg.Variable(np.ones((5, 2), np.float32)), sg.placeholder((3,), sg.int64)
    y = sg.sum(sg.nn.embedding(i, w))
    exe = sg.Session(g).compile([y, *sg.gradients(y, [w])], [i])
    check_once(exe)
    with pytest.raises(sg.BoundsError):
        exe(np.array([0, 5, 1]))


LOOPS: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "scan": lambda x: sg.scan(lambda c, _: (sg.log(c), ()), x, None, length=3)[0],
    "map": lambda x: sg.map(lambda row: sg.log(row) * 2, x),
    "while": lambda x: sg.while_loop(lambda s: sg.sum(s) > -100, lambda s: sg.log(s), x, max_steps=3),
    "cond": lambda x: sg.cond(sg.sum(x) > 0, lambda: sg.log(x - 10), lambda: x),
    "nested": lambda x: sg.map(lambda row: sg.scan(lambda c, _: (sg.log(c), ()), row, None, length=3)[0], x),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_numerics_are_checked_inside_loops(g: sg.Graph, kind: str) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    y = sg.sum(LOOPS[kind](x))
    strict, good = sg.Session(g, check_numerics=True), np.array([1e6, 1e6], np.float32)
    bad = np.array([2.0, -1.0], np.float32) if kind != "cond" else np.ones(2, np.float32)
    np.testing.assert_array_equal(strict.run(y, {x: good}), sg.Session(g).run(y, {x: good}))
    with pytest.raises(sg.NumericsError, match=r"(?s)'log'.*test_effects\.py"):
        strict.run(y, {x: bad})


def test_numerics_are_checked_in_the_backward_of_a_loop(g: sg.Graph) -> None:
    x = sg.placeholder((), requires_grad=True)
    last, _ = sg.scan(lambda c, _: (sg.exp(c), c), x, None, length=2)
    tape = sg.Session(g, check_numerics=True).forward(last, {x: np.float32(4.4)})
    assert np.isfinite(tape[last])
    with pytest.raises(sg.NumericsError, match=r"test_effects\.py"):
        tape.backward(last, grad=np.float32(1e35))
    (dx,) = sg.gradients(last, [x])
    assert np.isfinite(sg.Session(g, check_numerics=True).run(dx, {x: np.float32(0.5)}))
