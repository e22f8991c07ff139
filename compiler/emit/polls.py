"""Polls for interruption: the places at which a program looks whether it shall end, and what a call in flight that can
be interrupted hands over for that.

A program that *polls* is called with the words of a context in the place of the pool (``runtime.parts.interrupts``), or
with null. The code that asks is a call, so it stands only between steps and turns of loops that take long, and before
the first write of state: then the word ``COMMITTED`` is set, and the program runs to its end.
"""

from __future__ import annotations

from staticgrad.compiler.emit.llvm import Function, IRModule, Value, integer
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.program.slots import INTERRUPTED, ContextWord

MOST_TURNS = 4096


def turns_between(turn_seconds: float) -> int:
    """The number of turns, a power of two, after which a loop looks."""
    wanted = min(MOST_TURNS, max(1, int(RATES.loop_poll_seconds / turn_seconds)))
    return 1 << (wanted.bit_length() - 1)


def end_if_interrupted(f: Function, *, asks: bool) -> None:
    """End the program if it shall end; unless ``asks``, only if it was told so before, in the chunks of a kernel."""
    stopped = f.call(_asking(f.module) if asks else _told(f.module), "i1", f.params[2])
    with f.when(stopped):
        f.ret(integer(INTERRUPTED, "i32"))
        f.block(f.label("unreachable"))


def commit(f: Function) -> None:
    """Note that from here on the program runs to its end."""
    context = f.params[2]
    with f.when(f.compare("icmp ne", context, Value("null", "ptr"))):
        f.store(integer(1), f.offset(context, ContextWord.COMMITTED, "i64"))


def _asking(module: IRModule) -> str:
    """i1 interrupted(ptr context)"""
    return module.leaf("interrupted", ["ptr"], _write, ContextWord.POLL, result="i1")


def _told(module: IRModule) -> str:
    """i1 stopped(ptr context)"""
    return module.leaf("stopped", ["ptr"], _write, ContextWord.STOPPED, result="i1")


def _write(f: Function, word: int) -> None:
    (context,) = f.params
    with f.when(f.compare("icmp eq", context, Value("null", "ptr"))):
        f.ret(integer(0, "i1"))
        f.block(f.label("unreachable"))
    place = f.offset(context, word, "i64")
    if word == ContextWord.POLL:
        status = f.emit("i32", f"call i32 {f.load('ptr', place).text}({context})")
        f.ret(f.compare("icmp ne", status, integer(0, "i32")))
    else:
        f.ret(f.compare("icmp ne", f.emit("i64", f"load volatile i64, {place}"), integer(0)))
