"""``sg.check_gradients``: do the derivatives of some ops agree with finite differences?

Input: a function of tensors, or tensors that are declared already, and values of what they are derived by. Output:
nothing, or a ``GradientError`` with the numbers. Reverse and forward mode are compared with central differences along
random directions, as in the test utilities of HIPS autograd: with weights w and a random direction u,

    <vjp(w), u>  =  <w, jvp(u)>  =  d/dt <w, f(x + t u)>  at t = 0.

The weights are random numbers times 2 + tanh(f(x)), declared as tensors, so that the cotangents depend on the results,
as those of a nonlinear loss do; a rule that differentiates through its cotangent gives itself away. The differences
take their values as constants.

For a second order the same is asked of the gradient that the first order gave, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.types import TensorType, dtype_of, is_floating, sizes
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.lifting import lift
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.ops.sources import placeholder
from staticgrad.runtime.session.session import Session

STEPS = {"float64": 1e-5, "float32": 1e-2}  # of the differences; near the cube root of the dtype's precision
TOLERANCES = {"float64": 1e-5, "float32": 2e-2}
DIRECTIONS = 3


def check_gradients(
    fn_or_outputs: Callable[..., Any] | Any, inputs: Sequence[Any] | Mapping[Tensor, Any], order: int = 2, seed: int = 0
) -> None:
    """Compare derivatives with finite differences; where they agree nothing happens.

    Args:
        fn_or_outputs: a function of tensors that gives tensors (any nest); or such a nest, declared already.
        inputs: for a function its operands, arrays or nests of them; floating ones are taken as float64 and varied,
            others are handed on. For declared tensors a dict of feeds; the floating ones are varied. Of float32 tensors
            only coarse differences can be taken.
        order: up to which order; each costs a derivation of the one before.
        seed: of the random directions.

    Raises:
        GradientError: a derivative disagrees; which, and with which numbers.
        GraphError: nothing floating to derive, or by; operands of a function that are not in a list.

    Example:
        >>> sg.check_gradients(lambda x, y: sg.sin(x) * y, [np.ones((2, 3)), np.ones(3)])
        >>> wrong = sg.custom_gradient(lambda x: (x**2, lambda ct: ct * x))
        >>> sg.check_gradients(wrong, [np.ones(3)])
        Traceback (most recent call last):
            ...
        staticgrad.errors.GradientError: ...
    """
    if callable(fn_or_outputs) and not isinstance(fn_or_outputs, Tensor | Node):
        graph, outputs, feeds = _declared(fn_or_outputs, inputs)
    else:
        graph, outputs, feeds = _copied(fn_or_outputs, inputs)
    ys = [y for y in outputs if is_floating(y.dtype)]
    if not ys or not any(is_floating(x.dtype) for x in feeds):
        raise GraphError("check_gradients: expected floating outputs and inputs, actual none")
    rng = np.random.default_rng(seed)
    with Session(graph) as session:
        for number in range(1, order + 1):
            ys = _check(session, graph, ys, feeds, number, rng)


def _declared(fn: Callable[..., Any], inputs: Any) -> tuple[Graph, list[Tensor], dict[Tensor, Array]]:
    """The function's ops in a graph of their own."""
    if not isinstance(inputs, Sequence):
        name = type(inputs).__name__
        raise GraphError(f"check_gradients: expected a list with a value for each argument, actual {name}")
    graph = Graph()
    feeds: dict[Tensor, Array] = {}

    def operand(value: Any) -> Any:
        array = np.asarray(value)
        if is_floating(array.dtype):
            array = array.astype(np.float64)
        x = placeholder(array.shape, array.dtype, requires_grad=is_floating(array.dtype))
        feeds[x] = array
        return x

    with graph:
        operands = [nests.map(operand, value) for value in inputs]
        outputs = [lift(y, graph) for y in nests.flatten(fn(*operands))]
    return graph, outputs, feeds


