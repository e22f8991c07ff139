"""Executables for a notebook: their feeds and fetches, and the memory and cost of the latest program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.base.errors import StaticGradError
from staticgrad.base.tables import byte_text, count_text
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.html.markup import PALE, Markup, block, element, folded, more, shortened, source_cell, table
from staticgrad.runtime.measured.pictures import LETTERS, ROWS, cost_table, memory_picture
from staticgrad.runtime.measured.reports import CostReport, MemoryReport


def executable_html(
    feeds: Sequence[Tensor],
    leaves: Sequence[Tensor | Node],
    state: str,
    reports: Callable[[], tuple[MemoryReport, CostReport]],
) -> str:
    """The feeds and fetches of an executable, and the memory and cost of its latest program."""
    parts = [folded(f"feeds ({len(feeds)})", _operands(feeds), open_=True)]
    parts.append(folded(f"fetches ({len(leaves)})", _operands(leaves), open_=True))
    try:
        memory, cost = reports()
    except StaticGradError as reason:
        return block("executable", state, *parts, element("div", reason, style=PALE))
    said = (
        f"arena {byte_text(memory.arena_bytes)}, {len(cost.kernels)} kernels, {count_text(cost.flops)} flops,"
        f" {byte_text(cost.bytes)} read and written{cost.bound and f', for {cost.bound}'}"
    )
    if memory.buffers:
        picture = memory_picture(memory.buffers, memory.arena_bytes, memory.lower_bound_bytes)
        parts.append(folded("memory", picture, open_=True))
    return block("executable", said, *parts, folded("kernels", cost_table(cost.kernels)))


def _operands(items: Sequence[Tensor | Node]) -> Markup:
    rows = [
        (shortened(x.name, LETTERS), x.type if isinstance(x, Tensor) else "op", source_cell(x.source))
        for x in items[:ROWS]
    ]
    return Markup(table(("name", "type", "line"), rows) + more(items, ROWS, "of them"))
