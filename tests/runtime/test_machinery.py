"""The runtime's parts in machine code: what their texts take from Python, and the structures that both know."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from staticgrad.runtime.parts import entry, interrupts, locks, machinery, results, threads, vectorcall
from staticgrad.runtime.parts.machinery import named_words, once


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


def test_a_text_takes_constants_words_and_values_and_refuses_other_names(tmp_path: Path) -> None:
    (tmp_path / "part.ll").write_text("i64 $ROW, $Record.END, $where\n", encoding="ascii")
    file, known = str(tmp_path / "part.py"), {"ROW": 3, "Record": threads.ThreadRecord}
    assert machinery.part_text(file, "part", **known, where="%place") == "i64 3, 4, %place\n"
    with pytest.raises(KeyError, match="where"):
        machinery.part_text(file, "part", **known)


def test_words_are_named_in_text_as_in_python() -> None:
    lines = named_words(results.IdleRecord, "%record").splitlines()
    assert lines[1] == "  %CAPACITY = getelementptr i64, ptr %record, i64 1"
    assert len(lines) == len(places(results.IdleRecord))


def test_what_is_made_once_is_made_when_first_asked_for() -> None:
    made: list[int] = []

    @once
    def get() -> object:
        made.append(len(made))
        return object()

    assert not made
    assert get() is get()
    assert made == [0]
