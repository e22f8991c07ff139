"""Tapes whose programs serve ranges of sizes, beside tapes whose programs are for the sizes of each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from support.concurrency import in_threads
from support.declaring import Array, Log
from support.selection import rotating

import staticgrad as sg
from staticgrad.base.extents import OpenSizeError, open_sizes
from staticgrad.compiler.regions.region import Region
from staticgrad.compiler.tapes.plan import BackwardPlan, TapePlan
from staticgrad.errors import GraphError
from staticgrad.runtime.session.inspection import Inspection

F = sg.float64
SIZES = (5, 7, 16, 1, 2, 17, 30, 32, 3)

Script = Callable[[sg.Session], list[Array]]


@pytest.fixture(params=rotating(["plan", "poison", "none"], 3))
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which programs use memory."""
    monkeypatch.setenv("STATICGRAD_MEMORY", request.param)


def sessions(graph: sg.Graph, **options: Any) -> tuple[sg.Session, sg.Session]:
    """A session whose programs serve ranges and one whose programs do not."""
    return sg.Session(graph, **options), sg.Session(graph, sizes="exact", **options)


def compare(graph: sg.Graph, script: Script, **options: Any) -> sg.Session:
    """Run a script with both; gives the session whose programs serve ranges."""
    ranged, exact = sessions(graph, **options)
    got, want = script(ranged), script(exact)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    return ranged


def data(*shape: int) -> Array:
    return np.random.default_rng([*shape]).uniform(-1, 1, shape)


def gradients(sess: sg.Session, xs: Iterable[sg.Tensor]) -> list[Array]:
    """The gradients so far, which are then forgotten."""
    found = [sess.grad(x) for x in xs]
    sess.zero_grad()
    return [g for g in found if g is not None]


class Net:
    """Rows of three numbers and a weight for each column: ``a`` is a number, ``b`` has a row for each."""

    def __init__(self) -> None:
        self.x = sg.placeholder((None, 3), F, name="x", requires_grad=True)
        self.w = sg.Variable(np.array([0.5, -1.0, 2.0]))
        self.v = sg.Variable(np.array([1.0, 0.25, -0.5]))
        self.trunk = sg.exp(sg.sin(self.x) * self.w)
        self.a = sg.sum(self.trunk * self.trunk * self.x * self.v)
        self.b = sg.nn.softmax(self.trunk * self.v, 1)
        self.leaves = (self.x, self.w, self.v)

    def feeds(self, size: int) -> dict[sg.Tensor, Array]:
        return {self.x: data(size, 3)}


# -- many sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_one_program_for_all_sizes_of_a_range(g: sg.Graph) -> None:
    net = Net()

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in SIZES:
            with sess.forward([net.a, net.b], net.feeds(size)) as tape:
                tape.backward(net.a, retain_graph=True)
                tape.backward(net.b, grad=data(size, 3))
                found += [tape[net.a], tape[net.b], *gradients(sess, net.leaves)]
        return found

    assert compare(g, script).compile_count == 2 * 3  # two ranges, a forward and two backwards


@pytest.mark.usefixtures("memory")
def test_tapes_of_several_sizes_live_side_by_side(g: sg.Graph) -> None:
    net = Net()

    def script(sess: sg.Session) -> list[Array]:
        found = []
        tapes = {size: sess.forward([net.a, net.b], net.feeds(size)) for size in SIZES}
        others = {size: sess.forward([net.a, net.b], net.feeds(size)) for size in SIZES}
        for size in (*SIZES[::2], *SIZES[1::2]):
            tapes[size].backward(net.a, retain_graph=True)
            found += gradients(sess, net.leaves)
        for size in reversed(SIZES):
            others[size].backward([net.a, net.b], [None, data(size, 3)])
            tapes[size].backward(net.b, grad=data(size, 3))
            found += [tapes[size][net.b], *gradients(sess, net.leaves)]
        for size in SIZES:
            for output, grad in ((net.a, None), (net.b, data(size, 3))):
                with pytest.raises(sg.BuffersFreedError):
                    tapes[size].backward(output, grad)
                with pytest.raises(sg.BuffersFreedError):
                    others[size].backward(output, grad)
            found.append(tapes[size][net.a])
        return found

    compare(g, script)


