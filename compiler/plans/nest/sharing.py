"""Chunks of a nest: along which outer dimension the work is cut for several threads, if there is enough of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.machine import LINE
from staticgrad.compiler.plans.chunks import cut, wanted_chunks
from staticgrad.compiler.plans.nest.axes import transposed_axis
from staticgrad.compiler.plans.nest.costs import VectorNest, seconds
from staticgrad.compiler.plans.nest.spans import Span

# Least bytes of each row of memory that a chunk of columns takes.
CHUNK_ROW_BYTES = 256
# Chunks into which the outermost loop must be cut so that inner loops are not looked at.
ENOUGH_CHUNKS = 12


@frozen
class NestChunks:
    """Chunks of ``size`` indices along the outer dimension ``dim``, the last one may be shorter. Every chunk starts
    where a turn of the loop does: it computes what the whole loop would."""

    dim: int
    size: int
    chunks: int


def share_of(
    v: VectorNest, order: Sequence[int], dims: Sequence[int], spans: Sequence[Span] = (), group: int = 1
) -> NestChunks | None:
    """The outermost of the loops ``dims`` that can be cut in enough chunks, else the one that gives most."""
    wanted = wanted_chunks(seconds(v), v.target)
    if wanted == 1:
        return None
    best: NestChunks | None = None
    across = transposed_axis(v.nest, v.facts, v.vector)
    for dim in dims:
        grain = max((span.step for span in spans), default=1) if dim == v.vector else 1
        grain = v.lanes if dim == across else grain
        if dim == v.vector and dim != order[0]:
            grain = _whole_lines(v, grain)
        grain = group if dim == order[len(v.nest.outer) - 1] and group > 1 else grain
        units, chunks = cut(-(-v.greatest.dims[dim] // grain), wanted)
        if chunks > (best.chunks if best is not None else 1):
            best = NestChunks(dim, units * grain, chunks)
        if best is not None and best.chunks >= min(wanted, ENOUGH_CHUNKS):
            break
    return None if best is None else replace(best, chunks=-(-v.nest.dims[best.dim] // best.size))


def _whole_lines(v: VectorNest, grain: int) -> int:
    """Columns of a chunk that visits all rows: a few lines of each, where a vector is less than one; then each line
    is read by one chunk, and memory gives the next ones by itv."""
    if v.target.isa.vector_bytes >= LINE:
        return grain
    elements = v.target.sized(CHUNK_ROW_BYTES) // max(arg.itemsize for arg in v.nest.args)
    return -(-max(1, elements) // grain) * grain
