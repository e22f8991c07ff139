"""The public contract of running: feeds, nests of fetches, results, executables; and of errors."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("g")

# -- running ----------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Record:
    loss: Any
    rest: Any = None


def test_nests_come_back_as_they_are(backend: str) -> None:
    x = sg.placeholder((2,))
    y = x * 2
    op = sg.group(sg.assign(sg.Variable(0.0), 1.0))
    sess = sg.Session(x.graph)
    feeds = {x: f32(1, 2)}
    nest = {"a": y, 1: (x, [y, None, op]), "p": Pair(y, ()), "r": Record(x, {"deep": y})}
    out = sess.run(nest, feeds)
    assert list(out) == list(nest)
    assert out[1][0].tolist() == [1, 2]
    assert isinstance(out[1], tuple)
    assert isinstance(out[1][1], list)
    assert out[1][1][1:] == [None, None]
    assert isinstance(out["p"], Pair)
    assert out["p"].second == ()
    assert isinstance(out["r"], Record)
    assert out["r"].rest["deep"].tolist() == [2, 4]
    assert sess.run(None, feeds) is None
    assert sess.run({}, feeds) == {}
    assert sess.run(op) is None
    assert sg.nest.flatten(nest) == [y, x, y, op, y, x, y] or len(sg.nest.flatten(nest)) == 7
    doubled = sg.nest.map(lambda v: v * 2, Record(1, (2, None)))
    assert doubled == Record(2, (4, None))
    for wrong in (3, "x", [y, 1.0], {"a": {1, 2}}):
        with pytest.raises(sg.FetchError):
            sess.run(wrong, feeds)


def test_results_are_fresh_and_writable(backend: str) -> None:
    x, w = sg.placeholder((2,)), sg.Variable(f32(7, 8))
    fetches = [x, x.reshape(2, 1), sg.constant(f32(1, 2)), w, w + 0, x, sg.zeros((2,))]
    sess = sg.Session(x.graph)
    exe = sess.compile(fetches, x)
    a = f32(1, 2)
    first = exe(a)
    copies = [r.copy() for r in first]
    for r in exe(a):
        assert r.flags.writeable
        assert r.flags.c_contiguous
        r[...] = 99
    for r in sess.run(fetches, {x: a}):
        r[...] = -1
    for r, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(r, copy)
        assert not any(r is not other and np.shares_memory(r, other) for other in first)
    assert a.tolist() == [1, 2]
    assert sess.get(w).tolist() == [7, 8]
    total = sess.run(sg.sum(x), {x: a})
    assert isinstance(total, np.ndarray)
    assert total.shape == ()


def test_results_in_given_arrays(backend: str) -> None:
    x = sg.placeholder((2, 2))
    y, s, op = x * 2, sg.sum(x), sg.group()
    sess = sg.Session(x.graph)
    exe = sess.compile({"y": y, "s": s, "op": op}, x)
    a = np.ones((2, 2), np.float32)
    out = {"y": np.zeros((2, 2), np.float32), "s": np.zeros((), np.float32), "op": None}
    assert exe(a, out=out) is out
    assert out["y"].tolist() == [[2, 2], [2, 2]]
    assert out["s"] == 4
    some = {"y": None, "s": out["s"], "op": None}
    assert exe(2 * a, out=some) is some
    assert out["s"] == 8
    np.testing.assert_array_equal(some["y"], 4 * a)  # a fresh array where none was given
    big, frozen = np.zeros((4, 2), np.float32), np.zeros((2, 2), np.float32)
    frozen.flags.writeable = False
    wrong = (
        np.zeros((2, 2)), np.zeros((4,), np.float32), big[::2], frozen, a, [[0, 0], [0, 0]],
        np.zeros((2, 2), np.float32, order="F")[:, ::-1],
    )  # fmt: skip
    for array in wrong:
        with pytest.raises(sg.FeedError):
            exe(a, out={"y": array, "s": None, "op": None})
    with pytest.raises(sg.FeedError):
        sess.compile([y, y + 1], x)(a, out=[big[:2], big[1:3]])
    for nest in (big[:2], [big[:2], None, None], {"y": big[:2]}, {**out, "op": big[:2]}):
        with pytest.raises(sg.FeedError):
            exe(a, out=nest)
    pairs = sess.compile((y, [op, s]), x)
    given = (None, [None, None])
    fresh = pairs(a, out=given)
    assert given[0] is None
    assert fresh[1] is given[1]
    assert (fresh[0].tolist(), fresh[1]) == ([[2, 2], [2, 2]], [None, 4])
    single = sess.compile(y, x)
    assert single(a, out=frozen.copy()).tolist() == [[2, 2], [2, 2]]


def test_feeds_of_every_kind(backend: str) -> None:
    x = sg.placeholder((2, 3), name="x")
    y = x + 0
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    misaligned = np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    frozen = a.copy()
    frozen.flags.writeable = False
    kinds = {
        "strided": np.repeat(a, 2, 1)[:, ::2], "fortran": np.asfortranarray(a), "negative": a[::-1, ::-1][::-1, ::-1],
        "read-only": frozen, "misaligned": misaligned, "other endian": a.astype(">f4"), "half": a.astype(np.float16),
        "int16": a.astype(np.int16), "bool": a.astype(bool), "list": a.tolist(), "tuple": tuple(map(tuple, a)),
        "buffer": memoryview(a), "broadcast": np.broadcast_to(a[:1], (2, 3)),
    }  # fmt: skip
    sess = sg.Session(x.graph)
    exe = sess.compile(y, x)
    for kind, feed in kinds.items():
        wanted = np.asarray(feed).astype(np.float32)
        np.testing.assert_array_equal(exe(feed), wanted, err_msg=kind)
        np.testing.assert_array_equal(sess.run(y, {x: feed}), wanted, err_msg=kind)
    for wrong in (a.astype(np.float64), a.astype(np.int32), a[:1], a.T, "text", None, [[1, 2], [3]], [[1j] * 3] * 2):
        with pytest.raises(sg.FeedError, match="'x'"):
            exe(wrong)


def test_scalars_and_lists_take_the_declared_dtype(backend: str) -> None:
    f, i, b = sg.placeholder(()), sg.placeholder((2,), sg.int32), sg.placeholder((), sg.bool)
    sess = sg.Session(f.graph)
    out = sess.run([f, i, b], {f: 3, i: [1, 2], b: True})
    assert [v.dtype for v in out] == ["float32", "int32", "bool"]
    out = sess.run([f, i, b], {f: 0.1, i: (1, 2), b: False})
    assert out[0] == np.float32(0.1)
    for feeds in ({i: [1.5, 2.0]}, {i: [1, 2**40]}, {b: 2}, {f: "1"}):
        with pytest.raises(sg.FeedError):
            sess.run([f, i, b], {f: 0, i: [1, 2], b: True, **feeds})


def test_feeds_cut_the_graph(backend: str) -> None:
    x = sg.placeholder((2,), name="x")
    h = sg.exp(x)
    y = h * 2
    (dh,) = sg.gradients(sg.sum(y * y), h)
    sess = sg.Session(x.graph)
    assert sess.run(y, {h: f32(1, 2)}).tolist() == [2, 4]
    assert sess.run([y, dh], {h: f32(1, 2)})[1].tolist() == [8, 16]
    assert sess.run(y, {y: f32(5, 5)}).tolist() == [5, 5]
    assert sess.run(y, {y: f32(5, 5), x: f32(0, 0)}).tolist() == [5, 5]
    with pytest.raises(sg.FeedError, match=r"(?s)'x'.*test_contract_running\.py"):
        sess.run(y)
    with pytest.raises(sg.FeedError):
        sess.run(y, {h: f32(1, 2, 3)})


def test_only_what_is_needed_is_compiled(backend: str) -> None:
    x = sg.placeholder((2,))
    y, _ = x + 1, sg.exp(x)
    sess = sg.Session(x.graph)
    for _ in range(3):
        sess.run(y, {x: f32(1, 2)})
        sess.run([y], {x: f32(1, 2)})
    assert sess.compile_count == 1
    y * 2
    sess.run(y, {x: f32(1, 2)})
    assert sess.compile_count <= 2


def test_executables_are_called_by_position(backend: str) -> None:
    a, b = sg.placeholder((2,), name="a"), sg.placeholder((2,), name="b")
    sess = sg.Session(a.graph)
    y = a - b
    assert sess.compile(y, [b, a])(f32(1, 1), f32(5, 6)).tolist() == [4, 5]
    assert sess.compile(y, {b: (2,), a: (2,)})(f32(1, 1), f32(5, 6)).tolist() == [4, 5]
    with pytest.raises(sg.FeedError, match="'b'"):
        sess.compile(y, [a])
    with pytest.raises(sg.FeedError):
        sess.compile(y, [a, a])
    exe = sess.compile(y, [a, b])
    for arrays in ((), (f32(1, 1),), (f32(1, 1),) * 3):
        with pytest.raises(sg.FeedError):
            exe(*arrays)
    with pytest.raises(TypeError):
        exe(f32(1, 1), b=f32(1, 1))


def test_an_executable_keeps_its_session_and_ends_with_it(backend: str) -> None:
    x, w = sg.placeholder((1,)), sg.Variable(f32(3))
    exe = sg.Session(x.graph).compile(x * w, x)
    gc.collect()
    assert exe(f32(2)) == 6
    with sg.Session(x.graph) as sess:
        inner = sess.compile(x * w, x)
        assert inner(f32(2)) == 6
    for use in (
        lambda: inner(f32(2)), lambda: sess.run(x, {x: f32(1)}), lambda: sess.get(w), lambda: sess.set(w, f32(1)),
        lambda: sess.compile(x, x), lambda: sess.forward(x * w, {x: f32(1)}),
    ):  # fmt: skip
        with pytest.raises(sg.StaticGradError, match="closed"):
            use()
    sess.close()


def test_sessions_are_refused_what_is_foreign(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((1,), name="mine")
    with sg.Graph() as other:
        y = sg.placeholder((1,), name="theirs")
    sess = sg.Session(g)
    with pytest.raises(sg.FetchError, match="another graph than the session's"):
        sess.run(y)
    inside: list[sg.Tensor] = []
    sg.map(lambda row: [inside.append(row), row][1], x)
    with pytest.raises(sg.FetchError, match=r"(?s)the body of a map.*return it from the body"):
        sess.run(inside[0])
    with pytest.raises(sg.FeedError, match="'theirs'"):
        sess.run(x, {x: f32(1), y: f32(1)})
    assert sg.Session(other).run(y, {y: f32(1)}) == 1
    assert sg.Session().graph is g


# -- errors -----------------------------------------------------------------------------------------------------------


def test_every_error_has_its_builtin_kin() -> None:
    kin = {
        sg.GraphError: ValueError, sg.GradientError: RuntimeError, sg.BuffersFreedError: RuntimeError,
        sg.StateChangedError: RuntimeError, sg.FeedError: ValueError, sg.FetchError: ValueError,
        sg.BoundsError: IndexError, sg.NumericsError: FloatingPointError, sg.FormatError: ValueError,
        sg.UnsupportedError: NotImplementedError,
    }  # fmt: skip
    for error, builtin in kin.items():
        assert issubclass(error, builtin)
        assert issubclass(error, sg.StaticGradError)
    assert issubclass(sg.PromotionWarning, Warning)


@pytest.mark.parametrize(
    ("declare", "parts"),
    [
        (lambda x, n: x + sg.placeholder((4,)), ("(2, 3)", "(4,)")),
        (lambda x, n: x @ x, ("(2, 3)", "matmul")),
        (lambda x, n: x.reshape(4, 2), ("(4, 2)",)),
        (lambda x, n: x.sum(5), ("5",)),
        (lambda x, n: sg.concat([x, sg.placeholder((2, 4, 1))]), ("concat",)),
        (lambda x, n: sg.permute_dims(x, (0, 0)), ("permute",)),
        (lambda x, n: sg.nn.linear(x, sg.placeholder((4, 5))), ("linear",)),
        (lambda x, n: sg.nn.conv2d(x, x), ("conv2d",)),
        (lambda x, n: sg.nn.cross_entropy(x, sg.placeholder((2,))), ("cross_entropy",)),
        (lambda x, n: sg.squeeze(x, 0), ("squeeze",)),
        (lambda x, n: sg.broadcast_to(x, (4, 4)), ("(4, 4)",)),
        (lambda x, n: x.astype("complex128"), ("complex128",)),
    ],
)
def test_bad_declarations_name_sizes_and_the_line(declare: Callable[..., Any], parts: tuple[str, ...]) -> None:
    x, n = sg.placeholder((2, 3), name="x"), sg.placeholder((2,), sg.int64, name="n")
    with pytest.raises(sg.GraphError) as caught:
        declare(x, n)
    message = str(caught.value)
    assert "test_contract_running.py:" in message
    for part in parts:
        assert part in message


def test_zeros_of_both_signs_stay_apart(backend: str, g: sg.Graph) -> None:
    x, y = sg.placeholder((64,)), sg.placeholder((64,))
    plus, minus = sg.where(x > 0, 0.0, y), sg.where(x > 0, -0.0, y)
    ones = np.ones(64, np.float32)
    got = sg.Session(g).run([plus, minus, sg.full((2,), -0.0), sg.full((2,), 0.0)], {x: ones, y: ones})
    assert [bool(np.signbit(a).all()) for a in got] == [False, True, True, False]
