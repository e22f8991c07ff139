"""The examples in docstrings and in the README are run as they stand."""

from __future__ import annotations

import doctest
import importlib
import re

from tree import ROOT, modules

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def failures(test: doctest.DocTest) -> str:
    report: list[str] = []
    failed = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append).failed
    return "".join(report) if failed else ""


def test_docstrings() -> None:
    for name, path in modules().items():
        if ">>> " in path.read_text(encoding="utf-8"):
            examples = [test for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples]
            assert examples, f"{name}: its examples are in no docstring that can be found"
            assert not (report := "".join(map(failures, examples))), report


def test_readme() -> None:
    """The blocks marked as sessions of Python follow each other, as a reader would type them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README.md", None, 0)
    assert not (report := failures(session)), report
