"""Executables as functions of PyTorch's tensors, ``staticgrad.torch.wrap``, and PyTorch's modules as modules here,
``staticgrad.torch.convert``."""

from staticgrad.bridges.torch import TorchFunction, wrap

from staticgrad.bridges.aten import ExportedModule, convert  # isort: skip  after the check that PyTorch is there

__all__ = ["ExportedModule", "TorchFunction", "convert", "wrap"]
