"""Locks that no exception and no fork can lose: taking one, calling a function and giving it back are one call.

A signal handler may raise between any two bytecodes of Python, also between the last one that takes a lock and the
first one that is sure to give it back. So a lock is not taken by Python code: ``lock.exclusive(function, *arguments)``
takes it, calls the function, and gives it back whatever the function did, in one function of machine code with
CPython's own calling convention. The words of a lock are read and written with the interpreter's lock held (the GIL),
so each change of them is one step for all of Python. Compiled entries take the same locks (``runtime.entry_text``).

    brief       for what is done in Python and for short readers: waits for an exclusive or brief holder
    shared      for long readers, which run side by side: waits as brief does, then lets others in
    exclusive   for writers and for whoever calls back into Python: waits for all

The thread that holds a lock briefly or exclusively may take it again. A thread that waits does so without the GIL and
looks for signals every ``SLICE`` nanoseconds; who comes later waits behind it, so that nobody is overtaken for ever.
``GATE`` counts the holders of every kind: while it is zero and the GIL is held, nobody else is inside.

After a fork the child knows which of its threads is left: it frees what other threads held, and says for each lock
whether one of those was ``WRITING``, that is, had begun to change what the lock guards.

Where machine code cannot be called so (another interpreter, no POSIX threads) a lock is Python's own, which is as safe
as a ``with`` statement.
"""

from __future__ import annotations

import ctypes
import functools
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

from staticgrad.compiler.emit.native import NativeModule, named_words
from staticgrad.compiler.emit.target import GENERIC
from staticgrad.errors import StaticGradError
from staticgrad.forks import reentrant_lock
from staticgrad.runtime.vectorcall import MethodDef, is_known

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

SLICE = 20_000_000  # nanoseconds of a wait between two looks for signals
LOOKED_AT = 32  # slices of a wait, a power of two: each time it is looked at whether the wait can end
WARNED_AFTER = 512  # slices
BRIEF, SHARED, EXCLUSIVE = range(3)
INTERPRETER, CALLBACK = "staticgrad.interpreter", "call_function"  # where programs call Python functions


class Word:
    """The words of a lock."""

    OWNER = 0  # the thread that holds it briefly or exclusively, and how many times
    DEPTH = 1
    READERS = 2
    GATE = 3
    SERIAL = 4  # counts what waiting threads are woken for
    WAITERS = 5
    WRITING = 6  # not null while what the lock guards is changed: 1, or the address of a word that says whether
    REPORT = 7  # a Python function, called by a thread that has waited for long
    MUTEX = 8  # room for the largest of any system
    WAKE = 16


WORDS = 24

