"""Random programs with open sizes: what serves a range gives what is compiled for each size, and what NumPy gives.

``STATICGRAD_RANDOM_SIZES=5000`` in front of pytest draws so many of them, none of them slow.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from support.random_graphs import Array
from support.random_sizes import RandomSizes, Sizes, random_sizes, setting
from support.sampling import relative_error, rng_for
from support.selection import rotating

import staticgrad as sg
from staticgrad.compiler.regions.ranges import RangeError

GIVEN = os.environ.pop("STATICGRAD_RANDOM_SIZES", "")
COUNT = int(GIVEN or "160")
CHUNK = 2  # programs
QUICK = 40  # chunks of which one is tried always
TOLERANCE = 1e-8
Kind = Literal["ranges", "exact"]
Outcome = list[Array] | str  # the class of an error


class Calls:
    """The calls of a program at some sizes in one session: what each gives, or which error it raises."""

    def __init__(self, case: RandomSizes, fetches: Any, sizes: Sequence[Sizes], kind: Kind, **options: Any) -> None:
        self.outcomes: list[Outcome] = []
        variables = [x for x in case.leaves if x.op.op.name == "variable"]
        with np.errstate(all="ignore"), sg.Session(case.graph, sizes=kind, **options) as session:
            for size in sizes:
                try:
                    values = flatten(session.run(fetches, case.arrays(size)))
                except sg.StaticGradError as error:
                    self.outcomes.append(type(error).__name__)
                else:
                    self.outcomes.append(values + [session.get(x) for x in variables])
            self.compiled = session.compile_count
            served = session.compiler._served._entries.values()
            self.refused = [found for found in served if isinstance(found, RangeError)]


def flatten(nest: Any) -> list[Array]:
    return [leaf for leaf in sg.nest.flatten(nest) if leaf is not None]


def agree(got: Sequence[Outcome], want: Sequence[Outcome], sizes: Sequence[Sizes], what: str) -> None:
    """Each difference counts against the largest magnitude of its array."""
    for size, a, b in zip(sizes, got, want, strict=True):
        if isinstance(a, str) or isinstance(b, str):
            assert told(a) == told(b), f"{what}: at {size}"
            continue
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            error = relative_error(x, y, floor=1e-4)  # what cancels to nothing leaves rounding errors
            assert error <= TOLERANCE, f"{what}: at {size} result {number} of {len(b)}, relative error {error:.2e}"


def told(outcome: Outcome) -> str:
    return outcome if isinstance(outcome, str) else "values"


def equal(got: Sequence[Outcome], want: Sequence[Outcome], sizes: Sequence[Sizes], what: str) -> None:
    for size, a, b in zip(sizes, got, want, strict=True):
        if isinstance(a, str) or isinstance(b, str):
            assert told(a) == told(b), f"{what}: at {size}"
            continue
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            same = np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
            assert same, f"{what}: at {size} result {number}, error {relative_error(x, y):.2e}"


def check(seed: int, patch: pytest.MonkeyPatch, *, families: bool = False) -> list[RangeError]:
    """Try one program at some sizes; what was refused is returned."""
    for name, value in setting(seed).items():
        patch.setenv(name, value)
    case = random_sizes(seed, families=families)
    with case.graph:
        slopes = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
    fetches, sizes, what = [case.results, case.loss, slopes, case.train], case.sizes, f"seed {seed} {setting(seed)}"
    ranged = Calls(case, fetches, sizes, "ranges")
    with patch.context() as other:
        if seed % 4:
            other.setenv("STATICGRAD_BACKEND", "reference")
        agree(ranged.outcomes, Calls(case, fetches, sizes, "exact").outcomes, sizes, what)
    if not ranged.refused:
        assert ranged.compiled <= len({case.ranges(size) for size in sizes}), f"{what}: {ranged.compiled} programs"
    if not case.draws and seed % 2:
        back = Calls(case, fetches, sizes[::-1], "ranges", num_threads=1 + seed // 2 % 2)
        equal(back.outcomes[::-1], ranged.outcomes, sizes, f"{what}, the other way round")
    return ranged.refused


def tapes(case: RandomSizes, sizes: Sequence[Sizes], kind: Kind, *, retain: bool = False) -> list[Outcome]:
    """What tapes of a program give at some sizes, all of them alive at once: outputs, and the gradients of one output
    and of all, or which error is raised."""
    outputs = [y for y in (*case.results, case.loss) if y.requires_grad]
    made: list[sg.Tape | str] = []
    outcomes: list[Outcome] = []
    with np.errstate(all="ignore"), sg.Session(case.graph, sizes=kind) as session:
        for size in sizes:
            try:
                made.append(session.forward(outputs, case.arrays(size)))
            except sg.StaticGradError as error:
                made.append(type(error).__name__)
        for tape in reversed(made):
            if isinstance(tape, str):
                outcomes.insert(0, tape)
                continue
            found = [tape[y] for y in outputs]
            cotangents = [rng_for("cotangents", case.seed, y.shape).normal(size=y.shape) for y in found]
            for asked, lasts in ((outputs[:1], True), (outputs, retain)):
                tape.backward(asked, cotangents[: len(asked)], lasts)
                grads = [session.grad(x) for x in case.leaves]
                found += [np.zeros(()) if grad is None else grad for grad in grads]
            session.zero_grad()
            outcomes.insert(0, found)
    return outcomes


def check_tapes(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Try the tapes of one program at some sizes."""
    for name, value in setting(seed).items():
        patch.setenv(name, value)
    case = random_sizes(seed, ops=6)
    if not case.loss.requires_grad:
        return
    sizes, what = case.sizes, f"seed {seed} {setting(seed)}"
    consumed = tapes(case, sizes, "ranges")
    equal(tapes(case, sizes, "ranges", retain=True), consumed, sizes, f"{what}, retained")
    if seed % 4:
        patch.setenv("STATICGRAD_BACKEND", "reference")
    agree(consumed, tapes(case, sizes, "exact"), sizes, what)


def chunks() -> list[Any]:
    """The seeds, several at a time."""
    drawn = [range(first, min(first + CHUNK, COUNT)) for first in range(0, COUNT, CHUNK)]
    return drawn if GIVEN else rotating(drawn, QUICK)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of means and variances at size 0
@pytest.mark.parametrize("seeds", chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_ranges_give_what_exact_programs_give(seeds: Sequence[int]) -> None:
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", sg.RecompileWarning)
            check(seed, patch)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of means and variances at size 0
@pytest.mark.parametrize("seeds", chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_ranges_of_functions_with_options_give_what_exact_programs_give(seeds: Sequence[int]) -> None:
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", sg.RecompileWarning)
            check(200_000 + seed, patch, families=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of means and variances at size 0
@pytest.mark.parametrize("seeds", chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_tapes_of_ranges_give_what_exact_tapes_give(seeds: Sequence[int]) -> None:
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            check_tapes(100_000 + seed, patch)
