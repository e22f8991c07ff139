"""Graphs of ops as graphs of ONNX: the walk, loops and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from staticgrad.base.errors import UnsupportedOp
from staticgrad.base.extents import is_open
from staticgrad.base.types import bool_, int64
from staticgrad.bridges.onnx.writing.ops import COMPOSED, WRITERS
from staticgrad.bridges.onnx.writing.scalars import elementwise
from staticgrad.bridges.onnx.writing.text import GraphWriter, OnnxValue, Unwritable
from staticgrad.compiler.passes.cse import cse
from staticgrad.compiler.passes.dce import dce
from staticgrad.compiler.passes.expand import expand
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Node, Tensor

LEFT_OUT = ("bounds_check", "group", "numerics_check")  # runtimes find indices out of range themselves
LOOPS = ("scan", "while_loop")


def simplified(region: Any) -> Region:
    """A region, or a body, of ops that are written."""
    found = expand(Region(region.graph, region.feeds, region.fetches, region.effects), COMPOSED)
    return dce(cse(found))


class Walk:
    """The values of a region's tensors in a graph of ONNX, and the ops that have no counterpart."""

    def __init__(
        self, writer: GraphWriter, values: Mapping[Tensor, OnnxValue], refused: list[tuple[Node, str]]
    ) -> None:
        self.writer = writer
        self.values = dict(values)
        self.refused = refused

    def node(self, node: Node) -> None:
        """Write a node. One without a counterpart is noted, and the walk goes on."""
        if node.op.name in LEFT_OUT or (node.outputs and all(y in self.values for y in node.outputs)):
            return
        if node.outputs and all(not any(map(is_open, y.shape)) and y.size == 0 for y in node.outputs):
            self.values |= {y: self._empty(y) for y in node.outputs}
            return
        operands = [self.values[x] for x in node.inputs]
        try:
            results = self._written(node, operands)
        except Unwritable as error:
            self.refused.append((node, str(error)))
            results = [OnnxValue(self.writer.name("refused"), y.dtype) for y in node.outputs]
        self.values.update(zip(node.outputs, [results] if isinstance(results, OnnxValue) else results, strict=True))

    def _empty(self, y: Tensor) -> OnnxValue:
        """A value without elements."""
        return self.writer.constant(np.zeros([int(size) for size in y.shape], y.dtype))

    def _written(self, node: Node, operands: Sequence[OnnxValue]) -> OnnxValue | Sequence[OnnxValue]:
        name = node.op.name
        if name in WRITERS:
            return WRITERS[name](self.writer, node, operands)
        if node.op.elementwise:
            return elementwise(self.writer, node, operands)
        if name == "cond":
            return self._branch(node, operands)
        if name in LOOPS:
            return self._loop(node, operands)
        raise Unwritable("it has no counterpart")

    # -- bodies -------------------------------------------------------------------------------------------------------

    def body(self, body: Any, given: Sequence[OnnxValue], writer: GraphWriter) -> list[OnnxValue]:
        """The results of a body, written where its operands have these values."""
        region = simplified(body)
        inner = Walk(writer, dict(zip(region.feeds, given, strict=True)), self.refused)
        for node in region.graph.nodes:
            inner.node(node)
        return [inner.values[x] for x in region.fetches]

    def _graph(
        self, writer: GraphWriter, inputs: Sequence[tuple[OnnxValue, Any]], outputs: Sequence[OnnxValue], types: Any
    ) -> Any:
        """A body's message. Each output is a value of the body's own, named once."""
        infos = []
        for value, type_ in zip(outputs, types, strict=True):
            own = writer.add("Identity", [value], value.dtype)
            infos.append(info(own.name, type_))
        return helper.make_graph(writer.nodes, writer.name("body"), [info(v.name, t) for v, t in inputs], infos)

    def _branch(self, node: Node, operands: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
        types = [y.type for y in node.outputs]
        graphs = []
        for body in node.attrs.bodies:
            writer = GraphWriter(self.writer)
            graphs.append(self._graph(writer, [], self.body(body, operands[1:], writer), types))
        dtypes = [t.dtype for t in types]
        return self.writer.several("If", [operands[0]], dtypes, then_branch=graphs[0], else_branch=graphs[1])

    def _loop(self, node: Node, operands: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
        attrs = node.attrs
        if attrs.counted:
            raise Unwritable("a loop that is counted by a value")
        if attrs.condition is None:
            return self._scan(node, operands)
        if len(attrs.body.fetches) > attrs.carries:
            raise Unwritable("a loop with a condition that gives rows")
        return self._while(node, operands)

    def _scan(self, node: Node, operands: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
        attrs, writer = node.attrs, GraphWriter(self.writer)
        carries, rest = operands[: attrs.carries], operands[attrs.carries :]
        rows, captured = rest[: attrs.sequences], rest[attrs.sequences :]
        feeds = attrs.body.feeds
        given = [OnnxValue(writer.name("given"), x.dtype) for x in feeds[: 1 + attrs.carries + attrs.sequences]]
        results = self.body(attrs.body, [*given, *captured], writer)
        # The number of the turn is a row like others.
        order = [*given[1 : 1 + attrs.carries], given[0], *given[1 + attrs.carries :]]
        types = [*(x.type for x in feeds[1 : 1 + attrs.carries]), feeds[0].type,
                 *(x.type for x in feeds[1 + attrs.carries : len(given)])]  # fmt: skip
        graph = self._graph(writer, list(zip(order, types)), results, [x.type for x in attrs.body.fetches])
        turns = self.writer.line(attrs.length, np.int64)
        if not is_open(attrs.length) and attrs.length == 0:
            return [*carries, *(self._empty(y) for y in node.outputs[attrs.carries :])]
        count, stacked, back = attrs.sequences + 1, len(results) - attrs.carries, int(attrs.reverse)
        directions = {"scan_input_directions": [back] * count, "scan_output_directions": [back] * stacked}
        directions = {name: value for name, value in directions.items() if value}  # an empty one has no type
        return self.writer.several(
            "Scan", [*carries, turns, *rows], [y.dtype for y in node.outputs], body=graph, num_scan_inputs=count,
            **directions,
        )  # fmt: skip

    def _while(self, node: Node, operands: Sequence[OnnxValue]) -> Sequence[OnnxValue]:
        """ONNX's loop decides after a turn whether there is another one."""
        attrs, w = node.attrs, self.writer
        carries, captured = operands[: attrs.carries], operands[attrs.carries :]
        zero = w.constant(np.array(0, np.int64))
        (begins,) = self.body(attrs.condition, [zero, *carries, *captured], w)
        writer, feeds = GraphWriter(w), attrs.body.feeds
        number = OnnxValue(writer.name("turn"), np.dtype(np.int64))
        going = OnnxValue(writer.name("going"), bool_)
        given = [OnnxValue(writer.name("given"), x.dtype) for x in feeds[1 : 1 + attrs.carries]]
        taken = OnnxValue(writer.name("taken"), int64)
        results = self.body(attrs.body, [number, *given, *captured], writer)
        after = writer.add("Add", [taken, w.constant(np.array(1, np.int64))], int64)
        (again,) = self.body(attrs.condition, [after, *results, *captured], writer)
        turn = feeds[0].type
        types = [x.type for x in feeds[1 : 1 + attrs.carries]]
        flag = attrs.condition.fetches[0].type
        inputs = [(number, turn), (going, flag), *zip(given, types), (taken, turn)]
        graph = self._graph(writer, inputs, [again, *results, after], [flag, *types, turn])
        limit = None if attrs.length is None else w.constant(np.array(int(attrs.length), np.int64))
        dtypes = [*(x.dtype for x in carries), np.dtype(np.int64)]
        return w.several("Loop", [limit, begins, *carries, zero], dtypes, body=graph)


def info(name: str, type_: Any) -> onnx.ValueInfoProto:
    """The message of a value's type; open sizes have a name."""
    shape = [str(size) if is_open(size) else int(size) for size in type_.shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(type_.dtype), shape)


def refusals(refused: Sequence[tuple[Node, str]]) -> list[UnsupportedOp]:
    """The ops without a counterpart, each with its reason, its count and its lines."""
    found: dict[tuple[str, str], list[Node]] = {}
    for node, reason in refused:
        found.setdefault((node.op.name, reason), []).append(node)
    return [
        UnsupportedOp(*what, len(nodes), tuple(dict.fromkeys(n.source for n in nodes if n.source is not None)))
        for what, nodes in found.items()
    ]
