"""Additions in as many places as ``ARCHITECTURE.md`` names: a family of kernels with an op of its own, a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, TensorType, sizes
from staticgrad.compiler import passes
from staticgrad.compiler.emit import families
from staticgrad.compiler.emit.families import Family, once
from staticgrad.compiler.emit.llvm import IRModule, integer, memory_type
from staticgrad.compiler.kernels import reference, routines
from staticgrad.compiler.kernels.planned import PlannedKernel
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.passes import PASSES, Pass
from staticgrad.compiler.regions.region import Region, rebuild
from staticgrad.errors import GraphError
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import graph_of
from staticgrad.graph.optable import OPS, Array, Case, Namespace, NoAttributes, Op, Primal, register
from staticgrad.ops.batch_rules import last_axes

# -- a fifth family: the order in which a fast Fourier transform reads (Cooley and Tukey 1965) -------------------------


# 1. The op, an entry like any other.


def _bits(length: int) -> int:
    return length.bit_length() - 1


def _order(length: int) -> Array:
    """The numbers below ``length``, each with its bits in the opposite order."""
    numbers, found = np.arange(length), np.zeros(length, np.int64)
    for bit in range(_bits(length)):
        found |= (numbers >> bit & 1) << (_bits(length) - 1 - bit)
    return found


def _type(attrs: NoAttributes, x: TensorType) -> TensorType:
    if not x.shape or x.shape[-1] != 1 << _bits(int(x.shape[-1])):
        raise GraphError(f"bit_reverse: expected a last axis of 1, 2, 4, … elements, actual {x}")
    return x


def _again(o: Namespace, node: Primal[NoAttributes], x: Tensor) -> Sequence[Tensor]:
    return (bit_reverse(x),)


BIT_REVERSE = Op(
    "bit_reverse",
    "The elements of the last axis, in the order of their numbers with reversed bits.",
    infer=_type,
    reference=lambda attrs, x: x[..., _order(x.shape[-1])],
    vjp=_again,
    jvp=_again,
    linear=True,
    dtypes=FLOATS,
    cases=(Case(((8,),)), Case(((2, 1),)), Case(((3, 64),))),
    role="routine",
    batch=last_axes,
)


def bit_reverse(x: Tensor) -> Tensor:
    return graph_of((x,)).add(BIT_REVERSE, (x,)).outputs[0]


# 2. The kernel, a value. Its reference is the op's.


@frozen
class BitReversal:
    """Rows of 2**bits elements, each in the order of reversed bits. Arguments: the operand, the result."""

    dtype: np.dtype
    rows: int
    bits: int
    results: tuple[int, ...] = (0,)
    call: Any = None
    terms: int = 1
    is_repeatable: bool = True

    @property
    def args(self) -> tuple[np.dtype, ...]:
        return (self.dtype, self.dtype)

    @property
    def flops(self) -> int:
        return 0

    @property
    def text(self) -> str:
        return f"bit reversal {self.dtype.name} {self.rows}x{1 << self.bits}"


def kernel_of(node: Node, wanted: Sequence[bool]) -> BitReversal:
    *rows, length = sizes(node.inputs[0].shape)
    return BitReversal(node.inputs[0].dtype, int(np.prod(rows, dtype=int)), _bits(length))


# 3. How it is run, and the code.


@frozen
class BitReversalPlan:
    text: str = "loops rows, places; the places of the operand by bitreverse"


def plan(kernel: BitReversal, target: Target) -> PlannedKernel[BitReversal, BitReversalPlan]:
    return PlannedKernel(kernel, BitReversalPlan())


def emit(module: IRModule, planned: PlannedKernel[BitReversal, BitReversalPlan], name: str) -> None:
    kernel, element = planned.kernel, memory_type(planned.kernel.dtype)
    f = module.function(name, ["ptr"] * 3)
    source, result, _ = f.params
    with f.loop(0, kernel.rows) as row, f.loop(0, 1 << kernel.bits) as place:
        turned = f.intrinsic("llvm.bitreverse.i64", "i64", f.index(place.index)) if kernel.bits else integer(0)
        read = f.binary("lshr", turned, integer(64 - kernel.bits)) if kernel.bits else turned
        start = f.mul(row.index, 1 << kernel.bits)
        loaded = f.load(element, f.offset(source, f.add(start, read), element))
        f.store(loaded, f.offset(result, f.add(start, place.index), element))
    f.finish()


@pytest.fixture
def fifth(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The four entries."""
    monkeypatch.setitem(routines.LONE, "bit_reverse", kernel_of)
    monkeypatch.setitem(reference.REFERENCES, BitReversal, reference.run_lone)
    monkeypatch.setitem(families.FAMILIES, BitReversal, lambda: Family(plan, once(emit)))
    register(BIT_REVERSE)
    yield
    del OPS["bit_reverse"]


@pytest.mark.usefixtures("fifth")
@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("length", [1, 2, 64])
def test_a_fifth_family_runs_beside_the_others(length: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_VERIFY", "2")
    x, w = sg.placeholder((3, length), name="x"), sg.Variable(np.full(length, 2.0, np.float32))
    y = bit_reverse(x.T.T * w) + 1.0
    (slope,) = sg.gradients(sg.sum(y**2) / 2, [x])
    array = np.random.default_rng(0).normal(size=(3, length)).astype(np.float32)
    step = sg.Session().compile([y, slope], x)
    found, derived = step(array)
    np.testing.assert_allclose(found, array[:, _order(length)] * 2 + 1, rtol=1e-6)
    np.testing.assert_allclose(derived, (4 * array + 2), rtol=1e-5)
    assert f"bit reversal float32 3x{length}\n    plan: loops rows, places" in step.text("kernels")
    assert "bit_reverse" in [kernel.name for kernel in step.cost.kernels]


# -- a pass: a product of exponentials needs one exponential -----------------------------------------------------------


def exponents(region: Region) -> Region:
    """Rewrite exp(a)·exp(b) as exp(a + b)."""

    def visit(node: Node, inputs: tuple[Tensor, ...]) -> Sequence[Tensor] | None:
        if node.op.name != "multiply" or any(x.op.op.name != "exp" for x in inputs):
            return None
        a, b = (x.op.inputs[0] for x in inputs)
        return (sg.exp(a + b),)

    return rebuild(region, visit)


@pytest.fixture
def with_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry."""
    at = [step.name for step in PASSES].index("simplify")
    monkeypatch.setattr(passes, "PASSES", (*PASSES[:at], Pass("exponents", exponents), *PASSES[at:]))


@pytest.mark.usefixtures("with_exponents")
@pytest.mark.parametrize("disabled", ["", "exponents"])
def test_a_pass_is_run_between_the_others_verified_and_can_be_left_out(
    disabled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for switch, value in (("DISABLE", disabled), ("VERIFY", "2"), ("PRINT_AFTER", "exponents")):
        monkeypatch.setenv(f"STATICGRAD_{switch}", value)
    a, b = (sg.placeholder((3,), name=name) for name in "ab")
    step = sg.Session().compile(sg.exp(a) * sg.exp(b), [a, b])
    found = step(np.float32([0, 1, -2]), np.float32([1, 1, 2]))
    np.testing.assert_allclose(found, np.exp([1, 2, 0]), rtol=1e-6)
    assert step.text("kernels").count("exp(v") == (2 if disabled else 1)
    assert ("exponents" in capsys.readouterr().err) == (not disabled)
