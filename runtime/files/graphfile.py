"""The files of a graph: its text, the arrays that are not in it and the state of a session, in one file or in two.

    text    ::= "staticgrad graph" version "\\n"
                "digest sha256" digits "\\n"                            of all that follows, with ends of lines as "\\n"
                ["arrays" name "sha256" digits "\\n"]                   the file of arrays beside, and its digest
                graph                                                  in the grammar of ``staticgrad.graph.text``
    binary  ::= the file of arrays, with the graph's text as its note "graph"

The file of arrays is a safetensors file. It has the arrays of the text as ``array/NAME``; the variables of a session as
``state/NAME``, and what else a checkpoint says of them as the note "state", a JSON object. Its own notes are "format"
with the version, and "digest" as that of checkpoints.

A text without the second line is read too: it may be edited, and what was damaged in it is not found. So is one without
a header, as ``graph.text(full=True)`` gives it. Nothing in a file is executed, and a file that lies beside is one of
the same folder.

The file beside has a part of its digest in its name, so one rename publishes both: the arrays are written first, then
the text that names them replaces the one before, then arrays that no text names are removed. Whoever reads finds one
graph or the other at any moment:

* Arrays are never replaced by others, and two writers of one content share a file. From its writing until the text that
  names it is there, it is held (``files.held``), and what is held is not removed, whoever is done first.
* A file is removed only if it is one of ours by its name and its notes, no process holds it, and no text in the folder
  names it, which is read while the file is locked: a text that was copied or renamed keeps its arrays. That also
  removes the arrays of writers that were killed. Nothing is where files cannot be locked, or a folder has many files.
* A reader that has opened a text may find its arrays gone. Then another text has been published meanwhile, which it
  reads instead; if the text is still the same, the arrays are missing. No reader waits for a writer, and each turn of a
  reader is the work of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping

from staticgrad.base import files
from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import Array
from staticgrad.runtime.files import tensorfile

VERSION = 1
MAGIC = b"staticgrad graph "
FORMAT = "staticgrad.graph."
BINARY = ".sgb"  # how the name of a binary file ends
BESIDE = ".safetensors"  # how the name of a file of arrays ends
PART = 12  # digits of a digest in that name
MOST_NAME = 255  # bytes of the name of a file, on nearly every system
NO_NAME = frozenset("\\:\0")  # in names of files that every system has
MOST_HEADER = 4096  # bytes of the lines before the graph
MOST_LOOKED_AT = 1000  # files of a folder, in which a text may be that names arrays

_FIRST = re.compile(r"staticgrad graph ([0-9]{1,9})\n")
_DIGEST = re.compile(r"digest sha256 ([0-9a-f]{64})\n")
_ARRAYS = re.compile(r"arrays (\S+) sha256 ([0-9a-f]{64})\n")
_STATE, _ARRAY = "state/", "array/"

State = tuple[dict[str, Array], dict[str, str]]  # arrays by name, and notes, as a checkpoint has them


@frozen(eq=False)
class GraphFile:
    """A graph's text, the arrays that it names, and perhaps the state of a session."""

    text: str
    arrays: dict[str, Array]
    state: State | None = None
    version: int = VERSION
    beside: str = ""  # the path of the file of arrays that a text names


# -- writing ----------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], file: GraphFile) -> None:
    """Write the files of a graph, or leave those that are there: one if ``path`` ends in ``.sgb``, else a text, and
    where there are arrays the file of these beside.

    Raises:
        FormatError: the path is empty or names what is no regular file.
        OSError: the files or their folder cannot be written.
    """
    values = {_ARRAY + name: array for name, array in file.arrays.items()}
    notes = {"format": f"{FORMAT}{VERSION}"}
    if file.state is not None:
        values |= {_STATE + name: array for name, array in file.state[0].items()}
        notes["state"] = json.dumps(file.state[1], sort_keys=True)
    if os.fspath(path).endswith(BINARY):
        notes["graph"] = file.text
    digest = tensorfile.digest_of(values, notes)
    content = tensorfile.to_bytes(values, notes | {"digest": digest})
    if "graph" in notes:
        files.replace(path, content)
        return
    target, before = files.replaceable(path)
    folder, name = os.path.split(target)
    stem = re.sub(r"[^!-~]", "_", name)  # a blank in the name would end it: what the text says has none
    named, text = "", file.text
    try:
        with contextlib.ExitStack() as until_published:
            if values or file.state is not None:
                named = f"{stem}.{digest[:PART]}{BESIDE}"
                until_published.enter_context(files.held(os.path.join(folder, named), content, before))
                text = f"arrays {named} sha256 {digest}\n{text}"
            header = f"{MAGIC.decode()}{VERSION}\ndigest sha256 {_digest_of(text)}\n"
            files.replace(path, (header + text).encode())
    finally:
        with contextlib.suppress(OSError):
            _remove_unnamed(target, stem)


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# -- arrays that no text names ----------------------------------------------------------------------------------------


