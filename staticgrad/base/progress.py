"""A line while a compilation takes long: of how many ops, what was compiled and found, its phase, the seconds so far.

    with shown(count):
        ...                          # phases of staticgrad.base.phases

Nothing is written for ``PATIENCE`` seconds. Then each phase that begins or goes on may write the line anew in its
place, and at the end it is erased. No thread and no signal is needed, as phases call (``phases.goes_on``). The line is
for a user who waits: on standard error where that is a terminal, or in a notebook, where the output of a cell is kept
and would keep lines of an error; for the main thread; with no other output of a compilation.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TextIO

from staticgrad.base import config, phases

PATIENCE = 2.0  # seconds until the line is worth reading
PACE = 0.2  # seconds after which it is written again


class Terminal:
    """A line of a terminal, written anew in its place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, text: str) -> None:
        """Let this be the line; of "" nothing is left, and the cursor stands at the beginning."""
        with contextlib.suppress(OSError, ValueError):  # a stream that is gone ends no compilation
            self._stream.write(f"\r{text:<{self._width}}" + ("" if text else "\r"))
            self._stream.flush()
        self._width = max(self._width, len(text))

    def end(self) -> None:
        """Leave the line as it is; what follows begins a new one."""
        if self._width:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("\n")
                self._stream.flush()


class CellOutput:
    """An output of a notebook's cell, which is kept with the notebook: the last text alone."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Let this be the output."""
        data = {"text/plain": text}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class Progress:
    """The line of one compilation. Called with the name of a phase it is shown, where it is time to. ``counts`` are
    what phases have counted by then."""

    def __init__(
        self,
        ops: int,
        place: Terminal | CellOutput,
        clock: Callable[[], float] = time.monotonic,
        counts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._ops = ops
        self._counts = counts
        self._place = place
        self._clock = clock
        self._begun = clock()
        self._due = self._begun + PATIENCE
        self._is_shown = False

    def __call__(self, phase: str) -> None:
        now = self._clock()
        if now >= self._due:
            self._due = now + PACE
            self._is_shown = True
            counts = "".join(f", {name}: {number}" for name, number in self._counts.items())
            self._place.show(f"compiling: {self._ops:,} ops{counts}, {phase} … {now - self._begun:.0f} s")

    def erase(self) -> None:
        """Let nothing be left of it."""
        if self._is_shown:
            self._place.show("")


@contextlib.contextmanager
def shown(ops: int) -> Iterator[None]:
    """Show the progress of a compilation of that number of ops while it runs inside, if a user may read it."""
    place = _place()
    if place is None:
        yield
        return
    with phases.counted() as counts:
        line = Progress(ops, place, counts=counts)
        try:
            with phases.told(line):
                yield
        finally:
            line.erase()


def _place() -> Terminal | CellOutput | None:
    """The display that a waiting user looks at and that shows nothing else of the compilation; None if there is
    none."""
    return None if config.get("DEBUG") != "0" or config.get("PRINT_AFTER") else display()


def display() -> Terminal | CellOutput | None:
    """The notebook's cell or the terminal that the user looks at; None if there is none, or none is wanted."""
    if threading.current_thread() is not threading.main_thread() or config.get("PROGRESS") == "0":
        return None
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if "ipykernel" in sys.modules and get_shell is not None and get_shell() is not None:
        return CellOutput()
    return Terminal(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None
