"""Short rows as columns: which accesses of a nest are transposed in tiles, and how wide a tile is."""

from __future__ import annotations

from staticgrad.base.extents import highest, is_open, largest
from staticgrad.compiler.kernels.nest import Access


def tile_width(size: int, lanes: int) -> int:
    """The number of columns of a tile: a power of two, the lanes at most."""
    return min(lanes, 1 << (highest(size) - 1).bit_length())


def column_count(size: int, lanes: int) -> int:
    """The number of columns that scratch memory needs room for."""
    width = tile_width(size, lanes)
    return -(-highest(size) // width) * width if is_open(size) else size


def is_staged(access: Access, vector_dim: int, inner: int) -> bool:
    """True if lanes along ``vector_dim`` are rows whose elements lie side by side along ``inner``."""
    return not access.terms and access.strides[inner] == 1 and largest(access.strides[vector_dim]) > 1
