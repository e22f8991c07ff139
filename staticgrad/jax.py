"""JAX, both ways: ``convert`` and ``jit`` bring functions of JAX here, ``wrap`` makes executables functions of JAX."""

from staticgrad.bridges.jax import JaxFunction, wrap
from staticgrad.bridges.jaxpr import CompiledFunction, convert, jit

__all__ = ["CompiledFunction", "JaxFunction", "convert", "jit", "wrap"]
