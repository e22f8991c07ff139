"""Converters of ``numpy.linalg`` and ``scipy.linalg``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy.array import call
from staticgrad.bridges.numpy.namespace import linalg, n
from staticgrad.bridges.numpy.tables import FUNCTIONS, WRITTEN, Unconverted, common, enter, tensor_of
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

F = TypeVar("F", bound=Callable[..., Any])


FUNCTIONS |= {
    "numpy.linalg.cholesky": lambda x, *, upper=False: o.cholesky(_float(x), upper=upper),
    "scipy.linalg.cholesky": lambda x, lower=False, **_: o.cholesky(_float(x), upper=not lower),
    "numpy.linalg.vector_norm": lambda x, **named: o.vector_norm(_float(x), **named),
    "numpy.linalg.matrix_norm": lambda x, **named: o.matrix_norm(_float(x), **named),
    "numpy.linalg.matrix_power": lambda x, count: o.matrix_power(x, count),
    "numpy.linalg.trace": lambda x, *, offset=0, dtype=None: o.trace(x, offset=offset),
    "numpy.linalg.multi_dot": lambda xs, **_: functools.reduce(o.matmul, common(*xs)),
    "numpy.linalg.svd": lambda x, full_matrices=True, compute_uv=True, **_: (
        o.svd(_float(x), full_matrices=full_matrices) if compute_uv else o.svdvals(_float(x))
    ),
}
FUNCTIONS["scipy.linalg.lu_factor"] = lambda x, *_, **__: tuple(o.lu_factor(_float(x))[:2])
FUNCTIONS["scipy.linalg.svd"] = FUNCTIONS["numpy.linalg.svd"]


def _path(*names: str) -> Callable[[F], F]:
    return enter(FUNCTIONS, *names)


def _float(x: Any) -> Tensor:
    t = tensor_of(x)
    return t if t.dtype.kind == "f" else cast(t, np.float64)


def _both(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    x, y = _float(a), _float(b)
    dtype = np.result_type(x.dtype, y.dtype)
    return cast(x, dtype), cast(y, dtype)


for _home, _names in {
    "numpy.linalg": ("inv", "det", "slogdet", "eigh", "eigvalsh", "pinv", "matrix_rank", "svdvals"),
    "scipy.linalg": ("inv", "det", "pinv", "svdvals", "expm", "sqrtm", "logm"),
}.items():
    for _name in _names:
        FUNCTIONS[f"{_home}.{_name}"] = lambda x, *_, name=_name, **__: getattr(o, name)(_float(x))


@_path("scipy.linalg.cho_factor")
def _cho_factor(x: Tensor, lower: bool = False, **_: Any) -> tuple[Tensor, None]:
    """Cholesky, with SciPy's rest of the matrix in the other triangle."""
    factor, x = o.cholesky(_float(x), upper=not lower), _float(x)
    rest = o.triu(x, k=1) if lower else o.tril(x, k=-1)
    return factor + rest, None


@_path("scipy.linalg.cho_solve")
def _cho_solve(pair: Any, b: Any, **_: Any) -> Tensor:
    factor, lower = pair
    factor, b = _both(factor, b)
    factor = o.matrix_transpose(o.triu(factor)) if not lower else o.tril(factor)
    columns = b if b.ndim > 1 else b[:, None]
    half = o.solve_triangular(factor, columns)
    found = o.solve_triangular(o.matrix_transpose(factor), half, upper=True)
    return found if b.ndim > 1 else found[:, 0]


@_path("numpy.linalg.solve", "scipy.linalg.solve")
def _solve(a: Any, b: Any, *_: Any, **named: Any) -> Tensor:
    if named.get("transposed"):
        raise Unconverted("transposed=True is not converted")
    a, b = _both(a, b)
    if named.get("lower") and named.get("assume_a") in ("pos", "sym"):
        a = o.tril(a) + o.matrix_transpose(o.tril(a, k=-1))
    return o.solve(a, b)


@_path("scipy.linalg.solve_triangular")
def _solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **_: Any
) -> Tensor:
    a, b = _both(a, b)
    if trans in (1, "T", 2, "C"):
        a, lower = o.matrix_transpose(a), not lower
    columns = b if b.ndim > 1 else b[:, None]
    found = o.solve_triangular(a, columns, upper=not lower, unitriangular=unit_diagonal)
    return found if b.ndim > 1 else found[:, 0]


@_path("scipy.linalg.eigh")
def _scipy_eigh(x: Tensor, b: Any = None, **named: Any) -> Any:
    if b is not None or named.get("subset_by_index") is not None or named.get("subset_by_value") is not None:
        raise Unconverted("generalised problems and subsets of eigenvalues are not converted")
    return o.eigvalsh(_float(x)) if named.get("eigvals_only") else o.eigh(_float(x))


