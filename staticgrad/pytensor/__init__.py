"""PyTensor graphs, converted and run."""

from staticgrad.pytensor import indexing, loops, matrices, scalars, tensors
from staticgrad.pytensor.conversion import CONVERTERS, Conversion, RefusedError, Translation, convert, converts

__all__ = [
    "CONVERTERS", "Conversion", "RefusedError", "Translation", "convert", "converts", "indexing", "loops", "matrices",
    "scalars", "tensors",
]  # fmt: skip
