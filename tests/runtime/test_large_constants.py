"""Large constants: what a rule makes is no part of a program, and what users give is held by it once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.ops.sources import CONSTANT, MOST_CARRIED

pytestmark = pytest.mark.usefixtures("backend")

LARGE = MOST_CARRIED + 3


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def carried(graph: sg.Graph) -> int:
    """The bytes of all constants of a graph."""
    return sum(int(node.outputs[0].type.nbytes) for node in graph.nodes if node.op is CONSTANT)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (lambda: sg.arange(LARGE), np.arange(LARGE)),
        (lambda: sg.arange(5, 5 - 3 * LARGE, -3), np.arange(5, 5 - 3 * LARGE, -3)),
        (lambda: sg.arange(2, LARGE * 7, 7, dtype=sg.int32), np.arange(2, LARGE * 7, 7, np.int32)),
        (lambda: sg.arange(LARGE, dtype=sg.float64), np.arange(LARGE, dtype=np.float64)),
        (lambda: sg.arange(0.5, 0.2 * LARGE, 0.1, dtype=sg.float64), np.arange(0.5, 0.2 * LARGE, 0.1)),
        (lambda: sg.arange(1.0, 0.6 * LARGE, 0.3), np.arange(1.0, 0.6 * LARGE, 0.3).astype(np.float32)),
        (lambda: sg.linspace(-1.0, 2.0, LARGE, dtype=sg.float64), np.linspace(-1.0, 2.0, LARGE)),
        (lambda: sg.linspace(3, 1, LARGE, endpoint=False), np.linspace(3, 1, LARGE, endpoint=False, dtype=np.float32)),
        (lambda: sg.eye(70, 80, k=-2), np.eye(70, 80, -2, np.float32)),
        (lambda: sg.where(sg.arange(LARGE) == 5, 1, 2), np.where(np.arange(LARGE) == 5, 1, 2)),
        (lambda: sg.nn.one_hot(sg.arange(70), 80), np.eye(70, 80, dtype=np.int64)),
        (lambda: sg.tril(sg.ones((70, 80))), np.tri(70, 80, dtype=np.float32)),
        (lambda: sg.repeat(sg.arange(LARGE), 2), np.repeat(np.arange(LARGE), 2)),
        (lambda: sg.jacobian(*[sg.constant(np.ones(70, np.float32))] * 2), np.eye(70, dtype=np.float32)),
    ],
)  # fmt: skip
def test_what_a_rule_makes_is_computed_where_it_is_read(
    g: sg.Graph, declared: Callable[[], Any], expected: Any
) -> None:
    """Fifty million numbers in a row were 400 MB of the program, and as many again when it was compiled."""
    y = declared()
    assert carried(g) < 1024
    with sg.Session(g) as sess:
        got = sess.compile(y, [])()
    assert got.dtype == expected.dtype
    tolerance = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
    np.testing.assert_allclose(got, expected, rtol=4 * tolerance, atol=1e-14)


def test_indices_that_a_rule_makes_are_known_when_declared(g: sg.Graph) -> None:
    a = np.random.default_rng(0).normal(size=3 * LARGE)
    x = sg.constant(a)
    with pytest.raises(sg.BoundsError, match="out of range"):
        sg.take(x, sg.arange(0, 4 * LARGE, 4), axis=0)
    every = sg.arange(1, 3 * LARGE, 3)
    written = sg.scatter(x, every, sg.zeros(LARGE, dtype=sg.float64))
    wrapped = sg.scatter(x, sg.arange(-1, -LARGE - 1, -1), sg.arange(LARGE, dtype=sg.float64))
    assert not any(node.op.name == "last_of_place" for node in g.nodes), "no two of the places are the same"
    got = sg.Session(g).run([sg.take(x, every, axis=0), written, wrapped])
    expected = [a[1::3], a.copy(), a.copy()]
    expected[1][1::3] = 0
    expected[2][-LARGE:] = np.arange(LARGE)[::-1]
    for value, want in zip(got, expected, strict=True):
        np.testing.assert_array_equal(value, want)


MEGABYTES = 16
FIRST = np.ones((64, 1), np.float32)


def peak(work: Callable[[], Any]) -> float:
    """The most memory that ``work`` takes, in sixteen megabytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / (MEGABYTES << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["random", "uniform but for the last"])
def test_a_large_constant_is_held_once(g: sg.Graph, kind: str, backend: str, tmp_path: Path) -> None:
    """Each program of a session had a copy of its own, and the compiler made one to compare."""
    if backend == "reference":
        pytest.skip("the interpreter computes with NumPy's own intermediates")
    x = sg.placeholder((64, 1))
    sg.Session(g).run(x * 2, {x: FIRST})  # what is imported and made once
    array = np.zeros((MEGABYTES * 4096, 64), np.float32)
    array[-1, -1] = 1
    if kind == "random":
        array[:] = np.random.default_rng(0).normal(size=array.shape)
    declared: list[sg.Tensor] = []
    kept: list[Any] = []
    assert peak(lambda: declared.append(sg.constant(array))) < 1.05
    y = sg.sum(declared[0] @ x)

    def compiled() -> None:
        for session in (sg.Session(g), sg.Session(g)):
            for fetched in (y, y + 1):
                program = session.compile(fetched, [x])
                kept.append((program, program(FIRST)))

    first = peak(compiled)
    assert first < 0.5, f"{first} times the constant beside the constant"
    np.testing.assert_allclose([kept[0][1], kept[1][1] - 1, kept[2][1]], array.sum(dtype=np.float64), rtol=1e-3)
    sg.save_graph(tmp_path / "graph.sgb", g)
    graph = sg.load_graph(tmp_path / "graph.sgb")
    loaded = sg.Session(graph)
    fetched, fed = next(node.outputs[0] for node in graph.nodes if node.op.name == "sum"), graph.nodes[0].outputs[0]
    again = peak(lambda: loaded.compile(fetched, [fed])(FIRST))
    assert again < 0.5, f"{again} times the constant beside the constant"
