"""A writer of LLVM IR text: modules, functions, values, loops.

Text is ten times cheaper to make than an object model of the same IR, and the code written here is already in the
form that the code generator wants (SSA, explicit vectors, no memory for local values), so no IR passes are run.

    module   ::= globals, declarations, functions, which a long one deals out to several texts (``emit.parts``)
    function ::= opening, blocks of instructions; values are ``Value`` (text and LLVM type)
    opening  ::= what depends on the open sizes of a call alone
    loop     ::= counted, with carried values instead of memory

Types are LLVM's own spelling (``float``, ``<16 x float>``, ``i64``, ``ptr``). Indices are integers as wide as an
address, of the type that ``INDEX`` stands for in lists of parameters.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field

import numpy as np

from staticgrad.base.extents import Atom, Extent, OpenSize, at_most, is_open
from staticgrad.base.frozen import frozen, record
from staticgrad.base.reach import reach
from staticgrad.compiler.emit import parts
from staticgrad.compiler.emit.parts import Definition
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.machine.target import Target

INDEX = "index"  # as a parameter's type: that of indices on the target, ``Function.word``
PAGE = 4096  # bytes that a guard page after a stack has at least
SCALAR_TYPES = {
    "bool": "i8", "uint8": "i8", "int8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32",
    "int64": "i64", "uint64": "i64", "float32": "float", "float64": "double", "float16": "i16", "bfloat16": "i16",
}  # fmt: skip

_ESCAPES = [f"\\{byte:02X}" for byte in range(256)]  # bytes in LLVM's strings
ALIGNMENTS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "float": 4}  # of others 8


@functools.cache
def memory_type(dtype: np.dtype) -> str:
    """The LLVM type of one element in memory (bool is a byte, 0 or 1; floats of 16 bits are their bits)."""
    return SCALAR_TYPES[dtype.name]


@functools.cache
def value_type(dtype: np.dtype) -> str:
    """The LLVM type of one element in a register (bool is one bit)."""
    return "i1" if dtype.name == "bool" else SCALAR_TYPES[dtype.name]


def vector(element: str, lanes: int) -> str:
    """``<lanes x element>``, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@functools.cache
def element_of(type_: str) -> str:
    return type_.split(" x ")[1][:-1] if type_.startswith("<") else type_


@functools.cache
def lanes_of(type_: str) -> int:
    return int(type_[1:].split(" x ")[0]) if type_.startswith("<") else 1


def float_literal(value: float, element: str) -> str:
    """LLVM writes both float widths as the bits of a double; a float literal must be exactly representable."""
    if element == "float":
        value = float(np.float32(value))
    return "0x" + struct.pack(">d", value).hex().upper()


def number_literal(value: float | int | bool, element: str) -> str:
    """A number as LLVM writes it in a type of one element."""
    if element in ("float", "double"):
        return float_literal(float(value), element)
    if element == "i1":
        return "true" if value else "false"
    bits = int(element[1:])
    return str((int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))


@frozen
class Value:
    """An SSA value or a literal, with its LLVM type."""

    text: str
    type: str

    @property
    def is_literal(self) -> bool:
        """True if the text says the value; else it names an instruction's."""
        return not self.text.startswith("%")

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def integer(value: int, type_: str = "i64") -> Value:
    return Value(str(int(value)), type_)


