"""Convolutions as layers."""

from __future__ import annotations

import math
from typing import Literal, get_args

from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTypeLike, float32, integer
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.nn import functional as F
from staticgrad.nn import initializers as init
from staticgrad.nn.layers.affine import WEIGHT, fan_bound
from staticgrad.nn.module import Module, parameter, repr_of
from staticgrad.ops.convolution import Sizes, along, pair, window_padding

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


def _filters(
    layer: str, channels: tuple[int, int], groups: int, kernel: tuple[int, ...], dtype: DTypeLike
) -> tuple[Tensor, init.Initializer]:
    """Weights (channels[0], channels[1] / groups, *kernel), and what their biases begin with."""
    first, second = (integer(count, f"{layer}: channels", 0) for count in channels)
    groups = integer(groups, f"{layer}: groups", 1)
    if first % groups or second % groups:
        raise GraphError(f"{layer}: {first} and {second} channels do not fall into {groups} groups")
    shape = (first, second // groups, *kernel)
    return parameter(WEIGHT, shape, dtype), fan_bound(math.prod(shape[1:]))


class _ConvolutionLayer(Module):
    """The base of convolutions over one and two axes: all but the function that computes them."""

    _axes = 0
    padding_mode: PaddingMode

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | Literal["same", "valid"] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        layer = type(self).__name__
        if padding_mode not in get_args(PaddingMode):
            raise GraphError(f"{layer}: padding_mode={padding_mode!r}: expected one of {get_args(PaddingMode)}")
        self.kernel_size = along(kernel_size, self._axes, f"{layer}: kernel_size", 1)
        self.stride = along(stride, self._axes, f"{layer}: stride", 1)
        self.dilation = along(dilation, self._axes, f"{layer}: dilation", 1)
        window_padding(padding, self.kernel_size, self.stride, self.dilation, layer)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.padding, self.padding_mode = padding, padding_mode
        self.weight, first = _filters(layer, (out_channels, in_channels), groups, self.kernel_size, dtype)
        self.bias = parameter(first, (out_channels,), dtype) if bias else None

    def _framed(self, input: TensorLike) -> tuple[TensorLike, Sizes | Literal["same", "valid"]]:
        """The input with what the padding mode puts around it, and the padding with zeros that is left."""
        if self.padding_mode == "zeros":
            return input, self.padding
        around = window_padding(self.padding, self.kernel_size, self.stride, self.dilation, type(self).__name__)
        widths = [width for both in reversed(around) for width in both]
        return F.pad(input, widths, self.padding_mode), 0

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, {repr_of(kernel_size=self.kernel_size)}"


class Conv1d(_ConvolutionLayer):
    """One-dimensional convolution of (N, in_channels, L) or (in_channels, L), as ``nn.conv1d``.

    Its ``weight`` is (out_channels, in_channels / groups, kernel_size), its ``bias`` (out_channels,).

    Args:
        in_channels: the channels of the input.
        out_channels: the channels of the result.
        kernel_size: the number of elements that a result sees.
        stride: how far the kernel moves between two results.
        padding: elements put around the input at each side; ``"same"`` keeps its size (stride 1 only).
        dilation: the distance between neighbours in the kernel.
        groups: results of a group see the channels of that group alone; it divides both numbers of channels.
        bias: whether there is one.
        padding_mode: what is put around: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        dtype: of the parameters.

    Raises:
        GraphError: channels that do not fall into the groups, a kernel without elements.

    Example:
        >>> conv = sg.nn.Conv1d(3, 16, kernel_size=5, padding=2)
        >>> conv(sg.zeros((8, 3, 100))).shape, conv.weight.shape
        ((8, 16, 100), (16, 3, 5))
    """

    _axes = 1

    def forward(self, input: TensorLike) -> Tensor:
        x, padding = self._framed(input)
        return F.conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_ConvolutionLayer):
    """Two-dimensional convolution of (N, in_channels, H, W) or (in_channels, H, W), as ``nn.conv2d``.

    Its ``weight`` is ``(out_channels, in_channels / groups, *kernel_size)``, its ``bias`` (out_channels,).

    Args:
        in_channels: the channels of the input.
        out_channels: the channels of the result.
        kernel_size: (KH, KW), or one number for both; so are stride, padding and dilation.
        stride: how far the kernel moves between two results.
        padding: elements put around the input at each side; ``"same"`` keeps its size (stride 1 only).
        dilation: the distance between neighbours in the kernel.
        groups: results of a group see the channels of that group alone; it divides both numbers of channels.
        bias: whether there is one.
        padding_mode: what is put around: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        dtype: of the parameters.

    Raises:
        GraphError: channels that do not fall into the groups, a kernel without elements.

    Example:
        >>> conv = sg.nn.Conv2d(3, 16, kernel_size=3, stride=2, padding=1)
        >>> conv(sg.zeros((8, 3, 32, 32))).shape
        (8, 16, 16, 16)
        >>> {name: p.shape for name, p in conv.named_parameters()}
        {'weight': (16, 3, 3, 3), 'bias': (16,)}
    """

    _axes = 2

    def forward(self, input: TensorLike) -> Tensor:
        x, padding = self._framed(input)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class ConvTranspose2d(Module):
    """The transpose of a convolution, as ``nn.conv_transpose2d``: (N, in_channels, H, W) to a larger image.

    Its ``weight`` is ``(in_channels, out_channels / groups, *kernel_size)``, its ``bias`` (out_channels,).

    Args:
        in_channels: the channels of the input.
        out_channels: the channels of the result.
        kernel_size: (KH, KW), or one number for both; so are stride, padding, output_padding and dilation.
        stride: the distance at which elements of the input stand in the result.
        padding: rows and columns taken away at each side of the result.
        output_padding: rows and columns added at its end, where a stride leaves several sizes possible.
        groups: results of a group see the channels of that group alone; it divides both numbers of channels.
        bias: whether there is one.
        dilation: the distance between neighbours in the kernel.
        padding_mode: ``"zeros"``, the only one.
        dtype: of the parameters.

    Raises:
        GraphError: channels that do not fall into the groups, a kernel without elements.

    Example:
        >>> conv = sg.nn.ConvTranspose2d(16, 3, kernel_size=4, stride=2, padding=1)
        >>> conv(sg.zeros((8, 16, 16, 16))).shape, conv.weight.shape
        ((8, 3, 32, 32), (16, 3, 4, 4))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: Literal["zeros"] = "zeros",
        *,
        dtype: DTypeLike = float32,
    ) -> None:
        layer = type(self).__name__
        if padding_mode != "zeros":
            raise GraphError(f"{layer}: padding_mode={padding_mode!r}: expected 'zeros'")
        kernel = pair(kernel_size, f"{layer}: kernel_size", 1)
        self.groups = groups
        self.stride, self.dilation = pair(stride, f"{layer}: stride", 1), pair(dilation, f"{layer}: dilation", 1)
        self.padding = pair(padding, f"{layer}: padding")
        self.output_padding = pair(output_padding, f"{layer}: output_padding")
        self.weight, first = _filters(layer, (in_channels, out_channels), groups, kernel, dtype)
        self.bias = parameter(first, (out_channels,), dtype) if bias else None

    def forward(self, input: TensorLike) -> Tensor:
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )
