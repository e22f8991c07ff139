"""The type of a tensor, known before it has values: dtype and shape.

    TensorType ::= dtype, shape
    shape      ::= (size, …)
    size       ::= int | Dim                    a Dim is a polynomial over sizes that the feeds of a call bind, their
                                                quotients and positive parts

Dtypes are NumPy's. Promotion is NumPy 2's (NEP 50): Python scalars are weak, everything else is strong.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from numbers import Real
from operator import index, is_
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard, cast, get_args

import numpy as np
import numpy.typing as npt

from staticgrad.base.errors import FeedError, GraphError, SourceLine
from staticgrad.base.extents import is_open, never_negative, proven
from staticgrad.base.frozen import frozen

bool_ = np.dtype("bool")
int8 = np.dtype("int8")
int16 = np.dtype("int16")
int32 = np.dtype("int32")
int64 = np.dtype("int64")
uint8 = np.dtype("uint8")
uint16 = np.dtype("uint16")
uint32 = np.dtype("uint32")
uint64 = np.dtype("uint64")
float16 = np.dtype("float16")
float32 = np.dtype("float32")
float64 = np.dtype("float64")

INTEGERS: tuple[np.dtype, ...] = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS: tuple[np.dtype, ...] = (float32, float64)
DTYPES: tuple[np.dtype, ...] = (bool_, *INTEGERS, *FLOATS)  # that are computed with, besides the short floats
DTYPE_NAMES = frozenset({*(dtype.name for dtype in DTYPES), "float16", "bfloat16"})

DTypeLike = npt.DTypeLike
Precision = Literal["highest", "high", "medium"]  # of products and convolutions in float32
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def dtype_of(dtype: DTypeLike) -> np.dtype:
    """The dtype that ``np.dtype`` understands, whatever its order of bytes. There may be several equal objects
    (``pickle`` makes others); arrays that have this very one are recognised at once."""
    for known in DTYPES:
        if dtype is known:
            return known
    found = numpy_dtype(dtype)
    for known in (*DTYPES, float16, *([_bfloat16()] if found.name == "bfloat16" else [])):
        if found == known:
            return known
    raise GraphError(f"dtype {found} is not supported: expected one of {', '.join(sorted(DTYPE_NAMES))}")


def numpy_dtype(dtype: DTypeLike) -> np.dtype:
    """The NumPy dtype of anything that ``np.dtype`` understands, and of ``"bfloat16"``.

    Raises:
        GraphError: it understands nothing, or it is None, of which NumPy makes float64.
    """
    if dtype is None:
        raise GraphError("None is not a dtype")
    try:
        return _bfloat16() if isinstance(dtype, str) and dtype == "bfloat16" else np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        sizes = ": sizes are given as one shape, sg.zeros((2, 3))" if isinstance(dtype, (int, Dim)) else ""
        raise GraphError(f"{dtype!r} is not a dtype{sizes}") from error


@functools.cache
def _bfloat16() -> np.dtype:
    import ml_dtypes  # takes longer than all of staticgrad to import

    dtype: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return dtype


if TYPE_CHECKING:
    bfloat16: np.dtype  # the upper half of a float32, as ``ml_dtypes`` knows it to NumPy
else:

    def __getattr__(name: str) -> np.dtype:
        if name == "bfloat16":
            return _bfloat16()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_floating(dtype: np.dtype) -> bool:
    return dtype.kind in "fV"  # what is void to NumPy is bfloat16: no other such dtype is let in


def is_short_float(dtype: np.dtype) -> bool:
    """True if it is float16 or bfloat16: kept and moved as such, and computed with in float32."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def computed(dtype: np.dtype) -> np.dtype:
    """The dtype in which elements of ``dtype`` are computed with: float32 for short floats, else itself."""
    return float32 if is_short_float(dtype) else dtype


def takes(accepts: tuple[np.dtype, ...], dtype: np.dtype) -> bool:
    """True if a dtype is among those that an op is defined for; short floats are taken wherever float32 is."""
    return dtype in accepts or (is_short_float(dtype) and float32 in accepts)


def is_integer(dtype: np.dtype) -> bool:
    return dtype.kind in "iu"


def scalar_dtype(value: object) -> np.dtype | None:
    """The dtype of a Python scalar where nothing else decides: float32, int64, bool. A size that feeds bind is an int.
    None for everything else."""
    if type(value) is bool:
        return bool_
    if type(value) is int or isinstance(value, Dim):
        return int64
    if type(value) is float:
        return float32
    return None


