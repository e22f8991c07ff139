"""Functions of JAX, converted: primitives beside JAX in values and derivatives, functions as people write them, rules,
refusals, and ``jit`` under JAX's transformations."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from support.jax_cases import GROUPS, JaxCase, clipped, tripled  # noqa: E402

import staticgrad as sg  # noqa: E402
from staticgrad.bridges.importer import RefusedError  # noqa: E402
from staticgrad.bridges.jaxpr import CONVERTERS, versions  # noqa: E402
from staticgrad.bridges.jaxpr.conversion import JAX  # noqa: E402
from staticgrad.graph.graph import Node  # noqa: E402
from staticgrad.jax import convert, jit  # noqa: E402
from staticgrad.ops.interpreter import evaluate  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from jax_functions import FUNCTIONS  # noqa: E402

# Converters of primitives that other releases of JAX have, or that only its own transformations make.
ELSEWHERE = {
    "add_any", "broadcast_to", "call", "checkpoint", "closed_call", "composite", "conj", "copy_p",
    "copy_to", "core_call", "custom_vjp_call_jaxpr", "custom_vmap_call", "dce_sink", "dim_as_value", "empty",
    "empty2", "eq_to", "error_if", "expand_dims", "iota_2x32_shape", "jaxpr_call", "layout_constraint", "pjit",
    "pvary", "real", "reciprocal", "reduced_vary_cast", "remat", "scatter_add", "scatter_max", "scatter_min",
    "scatter_mul",
    "scatter_sub", "select_and_scatter", "sharding_constraint", "stage", "threefry2x32", "zeros_like",
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide() -> None:
    jax.config.update("jax_enable_x64", True)  # until the test ends


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def is_floating(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


# -- primitives -------------------------------------------------------------------------------------------------------


@dataclass
class Constants:
    """A graph that is fed, for the interpreter."""

    graph: sg.Graph
    fetches: tuple[sg.graph.graph.Tensor, ...]
    feeds: tuple[sg.graph.graph.Tensor, ...]
    effects: tuple[Node, ...] = field(default=())


class Compared:
    """A case with arguments of a dtype, cotangents and directions, and its results by both."""

    def __init__(self, case: JaxCase, dtype: Any) -> None:
        self.case = case
        arrays = map(np.asarray, case.args)
        self.args = [a.astype(dtype) if a.dtype == np.float64 else a for a in arrays]
        rng = np.random.default_rng(1)
        types = jax.tree.leaves(jax.eval_shape(case.fn, *self.args))
        self.cotangents = [rng.normal(size=t.shape).astype(t.dtype) for t in types if is_floating(t)]
        self.directions = [rng.normal(size=a.shape).astype(a.dtype) for a in self.args if is_floating(a)]
        self.data = self.args, self.cotangents, self.directions

    def theirs(self, args: Sequence[Any], cotangents: Sequence[Any], directions: Sequence[Any]) -> list[list[Any]]:
        moving = [n for n, a in enumerate(args) if is_floating(a)]

        def values(*given: Any) -> list[Any]:
            whole = dict(enumerate(args)) | dict(zip(moving, given))
            return jax.tree.leaves(self.case.fn(*(jnp.asarray(whole[n]) for n in range(len(args)))))

        def slopes(*given: Any) -> Any:
            function = lambda *xs: [y for y in values(*xs) if is_floating(y)]  # noqa: E731
            return jax.vjp(function, *given)[1](list(cotangents))

        def along(*given: Any) -> Any:
            return sum(jnp.sum(d * v) for d, v in zip(slopes(*given), directions))

        given = [args[n] for n in moving]
        results = [values(*given)]
        results += [slopes(*given)] if self.case.order else []
        return results + ([jax.grad(along, tuple(range(len(given))))(*given)] if self.case.order > 1 else [])

    def declare(self) -> tuple[list[Any], list[list[Any]]]:
        """What is fed, and of ours the values, gradients and second gradients."""
        xs = [sg.placeholder(a.shape, a.dtype) for a in self.args]
        found = [jax.tree.leaves(convert(self.case.fn, max_steps=64)(*xs))]
        by = [x for x in xs if x.dtype.kind == "f"]
        if self.case.order:
            floating = [y for y in found[0] if y.dtype.kind == "f"]
            found.append(sg.gradients(floating, by, self.cotangents, unconnected_gradients="zero"))
        if self.case.order > 1:
            along = [sg.sum(d * v) for d, v in zip(found[1], self.directions)]
            found.append(sg.gradients(along, by, unconnected_gradients="zero"))
        return xs, found

    def differences(self, ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> Iterator[str]:
        for what, mine, other in zip(("value", "gradient", "second gradient"), ours, theirs):
            for number, (a, b) in enumerate(zip(mine, other, strict=True)):
                wanted = np.asarray(b)
                bits = min((x.dtype.itemsize for x in self.args if is_floating(x)), default=8)
                bound = (1e-12 if bits == 8 else 2e-5) * self.case.rtol * (1 if what == "value" else 10)
                place = f"{self.case.name}: {what} {number}"
                if (a.dtype, a.shape) != (wanted.dtype, wanted.shape):
                    yield f"{place}: expected {wanted.dtype}{wanted.shape}, actual {a.dtype}{a.shape}"
                elif not is_floating(wanted):
                    if not np.array_equal(a, wanted):
                        yield f"{place}: expected {wanted.ravel()[:9]}, actual {a.ravel()[:9]}"
                elif not np.allclose(*(x.astype(np.float64) for x in (a, wanted)), bound, bound, equal_nan=True):
                    yield f"{place}: expected {wanted.ravel()[:9]}, actual {a.ravel()[:9]}"


def by_interpreter(fetches: list[Any], feeds: dict[Any, Any]) -> list[Any]:
    computation = Constants(fetches[0].graph, tuple(fetches), tuple(feeds))
    return evaluate(computation, list(feeds.values()), lambda variable: np.empty(0)).values


def compiled(fetches: list[Any], feeds: dict[Any, Any]) -> list[Any]:
    with sg.Session() as sess:
        return sess.run(fetches, feeds)


ROUNDS = [
    pytest.param(np.float64, compiled, id="float64", marks=pytest.mark.share(3)),
    pytest.param(np.float32, by_interpreter, id="float32", marks=pytest.mark.slow),
]


# Cases that XLA may not compile: it ends the process over the ops on bits of all dtypes, and leaves out roundings.
EAGER = ("bits", "short floats")


@pytest.mark.parametrize(("dtype", "run"), ROUNDS)
@pytest.mark.parametrize("group", GROUPS)
def test_primitives_have_jax_s_values_and_derivatives(group: str, dtype: Any, run: Callable[..., Any]) -> None:
    compared = [Compared(case, dtype) for case in GROUPS[group]]
    data = [each.data for each in compared]

    def of_all(data: Any) -> list[Any]:
        return [each.theirs(*given) for each, given in zip(compared, data)]

    if group == "bits":
        alone = [each.theirs if each.case.name in EAGER else jax.jit(each.theirs) for each in compared]
        theirs = [function(*given) for function, given in zip(alone, data)]
    else:
        theirs = jax.jit(of_all)(data)
    declared = [each.declare() for each in compared]
    feeds = {x: a for each, (xs, _) in zip(compared, declared) for x, a in zip(xs, each.args, strict=True)}
    values = iter(run([y for _, found in declared for part in found for y in part], feeds))
    ours = [[[next(values) for _ in part] for part in found] for _, found in declared]
    wrong = [text for each, mine, other in zip(compared, ours, theirs) for text in each.differences(mine, other)]
    assert not wrong, "\n".join(wrong)


def primitives_of(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield JAX.key(equation)
        for body in versions.bodies_of(equation.params):
            yield from primitives_of(versions.parts_of(body)[0])


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="older releases have fewer primitives")
def test_each_converter_has_a_case() -> None:
    cases = [case for group in GROUPS.values() for case in group]
    tried = {name for case in cases for name in primitives_of(jax.make_jaxpr(case.fn)(*case.args).jaxpr)}
    elsewhere = ELSEWHERE | {f"complex {name}" for name in ELSEWHERE}
    assert set(CONVERTERS) - tried - elsewhere - {""} == set()


# -- functions as people write them ------------------------------------------------------------------------------------


@pytest.mark.share(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_jax_s_values_and_gradients(name: str, g: sg.Graph) -> None:
    pytest.importorskip("flax")
    pytest.importorskip("optax")
    fn, args = FUNCTIONS[name](0)
    args = [np.asarray(a) for a in args]
    xs = [sg.placeholder(a.shape, a.dtype) for a in args]
    by = [n for n, a in enumerate(args) if is_floating(a)]
    y = convert(fn, max_steps=200)(*xs)
    slopes = sg.gradients(y, [xs[n] for n in by], unconnected_gradients="zero")
    with sg.Session() as sess:
        value, *found = sess.run([y, *slopes], dict(zip(xs, args, strict=True)))
    expected, wanted = jax.jit(jax.value_and_grad(fn, argnums=tuple(by)))(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11 * (1 + np.max(np.abs(theirs))))


OPTIMIZERS = (
    "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "adan", "amsgrad", "lamb", "lars",
    "lion", "nadam", "novograd", "radam", "rmsprop", "rprop", "sgd", "sm3", "yogi",
)  # fmt: skip


@pytest.mark.share(7)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers_are_optax_s(name: str) -> None:
    optax = pytest.importorskip("optax")
    optimizer = getattr(optax, name)(0.01)

    def after_steps(w: Any, x: Any) -> Any:
        state = optimizer.init(w)
        for _ in range(2):
            slope = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
            updates, state = optimizer.update(slope, state, w)
            w = optax.apply_updates(w, updates)
        return w, state

    rng = np.random.default_rng(0)
    args = rng.normal(size=(3, 2)), rng.normal(size=(4, 3))
    xs = [sg.placeholder(a.shape, sg.float64) for a in args]
    found = by_interpreter(jax.tree.leaves(convert(after_steps)(*xs)), dict(zip(xs, args)))
    wanted = jax.tree.leaves(jax.jit(after_steps)(*args))
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


# -- what convert takes and gives --------------------------------------------------------------------------------------


def test_nests_come_in_and_go_out_with_tensors_as_leaves() -> None:
    x, y = sg.placeholder((2,), sg.float64), sg.placeholder((), sg.float64)

    def fn(state: Any, scale: Any, *, shift: Any) -> Any:
        return {"b": state["x"] * scale, "a": (state["rest"][0] + shift, None)}

    found = convert(fn)({"x": x, "rest": [y]}, np.array([2.0, 3.0]), shift=1.5)
    assert list(found) == ["a", "b"]
    assert found["a"][1] is None
    values = sg.Session().run(found, {x: [1.0, 1.0], y: 4.0})
    assert values["b"].tolist() == [2.0, 3.0]
    assert values["a"][0] == 5.5


def test_results_that_depend_on_nothing_are_tensors() -> None:
    x = sg.placeholder((2,), sg.float64)
    one, whole = convert(lambda x: (1, jnp.arange(3.0)))(x)
    assert sg.Session().run([one, whole])[1].tolist() == [0, 1, 2]


def test_what_a_function_reads_from_around_is_one_constant(g: sg.Graph) -> None:
    table = jnp.asarray(np.random.default_rng(0).normal(size=(50, 50)))
    x = sg.placeholder((50,), sg.float64)
    y = convert(lambda x: table @ x + (table @ (x * 2)) + table.sum())(x)
    assert sum(node.op.name == "constant" and node.outputs[0].size == 2500 for node in g.nodes) == 1
    v = np.ones(50)
    np.testing.assert_allclose(
        sg.Session().run(y, {x: v}), 3 * np.asarray(table) @ v + np.asarray(table).sum(), rtol=1e-10
    )


def test_known_indices_are_computed_when_a_function_is_converted(g: sg.Graph) -> None:
    x = sg.placeholder((8,), sg.float64)
    convert(lambda x: x[(jnp.arange(4) * 2 + 1) % 8])(x)
    assert not any(node.op.name in ("remainder", "iota", "multiply") for node in g.nodes)


def test_without_x64_the_traced_dtypes_hold() -> None:
    x = sg.placeholder((2,), sg.float64)
    jax.config.update("jax_enable_x64", False)
    y = convert(lambda x: jnp.exp(x))(x)
    assert y.dtype == sg.float32


def test_a_wrong_word_for_derivatives_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="'source' or 'ours', not 'mine'"):
        convert(jnp.exp, derivatives="mine")
    with pytest.raises(sg.GraphError, match="'source' or 'ours', not 'mine'"):
        jit(jnp.exp, derivatives="mine")


def test_a_function_is_converted_in_the_body_of_a_loop() -> None:
    rows = sg.placeholder((3, 2), sg.float64)
    fn = convert(lambda c, r: (jnp.tanh(c + r), jnp.sum(r)))
    carry, sums = sg.scan(fn, sg.zeros((2,), dtype=sg.float64), rows)
    (slope,) = sg.gradients(carry, rows)
    values = np.random.default_rng(0).normal(size=(3, 2))
    found = sg.Session().run([carry, sums, slope], {rows: values})
    scanned = lambda rows: lax.scan(lambda c, r: (jnp.tanh(c + r), jnp.sum(r)), jnp.zeros(2), rows)  # noqa: E731
    np.testing.assert_allclose(found[0], scanned(values)[0], rtol=1e-12)
    np.testing.assert_allclose(found[2], jax.grad(lambda r: scanned(r)[0].sum())(values), rtol=1e-12)


# -- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [tripled, clipped])
def test_rules_of_the_source_are_kept_or_not(fn: Any) -> None:
    x, y = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
    kept, ours = (sg.gradients(convert(fn, derivatives=d)(x, y), [x, y]) for d in ("source", "ours"))
    found = sg.Session().run([kept, ours], {x: 0.3, y: 1.7})
    np.testing.assert_allclose(found[0], jax.grad(fn, (0, 1))(0.3, 1.7), rtol=1e-12)
    factor = np.cos(0.3) * 1.7 if fn is tripled else np.exp(0.3) * 1.7
    np.testing.assert_allclose(found[1][0], factor, rtol=1e-12)


def test_a_kept_rule_for_tangents_serves_forward_mode() -> None:
    x = sg.placeholder((3,), sg.float64)
    (t,) = sg.jvp(convert(lambda x: tripled(x, 2.0))(x), [x], [np.ones(3)])
    v = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(sg.Session().run(t, {x: v}), 6 * np.cos(v), rtol=1e-12)


def test_a_solution_has_tangents() -> None:
    a, b = sg.placeholder((3, 3), sg.float64), sg.placeholder((3,), sg.float64)
    given = np.random.default_rng(0).normal(size=(3, 3)), np.arange(3.0)
    moved = np.random.default_rng(1).normal(size=(3, 3)), np.ones(3)
    (t,) = sg.jvp(convert(jnp.linalg.solve)(a, b), [a, b], list(moved))
    wanted = jax.jvp(jnp.linalg.solve, given, moved)[1]
    np.testing.assert_allclose(sg.Session().run(t, dict(zip((a, b), given))), wanted, rtol=1e-10)


def test_a_rule_is_told_which_operands_may_move() -> None:
    @jax.custom_vjp
    def scaled(x: Any, y: Any) -> Any:
        return x * y

    def forward(x: Any, y: Any) -> Any:
        assert x.perturbed
        assert not y.perturbed
        return x.value * y.value, y.value

    scaled.defvjp(forward, lambda y, ct: (3 * y * ct, None), symbolic_zeros=True)
    x = sg.placeholder((2,), sg.float64)
    (slope,) = sg.gradients(convert(lambda x: scaled(x, jnp.floor(x) + 2.0))(x), x)
    assert sg.Session().run(slope, {x: [1.0, 2.5]}).tolist() == [9.0, 12.0]


def test_a_rule_that_reads_what_is_computed_around_it_is_refused() -> None:
    x = sg.placeholder((2,), sg.float64)

    def fn(x: Any) -> Any:
        scale = 2 * lax.stop_gradient(x)

        @jax.custom_vjp
        def scaled(y: Any) -> Any:
            return y * scale

        scaled.defvjp(lambda y: (y * scale, None), lambda _, ct: (7 * ct,))
        return scaled(x)

    y = convert(fn)(x)
    with pytest.raises(sg.UnsupportedError, match=r"custom_vjp_call.*: its rule reads a value that is"):
        sg.gradients(y, x)


def test_a_rule_that_applies_its_function_to_tangents_is_transposed() -> None:
    @jax.custom_jvp
    def product(a: Any, x: Any) -> Any:
        return a @ x

    product.defjvp(lambda primals, tangents: (product(*primals), product(tangents[0], primals[1]) + 2 * tangents[1]))
    a, x = sg.placeholder((2, 2), sg.float64), sg.placeholder((2,), sg.float64)
    fn = lambda a, x: jnp.sum(product(a, jnp.sin(x)) ** 3)  # noqa: E731
    slopes = sg.gradients(convert(fn)(a, x), [a, x])
    again = sg.gradients([sg.sum(slope) for slope in slopes], [a, x])
    given = np.array([[0.5, 1.5], [-0.3, 2.0]]), np.array([0.2, 0.9])
    found = sg.Session().run([slopes, again], dict(zip((a, x), given)))
    summed = lambda a, x: sum(jnp.sum(slope) for slope in jax.grad(fn, (0, 1))(a, x))  # noqa: E731
    for mine, theirs in zip(found, (jax.grad(fn, (0, 1))(*given), jax.grad(summed, (0, 1))(*given))):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_solutions_in_a_scan_have_second_derivatives() -> None:
    def fn(a: Any, b: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            return jnp.linalg.solve(a + state[0] * jnp.eye(2), state + row), None

        return jnp.sum(lax.scan(step, b, jnp.arange(3.0))[0])

    a, b = sg.placeholder((2, 2), sg.float64), sg.placeholder((2,), sg.float64)
    slopes = sg.gradients(convert(fn)(a, b), [a, b])
    along = [np.array([[1.0, 0.5], [-0.5, 2.0]]), np.array([0.3, 1.0])]
    second = sg.gradients([sg.sum(s * d) for s, d in zip(slopes, along)], [a, b])
    forward = sg.jvp(slopes, [a, b], along)
    given = np.array([[2.0, 0.3], [-0.4, 3.0]]), np.array([0.2, 0.9])
    wanted = jax.jvp(jax.grad(fn, (0, 1)), given, tuple(along))[1]
    found = sg.Session().run([second, forward], dict(zip((a, b), given)))
    for mine in found:
        for one, other in zip(mine, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)


def test_max_steps_lets_a_while_loop_be_derived_in_reverse() -> None:
    x = sg.placeholder((), sg.float64)
    fn = lambda x: lax.while_loop(lambda v: v < 100, lambda v: v * x, x)  # noqa: E731
    with pytest.raises(sg.GradientError, match="max_steps"):
        sg.gradients(convert(fn)(x), x)
    (slope,) = sg.gradients(convert(fn, max_steps=20)(x), x)
    assert sg.Session().run(slope, {x: 3.0}) == 5 * 3.0**4


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_all_that_is_not_supported_is_said_at_once_with_lines_and_nothing_is_declared(g: sg.Graph) -> None:
    x = sg.placeholder((4,), sg.float64)

    def fn(x: Any) -> Any:
        y = jnp.linalg.eigvals(jnp.outer(x, x))  # the first
        jax.debug.print("{}", x)  # the second
        eigenvalue = lambda x: jnp.linalg.eigvals(x[None, None]).real[0]  # noqa: E731
        return lax.scan(lambda c, r: (c, eigenvalue(r)), 0.0, jnp.abs(y))[1]

    count = len(g.nodes)
    with pytest.raises(sg.UnsupportedError) as caught:
        convert(fn)(x)
    assert len(g.nodes) == count
    ops = {op.name: op for op in caught.value.ops}
    assert ops["eig"].count == 2
    assert "complex" in ops["eig"].reason
    assert "sg.print" in next(op.reason for name, op in ops.items() if name.startswith("debug"))
    assert "# the first" in ops["eig"].sources[0].text
    assert ops["eig"].sources[0].file == __file__
    assert "JAX: the program has ops that are not supported here" in str(caught.value)


def test_a_complex_result_or_state_is_refused() -> None:
    x = sg.placeholder((4,), sg.float64)
    with pytest.raises(sg.UnsupportedError, match=r"a result of type complex128\[4\]: return its real and imag"):
        convert(jnp.fft.fft)(x)
    with pytest.raises(sg.UnsupportedError, match=r"scan \(once\): of complex numbers it is not converted"):
        convert(lambda x: lax.scan(lambda c, r: (c * 1j + r, r), 0j, x)[0].real)(x)


def test_a_refusal_of_a_converter_names_types_and_line() -> None:
    x = sg.placeholder((1, 1, 2, 2, 2, 2), sg.float64)
    fn = lambda x: lax.conv_general_dilated(x, x, (1,) * 4, "VALID")  # noqa: E731
    with pytest.raises(RefusedError, match=r"conv_general_dilated \(float64\[.*: a convolution over 4 axes") as caught:
        convert(fn)(x)
    assert caught.value.source is not None
    assert "conv_general_dilated" in caught.value.source.text


def test_a_callback_is_refused_and_never_dropped() -> None:
    x = sg.placeholder((), sg.float64)
    for fn in (
        lambda x: jax.pure_callback(np.sin, x, x),
        lambda x: jax.experimental.io_callback(np.sin, x, x),
        lambda x: [jax.debug.callback(print, x), x][1],
    ):
        with pytest.raises(sg.UnsupportedError, match="a call of Python"):
            convert(fn)(x)


def test_errors_of_equinox_are_assertions() -> None:
    msgs = ["too small", "too large"]  # the name in Equinox

    def raises(number: Any) -> Any:
        raise RuntimeError(msgs[number.item()])

    raises.__module__ = "equinox._errors"

    def checked(x: Any) -> Any:
        wrong, number = (x < 0) | (x > 9), jnp.where(x < 0, 0, 1)
        return lax.cond(wrong, lambda: jax.pure_callback(raises, x, number), lambda: x * 2)

    x = sg.placeholder((), sg.float64)
    y, sess = convert(checked)(x), sg.Session()
    assert sess.run([y, *sg.gradients(y, x)], {x: 3.0}) == [6.0, 2.0]
    for value, message in ((-1.0, "too small"), (10.0, "too large")):
        with pytest.raises(sg.StaticGradError, match=message):
            sess.run(y, {x: value})


def test_an_error_that_no_run_comes_to_is_not_raised_when_a_function_is_converted() -> None:
    msgs = ["never"]  # the name in Equinox

    def raises(number: Any) -> Any:
        raise RuntimeError(msgs[number.item()])

    raises.__module__ = "equinox._errors"

    def checked(x: Any) -> Any:  # of the error, all operands are known
        return lax.cond(x < 0, lambda: jax.pure_callback(raises, x, jnp.array(0)), lambda: x * 2)

    x = sg.placeholder((), sg.float64)
    y, sess = convert(checked)(x), sg.Session()
    assert sess.run(y, {x: 3.0}) == 6.0
    with pytest.raises(sg.StaticGradError, match="never"):
        sess.run(y, {x: -1.0})


def test_a_primitive_of_a_third_party_is_what_its_implementation_does() -> None:
    from jax.extend.core import Primitive

    doubled = Primitive("doubled")
    doubled.def_impl(lambda x, *, by: jnp.sin(x) * by)
    doubled.def_abstract_eval(lambda x, *, by: x)
    x = sg.placeholder((2,), sg.float64)
    y = convert(lambda x: doubled.bind(x, by=2.0))(x)
    np.testing.assert_allclose(sg.Session().run(y, {x: [1.0, 2.0]}), 2 * np.sin([1.0, 2.0]), rtol=1e-12)


# -- jit --------------------------------------------------------------------------------------------------------------


def energy(x: Any, k: Any) -> Any:
    return jnp.sum(jax.nn.softplus(x) ** 2 * k)


X, K = np.linspace(-1, 1, 6).reshape(2, 3), np.array([0.5, 1.0, 2.0])

UNDER: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f(X, K),
    "jit": lambda f: jax.jit(lambda x, k: f(x * 2, k) + 1)(X, K),
    "grad": lambda f: jax.grad(f, argnums=(0, 1))(X, K),
    "value_and_grad in jit": lambda f: jax.jit(jax.value_and_grad(f))(X, K),
    "jvp": lambda f: jax.jvp(f, (X, K), (X, K)),
    "vmap": lambda f: jax.vmap(f, (0, None))(X, K),
    "grad of vmap": lambda f: jax.grad(lambda x: jax.vmap(f, (0, None))(x, K).sum())(X),
    "hessian": lambda f: jax.hessian(f)(X[0], K),
    "scan": lambda f: lax.scan(lambda c, r: (c + f(r, K), f(r + c, K)), 0.0, X),
}


@pytest.fixture(scope="module")
def compiled() -> Any:
    return jit(energy)


@pytest.mark.parametrize("under", UNDER)
def test_jit_works_wherever_jax_functions_do(compiled: Any, under: str) -> None:
    found, wanted = UNDER[under](compiled), UNDER[under](energy)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), found, wanted)


def test_jit_compiles_once_for_a_signature() -> None:
    traced = []

    @jit
    def fn(x: Any) -> Any:
        traced.append(x.shape)
        return {"y": x * 2}

    for shape in ((2,), (2,), (3,), (2,)):
        assert fn(np.ones(shape))["y"].tolist() == [2.0] * shape[0]
    assert traced == [(2,), (3,)]
    assert fn(np.ones(2, np.float32))["y"].dtype == np.float32


def test_jit_takes_static_arguments_names_and_numbers() -> None:
    fn = jit(lambda x, n, *, scale: x**n * scale, static_argnums=1, donate_argnums=0)
    assert fn(np.array([2.0]), 3, scale=10.0).tolist() == [80.0]
    assert fn(np.array([2.0]), 2, scale=10.0).tolist() == [40.0]
    assert fn(3.0, 2, scale=1).tolist() == 9.0


def test_jit_takes_and_gives_keys() -> None:
    fn = lambda key: (jax.random.split(key)[0], jax.random.bits(key, (4,), np.uint32))  # noqa: E731
    key = jax.random.key(5)
    (mine, bits), (theirs, wanted) = jit(fn)(key), fn(key)
    assert mine.dtype == theirs.dtype
    assert np.array_equal(jax.random.key_data(mine), jax.random.key_data(theirs))
    assert np.array_equal(bits, wanted)


def test_jit_reads_what_a_function_around_it_is_traced_with() -> None:
    def outer(x: Any, y: Any) -> Any:
        return jit(lambda x: jnp.sum(jnp.sin(x) * y))(x)

    x, y = np.array([0.1, 0.2]), np.array([2.0, 3.0])
    for found, wanted in zip(jax.jit(jax.grad(outer, (0, 1)))(x, y), (np.cos(x) * y, np.sin(x))):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_jit_may_be_called_by_several_threads() -> None:
    fn, found = jit(lambda x: jnp.sum(x) ** 2), []
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, float(fn(np.full(3, float(n))))))) for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(n, 9.0 * n * n) for n in range(6)]


def test_jit_without_arguments_or_of_none() -> None:
    assert jit(lambda: jnp.arange(3) * 2)().tolist() == [0, 2, 4]
    with pytest.raises(sg.GraphError, match="expected a function"):
        jit(3)  # type: ignore[arg-type]
