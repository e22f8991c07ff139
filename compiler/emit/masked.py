"""Masked accesses of memory: the lanes of a vector that a mask leaves on are loaded, stored, gathered and scattered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from staticgrad.compiler.emit.llvm import Function, Value, element_of, integer, lanes_of, suffix, vector
from staticgrad.compiler.machine.isa import SIGNED_MOVES

CUT = ("i8", "i16", "i32")  # elements that may have been cut short


def load(f: Function, type_: str, pointer: Value, mask: Value | None) -> Value:
    """A vector, aligned to its element only. Lanes where ``mask`` is off are zero and their memory is not touched."""
    if mask is None:
        return f.load(type_, pointer)
    if _by_signs(f, type_, mask):
        parts = [
            _at_signs(f, "load", part, f.offset(pointer, first, element_of(type_)), signs)
            for first, part, signs in _registers(f, type_, mask)
        ]
        return _joined(f, parts, lanes_of(type_))
    name = f"llvm.masked.load.{suffix(type_)}.p0"
    return f.intrinsic(name, type_, pointer, _alignment(f, type_), mask, Value("zeroinitializer", type_))


def store(f: Function, value: Value, pointer: Value, mask: Value | None) -> None:
    """Store the lanes where ``mask`` is on, all of them without one.

    LLVM makes a scalar store of a single lane that it knows to be on, as wide as the elements were before they were
    cut short, over what lies after it (20 to 22, with AVX-512). So a lane that a literal has on alone is stored by
    itself here, and where LLVM may find out more of a mask than its text says, it does not see what was cut."""
    element = element_of(value.type)
    if mask is None:
        f.store(value, pointer)
    elif mask.text.startswith("<") and mask.text.count("i1 true") == 1:
        lane = mask.text.strip("<>").split(", ").index("i1 true")
        f.store(f.extract(value, lane), f.offset(pointer, lane, element))
    elif _by_signs(f, value.type, mask):
        for first, part, signs in _registers(f, value.type, mask):
            lanes = [min(first + i, lanes_of(value.type) - 1) for i in range(lanes_of(part))]
            _at_signs(f, "store", part, f.offset(pointer, first, element), signs, f.shuffle(value, None, lanes))
    else:
        if f.target.isa.predicated and not mask.is_literal and element in CUT:
            value = f.opaque(value)
        name = f"llvm.masked.store.{suffix(value.type)}.p0"
        f.intrinsic(name, "void", value, pointer, _alignment(f, value.type), mask)


def gather(f: Function, element: str, pointers: Value, mask: Value | None = None) -> Value:
    """One element from each of a vector of addresses; lanes where ``mask`` is off are zero."""
    lanes = lanes_of(pointers.type)
    type_ = vector(element, lanes)
    mask = f.const(True, vector("i1", lanes)) if mask is None else mask
    name = f"llvm.masked.gather.{suffix(type_)}.v{lanes}p0"
    return f.intrinsic(name, type_, pointers, _alignment(f, type_), mask, Value("zeroinitializer", type_))


def scatter(f: Function, value: Value, pointers: Value, mask: Value | None = None) -> None:
    """One element to each of a vector of addresses; lanes where ``mask`` is off are not written."""
    lanes = lanes_of(pointers.type)
    mask = f.const(True, vector("i1", lanes)) if mask is None else mask
    name = f"llvm.masked.scatter.{suffix(value.type)}.v{lanes}p0"
    f.intrinsic(name, "void", value, pointers, _alignment(f, value.type), mask)


def _by_signs(f: Function, type_: str, mask: Value) -> bool:
    """True if a masked access is written as the instruction that takes the lanes whose signs are set in a vector
    of integers, AVX's ``vmaskmov`` and ``vpmaskmov``, and not in LLVM's general form.

    LLVM's code generator for AVX2 makes a load of whole vectors of the general form if it finds out, while it
    splits the access into registers, that no lane of the first one is on: it reads memory that the mask excludes,
    and these lanes are not zero (20 to 22). So it must not see through a mask: only those written as literals,
    which are of one register, are left to it."""
    isa = f.target.isa
    if not isa.masked_loads or isa.predicated or element_of(type_) not in SIGNED_MOVES:
        return False
    nbytes = lanes_of(type_) * SIGNED_MOVES[element_of(type_)].nbytes
    return not mask.is_literal or nbytes > isa.vector_bytes


def _registers(f: Function, type_: str, mask: Value) -> Iterator[tuple[int, str, Value]]:
    """The registers that a vector takes, of 16 bytes at least: the first lane of each, its type, and the mask of
    its lanes as signs; lanes past the last are off."""
    signed, lanes = SIGNED_MOVES[element_of(type_)], lanes_of(type_)
    width = min(f.target.isa.vector_bytes // signed.nbytes, max(lanes, 16 // signed.nbytes))
    off = Value("zeroinitializer", mask.type)
    for first in range(0, lanes, width):
        numbers = [min(first + i, lanes) for i in range(width)]  # lane ``lanes`` is the first one that is off
        part = mask if numbers == list(range(lanes)) else f.shuffle(mask, off, numbers)
        yield first, vector(element_of(type_), width), f.cast("sext", part, signed.integer)


def _at_signs(f: Function, what: str, type_: str, pointer: Value, signs: Value, *stored: Value) -> Value:
    signed = SIGNED_MOVES[element_of(type_)]
    width = ".256" if lanes_of(type_) * signed.nbytes == 32 else ""
    name = f"llvm.x86.{signed.family}.mask{what}.{signed.suffix}{width}"
    return f.intrinsic(name, "void" if stored else type_, pointer, signs, *stored)


def _joined(f: Function, parts: Sequence[Value], lanes: int) -> Value:
    """One vector of the lanes of several of one length, of which the first ``lanes`` are taken."""
    while len(parts) > 1:
        width = lanes_of(parts[0].type)
        pairs = [(parts[i], parts[min(i + 1, len(parts) - 1)]) for i in range(0, len(parts), 2)]
        parts = [f.shuffle(a, b, range(2 * width)) for a, b in pairs]
    [found] = parts
    return found if lanes == lanes_of(found.type) else f.shuffle(found, None, range(lanes))


def _alignment(f: Function, type_: str) -> Value:
    """The alignment of masked accesses, as the operand that LLVM had for it up to version 21. Later ones have a
    parameter's attribute instead; they read the operand too and turn it into one, so that one text serves all."""
    return integer(f.alignment(type_), "i32")