def is_weak(value: object) -> TypeGuard[bool | int | float]:
    """True if ``value`` is a Python scalar, which takes the dtype of its partner (NEP 50)."""
    return type(value) in (bool, int, float)


def holds_numbers(value: object) -> bool:
    """True if ``value`` is a Python scalar, or a nest of lists and tuples of them."""
    return is_weak(value) or (isinstance(value, (list, tuple)) and all(map(holds_numbers, value)))


def require_number(value: Any, dtype: np.dtype, what: str) -> None:
    """Check that a dtype can hold a Python number, or each number in lists.

    Raises:
        GraphError: it is a float and the dtype integral, out of range, or a number and the dtype bool.
    """
    if isinstance(value, (list, tuple)):
        for item in value:
            require_number(item, dtype, what)
        return
    try:
        fits = np.result_type(dtype, value) == dtype and (is_floating(dtype) or dtype.type(value) == value)
    except OverflowError:
        fits = False
    if not fits:
        raise GraphError(f"{what}: {value!r} is no {dtype.name}")


# -- sizes --------------------------------------------------------------------------------------------------------

Monomial = tuple["Atom", ...]
_serial = itertools.count(1)


@frozen
class Symbol:
    """A size that feeds bind. Two symbols are the same size only if they are the same symbol; those of ``sg.dim`` are
    the same if their names are."""

    serial: int  # 0 for sizes that their users have named
    name: str
    ends: tuple[int, ...] = field(default=(), compare=False)  # of the ranges that programs are compiled for

    def __str__(self) -> str:
        return self.name


@frozen
class Quotient:
    """``numerator // denominator`` of sizes."""

    numerator: Dim
    denominator: Dim

    def __str__(self) -> str:
        return atom_text(self, str)


@frozen
class PositivePart:
    """``max(size, 0)`` of a size that may be negative or not, in normal form: no number divides all its terms, the last
    of which is positive."""

    size: Dim

    def __str__(self) -> str:
        return atom_text(self, str)


Atom = Symbol | Quotient | PositivePart


def as_declared(shape: Shape) -> tuple[Size | None, ...]:
    """A shape for messages: None where a size was declared as None, whose symbol is named after its axis."""

    def declared(size: Size, axis: int) -> Size | None:
        match size:
            case Dim(terms=(((Symbol(name=name),), 1),)) if name.endswith(f".{axis}"):
                return None
        return size

    return tuple(declared(size, axis) for axis, size in enumerate(shape))


def size_text(size: Size, name: Callable[[Symbol], str]) -> str:
    """A size as Python reads it; terms of a higher degree come first, else in the order of their letters."""
    if not isinstance(size, Dim):
        return str(size)
    if (least := _as_minimum(size)) is not None:
        factor, a, b = least
        text = f"min({size_text(a, name)}, {size_text(b, name)})"
        return text if factor == 1 else f"{size_text(factor, name)}*{text}"
    terms = []
    for monomial, factor in size.terms:
        atoms = sorted(atom_text(atom, name) for atom in monomial)
        terms.append((-len(atoms), "*".join(atoms), factor))
    text = ""
    for _, names, factor in sorted(terms):
        sign, amount = "-" if factor < 0 else "+", abs(factor)
        product = str(amount) if not names else names if amount == 1 else f"{amount}*{names}"
        text += f" {sign} {product}" if text else product if sign == "+" else f"-{product}"
    return text or "0"


def _as_minimum(size: Dim) -> tuple[Size, Size, Size] | None:
    """A size that is ``factor * min(a, b)``, which is ``factor * (a - max(a - b, 0))``, as these three."""
    found = [(m, f, a) for m, f in size.terms for a in m if isinstance(a, PositivePart)]
    if len(found) != 1 or found[0][1] > 0:
        return None
    ((monomial, negative, part),) = found
    factor = _normal({tuple(atom for atom in monomial if atom is not part): -negative})
    rest = _combine(_terms(size), {monomial: negative}, -1)
    a = rest._divide_exactly(factor) if isinstance(rest, Dim) else None
    return None if a is None else (factor, a, a - part.size)


def atom_text(atom: Atom, name: Callable[[Symbol], str]) -> str:
    """A symbol's name, a quotient in brackets, or a positive part as a call of ``max``."""
    if isinstance(atom, Symbol):
        return name(atom)
    if isinstance(atom, PositivePart):
        return f"max({size_text(atom.size, name)}, 0)"
    numerator, denominator = (size_text(size, name) for size in (atom.numerator, atom.denominator))
    return f"({_bracketed(numerator)} // {_bracketed(denominator)})"


