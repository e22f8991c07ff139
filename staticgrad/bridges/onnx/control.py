"""ONNX's branches and loops, and its sequences, which are lists of known length while a model is converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import bool_, int64
from staticgrad.bridges.arrays import as_tensor, cast
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.binding import Known, Number, Value
from staticgrad.bridges.onnx.dialect import OnnxScope, OnnxSequence, converts, tensors
from staticgrad.bridges.onnx.program import OnnxBody, OnnxNode
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

TRUE = np.array(True)
MOST_TURNS = 256  # of a loop that is unrolled, since what it carries changes its shape


@converts("If")
def branch(at: OnnxScope, node: OnnxNode, condition: Value, *, then_branch: OnnxBody, else_branch: OnnxBody) -> Any:
    if not isinstance(condition, Tensor):
        return at.call(then_branch if np.all(condition) else else_branch, [])
    bodies = [lambda body=body: tensors(at.call(body, [])) for body in (then_branch, else_branch)]
    try:
        return o.cond(o.reshape(condition, ()), *bodies)
    except (GraphError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.needs is not None:
            raise
        raise RefusedError(f"a branch that only a run knows: {error}", needs=node.inputs[0]) from error


class _Ends(Exception):
    """The body of a loop decides whether it goes on."""


@converts("Loop")
def loop(at: OnnxScope, node: OnnxNode, limit: Value, begins: Value = TRUE, *, body: OnnxBody) -> list[Any]:
    carried = [at.value(name) for name in node.inputs[2:]]
    count = len(carried)
    if isinstance(limit, Tensor) or limit is None or isinstance(begins, Tensor):
        return _until(at, node, limit, begins, carried)
    turns = int(np.ravel(limit)[0]) if np.all(begins) else 0

    def counted(state: Any, number: Tensor) -> Any:
        going, *results = at.call(body, [number, np.array(True), *state])
        if isinstance(going, Tensor) or not np.all(going):
            raise _Ends
        results = tensors(results)
        return results[:count], results[count:]

    try:
        first = tensors(carried)
        if turns == 0:
            raise GraphError("a loop without turns")
        final, stacked = o.scan(counted, first, o.arange(turns), length=turns)
        return [*final, *stacked]
    except _Ends:
        if turns <= MOST_TURNS and (found := _unrolled(at, node, turns, carried)) is not None:
            return found
        return _until(at, node, limit, begins, carried)
    except (GraphError, RefusedError):
        if turns > MOST_TURNS or (found := _unrolled(at, node, turns, carried)) is None:
            raise
        return found


def _unrolled(at: OnnxScope, node: OnnxNode, turns: int, carried: Sequence[Any]) -> list[Any] | None:
    """The results of a loop, turn by turn; None if its condition is not known."""
    body, state, rows = node.attr("body"), list(carried), list[list[Any]]()
    for number in range(turns):
        going, *results = at.call(body, [np.array(number, np.int64), np.array(True), *state])
        if isinstance(going, Tensor):
            return None
        state = results[: len(state)]
        rows.append(results[len(state) :])
        if not np.all(going):
            break
    if not rows and len(node.outputs) > len(carried):
        raise RefusedError("the shape of what a loop without turns gives is not known")
    return [*state, *(o.stack(tensors(column)) for column in zip(*rows))]


def _until(at: OnnxScope, node: OnnxNode, limit: Any, begins: Any, carried: Sequence[Any]) -> list[Any]:
    """A loop that only a run ends."""
    body = node.attr("body")
    lists = any(not isinstance(value, (Tensor, np.ndarray, np.generic)) for value in carried)
    if lists or len(body.outputs) - 1 > len(carried):
        needed = next((name for name in node.inputs[:2] if name and not at.is_known(name)), None)
        raise RefusedError("how many rows a loop gives depends on values that only a run knows", needs=needed)
    going = o.reshape(as_tensor(np.asarray(begins)) if not isinstance(begins, Tensor) else begins, ())
    end = None if limit is None else o.reshape(cast(as_tensor(limit), int64), ())

    def goes_on(state: Any) -> Tensor:
        return state[1] if end is None else o.logical_and(state[1], state[0] < end)

    def turn(state: Any) -> Any:
        number, going, values = state
        again, *results = tensors(at.call(body, [number, going, *values]))
        return number + 1, cast(o.reshape(again, ()), bool_), results

    _, _, values = o.while_loop(goes_on, turn, (o.constant(0, int64), going, tensors(carried)))
    return list(values)


@converts("Scan")
def scan(
    at: OnnxScope, node: OnnxNode, *given: Tensor, body: OnnxBody, num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None, scan_input_directions: Sequence[int] | None,
    scan_output_axes: Sequence[int] | None, scan_output_directions: Sequence[int] | None,
) -> list[Any]:  # fmt: skip
    if node.opset < 9:
        raise RefusedError("a scan over batches (opset 8) is not converted")
    first = len(given) - num_scan_inputs
    states, rows = list(given[:first]), list(given[first:])

    def turn(state: Any, now: Any) -> Any:
        results = tensors(at.call(body, [*state, *now]))
        return results[: len(states)], results[len(states) :]

    def flipped(xs: Sequence[Tensor], directions: Sequence[int] | None) -> list[Tensor]:
        return [o.flip(x, 0) if back else x for x, back in zip(xs, directions or [0] * len(xs))]

    rows = [o.moveaxis(x, axis, 0) for x, axis in zip(rows, scan_input_axes or [0] * len(rows))]
    final, stacked = o.scan(turn, states, flipped(rows, scan_input_directions))
    stacked = flipped(stacked, scan_output_directions)
    return [*final, *(o.moveaxis(y, 0, axis) for y, axis in zip(stacked, scan_output_axes or [0] * len(stacked)))]


# -- sequences ---------------------------------------------------------------------------------------------------------


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
