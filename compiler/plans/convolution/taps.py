"""The geometry of a convolution and of its transpose by data: which taps of a filter reach which pixels of a result.

The transpose with strides above one falls into *phases*: pixels with equal remainders, each a forward convolution of
its own, of stride one, with the taps that reach them. The convolution itself is one phase.
"""

from __future__ import annotations

from dataclasses import replace

from staticgrad.base.extents import at_most, highest, is_open
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.images import Image, WeightStrides, is_depthwise, most, unaliased, x_image


@frozen
class Taps:
    """The taps along one axis that reach the pixels ``first + t·spacing`` of a result, t < count.

    In the frame they are read at ``origin + t·step + u·dilation``, u < number; tap u is element ``start + u·stride``
    of the weights' axis.
    """

    first: int
    spacing: int
    count: int
    origin: int
    step: int
    dilation: int
    number: int
    start: int
    stride: int


def _forward_taps(kernel: Convolution, axis: int) -> Taps:
    """All taps of one axis of a forward convolution."""
    size = (kernel.out_height, kernel.out_width)[axis]
    return Taps(0, 1, size, 0, kernel.stride[axis], kernel.dilation[axis], kernel.kernel[axis], 0, 1)


def _backward_taps(kernel: Convolution, axis: int) -> tuple[tuple[Taps, ...], int, int]:
    """The phases of one axis of the transpose by data, the frame's first pixel of y, and its size.

    Pixel h of x gets y[p]·w[i] where p·stride + i·dilation − padding = h. For h = first + t·stride these are the taps
    with first + padding − i·dilation a multiple of the stride; the last of them reads the first pixel of y.
    """
    size = (kernel.height, kernel.width)[axis]
    stride, dilation, padding = kernel.stride[axis], kernel.dilation[axis], kernel.padding[axis]
    phases, low, high = [], [], []
    for first in range(min(stride, size)):
        reach = [i for i in range(kernel.kernel[axis]) if (first + padding - i * dilation) % stride == 0]
        count = -(-(size - first) // stride)
        if not reach:
            phases.append(Taps(first, stride, count, 0, 1, 1, 0, 0, 1))
            continue
        apart = reach[1] - reach[0] if len(reach) > 1 else 1
        origin = (first + padding - reach[-1] * dilation) // stride
        phases.append(Taps(first, stride, count, origin, 1, max(1, apart * dilation // stride), len(reach),
                            reach[-1], -apart))  # fmt: skip
        low.append(origin)
        high.append(((first + padding - reach[0] * dilation) // stride, count))
    start = min(low, default=0)
    moved = (replace(taps, origin=taps.origin - start if taps.number else 0) for taps in phases)
    end = max((highest(last + count) for last, count in high), default=1)
    if is_open(size):  # all of y at least; no phase has more pixels than the first
        y = (kernel.out_height, kernel.out_width)[axis]
        end = y + max(0, most(max((last for last, _ in high), default=1) + phases[0].count - y))
    return tuple(moved), start, end - start


def forward_geometry(kernel: Convolution) -> tuple[Image, list[tuple[Taps, Taps]]]:
    """The framed image and the taps of every phase."""
    if kernel.direction != "input_grad":
        return x_image(kernel), [(_forward_taps(kernel, 0), _forward_taps(kernel, 1))]
    vertical, top, height = _backward_taps(kernel, 0)
    horizontal, left, width = _backward_taps(kernel, 1)
    groups = 1 if is_depthwise(kernel) else kernel.groups
    channels = kernel.filters // groups
    image = Image(kernel.dtype, groups, channels, (kernel.out_height, kernel.out_width), kernel.y_strides,
                   (-top, -left), height, width, unaliased(kernel.dtype, channels))  # fmt: skip
    return image, [(v, h) for v in vertical for h in horizontal]


def phase_weights(kernel: Convolution, taps: tuple[Taps, Taps]) -> WeightStrides:
    o, c, i, j = kernel.w_strides
    plain = kernel.direction != "input_grad" or is_depthwise(kernel)  # depthwise, o numbers both channels and filters
    out, channel = (o, c) if plain else (c, o)
    start = taps[0].start * i + taps[1].start * j
    return WeightStrides(
        start, kernel.filters // kernel.groups * o, out, channel, taps[0].stride * i, taps[1].stride * j
    )


def beside(taps: Taps, image: Image) -> tuple[int, int]:
    """The numbers of taps of a row that lie left of the image for its first pixel, and of others right of it for its
    last. Nothing is said of the pixels between, which may have such taps too."""
    low, high = image.offset[1], image.offset[1] + image.size[1]
    first = [taps.origin + u * taps.dilation for u in range(taps.number)]
    last = (taps.count - 1) * taps.step
    left = sum(column < low for column in first)
    return left, min(taps.number - left, sum(column + last >= high for column in first))


def all_inside(taps: Taps, image: Image) -> bool:
    """True if every row that a phase reads is in the image."""
    last = taps.origin + (taps.count - 1) * taps.step + (taps.number - 1) * taps.dilation
    return image.offset[0] <= taps.origin and at_most(last + 1, image.offset[0] + image.size[0])
