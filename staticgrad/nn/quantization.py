"""Quantisation of layers: linear maps that multiply integers of 8 bits, for inference."""

from __future__ import annotations

from typing import TypeVar

from staticgrad.base.errors import GraphError
from staticgrad.nn.layers.affine import Linear
from staticgrad.nn.module import Module

M = TypeVar("M", bound=Module)


def quantize_dynamic(module: M) -> M:
    """Have the linear layers of a module, or one itself, compute ``sg.nn.quantized_linear`` from their next call on, as
    ``torch.ao.quantization.quantize_dynamic`` does: weights in 8 bits with a scale for each output, inputs with one for
    each row. Layers keep their float32 parameters, which are quantised in a program when they have changed, so
    checkpoints are the same; what was declared before stays as it is. Other layers compute as they did. There are no
    gradients through such layers.

    Returns:
        The module.

    Raises:
        GraphError: no linear layer is in it.

    Example:
        >>> net = sg.nn.quantize_dynamic(sg.nn.Sequential(sg.nn.Linear(64, 32), sg.nn.ReLU(), sg.nn.Linear(32, 4)))
        >>> net(sg.zeros((8, 64))).shape
        (8, 4)
        >>> print(net)
        Sequential(
          (0): Linear(64, 32, bias=True, quantized=True)
          (1): ReLU()
          (2): Linear(32, 4, bias=True, quantized=True)
        )
    """
    layers = [layer for layer in module.modules() if isinstance(layer, Linear)]
    if not layers:
        raise GraphError("quantize_dynamic: expected a module with sg.nn.Linear in it")
    for layer in layers:
        layer.quantized = True
    return module