def test_a_new_size_compiles_nothing_and_derives_nothing(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    calls: list[int] = []

    def hook(grad: sg.Tensor) -> sg.Tensor:
        calls.append(1)
        return grad * 2

    net.trunk.register_hook(hook)
    sess = sg.Session()
    sess.forward(net.a, net.feeds(5)).backward(net.a)
    calls.clear()
    count = sess.compile_count
    monkeypatch.setattr(TapePlan, "__init__", None)
    monkeypatch.setattr(TapePlan, "backward", None)
    monkeypatch.setattr(Inspection, "look", None)
    for size in (1, 6, 16, 5):
        sess.zero_grad()
        sess.forward(net.a, net.feeds(size)).backward(net.a)
    assert sess.compile_count == count
    assert not calls


def test_blocks_go_from_size_to_size(g: sg.Graph) -> None:
    net = Net()
    sess = sg.Session()
    blocks = set()
    for size in (5, 16, 1, 7):
        sess.zero_grad()
        with sess.forward(net.a, net.feeds(size)) as tape:
            blocks.add(id(tape._programs.blocks))
            tape.backward(net.a)
        assert len(tape._programs.blocks.idle) == 1
    assert len(blocks) == 1


def test_declared_ranges(g: sg.Graph) -> None:
    x = sg.placeholder((sg.dim("n", max=100), 2), F, requires_grad=True)
    y = sg.sum(sg.exp(x) * x, axis=0)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (3, 50, 100, 1, 64):
            tape = sess.forward(y, {x: data(size, 2)})
            tape.backward(y, grad=data(2))
            found += [tape[y], *gradients(sess, [x])]
        return found

    assert compare(g, script).compile_count == 2


def test_no_rows(g: sg.Graph) -> None:
    net = Net()

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (0, 3, 0):
            tape = sess.forward([net.a, net.b], net.feeds(size))
            tape.backward([net.a, net.b], [None, np.zeros((size, 3))])
            found += [tape[net.b], *gradients(sess, net.leaves)]
        return found

    assert compare(g, script).compile_count == 4


def test_two_sizes_at_once(g: sg.Graph) -> None:
    x = sg.placeholder((None, 1), F, requires_grad=True)
    y = sg.placeholder((1, None), F, requires_grad=True)
    h = sg.tanh(x * y)
    columns, rows = sg.sum(h * h, axis=0), sg.sum(sg.exp(h), axis=1)  # each backward is fed other sizes
    alone = sg.sum(sg.exp(y))

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for n, m in ((3, 4), (4, 3), (16, 1), (1, 16), (5, 5), (20, 2), (17, 16)):
            tape = sess.forward([columns, rows, alone], {x: data(n, 1), y: data(1, m)})
            tape.backward(alone)
            tape.backward(columns, grad=data(m), retain_graph=True)
            tape.backward(rows, grad=data(n))
            found += [tape[columns], tape[rows], *gradients(sess, [x, y])]
        return found

    assert compare(g, script).compile_count == 2 * 4


def test_sizes_that_have_to_be_equal(g: sg.Graph) -> None:
    x, y = (sg.placeholder((None, 3), F, name=name, requires_grad=True) for name in "xy")
    z = sg.sum(sg.exp(x) * sg.sin(y), axis=1)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (4, 9, 1):
            tape = sess.forward(z, {x: data(size, 3), y: data(size, 3) + 1})
            tape.backward(z, grad=data(size))
            found += [tape[z], *gradients(sess, [x, y])]
        return found

    ranged = compare(g, script)
    assert ranged.compile_count == 2
    with pytest.raises((sg.FeedError, GraphError)):
        ranged.forward(z, {x: data(2, 3), y: data(3, 3)})


# -- what tapes keep --------------------------------------------------------------------------------------------------


def test_reports_are_those_of_the_greatest_size(g: sg.Graph) -> None:
    net = Net()
    net.trunk.retain_grad()
    ranged, exact = sessions(g)
    want = exact.forward([net.a, net.b], net.feeds(32))
    for size in (20, 32, 17):
        tape = ranged.forward([net.a, net.b], net.feeds(size))
        for done in (False, True):
            got, best = tape.memory, want.memory
            assert (got.saved_bytes, got.live_bytes, got.retain_bytes) == (
                best.saved_bytes,
                best.live_bytes,
                best.retain_bytes,
            )
            assert [b.nbytes for b in got.buffers] == [b.nbytes for b in best.buffers]
            assert [(p.what, p.kept_bytes) for p in got.prices] == [(p.what, p.kept_bytes) for p in best.prices]
            if not done:
                tape.backward(net.a)
                want.backward(net.a)
        ranged.zero_grad()
        exact.zero_grad()
        want = exact.forward([net.a, net.b], net.feeds(32))


@pytest.mark.usefixtures("memory")
def test_fed_arrays_are_copied(g: sg.Graph) -> None:
    net = Net()

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (3, 8):
            fed = data(size, 3)
            tape = sess.forward(net.a, {net.x: fed})
            fed[:] = 7
            tape.backward(net.a)
            found += gradients(sess, net.leaves)
        return found

    compare(g, script)


def test_a_backward_that_is_fed_nothing_of_the_size(g: sg.Graph) -> None:
    x = sg.placeholder((None, 3), F, requires_grad=True)
    w = sg.Variable(np.float64(2.0))
    total, mean, scaled = sg.sum(x), sg.mean(x), w * x.shape[0]

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (4, 1, 9):
            tape = sess.forward([total, mean, scaled], {x: data(size, 3)})
            for y in (total, mean, scaled):
                tape.backward(y)
                found += [tape[y], *gradients(sess, [x, w])]
        return found

    assert compare(g, script).compile_count == 4


def test_shapes_that_are_polynomials_of_sizes(g: sg.Graph) -> None:
    x = sg.placeholder((None, 2), F, requires_grad=True)
    y = sg.placeholder((None, 2), F, requires_grad=True)
    joined = sg.exp(sg.concat([x, y, sg.sin(x)], 0))
    flat = sg.reshape(joined * joined, (-1,))

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for n, m in ((2, 3), (3, 2), (16, 16), (1, 9)):
            tape = sess.forward(flat, {x: data(n, 2), y: data(m, 2)})
            tape.backward(flat, grad=data(2 * (2 * n + m)))
            found += [tape[flat], *gradients(sess, [x, y])]
            with pytest.raises(sg.GradientError, match="shape"):
                sess.forward(flat, {x: data(n, 2), y: data(m, 2)}).backward(flat, grad=data(2 * (2 * n + m) + 1))
        return found

    compare(g, script)


def test_a_memory_budget_is_for_the_sizes_of_the_call(g: sg.Graph) -> None:
    net = Net()
    ranged, exact = sessions(g)
    for sess in (ranged, exact):
        for size in (5, 6):
            with sess.forward(net.a, net.feeds(size), memory_budget=0.5) as tape:
                tape.backward(net.a)
            sess.zero_grad()
    assert ranged.compile_count == exact.compile_count == 4


# -- what backwards do ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_gradients_of_variables_add_up_over_sizes(g: sg.Graph) -> None:
    net = Net()

    def script(sess: sg.Session) -> list[Array]:
        for size in SIZES:
            sess.set_grad(net.x, None)
            sess.forward(net.a, net.feeds(size)).backward(net.a)
        return gradients(sess, net.leaves)

    compare(g, script)


def test_gradients_of_feeds_add_up_at_one_size(g: sg.Graph) -> None:
    net = Net()
    for sess in sessions(g):
        for _ in range(2):
            sess.forward(net.a, net.feeds(5)).backward(net.a)
        twice = sess.grad(net.x)
        assert twice is not None
        assert twice.shape == (5, 3)
        tape = sess.forward(net.a, net.feeds(6))
        with pytest.raises(sg.GradientError, match="call zero_grad"):
            tape.backward(net.a)
        np.testing.assert_array_equal(sess.grad(net.x), twice)
        sess.zero_grad()
        tape.backward(net.a)  # nothing was spent
        six = sess.grad(net.x)
        assert six is not None
        assert six.shape == (6, 3)


@pytest.mark.usefixtures("memory")
def test_hooks_and_retained_gradients(g: sg.Graph) -> None:
    net = Net()
    log = Log()
    net.trunk.register_hook(lambda grad: grad * 3)
    net.trunk.register_hook(log.hook("trunk"))
    net.b.register_hook(lambda grad: grad * sg.exp(net.x))
    net.trunk.retain_grad()

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (4, 9, 16, 1):
            tape = sess.forward([net.a, net.b], net.feeds(size))
            tape.backward(net.b, grad=data(size, 3), retain_graph=True)
            tape.backward([net.a, net.b], [None, data(size, 3)])
            found += gradients(sess, (*net.leaves, net.trunk))
            found += [np.array(value) for _, value in log.take()]
        return found

    compare(g, script)


def test_a_hook_runs_an_optimizer(g: sg.Graph) -> None:
    net = Net()
    opt = sg.optim.Adam(lr=0.1)
    net.w.register_post_accumulate_grad_hook(lambda w: opt.step([w]))

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (4, 9, 17, 1):
            sess.zero_grad()
            sess.forward(net.a, net.feeds(size)).backward(net.a)
            found.append(sess.get(net.w))
        return found

    compare(g, script)


def test_inputs_and_declared_orders(g: sg.Graph) -> None:
    net = Net()

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (4, 9, 16):
            tape = sess.forward([net.a, net.b], net.feeds(size), backward_order=[net.b, net.a])
            with pytest.raises(sg.GradientError, match="order"):
                tape.backward(net.a)
            tape.backward(net.b, grad=data(size, 3))
            tape.backward(net.a)
            found += gradients(sess, net.leaves)
            assert tape.memory.live_bytes == 0
            tape = sess.forward([net.a, net.b], net.feeds(size))
            tape.backward(net.a, inputs=[net.w, net.trunk])
            assert sess.grad(net.x) is None
            found += gradients(sess, [net.w, net.trunk])
        return found

    compare(g, script)


def test_variables_that_were_written_are_refused(g: sg.Graph) -> None:
    net = Net()
    sess = sg.Session()
    old, new = (sess.forward(net.a, net.feeds(size)) for size in (4, 5))
    old.backward(net.a, retain_graph=True)
    sess.zero_grad()
    sess.set(net.w, np.ones(3))
    for tape in (old, new):
        with pytest.raises(sg.StateChangedError):
            tape.backward(net.a)
    sess.forward(net.a, net.feeds(6)).backward(net.a)


def test_random_numbers_are_repeated_in_checkpoints(g: sg.Graph) -> None:
    x = sg.placeholder((None, 4), F, requires_grad=True)

    def layer(h: sg.Tensor) -> sg.Tensor:
        return sg.nn.dropout(sg.exp(h), 0.5, training=True) * sg.random.uniform(h.shape, dtype=F)

    y = sg.sum(sg.sin(sg.checkpoint(layer, x)))

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (3, 8, 1):
            tapes = [sess.forward(y, {x: data(size, 4)}) for _ in range(2)]
            for tape in reversed(tapes):
                tape.backward(y)
                found += [tape[y], *gradients(sess, [x])]
        return found

    compare(g, script, seed=3)


@pytest.mark.usefixtures("memory")
def test_layers(g: sg.Graph) -> None:
    """Convolutions, products and means of a batch, attention over a length."""
    images = sg.placeholder((None, 2, 6, 6), F, requires_grad=True)
    labels = sg.placeholder((None,), sg.int64)
    words = sg.placeholder((2, None, 8), F, requires_grad=True)
    filters = sg.Variable(data(5, 2, 3, 3))
    weights = sg.Variable(data(4, 5 * 9))
    h = sg.nn.max_pool2d(sg.nn.relu(sg.nn.conv2d(images, filters, padding=1)), 2)
    logits = sg.nn.linear(sg.reshape(h, (h.shape[0], -1)), weights)
    loss = sg.nn.cross_entropy(logits, labels)
    mixed = sg.nn.scaled_dot_product_attention(words, words * 0.5, sg.sin(words), is_causal=True)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for n, m in ((5, 3), (3, 7), (16, 16), (1, 1), (17, 2)):
            feeds = {images: data(n, 2, 6, 6), labels: np.arange(n) % 4, words: data(2, m, 8)}
            tape = sess.forward([loss, mixed], feeds)
            tape.backward(mixed, grad=data(2, m, 8), retain_graph=True)
            tape.backward(loss)
            found += [tape[loss], tape[mixed], *gradients(sess, [images, words, filters, weights])]
        return found

    compare(g, script)


@pytest.mark.parametrize("length", ["open", "known"])
@pytest.mark.usefixtures("memory")
def test_loops(g: sg.Graph, length: str) -> None:
    x = sg.placeholder((None, 4) if length == "open" else (6, None), F, requires_grad=True)
    w = sg.Variable(np.array(0.5))

    def turn(carry: sg.Tensor, row: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        carry = sg.tanh(carry * w + row)
        return carry, sg.exp(carry) * row

    last, rows = sg.scan(turn, sg.zeros(x.shape[1:], F), x)
    y, z = sg.sum(last * last), sg.sum(rows, axis=0)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (5, 7, 1, 16):
            fed = data(size, 4) if length == "open" else data(6, size)
            tape = sess.forward([y, z], {x: fed})
            tape.backward(z, grad=data(fed.shape[1]), retain_graph=True)
            tape.backward(y)
            found += [tape[y], tape[z], *gradients(sess, [x, w])]
        return found

    compare(g, script)


def test_indices_are_checked_at_each_size(g: sg.Graph) -> None:
    x = sg.placeholder((None, 2), F, requires_grad=True)
    i = sg.placeholder((None,), sg.int64)
    y = sg.sum(sg.exp(sg.take(x, i, axis=0)))

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for n, m in ((4, 3), (9, 1), (2, 16)):
            feeds: Mapping[sg.Tensor, Array] = {x: data(n, 2), i: np.arange(m) % n}
            tape = sess.forward(y, feeds)
            tape.backward(y)
            found += [tape[y], *gradients(sess, [x])]
            with pytest.raises(sg.BoundsError, match=str(n)):
                sess.forward(y, {x: data(n, 2), i: np.full(m, n)})
        return found

    compare(g, script)


def test_tapes_in_several_threads(g: sg.Graph) -> None:
    net = Net()
    sess, exact = sessions(g, num_threads=1)
    w = [net.w]

    def work(number: int) -> None:
        for size in (number + 1, number + 9, 16 - number):
            with sess.forward(net.a, net.feeds(size)) as tape:
                tape.backward(net.a, inputs=w)

    in_threads(4, work)
    for number in range(4):
        for size in (number + 1, number + 9, 16 - number):
            exact.forward(net.a, net.feeds(size)).backward(net.a, inputs=w)
    np.testing.assert_allclose(sess.grad(net.w), exact.grad(net.w), rtol=1e-12)
    assert sess.compile_count == 2


def test_work_is_shared_by_threads(g: sg.Graph) -> None:
    x = sg.placeholder((None, 300), F, requires_grad=True)
    y = sg.sum(sg.exp(sg.sin(x)) * x)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (300, 257, 512):
            tape = sess.forward(y, {x: data(size, 300)})
            tape.backward(y)
            found += [tape[y], *gradients(sess, [x])]
        return found

    compare(g, script, num_threads=2)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_a_backward_that_is_refused_for_ranges_is_for_the_sizes_of_its_tape(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    real, tried = TapePlan.backward, list[object]()

    def backward(self: TapePlan, outputs: Any, given: Any, inputs: Any, known: Any) -> BackwardPlan:
        plan = real(self, outputs, given, inputs, known)
        if set(outputs) == {net.a} and open_sizes(tuple(x.type for x in plan.region.feeds)):
            tried.append(outputs)
            raise OpenSizeError("refused by a test")
        return plan

    monkeypatch.setattr(TapePlan, "backward", backward)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (5, 7, 16, 5, 1):
            tape = sess.forward([net.a, net.b], net.feeds(size))
            tape.backward(net.b, grad=data(size, 3), retain_graph=True)
            tape.backward(net.a)
            found += [tape[net.a], *gradients(sess, net.leaves)]
            with pytest.raises(sg.BuffersFreedError):
                tape.backward(net.a)
        return found

    ranged = compare(g, script)
    assert ranged.compile_count == 1 + 1 + 4  # a forward, a backward for the range, four for a size each
    assert len(tried) == 1


def test_a_forward_that_is_refused_for_ranges_is_for_the_sizes_of_the_call(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()

    real = TapePlan._cut_forward

    def cut_forward(self: TapePlan) -> Region:
        if open_sizes(tuple(self._feeds.values())):
            raise OpenSizeError("refused by a test")
        return real(self)

    monkeypatch.setattr(TapePlan, "_cut_forward", cut_forward)

    def script(sess: sg.Session) -> list[Array]:
        found = []
        for size in (5, 7, 5):
            tape = sess.forward(net.a, net.feeds(size))
            tape.backward(net.a)
            found += [tape[net.a], *gradients(sess, net.leaves)]
        return found

    assert compare(g, script).compile_count == 4


def test_what_is_wrong_is_said_by_numbers(g: sg.Graph) -> None:
    net = Net()
    for sess in sessions(g):
        tape = sess.forward([net.a, net.b], net.feeds(5))
        with pytest.raises(sg.GradientError, match=r"has shape \(5, 3\)"):
            tape.backward(net.b)
        with pytest.raises(sg.GradientError, match="shape"):
            tape.backward(net.b, grad=data(6, 3))
        with pytest.raises(sg.FeedError, match="shape"):
            sess.forward(net.a, {net.x: data(5, 4)})
        tape.backward(net.b, grad=data(5, 3))
