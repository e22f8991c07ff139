"""PyTensor graphs, converted and run: ``convert``, and the mode ``"STATICGRAD"``.

An import makes the mode known to PyTensor: ``pytensor.function(inputs, outputs, mode="STATICGRAD")``.
"""

try:
    import pytensor as _  # noqa: F401
except ImportError as error:
    raise ImportError("staticgrad.pytensor needs PyTensor: pip install '.[pytensor]' in a checkout") from error

from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.pytensor import indexing, loops, matrices, scalars, tensors
from staticgrad.bridges.pytensor.conversion import CONVERTERS, Conversion, Translation, convert, converts
from staticgrad.bridges.pytensor.linker import StaticgradLinker, mode, register

register()

__all__ = [
    "CONVERTERS", "Conversion", "RefusedError", "StaticgradLinker", "Translation", "convert", "converts", "indexing",
    "loops", "matrices", "mode", "register", "scalars", "tensors",
]  # fmt: skip
