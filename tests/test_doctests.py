"""The examples in docstrings are run as they stand; every public function and layer has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tree import modules

import staticgrad as sg

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

PLACES = {
    "sg": sg, "sg.init": sg.init, "sg.linalg": sg.linalg, "sg.nest": sg.nest, "sg.nn": sg.nn, "sg.optim": sg.optim,
    "sg.random": sg.random,
}  # fmt: skip
# What users call of the objects that they are given, and of classes that they derive from.
METHODS = {
    sg.Session: "close compile forward get grad restore run save seed set set_all set_grad zero_grad",
    sg.Executable: "cost memory profile text view",
    sg.Tape: "backward close memory",
    sg.Tensor: "T astype detach dtype grad_fn is_leaf mT name ndim register_hook register_post_accumulate_grad_hook"
    " requires_grad_ reshape retain_grad shape size",
    sg.Graph: "finalize to_networkx variables",
    sg.nn.Module: "buffers children eval load_state_dict modules named_buffers named_children named_modules"
    " named_parameters parameters state_dict train",
    sg.nn.ModuleList: "append",
    sg.optim.Optimizer: "apply_gradients lr minimize slot step",
}


def names_of(place: ModuleType) -> list[str]:
    """The names that a module offers: its ``__all__``, or the functions and classes that it defines."""
    defined = [name for name, value in vars(place).items() if getattr(value, "__module__", "") == place.__name__]
    return list(getattr(place, "__all__", [name for name in defined if not name.startswith("_")]))


def offered() -> Iterator[tuple[str, Any]]:
    """The public functions, classes and methods by the names that users write."""
    for prefix, place in PLACES.items():
        for name in names_of(place):
            value = getattr(place, name)
            if inspect.isroutine(value) or (isinstance(value, type) and value.__module__.startswith("staticgrad")):
                yield f"{prefix}.{name}", value
    for owner, names in METHODS.items():
        for name in names.split():
            yield f"{owner.__name__}.{name}", inspect.getattr_static(owner, name)


def examples() -> dict[str, doctest.DocTest]:
    """The examples of each docstring, by where it stands: of all modules with what they define, and of public
    functions that are made by a function. They know ``np`` and ``sg``, and nothing else."""
    finder, names = doctest.DocTestFinder(exclude_empty=True), {"np": np, "sg": sg}
    found: dict[str, doctest.DocTest] = {}
    for name, path in modules().items():
        if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE):
            tests = [test for test in finder.find(importlib.import_module(name), globs=names) if test.examples]
            assert tests, f"{name}: its examples are in no docstring that can be found"
            found.update({test.name: test for test in tests})
    known = {test.docstring for test in found.values()}
    for name, value in offered():
        if inspect.isfunction(value) and value.__doc__ not in known:
            found.update((test.name, test) for test in finder.find(value, name, globs=names) if test.examples)
    return found


def failures(test: doctest.DocTest) -> str:
    """What is wrong with the examples of a docstring, run in a graph of their own."""
    sg.reset_default_graph()
    report: list[str] = []
    failed = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append).failed
    return "".join(report) if failed else ""


@pytest.mark.parametrize("part", range(4))
def test_docstrings(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tests = list(examples().values())[part::4]
    assert not (report := "".join(map(failures, tests))), report


def test_every_public_function_and_layer_has_an_example() -> None:
    bare = [name for name, value in offered() if ">>> " not in (inspect.getdoc(value) or "")]
    assert not bare, f"without an example: {', '.join(bare)}"
