"""Locks that no exception and no fork can lose: taking one, calling a function and giving it back are one call.

A signal handler may raise between any two bytecodes of Python, also between the last one that takes a lock and the
first one that is sure to give it back. So a lock is not taken by Python code: ``lock.exclusive(function, *arguments)``
takes it, calls the function, and gives it back whatever the function did, in one function of machine code with
CPython's own calling convention. The words of a lock are read and written with the interpreter's lock held (the GIL),
so each change of them is one step for all of Python. Compiled entries take the same locks (``runtime.entry_text``).

    brief       for what is done in Python and for short readers: waits for an exclusive or brief holder
    shared      for long readers, which run side by side: waits as brief does, then lets others in
    exclusive   for writers and for whoever calls back into Python: waits for all

The thread that holds a lock may take it again, with one exception: who holds it shared alone is refused exclusively,
since it would wait for itself (a signal handler that writes during a run that reads). A thread that waits does so
without the GIL and looks for signals every ``SLICE`` nanoseconds. Threads enter in the order in which they began to
wait, and who comes later waits behind them; but nobody waits behind a thread that runs its signal handlers, or behind
anybody while it is inside already. ``GATE`` counts the holders of every kind: while it is zero and the GIL is held,
nobody else is inside.

    row     ::= count thread{ROW}       the threads that hold a lock shared, once for each time, or that wait for it

At most ``ROW`` threads hold a lock shared at a time; of those that wait, the ones beyond that number have no order.

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
LOOKED_AT = 32  # whole slices of a wait, a power of two: each time it is looked at whether the wait can end
WARNED_AFTER = 512  # slices
BRIEF, SHARED, EXCLUSIVE = range(3)
INTERPRETER, CALLBACK = "staticgrad.interpreter", "call_function"  # where programs call Python functions


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
declare ptr @memmove(ptr, ptr, i64)
{declarations}

; The first place of a thread in a row, from 1; 0 where it has none.
define internal i64 @find(ptr %row, i64 %thread) {{
  %count = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 1, %0 ], [ %next, %compare ]
  %some = icmp sle i64 %i, %count
  br i1 %some, label %compare, label %nowhere
compare:
  %place = getelementptr i64, ptr %row, i64 %i
  %found = load i64, ptr %place
  %same = icmp eq i64 %found, %thread
  %next = add i64 %i, 1
  br i1 %same, label %there, label %look
there:
  ret i64 %i
nowhere:
  ret i64 0
}}

; How many places of a row a thread has.
define internal i64 @times(ptr %row, i64 %thread) {{
  %count = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 1, %0 ], [ %next, %compare ]
  %sum = phi i64 [ 0, %0 ], [ %more, %compare ]
  %some = icmp sle i64 %i, %count
  br i1 %some, label %compare, label %done
compare:
  %place = getelementptr i64, ptr %row, i64 %i
  %found = load i64, ptr %place
  %same = icmp eq i64 %found, %thread
  %one = zext i1 %same to i64
  %more = add i64 %sum, %one
  %next = add i64 %i, 1
  br label %look
done:
  ret i64 %sum
}}

; Whether another thread stands in front of this one, or anywhere in the row where this one has no place. Who runs its
; signal handlers does not count.
define internal i1 @is_behind(ptr %row, i64 %thread) {{
  %count = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 1, %0 ], [ %next, %other ]
  %some = icmp sle i64 %i, %count
  br i1 %some, label %compare, label %no
compare:
  %place = getelementptr i64, ptr %row, i64 %i
  %found = load i64, ptr %place
  %mine = icmp eq i64 %found, %thread
  br i1 %mine, label %no, label %other
other:
  %away = icmp slt i64 %found, 0
  %next = add i64 %i, 1
  br i1 %away, label %look, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}}

; Give a thread the last place of a row, unless the row is full.
define internal void @append(ptr %row, i64 %thread) {{
  %count = load i64, ptr %row
  %room = icmp slt i64 %count, {row}
  br i1 %room, label %adding, label %done
adding:
  %more = add i64 %count, 1
  %place = getelementptr i64, ptr %row, i64 %more
  store i64 %thread, ptr %place
  store i64 %more, ptr %row
  br label %done
done:
  ret void
}}

; Take away the first place of a thread, if it has one.
define internal void @remove(ptr %row, i64 %thread) {{
  %at = call i64 @find(ptr %row, i64 %thread)
  %some = icmp ne i64 %at, 0
  br i1 %some, label %removing, label %done
removing:
  %count = load i64, ptr %row
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr %row
  %place = getelementptr i64, ptr %row, i64 %at
  %behind = getelementptr i64, ptr %place, i64 1
  %others = sub i64 %count, %at
  %nbytes = mul i64 %others, 8
  call ptr @memmove(ptr %place, ptr %behind, i64 %nbytes)
  br label %done
done:
  ret void
}}

; Write another number into the first place of a thread, if it has one.
define internal void @rename(ptr %row, i64 %thread, i64 %number) {{
  %at = call i64 @find(ptr %row, i64 %thread)
  %some = icmp ne i64 %at, 0
  br i1 %some, label %renaming, label %done
renaming:
  %place = getelementptr i64, ptr %row, i64 %at
  store i64 %number, ptr %place
  br label %done
done:
  ret void
}}

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
  %reads = call i64 @times(ptr %READERS, i64 %me)
  %inside = add i64 %left, %reads
  store i64 %still, ptr %OWNER
  store i64 %left, ptr %DEPTH
  store i64 %inside, ptr %GATE
  store i64 %kept, ptr %WRITING
  store i64 0, ptr %READERS
  store i64 0, ptr %WAITERS
  br label %reading
reading:
  %i = phi i64 [ 0, %0 ], [ %next, %one ]
  %more = icmp slt i64 %i, %reads
  br i1 %more, label %one, label %done
one:
  call void @append(ptr %READERS, i64 %me)
  %next = add i64 %i, 1
  br label %reading
done:
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
{add[SERIAL]}
  call i32 @pthread_cond_broadcast(ptr %WAKE)
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  br label %done
done:
  ret void
}}

; Sleep without the GIL until somebody wakes (0), or for a slice (1); then run signal handlers: -1 if one has raised.
define internal i32 @wait(ptr %lock, i64 %me) {{
{places}
  %until = alloca [2 x i64], align 8
  %fine_place = getelementptr i64, ptr %until, i64 1
  %before = load i64, ptr %SERIAL
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
  %slept = phi i32 [ 0, %look ], [ 1, %sleep ]
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  call void @PyEval_RestoreThread(ptr %thread)
  %away = sub i64 0, %me
  call void @rename(ptr %WAITERS, i64 %me, i64 %away)
  %raised = call i32 @PyErr_CheckSignals()
  call void @rename(ptr %WAITERS, i64 %away, i64 %me)
  %bad = icmp ne i32 %raised, 0
  %answer = select i1 %bad, i32 -1, i32 %slept
  ret i32 %answer
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
  %is_shared = icmp eq i64 %kind, {shared}
  %is_exclusive = icmp eq i64 %kind, {exclusive}
  br label %try
try:
  %waited = phi i64 [ 0, %0 ], [ %slices, %again ]
  %owner = load i64, ptr %OWNER
  %readers = load i64, ptr %READERS
  %waiters = load i64, ptr %WAITERS
  %inside_or_out = or i64 %owner, %readers
  %anybody = or i64 %inside_or_out, %waiters
  %idle = icmp eq i64 %anybody, 0
  br i1 %idle, label %take, label %look
look:
  %mine = icmp eq i64 %owner, %me
  %own = call i64 @times(ptr %READERS, i64 %me)
  %reads = icmp ne i64 %own, 0
  %is_reader_alone = icmp ugt i1 %reads, %mine
  %waits_for_itself = and i1 %is_reader_alone, %is_exclusive
  br i1 %waits_for_itself, label %refuse, label %compare
compare:
  %owned = icmp ne i64 %owner, 0
  %taken_by_other = icmp ugt i1 %owned, %mine
  %others = icmp ne i64 %readers, %own
  %shut = and i1 %others, %is_exclusive
  %full = icmp eq i64 %readers, {row}
  %no_room = and i1 %full, %is_shared
  %inside = or i1 %mine, %reads
  %follows = call i1 @is_behind(ptr %WAITERS, i64 %me)
  %behind = icmp ugt i1 %follows, %inside
  %held = or i1 %taken_by_other, %shut
  %held_or_full = or i1 %held, %no_room
  %busy = or i1 %held_or_full, %behind
  br i1 %busy, label %queue, label %enter
queue:
  %place = call i64 @find(ptr %WAITERS, i64 %me)
  %new = icmp eq i64 %place, 0
  br i1 %new, label %last, label %sleep
last:
  call void @append(ptr %WAITERS, i64 %me)
  br label %sleep
sleep:
  %status = call i32 @wait(ptr %lock, i64 %me)
  %raised = icmp slt i32 %status, 0
  br i1 %raised, label %leave, label %awake
awake:
  %slept = zext i32 %status to i64
  %slices = add i64 %waited, %slept
  %past = and i64 %slices, {look_mask}
  %is_whole = icmp eq i64 %past, 0
  %has_slept = icmp ne i32 %status, 0
  %long = and i1 %is_whole, %has_slept
  br i1 %long, label %tell, label %again
tell:
  %told = call i32 @report(ptr %lock, i64 %slices)
  %refused = icmp ne i32 %told, 0
  br i1 %refused, label %leave, label %again
again:
  br label %try
refuse:
  %refusal = load ptr, ptr %REFUSE
  call ptr @PyObject_Vectorcall(ptr %refusal, ptr null, i64 0, ptr null)
  br label %leave
leave:
  call void @remove(ptr %WAITERS, i64 %me)
  call void @wake(ptr %lock)
  ret i32 -1
enter:
  call void @remove(ptr %WAITERS, i64 %me)
  br i1 %is_shared, label %not_alone, label %take
not_alone:
  call void @wake(ptr %lock)
  br label %take
take:
{add[GATE]}
  br i1 %is_shared, label %read_it, label %own_it
read_it:
  call void @append(ptr %READERS, i64 %me)
  ret i32 0
own_it:
  store i64 %me, ptr %OWNER
{add[DEPTH]}
  ret i32 0
}}

define void @release(ptr %lock, i64 %kind) {{
{places}
  %me = call i64 @pthread_self()
{subtract[GATE]}
  %is_shared = icmp eq i64 %kind, {shared}
  br i1 %is_shared, label %leave, label %disown
leave:
  call void @remove(ptr %READERS, i64 %me)
  br label %left
disown:
{subtract[DEPTH]}
  %still = icmp ne i64 %DEPTH_after, 0
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


def _changed(word: str, operation: str) -> str:
    """LLVM text that adds 1 to a word or subtracts it, and names the value ``%word_after``."""
    return f"""  %{word}_before = load i64, ptr %{word}
  %{word}_after = {operation} i64 %{word}_before, 1
  store i64 %{word}_after, ptr %{word}"""


def _text() -> str:
    linux = sys.platform == "linux"  # elsewhere a condition waits by the time of day
    clock = time.CLOCK_MONOTONIC if linux else time.CLOCK_REALTIME
    return _TEXT.format(
        declarations="declare i32 @pthread_condattr_setclock(ptr, i32)" if linux else "",
        set_clock=f"call i32 @pthread_condattr_setclock(ptr %attributes, i32 {clock})" if linux else "",
        places=named_words(LockWord, "%lock"),
        add={word: _changed(word, "add") for word in ("GATE", "DEPTH", "SERIAL")},
        subtract={word: _changed(word, "sub") for word in ("GATE", "DEPTH")},
        row=ROW,
        clock=clock,
        slice=SLICE,
        look_mask=LOOKED_AT - 1,
        shared=SHARED,
        exclusive=EXCLUSIVE,
    )


METH_FASTCALL = 0x0080
_Words = np.ndarray[Any, np.dtype[np.int64]]


class _LockRuntime:
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
_made: list[_LockRuntime] = []


def _machinery() -> _LockRuntime | None:
    """None where a lock is Python's own."""
    if not _made and _is_served():
        with _making:  # two of them, of which one is forgotten, would leave functions whose code is gone
            if not _made:
                _made.append(_LockRuntime())
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
            self.words[LockWord.REPORT], self.words[LockWord.REFUSE] = id(_report), id(_refuse)
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
            self.words[LockWord.GATE] += 1
            try:
                return function(*arguments)
            finally:
                self.words[LockWord.GATE] -= 1

    def start_again(self) -> None:
        """In a forked child: nobody but this thread holds the lock."""
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
    """Whether the word ``LockWord.WRITING`` means that something has been changed."""
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
