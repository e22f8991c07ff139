"""The scratch memory of factorisations, in bytes: what each keeps beside its results."""

from __future__ import annotations

from staticgrad.compiler.kernels.routines import Householder, Singular, Symmetric
from staticgrad.compiler.machine.target import Target


def householder_bytes(routine: Householder, target: Target) -> int:
    """The reflections, and their factors."""
    return (routine.columns * routine.rows + routine.columns) * routine.dtype.itemsize


def symmetric_bytes(routine: Symmetric, target: Target) -> int:
    """The matrix, and four vectors."""
    return (routine.size**2 + 4 * routine.size) * routine.dtype.itemsize


def singular_bytes(routine: Singular, target: Target) -> int:
    """The columns, their squared lengths and the factors of reflections."""
    n, m = routine.columns, routine.rows
    return (n * m + 2 * n) * routine.dtype.itemsize
