"""The table of Stan's functions, and how entries are made. Its keys are the names that the form has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staticgrad.bridges.importer import Converters
from staticgrad.bridges.stan.form import Expr
from staticgrad.bridges.stan.values import Value

FUNCTIONS = Converters()
typed = FUNCTIONS.enter  # for functions of a scope and the expression, which ask for the types of operands

_SOLVER = "solvers of differential and algebraic equations are not converted"
REFUSED: dict[str, str] = {
    "map_rect": "map_rect is not converted: reduce_sum is, or a vectorised function",
    "integrate_1d": "quadrature is not converted",
}
_SOLVERS = ("ode_", "integrate_ode_", "algebra_solver", "solve_newton", "solve_powell", "dae")
_COMPLEX = ("complex", "fft", "inv_fft", "eigenvalues", "eigenvectors", "get_real", "get_imag")


def refused(name: str) -> str:
    """The reason why a function is not converted."""
    if name.endswith("_rng"):
        return "it is drawn at random"
    if name.startswith(_SOLVERS):
        return _SOLVER
    if "complex" in name or name in _COMPLEX:
        return "complex numbers are not converted"
    return REFUSED.get(name, "this function is not converted")


def plain(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """A decorator that enters a function of the operands' values."""

    def enter(function: Callable[..., Value]) -> Callable[..., Value]:
        FUNCTIONS.enter(*names)(lambda scope, expr: function(*scope.values(expr.args)))
        return function

    return enter


def table(**entries: Callable[..., Value]) -> None:
    """Enter several functions of values by name."""
    for name, function in entries.items():
        plain(name)(function)


def leaves(expr: Expr) -> list[Any]:
    """The leaf of each operand, and how many axes of arrays are around it."""
    return [(arg.leaf, arg.depth) for arg in expr.args]
