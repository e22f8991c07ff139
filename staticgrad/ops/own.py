"""Ops of a user's own: elementwise ops by an expression, and derivatives by another one.

Input: a function of scalars, traced for some dtypes. Output: the attributes of a node that computes it element by
element, and an ``Op`` that goes by them alone:

    Own        ::= value: expression of (operand, …), derivative: "derived" | "none" | expression of (g, operand, …, y)
    expression ::= a body over scalars of elementwise ops, of constants and of its operands

So a graph that was saved has all of the op but its NumPy reference, and whoever reads it needs no Python function. The
op is composed: compilation puts its expression in its place before anything is fused, so that it costs what the same
ops cost where they are written out. The attributes tell such ops apart, and not their names: no table holds them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.base.errors import GraphError, called_for
from staticgrad.base.extents import is_same
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, broadcast_shapes, float32, is_floating, is_short_float
from staticgrad.graph.graph import Graph, Tensor, get_default_graph, needed_nodes
from staticgrad.graph.lifting import lift
from staticgrad.graph.optable import FUNCTIONS, OPS, Array, Namespace, Op, Primal
from staticgrad.graph.scopes import isolated, no_grad
from staticgrad.ops.batch_rules import broadcasting
from staticgrad.ops.control.bodies import Body, run_alone
from staticgrad.ops.elementwise.copies import of_width
from staticgrad.ops.elementwise.entry import constant_value
from staticgrad.ops.sources import CONSTANT, FULL, PLACEHOLDER, placeholder

DERIVED, NONE = "derived", "none"  # from the expression; not at all
DERIVATIVE = "_derivative"  # ends the name of what a derivative by a rule of the user's adds to kernels


@frozen
class OwnAttributes:
    """The expression of an op of the user's, and that of its gradients by each operand, if it has one."""

    value: Body
    derivative: Body | Literal["derived", "none"]


Reference = Callable[..., Array]  # of arrays, floats among them in float64


def entry(name: str, attrs: OwnAttributes, doc: str = "", reference: Reference | None = None) -> Op:
    """The op of a name that computes what attributes of this kind say; ``reference`` is the expression by default."""
    derivative = attrs.derivative
    by_rule = isinstance(derivative, Body)
    return Op(
        name,
        doc or f"An op of the user's own, {name}.",
        infer=lambda attrs, *types: _result_type(name, attrs, types),
        reference=_interpreted if reference is None else _oracle(reference),
        expand=lambda o, node: (_declared(name, node.attrs.value, node.inputs),),
        batch=broadcasting,
        vjp=_pull_back(name) if by_rule else None,
        jvp=_push_forward(name) if by_rule else None,
        differentiable=derivative != NONE,
        own=True,
    )


def is_taken(name: str) -> bool:
    """True if an op or function of this package has the name."""
    if name in FUNCTIONS:
        return True
    try:
        return OPS[name] is not None
    except KeyError:
        return False


def checked(name: str, attrs: OwnAttributes) -> OwnAttributes:
    """Attributes whose expressions are of the form that the module's docstring gives.

    Raises:
        GraphError: they are not, or the name is taken.
    """
    if not name.isidentifier() or is_taken(name):
        raise GraphError(f"expected an identifier as the name of an op of the user's own, actual {name!r}")
    value, derivative = attrs.value, attrs.derivative
    with called_for(f"the expression of op {name!r}", None):
        _check_expression(value, 1)
    if isinstance(derivative, Body):
        with called_for(f"the derivative of op {name!r}", None):
            _check_expression(derivative, len(value.feeds))
            expected, given = _given_to_derivative(value), [x.dtype for x in derivative.feeds]
            if given != expected or not is_floating(expected[0]):
                raise GraphError("its operands are not those of the expression")
            _check_gradients(value.feeds, derivative.fetches)
    return attrs


# -- tracing ----------------------------------------------------------------------------------------------------------


def value_of(fn: Callable[..., Any], names: Sequence[str], dtypes: Sequence[np.dtype]) -> Body:
    """The expression that a function declares for operands of these names and dtypes.

    Raises:
        GraphError: it is no expression of scalars.
    """
    graph, feeds, made = _traced(fn, names, dtypes)
    return _finished(graph, feeds, [_scalar(graph, made)])


