"""The properties of the machine for the emitter: vector width, registers, features, sizes of caches and pages.

``STATICGRAD_TARGET`` forces one of the targets ``avx512``, ``avx2``, ``neon``, ``generic``; otherwise the host decides.
A target is a plain value: everything that depends on the machine is chosen from it at compile time. A new one is an
``ISA`` (``isa.py``), a ``Machine`` (``machine.py``) and an entry of ``TARGETS``, or of ``OTHER_TARGETS`` if no process
of Python runs there: those are never chosen for this machine, but programs are exported for them
(``native/triples.py``).

Each target has a *small* twin for tests (``avx512-small`` and so on; ``small`` is that of the host's target): caches,
pages and nearly all other sizes and times at which a kernel is run in another way are ``SMALL`` times smaller, so that
small programs are run in the ways of large ones. ``compact`` makes another twin of a target, whose programs are short.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from staticgrad.base import config
from staticgrad.base.config import host_arch, told_features
from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine import machine as machines
from staticgrad.compiler.machine.isa import (
    AVX2_ISA,
    AVX2_VNNI_ISA,
    AVX512_BF16_ISA,
    AVX512_ISA,
    AVX512_VNNI_ISA,
    BASELINE_ISA,
    CORTEX_M4_ISA,
    CORTEX_M4_SOFT_ISA,
    CORTEX_M7_ISA,
    ISA,
    NEON_ISA,
    RISCV32_ISA,
    RISCV64_ISA,
    WASM32_ISA,
    WASM32_SIMD128_ISA,
)
from staticgrad.compiler.machine.machine import (
    AARCH64,
    MICROCONTROLLER,
    SCALAR,
    WASM,
    WASM_SCALAR,
    X86_64,
    ZEN3,
    ZEN5,
    Machine,
    small,
)

SIZE = "-size"  # ends the name of a twin whose programs are short
SHARED_IN_TURNS = 0.4  # of the work that is worth sharing, and of that of a chunk, in the body of a loop


@frozen(eq=False)
class Target:
    """An instruction set and a machine, for which programs are compiled. Each is equal to itself alone, so that as a
    key it costs nothing."""

    name: str
    isa: ISA
    machine: Machine

    @property
    def is_native(self) -> bool:
        """True if it is of this machine's architecture, for which LLVM needs no name of another."""
        return not self.isa.triple and self.isa.arch in ("", host_arch())

    def lanes(self, dtype: np.dtype) -> int:
        """The number of elements of ``dtype`` in one register."""
        return max(1, self.isa.vector_bytes // max(dtype.itemsize, 1))

    def sized(self, amount: int, least: int = 1) -> int:
        """A constant of this package, in bytes, elements or turns, as the machine has it; ``least`` at least."""
        return self.machine.sized(amount, least)


def _small(target: Target) -> Target:
    """The twin whose sizes are small."""
    return Target(f"{target.name}-small", target.isa, small(target.machine))


@functools.cache
def compact(target: Target) -> Target:
    """The twin whose programs are short, where speed counts less."""
    return Target(f"{target.name}{SIZE}", target.isa, machines.compact(target.machine))


@functools.cache
def in_turns(target: Target) -> Target:
    """The target as it is for the body of a loop, between whose kernels threads wait without sleeping, so that sharing
    less work pays."""
    machine = target.machine
    return replace(target, machine=replace(
        machine,
        worth_sharing_seconds=machine.worth_sharing_seconds * SHARED_IN_TURNS,
        chunk_seconds=machine.chunk_seconds * SHARED_IN_TURNS,
    ))  # fmt: skip


GENERIC = Target("generic", BASELINE_ISA, X86_64)
AVX2 = Target("avx2", AVX2_ISA, ZEN3)
AVX512 = Target("avx512", AVX512_ISA, ZEN5)
NEON = Target("neon", NEON_ISA, AARCH64)
TARGETS = {target.name: target for target in (AVX512, AVX2, NEON, GENERIC)}  # the widest first
EXTENDED = {  # of the targets with these names, those with more instructions, the most first
    "avx512": (Target("avx512-bf16", AVX512_BF16_ISA, ZEN5), Target("avx512-vnni", AVX512_VNNI_ISA, ZEN5)),
    "avx2": (Target("avx2-vnni", AVX2_VNNI_ISA, ZEN3),),
}
EXTENDED_TARGETS = {target.name: target for several in EXTENDED.values() for target in several}
OTHER_TARGETS = {
    target.name: target
    for target in (
        Target("riscv64", RISCV64_ISA, SCALAR),
        Target("riscv32", RISCV32_ISA, MICROCONTROLLER),
        Target("cortex-m4", CORTEX_M4_ISA, MICROCONTROLLER),
        Target("cortex-m4-soft", CORTEX_M4_SOFT_ISA, MICROCONTROLLER),
        Target("cortex-m7", CORTEX_M7_ISA, MICROCONTROLLER),
        Target("wasm32", WASM32_ISA, WASM_SCALAR),
        Target("wasm32-simd128", WASM32_SIMD128_ISA, WASM),
    )
}
SMALL_TARGETS = {target.name: target for target in map(_small, TARGETS.values())}
SMALL_EXTENDED = {target.name: target for target in map(_small, EXTENDED_TARGETS.values())}
SMALL_OTHERS = {target.name: target for target in map(_small, OTHER_TARGETS.values())}


@functools.cache
def _host_features() -> frozenset[str]:
    """The features of this processor under LLVM's names, at least those that targets ask for."""
    found = told_features()
    if found is not None:
        return found
    import llvmlite.binding as llvm

    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)


@functools.cache
def processor() -> str:
    """The name of this machine's processor, under which measurements are kept; empty where the system doesn't say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line for line in file if line.startswith("model name")), "")
    except (OSError, UnicodeDecodeError):
        import platform

        return platform.processor()
    return name.partition(":")[2].strip()


def runs_here(target: Target) -> bool:
    """True if this processor has what the target needs."""
    isa = target.isa
    return target.is_native and (not isa.needs or _host_features().issuperset(isa.needs))


def _widest(targets: dict[str, Target]) -> Target:
    return next(target for target in targets.values() if runs_here(target))


def named(name: str) -> Target:
    """The target of this name, small ones too; ``small`` is the twin of what this machine would run."""
    known = TARGETS | SMALL_TARGETS | EXTENDED_TARGETS | SMALL_EXTENDED | {"small": _widest(SMALL_TARGETS)}
    if name not in known:
        raise StaticGradError(f"STATICGRAD_TARGET={name!r}: expected one of {', '.join(known)}")
    return known[name]


def current_target() -> Target:
    """The target that programs are compiled for now: the forced one, else the widest that this machine runs."""
    forced = config.get("TARGET")
    if not forced:
        return _widest(TARGETS)
    target = named(forced)
    if not runs_here(target):
        raise StaticGradError(f"STATICGRAD_TARGET={forced!r}: this processor lacks its instructions")
    return target


def extended(target: Target) -> Target:
    """The target that programs with products of short numbers are compiled for in place of this one: that with the most
    instructions for them which this machine runs, or itself where it was asked for by name."""
    several = () if config.get("TARGET") else EXTENDED.get(target.name, ())
    return next(filter(runs_here, several), target)
