"""Machine code as an image: bytes that lie in memory as they are, but for a few addresses that loading fills in.

    Image      ::= contents, size, protected, relocations, symbols, exports
    Relocation ::= at ``offset`` the 64-bit address of (this image | a symbol of the process), plus ``addend``

``contents`` are the first bytes, the rest up to ``size`` is zero. The first ``protected`` bytes hold code, constants
and addresses and are read and executed; what follows is data that the code writes. ``link`` makes images of relocatable
objects. ``LoadedImage`` maps one into this process: nothing of LLVM is needed for that.

Memory is never writable and executable at once, nor is what has been writable made executable, where the system has
files in memory: the image is written to one that is mapped to be executed from the start. Hardened systems refuse
anything else (``PR_SET_MDWE``, ``execmem`` of SELinux). The mapping is private: a child that was forked has data of its
own, and no writer has the code open, as the file is closed. An image that does not fit this process (another machine, a
symbol that is not there) raises ``ImageError``.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import platform
from collections.abc import Callable, Sequence
from typing import TypeGuard

from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.base.plain import Plain

PAGE = 4096  # where the protected part ends
MACHINE = "x86_64"  # the one whose relocations are known
OWN = -1  # in place of a symbol's number: the image itself
WORD = 8
LARGEST = 1 << 30
CODE, DATA = mmap.PROT_READ | mmap.PROT_EXEC, mmap.PROT_READ | mmap.PROT_WRITE
NO_PROGRAM = 8  # MFD_NOEXEC_SEAL: a file that is mapped and never started, as vm.memfd_noexec=2 demands


class ImageError(StaticGradError):
    """An image that cannot be made, is damaged, or does not fit this process."""


class ExecutionRefusedError(StaticGradError):
    """The system refuses memory for machine code, whatever code it is for."""

    @staticmethod
    def of(refusals: Sequence[str]) -> ExecutionRefusedError:
        """The error that names what was tried."""
        return ExecutionRefusedError(
            f"the system refuses to execute compiled programs ({'; '.join(refusals)}): STATICGRAD_BACKEND=reference"
            " computes with NumPy alone, and what is exported elsewhere as a 'shared' library is loaded as other"
            " libraries are"
        )


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
    """The functions of the C library, and of what else the process has loaded for all to see."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


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
        ImageError: the image does not fit this process.
        ExecutionRefusedError: the system refuses memory for machine code.
    """

    def __init__(self, image: CodeImage) -> None:
        if not loads_here():
            raise ImageError(f"images are for {MACHINE} with pages of {PAGE} bytes")
        addresses = [address_of(name) for name in image.symbols]
        self._memory = _loaded(image, lambda base: _filled(image, addresses, base))
        self._addresses = {name: self._memory.address + offset for name, offset in image.exports}

    def address(self, name: str) -> int:
        """The address of an exported function; ``KeyError`` for any other name."""
        return self._addresses[name]


def _filled(image: CodeImage, addresses: list[int], base: int) -> bytearray:
    """The contents of an image that lies at ``base``."""
    end = max((r.offset + WORD for r in image.relocations), default=0)
    contents = bytearray(image.contents.ljust(end, b"\0"))
    for r in image.relocations:
        value = ((base if r.symbol == OWN else addresses[r.symbol]) + r.addend) % 2**64
        contents[r.offset : r.offset + WORD] = value.to_bytes(WORD, "little")
    return contents


# -- memory -----------------------------------------------------------------------------------------------------------


class _CodeMemory:
    """Mapped memory, given back with this object. Without a file it is of zeros.

    Raises:
        OSError: the system refuses it.
    """

    def __init__(self, nbytes: int, rights: int, file: int = -1) -> None:
        kind = mmap.MAP_PRIVATE | (mmap.MAP_ANONYMOUS if file < 0 else 0)
        address = _process().mmap(None, nbytes, rights, kind, file, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address: int = address
        self._give_back = functools.partial(_process().munmap, address, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "_give_back"):
            self._give_back()

    def protect(self, begin: int, end: int, rights: int) -> None:
        """Change the rights of a part.

        Raises:
            OSError: the system refuses that.
        """
        if end > begin and _process().mprotect(self.address + begin, end - begin, rights):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _loaded(image: CodeImage, filled: Callable[[int], bytearray]) -> _CodeMemory:
    """An image in memory; ``filled`` gives its contents, by its address.

    Raises:
        ExecutionRefusedError: the system refuses memory for machine code.
    """
    refusals = []
    for way, how in ((_in_file, "a file in memory"), (_in_place, "memory that was written")):
        try:
            return way(image, max(image.size, image.protected), filled)
        except OSError as refusal:
            refusals.append(f"{how}: {refusal.strerror or refusal}")
    raise ExecutionRefusedError.of(refusals)


def _in_file(image: CodeImage, nbytes: int, filled: Callable[[int], bytearray]) -> _CodeMemory:
    """The image in a file in memory, which is executable when it is mapped; its data are made writable instead."""
    with open(_memory_file(), "r+b", buffering=0) as file:
        file.truncate(nbytes)
        memory = _CodeMemory(nbytes, CODE, file.fileno())
        contents = memoryview(filled(memory.address))
        while contents:
            contents = contents[file.write(contents) or 0 :]
    memory.protect(image.protected, nbytes, DATA)
    return memory


def _memory_file() -> int:
    """The descriptor of a new file in memory.

    Raises:
        OSError: the system has none.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    try:
        return os.memfd_create("staticgrad", os.MFD_CLOEXEC | NO_PROGRAM)
    except OSError as error:
        if error.errno != errno.EINVAL:  # as Linux before 6.3 says of flags that it does not know
            raise
        return os.memfd_create("staticgrad", os.MFD_CLOEXEC)


def _in_place(image: CodeImage, nbytes: int, filled: Callable[[int], bytearray]) -> _CodeMemory:
    """The image in memory that is written, and then executable instead."""
    memory = _CodeMemory(nbytes, DATA)
    contents = filled(memory.address)
    ctypes.memmove(memory.address, bytes(contents), len(contents))
    memory.protect(0, image.protected, CODE)
    return memory
