"""Graphs of PyTensor as graphs of staticgrad.

Input: inputs and outputs of PyTensor's variables, and for each input its shape, or its value. Output: placeholders and
results in a new graph of ours.

Of each variable of PyTensor a ``Translation`` knows a tensor of ours, or a *known* value: an array, a slice or None.
Shapes are known, and what is computed of them and of constants is computed at once with PyTensor's own Python code; so
sizes that a graph computes (of ``Reshape``, ``Alloc``, ``ARange``, slices, …) are numbers. A size that depends on
values which only a run knows is refused.

One table, ``CONVERTERS``, has a function for each class of ops, by the class's name, since versions of PyTensor move
classes between modules. A subclass is converted as the nearest class above it that is in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort

from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen, record
from staticgrad.base.types import dtype_of
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import control_dependencies

LARGEST_KNOWN = 1024  # elements of an array that is computed during the conversion
DTYPES = frozenset({"bool", "float16", "float32", "float64"}) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
# How many elements the results of ops have that make much of few and small operands.
LENGTHS: dict[str, Callable[[Sequence[Any]], float]] = {
    "ARange": lambda given: abs((given[1] - given[0]) / given[2]),
    "Alloc": lambda given: math.prod(map(int, given[1:])),
    "AllocEmpty": lambda given: math.prod(map(int, given)),
    "Eye": lambda given: int(given[0]) * int(given[1]),
    "Repeat": lambda given: given[0].size * int(np.max(given[1], initial=0)),
}
INNER = ("fgraph",)  # ops that have a graph of their own, whose nodes become known one by one


class RefusedError(StaticGradError, NotImplementedError):
    """A node of a PyTensor graph that has no counterpart here.

    Attributes:
        reason: why.
        node: the node; of a node inside an inner graph the outer one, as soon as it is left.
        needs: the variable whose value would have to be known when the graph is converted, if this is the reason.
    """

    def __init__(self, reason: str, node: Any = None, needs: Variable | None = None) -> None:
        self.reason, self.node, self.needs = reason, node, needs
        name = "" if node is None else f"{type(node.op).__name__} ({node}): "
        super().__init__(f"{name}{reason}")

    def at(self, node: Any) -> RefusedError:
        """The same, of this outer node."""
        inner = "" if self.node is None or self.node is node else f"{type(self.node.op).__name__}: "
        return RefusedError(inner + self.reason, node, self.needs)


Converter = Callable[["Translation", Any], Any]
CONVERTERS: dict[str, Converter] = {}


def converts(*names: str) -> Callable[[Converter], Converter]:
    """Enter a function of a translation and a node, which gives a result for each output of the node, or a lone one."""

    def enter(function: Converter) -> Converter:
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"{name} is converted twice")
            CONVERTERS[name] = function
        return function

    return enter


def converter_of(op: Any) -> Converter | None:
    """The function for an op, by its class or the nearest one above it that PyTensor defines."""
    for cls in type(op).__mro__:
        if cls.__name__ in CONVERTERS and cls.__module__.partition(".")[0] == "pytensor":
            return CONVERTERS[cls.__name__]
    return None


def dtype_name(variable: Variable) -> str | None:
    """The dtype of a tensor or number; None of what is neither, such as a generator of random numbers."""
    dtype = getattr(variable.type, "dtype", None)
    return dtype if hasattr(variable.type, "ndim") and not hasattr(variable.type, "format") else None


def unsupported(node: Any) -> str | None:
    """The reason why a node cannot be converted, as far as its op and its types say it; else None."""
    if converter_of(node.op) is None:
        return "this op is not converted"
    for variable in (*node.inputs, *node.outputs):
        dtype = dtype_name(variable)
        is_index = type(variable.type).__name__ in ("SliceType", "NoneTypeT")
        if dtype is None and not is_index:
            return f"{variable} of {variable.type} is no dense array"
        if dtype is not None and dtype not in DTYPES:
            return f"{variable} is of dtype {dtype}"
    return None


@record
class Translation:
    """A tensor of ours, or a known value, for each of PyTensor's variables; see the module."""

    values: dict[Variable, Any] = field(default_factory=dict)
    failures: dict[str, tuple[type[Exception], str]] = field(default_factory=dict)  # of checks, by their message here
    _arrays: dict[Tensor, Any] = field(default_factory=dict)  # of constants, what they were made of

    def inner(self, inputs: Sequence[Variable], values: Sequence[Any]) -> Translation:
        """A translation of an inner graph, given what its inputs are."""
        return Translation(dict(zip(inputs, values, strict=True)), self.failures)

    # -- what converters ask --------------------------------------------------------------------------------------

    def value(self, variable: Variable) -> Any:
        """A tensor, an array, a slice or None."""
        if variable not in self.values and isinstance(variable, Constant):
            data = variable.data
            is_array = dtype_name(variable) is not None
            self.values[variable] = np.asarray(data, variable.type.dtype) if is_array else data
        return self.values[variable]

    def tensor(self, variable: Variable) -> Tensor:
        value = self.value(variable)
        if isinstance(value, Tensor):
            return value
        lifted = self.values[variable] = o.constant(value, dtype_of(value.dtype))
        self._arrays[lifted] = value
        return lifted

    def tensors(self, variables: Iterable[Variable]) -> list[Tensor]:
        return [self.tensor(variable) for variable in variables]

    def shape(self, variable: Variable) -> tuple[int, ...]:
        return tuple(self.value(variable).shape)

    def find(self, variable: Variable) -> Any:
        """The value if it is known, else the tensor."""
        value = self.value(variable)
        return self._arrays.get(value, value) if isinstance(value, Tensor) else value

    def is_known(self, variable: Variable) -> bool:
        return not isinstance(self.find(variable), Tensor)

    def known(self, variable: Variable, what: str) -> Any:
        """The array that a variable is.

        Raises:
            RefusedError: only a run knows it.
        """
        value = self.find(variable)
        if isinstance(value, Tensor):
            raise RefusedError(f"{what} depends on values that only a run knows", needs=variable)
        return value

    def known_sizes(self, variables: Iterable[Variable], what: str = "the shape of the result") -> tuple[int, ...]:
        return tuple(int(self.known(variable, what)) for variable in variables)

    def checked(self, x: Tensor, condition: Tensor, error: type[Exception], message: str) -> Tensor:
        """``x``, which a run gives only where the condition holds; else it raises the error."""
        text = f"{message} [check {len(self.failures)} of a PyTensor graph]"
        self.failures[text] = error, message
        with control_dependencies([o.assert_(condition, text)]):
            return o.identity(x)

    # -- the conversion -------------------------------------------------------------------------------------------

    def convert(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[Any]:
        """The values of the outputs, each a tensor or something known."""
        known = [variable for variable in self.values if variable not in inputs]
        for node in toposort(outputs, blockers=[*inputs, *known]):
            if not all(output in self.values for output in node.outputs):
                self.convert_node(node)
        return [self.value(output) for output in outputs]

    def convert_node(self, node: Any) -> None:
        """Enter what the outputs of a node are.

        Raises:
            RefusedError: the node has no counterpart.
        """
        reason = unsupported(node)
        if reason is not None:
            raise RefusedError(reason, node)
        try:
            results = self._computed(node)
            if results is None:
                convert = converter_of(node.op)
                assert convert is not None
                results = convert(self, node)
        except RefusedError as error:
            raise error.at(node) from error
        except Exception as error:
            error.add_note(f"in the conversion of PyTensor's node {node}")
            raise
        if not isinstance(results, (list, tuple)):
            results = [results]
        for output, result in zip(node.outputs, results, strict=True):
            self.values[output] = _as_declared(output, result)

    def _computed(self, node: Any) -> list[Any] | None:
        """The results where the operands are known and few; they are computed by PyTensor in Python."""
        if any(hasattr(node.op, name) for name in INNER):
            return None
        if not all(variable in self.values or isinstance(variable, Constant) for variable in node.inputs):
            return None
        given = [self.find(variable) for variable in node.inputs]
        if any(isinstance(value, Tensor) for value in given):
            return None
        if any(isinstance(value, np.ndarray) and value.size > LARGEST_KNOWN for value in given):
            return None
        if any(np.ndim(value) > getattr(v.type, "ndim", 0) for v, value in zip(node.inputs, given)):
            return None  # a function of one element, applied to many
        length = LENGTHS.get(type(node.op).__name__)
        if length is not None and length(given) > LARGEST_KNOWN:
            return None
        results = perform(node, given)
        large = any(isinstance(result, np.ndarray) and result.size > LARGEST_KNOWN for result in results)
        return None if large else results


def _as_declared(output: Variable, result: Any) -> Any:
    """A result in the dtype that PyTensor has declared."""
    dtype = dtype_name(output)
    if dtype is None or not isinstance(result, (Tensor, np.ndarray, np.generic)):
        return result
    if isinstance(result, Tensor):
        return result if result.dtype == np.dtype(dtype) else o.astype(result, dtype_of(np.dtype(dtype)))
    return np.asarray(result, dtype)


def perform(node: Any, given: Sequence[Any]) -> list[Any]:
    """The results of a node by PyTensor's own Python code."""
    storage = {variable: [value] for variable, value in zip(node.inputs, given, strict=True)}
    storage |= {variable: [None] for variable in node.outputs}
    computed = {variable: [variable in node.inputs] for variable in storage}
    thunk = node.op.make_thunk(node, storage, computed, [], impl="py")
    thunk()
    return [storage[variable][0] for variable in node.outputs]


@frozen
class Conversion:
    """A graph of ours that computes what a graph of PyTensor does.

    Attributes:
        graph: the graph.
        placeholders: for each input, None where its value was given.
        results: for each output a tensor.
        failures: for the message of a check in the graph, the exception that PyTensor would raise.
    """

    graph: Graph
    placeholders: list[Tensor | None]
    results: list[Tensor]
    failures: Mapping[str, tuple[type[Exception], str]]


def convert(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    shapes: Sequence[Sequence[int] | None] | None = None,
    *,
    values: Mapping[Variable, Any] | None = None,
    graph: Graph | None = None,
) -> Conversion:
    """Declare in a graph of staticgrad what a graph of PyTensor computes.

    Args:
        inputs: PyTensor's variables that become placeholders; all that is computed of them is converted.
        outputs: PyTensor's variables to compute.
        shapes: of each input; by default the static shape of its type, which has to be complete. None stands for that.
        values: arrays of inputs, and of shared variables that are no inputs, which the graph may be compiled for;
            arrays that sizes depend on have to be here.
        graph: where to declare; a new one by default.

    Returns:
        A ``Conversion``.

    Raises:
        RefusedError: an op, a dtype or a size that cannot be converted; it names the node and the reason.
        StaticGradError: shapes that do not fit together.

    Example:
        >>> import pytensor.tensor as pt
        >>> from staticgrad.pytensor import convert
        >>> x = pt.vector("x", dtype="float64")
        >>> found = convert([x], [pt.exp(x).sum(), x.shape[0] * 2], [(3,)])
        >>> sg.Session(found.graph).run(found.results, {found.placeholders[0]: np.zeros(3)})
        [array(3.), array(6)]
    """
    values = {} if values is None else values
    given: list[Sequence[int] | None] = [None] * len(inputs) if shapes is None else list(shapes)
    declared = Graph() if graph is None else graph
    with declared:
        known = {v: np.asarray(a, v.type.dtype) if dtype_name(v) is not None else a for v, a in values.items()}
        translation = Translation(known)
        placeholders: list[Tensor | None] = []
        for number, (variable, shape) in enumerate(zip(inputs, given, strict=True)):
            if variable in translation.values:
                placeholders.append(None)
                continue
            dtype = dtype_name(variable)
            if dtype not in DTYPES:
                raise RefusedError(
                    f"input {number} ({variable}) is of {variable.type}, no dense array of a known dtype"
                )
            shape = variable.type.shape if shape is None else shape
            if any(size is None for size in shape):
                raise RefusedError(f"input {number} ({variable}): its shape {tuple(shape)} is not known; give it")
            name = variable.name if isinstance(variable.name, str) and variable.name else None
            x = o.placeholder(tuple(map(int, shape)), dtype_of(np.dtype(dtype)), name=name)
            placeholders.append(x)
            translation.values[variable] = x
        translation.convert(list(inputs), list(outputs))
        results = translation.tensors(outputs)
    return Conversion(declared, placeholders, results, translation.failures)


__all__ = ["CONVERTERS", "Conversion", "RefusedError", "Translation", "convert", "converts"]
