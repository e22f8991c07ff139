"""Programs that can be interrupted: how one that runs without the interpreter's lock (the GIL) hears of signals.

Python runs signal handlers in the main thread, between bytecodes, so never while a program runs. A program that may
take long (``compiler.emit.polls``) therefore asks from time to time, before it has written any state: it calls
``poll``, which once in ``INTERVAL`` nanoseconds takes the GIL and lets Python run its handlers. Where one raises
(Ctrl-C, a time limit) the program ends with a status of its own, and ``raise_it`` sets the exception when the GIL is
held again. In any other thread ``poll`` does nothing. What a Python function of the program raises (``sg.print``, or a
handler that runs while it prints) ends the program in the same way.

    context ::= words of one call in flight, in the place of the pool: the first is the address of a ``run`` that looks
                for signals between the chunks that the caller takes, and lets nobody take one after an interruption
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import partial

import numpy as np

from staticgrad.compiler.emit.native import NativeModule, clock, named_words
from staticgrad.compiler.emit.target import GENERIC
from staticgrad.compiler.program import ContextWord
from staticgrad.forks import reentrant_lock
from staticgrad.runtime.locks import addresses

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


_TEXT = """
declare i64 @pthread_self()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare void @PyErr_Clear()
declare i32 @PyException_SetTraceback(ptr, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyLong_FromVoidPtr(ptr)
declare i64 @PyLong_AsLong(ptr)
declare void @Py_DecRef(ptr)

{now}

; Before a program is called with this context.
define void @begin(ptr %context) {{
{places}
  %main_place = load ptr, ptr %MAIN
  %main = load i64, ptr %main_place
  %me = call i64 @pthread_self()
  %same = icmp eq i64 %main, %me
  %watches = zext i1 %same to i64
  %now = call i64 @now()
  store i64 %watches, ptr %WATCHES
  store i64 %now, ptr %LAST
  store i64 0, ptr %COMMITTED
  store atomic i64 0, ptr %STOPPED seq_cst, align 8
  ret void
}}

; Called by the thread that called the program: not null when it shall end.
define i32 @poll(ptr %context) {{
{places}
  %stopped = load atomic i64, ptr %STOPPED monotonic, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %yes, label %going
going:
  %watches = load i64, ptr %WATCHES
  %committed = load i64, ptr %COMMITTED
  %watched = icmp ne i64 %watches, 0
  %undone = icmp eq i64 %committed, 0
  %asks = and i1 %watched, %undone
  br i1 %asks, label %timed, label %no
timed:
  %now = call i64 @now()
  %last = load i64, ptr %LAST
  %passed = sub i64 %now, %last
  %due = icmp sge i64 %passed, {interval}
  br i1 %due, label %look, label %no
look:
  %gil = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %ending, label %looked
ending:
  call void @PyErr_Fetch(ptr %TYPE, ptr %VALUE, ptr %TRACE)
  store atomic i64 1, ptr %STOPPED seq_cst, align 8
  br label %looked
looked:
  %then = call i64 @now()
  store i64 %then, ptr %LAST
  call void @PyGILState_Release(i32 %gil)
  br i1 %raised, label %yes, label %no
yes:
  ret i32 1
no:
  ret i32 0
}}

; Set the exception that ended a program. The GIL is held.
define void @raise_it(ptr %context) {{
{places}
  %type = load ptr, ptr %TYPE
  %value = load ptr, ptr %VALUE
  %trace = load ptr, ptr %TRACE
  store ptr null, ptr %TYPE
  store ptr null, ptr %VALUE
  store ptr null, ptr %TRACE
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %trace)
  ret void
}}

; What a program calls: a Python function with the operands' address. What is raised in it, by a signal handler before
; its first bytecode too, ends the program where it can be ended, or goes to another function, which is of C.
define i32 @call_python(ptr %words, ptr %operands) {{
  %error = alloca [3 x ptr], align 8
  %value_place = getelementptr ptr, ptr %error, i64 1
  %trace_place = getelementptr ptr, ptr %error, i64 2
{call_places}
  %gil = call i32 @PyGILState_Ensure()
  %address = call ptr @PyLong_FromVoidPtr(ptr %operands)
  %function = load ptr, ptr %FUNCTION
  %answer = call ptr @PyObject_CallOneArg(ptr %function, ptr %address)
  call void @Py_DecRef(ptr %address)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %failed, label %ended
ended:
  %number = call i64 @PyLong_AsLong(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  br label %done
failed:
  call void @PyErr_Fetch(ptr %error, ptr %value_place, ptr %trace_place)
  call void @PyErr_NormalizeException(ptr %error, ptr %value_place, ptr %trace_place)
  %type = load ptr, ptr %error
  %value = load ptr, ptr %value_place
  %trace = load ptr, ptr %trace_place
  %traced = icmp ne ptr %trace, null
  br i1 %traced, label %tracing, label %deciding
tracing:
  call i32 @PyException_SetTraceback(ptr %value, ptr %trace)
  br label %deciding
deciding:
  %context = load ptr, ptr %CONTEXT
  %has_none = icmp eq ptr %context, null
  br i1 %has_none, label %telling, label %looking
looking:
{places}
  %stopped = load atomic i64, ptr %STOPPED monotonic, align 8
  %committed = load i64, ptr %COMMITTED
  %either = or i64 %stopped, %committed
  %goes_on = icmp ne i64 %either, 0
  br i1 %goes_on, label %telling, label %stopping
stopping:
  store ptr %type, ptr %TYPE
  store ptr %value, ptr %VALUE
  store ptr %trace, ptr %TRACE
  store atomic i64 1, ptr %STOPPED seq_cst, align 8
  br label %done
telling:
  %tell = load ptr, ptr %TELL
  %told = call ptr @PyObject_CallOneArg(ptr %tell, ptr %value)
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %told)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %value)
  call void @Py_DecRef(ptr %trace)
  %failure = load i64, ptr %FAILURE
  br label %done
done:
  %result = phi i64 [ %number, %ended ], [ %failure, %telling ], [ 0, %stopping ]
  call void @PyGILState_Release(i32 %gil)
  %status = trunc i64 %result to i32
  ret i32 %status
}}