@_path("numpy.linalg.qr")
def _qr(x: Tensor, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise Unconverted(f"the mode {mode!r} is not converted")
    found = o.qr(_float(x), mode="reduced" if mode == "r" else mode)
    return found[1] if mode == "r" else found


@_path("scipy.linalg.qr")
def _scipy_qr(x: Tensor, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False,
              **_: Any) -> Any:  # fmt: skip
    if pivoting or mode not in ("full", "economic"):
        raise Unconverted("pivoting and modes other than full and economic are not converted")
    return o.qr(_float(x), mode="complete" if mode == "full" else "reduced")


@_path("numpy.linalg.norm", "scipy.linalg.norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, **_: Any) -> Tensor:
    t = _float(x)
    if ord is None and axis is None:
        t = o.reshape(t, (-1,))
        total = o.vector_norm(t)
        return o.reshape(total, (1,) * np.ndim(x)) if keepdims else total
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,) if axis is not None else tuple(range(t.ndim))
    if len(axes) == 1 or ord is None:
        return o.vector_norm(t, axes if len(axes) > 1 else axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    moved = o.matrix_norm(o.moveaxis(t, axes, (-2, -1)), ord=ord)
    return o.expand_dims(o.expand_dims(moved, axis=min(axes)), axis=max(axes)) if keepdims else moved


@_path("numpy.linalg.cond")
def _cond(x: Tensor, p: Any = None) -> Tensor:
    if p not in (None, 2):
        raise Unconverted("only the condition number by the 2-norm is converted")
    values = o.svdvals(_float(x))
    return values[..., 0] / values[..., -1]


@_path("scipy.linalg.block_diag")
def _block_diag(*xs: Any) -> Tensor:
    parts = [o.reshape(t, (1,) * (2 - t.ndim) + tuple(t.shape)) if t.ndim < 2 else t for t in map(tensor_of, xs)]
    dtype = np.result_type(*(part.dtype for part in parts))
    return o.block_diag(*(cast(part, dtype) for part in parts))


@_path("scipy.linalg.toeplitz")
def _toeplitz(c: Any, r: Any = None) -> Tensor:
    c = tensor_of(c)
    r = c if r is None else tensor_of(r)
    n, m = int(c.shape[0]), int(r.shape[0])
    both = o.concat([o.flip(c), r[1:]], axis=0)
    return both[np.arange(m)[None, :] - np.arange(n)[:, None] + n - 1]


def _lstsq(a: Any, b: Any, rcond: Any = None, *, is_flat: bool) -> Any:
    """Least squares; there are residuals where there are more rows than columns."""
    a, b = _both(a, b)
    found = o.lstsq(a, b, None if rcond is None or rcond < 0 else rcond)
    flat = o.reshape(found[1], (-1,))
    rest = (flat if is_flat else found[1]) if a.shape[0] > a.shape[1] else flat[:0]
    return found[0], rest, found[2], found[3]


FUNCTIONS["numpy.linalg.lstsq"] = lambda a, b, rcond=None: _lstsq(a, b, rcond, is_flat=True)
FUNCTIONS["scipy.linalg.lstsq"] = lambda a, b, cond=None, *_, **__: _lstsq(a, b, cond, is_flat=False)


@enter(WRITTEN, "scipy.linalg.lu_solve")
def _lu_solve(pair: Any, b: Any, trans: int = 0, *_: Any, **__: Any) -> Any:
    """By the order of rows that the exchanges make."""
    if trans:
        raise Unconverted("transposed systems are not converted")
    factors, pivots = pair
    order = n.arange(factors.shape[0])
    for row in range(factors.shape[0]):
        order[row], order[pivots[row]] = order[pivots[row]], order[row]
    half = _triangular(n.tril(factors, -1) + np.eye(factors.shape[0]), b[order], lower=True)
    return _triangular(n.triu(factors), half)


def _triangular(a: Any, b: Any, lower: bool = False) -> Any:
    import scipy.linalg

    return call(scipy.linalg.solve_triangular, a, b, lower=lower)


@_path("scipy.linalg.lu")
def _lu(x: Tensor, permute_l: bool = False, **_: Any) -> Any:
    found = o.lu(_float(x))
    return (o.matmul(found[0], found[1]), found[2]) if permute_l else tuple(found)


@enter(WRITTEN, "numpy.polyfit")
def _polyfit(x: Any, y: Any, degree: int, **_: Any) -> Any:
    powers = n.vander(x, degree + 1)
    scale = n.sqrt((powers * powers).sum(0))
    found = linalg.lstsq(powers / scale, y)[0]
    return (found.T / scale).T


@_path("scipy.linalg.solve_banded")
def _solve_banded(bands: Any, ab: Any, b: Any, **_: Any) -> Tensor:
    """By elimination of three diagonals, else by the full matrix."""
    (lower, upper), (ab, b) = bands, _both(ab, b)
    size: Any = ab.shape[1]
    if lower == upper == 1:
        low, high = o.pad(ab[2, :-1], [(1, 0)]), o.pad(ab[0, 1:], [(0, 1)])
        return o.tridiagonal_solve(low, ab[1], high, b)
    rows = [(upper - row, ab[row]) for row in range(lower + upper + 1)]
    return o.solve(sum(o.diag(band[max(k, 0) : size + min(k, 0)], k) for k, band in rows), b)
