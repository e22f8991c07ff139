"""Functions of JAX, converted: ``convert`` and ``jit``; the modules' table has a converter for each primitive."""

from staticgrad.bridges.jaxpr import (
    complex,
    control,
    elementwise,
    indexing,
    matrices,
    products,
    randoms,
    reductions,
    views,
    windows,
)
from staticgrad.bridges.jaxpr.compiled import CompiledFunction, jit
from staticgrad.bridges.jaxpr.conversion import CONVERTERS, convert, converts

__all__ = [
    "CONVERTERS", "CompiledFunction", "complex", "control", "convert", "converts", "elementwise", "indexing", "jit",
    "matrices", "products", "randoms", "reductions", "views", "windows",
]  # fmt: skip
