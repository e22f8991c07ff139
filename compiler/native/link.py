"""Linking: relocatable ELF objects for x86-64 come in, an image goes out.

A symbol of one object that is undefined is the global one of that name in another, if there is one. If two define it
and both are weak, they are the same, and the first is taken. Symbols that are hidden are known to no one else. Sections
to which nothing refers, from the exported functions on, are left out. What the others hold is laid out flat: code, then
the stubs and addresses that calls out of the image need, then constants, and on pages of their own what the code
writes. Distances within the image are filled in here, so that loading has only the addresses of the C library's
functions (and of what lies in data) left to do. Unwind tables are left out: nothing throws through compiled code.

The formats are those of the System V ABI, AMD64 supplement (sections 4.1 to 4.4), and of the generic ABI's chapter on
object files. Whatever is not expected raises ``ImageError``: LLVM's own loader takes such an object.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from staticgrad.base.frozen import frozen
from staticgrad.base.image import LARGEST, OWN, PAGE, WORD, CodeImage, ImageError, Relocation
from staticgrad.base.phases import phase
from staticgrad.base.reach import reach

IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
RELOCATABLE, X86_64 = 1, 62
PROGBITS, SYMTAB, RELA, NOBITS, UNWIND = 1, 2, 4, 8, 0x70000001
WRITE, ALLOC, EXECUTE, TLS = 1, 2, 4, 1 << 10
UNDEFINED, RESERVED = 0, 0xFF00  # section numbers
GLOBAL, WEAK, FUNCTION, DEFAULT = 1, 2, 2, 0  # bindings, type, visibility

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

STUB = 8  # jmp *address(%rip), and two bytes to fill


class Kind(IntEnum):
    """The relocations that occur in position independent code; S symbol, A addend, P place, G address of an address."""

    NONE = 0
    ABSOLUTE = 1  # S + A, 64 bits
    RELATIVE = 2  # S + A - P, 32 bits
    CALL = 4  # the same, by way of a stub where S lies elsewhere
    ADDRESS = 9  # G + A - P, 32 bits
    WIDE = 24  # S + A - P, 64 bits
    ADDRESS_RELAXED = 41  # as ADDRESS, in instructions that a linker might shorten
    ADDRESS_RELAXED_REX = 42


ADDRESSES = (Kind.ADDRESS, Kind.ADDRESS_RELAXED, Kind.ADDRESS_RELAXED_REX)


@frozen
class Section:
    """A section header, and what it holds (nothing if it is all zeros). All objects' sections are numbered together."""

    number: int
    kind: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    contents: bytes

    @property
    def is_kept(self) -> bool:
        return bool(self.flags & ALLOC) and self.kind != UNWIND and self.size > 0


@frozen
class ObjectSymbol:
    """A symbol: ``value`` bytes into its section, or of another library."""

    name: str
    section: int
    value: int
    is_global: bool
    is_weak: bool
    is_export: bool


@phase("link")
def link(*objects: bytes) -> CodeImage:
    """The image of objects that refer to each other.

    Raises:
        ImageError: one is of another machine or format, damaged, or has something that images do not; two define the
            same.
    """
    try:
        return _Linker(objects).image()
    except (struct.error, LookupError, ValueError) as error:
        raise ImageError(f"a damaged object: {error}") from error


def _sections(code: bytes, first: int) -> list[Section]:
    """The sections of an object, numbered from ``first``."""
    if code[: len(IDENT)] != IDENT:
        raise ImageError("no 64-bit little-endian ELF object")
    kind, machine, _, _, _, start, _, _, _, _, size, count, _ = _HEADER.unpack_from(code, 0)
    if (kind, machine, size) != (RELOCATABLE, X86_64, _SECTION.size):
        raise ImageError(f"no relocatable object for x86-64: type {kind}, machine {machine}")
    sections = []
    for number in range(count):
        _, kind, flags, _, offset, nbytes, link_, info, align, _ = _SECTION.unpack_from(code, start + size * number)
        contents = b"" if kind in (0, NOBITS) else code[offset : offset + nbytes]
        if kind not in (0, NOBITS) and len(contents) != nbytes:
            raise ImageError(f"section {number} reaches past the end")
        info += first if kind == RELA else 0
        sections.append(Section(first + number, kind, flags, nbytes, first + link_, info, max(align, 1), contents))
    return sections


