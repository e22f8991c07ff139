"""The weights that a transpose by weights stores: where they lie, and how sums in scratch memory are copied there.

Sums have filters next to each other, because those are the lanes of tiles; weights have them far apart, as a rule. So
copies are transposes of a few filters at a time, whose lines stay in the cache while they are written.
"""

from __future__ import annotations

from staticgrad.compiler.emit.convolution.images import ConvolutionWriter, WeightStrides
from staticgrad.compiler.emit.llvm import Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, span
from staticgrad.compiler.emit.parallel import unravel
from staticgrad.compiler.kernels.matrix import Convolution

STORE_FILTERS = 16  # whose weights are transposed together

Strides = tuple[int, int, int, int]  # of o, c, i, j


def row_major_weights(kernel: Convolution) -> Strides:
    """The strides of weights in scratch memory."""
    (kh, kw), channels = kernel.kernel, kernel.channels // kernel.groups
    return channels * kh * kw, kh * kw, kw, 1


def weights_of(writer: ConvolutionWriter) -> tuple[Value, Strides]:
    """The address and strides of the weights that the epilogue reads: in the result, or at the start of the scratch
    memory of a kernel that does not store it."""
    if writer.result is not None:
        return writer.result, writer.kernel.w_strides
    return writer.area("raw"), row_major_weights(writer.kernel)


def copy_weights(writer: ConvolutionWriter, to: tuple[Value, Strides], source: tuple[Value, Strides]) -> None:
    """Copy few weights, a row of taps at a time."""
    f, kernel = writer.f, writer.kernel
    sizes = (0, kernel.channels // kernel.groups, kernel.kernel[0])
    with span(f, 0, kernel.filters * sizes[1] * sizes[2]) as number:
        indices = unravel(f, number, sizes)
        target, origin = (
            Matrix(writer.at(base, *zip(indices, strides, strict=False)), 0, strides[3])
            for base, strides in (to, source)
        )
        writer.copy(target, origin, 1, kernel.kernel[1])


def store_weights(writer: ConvolutionWriter, source: Value, row: int) -> None:
    """Copy sums ``[i][j][c][filter]`` to the strides of w; from one (i, j, c) to the next are ``row`` elements."""
    f, filters = writer.f, writer.kernel.filters
    if _stored_taps(writer.kernel) is None:
        store_filters(writer, source, row, 0, filters)
        return
    # Few filters at a time, whose lines of w stay in the cache.
    whole = filters // STORE_FILTERS * STORE_FILTERS
    if whole:
        with span(f, 0, whole, STORE_FILTERS) as first:
            store_filters(writer, source, row, first, STORE_FILTERS)
    if whole < filters:
        store_filters(writer, source, row, whole, filters - whole)


def _stored_taps(kernel: Convolution) -> int | None:
    """The stride of the taps in w, where for each channel a matrix of taps × filters is transposed."""
    (kh, kw), (o, c, i, j) = kernel.kernel, kernel.w_strides
    taps = WeightStrides(0, 0, o, c, i, j).taps((kh, kw))
    return taps if kh * kw > 1 and c != 1 and o != 1 else None


def store_filters(writer: ConvolutionWriter, source: Value, row: int, first: Index, count: int) -> None:
    """Copy the sums of some filters."""
    f, (kh, kw), channels = writer.f, writer.kernel.kernel, writer.kernel.channels // writer.kernel.groups
    o, c, i, j = writer.kernel.w_strides
    origin = writer.at(source, (first, 1))
    result = writer.at(writer.result_pointer, (first, o))
    taps = _stored_taps(writer.kernel)
    if taps is not None:
        with span(f, 0, channels) as channel:
            to = Matrix(writer.at(result, (channel, c)), taps, o)
            writer.copy(to, Matrix(writer.at(origin, (channel, row)), channels * row, 1), kh * kw, count)
        return
    with span(f, 0, kh) as tap_i, span(f, 0, kw) as tap_j:
        to = Matrix(writer.at(result, (tap_i, i), (tap_j, j)), c, o)
        lines = writer.at(origin, (f.add(f.mul(tap_i, kw), tap_j), channels * row))
        writer.copy(to, Matrix(lines, row, 1), channels, count)
