"""Plain data as bytes: what is kept on disk is written and read by this module alone.

    value ::= bool | int | float | str | bytes | tuple of values | None

``dump`` gives the bytes of a value, ``load`` the value of bytes. Nothing in the bytes names code, and reading checks
every length against what is there: damaged bytes raise ``ValueError``, nothing else.

Layout: a tag, then for ``i`` and ``f`` eight bytes, for ``I`` (larger integers), ``s`` and ``b`` a length in bytes and
the bytes, for ``t`` a count and the items; lengths and counts are unsigned 32-bit, all numbers little-endian.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

Plain: TypeAlias = "bool | int | float | str | bytes | tuple[Plain, ...] | None"

DEEPEST = 64  # tuples inside tuples
_INT, _FLOAT, _COUNT = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<I")
_CONSTANTS: dict[bytes, bool | None] = {b"N": None, b"T": True, b"F": False}


def dump(value: Plain) -> bytes:
    """The bytes of a value.

    Raises:
        TypeError: it holds something that is no plain data.
        ValueError: a string of 4 GiB or more.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Plain, parts: list[bytes]) -> None:
    if isinstance(value, tuple):
        parts.append(b"t" + _length(len(value)))
        for item in value:
            _write(item, parts)
    elif isinstance(value, bool) or value is None:
        parts.append(b"N" if value is None else b"T" if value else b"F")
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            parts.append(b"i" + _INT.pack(value))
        else:
            parts += _long(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    elif isinstance(value, float):
        parts.append(b"f" + _FLOAT.pack(value))
    elif isinstance(value, str):
        parts += _long(b"s", value.encode())
    elif isinstance(value, bytes):
        parts += _long(b"b", value)
    else:
        raise TypeError(f"{type(value).__name__} is no plain data")


def _long(tag: bytes, content: bytes) -> tuple[bytes, bytes]:
    return tag + _length(len(content)), content


def _length(count: int) -> bytes:
    if count >= 2**32:
        raise ValueError(f"a length of {count} does not fit in 32 bits")
    return _COUNT.pack(count)


def load(content: bytes) -> Plain:
    """The value of bytes that ``dump`` made.

    Raises:
        ValueError: they are damaged.
    """
    value, end = _read(content, 0, DEEPEST)
    if end != len(content):
        raise ValueError(f"{len(content) - end} bytes too many")
    return value


def _read(content: bytes, at: int, depth: int) -> tuple[Plain, int]:
    tag, at = content[at : at + 1], at + 1
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag == b"i":
        return _number(_INT, content, at), at + 8
    if tag == b"f":
        return _number(_FLOAT, content, at), at + 8
    if tag not in (b"I", b"s", b"b", b"t"):
        raise ValueError(f"unknown tag {tag!r}")
    length, at = int(_number(_COUNT, content, at)), at + 4
    if length > len(content) - at:  # also for items, each of which takes a byte at least
        raise ValueError(f"a length of {length} with {len(content) - at} bytes left")
    if tag == b"t":
        return _items(content, at, length, depth)
    part = content[at : at + length]
    if tag == b"I":
        return int.from_bytes(part, "little", signed=True), at + length
    return (part.decode() if tag == b"s" else part), at + length  # a UnicodeDecodeError is a ValueError


def _items(content: bytes, at: int, count: int, depth: int) -> tuple[Plain, int]:
    if not depth:
        raise ValueError(f"tuples more than {DEEPEST} deep")
    items = []
    for _ in range(count):
        item, at = _read(content, at, depth - 1)
        items.append(item)
    return tuple(items), at


def _number(form: struct.Struct, content: bytes, at: int) -> int | float:
    try:
        number: int | float = form.unpack_from(content, at)[0]
    except struct.error as error:
        raise ValueError("cut off inside a number") from error
    return number
