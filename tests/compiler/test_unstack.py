"""Unstack: sums over a short last axis beside sums over others leave no tensor of that shape to store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.compiler.memory.plan import WAY_BYTES, WAYS
from staticgrad.compiler.passes.unstack import unstack
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
ROWS, COLUMNS = 32, 32  # of 4-byte elements a page


def layers(count: int, parts: int, dtype: str, kind: str = "sum") -> tuple[list[Tensor], dict[Tensor, Array]]:
    """Layers of ``parts`` colours over a picture, each as dense as a point is near its centre, and their gradients."""
    rng = np.random.default_rng(count * 10 + parts)
    shapes = ((count, 2), (count,), (count, parts), (ROWS, COLUMNS, parts))
    feeds = {sg.placeholder(shape, dtype): rng.uniform(0.1, 0.9, shape).astype(dtype) for shape in shapes}
    centres, radii, colours, target = feeds
    xs = sg.constant(np.linspace(0, 1, COLUMNS).astype(dtype) + np.zeros((ROWS, 1), dtype))
    ys = sg.constant(np.linspace(0, 1, ROWS).astype(dtype)[:, None] + np.zeros(COLUMNS, dtype))
    picture = sg.zeros((ROWS, COLUMNS, parts), dtype=dtype)
    for k in range(count):
        distance = sg.sqrt((xs - centres[k, 0]) ** 2 + (ys - centres[k, 1]) ** 2 + 1e-3)
        alpha = sg.nn.sigmoid((radii[k] - distance) * 8.0)[:, :, None]
        picture = picture * (1 - alpha) + alpha * colours[k]
    error = picture - target
    loss = sg.mean(error * error) + sg.mean(sg.max(error, -1) if kind == "max" else sg.prod(picture, -1))
    return [loss, *sg.gradients(loss, [centres, radii, colours])], feeds


def region_of(count: int, parts: int) -> Any:
    with Graph() as graph:
        fetches, feeds = layers(count, parts, "float32")
        region = cut(graph, fetches, {x: TensorType(a.shape, x.dtype) for x, a in feeds.items()})
    from staticgrad.compiler.passes import PASSES

    for step in PASSES:
        if step.name == "unstack":
            return region
        region = step.run(region)
    raise AssertionError("there is no such pass")


def long_shapes(region: Any, parts: int) -> list[str]:
    """The elementwise ops and reductions of tensors with the short axis that a fetch needs."""
    from staticgrad.compiler.passes.dce import dce

    nodes = dce(region).graph.nodes
    whole = (ROWS, COLUMNS, parts)
    return [node.op.name for node in nodes if node.op.nest and any(x.shape == whole for x in node.inputs)]


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_layers_of_colours_are_computed_at_their_points(parts: int) -> None:
    region = region_of(6, parts)
    assert long_shapes(region, parts)
    assert not long_shapes(unstack(region), parts)


@pytest.mark.parametrize(("count", "parts"), [(1, 3), (6, 5)], ids=["few sums", "many parts"])
def test_what_would_not_pay_stays_as_it_is(count: int, parts: int) -> None:
    region = region_of(count, parts)
    assert unstack(region) is region


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("kind", ["max", "prod"])
@pytest.mark.parametrize(("count", "parts", "dtype"), [(6, 2, "float64"), (8, 3, "float32"), (9, 4, "float32")])
def test_gradients_are_those_of_the_graph_as_declared(
    isa: str, kind: str, count: int, parts: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", isa)
    with Graph() as graph:
        fetches, feeds = layers(count, parts, dtype, kind)
    found = sg.Session(graph).run(fetches, feeds)
    monkeypatch.setenv("STATICGRAD_DISABLE", "unstack")
    want = sg.Session(graph).run(fetches, feeds)
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())


def test_a_picture_that_is_fetched_too_has_its_parts_side_by_side() -> None:
    with Graph() as graph:
        fetches, feeds = layers(9, 3, "float32")
        error = next(node for node in graph.nodes if node.op.name == "subtract" and node.inputs[1] in feeds)
    picture = error.inputs[0]
    session = sg.Session(graph)
    found, alone = session.run([*fetches, picture], feeds)[-1], session.run([picture], feeds)[0]
    assert found.shape == (ROWS, COLUMNS, 3)
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-7)


def test_many_buffers_of_whole_pages_lie_in_different_sets_of_a_cache() -> None:
    """A kernel that ran through a dozen of them side by side lost each cache line before it was full."""
    with Graph() as graph:
        fetches, feeds = layers(12, 3, "float32")
        executable = sg.Session(graph).compile(fetches, list(feeds))
    offsets = [b.offset for b in executable.memory.buffers if b.nbytes and b.nbytes % WAY_BYTES == 0]
    assert len(offsets) > WAYS
    assert len({offset % WAY_BYTES for offset in offsets}) > len(offsets) // 4