def _bracketed(text: str) -> str:
    single = not re.search("[ *]", text) or (text[0] == "(" and text.index(")") == len(text) - 1)
    return text if single else f"({text})"


def _order(atom: Atom) -> tuple[str, tuple[int, ...]]:
    """The key by which atoms are sorted, those of one name too."""
    return (atom.name, (atom.serial,)) if isinstance(atom, Symbol) else (str(atom), tuple(_serials(atom)))


def _serials(atom: Atom) -> Iterator[int]:
    if isinstance(atom, Symbol):
        yield atom.serial
    for size in sizes_in(atom):
        for monomial, _ in size.terms:
            for inner in monomial:
                yield from _serials(inner)


def sizes_in(atom: Atom) -> tuple[Dim, ...]:
    """The sizes that an atom is made of."""
    match atom:
        case Quotient():
            return atom.numerator, atom.denominator
        case PositivePart():
            return (atom.size,)
    return ()


def _of_sizes(method: Callable[[Dim, Size], Size]) -> Callable[[Dim, Any], Size]:
    """An operator that leaves operands other than sizes to their own operators."""

    @functools.wraps(method)
    def operator(self: Dim, other: Any) -> Size:
        if isinstance(other, np.integer):
            other = int(other)
        if isinstance(other, (float, np.floating)):
            raise _unsupported(_SYMBOLS[method.__name__], self, other)
        return method(self, other) if isinstance(other, (int, Dim)) else NotImplemented

    return operator


def _of_values(symbol: str) -> Callable[[Dim, Any], Any]:
    """An operator that sizes do not have; one with a tensor is the tensor's."""

    def operator(self: Dim, other: Any) -> Any:
        if isinstance(other, (int, float, np.number, Dim)):
            raise _unsupported(symbol, self, other)
        return NotImplemented

    return operator


_SYMBOLS = {
    "__add__": "+",
    "__sub__": "-",
    "__rsub__": "-",
    "__mul__": "*",
    "__floordiv__": "//",
    "__rfloordiv__": "//",
}


def _unsupported(symbol: str, size: Dim, other: object) -> TypeError:
    return TypeError(
        f"unsupported operand type(s) for {symbol}: {size} and {other!r}. {size} is a size of a symbolic tensor, known"
        " only when the graph is fed: sizes have + - * // with integers, sg.shape(x) gives their values in a run, and"
        " sess.run(x, feeds) x as an array"
    )


