"""Reports: what a program needs, as values that print as tables.

Input: the plan and the costs of a Program, or what a tape keeps. Output: ``exe.memory``, ``exe.cost`` and
``tape.memory``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from os import PathLike
from typing import TYPE_CHECKING, Any

from staticgrad.base.errors import SourceLine, StaticGradError
from staticgrad.base.files import path_of
from staticgrad.base.frozen import frozen
from staticgrad.base.tables import byte_text, count_text, table
from staticgrad.compiler.program.memories import SCRATCH
from staticgrad.compiler.program.program import BufferPlan, KernelCost

if TYPE_CHECKING:
    from staticgrad.compiler.prices import Price
    from staticgrad.graph.html.markup import Picture

TAPE_TIMES = ("forward", "given back", "still there", "live now")  # at 0, 1, 2 of a tape's picture, and its dashed line


def no_prices() -> tuple[Price, ...]:
    return ()


PRICE_COLUMNS = ("adds", "kept bytes", "arena bytes", "kernels", "moved bytes", "source")


class PriceReport(tuple["Price", ...]):
    """The costs that each hook, retained gradient, print and callback adds, in bytes, kernels and bytes moved: a tuple
    of prices that prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<prices: {self._head}>"

    def __str__(self) -> str:
        rows = [(p.what, *price_cells(p), str(p.source or "")) for p in self]
        return table(PRICE_COLUMNS, rows, right=(1, 2, 3, 4)) if rows else self._head

    @property
    def _head(self) -> str:
        return ", ".join(p.what for p in self) or "no hook, retained gradient, print or callback"

    def _repr_html_(self) -> str:
        from staticgrad.graph.html.markup import block
        from staticgrad.runtime.measured.pictures import price_html

        prices = [(p.what, price_cells(p), p.source) for p in self]
        return price_html(PRICE_COLUMNS, prices) if prices else block("prices", str(self))


def price_cells(price: Price) -> list[str]:
    """The differences of a price, with their signs."""
    return [f"{n:+d}" for n in (price.kept_bytes, price.arena_bytes, price.kernels, price.moved_bytes)]


def _below(prices: PriceReport) -> str:
    """The lines that stand below another table, if there is a price."""
    return f"\n{prices}" if prices else ""


@frozen
class MemoryReport:
    """The planned memory of a program; ``bound`` are the sizes of its feeds that were open when declared, as text.

    ``arena_bytes`` is what a call needs besides feeds, results and state; ``lower_bound_bytes`` the most bytes alive
    at once, below which no placement can go. Sizes are in bytes, times in steps of the program. The arena includes the
    kernels' scratch memory; besides it a call takes a few KiB of the stack, less than 64 in all.
    """

    arena_bytes: int
    lower_bound_bytes: int
    buffers: tuple[BufferPlan, ...]
    bound: str = ""
    find_prices: Callable[[], tuple[Price, ...]] = field(default=no_prices, repr=False, compare=False)

    @property
    def prices(self) -> PriceReport:
        """The costs that each hook, ``retain_grad``, print and ``py_call`` adds: each is left out in turn and the rest
        compiled again, when first asked for."""
        return PriceReport(self.find_prices())

    @property
    def scratch_bytes(self) -> int:
        """The most bytes of the arena that are scratch memory of kernels at once: panels that products pack, rows that
        are staged, partial sums of threads. That of kernels in a loop is in its memory of a turn."""
        changes: Counter[int] = Counter()
        for b in self.buffers:
            if b.reason.startswith(SCRATCH):
                changes[b.first] += b.nbytes
                changes[b.last] -= b.nbytes
        return max(itertools.accumulate(changes[time] for time in sorted(changes)), default=0)

    @property
    def _head(self) -> str:
        scratch = f", {byte_text(self.scratch_bytes)} of it scratch" if self.scratch_bytes else ""
        alive = f"at least {byte_text(self.lower_bound_bytes)} alive at once"
        needed = f"arena {byte_text(self.arena_bytes)}{scratch}, {alive}"
        return f"{needed}, for {self.bound}" if self.bound else needed

    def __repr__(self) -> str:
        return f"<memory: {self._head}, {len(self.buffers)} buffers>"

    def __str__(self) -> str:
        head = self._head
        rows = [
            (b.name, str(b.nbytes), str(b.offset), f"[{b.first}, {b.last})", b.reason, str(b.source or ""))
            for b in sorted(self.buffers, key=lambda b: (b.first, b.offset))
        ]
        prices = _below(self.prices)
        if not rows:
            return f"{head}, no buffers{prices}"
        return head + "\n" + table(("buffer", "bytes", "offset", "steps", "why", "source"), rows, right=(1, 2)) + prices

    def plot(self, path: str | PathLike[str] | None = None) -> Picture | None:
        """A picture of the plan: steps across, bytes upwards.

        Args:
            path: where to write it, in any format of matplotlib. Without it the picture comes back, and a notebook
                shows it as the last value of a cell.
        """
        if path is None:
            from staticgrad.runtime.measured.pictures import memory_plot

            return memory_plot(self.buffers, self.arena_bytes, self.lower_bound_bytes)
        plot_buffers(path, self.buffers, self.arena_bytes, self.lower_bound_bytes, self.bound)
        return None

    def _repr_html_(self) -> str:
        from staticgrad.runtime.measured.pictures import memory_html

        return memory_html("memory", self._head, self.buffers, self.arena_bytes, self.lower_bound_bytes)


