"""Neural functions under PyTorch's names, and layers."""

from __future__ import annotations

from staticgrad.nn import functional as functional
from staticgrad.nn.functional import *  # noqa: F403  all that its __all__ names
from staticgrad.nn.layers import (
    ELU,
    GELU,
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    Identity,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    MaxPool2d,
    ModuleList,
    MultiheadAttention,
    ReLU,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from staticgrad.nn.module import Module
from staticgrad.nn.recurrent import GRU, LSTM

__all__ = [
    "ELU", "GELU", "GRU", "LSTM", "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d",
    "ConvTranspose2d", "Dropout", "Embedding", "Flatten", "GroupNorm", "Identity", "LayerNorm", "LeakyReLU", "Linear",
    "LogSoftmax", "MaxPool2d", "Module", "ModuleList", "MultiheadAttention", "RMSNorm", "ReLU", "Sequential",
    "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "functional",
    *functional.__all__,
]  # fmt: skip
