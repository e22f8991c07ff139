"""``sg.custom_gradient``: a function of tensors with a derivative of the user's own.

Input: a function that returns its results and a rule for their cotangents, for the tangents of its operands, or for
both. Output: results through which gradients pass by these rules alone. The node has the function's results (cut off
from gradients) and its operands as inputs; a rule is run by the derivative, like a hook, and may read whatever the
function declared. The function's own results it reads as those of the node, so that they are derived by the rule too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from staticgrad.base import nests
from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GradientError, GraphError, called_for
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Array, BatchedNode, Namespace, Op, Primal, public, register
from staticgrad.graph.scopes import in_rule
from staticgrad.ops.batch_rules import again, each
from staticgrad.ops.elementwise.copies import of_width

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[..., Any]
MOST_RULES = 40  # that run within each other's derivatives
OwnRule = Callable[[Primal["CustomAttributes"], Sequence[Tensor]], list[Any]]  # of the node, and of co- or tangents


@frozen
class CustomAttributes:
    """The user's rules for cotangents and tangents, as far as there are, the name of the function that they belong to,
    and how many of the inputs are its results. A saved graph has the results, and no rules."""

    rule: OwnRule | None
    forward: OwnRule | None
    name: str
    results: int

    def without_functions(self) -> CustomAttributes:
        return replace(self, rule=None, forward=None)


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def of_operands(rule: Rule) -> Rule:
    """Mark a rule that is called with the node's operands, in a list, before the co- or tangents. What it reads of them
    there it reads wherever the node is derived again, also where the body that its function was declared in is
    complete."""
    rule.takes_operands = True  # type: ignore[attr-defined]
    return rule


def of_node(rule: Rule) -> Rule:
    """Mark a rule that is called with the node's results and its operands, two lists, before the co- or tangents: as
    ``of_operands``, for a rule that also reads the results."""
    rule.takes_results = True  # type: ignore[attr-defined]
    return of_operands(rule)


def _reading_own(rule: Rule, leaves: Sequence[Tensor | None], operands: Sequence[Tensor], name: str) -> OwnRule:
    """A rule of the user's that reads results of the node where it reads ``leaves``, those of its function. In what it
    derives, the ``operands`` and what it is given are independent variables, though they may depend on each other."""
    takes_operands, takes_results = getattr(rule, "takes_operands", False), getattr(rule, "takes_results", False)

    def own(node: Primal[CustomAttributes], given: Sequence[Tensor]) -> list[Any]:
        graph = get_default_graph()
        start = len(graph.nodes)
        now = list(node.inputs[node.attrs.results :])
        read_of_node = [*([list(node.outputs)] if takes_results else ()), *([now] if takes_operands else ())]
        with in_rule((*(now if takes_operands else operands), *given)) as depth:
            if depth > MOST_RULES:
                raise GraphError(
                    f"custom_gradient: the rule of {name!r} was entered while {MOST_RULES} rules run, each in what the"
                    " one before it derives: a rule that derives its own function needs its own rule, without end"
                )
            made = _listed(rule(*read_of_node, *given))
        known = {x: y for x, y in zip(leaves, node.outputs, strict=True) if x is not None}

        def read(x: Tensor) -> Tensor:
            return known.get(graph.outermost(x), x)

        for new in graph.nodes[start:]:
            new.inputs = tuple([read(x) for x in new.inputs])
        return [read(x) if isinstance(x, Tensor) else x for x in made]

    return own


def _called(
    rule: OwnRule, what: str, node: Primal[CustomAttributes], given: Sequence[Tensor], like: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    """The results of a rule that is called with cotangents (tangents): one for each of ``like``, or None."""
    source, graph = node.outputs[0].source, graph_of(node.inputs)
    start = len(graph.nodes)
    with called_for(f"the {what} of {node.attrs.name!r}", source):
        found = rule(node, given)
    for made in graph.nodes[start:]:
        if made.op is ONCE:  # of the operands it may know values alone, through which no derivative passes
            made.inputs = (*made.inputs, *node.inputs[node.attrs.results :])
    if len(found) != len(like):
        each = "tensor it is called with" if what == "gradient" else "result"
        raise GradientError(
            f"the {what} of {node.attrs.name!r}: expected one for each {each}: {len(like)}, actual {len(found)}",
            source=source,
        )
    lifted = [None if g is None else lift(g, graph, x.dtype) for g, x in zip(found, like, strict=True)]
    return [g if g is None else of_width(g, x.dtype) for g, x in zip(lifted, like, strict=True)]


def _saved(rule: OwnRule | None, node: Primal[CustomAttributes]) -> OwnRule:
    if rule is None:
        raise GradientError(
            f"the derivative of {node.attrs.name!r} is a Python function, which is not saved with a graph: derive it"
            " before it is saved",
            source=node.outputs[0].source,
        )
    return rule


def _pull_back(o: Namespace, node: Primal[CustomAttributes], *cotangents: Tensor | None) -> Sequence[Tensor | None]:
    attrs = node.attrs
    rule = _saved(attrs.rule, node)
    given = [o.zeros_like(y) if ct is None else ct for y, ct in zip(node.outputs, cotangents, strict=True)]
    found = _called(rule, "gradient", node, given, node.inputs[attrs.results :])
    return [*[None] * attrs.results, *found]


def _push_forward(o: Namespace, node: Primal[CustomAttributes], *tangents: Tensor | None) -> Sequence[Tensor | None]:
    attrs = node.attrs
    forward = _saved(attrs.forward, node)
    operands = zip(node.inputs[attrs.results :], tangents[attrs.results :], strict=True)
    given = [o.zeros_like(x) if t is None else t for x, t in operands]
    return _called(forward, "tangent", node, given, node.outputs)


def _results(attrs: CustomAttributes, *arrays: Array) -> tuple[Array, ...]:
    return arrays[: attrs.results]


def _result_types(attrs: CustomAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    return types[: attrs.results]


CUSTOM_GRADIENT, CUSTOM_TANGENT, CUSTOM_DERIVATIVES = (
    register(
        Op(
            name,
            f"The results of a function, with {rules} of the user's.",
            infer=_result_types,
            reference=_results,
            expand=lambda o, node: node.inputs[: node.attrs.results],
            vjp=vjp,
            jvp=jvp,
            moves=True,
            grad_name=lambda node: f"{node.attrs.name}Backward",
            own_rule=True,
            values=lambda attrs: attrs.results,
        )
    )
    for name, rules, vjp, jvp in (
        ("custom_gradient", "a rule for their gradients", _pull_back, None),
        ("custom_tangent", "a rule for their tangents", None, _push_forward),
        ("custom_derivatives", "rules for their gradients and tangents", _pull_back, _push_forward),
    )
)


@public
def custom_gradient(fn: Callable[P, tuple[R, Rule]] | Callable[P, tuple[R, Rule | None, Rule]]) -> Callable[P, R]:
    """Give a function of tensors a derivative of your own.

    ``fn`` declares ops and returns ``(results, rule)``: any nest of tensors, and a function that gets the cotangent of
    each result, in order (zeros where one is not used), and returns the cotangent of each tensor that ``fn`` was called
    with, in order: a list or tuple, or the lone one; None where no gradient flows, so that the tensor is unconnected. A
    cotangent of another float width is cast to the tensor's dtype. Gradients flow to the arguments alone, not to other
    tensors that ``fn`` uses. The rule declares ops as well and may use what ``fn`` made, so it can be differentiated
    again (through the results of ``fn`` by the rule itself); in forward mode it is transposed. To ``sg.gradients`` and
    ``sg.jvp`` in a rule, the tensors that ``fn`` was called with and those that the rule gets are independent
    variables, so that a rule may be ``lambda ct: sg.gradients(sg.sum(y(x) * ct), x)``.

    ``fn`` may return ``(results, rule, tangent_rule)`` instead: a function that gets the tangent of each tensor that
    ``fn`` was called with, in order (zeros for those that do not vary), and returns the tangent of each result, None
    for zero. With None for ``rule`` the tangent rule is transposed in reverse mode.

    Ops of a rule that do not depend on a cotangent are computed with the forward, and a tape keeps what the backward
    reads of them. Declare them after the cotangent, ``with sg.control_dependencies([ct]):`` in the rule, to have them
    computed in the backward from what they read; or call the function by ``sg.checkpoint``.

    Raises:
        GraphError: ``fn`` returns something else (when called), or a rule derives ``fn`` by itself again, without end.
        GradientError: a rule gives another number of gradients, one of another shape, or one that is not floating
            (when differentiated).

    Source: the interface of ``tf.custom_gradient`` (Abadi et al. 2016).

    Example:
        >>> @sg.custom_gradient
        ... def log1pexp(x):
        ...     e = sg.exp(x)
        ...     return sg.log(1 + e), lambda ct: ct * (1 - 1 / (1 + e))
        >>> x = sg.constant(100.0)
        >>> (dx,) = sg.gradients(log1pexp(x), [x])
        >>> sg.Session().run(dx)
        array(1., dtype=float32)

        Of 1000 rows of 2 numbers the rows are kept, and not 1000 rows of 50 probabilities:

        >>> @sg.custom_gradient
        ... def log_total(x, w):
        ...     def rule(ct):
        ...         with sg.control_dependencies([ct]):
        ...             p = sg.nn.softmax(x @ w, 1)
        ...         return ct[:, None] * p @ w.T, x.T @ (ct[:, None] * p)
        ...     return sg.logsumexp(x @ w, 1), rule
        >>> x, w = sg.placeholder((1000, 2)), sg.Variable(np.ones((2, 50), np.float32))
        >>> loss = sg.sum(log_total(x, w))
        >>> sg.Session().forward(loss, {x: np.ones((1000, 2), np.float32)}).memory.saved_bytes
        8000
    """
    if not callable(fn):
        raise GraphError(f"custom_gradient: expected a function, actual {fn!r}")

    @boundary
    @functools.wraps(fn)
    def declared(*args: P.args, **kwargs: P.kwargs) -> R:
        operands = [x for x in nests.flatten([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        first = len(graph_of(operands).nodes)
        name = getattr(fn, "__name__", "function")
        results, *rules = _returned(name, fn(*args, **kwargs))
        packed: R = nests.pack(results, _declared_results(nests.flatten(results), operands, first, rules, name))
        return packed

    return declared


def _returned(name: str, made: Any) -> tuple[Any, Rule | None, Rule | None]:
    """The three parts of what a function returned: its results, the rule and the tangent rule."""
    if isinstance(made, tuple) and len(made) in (2, 3):
        results, rule, *more = made
        forward = more[0] if more else None
        if callable(forward if rule is None else rule) and (forward is None or callable(forward)):
            return results, rule, forward
    raise GraphError(
        f"custom_gradient: {name!r} shall return (results, rule) or (results, rule, tangent_rule), actual {made!r}"
    )


def _declared_results(
    leaves: Sequence[Any], operands: Sequence[Tensor], first: int, rules: Sequence[Rule | None], name: str
) -> Sequence[Tensor]:
    """The results of a function, which declared the nodes of the graph from number ``first`` on, with its rules."""
    graph = graph_of([*leaves, *operands])
    tensors = [lift(y, graph) for y in leaves]
    given = set(operands)
    made = [graph.holds(y) and y.op.serial >= first and y not in given for y in tensors]
    own = [y if new else None for y, new in zip(tensors, made, strict=True)]  # others are read as they are
    rule, forward = (None if r is None else _reading_own(r, own, operands, name) for r in rules)
    op = CUSTOM_TANGENT if rule is None else CUSTOM_GRADIENT if forward is None else CUSTOM_DERIVATIVES
    stopped = [FUNCTIONS.stop_gradient(y) for y in tensors]
    attrs = CustomAttributes(rule, forward, name, len(stopped))
    return graph.add(op, (*stopped, *operands), attrs).outputs


# -- rules that are derived once ------------------------------------------------------------------------------------


@frozen
class OnceAttributes:
    """The name of the rule whose result it is."""

    name: str


def _passed(o: Namespace, node: Primal[OnceAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    _refuse_if(any(node.wanted[1:]), node)
    return _marked(node, ct), *[None] * (len(node.inputs) - 1)


def _pushed(
    o: Namespace, node: Primal[OnceAttributes], t: Tensor | None, *others: Tensor | None
) -> Sequence[Tensor | None]:
    _refuse_if(any(other is not None for other in others), node)
    return (None if t is None else _marked(node, t),)


def _marked(node: Primal[OnceAttributes], x: Tensor) -> Tensor:
    """A co- or tangent that has passed, which may not be derived by the same tensors either."""
    return x.graph.add(ONCE, (x, *node.inputs[1:]), node.attrs).outputs[0]


def _refuse_if(twice: bool, node: Primal[OnceAttributes]) -> None:
    if twice:
        raise GradientError(
            f"trying to differentiate twice a function that was marked with once_differentiable: {node.attrs.name!r}",
            source=node.outputs[0].source,
        )


def _once_over_examples(o: Namespace, node: BatchedNode[OnceAttributes]) -> Sequence[Tensor]:
    return again(node, (each(o, node, 0), *node.inputs[1:]), node.attrs)


ONCE = register(
    Op(
        "once",
        "A result of a rule that says of itself that it cannot be derived by its other operands, which it read.",
        infer=lambda attrs, x, *read: x,
        reference=lambda attrs, x, *read: x,
        expand=lambda o, node: node.inputs[:1],
        vjp=_passed,
        jvp=_pushed,
        moves=True,
        grad_name="Error",
        own_rule=True,
        values=lambda attrs: 1,
        batch=_once_over_examples,
    )
)


@public
def once_differentiable(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a rule of ``sg.custom_gradient`` whose ops shall not be derived: a second derivative is a GradientError.

    Without it a rule is derived as all ops are, which is wrong where its ops do not say what it computes. Only what it
    is called with it may be derived by, since in that it is linear: so a rule is transposed for the other mode.

    Raises:
        GraphError: it is no function.

    Example:
        >>> @sg.custom_gradient
        ... def rounded(x):
        ...     return sg.round(x), sg.once_differentiable(lambda ct: ct)
        >>> x = sg.constant([0.4, 1.6])
        >>> (dx,) = sg.gradients(rounded(x) ** 2, [x])
        >>> sg.Session().run(dx)
        array([0., 4.], dtype=float32)
    """
    if not callable(rule):
        raise GraphError(f"once_differentiable: expected a function, actual {rule!r}")
    name = getattr(rule, "__name__", "rule")

    @functools.wraps(rule)
    def marked(*given: Tensor) -> list[Any]:
        graph = graph_of(given)
        first = len(graph.nodes)
        found = _listed(rule(*given))
        tensors = [x for node in graph.nodes[first:] for x in node.inputs] + [g for g in found if isinstance(g, Tensor)]
        read = {x: None for x in tensors if x.op.serial < first and x not in set(given)}
        attrs = OnceAttributes(name)  # numbers and arrays stay: they depend on nothing
        return [graph.add(ONCE, (g, *read), attrs).outputs[0] if isinstance(g, Tensor) else g for g in found]

    return marked
