"""Differentiation: gradients and tangents are more graph.

``reverse`` and ``forward`` derive; ``saves`` says what the derivative of a node reads; ``retention`` says which
backwards may still run.
"""
