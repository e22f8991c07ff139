"""Several tensors as one vector, for searches whose linear algebra is of one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.optable import Array


@frozen
class Layout:
    """The shapes and dtypes of tensors that lie one after the other in a vector of one dtype."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    dtype: np.dtype

    @staticmethod
    def of(arrays: Sequence[Array], dtype: np.dtype) -> Layout:
        return Layout(tuple([a.shape for a in arrays]), tuple([a.dtype for a in arrays]), dtype)

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """The tensors in a vector, in its dtype."""
        ends = np.cumsum(self.sizes).tolist()
        rows = zip(self.shapes, self.sizes, ends, strict=True)
        return tuple([O.reshape(x[end - size : end], shape) for shape, size, end in rows])

    def vector(self, parts: Sequence[Tensor]) -> Tensor:
        flat = [O.astype(O.reshape(part, (-1,)), self.dtype) for part in parts]
        return flat[0] if len(flat) == 1 else O.concat(flat)

    def joined(self, arrays: Sequence[Array]) -> Array:
        """The vector of arrays that can be broadcast to the shapes."""
        parts = zip(arrays, self.shapes, strict=True)
        return np.concatenate([np.broadcast_to(a, shape).ravel().astype(self.dtype) for a, shape in parts])

    def split(self, x: Array, dtypes: Sequence[np.dtype] | None = None) -> list[Array]:
        """The arrays in the last axis of one, in their dtypes or in others."""
        places = np.cumsum(self.sizes)[:-1].tolist()
        pieces = zip(np.split(x, places, axis=-1), self.shapes, dtypes or self.dtypes, strict=True)
        return [piece.reshape((*x.shape[:-1], *shape)).astype(dtype, copy=False) for piece, shape, dtype in pieces]
