"""Values within a step: the interpolants of Runge-Kutta pairs.

Input: the state at the beginning of a step, its size and the slopes of its stages. Output: a ``Curve``, a polynomial in
the part θ of the step, of which rows at many times are written at once.
"""

from __future__ import annotations

from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.odes.tableaus import Tableau
from staticgrad.odes.vectors import Vector, combined, scaled


@frozen(eq=False)
class Curve:
    """y + θ·(v₁ + θ·(v₂ + …)) from time ``t`` on, over a step of size ``h``."""

    t: Tensor
    h: Tensor
    y: Vector
    coefficients: tuple[Vector, ...]

    def at(self, times: Tensor, inside: Tensor) -> Vector:
        """The states at ``times`` where ``inside`` holds, stacked along axis 0 if the times are; elsewhere ``y``."""
        h = O.where(self.h == 0, 1.0, self.h)
        theta = O.where(inside, (times - self.t) / h, 0.0)
        rows = []
        for number, y in enumerate(self.y):
            part = O.reshape(O.astype(theta, y.dtype), (*theta.shape, *(1,) * y.ndim))
            total = part * self.coefficients[-1][number]
            for coefficient in self.coefficients[-2::-1]:
                total = part * (coefficient[number] + total)
            rows.append(y + total)
        return tuple(rows)


def curve(pair: Tableau, t: Tensor, h: Tensor, y: Vector, slopes: tuple[Vector, ...]) -> Curve:
    """The interpolant of a step."""
    columns = zip(*pair.dense, strict=True)
    return Curve(t, h, y, tuple(scaled(h, combined(column, slopes)) for column in columns))
