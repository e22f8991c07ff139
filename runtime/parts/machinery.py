"""The runtime's parts in machine code: LLVM text and the numbers that it lacks come in, loaded code goes out.

The machine code of ``locks.py`` is written in C beside it, in ``locks.c``, and so on. ``make parts`` makes the text
``locks.ll`` of that, with the constants and records of the Python module, so that users need no C compiler. In the text
``$NAME`` stands for a number that differs between systems or builds of Python. It is compiled when the part is first
needed, where its machine code was not kept. Most parts are short ways to functions of the system, for which optimizing
would take longer than the code generator does for a small program.
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


def native_part(file: str, *names: str, quick: bool = True, **numbers: int) -> NativeModule:
    """The part whose texts ``<name>.ll`` lie beside the module ``file``, linked and loaded. ``numbers``: what is filled
    in. ``quick``: one text is not optimized."""
    return NativeModule(tuple(part_text(file, name, **numbers) for name in names), GENERIC, quick=quick)


def part_text(file: str, name: str, **numbers: int) -> str:
    """The text ``<name>.ll`` beside the module ``file``, with ``numbers`` filled in."""
    text = Path(file).with_name(f"{name}.ll").read_text(encoding="ascii")
    return re.sub(r"\$(\w+)", lambda match: str(numbers[match[1]]), text)


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
