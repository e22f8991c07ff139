"""The planes of an image as the taps of a filter see them: ``[channel][class][j][image][row][column]``.

For each tap column j there is a copy of each plane, moved by the tap, as wide as the output and with zeros for what
lies outside the image, so that what one tap reads for all pixels of the block is one contiguous run. Tap rows i read
the same copy some rows further on; where the stride lets them reach other rows of the image, there is a copy for each
*class* of them. This is the unfolding of an image (im2col; Chellapilla, Puri and Simard, "High performance
convolutional neural networks for document processing", IWFHR 2006), less the copies that differ by whole rows;
``unfolded`` keeps these too, so that all taps of a channel are evenly spaced.
"""

from __future__ import annotations

import math

import numpy as np

from staticgrad.base.extents import highest, largest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.convolution.images import has_open_images, is_depthwise
from staticgrad.compiler.plans.tiles import USUAL_ROWS

MANY_WEIGHTS = 3 << 19  # bytes of all weights from which planes are made even of channels that are next to each other


@frozen
class Segments:
    """The images in segments: some images each, or a block of rows of one."""

    batch: int
    height: int  # of y
    together: int  # images of a segment
    rows: int  # of y in a segment, all where it has several images

    @staticmethod
    def of(kernel: Convolution, most: int) -> Segments:
        """Cut a batch into balanced segments of at most about ``most`` pixels each."""
        height, rows = kernel.out_height, max(1, most // kernel.out_width)
        together = max(1, min(highest(kernel.batch), rows // height))
        return Segments(kernel.batch, height, together, -(-height // -(-height // min(rows, height))))

    @property
    def number(self) -> int:
        return -(-self.batch // self.together) * -(-self.height // self.rows)

    @property
    def text(self) -> str:
        """The number of segments and of their rows."""
        return f"{self.number} segments of {self.rows} rows"

    @property
    def fewest(self) -> int:
        """The rows of the segment that has the fewest."""
        return min(self.rows, self.height % self.rows or self.rows)


def odd_lines(elements: int, dtype: np.dtype) -> int:
    """A number of elements, rounded up to an odd number of cache lines: rows that a tile reads at once share no set of
    the cache."""
    line = max(1, LINE // dtype.itemsize)
    return (-(-elements // line) | 1) * line


@frozen
class Planes:
    """The layout of the copies of planes; sizes are elements. Tap row i is of class ``i % classes``."""

    kernel: Convolution
    images: int  # at a time
    rows: int  # of the output at a time
    unfolded: bool  # each tap is a row of tiles
    classes: int
    jump: int  # rows between two taps of a class

    @staticmethod
    def of(kernel: Convolution, segments: Segments, unfolded: bool) -> Planes:
        stride, dilation, taps = kernel.stride[0], kernel.dilation[0], kernel.kernel[0]
        common = math.gcd(stride, dilation)
        classes = taps if unfolded else min(taps, stride // common)
        return Planes(kernel, segments.together, segments.rows, unfolded, classes, dilation // common)

    @property
    def each(self) -> int:
        """Planes of one channel."""
        return self.classes * self.kernel.kernel[1]

    @property
    def of_row(self) -> int:
        """Planes of a row of tiles."""
        return 1 if self.unfolded else self.each

    @property
    def by_pixel(self) -> bool:
        """True if the channels of a pixel are next to each other, and are copied together."""
        return self.kernel.x_strides[1] == 1 and self.kernel.x_strides[3] != 1 and not self.unfolded

    @property
    def further(self) -> int:
        """The number of rows that a plane has besides those of the block."""
        return (self.kernel.kernel[0] - 1) // self.classes * self.jump

    @property
    def image(self) -> int:
        """The distance from one image to the next in a plane."""
        return (self.rows + self.further) * self.kernel.out_width

    @property
    def pitch(self) -> int:
        """The distance from one plane to the next."""
        return odd_lines(self.images * self.image, self.kernel.dtype)


def pixels_of(kernel: Convolution) -> int:
    """The pixels of y in all images, of known height and width."""
    return highest(kernel.batch) * kernel.out_height * kernel.out_width


def has_y_by_planes(kernel: Convolution) -> bool:
    """True if the pixels of a plane of y are contiguous."""
    _, _, s_p, s_q = kernel.y_strides
    return s_q == 1 and (s_p == kernel.out_width or kernel.out_height == 1)


def reads_planes(kernel: Convolution, target: Target) -> bool:
    """True if several taps read each pixel of x, and its planes can be copied by vectors: because they are contiguous,
    or the channels of a pixel are. Channels last, turning planes pays where the weights outgrow the second cache, so
    that sums must not be passed through once for each block of rows. Images of open sizes are not moved plane by
    plane."""
    if kernel.direction != "weight_grad" or kernel.kernel == (1, 1) or is_depthwise(kernel) or has_open_images(kernel):
        return False
    kernel = largest(kernel)
    by_row = kernel.x_strides[3] == 1 or kernel.width == 1
    channels, _ = kernel.of_group
    weights = kernel.filters * channels * math.prod(kernel.kernel) * kernel.dtype.itemsize
    by_pixel = kernel.x_strides[1] == 1 and channels >= USUAL_ROWS and weights >= target.sized(MANY_WEIGHTS)
    return (by_row or by_pixel) and pixels_of(kernel) > 0
