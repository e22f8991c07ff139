"""Targets of any machine by name, for programs that are compiled here and run elsewhere.

Input: the name of a target, or a triple of LLVM's such as ``powerpc64le-unknown-linux-gnu``. Output: the target. One of
a triple is scalar and claims no capability; how many bytes its addresses have is asked of LLVM.
"""

from __future__ import annotations

import functools

from staticgrad.compiler.emit.codegen import layout_of
from staticgrad.compiler.emit.isa import ISA
from staticgrad.compiler.emit.machine import SCALAR
from staticgrad.compiler.emit.target import NEON, OTHER_TARGETS, SMALL_OTHERS, SMALL_TARGETS, TARGETS, Target
from staticgrad.errors import StaticGradError

REGISTERS = 16  # of a processor of which nothing is known
ALIASES = {"aarch64": NEON}


def known_names() -> tuple[str, ...]:
    """The names of targets, of all machines."""
    return (*TARGETS, *ALIASES, *OTHER_TARGETS)


@functools.cache
def target_for(name: str) -> Target:
    """The target of this name, of whatever machine.

    Raises:
        StaticGradError: an unknown name or triple, or one of a big-endian machine.
    """
    found = {**TARGETS, **ALIASES, **OTHER_TARGETS, **SMALL_TARGETS, **SMALL_OTHERS}.get(name)
    if found is not None:
        return found
    if "-" not in name:
        raise StaticGradError(f"target {name!r}: expected one of {', '.join(known_names())}, or a triple of LLVM's")
    return Target(name, _isa(name), SCALAR)


def _isa(triple: str) -> ISA:
    arch, *rest = triple.split("-")
    if len(rest) == 2 and rest[0] == "none":  # as others write "thumbv7em-none-eabi", without a vendor
        rest.insert(0, "unknown")
    triple = "-".join([arch, *rest])
    try:
        layout = layout_of(triple)
    except RuntimeError as error:
        names = ", ".join(known_names())
        raise StaticGradError(f"target {triple!r}: LLVM knows no such triple ({error}); others: {names}") from None
    if layout.is_big_endian:
        raise StaticGradError(f"target {triple!r}: a big-endian machine, expected a little-endian one")
    if layout.pointer_bytes not in (4, 8):
        raise StaticGradError(f"target {triple!r}: addresses of {layout.pointer_bytes} bytes, expected 4 or 8")
    return ISA(triple, 1, REGISTERS, arch, floats=(), triple=triple, pointer_bytes=layout.pointer_bytes)
