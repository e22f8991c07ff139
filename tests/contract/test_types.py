"""The types that users see: what a type checker is told holds when a program runs.

``make check`` has mypy check ``tests/typed/`` (``tests/check_types.py``); here its programs run.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable

import pytest
from source_tree import TESTS

import staticgrad as sg

PROGRAMS: list[Callable[[], None]] = runpy.run_path(str(TESTS / "typed" / "user_program.py"))["PROGRAMS"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_typed_program_runs(program: Callable[[], None]) -> None:
    with sg.Graph():
        program()
