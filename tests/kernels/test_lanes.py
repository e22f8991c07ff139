"""Loops by vectors with their remainders: every element once, none behind the last; squares transposed in registers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from support.targets import HERE

from staticgrad.compiler.emit.lanes import transposed, vector_parts
from staticgrad.compiler.emit.llvm import IRModule, memory_type, vector
from staticgrad.compiler.machine.target import TARGETS
from staticgrad.compiler.native.module import NativeModule

COUNTS = (0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 70)
WAYS = ("told", "known", "given", "carried")


def doubling(module: IRModule, dtype: np.dtype, way: str, count: int) -> None:
    """Add ``void @run…(ptr x, ptr y, i64 count)``: y[i] = x[i] + x[i], the length told, its rest known, or given."""
    f = module.function(f"run{count}", ("ptr", "ptr", "i64"), internal=False)
    x, y, told = f.params
    element, lanes = memory_type(dtype), f.target.lanes(dtype)
    length = count if way == "given" else told
    rest = count % lanes if way == "known" and not f.target.isa.predicated else None
    carry = [f.index(0)] if way == "carried" else []
    for part in vector_parts(f, dtype, length, rest=rest):
        with part.turns(carry) as (loop, some):
            value = some.load(f, f.offset(x, loop.index, element))
            some.store(f, f.binary("fadd", value, value), f.offset(y, loop.index, element))
            loop.next(*loop.carried)
    f.finish()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", HERE)
def test_each_element_is_reached_once_and_none_behind(name: str, way: str) -> None:
    dtype, target = np.dtype("float32"), TARGETS[name]
    module = IRModule(target)
    written = COUNTS if way in ("known", "given") else COUNTS[:1]  # each for its count, or one for all
    for count in written:
        doubling(module, dtype, way, count)
    native = NativeModule(module.text(), target)
    for number, count in enumerate(COUNTS):
        run = native.address(f"run{COUNTS[number % len(written)]}")
        x, y = np.arange(1, count + 1, dtype=dtype), np.full(count + 9, -1, dtype)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(run)(
            x.ctypes.data, y.ctypes.data, count
        )
        np.testing.assert_array_equal(y, [*(2 * x), *[-1] * 9])


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("code", ["float32", "float64", "int16"])
def test_squares_side_by_side_are_transposed_in_registers(name: str, code: str) -> None:
    dtype, module = np.dtype(code), IRModule(TARGETS[name])
    element, lanes = memory_type(dtype), module.target.lanes(dtype)
    sides = [side for side in (2, 4, 8, 16) if side <= lanes]
    for side in sides:
        f = module.function(f"run{side}", ("ptr", "ptr"), internal=False)
        rows = [f.load(vector(element, lanes), f.offset(f.params[0], i * lanes, element)) for i in range(side)]
        for i, column in enumerate(transposed(f, rows)):
            f.store(column, f.offset(f.params[1], i * lanes, element))
        f.finish()
    native = NativeModule(module.text(), module.target)
    for side in sides:
        x = np.arange(side * lanes, dtype=dtype).reshape(side, lanes)
        y = np.zeros_like(x)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(native.address(f"run{side}"))(
            x.ctypes.data, y.ctypes.data
        )
        squares = x.reshape(side, -1, side).transpose(2, 1, 0)
        np.testing.assert_array_equal(y, squares.reshape(side, lanes))
