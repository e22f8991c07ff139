"""What the plans of all convolution kernels have in common."""

from __future__ import annotations

import abc

from staticgrad.compiler.emit.llvm import Function, Value
from staticgrad.compiler.kernels.matrix import Convolution


class ConvolutionPlan(abc.ABC):
    """How a kernel is done: chosen by its sizes and strides and by the target, before anything is written. Sizes and
    strides are elements unless said otherwise."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def is_shared(self) -> bool:
        """The kernel is worth the threads of a pool."""

    @property
    @abc.abstractmethod
    def shared_bytes(self) -> int:
        """Scratch memory that all workers use, a multiple of 64 bytes."""

    @property
    @abc.abstractmethod
    def own_bytes(self) -> int:
        """Scratch memory that each worker has for itself, a multiple of 64 bytes."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """Loops, tiles, what is staged, and chunks, in a line or two."""

    @abc.abstractmethod
    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """Where the epilogue finds the result of a kernel that does not store it."""

    @abc.abstractmethod
    def emit(self, f: Function, kernel: Convolution, epilogue: str | None, pointers: list[Value], pool: Value) -> None:
        """Write the body of the function."""


def chunks_text(share: int | None, part: int) -> str:
    """How the work of a transpose by weights is cut: in units, or in parts of the sums."""
    if part:
        return f"; chunks of {part} with sums of their own"
    return f"; chunks of {share}" if share is not None else ""
