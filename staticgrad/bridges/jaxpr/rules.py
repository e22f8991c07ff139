"""Derivatives by JAX's own rules: of functions with custom ones, and of primitives whose rules say more than their
values.

The rule of an equation is what ``jax.jvp`` or ``jax.vjp`` makes of it as a function, traced when a derivative is
declared. So custom rules are read by the public interface alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import as_tensors
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.conversion import JAX, JaxScope, body_of
from staticgrad.bridges.jaxpr.versions import jax
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.ops.custom import of_operands

# Ops that no gradient passes, and those of constants of the function's own.
STILL = ("stop_gradient", "floor", "ceil", "round", "trunc", "sign", "constant", "full", "iota")


class JaxRule:
    """The rule of an equation, traced once.

    Attributes:
        variables: what the equation reads.
        moving: for each of them, whether there are derivatives by it: it is floating, it depends on what is not
            known, and it is no value from around the function, by which JAX derives no custom rule. A rule that is
            told which operands move may refuse others, so for such a rule it has a gradient as well.
    """

    def __init__(self, at: JaxScope, node: Any) -> None:
        self._function, self.variables = versions.function_of(node)
        own = node.invars[node.params.get("num_consts", 0) :]
        given = {v for v in own if not versions.is_literal(v)}
        asks = bool(node.params.get("symbolic_zeros"))
        self.moving = [_is_floating(v) and v in given and _may_move(at, at.value(v), asks) for v in self.variables]
        self._results = [_is_floating(v) for v in node.outvars]
        self._node = node
        self._traced: dict[bool, Any] = {}

    def forward(self, at: JaxScope, primals: Sequence[Any], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The tangent of each result, of those of all operands."""
        inside = copy.copy(at)
        inside.derives = True
        values = [*primals, *_chosen(tangents, self.moving)]
        found: list[Tensor | None] = self._spread(inside, True, self._results, values)
        return found

    def backward(self, at: JaxScope, primals: Sequence[Any], cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The cotangent of each operand, of those of all results."""
        found: list[Tensor | None] = self._spread(
            at, False, self.moving, [*primals, *_chosen(cotangents, self._results)]
        )
        return found

    def _spread(self, at: JaxScope, forward: bool, places: Sequence[bool], values: Sequence[Any]) -> Any:
        if forward not in self._traced:
            self._traced[forward] = self._trace(self._pushed if forward else self._pulled, forward)
        body = self._traced[forward]
        leads = versions.depend(body.jaxpr, body.jaxpr.invars[len(self.variables) :])
        given = iter(zip(as_tensors(at.run(body, values)), leads, strict=True))
        found = (x if depends else None for x, depends in given)
        return [next(found) if floats else None for floats in places]

    def _trace(self, rule: Callable[..., Any], forward: bool) -> Any:
        given = self.variables if forward else self._node.outvars
        moving = _chosen(given, self.moving if forward else self._results)
        body = jax.make_jaxpr(rule)(*([_spec(v) for v in variables] for variables in (self.variables, moving)))
        if any(versions.is_traced(value) for value in body.consts):
            name = JAX.name(self._node)
            raise RefusedError(f"{name}: its rule reads a value that is computed around it: make it an argument")
        JAX.require(body_of(body.jaxpr))
        return body

    def _of_moving(self, primals: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
        """The floating results as a function of the operands that move, and these."""

        def function(*moving: Any) -> list[Any]:
            given = iter(moving)
            operands = [next(given) if moves else x for x, moves in zip(primals, self.moving, strict=True)]
            return _chosen(self._function(*operands), self._results)

        return function, _chosen(primals, self.moving)

    def _pushed(self, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        return jax.jvp(*self._of_moving(primals), list(tangents))[1]  # type: ignore[no-any-return]

    def _pulled(self, primals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        function, moving = self._of_moving(primals)
        return list(jax.vjp(function, *moving)[1](list(cotangents)))


def _is_floating(variable: Any) -> bool:
    return bool(jax.dtypes.issubdtype(variable.aval.dtype, np.floating))


def _may_move(at: JaxScope, value: Any, asks: bool) -> bool:
    """True for a tensor that gradients may lead on from; where ``asks``, only if they lead to what the function was
    given, or into a loop's body."""
    waiting, seen = [value] if isinstance(value, Tensor) else [], set()
    while waiting:
        x = waiting.pop()
        x = x.op.graph.outermost(x)
        if not asks or x in at.given:
            return True
        if x in seen or x.dtype.kind in "biu" or x.op.op.name in STILL:
            continue
        if not x.op.inputs:
            return True
        seen.add(x)
        waiting += x.op.inputs
    return False


def _spec(variable: Any) -> Any:
    return jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype)


def _chosen(values: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    return [value for value, wanted in zip(values, chosen, strict=True) if wanted]


def ruled(at: JaxScope, node: Any, made: Callable[[], Sequence[Any]], *, reverse: bool = False) -> list[Any]:
    """The results of ``made``, with the derivative that JAX has for the node.

    Args:
        reverse: True to have JAX's rule for cotangents alone, else the one for tangents, which is transposed here. In a
            rule for tangents both are JAX's: a function that its own rule applies to tangents, as one that is linear
            may be, is transposed as what it computes.
    """
    rule = JaxRule(at, node)
    values = [at.value(v) for v in rule.variables]
    operands = [x for x in values if isinstance(x, Tensor)]
    if not any(rule.moving):
        return list(made())

    @o.custom_gradient
    def function(*operands: Tensor) -> Any:
        @of_operands
        def pull(now: list[Tensor], *cotangents: Tensor) -> list[Tensor | None]:
            found = rule.backward(at, placed(now), cotangents)
            return [ct for ct, x in zip(found, values) if isinstance(x, Tensor)]

        @of_operands
        def push(now: list[Tensor], *tangents: Tensor) -> list[Tensor | None]:
            given = iter(tangents)
            moved = [next(given) if isinstance(x, Tensor) else _zeros(x) for x in values]
            return rule.forward(at, placed(now), moved)

        results = as_tensors(made())
        if reverse:
            return results, pull
        return results, pull if at.derives else None, push

    def placed(operands: list[Tensor]) -> list[Any]:
        """The values with these tensors in the place of those that the node was declared with."""
        given = iter(operands)
        return [next(given) if isinstance(x, Tensor) else x for x in values]

    function.__name__ = at.dialect.name(node)
    return list(function(*operands))


def ruled_tensor(at: JaxScope, node: Any, made: Callable[[], Tensor]) -> Tensor:
    """The lone result of ``made``, with the derivative that JAX has for the node."""
    (result,) = as_tensors(ruled(at, node, lambda: [made()]))
    return result


def _zeros(x: np.ndarray) -> Tensor:
    return o.zeros(x.shape, dtype=x.dtype)
