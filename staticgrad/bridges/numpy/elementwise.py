"""Calls of ufuncs with traced arrays: operators, ``out=``, ``where=``, ``dtype=``, and the methods of ufuncs.

NumPy computes the value and chooses the loop; the entry of the table computes the tensor in the dtypes of that loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.types import is_weak
from staticgrad.bridges.arrays import cast
from staticgrad.bridges.numpy import array, subscripts, trace
from staticgrad.bridges.numpy.array import TracedArray, arrays_in, is_traced, known, value_of
from staticgrad.bridges.numpy.cells import check_dtype
from staticgrad.bridges.numpy.subscripts import is_selection, selection_of
from staticgrad.bridges.numpy.tables import UFUNCS, entry_of, is_example, of_tensor, paired, tensor_as
from staticgrad.graph.optable import FUNCTIONS as o


def call_ufunc(
    ufunc: np.ufunc,
    method: str,
    inputs: Sequence[Any],
    options: dict[str, Any],
    apply: Callable[..., Any] | None = None,
) -> Any:
    """The result of a ufunc, or of one of its methods; ``apply`` is the operator that computes the value."""
    if any(isinstance(x, str) or x is None for x in inputs):
        return NotImplemented
    if method == "at":
        return _at(ufunc, *inputs)
    options = dict(options)
    out, where = options.pop("out", None), options.pop("where", True)
    if method == "__call__" and len(inputs) > ufunc.nin:
        inputs, out = inputs[: ufunc.nin], tuple(inputs[ufunc.nin :])
    targets = out if isinstance(out, tuple) else (None if out is Ellipsis else out,)
    inputs = [array.call(np.asarray, x) if isinstance(x, (list, tuple)) else of_tensor(x) for x in inputs]
    is_chosen = where is not True and method == "__call__"
    if is_chosen or apply is None:
        rest = {} if where is True or is_chosen else {"where": value_of(where)}
        apply = lambda *values: getattr(ufunc, method)(*values, **value_of(options), **rest)  # noqa: E731
    expected = apply(*value_of(inputs))
    if not any(map(is_traced, inputs)):
        result = known(expected)
    elif method != "__call__":
        result = _method(ufunc, method, inputs, options, expected, where)
    else:
        result = _elementwise(ufunc, inputs, options, expected)
    if is_chosen:
        before = np.zeros_like(expected) if targets[0] is None else targets[0]
        result = array.call(np.where, where, result, before).astype(expected.dtype)
    return _stored(result, targets, ufunc) if any(x is not None for x in targets) else result


def _elementwise(ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any], expected: Any) -> Any:
    name, has_example = ufunc.__name__, is_example(inputs)
    if name not in UFUNCS:
        trace.current().refuse(name, "this function is not converted", has_example)
        return known(expected)
    kinds = [_kind(x) for x in inputs]
    if all(isinstance(kind, type) for kind in kinds):  # Python numbers alone
        kinds = [np.dtype(kind) for kind in kinds]
    dtype = options.get("dtype")
    chosen: Any = {} if dtype is None else {"signature": (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)}
    loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **chosen)
    if not all(check_dtype(dtype, name, has_example) for dtype in loop):
        return known(expected)
    converter, selection = entry_of(UFUNCS, name), selection_of(inputs)
    if selection is not None and ufunc.nout == 1:
        fulls = [cast(x.cell.full, d) if is_selection(x) else tensor_as(x, d) for x, d in zip(inputs, loop)]
        full = cast(converter(*fulls), expected.dtype)
        return TracedArray(expected, selection.with_values(expected, full))
    return paired(converter(*map(tensor_as, inputs, loop)), expected, has_example, name)


def _kind(x: Any) -> Any:
    value = value_of(x)
    return type(value) if is_weak(value) and not isinstance(value, bool) else np.asarray(value).dtype


def _stored(result: Any, targets: Sequence[Any], ufunc: np.ufunc) -> Any:
    """Write results into the arrays that the call names."""
    for new, target in zip(result if isinstance(result, tuple) else (result,), targets):
        if target is None:
            continue
        kind = np.asarray(value_of(new)).dtype
        if not np.can_cast(kind, target.dtype, "same_kind"):
            cast_of = f"Cannot cast ufunc '{ufunc.__name__}' output from {kind!r} to {target.dtype!r}"
            raise TypeError(f"{cast_of} with casting rule 'same_kind'")
        if type(target) is not TracedArray and is_traced(new):
            trace.current().refuse(f"{ufunc.__name__}(…, out=)", trace.ELSEWHERE, is_example([new]))
            return new
        if is_selection(target) and is_selection(new) and target.cell.mask is new.cell.mask:
            target.value[...] = new.value
            target.cell.full = cast(new.cell.full, target.value.dtype)
        else:
            target[...] = new
    return tuple(targets) if isinstance(result, tuple) else targets[0]


_REDUCED = {
    "add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min, "logical_and": np.all,
    "logical_or": np.any,
}  # fmt: skip
_ACCUMULATED = {"add": np.cumsum, "multiply": np.cumprod}


def _method(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any], expected: Any, where: Any
) -> Any:
    """``reduce``, ``accumulate`` and ``outer``, by NumPy's functions or turn by turn."""
    name, x = ufunc.__name__, inputs[0]
    if method == "outer":
        a, b = inputs
        return call_ufunc(ufunc, "__call__", (a.reshape(a.shape + (1,) * b.ndim) if np.ndim(b) else a, b), options)
    axis, rest = (inputs[1], inputs[2:]) if len(inputs) > 1 else (options.get("axis", 0), ())
    if method not in ("reduce", "accumulate") or rest:
        trace.current().refuse(f"{name}.{method}", "this method is not converted", is_example(inputs))
        return known(expected)
    if where is not True:
        initial = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False}.get(name, options.get("initial"))
        x = array.call(np.where, where, x, initial)
    table: dict[str, Any] = _REDUCED if method == "reduce" else _ACCUMULATED
    if name in table:
        named = {key: value for key, value in options.items() if key in ("dtype", "keepdims", "initial") and value}
        return array.call(table[name], x, axis, **named)
    totals: list[Any] = []
    for part in array.call(np.moveaxis, x, axis, 0):
        totals.append(call_ufunc(ufunc, "__call__", (totals[-1], part), {}) if totals else part)
    if method == "accumulate":
        return array.call(np.stack, totals, axis)
    return array.call(np.expand_dims, totals[-1], axis) if options.get("keepdims") else totals[-1]


_MODES = {"add": "add", "maximum": "max", "minimum": "min"}


def _at(ufunc: np.ufunc, x: Any, key: Any, new: Any = None) -> None:
    """``ufunc.at``: in place, once for each index."""
    name = ufunc.__name__
    if type(x) is not TracedArray:
        trace.current().refuse(f"{name}.at", f"it writes into an array of its own: {trace.ELSEWHERE}", True)
    elif not any(map(is_traced, arrays_in([x, key, new]))):
        ufunc.at(x.value, value_of(key), value_of(new))
        x.cell.storage.touch()
    elif name == "subtract":
        _at(np.add, x, key, -new)
    elif name not in _MODES:
        trace.current().refuse(f"{name}.at", "this method is not converted", x.is_example)
    else:
        x.cell.storage.trace()
        scattered = o.scatter(x.tensor(), subscripts.tensor_key(key), tensor_as(new, x.dtype), mode=_MODES[name])
        ufunc.at(x.value, value_of(key), value_of(new))
        x.cell.write(scattered)