_TEXT = """
declare i64 @pthread_self()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_condattr_init(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @clock_gettime(i32, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare void @Py_DecRef(ptr)
{declarations}

; Without a holder but this thread, if it is one. Called when the lock is made, and in a forked child.
define void @reset(ptr %lock) {{
{places}
  %attributes = alloca [128 x i8], align 8
  call i32 @pthread_mutex_init(ptr %MUTEX, ptr null)
  call i32 @pthread_condattr_init(ptr %attributes)
  {set_clock}
  call i32 @pthread_cond_init(ptr %WAKE, ptr %attributes)
  %me = call i64 @pthread_self()
  %owner = load i64, ptr %OWNER
  %mine = icmp eq i64 %owner, %me
  %depth = load i64, ptr %DEPTH
  %left = select i1 %mine, i64 %depth, i64 0
  %still = select i1 %mine, i64 %me, i64 0
  %writing = load i64, ptr %WRITING
  %kept = select i1 %mine, i64 %writing, i64 0
  store i64 %still, ptr %OWNER
  store i64 %left, ptr %DEPTH
  store i64 %left, ptr %GATE
  store i64 %kept, ptr %WRITING
  store i64 0, ptr %READERS
  store i64 0, ptr %WAITERS
  ret void
}}

; Whoever waits looks again.
define internal void @wake(ptr %lock) {{
{places}
  %waiters = load i64, ptr %WAITERS
  %some = icmp sgt i64 %waiters, 0
  br i1 %some, label %waking, label %done
waking:
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  %serial = load i64, ptr %SERIAL
  %next = add i64 %serial, 1
  store i64 %next, ptr %SERIAL
  call i32 @pthread_cond_broadcast(ptr %WAKE)
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  br label %done
done:
  ret void
}}

; Sleep without the GIL until somebody wakes, or for a slice; then run signal handlers: -1 if one has raised.
define internal i32 @wait(ptr %lock) {{
{places}
  %until = alloca [2 x i64], align 8
  %fine_place = getelementptr i64, ptr %until, i64 1
  %before = load i64, ptr %SERIAL
  %waiters = load i64, ptr %WAITERS
  %more = add i64 %waiters, 1
  store i64 %more, ptr %WAITERS
  %thread = call ptr @PyEval_SaveThread()
  call i32 @clock_gettime(i32 {clock}, ptr %until)
  %seconds = load i64, ptr %until
  %fine = load i64, ptr %fine_place
  %later = add i64 %fine, {slice}
  %carry = udiv i64 %later, 1000000000
  %rest = urem i64 %later, 1000000000
  %end = add i64 %seconds, %carry
  store i64 %end, ptr %until
  store i64 %rest, ptr %fine_place
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  br label %look
look:
  %serial = load volatile i64, ptr %SERIAL
  %same = icmp eq i64 %serial, %before
  br i1 %same, label %sleep, label %awake
sleep:
  %status = call i32 @pthread_cond_timedwait(ptr %WAKE, ptr %MUTEX, ptr %until)
  %woken = icmp eq i32 %status, 0
  br i1 %woken, label %look, label %awake
awake:
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  call void @PyEval_RestoreThread(ptr %thread)
  %waiting = load i64, ptr %WAITERS
  %fewer = sub i64 %waiting, 1
  store i64 %fewer, ptr %WAITERS
  %raised = call i32 @PyErr_CheckSignals()
  ret i32 %raised
}}

; Tell a Python function who holds the lock, and for how many slices this thread has waited; -1 if it raises.
define internal i32 @report(ptr %lock, i64 %slices) {{
{places}
  %arguments = alloca [2 x ptr], align 8
  %second = getelementptr ptr, ptr %arguments, i64 1
  %waited = call ptr @PyLong_FromUnsignedLongLong(i64 %slices)
  store ptr %waited, ptr %second
  %owner = load i64, ptr %OWNER
  %number = call ptr @PyLong_FromUnsignedLongLong(i64 %owner)
  store ptr %number, ptr %arguments
  %report = load ptr, ptr %REPORT
  %answer = call ptr @PyObject_Vectorcall(ptr %report, ptr %arguments, i64 2, ptr null)
  call void @Py_DecRef(ptr %number)
  call void @Py_DecRef(ptr %waited)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %bad, label %good
bad:
  ret i32 -1
good:
  call void @Py_DecRef(ptr %answer)
  ret i32 0
}}

; Take the lock: 0, or -1 with a Python exception set and the lock as it was.
define i32 @acquire(ptr %lock, i64 %kind) {{
{places}
  %me = call i64 @pthread_self()
  br label %try
try:
  %waited = phi i64 [ 0, %0 ], [ %slices, %again ]
  %owner = load i64, ptr %OWNER
  %mine = icmp eq i64 %owner, %me
  br i1 %mine, label %take, label %look
look:
  %owned = icmp ne i64 %owner, 0
  %readers = load i64, ptr %READERS
  %read = icmp ne i64 %readers, 0
  %exclusive = icmp eq i64 %kind, {exclusive}
  %shut = and i1 %read, %exclusive
  %waiters = load i64, ptr %WAITERS
  %queue = icmp ne i64 %waiters, 0
  %new = icmp eq i64 %waited, 0
  %behind = and i1 %queue, %new
  %held = or i1 %owned, %shut
  %busy = or i1 %held, %behind
  br i1 %busy, label %sleep, label %take
sleep:
  %status = call i32 @wait(ptr %lock)
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %leave, label %awake
awake:
  %slices = add i64 %waited, 1
  %past = and i64 %slices, {look_mask}
  %long = icmp eq i64 %past, 0
  br i1 %long, label %tell, label %again
tell:
  %told = call i32 @report(ptr %lock, i64 %slices)
  %refused = icmp ne i32 %told, 0
  br i1 %refused, label %leave, label %again
again:
  br label %try
leave:
  call void @wake(ptr %lock)
  ret i32 -1
take:
  %gate = load i64, ptr %GATE
  %inside = add i64 %gate, 1
  store i64 %inside, ptr %GATE
  %is_shared = icmp eq i64 %kind, {shared}
  br i1 %is_shared, label %read_it, label %own_it
read_it:
  %others = load i64, ptr %READERS
  %readers_now = add i64 %others, 1
  store i64 %readers_now, ptr %READERS
  br label %taken
own_it:
  store i64 %me, ptr %OWNER
  %depth = load i64, ptr %DEPTH
  %deeper = add i64 %depth, 1
  store i64 %deeper, ptr %DEPTH
  br label %taken
taken:
  ret i32 0
}}

define void @release(ptr %lock, i64 %kind) {{
{places}
  %gate = load i64, ptr %GATE
  %inside = sub i64 %gate, 1
  store i64 %inside, ptr %GATE
  %is_shared = icmp eq i64 %kind, {shared}
  br i1 %is_shared, label %leave, label %disown
leave:
  %readers = load i64, ptr %READERS
  %fewer = sub i64 %readers, 1
  store i64 %fewer, ptr %READERS
  br label %left
disown:
  %depth = load i64, ptr %DEPTH
  %less = sub i64 %depth, 1
  store i64 %less, ptr %DEPTH
  %still = icmp ne i64 %less, 0
  br i1 %still, label %done, label %free
free:
  store i64 0, ptr %OWNER
  br label %left
left:
  call void @wake(ptr %lock)
  br label %done
done:
  ret void
}}

; PyObject *hold(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs): call args[0] with the others. The words of
; the capsule are the lock's address and a kind.
define ptr @hold(ptr %capsule, ptr %args, i64 %count) {{
  %words = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %lock = load ptr, ptr %words
  %kind_place = getelementptr i64, ptr %words, i64 1
  %kind = load i64, ptr %kind_place
  %function = load ptr, ptr %args
  %others = getelementptr ptr, ptr %args, i64 1
  %fewer = sub i64 %count, 1
  %status = call i32 @acquire(ptr %lock, i64 %kind)
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %refused, label %inside
refused:
  ret ptr null
inside:
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %others, i64 %fewer, ptr null)
  call void @release(ptr %lock, i64 %kind)
  ret ptr %answer
}}
"""


