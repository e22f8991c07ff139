"""Sizes as values: the op ``shape``, which gives what feeds have bound.

A mean that divides by a size which is not known when it is declared divides by such a value.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.extents import is_open
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Shape, Size, TensorType, float32, int64
from staticgrad.graph.graph import Tensor, get_default_graph
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import FUNCTIONS, Case, Namespace, Op, public, register


@frozen
class ShapeAttributes:
    """The sizes whose values are asked for."""

    sizes: Shape


def _values(o: Namespace, sizes: tuple[int, ...]) -> Tensor:
    """The sizes as a vector: a constant, or of a program for many sizes numbers that it fills in."""
    if not any(map(is_open, sizes)):
        return o.constant(np.array(sizes, np.int64).reshape(len(sizes)))
    values = [o.full((1,), size, dtype=int64) for size in sizes]
    return values[0] if len(values) == 1 else o.concat(values, axis=0)


SHAPE = register(
    Op(
        "shape",
        "Sizes as values, known when they are bound.",
        infer=lambda attrs: TensorType((len(attrs.sizes),), int64),
        reference=lambda attrs: np.array(attrs.sizes, np.int64).reshape(len(attrs.sizes)),
        expand=lambda o, node: [_values(o, node.attrs.sizes)],
        differentiable=False,
        rematerializable=True,
        dtypes=(float32,),
        cases=(Case((), ShapeAttributes((2, 3))), Case((), ShapeAttributes(()))),
    )
)


@public
def shape(x: TensorLike) -> Tensor:
    """The sizes of ``x`` as an int64 vector: a constant where they are declared, else what the feeds bind.

    Example:
        >>> x = sg.placeholder((None, 3))
        >>> sg.Session().run(sg.shape(x), {x: np.zeros((5, 3), np.float32)})
        array([5, 3])
    """
    x = lift(x)
    with graph_of((x,)) as graph:
        if x.type.static:
            return FUNCTIONS.constant(np.array(x.shape, np.int64).reshape(x.ndim))
        return graph.add(SHAPE, (), ShapeAttributes(x.shape)).outputs[0]


@public
def size_value(size: Size, dtype: np.dtype) -> Tensor:
    """A size as a 0-d tensor of the current graph."""
    values = get_default_graph().add(SHAPE, (), ShapeAttributes((size,))).outputs[0]
    return FUNCTIONS.astype(FUNCTIONS.reshape(values, ()), dtype)
