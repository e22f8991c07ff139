"""Instruction sets: how wide vectors are, how many there are, and which single instructions emitters may count on.

An emitter asks for the capability that it is about to use (``target.isa.gathers``), never for a name or for a number of
registers that comes with it. What a set lacks is written in other ways, so a set without any capability is complete: a
new one is an entry here. The leaf instructions that a capability stands for are written in ``emit/elementary/`` with
x86's names; a set of another family that claims one needs its own there.

A set without vectors has registers of one byte, so that every vector has one lane. What LLVM has to know of a machine
is here too: triple, processor, features, ABI, relocation model, and how many bytes an address has.
"""

from __future__ import annotations

from dataclasses import replace

from staticgrad.base.frozen import frozen


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
    permutes: bool = False  # the parts of 32 bits of a register in an order that another one has
    looks_up: bool = False  # each lane's element of a table in two registers of 512 bits
    adds_groups: tuple[str, ...] = ()  # sums of the products of several short numbers in each 32 bits, of these kinds
    prefers_groups: tuple[str, ...] = ()  # of which products are computed so even where float32 would do
    adds_pairs: bool = False  # sums of two products of integers of 16 bits in each 32 bits
    prefetches: bool = False  # cache lines, by an instruction
    unwinds: bool = False  # what a program is called by may look at its frames, of debuggers and exceptions
    guarded: bool = False  # a stack ends at a page without access, so each page of a long frame is touched
    outlines: bool = False  # LLVM may make functions of equal pieces of code, where that is to be short
    floats: tuple[str, ...] = ("float", "double")  # the types that have arithmetic; of others functions are called
    cpu: str = ""  # of the code generator, and its features
    features: str = ""
    triple: str = ""  # of the code generator; that of this process, or of Linux on another architecture
    abi: str = ""  # its name, where an architecture has several
    relocation: str = "pic"  # or "static": addresses are those for which the program is linked
    pointer_bytes: int = 8
    needs: tuple[str, ...] = ()  # features that a processor must have, by LLVM's names

    def fuses(self, element: str) -> bool:
        """True if there are multiply-adds of an LLVM type that round once."""
        return self.fma and element in self.floats

    @property
    def partitions(self) -> bool:
        """True if the lanes of a vector where a mask is on can be put side by side in a few instructions."""
        return self.compresses or self.permutes

    @property
    def word(self) -> str:
        """The LLVM type of indices: integers as wide as an address."""
        return f"i{8 * self.pointer_bytes}"


def _enabled(names: tuple[str, ...]) -> str:
    return ",".join(f"+{name}" for name in names)


AVX512_NEEDS = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c", "bmi", "bmi2")
AVX2_NEEDS = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2")

# What every x86-64 has, and others of 64 bits.
BASELINE_ISA = ISA("generic", 16, 16, prefetches=True, unwinds=True, guarded=True)
NEON_ISA = ISA(  # what every aarch64 has
    "neon", 16, 32, "aarch64", fma=True, by_lane=True, extremes=True, rounds=True, prefetches=True, unwinds=True,
    guarded=True, cpu="generic",
)  # fmt: skip
AVX2_ISA = ISA("avx2", 32, 16, "x86_64", fma=True, masked_loads=True, rounds=True, permutes=True, adds_pairs=True,
               prefetches=True, unwinds=True, guarded=True, cpu="x86-64-v3", features=_enabled(AVX2_NEEDS),
               needs=AVX2_NEEDS)  # fmt: skip
AVX512_ISA = ISA("avx512", 64, 32, "x86_64", fma=True, predicated=True, masked_loads=True, gathers=True, rounds=True,
                 scales=True, estimates=True, compresses=True, looks_up=True, adds_pairs=True, prefetches=True,
                 unwinds=True, guarded=True, cpu="x86-64-v4", features=_enabled(AVX512_NEEDS),
                 needs=AVX512_NEEDS)  # fmt: skip


def extended(isa: ISA, name: str, kinds: tuple[str, ...], *features: str) -> ISA:
    """An instruction set with extensions, LLVM's ``features``, that add products of these kinds of short numbers."""
    enabled = f"{isa.features},{_enabled(features)}"
    needs = (*isa.needs, *features)
    return replace(isa, name=name, adds_groups=kinds, prefers_groups=kinds, features=enabled, needs=needs)


AVX512_BF16_ISA = extended(AVX512_ISA, "avx512-bf16", ("bfloat16", "int8"), "avx512vnni", "avx512bf16")
AVX512_VNNI_ISA = extended(AVX512_ISA, "avx512-vnni", ("int8",), "avx512vnni")
AVX2_VNNI_ISA = extended(AVX2_ISA, "avx2-vnni", ("int8",), "avxvnni")


@frozen
class SignedMove:
    """The names of AVX's masked accesses of an element: its bytes, the integer whose sign is the mask, the family of
    instructions and the suffix in LLVM's intrinsics."""

    nbytes: int
    integer: str
    family: str
    suffix: str


SIGNED_MOVES = {
    "float": SignedMove(4, "i32", "avx", "ps"), "double": SignedMove(8, "i64", "avx", "pd"),
    "i32": SignedMove(4, "i32", "avx2", "d"), "i64": SignedMove(8, "i64", "avx2", "q"),
}  # fmt: skip

# -- of machines on which no process of Python runs --------------------------------------------------------------------

RISCV64_ISA = ISA("riscv64", 1, 32, "riscv64", fma=True, guarded=True, cpu="generic-rv64",
                  features=_enabled(("m", "a", "f", "d", "c", "zicsr", "zifencei")), abi="lp64d")  # fmt: skip
RISCV32_ISA = ISA("riscv32", 1, 32, "riscv32", floats=(), cpu="generic-rv32", features=_enabled(("m", "a", "c")),
                  triple="riscv32-unknown-none-elf", abi="ilp32", relocation="static", pointer_bytes=4)  # fmt: skip
CORTEX_M4_ISA = ISA("cortex-m4", 1, 32, "thumbv7em", fma=True, outlines=True, floats=("float",), cpu="cortex-m4",
                    triple="thumbv7em-unknown-none-eabihf", relocation="static", pointer_bytes=4)  # fmt: skip
CORTEX_M4_SOFT_ISA = ISA("cortex-m4-soft", 1, 12, "thumbv7em", outlines=True, floats=(), cpu="cortex-m4",
                         features="+soft-float", triple="thumbv7em-unknown-none-eabi", relocation="static",
                         pointer_bytes=4)  # fmt: skip
CORTEX_M7_ISA = ISA("cortex-m7", 1, 32, "thumbv7em", fma=True, rounds=True, outlines=True, cpu="cortex-m7",
                    triple="thumbv7em-unknown-none-eabihf", relocation="static", pointer_bytes=4)  # fmt: skip
WASM32_ISA = ISA("wasm32", 1, 32, "wasm32", extremes=True, rounds=True, cpu="generic", features="+bulk-memory",
                 triple="wasm32-unknown-unknown", relocation="static", pointer_bytes=4)  # fmt: skip
WASM32_SIMD128_ISA = ISA("wasm32-simd128", 16, 16, "wasm32", extremes=True, rounds=True, cpu="generic",
                         features="+bulk-memory,+simd128", triple="wasm32-unknown-unknown", relocation="static",
                         pointer_bytes=4)  # fmt: skip
