"""Binding: from what a caller hands over to arrays that a program can read and write.

A fed value becomes a C-contiguous, aligned array of the declared dtype, without a copy where it is one already; its
shape is checked against the declared one. Arrays given as ``out`` are checked, never converted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from staticgrad.base.errors import FeedError, GradientError, SourceLine
from staticgrad.base.types import (
    Shape,
    Symbol,
    TensorType,
    as_declared,
    exact_array,
    is_floating,
    is_weak,
    learn,
    unify,
)
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts.foreign import as_numpy


class Argument:
    """An array that goes into or comes out of a program which has no tensors any more: its name and type."""

    __slots__ = ("name", "type")
    source: SourceLine | None = None

    def __init__(self, name: str, type_: TensorType) -> None:
        self.name = name
        self.type = type_

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.ndim


Bindable: TypeAlias = Tensor | Argument  # what messages and checks ask for its name, type and line

_FLOATS = np.asarray([0.5]).dtype  # of a list of Python's
_KINDS = "biuf"  # bool, signed, unsigned, floating: what a Python value may become counts upwards


def ready(array: Array, dtype: np.dtype) -> bool:
    """True if compiled code can read the array as it is."""
    flags = array.flags
    return array.dtype is dtype and flags.c_contiguous and flags.aligned


def as_array(x: Bindable, value: Any) -> Array:
    """The array for what is fed as ``x``.

    Raises:
        FeedError: no array, another rank or size, or a dtype that does not cast safely.
    """
    dtype, shape = x.type.dtype, x.type.shape
    if type(value) is np.ndarray:
        if value.dtype is dtype and value.shape == shape:
            flags = value.flags
            return value if flags.c_contiguous and flags.aligned else np.array(value, dtype=dtype, order="C")
        array = _cast(x, value)
    elif isinstance(value, (list, tuple)) or is_weak(value):
        array = _from_python(x, value)
    elif isinstance(value, np.generic):
        array = _from_python(x, value.item())  # np.mean gives one where a Python program has a float
    else:
        array = _cast(x, _import(x, value))
    if array.shape != shape:
        _check_shape(x, array)
    return array if ready(array, dtype) else np.array(array, dtype=dtype, order="C")


def as_gradient(x: Bindable, value: Any, what: str) -> Array:
    """The array for ``what`` a caller hands over as a gradient of ``x``.

    Raises:
        GradientError: as ``as_array``.
    """
    try:
        return as_array(x, value)
    except FeedError as error:
        raise GradientError(str(error).replace(f"feed of {x.name!r}", f"the {what}")) from None


def as_arrays(tensors: Iterable[Bindable], values: Iterable[Any]) -> list[Array]:
    """``as_array`` for each tensor and what is fed as it, of equal number."""
    return list(map(as_array, tensors, values))


def _import(x: Bindable, value: Any) -> Array:
    if isinstance(value, (Tensor, Node)):
        raise FeedError(f"feed of {x.name!r}: expected an array, actual {value!r}", source=x.source)
    if isinstance(value, (bytes, bytearray)):
        value = memoryview(value)
    if not isinstance(value, np.ndarray):
        foreign = as_numpy(value, f"feed of {x.name!r}", x.source)
        if foreign is not None:
            return foreign
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise FeedError(f"feed of {x.name!r}: {type(value).__name__} is no array: {error}", source=x.source) from error
    if array.dtype.kind == "O":
        raise FeedError(
            f"feed of {x.name!r}: expected an array of {x.dtype}, actual {type(value).__name__}", source=x.source
        )
    return array


def _cast(x: Bindable, array: Array) -> Array:
    if array.dtype == x.dtype:
        return array if array.dtype is x.dtype else array.view(x.dtype)
    if not _casts_safely(array.dtype, x.dtype):
        raise FeedError(
            f"feed of {x.name!r}: wrong dtype\n  expected {x.dtype}\n  actual   {array.dtype}, which does not cast"
            f" to it safely: use .astype({x.dtype.name!r})",
            source=x.source,
        )
    return array.astype(x.dtype)


@functools.cache
def _casts_safely(given: np.dtype, wanted: np.dtype) -> bool:
    return np.can_cast(given, wanted, "safe")


def _from_python(x: Bindable, value: Any) -> Array:
    try:
        raw = np.asarray(value)
        if raw.dtype is _FLOATS and raw.ndim and x.dtype.kind == "f":
            return raw.astype(x.dtype, copy=False)  # what is most often given
        raw = exact_array(value) if raw.dtype is _FLOATS else raw
        kind, wanted = raw.dtype.kind, "f" if is_floating(x.dtype) else x.dtype.kind
        known = kind in _KINDS
        if raw.size and (not known or _KINDS.index(kind) > max(_KINDS.index(wanted), 2 * (wanted == "i"))):
            raise FeedError(
                f"feed of {x.name!r}: expected {x.dtype}, actual {raw.dtype if known else repr(value)}", source=x.source
            )
        if raw.ndim == 0 and wanted == "f" and known:
            return _as_float(x, raw)
        same = raw.dtype == x.dtype or (known and wanted == "f")
        return raw.astype(x.dtype, copy=False) if same else np.asarray(value, x.dtype)
    except (ValueError, OverflowError, TypeError) as error:
        if isinstance(error, FeedError):
            raise
        raise FeedError(f"feed of {x.name!r}: {error}", source=x.source) from error


def _as_float(x: Bindable, number: Array) -> Array:
    """One number in a floating dtype, which may be shorter than its own."""
    with np.errstate(over="ignore"):
        array = number.astype(x.dtype, copy=False)
    if np.isfinite(number) and not np.isfinite(array):
        raise FeedError(f"feed of {x.name!r}: {number} is out of range for {x.dtype}", source=x.source)
    return array


def _check_shape(x: Bindable, array: Array) -> None:
    fits = array.ndim == x.ndim and all(
        not isinstance(size, int) or size == actual for size, actual in zip(x.shape, array.shape, strict=True)
    )
    if not fits:
        raise wrong_shape(x, array.shape, f"feed of {x.name!r}")


def wrong_shape(x: Bindable, shape: tuple[int | None, ...], what: str) -> FeedError:
    """The error of a value of another shape than that of ``x``; of one example in the place of a batch it says so."""
    is_example = len(shape) == x.ndim - 1 > 0 and all(
        not isinstance(size, int) or size == actual for size, actual in zip(x.shape[1:], shape, strict=True)
    )
    hint = (
        "\n  the first axis is missing: give the input a batch axis (x[None] is a batch of one)" if is_example else ""
    )
    return FeedError(
        f"{what}: wrong shape\n  expected {as_declared(x.shape)}\n  actual   {shape}{hint}", source=x.source
    )


def bind_sizes(tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> dict[Symbol, int]:
    """The sizes that a call's feeds bind.

    Raises:
        FeedError: two feeds disagree about a shared size.
    """
    bindings: dict[Symbol, int] = {}
    unify(list(zip(tensors, shapes, strict=True)), bindings)
    return bindings


def known_symbols(tensors: Sequence[Tensor], shapes: Sequence[Shape]) -> frozenset[Symbol]:
    """The sizes of feeds that were open when declared and are numbers in ``shapes``."""
    known: dict[Symbol, int] = {}
    learn(list(zip(tensors, shapes, strict=True)), known)
    return frozenset(known)


def types_of(tensors: Sequence[Tensor], shapes: Sequence[Shape]) -> dict[Tensor, TensorType]:
    """The type of each fed tensor in a call with feeds of these shapes."""
    return {x: TensorType(shape, x.dtype) for x, shape in zip(tensors, shapes, strict=True)}


def check_out(
    outs: Sequence[Array | None], types: Sequence[TensorType], tensors: Sequence[Bindable], feeds: Sequence[Array]
) -> None:
    """Refuse arrays that results can't be written to.

    Raises:
        FeedError: no array, another dtype or shape, read-only, not C-contiguous, overlapping a feed or another one.
    """
    taken: list[tuple[str, Array]] = [("a feed", array) for array in feeds]
    for out, type_, x in zip(outs, types, tensors, strict=True):
        if out is None:
            continue
        what = f"out for {x.name!r}"
        if not isinstance(out, np.ndarray):
            raise FeedError(f"{what}: expected an array or None, actual {type(out).__name__}", source=x.source)
        if out.dtype != type_.dtype or out.shape != type_.shape or not out.dtype.isnative:
            raise FeedError(
                f"{what}\n  expected {type_}\n  actual   {TensorType(out.shape, out.dtype)}", source=x.source
            )
        for flag in ("writeable", "c_contiguous", "aligned"):
            if not getattr(out.flags, flag):
                raise FeedError(f"{what}: the array is not {flag.replace('_', '-')}", source=x.source)
        for other, array in taken:
            if out.nbytes and np.may_share_memory(out, array):
                raise FeedError(f"{what}: the array overlaps {other}", source=x.source)
        taken.append((what, out))
