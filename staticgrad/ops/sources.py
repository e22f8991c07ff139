"""Sources of values: placeholders, variables, constants, filled and counting tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from staticgrad.base.errors import FeedError, GradientError, GraphError
from staticgrad.base.extents import is_open
from staticgrad.base.frozen import frozen
from staticgrad.base.types import (
    DTYPES,
    Dim,
    DTypeLike,
    Shape,
    ShapeLike,
    Size,
    TensorType,
    computed,
    declared_array,
    dtype_of,
    float32,
    float64,
    int64,
    integer,
    is_integer,
    is_short_float,
    is_weak,
    normalize_axis,
    number,
    open_size,
    scalar_dtype,
    sizes,
    to_array,
    uint64,
)
from staticgrad.graph.graph import Node, Tensor, get_default_graph
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS, Array, Case, Op, public, register


@frozen
class SourceAttributes:
    """Type of a placeholder."""

    shape: Shape
    dtype: np.dtype


def _fed(attrs: SourceAttributes) -> Array:
    raise FeedError("a placeholder has no value of its own: it must be fed")


PLACEHOLDER = register(
    Op(
        "placeholder",
        "A tensor that must be fed.",
        infer=lambda a: TensorType(a.shape, a.dtype),
        reference=_fed,
        vjp=lambda o, node, ct: (),
        role="source",
    )
)


def as_shape(shape: ShapeLike, what: str, *, free: bool = False) -> Shape:
    """A tuple of sizes from an int, a Dim or a sequence. With ``free``, each None becomes a new symbol."""
    items = tuple(shape) if np.iterable(shape) else (shape,)
    result: list[Size] = []
    for position, item in enumerate(items):
        if item is None and free:
            result.append(open_size(f"{what}.{position}"))
        elif isinstance(item, Size) and not isinstance(item, bool):
            result.append(item)
        elif isinstance(item, np.integer):
            result.append(int(item))
        else:
            named = ": give a dtype by name, dtype=" if isinstance(item, (np.dtype, type)) else ""
            raise GraphError(f"{what}: a shape holds sizes, not {item!r}{named}")
    for size in result:
        if isinstance(size, int) and size < 0:
            raise GraphError(f"{what}: negative size in shape {tuple(result)}")
    return tuple(result)


def _floats(dtype: DTypeLike | None) -> np.dtype:
    """The dtype of a source of floats: float32 where none is given."""
    return float32 if dtype is None else dtype_of(dtype)


@public
def placeholder(
    shape: ShapeLike, dtype: DTypeLike | None = float32, *, name: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor that must be fed.

    Args:
        shape: sizes; ``None`` is a size of its own that the feeds of a call bind, ``sg.dim`` one that several share.
        dtype: None is float32, too.
        requires_grad: a leaf whose gradient a tape's backward accumulates.

    Raises:
        GraphError: an unsupported dtype, or an integer tensor that shall require a gradient.

    Example:
        >>> x = sg.placeholder((None, 2), name="x")
        >>> sg.Session().run(x * 10, {x: [[1.0, 2.0], [3.0, 4.0]]})
        array([[10., 20.],
               [30., 40.]], dtype=float32)
    """
    graph = get_default_graph()
    type_ = SourceAttributes(as_shape(shape, name or "placeholder", free=True), _floats(dtype))
    node = graph.add(PLACEHOLDER, (), type_, name=name)
    x = node.outputs[0]
    if requires_grad:
        x.requires_grad_()
    return x


@frozen(eq=False)
class VariableAttributes:
    """A variable: the key of its state, its type, and how its first value is made.

    ``initial(rng)`` gives the first value from a generator that belongs to the variable alone.
    """

    key: str
    shape: Shape
    dtype: np.dtype
    initial: Callable[[np.random.Generator], Array]
    trainable: bool = True

    holds_sizes = False


def _stateful(attrs: VariableAttributes | AccumulatedAttributes) -> Array:
    raise FeedError(f"the value of {attrs.key!r} belongs to a session")


