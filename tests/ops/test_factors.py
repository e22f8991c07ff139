"""Factors of elimination, products of reflections, least squares and tridiagonal systems beside SciPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import staticgrad as sg
from staticgrad import linalg

RNG = np.random.default_rng(7)


def run(fetches: Any, feeds: Any = None) -> Any:
    return sg.Session(sg.get_default_graph()).run(fetches, feeds)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives are right in graphs; what these are compiled to is right by tests of their ops."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


SHAPES = [(4, 4), (1, 1), (9, 9), (3, 5), (6, 2), (17, 5), (27, 5), (5, 17)]


def test_factors_of_elimination_are_scipys() -> None:
    matrices = [RNG.normal(size=shape) for shape in SHAPES]
    feeds = [sg.placeholder(x.shape, sg.float64) for x in matrices]
    got = run([(linalg.lu(feed), linalg.lu_factor(feed)) for feed in feeds], dict(zip(feeds, matrices, strict=True)))
    for x, (parts, (packed, pivots, order)) in zip(matrices, got, strict=True):
        for part, want in zip(parts, scipy.linalg.lu(x), strict=True):
            np.testing.assert_allclose(part, want, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(x[order], parts.L @ parts.U, rtol=1e-11, atol=1e-13)
        np.testing.assert_array_equal(np.tril(packed, -1)[:, : parts.L.shape[1]], np.tril(parts.L, -1))
        np.testing.assert_array_equal(np.triu(packed)[: len(parts.U)], parts.U)
        if x.shape[0] == x.shape[1]:
            np.testing.assert_array_equal(pivots, scipy.linalg.lu_factor(x)[1])
        exchanged = np.arange(len(x))
        for k, pivot in enumerate(pivots):
            exchanged[[k, pivot]] = exchanged[[pivot, k]]
        np.testing.assert_array_equal(order, exchanged)


def test_a_matrix_without_a_pivot_keeps_its_rows() -> None:
    x = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 3.0, 4.0]])
    p, low, up = run(linalg.lu(x))
    np.testing.assert_allclose(p @ low @ up, x)
    assert np.isfinite(low).all()


def test_solutions_of_factors_and_of_their_transpose() -> None:
    a, b, v = RNG.normal(size=(3, 5, 5)), RNG.normal(size=(5, 2)), RNG.normal(size=5)
    packed, pivots, order = linalg.lu_factor(a)
    again = linalg.pivots_to_permutation(pivots)
    x, y, z, same = run([linalg.lu_solve(packed, order, b), linalg.lu_solve(packed, order, b, transposed=True),
                         linalg.lu_solve(packed[0], again[0], v), [order, again]])  # fmt: skip
    np.testing.assert_array_equal(*same)
    np.testing.assert_allclose(a @ x, np.broadcast_to(b, x.shape), atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(a, -1, -2) @ y, np.broadcast_to(b, x.shape), atol=1e-12)
    np.testing.assert_allclose(a[0] @ z, v, atol=1e-12)


def test_factors_of_open_sizes() -> None:
    n = sg.dim("n")
    a = sg.placeholder((n, n), sg.float64)
    p, low, up = linalg.lu(a)
    program = sg.Session().compile([p, low, up], feeds=[a])
    for size in (2, 7):
        x = RNG.normal(size=(size, size))
        p, low, up = program(x)
        np.testing.assert_allclose(p @ low @ up, x, atol=1e-13)


@pytest.mark.usefixtures("interpreted")
def test_factors_have_derivatives_in_both_modes_to_second_order() -> None:
    draw = np.random.default_rng(8)  # whatever ran before: of nearly singular matrices differences tell nothing
    x, b = draw.normal(size=(2, 4, 4)), draw.normal(size=(4, 2))
    sg.check_gradients(lambda x: [sg.sum(sg.sin(part)) for part in linalg.lu(x)[1:]], [x])
    sg.check_gradients(lambda x: sg.sum(sg.sin(linalg.lu_factor(x).LU)), [draw.normal(size=(3, 5))])
    sg.check_gradients(lambda x: sg.sum(sg.sin(linalg.lu_factor(x).LU)), [draw.normal(size=(12, 2))])

    def solved(x: Any, b: Any) -> Any:
        packed, _, order = linalg.lu_factor(x)
        return sg.sum(sg.sin(linalg.lu_solve(packed, order, b))), sg.sum(
            linalg.lu_solve(packed, order, b, transposed=True)
        )

    sg.check_gradients(solved, [x, b])


def test_factors_go_over_examples() -> None:
    x = RNG.normal(size=(3, 4, 4))
    one = run([linalg.lu_factor(sg.constant(part)) for part in x])
    many = run(sg.vmap(lambda x: tuple(linalg.lu_factor(x)))(sg.constant(x)))
    for number, wanted in enumerate(one):
        for got, want in zip(many, wanted, strict=True):
            np.testing.assert_allclose(got[number], want, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (6, 1)])
def test_products_of_reflections_are_lapacks(shape: tuple[int, int]) -> None:
    packed, tau, _, _ = scipy.linalg.lapack.dgeqrf(RNG.normal(size=shape))
    tau[0] = 0.0  # no reflection at all
    wanted, _, _ = scipy.linalg.lapack.dorgqr(packed, tau)
    a, scales = sg.placeholder(shape, sg.float64), sg.placeholder(tau.shape, sg.float64)
    got, fewer = run([linalg.householder_product(a, scales), linalg.householder_product(a, scales[:-1])],
                     {a: packed, scales: tau})  # fmt: skip
    np.testing.assert_allclose(got, wanted, atol=1e-14)
    product = np.eye(shape[0])
    for i, scale in enumerate(tau[:-1]):
        v = np.where(np.arange(shape[0]) > i, packed[:, i], np.arange(shape[0]) == i)
        product = product - scale * np.outer(product @ v, v)
    np.testing.assert_allclose(fewer, product[:, : shape[1]], atol=1e-14)


@pytest.mark.usefixtures("interpreted")
def test_products_of_reflections_and_least_squares_have_derivatives() -> None:
    packed, tau, b = RNG.normal(size=(5, 3)), RNG.normal(size=3), RNG.normal(size=(5, 2))
    sg.check_gradients(lambda a, t: sg.sum(sg.sin(linalg.householder_product(a, t))), [packed, tau])
    for a in (packed, RNG.normal(size=(5, 6))):
        sg.check_gradients(lambda a, b: [sg.sum(sg.sin(y)) for y in linalg.lstsq(a, b)[:2]], [a, b])


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
def test_least_squares_are_numpys(shape: tuple[int, int]) -> None:
    full, b = RNG.normal(size=shape), RNG.normal(size=(shape[0], 2))
    deficient = np.outer(RNG.normal(size=shape[0]), RNG.normal(size=shape[1]))
    for a in (full, deficient):
        got = run(linalg.lstsq(a, b))
        solution, residuals, rank, values = np.linalg.lstsq(a, b, rcond=None)
        np.testing.assert_allclose(got.solution, solution, atol=1e-12)
        np.testing.assert_allclose(got.residuals, np.square(b - a @ solution).sum(0), atol=1e-12)
        np.testing.assert_allclose(got.singular_values, values, atol=1e-12)
        assert got.rank == rank
        if residuals.size:
            np.testing.assert_allclose(got.residuals, residuals)
        np.testing.assert_allclose(run(linalg.lstsq(a, b[:, 0])).solution, solution[:, 0], atol=1e-12)


def test_tridiagonal_systems_are_scipys() -> None:
    """Also with zeros on the diagonal, where rows are exchanged, and whatever stands where nothing is read."""
    for n in (1, 2, 3, 8, 50):
        low, diagonal, high = RNG.normal(size=(3, 2, n))
        b = RNG.normal(size=(2, n, 3))
        diagonal[0, : n // 3] = 0.0
        low[:, 0], high[:, -1] = np.nan, np.inf
        got = run(linalg.tridiagonal_solve(low, diagonal, high, b))
        for number in range(2):
            bands = np.stack([np.roll(high[number], 1), diagonal[number], np.roll(low[number], -1)])
            bands[0, 0] = bands[2, -1] = 0.0
            np.testing.assert_allclose(
                got[number], scipy.linalg.solve_banded((1, 1), bands, b[number]), rtol=1e-9, atol=1e-11
            )


def test_tridiagonal_systems_of_vectors_batches_and_open_sizes() -> None:
    n = sg.dim("n")
    low, diagonal, high, b = (sg.placeholder((n,), sg.float64) for _ in range(4))
    x = linalg.tridiagonal_solve(low, diagonal, high, b)
    slopes = sg.gradients(sg.sum(sg.sin(x)), [diagonal, b])
    with sg.Session() as session:
        for size in (2, 6):
            values = RNG.normal(size=(4, size)) + np.array([[0], [4], [0], [0]])
            got, (of_diagonal, of_right) = session.run(
                [x, slopes], dict(zip((low, diagonal, high, b), values, strict=True))
            )
            dense = np.diag(values[1]) + np.diag(values[0][1:], -1) + np.diag(values[2][:-1], 1)
            want = np.linalg.solve(dense, values[3])
            np.testing.assert_allclose(got, want, rtol=1e-12)
            back = np.linalg.solve(dense.T, np.cos(want))
            np.testing.assert_allclose(of_right, back, rtol=1e-11)
            np.testing.assert_allclose(of_diagonal, -back * want, rtol=1e-11)
    rows = RNG.normal(size=(3, 1, 5)) + np.array([[[0]], [[4]], [[0]]])
    right = RNG.normal(size=(4, 5, 2))
    assert run(linalg.tridiagonal_solve(*rows, right)).shape == (4, 5, 2)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: linalg.lu_solve(np.eye(3), np.arange(3), np.ones(4)), "rows of the right side"),
        (lambda: linalg.lu_solve(np.eye(3), np.arange(3.0), np.ones(3)), "a permutation .* of integers"),
        (lambda: linalg.lu(np.ones(3)), "expected matrices"),
        (lambda: linalg.lu(sg.placeholder((None, 3))), "sizes known when declared"),
        (lambda: linalg.householder_product(np.ones((2, 3)), np.ones(2)), "m ≥ n ≥ k"),
        (lambda: linalg.lstsq(np.ones((2, 3)), np.ones(3)), "rows of the right side"),
        (lambda: linalg.tridiagonal_solve(np.ones(3), np.ones(3), np.ones(2), np.ones(3)), "size of the diagonal"),
        (lambda: linalg.pivots_to_permutation([0, 1, 2], 2), "at most size=2 pivots"),
    ],
)
def test_what_does_not_fit_is_refused(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(sg.GraphError, match=words):
        declare()
