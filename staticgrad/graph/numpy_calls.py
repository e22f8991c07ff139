"""NumPy's functions applied to tensors: operators with arrays, and errors that name the function of the graph.

Input: a function of NumPy that met a tensor, and its arguments. Output: a tensor where it is an operator
(``array + x`` asks ``np.add``), a shape where it asks for one, else a ``TypeError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from staticgrad.base.errors import user_source
from staticgrad.base.hints import RENAMED
from staticgrad.graph.optable import FUNCTIONS

if TYPE_CHECKING:
    from staticgrad.graph.graph import Tensor

# What ``array <operator> x`` calls, and the function that the operator declares.
OPERATORS: dict[np.ufunc, str] = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide",
    np.floor_divide: "floor_divide", np.remainder: "remainder", np.power: "pow", np.matmul: "matmul",
    np.bitwise_and: "bitwise_and", np.bitwise_or: "bitwise_or", np.bitwise_xor: "bitwise_xor",
    np.left_shift: "bitwise_left_shift", np.right_shift: "bitwise_right_shift", np.equal: "equal",
    np.not_equal: "not_equal", np.less: "less", np.less_equal: "less_equal", np.greater: "greater",
    np.greater_equal: "greater_equal",
}  # fmt: skip

MEASURES: dict[object, Callable[[Tensor], Any]] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
}


def of_ufunc(x: Tensor, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of an operator with a tensor and an array.

    Raises:
        TypeError: any other function, a method of one, or one that shall write into an array.
    """
    name = OPERATORS.get(ufunc)
    if name is None or method != "__call__" or options:
        into = " (an array cannot take a tensor's value: write a = a + x, not a += x)" if options.get("out") else ""
        raise _error(x, ufunc.__name__, "", into)
    left, right = inputs
    operator = getattr(FUNCTIONS, name)
    return operator(left, right)


def of_function(x: Tensor, function: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """The shape, number of axes or size of a tensor.

    Raises:
        TypeError: any other function.
    """
    measure = MEASURES.get(function)
    if measure is not None and len(arguments) == 1 and not options:
        return measure(arguments[0])
    home = "linalg." if function.__module__ == "numpy.linalg" else ""
    raise _error(x, function.__name__, home)


def _error(x: Tensor, name: str, home: str, why: str = "") -> TypeError:
    ours = RENAMED.get(name) or (_home_of(name) + name if name in FUNCTIONS else "")
    use = f"use sg.{ours}, or " if ours and not why else ""
    source = user_source()
    return TypeError(
        f"np.{home}{name}() of the tensor {x.name!r}, which has no value before a run{why}:"
        f" {use}fetch it with a session (sess.run(x, feeds))\n  declared at {source}"
    )


def _home_of(name: str) -> str:
    function = getattr(FUNCTIONS, name)
    only_there = ".linalg." in function.__module__ and name not in ("tril", "triu", "meshgrid")
    return "linalg." if only_there else ""
