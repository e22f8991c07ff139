"""Pieces of work: chunks that threads share, and vectors that a remainder is made of."""

from __future__ import annotations

from staticgrad.compiler.machine.target import Target

MOST_CHUNKS = 64  # of a kernel at most, which is several for each thread of usual machines
USUAL_THREADS = (2, 4, 8, 16)  # among which chunks should come out even
CHUNK_PRICE = 0.01  # of one more chunk, as a part of the work


def wanted_chunks(seconds: float, target: Target) -> int:
    """The number of chunks into which work is cut that takes ``seconds`` on one core; 1 where it is not cut."""
    machine = target.machine
    seconds *= machine.divisor
    if seconds < machine.worth_sharing_seconds:
        return 1
    return max(2, min(MOST_CHUNKS, int(seconds / machine.chunk_seconds)))


def cut(units: int, fewest: int, most: int = 0) -> tuple[int, int]:
    """``units`` of work in chunks of equal size but for the last: how many units one takes, and how many chunks that
    makes. They are about ``fewest`` or more, up to ``most`` (twice ``fewest``): the number for which the threads of
    usual machines end together."""
    fewest = max(1, min(units, fewest))
    most = max(fewest, min(units, most or min(2 * fewest, MOST_CHUNKS))) if fewest > 1 or most else 1
    sizes = dict.fromkeys(-(-units // count) for count in range(fewest, most + 1))
    size = min(sizes, key=lambda size: unevenness(-(-units // size), size / units), default=units)
    return size, -(-units // size)


def unevenness(chunks: int, part: float) -> float:
    """A number that is the less the less usual numbers of threads wait for the last of them, of chunks the largest of
    which is that part of the work."""
    return sum(threads * -(-chunks // threads) for threads in USUAL_THREADS) * part + CHUNK_PRICE * chunks


def powers_of_two(count: int) -> list[int]:
    """The powers of two that add up to ``count``, the largest first."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]
