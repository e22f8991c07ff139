"""Two tiers of a program's code: what is made quickly runs first, optimised code takes its place, results are the same.

    in   LLVM text of the program's modules, a target, what is to be done with the optimised code once it is made
    out  ``TieredCode``: the address of ``main``, whether it is the optimised one by now, and a way to wait for that

Emitters write every rounding out (no fast-math flags, fused multiply-adds by name), so LLVM's code generator has no
choice that changes bits: code of its level 0 differs in time alone. It is made in about a quarter of the time, and a
call takes 2 to 4.6 times as long (``benchmarks/tiers.py``). All calls go through a *gate*: a function of one indirect
jump to the word that holds the address of the code. The optimised code is made by a thread, which stores its address
there: the next call enters it, calls under way end in the code that they are in. Nothing is locked for that, and a call
takes one jump longer.

There is one such thread in a process, while there is something to make, in the order in which it was asked for. A
session that is closed gives up what has not begun. A process that ends waits until what is to be kept on disk is made,
and drops the rest; one that forks waits until all is made, as its child has no such thread, and LLVM's locks must be
free in it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from staticgrad.base import config, log
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native import codegen
from staticgrad.compiler.native.kernels import ProgramObjects, aside, at_once
from staticgrad.compiler.native.module import Code, Loaded, load_code
from staticgrad.compiler.program.program import Program

# Quick code keeps every value in memory. It needs up to 21 bytes of the stack for a line of text, and the deepest
# program may take 64 KiB: a function of more lines is optimised at once.
MOST_LINES = 2000

GATE = """\
@code = internal global ptr @main
declare i32 @main(ptr, ptr, ptr)
define i32 @gate(ptr %slots, ptr %arena, ptr %pool) {
  %now = load atomic ptr, ptr @code acquire, align 8
  %status = musttail call i32 %now(ptr %slots, ptr %arena, ptr %pool)
  ret i32 %status
}
define ptr @word() {
  ret ptr @code
}
"""


def quick_modules(program: Program) -> tuple[bool, ...] | None:
    """A flag for each module of a program that says whether it is made quickly at first; None where none is."""
    switch = config.get("TIERS")
    if switch == "0" or (program.hot_modules is None and switch == "1"):
        return None
    hot = program.hot_modules if switch == "1" else 0
    quick = tuple(number >= (hot or 0) and may_be_quick(text) for number, text in enumerate(program.modules))
    return quick if any(quick) else None


def may_be_quick(text: str) -> bool:
    """True if no function of a module is so long that its frame might be too large for a stack."""
    return all(body.count("\n") <= MOST_LINES for body in text.split("\n}\n"))


@functools.cache
def _gate(target: Target) -> bytes:
    (code,) = codegen.objects((GATE,), target)
    return code


class TieredCode:
    """The code of a program in memory: that of its ``quick`` modules is made quickly, and optimised as soon as that is
    made.

    Args:
        objects: those of the program.
        quick: for each module whether it is made quickly at first.
        keep: called with the optimised code, if that is to be kept.

    Raises:
        RuntimeError: malformed text; with LLVM's message.
    """

    def __init__(
        self, objects: ProgramObjects, quick: Sequence[bool], target: Target, keep: Callable[[Code], None] | None
    ) -> None:
        self._objects: ProgramObjects | None = objects
        self._target = target
        self.keep = keep
        self._modules = len(quick)
        self._first = load_code(objects.code(quick, at_once(target), ((_gate(target), GATE),)))
        self._best: Loaded | None = None
        self._made = threading.Event()  # or what prevents it is known
        self.seconds = 0.0  # that making it took
        self._error: BaseException | None = None
        if config.get("TIERS") != "first":
            _THREAD.add(self)

    def address(self, name: str) -> int:
        """The address of ``main``; ``KeyError`` for any other name."""
        if name != "main":
            raise KeyError(name)
        return self._first.address("gate")

    @property
    def is_ready(self) -> bool:
        """True if the next call runs optimised code."""
        return self._best is not None

    def wait(self) -> None:
        """Return when ``is_ready``.

        Raises:
            RuntimeError: the optimised code could not be made.
        """
        if not self._made.is_set():
            _THREAD.add(self)
            self._made.wait()
        if self._error is not None:
            raise RuntimeError("the optimised code of a program could not be made") from self._error

    def improve(self) -> None:
        """Make the optimised code and let the next call enter it; what goes wrong is for ``wait`` to say."""
        begun = time.perf_counter()
        try:
            assert self._objects is not None
            code = self._objects.code([False] * self._modules, aside(self._target))
            best = load_code(code)
            word = ctypes.CFUNCTYPE(ctypes.c_void_p)(self._first.address("word"))()
            ctypes.c_void_p.from_address(word or 0).value = best.address("main")
            self._best = best
            if self.keep is not None:
                self.keep(code)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self.seconds = time.perf_counter() - begun
            self._objects, self.keep = None, None
            self._made.set()


class _Thread:
    """Makes optimised code in the background, by one thread, which ends when there is nothing left to make."""

    def __init__(self) -> None:
        self._waiting: deque[TieredCode] = deque()
        self._current: TieredCode | None = None
        self._changed = threading.Condition()  # guards all that is here
        self._thread: threading.Thread | None = None

    def add(self, code: TieredCode) -> None:
        """Have the optimised code of a program made, if that was not asked for yet."""
        with self._changed:
            if code.is_ready or code in self._waiting or self._current is code:
                return
            self._waiting.append(code)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="staticgrad: optimised code")
                try:
                    self._thread.start()
                except RuntimeError:  # there are no threads, or the process ends
                    self._run()

    def give_up(self, codes: Collection[TieredCode]) -> None:
        """Make no optimised code of these programs; return when that which has begun is made."""
        with self._changed:
            self._waiting = deque(code for code in self._waiting if code not in codes)
            while self._current in codes:
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._current = None
                self._changed.notify_all()
                if not threading.main_thread().is_alive():  # the process ends
                    self._waiting = deque(code for code in self._waiting if code.keep is not None)
                if not self._waiting:
                    self._thread = None
                    return
                self._current = code = self._waiting.popleft()
            try:
                code.improve()
            except Exception as error:
                kept = f"staticgrad: a program keeps its quick code: {error}"
                log.tell("compile", log.INFO, kept, asked=config.get("DEBUG") != "0")

    def drain(self) -> None:
        """Return when there is nothing left to make; until ``go_on`` nothing new begins."""
        self._changed.acquire()
        while self._thread is not None:
            self._changed.wait()

    def go_on(self) -> None:
        """End what ``drain`` has begun, in a parent and in a child that was forked meanwhile."""
        self._changed.release()


_THREAD = _Thread()
give_up = _THREAD.give_up
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_THREAD.drain, after_in_parent=_THREAD.go_on, after_in_child=_THREAD.go_on)
