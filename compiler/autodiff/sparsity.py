"""Sparsity: which elements of results depend on which elements of one operand, found without a run.

Input: a region, and which of its feeds is the *varying* one, whose elements are the sources. Output: the patterns of
its fetches (``patterns.py``). The walk evaluates the region with values that stand for all runs at once:

    Abstract ::= the pattern of a tensor (None: no element depends on a source),
                 its elements as far as the program knows them (None: not at all)

It is meant for derivatives: the program of a tangent is linear in the tangent, so the pattern of its result is that of
the derivative, and what a derivative leaves out (comparisons, ``stop_gradient``, what is constant) is not there to be
asked about. A factor that is known to be zero ends a dependence; a condition and an index that are known decide it. So
the pattern depends on the program alone. It has every element that can differ from zero, and those that are zero by
arithmetic that no rule here sees (x - x).

There is one rule for each role of an op. What moves elements is asked by its own reference, with the numbers of
elements in the place of these; twice, so that what it puts in beside them shows. Products and convolutions list which
factors meet. Loops of known length go turn by turn where that is short, and all others until nothing is added. Where
values decide what depends on what, a rule takes all that may, and notes the node as ``vague``.

The method, sets of indices that are propagated through a program: U. Geitner, J. Utke and A. Griewank, "Automatic
Computation of Sparse Jacobians by Applying the Method of Newsam and Ramsdell" (1996), and A. Griewank and A. Walther,
"Evaluating Derivatives", 2nd edition, section 7.1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from staticgrad.base.depth import all_levels
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.compiler.autodiff.patterns import Pattern, chained, dense, grouped, identity, joined, same, taken
from staticgrad.compiler.passes.expand import expand
from staticgrad.compiler.regions.region import Region, needed_in
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import OPS, Array
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.control.bodies import Body
from staticgrad.ops.control.loops import LoopAttributes

MOST_TURNS = 60_000  # nodes that loops are evaluated for turn by turn, each
MOST_PAIRS = 50_000_000  # factors that meet in one product
MOST_ROUNDS = 40  # of the body of a loop, until nothing is added


@frozen(eq=False)
class Known:
    """Elements that the program knows: ``value`` where ``where`` holds (None: everywhere)."""

    value: Array
    where: Array | None = None

    @property
    def all(self) -> Array | None:
        """The elements if all are known."""
        return self.value if self.where is None else None

    @property
    def zeros(self) -> Array:
        """True where an element is known to be zero."""
        return np.asarray((self.value == 0) & (True if self.where is None else self.where))


@frozen(eq=False)
class Abstract:
    """A stand-in for a tensor: its pattern, and its elements as far as they are known."""

    pattern: Pattern | None = None
    known: Known | None = None


NOTHING = Abstract()
Abstracts = Sequence[Abstract]


def patterns_of(region: Region, varying: Tensor, vague: dict[Node, None] | None = None) -> list[Pattern | None]:
    """The pattern of each fetch of a region by the elements of its feed ``varying``.

    Args:
        vague: is given the nodes of which values decide what depends on what.

    Raises:
        GraphError: a size on the way is known only when fed.
    """
    varies = {x for x in region.feeds if x is varying}
    given = [Abstract(identity(_size(x))) if x in varies else NOTHING for x in region.feeds]
    walk = _PatternWalk({} if vague is None else vague)
    return [value.pattern for value in walk.run(_expanded(region), given)]


def _expanded(region: Region) -> Region:
    """The region in primitives, without what its fetches do not need."""
    return expand(Region(region.graph, region.feeds, region.fetches))


def _size(x: Tensor) -> int:
    return math.prod(_shape(x))


def _shape(x: Tensor) -> tuple[int, ...]:
    if not x.type.static:
        raise GraphError(
            f"sparsity: expected sizes that are known when declared, actual {x.name!r} {x.type}", source=x.source
        )
    return tuple(map(int, x.shape))


class _PatternWalk:
    """The evaluation of regions and of the bodies in them."""

    def __init__(self, vague: dict[Node, None]) -> None:
        self.vague = vague
        self._bodies: dict[Body, Region] = {}

    @all_levels()
    def run(self, region: Region, given: Abstracts) -> list[Abstract]:
        """The values of a region's fetches from those of its feeds."""
        values = dict(zip(region.feeds, given, strict=True))
        needed = needed_in(region)
        for node in region.graph.nodes:
            if node in needed and not all(y in values for y in node.outputs):
                values.update(zip(node.outputs, self._node(node, [values[x] for x in node.inputs]), strict=True))
        return [values[x] for x in region.fetches]

    def body(self, body: Body) -> Region:
        """A body in primitives."""
        if body not in self._bodies:
            self._bodies[body] = _expanded(Region(body.graph, body.feeds, body.fetches))
        return self._bodies[body]

    def is_vague(self, node: Node) -> None:
        self.vague[node] = None

    @staticmethod
    def _may_know_carries(node: Node, operands: Abstracts) -> bool:
        """True of a loop that carries something known, such as a count, though not all it is given is known."""
        attrs = node.attrs
        if not isinstance(attrs, LoopAttributes) or attrs.ends_early or node.op.effect:
            return False
        known = [v.known is not None for v in operands]
        return any(known[: attrs.carries]) and not all(known)

    def _node(self, node: Node, operands: Abstracts) -> Abstracts:
        if all(v.pattern is None for v in operands):
            if self._may_know_carries(node, operands):
                return _LoopPattern(self, node, operands).results()
            return [Abstract(None, known) for known in _known(node, [v.known for v in operands])]
        rule = _RULES.get(node.op.role, _all_of_all)
        return rule(self, node, operands)


