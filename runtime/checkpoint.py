"""Checkpoints: a session's state as a safetensors file.

The file holds every variable of the graph under its name, and in its metadata the seed and how many runs have drawn
random numbers, so that training resumes bit for bit. It is written under another name and renamed, and on the way back
everything is checked before anything changes.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from staticgrad.errors import FormatError
from staticgrad.optable import Array
from staticgrad.runtime.state import Store

FORMAT = "staticgrad.checkpoint.1"


def save(store: Store, path: str | os.PathLike[str]) -> None:
    """Write the state of a session to ``path``, whole or not at all."""
    _write_whole(Path(path), store.lock.exclusive(_contents, store))  # values of one moment


def _contents(store: Store) -> bytes:
    from safetensors.numpy import save as to_bytes

    values = {key: store.array(key) for key in store.graph.variables}
    return to_bytes(values, {"format": FORMAT, "seed": str(store.seed), "runs_drawn": str(store.runs_drawn)})


def _write_whole(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def restore(store: Store, path: str | os.PathLike[str]) -> None:
    """Take the state of a session from ``path``.

    Raises:
        FormatError: a damaged or foreign file, missing or extra names, another shape or dtype; nothing has changed.
        OSError: the file can't be read.
    """
    values, metadata = _read(Path(path))
    numbers = _numbers(path, metadata)
    _check_values(store, path, values)
    store.change(values, random=numbers)


def _read(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    with open(path, "rb"):
        pass  # a missing or unreadable file is the operating system's error, not one of format
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            names = file.keys()
            values = {name: np.array(file.get_tensor(name)) for name in names}
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
        raise FormatError(f"{path}: no checkpoint, or a damaged one: {error}") from error
    return values, metadata


def _numbers(path: str | os.PathLike[str], metadata: dict[str, str]) -> tuple[int, int]:
    if metadata.get("format") != FORMAT:
        raise FormatError(
            f"{path}: not written by Session.save\n  expected format {FORMAT}\n  actual   {metadata.get('format')}"
        )
    try:
        seed, runs = int(metadata["seed"]), int(metadata["runs_drawn"])
    except (KeyError, ValueError) as error:
        raise FormatError(f"{path}: the random state is damaged: {error}") from error
    if not (-(2**63) <= seed < 2**64 and 0 <= runs < 2**63):
        raise FormatError(f"{path}: the random state is damaged: seed {seed}, {runs} runs")
    return seed, runs


def _check_values(store: Store, path: str | os.PathLike[str], values: dict[str, Array]) -> None:
    expected = set(store.graph.variables)
    missing, extra = sorted(expected - values.keys()), sorted(values.keys() - expected)
    if missing or extra:
        parts = [
            f"{what}: {', '.join(map(repr, names))}"
            for what, names in (("missing in the file", missing), ("not in the graph", extra))
            if names
        ]
        raise FormatError(f"{path}: other variables than the graph's\n  " + "\n  ".join(parts))
    for key, value in values.items():
        attrs = store.attributes(key)
        if value.shape != attrs.shape or value.dtype != attrs.dtype:
            raise FormatError(
                f"{path}: variable {key!r}\n  expected {attrs.dtype.name}{list(attrs.shape)}"
                f"\n  actual   {value.dtype.name}{list(value.shape)}"
            )


# -- looking at a file ------------------------------------------------------------------------------------------------

NBYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4}


@dataclass(frozen=True, slots=True)
class Entry:
    """An array in a safetensors file; ``dtype`` in the format's own spelling."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * NBYTES.get(self.dtype, 8)


def contents(path: str | os.PathLike[str]) -> tuple[list[Entry], dict[str, str]]:
    """What a safetensors file says it holds, by name, and its metadata; no array is read.

    Raises:
        FormatError: a damaged file, or one of another format.
        OSError: the file can't be read.
    """
    from safetensors import SafetensorError, safe_open

    with open(path, "rb"):
        pass  # as in ``_read``
    entries = []
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            for name in sorted(file.keys()):
                part = file.get_slice(name)
                entries.append(Entry(name, tuple(part.get_shape()), str(part.get_dtype())))
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
        raise FormatError(f"{path}: no safetensors file, or a damaged one: {error}") from error
    return entries, metadata
