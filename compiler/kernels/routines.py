"""Routines: kernels that are no nest and no product, as each element depends on others: scans, sorts, factorisations.

    Batch   ::= count × Routine                   the routine on each of ``count`` pieces that lie one after the other
    Routine ::= Cumulation | …                    constants all: sizes, dtype, variant
    piece   ::= for each operand a block of ``Operands`` elements, row-major

The number of pieces may be open, and so may lengths and widths of cumulations, sorts, Cholesky factors, triangular
systems and eliminations. Other matrices have sizes that are known, as the ops ask for when they are declared.

Operands and results are plain row-major memory: ``materialize`` copies what is not. Arguments of the kernel: the
operands in the order of the op, then its results. Planning is ``plans.routines``, emitting ``emit.routines``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from operator import index
from typing import Any, Literal, Protocol

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.base.types import int64, sizes
from staticgrad.compiler.kernels.kernel import LoneKernel
from staticgrad.graph.graph import Node
from staticgrad.graph.optable import Array

Cumulated = Literal["sum", "prod", "max", "min", "recurrence"]


@frozen
class Block:
    """The shape of one operand or result of one piece: a number of elements of a dtype."""

    dtype: np.dtype
    elements: int

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize


class Routine(Protocol):
    """The interface of the routine that a batch runs."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The operands and results of one piece, in the order of the kernel's arguments."""
        ...

    @property
    def flops(self) -> int:
        """Operations on one piece, about."""
        ...

    @property
    def text(self) -> str: ...


@frozen
class Cumulation:
    """Running sums, products, extremes, or s[k] = a[k]·s[k−1] + b[k], over the first axis of (length, width) blocks.

    With ``reverse`` from the last element to the first. Operands: x, or a and b; result: of the same block.
    """

    kind: Cumulated
    dtype: np.dtype
    length: int
    width: int
    reverse: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (Block(self.dtype, self.length * self.width),) * (3 if self.kind == "recurrence" else 2)

    @property
    def flops(self) -> int:
        return self.length * self.width * (2 if self.kind == "recurrence" else 1)

    @property
    def text(self) -> str:
        return (
            f"cumulative {self.kind} {self.dtype.name} over {self.length} × {self.width}" + " reversed" * self.reverse
        )


@frozen
class Sort:
    """A stable sort of a row; NaN is the largest. Operand: x; results: the values, the int64 indices, as wanted."""

    dtype: np.dtype
    length: int
    descending: bool
    values: bool
    indices: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        values = (Block(self.dtype, self.length),) * (1 + self.values)
        return (*values, Block(int64, self.length)) if self.indices else values

    @property
    def flops(self) -> int:
        return 8 * self.length * max(1, self.dtype.itemsize)

    @property
    def text(self) -> str:
        what = " and ".join(["values"] * self.values + ["indices"] * self.indices)
        return f"sort {self.length} {self.dtype.name}{' descending' if self.descending else ''} to {what}"


@frozen
class Cholesky:
    """The upper U with Uᵀ·U = A, of which the upper triangle is read. Operand: A; result: U, zero below."""

    dtype: np.dtype
    size: int

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (Block(self.dtype, self.size * self.size),) * 2

    @property
    def flops(self) -> int:
        return self.size * self.size * self.size // 3 + self.size * self.size

    @property
    def text(self) -> str:
        return f"cholesky {self.dtype.name} {self.size}x{self.size}"


@frozen
class TriangularSolve:
    """T·X = B, or Tᵀ·X = B. One triangle of T is read, without its diagonal where that is ``unit``.

    Operands: T (size, size), B (size, width); result: X.
    """

    dtype: np.dtype
    size: int
    width: int
    lower: bool  # which triangle of T is read
    transposed: bool
    unit: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        right = Block(self.dtype, self.size * self.width)
        return Block(self.dtype, self.size * self.size), right, right

    @property
    def flops(self) -> int:
        return self.size * self.size * self.width

    @property
    def text(self) -> str:
        which = f"{'unit ' * self.unit}{'lower' if self.lower else 'upper'}{' transposed' * self.transposed}"
        return f"triangular solve {self.dtype.name} {which} {self.size}x{self.size}, {self.width} columns"


