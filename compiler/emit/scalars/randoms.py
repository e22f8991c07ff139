"""Random bits in lanes, and uniform numbers made of them."""

from __future__ import annotations

from staticgrad.compiler.emit.llvm import suffix
from staticgrad.compiler.emit.scalars.lane import FLOAT32, FLOAT64, INT32, UINT32, Lane, LaneBuilder


def threefry(b: LaneBuilder, key0: Lane, key1: Lane, counter_hi: Lane, counter_lo: Lane) -> tuple[Lane, Lane]:
    """Threefry-2x32, 20 rounds: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3"."""
    parity = b.const(0x1BD11BDA, UINT32)
    keys = (key0, key1, b.bit_xor(parity, b.bit_xor(key0, key1)))
    x0, x1 = b.add(counter_hi, keys[0]), b.add(counter_lo, keys[1])
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    for turn in range(20):
        x0 = b.add(x0, x1)
        x1 = b.bit_xor(_rotated_left(b, x1, rotations[turn % 8]), x0)
        if turn % 4 == 3:
            group = turn // 4 + 1
            x0 = b.add(x0, keys[group % 3])
            x1 = b.add(x1, b.add(keys[(group + 1) % 3], b.const(group, UINT32)))
    # LLVM looks through all rounds for where a word could be extended to 64 bits, again on each path: for a second.
    words = [b.function.opaque(word.value) for word in (x0, x1)]
    return Lane(words[0], UINT32), Lane(words[1], UINT32)


def _rotated_left(b: LaneBuilder, x: Lane, count: int) -> Lane:
    name = f"llvm.fshl.{suffix(x.value.type)}"
    by = b.const(count, x.dtype).value
    return Lane(b.function.intrinsic(name, x.value.type, x.value, x.value, by), x.dtype)


def unit(b: LaneBuilder, word: Lane) -> Lane:
    """A float32 in [0, 1) of the upper 24 bits of a word."""
    upper = b.function.binary("lshr", word.value, b.const(8, UINT32).value)
    return b.mul(b.cast(Lane(upper, INT32), FLOAT32), b.const(2.0**-24, FLOAT32))


def unit64(b: LaneBuilder, word0: Lane, word1: Lane) -> Lane:
    """A float64 in [0, 1) of the upper 27 and 26 bits of two words."""
    high = Lane(b.function.binary("lshr", word0.value, b.const(5, UINT32).value), INT32)
    low = Lane(b.function.binary("lshr", word1.value, b.const(6, UINT32).value), INT32)
    scaled_high = b.mul(b.cast(high, FLOAT64), b.const(2.0**-27, FLOAT64))
    scaled_low = b.mul(b.cast(low, FLOAT64), b.const(2.0**-53, FLOAT64))
    return b.add(scaled_high, scaled_low)
