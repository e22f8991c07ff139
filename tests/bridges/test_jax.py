"""Programs in JAX: every transformation beside JAX's own function, dtypes, errors, threads, what keeps what alive."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import staticgrad as sg  # noqa: E402
from staticgrad.bridges import xla  # noqa: E402
from staticgrad.jax import wrap  # noqa: E402


@pytest.fixture(autouse=True)
def wide() -> None:
    jax.config.update("jax_enable_x64", True)  # until the test ends


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def same(got: Any, want: Any, rtol: float = 1e-12) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13), got, want)
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), got, want)


X, A = np.linspace(0.3, 1.4, 3), 1.7
ROWS = np.linspace(-1.0, 1.0, 12).reshape(4, 3)


def wave_of(x: Any, a: Any) -> Any:
    return jnp.sin(x) * a


@functools.cache
def wave() -> Any:
    """Ours and JAX's: (3,) and () to (3,)."""
    with sg.Graph() as graph:
        x, a = sg.placeholder((3,), sg.float64, name="x"), sg.placeholder((), sg.float64, name="a")
        return wrap(sg.Session(graph).compile(sg.sin(x) * a, [x, a]))


def energy_of(x: Any, a: Any) -> Any:
    return jnp.sum(wave_of(x, a) ** 2)


@functools.cache
def energy() -> Any:
    """The same with one number as its result."""
    with sg.Graph() as graph:
        x, a = sg.placeholder((3,), sg.float64, name="x"), sg.placeholder((), sg.float64, name="a")
        return wrap(sg.Session(graph).compile(sg.sum((sg.sin(x) * a) ** 2), [x, a]))


PAIRS = [(wave, wave_of), (energy, energy_of)]
both = pytest.mark.parametrize(("make", "theirs"), PAIRS, ids=["vector", "number"])


# -- transformations --------------------------------------------------------------------------------------------------


@both
def test_values_at_once_and_compiled(make: Any, theirs: Any) -> None:
    ours = make()
    same(ours(X, A), theirs(X, A))
    same(jax.jit(ours)(X, A), theirs(X, A))
    same(
        jax.jit(lambda x: ours(ours(x, 2.0) if make is wave else x, A))(X),
        theirs(wave_of(X, 2.0) if make is wave else X, A),
    )


def compare(transform: Callable[[Any], Any], ours: Any, theirs: Any, *arrays: Any, rtol: float = 1e-12) -> None:
    """One transformation of both, compiled: what runs op by op JAX compiles op by op."""
    same(jax.jit(transform(ours))(*arrays), jax.jit(transform(theirs))(*arrays), rtol)


