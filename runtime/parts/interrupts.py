"""Programs that can be interrupted: how one that runs without the GIL hears of signals.

Python runs signal handlers in the main thread, between bytecodes, so never while a program runs. A program that may
take long (``compiler.emit.polls``) therefore asks from time to time, before it has written any state: it calls
``poll``, which once in ``INTERVAL`` nanoseconds takes the GIL and lets Python run its handlers. Where one raises
(Ctrl-C, a time limit) the program ends with a status of its own, and ``raise_it`` sets the exception when the GIL is
held again. In any other thread ``poll`` does nothing. What a Python function of the program raises (``sg.print``, or a
handler that runs while it prints) ends the program in the same way.

    context ::= words of one call in flight, in the place of the pool: the first is the address of a ``run`` that looks
                for signals between the chunks that the caller takes, and lets no thread take one after an interruption
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from staticgrad.compiler.program.slots import ContextWord
from staticgrad.runtime.parts.locks import addresses
from staticgrad.runtime.parts.machinery import native_part, once

INTERVAL = 20_000_000  # nanoseconds between two looks for signals


class ContextLayout(ContextWord):
    """The words of a context."""

    POOL = 4  # the threads that the program may use, or null
    WATCHES = 5  # whether the caller is the main thread
    LAST = 6  # when signals were looked for
    TYPE = 7  # of the exception that ended the program, as CPython hands it over
    VALUE = 8
    TRACE = 9
    MAIN = 10  # address of the main thread's number


WORDS = 11


class CallWord:
    """The words of a Python function that a program calls."""

    CALL = 0  # address of call_python
    FUNCTION = 1  # of the operands' address: gives the status
    TELL = 2  # of what was raised
    FAILURE = 3  # the status then
    CONTEXT = 4  # of the program that what is raised ends instead as long as it writes no state, or null


class _ContextRuntime:
    """The objects that all contexts of a process share. They live as long as the process."""

    def __init__(self) -> None:
        self.module = native_part(__file__, "interrupts", MONOTONIC=time.CLOCK_MONOTONIC)
        self.begin, self.raise_it = (
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.module.address(name)) for name in ("begin", "raise_it")
        )
        self.main = np.zeros(1, np.int64)
        self.note_main()
        os.register_at_fork(after_in_child=self.note_main)

    def note_main(self) -> None:
        ident = threading.main_thread().ident or 0
        self.main[0] = ident - 2**64 if ident >= 2**63 else ident


@once
def _machinery() -> _ContextRuntime | None:
    return _ContextRuntime() if addresses()[0] else None


class Context:
    """The words of one call in flight that can be interrupted, with the pool that it may use."""

    def __init__(self, pool: int) -> None:
        machinery = _machinery()
        assert machinery is not None
        self._machinery = machinery
        self.words = np.zeros(WORDS, np.int64)
        self.address: int = self.words.ctypes.data
        self.words[ContextLayout.RUN] = machinery.module.address("run")
        self.words[ContextLayout.POLL] = machinery.module.address("poll")
        self.words[ContextLayout.POOL] = pool
        self.words[ContextLayout.MAIN] = machinery.main.ctypes.data

    @property
    def committed(self) -> int:
        """The address of the word that says whether state is being written."""
        return self.address + 8 * ContextLayout.COMMITTED

    @property
    def functions(self) -> tuple[int, int]:
        """The addresses of the functions of the context that are called before the program, and where it was
        interrupted."""
        module = self._machinery.module
        return module.address("begin"), module.address("raise_it")

    def begin(self) -> None:
        """Prepare the context before a program is called with it."""
        self._machinery.begin(self.address)

    def raise_it(self) -> None:
        """Raise what ended the program."""
        self._machinery.raise_it(self.address)

    def take(self) -> BaseException | None:
        """The exception that was to end a program which came to its end before it looked; None if there is none."""
        if self.words[ContextLayout.TYPE]:
            try:
                self.raise_it()
            except BaseException as error:
                return error
        return None


_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def callback(
    function: Callable[[int], int], tell: Callable[[BaseException], object], failure: int, context: Context | None
) -> tuple[int, tuple[object, ...]]:
    """The address of what a ``CallbackSlot`` is handed, and what must live as long.

    Args:
        function: called with the address of the operands' table; gives the status.
        tell: a function of C, called with what ``function`` raises, in the same thread.
        failure: the status then.
        context: of the program that ``function`` ends, instead of all that, if it raises before state is written.
    """
    machinery = _machinery()
    words = np.zeros(5, np.int64)
    kept: tuple[object, ...] = (words, function, tell, machinery)
    if machinery is None:
        plain = _CALL(partial(_call_plainly, function, tell, failure))
        words[CallWord.CALL] = ctypes.cast(plain, ctypes.c_void_p).value or 0
        return words.ctypes.data, (*kept, plain)
    stopped = 0 if context is None else context.address
    words[:] = machinery.module.address("call_python"), id(function), id(tell), failure, stopped
    return words.ctypes.data, kept


def _call_plainly(
    function: Callable[[int], int], tell: Callable[[BaseException], object], failure: int, _: int, operands: int
) -> int:
    try:
        return function(operands)
    except BaseException as error:  # it crosses compiled code as a status
        tell(error)
        return failure


def interruptible() -> bool:
    """True if programs of this process can be interrupted."""
    return _machinery() is not None
