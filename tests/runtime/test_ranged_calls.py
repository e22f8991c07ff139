"""Calls of programs that serve ranges of sizes: many sizes of one executable, in any order and from many threads, and
what warnings and reports say of ranges."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.extents import range_of

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


# -- ranges -----------------------------------------------------------------------------------------------------------


def test_ranges_follow_from_the_size_alone() -> None:
    assert [range_of(n) for n in (0, 1, 16, 17, 32, 33, 64, 65, 1000)] == [
        (0, 0), (1, 16), (1, 16), (17, 32), (17, 32), (33, 64), (33, 64), (65, 128), (513, 1024),
    ]  # fmt: skip
    assert [range_of(n, (512,)) for n in (1, 512, 513, 1025)] == [(1, 512), (1, 512), (513, 1024), (1025, 2048)]
    assert [range_of(n, (32, 100)) for n in (32, 33, 100, 101, 129)] == [
        (1, 32), (33, 100), (33, 100), (101, 128), (129, 256),
    ]  # fmt: skip


def test_a_size_says_its_ranges(g: sg.Graph) -> None:
    for size, sizes, programs in (
        (sg.dim("a", max=100), (1, 7, 100), 1),
        (sg.dim("b", ranges=(20, 40)), (1, 20, 21, 40, 41), 3),
        (None, (1, 16, 17, 32, 33), 3),
    ):
        x = sg.placeholder((size, 2))
        sess = sg.Session(g)
        exe = sess.compile(sg.sum(x, 1), [x])
        for n in sizes:
            np.testing.assert_array_equal(exe(ones(n, 2)), np.full(n, 2, np.float32))
        assert sess.compile_count == programs


def test_ranges_that_make_no_sense_are_refused() -> None:
    for arguments, message in (
        ({"max": 0}, "max: expected an int of at least 1"),
        ({"ranges": (3, 2)}, "ascend"),
        ({"ranges": (3, 3)}, "ascend"),
        ({"max": 3, "ranges": (3,)}, "actual both"),
        ({"ranges": (1.5,)}, "expected an int"),
    ):
        with pytest.raises(sg.GraphError, match=message):
            sg.dim("n", **arguments)  # type: ignore[arg-type]


def test_ranges_are_in_the_text_of_a_graph(g: sg.Graph) -> None:
    sg.placeholder((sg.dim("n", max=512), sg.dim("m", ranges=(3, 9)), sg.dim("k")))
    assert "dim('n', 1, (512,)), dim('m', 1, (3, 9)), k]" in str(g)
    assert str(sg.parse(str(g))) == str(g)


def test_exact_programs_are_there_for_those_who_ask(g: sg.Graph) -> None:
    x = sg.placeholder((None,))
    y = x * 2
    for sess, options in ((sg.Session(g, sizes="exact"), {}), (sg.Session(g), {"sizes": "exact"})):
        exe = sess.compile(y, [x], **options)
        for n in (3, 4, 5, 6, 7, 8):
            exe(ones(n))
        assert sess.compile_count == 6
    for sizes in ("range", 1):
        with pytest.raises(sg.StaticGradError, match="expected one of 'ranges', 'exact'"):
            sg.Session(g, sizes=sizes)
        with pytest.raises(sg.StaticGradError, match="expected one of 'ranges', 'exact'"):
            sg.Session(g).compile(y, [x], sizes=sizes)


def test_sizes_that_are_known_when_compiled_are_numbers(g: sg.Graph) -> None:
    x, w = sg.placeholder((None, None)), sg.placeholder((None, 4))
    sess = sg.Session(g)
    exe = sess.compile(x @ w, {x: (None, 3), w: (3, 4)})
    for n in (2, 5, 16):
        assert exe(ones(n, 3), ones(3, 4)).shape == (n, 4)
    assert sess.compile_count == 1
    assert "= 3" in str(exe.memory).splitlines()[0]


# -- sizes that have to be equal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [(3, 3), (3, 4)])
def test_sizes_of_unlike_names_that_meet_are_one(g: sg.Graph, first: tuple[int, int]) -> None:
    x, t = sg.placeholder((None, 2), name="x"), sg.placeholder((None, 2), name="t")
    sess = sg.Session(g)
    exe = sess.compile(x * t, [x, t])
    for n, m in (first, (5, 5), (6, 7), (9, 9)):
        if n != m:
            with pytest.raises(sg.FeedError, match="size"):
                exe(ones(n, 2), ones(m, 2))
        else:
            assert exe(ones(n, 2), ones(m, 2)).shape == (n, 2)
    assert sess.compile_count == 1  # whichever came first


# -- calls ------------------------------------------------------------------------------------------------------------


def test_results_at_all_sizes_in_any_order(g: sg.Graph) -> None:
    x, w = sg.placeholder((None, 5)), sg.Variable(np.arange(15, dtype=np.float32).reshape(5, 3))
    outputs = {"rows": x @ w, "parts": (sg.sum(x, 0), [sg.mean(x)]), "size": sg.shape(x)}
    exe = sg.Session(g).compile(outputs, [x])
    rng = np.random.default_rng(0)
    kept = []
    for n in [*rng.integers(1, 33, 40).tolist(), 0, 1]:
        a = rng.normal(size=(n, 5)).astype(np.float32)
        found = exe(a) if n else exe(np.zeros((0, 5), np.float32)[:, :])
        kept.append((a, found, {name: np.copy(found[name]) for name in ("rows", "size")}))
    for a, found, copies in kept:  # results are fresh: no later call has changed them
        np.testing.assert_allclose(found["rows"], a @ np.arange(15.0).reshape(5, 3), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["parts"][0], a.sum(0), rtol=1e-4, atol=1e-5)
        assert found["size"].tolist() == [*a.shape]
        np.testing.assert_array_equal(found["rows"], copies["rows"])


def test_out_and_conversions_at_many_sizes(g: sg.Graph) -> None:
    x = sg.placeholder((None,), sg.float64)
    exe = sg.Session(g).compile([x * 2, sg.sum(x)], [x])
    for n in (3, 9, 4, 20, 3):
        out = [np.empty(n), None]
        doubled, total = exe(list(range(n)), out=out)
        assert doubled is out[0]
        assert doubled.tolist() == [2.0 * i for i in range(n)]
        assert total == sum(range(n))
        assert exe(np.arange(n, dtype=np.float32))[0].shape == (n,)
        assert exe(np.arange(2.0 * n)[::2])[1] == 2 * total
        with pytest.raises(sg.FeedError, match="out for"):
            exe(np.ones(n), out=[np.empty(n + 1), None])


@pytest.mark.parametrize("long", [False, True])
def test_many_threads_call_at_many_sizes(g: sg.Graph, long: bool) -> None:
    """Short programs keep the GIL, long ones let others in while they run."""
    columns = 3000 if long else 3
    x = sg.placeholder((None, columns))
    exe = sg.Session(g, num_threads=1).compile([sg.sum(sg.exp(x) * 2, 1), x[0] + 1], [x])
    arrays = {n: np.full((n, columns), np.log(n / 2), np.float32) for n in range(1, 41)}
    failures: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60 if long else 400):
            n = int(rng.integers(1, 41))
            total, row = exe(arrays[n])
            if total.shape != (n,) or not np.allclose(total, n * columns, rtol=1e-4) or row.shape != (columns,):
                failures.append((n, total.shape, row.shape))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_state_callbacks_and_checks_at_many_sizes(g: sg.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    x, index = sg.placeholder((None, 2)), sg.placeholder((3,), sg.int64)
    total = sg.Variable(0.0, trainable=False)
    seen: list[tuple[int, ...]] = []

    def look(a: Array) -> Array:
        seen.append(a.shape)
        return a * 3

    (tripled,) = sg.py_call(look, [x], [(sg.float32, x.shape)])
    add = sg.assign(total, total + sg.sum(sg.print(tripled, "rows")))
    sess = sg.Session(g)
    exe = sess.compile([tripled, add, x[index]], [x, index])
    for n in (4, 7, 16, 5):
        rows, _, picked = exe(ones(n, 2), np.array([0, n - 1, -n]))
        assert rows.shape == (n, 2)
        assert picked.tolist() == [[1, 1]] * 3
        with pytest.raises(sg.BoundsError, match=rf"\[{-n}, {n}\)|size {n}"):
            exe(ones(n, 2), np.array([0, n, 0]))
    assert sess.get(total) == 3 * 2 * (4 + 7 + 16 + 5)
    assert (4, 2) in seen
    assert sess.compile_count == 1
    assert capsys.readouterr().out.count("rows") >= 4


def test_checked_numbers_name_the_op_at_each_size(g: sg.Graph) -> None:
    x = sg.placeholder((None,), name="x")
    y = sg.log(x)
    sess = sg.Session(g, check_numerics=True)
    for n in (3, 8):
        assert sess.run(y, {x: ones(n)}).shape == (n,)
        with pytest.raises(sg.NumericsError, match="log"):
            sess.run(y, {x: -ones(n)})
    assert sess.compile_count == 1


@pytest.mark.parametrize("switch", [("VERIFY", "1"), ("VERIFY", "2"), ("MEMORY", "poison"), ("MEMORY", "none")])
def test_switches_that_look_at_programs(g: sg.Graph, switch: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"STATICGRAD_{switch[0]}", switch[1])
    x, w = sg.placeholder((None, 6)), sg.Variable(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))
    loss = sg.sum(sg.nn.softmax(sg.tanh(x @ w), 1) ** 2)
    (dw,) = sg.gradients(loss, [w])
    sess, exact = sg.Session(g), sg.Session(g, sizes="exact")
    for n in (1, 5, 16, 17):
        a = np.random.default_rng(n).normal(size=(n, 6)).astype(np.float32)
        for found, expected in zip(sess.run([loss, dw], {x: a}), exact.run([loss, dw], {x: a}), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# -- what is said -----------------------------------------------------------------------------------------------------


def test_reports_speak_of_ranges(g: sg.Graph) -> None:
    x = sg.placeholder((sg.dim("rows"), 8))
    exe = sg.Session(g).compile(sg.sort(sg.exp(x), axis=0) @ np.ones((8, 2), np.float32), [x])
    small = exe(ones(3, 8)).shape, exe.memory.arena_bytes, exe.cost.flops
    assert exe(ones(16, 8)).shape == (16, 2)
    assert (exe.memory.arena_bytes, exe.cost.flops) == small[1:]  # those of the greatest size, whichever was called
    assert "for rows from 1 to 16" in str(exe.memory)
    assert "rows from 1 to 16" in str(exe.cost)
    assert "rows from 1 to 16" in repr(exe)
    assert "n0[1..16]" in exe.text("kernels")
    assert "%sizes" in exe.text("llvm") or "load i64" in exe.text("llvm")
    few, many = exe.profile(ones(2, 8)), exe.profile(ones(16, 8))
    assert sum(k.bytes for k in few.kernels) < sum(k.bytes for k in many.kernels)


def test_sizes_that_go_on_compiling_are_warned_of_once(g: sg.Graph) -> None:
    x = sg.placeholder((None, 3), name="points")
    pairs = x.reshape((x.shape[0] // 2, 6))
    sess = sg.Session(g)
    exe = sess.compile(pairs, [x])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (2, 4, 6, 8):
            exe(ones(n, 3))
        assert not caught
        for n in (10, 12, 14):
            exe(ones(n, 3))
    (found,) = caught
    assert issubclass(found.category, sg.RecompileWarning)
    for words in ("'points' on axis 0", "2, 4, 6, 8, 10", "reshape", "sizes='exact'"):
        assert words in str(found.message)
    assert found.filename == __file__
    assert "points.0 = 14" in str(exe.memory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = sess.compile(pairs, [x], sizes="exact")
        for n in (2, 4, 6, 8, 10, 12):
            exact(ones(n, 3))


READS = {"every second": np.s_[::2], "from one": np.s_[1::2], "backwards": np.s_[::-2], "all": np.s_[::-1],
         "but the last": np.s_[:-1:3], "none": np.s_[2:2]}  # fmt: skip


@pytest.mark.parametrize("sizes", ["ranges", "exact"])
@pytest.mark.parametrize("key", READS.values(), ids=READS)
def test_gradients_of_strided_slices_that_read_nothing(g: sg.Graph, key: slice, sizes: Any) -> None:
    """They had an element where x had none, or the sum with another gradient of x was refused."""
    x = sg.placeholder((None,), sg.float64)
    y = x[key]
    (first,) = sg.gradients(sg.sum(y**3), [x])
    (second,) = sg.gradients(sg.sum(first * first) + sg.sum(x), [x])
    session = sg.Session(g, sizes=sizes)
    for n in (0, 1, 2, 3, 4, 5, 17):
        a = np.arange(1.0, n + 1)
        read = np.zeros(n)
        read[key] = 1
        got = session.run([first, second], {x: a})
        np.testing.assert_allclose(got[0], 3 * a**2 * read)
        np.testing.assert_allclose(got[1], 36 * a**3 * read + 1)