@frozen(eq=False)
class Dim:
    """A size that is known when a program is fed: a polynomial in normal form. Supports ``+ - * //`` with sizes, ``-``
    alone and ``==``; with a tensor it is an int."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        return size_text(self, str)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    @_of_sizes
    def __add__(self, other: Size) -> Size:
        return _combine(_terms(self), _terms(other), 1)

    __radd__ = __add__

    @_of_sizes
    def __sub__(self, other: Size) -> Size:
        return _combine(_terms(self), _terms(other), -1)

    @_of_sizes
    def __rsub__(self, other: Size) -> Size:
        return _combine(_terms(other), _terms(self), -1)

    @_of_sizes
    def __mul__(self, other: Size) -> Size:
        products: dict[Monomial, int] = {}
        for (m1, f1), (m2, f2) in itertools.product(_terms(self).items(), _terms(other).items()):
            key = tuple(sorted((*m1, *m2), key=_order))
            products[key] = products.get(key, 0) + f1 * f2
        return _normal(products)

    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    @_of_sizes
    def __floordiv__(self, other: Size) -> Size:
        if other == 1:
            return self
        if other == 0:
            raise ZeroDivisionError(f"the size {self} // 0")
        whole = self._divide_exactly(other)
        if whole is not None:
            return whole
        denominator = other if isinstance(other, Dim) else Dim((((), other),))
        return Dim((((Quotient(self, denominator),), 1),))

    @_of_sizes
    def __rfloordiv__(self, other: Size) -> Size:
        assert isinstance(other, int)  # a Dim has the operator itself
        return Dim((((), other),)) // self if other else 0

    def _divide_exactly(self, other: Size) -> Size | None:
        divisor = _terms(other)
        if len(divisor) != 1:
            return 1 if self == other else None
        ((below, factor),) = divisor.items()
        result: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            rest = list(monomial)
            for atom in below:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if coefficient % factor:
                return None
            result[tuple(rest)] = coefficient // factor
        return _normal(result)

    __truediv__ = _of_values("/")
    __rtruediv__ = _of_values("/")
    __mod__ = _of_values("%")
    __rmod__ = _of_values("%")
    __divmod__ = _of_values("divmod()")
    __pow__ = _of_values("**")
    __rpow__ = _of_values("**")
    __lt__ = _of_values("<")
    __le__ = _of_values("<=")
    __gt__ = _of_values(">")
    __ge__ = _of_values(">=")

    def __index__(self) -> int:
        raise TypeError(f"the size {self} is known only when the graph is fed; use sg.shape(x) for its value in a run")


Size = int | Dim
Shape = tuple[Size, ...]
ShapeLike = Size | np.integer | Iterable[Size | np.integer | None]  # None: a size that the feeds of a call bind


def _terms(size: Size) -> dict[Monomial, int]:
    return dict(size.terms) if isinstance(size, Dim) else ({(): int(size)} if size else {})


def _combine(a: dict[Monomial, int], b: dict[Monomial, int], sign: int) -> Size:
    total = dict(a)
    for monomial, factor in b.items():
        total[monomial] = total.get(monomial, 0) + sign * factor
    return _normal(total)


def _normal(terms: dict[Monomial, int]) -> Size:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept:
        return 0
    if len(kept) == 1:
        return kept[()] if () in kept else Dim(tuple(kept.items()))
    return Dim(tuple(sorted(kept.items(), key=lambda item: (len(item[0]), [_order(atom) for atom in item[0]]))))


def dim(name: str, *, max: int | None = None, ranges: Sequence[int] | None = None) -> Dim:
    """A size that several placeholders share; the feeds of a call bind it and are checked against each other.

    It stands wherever a size may, and ``+``, ``-``, ``*`` and ``//`` make further sizes of it. Two calls with one name
    give the same size.

    Args:
        max: one program serves all sizes up to this one. Sizes above it have ranges as if it had not been given.
        ranges: the last size of each range for which a program is compiled, in ascending order; each range begins
            after the one before. By default they are 16, 32, 64 and so on.

    Raises:
        GraphError: the name is no text; ``max`` or a number of ``ranges`` is no positive int, or the latter do not
            ascend; both are given.

    Example:
        >>> n = sg.dim("n")
        >>> x, y = sg.placeholder((n, 2)), sg.placeholder((n,))
        >>> sg.Session().run(y @ x, {x: [[1.0, 2.0], [3.0, 4.0]], y: [1.0, 10.0]})
        array([31., 42.], dtype=float32)
        >>> x.reshape(n * 2).shape
        (2*n,)
        >>> n == sg.dim("n")
        True
        >>> steps, sess = sg.dim("steps", max=100), sg.Session()
        >>> mean = sg.mean(z := sg.placeholder((steps,)))
        >>> float(sess.run(mean, {z: [1.0, 2.0]})), float(sess.run(mean, {z: [1.0] * 70}))
        (1.5, 1.0)
        >>> sess.compile_count
        1
    """
    if not isinstance(name, str):
        raise GraphError(f"dim: expected a name, actual {name!r}")
    if max is not None and ranges is not None:
        raise GraphError(f"dim {name!r}: expected max or ranges, actual both: max={max!r}, ranges={ranges!r}")
    given = [max] if max is not None else () if ranges is None else ranges
    ends = integers(given, f"dim {name!r}: {'ranges' if max is None else 'max'}", 1)
    if any(a >= b for a, b in itertools.pairwise(ends)):
        raise GraphError(f"dim {name!r}: expected ranges whose ends ascend, actual {tuple(ends)}")
    return _size_of(Symbol(0, name, ends))


def open_size(name: str, ends: tuple[int, ...] = ()) -> Dim:
    """A size of its own, whatever else has its name."""
    return _size_of(Symbol(next(_serial), name, ends))


def _size_of(symbol: Symbol) -> Dim:
    return Dim((((symbol,), 1),))


def symbols_of(shape: Shape) -> Iterator[Symbol]:
    """The symbols that a shape names, once for each time."""
    for size in shape:
        for monomial, _ in size.terms if isinstance(size, Dim) else ():
            for atom in monomial:
                if isinstance(atom, Symbol):
                    yield atom
                else:
                    yield from symbols_of(sizes_in(atom))


# -- extremes of sizes --------------------------------------------------------------------------------------------

MOST_PARTS = 4  # of a size that is simplified, and whose bounds are found case by case


def positive_part(size: Size) -> Size:
    """``max(size, 0)``, of a size of numbers, of open ones, or of a range's.

    It is a polynomial where that follows from sizes being at least 0. Of few positive parts, as slices make them, equal
    functions of one open size have equal normal forms.

    Raises:
        OpenSizeError: an extent is negative at some sizes of its range only.
    """
    if not isinstance(size, Dim):
        return never_negative(size)
    low, high = _bounds(size)
    if low >= 0 or high <= 0:
        return size if low >= 0 else 0
    divisor = math.gcd(*(factor for _, factor in size.terms))
    if divisor > 1:
        return positive_part(size // divisor) * divisor
    if size.terms[-1][1] < 0:
        return size + positive_part(-size)
    for part in _parts(size):
        a: Size = _with(size, part, 0)
        b: Size = _with(size, part, part.size)
        factor = dict(size.terms).get((part,), 0)
        if factor > 0 and _bounds(a)[1] <= 0:  # max(max(a, b), 0), where a is not above 0
            return positive_part(b)
        if factor < 0 and _bounds(b)[0] >= 0:  # max(min(a, b), 0), where b is not below 0
            return positive_part(a) - positive_part(a - b)
        if factor < 0 and _bounds(a)[0] >= 0:
            return positive_part(b) - positive_part(b - a)
    return Dim((((PositivePart(size),), 1),))


def larger(a: Size, b: Size) -> Size:
    """``max(a, b)`` of two sizes; raises as ``positive_part``."""
    return b + positive_part(a - b)


def smaller(a: Size, b: Size) -> Size:
    """``min(a, b)`` of two sizes; raises as ``positive_part``."""
    return a - positive_part(a - b)


def _parts(size: Dim) -> list[PositivePart]:
    """The positive parts of a size that has few, if each is in one term only, whose other atoms are not negative."""
    holding = [m for m, _ in size.terms if any(isinstance(atom, PositivePart) for atom in m)]
    found = [atom for monomial in holding for atom in monomial if isinstance(atom, PositivePart)]
    few = len(found) == len(set(found)) <= MOST_PARTS
    return found if few and all(_atom_bounds(atom)[0] >= 0 for m in holding for atom in m) else []


def _bounds(size: Size, cases: int = MOST_PARTS) -> tuple[float, float]:
    """Numbers between which a size lies whatever the open sizes are, which are not negative."""
    if not isinstance(size, Dim):
        return size, size
    for part in _parts(size) if cases else ():  # the larger one of both cases, or the smaller one
        one, other = (_bounds(_with(size, part, by), cases - 1) for by in (0, part.size))
        extreme = max if next(factor for monomial, factor in size.terms if part in monomial) > 0 else min
        return extreme(one[0], other[0]), extreme(one[1], other[1])
    low: float = 0
    high: float = 0
    for monomial, factor in size.terms:
        least: float = factor
        most: float = factor
        for atom in monomial:
            ends = [_times(a, b) for a in (least, most) for b in _atom_bounds(atom)]
            least, most = min(ends), max(ends)
        low, high = low + least, high + most
    rounded = [(m[0], factor) for m, factor in size.terms if len(m) == 1 and isinstance(m[0], Quotient)]
    for quotient, factor in rounded if cases and len(rounded) <= MOST_PARTS else ():
        match quotient.denominator.terms:
            case (((), int(by)),) if by > 0:  # of n - n // 2, 2*n - n is the double, but for what is rounded off
                off = abs(factor) * (by - 1)
                least, most = _bounds(_with(size, quotient, 0) * by + quotient.numerator * factor, cases - 1)
                least, most = (least - off, most) if factor > 0 else (least, most + off)
                low, high = max(low, least / by), min(high, most / by)
    return low, high


def _times(a: float, b: float) -> float:
    """A product of bounds: 0 of 0 and an infinity, and no float of integers."""
    if not a or not b:
        return 0
    return a * b if math.inf not in (abs(a), abs(b)) else math.inf if (a > 0) == (b > 0) else -math.inf


def _atom_bounds(atom: Atom) -> tuple[float, float]:
    if not isinstance(atom, Quotient):
        return 0, math.inf
    (low, high), (least, _) = _bounds(atom.numerator), _bounds(atom.denominator)
    if low < 0 or least < 0:
        return -math.inf, math.inf
    return 0, high if high == math.inf else high // max(least, 1)


def _with(size: Dim, atom: Atom, by: Size) -> Size:
    """A size with another one in the place of an atom."""
    total: Size = 0
    for monomial, factor in size.terms:
        term = _normal({tuple(a for a in monomial if a != atom): factor})
        for _ in range(monomial.count(atom)):
            term = term * by
        total = total + term
    return total


Bindings = Mapping[Symbol, int]


def bind_size(size: Size, bindings: Bindings) -> int:
    """The size with its symbols replaced.

    Raises:
        KeyError: an unbound symbol.
        OpenSizeError: of a range of sizes, it is one polynomial at some and another one at others.
    """
    if not isinstance(size, Dim):
        return size
    total = 0
    for monomial, factor in size.terms:
        for atom in monomial:
            if isinstance(atom, Symbol):
                factor *= bindings[atom]
            elif isinstance(atom, PositivePart):
                factor *= cast("int", positive_part(bind_size(atom.size, bindings)))
            else:
                factor *= bind_size(atom.numerator, bindings) // bind_size(atom.denominator, bindings)
        total += factor
    return total


def bind(value: Any, bindings: Bindings) -> Any:
    """Replace every Dim inside a shape, a tuple or a frozen dataclass of attributes; what has none stays as it is."""
    kind: Any = type(value)
    if kind is int:
        return value
    if kind is tuple:
        items = tuple([bind(item, bindings) for item in value])
        return value if all(map(is_, items, value)) else items
    if kind is Dim:
        return bind_size(value, bindings)
    names = _holding_sizes(kind)
    if names is None:
        return value.bind_sizes(bindings)
    changed = {n: item for n in names if (item := bind(old := getattr(value, n), bindings)) is not old}
    return replace(value, **changed) if changed else value


@functools.cache
def _holding_sizes(kind: Any) -> tuple[str, ...] | None:
    """The fields of a class in which there may be sizes; None where its objects know by themselves."""
    if hasattr(kind, "bind_sizes"):
        return None
    return (
        tuple(f.name for f in fields(kind) if f.init)
        if is_dataclass(kind) and getattr(kind, "holds_sizes", True)
        else ()
    )


class HasShape(Protocol):
    """A tensor, to what binds the sizes in its shape."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def source(self) -> SourceLine | None: ...


