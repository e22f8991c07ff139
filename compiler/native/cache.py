"""A cache on disk of what was compiled before, so that no process compiles it again.

Input: a key and plain data (``staticgrad.base.plain``). Output: the data that were kept under that key, or nothing. A
key is a digest of everything that the data follow from: what the caller names, the versions of LLVM and of this
package's own sources (as their names, sizes and times of change say, which is how Python itself knows that a module has
changed).

An entry carries its key and a digest of the key and its contents. One that is damaged, lies under another key's name or
is unreadable is a miss, never an error, and so is one that another user could have written (``private``). Where the
whole folder is refused for that, ``STATICGRAD_DEBUG`` says so once. Entries are written to a temporary name and
renamed; above ``LIMIT`` bytes the least recently used are evicted.

``STATICGRAD_CACHE=0`` turns it off, ``STATICGRAD_CACHE_DIR`` says where it lies.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import sys
import time
from importlib.machinery import PathFinder

from staticgrad.base import config, log, plain
from staticgrad.base.plain import Plain
from staticgrad.compiler.native import private

FORMAT = b"staticgrad entry 3\n"
LIMIT = 256 << 20  # bytes on disk
LARGEST = LIMIT // 4  # of one entry
DIGEST = 32  # bytes of a digest of SHA-256
SUFFIX, TEMPORARY = ".sge", ".tmp"
ABANDONED = 3600.0  # seconds after which no process is still writing a temporary file
OWN = ("staticgrad", "staticgrad.compiler", "staticgrad.runtime")
BINARIES = (".so", ".dylib", ".dll")


def directory() -> str | None:
    """The folder in which entries lie, or None if nothing is kept."""
    if config.get("CACHE") == "0":
        return None
    return config.get("CACHE_DIR") or _users_directory()


def _users_directory() -> str:
    """The folder in which this system keeps what can be made again: the XDG base directories, and what macOS and
    Windows have."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        return os.path.join(local, "staticgrad", "Cache")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "staticgrad")
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(chosen if os.path.isabs(chosen) else os.path.join(home, ".cache"), "staticgrad")


# -- keys -----------------------------------------------------------------------------------------------------------


def key_of(*parts: str | bytes, needs_sources: bool = True) -> str | None:
    """The name of an entry: equal only for equal parts, versions and, if the data follow from them, sources. None where
    those cannot be told."""
    versions = toolchain(), sources() if needs_sources else ""
    if None in versions:
        return None
    digest = hashlib.sha256()
    for part in (FORMAT, *(v or "" for v in versions), *parts):
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


@functools.cache
def toolchain() -> str | None:
    """A text that names the LLVM which makes machine code here. It is told from its files: importing it takes longer
    than what a kept program needs in all."""
    found = PathFinder.find_spec("llvmlite")
    folders = (found.submodule_search_locations if found is not None else None) or ()
    return _state_of([os.fspath(folder) for folder in folders], BINARIES)


@functools.cache
def sources() -> str | None:
    """A text that names the state of this package's own sources."""
    files = [importlib.import_module(name).__file__ for name in OWN]  # the path of a checkout has its root, too
    return _state_of([os.path.dirname(file) for file in files if file is not None], (".py", ".ll"))


def _state_of(folders: list[str], endings: tuple[str, ...]) -> str | None:
    """Name, size and time of change of every file below ``folders``; None where there are none to be seen."""
    files: list[str] = []
    waiting, seen = list(folders), set[str]()  # a folder may lie in another one
    try:
        while waiting:
            folder = waiting.pop()
            if folder not in seen:
                seen.add(folder)
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name.endswith(endings):
                            status = entry.stat()
                            files.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
                        elif entry.is_dir() and entry.name != "__pycache__":
                            waiting.append(entry.path)
    except OSError:
        return None
    return "\n".join(sorted(files)) or None


# -- entries --------------------------------------------------------------------------------------------------------


def load(key: str | None) -> Plain:
    """The data that were kept under ``key``, if they are there, whole, and of this user's own, else None."""
    place = directory()
    if place is None or key is None:
        return None
    try:
        with _opened(place) as folder:
            content = folder.read(key + SUFFIX, len(FORMAT) + DIGEST + len(key) + LARGEST)
    except OSError:
        return None
    return _unpack(key, content)


def _opened(place: str) -> private.Folder:
    """The folder of entries.

    Raises:
        OSError: there is none, or it is not this user's own.
    """
    try:
        return private.Folder(place)
    except private.NotPrivate as refusal:
        _say_once(str(refusal))
        raise


@functools.cache
def _say_once(refusal: str) -> None:
    line = f"staticgrad: compiled programs are not kept: {refusal}"
    log.tell("cache", log.INFO, line, asked=config.get("DEBUG") != "0")


def _pack(key: str, body: bytes) -> bytes:
    return b"".join((FORMAT, _digest(key, body), key.encode(), body))


def _unpack(key: str, content: bytes) -> Plain:
    head, digest, rest = content[: len(FORMAT)], content[len(FORMAT) :][:DIGEST], content[len(FORMAT) + DIGEST :]
    name, body = rest[: len(key)], rest[len(key) :]
    if head != FORMAT or name != key.encode() or _digest(key, body) != digest:
        return None
    try:
        return plain.load(body)
    except ValueError:
        return None


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(FORMAT + key.encode() + body).digest()


def save(key: str | None, data: Plain) -> None:
    """Keep data, if there is a place for them and they are not too large."""
    place = directory()
    if place is None or key is None:
        return
    body = plain.dump(data)
    if len(body) > LARGEST:
        return
    with contextlib.suppress(OSError):
        private.make(place)
        with _opened(place) as folder:
            folder.write(key + SUFFIX, _pack(key, body), TEMPORARY)
        if key.startswith("0"):  # one in sixteen: looking at all entries takes longer than writing one
            shrink(place)


def entries(place: str) -> list[tuple[float, int, str]]:
    """The time when each entry was last used, its bytes, its path; oldest first. An empty list where there is no such
    place.

    Raises:
        NotPrivate: the folder is not this user's own.
        OSError: it cannot be read.
    """
    try:
        with private.Folder(place) as folder:
            return [(used, size, os.path.join(place, name)) for used, size, name in _entries(folder, SUFFIX)]
    except FileNotFoundError:
        return []


def _entries(folder: private.Folder, suffix: str) -> list[tuple[float, int, str]]:
    return sorted((status.st_mtime, status.st_size, name) for name, status in folder.files(suffix))


def shrink(place: str) -> None:
    """Evict the least recently used entries until no more than ``LIMIT`` bytes are left, and what was never written to
    its end."""
    with private.Folder(place) as folder:
        for written, _, name in _entries(folder, TEMPORARY):
            if time.time() - written > ABANDONED:
                folder.remove(name)
        kept = _entries(folder, SUFFIX)
        total = sum(size for _, size, _ in kept)
        for _, size, name in kept:
            if total <= LIMIT:
                return
            folder.remove(name)
            total -= size


def clear() -> int:
    """Drop every entry; how many there were.

    Raises:
        NotPrivate: the folder is not this user's own.
    """
    place = directory()
    kept = entries(place) if place is not None else []
    if place is not None and kept:
        with private.Folder(place) as folder:
            for _, _, path in kept:
                folder.remove(os.path.basename(path))
    return len(kept)
