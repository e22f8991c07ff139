"""Random programs over the whole op table: compiled equals interpreter, forward equals reverse equals differences.

``STATICGRAD_RANDOM_OPS=5000`` in front of pytest draws so many of them for each target.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from support.random_dtypes import drawn
from support.random_families import FAMILIES, Family
from support.random_graphs import Maker, RandomGraph, random_graph, random_twins
from support.random_ops import ENTRIES, UNDRAWN, random_ops
from support.random_sizes import random_sizes
from support.random_tapes import random_tape
from support.sampling import relative_error, rng_for
from support.selection import rotating
from support.targets import EVERY

import staticgrad as sg
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import OPS

COUNT = int(os.environ.pop("STATICGRAD_RANDOM_OPS", "240"))
CHUNK = 10
TOLERANCE = 1e-8
STEP = 1e-6  # of finite differences
# Ops of the table without cases that no drawer declares, and the tests that do.
ELSEWHERE = {
    "reduce_wait": "test_distributed",
    "barrier": "test_distributed",
    "accumulated_grad": "programs over gradients, test_state",
    "accumulate_grad": "programs over gradients, test_state",
    "print": "test_effects",
    "py_call": "test_effects",
    "assertion": "test_effects",
    "effectful_cond": "test_control",
    "effectful_scan": "test_control",
    "effectful_while_loop": "test_control",
    "assign_rows": "test_row_updates",
    "surrogate": "test_odes",
    **dict.fromkeys(("snapshot_loop", "effectful_snapshot_loop", "rewound_loop"), "test_rewind"),
    **dict.fromkeys(("custom_tangent", "custom_derivatives", "once"), "test_custom_gradient"),
}


def chunks(first: int, count: int = COUNT) -> list[int]:
    return list(range(first, first + count, CHUNK))


def setting(seed: int, target: str) -> dict[str, str]:
    """A target, how memory is shared, how many threads."""
    rng = rng_for("setting", seed)
    memory = ("plan", "poison", "none")[int(rng.integers(3))]
    return {"STATICGRAD_TARGET": target, "STATICGRAD_MEMORY": memory, "STATICGRAD_THREADS": str(rng.integers(1, 3))}


def values(case: RandomGraph, fetches: Any) -> list[Any]:
    with np.errstate(all="ignore"), sg.Session(case.graph, seed=0) as session:
        return [leaf for leaf in sg.nest.flatten(session.run(fetches, case.feeds)) if leaf is not None]


def taped(case: RandomGraph) -> list[Any]:
    """The gradients of the loss by a tape."""
    with np.errstate(all="ignore"), sg.Session(case.graph, seed=0) as session:
        session.forward([case.loss], case.feeds).backward(case.loss)
        found = [(session.grad(x), x) for x in case.leaves]
    return [np.zeros(x.shape, x.dtype) if grad is None else grad for grad, x in found]


def agree(got: list[Any], want: list[Any], what: str, tensors: list[Tensor]) -> None:
    for a, b, x in zip(got, want, tensors, strict=True):
        error = relative_error(a, b, floor=1e-4)  # what cancels to nothing leaves rounding errors
        assert error <= TOLERANCE, f"{what}: {x} of {x.op.op.name}, relative error {error:.2e}"


@pytest.mark.parametrize(
    ("target", "start"), rotating([(t, s) for n, t in enumerate(EVERY) for s in chunks(10_000 * n)], 2 * len(EVERY))
)
def test_programs_of_the_whole_table_equal_the_interpreter(
    target: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(start, start + CHUNK):
        case = random_ops(seed)
        with case.graph:
            slopes = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        how, fetches = setting(seed, target), [case.results, slopes]
        what, tensors = f"seed {seed} {how}", [*case.results, *case.leaves]
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = values(case, fetches)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        with monkeypatch.context() as patch:
            for name, value in how.items():
                patch.setenv(name, value)
            agree(values(case, fetches), want, what, tensors)
            if seed % 3 == 0 and case.loss.requires_grad:
                agree(taped(case), want[len(case.results) :], f"{what}, a tape", case.leaves)


@pytest.mark.parametrize("start", rotating(chunks(0), 6))
def test_derivatives_of_drawn_entries_equal_finite_differences(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along one direction, by the interpreter; of entries whose rules meet in one graph."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for seed in range(start, start + CHUNK):
        case = random_ops(seed, smooth=True)
        rng = rng_for("direction", seed)
        moving = {x: rng.normal(size=x.shape) for x in case.leaves if x in case.feeds}
        if not moving:
            continue
        with case.graph:
            directions = [sg.constant(way) for way in moving.values()]
            (forward,) = sg.jvp([case.loss], list(moving), directions)
            slopes = sg.gradients(case.loss, list(moving), unconnected_gradients="zero")
            terms = [sg.sum(g * d) for g, d in zip(slopes, directions, strict=True)]
            reverse = sum(terms[1:], terms[0])
        with np.errstate(all="ignore"), sg.Session(case.graph, seed=0) as session:
            forwards, backwards = session.run([forward, reverse], case.feeds)
            ends = [
                session.run(case.loss, case.feeds | {x: case.feeds[x] + step * way for x, way in moving.items()})
                for step in (STEP, -STEP)
            ]
        slope = (ends[0] - ends[1]) / (2 * STEP)
        scale = max(abs(slope), 1e-2)
        assert abs(forwards - backwards) <= 1e-8 * scale, f"seed {seed}: forward {forwards}, reverse {backwards}"
        assert abs(slope - backwards) <= 1e-4 * scale, f"seed {seed}: difference {slope}, derivative {backwards}"


# -- what is drawn -----------------------------------------------------------------------------------------------------


def nodes_of(graphs: Iterable[Graph]) -> Iterator[Node]:
    """The nodes of graphs and of the bodies of their loops and branches."""
    for graph in graphs:
        for node in graph.nodes:
            yield node
            parts = [getattr(node.attrs, name) for name in getattr(node.attrs, "__dataclass_fields__", ())]
            parts = [part for value in parts for part in (value if isinstance(value, tuple) else (value,))]
            yield from nodes_of(part.graph for part in parts if isinstance(getattr(part, "graph", None), Graph))


@pytest.mark.filterwarnings("ignore::staticgrad.errors.PromotionWarning")
def test_every_op_is_drawn_by_some_drawer_or_the_reason_is_given() -> None:
    graphs = [random_ops(seed).graph for seed in range(len(ENTRIES))]
    for seed in range(40):
        graphs += [random_graph(seed, advanced=True).graph, drawn(seed).graph, random_sizes(seed).graph]
        graphs += [random_tape(seed).graph, random_twins(seed).graph]
    found = {node.op.name for node in nodes_of(graphs)}
    assert set(OPS) - found - set(ELSEWHERE) - set(UNDRAWN) == set(), "ops that no drawer declares"
    assert found & set(ELSEWHERE) == set(), "ops that are drawn after all: take them out of the list"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_family_gives_results(family: Family) -> None:
    made = 0
    for seed in range(30):
        maker = Maker(seed)
        with Graph():
            leaves, _ = maker.leaves(6, np.dtype(sg.float64))
            results = [family(maker, x) for x in leaves]
        assert {y.dtype for y in results if y is not None} <= {sg.float64}
        made += sum(y is not None for y in results)
    assert made >= 20
