"""The lock of a loaded program's state: runs that only read it go side by side, what writes it goes alone.

    reader: note the thread -> a writer? then wait for the lock -> run -> take the note back, wake a writer
    writer: take the lock -> say so -> wait until no reader is noted -> run

Noting and looking are single steps of the interpreter, in opposite orders, so that one of the two sees the other. A
reader pays for no lock. Readers that come while a writer waits let it go first, except in a thread that reads already
(a signal handler's), for which the writer waits. Whatever a signal handler raises between two steps, no note is left
behind: it is taken back by who may have made it.

Programs that keep the interpreter while they run are called in machine code and note nothing: no other thread can come
between. They look at ``gates`` first, words that say whether a thread is noted, and at ``torn``.

In a forked child the notes of other threads are gone; if one of those was writing, the state is torn.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.runtime.parts.entry_words import DICT_USED


class StateLock:
    """See the module's docstring.

        try:                                with lock.writers:
            lock.begin_reading(note)            try:
            …                                       lock.begin_writing(note)
        finally:                                    …
            lock.end_reading(note)              finally:
                                                    lock.end_writing(note)

    A note is any object of the reader's or writer's own. ``torn`` has a word that is not 0 where this process was
    forked while another thread wrote.
    """

    __slots__ = ("__weakref__", "_drained", "_readers", "_writers", "is_torn", "torn", "writers")

    def __init__(self) -> None:
        self.writers = threading.RLock()
        self.is_torn, self.torn = False, np.zeros(1, np.int64)
        self._readers: dict[object, int] = {}  # threads by notes
        self._writers: dict[object, bool] = {}  # by notes of writers, one in the other: whether they have begun
        self._drained = threading.Event()
        _locks.add(self)

    def gates(self, *, writes: bool) -> tuple[int, int]:
        """The addresses of words that are 0 while a run that holds the interpreter may go on: how many writers are
        noted and, of a run that writes, how many readers; then null."""
        readers = id(self._readers) + DICT_USED if writes else 0
        return id(self._writers) + DICT_USED, readers

    def begin_reading(self, note: object) -> None:
        """Keep writers out until ``end_reading``.

        Raises:
            StaticGradError: the state is torn.
        """
        self._readers[note] = get_ident()
        if self._writers:
            self._wait_for_writers(note)
        if self.is_torn:
            self.check_whole()

    def end_reading(self, note: object) -> None:
        """End what ``begin_reading`` began, or would have begun."""
        self._readers.pop(note, None)
        if self._writers:
            self._drained.set()

    def _wait_for_writers(self, note: object) -> None:
        if list(self._readers.values()).count(get_ident()) > 1:
            return
        self.end_reading(note)
        with self.writers:
            self._readers[note] = get_ident()

    def begin_writing(self, note: object, *, whole: bool = True) -> None:
        """Wait until no thread reads; the caller holds ``writers``. With ``whole`` a torn state is refused.

        Raises:
            StaticGradError: the state is torn, or this thread is in the middle of a run that reads it.
        """
        self._writers[note] = False
        while self._readers:
            if get_ident() in list(self._readers.values()):
                raise StaticGradError(
                    "the state of a program would be written in the middle of a run that reads it, by the same"
                    " thread: called from a signal handler? Let the handler note the signal, and write later"
                )
            self._drained.wait()
            self._drained.clear()
        if whole and self.is_torn:
            self.check_whole()
        self._writers[note] = True

    def end_writing(self, note: object) -> None:
        """End what ``begin_writing`` began, or would have begun."""
        self._writers.pop(note, None)

    @contextmanager
    def writing(self, *, whole: bool = True) -> Iterator[None]:
        """A block in which no other thread reads or writes. Without ``whole`` it may begin with a torn state, which it
        makes whole.

        Raises:
            StaticGradError: as ``begin_writing``.
        """
        note = object()
        with self.writers:
            try:
                self.begin_writing(note, whole=whole)
                yield
                self._tear(False)
            finally:
                self.end_writing(note)

    def _tear(self, torn: bool) -> None:
        self.torn[0] = self.is_torn = torn

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block in which no thread writes.

        Raises:
            StaticGradError: the state is torn.
        """
        note = object()
        try:
            self.begin_reading(note)
            yield
        finally:
            self.end_reading(note)

    def check_whole(self) -> None:
        """Refuse the state of a child that was forked while another thread wrote it.

        Raises:
            StaticGradError: it is torn.
        """
        if self.is_torn:
            raise StaticGradError(
                "this process was forked while another thread wrote the state of the program, of which it may have but"
                " a part: reset() or restore() it here, or fork while no thread runs it"
            )

    def start_again(self) -> None:
        """In a forked child: the other threads have stayed with the parent."""
        for note, thread in list(self._readers.items()):
            if thread != get_ident():
                del self._readers[note]
        self._drained = threading.Event()
        if self.writers.acquire(blocking=False):
            self.writers.release()
            return
        self.writers._at_fork_reinit()  # type: ignore[attr-defined]
        self._tear(self.is_torn or any(self._writers.values()))
        self._writers.clear()


_locks: weakref.WeakSet[StateLock] = weakref.WeakSet()


def _start_again() -> None:
    for lock in list(_locks):
        lock.start_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
