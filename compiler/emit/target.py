"""What the machine offers to the emitter: vector width, registers, features, sizes of caches and pages.

``STATICGRAD_TARGET`` forces one of the three targets (``avx512``, ``avx2``, ``generic``); otherwise the host decides.
A target is a plain value: everything that depends on the machine is chosen from it at compile time, from what is known
of the family of machines, or from what was measured on this one.

Each target has a *small* twin for tests (``avx512-small`` and so on; ``small`` is that of the host's target): caches,
pages and nearly all other sizes and times at which a kernel is run in another way are ``SMALL`` times smaller, so that
small programs are run in the ways of large ones.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from staticgrad import config
from staticgrad.errors import StaticGradError
from staticgrad.frozen import frozen

# What the caches of all three families have in common, in bytes.
LINE = 64
PAGE = 4096  # lines a multiple of it apart fall into one set of the first cache
FAR_BYTES = 2048  # rows so far apart are new to the prefetchers, which stop at a page's end
SMALL = 64  # by what sizes are divided for a target's small twin


@frozen
class Blocking:
    """How a product C = A·B is cut, as far as that is free: whether Cᵀ is computed; the rows and vectors of a tile;
    whether a last panel that lacks one vector is ``folded`` into the function of the others; whether B is packed. No
    choice changes the order in which an element's terms are added."""

    swapped: bool
    rows: int
    vectors: int
    folded: bool
    packed: bool


@frozen
class Target:
    """A family of machines. ``vector_bytes`` is the width of one register, ``features`` go to the code generator. Of
    long chains of instructions so many are ``interleaved`` that their latencies hide each other. Sizes and times at
    which a kernel is run in another way are ``divisor`` times smaller than this package's constants say. ``measured``
    are the products, by their text, for which another blocking than the estimated one was found faster."""

    name: str
    vector_bytes: int
    registers: int
    masked: bool  # masked loads and stores are single instructions
    masked_loads: bool  # masked loads are
    fma: bool  # a fused multiply-add is one instruction
    own_cache_bytes: int  # about what a core has for itself: its second cache
    cpu: str
    features: str
    needs: tuple[str, ...] = ()  # features that the processor must have
    scales: bool = False  # multiplying by a power of two, and taking it apart from a number, are single instructions
    interleaved: int = 1
    divisor: int = 1
    measured: tuple[tuple[str, Blocking], ...] = ()

    def lanes(self, dtype: np.dtype) -> int:
        """How many elements of ``dtype`` one register holds."""
        return max(1, self.vector_bytes // max(dtype.itemsize, 1))

    def sized(self, amount: int, least: int = 1) -> int:
        """A constant of this package, in bytes, elements or turns, as this target has it; ``least`` at least."""
        return max(least, amount // self.divisor)


AVX512_NEEDS = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c", "bmi", "bmi2")
AVX2_NEEDS = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2")


def _enabled(names: tuple[str, ...]) -> str:
    return ",".join(f"+{name}" for name in names)


def _small(target: Target) -> Target:
    """The twin whose sizes are small."""
    nbytes = target.own_cache_bytes // SMALL
    return replace(target, name=f"{target.name}-small", divisor=SMALL, own_cache_bytes=nbytes)


GENERIC = Target("generic", 16, 16, masked=False, masked_loads=False, fma=False, own_cache_bytes=512 << 10, cpu="",
                 features="")  # fmt: skip
AVX2 = Target("avx2", 32, 16, masked=False, masked_loads=True, fma=True, own_cache_bytes=512 << 10, cpu="x86-64-v3",
              features=_enabled(AVX2_NEEDS), needs=AVX2_NEEDS, interleaved=2)  # fmt: skip
AVX512 = Target("avx512", 64, 32, masked=True, masked_loads=True, fma=True, own_cache_bytes=1 << 20, cpu="x86-64-v4",
                features=_enabled(AVX512_NEEDS), needs=AVX512_NEEDS, scales=True)  # fmt: skip
TARGETS = {target.name: target for target in (AVX512, AVX2, GENERIC)}  # the widest first
SMALL_TARGETS = {target.name: target for target in map(_small, TARGETS.values())}


@functools.cache
def _host_features() -> frozenset[str]:
    """The features of this processor under LLVM's names, at least those that targets ask for."""
    found = _features_from_kernel()
    if found is not None:
        return found
    import llvmlite.binding as llvm

    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)


def _features_from_kernel() -> frozenset[str] | None:
    """What Linux says of the first processor, which is there without importing LLVM: features that the processor has
    and the system saves the registers of. None on other systems and processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except (OSError, UnicodeDecodeError):
        return None
    names = {"bmi1": "bmi"}  # Linux's name: LLVM's
    return frozenset(names.get(flag, flag) for flag in flags.partition(":")[2].split()) or None


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
    """This processor has what the target needs."""
    return _host_features().issuperset(target.needs)


def _widest(targets: dict[str, Target]) -> Target:
    return next(target for target in targets.values() if runs_here(target))


def named(name: str) -> Target:
    """The target of this name, small ones too; ``small`` is the twin of what this machine would run."""
    known = TARGETS | SMALL_TARGETS | {"small": _widest(SMALL_TARGETS)}
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
