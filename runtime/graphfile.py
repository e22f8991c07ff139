"""The files of a graph: its text, the arrays that are not in it and the state of a session, in one file or in two.

    text    ::= "staticgrad graph" version "\\n"
                "digest sha256" digits "\\n"                            of all that follows, with ends of lines as "\\n"
                ["arrays" name "sha256" digits "\\n"]                   the file of arrays beside, and its digest
                graph                                                  in the grammar of ``staticgrad.text``
    binary  ::= the file of arrays, with the graph's text as its note "graph"

The file of arrays is a safetensors file. It has the arrays of the text as ``array/NAME``; the variables of a session as
``state/NAME``, and what else a checkpoint says of them as the note "state", a JSON object. Its own notes are "format"
with the version, and "digest" as that of checkpoints.

A text without the second line is read too: it may be edited, and what was damaged in it is not found. So is one without
a header, as ``graph.text(full=True)`` gives it. Nothing in a file is executed, and a file that lies beside is one of
the same folder.

The file beside has a part of its digest in its name: it is written first, then the text that names it replaces the one
before, then what that one named is removed. Whoever reads finds one graph or the other at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from staticgrad.errors import FormatError
from staticgrad.frozen import frozen
from staticgrad.optable import Array
from staticgrad.runtime import files, tensorfile

VERSION = 1
MAGIC = b"staticgrad graph "
FORMAT = "staticgrad.graph."
BINARY = ".sgb"  # how the name of a binary file ends
MOST_HEADER = 4096  # bytes of the lines before the graph

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
    named, text = "", file.text
    folder, name = os.path.split(os.path.realpath(path))
    before = _named_before(path, name)
    if values or file.state is not None:
        # A blank in the name would end it: what the text says has none.
        named = f"{re.sub(r'[^!-~]', '_', name)}.{digest[:12]}.safetensors"
        text = f"arrays {named} sha256 {digest}\n{text}"
        files.replace(os.path.join(folder, named), content)
    header = f"{MAGIC.decode()}{VERSION}\ndigest sha256 {_digest_of(text)}\n"
    files.replace(path, (header + text).encode())
    if before and before != named:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, before))


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _named_before(path: str | os.PathLike[str], name: str) -> str:
    """The file of arrays that the text at ``path`` names, if it has the name that ``write`` gave it; else ""."""
    try:
        files.check_regular(path)
        with open(path, "rb") as file:
            start = file.read(MOST_HEADER).decode(errors="replace").replace("\r\n", "\n")
    except (FormatError, OSError):
        return ""
    found = re.match(f"{_FIRST.pattern}{_DIGEST.pattern}{_ARRAYS.pattern}", start)
    ours = re.escape(re.sub(r"[^!-~]", "_", name)) + r"\.[0-9a-f]{12}\.safetensors"
    return found[3] if found and re.fullmatch(ours, found[3]) else ""


# -- reading ----------------------------------------------------------------------------------------------------------


def is_graph(path: str | os.PathLike[str]) -> bool:
    """True if the file begins as that of a graph does, text or binary; a text without a header is none.

    Raises:
        OSError: the file can't be read.
    """
    try:
        files.check_regular(path)
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return True
        return tensorfile.headers(path)[1].get("format", "").startswith(FORMAT)
    except FormatError:
        return False


def read(path: str | os.PathLike[str]) -> GraphFile:
    """The text, arrays and state that the files of a graph hold.

    Raises:
        FormatError: a damaged or foreign file, or one of a newer version.
        OSError: a file can't be read.
    """
    size = files.check_regular(path).st_size
    with open(path, "rb") as file:
        start = file.read(tensorfile.LENGTH)
        if not 0 < int.from_bytes(start, "little") <= size - tensorfile.LENGTH:  # as no text begins
            return _read_text(path, start + file.read())
    return _read_binary(path)


def _read_binary(path: str | os.PathLike[str]) -> GraphFile:
    values, notes = tensorfile.read(path)
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
    if os.path.basename(name) != name or name in (".", "..") or "\\" in name or ":" in name:
        raise FormatError(f"{path}: expected the name of a file of arrays in the same folder, actual {name!r}")
    there = os.path.join(os.path.dirname(os.path.realpath(path)), name)
    values, notes = tensorfile.read(there)
    if _check_arrays(there, values, notes) != version or notes["digest"] != expected:
        raise FormatError(f"{there}: the arrays of another graph than {path}")
    return GraphFile(_behind(text, beside.end(), digest is not None), *_divided(there, values, notes), version, there)


def _behind(text: str, end: int, has_digest: bool) -> str:
    """The graph behind a header, and before it a line for each line of the header, so that errors name lines of the
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
        said: Any = json.loads(notes["state"])
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: the note of the state is damaged: {error}") from None
    if not isinstance(said, dict) or not all(isinstance(text, str) for text in said.values()):
        raise FormatError(f"{path}: the note of the state is no object of JSON with texts")
    return arrays, (kept, said)
