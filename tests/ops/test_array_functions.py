"""Running sums, sorting, triangles and grids where the table's cases do not look: edges, long rows, loops, threads."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from support.selection import rotating
from support.targets import HERE

import staticgrad as sg

RNG = np.random.default_rng(0)

pytestmark = pytest.mark.usefixtures("unfolded")


def run(fetches: Any, feeds: Any = None, **options: Any) -> Any:
    return sg.Session(sg.get_default_graph(), **options).run(fetches, feeds)


# -- running sums and products --------------------------------------------------------------------------------------


def test_running_sums_of_integers_are_int64_and_a_dtype_is_taken() -> None:
    x = sg.constant(np.array([[100, 100, 100], [1, 2, 3]], np.int8))
    wide, narrow = sg.cumulative_sum(x, axis=1), sg.cumulative_sum(x, 0, dtype=np.int32)
    assert (wide.dtype, narrow.dtype) == (sg.int64, sg.int32)
    got = run([wide, narrow])
    np.testing.assert_array_equal(got[0], [[100, 200, 300], [1, 3, 6]])
    np.testing.assert_array_equal(got[1], [[100, 100, 100], [101, 102, 103]])


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("sized", ["known", "open"])
def test_sums_and_products_of_unsigned_integers_are_uint64(
    sized: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for dtype, shape in (("uint64", (3, 70001)), ("uint8", (37, 129)), ("uint32", (9, 33))):
        a = RNG.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True) | np.array(1, dtype)
        x = sg.placeholder([None] * a.ndim if sized == "open" else shape, dtype)
        ways = {
            ("sum", axis): (sg.sum(x, axis), np.sum(a, axis)) for axis in (None, 0, a.ndim - 1, tuple(range(a.ndim)))
        }
        ways |= {("prod", axis): (sg.prod(x, axis), np.prod(a, axis)) for axis in (None, 0, a.ndim - 1)}
        for axis in range(a.ndim):
            ways["running sum", axis] = (sg.cumulative_sum(x, axis), np.cumulative_sum(a, axis=axis))
            ways["running product", axis] = (sg.cumulative_prod(x, axis), np.cumulative_prod(a, axis=axis))
        ways["by example", 0] = (sg.vmap(sg.sum)(x), a.reshape(len(a), -1).sum(1))
        if sized == "known" and a.ndim == 2:
            ways["trace", 0] = (sg.linalg.trace(x), np.trace(a))
        with sg.Session(sg.get_default_graph(), num_threads=2) as sess:
            got = sess.run({key: y for key, (y, _) in ways.items()}, {x: a})
        for key, (y, wanted) in ways.items():
            assert y.dtype == got[key].dtype == wanted.dtype == np.uint64, key
            np.testing.assert_array_equal(got[key], wanted, f"{dtype} {shape} {key}")


def test_sums_of_unsigned_integers_are_uint64_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    a = np.array([2**63, 5], np.uint64)
    got = run([sg.sum(a), sg.prod(a | np.uint64(1)), sg.cumulative_sum(a), sg.cumulative_prod(a), sg.sum(a > 5)])
    assert [y.tolist() for y in got] == [2**63 + 5, 5 * (2**63 + 1) % 2**64, [2**63, 2**63 + 5], [2**63, 2**63], 1]
    assert [y.dtype.name for y in got] == ["uint64"] * 4 + ["int64"]


def test_vecdot_has_the_dtype_of_its_operands_and_one_axis_of_both() -> None:
    a, b = RNG.integers(0, 100, (4, 3), np.uint8), RNG.integers(0, 100, (2, 4, 3), np.uint8)
    for axis in (-1, -2):
        y = run(sg.vecdot(a, b, axis=axis))
        assert y.dtype == np.uint8
        np.testing.assert_array_equal(y, np.sum(a * b, axis=axis, dtype=np.uint8))
    np.testing.assert_array_equal(run(sg.vecdot(a, a, axis=0)), np.sum(a * a, axis=0, dtype=np.uint8))
    with pytest.raises(sg.GraphError, match="not counted from the end"):
        sg.vecdot(a, b, axis=0)
    with pytest.raises(sg.GraphError, match="sizes of axis"):
        sg.vecdot(a, b[..., :1])
    with pytest.raises(sg.GraphError, match="out of range"):
        sg.vecdot(a, a[0], axis=-2)


def test_include_initial_makes_the_result_one_longer() -> None:
    x = np.array([[2.0, 3.0], [4.0, 5.0]])
    got = run([sg.cumulative_sum(x, axis=1, include_initial=True), sg.cumulative_prod(x, axis=0, include_initial=True)])
    np.testing.assert_array_equal(got[0], [[0, 2, 5], [0, 4, 9]])
    np.testing.assert_array_equal(got[1], [[1, 1], [2, 3], [8, 15]])


def test_running_sums_of_several_axes_need_an_axis() -> None:
    with pytest.raises(sg.GraphError, match="axis must be given"):
        sg.cumulative_sum(np.ones((2, 3)))


def test_the_gradient_of_running_products_is_right_where_elements_are_zero() -> None:
    values = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
    x = sg.constant(values)
    (dx,) = sg.gradients(sg.cumulative_prod(x), [x])
    expected = [sum(np.prod(np.delete(values[: i + 1], k)) for i in range(k, 5)) for k in range(5)]
    np.testing.assert_allclose(run(dx), expected)


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("shape", [(1000,), (3, 333), (257, 5), (64, 64)])
def test_running_sums_of_long_and_ragged_rows(target: str, shape: tuple[int, ...], monkeypatch: Any) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    values = RNG.normal(size=shape)
    x = sg.placeholder(shape[::-1], sg.float64)
    y = sg.cumulative_sum(sg.permute_dims(x, tuple(range(len(shape)))[::-1]), axis=0)  # read through a view
    np.testing.assert_allclose(run(y, {x: values.T}), np.cumsum(values, 0), rtol=1e-12, atol=1e-12)


def test_a_running_sum_keeps_the_sign_of_zero() -> None:
    got = run(sg.cumulative_sum(np.full(40, -0.0, np.float32)))
    assert np.signbit(got).all()


@pytest.mark.parametrize(("dtype", "target"), rotating(product([np.float32, np.float64, np.int32, np.int64], HERE)))
def test_running_sums_of_many_short_rows(target: str, dtype: type, monkeypatch: Any) -> None:
    """They are run together: nothing passes from one row to the next, and nothing is written behind the last."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    drawn = RNG.normal(size=(131, 70)) * 3
    for length in (1, 2, 3, 7, 8, 10, 16, 31, 33, 70):
        for count in (0, 5, 131):
            values = drawn[:count, :length].astype(dtype)
            if dtype in (np.float32, np.float64) and count > 5:
                values[3, length // 2] = np.nan
                values[5] = -0.0
            x = sg.placeholder(values.shape, dtype)
            fetches = [sg.cumulative_sum(x, axis=1, dtype=dtype), sg.cumulative_prod(x, axis=1, dtype=dtype)]
            if x.dtype.kind == "f":
                fetches += sg.gradients(fetches[0], [x], grad_ys=x)
            got = run(fetches, {x: values})
            want = [np.cumsum(values, 1), np.cumprod(values, 1), np.cumsum(values[:, ::-1], 1)[:, ::-1]]
            close = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 2e-5}
            for a, b in zip(got, want, strict=False):
                np.testing.assert_allclose(a, b.astype(dtype), **close)
            if x.dtype.kind == "f" and count > 5:
                assert np.signbit(got[0][5]).all()
            for a, b in zip(got, run(fetches, {x: values}, num_threads=3), strict=True):
                assert a.tobytes() == b.tobytes()


