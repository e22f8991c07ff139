"""Drawn programs, exported for speed and for size, and run from their files: the values of the interpreter.

An export goes its own way through LLVM: modules are linked, and passes run that nothing else runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from support.large_checks import QUICK, SCALE, reference, wrong
from support.large_programs import LAYERS, LargeProgram, large_program
from support.random_graphs import random_graph
from support.sampling import relative_error

import staticgrad as sg
from staticgrad.compiler.machine.target import TARGETS, runs_here
from staticgrad.graph.graph import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
HERE = [name for name, target in TARGETS.items() if runs_here(target)]
WAYS: tuple[Literal["speed", "size"], ...] = ("speed", "size")


def loaded(session: sg.Session, fetches: list[Tensor], feeds: dict[Tensor, Array], number: int, path: Path) -> Any:
    """What the file of a program gives, which is exported in one of the ways."""
    executable = session.compile(list(fetches), {x: array.shape for x, array in feeds.items()})
    executable.export(path, "program", HERE[number % len(HERE)], "drawn", WAYS[number // len(HERE) % 2])
    with np.errstate(all="ignore"):
        return sg.load(path)(*feeds.values())


def check_graph(seed: int, path: Path) -> None:
    case = random_graph(seed, advanced=seed % 2 == 1, dtype=sg.float64)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setenv("STATICGRAD_BACKEND", "reference")
        with sg.Session(case.graph) as session:
            wanted = session.run(case.results, case.feeds)
    with sg.Session(case.graph) as session:
        found = loaded(session, case.results, case.feeds, seed, path)
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert relative_error(got, want, floor=1e-4) <= 1e-8, f"graph {seed}, result {number}"


def check_large(seed: int, path: Path) -> None:
    program: LargeProgram = large_program(seed, scale=SCALE if seed % 4 else 1)
    with sg.Session(program.graph) as session:
        found = loaded(session, program.fetches, program.feeds, seed, path)
    told = wrong(program, found, reference(program))
    assert told is None, f"program {seed}: {told}\n{program}"


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    check_graph(seed, tmp_path / "graph")


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", [*range(6), *range(LAYERS, LAYERS + 6)])
def test_large_programs(seed: int, tmp_path: Path) -> None:
    check_large(seed, tmp_path / "program")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12, 1212, 60))
def test_more_random_graphs(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 60):
        check_graph(seed, tmp_path / "graph")


@pytest.mark.slow
@pytest.mark.parametrize("first", [*range(6, QUICK * 2, 24), *range(LAYERS + 6, LAYERS + QUICK, 24)])
def test_more_large_programs(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 24):
        check_large(seed, tmp_path / "program")
