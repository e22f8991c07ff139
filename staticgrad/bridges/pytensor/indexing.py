"""PyTensor's subscripts: reads, and writes and additions at an index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, converts, require_static
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _index(at: Translation, node: Any, first: int) -> tuple[Any, ...]:
    """The key of ``x[...]``: the operands from ``first`` on, where ``idx_list`` says they stand, or as they are."""
    operands = iter(node.inputs[first:])
    template = getattr(node.op, "idx_list", None)
    if template is None or type(node.op).__name__ in ("AdvancedSubtensor1", "AdvancedIncSubtensor1"):
        template = [None] * (len(node.inputs) - first)
    key: list[Any] = []
    for entry in template:
        if isinstance(entry, slice):
            value: Any = slice(*(None if p is None else next(operands) for p in (entry.start, entry.stop, entry.step)))
        else:
            value = at.value(operand := next(operands))
        if isinstance(value, slice):
            key.append(slice(*(_bound(at, part) for part in (value.start, value.stop, value.step))))
        elif isinstance(value, Tensor) and value.dtype == bool:
            raise RefusedError("the size of what a mask chooses depends on values that only a run knows", needs=operand)
        elif value is None or isinstance(value, Tensor):
            key.append(value)
        elif value.dtype == bool:
            key += np.nonzero(value)
        else:
            key.append(int(value) if value.ndim == 0 else value)
    return tuple(key)


def _bound(at: Translation, part: Any) -> int | None:
    if isinstance(part, Variable):
        part = at.known(part, "the size of a slice")
    return None if part is None else int(part)


@converts("MakeSlice")
def make_slice(at: Translation, node: Any) -> slice:
    return slice(*(_bound(at, part) for part in node.inputs))


@converts("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1")
def read(at: Translation, node: Any) -> Tensor:
    x = at.tensor(node.inputs[0])
    result: Tensor = x[_index(at, node, 1)]
    return result


@converts("IncSubtensor", "AdvancedIncSubtensor", "AdvancedIncSubtensor1")
def write(at: Translation, node: Any) -> Tensor:
    x, y = at.tensors(node.inputs[:2])
    sets = node.op.set_instead_of_inc
    masks = [v for v in node.inputs[2:] if getattr(v.type, "dtype", "") == "bool" and not at.is_known(v)]
    y = cast(y, x.dtype)
    if masks:
        return _write_masked(at, node, x, y, sets)
    key = _index(at, node, 2)
    if type(node.op).__name__ == "AdvancedIncSubtensor1":
        require_static(node, node.inputs[1], y.shape, (*key[0].shape, *x.shape[1:]))
    if x.dtype == bool and not sets:
        raise RefusedError("bools are not added at an index")
    if not sets and getattr(node.op, "ignore_duplicates", False):  # as x[key] += y of NumPy
        return o.scatter(x, key, x[key] + y)
    return o.scatter(x, key, y, mode="set" if sets else "add")


def _write_masked(at: Translation, node: Any, x: Tensor, y: Tensor, sets: bool) -> Tensor:
    """A write of one value, or one row, wherever a mask holds that only a run knows; the mask is the only index."""
    if len(node.inputs) != 3:
        raise RefusedError("a mask beside other indices depends on values that only a run knows", needs=node.inputs[2])
    mask = at.tensor(node.inputs[2])
    rest = x.ndim - mask.ndim
    rows = y.shape[: max(0, y.ndim - rest)]
    if math.prod(rows) != 1 or (rows and node.inputs[1].type.shape[0] != 1):
        raise RefusedError("where a mask's elements go depends on values that only a run knows", needs=node.inputs[2])
    value = o.reshape(y, y.shape[len(rows) :])
    spread = o.reshape(mask, (*mask.shape, *([1] * rest)))
    return o.where(spread, o.broadcast_to(value if sets else x + value, x.shape), x)
