"""Which of very many cases are tried always, and which among the slow tests only."""

from __future__ import annotations

import itertools
import os
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import staticgrad

SHARE = "PYTEST_SHARE"

TURNS = Path(__file__).parents[1] / "long.txt"
LONG = frozenset(TURNS.read_text().split())  # tests of which a commit tries every other case
LONG_SECONDS = 0.5  # of one case, on an idle core
WIDE = {  # files of tests of other systems and machines, and of long searches: see the marker
    "test_autotune", "test_benchmarks", "test_c_systems", "test_demo", "test_examples", "test_export_examples",
    "test_families", "test_large_programs", "test_modes", "test_neon", "test_oracle", "test_pythons",
    "test_small_targets",
}  # fmt: skip
ALWAYS = ("docs", "doctests", "layers", "public_names", "repository")  # of the whole repository: tried by each commit


def _combined(axes: Sequence[Sequence[Any]]) -> list[tuple[bool, tuple[Any, ...]]]:
    """Combinations of three axes or more; whether one is of those in which any two values of different axes meet."""
    turns = min(map(len, axes))
    cases = (tuple(zip(*case, strict=True)) for case in itertools.product(*map(enumerate, axes)))
    return [(sum(places) % turns == 0, values) for places, values in cases]


def pairwise(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which any two values of different axes meet."""
    return [values for chosen, values in _combined(axes) if chosen]


def slow(*values: Any) -> Any:
    """A case for ``parametrize``, of the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def every_pair(*axes: Sequence[Any]) -> list[Any]:
    """All combinations, for ``parametrize``: those of ``pairwise``, the rest among the slow tests."""
    return [values if chosen else slow(*values) for chosen, values in _combined(axes)]


def commit() -> int:
    """A number for the commit that is tested, the same in all processes of a run; the variable ``PYTEST_SHARE`` may say
    another commit, whose selection is then tried again."""
    if SHARE not in os.environ:
        git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        found = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
        os.environ[SHARE] = found or staticgrad.__version__
    return zlib.crc32(os.environ[SHARE].encode())


def is_chosen(number: int, parts: int) -> bool:
    """True for the case that the commit chooses of ``parts`` neighbouring ones."""
    return number % parts == commit() % parts


def function_of(node: str) -> str:
    """The file and the function of a test, without its parameters."""
    return node.partition("[")[0].rpartition("/")[2]


def takes_its_turn(test: str, case: int) -> bool:
    """True for the cases of a long test that the commit chooses: one of two neighbours, by another digit of its number
    than ``is_chosen`` uses, so that each case of a share has its turn."""
    return (zlib.crc32(test.encode()) + case + (commit() >> 6)) % 2 == 0


def write_long(tests: Iterable[str]) -> None:
    """Write the list of the tests that take turns."""
    turning = sorted(test for test in tests if not test.startswith(tuple(f"test_{name}.py" for name in ALWAYS)))
    TURNS.write_text("".join(f"{test}\n" for test in turning))


def rotating(cases: Iterable[Any], parts: int = 4) -> list[Any]:
    """Cases for ``parametrize``, tuples of values or single ones. Of ``parts`` neighbours one is always tried, and
    the commit says which, so that over several commits all are. The others are among the slow tests."""
    several = enumerate(case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*case) if is_chosen(number, parts) else slow(*case) for number, case in several]
