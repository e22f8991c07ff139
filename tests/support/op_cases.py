"""The cases of the op table as programs: operands, which of them derivatives are taken by, probes of derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.base.types import float32, float64, is_floating
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import OPS, Case, Op
from support.sampling import Array, draw, operand_dtypes, operands, rng_for

TESTED = [op for op in OPS.values() if op.cases and not op.effect]


TOLERANCE = {"float32": 3e-6, "float64": 1e-13}


STEP = 1e-5  # of finite differences, for values around 1


def declare(graph: Graph, op: Op, case: Case, dtype: np.dtype) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    with graph:
        xs = [sg.placeholder(s, d) for s, d in zip(case.shapes, operand_dtypes(case, dtype), strict=True)]
        return xs, graph.add(op, xs, case.attrs).outputs


def typed(op: Op) -> list[np.dtype]:
    return list(op.dtypes) or [float32, float64]


OVERFLOWS = {"sigmoid_cross_entropy"}  # a product of huge operands, which reference and code form in another order


def edge_ops() -> list[Op]:
    return [op for op in TESTED if op.elementwise and op.cases[0].shapes and op.name not in OVERFLOWS]


def varied(case: Case) -> list[int]:
    if getattr(case.attrs, "dtype", float64) != float64:
        return []  # a cast to float32 has no finite differences in float64
    if case.differentiable is not None:
        return list(case.differentiable)
    return [i for i, d in enumerate(operand_dtypes(case, float64)) if is_floating(d)]


DIFFERENTIABLE = [
    op for op in TESTED if op.differentiable and float64 in typed(op) and any(varied(c) for c in op.cases)
]


class Probe:
    """One case in float64: value, gradient and tangent along random directions, and their own gradients."""

    def __init__(self, graph: Graph, op: Op, case: Case, number: int) -> None:
        self.op, self.case = op, case
        rng = rng_for(op.name, number, "probe")
        self.xs, ys = declare(graph, op, case, float64)
        self.arrays = operands(op, case, float64, "probe")
        self.moving = [self.xs[i] for i in varied(case)]
        self.ys = [y for y in ys if is_floating(y.dtype)]
        self.directions = [draw(rng, a.shape, float64) if i in varied(case) else a for i, a in enumerate(self.arrays)]
        self.weights = [draw(rng, self.static(y), float64) for y in self.ys]
        with graph:
            tangents = [sg.constant(self.directions[i]) for i in varied(case)]
            weights = [sg.constant(w) for w in self.weights]
            self.gradients = sg.gradients(self.ys, self.moving, weights, unconnected_gradients="zero")
            self.tangents = sg.jvp(self.ys, self.moving, tangents)
            self.slope = sum((g * t).sum() for g, t in zip(self.gradients, tangents, strict=True))
            self.second = sg.gradients(self.slope, self.moving, unconnected_gradients="zero")

    @staticmethod
    def static(y: Tensor) -> Sequence[int]:
        return [int(size) for size in y.shape]

    @property
    def fetches(self) -> dict[str, Any]:
        return {"y": self.ys, "slope": self.slope, "tangents": self.tangents, "gradients": self.gradients,
                "second": self.second}  # fmt: skip

    def feeds(self, step: float) -> dict[Tensor, Array]:
        moved = []
        for i, (array, direction) in enumerate(zip(self.arrays, self.directions, strict=True)):
            moved.append(array + step * direction if i in varied(self.case) else array)
        return dict(zip(self.xs, moved, strict=True))


def assert_close(got: Array, want: Array, tolerance: float, what: str) -> None:
    assert np.linalg.norm(got - want) <= tolerance * max(float(np.linalg.norm(want)), 1e-3), f"{what}: {got} {want}"


def check_derivatives(op: Op) -> None:
    """Check derivatives of all cases: against finite differences, forward against reverse, second against first."""
    graph = Graph()
    probes = [Probe(graph, op, case, n) for n, case in enumerate(op.cases) if varied(case)]
    session = sg.Session(graph)

    def at(step: float) -> list[Any]:
        feeds: dict[Tensor, Array] = {}
        for probe in probes:
            feeds.update(probe.feeds(step))
        return list(session.run([probe.fetches for probe in probes], feeds))

    here, up, down = at(0.0), at(STEP), at(-STEP)
    for probe, now, above, below in zip(probes, here, up, down, strict=True):
        what = f"{op.name} {probe.case}"
        differences = [(a - b) / (2 * STEP) for a, b in zip(above["y"], below["y"], strict=True)]
        for tangent, difference in zip(now["tangents"], differences, strict=True):
            assert_close(tangent, difference, 1e-6, f"{what}: jvp")
        slope = sum(float((d * w).sum()) for d, w in zip(differences, probe.weights, strict=True))
        scale = sum(float(np.abs(d * w).sum()) for d, w in zip(differences, probe.weights, strict=True))
        assert abs(float(now["slope"]) - slope) <= 1e-6 * max(scale, 1e-3), f"{what}: vjp"
        product = sum(float((t * w).sum()) for t, w in zip(now["tangents"], probe.weights, strict=True))
        assert abs(float(now["slope"]) - product) <= 1e-9 * max(scale, 1e-3), f"{what}: vjp against jvp"
        curve = (float(above["slope"]) - float(below["slope"])) / (2 * STEP)
        curvature = sum(
            float((s * probe.directions[i]).sum()) for s, i in zip(now["second"], varied(probe.case), strict=True)
        )
        assert abs(curvature - curve) <= 2e-5 * max(scale, abs(curve), 1.0), f"{what}: second order"
