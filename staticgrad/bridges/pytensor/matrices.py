"""PyTensor's products, factorisations and solves, and ``Blockwise``, which applies an op to each of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import cast, promoted, spread
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor.conversion import Translation, converts, key_of, require_static
from staticgrad.compiler.autodiff.batching import vmap
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Batched = Callable[..., Any]
BATCHED: dict[str, Batched] = {}


def on_last_axes(*names: str) -> Callable[[Batched], Batched]:
    """Enter a function of a node's op and tensors that does on the last axes of each what the op does."""

    def enter(function: Batched) -> Batched:
        def convert(at: Translation, node: Any) -> Any:
            return function(node.op, *floating(node, at.tensors(node.inputs)))

        BATCHED.update(dict.fromkeys(names, function))
        converts(*names)(convert)
        return function

    return enter


def floating(node: Any, operands: list[Tensor]) -> list[Tensor]:
    """Operands in the dtype of the first result, where this is floating."""
    dtype = node.outputs[0].type.dtype
    return [cast(x, dtype) for x in operands] if dtype.startswith("float") else operands


# -- products ----------------------------------------------------------------------------------------------------------


@on_last_axes("Dot", "Dot22", "MatMul")
def dot(op: Any, x: Tensor, y: Tensor) -> Tensor:
    return product(*promoted(x, y))


@on_last_axes("BatchedDot")
def batched_dot(op: Any, x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] != y.shape[0]:
        raise TypeError(f"BatchedDot: expected batches of one size, actual {x.shape[0]} and {y.shape[0]}")
    return product(*promoted(x, y))


def product(x: Tensor, y: Tensor) -> Tensor:
    """A matrix product; bools are joined by or, as NumPy does."""
    if x.dtype == bool:
        return o.not_equal(o.matmul(cast(x, np.int64), cast(y, np.int64)), 0)
    return o.matmul(x, y)


@converts("Dot22Scalar")
def dot22_scalar(at: Translation, node: Any) -> Tensor:
    x, y, scale = at.tensors(node.inputs)
    return o.matmul(x, y) * scale


@converts("Gemv")
def gemv(at: Translation, node: Any) -> Tensor:
    y, alpha, matrix, x, beta = at.tensors(node.inputs)
    scaled = alpha * o.matmul(matrix, x)
    return _without_old(at, node.inputs[4], scaled, y, beta)


@converts("Gemm")
def gemm(at: Translation, node: Any) -> Tensor:
    z, alpha, x, y, beta = at.tensors(node.inputs)
    return _without_old(at, node.inputs[4], alpha * o.matmul(x, y), z, beta)


def _without_old(at: Translation, factor: Any, new: Tensor, old: Tensor, beta: Tensor) -> Tensor:
    """BLAS does not read what it multiplies by 0, which may be no number."""
    is_zero = at.is_known(factor) and not np.any(at.value(factor))
    return o.broadcast_to(new, old.shape) if is_zero else new + beta * old


@converts("Ger")
def ger(at: Translation, node: Any) -> Tensor:
    matrix, alpha, x, y = at.tensors(node.inputs)
    return matrix + alpha * o.expand_dims(x, 1) * o.expand_dims(y, 0)


# -- factorisations and solves -----------------------------------------------------------------------------------------


def one_triangle(x: Tensor, lower: bool) -> Tensor:
    """The symmetric matrix of the triangle that counts."""
    if lower:
        return o.tril(x) + o.matrix_transpose(o.tril(x, k=-1))
    return o.triu(x) + o.matrix_transpose(o.triu(x, k=1))


@on_last_axes("Cholesky")
def cholesky(op: Any, x: Tensor) -> Tensor:
    """A matrix that is not positive definite has a factor of NaN in all places."""
    factor = o.cholesky(one_triangle(x, op.lower), upper=not op.lower)
    failed = o.any(o.isnan(factor), (-2, -1), keepdims=True)
    return o.where(failed, math.nan, factor)


def _as_matrix(op: Any, b: Tensor) -> Tensor:
    return o.expand_dims(b, -1) if op.b_ndim == 1 else b


def _as_given(op: Any, x: Tensor) -> Tensor:
    return o.squeeze(x, -1) if op.b_ndim == 1 else x


def _square(a: Tensor, b: Tensor) -> None:
    if a.shape[-1] != a.shape[-2]:
        raise ValueError("expected square matrix")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"incompatible dimensions: shapes of a {a.shape} and b {b.shape}")


@on_last_axes("SolveTriangular")
def solve_triangular(op: Any, a: Tensor, b: Tensor) -> Tensor:
    b = _as_matrix(op, b)
    _square(a, b)
    return _as_given(op, o.solve_triangular(a, b, upper=not op.lower, unitriangular=op.unit_diagonal))


