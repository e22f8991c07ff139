"""``sg.op``: one node with a name, the kernels of its expression, derivatives by a rule or by the expression."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.targets import EVERY

import staticgrad as sg
from staticgrad.functions import own
from staticgrad.graph.graph import Graph, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Fn = Callable[..., Any]


@pytest.fixture(autouse=True)
def names_of_one_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(own, "_DECLARED", {})
    with Graph():
        yield


def written_squareplus(x: Tensor) -> Tensor:
    return (x + sg.sqrt(x * x + 4.0)) / 2.0


def squareplus(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "reference": lambda x: (x + np.sqrt(x * x + 4.0)) / 2.0,
        "derivative": lambda g, x, y: g * y / (2.0 * y - x),
        "domain": (-3.0, 3.0),
    }
    return sg.op("squareplus", written_squareplus, **(given | changed))


def written_blend(x: Tensor, y: Tensor) -> Tensor:
    return sg.exp(-x * x) * y + sg.sin(y)


def blend(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "reference": lambda x, y: np.exp(-x * x) * y + np.sin(y),
        "derivative": lambda g, x, y, z: (-2.0 * x * y * sg.exp(-x * x) * g, (sg.exp(-x * x) + sg.cos(y)) * g),
    }
    return sg.op("blend", written_blend, **(given | changed))


def values(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def plain(kernels: str) -> str:
    """Kernels as text without their names and lines."""
    kernels = re.sub(r"^(\d+: \w+) .*$", r"\1", kernels, flags=re.MULTILINE)
    return re.sub(r"\w+@", "@", kernels)


# -- one node, and the kernels of the expression ----------------------------------------------------------------------


def test_a_call_is_one_node_of_the_op_s_name() -> None:
    f = squareplus(doc="A smooth relu.")
    x = sg.placeholder((3,), name="x", requires_grad=True)
    y = f(x)
    assert [node.op.name for node in x.graph.nodes] == ["placeholder", "squareplus"]
    assert f.__doc__ == y.op.op.doc == "A smooth relu."
    assert y.grad_fn is not None
    assert y.grad_fn.name == "SquareplusBackward0"
    assert "%squareplus = squareplus(%x) Own(value=body(1), derivative=body(2)) : float32[3]" in str(x.graph)


@pytest.mark.parametrize("make", [squareplus, blend], ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_and_bits_are_those_of_the_expression_written_out(make: Fn, dtype: str) -> None:
    f, written = make(derivative="derived"), {squareplus: written_squareplus, blend: written_blend}[make]
    count = 1 if make is squareplus else 2
    found = []
    for function in (f, written):
        with Graph():
            xs = [sg.placeholder(shape, dtype) for shape in ((40, 30), (30,))[:count]]
            y = sg.nn.softmax(function(*xs), -1)
            loss = sg.sum(y * y)
            exe = sg.Session().compile([y, loss, *sg.gradients(loss, xs)], xs)
            results = exe(*[values(i, *x.shape, dtype=dtype) for i, x in enumerate(xs)])
            found.append((plain(exe.text("kernels")), [np.asarray(r).tobytes() for r in results]))
    assert found[0] == found[1]


def test_kernels_with_parts_of_an_op_have_its_name_in_texts_costs_and_profiles() -> None:
    x = sg.placeholder((64, 64))
    y = squareplus()(x)
    sess = sg.Session()
    forward = sess.compile(sg.sum(sg.tanh(y), 1), [x])
    assert " squareplus_tanh_sum(" in forward.text("kernels")
    assert "squareplus_tanh_sum" in str(forward.cost)
    assert "squareplus_tanh_sum" in str(forward.profile(np.ones((64, 64), np.float32)))
    assert "squareplus_derivative" in sess.compile(sg.gradients(y, [x]), [x]).text("kernels")
    cubed = sess.compile(sg.op("cubed", lambda x: x**3)(x), [x]).text("kernels")
    assert "pointwise cubed(" in cubed  # also where a pass puts other ops in the place of its parts
    assert "pow(" not in cubed


def test_an_error_in_a_run_names_the_op_and_its_line() -> None:
    x = sg.placeholder((2,), name="x")
    y = sg.op("inverse_root", lambda x: 1.0 / sg.sqrt(x))(x)
    with pytest.raises(sg.NumericsError, match=r"op 'inverse_root' \('inverse_root'\) made a NaN(.|\n)*y = sg.op"):
        sg.Session(check_numerics=True).run(y, {x: [1.0, -1.0]})


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_values_of_every_float_on_every_target(target: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    f = blend()
    for dtype, tolerance in (("float16", 2e-3), ("bfloat16", 2e-2), ("float32", 1e-6), ("float64", 1e-14)):
        kind = sg.float32 if dtype == "float32" else getattr(sg, dtype)
        x, y = sg.placeholder((5, 1, 7), kind), sg.placeholder((3, 1), kind)
        feeds = {x: values(1, 5, 1, 7).astype(kind), y: values(2, 3, 1).astype(kind)}
        a, b = (np.asarray(v, np.float64) for v in feeds.values())
        got = sg.Session().run(f(x, y), feeds)
        assert got.dtype == kind
        assert got.shape == (5, 3, 7)
        want = np.exp(-a * a) * b + np.sin(b)
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


def test_short_floats_are_computed_in_float32_and_rounded_once() -> None:
    x = sg.constant([300.0, 1e-4], sg.float16)
    scaled = sg.op("scaled_square", lambda x: x * x / 1000.0)
    assert sg.Session().run(scaled(x)).tolist() == np.float16([90.0, 1e-11]).tolist()


def test_the_interpreter_runs_the_expression_where_there_is_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    x = sg.constant([[1.0, -2.0], [0.5, 3.0]], sg.float64)
    f = squareplus(reference=None)
    want = (sg.Session().run(x) + np.sqrt(sg.Session().run(x) ** 2 + 4)) / 2
    assert np.allclose(sg.Session().run(f(x)), want, rtol=1e-15)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_dtypes_are_those_that_the_expression_takes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    mixed = sg.op("mixed_bits", lambda x: sg.bitwise_xor(x, sg.bitwise_right_shift(x, 3)))
    chosen = sg.op("kept_or", lambda keep, x, other: sg.where(keep, x, other))
    above = sg.op("above", lambda x, y: x > y)
    bits = np.array([1, 255, 1 << 20], np.int32)
    assert sg.Session().run(mixed(bits)).tolist() == (bits ^ (bits >> 3)).tolist()
    with pytest.raises(sg.GraphError, match="bitwise_right_shift"):
        mixed(sg.constant(1.5))
    picked = chosen(np.array([True, False]), np.array([1.0, 2.0], np.float32), -1)
    assert picked.dtype == sg.float32
    assert sg.Session().run(picked).tolist() == [1.0, -1.0]
    assert sg.Session().run(above(np.arange(3.0), 1)).tolist() == [False, False, True]
    assert sg.Session().run(squareplus()(np.array([0, 3]))).tolist() == [1.0, (3 + 13**0.5) / 2]


def test_an_operand_that_the_expression_does_not_use_broadcasts_too() -> None:
    first = sg.op("first_of", lambda x, y: x * 1.0, derivative=lambda g, x, y, z: (g, None))
    x, y = sg.placeholder((3,), name="x"), sg.placeholder((2, 1), name="y")
    z = first(x, y)
    dx, dy = sg.gradients(z, [x, y], unconnected_gradients="zero")
    got = sg.Session().run([z, dx, dy], {x: [1.0, 2.0, 3.0], y: [[0.0], [0.0]]})
    assert got[0].tolist() == [[1.0, 2.0, 3.0]] * 2
    assert got[1].tolist() == [2.0] * 3
    assert got[2].tolist() == [[0.0], [0.0]]


def test_open_sizes() -> None:
    x = sg.placeholder((None, 3))
    exe = sg.Session().compile(sg.sum(squareplus()(x), 0), [x])
    for n in (2, 5, 40):
        a = values(n, n, 3)
        np.testing.assert_allclose(exe(a), ((a + np.sqrt(a * a + 4)) / 2).sum(0), rtol=2e-6)


# -- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("derivative", [{}, {"derivative": "derived"}], ids=["rule", "derived"])
@pytest.mark.parametrize("make", [squareplus, blend], ids=lambda make: make.__name__)
def test_derivatives_of_three_orders_over_broadcast_operands(make: Fn, derivative: dict[str, Any]) -> None:
    f = make(**derivative)
    xs = [values(1, 2, 3), values(2, 3)][: 1 if make is squareplus else 2]
    sg.check_gradients(f, xs, order=3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_and_tangents_of_every_float(dtype: str) -> None:
    f = squareplus()
    x = sg.placeholder((6,), dtype)
    a = values(3, 6).astype(dtype)
    y = f(x)
    (dx,) = sg.gradients(y, [x])
    pushed = sg.jvp(y, [x], [np.ones(6, dtype)])
    got, forward = sg.Session().run([dx, pushed], {x: a})
    wide = a.astype(np.float64)
    want = (1 + wide / np.sqrt(wide * wide + 4)) / 2
    tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=tolerance)
    np.testing.assert_allclose(np.ravel(forward), want, rtol=tolerance)


def test_an_op_that_is_not_differentiable() -> None:
    step = sg.op("half_step", lambda x: sg.floor(x * 2.0) / 2.0 + x, derivative=None)
    x = sg.placeholder((2,), requires_grad=True)
    y = step(x)
    assert not y.requires_grad
    (dx,) = sg.gradients(y * x, [x])
    assert sg.Session().run(dx, {x: [1.25, 2.0]}).tolist() == [1.0 + 1.25, 2.0 + 2.0]


def test_gradients_do_not_pass_what_an_expression_cuts_off() -> None:
    def cut(x: Tensor) -> Tensor:
        with sg.no_grad():
            factor = sg.exp(x)
        return factor * x * sg.stop_gradient(x)

    x = sg.constant(2.0, sg.float64)
    (dx,) = sg.gradients(sg.op("cut_off", cut)(x), [x])
    assert np.isclose(sg.Session().run(dx), 2 * np.exp(2.0))
    again = sg.parse(str(x.graph))
    assert str(again) == str(x.graph)


def test_vmap_jacobian_and_tapes() -> None:
    f = blend()
    x, y = sg.placeholder((4, 3), requires_grad=True), sg.placeholder((3,))
    rows = sg.vmap(lambda row: f(row, y))(x)
    assert rows.op.op.name == "blend"
    per_row = sg.vmap(lambda row: sg.gradients(sg.sum(f(row, y)), [row])[0])(x)
    a, b = values(5, 4, 3), values(6, 3)
    want = -2 * a * b * np.exp(-a * a)
    sess = sg.Session()
    got = sess.run([rows, per_row, sg.jacobian(f(x[0], y), y)], {x: a, y: b})
    np.testing.assert_allclose(got[0], np.exp(-a * a) * b + np.sin(b), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(got[1], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[2], np.diag(np.exp(-(a[0] ** 2)) + np.cos(b)), rtol=1e-5, atol=1e-6)
    tape = sess.forward(sg.sum(rows), {x: a, y: b})
    tape.backward()
    np.testing.assert_allclose(sess.grad(x), want, rtol=1e-5, atol=1e-6)


def test_bodies_of_loops_and_branches_with_their_derivatives() -> None:
    f = squareplus()

    def run(function: Fn) -> list[Array]:
        with Graph():
            x = sg.placeholder((5, 3), sg.float64)
            last, ys = sg.scan(lambda carry, row: ((v := function(carry * 0.5 + row)), v), x[0], x)
            y = sg.cond(sg.sum(last) > 0.0, lambda: function(last), lambda: -last)
            loss = sg.sum(y) + sg.sum(sg.tanh(ys))
            return list(sg.Session().run([loss, *sg.gradients(loss, [x])], {x: values(7, 5, 3, dtype=np.float64)}))

    for got, want in zip(run(f), run(written_squareplus), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_an_unrolled_recurrence_becomes_a_loop() -> None:
    f = squareplus(derivative="derived")

    def declared(function: Fn) -> Array:
        with Graph():
            x = sg.placeholder((8,), sg.float64)
            h = x
            for _ in range(400):
                h = function(sg.sin(h * 0.7) + sg.tanh(x * 0.1) * h)
            exe = sg.Session().compile(h, [x])
            result: Array = exe(np.linspace(-1, 1, 8))
            assert exe.setup.templates == 1
            return result

    assert np.array_equal(declared(f), declared(written_squareplus))


def test_each_step_agrees_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_VERIFY", "2")
    x = sg.placeholder((9, 5))
    y = sg.nn.softmax(squareplus()(x), 1)
    (dx,) = sg.gradients(sg.sum(y * y), [x])
    a = values(8, 9, 5)
    want = (a + np.sqrt(a * a + 4)) / 2
    want = np.exp(want - want.max(1, keepdims=True))
    got = sg.Session().run([y, dx], {x: a})
    np.testing.assert_allclose(got[0], want / want.sum(1, keepdims=True), rtol=1e-5)


def test_ops_of_ones_own_in_an_expression() -> None:
    inner = squareplus()
    outer = sg.op("logsquareplus", lambda x, y: sg.log(inner(x)) * y)
    sg.check_gradients(outer, [values(1, 3), values(2, 3)])
    x = sg.placeholder((3,), name="x")
    y = outer(x, 2.0)
    again = sg.parse(str(x.graph))
    a = values(3, 3)
    got = sg.Session(again).run(again.nodes[-1].outputs[0], {again.nodes[0].outputs[0]: a})
    assert got.tobytes() == sg.Session().run(y, {x: a}).tobytes()


# -- files and exports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["sgt", "sgb"])
@pytest.mark.parametrize("derivative", [{}, {"derivative": "derived"}, {"derivative": None}], ids=repr)
def test_a_saved_graph_has_the_expression_and_its_derivative(
    derivative: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    f = blend(**derivative)
    x, y = sg.placeholder((4, 3), name="x"), sg.placeholder((3,), name="y")
    z, again = f(x, y), f(x, y * 2.0)
    place = tmp_path / f"net.{ending}"
    sg.save_graph(place, entries={"f": ([z, again], [x, y])})
    graph = sg.load_graph(place)
    assert str(graph).startswith(str(x.graph))
    fetches, feeds = graph.entries["f"]
    arrays = [values(1, 4, 3), values(2, 3)]
    for got, want in zip(
        sg.Session(graph).compile(fetches, feeds)(*arrays),
        sg.Session().compile([z, again], [x, y])(*arrays),
        strict=True,
    ):
        assert got.tobytes() == want.tobytes()
    assert fetches[0].op.op is fetches[1].op.op
    assert fetches[0].op.op.differentiable == z.op.op.differentiable
    if z.op.op.differentiable:
        ours = sg.gradients(sg.sum(z**2), [x, y])
        theirs = sg.gradients(sg.sum(fetches[0] ** 2), list(feeds))
        for got, want in zip(
            sg.Session(graph).run(theirs, dict(zip(feeds, arrays, strict=True))),
            sg.Session().run(ours, {x: arrays[0], y: arrays[1]}),
            strict=True,
        ):
            assert got.tobytes() == want.tobytes()


def test_graphs_with_other_expressions_under_one_name_keep_them() -> None:
    x = sg.placeholder((2,), name="x")
    sg.op("growth", lambda x: x * 2.0)(x)
    other = sg.parse(str(x.graph).replace("[2.0]", "[3.0]"))
    got = [
        sg.Session(g).run(g.nodes[-1].outputs[0], {g.nodes[0].outputs[0]: np.float32([1.0, 2.0])}).tolist()
        for g in (x.graph, other)
    ]
    assert got == [[2.0, 4.0], [3.0, 6.0]]


TEXT = """body 1 {
  %x = placeholder() Source : float32[]
  %y = exp(%x) : float32[]
} (%x) -> (%y)
%x = placeholder() Source : float32[3]
%y = growth(%x) Own(value=body(1), derivative='derived') : float32[3]
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("growth(", "exp(", "the name of an op of the user's own, actual 'exp'"),
        ("%y = exp(%x) : float32[]", "%y = sum(%x) Reduce(axes=(), keepdims=False) : float32[]", "'sum' is used"),
        ("(%x) -> (%y)", "(%x) -> (%y, %y)", "expected 1 results"),
        ("(%x) -> (%y)", "() -> (%y)", "'placeholder' is used"),
        ("growth(%x)", "growth(%x, %x)", "expected operands of float32"),
        ("derivative='derived'", "derivative='absent'", "derivative='absent' is not"),
        ("derivative='derived'", "derivative=body(1)", "its operands are not those of the expression"),
        ("value=body(1)", "value=1", "value=1 is not"),
        ("value=body(1), ", "", "Own lacks value"),
        (" Own(value=body(1), derivative='derived')", "", "there is no op 'growth'"),
    ],
)
def test_a_damaged_text_is_refused(old: str, new: str, why: str) -> None:
    assert str(sg.parse(TEXT)).count("growth") == 1
    assert TEXT.count(old) == 1
    with pytest.raises(sg.FormatError, match=re.escape(why)):
        sg.parse(TEXT.replace(old, new))