# -- what is known ----------------------------------------------------------------------------------------------------


_FILLED = ("pad", "window")  # have elements that are known whatever their operand is


def _known(node: Node, operands: Sequence[Known | None]) -> Sequence[Known | None]:
    """The known elements of a node's results, of which none varies."""
    nothing = [None] * len(node.outputs)
    op = node.op
    if op.draws or op.state or op.effect or not all(y.type.static for y in node.outputs):
        return nothing
    if op.role == "source":
        return [Known(np.asarray(op.reference(node.attrs)))] if op.rematerializable else nothing
    if op.elementwise:
        return [_known_elements(node, operands)]
    if not operands or (all(k is None for k in operands) and op.name not in _FILLED):
        return nothing
    masks = [np.zeros((), bool) if k is None else k.where for k in operands]
    partly = any(mask is not None for mask in masks)
    if partly and not (_moves(node) or op.role == "reduction"):
        return nothing
    values = [
        np.zeros(_shape(x), x.dtype) if k is None else k.value for k, x in zip(operands, node.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        results = op.reference(node.attrs, *values)
    arrays = [np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else (results,))]
    if not partly:
        return [Known(array) for array in arrays]
    shapes = [value.shape for value in values]
    if op.role == "reduction":
        (mask,) = masks
        assert mask is not None
        kept = mask.all(axis=node.attrs.axes)
        return [Known(arrays[0], kept.reshape(arrays[0].shape))]
    every = [np.broadcast_to(True if mask is None else mask, shape) for mask, shape in zip(masks, shapes, strict=True)]
    flat = np.concatenate([*(mask.ravel() for mask in every), [True]])  # the last is that of number -1
    return [Known(arrays[0], flat[_numbers(node, shapes)])]


def _known_elements(node: Node, operands: Sequence[Known | None]) -> Known | None:
    """The elements of an elementwise op's result whose operands are known, or of which one known operand is enough."""
    name, shape = node.op.name, _shape(node.outputs[0])
    if name == "where":
        return _known_choice(operands, shape)
    some = [k for k in operands if k is not None]
    absorbed = None
    if name in _PRODUCTS:
        absorbed = [k.zeros for k in some if k.zeros.any()]
    if len(some) < len(operands) and not absorbed:
        return None
    values = [np.ones((), x.dtype) if k is None else k.value for k, x in zip(operands, node.inputs, strict=True)]
    with np.errstate(all="ignore"):
        value = np.broadcast_to(np.asarray(node.op.reference(node.attrs, *values)), shape)
    masks = [k.where for k in some if k.where is not None]
    if len(some) == len(operands) and not masks:
        return Known(value)
    known = np.full(shape, len(some) == len(operands))
    for mask in masks:
        known = known & mask
    zero = functools.reduce(np.logical_or, absorbed or [], np.zeros(shape, bool))
    return Known(np.where(zero, np.zeros((), value.dtype), value), known | zero)


def _known_choice(operands: Sequence[Known | None], shape: tuple[int, ...]) -> Known | None:
    condition, *parts = operands
    if condition is None or all(part is None for part in parts):
        return None
    a, b = (
        (np.zeros((), bool), np.zeros((), bool))
        if part is None
        else (part.value, np.ones((), bool) if part.where is None else part.where)
        for part in parts
    )
    value = np.broadcast_to(np.where(condition.value, a[0], b[0]), shape)
    known = np.broadcast_to(np.where(condition.value, a[1], b[1]), shape)
    known = known if condition.where is None else known & condition.where
    return Known(value, None if known.all() else known)


# -- elements that move -----------------------------------------------------------------------------------------------


def _moves(node: Node) -> bool:
    """True if each element of the result is one of the operands or a constant."""
    return node.op.view or (node.op.role == "write" and node.op.moves)


def _numbers(node: Node, shapes: Sequence[tuple[int, ...]], others: Sequence[Array] = ()) -> Array:
    """For each element of the result of an op that moves elements of its operands: the element that it is, counted
    through all of them; -1 where it is none. ``others`` are further operands, which are known."""
    sizes = [math.prod(shape) for shape in shapes]
    total, first = sum(sizes), 1
    numbers = []
    for shape, size in zip(shapes, sizes, strict=True):
        numbers.append(np.arange(first, first + size).reshape(shape))
        first += size
    with np.errstate(all="ignore"):
        found, moved = (
            np.asarray(node.op.reference(node.attrs, *(n + step for n in numbers), *others)) for step in (0, total)
        )
    return np.where(moved - found == total, found - 1, -1) if total else np.full(found.shape, -1)


def _moved(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    shapes = [_shape(x) for x in node.inputs]
    pattern = chained([v.pattern for v in operands], [math.prod(shape) for shape in shapes])
    assert pattern is not None
    return [Abstract(taken(pattern, _numbers(node, shapes)))]


def _gathered(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """Elements at known indices; along an axis whose index is not known, all of them."""
    x, *indices = operands
    if x.pattern is None:
        return _all_of_all(walk, node, operands)
    pattern, shape, at = _along_unknown(walk, node, x.pattern, indices, 0)
    return [Abstract(taken(pattern, _numbers(node, [shape], at)))]


def _along_unknown(
    walk: _PatternWalk, node: Node, pattern: Pattern, indices: Abstracts, indexed: int
) -> tuple[Pattern, tuple[int, ...], list[Array]]:
    """The pattern with the axes that unknown indices go along united, its shape, and the indices into it."""
    shape, at = list(_shape(node.inputs[indexed])), []
    axes = node.attrs.axes
    for axis, index, x in zip(axes, indices, node.inputs[-len(axes) :], strict=True):
        known = None if index.known is None or index.pattern is not None else index.known.all
        if known is None and shape[axis] != 1:
            walk.is_vague(node)
            pattern = _united(pattern, tuple(shape), (axis,))
            shape[axis] = 1
        at.append(np.zeros(_shape(x), np.int64) if known is None else known)
    return pattern, tuple(shape), at


def _united(pattern: Pattern, shape: tuple[int, ...], axes: Sequence[int]) -> Pattern:
    """The pattern of a tensor with some axes reduced to size 1."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    size = math.prod(kept)
    numbers = np.broadcast_to(np.arange(size).reshape(kept), shape)
    return grouped(pattern, numbers, np.arange(pattern.size), size)


def _repeated(pattern: Pattern, shape: tuple[int, ...], result: tuple[int, ...]) -> Pattern:
    """The pattern of a tensor that is broadcast."""
    if shape == result:
        return pattern
    return taken(pattern, np.broadcast_to(np.arange(pattern.size).reshape(shape), result))


def _written(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """Writes that add up what meets."""
    if _moves(node):
        return _moved(walk, node, operands)
    if node.op.name == "fold":
        return _folded(node, operands)
    if node.op.name != "scatter_add":
        return _all_of_all(walk, node, operands)
    base, updates, *indices = operands
    if updates.pattern is None:
        return [Abstract(base.pattern)]
    shape = _shape(node.inputs[0])
    _, reduced, at = _along_unknown(walk, node, identity(math.prod(shape)), indices, 0)
    numbers = np.arange(math.prod(reduced)).reshape(reduced)
    axes = node.attrs.axes
    targets = np.moveaxis(numbers, axes, range(len(axes)))[tuple(at)]
    added = grouped(updates.pattern, targets, np.arange(targets.size), numbers.size)
    return [Abstract(joined(base.pattern, _repeated(added, reduced, shape)))]


def _folded(node: Node, operands: Abstracts) -> Abstracts:
    (windows,) = operands
    assert windows.pattern is not None
    shape = _shape(node.outputs[0])
    size = math.prod(shape)
    places = np.asarray(OPS["window"].reference(node.attrs.window, np.arange(1, size + 1).reshape(shape))).ravel()
    inside = places > 0  # what hangs over the border is zero
    return [Abstract(grouped(windows.pattern, places[inside] - 1, np.flatnonzero(inside), size))]


# -- elementwise ops, sums --------------------------------------------------------------------------------------------

_PRODUCTS = ("multiply", "multiply_no_nan", "multiply_zeros")


def _elementwise(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    shape, name = _shape(node.outputs[0]), node.op.name
    kept: list[Array | None] = [None] * len(operands)
    if name in _PRODUCTS and any(v.pattern is None for v in operands):
        place = int(operands[0].pattern is None)
        factor = operands[1 - place].known
        if factor is not None:
            kept[place] = ~np.broadcast_to(factor.zeros, shape).ravel()
    elif name == "where":
        condition = operands[0].known
        if condition is not None and operands[0].pattern is None:
            value = np.broadcast_to(condition.value.astype(bool), shape).ravel()
            is_known = np.broadcast_to(True if condition.where is None else condition.where, shape).ravel()
            kept[1:] = [value | ~is_known, ~value | ~is_known]
    result: Pattern | None = None
    for x, v, where in zip(node.inputs, operands, kept, strict=True):
        if v.pattern is not None:
            pattern = _repeated(v.pattern, _shape(x), shape)
            result = joined(result, pattern if where is None else pattern.only(where))
    return [Abstract(result)]


def _reduced(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    (x,) = operands
    assert x.pattern is not None
    return [Abstract(_united(x.pattern, _shape(node.inputs[0]), node.attrs.axes))]


# -- products ---------------------------------------------------------------------------------------------------------


def _product(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """Matrices and convolutions: sums of products of two factors."""
    if node.op.name != "dot":
        return _convolved(walk, node, operands)
    result: Pattern | None = None
    for place in (0, 1):
        p, factor = operands[place].pattern, operands[1 - place]
        if p is not None:
            result = joined(result, _dot(walk, node, p, factor.known if factor.pattern is None else None, place))
    return [Abstract(result)]


def _dot(walk: _PatternWalk, node: Node, pattern: Pattern, factor: Known | None, place: int) -> Pattern:
    """The pattern of a product by its operand ``place``. Products by the second one are read as transposed."""
    shapes = [_shape(x) for x in node.inputs]
    numbers = [np.arange(math.prod(shape)).reshape(shape) for shape in (*shapes, _shape(node.outputs[0]))]
    zeros = np.zeros(shapes[1 - place], bool) if factor is None else factor.zeros
    if place == 1:
        numbers = [n.swapaxes(-1, -2) for n in numbers]
        zeros = zeros.swapaxes(-1, -2)
    ours, result = numbers[place], numbers[2]  # (…, m, k) and (…, m, n), of a factor (…, k, n)
    m, n, size = ours.shape[-2], result.shape[-1], result.size
    if zeros.any():
        *batch, k, j = np.nonzero(~zeros)
        if m * len(j) <= MOST_PAIRS:
            return grouped(pattern, result.swapaxes(-1, -2)[(*batch, j)], ours.swapaxes(-1, -2)[(*batch, k)], size)
        walk.is_vague(node)
    rows = np.broadcast_to(np.arange(size // max(n, 1)).reshape(*ours.shape[:-1], 1), ours.shape)
    united = grouped(pattern, rows, ours, math.prod(ours.shape[:-1]))
    row_of = np.empty(size, np.int64)
    row_of[result.ravel()] = np.repeat(np.arange(united.size), n)
    return taken(united, row_of)


def _convolved(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """Convolutions and their transposes: which elements of image, weights and result meet in a product."""
    tensors = {"convolution": "xwy", "convolution_input_grad": "ywx", "convolution_weight_grad": "xyw"}
    roles = tensors.get(node.op.name)
    if roles is None:
        return _all_of_all(walk, node, operands)
    x, w, y = (_shape((*node.inputs, node.outputs[0])[roles.index(role)]) for role in "xwy")
    if y[0] * math.prod(y[2:]) * math.prod(w) > MOST_PAIRS:
        walk.is_vague(node)
        return _all_of_all(walk, node, operands)
    meeting = _meeting(node, x, w, y)
    size = _size(node.outputs[0])
    result: Pattern | None = None
    for place in (0, 1):
        pattern, other = operands[place].pattern, operands[1 - place]
        if pattern is None:
            continue
        ours, theirs, results = (meeting[role] for role in (roles[place], roles[1 - place], roles[2]))
        if other.pattern is None and other.known is not None and (zeros := other.known.zeros.ravel()).any():
            met = ~zeros[theirs]
            ours, results = ours[met], results[met]
        result = joined(result, grouped(pattern, results, ours, size))
    return [Abstract(result)]


def _meeting(node: Node, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]) -> dict[str, Array]:
    """The numbers of the elements of image ``x``, weights ``w`` and result ``y`` that meet in each product."""
    attrs = node.attrs
    groups, filters = attrs.groups, w[0] // max(attrs.groups, 1)
    n, g, o, c, p, q, i, j = np.ogrid[
        : y[0], :groups, :filters, : w[1], : y[2], : y[3], : w[2], : w[3]
    ]  # fmt: skip
    row = p * attrs.stride[0] + i * attrs.dilation[0] - attrs.padding[0][0]
    column = q * attrs.stride[1] + j * attrs.dilation[1] - attrs.padding[1][0]
    inside = (row >= 0) & (row < x[2]) & (column >= 0) & (column < x[3])
    numbers = {
        "x": ((n * x[1] + g * w[1] + c) * x[2] + row) * x[3] + column,
        "w": (((g * filters + o) * w[1] + c) * w[2] + i) * w[3] + j,
        "y": ((n * y[1] + g * filters + o) * y[2] + p) * y[3] + q,
    }
    shape = np.broadcast_shapes(inside.shape, *(found.shape for found in numbers.values()))
    where = np.broadcast_to(inside, shape)
    return {role: np.broadcast_to(found, shape)[where] for role, found in numbers.items()}


# -- routines and all else --------------------------------------------------------------------------------------------


def _routine(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """Running sums go along an axis, systems of a triangular matrix along their columns, other matrices are pieces of a
    batch."""
    if node.op.name in ("cumulative_sum", "linear_recurrence") and all(v.pattern is None for v in operands[:-1]):
        return [Abstract(_running(operands[-1].pattern, _shape(node.outputs[0]), node.attrs.axis, node.attrs.reverse))]
    if node.op.name == "triangular_solve" and operands[0].pattern is None:
        backwards = node.attrs.lower == node.attrs.transposed
        shape = _shape(node.outputs[0])
        return [Abstract(_running(operands[1].pattern, shape, len(shape) - 2, backwards))]
    walk.is_vague(node)
    if node.op.batch is not last_axes:
        return _all_of_all(walk, node, operands)
    batch = _shape(node.outputs[0])[:-2]
    united: Pattern | None = None
    for x, v in zip(node.inputs, operands, strict=True):
        if v.pattern is None:
            continue
        shape = _shape(x)
        if shape[:-2] != batch:
            return _all_of_all(walk, node, operands)
        united = joined(united, _united(v.pattern, shape, (len(shape) - 2, len(shape) - 1)))
    assert united is not None
    if any(_shape(y)[: len(batch)] != batch for y in node.outputs):
        return _all_of_all(walk, node, operands)
    pieces = max(math.prod(batch), 1)
    return [Abstract(taken(united, np.repeat(np.arange(united.size), _size(y) // pieces))) for y in node.outputs]


def _running(pattern: Pattern | None, shape: tuple[int, ...], axis: int, reverse: bool) -> Pattern:
    """The pattern of a tensor whose elements depend on all before them along an axis, and on themselves."""
    assert pattern is not None
    numbers = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axis, -1)
    later, earlier = np.tril_indices(shape[axis])
    if reverse:
        later, earlier = earlier, later
    return grouped(pattern, numbers[..., later], numbers[..., earlier], pattern.size)


def _passed(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """The first operand, of an op that hands it on and does no more."""
    if all(y.type == node.inputs[0].type for y in node.outputs) and all(v.pattern is None for v in operands[1:]):
        return [operands[0]] * len(node.outputs)
    return _all_of_all(walk, node, operands)


def _all_of_all(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    """Every element of every result depends on all that any operand depends on."""
    walk.is_vague(node)
    one: Pattern | None = None
    for v in operands:
        if v.pattern is not None:
            one = joined(one, dense(v.pattern, 1))
    assert one is not None
    return [Abstract(taken(one, np.zeros(_size(y), np.int64))) for y in node.outputs]


# -- loops and branches -----------------------------------------------------------------------------------------------


def _control(walk: _PatternWalk, node: Node, operands: Abstracts) -> Abstracts:
    if isinstance(node.attrs, LoopAttributes):
        return _LoopPattern(walk, node, operands).results()
    predicate, *captured = operands
    then, otherwise = node.attrs.bodies
    known = None if predicate.known is None else predicate.known.all
    if known is not None:
        return walk.run(walk.body(then if known else otherwise), captured)
    branches = [walk.run(walk.body(body), captured) for body in (then, otherwise)]
    walk.is_vague(node)
    return [Abstract(joined(a.pattern, b.pattern)) for a, b in zip(*branches, strict=True)]


class _LoopPattern:
    """A loop of which some operand varies."""

    def __init__(self, walk: _PatternWalk, node: Node, operands: Abstracts) -> None:
        self.walk, self.node = walk, node
        self.attrs: LoopAttributes = node.attrs
        if self.attrs.counted:
            operands = operands[1:]
        middle = self.attrs.carries
        end = middle + self.attrs.sequences
        self.init, self.rows, self.shared = operands[:middle], operands[middle:end], operands[end:]
        self.region = walk.body(self.attrs.body)
        self.stacked = self.attrs.body.fetches[middle:]

    def results(self) -> list[Abstract]:
        length = self.attrs.length
        short = isinstance(length, int) and length * len(self.region.graph.nodes) <= MOST_TURNS
        if short and not self.attrs.ends_early:
            assert isinstance(length, int)
            return self._turn_by_turn(length)
        if all(v.pattern is None for v in (*self.init, *self.rows, *self.shared)):
            return [NOTHING] * len(self.node.outputs)
        self.walk.is_vague(self.node)
        return self._until_nothing_is_added()

    def _turn_by_turn(self, length: int) -> list[Abstract]:
        carries = list(self.init)
        stacks: list[list[Abstract]] = [[NOTHING] * length for _ in self.stacked]
        for turn in reversed(range(length)) if self.attrs.reverse else range(length):
            rows = [_row(v, turn, length) for v in self.rows]
            number = Abstract(None, Known(np.asarray(turn, np.int64)))
            made = self.walk.run(self.region, [number, *carries, *rows, *self.shared])
            carries = made[: len(carries)]
            for stack, value in zip(stacks, made[len(carries) :], strict=True):
                stack[turn] = value
        return [*carries, *map(_stacked, stacks, self.stacked)]

    def _until_nothing_is_added(self) -> list[Abstract]:
        carries = list(self.init)
        rows = [Abstract(_any_row(v, x)) for v, x in zip(self.rows, self._sequences(), strict=True)]
        for number in range(MOST_ROUNDS + 1):
            made = self.walk.run(self.region, [NOTHING, *carries, *rows, *self.shared])
            after = [self._either(a, b) for a, b in zip(carries, made, strict=False)]
            if all(same(a.pattern, b.pattern) and a.known is b.known for a, b in zip(after, carries, strict=True)):
                break
            if number == MOST_ROUNDS:
                after = self._all_carried([*carries, *made, *rows, *self.shared])
            carries = after
        else:
            made = self.walk.run(self.region, [NOTHING, *carries, *rows, *self.shared])
        stacked = made[len(carries) :]
        length = self.attrs.length if isinstance(self.attrs.length, int) else 0
        together = [
            Abstract(None if v.pattern is None else taken(v.pattern, np.tile(np.arange(v.pattern.size), length)))
            for v in stacked
        ]
        count = [NOTHING] * (self.attrs.first_result - self.attrs.carries)
        outputs = self.node.outputs[self.attrs.first_result :]
        return [*carries, *count, *together[: len(outputs)]]

    def _sequences(self) -> Sequence[Tensor]:
        first = self.attrs.counted + self.attrs.carries
        return self.node.inputs[first : first + self.attrs.sequences]

    @staticmethod
    def _either(before: Abstract, after: Abstract) -> Abstract:
        """The stand-in for a carry of which both stand for some turns."""
        a, b = before.known, after.known
        kept = a is not None and (a is b or _equal(a, b))
        pattern = before.pattern if same(before.pattern, after.pattern) else joined(before.pattern, after.pattern)
        return Abstract(pattern, a if kept else None)

    def _all_carried(self, values: Abstracts) -> list[Abstract]:
        """Carries that depend on all that anything in the loop depends on."""
        one: Pattern | None = None
        for v in values:
            if v.pattern is not None:
                one = joined(one, dense(v.pattern, 1))
        assert one is not None
        sizes = [_size(x) for x in self.attrs.body.fetches[: self.attrs.carries]]
        return [Abstract(taken(one, np.zeros(size, np.int64))) for size in sizes]


def _equal(a: Known, b: Known | None) -> bool:
    if b is None or (a.where is None) != (b.where is None):
        return False
    alike = np.array_equal(a.value, b.value, equal_nan=a.value.dtype.kind == "f")
    return alike and (a.where is None or b.where is None or np.array_equal(a.where, b.where))


def _row(v: Abstract, turn: int, length: int) -> Abstract:
    """One row of a sequence."""
    pattern = None
    if v.pattern is not None:
        size = v.pattern.size // length
        pattern = taken(v.pattern, np.arange(turn * size, (turn + 1) * size))
    known = None
    if v.known is not None:
        known = Known(v.known.value[turn], None if v.known.where is None else v.known.where[turn])
    return Abstract(pattern, known)


def _stacked(rows: Sequence[Abstract], row: Tensor) -> Abstract:
    """The rows of a result."""
    shape = _shape(row)
    pattern = chained([v.pattern for v in rows], [math.prod(shape)] * len(rows))
    if all(v.known is None for v in rows):
        return Abstract(pattern)
    unknown = Known(np.zeros(shape, row.dtype), np.zeros(shape, bool))
    known = [unknown if v.known is None else v.known for v in rows]
    value = np.stack([k.value for k in known])
    if all(k.where is None for k in known):
        return Abstract(pattern, Known(value))
    masks = [np.broadcast_to(True if k.where is None else k.where, shape) for k in known]
    return Abstract(pattern, Known(value, np.stack(masks)))


def _any_row(v: Abstract, x: Tensor) -> Pattern | None:
    """The pattern of a row that may be any of a sequence's."""
    if v.pattern is None:
        return None
    return _united(v.pattern, _shape(x), (0,))


_RULES: dict[str, Callable[[_PatternWalk, Node, Abstracts], Abstracts]] = {
    "elementwise": _elementwise,
    "view": _moved,
    "write": _written,
    "gather": _gathered,
    "reduction": _reduced,
    "matrix": _product,
    "routine": _routine,
    "control": _control,
    "alias": _passed,
    "store": _passed,
    "effect": _passed,
}
