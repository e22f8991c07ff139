"""Differentiation: gradients and tangents are more graph.

``reverse`` and ``forward`` derive; ``saves`` says what the derivative of a node reads; ``retention`` says which
backwards may still run.
"""

from staticgrad.compiler.autodiff.forward import hessian, jacobian, jvp
from staticgrad.compiler.autodiff.reverse import gradients

__all__ = ["gradients", "hessian", "jacobian", "jvp"]
