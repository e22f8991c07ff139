"""Files in the safetensors format: arrays by their names, and notes, both ways with NumPy alone.

    file    ::= length of the header (8 bytes, the lowest first), header (JSON, spaces up to a multiple of 8), data
    header  ::= { "__metadata__": { note: text, … }, name: { "dtype", "shape", "data_offsets": [begin, end] }, … }

The data follow each other in the order of their offsets, from 0 to the end of the file, without a gap; those of wide
elements come first, so that all are aligned. What is read is checked before it is used, since a file may come from
anywhere.

The format is that of huggingface/safetensors. Their library is not used here, since there is none for a CPython without
the GIL; the tests read and write files with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from staticgrad.base.errors import FormatError
from staticgrad.base.files import opened
from staticgrad.base.frozen import frozen
from staticgrad.base.types import numpy_dtype
from staticgrad.graph.optable import Array

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "BF16": "bfloat16",
    "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
}  # fmt: skip
_SPELLINGS = {name: spelling for spelling, name in DTYPES.items()}
_NBYTES = {spelling: numpy_dtype(name).itemsize if name != "bfloat16" else 2 for spelling, name in DTYPES.items()}
_NBYTES |= {"F8_E4M3": 1, "F8_E5M2": 1}  # listed, but of no dtype here

NOTES = "__metadata__"
LENGTH = 8  # bytes of the length
MOST_HEADER = 100_000_000  # bytes


@frozen
class ArrayHeader:
    """An array in a file; ``dtype`` in the format's own spelling, ``begin`` in bytes after the header."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    begin: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _NBYTES[self.dtype]


def to_bytes(values: Mapping[str, Array], notes: Mapping[str, str]) -> bytes:
    """A file of these arrays and notes."""
    header: dict[str, Any] = {NOTES: dict(notes)}
    parts, end = [], 0
    for name, value in sorted(values.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        begin, end = end, end + value.nbytes
        dtype = _SPELLINGS[value.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [begin, end]}
        parts.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH)
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, *parts])


def digest_of(values: Mapping[str, Array], notes: Mapping[str, str]) -> str:
    """SHA-256, in hexadecimal digits, of arrays with their names, dtypes and shapes, and of notes other than the
    digest itself. The order in which a file has them does not count."""
    digest = hashlib.sha256()

    def add(*texts: str) -> None:
        for text in texts:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "little") + content)

    for key in sorted(notes.keys() - {"digest"}):
        add("note", key, notes[key])
    for name in sorted(values):
        value = values[name]
        add("array", name, value.dtype.name, str(value.shape))
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_digest(path: str | os.PathLike[str], values: Mapping[str, Array], notes: Mapping[str, str]) -> None:
    """Check that arrays and notes have the digest that is noted.

    Raises:
        FormatError: they have another one.
    """
    expected, actual = notes.get("digest"), digest_of(values, notes)
    if actual != expected:
        raise FormatError(f"{path}: the file is damaged\n  expected digest {expected}\n  actual   {actual}")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the notes of a file.

    Raises:
        FormatError: a damaged file, or one of another format.
        OSError: the file can't be read.
    """
    with opened(path) as file:
        return read_open(file, path)


def read_open(file: BinaryIO, path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """``read`` of an open file; ``path`` is for messages."""
    entries, notes = _read_header(path, file)
    data = file.read()
    values = {}
    for entry in entries:
        if entry.dtype not in DTYPES:
            raise FormatError(f"{path}: {entry.name!r} has the dtype {entry.dtype}, which is not supported")
        dtype = numpy_dtype(DTYPES[entry.dtype])
        flat = np.frombuffer(data, np.uint8, entry.nbytes, entry.begin) if entry.nbytes else np.empty(0, np.uint8)
        values[entry.name] = flat.copy().view(dtype).reshape(entry.shape)
    return values, notes


def headers(path: str | os.PathLike[str]) -> tuple[list[ArrayHeader], dict[str, str]]:
    """The headers of the arrays of a file, by name, and its notes; no array is read.

    Raises:
        FormatError: as ``read``.
        OSError: as ``read``.
    """
    with opened(path) as file:
        return headers_of(file, path)


def headers_of(file: BinaryIO, path: str | os.PathLike[str]) -> tuple[list[ArrayHeader], dict[str, str]]:
    """``headers`` of an open file; ``path`` is for messages."""
    entries, notes = _read_header(path, file)
    return sorted(entries, key=lambda entry: entry.name), notes


def _read_header(path: str | os.PathLike[str], file: BinaryIO) -> tuple[list[ArrayHeader], dict[str, str]]:
    """The headers of the arrays of an open file, in the order of their data, and its notes; the data follow."""
    try:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(LENGTH), "little")
        if size < LENGTH or length > min(size - LENGTH, MOST_HEADER):
            raise ValueError(f"a header of {length} bytes in a file of {size}")
        known = json_of(file.read(length).decode())
        return _checked(known, size - LENGTH - length)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: no safetensors file, or a damaged one: {error}") from error


def json_of(text: str) -> Any:
    """The value of a text of JSON.

    Raises:
        ValueError: it is damaged, an object has a name twice, or a text is none that could be written.
        RecursionError: it is nested too deeply.
    """
    found = json.loads(text, object_pairs_hook=_without_repetition)
    json.dumps(found, ensure_ascii=False).encode()  # no half of a pair of surrogates
    return found


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _checked(known: Any, size: int) -> tuple[list[ArrayHeader], dict[str, str]]:
    """The entries of a header, of a file with ``size`` bytes of data."""
    notes = known.pop(NOTES, {}) if isinstance(known, dict) else None
    if not isinstance(notes, dict) or not all(isinstance(text, str) for text in notes.values()):
        raise ValueError("the header is no object of JSON with notes that are texts")
    entries = sorted((_entry(name, fields) for name, fields in known.items()), key=lambda found: found[1])
    at = 0
    for entry, (begin, end) in entries:
        if begin != at or end - begin != entry.nbytes:
            raise ValueError(
                f"{entry.name!r} of {entry.nbytes} bytes is said to lie from {begin} to {end}, not at {at}"
            )
        at = end
    if at != size:
        raise ValueError(f"{at} bytes of data are described, {size} are there")
    return [entry for entry, _ in entries], notes


def _entry(name: str, fields: Any) -> tuple[ArrayHeader, tuple[int, int]]:
    """An array's header and where its data are said to lie."""
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _NBYTES:
        raise ValueError(f"{name!r} has the unknown dtype {dtype!r}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{name!r} has the shape {shape!r} at {offsets!r}")
    begin, end = offsets
    return ArrayHeader(name, tuple(shape), dtype, begin), (begin, end)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)
