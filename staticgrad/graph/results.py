"""Named tuples that functions of matrices with several results return, with the array API standard's names."""

from __future__ import annotations

from typing import NamedTuple

from staticgrad.graph.graph import Tensor


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


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
