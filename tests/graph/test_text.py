"""Graphs as text: what is printed reads back to the same text and the same values; everything else is refused."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_graphs import random_graph

import staticgrad as sg
from staticgrad.base.types import DTYPES, Dim, TensorType
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import OPS, NoAttributes
from staticgrad.graph.text import print_nodes
from staticgrad.nn import initializers as init
from staticgrad.nn.layers import affine
from staticgrad.ops import MODULES
from staticgrad.ops.sources import CONSTANT, ConstantAttributes
from staticgrad.saving import literals

Array = np.ndarray[Any, np.dtype[Any]]


def read_back(graph: Graph) -> Graph:
    """The graph that a graph's text describes, which has the same text."""
    text = str(graph)
    again = sg.parse(text)
    assert str(again) == text
    assert list(again.variables) == list(graph.variables)
    assert again.random_ops == graph.random_ops
    for old, new in zip(graph.nodes, again.nodes, strict=True):
        assert old.op is new.op or (old.op.own and new.op.own)  # a user's ops are in no table: the text has them
        assert (old.name, old.op.name, old.blocked) == (new.name, new.op.name, new.blocked)
        for x, y in zip(old.outputs, new.outputs, strict=True):
            assert (x.requires_grad, x.is_leaf, x.retains_grad) == (y.requires_grad, y.is_leaf, y.retains_grad)
    return again


