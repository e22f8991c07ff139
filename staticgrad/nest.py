"""Nests: tuples, lists, dicts and dataclasses of anything, to any depth. None is an empty nest; all else is a leaf."""

from __future__ import annotations

from staticgrad.base.nests import children, flatten, map, pack, paths, rebuild  # noqa: F401


def __dir__() -> list[str]:
    return ["flatten", "map", "pack"]


__all__ = ["flatten", "pack"]  # what ``*`` imports: not ``map``, which is Python's
