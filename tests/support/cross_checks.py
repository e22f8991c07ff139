"""What tests ask of programs for other machines: the op table, drawn programs and a training step, run by emulators,
equal the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import staticgrad as sg
from staticgrad.base.types import is_floating
from staticgrad.compiler.native.triples import target_for
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import Case, Op
from staticgrad.tools.demo.nets import RECIPES
from staticgrad.tools.demo.training import declare as declare_training
from support.cross import Array, Run, emulated
from support.large_checks import SCALE, reference, wrong
from support.large_programs import LAYERS, large_program
from support.op_cases import TESTED, TOLERANCE, edge_ops, typed
from support.random_graphs import random_graph
from support.sampling import EDGES, operand_dtypes, operands, relative_error

TOGETHER = 25  # ops with all of their cases in one executable


def run_of(op: Op, cases: Sequence[tuple[Case, list[Array]]], target: str) -> Run:
    """One program of cases of an op, each with its operands."""
    graph = Graph()
    feeds: dict[Tensor, Array] = {}
    fetches: list[Tensor] = []
    for case, arrays in cases:
        with graph:
            xs = [sg.placeholder(x.shape, x.dtype) for x in arrays]
            fetches += graph.add(op, xs, case.attrs).outputs
        feeds.update(zip(xs, arrays, strict=True))
    return Run(graph, fetches, feeds, target)


def check_table(target: str, folder: Path, *, whole: bool) -> None:
    """The op table: the first case of each op in its first dtype, or all of them."""
    runs: dict[Op, Run] = {}
    for op in TESTED:
        dtypes, cases = (typed(op), op.cases) if whole else (typed(op)[:1], op.cases[:1])
        pairs = list(itertools.product(dtypes, cases))
        runs[op] = run_of(op, [(case, operands(op, case, dtype)) for dtype, case in pairs], target)
    assert len(runs) == len(TESTED) > 100
    wrong_ops: list[str] = []
    together = TOGETHER if whole else len(runs)
    for some in itertools.zip_longest(*[iter(runs)] * together):
        ops = [op for op in some if op is not None]
        for op, found in zip(ops, emulated([runs[op] for op in ops], folder), strict=True):
            for n, (got, want) in enumerate(zip(found.results, runs[op].interpreted().results, strict=True)):
                tolerance = TOLERANCE.get(want.dtype.name, 0.0) * op.tolerance
                if not relative_error(got, want) <= tolerance:
                    wrong_ops.append(f"{op.name}, result {n}: {got} expected {want}")
    assert not wrong_ops, "\n".join(wrong_ops)


def check_edges(target: str, folder: Path) -> None:
    """Values at which elementwise functions are hard to compute."""
    runs: dict[Op, Run] = {}
    for op in edge_ops():
        cases = []
        for dtype in typed(op):
            dtypes = operand_dtypes(op.cases[0], dtype)
            table = itertools.product(*(EDGES[d.name] for d in dtypes))
            columns = [np.array(column, d) for column, d in zip(zip(*table, strict=True), dtypes, strict=True)]
            cases.append((op.cases[0], columns))
        runs[op] = run_of(op, cases, target)
    for (op, run), found in zip(runs.items(), emulated(list(runs.values()), folder), strict=True):
        for got, want in zip(found.results, run.interpreted().results, strict=True):
            assert got.dtype == want.dtype
            tolerance = {"float32": 4e-6, "float64": 1e-13}.get(got.dtype.name, 0.0) * op.tolerance
            tiny = np.finfo(got.dtype).tiny if is_floating(got.dtype) else 0
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tiny, err_msg=op.name)


def check_training(target: str, name: str, batch: int, folder: Path) -> None:
    """A training step of a net of the demonstration: loss, gradients by way of Adam's averages, and weights. Adam
    divides a gradient by its own size: where the gradient is nothing but rounding, the step may go anywhere."""
    declared = declare_training(RECIPES[name], batch, 8)
    rng = np.random.default_rng(0)
    feeds = {declared.images: rng.random((batch, 1, 8, 8), np.float32), declared.labels: rng.integers(0, 10, batch)}
    run = Run(declared.graph, [declared.loss, declared.accuracy, declared.train], feeds, target)
    (found,), wanted = emulated([run], folder), run.interpreted()
    weights = [key for key in found.state if f"{key}/adam/exp_avg" in found.state]
    assert len(weights) >= 4
    assert found.arrays.keys() == wanted.arrays.keys()
    for key, got in found.arrays.items():
        want = wanted.arrays[key]
        if key in weights:
            size = np.abs(wanted.state[f"{key}/adam/exp_avg"])
            got, want = got[size > 1e-4 * size.max()], want[size > 1e-4 * size.max()]
        assert relative_error(got, want) <= 1e-5, key


def check_drawn(target: str, seeds: Sequence[int], folder: Path) -> None:
    """Large programs on the target and on its small twin, and random graphs; small programs alone on boards, and on
    twins whose programs are short, which have no small ones."""
    usual = ((target, 1), (f"{target}-small", SCALE))
    machine = target_for(target).machine
    twins = ((target, 16 * SCALE),) if machine.sparing else ((target, SCALE),) if machine.compact else usual
    programs = [
        (large_program(seed, scale=scale), twin)
        for seed in (*seeds, *(LAYERS + seed for seed in seeds))
        for twin, scale in twins
    ]
    graphs = [random_graph(seed, advanced=seed % 2 == 1, dtype=sg.float64) for seed in seeds]
    runs = [Run(program.graph, program.fetches, program.feeds, twin) for program, twin in programs]
    runs += [Run(case.graph, case.results, case.feeds, target) for case in graphs]
    found = emulated(runs, folder)
    for (program, twin), results in zip(programs, found[: len(programs)], strict=True):
        told = wrong(program, results.results, reference(program))
        assert told is None, f"{twin}: {told}\n{program}"
    for seed, run, results in zip(seeds, runs[len(programs) :], found[len(programs) :], strict=True):
        for number, (got, want) in enumerate(zip(results.results, run.interpreted().results, strict=True)):
            assert relative_error(got, want, floor=1e-4) <= 1e-8, f"graph {seed}, result {number}"
