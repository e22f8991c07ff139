"""Layers without parameters: each calls the function of its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from staticgrad.base.types import number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.nn import functional as F
from staticgrad.nn.module import Module, repr_of
from staticgrad.ops.convolution import Pair, Sizes, pair
from staticgrad.ops.declare import refuse_in_place
from staticgrad.ops.elementwise.activations import check_approximate
from staticgrad.ops.randoms import probability


class Dropout(Module):
    """Zero each element with probability ``p`` and scale the others by 1 / (1 - p); in evaluation the identity.

    Args:
        p: the probability of an element to be zeroed.
        inplace: as PyTorch has it; True is refused, tensors are values.

    Example:
        >>> sg.Session(seed=0).run(sg.nn.Dropout(0.5)(sg.ones(6)))
        array([2., 0., 2., 2., 0., 0.], dtype=float32)
        >>> sg.Session(seed=0).run(sg.nn.Dropout(0.5).eval()(sg.ones(6)))
        array([1., 1., 1., 1., 1., 1.], dtype=float32)
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        refuse_in_place("Dropout", inplace)
        self.p = probability(p, "Dropout: p")

    def forward(self, input: TensorLike) -> Tensor:
        return F.dropout(input, self.p, self.p > 0 and self.training)

    def extra_repr(self) -> str:
        return repr_of(p=self.p)


