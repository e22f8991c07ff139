"""Pictures for a notebook: memory as rectangles, times as bars, costs and prices as tables.

Input: plans, costs and times. Output: HTML whose size does not grow with the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.errors import SourceLine
from staticgrad.base.tables import byte_text, count_text
from staticgrad.compiler.program.program import BufferPlan, KernelCost
from staticgrad.graph.html.markup import (
    Markup,
    Picture,
    block,
    drawing,
    element,
    folded,
    label,
    more,
    shortened,
    source_cell,
    table,
    tooltip,
)

MOST = 400  # rectangles of a picture
ROWS = 25  # of a table
LETTERS = 48  # of a name in a table
WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 680, 300, 74, 34, 14  # of what a picture shows, and around it; in pixels
HUES = ("#4a90d9", "#3fa66b", "#d98a3d", "#9a6fd0", "#c9504c", "#3aa6a6", "#b59a2f", "#d069a5")


# -- memory ---------------------------------------------------------------------------------------------------------


def memory_picture(
    buffers: Sequence[BufferPlan], arena_bytes: int, lower_bound_bytes: int, times: Sequence[str] = ()
) -> Markup:
    """Each buffer as a rectangle from its first to its last step, at its offset.

    Args:
        times: what stands below the picture at steps 0, 1, …, and last what the lower bound is; by default the
            numbers of the first and the last step, and the most bytes alive at once.
    """
    shown = sorted(buffers, key=lambda b: b.nbytes * max(b.last - b.first, 1), reverse=True)[:MOST]
    steps = max((b.last for b in buffers), default=1) or 1
    top = max(arena_bytes, lower_bound_bytes, 1)
    right, wide, high = LEFT + WIDTH, WIDTH / steps, HEIGHT / top
    rectangles = []
    for number, b in enumerate(sorted(shown, key=lambda b: (b.first, b.offset))):
        x, width = LEFT + b.first * wide, max((b.last - b.first) * wide, 1.0)
        y, height = ABOVE + HEIGHT - (b.offset + b.nbytes) * high, max(b.nbytes * high, 0.5)
        rectangles.append(_rectangle(b, x, y, width, height, HUES[number % len(HUES)]))
    bound = ABOVE + HEIGHT - lower_bound_bytes * high
    *named, dashed = times or ["step 0", *[""] * (steps - 1), f"{steps}", "most bytes alive at once"]
    parts = [
        element("rect", x=LEFT, y=ABOVE, width=WIDTH, height=HEIGHT, fill="none", stroke="currentColor",
                stroke_opacity=0.4),
        *rectangles,
        element("path", d=f"M{LEFT} {bound:g}H{right}", stroke="currentColor", stroke_dasharray="5 4"),
        label("0", LEFT - 6, ABOVE + HEIGHT, "end"),
        label(byte_text(top), LEFT - 6, ABOVE + 8, "end"),
        *(label(text, LEFT + i * wide, ABOVE + HEIGHT + 16) for i, text in enumerate(named) if text),
        label(f"dashed: {dashed}", right, ABOVE + HEIGHT + 30, "end", opacity=0.7),
    ]  # fmt: skip
    return Markup(drawing(right + 30, HEIGHT + ABOVE + BELOW, *parts) + more(buffers, len(shown), "smaller buffers"))


def _rectangle(b: BufferPlan, x: float, y: float, width: float, height: float, hue: str) -> Markup:
    """One buffer, with a tooltip, and with its name in it where it has room."""
    tip = f"{b.name}: {byte_text(b.nbytes)} at {b.offset}, steps {b.first} to {b.last}; {b.reason}; {b.source or ''}"
    name = shortened(b.name, int(width / 6.5))
    text = label(name, x + width / 2, y + height / 2 + 4) if height >= 14 and width >= 40 else ""
    frame = element("rect", x=x, y=y, width=width, height=height, fill=hue, fill_opacity=0.45, stroke=hue)
    return element("g", element("title", tooltip(tip)), frame, text)


def memory_html(
    title: str, said: str, buffers: Sequence[BufferPlan], arena_bytes: int, lower_bound_bytes: int,
    times: Sequence[str] = (),
) -> str:  # fmt: skip
    """All that a notebook shows of planned memory: the picture, and the largest buffers."""
    if not buffers:
        return block(title, said)
    largest = sorted(buffers, key=lambda b: b.nbytes, reverse=True)
    rows = [
        (shortened(b.name, LETTERS), byte_text(b.nbytes), f"[{b.first}, {b.last})", b.reason, source_cell(b.source))
        for b in largest[:ROWS]
    ]
    listed = table(("buffer", "bytes", "steps", "why", "line"), rows, right=(1,))
    picture = memory_picture(buffers, arena_bytes, lower_bound_bytes, times)
    return block(title, said, picture, folded("largest buffers", listed, more(buffers, ROWS, "buffers")))


def price_html(columns: Sequence[str], prices: Sequence[tuple[str, Sequence[str], SourceLine | None]]) -> str:
    """A table of what each price is for, its numbers, and its line."""
    rows = [(shortened(what, LETTERS), *cells, source_cell(source)) for what, cells, source in prices[:ROWS]]
    return block("prices", "", table(columns, rows, right=(1, 2, 3, 4)), more(prices, ROWS, "prices"))


def memory_plot(
    buffers: Sequence[BufferPlan], arena_bytes: int, lower_bound_bytes: int, times: Sequence[str] = ()
) -> Picture:
    """The picture alone."""
    return Picture(memory_picture(buffers, arena_bytes, lower_bound_bytes, times))


# -- kernels --------------------------------------------------------------------------------------------------------


def _bar(part: float) -> Markup:
    """A bar for a part of the whole."""
    style = f"width:{max(part, 0.005) * 9:.3g}em;height:.8em;background:{HUES[0]};opacity:.8;margin-top:.25em"
    return element("div", element("div", style=style), style="width:9em")


def cost_table(costs: Sequence[KernelCost]) -> Markup:
    """The kernels that read and write most."""
    kernels = sorted(costs, key=lambda k: k.bytes, reverse=True)
    rows = [
        (shortened(k.name, LETTERS), k.family, count_text(k.flops), byte_text(k.bytes), source_cell(k.source))
        for k in kernels[:ROWS]
    ]
    listed = table(("kernel", "family", "flops", "bytes", "line"), rows, right=(2, 3))
    return Markup(listed + more(kernels, ROWS, "kernels"))


def cost_html(costs: Sequence[KernelCost], said: str) -> str:
    """All that a notebook shows of costs."""
    return block("cost", said, cost_table(costs))


def time_html(
    said: str, header: Sequence[str], kernels: Sequence[tuple[float, Sequence[str], str, SourceLine | None]]
) -> str:
    """A table of kernels, the longest first: a bar for the part of the longest one's time, numbers, name and line."""
    rows = [
        (_bar(part), *numbers, shortened(name, LETTERS), source_cell(source))
        for part, numbers, name, source in kernels[:ROWS]
    ]
    right = range(1, 1 + len(header))
    listed = table(("", *header, "kernel", "line"), rows, right=tuple(right))
    return block("profile", said, listed, more(kernels, ROWS, "kernels"))
