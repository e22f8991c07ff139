"""Random programs over every dtype give what NumPy gives, to the bit, on each instruction set that this machine has.

A third of the programs is fed arrays that lie beside pages that may not be touched, and writes its results into such
ones. ``STATICGRAD_RANDOM_DTYPES=20000`` in front of pytest draws as many of each kind for each target.
"""

from __future__ import annotations

import faulthandler
import os
import random
import warnings

import numpy as np
import pytest
from support.guards import guard
from support.random_dtypes import DTYPES, FLOATS, INTEGERS, DrawnProgram, drawn
from support.selection import rotating
from support.targets import EVERY

import staticgrad as sg

COUNT = int(os.environ.pop("STATICGRAD_RANDOM_DTYPES", "400"))
CHUNK = 25
KINDS = {"integers": (*INTEGERS, "bool"), "floats": (*FLOATS, "bool"), "mixed": DTYPES}


def run(program: DrawnProgram, rng: random.Random) -> list[np.ndarray]:
    """The results of an executable, of one thread or two, perhaps between guarded pages."""
    with sg.Session(program.graph, seed=0, num_threads=1 + rng.randrange(2)) as session:
        executable = session.compile(program.results, program.placeholders)
        if rng.random() < 1 / 3:
            results = guard(rng, (np.empty(want.shape, want.dtype) for want in program.expected))
            executable(*guard(rng, program.feeds), out=results)
            return results
        return list(executable(*program.feeds))


def compare(seed: int, kind: str) -> None:
    program = drawn(seed, KINDS[kind])
    for got, want, tensor in zip(run(program, random.Random(seed)), program.expected, program.results, strict=True):
        where = f"seed {seed} of {kind}: {tensor}"
        assert got.dtype == want.dtype, where
        np.testing.assert_array_equal(got, want, where)


def chunks() -> list[object]:
    """The kind, target and first seed of each chunk, of which each commit tries other ones."""
    first = {(kind, target): 1_000_000 * number for number, (kind, target) in enumerate(pairs())}
    return rotating(
        [(kind, target, first[kind, target] + at) for kind, target in pairs() for at in range(0, COUNT, CHUNK)]
    )


def pairs() -> list[tuple[str, str]]:
    return [(kind, target) for kind in KINDS for target in EVERY]


@pytest.mark.parametrize(("kind", "target", "start"), chunks())
def test_programs_of_every_dtype_equal_numpy(
    kind: str, target: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sg.PromotionWarning)
        for seed in range(start, start + CHUNK):
            compare(seed, kind)


def test_a_drawn_program_reads_nothing_beside_its_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is there: one number more than a feed has ends a process."""
    array = guard(random.Random(0), [np.arange(3)])[0]
    child = os.fork()
    if not child:
        faulthandler.disable()
        np.lib.stride_tricks.as_strided(array, (1024,)).sum()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status)
