"""Graphs as text, a line an op.

graph ::= line*
line  ::= names = op(operands) attributes [after nodes] : types
names ::= %node, or %node:0, %node:1, … for an op with several outputs
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from staticgrad.graph import Graph, Node, Tensor

LONG = 64  # bytes of a constant that are shown


def print_graph(graph: Graph) -> str:
    return print_nodes(graph.nodes)


def print_nodes(nodes: Iterable[Node]) -> str:
    return "\n".join(print_node(node) for node in nodes)


def print_node(node: Node) -> str:
    outputs = ", ".join(f"%{y.name}" for y in node.outputs) or f"%{node.name}"
    operands = ", ".join(_reference(x) for x in node.inputs)
    attributes = _attributes(node.attrs)
    after = f" after {', '.join(f'%{n.name}' for n in node.control)}" if node.control else ""
    types = ", ".join(str(y.type) for y in node.outputs) or "()"
    return f"{outputs} = {node.op.name}({operands}){attributes}{after} : {types}"


def _reference(x: Tensor) -> str:
    return f"%{x.name}"


def _attributes(attrs: Any) -> str:
    if not is_dataclass(attrs) or not fields(attrs):
        return ""
    return " {" + ", ".join(f"{f.name}={_value(getattr(attrs, f.name))}" for f in fields(attrs)) + "}"


def _value(value: Any) -> str:
    if isinstance(value, np.dtype):
        return str(value.name)
    if isinstance(value, bytes):
        return f"0x{value[:LONG].hex()}{'…' if len(value) > LONG else ''}"
    if callable(value):
        return getattr(value, "__name__", "function")
    return repr(value)
