"""Rows of a table, by labels."""

from __future__ import annotations

from collections.abc import Sequence

from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import FLOATS, Size, TensorType, int64, integer, normalize_axis
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import REAL, Case, Namespace, Op, Primal, Range, public, register
from staticgrad.graph.scopes import control_dependencies
from staticgrad.ops.declare import floating
from staticgrad.ops.indexing.labels import as_index, checked


@frozen
class EmbeddingAttributes:
    """The row that receives no gradient, if any."""

    padding_idx: Size | None


def _embedding_type(attrs: EmbeddingAttributes, weight: TensorType, index: TensorType) -> TensorType:
    if weight.ndim != 2:
        raise GraphError(f"embedding: expected a weight (rows, features), actual {weight}")
    return TensorType((*index.shape, weight.shape[1]), weight.dtype)


def _embedding_vjp(o: Namespace, node: Primal[EmbeddingAttributes], ct: Tensor) -> Sequence[Tensor | None]:
    weight, index = node.inputs
    if node.attrs.padding_idx is not None:
        ct = o.where(o.equal(o.expand_dims(index, -1), node.attrs.padding_idx), 0, ct)
    zeros = o.full(weight.shape, 0, dtype=weight.dtype)
    with control_dependencies(checked(index, weight.shape[0], "embedding")):  # a program may need the gradient alone
        return o.scatter_add(zeros, ct, index), None


def _embedding_jvp(
    o: Namespace, node: Primal[EmbeddingAttributes], dweight: Tensor | None, _: Tensor | None = None
) -> Sequence[Tensor | None]:
    if dweight is None:
        return (None,)
    weight, index = node.inputs
    with control_dependencies(checked(index, weight.shape[0], "embedding")):
        return (o.gather(dweight, index),)


EMBEDDING = register(
    Op(
        "embedding",
        "Rows of a table, by indices in range.",
        infer=_embedding_type,
        reference=lambda attrs, weight, index: weight[index],
        expand=lambda o, node: [o.gather(node.inputs[0], node.inputs[1])],
        vjp=_embedding_vjp,
        jvp=_embedding_jvp,
        moves=True,
        dtypes=FLOATS,
        cases=(
            Case(((5, 3), (4,)), EmbeddingAttributes(None), (REAL, Range(0, 4)), (None, int64)),
            Case(((4, 2), (2, 3)), EmbeddingAttributes(None), (REAL, Range(0, 3)), (None, int64)),
        ),
    )
)


def refuse_options(what: str, max_norm: float | None, scale_grad_by_freq: bool) -> None:
    """Refuse what PyTorch's embeddings know in addition to a table and a row of padding."""
    if max_norm is not None:
        raise GraphError(
            f"{what}: max_norm is not supported: nothing overwrites the table; scale the rows that are read"
        )
    if scale_grad_by_freq:
        raise GraphError(f"{what}: scale_grad_by_freq is not supported: scale the gradient, as by a hook")


@public
def embedding(
    input: TensorLike,
    weight: TensorLike,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (rows, features), one for each index of ``input``.

    Args:
        input: integers of any shape, in [0, rows); others end the run with a ``BoundsError``.
        padding_idx: a row that receives no gradient; it may count from the end.
        max_norm, norm_type, scale_grad_by_freq: PyTorch's, which are not supported.
        sparse: PyTorch's; it changes nothing. A fetched gradient is dense, and where a program only updates the table
            with it, only the rows that are named are computed and written (``lazy`` of the optimizers says which).

    Returns:
        ``(*input.shape, features)``.

    Raises:
        GraphError: the input is not of integers, the weight not a matrix, or an argument that is not supported.

    Example:
        >>> table = sg.constant([[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]])
        >>> sg.Session().run(sg.nn.embedding([2, 0, 2], table))
        array([[2. , 2.1],
               [0. , 0.1],
               [2. , 2.1]], dtype=float32)
    """
    what = "embedding"
    refuse_options(what, max_norm, scale_grad_by_freq)
    index, table = as_index(input, what), floating(weight, what)
    if table.ndim != 2:
        raise GraphError(f"{what}: expected a weight (rows, features), actual {table.type}")
    rows = table.shape[0]
    padding: Size | None = None
    if padding_idx is not None:
        padding_idx = integer(padding_idx, f"{what}: padding_idx")
        padding = padding_idx
        if isinstance(rows, int):
            padding = normalize_axis(padding_idx, rows, f"{what}: padding_idx")
        elif padding_idx < 0:
            padding = rows + padding_idx
    with table.graph:
        check = checked(index, rows, what)
        return table.graph.add(EMBEDDING, (table, index), EmbeddingAttributes(padding), control=check).outputs[0]
