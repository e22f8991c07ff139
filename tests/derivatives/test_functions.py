"""Functions of arrays from functions of tensors, and derivatives by arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staticgrad as sg


def cube(x: Any) -> Any:
    return sg.sum(x * x * x)


# -- function ---------------------------------------------------------------------------------------------------------


def test_a_function_is_compiled_for_each_type_of_its_arrays() -> None:
    declared = []

    def twice(x: Any) -> Any:
        declared.append(x.type)
        return {"twice": 2 * x, "none": None}

    f = sg.function(twice)
    for _ in range(3):
        np.testing.assert_array_equal(f(np.arange(3.0))["twice"], [0, 2, 4])
        assert f(np.arange(3))["twice"].dtype == np.int64
        assert f(1.5)["twice"].dtype == np.float32
    assert len(declared) == 3
    assert f.executable is not None
    assert f.executable.memory.arena_bytes == 0


def test_arguments_may_be_nests_and_tensors() -> None:
    f = sg.function(lambda parts, scale: (parts["a"] + parts["b"]) * scale)
    a, b = np.ones(2), np.full(2, 3.0)
    np.testing.assert_array_equal(f({"a": a, "b": b}, np.float64(2)), [8, 8])
    np.testing.assert_array_equal(f({"b": a, "a": b * 2}, np.float64(2)), [14, 14])
    with sg.Graph() as graph:
        x = sg.placeholder((2,), sg.float64)
        y = f({"a": x, "b": a}, 1)
    np.testing.assert_array_equal(sg.Session(graph).run(y, {x: b}), [4, 4])


def test_specs_say_the_types_beforehand() -> None:
    declared = []

    def total(x: Any, y: Any) -> Any:
        declared.append((x.type, y.type))
        return sg.sum(x).astype(sg.float64) + sg.sum(y)

    f = sg.function(total, (None, 2), ((3,), np.float64))
    assert len(declared) == 1
    assert [f(np.ones((n, 2), np.float32), np.ones(3)) for n in (1, 5, 16)] == [5, 13, 35]
    assert len(declared) == 1
    with pytest.raises(sg.FeedError, match="expected 2 arrays"):
        f(np.ones((1, 2), np.float32))
    assert sg.function(sg.sum, np.ones(4))(np.ones(4)) == 4
    with pytest.raises(
        sg.GraphError, match="argument 0: expected an array, a shape, or a shape and a dtype, actual 'x'"
    ):
        sg.function(sg.sum, "x")
    with pytest.raises(sg.GraphError, match="expected a function of tensors, actual 3"):
        sg.function(3)  # type: ignore[arg-type]


def test_arguments_may_be_named() -> None:
    declared = []

    def line(x: Any, slope: Any = 2.0, *, offset: Any = 0.0) -> Any:
        declared.append(x)
        return x * slope + offset

    f, x = sg.function(line), np.ones(2)
    np.testing.assert_array_equal(f(x), [2, 2])
    for _ in range(2):
        np.testing.assert_array_equal(f(x, slope=np.float64(3), offset=np.float64(1)), [4, 4])
        np.testing.assert_array_equal(f(x, offset=np.float64(1), slope=np.float64(3)), [4, 4])
    assert len(declared) == 2
    with sg.Graph() as graph:
        y = f(x, offset=sg.constant(5.0, sg.float64))
    np.testing.assert_array_equal(sg.Session(graph).run(y), [7, 7])
    typed = sg.function(line, x, ((), np.float64))
    np.testing.assert_array_equal(typed(slope=np.float64(4), x=x), [4, 4])
    with pytest.raises(sg.GraphError, match="specs are of positional arguments, actual offset"):
        typed(x, np.float64(1), offset=np.float64(1))
    by_slope = sg.value_and_grad(lambda x, slope, offset: sg.sum(x * slope + offset), argnums=(0, 1))
    value, (by_x, by_slope_) = by_slope(x, offset=np.float64(1), slope=np.float64(3))
    assert (value, by_x.tolist(), by_slope_) == (8, [3, 3], 2)


def test_what_a_function_cannot_read_is_refused_with_the_way_out() -> None:
    w, x = sg.Variable(np.ones(2), name="w"), np.ones(2)
    for call in (sg.function(lambda x: x * w), sg.value_and_grad(lambda x: sg.sum(x * w)),
                 sg.function(lambda x: sg.scan(lambda c, _: (c * w, None), x, length=2)[0])):  # fmt: skip
        with pytest.raises(sg.GraphError, match=r"'w' belongs to another graph: .* hand 'w' over as an argument"):
            call(x)
        assert call(w) is not None  # in its own graph
    with pytest.raises(sg.GraphError, match=r"actual 'name': what is none is bound beforehand"):
        sg.function(lambda x, name: x)(x, "name")


# -- derivatives by arguments -----------------------------------------------------------------------------------------


def test_the_gradient_is_by_the_argument() -> None:
    """By the tensor, ``f(x, x)`` would give the sum of both gradients twice."""
    f = sg.value_and_grad(lambda a, b: sg.sum(a * a * b), argnums=(0, 1))
    with sg.Graph() as graph:
        x = sg.placeholder((2,), sg.float64)
        value, (by_a, by_b) = f(x, x)
        _, with_outside = sg.value_and_grad(lambda a: sg.sum(a * x))(x)  # x itself is constant here
    at = np.array([1.0, 3.0])
    got = sg.Session(graph).run([value, by_a, by_b, with_outside], {x: at})
    for a, b in zip(got, (28, 2 * at * at, at * at, at), strict=True):
        np.testing.assert_allclose(a, b)
    same = f(at, at)
    np.testing.assert_allclose(same[1][0], 2 * at * at)
    np.testing.assert_allclose(same[1][1], at * at)


def test_nested_calls_give_higher_derivatives() -> None:
    slope = sg.value_and_grad(cube)
    curvature = sg.value_and_grad(lambda x: sg.sum(slope(x)[1]))
    third = sg.value_and_grad(lambda x: sg.sum(curvature(x)[1]))
    x = np.array([1.0, 2.0])
    for function, value, gradient in ((slope, 9, 3 * x * x), (curvature, 15, 6 * x), (third, 18, np.full(2, 6))):
        got = function(x)
        np.testing.assert_allclose(got[0], value)
        np.testing.assert_allclose(got[1], gradient)
    # The inner gradient is by its own argument, though the outer one is the same tensor.
    mixed = sg.value_and_grad(lambda x: sg.sum(sg.value_and_grad(lambda y: sg.sum(x * y * y))(x)[1]))
    np.testing.assert_allclose(mixed(x)[1], 4 * x)


def test_gradients_are_nests_like_their_arguments() -> None:
    f = sg.value_and_grad(lambda p, x: sg.sum(p["w"] * x) + 0 * sg.sum(x), argnums=0)
    value, slopes = f({"w": np.ones(2), "unused": np.ones(3)}, np.array([1.0, 2.0]))
    assert value == 3
    assert slopes["w"].tolist() == [1, 2]
    assert slopes["unused"].tolist() == [0, 0, 0]


def test_gradients_in_bodies_and_by_the_last_argument() -> None:
    step = sg.value_and_grad(lambda rate, x: rate * cube(x), argnums=-1)
    with sg.Graph() as graph:
        x = sg.placeholder((2,), sg.float64)
        last, _ = sg.scan(lambda x, _: (x - step(0.01, x)[1], None), x, length=10)
    at = want = np.array([1.0, -0.5])
    for _ in range(10):
        want = want - 0.03 * want**2
    np.testing.assert_allclose(sg.Session(graph).run(last, {x: at}), want)


def test_other_results_beside_the_value() -> None:
    def fit(w: Any, x: Any) -> Any:
        residuals = x @ w - 1
        return sg.sum(residuals**2), {"residuals": residuals}

    f, w, x = sg.value_and_grad(fit, has_aux=True), np.array([1.0, 2.0]), np.eye(2)
    (value, others), slope = f(w, x)
    assert (value, others["residuals"].tolist(), slope.tolist()) == (1, [0, 1], [0, 2])
    with pytest.raises(sg.GradientError, match="has_aux=True derives the first of two"):
        sg.value_and_grad(fit)(w, x)
    with pytest.raises(sg.GradientError, match="has_aux: expected a function to a pair"):
        sg.value_and_grad(cube, has_aux=True)(w)


def test_what_has_no_gradient_is_refused() -> None:
    x = np.ones(2)
    with pytest.raises(sg.GraphError, match="expected a function of tensors, actual 3"):
        sg.value_and_grad(3)  # type: ignore[arg-type]
    for wrong in ("x", 1.0, True, [None]):
        with pytest.raises(sg.GraphError, match="argnums: expected an int or a sequence of ints"):
            sg.value_and_grad(cube, argnums=wrong)  # type: ignore[arg-type]
    with pytest.raises(sg.GradientError, match=r"argument 1: expected floating values to derive by, actual int64\[\]"):
        sg.value_and_grad(lambda x, i: x[i], argnums=(0, 1))(x, 1)
    assert sg.value_and_grad(lambda x, i: x[i] ** 2, argnums=np.int64(0))(x, 1)[1].tolist() == [0, 2]  # type: ignore[arg-type]
    with pytest.raises(sg.GradientError, match=r"expected a function to one number, actual float64\[2\]"):
        sg.value_and_grad(lambda x: x * x)(x)
    with pytest.raises(sg.GradientError, match="there is no argument 2 of 1"):
        sg.value_and_grad(cube, argnums=2)(x)
    with pytest.raises(sg.GradientError, match="floating"):
        sg.value_and_grad(cube)(np.ones(2, np.int64))


def test_products_with_hessians() -> None:
    rng = np.random.default_rng(0)
    a, b, v, w = (rng.normal(size=shape) for shape in ((3,), (3, 2), (3,), (3, 2)))
    with sg.Graph() as graph:
        x, y = sg.placeholder((3,), sg.float64), sg.placeholder((3, 2), sg.float64)
        z = sg.sum(sg.sin(x[:, None] * y) * y)
        products = [sg.hvp(z, x, v), *sg.hvp(z, [x, y], [v, w]), sg.hvp(sg.sum(x), x, v)]
        by_x = sg.hessian(z, x) @ v
        slopes = sg.gradients(z, [x, y])
        both = sg.gradients(sg.sum(slopes[0] * v) + sg.sum(slopes[1] * w), [x, y])
    got = sg.Session(graph).run([*products, by_x, *both], {x: a, y: b})
    np.testing.assert_allclose(got[0], got[4])
    np.testing.assert_allclose(got[1], got[5])
    np.testing.assert_allclose(got[2], got[6])
    np.testing.assert_array_equal(got[3], np.zeros(3))
    with graph:
        nest = sg.hvp(z, {"x": x, "y": (y,)}, {"x": v, "y": (None,)})
        partly = sg.hvp(z, [x, y], [v, np.zeros((3, 2))])
    np.testing.assert_allclose(
        sg.Session(graph).run(nest["y"][0], {x: a, y: b}), sg.Session(graph).run(partly[1], {x: a, y: b})
    )
    with graph:
        with pytest.raises(sg.GradientError, match=r"hvp: y: expected one number, actual float64\[3\]"):
            sg.hvp(x, x, v)
        with pytest.raises(sg.GradientError, match="hvp: y: expected one number"):
            sg.hvp([z, z], x, v)
        with pytest.raises(sg.GraphError, match="nests differ"):
            sg.hvp(z, [x, y], [v])
