"""Sparse derivatives: their patterns by the role of each op, colours, values, and what is fetched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from support.sampling import rng_for

import staticgrad as sg
from staticgrad.compiler.autodiff.coloring import columns_colored, symmetric_colored
from staticgrad.compiler.autodiff.patterns import Pattern, from_pairs, grouped, identity, joined, taken
from staticgrad.graph.sparse import SparseArray

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[[Any], Any]


def places_of(mask: Array) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in np.argwhere(mask)}


def derived(fn: Function, shape: tuple[int, ...]) -> tuple[sg.SparseTensor, Array, Array]:
    """The sparse Jacobian of a function at a random point: itself, its values, the dense one."""
    with sg.Graph() as graph:
        x = sg.placeholder(shape, sg.float64)
        y = fn(x)
        sparse, dense = sg.sparse_jacobian(y, x), sg.jacobian(y, x)
    at = rng_for("sparse", fn.__qualname__).normal(size=shape)
    with sg.Session(graph) as session:
        values, full = session.run([sparse.values, dense], {x: at})
    return sparse, values, full.reshape(sparse.shape)


def same_as_dense(fn: Function, shape: tuple[int, ...]) -> sg.SparseTensor:
    """The sparse Jacobian, once its values are the dense one's and no other element of that differs from zero."""
    sparse, values, full = derived(fn, shape)
    np.testing.assert_allclose(values, full[sparse.rows, sparse.cols], rtol=1e-12, atol=1e-14)
    others = full.copy()
    others[sparse.rows, sparse.cols] = 0
    assert not others.any()
    order = sparse.rows * sparse.shape[1] + sparse.cols
    assert (np.diff(order) > 0).all()
    return sparse


# -- patterns, role by role -------------------------------------------------------------------------------------------

