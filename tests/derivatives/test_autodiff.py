"""Derivatives as graph: values against closed forms, hooks, retained gradients, what is blocked, higher orders."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import TensorType, float64, int64
from staticgrad.compiler.autodiff.forward import hessian, jacobian, jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.compiler.regions.cut import cut
from staticgrad.errors import GradientError, GraphError
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import NO_ATTRIBUTES, Op
from staticgrad.graph.scopes import control_dependencies, enable_grad, no_grad
from staticgrad.ops.effects import gradient_key
from staticgrad.ops.interpreter import Outcome, evaluate

Values = Mapping[Tensor, Any]


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph() as g:
        yield g


def outcome(fetches: Sequence[Tensor | Node], values: Values) -> Outcome:
    arrays = {x: np.asarray(v, x.dtype) for x, v in values.items()}
    types = {x: TensorType(a.shape, a.dtype) for x, a in arrays.items()}
    region = cut(fetches[0].graph, fetches, types)
    return evaluate(region, list(arrays.values()), lambda attrs: attrs.initial(np.random.default_rng(0)))


def value(x: Tensor | None, values: Values) -> Any:
    assert x is not None
    (array,) = outcome([x], values).values
    return array


def leaf(*shape: int, name: str | None = None) -> Tensor:
    x: Tensor = o.placeholder(shape, float64, name=name, requires_grad=True)
    return x


X = np.array([0.5, -1.25, 2.0])


# -- values -----------------------------------------------------------------------------------------------------


def test_gradient_of_a_product_and_a_sum() -> None:
    x, w = leaf(3), leaf(3)
    dx, dw = gradients(o.sum(x * w + o.exp(x)), [x, w])
    feeds = {x: X, w: X + 1}
    np.testing.assert_allclose(value(dx, feeds), X + 1 + np.exp(X))
    np.testing.assert_allclose(value(dw, feeds), X)


def test_broadcasting_is_undone() -> None:
    x, b = leaf(4, 3), leaf(3)
    (db,) = gradients((x + b) * x, b)
    assert db is not None
    assert db.type == b.type
    array = np.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(value(db, {x: array, b: X}), array.sum(0))


def test_several_outputs_count_as_their_sum_and_weights_weigh() -> None:
    x = leaf(3)
    (both,) = gradients([x * x, 3 * x], [x])
    np.testing.assert_allclose(value(both, {x: X}), 2 * X + 3)
    (weighed,) = gradients([x * x, x], [x], [np.array([1.0, 2.0, 3.0]), None])
    np.testing.assert_allclose(value(weighed, {x: X}), 2 * X * [1, 2, 3] + 1)


def test_a_tensor_among_ys_and_xs_has_the_gradient_one() -> None:
    x = leaf(3)
    h = x * 2
    dh, dx = gradients([h], [h, x])
    np.testing.assert_allclose(value(dh, {x: X}), np.ones(3))
    np.testing.assert_allclose(value(dx, {x: X}), 2 * np.ones(3))


def test_an_intermediate_and_its_source_get_each_their_total() -> None:
    x = leaf(3)
    h = x * x
    dh, dx = gradients(h * x, [h, x])
    np.testing.assert_allclose(value(dh, {x: X}), X)
    np.testing.assert_allclose(value(dx, {x: X}), 3 * X**2)


def test_derivatives_of_the_fourth_power_to_fourth_order() -> None:
    x = leaf(3)
    y: Tensor | None = o.sum(x**4)
    for expected in (4 * X**3, 12 * X**2, 24 * X, np.full(3, 24.0)):
        (y,) = gradients(y, x)
        np.testing.assert_allclose(value(y, {x: X}), expected)


def test_derived_nodes_carry_the_line_of_their_primal() -> None:
    x = leaf(3)
    y = o.tanh(x)
    start = len(x.graph.nodes)
    gradients(y, x)
    rule = [n for n in x.graph.nodes[start:] if n.op.name != "full"]
    assert rule
    assert all(n.source == y.source for n in rule)


def test_tensors_need_not_require_a_gradient() -> None:
    x = o.placeholder((3,), float64)
    (dx,) = gradients(x * x, x)
    np.testing.assert_allclose(value(dx, {x: X}), 2 * X)


def test_rules_read_the_version_of_a_variable_that_their_primal_read() -> None:
    x = leaf(3)
    w = o.Variable(X, name="w")
    with control_dependencies([o.assign(w, w + 10.0)]):
        y = x * w
        (dx,) = gradients(y, x)
    (later,) = gradients(y, x)
    for d in (dx, later):
        np.testing.assert_allclose(value(d, {x: X}), X + 10)


def test_blocks_around_a_derivation_do_not_leak_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    x = leaf(3)
    y = x**3
    with no_grad(), control_dependencies([o.print(x, "unwanted")]):
        (dx,) = gradients(y, x)
    assert dx is not None
    assert dx.requires_grad
    (ddx,) = gradients(dx, x)
    np.testing.assert_allclose(value(ddx, {x: X}), 6 * X)
    assert capsys.readouterr().out == ""


# -- what has no gradient ----------------------------------------------------------------------------------------


def test_unconnected_gradients() -> None:
    x, z = leaf(3), leaf(2)
    y = x * 2
    assert gradients(y, [z]) == [None]
    (zero,) = gradients(y, [z], unconnected_gradients="zero")
    np.testing.assert_array_equal(value(zero, {}), np.zeros(2))
    with pytest.raises(GradientError, match="no y depends"):
        gradients(y, [z], unconnected_gradients="error")
    with pytest.raises(GraphError, match="unconnected_gradients"):
        gradients(y, [z], unconnected_gradients="nothing")


def test_only_floating_tensors_are_derived() -> None:
    i = o.placeholder((3,), int64)
    x = leaf(3)
    with pytest.raises(GradientError, match="floating"):
        gradients(i, [x])
    with pytest.raises(GradientError, match="floating"):
        gradients(x * 2, [i])


def test_no_grad_and_detach_pass_values_only() -> None:
    x = leaf(3)
    with no_grad():
        blocked = x * x
        with enable_grad():
            passing = x * x
    assert (blocked.requires_grad, passing.requires_grad) == (False, True)
    (dx,) = gradients(blocked + passing + x.detach() * x, x)
    np.testing.assert_allclose(value(dx, {x: X}), 2 * X + X)


def test_a_generator_under_no_grad_declares_each_step_without_gradients() -> None:
    x = leaf(3)
    seen = []

    @sg.no_grad()
    def steps() -> Any:
        try:
            got = yield x * 2
            got = yield x * got
            yield sg.is_grad_enabled()
        except KeyError:
            yield x * 4
        finally:
            seen.append(sg.is_grad_enabled())
        return "end"

    made = steps()
    first, between, second = next(made), x * 2, made.send(3.0)
    assert [y.requires_grad for y in (first, between, second)] == [False, True, False]
    assert made.throw(KeyError()).requires_grad is False
    with pytest.raises(StopIteration, match="end"):
        next(made)
    stopped = steps()
    next(stopped)
    stopped.close()
    assert seen == [False, False]
    assert sg.is_grad_enabled()


@pytest.mark.parametrize("decorate", [sg.no_grad, sg.no_grad(), sg.set_grad_enabled(True)(sg.no_grad)])
def test_gradient_modes_decorate_with_and_without_parentheses(decorate: Any) -> None:
    x = leaf(3)

    @decorate
    def double(v: Any) -> Any:
        """Twice."""
        return v * 2, sg.enable_grad(lambda: v * 2)()

    without, within = double(x)
    assert (without.requires_grad, within.requires_grad) == (False, True)
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert sg.is_grad_enabled()
    with pytest.raises(sg.GraphError, match="decorates functions"):
        sg.no_grad(3)


@pytest.mark.parametrize("make", [sg.no_grad, lambda: sg.set_grad_enabled(False)])
def test_one_gradient_mode_in_two_threads_restores_each_by_itself(make: Any) -> None:
    mode, inside, outside = make(), threading.Event(), threading.Event()
    seen = []

    def other() -> None:
        with sg.no_grad():
            with mode:
                inside.set()
                outside.wait(60)
            seen.append(sg.is_grad_enabled())
        seen.append(sg.is_grad_enabled())

    thread = threading.Thread(target=other)
    with mode:
        thread.start()
        inside.wait(60)
    seen.append(sg.is_grad_enabled())
    outside.set()
    thread.join()
    assert seen == [True, False, True]


def test_a_gradient_mode_refuses_what_runs_in_pieces_between_other_tasks() -> None:
    async def double(x: Any) -> Any:
        return x * 2

    async def steps(x: Any) -> Any:
        yield x * 2

    for fn in (double, steps):
        for decorate in (sg.no_grad, sg.enable_grad(), sg.set_grad_enabled(True)):
            with pytest.raises(sg.GraphError, match="other tasks run between the steps"):
                decorate(fn)
    assert sg.is_grad_enabled()


def test_set_grad_enabled_is_a_switch_a_block_and_a_decorator() -> None:
    x = leaf(3)
    try:
        sg.set_grad_enabled(False)
        assert not sg.is_grad_enabled()
        assert not (x * 2).requires_grad
        with sg.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not sg.is_grad_enabled()
    finally:
        sg.set_grad_enabled(True)
    assert sg.set_grad_enabled(False)(lambda: sg.is_grad_enabled())() is False
    assert sg.is_grad_enabled()


def test_comparisons_are_constant_but_calls_have_no_derivative() -> None:
    x = leaf(3)
    assert gradients(o.where(x > 0, 1.0, 2.0).astype(float64), x) == [None]
    (called,) = o.py_call(np.sin, [x], [(float64, (3,))])
    with pytest.raises(GradientError, match="has no derivative"):
        gradients(called, x)
    assert gradients(called.detach(), x) == [None]


def test_the_branch_not_chosen_contributes_nothing() -> None:
    x = leaf(3)
    (dx,) = gradients(o.where(x > 0, o.log(x), 0.0), x)
    np.testing.assert_allclose(value(dx, {x: [0.0, -1.0, 2.0]}), [0, 0, 0.5])


def test_weights_of_a_wrong_shape_and_foreign_tensors_are_refused() -> None:
    x = leaf(3)
    with pytest.raises(GraphError, match=r"expected shape \(3,\), actual \(2,\)"):
        gradients(x * 2, x, np.ones(2))
    with Graph():
        other = leaf(3)
    with pytest.raises(GraphError, match="another graph"):
        gradients(x * 2, other)


def test_a_wrong_rule_is_caught_by_its_types(graph: Graph) -> None:
    wrong = Op("wrong", "", lambda a, t: t, lambda a, v: v, vjp=lambda o, node, ct: (o.sum(ct),), role="routine")
    x = leaf(3)
    y = graph.add(wrong, (x,)).outputs[0]
    with pytest.raises(GradientError, match="derivative of op 'wrong': expected a cotangent of"):
        gradients(y, x)


# -- hooks -------------------------------------------------------------------------------------------------------


def test_hooks_run_in_order_on_the_summed_gradient_and_replace_it() -> None:
    x = leaf(3)
    h = x * 2
    seen: list[str] = []

    def double(g: Tensor) -> Tensor:
        seen.append("double")
        return g * 2

    def look(g: Tensor) -> None:
        seen.append("look")

    h.register_hook(double)
    removed = h.register_hook(lambda g: g * 100)
    h.register_hook(look)
    x.register_hook(lambda g: g + 1)
    removed.remove()
    (dx,) = gradients(h + h * h, x)
    assert seen == ["double", "look"]
    np.testing.assert_allclose(value(dx, {x: X}), 2 * 2 * (1 + 4 * X) + 1)


def test_hooks_of_outputs_run_and_those_off_the_way_do_not() -> None:
    x, z = leaf(3), leaf(3)
    y = x * z
    seen: list[Tensor] = []
    y.register_hook(lambda g: g * 5)
    z.register_hook(seen.append)
    (dx,) = gradients(y, x)
    np.testing.assert_allclose(value(dx, {x: X, z: X}), 5 * X)
    assert not seen


def test_a_hook_runs_again_in_a_double_backward() -> None:
    x = leaf(3)
    count: list[int] = []
    x.register_hook(lambda g: count.append(1))
    (dx,) = gradients(x**3, x)
    (ddx,) = gradients(dx, x)
    assert len(count) == 2
    np.testing.assert_allclose(value(ddx, {x: X}), 6 * X)


def test_an_op_instead_of_a_gradient_from_a_hook_is_an_effect() -> None:
    x = leaf(3)
    seen = o.Variable(np.zeros(3), name="seen", trainable=False)
    x.register_hook(lambda g: o.assign(seen, 2 * g))
    (dx,) = gradients(x * x, x)
    assert dx is not None
    result = outcome([dx], {x: X})
    np.testing.assert_allclose(result.values[0], 2 * X)
    np.testing.assert_allclose(result.writes["seen"], 4 * X)


def test_a_hook_may_derive_by_itself() -> None:
    x, w = leaf(3), leaf(3)
    y = o.sum(x**3)
    x.register_hook(lambda g: g + gradients(w * w, w)[0])
    (dx,) = gradients(y, x)
    np.testing.assert_allclose(value(dx, {x: X, w: X}), 3 * X**2 + 2 * X)


def test_a_gradient_of_another_type_from_a_hook_is_refused() -> None:
    x = leaf(3)
    x.register_hook(lambda g: o.sum(g))
    with pytest.raises(GradientError, match="returned a gradient of another type"):
        gradients(x * 2, x)


def test_effects_of_a_hook_belong_to_that_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    x = leaf(3)
    h = x * 2

    def tell(g: Tensor) -> None:
        o.print(o.sum(g), "sum")

    h.register_hook(tell)
    dx, dh = gradients(h * 3, [x, h])
    outcome([h], {x: X})
    assert capsys.readouterr().out == ""
    np.testing.assert_allclose(value(dx, {x: X}), 6 * np.ones(3))
    assert capsys.readouterr().out.startswith("sum 9")
    value(dh, {x: X})
    assert capsys.readouterr().out.startswith("sum 9")


def test_retained_gradients_are_accumulated_where_they_are_passed() -> None:
    x = leaf(3)
    h = x * 2
    h.retain_grad()
    h.register_hook(lambda g: g * 10)
    y = h * h
    (dx,) = gradients(y, x)
    assert dx is not None
    result = outcome([dx], {x: X})
    np.testing.assert_allclose(result.gradients[gradient_key(h)], 10 * 4 * X)
    np.testing.assert_allclose(result.values[0], 2 * 10 * 4 * X)
    assert outcome([y], {x: X}).gradients == {}


# -- forward mode --------------------------------------------------------------------------------------------------


def test_jvp_is_the_derivative_in_a_direction() -> None:
    x, w, off = leaf(3), leaf(3), leaf(2)
    y = o.sin(x) * w
    t, zero = jvp([y, off * 1.0], [x, w], [X, None])
    np.testing.assert_allclose(value(t, {x: X, w: X}), np.cos(X) * X * X)
    np.testing.assert_array_equal(value(zero, {}), np.zeros(2))


def test_jvp_and_gradient_agree_through_sums_and_broadcasts() -> None:
    x, b = leaf(4, 3), leaf(3)
    y = o.sum(o.tanh(x * b), axis=0) * b
    array, direction = np.linspace(-1, 1, 12).reshape(4, 3), np.array([0.3, -0.2, 0.7])
    (t,) = jvp(y, b, direction)
    weights = np.array([1.0, -2.0, 0.5])
    (db,) = gradients(y, b, weights)
    feeds = {x: array, b: X}
    np.testing.assert_allclose(np.vdot(weights, value(t, feeds)), np.vdot(value(db, feeds), direction))


def test_an_op_with_only_a_vjp_or_only_a_jvp_is_transposed(graph: Graph) -> None:
    cube_back = Op(
        "cube_back", "", lambda a, t: t, lambda a, v: v**3, role="routine",
        vjp=lambda o, node, ct: (ct * node.inputs[0] * node.inputs[0] * 3.0,),
    )  # fmt: skip
    cube_forward = Op(
        "cube_forward", "", lambda a, t: t, lambda a, v: v**3, role="routine",
        jvp=lambda o, node, t: (t * node.inputs[0] * node.inputs[0] * 3.0,),
    )  # fmt: skip
    x = leaf(3)
    for op in (cube_back, cube_forward):
        y = graph.add(op, (x,), NO_ATTRIBUTES).outputs[0]
        (t,) = jvp(y, x, np.ones(3))
        (dx,) = gradients(y, x)
        np.testing.assert_allclose(value(t, {x: X}), 3 * X**2)
        np.testing.assert_allclose(value(dx, {x: X}), 3 * X**2)


def test_a_composed_op_is_derived_through_its_expansion(graph: Graph) -> None:
    norm = Op(
        "norm", "", lambda a, t: TensorType((), t.dtype), lambda a, v: np.asarray(np.sqrt((v * v).sum())),
        expand=lambda o, node: [o.sqrt(o.sum(node.inputs[0] * node.inputs[0]))],
    )  # fmt: skip
    x = leaf(3)
    y = graph.add(norm, (x,)).outputs[0]
    (dx,) = gradients(y, x)
    (t,) = jvp(y, x, np.ones(3))
    length = np.sqrt((X * X).sum())
    np.testing.assert_allclose(value(dx, {x: X}), X / length)
    np.testing.assert_allclose(value(t, {x: X}), X.sum() / length)


def test_jacobian_and_hessian_of_open_sizes(graph: Graph) -> None:
    x, rows = sg.placeholder((None,), sg.float64), sg.placeholder((None, 3), sg.float64)
    w = sg.Variable(X)
    fetches = {
        "open by open": sg.jacobian(sg.sin(x) * sg.sum(x), x),
        "open by fixed": sg.jacobian(rows @ sg.exp(w), w),
        "fixed by open": sg.jacobian(sg.sum(x**3), x),
        "rows": sg.jacobian(sg.sum(rows**2, axis=1), rows),
        "hessian": sg.hessian(sg.sum(x**3) * sg.sum(x), x),
    }
    sess = sg.Session(graph)
    for length in (4, 2, 0):
        values = np.linspace(0.5, 2, length)
        wide = np.outer(values, [1.0, 2.0, 3.0])
        found = sess.run(fetches, {x: values, rows: wide})
        np.testing.assert_allclose(
            found["open by open"], np.diag(np.cos(values) * values.sum()) + np.sin(values)[:, None]
        )
        np.testing.assert_allclose(found["open by fixed"], wide * np.exp(X))
        np.testing.assert_allclose(found["fixed by open"], 3 * values**2)
        np.testing.assert_allclose(found["rows"], 2 * wide[:, None] * np.eye(length)[:, :, None])
        slopes = 3 * values**2
        np.testing.assert_allclose(
            found["hessian"], np.diag(6 * values * values.sum()) + slopes[:, None] + slopes[None], rtol=1e-6
        )
    with pytest.raises(sg.GraphError, match="hessian: expected a y of one element"):
        sg.hessian(x, x)


def test_jacobian_in_both_modes_and_hessian() -> None:
    x = leaf(3)
    wide = o.reshape(x, (3, 1)) * o.reshape(x * x, (1, 3))
    expected = np.zeros((3, 3, 3))
    for i, j in np.ndindex(3, 3):
        expected[i, j, i] += X[j] ** 2
        expected[i, j, j] += 2 * X[i] * X[j]
    np.testing.assert_allclose(value(jacobian(wide, x), {x: X}), expected)
    narrow = o.sum(wide)
    np.testing.assert_allclose(value(jacobian(narrow, x), {x: X}), expected.sum((0, 1)))
    (listed,) = jacobian(narrow, [x])
    assert listed.shape == (3,)
    second = hessian(o.sum(x * x * x), x)
    np.testing.assert_allclose(value(second, {x: X}), np.diag(6 * X))