@both
@pytest.mark.parametrize("how", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
def test_derivatives(make: Any, theirs: Any, how: Any) -> None:
    compare(lambda f: how(f, (0, 1)), make(), theirs, X, A)
    compare(lambda f: how(f, 1), make(), theirs, X, A)


@both
@pytest.mark.parametrize("outer", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
@pytest.mark.parametrize("inner", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
def test_second_derivatives(make: Any, theirs: Any, outer: Any, inner: Any) -> None:
    compare(lambda f: outer(inner(f, (0, 1)), 0), make(), theirs, X, A)


def test_third_derivatives() -> None:
    compare(lambda f: jax.jacfwd(jax.jacrev(jax.grad(f))), energy(), energy_of, X, A, rtol=1e-11)
    compare(lambda f: jax.grad(lambda x, a: jnp.sum(jax.hessian(f)(x, a))), energy(), energy_of, X, A, rtol=1e-11)


@both
def test_vmap(make: Any, theirs: Any) -> None:
    for axes, arrays in (
        ((0, None), (ROWS, A)), ((None, 0), (X, ROWS[:, 0])), ((0, 0), (ROWS, ROWS[:, 1])), ((1, None), (ROWS.T, A)),
    ):  # fmt: skip
        compare(lambda f, axes=axes: jax.vmap(f, axes), make(), theirs, *arrays)
    same(jax.vmap(make(), (0, None))(ROWS, A), jax.vmap(theirs, (0, None))(ROWS, A))


@both
def test_nested_vmap(make: Any, theirs: Any) -> None:
    some = ROWS[:, 0]
    for inner, outer, arrays in (
        ((None, 0), (0, None), (ROWS, some)), ((0, None), (None, 0), (ROWS, some)),
        ((0, 0), (0, None), (np.stack([ROWS, ROWS + 1]), some)), ((0, None), (0, 0), (np.stack([ROWS] * 4), some)),
    ):  # fmt: skip
        compare(lambda f, i=inner, o=outer: jax.vmap(jax.vmap(f, i), o), make(), theirs, *arrays)


@both
def test_derivatives_through_and_under_vmap(make: Any, theirs: Any) -> None:
    def total(f: Any) -> Any:
        return lambda rows, a: jnp.sum(jax.vmap(f, (0, None))(rows, a) ** 3)

    compare(lambda f: jax.grad(total(f), (0, 1)), make(), theirs, ROWS, A)
    compare(lambda f: jax.hessian(total(f), (0, 1)), make(), theirs, ROWS, A, rtol=1e-11)
    compare(lambda f: jax.vmap(jax.jacrev(f, (0, 1)), (0, None)), make(), theirs, ROWS, A)


def test_an_empty_batch() -> None:
    assert jax.vmap(wave(), (0, None))(np.zeros((0, 3)), A).shape == (0, 3)


def test_scan_and_what_is_derived_through_it() -> None:
    def course(f: Any) -> Any:
        def last(x: Any, a: Any) -> Any:
            def step(c: Any, _: Any) -> Any:
                c = f(c, a)
                return c, c

            c, each = jax.lax.scan(step, x, None, length=7)
            return jnp.sum(each) + jnp.sum(c)

        return last

    compare(lambda f: jax.value_and_grad(course(f), (0, 1)), wave(), wave_of, X, A)
    compare(lambda f: jax.hessian(course(f)), wave(), wave_of, X, A)
    compare(lambda f: jax.vmap(jax.grad(course(f)), (0, None)), wave(), wave_of, ROWS, A)


def test_other_control_flow() -> None:
    def halved(f: Any) -> Any:
        def fn(x: Any, a: Any) -> Any:
            x = jax.lax.cond(a > 1, lambda x: f(x, a), lambda x: x, x)
            x = jax.lax.fori_loop(0, 3, lambda _, x: f(x, a), x)
            return jax.lax.while_loop(lambda x: jnp.sum(x**2) > 0.1, lambda x: f(x, 0.5), x)

        return fn

    compare(halved, wave(), wave_of, X, A)


def test_jax_rematerializes_our_calls() -> None:
    def chain(f: Any) -> Any:
        return lambda x: jnp.sum(f(f(x, A), A))

    compare(lambda f: jax.grad(jax.checkpoint(chain(f))), wave(), wave_of, X)


# -- programs ---------------------------------------------------------------------------------------------------------


def test_a_nest_of_results_integers_and_a_loop_of_ours() -> None:
    n = sg.dim("n")
    x, index = sg.placeholder((n,), sg.float64, name="x"), sg.placeholder((2,), sg.int64, name="index")

    def body(c: Any, v: Any) -> Any:
        c = sg.tanh(c * 0.9 + v)
        return c, c * c

    c, ys = sg.scan(body, sg.zeros((), sg.float64), x)
    nest = {"c": c, "taken": sg.take(ys, index, axis=0), "big": ys > 0.1, "again": (c, None, sg.group(c)), "x": x}
    ours = wrap(sg.Session().compile(nest, [x, index]))

    def theirs(x: Any, index: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            c = jnp.tanh(c * 0.9 + v)
            return c, c * c

        c, ys = jax.lax.scan(body, 0.0, x)
        return {"c": c, "taken": ys[index], "big": ys > 0.1, "again": (c, None, None), "x": x}

    def number(f: Any) -> Any:
        return lambda x, index: f(x, index)["c"] ** 2 + jnp.sum(f(x, index)["taken"])

    for size in (5, 40):  # an open size
        at, where = np.linspace(-1, 1, size), np.array([1, 3])
        compare(lambda f: f, ours, theirs, at, where)
    compare(lambda f: jax.grad(number(f)), ours, theirs, at, where)
    compare(lambda f: jax.hessian(number(f)), ours, theirs, at[:5], where)


def test_branches_and_loops_of_ours() -> None:
    x = sg.placeholder((), sg.float64, name="x")
    power, _ = sg.while_loop(
        lambda s: s[1] < 5, lambda s: (s[0] * x, s[1] + 1), (sg.ones((), sg.float64), sg.constant(0)), max_steps=8
    )
    ours = wrap(sg.Session().compile(sg.cond(x > 1, lambda: power * x, lambda: sg.sin(power)), x))

    def theirs(x: Any) -> Any:
        return jnp.where(x > 1, x**6, jnp.sin(x**5))

    for at in (0.7, 1.3):
        compare(lambda f: jax.grad(jax.grad(f)), ours, theirs, at, rtol=1e-11)
        compare(lambda f: lambda x: jax.jvp(f, (x,), (2.0,)), ours, theirs, at)
        same(jax.linearize(ours, at)[1](3.0), jax.linearize(theirs, at)[1](3.0))


def test_inputs_may_be_donated() -> None:
    at = jnp.linspace(-1, 1, 3)
    want = wave_of(at, A) + at
    same(jax.jit(lambda x: wave()(x, A) + x, donate_argnums=0)(at), want)


@pytest.mark.parametrize("name", [*xla.DTYPES])
def test_every_dtype(name: str) -> None:
    dtype = sg.bfloat16 if name == "bfloat16" else np.dtype(name)
    x = sg.placeholder((2, 3), dtype, name="x")
    ours = wrap(sg.Session().compile([sg.flip(x, axis=1), x], x))
    at = np.arange(6).reshape(2, 3).astype(dtype)
    for got, want in zip(jax.jit(ours)(at), (at[:, ::-1], at), strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)
    if jnp.issubdtype(dtype, jnp.floating):
        (slope,) = jax.vjp(ours, jnp.asarray(at))[1]([at, at])
        np.testing.assert_array_equal(slope, at + at[:, ::-1])


def test_sizes_of_zero_and_no_feeds() -> None:
    x = sg.placeholder((None, 2), sg.float64)
    ours = wrap(sg.Session().compile([x * 2, sg.sum(x)], x))
    doubled, total = jax.jit(ours)(np.zeros((0, 2)))
    assert (doubled.shape, float(total)) == ((0, 2), 0.0)
    fixed = wrap(sg.Session().compile(sg.arange(3) * 2, []))
    assert jax.jit(fixed)().tolist() == [0, 2, 4]


def test_a_fed_tensor_that_depends_on_another_one_is_independent() -> None:
    x = sg.placeholder((), sg.float64)
    y = x * x
    ours = wrap(sg.Session().compile(x * y, [x, y]))
    slopes = jax.grad(ours, (0, 1))(3.0, 5.0)
    assert [float(s) for s in slopes] == [5.0, 3.0]


def test_the_users_graph_stays_as_it_is(g: sg.Graph) -> None:
    x = sg.placeholder((3,), sg.float64)
    y = sg.sum(sg.exp(x))
    g.finalize()
    before = str(g)
    ours = wrap(sg.Session().compile(y, x))
    compare(jax.hessian, ours, lambda x: jnp.sum(jnp.exp(x)), X)
    assert str(g) == before


def test_rules_of_the_users_own_and_stopped_gradients() -> None:
    @sg.custom_gradient
    def passed(x: Any) -> Any:
        return sg.round(x), lambda ct: ct * 3.0

    x = sg.placeholder((2,), sg.float64)
    ours = wrap(sg.Session().compile(sg.sum(passed(x) * x + sg.stop_gradient(x) * x), x))
    at = np.array([1.25, -2.5])
    np.testing.assert_allclose(jax.grad(ours)(jnp.asarray(at)), 3.0 * at + np.round(at) + at)


def test_state_is_what_it_was_until_it_is_taken_anew() -> None:
    x, w = sg.placeholder((2,), sg.float64), sg.Variable(np.array([1.0, 2.0]), name="w")
    sess = sg.Session()
    ours = wrap(sess.compile(x * w * w, x))
    at = jnp.ones(2)
    compiled = jax.jit(lambda x: ours(x))
    assert compiled(at).tolist() == [1.0, 4.0]
    sess.set(w, [3.0, 4.0])
    slope = jax.jit(jax.jacrev(ours))  # compiled later, of the same state
    assert compiled(at).tolist() == [1.0, 4.0]
    assert jnp.diag(slope(at)).tolist() == [1.0, 4.0]
    ours.refresh()
    assert compiled(at).tolist() == [9.0, 16.0]
    assert jnp.diag(slope(at)).tolist() == [9.0, 16.0]


def test_the_state_of_a_session_is_not_kept_for_ever() -> None:
    x = sg.placeholder((2,), sg.float64)
    w, other = (sg.Variable(np.array([1.0, 2.0]), name=name) for name in ("w", "other"))
    sess = sg.Session()
    sess.run([w, other])
    ours = wrap(sess.compile(x * w, x))
    compiled = jax.jit(jax.jacrev(ours)).lower(jnp.ones(2)).compile()
    state = ours._common._state
    assert (w.op.attrs.key in state._values, other.op.attrs.key in state._values) == (True, False)
    gone = [weakref.ref(state), weakref.ref(ours._common)]
    del state, ours
    jax.clear_caches()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert jnp.diag(compiled(jnp.ones(2))).tolist() == [1.0, 2.0]


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_failed_check_is_an_error_of_jax() -> None:
    x, index = sg.placeholder((3,), sg.float64, name="x"), sg.placeholder((), sg.int64, name="index")
    total = sg.sum(x)
    with sg.control_dependencies([sg.assert_(total < 10, "the sum is too large")]):
        y = sg.identity(sg.take(x, index, axis=0)) * 2
    ours = wrap(sg.Session().compile(y, [x, index]))
    for call in (ours, jax.jit(ours), jax.grad(ours)):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"program of x, index: an index is out of range: take"):
            jax.block_until_ready(call(jnp.asarray(X), 3))
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"program of x, index: a check failed: the sum is too"):
            jax.block_until_ready(call(10 + jnp.asarray(X), 1))
        jax.block_until_ready(call(jnp.asarray(X), 1))
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of range"):
        jax.block_until_ready(jax.vmap(ours, (None, 0))(X, np.array([0, 1, 7])))


def test_numbers_that_are_checked() -> None:
    x = sg.placeholder((), sg.float64, name="x")
    ours = wrap(sg.Session(check_numerics=True).compile(sg.sqrt(x), x))
    assert float(jax.jit(jax.grad(ours))(4.0)) == 0.25
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"a check failed.*sqrt"):
        jax.block_until_ready(jax.jit(ours)(-1.0))
    with pytest.raises(jax.errors.JaxRuntimeError, match="a check failed"):
        jax.block_until_ready(jax.jit(jax.grad(ours))(0.0))


def test_what_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    x = sg.placeholder((None,), name="x")
    sess = sg.Session()
    ours = wrap(sess.compile(x * 2, x))
    with monkeypatch.context() as patch:
        patch.setenv("STATICGRAD_BACKEND", "reference")
        with pytest.raises(sg.StaticGradError, match="the reference backend compiles nothing"):
            ours(np.ones(2, np.float32))
    compiled = jax.jit(ours)
    assert compiled(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    sess.close()
    assert compiled(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    with pytest.raises(sg.StaticGradError, match="the session is closed"):
        compiled(np.ones(3, np.float32))


def test_wrong_arrays_are_refused_when_traced() -> None:
    n = sg.dim("n")
    x, y = sg.placeholder((n, 2), name="x"), sg.placeholder((n,), name="y")
    ours = wrap(sg.Session().compile(x * y[:, None], [x, y]))
    f32 = functools.partial(jnp.ones, dtype=jnp.float32)
    with pytest.raises(sg.FeedError, match=r"expected 2 arrays \(for 'x', 'y'\), actual 1"):
        ours(f32((3, 2)))
    with pytest.raises(sg.FeedError, match=r"(?s)feed of 'x': wrong dtype.*float32.*float64.*astype"):
        jax.jit(ours)(jnp.ones((3, 2)), f32(3))
    with pytest.raises(sg.FeedError, match=r"(?s)feed of 'x': wrong dtype.*complex64"):
        ours(jnp.ones((3, 2), jnp.complex64), f32(3))
    with pytest.raises(sg.FeedError, match=r"(?s)feed of 'x': wrong shape.*\(n, 2\).*\(3, 1\)"):
        ours(f32((3, 1)), f32(3))
    with pytest.raises(sg.FeedError, match="axis 0"):
        ours(f32((3, 2)), f32(4))
    with pytest.raises(sg.FeedError, match="feed of 'y'"):
        ours(f32((3, 2)), "three")
    assert ours(jnp.ones((3, 2), jnp.float16), jnp.ones(3, jnp.int8)).dtype == jnp.float32  # these cast safely
    assert jax.jit(lambda a: ours(f32((1, 2)), a * f32(1)))(2.0).tolist() == [[2.0, 2.0]]


def test_numbers_of_python_take_the_declared_dtype() -> None:
    x = sg.placeholder((), sg.float32)
    ours = wrap(sg.Session().compile(x * 2, x))
    assert jax.jit(ours)(1.5).dtype == jnp.float32
    assert float(jax.jit(ours)(2)) == 4.0


def test_64_bits_without_jaxs_switch() -> None:
    x = sg.placeholder((2,), sg.float64)
    narrow = sg.placeholder((2,), sg.float32)
    sess = sg.Session()
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(sg.FeedError, match=r"float64 is among its dtypes.*jax_enable_x64"):
        wrap(sess.compile(x * 2, x))(np.ones(2))
    with pytest.raises(sg.FeedError, match=r"int64 is among its dtypes.*jax_enable_x64"):
        wrap(sess.compile(sg.argmax(narrow), narrow))(np.ones(2, np.float32))
    assert wrap(sess.compile(narrow * 2, narrow))(np.ones(2, np.float32)).tolist() == [2.0, 2.0]


def test_programs_that_are_no_functions_are_refused() -> None:
    x, w = sg.placeholder((2,), name="x"), sg.Variable(np.zeros(2, np.float32), name="w")
    sess = sg.Session()
    with pytest.raises(sg.GraphError, match="it writes variable 'w'"):
        wrap(sess.compile([x, sg.assign(w, x)], x))
    with pytest.raises(sg.GraphError, match="it calls Python"):
        wrap(sess.compile(sg.print(x, "x") * 2, x))
    with pytest.raises(sg.GraphError, match="draws random numbers"):
        wrap(sess.compile(x * sg.random.uniform((2,)), x))
    with pytest.raises(sg.GraphError, match="fetches ops alone"):
        wrap(sess.compile(sg.group(x), x))
    with pytest.raises(sg.GraphError, match=r"expected an executable \(sess.compile\), actual <function"):
        wrap(wave_of)  # type: ignore[arg-type]


def test_an_op_without_a_derivative() -> None:
    x = sg.placeholder((2, 2), sg.float64, name="x")

    @sg.custom_gradient
    def rule(x: Any) -> Any:
        return x * x, sg.once_differentiable(lambda ct: 2 * ct * x)

    ours = wrap(sg.Session().compile(sg.sum(rule(x)), x))
    at = jnp.ones((2, 2))
    assert jax.grad(ours)(at).tolist() == [[2.0, 2.0]] * 2
    with pytest.raises(sg.GradientError, match="trying to differentiate twice"):
        jax.hessian(ours)(at)


def test_the_handler_refuses_buffers_that_do_not_fit() -> None:
    """What JAX never hands over: other counts, ranks, sizes and dtypes than the program's."""
    ours = wave()
    jax.block_until_ready(ours(X, A))
    words = ours._program(((3,), ())).words()

    def call(result: Any, *arrays: Any) -> Any:
        fn = jax.ffi.ffi_call(sys.modules["staticgrad.bridges.jax"]._TARGET, jax.ShapeDtypeStruct(*result))
        return jax.block_until_ready(jax.jit(lambda *a: fn(*a, program=np.int64(words)))(*arrays))

    same(call(((3,), np.float64), X, A), wave_of(X, A))
    same(call(((2, 3), np.float64), X, np.array([1.0, 2.0])), jnp.stack([wave_of(X, 1.0), wave_of(X, 2.0)]))
    for result, arrays in (
        (((3,), np.float64), (X,)), (((3,), np.float32), (X, A)), (((4,), np.float64), (X, A)),
        (((3,), np.float64), (X.astype(np.float32), A)), (((2, 3), np.float64), (X, np.ones(3))),
        (((3,), np.float64), (X, np.ones(1))), (((3,), np.float64), (np.ones((2, 3)), A)), (((), np.float64), (X, A)),
    ):  # fmt: skip
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"program of x, a: expected buffers \(float64\[3\]"):
            call(result, *arrays)


def turning(count: int, *, first: bool, dtype: Any = sg.float64) -> Any:
    """A step of ``count`` leaves, each of which moves the next one, with a parameter before or behind them."""
    with sg.Graph() as graph:
        rate, x = sg.placeholder((), dtype, name="rate"), sg.placeholder((), dtype, name="x")
        leaves = [sg.placeholder((), dtype) for _ in range(count)]
        moved = [a + rate * leaves[n - 1] for n, a in enumerate(leaves)]
        feeds = [rate, *leaves, x] if first else [*leaves, x, rate]
        return wrap(sg.Session(graph).compile((moved, moved[0] - leaves[-1] + x), feeds))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_loop_copies_no_leaf_of_its_carry(first: bool, dtype: Any) -> None:
    """Results lie where the feeds were, which the program reads after it has written some of them."""
    count, xs = 24, np.linspace(0.0, 1.0, 30).astype(dtype)
    ours = turning(count, first=first, dtype=dtype)

    def body(leaves: Any, x: Any) -> Any:
        return ours(dtype(0.1), *leaves, x) if first else ours(*leaves, x, dtype(0.1))

    def body_of_jax(leaves: Any, x: Any) -> Any:
        moved = [a + dtype(0.1) * leaves[n - 1] for n, a in enumerate(leaves)]
        return moved, moved[0] - leaves[-1] + x

    begun = [jnp.asarray(0.1 * n, dtype) for n in range(count)]
    compiled = jax.jit(lambda c, xs: jax.lax.scan(body, c, xs)).lower(begun, xs).compile()
    turn = next(text for text in compiled.as_text().split("\n\n") if "custom-call" in text)
    assert turn.count(" copy(") < 5
    got, want = compiled(begun, xs), jax.lax.scan(body_of_jax, begun, xs)
    same(got, want, 1e-12 if dtype is np.float64 else 1e-5)
    batch = [jnp.stack([a, a + 1, a - 2]) for a in begun]  # of each leaf at once
    each = jax.vmap(lambda c: jax.lax.scan(body, c, xs)[0])(batch)
    same(each, jax.vmap(lambda c: jax.lax.scan(body_of_jax, c, xs)[0])(batch), 1e-12 if dtype is np.float64 else 1e-5)


def test_feeds_that_results_lie_in_may_be_read_later() -> None:
    ours = turning(3, first=True)
    at = [jnp.asarray(float(n)) for n in range(1, 4)]

    def used(*leaves: Any) -> Any:
        moved, y = ours(0.1, *leaves, 0.5)
        again, _ = ours(0.1, *moved, 0.5)
        return [a + b + c for a, b, c in zip(leaves, moved, again, strict=True)], y

    plain = [a + 0.1 * at[n - 1] for n, a in enumerate(at)]
    twice = [a + 0.1 * plain[n - 1] for n, a in enumerate(plain)]
    want = [a + b + c for a, b, c in zip(at, plain, twice, strict=True)], plain[0] - at[-1] + 0.5
    same(jax.jit(used)(*at), want)
    same(jax.jit(used, donate_argnums=(0, 1, 2))(*[a + 0.0 for a in at]), want)


def test_pairs_of_feeds_and_results_that_a_loop_carries() -> None:
    def pairs(function: Any, *shapes: Any) -> dict[int, int]:
        return xla.in_place(function._program(shapes).derivable)

    assert pairs(turning(5, first=True), *[()] * 7) == {n + 1: n for n in range(6)}
    assert pairs(turning(5, first=False), *[()] * 7) == {n: n for n in range(6)}
    assert pairs(wave(), (3,), ()) == {0: 0}
    back = turning(5, first=True)._program(((),) * 7).derivable.pullback((1, 2, 3, 4, 5), (0, 1, 2, 3, 4))
    assert xla.in_place(back) == {n + 7: n for n in range(5)}  # cotangents alone
    x = sg.placeholder((200,), sg.float64)
    assert pairs(wrap(sg.Session().compile(x + 1, x)), (200,)) == {}  # too large to be copied to a stack
    y = [sg.placeholder((64,), sg.float64) for _ in range(12)]
    assert pairs(wrap(sg.Session().compile([a + 1 for a in y], y)), *[(64,)] * 12) == {n: n for n in range(8)}
    assert pairs(wrap(sg.Session().compile(sg.sum(y[0]), y[0])), (64,)) == {}


def test_versions_of_the_interface() -> None:
    text = "#define XLA_FFI_API_MAJOR {}\n\n#define XLA_FFI_API_MINOR 7\n"
    assert xla.version(text.format(0)) == (0, 7)
    with pytest.raises(sg.StaticGradError, match=r"expected version 0.x of its C interface, actual 1.7"):
        xla.version(text.format(1))
    with pytest.raises(sg.StaticGradError, match="expected version 0"):
        xla.version("")


def test_without_jax_the_extra_is_named() -> None:
    code = "import sys; sys.modules['jax'] = None; import staticgrad.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: staticgrad.jax needs JAX: pip install '.[jax]'" in done.stderr


# -- threads and memory -----------------------------------------------------------------------------------------------


def test_many_threads_at_once() -> None:
    width = 300  # scratch memory in blocks of the threads
    x, w = (
        sg.placeholder((7, width)),
        sg.Variable(np.random.default_rng(0).normal(size=(width, width)) / width, dtype=sg.float32),
    )
    y = sg.nn.softmax(sg.tanh(x @ w) @ w, 1)
    ours = jax.jit(jax.value_and_grad(wrap(sg.Session().compile(sg.sum(y * y), x))))
    arrays = [np.random.default_rng(n).normal(size=(7, width)).astype(np.float32) for n in range(4)]
    wanted = [jax.tree.map(np.asarray, ours(a)) for a in arrays]
    wrong: list[Any] = []

    def work(n: int) -> None:
        for _ in range(30):
            value, slope = ours(arrays[n])
            if not (np.array_equal(value, wanted[n][0]) and np.array_equal(slope, wanted[n][1])):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_compiled_programs_outlive_what_they_were_made_of() -> None:
    def made() -> Callable[..., Any]:
        with sg.Graph() as graph:
            x, w = sg.placeholder((3,), sg.float64), sg.Variable(np.array([1.0, 2.0, 3.0]), name="w")
            ours = wrap(sg.Session(graph).compile(sg.sum(x * w * w), x))
        return jax.jit(jax.value_and_grad(ours)).lower(jnp.asarray(X)).compile()

    compiled = made()
    gc.collect()
    value, slope = compiled(jnp.asarray(X))
    np.testing.assert_allclose(value, X @ np.array([1, 4, 9]))
    assert slope.tolist() == [1.0, 4.0, 9.0]


def test_a_function_keeps_its_executable() -> None:
    ours = wave()
    gc.collect()
    assert "executable (x float64[3], a float64[])" in repr(ours)
    assert ours.executable(X, A).tolist() == ours(X, A).tolist()
    assert "program of x, a" in str(jax.make_jaxpr(ours)(X, A))


def test_the_door_imports_no_kernel_language_of_jax() -> None:
    code = "import sys, staticgrad.jax; sys.exit(any('pallas' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
