"""The public contract beside tapes and effects: declaring, dtypes, names, indexing, derivatives, running, errors."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import staticgrad as sg

Array = np.ndarray[Any, Any]
INF = np.inf


@pytest.fixture(params=("compiled", "reference"))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv("STATICGRAD_BACKEND", name)
    return name


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def value(x: Any, feeds: Any = None) -> Any:
    return sg.Session(x.graph).run(x, feeds)


# -- what a tensor is -------------------------------------------------------------------------------------------------


def test_a_tensor_says_what_it_is(g: sg.Graph) -> None:
    x = sg.placeholder((2, 3), name="x")
    y = x.T + 1
    assert (x.shape, x.dtype, x.ndim, x.size, x.name, x.graph) == ((2, 3), sg.float32, 2, 6, "x", g)
    assert y.shape == (3, 2)
    assert x.mT.shape == (3, 2)
    assert x.op.outputs == (x,)
    assert "x" in repr(x)
    assert sg.float32 == np.float32
    assert sg.bool == np.dtype(bool)
    for spelling in (sg.float64, np.float64, "float64", float, np.dtype("f8")):
        assert sg.placeholder((1,), spelling).dtype == np.float64
    with pytest.raises(sg.GraphError):
        sg.placeholder((1,), "complex64")
    with pytest.raises(sg.GraphError):
        sg.placeholder((-1,))


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (bool, "bool"), (float, "float"), (int, "int"), (iter, "iter"), (list, "iter"), (np.asarray, "asarray"),
        (np.array, "asarray"), (lambda x: 1 if x > 0 else 2, "bool"), (lambda x: x in [x + 1], "bool"),
        (lambda x: [0, 1][x], "index"), (lambda x: range(x), "index"), (lambda x: 1 in x, "in"),
        (lambda x: [*x], "iter"), (lambda x: np.sin(x), ""), (lambda x: np.zeros(3) + np.asarray(x), "asarray"),
    ],
)  # fmt: skip
def test_a_tensor_has_no_value_outside_a_session(use: Callable[[Any], Any], what: str) -> None:
    x = sg.placeholder((), sg.int64, name="x")
    with pytest.raises(TypeError) as caught:
        use(x)
    if what:
        assert what in str(caught.value)
        assert "session" in str(caught.value)


def test_the_length_of_a_tensor() -> None:
    assert len(sg.placeholder((4, 2))) == 4
    for shape in ((), (None, 2)):
        with pytest.raises(TypeError, match="session"):
            len(sg.placeholder(shape))


def test_equality_is_elementwise_and_hash_is_identity() -> None:
    x, y = sg.placeholder((3,)), sg.placeholder((3,))
    equal, different = x == y, x != 2
    assert isinstance(equal, sg.Tensor)
    assert equal.dtype == different.dtype == sg.bool
    assert {x: 1, y: 2}[x] == 1
    assert hash(x) != hash(y)
    assert value(equal, {x: f32(1, 2, 3), y: f32(1, 0, 3)}).tolist() == [True, False, True]
    assert value(different, {x: f32(1, 2, 3)}).tolist() == [True, False, True]


def test_assigning_to_an_element_names_scatter() -> None:
    x = sg.placeholder((3,))
    with pytest.raises(TypeError, match="scatter"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="scatter"):
        x[0] += 1.0


def test_operators_with_arrays_on_either_side() -> None:
    x = sg.placeholder((2,))
    a = f32(3, 5)
    cases = {
        "+": (a + x, x + a), "*": (a * x, x * a), "-": (a - x, x - a), "/": (a / x, x / a), "**": (a**x, x**a),
        "//": (a // x, x // a), "%": (a % x, x % a), "<": (a < x, x > a), "@": (a @ x, x @ a),
        "==": (a == x, x == a), "scalar": (np.float32(2) * x, x * np.float32(2)),
    }  # fmt: skip
    v = f32(2, 4)
    wanted = {
        "+": (a + v, v + a), "*": (a * v, v * a), "-": (a - v, v - a), "/": (a / v, v / a), "**": (a**v, v**a),
        "//": (a // v, v // a), "%": (a % v, v % a), "<": (a < v, v > a), "@": (a @ v, v @ a),
        "==": (a == v, v == a), "scalar": (v * 2, v * 2),
    }  # fmt: skip
    results = sg.Session(x.graph).run(cases, {x: v})
    for key, pair in wanted.items():
        for got, expected in zip(results[key], pair, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
            assert got.dtype == expected.dtype


def test_lists_are_operands_but_other_things_are_not() -> None:
    x = sg.placeholder((2,))
    assert value(sg.add(x, [1, 2]), {x: f32(0, 0)}).tolist() == [1, 2]
    for other in ("text", None, {}, 1j):
        with pytest.raises(TypeError):
            x + other
    with pytest.raises(sg.GraphError):
        sg.add(x, "text")


# -- dtypes -----------------------------------------------------------------------------------------------------------

DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_promotion_is_numpys() -> None:
    wrong = []
    for left in DTYPES:
        x = sg.placeholder((1,), left)
        ones = np.ones(1, left)
        others: list[tuple[Any, Any]] = [(v, v) for v in (True, 2, 2.0, np.int32(2), np.float32(2), np.uint8(2))]
        others += [(sg.placeholder((1,), right), np.ones(1, right)) for right in DTYPES]
        for declared, operand in others:
            for name, op in (("add", lambda a, b: a + b), ("multiply", lambda a, b: a * b)):
                for one, two, n1, n2 in ((x, declared, ones, operand), (declared, x, operand, ones)):
                    got, expected = op(one, two).dtype, op(n1, n2).dtype
                    if got != expected:
                        wrong.append(f"{name}({n1!r}, {n2!r}): {got}, expected {expected}")
    assert wrong == []


def test_python_scalars_are_weak_and_checked() -> None:
    b, i, x = sg.placeholder((1,), sg.uint8), sg.placeholder((1,), sg.int32), sg.placeholder((1,))
    assert (b + 1).dtype == sg.uint8
    assert (i * 2).dtype == sg.int32
    assert (x + 1e30).dtype == sg.float32
    assert (i + 0.5).dtype == sg.float64
    assert (x * True).dtype == sg.float32
    assert (x > 1).dtype == sg.bool
    assert sg.where(x > 0, x, 0).dtype == sg.float32
    assert sg.maximum(x, 0).dtype == sg.float32
    assert sg.clip(i, 0, 5).dtype == sg.int32
    for wrong in (lambda: b + 300, lambda: b + (-1), lambda: i + 2**40):
        with pytest.raises(sg.GraphError):
            wrong()


def test_default_dtypes() -> None:
    for x, dtype in (
        (sg.constant(1.5), "float32"), (sg.constant(3), "int64"), (sg.constant(True), "bool"),
        (sg.constant([1.0, 2.0]), "float32"), (sg.constant(np.zeros(2)), "float64"), (sg.constant([1, 2]), "int64"),
        (sg.zeros((2,)), "float32"), (sg.ones((2,)), "float32"), (sg.eye(2), "float32"),
        (sg.full((2,), 1.0), "float32"), (sg.full((2,), 1), "int64"), (sg.linspace(0, 1, 3), "float32"),
        (sg.arange(3), "int64"), (sg.arange(3.0), "float32"), (sg.random.uniform((2,)), "float32"),
        (sg.random.normal((2,)), "float32"), (sg.Variable(0.0), "float32"), (sg.Variable(1), "int64"),
        (sg.Variable(np.zeros(2)), "float64"), (sg.zeros((2,), dtype=sg.int32), "int32"),
        (sg.Variable(sg.init.zeros(), shape=(2,)), "float32"), (sg.Variable([1.0, 2.0]), "float32"),
    ):  # fmt: skip
        assert x.dtype == dtype, x


def test_dtypes_of_sums_means_and_quotients() -> None:
    for dtype, of_sum, of_mean in (
        ("bool", "int64", "float64"), ("uint8", "int64", "float64"), ("int32", "int64", "float64"),
        ("int64", "int64", "float64"), ("float32", "float32", "float32"), ("float64", "float64", "float64"),
    ):  # fmt: skip
        x = sg.placeholder((3,), dtype)
        assert x.sum().dtype == of_sum
        assert x.mean().dtype == of_mean
        if dtype != "bool":
            assert (x / x).dtype == of_mean
    n = sg.placeholder((3,), sg.int64)
    assert value(n.mean(), {n: [1, 2, 4]}) == pytest.approx(7 / 3)
    assert value(n / 2, {n: [1, 2, 4]}).tolist() == [0.5, 1, 2]
    assert sg.sum(n > 1).dtype == sg.int64


def test_raising_to_float64_by_a_numpy_scalar_warns_once_with_the_line() -> None:
    x = sg.placeholder((2,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as where nothing was said
        results = [x * np.float64(2.0) for _ in range(3)] + [x + np.array(1.0)]
        x * 2.0
        x + np.zeros(2)
        x * np.float32(2)
        x.astype(sg.float64) * np.float64(2)
    assert all(y.dtype == sg.float64 for y in results)
    lines = [w for w in caught if issubclass(w.category, sg.PromotionWarning)]
    assert len(lines) == 2  # once for each line of the program
    assert all("test_contract.py" in w.filename or "test_contract.py" in str(w.message) for w in lines)


# -- lifting, names, graphs -------------------------------------------------------------------------------------------


def test_arrays_are_copied_when_declared() -> None:
    a, b, c, d = (f32(1, 2) for _ in range(4))
    x = sg.placeholder((2,))
    tensors = [sg.constant(a), x + b, sg.where(x > 0, c, 0.0), sg.Variable(d)]
    for array in (a, b, c, d):
        array[...] = 100
    sess = sg.Session(x.graph)
    assert [v.tolist() for v in sess.run(tensors, {x: f32(1, 1)})] == [[1, 2], [2, 3], [1, 2], [1, 2]]


def test_one_array_lifted_twice_is_one_constant(g: sg.Graph) -> None:
    x, a = sg.placeholder((2,)), f32(1, 2)
    y = x + a
    count = len(g.nodes)
    z = x * a
    assert len(g.nodes) == count + 1
    assert value(y * z, {x: f32(1, 1)}).tolist() == [2, 6]


def test_names() -> None:
    x, again = sg.placeholder((1,), name="x"), sg.placeholder((1,), name="x")
    assert (x.name, again.name, sg.placeholder((1,), name="x").name) == ("x", "x_1", "x_2")
    first, second = x + again, x + again
    assert second.name == f"{first.name}_1"
    for name in ("layer.0/weight", "größe", "with space", "x.y.z"):
        assert sg.placeholder((1,), name=name).name == name
        assert sg.Variable(1.0, name=f"v {name}").name == f"v {name}"
    sg.Variable(1.0, name="w")
    with pytest.raises(sg.GraphError, match=r"(?s)'w'.*test_contract\.py"):
        sg.Variable(2.0, name="w")
    assert len({sg.Variable(0.0).name for _ in range(3)}) == 3
    sg.reset_default_graph()
    with sg.Graph():
        sg.Variable(1.0, name="w")  # another graph


def test_feeds_go_by_tensor_not_by_name() -> None:
    x = sg.placeholder((1,), name="x")
    with pytest.raises(sg.FeedError):
        sg.Session(x.graph).run(x, {"x": f32(1)})
    with pytest.raises(sg.FetchError):
        sg.Session(x.graph).run("x", {x: f32(1)})


def test_a_finalized_graph_takes_no_ops(g: sg.Graph) -> None:
    x = sg.placeholder((2,), requires_grad=True)
    y = sg.sum(x * x)
    g.finalize()
    for declare in (lambda: x + 1, lambda: sg.gradients(y, x), lambda: sg.placeholder((1,)), lambda: sg.Variable(1.0)):
        with pytest.raises(sg.GraphError, match="final"):
            declare()
    sess = sg.Session(g)
    assert sess.run(y, {x: f32(1, 2)}) == 5
    tape = sess.forward(y, {x: f32(1, 2)})
    tape.backward(y)
    assert sess.grad(x).tolist() == [2, 4]


def test_tensors_of_two_graphs_do_not_mix(g: sg.Graph) -> None:
    x = sg.placeholder((2,), name="mine")
    with sg.Graph() as other:
        y = sg.placeholder((2,), name="theirs")
        z = x + 1  # an op belongs to the graph of its operands
    assert y.graph is other
    assert z.graph is g
    for mix in (lambda: x + y, lambda: sg.concat([x, y]), lambda: sg.gradients(sg.sum(x), y)):
        with pytest.raises(sg.GraphError, match="another graph"):
            mix()


def test_the_current_graph_is_per_thread(g: sg.Graph) -> None:
    seen: list[sg.Graph] = []

    def work() -> None:
        seen.append(sg.get_default_graph())
        sg.reset_default_graph()
        seen.append(sg.placeholder((1,)).graph)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert sg.get_default_graph() is g
    assert g not in seen
    assert seen[0] is not seen[1]


def test_a_graph_as_networkx_sees_it(g: sg.Graph) -> None:
    import networkx as nx

    x = sg.placeholder((2,), name="x")
    sg.exp(x * x)
    view = g.to_networkx()
    assert nx.is_directed_acyclic_graph(view)
    assert view.number_of_nodes() == 3
    assert view.number_of_edges() == 3


# -- sizes ------------------------------------------------------------------------------------------------------------


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
    assert sess.compile_count == 3


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


# -- indexing ---------------------------------------------------------------------------------------------------------

KEYS: tuple[Any, ...] = (
    0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(3, 0, -2), slice(-2, 100), ..., None,
    (0, 1, 2), (..., 0), (slice(None), None, 1), (None, ..., None), (slice(0, 0),), (1, ..., slice(None, None, 2)),
    [0, 2, -1], (slice(None), [2, 0]), ([0, 1], [1, 2]), ([[0], [1]], [1, 2]), (slice(None), [0, 1], [1, 1]),
    ([0, 1], slice(None), [1, 0]), (0, slice(None), [1, 0]), ([0, 1], ..., 1), (np.array([1, 1, 0]), None),
    (slice(1, 3), -1, [0, 3, -4]), np.int64(2), np.array(1), np.zeros((0,), np.int64),
)  # fmt: skip


def as_key(key: Any) -> Any:
    if isinstance(key, list):
        return np.array(key)
    return tuple(map(as_key, key)) if isinstance(key, tuple) else key


def test_indexing_is_numpys(backend: str) -> None:
    x = sg.placeholder((4, 3, 4), requires_grad=True)
    a = np.random.default_rng(0).normal(size=(4, 3, 4)).astype(np.float32)
    results = [x[as_key(key)] for key in KEYS]
    gradients = sg.gradients([sg.sum(r * r) for r in results], x)
    *values, gradient = sg.Session(x.graph).run([*results, *gradients], {x: a})
    expected = np.zeros_like(a)
    for key, got, result in zip(KEYS, values, results, strict=True):
        wanted = a[as_key(key)]
        assert got.shape == result.shape == wanted.shape, key
        np.testing.assert_array_equal(got, wanted)
        np.add.at(expected, as_key(key), 2 * wanted)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_indexing_by_tensors(backend: str) -> None:
    x = sg.placeholder((4, 3))
    i, j = sg.placeholder((2,), sg.int64), sg.placeholder((), sg.int32)
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    results = [x[i], x[j], x[:, j], x[i, i], x[1:, i], x[i[:, None], sg.arange(3)], x[j, ::-1], x[..., j, None]]
    vi, vj = np.array([2, -3]), np.int32(-2)
    wanted = [a[vi], a[vj], a[:, vj], a[vi, vi], a[1:, vi], a[vi[:, None], np.arange(3)], a[vj, ::-1], a[..., vj, None]]
    for got, expected in zip(sg.Session(x.graph).run(results, {x: a, i: vi, j: vj}), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


BAD: dict[str, Callable[[sg.Tensor], Any]] = {
    "too many": lambda x: x[0, 0, 0],
    "mask": lambda x: x[np.array([True, False, True])],
    "mask tensor": lambda x: x[x > 0],
    "mask of a row": lambda x: x[0, np.array([True, False, True])],
    "floats": lambda x: x[np.array([0.5])],
    "text": lambda x: x["name"],
    "two ellipses": lambda x: x[..., ...],
    "float": lambda x: x[1.0],
}


@pytest.mark.parametrize("kind", BAD)
def test_keys_that_are_refused(kind: str) -> None:
    x = sg.placeholder((3, 3))
    with pytest.raises((sg.GraphError, IndexError, TypeError)) as caught:
        BAD[kind](x)
    if "mask" in kind:
        assert isinstance(caught.value, sg.GraphError)
        assert "sg.where" in str(caught.value)


@pytest.mark.parametrize(
    "declare",
    [
        lambda x: x[3], lambda x: x[-4], lambda x: x[:, 5], lambda x: x[np.array([0, 3])], lambda x: x[0, [0, -4]],
        lambda x: sg.take(x, np.array([9]), axis=0), lambda x: x[np.int64(7)],
        lambda x: sg.nn.cross_entropy(x, np.array([0, 1, 3])),
    ],
)  # fmt: skip
def test_constant_indices_are_checked_when_declared(declare: Callable[[sg.Tensor], Any]) -> None:
    x = sg.placeholder((3, 3))
    with pytest.raises(sg.BoundsError, match=r"test_contract\.py") as caught:
        declare(x)
    assert isinstance(caught.value, IndexError)


RUNTIME: dict[str, Callable[[sg.Tensor, sg.Tensor], sg.Tensor]] = {
    "index": lambda x, i: x[i],
    "column": lambda x, i: x[:, i],
    "take": lambda x, i: sg.take(x, i, axis=1),
    "along": lambda x, i: sg.take_along_axis(x, i[:, None], axis=1),
    "label": lambda x, i: sg.nn.cross_entropy(x, i),
    "embedding": lambda x, i: sg.nn.embedding(i, x),
    "scatter": lambda x, i: sg.scatter(x, i, x),
    "gradient": lambda x, i: sg.gradients(sg.sum(x[i] * x[i]), x)[0],
}


@pytest.mark.parametrize("kind", RUNTIME)
def test_fed_indices_are_checked_before_memory_is_touched(backend: str, kind: str) -> None:
    x, i = sg.placeholder((3, 3), name="x"), sg.placeholder((3,), sg.int64)
    y = RUNTIME[kind](x, i)
    sess = sg.Session(x.graph)
    a = np.ones((3, 3), np.float32)
    sess.run(y, {x: a, i: [0, 2, 1]})
    for bad in (3, 2**62, -(2**62), -4):
        with pytest.raises(sg.BoundsError, match=rf"(?s){bad} is out of range.*test_contract\.py"):
            sess.run(y, {x: a, i: [0, bad, 1]})
    sess.run(y, {x: a, i: [0, 2, 1]})


def test_ignored_labels_and_other_bad_ones(backend: str) -> None:
    x, t = sg.placeholder((3, 4), requires_grad=True), sg.placeholder((3,), sg.int32)
    loss = sg.nn.cross_entropy(x, t)
    (dx,) = sg.gradients(loss, x)
    sess = sg.Session(x.graph)
    a = np.zeros((3, 4), np.float32)
    value, gradient = sess.run([loss, dx], {x: a, t: np.array([1, -100, 3], np.int32)})
    np.testing.assert_allclose(value, np.log(4), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.array([[1, -3, 1, 1], [0] * 4, [1, 1, 1, -3]]) / 8, rtol=1e-6)
    for bad in (-1, 4, -99):
        with pytest.raises(sg.BoundsError):
            sess.run(loss, {x: a, t: np.array([1, bad, 3], np.int32)})


# -- derivatives ------------------------------------------------------------------------------------------------------


def test_gradients_in_all_their_forms(backend: str) -> None:
    x, y = sg.placeholder((2,)), sg.placeholder((2,), sg.float64)
    frozen = sg.Variable(f32(3, 4), trainable=False)
    a, b = sg.sum(x * frozen), x * x
    sess = sg.Session(x.graph)
    feeds = {x: f32(5, 7), y: [1, 1]}

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        found = sg.gradients(*args, **kwargs)
        assert isinstance(found, list)
        return [None if v is None else v.tolist() for v in sess.run(found, feeds)]

    assert run(a, x) == [[3, 4]]
    assert run([a], [x, frozen]) == [[3, 4], [5, 7]]
    assert run(b, [x]) == [[10, 14]]
    assert run([a, b], [x]) == [[13, 18]]
    assert run(b, x, grad_ys=f32(1, 10)) == [[10, 140]]
    assert run([a, b], x, grad_ys=[2.0, None]) == [[16, 22]]
    assert run(a, [x, y]) == [[3, 4], None]
    assert run(a, [y, x], unconnected_gradients="zero") == [[0, 0], [3, 4]]
    (zero,) = sg.gradients(a, y, unconnected_gradients="zero")
    assert zero is not None
    assert (zero.dtype, zero.shape) == (sg.float64, (2,))
    assert run(a, a) == [1]
    assert run(x, x) == [[1, 1]]
    with pytest.raises(sg.GradientError):
        sg.gradients(a, y, unconnected_gradients="error")
    with pytest.raises(sg.StaticGradError):
        sg.gradients(a, sg.placeholder((2,), sg.int64))
    with pytest.raises(sg.GraphError):
        sg.gradients(b, x, grad_ys=f32(1, 2, 3))
    with pytest.raises(sg.GraphError):
        sg.gradients(a, x, unconnected_gradients="zeros")


def test_forward_mode_jacobian_and_hessian(backend: str) -> None:
    x, z = sg.placeholder((3,), sg.float64), sg.placeholder((2,), sg.float64)
    y = sg.stack([x[0] * x[1], sg.exp(x[2])])
    s = sg.sum(x**3) + x[0] * x[2]
    at = np.array([2.0, 3.0, 0.5])
    out = sg.Session(x.graph).run(
        {
            "jvp": sg.jvp([y, s, z], x, np.array([1.0, 0.0, 2.0])),
            "none": sg.jvp(y, [x, z], [None, np.ones(2)]),
            "jacobian": sg.jacobian(y, x),
            "wide": sg.jacobian(sg.concat([y, y, y]), x),
            "list": sg.jacobian(y, [x, z]),
            "hessian": sg.hessian(s, x),
        },
        {x: at, z: np.zeros(2)},
    )
    jacobian = np.array([[3, 2, 0], [0, 0, np.exp(0.5)]])
    np.testing.assert_allclose(out["jvp"][0], jacobian @ [1, 0, 2], rtol=1e-12)
    np.testing.assert_allclose(out["jvp"][1], 12 + 0.5 + 2 * (0.75 + 2), rtol=1e-12)
    np.testing.assert_array_equal(out["jvp"][2], np.zeros(2))
    np.testing.assert_array_equal(out["none"][0], np.zeros(2))
    np.testing.assert_allclose(out["jacobian"], jacobian, rtol=1e-12)
    np.testing.assert_allclose(out["wide"], np.concatenate([jacobian] * 3), rtol=1e-12)
    np.testing.assert_allclose(out["list"][0], jacobian, rtol=1e-12)
    np.testing.assert_array_equal(out["list"][1], np.zeros((2, 2)))
    np.testing.assert_allclose(
        out["hessian"], np.diag(6 * at) + np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]]), rtol=1e-12
    )


GUARDED: dict[str, tuple[Callable[[sg.Tensor], Any], Callable[[sg.Tensor], Any], list[float], list[float]]] = {
    "log": (lambda x: x > 0, sg.log, [-1, 0, -0.0, 2], [0, 0, 0, 0.5]),
    "sqrt": (lambda x: x > 0, sg.sqrt, [-1, 0, -INF, 4], [0, 0, 0, 0.25]),
    "rsqrt": (lambda x: x > 0, sg.rsqrt, [-1, 0, 4], [0, 0, -0.0625]),
    "1 / x": (lambda x: x != 0, lambda x: 1 / x, [0, 2, -0.0], [0, -0.25, 0]),
    "x / x": (lambda x: x != 0, lambda x: x / x, [0, 2], [0, 0]),
    "pow 0.5": (lambda x: x > 0, lambda x: x**0.5, [-1, 0, 4], [0, 0, 0.25]),
    "pow -1.5": (lambda x: x > 0, lambda x: x**-1.5, [-1, 0, 1], [0, 0, -1.5]),
    "x pow x": (lambda x: x > 0, lambda x: x**x, [-1, 0, 1], [0, 0, 1]),
    "exp": (lambda x: x < 50, sg.exp, [1000, 0, INF], [0, 1, 0]),
    "acos": (lambda x: sg.abs(x) < 1, sg.acos, [1, -1, 2, 0], [0, 0, 0, -1]),
    "atanh": (lambda x: sg.abs(x) < 1, sg.atanh, [1, -1, 3, 0], [0, 0, 0, 1]),
    "norm": (lambda x: x != 0, lambda x: sg.sqrt(x * x), [0, 3, -2], [0, 1, -1]),
    "log of log": (lambda x: x > 1, lambda x: sg.log(sg.log(x)), [0, 1, np.e], [0, 0, 1 / np.e]),
    "log1p": (lambda x: x > -1, sg.log1p, [-1, -3, 1], [0, 0, 0.5]),
    "softplus of 1 / x": (lambda x: x > 0, lambda x: sg.nn.softplus(1 / x), [0, 1], [0, -1 / (1 + np.exp(-1))]),
}


@pytest.mark.parametrize("name", GUARDED)
def test_gradients_behind_a_where_are_finite(backend: str, name: str) -> None:
    condition, function, at, wanted = GUARDED[name]
    x = sg.placeholder((len(at),), sg.float64)
    y = sg.where(condition(x), function(x), 0.0)
    (dx,) = sg.gradients(sg.sum(y), x)
    assert dx is not None
    (ddx,) = sg.gradients(sg.sum(dx), x, unconnected_gradients="zero")
    (tangent,) = sg.jvp(y, x, np.ones(len(at)))
    values, gradient, second, forward = sg.Session(x.graph).run([y, dx, ddx, tangent], {x: np.array(at, np.float64)})
    assert np.isfinite(values).all()
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12, atol=0)
    np.testing.assert_allclose(forward, wanted, rtol=1e-12, atol=0)
    zeros = np.array(wanted) == 0
    assert np.isfinite(second).all()
    assert (gradient[zeros] == 0).all()


def test_the_norm_of_zeros_behind_a_where(backend: str) -> None:
    x = sg.placeholder((2, 3), sg.float64)
    square = sg.sum(x * x, 1)
    norm = sg.where(square > 0, sg.sqrt(square), 0.0)
    (dx,) = sg.gradients(sg.sum(norm), x)
    got = sg.Session(x.graph).run(dx, {x: [[0, 0, 0], [3, 0, 4]]})
    np.testing.assert_allclose(got, [[0, 0, 0], [0.6, 0, 0.8]], rtol=1e-12)


KINKS: dict[str, tuple[Callable[[sg.Tensor], Any], list[float], list[float]]] = {
    "max": (lambda x: x.max(), [3, 1, 3, 2], [0.5, 0, 0.5, 0]),
    "max of three": (lambda x: x.max(), [2, 2, 2, 1], [1 / 3, 1 / 3, 1 / 3, 0]),
    "max of an axis": (lambda x: x.reshape(2, 2).max(1), [1, 1, 5, 6], [0.5, 0.5, 0, 1]),
    "min": (lambda x: x.min(), [3, 1, 1, 2], [0, 0.5, 0.5, 0]),
    "maximum": (lambda x: sg.maximum(x, f32(1, 2, 3, 0)), [1, 1, 4, 0], [0.5, 0, 1, 0.5]),
    "maximum with itself": (lambda x: sg.maximum(x, x), [1, 1, 4, 0], [1, 1, 1, 1]),
    "minimum": (lambda x: sg.minimum(x, 1), [1, 0, 4, 1], [0.5, 1, 0, 0.5]),
    "relu": (lambda x: sg.nn.relu(x), [0, -0.0, 2, -1], [0, 0, 1, 0]),
    "abs": (lambda x: sg.abs(x), [0, -0.0, 2, -3], [0, 0, 1, -1]),
    "sign": (lambda x: sg.sign(x), [0, 1, -1, 2], [0, 0, 0, 0]),
    "clip": (lambda x: sg.clip(x, 0, 1), [0, 1, -1, 0.5], [1, 1, 0, 1]),
    "clip from below": (lambda x: sg.clip(x, min=0), [0, 1, -1, 0.5], [1, 1, 0, 1]),
    "clip from above": (lambda x: x.clip(max=1), [0, 1, 2, 0.5], [1, 1, 0, 1]),
    "floor": (lambda x: sg.floor(x), [0, 1.5, 2, -0.5], [0, 0, 0, 0]),
    "square at 0": (lambda x: x**2, [0, 0, 1, -1], [0, 0, 2, -2]),
    "power 1 at 0": (lambda x: x**1, [0, 1, 2, 3], [1, 1, 1, 1]),
    "power 0 at 0": (lambda x: x**0, [0, 1, 2, 3], [0, 0, 0, 0]),
    "product with a zero": (lambda x: x.prod(), [2, 0, 3, 1], [0, 6, 0, 0]),
    "product with two zeros": (lambda x: x.prod(), [2, 0, 0, 1], [0, 0, 0, 0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_ties_and_kinks(backend: str, name: str) -> None:
    function, at, wanted = KINKS[name]
    x = sg.placeholder((4,), requires_grad=True)
    y = sg.sum(function(x))
    (dx,) = sg.gradients(y, x)
    sess = sg.Session(x.graph)
    np.testing.assert_allclose(sess.run(dx, {x: f32(*at)}), wanted, rtol=1e-6, atol=0)
    sess.forward(y, {x: f32(*at)}).backward(y)
    np.testing.assert_allclose(sess.grad(x), wanted, rtol=1e-6, atol=0)


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
    exe(2 * a, out=some)
    assert out["s"] == 8
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
    with pytest.raises(sg.FeedError, match=r"(?s)'x'.*test_contract\.py"):
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
    with pytest.raises(sg.FetchError):
        sess.run(y)
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
    assert "test_contract.py:" in message
    for part in parts:
        assert part in message


def test_zeros_of_both_signs_stay_apart(backend: str, g: sg.Graph) -> None:
    x, y = sg.placeholder((64,)), sg.placeholder((64,))
    plus, minus = sg.where(x > 0, 0.0, y), sg.where(x > 0, -0.0, y)
    ones = np.ones(64, np.float32)
    got = sg.Session(g).run([plus, minus, sg.full((2,), -0.0), sg.full((2,), 0.0)], {x: ones, y: ones})
    assert [bool(np.signbit(a).all()) for a in got] == [False, True, True, False]
