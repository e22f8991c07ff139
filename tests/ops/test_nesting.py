"""Loops, branches and checkpoints within each other, and long chains: deeper than Python lets functions call others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base import depth
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.digest import digest

X = np.array([0.1, 0.2, 0.3])


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


@pytest.fixture
def little_room() -> Iterator[None]:
    """Python allows for a few frames more than there are."""
    before, frame, count = sys.getrecursionlimit(), sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    sys.setrecursionlimit(count + 230)
    yield
    sys.setrecursionlimit(before)


def in_conds(levels: int, x: Any) -> Any:
    if levels == 0:
        return sg.sin(x)
    return sg.cond(sg.sum(x) > 0, lambda: in_conds(levels - 1, x * 1.01), lambda: x)


def in_scans(levels: int, x: Any) -> Any:
    if levels == 0:
        return sg.sin(x)
    return sg.scan(lambda carry, _: (in_scans(levels - 1, carry * 1.01), None), x, None, length=1)[0]


def in_whiles(levels: int, x: Any) -> Any:
    def turn(state: Any) -> Any:
        return in_whiles(levels - 1, state[0] * 1.01), state[1] + 1

    return sg.sin(x) if levels == 0 else sg.while_loop(lambda s: s[1] < 1, turn, (x, 0), max_steps=1)[0]


def in_checkpoints(levels: int, x: Any) -> Any:
    return sg.sin(x) if levels == 0 else sg.checkpoint(lambda y: in_checkpoints(levels - 1, y), x * 1.01)


def chained(levels: int, x: Any) -> Any:
    for _ in range(levels):
        x = x * 1.01
    return sg.sin(x)


def check(graph: sg.Graph, fn: Callable[[int, Any], Any], levels: int) -> None:
    x = sg.placeholder((3,), sg.float64, requires_grad=True)
    y = fn(levels, x)
    total = sg.sum(y)
    results = [y, *sg.gradients(total, [x]), *sg.jvp(y, [x], [np.ones(3)])]
    session = sg.Session(graph)
    got = session.run(results, {x: X})
    scale = 1.01**levels
    for value, want in zip(got, (np.sin(X * scale), *[np.cos(X * scale) * scale] * 2), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-9)
    with session.forward(total, {x: X}) as tape:
        tape.backward(total)
    np.testing.assert_allclose(session.grad(x), np.cos(X * scale) * scale, rtol=1e-9)


NESTS = {"cond": in_conds, "scan": in_scans, "while": in_whiles, "checkpoint": in_checkpoints}
LEVELS = {"cond": 200, "scan": 200, "while": 40, "checkpoint": 400}  # deriving a while takes time by the cube of them


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("name", ["cond", "scan", "checkpoint"])
def test_what_is_nested_deeper_than_python_allows_runs(g: sg.Graph, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in a RecursionError, from some hundred levels on."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    limit = sys.getrecursionlimit()
    check(g, NESTS[name], 50 if name == "checkpoint" else 30)
    assert sys.getrecursionlimit() == limit


@pytest.mark.usefixtures("little_room")
def test_what_is_nested_deeper_than_python_allows_is_saved_and_mapped(g: sg.Graph, tmp_path: Path) -> None:
    x = sg.placeholder((2, 3), name="x")
    sg.vmap(lambda row: in_scans(30, row))(x)
    sg.save_graph(tmp_path / "graph.sgt", g)
    assert str(sg.load_graph(tmp_path / "graph.sgt")) == str(g) == str(sg.parse(str(g)))


@pytest.mark.parametrize("name", NESTS)
def test_the_digest_of_what_is_nested_grows_with_its_levels(g: sg.Graph, name: str) -> None:
    """It doubled with each level: with programs kept on disk, 200 levels took all memory."""
    texts = []
    for levels in (10, 20):
        x = sg.placeholder((3,), sg.float64)
        y = NESTS[name](levels, x)
        texts.append(len(digest(cut(g, [y, *sg.gradients(sg.sum(y), [x])], {x: x.type})).text))
    assert texts[1] < 2.5 * texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", NESTS)
def test_hundreds_of_levels_compile(g: sg.Graph, name: str) -> None:
    check(g, NESTS[name], LEVELS[name])


@pytest.mark.usefixtures("little_room")
def test_a_chain_is_as_long_as_you_like(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    check(g, chained, 400)


@pytest.mark.parametrize("name", ["cond", "scan", "checkpoint"])
def test_what_is_nested_without_end_is_refused_with_its_depth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "MOST_NESTED", 60)
    x = sg.placeholder((3,), sg.float64)
    limit = sys.getrecursionlimit()
    with pytest.raises(sg.GraphError, match=rf"{name}: nested 61 deep: (?s:.*)test_nesting\.py"):
        NESTS[name](-1, x)
    assert sys.getrecursionlimit() == limit
    assert in_conds(3, x).shape == (3,)


def test_threads_that_nest_at_once_share_the_limit() -> None:
    limit = sys.getrecursionlimit()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with sg.Graph():
                in_checkpoints(250, sg.placeholder((3,)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sys.getrecursionlimit() == limit
