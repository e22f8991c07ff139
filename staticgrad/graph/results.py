"""Named tuples that functions of matrices with several results return, with the array API standard's names."""

from __future__ import annotations

from typing import NamedTuple

from staticgrad.graph.graph import Tensor


class ComplexResult(NamedTuple):
    """The real and the imaginary parts of complex numbers."""

    real: Tensor
    imag: Tensor


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class LUResult(NamedTuple):
    """A permutation, a unit lower and an upper triangular matrix, whose product was factored."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactorResult(NamedTuple):
    """L and U in one matrix, the exchanges of rows in turn, and the order of rows that they lead to."""

    LU: Tensor
    pivots: Tensor
    permutation: Tensor


class LstsqResult(NamedTuple):
    """Solutions of least squares, the sums of squares that remain, ranks, and singular values in descending order."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class QRResult(NamedTuple):
    """A matrix with orthonormal columns, and an upper triangular one."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The signs of determinants, and the logarithms of their magnitudes."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor
