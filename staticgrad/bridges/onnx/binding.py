"""The arguments of converters: operands and attributes of a node, by the parameters of the converter's function.

    at, node         the scope and the node
    x                an operand as a tensor, in the order of the operands
    axes: Numbers    an operand that has to be known, as a list of numbers or sizes
    k: Number        the first of such numbers
    x: Known         an operand that has to be known, as it is
    x: Value         an operand, a tensor or what it is known to be
    *xs              the other operands as tensors, None in the place of one that is left out
    *, axis          an attribute, with the default of the operator's description, else with the function's

Older versions of an operator have attributes where newer ones have operands: an operand that is left out is the
attribute of the parameter's name, else the function's default, else None.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import onnx

from staticgrad.bridges.onnx.program import OnnxNode, attribute_value

Numbers = Any
Number = Any
Known = Any
Value = Any

READERS: dict[str, Callable[[Any, OnnxNode, int, str], Any]] = {
    "Numbers": lambda at, node, place, name: at.numbers(node, place),
    "Number": lambda at, node, place, name: at.number(node, place, f"operand {place + 1} ({name})"),
    "Known": lambda at, node, place, name: at.steering(node, place),
    "Value": lambda at, node, place, name: at.value(node.inputs[place]) if node.has(place) else None,
}


def schema_of(node: OnnxNode) -> Any:
    """ONNX's own description of a node's operator; None if it has none."""
    try:
        return onnx.defs.get_schema(node.operator, node.opset, node.domain)
    except onnx.defs.SchemaError:
        return None


def attribute_defaults(node: OnnxNode) -> Mapping[str, Any]:
    """The values of attributes that a node need not have."""
    return _defaults(node.operator, node.opset, node.domain)


@functools.cache
def _defaults(operator: str, opset: int, domain: str) -> Mapping[str, Any]:
    try:
        attributes = onnx.defs.get_schema(operator, opset, domain).attributes
    except onnx.defs.SchemaError:
        return {}
    values = {name: attribute.default_value for name, attribute in attributes.items()}
    return {name: attribute_value(value, {}, {}) for name, value in values.items() if value.name}


def bound(function: Callable[..., Any]) -> Callable[[Any, OnnxNode], list[Any]]:
    """A function of what its parameters name as one of a scope and a node. It gives a value for each result of the
    node; those that the node does not have are dropped."""
    parameters = list(inspect.signature(function).parameters.values())

    def converter(at: Any, node: OnnxNode) -> list[Any]:
        results = function(*positional(at, node), **named(node))
        return (list(results) if isinstance(results, (list, tuple)) else [results])[: len(node.outputs)]

    def positional(at: Any, node: OnnxNode) -> list[Any]:
        found: list[Any] = []
        place = 0
        for each in parameters:
            if each.name in ("at", "node"):
                found.append(at if each.name == "at" else node)
            elif each.kind is each.VAR_POSITIONAL:
                found += [at.operand(node, further) for further in range(place, len(node.inputs))]
            elif each.kind is not each.KEYWORD_ONLY:
                value = _read(at, node, place, each)
                value = node.attributes.get(each.name) if value is None else value
                found.append(_or_default(value, each))
                place += 1
        return found

    def named(node: OnnxNode) -> dict[str, Any]:
        values = {**attribute_defaults(node), **node.attributes}
        return {p.name: _or_default(values.get(p.name), p) for p in parameters if p.kind is p.KEYWORD_ONLY}

    return converter


def _read(at: Any, node: OnnxNode, place: int, parameter: inspect.Parameter) -> Any:
    reader = READERS.get(str(parameter.annotation).partition(" |")[0])
    return at.operand(node, place) if reader is None else reader(at, node, place, parameter.name)


def _or_default(value: Any, parameter: inspect.Parameter) -> Any:
    if value is not None:
        return value
    return None if parameter.default is parameter.empty else parameter.default
