"""Budgets that are met or, where they cannot be, replaced by the least that the warning names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import staticgrad as sg

T = TypeVar("T")


def within(budget: int | float | None, made: Callable[[int | float | None], T]) -> T:
    """What ``made`` gives of a budget, or of the least that its warning names, which is an error here."""
    try:
        return made(budget)
    except sg.MemoryBudgetWarning as error:
        least = re.search(r"the least found is (\d+) bytes", str(error))
        if least is None:
            raise
        return made(int(least[1]))
