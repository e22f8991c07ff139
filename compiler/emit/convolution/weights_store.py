"""The weights that a transpose by weights stores: where they lie, and how sums in scratch memory are copied there.

Sums have filters next to each other as a rule, because those are the lanes of tiles; weights have them far apart. So
copies are transposes, of a few filters at a time where each has several pieces: their lines stay in the cache while
they are written.
"""

from __future__ import annotations

import contextlib

from staticgrad.compiler.emit.convolution.writer import ConvolutionWriter, Range
from staticgrad.compiler.emit.llvm import Function, Index, Value
from staticgrad.compiler.emit.microkernel import Matrix, span
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.plans.convolution.images import Strides, row_major_weights

STORE_FILTERS = 16  # whose weights are transposed together


def weights_of(writer: ConvolutionWriter) -> tuple[Value, Strides]:
    """The address and strides of the weights that the epilogue reads: in the result, or at the start of the scratch
    memory of a kernel that does not store it."""
    if writer.result is not None:
        return writer.result, writer.kernel.w_strides
    return writer.area("raw"), row_major_weights(writer.kernel)


def finish_weights(
    writer: ConvolutionWriter, sums: Value, filters: Range | None = None, channels: Range | None = None
) -> None:
    """Call the epilogue for some weights, or for all; those of a kernel that does not store them are at ``sums``."""
    kernel = writer.kernel
    ranges = [filters or (0, kernel.filters), channels or (0, kernel.of_group[0]), *((0, n) for n in kernel.kernel)]
    writer.finish(sums if writer.result is None else writer.result, ranges)


def store_sums(
    writer: ConvolutionWriter, sums: Value, strides: Strides, first: Index, count: Index, channels: Range | None = None,
    least: int = 0, along_source: bool = True,
) -> None:  # fmt: skip
    """Copy sums with these strides to the weights of ``count`` filters and some channels; that of the first of them is
    at ``sums``. Of channels and filters whose number is known only at run time there are ``least`` or more."""
    f, (base, weights) = writer.f, weights_of(writer)
    start, stop = channels or (0, writer.kernel.of_group[0])
    *outer, (size, to, source, fewest) = _axes(f, writer.kernel, weights, strides, f.sub(stop, start), least)
    base = writer.at(base, (first, weights[0]), (start, weights[1]))

    def store(filter_: Index, filters: Index) -> None:
        with contextlib.ExitStack() as loops:
            numbers = [loops.enter_context(span(f, 0, axis[0])) for axis in outer]
            at = writer.at(base, (filter_, weights[0]), *((n, axis[1]) for n, axis in zip(numbers, outer)))
            origin = writer.at(sums, (filter_, strides[0]), *((n, axis[2]) for n, axis in zip(numbers, outer)))
            target, lines = Matrix(at, to, weights[0]), Matrix(origin, source, strides[0])
            writer.copy(target, lines, size, filters, fewest, along_source)

    far = bool(outer) and weights[0] != 1 and isinstance(count, int)  # few at a time, in several pieces each
    whole = count // STORE_FILTERS * STORE_FILTERS if far and isinstance(count, int) else 0
    if whole:
        with span(f, 0, whole, STORE_FILTERS) as some:
            store(some, STORE_FILTERS)
    if whole != count:
        store(whole, f.sub(count, whole))


def _axes(
    f: Function, kernel: Convolution, weights: Strides, sums: Strides, channels: Index, least: int
) -> list[tuple[Index, int, int, int]]:
    """The lengths of the axes c, i and j, their strides in the weights and in the sums, and their least lengths; as few
    as they are on both sides, the one whose stride is shortest in the weights last."""
    found: list[tuple[Index, int, int, int]] = []
    sizes, fewest = (channels, *kernel.kernel), (least, *kernel.kernel)
    for axis in sorted(zip(sizes, weights[1:], sums[1:], fewest), key=lambda axis: -axis[2]):
        size, to, source, _ = axis
        if found and isinstance(size, int) and found[-1][1:3] == (size * to, size * source):
            found[-1] = (f.mul(found[-1][0], size), to, source, found[-1][3] * size)
        elif size != 1:
            found.append(axis)
    return sorted(found, key=lambda axis: -abs(axis[1])) or [(1, 0, 0, 1)]
