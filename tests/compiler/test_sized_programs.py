"""Programs with open sizes: a program for a range of sizes gives what a program for each size gives, and NumPy.

Both sessions make the same calls one after the other, so that training steps are compared from state to state. Every
difference counts against the largest magnitude of its array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.selection import slow
from support.sized_programs import PROGRAMS, Array, Kind, SizedProgram, Sizes, ends, range_of, session

TOLERANCE = 1e-12
ARENA = 1.05  # the arena of a range over that of a program for its largest size

every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


class Calls:
    """The calls of a program at some sizes in one session: their results with the variables after each (``values``),
    and the number of programs that were compiled (``compiled``)."""

    def __init__(self, program: SizedProgram, sizes: Sequence[Sizes], kind: Kind) -> None:
        declared = program.declare()
        self.sizes = sizes
        self.values: list[dict[str, Array]] = []
        with session(declared.graph, kind) as sess:
            executable = sess.compile(declared.fetches, list(declared.feeds))
            for size in sizes:
                results = executable(*program.arrays(size))
                state = {name: sess.get(variable) for name, variable in declared.graph.variables.items()}
                self.values.append({name: x for name, x in (results | state).items() if x is not None})
            self.compiled = sess.compile_count


def assert_close(got: Calls, want: Calls) -> None:
    for size, values, others in zip(got.sizes, got.values, want.values, strict=True):
        assert values.keys() == others.keys()
        for name, x in values.items():
            y = others[name]
            assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{name} at {size}"
            difference = np.abs(x - y).max(initial=0) if x.dtype.kind == "f" else np.count_nonzero(x != y)
            assert difference <= TOLERANCE * np.abs(y).max(initial=0), f"{name} at {size}: {difference}"


def ranges_of(sizes: Sequence[Sizes]) -> set[Any]:
    """The ranges that sizes touch, of each open size one."""
    return {tuple(map(range_of, size)) for size in sizes}


def test_ranges_follow_from_the_size_alone() -> None:
    found = [range_of(size) for size in (0, 1, 16, 17, 32, 33, 64, 65, 1000)]
    assert found == [(0, 0), (1, 16), (1, 16), (17, 32), (17, 32), (33, 64), (33, 64), (65, 128), (513, 1024)]
    assert ends(65) == [1, 16, 17, 32, 33, 64, 65]


@every_program
def test_the_sizes_that_are_tried(program: SizedProgram) -> None:
    assert len(set(program.sizes)) >= 40
    assert len(set(program.quick)) == 6
    for axis, most in enumerate(program.most):
        tried = {size[axis] for size in program.sizes}
        assert tried >= {1, 16, 17, 33}
        assert max(tried) <= most
        assert {size[axis] for size in program.quick} >= {1, 16, 17, 40}


@pytest.mark.share(4)
@every_program
@pytest.mark.parametrize("memory", ["plan", slow("poison")])
def test_ranges_give_what_exact_programs_give(
    program: SizedProgram, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_MEMORY", memory)
    assert_close(Calls(program, program.quick, "ranges"), Calls(program, program.quick, "exact"))


@pytest.mark.slow
@every_program
def test_ranges_give_what_exact_programs_give_at_many_sizes(program: SizedProgram) -> None:
    ranged = Calls(program, program.sizes, "ranges")
    assert_close(ranged, Calls(program, program.sizes, "exact"))
    assert ranged.compiled <= len(ranges_of(program.sizes))


@every_program
def test_ranges_give_what_the_interpreter_gives(program: SizedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = program.quick[1::2]
    ranged = Calls(program, sizes, "ranges")
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    assert_close(ranged, Calls(program, sizes, "exact"))


@every_program
def test_a_program_serves_its_range(program: SizedProgram) -> None:
    assert Calls(program, program.quick, "ranges").compiled <= len(ranges_of(program.quick))


@every_program
def test_results_do_not_depend_on_the_sizes_before(program: SizedProgram) -> None:
    if program.declare().trains:
        pytest.skip("a step of training depends on those before")
    forth = Calls(program, program.quick, "ranges")
    back = Calls(program, program.quick[::-1], "ranges")
    assert forth.compiled == back.compiled
    for values, others in zip(forth.values, back.values[::-1], strict=True):
        for name, x in values.items():
            np.testing.assert_array_equal(x, others[name])


@pytest.mark.share(2)
@every_program
@pytest.mark.parametrize("largest", [16, slow(32), 64])
def test_the_arena_of_a_range_is_that_of_its_largest_size(program: SizedProgram, largest: int) -> None:
    """Scratch aside: which operands a product packs depends on what it knows of sizes."""
    declared = program.declare()
    arenas = []
    for kind in ("ranges", "exact"):
        with session(declared.graph, kind) as sess:
            executable = sess.compile(declared.fetches, list(declared.feeds))
            executable(*program.arrays((largest,) * len(program.dims)))
            arenas.append(executable.memory.arena_bytes - executable.memory.scratch_bytes)
    ranged, exact = arenas
    assert ranged <= ARENA * exact
