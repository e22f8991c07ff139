"""The planes of an image as the taps of a filter see them: ``[channel][class][j][image][row][column]``.

Input: some channels of some images, plane by plane or channels last, of which a block of output rows is worked on.
Output: for each tap column j a copy of each plane, moved by the tap, as wide as the output and with zeros for what
lies outside the image, so that what one tap reads for all pixels of the block is one contiguous run. Tap rows i read
the same copy some rows further on; where the stride lets them reach other rows of the image, there is a copy for each
*class* of them. This is the unfolding of an image (im2col; Chellapilla, Puri and Simard, "High performance
convolutional neural networks for document processing", IWFHR 2006), less the copies that differ by whole rows;
``unfolded`` keeps these too, so that all taps of a channel are evenly spaced.
"""

from __future__ import annotations

import math

import numpy as np

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.images import ConvolutionWriter
from staticgrad.compiler.emit.convolution.plan import Range
from staticgrad.compiler.emit.convolution.plane_tile import frame_rows
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.taps import within
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.emit.parallel import divide, unravel
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.plans.tiles import tile_lanes


@frozen
class Segment:
    """The images and rows that are worked on at a time."""

    images: Range
    rows: Range  # of y
    number: Index = 0  # of the segment

    def pixels(self, f: Function, width: int) -> Index:
        """The number of pixels of y that an image has."""
        return f.mul(f.sub(self.rows[1], self.rows[0]), width)

    def count(self, f: Function) -> Index:
        """The number of images."""
        return f.sub(self.images[1], self.images[0])


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

    def at(self, f: Function, number: Index) -> Segment:
        if self.together > 1:
            low = f.mul(number, self.together)
            return Segment((low, f.min(f.add(low, self.together), self.batch)), (0, self.height), number)
        image, block = divide(f, number, -(-self.height // self.rows))
        row = f.mul(block, self.rows)
        return Segment((image, f.add(image, 1)), (row, f.min(f.add(row, self.rows), self.height)), number)


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

    def tap(self, f: Function, i: Index, j: Index) -> Index:
        """The offset at which tap (i, j) finds the first pixel of the block, from the first plane of a channel on."""
        kw, width = self.kernel.kernel[1], self.kernel.out_width
        later, of_class = divide(f, i, self.classes)
        place = f.add(f.mul(of_class, kw * self.pitch), f.mul(later, self.jump * width))
        return f.add(place, f.mul(j, self.pitch))

    def bring(
        self, writer: ConvolutionWriter, to: Value, rows: Range, first: Index, segment: Segment, fewest: int = 0
    ) -> None:
        """Copy the planes of some rows of tiles for a segment; ``first`` is the first channel of the group. The planes
        of row ``rows[0]`` go to ``to``. There are at least ``fewest`` rows."""
        f, kw = writer.f, self.kernel.kernel[1]
        if self.by_pixel:
            channels = f.sub(rows[1], rows[0])
            widths = (f.sub(high, low) for low, high in (self._columns(f, j) for j in range(kw)))
            squares = all(isinstance(width, int) and width >= fewest for width in widths)
            with span(f, 0, self.classes) as of_class, span(f, 0, kw) as j:
                start = writer.at(to, (f.add(f.mul(of_class, kw), j), self.pitch))
                self._bring(
                    writer, start, f.add(first, rows[0]), channels, of_class, j, segment, fewest if squares else 0
                )
            return
        numbers = (f.mul(rows[0], self.of_row), f.mul(rows[1], self.of_row))
        with span(f, *numbers) as number:
            channel, of_class, j = unravel(f, number, (0, self.classes, kw))
            start = writer.at(to, (f.sub(number, numbers[0]), self.pitch))
            self._fetch(writer, f.add(f.add(first, channel), 1), f.add(f.mul(of_class, kw), j), segment)
            self._bring(writer, start, f.add(first, channel), 1, of_class, j, segment)

    def _fetch(self, writer: ConvolutionWriter, channel: Index, part: Index, segment: Segment) -> None:
        """Prefetch a part of a channel, one for each plane that is copied of it: it lies far from the one before."""
        kernel = self.kernel
        s_n, s_c, s_h, _ = kernel.x_strides
        far = abs(self.rows * kernel.stride[0] * s_h) * writer.dtype.itemsize
        start = writer.at(writer.first, (channel, s_c), (segment.rows[0], kernel.stride[0] * s_h))
        # Rows of a broadcast image are the same ones.
        PrefetchRuns(start, max(1, far), ((segment.images, s_n),)).ask(writer, part, self.each)

    def _columns(self, f: Function, j: Index) -> Range:
        """The columns of a plane that tap column j finds in the image."""
        left = f.sub(f.mul(j, self.kernel.dilation[1]), self.kernel.padding[1])
        return within(f, left, self.kernel.stride[1], self.kernel.width, self.kernel.out_width)

    def _bring(
        self, writer: ConvolutionWriter, to: Value, channel: Index, channels: Index, of_class: Index, j: Index,
        segment: Segment,
        fewest: int = 0,
    ) -> None:  # fmt: skip
        """Copy the plane of one class and column of taps, of some channels: where there are several, through register
        transposes, which need ``fewest`` channels."""
        f, kernel, images = writer.f, self.kernel, segment.images
        (down, across), (above, before), (s_n, s_c, s_h, s_w) = kernel.stride, kernel.padding, kernel.x_strides
        top = f.add(f.mul(segment.rows[0], down), f.sub(f.mul(of_class, kernel.dilation[0]), above))
        left = f.sub(f.mul(j, kernel.dilation[1]), before)
        height = f.add(f.sub(segment.rows[1], segment.rows[0]), self.further)
        rows, columns = within(f, top, down, kernel.height, height), self._columns(f, j)
        high, wide = f.sub(rows[1], rows[0]), f.sub(columns[1], columns[0])
        whole, covered = f.mul(height, kernel.out_width), f.mul(high, wide)
        source = writer.at(writer.first, (channel, s_c), (f.add(f.mul(rows[0], down), top), s_h))
        source = writer.at(source, (f.add(f.mul(columns[0], across), left), s_w))
        apart = self.each * self.pitch
        with span(f, *images) as image:
            target = writer.at(to, (f.sub(image, images[0]), self.image))
            if covered != whole:
                with f.when(f.compare("icmp slt", f.index(covered), f.index(whole))), span(f, 0, channels) as c:
                    fill_zero(f, writer.dtype, writer.at(target, (c, apart)), whole)
            inside = writer.at(target, (rows[0], kernel.out_width), (columns[0], 1))
            origin = writer.at(source, (image, s_n))
            if channels == 1 and across * s_w == 2 and tile_lanes(f.target, writer.dtype) > 1:  # every second pixel
                shape = down * s_h, high, f.max(f.sub(f.mul(wide, 2), 1), 0)
                frame_rows(f, writer.dtype, 2, inside, inside, kernel.out_width, origin, *shape, 0, exact=True)
            else:
                axes = (channels, apart, s_c), (high, kernel.out_width, down * s_h), (wide, 1, across * s_w)
                writer.rearrange(inside, origin, *axes, least=fewest)
