"""ONNX programs as nodes, bodies and values, whatever is read of them.

Input: ONNX's messages (``ModelProto``, ``GraphProto``, ``FunctionProto``). Output: ``OnnxNode`` and ``SourceBody`` with
attributes as Python's values, initializers of bodies as constants; which elements are supported, and as which dtype.
Conversion is ``dialect.py``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPE_NAMES, dtype_of
from staticgrad.bridges.importer import SourceBody, SourceType

# Elements of less than a byte, and floats of one, by their dtypes in ml_dtypes: the dtype in which they are kept.
WIDER = {
    "int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8", "float8_e4m3fn": "float32",
    "float8_e4m3fnuz": "float32", "float8_e5m2": "float32", "float8_e5m2fnuz": "float32", "float4_e2m1fn": "float32",
}  # fmt: skip
LEAST_OPSET = 7  # whose operators broadcast as NumPy does


@frozen(eq=False)
class OnnxBody(SourceBody):
    """A program whose names are known to be constants where ``constants`` has them."""

    constants: Mapping[str, Any]


@frozen(eq=False)
class OnnxNode:
    """A node: its operator, the domain, the version of the domain's operators, and names of operands and results, ""
    in the place of one that is left out. ``place`` numbers it in its graph; ``proto`` is the message."""

    operator: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    place: int
    proto: Any
    opsets: Mapping[str, int]

    @property
    def key(self) -> str:
        return f"{self.domain}::{self.operator}" if self.domain else self.operator

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where the node does not say it."""
        return self.attributes.get(name, default)

    def has(self, place: int) -> bool:
        """True if the node has this operand."""
        return place < len(self.inputs) and self.inputs[place] != ""

    def __str__(self) -> str:
        name = f" {self.proto.name!r}" if self.proto.name else ""
        return f"{self.key}{name} (node {self.place}, gives {', '.join(filter(None, self.outputs)) or 'nothing'})"


def short_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def opsets_of(imports: Iterable[Any]) -> dict[str, int]:
    """The version of each domain's operators."""
    return {short_domain(each.domain): each.version for each in imports}


def element_name(elem_type: int) -> str:
    """The name of an element type: NumPy's where NumPy has it, else ONNX's in lower case."""
    return str(onnx.TensorProto.DataType.Name(elem_type)).lower().replace("float8", "float8_")


def dtype_for(elem_type: int) -> np.dtype | None:
    """The dtype in which elements of a type are kept; None if there is none here."""
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    except KeyError:
        return None
    name = WIDER.get(dtype.name, dtype.name)
    return dtype_of(name) if name in DTYPE_NAMES else None


def short_bits(elem_type: int) -> int:
    """The bits of an integer of less than a byte; 0 of other element types."""
    name = onnx.TensorProto.DataType.Name(elem_type) if elem_type else ""
    return int(name[-1]) if name in ("INT4", "UINT4", "INT2", "UINT2") else 0


def elements_of(type_: onnx.TypeProto) -> tuple[str, int] | None:
    """The kind and the element type of a tensor, of a sequence of tensors or of an optional one of these; None of any
    other type."""
    kind = str(type_.WhichOneof("value"))
    if kind == "tensor_type":
        return kind, type_.tensor_type.elem_type
    if kind not in ("sequence_type", "optional_type"):
        return None
    inner = elements_of(getattr(type_, kind).elem_type)
    return None if inner is None else (kind, inner[1])


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """The value of a tensor's message, in the dtype in which it is kept."""
    array = np.asarray(numpy_helper.to_array(tensor))
    return array.astype(WIDER[array.dtype.name]) if array.dtype.name in WIDER else array


def type_of(info: onnx.ValueInfoProto) -> SourceType | None:
    """The type that a graph declares of a value; None if it declares none that is a tensor's."""
    if info.type.WhichOneof("value") != "tensor_type":
        return None
    tensor = info.type.tensor_type
    dtype = dtype_for(tensor.elem_type)
    if dtype is None:
        return None
    if not tensor.HasField("shape"):
        return SourceType(dtype)
    return SourceType(dtype, tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim))


def node_of(proto: onnx.NodeProto, opsets: Mapping[str, int], place: int, given: Mapping[str, Any] = {}) -> OnnxNode:
    """A node; ``given`` are the attributes of the call of a function around it, to which its own may refer."""
    domain = short_domain(proto.domain)
    if any(attribute.ref_attr_name for attribute in proto.attribute):
        proto = _resolved(proto, given)
    attributes = {each.name: attribute_value(each, opsets, given) for each in proto.attribute}
    return OnnxNode(
        proto.op_type, domain, opsets.get(domain, 1), tuple(proto.input), tuple(proto.output), attributes, place, proto,
        opsets,
    )  # fmt: skip


def _resolved(proto: onnx.NodeProto, given: Mapping[str, Any]) -> onnx.NodeProto:
    """A node of a function, with attributes of its call in the place of references to these."""
    new = onnx.NodeProto()
    new.CopyFrom(proto)
    del new.attribute[:]
    for attribute in proto.attribute:
        name = attribute.ref_attr_name
        if not name:
            new.attribute.append(attribute)
        elif name in given:
            value = given[name]
            value = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            new.attribute.append(helper.make_attribute(attribute.name, value, attr_type=attribute.type or None))
    return new


def attribute_value(attribute: onnx.AttributeProto, opsets: Mapping[str, int], given: Mapping[str, Any]) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, onnx.TensorProto):
        return value if dtype_for(value.data_type) is None else array_of(value)
    if isinstance(value, onnx.GraphProto):
        return body_of(value, opsets, given)
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [each.decode("utf-8", "replace") for each in value]
    return value


def body_of(graph: onnx.GraphProto, opsets: Mapping[str, int], given: Mapping[str, Any] = {}) -> OnnxBody:
    """The body that a graph is; its initializers are constants."""
    constants = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    inputs = [info.name for info in graph.input if info.name not in constants]
    nodes = [node_of(proto, opsets, place, given) for place, proto in enumerate(graph.node)]
    return OnnxBody(inputs, nodes, [info.name for info in graph.output], constants)


def function_body(function: onnx.FunctionProto, inherited: Mapping[str, int], given: Mapping[str, Any]) -> OnnxBody:
    """The body of a function, with the attributes of its call."""
    opsets = {**inherited, **opsets_of(function.opset_import)}
    nodes = [node_of(proto, opsets, place, given) for place, proto in enumerate(function.node)]
    return OnnxBody(list(function.input), nodes, list(function.output), {})


def type_proto(dtype: np.dtype, shape: Sequence[Any]) -> onnx.TypeProto:
    """The message of a tensor's type; sizes that are no numbers are left open."""
    sizes = [size if isinstance(size, int) else None for size in shape]
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), sizes)


def dependencies(names: Iterable[str], body: OnnxBody) -> set[str]:
    """The names on whose values these names, and their values, depend, by the nodes of a body and of bodies in it."""
    makers: dict[str, Sequence[str]] = {}
    _enter(body, makers)
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += makers.get(name, ())
    return found


def _enter(body: OnnxBody, makers: dict[str, Sequence[str]]) -> None:
    for node in body.nodes:
        operands = [] if node.operator in ("Shape", "Size") else [name for name in node.inputs if name]
        makers.update(dict.fromkeys(node.outputs, operands))
        for inner in node.attributes.values():
            if isinstance(inner, OnnxBody):
                makers.update(dict.fromkeys(inner.inputs, operands))
                makers.update({name: [*makers[name], *inner.outputs] for name in node.outputs})
                _enter(inner, makers)
