"""The base of the plans of all convolution kernels.

A plan names the areas of its scratch memory and says how many bytes each has; sizes and addresses follow from that.
"""

from __future__ import annotations

import abc

import numpy as np

from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.compiler.kernels.matrix import Convolution
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.tiles import aligned_bytes


@frozen
class Area:
    """A piece of scratch memory: ``nbytes``, a multiple of 64, or several ``copies`` of that size."""

    name: str
    nbytes: int
    copies: int = 1

    @property
    def text(self) -> str:
        """The size, and how often it is there."""
        size = f"{self.nbytes} bytes" if self.nbytes < 1024 else f"{-(-self.nbytes // 1024)} KiB"
        return size if self.copies == 1 else f"{self.copies} × {size}"


@frozen
class Scratch:
    """The scratch memory of a kernel: the areas that all workers use, one after the other, then those of each
    worker."""

    shared: tuple[Area, ...] = ()
    own: tuple[Area, ...] = ()

    @property
    def shared_bytes(self) -> int:
        """The bytes of the areas that all workers use."""
        return sum(area.nbytes * area.copies for area in self.shared)

    @property
    def own_bytes(self) -> int:
        """The bytes of the areas that each worker has for itself."""
        return sum(area.nbytes * area.copies for area in self.own)

    @property
    def text(self) -> str:
        """The areas with their sizes, after a semicolon."""
        shared, own = (
            ", ".join(f"{area.name} {area.text}" for area in areas if area.nbytes * area.copies)
            for areas in (self.shared, self.own)
        )
        return f"; scratch: {shared}" * bool(shared) + f"; scratch of a worker: {own}" * bool(own)

    def find(self, name: str) -> Area:
        """The area of this name."""
        return next(area for area in (*self.shared, *self.own) if area.name == name)


NO_SCRATCH = Scratch()


def areas(dtype: np.dtype, **elements: int) -> tuple[Area, ...]:
    """Areas by their names, with the numbers of their elements; of the greatest sizes."""
    return tuple(Area(name, aligned_bytes(highest(count), dtype)) for name, count in elements.items())


class ConvolutionPlan(abc.ABC):
    """The plan of a kernel: chosen by its sizes and strides and by the target, before anything is written. Sizes and
    strides are elements unless said otherwise."""

    __slots__ = ()
    scratch: Scratch

    @staticmethod
    @abc.abstractmethod
    def make(kernel: Convolution, target: Target) -> ConvolutionPlan | None:
        """The plan of a kernel without epilogue, which has no part in it; None for one that this class is not for."""

    @abc.abstractmethod
    def cycles(self, kernel: Convolution, target: Target) -> float:
        """The estimated cycles of the kernel of known sizes on one core, by which plans of a kernel are compared."""

    @property
    @abc.abstractmethod
    def is_shared(self) -> bool:
        """The kernel is worth the threads of a pool."""

    @property
    @abc.abstractmethod
    def way(self) -> str:
        """Loops, tiles, what is staged, and chunks, in a line or two."""

    @property
    def text(self) -> str:
        """The text of the way in which the kernel is done, and of its scratch memory."""
        return f"{self.way}{self.scratch.text}"

    @abc.abstractmethod
    def raw_strides(self, kernel: Convolution) -> tuple[int, int, int, int]:
        """The strides of the scratch memory in which the epilogue finds the result of a kernel that does not store
        it."""
