"""What tests declare with: leaves, small arrays, hooks that write down what they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staticgrad as sg

Array = np.ndarray[Any, Any]


def leaf(*shape: Any, name: str | None = None) -> sg.Tensor:
    x: sg.Tensor = sg.placeholder(shape, name=name, requires_grad=True)
    return x


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


class Log:
    """What a graph's hooks see in a run, in order."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def hook(self, label: str) -> Callable[[sg.Tensor], None]:
        """A hook that notes its label and the gradient's value in each backward."""

        def note(grad: sg.Tensor) -> None:
            sg.py_call(lambda value: self.entries.append((label, value.tolist())), [grad], [])

        return note

    def take(self) -> list[Any]:
        entries, self.entries = self.entries, []
        return entries