def named(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def same_in(graph: Graph, nest: Any) -> Any:
    """A nest of tensors and ops of another graph, by their names."""

    def find(item: Tensor | Node) -> Tensor | Node:
        if isinstance(item, Node):
            return named(graph, item.name)
        return named(graph, item.op.name).outputs[item.index]

    return sg.nest.map(find, nest)


def values(graph: Graph, fetches: Any, feeds: dict[Tensor, Array]) -> list[Array]:
    """What two runs give, and the variables after them."""
    with sg.Session(graph, seed=3) as session, np.errstate(all="ignore"):
        runs = [session.run(fetches, feeds), session.run(fetches, feeds)]
        state = [session.get(x) for x in graph.variables.values()]
    return [np.asarray(v) for v in [*sg.nest.flatten(runs), *state] if v is not None]


def same_values(graph: Graph, fetches: Any, feeds: dict[Tensor, Array]) -> None:
    again = read_back(graph)
    fed = {same_in(again, x): value for x, value in feeds.items()}
    for a, b in zip(values(graph, fetches, feeds), values(again, same_in(again, fetches), fed), strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


# -- round trips ------------------------------------------------------------------------------------------------------


def small_net() -> tuple[Graph, dict[Tensor, Array], list[Any]]:
    """A bit of everything: free sizes, layers, dropout, a loss with checks, Adam, print."""
    rng = np.random.default_rng(0)
    with Graph() as g:
        x = sg.placeholder((None, 1, 4, 4), name="images")
        t = sg.placeholder((x.shape[0],), sg.int64, name="labels")
        net = sg.nn.Sequential(
            sg.nn.Conv2d(1, 2, 3, padding=1), sg.nn.ReLU(), sg.nn.MaxPool2d(2), sg.nn.Flatten(), sg.nn.Dropout(0.25),
            sg.nn.Linear(8, 3),
        )  # fmt: skip
        loss = sg.nn.cross_entropy(net(x), t)
        table = sg.nn.Embedding(3, 2, padding_idx=1)(t)
        train = sg.optim.Adam(1e-2).minimize(loss)
    feeds = {x: rng.normal(size=(5, 1, 4, 4)).astype(np.float32), t: np.array([0, 1, 2, 0, 1])}
    return g, feeds, [loss, table, train]


def test_a_small_net_reads_back(interpreter: None) -> None:
    g, feeds, fetches = small_net()
    same_values(g, fetches, feeds)


def test_it_compiles_too() -> None:
    g, feeds, fetches = small_net()
    same_values(g, fetches, feeds)


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_random_graphs_read_back(start: int, interpreter: None) -> None:
    for seed in range(start, start + 20):
        case = random_graph(seed)
        with case.graph:
            gradients = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        same_values(case.graph, [case.results, gradients, case.train], case.feeds)


@pytest.mark.parametrize("name", sorted(name for name, op in OPS.items() if op.cases))
def test_every_op_reads_back(name: str) -> None:
    """In all the ways in which its own tests call it."""
    op = OPS[name]
    g = Graph()
    with g:
        for case in op.cases:
            for tested in op.dtypes or (sg.float32,):
                dtypes = case.dtypes or (None,) * len(case.shapes)
                inputs = [
                    sg.placeholder(shape, tested if dtype is None else dtype)
                    for shape, dtype in zip(case.shapes, dtypes, strict=True)
                ]
                g.add(op, inputs, case.attrs)
    assert str(sg.parse(str(g))) == str(g)


def test_regions_read_back_where_nothing_is_left_out() -> None:
    g, feeds, fetches = small_net()
    types = {x: TensorType(value.shape, value.dtype) for x, value in feeds.items()}
    region = cut(g, fetches, types)
    text = print_nodes(region.graph.nodes)
    assert print_nodes(sg.parse(text).nodes) == text


def test_a_text_of_a_graph(golden: Callable[[str, str], None]) -> None:
    with Graph() as g:
        n = sg.dim("batch")
        x = sg.placeholder((n, 3), name="x", requires_grad=True)
        w = sg.Variable(sg.init.xavier_uniform(), shape=(3, 2), name="w")
        b = sg.Variable(np.array([0.1, -2.5], np.float32), name="b")
        steps = sg.Variable(0, name="steps", trainable=False)
        y = sg.tanh(x @ w + b)
        y.retain_grad()
        both = sg.concat([y, sg.reshape(y, (n, 2))], axis=0)
        with sg.no_grad():
            halves = sg.mean(both, 1) * 0.5
        with sg.control_dependencies([sg.assign(steps, steps + 1)]):
            sg.print(halves, "halves\n")
        sg.zeros((4, 5)) + np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)
    golden("graph.txt", str(read_back(g)) + "\n")


# -- bodies, checkpoints -------------------------------------------------------------------------------------------


def loops() -> tuple[Graph, dict[Tensor, Array], list[Any]]:
    """A scan in a scan with random numbers, a cond, a bounded while, and second derivatives of them."""
    with Graph() as g:
        x = sg.placeholder((None, 3), name="x")
        w = sg.Variable(sg.init.uniform(-0.5, 0.5), shape=(3, 3), name="w")

        def turn(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            total, _ = sg.scan(lambda a, b: (a + b * w[0, 0], a), sg.sum(row), row)
            carry = sg.tanh(carry @ w + row * total + sg.random.uniform((3,)))
            return carry, sg.sum(carry)

        last, ys = sg.scan(turn, sg.zeros((3,)), x)
        branch = sg.cond(sg.sum(ys) > 0, lambda: sg.exp(last), lambda: sg.print(last * w[1], "otherwise"))
        _, grown = sg.while_loop(
            lambda s: s[1] < 10.0, lambda s: (s[0] + 1, s[1] * 2.0 + branch[0] ** 2), (0, 1.0), max_steps=6
        )
        loss = sg.sum(branch) + grown + sg.sum(ys)
        (first,) = sg.gradients(loss, [w])
        (second,) = sg.gradients(sg.sum(first), [w])
    feeds = {x: np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
    return g, feeds, [loss, first, second]


def test_bodies_read_back(interpreter: None) -> None:
    same_values(*reordered(loops()))


def reordered(case: tuple[Graph, dict[Tensor, Array], list[Any]]) -> tuple[Graph, list[Any], dict[Tensor, Array]]:
    graph, feeds, fetches = case
    return graph, fetches, feeds


def test_what_was_read_is_derived_as_what_was_declared(interpreter: None) -> None:
    g, feeds, (loss, first, _) = loops()
    again = read_back(g)
    with again:
        (derived,) = sg.gradients(same_in(again, loss), [again.variables["w"]])
    fed = {same_in(again, x): value for x, value in feeds.items()}
    with sg.Session(g, seed=1) as one, sg.Session(again, seed=1) as other:
        assert one.run(first, feeds).tobytes() == other.run(derived, fed).tobytes()


def test_bodies_of_regions_read_back() -> None:
    g, feeds, fetches = loops()
    types = {x: TensorType(value.shape, value.dtype) for x, value in feeds.items()}
    text = print_nodes(cut(g, fetches, types).graph.nodes)
    assert "body 2" in text
    assert print_nodes(sg.parse(text).nodes) == text


def test_checkpoints_read_back() -> None:
    with Graph() as g:
        x = sg.placeholder((3,), name="x", requires_grad=True)

        def twice(a: Tensor) -> Tensor:
            return sg.tanh(sg.exp(a) * 2.0)

        y = sg.checkpoint(lambda a: sg.checkpoint(twice, a) * sg.sin(a), sg.checkpoint(twice, x))
        (first,) = sg.gradients(sg.sum(y), [x])
        sg.gradients(sg.sum(first), [x])
    again = read_back(g)
    for old, new in zip(g.nodes, again.nodes, strict=True):
        assert (old.checkpoint is None) == (new.checkpoint is None)
        assert (old.original and old.original.name) == (new.original and new.original.name)
        assert (old.epoch == 0) == (new.epoch == 0)
    pairs = [(old.epoch, new.epoch) for old, new in zip(g.nodes, again.nodes, strict=True)]
    assert len(set(pairs)) == len({old for old, _ in pairs}) == len({new for _, new in pairs}) > 2


# -- names, sizes, arrays, flags ------------------------------------------------------------------------------------


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5, unique=True))
def test_any_name_reads_back(names: list[str]) -> None:
    with Graph() as g:
        for name in names:
            sg.Variable(1.0, name=name)
            sg.placeholder((sg.dim(name), sg.dim(name)), name=name)
    read_back(g)


SIZES = st.recursive(
    st.sampled_from(["a", "a", "b c", "inf", "x.0"]).map(lambda name: ("dim", name)) | st.integers(-3, 7),
    lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner),
    max_leaves=8,
)


