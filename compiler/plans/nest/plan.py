"""The plan of a nest, as a value: in which order its loops run, along which axis its vectors lie, what is kept where.

Dimensions are numbered as in the simplified nest; ``order`` lists them from the outermost loop to the innermost.
A value's *level* is the number of loops around the place where it is computed.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.nest import Access, Load, Nest, Store
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.axes import is_far
from staticgrad.compiler.plans.nest.facts import Facts
from staticgrad.compiler.plans.nest.sharing import NestChunks
from staticgrad.compiler.plans.nest.spans import Span
from staticgrad.compiler.plans.nest.sweeps import Sweep

# Turns by which rows that are far apart are prefetched, where all together exceed a core's own cache: the processor's
# prefetchers stop at the end of a page.
AHEAD = 8
# Terms that an accumulator adds one after the other at most; longer sums are cut in blocks whose sums are then added.
LONGEST_CHAIN = 256


@frozen
class NestPlan:
    """``kept`` says where a value lives between sweeps: in an argument, or in scratch memory as argument -1 - i with
    ``scratch[i]`` its first byte. ``spans`` cut the vector axis where that is an outer one. Where loads run across the
    vectors, the axis ``across`` is cut in square tiles. ``contracted`` names the product that a sum takes in. ``group``
    rows, neighbours along the last outer loop, are run sweep by sweep. Loads whose turns along the dimension ``ahead``
    are far apart are prefetched. ``staged`` says where in scratch memory short rows are while a block of them is
    worked on, column by column. With ``panel`` all columns of a few rows are gathered from before the next rows are:
    it says where in scratch memory a reduction's accumulators are in between. With ``strip`` all vectors of that
    number of rows of ``across``, whose size is open, are run before the next rows are. Of an ordered nest, ``running``
    says where in scratch memory what a column has combined so far is, from one row to the next."""

    nest: Nest
    facts: Facts
    order: tuple[int, ...]
    levels: tuple[int, ...]
    vector: int | None
    lanes: int
    spans: tuple[Span, ...]
    sweeps: tuple[Sweep, ...]
    kept: dict[int, Access]
    scratch: tuple[int, ...]
    scratch_bytes: int
    contracted: dict[int, int]
    staged: dict[Access, Access]
    across: int | None = None
    share: NestChunks | None = None
    group: int = 1
    ahead: int | None = None
    panel: dict[int, Access] | None = None
    strip: int | None = None
    running: dict[int, Access] | None = None

    def reads_far_rows(self, target: Target) -> bool:
        """True if each turn of the innermost loop loads from a row of memory that is far away."""
        ahead = self.ahead
        return ahead is not None and any(is_far(self.nest, access, ahead, target) for access in self.loaded)

    @property
    def loaded(self) -> frozenset[Access]:
        """The accesses by which elements are loaded."""
        return self._reached(Load)

    @property
    def stored(self) -> frozenset[Access]:
        return self._reached(Store)

    def _reached(self, kind: type[Load] | type[Store]) -> frozenset[Access]:
        body = self.nest.body
        return frozenset(i.access for n in self.facts.needed if isinstance(i := body[n], kind))

    @property
    def row_bytes(self) -> int:
        """Scratch memory of each row of a group."""
        return self.scratch_bytes // self.group

    @property
    def text(self) -> str:
        """The order of the loops and the vectors, then what is staged, grouped, cut in chunks and prefetched."""
        loops = " ".join(f"{dim}:{self.nest.dims[dim]}" for dim in self.order)
        lines = [f"loops {loops}" if loops else "no loop"]
        if self.vector is not None:
            spans = self.spans or (self.sweeps[0].spans if self.sweeps else ())
            unrolled = max((span.copies for span in spans), default=1)
            turns = f" x{unrolled}" if unrolled > 1 else ""
            lines.append(f"vectors of {self.lanes}{turns} along {self.vector}")
        if len(self.sweeps) > 1:
            lines.append(f"{len(self.sweeps)} sweeps")
        if self.across is not None:
            lines.append(f"tiles transposed across {self.across}")
        if self.strip is not None:
            lines.append(f"strips of {self.strip} rows")
        if self.staged:
            lines.append("short rows staged")
        if self.panel is not None:
            lines.append("in panels of rows")
        if self.running is not None:
            lines.append("row after row")
        if self.group > 1:
            lines.append(f"groups of {self.group} rows")
        if self.share is not None:
            lines.append(f"{self.share.chunks} chunks of {self.share.size} along {self.share.dim}")
        if self.ahead is not None:
            lines.append(f"prefetches along {self.ahead}")
        return "; ".join(lines)

    @property
    def vector_is_inner(self) -> bool:
        return self.vector is not None and self.vector >= len(self.nest.outer)

    def varies(self, number: int) -> bool:
        """True if the lanes of a vector hold different values of it."""
        return self.vector in self.facts.depends[number]
