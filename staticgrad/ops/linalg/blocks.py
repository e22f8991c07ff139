"""Matrices made of blocks: ``kron`` and ``block_diag``, composed of products, zeros and joins."""

from __future__ import annotations

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_same
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.ops.declare import operands, shown_as


@public
@shown_as("KronBackward0")
def kron(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The Kronecker product: blocks of ``x2``, each times an element of ``x1``, laid out as ``x1`` is.

    Shapes (m, n) and (p, q) give (m p, n q); any rank will do, and the operand of lower rank gets axes of size 1 in
    front, as in NumPy.

    Example:
        >>> sg.Session().run(sg.kron([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]))
        array([[1., 0., 2., 0.],
               [0., 1., 0., 2.]], dtype=float32)
    """
    o = FUNCTIONS
    a, b = operands("kron", x1, x2)
    ndim = max(a.ndim, b.ndim)
    outer, inner = ((1,) * (ndim - x.ndim) + x.shape for x in (a, b))
    spread = o.reshape(a, [size for n in outer for size in (n, 1)])
    blocks = o.reshape(b, [size for n in inner for size in (1, n)])
    return o.reshape(o.multiply(spread, blocks), [m * n for m, n in zip(outer, inner, strict=True)])


@public
@shown_as("BlockDiagBackward0")
def block_diag(*xs: TensorLike) -> Tensor:
    """A matrix with the given ones along its diagonal, zero elsewhere; vectors are rows, numbers 1 by 1.

    Shapes (…, m, n) and (…, p, q) give (…, m + p, n + q), with equal leading axes.

    Raises:
        GraphError: no operands, or leading axes that differ.

    Example:
        >>> sg.Session().run(sg.linalg.block_diag([[1.0, 2.0]], 3.0))
        array([[1., 2., 0.],
               [0., 0., 3.]], dtype=float32)
    """
    o = FUNCTIONS
    if not xs:
        raise GraphError("block_diag: expected one matrix or more, actual none")
    given = operands("block_diag", *xs)
    blocks = [x if x.ndim > 1 else o.reshape(x, (1, *(x.shape or (1,)))) for x in given]
    batch = blocks[0].shape[:-2]
    for x in blocks:
        if not is_same(x.shape[:-2], batch):
            raise GraphError(f"block_diag: expected leading axes {batch}, actual {x.name!r} {x.type}")
    rows = []
    for i, x in enumerate(blocks):
        lines = [
            x if j == i else o.zeros((*batch, x.shape[-2], y.shape[-1]), dtype=x.dtype) for j, y in enumerate(blocks)
        ]
        rows.append(o.concat(lines, axis=-1) if len(lines) > 1 else x)
    return o.concat(rows, axis=-2) if len(rows) > 1 else rows[0]