def size_of(tree: Any, symbols: dict[str, Dim]) -> Any:
    if isinstance(tree, int):
        return tree
    if tree[0] == "dim":
        return symbols[tree[1]]
    a, b = size_of(tree[1], symbols), size_of(tree[2], symbols)
    if tree[0] == "/":
        return a // b if isinstance(a, Dim) and b else a
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}[tree[0]]()


@given(SIZES)
def test_any_size_reads_back(tree: Any) -> None:
    names = ("a", "b c", "inf", "x.0")
    with Graph() as g:
        symbols = {name: sg.dim(name) for name in names}
        sg.placeholder(tuple(symbols.values()), name="symbols")
        size = size_of(tree, symbols)
        if isinstance(size, int) and size < 0:
            return
        sg.placeholder((size,), name="x")
    again = read_back(g)
    read = dict(zip(names, named(again, "symbols").outputs[0].shape, strict=True))
    assert named(again, "x").outputs[0].shape == (size_of(tree, read),)  # not only its text


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 255), max_size=200))
def test_any_array_reads_back_to_the_bit(dtype: np.dtype, data: list[int]) -> None:
    whole = len(data) // dtype.itemsize
    bits = bytes(byte % 2 if dtype.kind == "b" else byte for byte in data[: whole * dtype.itemsize])
    g = Graph()
    g.add(CONSTANT, (), ConstantAttributes(dtype, (whole,), bits))
    assert read_back(g).nodes[0].attrs == g.nodes[0].attrs


def test_arrays_are_short_where_they_can_be() -> None:
    with Graph() as g:
        sg.Variable(np.zeros((100, 100)), name="zeros")
        sg.constant(np.float32(0.2))
        sg.constant(np.array([np.nan, -np.inf, -0.0]))
        sg.constant(np.full(20, -0.0, np.float32))
    zeros, fifth, special, minus = str(read_back(g)).splitlines()
    assert "initial=full(0.0)" in zeros
    assert "data=[0.2]" in fifth
    assert "data=[nan, -inf, -0.0]" in special
    assert "data=full(-0.0)" in minus
    with Graph() as g:
        sg.constant(np.arange(1000))
    assert "data=base64('AAAA" in str(g)
    assert "data=<8000 bytes>" in print_nodes(g.nodes)


