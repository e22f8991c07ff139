"""The record of one trace of a NumPy function: what it asked that only a run knows, by lines of the user's program.

A function is traced at example arguments, so each array has a value beside its tensor. A question about a value that
depends on an argument is answered with the value at the example, which is either wanted (``freeze``: one warning counts
the lines) or refused: the trace goes on, and one error names all lines.
"""

from __future__ import annotations

import dis
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from staticgrad.base.errors import (
    FrozenValueWarning,
    GraphError,
    PromotionWarning,
    SourceLine,
    UnsupportedError,
    UnsupportedOp,
    is_inside,
    silent,
    warn,
)

_LIBRARIES = os.path.dirname(os.path.dirname(np.__file__))
_FOREIGN = tuple(os.path.join(_LIBRARIES, name, "") for name in ("numpy", "scipy"))

# What depends on a value, and the way out.
BRANCH = "np.where(condition, a, b) computes both and chooses, max(a, b) and min(a, b) stay, sg.cond(…) runs one of two"
NUMBER = "leave float() or int() out (an array of one element is a number already), or hand the number over as an int"
COUNT = "hand the count over as a Python int, which is part of the program"
SELECTION = "np.where(mask, x, 0) keeps the size, a[mask] = number may stay"
SEARCH = "np.where keeps the size, np.argmax finds the first place"
DRAWS = "draw outside and hand the array over as an argument"
TEXT = "print outside of the function, or sg.print(x, text)"
ELSEWHERE = "make the array inside of the function, in code written in Python, or build it by np.stack"


class FunctionTrace:
    """The questions of one trace, and whether values at the example are wanted.

    Attributes:
        refused: how often what was refused, for which reason, at which line.
        numbers: the constants of numbers, by graph, dtype and bytes.
        rebuild: gives a function as it is traced.
    """

    def __init__(self, freeze: bool) -> None:
        self.freeze = freeze
        self.numbers: dict[Any, Any] = {}
        self.rebuild: Callable[[Any], Any] | None = None
        self.refused: Counter[tuple[str, str, SourceLine | None]] = Counter()
        self._frozen: Counter[tuple[str, SourceLine | None]] = Counter()

    def depends(self, what: str, way_out: str, is_example: bool = True, line: SourceLine | None = None) -> None:
        """``what`` asks for a value that only a run knows; the caller goes on with the one at the example arguments.

        Args:
            line: where; default: the line that is running.

        Raises:
            UnsupportedError: there is none, since the function was called with tensors.
        """
        if self.freeze and is_example:
            self._frozen[what, line or user_line()] += 1
            return
        reason = f"depends on a value that only a run knows: {way_out}; freeze=True keeps the value at the first call"
        if self.freeze:
            reason = f"depends on a value that no example has: {way_out}"
        self.refuse(what, reason, is_example, line)

    def refuse(self, what: str, reason: str, is_example: bool = True, line: SourceLine | None = None) -> None:
        """Record what is not supported.

        Raises:
            UnsupportedError: there is no example with which the trace could go on.
        """
        self.refused[what, reason, line or user_line()] += 1
        if not is_example:
            raise self.error()

    def error(self) -> UnsupportedError:
        """One error for all that was refused."""
        ops: dict[tuple[str, str], list[tuple[SourceLine | None, int]]] = {}
        for (what, reason, line), count in self.refused.items():
            ops.setdefault((what, reason), []).append((line, count))
        found = [
            UnsupportedOp(*op, sum(count for _, count in lines), tuple(line for line, _ in lines if line is not None))
            for op, lines in ops.items()
        ]
        text = "\n  ".join(["numpy: the function does what is not supported here", *map(str, found)])
        return UnsupportedError(text, ops=found, source=next((line for op in found for line in op.sources), None))

    def finish(self) -> None:
        """Raise the error, or warn of what is frozen.

        Raises:
            UnsupportedError: something was refused.
        """
        if self.refused:
            raise self.error()
        if self._frozen:
            lines = [f"{what} ({_times(count)})\n    {line}" for (what, line), count in self._frozen.items()]
            head = "numpy: these keep what they were at the arguments of the first call, whatever later arguments are"
            warn(FrozenValueWarning, "\n  ".join([head, *lines]))


_traces: ContextVar[tuple[FunctionTrace, ...]] = ContextVar("traces", default=())


def current() -> FunctionTrace:
    """The trace that is running in this thread.

    Raises:
        GraphError: an array outlived the call for which it was traced.
    """
    if not _traces.get():
        raise GraphError("numpy: expected an array of the function that is traced, actual one of a call that has ended")
    return _traces.get()[-1]


@contextmanager
def tracing(freeze: bool) -> Iterator[FunctionTrace]:
    """A trace, at whose end its error is raised or its warning given."""
    trace = FunctionTrace(freeze)
    token = _traces.set((*_traces.get(), trace))
    try:
        with np.errstate(all="ignore"), silent(PromotionWarning):
            yield trace
    except UnsupportedError:
        raise
    except Exception as error:
        if trace.refused:  # what came after values that are not known may follow from these
            raise trace.error() from error
        raise
    finally:
        _traces.reset(token)
    trace.finish()


def user_line() -> SourceLine | None:
    """The innermost line outside of this package, NumPy and SciPy."""
    frame = _user_frame()
    return None if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def is_storing() -> bool:
    """True if the user's line is writing an element, as ``a[0] = x`` does, which asks x for its value."""
    frame = _user_frame()
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("STORE_SUBSCR")


def _user_frame() -> Any:
    frame: Any = sys._getframe(1)
    while frame is not None and (is_inside(frame.f_code.co_filename) or is_foreign(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def is_foreign(file: str) -> bool:
    """True if a file of code is NumPy's or SciPy's."""
    return file.startswith(_FOREIGN)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
