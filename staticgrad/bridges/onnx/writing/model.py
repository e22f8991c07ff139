"""Executables as ONNX models: ``save``.

Input: an executable. Output: a file whose graph computes what its program does, from the same feeds, with derivatives
as ordinary nodes. Variables that the program does not write are initializers. One that it writes is an input, whose
default is its value in the session, and an output, its new value: a training step is run by handing outputs back.
"""

from __future__ import annotations

import json
import os
from typing import Any

import onnx
from onnx import helper, numpy_helper

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError, UnsupportedError
from staticgrad.base.extents import OpenSizeError
from staticgrad.base.files import replace
from staticgrad.bridges.onnx.writing.bodies import Walk, info, refusals, simplified
from staticgrad.bridges.onnx.writing.text import GraphWriter, OnnxValue
from staticgrad.compiler.regions.ranges import RangeError
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Node, Tensor
from staticgrad.runtime.export.source import Exportable, ExportSource

OPSET = 18
IR_VERSION = 9
STATE = "staticgrad.state"  # the key under which a model says which output is the new value of which input
NEW = "{}.new"


@boundary
def save(path: str | os.PathLike[str], exe: Any) -> onnx.ModelProto:
    """Write what an executable computes as an ONNX model (opset 18), and check it.

    The model's inputs are the feeds, under their names, its outputs the fetches, under theirs. A variable that the
    program writes is an input as well, which may be left out (then it is the session's value), and its new value the
    output ``<name>.new``; the model's property ``"staticgrad.state"`` has these pairs as JSON. Checks of indices are
    left to the runtime. Sizes that were open when it was compiled are open in the model, under their names, if no op
    has to know one; else they are those of the latest call.

    Returns:
        The model that was written.

    Raises:
        UnsupportedError: ops that ONNX has no counterpart for, all of them.
        GraphError: no executable.

    Example:
        >>> import pathlib, tempfile
        >>> import staticgrad.onnx
        >>> x, w = sg.placeholder((2, 3), name="x"), sg.Variable(np.ones((3, 1), np.float32), name="w")
        >>> exe = sg.Session().compile(sg.exp(x @ w), x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = staticgrad.onnx.save(pathlib.Path(folder) / "net.onnx", exe)
        >>> [node.op_type for node in model.graph.node]
        ['MatMul', 'Exp', 'Identity']
    """
    if not isinstance(exe, Exportable):
        raise GraphError(f"onnx.save: expected an executable, actual {type(exe).__name__}")
    model = model_of(exe._export_source())
    onnx.checker.check_model(model)
    replace(path, model.SerializeToString())
    return model


def model_of(source: ExportSource) -> onnx.ModelProto:
    """The model of an executable, for all sizes where that can be, else for those of the latest call.

    Raises:
        UnsupportedError: ops without a counterpart.
        GraphError: sizes that have to be known and are not.
    """
    try:
        region = source.open_region()
        if region is not None:
            return written(source, region)
    except (RangeError, OpenSizeError) as error:
        try:
            return written(source, source.region())
        except GraphError as unknown:
            raise unknown from error
    return written(source, source.region())


def written(source: ExportSource, region: Region) -> onnx.ModelProto:
    """The model that a region is."""
    region, writer = simplified(region), GraphWriter()
    inputs, values = [], dict[Tensor, OnnxValue]()
    for declared, x in zip(source.feeds, region.feeds, strict=True):
        value = values[x] = OnnxValue(writer.name(declared.op.name), x.dtype)
        inputs.append(info(value.name, x.type))
        writer.open_sizes_at(value, x.shape)
    updates = {node.attrs.key: node.outputs[0] for node in region.effects if node.op.name == "assign"}
    variables = [node for node in region.graph.nodes if node.op.name == "variable"]
    state: dict[str, str] = {}
    known: list[Any] = []
    for node in variables:
        key = node.attrs.key
        value = values[node.outputs[0]] = OnnxValue(writer.name(key), node.outputs[0].dtype)
        known.append(numpy_helper.from_array(source.store.read(key), value.name))
        if key in updates:
            state[key] = value.name
            inputs.append(info(value.name, node.outputs[0].type))
    walk = Walk(writer, values, [])
    for node in region.graph.nodes:
        _step(walk, node)
    if walk.refused:
        ops = refusals(walk.refused)
        text = "\n  ".join(["onnx.save: the program has ops that ONNX has no counterpart for", *map(str, ops)])
        raise UnsupportedError(text, ops=ops, source=walk.refused[0][0].source)
    outputs = []
    for declared, place in source.fetched:
        outputs.append(_output(writer, walk, declared.op.name, region.fetches[place]))
    pairs = {}
    for key, x in updates.items():
        outputs.append(_output(writer, walk, NEW.format(key), x))
        if key in state:
            pairs[state[key]] = outputs[-1].name
    graph = helper.make_graph(writer.nodes, "staticgrad", inputs, outputs, [*known, *writer.initializers])
    imports = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="staticgrad")
    if pairs:
        helper.set_model_props(model, {STATE: json.dumps(pairs)})
    return model


def _step(walk: Walk, node: Node) -> None:
    if node.op.name == "assign":
        walk.values[node.outputs[0]] = walk.values[node.inputs[-1]]
    elif node.op.name not in ("placeholder", "variable"):
        walk.node(node)


def _output(writer: GraphWriter, walk: Walk, wanted: str, x: Tensor) -> onnx.ValueInfoProto:
    name = writer.name(wanted)
    writer.rename(walk.values[x], name)
    return info(name, x.type)
