"""ONNX models as modules: ``load``.

Input: a file or a message. Output: ``OnnxModule``, whose variables are the floating initializers, under their names,
and whose call declares the graph. What steers shapes is known when it is called: initializers of integers, shapes of
inputs, and inputs that are given as arrays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter

import staticgrad.bridges.onnx as _converters  # noqa: F401  fills the table
from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, dim, is_floating
from staticgrad.bridges.importer import Objection, RefusedError, SourceType
from staticgrad.bridges.onnx.dialect import ModelDialect, OnnxScope, OnnxSequence, tensors
from staticgrad.bridges.onnx.program import (
    LEAST_OPSET,
    OnnxBody,
    OnnxNode,
    body_of,
    dtype_for,
    element_name,
    elements_of,
    opsets_of,
    type_of,
)
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.nn.module import Module

MOST_BYTES = 2**31 - 1  # of a model whose types ONNX infers
# Operands of floats that steer the shape of a result: as initializers they are values, no variables.
STEERING = {("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Dropout", 1), ("Range", 0), ("Range", 1), ("Range", 2)}
STATISTICS = {("BatchNormalization", 3), ("BatchNormalization", 4)}  # that are no parameters


@frozen(eq=False)
class OnnxProgram:
    """A model as it is converted: the body, the arrays of its initializers, the types of its inputs, which of them are
    optional, and the dialect that knows the types that it declares."""

    body: OnnxBody
    arrays: Mapping[str, np.ndarray]
    inputs: Mapping[str, onnx.ValueInfoProto]
    outputs: Mapping[str, onnx.ValueInfoProto]
    dialect: ModelDialect
    optional: frozenset[str]


def message_of(source: Any) -> onnx.ModelProto:
    """The message of a model, or of the file that it is in.

    Raises:
        GraphError: neither a model nor a path.
    """
    if isinstance(source, onnx.ModelProto):
        return source
    if isinstance(source, (str, os.PathLike)):
        return onnx.load(str(Path(source)))
    raise GraphError(f"onnx.load: expected a path or an onnx.ModelProto, actual {type(source).__name__}")


def program_of(model: onnx.ModelProto) -> OnnxProgram:
    """A model with its functions inlined.

    Raises:
        RefusedError: operators, types or versions that are not supported, all of them.
    """
    if len(model.functions):
        model = onnx.inliner.inline_local_functions(model)
    opsets = opsets_of(model.opset_import)
    if opsets.get("", LEAST_OPSET) < LEAST_OPSET:
        model = _renewed(model, opsets[""])
        opsets = opsets_of(model.opset_import)
    if model.ByteSize() < MOST_BYTES:
        model = onnx.shape_inference.infer_shapes(model)
    graph = model.graph
    body = body_of(graph, opsets)
    infos = [*graph.value_info, *graph.output]
    chosen = {name for node in body.nodes if node.key == "If" for name in node.outputs}  # of branches that may differ
    types = {info.name: found for info in infos if info.name not in chosen and (found := type_of(info)) is not None}
    given = {tensor.name for tensor in graph.initializer}
    elements = {info.name: info.type.tensor_type.elem_type for info in (*infos, *graph.input)}
    elements |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    dialect = ModelDialect(types, elements)
    objections = [*_objections(graph), *dialect.objections(body.nodes)]
    if objections:
        raise dialect.refusal(objections)
    inputs = {info.name: info for info in graph.input if info.name not in given}
    optional = frozenset(info.name for info in graph.input if info.name in given)
    return OnnxProgram(body, body.constants, inputs, {info.name: info for info in graph.output}, dialect, optional)


def _renewed(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A model of an older opset as one of the least that is converted.

    Raises:
        RefusedError: ONNX cannot convert it.
    """
    try:
        return onnx.version_converter.convert_version(model, LEAST_OPSET)
    except RuntimeError as error:
        raise RefusedError(
            f"ONNX: the model is of opset {opset}, and is not made one of {LEAST_OPSET}: {error}"
        ) from error


def _objections(graph: onnx.GraphProto) -> list[Objection]:
    """Inputs, outputs and initializers of types that are not supported."""
    found = []
    for what, infos in (("input", graph.input), ("output", graph.output)):
        for info in infos:
            kind = elements_of(info.type)
            if kind is None:
                found.append((what, f"{info.name} is a {info.type.WhichOneof('value')}"))
            elif dtype_for(kind[1]) is None:
                found.append((what, f"elements of {element_name(kind[1])} are not supported"))
    for tensor in graph.initializer:
        if dtype_for(tensor.data_type) is None:
            found.append(("initializer", f"elements of {element_name(tensor.data_type)} are not supported"))
    found += [("initializer", f"{each.values.name} is sparse") for each in graph.sparse_initializer]
    return [Objection(what, reason, None, None) for what, reason in found]


def _read_at(nodes: Sequence[OnnxNode], places: set[tuple[str, int]]) -> set[str]:
    """The names that nodes read as these operands, in bodies too."""
    found = set()
    for node in nodes:
        found |= {name for place, name in enumerate(node.inputs) if (node.operator, place) in places}
        for value in node.attributes.values():
            found |= _read_at(value.nodes, places) if isinstance(value, OnnxBody) else set()
    return found


