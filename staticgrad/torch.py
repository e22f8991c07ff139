"""Executables as functions of PyTorch's tensors: ``staticgrad.torch.wrap``."""

from staticgrad.bridges.torch import TorchFunction, wrap

__all__ = ["TorchFunction", "wrap"]