@pytest.mark.parametrize("declare", [sg.constant, sg.Variable])
def test_large_arrays_are_elided_unless_asked_for(declare: Callable[[Array], Tensor]) -> None:
    rng = np.random.default_rng(0)
    with Graph() as g:
        declare(rng.normal(size=(64, 64)))
    assert "base64" in str(read_back(g))
    with g:
        declare(rng.normal(size=(64, 65)).astype(np.float32))
    short, full = str(g), g.text(full=True)
    assert re.search(r"=<… float32\[64, 65\] sha256 [0-9a-f]{12}>", short)
    assert len(short) < 50_000 < len(full)
    with pytest.raises(sg.FormatError, match=r"line 2: <… float32\[64, 65\] .* graph\.text\(full=True\)"):
        sg.parse(short)
    again = sg.parse(full)
    assert (again.text(full=True), str(again)) == (full, short)


def test_digests_tell_elided_arrays_apart() -> None:
    def text(array: Array) -> str:
        with Graph() as g:
            sg.constant(array)
        return str(g)

    a = np.arange(10_000)
    b = a.copy()
    b[5000] += 1
    assert text(a) == text(a.copy()) != text(b)


def test_many_equal_elements_are_never_elided() -> None:
    with Graph() as g:
        sg.Variable(np.ones((1000, 1000)))
    assert "initial=full(1.0)" in str(read_back(g))


def test_flags_of_gradients_read_back() -> None:
    with Graph() as g:
        x = sg.placeholder((3,), name="x", requires_grad=True)
        w = sg.Variable([1.0, 2.0], name="w")
        late = sg.placeholder((3,), name="late")
        before = late * 2.0
        late.requires_grad_()
        leaf = x.detach().requires_grad_()
        leaf.retain_grad()
        (x * leaf).retain_grad()
        fixed = w * 2.0
        w.requires_grad_(False)
    again = read_back(g)
    read = {x.name: y for x, y in zip(all_tensors(g), all_tensors(again), strict=True)}
    assert read[late.name].requires_grad
    assert not read[before.name].requires_grad
    assert read[leaf.name].is_leaf
    assert read[leaf.name].requires_grad
    assert read[fixed.name].requires_grad
    assert not read[w.name].requires_grad


def all_tensors(graph: Graph) -> list[Tensor]:
    return [y for node in graph.nodes for y in node.outputs]


def test_what_is_declared_later_goes_on_from_what_was_read() -> None:
    with Graph() as g:
        sg.random.uniform((2,))
        sg.placeholder((), name="x")
    with sg.parse(str(g)) as again:
        assert sg.placeholder((), name="x").name == "x_1"
        sg.random.uniform((2,))
    places = [node.attrs.place for node in again.nodes if node.op.name == "random_uniform"]
    assert places == [0, 1]


def test_lines_between_are_passed_over() -> None:
    g = sg.parse("\n# a comment\r\n  %x = placeholder() Source : float32[2]  \n\n")
    assert [node.name for node in g.nodes] == ["x"]
    assert sg.parse("").nodes == []


# -- refusals -------------------------------------------------------------------------------------------------------

X = "%x = placeholder() Source : float32[2, 3]\n"

