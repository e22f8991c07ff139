"""HTML and SVG as strings: elements whose text and attributes are escaped, tables, pictures.

Text that is not ``Markup`` is escaped wherever it is put, so that names may be any text. Colours are those of the page
around (``currentColor``) or see-through, so that light and dark pages show them alike.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence

from staticgrad.base.errors import SourceLine

PALE = "opacity:.65"  # the style of remarks
_TABLE = "border-collapse:collapse;margin:.4em 0;font-size:90%"
_CELL = "padding:.1em .7em .1em 0;border:0;vertical-align:top;text-align:"
_FOLDED = "margin:.3em 0"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """Text as HTML shows it; what cannot be printed is written as in a Python string."""
    if isinstance(text, Markup):
        return text
    plain = str(text)
    return Markup(html.escape(plain if plain.isprintable() else repr(plain)[1:-1]))


def element(name: str, *content: object, **attributes: object) -> Markup:
    """An element with its content and attributes, ``stroke_width`` for ``stroke-width``; None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(escaped, content))}</{name}>")


def _number(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def shortened(text: str, most: int) -> str:
    """The text, its end left out where it has more than ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()) -> Markup:
    """A table that scrolls where the page is narrower; the columns numbered in ``right`` are right-aligned."""
    sides = ["right;white-space:nowrap" if column in right else "left" for column in range(len(header))]

    def line(kind: str, cells: Sequence[object]) -> Markup:
        made = [element(kind, cell, style=_CELL + side) for cell, side in zip(cells, sides, strict=True)]
        return element("tr", *made)

    head = element("thead", line("th", header))
    listed = element("table", head, element("tbody", *(line("td", row) for row in rows)), style=_TABLE)
    return element("div", listed, style="overflow-x:auto")


def folded(title: str, *content: object, open_: bool = False) -> Markup:
    """Content below a title that shows and hides it."""
    summary = element("summary", title, style="cursor:pointer")
    return element("details", summary, *content, style=_FOLDED, open="" if open_ else None)


def more(items: Sequence[object], shown: int, what: str) -> Markup:
    """A line that says how many items are not shown; nothing if all are."""
    left = len(items) - shown
    return element("div", f"… {left} more {what}", style=PALE) if left > 0 else Markup()


def source_cell(source: SourceLine | None) -> Markup:
    """A user's line in a table: where it is and how it begins; the whole is its tooltip."""
    if source is None:
        return Markup()
    text = f"{source.cell or os.path.basename(source.file)}:{source.line}  {source.text}"
    style = f"{PALE};white-space:pre"
    return element("code", shortened(text, 72), title=tooltip(str(source)), style=style)


def tooltip(text: str) -> str:
    """A text as long as a tooltip may be."""
    return shortened(text, 300)


def block(title: str, said: str, *content: object) -> Markup:
    """All that is shown of a value: what it is, a line about it, and more."""
    head = element("div", element("b", title), " ", element("span", said, style=PALE))
    return element("div", head, *content, style="margin:.3em 0")


def drawing(width: float, height: float, *content: object) -> Markup:
    """A picture of this many pixels, a little smaller on a narrow page; beyond that, and where it is high, its frame
    scrolls."""
    picture = element(
        "svg", *content, xmlns="http://www.w3.org/2000/svg", width=width, height=height,
        viewBox=f"0 0 {width:g} {height:g}", font_family="sans-serif", font_size=11, fill="currentColor",
        style=f"max-width:100%;min-width:{0.7 * width:.0f}px;height:auto",
    )  # fmt: skip
    return element("div", picture, style="overflow:auto;max-height:40em")


def label(text: str, x: float, y: float, anchor: str = "middle", **attributes: object) -> Markup:
    """A text in a picture, at its middle, start or end."""
    return element("text", text, x=x, y=y, text_anchor=anchor, **attributes)


class Picture:
    """A picture or a page that notebooks show where it is a cell's last value."""

    __slots__ = ("html",)

    def __init__(self, markup: str) -> None:
        self.html = str(markup)

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return "<picture: notebooks show it; elsewhere give a path to write it to>"


def framed(page: str, height: int) -> Markup:
    """A whole page inside another one, as wide as there is room, this many pixels high."""
    return element("iframe", srcdoc=Markup(html.escape(page)), style=f"width:100%;height:{height}px;border:1px solid")
