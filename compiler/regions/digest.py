"""The digest of a region: what its program follows from, and nothing else.

Input: a region as it was cut or derived. Output: a canonical text that two regions share only if one compiles to
the other's program, and what in it stands for the names of this region. Ops, attributes, types, topology, order and
constants are in the text; names of tensors, messages and source lines are not, and variables and gradients are numbers
in the order in which they are met. So a graph that is declared again under other names finds the same program, and
whoever loads that gives the names back.

    text     ::= nested tuples of numbers, strings and bytes, as Python writes them
    graph    ::= nodes, feeds, fetches, effects           tensors and nodes are numbers, in the order of declaration
    node     ::= op, attributes, operands, nodes before it, types, epoch, whether gradients are blocked, the op of the
                 user's own that it is a part of
    body     ::= the SHA-256 digest of its graph, or its number if it was met before

Bodies nest, and several nodes may have the same one: so each is written once, and its text is not quoted by the text
around it, which would double at each level.

Regions with something that has no canonical text, such as a Python function, have no digest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from staticgrad.base.depth import all_levels
from staticgrad.base.extents import is_open
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import NO_ATTRIBUTES, OPS
from staticgrad.ops.control.bodies import Body
from staticgrad.ops.custom import CustomAttributes
from staticgrad.ops.effects import (
    AccumulateAttributes,
    AssertAttributes,
    AssignAttributes,
    BoundsAttributes,
    NumericsAttributes,
    PrintAttributes,
)
from staticgrad.ops.sources import AccumulatedAttributes, ConstantAttributes, VariableAttributes

SMALL = 64  # bytes that stand in the text as they are


class NoDigest(Exception):
    """The region holds something that has no canonical text."""


@frozen
class Digest:
    """The canonical text, and by their numbers the variables, accumulated gradients and constants of the region."""

    text: str
    variables: tuple[str, ...]
    gradients: tuple[str, ...]
    constants: tuple[ConstantAttributes, ...]


@all_levels()
def digest(region: Region, *others: object) -> Digest:
    """The digest of a region and of ``others``: numbers, strings, tuples, frozen sets, frozen dataclasses of these.

    Raises:
        NoDigest: it has none.
    """
    writer = _DigestWriter()
    whole = (writer.graph(region), tuple(map(writer.value, others)))
    return Digest(repr(whole), tuple(writer.variables), tuple(writer.gradients), tuple(writer.constants))


class _DigestWriter:
    """Numbers what has a name in the order in which it is met."""

    def __init__(self) -> None:
        self.variables: dict[str, int] = {}
        self.gradients: dict[str, int] = {}
        self.constants: list[ConstantAttributes] = []
        self._texts: dict[str, int] = {}
        self._bodies: dict[int, int] = {}  # by identity

    def graph(self, region: Region | Body) -> object:
        tensors: dict[Tensor, int] = {}
        numbers: dict[Node, int] = {}
        nodes = []
        for node in region.graph.nodes:
            nodes.append(repr(self._node(node, tensors, numbers)))  # text at once: few objects for the collector
            numbers[node] = len(numbers)
            for y in node.outputs:
                tensors[y] = len(tensors)
        feeds, fetches = [tensors[x] for x in region.feeds], [tensors[x] for x in region.fetches]
        return "\n".join(nodes), feeds, fetches, [numbers[node] for node in region.effects]

    def _node(self, node: Node, tensors: dict[Tensor, int], numbers: dict[Node, int]) -> object:
        if not node.op.own and OPS.get(node.op.name) is not node.op:
            raise NoDigest(f"op {node.op.name!r} is not of the table")
        attrs = None if node.attrs is NO_ATTRIBUTES else self.value(node.attrs)
        operands = [tensors[x] for x in node.inputs]
        before = [numbers[other] for other in node.control]
        types = [(y.type.shape, y.type.dtype.char) for y in node.outputs]
        return node.op.name, attrs, operands, before, types, node.epoch, node.blocked, node.part

    def value(self, value: Any) -> object:
        kind = type(value)
        if kind in _LITERAL:
            return value
        if kind is float:
            return value if value == value else struct.pack("<d", value)
        if kind is tuple:
            return tuple([item if type(item) in _LITERAL else self.value(item) for item in value])
        named = _NAMED.get(kind)
        if named is not None:
            return (kind.__name__, *named(self, value))
        if isinstance(value, np.dtype):
            return value.str
        if is_open(value):
            return repr(value)
        if is_dataclass(value) and not isinstance(value, Body):
            parts = [getattr(value, name) for name in _names(kind)]
            return (kind.__qualname__, *[part if type(part) in _LITERAL else self.value(part) for part in parts])
        return self._rare(value)

    def _rare(self, value: Any) -> object:
        if isinstance(value, Body):
            return ("body", self._body(value))
        if isinstance(value, Enum):
            return (type(value).__qualname__, value.name)
        if isinstance(value, np.generic):
            return (value.dtype.str, value.tobytes())
        if isinstance(value, bytes):
            return _bytes(value)
        if isinstance(value, frozenset):
            return ("set", *sorted(repr(self.value(item)) for item in value))
        raise NoDigest(f"a {type(value).__name__} has no canonical text")

    def _body(self, body: Body) -> object:
        known = self._bodies.get(id(body))
        if known is not None:  # not the digest again: its constants are not met twice
            return known
        text = repr(self.graph(body))
        self._bodies[id(body)] = len(self._bodies)
        return hashlib.sha256(text.encode(errors="surrogatepass")).digest()

    def text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def variable(self, key: str) -> int:
        return self.variables.setdefault(key, len(self.variables))

    def gradient(self, key: str) -> int:
        return self.gradients.setdefault(key, len(self.gradients))

    def constant(self, attrs: ConstantAttributes) -> tuple[object, ...]:
        self.constants.append(attrs)
        return attrs.dtype.str, attrs.shape, _bytes(attrs.data)


_LITERAL = frozenset({int, str, bool, type(None)})

# Attributes in which something has a name or a message.
_NAMED: dict[type, Callable[[_DigestWriter, Any], tuple[object, ...]]] = {
    ConstantAttributes: lambda w, a: w.constant(a),
    VariableAttributes: lambda w, a: (w.variable(a.key), a.shape, a.dtype.str),
    AssignAttributes: lambda w, a: (w.variable(a.key),),
    AccumulateAttributes: lambda w, a: (w.gradient(a.key),),
    AccumulatedAttributes: lambda w, a: (w.gradient(a.key), a.shape, a.dtype.str),
    BoundsAttributes: lambda w, a: (a.size, w.text(a.what), a.wraps),
    AssertAttributes: lambda w, a: (w.text(a.message),),
    NumericsAttributes: lambda w, a: (w.text(a.message),),
    PrintAttributes: lambda w, a: (w.text(a.text),),
    CustomAttributes: lambda w, a: (a.results,),  # its rule is for derivatives, which are declared by now
    TensorType: lambda w, a: (a.shape, a.dtype.str),
}

_field_names: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> Sequence[str]:
    names = _field_names.get(kind)
    if names is None:
        names = _field_names[kind] = tuple(field.name for field in fields(kind))
    return names


def _bytes(content: bytes | memoryview) -> object:
    return bytes(content) if len(content) <= SMALL else ("bytes", len(content), hashlib.sha256(content).digest())
