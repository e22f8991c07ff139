"""Locks that no exception and no fork can lose: taking one, calling a function and giving it back are one call.

A signal handler may raise between any two bytecodes of Python, also between the last one that takes a lock and the
first one that is sure to give it back. So a lock is not taken by Python code: ``lock.exclusive(function, *arguments)``
takes it, calls the function, and gives it back whatever the function did, in one function of machine code with
CPython's own calling convention. The words of a lock are read and written with the GIL held (where there is none, with
the lock's ``MUTEX``), so each change of them is one step for all of Python. Compiled entries take the same locks
(``entry_text``).

    brief       for what is done in Python and for short readers: waits for an exclusive or brief holder
    shared      for long readers, which run side by side: waits as brief does, then lets others in
    exclusive   for writers and for whoever calls back into Python: waits for all

The thread that holds a lock may take it again, with one exception: who holds it shared alone is refused exclusively,
since it would wait for itself (a signal handler that writes during a run that reads). A thread that waits does so
without the GIL and looks for signals every ``SLICE`` nanoseconds. Threads enter in the order in which they began to
wait, and who comes later waits behind them; but no thread waits behind one that runs its signal handlers, or behind
anybody while it is inside already. ``GATE`` counts the holders of every kind: while it is zero and the GIL is held,
no other thread is inside.

    row     ::= count thread{ROW}       the threads that hold a lock shared, once for each time, or that wait for it

At most ``ROW`` threads hold a lock shared at a time; of those that wait, the ones beyond that number have no order.

After a fork the child knows which of its threads is left: it frees what other threads held, and says for each lock
whether one of those was ``WRITING``, that is, had begun to change what the lock guards.

Where machine code cannot be called so (another interpreter, no POSIX threads, a system that refuses to execute it) a
lock is Python's own, which is as safe as a ``with`` statement.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.base.image import ExecutionRefusedError, address_of
from staticgrad.runtime.parts.machinery import native_part, once
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED, MethodDef, function_of, is_known

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

SLICE = 20_000_000  # nanoseconds of a wait between two looks for signals
LOOKED_AT = 32  # whole slices of a wait, a power of two: each time it is looked at whether the wait can end
WARNED_AFTER = 512  # slices
BRIEF, SHARED, EXCLUSIVE = range(3)
INTERPRETER, CALLBACK = "staticgrad.ops.interpreter", "call_function"  # where programs call Python functions


class LockWord:
    """The words of a lock."""

    OWNER = 0  # the thread that holds it briefly or exclusively, and how many times
    DEPTH = 1
    GATE = 2
    SERIAL = 3  # counts what waiting threads are woken for
    WRITING = 4  # not null while what the lock guards is changed: 1, or the address of a word that says whether
    REPORT = 5  # Python functions, called by a thread that has waited for long, and by one that would wait for itself
    REFUSE = 6
    MUTEX = 8  # room for the largest of any system
    WAKE = 16
    READERS = 24  # a row
    WAITERS = 88  # a row, in the order of arrival; a thread that runs its signal handlers has its number negated


ROW = LockWord.WAITERS - LockWord.READERS - 1
WORDS = LockWord.WAITERS + 1 + ROW

METH_FASTCALL = 0x0080
_Words = np.ndarray[Any, np.dtype[np.int64]]


class _LockRuntime:
    """The objects that all locks of a process share. They live as long as the process."""

    def __init__(self) -> None:
        linux = sys.platform == "linux"  # elsewhere a condition waits by the time of day
        clock = time.CLOCK_MONOTONIC if linux else time.CLOCK_REALTIME
        name = "locks_free_threaded" if IS_FREE_THREADED else "locks"
        self.module = native_part(__file__, name, WAIT_CLOCK=clock, SLICE=SLICE)
        self._reset = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self.module.address("reset"))
        self._set_clock = address_of("pthread_condattr_setclock") if linux else None
        self._definition = MethodDef(b"hold", self.module.address("hold"), METH_FASTCALL, None)

    def reset(self, lock: int) -> None:
        """Let no thread but this one hold the lock at that address."""
        self._reset(lock, self._set_clock)

    def holder(self, lock: _Words, kind: int) -> Callable[..., Any]:
        """The function that holds a lock while it calls another one."""
        words = np.array([lock.ctypes.data, kind], np.int64)
        new_capsule = ctypes.pythonapi["PyCapsule_New"]
        new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        return function_of(self._definition, new_capsule(words.ctypes.data, None, None), (lock, words, self))


def _new_machinery() -> _LockRuntime | None:
    """None where a lock is Python's own."""
    with contextlib.suppress(ExecutionRefusedError):  # then no program runs that would take the lock in machine code
        return _LockRuntime() if _is_served() else None
    return None


_machinery = once(_new_machinery)


def _is_served() -> bool:
    return is_known() and os.name == "posix" and hasattr(os, "register_at_fork")