STENCIL = np.array([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
BANDED = np.triu(np.tril(np.arange(1.0, 37.0).reshape(6, 6), 1), -1)
SEGMENTS = np.array([0, 2, 2, 1, 0, 2])


@sg.custom_gradient
def doubled_rule(x: Any) -> Any:
    return sg.exp(x), lambda ct: ct * 2.0


def shifted(carry: Any, row: Any) -> Any:
    return sg.concat([row[None], carry[:-1]]), carry[-1] * row


def stepped(n: int) -> Function:
    """A chain of oscillators, by some steps of Euler's method in a scan."""

    def step(state: Any, _: Any) -> Any:
        place, speed = state
        pull = sg.pad(place[1:] - place[:-1], ((0, 1),)) - sg.pad(place[1:] - place[:-1], ((1, 0),))
        return (place + 0.1 * speed, speed + 0.1 * sg.sin(pull)), sg.sum(place[:2])

    def run(x: Any) -> Any:
        (place, _), rows = sg.scan(step, (x, sg.zeros_like(x)), None, length=n)
        return sg.concat([place, rows])

    return run


EXACT: dict[str, tuple[Function, tuple[int, ...]]] = {
    "elementwise": (lambda x: sg.exp(x) * sg.sin(x), (5,)),
    "scalar": (lambda x: sg.sum(x[:2] * x[1:3]), (4,)),
    "of a scalar": (lambda x: x * np.array([1.0, 0.0, 2.0]), ()),
    "empty": (lambda x: sg.concat([x, x]), (0,)),
    "broadcast": (lambda x: x[:, None] * x[None, :2], (4,)),
    "outer of rows": (lambda x: x[:, :1] + x, (3, 4)),
    "constant factors": (lambda x: x * np.array([0.0, 1.0, 0.0, 2.0]) + x[::-1], (4,)),
    "zeros among what is not known": (lambda x: x[:4] * sg.concat([sg.zeros(2, dtype=sg.float64), x[4:]]), (6,)),
    "known condition": (lambda x: sg.where(np.arange(6) % 2 == 0, x, x[::-1] ** 2), (6,)),
    "stopped": (lambda x: x * sg.stop_gradient(sg.sum(x)), (4,)),
    "flat": (lambda x: x * (sg.floor(x) + 5.5) + sg.sign(x[::-1]) + sg.round(x[::-1]), (4,)),
    "casts": (lambda x: sg.astype(sg.astype(x, sg.float32), float) + sg.astype(sg.astype(x[::-1], int), float), (4,)),
    "powers": (lambda x: x ** np.array([0.0, 1.0, 2.0, 3.0]), (4,)),
    "views": (lambda x: sg.permute_dims(sg.reshape(x, (2, 3, 2)), (2, 0, 1))[:, ::-1, 1:], (3, 4)),
    "pads": (lambda x: sg.pad(x, ((1, 2), (0, 1)), value=3.0, interior=(1, 0)), (3, 2)),
    "pad of nothing": (lambda x: sg.pad(x[:0], ((1, 2),)) * x, (3,)),
    "zeros that a pad puts in": (lambda x: sg.pad(x[1:], ((1, 0),)) * x[::-1], (4,)),
    "pad reflect": (lambda x: sg.pad(x, 2, mode="reflect"), (4,)),
    "pad wrap": (lambda x: sg.pad(x, 3, mode="wrap") * 2.0, (4,)),
    "concat": (lambda x: sg.concat([x, np.ones((2, 1)), x * x], 1), (2, 2)),
    "stack and roll": (lambda x: sg.stack([sg.roll(x, 1, 0), sg.flip(x)]), (5,)),
    "repeat": (lambda x: sg.repeat(x, 2) + sg.tile(x, (2,)), (3,)),
    "gather": (lambda x: x[np.array([3, 0, 0, -1])], (5,)),
    "gather of both axes": (lambda x: x[np.array([2, 0]), np.array([1, 1])], (3, 2)),
    "scatter": (lambda x: sg.scatter(sg.zeros(6, dtype=sg.float64), np.array([4, 1, 4]), x, mode="add"), (3,)),
    "scatter over": (lambda x: sg.scatter(x, np.array([1, 3]), x[:2] ** 2), (5,)),
    "segments": (lambda x: sg.scatter(sg.zeros((3, 2), dtype=sg.float64), SEGMENTS, x * x, mode="add"), (6, 2)),
    "diagonal": (lambda x: sg.diag(x) @ x, (4,)),
    "triangles": (lambda x: sg.tril(x) + sg.triu(x, 1).mT, (4, 4)),
    "sums": (lambda x: sg.sum(x * x, axis=1), (3, 4)),
    "mean and variance": (lambda x: sg.mean(x, axis=0) * sg.var(x, axis=0), (4, 3)),
    "product": (lambda x: sg.prod(x, axis=-1, keepdims=True), (3, 4)),
    "extremes": (lambda x: sg.logsumexp(x, axis=1), (3, 4)),
    "running": (lambda x: sg.cumulative_sum(x, axis=1), (2, 4)),
    "running product": (lambda x: sg.cumulative_prod(x, axis=0), (4, 2)),
    "differences": (lambda x: sg.diff(x, n=2), (6,)),
    "product with a constant": (lambda x: BANDED @ x, (6,)),
    "product by a constant": (lambda x: x @ BANDED, (2, 6)),
    "products over a batch": (lambda x: sg.matmul(np.stack([BANDED, BANDED.T]), x), (2, 6, 1)),
    "product of two": (lambda x: x @ x.mT, (3, 2)),
    "einsum": (lambda x: sg.einsum("bij,bj->bi", sg.reshape(x, (2, 2, 2)), x[:, :2]), (2, 4)),
    "stencil": (lambda x: sg.nn.conv2d(x[None, None], STENCIL[None, None], padding=1), (4, 5)),
    "convolution": (lambda x: sg.nn.conv2d(x, np.ones((2, 2, 2, 3)), stride=(1, 2)), (1, 2, 4, 5)),
    "grouped weights": (lambda w: sg.nn.conv2d(np.ones((1, 2, 3, 3)), w, groups=2, padding=1), (2, 1, 2, 2)),
    "transposed": (lambda x: sg.nn.conv_transpose2d(x, np.ones((1, 1, 2, 2)), stride=2), (1, 1, 2, 3)),
    "pools": (lambda x: sg.nn.avg_pool2d(x[None, None], 2, padding=1), (4, 4)),
    "softmax of rows": (lambda x: sg.nn.softmax(x, 1), (3, 3)),
    "norm of rows": (lambda x: sg.nn.layer_norm(x, 4), (2, 4)),
    "triangular": (lambda x: sg.linalg.solve_triangular(np.tril(np.arange(1.0, 17.0).reshape(4, 4)), x), (4, 2)),
    "scan": (lambda x: sg.scan(shifted, x[:3], x[3:])[0], (5,)),
    "rows of a scan": (lambda x: sg.scan(shifted, x[:3], x[3:])[1], (7,)),
    "reversed scan": (lambda x: sg.scan(shifted, x[:2], x, reverse=True)[1], (5,)),
    "index of a turn": (
        lambda x: sg.scan(lambda i, _: (i + 1, x[i] * x[2 * i]), sg.constant(0), None, length=3)[1], (6,)
    ),
    "steps": (stepped(4), (7,)),
    "map": (lambda x: sg.map(lambda row: sg.sum(row) * row[:2], x), (3, 4)),
    "while": (lambda x: sg.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, sg.sin(s[1])), (0, x))[1], (4,)),
    "known branch": (lambda x: sg.cond(sg.constant(True), lambda: x * 2.0, lambda: x[::-1] * x), (4,)),
    "custom rule": (lambda x: doubled_rule(x)[::-1], (4,)),
    "own op": (lambda x: sg.op("own_ratio", lambda a, b: a / (b * b + 1.0))(x[1:], x[:-1]), (5,)),
    "checkpoint": (lambda x: sg.checkpoint(lambda v: sg.exp(v[1:]) * v[:-1], x), (5,)),
    "vmap": (lambda x: sg.vmap(lambda row: row[1:] * row[:-1])(x), (3, 4)),
    "linear": (lambda x: 2.0 * x[1:] - x[:-1] / 3.0, (5,)),
    "nothing": (lambda x: sg.zeros((3,), dtype=sg.float64) + sg.floor(x), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_patterns_are_the_elements_that_differ_from_zero(name: str) -> None:
    fn, shape = EXACT[name]
    sparse = same_as_dense(fn, shape)
    _, _, full = derived(fn, shape)
    assert {*zip(sparse.rows.tolist(), sparse.cols.tolist(), strict=True)} == places_of(full != 0)


CONSERVATIVE: dict[str, tuple[Function, tuple[int, ...], Callable[[Array, Array], Array]]] = {
    "relu": (sg.nn.relu, (4,), lambda i, j: i == j),
    "comparison": (lambda x: sg.astype(x > x[::-1], sg.float64) * x, (4,), lambda i, j: i == j),
    "cancelled": (lambda x: x - x, (3,), lambda i, j: i == j),
    "an index that is computed": (
        lambda x: sg.take(x[:4], sg.astype(sg.abs(x[4:]), sg.int64) % 4),
        (6,),
        lambda i, j: (j < 4) & (i >= 0),
    ),
    "indices along one axis": (
        lambda x: sg.take_along_axis(x, sg.argsort(x, axis=1), axis=1), (2, 3), lambda i, j: i // 3 == j // 3
    ),
    "sort": (lambda x: sg.sort(x, axis=0), (3, 2), lambda i, j: i % 2 == j % 2),
    "running extremes": (lambda x: sg.cummax(x), (4,), lambda i, j: (j < 4) & (i >= 0)),
    "branch": (
        lambda x: sg.cond(x[0] > 0, lambda: x * 2.0, lambda: sg.flip(x)), (3,), lambda i, j: (i == j) | (i == 2 - j)
    ),
    "turns that values decide": (
        lambda x: sg.while_loop(lambda s: sg.sum(s) < 9, lambda s: s + sg.pad(s[1:], ((0, 1),)) ** 2 + 1.0, x),
        (4,),
        lambda i, j: i <= j,
    ),
    "an update where values say": (
        lambda x: sg.scatter(x[:3], sg.astype(sg.abs(x[3:]), sg.int64) % 3, x[3:], mode="add"),
        (5,),
        lambda i, j: (i == j) | (j >= 3),
    ),
    "factors of a matrix": (
        lambda x: sg.linalg.cholesky(x @ x.mT + 9.0 * np.eye(3)), (2, 3, 3), lambda i, j: i // 9 == j // 9
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_where_values_decide_all_that_may_differ_is_kept(name: str) -> None:
    fn, shape, expected = CONSERVATIVE[name]
    sparse = same_as_dense(fn, shape)
    i, j = np.indices(sparse.shape)
    allowed = places_of(expected(i, j))
    found = {*zip(sparse.rows.tolist(), sparse.cols.tolist(), strict=True)}
    assert found == allowed or (name == "factors of a matrix" and found <= allowed)


def test_long_loops_are_found_without_a_turn_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a carry has what any turn may give it, and a row what any row has."""
    monkeypatch.setattr("staticgrad.compiler.autodiff.sparsity.MOST_TURNS", 0)
    sparse = same_as_dense(lambda x: sg.scan(lambda c, r: (sg.sin(c) * 2.0, c * r), x[:2], x[2:])[0], (5,))
    assert {*zip(sparse.rows.tolist(), sparse.cols.tolist(), strict=True)} == {(0, 0), (1, 1)}
    rows = same_as_dense(lambda x: sg.scan(lambda c, r: (sg.sin(c), c * r), x[:2], x[2:])[1], (5,))
    assert rows.nnz == 6 * 4
    monkeypatch.setattr("staticgrad.compiler.autodiff.sparsity.MOST_ROUNDS", 2)
    chain = same_as_dense(stepped(6), (9,))
    assert chain.nnz == chain.shape[0] * 9


# -- derivatives of second order --------------------------------------------------------------------------------------


def rosenbrock(x: Any) -> Any:
    return sg.sum(100 * (x[:-1] ** 2 - x[1:]) ** 2 + (x[:-1] - 1) ** 2)


HESSIANS: dict[str, tuple[Function, tuple[int, ...], int]] = {
    "chain": (rosenbrock, (9,), 3),
    "arrow": (lambda x: x[0] * sg.sum(x[1:] ** 3) + sg.exp(x[0]), (8,), 2),
    "two neighbours": (lambda x: sg.sum(sg.exp(x[2:] * x[1:-1] * x[:-2])), (9,), 5),
    "apart": (lambda x: sg.sum(sg.sin(x) * x), (6,), 1),
    "blocks": (lambda x: sg.sum(sg.prod(x, axis=1)) + sg.sum(x * x), (4, 3), 3),
    "linear": (lambda x: sg.sum(x * np.arange(4.0)), (4,), 0),
    "quadratic": (lambda x: 0.5 * x @ (BANDED + BANDED.T) @ x, (6,), 3),
    "dense": (lambda x: sg.sum(x) ** 3, (4,), 4),
    "grid": (lambda x: sg.sum(sg.diff(x, axis=0) ** 4) + sg.sum(sg.diff(x, axis=1) ** 4), (5, 5), 0),
    "through a scan": (lambda x: sg.sum(stepped(3)(x) ** 2), (6,), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians_equal_the_dense_ones(name: str) -> None:
    fn, shape, colors = HESSIANS[name]
    with sg.Graph() as graph:
        x = sg.placeholder(shape, sg.float64)
        y = fn(x)
        sparse, dense = sg.sparse_hessian(y, x), sg.hessian(y, x)
        fetches = [sparse.values, sparse.lower().values, sparse.todense(), dense]
    with sg.Session(graph) as session:
        values, lower, whole, full = session.run(fetches, {x: rng_for("hessian", name).normal(size=shape)})
    full = full.reshape(sparse.shape)
    np.testing.assert_allclose(whole, full, rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(whole[sparse.rows, sparse.cols], values)
    np.testing.assert_array_equal(lower, values[sparse.rows >= sparse.cols])
    assert places_of(full != 0) == {*zip(sparse.rows.tolist(), sparse.cols.tolist(), strict=True)}
    assert not colors or sparse.colors == colors


def test_a_lagrangian_has_one_pattern_for_all_multipliers() -> None:
    with sg.Graph() as graph:
        x, sigma, multipliers = (sg.placeholder(s, sg.float64) for s in ((6,), (), (5,)))
        constraints = x[1:] * x[:-1] - 1.0
        hessian = sg.sparse_hessian(sigma * sg.sum(x**2) + sg.sum(multipliers * constraints), x).lower()
    exe = sg.Session(graph).compile(hessian, [x, sigma, multipliers])
    found = exe(np.ones(6), 3.0, np.arange(5.0))
    np.testing.assert_array_equal(found.toarray(), np.diag(np.full(6, 6.0)) + np.diag(np.arange(5.0), -1))


# -- directions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "shape", "mode", "colors"),
    [
        (lambda x: x[1:] * x[:-1], (50,), "forward", 2),
        (lambda x: sg.concat([x * x, sg.sum(x, keepdims=True)]), (50,), "reverse", 2),
        (lambda x: x[1:] * x[:1], (50,), "forward", 2),
        (lambda x: sg.sum(x**2), (50,), "reverse", 1),
        (lambda x: sg.sin(x), (50,), "forward", 1),
        (lambda x: sg.reshape(sg.sum(x, axis=1), (5,)), (5, 10), "reverse", 1),
    ],
)
def test_the_cheaper_direction_is_taken(fn: Function, shape: tuple[int, ...], mode: str, colors: int) -> None:
    sparse = same_as_dense(fn, shape)
    assert (sparse.mode, sparse.colors) == (mode, colors)


def test_hooks_see_no_derivative_in_reverse() -> None:
    """One that is computed for colours is no gradient that a hook could know."""
    with sg.Graph() as graph:
        x = sg.placeholder((6,), sg.float64, requires_grad=True)
        y = x * 2.0
        y.register_hook(lambda g: g * 0.0)
        sparse = sg.sparse_jacobian(sg.sum(y * y), x)
    assert sparse.mode == "forward"
    np.testing.assert_array_equal(sg.Session(graph).run(sparse.values, {x: np.ones(6)}), np.full(6, 8.0))


def test_the_values_of_what_is_linear_are_constants() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((20,), sg.float64)
        sparse = sg.sparse_jacobian(3.0 * x[1:] - x[:-1], x)
    exe = sg.Session(graph).compile(sparse.values, [])
    assert exe.text("kernels").startswith("0: pointwise identity(constant")
    np.testing.assert_array_equal(exe(), np.tile([-1.0, 3.0], 19))


@pytest.mark.parametrize("seed", range(60))
def test_colors_tell_every_element(seed: int) -> None:
    rng = rng_for("colors", seed)
    height, width = (int(n) for n in rng.integers(1, 15, 2))
    mask = rng.random((height, width)) < rng.random()
    rows, cols = np.nonzero(mask)
    matrix = rng.normal(size=mask.shape) * mask
    found = columns_colored(rows, cols, mask.shape)
    sums = matrix @ (found.colors[:, None] == np.arange(max(found.count, 1)))
    np.testing.assert_array_equal(sums[found.rows, found.reads], matrix[rows, cols])
    symmetric = rng.normal(size=(width, width)) * (rng.random((width, width)) < rng.random())
    symmetric = symmetric + symmetric.T
    rows, cols = np.nonzero(symmetric)
    star = symmetric_colored(rows, cols, width)
    sums = symmetric @ (star.colors[:, None] == np.arange(max(star.count, 1)))
    np.testing.assert_allclose(sums[star.rows, star.reads], symmetric[rows, cols], atol=0)
    assert star.count <= columns_colored(rows, cols, symmetric.shape).count


def band(size: int, reach: int) -> tuple[Array, Array]:
    rows, cols = np.indices((size, size))
    return np.nonzero(np.abs(rows - cols) <= reach)


@pytest.mark.parametrize("reach", [0, 1, 2, 3])
def test_bands_take_the_fewest_colors(reach: int) -> None:
    rows, cols = band(40, reach)
    assert columns_colored(rows, cols, (40, 40)).count == 2 * reach + 1
    assert symmetric_colored(rows, cols, 40).count <= 2 * reach + 1


def test_a_star_coloring_takes_fewer_where_rows_are_long() -> None:
    size = 30
    mask = np.eye(size, dtype=bool)
    mask[0] = mask[:, 0] = True
    rows, cols = np.nonzero(mask)
    assert columns_colored(rows, cols, mask.shape).count == size
    assert symmetric_colored(rows, cols, size).count == 2


# -- patterns as values -----------------------------------------------------------------------------------------------


def drawn_pattern(rng: np.random.Generator, size: int, width: int) -> Pattern:
    """A pattern that may share rows, made in one of the ways in which they come about."""
    mask = rng.random((size, width)) < rng.random()
    plain = from_pairs(*np.nonzero(mask), size, width)
    return taken(plain, rng.integers(-1, size, size)) if size and rng.random() < 0.5 else plain


def mask_of(pattern: Pattern) -> Array:
    mask = np.zeros((pattern.size, pattern.width), bool)
    mask[pattern.pairs()] = True
    return mask


@pytest.mark.parametrize("seed", range(40))
def test_patterns_are_sets_of_pairs(seed: int) -> None:
    rng = rng_for("patterns", seed)
    size, width = (int(n) for n in rng.integers(1, 30, 2))
    p, q = (drawn_pattern(rng, size, width) for _ in range(2))
    both = joined(p, q)
    assert both is not None
    np.testing.assert_array_equal(mask_of(both), mask_of(p) | mask_of(q))
    again = joined(both, taken(p, np.arange(size)[::-1]))
    assert again is not None
    np.testing.assert_array_equal(mask_of(again), mask_of(both) | mask_of(p)[::-1])
    chosen = rng.random(size) < 0.5
    np.testing.assert_array_equal(mask_of(p.only(chosen)), mask_of(p) & chosen[:, None])
    results, operands = rng.integers(0, 7, 50), rng.integers(0, size, 50)
    expected = np.zeros((7, width), bool)
    np.logical_or.at(expected, results, mask_of(again)[operands])
    np.testing.assert_array_equal(mask_of(grouped(again, results, operands, 7)), expected)
    np.testing.assert_array_equal(mask_of(identity(width)), np.eye(width, dtype=bool))


# -- what is fetched --------------------------------------------------------------------------------------------------


def chain() -> tuple[sg.Graph, Any, sg.SparseTensor]:
    with sg.Graph() as graph:
        x = sg.placeholder((5,), sg.float64)
        return graph, x, sg.sparse_jacobian(x[1:] * x[:-1], x)


def dense_chain(at: Array) -> Array:
    full = np.zeros((4, 5))
    for i in range(4):
        full[i, i], full[i, i + 1] = at[i + 1], at[i]
    return full


def test_it_is_fetched_as_a_matrix_of_scipy() -> None:
    graph, x, sparse = chain()
    at = np.arange(1.0, 6.0)
    exe = sg.Session(graph).compile({"J": sparse, "both": [x, sparse]}, [x])
    found = exe(at)
    assert isinstance(found["J"], scipy.sparse.csr_array)
    assert found["J"].has_canonical_format
    np.testing.assert_array_equal(found["J"].toarray(), dense_chain(at))
    np.testing.assert_array_equal(found["J"] @ at, dense_chain(at) @ at)
    other = exe(2 * at)["J"]
    found["J"].data[:] = 0  # of its own
    found["J"].eliminate_zeros()
    np.testing.assert_array_equal(other.toarray(), dense_chain(2 * at))
    np.testing.assert_array_equal(exe(at)["both"][1].toarray(), dense_chain(at))
    np.testing.assert_array_equal(sg.Session(graph).run(sparse, {x: at}).toarray(), dense_chain(at))


def test_it_is_written_into_what_is_given() -> None:
    graph, x, sparse = chain()
    exe = sg.Session(graph).compile(sparse, [x])
    at = np.arange(1.0, 6.0)
    first = exe(at)
    assert exe(2 * at, out=first) is not None
    np.testing.assert_array_equal(first.toarray(), dense_chain(2 * at))
    values = np.empty(sparse.nnz)
    exe(at, out=values)
    np.testing.assert_array_equal(values, dense_chain(at)[sparse.rows, sparse.cols])
    with pytest.raises(sg.FeedError, match="out"):
        exe(at, out=scipy.sparse.csr_array(np.eye(4, 5)))


def test_without_scipy_it_is_a_named_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    graph, x, sparse = chain()
    found = sg.Session(graph).run(sparse, {x: np.arange(5.0)})
    assert isinstance(found, SparseArray)
    np.testing.assert_array_equal(found.toarray(), dense_chain(np.arange(5.0)))


def test_functions_of_arrays_return_it() -> None:
    @sg.function
    def jacobian(x: Any) -> Any:
        return sg.sparse_jacobian(sg.sin(x) * x[::-1], x)

    at = np.arange(3.0)
    expected = np.diag(np.cos(at) * at[::-1]) + np.diag(np.sin(at))[:, ::-1]
    np.testing.assert_allclose(jacobian(at).toarray(), expected, rtol=1e-12)


def test_many_at_once_are_fetched_as_a_named_tuple() -> None:
    with sg.Graph() as graph:
        xs = sg.placeholder((2, 5), sg.float64)
        sparse = sg.vmap(lambda x: sg.sparse_jacobian(x[1:] * x[:-1], x))(xs)
    at = np.arange(10.0).reshape(2, 5)
    found = sg.Session(graph).run(sparse, {xs: at})
    np.testing.assert_array_equal(found.toarray(), np.stack([dense_chain(row) for row in at]))
    with pytest.raises(sg.GraphError, match="todense: expected the values of one matrix"):
        sparse.todense()


def test_branches_and_loops_hand_it_out() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((5,), sg.float64)

        def times(factor: float) -> Any:
            return sg.nest.map(lambda v: v * factor, sg.sparse_jacobian(x[1:] * x[:-1], x))

        chosen = sg.cond(x[0] > 0, lambda: times(2.0), lambda: times(3.0))
    at = np.arange(1.0, 6.0)
    np.testing.assert_array_equal(sg.Session(graph).run(chosen, {x: at}).toarray(), 2 * dense_chain(at))


def test_an_exported_program_gives_its_values(tmp_path: Path) -> None:
    graph, x, sparse = chain()
    sg.Session(graph).compile([sparse], [x]).export(tmp_path / "chain.sgp", format="program")
    at = np.arange(1.0, 6.0)
    (found,) = sg.load(tmp_path / "chain.sgp")(at)
    np.testing.assert_array_equal(found["values"], dense_chain(at)[sparse.rows, sparse.cols])


def test_derivatives_of_its_values_are_values_of_derivatives() -> None:
    graph, x, sparse = chain()
    with graph:
        slope = sg.gradients(sg.sum(sparse.values**2), x)[0]
    at = np.arange(1.0, 6.0)
    expected = [2 * a * ((i > 0) + (i < 4)) for i, a in enumerate(at)]
    np.testing.assert_array_equal(sg.Session(graph).run(slope, {x: at}), expected)


def test_short_floats_are_fetched_as_they_are() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((3,), sg.float16)
        sparse = sg.sparse_jacobian(x * x, x)
    found = sg.Session(graph).run(sparse, {x: np.arange(3, dtype=np.float16)})
    assert found.values.dtype == np.float16
    np.testing.assert_array_equal(found.toarray(), np.diag([0.0, 2.0, 4.0]))


def test_it_says_what_it_is() -> None:
    _, _, sparse = chain()
    assert repr(sparse) == "<SparseTensor 4 x 5, 8 elements, 2 colors, forward>"
    assert sparse.shape == (4, 5)
    assert sparse.rows.dtype == sparse.cols.dtype == np.int64


def test_places_alone_are_those_of_the_jacobian() -> None:
    with sg.Graph():
        x = sg.placeholder((3, 2), sg.float64)
        y = sg.sum(x * x, axis=1)
        rows, cols = sg.sparsity(y, x)
        sparse = sg.sparse_jacobian(y, x)
    np.testing.assert_array_equal(rows, sparse.rows)
    np.testing.assert_array_equal(cols, sparse.cols)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_open_sizes_are_refused() -> None:
    with sg.Graph():
        x = sg.placeholder((None,), sg.float64)
        for ask in (sg.sparse_jacobian, sg.sparsity):
            with pytest.raises(sg.GraphError, match=r"known when declared, actual 'placeholder"):
                ask(x * 2.0, x)
        with pytest.raises(sg.GraphError, match="known when declared"):
            sg.sparse_hessian(sg.sum(x * x), x)


def test_other_sizes_may_be_open_where_the_derivative_does_not_go() -> None:
    with sg.Graph() as graph:
        data, x = sg.placeholder((None, 3), sg.float64), sg.placeholder((3,), sg.float64)
        sparse = sg.sparse_jacobian(x * sg.sum(data, axis=0), x)
    found = sg.Session(graph).run(sparse, {x: np.ones(3), data: np.ones((5, 3))})
    np.testing.assert_array_equal(found.toarray(), 5 * np.eye(3))


@pytest.mark.parametrize("ask", [sg.sparse_jacobian, sg.sparse_hessian, sg.sparsity])
def test_what_is_not_floating_is_refused(ask: Callable[..., Any]) -> None:
    with sg.Graph():
        x, n = sg.placeholder((3,)), sg.placeholder((3,), sg.int64)
        with pytest.raises(sg.GradientError, match="floating"):
            ask(sg.sum(n), x)
        with pytest.raises(sg.GraphError, match="expected one tensor"):
            ask([x, x], x)


def test_a_hessian_is_of_one_element() -> None:
    with sg.Graph():
        x = sg.placeholder((3,))
        with pytest.raises(sg.GraphError, match=r"sparse_hessian: expected a y of one element, actual shape \(3,\)"):
            sg.sparse_hessian(x * x, x)


def test_the_transpose_of_a_matrix() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((5,), sg.float64)
        found = sg.sparse_jacobian(x[1:] * x[:-1] ** 2, x)
        across = found.T
    assert (across.shape, across.nnz, across.T.cols.tolist()) == ((5, 4), found.nnz, found.cols.tolist())
    made, turned = sg.Session(graph).run([found, across], {x: np.arange(5.0)})
    np.testing.assert_array_equal(made.toarray().T, turned.toarray())


def test_elements_that_no_feed_changes_are_constants(g: sg.Graph) -> None:
    """Those of linear and quadratic functions; weights that are fed are no constants."""
    x, w = sg.placeholder((40,), sg.float64), sg.placeholder((40,), sg.float64)
    weights = np.linspace(1, 2, 40)
    linear = sg.sparse_jacobian(weights[1:] * x[1:] - x[:-1], x)
    quadratic = sg.sparse_hessian(sg.sum(weights * x * x) + sg.sum(x[1:] * x[:-1]), x)
    weighted = sg.sparse_jacobian(w[1:] * x[1:] - x[:-1], x)
    for made in (linear, quadratic, quadratic.lower()):
        assert made.values.op.op.name == "constant"
    assert weighted.values.op.op.name != "constant"
    feeds = {x: np.ones(40), w: weights}
    found = sg.Session().run([linear, weighted, quadratic, quadratic.lower()], feeds)
    want = np.diag(2 * weights) + np.eye(40, k=1) + np.eye(40, k=-1)
    np.testing.assert_array_equal(found[0].toarray(), found[1].toarray())
    np.testing.assert_array_equal(found[2].toarray(), want)
    np.testing.assert_array_equal(found[3].toarray(), np.tril(want))
