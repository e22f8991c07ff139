"""The runtime's parts in machine code: their LLVM text and what it takes from Python come in, loaded code goes out.

The text of ``locks.py`` lies beside it in ``locks.ll``, and so on. In it ``$NAME`` stands for a constant of the Python
module, ``$Record.NAME`` for a word of a structure that both know, and other names for text that depends on the system.
It is compiled when the part is first needed, where its machine code was not kept. Most parts are short ways to
functions of the system, for which optimizing would take longer than the code generator does for a small program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from staticgrad.base.forks import reentrant_lock
from staticgrad.compiler.machine.target import GENERIC
from staticgrad.compiler.native.module import NativeModule

T = TypeVar("T")


def native_part(file: str, *names: str, quick: bool = True, **known: object) -> NativeModule:
    """The part whose texts ``<name>.ll`` lie beside the module ``file``, linked and loaded. ``known``: what is filled
    in. ``quick``: one text is not optimized."""
    return NativeModule(tuple(part_text(file, name, **known) for name in names), GENERIC, quick=quick)


def part_text(file: str, name: str, **known: object) -> str:
    """The text ``<name>.ll`` beside the module ``file``, filled in."""

    def value(match: re.Match[str]) -> str:
        first, *inner = match[1].split(".")
        found = known[first]
        for part in inner:
            found = getattr(found, part)
        return str(found)

    return re.sub(r"\$(\w+(?:\.\w+)*)", value, Path(file).with_name(f"{name}.ll").read_text(encoding="ascii"))


def named_words(words: type, base: str) -> str:
    """LLVM text that names the places of a record's words in memory: of each constant of ``words`` in capitals, which
    says how many words it lies after the pointer ``base``."""
    places = {name: at for name, at in vars(words).items() if name.isupper()}
    return "\n".join(f"  %{name} = getelementptr i64, ptr {base}, i64 {at}" for name, at in places.items())


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that makes something when it is first called and gives the same for ever. Threads that need it at once
    wait for one of them: of two results one would be forgotten, and with it code that functions of Python lead to."""
    making, made = reentrant_lock(), list[T]()

    def get() -> T:
        if not made:
            with making:
                if not made:
                    made.append(make())
        return made[0]

    return get
