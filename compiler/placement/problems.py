"""A placement problem: buffers as live intervals and sizes, and its file format.

    problem  ::= Interval*
    Interval ::= name, [first, last), nbytes, the offset it must have or None
    file     ::= "id,lower,upper,size" and one line a buffer, ``upper`` exclusive

The format is the one of the MiniMalloc benchmarks (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
Hardware-Accelerated Machine Learning", ASPLOS 2023), so that any plan can be dumped and solved by other tools. The
``offset`` column of their solutions is read as a fixed offset and written where there is one.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence

from staticgrad.base import files
from staticgrad.base.errors import FormatError, StaticGradError
from staticgrad.base.frozen import frozen

COLUMNS = ("id", "lower", "upper", "size")
OFFSET = "offset"
LARGEST = 2**62  # sums of two such numbers still fit 64 bits


class PlanError(StaticGradError, ValueError):
    """A problem that no plan can solve, or a plan that does not solve its problem."""


@frozen
class Interval:
    """A buffer of ``nbytes`` bytes that is alive in ``[first, last)``; ``fixed`` is the offset it must have."""

    name: str
    first: int
    last: int
    nbytes: int
    fixed: int | None = None


@frozen
class Pinned:
    """A value that lies in the arena before the program runs, ``nbytes`` at ``offset``. What is ``donated`` the program
    may overwrite when it has read it; all else is there after it, untouched. ``feed`` is the number of a feed that it
    is, None for what the program does not read; a value that is several feeds is pinned several times, at one place."""

    name: str
    offset: int
    nbytes: int
    feed: int | None
    donated: bool


def validate(intervals: Sequence[Interval], alignment: int) -> None:
    """Refuse with ``PlanError`` what no arena can hold: empty live intervals, negative sizes, bad fixed offsets."""
    if alignment < 1 or alignment & (alignment - 1):
        raise PlanError(f"alignment {alignment}: expected a power of two")
    for interval in intervals:
        if interval.first >= interval.last:
            raise PlanError(f"buffer {interval.name!r}: live range [{interval.first}, {interval.last}) is empty")
        if interval.nbytes < 0:
            raise PlanError(f"buffer {interval.name!r}: size {interval.nbytes} is negative")
        if interval.fixed is not None and (interval.fixed < 0 or interval.fixed % alignment):
            raise PlanError(f"buffer {interval.name!r}: fixed offset {interval.fixed} is not a multiple of {alignment}")


def read_csv(path: str | os.PathLike[str]) -> list[Interval]:
    """The problem in a file, in the order of its lines; ``FormatError`` names the file and the line at fault."""
    try:
        text = files.read_regular(path)[0].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{os.fspath(path)}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_csv(text, source=os.fspath(path))


def parse_csv(text: str, *, source: str = "<text>") -> list[Interval]:
    """The intervals of a CSV text, as ``read_csv`` reads them from a file; ``source`` is what errors call it."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise FormatError(f"{source}:1: expected the columns {','.join(COLUMNS)}; {','.join(missing)} missing")
        intervals: list[Interval] = []
        seen: dict[str, int] = {}
        for row in reader:
            where = f"{source}:{reader.line_num}"
            interval = _interval(row, where)
            if interval.name in seen:
                raise FormatError(f"{where}: buffer {interval.name!r} again; first in line {seen[interval.name]}")
            seen[interval.name] = reader.line_num
            intervals.append(interval)
    except csv.Error as error:
        raise FormatError(f"{source}:{reader.line_num}: {error}") from error
    return intervals


def _interval(row: Mapping[str | None, object], where: str) -> Interval:
    if None in row:
        raise FormatError(f"{where}: more fields than columns")
    name = row["id"]
    if not isinstance(name, str) or not name:
        raise FormatError(f"{where}: empty id")
    first, last, nbytes = (_integer(row[column], column, where) for column in COLUMNS[1:])
    if first >= last:
        raise FormatError(f"{where}: buffer {name!r}: expected lower < upper; actual {first}, {last}")
    offset = row.get(OFFSET)
    return Interval(name, first, last, nbytes, _integer(offset, OFFSET, where) if offset else None)


def _integer(field: object, column: str, where: str) -> int:
    text = field.strip() if isinstance(field, str) else ""
    if not (text.isascii() and text.isdigit()):
        raise FormatError(f"{where}: column {column}: expected a whole number; actual {field!r}")
    if len(text) > 19 or int(text) > LARGEST:
        raise FormatError(f"{where}: column {column}: {text} is larger than {LARGEST}")
    return int(text)


def write_csv(path: str | os.PathLike[str], intervals: Sequence[Interval]) -> None:
    """Write a problem so that ``read_csv`` gives it back; a problem that cannot be written is a ``FormatError``."""
    files.replace(path, format_csv(intervals).encode())


def format_csv(intervals: Sequence[Interval]) -> str:
    """The text of a problem's file; the ``offset`` column is there if any buffer has a fixed offset."""
    columns = (*COLUMNS, OFFSET) if any(interval.fixed is not None for interval in intervals) else COLUMNS
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for interval in intervals:
        fixed = "" if interval.fixed is None else interval.fixed
        writer.writerow((interval.name, interval.first, interval.last, interval.nbytes, fixed)[: len(columns)])
    text = out.getvalue()
    if parse_csv(text, source="<problem>") != list(intervals):
        raise FormatError("the problem has names that do not survive the format")
    return text
