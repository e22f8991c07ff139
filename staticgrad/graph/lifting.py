"""Operands from values: what can be an operand, in which graph it becomes a constant, and in which dtype.

Promotion is NumPy 2's (NEP 50): Python scalars are weak, they take the dtype of the tensors that they meet; so do lists
of them that meet floats.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from staticgrad.base.errors import GraphError, PromotionWarning, warn
from staticgrad.base.extents import is_open
from staticgrad.base.types import (
    Dim,
    declared_array,
    dtype_of,
    float64,
    holds_numbers,
    int64,
    is_floating,
    is_integer,
    is_weak,
    scalar_dtype,
)
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph, writable
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.graph.scopes import uncontrolled

TensorLike = Tensor | Node | Array | np.generic | bool | int | float | list[Any] | tuple[Any, ...] | Dim


def graph_of(values: Sequence[object]) -> Graph:
    """The graph of the first tensor among ``values``, else the current one.

    Raises:
        GraphError: that tensor belongs to a body that is complete.
    """
    for value in values:
        if isinstance(value, Tensor):
            graph = writable(value.op.graph)
            if graph.finalized:
                graph.check_readable(value)
            return graph
        if isinstance(value, Node):
            return writable(value.graph)
    return get_default_graph()


def lift(value: object, graph: Graph | None = None, dtype: np.dtype | None = None) -> Tensor:
    """A tensor for anything that can be an operand.

    Args:
        graph: where an array becomes a constant; the current one by default.
        dtype: what Python scalars, lists of them and sizes become; by default float32, int64 or bool. Tensors and
            arrays keep theirs.

    Raises:
        GraphError: the value is no number, array or tensor.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Node):
        if len(value.outputs) != 1:
            raise GraphError(f"the op {value.name!r} has no single result that could be used as a tensor")
        return value.outputs[0]
    if isinstance(value, Dim) or is_open(value):
        return FUNCTIONS.size_value(value, dtype or int64)
    if is_weak(value):
        return FUNCTIONS.constant(value, dtype or scalar_dtype(value))
    if isinstance(value, np.ndarray):
        graph = writable(graph or get_default_graph())
        known = graph._lifted.get(id(value))
        if known is None or known[0] is not value:
            with graph, uncontrolled():
                known = (value, FUNCTIONS.constant(value))
            graph._lifted[id(value)] = known
        return known[1]
    if isinstance(value, (list, tuple)):
        return FUNCTIONS.constant(value, dtype if dtype is not None and holds_numbers(value) else None)
    if isinstance(value, np.generic):
        return FUNCTIONS.constant(value)
    raise GraphError(f"{value!r} cannot be used as a tensor{instead(value)}")


def lift_floats(value: object, graph: Graph | None, dtype: np.dtype) -> Tensor:
    """As ``lift``, with a dtype for Python floats alone and for lists that have some: ints and bools keep theirs."""
    floats = holds_numbers(value) and is_floating(declared_array(value).dtype)
    return lift(value, graph, dtype if floats else None)


def instead(value: object) -> str:
    """For messages: what to write where ``value`` was given in the place of a tensor; "" where nothing is known."""
    if value is None:
        return (
            ": a gradient is None where no y depends on the x, and sg.gradients(ys, xs, unconnected_gradients='zero')"
            " gives zeros there"
        )
    if hasattr(value, "parameters"):
        return ": net.parameters() has the variables of a module, and net(x) declares its result"
    if callable(value):
        name = getattr(value, "__name__", "")
        return f": call it, {name if name.isidentifier() else 'fn'}(x) declares a tensor"
    return ""


def lift_all(values: Sequence[object], *, what: str = "op", quiet: bool = False) -> tuple[Tensor, ...]:
    """Lift operands that shall have one dtype by NumPy's promotion, casting those that have another.

    Args:
        what: the function that is called, for messages.
        quiet: do not warn where a tensor of fewer bits becomes float64: the function's result does not.
    """
    first = values[0]
    if isinstance(first, Tensor) and all(isinstance(v, Tensor) and v.dtype is first.dtype for v in values):
        return cast("tuple[Tensor, ...]", tuple(values))
    graph = graph_of(values)
    kinds = {v.dtype if isinstance(v, Tensor) else None for v in values if not is_weak(v)}
    with graph:
        if len(kinds) == 1 and (only := kinds.pop()) is not None and is_floating(only):  # Python numbers take it
            return tuple([lift(v, graph, only) for v in values])
        later = [scalar_dtype(v) is not None or holds_numbers(v) for v in values]  # once it is known to which dtype
        lifted = [v if late else lift(v, graph) for v, late in zip(values, later, strict=True)]
        pairs = [(v, x) for v, x in zip(values, lifted, strict=True) if isinstance(x, Tensor)]
        dtype = _common_dtype([x.dtype for _, x in pairs], list(itertools.compress(values, later)), what)
        if dtype == float64 and not quiet:
            _warn_of_promotion(what, pairs)
        xs = [lift(x, graph, dtype) for x in lifted]
        return tuple([x if x.dtype == dtype else FUNCTIONS.astype(x, dtype) for x in xs])


