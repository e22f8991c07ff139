"""Systems of equations whose matrix has three diagonals: ``tridiagonal_solve``, in time and memory of their length.

Elimination with exchanges of neighbouring rows, as LAPACK's ``gtsv``: one loop forward, in which a row has up to three
elements from its diagonal on, and one backward. The derivative is that of any system, on the diagonals alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.types import FLOATS, TensorType, broadcast_shapes, takes
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import (
    FUNCTIONS,
    NO_ATTRIBUTES,
    Array,
    Case,
    Namespace,
    NoAttributes,
    Op,
    Primal,
    Range,
    public,
    register,
)
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import FLOAT, accepted, added, declare
from staticgrad.ops.linalg.square import UNIT, each_or_nan

WHAT = "tridiagonal_solve"


def _type(attrs: NoAttributes, low: TensorType, diagonal: TensorType, high: TensorType, b: TensorType) -> TensorType:
    if b.ndim < 2 or not takes(FLOATS, b.dtype):
        raise GraphError(f"{WHAT}: expected right sides (…, n, k) of floats, actual {b}")
    for x in (low, diagonal, high):
        if x.ndim != b.ndim - 1:
            raise GraphError(f"{WHAT}: expected diagonals (…, n) for the right sides {b}, actual {x}")
        for want, have in zip(b.shape[:-1], x.shape, strict=True):
            require_equal(want, have, WHAT, f"sizes of the diagonal {x} for the right sides {b}")
    return b


def _reference(attrs: NoAttributes, low: Array, diagonal: Array, high: Array, b: Array) -> Array:
    n = b.shape[-2]
    wide = np.zeros((*diagonal.shape, n))
    place = np.arange(n)
    wide[..., place, place] = diagonal
    wide[..., place[1:], place[:-1]] = low[..., 1:]
    wide[..., place[:-1], place[1:]] = high[..., :-1]
    return np.asarray(each_or_nan(np.linalg.solve, wide, b.astype(np.float64))).astype(b.dtype)


def _expand(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    low, diagonal, high, b = node.inputs
    if b.shape[-2] == 0:
        return [o.zeros_like(b)]
    inside = o.less(o.iota(high.shape, high.ndim - 1), high.shape[-1] - 1)
    columns = (low, diagonal, o.where(inside, high, 0))
    lows, diagonals, highs = (o.moveaxis(o.expand_dims(x, -1), -2, 0) for x in columns)
    rights = o.moveaxis(b, -2, 0)
    first = (diagonals[0], highs[0], rights[0])
    (last, _, right), kept = o.scan(
        lambda row, below: _eliminated(o, row, below), first, (lows[1:], diagonals[1:], highs[1:], rights[1:])
    )
    end = o.divide(right, last)

    def back(found: tuple[Tensor, Tensor], row: Sequence[Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        pivot, second, third, right = row
        rest = o.subtract(right, o.add(o.multiply(second, found[0]), o.multiply(third, found[1])))
        x = o.divide(rest, pivot)
        return (x, found[0]), x

    _, above = o.scan(back, (end, o.zeros_like(end)), kept, reverse=True)
    return [o.moveaxis(o.concat([above, o.expand_dims(end, 0)], axis=0), 0, -2)]


def _eliminated(
    o: Namespace, row: tuple[Tensor, Tensor, Tensor], below: Sequence[Tensor]
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The remainder of the row that is no pivot, and the row that is: the one whose first element is larger."""
    low, diagonal, high, right = below
    pivot, second, own_right = row
    exchanged = o.greater(o.abs(low), o.abs(pivot))

    def sorted_(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return o.where(exchanged, b, a), o.where(exchanged, a, b)

    (first, other), (middle, rest) = sorted_(pivot, low), sorted_(second, diagonal)
    (third, beyond), (kept_right, left_right) = sorted_(o.zeros_like(high), high), sorted_(own_right, right)
    factor = o.divide(other, first)
    left = (
        o.subtract(rest, o.multiply(factor, middle)),
        o.subtract(beyond, o.multiply(factor, third)),
        o.subtract(left_right, o.multiply(factor, kept_right)),
    )
    return left, (first, middle, third, kept_right)


def _shifted(o: Namespace, x: Tensor, axis: int, by: int) -> Tensor:
    """The element after (``by`` = 1) or before (−1) each one along an axis, 0 at the end."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (-by, by)
    return o.pad(x, widths)


def _vjp(o: Namespace, node: Primal[NoAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    low, diagonal, high, _ = node.inputs
    x = node.outputs[0]
    back = declare(TRIDIAGONAL_SOLVE, (_shifted(o, high, -1, -1), diagonal, _shifted(o, low, -1, 1), ct))

    def slope(of: Tensor) -> Tensor:
        return o.negative(o.sum(o.multiply(back, of), axis=-1))

    return slope(_shifted(o, x, -2, -1)), slope(x), slope(_shifted(o, x, -2, 1)), back


def _jvp(o: Namespace, node: Primal[NoAttributes], *tangents: Tensor | None) -> Sequence[Tensor | None]:
    low, diagonal, high, _ = node.inputs
    x = node.outputs[0]
    terms = [
        None if t is None else o.negative(o.multiply(o.expand_dims(t, -1), _shifted(o, x, -2, by) if by else x))
        for t, by in zip(tangents, (-1, 0, 1), strict=False)
    ]
    return (declare(TRIDIAGONAL_SOLVE, (low, diagonal, high, added(o, *terms, tangents[3]))),)


def _dominant(x: Array) -> Array:
    """The first operand is the diagonal below: small elements next to others of the size of one make exchanges."""
    return np.asarray(3.0 * x)


TRIDIAGONAL_SOLVE = register(
    Op(
        WHAT,
        "The X with T·X = B for a T of three diagonals.",
        infer=_type,
        reference=_reference,
        expand=_expand,
        vjp=_vjp,
        jvp=_jvp,
        dtypes=FLOATS,
        cases=tuple(
            Case((shape[:-1],) * 3 + (shape,), NO_ATTRIBUTES, (UNIT, Range(1.5, 3.0), UNIT, UNIT), prepared=prepared)
            for shape in ((4, 2), (1, 3), (2, 5, 1), (3, 2, 7, 2), (0, 3, 1), (2, 1))
            for prepared in (None, _dominant)[: 2 if shape == (4, 2) else 1]
        ),
        grad_name="LinalgSolveEx",
        tolerance=50.0,
        batch=last_axes,
    )
)


@public
def tridiagonal_solve(dl: TensorLike, d: TensorLike, du: TensorLike, b: TensorLike) -> Tensor:
    """The solution X of T·X = b for matrices with three diagonals, by elimination with exchanges of rows.

    Args:
        dl: (…, n), below the diagonal: element i stands in row i; the first is not used.
        d: (…, n), the diagonal.
        du: (…, n), above the diagonal; the last is not used.
        b: (…, n, k), or (n,) where the diagonals are (n,); batches broadcast.

    Returns:
        (…, n, k), without k for a vector. Singular matrices give infinities and NaN.

    Raises:
        GraphError: sizes that do not agree.

    Example:
        >>> low, diagonal, high = np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([1.0, 0.0])
        >>> sg.Session().run(sg.linalg.tridiagonal_solve(low, diagonal, high, np.array([3.0, 5.0])))
        array([1., 2.])
    """
    o = FUNCTIONS
    low, diagonal, high, right = accepted(WHAT, FLOAT, dl, d, du, b)
    vector = right.ndim == 1
    if 0 in (low.ndim, diagonal.ndim, high.ndim, right.ndim):
        raise GraphError(
            f"{WHAT}: expected diagonals (…, n) and right sides (…, n, k), actual {right.name!r} {right.type}"
        )
    right = o.expand_dims(right, -1) if vector else right
    batch = broadcast_shapes([right.shape[:-2], *(x.shape[:-1] for x in (low, diagonal, high))], WHAT)
    n, k = right.shape[-2:]
    for x in (low, diagonal, high):
        require_equal(n, x.shape[-1], WHAT, f"size of the diagonal {x.type} for the right sides {right.type}")
    diagonals = [o.broadcast_to(x, (*batch, n)) for x in (low, diagonal, high)]
    x = declare(TRIDIAGONAL_SOLVE, (*diagonals, o.broadcast_to(right, (*batch, n, k))))
    return o.squeeze(x, -1) if vector else x