def _remove_unnamed(target: str, stem: str) -> None:
    """Remove the files of arrays beside a text whose names begin with ``stem``, and which no text of the folder names.

    Raises:
        OSError: the folder cannot be read.
    """
    folder = os.path.dirname(target)
    ours = rf"{re.escape(stem)}\.[0-9a-f]{{{PART}}}{re.escape(BESIDE)}"
    files.remove_abandoned(folder, ours)
    names, named = os.listdir(folder), _arrays_named(target)
    found = [name for name in names if re.fullmatch(ours, name) and name != named]
    for name in found if len(names) <= MOST_LOOKED_AT else ():
        with contextlib.suppress(OSError):
            path = os.path.join(folder, name)
            files.remove_unheld(path, lambda path=path: not _is_ours(path) or _is_named(path))  # type: ignore[misc]


def _is_ours(path: str) -> bool:
    """True if a file holds the arrays of a graph whose digest is a part of the file's name."""
    try:
        notes = tensorfile.headers(path)[1]
    except FormatError:
        return False
    digest = notes.get("digest", "")
    return notes.get("format", "").startswith(FORMAT) and path.endswith(f".{digest[:PART]}{BESIDE}")


def _is_named(path: str) -> bool:
    """True if a text in the same folder names the file of arrays at a path, or if one can't be read."""
    folder, name = os.path.split(path)
    return any(_arrays_named(os.path.join(folder, other)) in (name, None) for other in os.listdir(folder))


def _arrays_named(path: str) -> str | None:
    """The name of the file of arrays that the text at a path names; "" if there is none, None if that can't be told."""
    try:
        with files.opened(path) as file:
            start = file.read(MOST_HEADER)
    except (FormatError, FileNotFoundError):
        return ""
    except OSError:
        return None
    lines = start.decode(errors="replace").replace("\r\n", "\n")
    found = re.match(f"{_FIRST.pattern}(?:{_DIGEST.pattern})?{_ARRAYS.pattern}", lines)
    return found[3] if found else ""


# -- reading ----------------------------------------------------------------------------------------------------------


def is_graph(path: str | os.PathLike[str]) -> bool:
    """True if the file begins as that of a graph does, text or binary; a text without a header is none.

    Raises:
        FormatError: the path is none, or names something else than a regular file.
        OSError: the file can't be read.
    """
    with files.opened(path) as file:
        if file.read(len(MAGIC)) == MAGIC:
            return True
        file.seek(0)
        try:
            return tensorfile.headers_of(file, path)[1].get("format", "").startswith(FORMAT)
        except FormatError:
            return False


def read(path: str | os.PathLike[str]) -> GraphFile:
    """The text, arrays and state that the files of a graph hold.

    Raises:
        FormatError: a damaged or foreign file, or one of a newer version.
        OSError: a file can't be read.
    """
    while True:
        with files.opened(path) as file:
            status, start = os.fstat(file.fileno()), file.read(tensorfile.LENGTH)
            if 0 < int.from_bytes(start, "little") <= status.st_size - tensorfile.LENGTH:  # as no text begins
                file.seek(0)
                return _binary(path, *tensorfile.read_open(file, path))
            try:
                return _read_text(path, start + file.read())
            except (FormatError, FileNotFoundError):
                # Its number is given to no other file while this one is open.
                if os.path.samestat(os.stat(path), status):
                    raise


