"""Every mode of every planner is taken by drawn large programs, which are emitted as text until all were."""

from __future__ import annotations

from collections import Counter

from support.large_checks import emit, quick_cases, scale_of
from support.large_programs import large_program
from support.modes import declared, summary, taken

from staticgrad.compiler.emit.target import named


def test_large_programs_take_every_mode_of_every_planner() -> None:
    """Those that are compared with the interpreter, each for the target that it is compared on."""
    before, missing = taken(), set(declared())
    for seed, target in quick_cases():
        emit(large_program(seed, scale=scale_of(target)), named(target))
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
