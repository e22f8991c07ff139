"""Random graphs: compiled equals interpreter, run and tape, under every switch.

``STATICGRAD_RANDOM_GRAPHS=100000`` in front of pytest draws more of them.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from support.random_graphs import RandomGraph, random_graph, random_twins
from support.sampling import relative_error
from support.selection import rotating
from support.targets import EVERY

import staticgrad as sg
from staticgrad.compiler.passes import PASSES

COUNT = int(os.environ.pop("STATICGRAD_RANDOM_GRAPHS", "500"))
CHUNK = 25
TOLERANCE = 1e-8
OPTIONAL = [p.name for p in PASSES if p.optional] + ["fuse", "schedule", "scalarize", "running"]


def fetches_of(case: RandomGraph, gradients: list[Any]) -> list[Any]:
    return [case.results, gradients, case.train, [x for x in case.leaves if x.op.op.name == "variable"]]


def run(case: RandomGraph, fetches: list[Any]) -> list[Any]:
    """The fetches of two runs (so that updates show), and the state at the end."""
    with np.errstate(all="ignore"), sg.Session(case.graph) as session:
        first = session.run(fetches, case.feeds)
        second = session.run(fetches, case.feeds)
        state = [session.get(x) for x in case.leaves if x.op.op.name == "variable"]
    return [*flatten(first), *flatten(second), *state]


def flatten(nest: Any) -> list[Any]:
    return [leaf for leaf in sg.nest.flatten(nest) if leaf is not None]


def agree(got: list[Any], want: list[Any], what: str) -> None:
    assert len(got) == len(want), what
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        error = relative_error(a, b, floor=1e-4)  # what cancels to nothing leaves rounding errors
        assert error <= TOLERANCE, f"{what}: result {number} of {len(want)}, relative error {error:.2e}"


def build(seed: int, *, advanced: bool = False, dtype: np.dtype = sg.float64) -> tuple[RandomGraph, list[Any]]:
    case = random_graph(seed, advanced=advanced, dtype=dtype)
    with case.graph:
        gradients = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
    return case, fetches_of(case, gradients)


def chunks(first: int, count: int) -> list[Any]:
    """Where chunks begin."""
    return rotating(range(first, first + count, CHUNK))


@pytest.mark.parametrize("start", chunks(0, COUNT))
def test_a_run_equals_the_interpreter(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(start, min(start + CHUNK, COUNT)):
        case, fetches = build(seed)
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = run(case, fetches)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        agree(run(case, fetches), want, f"seed {seed}")


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", [sg.float16, sg.bfloat16], ids=str)
def test_short_floats_equal_the_interpreter(dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly always to the bit: both compute in float32, whose last digits seldom change what is rounded."""
    for seed in range(5000, 5000 + COUNT // 20):
        case, fetches = build(seed, dtype=dtype)
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = run(case, fetches)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        for number, (a, b) in enumerate(zip(run(case, fetches), want, strict=True)):
            assert a.dtype == b.dtype
            short = a.dtype == dtype
            wide = (a.astype(np.float32), b.astype(np.float32)) if short else (a, b)
            assert relative_error(*wide, floor=1e-2) <= 4 * float(sg.finfo(dtype).eps), f"seed {seed}: result {number}"


@pytest.mark.parametrize("target", EVERY)
def test_loops_sorts_scatters_and_factorisations_equal_the_interpreter(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for seed in range(3000 + EVERY.index(target), 3000 + COUNT // 10, len(EVERY)):
        case, fetches = build(seed, advanced=True)
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = run(case, fetches)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        with monkeypatch.context() as patch:
            patch.setenv("STATICGRAD_MEMORY", "poison")
            agree(run(case, fetches), want, f"seed {seed} {target}")


def settings() -> list[dict[str, str]]:
    chosen: list[dict[str, str]] = [{"STATICGRAD_DISABLE": name} for name in OPTIONAL]
    chosen.append({"STATICGRAD_DISABLE": ",".join(OPTIONAL)})
    chosen.append({"STATICGRAD_MEMORY": "poison", "STATICGRAD_VERIFY": "1"})
    chosen.append({"STATICGRAD_MEMORY": "none"})
    chosen += [{"STATICGRAD_TARGET": name} for name in EVERY]
    chosen += [{"STATICGRAD_TARGET": name, "STATICGRAD_MEMORY": "poison"} for name in ("generic",)]
    return chosen


@pytest.mark.share(2)
@pytest.mark.parametrize("setting", settings(), ids=lambda s: ",".join(s.values()))
def test_every_switch_gives_the_same(setting: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each setting other graphs."""
    count = max(8, COUNT // 60)
    first = 1000 + settings().index(setting) * count
    for seed in range(first, first + count):
        case, fetches = build(seed)
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = run(case, fetches)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        with monkeypatch.context() as patch:
            for name, value in setting.items():
                patch.setenv(name, value)
            agree(run(case, fetches), want, f"seed {seed} {setting}")


def tape_results(case: RandomGraph) -> list[Any]:
    with np.errstate(all="ignore"), sg.Session(case.graph) as session:
        tape = session.forward([case.loss, case.results[0]], case.feeds)
        value = tape[case.loss]
        tape.backward(case.loss, retain_graph=True)
        once = [session.grad(x) for x in case.leaves]
        tape.backward(case.loss)
        twice = [session.grad(x) for x in case.leaves]
    return [value, *(g for g in (*once, *twice) if g is not None)]


@pytest.mark.parametrize("start", chunks(2000, COUNT // 5))
def test_a_tape_equals_the_interpreter_and_accumulates(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(start, min(start + CHUNK, 2000 + COUNT // 5)):
        case = random_graph(seed)
        if not case.loss.requires_grad:
            continue
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = tape_results(case)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        agree(tape_results(case), want, f"seed {seed}")


@pytest.mark.parametrize("start", rotating([0, 8, 16, 24]))
def test_derivatives_in_bodies_and_through_deriving_rules_equal_plain_ones(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of them by the interpreter, as compiling takes nearly all the time."""
    for seed in range(start * COUNT // 250, (start + 8) * COUNT // 250):
        case = random_twins(seed)
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference" if seed % 8 else "compiled")
        with np.errstate(all="ignore"), sg.Session(case.graph) as session:
            plain, inside = session.run([case.plain, case.inside], case.feeds)
        agree(inside, plain, f"seed {seed}")
