"""Linear algebra under the names of the array API standard's ``linalg`` extension, and functions of matrices under
SciPy's (``expm``, ``funm``, ``logm``, ``sqrtm``, ``solve_triangular``).

Matrices are the last two axes, leading axes a batch. Where NumPy raises ``LinAlgError`` the result has NaN or infinity,
which ``check_numerics=True`` finds.

Example:
    >>> a = sg.placeholder((2, 2), sg.float64)
    >>> x = sg.linalg.solve(a, np.array([3.0, 5.0]))
    >>> sg.Session().run(x, {a: np.array([[1.0, 1.0], [1.0, 2.0]])})
    array([1., 2.])
"""

from __future__ import annotations

from typing import NoReturn

from staticgrad.base.boundary import expose
from staticgrad.base.hints import missing_from_module
from staticgrad.functions.matrix_functions import funm
from staticgrad.ops.contraction import matmul, outer, tensordot, vecdot
from staticgrad.ops.linalg.blocks import block_diag
from staticgrad.ops.linalg.cholesky import cholesky
from staticgrad.ops.linalg.determinants import det, slogdet
from staticgrad.ops.linalg.eigen import eigh, eigvalsh
from staticgrad.ops.linalg.elimination import inv, matrix_power, solve
from staticgrad.ops.linalg.exponential import expm
from staticgrad.ops.linalg.least_squares import lstsq
from staticgrad.ops.linalg.lu import lu, lu_factor, lu_solve, pivots_to_permutation
from staticgrad.ops.linalg.matrices import cross, diagonal, matrix_norm, trace, vector_norm
from staticgrad.ops.linalg.orthogonal import householder_product, qr
from staticgrad.ops.linalg.singular import matrix_rank, pinv, svd, svdvals
from staticgrad.ops.linalg.spectral import logm, sqrtm
from staticgrad.ops.linalg.triangular import solve_triangular
from staticgrad.ops.linalg.tridiagonal import tridiagonal_solve
from staticgrad.ops.views.permuting import matrix_transpose

__all__ = [
    "block_diag", "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "expm", "funm", "householder_product",
    "inv", "logm", "lstsq", "lu", "lu_factor", "lu_solve", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "pivots_to_permutation", "qr", "slogdet", "solve", "solve_triangular", "sqrtm",
    "svd", "svdvals", "tensordot", "trace", "tridiagonal_solve", "vecdot", "vector_norm",
]  # fmt: skip

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
