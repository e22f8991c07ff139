"""Calls of objects without a detour: what is called, what is held meanwhile, and where it is not done."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.runtime.parts import vectorcall
from staticgrad.runtime.parts.descriptors import layout_is_known
from staticgrad.runtime.parts.entry import forward_address
from staticgrad.runtime.session import executable

fast = pytest.mark.skipif(not layout_is_known(), reason="this Python has another layout of objects")


class Box(vectorcall.Forwarding):
    __slots__ = ("__call__", "__weakref__", "other")

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "__call__", call)


SLOT = vectorcall.enable(Box)


def started(call: Callable[..., Any]) -> Any:
    box = Box(call)
    vectorcall.start(box, forward_address(), SLOT)
    return box


def test_every_cpython_is_known() -> None:
    if sys.implementation.name == "cpython":
        assert layout_is_known()
        assert forward_address()
        assert SLOT


@fast
def test_arguments_and_results_go_through() -> None:
    box = started(lambda *args, **names: (args, names))
    assert box() == ((), {})
    assert box(1, 2) == ((1, 2), {})
    assert box(1, out=3, more=4) == ((1,), {"out": 3, "more": 4})
    assert box(*range(100)) == (tuple(range(100)), {})
    assert list(map(box, [1], [2])) == [((1, 2), {})]


@fast
def test_errors_go_through() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        started(fail)()
    with pytest.raises(TypeError, match="not callable"):
        started(object())()  # type: ignore[arg-type]


@fast
def test_nothing_is_kept_alive_by_calls() -> None:
    box, given = started(lambda *args, **names: None), object()
    before = sys.getrefcount(given), sys.getrefcount(box.__call__)
    for _ in range(100):
        box(given, out=given)
    assert (sys.getrefcount(given), sys.getrefcount(box.__call__)) == before


@fast
def test_what_is_called_may_be_replaced_while_it_runs() -> None:
    def replace(value: int) -> int:
        box.__call__ = lambda value: -value
        gc.collect()
        return value + len(names)

    names = ["kept by the function alone"]
    box = started(replace)
    del replace
    assert [box(1), box(1)] == [2, -1]


@fast
def test_objects_that_refer_to_themselves_are_collected() -> None:
    box = started(lambda: None)
    box.other = box
    gone = weakref.ref(box)
    del box
    gc.collect()
    assert gone() is None


def test_an_object_that_is_not_started_is_called_all_the_same() -> None:
    assert Box(lambda x, *, y: x - y)(3, y=1) == 2


def test_on_other_interpreters_the_class_is_an_ordinary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorcall, "is_known", lambda: False)
    plain = vectorcall._make_base()
    monkeypatch.setattr(vectorcall, "Forwarding", plain)
    made: Any = type("Made", (plain,), {"__slots__": ("__call__",)})
    assert vectorcall.enable(made) == 0
    x = made()
    x.__call__ = lambda: 5
    vectorcall.start(x, 1, 0)
    assert x() == 5


@fast
def test_fields_that_lie_elsewhere_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(vectorcall.Forwarding):
        __slots__ = ("__call__",)

    before = Other.__flags__
    monkeypatch.setattr(vectorcall, "TP_FLAGS", vectorcall.TP_FLAGS - 8)
    assert vectorcall.enable(Other) == 0
    assert Other.__flags__ == before


@fast
def test_executables_are_called_without_a_detour(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the sizes of feeds have changed, and back."""
    monkeypatch.setenv("STATICGRAD_MEMORY", "plan")  # where dead memory is poisoned there is no fast entry
    x = sg.placeholder((None,))
    exe = sg.Session(g).compile({"y": x * 2.0}, [x])
    one = sg.Session(g).compile(x * 2.0, [x])
    assert executable._SLOT
    for n in (3, 5, 3):
        value = np.arange(n, dtype=np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(one(value), 2 * value)
            np.testing.assert_array_equal(exe(value)["y"], 2 * value)
        out = np.empty_like(value)
        assert one(value, out=out) is out
    for called in (exe, one):
        assert ctypes.c_uint64.from_address(id(called) + vectorcall.HEAD).value == forward_address()
