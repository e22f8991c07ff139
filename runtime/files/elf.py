"""Object files and shared libraries in the ELF format: the bytes of their sections, and their functions, with no more
than Python.

    file    ::= header, sections, a table of section headers
    section ::= flags, bytes in the file, bytes in memory

What is read is checked before it is used.
"""

from __future__ import annotations

import os
import struct

from staticgrad.base.errors import FormatError
from staticgrad.base.files import read_regular
from staticgrad.base.frozen import frozen

MAGIC = b"\x7fELF"
MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv", 252: "hexagon", 94: "xtensa"}
TYPES = {1: "object", 2: "executable", 3: "shared library"}

_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_SYMBOLS, _NO_BITS, _DYNAMIC_SYMBOLS = 2, 8, 11
_FUNCTION, _GLOBAL, _WEAK = 2, 1, 2


@frozen
class ElfSection:
    """A section of a file: its name, kind and flags, and where its bytes are."""

    name: str
    kind: int
    flags: int
    offset: int
    nbytes: int
    link: int
    entry_bytes: int


@frozen
class ElfFile:
    """The contents of an ELF file: bytes of memory by what they hold, functions that it defines for others with their
    bytes, and symbols that others have to define."""

    type: str
    machine: str
    bits: int
    text: int
    rodata: int
    data: int
    bss: int
    functions: tuple[tuple[str, int], ...]
    undefined: tuple[str, ...]

    @property
    def flash(self) -> int:
        """Bytes that are stored where memory keeps them without power: code, constants, first values of data."""
        return self.text + self.rodata + self.data

    @property
    def ram(self) -> int:
        """Bytes of memory that can be written."""
        return self.data + self.bss


def read(path: str | os.PathLike[str]) -> ElfFile:
    """The sections and symbols of a file.

    Raises:
        FormatError: no ELF file, or a damaged one.
        OSError: the file can't be read.
    """
    return parse(read_regular(path)[0], os.fspath(path))


def parse(content: bytes, name: str) -> ElfFile:
    """The sections and symbols of the content of a file; ``name`` is for messages.

    Raises:
        FormatError: no ELF file, or a damaged one.
    """
    try:
        return _Reader(content).file()
    except (struct.error, ValueError) as error:
        raise FormatError(f"{name}: no ELF file, or a damaged one: {error}") from None


class _Reader:
    """Reads the tables of a file, of 32 or 64 bits, in the order of bytes that it says."""

    def __init__(self, content: bytes) -> None:
        if content[:4] != MAGIC or len(content) < 16 or content[4] not in (1, 2) or content[5] not in (1, 2):
            raise ValueError("it begins in another way")
        self.content = content
        self._unread = 4 * len(content)  # bytes of names: some are the end of another one, few files have many such
        self.wide = content[4] == 2
        self.order = "<" if content[5] == 1 else ">"
        self.word = "Q" if self.wide else "I"

    def unpack(self, form: str, offset: int) -> tuple[int, ...]:
        if offset > len(self.content):
            raise ValueError("a table lies outside of the file")
        return struct.unpack_from(self.order + form, self.content, offset)

    def file(self) -> ElfFile:
        kind, machine = self.unpack("HH", 16)
        sections = self.sections()
        sizes = dict.fromkeys(("text", "rodata", "data", "bss"), 0)
        for section in sections:
            if section.flags & _ALLOC:
                sizes[_holds(section)] += section.nbytes
        functions, undefined = self.symbols(sections)
        return ElfFile(
            TYPES.get(kind, f"type {kind}"), MACHINES.get(machine, f"machine {machine}"), 64 if self.wide else 32,
            **sizes, functions=functions, undefined=undefined,
        )  # fmt: skip

    def sections(self) -> list[ElfSection]:
        (table,) = self.unpack(self.word, 40 if self.wide else 32)
        entry_bytes, count, names = self.unpack("HHH", 58 if self.wide else 46)
        form = "II" + 4 * self.word + "II" + 2 * self.word
        if count and entry_bytes < struct.calcsize(self.order + form):
            raise ValueError(f"section headers of {entry_bytes} bytes")
        rows = [self.unpack(form, table + i * entry_bytes) for i in range(count)]
        found = [ElfSection("", kind, flags, offset, nbytes, link, entry)
                 for _, kind, flags, _, offset, nbytes, link, _, _, entry in rows]  # fmt: skip
        for section in found:
            if section.kind != _NO_BITS and section.kind and section.offset + section.nbytes > len(self.content):
                raise ValueError("a section lies outside of the file")
        if not count:
            return []
        if names >= count:
            raise ValueError("the names of sections are in none of them")
        return [
            ElfSection(self.text(found[names], row[0]), s.kind, s.flags, s.offset, s.nbytes, s.link, s.entry_bytes)
            for s, row in zip(found, rows, strict=True)
        ]

    def text(self, strings: ElfSection, at: int) -> str:
        """The text that begins at a place of a section of texts, each of which a null ends."""
        start, end = strings.offset + at, strings.offset + strings.nbytes
        if at >= strings.nbytes:
            raise ValueError("a name lies outside of its section")
        stop = self.content.find(b"\0", start, min(end, start + self._unread))
        if stop < 0:
            raise ValueError("names that overlap, or one without an end")
        self._unread -= stop - start
        return self.content[start:stop].decode(errors="replace")

    def symbols(self, sections: list[ElfSection]) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """The functions that are defined for others, and what is not defined."""
        functions: dict[str, int] = {}
        undefined: dict[str, None] = {}
        form = "IBBHQQ" if self.wide else "IIIBBH"
        tables = [section for section in sections if section.kind in (_SYMBOLS, _DYNAMIC_SYMBOLS)]
        if sum(section.nbytes for section in tables) > len(self.content):
            raise ValueError("tables of symbols that overlap")
        for section in tables:
            if section.entry_bytes < struct.calcsize(self.order + form):
                raise ValueError(f"symbols of {section.entry_bytes} bytes")
            for place in range(section.nbytes // section.entry_bytes):
                row = self.unpack(form, section.offset + place * section.entry_bytes)
                name, info, home, nbytes = (row[0], row[1], row[3], row[5]) if self.wide else (
                    row[0], row[3], row[5], row[2])  # fmt: skip
                if info >> 4 not in (_GLOBAL, _WEAK) or not name:
                    continue
                if section.link >= len(sections):
                    raise ValueError("the names of symbols are in no section")
                text = self.text(sections[section.link], name)
                if not home:
                    undefined[text] = None
                elif info & 15 == _FUNCTION:
                    functions[text] = nbytes
        return tuple(sorted(functions.items())), tuple(sorted(undefined))


def _holds(section: ElfSection) -> str:
    """The kind of bytes in a section of memory."""
    if section.flags & _EXECUTE:
        return "text"
    if not section.flags & _WRITE:
        return "rodata"
    return "bss" if section.kind == _NO_BITS else "data"