DAMAGED = {
    "no line at all": "expected a node",
    "%x placeholder()": "expected '='",
    "%x = placeholder( Source : float32[2]": "expected a node at 'Source",
    "%x = fly() : float32[2]": "there is no op 'fly'",
    "%x = placeholder() Sauce : float32[2]": "there is no class 'Sauce'",
    "%x = placeholder() : float32[2]": "",
    "%x = placeholder() Reshape : float32[2]": "",
    "%x = placeholder() Source : float128[2]": "there is no dtype 'float128'",
    "%x = placeholder() Source : float32[2": "expected ',' at the end of the line",
    "%x = placeholder() Source : float32[2] float32": "there is no word 'float32'",
    "%x = placeholder() Source : float32[2] hooked": "hooks",
    "%x = placeholder() Source : int64[2] requires_grad": "only floating-point tensors",
    "%x = placeholder() Source(colour=1) : float32[2]": "Source has no field 'colour'",
    "%x = placeholder() Source(shape=(2,), shape=(2,)) : float32[2]": "shape is given twice",
    "%x = placeholder() Source(shape=(3,)) : float32[2]": "expected the type float32[3]",
    "%x = placeholder() Source(shape='2') : float32[2]": "shape='2' is not",
    "%x = placeholder() Source : float32[-2.5]": "expected a size",
    "%x = placeholder() Source : float32[1 // 0]": "",
    "%x = placeholder() Source : float32[n + 'm']": "expected a size",
    "%x = placeholder() Source : float32[2] ; rm": "expected a word, number or mark",
    "%x = placeholder() Source : float32[" + "(" * 99: "nested too deeply",
    "%x = placeholder() Source : float32[" + "-" * 9999: "",
    "%x = placeholder() Source : float32[" + "9" * 9999: "",
    "%x = variable() Variable(key='x') : float32[2]": "Variable lacks initial",
    "%x = variable() Variable(key='x', initial=<function f>) : float32[2]": "<function f> stands for something",
    "%x = variable() Variable(key='x', initial=3) : float32[2]": "expected an array or an initializer",
    "%x = variable() Variable(key='x', initial=Source(shape=(), dtype=bool)) : float32[2]": "expected an array",
    "%x = variable() Variable(key='x', initial=[1.0]) : float32[2]": "",
    "%x = constant() Constant(data=[1.5, 2.5]) : int64[2]": "1.5 is no int64",
    "%x = constant() Constant(data=[999]) : uint8[1]": "",
    "%x = constant() Constant(data=[1e300, -inf]) : float32[2]": "a number is too large for float32",
    "%x = constant() Constant(data=[1e300, -inf]) : bfloat16[2]": "a number is too large for bfloat16",
    "%x = constant() Constant(data=base64('????')) : uint8[3]": "bad base64",
    "%x = constant() Constant(data=base64('AAAA')) : uint8[2]": "",
    "%x = constant() Constant(data=<8 bytes>) : float32[2]": "left out of the text",
    "%x = constant() Constant(data=os.system('ls')) : float32[2]": "expected a name",
    X + "%x = tanh(%x) : float32[2, 3]": "%x is defined twice",
    X + "%y = tanh(%z) : float32[2, 3]": "%z is used before it is defined",
    X + "%y = tanh(%x:1) : float32[2, 3]": "%x has 1 outputs",
    X + "%y = tanh(%x) : float32[3, 2]": "expected the type float32[2, 3], actual float32[3, 2]",
    X + "%y = tanh(%x) : ()": "expected the type float32[2, 3], actual ()",
    X + "%y = add(%x) : float32[2, 3]": "add does not take 1 operands",
    X + "%y = softmax(%x) Axis(axis=True) : float32[2, 3]": "axis=True is not int",
    X + "%y = softmax(%x) Reshape(shape=(2, 3)) : float32[2, 3]": "softmax has no attributes Reshape",
    X + "%y = reshape(%x) Reshape : float32[7]": "",
    X + "%y = tanh(%x) after %z : float32[2, 3]": "%z is used before",
    X + "%y = tanh(%x) again(1, %z) : float32[2, 3]": "%z is used before",
    X + "%y = tanh(%x) checkpoint(1, 2) : float32[2, 3]\n%z = tanh(%x) checkpoint(2) : float32[2, 3]":
        "checkpoint 2 is inside of another one",
    "body 1 {": "body 1 does not end",
    "} () -> ()": "no body ends here",
    "body 1 of 2 {": "there is no body 2",
    "body 1 {\n} () -> ()\nbody 1 {": "there are two bodies 1",
    "body 1 {\n" + X + "%y = tanh(%x) : float32[2, 3]\n} (%y) -> (%y)": "%y is no placeholder",
    "body 1 {\n%v = variable() Variable(key='v', initial=[1.0]) : float32[]": "variable has no place in a body",
    X + "body 1 {\n%y = tanh(%x) : float32[2, 3]": "%x is used before",
    X + "body 1 {\n" + X + "} (%x) -> (%x)\n%y = cond(%x, %x) Cond(then=body(1), otherwise=body(2)) : float32[2, 3]":
        "there is no body 2",
    X + "body 1 {\n" + X.replace(", 3]", ", 4]") + "} (%x) -> (%x)\n"
    "%p = full() Full(value=True) : bool[]\n"
    "%y = cond(%p, %x) Cond(then=body(1), otherwise=body(1)) : float32[2, 4]":
        "expected a body of type float32[2, 3], actual float32[2, 4]",
    X + "body 1 {\n" + X + "} (%x) -> (%x)\n%y = cond(%x, %x) Cond(then=body(1), otherwise=body(1)) : float32[2, 3]":
        "expected a predicate of type bool[]",
    X + "%v = variable() Variable(key='k', initial=full(1.0)) : float32[2]\n"
    "%w = variable() Variable(key='k', initial=full(1.0)) : float32[2]": "there are two variables 'k'",
}  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_texts_are_refused_with_their_line(text: str) -> None:
    with pytest.raises(sg.FormatError) as caught:
        sg.parse("# first\n" + text)
    assert str(caught.value).startswith(f"line {text.count(chr(10)) + 2}: ")
    assert DAMAGED[text] in str(caught.value)


