"""ONNX's sequences and optional values. Their lengths are known: they are lists while a model is converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Known, Number, Value
from staticgrad.bridges.onnx.dialect import OnnxScope, OnnxSequence, converts, tensors
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o


def _values(sequence: Any) -> tuple[Any, ...]:
    if not isinstance(sequence, OnnxSequence):
        raise RefusedError("an operand is no sequence")
    return sequence.values


def _place(number: int, length: int) -> int:
    if not -length <= number <= length:
        raise RefusedError(f"place {number} of a sequence of {length} values")
    return number + length if number < 0 else int(number)


@converts("SequenceEmpty")
def empty() -> Any:
    return OnnxSequence(())


@converts("SequenceConstruct")
def construct(at: OnnxScope, node: Any) -> Any:
    return OnnxSequence(tuple(at.value(name) for name in node.inputs))


@converts("SequenceInsert")
def insert(sequence: Value, new: Value, place: Number) -> Any:
    values = _values(sequence)
    place = _place(len(values) if place is None else place, len(values))
    return OnnxSequence((*values[:place], new, *values[place:]))


@converts("SequenceErase")
def erase(sequence: Value, place: Number = -1) -> Any:
    values = _values(sequence)
    place = _place(place, len(values))
    return OnnxSequence((*values[:place], *values[place + 1 :]))


@converts("SequenceAt")
def value_at(sequence: Value, place: Number) -> Any:
    values = _values(sequence)
    return [values[_place(place, len(values))]]


@converts("SequenceLength")
def length(sequence: Value) -> Any:
    return np.array(len(_values(sequence)), np.int64)


@converts("ConcatFromSequence")
def concat_from_sequence(sequence: Value, *, axis: int, new_axis: int) -> Tensor:
    return (o.stack if new_axis else o.concat)(tensors(_values(sequence)), axis=axis)


@converts("SplitToSequence")
def split_to_sequence(x: Tensor, lengths: Known, *, axis: int, keepdims: int) -> Any:
    axis = axis % x.ndim
    if lengths is None or np.ndim(lengths) == 0:
        each = 1 if lengths is None else int(lengths)
        ends = list(range(each, int(x.shape[axis]), each))
    else:
        ends = np.cumsum(lengths)[:-1].tolist()
    parts = o.split(x, ends, axis=axis)
    if lengths is None and not keepdims:
        parts = [o.squeeze(part, axis) for part in parts]
    return OnnxSequence(tuple(parts))


@converts("SequenceMap")
def mapped(at: OnnxScope, node: Any, first: Value, *, body: Any) -> Sequence[Any]:
    given = [at.value(name) for name in node.inputs]
    count = len(_values(first))
    rows = [at.call(body, [x.values[k] if isinstance(x, OnnxSequence) else x for x in given]) for k in range(count)]
    return [OnnxSequence(tuple(row[k] for row in rows)) for k in range(len(node.outputs))]


# -- optional values: None where there is nothing ----------------------------------------------------------------------


@converts("Optional")
def optional(x: Value) -> Any:
    return [x]


@converts("OptionalHasElement")
def has_element(x: Value) -> Any:
    return np.array(x is not None)


@converts("OptionalGetElement")
def element(x: Value) -> Any:
    if x is None:
        raise RefusedError("an optional value is read that is not there")
    return [x]