def _common_dtype(strong: list[np.dtype], numbers: Sequence[object], what: str) -> np.dtype:
    """The dtype of operands with these dtypes and of Python numbers, of which those in lists are weak where they meet
    floats only."""
    lists = [v for v in numbers if isinstance(v, (list, tuple))]
    if lists:
        met = promote(strong, [], what) if strong else None
        floats = met is not None and is_floating(met)
        strong = [*strong, *([] if floats else [declared_array(v).dtype for v in lists])]
    return promote(strong, [v for v in numbers if not isinstance(v, (list, tuple))], what)


def _warn_of_promotion(what: str, pairs: Sequence[tuple[object, Tensor]]) -> None:
    """Warn where operands become float64 that the user hardly wants so: a tensor of fewer bits meets float64, or
    integers of 32 or 64 bits meet such a float. ``astype(sg.float64)``, of either of the two, says that it is meant.

    Args:
        pairs: each operand but Python numbers, and the tensor that it is.
    """
    short = [(v, x) for v, x in pairs if is_floating(x.dtype) and x.dtype != float64]
    wide = [(v, x) for v, x in pairs if x.dtype == float64]
    if wide:
        short = [(v, x) for v, x in short if isinstance(v, (Tensor, Node))]
        wide = [(v, x) for v, x in wide if x.op.op.name != "astype"]
    else:
        wide = [(v, x) for v, x in pairs if is_integer(x.dtype) and x.dtype.itemsize >= 4]
    if not (short and wide):
        return
    (value, culprit), narrow = wide[0], short[0][1].dtype.name
    remedy = f".astype(sg.{narrow}) of the {_noun(value)}"
    if isinstance(value, (list, tuple)):
        remedy = f"np.asarray(the {_noun(value)}, np.{narrow})"
    elif culprit.ndim == 0 and not isinstance(value, (Tensor, Node)):
        remedy = f"a Python {'int' if is_integer(culprit.dtype) else 'float'}"
    warn(
        PromotionWarning,
        f"{what}: {narrow} ({_noun(short[0][0])}) and {culprit.dtype.name} ({_noun(value)}) are raised to float64:"
        f" {remedy} keeps {narrow}, and .astype(sg.float64) of either says that float64 is meant",
    )


def _noun(value: object) -> str:
    """The noun for an operand in a message."""
    if isinstance(value, (Tensor, Node)):
        return "tensor"
    if isinstance(value, (list, tuple)):
        return type(value).__name__
    return "NumPy array" if getattr(value, "ndim", 0) else "NumPy scalar"


def promote(strong: list[np.dtype], weak: Sequence[object], what: str) -> np.dtype:
    """NumPy 2's promotion (NEP 50); float factories are float32 where only Python scalars meet."""
    if not strong:
        kinds = [scalar_dtype(v) for v in weak]
        return next(d for d in (dtype_of("float32"), dtype_of("int64"), dtype_of("bool")) if d in kinds)
    for value in weak:
        if type(value) is int and strong and all(d.kind in "iu" for d in strong):
            info = np.iinfo(np.result_type(*strong))
            if not info.min <= value <= info.max:
                raise GraphError(f"{what}: the Python integer {value} is out of bounds for {info.dtype}")
    try:
        dtype = np.result_type(*strong)
    except TypeError:
        names = ", ".join(dict.fromkeys(d.name for d in strong))
        raise GraphError(f"{what}: NumPy has no common dtype of {names}: cast one of them with astype") from None
    if any(type(v) is float for v in weak) and not is_floating(dtype):
        return dtype_of("float64")
    if any(scalar_dtype(v) == int64 for v in weak) and dtype.kind == "b":
        return int64
    return dtype_of(dtype)
