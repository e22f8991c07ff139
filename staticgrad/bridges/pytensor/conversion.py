"""Graphs of PyTensor as graphs of staticgrad.

Input: inputs and outputs of PyTensor's variables, and for each input its shape, or its value. Output: placeholders and
results in a new graph of ours.

The walk is that of ``bridges/importer.py``. Shapes are known, and what is computed of them and of constants is computed
at once with PyTensor's own Python code; so sizes that a graph computes (of ``Reshape``, ``Alloc``, ``ARange``, slices,
…) are numbers. A size that depends on values which only a run knows is refused.

One table, ``CONVERTERS``, has a function for each class of ops, by the class's name, since versions of PyTensor move
classes between modules. A subclass is converted as the nearest class above it that is in the table. Ops that apply
another op to elements or to each of a batch ask the table for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarType

from staticgrad.base.errors import SourceLine
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPE_NAMES, Size, dtype_of
from staticgrad.bridges.arrays import LARGEST_KNOWN
from staticgrad.bridges.importer import Converters, Dialect, RefusedError, SourceBody, SourceScope, SourceType
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import control_dependencies

# The number of elements that ops give which make much of few and small operands.
LENGTHS: dict[str, Callable[[Sequence[Any]], float]] = {
    "ARange": lambda given: abs((given[1] - given[0]) / given[2]),
    "Alloc": lambda given: math.prod(map(int, given[1:])),
    "AllocEmpty": lambda given: math.prod(map(int, given)),
    "Eye": lambda given: int(given[0]) * int(given[1]),
    "Repeat": lambda given: given[0].size * int(np.max(given[1], initial=0)),
}

CONVERTERS = Converters()
converts = CONVERTERS.enter


def entries(table: Mapping[str, Callable[[Any, Any], Any]]) -> None:
    """Enter converters, each under the classes that its key names."""
    for names, converter in table.items():
        converts(*names.split())(converter)


def of_tensors(table: Mapping[str, Callable[..., Any]]) -> None:
    """Enter functions of a node's op and of its operands as tensors."""

    def converter(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        return lambda at, node: function(node.op, *at.tensors(node.inputs))

    entries({names: converter(function) for names, function in table.items()})


def key_of(op: Any, table: Mapping[str, Any]) -> str:
    """The name in a table of the op's class, or of the nearest one above it, that PyTensor defines; "" if none is."""
    names = [cls.__name__ for cls in type(op).__mro__ if cls.__module__.partition(".")[0] == "pytensor"]
    return next((name for name in names if name in table), "")


def dtype_name(variable: Variable) -> str | None:
    """The dtype of a tensor or number; None of what is neither, such as a generator of random numbers."""
    dtype = getattr(variable.type, "dtype", None)
    return dtype if hasattr(variable.type, "ndim") and not hasattr(variable.type, "format") else None


def require_static(node: Any, operand: Variable, shape: Sequence[Size], target: Sequence[Size]) -> None:
    """Refuse to broadcast an operand of this shape along an axis of which its type does not say that its size is 1, as
    PyTensor's own backends do.

    Raises:
        ValueError: there is such an axis.
    """
    for axis, (size, wanted) in enumerate(zip(shape, target[len(target) - len(shape) :])):
        if size == 1 != wanted and operand.type.shape[axis] != 1:
            raise ValueError(
                f"Runtime broadcasting not allowed. {node}: {operand} has size 1 along axis {axis}, which its type does"
                f" not say, where the shape is {tuple(target)}"
            )


def body_of(op: Any) -> SourceBody:
    """The body of an op that has a graph of its own."""
    return body_between(op.fgraph.inputs, op.fgraph.outputs)


def body_between(inputs: Sequence[Variable], outputs: Sequence[Variable], known: Sequence[Variable] = ()) -> SourceBody:
    """The nodes that compute outputs of inputs and of what else is known."""
    return SourceBody(inputs, list(toposort(outputs, blockers=[*inputs, *known])), outputs)


class _PyTensor(Dialect):
    """A node is an ``Apply``, a variable a ``Variable``."""

    system = "PyTensor"
    converters = CONVERTERS
    casts = True

    def name(self, node: Any) -> str:
        return type(node.op).__name__

    def key(self, node: Any) -> str:
        return key_of(node.op, CONVERTERS)

    def constant(self, variable: Variable) -> Any:
        if not isinstance(variable, Constant):
            return super().constant(variable)
        is_array = dtype_name(variable) is not None
        return np.asarray(variable.data, variable.type.dtype) if is_array else variable.data

    def declared(self, variable: Variable) -> SourceType | None:
        dtype = dtype_name(variable)
        is_number = isinstance(variable.type, ScalarType)  # in a function of one element, which is applied to many
        return None if dtype is None else SourceType(np.dtype(dtype), None if is_number else variable.type.shape)

    def bodies(self, node: Any) -> Iterator[SourceBody]:
        return (body_of(op) for op in _applied(node.op) if hasattr(op, "fgraph"))

    def source(self, node: Any) -> SourceLine | None:
        trace = getattr(node.outputs[0].tag, "trace", None)  # a list of frames, or of such lists
        while isinstance(trace, list):
            trace = trace[-1] if trace else None
        return None if trace is None else SourceLine(*trace[:3])

    def objects_to(self, node: Any) -> Iterator[tuple[str, str]]:
        for op in _applied(node.op):
            if not key_of(op, CONVERTERS):
                yield type(op).__name__, "this op is not converted"
        for variable in (*node.inputs, *node.outputs):
            dtype = dtype_name(variable)
            if dtype is None and type(variable.type).__name__ not in ("SliceType", "NoneTypeT"):
                yield self.name(node), f"{variable} of {variable.type} is no dense array"
            if dtype is not None and dtype not in DTYPE_NAMES:
                yield self.name(node), f"{variable} is of dtype {dtype}"

    def compute(self, node: Any, given: Sequence[Any]) -> list[Any] | None:
        if hasattr(node.op, "fgraph"):
            return None  # its nodes become known one by one
        if any(np.ndim(value) > getattr(v.type, "ndim", 0) for v, value in zip(node.inputs, given)):
            return None  # a function of one element, applied to many
        length = LENGTHS.get(type(node.op).__name__)
        return None if length is not None and length(given) > LARGEST_KNOWN else perform(node, given)


PYTENSOR = _PyTensor()


def _applied(op: Any) -> Iterator[Any]:
    """An op, and the one that it applies to each element or to each of a batch."""
    yield op
    for name in ("scalar_op", "core_op"):
        if hasattr(op, name):
            yield from _applied(getattr(op, name))


class Translation(SourceScope):
    """A tensor of ours, or a known value (an array, a slice or None), for each of PyTensor's variables.

    Attributes:
        failures: for the message of a check that was declared, the exception that PyTensor would raise.
    """

    def __init__(self, values: Mapping[Variable, Any] | None = None) -> None:
        super().__init__(PYTENSOR, {} if values is None else values)
        self.failures: dict[str, tuple[type[Exception], str]] = {}

    def checked(self, x: Tensor, condition: Tensor, error: type[Exception], message: str) -> Tensor:
        """``x``, which a run gives only where the condition holds; else it raises the error."""
        text = f"{message} [check {len(self.failures)} of a PyTensor graph]"
        self.failures[text] = error, message
        with control_dependencies([o.assert_(condition, text)]):
            return o.identity(x)

    def convert(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[Any]:
        """The values of the outputs, each a tensor or something known."""
        body = body_between(inputs, outputs, list(self.values))
        PYTENSOR.require(body)
        return self.walk(body)


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
    known = {v: np.asarray(a, v.type.dtype) if dtype_name(v) is not None else a for v, a in values.items()}
    body = body_between(inputs, outputs, list(known))
    PYTENSOR.require(body)
    declared = Graph() if graph is None else graph
    with declared:
        translation = Translation(known)
        placeholders: list[Tensor | None] = []
        for number, (variable, shape) in enumerate(zip(inputs, given, strict=True)):
            x = (
                None
                if variable in translation.values
                else _placeholder(f"input {number} ({variable})", variable, shape)
            )
            translation.values.update({} if x is None else {variable: x})
            placeholders.append(x)
        translation.walk(body)
        results = translation.tensors(outputs)
    return Conversion(declared, placeholders, results, translation.failures)


def _placeholder(what: str, variable: Variable, shape: Sequence[int] | None) -> Tensor:
    """The placeholder of an input.

    Raises:
        RefusedError: it is no array of a dtype that there is here, or its shape is not known.
    """
    dtype = dtype_name(variable)
    if dtype not in DTYPE_NAMES:
        raise RefusedError(f"{what} is of {variable.type}, no dense array of a known dtype")
    shape = variable.type.shape if shape is None else shape
    if any(size is None for size in shape):
        raise RefusedError(f"{what}: its shape {tuple(shape)} is not known; give it")
    name = variable.name if isinstance(variable.name, str) and variable.name else None
    return o.placeholder(tuple(map(int, shape)), dtype_of(np.dtype(dtype)), name=name)


__all__ = ["CONVERTERS", "Conversion", "RefusedError", "Translation", "convert", "converts"]
