"""The dialect of ONNX: how its programs are walked, with the table of converters.

Input: bodies of ``program.py`` and the values of their inputs. Output: tensors of the current graph. What is known when
a program is converted (initializers of integers, shapes, and what is computed of these) is computed at once, by the
same converters and the interpreter of graphs, so that shapes are numbers, or open sizes where inputs have such.

An operator without a converter that ONNX defines as a function of others is converted as this function.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from staticgrad.base.errors import SourceLine
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Dim, Size
from staticgrad.bridges.arrays import LARGEST_KNOWN, as_tensor, evaluated
from staticgrad.bridges.importer import Converters, Dialect, RefusedError, SourceBody, SourceScope, SourceType
from staticgrad.bridges.onnx import sizes
from staticgrad.bridges.onnx.binding import attribute_defaults, bound, schema_of
from staticgrad.bridges.onnx.program import (
    OnnxBody,
    OnnxNode,
    dependencies,
    dtype_for,
    element_name,
    function_body,
    type_proto,
)
from staticgrad.graph.graph import Graph, Tensor

CONVERTERS = Converters()
FUNCTION = "a function of ONNX's own"  # the key of operators that are defined by others

DRAW = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
TYPED = ("dtype", "to", "output_dtype")  # attributes that name an element type


def converts(*keys: Hashable) -> Callable[[Any], Any]:
    """A decorator that enters the converter of some operators, a function with parameters as ``binding`` has them."""

    def enter(function: Any) -> Any:
        CONVERTERS.enter(*keys)(bound(function))
        return function

    return enter


def converts_all(table: Mapping[str, Callable[..., Any]]) -> None:
    """Enter the converters of a table, each under its operator."""
    for operator, function in table.items():
        converts(operator)(function)


class _Onnx(Dialect):
    """A node is an ``OnnxNode``, a variable a name."""

    system = "ONNX"
    converters = CONVERTERS
    lexical = True

    def __init__(self) -> None:
        self.types: dict[str, SourceType] = {}
        self.elements: dict[str, int] = {}

    def name(self, node: OnnxNode) -> str:
        return node.key

    def key(self, node: OnnxNode) -> str:
        return node.key if node.key in CONVERTERS or schema_function(node) is None else FUNCTION

    def operands(self, node: OnnxNode) -> Sequence[str]:
        return [name for name in node.inputs if name]

    def source(self, node: OnnxNode | None) -> SourceLine | None:
        """The innermost line of the stack that PyTorch's exporter notes of a node."""
        noted = {} if node is None else {each.key: each.value for each in node.proto.metadata_props}
        frames = re.findall(r'File "(.+?)", line (\d+), in (\S+)', noted.get("pkg.torch.onnx.stack_trace", ""))
        return SourceLine(frames[-1][0], int(frames[-1][1]), frames[-1][2]) if frames else None

    def bodies(self, node: OnnxNode) -> Iterator[SourceBody]:
        return (value for value in node.attributes.values() if isinstance(value, OnnxBody))

    def objects_to(self, node: OnnxNode) -> Iterator[tuple[str, str]]:
        yield from super().objects_to(node)
        for name in TYPED:
            value = node.attr(name)
            if isinstance(value, int) and value and dtype_for(value) is None:
                yield node.key, f"elements of {element_name(value)} are not supported"
        for value in node.attributes.values():
            if isinstance(value, onnx.TensorProto):
                yield node.key, f"elements of {element_name(value.data_type)} are not supported"

    def compute(self, node: OnnxNode, given: Sequence[Any]) -> Sequence[Any] | None:
        if node.operator in DRAW or self.key(node) == FUNCTION or any(True for _ in self.bodies(node)):
            return None  # their nodes become known one by one
        if any(map(sizes.is_open_array, given)):
            return self._computed_sizes(node, given)
        if not all(isinstance(value, (np.ndarray, np.generic)) for value in given):
            return None
        return interpreted(self, node, given)

    def _computed_sizes(self, node: OnnxNode, given: Sequence[Any]) -> list[Any] | None:
        """The results of a node of sizes of which some are open."""
        compute = sizes.COMPUTE.get(node.key)
        scope = _ScopeOfSizes(self, dict(zip(self.operands(node), given, strict=True)))
        results = [None] if compute is None else compute(scope, node)
        return None if results[0] is None else list(map(sizes.array, results))


class ModelDialect(_Onnx):
    """The dialect of a model that declares types of some values. ``elements`` are the element types, also of short
    integers, which have no dtype of their own."""

    def __init__(self, types: Mapping[str, SourceType], elements: Mapping[str, int]) -> None:
        self.types, self.elements = dict(types), dict(elements)

    def declared(self, variable: str) -> SourceType | None:
        return self.types.get(variable)


@frozen(eq=False)
class OnnxSequence:
    """A sequence of known length."""

    values: tuple[Any, ...]


ONNX = _Onnx()


def interpreted(dialect: Dialect, node: OnnxNode, given: Sequence[Any]) -> list[Any] | None:
    """The results of a node of known operands, by its converter and the interpreter; None if they are large."""
    graph = Graph()
    with graph:
        scope = OnnxScope(dialect, dict(zip(dialect.operands(node), given, strict=True)))
        results = CONVERTERS[node.key](scope, node)
        tensors = tuple(x for x in results if isinstance(x, Tensor))
        if any(x.size > LARGEST_KNOWN for x in tensors):
            return None
        if not all(isinstance(x, (Tensor, np.ndarray, np.generic)) for x in results):
            return None
        values = iter(evaluated(tensors))
    return [np.asarray(next(values)) if isinstance(x, Tensor) else x for x in results]


