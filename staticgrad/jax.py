"""Executables as JAX functions: ``staticgrad.jax.wrap``."""

from staticgrad.bridges.jax import JaxFunction, wrap

__all__ = ["JaxFunction", "wrap"]
