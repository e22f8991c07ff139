"""Extents: sizes that the compiler does not know, but between which bounds they lie.

    Extent   ::= Σ factor·atom·…·atom                      a polynomial in normal form
    atom     ::= OpenSize | Extent // Extent | Extent % Extent

An ``OpenSize`` is a size that the feeds of a call bind, of a *range* [low, high] with low >= 1; a program is compiled
for all sizes of its ranges. An extent stands wherever the compiler has an int: types, loops, strides and bytes are made
of extents by the arithmetic that makes them of ints, and the emitter writes an extent as an instruction on the sizes of
the call. What has to be decided while a program is compiled is decided by the bounds. Where these leave it open, and
where only a number will do (``range``, ``float``, ``str.format`` of a number, an array's shape), ``OpenSizeError`` says
so: an extent is exact or refused, never guessed. Where it can say from which size on the answer is another one, each
part of the range has a program of its own; else the program is compiled for the size of the call alone.

Whether it is 1 is decided by the rule that an extent is not, as a size that is open when declared never
broadcasts: code for a size that may be 1 is the code for any size, and what is special for 1 is left out. So is what is
special for 0, which a size of the feeds never is inside of a range, but what follows from one may be (n - 1).

Estimates (costs, seconds, blockings) are made for the greatest sizes of the ranges, by ``largest``.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from operator import and_, is_
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from staticgrad.base.frozen import frozen

T = TypeVar("T")
Equation = tuple[tuple["OpenSize", "OpenSize"], ...]
Cuts = tuple[int, ...]


class OpenSizeError(Exception):
    """The bounds of an extent leave something open that has to be known.

    Attributes:
        sizes: the open sizes that it depends on.
        where: the op or kernel that asked, with the user's line, once that is known.
        equation: pairs of sizes of which had to be known whether they are equal, where that was the question.
        cuts: the first numbers of the parts into which a range falls, by what the answer is.
    """

    def __init__(
        self, what: str, *extents: object, equation: Equation | None = None, cuts: Mapping[OpenSize, Cuts] | None = None
    ) -> None:
        super().__init__(what)
        self.sizes = frozenset(size for extent in extents if type(extent) is Extent for size in extent.sizes)
        self.equation = equation
        self.cuts = dict(cuts or {})
        self.where = ""

    def __str__(self) -> str:
        return f"{super().__str__()}{self.where}"

    def asked_by(self, name: str, source: object) -> None:
        """Note the op or kernel that asked, unless one inside of it has been noted."""
        if not self.where:
            self.where = f", for {name!r}" + (f" at {source}" if source is not None else "")


@frozen(eq=False)
class OpenSize:
    """A size that feeds bind, number ``number`` of its program: at least ``low``, at most ``high``."""

    number: int
    low: int
    high: int
    name: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenSize) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[int, int, int]:
        return self.number, self.low, self.high

    def __str__(self) -> str:
        return self.name or f"n{self.number}"

    def canonical(self) -> str:
        """A text that tells sizes apart whatever their names are."""
        return f"n{self.number}[{self.low}..{self.high}]"


@frozen(eq=False)
class Ratio:
    """``numerator // denominator``, or with ``rest`` ``numerator % denominator``, of extents that are not negative."""

    numerator: int
    denominator: int
    rest: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ratio) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        """The key that polynomials are told apart by: whether their numbers are equal is not asked."""
        return tuple(getattr(n, "terms", n) for n in (self.numerator, self.denominator)), self.rest

    @property
    def low(self) -> int:
        return 0 if self.rest else max(lowest(self.numerator), 0) // highest(self.denominator)

    @property
    def high(self) -> int:
        if self.rest:
            return min(highest(self.numerator), highest(self.denominator) - 1)
        return highest(self.numerator) // max(lowest(self.denominator), 1)

    def __str__(self) -> str:
        return self.text(str)

    def text(self, shown: Callable[[OpenSize], str]) -> str:
        numerator, denominator = (_bracketed(_text(n, shown)) for n in (self.numerator, self.denominator))
        return f"({numerator} {'%' if self.rest else '//'} {denominator})"


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text or "*" in text else text


