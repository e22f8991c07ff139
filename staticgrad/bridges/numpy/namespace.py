"""NumPy's functions, and SciPy's special ones, of traced arrays: ``n.where(x > 0, x, 0)``.

Functions that are written in NumPy's own terms use this; they are traced like the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.bridges.numpy.array import call


class NumpyNamespace:
    """Functions by their names in a module of NumPy, or else in ``scipy.special``."""

    def __init__(self, home: Any) -> None:
        self._home = home

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real = getattr(self._home, name, None)
        if real is None:
            import scipy.special

            real = getattr(scipy.special, name)
        return lambda *arguments, **named: call(real, *arguments, **named)


n = NumpyNamespace(np)
linalg = NumpyNamespace(np.linalg)
