"""How deep the stack is below a function: LLVM's figures for the frames of compiled functions, along their calls.

LLVM says the bytes of a frame in a warning about frames that exceed a limit, on standard error; with a limit of 0 it
says those of all that have one. The address at which a call returns is not among them.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from collections.abc import Sequence

from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native.codegen import objects

LIMITED = '"warn-stack-size"="0"'
RETURN = 16  # bytes of a return address, and of what aligns the next frame
DEFINED = re.compile(r'^define [^@]*@"?([\w.$]+)"?\(.*\{$', re.MULTILINE)
MENTIONED = re.compile(r'@"?([\w.$]+)"?')
WARNED = re.compile(r"stack frame size \((\d+)\) exceeds limit \(0\) in function '([^']+)'")


def frames(text: str, target: Target, *, quick: bool = False) -> dict[str, int]:
    """The bytes of the frame of each function of a module."""
    limited = re.sub(r"^(define .*) \{$", rf"\1 {LIMITED} {{", text, flags=re.MULTILINE)
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            objects([limited], target, quick=quick)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        said = file.read().decode()
    found = dict.fromkeys(DEFINED.findall(text), 0)
    found.update((name, int(nbytes)) for nbytes, name in WARNED.findall(said))
    return found


def depth(texts: Sequence[str], target: Target, entry: str = "main", quick: Sequence[bool] = ()) -> int:
    """The most bytes of the stack below the caller of ``entry``: of frames along the calls of a program's modules. A
    function that is mentioned may be called: chunks are, by way of the pool. None calls itself. ``quick`` says of each
    module whether it is made without optimization; default: none is."""
    levels = quick or [False] * len(texts)
    nbytes: dict[tuple[int, str], int] = {}
    calls: dict[tuple[int, str], set[str]] = {}
    home: dict[str, int] = {}
    for number, text in enumerate(texts):
        for name, size in frames(text, target, quick=levels[number]).items():
            nbytes[number, name] = size + RETURN
            home[name] = number
        for part in re.split(r"^(?=define )", text, flags=re.MULTILINE)[1:]:
            head, _, body = part.partition("{\n")
            body = body.partition("\n}")[0]
            match = MENTIONED.search(head)
            assert match is not None
            calls[number, match[1]] = set(MENTIONED.findall(body))

    @functools.cache
    def below(number: int, name: str) -> int:
        own = (number, name)
        if own not in nbytes:
            if name not in home:
                return 0
            own = (home[name], name)
        return nbytes[own] + max((below(own[0], other) for other in calls[own]), default=0)

    return below(home[entry], entry)
