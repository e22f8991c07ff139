"""Branches: ``cond`` runs one of two bodies.

operands   predicate, captured                           results  results of the branch that ran
branch     captured  ->  results
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from staticgrad.base import nests
from staticgrad.base.depth import one_level
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, is_weak
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.optable import Array, Op, public, register
from staticgrad.graph.scopes import in_body
from staticgrad.ops.batch_rules import by_example
from staticgrad.ops.control.bodies import (
    Bodied,
    Body,
    BodyGraph,
    RunBody,
    close,
    literal,
    predicate_of,
    require_function,
    require_type,
    run_alone,
)

T = TypeVar("T")
Leaf = Tensor | Array | np.generic | bool | int | float  # what a branch may give in the place of a tensor


@frozen
class CondAttributes(Bodied):
    """The branch for true and the one for false."""

    then: Body
    otherwise: Body

    @property
    def bodies(self) -> tuple[Body, ...]:
        return self.then, self.otherwise

    def with_bodies(self, bodies: Sequence[Body]) -> CondAttributes:
        return replace(self, then=bodies[0], otherwise=bodies[1])

    def evaluate(self, inputs: Sequence[Array], run: RunBody) -> list[Array]:
        """The results of the branch that the first operand selects."""
        return list(run(self.then if inputs[0] else self.otherwise, inputs[1:]))


def _cond_types(attrs: CondAttributes, *types: TensorType) -> tuple[TensorType, ...]:
    found = tuple(x.type for x in attrs.then.fetches)
    for expected, x in zip(found, attrs.otherwise.fetches, strict=True):
        require_type(x.type, expected, "cond: the branches differ in a type")
    return found


def _cond(name: str, doc: str, effect: bool) -> Op:
    return register(
        Op(
            name,
            doc,
            infer=_cond_types,
            reference=lambda attrs, *inputs: tuple(attrs.evaluate(inputs, run_alone)),
            effect=effect,
            grad_name="Cond",
            role="control",
            batch=by_example,
        )
    )


COND = _cond("cond", "One of two bodies.", False)
EFFECTFUL_COND = _cond("effectful_cond", "A cond whose branches have effects.", True)


@overload
def cond(pred: Any, then_fn: Callable[[], Leaf], else_fn: Callable[[], Leaf]) -> Tensor: ...
@overload
def cond(pred: Any, then_fn: Callable[[], T], else_fn: Callable[[], T]) -> T: ...
@public
def cond(pred: Any, then_fn: Callable[[], Any], else_fn: Callable[[], Any]) -> Any:
    """``then_fn()`` where ``pred`` holds, else ``else_fn()``; only that branch runs.

    Args:
        pred: a bool of shape ().
        then_fn: gives a nest of tensors; it may use any tensor from outside, and gradients flow to them.
        else_fn: gives a nest of equal structure, shapes and dtypes.

    Raises:
        GraphError: the branches differ, or the predicate is no bool of shape ().

    Example:
        >>> x = sg.placeholder(())
        >>> y = sg.cond(x > 0, lambda: sg.sqrt(x), lambda: -x)
        >>> sess = sg.Session()
        >>> sess.run([y, sg.gradients(y, [x])], {x: 4.0})
        [array(2., dtype=float32), [array(0.25, dtype=float32)]]
        >>> sess.run([y, sg.gradients(y, [x])], {x: -3.0})
        [array(3., dtype=float32), [array(-1., dtype=float32)]]
    """
    require_function("cond: then_fn", then_fn)
    require_function("cond: else_fn", else_fn)
    outer = graph_of((pred,)) if isinstance(pred, (Tensor, Node)) else get_default_graph()
    with outer:
        predicate = predicate_of("cond", outer, lift(bool(pred) if isinstance(pred, np.bool_) else pred, outer))
    graphs = (BodyGraph(outer, what="cond"), BodyGraph(outer, what="cond"))
    answers = []
    for graph, fn in zip(graphs, (then_fn, else_fn), strict=True):
        with one_level("cond"), graph, in_body():
            answers.append(fn())
    results = _branches(graphs, answers)
    captured = list(dict.fromkeys(x for graph in graphs for x in graph.captured))
    bodies = []
    for graph, leaves in zip(graphs, results, strict=True):
        bodies.append(close(graph, [graph.adopt(x, "cond") for x in captured], leaves, "cond"))
    op = EFFECTFUL_COND if any(body.effects for body in bodies) else COND
    node = outer.add(op, [predicate, *captured], CondAttributes(*bodies))
    return nests.pack(answers[0], node.outputs)


def _branches(graphs: Sequence[BodyGraph], answers: Sequence[Any]) -> list[list[Tensor]]:
    """The leaves of both branches, of equal types; numbers and arrays take the dtype of the other branch's tensor."""
    pairs: list[tuple[Any, Any]] = []
    try:
        nests.map(lambda a, b: pairs.append((a, b)), *answers)
        if any(b is None or nests.children(b) is not None for _, b in pairs):
            raise GraphError(f"expected the structure of {answers[0]!r}, actual {answers[1]!r}")
    except GraphError as error:
        raise GraphError(f"cond: the branches differ in structure: {error.message}") from None
    results: list[list[Tensor]] = [[], []]
    for pair in pairs:
        typed = sorted((v for v in pair if hasattr(v, "dtype")), key=lambda v: not isinstance(v, Tensor))
        for graph, value, found in zip(graphs, pair, results, strict=True):
            with graph, in_body():
                fits = typed and (is_weak(value) or isinstance(value, (np.ndarray, np.generic)))
                x = literal("cond: a branch", value, typed[0].dtype) if fits else lift(value, graph)
                found.append(graph.adopt(x, "cond"))
    return results
