"""Functions of ``numpy.linalg`` and ``scipy.linalg``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import promoted
from staticgrad.bridges.numpy.namespace import linalg
from staticgrad.bridges.numpy.tables import FUNCTIONS, WRITTEN, Unconverted, enter, same, tensor_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

same(FUNCTIONS, "numpy.linalg.", """
    inv det slogdet matrix_rank svdvals solve cholesky vector_norm matrix_norm matrix_power trace outer cross tensordot
""")  # fmt: skip
same(FUNCTIONS, "scipy.linalg.", "inv det svdvals expm sqrtm logm block_diag")
FUNCTIONS |= {
    "numpy.linalg.pinv": lambda a, rcond=None, rtol=None: o.pinv(a, rtol=rcond if rtol is None else rtol),
    "scipy.linalg.pinv": lambda a, rtol=None: o.pinv(a, rtol=rtol),
    "numpy.linalg.multi_dot": lambda arrays: functools.reduce(o.matmul, map(tensor_of, arrays)),
    "numpy.linalg.eigh": lambda a, UPLO="L": o.eigh(_symmetric(a, UPLO == "L")),
    "numpy.linalg.eigvalsh": lambda a, UPLO="L": o.eigvalsh(_symmetric(a, UPLO == "L")),
    "scipy.linalg.eigh": lambda a, lower=True, eigvals_only=False: (o.eigvalsh if eigvals_only else o.eigh)(
        _symmetric(a, lower)
    ),
    "numpy.linalg.svd": lambda a, full_matrices=True, compute_uv=True: (
        o.svd(tensor_of(a), full_matrices=full_matrices) if compute_uv else o.svdvals(tensor_of(a))
    ),
    "numpy.linalg.qr": lambda a, mode="reduced": _qr(a, mode, {"reduced": "reduced", "complete": "complete"}),
    "scipy.linalg.qr": lambda a, mode="full": _qr(a, mode, {"full": "complete", "economic": "reduced"}),
    "scipy.linalg.cholesky": lambda a, lower=False: o.cholesky(tensor_of(a), upper=not lower),
    "numpy.linalg.lstsq": lambda a, b, rcond=None: _lstsq(tensor_of(a), tensor_of(b), rcond),
    "scipy.linalg.lu_factor": lambda a: tuple(o.lu_factor(tensor_of(a))[:2]),
    "scipy.linalg.lu_solve": lambda lu_and_piv, b, trans=0: o.lu_solve(
        tensor_of(lu_and_piv[0]),
        o.pivots_to_permutation(tensor_of(lu_and_piv[1])),
        tensor_of(b),
        transposed=bool(trans),
    ),
}
FUNCTIONS["scipy.linalg.svd"] = FUNCTIONS["numpy.linalg.svd"]


def _symmetric(a: Any, is_lower: bool) -> Tensor:
    """The symmetric matrix of one triangle, where that is not the lower one, which ops read."""
    return tensor_of(a) if is_lower else o.triu(tensor_of(a)) + o.matrix_transpose(o.triu(tensor_of(a), 1))


def _qr(a: Any, mode: str, modes: dict[str, str]) -> Any:
    if mode == "r" and "reduced" in modes:
        return o.qr(tensor_of(a))[1]
    if mode not in modes:
        raise Unconverted(f"the mode {mode!r} is not converted")
    return o.qr(tensor_of(a), mode=modes[mode])


@enter(FUNCTIONS, "scipy.linalg.solve")
def _solve(a: Any, b: Any, lower: bool = False, assume_a: Any = None, transposed: bool = False) -> Tensor:
    matrix = tensor_of(a)
    if lower and assume_a in ("pos", "sym"):
        matrix = _symmetric(o.matrix_transpose(matrix), False)
    return o.solve(o.matrix_transpose(matrix) if transposed else matrix, tensor_of(b))


@enter(FUNCTIONS, "scipy.linalg.solve_triangular")
def _solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False) -> Tensor:
    matrix, is_transposed = tensor_of(a), trans in (1, "T", 2, "C")
    if is_transposed:
        matrix = o.matrix_transpose(matrix)
    return o.solve_triangular(matrix, tensor_of(b), upper=bool(lower) == is_transposed, unitriangular=unit_diagonal)


@enter(FUNCTIONS, "scipy.linalg.cho_factor")
def _cho_factor(a: Any, lower: bool = False) -> tuple[Tensor, None]:
    """Cholesky, with SciPy's rest of the matrix in the other triangle."""
    x = tensor_of(a)
    return o.cholesky(x, upper=not lower) + (o.triu(x, k=1) if lower else o.tril(x, k=-1)), None


