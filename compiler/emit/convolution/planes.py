"""The planes of an image as the taps of a filter see them, copied.

Input: some channels of some images, plane by plane or channels last, of which a block of output rows is worked on (a
*segment*). Output: the copies that ``Planes`` describes.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.convolution.plane_tile import frame_rows
from staticgrad.compiler.emit.convolution.prefetch import PrefetchRuns
from staticgrad.compiler.emit.convolution.taps import within
from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import fill_zero, span
from staticgrad.compiler.emit.parallel import divide, unravel
from staticgrad.compiler.plans.convolution.planes import Planes, Segments
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


def segment_at(segments: Segments, f: Function, number: Index) -> Segment:
    """The segment with this number."""
    if segments.together > 1:
        low = f.mul(number, segments.together)
        return Segment((low, f.min(f.add(low, segments.together), segments.batch)), (0, segments.height), number)
    image, block = divide(f, number, -(-segments.height // segments.rows))
    row = f.mul(block, segments.rows)
    return Segment((image, f.add(image, 1)), (row, f.min(f.add(row, segments.rows), segments.height)), number)


def tap_offset(planes: Planes, f: Function, i: Index, j: Index) -> Index:
    """The offset at which tap (i, j) finds the first pixel of the block, from the first plane of a channel on."""
    kw, width = planes.kernel.kernel[1], planes.kernel.out_width
    later, of_class = divide(f, i, planes.classes)
    place = f.add(f.mul(of_class, kw * planes.pitch), f.mul(later, planes.jump * width))
    return f.add(place, f.mul(j, planes.pitch))


def bring_planes(
    planes: Planes, writer: ConvolutionWriter, to: Value, rows: Range, first: Index, segment: Segment, fewest: int = 0
) -> None:
    """Copy the planes of some rows of tiles for a segment; ``first`` is the first channel of the group. The planes
    of row ``rows[0]`` go to ``to``. There are at least ``fewest`` rows."""
    f, kw = writer.f, planes.kernel.kernel[1]
    if planes.by_pixel:
        channels = f.sub(rows[1], rows[0])
        widths = (f.sub(high, low) for low, high in (_columns(planes, f, j) for j in range(kw)))
        squares = all(isinstance(width, int) and width >= fewest for width in widths)
        with span(f, 0, planes.classes) as of_class, span(f, 0, kw) as j:
            start = writer.at(to, (f.add(f.mul(of_class, kw), j), planes.pitch))
            least = fewest if squares else 0
            _bring(planes, writer, start, f.add(first, rows[0]), channels, of_class, j, segment, least)
        return
    numbers = (f.mul(rows[0], planes.of_row), f.mul(rows[1], planes.of_row))
    with span(f, *numbers) as number:
        channel, of_class, j = unravel(f, number, (0, planes.classes, kw))
        start = writer.at(to, (f.sub(number, numbers[0]), planes.pitch))
        _fetch(planes, writer, f.add(f.add(first, channel), 1), f.add(f.mul(of_class, kw), j), segment)
        _bring(planes, writer, start, f.add(first, channel), 1, of_class, j, segment)


def _fetch(planes: Planes, writer: ConvolutionWriter, channel: Index, part: Index, segment: Segment) -> None:
    """Prefetch a part of a channel, one for each plane that is copied of it: it lies far from the one before."""
    kernel = planes.kernel
    s_n, s_c, s_h, _ = kernel.x_strides
    far = abs(planes.rows * kernel.stride[0] * s_h) * writer.dtype.itemsize
    start = writer.at(writer.first, (channel, s_c), (segment.rows[0], kernel.stride[0] * s_h))
    # Rows of a broadcast image are the same ones.
    PrefetchRuns(start, max(1, far), ((segment.images, s_n),)).ask(writer, part, planes.each)


def _columns(planes: Planes, f: Function, j: Index) -> Range:
    """The columns of a plane that tap column j finds in the image."""
    left = f.sub(f.mul(j, planes.kernel.dilation[1]), planes.kernel.padding[1])
    return within(f, left, planes.kernel.stride[1], planes.kernel.width, planes.kernel.out_width)


def _bring(
    planes: Planes, writer: ConvolutionWriter, to: Value, channel: Index, channels: Index, of_class: Index, j: Index,
    segment: Segment, fewest: int = 0,
) -> None:  # fmt: skip
    """Copy the plane of one class and column of taps, of some channels: where there are several, through register
    transposes, which need ``fewest`` channels."""
    f, kernel, images = writer.f, planes.kernel, segment.images
    (down, across), (above, before), (s_n, s_c, s_h, s_w) = kernel.stride, kernel.padding, kernel.x_strides
    top = f.add(f.mul(segment.rows[0], down), f.sub(f.mul(of_class, kernel.dilation[0]), above))
    left = f.sub(f.mul(j, kernel.dilation[1]), before)
    height = f.add(f.sub(segment.rows[1], segment.rows[0]), planes.further)
    rows, columns = within(f, top, down, kernel.height, height), _columns(planes, f, j)
    high, wide = f.sub(rows[1], rows[0]), f.sub(columns[1], columns[0])
    whole, covered = f.mul(height, kernel.out_width), f.mul(high, wide)
    source = writer.at(writer.first, (channel, s_c), (f.add(f.mul(rows[0], down), top), s_h))
    source = writer.at(source, (f.add(f.mul(columns[0], across), left), s_w))
    apart = planes.each * planes.pitch
    with span(f, *images) as image:
        target = writer.at(to, (f.sub(image, images[0]), planes.image))
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