def derivative_of(fn: Callable[..., Any], names: Sequence[str], value: Body) -> Body:
    """The expression of the gradient by each operand; zero for one that has none.

    Raises:
        GraphError: it is no expression of scalars, or not one for each operand.
    """
    graph, feeds, made = _traced(fn, ("g", *names, "result"), _given_to_derivative(value))
    listed = list(made) if isinstance(made, (tuple, list)) else [made]
    if len(listed) != len(names):
        raise GraphError(f"expected a gradient for each operand: {len(names)}, actual {len(listed)}")
    gradients = []
    with graph, isolated():
        for g, x in zip(listed, value.feeds, strict=True):
            none = g is None or not is_floating(x.dtype)
            gradients.append(FUNCTIONS.constant(0, x.dtype) if none else of_width(_scalar(graph, g, x.dtype), x.dtype))
    _check_gradients(value.feeds, gradients)
    return _finished(graph, feeds, gradients)


def _given_to_derivative(value: Body) -> list[np.dtype]:
    """The dtypes of the cotangent, of the operands and of the result."""
    result = value.fetches[0].dtype
    return [result, *(x.dtype for x in value.feeds), result]


def _traced(
    fn: Callable[..., Any], names: Sequence[str], dtypes: Sequence[np.dtype]
) -> tuple[Graph, tuple[Tensor, ...], Any]:
    """A graph with scalar operands of these names and dtypes, these, and what a function makes of them in there."""
    graph = Graph()
    with graph, isolated():
        feeds = tuple(placeholder((), dtype, name=x) for x, dtype in zip(names, dtypes, strict=True))
        return graph, feeds, fn(*feeds)


def _scalar(graph: Graph, made: Any, dtype: np.dtype | None = None) -> Tensor:
    x = lift(made, graph, dtype)
    if not graph.holds(x):
        raise GraphError(f"{x!r} is neither an operand nor made of operands and constants", source=x.source)
    if x.shape != ():
        raise GraphError(f"expected a scalar made of scalars, actual {x!r}", source=x.source)
    return x


def _check_gradients(operands: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    for x, g in zip(operands, gradients, strict=True):
        if g.dtype != x.dtype:
            raise GraphError(f"the gradient of {x.name!r}: expected {x.dtype.name}, actual {g.dtype.name}")


def _finished(graph: Graph, feeds: tuple[Tensor, ...], fetches: Sequence[Tensor]) -> Body:
    """The expression without what it does not need."""
    needed = {*needed_nodes(fetches, ()), *(x.op for x in feeds)}
    graph.nodes[:] = [node for node in graph.nodes if node in needed]
    graph.finalize()
    body = Body(graph, feeds, tuple(fetches))
    _check_expression(body, len(fetches))
    return body


def _check_expression(body: Body, results: int) -> None:
    operands = {x.op for x in body.feeds}
    for node in body.graph.nodes:
        op = node.op
        is_operand = op is PLACEHOLDER and node in operands
        elementwise = op.elementwise or op.batch is broadcasting or op is CONSTANT or op is FULL
        if not (is_operand or elementwise) or op.draws or node.control:
            raise GraphError(
                f"{op.name!r} is used; expected elementwise functions of the operands and of constants alone",
                source=node.source,
            )
        if any(y.shape != () for y in node.outputs):
            raise GraphError(f"expected scalars, actual {node.outputs[0]!r}", source=node.source)
    if len(body.fetches) != results or body.effects or not operands:
        raise GraphError(f"expected {results} results of one operand or more, actual {len(body.fetches)}")


# -- the entry's functions --------------------------------------------------------------------------------------------


def computed_in(dtype: np.dtype) -> np.dtype:
    """The dtype for which an expression is traced: float32 for short floats."""
    return float32 if is_short_float(dtype) else dtype


def _result_type(name: str, attrs: OwnAttributes, types: Sequence[TensorType]) -> TensorType:
    expected = [x.dtype for x in attrs.value.feeds]
    if [computed_in(t.dtype) for t in types] != expected:
        listed, wanted = ", ".join(map(str, types)), ", ".join(d.name for d in expected)
        raise GraphError(f"{name}: expected operands of {wanted}\n  actual   {listed}")
    dtype = attrs.value.fetches[0].dtype
    floats = {t.dtype for t in types if is_floating(t.dtype)}
    if dtype == float32 and len(floats) == 1 and is_short_float(only := floats.pop()):
        dtype = only  # to which the result is rounded
    return TensorType(broadcast_shapes([t.shape for t in types], name), dtype)


def _inlined(name: str, body: Body, operands: Sequence[Tensor], fetches: Iterable[Tensor], part: str) -> list[Tensor]:
    """Results of an expression, declared in the current graph over operands that broadcast."""
    graph = get_default_graph()
    fetches = list(fetches)
    needed, results = needed_nodes(fetches, ()), {y.op for y in fetches}
    known = dict(zip(body.feeds, operands, strict=True))
    for node in body.graph.nodes:
        if node in needed and node.op is not PLACEHOLDER:
            called = name if node in results else f"{name}.{node.op.name}"
            with no_grad() if node.blocked else contextlib.nullcontext():
                new = graph.add(node.op, [known[x] for x in node.inputs], node.attrs, name=called)
            new.part = part
            known.update(zip(node.outputs, new.outputs, strict=True))
    return [known[y] for y in fetches]


def _declared(name: str, value: Body, operands: Sequence[Tensor]) -> Tensor:
    (y,) = _inlined(name, value, operands, value.fetches, name)
    shape = broadcast_shapes([x.shape for x in operands], name)  # also of operands that it does not use
    return y if is_same(y.shape, shape) else FUNCTIONS.broadcast_to(y, shape)


def _interpreted(attrs: OwnAttributes, *xs: Array) -> Array:
    """The value of the expression by the references of its ops."""
    graph = Graph()
    with graph, isolated():
        feeds = tuple(placeholder(x.shape, x.dtype) for x in xs)
        y = _declared("value", attrs.value, feeds)
    return np.asarray(run_alone(Body(graph, feeds, (y,)), xs)[0])


def _oracle(reference: Reference) -> Callable[..., Array]:
    """A NumPy function of the user's: of floats it is computed in float64 and rounded once."""

    def evaluate(attrs: OwnAttributes, *xs: Array) -> Array:
        dtype, shape = attrs.value.fetches[0].dtype, np.broadcast_shapes(*(x.shape for x in xs))
        values = [x.astype(np.float64) if is_floating(x.dtype) else x for x in xs]
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(reference(*values)).astype(dtype), shape)

    return evaluate


