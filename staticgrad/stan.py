"""Stan programs as C functions that nutpie samples: ``staticgrad.stan.compile(code_or_path, data)``."""

from staticgrad.bridges.stan.model import StanModel as StanModel
from staticgrad.bridges.stan.model import compile as compile

__all__ = ["StanModel", "compile"]
