"""Neural functions under PyTorch's names, and layers."""

from __future__ import annotations

from staticgrad.nn import functional as functional
from staticgrad.nn.functional import *  # noqa: F403  all that its __all__ names
from staticgrad.nn.layers.affine import Embedding, Linear
from staticgrad.nn.layers.attention import MultiheadAttention
from staticgrad.nn.layers.containers import ModuleList, Sequential
from staticgrad.nn.layers.convolution import Conv1d, Conv2d, ConvTranspose2d
from staticgrad.nn.layers.functions import (
    ELU,
    GELU,
    AdaptiveAvgPool2d,
    AvgPool2d,
    Dropout,
    Flatten,
    Identity,
    LeakyReLU,
    LogSoftmax,
    MaxPool2d,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from staticgrad.nn.layers.normalisation import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from staticgrad.nn.layers.recurrent import GRU, LSTM
from staticgrad.nn.module import Module

__all__ = [
    "ELU", "GELU", "GRU", "LSTM", "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d",
    "ConvTranspose2d", "Dropout", "Embedding", "Flatten", "GroupNorm", "Identity", "LayerNorm", "LeakyReLU", "Linear",
    "LogSoftmax", "MaxPool2d", "Module", "ModuleList", "MultiheadAttention", "RMSNorm", "ReLU", "Sequential",
    "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "functional",
    *functional.__all__,
]  # fmt: skip
