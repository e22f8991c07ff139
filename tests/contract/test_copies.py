"""Copies: a module copied deeply is another one in the same graph; what cannot be copied or pickled says what to do."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.errors import SourceLine


def net() -> sg.nn.Sequential:
    return sg.nn.Sequential(sg.nn.Linear(2, 3), sg.nn.BatchNorm1d(3), sg.nn.Dropout(0.5), sg.nn.Linear(3, 1))


def test_a_deep_copy_has_variables_of_its_own_in_the_same_graph(g: sg.Graph) -> None:
    first = net()
    first[0].weight.requires_grad_(False)
    second = copy.deepcopy(first.eval())
    assert not second[2].training
    assert [v.graph for v in second.parameters()] == [g] * len(first.parameters())
    mine, others = first._state(), second._state()
    assert list(mine) == list(others)
    for x, y in zip(mine.values(), others.values(), strict=True):
        assert x is not y
        assert (x.type, x.requires_grad, x.op.attrs.trainable) == (y.type, y.requires_grad, y.op.attrs.trainable)
    assert len({*g.variables}) == 2 * len(mine)
    assert g.variables["sequential_1.0.weight"] is second[0].weight


def test_a_deep_copy_begins_with_the_same_initializers_and_takes_values_by_state_dict(g: sg.Graph) -> None:
    class Scaled(sg.nn.Module):
        def __init__(self) -> None:
            self.scale = sg.Variable(np.array([1.0, 2.0], np.float32), name="scale")
            self.linear = sg.nn.Linear(2, 2)
            self.limit = sg.constant(3.0)

    first = Scaled()
    second = copy.deepcopy(first)
    assert second.limit is first.limit
    sess = sg.Session(g)
    assert sess.get(second.scale).tolist() == [1, 2]
    assert (sess.get(second.linear.weight) != sess.get(first.linear.weight)).all()  # drawn by name
    sess.set(first.scale, [5.0, 6.0])
    assert sess.get(second.scale).tolist() == [1, 2]
    second.load_state_dict(sess, first.state_dict(sess))
    assert sess.get(second.scale).tolist() == [5, 6]
    assert (sess.get(second.linear.weight) == sess.get(first.linear.weight)).all()


def test_what_a_module_shares_its_copy_shares(g: sg.Graph) -> None:
    layer = sg.nn.Linear(2, 2)
    first = sg.nn.Sequential(layer, sg.nn.ReLU(), layer, sg.nn.Linear(2, 2))
    first[3].weight = layer.weight
    second = copy.deepcopy(first)
    assert second[0] is second[2] is not layer
    assert second[3].weight is second[0].weight is not layer.weight
    both = copy.deepcopy([first, first])
    assert both[0] is both[1]


def test_only_what_a_module_holds_is_copied_with_it(g: sg.Graph) -> None:
    layer = sg.nn.Linear(2, 2)
    with pytest.raises(TypeError, match="a tensor can be neither copied nor pickled"):
        copy.deepcopy([layer, sg.placeholder((2,))])


def made() -> dict[str, tuple[Any, str]]:
    """What is neither copied nor pickled, with a part of the message."""
    layer = sg.nn.Linear(2, 2)
    x = sg.placeholder((1, 2), name="x")
    loss = sg.sum(layer(x))
    sess = sg.Session()
    exe = sess.compile(loss, [x])
    tape = sess.forward(loss, {x: np.ones((1, 2), np.float32)})
    return {
        "tensor": (loss, "sess.save"),
        "op": (loss.op, "sg.parse"),
        "graph": (x.graph, "sg.save_graph"),
        "session": (sess, "sess.save"),
        "executable": (exe, "compile it again"),
        "tape": (tape, "sess.forward again"),
        "optimizer": (sg.optim.SGD(0.1), "make another one"),
        "module": (layer, "copy.deepcopy"),
    }


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_what_cannot_be_copied_or_pickled_says_what_to_do(g: sg.Graph, way: Callable[[Any], object]) -> None:
    for name, (value, text) in made().items():
        if name != "module" or way is pickle.dumps:
            with pytest.raises(TypeError, match=f"an? {name}.* can be neither copied nor pickled: ") as caught:
                way(value)
            assert text in str(caught.value)


def errors() -> list[type[sg.StaticGradError]]:
    return [*sg.StaticGradError.__subclasses__(), sg.StaticGradError]


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_errors_cross_processes_with_message_and_source(kind: type[sg.StaticGradError]) -> None:
    source = SourceLine("program.py", 3, "main")
    error = kind("what is wrong", source=source)
    error.add_note("in a worker")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.source) == (str(error), source)
    assert again.__notes__ == ["in a worker"]
    assert str(copy.copy(error)) == str(error)


def test_warnings_cross_processes() -> None:
    x = sg.placeholder((3,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x * np.ones(3)
    (found,) = caught
    again = pickle.loads(pickle.dumps(found.message))
    assert type(again) is sg.PromotionWarning
    assert str(again) == str(found.message)


@pytest.mark.parametrize("name", ["bool", "int8", "int64", "uint16", "float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_pickled_as_numpys(name: str) -> None:
    dtype = getattr(sg, name)
    assert pickle.loads(pickle.dumps(dtype)) == dtype
