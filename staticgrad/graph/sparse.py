"""Sparse matrices of a graph: values that a program computes, at places that are known when it is declared.

``SparseTensor`` is what sparse derivatives are; it is a nest of its one tensor, so that it is fetched, returned from
functions and handed out of branches as what it is. Its result is SciPy's ``csr_array`` where SciPy is installed, else a
``SparseArray``, a named tuple with the same names.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.nests import Parted
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS, Array

SCIPY_FLOATS = "fd"  # the kinds of floats that SciPy's sparse matrices have


class SparseArray(NamedTuple):
    """The elements of a sparse matrix in CSR order: values (…, nnz), and where each stands."""

    values: Array
    rows: Array
    cols: Array
    shape: tuple[int, int]

    def toarray(self) -> Array:
        """The dense matrix."""
        made = np.zeros((*self.values.shape[:-1], *self.shape), self.values.dtype)
        made[..., self.rows, self.cols] = self.values
        return made


class Read(NamedTuple):
    """Values that are elements of a tensor (k,) with these numbers, or, if ``into`` tells of each of these elements to
    which value it belongs, sums of them. ``known``: the elements of the tensor, where no feed and no state changes
    them."""

    source: Tensor
    numbers: Array
    into: Array | None = None
    known: Array | None = None

    def only(self, kept: Array) -> Read:
        """The values with these numbers, in this order."""
        if self.into is None:
            return self._replace(numbers=self.numbers[kept])
        places = np.full(max(kept.max(initial=-1), self.into.max(initial=-1)) + 1, -1)
        places[kept] = np.arange(len(kept))
        into = places[self.into]
        order = np.flatnonzero(into >= 0)
        order = order[np.argsort(into[order], kind="stable")]
        return self._replace(numbers=self.numbers[order], into=into[order])

    def values(self, count: int) -> Tensor:
        """The tensor (count,) of the values."""
        with self.source.graph:
            if self.known is not None:
                weights = self.known[self.numbers]
                if self.into is not None:
                    weights = np.bincount(self.into, weights, count)
                return FUNCTIONS.constant(weights.astype(self.source.dtype))
            found = FUNCTIONS.gather(self.source, FUNCTIONS.constant(self.numbers))
            if self.into is None:
                return found
            return FUNCTIONS.scatter_add(
                FUNCTIONS.zeros((count,), dtype=found.dtype), found, FUNCTIONS.constant(self.into)
            )


class SparseTensor(Parted):
    """A sparse matrix whose elements a program computes and whose places are known: what ``sg.sparse_jacobian`` and
    ``sg.sparse_hessian`` give.

    Where it is fetched, the result is a ``scipy.sparse.csr_array`` if SciPy is installed (of 16-bit floats, and of many
    matrices at once, a named tuple ``SparseArray``); as ``out`` a ``csr_array`` of these places may be given, or an
    array for the values.

    Attributes:
        values: the tensor (nnz,) of the elements, row after row and in a row by ascending columns.
        rows, cols: int64 arrays (nnz,), where each element stands.
        shape: the numbers of rows and columns.
        colors: the number of directions in which the program derives.
        mode: ``"forward"``, ``"reverse"``, or for a Hessian ``"forward over reverse"``.

    Example:
        >>> x = sg.constant([2.0, 3.0, 4.0])
        >>> jacobian = sg.sparse_jacobian(x[1:] * x[:-1], x)
        >>> jacobian.rows, jacobian.cols, sg.Session().run(jacobian.values)
        (array([0, 0, 1, 1]), array([0, 1, 1, 2]), array([3., 2., 4., 3.], dtype=float32))
    """

    __parts__: ClassVar[tuple[str, ...]] = ("values",)

    def __init__(
        self,
        values: Any,
        rows: Array,
        cols: Array,
        shape: tuple[int, int],
        colors: int,
        mode: str,
        read: Read | None = None,
    ) -> None:
        """These are made by derivatives. ``read``: what ``values`` are of another tensor."""
        self.values = values
        self.rows, self.cols, self.shape = rows, cols, shape
        self.colors, self.mode = colors, mode
        self._read = read

    @property
    def nnz(self) -> int:
        """The number of elements that are kept; some may be zero."""
        return len(self.rows)

    def __repr__(self) -> str:
        m, n = self.shape
        return f"<SparseTensor {m} x {n}, {self.nnz} elements, {self.colors} colors, {self.mode}>"

    def todense(self) -> Tensor:
        """The matrix with its zeros, a tensor of its shape.

        Example:
            >>> x = sg.constant([2.0, 3.0])
            >>> sg.Session().run(sg.sparse_jacobian(x * x, x).todense())
            array([[4., 0.],
                   [0., 6.]], dtype=float32)
        """
        if self.values.ndim != 1:
            actual = f"{self.values.name!r} {self.values.type}"
            raise GraphError(f"todense: expected the values of one matrix, actual {actual}", source=self.values.source)
        with self.values.graph:
            size = self.shape[0] * self.shape[1]
            places = FUNCTIONS.constant(self.rows * self.shape[1] + self.cols)
            flat = FUNCTIONS.scatter_add(FUNCTIONS.zeros((size,), dtype=self.values.dtype), self.values, places)
            return FUNCTIONS.reshape(flat, self.shape)

    def lower(self) -> SparseTensor:
        """The elements on the diagonal and below, which are all of a symmetric matrix, as solvers such as IPOPT take
        it. Their values alone are computed where nothing reads the others.

        Example:
            >>> x = sg.constant([2.0, 3.0])
            >>> sg.sparse_hessian(x[0] * x[1], x).lower()
            <SparseTensor 2 x 2, 1 elements, 1 colors, forward over reverse>
        """
        kept = np.flatnonzero(self.rows >= self.cols)
        return taken(self, kept, self.rows[kept], self.cols[kept], self.shape)

    @property
    def T(self) -> SparseTensor:
        """The transposed matrix."""
        order = np.lexsort((self.rows, self.cols))
        return taken(self, order, self.cols[order], self.rows[order], self.shape[::-1])

    def __with__(self, parts: Sequence[Any]) -> Any:
        (values,) = parts
        if isinstance(values, np.ndarray):
            return self._fetched(values)
        read = self._read if values is self.values else None
        return SparseTensor(values, self.rows, self.cols, self.shape, self.colors, self.mode, read)

    def __beside__(self, given: Any) -> list[tuple[Any, Any]] | None:
        if isinstance(given, SparseArray):
            return [(self.values, given.values)]
        if getattr(given, "format", None) == "csr":
            return [(self.values, given.data)] if self._has_places_of(given) else None
        return [(self.values, given)]

    def _has_places_of(self, given: Any) -> bool:
        return (
            tuple(given.shape) == self.shape
            and np.array_equal(given.indptr, self.indptr)
            and np.array_equal(given.indices, self.cols)
        )

    @functools.cached_property
    def indptr(self) -> Array:
        """The number of the first element of each row, and the number of all, int64 (shape[0] + 1,)."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.rows, minlength=self.shape[0]))]).astype(np.int64)

    @functools.cached_property
    def _empty(self) -> Any:
        """A SciPy matrix with these places, whose parts results copy: its constructor would check them each time."""
        try:
            from scipy.sparse import csr_array
        except ImportError:
            return None
        return csr_array((np.zeros(self.nnz), self.cols, self.indptr), self.shape)

    def _fetched(self, values: Array) -> Any:
        like = self._empty if values.ndim == 1 and values.dtype.char in SCIPY_FLOATS else None
        if like is None:
            return SparseArray(values, self.rows, self.cols, self.shape)
        made = object.__new__(type(like))
        made.__dict__.update(like.__dict__, data=values, indices=like.indices.copy(), indptr=like.indptr.copy())
        return made


def made_of(read: Read, rows: Array, cols: Array, shape: tuple[int, int], colors: int, mode: str) -> SparseTensor:
    """The sparse matrix whose elements are read from another tensor."""
    return SparseTensor(read.values(len(rows)), rows, cols, shape, colors, mode, read)


def taken(of: SparseTensor, numbers: Array, rows: Array, cols: Array, shape: tuple[int, int]) -> SparseTensor:
    """The sparse matrix of those elements of another that have these numbers, at places in CSR order."""
    read = of._read or Read(of.values, np.arange(of.nnz))
    return made_of(read.only(numbers), rows, cols, shape, of.colors, of.mode)
