"""Machine code kept on disk, so that a program which was compiled before, in whatever process, is not compiled again.

Comes in: the LLVM text and the target. Goes out: the object code that was made of them, or nothing. The key is a digest
of the text, the target, and the versions of what makes code of it; an entry carries a digest of its own contents. A
damaged, foreign or unreadable entry is a miss, never an error; entries are written to a temporary name and renamed.

``STATICGRAD_CACHE=0`` turns it off, ``STATICGRAD_CACHE_DIR`` says where it lies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from staticgrad import config
from staticgrad.compiler.emit.target import Target

FORMAT = b"staticgrad object 1\n"
LIMIT = 256 << 20  # bytes on disk; the entries used longest ago go first
SUFFIX = ".sgo"


@dataclass(frozen=True, slots=True)
class CachedObject:
    """Relocatable object code, and the functions it exports."""

    code: bytes
    exports: tuple[str, ...]


def directory() -> Path | None:
    """Where entries lie, or None if nothing is kept."""
    if config.get("CACHE") == "0":
        return None
    chosen = config.get("CACHE_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("staticgrad", appauthor=False))


def key_of(text: str, target: Target, versions: str) -> str:
    """The name of an entry: equal only for equal text, target and versions."""
    digest = hashlib.sha256()
    for part in (FORMAT, repr(target).encode(), versions.encode(), text.encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def load(key: str) -> CachedObject | None:
    """The entry, if it is there and whole."""
    place = directory()
    if place is None:
        return None
    path = place / f"{key}{SUFFIX}"
    try:
        content = path.read_bytes()
        with contextlib.suppress(OSError):
            os.utime(path)
    except OSError:
        return None
    return _unpack(content)


def _unpack(content: bytes) -> CachedObject | None:
    head, digest, body = content[: len(FORMAT)], content[len(FORMAT) :][:32], content[len(FORMAT) + 32 :]
    if head != FORMAT or hashlib.sha256(body).digest() != digest:
        return None
    size = int.from_bytes(body[:4], "little")
    names = json.loads(body[4 : 4 + size])
    return CachedObject(body[4 + size :], tuple(names))


def save(key: str, entry: CachedObject) -> None:
    """Keep an entry, if there is a place for it."""
    place = directory()
    if place is None:
        return
    names = json.dumps(list(entry.exports)).encode()
    body = len(names).to_bytes(4, "little") + names + entry.code
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(FORMAT + hashlib.sha256(body).digest() + body)
            os.replace(temporary, place / f"{key}{SUFFIX}")
        except OSError:
            os.unlink(temporary)
            raise
        _shrink(place)


def entries(place: Path) -> list[tuple[float, int, Path]]:
    """When each entry was last used, its bytes, its path; oldest first."""
    found = []
    for path in place.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return sorted(found)


def _shrink(place: Path) -> None:
    kept = entries(place)
    total = sum(size for _, size, _ in kept)
    for _, size, path in kept:
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size


def clear() -> int:
    """Drop every entry; how many there were."""
    place = directory()
    kept = entries(place) if place is not None and place.is_dir() else []
    for _, _, path in kept:
        path.unlink(missing_ok=True)
    return len(kept)