@functools.cache
def suffix(type_: str) -> str:
    """The overload suffix of an intrinsic for ``type_``: v16f32, f64, i32, …"""
    element, lanes = element_of(type_), lanes_of(type_)
    short = {"float": "f32", "double": "f64"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def phi(*ways: tuple[Value, str]) -> str:
    """The instruction that takes the value of the block from which control comes."""
    return f"phi {ways[0][0].type} " + ", ".join(f"[ {value.text}, %{block} ]" for value, block in ways)


Index = Value | int


def is_number(index: Index, number: int) -> bool:
    """True if an index is known to be ``number``."""
    return isinstance(index, int) and not is_open(index) and index == number


# -- arithmetic of indices that needs no instruction: None where it does ----------------------------------------------


def known_sum(a: Index, b: Index) -> Index | None:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if is_number(a, 0) else a if is_number(b, 0) else None


def known_difference(a: Index, b: Index) -> Index | None:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return a if is_number(b, 0) else None


def known_product(a: Index, b: Index) -> Index | None:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if is_number(a, 0) or is_number(b, 0):
        return 0
    return b if is_number(a, 1) else a if is_number(b, 1) else None


def known_least(a: Index, b: Index) -> Index | None:
    if not (isinstance(a, int) and isinstance(b, int)):
        return None
    return a if at_most(a, b) else b if at_most(b, a) else None


def known_greatest(a: Index, b: Index) -> Index | None:
    if not (isinstance(a, int) and isinstance(b, int)):
        return None
    return a if at_most(b, a) else b if at_most(a, b) else None


# -- modules and functions ---------------------------------------------------------------------------------------------


class IRModule:
    """One LLVM module: functions, the intrinsics they declare, constant data. Equal functions are written once."""

    def __init__(self, target: Target, *, has_sizes: bool = False) -> None:
        self.target = target
        self.has_sizes = has_sizes  # whether the sizes of a call have to be asked for
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, Definition] = {}
        self._functions: dict[str, Definition] = {}
        self._numbers: dict[str, int] = {}  # the last that made a name unique
        self._shared: dict[object, str] = {}
        self._takes_sizes: set[str] = set()
        self._seconds: dict[str, float] = {}  # that a program spends in a function, as far as is known

    def declare(self, name: str, result: str, params: Sequence[str]) -> None:
        self._declarations.setdefault(name, f"declare {result} @{name}({', '.join(params)})\n")

    def function(self, name: str, params: Sequence[str], result: str = "void", *, internal: bool = True) -> Function:
        """Open a function; it belongs to the module once ``Function.finish`` is called."""
        return Function(self, name, params, result, internal)

    def shared(self, key: object) -> str | None:
        """The name of the function that was added under ``key``, if there is one: equal kernels are shared."""
        return self._shared.get(key)

    def share(self, key: object, name: str) -> str:
        self._shared[key] = name
        return name

    def leaf(
        self, stem: str, params: Sequence[str], write: Callable[..., None], *how: object, result: str = "void"
    ) -> str:
        """The name of the function whose body ``write(function, *how)`` writes, added when first asked for."""
        key = (write, *how)
        name = self.shared(key)
        if name is None:
            f = self.function(self.unique(stem), params, result)
            write(f, *how)
            name = self.share(key, f.finish())
        return name

    def unique(self, stem: str) -> str:
        """A function name that is not taken yet."""
        name = stem
        while name in self._functions:
            self._numbers[stem] = number = self._numbers.get(stem, 0) + 1
            name = f"{stem}.{number}"
        return name

    def add(self, name: str, function: Definition, *, takes_sizes: bool = False) -> None:
        if name in self._functions:
            raise ValueError(f"function {name} is defined twice")
        self._functions[name] = function
        if takes_sizes:
            self._takes_sizes.add(name)

    def takes_sizes(self, name: str) -> bool:
        """True if the function that was added as ``name`` has the address of the open sizes as its last parameter."""
        return name in self._takes_sizes

    def table(self, name: str, array: np.ndarray) -> str:
        """A constant array in the module; returns its name."""
        element = memory_type(array.dtype)
        if element in ("float", "double"):
            items = ", ".join(f"{element} {float_literal(float(v), element)}" for v in array.ravel())
        else:
            items = ", ".join(f"{element} {int(v)}" for v in array.ravel())
        return self._global(name, f"constant [{array.size} x {element}] [{items}], align 64")

    def data(self, name: str, content: bytes, *, internal: bool = True) -> str:
        """Constant bytes in the module, aligned to a cache line; returns their name."""
        filled = f'c"{"".join(map(_ESCAPES.__getitem__, content))}"' if any(content) else "zeroinitializer"
        return self._global(name, f"constant [{len(content)} x i8] {filled}, align 64", internal=internal)

    def words(self, name: str, count: int) -> str:
        """Memory for ``count`` 64-bit integers that the code writes, zero at first; returns its name."""
        return self._global(name, f"global [{count} x i64] zeroinitializer, align 64")

    def _global(self, name: str, content: str, *, internal: bool = True) -> str:
        # Pointers are of any type: no bytes at all stand for any global.
        declaration = f"@{name} = external hidden global [0 x i8]\n"
        self._globals[name] = Definition(f"@{name} = ", internal, content, declaration)
        return name

    def text(self) -> str:
        """LLVM text of the module as one."""
        globals_, functions = ([d.text() for d in items.values()] for items in (self._globals, self._functions))
        return "".join([*globals_, *self._declarations.values(), *functions, self._attributes()])

    def texts(self) -> tuple[str, ...]:
        """LLVM text of the module as several if it is long, which are compiled side by side."""
        return self.texts_apart(())[1]

    def texts_apart(self, apart: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The texts of modules of some functions, and those of the others."""
        whole, groups = self.text(), [set(apart), self._functions.keys() - set(apart)]
        length = sum(len(self._functions[name].text()) for name in groups[0])
        lengths = length, len(whole) - length
        counts = [min(parts.MOST_PARTS, max(1, n // parts.PART)) if g else 0 for g, n in zip(groups, lengths)]
        if sum(counts) <= 1:
            return ((whole,), ()) if apart else ((), (whole,))
        dealt = list(zip(groups, counts, strict=True))
        found = parts.parts(self._globals, self._declarations, self._functions, dealt)
        texts = tuple(text + self._attributes() for text in found)
        return texts[: counts[0]], texts[counts[0] :]

    def spend(self, name: str, seconds: float) -> None:
        """Note that a program spends some time in this function and in those that it calls."""
        if seconds > 0:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def hot(self) -> set[str] | None:
        """The functions in which a program loses more time if they are made quickly than making them well takes; None
        where making the others quickly saves too little: it is a small program, or calls of it are long."""
        seconds = dict.fromkeys(self._functions, 0.0)
        for name, spent in self._seconds.items():
            for user in reach([name], lambda known: self._functions.keys() & self._functions[known].uses):
                seconds[user] += spent
        saved = {name: RATES.quick_saves * RATES.codegen_seconds * len(d.rest) for name, d in self._functions.items()}
        hot = {name for name, spent in seconds.items() if RATES.quick_takes * spent > saved[name]}
        lost = RATES.quick_takes * sum(spent for name, spent in self._seconds.items() if name not in hot)
        gain = sum(some for name, some in saved.items() if name not in hot) - lost
        return hot if gain >= RATES.quick_least_saved_seconds else None

    def _attributes(self) -> str:
        """The attributes of all functions: where frames are not looked at, no tables describe them. Where code is to be
        short LLVM makes functions of equal pieces; those of RISC-V are jumped to by way of a register that is in use
        (LLVM 22), so machines say whether they do well by it."""
        isa = self.target.isa
        found = ["nounwind"] * (not isa.unwinds)
        if self.target.machine.compact:
            found += ["minsize", "optsize", *['"nooutline"'] * (not isa.outlines)]
        return f"attributes #0 = {{ {' '.join(found)} }}\n" if found else ""


@record
class CountedLoop:
    """A counted loop while it is written; after it, ``results`` holds the carried values."""

    index: Value
    carried: list[Value]
    results: list[Value] = field(default_factory=list)
    _next: list[Value] | None = None

    def next(self, *values: Value) -> None:
        """The carried values of the next turn, in the order of ``carry``."""
        self._next = list(values)

    def following(self) -> list[Value]:
        """The carried values that ``next`` was told."""
        found = self._next if self._next is not None else []
        if len(found) != len(self.carried):
            raise ValueError("the loop carries values but its body did not set the next ones")
        return found


class Opening:
    """The first lines of a function: the open sizes of a call, and what depends on them alone, each computed once. The
    values are known everywhere in the function."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.lines: list[str] = []
        self._numbers: dict[Atom, Value] = {}
        self._computed: dict[tuple[str, str, str], Value] = {}
        self._sizes: Value | None = None
        self._sizes_place: tuple[Value, int] | None = None

    @property
    def takes_sizes(self) -> bool:
        """True if the address of the open sizes is the function's last parameter."""
        return self._sizes is not None and self._sizes_place is None

    def sizes_at(self, table: Value, position: int) -> None:
        """Say where the address of the open sizes is: word ``position`` of a parameter. A function of which nothing is
        said has it as its last parameter, if it reads a size or calls a function that does."""
        self._sizes_place = table, position

    def sizes(self) -> Value:
        """The address of the open sizes of the program."""
        if self._sizes is None:
            self._sizes = Value("%sizes", "ptr")
            if self._sizes_place is not None:
                table, position = self._sizes_place
                at = integer(position, self.f.word)
                place = self._first("ptr", f"getelementptr ptr, {table}, {at}") if position else table
                self._sizes = self._first("ptr", f"load ptr, {place}, align {self.f.alignment('ptr')}")
        return self._sizes

    def number_of(self, extent: int) -> Value:
        """The number of an extent, computed when the function begins."""
        assert isinstance(extent, Extent)
        total: Value | None = None
        for monomial, factor in sorted(extent.terms, key=lambda term: term[1] < 0):
            product: Value | None = None
            for atom in monomial:
                value = self._atom(atom)
                product = value if product is None else self._known("mul nsw", product, value)
            if product is None:
                product = integer(factor, self.f.word)
            elif factor != 1:
                product = self._known("mul nsw", product, integer(factor, self.f.word))
            total = product if total is None else self._known("add nsw", total, product)
        assert total is not None
        return total

    def _atom(self, atom: Atom) -> Value:
        if atom not in self._numbers:
            if isinstance(atom, OpenSize):
                sizes = self.sizes()
                place = self._first("ptr", f"getelementptr i64, {sizes}, i64 {atom.number}") if atom.number else sizes
                size = self._first("i64", f"load i64, {place}, align 8")
                fits = self.f.word == "i64"
                self._numbers[atom] = size if fits else self._first(self.f.word, f"trunc {size} to {self.f.word}")
            else:
                a, b = self.f.index(atom.numerator), self.f.index(atom.denominator)
                self._numbers[atom] = self._known("urem" if atom.rest else "udiv", a, b)
        return self._numbers[atom]

    def _known(self, op: str, a: Value, b: Value) -> Value:
        """An operation on extents, written once."""
        key = (op, a.text, b.text)
        if key not in self._computed:
            self._computed[key] = self._first(self.f.word, f"{op} {a}, {b.text}")
        return self._computed[key]

    def call(self, function: str, result: str, number: int) -> Value:
        """The result of a function of the module for a number that depends on the open sizes alone: it is called once,
        when the function begins."""
        key = ("call", function, self.f.index(number).text)
        if key not in self._computed:
            text = f"call {result} {self.f.symbol(function).text}({self.f.index(number)})"
            self._computed[key] = self._first(result, text)
        return self._computed[key]

    def _first(self, type_: str, text: str) -> Value:
        """``emit`` before everything else, so that the value is known everywhere."""
        value = Value(self.f.unnamed(), type_)
        self.lines.append(f"  {value.text} = {text}")
        return value


class Function:
    """A function under construction. Every method that makes a value returns it."""

    def __init__(self, module: IRModule, name: str, params: Sequence[str], result: str, internal: bool) -> None:
        self.module = module
        self.target = module.target
        self.name = name
        self.result = module.target.isa.word if result == INDEX else result
        self._internal = internal
        self.word = module.target.isa.word  # the type of indices
        params = [self.word if type_ == INDEX else type_ for type_ in params]
        self.params = [Value(f"%p{i}", _without_attributes(type_)) for i, type_ in enumerate(params)]
        self._header = ", ".join(f"{type_} %p{i}" for i, type_ in enumerate(params))
        self._lines: list[str] = ["entry:"]
        self._count = 0
        self._block = "entry"
        self._attributes = "#0"
        self._uses: set[str] = set()
        self.opening = Opening(self)

    # -- writing ------------------------------------------------------------------------------------------------

    def unnamed(self) -> str:
        """The next number as the name of a value."""
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        self._lines.append("  " + text)

    def emit(self, type_: str, text: str) -> Value:
        """Write ``%new = text`` and return the new value, of LLVM type ``type_``."""
        value = Value(self.unnamed(), type_)
        self._lines.append(f"  {value.text} = {text}")
        return value

    def stack(self, nbytes: int) -> Value:
        """The address of ``nbytes`` on the stack until the function returns; it has not opened a block yet. A stack
        that is too short for them ends the process: where a page without access ends a stack, each page is
        touched, so that none is written past the last."""
        if nbytes >= PAGE and self.target.isa.guarded:
            self._attributes = '#0 "probe-stack"="inline-asm"'
        return self.emit("ptr", f"alloca [{nbytes} x i8], align 64")

    def label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def block(self, label: str) -> None:
        """Start a block; the block before it must have been ended by a branch."""
        self._lines.append(f"{label}:")
        self._block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    @property
    def current_block(self) -> str:
        return self._block

    def ret(self, value: Value | None = None) -> None:
        self.line("ret void" if value is None else f"ret {value}")

    def finish(self) -> str:
        """Close the function (a void one gets its ``ret``), add it to the module and return its name."""
        if self.result == "void" and not self._lines[-1].startswith("  ret"):
            self.ret()
        takes_sizes = self.opening.takes_sizes
        header = ", ".join([self._header] * bool(self._header) + ["ptr %sizes"] * takes_sizes)
        self._lines[1:1] = self.opening.lines
        head, body = f"{self.result} @{self.name}({header})", "\n".join(self._lines)
        text, linkage = f"{head} {self._attributes} {{\n{body}\n}}", "hidden " if self._internal else ""
        declaration = f"declare {linkage}{head}\n"
        definition = Definition("define ", self._internal, text, declaration, frozenset(self._uses))
        self.module.add(self.name, definition, takes_sizes=takes_sizes)
        return self.name

    def symbol(self, name: str) -> Value:
        """The address of a function or global of the module."""
        self._uses.add(name)
        return Value(f"@{name}", "ptr")

    # -- constants and vectors ----------------------------------------------------------------------------------

    def const(self, value: float | int | bool, type_: str) -> Value:
        """A literal of a scalar or vector type (every lane the same)."""
        element, lanes = element_of(type_), lanes_of(type_)
        text = number_literal(value, element)
        return Value(text if lanes == 1 else f"splat ({element} {text})", type_)

    def lane_numbers(self, type_: str, first: int = 0) -> Value:
        """``<first, first + 1, …>`` of an integer vector type (``first`` for a scalar)."""
        element, lanes = element_of(type_), lanes_of(type_)
        if lanes == 1:
            return Value(str(first), type_)
        return Value("<" + ", ".join(f"{element} {first + i}" for i in range(lanes)) + ">", type_)

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A vector with ``scalar`` in every lane."""
        if lanes == 1:
            return scalar
        type_ = vector(scalar.type, lanes)
        if not scalar.text.startswith(("%", "@")):
            return Value(f"splat ({scalar})", type_)
        one = self.emit(type_, f"insertelement {type_} poison, {scalar}, i64 0")
        zero_mask = f"<{lanes} x i32> zeroinitializer"
        return self.emit(type_, f"shufflevector {one}, {type_} poison, {zero_mask}")

    def extract(self, value: Value, lane: Index) -> Value:
        if lanes_of(value.type) == 1:
            return value
        return self.emit(element_of(value.type), f"extractelement {value}, {self.index(lane)}")

    def insert(self, value: Value, scalar: Value, lane: Index) -> Value:
        return self.emit(value.type, f"insertelement {value}, {scalar}, {self.index(lane)}")

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes of two values end to end; ``a`` alone without ``b``. Scalars have one lane."""
        if lanes_of(a.type) == 1:
            return side_by_side(self, [(a, b)[lane] or a for lane in lanes])
        other = f"{a.type} poison" if b is None else str(b)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        type_ = vector(element_of(a.type), len(lanes))
        return self.emit(type_, f"shufflevector {a}, {other}, <{len(lanes)} x i32> <{mask}>")

    def index(self, index: Index) -> Value:
        """The index as a value of the type of indices, whether it is known or not: of a wider integer the low bits,
        which are all that an address has."""
        if not isinstance(index, Value):
            return self.opening.number_of(index) if is_open(index) else integer(index, self.word)
        return index if index.type == self.word or index.type != "i64" else self.resized(index, self.word)

    def int64(self, index: Index) -> Value:
        """An index as a number of the user's programs."""
        return self.resized(self.index(index), "i64")

    def resized(self, value: Value, type_: str) -> Value:
        """A signed integer as one of another width."""
        if value.type == type_:
            return value
        if not value.text.startswith(("%", "@")):
            return Value(value.text, type_)
        return self.cast("sext" if int(value.type[1:]) < int(type_[1:]) else "trunc", value, type_)

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """``op`` is LLVM's: fadd, fsub, fmul, fdiv, add, sub, mul, and, or, xor, shl, lshr, ashr, …"""
        return self.emit(a.type, f"{op} {a}, {b.text}")

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """``op`` is the whole predicate: ``fcmp olt``, ``icmp slt``, …"""
        return self.emit(vector("i1", lanes_of(a.type)), f"{op} {a}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.emit(a.type, f"select {condition}, {a}, {b}")

    def cast(self, op: str, a: Value, element: str) -> Value:
        """``op`` is LLVM's: fptrunc, fpext, sitofp, uitofp, sext, zext, trunc, bitcast, …; to lanes of ``element``."""
        type_ = vector(element, lanes_of(a.type))
        return self.emit(type_, f"{op} {a} to {type_}")

    def intrinsic(self, name: str, result: str, *args: Value) -> Value:
        """Call ``@name`` (spelled whole, such as ``llvm.sqrt.v16f32``), declaring it when first used."""
        self.module.declare(name, result, [a.type for a in args])
        return self.call(name, result, *args)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a*b + c: one rounding where the machine has the instruction, else a product and a sum."""
        if self.target.isa.fuses(element_of(a.type)):
            return self.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, a, b, c)
        return self.binary("fadd", self.binary("fmul", a, b), c)

    def extreme(self, kind: str, a: Value, b: Value) -> Value:
        """The ``min`` or ``max`` of floats, NaN if either is, for a machine that has an instruction for it."""
        return self.intrinsic(f"llvm.{kind}imum.{suffix(a.type)}", a.type, a, b)

    def call(self, function: str | Value, result: str, *args: Index) -> Value:
        """Call a function by its name, or one whose address was chosen."""
        address = function if isinstance(function, Value) else self.symbol(function)
        if isinstance(function, str) and self.module.takes_sizes(function):
            args = (*args, self.opening.sizes())
        if result == INDEX:
            result = self.word
        values = [arg if isinstance(arg, Value) else self.index(arg) for arg in args]
        text = f"call {result} {address.text}({', '.join(map(str, values))})"
        if result == "void":
            self.line(text)
            return Value("", "void")
        return self.emit(result, text)

    def call_leaf(self, stem: str, write: Callable[..., None], how: tuple[object, ...], *args: Index) -> None:
        """Call the function whose body ``write(function, *how)`` writes (``IRModule.leaf``)."""
        types = [self.index(arg).type for arg in args]
        self.call(self.module.leaf(stem, types, write, *how), "void", *args)

    # -- index arithmetic, folded where both sides are known ----------------------------------------------

    def add(self, a: Index, b: Index) -> Index:
        return self._unless_known(known_sum(a, b), "add nsw", a, b)

    def mul(self, a: Index, b: Index) -> Index:
        return self._unless_known(known_product(a, b), "mul nsw", a, b)

    def sub(self, a: Index, b: Index) -> Index:
        return self._unless_known(known_difference(a, b), "sub nsw", a, b)

    def _unless_known(self, known: Index | None, op: str, a: Index, b: Index) -> Index:
        return self.binary(op, self.index(a), self.index(b)) if known is None else known

    def min(self, a: Index, b: Index) -> Index:
        known, name = known_least(a, b), f"llvm.smin.{self.word}"
        return self.intrinsic(name, self.word, self.index(a), self.index(b)) if known is None else known

    def max(self, a: Index, b: Index) -> Index:
        known, name = known_greatest(a, b), f"llvm.smax.{self.word}"
        return self.intrinsic(name, self.word, self.index(a), self.index(b)) if known is None else known

    # -- memory -------------------------------------------------------------------------------------------------

    def opaque(self, value: Value) -> Value:
        """The same value, of which nothing else is known: a loop keeps a pointer in a register of its own, where the
        code generator would add up all pointers from one in every turn to save registers."""
        return self.emit(value.type, f"freeze {value}")

    def factor(self, element: str, pointer: Value, lanes: int) -> Value:
        """The float that lies there in all lanes, to multiply vectors by it. Where a multiply-add may take a lane of
        any register, it is loaded alone: a load into all lanes would also take one of the units that multiply."""
        loaded = self.load(element, pointer)
        by_lane = self.target.isa.by_lane and element in ("float", "double")
        return self.splat(self.opaque(loaded) if by_lane else loaded, lanes)

    def offset(self, pointer: Value, index: Index, element: str) -> Value:
        """The address of element ``index`` from ``pointer``."""
        if is_number(index, 0):
            return pointer
        return self.emit("ptr", f"getelementptr {element}, {pointer}, {self.index(index)}")

    def alignment(self, type_: str) -> int:
        """The alignment of an element in memory, in bytes."""
        element = element_of(type_)
        return self.target.isa.pointer_bytes if element == "ptr" else ALIGNMENTS.get(element, 8)

    def load(self, type_: str, pointer: Value) -> Value:
        """A scalar or vector, aligned to its element only."""
        return self.emit(type_, f"load {type_}, {pointer}, align {self.alignment(type_)}")

    def store(self, value: Value, pointer: Value) -> None:
        self.line(f"store {value}, {pointer}, align {self.alignment(value.type)}")

    # -- control ------------------------------------------------------------------------------------------------

    def loop(
        self, start: Index, stop: Index, step: Index = 1, carry: Sequence[Value] = (), *, nonempty: bool = False
    ) -> contextlib.AbstractContextManager[CountedLoop]:
        """``for index in range(start, stop, step)`` with carried values.

        Inside, set them with ``loop.next(...)``; after it, ``loop.results`` are their last values (the initial ones
        where the loop does not turn). ``nonempty`` promises at least one turn; it is found out for constants.
        """
        return _counted(self, start, stop, step, carry, nonempty)

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the body only where ``condition`` (i1) holds; no values leave it."""
        then, done = self.label("then"), self.label("endif")
        self.branch_if(condition, then, done)
        self.block(then)
        yield
        self.branch(done)
        self.block(done)

    def repeat(
        self, carry: Sequence[Value], goes_on: Callable[[Sequence[Value]], Value]
    ) -> contextlib.AbstractContextManager[CountedLoop]:
        """``while goes_on(carried)``: as ``loop``, but a condition (i1) ends it, and there is no index."""
        return _repeated(self, carry, goes_on)

    def choose(
        self, condition: Value, then: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
    ) -> list[Value]:
        """The values of ``then`` where ``condition`` (i1) holds, else those of ``otherwise``; only one of them runs."""
        return _chosen(self, condition, then, otherwise)

    def insert_phis(self, at: int, before: str, end: str, carried: Iterable[tuple[Value, Value, Value]]) -> None:
        """Begin the block whose first line is line ``at``: each value is another one, the first time, from the block
        ``before``, and a third one from the block ``end``."""
        self._lines[at:at] = [f"  {x.text} = {phi((first, before), (next_, end))}" for x, first, next_ in carried]

    @property
    def next_line(self) -> int:
        """The number of the line that is written next."""
        return len(self._lines)


@contextlib.contextmanager
def _counted(
    f: Function, start: Index, stop: Index, step: Index, carry: Sequence[Value], nonempty: bool
) -> Iterator[CountedLoop]:
    if isinstance(start, int) and isinstance(stop, int):
        if at_most(stop, start):
            raise ValueError("an empty loop: ask before opening it")
        nonempty = nonempty or at_most(start + 1, stop)
    first, last, by = f.index(start), f.index(stop), f.index(step)
    before, body, done = f.current_block, f.label("loop"), f.label("done")
    if nonempty:
        f.branch(body)
    else:
        f.branch_if(f.compare("icmp slt", first, last), body, done)
    f.block(body)
    index = Value(f.unnamed(), first.type)
    carried = [Value(f.unnamed(), value.type) for value in carry]
    at = f.next_line
    loop = CountedLoop(index, carried)
    yield loop
    following = loop.following()
    advanced = f.binary("add nsw", index, by)
    again = f.compare("icmp slt", advanced, last)
    end = f.current_block
    f.branch_if(again, body, done)
    f.insert_phis(at, before, end, [(index, first, advanced), *zip(carried, carry, following, strict=True)])
    f.block(done)
    ends = zip(carry, following, strict=True)
    loop.results = following if nonempty else [f.emit(i.type, phi((i, before), (value, end))) for i, value in ends]


@contextlib.contextmanager
def _repeated(
    f: Function, carry: Sequence[Value], goes_on: Callable[[Sequence[Value]], Value]
) -> Iterator[CountedLoop]:
    before, head, body, done = f.current_block, f.label("while"), f.label("turn"), f.label("left")
    carried = [Value(f.unnamed(), value.type) for value in carry]
    f.branch(head)
    f.block(head)
    at = f.next_line
    f.branch_if(goes_on(carried), body, done)
    f.block(body)
    loop = CountedLoop(integer(0), carried, carried)
    yield loop
    following = loop.following()
    end = f.current_block
    f.branch(head)
    f.insert_phis(at, before, end, zip(carried, carry, following, strict=True))
    f.block(done)


def _chosen(
    f: Function, condition: Value, then: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
) -> list[Value]:
    labels, done = (f.label("then"), f.label("else")), f.label("endif")
    f.branch_if(condition, *labels)
    ends: list[tuple[str, Sequence[Value]]] = []
    for label, write in zip(labels, (then, otherwise), strict=True):
        f.block(label)
        values = write()
        ends.append((f.current_block, values))
        f.branch(done)
    f.block(done)
    (first, ones), (second, others) = ends
    return [f.emit(a.type, phi((a, first), (b, second))) for a, b in zip(ones, others, strict=True)]


def side_by_side(f: Function, scalars: Sequence[Value]) -> Value:
    """Scalars as the lanes of a vector."""
    if len(scalars) == 1:
        return scalars[0]
    found = Value("poison", vector(scalars[0].type, len(scalars)))
    for lane, scalar in enumerate(scalars):
        found = f.insert(found, scalar, lane)
    return found


def _without_attributes(param: str) -> str:
    """The type of a parameter: a vector's has spaces."""
    return param[: param.index(">") + 1] if param.startswith("<") else param.split(" ")[0]
