"""Reentrant locks that are free in a forked child: the thread that held one has stayed with the parent.

They are taken by ``with`` alone. CPython 3.11 to 3.13 run no signal handler between the moment when such a lock, which
is of C, is taken or given back and the block that it guards, so that an exception of a handler does not lose it. From
3.14 on taking it is a call of ``__enter__``, after which a handler may run: what that raises loses the lock.
"""

from __future__ import annotations

import os
import threading
import weakref

_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()


def reentrant_lock() -> threading.RLock:
    """A new lock."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _start_again() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
