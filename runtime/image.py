"""Machine code as an image: bytes that lie in memory as they are, but for a few addresses that loading fills in.

    Image      ::= contents, size, protected, relocations, symbols, exports
    Relocation ::= at ``offset`` the 64-bit address of (this image | a symbol of the process), plus ``addend``

``contents`` are the first bytes, the rest up to ``size`` is zero. The first ``protected`` bytes hold code, constants
and addresses and are read and executed; what follows is data that the code writes. ``link`` makes images of relocatable
objects. ``LoadedImage`` maps one into this process: nothing of LLVM is needed for that.

Memory is never writable and executable at once. An image that does not fit this process (another machine, a symbol that
is not there) raises ``ImageError``.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
from collections.abc import Iterable
from typing import TypeGuard

from staticgrad.errors import StaticGradError
from staticgrad.frozen import frozen
from staticgrad.plain import Plain

PAGE = 4096  # where the protected part ends
MACHINE = "x86_64"  # the one whose relocations are known
OWN = -1  # in place of a symbol's number: the image itself
WORD = 8
LARGEST = 1 << 30


class ImageError(StaticGradError):
    """An image that cannot be made, is damaged, or does not fit this process."""


@frozen
class Relocation:
    """At ``offset``, add the address of symbol number ``symbol`` (``OWN``: of the image) to ``addend``."""

    offset: int
    symbol: int
    addend: int


@frozen
class CodeImage:
    """See the module's docstring. ``exports`` are pairs of a function's name and its offset."""

    contents: bytes
    size: int
    protected: int
    relocations: tuple[Relocation, ...]
    symbols: tuple[str, ...]
    exports: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        """Refuse what would reach outside of the image.

        Raises:
            ImageError: something does.
        """
        sized = len(self.contents) <= self.size <= LARGEST and 0 < self.protected <= LARGEST
        if not sized or self.protected % PAGE:
            raise ImageError(f"{len(self.contents)} bytes of {self.size}, {self.protected} of them protected")
        for r in self.relocations:
            if not (0 <= r.offset <= self.size - WORD and OWN <= r.symbol < len(self.symbols)):
                raise ImageError(f"relocation {r} in an image of {self.size} bytes and {len(self.symbols)} symbols")
        for name, offset in self.exports:
            if not 0 <= offset < self.size:
                raise ImageError(f"{name} at {offset} in an image of {self.size} bytes")


def to_plain(image: CodeImage) -> Plain:
    """The image as data that can be kept."""
    relocations = tuple((r.offset, r.symbol, r.addend) for r in image.relocations)
    return (image.contents, image.size, image.protected, relocations, image.symbols, image.exports)


def from_plain(data: Plain) -> CodeImage:
    """The image that was kept.

    Raises:
        ImageError: the data are not those of an image.
    """
    match data:
        case (bytes(contents), int(size), int(protected), tuple(relocations), tuple(symbols), tuple(exports)):
            names = tuple(name for name in symbols if isinstance(name, str))
            functions = tuple((item[0], item[1]) for item in exports if _is_export(item))
            places = tuple(_relocation(item) for item in relocations)
            if len(names) == len(symbols) and len(functions) == len(exports):
                return CodeImage(contents, size, protected, places, names, functions)
    raise ImageError("no image")


def _is_export(item: Plain) -> TypeGuard[tuple[str, int]]:
    return isinstance(item, tuple) and [type(part) for part in item] == [str, int]


def _relocation(item: Plain) -> Relocation:
    match item:
        case (int(offset), int(symbol), int(addend)):
            return Relocation(offset, symbol, addend)
    raise ImageError(f"no relocation: {item!r}")


def loads_here() -> bool:
    """True if this process can map images."""
    return os.name == "posix" and platform.machine() == MACHINE and mmap.PAGESIZE == PAGE and _is_elf()


def _is_elf() -> bool:
    return os.uname().sysname != "Darwin"  # whose objects are of another format, and whose memory is guarded


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def address_of(symbol: str) -> int:
    """The address of a function of the C library, or of any other that the process has loaded for all to see.

    Raises:
        ImageError: there is none.
    """
    try:
        return ctypes.cast(getattr(_process(), symbol), ctypes.c_void_p).value or 0
    except AttributeError as error:
        raise ImageError(f"the process has no function {symbol!r}") from error


class LoadedImage:
    """An image in memory: ``address`` of each of its exports. The code lives as long as this does.

    Raises:
        ImageError: the image does not fit this process, or the system refuses memory that is executed.
    """

    def __init__(self, image: CodeImage) -> None:
        if not loads_here():
            raise ImageError(f"images are for {MACHINE} with pages of {PAGE} bytes")
        size = max(image.size, image.protected)
        addresses = [address_of(name) for name in image.symbols]
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = (ctypes.c_char * size).from_buffer(self._memory)  # also keeps the memory from being closed
        base = ctypes.addressof(self._view)
        self._memory[: len(image.contents)] = image.contents
        for offset, value in _filled(image.relocations, addresses, base):
            self._memory[offset : offset + WORD] = value.to_bytes(WORD, "little")
        place, length = ctypes.c_void_p(base), ctypes.c_size_t(image.protected)
        if _process().mprotect(place, length, mmap.PROT_READ | mmap.PROT_EXEC):
            raise ImageError("the system refuses to execute memory that was written")
        self._addresses = {name: base + offset for name, offset in image.exports}

    def address(self, name: str) -> int:
        """The address of an exported function; ``KeyError`` for any other name."""
        return self._addresses[name]


def _filled(relocations: Iterable[Relocation], addresses: list[int], base: int) -> Iterable[tuple[int, int]]:
    for r in relocations:
        yield r.offset, ((base if r.symbol == OWN else addresses[r.symbol]) + r.addend) % 2**64