def _line(size: Size) -> tuple[Symbol, int, int] | None:
    """The symbol, the factor and the number of a size that is ``factor * symbol + number``; else None."""
    match size:
        case Dim(terms=(((Symbol() as symbol,), int(factor)),)):
            return symbol, factor, 0
        case Dim(terms=(((), int(number)), ((Symbol() as symbol,), int(factor)))):
            return symbol, factor, number
    return None


def unify(given: Sequence[tuple[HasShape, Shape]], bindings: dict[Symbol, int]) -> None:
    """Learn the symbols in the shapes of tensors from the shapes of their feeds, as ``learn`` does, and check these
    against them.

    Raises:
        FeedError: a feed contradicts another one or what is known, or no feed binds a symbol.
    """
    learn(given, bindings)
    for x, shape in given:
        for axis, (size, actual) in enumerate(zip(x.shape, shape, strict=True)):
            for symbol in symbols_of((size,)):
                if symbol not in bindings:
                    raise _unbound(x, size, symbol)
            expected = bind_size(size, bindings)
            if expected != actual:
                known = "" if size == expected else f" = {expected}"
                raise FeedError(
                    f"feed of {x.name!r}, axis {axis}: expected size {size}{known}, actual {actual}", source=x.source
                )


def learn(given: Sequence[tuple[HasShape, Shape]], bindings: dict[Symbol, int]) -> None:
    """Add to ``bindings`` the symbols that numbers in the shapes of feeds bind: first where a symbol itself is a size
    of a tensor, then by division where a size is in the form ``2*n + 1``.

    Raises:
        FeedError: a division leaves a rest, or gives a negative size.
    """
    for derived in (False, True):
        for x, shape in given:
            for axis, (size, actual) in enumerate(zip(x.shape, shape, strict=True)):
                line = _line(size)
                if line is None or line[0] in bindings or isinstance(actual, Dim) or (line[1:] != (1, 0)) != derived:
                    continue
                symbol, factor, number = line
                value, rest = divmod(actual - number, factor) if derived else (actual, 0)
                if rest or value < 0:
                    raise FeedError(
                        f"feed of {x.name!r}, axis {axis}: expected size {size} with a whole {symbol} of at least 0,"
                        f" actual {actual}",
                        source=x.source,
                    )
                bindings[symbol] = value


