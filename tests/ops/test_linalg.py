"""``sg.linalg`` where the table's cases do not look: equations, failures, equal values, ranks, loops, all targets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.selection import every_pair
from support.targets import HERE

import staticgrad as sg
from staticgrad import linalg

RNG = np.random.default_rng(1)

pytestmark = pytest.mark.usefixtures("unfolded")


def run(fetches: Any, feeds: Any = None, **options: Any) -> Any:
    return sg.Session(sg.get_default_graph(), **options).run(fetches, feeds)


def definite(*shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return np.asarray(x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1]))


def test_every_name_is_there() -> None:
    assert set(linalg.__all__) >= {
        "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
        "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
        "trace", "vecdot", "vector_norm",
    }  # fmt: skip
    assert all(callable(getattr(sg.linalg, name)) for name in linalg.__all__)


@pytest.mark.parametrize(("n", "dtype", "target"), every_pair([1, 2, 5, 16, 33, 67], [np.float32, np.float64], HERE))
def test_factors_multiply_to_what_was_factored(target: str, dtype: Any, n: int, monkeypatch: Any) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    general, tall = RNG.normal(size=(2, n, n)).astype(dtype), RNG.normal(size=(n + 3, n)).astype(dtype)
    spd, right = definite(2, n, n).astype(dtype), RNG.normal(size=(2, n, 3)).astype(dtype)
    a, t, s, b = (sg.placeholder(x.shape, dtype) for x in (general, tall, spd, right))
    fetches = {
        "l": linalg.cholesky(s), "x": linalg.solve(a, b), "qr": linalg.qr(t), "eigh": linalg.eigh(s),
        "svd": linalg.svd(t, full_matrices=False), "wide": linalg.svd(sg.matrix_transpose(t), full_matrices=True),
    }  # fmt: skip
    got = run(fetches, {a: general, t: tall, s: spd, b: right})
    eps = 200 * n * float(np.finfo(dtype).eps)

    def close(x: np.ndarray, y: np.ndarray, scale: float = 1.0) -> None:
        np.testing.assert_allclose(x, y, rtol=0, atol=eps * max(scale, float(np.abs(y).max())))

    low, (q, r), (w, v), (u, values, vh) = got["l"], got["qr"], got["eigh"], got["svd"]
    close(low @ np.swapaxes(low, -1, -2), spd)
    assert not np.triu(low, 1).any()
    close(general @ got["x"], right, float(np.abs(general).max() * np.abs(got["x"]).max()))
    close(q @ r, tall)
    close(q.T @ q, np.eye(n))
    close((v * w[:, None]) @ np.swapaxes(v, -1, -2), spd)
    close(np.swapaxes(v, -1, -2) @ v, np.broadcast_to(np.eye(n), v.shape))
    close((u * values) @ vh, tall)
    close(vh @ vh.T, np.eye(n))
    close(values, np.linalg.svd(tall, compute_uv=False))
    u, values, vh = got["wide"]
    assert (u.shape, vh.shape) == ((n, n), (n + 3, n + 3))
    close((u * values) @ vh[:n], tall.T)
    close(vh @ vh.T, np.eye(n + 3))


# -- what fails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [sg.float16, sg.bfloat16, sg.float32, sg.float64])
def test_a_matrix_that_is_not_positive_definite_gives_nan_in_the_whole_triangle(dtype: np.dtype) -> None:
    """Of every size below and above that of a block, wherever the pivot is; others of the batch are as they are."""
    feeds, fetches, wanted = {}, [], []
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 13, 33):
        places = sorted({0, 1, n // 2, n - 2, n - 1} & {*range(n)})
        x = np.tile(4 * np.eye(n), (len(places) + 1, 1, 1))
        for number, place in enumerate(places):
            x[number, place, place] = (-1.0, 0.0, np.nan)[number % 3]
        lower = np.where(np.tril(np.ones((n, n), bool)), np.nan, 0)
        wanted.append(np.stack([lower] * len(places) + [2 * np.eye(n)]))
        feed = sg.placeholder(x.shape, dtype)
        feeds[feed] = x.astype(dtype)
        fetches += [linalg.cholesky(feed), linalg.cholesky(feed, upper=True)]
    got = run(fetches, feeds)
    for want, lower, upper in zip(wanted, got[::2], got[1::2], strict=True):
        np.testing.assert_array_equal(lower.astype(float), want)
        np.testing.assert_array_equal(upper.astype(float), np.swapaxes(want, -1, -2))


def test_a_factor_of_an_open_size_is_nan_as_a_whole_too() -> None:
    n = sg.dim("n")
    x = sg.placeholder((n, n), sg.float64)
    session = sg.Session()
    program = session.compile(linalg.cholesky(x), feeds=[x])
    for size in range(1, 10):
        bad = np.eye(size)
        bad[size // 2, size // 2] = -1.0
        want = np.where(np.tril(np.ones((size, size), bool)), np.nan, 0)
        np.testing.assert_array_equal(program(bad), want)
        np.testing.assert_array_equal(program(np.eye(size)), np.eye(size))
    assert program(np.zeros((0, 0))).shape == (0, 0)


def test_check_numerics_names_the_factorisation_that_failed() -> None:
    x = sg.placeholder((3, 3), sg.float64)
    y = linalg.cholesky(x)
    with pytest.raises(sg.NumericsError, match="cholesky"):
        run(y, {x: -np.eye(3)}, check_numerics=True)


def test_a_singular_system_gives_no_number_and_ends_no_process() -> None:
    x = np.ones((3, 3))
    solution, inverse, d, (sign, log) = run([linalg.solve(x, np.arange(3.0)), linalg.inv(x), linalg.det(x),
                                             linalg.slogdet(x)])  # fmt: skip
    assert not np.isfinite(solution).all()
    assert not np.isfinite(inverse).all()
    assert (d, sign, log) == (0.0, 0.0, -np.inf)


def test_nan_and_infinity_come_through_and_everything_ends() -> None:
    for bad in (np.nan, np.inf):
        x = np.eye(5)
        x[1, 2] = x[2, 1] = bad
        got = run([linalg.eigvalsh(x), linalg.svdvals(x), linalg.qr(x)[1], linalg.solve(x, np.ones(5))])
        assert not any(np.isfinite(y).all() for y in got[:3])
        assert np.isfinite(got[3]).all() == np.isinf(bad)  # as by hand: one over infinity is zero


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.inv, linalg.det, linalg.eigh])
def test_matrices_that_are_not_square_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(sg.GraphError, match="columns as rows"):
        function(np.ones((2, 3)))


def test_right_sides_of_another_size_are_refused() -> None:
    with pytest.raises(sg.GraphError, match="right side"):
        linalg.solve(np.eye(3), np.ones(4))


# -- equations ------------------------------------------------------------------------------------------------------


def test_vectors_and_batches_of_right_sides_broadcast() -> None:
    a, b, v = RNG.normal(size=(4, 3, 3)), RNG.normal(size=(2, 1, 3, 2)), RNG.normal(size=3)
    got = run([linalg.solve(a, b), linalg.solve(a, v)])
    np.testing.assert_allclose(got[0], np.linalg.solve(a, b), rtol=1e-10)
    np.testing.assert_allclose(got[1], np.linalg.solve(a, np.broadcast_to(v[:, None], (4, 3, 1)))[..., 0], rtol=1e-10)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems_read_one_triangle(upper: bool, left: bool, unit: bool) -> None:
    full = RNG.normal(size=(6, 6)) + 4 * np.eye(6)
    b = RNG.normal(size=(6, 3) if left else (3, 6))
    t = np.triu(full) if upper else np.tril(full)
    if unit:
        t = t - np.diag(np.diag(t)) + np.eye(6)
    x = run(linalg.solve_triangular(full, b, upper=upper, left=left, unitriangular=unit))
    np.testing.assert_allclose(t @ x if left else x @ t, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 7])
def test_powers_of_matrices(n: int) -> None:
    x = RNG.normal(size=(2, 3, 3))
    np.testing.assert_allclose(run(linalg.matrix_power(x, n)), np.linalg.matrix_power(x, n), rtol=1e-9, atol=1e-9)


# -- values that coincide, ranks, sizes -----------------------------------------------------------------------------


def test_functions_of_equal_eigenvalues_have_finite_gradients() -> None:
    x = sg.constant(np.eye(4) * 2)
    w, _ = linalg.eigh(x)
    _, s, _ = linalg.svd(x)
    grads = sg.gradients([sg.sum(w * w), sg.sum(s)], [x])
    np.testing.assert_allclose(run(grads[0]), np.eye(4) * 5, atol=1e-12)


def test_left_vectors_are_orthonormal_whatever_the_rank() -> None:
    for rank in (0, 1, 2):
        x = RNG.normal(size=(6, rank)) @ RNG.normal(size=(rank, 4))
        u, s, vh = run(linalg.svd(x))
        np.testing.assert_allclose(u.T @ u, np.eye(6), atol=1e-12)
        np.testing.assert_allclose((u[:, :4] * s) @ vh, x, atol=1e-12)
        assert run(linalg.matrix_rank(x)) == rank
        np.testing.assert_allclose(run(linalg.pinv(x, rtol=1e-10)), np.linalg.pinv(x, 1e-10), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_values_of_matrices_whose_rows_are_multiples_are_numbers(dtype: Any) -> None:
    whole = RNG.integers(-3, 4, (50, 3, 3)).astype(dtype)
    whole[:, 1] = 2 * whole[:, 0]
    x = sg.placeholder(whole.shape, dtype)
    u, s, vh = run(linalg.svd(x), {x: whole})
    np.testing.assert_allclose(s, np.linalg.svd(whole, compute_uv=False), atol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(u * s[:, None] @ vh, whole, atol=100 * np.finfo(dtype).eps)


def minors(a: np.ndarray, count: int) -> np.ndarray:
    """The signed determinants of what is left without ``count`` rows and columns, by these; 0 where two are one."""
    n = len(a)
    result = np.zeros((n,) * (2 * count))
    for rows in itertools.permutations(range(n), count):
        for columns in itertools.permutations(range(n), count):
            left = np.delete(np.delete(a, rows, 0), columns, 1)
            turned = [sum(x > y for x, y in itertools.combinations(places, 2)) for places in (rows, columns)]
            sign = (-1) ** (sum(rows) + sum(columns) + sum(turned))
            result[tuple(i for pair in zip(rows, columns, strict=True) for i in pair)] = sign * np.linalg.det(left)
    return result


SINGULAR = {
    "of rank one": np.outer([1.0, 2.0], [1.0, 2.0]),
    "nearly": np.arange(1.0, 10.0).reshape(3, 3),
    "nilpotent": np.eye(4, k=1),
    "zero": np.zeros((3, 3)),
    "multiples": np.array([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]]),
    "one number": np.zeros((1, 1)),
    "regular": np.array([[2.0, 1, 0], [1, 3, 1], [0, 1, 4]]),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_determinants_of_singular_matrices_have_first_and_second_derivatives(name: str) -> None:
    a = SINGULAR[name]
    x = sg.placeholder(a.shape, sg.float64)
    y = linalg.det(x)
    (slope,) = sg.gradients(y, x)
    t = np.cos(np.arange(float(a.size))).reshape(a.shape)
    (along,) = sg.jvp(y, x, t)
    fetches = [slope, along, sg.hessian(y, x), sg.gradients(slope, x, t)[0], sg.jvp(along, x, t)[0]]
    first, pushed, second, pulled, both = run(fetches, {x: a})
    expected, curvature = minors(a, 1), minors(a, 2) if a.size > 1 else np.zeros((1, 1, 1, 1))
    np.testing.assert_allclose(first, expected, atol=1e-12)
    np.testing.assert_allclose(pushed, np.sum(expected * t), atol=1e-12)
    np.testing.assert_allclose(second, curvature, atol=1e-11)
    np.testing.assert_allclose(pulled, np.einsum("ijkl,ij->kl", curvature, t), atol=1e-11)
    np.testing.assert_allclose(both, np.einsum("ijkl,ij,kl->", curvature, t, t), atol=1e-11)


def test_a_singular_matrix_leaves_the_derivatives_of_others_in_its_batch_as_they_are() -> None:
    batch = np.stack([np.eye(3), np.zeros((3, 3)), SINGULAR["regular"]])
    x = sg.placeholder((3, 3, 3), sg.float64)
    y = sg.sum(linalg.det(x))
    (first,) = sg.gradients(y, x)
    (second,) = sg.gradients(first[:, 0, 0], x)
    (third,) = sg.gradients(second[:, 1, 1], x)
    got = run([first, second, third], {x: batch})
    np.testing.assert_allclose(got[0], np.stack([minors(a, 1) for a in batch]), atol=1e-12)
    np.testing.assert_allclose(got[1], np.stack([minors(a, 2)[0, 0] for a in batch]), atol=1e-12)
    np.testing.assert_allclose(got[2][[0, 2]], np.stack([np.diag([0.0, 0, 1])] * 2), atol=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("scales", [(1e6, 1.0, 1e-6), (1e-6, 1.0, 1e6), (1e-8, 1e8, 1.0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cofactors_of_a_badly_scaled_matrix_are_right_each_by_itself(dtype: Any, scales: Any, zeros: bool) -> None:
    inner = np.array([[1.0, -1, 0 if zeros else 3], [-2, 3, -2], [-1, 2, 3]])
    a = (np.array(scales)[:, None] * inner * scales).astype(dtype)
    x = sg.placeholder(a.shape, dtype)
    (slope,) = sg.gradients(linalg.det(x), x)
    (along,) = sg.jvp(linalg.det(x), x, np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], dtype))
    (second,) = sg.gradients(slope[1, 1], x)
    got = run([slope, along, second], {x: a})
    factors = np.prod(scales) ** 2 / np.multiply.outer(scales, scales)
    expected = minors(inner, 1) * factors
    eps = 100 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(got[0], expected, rtol=eps)
    np.testing.assert_allclose(got[1], expected[1, 1], rtol=eps)
    np.testing.assert_allclose(got[2] / factors * scales[1] ** 2, minors(inner, 2)[1, 1], rtol=eps, atol=eps)


def test_cofactors_are_right_where_the_determinant_itself_is_out_of_range() -> None:
    a = np.float32(1e-14) * np.array([[2, 1, 0], [1, 3, 1], [0, 1, 4]], np.float32)
    rotation = np.linalg.qr(RNG.normal(size=(150, 150)))[0].astype(np.float32)
    x, y = sg.placeholder(a.shape, sg.float32), sg.placeholder(rotation.shape, sg.float32)
    small, turned = run([*sg.gradients(linalg.det(x), x), *sg.gradients(linalg.det(y), y)], {x: a, y: rotation})
    np.testing.assert_allclose(small, minors(a.astype(np.float64), 1), rtol=1e-6, atol=1e-35)
    np.testing.assert_allclose(turned, np.sign(np.linalg.det(rotation)) * rotation, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_huge_and_tiny_matrices_do_not_overflow(scale: float) -> None:
    x = (definite(5, 5) * scale).astype(np.float32)
    w, s = run([linalg.eigvalsh(x), linalg.svdvals(x)])
    np.testing.assert_allclose(w, np.linalg.eigvalsh(x.astype(np.float64)), rtol=1e-4)
    np.testing.assert_allclose(s, np.linalg.svd(x.astype(np.float64), compute_uv=False), rtol=1e-4)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_has_lapacks_signs_and_shapes(shape: tuple[int, int], mode: Any) -> None:
    x = RNG.normal(size=(2, *shape))
    q, r = run(linalg.qr(x, mode=mode))
    expected = np.linalg.qr(x, mode)
    assert q.shape == expected.Q.shape
    np.testing.assert_allclose(r, expected.R, atol=1e-10)
    np.testing.assert_allclose(q @ r, x, atol=1e-10)


def test_vectors_that_complete_a_basis_have_no_gradient() -> None:
    x = sg.constant(RNG.normal(size=(4, 2)))
    u, s, _ = linalg.svd(x)
    assert run(sg.gradients(s, [x])[0]).shape == (4, 2)
    with pytest.raises(sg.GradientError):
        sg.gradients(u, [x])


# -- norms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices(ord: Any) -> None:
    x = RNG.normal(size=(2, 3, 4))
    got = run([linalg.matrix_norm(x, ord=ord), linalg.matrix_norm(x, ord=ord, keepdims=True)])
    expected = np.linalg.matrix_norm(x, ord=ord)
    np.testing.assert_allclose(got[0], expected, rtol=1e-10)
    np.testing.assert_allclose(got[1], expected[..., None, None], rtol=1e-10)


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1, np.inf, -np.inf])
def test_norms_of_vectors(ord: float) -> None:
    x = RNG.normal(size=(3, 4))
    got = run([linalg.vector_norm(x, ord=ord), linalg.vector_norm(x, 1, ord=ord, keepdims=True)])
    np.testing.assert_allclose(got[0], np.linalg.vector_norm(x, ord=ord), rtol=1e-10)
    np.testing.assert_allclose(got[1], np.linalg.vector_norm(x, axis=1, ord=ord, keepdims=True), rtol=1e-10)


@pytest.mark.parametrize("ord", [1, 2, 3])
def test_the_norm_of_zero_has_the_derivative_zero(ord: float) -> None:
    x = sg.constant(np.zeros(3))
    np.testing.assert_array_equal(run(sg.gradients(linalg.vector_norm(x, ord=ord), [x])[0]), np.zeros(3))


# -- in programs ----------------------------------------------------------------------------------------------------


def test_one_elimination_serves_a_solution_and_its_gradient() -> None:
    a, b = sg.placeholder((5, 5), sg.float64), sg.placeholder((5,), sg.float64)
    x = linalg.solve(a, b)
    exe = sg.Session(sg.get_default_graph()).compile([x, sg.gradients(sg.sum(x * x), [a])[0]], [a, b])
    assert exe.text("kernels").count("elimination") == 1


def test_factorisations_in_a_loop_and_through_it() -> None:
    start = definite(3, 3)
    x = sg.placeholder((3, 3), sg.float64)

    def newton(y: Any) -> Any:
        return (y + linalg.solve(y, x)) * 0.5

    root = sg.while_loop(lambda y: sg.constant(True), newton, x, max_steps=12)
    (dx,) = sg.gradients(sg.sum(root), [x])
    got, slope = run([root, dx], {x: start})
    np.testing.assert_allclose(got @ got, start, rtol=1e-8)
    w, v = np.linalg.eigh(start)
    inner = (v.T @ np.ones((3, 3)) @ v) / (np.sqrt(w)[:, None] + np.sqrt(w)[None, :])
    np.testing.assert_allclose(slope, v @ inner @ v.T, rtol=1e-6)  # of Σ √X: the solution of a Lyapunov equation


def test_a_tape_keeps_what_a_backward_of_a_factorisation_needs() -> None:
    x = sg.Variable(definite(4, 4), name="x")
    loss = sg.linalg.slogdet(x)[1] + sg.sum(sg.linalg.cholesky(x))
    with sg.Session(sg.get_default_graph()) as session:
        expected = session.run(sg.gradients(loss, [x])[0])
        with session.forward(loss, {}) as tape:
            tape.backward(loss)
        np.testing.assert_allclose(session.grad(x), expected, rtol=1e-10)


def test_factorisations_give_the_same_bits_on_any_number_of_threads() -> None:
    values = definite(300, 8, 8)
    x = sg.placeholder(values.shape, sg.float64)
    fetches = [linalg.cholesky(x), linalg.inv(x), linalg.eigh(x)[1], linalg.svd(x)[0], linalg.qr(x)[0]]
    one, two = (run(fetches, {x: values}, num_threads=n) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("first", "second"), [((2, 3), (4, 5)), ((3,), (2, 2)), ((), (2, 3)), ((2, 1, 3), (2, 2)), ((0, 2), (2, 2))]
)
def test_kron_is_numpy_s_at_any_rank(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = RNG.normal(size=first), RNG.normal(size=second)
    x, y = sg.placeholder(first, sg.float64), sg.placeholder(second, sg.float64)
    k = sg.kron(x, y)
    product, of_x, of_y = run([k, *sg.gradients(k, [x, y])], {x: a, y: b})
    np.testing.assert_array_equal(product, np.kron(a, b))
    np.testing.assert_allclose(of_x, np.full(first, b.sum()), rtol=1e-12)
    np.testing.assert_allclose(of_y, np.full(second, a.sum()), rtol=1e-12)


def test_kron_and_block_diag_of_open_sizes() -> None:
    x, y = sg.placeholder((None, 3)), sg.placeholder((2, None))
    fetches = [sg.kron(x, y), linalg.block_diag(x, y, 2.0)]
    for n in (2, 5):
        a, b = RNG.normal(size=(n, 3)).astype(np.float32), RNG.normal(size=(2, n + 1)).astype(np.float32)
        product, blocks = run(fetches, {x: a, y: b})
        np.testing.assert_array_equal(product, np.kron(a, b))
        np.testing.assert_array_equal(blocks[:n, :3], a)
        np.testing.assert_array_equal(blocks[n : n + 2, 3:-1], b)
        assert blocks[-1, -1] == 2
        assert np.abs(blocks).sum() == pytest.approx(np.abs(a).sum() + np.abs(b).sum() + 2, rel=1e-5)


def test_block_diag_takes_batches_and_refuses_others() -> None:
    a, b = RNG.normal(size=(4, 2, 3)), RNG.normal(size=(4, 1, 2))
    got = run(linalg.block_diag(a, b))
    assert got.shape == (4, 3, 5)
    np.testing.assert_array_equal(got[:, :2, :3], a)
    np.testing.assert_array_equal(got[:, 2:, 3:], b)
    with pytest.raises(sg.GraphError, match="expected leading axes"):
        linalg.block_diag(a, b[:2])
    with pytest.raises(sg.GraphError, match="expected one matrix or more"):
        linalg.block_diag()


# -- named results --------------------------------------------------------------------------------------------------


def test_several_results_have_the_names_of_the_standard() -> None:
    x = definite(2, 3, 3)
    results = [
        (linalg.eigh(x), ("eigenvalues", "eigenvectors")), (linalg.qr(x), ("Q", "R")),
        (linalg.qr(x[:, :2]), ("Q", "R")), (linalg.qr(x[..., :2], mode="complete"), ("Q", "R")),
        (linalg.svd(x), ("U", "S", "Vh")), (linalg.slogdet(x), ("sign", "logabsdet")),
    ]  # fmt: skip
    got = run([result for result, _ in results])
    for (result, names), arrays in zip(results, got, strict=True):
        assert result._fields == names
        assert type(arrays) is type(result)
        assert [a.shape for a in arrays] == [y.shape for y in result]
    np.testing.assert_allclose(got[5].logabsdet, np.linalg.slogdet(x).logabsdet)


def test_named_results_stay_named_in_nests() -> None:
    x = sg.constant(definite(3, 2, 2))
    pair = linalg.slogdet(x[0])
    mapped = sg.vmap(linalg.qr)(x)
    carried, rows = sg.scan(lambda c, m: (linalg.slogdet(m), c), pair, x)
    chosen = sg.cond(sg.constant(True), lambda: linalg.slogdet(x[0]), lambda: linalg.slogdet(x[1]))
    looped = sg.while_loop(lambda s: s.sign < 0, lambda s: s, pair)
    assert [type(y).__name__ for y in (mapped, carried, rows, chosen, looped)] == ["QRResult"] + ["SlogdetResult"] * 4
    exe = sg.Session(x.graph).compile({"qr": mapped}, [])
    assert type(exe()["qr"]) is type(mapped)
    assert sg.nest.map(lambda y: y.ndim, mapped) == type(mapped)(3, 3)
    assert sg.nest.paths(mapped) == [".Q", ".R"]


def test_a_plain_tuple_stands_beside_a_named_one_and_another_named_one_does_not() -> None:
    x = sg.constant(definite(3, 2, 2))
    pair = linalg.slogdet(x[0])
    carried, _ = sg.scan(lambda c, m: ((c.sign * 2, c.logabsdet), m), pair, x)
    assert type(carried) is type(pair)
    assert run(carried).sign == 8
    assert type(sg.nest.map(lambda a, b: a, tuple(pair), pair)) is tuple
    with pytest.raises(sg.GraphError, match="nests differ"):
        sg.nest.map(lambda a, b: a, pair, linalg.qr(x))
