"""The array API standard's namespace over tensors, version 2024.12, for libraries that are written for it.

``x.__array_namespace__()`` of a tensor is this module, so a function that begins with ``xp = array_namespace(x)``
declares ops when it is called with tensors. Names are those of ``sg`` with the standard's arguments; ``device`` may be
None or ``"cpu"``. Left out is what a graph cannot say: functions whose results have a size that follows from values
(``nonzero``, ``unique_*``), complex dtypes, and arrays of other libraries by DLPack, which are fed.

Example:
    >>> def normalised(x):
    ...     xp = x.__array_namespace__()
    ...     return x / xp.sqrt(xp.sum(x * x))
    >>> sg.Session().run(normalised(sg.constant([3.0, 4.0])))
    array([0.6, 0.8], dtype=float32)
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import staticgrad
from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError
from staticgrad.base.hints import missing_from_module
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike

VERSION = "2024.12"
_SAME = """
    e inf nan newaxis pi
    can_cast finfo iinfo isdtype result_type
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor ceil clip copysign cos cosh divide equal exp expm1 floor floor_divide greater
    greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not
    logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow reciprocal remainder round
    sign signbit sin sinh sqrt square subtract tan tanh trunc
    matmul matrix_transpose tensordot vecdot
    broadcast_arrays broadcast_to concat expand_dims flip meshgrid moveaxis permute_dims repeat reshape roll squeeze
    stack tile tril triu unstack
    argmax argmin argsort count_nonzero isin searchsorted sort take take_along_axis where
    all any cumulative_prod cumulative_sum diff max mean min prod std sum var
"""
_WITH_DEVICE = "arange asarray astype empty empty_like eye full full_like linspace ones ones_like zeros zeros_like"


def _on_device(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function with the standard's argument ``device``, of which there is one."""

    @boundary
    @functools.wraps(function)
    def placed(*arguments: Any, device: str | None = None, **named: Any) -> Tensor:
        if device not in (None, "cpu"):
            raise GraphError(f"{function.__name__}: device: expected None or 'cpu', actual {device!r}")
        return function(*arguments, **named)

    return placed


linalg = staticgrad.linalg  # documented as that
for _name in _SAME.split():
    if hasattr(staticgrad, _name):
        globals()[_name] = getattr(staticgrad, _name)
for _name in _WITH_DEVICE.split():
    globals()[_name] = _on_device(getattr(staticgrad, _name))


@boundary
def conj(x: TensorLike) -> Tensor:
    """The complex conjugate: the tensor itself, as there are no complex dtypes.

    Example:
        >>> sg.Session().run(sg.array_api.conj([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return staticgrad.identity(x)


@boundary
def real(x: TensorLike) -> Tensor:
    """The real part: the tensor itself, as there are no complex dtypes.

    Example:
        >>> sg.Session().run(sg.array_api.real([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    return staticgrad.identity(x)


@boundary
def imag(x: TensorLike) -> Tensor:
    """The imaginary part: zeros, as there are no complex dtypes.

    Example:
        >>> sg.Session().run(sg.array_api.imag([1.0, 2.0]))
        array([0., 0.], dtype=float32)
    """
    return staticgrad.zeros_like(staticgrad.asarray(x))


class ArrayNamespaceInfo:
    """The standard's inspection of a namespace."""

    def capabilities(self) -> dict[str, builtins.bool | int | None]:
        """Sizes do not depend on values; tensors have any number of axes up to NumPy's."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> list[str]:
        return ["cpu"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, np.dtype]:
        """The dtypes of Python numbers without a dtype."""
        kinds = {"real floating": "float32", "integral": "int64", "indexing": "int64"}
        return {kind: np.dtype(name) for kind, name in kinds.items()}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, np.dtype]:
        """The dtypes of a kind, by name; all without one."""
        names = [name for name in _SAME.split() if isinstance(globals().get(name), np.dtype)]
        wanted = {name: np.dtype(name) for name in names}
        return {name: d for name, d in wanted.items() if kind is None or staticgrad.isdtype(d, kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    return ArrayNamespaceInfo()


__array_api_version__ = VERSION
_PUBLIC = sorted({"conj", "imag", "real", *_SAME.split(), *_WITH_DEVICE.split()} & set(globals()))
__all__ = [name for name in _PUBLIC if name not in vars(builtins)]


def __dir__() -> list[str]:
    return list(_PUBLIC)


def __getattr__(name: str) -> Any:
    raise missing_from_module(__name__, name)
