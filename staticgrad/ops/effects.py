"""Ops that run for what they do: writes of variables, output, calls of Python, checks, gradient accumulation.

They keep their order, are never merged, and run where their result is used, where they are fetched, or where something
is declared under ``sg.control_dependencies`` of them. Checks have no results: what must not happen before one is
declared after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Never, overload

import numpy as np

from staticgrad.base.errors import BoundsError, GradientError, GraphError, NumericsError, StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    Size,
    TensorType,
    bool_,
    dtype_of,
    float32,
    float64,
    holds_numbers,
    int64,
    is_integer,
    is_weak,
    require_number,
)
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift
from staticgrad.graph.optable import (
    FUNCTIONS,
    Array,
    BatchRule,
    Case,
    Namespace,
    Op,
    Primal,
    Range,
    Role,
    public,
    register,
)
from staticgrad.ops.batch_rules import by_example, last_axes
from staticgrad.ops.sources import VARIABLE, as_shape

INDICES = tuple(dtype for dtype in DTYPES if is_integer(dtype))


def _passing(
    name: str,
    doc: str,
    role: Role,
    reference: Callable[..., Array] = lambda attrs, x: x,
    *,
    batch: BatchRule | str = by_example,
    ordered: bool = False,
    state: bool = False,
) -> Op:
    """The entry of an effect whose result is its operand, through which derivatives pass."""
    return register(
        Op(
            name,
            doc,
            infer=lambda attrs, x: x,
            reference=reference,
            vjp=lambda o, node, ct: (ct,),
            jvp=lambda o, node, t: (t,),
            effect=True,
            moves=True,
            role=role,
            batch=batch,
            ordered=ordered,
            state=state,
        )
    )


# -- writes of variables --------------------------------------------------------------------------------------------


@frozen
class AssignAttributes:
    """The key of the variable that is written."""

    key: str


ASSIGN = _passing(
    "assign", "Write a variable; the result is its new value.", "store", state=True,
    batch="the examples would write the variable at once",
)  # fmt: skip


def _rows_type(
    attrs: AssignAttributes, rows: TensorType, index: TensorType, kept: TensorType, variable: TensorType
) -> TensorType:
    if index.dtype != int64 or kept.dtype != bool_ or index.ndim != 1 or index.shape != kept.shape:
        raise GraphError(f"assign_rows: expected numbers of rows and a mask of them, actual {index} and {kept}")
    if rows.dtype != variable.dtype or rows.shape != (*index.shape, *variable.shape[1:]):
        raise GraphError(f"assign_rows: expected a row of {variable} for each of {index}, actual {rows}")
    return rows


ASSIGN_ROWS = register(
    Op(
        "assign_rows",
        "Write rows of a variable, those that a mask keeps, no two of which are the same; the result is the rows.",
        infer=_rows_type,
        reference=lambda attrs, rows, index, kept, variable: rows,
        differentiable=False,
        effect=True,
        moves=True,
        state=True,
        role="store",
        batch="the examples would write the variable at once",
    )
)


@public
def assign(variable: Tensor, value: TensorLike) -> Node:
    """Write a variable when the result is fetched, used, or declared to come before something.

    Other reads in the same run see the value at its start. A Python number is repeated to the variable's shape.

    Returns:
        The op; where a tensor is expected it stands for the new value.

    Raises:
        GraphError: the target is no variable, or the value has another shape or a dtype that is not cast safely.

    Example:
        >>> count = sg.Variable(0, name="count")
        >>> add = sg.assign(count, count + 1)
        >>> sess = sg.Session()
        >>> sess.run([count, add]), sess.get(count)
        ([array(0), None], array(1))
    """
    if not isinstance(variable, Tensor) or variable.op.op is not VARIABLE:
        raise GraphError(f"assign: expected a variable to write to, actual {variable!r}")
    graph = graph_of((variable,))
    with graph:
        if holds_numbers(value):
            require_number(value, variable.dtype, f"assign to {variable.name!r}")
        if is_weak(value):
            new = FUNCTIONS.full(variable.shape, value, dtype=variable.dtype)
        else:
            new = lift(value, graph, variable.dtype)
        if new.dtype != variable.dtype:
            if not np.can_cast(new.dtype, variable.dtype, "safe"):
                raise _misfit(variable, new)
            new = FUNCTIONS.astype(new, variable.dtype)
        if len(new.shape) != len(variable.shape) or not all(map(_may_equal, new.shape, variable.shape)):
            raise _misfit(variable, new)
        return graph.add(ASSIGN, (new,), AssignAttributes(variable.op.attrs.key))


def _misfit(variable: Tensor, new: Tensor) -> GraphError:
    return GraphError(
        f"assign: the value does not fit variable {variable.name!r}\n  expected {variable.type}\n  actual   {new.type}"
    )


def _may_equal(a: Size, b: Size) -> bool:
    return a == b or not (isinstance(a, int) and isinstance(b, int))


LATEST_VALUE = register(
    Op(
        "latest_value",
        "The value of a variable after those writes that were declared before and happen in the same run.",
        infer=lambda attrs, variable: variable,
        reference=lambda attrs, variable: variable,
        differentiable=False,
        moves=True,
        dtypes=DTYPES,
        cases=(Case(((3,),), AssignAttributes("w")),),
        role="alias",
        batch=last_axes,
    )
)


@public
def latest_value(variable: Tensor) -> Tensor:
    """The value from which an update continues that several calls share, such as running statistics: the one that the
    last write gives that was declared before and is needed in the run, else the one at the start of the run."""
    attrs = AssignAttributes(variable.op.attrs.key)
    return graph_of((variable,)).add(LATEST_VALUE, (variable,), attrs).outputs[0]


def gradient_key(x: Tensor) -> str:
    """The key under which a session accumulates the gradient of ``x``; the names of a graph's nodes are distinct."""
    x.graph.settle_names()
    return f"{x.op.name}:{x.index}"


