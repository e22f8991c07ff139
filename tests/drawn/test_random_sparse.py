"""Sparse derivatives of random programs: the pattern has every element that differs from zero, and the values are those
of the dense derivative; it has no other where no value decides what depends on what.

``STATICGRAD_RANDOM_SPARSE=5000`` in front of pytest draws so many programs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.random_graphs import RandomGraph, random_graph
from support.random_ops import random_ops
from support.sampling import rng_for
from support.selection import rotating

import staticgrad as sg
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.sparse import _OneDirection
from staticgrad.graph.graph import Tensor
from staticgrad.ops.control.bodies import bodies_of

Array = np.ndarray[Any, np.dtype[Any]]
COUNT = int(os.environ.pop("STATICGRAD_RANDOM_SPARSE", "390"))
CHUNK = 10
PARTS = 3  # one of so many chunks is tried by each commit
MOST_ROWS, MOST_COLUMNS, MOST_SQUARED = 200, 100, 25
POINTS = 4
MOST_LOOSE = 3  # derivatives of one chunk, of about 20, that have an element which is zero at all points
# Values decide whether what these give depends on an operand, so an element may be zero at all points that are tried.
KINKS = {
    "where", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "sign", "isnan", "max", "min",
    "cumulative_max", "cumulative_min", "floor", "signbit", "hardtanh", "hardsigmoid", "hardswish", "relu", "clip",
    "cond", "random_uniform",
}  # fmt: skip
# Second derivatives that are refused.
REFUSED = "derived by a"


def chunks(first: int) -> list[int]:
    return list(range(first, first + COUNT, CHUNK))


def drawn(seed: int) -> RandomGraph:
    """Programs of the whole table, some of entries that are smooth, and others with loops and conditions in them."""
    if seed % 5 == 4:
        return random_graph(seed, advanced=True)
    return random_ops(seed, smooth=seed % 5 == 3)


def pairs_of(case: RandomGraph) -> list[tuple[Tensor, Tensor]]:
    """What is derived, by what."""
    ys = [y for y in case.results if y.dtype == sg.float64 and 0 < y.size <= MOST_ROWS and y.requires_grad]
    xs = [x for x in case.leaves if x.dtype == sg.float64 and 0 < x.size <= MOST_COLUMNS]
    return [(y, x) for y in ys[:2] for x in xs[:1]]


def run(case: RandomGraph, fetches: Any, feeds: dict[Tensor, Array]) -> Any:
    with np.errstate(all="ignore"), sg.Session(case.graph, seed=0) as session:
        return session.run(fetches, feeds)


def check(sparse: sg.SparseTensor, values: Array, dense: Array, what: str) -> None:
    """The values are those of the dense matrix, which is zero everywhere else. Where that has a NaN there is none to
    compare with: what is undefined depends on the direction of the derivation."""
    mask = np.zeros(sparse.shape, bool)
    mask[sparse.rows, sparse.cols] = True
    scale = max(1.0, float(np.abs(np.nan_to_num(dense)).max(initial=0)))
    others = np.nan_to_num(np.where(mask, 0, dense))
    assert np.abs(others).max(initial=0) <= 1e-13 * scale, f"{what}: an element is missing in {sparse}"
    want = dense[sparse.rows, sparse.cols]
    defined = np.isfinite(want) & np.isfinite(values)
    error = np.abs(values - want)[defined] / np.maximum(np.abs(want[defined]), 1e-3 * scale)
    assert error.max(initial=0) <= 1e-8, f"{what}: relative error {error.max():.2e} in {sparse}"


@pytest.mark.filterwarnings("ignore::staticgrad.errors.PromotionWarning")
@pytest.mark.parametrize("start", rotating(chunks(0), PARTS))
def test_sparse_derivatives_of_drawn_programs_equal_dense_ones(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for seed in range(start, start + CHUNK):
        case = drawn(seed)
        with case.graph:
            pairs = pairs_of(case)
            matrices = [(sg.sparse_jacobian(y, x), sg.jacobian(y, x)) for y, x in pairs]
            matrices += hessians(case, [x for _, x in pairs[:1] if x.size <= MOST_SQUARED and seed % 2])
        found = run(case, [(sparse.values, dense) for sparse, dense in matrices], case.feeds)
        for (sparse, _), (values, dense) in zip(matrices, found, strict=True):
            check(sparse, values, dense.reshape(sparse.shape), f"seed {seed}")


def hessians(case: RandomGraph, xs: list[Tensor]) -> list[tuple[sg.SparseTensor, Tensor]]:
    """None where the program has no second derivative."""
    try:
        return [(sg.sparse_hessian(case.loss, x), sg.hessian(case.loss, x)) for x in xs]
    except sg.GraphError as error:
        if REFUSED not in str(error):
            raise
        return []


def points(case: RandomGraph, seed: int) -> Iterator[dict[Tensor, Array]]:
    """Feeds about those of the program, some of them nearer to zero, where fewer functions have reached a limit."""
    rng = rng_for("points", seed)
    yield case.feeds
    for scale in (1.0, 0.3, 0.1)[: POINTS - 1]:
        yield {
            x: value * scale + rng.normal(size=value.shape) * 0.05 if value.dtype.kind == "f" else value
            for x, value in case.feeds.items()
        }


def names_in(nodes: Any) -> set[str]:
    found = set()
    for node in nodes:
        found.add(node.op.name)
        for body in bodies_of(node):
            found |= names_in(body.graph.nodes)
    return found


@pytest.mark.filterwarnings("ignore::staticgrad.errors.PromotionWarning")
@pytest.mark.parametrize("start", rotating(chunks(100_000), PARTS))
def test_patterns_of_drawn_programs_are_exact(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no value decides, each element of the pattern differs from zero at one of some points. In few programs some
    do not: terms cancel (``x - x``, softmax over one class), or a function is at a limit, where its slope is zero."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    loose = []
    for seed in range(start, start + CHUNK):
        case = drawn(seed)
        with case.graph:
            for y, x in pairs_of(case):
                if x not in case.feeds:  # a variable, which has one value
                    continue

                def tangent(t: Tensor, y: Tensor = y, x: Tensor = x) -> Tensor:
                    return jvp([y], [x], [t])[0]

                ahead = _OneDirection(case.graph, x, tangent)
                rows, cols = ahead.pattern.pairs()
                if ahead.vague or names_in(ahead.nodes) & KINKS:
                    continue
                seen = np.zeros((int(y.size), int(x.size)), bool)
                dense = sg.jacobian(y, x)
                for feeds in points(case, seed):
                    try:
                        seen |= run(case, dense, feeds).reshape(seen.shape) != 0
                    except sg.StaticGradError:  # a check failed
                        continue
                if not seen[rows, cols].all():
                    loose.append(f"seed {seed}: {y} by {x}, {len(rows)} kept, {np.count_nonzero(seen)} found")
    assert len(loose) <= MOST_LOOSE, loose
