"""The nest: one loop nest with a straight-line body. Pointwise, reduce, row, gather, scatter, window, transpose and
random kernels are all nests; what tells them apart is their dimensions and their accesses.

    Nest    ::= outer dims × inner dims, arguments, body
    body    ::= Instr*                          SSA: an instruction's number is its place in the body
    Instr   ::= Constant | Iota | Load | Compute | Reduce | Running | Store
    Access  ::= argument + offset + Σ stride·index + Σ stride·value

Dimensions are numbered outer first, then inner. A value is a *row* value if it does not vary along the inner
dimensions (it is computed once for each outer point), else an *element* value. ``Reduce`` takes an element value
over all inner dimensions and gives a row value. What follows from a reduction and is an element value belongs to a
later sweep over the inner dimensions: softmax is one nest of three sweeps. Without inner dimensions every value is a
row value and the nest is pointwise.

``Running`` combines an element with those at earlier indices of dimension 0: a nest that has one is *ordered*, and runs
along that dimension from its first index to its last.

Any other order of the iterations is the emitter's to choose, except that stores with ``mode="add"`` to equal addresses
must all count. No two iterations store to one address otherwise. An argument may be both loaded and stored (an update
in place): then each address is loaded and stored by the same iteration, the load first.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.base.frozen import frozen

INT64 = np.dtype(np.int64)
ReduceKind = Literal["sum", "prod", "max", "min", "any", "all"]  # the names of the reductions among the ops


@frozen
class Access:
    """An element of argument ``arg``: ``offset + Σ strides[d]·index[d] + Σ stride·value`` elements from its start."""

    arg: int
    offset: int
    strides: tuple[int, ...]  # one for each dimension of the nest
    terms: tuple[tuple[int, int], ...] = ()  # (number of an int64 value, stride): indirect access


@frozen(eq=False)
class Constant:
    """A number, the same everywhere, or the number of an extent; 0.0 and -0.0 are two."""

    value: float | int | bool
    dtype: np.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.value, self.dtype, is_open(self.value) or math.copysign(1, self.value)


@frozen
class Iota:
    """The index along one dimension of the nest, as int64 (only emitters may have it as int32, where it fits)."""

    dim: int
    dtype: np.dtype = INT64


@frozen
class Load:
    """Read memory. With ``guard`` (the number of a bool value) memory is read only where it holds, else 0."""

    access: Access
    dtype: np.dtype
    guard: int | None = None


@frozen
class Compute:
    """One elementwise op of the op table, applied to earlier values."""

    op: str
    attrs: Any
    args: tuple[int, ...]
    dtype: np.dtype


@frozen
class Reduce:
    """Combine an element value over all inner dimensions. max and min give NaN if any element is NaN."""

    kind: ReduceKind
    arg: int
    dtype: np.dtype


@frozen
class Running:
    """The combination of ``arg`` at all indices of dimension 0, an outer one, up to the own index."""

    kind: ReduceKind
    arg: int
    dtype: np.dtype


@frozen
class Store:
    """Write a value (or add it to what is there). With ``guard`` only where that bool value holds."""

    access: Access
    value: int
    mode: Literal["set", "add"] = "set"
    guard: int | None = None


Instr = Constant | Iota | Load | Compute | Reduce | Running | Store


@frozen
class Nest:
    """A kernel: see the grammar in the module's docstring. ``args`` are the dtypes of its pointer arguments."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    args: tuple[np.dtype, ...]
    body: tuple[Instr, ...]

    @property
    def dims(self) -> tuple[int, ...]:
        return self.outer + self.inner

    @property
    def is_ordered(self) -> bool:
        """True if dimension 0 is run from its first index to its last."""
        return any(isinstance(instr, Running) for instr in self.body)

    @property
    def terms(self) -> int:
        """The number of elements that one sum takes in."""
        return math.prod(self.inner)

    @property
    def is_repeatable(self) -> bool:
        """A nest reads its operands once."""
        return True

    @property
    def text(self) -> str:
        """The loops, then the instructions by number."""
        lines = [f"for {self.outer} × {self.inner}"]
        return "\n".join([*lines, *(f"  v{number} = {_instruction(instr)}" for number, instr in enumerate(self.body))])


def _instruction(instr: Instr) -> str:
    match instr:
        case Constant():
            return f"constant {instr.value} : {instr.dtype.name}"
        case Iota():
            return f"index of dim {instr.dim}"
        case Load():
            return f"load {_access(instr.access)}{_guard(instr.guard)} : {instr.dtype.name}"
        case Compute():
            return f"{instr.op}({', '.join(f'v{a}' for a in instr.args)}) : {instr.dtype.name}"
        case Reduce():
            return f"reduce {instr.kind} v{instr.arg} : {instr.dtype.name}"
        case Running():
            return f"running {instr.kind} v{instr.arg} : {instr.dtype.name}"
        case Store():
            verb = "add" if instr.mode == "add" else "store"
            return f"{verb} v{instr.value} to {_access(instr.access)}{_guard(instr.guard)}"


def _access(access: Access) -> str:
    terms = "".join(f" + v{value}*{stride}" for value, stride in access.terms)
    return f"arg{access.arg}[{access.offset} + {access.strides}{terms}]"


def _guard(guard: int | None) -> str:
    return "" if guard is None else f" where v{guard}"


def accumulator_dtype(kind: ReduceKind, dtype: np.dtype) -> np.dtype:
    """The dtype in which a reduction to ``dtype`` runs."""
    return np.dtype(np.bool_) if kind in ("any", "all") else dtype


def identity(kind: ReduceKind, dtype: np.dtype) -> float | int | bool:
    """The value of a reduction over nothing; for max and min the smallest and largest of the dtype."""
    if kind in ("sum", "any"):
        return 0
    if kind in ("prod", "all"):
        return 1
    largest = kind == "min"
    if dtype.kind == "f":
        return float("inf") if largest else float("-inf")
    if dtype.kind == "b":
        return largest
    info = np.iinfo(dtype)
    return int(info.max if largest else info.min)
