"""The kernels that multiply matrices: contraction and convolution, with an elementwise epilogue.

    Contraction ::= C[b, m, n] = Σ_k A[b, m, k]·B[b, k, n]
    Convolution ::= forward | input_grad | weight_grad of a two-dimensional convolution (cross-correlation)

Every operand is described by element strides, so transposes and layouts are absorbed here; sizes are constants, or
extents of a program for ranges of sizes.
An epilogue is a ranged nest over the result's indices, called for each finished part of the result while it is in
cache; every element belongs to exactly one call. Its argument 0 is the raw result: at C's strides where that is
stored, else at the strides of the emitter's ``raw_strides``, which depend on everything but the epilogue itself. The
others are arguments of the kernel.

Emitters pack one operand into the order in which tiles read it. Where that operand stays the same from call to call, a
``Packing`` does it beforehand, and the kernel is given what that made: ``packed`` is the operand's number.

``precision`` says what a plan may give up for speed: nothing that is seen beside the rounding of its terms' sums
(``highest``), a few digits of a float32 result (``high``), all digits of float32 operands that bfloat16 lacks
(``medium``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import Precision
from staticgrad.compiler.kernels.nest import Instr, Load, Nest
from staticgrad.ops.grouped import GROUPINGS

Direction = Literal["forward", "input_grad", "weight_grad"]


@frozen
class Blocking:
    """The free choices of how a product C = A·B is cut: whether Cᵀ is computed; the rows and vectors of a tile; whether
    a last panel that lacks one vector is ``folded`` into the function of the others; whether B is packed. No choice
    changes the order in which an element's terms are added."""

    swapped: bool
    rows: int
    vectors: int
    folded: bool
    packed: bool


@frozen
class Contraction:
    """C = A·B for each point of ``batch``. Arguments of the kernel: A, B, C, then the epilogue's from number 1 on.

    With an epilogue, its outer dimensions are ``(*batch, m, n)``. ``store_raw`` says that C is a real argument that
    receives the raw product (the epilogue then reads it there); without it C is not passed and the raw product lives
    in scratch memory until the epilogue has read it. ``blocking`` takes the place of the one that estimates prefer.

    With a ``grouping`` (``ops/grouped.py``) an element of A or B is a group of short numbers, all sizes and strides
    count groups, and ``dtype`` is that of the sums.
    """

    dtype: np.dtype
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a_strides: tuple[int, ...]  # (*batch, m, k)
    b_strides: tuple[int, ...]  # (*batch, k, n)
    c_strides: tuple[int, ...]  # (*batch, m, n)
    epilogue: Nest | None = None
    store_raw: bool = True
    packed: int | None = None
    blocking: Blocking | None = None
    precision: Precision = "highest"
    grouping: str = ""

    @property
    def product(self) -> Contraction:
        """The product alone, under which a blocking is chosen for it."""
        return replace(self, epilogue=None, packed=None, blocking=None)

    @property
    def args(self) -> tuple[np.dtype, ...]:
        """The dtypes of A, B, C if it is stored, and what else the epilogue takes."""
        operands = (np.dtype(np.int32),) * 2 if self.grouping else ()
        return (*operands, *_args(self)[len(operands) :])

    @property
    def terms(self) -> int:
        return self.k * self.terms_of_group

    @property
    def terms_of_group(self) -> int:
        """The terms that two elements of A and B have."""
        return GROUPINGS[self.grouping].terms if self.grouping else 1

    @property
    def is_repeatable(self) -> bool:
        return True

    @property
    def is_empty(self) -> bool:
        """The result has no elements."""
        return 0 in (self.m, self.n, *self.batch)

    @property
    def family(self) -> str:
        return "contraction"

    @property
    def flops(self) -> int:
        """Multiplications and additions, without the epilogue's."""
        return 2 * math.prod(self.batch) * self.m * self.n * self.terms

    @property
    def text(self) -> str:
        """Sizes and strides, then the epilogue."""
        product = (
            f"contraction {self.dtype.name}{f' of {self.grouping} in groups' if self.grouping else ''}"
            f" batch {self.batch} {self.m}x{self.k} · {self.k}x{self.n},"
            f" strides {self.a_strides} {self.b_strides} -> {self.c_strides}{_precision(self)}"
        )
        return product + _epilogue(self.epilogue, self.store_raw)