def test_an_exported_program_of_an_op(tmp_path: Path) -> None:
    x = sg.placeholder((6,), sg.float64)
    exe = sg.Session().compile(squareplus()(x), [x])
    sg.export(tmp_path / "plus.sgp", {"plus": exe}, format="program")
    a = values(4, 6, dtype=np.float64)
    assert sg.load(tmp_path / "plus.sgp").plus(a).tobytes() == exe(a).tobytes()


# -- what is refused --------------------------------------------------------------------------------------------------


def test_another_expression_under_a_name_is_refused_with_both_lines() -> None:
    sg.op("curved", lambda x: x * x)
    sg.op("curved", lambda x: sg.multiply(x, x))
    with pytest.raises(
        sg.GraphError, match=r"op 'curved': declared before with another expression, at .*x \* x(.|\n)*at .*x \+ x"
    ):
        sg.op("curved", lambda x: x + x)
    with pytest.raises(sg.GraphError, match="declared before"):
        sg.op("curved", lambda x: x * x, derivative=None)


@pytest.mark.parametrize("name", ["exp", "softsign", "householder", "custom_gradient", "not an identifier", "", 3])
def test_a_name_that_is_taken_or_none_is_refused(name: Any) -> None:
    with pytest.raises(sg.GraphError, match="expected an identifier as a name of its own"):
        sg.op(name, lambda x: x * x)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (lambda x: sg.sum(x), r"'sum' is used; expected elementwise(.|\n)*sg.sum\(x\)"),
        (lambda x: x + sg.random.normal(()), r"is used; expected elementwise(.|\n)*sg.random.normal"),
        (lambda x: sg.reshape(x, (1,)), r"expected a scalar made of scalars, actual (.|\n)*sg.reshape"),
        (lambda x: x * np.ones(3, np.float32), r"expected a scalar made of scalars, actual (.|\n)*np.ones"),
        (lambda x: sg.custom_gradient(lambda x: (x * x, lambda g: g))(x), "'custom_gradient' is used"),
        (lambda x: OUTSIDE * x, r"'constant' belongs to another graph"),
        (lambda x: OUTSIDE, "neither an operand nor made of operands"),
        (lambda x: "text", "cannot be used as a tensor"),
        (lambda x: (x, x), "list of tensors"),
        (lambda: sg.constant(1.0), "expected a function of named operands"),
        (lambda *xs: xs[0], "expected a function of named operands"),
        (lambda x, beta=2.0: x * beta, "expected a function of named operands"),
        (3, "expected a function of named operands"),
    ],
)
def test_what_is_no_expression_of_the_operands_is_refused_with_its_line(expression: Any, why: str) -> None:
    with pytest.raises(sg.GraphError, match=why) as caught:
        sg.op("bad", expression)
    assert "op 'bad'" in str(caught.value)