@frozen
class AccumulateAttributes:
    """The key under which a session adds up a gradient."""

    key: str


ACCUMULATE_GRAD = _passing(
    "accumulate_grad", "Add a gradient to the session's; the result is the operand.", "store", state=True
)


@public
def accumulate_grad(x: Tensor, key: str) -> Tensor:
    """The tensor, added to the session's gradient ``key`` when it is computed."""
    return graph_of((x,)).add(ACCUMULATE_GRAD, (x,), AccumulateAttributes(key)).outputs[0]


@public
def group(*ops: Node | Tensor) -> Node:
    """One op that runs all ``ops``; fetching it gives None.

    Example:
        >>> a, b = sg.Variable(1.0), sg.Variable(2.0)
        >>> swap = sg.group(sg.assign(a, b), sg.assign(b, a))
        >>> sess = sg.Session()
        >>> sess.run(swap)
        >>> sess.run([a, b])
        [array(2., dtype=float32), array(1., dtype=float32)]
    """
    before = tuple(dict.fromkeys(item.op if isinstance(item, Tensor) else item for item in ops))
    return graph_of(ops).add(GROUP, (), control=before)


GROUP = register(
    Op(
        "group",
        "Nothing by itself: it comes after other ops.",
        infer=lambda attrs: (),
        reference=lambda attrs: (),
        differentiable=False,
        effect=True,
        role="effect",
        batch=last_axes,
    )
)

# -- output and calls out -------------------------------------------------------------------------------------------


@frozen
class PrintAttributes:
    """The text that is written before the value."""

    text: str


def _print_now(attrs: PrintAttributes, x: Array) -> Array:
    from staticgrad.ops.interpreter import print_value

    print_value(attrs.text, x)
    return x


PRINT = _passing(
    "print", "Write a value to standard output; the result is the operand.", "alias", _print_now, ordered=True
)


def print_(x: TensorLike, text: str = "") -> Tensor:
    """Write ``text`` and the value of ``x`` to standard output in the run; gradients pass.

    Returns:
        ``x``: it is written where the result is used, fetched, or named in ``sg.control_dependencies``.

    An error in writing, a closed pipe say, ends a long program that has not begun to write state; of any other it is
    raised after the run, whose results are lost but not its writes of state.

    Example:
        >>> x = sg.print(sg.constant([1.0, 2.0]), "x is")
        >>> sg.Session().run(x * 10)
        x is [1. 2.]
        array([10., 20.], dtype=float32)
    """
    x = lift(x)
    return graph_of((x,)).add(PRINT, (x,), PrintAttributes(str(text))).outputs[0]


