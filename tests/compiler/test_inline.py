"""Buffers between nests that are computed again at their readers: the same values, fewer bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.random_graphs import random_graph
from support.sampling import relative_error
from support.selection import rotating
from support.targets import HERE

import staticgrad as sg
from staticgrad.compiler.steps import inline as inlining

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be computed where it is read is."""
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    monkeypatch.setattr(inlining, "LEAST_BYTES", 0)
    monkeypatch.setattr(inlining, "pays", lambda *_: True)


def results(case: Any, gradients: list[Any]) -> list[Array]:
    variables = [x for x in case.leaves if x.op.op.name == "variable"]
    with np.errstate(all="ignore"), sg.Session(case.graph) as session:
        found = [session.run([case.results, gradients, case.train, variables], case.feeds) for _ in range(2)]
        state = [session.get(x) for x in variables]
    return [x for x in (*sg.nest.flatten(found), *state) if x is not None]


@pytest.mark.parametrize("start", rotating(range(3000, 3200, 25)))
def test_random_graphs_without_any_buffer_that_can_go(start: int, always: None, monkeypatch: Any) -> None:
    for seed in range(start, start + 25):
        case = random_graph(seed)
        with case.graph:
            gradients = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
        want = results(case, gradients)
        monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
        for a, b in zip(results(case, gradients), want, strict=True):
            assert relative_error(a, b, floor=1e-4) <= 1e-8, f"seed {seed}"


# -- sums over pairs ------------------------------------------------------------------------------------------------


def squares(x: Any, y: Any) -> Any:
    return sg.sum((x[:, None, :] - y[None, :, :]) ** 2, -1)


def kernel_sum(x: Any, y: Any) -> Any:
    return sg.sum(sg.exp(-squares(x, y)), 1)


def pair_log_sum(x: Any, y: Any) -> Any:
    return sg.logsumexp(-0.5 * squares(x, y), 1)


def nearest(x: Any, y: Any) -> Any:
    return sg.min(squares(x, y), 1)


def by_second(x: Any, y: Any) -> Any:
    return sg.sum(sg.sqrt(squares(x, y) + 1.0), 0)


def slices(x: Any, y: Any) -> Any:
    return sg.sum(sg.exp(-squares(x, y))[1::2, 3:], 1)


def manhattan(x: Any, y: Any) -> Any:
    return sg.sum(sg.max(sg.abs(x[:, None, :] - y[None, :, :]), -1) > 0.5, 1)


PAIRS = [kernel_sum, pair_log_sum, nearest, by_second, slices, manhattan]


def of_pairs(function: Any, n: int, m: int, d: int, dtype: Any, gradient: bool) -> tuple[Any, list[Any], list[Array]]:
    rng = np.random.default_rng(n + 10 * m + d)
    arrays = [rng.standard_normal((size, d)).astype(dtype) for size in (n, m)]
    graph = sg.Graph()
    with graph:
        x, y = (sg.placeholder(a.shape, sg.float64 if dtype == np.float64 else sg.float32) for a in arrays)
        out = function(x, y)
        fetches = [out]
        if gradient:
            fetches += sg.gradients(sg.sum(out * out), [x, y])
    return graph, [fetches, [x, y]], arrays


def run(graph: Any, declared: list[Any], arrays: list[Array], backend: str, monkeypatch: Any) -> list[Array]:
    monkeypatch.setenv("STATICGRAD_BACKEND", backend)
    fetches, feeds = declared
    with sg.Session(graph) as session:
        return list(session.run(fetches, dict(zip(feeds, arrays, strict=True))))


SIZES = [(1, 1, 1), (5, 3, 2), (17, 33, 3), (40, 21, 7), (4, 70, 1), (0, 5, 2), (3, 19, 16)]