def _binary(path: str | os.PathLike[str], values: dict[str, Array], notes: dict[str, str]) -> GraphFile:
    version = _check_arrays(path, values, notes)
    if "graph" not in notes:
        raise FormatError(f"{path}: the arrays of a graph: expected the file that they lie beside, which has its text")
    return GraphFile(notes["graph"], *_divided(path, values, notes), version)


def _read_text(path: str | os.PathLike[str], content: bytes) -> GraphFile:
    try:
        text = content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: no graph, or a damaged one: {error}") from None
    first = _FIRST.match(text)
    if first is None and content.startswith(MAGIC.strip()):
        raise FormatError(f"{path}: expected 'staticgrad graph' and a version, actual {text[:40]!r}")
    if first is None:
        return GraphFile(text, {})
    version = _check_version(path, int(first[1]))
    text = text[first.end() :]
    digest = _DIGEST.match(text)
    if digest is not None:
        text = text[digest.end() :]
        if _digest_of(text) != digest[1]:
            raise FormatError(
                f"{path}: the file is damaged, or was edited\n  expected digest {digest[1]}"
                f"\n  actual   {_digest_of(text)}\n  without its second line it is read as it is"
            )
    beside = _ARRAYS.match(text)
    if beside is None:
        return GraphFile(_behind(text, 0, digest is not None), {}, None, version)
    name, expected = beside.groups()
    is_name = os.path.basename(name) == name and name not in (".", "..") and len(name.encode()) <= MOST_NAME
    if not is_name or not NO_NAME.isdisjoint(name):
        raise FormatError(f"{path}: expected the name of a file of arrays in the same folder, actual {name!r}")
    there = os.path.join(os.path.dirname(os.path.realpath(path)), name)
    values, notes = tensorfile.read(there)
    if _check_arrays(there, values, notes) != version or notes["digest"] != expected:
        raise FormatError(f"{there}: the arrays of another graph than {path}")
    return GraphFile(_behind(text, beside.end(), digest is not None), *_divided(there, values, notes), version, there)


def _behind(text: str, end: int, has_digest: bool) -> str:
    """The graph after a header, and before it a line for each line of the header, so that errors name lines of the
    file."""
    return "\n" * (1 + has_digest + (end > 0)) + text[end:]


def _check_version(path: str | os.PathLike[str], version: int) -> int:
    if not 1 <= version <= VERSION:
        newer = ": it was written by a newer staticgrad" if version > VERSION else ""
        raise FormatError(f"{path}: expected a graph of version {VERSION} or older, actual {version}{newer}")
    return version


def _check_arrays(path: str | os.PathLike[str], values: Mapping[str, Array], notes: Mapping[str, str]) -> int:
    """The version of a file of arrays, whose digest is checked."""
    form = notes.get("format", "")
    number = form.removeprefix(FORMAT)
    if number == form or not re.fullmatch(r"[0-9]{1,9}", number):
        hint = ", which sess.restore reads" if form.startswith("staticgrad.checkpoint") else ""
        raise FormatError(f"{path}: expected the format {FORMAT}{VERSION}, actual {form or 'none'}{hint}")
    version = _check_version(path, int(number))
    tensorfile.check_digest(path, values, notes)
    return version


def _divided(
    path: str | os.PathLike[str], values: Mapping[str, Array], notes: Mapping[str, str]
) -> tuple[dict[str, Array], State | None]:
    """The arrays of the text and the state among those of a file."""
    arrays, kept = (
        {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        for prefix in (_ARRAY, _STATE)
    )
    if len(arrays) + len(kept) < len(values):
        raise FormatError(f"{path}: an array is neither the graph's nor a session's")
    if "state" not in notes:
        if kept:
            raise FormatError(f"{path}: the variables of a session without its random state")
        return arrays, None
    try:
        said = tensorfile.json_of(notes["state"])
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: the note of the state is damaged: {error}") from None
    if not isinstance(said, dict) or not all(isinstance(text, str) for text in said.values()):
        raise FormatError(f"{path}: the note of the state is no object of JSON with texts")
    return arrays, (kept, said)