@frozen
class Elimination:
    """P·A = L·U by partial pivoting. Operand: A.

    Results: L below the diagonal (ones on it) and U in one matrix; int64 which row of A each row of it was; ±1 by how
    often rows were exchanged.
    """

    dtype: np.dtype
    size: int

    @property
    def blocks(self) -> tuple[Block, ...]:
        matrix = Block(self.dtype, self.size * self.size)
        return matrix, matrix, Block(int64, self.size), Block(self.dtype, 1)

    @property
    def flops(self) -> int:
        return 2 * self.size * self.size * self.size // 3 + self.size * self.size

    @property
    def text(self) -> str:
        return f"elimination {self.dtype.name} {self.size}x{self.size}"


@frozen
class Householder:
    """A = Q·R for A (rows, columns) with rows ≥ columns. Operand: Aᵀ.

    Results: the first ``full`` columns of Q as rows, unless ``full`` is None; Rᵀ, zero above its diagonal.
    """

    dtype: np.dtype
    rows: int
    columns: int
    full: int | None

    @property
    def blocks(self) -> tuple[Block, ...]:
        q = () if self.full is None else (Block(self.dtype, self.full * self.rows),)
        return Block(self.dtype, self.rows * self.columns), *q, Block(self.dtype, self.columns * self.columns)

    @property
    def flops(self) -> int:
        return (2 * self.columns + 4 * (self.full or 0)) * self.columns * self.rows

    @property
    def text(self) -> str:
        q = "no Q" if self.full is None else f"{self.full} columns of Q"
        return f"householder {self.dtype.name} {self.rows}x{self.columns}, {q}"


@frozen
class Symmetric:
    """Eigenvalues of a symmetric matrix in ascending order. Operand: A; results: them, and the vectors as rows."""

    dtype: np.dtype
    size: int
    vectors: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        matrix = Block(self.dtype, self.size * self.size)
        return (matrix, Block(self.dtype, self.size), *(matrix,) * self.vectors)

    @property
    def flops(self) -> int:
        return (12 if self.vectors else 3) * self.size * self.size * self.size

    @property
    def text(self) -> str:
        return f"eigenvalues {'and vectors ' * self.vectors}{self.dtype.name} {self.size}x{self.size}"


@frozen
class Singular:
    """Singular values of A (rows, columns), rows ≥ columns, in descending order. Operand: Aᵀ.

    Results: with ``vectors`` the left ones as rows; the values; with ``vectors`` the right ones as rows.
    """

    dtype: np.dtype
    rows: int
    columns: int
    vectors: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        matrix, values = Block(self.dtype, self.rows * self.columns), Block(self.dtype, self.columns)
        return (
            (matrix, matrix, values, Block(self.dtype, self.columns * self.columns))
            if self.vectors
            else (matrix, values)
        )

    @property
    def flops(self) -> int:
        return (60 if self.vectors else 40) * self.columns * self.columns * self.rows

    @property
    def text(self) -> str:
        return f"singular values {'and vectors ' * self.vectors}{self.dtype.name} {self.rows}x{self.columns}"