print_.__name__ = print_.__qualname__ = "print"
FUNCTIONS.register(print_, "print")


@frozen
class PyCallAttributes:
    """A Python function of arrays, and the types of the arrays that it returns."""

    function: Callable[..., Any]
    types: tuple[TensorType, ...]


def _call_now(attrs: PyCallAttributes, *inputs: Array) -> tuple[Array, ...]:
    from staticgrad.ops.interpreter import call_function

    return tuple(call_function(attrs.function, inputs, attrs.types, None))


def _no_derivative(o: Namespace, node: Primal[object], *_: Tensor | None) -> Sequence[Tensor | None]:
    raise GradientError(
        "op 'py_call' has no derivative: use sg.stop_gradient where none is wanted, or sg.custom_gradient",
        source=node.outputs[0].source,
    )


PY_CALL = register(
    Op(
        "py_call",
        "Call a Python function with the operands' values.",
        infer=lambda attrs, *inputs: attrs.types,
        reference=_call_now,
        vjp=_no_derivative,
        jvp=_no_derivative,
        effect=True,
        moves=True,
        role="effect",
        ordered=True,
        batch=by_example,
    )
)


_PAIRS = "pairs (dtype, shape), one for each array that fn returns"


def _several(name: str, values: Any, expected: str) -> list[Any]:
    """The values of an argument of ``py_call`` that is a list.

    Raises:
        GraphError: it is none.
    """
    if isinstance(values, Tensor | str) or not isinstance(values, Iterable):
        raise GraphError(f"py_call: {name}: expected a list of {expected}, actual {values!r}")
    return list(values)


@overload
def py_call(  # type: ignore[overload-overlap]  # an empty list might be one of anything
    fn: Callable[..., Any], inputs: Sequence[Any], dtypes_shapes: list[Never] | tuple[()]
) -> Node: ...
@overload
def py_call(fn: Callable[..., Any], inputs: Sequence[Any], dtypes_shapes: Sequence[Any]) -> list[Tensor]: ...
@public
def py_call(fn: Callable[..., Any], inputs: Sequence[Any], dtypes_shapes: Sequence[Any]) -> list[Tensor] | Node:
    """Call a Python function in the middle of a run.

    It has no derivative: use ``sg.stop_gradient`` on its operands, or ``sg.custom_gradient``.

    While ``fn`` runs, a program that reads or writes variables holds its session for the thread of the run: ``fn`` may
    use the session itself, but calls of other threads wait until the run has ended. So ``fn`` must not wait for another
    thread that uses the session. One that joins such a thread makes that thread's call raise ``StaticGradError``; other
    waits, for a queue or an event, cannot be told from slow work, and are warned of after some ten seconds.

    Args:
        fn: gets a NumPy array for each input; returns an array for each of ``dtypes_shapes`` (a lone one may be
            returned as it is).
        inputs: what it is called with.
        dtypes_shapes: ``(dtype, shape)`` of each array that it returns.

    Returns:
        A tensor for each result; the op itself, to be fetched or ordered, where there is none.

    Raises:
        GraphError: an argument that is something else.

    Example:
        >>> x = sg.constant([3.0, 1.0, 2.0])
        >>> (y,) = sg.py_call(lambda a: np.sort(a)[::-1], [x], [(sg.float32, (3,))])
        >>> sg.Session().run(y)
        array([3., 2., 1.], dtype=float32)
    """
    if not callable(fn):
        raise GraphError(f"py_call: fn: expected a function of arrays, actual {fn!r}")
    operands, results = _several("inputs", inputs, "tensors"), _several("dtypes_shapes", dtypes_shapes, _PAIRS)
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in results):
        raise GraphError(f"py_call: dtypes_shapes: expected {_PAIRS}, actual {dtypes_shapes!r}")
    if any(x is None or isinstance(x, str) for x in operands):
        raise GraphError(f"py_call: inputs: expected a list of tensors, actual {inputs!r}")
    graph = graph_of(operands)
    with graph:
        operands = [lift(x, graph) for x in operands]
        types = tuple(TensorType(as_shape(shape, "py_call"), dtype_of(dtype)) for dtype, shape in results)
        node = graph.add(PY_CALL, operands, PyCallAttributes(fn, types))
    return list(node.outputs) if node.outputs else node


