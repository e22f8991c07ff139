"""The interface of kernels: a frozen value that says what it computes, and no word of how it is run.

``Nest``, ``Contraction`` and the others are values of families; stages between lowering and emission ask them what
stands here, and nothing else. How a kernel of a family is run is planned and emitted by the family's entry in
``emit/families.py``; what it computes is defined by its reference in ``kernels/reference.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from staticgrad.graph.optable import Array


class Kernel(Protocol):
    """A kernel of any family."""

    @property
    def args(self) -> tuple[np.dtype, ...]:
        """The dtype of each argument, which is the address of an operand's or a result's memory."""
        ...

    @property
    def terms(self) -> int:
        """The greatest number of terms that one element of the result sums."""
        ...

    @property
    def is_repeatable(self) -> bool:
        """The kernel may run twice in one call, where that saves memory: it takes no longer than reading its operands
        and computing each element does."""
        ...

    @property
    def text(self) -> str:
        """The text of the computation: sizes, dtypes, instructions, in lines."""
        ...


class LoneKernel(Kernel, Protocol):
    """A kernel that computes one op over plain row-major memory and takes no others into it.

    Its arguments are the op's operands and those of the op's results that ``results`` numbers. ``call`` gives all
    results of the op for flat operands, as the op's reference does.
    """

    @property
    def results(self) -> tuple[int, ...]: ...

    @property
    def call(self) -> Callable[[Sequence[Array]], Sequence[Array]] | None: ...

    @property
    def flops(self) -> int: ...
