"""``x[mask]`` with a traced mask: how many elements it has only a run knows, what is done with them is often known.

Operators and functions of elements keep the selection, so that ``x[mask] *= 2`` and ``x[mask] = f(x[mask])`` are
chosen by ``where``; sums, means and extremes of all selected elements are those of where the mask is true. Anything
else asks for the elements one after the other, which is refused or frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import SourceLine
from staticgrad.bridges.numpy.array import TracedArray, value_of
from staticgrad.bridges.numpy.cells import Cell, Storage
from staticgrad.bridges.numpy.tables import NEUTRAL, of_selected
from staticgrad.bridges.numpy.trace import SELECTION, current
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Array


class Selection(Cell):
    """The elements that a traced mask selects, whose number only a run knows: all elements, and the mask.

    What needs these elements one after the other asks for them.
    """

    __slots__ = ("_line", "_value", "full", "mask", "storage")

    def __init__(self, value: Array, full: Tensor, mask: Tensor, is_example: bool, line: SourceLine | None) -> None:
        self._value, self.full, self.mask, self._line = value, full, mask, line
        self.storage = Storage(value, full, is_example)

    def with_values(self, value: Array, full: Tensor) -> Selection:
        """Other values at the same places."""
        return Selection(value, full, self.mask, self.storage.is_example, self._line)

    def ask(self) -> None:
        """Refuse, or freeze, that elements are selected."""
        current().depends("a mask as index", SELECTION, self.storage.is_example, self._line)

    def read(self) -> Tensor:
        self.ask()
        return o.constant(np.array(self._value))

    def write(self, new: Tensor) -> None:
        """Keep nothing: the elements are a copy, and what asked for them is refused."""
        self.ask()


def is_selection(x: Any) -> bool:
    """True if something is an array of selected elements."""
    return type(x) is TracedArray and type(x.cell) is Selection


def selection_of(inputs: Sequence[Any]) -> Selection | None:
    """The selection of operands, if it is the same for all but numbers."""
    cells = [x.cell for x in inputs if is_selection(x)]
    others = [x for x in inputs if not is_selection(x)]
    is_one = all(cell.mask is cells[0].mask for cell in cells) and not any(np.ndim(value_of(x)) for x in others)
    return cells[0] if cells and is_one else None


def reduced(path: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """A sum, mean or extreme of selected elements; None for what else is asked of them."""
    name = path.removeprefix("numpy.")
    if len(arguments) != 1 or named or not is_selection(arguments[0]) or name not in NEUTRAL:
        return None
    full = arguments[0].cell.full
    if full.dtype.kind != "f" and name in ("max", "min"):
        return None
    return of_selected(name, full, arguments[0].cell.mask)