# -- checks ---------------------------------------------------------------------------------------------------------


@frozen
class BoundsAttributes:
    """Allowed are indices in [0, size); ``what`` says of what, in the error. With ``wraps`` they are what is left after
    negative ones were added to the size, and the error speaks of those that were given."""

    size: Size
    what: str
    wraps: bool = False


def _check_bounds(attrs: BoundsAttributes, index: Array) -> tuple[()]:
    if index.size and (index.min() < 0 or index.max() >= attrs.size):
        wrong = index.min() if index.min() < 0 else index.max()
        raise BoundsError(f"{attrs.what}: index {wrong} is out of range for size {attrs.size}")
    return ()


def _bounds_type(attrs: BoundsAttributes, index: TensorType) -> tuple[()]:
    if not is_integer(index.dtype):
        raise GraphError(f"{attrs.what}: expected integer indices, actual {index}")
    return ()


BOUNDS_CHECK = register(
    Op(
        "bounds_check",
        "End the run with a BoundsError where an index is out of range.",
        infer=_bounds_type,
        reference=_check_bounds,
        differentiable=False,
        effect=True,
        dtypes=INDICES,
        cases=(Case(((3, 4),), BoundsAttributes(5, "index"), (Range(0, 4),)),),
        role="effect",
        batch=last_axes,
    )
)


@public
def bounds_check(index: Tensor, size: Size, what: str) -> Node:
    """The op that ends a run with a ``BoundsError`` where an element of ``index`` is not in [0, size)."""
    return graph_of((index,)).add(BOUNDS_CHECK, (index,), BoundsAttributes(size, what))


@frozen
class AssertAttributes:
    """The message of the error."""

    message: str


def _check_assertion(attrs: AssertAttributes, condition: Array) -> tuple[()]:
    if not np.all(condition):
        raise StaticGradError(f"assertion failed: {attrs.message}")
    return ()


ASSERTION = register(
    Op(
        "assertion",
        "End the run where a condition does not hold everywhere.",
        infer=lambda attrs, condition: (),
        reference=_check_assertion,
        differentiable=False,
        effect=True,
        dtypes=(bool_,),
        role="effect",
        ordered=True,
        batch=last_axes,
    )
)


@public
def assert_(cond: TensorLike, message: str = "") -> Node:
    """End the run with an error where ``cond`` is not true everywhere, before any state is written.

    Returns:
        The op; it runs where it is fetched, or named in ``sg.control_dependencies``.

    Example:
        >>> x = sg.placeholder(())
        >>> with sg.control_dependencies([sg.assert_(x > 0, "x must be positive")]):
        ...     y = sg.log(x)
        >>> sg.Session().run(y, {x: 1.0})
        array(0., dtype=float32)
        >>> sg.Session().run(y, {x: -1.0})
        Traceback (most recent call last):
            ...
        staticgrad.errors.StaticGradError: assertion failed: x must be positive...
    """
    graph = graph_of((cond,))
    with graph:
        condition = FUNCTIONS.astype(cond, bool_)
        return graph.add(ASSERTION, (condition,), AssertAttributes(str(message)))


@frozen
class NumericsAttributes:
    """The message of the error."""

    message: str


def _check_numerics(attrs: NumericsAttributes, x: Array) -> tuple[()]:
    if not np.isfinite(x).all():
        raise NumericsError(attrs.message)
    return ()


NUMERICS_CHECK = register(
    Op(
        "numerics_check",
        "End the run where a value is NaN or infinite.",
        infer=lambda attrs, x: (),
        reference=_check_numerics,
        differentiable=False,
        effect=True,
        dtypes=(float32, float64),
        cases=(Case(((3, 4),), NumericsAttributes("not finite")),),
        role="effect",
        batch=last_axes,
    )
)
