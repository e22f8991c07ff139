"""Stan programs as C functions that nutpie samples: ``staticgrad.stan.compile(code_or_path, data)``."""

from staticgrad.bridges.stan.model import CompiledModel as CompiledModel
from staticgrad.bridges.stan.model import compile as compile

__all__ = ["CompiledModel", "compile"]
