"""Names that users of other libraries type: each is answered by a sentence of what to write here, which exists."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base import hints
from staticgrad.graph import numpy_calls

PLACES = [(place, name) for place in hints.TABLE for name in hints.names_of(place)]


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with sg.Graph():
        yield


def place_of(place: str) -> Any:
    """An object that lacks the names of a place of the table."""
    x = sg.placeholder((3,), name="x")
    instances: dict[str, Callable[[], Any]] = {
        "Tensor": lambda: x,
        "Node": lambda: x.op,
        "Optimizer": sg.optim.Adam,
        "Session": sg.Session,
    }
    return instances[place]() if place in instances else importlib.import_module(place)


# -- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "name"), PLACES)
def test_every_entry_answers_in_its_place(place: str, name: str) -> None:
    there = place_of(place)
    sentence = hints.names_of(place)[name]
    with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}: {sentence}")):
        getattr(there, name)
    assert not hasattr(there, name)
    assert name not in dir(there)


def remedies() -> Iterator[str]:
    """What sentences tell users to write."""
    for names in hints.TABLE.values():
        yield from names.values()
    yield from (*hints.REFUSED.values(), *hints.CONVERSIONS.values(), *hints.TWICE.values(), hints.VALUE)
    yield from (f"sg.{name}" for name in numpy_calls.RENAMED.values())


def test_what_sentences_name_exists() -> None:
    x = sg.Variable(np.ones(3, np.float32))
    sess = sg.Session()
    objects = {"sg": sg, "sess": sess, "x": x, "opt": sg.optim.Adam(), "tape": sess.forward(sg.sum(x)), "exe": None}
    seen = 0
    for sentence in remedies():
        for root, path in re.findall(r"\b(sg|sess|x|opt|tape)\.([A-Za-z]\w*(?:\.\w+)*)", sentence):
            there: Any = objects[root]
            for part in path.split("."):
                assert hasattr(there, part), f"{root}.{path} in {sentence!r}"
                there = getattr(there, part)
            seen += 1
    assert seen > 150


def test_sentences_name_arguments_that_exist() -> None:
    """``name=value`` in the call of a function of ours."""
    for sentence in remedies():
        for path, arguments in re.findall(r"\bsg\.([\w.]+)\(([^()]*)\)", sentence):
            function: Any = sg
            for part in path.split("."):
                function = getattr(function, part)
            for name in re.findall(r"\b(\w+)=", arguments):
                assert name in inspect.signature(function).parameters, sentence


def test_sentences_are_short() -> None:
    for sentence in remedies():
        assert len(sentence) < 200, sentence
        assert "\n" not in sentence


def test_numpy_s_names_are_answered() -> None:
    with pytest.raises(AttributeError, match=r"'arcsin': write sg\.asin"):
        _ = sg.arcsin  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'concatenate': write sg\.concat"):
        _ = sg.concatenate  # type: ignore[attr-defined]


# -- arguments --------------------------------------------------------------------------------------------------------

X = np.ones((2, 3), np.float32)
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "dim of a function": (lambda x: sg.sum(x, dim=0), r"sum\(\) got an unexpected keyword argument 'dim': write axis="),
    "dim of a method": (lambda x: x.mean(dim=0), r"'dim': write axis="),
    "keepdim": (lambda x: sg.max(x, 0, keepdim=True), "'keepdim': write keepdims="),
    "axis in nn": (lambda x: sg.nn.softmax(x, axis=-1), "'axis': write dim="),
    "input": (lambda x: sg.exp(input=x), "'input': write x="),
    "size": (lambda x: sg.random.uniform(size=(2,)), "'size': write shape="),
    "scale": (lambda x: sg.random.normal((2,), scale=2.0), "'scale': write std="),
    "device": (lambda x: sg.zeros((2,), device="cpu"), "'device': there is no device"),
    "device of a layer": (lambda x: sg.nn.Linear(2, 3, device="cpu"), "'device': there is no device"),
    "out": (lambda x: sg.exp(x, out=X), r"'out': a result is a new tensor"),
    "learning_rate": (lambda x: sg.optim.Adam(learning_rate=1e-3), "'learning_rate': write lr="),
    "parameters first": (lambda x: sg.optim.Adam([x], lr=1e-3), r"variables are not given here: opt = sg\.optim\.Adam"),
    "feed_dict": (lambda x: sg.Session().run(x, feed_dict={x: X}), r"write sess\.run\(fetches, feeds\)"),
    "lengths of a recurrent layer": (
        lambda x: sg.nn.GRU(3, 4)(x, lengths=[1]),
        r"'lengths': sequences are padded.* states\[lengths - 1, sg\.arange\(n\)\]",
    ),
    "in_dims": (lambda x: sg.vmap(sg.exp, in_dims=0), "'in_dims': write in_axes="),
    "out_dims": (lambda x: sg.vmap(sg.exp, out_dims=0), "'out_dims': write out_axes="),
    "randomness": (lambda x: sg.vmap(sg.exp, randomness="same"), "'randomness': random ops draw for each example"),
    "a dtype by place": (
        lambda x: sg.linspace(0, 1, 5, sg.float64),
        r"what follows \* is given by name, linspace\(start, stop, num, \*, dtype=.*, endpoint=True\)",
    ),
    "feeds by name": (lambda x: sg.Session().run(x, x=X), r"has no 'x': write sess\.run\(fetches, feeds\) with a dict"),
    "neither here nor there": (lambda x: sg.exp(x, no_such_name=1), "'no_such_name'$"),
}


@pytest.mark.parametrize("case", CALLS)
def test_arguments_of_other_libraries_are_answered(case: str) -> None:
    call, message = CALLS[case]
    with pytest.raises(TypeError, match=message):
        call(sg.placeholder((2, 3), name="x"))


def test_an_optimizer_of_parameters_alone_says_where_they_go() -> None:
    net = sg.nn.Linear(2, 3)
    with pytest.raises(sg.GraphError, match=r"variables are found by minimize\(loss\)"):
        sg.optim.SGD(net.parameters())  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match=r"no closure: train = opt\.minimize\(loss\)"):
        sg.optim.SGD(0.1).step(lambda: None)  # type: ignore[arg-type]


# -- values -----------------------------------------------------------------------------------------------------------


def unpacked(x: Any) -> Any:
    a, b = x
    return a + b


CONVERTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unpacking": (unpacked, r"a, b = sg\.unstack\(x\)"),
    "iteration": (lambda x: [*x], r"a, b = sg\.unstack\(x\)"),
    "formatting": (lambda x: f"{x:.3f}", "format what it returns"),
    "len": (lambda x: len(x[0, 0]), r"x\.shape\[0\]"),
    "in": (lambda x: 1.0 in x, r"sg\.any\(x == value\)"),
    "if": (lambda x: 1 if x else 2, r"sg\.where, sg\.cond"),
    "float": (float, r"sess\.run\(x, feeds\)"),
    "np.asarray": (np.asarray, r"sess\.run\(x, feeds\)"),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_what_needs_a_value_says_how_to_get_it(case: str) -> None:
    call, message = CONVERTED[case]
    with pytest.raises(TypeError, match=message):
        call(sg.placeholder((2, 3), name="x"))


def test_a_tensor_without_a_format_is_shown() -> None:
    assert f"{sg.placeholder((2,), name='x')}" == "<tensor 'x' float32[2]>"


# -- what is not hindered ---------------------------------------------------------------------------------------------

PROBES = (
    "_repr_html_",
    "__array_interface__",
    "__dlpack__",
    "__cuda_array_interface__",
    "_ipython_display_",
    "nothing",
)


@pytest.mark.parametrize("name", PROBES)
def test_probes_find_nothing(name: str) -> None:
    x = sg.placeholder((3,), name="x")
    for there in (x, x.op, sg, sg.nn, sg.optim):
        assert getattr(there, name, None) is None
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(there, name)


@pytest.mark.parametrize(
    ("place", "name", "near"),
    [
        (sg, "concta", "sg.concat"),
        (sg, "sofmax", "sg.nn.softmax"),
        (sg, "Linear", "sg.nn.Linear"),
        (sg.nn, "Linaer", "sg.nn.Linear"),
        (sg.nn, "concat", "sg.concat"),
        (sg.linalg, "choleski", "sg.linalg.cholesky"),
        (sg.optim, "Adagard", "sg.optim.Adagrad"),
    ],
)
def test_a_near_name_is_suggested(place: Any, name: str, near: str) -> None:
    with pytest.raises(AttributeError, match=rf"'{name}': did you mean {re.escape(near)}\?$") as caught:
        getattr(place, name)
    assert "did you mean" in repr(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_near_name_of_a_tensor_is_suggested_by_python() -> None:
    """Where it prints the error, from ``dir``: the error says of what, and which name is missing."""
    x = sg.zeros(3)
    with pytest.raises(AttributeError) as caught:
        _ = x.reshap  # type: ignore[attr-defined]
    assert (caught.value.name, caught.value.obj) == ("reshap", x)


def test_public_things_are_copied_and_pickled() -> None:
    adam = sg.optim.Adam(lr=1e-2)
    with pytest.raises(TypeError, match="can be neither copied nor pickled"):
        copy.copy(adam)
    for function in (sg.sum, sg.exp, sg.print, sg.map, sg.gradients, sg.nn.relu, sg.linalg.solve, sg.random.normal):
        assert pickle.loads(pickle.dumps(function)) is function


def test_a_subclass_may_have_the_name() -> None:
    class Torchlike(sg.optim.SGD):
        def zero_grad(self) -> str:
            return "mine"

    assert Torchlike(0.1).zero_grad() == "mine"