@pytest.mark.share(2)
@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("function", PAIRS, ids=lambda f: f.__name__)
def test_sums_over_pairs(function: Any, target: str, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size in both dtypes on some target, each target with both."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for number, (n, m, d) in enumerate(SIZES, HERE.index(target)):
        dtype, bound = ((np.float32, 3e-5), (np.float64, 1e-12))[number % 2]
        declared = of_pairs(function, n, m, d, dtype, function is not manhattan)
        want = run(*declared, "reference", monkeypatch)
        got = run(*declared, "compiled", monkeypatch)
        for a, b in zip(got, want, strict=True):
            assert relative_error(a, b, floor=1e-2) <= bound, (n, m, d, dtype)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("target", HERE)
def test_no_array_over_all_pairs_is_stored(
    target: str, d: int, gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target == "generic" and gradient:
        pytest.skip("without fused multiplication exp costs more than what it takes to store it")
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    n = 700
    graph, (fetches, feeds), _ = of_pairs(kernel_sum, n, n, d, np.float32, gradient)
    with sg.Session(graph) as session:
        executable = session.compile(fetches, feeds)
        largest = max((buffer.nbytes for buffer in executable.memory.buffers), default=0)
    assert largest < n * n


def test_a_variable_that_is_updated_from_its_own_pairs_is_read_before(always: None, monkeypatch: Any) -> None:
    def steps(backend: str) -> list[Array]:
        monkeypatch.setenv("STATICGRAD_BACKEND", backend)
        graph = sg.Graph()
        with graph:
            points = sg.Variable(np.random.default_rng(0).standard_normal((23, 2)))
            loss = sg.sum(kernel_sum(points, points))
            train = sg.optim.SGD(0.01).minimize(loss)
        with sg.Session(graph) as session:
            losses = [session.run([loss, train])[0] for _ in range(3)]
            return [*losses, session.get(points)]

    for a, b in zip(steps("compiled"), steps("reference"), strict=True):
        assert relative_error(a, b, floor=1e-6) <= 1e-10


def test_a_value_that_much_hangs_on_is_stored_once() -> None:
    """A row of a long reduction is not made again for each reader."""
    graph = sg.Graph()
    with graph:
        x = sg.placeholder((600, 400), sg.float32)
        rows = sg.sum(sg.tanh(x), 1, keepdims=True)
        table = x * rows
        outputs = [sg.sum(table, 0), sg.sum(table * 2.0, 1)]
    with sg.Session(graph) as session:
        text = session.compile(outputs, [x]).text("kernels")
    assert text.count("= tanh(") == 1, text


def test_a_mean_of_equal_terms_is_not_written_out_term_by_term() -> None:
    """The gradient of what is centred is centred itself: a mean of terms that are all the same."""
    count = 20_011
    with sg.Graph() as graph:
        x = sg.placeholder((2, count))
        rows = sg.permute_dims(x, (1, 0))
        weights = sg.placeholder((2,))
        loss = sg.sum(sg.sum(sg.permute_dims(rows - sg.mean(rows, axis=0, keepdims=True), (1, 0)), axis=1) * weights)
        (gradient,) = sg.gradients(loss, [x])
    program = sg.Session(graph).compile(gradient, weights)
    assert program.text("kernels").count("\n") < 100
    np.testing.assert_allclose(program(np.array([1.0, 0.3], np.float32)), np.zeros((2, count)), atol=1e-6)


def test_cheap_values_that_come_back_from_far_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences of a row and a column are small each, but many steps lie between the forward and the backward."""
    with sg.Graph() as graph:
        x, z = sg.placeholder((64, 32), sg.float64), sg.placeholder((40, 32), sg.float64)
        h = sg.placeholder((64,), sg.float64)
        y = x
        for step in range(40):
            y = sg.sin(y * (z[step] - h[:, None]))
        fetches = [y, *sg.gradients((y * y).sum(), [x, z, h])]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=feed.shape) for feed in (x, z, h)]
    lean = sg.Session(graph).compile(fetches, [x, z, h])
    monkeypatch.setenv("STATICGRAD_DISABLE", "inline")
    plain = sg.Session(graph).compile(fetches, [x, z, h])
    assert plain.memory.arena_bytes - lean.memory.arena_bytes > 25 * x.type.nbytes
    for found, expected in zip(lean(*values), plain(*values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
