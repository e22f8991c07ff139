"""ONNX models, in and out: ``load``, ``save``, and ``backend`` for ONNX's own tools."""

from staticgrad.bridges.onnx.backend import StaticgradBackend as backend
from staticgrad.bridges.onnx.model import OnnxModule, load
from staticgrad.bridges.onnx.writing.model import save

__all__ = ["OnnxModule", "backend", "load", "save"]
