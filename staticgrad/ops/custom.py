"""``sg.custom_gradient``: a function of tensors with a derivative of the user's own.

Comes in: a function that returns its results and a rule for their cotangents. Goes out: results through which gradients
pass by that rule alone. The node has the function's results (cut off from gradients) and its operands as inputs; the
rule is run by the derivative, like a hook, and may read whatever the function declared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from staticgrad import nest
from staticgrad.errors import GradientError, GraphError
from staticgrad.frozen import frozen
from staticgrad.graph import Tensor
from staticgrad.lifting import graph_of, lift
from staticgrad.optable import FUNCTIONS, Array, Namespace, Op, Primal, public, register
from staticgrad.types import TensorType

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[..., Any]


@frozen
class CustomAttributes:
    """The user's rule, the name of the function it belongs to, and how many of the inputs are its results."""

    rule: Rule
    name: str
    results: int


def _pull_back(o: Namespace, node: Primal[CustomAttributes], *cotangents: Tensor | None) -> Sequence[Tensor | None]:
    attrs = node.attrs
    count = len(node.inputs) - attrs.results
    given = [o.zeros_like(y) if ct is None else ct for y, ct in zip(node.outputs, cotangents, strict=True)]
    made = attrs.rule(*given)
    found = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(found) != count:
        raise GradientError(
            f"the gradient of {attrs.name!r}: expected one for each tensor it is called with: {count},"
            f" actual {len(found)}",
            source=node.outputs[0].source,
        )
    graph = graph_of(node.inputs)
    operands = node.inputs[attrs.results :]
    return [None] * attrs.results + [
        None if g is None else lift(g, graph, x.dtype) for g, x in zip(found, operands, strict=True)
    ]


def _results(attrs: CustomAttributes, *arrays: Array) -> tuple[Array, ...]:
    return arrays[: attrs.results]


def _result_types(attrs: CustomAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    return types[: attrs.results]


CUSTOM_GRADIENT = register(
    Op(
        "custom_gradient",
        "The results of a function, with a rule of the user's for their gradients.",
        infer=_result_types,
        reference=_results,
        expand=lambda o, node: node.inputs[: node.attrs.results],
        vjp=_pull_back,
        moves=True,
        grad_name=lambda node: f"{node.attrs.name}Backward",
        own_rule=True,
    )
)


@public
def custom_gradient(fn: Callable[P, tuple[R, Rule]]) -> Callable[P, R]:
    """Give a function of tensors a derivative of your own.

    ``fn`` declares ops and returns ``(results, rule)``: any nest of tensors, and a function that gets the cotangent of
    each result, in order (zeros where one is not used), and returns the cotangent of each tensor that ``fn`` was called
    with, in order: a list or tuple, or the lone one; None where no gradient flows. Gradients flow to the arguments
    alone, not to other tensors that ``fn`` uses. The rule declares ops as well and may use what ``fn`` made, so it can
    be differentiated again; in forward mode it is transposed.

    Raises:
        GraphError: ``fn`` returns something else (when called).
        GradientError: the rule gives another number of gradients, or one of another shape (when differentiated).

    Source: the interface of ``tf.custom_gradient`` (Abadi et al. 2016).

    >>> import numpy as np
    >>> import staticgrad as sg
    >>> @sg.custom_gradient
    ... def log1pexp(x):
    ...     e = sg.exp(x)
    ...     return sg.log(1 + e), lambda ct: ct * (1 - 1 / (1 + e))
    >>> with sg.Graph() as g:
    ...     x = sg.constant(100.0)
    ...     (dx,) = sg.gradients(log1pexp(x), [x])
    >>> float(sg.Session(g).run(dx))
    1.0
    """
    if not callable(fn):
        raise GraphError(f"custom_gradient: expected a function, actual {fn!r}")

    @functools.wraps(fn)
    def declared(*args: P.args, **kwargs: P.kwargs) -> R:
        name = getattr(fn, "__name__", "function")
        made: Any = fn(*args, **kwargs)
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[1])):
            raise GraphError(f"custom_gradient: {name!r} shall return (results, rule), actual {made!r}")
        results, rule = made
        operands = [x for x in nest.flatten([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        leaves = nest.flatten(results)
        graph = graph_of([*leaves, *operands])
        stopped = [FUNCTIONS.stop_gradient(lift(y, graph)) for y in leaves]
        attrs = CustomAttributes(rule, name, len(stopped))
        packed: R = nest.pack(results, graph.add(CUSTOM_GRADIENT, (*stopped, *operands), attrs).outputs)
        return packed

    return declared
