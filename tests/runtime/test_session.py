"""Sessions and executables, on both backends: feeds, results, programs, errors, threads."""

from __future__ import annotations

import array
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.concurrency import in_threads

import staticgrad as sg
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.runtime.parts import descriptors
from staticgrad.runtime.parts.descriptors import layout_is_known
from staticgrad.runtime.running.native import NativeRunner

pytestmark = pytest.mark.usefixtures("backend")

BACKENDS = ("reference", "compiled")


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Record:
    x: Any
    rest: Any


# -- the facade -------------------------------------------------------------------------------------------------------

# Op functions that derivative rules and other ops are written with; users have better ones.
INTERNAL = {
    "accumulate_grad", "apply_dropout", "apply_sigmoid_cross_entropy", "beta_density", "betainc_by_shape",
    "bounds_check", "bucket", "convolution", "convolution_input_grad", "convolution_weight_grad", "dot", "fold",
    "gamma_density", "gamma_draw", "gammainc_by_a", "gather", "gaussian", "getitem", "index", "index_add",
    "latest_value", "multiply_no_nan", "multiply_zeros", "pad_with", "product_of_others", "scatter_add", "shards",
    "sinc_slope", "size_value", "spectral_norm", "standardize", "unbroadcast", "window",
}  # fmt: skip


def test_every_op_function_has_its_place() -> None:
    functions = set(FUNCTIONS.names())
    users = {name for name in functions if any(hasattr(place, name) for place in (sg, sg.nn, sg.linalg))}
    assert functions - users <= INTERNAL
    assert not any(hasattr(sg, name) for name in ("relu", "softmax", "no_such_name"))


# -- results ----------------------------------------------------------------------------------------------------------


def test_the_same_nest_comes_back(g: sg.Graph) -> None:
    x = sg.placeholder((2,))
    y = x + 1
    sess = sg.Session(g)
    a = np.array([1, 2], np.float32)
    out = sess.run({"p": Pair(x, [y, None]), "r": Record(y, (x,)), "again": y}, {x: a})
    assert isinstance(out["p"], Pair)
    assert out["p"].b[1] is None
    np.testing.assert_array_equal(out["p"].a, a)
    assert isinstance(out["r"], Record)
    np.testing.assert_array_equal(out["r"].x, a + 1)
    assert out["r"].x is not out["again"]
    assert isinstance(sess.run(y, {x: a}), np.ndarray)
    assert sess.run([], {x: a}) == []


def test_results_are_fresh_writable_and_stay(g: sg.Graph) -> None:
    x = sg.placeholder((3,))
    exe = sg.Session(g).compile([x, x * 2, sg.constant([1.0, 2.0])], x)
    a = np.ones(3, np.float32)
    first = exe(a)
    kept = [r.copy() for r in first]
    for r in exe(a + 1):
        assert r.flags.writeable
        assert r.flags.owndata
        r[...] = 7
    for r, k in zip(first, kept, strict=True):
        np.testing.assert_array_equal(r, k)
    assert a.tolist() == [1, 1, 1]
    assert exe(a)[2].tolist() == [1, 2]


def test_scalars_are_arrays_without_dimensions(g: sg.Graph) -> None:
    x = sg.placeholder((3,))
    total = sg.Session(g).run(sg.sum(x), {x: [1, 2, 3]})
    assert type(total) is np.ndarray
    assert total.shape == ()
    assert total == 6


def test_a_list_changed_later_changes_nothing(g: sg.Graph) -> None:
    x = sg.placeholder((1,))
    fetches = [x]
    exe = sg.Session(g).compile(fetches, x)
    fetches.append(x)
    assert len(exe(np.ones(1, np.float32))) == 1


# -- feeds ------------------------------------------------------------------------------------------------------------


