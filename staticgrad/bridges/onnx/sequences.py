"""ONNX's sequences and optional values. Their lengths are known: they are lists while a model is converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxScope, OnnxSequence, converts, tensors
from staticgrad.bridges.onnx.program import OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _sequence(at: OnnxScope, node: OnnxNode) -> tuple[Any, ...]:
    value = at.value(node.inputs[0])
    if not isinstance(value, OnnxSequence):
        raise RefusedError(f"{node.inputs[0]} is no sequence")
    return value.values


def _place(at: OnnxScope, node: OnnxNode, place: int, length: int, default: int) -> int:
    found = at.number(node, place, what="which value of a sequence is meant")
    number = default if found is None else int(found)
    if not -length <= number <= length:
        raise RefusedError(f"place {number} of a sequence of {length} values")
    return number + length if number < 0 else number


@converts("SequenceEmpty")
def empty(at: OnnxScope, node: OnnxNode) -> Any:
    return OnnxSequence(())


@converts("SequenceConstruct")
def construct(at: OnnxScope, node: OnnxNode) -> Any:
    return OnnxSequence(tuple(at.value(name) for name in node.inputs))


@converts("SequenceInsert")
def insert(at: OnnxScope, node: OnnxNode) -> Any:
    values = _sequence(at, node)
    place = _place(at, node, 2, len(values), len(values))
    return OnnxSequence((*values[:place], at.value(node.inputs[1]), *values[place:]))


@converts("SequenceErase")
def erase(at: OnnxScope, node: OnnxNode) -> Any:
    values = _sequence(at, node)
    place = _place(at, node, 1, len(values), len(values) - 1)
    return OnnxSequence((*values[:place], *values[place + 1 :]))


@converts("SequenceAt")
def value_at(at: OnnxScope, node: OnnxNode) -> Any:
    values = _sequence(at, node)
    return values[_place(at, node, 1, len(values), 0)]


@converts("SequenceLength")
def length(at: OnnxScope, node: OnnxNode) -> Any:
    return np.array(len(_sequence(at, node)), np.int64)


@converts("ConcatFromSequence")
def concat_from_sequence(at: OnnxScope, node: OnnxNode) -> Tensor:
    values = tensors(_sequence(at, node))
    return (o.stack if node.attr("new_axis", 0) else o.concat)(values, axis=node.attr("axis"))


@converts("SplitToSequence")
def split_to_sequence(at: OnnxScope, node: OnnxNode) -> Any:
    x, axis = at.tensor(node.inputs[0]), node.attr("axis", 0)
    axis, lengths = axis % x.ndim, at.steering(node, 1)
    size = int(x.shape[axis])
    if lengths is None or np.ndim(lengths) == 0:
        each = 1 if lengths is None else int(lengths)
        ends = list(range(each, size, each))
    else:
        ends = np.cumsum(lengths)[:-1].tolist()
    parts = o.split(x, ends, axis=axis)
    if lengths is None and not node.attr("keepdims", 1):
        parts = [o.squeeze(part, axis) for part in parts]
    return OnnxSequence(tuple(parts))


@converts("SequenceMap")
def mapped(at: OnnxScope, node: OnnxNode) -> Sequence[Any]:
    count, body = len(_sequence(at, node)), node.attr("body")
    given = [at.value(name) for name in node.inputs]
    rows = [at.call(body, [x.values[k] if isinstance(x, OnnxSequence) else x for x in given]) for k in range(count)]
    return [OnnxSequence(tuple(row[k] for row in rows)) for k in range(len(node.outputs))]


# -- optional values: None where there is nothing ----------------------------------------------------------------------


@converts("Optional")
def optional(at: OnnxScope, node: OnnxNode) -> Any:
    return [at.value(node.inputs[0]) if node.has(0) else None]


@converts("OptionalHasElement")
def has_element(at: OnnxScope, node: OnnxNode) -> Any:
    return np.array(node.has(0) and at.value(node.inputs[0]) is not None)


@converts("OptionalGetElement")
def element(at: OnnxScope, node: OnnxNode) -> Any:
    value = at.value(node.inputs[0])
    if value is None:
        raise RefusedError("an optional value is read that is not there")
    return [value]
