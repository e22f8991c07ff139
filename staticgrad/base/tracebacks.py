"""Tracebacks that end at the user's line. Imported when something has gone wrong.

Input: an error that leaves a public function (``staticgrad.base.boundary``). Output: the same error, whose traceback
has no frames of this package: those of the user are left, also those of his functions that were called from here
(bodies of loops, hooks). That is for errors that are meant for users: those of this package, those that a ``raise`` of
this package raised, and calls with wrong arguments. What else is raised is another library's, or a fault of this
package, and stays as it is. With ``STATICGRAD_DEBUG`` all frames stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from opcode import opmap
from types import FrameType, TracebackType

from staticgrad.base import hints
from staticgrad.base.config import PREFIX
from staticgrad.base.errors import StaticGradError, is_inside

_RAISE = opmap["RAISE_VARARGS"]
_MEANT = "_meant_for_users"  # set on a builtin error that was found to be


def cut(error: BaseException, function: Callable[..., object] | None = None) -> None:
    """Take this package's frames out of an error's traceback, in place.

    Args:
        function: the public function that is left; if the call of it failed, the error may get a sentence.
    """
    entries = [*_entries(error.__traceback__)]
    if function is not None and type(error) is TypeError and _is_refused(entries, function):
        error.args = (hints.of_call(function, str(error)),)
        setattr(error, _MEANT, True)
    if _is_debugged() or not _is_meant(error, entries):
        return
    error.__traceback__ = _of_user(entries)
    _forget_handled(error)


def _is_refused(entries: list[TracebackType], function: Callable[..., object]) -> bool:
    """Python has refused the arguments of a call of ``function`` by this package: nothing of it has run."""
    code = getattr(function, "__code__", None)
    frames = [entry.tb_frame for entry in entries]
    return not _is_raised(entries[-1]) and all(is_ours(frame) and frame.f_code is not code for frame in frames)


def _of_user(entries: list[TracebackType]) -> TracebackType | None:
    """The entries without those of this package."""
    kept: TracebackType | None = None
    for entry in reversed(entries):
        if not is_ours(entry.tb_frame):
            entry.tb_next = kept
            kept = entry
    return kept


def is_ours(frame: FrameType) -> bool:
    """A frame of this package, of the decorators of the standard library that it uses, or of code that it made."""
    code = frame.f_code
    return is_inside(code.co_filename) or str(frame.f_globals.get("__name__")).partition(".")[0] == "staticgrad"


def _is_debugged() -> bool:
    return os.environ.get(f"{PREFIX}DEBUG", "0") not in ("", "0")


def _entries(entry: TracebackType | None) -> Iterator[TracebackType]:
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _is_meant(error: BaseException, entries: list[TracebackType]) -> bool:
    if isinstance(error, StaticGradError) or getattr(error, _MEANT, False):
        return True
    if not entries or not isinstance(error, (TypeError, ValueError, AttributeError)):
        return False
    frame = entries[-1].tb_frame
    of_compiler = str(frame.f_globals.get("__name__")).startswith("staticgrad.compiler.")  # its own assumptions
    if is_ours(frame) and not of_compiler and _is_raised(entries[-1]):
        setattr(error, _MEANT, True)
    return hasattr(error, _MEANT)


def _is_raised(entry: TracebackType) -> bool:
    """A ``raise`` statement is where the error comes from, not an operation that failed."""
    return entry.tb_frame.f_code.co_code[entry.tb_lasti] == _RAISE


def _forget_handled(error: BaseException) -> None:
    """Errors that were handled here on the way are no news to the user; what he was handling himself is, and what a
    function of his raised that was called from here."""
    handled = error.__context__
    while handled is not None and handled.__traceback__ is not None and is_ours(handled.__traceback__.tb_frame):
        handled = handled.__context__
    suppressed, cause = error.__suppress_context__, error.__cause__
    if cause is not None:
        left = cause.__traceback__ = _of_user([*_entries(cause.__traceback__)])
        error.__cause__ = None if left is None else cause
    error.__context__, error.__suppress_context__ = handled, suppressed
