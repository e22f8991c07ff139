"""Vectors of sizes of which some are open: what a graph computes of them before it reshapes with them.

Such a value is an array of objects, integers and ``Dim``. Input: a node and its known operands. Output: its results,
known as well, or None where its operator is not among those that computations of shapes are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import Dim, int64
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Compute = Callable[[Any, Sequence[Any]], Any]


def array(values: Any) -> np.ndarray:
    """Sizes as an array: of int64 if all are numbers, else of objects."""
    found = np.asarray(values, dtype=object)
    return found if any(isinstance(each, Dim) for each in found.ravel()) else found.astype(np.int64)


def is_open_array(value: Any) -> bool:
    """True if it is an array of sizes of which some are open."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def as_tensor(values: np.ndarray) -> Tensor:
    """Sizes as an int64 tensor, which a run fills in."""
    parts = [
        o.size_value(each, int64) if isinstance(each, Dim) else o.constant(int(each), int64) for each in values.ravel()
    ]
    return o.reshape(o.stack(parts), values.shape)


def _axes(node: Any, given: Sequence[Any]) -> Any:
    return node.attr("axes") if "axes" in node.attributes else (given[1].tolist() if len(given) > 1 else None)


def _squeeze(node: Any, given: Sequence[Any]) -> Any:
    axes = _axes(node, given)
    return np.squeeze(given[0], None if axes is None else tuple(axes))


def _unsqueeze(node: Any, given: Sequence[Any]) -> Any:
    return np.expand_dims(given[0], tuple(_axes(node, given)))


def _slice(node: Any, given: Sequence[Any]) -> Any:
    def values(place: int, name: str) -> Any:
        return node.attr(name) if name in node.attributes else (given[place].tolist() if len(given) > place else None)

    starts, ends, steps = values(1, "starts"), values(2, "ends"), values(4, "steps")
    return given[0][slice(starts[0], ends[0], None if steps is None else steps[0])]


def _divide(node: Any, given: Sequence[Any]) -> Any:
    return np.frompyfunc(lambda a, b: a // b, 2, 1)(*given)


def _reshape(node: Any, given: Sequence[Any]) -> Any:
    return np.reshape(given[0], tuple(given[1].tolist()))


COMPUTE: dict[str, Compute] = {
    "Identity": lambda node, given: given[0],
    "Cast": lambda node, given: given[0] if node.attr("to") in (6, 7) else None,
    "Gather": lambda node, given: np.take(given[0], np.asarray(given[1]).astype(int), axis=node.attr("axis", 0)),
    "Concat": lambda node, given: np.concatenate([np.asarray(x, object) for x in given], axis=node.attr("axis")),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "Add": lambda node, given: np.asarray(given[0], object) + given[1],
    "Sub": lambda node, given: np.asarray(given[0], object) - given[1],
    "Mul": lambda node, given: np.asarray(given[0], object) * given[1],
    "Div": _divide,
    "ReduceProd": lambda node, given: np.prod(given[0], keepdims=bool(node.attr("keepdims", 1))),
}


def compute(node: Any, given: Sequence[Any]) -> list[Any] | None:
    """The results of a node of sizes."""
    known = COMPUTE.get(node.operator)
    result = None if known is None or node.domain else known(node, given)
    return None if result is None else [array(result)]
