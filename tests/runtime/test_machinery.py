"""The runtime's parts in machine code: what their texts take from Python, and the records that both know."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from staticgrad.runtime.parts import entry, interrupts, locks, machinery, results, threads, vectorcall
from staticgrad.runtime.parts.machinery import once


def structures() -> list[type]:
    """Every class whose attributes are the numbers of words."""
    modules = (entry, interrupts, locks, results, threads, vectorcall)
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    return sorted((cls for cls in classes if places(cls)), key=lambda cls: cls.__name__)


def places(cls: type) -> dict[str, int]:
    inherited = {name: at for base in reversed(cls.__mro__) for name, at in vars(base).items()}
    return {name: at for name, at in inherited.items() if name.isupper() and type(at) is int}


def test_no_two_words_of_a_structure_lie_in_one_place() -> None:
    found = structures()
    assert {"EntryWord", "LockWord", "PoolWord", "RecyclerWord", "ContextLayout", "ObjectWord"} <= {
        cls.__name__ for cls in found
    }
    for cls in found:
        assert len({*places(cls).values()}) == len(places(cls)), cls.__name__


def test_a_text_takes_numbers_and_refuses_other_names(tmp_path: Path) -> None:
    (tmp_path / "part.ll").write_text("i64 $ROW, i32 $END\n", encoding="ascii")
    file = str(tmp_path / "part.py")
    assert machinery.part_text(file, "part", ROW=3, END=-4) == "i64 3, i32 -4\n"
    with pytest.raises(KeyError, match="END"):
        machinery.part_text(file, "part", ROW=3)


def test_what_is_made_once_is_made_when_first_asked_for() -> None:
    made: list[int] = []

    @once
    def get() -> object:
        made.append(len(made))
        return object()

    assert not made
    assert get() is get()
    assert made == [0]
