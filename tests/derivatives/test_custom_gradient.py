"""``sg.custom_gradient``: rules of users in runs and tapes, of any order, with hooks, loops and recomputation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

X = np.array([0.5, -1.0, 2.0], np.float64)


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


@sg.custom_gradient
def clipped(x: Any) -> Any:
    """The identity, whose gradient is limited to [-1, 1]."""
    return sg.identity(x), lambda ct: sg.clip(ct, -1.0, 1.0)


@sg.custom_gradient
def exponential(x: Any) -> Any:
    y = sg.exp(x)
    return y, lambda ct: ct * y


@sg.custom_gradient
def product(a: Any, b: Any) -> Any:
    """Two results of two arguments; the gradient of ``a`` is three times the right one."""
    return {"sum": a + b, "product": a * b}, lambda s, p: (3 * (s + p * b), s + p * a)


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


def test_the_rule_takes_the_place_of_the_derivative() -> None:
    x = sg.constant(X)
    np.testing.assert_array_equal(run(sg.gradients(5 * clipped(x), [x])[0]), np.ones(3))
    np.testing.assert_array_equal(run(sg.gradients(-0.25 * clipped(x), [x])[0]), np.full(3, -0.25))


def test_values_are_those_of_the_function() -> None:
    np.testing.assert_allclose(run(exponential(sg.constant(X))), np.exp(X))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_any_order(order: int) -> None:
    x = sg.constant(X)
    y = exponential(2 * x)
    for _ in range(order):
        (y,) = sg.gradients(y, [x])
    np.testing.assert_allclose(run(y), 2**order * np.exp(2 * X), rtol=1e-12)


def test_forward_mode_uses_the_rule() -> None:
    x = sg.constant(X)
    (t,) = sg.jvp([exponential(x)], [x], [np.array([1.0, 2.0, 3.0])])
    np.testing.assert_allclose(run(t), np.exp(X) * [1, 2, 3], rtol=1e-12)
    a, b = sg.constant(X), sg.constant(X[::-1].copy())
    (t,) = sg.jvp([product(a, b)["product"]], [a], [np.ones(3)])
    np.testing.assert_allclose(run(t), 3 * X[::-1], rtol=1e-12)


def test_several_arguments_and_a_nest_of_results() -> None:
    a, b = sg.constant(X), sg.constant(X[::-1].copy())
    made = product(a, b)
    assert set(made) == {"sum", "product"}
    da, db = run(sg.gradients(made["product"], [a, b]))
    np.testing.assert_allclose(da, 3 * X[::-1])  # the cotangent of the unused sum is zeros
    np.testing.assert_allclose(db, X)


def test_tapes_save_what_the_rule_reads_and_refuse_a_second_backward() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    y = sg.sum(exponential(x))
    assert exponential(x).grad_fn is not None
    sess = sg.Session(sg.get_default_graph())
    tape = sess.forward(y, {x: X})
    tape.backward(y)
    np.testing.assert_allclose(sess.grad(x), np.exp(X))
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y)


def test_a_rule_that_reads_nothing_may_go_back_twice() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    y = sg.sum(clipped(x))
    sess = sg.Session(sg.get_default_graph())
    tape = sess.forward(y, {x: X})
    tape.backward(y)
    tape.backward(y)
    np.testing.assert_array_equal(sess.grad(x), np.full(3, 2.0))


@pytest.mark.parametrize("mark", [sg.once_differentiable, lambda rule: rule])
def test_a_marked_rule_keeps_nothing_but_what_it_reads(mark: Any) -> None:
    """The operand was kept beside it, since a marked rule may not be derived by it."""

    @sg.custom_gradient
    def cubed(v: Any) -> Any:
        short = sg.astype(sg.stop_gradient(v), sg.float16)
        return v**3, mark(lambda ct: 3 * ct * sg.astype(short, v.dtype) ** 2)

    @sg.custom_gradient
    def nested(v: Any) -> Any:
        return v**3, mark(lambda ct: scaled(ct, v))

    @sg.custom_gradient
    def scaled(ct: Any, v: Any) -> Any:
        short = sg.astype(sg.stop_gradient(v), sg.float16)
        return 3 * ct * sg.astype(short, v.dtype) ** 2, lambda again: (again, again)

    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    for function in (cubed, nested):
        y = sg.sum(function(x * 2.0))
        sess = sg.Session(sg.get_default_graph())
        tape = sess.forward(y, {x: X})
        assert [(saved.name[:6], saved.nbytes) for saved in tape.memory.buffers] == [("astype", 3 * 2)]
        tape.backward(y)
        np.testing.assert_allclose(sess.grad(x), 24 * X**2, rtol=1e-2)
        with pytest.raises(sg.BuffersFreedError):
            tape.backward(y)


def test_a_marked_rule_that_reads_nothing_may_go_back_twice() -> None:
    @sg.custom_gradient
    def rounded(v: Any) -> Any:
        return sg.round(v), sg.once_differentiable(lambda ct: ct)

    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    y = sg.sum(rounded(x))
    sess = sg.Session(sg.get_default_graph())
    tape = sess.forward(y, {x: X})
    assert tape.memory.saved_bytes == 0
    tape.backward(y)
    tape.backward(y)
    np.testing.assert_array_equal(sess.grad(x), np.full(3, 2.0))


def test_inside_a_loop_and_under_a_checkpoint() -> None:
    x = sg.constant(X)
    last, _ = sg.scan(lambda carry, _: (exponential(carry * 0.1), carry), x, None, length=3)
    (dx,) = sg.gradients(last, [x])
    plain = x
    for _ in range(3):
        plain = sg.exp(plain * 0.1)
    (expected,) = sg.gradients(plain, [x])
    got, want = run([dx, expected])
    np.testing.assert_allclose(got, want, rtol=1e-12)
    (again,) = sg.gradients(sg.checkpoint(lambda v: exponential(v * 0.1), x), [x])
    np.testing.assert_allclose(run(again), 0.1 * np.exp(0.1 * X), rtol=1e-12)


def test_hooks_and_retained_gradients_see_the_rules_result() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    h = 2 * x
    h.retain_grad()
    h.register_hook(lambda grad: grad * 10)
    y = sg.sum(exponential(h))
    sess = sg.Session(sg.get_default_graph())
    sess.forward(y, {x: X}).backward(y)
    np.testing.assert_allclose(sess.grad(h), 10 * np.exp(2 * X))
    np.testing.assert_allclose(sess.grad(x), 20 * np.exp(2 * X))


def test_gradients_flow_to_the_arguments_alone() -> None:
    x, other = sg.constant(X), sg.constant(X)

    @sg.custom_gradient
    def scaled(v: Any) -> Any:
        return v * other, lambda ct: ct * other

    dx, none = sg.gradients(scaled(x), [x, other])
    assert none is None
    np.testing.assert_allclose(run(dx), X)


def test_a_rule_that_reads_its_own_result_is_derived_by_itself_again() -> None:
    x = sg.constant(X)

    @sg.custom_gradient
    def thrice(v: Any) -> Any:
        y = sg.exp(v)
        return y, lambda ct: 3 * (ct * y)

    first = sg.gradients(thrice(x), [x])[0]
    tangent = sg.jvp(thrice(x), [x], [np.ones(3)])[0]
    seconds = [sg.gradients(first, [x])[0], sg.jvp(first, [x], [np.ones(3)])[0], sg.gradients(tangent, [x])[0]]
    mapped = sg.vmap(lambda v: sg.gradients(sg.gradients(thrice(v), [v])[0], [v])[0])(x)
    for got in run([*seconds, mapped]):
        np.testing.assert_allclose(got, 9 * np.exp(X), rtol=1e-12)


def test_a_rule_that_reads_its_own_result_in_a_loop_a_checkpoint_and_a_tape() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)

    @sg.custom_gradient
    def thrice(v: Any) -> Any:
        y = sg.exp(v)
        return y, lambda ct: 3 * (ct * y)

    last, _ = sg.scan(lambda carry, _: (thrice(carry), carry), x, None, length=1)
    again = sg.checkpoint(thrice, x)
    for y in (last, again):
        (first,) = sg.gradients(y, [x])
        (second,) = sg.gradients(first, [x])
        np.testing.assert_allclose(run(second, {x: X}), 9 * np.exp(X), rtol=1e-12)
    total = sg.sum(sg.gradients(thrice(x), [x])[0])
    sess = sg.Session(sg.get_default_graph())
    sess.forward(total, {x: X}).backward(total)
    np.testing.assert_allclose(sess.grad(x), 9 * np.exp(X), rtol=1e-12)


def test_an_argument_whose_gradient_a_rule_gives_as_none_is_unconnected() -> None:
    a, b = (sg.placeholder((3,), sg.float64, requires_grad=True) for _ in range(2))

    @sg.custom_gradient
    def first_only(v: Any, w: Any) -> Any:
        return v * w, lambda ct: (ct * w, None)

    h = b * 2.0
    y = sg.sum(first_only(a, h))
    assert sg.gradients(y, [b, h, a])[:2] == [None, None]
    assert sg.gradients(y + sg.sum(sg.floor(b)), [b])[0] is not None
    sess = sg.Session(sg.get_default_graph())
    sess.forward(y, {a: X, b: X}).backward(y)
    assert sess.grad(b) is None
    np.testing.assert_allclose(sess.grad(a), 2 * X)


def test_a_tangent_rule_is_forward_mode_and_its_transpose_is_reverse_mode() -> None:
    x, z = sg.constant(X), sg.constant(X[::-1].copy())

    @sg.custom_gradient
    def by_tangents(v: Any, w: Any) -> Any:
        y = v * w
        return (y, y + v), None, lambda dv, dw: (5 * (dv * w + dw * v), None)

    made = by_tangents(x, z)
    (t,) = sg.jvp(made[0], [x], [np.ones(3)])
    (none,) = sg.jvp(made[1], [x], [np.ones(3)])
    dx, dz = sg.gradients(made[0], [x, z])
    mapped = sg.vmap(lambda v: sg.jvp(by_tangents(v, 2.0 * sg.ones((), dtype=sg.float64))[0], [v], [1.0])[0])(x)
    got = run([t, none, dx, dz, mapped])
    for value, expected in zip(got, (5 * X[::-1], np.zeros(3), 5 * X[::-1], 5 * X, np.full(3, 10.0)), strict=True):
        np.testing.assert_allclose(value, expected)


def test_both_rules_are_each_for_its_mode() -> None:
    x = sg.constant(X)

    @sg.custom_gradient
    def both(v: Any) -> Any:
        y = sg.exp(v)
        return y, lambda ct: 2 * (ct * y), lambda t: 3 * (t * y)

    (dx,) = sg.gradients(both(x), [x])
    (t,) = sg.jvp(both(x), [x], [np.ones(3)])
    (again,) = sg.jvp(dx, [x], [np.ones(3)])
    got = run([dx, t, again])
    for value, factor in zip(got, (2, 3, 6), strict=True):
        np.testing.assert_allclose(value, factor * np.exp(X), rtol=1e-12)


def test_a_rule_that_is_derived_once_refuses_a_second_time() -> None:
    x = sg.constant(X)

    @sg.custom_gradient
    def cubed(v: Any) -> Any:
        @sg.once_differentiable
        def slope(ct: Any) -> Any:
            return ct * 3 * v * v

        return v**3, slope

    (first,) = sg.gradients(cubed(x), [x])
    np.testing.assert_allclose(run(first), 3 * X**2)
    np.testing.assert_allclose(run(sg.vmap(lambda v: sg.gradients(cubed(v), [v])[0])(x)), 3 * X**2)
    for derive in (lambda: sg.gradients(first, [x]), lambda: sg.jvp(first, [x], [np.ones(3)])):
        with pytest.raises(sg.GradientError, match=r"differentiate twice.*once_differentiable: 'slope'\n.*test_custom"):
            derive()


def test_a_rule_that_is_derived_once_has_first_derivatives_in_both_modes() -> None:
    @sg.custom_gradient
    def cubed(v: Any) -> Any:
        return v**3, sg.once_differentiable(lambda ct: ct * 3 * v * v)

    x = sg.constant(X)
    pushed, wide = sg.jvp(cubed(x), [x], [np.ones(3)])[0], sg.jacobian(cubed(x), x)
    rows = sg.jacobian(sg.sum(cubed(x)), x)
    columns = sg.vmap(lambda v: sg.jvp(cubed(v), [v], [sg.ones_like(v)])[0])(x)
    got = run([pushed, wide, rows, columns])
    for value, expected in zip(got, (3 * X**2, np.diag(3 * X**2), 3 * X**2, 3 * X**2), strict=True):
        np.testing.assert_allclose(value, expected)
    for derive in (lambda: sg.hessian(sg.sum(cubed(x)), x), lambda: sg.jvp(pushed, [x], [np.ones(3)])):
        with pytest.raises(sg.GradientError, match="differentiate twice"):
            derive()


def test_a_marked_rule_that_knows_only_values_of_its_operands_refuses_a_second_time() -> None:
    x = sg.constant(X)

    @sg.custom_gradient
    def cubed(v: Any) -> Any:
        known = sg.stop_gradient(v)
        return v**3, sg.once_differentiable(lambda ct: ct * 3 * known * known)

    for first in (sg.gradients(cubed(x), [x])[0], sg.vmap(lambda v: sg.gradients(cubed(v), [v])[0])(x)):
        np.testing.assert_allclose(run(first), 3 * X**2)
        with pytest.raises(sg.GradientError, match="differentiate twice"):
            sg.gradients(first, [x])


def test_a_marked_rule_that_gives_a_number_gives_it_in_the_dtype_of_its_operand() -> None:
    @sg.custom_gradient
    def doubled(v: Any) -> Any:
        return 2 * v, sg.once_differentiable(lambda ct: 2.0)

    x = sg.constant(np.float64(3))
    (slope,) = sg.gradients(doubled(x), [x])
    assert slope.dtype == sg.float64
    assert run(slope) == 2


@pytest.mark.parametrize("dtype", [sg.float16, sg.float32, sg.float64])
def test_a_rule_that_gives_another_float_width_is_cast(dtype: Any) -> None:
    """It was refused, of cotangents and of tangents."""

    @sg.custom_gradient
    def cubed(v: Any) -> Any:
        slope = 3 * sg.astype(v, sg.float64 if dtype != sg.float64 else sg.float32) ** 2
        return v**3, lambda ct: ct.astype(slope.dtype) * slope, lambda t: t.astype(slope.dtype) * slope

    x = sg.constant(X, dtype)
    (slope,), (pushed,) = sg.gradients(cubed(x), [x]), sg.jvp(cubed(x), [x], [np.ones(3)])
    (second,) = sg.gradients(slope, [x])
    rows = sg.vmap(lambda v: sg.gradients(cubed(v), [v])[0])(x)
    assert {y.dtype for y in (slope, pushed, second, rows)} == {np.dtype(dtype)}
    tolerance = 4 * float(np.finfo(np.float16 if dtype == sg.float16 else np.float32).eps)
    for got, want in zip(run([slope, pushed, second, rows]), (3 * X**2, 3 * X**2, 6 * X, 3 * X**2), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance)


@pytest.mark.parametrize(
    "wrong", [lambda ct: sg.ones((3,), dtype=sg.int64), lambda ct: sg.ones((2,), dtype=sg.float32)]
)
def test_a_rule_that_gives_integers_or_another_shape_is_refused(wrong: Callable[[Any], Any]) -> None:
    x = sg.constant(X)
    with pytest.raises(sg.GradientError, match="expected a cotangent of"):
        sg.gradients(sg.custom_gradient(lambda v: (v * 1.0, wrong))(x), [x])


def test_marking_what_is_no_function_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="once_differentiable: expected a function, actual 3"):
        sg.once_differentiable(3)  # type: ignore[arg-type]


def test_what_a_rule_or_hook_raises_names_tensor_and_line() -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)

    @sg.custom_gradient
    def broken(v: Any) -> Any:
        return v * 1.0, lambda ct: sg.matmul(ct, sg.ones((4, 4), dtype=sg.float64))

    y = broken(x)
    with pytest.raises(sg.GraphError, match=r"(?s)in the gradient of 'broken', declared at .*test_custom_gradient.py"):
        sg.gradients(y, [x])

    def fail(grad: Any) -> Any:
        raise KeyError("of the user")

    h = sg.identity(x, name="h")
    h.register_hook(fail)
    with pytest.raises(KeyError) as caught:
        sg.gradients(h * 2.0, [x])
    assert "in a hook of 'h', declared at" in caught.value.__notes__[0]
    assert "test_custom_gradient.py" in caught.value.__notes__[0]


def test_bad_rules_are_refused() -> None:
    x = sg.constant(X)

    @sg.custom_gradient
    def forgot(v: Any) -> Any:
        return v

    with pytest.raises(sg.GraphError, match=r"forgot.*results, rule"):
        forgot(x)

    @sg.custom_gradient
    def many(v: Any) -> Any:
        return v * 1.0, lambda ct: [ct, ct]

    with pytest.raises(sg.GradientError, match=r"many.*expected one for each.*1,.*actual 2"):
        sg.gradients(many(x), [x])

    @sg.custom_gradient
    def misshapen(v: Any) -> Any:
        return v * 1.0, sg.sum

    with pytest.raises(sg.GradientError, match="custom_gradient"):
        sg.gradients(misshapen(x), [x])
    with pytest.raises(sg.GraphError, match="expected a function"):
        sg.custom_gradient(3)


# -- rules that derive ----------------------------------------------------------------------------------------------


def twisted(a: Any, b: Any) -> Any:
    return sg.tanh(a) * sg.cos(b)


@sg.custom_gradient
def deriving(a: Any, b: Any) -> Any:
    """The same function, with a rule that derives the sum of the results, weighted by the cotangent."""
    return twisted(a, b), lambda ct: sg.gradients(sg.sum(twisted(a, b) * ct), [a, b])


@sg.custom_gradient
def pushing(a: Any, b: Any) -> Any:
    """The same function, with a tangent rule that derives."""
    return twisted(a, b), None, lambda s, t: sg.jvp(twisted(a, b), [a, b], [s, t])


@pytest.mark.parametrize("fn", [deriving, pushing])
def test_a_rule_that_derives_its_weighted_result_is_right_for_a_loss_that_is_not_linear(fn: Any) -> None:
    """The cotangent depends on the operand, and the second operand on the first one: neither is differentiated through
    inside of the rule."""
    x = sg.constant(X)
    found = []
    for own in (fn, twisted):
        loss = sg.sum(own(x, sg.sin(x)) ** 2)
        (slope,) = sg.gradients(loss, x)
        found.append(
            [slope, sg.jvp(loss, x, X), sg.gradients(sg.sum(slope**2), x), sg.jvp(slope, x, X), sg.hessian(loss, x)]
        )
    for got, want in zip(*(sg.nest.flatten(run(group)) for group in found), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fn", [deriving, pushing])
def test_a_rule_that_derives_in_a_loop_a_vmap_a_checkpoint_and_a_tape(fn: Any) -> None:
    def losses(own: Any, x: Any) -> list[Any]:
        h = sg.sin(x)
        rows = sg.stack([x, x * 0.5])
        return [
            sg.sum(sg.scan(lambda c, row: (own(c, row * c), None), h, rows)[0] ** 2),
            sg.sum(sg.map(lambda row: own(h, x * row), rows) ** 2),
            sg.sum(sg.vmap(lambda row: own(row, sg.sin(row)))(rows) ** 2),
            sg.sum(sg.vmap(lambda row: own(h, x) * row)(rows) ** 2),
            sg.checkpoint(lambda v: sg.sum(own(v, sg.cos(v)) ** 2), x),
        ]

    x = sg.Variable(X)
    slopes = [[sg.gradients(loss, x)[0] for loss in losses(own, x)] for own in (fn, twisted)]
    again = [[sg.gradients(sg.sum(slope**2), x)[0] for slope in group] for group in slopes]
    got, want = (sg.nest.flatten(run(group)) for group in zip(slopes, again, strict=True))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    session = sg.Session()
    loss = losses(fn, x)[0]
    with session.forward(loss) as tape:
        tape.backward(loss)
    np.testing.assert_allclose(session.grad(x), want[0], rtol=1e-9)


def test_a_rule_that_derives_is_checked_with_a_loss_that_is_not_linear() -> None:
    for fn in (deriving, pushing):
        sg.check_gradients(fn, [X * 0.5, X[::-1].copy()], order=2)


def test_a_hook_of_an_operand_does_not_see_what_a_rule_derives() -> None:
    x = sg.Variable(X)
    calls: list[Any] = []
    x.register_hook(lambda g: (calls.append(g), g * 10)[1])
    x.retain_grad()
    (slope,) = sg.gradients(sg.sum(deriving(x, sg.constant(X)) ** 2), x)
    (plain,) = sg.gradients(sg.sum(twisted(x.detach() + (v := sg.Variable(np.zeros(3))), sg.constant(X)) ** 2), v)
    assert len(calls) == 1
    got, want = run([slope, plain])
    np.testing.assert_allclose(got, want * 10, rtol=1e-12)


def test_a_rule_may_make_its_operand_depend_on_the_cotangent() -> None:
    @sg.custom_gradient
    def tied(x: Any) -> Any:
        return sg.sin(x), lambda ct: sg.gradients(sg.sin(x + 0.0 * sg.sum(ct)), x, grad_ys=ct)

    x = sg.constant(X)
    (slope,) = sg.gradients(sg.sum(sg.sin(tied(x))), x)
    np.testing.assert_allclose(run(slope), np.cos(np.sin(X)) * np.cos(X), rtol=1e-12)


def test_a_rule_that_enters_itself_without_end_is_refused_by_name() -> None:
    @sg.custom_gradient
    def endless(x: Any) -> Any:
        return sg.sin(x), lambda ct: sg.gradients(endless(x), x, grad_ys=ct)

    x = sg.constant(X)
    with pytest.raises(sg.GraphError, match="the rule of 'endless' was entered while 40 rules run") as caught:
        sg.gradients(sg.sum(endless(x)), x)
    assert str(caught.value).count("in the gradient of") == 1
    np.testing.assert_allclose(run(sg.gradients(sg.sum(exponential(x)), x)[0]), np.exp(X))  # nothing is left behind


def test_a_rule_under_vmap_that_reads_an_example_its_results_do_not_is_refused() -> None:
    def scaled(scale: Any) -> Any:
        return sg.custom_gradient(lambda x: (sg.sin(x), lambda ct: ct * scale))

    x = sg.constant(X)
    y = sg.vmap(lambda row: scaled(row)(x))(sg.stack([x, x]))
    with pytest.raises(sg.GraphError, match="reads an example"):
        sg.gradients(sg.sum(y), x)
