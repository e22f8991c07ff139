"""Drawn programs that repeat themselves, with loops where they do and without."""

from __future__ import annotations

import numpy as np
import pytest
from support.random_repeats import repeats
from support.targets import EVERY

import staticgrad as sg
from staticgrad.compiler.passes import reroll
from staticgrad.compiler.regions import repeats as repetitions

TOLERANCES = (  # of sums in another order; integers have none
    (sg.float64, 1e-10), (sg.float32, 2e-4), (sg.int64, 0.0), (sg.float64, 1e-10), (sg.bfloat16, 0.1),
    (sg.int32, 0.0), (sg.float16, 0.02),
)  # fmt: skip
SEEDS = range(24)
MORE = range(24, 600)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops where few nodes repeat themselves, and programs of no earlier process."""
    monkeypatch.setattr(repetitions, "LEAST_REPEATED", 12)
    monkeypatch.setattr(repetitions, "LEAST_TURNS", 4)
    monkeypatch.setattr(reroll, "MOST_LEFT", 10.0)
    monkeypatch.setenv("STATICGRAD_CACHE", "0")


def compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run both; True if there is a loop."""
    monkeypatch.setattr(reroll, "WIDTH", (1, 8, 48)[seed % 3])
    monkeypatch.setenv("STATICGRAD_TARGET", EVERY[seed // 3 % len(EVERY)])
    dtype, tolerance = TOLERANCES[seed // 2 % len(TOLERANCES)]
    case = repeats(seed, dtype)
    arrays = [a.astype(x.dtype) for a, x in zip(case.arrays, case.feeds, strict=True)]
    with sg.Session(case.graph) as session:
        executable = session.compile(case.fetches, case.feeds)
        found = executable(*arrays)
        looped = "scan" in executable.text("graph")
    monkeypatch.setenv("STATICGRAD_DISABLE", "reroll")
    with sg.Session(case.graph) as session:
        expected = session.compile(case.fetches, case.feeds)(*arrays)
    monkeypatch.delenv("STATICGRAD_DISABLE")
    for a, b in zip(found, expected, strict=True):
        if tolerance == 0:
            np.testing.assert_array_equal(a, b)
        else:
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())))
    return looped


def test_loops_give_what_the_unrolled_programs_give(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum([compare(seed, monkeypatch) for seed in SEEDS]) >= len(SEEDS) // 3


@pytest.mark.slow
@pytest.mark.parametrize("start", MORE[::48])
def test_more_loops_give_what_the_unrolled_programs_give(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum([compare(seed, monkeypatch) for seed in range(start, start + 48)]) >= 16
