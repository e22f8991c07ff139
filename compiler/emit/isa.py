"""Instruction sets: how wide vectors are, how many there are, and which single instructions emitters may count on.

An emitter asks for the capability that it is about to use (``target.isa.gathers``), never for a name or for a number of
registers that comes with it. What a set lacks is written in other ways, so a set without any capability is complete: a
new one is an entry here. The leaf instructions that a capability stands for are written in ``emit/elementary/`` with
x86's names; a set of another family that claims one needs its own there.
"""

from __future__ import annotations

from staticgrad.frozen import frozen


@frozen
class ISA:
    """An instruction set, in which programs are written. ``vector_bytes`` is the width of one register, of which there
    are ``registers``."""

    name: str
    vector_bytes: int
    registers: int
    arch: str = ""  # the architecture, as ``platform.machine`` and LLVM's triples name it; that of this machine
    fma: bool = False  # multiply-adds that round once
    by_lane: bool = False  # multiply-adds by one lane of a register, where others load an element into all lanes
    predicated: bool = False  # loads and stores of some lanes only, as fast as of all
    masked_loads: bool = False  # loads of some lanes only, if slower than of all
    gathers: bool = False  # lanes from and to any addresses, not slower than one by one
    extremes: bool = False  # the lesser and the greater of two floats; NaN if either is
    rounds: bool = False  # floats to integral floats: to even, down, up, towards zero
    scales: bool = False  # x·2ⁿ, and exponent and mantissa of x
    estimates: bool = False  # 1/x to 14 bits
    compresses: bool = False  # the lanes where a mask is on, side by side
    looks_up: bool = False  # each lane's element of a table in two registers of 512 bits
    cpu: str = ""  # of the code generator, and its features
    features: str = ""
    needs: tuple[str, ...] = ()  # features that a processor must have, by LLVM's names


def _enabled(names: tuple[str, ...]) -> str:
    return ",".join(f"+{name}" for name in names)


AVX512_NEEDS = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c", "bmi", "bmi2")
AVX2_NEEDS = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2")

BASELINE_ISA = ISA("generic", 16, 16)  # what every x86-64 has, and others of 64 bits
NEON_ISA = ISA(
    "neon", 16, 32, "aarch64", fma=True, by_lane=True, extremes=True, rounds=True, cpu="generic"
)  # what every aarch64 has
AVX2_ISA = ISA("avx2", 32, 16, "x86_64", fma=True, masked_loads=True, rounds=True, cpu="x86-64-v3",
               features=_enabled(AVX2_NEEDS), needs=AVX2_NEEDS)  # fmt: skip
AVX512_ISA = ISA("avx512", 64, 32, "x86_64", fma=True, predicated=True, masked_loads=True, gathers=True, rounds=True,
                 scales=True, estimates=True, compresses=True, looks_up=True, cpu="x86-64-v4",
                 features=_enabled(AVX512_NEEDS), needs=AVX512_NEEDS)  # fmt: skip
