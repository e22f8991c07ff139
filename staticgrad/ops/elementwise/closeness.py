"""Numbers that are near each other, and what stands in the place of NaN and infinities."""

from __future__ import annotations

import numpy as np

from staticgrad.base.types import is_floating
from staticgrad.graph.dtypes import finfo
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import FLOAT, accepted, operands
from staticgrad.ops.elementwise.copies import rounded_once, widened


@public
def isclose(x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """True where \\|x1 - x2\\| is at most ``atol`` + ``rtol`` \\|x2\\|, and for equal infinities.

    Elementwise, with NumPy's broadcasting; integers and bools are computed as float64.

    Args:
        equal_nan: True also where both are NaN.

    Example:
        >>> sg.Session().run(sg.isclose([1.0, 1.0, sg.nan], [1.000001, 1.1, sg.nan]))
        array([ True, False, False])
    """
    o = FUNCTIONS
    a, b = widened(accepted("isclose", FLOAT, x1, x2, quiet=True))
    near = o.less_equal(o.abs(a - b), o.abs(b) * rtol + atol)
    close = o.logical_or(o.logical_and(near, o.isfinite(b)), o.equal(a, b))
    return o.logical_or(close, o.logical_and(o.isnan(a), o.isnan(b))) if equal_nan else close


@public
def allclose(x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """True if ``sg.isclose`` holds for all elements.

    Example:
        >>> sg.Session().run(sg.allclose([1.0, 2.0], [1.000001, 2.0]))
        array(True)
    """
    return FUNCTIONS.all(isclose(x1, x2, rtol, atol, equal_nan))


@public
def nan_to_num(
    x: TensorLike, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """The elements with numbers in the place of NaN and infinities; integers and bools as they are.

    Args:
        copy: without effect: nothing overwrites a tensor.
        nan: in the place of NaN.
        posinf, neginf: in the place of infinities; default: the greatest and the least finite number of the dtype.

    Example:
        >>> sg.Session().run(sg.nan_to_num([1.0, sg.nan, -sg.inf], neginf=-9.0))
        array([ 1.,  0., -9.], dtype=float32)
    """
    o = FUNCTIONS
    (tensor,) = operands("nan_to_num", x)
    if not is_floating(tensor.dtype):
        return tensor
    most = float(finfo(tensor.dtype).max)
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf

    def compose(x: Tensor) -> Tensor:
        ended = o.where(o.equal(x, np.inf), high, o.where(o.equal(x, -np.inf), low, x))
        return o.where(o.isnan(x), nan, ended)

    return rounded_once(compose, tensor)