def _copied(outputs: Any, inputs: Any) -> tuple[Graph, list[Tensor], dict[Tensor, Array]]:
    """Declared tensors in a graph of their own, so that the user's does not grow."""
    ys = [y.outputs[0] if isinstance(y, Node) and len(y.outputs) == 1 else y for y in nests.flatten(outputs)]
    if not ys or not all(isinstance(y, Tensor) for y in ys) or not isinstance(inputs, Mapping):
        raise GraphError("check_gradients: expected tensors and a dict of feeds, or a function and its operands")
    arrays = {x: np.asarray(value, x.dtype) for x, value in inputs.items()}
    types = {x: TensorType(array.shape, array.dtype) for x, array in arrays.items()}
    region = cut(ys[0].op.graph, ys, types)
    for node in region.graph.nodes:
        if node.op.name == "variable":
            region.graph.variables[node.attrs.key] = node.outputs[0]
    return region.graph, list(region.fetches), dict(zip(region.feeds, arrays.values(), strict=True))


def _check(
    session: Session,
    graph: Graph,
    ys: Sequence[Tensor],
    feeds: Mapping[Tensor, Array],
    order: int,
    rng: np.random.Generator,
) -> list[Tensor]:
    """Check the derivatives of ``ys``; gives the gradient, of which the next order is taken."""
    xs = [x for x in feeds if is_floating(x.dtype)]
    float32 = dtype_of("float32")
    kind = "float32" if any(t.dtype == float32 for t in (*xs, *ys)) else "float64"
    first: list[Tensor] = []
    for _ in range(DIRECTIONS):
        direction = {x: np.asarray(rng.normal(size=feeds[x].shape), x.dtype) for x in xs}
        with graph:
            drawn = [np.asarray(rng.normal(size=_shape(y)), y.dtype) for y in ys]
            weights = [FUNCTIONS.constant(w) * (FUNCTIONS.tanh(y) + 2.0) for w, y in zip(drawn, ys, strict=True)]
            pulled = gradients(list(ys), xs, weights, unconnected_gradients="zero")
            pushed = jvp(list(ys), xs, list(direction.values()))
            along = _sum([FUNCTIONS.sum(w * t) for w, t in zip(weights, pushed, strict=True)])
        found, forward, values = session.run([pulled, along, weights], feeds)
        with graph:
            total = _sum([FUNCTIONS.sum(FUNCTIONS.constant(w) * y) for w, y in zip(values, ys, strict=True)])
        value = session.run(total, feeds)
        reverse = sum(float(np.vdot(g, u)) for g, u in zip(found, direction.values(), strict=True))
        numeric = _difference(session, total, feeds, direction, STEPS[kind])
        for mode, actual in (("reverse", reverse), ("forward", float(forward))):
            _compare(mode, order, numeric, actual, abs(float(value)), TOLERANCES[kind], ys)
        first = first or pulled
    return first


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + (term if term.dtype == total.dtype else FUNCTIONS.astype(term, total.dtype))
    return total


def _shape(y: Tensor) -> tuple[int, ...]:
    if not y.type.static:
        raise GraphError(f"check_gradients: the sizes of {y.name!r} {y.shape} must be known", source=y.source)
    return sizes(y.shape)


def _difference(
    session: Session, total: Tensor, feeds: Mapping[Tensor, Array], direction: Mapping[Tensor, Array], step: float
) -> float:
    """The central difference of ``total`` along ``direction``."""
    values = []
    for sign in (1, -1):
        moved = {x: a + (sign * step * direction[x]).astype(a.dtype) if x in direction else a for x, a in feeds.items()}
        values.append(float(session.run(total, moved)))
    return (values[0] - values[1]) / (2 * step)


def _compare(
    mode: str, order: int, numeric: float, actual: float, value: float, tolerance: float, ys: Sequence[Tensor]
) -> None:
    allowed = tolerance * (max(abs(numeric), abs(actual)) + 0.1 * value + 0.1)
    if not abs(numeric - actual) <= allowed:  # also where one is not a number
        names = ", ".join(repr(y.name) for y in ys[:3])
        raise GradientError(
            f"check_gradients: order {order}, {mode} mode, of {names}: wrong derivative along a random direction\n"
            f"  expected {numeric:.9g} (finite differences)\n"
            f"  actual   {actual:.9g}\n"
            f"  which differ by {abs(numeric - actual):.3g}, more than {allowed:.3g}",
            source=ys[0].source,
        )
