"""Every mode of every planner is taken by drawn programs: large ones, which are emitted as text until all were,
and some of open sizes."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from support.large_checks import QUICK, emit, scale_of
from support.large_programs import LAYERS, large_program
from support.modes import declared, declared_on, elsewhere, summary, taken
from support.random_sizes import ALWAYS, random_sizes, setting
from support.targets import HERE

import staticgrad as sg
from staticgrad.compiler.machine.target import named

MOST = 2000  # pairs of large programs; on AVX2 the rarest mode comes after some 500


def drawn(isa: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Emit programs like those that are compared with the interpreter, for the targets of an instruction set: large
    ones, which are not run, some of open sizes, and more large ones for what is rare."""
    yield from emitted(isa, range(QUICK))
    for seed in range(4 * ALWAYS):
        for name, value in (setting(seed) | {"STATICGRAD_TARGET": (isa, f"{isa}-small")[seed % 2]}).items():
            patch.setenv(name, value)
        case = random_sizes(seed)
        with np.errstate(all="ignore"), sg.Session(case.graph) as session:
            for size in case.sizes:
                try:
                    session.run([case.results, case.loss], case.arrays(size))
                except sg.StaticGradError:
                    continue
                yield
    yield from emitted(isa, range(QUICK, MOST))


def emitted(isa: str, numbers: Iterable[int]) -> Iterator[None]:
    """Emit two large programs of each kind for each number, one for the instruction set, one for its small twin."""
    for number, first in itertools.product(numbers, (0, LAYERS)):
        for target, seed in zip((isa, f"{isa}-small"), (number % 2, 1 - number % 2), strict=True):
            emit(large_program(first + 2 * number + seed, scale=scale_of(target)), named(target))
            yield


@pytest.mark.slow
@pytest.mark.parametrize("isa", HERE)
def test_drawn_programs_take_every_mode_of_every_planner(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, missing = taken(isa), set(declared_on(isa))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in drawn(isa, monkeypatch):
            missing -= (taken(isa) - before).keys()
            if not missing:
                return
    assert not missing, f"no drawn program takes {', '.join(sorted(missing))}"


@pytest.mark.parametrize("isa", HERE)
def test_modes_of_other_instruction_sets_are_none_of_this_one(isa: str) -> None:
    """What is excused for an instruction set is declared, and nothing of this process has taken it there."""
    assert elsewhere(isa) <= declared()
    assert not elsewhere(isa) & taken(isa).keys()


def test_a_summary_names_what_was_never_taken() -> None:
    first, *others = sorted(declared())
    lines = summary(Counter(others), every=True)
    assert lines[0].startswith(f"modes: {len(others)} of {len(others) + 1} taken")
    assert lines[1] == f"modes never taken: {first}"
    assert len(lines) == 2 + len(declared())