# -- sorting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("length", [7, 160, 161, 1000])
def test_equal_elements_keep_their_order(target: str, dtype: Any, length: int, monkeypatch: Any) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    values = (RNG.integers(-3, 4, (3, length)) * (1 if np.dtype(dtype).kind != "f" else 0.5)).astype(dtype)
    x = sg.placeholder(values.shape, dtype)
    got = run([sg.sort(x), sg.argsort(x), sg.argsort(x, descending=True), sg.sort(x, descending=True)], {x: values})
    order = np.argsort(values, kind="stable")
    back = length - 1 - np.argsort(values[:, ::-1], kind="stable")[:, ::-1]
    np.testing.assert_array_equal(got[0], np.sort(values))
    np.testing.assert_array_equal(got[1], order)
    np.testing.assert_array_equal(got[2], back)
    np.testing.assert_array_equal(got[3], np.sort(values)[:, ::-1])


@pytest.mark.parametrize(
    ("dtype", "target"), rotating(product([np.float32, np.float64, np.int32, np.int64, np.uint8], HERE))
)
def test_many_rows_are_sorted_side_by_side(target: str, dtype: Any, monkeypatch: Any) -> None:
    """Equal elements keep their order, NaN is the largest; nothing is written behind the last row."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    for count, length in (
        (5, 1),
        (37, 2),
        (16, 3),
        (19, 8),
        (33, 15),
        (20, 16),
        (37, 17),
        (0, 20),
        (19, 64),
        (21, 131),
    ):
        values = RNG.integers(0, 40, (count, length)).astype(dtype)
        if values.dtype.kind == "f":
            values = np.where(RNG.random(values.shape) < 0.1, np.nan, values - 20).astype(dtype)
            values[RNG.random(values.shape) < 0.1] = -0.0
        elif values.dtype.kind == "i":
            values -= 20
        x = sg.placeholder(values.shape, dtype)
        fetches = [sg.sort(x), sg.argsort(x), sg.sort(x, descending=True), sg.argsort(x, descending=True)]
        got = run(fetches, {x: values})
        np.testing.assert_array_equal(got[0], np.sort(values))
        np.testing.assert_array_equal(got[1], np.argsort(values, kind="stable"))
        np.testing.assert_array_equal(got[2], np.sort(values)[:, ::-1])
        np.testing.assert_array_equal(got[3], length - 1 - np.argsort(values[:, ::-1], kind="stable")[:, ::-1])


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_beside_their_indices_keep_the_sign_of_zero(target: str, dtype: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    values = np.where(RNG.random((21, 33)) < 0.5, -0.0, RNG.integers(0, 2, (21, 33))).astype(dtype)
    x = sg.placeholder(values.shape, dtype)
    (slope,) = sg.gradients(sg.sort(x) * np.arange(33, dtype=dtype), [x])  # of one sort that gives both
    got, order, slopes = run([sg.sort(x), sg.argsort(x), slope], {x: values})
    want = np.argsort(values, kind="stable")
    np.testing.assert_array_equal(order, want)
    np.testing.assert_array_equal(got, np.take_along_axis(values, want, 1))
    np.testing.assert_array_equal(np.take_along_axis(slopes, want, 1), np.broadcast_to(np.arange(33), (21, 33)))


@pytest.mark.parametrize("repeats", [1, 30])
def test_nan_is_the_largest_and_zeros_of_both_signs_are_equal(repeats: int) -> None:
    values = np.array([3, np.nan, -0.0, 0.0, np.inf, -np.inf, -0.0, np.nan, 1e-45] * repeats, np.float32)
    x = sg.placeholder(values.shape)
    up, order, down = run([sg.sort(x), sg.argsort(x), sg.sort(x, descending=True)], {x: values})
    np.testing.assert_array_equal(up, np.sort(values))
    np.testing.assert_array_equal(order, np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(down, np.sort(values)[::-1])


def test_the_gradient_of_sorted_values_goes_where_they_came_from() -> None:
    x = sg.constant(np.array([3.0, 1.0, 2.0]))
    (dx,) = sg.gradients(sg.sort(x) * np.array([10.0, 20.0, 30.0]), [x])
    np.testing.assert_array_equal(run(dx), [30.0, 10.0, 20.0])


def test_sorting_a_scalar_is_refused() -> None:
    with pytest.raises(sg.GraphError, match="has no axis"):
        sg.sort(1.0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_as_numpy_with_ties_and_nan(side: Any) -> None:
    bounds = np.array([-1.0, 0.0, 0.0, 2.0, np.inf, np.nan])
    values = np.array([[-2.0, 0.0], [2.0, np.nan], [np.inf, 1.0]])
    got = run(sg.searchsorted(bounds, values, side=side))
    np.testing.assert_array_equal(got, np.searchsorted(bounds, values, side=side))


# -- in loops, over threads -----------------------------------------------------------------------------------------


def test_routines_in_the_body_of_a_scan_and_their_gradients() -> None:
    xs = RNG.normal(size=(4, 6))

    def step(carry: Any, x: Any) -> Any:
        y = sg.cumulative_sum(sg.sort(x + carry)) * 0.1
        return y, sg.sum(y * y)

    x = sg.placeholder(xs.shape, sg.float64)
    _, ys = sg.scan(step, np.zeros(6), x)
    (dx,) = sg.gradients(ys, [x])
    graph = sg.get_default_graph()
    carry = np.zeros(6)
    expected = []
    for row in xs:
        carry = np.cumsum(np.sort(row + carry)) * 0.1
        expected.append(np.sum(carry**2))
    with sg.Session(graph) as session:
        got, slope = session.run([ys, dx], {x: xs})
        direction, step_size = RNG.normal(size=xs.shape), 1e-6
        up, down = (session.run(ys, {x: xs + sign * step_size * direction}).sum() for sign in (1, -1))
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    np.testing.assert_allclose((slope * direction).sum(), (up - down) / (2 * step_size), rtol=1e-6)


def test_routines_give_the_same_bits_on_any_number_of_threads() -> None:
    values = RNG.normal(size=(3001, 50)).astype(np.float32)
    x = sg.placeholder(values.shape)
    long = sg.concat([x, x], axis=1)
    fetches = [sg.cumulative_sum(x, axis=1), sg.sort(x), sg.argsort(x), sg.cumulative_sum(long, axis=1)]
    one, two = (run(fetches, {x: values}, num_threads=n) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one[1], np.sort(values))


# -- triangles, diagonals, grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 3, 9])
def test_triangles_and_diagonals_as_numpy(k: int) -> None:
    x = RNG.normal(size=(2, 3, 5))
    got = run([sg.tril(x, k), sg.triu(x, k), sg.linalg.diagonal(x, offset=k), sg.linalg.trace(x, offset=k)])
    np.testing.assert_array_equal(got[0], np.tril(x, k))
    np.testing.assert_array_equal(got[1], np.triu(x, k))
    np.testing.assert_array_equal(got[2], np.diagonal(x, k, -2, -1))
    np.testing.assert_allclose(got[3], np.trace(x, k, -2, -1))


def test_the_gradient_of_a_trace_is_the_unit_matrix() -> None:
    x = sg.constant(RNG.normal(size=(3, 4)))
    (dx,) = sg.gradients(sg.linalg.trace(x), [x])
    np.testing.assert_array_equal(run(dx), np.eye(3, 4))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid_as_numpy(indexing: Any) -> None:
    arrays = np.arange(3.0), np.arange(4.0), np.arange(2.0)
    for count in range(4):
        expected = np.meshgrid(*arrays[:count], indexing=indexing)
        grids = sg.meshgrid(*arrays[:count], indexing=indexing)
        assert len(grids) == len(expected)
        for got, want in zip(run(grids) if grids else [], expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_cross_products_broadcast() -> None:
    x, y = RNG.normal(size=(4, 1, 3)), RNG.normal(size=(5, 3))
    np.testing.assert_allclose(run(sg.linalg.cross(x, y)), np.cross(x, y), rtol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_differences_of_neighbours_as_numpy(n: int) -> None:
    x = RNG.normal(size=(3, 4))
    got = run([sg.diff(x, n=n), sg.diff(x, 0, n=n, prepend=x[:1], append=np.zeros((2, 4)))])
    np.testing.assert_allclose(got[0], np.diff(x, n=n), atol=1e-12)
    np.testing.assert_allclose(got[1], np.diff(x, n=n, axis=0, prepend=x[:1], append=np.zeros((2, 4))), atol=1e-12)


def test_differences_of_bools_say_where_they_change() -> None:
    x = np.array([True, True, False, True])
    np.testing.assert_array_equal(run(sg.diff(x)), np.diff(x))


@pytest.mark.parametrize("invert", [False, True])
def test_membership_as_numpy(invert: bool) -> None:
    x, wanted = np.array([[1.0, 2.0], [np.nan, 5.0]]), np.array([2.0, 7.0, np.nan])
    np.testing.assert_array_equal(run(sg.isin(x, wanted, invert=invert)), np.isin(x, wanted, invert=invert))
    np.testing.assert_array_equal(run(sg.isin(x, np.zeros(0), invert=invert)), np.full((2, 2), invert))


# -- signs, arrays, dtypes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_and_nans_have_signs(monkeypatch: pytest.MonkeyPatch, target: str, dtype: type) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    signs = np.array([1, -1] * 11, dtype)
    for count in (0, 1, 3, 17):
        magnitudes = np.array([0, np.nan, np.inf, 1.5, 1e-40] * 4, dtype)[:count]
        values = np.copysign(magnitudes, signs[1 : count + 1])
        x, s = sg.placeholder((count,), dtype), sg.placeholder((count,), dtype)
        bits, copied = run([sg.signbit(x), sg.copysign(x, s)], {x: values, s: signs[:count]})
        np.testing.assert_array_equal(bits, np.signbit(values))
        np.testing.assert_array_equal(np.signbit(copied), np.signbit(signs[:count]))
        np.testing.assert_array_equal(np.abs(copied), np.abs(values))


def test_copysign_turns_the_gradient_with_the_sign_and_stops_it_at_zero() -> None:
    x = sg.constant(np.array([2.0, -2.0, 2.0, -2.0, 0.0]))
    s = sg.constant(np.array([1.0, 1.0, -1.0, -0.0, -1.0]))
    dx, ds = run(sg.gradients(sg.copysign(x, s), [x, s]))
    np.testing.assert_array_equal(dx, [1, -1, -1, 1, 0])
    np.testing.assert_array_equal(ds, np.zeros(5))


def test_signbit_of_integers_says_which_are_negative() -> None:
    got = run([sg.signbit(np.array([-3, 0, 3])), sg.signbit(np.array([0, 255], np.uint8))])
    np.testing.assert_array_equal(got[0], [True, False, False])
    np.testing.assert_array_equal(got[1], [False, False])


def test_asarray_takes_what_an_operand_may_be(g: sg.Graph) -> None:
    x = sg.placeholder((2,), sg.int32)
    assert sg.asarray(x) is x
    assert sg.asarray(x, dtype=np.int32) is x
    assert sg.asarray(x, dtype=sg.float64).dtype == sg.float64
    array = np.array([[1.0, 2.0]])
    assert (sg.asarray(array).shape, sg.asarray(array).dtype, sg.asarray(array).graph) == ((1, 2), sg.float64, g)
    assert [sg.asarray(v).dtype for v in (1, 2.0, True, [1, 2])] == [sg.int64, sg.float32, sg.bool, sg.int64]
    np.testing.assert_array_equal(run(sg.asarray([1.5, 2.5], dtype=sg.int32)), [1, 2])
    with pytest.raises(sg.GraphError, match="cannot be used as a tensor"):
        sg.asarray("text")


def test_empty_has_a_shape_and_a_dtype() -> None:
    x = sg.constant(np.ones((2, 3), np.int32))
    made = [sg.empty((2, 0)), sg.empty(3, dtype=sg.bool), sg.empty_like(x), sg.empty_like(x, dtype=sg.float64)]
    assert [(y.shape, y.dtype) for y in run(made)] == [
        ((2, 0), sg.float32), ((3,), sg.bool), ((2, 3), sg.int32), ((2, 3), sg.float64),
    ]  # fmt: skip


def test_numbers_that_have_names() -> None:
    assert (sg.e, sg.pi, sg.inf) == (np.e, np.pi, np.inf)
    assert np.isnan(sg.nan)
    x = sg.constant(np.arange(3.0))
    assert x[:, sg.newaxis].shape == (3, 1)


def test_what_dtypes_can_hold() -> None:
    x = sg.placeholder((2,), sg.float64)
    assert (sg.finfo(sg.float32).eps, sg.finfo(x).bits) == (np.finfo(np.float32).eps, 64)
    for dtype in (sg.float16, sg.bfloat16, sg.float32, sg.float64):
        info = sg.finfo(dtype)
        assert info.dtype == dtype
        assert {type(v) for v in (info.eps, info.max, info.min, info.smallest_normal)} == {float}
        assert info.min == -info.max < -6e4
    assert sg.iinfo("uint8").dtype == sg.uint8
    assert (sg.iinfo("uint8").max, sg.iinfo(np.int32(3)).min) == (255, -(2**31))
    with pytest.raises(sg.GraphError, match="expected a floating dtype, actual int64"):
        sg.finfo(sg.int64)
    with pytest.raises(sg.GraphError, match="expected an integer dtype, actual float64"):
        sg.iinfo(x)


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("bool", {"bool"}), ("signed integer", {"int16", "int64"}), ("unsigned integer", {"uint8"}),
        ("integral", {"uint8", "int16", "int64"}), ("real floating", {"bfloat16", "float32", "float64"}),
        ("complex floating", set()), ("numeric", {"uint8", "int16", "int64", "bfloat16", "float32", "float64"}),
        (("bool", "real floating"), {"bool", "bfloat16", "float32", "float64"}), (sg.int16, {"int16"}),
        ("bfloat16", {"bfloat16"}),
    ],
)  # fmt: skip
def test_kinds_of_dtypes(kind: Any, members: set[str]) -> None:
    names = ("bool", "uint8", "int16", "int64", "bfloat16", "float32", "float64")
    assert {name for name in names if sg.isdtype(name, kind)} == members
    with pytest.raises(sg.GraphError, match="not a dtype"):
        sg.isdtype("int32", "no such kind")


@pytest.mark.filterwarnings("ignore::staticgrad.PromotionWarning")
def test_result_type_is_the_dtype_that_an_op_has() -> None:
    tensors = [sg.constant(np.ones(2, dtype)) for dtype in ("bool", "uint8", "int32", "int64", "float32", "float64")]
    for x in tensors:
        for y in (*tensors, True, 2, 2.5):
            assert sg.result_type(x, y) == sg.result_type(y, x) == sg.where(True, x, y).dtype
            if isinstance(y, sg.Tensor):
                assert sg.can_cast(x, y.dtype) == (sg.result_type(x, y) == y.dtype)
    assert sg.result_type(1, 2.0) == sg.float32
    with pytest.raises(sg.GraphError, match="at least one"):
        sg.result_type()
    with pytest.raises(sg.GraphError, match="out of bounds"):
        sg.result_type(tensors[1], 1000)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_gives_the_first_of_what_is_sorted_and_ties_by_index(g: sg.Graph, dtype: str, largest: bool) -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 8, 2)).astype(dtype)
    values, indices = sg.Session(g).run(sg.topk(x, 4, 1, largest))
    order = np.argsort(-x.astype(float) if largest else x, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    assert (values.dtype, indices.dtype) == (x.dtype, np.int64)


def test_topk_takes_nan_for_the_largest_and_passes_gradients_to_what_it_chose(g: sg.Graph) -> None:
    x = sg.placeholder((None, 4), sg.float64, requires_grad=True)
    values, indices = sg.topk(x, 2)
    slope = sg.gradients(sg.sum(values * np.array([1.0, 10.0])), [x])
    fed = np.array([[1.0, np.nan, 3.0, 2.0], [4.0, 4.0, 4.0, 5.0]])
    results = sg.Session(g).run([values, indices, *slope], {x: fed})
    for got, want in zip(
        results, ([[np.nan, 3], [5, 4]], [[1, 2], [3, 0]], [[0, 1, 10, 0], [10, 0, 0, 1]]), strict=True
    ):
        np.testing.assert_array_equal(got, want)
    assert values.grad_fn is not None
    assert values.grad_fn.name == "TopkBackward0"


def test_topk_refuses_more_elements_than_there_are(g: sg.Graph) -> None:
    for x, k in ((np.zeros((2, 3)), 4), (np.zeros((2, 3)), -1), (np.zeros((2, 3)), 1.5), (1.0, 1)):
        with pytest.raises(sg.GraphError, match="topk"):
            sg.topk(x, k)  # type: ignore[arg-type]
    x = sg.placeholder((None,))
    y = sg.topk(x, 2)[0]
    with pytest.raises(sg.GraphError, match="topk: expected k of 0 to 1"):
        sg.Session(g).run(y, {x: [1.0]})


def test_numbers_of_bins_and_axes_may_be_numpy_integers() -> None:
    """A number of bins was taken for edges, an axis for a sequence of axes."""
    with sg.Graph() as graph:
        x = sg.constant(np.arange(12.0).reshape(3, 4))
        counts, _ = sg.histogram(x, np.int64(3))
        slopes = sg.gradient(x, axis=np.int64(1))
        mean = sg.average(x, axis=np.int64(1), weights=[1.0, 0.0, 0.0, 1.0])
    found = sg.Session(graph).run([counts, slopes, mean])
    np.testing.assert_array_equal(found[0], [4, 4, 4])
    np.testing.assert_array_equal(found[1], np.ones((3, 4)))
    np.testing.assert_array_equal(found[2], [1.5, 5.5, 9.5])
