"""Differentiation: gradients and tangents are more graph."""