; A chunk, unless the program shall end. The table: the context, the part, the part's own table.
define internal void @polled_part(ptr %table, i64 %chunk, i64 %worker) {{
  %context = load ptr, ptr %table
  %part_place = getelementptr ptr, ptr %table, i64 1
  %own_place = getelementptr ptr, ptr %table, i64 2
{places}
  %is_caller = icmp eq i64 %worker, 0
  br i1 %is_caller, label %asking, label %looking
asking:
  %status = call i32 @poll(ptr %context)
  %ended = icmp ne i32 %status, 0
  br i1 %ended, label %done, label %one
looking:
  %stopped = load atomic i64, ptr %STOPPED monotonic, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %done, label %one
one:
  %part = load ptr, ptr %part_place
  %own = load ptr, ptr %own_place
  call void %part(ptr %own, i64 %chunk, i64 %worker)
  br label %done
done:
  ret void
}}

; As a pool's own: with the pool of the context, or alone. Who has begun to write state does all chunks.
define void @run(ptr %context, ptr %part, ptr %table, i64 %chunks) {{
{places}
  %polled = alloca [3 x ptr], align 8
  %polled_own = getelementptr ptr, ptr %polled, i64 2
  %polled_place = getelementptr ptr, ptr %polled, i64 1
  store ptr %context, ptr %polled
  store ptr %part, ptr %polled_place
  store ptr %table, ptr %polled_own
  %watches = load i64, ptr %WATCHES
  %committed = load i64, ptr %COMMITTED
  %watched = icmp ne i64 %watches, 0
  %undone = icmp eq i64 %committed, 0
  %asks = and i1 %watched, %undone
  %function = select i1 %asks, ptr @polled_part, ptr %part
  %given = select i1 %asks, ptr %polled, ptr %table
  %pool = load ptr, ptr %POOL
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %next, label %together
together:
  %run = load ptr, ptr %pool
  call void %run(ptr %pool, ptr %function, ptr %given, i64 %chunks)
  ret void
next:
  %i = phi i64 [ 0, %0 ], [ %following, %one ]
  %some = icmp slt i64 %i, %chunks
  br i1 %some, label %one, label %done
one:
  call void %function(ptr %given, i64 %i, i64 0)
  %following = add i64 %i, 1
  br label %next
done:
  ret void
}}
"""


class _ContextRuntime:
    """What all contexts of a process share. It lives as long as the process."""

    def __init__(self) -> None:
        places = "\n".join(named_words(words, "%context") for words in (ContextWord, ContextLayout))
        call_places = named_words(CallWord, "%words")
        text = _TEXT.format(places=places, call_places=call_places, now=clock(), interval=INTERVAL)
        self.module = NativeModule(text, GENERIC)
        self.begin, self.raise_it = (
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.module.address(name)) for name in ("begin", "raise_it")
        )
        self.main = np.zeros(1, np.int64)
        self.note_main()
        os.register_at_fork(after_in_child=self.note_main)

    def note_main(self) -> None:
        ident = threading.main_thread().ident or 0
        self.main[0] = ident - 2**64 if ident >= 2**63 else ident


_making = reentrant_lock()
_made: list[_ContextRuntime] = []


def _machinery() -> _ContextRuntime | None:
    if not _made and addresses()[0]:
        with _making:
            if not _made:
                _made.append(_ContextRuntime())
    return _made[0] if _made else None


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
        """What is called before the program, and where it was interrupted: of the context."""
        module = self._machinery.module
        return module.address("begin"), module.address("raise_it")

    def begin(self) -> None:
        """What is to be done before a program is called with this context."""
        self._machinery.begin(self.address)

    def raise_it(self) -> None:
        """Raise what ended the program."""
        self._machinery.raise_it(self.address)

    def take(self) -> BaseException | None:
        """What was to end a program that came to its end before it looked."""
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
    """Whether programs of this process can be interrupted."""
    return _machinery() is not None