class OnlyDlpack:
    """A producer that speaks DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def misaligned(values: Array) -> Array:
    memory = np.zeros(values.nbytes + 1, np.uint8)
    view = memory[1:].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


def read_only(values: Array) -> Array:
    values = values.copy()
    values.flags.writeable = False
    return values


ONE_TWO = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
ACCEPTED: dict[str, Callable[[], Any]] = {
    "array": lambda: ONE_TWO,
    "strided": lambda: np.repeat(ONE_TWO, 2, axis=1)[:, ::2],
    "transposed": lambda: np.ascontiguousarray(ONE_TWO.T).T,
    "reversed": lambda: ONE_TWO[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": lambda: read_only(ONE_TWO),
    "misaligned": lambda: misaligned(ONE_TWO),
    "big-endian": lambda: ONE_TWO.astype(">f4"),
    "half": lambda: ONE_TWO.astype(np.float16),
    "small integers": lambda: ONE_TWO.astype(np.int16),
    "list": lambda: ONE_TWO.tolist(),
    "list of integers": lambda: [[1, 2, 3], [4, 5, 6]],
    "list of rows": lambda: list(ONE_TWO.astype(np.float64)),
    "memoryview": lambda: memoryview(ONE_TWO),
    "dlpack": lambda: OnlyDlpack(ONE_TWO),
    "subclass": lambda: np.asmatrix(ONE_TWO),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("kind", ACCEPTED)
def test_anything_like_an_array_can_be_fed(g: sg.Graph, kind: str) -> None:
    x = sg.placeholder((2, 3))
    sess = sg.Session(g)
    exe = sess.compile(x * 2, x)
    value = ACCEPTED[kind]()
    np.testing.assert_array_equal(exe(value), ONE_TWO * 2)
    np.testing.assert_array_equal(sess.run(x * 2, {x: value}), ONE_TWO * 2)


def test_python_numbers_take_the_declared_dtype(g: sg.Graph) -> None:
    f, i, b = sg.placeholder(()), sg.placeholder((), sg.int32), sg.placeholder((), sg.bool)
    out = sg.Session(g).run([f, i, b], {f: 3, i: 7, b: True})
    assert [r.dtype for r in out] == [sg.float32, sg.int32, sg.bool]
    assert [r.item() for r in out] == [3.0, 7, True]
    y = sg.placeholder((2,))
    assert sg.Session(g).run(y, {y: array.array("f", [1.5, 2])}).tolist() == [1.5, 2]


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        (sg.float32, np.zeros((2, 2)), "float64"),
        (sg.float32, np.zeros((2, 3)), "dtype"),
        (sg.float32, np.zeros((2, 3), np.int32), "safely"),
        (sg.float32, np.zeros((3, 2), np.float32), "shape"),
        (sg.float32, [[1, 2], [3]], "feed of 'x'"),
        (sg.float32, "text", "feed of 'x'"),
        (sg.float32, object(), "feed of 'x'"),
        (sg.float32, [[1j, 2, 3]] * 2, "feed of 'x'"),
        (sg.int64, [[1.5, 2, 3]] * 2, "int64"),
        (sg.uint8, [[1, 2, 300]] * 2, "feed of 'x'"),
        (sg.bool, [[1, 0, 1]] * 2, "bool"),
    ],
)
def test_wrong_feeds_are_refused(g: sg.Graph, dtype: Any, value: Any, message: str) -> None:
    x = sg.placeholder((2, 3), dtype, name="x")
    y = sg.identity(x)
    sess = sg.Session(g)
    exe = sess.compile(y, x)
    for call in (lambda: exe(value), lambda: sess.run(y, {x: value})):
        with pytest.raises(sg.FeedError, match=message) as caught:
            call()
        assert "test_session.py" in str(caught.value)


def test_what_is_fed_must_be_a_tensor_of_the_graph(g: sg.Graph) -> None:
    x = sg.placeholder((2,), name="x")
    y = x * 2
    with sg.Graph():
        foreign = sg.placeholder((2,))
    sess = sg.Session(g)
    a = np.zeros(2, np.float32)
    feeds: Any
    for feeds in ({"x": a}, {foreign: a}, [x], {x: y}):
        with pytest.raises(sg.FeedError):
            sess.run(y, feeds)
    for feeds in ([x, x], [foreign], ["x"], {x: (3,)}, {x: (2, 1)}):
        with pytest.raises(sg.FeedError):
            sess.compile(y, feeds)
    fetch: Any
    for fetch in ("y", foreign, [y, 3]):
        with pytest.raises(sg.FetchError):
            sess.run(fetch, {x: a})


def test_a_missing_placeholder_is_named_with_its_line(g: sg.Graph) -> None:
    x = sg.placeholder((2,), name="images")
    y = x * 2
    sess = sg.Session(g)
    with pytest.raises(sg.FeedError, match=r"(?s)'images'.*test_session\.py"):
        sess.run(y)
    with pytest.raises(sg.FeedError, match="'images'"):
        sess.compile(y, [])
    exe = sess.compile(y, x)
    for arrays in ((), (np.zeros(2, np.float32),) * 2):
        with pytest.raises(sg.FeedError, match="expected 1 arrays"):
            exe(*arrays)


def test_feeds_that_nothing_needs(g: sg.Graph) -> None:
    x, t = sg.placeholder((2,)), sg.placeholder((3,), sg.int64, name="t")
    y = x * 2
    sess = sg.Session(g)
    a = np.ones(2, np.float32)
    assert sess.run(y, {t: [1, 2, 3], x: a}).tolist() == [2, 2]
    exe = sess.compile(y, [t, x])
    assert exe(np.zeros(3, np.int64), a).tolist() == [2, 2]
    with pytest.raises(sg.FeedError, match="'t'"):
        sess.run(y, {t: [1, 2], x: a})


def test_the_graph_is_cut_where_it_is_fed(g: sg.Graph) -> None:
    x = sg.placeholder((2,))
    y = sg.exp(x)
    z = y + 1
    sess = sg.Session(g)
    assert sess.run(z, {y: [1, 2]}).tolist() == [2, 3]
    assert sess.run([y, z], {y: [1, 2]})[0].tolist() == [1, 2]


# -- out --------------------------------------------------------------------------------------------------------------


def test_results_are_written_into_out(g: sg.Graph) -> None:
    x = sg.placeholder((2, 3))
    y, s = x * 2, sg.sum(x)
    sess = sg.Session(g)
    a = ONE_TWO
    out = np.empty((2, 3), np.float32)
    assert sess.compile(y, x)(a, out=out) is out
    np.testing.assert_array_equal(out, a * 2)
    several = [out, np.empty((), np.float32)]
    assert sess.compile([y, s], x)(a + 1, out=several) is several
    np.testing.assert_array_equal(out, (a + 1) * 2)
    assert several[1] == np.sum(a + 1)
    nest = {"y": out, "s": None, "n": (None, [np.empty((), np.float32)])}
    assert sess.compile({"y": y, "s": s, "n": (None, [s])}, x)(a, out=nest) is nest
    np.testing.assert_array_equal(nest["y"], a * 2)
    assert nest["n"][1][0] == 21


def test_out_must_be_exactly_right(g: sg.Graph) -> None:
    x = sg.placeholder((2, 3))
    y, z = x * 2, x + 1
    exe = sg.Session(g).compile([y, z], x)
    a = ONE_TWO.copy()
    good, other = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    both = np.empty((3, 3), np.float32)
    wrong: tuple[Any, ...] = (
        np.empty((3, 2), np.float32), np.empty((2, 3)), read_only(good), misaligned(good), good.tolist(),
        np.empty((2, 6), np.float32)[:, ::2], a, a.reshape(-1).reshape(2, 3), good,
    )  # fmt: skip
    for bad in wrong:
        with pytest.raises(sg.FeedError, match="out"):
            exe(a, out=[good, bad])
    with pytest.raises(sg.FeedError, match="overlaps"):
        exe(a, out=[both[:2], both[1:]])
    for nest in (good, [good], (good, other, None), {"y": good}):
        with pytest.raises(sg.FeedError, match="out"):
            exe(a, out=nest)
    exe(a, out=[good, other])
    np.testing.assert_array_equal(a, ONE_TWO)


# -- the fast entry ---------------------------------------------------------------------------------------------------


def test_programs_are_called_in_machine_code(g: sg.Graph, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATICGRAD_MEMORY", raising=False)  # a poisoned arena is filled by Python
    x = sg.placeholder((2,))
    exe = sg.Session(g).compile([x * 2, sg.sum(x)], x)
    fast = backend == "compiled" and layout_is_known()
    assert isinstance(exe.__call__, BuiltinFunctionType) == fast
    before = sys.getrefcount(sg.float32)
    for _ in range(100):
        exe(np.ones(2, np.float32))
    assert sys.getrefcount(sg.float32) < before + 50  # of 200 results, none has left a reference


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3, 4]],
        [[1.0, 2.0], [3.0, 4.0]],
        ((True, 2), (3, 4.0)),
        np.array([[1, 3], [2, 4]], np.float32).T,
        np.array([[1, 0, 2], [3, 0, 4]], np.float32)[:, ::2],
        np.array([[1, 2], [3, 4]], np.int16),
        np.array([[1, 2], [3, 4]], ">f4"),
        pickle.loads(pickle.dumps(np.array([[1, 2], [3, 4]], np.float32))),  # its dtype is another object
        memoryview(np.array([[1, 2], [3, 4]], np.float32)),
    ],
    ids=["ints", "floats", "mixed", "transposed", "strided", "int16", "big-endian", "unpickled", "memoryview"],
)
def test_what_is_converted_is_called_in_machine_code(
    g: sg.Graph, backend: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATICGRAD_MEMORY", raising=False)  # a poisoned arena is filled by Python
    x = sg.placeholder((2, 2))
    sess = sg.Session(g)
    y, z = x + 1, x * 2
    nests = [y, [y, z], {"y": y, "more": (z, [y - 1, None])}]
    steps = [sess.compile(nest, x) for nest in nests]
    if backend == "compiled" and layout_is_known():
        monkeypatch.setattr(NativeRunner, "run", None)
    want = np.array([[2, 3], [4, 5]])
    for step, nest in zip(steps, nests, strict=True):
        got = sg.nest.flatten(step(value))
        outs = sg.nest.map(lambda leaf: np.empty((2, 2), np.float32), nest)
        assert step(value, out=outs) is outs
        for values in (got, sg.nest.flatten(outs)):
            assert len(values) == len(sg.nest.flatten(nest))
            for actual, expected in zip(values, (want, 2 * (want - 1), want - 1), strict=False):
                np.testing.assert_array_equal(actual, expected)


FIELDS = "TYPE", "DATA", "NDIM", "DIMS", "DTYPE", "FLAGS", "TUPLE_ITEM", "LIST_ITEMS", "DICT_USED"


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("moved", [-8, 8])
def test_another_layout_is_found_out(field: str, moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, field, getattr(descriptors, field) + moved)
    assert not layout_is_known()


def test_another_interpreter_has_no_fast_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.implementation, "name", "other")
    assert not layout_is_known()


def test_without_a_fast_entry_everything_is_the_same(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staticgrad.runtime.running.entries.make_entry", lambda spec: None)
    x = sg.placeholder((2,))
    sess = sg.Session(g)
    a = np.ones(2, np.float32)
    assert sess.compile({"y": x * 2}, x)(a)["y"].tolist() == [2, 2]
    exe = sess.compile([x * 2, x], x)
    out = [np.empty(2, np.float32), None]
    assert exe(a, out=out) is out
    assert out[0].tolist() == [2, 2]
    assert exe(a)[1].tolist() == [1, 1]


def test_without_a_fast_entry_a_long_program_runs_on_threads(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called with what tells it to end, not with the pool itself."""
    x = sg.placeholder((300, 300))
    y = sg.scan(lambda c, _: (sg.matmul(c, x), None), x, None, length=20)[0]
    identity = np.eye(300, dtype=np.float32)
    for has_entry in (True, False):
        if not has_entry:
            monkeypatch.setattr("staticgrad.runtime.running.entries.make_entry", lambda spec: None)
        with sg.Session(g, num_threads=2) as sess:
            (program,) = sess.compile(y, x)._programs.by_shapes.values()
            runner = program.runner
            assert not isinstance(runner, NativeRunner) or runner.interface.polls
            np.testing.assert_array_equal(sess.run(y, {x: identity}), identity)


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_each_range_of_sizes_is_a_program(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((None, 3))
    y = x * 2
    sess = sg.Session(g)
    exe = sess.compile(y, x)
    for n in (2, 5, 2, 0, 5, 17):
        a = np.full((n, 3), n, np.float32)
        np.testing.assert_array_equal(exe(a), a * 2)
    expected = 3 if backend == "compiled" else 4  # 0 is a range of its own
    assert sess.compile_count == expected
    assert sess.run(y, {x: np.ones((5, 3), np.float32)}).shape == (5, 3)
    assert sess.compile_count == expected


def test_each_exact_size_is_a_program(g: sg.Graph) -> None:
    x = sg.placeholder((None, 3))
    y = x * 2
    sess = sg.Session(g, sizes="exact")
    exe = sess.compile(y, x)
    assert sess.compile_count == 0
    for n in (2, 5, 2, 0, 5):
        a = np.full((n, 3), n, np.float32)
        np.testing.assert_array_equal(exe(a), a * 2)
    assert sess.compile_count == 3
    assert sess.run(y, {x: np.ones((5, 3), np.float32)}).shape == (5, 3)
    assert sess.compile_count == 3


def test_known_sizes_compile_at_once(g: sg.Graph) -> None:
    x, n = sg.placeholder((None, 3)), sg.placeholder((4,))
    sess = sg.Session(g)
    sess.compile(n * 2, [n])
    assert sess.compile_count == 1
    exe = sess.compile(x * 2, {x: (7, 3)})
    assert sess.compile_count == 2
    exe(np.zeros((7, 3), np.float32))
    assert sess.compile_count == 2


def test_a_size_of_one_name_is_one_size(g: sg.Graph) -> None:
    x, t = sg.placeholder((sg.dim("n"), 2), name="x"), sg.placeholder((sg.dim("n"),), name="t")
    assert x.shape[0] == t.shape[0] == sg.dim("n") != sg.dim("m")
    products = sg.vmap(lambda row, factor: row * factor)(x, t)
    for y in (sg.sum(x, 1) + t, sg.sum(x) + sg.sum(t), products):
        sess = sg.Session(g)
        sess.run(y, {x: np.ones((3, 2), np.float32), t: [1, 2, 3]})
        with pytest.raises(sg.FeedError, match=r"feed of 't', axis 0: expected size n = 4, actual 5"):
            sess.run(y, {x: np.ones((4, 2), np.float32), t: np.ones(5, np.float32)})
    with pytest.raises(sg.GraphError, match="dim: expected a name, actual 3"):
        sg.dim(3)  # type: ignore[arg-type]


def test_sizes_declared_as_none_are_several_whatever_their_names(g: sg.Graph) -> None:
    x, y = sg.placeholder((None,), name="x"), sg.placeholder((None,), name="x")
    assert x.shape[0] != y.shape[0]
    again = [node.outputs[0].shape[0] for node in sg.parse(str(g)).nodes]
    assert again[0] != again[1]
    values = sg.Session(g).run([sg.sum(x), sg.sum(y)], {x: np.ones(2, np.float32), y: np.ones(3, np.float32)})
    assert values == [2, 3]


def test_a_parsed_size_is_that_of_its_name(g: sg.Graph) -> None:
    sg.placeholder((sg.dim("n"),), name="x")
    (node,) = sg.parse(str(g)).nodes
    assert node.outputs[0].shape == (sg.dim("n"),)


def test_shared_sizes_agree(g: sg.Graph) -> None:
    batch = sg.dim("batch")
    x, t = sg.placeholder((batch, 2)), sg.placeholder((batch,))
    y = sg.sum(x, 1) + t
    sess = sg.Session(g)
    assert sess.run(y, {x: np.ones((3, 2), np.float32), t: [1, 2, 3]}).tolist() == [3, 4, 5]
    with pytest.raises(sg.FeedError, match="batch"):
        sess.run(y, {x: np.ones((3, 2), np.float32), t: [1, 2]})


def test_programs_are_kept_and_bounded(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staticgrad.runtime.session.session.KEPT_PROGRAMS", 2)
    x = sg.placeholder((None,))
    y = sg.identity(x)
    sess = sg.Session(g, sizes="exact")
    for n in (1, 2, 3):
        sess.run({"y": y}, {x: np.zeros(n, np.float32)})
    assert sess.compile_count == 3
    sess.run({"y": y}, {x: np.zeros(3, np.float32)})
    assert sess.compile_count == 3
    sg.exp(x)  # a new version of the graph
    sess.run({"y": y}, {x: np.zeros(3, np.float32)})
    assert sess.compile_count == 4


# -- life -------------------------------------------------------------------------------------------------------------


def test_a_closed_session_refuses(g: sg.Graph) -> None:
    x = sg.placeholder((1,))
    a = np.zeros(1, np.float32)
    with sg.Session(g) as sess:
        exe = sess.compile(x * 2, x)
        exe(a)
    for call in (lambda: exe(a), lambda: sess.run(x, {x: a}), lambda: sess.compile(x, x), sess.__enter__):
        with pytest.raises(sg.StaticGradError, match="closed"):
            call()


def test_an_executable_keeps_its_session(g: sg.Graph) -> None:
    x = sg.placeholder((1,))
    exe = sg.Session(g).compile(x * 2, x)
    gc.collect()
    assert exe(np.ones(1, np.float32)) == 2


def test_nothing_is_left_behind(g: sg.Graph) -> None:
    x = sg.placeholder((1,))
    sess = sg.Session(g)
    exe = sess.compile([x * 2], x)
    exe(np.ones(1, np.float32))
    gone = weakref.ref(exe), weakref.ref(sess)
    del exe, sess
    gc.collect()
    assert [r() for r in gone] == [None, None]


def test_options_are_checked(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ({"num_threads": 0}, {"matmul_precision": "lowest"}, {"seed": 2**70}):
        with pytest.raises(sg.StaticGradError):
            sg.Session(g, **bad)
    monkeypatch.setenv("STATICGRAD_THREDS", "3")
    with pytest.raises(ValueError, match="STATICGRAD_THREDS"):
        sg.Session(g)


def test_reports(g: sg.Graph, backend: str, tmp_path: Any) -> None:
    x = sg.placeholder((8, 16))
    w = sg.placeholder((16, 4))
    exe = sg.Session(g).compile(sg.sum(sg.tanh(x @ w) @ w.T, 0), [x, w])
    assert "tanh" in exe.text("graph")
    with pytest.raises(sg.StaticGradError, match="expected one of"):
        exe.text("everything")
    if backend == "reference":
        with pytest.raises(sg.StaticGradError, match="reference"):
            _ = exe.memory
        return
    assert exe.memory.arena_bytes >= exe.memory.lower_bound_bytes > 0
    assert max(b.offset + b.nbytes for b in exe.memory.buffers) <= exe.memory.arena_bytes
    assert "test_session.py" in str(exe.memory)
    assert exe.cost.flops >= 2 * 8 * 16 * 4 * 2
    assert exe.cost.flops == sum(k.flops for k in exe.cost.kernels)
    assert "flops" in str(exe.cost)
    assert "@main" in exe.text("llvm")
    assert "main" in exe.text("asm")
    assert exe.text("kernels")
    exe.memory.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 200_000])
def test_one_executable_in_many_threads(g: sg.Graph, size: int) -> None:
    x = sg.placeholder((size,))
    exe = sg.Session(g).compile([sg.sum(sg.tanh(x)), x * 2], x)
    expected = [exe(np.full(size, i, np.float32)) for i in range(4)]

    def work(number: int) -> None:
        for _ in range(10):
            for got, want in zip(exe(np.full(size, number, np.float32)), expected[number], strict=True):
                np.testing.assert_array_equal(got, want)

    in_threads(4, work)


def test_one_session_in_many_threads(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((None,))
    y = x * 2
    sess = sg.Session(g)

    def work(number: int) -> None:
        for n in range(4):
            a = np.full(n + 1, number, np.float32)
            np.testing.assert_array_equal(sess.run({"y": y}, {x: a})["y"], a * 2)

    in_threads(4, work)
    assert sess.compile_count == (1 if backend == "compiled" else 4)


@pytest.mark.parametrize(
    "options", [{"num_threads": 0}, {"num_threads": 1.5}, {"num_threads": "2"}, {"seed": "x"}, {"seed": 0.5}]
)
def test_options_that_are_no_numbers_of_theirs_are_refused(g: sg.Graph, options: dict[str, Any]) -> None:
    with pytest.raises(sg.StaticGradError, match="int of"):
        sg.Session(g, **options)


# -- NumPy scalars ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (sg.float32, np.mean([0.1, 0.3]), np.float32(0.2)),
        (sg.float32, np.float64(0.1), np.float32(0.1)),
        (sg.float64, np.float32(0.1), np.float64(np.float32(0.1))),
        (sg.float32, np.float64("inf"), np.inf),
        (sg.float32, np.int64(3), 3.0),
        (sg.float16, np.float64(0.5), 0.5),
        (sg.int32, np.int64(7), 7),
        (sg.uint8, np.int64(200), 200),
        (sg.int32, np.bool_(True), 1),
        (sg.bool, np.bool_(True), True),
    ],
)
def test_numpy_scalars_are_fed_as_python_numbers(dtype: Any, value: Any, expected: Any) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((), dtype)
        y = sg.identity(x)
    sess = sg.Session(g)
    exe = sess.compile(y, [x])
    for result in (sess.run(y, {x: value}), exe(value), exe(value)):
        assert result.dtype == dtype
        assert result == expected


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (sg.int32, np.float64(1.0), "expected int32"),
        (sg.int32, np.int64(2**40), "out of bounds"),
        (sg.uint8, np.int32(-1), "out of bounds"),
        (sg.bool, np.int64(1), "expected bool"),
        (sg.float32, np.complex64(1), "expected float32"),
        (sg.float32, np.float64(1e300), "out of range for float32"),
        (sg.float32, 1e300, "out of range for float32"),
        (sg.float32, np.str_("1"), "expected float32"),
        (sg.float32, np.array(0.1), "does not cast to it safely"),
    ],
)
def test_numpy_scalars_of_another_kind_or_out_of_range_are_refused(dtype: Any, value: Any, text: str) -> None:
    with sg.Graph() as g:
        x = sg.placeholder((), dtype)
        y = sg.identity(x)
    sess = sg.Session(g)
    exe = sess.compile(y, [x])
    for call in (lambda: sess.run(y, {x: value}), lambda: exe(value)):
        with pytest.raises(sg.FeedError, match=text):
            call()


def test_variables_tapes_and_gradients_take_numpy_scalars() -> None:
    with sg.Graph() as g:
        w = sg.Variable(0.0)
        x = sg.placeholder(())
        y = w * x
    sess = sg.Session(g)
    sess.set(w, np.float64(0.5))
    with sess.forward(y, {x: np.float64(3.0)}) as tape:
        assert tape[y] == 1.5
        tape.backward(y, np.float64(2.0))
    assert sess.grad(w) == 6.0
