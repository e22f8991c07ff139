"""The runtime's parts in machine code: what their texts take from Python, and the records that both know."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from make_parts import TEXTS, words_of

from staticgrad.runtime.parts import entry, machinery, vectorcall
from staticgrad.runtime.parts.machinery import once


def records() -> dict[str, dict[str, int]]:
    """The words of every record that a part takes from Python, by the record's name; of those in which words have a
    meaning besides, such as entries, too."""
    names = {*(name for text in TEXTS for name in text.modules), entry.__name__, vectorcall.__name__}
    modules = [importlib.import_module(name) for name in sorted(names)]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {cls.__name__: words for cls in classes if (words := words_of(cls))}


def test_no_two_words_of_a_record_lie_in_one_place() -> None:
    found = records()
    assert {"EntryWord", "LockWord", "PoolWord", "RecyclerWord", "ContextLayout", "ObjectWord"} <= found.keys()
    for name, words in found.items():
        assert len({*words.values()}) == len(words), name


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