@on_last_axes("CholeskySolve")
def cholesky_solve(op: Any, factor: Tensor, b: Tensor) -> Tensor:
    b = _as_matrix(op, b)
    _square(factor, b)
    lower = factor if op.lower else o.matrix_transpose(factor)
    half = o.solve_triangular(lower, b, upper=False)
    return _as_given(op, o.solve_triangular(o.matrix_transpose(lower), half, upper=True))


@on_last_axes("Solve")
def solve(op: Any, a: Tensor, b: Tensor) -> Tensor:
    b = _as_matrix(op, b)
    _square(a, b)
    if op.assume_a in ("sym", "her", "pos"):  # only one triangle counts
        a = one_triangle(a, op.lower)
    if op.assume_a == "pos":
        lower = o.cholesky(a)
        half = o.solve_triangular(lower, b, upper=False)
        return _as_given(op, o.solve_triangular(o.matrix_transpose(lower), half, upper=True))
    return _as_given(op, o.solve(a, b))


@on_last_axes("MatrixInverse")
def inverse(op: Any, x: Tensor) -> Tensor:
    return o.inv(x)


@on_last_axes("MatrixPinv")
def pseudo_inverse(op: Any, x: Tensor) -> Tensor:
    return o.pinv(x, rtol=1e-15)


@on_last_axes("Det")
def determinant(op: Any, x: Tensor) -> Tensor:
    return o.det(x)


@on_last_axes("SLogDet")
def sign_and_log_determinant(op: Any, x: Tensor) -> list[Tensor]:
    return list(o.slogdet(x))


def _symmetric(op: Any, x: Tensor) -> Tensor:
    return one_triangle(x, op.UPLO == "L" if hasattr(op, "UPLO") else op.lower)


def _lone(operands: tuple[Tensor, ...]) -> None:
    if operands:
        raise RefusedError("the generalised eigenvalue problem is not converted")


@on_last_axes("Eigh")
def eigh(op: Any, x: Tensor, *b: Tensor) -> list[Tensor]:
    _lone(b)
    return list(o.eigh(_symmetric(op, x)))


@on_last_axes("Eigvalsh")
def eigvalsh(op: Any, x: Tensor, *b: Tensor) -> Tensor:
    _lone(b)
    return o.eigvalsh(_symmetric(op, x))


@on_last_axes("SVD")
def svd(op: Any, x: Tensor) -> Any:
    return list(o.svd(x, full_matrices=op.full_matrices)) if op.compute_uv else o.svdvals(x)


@on_last_axes("QR")
def qr(op: Any, x: Tensor) -> Any:
    if op.pivoting or op.mode not in ("full", "economic", "r"):
        raise RefusedError(
            f"a QR decomposition of mode {op.mode!r}{' with pivots' if op.pivoting else ''} is not converted"
        )
    q, r = o.qr(x, mode="reduced" if op.mode == "economic" else "complete")
    return r if op.mode == "r" else [q, r]


@on_last_axes("BlockDiagonal")
def block_diagonal(op: Any, *blocks: Tensor) -> Tensor:
    widths = [int(x.shape[-1]) for x in blocks]
    rows = []
    for number, x in enumerate(blocks):
        sides = (sum(widths[:number]), sum(widths[number + 1 :]))
        rows.append(o.pad(x, [(0, 0)] * (x.ndim - 1) + [sides]))
    return o.concat(rows, axis=-2)


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
    flags: list[bool] = []  # which operands are the same for all
    given: list[Any] = []
    for variable, rank in zip(node.inputs, ranks):
        value = at.value(variable)
        same = not isinstance(value, Tensor) and math.prod(value.shape[:rank]) == 1
        flags.append(same)
        if same:
            given.append(np.reshape(value, value.shape[rank:]))
        else:
            x = at.tensor(variable)
            core = x.shape[rank:]
            given.append(o.reshape(o.broadcast_to(x, (*batch, *core)), (math.prod(batch), *core)))

    def example(*xs: Tensor) -> list[Tensor]:
        rest = iter(xs)
        values = [value if same else next(rest) for value, same in zip(given, flags)]
        inner = at.inner(one.inputs, values)
        inner.declare_node(one)
        return inner.tensors(one.outputs)

    examples = [value for value, same in zip(given, flags) if not same]
    results = vmap(example)(*examples) if examples else [o.expand_dims(x, 0) for x in example()]
    return [o.reshape(o.broadcast_to(x, (math.prod(batch), *x.shape[1:])), (*batch, *x.shape[1:])) for x in results]