def addresses() -> tuple[int, int]:
    """The addresses of the functions ``acquire`` and ``release`` for machine code; zeros where there are none."""
    machinery = _machinery()
    return (0, 0) if machinery is None else (machinery.module.address("acquire"), machinery.module.address("release"))


class Lock:
    """A lock; see the module's docstring.

    Args:
        on_torn: called in a forked child whose parent had a thread that was changing what the lock guards; a method,
            whose object is not kept alive.
    """

    def __init__(self, on_torn: Callable[[], None] | None = None) -> None:
        self.words: _Words = np.zeros(WORDS, np.int64)
        self.address: int = self.words.ctypes.data
        self._on_torn = None if on_torn is None else weakref.WeakMethod(on_torn)
        self._plain: threading.RLock | None = None
        machinery = _machinery()
        if machinery is None:
            self._plain = threading.RLock()
            self._brief = self._shared = self._exclusive = self._hold_plainly
        else:
            self.words[LockWord.REPORT], self.words[LockWord.REFUSE] = id(_report), id(_refuse)
            machinery.reset(self.address)
            self._brief, self._shared, self._exclusive = (
                machinery.holder(self.words, kind) for kind in (BRIEF, SHARED, EXCLUSIVE)
            )
        _locks.add(self)

    @property
    def is_native(self) -> bool:
        """True if machine code can take the lock."""
        return self._plain is None

    def brief(self, function: Callable[[*Ts], R], /, *arguments: *Ts) -> R:
        """Return the result of ``function``, called while the lock is held briefly."""
        result: R = self._brief(function, *arguments)
        return result

    def shared(self, function: Callable[[*Ts], R], /, *arguments: *Ts) -> R:
        """Return the result of ``function``, called while other long readers may run."""
        result: R = self._shared(function, *arguments)
        return result

    def exclusive(self, function: Callable[[*Ts], R], /, *arguments: *Ts) -> R:
        """Return the result of ``function``, called while no other thread holds the lock."""
        result: R = self._exclusive(function, *arguments)
        return result

    def _hold_plainly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        assert self._plain is not None
        with self._plain:
            self.words[LockWord.GATE] += 1
            try:
                return function(*arguments)
            finally:
                self.words[LockWord.GATE] -= 1

    def start_again(self) -> None:
        """In a forked child: only this thread can hold the lock."""
        words, machinery = self.words, _machinery()
        if machinery is None:
            self._plain, words[:] = threading.RLock(), 0
            return
        other = words[LockWord.OWNER] not in (0, _signed(threading.get_ident()))
        torn = other and _says(int(words[LockWord.WRITING]))
        machinery.reset(self.address)
        told = self._on_torn() if self._on_torn is not None else None
        if torn and told is not None:
            told()


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _says(writing: int) -> bool:
    """True if the word ``LockWord.WRITING`` means that something has been changed."""
    return writing == 1 or (writing != 0 and bool(ctypes.c_int64.from_address(writing).value))


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _start_again() -> None:
    for lock in list(_locks):
        lock.start_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)


# -- changes that are one step ----------------------------------------------------------------------------------------


def at_once(*changes: Callable[[], object]) -> None:
    """Call functions of C (methods of arrays and containers, and partials of them) one after the other without a
    bytecode between them: what a signal handler raises comes before all of them or after all of them."""
    deque(map(operator.call, changes), maxlen=0)


# -- waits without an end ---------------------------------------------------------------------------------------------


def _refuse() -> None:
    """Called in a thread that holds a lock shared and wants it exclusively."""
    raise StaticGradError(
        "the state of a session would be written in the middle of a run or a save that reads it, by the same thread:"
        " called from a signal handler during a run? Neither would ever go on. Let the handler note the signal, and"
        " write when the run has ended."
    )


def _report(owner: int, slices: int) -> None:
    """Called in a thread that has waited for that number of slices.

    Raises:
        StaticGradError: the owner is in a function that its program calls, and which waits for this thread to end.
    """
    called = _called_function(sys._current_frames().get(owner))
    if called is None:
        return
    name, joined = called
    text = f"this thread waits for a run of the session, which is in the Python function {name} of a py_call"
    if joined == threading.get_ident():
        raise StaticGradError(f"{text}, and that waits for this thread to end: neither would ever go on")
    if slices == WARNED_AFTER:
        warnings.warn(f"{text}; if that waits for this thread, neither will ever go on", RuntimeWarning, stacklevel=2)


def _called_function(frame: FrameType | None) -> tuple[str, int | None] | None:
    """The function that a program of the session calls, found in a thread's frames, and the number of the thread that
    it joins; None if there is none."""
    joined: int | None = None
    inner = frame
    while frame is not None:
        if frame.f_code.co_filename == threading.__file__ and frame.f_code.co_name == "join":
            joined = getattr(frame.f_locals.get("self"), "ident", None)
        if frame.f_code.co_name == CALLBACK and frame.f_globals.get("__name__") == INTERPRETER:
            code = (inner or frame).f_code
            return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})", joined
        frame, inner = frame.f_back, frame
    return None
