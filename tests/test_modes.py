"""Every mode of every planner is taken by drawn programs: large ones, which are emitted as text until all were,
and some of open sizes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from support.large_checks import emit, quick_cases, scale_of
from support.large_programs import large_program
from support.modes import declared, summary, taken
from support.random_sizes import ALWAYS, random_sizes, setting

import staticgrad as sg
from staticgrad.compiler.emit.target import named


def drawn(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Emit the programs that are compared with the interpreter, each for the target that it is compared on."""
    for seed, target in quick_cases():
        emit(large_program(seed, scale=scale_of(target)), named(target))
        yield
    for seed in range(ALWAYS):
        for name, value in setting(seed).items():
            patch.setenv(name, value)
        case = random_sizes(seed)
        with np.errstate(all="ignore"), sg.Session(case.graph) as session:
            for size in case.sizes:
                try:
                    session.run([case.results, case.loss], case.arrays(size))
                except sg.StaticGradError:
                    continue
                yield


def test_drawn_programs_take_every_mode_of_every_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    before, missing = taken(), set(declared())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in drawn(monkeypatch):
            missing -= (taken() - before).keys()
            if not missing:
                return
    assert not missing, f"no drawn program takes {', '.join(sorted(missing))}"


def test_a_summary_names_what_was_never_taken() -> None:
    first, *others = sorted(declared())
    lines = summary(Counter(others), every=True)
    assert lines[0].startswith(f"modes: {len(others)} of {len(others) + 1} taken")
    assert lines[1] == f"modes never taken: {first}"
    assert len(lines) == 2 + len(declared())
