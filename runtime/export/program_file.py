"""The file of an exported program: its interface, the state as it begins, and machine code for one or several targets.

    file    ::= prefix, header (JSON), sections
    prefix  ::= magic (8 bytes), SHA-256 of all that follows it (32 bytes), length of the file (8), version (4),
                length of the header (4); numbers have the lowest byte first
    header  ::= { "staticgrad": who wrote it, "system", "byte_order", "page_bytes", "pointer_bytes",
                  "interface": { … }, "state": [begin, end], "images": [ { "target", "arch", "needs", "section" }, … ],
                  "caller": { "head", "section" } }
    section ::= the state | an image as plain data

Sections follow each other in the order of the header, from its end to the end of the file. Images come with the widest
target first; ``needs`` are features of processors by LLVM's names. The caller, which may be left out, is the image by
which Python calls entries (``runtime.parts.entry``), for interpreters whose objects have a head of ``head`` bytes.
Later versions keep the prefix, and say in the header who wrote them.

A program is code that runs with the rights of who loads it. ``read`` refuses files that another user may have written;
``parse`` takes nothing of a file for granted, executes nothing, and refuses what is damaged whole.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import mmap
import os
import re
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from staticgrad.base import config, image, plain
from staticgrad.base.config import host_arch, told_features
from staticgrad.base.errors import FormatError
from staticgrad.base.files import WRITABLE, read_regular, replace
from staticgrad.base.frozen import frozen
from staticgrad.base.image import CodeImage, ImageError, LoadedImage
from staticgrad.runtime.export.interface import EXTREMES, ExportInterface, from_plain, to_plain
from staticgrad.runtime.files.tensorfile import json_of
from staticgrad.runtime.parts.descriptors import EntryRuntime, layout_is_known
from staticgrad.runtime.parts.vectorcall import HEAD

MAGIC = b"\x89SGP\r\n\x1a\n"  # a copy that changes line ends or drops the eighth bit is told
VERSION = 1
_DIGEST = struct.Struct("<8s32s")
_PREFIX = struct.Struct("<8s32sQII")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$@]*", re.ASCII)


@frozen
class ImageSection:
    """Machine code in a file: for which target it is and what a processor must have."""

    target: str
    arch: str
    needs: tuple[str, ...]
    begin: int
    end: int


@frozen(eq=False)
class ProgramFile:
    """A file that is whole; ``writer`` is the version of staticgrad that wrote it, ``images`` have the widest target
    first, ``caller`` is the head of the objects that the caller's code knows, in bytes, and its place."""

    data: bytes
    writer: str
    platform: tuple[tuple[str, Any], ...]
    interface: ExportInterface
    state: tuple[int, int]
    images: tuple[ImageSection, ...]
    caller: tuple[int, int, int] | None = None

    @property
    def initial(self) -> memoryview:
        """The state as it begins."""
        return memoryview(self.data)[slice(*self.state)]


def digest_of(data: bytes) -> str:
    """SHA-256 of a file, in hexadecimal digits, as ``export`` and ``staticgrad info`` tell it."""
    return hashlib.sha256(data).hexdigest()


# -- writing ----------------------------------------------------------------------------------------------------------


