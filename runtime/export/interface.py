"""The interface of an exported program: all that its caller has to know, as values, with NumPy alone.

    Interface ::= name, entries, state
    Entry     ::= name, signature, feeds, results, bytes of workspace and stack, checks
    State     ::= variables at offsets in one block of memory that entries share, and the numbers of random draws

Whoever exports makes it of programs; the C header, the file of a program and what loads one are written from it. As
plain data (``to_plain``) it is JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from staticgrad.base.addresses import ALIGNMENT
from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import DTYPE_NAMES, TensorType, dtype_of, sizes

DEEPEST = 64  # of nests
MOST_BYTES = 1 << 46  # of an array, a workspace or a state that is believed in


@frozen
class NamedType:
    """An array that goes in or out: its name, dtype and shape."""

    name: str
    type: TensorType


@frozen
class StateArray:
    """A variable in the block of the state."""

    name: str
    type: TensorType
    offset: int


@frozen
class StateLayout:
    """The block of memory that holds what runs leave to the next: ``nbytes`` of it, aligned to a cache line. It begins,
    if ``draws``, with the seed and the number of runs that have drawn random numbers (two int64), then variables
    follow."""

    arrays: tuple[StateArray, ...] = ()
    draws: bool = False
    nbytes: int = 0


EXTREMES = 16  # bytes: the smallest and the largest index that a check of bounds has found
CHECK_KINDS = ("bounds", "assertion", "numerics")


@frozen
class ExportedCheck:
    """Why a function ends with a positive status. Of ``bounds`` the smallest and the largest index that were found are
    left at ``offset`` of the workspace as int64[2], allowed is [0, size); with ``wraps`` negative ones had been added
    to the size. ``source`` is the line of the user's that declared it, as text; empty where it is not told."""

    kind: str
    message: str
    source: str = ""
    size: int = 0
    offset: int = 0
    wraps: bool = False

    def __str__(self) -> str:
        return f"{self.message}, declared at {self.source}" if self.source else self.message


@frozen
class Entry:
    """A function of an exported program.

    Attributes:
        signature: its C type, by name; only ``"slots"`` takes a workspace and a state.
        feeds: what goes in, in order; ``results`` what comes out, as often as it is fetched.
        structure: the nest of the fetches, of lists (``["list", …]``, ``["tuple", …]``, ``["dict", keys, …]``), with
            the numbers of results as leaves, None for ops and empty nests.
        checks: what a positive status says, from 1 on.
        uses_state: whether the state has to be given; ``writes_state`` whether it is written, so that runs have to
            take turns.
        threads: how many may share its work, 0 where it has no function for that.
        stack_bytes: that a call takes at most, without what the caller's threads take; 0 where that is not known.
        is_brief: whether it takes so little time that a caller may keep other threads waiting meanwhile.
    """

    name: str
    signature: str
    feeds: tuple[NamedType, ...]
    results: tuple[NamedType, ...]
    structure: Any
    workspace_bytes: int
    checks: tuple[ExportedCheck, ...]
    uses_state: bool
    writes_state: bool = True
    threads: int = 0
    stack_bytes: int = 0
    is_brief: bool = False


@frozen
class ExportInterface:
    """All entries of an exported program, and the state that they share."""

    name: str
    target: str
    entries: tuple[Entry, ...]
    state: StateLayout


