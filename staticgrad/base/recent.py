"""An LRU cache: a bounded dictionary that evicts the least recently used value. May be used from several threads."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

KEPT_PROGRAMS = 256  # by a session, and by an executable whose sizes change

V = TypeVar("V")
W = TypeVar("W")


class Recent(Generic[V]):
    """At most ``limit`` values by key, and ``limit`` that were not taken yet and whose first use is to be told."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[object, V] = OrderedDict()  # each of whose operations is one step
        self._unused: OrderedDict[object, tuple[V, Callable[[], None]]] = OrderedDict()

    def get(self, key: object) -> V | None:
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:  # also where another thread gave it up just now
            return self._first_use(key) if self._unused else None

    def _first_use(self, key: object) -> V | None:
        value, tell = self._unused.pop(key, (None, None))
        if value is None or tell is None:
            return None
        tell()
        return self.put(key, value)

    def put(self, key: object, value: V, tell: Callable[[], None] | None = None) -> V:
        """Keep a value; ``tell`` is called by the first ``get`` of it, and the others take no longer for that."""
        if tell is None:
            self._bound(self._entries, key, value)
        else:
            self._bound(self._unused, key, (value, tell))
        return value

    def _bound(self, entries: OrderedDict[object, W], key: object, value: W) -> None:
        """Enter a value, and give up the oldest ones beyond the limit."""
        entries[key] = value
        with contextlib.suppress(KeyError):  # where another thread gave up all of them just now
            while len(entries) > self._limit:
                entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()
        self._unused.clear()
