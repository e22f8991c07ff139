"""The public contract of sizes that feeds bind, and of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("g")


def test_sizes_that_feeds_bind(backend: str) -> None:
    x = sg.placeholder((None, 3), name="x")
    n = x.shape[0]
    flat = x.reshape(-1)
    doubled = sg.concat([x, x])
    assert doubled.shape == (n + n, 3)
    assert doubled.shape == (2 * n, 3)
    assert flat.shape == (3 * n,)
    outputs = {
        "flat": flat, "doubled": doubled, "back": flat.reshape((n, 3)), "zeros": sg.zeros((n, 2)),
        "shape": sg.shape(x), "mean": x.mean(0), "wide": sg.broadcast_to(sg.sum(x, 1, keepdims=True), (n, 4)),
        "pairs": x.reshape((n, 3, 1)) - x.reshape((n, 1, 3)),
    }  # fmt: skip
    sess = sg.Session(x.graph)
    for rows in (4, 1, 2, 4):
        a = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        out = sess.run(outputs, {x: a})
        np.testing.assert_array_equal(out["flat"], a.reshape(-1))
        np.testing.assert_array_equal(out["doubled"], np.concatenate([a, a]))
        np.testing.assert_array_equal(out["back"], a)
        assert out["zeros"].shape == (rows, 2)
        assert out["shape"].tolist() == [rows, 3]
        assert out["shape"].dtype == np.int64
        np.testing.assert_allclose(out["mean"], a.mean(0), rtol=1e-6)
        np.testing.assert_array_equal(out["wide"], np.repeat(a.sum(1, keepdims=True), 4, 1))
        np.testing.assert_array_equal(out["pairs"], a[:, :, None] - a[:, None, :])
    assert sess.compile_count == (1 if backend == "compiled" else 3)


def test_a_free_size_never_broadcasts(backend: str) -> None:
    x, y, row = sg.placeholder((None,), name="x"), sg.placeholder((None,), name="y"), sg.placeholder((1,))
    total, wide = x + y, x + row
    sess = sg.Session(x.graph)
    assert sess.run(total, {x: f32(1, 2), y: f32(3, 4)}).tolist() == [4, 6]
    assert sess.run(wide, {x: f32(1, 2), row: f32(3)}).tolist() == [4, 5]
    for a, b in ((f32(1), f32(1, 2)), (f32(1, 2), f32(1)), (f32(1, 2), f32(1, 2, 3))):
        with pytest.raises(sg.StaticGradError):
            sess.run(total, {x: a, y: b})


def test_a_size_that_several_share(backend: str) -> None:
    batch = sg.dim("batch")
    x, t = sg.placeholder((batch, 2), name="x"), sg.placeholder((batch,), name="t")
    assert x.shape[0] == t.shape[0]
    y = x @ sg.ones((2,)) - t
    z = sg.placeholder((batch + 1,))
    sess = sg.Session(x.graph)
    assert sess.run(y, {x: np.ones((3, 2), np.float32), t: f32(1, 2, 3)}).tolist() == [1, 0, -1]
    with pytest.raises(sg.FeedError, match="batch"):
        sess.run(y, {x: np.ones((3, 2), np.float32), t: f32(1, 2)})
    assert sess.run([y, z], {x: np.ones((1, 2), np.float32), t: f32(1), z: f32(1, 2)})[1].shape == (2,)
    with pytest.raises(sg.FeedError):
        sess.run([y, z], {x: np.ones((1, 2), np.float32), t: f32(1), z: f32(1, 2, 3)})


def test_compiling_for_sizes(backend: str) -> None:
    x = sg.placeholder((None, 2))
    y = sg.sum(x, 1)
    sess = sg.Session(x.graph)
    exe = sess.compile(y, {x: (3, 2)})
    assert sess.compile_count == 1
    assert exe(np.ones((3, 2), np.float32)).tolist() == [2, 2, 2]
    assert sess.compile_count == 1
    assert exe(np.ones((1, 2), np.float32)).tolist() == [2]
    assert sess.run(y, {x: np.ones((0, 2), np.float32)}).tolist() == []
    assert sess.compile_count == 3


def test_views_of_views_of_views(backend: str) -> None:
    x = sg.placeholder((4, 6), sg.float64)
    a = np.arange(24.0).reshape(4, 6)
    rng = np.random.default_rng(0)
    steps: list[Callable[[Any, Any], Any]] = [
        lambda m, v: m.reshape(v, (6, 4)) if v.shape == (4, 6) else m.reshape(v, (4, 6)),
        lambda m, v: v.T,
        lambda m, v: m.reshape(v.T, v.shape),
        lambda m, v: m.flip(v, axis=1),
        lambda m, v: m.roll(v, 1, axis=0),
        lambda m, v: m.concat([v, v])[v.shape[0] // 2 : -(v.shape[0] // 2)],
        lambda m, v: m.reshape(m.reshape(v, (2, 2, 6)).T, v.shape),
        lambda m, v: m.reshape(m.broadcast_to(v[None], (2, *v.shape)), (-1, v.shape[1]))[3 : 3 + v.shape[0]],
        lambda m, v: v[::-1, ::-1],
    ]  # fmt: skip
    chains = [rng.integers(0, len(steps), 5) for _ in range(60)]
    views, wanted = [], []
    for chain in chains:
        view, expected = x, a
        for number in chain:
            view, expected = steps[number](sg, view), steps[number](np, expected)
        views.append(view)
        wanted.append(expected)
    sess = sg.Session(x.graph)
    values = sess.run([*views, *(sg.mean(v) for v in views), *(v @ v.T for v in views)], {x: a})
    for got, mean, product, expected in zip(values[:60], values[60:120], values[120:], wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_allclose(mean, expected.mean(), rtol=1e-12)
        np.testing.assert_allclose(product, expected @ expected.T, rtol=1e-12)


MEETINGS: dict[str, Callable[[sg.Tensor, sg.Tensor], sg.Tensor]] = {
    "add": lambda x, y: x + y,
    "where": lambda x, y: sg.where(y > 0, x, 0.0),
    "vecdot": sg.vecdot,
    "mse_loss": sg.nn.mse_loss,
    "matmul": lambda x, y: sg.reshape(x, (-1, 1, 1)) @ sg.reshape(y, (-1, 1, 1)),
    "einsum": lambda x, y: sg.einsum("i,i->i", x, y),
    "broadcast_to": lambda x, y: sg.broadcast_to(x, y.shape),
    "scatter": lambda x, y: sg.scatter(y, slice(None), x),
    "scan": lambda x, y: sg.scan(lambda c, row: (c + row[0] * row[1], ()), 0.0, (x, y))[0],
    "carry": lambda x, y: sg.scan(lambda c, _: (x + 0.0, ()), y, length=2)[0],
    "cond": lambda x, y: sg.cond(sg.sum(y) > 0, lambda: x, lambda: y),
    "body": lambda x, y: sg.map(lambda one: sg.sum(one * x + y), sg.zeros((2,))),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_a_size_that_feeds_bind_is_checked_where_it_meets_another(name: str, backend: str) -> None:
    x, y, known = sg.placeholder((None,)), sg.placeholder((None,)), sg.placeholder((4,))
    free, fixed = MEETINGS[name](x, y), MEETINGS[name](x, known)
    sess = sg.Session(x.graph)
    four = f32(1, 2, 3, 4)
    np.testing.assert_array_equal(sess.run(free, {x: four, y: four}), sess.run(fixed, {x: four, known: four}))
    for few in (f32(1), f32(1, 2, 3)):
        for result, feeds in ((fixed, {x: few, known: four}), (free, {x: few, y: four}), (free, {x: four, y: few})):
            for call in (sess.run, sess.forward):
                with pytest.raises(ValueError, match=r"declared at .*test_contract_sizes\.py"):
                    call(result, feeds)


def test_the_padding_row_of_a_table_of_free_size_may_count_from_the_end(backend: str) -> None:
    table, labels = sg.placeholder((None, 2)), sg.placeholder((3,), sg.int64)
    (d,) = sg.gradients(sg.nn.embedding(labels, table, padding_idx=-1), table)
    sess = sg.Session(table.graph)
    for rows in (2, 4):
        got = sess.run(d, {table: np.ones((rows, 2), np.float32), labels: [0, rows - 1, rows - 1]})
        np.testing.assert_array_equal(got, [[1, 1]] + [[0, 0]] * (rows - 1))


@pytest.mark.parametrize("others", [False, True])
def test_a_size_that_no_feed_binds_is_named(others: bool) -> None:
    x = sg.placeholder((None,))
    result = sg.zeros((sg.dim("rows"), 2)) + (sg.sum(x) if others else 1.0)
    with pytest.raises(sg.GraphError, match=r"the size rows is not bound\n.*test_contract_sizes\.py"):
        sg.Session(x.graph).run(result, {x: f32(1, 2)} if others else {})


FEWER: dict[str, Callable[[Any], Any]] = {
    "ones": lambda n: sg.ones((n - 3,)),
    "iota": lambda n: sg.iota((n - 3,)),
    "uniform": lambda n: sg.random.uniform((n - 3,)),
    "eye": lambda n: sg.eye(n - 3),
    "linspace": lambda n: sg.linspace(0, 1, n - 3),
    "broadcast_to": lambda n: sg.broadcast_to(sg.constant(1.0), (n - 3,)),
}


@pytest.mark.parametrize("name", FEWER)
def test_a_size_that_feeds_make_negative_is_refused_with_its_line(name: str) -> None:
    x = sg.placeholder((None,))
    y = FEWER[name](x.shape[0])
    with sg.Session(x.graph) as sess:
        assert sess.run([y, x], {x: np.ones(4, np.float32)})[0].size == 1
        with pytest.raises(sg.GraphError, match=rf"negative size(.|\n)*{__file__}"):
            sess.run([y, x], {x: np.ones(2, np.float32)})


def test_two_named_sizes_that_change_places_are_two_programs_in_a_loop_too(backend: str) -> None:
    n, m = sg.dim("n"), sg.dim("m")
    x, y = sg.placeholder((n,)), sg.placeholder((m,))
    total, _ = sg.scan(lambda c, _: (c + sg.sum(sg.ones((m,))) + sg.sum(x * 0) + sg.sum(y * 0), ()), 0.0, length=1)
    sess = sg.Session()
    for rows, columns in ((3, 4), (4, 3)):
        got = sess.run(total, {x: np.zeros(rows, np.float32), y: np.zeros(columns, np.float32)})
        assert got == columns


@pytest.mark.parametrize("sizes", ["ranges", "exact"])
def test_key_error_of_a_symbol_for_a_size_that_only_a_multiple_is_fed_of(sizes):
    n = sg.dim("n")
    x, tail = sg.placeholder((2 * n, 3), name="x"), sg.placeholder((n + 1,), name="tail")
    sess = sg.Session(sizes=sizes)
    halves = x.reshape(2, n, 3)[1], sg.shape(x)[0], tail[:n]
    exe = sess.compile(halves, [x, tail])
    for count in (3, 1, 0, 20):
        values, end = np.arange(6 * count, dtype=np.float32).reshape(-1, 3), np.ones(count + 1, np.float32)
        for got in (exe(values, end), sess.run(halves, {x: values, tail: end})):
            np.testing.assert_array_equal(got[0], values[count:])
            assert (got[1], *got[2].shape) == (2 * count, count)
    with pytest.raises(sg.FeedError, match=r"'x', axis 0: expected size 2\*n with a whole n.*actual 5\n.*test_contr"):
        exe(np.ones((5, 3), np.float32), np.ones(3, np.float32))
    with pytest.raises(sg.FeedError, match=r"'tail', axis 0: expected size n \+ 1 = 3, actual 4\n.*test_contract"):
        exe(np.ones((4, 3), np.float32), np.ones(4, np.float32))
    with pytest.raises(sg.FeedError, match=r"'tail', axis 0: expected size n \+ 1 with a whole n.*actual 0"):
        sess.run(tail * 2, {tail: np.ones(0, np.float32)})


def test_key_error_of_a_symbol_that_no_feed_binds():
    n = sg.dim("n")
    half = sg.placeholder((n // 2,), name="half")
    whole = sg.placeholder((n,), name="whole")
    sess = sg.Session()
    says = r"feed of 'half': no feed binds n, which its size \(n // 2\) is made of.*\n.*test_contract_sizes\.py"
    with pytest.raises(sg.FeedError, match=says):
        sess.compile(half * 2, [half])  # before any call
    with pytest.raises(sg.FeedError, match=says):
        sess.run(half * 2, {half: np.ones(3, np.float32)})
    with pytest.raises(sg.FeedError, match=says):
        sess.forward(half * 2, {half: np.ones(3, np.float32)})
    with pytest.raises(sg.FeedError, match=r"'half', axis 0: expected size \(n // 2\) = 2, actual 3"):
        sess.run([half, whole], {half: np.ones(3, np.float32), whole: np.ones(5, np.float32)})
