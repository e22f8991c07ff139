"""ONNX models, declared here and written from here: see ``staticgrad.onnx``."""

try:
    import onnx as _  # noqa: F401
except ImportError as error:
    raise ImportError("staticgrad.onnx needs ONNX: pip install '.[onnx]' in a checkout") from error

from staticgrad.bridges.onnx import (
    casts,
    control,
    elementwise,
    images,
    indexing,
    recurrent,
    reductions,
    shapes,
    training,
    windows,
)

__all__ = [
    "casts", "control", "elementwise", "images", "indexing", "recurrent", "reductions", "shapes",
    "training", "windows",
]  # fmt: skip
