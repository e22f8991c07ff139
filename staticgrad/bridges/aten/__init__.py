"""Modules of PyTorch, declared here: ``staticgrad.torch.convert``."""

from staticgrad.bridges.aten import backwards, control, elementwise, indexing, matrices, neural, recurrent
from staticgrad.bridges.aten import reductions, views, windows
from staticgrad.bridges.aten.dialect import CONVERTERS
from staticgrad.bridges.aten.module import ExportedModule, convert

__all__ = [
    "CONVERTERS", "ExportedModule", "backwards", "control", "convert", "elementwise", "indexing", "matrices", "neural",
    "recurrent", "reductions", "views", "windows",
]  # fmt: skip
