"""Minimal filtering algorithms F(m×m, 3×3) of Winograd, as matrices.

    y = Aᵀ[(G·w·Gᵀ) ⊙ (Bᵀ·x·B)]·A

computes m×m outputs y of a filter w of 3×3 taps from a tile x of n×n pixels, n = m + 2, with n² multiplications rather
than 9·m² (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, sections 4.1 to 4.3). The
algorithm is bilinear; its transpose by w computes the gradient of the filter,

    dw = Gᵀ[(A·dy·Aᵀ) ⊙ (Bᵀ·x·B)]·G

of whose products the sum over all tiles may be taken before Gᵀ and G are applied.

Sums of squares of the entries grow with n, and errors with them: those of F(2×2) are about as large as those of the
plain sum of products, those of F(4×4) several times larger.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution

TAPS = 3

Coefficients = tuple[tuple[float, ...], ...]  # the rows of a matrix


@frozen
class Filtering:
    """The matrices of F(``outputs`` × ``outputs``, 3×3) and estimates of its transforms: cycles of a vector."""

    outputs: int  # m
    data: Coefficients  # Bᵀ, n × n
    weights: Coefficients  # G, n × 3
    results: Coefficients  # Aᵀ, m × n
    data_cycles: float
    weight_cycles: float
    result_cycles: float

    @property
    def side(self) -> int:
        """The pixels along a side of a tile."""
        return self.outputs + TAPS - 1

    @property
    def products(self) -> int:
        """The multiplications of a tile, for each channel and filter."""
        return self.side**2

    @property
    def text(self) -> str:
        """The algorithm's usual name."""
        return f"F({self.outputs}×{self.outputs}, {TAPS}×{TAPS})"


def filterings(kernel: Convolution) -> tuple[Filtering, ...]:
    """The algorithms that the precision of a kernel allows."""
    return (F2,) if kernel.precision == "highest" else (F2, F4)


def transposed(matrix: Coefficients) -> Coefficients:
    """The transpose of a matrix."""
    return tuple(zip(*matrix, strict=True))


F2 = Filtering(
    2,
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, -1)),
    data_cycles=24,
    weight_cycles=20,
    result_cycles=18,
)
F4 = Filtering(
    4,
    (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    data_cycles=110,
    weight_cycles=60,
    result_cycles=75,
)
