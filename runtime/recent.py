"""A bounded dictionary that gives up what was not used for longest. May be used from several threads."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Generic, TypeVar

KEPT_PROGRAMS = 256  # by a session, and by an executable whose sizes change

V = TypeVar("V")


class Recent(Generic[V]):
    """At most ``limit`` values by key."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[object, V] = OrderedDict()  # each of whose operations is one step

    def get(self, key: object) -> V | None:
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:  # also where another thread gave it up just now
            return None

    def put(self, key: object, value: V) -> V:
        self._entries[key] = value
        with contextlib.suppress(KeyError):  # where another thread gave up all of them just now
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        return value

    def clear(self) -> None:
        self._entries.clear()
