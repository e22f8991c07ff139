"""The NumPy interpreter: what every op means.

Input: a graph (declared or rewritten), arrays for its fed tensors, the values of variables, the key of the random
ops. Output: the fetched values, what is to be written to variables, what is to be added to gradients. Nothing is
written here: whoever called commits the outcome if no error was raised, so a run that fails changes no state.

Nodes run in the order of the graph. Reading a variable gives its value at the start of the run; the result of
``assign`` is the new value. ``STATICGRAD_BACKEND=reference`` runs sessions on this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from staticgrad.base.depth import all_levels
from staticgrad.base.errors import BoundsError, FeedError, NumericsError, SourceLine, StaticGradError, out_of_range
from staticgrad.base.frozen import record
from staticgrad.base.reach import reach
from staticgrad.base.types import TensorType, is_floating, is_short_float
from staticgrad.graph.graph import Computation, Node, Tensor
from staticgrad.graph.optable import Array

ReadVariable = Callable[[Any], Array]
ReadGradient = Callable[[str], "Array | None"]
Observe = Callable[[Tensor, Array, Sequence[Array]], Array]


@record
class Outcome:
    """The result of a run: fetched values, new values of variables by key, sums to add to gradients by key."""

    values: list[Array] = field(default_factory=list)
    writes: dict[str, Array] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)


@all_levels()
def evaluate(
    computation: Computation,
    arrays: Sequence[Array],
    read_variable: ReadVariable,
    key: Array | None = None,
    read_gradient: ReadGradient = lambda key: None,
    key_again: Array | None = None,
    observe: Observe = lambda x, value, operands: value,
) -> Outcome:
    """Run a computation.

    Args:
        arrays: a value for each of ``computation.feeds``.
        read_variable: gives the value of a variable from its attributes.
        key: int64[2], the session's seed and the run number; random ops need it.
        key_again: the same of the run whose draws are repeated; default: ``key``.
        read_gradient: gives an accumulated gradient by its key, None where there is none.
        observe: gets each value that is computed, with its operands, also in bodies, and gives what the run goes on
            with.

    Raises:
        FeedError: a placeholder that is needed was not fed.
        BoundsError, StaticGradError, NumericsError: a check of the graph failed.
        Exception: what a Python function of the graph raised.
    """
    feeds = dict(zip(computation.feeds, arrays, strict=True))
    run = _Evaluation(feeds, read_variable, key, read_gradient, key if key_again is None else key_again, observe)
    needed = _needed(computation.fetches, computation.effects, feeds)
    with np.errstate(all="ignore"):
        for node in computation.graph.nodes:
            if node in needed:
                run.node(node)
    run.outcome.values = [run.values[x] for x in computation.fetches]
    return run.outcome


def _needed(fetches: Iterable[Tensor], effects: Iterable[Node], feeds: Mapping[Tensor, Array]) -> set[Node]:
    def before(node: Node) -> list[Node]:
        earlier = [*(x.op for x in node.inputs if x not in feeds), *node.control]
        return [n for n in earlier if not (n.outputs and all(y in feeds for y in n.outputs))]

    return reach([*(x.op for x in fetches if x not in feeds), *effects], before)


class _Evaluation:
    """The values of one run."""

    def __init__(
        self,
        feeds: Mapping[Tensor, Array],
        read_variable: ReadVariable,
        key: Array | None,
        read_gradient: ReadGradient,
        key_again: Array | None,
        observe: Observe,
    ) -> None:
        self.observe = observe
        self.values: dict[Tensor, Array] = dict(feeds)
        self.outcome = Outcome()
        self.read_variable = read_variable
        self.key = key
        self.key_again = key_again
        self.read_gradient = read_gradient

    def node(self, node: Node) -> None:
        inputs = [self.values[x] for x in node.inputs]
        special = _control if node.op.role == "control" else _SPECIAL.get(node.op.name)
        results = special(self, node, inputs) if special is not None else _reference(node, inputs)
        for y, value in zip(node.outputs, results, strict=True):
            if y not in self.values:  # else it is fed, and the feed stands for it
                self.values[y] = self.observe(y, _checked(node, y.type, value), inputs)


def _reference(node: Node, inputs: Sequence[Array], *extra: Array) -> Sequence[Any]:
    widens = node.op.widens(inputs)
    if widens:
        inputs = [x.astype(np.float32) if is_short_float(x.dtype) else x for x in inputs]
    try:
        result = node.op.reference(node.attrs, *extra, *inputs)
    except IndexError as error:  # NumPy found an index out of range
        if isinstance(error, BoundsError):  # found by the reference, which knows no lines
            raise error if error.source is not None else BoundsError(str(error), source=node.source) from None
        raise BoundsError(f"{node.name!r} ({node.op.name}): {error}", source=node.source) from error
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [np.asarray(r).astype(y.dtype) for r, y in zip(results, node.outputs, strict=True)] if widens else results


def _checked(node: Node, type_: TensorType, value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype != type_.dtype or (type_.static and array.shape != type_.shape):
        actual = TensorType(array.shape, array.dtype)
        raise StaticGradError(
            f"the reference of op {node.op.name} gave a value of another type\n  expected {type_}\n  actual   {actual}",
            source=node.source,
        )
    return array


# -- ops that touch more than their operands ------------------------------------------------------------------------

_Values = Sequence[Array]


def _placeholder(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    if node.outputs[0] not in run.values:
        raise FeedError(f"placeholder {node.name!r} is needed but not fed", source=node.source)
    return [run.values[node.outputs[0]]]


def _variable(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    return [run.read_variable(node.attrs)]


def _assign(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    run.outcome.writes[node.attrs.key] = inputs[-1]
    return [inputs[-1]]


def _assign_rows(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    rows, index, kept, before = inputs
    key = node.attrs.key
    after = run.outcome.writes.get(key, before).copy()
    after[index[kept]] = rows[kept]
    run.outcome.writes[key] = after
    return [rows]


def _accumulate_grad(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    before = run.outcome.gradients.get(node.attrs.key)
    run.outcome.gradients[node.attrs.key] = inputs[0] if before is None else before + inputs[0]
    return [inputs[0]]


def _accumulated_grad(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    gradient = run.read_gradient(node.attrs.key)
    if gradient is None:
        raise StaticGradError(f"no backward has accumulated the gradient {node.attrs.key!r}", source=node.source)
    return [gradient]


def _random(run: _Evaluation, node: Node, inputs: _Values) -> Sequence[Any]:
    key = run.key_again if node.epoch else run.key
    if key is None:
        raise StaticGradError(f"{node.name!r} draws random numbers, and the run has no key", source=node.source)
    return _reference(node, inputs, key)


def _print(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    print_value(node.attrs.text, inputs[0])
    return [inputs[0]] if node.outputs else []


def _py_call(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    return call_function(node.attrs.function, inputs, tuple(y.type for y in node.outputs), node.source)


def _bounds_check(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    index = inputs[0]
    if index.size and (index.min() < 0 or index.max() >= node.attrs.size):
        what, size, wraps = node.attrs.what, node.attrs.size, node.attrs.wraps
        raise bounds_error(what, size, int(index.min()), int(index.max()), node.source, wraps)
    return [inputs[0]] if node.outputs else []


def _assertion(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    if not np.all(inputs[0]):
        raise StaticGradError(f"assertion failed: {node.attrs.message}", source=node.source)
    return [inputs[0]] if node.outputs else []


def _numerics_check(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    if is_floating(inputs[0].dtype) and not np.isfinite(inputs[0]).all():
        raise NumericsError(node.attrs.message, source=node.source)
    return [inputs[0]] if node.outputs else []


def _group(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    return []


def _run_body(run: _Evaluation) -> Callable[[Computation, _Values], _Values]:
    def run_body(body: Computation, arrays: _Values) -> _Values:
        return evaluate(body, arrays, run.read_variable, run.key, run.read_gradient, observe=run.observe).values

    return run_body


def _control(run: _Evaluation, node: Node, inputs: _Values) -> _Values:
    results: _Values = node.attrs.evaluate(inputs, _run_body(run))
    return results


_SPECIAL: dict[str, Callable[[_Evaluation, Node, _Values], Sequence[Any]]] = {
    "placeholder": _placeholder,
    "variable": _variable,
    "assign": _assign,
    "assign_rows": _assign_rows,
    "accumulate_grad": _accumulate_grad,
    "accumulated_grad": _accumulated_grad,
    "random_uniform": _random,
    "print": _print,
    "py_call": _py_call,
    "bounds_check": _bounds_check,
    "assertion": _assertion,
    "numerics_check": _numerics_check,
    "group": _group,
}


# -- shared with compiled programs: the same words and the same calls on both backends ------------------------------


def bounds_error(
    what: str, size: int, smallest: int, largest: int, source: SourceLine | None, wraps: bool = False
) -> BoundsError:
    """The error for indices in [smallest, largest] where [0, size) is allowed; with ``wraps`` those that were given
    negative had been added to the size."""
    return BoundsError(out_of_range(what, size, smallest, largest, wraps), source=source)


def print_value(text: str, value: Array) -> None:
    """Write one line of ``sg.print``: the text, followed by the value."""
    gap = "" if not text or text[-1].isspace() else " "
    print(f"{text}{gap}{value}", flush=True)


def call_function(
    function: Callable[..., Any],
    inputs: Sequence[Array],
    types: Sequence[TensorType],
    source: SourceLine | None,
) -> list[Array]:
    """Call a user's function with copies of ``inputs``; its results are cast to the declared types.

    Raises:
        StaticGradError: another number of results, or another shape or dtype than declared.
    """
    results = function(*(np.array(x) for x in inputs))
    if results is None:
        results = ()
    elif not isinstance(results, (tuple, list)):
        results = (results,)
    if len(results) != len(types):
        raise StaticGradError(f"py_call: expected {len(types)} results, actual {len(results)}", source=source)
    arrays = []
    for position, (value, type_) in enumerate(zip(results, types, strict=True)):
        array = np.asarray(value)
        weak = type(value) in (bool, int, float)
        if array.shape != type_.shape or not (weak or np.can_cast(array.dtype, type_.dtype, "safe")):
            raise StaticGradError(
                f"py_call: result {position}\n  expected {type_}\n  actual   {TensorType(array.shape, array.dtype)}",
                source=source,
            )
        arrays.append(np.ascontiguousarray(array, type_.dtype).reshape(type_.shape))
    return arrays
