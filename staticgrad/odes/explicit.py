"""Attempts of explicit Runge-Kutta pairs.

Input: a time, a state, its slope and a step size. Output: an ``Attempt``: the state at the end of the step, the
estimate of its error and the slopes of all stages, the last of which is that at the end.
"""

from __future__ import annotations

from typing import Protocol

from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.odes.tableaus import Tableau
from staticgrad.odes.vectors import Slope, Vector, combined, moved, scaled


@frozen(eq=False)
class Attempt:
    """The outcome of one step. ``converged`` is None where nothing iterates; ``evaluations`` are those of the slope."""

    y: Vector
    error: Vector
    slopes: tuple[Vector, ...]
    evaluations: Tensor | int
    converged: Tensor | None = None


class Stepper(Protocol):
    """A method: ``attempt`` makes a step's values, ``derived`` declares the same step for derivatives."""

    @property
    def pair(self) -> Tableau: ...

    def attempt(self, f: Slope, t: Tensor, y: Vector, slope: Vector, h: Tensor) -> Attempt: ...

    def derived(self, f: Slope, t: Tensor, y: Vector, h: Tensor) -> tuple[Vector, tuple[Vector, ...]]:
        """The state at the end of a step and the slopes of its stages, as functions of all but ``h``."""
        ...


@frozen
class Explicit:
    """A pair whose stages are made one after the other."""

    pair: Tableau

    def attempt(self, f: Slope, t: Tensor, y: Vector, slope: Vector, h: Tensor) -> Attempt:
        end, slopes = self._stages(f, t, y, slope, h)
        return Attempt(end, scaled(h, combined(self.pair.e, slopes)), slopes, self.pair.stages - 1)

    def derived(self, f: Slope, t: Tensor, y: Vector, h: Tensor) -> tuple[Vector, tuple[Vector, ...]]:
        return self._stages(f, t, y, f(t, y), h)

    def _stages(self, f: Slope, t: Tensor, y: Vector, slope: Vector, h: Tensor) -> tuple[Vector, tuple[Vector, ...]]:
        slopes, at = [slope], y
        for weights, c in zip(self.pair.a[1:], self.pair.c[1:], strict=True):
            at = moved(y, h, combined(weights, slopes))
            slopes.append(f(t + c * h, at))
        return at, tuple(slopes)
