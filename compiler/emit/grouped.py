"""Multiply-adds of groups: short numbers, several of which fill the 32 bits of a lane, ``c += Σ a[t]·b[t]``.

Input: vectors of 32 bits a lane, as floats or i32; what they hold is the ``grouping`` (``ops/grouped.py``), which ends
in ``.turned`` where the operands of the product have changed places. Output: the sums with the terms of one group.

Where the instruction set has an instruction for them it is used: ``vdpbf16ps`` computes ``fma(a[0], b[0], fma(a[1],
b[1], c))`` of bfloat16, takes denormal numbers for zero and makes none; ``vpdpbusd`` adds four products of an uint8
and an int8 to an int32, exactly (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2). Elsewhere
bfloat16 are multiplied by two multiply-adds of float32, which give the same bits but for denormal numbers, since each
product is exact; of 8 bits, products of even and of odd terms are summed by pairs of 16 bits where there is an
instruction (``vpmaddwd``), which is exact as well, else one by one.
"""

from __future__ import annotations

import numpy as np

from staticgrad.compiler.emit.llvm import Function, Value, lanes_of, vector
from staticgrad.ops.grouped import GROUPINGS

TURNED = ".turned"
DOTS = {16: "512", 8: "256", 4: "128"}  # the bits of a register in the names of LLVM's intrinsics, by lanes
PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
LOW_BYTES = 0x00FF00FF


def sums_of(grouping: str) -> np.dtype:
    """The dtype of sums."""
    return GROUPINGS[grouping.removesuffix(TURNED)].sums


def multiply_add_groups(f: Function, grouping: str, a: Value, b: Value, c: Value) -> Value:
    """The sums ``c`` with the terms that the lanes of a and b hold."""
    kind = grouping.removesuffix(TURNED)
    if kind == "bfloat16":
        return _add_bfloat16(f, a, b, c)
    unsigned, signed = (b, a) if grouping != kind else (a, b)
    return _add_int8(f, _as(f, unsigned, "i32"), _as(f, signed, "i32"), c)


def _as(f: Function, x: Value, element: str, parts: int = 1) -> Value:
    """The same bits as ``parts`` elements a lane."""
    type_ = vector(element, lanes_of(x.type) * parts)
    return x if x.type == type_ else f.emit(type_, f"bitcast {x} to {type_}")


def _has(f: Function, kind: str, lanes: int) -> bool:
    return kind in f.target.isa.adds_groups and lanes in DOTS


def _add_bfloat16(f: Function, a: Value, b: Value, c: Value) -> Value:
    lanes = lanes_of(c.type)
    if _has(f, "bfloat16", lanes):
        operands = [_as(f, x, "bfloat", 2) for x in (a, b)]
        return f.intrinsic(f"llvm.x86.avx512bf16.dpbf16ps.{DOTS[lanes]}", c.type, c, *operands)
    words = [_as(f, x, "i32") for x in (a, b)]
    upper = [f.binary("and", x, f.const(-65536, x.type)) for x in words]
    lower = [f.binary("shl", x, f.const(16, x.type)) for x in words]
    for left, right in (upper, lower):
        c = f.fma(_as(f, left, "float"), _as(f, right, "float"), c)
    return c


def _add_int8(f: Function, a: Value, b: Value, c: Value) -> Value:
    """``a`` holds numbers without sign."""
    lanes = lanes_of(c.type)
    if _has(f, "int8", lanes):
        return f.intrinsic(f"llvm.x86.avx512.vpdpbusd.{DOTS[lanes]}", c.type, c, a, b)
    if f.target.isa.adds_pairs and lanes in PAIRS:
        return _add_pairs(f, a, b, c)
    for term in range(4):
        left = f.binary("and", _shifted(f, "lshr", a, 8 * term), f.const(255, a.type))
        right = _shifted(f, "ashr", _shifted(f, "shl", b, 24 - 8 * term), 24)
        c = f.binary("add", c, f.binary("mul", left, right))
    return c


def _add_pairs(f: Function, a: Value, b: Value, c: Value) -> Value:
    """Even terms as 16 bits each, then odd ones: of a pair of products no sum overflows."""
    words = _as(f, b, "i16", 2)
    even_a, odd_a = (f.binary("and", part, f.const(LOW_BYTES, a.type)) for part in (a, _shifted(f, "lshr", a, 8)))
    even_b, odd_b = _shifted(f, "ashr", _shifted(f, "shl", words, 8), 8), _shifted(f, "ashr", words, 8)
    name = PAIRS[lanes_of(c.type)]
    for left, right in ((even_a, even_b), (odd_a, odd_b)):
        c = f.binary("add", c, f.intrinsic(name, c.type, _as(f, left, "i16", 2), right))
    return c


def _shifted(f: Function, how: str, x: Value, by: int) -> Value:
    return x if by == 0 else f.binary(how, x, f.const(by, x.type))
