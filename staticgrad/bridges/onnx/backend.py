"""The backend by which ONNX's own tools run models: ``prepare``, ``run_model``, ``run_node``.

Input: a model, then arrays. Output: arrays. A program is made for each combination of shapes, and for each value of the
inputs that steer shapes, which are found when a conversion asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from staticgrad.base import nests
from staticgrad.bridges.arrays import LARGEST_KNOWN
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.onnx.dialect import OnnxSequence
from staticgrad.bridges.onnx.model import OnnxModule, message_of, program_of
from staticgrad.bridges.onnx.program import WIDER, array_of, dependencies
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.runtime.session.session import Session

Key = tuple[Any, ...]


class StaticgradRep(BackendRep):
    """A model that is ready to be run."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Representations are made by ``prepare``."""
        self._program = program_of(model)
        self._steering: set[str] = set()  # the inputs on whose values shapes depend
        self._made: dict[Key, Any] = {}

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """The outputs for these inputs: an array for each in order, or a mapping by name.

        Raises:
            UnsupportedError: operators on these operands, or shapes that depend on what the model computes of them.
        """
        arrays = self._named(inputs)
        key = self._key(arrays)
        if key not in self._made:
            made = self._compiled(arrays)
            key = self._key(arrays)
            self._made[key] = made
        feeds, executable = self._made[key]
        results = executable(*(leaf for name in feeds for leaf in nests.flatten(arrays[name])))
        names = self._program.body.outputs
        typed = [_as_declared(self._program.outputs[name], value) for name, value in zip(names, results)]
        outputs: tuple[Any, ...] = namedtupledict("Outputs", names)(*typed)
        return outputs

    def _named(self, inputs: Any) -> dict[str, np.ndarray]:
        names = list(self._program.inputs)
        if isinstance(inputs, Mapping):
            given: Mapping[str, Any] = inputs
        else:
            given = dict(zip(names, inputs if isinstance(inputs, (list, tuple)) else [inputs]))
        return {name: nests.map(_array, value) for name, value in given.items()}

    def _key(self, arrays: Mapping[str, Any]) -> Key:
        values = ((name, arrays[name].tobytes()) for name in sorted(self._steering))
        leaves = [(name, [(x.shape, x.dtype) for x in nests.flatten(value)]) for name, value in arrays.items()]
        return str(leaves), tuple(values)

    def _compiled(self, arrays: Mapping[str, Any]) -> tuple[list[str], Any]:
        """A program for inputs of these shapes, and for the values of those that steer shapes."""
        while True:
            try:
                return self._declared(arrays)
            except RefusedError as error:
                if error.needs is None:
                    raise
                needed = dependencies([error.needs], self._program.body)
                found = {name for name in needed if name in arrays and np.size(arrays[name]) <= LARGEST_KNOWN}
                if not found - self._steering:
                    raise
                self._steering |= found

    def _declared(self, arrays: Mapping[str, Any]) -> tuple[list[str], Any]:
        with Graph() as graph:
            feeds = {name: nests.map(_placeholder, x) for name, x in arrays.items() if name not in self._steering}
            given = {name: OnnxSequence(tuple(x)) if isinstance(x, list) else x for name, x in feeds.items()}
            results = OnnxModule(self._program).results({**arrays, **given})
        return list(feeds), Session(graph).compile(results, nests.flatten(list(feeds.values())))


def _array(value: Any) -> np.ndarray:
    """An array of what is fed, an array or a message, in the dtype in which it is kept."""
    array = array_of(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    return array.astype(WIDER[array.dtype.name]) if array.dtype.name in WIDER else array


def _placeholder(x: np.ndarray) -> Tensor:
    return o.placeholder(x.shape, x.dtype)


def _as_declared(info: onnx.ValueInfoProto, value: Any) -> Any:
    """A result in the dtype that ONNX's arrays of the declared type have."""
    if not isinstance(value, np.ndarray) or info.type.WhichOneof("value") != "tensor_type":
        return value
    return value.astype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type), copy=False)


class StaticgradBackend(Backend):
    """ONNX's backend interface on staticgrad."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """True if nothing in a model is known not to be supported."""
        try:
            program_of(model)
        except RefusedError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> StaticgradRep:
        """A model that is ready to be run.

        Raises:
            UnsupportedError: operators, types of elements or versions that are not supported, all of them.
        """
        super().prepare(message_of(model), device, **options)
        return StaticgradRep(message_of(model))

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> tuple[Any, ...]:
        """The outputs of one node."""
        super().run_node(node, inputs, device, outputs_info, **options)
        arrays = [np.asarray(value) for value in inputs]
        names = [name for name in node.input if name]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(names, arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", infos, outputs)
        version = options.get("opset_version", onnx.defs.onnx_opset_version())
        model = onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        )
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True of the processor."""
        return device.partition(":")[0] == "CPU"