def _symbols(sections: Sequence[Section], first: int) -> list[ObjectSymbol]:
    """The symbols of the object whose sections begin at ``first``."""
    table = next((s for s in sections[first:] if s.kind == SYMTAB), None)
    if table is None:
        return []
    names = sections[table.link].contents
    symbols = []
    for name, info, visibility, section, value, _ in _SYMBOL.iter_unpack(table.contents):
        text = names[name : names.index(b"\0", name)].decode() if name else ""
        defined = section != UNDEFINED
        if section >= RESERVED and info & 15 not in (4,):  # a file's name is no place
            raise ImageError(f"symbol {text!r} is in no section")
        if not defined and info >> 4 not in (0, GLOBAL):
            raise ImageError(f"symbol {text!r} is weak")
        is_weak = info >> 4 == WEAK
        known = defined and (is_weak or info >> 4 == GLOBAL)
        exported = known and info & 15 == FUNCTION and visibility & 3 == DEFAULT
        symbols.append(ObjectSymbol(text, first + section if defined else UNDEFINED, value, known, is_weak, exported))
    return symbols


class _Linker:
    def __init__(self, objects: Sequence[bytes]) -> None:
        self.sections: list[Section] = []
        self.symbols: list[ObjectSymbol] = []
        self.tables: list[tuple[Section, int]] = []  # of relocations, and the number of their object's first symbol
        for code in objects:
            self._read(code)
        self._resolve()
        reachable = self._reachable()
        self.kept = [s for s in self.sections if s.is_kept and s.number in reachable]
        self.stubs: dict[str, int] = {}  # of functions elsewhere: where the stub lies
        self.addresses: dict[int, int] = {}  # of symbols by number: where their address lies
        self.names: list[str] = []
        self.relocations: list[Relocation] = []
        self.bases: dict[int, int] = {}
        self._lay_out()

    # -- which symbol is which ----------------------------------------------------------------------------------------

    def _read(self, code: bytes) -> None:
        first = len(self.sections)
        self.sections += _sections(code, first)
        self.tables += [(s, len(self.symbols)) for s in self.sections[first:] if s.kind == RELA]
        self.symbols += _symbols(self.sections, first)

    def _resolve(self) -> None:
        """Let symbols of one object be those that another one defines."""
        defined: dict[str, ObjectSymbol] = {}
        for symbol in self.symbols:
            if symbol.is_global:
                first = defined.setdefault(symbol.name, symbol)
                if first is not symbol and not (first.is_weak and symbol.is_weak):
                    raise ImageError(f"symbol {symbol.name!r} is defined twice")
        for number, symbol in enumerate(self.symbols):
            if symbol.is_global or symbol.section == UNDEFINED:
                first = defined.get(symbol.name, symbol)
                if first is not symbol:
                    self.symbols[number] = replace(first, is_export=False)

    def _reachable(self) -> set[int]:
        """The numbers of the sections that exported functions are in, and of those that these refer to."""
        refers: dict[int, set[int]] = {}
        for table, first in self.tables:
            numbers = {first + (info >> 32) for _, info, _ in _RELA.iter_unpack(table.contents)}
            refers.setdefault(table.info, set()).update(self.symbols[number].section for number in numbers)
        exporting = {symbol.section for symbol in self.symbols if symbol.is_export}
        return set(reach(exporting, lambda section: refers.get(section, ())))

    # -- where everything lies ----------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        kept = self.kept
        for section in kept:
            if section.kind not in (PROGBITS, NOBITS) or section.flags & TLS or section.align > PAGE:
                raise ImageError(f"section {section.number} of type {section.kind}, flags {section.flags:#x}")
        self._gather_outside()
        end = self._place([s for s in kept if s.flags & EXECUTE and not s.flags & WRITE], 0)
        end = self._reserve(end)
        end = self._place([s for s in kept if not s.flags & (EXECUTE | WRITE)], end)
        self.protected = max(PAGE, -(-end // PAGE) * PAGE)
        written = [s for s in kept if s.flags & WRITE]
        if any(s.flags & EXECUTE for s in written):
            raise ImageError("a section is written and executed")
        self.size = self._place(written, self.protected) if written else end
        if self.size > LARGEST:
            raise ImageError(f"an image of {self.size} bytes")
        self.memory = bytearray(self.size)
        for section in kept:
            base = self.bases[section.number]
            self.memory[base : base + len(section.contents)] = section.contents

    def _place(self, sections: Sequence[Section], at: int) -> int:
        for section in sections:
            at = -(-at // section.align) * section.align
            self.bases[section.number] = at
            at += section.size
        return at

    def _gather_outside(self) -> None:
        """Find which symbols need a stub, and which an address in memory."""
        for _, kind, number, _ in self._relocations():
            symbol = self.symbols[number]
            outside = symbol.section == UNDEFINED
            if outside and kind == Kind.CALL:
                self.stubs.setdefault(symbol.name, 0)
            if (outside and kind == Kind.CALL) or kind in ADDRESSES:
                self.addresses.setdefault(number, 0)

    def _reserve(self, at: int) -> int:
        at = -(-at // STUB) * STUB
        for name in self.stubs:
            self.stubs[name] = at
            at += STUB
        for number in self.addresses:
            self.addresses[number] = at
            at += WORD
        return at

    # -- what lies there ----------------------------------------------------------------------------------------------

    def _relocations(self) -> Iterator[tuple[tuple[int, int], int, int, int]]:
        """The relocations of all sections that are kept: (section, offset), kind, number of the symbol, addend."""
        kept = {section.number for section in self.kept}
        for table, first in self.tables:
            if table.info not in kept:
                continue
            for offset, info, addend in _RELA.iter_unpack(table.contents):
                yield (table.info, offset), info & 0xFFFFFFFF, first + (info >> 32), addend

    def image(self) -> CodeImage:
        for number, place in self.addresses.items():
            self._add_address(place, number, 0)
        places = {self.symbols[number].name: place for number, place in self.addresses.items()}
        for name, stub in self.stubs.items():
            self.memory[stub : stub + STUB] = b"\xff\x25" + _signed(places[name] - (stub + 6), 4) + b"\x66\x90"
        for (section, offset), kind, number, addend in self._relocations():
            self._relocate(self.bases[section] + offset, kind, number, addend)
        exports = tuple((s.name, self._offset(n)) for n, s in enumerate(self.symbols) if s.is_export)
        contents = bytes(self.memory).rstrip(b"\0")
        return CodeImage(contents, self.size, self.protected, tuple(self.relocations), tuple(self.names), exports)

    def _relocate(self, place: int, kind: int, number: int, addend: int) -> None:
        symbol = self.symbols[number]
        if kind == Kind.NONE:
            return
        if kind == Kind.ABSOLUTE:
            self._add_address(place, number, addend)
        elif kind in ADDRESSES:
            self._write(place, self.addresses[number] + addend - place, 4)
        elif kind == Kind.CALL and symbol.section == UNDEFINED:
            self._write(place, self.stubs[symbol.name] + addend - place, 4)
        elif kind in (Kind.RELATIVE, Kind.CALL, Kind.WIDE):
            self._write(place, self._offset(number) + addend - place, 8 if kind == Kind.WIDE else 4)
        else:
            raise ImageError(f"relocation of type {kind} for {symbol.name!r}")

    def _offset(self, number: int) -> int:
        symbol = self.symbols[number]
        if symbol.section not in self.bases:
            raise ImageError(f"symbol {symbol.name!r} is not in the image")
        return self.bases[symbol.section] + symbol.value

    def _add_address(self, place: int, number: int, addend: int) -> None:
        symbol = self.symbols[number]
        if symbol.section != UNDEFINED:
            self.relocations.append(Relocation(place, OWN, self._offset(number) + addend))
            return
        if symbol.name not in self.names:
            self.names.append(symbol.name)
        self.relocations.append(Relocation(place, self.names.index(symbol.name), addend))

    def _write(self, place: int, value: int, nbytes: int) -> None:
        if place + nbytes > self.size:
            raise ImageError("a relocation outside of its section")
        self.memory[place : place + nbytes] = _signed(value, nbytes)


def _signed(value: int, nbytes: int) -> bytes:
    try:
        return value.to_bytes(nbytes, "little", signed=True)
    except OverflowError as error:
        raise ImageError(f"a distance of {value} does not fit in {nbytes} bytes") from error