def layout(variables: Mapping[str, TensorType], *, draws: bool) -> StateLayout:
    """The layout of a state: variables in order, each at the next line."""
    arrays, end = [], ALIGNMENT if draws else 0
    for name, type_ in variables.items():
        arrays.append(StateArray(name, type_, end))
        end += -(-type_.nbytes // ALIGNMENT) * ALIGNMENT
    return StateLayout(tuple(arrays), draws, end)


# -- as JSON ----------------------------------------------------------------------------------------------------------


def to_plain(interface: ExportInterface) -> dict[str, Any]:
    """The interface as what JSON holds."""
    return {
        "name": interface.name,
        "target": interface.target,
        "state": {
            "bytes": interface.state.nbytes,
            "draws": interface.state.draws,
            "arrays": [{**_named(x.name, x.type), "offset": x.offset} for x in interface.state.arrays],
        },
        "entries": [
            {
                "name": entry.name,
                "signature": entry.signature,
                "feeds": [_named(x.name, x.type) for x in entry.feeds],
                "results": [_named(x.name, x.type) for x in entry.results],
                "structure": entry.structure,
                "workspace": entry.workspace_bytes,
                "stack": entry.stack_bytes,
                "checks": [_plain_check(check) for check in entry.checks],
                "uses_state": entry.uses_state,
                "writes_state": entry.writes_state,
                "threads": entry.threads,
                "brief": entry.is_brief,
            }
            for entry in interface.entries
        ],
    }


def _plain_check(check: ExportedCheck) -> dict[str, Any]:
    return {f.name: getattr(check, f.name) for f in fields(check)}


def _named(name: str, type_: TensorType) -> dict[str, Any]:
    return {"name": name, "dtype": type_.dtype.name, "shape": list(sizes(type_.shape))}


def from_plain(data: Any) -> ExportInterface:
    """The interface that JSON says.

    Raises:
        FormatError: it says no interface, or one whose arrays lie outside of their memory.
    """
    state = _field(data, "state", dict)
    arrays = tuple(StateArray(*_name_and_type(item), _count(item, "offset")) for item in _field(state, "arrays", list))
    known = StateLayout(arrays, _field(state, "draws", bool), _count(state, "bytes"))
    if any(x.offset % ALIGNMENT or x.offset + x.type.nbytes > known.nbytes for x in arrays):
        raise FormatError("a variable lies outside of the state")
    if len({x.name for x in arrays}) < len(arrays) or (known.draws and known.nbytes < ALIGNMENT):
        raise FormatError("a state that contradicts itself")
    ends = [ALIGNMENT if known.draws else 0, *(x.offset + x.type.nbytes for x in arrays)]
    if any(x.offset < end for x, end in zip(arrays, ends, strict=False)):
        raise FormatError("variables that overlap")
    entries = tuple(map(_entry, _field(data, "entries", list)))
    if len({entry.name for entry in entries}) < len(entries) or not entries:
        raise FormatError("expected entries of different names")
    return ExportInterface(_field(data, "name", str), _field(data, "target", str), entries, known)


def _entry(data: Any) -> Entry:
    feeds, results = (
        tuple(NamedType(*_name_and_type(item)) for item in _field(data, key, list)) for key in ("feeds", "results")
    )
    structure = _field(data, "structure", object)
    leaves: list[int] = []
    _check_structure(structure, leaves, 0)
    if leaves != list(range(len(results))):
        raise FormatError("a nest that does not have each result once")
    return Entry(
        _field(data, "name", str), _field(data, "signature", str), feeds, results, structure,
        _count(data, "workspace"), tuple(map(_check, _field(data, "checks", list))), _field(data, "uses_state", bool),
        _field(data, "writes_state", bool), _count(data, "threads"), _count(data, "stack") if "stack" in data else 0,
        _field(data, "brief", bool) if "brief" in data else False,
    )  # fmt: skip


def _check(data: Any) -> ExportedCheck:
    kind = _field(data, "kind", str)
    if kind not in CHECK_KINDS:
        raise FormatError(f"kind: expected one of {', '.join(CHECK_KINDS)}, actual {kind!r:.80}")
    texts = _field(data, "message", str), _field(data, "source", str)
    return ExportedCheck(kind, *texts, _count(data, "size"), _count(data, "offset"), _field(data, "wraps", bool))


def _check_structure(structure: Any, leaves: list[int], depth: int) -> None:
    match structure:
        case None:
            return
        case int() if not isinstance(structure, bool):
            leaves.append(structure)
            return
        case ["list" | "tuple", *parts] if depth < DEEPEST:
            pass
        case ["dict", [*keys], *parts] if depth < DEEPEST and len(keys) == len(parts) == len({*map(repr, keys)}):
            if not all(isinstance(key, str | int) for key in keys):
                raise FormatError("a nest whose keys are no text")
        case _:
            raise FormatError("no nest of results")
    for part in parts:
        _check_structure(part, leaves, depth + 1)


def _field(data: Any, key: str, kind: type) -> Any:
    found = data.get(key) if isinstance(data, dict) else None
    if not isinstance(found, kind) and not (kind is object and isinstance(data, dict) and key in data):
        raise FormatError(f"{key}: expected {kind.__name__}, actual {found!r:.80}")
    return found


def _count(data: Any, key: str) -> int:
    number: int = _field(data, key, int)
    if isinstance(number, bool) or not 0 <= number <= MOST_BYTES:
        raise FormatError(f"{key}: expected a number of bytes, actual {number!r:.80}")
    return number


def _name_and_type(data: Any) -> tuple[str, TensorType]:
    dtype, shape = _field(data, "dtype", str), _field(data, "shape", list)
    if dtype not in DTYPE_NAMES:
        raise FormatError(f"dtype: expected one of {', '.join(sorted(DTYPE_NAMES))}, actual {dtype!r:.80}")
    if not all(type(size) is int and 0 <= size <= MOST_BYTES for size in shape):
        raise FormatError(f"shape: expected sizes, actual {shape!r:.80}")
    type_ = TensorType(tuple(shape), dtype_of(dtype))
    if len(shape) > 64 or math.prod(shape) * type_.dtype.itemsize > MOST_BYTES:
        raise FormatError(f"shape: too large: {shape!r:.80}")
    return _field(data, "name", str), type_
