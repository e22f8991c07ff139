"""Modules of PyTorch, declared here: ``staticgrad.torch.convert``."""

import torch

if not hasattr(torch.export, "default_decompositions"):
    raise ImportError(f"staticgrad.torch.convert needs PyTorch 2.6 or later, actual {torch.__version__}")

from staticgrad.bridges.aten import (
    backwards,
    control,
    elementwise,
    indexing,
    matrices,
    neural,
    recurrent,
    reductions,
    rules,
    views,
    windows,
)
from staticgrad.bridges.aten.dialect import CONVERTERS
from staticgrad.bridges.aten.module import ExportedModule, convert

__all__ = [
    "CONVERTERS", "ExportedModule", "backwards", "control", "convert", "elementwise", "indexing", "matrices", "neural",
    "recurrent", "reductions", "rules", "views", "windows",
]  # fmt: skip
