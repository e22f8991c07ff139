"""Arguments that masks, padding and saturated units have: no operation on them underflows.

x86 takes more than a hundred cycles for an operation whose result or operand is denormal, also where the result is
rounded to 0 or is not used. The processor notes such operations in flags, which are read here instead of a clock.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from support.scalar_loops import F32, F64, add_loop

from staticgrad.base.types import TensorType
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.machine.target import TARGETS, Target, runs_here
from staticgrad.compiler.native.module import NativeModule
from staticgrad.errors import GraphError
from staticgrad.graph import optable

CLEAR, DENORMAL, UNDERFLOW = 0x1F80, 0x02, 0x10  # of MXCSR: every exception is masked; the two flags
LENGTH = 64

# where exp, 1/(1 + exp(-x)) and the like are 0, 1 or infinite, and what is ordinary
ARGUMENTS = (-np.inf, -1e9, -1e4, -1e3, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 1e3, 1e4, 1e9, np.inf, np.nan)
FLOAT_ARGUMENTS = (-300.0, -160.0, -110.0, -105.0)
VANISHING = ("exp", "exp2", "sigmoid", "silu", "softplus", "log_sigmoid", "erfc", "ndtr", "gaussian")  # somewhere
SATURATED = {  # where something inside would be denormal, but not the result
    "softplus": {F32: (50.0, 90.0, 100.0), F64: (100.0, 720.0, 740.0)},
    "log_sigmoid": {F32: (-50.0, -90.0, -100.0), F64: (-100.0, -720.0, -740.0)},
}


@functools.cache
def unary_ops() -> dict[str, tuple[optable.Op, object]]:
    """The elementwise ops of one float operand, one for each of the attributes that the table samples."""
    optable.FUNCTIONS.complete()
    found: dict[str, tuple[optable.Op, object]] = {}
    for op in optable.OPS.values():
        for case in op.cases if op.scalar else ():
            if len(case.shapes) == 1 and takes_floats(op, case.attrs):
                found.setdefault(f"{op.name} {case.attrs}", (op, case.attrs))
    return found


def takes_floats(op: optable.Op, attrs: object) -> bool:
    try:
        for dtype in (F32, F64):
            op.infer(attrs, TensorType((4,), dtype))
    except GraphError:
        return False
    return True


class Flags:
    """A module of loops over elementwise ops, and what the processor notes of a run."""

    def __init__(self, target: Target, dtype: np.dtype, lanes: int, names: Sequence[str]) -> None:
        self.dtype, self.names = dtype, names
        module = IRModule(target)
        for name, intrinsic in (("write_flags", "ldmxcsr"), ("read_flags", "stmxcsr")):
            f = module.function(name, ["ptr"], "void", internal=False)
            f.intrinsic(f"llvm.x86.sse.{intrinsic}", "void", f.params[0])
            f.ret()
            f.finish()
        for i, name in enumerate(names):
            op, attrs = unary_ops()[name]
            add_loop(module, f"op{i}", [dtype], 1, lanes, lambda b, xs, op=op, attrs=attrs: [op.scalar(b, attrs, *xs)])
        self.native = NativeModule(module.text(), target)

    def function(self, name: str, *types: type) -> Callable[..., None]:
        return ctypes.CFUNCTYPE(None, *types)(self.native.address(name))

    def __call__(self, name: str, x: np.ndarray) -> tuple[int, np.ndarray]:
        """The flags that the op raises on ``x``, and its results (if they are of the operand's dtype)."""
        loop = self.function(f"op{self.names.index(name)}", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        write, read = (self.function(f"{way}_flags", ctypes.c_void_p) for way in ("write", "read"))
        word, result = ctypes.c_uint32(CLEAR), np.empty(x.size, F64)
        address, pointers = ctypes.addressof(word), (x.ctypes.data, result.ctypes.data)
        write(address)
        loop(*pointers, x.size)
        read(address)
        return word.value & (DENORMAL | UNDERFLOW), result.view(self.dtype)[: x.size]


@functools.cache
def flags(target: Target, dtype: np.dtype, lanes: int = 0) -> Flags:
    """Of every op in whole registers, or in so many lanes of those that vanish."""
    names = [named(op) for op in VANISHING] if lanes else list(unary_ops())
    return Flags(target, dtype, lanes or target.lanes(dtype), names)


def named(op: str) -> str:
    """The first kind of this op."""
    return next(name for name in unary_ops() if name.startswith(f"{op} "))


@pytest.fixture(params=[t for t in TARGETS.values() if runs_here(t)], ids=lambda t: t.name)
def target(request: pytest.FixtureRequest) -> Target:
    return request.param


def arguments(dtype: np.dtype, name: str) -> np.ndarray:
    """Those at which the results of an op are not denormal."""
    narrow = [x for x in FLOAT_ARGUMENTS if name != named("silu") or x != -105.0]
    return np.array([*ARGUMENTS, *(narrow if dtype == F32 else ())], dtype)


def is_conversion(target: Target, name: str, dtype: np.dtype) -> bool:
    """Whether the last step is the rounding of a double, which underflows at no cost."""
    return name in (named("erfc"), named("ndtr"), named("gelu")) and dtype == F32 and not target.isa.scales


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.name)
def test_no_elementwise_op_underflows_at_masks_zeros_or_large_numbers(target: Target, dtype: np.dtype) -> None:
    run = flags(target, dtype)
    for name in run.names:
        slow = [x for x in arguments(dtype, name) if run(name, np.full(LENGTH, x, dtype))[0]]
        assert not slow or is_conversion(target, name, dtype), f"{name} of {slow}"


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", SATURATED)
def test_saturated_ops_compute_nothing_denormal(target: Target, dtype: np.dtype, op: str) -> None:
    for x in SATURATED[op][dtype]:
        flag, result = flags(target, dtype)(named(op), np.full(LENGTH, x, dtype))
        assert flag == 0
        np.testing.assert_array_equal(result, dtype.type(x))


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.name)
def test_one_masked_lane_is_as_good_as_all(target: Target, dtype: np.dtype) -> None:
    """Beside other arguments, and in scalar code, the results are those of whole registers of one argument."""
    for name in map(named, VANISHING):
        found = arguments(dtype, name)
        places = np.random.default_rng(3).integers(0, found.size, 4 * LENGTH)
        each = np.array([flags(target, dtype)(name, np.full(LENGTH, x, dtype))[1][0] for x in found])
        for run in (flags(target, dtype), flags(target, dtype, 1)):
            flag, result = run(name, found[places])
            assert flag == 0 or is_conversion(target, name, dtype), name
            np.testing.assert_array_equal(result, each[places], name)


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.name)
def test_denormal_exponentials_are_not_flushed(target: Target, dtype: np.dtype) -> None:
    """They alone underflow: down to half the smallest number, below which the result is 0."""
    smallest = np.finfo(dtype).smallest_subnormal
    edge = dtype.type(np.log(0.5) + np.log(np.float64(smallest)))
    above, below = edge + dtype.type(0.01), edge - dtype.type(0.01)
    for op in ("exp", "sigmoid"):
        flag, result = flags(target, dtype)(named(op), np.full(LENGTH, above, dtype))
        assert flag & UNDERFLOW
        np.testing.assert_array_equal(result, smallest)
        np.testing.assert_array_equal(flags(target, dtype)(named(op), np.full(LENGTH, below, dtype))[1], 0)
