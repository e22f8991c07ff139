"""PyTensor graphs, converted and run: ``convert``, and the mode ``"STATICGRAD"``.

An import makes the mode known to PyTensor: ``pytensor.function(inputs, outputs, mode="STATICGRAD")``.
"""

from staticgrad.bridges.pytensor import (
    CONVERTERS,
    Conversion,
    RefusedError,
    StaticgradLinker,
    Translation,
    convert,
    converts,
    mode,
    register,
)

__all__ = [
    "CONVERTERS", "Conversion", "RefusedError", "StaticgradLinker", "Translation", "convert", "converts", "mode",
    "register",
]  # fmt: skip
