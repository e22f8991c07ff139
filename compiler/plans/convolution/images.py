"""Operands of convolutions of all directions as values: framed images, and weights as strides.

Input: an image tensor in any order of axes. Output: the form that tiles read, channels last as ``[group][row][column]
[channel]``, framed with zeros; each image is copied there when it is needed, or read in place where it already has that
form and needs no frame.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from staticgrad.base.extents import OpenSizeError, at_most, is_open, is_same, open_sizes, value_at
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import LINE

Strides = tuple[int, int, int, int]  # of the four indices of an image or of weights
Kind = Literal["forward", "weights"]


ALIAS = 2048  # pixels a multiple of this many bytes apart share few sets of the first cache: conflict misses


@frozen
class Image:
    """An image tensor and the framed channels-last copy that the tiles read.

    Pixel (u, v) of the source stands at (u, v) + offset in a frame of ``height`` × ``width`` pixels.
    """

    dtype: np.dtype
    groups: int
    channels: int  # of one group
    size: tuple[int, int]
    strides: tuple[int, int, int, int]  # n, c, h, w
    offset: tuple[int, int]
    height: int
    width: int
    apart: int  # elements from one pixel of the copy to the next, at least the channels
    padded: bool = False  # more channels of a pixel are read than there are: so it is always copied

    @staticmethod
    def unframed(
        dtype: np.dtype, channels: int, size: tuple[int, int], strides: tuple[int, int, int, int], apart: int = 0,
        padded: bool = False,
    ) -> Image:  # fmt: skip
        """An image that no tap leaves, all channels one group."""
        return Image(dtype, 1, channels, size, strides, (0, 0), *size, apart or channels, padded)

    @property
    def in_place(self) -> bool:
        inside = at_most(self.height, self.size[0]) and at_most(self.width, self.size[1])
        plain = inside and self.offset == (0, 0) and self.groups == 1 and not self.padded
        return plain and (self.strides[1] == 1 or self.channels == 1)

    @property
    def pixel(self) -> int:
        """Elements from one pixel to the next in a row."""
        return self.strides[3] if self.in_place else self.apart

    @property
    def row(self) -> int:
        return self.strides[2] if self.in_place else self.width * self.pixel

    @property
    def group(self) -> int:
        return self.height * self.width * self.pixel

    @property
    def elements(self) -> int:
        """Elements of the copy of one image."""
        return 0 if self.in_place else self.groups * self.group

    @property
    def pitch(self) -> int:
        """Elements from one image to the next, as they are read."""
        return self.strides[0] if self.in_place else self.elements

    def inside(self, axis: int) -> tuple[int, int]:
        """The range of source pixels along ``axis`` that fall into the frame."""
        offset, frame = self.offset[axis], (self.height, self.width)[axis]
        low = max(0, -offset)
        return low, max(low, min(self.size[axis], frame - offset))

    def covered(self) -> bool:
        """True if the copy writes every element of the frame."""
        (h0, h1), (w0, w1) = self.inside(0), self.inside(1)
        whole = is_same(h1 - h0, self.height) and is_same(w1 - w0, self.width)
        return whole and self.pixel == self.channels


@frozen
class WeightStrides:
    """Weights as (group, out, in, i, j) strides from an offset; ``out`` and ``input`` are those of the computation."""

    offset: int
    group: int
    out: int
    input: int
    i: int
    j: int

    def taps(self, kernel: tuple[int, int]) -> int | None:
        """The one stride of the taps i·kw + j, if they have one."""
        if kernel[0] == 1 or self.i == kernel[1] * self.j:
            return self.j
        return self.i if kernel[1] == 1 else None


def kind_of(kernel: Convolution) -> Kind:
    """The kind of a depthwise kernel's tiles."""
    return "weights" if kernel.direction == "weight_grad" else "forward"


def is_depthwise(kernel: Convolution) -> bool:
    """One channel and one filter a group: there is nothing to sum over but taps."""
    return kernel.groups > 1 and kernel.groups == kernel.channels == kernel.filters and kernel.dtype.kind == "f"


def x_image(kernel: Convolution) -> Image:
    """x, framed by its padding."""
    height, width = (_frame_size(kernel, axis) for axis in range(2))
    groups = 1 if is_depthwise(kernel) else kernel.groups
    channels = kernel.channels // groups
    return Image(kernel.dtype, groups, channels, (kernel.height, kernel.width), kernel.x_strides,
                 kernel.padding, height, width, unaliased(kernel.dtype, channels, kernel.stride[1]))  # fmt: skip


def _frame_size(kernel: Convolution, axis: int) -> int:
    """The pixels along an axis of the frame of x that taps read; with a stride of an open size as many more as all of x
    needs, as the last ones of a row may be read or not."""
    count, stride = (kernel.out_height, kernel.out_width)[axis], kernel.stride[axis]
    reach = (count - 1) * stride + (kernel.kernel[axis] - 1) * kernel.dilation[axis] + 1
    if stride == 1 or not is_open(reach):
        return reach
    size = (kernel.height, kernel.width)[axis] + kernel.padding[axis]
    return size + max(0, most(reach - size))


def most(extent: int) -> int:
    """The greatest number of an extent of one open size.

    Raises:
        OpenSizeError: it has several.
    """
    if not is_open(extent):
        return extent
    if len(sizes := open_sizes(extent)) != 1:
        raise OpenSizeError(f"{extent} depends on several sizes", extent)
    (size,) = sizes
    return max(value_at(extent, [number] * (size.number + 1)) for number in range(size.low, size.high + 1))


def unaliased(dtype: np.dtype, channels: int, stride: int = 1) -> int:
    """Elements from one pixel of a copy to the next, of which a tile reads some at a fixed distance: a line more than
    its channels where those would fall into few sets of the cache."""
    return channels + (LINE // dtype.itemsize if channels * stride * dtype.itemsize % ALIAS == 0 else 0)


def is_run(image: Image, taps: int, dilation: int) -> bool:
    return taps == 1 or (dilation == 1 and image.pixel == image.channels)


def has_open_images(kernel: Convolution) -> bool:
    """True if the height or width of images is open."""
    return any(map(is_open, (kernel.height, kernel.width, kernel.out_height, kernel.out_width)))


def are_planes(kernel: Convolution) -> bool:
    """True if the pixels of a row are contiguous in x and in y, as in images that users hold."""
    return kernel.x_strides[3] == kernel.y_strides[3] == 1


def inputs_and_outputs(kernel: Convolution) -> tuple[int, int]:
    """The channels of one group that a kernel forward or by data reads and writes."""
    inputs, outputs = kernel.of_group
    return (outputs, inputs) if kernel.direction == "input_grad" else (inputs, outputs)


def row_major_weights(kernel: Convolution) -> Strides:
    """The strides of weights in scratch memory."""
    (kh, kw), channels = kernel.kernel, kernel.of_group[0]
    return channels * kh * kw, kh * kw, kw, 1