VARIABLE = register(
    Op(
        "variable",
        "The value of a variable at the start of the run.",
        infer=lambda a: TensorType(a.shape, a.dtype),
        reference=_stateful,
        vjp=lambda o, node, ct: (),
        role="source",
        state=True,
        batch="declare variables outside of the function",
    )
)


@frozen
class AccumulatedAttributes:
    """The key of an accumulated gradient of the session, ``<tensor's op>:<output>``, and its type."""

    key: str
    shape: Shape
    dtype: np.dtype


ACCUMULATED_GRAD = register(
    Op(
        "accumulated_grad",
        "The gradient that backwards of tapes have accumulated in the session, at the start of the run.",
        infer=lambda a: TensorType(a.shape, a.dtype),
        reference=_stateful,
        differentiable=False,
        role="source",
        state=True,
    )
)


@public
def accumulated_grad(x: Tensor) -> Tensor:
    """The gradient of ``x`` that backwards of tapes have accumulated in the session, as ``sess.grad(x)`` gives it, at
    the start of the run; in a post accumulate grad hook with what the backward has added.

    What depends on a gradient that is not there is left out of a run, and cannot be fetched.

    Raises:
        GraphError: ``x`` is no tensor.
        GradientError: no gradient adds up for ``x``.

    Example:
        >>> w = sg.Variable([3.0, 4.0])
        >>> norm = sg.sqrt(sg.sum(sg.accumulated_grad(w) ** 2))
        >>> sess = sg.Session()
        >>> with sess.forward(loss := sg.sum(w**2 / 2)) as tape:
        ...     tape.backward(loss)
        >>> sess.run(norm)
        array(5., dtype=float32)
    """
    if not isinstance(x, (Tensor, Node)):
        raise GraphError(f"accumulated_grad: expected a tensor, actual {x!r}")
    x = lift(x)
    if not (x.requires_grad and (x.is_leaf or x.retains_grad)):
        raise GradientError(
            f"accumulated_grad: no gradient adds up for {x.name!r}: it is no leaf that requires one and has no"
            " retain_grad",
            source=x.source,
        )
    x.graph.settle_names()
    attrs = AccumulatedAttributes(f"{x.op.name}:{x.index}", x.shape, x.dtype)
    return x.graph.add(ACCUMULATED_GRAD, (), attrs).outputs[0]


MOST_CARRIED = 1 << 12  # elements of a constant that a rule makes: a program computes more where it reads them


@frozen(eq=False)
class ConstantAttributes:
    """An array, compared by its bits. Large ones lie where machine code reads them (``content_of``)."""

    dtype: np.dtype
    shape: tuple[int, ...]
    data: bytes | memoryview = field(repr=False)

    @property
    def value(self) -> Array:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConstantAttributes) or (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        if self.data is other.data:
            return True
        a, b = np.frombuffer(self.data, np.uint8), np.frombuffer(other.data, np.uint8)
        starts = range(0, max(len(a), len(b)), _COMPARED)
        return len(a) == len(b) and all(np.array_equal(a[i : i + _COMPARED], b[i : i + _COMPARED]) for i in starts)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, bytes(self.data[:_HASHED]), bytes(self.data[-_HASHED:])))


_COMPARED, _HASHED = 1 << 16, 64  # bytes of constants: compared at a time; at each end, from which hashes are made
_ALIGNED, _LINE = 1 << 12, 64  # bytes: from which a constant begins at a cache line; of one