class OnnxModule(Module):
    """An ONNX model. Calling it with a tensor for each input, in order or by name, declares its graph and gives the
    output, or a tuple of several.

    Its floating initializers are variables under their names, trainable but for a batch norm's statistics; others are
    constants. An input that is given as an array is known, and may steer shapes (the target of a ``Reshape``, …).
    """

    def __init__(self, program: OnnxProgram) -> None:
        """Modules are made by ``load``."""
        super().__init__()
        self._program = program
        self._constants: dict[str, Any] = {}
        self._attributes: dict[str, str] = {}
        nodes = program.body.nodes
        known, frozen_names = _read_at(nodes, STEERING), _read_at(nodes, STATISTICS)
        for name, array in program.arrays.items():
            if not is_floating(array.dtype) or name in known:
                self._constants[name] = array
                continue
            attribute = name + "_" if hasattr(self, name) else name
            setattr(self, attribute, o.Variable(array, trainable=name not in frozen_names))
            self._attributes[name] = attribute

    @property
    def inputs(self) -> dict[str, SourceType]:
        """The type that the model declares of each input that is a tensor, None in the place of a size that it leaves
        open."""
        found = {name: type_of(info) for name, info in self._program.inputs.items()}
        return {name: type_ for name, type_ in found.items() if type_ is not None}

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in the order in which a call gives them."""
        return list(self._program.body.outputs)

    def placeholders(self) -> list[Tensor]:
        """A placeholder for each input, under its name, in the current graph. Sizes to which the model gives a name are
        one open size under this name, others that it leaves open are each one of their own.

        Raises:
            GraphError: an input that is a sequence; a call takes a list of tensors for it.
        """
        named: dict[str, Size] = {}
        made = []
        types = self.inputs
        for name, info in self._program.inputs.items():
            if name not in types:
                raise GraphError(f"input {name!r} of the model is no tensor: call the model with a list of tensors")
            sizes: list[Size | None] = []
            for each in info.type.tensor_type.shape.dim:
                if each.HasField("dim_value"):
                    sizes.append(each.dim_value)
                elif each.dim_param:
                    sizes.append(named.setdefault(each.dim_param, dim(each.dim_param)))
                else:
                    sizes.append(None)
            made.append(o.placeholder(tuple(sizes), types[name].dtype, name=name))
        return made

    def forward(self, *args: Any, **named: Any) -> Any:
        """Declare the graph.

        Raises:
            UnsupportedError: an operator on these operands, or a shape that depends on values, has no counterpart.
            GraphError: inputs that are missing, unknown or of another type.
        """
        values = self.results(self._given(args, named))
        return values[0] if len(values) == 1 else tuple(values)

    def results(self, given: Mapping[str, Any]) -> list[Any]:
        """The outputs for these inputs, by name: tensors, lists for sequences, None for what is not there."""
        own = {name: getattr(self, attribute) for name, attribute in self._attributes.items()}
        at = OnnxScope(self._program.dialect, {**self._constants, **own, **given})
        return [_output(value) for value in at.walk(self._program.body)]

    def _given(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = list(self._program.inputs)
        if len(args) > len(names):
            raise GraphError(f"the model has {len(names)} inputs ({', '.join(names)}), actual {len(args)}")
        given = {**dict(zip(names, args)), **named}
        missing = [name for name in names if name not in given]
        unknown = [name for name in given if name not in names and name not in self._program.optional]
        if missing or unknown:
            raise GraphError(f"inputs of the model: missing {missing}, unknown {unknown}; expected {names}")
        return {name: self._checked(name, value) for name, value in given.items()}

    def _checked(self, name: str, value: Any) -> Any:
        if name not in self._program.inputs:
            return value
        expected = type_of(self._program.inputs[name])
        if expected is None:
            return OnnxSequence(tuple(value)) if isinstance(value, (list, tuple)) else value
        if not isinstance(value, (Tensor, np.ndarray)):
            value = np.asarray(value, expected.dtype)
        if not expected.fits(value):
            raise GraphError(
                f"input {name!r} of the model: expected {expected}, actual {SourceType(value.dtype, value.shape)}"
            )
        return value


def _output(value: Any) -> Any:
    if isinstance(value, OnnxSequence):
        return [_output(each) for each in value.values]
    return None if value is None else tensors([value])[0]


@boundary
def load(path_or_model: Any) -> OnnxModule:
    """An ONNX model as a module: its variables have the initializers' names and values, calling it declares the graph.

    Args:
        path_or_model: a path (external data is read from beside it), or an ``onnx.ModelProto``. Opsets from 7 on.

    Raises:
        UnsupportedError: operators, types of elements or versions that are not supported, all of them, each with its
            count, before anything is declared.

    Example:
        >>> import staticgrad.onnx
        >>> from onnx import parser
        >>> model = parser.parse_model('<ir_version: 8, opset_import: ["": 18]> m (float[n, 3] x) => (float[n, 2] y)'
        ...     '<float[3, 2] w = {1, 2, 3, 4, 5, 6}> { p = MatMul(x, w) y = Relu(p) }')
        >>> net = staticgrad.onnx.load(model)
        >>> (x,) = net.placeholders()
        >>> sg.Session().run(net(x), {x: [[1.0, 0.0, -1.0]]})
        array([[0., 0.]], dtype=float32)
    """
    return OnnxModule(program_of(message_of(path_or_model)))
