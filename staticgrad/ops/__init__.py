"""The op table's entries by family, and the public functions that declare them.

Importing this package fills the table and the namespace (``staticgrad.optable``).
"""

from staticgrad.ops import (
    attention,
    checkpointing,
    contraction,
    control,
    convolution,
    cumulative,
    custom,
    effects,
    elementwise,
    factorisations,
    indexing,
    losses,
    matrices,
    neural,
    randoms,
    reductions,
    sorting,
    sources,
    special,
    spectral,
    variables,
    views,
    windows,
)

__all__ = [
    "attention", "checkpointing", "contraction", "control", "convolution", "cumulative", "custom", "effects",
    "elementwise", "factorisations", "indexing", "losses", "matrices", "neural", "randoms", "reductions", "sorting",
    "sources", "special", "spectral", "variables", "views", "windows",
]  # fmt: skip