def content_of(array: Array) -> bytes | memoryview:
    """A copy of an array's elements in row-major order, which no one writes: of a large one in memory that begins at a
    cache line, so that programs need no copy of their own."""
    if array.nbytes < _ALIGNED:
        return array.tobytes()
    memory = np.empty(array.nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    own = memory[start : start + array.nbytes]
    own.view(array.dtype).reshape(array.shape)[...] = array
    own.flags.writeable = False
    return own.data


CONSTANT = register(
    Op(
        "constant",
        "An array that is part of the program.",
        infer=lambda a: TensorType(a.shape, a.dtype),
        reference=lambda a: a.value,
        vjp=lambda o, node, ct: (),
        role="source",
        rematerializable=True,
    )
)


@public
def constant(value: TensorLike, dtype: DTypeLike | None = None, *, name: str | None = None) -> Tensor:
    """A tensor with a fixed value; the array is copied.

    Without ``dtype`` Python floats are float32, ints int64, bools bool; arrays keep theirs.

    Example:
        >>> sg.constant(1.5).dtype, sg.constant([1, 2]).dtype, sg.constant(np.ones(2)).dtype
        (dtype('float32'), dtype('int64'), dtype('float64'))
        >>> sg.Session().run(sg.constant([[1, 2], [3, 4]], sg.float32) @ [1.0, 1.0])
        array([3., 7.], dtype=float32)
    """
    if isinstance(value, Tensor):
        raise GraphError(f"constant: {value.name!r} is a tensor already")
    array = declared_array(value, None if dtype is None else dtype_of(dtype))
    attrs = ConstantAttributes(array.dtype, array.shape, content_of(array))
    return get_default_graph().add(CONSTANT, (), attrs, name=name).outputs[0]


@public
def asarray(obj: TensorLike, *, dtype: DTypeLike | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of anything that can be an operand: a tensor itself, numbers and arrays as constants.

    Args:
        dtype: of the result. Python numbers, in lists too, are converted to it once and must fit; tensors and arrays
            are cast as by ``astype``.
        copy: without effect: nothing overwrites a tensor, and arrays are copied.

    Raises:
        GraphError: the value is no number, array or tensor, or a number that the dtype does not hold.

    Example:
        >>> sg.asarray([1.0, 2.0]).dtype, sg.asarray(np.ones(2)).dtype, sg.asarray([1, 2], dtype=sg.float32).dtype
        (dtype('float32'), dtype('float64'), dtype('float32'))
    """
    if dtype is None:
        return lift(obj)
    return constant(obj, dtype) if is_weak(obj) or isinstance(obj, (list, tuple)) else FUNCTIONS.astype(obj, dtype)


@frozen(eq=False)
class FullAttributes:
    """One number in every place; 0.0 and -0.0 are two."""

    shape: Shape
    dtype: np.dtype
    value: float | int | bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FullAttributes) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.shape, self.dtype, self.value, is_open(self.value) or math.copysign(1, self.value)


FULL = register(
    Op(
        "full",
        "A tensor filled with one number.",
        infer=lambda a: TensorType(a.shape, a.dtype),
        reference=lambda a: np.full(a.shape, a.value, a.dtype),
        vjp=lambda o, node, ct: (),
        role="source",
        rematerializable=True,
        fill=True,
        dtypes=DTYPES,
        cases=(Case((), FullAttributes((2, 3), float32, 1.5)), Case((), FullAttributes((), int64, 7))),
    )
)


def _number(value: Any, dtype: np.dtype) -> float | int | bool:
    """A number in a dtype; an extent, which only the compiler has, is an integer's."""
    if isinstance(value, int) and is_open(value):
        return value
    number: float | int | bool = to_array(value, dtype).item()
    return number


@public
def full(shape: ShapeLike, fill_value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor filled with one number (a tensor as ``fill_value`` is broadcast).

    Without ``dtype`` Python floats are float32, ints int64, bools bool.

    Raises:
        GraphError: a negative size.

    Example:
        >>> sg.Session().run(sg.full((2, 2), 7))
        array([[7, 7],
               [7, 7]])
        >>> sg.Session().run(sg.full((2, 2), sg.constant([1.0, 2.0])))
        array([[1., 2.],
               [1., 2.]], dtype=float32)
    """
    if isinstance(fill_value, Tensor):
        x = fill_value if dtype is None else FUNCTIONS.astype(fill_value, dtype)
        return FUNCTIONS.broadcast_to(x, shape)
    kind = dtype_of(dtype) if dtype is not None else scalar_dtype(fill_value) or declared_array(fill_value).dtype
    attrs = FullAttributes(as_shape(shape, "full"), kind, _number(fill_value, kind))
    return get_default_graph().add(FULL, (), attrs).outputs[0]


@public
def zeros(shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of zeros; float32 without ``dtype``.

    Example:
        >>> sg.Session().run(sg.zeros(3, dtype=sg.int32))
        array([0, 0, 0], dtype=int32)
    """
    return full(shape, 0, dtype=_floats(dtype))


@public
def ones(shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of ones; float32 without ``dtype``.

    Example:
        >>> sg.Session().run(sg.ones((2, 2)))
        array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    return full(shape, 1, dtype=_floats(dtype))


@public
def empty(shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor whose values do not matter; float32 without ``dtype``. A program has no values of its own accord, so
    they are zeros.

    Example:
        >>> sg.empty((2, 3)).shape
        (2, 3)
    """
    return zeros(shape, dtype=dtype)


@public
def empty_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of the shape (and dtype, unless given) of ``x`` whose values do not matter; they are zeros.

    Example:
        >>> y = sg.empty_like(sg.ones((2, 3), dtype=sg.int32))
        >>> y.shape, y.dtype
        ((2, 3), dtype('int32'))
    """
    return zeros_like(x, dtype=dtype)


@public
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros of the shape (and dtype, unless given) of ``x``.

    Example:
        >>> sg.Session().run(sg.zeros_like([1.5, 2.5]))
        array([0., 0.], dtype=float32)
    """
    x = lift(x)
    with x.graph:
        return full(x.shape, 0, dtype=x.dtype if dtype is None else dtype)


@public
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Ones of the shape (and dtype, unless given) of ``x``.

    Example:
        >>> sg.Session().run(sg.ones_like([[1, 2, 3]], dtype=sg.float32))
        array([[1., 1., 1.]], dtype=float32)
    """
    x = lift(x)
    with x.graph:
        return full(x.shape, 1, dtype=x.dtype if dtype is None else dtype)


@public
def full_like(x: TensorLike, fill_value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """One number in the shape (and dtype, unless given) of ``x``.

    Example:
        >>> sg.Session().run(sg.full_like(sg.zeros(2), 7))
        array([7., 7.], dtype=float32)
    """
    x = lift(x)
    with x.graph:
        return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype)


@frozen
class IotaAttributes:
    """Counting along one axis."""

    shape: Shape
    dtype: np.dtype
    axis: int


def _iota(attrs: IotaAttributes) -> Array:
    shape = [1] * len(attrs.shape)
    shape[attrs.axis] = -1
    known = sizes(attrs.shape)
    line = np.arange(known[attrs.axis]).astype(attrs.dtype)
    return np.broadcast_to(line.reshape(shape), known).copy()


IOTA = register(
    Op(
        "iota",
        "The index along one axis, as a value.",
        infer=lambda a: TensorType(a.shape, a.dtype),
        reference=_iota,
        differentiable=False,
        role="source",
        rematerializable=True,
        fill=True,
        dtypes=(float32,),
        cases=(Case((), IotaAttributes((3, 4), float32, 1)), Case((), IotaAttributes((5,), int64, 0))),
    )
)


@public
def iota(shape: ShapeLike, axis: int = 0, *, dtype: DTypeLike = int64) -> Tensor:
    """``0, 1, 2, …`` along ``axis``, the same along the others.

    Raises:
        GraphError: an axis that is out of range.

    Example:
        >>> sg.Session().run(sg.iota((2, 3)))
        array([[0, 0, 0],
               [1, 1, 1]])
        >>> sg.Session().run(sg.iota((2, 3), axis=1))
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    sizes, kind = as_shape(shape, "iota"), dtype_of(dtype)
    counted = int64 if is_short_float(kind) else kind
    attrs = IotaAttributes(sizes, counted, normalize_axis(axis, len(sizes), "iota"))
    return FUNCTIONS.astype(get_default_graph().add(IOTA, (), attrs).outputs[0], kind)


@public
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike | None = None) -> Tensor:
    """Evenly spaced numbers as in ``np.arange``: from ``start`` in steps to before ``stop``; a lone one is ``stop``.

    A Dim counts up to a size that feeds bind. Without ``dtype``, ints give int64 and floats float32.

    Example:
        >>> sg.Session().run(sg.arange(3))
        array([0, 1, 2])
        >>> sg.Session().run(sg.arange(0.0, 1.0, 0.25))
        array([0.  , 0.25, 0.5 , 0.75], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    for value in (start, stop, step):
        if not isinstance(value, Dim):
            number(value, "arange: a bound or the step")
    if step == 0:
        raise GraphError("arange: the step is 0")
    if any(isinstance(value, Dim) for value in (start, stop, step)):
        span = stop - start
        kind = int64 if dtype is None else dtype_of(dtype)
        count = iota(((span + (step - 1)) // step,), 0, dtype=computed(kind))
        return FUNCTIONS.astype(FUNCTIONS.add(FUNCTIONS.multiply(count, step), start), kind)
    bounds = (start, stop, step)
    if all(isinstance(value, (int, float)) for value in bounds) and (steps := _steps(*bounds)) > MOST_CARRIED:
        whole = all(isinstance(value, int) for value in bounds)
        kind = dtype_of(dtype) if dtype is not None else int64 if whole else float32
        line = iota((steps,), 0, dtype=int64 if whole else float64)
        return FUNCTIONS.astype(_affine(line, step if whole else (start + step) - start, start), kind)
    if not all(isinstance(value, (int, np.integer)) for value in (start, stop, step)):
        return constant(np.arange(start, stop, step).astype(_floats(dtype)))
    given = None if dtype is None else dtype_of(dtype)
    counted = range(int(start), int(stop), int(step))
    if max((counted[0], counted[-1]) if counted else (0,)) <= np.iinfo(int64).max:
        array: Array = np.arange(start, stop, step)
    elif given is None:
        raise GraphError(f"arange: {max(counted[0], counted[-1])} is out of range for int64: dtype=sg.uint64 holds it")
    else:  # NumPy rounds these to float64
        array = np.arange(len(counted), dtype=uint64) * uint64.type(step % 2**64) + uint64.type(start)
    return constant(array if given is None else array.astype(given))


def _steps(start: float, stop: float, step: float) -> int:
    """The number of numbers that ``np.arange`` gives; 0 where NumPy shall refuse them."""
    if all(isinstance(value, int) for value in (start, stop, step)):
        fits = all(-(2**62) < value < 2**62 for value in (start, stop, step))
        return max(0, -((start - stop) // step)) if fits else 0  # type: ignore[return-value]
    count = (stop - start) / step
    return max(0, math.ceil(count)) if abs(count) < 2**62 else 0


def _affine(line: Tensor, factor: float, term: float) -> Tensor:
    y = line if factor == 1 else FUNCTIONS.multiply(line, factor)
    return y if term == 0 else FUNCTIONS.add(y, term)


@public
def linspace(start: float, stop: float, num: Size, *, dtype: DTypeLike | None = None, endpoint: bool = True) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, which ``endpoint=False`` leaves out; float32 without
    ``dtype``.

    Example:
        >>> sg.Session().run(sg.linspace(0.0, 1.0, 5))
        array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
        >>> sg.Session().run(sg.linspace(0.0, 1.0, 4, endpoint=False))
        array([0.  , 0.25, 0.5 , 0.75], dtype=float32)
    """
    start, stop, kind = number(start, "linspace: start"), number(stop, "linspace: stop"), _floats(dtype)
    o = FUNCTIONS
    if not isinstance(num, Dim):
        (num,) = sizes(as_shape(num, "linspace"))
        if num <= MOST_CARRIED:
            return constant(np.linspace(start, stop, num, endpoint=endpoint).astype(kind))
        place, last = iota(num, dtype=float64), constant(num - 1 if endpoint else num, float64)
    else:
        place, last = iota(num, dtype=float64), o.size_value(num - 1 if endpoint else num, float64)
    y = o.add(o.multiply(place, o.divide(stop - start, o.maximum(last, 1.0))), start)
    return o.astype(o.where(o.logical_and(o.equal(place, last), o.greater(last, 0.0)), stop, y), kind)


@public
def eye(n_rows: Size, n_cols: Size | None = None, *, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Ones on the diagonal number ``k``, zeros elsewhere: (n_rows, n_cols), square by default; float32 without
    ``dtype``.

    Example:
        >>> sg.Session().run(sg.eye(2))
        array([[1., 0.],
               [0., 1.]], dtype=float32)
        >>> sg.Session().run(sg.eye(2, 3, k=1, dtype=sg.int64))
        array([[0, 1, 0],
               [0, 0, 1]])
    """
    shape, k = as_shape((n_rows, n_rows if n_cols is None else n_cols), "eye"), integer(k, "eye: k")
    kind = _floats(dtype)
    if not any(isinstance(size, Dim) for size in shape) and math.prod(sizes(shape)) <= MOST_CARRIED:
        rows, columns = sizes(shape)
        return constant(np.eye(rows, columns, k, dtype=kind))
    return FUNCTIONS.astype(FUNCTIONS.equal(iota(shape, 1), FUNCTIONS.add(iota(shape, 0), k)), kind)


def known_extremes(index: Tensor) -> tuple[int, int] | None:
    """The least and the greatest value of an integer tensor that is part of the program, without its values where a
    rule gives them; 0 and -1 where it has none, None where it is no part of the program."""
    node = index.op
    if not is_integer(index.dtype):
        return None
    match node.op.name:
        case "constant":
            values: Array = node.attrs.value
            return (int(values.min()), int(values.max())) if values.size else (0, -1)
        case "full" | "iota" if index.type.static and index.size != 0:
            return (node.attrs.value,) * 2 if node.op is FULL else (0, node.attrs.shape[node.attrs.axis] - 1)
        case "astype" | "broadcast_to" | "reshape":
            return _within(index.dtype, known_extremes(node.inputs[0]))
        case "add" | "multiply":
            return _within(index.dtype, _combined(node.op.name, *map(known_extremes, node.inputs)))
    return None


def _combined(name: str, x: tuple[int, int] | None, y: tuple[int, int] | None) -> tuple[int, int] | None:
    if x is None or y is None or any(map(is_open, (*x, *y))) or x[1] < x[0] or y[1] < y[0]:
        return None
    ends = [a + b if name == "add" else a * b for a in x for b in y]
    return min(ends), max(ends)


def _within(dtype: np.dtype, extremes: tuple[int, int] | None) -> tuple[int, int] | None:
    """Extremes of numbers that are in a dtype what they are without one."""
    if extremes is None or is_open(extremes[0]) or is_open(extremes[1]):
        return extremes
    info = np.iinfo(dtype)
    return extremes if info.min <= extremes[0] and extremes[1] <= info.max else None


def are_distinct(index: Tensor) -> bool:
    """True if no two elements of an index are the same, as a rule says that gives them: an affine one of one axis."""
    node = index.op
    match node.op.name:
        case "iota":
            return index.type.static and index.ndim == 1
        case "astype" | "reshape":
            source = node.inputs[0]
            return is_integer(source.dtype) and known_extremes(index) is not None and are_distinct(source)
        case "add" | "multiply":
            is_number = [x.op.op is CONSTANT and x.ndim == 0 for x in node.inputs]
            if sum(is_number) != 1 or known_extremes(index) is None:
                return False
            fixed, varying = node.inputs if is_number[0] else reversed(node.inputs)
            return are_distinct(varying) and (node.op.name == "add" or fixed.op.attrs.value != 0)
    return False


def all_values(index: Tensor) -> Array | None:
    """Every value of an index that the program carries; None for any other."""
    known = index.op.op is CONSTANT or (index.type.static and math.prod(sizes(index.shape)) <= MOST_CARRIED)
    if not known or index.op.op.name not in ("constant", "full", "iota", "astype", "broadcast_to", "reshape"):
        return None
    values = [all_values(x) for x in index.op.inputs]
    if any(value is None for value in values):
        return None
    return np.asarray(index.op.op.reference(index.op.attrs, *values))