def check_bindable(fed: Sequence[HasShape]) -> None:
    """Check that the feeds of a call bind all symbols in their shapes.

    Raises:
        FeedError: they do not.
    """
    lines = [line for x in fed for line in map(_line, x.shape) if line is not None]
    bound = {symbol for symbol, *_ in lines}
    for x in fed:
        for size in x.shape:
            for symbol in symbols_of((size,)):
                if symbol not in bound:
                    raise _unbound(x, size, symbol)


def _unbound(x: HasShape, size: Size, symbol: Symbol) -> FeedError:
    return FeedError(
        f"feed of {x.name!r}: no feed binds {symbol}, which its size {size} is made of: feed a tensor that has a size"
        f" {symbol}, or {symbol} times a number",
        source=x.source,
    )


# -- tensor types -------------------------------------------------------------------------------------------------


@frozen
class TensorType:
    """Dtype and shape of a tensor."""

    shape: Shape
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        return product(self.shape)

    @property
    def static(self) -> bool:
        return False not in [isinstance(size, int) for size in self.shape]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, row after row without gaps.

        Raises:
            GraphError: a size is not bound.
        """
        return math.prod(sizes(self.shape)) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


def product(shape: Shape) -> Size:
    total: Size = 1
    for size in shape:
        total = total * size
    return total


def sizes(shape: Shape) -> tuple[int, ...]:
    """A shape that holds no Dims, as ints; the compiler sees only such shapes."""
    for size in shape:
        if isinstance(size, Dim):
            raise GraphError(f"the size {size} is not bound")
    return cast("tuple[int, ...]", shape)


def to_array(value: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """Numbers as an array, in a dtype of the table, to which each is converted once; not a copy where they are one.

    Raises:
        GraphError: they make no array, or none of this dtype.
    """
    try:
        if dtype is None:
            array = exact_array(value)
        elif is_floating(dtype) and isinstance(value, (int, list, tuple)):
            array = np.asarray(value).astype(dtype)  # else large integers are rounded to float64 first
        else:
            array = np.asarray(value, dtype)
    except TypeError as error:  # something inside has no value yet
        raise GraphError(f"expected an array of numbers (sg.stack joins a list of tensors): {error}") from None
    except (ValueError, OverflowError) as error:
        raise GraphError(f"expected an array of numbers: {error}") from None
    return array.astype(dtype_of(array.dtype), copy=False)


def exact_array(value: Any) -> np.ndarray:
    """The array that ``np.asarray`` makes of a value, except for integers of which some need uint64: NumPy rounds them
    to float64.

    Raises:
        OverflowError: no dtype holds these integers.
    """
    array: np.ndarray = np.asarray(value)
    if array.dtype == float64 and isinstance(value, (list, tuple)) and array.size and array.max() >= 2.0**63:
        numbers = np.asarray(value, object)
        if all(isinstance(number, (int, np.integer)) for number in numbers.flat):
            return numbers.astype(uint64)
    return array


def declared_array(value: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """Numbers as an array in ``dtype``; without one Python floats are float32, ints int64, bools bool, in lists too,
    and arrays keep theirs.

    Raises:
        GraphError: they make no array, or none of this dtype.
    """
    if dtype is not None:
        return to_array(value, dtype)
    if is_weak(value):
        return to_array(value, scalar_dtype(value))
    array = to_array(value)
    if array.dtype == float64 and isinstance(value, (list, tuple)) and holds_numbers(value):
        return array.astype(float32)
    return array


class Bound(int):
    """The number of a size that was free when declared; as 1 it does not broadcast either."""


def stretches(size: Size) -> bool:
    """True if an axis of this size is repeated to fit others: it is 1, or at most 1 by how it was declared, as that of
    ``x[:1]``."""
    return _bounds(size)[1] <= 1 if isinstance(size, Dim) else size == 1 and not isinstance(size, Bound)


TypeRule = Callable[..., "TensorType | tuple[TensorType, ...]"]
ADDRESSABLE = 2**63 - 1  # bytes


def infer_again(
    infer: TypeRule,
    attrs: Any,
    declared: Iterable[TensorType],
    bound: Iterable[TensorType],
) -> tuple[TensorType, ...]:
    """The types of results when all sizes are numbers, held to what was declared."""
    operands = (
        TensorType(tuple([_bound(a, b) for a, b in zip(x.shape, y.shape, strict=True)]), y.dtype)
        for x, y in zip(declared, bound, strict=True)
    )
    types = result_types(infer, attrs, operands)
    return tuple(TensorType(tuple([s if is_open(s) else int(s) for s in sizes(t.shape)]), t.dtype) for t in types)


def _bound(declared: Size, size: Size) -> Size:
    """The size, told apart from a declared one; an extent never broadcasts anyway."""
    known = isinstance(declared, int) or stretches(declared)
    return size if known or isinstance(size, Dim) or is_open(size) else Bound(size)


def result_types(infer: TypeRule, attrs: Any, operands: Iterable[TensorType]) -> tuple[TensorType, ...]:
    """The types of an op's results by its rule.

    Raises:
        GraphError: the rule refuses the operands, or a result has a size below 0 (one that feeds have bound) or more
            bytes than memory can address.
    """
    inferred = infer(attrs, *operands)
    types = inferred if isinstance(inferred, tuple) else (inferred,)
    for type_ in types:
        nbytes = type_.dtype.itemsize
        for size in type_.shape:
            if isinstance(size, int) and size < 0:
                raise GraphError(f"a result cannot have the negative size {size}: shape {type_.shape}")
            nbytes *= size if isinstance(size, int) else 1
        if nbytes > ADDRESSABLE:
            raise GraphError(f"{type_} has {nbytes} bytes or more, and memory can address {ADDRESSABLE}")
    return types


def broadcast_shapes(shapes: list[Shape], what: str) -> Shape:
    """NumPy's rule; a Dim never broadcasts as 1, unless it is at most 1, and equals only itself until it is bound."""
    if shapes and proven(lambda: shapes.count(shapes[0]) == len(shapes)):
        return shapes[0]
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Size] = []
    for axis in range(-rank, 0):
        size: Size = 1
        for shape in shapes:
            other = shape[axis] if len(shape) >= -axis else 1
            if stretches(other):
                size = smaller(size, other) if stretches(size) else size
                continue
            if stretches(size) or (isinstance(size, Dim) and isinstance(other, int)):
                size = other if stretches(size) else _same(size, other, shapes, what)
            elif size != other:
                size = _same(size, other, shapes, what)
        result.append(size)
    return tuple(result)


