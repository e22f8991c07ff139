"""Neural functions under PyTorch's names, and layers; each is imported when it is first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from staticgrad.base.boundary import exposed
from staticgrad.base.hints import missing_from_module
from staticgrad.nn import functional as functional

if TYPE_CHECKING:
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
    from staticgrad.nn.quantization import quantize_dynamic
    from staticgrad.nn.summaries import summary
    from staticgrad.nn.weights import load_safetensors

_DEFINED = {
    "layers.affine": "Embedding Linear",
    "layers.attention": "MultiheadAttention",
    "layers.containers": "ModuleList Sequential",
    "layers.convolution": "Conv1d Conv2d ConvTranspose2d",
    "layers.functions": "ELU GELU AdaptiveAvgPool2d AvgPool2d Dropout Flatten Identity LeakyReLU LogSoftmax MaxPool2d"
    " ReLU SiLU Sigmoid Softmax Softplus Tanh",
    "layers.normalisation": "BatchNorm1d BatchNorm2d GroupNorm LayerNorm RMSNorm",
    "layers.recurrent": "GRU LSTM",
    "module": "Module",
    "quantization": "quantize_dynamic",
    "summaries": "summary",
    "weights": "load_safetensors",
}
_PLACES = {name: f"{__name__}.{module}" for module, names in _DEFINED.items() for name in names.split()}


if not TYPE_CHECKING:  # with a __getattr__, a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        if name in _PLACES:
            value = exposed(getattr(importlib.import_module(_PLACES[name]), name), __name__, name)
        elif name in functional.__all__:
            value = getattr(functional, name)
        else:
            raise missing_from_module(__name__, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "ELU", "GELU", "GRU", "LSTM", "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d",
    "ConvTranspose2d", "Dropout", "Embedding", "Flatten", "GroupNorm", "Identity", "LayerNorm", "LeakyReLU", "Linear",
    "LogSoftmax", "MaxPool2d", "Module", "ModuleList", "MultiheadAttention", "RMSNorm", "ReLU", "Sequential",
    "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "functional", "load_safetensors", "quantize_dynamic", "summary",
    *functional.__all__,
]  # fmt: skip
