"""The exactness of compiled gradients: the same net in float64, derived once, run as machine code and by the
interpreter.

The interpreter is NumPy and the definition of every op, so what differs is the order of additions and the last bits of
elementary functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.running.reference import ReferenceRunner
from staticgrad.runtime.session.session import Session
from staticgrad.tools.demo.nets import Recipe


def gradient_difference(recipe: Recipe, weights: Mapping[str, Array], images: Array, labels: Array) -> float:
    """The largest difference between compiled and interpreted gradients, in units of the largest gradient.

    Args:
        weights: of the net, by the names of ``Module.state_dict``; used as float64.
        images: (n, 1, 8, 8), labels: (n,) int64: one batch; dropout drops the same for both.
    """
    graph = sg.Graph()
    with graph:
        x = sg.placeholder(images.shape, sg.float64, name="images")
        t = sg.placeholder(labels.shape, sg.int64, name="labels")
        net = recipe.make(sg.float64)
        loss = sg.nn.cross_entropy(net(x), t)
        gradients = [g for g in sg.gradients(loss, net.parameters()) if g is not None]
    found = []
    for interpreted in (False, True):
        with sg.Session(graph, seed=0) as session:  # a fresh one for each: the first run draws the same numbers
            net.load_state_dict(session, weights)
            run = _interpret if interpreted else _compiled
            found.append(run(session, gradients, {x: images.astype(np.float64), t: labels}))
    pairs = list(zip(*found, strict=True))
    largest = max(float(np.max(np.abs(expected))) for _, expected in pairs)
    return max(float(np.max(np.abs(actual - expected))) for actual, expected in pairs) / largest


def _compiled(session: Session, fetches: Sequence[Tensor], feeds: Mapping[Tensor, Array]) -> list[Array]:
    values: list[Array] = session.run(list(fetches), feeds)
    return values


def _interpret(session: Session, fetches: Sequence[Tensor], feeds: Mapping[Tensor, Array]) -> list[Array]:
    types = {x: TensorType(value.shape, value.dtype) for x, value in feeds.items()}
    region = cut(session.graph, fetches, types)
    return ReferenceRunner(region, session.store).run(list(feeds.values()))
