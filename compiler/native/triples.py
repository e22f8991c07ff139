"""Targets of any machine by name, for programs that are compiled here and run elsewhere.

Input: the name of a target, or a triple of LLVM's such as ``powerpc64le-unknown-linux-gnu``. Output: the target. One of
a triple is scalar and claims no capability; how many bytes its addresses have is asked of LLVM.
"""

from __future__ import annotations

import functools

from staticgrad.base.errors import StaticGradError
from staticgrad.compiler.machine.isa import ISA
from staticgrad.compiler.machine.machine import OF_TRIPLE
from staticgrad.compiler.machine.target import (
    EXTENDED_TARGETS,
    NEON,
    OTHER_TARGETS,
    SIZE,
    SMALL_EXTENDED,
    SMALL_OTHERS,
    SMALL_TARGETS,
    TARGETS,
    Target,
    compact,
)
from staticgrad.compiler.native.codegen import layout_of

REGISTERS = 16  # of a processor of which nothing is known
ALIASES = {"aarch64": NEON}


def known_names() -> tuple[str, ...]:
    """The names of targets, of all machines."""
    return (*TARGETS, *EXTENDED_TARGETS, *ALIASES, *OTHER_TARGETS)


@functools.cache
def target_for(name: str) -> Target:
    """The target of this name, of whatever machine. Names of twins end in ``-small`` or ``-size``.

    Raises:
        StaticGradError: an unknown name or triple, or one of a big-endian machine.
    """
    known = {
        **TARGETS, **EXTENDED_TARGETS, **ALIASES, **OTHER_TARGETS, **SMALL_TARGETS, **SMALL_EXTENDED, **SMALL_OTHERS,
    }  # fmt: skip
    if name in known:
        return known[name]
    if name.endswith(SIZE) and name.removesuffix(SIZE) in known:
        return compact(known[name.removesuffix(SIZE)])
    return Target(name, _isa(name), OF_TRIPLE)


def _isa(name: str) -> ISA:
    arch, *rest = name.split("-")
    if len(rest) == 2 and rest[0] == "none":  # as others write "thumbv7em-none-eabi", without a vendor
        rest.insert(0, "unknown")
    triple = "-".join([arch, *rest])
    try:
        if not rest:
            raise RuntimeError(f"{name!r} is none")
        layout = layout_of(triple)
    except RuntimeError as error:
        names = ", ".join(known_names())
        message = f"target {name!r}: expected one of {names}, or a triple that LLVM knows ({error})"
        raise StaticGradError(message) from None
    if layout.is_big_endian:
        raise StaticGradError(f"target {name!r}: a big-endian machine, expected a little-endian one")
    if layout.pointer_bytes not in (4, 8):
        raise StaticGradError(f"target {name!r}: addresses of {layout.pointer_bytes} bytes, expected 4 or 8")
    return ISA(name, 1, REGISTERS, arch, floats=(), triple=triple, pointer_bytes=layout.pointer_bytes)