OUTSIDE = sg.constant(2.0)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"derivative": lambda g, x: g}, "the derivative: expected a function of (g, x, y, result)"),
        ({"derivative": lambda g, x, y, z: g}, "expected a gradient for each operand: 2, actual 1"),
        ({"derivative": lambda g, x, y, z: (sg.sum(g), None)}, "'sum' is used"),
        ({"derivative": lambda g, x, y, z: (x > y, None)}, "the gradient of 'x': expected float32, actual bool"),
        ({"derivative": 3}, "the derivative: expected a function of"),
        ({"reference": lambda x: x}, "the reference: expected a function of (x, y)"),
        ({"domain": (1.0, 0.0)}, "domain: expected (low, high), or one for each of 2 operands, actual (1.0, 0.0)"),
        ({"domain": [(0.0, 1.0)]}, "domain: expected (low, high)"),
        ({"domain": "unit"}, "domain: expected (low, high)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(sg.GraphError, match=re.escape(why)) as caught:
        blend(**changed)
    assert "op 'blend'" in str(caught.value)


def test_operands_that_do_not_fit_are_refused() -> None:
    f = blend()
    with pytest.raises(sg.GraphError, match=r"blend: expected operands \(x, y\), actual 1"):
        f(1.0)
    with pytest.raises(sg.GraphError, match=r"blend: (.|\n)*float32\[2\](.|\n)*|shapes"):
        f(sg.zeros(2), sg.zeros(3))


# -- check ------------------------------------------------------------------------------------------------------------


def test_check_accepts_what_agrees() -> None:
    squareplus().check()
    blend(domain=[(-1.0, 1.0), (0.0, 3.0)]).check(points=50)
    sg.op("gray", lambda x: sg.bitwise_xor(x, sg.bitwise_right_shift(x, 1)), reference=lambda x: x ^ x >> 1).check()
    sg.op("both", lambda x, y: sg.logical_and(x, y), reference=np.logical_and).check()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_check_finds_a_value_that_differs_in_one_dtype(dtype: str) -> None:
    def expression(x: Tensor) -> Tensor:
        return sg.exp(x) + (1e-3 if x.dtype == dtype else 0.0) * (x > 1.0).astype(x.dtype)

    f = sg.op("nearly_exp", expression, reference=np.exp)
    with pytest.raises(
        sg.GraphError, match=rf"op 'nearly_exp': its value in {dtype} is wrong at x = 1\.(.|\n)*expected(.|\n)*actual"
    ):
        f.check()


def test_check_finds_a_wrong_derivative() -> None:
    with pytest.raises(sg.GradientError, match=r"check_gradients: order 1, reverse mode, of 'squareplus'"):
        squareplus(derivative=lambda g, x, y: g * y / (2.0 * y + x)).check()
    with pytest.raises(sg.GradientError, match="the gradient of 'x' is wrong at x = "):
        sg.op(
            "rounded", lambda x: x * 1.5, derivative=lambda g, x, y: g * (1.5 if x.dtype == "float64" else 1.4)
        ).check()


def test_the_same_bits_on_every_target_for_a_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    f = squareplus()
    for target, function in itertools.product(EVERY, (f, written_squareplus)):
        monkeypatch.setenv("STATICGRAD_TARGET", target)
        with Graph():
            w = sg.Variable(values(1, 7, 5), name="w")
            loss = sg.mean(sg.square(function(w)))
            sess = sg.Session()
            sess.forward(loss).backward()
            a = values(1, 7, 5).astype(np.float64)
            root = np.sqrt(a * a + 4)
            want = (a + root) / 2 * (1 + a / root) / 35
            np.testing.assert_allclose(sess.grad(w), want, rtol=1e-5, atol=1e-7)
