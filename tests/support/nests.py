"""Nests evaluated by NumPy and compiled, side by side."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from staticgrad.compiler.emit.families import emit_kernel, plan_kernel
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.emit.nest.kernel import ranged_function
from staticgrad.compiler.kernels.nest import Compute, Nest
from staticgrad.compiler.kernels.reference import run_nest
from staticgrad.compiler.machine.target import TARGETS, Target
from staticgrad.compiler.native.module import NativeModule
from staticgrad.graph.optable import NO_ATTRIBUTES
from support.targets import HERE

F32, F64, I32, I64, U8, B = (np.dtype(t) for t in ("f4", "f8", "i4", "i8", "u1", "?"))
RUNNABLE = [TARGETS[name] for name in HERE]
Array = Any  # NumPy arrays of any dtype


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
        module = IRModule(target)
        for i, (nest, bounds) in enumerate(zip(nests, self.ranges, strict=True)):
            alone = replace(plan_kernel(nest, target), is_shared=False)
            name = emit_kernel(module, alone, "nest") if bounds is None else ranged_function(module, nest)
            tail = ["ptr"] if bounds is None else ["i64"] * (2 * len(nest.outer))
            f = module.function(f"main{i}", ["ptr"] * len(nest.args) + tail, internal=False)
            f.call(name, "void", *f.params)
            f.finish()
        self.native = NativeModule(module.texts(), target)

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
        run_nest(nest, arrays)
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
