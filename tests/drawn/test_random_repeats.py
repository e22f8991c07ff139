"""Drawn programs that repeat themselves, with loops where they do and without."""

from __future__ import annotations

import numpy as np
import pytest
from support.random_repeats import repeats

import staticgrad as sg
from staticgrad.compiler.passes import reroll
from staticgrad.compiler.regions import repeats as repetitions

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
    case = repeats(seed, sg.float32 if seed % 4 == 3 else sg.float64)
    with sg.Session(case.graph) as session:
        executable = session.compile(case.fetches, case.feeds)
        found = executable(*(a.astype(x.dtype) for a, x in zip(case.arrays, case.feeds, strict=True)))
        looped = "scan" in executable.text("graph")
    monkeypatch.setenv("STATICGRAD_DISABLE", "reroll")
    with sg.Session(case.graph) as session:
        expected = session.compile(case.fetches, case.feeds)(
            *(a.astype(x.dtype) for a, x in zip(case.arrays, case.feeds, strict=True))
        )
    monkeypatch.delenv("STATICGRAD_DISABLE")
    tolerance = 2e-4 if seed % 4 == 3 else 1e-10
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())))
    return looped


def test_loops_give_what_the_unrolled_programs_give(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum([compare(seed, monkeypatch) for seed in SEEDS]) >= len(SEEDS) // 3


@pytest.mark.slow
@pytest.mark.parametrize("start", MORE[::48])
def test_more_loops_give_what_the_unrolled_programs_give(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum([compare(seed, monkeypatch) for seed in range(start, start + 48)]) >= 16
