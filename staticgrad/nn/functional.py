"""Neural functions under PyTorch's names, with its argument names, order and defaults.

Images are (N, C, H, W), convolution weights (O, C / groups, KH, KW), ``linear`` weights (out, in). Most functions are
ops of the table, which are only gathered here, each when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from staticgrad.base.boundary import boundary, exposed
from staticgrad.base.hints import missing_from_module
from staticgrad.base.types import number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.elementwise.copies import rounded_once

if TYPE_CHECKING:
    from staticgrad.nn.padding import pad
    from staticgrad.nn.patches import fold, unfold
    from staticgrad.nn.resizing import interpolate
    from staticgrad.nn.sampling import affine_grid, grid_sample
    from staticgrad.ops.contraction import linear
    from staticgrad.ops.convolution import conv1d, conv2d, conv3d, conv_transpose2d
    from staticgrad.ops.elementwise.activations import (
        elu,
        gelu,
        hardsigmoid,
        hardswish,
        hardtanh,
        leaky_relu,
        log_sigmoid,
        mish,
        relu,
        relu6,
        selu,
        sigmoid,
        silu,
        softplus,
        softsign,
    )
    from staticgrad.ops.grouped import quantized_linear
    from staticgrad.ops.indexing.labels import one_hot
    from staticgrad.ops.losses.alignment import ctc_loss
    from staticgrad.ops.losses.classes import cross_entropy, nll_loss
    from staticgrad.ops.losses.probabilities import binary_cross_entropy, binary_cross_entropy_with_logits, kl_div
    from staticgrad.ops.losses.regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss
    from staticgrad.ops.neural.attention import scaled_dot_product_attention
    from staticgrad.ops.neural.batch_norm import batch_norm
    from staticgrad.ops.neural.embedding import embedding
    from staticgrad.ops.neural.normalisation import group_norm, layer_norm, rms_norm
    from staticgrad.ops.neural.softmax import log_softmax, softmax
    from staticgrad.ops.pooling import (
        adaptive_avg_pool1d,
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
        avg_pool1d,
        avg_pool3d,
        max_pool1d,
        max_pool3d,
    )
    from staticgrad.ops.randoms import dropout
    from staticgrad.ops.transposed import conv_transpose1d, conv_transpose3d
    from staticgrad.ops.windows import adaptive_avg_pool2d, avg_pool2d, max_pool2d

    logsigmoid = log_sigmoid

_COMPOSED = {
    "affine_grid": "staticgrad.nn.sampling",
    "fold": "staticgrad.nn.patches",
    "grid_sample": "staticgrad.nn.sampling",
    "interpolate": "staticgrad.nn.resizing",
    "pad": "staticgrad.nn.padding",
    "unfold": "staticgrad.nn.patches",
}
_OTHER_NAMES = {"logsigmoid": "log_sigmoid"}


if not TYPE_CHECKING:  # with a __getattr__, a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        if name in _COMPOSED:
            value = getattr(importlib.import_module(_COMPOSED[name]), name)
        elif name in __all__:
            value = getattr(FUNCTIONS, _OTHER_NAMES.get(name, name))
        else:
            raise missing_from_module(__name__, name)
        value = globals()[name] = exposed(value, __name__, name)
        return value


def __dir__() -> list[str]:
    return __all__


@boundary
def tanh(input: TensorLike) -> Tensor:
    """The hyperbolic tangent, elementwise.

    Example:
        >>> sg.Session().run(sg.nn.tanh([0.0, 1.0])).round(3)
        array([0.   , 0.762], dtype=float32)
    """
    return FUNCTIONS.tanh(input)


@boundary
def normalize(input: TensorLike, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Each vector along ``dim`` over its p-norm (Σ|x|ᵖ)^(1/p), which counts as at least ``eps``.

    Example:
        >>> x = sg.constant([[3.0, 4.0], [0.0, 0.0]])
        >>> sg.Session().run(sg.nn.normalize(x))
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    o, p = FUNCTIONS, number(p, "normalize: p")
    return rounded_once(lambda x: x / o.maximum(o.vector_norm(x, dim, keepdims=True, ord=p), eps), lift(input))


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "affine_grid", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cross_entropy", "ctc_loss", "dropout", "elu", "embedding", "fold", "gelu",
    "grid_sample", "group_norm", "hardsigmoid", "hardswish", "hardtanh", "huber_loss", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "logsigmoid", "max_pool1d",
    "max_pool2d", "max_pool3d", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "quantized_linear",
    "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "softmax",
    "softplus", "softsign", "tanh", "unfold",
]  # fmt: skip
