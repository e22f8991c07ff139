"""The examples in docstrings are run as they stand; every public function and layer has one."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest
from api import METHODS, public
from source_tree import modules

import staticgrad as sg

NAMED = {"staticgrad.base.errors": "staticgrad.errors"}  # after which module what a module defines is named
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def offered() -> Iterator[tuple[str, Any]]:
    """The public functions, classes and methods by the names that users write."""
    for name in public():
        value = name.value
        if inspect.isroutine(value) or (isinstance(value, type) and value.__module__.startswith("staticgrad")):
            yield name.full.replace("staticgrad", "sg", 1), value
    owners = {name.full: name.value for name in public()}
    for owner, names in METHODS.items():
        for name in names.split():
            yield f"{owner.rpartition('.')[2]}.{name}", inspect.getattr_static(owners[owner], name)


def examples() -> dict[str, doctest.DocTest]:
    """The examples of each docstring, by where it stands: of all modules with what they define, and of public
    functions that are made by a function. They know ``np`` and ``sg``, and nothing else."""
    finder, names = doctest.DocTestFinder(exclude_empty=True), {"np": np, "sg": sg}
    found: dict[str, doctest.DocTest] = {}
    for name, path in modules().items():
        if any(importlib.util.find_spec(package) is None for package in pages.needs(path)):
            continue
        if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE):
            home = importlib.import_module(NAMED.get(name, name))
            tests = [test for test in finder.find(home, globs=names) if test.examples]
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
