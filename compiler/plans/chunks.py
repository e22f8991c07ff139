"""Pieces of work: chunks that threads share, and vectors that a remainder is made of."""

from __future__ import annotations

from staticgrad.compiler.machine.target import Target

MOST_CHUNKS = 64  # of a kernel at most, which is several for each thread of usual machines


def wanted_chunks(seconds: float, target: Target) -> int:
    """The number of chunks into which work is cut that takes ``seconds`` on one core; 1 where it is not cut."""
    machine = target.machine
    seconds *= machine.divisor
    if seconds < machine.worth_sharing_seconds:
        return 1
    return max(2, min(MOST_CHUNKS, int(seconds / machine.chunk_seconds)))


def cut(units: int, chunks: int) -> tuple[int, int]:
    """``units`` of work in about ``chunks`` chunks: how many units one takes, and how many chunks that makes."""
    size = -(-units // max(1, min(units, chunks)))
    return size, -(-units // size)


def powers_of_two(count: int) -> list[int]:
    """The powers of two that add up to ``count``, the largest first."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]
