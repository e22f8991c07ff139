"""Nests evaluated by NumPy and compiled, side by side."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from staticgrad.compiler.emit.families import plan_kernel
from staticgrad.compiler.emit.llvm import Module
from staticgrad.compiler.emit.native import NativeModule
from staticgrad.compiler.emit.nest.kernel import nest_function
from staticgrad.compiler.emit.target import TARGETS, Target
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Iota, Load, Nest, Reduce, Store
from staticgrad.optable import NO_ATTRIBUTES, OPS
from support.targets import HERE

F32, F64, I32, I64, U8, B = (np.dtype(t) for t in ("f4", "f8", "i4", "i8", "u1", "?"))
RUNNABLE = [TARGETS[name] for name in HERE]
Array = Any  # NumPy arrays of any dtype


# -- the definition: a nest in NumPy --------------------------------------------------------------------------------


def _axis(dims: tuple[int, ...], dim: int) -> Array:
    shape = [1] * len(dims)
    shape[dim] = dims[dim]
    return np.arange(dims[dim]).reshape(shape)


def _address(nest: Nest, access: Access, values: list[Any]) -> Array:
    at = np.full((1,) * len(nest.dims), access.offset)
    for dim, stride in enumerate(access.strides):
        if stride:
            at = at + stride * _axis(nest.dims, dim)
    for value, stride in access.terms:
        at = at + stride * values[value]
    return at


def _reduce(nest: Nest, reduce: Reduce, x: Array) -> Array:
    axes = tuple(range(len(nest.outer), len(nest.dims)))
    outer = np.broadcast_shapes(x.shape[: len(nest.outer)])
    x = np.broadcast_to(x, (*outer, *nest.inner))
    if reduce.kind in ("any", "all"):
        return getattr(np, reduce.kind)(x, axis=axes, keepdims=True).astype(reduce.dtype)
    if reduce.kind in ("sum", "prod"):
        if reduce.dtype == B:
            return (np.any if reduce.kind == "sum" else np.all)(x, axis=axes, keepdims=True)
        wide = F64 if reduce.dtype.kind == "f" else reduce.dtype
        return getattr(np, reduce.kind)(x.astype(wide), axis=axes, keepdims=True).astype(reduce.dtype)
    if reduce.dtype == B:
        empty: Any = reduce.kind == "min"
    elif reduce.dtype.kind == "f":
        empty = -np.inf if reduce.kind == "max" else np.inf
    else:
        info = np.iinfo(reduce.dtype)
        empty = info.min if reduce.kind == "max" else info.max
    return getattr(np, reduce.kind)(x, axis=axes, keepdims=True, initial=empty)


def evaluate(nest: Nest, arrays: list[Array]) -> None:
    """Run ``nest`` on flat arrays, in place: each instruction at once for all iterations."""
    values: list[Any] = []
    rows = len(nest.outer)
    ones = (1,) * len(nest.inner)
    for instr in nest.body:
        value: Any = None
        match instr:
            case Constant(number, dtype):
                value = np.full((1,) * len(nest.dims), number, dtype)
            case Iota(dim):
                value = _axis(nest.dims, dim)
            case Load(access, dtype, guard):
                at = _address(nest, access, values)
                if guard is None:
                    value = arrays[access.arg][at]
                else:
                    at, on = np.broadcast_arrays(at, values[guard])
                    value = np.zeros(at.shape, dtype)
                    value[on] = arrays[access.arg][at[on]]
            case Compute(op, attrs, args, dtype):
                with np.errstate(all="ignore"):
                    value = np.asarray(OPS[op].reference(attrs, *(values[a] for a in args)), dtype)
            case Reduce(_, arg, dtype):
                value = _reduce(nest, instr, values[arg]) if nest.inner else values[arg].astype(dtype)
            case Store(access, number, mode, guard):
                at = _address(nest, access, values)
                on = np.ones_like(at, bool) if guard is None else values[guard]
                shape = np.broadcast_shapes(at.shape, values[number].shape, on.shape)
                inner = ones if all(n == 1 for n in shape[rows:]) else nest.inner
                at, x, on = (np.broadcast_to(a, (*nest.outer, *inner)) for a in (at, values[number], on))
                if mode == "set":
                    arrays[access.arg][at[on]] = x[on]
                else:
                    np.add.at(arrays[access.arg], at[on], x[on])
        values.append(value)


# -- running --------------------------------------------------------------------------------------------------------

GUARD = 64  # bytes around each argument that nobody may write


@dataclass
class Memory:
    """One argument between two guards."""

    raw: Array
    flat: Array

    @staticmethod
    def of(values: Array) -> Memory:
        raw = np.full(values.nbytes + 2 * GUARD, 0x5A, np.uint8)
        flat = raw[GUARD : GUARD + values.nbytes].view(values.dtype)
        flat[...] = values
        return Memory(raw, flat)

    def check(self) -> None:
        assert (self.raw[:GUARD] == 0x5A).all()
        assert (self.raw[len(self.raw) - GUARD :] == 0x5A).all()


class Compiled:
    """Nests of one module."""

    def __init__(self, nests: list[Nest], target: Target, ranges: list[list[tuple[int, int]] | None] | None = None):
        self.target = target
        self.nests = nests
        self.ranges = ranges if ranges is not None else [None] * len(nests)
        module = Module(target)
        for i, (nest, bounds) in enumerate(zip(nests, self.ranges, strict=True)):
            name = nest_function(module, nest, bounds is not None)
            tail = ["ptr"] if bounds is None else ["i64"] * (2 * len(nest.outer))
            f = module.function(f"main{i}", ["ptr"] * len(nest.args) + tail, internal=False)
            f.call(name, "void", *f.params)
            f.finish()
        self.native = NativeModule(module.text(), target)

    def __call__(self, i: int, arrays: list[Array]) -> list[Array]:
        """Run nest ``i`` on copies of ``arrays`` and return them."""
        nest, bounds = self.nests[i], self.ranges[i]
        memories = [Memory.of(a) for a in arrays]
        scratch = Memory.of(np.full(plan_kernel(nest, self.target).scratch_bytes(1), 0x77, np.uint8))
        pointers = [m.flat.ctypes.data for m in memories]
        if bounds is None:
            pointers.append(scratch.flat.ctypes.data)
            rest: list[Any] = []
        else:
            rest = [n for pair in bounds for n in pair]
        types = [ctypes.c_void_p] * len(pointers) + [ctypes.c_int64] * len(rest)
        ctypes.CFUNCTYPE(None, *types)(self.native.address(f"main{i}"))(*pointers, *rest)
        for memory in (*memories, scratch):
            memory.check()
        return [m.flat for m in memories]


def check(
    nests: list[Nest], data: list[list[Array]], targets: list[Target] = RUNNABLE, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Each nest on its arrays: compiled for each target, equal to the definition."""
    wanted = [[a.copy() for a in arrays] for arrays in data]
    for nest, arrays in zip(nests, wanted, strict=True):
        evaluate(nest, arrays)
    for target in targets:
        run = Compiled(nests, target)
        for i, arrays in enumerate(data):
            for k, (found, expected) in enumerate(zip(run(i, arrays), wanted[i], strict=True)):
                note = f"{target.name} nest {i} argument {k}: {nests[i]}"
                np.testing.assert_allclose(found, expected, rtol, atol, equal_nan=True, err_msg=note)


def op(name: str, *args: int, dtype: np.dtype = F32, attrs: Any = NO_ATTRIBUTES) -> Compute:
    return Compute(name, attrs, args, dtype)


def normal(*sizes: int, dtype: np.dtype = F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(math.prod(sizes)).astype(dtype)
