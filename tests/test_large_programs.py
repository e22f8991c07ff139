"""Programs over large arrays: compiled equals the interpreter, on every target, with one thread and with two.

The same programs over arrays that are 64 times smaller run on the small targets, whose limits are as many times lower.
``STATICGRAD_LARGE_PROGRAMS=20000`` in front of pytest draws more of them, each for every target;
``STATICGRAD_LARGE_PROGRAMS_FIRST=4000`` begins with that seed, to go on where a long run was stopped.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from support.large_checks import QUICK, SCALE, check, interpreted, reference, wrong
from support.large_programs import large_program
from support.selection import slow

from staticgrad.compiler.emit.target import TARGETS, runs_here

GIVEN = os.environ.pop("STATICGRAD_LARGE_PROGRAMS", "")
FIRST = int(os.environ.pop("STATICGRAD_LARGE_PROGRAMS_FIRST", "0"))
COUNT = int(GIVEN or "1000")
CHUNK = 8
SMALL = [name for name, target in TARGETS.items() if runs_here(target) and name.endswith("-small")]
USUAL = [name for name, target in TARGETS.items() if runs_here(target) and not name.endswith("-small")]


def chunks() -> list[Any]:
    """Where chunks of seeds begin; after the first few they are slow."""
    starts = range(FIRST, FIRST + COUNT, CHUNK)
    return [start if GIVEN or start < FIRST + QUICK else slow(start) for start in starts]


def check_all(start: int, targets: list[str], scale: int) -> None:
    """A chunk of programs, each on one target in turn; on all of them where more programs were asked for."""
    for seed in range(start, min(start + CHUNK, FIRST + COUNT)):
        if targets:
            check(seed, targets if GIVEN else [targets[seed % len(targets)]], scale)


@pytest.mark.parametrize("start", chunks())
def test_large_programs_equal_the_interpreter(start: int) -> None:
    check_all(start, USUAL, 1)


@pytest.mark.parametrize("start", chunks())
def test_programs_on_small_targets_equal_the_interpreter(start: int) -> None:
    check_all(start, SMALL, SCALE)


@pytest.mark.parametrize("seed", range(12))
def test_one_wrong_element_is_noticed_and_rounding_is_not(seed: int) -> None:
    program = large_program(seed, scale=SCALE)
    want, got = reference(program), interpreted(program)
    assert wrong(program, got, want) is None
    largest = np.unravel_index(np.abs(want[0]).argmax(), want[0].shape)
    got[0] = got[0].copy()
    got[0][largest] += 0.02 * np.abs(got[0][largest]) + 0.01
    assert wrong(program, got, want) is not None