def plot_buffers(
    path: str | PathLike[str], buffers: Sequence[BufferPlan], arena_bytes: int, lower_bound_bytes: int, bound: str = ""
) -> None:
    """Draw each buffer as a rectangle from its first to its last step, at its offset."""
    place = path_of(path)
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError as error:
        raise StaticGradError("plots need matplotlib: pip install '.[plot]' in a checkout") from error
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes: Any = figure.subplots()
    colors = matplotlib.colormaps["tab20"]
    for number, buffer in enumerate(buffers):
        width = max(buffer.last - buffer.first, 0.2)
        axes.add_patch(
            Rectangle((buffer.first, buffer.offset), width, buffer.nbytes, facecolor=colors(number % 20), alpha=0.8,
                      edgecolor="black", linewidth=0.5)
        )  # fmt: skip
        if buffer.nbytes * 25 > arena_bytes:
            axes.text(buffer.first + width / 2, buffer.offset + buffer.nbytes / 2, buffer.name, ha="center",
                      va="center", fontsize=7, clip_on=True)  # fmt: skip
    axes.axhline(lower_bound_bytes, linestyle="--", linewidth=1, color="gray", label="most bytes alive at once")
    axes.set_xlim(0, max((b.last for b in buffers), default=1))
    axes.set_ylim(0, max(arena_bytes, lower_bound_bytes, 1) * 1.05)
    axes.set_xlabel("step")
    axes.set_ylabel("offset in bytes")
    axes.set_title(f"arena of {byte_text(arena_bytes)}{bound and f' for {bound}'}")
    axes.legend(loc="upper right")
    figure.savefig(place)


@frozen
class CostReport:
    """The cost of a call, kernel by kernel; ``bound`` are the sizes of its feeds that were open when declared."""

    kernels: tuple[KernelCost, ...]
    bound: str = ""

    @property
    def flops(self) -> int:
        """Floating-point operations of one call."""
        return sum(k.flops for k in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes that the kernels of one call read and write."""
        return sum(k.bytes for k in self.kernels)

    @property
    def _head(self) -> str:
        done = f"{count_text(self.flops)} flops, {byte_text(self.bytes)} read and written"
        return f"{done} by {len(self.kernels)} kernels{self.bound and f', for {self.bound}'}"

    def __repr__(self) -> str:
        return f"<cost: {self._head}>"

    def _repr_html_(self) -> str:
        from staticgrad.runtime.measured.pictures import cost_html

        return cost_html(self.kernels, self._head)

    def __str__(self) -> str:
        rows = [(k.name, k.family, str(k.flops), str(k.bytes), str(k.source or "")) for k in self.kernels]
        if not rows:
            return self._head
        return self._head + "\n" + table(("kernel", "family", "flops", "bytes", "source"), rows, right=(2, 3))


@frozen
class SavedBuffer:
    """One value that a tape keeps: its size in bytes, whether it is still there, why, and who declared it."""

    name: str
    nbytes: int
    live: bool
    reason: str
    source: SourceLine | None


@frozen
class TapeMemory:
    """The memory that a tape keeps for its backwards, in bytes.

    ``saved_bytes`` was kept by the forward, ``live_bytes`` is still there, ``retain_bytes`` is what of it the backward
    of all outputs gives back and ``retain_graph=True`` keeps. ``peak_bytes`` is the most that was planned to be in use
    at once so far: what is kept and the arenas of the programs that ran, without outputs, feeds, gradients, variables.
    """

    saved_bytes: int
    live_bytes: int
    retain_bytes: int
    peak_bytes: int
    buffers: tuple[SavedBuffer, ...]
    find_prices: Callable[[], tuple[Price, ...]] = field(default=no_prices, repr=False, compare=False)

    @property
    def prices(self) -> PriceReport:
        """The costs that each hook, ``retain_grad``, print and ``py_call`` adds to the forward and to a retaining
        backward of all outputs in one traversal: each is left out in turn and the rest compiled again, when first asked
        for."""
        return PriceReport(self.find_prices())

    @property
    def _head(self) -> str:
        return (
            f"saved {byte_text(self.saved_bytes)}, live {byte_text(self.live_bytes)}, "
            f"retain_graph=True keeps {byte_text(self.retain_bytes)}, at most {byte_text(self.peak_bytes)} in use"
        )

    def __repr__(self) -> str:
        return f"<memory of a tape: {self._head}, {len(self.buffers)} values>"

    def __str__(self) -> str:
        rows = [
            (b.name, str(b.nbytes), "live" if b.live else "given back", b.reason, str(b.source or ""))
            for b in self.buffers
        ]
        text = "\n" + table(("value", "bytes", "state", "why", "source"), rows, right=(1,)) if rows else ""
        return self._head + text + _below(self.prices)

    def plot(self, path: str | PathLike[str] | None = None) -> Picture | None:
        """A picture: the saved values stacked by size, from the forward (0) to when they are given back (1) or still
        there (2).

        Args:
            path: where to write it, in any format of matplotlib. Without it the picture comes back, and a notebook
                shows it as the last value of a cell.
        """
        if path is None:
            from staticgrad.runtime.measured.pictures import memory_plot

            return memory_plot(self._stacked(), self.saved_bytes, self.live_bytes, TAPE_TIMES)
        plot_buffers(path, self._stacked(), self.saved_bytes, self.live_bytes)
        return None

    def _stacked(self) -> list[BufferPlan]:
        """The values on top of each other."""
        plans, offset = [], 0
        for b in self.buffers:
            plans.append(BufferPlan(b.name, b.nbytes, offset, 0, 2 if b.live else 1, b.reason, b.source))
            offset += b.nbytes
        return plans

    def _repr_html_(self) -> str:
        from staticgrad.runtime.measured.pictures import memory_html

        plans = self._stacked()
        return memory_html("memory of a tape", self._head, plans, self.saved_bytes, self.live_bytes, TAPE_TIMES)
