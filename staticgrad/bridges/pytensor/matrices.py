"""PyTensor's products, factorisations and solves, and ``Blockwise``, which applies an op to each of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast, promoted, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, converts, key_of, of_tensors, require_static
from staticgrad.compiler.autodiff.batching import vmap
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Batched = Callable[..., Any]


def floating(node: Any, operands: list[Tensor]) -> list[Tensor]:
    """Operands in the dtype of the first result, where this is floating."""
    dtype = node.outputs[0].type.dtype
    return [cast(x, dtype) for x in operands] if dtype.startswith("float") else operands


# -- products ----------------------------------------------------------------------------------------------------------


def _product(op: Any, x: Tensor, y: Tensor) -> Tensor:
    """A matrix product; bools are joined by or, as NumPy does."""
    x, y = promoted(x, y)
    if x.dtype == bool:
        return o.not_equal(o.matmul(cast(x, np.int64), cast(y, np.int64)), 0)
    return o.matmul(x, y)


def _batched_product(op: Any, x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] != y.shape[0]:
        raise TypeError(f"BatchedDot: expected batches of one size, actual {x.shape[0]} and {y.shape[0]}")
    return _product(op, x, y)


@converts("Gemv", "Gemm")
def gemm(at: Translation, node: Any) -> Tensor:
    """BLAS does not read what it multiplies by 0, which may be no number."""
    old, alpha, x, y, beta = at.tensors(node.inputs)
    factor, new = node.inputs[4], alpha * o.matmul(x, y)
    is_zero = at.is_known(factor) and not np.any(at.value(factor))
    return o.broadcast_to(new, old.shape) if is_zero else new + beta * old


of_tensors({
    "Dot22Scalar": lambda op, x, y, scale: o.matmul(x, y) * scale,
    "Ger": lambda op, matrix, alpha, x, y: matrix + alpha * o.expand_dims(x, 1) * o.expand_dims(y, 0),
})  # fmt: skip


# -- factorisations and solves -----------------------------------------------------------------------------------------


def one_triangle(x: Tensor, lower: bool) -> Tensor:
    """The symmetric matrix of the triangle that counts."""
    if lower:
        return o.tril(x) + o.matrix_transpose(o.tril(x, k=-1))
    return o.triu(x) + o.matrix_transpose(o.triu(x, k=1))


def _cholesky(op: Any, x: Tensor) -> Tensor:
    """A matrix that is not positive definite has a factor of NaN in all places."""
    factor = o.cholesky(one_triangle(x, op.lower), upper=not op.lower)
    failed = o.any(o.isnan(factor), (-2, -1), keepdims=True)
    return o.where(failed, math.nan, factor)


def _of_columns(solve: Batched) -> Batched:
    """A solve of the op, the matrix and columns, for one vector, too."""

    def solved(op: Any, a: Tensor, b: Tensor) -> Tensor:
        columns = o.expand_dims(b, -1) if op.b_ndim == 1 else b
        if a.shape[-1] != a.shape[-2]:
            raise ValueError("expected square matrix")
        if a.shape[-1] != columns.shape[-2]:
            raise ValueError(f"incompatible dimensions: shapes of a {a.shape} and b {columns.shape}")
        x = solve(op, a, columns)
        return o.squeeze(x, -1) if op.b_ndim == 1 else x

    return solved


def _by_factor(lower: Tensor, b: Tensor) -> Tensor:
    """The solution for the matrix of which this is the Cholesky factor."""
    return o.solve_triangular(o.matrix_transpose(lower), o.solve_triangular(lower, b, upper=False), upper=True)


@_of_columns
def _solve(op: Any, a: Tensor, b: Tensor) -> Tensor:
    if op.assume_a in ("sym", "her", "pos"):  # only one triangle counts
        a = one_triangle(a, op.lower)
    return _by_factor(o.cholesky(a), b) if op.assume_a == "pos" else o.solve(a, b)


def _symmetric(op: Any, x: Tensor, *others: Tensor) -> Tensor:
    if others:
        raise RefusedError("the generalised eigenvalue problem is not converted")
    return one_triangle(x, op.UPLO == "L" if hasattr(op, "UPLO") else op.lower)


def _qr(op: Any, x: Tensor) -> Any:
    if op.pivoting or op.mode not in ("full", "economic", "r"):
        pivots = " with pivots" if op.pivoting else ""
        raise RefusedError(f"a QR decomposition of mode {op.mode!r}{pivots} is not converted")
    q, r = o.qr(x, mode="reduced" if op.mode == "economic" else "complete")
    return r if op.mode == "r" else [q, r]


def _block_diagonal(op: Any, *blocks: Tensor) -> Tensor:
    widths = [int(x.shape[-1]) for x in blocks]
    rows = []
    for number, x in enumerate(blocks):
        sides = (sum(widths[:number]), sum(widths[number + 1 :]))
        rows.append(o.pad(x, [(0, 0)] * (x.ndim - 1) + [sides]))
    return o.concat(rows, axis=-2)


# Functions of a node's op and tensors that do on the last axes of each what the op does.
BATCHED: dict[str, Batched] = {
    **dict.fromkeys(("Dot", "Dot22", "MatMul"), _product),
    "BatchedDot": _batched_product,
    "BlockDiagonal": _block_diagonal,
    "Cholesky": _cholesky,
    "CholeskySolve": _of_columns(lambda op, c, b: _by_factor(c if op.lower else o.matrix_transpose(c), b)),
    "Det": lambda op, x: o.det(x),
    "Eigh": lambda op, *xs: list(o.eigh(_symmetric(op, *xs))),
    "Eigvalsh": lambda op, *xs: o.eigvalsh(_symmetric(op, *xs)),
    "MatrixInverse": lambda op, x: o.inv(x),
    "MatrixPinv": lambda op, x: o.pinv(x, rtol=1e-15),
    "QR": _qr,
    "SLogDet": lambda op, x: list(o.slogdet(x)),
    "SVD": lambda op, x: list(o.svd(x, full_matrices=op.full_matrices)) if op.compute_uv else o.svdvals(x),
    "Solve": _solve,
    "SolveTriangular": _of_columns(
        lambda op, a, b: o.solve_triangular(a, b, upper=not op.lower, unitriangular=op.unit_diagonal)
    ),
}


@converts(*BATCHED)
def on_last_axes(at: Translation, node: Any) -> Any:
    return BATCHED[key_of(node.op, BATCHED)](node.op, *floating(node, at.tensors(node.inputs)))


@converts("Convolve1d")
def convolve(at: Translation, node: Any) -> Tensor:
    x, kernel = floating(node, at.tensors(node.inputs[:2]))
    if x.dtype.kind != "f":
        raise RefusedError("a convolution of integers is not converted")
    full = bool(at.known(node.inputs[2], "the size of the result"))
    if not full and kernel.shape[0] > x.shape[0]:
        x, kernel = kernel, x
    side = kernel.shape[0] - 1 if full else 0
    batch = [o.reshape(v, (1, 1, -1)) for v in (x, o.flip(kernel))]
    return o.reshape(o.conv1d(*batch, padding=side), (-1,))


# -- batches -----------------------------------------------------------------------------------------------------------


@converts("Blockwise")
def blockwise(at: Translation, node: Any) -> list[Any]:
    """Ops that work on the last axes here, too, get the batch; others are declared for one example."""
    op = node.op
    core = op.core_op
    operands = [at.value(v) for v in node.inputs]
    ranks = [x.ndim - len(signature) for x, signature in zip(operands, op.inputs_sig, strict=True)]
    shapes = [x.shape[:rank] for x, rank in zip(operands, ranks)]
    batch = np.broadcast_shapes(*shapes)
    for variable, shape in zip(node.inputs, shapes):
        require_static(node, variable, shape, batch)
    name = key_of(core, BATCHED)
    if name and not (name == "Dot" and any(len(signature) < 2 for signature in op.inputs_sig)):
        tensors = floating(node, at.tensors(node.inputs))
        found = BATCHED[name](core, *(spread(x, (*batch, *x.shape[rank:])) for x, rank in zip(tensors, ranks)))
        return found if isinstance(found, list) else [found]
    return _one_by_one(at, node, batch, ranks)


def _one_by_one(at: Translation, node: Any, batch: tuple[int, ...], ranks: list[int]) -> list[Any]:
    one = node.op._create_dummy_core_node(node.inputs)
    count = math.prod(batch)
    same: dict[int, Any] = {}  # the operands that are known and the same for all examples, by their number
    examples: list[Tensor] = []
    for number, (variable, rank) in enumerate(zip(node.inputs, ranks)):
        value = at.value(variable)
        core = value.shape[rank:]
        if not isinstance(value, Tensor) and math.prod(value.shape[:rank]) == 1:
            same[number] = np.reshape(value, core)
        else:
            examples.append(o.reshape(o.broadcast_to(at.tensor(variable), (*batch, *core)), (count, *core)))

    def example(*xs: Tensor) -> list[Tensor]:
        rest = iter(xs)
        inner = at.inner(one.inputs, [same[n] if n in same else next(rest) for n in range(len(ranks))])
        inner.declare_node(one)
        return inner.tensors(one.outputs)

    results = vmap(example)(*examples) if examples else [o.expand_dims(x, 0) for x in example()]
    return [o.reshape(o.broadcast_to(x, (count, *x.shape[1:])), (*batch, *x.shape[1:])) for x in results]
