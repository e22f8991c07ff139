"""``surrogate``: a value that has been computed one way, derived as if it had been computed another way.

Input: a tensor, and another one of its type that is equal to it but for rounding. Output: the first one's values. All
derivatives, of both modes and any order, are those of the second one; a program without derivatives does not compute
it. So an iteration, or steps whose length was found by trial, need not be derived themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.types import TensorType
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.optable import NO_ATTRIBUTES, BatchedNode, Namespace, NoAttributes, Op, Primal, register
from staticgrad.ops.batch_rules import every
from staticgrad.ops.control.bodies import require_type


def _surrogate_type(attrs: NoAttributes, value: TensorType, derived: TensorType) -> TensorType:
    require_type(derived, value, "surrogate: a value and what stands for it in derivatives differ")
    return value


def _over_examples(o: Namespace, node: BatchedNode[NoAttributes]) -> Sequence[Tensor]:
    return get_default_graph().add(SURROGATE, every(o, node), node.attrs).outputs


def _pull_back(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    return None, ct


def _push_forward(
    o: Namespace, node: Primal[NoAttributes], t: Tensor | None, derived: Tensor | None
) -> Sequence[Tensor | None]:
    return (derived,)


SURROGATE = register(
    Op(
        "surrogate",
        "The values of the first operand, with the derivatives of the second.",
        infer=_surrogate_type,
        reference=lambda attrs, value, derived: value,
        expand=lambda o, node: node.inputs[:1],
        vjp=_pull_back,
        jvp=_push_forward,
        batch=_over_examples,
        moves=True,
        own_rule=True,
        values=lambda attrs: 1,
        grad_name="Surrogate",
    )
)


def surrogate(value: Tensor, derived: Tensor) -> Tensor:
    """``value``, whose derivatives are those of ``derived``."""
    graph = get_default_graph()
    return graph.add(SURROGATE, (value, derived), NO_ATTRIBUTES).outputs[0]
