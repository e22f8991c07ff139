"""PyMC models as C functions that nutpie samples: ``staticgrad.pymc.compile(model)``."""

from staticgrad.bridges.pymc import CompiledModel, compile

__all__ = ["CompiledModel", "compile"]
