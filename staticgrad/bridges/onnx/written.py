"""The text of an ONNX graph while it is written: nodes, constants, names.

Output: a ``GraphProto``'s parts. What the ops of a graph become is said in ``written_scalars.py`` (one element at a
time) and ``written_ops.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from staticgrad.base.frozen import frozen
from staticgrad.base.types import bool_, float32, float64, int8, int32, int64, uint8, uint32, uint64

ARITHMETIC = (int32, int64, float32, float64)  # for which runtimes have kernels of all arithmetic


@frozen
class Value:
    """A value of an ONNX graph: its name and dtype."""

    name: str
    dtype: np.dtype


class Unwritable(Exception):
    """An op that ONNX has no counterpart for; the message says why."""


class GraphWriter:
    """Nodes of a graph, or of a body in one, whose names are unique in the model."""

    def __init__(self, outer: GraphWriter | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = outer.initializers if outer is not None else []
        self._constants: dict[tuple[Any, ...], Value] = outer._constants if outer is not None else {}
        self._names: set[str] = outer._names if outer is not None else set()

    def name(self, wanted: str) -> str:
        """A name that no other value has."""
        name, number = wanted, 1
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    def add(self, operator: str, inputs: Sequence[Value | None], dtype: np.dtype, **attributes: Any) -> Value:
        """The result of a new node."""
        return self.several(operator, inputs, [dtype], **attributes)[0]

    def several(
        self, operator: str, inputs: Sequence[Value | None], dtypes: Sequence[np.dtype], **attributes: Any
    ) -> list[Value]:
        """The results of a new node; operands that are None are left out."""
        results = [Value(self.name(operator.lower()), np.dtype(dtype)) for dtype in dtypes]
        names = ["" if x is None else x.name for x in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(helper.make_node(operator, names, [y.name for y in results], **attributes))
        return results

    def constant(self, array: Any, name: str = "constant") -> Value:
        """A constant; equal ones are one."""
        array = np.asarray(array)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            value = Value(self.name(name), array.dtype)
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), value.name))
            self._constants[key] = value
        return self._constants[key]

    def numbers(self, values: Sequence[int]) -> Value:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64).reshape(len(values)), "numbers")

    def rename(self, value: Value, name: str) -> None:
        """Give a value a name of its own as well."""
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))

    # -- what several ops are made of ---------------------------------------------------------------------------------

    def cast(self, x: Value, dtype: Any) -> Value:
        dtype = np.dtype(dtype)
        return x if x.dtype == dtype else self.add("Cast", [x], dtype, to=helper.np_dtype_to_tensor_dtype(dtype))

    def wide(self, operator: str, inputs: Sequence[Value], also: Sequence[np.dtype] = (), **attributes: Any) -> Value:
        """An operator of arithmetic, in a dtype for which there are kernels; integers wrap around as in their own."""
        dtype = inputs[0].dtype
        if dtype in ARITHMETIC or dtype in also:
            return self.add(operator, inputs, dtype, **attributes)
        through = int64 if dtype in (uint32, uint64) else int32
        return self.cast(self.add(operator, [self.cast(x, through) for x in inputs], through, **attributes), dtype)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        if 0 in shape:
            return self.add("Reshape", [x, self.numbers(shape)], x.dtype, allowzero=1)
        return self.add("Reshape", [x, self.numbers(shape)], x.dtype)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        return x if list(perm) == sorted(perm) else self.add("Transpose", [x], x.dtype, perm=list(perm))

    def slice(self, x: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int], axes: Sequence[int]) -> Value:
        return self.add("Slice", [x, *map(self.numbers, (starts, stops, axes, steps))], x.dtype)

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int], value: Any = 0) -> Value:
        """Pads of every axis."""
        if not any(low) and not any(high):
            return x
        if x.dtype == bool_ or x.dtype not in (*ARITHMETIC, int8, uint8):
            return self.cast(self.pad(self.cast(x, int32), low, high, int(value)), x.dtype)
        filler = self.constant(np.asarray(value).astype(x.dtype))
        return self.add("Pad", [x, self.numbers([*low, *high]), filler], x.dtype, mode="constant")