def _text() -> str:
    linux = sys.platform == "linux"  # elsewhere a condition waits by the time of day
    clock = time.CLOCK_MONOTONIC if linux else time.CLOCK_REALTIME
    return _TEXT.format(
        declarations="declare i32 @pthread_condattr_setclock(ptr, i32)" if linux else "",
        set_clock=f"call i32 @pthread_condattr_setclock(ptr %attributes, i32 {clock})" if linux else "",
        places=named_words(Word, "%lock"),
        clock=clock,
        slice=SLICE,
        look_mask=LOOKED_AT - 1,
        shared=SHARED,
        exclusive=EXCLUSIVE,
    )


METH_FASTCALL = 0x0080
_Words = np.ndarray[Any, np.dtype[np.int64]]


class _Machinery:
    """What all locks of a process share. It lives as long as the process."""

    def __init__(self) -> None:
        self.module = NativeModule(_text(), GENERIC)
        self.reset = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.module.address("reset"))
        self._definition = MethodDef(b"hold", self.module.address("hold"), METH_FASTCALL, None)

    def holder(self, lock: _Words, kind: int) -> Callable[..., Any]:
        """The function that holds a lock while it calls another one."""
        words = np.array([lock.ctypes.data, kind], np.int64)
        new_capsule = ctypes.pythonapi["PyCapsule_New"]
        new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        new = ctypes.pythonapi["PyCFunction_NewEx"]
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
        capsule = new_capsule(words.ctypes.data, None, None)
        kept = (lock, words, self)  # in the place of a module's name: it lives as long as the function
        made: Callable[..., Any] = new(ctypes.addressof(self._definition), capsule, kept)
        return made


_making = reentrant_lock()
_made: list[_Machinery] = []


def _machinery() -> _Machinery | None:
    """None where a lock is Python's own."""
    if not _made and _is_served():
        with _making:  # two of them, of which one is forgotten, would leave functions whose code is gone
            if not _made:
                _made.append(_Machinery())
    return _made[0] if _made else None


@functools.cache
def _is_served() -> bool:
    return is_known() and os.name == "posix" and hasattr(os, "register_at_fork")


def addresses() -> tuple[int, int]:
    """Of the functions ``acquire`` and ``release`` for machine code; zeros where there are none."""
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
            self.words[Word.REPORT] = id(_report)
            machinery.reset(self.address)
            self._brief, self._shared, self._exclusive = (
                machinery.holder(self.words, kind) for kind in (BRIEF, SHARED, EXCLUSIVE)
            )
        _locks.add(self)

    @property
    def is_native(self) -> bool:
        """Whether machine code can take the lock."""
        return self._plain is None

    def brief(self, function: Callable[[*Ts], R], /, *arguments: *Ts) -> R:
        """What ``function`` gives, called while the lock is held briefly."""
        result: R = self._brief(function, *arguments)
        return result

    def shared(self, function: Callable[[*Ts], R], /, *arguments: *Ts) -> R:
        """What ``function`` gives, called beside other long readers."""
        result: R = self._shared(function, *arguments)
        return result

    def exclusive(self, function: Callable[[*Ts], R], /, *arguments: *Ts) -> R:
        """What ``function`` gives, called while nobody else holds the lock."""
        result: R = self._exclusive(function, *arguments)
        return result

    def _hold_plainly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        assert self._plain is not None
        with self._plain:
            self.words[Word.GATE] += 1
            try:
                return function(*arguments)
            finally:
                self.words[Word.GATE] -= 1

    def start_again(self) -> None:
        """In a forked child: nobody but this thread holds the lock."""
        words, machinery = self.words, _machinery()
        if machinery is None:
            self._plain, words[:] = threading.RLock(), 0
            return
        other = words[Word.OWNER] not in (0, _signed(threading.get_ident()))
        torn = other and _says(int(words[Word.WRITING]))
        machinery.reset(self.address)
        told = self._on_torn() if self._on_torn is not None else None
        if torn and told is not None:
            told()


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _says(writing: int) -> bool:
    """Whether the word ``Word.WRITING`` means that something has been changed."""
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


def _report(owner: int, slices: int) -> None:
    """Called in a thread that has waited for so many slices.

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
    """Of a thread's frames: the function that a program of the session calls, and which thread it joins."""
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
