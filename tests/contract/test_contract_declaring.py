"""The public contract of declaring: what a tensor is, dtypes, lifting, names, graphs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg

pytestmark = pytest.mark.usefixtures("g")


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


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::staticgrad.PromotionWarning")
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
        ("bool", "int64", "float64"), ("uint8", "uint64", "float64"), ("int32", "int64", "float64"),
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


def test_no_dtype_is_float32_for_the_makers_of_floats() -> None:
    made = [f((2,), dtype=None) for f in (sg.zeros, sg.ones, sg.empty)]
    made += [sg.eye(2, dtype=None), sg.linspace(0, 1, 3, dtype=None), sg.linspace(0, 1, sg.dim("n"), dtype=None)]
    made += [sg.placeholder((2,), None), sg.eye(sg.dim("n"), dtype=None), sg.asarray([], dtype=None)]
    assert {x.dtype.name for x in made} == {"float32"}
    assert [sg.full(2, n, dtype=None).dtype.name for n in (1.0, 1, True)] == ["float32", "int64", "bool"]
    assert value(sg.zeros(2, dtype=None)).tolist() == [0.0, 0.0]
    for wrong in (lambda: sg.astype(made[0], None), lambda: sg.result_type(None)):  # type: ignore[arg-type]
        with pytest.raises(sg.GraphError, match="None is not a dtype"):
            wrong()


def test_parts_are_a_tuple_and_copies_may_be_asked_for() -> None:
    parts = sg.unstack(sg.constant([[1, 2], [3, 4]]), axis=1)
    assert isinstance(parts, tuple)
    assert [x.tolist() for x in sg.Session().run(parts)] == [[1, 3], [2, 4]]
    x = sg.constant([1.0, 2.0])
    assert sg.astype(x, sg.float32, copy=False) is x
    assert sg.reshape(x, (2, 1), copy=True).shape == (2, 1)
    assert sg.asarray(x, copy=False) is x


def test_raising_to_float64_by_a_numpy_scalar_warns_once_with_the_line() -> None:
    x = sg.placeholder((2,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as where nothing was said
        results = [x * np.float64(2.0) for _ in range(3)] + [x + np.array(1.0)]
        x * 2.0
        x + np.zeros(2, np.float32)
        x * np.float32(2)
        x.astype(sg.float64) * np.float64(2)
    assert all(y.dtype == sg.float64 for y in results)
    lines = [w for w in caught if issubclass(w.category, sg.PromotionWarning)]
    assert len(lines) == 2  # once for each line of the program
    assert all(
        "test_contract_declaring.py" in w.filename or "test_contract_declaring.py" in str(w.message) for w in lines
    )


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
    with pytest.raises(sg.GraphError, match=r"(?s)'w'.*test_contract_declaring\.py"):
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
