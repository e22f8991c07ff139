"""Room on Python's stack for loops, branches and checkpoints within each other.

A function of the user's that declares a body runs within the one that declares the body around it, and what derives,
compiles and prints bodies calls itself once a level. Both need more frames than Python's limit allows from some hundred
levels on: while they run the limit is raised by ``FRAMES`` a level. It is the limit of the whole process, so the
highest that a thread needs counts.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from staticgrad.base.errors import GraphError, user_source

MOST_NESTED = 500  # levels: the frames of more fill the stack of eight megabytes that a thread has
FRAMES = 40  # of Python's stack a level: at most ten are the package's, the others the user's
SHALLOW = 8  # levels, for which Python's own limit has room


class _Levels(threading.local):
    """The functions of bodies that a thread has entered."""

    def __init__(self) -> None:
        self.entered = 0


_levels = _Levels()


class _Limit:
    """Python's limit of recursion, as it was and as it is while some threads need more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needed: list[int] = []  # levels
        self._before = self._set = 0
        self.deepest = 0  # of all bodies that were declared

    @contextlib.contextmanager
    def raised(self, levels: int) -> Iterator[None]:
        """Allow for that number of levels more than without any."""
        with self._lock:
            if not self._needed:
                self._before = self._set = sys.getrecursionlimit()
            self._needed.append(levels)
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._needed.remove(levels)
                self._apply()

    def _apply(self) -> None:
        """Set the limit, unless someone else has set another one since."""
        if sys.getrecursionlimit() == self._set:
            self._set = self._before + FRAMES * max(self._needed, default=0)
            sys.setrecursionlimit(self._set)


_limit = _Limit()


@contextlib.contextmanager
def one_level(what: str) -> Iterator[None]:
    """Run a function of the user's that declares one level more.

    Raises:
        GraphError: there are more than ``MOST_NESTED`` levels.
    """
    levels = _levels.entered + 1
    if levels > MOST_NESTED:
        raise GraphError(
            f"{what}: nested {levels} deep: expected at most {MOST_NESTED} loops, branches and checkpoints within each"
            " other; sg.scan and sg.while_loop repeat without nesting",
            source=user_source(),
        )
    _levels.entered = levels
    _limit.deepest = max(_limit.deepest, levels)
    try:
        if levels <= SHALLOW:
            yield
        else:
            with _limit.raised(levels):
                yield
    finally:
        _levels.entered = levels - 1


@contextlib.contextmanager
def all_levels() -> Iterator[None]:
    """Run what calls itself once a level, for the number of levels that were declared. Decorates functions too."""
    if _limit.deepest <= SHALLOW:
        yield
        return
    with _limit.raised(_limit.deepest + _levels.entered):
        yield
