"""Numbers and tables for people: bytes and counts in units that are read at a glance, columns that line up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def byte_text(count: float) -> str:
    """A number of bytes for people: ``17.2 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def count_text(count: float) -> str:
    """A count for people: ``3.1 M``."""
    for unit in ("", " k", " M", " G"):
        if abs(count) < 1000:
            return f"{count:.0f}" if not unit else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f} T"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> str:
    """Rows in columns as wide as their widest cell; the columns numbered in ``right`` are right-aligned."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    texts = []
    for line in lines:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def abridged(texts: Sequence[str], most: int = 4) -> str:
    """The texts with commas between them; of more than ``most`` the first ones, and how many are left."""
    shown = texts if len(texts) <= most else [*texts[: most - 1], f"… {len(texts) - most + 1} more"]
    return ", ".join(shown)
