"""Programs over large arrays: compiled equals the interpreter, on every target, with one thread and with two.

``STATICGRAD_LARGE_PROGRAMS=20000`` in front of pytest draws more of them, each for every target;
``STATICGRAD_LARGE_PROGRAMS_FIRST=4000`` begins with that seed, to go on where a long run was stopped.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.large_checks import check
from support.selection import slow
from support.targets import HERE

GIVEN = os.environ.pop("STATICGRAD_LARGE_PROGRAMS", "")
FIRST = int(os.environ.pop("STATICGRAD_LARGE_PROGRAMS_FIRST", "0"))
COUNT = int(GIVEN or "1000")
QUICK = 240
CHUNK = 8


def chunks() -> list[Any]:
    """Where chunks of seeds begin; after the first few they are slow."""
    starts = range(FIRST, FIRST + COUNT, CHUNK)
    return [start if GIVEN or start < FIRST + QUICK else slow(start) for start in starts]


def targets_of(seed: int) -> list[str]:
    """One target for each program, in turn; all of them where more programs were asked for."""
    return HERE if GIVEN else [HERE[seed % len(HERE)]]


@pytest.mark.parametrize("start", chunks())
def test_large_programs_equal_the_interpreter(start: int) -> None:
    for seed in range(start, min(start + CHUNK, FIRST + COUNT)):
        check(seed, targets_of(seed))
