"""Quick code gives the bits of optimised code, on each instruction set that this machine has.

``STATICGRAD_RANDOM_TIERS=2500`` in front of pytest draws as many graphs and as many programs of every dtype for each
target.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.frames import depth
from support.large_programs import large_program
from support.random_dtypes import DTYPES, drawn
from support.random_graphs import random_graph
from support.selection import rotating, slow
from support.targets import EVERY

import staticgrad as sg
from staticgrad.compiler.native.tiers import may_be_quick
from staticgrad.runtime.callers.cfunction_text import MOST_ON_STACK

COUNT = int(os.environ.pop("STATICGRAD_RANDOM_TIERS", "80"))
CHUNK = 20

Program = tuple[sg.Graph, list[Any], dict[sg.Tensor, Any]]


def graph_of(seed: int) -> Program:
    """A graph with its gradients and an update, of float64 or float32."""
    case = random_graph(seed, advanced=seed % 4 == 2, dtype=sg.float32 if seed % 2 else sg.float64)
    with case.graph:
        gradients = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
    return case.graph, [*case.results, *gradients, case.train], dict(case.feeds)


def dtypes_of(seed: int) -> Program:
    """A program over every dtype."""
    program = drawn(seed, DTYPES)
    return program.graph, list(program.results), dict(zip(program.placeholders, program.feeds, strict=True))


def results(program: Program, tiers: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of two runs, so that updates show."""
    graph, fetches, feeds = program
    monkeypatch.setenv("STATICGRAD_TIERS", tiers)
    with np.errstate(all="ignore"), sg.Session(graph, seed=1, num_threads=2) as session:
        executable = session.compile(fetches, list(feeds))
        assert not executable.ready() or tiers == "0" or not any(map(may_be_quick, modules(executable)))
        return [array for _ in range(2) for array in executable(*feeds.values()) if array is not None]


def bits(array: Any) -> bytes:
    """The bytes of an array; of all that is no number those of one NaN."""
    return (
        np.where(array == array, array, np.full((), np.nan, array.dtype)).tobytes()
        if array.dtype.kind in "fV"
        else array.tobytes()
    )


def modules(executable: sg.Executable) -> tuple[str, ...]:
    return executable._programs.native().program.modules


def chunks() -> list[Any]:
    """Draw, target and first seed of each chunk, of which each commit tries other ones."""
    return rotating(
        [
            (draw, target, 100_000 * number + start)
            for number, (draw, target) in enumerate((d, t) for d in (graph_of, dtypes_of) for t in EVERY)
            for start in range(0, COUNT, CHUNK)
        ]
    )


@pytest.mark.parametrize(("draw", "target", "start"), chunks())
def test_quick_code_gives_the_bits_of_optimised_code(
    draw: Callable[[int], Program], target: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sg.PromotionWarning)
        for seed in range(start, start + CHUNK):
            quick, best = (results(draw(seed), tiers, monkeypatch) for tiers in ("first", "0"))
            for number, (a, b) in enumerate(zip(quick, best, strict=True)):
                where = f"seed {seed} on {target}: result {number}"
                np.testing.assert_array_equal(a, b, where, strict=True)
                assert bits(a) == bits(b), where


def check_depth(program: Program, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick code keeps all values in memory, and yet a program takes no more of the stack than is promised."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    graph, fetches, feeds = program
    texts = modules(sg.Session(graph, num_threads=2).compile(fetches, list(feeds), wait=True))
    levels = tuple(map(may_be_quick, texts))
    assert depth(texts, sg.Session(graph).compiler.options().target, quick=levels) < MOST_ON_STACK


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("seed", [7, *map(slow, range(8, 40))])
def test_quick_code_takes_the_stack_that_is_promised(seed: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_depth(graph_of(seed), target, monkeypatch)
    program = large_program(seed)
    check_depth((program.graph, list(program.fetches), dict(program.feeds)), target, monkeypatch)
