"""Callings: the ways in which loaded programs are called, apart from their arguments.

Input: a loaded program and its arguments. Output: a ``Calling``: the function to call, the threads that it shares work
with, and which locks are held meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from staticgrad.base import config
from staticgrad.base.frozen import record
from staticgrad.compiler.binary import Binary
from staticgrad.compiler.machine.machine import least_seconds
from staticgrad.compiler.program.program import Interface
from staticgrad.runtime.parts.entry_words import DRAWS
from staticgrad.runtime.parts.interrupts import interruptible
from staticgrad.runtime.parts.locks import BRIEF, EXCLUSIVE, SHARED
from staticgrad.runtime.running.arguments import Arguments

# Programs that take a few microseconds keep the GIL: releasing it would not pay. What is thought short by mistake holds
# up other threads only briefly; what takes an unknown time, such as a loop without a bound, polls.
KEEP_LOCK_BELOW = 8e-6  # seconds

_RELEASING = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_KEEPING = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@record
class Calling:
    """The way in which a program is called.

    Attributes:
        main: the function, with the addresses of the pointer table, the arena and the pool or context; gives a status.
        address: where it is.
        pool: the address of the pool of threads, 0 for none.
        keeps_lock: whether a call keeps the GIL.
        hold: the kind of hold on the session's lock during a call; None where that reads and writes no state.
        entry_hold: the same in machine code, which also takes the numbers of runs that draw.
        is_interruptible: whether it is called with a context, by which a signal handler can end it.
        is_late: whether it calls functions whose exceptions are raised when it has come to its end.
        is_stepwise: whether it runs step by step beside its reference.
        starts: whether MPI may still write into its memory when it has ended early.
        borrows: whether its arena is the block of a tape.
        poisons: whether its arena is filled with a pattern before each call.
    """

    main: Callable[[int, int, int], int]
    address: int
    pool: int
    keeps_lock: bool
    hold: int | None
    entry_hold: int | None
    is_interruptible: bool
    is_late: bool
    is_stepwise: bool
    starts: bool
    borrows: bool
    poisons: bool


def calling_of(binary: Binary, arguments: Arguments) -> Calling:
    """The way in which a program is called; the pool of threads is made if there is none yet."""
    interface = binary.interface
    calls_out = bool(arguments.callbacks or arguments.collectives)
    keeps_lock = not calls_out and not interface.polls and estimated_seconds(interface) < KEEP_LOCK_BELOW
    is_interruptible = interface.polls and interruptible()
    hold = _hold(arguments, keeps_lock)
    address = binary.code.address("main")
    main: Callable[[int, int, int], int] = (_KEEPING if keeps_lock else _RELEASING)(address)
    if binary.stepwise is not None:
        from staticgrad.runtime.running.stepwise import StepwiseMain

        main = StepwiseMain(binary.code, interface.slots, binary.stepwise)
    return Calling(
        main=main,
        address=address,
        # A program that polls expects a context in the place of the pool.
        pool=0 if interface.polls and not is_interruptible else _pool_address(interface.workers),
        keeps_lock=keeps_lock,
        hold=hold,
        entry_hold=DRAWS if hold is None and arguments.keys else hold,
        is_interruptible=is_interruptible,
        is_late=any(slot.late for _, slot in arguments.callbacks),
        is_stepwise=binary.stepwise is not None,
        starts=any(slot.name == "reduce_start" for _, slot in arguments.collectives),
        borrows=interface.borrows,
        poisons=config.get("MEMORY") == "poison",
    )


def estimated_seconds(interface: Interface) -> float:
    """A rough lower bound of a call's time on one core."""
    return least_seconds(interface.flops, interface.bytes)


def _hold(arguments: Arguments, keeps_lock: bool) -> int | None:
    """The kind of hold on the session's lock during a call."""
    if arguments.written or arguments.gradients or (arguments.callbacks and arguments.variables):
        return EXCLUSIVE
    if not arguments.variables:
        return None
    return BRIEF if keeps_lock else SHARED


def _pool_address(threads: int) -> int:
    if threads < 2:
        return 0
    from staticgrad.runtime.parts.threads import pool_address

    return pool_address(threads)
