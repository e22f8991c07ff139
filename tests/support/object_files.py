"""What object files say of themselves: their machine, the names that they ask for, how long their code is.

Input: the content of an ELF object of a little-endian machine, or of WebAssembly.
"""

from __future__ import annotations

from collections.abc import Iterator

from staticgrad.runtime.files import elf

IMPORTS, CODE, DATA = 2, 10, 11  # sections of WebAssembly


def machine(content: bytes) -> int:
    """The number of an ELF object's machine."""
    assert content[:4] == b"\x7fELF"
    return int.from_bytes(content[18:20], "little")


def asked_for(content: bytes) -> set[str]:
    """The names of functions that an object calls and does not define."""
    return _asked_by_wasm(content) if content[:4] == b"\0asm" else set(elf.parse(content, "an object").undefined)


def loaded_bytes(content: bytes) -> int:
    """The bytes of code and constants."""
    if content[:4] == b"\0asm":
        return sum(len(body) for kind, body in _wasm_sections(content) if kind in (CODE, DATA))
    return elf.parse(content, "an object").flash


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and where it ends."""
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _wasm_sections(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(content):
        kind = content[at]
        length, begin = _number(content, at + 1)
        at = begin + length
        yield kind, content[begin:at]


def _asked_by_wasm(content: bytes) -> set[str]:
    found = set()
    for kind, body in _wasm_sections(content):
        if kind != IMPORTS:
            continue
        count, at = _number(body, 0)
        for _ in range(count):
            names = []
            for _ in range(2):
                length, at = _number(body, at)
                names.append(body[at : at + length].decode())
                at += length
            what, at = body[at], at + 1
            if what == 0:  # a function, of a type
                _, at = _number(body, at)
                found.add(names[1])
            elif what == 3:  # a global
                at += 2
            else:  # a table or a memory: limits, of a type
                at += what == 1
                limits, at = body[at], at + 1
                for _ in range(1 + (limits & 1)):
                    _, at = _number(body, at)
    return found
