"""The text of an ONNX graph while it is written: nodes, constants, names.

Output: a ``GraphProto``'s parts. What the ops of a graph become is said in ``scalars.py`` (one element at a
time) and ``ops.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from staticgrad.base.extents import OpenSizeError, Ratio, extent_of, is_open
from staticgrad.base.frozen import frozen
from staticgrad.base.types import bool_, float32, float64, int8, int32, int64, uint8, uint32, uint64

ARITHMETIC = (int32, int64, float32, float64)  # for which runtimes have kernels of all arithmetic

TOP_BIT = np.array(2**63, np.uint64)


@frozen
class OnnxValue:
    """A value of an ONNX graph: its name and dtype."""

    name: str
    dtype: np.dtype


class Unwritable(Exception):
    """An op that ONNX has no counterpart for; the message says why."""


class GraphWriter:
    """Nodes of a graph, or of a body in one, whose names are unique in the model."""

    def __init__(self, outer: GraphWriter | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._outer = outer
        self._inputs: dict[int, tuple[OnnxValue, int]] = {}  # by an open size: an input, and its axis of this size
        self._sizes: dict[int, OnnxValue] = {}  # of the outermost graph: vectors of one number
        self.initializers: list[onnx.TensorProto] = outer.initializers if outer is not None else []
        self._constants: dict[tuple[Any, ...], OnnxValue] = outer._constants if outer is not None else {}
        self._names: set[str] = outer._names if outer is not None else set()

    def name(self, wanted: str) -> str:
        """A name that no other value has."""
        name, number = wanted, 1
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    def add(self, operator: str, inputs: Sequence[OnnxValue | None], dtype: np.dtype, **attributes: Any) -> OnnxValue:
        """The result of a new node."""
        return self.several(operator, inputs, [dtype], **attributes)[0]

    def several(
        self, operator: str, inputs: Sequence[OnnxValue | None], dtypes: Sequence[np.dtype], **attributes: Any
    ) -> list[OnnxValue]:
        """The results of a new node; operands that are None are left out."""
        results = [OnnxValue(self.name(operator.lower()), np.dtype(dtype)) for dtype in dtypes]
        names = ["" if x is None else x.name for x in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(helper.make_node(operator, names, [y.name for y in results], **attributes))
        return results

    def constant(self, array: Any, name: str = "constant") -> OnnxValue:
        """A constant; equal ones are one."""
        array = np.asarray(array)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            value = OnnxValue(self.name(name), array.dtype)
            self.initializers.append(
                numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), value.name)
            )
            self._constants[key] = value
        return self._constants[key]

    def open_sizes_at(self, value: OnnxValue, shape: Sequence[Any]) -> None:
        """Take note of an input whose shape has open sizes, by which these are known in a run."""
        for axis, size in enumerate(shape):
            if is_open(size):
                self._inputs.setdefault(size, (value, axis))

    def size(self, extent: int) -> OnnxValue:
        """A vector of int64 with the number that a size is in a run.

        Raises:
            OpenSizeError: no shape of an input says it.
        """
        if self._outer is not None:
            return self._outer.size(extent)
        if not is_open(extent):
            return self.constant(np.array([extent], np.int64), "numbers")
        if extent not in self._sizes and extent in self._inputs:
            value, axis = self._inputs[extent]
            self._sizes[extent] = self.add("Shape", [value], int64, start=axis, end=axis + 1)
        elif extent not in self._sizes:
            terms = [self._product(factor, monomial) for monomial, factor in cast(Any, extent).terms]
            self._sizes[extent] = functools.reduce(lambda a, b: self.add("Add", [a, b], int64), terms)
        return self._sizes[extent]

    def _product(self, factor: int, atoms: Sequence[Any]) -> OnnxValue:
        values = [self.constant(np.array([factor], np.int64), "numbers")] if factor != 1 or not atoms else []
        for atom in atoms:
            if isinstance(atom, Ratio):
                pair = [self.size(atom.numerator), self.size(atom.denominator)]
                values.append(self.add("Mod" if atom.rest else "Div", pair, int64))
            elif extent_of(atom) in self._inputs:
                values.append(self.size(extent_of(atom)))
            else:
                raise OpenSizeError(f"no shape of an input is {atom}", extent_of(atom))
        return functools.reduce(lambda a, b: self.add("Mul", [a, b], int64), values)

    def numbers(self, values: Sequence[int]) -> OnnxValue:
        """A vector of int64; open sizes are those of a run."""
        if any(map(is_open, values)):
            return self.add("Concat", [self.size(value) for value in values], int64, axis=0)
        return self.constant(np.array(values, np.int64).reshape(len(values)), "numbers")

    def rename(self, value: OnnxValue, name: str) -> None:
        """Give a value a name of its own as well."""
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))

    # -- what several ops are made of ---------------------------------------------------------------------------------

    def cast(self, x: OnnxValue, dtype: Any) -> OnnxValue:
        dtype = np.dtype(dtype)
        return x if x.dtype == dtype else self.add("Cast", [x], dtype, to=helper.np_dtype_to_tensor_dtype(dtype))

    def line(self, count: int, dtype: Any) -> OnnxValue:
        """0, 1, … up to a size."""
        if not is_open(count):
            return self.constant(np.arange(count).astype(dtype))
        end = self.reshape(self.size(count), [])
        zero, one = (self.constant(np.array(number, np.int64)) for number in (0, 1))
        return self.cast(self.add("Range", [zero, end, one], int64), dtype)

    def wide(
        self, operator: str, inputs: Sequence[OnnxValue], others: Sequence[OnnxValue] = (), **how: Any
    ) -> OnnxValue:
        """An operator of arithmetic, in a dtype for which there are kernels; integers wrap around as in their own.
        ``others`` are operands of a dtype of their own."""
        dtype, inputs = inputs[0].dtype, [self.widened(x) for x in inputs]
        return self.cast(self.add(operator, [*inputs, *others], inputs[0].dtype, **how), dtype)

    def widened(self, x: OnnxValue) -> OnnxValue:
        """A value in a dtype for which there are kernels."""
        return x if x.dtype in ARITHMETIC else self.cast(x, int64 if x.dtype in (uint32, uint64) else int32)

    def ordered(self, x: OnnxValue) -> OnnxValue:
        """A value in such a dtype, and in the same order."""
        if x.dtype != uint64:
            return self.widened(x)
        return self.cast(self.add("BitwiseXor", [x, self.constant(TOP_BIT)], uint64), int64)

    def back(self, x: OnnxValue, dtype: np.dtype) -> OnnxValue:
        """A value of this dtype from one that ``ordered`` has made."""
        y = self.cast(x, dtype)
        return y if dtype != uint64 else self.add("BitwiseXor", [y, self.constant(TOP_BIT)], uint64)

    def reshape(self, x: OnnxValue, shape: Sequence[int]) -> OnnxValue:
        if any(size == 0 for size in shape if not is_open(size)):
            return self.add("Reshape", [x, self.numbers(shape)], x.dtype, allowzero=1)
        return self.add("Reshape", [x, self.numbers(shape)], x.dtype)

    def transpose(self, x: OnnxValue, perm: Sequence[int]) -> OnnxValue:
        return x if list(perm) == sorted(perm) else self.add("Transpose", [x], x.dtype, perm=list(perm))

    def slice(
        self, x: OnnxValue, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int], axes: Sequence[int]
    ) -> OnnxValue:
        return self.add("Slice", [x, *map(self.numbers, (starts, stops, axes, steps))], x.dtype)

    def pad(self, x: OnnxValue, low: Sequence[int], high: Sequence[int], value: Any = 0) -> OnnxValue:
        """Pads of every axis."""
        if not any(low) and not any(high):
            return x
        if x.dtype == bool_ or x.dtype not in (*ARITHMETIC, int8, uint8):
            return self.cast(self.pad(self.cast(x, int32), low, high, int(value)), x.dtype)
        filler = self.constant(np.asarray(value).astype(x.dtype))
        return self.add("Pad", [x, self.numbers([*low, *high]), filler], x.dtype, mode="constant")