class Identity(Module):
    """The input, whatever arguments the layer was made with, so that it can stand in the place of another one.

    Example:
        >>> net = sg.nn.Sequential(sg.nn.Linear(4, 4), sg.nn.Identity())
        >>> net(sg.zeros((2, 4))).shape
        (2, 4)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class ReLU(Module):
    """max(x, 0).

    Args:
        inplace: as PyTorch has it; True is refused, tensors are values.

    Example:
        >>> sg.Session().run(sg.nn.ReLU()(sg.constant([-1.0, 0.0, 2.0])))
        array([0., 0., 2.], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        refuse_in_place("ReLU", inplace)

    def forward(self, input: TensorLike) -> Tensor:
        return F.relu(input)


class LeakyReLU(Module):
    """x where it is positive, else negative_slope·x.

    Args:
        negative_slope: the factor of negative elements.
        inplace: as PyTorch has it; True is refused, tensors are values.

    Example:
        >>> sg.Session().run(sg.nn.LeakyReLU(0.25)(sg.constant([-1.0, 2.0])))
        array([-0.25,  2.  ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        refuse_in_place("LeakyReLU", inplace)
        self.negative_slope = number(negative_slope, "LeakyReLU: negative_slope")

    def forward(self, input: TensorLike) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)


class ELU(Module):
    """x where it is positive, else alpha·(exp(x) - 1) (Clevert et al. 2016).

    Args:
        alpha: what the results of large negative elements approach is its negative.
        inplace: as PyTorch has it; True is refused, tensors are values.

    Example:
        >>> sg.Session().run(sg.nn.ELU(alpha=0.5)(sg.constant([-1.0, 2.0]))).round(3)
        array([-0.316,  2.   ], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        refuse_in_place("ELU", inplace)
        self.alpha = number(alpha, "ELU: alpha")

    def forward(self, input: TensorLike) -> Tensor:
        return F.elu(input, self.alpha)


class GELU(Module):
    """x·Φ(x), Φ the normal distribution function (Hendrycks and Gimpel 2016); ``approximate="tanh"``: by a tanh.

    Args:
        approximate: ``"none"``, or ``"tanh"``: Φ is computed by a tanh.

    Example:
        >>> sg.Session().run(sg.nn.GELU()(sg.constant([-1.0, 0.0, 1.0]))).round(3)
        array([-0.159,  0.   ,  0.841], dtype=float32)
    """

    def __init__(self, approximate: str = "none") -> None:
        check_approximate(approximate, "GELU")
        self.approximate = approximate

    def forward(self, input: TensorLike) -> Tensor:
        return F.gelu(input, self.approximate)


class SiLU(Module):
    """x·σ(x).

    Args:
        inplace: as PyTorch has it; True is refused, tensors are values.

    Example:
        >>> sg.Session().run(sg.nn.SiLU()(sg.constant([-1.0, 0.0, 1.0]))).round(3)
        array([-0.269,  0.   ,  0.731], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        refuse_in_place("SiLU", inplace)

    def forward(self, input: TensorLike) -> Tensor:
        return F.silu(input)


class Softplus(Module):
    """log(1 + exp(beta·x)) / beta; x where beta·x is above the threshold.

    Args:
        beta: the larger, the nearer to max(x, 0).
        threshold: of beta·x, above which the result is x.

    Example:
        >>> sg.Session().run(sg.nn.Softplus()(sg.constant([-1.0, 0.0, 30.0]))).round(3)
        array([ 0.313,  0.693, 30.   ], dtype=float32)
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = number(beta, "Softplus: beta"), number(threshold, "Softplus: threshold")

    def forward(self, input: TensorLike) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class Tanh(Module):
    """The hyperbolic tangent.

    Example:
        >>> sg.Session().run(sg.nn.Tanh()(sg.constant([0.0, 1.0]))).round(3)
        array([0.   , 0.762], dtype=float32)
    """

    def forward(self, input: TensorLike) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> sg.Session().run(sg.nn.Sigmoid()(sg.constant([0.0, 1.0]))).round(3)
        array([0.5  , 0.731], dtype=float32)
    """

    def forward(self, input: TensorLike) -> Tensor:
        return F.sigmoid(input)


class Softmax(Module):
    """exp(x) / Σ exp(x) along the axis ``dim``.

    Args:
        dim: the axis along which results add up to 1.

    Example:
        >>> sg.Session().run(sg.nn.Softmax(dim=-1)(sg.constant([[0.0, 0.0], [0.0, 1.0]]))).round(3)
        array([[0.5  , 0.5  ],
               [0.269, 0.731]], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: TensorLike) -> Tensor:
        return F.softmax(input, self.dim)


class LogSoftmax(Module):
    """x - log Σ exp(x) along the axis ``dim``.

    Args:
        dim: the axis along which the exponentials of results add up to 1.

    Example:
        >>> sg.Session().run(sg.nn.LogSoftmax()(sg.constant([0.0, 0.0, 100.0])))
        array([-100., -100.,    0.], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, input: TensorLike) -> Tensor:
        return F.log_softmax(input, self.dim)


class Flatten(Module):
    """The axes from ``start_dim`` to ``end_dim`` as one: by default (N, …) to (N, features).

    Args:
        start_dim: the first of the axes that become one.
        end_dim: the last of them.

    Example:
        >>> sg.nn.Flatten()(sg.zeros((8, 3, 4, 4))).shape
        (8, 48)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: TensorLike) -> Tensor:
        return FUNCTIONS.flatten(input, self.start_dim, self.end_dim)


def _window(layer: str, kernel_size: Sizes, stride: Sizes | None, padding: Sizes) -> tuple[Pair, Pair | None, Pair]:
    """Kernel, stride and padding of a pooling, each for both axes."""
    steps = None if stride is None else pair(stride, f"{layer}: stride", 1)
    return pair(kernel_size, f"{layer}: kernel_size", 1), steps, pair(padding, f"{layer}: padding")


class MaxPool2d(Module):
    """The largest element of each window of (N, C, H, W) or (C, H, W); ``stride`` None: windows side by side. With
    ``return_indices`` a pair, of the elements and of their places in the image.

    Args:
        kernel_size: the sizes of the window (KH, KW), or one number for both; so are the others.
        stride: how far the window moves between two results; None: windows side by side.
        padding: rows and columns of -∞ put around the input at each side.
        dilation: the distance between neighbours in the window.
        return_indices: give a pair, of the elements and of their places in the image.
        ceil_mode: windows that begin inside of the input and end outside count.

    Example:
        >>> sg.nn.MaxPool2d(3, stride=2, padding=1)(sg.zeros((8, 3, 32, 32))).shape
        (8, 3, 16, 16)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride, self.padding = _window("MaxPool2d", kernel_size, stride, padding)
        self.dilation = pair(dilation, "MaxPool2d: dilation", 1)
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: TensorLike) -> Tensor:  # a pair with return_indices, which unpacks to tensors as well
        window = (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return cast(Tensor, F.max_pool2d(input, *window, return_indices=self.return_indices))


class AvgPool2d(Module):
    """The mean of each window of (N, C, H, W) or (C, H, W); ``stride`` None: windows side by side.

    Args:
        kernel_size: the sizes of the window (KH, KW), or one number for both; so are the others.
        stride: how far the window moves between two results; None: windows side by side.
        padding: rows and columns of zeros put around the input at each side.
        ceil_mode: windows that begin inside of the input and end outside count.
        count_include_pad: the padding counts as elements of the mean.
        divisor_override: what sums are divided by; None: the number of elements.

    Example:
        >>> sg.nn.AvgPool2d(2)(sg.zeros((8, 3, 32, 32))).shape
        (8, 3, 16, 16)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        self.kernel_size, self.stride, self.padding = _window("AvgPool2d", kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: TensorLike) -> Tensor:
        window = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        return F.avg_pool2d(input, *window, self.count_include_pad, self.divisor_override)


class AdaptiveAvgPool2d(Module):
    """Means over windows that share an image (N, C, H, W) out evenly into ``output_size``; None keeps a size.

    Args:
        output_size: (H, W) of the result, or one number for both; None keeps a size.

    Example:
        >>> sg.nn.AdaptiveAvgPool2d((1, None))(sg.zeros((8, 16, 7, 5))).shape
        (8, 16, 1, 5)
    """

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        self.output_size = output_size

    def forward(self, input: TensorLike) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)