@enter(FUNCTIONS, "scipy.linalg.cho_solve")
def _cho_solve(c_and_lower: Any, b: Any) -> Tensor:
    factor, is_lower = tensor_of(c_and_lower[0]), c_and_lower[1]
    factor = o.tril(factor) if is_lower else o.matrix_transpose(o.triu(factor))
    half = o.solve_triangular(factor, tensor_of(b))
    return o.solve_triangular(o.matrix_transpose(factor), half, upper=True)


@enter(FUNCTIONS, "numpy.linalg.norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    t = tensor_of(x)
    if ord is None and axis is None:
        total = o.vector_norm(o.reshape(t, (-1,)))
        return o.reshape(total, (1,) * t.ndim) if keepdims else total
    axes = tuple(range(t.ndim)) if axis is None else tuple(np.atleast_1d(axis).tolist())
    if len(axes) == 1 or ord is None:
        return o.vector_norm(t, axes if len(axes) > 1 else axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    norms = o.matrix_norm(o.moveaxis(t, axes, (-2, -1)), ord=ord)
    return o.expand_dims(norms, axis=tuple(sorted(axis % t.ndim for axis in axes))) if keepdims else norms


FUNCTIONS["scipy.linalg.norm"] = lambda a, ord=None, axis=None, keepdims=False: _norm(a, ord, axis, keepdims)


@enter(WRITTEN, "numpy.linalg.cond")
def _cond(x: Any, p: Any = None) -> Any:
    if p is None or p == 2:
        values = linalg.svdvals(x)
        return values[..., 0] / values[..., -1]
    return linalg.norm(x, p, (-2, -1)) * linalg.norm(linalg.inv(x), p, (-2, -1))


@enter(FUNCTIONS, "scipy.linalg.toeplitz")
def _toeplitz(c: Any, r: Any = None) -> Tensor:
    column = tensor_of(c)
    row = column if r is None else tensor_of(r)
    rows, columns = np.arange(int(column.shape[0])), np.arange(int(row.shape[0]))
    return o.concat([o.flip(column), row[1:]])[columns - rows[:, None] + rows.size - 1]


def _lstsq(a: Tensor, b: Tensor, rcond: float | None) -> tuple[Tensor, ...]:
    """Least squares; there are residuals where there are more rows than columns."""
    solution, residuals, rank, _ = o.lstsq(a, b, None if rcond is None or rcond < 0 else rcond)
    flat = o.reshape(residuals, (-1,))
    is_over = a.shape[0] > a.shape[1]
    return solution, flat if is_over else flat[:0], rank, o.svdvals(a)  # these have derivatives here


@enter(FUNCTIONS, "scipy.linalg.lstsq")
def _scipy_lstsq(a: Any, b: Any, cond: float | None = None) -> tuple[Tensor, ...]:
    """As NumPy's, but the residual of a vector is a number."""
    found = _lstsq(tensor_of(a), tensor_of(b), cond)
    is_number = len(found[0].shape) == 1 and found[1].shape == (1,)
    return found[0], o.reshape(found[1], ()) if is_number else found[1], *found[2:]


@enter(FUNCTIONS, "scipy.linalg.lu")
def _lu(a: Any, permute_l: bool = False) -> Any:
    found = o.lu(tensor_of(a))
    return (o.matmul(found[0], found[1]), found[2]) if permute_l else tuple(found)


@enter(FUNCTIONS, "scipy.linalg.solve_banded")
def _solve_banded(l_and_u: Any, ab: Any, b: Any) -> Tensor:
    """By elimination of three diagonals, else by the full matrix."""
    (lower, upper), (bands, right) = l_and_u, promoted(tensor_of(ab), tensor_of(b))
    size: Any = bands.shape[1]
    if lower == upper == 1:
        low, high = o.pad(bands[2, :-1], [(1, 0)]), o.pad(bands[0, 1:], [(0, 1)])
        return o.tridiagonal_solve(low, bands[1], high, right)
    diagonals = [(upper - row, bands[row]) for row in range(lower + upper + 1)]
    return o.solve(sum(o.diag(band[max(k, 0) : size + min(k, 0)], k) for k, band in diagonals), right)
