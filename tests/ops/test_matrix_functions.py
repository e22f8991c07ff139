"""Functions of matrices, and derivatives where eigenvalues or singular values are equal: right, or NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg
from support.targets import HERE

import staticgrad as sg
from staticgrad import linalg
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.linalg.divided import difference, second_difference

RNG = np.random.default_rng(3)
DIRECTION = np.array([[0.3, 1, -0.5], [1, 0.1, 0.7], [-0.5, 0.7, 0.2]])
TURN = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
BASE = RNG.normal(size=(3, 3))
MATRICES = {
    "random": BASE @ BASE.T / 3 + np.eye(3),
    "identity": np.eye(3),
    "two equal": np.diag([1.0, 1.0, 2.0]),
    "turned": TURN @ np.diag([1.0, 1.0, 2.0]) @ TURN.T,  # equal but for rounding
    "near": TURN @ np.diag([1.0, 1 + 1e-9, 1.03]) @ TURN.T,
}
FUNCTIONS_OF_MATRICES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sqrtm": (linalg.sqrtm, scipy.linalg.sqrtm),
    "logm": (linalg.logm, scipy.linalg.logm),
    "expm": (linalg.expm, scipy.linalg.expm),
    "funm exp": (lambda x: linalg.funm(x, sg.exp), scipy.linalg.expm),
    "funm cube": (lambda x: linalg.funm(x, lambda w: w**3), lambda x: x @ x @ x),
}


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def run(fetches: Any, feeds: Any = None, **options: Any) -> Any:
    return sg.Session(sg.get_default_graph(), **options).run(fetches, feeds)


def matrix(n: int = 3) -> sg.Tensor:
    return sg.placeholder((n, n), sg.float64)


# -- vectors of equal values ----------------------------------------------------------------------------------------


def root_by_vectors(x: sg.Tensor) -> sg.Tensor:
    w, v = linalg.eigh(x)
    return v * sg.sqrt(w) @ sg.matrix_transpose(v)


def turning_factor(x: sg.Tensor) -> sg.Tensor:
    u, _, vh = linalg.svd(x)
    return u @ vh


@pytest.mark.parametrize("fn", [root_by_vectors, turning_factor])
def test_vectors_of_equal_values_have_no_derivative_that_is_finite_and_wrong(fn: Any) -> None:
    x = matrix()
    y = fn(x)
    (along,), (slope,) = sg.jvp(y, x, DIRECTION), sg.gradients(y, x, DIRECTION)
    fetches = [along, slope, *sg.gradients(along, x), *sg.jvp(slope, x, DIRECTION)]
    for at in (np.eye(3), np.diag([1.0, 1, 2]), np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 3]])):
        assert all(np.isnan(g).all() for g in run(fetches, {x: at}))


def test_derivatives_of_equal_values_alone_stay_finite_wherever_vectors_are_made() -> None:
    x = matrix()
    steps = np.ones(2)

    def body(state: Any, step: Any) -> Any:
        c, _, _ = state
        return (c * step, *linalg.eigh(c)), linalg.eigh(c)

    zeros = sg.zeros(3, dtype=sg.float64), sg.zeros((3, 3), dtype=sg.float64)
    (_, carried, _), (rows, _) = sg.scan(body, (x, *zeros), steps)
    values = [
        linalg.eigvalsh(x), linalg.svdvals(x), linalg.eigh(x)[0], linalg.svd(x)[1], carried, rows[1],
        sg.cond(sg.sum(x) > 0, lambda: linalg.eigh(x), lambda: linalg.eigh(2 * x))[0], sg.vmap(linalg.eigh)(x[None])[0],
        sg.checkpoint(linalg.eigh, x)[0],
    ]  # fmt: skip
    slopes = [sg.gradients(sg.sum(y * y), x)[0] for y in values]
    along = [sg.jvp(sg.sum(y * y), x, DIRECTION)[0] for y in values]
    for at in (np.eye(3), np.diag([1.0, 1, 2])):
        for slope in run(slopes, {x: at}):
            np.testing.assert_allclose(slope, 2 * at, atol=1e-14)
        np.testing.assert_allclose(run(along, {x: at}), np.sum(2 * at * DIRECTION), rtol=1e-14)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
@pytest.mark.parametrize(("ord", "values"), [("nuc", (2, 2, 2)), ("nuc", (2, 2, 1)), (2, (3, 1, 1)), (-2, (3, 3, 1))])
def test_norms_have_second_derivatives_where_singular_values_are_equal(ord: Any, values: Any, shape: Any) -> None:
    at = np.zeros(shape)
    at[np.arange(3), np.arange(3)] = values
    sg.check_gradients(lambda x: linalg.matrix_norm(x, ord=ord), [at])
    if ord == 2:
        sg.check_gradients(lambda x: linalg.matrix_norm(x, ord=ord), [np.ones(shape)])  # of rank one


def test_the_spectral_norm_has_no_second_derivative_where_its_value_is_not_alone() -> None:
    x = matrix()
    (slope,) = sg.gradients(linalg.matrix_norm(x, ord=2), x)
    first, second = run([slope, sg.gradients(slope[0, 1], x)[0]], {x: np.diag([2.0, 2, 1])})
    np.testing.assert_allclose(first, np.diag([0.5, 0.5, 0]), atol=1e-15)
    assert np.isnan(second).all()


# -- functions of matrices ------------------------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("name", FUNCTIONS_OF_MATRICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_matrices_are_scipy_s(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = FUNCTIONS_OF_MATRICES[name]
    batch = np.stack([*MATRICES.values(), np.diag([1e-3, 1.0, 5.0])]).astype(dtype)
    expected = np.stack([theirs(a.astype(np.float64)) for a in batch])
    for target in HERE:
        monkeypatch.setenv("STATICGRAD_TARGET", target)
        x = sg.placeholder((None, 3, 3), dtype)
        got, mapped = run([ours(x), sg.vmap(ours)(x)], {x: batch})
        scale = np.maximum(np.abs(expected).max(axis=(1, 2), keepdims=True), 1)
        assert (np.abs(got - expected) <= 100 * float(np.finfo(dtype).eps) * scale).all()
        np.testing.assert_array_equal(mapped, got)


def test_the_root_of_the_identity_is_derived_in_every_direction() -> None:
    x = matrix()
    y = linalg.sqrtm(x)
    np.testing.assert_allclose(run(sg.jvp(y, x, DIRECTION)[0], {x: np.eye(3)}), DIRECTION / 2, rtol=1e-14)
    np.testing.assert_allclose(run(sg.gradients(y, x, DIRECTION)[0], {x: np.eye(3)}), DIRECTION / 2, rtol=1e-14)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", FUNCTIONS_OF_MATRICES)
@pytest.mark.parametrize("at", MATRICES)
def test_functions_of_matrices_are_derived_twice_at_equal_and_near_eigenvalues(name: str, at: str) -> None:
    sg.check_gradients(FUNCTIONS_OF_MATRICES[name][0], [MATRICES[at]])


@pytest.mark.parametrize("name", ["sqrtm", "logm"])
def test_functions_of_matrices_compile_to_their_second_derivatives(name: str) -> None:
    fn = FUNCTIONS_OF_MATRICES[name][0]
    x = matrix()
    along = sg.jvp(sg.jvp(fn(x), x, DIRECTION)[0], x, DIRECTION)[0]
    (slope,) = sg.gradients(fn(x), x, DIRECTION)
    got = run([along, sg.gradients(slope, x, DIRECTION)[0]], {x: np.eye(3)})
    expected = {"sqrtm": -0.25, "logm": -1.0}[name] * DIRECTION @ DIRECTION
    for second in got:
        np.testing.assert_allclose(second, expected, rtol=1e-13)


def test_matrices_outside_of_the_domain_have_nan_and_so_have_their_derivatives() -> None:
    x = matrix(2)
    bad = {"sqrtm": [-np.eye(2), [[1.0, 2], [0, 1]]], "logm": [-np.eye(2), np.zeros((2, 2)), [[1.0, 2], [0, 1]]]}
    for name, matrices in bad.items():
        y = FUNCTIONS_OF_MATRICES[name][0](x)
        for at in matrices:
            value, slope = run([y, sg.gradients(y, x)[0]], {x: np.array(at)})
            assert np.isnan(slope).all()
            assert not np.isfinite(value).any()
    singular = run(linalg.sqrtm(np.array([[1.0, 1, 1], [1, 1, 1], [1, 1, 1]])))  # of eigenvalues that are 0 by rounding
    np.testing.assert_allclose(singular @ singular, 1, atol=1e-7)


def test_a_function_of_a_matrix_is_derived_by_the_matrix_alone_and_twice() -> None:
    x, p = matrix(), sg.placeholder((), sg.float64)
    y = linalg.funm(x, lambda w: w**p)
    (slope,) = sg.gradients(y[0, 1], x)
    (second,) = sg.gradients(slope[0, 1], x)
    for attempt in (
        lambda: sg.gradients(y, p), lambda: sg.jvp(y, p, 1.0), lambda: sg.gradients(slope, p),
        lambda: sg.jvp(slope, p, 1.0), lambda: sg.gradients(second, p),
    ):  # fmt: skip
        with pytest.raises(sg.GradientError, match="reads a tensor by which it is derived"):
            attempt()
    for attempt in (lambda: sg.gradients(second, x), lambda: sg.jvp(second, x, DIRECTION)):
        with pytest.raises(sg.GradientError, match="not a third time"):
            attempt()


@pytest.mark.usefixtures("interpreted")
def test_a_power_of_a_matrix_is_derived_by_its_exponent() -> None:
    fn = lambda x, p: linalg.funm(p * linalg.logm(x), sg.exp)  # noqa: E731
    sg.check_gradients(fn, [np.diag([1.0, 1, 4]), np.array(1.7)])


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda w: sg.sum(w), "element by element"), (lambda w: w > 0, "element by element"),
        (3.0, "expected a function"),
    ],
)  # fmt: skip
def test_what_is_no_function_of_numbers_is_refused(fn: Any, message: str) -> None:
    with pytest.raises(sg.GraphError, match=message):
        linalg.funm(np.eye(3), fn)


@pytest.mark.parametrize("function", [linalg.sqrtm, linalg.logm, linalg.expm, lambda x: linalg.funm(x, sg.exp)])
def test_functions_of_matrices_take_square_ones_of_any_float(function: Any) -> None:
    with pytest.raises(sg.GraphError, match="columns as rows"):
        function(np.ones((2, 3)))
    for empty in ((0, 0), (2, 0, 0), (0, 2, 2)):
        assert run(function(np.ones(empty))).shape == empty
    short = run(function(sg.constant(np.eye(2), sg.float16)))
    assert short.dtype == np.float16
    np.testing.assert_allclose(short, run(function(np.eye(2))), rtol=1e-3)


# -- exponentials ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_of_a_batch_are_scaled_each_by_itself(dtype: Any) -> None:
    sizes = np.array([0, 1e-9, 1e-3, 1, 3, 10.0])
    batch = (RNG.normal(size=(6, 4, 4)) * sizes[:, None, None]).astype(dtype)
    x = sg.placeholder((None, 4, 4), dtype)
    y = linalg.expm(x)
    directions = RNG.normal(size=batch.shape).astype(dtype)
    t = sg.placeholder((None, 4, 4), dtype)
    got, slope, along = run([y, sg.gradients(y, x)[0], sg.jvp(y, x, t)[0]], {x: batch, t: directions})
    alone = [run(y, {x: a[None]})[0] for a in batch]
    np.testing.assert_array_equal(got, np.stack(alone))
    wide, ones = batch.astype(np.float64), np.ones((4, 4))
    frechet = scipy.linalg.expm_frechet
    wanted = [
        np.stack([scipy.linalg.expm(a) for a in wide]),
        np.stack([frechet(a.T, ones, compute_expm=False) for a in wide]),
        np.stack([frechet(a, e, compute_expm=False) for a, e in zip(wide, directions.astype(np.float64), strict=True)]),
    ]
    for found, expected in zip((got, slope, along), wanted, strict=True):
        error = np.abs(found - expected).max(axis=(1, 2)) / np.abs(expected).max(axis=(1, 2))
        assert (error <= 1000 * np.finfo(dtype).eps).all()


def test_the_derivative_of_an_exponential_at_zero_is_the_direction_at_any_scale() -> None:
    x, t = matrix(2), matrix(2)
    y = linalg.expm(x)
    fetches = [y, sg.jvp(y, x, t)[0], sg.gradients(y, x, t)[0]]
    for scale in (1e-300, 1.0, 1e300):
        direction = scale * np.array([[1.0, 2], [3, 4]])
        value, along, slope = run(fetches, {x: np.zeros((2, 2)), t: direction})
        np.testing.assert_array_equal(value, np.eye(2))
        np.testing.assert_allclose(along, direction, rtol=1e-14)
        np.testing.assert_allclose(slope, direction, rtol=1e-14)


def test_exponentials_of_nilpotent_and_rotating_matrices_and_of_no_numbers() -> None:
    x = matrix(2)
    y = linalg.expm(x)
    for at, expected in (
        ([[0, 1e30], [0, 0]], [[1, 1e30], [0, 1]]),
        ([[0, 1.0], [-1, 0]], [[np.cos(1), np.sin(1)], [-np.sin(1), np.cos(1)]]),
        ([[-1e5, 1], [0, -1e4]], np.zeros((2, 2))),
    ):  # fmt: skip
        np.testing.assert_allclose(run(y, {x: np.array(at)}), expected, rtol=1e-14, atol=1e-15)
    for bad in (np.nan, np.inf):
        assert np.isnan(run(y, {x: np.array([[bad, 0], [0, 1]])})).any()


@pytest.mark.usefixtures("interpreted")
def test_exponentials_have_derivatives_of_any_order() -> None:
    sg.check_gradients(linalg.expm, [RNG.normal(size=(2, 2))], order=3)
    sg.check_gradients(linalg.expm, [np.zeros((2, 2))], order=3)
    sg.check_gradients(linalg.expm, [np.array([[[0.0, 1], [0, 0]], [[20.0, 1], [2, 3]]])])


# -- divided differences --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["log", "exp", "sqrt", "reciprocal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_divided_differences_are_right_at_any_distance(name: str, dtype: Any) -> None:
    f, exact = getattr(sg, name), {"reciprocal": lambda x: 1 / x}.get(name, getattr(mpmath, name, None))
    base = np.exp(RNG.uniform(-5, 3, 60))
    steps = 10.0 ** RNG.uniform(-17, 0.5, (2, 60)) * RNG.choice([0.0, 1.0], (2, 60), p=[0.15, 0.85])
    a, b, c = (x.astype(dtype) for x in (base, base * (1 + steps[0]), base * (1 + steps[1])))
    ts = [sg.placeholder((60,), dtype) for _ in range(3)]

    def slope(x: sg.Tensor) -> sg.Tensor:
        return sg.jvp(f(x), x, sg.ones_like(x))[0]

    def first(x: sg.Tensor, y: sg.Tensor) -> sg.Tensor:
        return difference(FUNCTIONS, f, slope, x, y)

    def curvature(x: sg.Tensor) -> sg.Tensor:
        return sg.jvp(slope(x), x, sg.ones_like(x))[0]

    one, two = run(
        [first(*ts[:2]), second_difference(FUNCTIONS, first, curvature, *ts)], dict(zip(ts, (a, b, c), strict=True))
    )
    with mpmath.workdps(60):
        for i in range(60):
            x, y, z = sorted(mpmath.mpf(float(v[i])) for v in (a, b, c))
            p, q = mpmath.mpf(float(a[i])), mpmath.mpf(float(b[i]))

            def divided(u: Any, v: Any) -> Any:
                return mpmath.diff(exact, u) if u == v else (exact(v) - exact(u)) / (v - u)

            if x == z:
                expected = mpmath.diff(exact, x, 2) / 2
            else:
                expected = (divided(y, z) - divided(x, y)) / (z - x)
            eps = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(one[i], float(divided(p, q)), rtol=30 * eps)
            np.testing.assert_allclose(two[i], float(expected), rtol=3000 * eps)