def test_python_functions_are_no_text() -> None:
    with Graph() as g:
        x = sg.placeholder((2,), name="x")
        sg.py_call(lambda value: value, [x], [(sg.float32, (2,))])
    assert "PyCall(function=<function <lambda>>, types=(float32[2],))" in str(g)
    with pytest.raises(sg.FormatError, match="line 2: <function <lambda> stands for something"):
        sg.parse(str(g))


def test_first_values_of_one_s_own_are_no_text() -> None:
    class Mine:
        def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
            return np.zeros(shape, dtype)

    with Graph() as g:
        sg.Variable(Mine(), shape=(2,), name="w")
    assert "initial=<Mine>" in str(g)
    with pytest.raises(sg.FormatError, match="line 1: <Mine>"):
        sg.parse(str(g))


def test_hooks_are_no_text() -> None:
    with Graph() as g:
        sg.placeholder((2,), name="x", requires_grad=True).register_hook(lambda grad: grad)
    with pytest.raises(sg.FormatError, match="line 1: the tensor has hooks"):
        sg.parse(str(g))


def test_random_damage_is_refused_or_read() -> None:
    """Whatever becomes of a text, reading it gives a graph or a FormatError."""
    g, _, _ = small_net()
    text = str(g)
    rng = random.Random(0)
    refused = 0
    for _ in range(300):
        start = rng.randrange(len(text))
        change = rng.choice(["", "(", ")", "0", "%", "'", ",", "\n", "é"])
        damaged = text[:start] + change + text[start + rng.randrange(3) :]
        try:
            sg.parse(damaged)
        except sg.FormatError:
            refused += 1
    assert refused > 200


# -- the closed set of classes ----------------------------------------------------------------------------------------


def test_every_class_has_a_name_of_its_own_and_known_types() -> None:
    attributes = {type(case.attrs) for op in OPS.values() for case in op.cases} - {NoAttributes}
    assert attributes <= set(literals.classes().values())
    defined = [
        value.__name__
        for module in (*map(importlib.import_module, MODULES), init, affine)
        for value in vars(module).values()
        if isinstance(value, type) and hasattr(value, "__dataclass_fields__") and value.__module__ == module.__name__
    ]
    assert len(defined) == len(literals.classes())
    for cls in literals.classes().values():
        literals.hints_of(cls)


@dataclass(frozen=True)
class Sample:
    value: Any
    hint: Any
    fits: bool


@pytest.mark.parametrize(
    "sample",
    [
        Sample(1, int, True), Sample(True, int, False), Sample(1.0, int, False), Sample(1, float, True),
        Sample(True, float, False), Sample(None, int | None, True), Sample("a", int | None, False),
        Sample((1, 2), tuple[int, ...], True), Sample((1, "a"), tuple[int, ...], False),
        Sample((1, 2, 3), tuple[int, int], False), Sample([1], tuple[int, ...], False),
        Sample(sg.float32, np.dtype, True),
    ],
)  # fmt: skip
def test_fields_take_only_their_types(sample: Sample) -> None:
    assert literals.fits(sample.value, sample.hint) == sample.fits
