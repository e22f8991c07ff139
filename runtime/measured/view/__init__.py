"""A picture of a program for the browser: one HTML file that needs no server and no network.

Input: a program, the names of what is fed and fetched, and if there are any its prices and a profile. Output: the
text of a page that shows the kernels as a graph, the buffers over time, and for each the user's source line; what is
chosen in one view is marked in all of them.

``page`` gathers the figures as JSON and puts them into ``page.html`` with ``page.css``, ``page.js`` and the libraries
in ``vendor/``: Cytoscape.js 3.34.4, which draws the graph, and its extension cytoscape-dagre 4.0.1, which lays it out,
with the library dagre inside. All are under the MIT licence, whose texts lie beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from importlib.resources import files
from typing import Any

from staticgrad.base.errors import SourceLine
from staticgrad.base.extents import largest
from staticgrad.base.frozen import record
from staticgrad.compiler.prices import Price
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    CollectiveSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    Slot,
    StateSlot,
)
from staticgrad.runtime.measured.profile import Profile

SCRIPTS = ("vendor/cytoscape.min.js", "vendor/cytoscape-dagre.min.js", "page.js")


@record
class _SourceLines:
    """The user's source lines by number, in the order in which they were met."""

    numbers: dict[SourceLine, int] = field(default_factory=dict)

    def number(self, source: SourceLine | None) -> int | None:
        return None if source is None else self.numbers.setdefault(source, len(self.numbers))

    def rows(self) -> list[dict[str, Any]]:
        return [{"file": line.file, "line": line.line, "text": line.text} for line in self.numbers]


def page(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    *,
    title: str = "staticgrad",
    prices: Sequence[Price] = (),
    profile: Profile | None = None,
) -> str:
    """The HTML of a program.

    Args:
        feeds, fetches: names by the numbers that the program's slots have.
        prices: what hooks, retained gradients, prints and callbacks add.
        profile: how long each kernel takes.
    """
    lines = _SourceLines()
    data = {
        "title": title,
        "target": program.target,
        "arena": program.arena_bytes,
        "bound": program.lower_bound_bytes,
        "kernels": _kernels(program, lines, profile),
        "memories": [*_buffers(program, lines), *(_slot(slot, feeds, fetches) for slot in program.slots)],
        "prices": [_price(price, lines) for price in prices],
        "calls": None if profile is None else profile.calls,
        "graph": program.graph_text,
        "lines": lines.rows(),
    }
    return _filled(title, data)


def _kernels(program: Program, lines: _SourceLines, profile: Profile | None) -> list[dict[str, Any]]:
    times = [None] * len(program.costs) if profile is None else [kernel.seconds for kernel in profile.kernels]
    floors = [None] * len(program.costs) if profile is None else [kernel.floor for kernel in profile.kernels]
    return [
        {
            "name": cost.name, "family": cost.family, "flops": cost.flops, "bytes": cost.bytes,
            "line": lines.number(cost.source), "reads": flow.reads, "writes": flow.writes, "text": flow.text,
            "seconds": seconds, "floor": floor,
        }
        for cost, flow, seconds, floor in zip(largest(program.costs), program.flows, times, floors, strict=True)
    ]  # fmt: skip


def _buffers(program: Program, lines: _SourceLines) -> list[dict[str, Any]]:
    return [
        {
            "kind": "buffer", "name": b.name, "bytes": b.nbytes, "offset": b.offset, "first": b.first, "last": b.last,
            "why": b.reason, "line": lines.number(b.source),
        }
        for b in program.buffers
    ]  # fmt: skip


def _slot(slot: Slot, feeds: Sequence[str], fetches: Sequence[str]) -> dict[str, Any]:
    """Memory that whoever runs the program hands over."""
    match slot:
        case FeedSlot():
            return {"kind": "feed", "name": feeds[slot.index], "type": str(slot.type), "bytes": slot.type.nbytes}
        case FetchSlot():
            return {"kind": "result", "name": fetches[slot.index], "type": str(slot.type), "bytes": slot.type.nbytes}
        case StateSlot():
            return {"kind": "variable", "name": slot.name, "type": str(slot.type), "bytes": slot.type.nbytes}
        case GradSlot():
            return {"kind": "gradient", "name": slot.key, "type": str(slot.type), "bytes": slot.type.nbytes}
        case ConstantSlot():
            return {"kind": "constant", "name": "constant", "bytes": int(slot.value.nbytes)}
        case CallbackSlot():
            return {"kind": "callback", "name": getattr(slot.function, "__name__", "callback"), "bytes": 0}
        case CollectiveSlot():
            return {"kind": "callback", "name": slot.name, "bytes": 0}
        case _:
            return {"kind": "internal", "name": type(slot).__name__, "bytes": 0}


def _price(price: Price, lines: _SourceLines) -> dict[str, Any]:
    return {
        "what": price.what, "line": lines.number(price.source), "kept": price.kept_bytes, "arena": price.arena_bytes,
        "kernels": price.kernels, "moved": price.moved_bytes,
    }  # fmt: skip


def _filled(title: str, data: dict[str, Any]) -> str:
    """The page with its figures, style and scripts inside."""
    here = files(__name__)

    def asset(name: str) -> str:
        return here.joinpath(name).read_text(encoding="utf-8")

    scripts = "\n".join(f"<script>{asset(name)}</script>" for name in SCRIPTS)
    parts = {"TITLE": _escaped(title), "STYLE": asset("page.css"), "DATA": _embedded(data), "SCRIPTS": scripts}
    text = asset("page.html")
    for name in ("TITLE", "STYLE", "DATA", "SCRIPTS"):
        before, after = text.split(f"<!-- {name} -->")
        text = before + parts[name] + after
    return text


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def _embedded(data: dict[str, Any]) -> str:
    """JSON that may stand in a script element whatever texts are in it: the parser of HTML sees no tag and no comment
    (WHATWG HTML, 4.12.1.3, restrictions for contents of script elements)."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
