"""Primitives with bodies: calls, branches, loops, recomputation, functions with derivatives of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.bridges.arrays import as_tensors
from staticgrad.bridges.jaxpr import versions
from staticgrad.bridges.jaxpr.conversion import JaxScope, converts
from staticgrad.bridges.jaxpr.rules import ruled
from staticgrad.bridges.jaxpr.versions import dtype_of_type
from staticgrad.bridges.jaxpr.views import deeper
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.scopes import control_dependencies


def _values(at: JaxScope, node: Any) -> list[Any]:
    return [at.value(v) for v in node.invars]


def _body(node: Any) -> Any:
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    return next(node.params[name] for name in names if name in node.params)


@converts("jit", "pjit", "closed_call", "core_call", "call", "custom_vmap_call", "composite", "jaxpr_call")
def call(at: JaxScope, node: Any) -> list[Any]:
    return at.run(_body(node), _values(at, node))


@converts("remat2", "remat", "checkpoint")
def remat(at: JaxScope, node: Any) -> list[Any]:
    """Tensors that the body reads are handed over, known values are not; all results are tensors."""
    values = _values(at, node)
    operands = [x for x in values if isinstance(x, Tensor)]

    def block(*operands: Tensor) -> list[Tensor]:
        given = iter(operands)
        return as_tensors(at.run(_body(node), [next(given) if isinstance(x, Tensor) else x for x in values]))

    return list(o.checkpoint(block, *operands)) if operands else at.run(_body(node), values)


@converts("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def custom(at: JaxScope, node: Any) -> list[Any]:
    def made() -> list[Any]:
        return at.run(_body(node), _values(at, node))

    if not at.choices.keeps_rules:
        return made()
    return ruled(at, node, made, reverse=node.primitive.name != "custom_jvp_call")


@converts("custom_linear_solve")
def custom_linear_solve(at: JaxScope, node: Any) -> list[Any]:
    """The solution by the function that was given for it; its gradient is a solution of the transposed system."""
    count, jaxprs = node.params["const_lengths"], node.params["jaxprs"]

    def made() -> list[Any]:
        values = _values(at, node)
        start = count.matvec + count.vecmat
        rest = values[start + count.solve + count.transpose_solve :]
        return at.run(jaxprs.solve, [*values[start : start + count.solve], *rest])

    keeps = at.choices.keeps_rules and jaxprs.transpose_solve is not None
    return ruled(at, node, made, reverse=True) if keeps else made()


@converts("optimization_barrier", "pvary", "reduced_vary_cast", "layout_constraint", "sharding_constraint", "copy_to")
def same(at: JaxScope, node: Any) -> list[Any]:
    return _values(at, node)


@converts("device_put", "name", "stage")
def placed(at: JaxScope, node: Any) -> list[Any]:
    return _values(at, node)


@converts(*(name for name in versions.DEFINITIONS if versions.definition_of(name) is not None))
def defined(at: JaxScope, node: Any) -> list[Any]:
    """A primitive as the function of JAX by which JAX defines it."""
    definition = versions.definition_of(at.dialect.name(node))
    assert definition is not None
    return at.run_function(lambda *xs: definition(*xs, **node.params), node)


@converts("error_if")
def error_if(at: JaxScope, node: Any) -> list[Tensor]:
    """The call that raises one of several errors, as an assertion for each; its results are never read."""
    number = at.tensor(node.invars[0])
    messages = versions.messages_of(node) or ()
    with control_dependencies([o.assert_(o.all(number != n), text) for n, text in enumerate(messages)]):
        return [o.identity(o.zeros(at.shape_of(v), dtype=dtype_of_type(v.aval))) for v in node.outvars]


@converts("dce_sink")
def sink(at: JaxScope, node: Any) -> list[Any]:
    return []


@converts("cond")
def cond(at: JaxScope, node: Any) -> list[Any]:
    """The branch of a number, the nearest one that there is."""
    index, *values = _values(at, node)
    branches = node.params["branches"]
    last = len(branches) - 1
    if not isinstance(index, Tensor):
        return at.run(branches[min(max(int(index), 0), last)], values)

    def chosen(number: int) -> Callable[[], list[Tensor]]:
        return lambda: as_tensors(at.run(branches[number], values))

    def among(first: int) -> list[Any]:
        if first == last:
            return chosen(last)()
        return list(o.cond(index <= first, chosen(first), lambda: among(first + 1)))

    return among(0)


@converts("scan")
def scan(at: JaxScope, node: Any) -> list[Any]:
    p, values = node.params, _values(at, node)
    consts, carried = p["num_consts"], p["num_consts"] + p["num_carry"]

    def turn(carry: Sequence[Tensor], rows: Sequence[Tensor] | None) -> tuple[list[Tensor], list[Tensor]]:
        results = as_tensors(at.run(p["jaxpr"], [*values[:consts], *carry, *(rows or ())]))
        return results[: p["num_carry"]], results[p["num_carry"] :]

    init, rows = as_tensors(values[consts:carried]), as_tensors(values[carried:])
    carry, ys = o.scan(turn, init, rows or None, length=at.open.size(p["length"]), reverse=p["reverse"])
    return [*carry, *ys]


@converts("while")
def while_(at: JaxScope, node: Any) -> list[Any]:
    """A condition that is one for each example of a batch lets each example keep its state when it is done."""
    p, values = node.params, _values(at, node)
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def each(state: Sequence[Tensor]) -> Tensor:
        return as_tensors(at.run(p["cond_jaxpr"], [*values[:first], *state]))[0]

    def going(state: Sequence[Tensor]) -> Tensor:
        found = each(state)
        return o.any(found) if found.ndim else found

    def turn(state: Sequence[Tensor]) -> list[Tensor]:
        new, condition = as_tensors(at.run(p["body_jaxpr"], [*values[first:second], *state])), each(state)
        return [o.where(deeper(condition, x.ndim), x, old) for x, old in zip(new, state)] if condition.ndim else new

    return list(o.while_loop(going, turn, as_tensors(values[second:]), max_steps=at.choices.max_steps))


@converts("platform_index")
def platform_index(at: JaxScope, node: Any) -> Any:
    """The number of the first choice that is for CPUs, or for all platforms, which may come after the last."""
    platforms = node.params["platforms"]
    own = (number for number, names in enumerate(platforms) if names is None or "cpu" in names)
    return np.int32(next(own, len(platforms)))
