"""``einsum``: products of any number of operands, contracted in the order that costs least.

Input: operands and a label for each of their axes. Output: for one or two operands sums and products of matrices;
for more one node of the op ``einsum``, whose derivatives are such nodes again. In which order its operands are
multiplied is decided when it is expanded, by then with the sizes of a program: that of a batch of tangents is another
one than that of the function.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import highest
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, TensorType, integer, product
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift_all
from staticgrad.graph.optable import FUNCTIONS, Array, BatchedNode, Case, Namespace, Op, Primal, public, register
from staticgrad.ops.batch_rules import again
from staticgrad.ops.contraction import matmul, require_equal
from staticgrad.ops.declare import NUMERIC
from staticgrad.ops.elementwise.copies import rounded_once

EXACT = 5  # operands up to which all orders are tried
BALANCE = 16  # multiply-adds that take about as long as moving one element to or from memory
SMALL = 4096  # elements of a matrix that is multiplied by one vector, up to which that is no product of matrices
NOMINAL = 64  # stands for a size that is not known yet
Pair = tuple[int, int]


@frozen
class EinsumAttributes:
    """Labels of the axes of each operand, no label twice in one, and of the result. A label that the result does not
    have is summed over; at least two operands have it."""

    operands: tuple[str, ...]
    result: str


def _sizes_of(attrs: EinsumAttributes, shapes: Sequence[Sequence[Size]]) -> dict[str, Size]:
    """The size of each label; known ones before those that feeds bind."""
    found: dict[str, Size] = {}
    for labels, shape in zip(attrs.operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            require_equal(found.setdefault(label, size), size, "einsum", f"sizes of the label {label!r}")
            if isinstance(size, int):
                found[label] = size
    return found


def _type(attrs: EinsumAttributes, *types: TensorType) -> TensorType:
    if [len(labels) for labels in attrs.operands] != [x.ndim for x in types]:
        raise GraphError(f"einsum: labels {attrs.operands} do not fit operands {', '.join(map(str, types))}")
    sizes = _sizes_of(attrs, [x.shape for x in types])
    return TensorType(tuple(sizes[label] for label in attrs.result), types[0].dtype)


def _reference(attrs: EinsumAttributes, *arrays: Array) -> Array:
    numbers = {label: number for number, label in enumerate(dict.fromkeys("".join(attrs.operands)))}
    terms = [[numbers[label] for label in labels] for labels in (*attrs.operands, attrs.result)]
    pairs = [item for pair in zip(arrays, terms, strict=False) for item in pair]
    return np.asarray(np.einsum(*pairs, terms[-1], dtype=arrays[0].dtype))


def _expand(o: Namespace, node: Primal[EinsumAttributes]) -> Sequence[Tensor]:
    attrs = node.attrs
    known = _sizes_of(attrs, [x.shape for x in node.inputs])
    sizes = {label: _number(size) for label, size in known.items()}
    terms = [_Labelled(x, labels) for x, labels in zip(node.inputs, attrs.operands, strict=True)]
    for a, b in contraction_order(attrs, sizes):
        later = {label for i, x in enumerate(terms) if i not in (a, b) for label in x.labels}
        left, right = _rows_first(terms[a], terms[b], later & set(attrs.result))
        made = _contract(left, right, set(attrs.result) | later)
        terms = [*(x for i, x in enumerate(terms) if i not in (a, b)), made]
    return [_arrange(terms[0], attrs.result)]


def _number(size: Size) -> int:
    """A size for estimates."""
    return highest(size) if isinstance(size, int) else NOMINAL


def _with(node: Primal[EinsumAttributes], number: int, x: Tensor) -> Tensor:
    """The op with another operand in the place of number ``number``."""
    return _contracted([*node.inputs[:number], x, *node.inputs[number + 1 :]], node.attrs)


def _vjp(o: Namespace, node: Primal[EinsumAttributes], ct: Tensor) -> Sequence[Tensor]:
    labels, result = node.attrs.operands, node.attrs.result

    def cotangent(number: int) -> Tensor:
        others = EinsumAttributes((*labels[:number], result, *labels[number + 1 :]), labels[number])
        return _contracted([*node.inputs[:number], ct, *node.inputs[number + 1 :]], others)

    return [cotangent(number) for number in range(len(labels))]


def _jvp(o: Namespace, node: Primal[EinsumAttributes], *tangents: Tensor | None) -> Sequence[Tensor | None]:
    total: Tensor | None = None
    for number, tangent in enumerate(tangents):
        if tangent is not None:
            part = _with(node, number, tangent)
            total = part if total is None else o.add(total, part)
    return [total]


def _batch(o: Namespace, node: BatchedNode[EinsumAttributes]) -> Sequence[Tensor]:
    """The examples are one more label, of the operands that have them and of the result."""
    labels = node.attrs.operands
    label = next(c for c in map(chr, itertools.count(ord("α"))) if c not in "".join(labels))
    more = tuple(label * flag + x for flag, x in zip(node.batched, labels, strict=True))
    return again(node, node.inputs, EinsumAttributes(more, label + node.attrs.result))


EINSUM = register(
    Op(
        "einsum",
        "Einstein's summation over three and more operands, in the order that costs least.",
        infer=_type,
        reference=_reference,
        expand=_expand,
        vjp=_vjp,
        jvp=_jvp,
        batch=_batch,
        dtypes=NUMERIC,
        cases=(
            Case(((2, 3, 4), (5, 4), (5, 2)), EinsumAttributes(("bij", "vj", "vb"), "vi")),
            Case(((3, 4), (4, 2), (2, 5)), EinsumAttributes(("ij", "jk", "kl"), "li")),
            Case(((3,), (3,), (), (4,)), EinsumAttributes(("i", "i", "", "j"), "j")),
            Case(((2, 3), (2, 4), (2, 5)), EinsumAttributes(("ai", "aj", "ak"), "kji")),
        ),
        tolerance=4.0,
    )
)


# -- the order --------------------------------------------------------------------------------------------------------


def contraction_order(attrs: EinsumAttributes, sizes: Mapping[str, int]) -> list[Pair]:
    """The pairs of operands that are multiplied, one after the other: places in the list of what is left, in which a
    product comes last. Of few operands the order with the least cost by ``_cost``; of many the cheapest product first,
    until few are left."""
    terms, order = list(attrs.operands), []
    result = set(attrs.result)
    while len(terms) > EXACT:
        pairs = [(a, b) for b in range(len(terms)) for a in range(b)]
        a, b = min(pairs, key=lambda pair: _cost(_product(terms, pair, result), sizes))
        *_, made = _product(terms, (a, b), result)
        terms = [*(x for i, x in enumerate(terms) if i not in (a, b)), made]
        order.append((a, b))
    return [*order, *_cheapest(tuple(terms), result, sizes)[1]]


def _cheapest(terms: tuple[str, ...], result: set[str], sizes: Mapping[str, int]) -> tuple[float, list[Pair]]:
    """The least cost, and the order that has it; of several the one that takes operands from left to right."""
    if len(terms) < 2:
        return 0.0, []
    best: tuple[float, list[Pair]] | None = None
    for b in range(len(terms)):
        for a in range(b):
            step = _product(terms, (a, b), result)
            rest = (*(x for i, x in enumerate(terms) if i not in (a, b)), step[2])
            cost, order = _cheapest(rest, result, sizes)
            cost += _cost(step, sizes)
            if best is None or cost < best[0]:
                best = cost, [(a, b), *order]
    assert best is not None
    return best


def _product(terms: Sequence[str], pair: Pair, result: set[str]) -> tuple[str, str, str]:
    """Labels of two terms, and of their product: those that others or the result need."""
    a, b = pair
    needed = result.union(*(x for i, x in enumerate(terms) if i not in pair))
    return terms[a], terms[b], "".join(c for c in dict.fromkeys(terms[a] + terms[b]) if c in needed)


def _cost(step: tuple[str, str, str], sizes: Mapping[str, int]) -> float:
    """In elements that are moved: both operands, the product, and its multiply-adds at ``BALANCE`` an element."""
    a, b, _ = step
    return _count(set(a) | set(b), sizes) / BALANCE + sum(_count(labels, sizes) for labels in step)


def _count(labels: str | set[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[label] for label in labels)


# -- from subscripts to operands without repeats ----------------------------------------------------------------------


@frozen
class _Labelled:
    """A tensor with a label for each axis."""

    tensor: Tensor
    labels: str

    @property
    def estimate(self) -> int:
        """The number of elements of the tensor."""
        return math.prod(map(_number, self.tensor.shape))

    def size(self, label: str) -> Size:
        return self.tensor.shape[self.labels.index(label)]


def _parse_einsum(spec: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """Labels of each operand and of the result; an ellipsis becomes private labels (capital Greek letters)."""
    text = spec.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise GraphError(f"einsum: {spec!r} has {len(terms)} operands, actual {len(operands)}")
    hidden = [x.ndim - len(term.replace("...", "")) if "..." in term else 0 for term, x in zip(terms, operands)]
    most = max(hidden, default=0)
    private = "".join(chr(0x391 + i) for i in range(most))
    labels = [
        term.replace("...", private[most - count :]) if count >= 0 else term for term, count in zip(terms, hidden)
    ]
    for term, x, count in zip(labels, operands, hidden):
        if count < 0 or len(term) != x.ndim or not all(c.isalpha() for c in term):
            raise GraphError(f"einsum: {spec!r} does not fit an operand {x.type}")
    joined = "".join(labels)
    if arrow:
        if private and "..." not in right:
            raise GraphError(f"einsum: {spec!r} has an ellipsis in its operands and none in its result")
        result = right.replace("...", private)
    else:
        result = private + "".join(c for c in sorted(set(joined)) if joined.count(c) == 1 and c not in private)
    if len(set(result)) != len(result) or not set(result) <= set(joined):
        raise GraphError(f"einsum: the result of {spec!r} repeats a label, or has one that no operand has")
    return labels, result


def _without_repeats(x: _Labelled) -> _Labelled:
    """Take the diagonal of axes that carry one label: zero off it, then sum one of the axes."""
    o = FUNCTIONS
    for position, label in enumerate(x.labels):
        first = x.labels.index(label)
        if first != position:
            shape = x.tensor.shape
            on = o.equal(o.iota(shape, first), o.iota(shape, position))
            diagonal = o.sum(o.where(on, x.tensor, 0), axis=position, dtype=x.tensor.dtype)
            return _without_repeats(_Labelled(diagonal, x.labels[:position] + x.labels[position + 1 :]))
    return x


def _sum_out(x: _Labelled, keep: set[str]) -> _Labelled:
    axes = tuple(i for i, label in enumerate(x.labels) if label not in keep)
    if not axes:
        return x
    total = FUNCTIONS.sum(x.tensor, axis=axes, dtype=x.tensor.dtype)
    return _Labelled(total, "".join(c for c in x.labels if c in keep))


def _arrange(x: _Labelled, labels: str) -> Tensor:
    perm = tuple(x.labels.index(label) for label in labels)
    if perm == tuple(range(len(perm))):
        return x.tensor
    return FUNCTIONS.permute_dims(x.tensor, perm)


def _grouped(x: _Labelled, groups: Sequence[str]) -> Tensor:
    """The tensor with an axis for each group of labels, or one for each label, in that order.

    Axes that lie side by side are merged before they are moved: then all of it is a view.
    """
    groups = [group for group in groups if group]
    if any(group not in x.labels for group in groups):  # its labels do not follow one another
        return _arrange(x, "".join(groups))
    lying = sorted(groups, key=x.labels.index)
    merged = FUNCTIONS.reshape(x.tensor, tuple(product(tuple(map(x.size, group))) for group in lying))
    return _arrange(_Labelled(merged, "".join(group[0] for group in lying)), "".join(group[0] for group in groups))


def _contract(a: _Labelled, b: _Labelled, keep: set[str]) -> _Labelled:
    """The product of two labelled tensors, summed over the labels that are not needed any more; both have those.

    What both have goes in the order of the larger one, which then need not be copied where it lies in memory so.
    """
    o = FUNCTIONS
    first, other = (a, b) if a.estimate >= b.estimate else (b, a)
    both = [c for c in first.labels if c in other.labels]
    for label in both:
        require_equal(a.size(label), b.size(label), "einsum", f"sizes of the label {label!r}")
    batch = "".join(c for c in both if c in keep)
    summed = "".join(c for c in both if c not in keep)
    rows = "".join(c for c in a.labels if c not in both)
    columns = "".join(c for c in b.labels if c not in both)
    shape = {c: x.size(c) for x in (b, a) for c in x.labels}
    m, k, n = (product(tuple(shape[c] for c in group)) for group in (rows, summed, columns))
    leading = tuple(shape[c] for c in batch)
    left = o.reshape(_grouped(a, (*batch, rows, summed)), (*leading, m, k))
    right = o.reshape(_grouped(b, (*batch, summed, columns)), (*leading, k, n))
    if not summed:
        result = o.multiply(left, right)
    elif batch and _number(m) * _number(n) * _number(k) < SMALL and 1 in (m, n):
        # A matrix that meets one vector has no element that is used twice, so no tile or panel pays.
        axis = len(batch)
        columns_of_left = o.reshape(o.matrix_transpose(left), (*leading, k, m, 1))
        result = o.sum(o.multiply(columns_of_left, o.reshape(right, (*leading, k, 1, n))), axis=axis, dtype=left.dtype)
    else:
        result = matmul(left, right)
    labels = batch + rows + columns
    return _Labelled(o.reshape(result, tuple(shape[c] for c in labels)), labels)


def _rows_first(a: _Labelled, b: _Labelled, shared: set[str]) -> tuple[_Labelled, _Labelled]:
    """Two operands in the order in which their product begins with labels that it and a later operand have, and that
    are not summed then: these are the batch of the next product, each of whose matrices should lie in one place."""
    leads = [bool(shared & (set(x.labels) - set(y.labels))) for x, y in ((a, b), (b, a))]
    return (b, a) if leads == [False, True] else (a, b)


def _drop(x: _Labelled, label: str) -> _Labelled:
    axis = x.labels.index(label)
    shape = (*x.tensor.shape[:axis], *x.tensor.shape[axis + 1 :])
    return _Labelled(FUNCTIONS.reshape(x.tensor, shape), x.labels.replace(label, ""))


_LETTERS = ascii_uppercase + ascii_lowercase  # in the order in which an implied result has its labels


def _in_letters(items: Sequence[Any]) -> tuple[str, list[Any]]:
    """The subscripts and the operands of ``(operand, labels, operand, labels, …[, labels of the result])``."""

    def letters(labels: Any) -> str:
        if isinstance(labels, str) or not np.iterable(labels):
            raise GraphError(f"einsum: expected subscripts, or a list of labels after each operand, actual {labels!r}")
        numbers = [None if label is Ellipsis else integer(label, "einsum: a label", 0) for label in labels]
        if any(number is not None and number >= len(_LETTERS) for number in numbers):
            raise GraphError(f"einsum: a label is below {len(_LETTERS)}, actual {labels!r}")
        return "".join("..." if number is None else _LETTERS[number] for number in numbers)

    pairs = len(items) // 2
    terms = ",".join(letters(labels) for labels in items[1 : 2 * pairs : 2])
    result = f"->{letters(items[-1])}" if len(items) % 2 else ""
    return terms + result, list(items[0 : 2 * pairs : 2])


@public
def einsum(subscripts: str | TensorLike, *operands: TensorLike) -> Tensor:
    """Einstein's summation as ``np.einsum``: ellipses and diagonals too; three and more operands are
    contracted in the order that costs least.

    Args:
        subscripts: ``"ij,jk->ik"``, before the operands; or, in its place, each operand before the list of its labels,
            which are ints, and at the end the labels of the result: ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    Raises:
        GraphError: subscripts that do not fit the operands.

    Example:
        >>> sg.Session().run(sg.einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, -1.0]))
        array([-1., -1.], dtype=float32)
        >>> sg.einsum("bij,bkj->bik", sg.zeros((8, 2, 3)), sg.zeros((8, 4, 3))).shape
        (8, 2, 4)
    """
    if not isinstance(subscripts, str):
        text, arrays = _in_letters([subscripts, *operands])
        return einsum(text, *arrays)
    if not operands:
        raise GraphError(f"einsum: expected an operand for each term of {subscripts!r}")
    tensors = lift_all(operands, what="einsum")
    labels, result = _parse_einsum(subscripts, tensors)
    with graph_of(tensors):
        return rounded_once(lambda *tensors: _summed(tensors, labels, result), *tensors)


def _summed(tensors: Sequence[Tensor], labels: Sequence[str], result: str) -> Tensor:
    terms = _same_sizes([_without_repeats(_Labelled(x, term)) for x, term in zip(tensors, labels, strict=True)])
    for number, x in enumerate(terms):
        others = {label for other in (*terms[:number], *terms[number + 1 :]) for label in other.labels}
        terms[number] = _sum_out(x, others | set(result))
    return _contracted([x.tensor for x in terms], EinsumAttributes(tuple(x.labels for x in terms), result))


def _same_sizes(terms: Sequence[_Labelled]) -> list[_Labelled]:
    """Without axes of size 1 whose label is longer elsewhere."""
    longer = {label for x in terms for label in x.labels if x.size(label) != 1}
    found = []
    for x in terms:
        for label in [c for c in x.labels if c in longer and x.size(c) == 1]:
            x = _drop(x, label)
        found.append(x)
    return found


def _contracted(tensors: Sequence[Tensor], attrs: EinsumAttributes) -> Tensor:
    """The sum of products; of two operands a product of matrices."""
    if len(tensors) > 2:
        return graph_of(tensors).add(EINSUM, tensors, attrs).outputs[0]
    terms = [_Labelled(x, labels) for x, labels in zip(tensors, attrs.operands, strict=True)]
    total = terms[0] if len(terms) == 1 else _contract(terms[0], terms[1], set(attrs.result))
    return _arrange(total, attrs.result)
