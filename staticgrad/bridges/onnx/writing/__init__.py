"""Executables as ONNX models: see ``staticgrad.onnx.save``."""
