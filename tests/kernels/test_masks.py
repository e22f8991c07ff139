"""Masked accesses of memory: the lanes that a mask excludes are zero and their memory is not touched, whatever the code
generator finds out about the mask. Each runs between pages that may not be touched."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from support.guards import guarded
from support.targets import HERE

from staticgrad.compiler.emit import masked
from staticgrad.compiler.emit.llvm import IRModule, Value, element_of, memory_type, vector
from staticgrad.compiler.machine.target import TARGETS
from staticgrad.compiler.native.module import NativeModule

DTYPES = ("int8", "int16", "int32", "int64", "float32", "float64")
LANES = (2, 4, 8, 16, 32)
KINDS = ("literal", "and", "compare", "known", "runtime")
WAYS = ("load", "store", "cut", "gather", "scatter")


def patterns(lanes: int) -> Iterator[tuple[int, ...]]:
    """Lanes that are on: none, all, halves, quarters, eighths, the first and last, every second, runs."""
    every = range(lanes)
    yield ()
    yield tuple(every)
    for parts in (2, 4, 8):
        size = lanes // parts
        for part in range(parts if size else 0):
            yield tuple(every[part * size : (part + 1) * size])
            yield tuple(i for i in every if i // size != part)
    yield from ((0,), (lanes - 1,), (0, lanes - 1), tuple(every[::2]), tuple(every[1::2]), tuple(every[1:-1]))
    yield from (tuple(every[lanes // 2 + 1 :]), tuple(every[: lanes // 2 + 1]), tuple(every[: lanes // 2 - 1]))


def written(module: IRModule, number: int, way: str, kind: str, type_: str, on: tuple[int, ...], lanes: int) -> None:
    """Add ``void @run<number>(ptr x, ptr y, i64 one)``, which moves the lanes that are on from x to y; of a load all
    lanes of y are written. The mask is a literal, one that is and-ed with a bit, numbers compared with literals or with
    what is known of a register, or compared with what only the call knows."""
    f = module.function(f"run{number}", ("ptr", "ptr", "i64"), internal=False)
    x, y, one = f.params
    literal = Value("<" + ", ".join(f"i1 {str(i in on).lower()}" for i in range(lanes)) + ">", vector("i1", lanes))
    numbers = ", ".join(f"i32 {int(i in on)}" for i in range(lanes))
    bits, low = Value(f"<{numbers}>", vector("i32", lanes)), f.cast("trunc", one, "i32")
    if kind == "literal":
        mask = literal
    elif kind == "and":
        mask = f.binary("and", f.splat(f.compare("icmp eq", low, f.const(1, "i32")), lanes), literal)
    elif kind == "compare":
        mask = f.compare("icmp sgt", bits, f.const(0, vector("i32", lanes)))
    elif kind == "known":  # bits of a product by 4 and a sum below 4, of which the lowest two are known
        base = f.binary("mul", f.splat(low, lanes), f.const(4, vector("i32", lanes)))
        mask = f.compare(
            "icmp eq", f.binary("and", f.binary("or", base, bits), f.const(3, bits.type)), f.const(1, bits.type)
        )
    else:
        mask = f.compare("icmp sge", bits, f.splat(low, lanes))
    element = element_of(type_)
    pointers = [
        f.emit(f"<{lanes} x ptr>", f"getelementptr {element}, {p}, {f.lane_numbers(vector(f.word, lanes))}")
        for p in (x, y)
    ]
    if way == "load":
        f.store(masked.load(f, type_, x, mask), y)
    elif way == "gather":
        f.store(masked.gather(f, element, pointers[0], mask), y)
    elif way == "store":
        masked.store(f, f.load(type_, x), y, mask)
    elif way == "cut":  # elements of twice the width, of which the lower half is stored
        wide = f.load(vector(f"i{2 * int(element[1:])}", lanes), x)
        masked.store(f, f.emit(type_, f"trunc {wide} to {type_}"), y, mask)
    else:
        masked.scatter(f, f.load(type_, x), pointers[1], mask)
    f.finish()


@pytest.mark.share(2)
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("code", ["int16", "int64", "float32"])
def test_a_mask_of_two_registers_that_is_known_in_part_excludes_its_lanes(code: str, name: str) -> None:
    lanes = 2 * TARGETS[name].isa.vector_bytes // np.dtype(code).itemsize
    check(name, np.dtype(code), ("and", "known", "compare"), ("load", "store", "cut"), [lanes])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", DTYPES)
@pytest.mark.parametrize("name", HERE)
def test_lanes_that_a_mask_excludes_are_not_touched(name: str, code: str, kind: str) -> None:
    # No planned kernel has vectors of more than four registers.
    most = 4 * TARGETS[name].isa.vector_bytes // np.dtype(code).itemsize
    check(name, np.dtype(code), [kind], WAYS, [lanes for lanes in LANES if lanes <= most])


def check(name: str, dtype: np.dtype, kinds: Sequence[str], ways: Sequence[str], widths: Sequence[int]) -> None:
    target, wide = TARGETS[name], np.dtype(f"i{2 * dtype.itemsize}") if dtype.itemsize < 8 else dtype
    module, cases = IRModule(target), []
    for kind, way, lanes in itertools.product(kinds, ways, widths):
        if way == "cut" and (dtype.kind == "f" or dtype.itemsize == 8):
            continue
        for on in dict.fromkeys(patterns(lanes)):
            written(module, len(cases), way, kind, vector(memory_type(dtype), lanes), on, lanes)
            cases.append((way, lanes, on))
    native = NativeModule(module.text(), target)
    for number, (way, lanes, on) in enumerate(cases):
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(native.address(f"run{number}"))
        first, end = (on[0], on[-1] + 1) if on else (0, 0)
        values = np.arange(1, lanes + 1).astype(dtype)
        expected = np.where(np.isin(np.arange(lanes), on), values, 0).astype(dtype)
        size = dtype.itemsize
        for at_end in (False, True):  # what may be touched begins with the first lane that is on, or ends with the last
            part = slice(0, end) if at_end else slice(first, lanes)
            shift = 0 if at_end else first * size
            if way in ("load", "gather"):
                x, y = guarded(values[part], at_end=at_end), np.full(lanes, 77, dtype)
                run(x.ctypes.data - shift, y.ctypes.data, 1)
                np.testing.assert_array_equal(y, expected, str((way, lanes, on)))
            else:
                x, y = (
                    values.astype(wide) if way == "cut" else values,
                    guarded(np.full(lanes, 0, dtype)[part], at_end=at_end),
                )
                run(x.ctypes.data, y.ctypes.data - shift, 1)
                np.testing.assert_array_equal(y, expected[part], str((way, lanes, on)))
