"""Random tapes: what consumes equals what retains to the bit, poisoned or not, and a run to rounding.

``STATICGRAD_RANDOM_TAPES=20000`` in front of pytest draws so many tapes, none of them slow.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.random_graphs import Array
from support.random_tapes import RandomTape, random_tape
from support.sampling import relative_error
from support.selection import slow
from support.targets import EVERY

import staticgrad as sg
from staticgrad.compiler.autodiff import loops
from staticgrad.compiler.passes import PASSES

GIVEN = os.environ.pop("STATICGRAD_RANDOM_TAPES", "")
COUNT = int(GIVEN or "800")
SCRIPTS = 8  # tapes of one program, which is compiled once for all of them
CHUNK = 5  # programs
ALWAYS = (
    43,
    70,
    84,
    128,
    5,
    28,
)  # programs that were wrong, or refused, when a value was several feeds or loops several
OPTIONAL = [p.name for p in PASSES if p.optional] + ["fuse", "inline", "schedule", "scalarize", "running"]
TOLERANCE = 1e-8


def setting(seed: int) -> dict[str, str]:
    """Passes that are left out, a target, how many threads."""
    rng = np.random.default_rng([seed, 1])
    kind = rng.random()
    left_out = [] if kind < 0.5 else ["cse"] if kind < 0.75 else rng.choice(OPTIONAL, size=int(rng.integers(1, 4)))
    return {
        "STATICGRAD_DISABLE": ",".join(dict.fromkeys(left_out)),
        "STATICGRAD_TARGET": EVERY[int(rng.integers(len(EVERY)))],
        "STATICGRAD_THREADS": str(rng.integers(1, 3)),
    }


def results(case: RandomTape, session: sg.Session, *, retain: bool = False) -> list[list[Array]]:
    """Of each script, twice: by two tapes, the second of which takes the memory of the first."""
    return [case.by_tapes(session, script, retain=retain) for script in case.scripts for _ in range(2)]


def equal(got: list[list[Array]], want: list[list[Array]], what: str) -> None:
    for number, (arrays, others) in enumerate(zip(got, want, strict=True)):
        for k, (a, b) in enumerate(zip(arrays, others, strict=True)):
            same = np.array_equal(a, b, equal_nan=True)
            assert same, f"{what}, tape {number}: result {k} of {len(others)}, error {relative_error(a, b):.2e}"


def check(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Try all scripts of one program."""
    chosen: dict[str, Any] = setting(seed)
    for name, value in chosen.items():
        patch.setenv(name, value)
    patch.setattr(loops, "NEAR_BYTES", 64 if seed % 4 == 0 else loops.NEAR_BYTES)
    case = random_tape(seed, scripts=SCRIPTS)
    what = f"seed {seed} {chosen}"
    with np.errstate(all="ignore"):
        with sg.Session(case.graph) as session:
            consumed = results(case, session)
            equal(results(case, session, retain=True), consumed, f"{what}, retained")
        with sg.Session(case.graph) as session:
            patch.setenv("STATICGRAD_MEMORY", ("poison", "poison", "none")[seed % 3])
            equal(results(case, session), consumed, f"{what}, poisoned or not shared")
            computed = case.by_run(session)  # last, as it declares more
    for script, got in zip(case.scripts, consumed[::2], strict=True):
        for k, (a, b) in enumerate(zip(got, case.expected(script, computed), strict=True)):
            error = relative_error(a, b, floor=1e-4)  # what cancels to nothing leaves rounding errors
            assert error <= TOLERANCE, f"{what}, run: {script}, result {k}, relative error {error:.2e}"


def chunks() -> list[Any]:
    """The numbers of programs, several at a time."""
    numbers = range(-(-COUNT // SCRIPTS))
    drawn = [numbers[first : first + CHUNK] for first in range(0, len(numbers), CHUNK)]
    return drawn if GIVEN else [*((seed,) for seed in ALWAYS), *map(slow, drawn)]


@pytest.mark.parametrize("seeds", chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_consuming_and_retaining_tapes_equal_runs(seeds: Sequence[int]) -> None:
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            check(seed, patch)
