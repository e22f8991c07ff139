"""Operands from values: what can be an operand, in which graph it becomes a constant, and in which dtype.

Promotion is NumPy 2's (NEP 50): Python scalars are weak, they take the dtype of the tensors that they meet; so do lists
of them that meet floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from staticgrad.errors import GraphError, PromotionWarning, warn
from staticgrad.extents import is_open
from staticgrad.graph import Graph, Node, Tensor, get_default_graph, writable
from staticgrad.optable import FUNCTIONS, Array
from staticgrad.scopes import uncontrolled
from staticgrad.types import Dim, dtype_of, float64, int64, is_floating, is_integer, is_weak, scalar_dtype

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
        dtype: what a Python scalar or a size becomes; by default float32, int64 or bool.

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
    if isinstance(value, (np.generic, list, tuple)):
        return FUNCTIONS.constant(value)
    raise GraphError(f"{value!r} cannot be used as a tensor{instead(value)}")


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
        given = [v for v in values if scalar_dtype(v) is None]
        strong = _lift_strong(given, graph, what)
        dtype = promote([x.dtype for x in strong], [v for v in values if scalar_dtype(v) is not None], what)
        if dtype == float64 and not quiet:
            _warn_of_promotion(what, given, strong)
        lifted = iter(strong)
        result = []
        for value in values:
            x = next(lifted) if scalar_dtype(value) is None else lift(value, graph, dtype)
            result.append(x if x.dtype == dtype else FUNCTIONS.astype(x, dtype))
    return tuple(result)


def _lift_strong(values: Sequence[object], graph: Graph, what: str) -> list[Tensor]:
    """Lift tensors, arrays and lists. A list of Python numbers takes the dtype of the floats that it meets."""
    lifted = {i: lift(v, graph) for i, v in enumerate(values) if not _lists_numbers(v)}
    dtype = promote([x.dtype for x in lifted.values()], [], what) if lifted else None
    floats = dtype if dtype is not None and is_floating(dtype) else None
    return [lifted[i] if i in lifted else FUNCTIONS.constant(v, floats) for i, v in enumerate(values)]


def _lists_numbers(value: object) -> bool:
    """True if a value is a nest of lists and tuples of Python numbers, which are weak."""
    return isinstance(value, (list, tuple)) and all(is_weak(item) or _lists_numbers(item) for item in value)


def _warn_of_promotion(what: str, values: Sequence[object], lifted: Sequence[Tensor]) -> None:
    """Warn where operands become float64 that the user hardly wants so: a tensor of fewer bits meets float64, or
    integers of 32 or 64 bits meet such a float. ``astype(sg.float64)``, of either of the two, says that it is meant."""
    pairs = [(v, x) for v, x in zip(values, lifted, strict=True) if not _lists_numbers(v)]
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