Atom = OpenSize | Ratio
Monomial = tuple[Atom, ...]
Terms = dict[Monomial, int]

if TYPE_CHECKING:
    _Number = int
else:
    _Number = object


class Extent(_Number):
    """A size between known bounds; see the module's docstring. To type checkers and to ``isinstance`` it is an int; to
    everything that needs the number itself it is not."""

    __slots__ = ("_hash", "high", "low", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    low: int
    high: int
    _hash: int

    if not TYPE_CHECKING:
        __class__ = property(lambda self: int)

    def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Extent:
        self: Extent = object.__new__(cls)
        self.terms = terms
        self.low, self.high = _bounds(terms)
        self._hash = hash(terms)
        return self

    @property
    def sizes(self) -> frozenset[OpenSize]:
        """The open sizes that it depends on."""
        return frozenset(_sizes_of(self))

    def at(self, numbers: Sequence[int]) -> int:
        """Its number where open size ``i`` is ``numbers[i]``."""
        total = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                if isinstance(atom, OpenSize):
                    factor *= numbers[atom.number]
                else:
                    a, b = value_at(atom.numerator, numbers), value_at(atom.denominator, numbers)
                    factor *= a % b if atom.rest else a // b
            total += factor
        return total

    def __str__(self) -> str:
        return _text(self, str)

    def __repr__(self) -> str:
        return _text(self, OpenSize.canonical)

    def __format__(self, spec: str) -> str:
        if spec:
            raise _number_needed(self)
        return str(self)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Extent, (self.terms,)

    # -- arithmetic -------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> int:
        return _sum(self, other, 1) if _is_size(other) else _refuse(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> int:
        return _sum(self, other, -1) if _is_size(other) else _refuse(self, other)

    def __rsub__(self, other: Any) -> int:
        return _sum(other, self, -1) if _is_size(other) else _refuse(self, other)

    def __mul__(self, other: Any) -> int:
        if not _is_size(other):
            refused: int = _refuse(self, other)
            return refused
        products: Terms = {}
        for m1, f1 in self.terms:
            for m2, f2 in _terms(other).items():
                key = tuple(sorted((*m1, *m2), key=_order)) if m1 and m2 else m1 or m2
                products[key] = products.get(key, 0) + f1 * f2
        return _normal(products)

    __rmul__ = __mul__

    def __neg__(self) -> int:
        return self * -1

    def __pos__(self) -> int:
        return self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> int:
        return _divided(self, other)[0] if _is_size(other) else _refuse(self, other)

    def __mod__(self, other: Any) -> int:
        return _divided(self, other)[1] if _is_size(other) else _refuse(self, other)

    def __divmod__(self, other: Any) -> tuple[int, int]:
        return _divided(self, other) if _is_size(other) else _refuse(self, other)

    def __rfloordiv__(self, other: Any) -> int:
        return _divided(other, self)[0] if _is_size(other) else _refuse(self, other)

    def __rmod__(self, other: Any) -> int:
        return _divided(other, self)[1] if _is_size(other) else _refuse(self, other)

    def __rdivmod__(self, other: Any) -> tuple[int, int]:
        return _divided(other, self) if _is_size(other) else _refuse(self, other)

    # -- comparison -------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if type(other) is Extent:
            if self.terms == other.terms:
                return True
        elif not isinstance(other, int):
            return NotImplemented
        elif other in (0, 1) and _is_never_negative(self):
            return False
        difference = _sum(self, other, -1)
        if type(difference) is not Extent:
            return difference == 0
        if difference.low > 0 or difference.high < 0 or _never_zero(difference):
            return False
        return _answer(difference, f"is {self} {other}?", zero=True, equation=_equation(self, other))

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: Any) -> bool:
        if not _is_size(other):
            refused: bool = _refuse(self, other)
            return refused
        return _is_negative(_sum(self, other, -1), f"is {self} below {other}?")

    def __ge__(self, other: Any) -> bool:
        return not self.__lt__(other)

    def __gt__(self, other: Any) -> bool:
        if not _is_size(other):
            refused: bool = _refuse(self, other)
            return refused
        return _is_negative(_sum(other, self, -1), f"is {self} above {other}?")

    def __le__(self, other: Any) -> bool:
        return not self.__gt__(other)

    def __bool__(self) -> bool:
        return self != 0

    # -- a number is needed -----------------------------------------------------------------------------------------

    def __index__(self) -> int:
        raise _number_needed(self)

    __int__ = __index__
    __trunc__ = __index__

    def _needs_number(self, *_: object) -> Any:
        raise _number_needed(self)

    __float__ = __round__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _needs_number
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __and__ = __rand__ = __or__ = __ror__ = _needs_number
    __xor__ = __rxor__ = __invert__ = bit_length = bit_count = _needs_number


FIRST_END = 16  # of the ranges of a size of which nothing else is said
MOST_ASKED = 1 << 16  # sizes of a range, each of which is asked where bounds decide nothing
MOST_CUTS = 2  # of a range by one question


def range_of(size: int, ends: Sequence[int] = ()) -> tuple[int, int]:
    """The range of a size, from the size alone: up to the first of the ``ends`` that it does not exceed; after the last
    one, each range is twice as wide as the one before. 0 is a range of its own."""
    if size == 0:
        return 0, 0
    low = 1
    for end in ends or (FIRST_END,):
        if size <= end:
            return low, end
        low = end + 1
    high = 1 << (low - 1).bit_length()
    while high < size:
        low, high = max(low, high + 1), 2 * high
    return low, high


def extent_of(size: OpenSize) -> int:
    """The extent that is an open size itself; the number of a range of one size."""
    return size.low if size.low == size.high else Extent((((size,), 1),))


# -- questions ------------------------------------------------------------------------------------------------------


def is_open(value: object) -> bool:
    """True if ``value`` is an extent."""
    return type(value) is Extent


def lowest(value: int) -> int:
    """A lower bound of an extent; a number itself."""
    return value.low if type(value) is Extent else value


def highest(value: int) -> int:
    """An upper bound of an extent; a number itself."""
    return value.high if type(value) is Extent else value


def at_most(a: int, b: int) -> bool:
    """True if the bounds prove that ``a`` is no more than ``b``, of sizes that are 1, too."""
    return highest(a - b) <= 0


def proven(question: Callable[[], bool]) -> bool:
    """True if the bounds of extents decide ``question``, and the answer is yes."""
    try:
        return question()
    except OpenSizeError:
        return False


def is_same(a: object, b: object) -> bool:
    """True if two sizes, shapes or types are equal whatever the sizes of a call are."""
    return proven(lambda: a == b)


def never_negative(size: int) -> int:
    """``max(size, 0)``. A polynomial has to be on one side of 0 at all sizes."""
    if not is_open(size):
        return max(size, 0)
    if proven(lambda: size <= 0):
        return 0
    return size if size >= 0 else 0


def is_exactly(size: Any, number: int) -> bool:
    """True if a size is ``number``; also where that is 0 or 1 an extent is asked. What feeds bind is none."""
    difference = size - number
    return bool(_answer(difference, f"is {size} {number}?", zero=True) if is_open(difference) else difference == 0)


def value_at(value: int, numbers: Sequence[int]) -> int:
    """The number of an extent where open size ``i`` is ``numbers[i]``."""
    return value.at(numbers) if type(value) is Extent else value


def at_sizes(value: T, numbers: Sequence[int]) -> T:
    """``value`` with the numbers of its extents: an extent, tuples and frozen dataclasses in which there are some."""
    result: T = mapped(value, lambda extent: extent.at(numbers))
    return result


def sizer(values: Sequence[T]) -> Callable[[Sequence[int]], tuple[T, ...]]:
    """``at_sizes`` of values many of which are alike, as a function of the numbers; what is alike comes as one object.
    It is called with many numbers."""
    kinds = {value: number for number, value in enumerate(dict.fromkeys(values))}
    places = [kinds[value] for value in values]

    def sized(numbers: Sequence[int]) -> tuple[T, ...]:
        made = [at_sizes(kind, numbers) for kind in kinds]
        return tuple([made[place] for place in places])

    return sized


def largest(value: T) -> T:
    """``value`` where each open size is the greatest of its range: for estimates."""
    result: T = mapped(value, _at_highest)
    return result


def narrowed(value: T, number: int, low: int, high: int) -> T:
    """``value`` where open size ``number`` has these bounds, which lie within its own."""

    def narrow(size: int) -> int:
        if type(size) is not Extent:
            return size
        total = 0
        for monomial, factor in size.terms:
            for atom in monomial:
                if isinstance(atom, OpenSize):
                    factor *= extent_of(OpenSize(number, low, high, atom.name) if atom.number == number else atom)
                else:
                    a, b = narrow(atom.numerator), narrow(atom.denominator)
                    factor *= a % b if atom.rest else a // b
            total += factor
        return total

    result: T = mapped(value, narrow)
    return result


def open_sizes(value: Any) -> frozenset[OpenSize]:
    """The open sizes that occur in a value: an extent, tuples and frozen dataclasses in which there are some."""
    found: set[OpenSize] = set()

    def visit(extent: Extent) -> Extent:
        found.update(extent.sizes)
        return extent

    mapped(value, visit)
    return frozenset(found)


def mapped(value: Any, convert: Callable[[Extent], Any]) -> Any:
    """Convert every extent inside tuples and frozen dataclasses; what has none stays the same object."""
    kind: Any = type(value)
    if kind is Extent:
        return convert(value)
    if kind is tuple:
        for item in value:
            if type(item) not in _PLAIN:  # most tuples are of numbers
                items = tuple([item if type(item) in _PLAIN else mapped(item, convert) for item in value])
                return value if all(map(is_, items, value)) else items
        return value
    changed: dict[str, Any] = {}
    for name in _names(kind):
        old = getattr(value, name)
        if type(old) not in _PLAIN and (item := mapped(old, convert)) is not old:
            changed[name] = item
    return replace(value, **changed) if changed else value


_PLAIN = frozenset({int, bool, float, str, type(None), np.dtype, *map(type, map(np.dtype, "?bhilBHILefd"))})


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a class of values that are made of others; of any other class none."""
    return tuple(f.name for f in fields(kind) if f.init) if is_dataclass(kind) else ()


# -- polynomials ----------------------------------------------------------------------------------------------------


def _is_size(value: object) -> bool:
    return isinstance(value, int)


def _terms(value: int) -> Terms:
    return dict(value.terms) if type(value) is Extent else ({(): int(value)} if value else {})


def _sum(a: int, b: int, sign: int) -> int:
    total = _terms(a)
    for monomial, factor in _terms(b).items():
        total[monomial] = total.get(monomial, 0) + sign * factor
    return _normal(total)


def _normal(terms: Mapping[Monomial, int]) -> int:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Extent(tuple(sorted(kept.items(), key=lambda item: (len(item[0]), [_order(atom) for atom in item[0]]))))


def _order(atom: Atom) -> tuple[int, int, str]:
    return (0, atom.number, "") if isinstance(atom, OpenSize) else (1, 0, atom.text(OpenSize.canonical))


def _bounds(terms: Sequence[tuple[Monomial, int]]) -> tuple[int, int]:
    if len(terms) > 1 and terms[0][0] and len({factor > 0 for _, factor in terms}) > 1:  # n*m - n is n*(m - 1)
        counts = [Counter(monomial) for monomial, _ in terms]
        if shared := functools.reduce(and_, counts):
            rest = [(tuple((n - shared).elements()), factor) for n, (_, factor) in zip(counts, terms, strict=True)]
            (least, most), (low, high) = _bounds([(tuple(shared.elements()), 1)]), _bounds(rest)
            return low * (least if low > 0 else most), high * (most if high > 0 else least)
    low = high = 0
    for monomial, factor in terms:
        least = most = 1
        for atom in monomial:  # none is negative
            least, most = least * atom.low, most * atom.high
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    return low, high


def _divided(a: int, b: int) -> tuple[int, int]:
    """Floor quotient and remainder. What is divisible term by term is divided so; the rest is a ratio."""
    if b == 0:
        raise ZeroDivisionError(f"the size {a} // 0")
    if b == 1:
        return a, 0
    if b < 0:
        quotient, rest = _divided(-a, -b)
        return quotient, -rest
    whole, left = _whole(a, b)
    if lowest(left) >= 0 and highest(left) < lowest(b):
        return whole, left
    if lowest(left) < 0 < highest(left) and lowest(a) >= 0 and not is_open(b):
        more = -(lowest(left) // b)
        whole, left = whole - more, left + more * b
    elif highest(left) <= 0 or _is_negative(left, f"{a} // {b}: the sign is not known"):  # rounded up: -(-n // 8)
        up = _ratio(-left + b - 1, b, rest=False)
        return whole - up, left + up * b
    return whole + _ratio(left, b, rest=False), _ratio(left, b, rest=True)


def _whole(a: int, b: int) -> tuple[int, int]:
    """The terms of ``a`` that ``b``, one term, divides, divided; and the others, a number as small as may be."""
    divisor = list(_terms(b).items())
    if type(a) is Extent and a.terms == getattr(b, "terms", None):
        return 1, 0
    if len(divisor) != 1:
        return 0, a
    ((below, by),) = divisor
    whole: Terms = {}
    left: Terms = {}
    for monomial, factor in _terms(a).items():
        rest: list[Atom] | None = list(monomial)
        for atom in below:
            if rest is not None and atom in rest:
                rest.remove(atom)
            else:
                rest = None
        if rest is None:
            left[monomial] = factor
            continue
        quotient = factor // by if factor > 0 else -(-factor // by)
        remainder = factor - quotient * by
        key = tuple(rest)
        whole[key] = whole.get(key, 0) + quotient
        left[monomial] = remainder
    return _normal(whole), _normal(left)


def _ratio(numerator: int, denominator: int, *, rest: bool) -> int:
    if type(numerator) is not Extent and type(denominator) is not Extent:
        return numerator % denominator if rest else numerator // denominator
    question = f"{numerator} // {denominator}: it may be divided by 0"
    if _is_negative(denominator - 1, question):
        raise OpenSizeError(question, denominator)
    atom = Ratio(numerator, denominator, rest)
    return atom.low if atom.low == atom.high else Extent((((atom,), 1),))


def _never_zero(value: Extent) -> bool:
    """True if a number divides all terms but the constant one."""
    constant = dict(value.terms).get((), 0)
    return constant != 0 and any(
        all(factor % n == 0 for monomial, factor in value.terms if monomial) and constant % n for n in (2, 3)
    )


def _equation(a: object, b: object) -> Equation | None:
    """The pairs of open sizes of which two extents are products, the same number of each, in order: two products are
    equal where their factors are."""

    def factors(value: object) -> tuple[int, list[OpenSize]]:
        match value.terms if type(value) is Extent else ():
            case ((tuple(atoms), factor),) if all(isinstance(atom, OpenSize) for atom in atoms):
                return factor, [atom for atom in atoms if isinstance(atom, OpenSize)]
        return 0, []

    (p, x), (q, y) = factors(a), factors(b)
    return tuple(zip(x, y, strict=True)) if x and p == q and len(x) == len(y) else None


def _is_negative(value: int, question: str) -> bool:
    return _answer(value, question, zero=False)


def _answer(value: int, question: str, *, zero: bool, equation: Equation | None = None) -> bool:
    """True if an extent is 0 (``zero``), or negative, at all sizes, False if at none."""
    known = _by_bounds(value, zero)
    if known is not None:
        return known
    assert type(value) is Extent
    cuts: dict[OpenSize, Cuts] = {}
    numbers = _at_all(value)
    if numbers is not None:
        answers = numbers == 0 if zero else numbers < 0
        changes = np.flatnonzero(answers[1:] != answers[:-1])
        if not changes.size:
            return bool(answers[0])
        (size,) = value.sizes
        if changes.size <= MOST_CUTS:
            cuts[size] = tuple((changes + size.low + 1).tolist())
    elif _by_bounds(_behind_lowest(value), zero) is not None:
        cuts = {size: (size.low + 1,) for size in value.sizes if size.low < size.high}
    raise OpenSizeError(question, value, equation=equation, cuts=cuts)


def _by_bounds(value: int, zero: bool) -> bool | None:
    low, high = lowest(value), highest(value)
    if high < 0:
        return not zero
    if low > 0 or (low == 0 and not zero):
        return False
    return True if low == high else None


def _is_never_negative(extent: Extent) -> bool:
    """True if an extent is at least 0 at all sizes, by its bounds or by its numbers."""
    numbers = _at_all(extent) if extent.low < 0 < extent.high else None
    return extent.low >= 0 if numbers is None else bool((numbers >= 0).all())


def _at_all(extent: Extent) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """The numbers of an extent at all sizes of a range, if it depends on one that is not too long."""
    (size, *others) = extent.sizes
    if others or size.high - size.low >= MOST_ASKED or max(-extent.low, extent.high) >= 2**62:
        return None
    numbers: Any = {size.number: np.arange(size.low, size.high + 1)}
    found: Any = extent.at(numbers)
    return np.asarray(found)


def _behind_lowest(extent: Extent) -> int:
    """An extent where no size is the lowest of its range."""
    numbers: Any = {s.number: extent_of(OpenSize(s.number, min(s.low + 1, s.high), s.high)) for s in extent.sizes}
    return extent.at(numbers)


def _at_highest(extent: Extent) -> int:
    sizes = {size.number: size.high for size in extent.sizes}
    return extent.at([sizes.get(number, 0) for number in range(max(sizes) + 1)])


def _sizes_of(value: int) -> Iterator[OpenSize]:
    if type(value) is Extent:
        for monomial, _ in value.terms:
            for atom in monomial:
                if isinstance(atom, OpenSize):
                    yield atom
                else:
                    yield from _sizes_of(atom.numerator)
                    yield from _sizes_of(atom.denominator)


def _text(value: int, shown: Callable[[OpenSize], str]) -> str:
    """The polynomial as Python reads it, terms of a higher degree first."""
    if type(value) is not Extent:
        return str(value)
    text = ""
    for monomial, factor in sorted(value.terms, key=lambda term: -len(term[0])):
        atoms = "*".join(shown(atom) if isinstance(atom, OpenSize) else atom.text(shown) for atom in monomial)
        sign, amount = "-" if factor < 0 else "+", abs(factor)
        product = str(amount) if not atoms else atoms if amount == 1 else f"{amount}*{atoms}"
        text += f" {sign} {product}" if text else product if sign == "+" else f"-{product}"
    return text


def _number_needed(extent: Extent) -> OpenSizeError:
    return OpenSizeError(f"the number of {extent} is needed", extent)


def _refuse(extent: Extent, other: object) -> Any:
    """A float, of an estimate or of a value: neither is an extent's."""
    if isinstance(other, float):
        raise _number_needed(extent)
    return NotImplemented


# -- as plain data --------------------------------------------------------------------------------------------------


def to_plain(value: int) -> Any:
    """An extent as nested tuples of numbers and texts; a number itself."""
    if type(value) is not Extent:
        return value
    return tuple([(tuple(map(_plain_atom, monomial)), factor) for monomial, factor in value.terms])


def _plain_atom(atom: Atom) -> Any:
    if isinstance(atom, OpenSize):
        return atom.number, atom.low, atom.high
    return "%" if atom.rest else "/", to_plain(atom.numerator), to_plain(atom.denominator)


def from_plain(data: Any) -> int:
    """The size that ``to_plain`` made such data of.

    Raises:
        ValueError: nothing.
    """
    if type(data) is int:
        return data
    if type(data) is not tuple:
        raise ValueError(f"no extent: {data!r}")
    terms: Terms = {}
    for term in data:
        match term:
            case (tuple(atoms), int(factor)):
                terms[tuple(map(_atom_of, atoms))] = factor
            case _:
                raise ValueError(f"no term of an extent: {term!r}")
    return _normal(terms)


def _atom_of(data: Any) -> Atom:
    match data:
        case (int(number), int(low), int(high)) if number >= 0 and 0 < low <= high:
            return OpenSize(number, low, high)
        case ("%" | "/" as kind, numerator, denominator):
            a, b = from_plain(numerator), from_plain(denominator)
            if highest(a) >= 0 and highest(b) >= 1:
                return Ratio(a, b, kind == "%")
    raise ValueError(f"no atom of an extent: {data!r}")
