"""Where compiled automatic differentiation is known to fail: asked for by users of many frameworks, held by tests here.

Hooks and retained gradients inside compiled programs, orders and removals, derivatives of derivatives in a loss,
memory between two heads, NaN behind ``where``, recomputation, compiling once, buffers handed in, growing graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("backend")

Array = np.ndarray[Any, Any]
f32 = np.float32


def leaf(*shape: Any, name: str | None = None) -> sg.Tensor:
    x: sg.Tensor = sg.placeholder(shape, sg.float64, name=name, requires_grad=True)
    return x


def noted(log: list[Any], label: str, result: Callable[[sg.Tensor], sg.Tensor | None]) -> Callable[[sg.Tensor], Any]:
    """A hook that notes its label in each run in which it fires, and gives what ``result`` gives."""

    def hook(grad: sg.Tensor) -> sg.Tensor | None:
        sg.py_call(lambda value: log.append(label), [grad], [])
        return result(grad)

    return hook


def f64(*values: float) -> Array:
    return np.array(values, np.float64)


# -- hooks and retained gradients -------------------------------------------------------------------------------------

VIEWS_THAT_CHANGE_NOTHING: dict[str, Callable[[sg.Tensor], sg.Tensor]] = {
    "reshape": lambda x: x.reshape(3),
    "broadcast_to": lambda x: sg.broadcast_to(x, (3,)),
    "permute_dims": lambda x: sg.permute_dims(x, (0,)),
    "slice": lambda x: x[:],
    "ellipsis": lambda x: x[...],
    "concat": lambda x: sg.concat([x]),
    "pad": lambda x: sg.nn.pad(x, (0, 0)),
    "flip": lambda x: sg.flip(x, axis=()),
    "roll": lambda x: sg.roll(x, 0, axis=0),
    "squeeze": lambda x: sg.squeeze(x),
    "split": lambda x: sg.split(x, 1)[0],
    "tile": lambda x: sg.tile(x, 1),
    "repeat": lambda x: sg.repeat(x, 1, axis=0),
}


@pytest.mark.parametrize("view", VIEWS_THAT_CHANGE_NOTHING)
def test_a_hook_on_a_view_that_changes_nothing_is_no_hook_on_its_operand(g: sg.Graph, view: str) -> None:
    x = leaf(3)
    v = VIEWS_THAT_CHANGE_NOTHING[view](x)
    v.register_hook(lambda grad: grad * 10)
    v.retain_grad()
    y = sg.sum(v * 2) + sg.sum(x)
    sess = sg.Session(g)
    sess.forward(y, {x: f64(1, 2, 3)}).backward(y)
    assert sess.grad(x).tolist() == [21, 21, 21]
    assert sess.grad(v).tolist() == [20, 20, 20]


def test_a_hook_sees_a_gradient_that_goes_no_further(g: sg.Graph) -> None:
    x = leaf(2)
    seen: list[Any] = []
    h = sg.sign(x) * 3
    h.register_hook(lambda grad: sg.py_call(lambda value: seen.append(value.tolist()), [grad], []) and None)
    y = sg.sum(h)
    sess = sg.Session(g)
    sess.forward(y, {x: f64(1, -2)}).backward(y)
    assert seen == [[1, 1]]
    assert sess.grad(x).tolist() == [0, 0]


def test_a_hook_where_no_gradient_arrives_sees_zeros_and_may_give_one(g: sg.Graph) -> None:
    x = leaf(2)
    h = x * 2
    h.register_hook(lambda grad: grad + 1)
    y = sg.sum(sg.floor(h))
    sess = sg.Session(g)
    sess.forward(y, {x: f64(1, 2)}).backward(y)
    assert sess.grad(x).tolist() == [2, 2]


def test_a_hook_on_a_tensor_inside_a_compiled_step_fires_once_a_call_and_its_result_counts(g: sg.Graph) -> None:
    """Asked for by users whose hooks were silently dropped, ran twice or broke the compiled graph."""
    log: list[Any] = []
    x = sg.placeholder((3,), sg.float64)
    w = sg.Variable(f64(1, 2, 3))
    h = w * x
    h.register_hook(noted(log, "h", lambda grad: grad * 10))
    loss = sg.sum(h * h)
    step = sg.Session(g).compile([loss, sg.optim.SGD(lr=0.5).minimize(loss, [w])], [x])
    value = f64(1, 2, 3)
    for call in range(1, 4):
        loss_value, _ = step(f64(1, 1, 1))
        assert loss_value == np.sum(value**2)
        value = value - 0.5 * 10 * 2 * value
        assert log == ["h"] * call
    np.testing.assert_allclose(step.session.get(w), value)


def test_a_retained_gradient_inside_a_compiled_step_adds_up(g: sg.Graph) -> None:
    """Asked for by users who got None, or a warning, for what they wanted kept."""
    x = leaf(3)
    h = sg.exp(x)
    h.retain_grad()
    loss = sg.sum(h * h)
    (dx,) = sg.gradients(loss, x)
    sess = sg.Session(g)
    step = sess.compile([loss, dx], [x])
    at = f64(0, 1, -1)
    for call in range(1, 4):
        step(at)
        np.testing.assert_allclose(sess.grad(h), call * 2 * np.exp(at))
        assert sess.grad(x) is None
    sess.zero_grad()
    assert sess.grad(h) is None
    step(at)
    np.testing.assert_allclose(sess.grad(h), 2 * np.exp(at))
    assert sess.compile_count == 1


def test_hooks_keep_their_order_and_a_removed_one_is_gone_from_the_next_program(g: sg.Graph) -> None:
    """Asked for by users whose removed hooks lived on in a compiled program, or whose hooks changed places."""
    log: list[Any] = []
    x = leaf()
    h = x * 1.0
    h.register_hook(noted(log, "first", lambda grad: grad + 1))
    second = h.register_hook(noted(log, "second", lambda grad: grad * 10))
    h.register_hook(noted(log, "third", lambda grad: None))
    y = h * 2
    sess = sg.Session(g)
    before = sess.compile(sg.gradients(y, x), [x])
    assert before(0.0)[0] == (2 + 1) * 10
    assert log == ["first", "second", "third"]
    tape = sess.forward(y, {x: 0.0})
    second.remove()
    second.remove()  # of no effect
    h.register_hook(noted(log, "fourth", lambda grad: -grad))
    del log[:]
    after = sess.compile(sg.gradients(y, x), [x])
    assert after(0.0)[0] == -(2 + 1)
    assert log == ["first", "third", "fourth"]
    del log[:]
    assert before(0.0)[0] == 30  # was declared with the hooks of its time
    tape.backward(y)
    assert sess.grad(x) == 30
    assert log == ["first", "second", "third"] * 2
    sess.zero_grad()
    sess.forward(y, {x: 0.0}).backward(y)
    assert sess.grad(x) == -3


# -- derivatives of derivatives in a loss -----------------------------------------------------------------------------


def directional_difference(loss: Callable[[], float], w: sg.Tensor, sess: sg.Session, direction: Array) -> float:
    """The central difference of a loss along a direction of a variable."""
    at, step = sess.get(w), 1e-5
    sess.set(w, at + step * direction)
    above = loss()
    sess.set(w, at - step * direction)
    below = loss()
    sess.set(w, at)
    return (above - below) / (2 * step)


def network(rng: np.random.Generator, *sizes: int) -> tuple[list[sg.Tensor], Callable[[sg.Tensor], sg.Tensor]]:
    """The parameters of a small network of tanh layers, and the network."""
    parameters = []
    for inner, outer in itertools.pairwise(sizes):
        parameters.append(sg.Variable(rng.normal(size=(outer, inner)) / np.sqrt(inner)))
        parameters.append(sg.Variable(rng.normal(size=(outer,)) * 0.1))

    def apply(x: sg.Tensor) -> sg.Tensor:
        layers = list(zip(parameters[::2], parameters[1::2], strict=True))
        for weight, bias in layers[:-1]:
            x = sg.tanh(sg.nn.linear(x, weight, bias))
        return sg.nn.linear(x, *layers[-1])

    return parameters, apply


def test_a_loss_of_second_derivatives_trains(g: sg.Graph) -> None:
    """A physics-informed loss, u'' = -π² sin(πx): asked for by users whose compilers refuse double backward."""
    rng = np.random.default_rng(0)
    parameters, u = network(rng, 1, 12, 1)
    x = sg.placeholder((16, 1), sg.float64)
    y = u(x)
    (u_x,) = sg.gradients(y, x)
    (u_xx,) = sg.gradients(u_x, x)
    ends = u(sg.constant(np.array([[0.0], [1.0]])))
    loss = sg.mean(sg.square(u_xx + np.pi**2 * sg.sin(np.pi * x))) + 10 * sg.mean(sg.square(ends))
    sess = sg.Session(g)
    at = np.linspace(0, 1, 16)[:, None]

    width = 1e-4
    above, here, below = (sess.run(y, {x: at + d}) for d in (width, 0.0, -width))
    np.testing.assert_allclose(sess.run(u_xx, {x: at}), (above - 2 * here + below) / width**2, rtol=1e-4, atol=1e-5)
    for w, dw in zip(parameters, sg.gradients(loss, parameters), strict=True):
        if dw is None:
            continue
        direction = rng.normal(size=w.shape)
        difference = directional_difference(lambda: float(sess.run(loss, {x: at})), w, sess, direction)
        np.testing.assert_allclose(np.sum(sess.run(dw, {x: at}) * direction), difference, rtol=1e-5, atol=1e-6)

    step = sess.compile([loss, sg.optim.Adam(lr=0.02).minimize(loss)], [x])
    compiled = sess.compile_count
    losses = [float(step(at)[0]) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    assert sess.compile_count == compiled


def test_a_loss_of_forces_trains(g: sg.Graph) -> None:
    """Forces are the gradient of an energy by positions, and the loss is of them: asked for by users of potentials."""
    rng = np.random.default_rng(1)
    parameters, energy_of = network(rng, 3, 10, 1)
    positions, forces = sg.placeholder((8, 3), sg.float64), sg.placeholder((8, 3), sg.float64)
    (slope,) = sg.gradients(sg.sum(energy_of(positions)), positions)
    loss = sg.nn.mse_loss(-slope, forces)
    sess = sg.Session(g)
    at = rng.normal(size=(8, 3))
    feeds = {positions: at, forces: -at}  # of a harmonic well
    *_, last_bias = parameters
    gradients = sg.gradients(loss, parameters)
    assert gradients[-1] is None  # forces do not depend on where the energy begins
    for w, dw in zip(parameters, gradients, strict=True):
        if w is last_bias:
            continue
        direction = rng.normal(size=w.shape)
        difference = directional_difference(lambda: float(sess.run(loss, feeds)), w, sess, direction)
        np.testing.assert_allclose(np.sum(sess.run(dw, feeds) * direction), difference, rtol=1e-5, atol=1e-7)
    tape = sess.forward(loss, feeds)
    tape.backward(loss)
    for w, expected in zip(parameters, sess.run(gradients[:-1], feeds), strict=False):
        np.testing.assert_allclose(sess.grad(w), expected, rtol=1e-9, atol=1e-12)
    step = sess.compile([loss, sg.optim.Adam(lr=0.02).minimize(loss)], [positions, forces])
    losses = [float(step(at, -at)[0]) for _ in range(60)]
    assert losses[-1] < 0.6 * losses[0]


# -- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_released_between_two_heads(g: sg.Graph) -> None:
    """Asked for by users who must retain all of a graph for the sake of a part."""
    x = leaf(1000)
    trunk = sg.exp(x)
    first, second = sg.sum(sg.sin(trunk * 2)), sg.sum(sg.cos(trunk + 1))
    sess = sg.Session(g)
    at = np.linspace(-1, 1, 1000)
    expected = np.exp(at) * (2 * np.cos(2 * np.exp(at)) - np.sin(np.exp(at) + 1))

    tape = sess.forward([first, second], {x: at})
    start = tape.memory.live_bytes
    tape.backward(first, retain_graph=True)
    assert tape.memory.live_bytes == start
    tape.backward(second)
    after = tape.memory.live_bytes
    assert after < start  # what the first head alone saves is still there
    np.testing.assert_allclose(sess.grad(x), expected)

    sess.zero_grad()
    tape = sess.forward([first, second], {x: at}, backward_order=[first, second])
    start = tape.memory.live_bytes
    tape.backward(first)
    between = tape.memory.live_bytes
    tape.backward(second)
    assert start > between > 0
    assert tape.memory.live_bytes == 0
    np.testing.assert_allclose(sess.grad(x), expected)


# -- NaN behind where -------------------------------------------------------------------------------------------------

RISKY: dict[str, tuple[Callable[[sg.Tensor], sg.Tensor], Callable[[Array], Array]]] = {
    "sqrt": (sg.sqrt, lambda v: 0.5 / np.sqrt(v)),
    "log": (sg.log, lambda v: 1 / v),
    "reciprocal": (lambda x: 1 / x, lambda v: -1 / v**2),
    "pow": (lambda x: x**1.5, lambda v: 1.5 * v**0.5),
    "rsqrt": (sg.rsqrt, lambda v: -0.5 * v**-1.5),
    "acosh": (lambda x: sg.acosh(x + 1), lambda v: 1 / np.sqrt((v + 1) ** 2 - 1)),
    "log of sqrt": (lambda x: sg.log(sg.sqrt(x)), lambda v: 0.5 / v),
    "x log x": (lambda x: x * sg.log(x), lambda v: np.log(v) + 1),
    "quotient of norms": (lambda x: x / sg.sqrt(x * x * x), lambda v: -0.5 * v**-1.5),
}


@pytest.mark.parametrize("name", RISKY)
def test_gradients_behind_where_are_finite(g: sg.Graph, name: str) -> None:
    """Asked for by users who had to write every where twice."""
    function, slope = RISKY[name]
    x = leaf(4)
    y = sg.sum(sg.where(x > 0, function(x), 0.0))
    (dx,) = sg.gradients(y, x)
    (ddx,) = sg.gradients(dx, x)
    at = f64(0.5, 0.0, -1.0, 2.0)
    sess = sg.Session(g)
    with np.errstate(all="ignore"):
        first, second = sess.run([dx, ddx], {x: at})
        tape = sess.forward(y, {x: at})
        tape.backward(y)
    expected = np.array([slope(v) if v > 0 else 0.0 for v in at])
    np.testing.assert_allclose(first, expected, rtol=1e-12)
    np.testing.assert_allclose(sess.grad(x), expected, rtol=1e-12)
    assert np.isfinite(second).all()
    assert second[1] == second[2] == 0


# -- computing again --------------------------------------------------------------------------------------------------


def test_what_is_computed_again_is_not_merged_with_the_first_time(g: sg.Graph) -> None:
    """Asked for by users whose compilers undid checkpointing by eliminating common subexpressions."""
    w = sg.Variable(np.random.default_rng(2).normal(size=(32, 32)) / 6)

    def block(x: sg.Tensor) -> sg.Tensor:
        for _ in range(4):
            x = sg.tanh(x @ w)
        return x

    x = leaf(16, 32)
    plain, again = sg.mean(block(block(x))), sg.mean(sg.checkpoint(block, sg.checkpoint(block, x)))
    at = np.random.default_rng(3).normal(size=(16, 32))
    sess = sg.Session(g)
    saved, gradients = [], []
    for loss in (plain, again):
        sess.zero_grad()
        tape = sess.forward(loss, {x: at})
        saved.append(tape.memory.saved_bytes)
        tape.backward(loss)
        gradients.append((sess.grad(x), sess.grad(w)))
    assert saved[1] < saved[0] / 2
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_same_bits_when_run_twice(g: sg.Graph) -> None:
    """Asked for by users who compare runs: also in another session, on another number of threads."""
    rng = np.random.default_rng(4)
    parameters, apply = network(rng, 24, 48, 5)
    x, t = sg.placeholder((40, 24), sg.float64), sg.placeholder((40,), sg.int64)
    loss = sg.nn.cross_entropy(sg.nn.dropout(apply(x), 0.2), t)
    gradients = sg.gradients(loss, parameters)
    feeds = {x: rng.normal(size=(40, 24)), t: rng.integers(5, size=40)}
    results = []
    for threads in (1, 2, 1):
        with sg.Session(g, num_threads=threads, seed=7) as sess:
            results.append([array.tobytes() for array in sess.run([loss, *gradients], feeds)])
    assert results[0] == results[1] == results[2]


# -- compiling once ---------------------------------------------------------------------------------------------------


def test_a_step_compiles_once_for_many_calls(g: sg.Graph, backend: str) -> None:
    """Asked for by users whose steps recompile: for a learning rate, a float, a step number, another array."""
    x = sg.placeholder((None, 3))
    w = sg.Variable(np.ones((3,), f32))
    loss = sg.mean(sg.square(x @ w - 1))
    optimizer = sg.optim.Adam(lr=0.1)
    train = optimizer.minimize(loss)
    sess = sg.Session(g)
    for call in range(20):
        batch = np.full((4, 3), call / 20, f32)
        sess.set(optimizer.lr, 0.1 / (call + 1))
        sess.run([loss, train], {x: batch if call % 2 else np.asfortranarray(batch)})
    assert sess.compile_count == 1
    sess.run([loss, train], {x: np.ones((5, 3), f32)})  # another size of the same range
    assert sess.compile_count == (1 if backend == "compiled" else 2)
    sess.run([loss, train], {x: np.ones((20, 3), f32)})  # another range
    compiled = 2 if backend == "compiled" else 3
    assert sess.compile_count == compiled
    sess.run([loss, train], {x: np.ones((4, 3), f32)})
    assert sess.compile_count == compiled
    counts = []
    for _ in range(5):
        tape = sess.forward(loss, {x: np.ones((4, 3), f32)})
        tape.backward(loss, retain_graph=True)
        tape.backward(loss)
        counts.append(sess.compile_count)
    assert counts[0] <= compiled + 3  # a forward, a backward that retains, one that consumes
    assert set(counts) == {counts[0]}


# -- buffers handed in ------------------------------------------------------------------------------------------------


def test_buffers_for_results_are_refused_loudly(g: sg.Graph) -> None:
    """Asked for by users whose donated buffers were silently not used, or used twice."""
    x = sg.placeholder((4, 3))
    call = sg.Session(g).compile([x * 2, x + 1], [x])
    value = np.arange(12, dtype=f32).reshape(4, 3)

    def buffer() -> Array:
        return np.full((4, 3), 7, f32)

    good = [buffer(), buffer()]
    assert call(value, out=good) is good
    np.testing.assert_array_equal(good, [value * 2, value + 1])

    locked, shared, long = buffer(), buffer(), np.full(24, 7, f32)
    locked.flags.writeable = False
    wrong = {
        "dtype": [buffer(), np.full((4, 3), 7.0)],
        "shape": [buffer(), np.full((3, 4), 7, f32)],
        "strides": [buffer(), np.full((4, 6), 7, f32)[:, ::2]],
        "order": [buffer(), np.asfortranarray(buffer())],
        "read-only": [buffer(), locked],
        "twice": [shared, shared],
        "overlapping": [long[:12].reshape(4, 3), long[6:18].reshape(4, 3)],
        "a feed": [buffer(), value],
        "too few": [buffer()],
        "another nest": {"a": buffer(), "b": buffer()},
        "no array": [buffer(), [[7.0] * 3] * 4],
    }
    before = value.copy()
    for what, out in wrong.items():
        with pytest.raises(sg.FeedError):
            call(value, out=out)
        np.testing.assert_array_equal(value, before, err_msg=what)
        for array in out.values() if isinstance(out, dict) else out:
            assert array is value or (np.asarray(array) == 7).all(), f"{what}: written before it was refused"


# -- growing graphs ---------------------------------------------------------------------------------------------------


def test_running_does_not_grow_the_graph(g: sg.Graph) -> None:
    """Asked for by users whose loops added ops until memory ran out."""
    x = leaf(3)
    w = sg.Variable(f64(1, 2, 3))
    w.register_hook(lambda grad: grad * 2)
    loss = sg.sum(sg.square(x * w))
    train = sg.optim.SGD(lr=0.1).minimize(loss)
    gradients = sg.gradients(loss, [x, w])
    g.finalize()
    size, version = len(g.nodes), g.version
    sess = sg.Session(g)
    for _ in range(3):
        sess.run([loss, train, gradients], {x: f64(1, 0, 1)})
        tape = sess.forward(loss, {x: f64(1, 0, 1)})
        tape.backward(loss, retain_graph=True)
        tape.backward(loss)
    assert (len(g.nodes), g.version) == (size, version)
    for declare in (lambda: loss * 2, lambda: sg.gradients(loss, x), lambda: sg.Variable(1.0), lambda: sg.exp(w)):
        with pytest.raises(sg.GraphError, match="finalized"):
            declare()
    assert len(g.nodes) == size
