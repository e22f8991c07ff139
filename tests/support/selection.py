"""Which of very many cases are tried always, and which among the slow tests only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def _combined(axes: Sequence[Sequence[Any]]) -> list[tuple[bool, tuple[Any, ...]]]:
    """Combinations of three axes or more; whether one is of those in which any two values of different axes meet."""
    turns = min(map(len, axes))
    cases = (tuple(zip(*case, strict=True)) for case in itertools.product(*map(enumerate, axes)))
    return [(sum(places) % turns == 0, values) for places, values in cases]


def pairwise(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which any two values of different axes meet."""
    return [values for chosen, values in _combined(axes) if chosen]


def slow(*values: Any) -> Any:
    """A case for ``parametrize``, of the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def every_pair(*axes: Sequence[Any]) -> list[Any]:
    """All combinations, for ``parametrize``: those of ``pairwise``, the rest among the slow tests."""
    return [values if chosen else slow(*values) for chosen, values in _combined(axes)]