def _gradients(name: str, node: Primal[OwnAttributes], g: Tensor, wanted: Sequence[int]) -> list[Tensor | None]:
    """The gradients of the operands with numbers in ``wanted`` for the cotangent ``g``; None for zero."""
    rule = node.attrs.derivative
    assert isinstance(rule, Body)
    varying = [rule.fetches[i] for i in wanted if not _is_zero(rule.fetches[i])]
    operands = (g, *node.inputs, node.outputs[0])
    found = iter(_inlined(name + DERIVATIVE, rule, operands, varying, name + DERIVATIVE))
    return [None if _is_zero(rule.fetches[i]) else next(found) for i in wanted]


def _is_zero(x: Tensor) -> bool:
    value = constant_value(x)
    return value is not None and not value.any()


def _pull_back(name: str) -> Callable[..., Sequence[Tensor | None]]:
    def vjp(o: Namespace, node: Primal[OwnAttributes], ct: Tensor | None) -> Sequence[Tensor | None]:
        result: list[Tensor | None] = [None] * len(node.inputs)
        wanted = [i for i, x in enumerate(node.inputs) if node.wanted[i] and is_floating(x.dtype)]
        if ct is not None:
            for i, pulled in zip(wanted, _gradients(name, node, ct, wanted), strict=True):
                result[i] = None if pulled is None else o.unbroadcast(_whole(pulled, node), node.inputs[i].shape)
        return result

    return vjp


def _push_forward(name: str) -> Callable[..., Sequence[Tensor | None]]:
    def jvp(o: Namespace, node: Primal[OwnAttributes], *tangents: Tensor | None) -> Sequence[Tensor | None]:
        pushed = [_gradients(name, node, t, [i])[0] for i, t in enumerate(tangents) if t is not None]
        terms = [term for term in pushed if term is not None]
        if not terms:
            return (None,)
        y = node.outputs[0]
        total = of_width(terms[0], y.dtype)
        for term in terms[1:]:
            total = o.add(total, of_width(term, y.dtype))
        return (_whole(total, node),)

    return jvp


def _whole(x: Tensor, node: Primal[Any]) -> Tensor:
    """A value for each element of the result."""
    shape = node.outputs[0].shape
    return x if is_same(x.shape, shape) else FUNCTIONS.broadcast_to(x, shape)
