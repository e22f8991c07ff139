"""Whether a compiled large program is right: element by element, beside the interpreter in float64.

A difference counts against the size of the element and of its row. What exceeds that is compared with what rounding
does: the interpreter runs again in the program's own dtype, and every value that it computes is changed by a few units
in the last place. Where those runs differ from the reference as well, because a sign decides, all cancels, or a row
without variance is normalised, a difference of that size is no error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.compiler.machine.target import SMALL_TARGETS, TARGETS, Target
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Node
from staticgrad.ops import interpreter
from staticgrad.runtime.running.binding import types_of
from support.large_programs import LAYERS, LargeProgram, large_program

Array = np.ndarray[Any, np.dtype[Any]]
QUICK, QUICK_LAYERS = 240, 480  # programs and single convolutions that are tried always
SCALE = 64  # by which arrays are smaller for the small targets
NEAR = {"float32": 2e-5, "float64": 1e-11}  # differences that need no second look, beside the element and its row
TRIALS = 32  # runs at most that show what rounding does; more than a few only where that is seldom seen
ROUNDING = 4.0, 16.0  # units in the last place by which values are changed in them
FACTOR = 20.0  # by which a difference may exceed what that does


def quick_cases() -> Iterator[tuple[int, str]]:
    """The seeds that are tried always, with the target of each: a small twin has programs 64 times smaller."""
    usual, small = (
        [t.name for t in some.values() if t.isa.arch in ("", "x86_64")] for some in (TARGETS, SMALL_TARGETS)
    )
    for seed in range(QUICK):
        yield seed, usual[seed % 3]
        yield seed, small[seed % 3]
    for number in range(QUICK_LAYERS):
        yield LAYERS + number, (usual, small)[number % 2][number // 2 % 3]


def scale_of(target: str) -> int:
    """By how much arrays are smaller for a target."""
    return SCALE if target in SMALL_TARGETS else 1


@contextmanager
def environment(**switches: str) -> Iterator[None]:
    """These switches during the block, and no message of NumPy about numbers."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for name, value in switches.items():
            patch.setenv(f"STATICGRAD_{name}", value)
        yield


def interpreted(program: LargeProgram) -> list[Array]:
    """The results by the interpreter."""
    with environment(BACKEND="reference"), sg.Session(program.graph) as session:
        return [np.asarray(y) for y in session.run(program.fetches, program.feeds)]


def compiled(program: LargeProgram, target: str) -> tuple[list[Array], list[Array]]:
    """The results by a program compiled for a target, with two threads and with one."""
    chosen = {"BACKEND": "compiled", "TARGET": target, "CACHE": "0"}
    arrays = list(program.feeds.values())
    with environment(**chosen), sg.Session(program.graph, num_threads=2) as session:
        runner = session.compile(program.fetches, list(program.feeds))._programs.native()
        two = runner.run(arrays)
        if not program.stateful:
            runner.calling.pool = 0  # as with one thread
            runner.frames.clear()  # which have been made for the pool
            return two, runner.run(arrays)
    with environment(**chosen), sg.Session(program.graph, num_threads=1) as session:
        return two, list(session.run(program.fetches, program.feeds))


def emit(program: LargeProgram, target: Target) -> None:
    """Compile a program as far as the text of its code, for any target."""
    feeds = types_of(list(program.feeds), [x.shape for x in program.feeds.values()])
    region = cut(program.graph, program.fetches, feeds)
    compile_region(region, CompileOptions(target, workers=2, prepares=True))


def reference(program: LargeProgram) -> list[Array]:
    """The results of the same program declared in float64."""
    return interpreted(large_program(program.seed, scale=program.scale, ops=program.ops, wide=True))


def _rows(x: Array) -> Array:
    """The root mean square of each row, to broadcast against ``x``."""
    with np.errstate(over="ignore"):
        return np.sqrt(np.mean(np.square(x), axis=-1 if x.ndim > 1 and x.shape[-1] >= 8 else None, keepdims=True))


def _differences(got: Array, want: Array) -> Array:
    """Of each element; infinite where only one is finite, or where other infinities or NaN meet."""
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want)
    if not np.isfinite(error).all():
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        error = np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
    return error


