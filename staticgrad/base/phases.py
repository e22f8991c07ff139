"""Measurement of how long each phase of a compilation takes, for whoever watches.

    with watched() as seconds:           # a dict: phase -> seconds, in the order in which the phases first ended
        session.compile(...)

Functions that are phases are decorated with ``phase(name)``, or run inside ``with phase(name):``. A phase inside
another one counts for itself alone, so the seconds of all phases add up to the time that was spent in any. Where no
watcher is there a phase costs a look at a thread's variables.

    with told(function):                 # function(phase) whenever one begins or goes on
        session.compile(...)

    with counted() as counts:            # a Counter: what was done, such as kernels that were compiled
        session.compile(...)
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

COMPILED, IN_MEMORY, ON_DISK = "kernels compiled", "kernels found in memory", "kernels found on disk"
TEMPLATES = "templates"  # pieces that repeat in a graph and were compiled once


class _Watch(threading.local):
    def __init__(self) -> None:
        self.seconds: dict[str, float] | None = None
        self.inner: list[float] = []  # for each open phase the seconds of those inside it
        self.listener: Callable[[str], None] | None = None
        self.name = ""  # of the phase that the listener heard of last
        self.counts: Counter[str] | None = None


_watch = _Watch()


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Count what runs inside, without the phases in it, as time of ``name``. Decorates functions too."""
    seconds = _watch.seconds
    if _watch.listener is not None:
        _watch.name = name
        goes_on()
    if seconds is None:
        yield
        return
    begun = time.perf_counter()
    _watch.inner.append(0.0)
    try:
        yield
    finally:
        spent = time.perf_counter() - begun
        seconds[name] = seconds.get(name, 0.0) + spent - _watch.inner.pop()
        if _watch.inner:
            _watch.inner[-1] += spent


@contextlib.contextmanager
def watched() -> Iterator[dict[str, float]]:
    """The seconds of the phases that end inside, in this thread; a watcher around this one has them, too."""
    before, inside = _watch.seconds, dict[str, float]()
    _watch.seconds = inside
    try:
        yield inside
    finally:
        _watch.seconds = before
        if before is not None:
            for name, seconds in inside.items():
                before[name] = before.get(name, 0.0) + seconds


def goes_on() -> None:
    """Tell whoever listens that the phase goes on. A phase that takes long calls this at times."""
    if _watch.listener is not None:
        _watch.listener(_watch.name)


@contextlib.contextmanager
def told(listener: Callable[[str], None]) -> Iterator[None]:
    """Call ``listener`` with the name of each phase that begins or goes on inside, in this thread."""
    before, _watch.listener = _watch.listener, listener
    try:
        yield
    finally:
        _watch.listener = before


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count what is done inside, in this thread."""
    before, inside = _watch.counts, Counter[str]()
    _watch.counts = inside
    try:
        yield inside
    finally:
        _watch.counts = before
        if before is not None:
            before.update(inside)


def count(what: str, number: int = 1) -> None:
    """Count something that a compilation does, for whoever asks."""
    if _watch.counts is not None:
        _watch.counts[what] += number
