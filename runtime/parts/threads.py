"""The pool: threads of machine code that share the chunks of a kernel (``compiler.emit.parallel``).

``pool_address(threads)`` gives what a program is handed: null for one thread or where there are no POSIX threads. A
pool of n threads is the caller and n - 1 workers, made when first needed, shared by all sessions of the process with
the same number of threads.

    run(pool, part, table, chunks)
        takes the pool, or does all chunks itself where another thread has it
        deals shares, opens the gate, wakes who sleeps, takes chunks until none is left, closes the gate, waits for who
        is inside
    worker
        waits for the gate, enters, takes chunks until none is left, leaves

A thread takes the chunks of its own share first, an n-th of them that lies together, then what the others have left of
theirs: what a thread has written in one kernel is in its own caches when it reads it in the next.

Who waits spins for a while, since the next kernel of a program usually comes within microseconds and waking a thread
that sleeps takes the time of many kernels; then it sleeps. It never merely gives way: others would run for
milliseconds, whatever their priority, where one that sleeps is woken at once. A pool of more threads than there are
processors spins only briefly, since it would take the time from its own workers.

Waking a thread takes microseconds of who does it. So the caller wakes two, and each that was asleep two more while
there are chunks left: the caller is soon at work, and all are awake after few turns.

A thread that is woken may be put on the processor of the one that woke it, and Linux has been seen to leave the two
there for seconds, with another one idle. So a worker that finds itself on the caller's processor moves to another,
where the system has a call for that, and is as free to be moved as before.

A worker that comes too late finds the gate closed and touches nothing; so no thread waits for a worker that has not
entered, a machine that is busy costs no more than what the others had begun, and after a fork, where the workers are
gone, calls still end. The gate's number is odd while it is open. Entering is *count, then look at the gate*, closing is
*close, then look at the count*, both sequentially consistent, so that one of the two sees the other (Dekker).

Workers never touch Python. They block all signals, take over the caller's floating-point modes, and are joined before
the interpreter ends; in a forked child the pool starts again with workers of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import sys
import time
from typing import Any

import numpy as np

from staticgrad.base import config
from staticgrad.base.addresses import aligned_empty
from staticgrad.base.config import host_arch
from staticgrad.base.forks import reentrant_lock
from staticgrad.compiler.native.module import NativeModule
from staticgrad.runtime.parts.machinery import native_part

SPIN_SECONDS = 100e-6  # of a wait, until the thread sleeps
CROWDED_SPIN_SECONDS = 5e-6  # the same where there are more threads than processors
WOKEN_BY_ONE = 2  # threads, where they sleep
PAUSES = 4  # of 10 to 50 ns, between two looks
MOST_THREADS = 256
STACK_BYTES = 1 << 20  # of a worker: kernels take a few KiB, the C library the variables of a thread of all libraries
CPU_SET = 128  # bytes of the C library's set of processors


class PoolWord:
    """The words of a pool, in cache lines by who writes them."""

    RUN = 0  # address of run: what a program calls
    WORKERS = 1
    STARTED = 2
    STOP = 3
    PATIENCE = 4  # nanoseconds that a waiting thread spins
    BUSY = 8
    GATE = 16
    INSIDE = 32  # workers that have entered
    PART = 40
    TABLE = 41
    MODES = 43  # the caller's floating-point control word
    PROCESSOR = 44  # the caller's
    ASLEEP = 48
    WAITING = 49  # whether the caller sleeps until no thread is inside
    MUTEX = 56  # room for the largest of any system
    WAKE = 64
    LEFT = 72
    THREADS = 80  # a record for each thread, the caller's first


class ThreadRecord:
    """The words of a thread's record; the first three are a worker's."""

    POOL = 0
    NUMBER = 1
    HANDLE = 2
    NEXT = 3  # the chunk of the thread's share that is taken next
    END = 4  # of the share


RECORD = 8  # words: a cache line


PROCESSORS = {"x86_64": "processors_x86_64", "aarch64": "processors_aarch64"}  # texts of those with modes to take over


class Pool:
    """The memory of a pool. It lives as long as the process: its workers may look at it at any time."""

    def __init__(self, threads: int, module: NativeModule) -> None:
        self.threads = threads
        self.words = aligned_empty((PoolWord.THREADS + RECORD * threads,), np.dtype(np.int64))
        self.words[:] = 0
        self.address: int = self.words.ctypes.data
        self._reset = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address("reset"))
        self._stop = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(module.address("stop"))
        self._module = module
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # never freed, not even while the interpreter ends
        self.reset()

    def reset(self) -> None:
        """A pool without workers; the first use makes them."""
        seconds = SPIN_SECONDS if self.threads <= config.available_cores() else CROWDED_SPIN_SECONDS
        self.words[PoolWord.PATIENCE] = round(seconds * 1e9)
        self.words[PoolWord.WORKERS] = self.threads - 1
        self._reset(self.address)

    def stop(self) -> bool:
        """End the workers, unless the pool is in use; later calls do their chunks themselves."""
        return bool(self._stop(self.address))


_pools: dict[int, Pool] = {}
_lock = reentrant_lock()


@functools.cache
def _module() -> NativeModule:
    module = native_part(
        __file__,
        "threads",
        "systems_linux" if sys.platform == "linux" else "systems",
        PROCESSORS.get(host_arch(), "processors"),
        quick=False,  # the workers' loops are on the way of every shared kernel
        MONOTONIC=time.CLOCK_MONOTONIC,
        SIG_SETMASK=int(signal.SIG_SETMASK),
    )
    os.register_at_fork(after_in_child=_start_again)
    atexit.register(_stop_all)
    return module


def _start_again() -> None:
    """In a forked child: the workers have stayed with the parent."""
    for pool in _pools.values():
        pool.reset()


def _stop_all() -> None:
    for pool in _pools.values():
        pool.stop()


def native_threads() -> bool:
    """True if this system has what the pool is made of."""
    return os.name == "posix" and hasattr(os, "register_at_fork") and hasattr(signal, "pthread_sigmask")


def pool_address(threads: int) -> int:
    """The pool of that number of threads, the caller among them; 0 (null) where there is nothing to share."""
    if threads < 2 or not native_threads():
        return 0
    threads = min(threads, MOST_THREADS)
    with _lock:
        if threads not in _pools:
            _pools[threads] = Pool(threads, _module())
        return _pools[threads].address


def pools() -> dict[int, Any]:
    """The pools of this process by their number of threads."""
    return dict(_pools)