def to_bytes(
    interface: ExportInterface, images: Mapping[str, CodeImage], initial: bytes, caller: CodeImage | None = None
) -> bytes:
    """A file of a program.

    Args:
        interface: its entries, all of signature ``"slots"``, and its state.
        images: machine code by the names of targets, with one function an entry, under its name.
        initial: the state as it begins.
        caller: the machine code by which Python calls entries, for interpreters like this one.
    """
    from staticgrad.compiler.machine.target import EXTENDED_TARGETS, SMALL_EXTENDED, SMALL_TARGETS, TARGETS

    known = EXTENDED_TARGETS | TARGETS | SMALL_EXTENDED | SMALL_TARGETS
    order = sorted(images, key=list(known).index)
    callers = [] if caller is None else [caller]
    code = [*(images[name] for name in order), *callers]
    sections = [bytes(initial), *(plain.dump(image.to_plain(each)) for each in code)]
    header: dict[str, Any] = {"staticgrad": config.version(), **_platform(), "interface": to_plain(interface)}
    ends = [0]
    for section in sections:
        ends.append(ends[-1] + len(section))
    spans = [list(span) for span in itertools.pairwise(ends)]  # counted from the end of the header
    header["state"], *places = spans
    header["images"] = [
        {"target": name, "arch": image.MACHINE, "needs": list(known[name].isa.needs), "section": span}
        for name, span in zip(order, places, strict=False)
    ]
    if caller is not None:
        header["caller"] = {"head": HEAD, "section": spans[-1]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    length = _PREFIX.size + len(text) + ends[-1]
    head = _PREFIX.pack(MAGIC, bytes(32), length, VERSION, len(text))
    return sealed(b"".join([head, text, *sections]))


def write(path: str | os.PathLike[str], data: bytes) -> str:
    """Write a file whole or not at all, so that only its owner may change it; returns its digest.

    Raises:
        FormatError: the path names no regular file.
        OSError: it can't be written.
    """
    replace(path, data, owned=True)
    return digest_of(data)


def sealed(data: bytes) -> bytes:
    """A file with the digest that its content has."""
    content = data[_DIGEST.size :]
    return _DIGEST.pack(MAGIC, hashlib.sha256(content).digest()) + content


def _platform() -> dict[str, Any]:
    """The properties of this process, other than the processor, that code takes for granted."""
    return {
        "system": sys.platform,
        "byte_order": sys.byteorder,
        "page_bytes": mmap.PAGESIZE,
        "pointer_bytes": struct.calcsize("P"),
    }


# -- reading ----------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], digest: str | None = None) -> bytes:
    """The content of a file, if only its user and root can have written it, or if it has the given digest.

    Raises:
        FormatError: another user may have written it, or it has another digest.
        OSError: it can't be read.
    """
    if digest is not None and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise FormatError(f"digest: expected 64 hexadecimal digits, actual {digest!r}")
    data, status = read_regular(path)
    if digest is None:
        _refuse_foreign(path, status, data)
    elif not hmac.compare_digest(digest_of(data), digest.lower()):
        raise FormatError(f"{path}: another file\n  expected digest {digest.lower()}\n  actual   {digest_of(data)}")
    return data


def _refuse_foreign(path: str | os.PathLike[str], status: os.stat_result, data: bytes) -> None:
    """Refuse a file that others may have written."""
    if not hasattr(os, "geteuid"):
        return  # Windows keeps a user's files apart by other means
    reason = ""
    if status.st_uid not in (os.geteuid(), 0):
        reason = f"user {status.st_uid} owns the file, neither user {os.geteuid()}, who runs this process, nor root"
    elif status.st_mode & WRITABLE:
        mode = stat.S_IMODE(status.st_mode)
        reason = f"others than its owner may write to the file (mode {mode:o}; chmod go-w takes that from them)"
    if reason:
        raise FormatError(
            f"{path}: {reason}; a program is code that would run with your rights.\n  If it is the one that was"
            f" exported, sg.load(path, digest=…) with the digest that export told takes it whoever may write it;"
            f"\n  this file has {digest_of(data)}"
        )


def parse(data: bytes, name: str) -> ProgramFile:
    """A file whose parts are where its header says; ``name`` is for messages.

    Raises:
        FormatError: it is no such file, damaged, or of a later version.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise FormatError(
            f"{name}: not a program that staticgrad exported; the state of a session is read by sess.restore(path), a"
            " graph by sg.load_graph(path)"
        )
    if len(data) < _PREFIX.size:
        raise FormatError(f"{name}: the file is damaged: {len(data)} bytes are no whole prefix")
    _, digest, length, version, header_length = _PREFIX.unpack_from(data)
    if length != len(data):
        raise FormatError(f"{name}: the file is damaged\n  expected {length} bytes\n  actual   {len(data)}")
    if hashlib.sha256(memoryview(data)[_DIGEST.size :]).digest() != digest:
        raise FormatError(f"{name}: the file is damaged: its content has another digest than it says")
    begin = _PREFIX.size + header_length
    try:
        if begin > length:
            raise ValueError(f"a header of {header_length} bytes in a file of {length}")
        header = _header(data[_PREFIX.size : begin].decode())
        writer = _text(header, "staticgrad")
        if version != VERSION:
            raise FormatError(
                f"{name}: a file of format {version}, which staticgrad {writer} wrote; this staticgrad reads {VERSION}"
            )
        platform = tuple((key, header.get(key)) for key in _platform())
        state, images, caller = _sections(header, begin, length)
        interface = from_plain(header.get("interface"))
        _check_interface(interface, state)
    except FormatError as error:
        if error.message.startswith(name):
            raise
        raise FormatError(f"{name}: the file is damaged: {error}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: the file is damaged: {error}") from error
    return ProgramFile(data, writer, platform, interface, state, images, caller)


def _header(text: str) -> dict[str, Any]:
    found = json_of(text)
    if not isinstance(found, dict):
        raise ValueError("the header is no object of JSON")
    return found


def _text(data: Any, key: str) -> str:
    found = data.get(key) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise ValueError(f"{key}: expected a text, actual {found!r:.80}")
    return found


def _sections(
    header: Mapping[str, Any], begin: int, length: int
) -> tuple[tuple[int, int], tuple[ImageSection, ...], tuple[int, int, int] | None]:
    """The places of the state, of the images and of the caller, which follow each other from ``begin`` to the end."""
    images = header.get("images")
    if not isinstance(images, list) or not images:
        raise ValueError("no list of images")
    at = begin

    def span(found: Any) -> tuple[int, int]:
        nonlocal at
        if not (isinstance(found, list) and len(found) == 2 and all(type(end) is int for end in found)):
            raise ValueError(f"expected the ends of a section, actual {found!r:.80}")
        low, high = (begin + end for end in found)
        if low != at or not low <= high <= length:
            raise ValueError(f"a section from {low} to {high}, expected from {at} to at most {length}")
        at = high
        return low, high

    state = span(header.get("state"))
    known = []
    for item in images:
        needs = item.get("needs") if isinstance(item, dict) else None
        if not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
            raise ValueError("an image that does not say what it needs")
        places = span(item.get("section"))
        known.append(ImageSection(_text(item, "target"), _text(item, "arch"), tuple(needs), *places))
    caller: tuple[int, int, int] | None = None
    if "caller" in header:
        told = header["caller"]
        if not isinstance(told, dict) or type(told.get("head")) is not int:
            raise ValueError("a caller that does not say for which interpreters it is")
        caller = (told["head"], *span(told.get("section")))
    if at != length:
        raise ValueError(f"{length - at} bytes that belong to no section")
    if len({one.target for one in known}) < len(known):
        raise ValueError("a target is there twice")
    return state, tuple(known), caller


def _check_interface(interface: ExportInterface, state: tuple[int, int]) -> None:
    if state[1] - state[0] != interface.state.nbytes:
        raise ValueError(f"a state of {state[1] - state[0]} bytes, expected {interface.state.nbytes}")
    for entry in interface.entries:
        if entry.signature != "slots":
            raise ValueError(f"an entry of signature {entry.signature!r:.80}, expected 'slots'")
        if not entry.name.isidentifier():
            raise ValueError(f"an entry of name {entry.name!r:.80}")
        if any(check.offset + EXTREMES > entry.workspace_bytes for check in entry.checks if check.kind == "bounds"):
            raise ValueError("a check whose indices lie outside of the workspace")


# -- for this machine -------------------------------------------------------------------------------------------------


def load_image(file: ProgramFile, name: str) -> tuple[str, LoadedImage]:
    """The name of the widest target that this machine runs, or that ``STATICGRAD_TARGET`` says, and its code, mapped.

    Raises:
        FormatError: the program is for other machines, or its code is damaged.
    """
    chosen = _choose(file, name)
    try:
        made = image.from_plain(plain.load(file.data[chosen.begin : chosen.end]))
        exports = {symbol for symbol, _ in made.exports}
        missing = [entry.name for entry in file.interface.entries if entry.name not in exports]
        if missing:
            raise ValueError(f"there is no code of {', '.join(missing)}")
        return chosen.target, _mapped(made)
    except (ValueError, ImageError) as error:
        raise FormatError(f"{name}: the code for {chosen.target} does not load: {error}") from error


def _mapped(made: CodeImage) -> LoadedImage:
    if not all(_SYMBOL.fullmatch(symbol) for symbol in made.symbols):
        raise ValueError("a symbol that no function has")
    return LoadedImage(made)


_runtimes: dict[bytes, EntryRuntime] = {}  # for ever: functions and objects of Python lead to their code


def load_runtime(file: ProgramFile) -> EntryRuntime | None:
    """The objects that calls by this interpreter have in common; None where the file has no code for it.

    Raises:
        FormatError: the code is damaged.
    """
    if file.caller is None or file.caller[0] != HEAD or not image.loads_here() or not layout_is_known():
        return None
    content = file.data[file.caller[1] : file.caller[2]]
    if content not in _runtimes:
        try:
            _runtimes[content] = EntryRuntime(_mapped(image.from_plain(plain.load(content))))
        except (ValueError, KeyError, ImageError) as error:
            raise FormatError(f"the code by which entries are called does not load: {error}") from error
    return _runtimes[content]


def _choose(file: ProgramFile, name: str) -> ImageSection:
    here = _platform()
    for key, made_for in file.platform:
        if made_for != here[key]:
            what = key.replace("_", " ")
            raise FormatError(f"{name}: made for other machines\n  expected {what} {here[key]}\n  actual   {made_for}")
    forced = config.get("TARGET")
    found = [one for one in file.images if not _lacking(one)]
    found = [one for one in found if one.target == forced] or found
    if not found or not image.loads_here():
        targets = "; ".join(_description(one) for one in file.images)
        raise FormatError(f"{name}: made for other processors\n  it has   {targets}\n  this one {host_arch()}")
    return found[0]


def _lacking(one: ImageSection) -> list[str]:
    """The needs of an image that this processor lacks."""
    if one.arch != host_arch():
        return [one.arch]
    features = told_features() or frozenset()
    return [need for need in one.needs if need not in features]


def _description(one: ImageSection) -> str:
    lacking = ", ".join(_lacking(one))
    return f"{one.target} ({one.arch}{f', lacking here: {lacking}' if lacking else ''})"


# -- as text ----------------------------------------------------------------------------------------------------------


def describe(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """The parts of a file as pairs of a word and a text; nothing of it is mapped, whoever wrote it.

    Raises:
        FormatError: it is no such file, damaged, or of a later version.
        OSError: it can't be read.
    """
    data, _ = read_regular(path)
    file = parse(data, os.fspath(path))
    interface = file.interface
    yield "program", f"{interface.name}, written by staticgrad {file.writer}"
    yield "digest", digest_of(data)
    yield "bytes", f"{len(data)}, {interface.state.nbytes} of them state"
    yield "made for", ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in file.platform)
    for one in file.images:
        yield "target", f"{one.target} ({one.arch}): {one.end - one.begin} bytes"
    for entry in interface.entries:
        arrays = [", ".join(f"{x.name}: {x.type}" for x in side) or "nothing" for side in (entry.feeds, entry.results)]
        uses = ", uses the state" if entry.uses_state else ""
        yield "entry", f"{entry.name}({arrays[0]}) -> {arrays[1]}; workspace {entry.workspace_bytes} bytes{uses}"
    if interface.state.draws:
        yield "state", "the seed, and how many runs have drawn random numbers"
    for array in interface.state.arrays:
        yield "state", f"{array.name}: {array.type}"