def suspicious(got: Array, want: Array) -> Array | None:
    """The places of elements that are not near, None if there are none."""
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if not got.size:
        return None
    near = NEAR[str(got.dtype)] if got.dtype.kind == "f" else 0.0
    error, wide = _differences(got, want), want.astype(np.float64)
    with np.errstate(all="ignore"):
        far = ~(error <= near * (np.abs(wide) + _rows(np.where(np.isfinite(wide), wide, 0.0)) + 1e-30))
    return far if far.any() else None


def _rounded(x: Array, near: float) -> Array:
    """Values with fewer digits, so that those that are nearly equal are equal."""
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(fraction / near) * near, exponent)).astype(x.dtype)


def trials(program: LargeProgram) -> Iterator[list[Array]]:
    """The interpreter's results in the program's dtype, the first as it is, others with more rounding."""
    yield interpreted(program)
    rng = np.random.default_rng(program.seed)
    checked = interpreter._checked

    for trial in range(TRIALS):

        def shaken(node: Node, type_: TensorType, value: Any, trial: int = trial) -> Array:
            array = checked(node, type_, value)
            if array.dtype.kind != "f" or node.op.moves or node.op.view or not node.inputs:
                return array
            terms = max(math.prod(x.shape) for x in node.inputs) / max(1, array.size)  # of a sum, perhaps
            near = np.finfo(array.dtype).eps * ROUNDING[trial % len(ROUNDING)] * max(1.0, terms**0.25)
            if trial % 3 == 2:
                return _rounded(array, near)
            size = np.abs(array)
            if node.op.name.startswith("cumulative"):  # what rounds is what was added before, also where that cancels
                size = np.full_like(size, size.max(initial=0.0))
            return np.asarray(array + near * size * rng.uniform(-1.0, 1.0, array.shape)).astype(array.dtype)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interpreter, "_checked", shaken)
            results = interpreted(program)
        yield results


def wrong(program: LargeProgram, got: Sequence[Array], want: Sequence[Array]) -> str | None:
    """What is wrong with the results, None if nothing is."""
    doubtful = {n: far for n, (a, b) in enumerate(zip(got, want, strict=True)) if (far := suspicious(a, b)) is not None}
    if not doubtful:
        return None
    noise = {n: np.zeros(want[n].shape) for n in doubtful}
    for results in trials(program):
        for n in list(doubtful):
            np.maximum(noise[n], _differences(results[n], want[n]), out=noise[n])
            bound = FACTOR * (noise[n] + np.quantile(noise[n], 0.99))
            doubtful[n] &= ~(_differences(got[n], want[n]) <= bound)
            if not doubtful[n].any():
                del doubtful[n]
        if not doubtful:
            return None
    n, bad = next(iter(doubtful.items()))
    return _told(n, got[n], want[n], bad)


def _told(number: int, got: Array, want: Array, bad: Array) -> str:
    first = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(bad)))
    places = np.atleast_1d(got)[first], np.atleast_1d(want)[first]
    return (
        f"result {number} {got.dtype}{list(got.shape)}: {int(bad.sum())} of {got.size} elements are wrong, the first at"
        f" {first}: {places[0]!r}, expected {places[1]!r}"
    )


def failure(program: LargeProgram, want: Sequence[Array], target: str) -> str | None:
    """What is wrong with a program on a target, None if it is right with one thread and with two, to the same bit."""
    two, one = compiled(program, target)
    if any(not np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(two, one, strict=True)):
        return "one thread and two give other bits"
    return wrong(program, two, want)


def check(seed: int, targets: Sequence[str], scale: int = 1) -> None:
    """Fail with all that helps to find the cause if the program of a seed is wrong on one of the targets."""
    program = large_program(seed, scale=scale)
    want = reference(program)
    assert all(np.isfinite(y).all() for y in want), f"the drawer is wrong: {program} is not finite"
    for target in targets:
        found = failure(program, want, target)
        if found is not None:
            raise AssertionError(f"{target}: {found}\n{program}\n{_shrunk(program, target)}")


def _shrunk(program: LargeProgram, target: str) -> str:
    """How the fewest of its ops that fail are declared; a single convolution has one."""
    for ops in range(len(program.chain) if program.seed < LAYERS else 0):
        shorter = large_program(program.seed, scale=program.scale, ops=ops)
        found = failure(shorter, reference(shorter), target)
        if found is not None:
            call = f"large_program({program.seed}, scale={program.scale}, ops={ops})"
            return f"{call} is wrong as well: {found}\n{shorter.graph}"
    return f"large_program({program.seed}, scale={program.scale}) is wrong with all of its ops only\n{program.graph}"
