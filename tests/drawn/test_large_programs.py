"""Programs over large arrays: compiled equals the interpreter, on every target, with one thread and with two.

The same programs over arrays that are 64 times smaller run on the small targets, whose limits are as many times lower.
``STATICGRAD_LARGE_PROGRAMS=20000`` in front of pytest draws as many programs, and half as many single convolutions,
each for every target; ``STATICGRAD_LARGE_PROGRAMS_FIRST=4000`` begins with that seed, to go on where a long run was
stopped.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from support.large_checks import SCALE, check, interpreted, quick_cases, reference, scale_of, wrong
from support.large_programs import LAYERS, large_program
from support.selection import rotating, slow
from support.targets import EVERY, HERE

GIVEN = os.environ.pop("STATICGRAD_LARGE_PROGRAMS", "")
FIRST = int(os.environ.pop("STATICGRAD_LARGE_PROGRAMS_FIRST", "0"))
COUNT = int(GIVEN or "1000")
CHUNK = 12
SMALL = [name for name in EVERY if name not in HERE]

Cases = list[tuple[int, list[str]]]


def cases() -> tuple[Cases, Cases]:
    """Seeds, each with its targets: those that are always tried, and others."""
    if GIVEN:
        seeds = [*range(FIRST, FIRST + COUNT), *range(LAYERS + FIRST // 2, LAYERS + (FIRST + COUNT) // 2)]
        return [(seed, targets) for seed in seeds for targets in (HERE, SMALL)], []
    quick = [(seed, [target]) for seed, target in quick_cases() if target in EVERY]
    known = {seed for seed, _ in quick}
    seeds = [seed for first in (0, LAYERS) for seed in range(first, first + COUNT) if seed not in known]
    return quick, [(seed, [targets[seed % len(targets)]]) for seed in seeds for targets in (HERE, SMALL)]


def chunks() -> list[Any]:
    """Several cases at a time."""
    always, others = ([some[at : at + CHUNK] for at in range(0, len(some), CHUNK)] for some in cases())
    return [*(always if GIVEN else rotating(always)), *map(slow, others)]


@pytest.mark.parametrize("chunk", chunks(), ids=lambda chunk: f"{chunk[0][0]}-{chunk[0][1][0]}")
def test_large_programs_equal_the_interpreter(chunk: Cases) -> None:
    for seed, targets in chunk:
        check(seed, targets, scale_of(targets[0]))


@pytest.mark.parametrize("seed", [*range(12), *range(LAYERS, LAYERS + 4)])
def test_one_wrong_element_is_noticed_and_rounding_is_not(seed: int) -> None:
    program = large_program(seed, scale=SCALE)
    want, got = reference(program), interpreted(program)
    assert wrong(program, got, want) is None
    largest = np.unravel_index(np.abs(want[0]).argmax(), want[0].shape)
    got[0] = got[0].copy()
    got[0][largest] += 0.02 * np.abs(got[0][largest]) + 0.01
    assert wrong(program, got, want) is not None
