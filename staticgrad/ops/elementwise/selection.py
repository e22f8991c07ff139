"""Elements chosen by a condition or by bounds; ``clip`` passes gradients at its bounds."""

from __future__ import annotations

import math

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import DTYPES, TensorType, bool_, is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of
from staticgrad.graph.optable import FUNCTIONS, Case, NoAttributes, Op, Range, public, register
from staticgrad.ops.batch_rules import broadcasting
from staticgrad.ops.declare import ANY, declare, operands
from staticgrad.ops.elementwise.copies import astype
from staticgrad.ops.elementwise.entry import broadcast_types, elementwise, is_number, jvp_of, vjp_of


def _where_type(attrs: NoAttributes, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    if condition.dtype != bool_ or x.dtype != y.dtype:
        raise GraphError(f"where: expected a bool and two operands of one dtype\n  actual   {condition}, {x}, {y}")
    return TensorType(broadcast_types((condition, x, y), "where"), x.dtype)


_WHERE_RULES = (
    None,
    lambda o, t, y, condition, a, b: o.where(condition, t, 0),
    lambda o, t, y, condition, a, b: o.where(condition, 0, t),
)

WHERE = register(
    Op(
        "where",
        "The second operand where the condition holds, else the third.",
        infer=_where_type,
        reference=lambda attrs, condition, x, y: np.where(condition, x, y),
        role="elementwise",
        scalar=lambda b, attrs, condition, x, y: b.select(condition, x, y),
        cheap=True,
        vjp=vjp_of(_WHERE_RULES),
        jvp=jvp_of(_WHERE_RULES),
        dtypes=DTYPES,
        cases=tuple(
            Case(shapes, dtypes=(bool_, None, None))
            for shapes in (
                ((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), ()), ((), (2, 3), (3,)), ((0, 2), (2,), (1,)), ((5,), (), ()),
            )
        ),
        batch=broadcasting,
    )
)  # fmt: skip


@public
def where(condition: TensorLike, x1: TensorLike, x2: TensorLike) -> Tensor:
    """``x1`` where ``condition`` holds, else ``x2``.

    Elementwise, with NumPy's broadcasting and promotion of ``x1`` and ``x2``; a condition that is no bool is compared
    with zero. The branch that is not chosen contributes exactly 0 to gradients, whatever its derivative is there.

    Example:
        >>> x = sg.constant([0.0, 4.0])
        >>> y = sg.where(x > 0, sg.sqrt(x), 0.0)
        >>> sg.Session().run([y, sg.gradients(y, x)])
        [array([0., 2.], dtype=float32), [array([0.  , 0.25], dtype=float32)]]
    """
    graph = graph_of((condition, x1, x2))
    with graph:
        chosen = astype(condition, bool_)
        return graph.add(WHERE, (chosen, *operands("where", x1, x2))).outputs[0]


def replaced(x: Tensor, y: Tensor) -> Tensor:
    """``y``, which depends on nothing of ``x``, as an op of ``x``: the gradient by it is there, and zero."""
    return where(FUNCTIONS.full((), True, dtype=bool_), y, x)


CLIP = elementwise(
    "clip",
    "x, limited to [low, high].",
    lambda b, attrs, x, low, high: b.minimum(b.maximum(x, low), high),
    lambda attrs, x, low, high: np.minimum(np.maximum(x, low), high),
    ANY,
    (
        lambda o, t, y, x, low, high: o.where(o.logical_or(o.less(x, low), o.greater(x, high)), 0, t),
        lambda o, t, y, x, low, high: o.where(o.logical_and(o.less(x, low), o.less_equal(low, high)), t, 0),
        lambda o, t, y, x, low, high: o.where(o.logical_or(o.greater(x, high), o.less(high, low)), t, 0),
    ),
    (
        Case(((3, 4), (), ()), ranges=(Range(-2, 2), Range(-1.2, -1.1), Range(1.1, 1.2)), distinct=True),
        Case(((2, 3, 4), (4,), (3, 1)), ranges=(Range(-2, 2), Range(-1, -0.5), Range(0.5, 1)), distinct=True),
        Case(((0,), (), ()), ranges=(Range(), Range(-1, 0), Range(0, 1))),
    ),
    grad_name=lambda node: f"ClampBackward{1 if all(map(is_number, node.inputs[1:])) else 0}",
    cheap=True,
)


@public
def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """The values limited to [min, max]; None leaves a side open. Where min > max, the result is max.

    Elementwise; ``min`` and ``max`` broadcast against ``x``. The gradient passes at the bounds themselves.

    Example:
        >>> sg.Session().run(sg.clip([-2.0, 0.5, 3.0], 0.0, 1.0))
        array([0. , 0.5, 1. ], dtype=float32)
        >>> sg.Session().run(sg.clip([-2.0, 0.5, 3.0], max=1.0))
        array([-2. ,  0.5,  1. ], dtype=float32)
    """
    bounds = [bound for bound in (min, max) if bound is not None]
    y = operands("clip", x, *bounds)[0]
    if not bounds:
        return y
    low, high = (limit(y.dtype, -1) if min is None else min), (limit(y.dtype, 1) if max is None else max)
    return declare(CLIP, operands("clip", y, low, high))


def limit(dtype: np.dtype, side: int) -> float | int | bool:
    """The least (``side`` -1) or the greatest value of a dtype, infinite of floats."""
    if is_floating(dtype):
        return side * math.inf
    if dtype == bool_:
        return side > 0
    return int(np.iinfo(dtype).max if side > 0 else np.iinfo(dtype).min)