@frozen
class Batch:
    """The kernel: a routine on ``count`` pieces; a ``LoneKernel``."""

    routine: Routine
    count: int
    results: tuple[int, ...] = (0,)
    call: Callable[[Sequence[Array]], Sequence[Array]] | None = field(default=None, compare=False)

    @property
    def args(self) -> tuple[np.dtype, ...]:
        return tuple(block.dtype for block in self.routine.blocks)

    @property
    def terms(self) -> int:
        """Routines are compared with what they are defined by as a whole, not term by term."""
        return 1

    @property
    def is_repeatable(self) -> bool:
        """Most take longer than what they read."""
        return False

    @property
    def flops(self) -> int:
        return self.count * self.routine.flops

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to write."""
        return self.count == 0 or not any(block.elements for block in self.routine.blocks)

    @property
    def text(self) -> str:
        return f"{self.count} × {self.routine.text}"


def _cumulation(kind: Cumulated, node: Node, wanted: Sequence[bool]) -> Batch:
    x, attrs = node.inputs[-1], node.attrs
    shape = sizes(x.shape)
    width = math.prod(shape[attrs.axis + 1 :])
    routine = Cumulation(kind, x.dtype, shape[attrs.axis], width, attrs.reverse)
    return Batch(routine, math.prod(shape[: attrs.axis]))


def _sort(node: Node, wanted: Sequence[bool]) -> Batch:
    x = node.inputs[0]
    *rows, length = sizes(x.shape)
    values, indices = wanted
    results = tuple(i for i, wants in enumerate(wanted) if wants)
    return Batch(Sort(x.dtype, length, node.attrs.descending, values, indices), math.prod(rows), results)


def _cholesky(node: Node, wanted: Sequence[bool]) -> Batch:
    *batch, size, _ = sizes(node.inputs[0].shape)
    return Batch(Cholesky(node.inputs[0].dtype, size), math.prod(batch))


def _triangular_solve(node: Node, wanted: Sequence[bool]) -> Batch:
    *batch, size, width = sizes(node.inputs[1].shape)
    attrs = node.attrs
    routine = TriangularSolve(node.inputs[0].dtype, size, width, attrs.lower, attrs.transposed, attrs.unit)
    return Batch(routine, math.prod(batch))


def _elimination(node: Node, wanted: Sequence[bool]) -> Batch:
    *batch, size, _ = sizes(node.inputs[0].shape)
    return Batch(Elimination(node.inputs[0].dtype, size), math.prod(batch), (0, 1, 2))


def _of_known_matrix(node: Node) -> tuple[int, ...]:
    """The sizes of a batch of matrices; a matrix of an open size is refused."""
    *batch, rows, columns = sizes(node.inputs[0].shape)
    return (*batch, index(rows), index(columns))


def _householder(node: Node, wanted: Sequence[bool]) -> Batch:
    *batch, columns, rows = _of_known_matrix(node)
    full = node.attrs.columns if wanted[0] else None
    results = (0, 1) if wanted[0] else (1,)
    return Batch(Householder(node.inputs[0].dtype, rows, columns, full), math.prod(batch), results)


def _symmetric(node: Node, wanted: Sequence[bool]) -> Batch:
    *batch, size, _ = _of_known_matrix(node)
    results = (0, 1) if wanted[1] else (0,)
    return Batch(Symmetric(node.inputs[0].dtype, size, wanted[1]), math.prod(batch), results)


def _singular(node: Node, wanted: Sequence[bool]) -> Batch:
    *batch, columns, rows = _of_known_matrix(node)
    vectors = wanted[0] or wanted[2]
    results = (0, 1, 2) if vectors else (1,)
    return Batch(Singular(node.inputs[0].dtype, rows, columns, vectors), math.prod(batch), results)


LONE: dict[str, Callable[[Node, Sequence[bool]], LoneKernel]] = {  # by op, which of its results anybody reads
    "cumulative_sum": partial(_cumulation, "sum"),
    "cumulative_prod": partial(_cumulation, "prod"),
    "cumulative_max": partial(_cumulation, "max"),
    "cumulative_min": partial(_cumulation, "min"),
    "linear_recurrence": partial(_cumulation, "recurrence"),
    "sort_rows": _sort,
    "cholesky_factor": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu_factor": _elimination,
    "householder": _householder,
    "symmetric_eigen": _symmetric,
    "jacobi_svd": _singular,
}


def lone_kernel(node: Node, wanted: Sequence[bool]) -> LoneKernel:
    """The kernel of a routine, by the table ``LONE``; it need not write results that are not ``wanted``."""
    shapes = [sizes(x.shape) for x in node.inputs]

    def call(operands: Sequence[Array]) -> Sequence[Array]:
        found = node.op.reference(node.attrs, *(x.reshape(s) for x, s in zip(operands, shapes, strict=True)))
        return found if isinstance(found, tuple | list) else (found,)

    kernel: Any = LONE[node.op.name](node, wanted)
    made: LoneKernel = replace(kernel, call=call)
    return made
