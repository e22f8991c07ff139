"""Declarations: from what a user hands to a function to a node, operands lifted, promoted, of a dtype that the op
takes.

Input: tensors, arrays and numbers. Output: tensors of one dtype, and the node that is declared with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTYPES, FLOATS, INTEGERS, bool_, float64, is_floating, takes
from staticgrad.graph.graph import Tensor, show_as
from staticgrad.graph.lifting import TensorLike, graph_of, lift, lift_all
from staticgrad.graph.optable import FUNCTIONS, NO_ATTRIBUTES, F, Namespace, Op

# The dtypes that an elementwise op takes, as ``takes`` reads them; what becomes of the others when it is declared.
Accepts: TypeAlias = tuple[np.dtype, ...]
ANY: Accepts = DTYPES
NUMERIC: Accepts = (*INTEGERS, *FLOATS)  # bools are refused, as by NumPy
FLOAT: Accepts = FLOATS  # integers and bools are computed as float64
INTEGRAL: Accepts = (bool_, *INTEGERS)  # floats are refused
BOOL: Accepts = (bool_,)  # everything else is compared with zero


def declare(op: Op, inputs: Sequence[Tensor], attrs: Any = NO_ATTRIBUTES) -> Tensor:
    """Add a node with one result to the graph of its operands."""
    return graph_of(inputs).add(op, inputs, attrs).outputs[0]


def floating(value: TensorLike, what: str) -> Tensor:
    """A tensor that must be floating."""
    x = lift(value)
    if not is_floating(x.dtype):
        raise GraphError(f"{what}: expected a floating tensor, actual {x.type}")
    return x


def not_known(what: str, sizes: str) -> GraphError:
    """The refusal of sizes that a function has to know when it is declared and that feeds bind."""
    return GraphError(f"{what}: {sizes} must be known when declared; sg.reshape gives a tensor sizes that are known")


def refuse_in_place(what: str, inplace: bool) -> None:
    """Refuse PyTorch's ``inplace=True``.

    Raises:
        GraphError: it is asked for.
    """
    if inplace:
        raise GraphError(
            f"{what}: inplace=True: tensors are values, which nothing overwrites; leave it out and use the result"
            " (memory is reused by itself)"
        )


def added(o: Namespace, *terms: Tensor | None) -> Tensor:
    """The sum of the terms that are there: a rule is asked only where at least one is."""
    return functools.reduce(o.add, [term for term in terms if term is not None])


def subtracted(o: Namespace, x: Tensor | None, y: Tensor | None) -> Tensor:
    """x - y of what is there."""
    return o.subtract(x, y) if x is not None and y is not None else added(o, x, None if y is None else o.negative(y))


def operands(what: str, *values: object, quiet: bool = False) -> tuple[Tensor, ...]:
    """Lift operands to one dtype (NEP 50); ``quiet`` as for ``lift_all``."""
    return lift_all(values, what=what, quiet=quiet)


def shown_as(name: str | Callable[..., str]) -> Callable[[F], F]:
    """Show what a function declares as one backward node, whose operands are its tensors; ``name`` is the node's, or
    makes it of the arguments."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def shown(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            operands = [x for x in nests.flatten([args, list(kwargs.values())]) if isinstance(x, Tensor)]
            for y in made if isinstance(made, (list, tuple)) else [made]:
                if y.requires_grad:
                    show_as(y, f"{name if isinstance(name, str) else name(*args, **kwargs)}", operands)
            return made

        return cast(F, shown)

    return decorate


def accepted(what: str, accepts: Accepts, *values: object, quiet: bool = False) -> tuple[Tensor, ...]:
    """Operands of one dtype that the op takes; ``quiet`` as for ``lift_all``.

    Raises:
        GraphError: the op is not defined for their dtype.
    """
    if accepts is BOOL:
        with graph_of(values):
            return tuple([FUNCTIONS.astype(x, bool_) for x in values])
    xs = operands(what, *values, quiet=quiet)
    dtype = xs[0].dtype
    if takes(accepts, dtype):
        return xs
    if accepts is FLOAT:
        return tuple(FUNCTIONS.astype(x, float64) for x in xs)
    wanted = ", ".join(d.name for d in accepts)
    raise GraphError(f"{what}: not defined for {dtype.name}\n  expected one of {wanted}\n  actual   {xs[0]!r}")
