"""Results of searches, under SciPy's names."""

from __future__ import annotations

from typing import Any

from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import Array


@frozen(eq=False)
class OptimizeResult:
    """The outcome of ``sg.minimize``, under SciPy's names.

    Attributes:
        x: the best point. ``fun`` and ``jac``: the value and the gradient there.
        nit: iterations; ``nfev``: evaluations of the value with its gradient, ``njev`` the same number.
        success: whether a tolerance was reached; ``status`` is 0 then; ``message`` says in words how it ended.
    """

    x: Any
    fun: Array
    jac: Any
    nit: int
    nfev: int
    njev: int
    success: bool
    status: int
    message: str


@frozen(eq=False)
class LeastSquaresResult:
    """The outcome of ``sg.least_squares``, under SciPy's names.

    Attributes:
        x: the best point. ``fun``: the residuals there, without the loss. ``cost``: half the sum of their squares, or
            of what the loss makes of these.
        jac: the derivative of each residual by each element of x, (…residuals, …x), rows scaled for a robust loss as in
            the last step; ``grad``: the gradient of the cost.
        optimality: the largest magnitude of an element of the gradient, with bounds each times the distance to the
            bound ahead; of ``"lm"`` too.
        active_mask: like x, −1 where a lower bound is met, 1 where an upper one is, else 0.
        nit: iterations; ``nfev``: evaluations of the residuals alone, and at the first point; ``njev``: of their
            Jacobian.
        status: above 0 if a tolerance was reached; ``success`` says so, ``message`` in words how it ended.
    """

    x: Any
    cost: Array
    fun: Array
    jac: Any
    grad: Any
    optimality: float
    active_mask: Any
    nit: int
    nfev: int
    njev: int
    status: int
    message: str
    success: bool


@frozen(eq=False)
class IntermediateResult:
    """The standing of a search after an iteration, as its callback is told.

    Attributes:
        x: the point. ``fun``: the value, or the residuals, there; ``cost``: of residuals, else equal to the value.
        nit: iterations, ``nfev``: evaluations so far.
    """

    x: Any
    fun: Array
    cost: float
    nit: int
    nfev: int