class OnnxScope(SourceScope):
    """The values of a body's names: tensors, arrays, arrays of sizes (objects, some of them open), sequences."""

    # -- operands -----------------------------------------------------------------------------------------------------

    def tensor(self, variable: str) -> Tensor:
        value = self.value(variable)
        if sizes.is_open_array(value):
            return sizes.as_tensor(value)
        if isinstance(value, (Tensor, np.ndarray, np.generic)):
            return super().tensor(variable)
        raise RefusedError(f"{variable} is no tensor")

    def operand(self, node: OnnxNode, place: int) -> Tensor | None:
        """The operand at this place; None if the node, or the call of a function that it is in, leaves it out."""
        is_there = node.has(place) and self.value(node.inputs[place]) is not None
        return self.tensor(node.inputs[place]) if is_there else None

    def steering(self, node: OnnxNode, place: int, what: str = "the shape of the result") -> Any:
        """The value of an operand that has to be known; None if the node leaves it out."""
        return self.known(node.inputs[place], what) if node.has(place) else None

    def numbers(self, node: OnnxNode, place: int, what: str = "the shape of the result") -> Any:
        """Numbers or sizes that an operand has to be known to be, as a list; None if the node leaves it out."""
        value = self.steering(node, place, what)
        return None if value is None else [_number(each) for each in np.ravel(np.asarray(value))]

    def number(self, node: OnnxNode, place: int, what: str = "the shape of the result") -> Any:
        """The first of such numbers, or None."""
        return next(iter(self.numbers(node, place, what) or ()), None)

    def _as_declared(self, variable: str, value: Any) -> Any:
        return value if sizes.is_open_array(value) else super()._as_declared(variable, value)

    def element(self, variable: str) -> int:
        """The element type that the model declares of a value, 0 where it declares none."""
        assert isinstance(self.dialect, _Onnx)
        return self.dialect.elements.get(variable, 0)

    # -- bodies -------------------------------------------------------------------------------------------------------

    def call(self, body: SourceBody, values: Sequence[Any]) -> list[Any]:
        """The results of a body that reads names around it."""
        assert isinstance(body, OnnxBody)
        scope = self.inner(body.inputs, values)
        scope.values.update(body.constants)
        return scope.walk(body)

    def called(self, function: OnnxBody, values: Sequence[Any]) -> list[Any]:
        """The results of a function, which knows its operands alone."""
        scope = type(self)(ONNX, {})
        scope.values = ChainMap({**function.constants, **dict(zip(function.inputs, values))})
        return scope.walk(function)


class _ScopeOfSizes(OnnxScope):
    """A scope whose operands are arrays."""

    def tensor(self, variable: str) -> Any:
        return self.value(variable)


def _number(value: Any) -> Any:
    return value if isinstance(value, Dim) else value.item() if isinstance(value, np.generic) else value


def size(value: Any) -> Size:
    """A size that is known, open or not."""
    return value if isinstance(value, Dim) else int(value)


# -- operators that ONNX defines by others ---------------------------------------------------------------------------


def schema_function(node: OnnxNode) -> Any:
    """The description of an operator that has a definition by others; None of any other operator."""
    schema = schema_of(node)
    has = schema is not None and (schema.has_function or schema.has_context_dependent_function)
    return schema if has else None


@converts(FUNCTION)
def defined(at: OnnxScope, node: OnnxNode) -> list[Any]:
    given = [at.value(name) if name else None for name in node.inputs]
    function = onnx.FunctionProto()
    function.ParseFromString(_definition(node, given))
    if not function.node:
        raise RefusedError("ONNX's definition is not for these operands")
    body = function_body(function, node.opsets, {**attribute_defaults(node), **node.attributes})
    given += [None] * (len(body.inputs) - len(given))
    wanted = [name for name, result in zip(body.outputs, node.outputs) if result]
    try:
        results = iter(at.called(OnnxBody(body.inputs, body.nodes, wanted, {}), given))
    except RefusedError as error:
        error.needs = _needed_outside(error.needs, body, node, given)
        raise
    return [next(results) if result else None for result in node.outputs]


def _definition(node: OnnxNode, given: Sequence[Any]) -> bytes:
    """The message of the function that an operator is of these operands, the latest one for the node's opset."""
    schema = schema_function(node)

    def latest(versions: Sequence[int]) -> int:
        return max(version for version in versions if version <= node.opset)

    if schema.has_function:
        return bytes(schema.get_function_with_opset_version(latest(schema.function_opset_versions)))
    version = latest(schema.context_dependent_function_opset_versions)
    types = [type_proto(*_type(value)).SerializeToString() if value is not None else b"" for value in given]
    text = node.proto.SerializeToString()
    return bytes(schema.get_context_dependent_function_with_opset_version(version, text, types))


def _needed_outside(needed: Any, body: OnnxBody, node: OnnxNode, given: Sequence[Any]) -> Any:
    """An operand of a function's call that this name in the function depends on, which is not known."""
    if needed is None:
        return None
    names = dependencies([needed], body)
    called = zip(body.inputs, node.inputs, given)
    return next((operand for name, operand, x in called if name in names and isinstance(x, Tensor)), None)


def _type(value: Any) -> tuple[np.dtype, Sequence[Any]]:
    if sizes.is_open_array(value):
        return np.dtype(np.int64), value.shape
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return value.dtype, value.shape
    raise RefusedError("an operand is no tensor")


def tensors(values: Iterable[Any]) -> list[Tensor]:
    """Tensors, constants where values are known.

    Raises:
        RefusedError: one of them is a sequence, or nothing.
    """
    found = list(values)
    for value in found:
        if not isinstance(value, (Tensor, np.ndarray, np.generic)):
            raise RefusedError("a sequence or an optional value is no tensor")
    return [sizes.as_tensor(value) if sizes.is_open_array(value) else as_tensor(value) for value in found]