@frozen
class Convolution:
    """y[n, o, p, q] = Σ x[n, c, p·stride + i·dilation − pad, …]·w[o, c, i, j], or one of its two transposes.

    ``direction``: ``forward`` reads x, w and writes y; ``input_grad`` reads y, w and writes x; ``weight_grad`` reads
    x, y and writes w. Arguments of the kernel in that order, then the epilogue's from number 1 on; the epilogue's
    outer dimensions are the result's indices in the order given here (n, o, p, q / n, c, h, w / o, c, i, j).
    """

    direction: Direction
    dtype: np.dtype
    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple[int, int]
    out_height: int
    out_width: int
    stride: tuple[int, int]
    padding: tuple[int, int]  # before each axis; what is read past the end is zero too
    dilation: tuple[int, int]
    groups: int
    x_strides: tuple[int, int, int, int]  # n, c, h, w
    w_strides: tuple[int, int, int, int]  # o, c, i, j
    y_strides: tuple[int, int, int, int]  # n, o, p, q
    epilogue: Nest | None = None
    store_raw: bool = True
    packed: int | None = None
    precision: Precision = "highest"

    @property
    def of_group(self) -> tuple[int, int]:
        """The channels and the filters of one group."""
        return self.channels // self.groups, self.filters // self.groups

    @property
    def result_sizes(self) -> tuple[int, int, int, int]:
        """The sizes of the result's four indices."""
        if self.direction == "forward":
            return self.batch, self.filters, self.out_height, self.out_width
        if self.direction == "input_grad":
            return self.batch, self.channels, self.height, self.width
        return self.filters, self.channels // self.groups, *self.kernel

    @property
    def result_strides(self) -> tuple[int, int, int, int]:
        """The strides of the result's four indices, where it is stored."""
        return {"forward": self.y_strides, "input_grad": self.x_strides, "weight_grad": self.w_strides}[self.direction]

    @property
    def args(self) -> tuple[np.dtype, ...]:
        """The dtypes of both operands, the result if it is stored, and what else the epilogue takes."""
        return _args(self)

    @property
    def terms(self) -> int:
        """Pixels of all images for a weight, taps and channels for a pixel."""
        if self.direction == "weight_grad":
            return self.batch * self.out_height * self.out_width
        return math.prod(self.kernel) * max(self.channels, self.filters) // self.groups

    @property
    def is_repeatable(self) -> bool:
        return True

    @property
    def is_empty(self) -> bool:
        """The result has no elements."""
        return 0 in self.result_sizes

    @property
    def family(self) -> str:
        return "convolution"

    @property
    def flops(self) -> int:
        """Multiplications and additions, without the epilogue's, those of padding too."""
        taps = self.kernel[0] * self.kernel[1] * self.channels // self.groups
        return 2 * self.batch * self.filters * self.out_height * self.out_width * taps

    @property
    def text(self) -> str:
        """Sizes, then the epilogue."""
        product = (
            f"convolution {self.direction} {self.dtype.name} x({self.batch}, {self.channels}, {self.height},"
            f" {self.width}) w{self.kernel} y({self.batch}, {self.filters}, {self.out_height},"
            f" {self.out_width}) stride {self.stride} padding {self.padding} groups {self.groups}{_precision(self)}"
        )
        return product + _epilogue(self.epilogue, self.store_raw)


@frozen
class Packing:
    """One operand of a kernel, brought into the order in which the kernel's emitter reads it. Arguments: the operand,
    the packed operand. ``of`` is that kernel, without its epilogue."""

    of: Contraction | Convolution

    @property
    def dtype(self) -> np.dtype:
        return self.of.args[0]

    @property
    def args(self) -> tuple[np.dtype, ...]:
        return (self.dtype, self.dtype)

    @property
    def terms(self) -> int:
        return 1

    @property
    def is_repeatable(self) -> bool:
        """False: what is packed is kept, not made again."""
        return False

    @property
    def text(self) -> str:
        return f"pack for {self.of.text}"


def with_raw_strides(epilogue: Nest, before: tuple[int, ...], after: tuple[int, ...]) -> Nest:
    """An epilogue of a raw result that is not stored, which had the strides ``before``, as one that has ``after``."""
    if before == after:
        return epilogue

    def moved(instr: Instr) -> Instr:
        if not isinstance(instr, Load) or instr.access.arg != 0:
            return instr
        strides = instr.access.strides
        assert all(a == b or size == 1 for a, b, size in zip(strides, before, epilogue.outer, strict=False))
        return replace(instr, access=replace(instr.access, strides=(*after, *strides[len(before) :])))

    return replace(epilogue, body=tuple(map(moved, epilogue.body)))


def _args(kernel: Contraction | Convolution) -> tuple[np.dtype, ...]:
    behind = () if kernel.epilogue is None else kernel.epilogue.args[1:]
    return (*(kernel.dtype,) * (2 + kernel.store_raw), *behind)


def _precision(kernel: Contraction | Convolution) -> str:
    return "" if kernel.precision == "highest" else f" precision {kernel.precision}"


def _epilogue(nest: Nest | None, store_raw: bool) -> str:
    if nest is None:
        return ""
    return "\nepilogue" + ("" if store_raw else " (the product itself is not stored)") + f"\n{nest.text}"