def _same(a: Size, b: Size, shapes: list[Shape], what: str) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        listed = " and ".join(str(shape) for shape in shapes)
        why = ": a size that is None when declared never does" if isinstance(a, Bound) or isinstance(b, Bound) else ""
        raise GraphError(f"{what}: shapes {listed} do not broadcast: sizes {a} and {b}{why}")
    plainer = isinstance(a, int) or (isinstance(b, Dim) and _has_parts(b) and not _has_parts(a))
    return a if plainer else b  # checked when the sizes are bound and types are inferred again


def _has_parts(size: Dim) -> bool:
    return any(isinstance(atom, PositivePart) for monomial, _ in size.terms for atom in monomial)


def integer(value: Any, what: str, least: int | None = None) -> int:
    """An integer of Python or of NumPy as Python's; every argument that counts something goes through here. Floats are
    no integers, even where nothing follows their point, and bools neither.

    Raises:
        GraphError: it is something else, or below ``least``.
    """
    try:
        found = None if isinstance(value, bool | np.bool) else index(value)
    except TypeError:
        found = None
    if found is None or (least is not None and found < least):
        raise GraphError(f"{what}: expected an int{'' if least is None else f' of at least {least}'}, actual {value!r}")
    return found


def number(value: Any, what: str, least: float | None = None) -> float:
    """A number of Python or of NumPy, an array without axes too, as Python's float.

    Raises:
        GraphError: it is something else, or not at least ``least``.
    """
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, Real) or not (least is None or float(value) >= least):
        wanted = "a number" if least is None else f"a number of at least {least:g}"
        raise GraphError(f"{what}: expected {wanted}, actual {value!r}")
    return float(value)


def integers(values: Any, what: str, least: int | None = None) -> tuple[int, ...]:
    """One integer or several as Python's.

    Raises:
        GraphError: they are something else, or one is below ``least``.
    """
    return tuple([integer(value, what, least) for value in (values if np.iterable(values) else (values,))])


def normalize_axis(axis: int, ndim: int, what: str) -> int:
    """An axis in [0, ndim), from one that may count from the end."""
    place = integer(axis, f"{what}: axis")
    if not -ndim <= place < ndim:
        raise GraphError(f"{what}: axis {axis} is out of range for a tensor of {ndim} dimensions")
    return place % ndim


def normalize_axes(axis: int | tuple[int, ...] | None, ndim: int, what: str) -> tuple[int, ...]:
    """Sorted distinct axes in [0, ndim); None means all."""
    if axis is None:
        return tuple(range(ndim))
    result = tuple(sorted(normalize_axis(a, ndim, what) for a in integers(axis, f"{what}: axis")))
    if len(set(result)) != len(result):
        raise GraphError(f"{what}: repeated axis in {axis}")
    return result
