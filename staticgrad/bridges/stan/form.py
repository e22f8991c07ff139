"""The intermediate form of a Stan program, as values: what ``stanli.stan_to_mir`` gives, read.

Input: the form's text: ``STANLI2:`` and the base64 of bytes. Output: a ``StanProgram`` of statements and expressions.
The bytes are little endian: ``u8`` flags and kinds, ``i32`` numbers and lengths, ``f64`` literals, texts in UTF-8 after
their length, lists after theirs.

    program   = inputs:[name sized] data:[stmt] log_prob:[stmt] quantities:[stmt] functions:[function] outputs:[name]
                inits:[stmt]
    function  = name [arg] [type] [view] [data only] [stmt]
    sized     = base:text dims:[expr] element:text raw:text
    expr      = kind:u8, by kind: 0 name | 1 i32 | 2 f64 | 3 text | 4 library:u8 name propto:u8 [expr] | 5.. [expr],
                then type:text depth:u8 leaf:u8 data:u8 promoted:u8 raw:text
    stmt      = kind:u8, by kind as ``_FormReader.statement`` has it, then raw:text but for breaks
    transform = kind:u8 [expr] raw:text

Programs come optimised: functions are inlined, constants propagated. The form has no lines of the source.
"""

from __future__ import annotations

import base64
import binascii
import enum
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import frozen

T = TypeVar("T")
HEADER = "STANLI2:"


class Leaf(enum.IntEnum):
    """The type of an element of arrays."""

    UNKNOWN, INT, REAL, COMPLEX, VECTOR, ROW, MATRIX = range(7)


# Ranks of leaves, beside the axes of arrays around them.
RANKS = {Leaf.VECTOR: 1, Leaf.ROW: 1, Leaf.MATRIX: 2}


class ExprKind(enum.IntEnum):
    """Kinds of expressions."""

    NAME, INT, REAL, TEXT, CALL, PROMOTED, INDEXED, IF, OR, AND, UNSUPPORTED = range(11)


class Act(enum.IntEnum):
    """Kinds of statements."""

    DECLARE, ASSIGN, TARGET, BLOCK, LIST, FOR, IF, WHILE, CALL, RETURN, BREAK, CONTINUE, SKIP = range(13)


@frozen
class Expr:
    """An expression: its kind, what it has (a name, a literal, operands) and its type."""

    kind: ExprKind
    name: str  # of a variable or function
    value: int | float | str  # of a literal
    args: tuple[Expr, ...]
    leaf: Leaf
    depth: int  # axes of arrays around the leaf
    data: bool  # True if it depends on no parameter
    library: int  # of a function: 0 Stan's, 1 the compiler's, 2 the user's
    raw: str

    def __str__(self) -> str:
        return self.name if self.kind in (ExprKind.NAME, ExprKind.CALL) else self.kind.name.lower()


@frozen
class Sized:
    """A declared type: its base, such as ``SVector``, sizes from the outermost, and the base of an array's elements."""

    base: str
    dims: tuple[Expr, ...]
    element: str
    raw: str

    @property
    def integer(self) -> bool:
        return "SInt" in (self.base, self.element) or "UInt" in self.raw


@frozen
class Constraint:
    """The constraint of a parameter, or a check: the transform's name as the form has it, and its bounds."""

    name: str
    args: tuple[Expr, ...]


@frozen
class Stmt:
    """A statement. What its fields mean follows from its kind, an ``Act``."""

    kind: Act
    name: str = ""  # declared, assigned, loop variable, called
    sized: Sized | None = None
    args: tuple[Expr, ...] = ()  # indices of an assignment, bounds of a loop, operands of a call, sizes of a parameter
    value: Expr | None = None  # initial or assigned value, increment, condition, result
    body: tuple[Stmt, ...] = ()
    constraint: Constraint | None = None
    subject: str = ""  # what is checked
    raw: str = ""

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}".strip()


@frozen
class StanFunction:
    """A function of the user's that was not inlined."""

    name: str
    parameters: tuple[str, ...]
    types: tuple[tuple[int, int], ...]  # of each parameter: axes of arrays, leaf
    body: tuple[Stmt, ...]

    def takes(self, args: tuple[Expr, ...]) -> bool:
        """True if arguments have the types of the parameters."""
        return all((arg.depth, int(arg.leaf)) == wanted for arg, wanted in zip(args, self.types))


@frozen
class StanProgram:
    """A Stan program: its data, what follows from them, its log density, its quantities and their names."""

    inputs: tuple[tuple[str, Sized], ...]
    data: tuple[Stmt, ...]
    log_prob: tuple[Stmt, ...]
    quantities: tuple[Stmt, ...]
    functions: tuple[StanFunction, ...]
    outputs: tuple[str, ...]


TRANSFORMS = (
    "Identity", "Lower", "Upper", "LowerUpper", "Offset", "Multiplier", "OffsetMultiplier", "Simplex", "Ordered",
    "PositiveOrdered", "CholeskyCorr", "UnitVector", "SumToZero", "Correlation", "Covariance", "CholeskyCov",
)  # fmt: skip


def read(text: str) -> StanProgram:
    """The program whose form this is.

    Raises:
        FormatError: the text is no form of the version that is read here.
    """
    if not text.startswith(HEADER):
        raise FormatError(f"stan: expected an intermediate form that begins with {HEADER!r}, actual {text[:16]!r}")
    try:
        reader = _FormReader(base64.b64decode(text[len(HEADER) :].strip(), validate=True))
        program = reader.program()
    except (binascii.Error, struct.error, UnicodeDecodeError, ValueError, IndexError) as error:
        raise FormatError(
            f"stan: the intermediate form is damaged, or of a version that is not known: {error}"
        ) from None
    if reader.at != len(reader.data):
        raise FormatError(f"stan: expected {reader.at} bytes of an intermediate form, actual {len(reader.data)}")
    return program


def _indexed(expr: Expr) -> Expr:
    """Functions that take a part of an array, as the indices that they stand for."""
    if expr.kind is not ExprKind.CALL or expr.name not in ("col", "row", "sub_col", "sub_row", "segment", "head"):
        return expr

    def call(name: str, *args: Expr) -> Expr:
        return Expr(ExprKind.CALL, name, 0, args, Leaf.INT, 0, True, 0, "")

    def part(first: Expr, count: Expr) -> Expr:
        return call("IndexBetween", first, call("Minus__", call("Plus__", first, count), one))

    one = Expr(ExprKind.INT, "", 1, (), Leaf.INT, 0, True, 0, "")
    whole, *numbers = expr.args
    match expr.name:
        case "col":
            index = [call("IndexAll"), call("IndexSingle", *numbers)]
        case "row":
            index = [call("IndexSingle", *numbers)]
        case "sub_col":
            index = [part(numbers[0], numbers[2]), call("IndexSingle", numbers[1])]
        case "sub_row":
            index = [call("IndexSingle", numbers[0]), part(numbers[1], numbers[2])]
        case "segment":
            index = [part(*numbers)]
        case _:
            index = [part(one, *numbers)]
    return replace(expr, kind=ExprKind.INDEXED, name="", args=(whole, *index))


class _FormReader:
    """The bytes of a form, read from ``at`` on."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def unpack(self, code: str) -> int | float:
        (found,) = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return found  # type: ignore[no-any-return]

    def byte(self) -> int:
        return int(self.unpack("<B"))

    def number(self) -> int:
        return int(self.unpack("<i"))

    def text(self) -> str:
        size = self.number()
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"a text of {size} bytes at {self.at}")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def list(self, item: Callable[[], T]) -> tuple[T, ...]:
        count = self.number()
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError(f"a list of {count} items at {self.at}")
        return tuple(item() for _ in range(count))

    def expr(self) -> Expr:
        kind = ExprKind(self.byte())
        name, library = "", 0
        value: int | float | str = 0
        args: tuple[Expr, ...] = ()
        match kind:
            case ExprKind.NAME:
                name = self.text()
            case ExprKind.INT:
                value = self.number()
            case ExprKind.REAL:
                value = self.unpack("<d")
            case ExprKind.TEXT:
                value = self.text()
            case ExprKind.CALL:
                library, name = self.byte(), self.text()
                self.byte()  # whether constants may be dropped: they are kept
                args = self.list(self.expr)
            case ExprKind.UNSUPPORTED:
                pass
            case _:
                args = self.list(self.expr)
        self.text()  # the type's name
        depth, leaf, data = self.byte(), Leaf(self.byte()), bool(self.byte())
        self.byte()  # whether the value was promoted
        return _indexed(Expr(kind, name, value, args, leaf, depth, data, library, self.text()))

    def sized(self) -> Sized:
        return Sized(self.text(), self.list(self.expr), self.text(), self.text())

    def constraint(self) -> Constraint | None:
        if not self.byte():
            return None
        kind, args, raw = self.byte(), self.list(self.expr), self.text()
        return Constraint(TRANSFORMS[kind] if kind < len(TRANSFORMS) else raw, args)

    def statement(self) -> Stmt:
        kind = Act(self.byte())
        if kind in (Act.BREAK, Act.CONTINUE):
            return Stmt(kind)
        parts = self._statement(kind)
        return Stmt(kind, **parts, raw=self.text())

    def _statement(self, kind: Act) -> dict[str, Any]:
        match kind:
            case Act.DECLARE:
                name, sized = self.text(), self.sized()
                self.byte()  # whether it depends on data alone
                value = self.expr() if self.byte() else None
                bounds, sizes = self.constraint(), self.list(self.expr)
                return {"name": name, "sized": sized, "value": value, "constraint": bounds, "args": sizes}
            case Act.ASSIGN:
                return {"name": self.text(), "args": self.list(self.expr), "value": self.expr()}
            case Act.TARGET:
                return {"value": self.expr()}
            case Act.BLOCK | Act.LIST:
                return {"body": self.list(self.statement)}
            case Act.FOR:
                return {"name": self.text(), "args": (self.expr(), self.expr()), "body": self.list(self.statement)}
            case Act.IF | Act.WHILE:
                return {"value": self.expr(), "body": self.list(self.statement)}
            case Act.CALL:
                name, args = self.text(), self.list(self.expr)
                return {"name": name, "args": args, "constraint": self.constraint(), "subject": self.text()}
            case Act.RETURN:
                return {"value": self.expr() if self.byte() else None}
        return {}

    def function(self) -> StanFunction:
        name, parameters = self.text(), self.list(self.text)
        self.list(self.text)  # the types' names
        types = self.list(lambda: (self.byte(), self.byte()))
        self.list(self.byte)  # which depend on data alone
        return StanFunction(name, parameters, types, self.list(self.statement))

    def program(self) -> StanProgram:
        inputs = self.list(lambda: (self.text(), self.sized()))
        data, log_prob, quantities = (self.list(self.statement) for _ in range(3))
        program = StanProgram(inputs, data, log_prob, quantities, self.list(self.function), self.list(self.text))
        self.list(self.statement)  # how parameters are unconstrained
        return program


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, without its body."""
    yield from stmt.args
    yield from () if stmt.sized is None else stmt.sized.dims
    yield from () if stmt.constraint is None else stmt.constraint.args
    yield from () if stmt.value is None else (stmt.value,)


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """A statement and all in its body."""
    yield stmt
    for inner in stmt.body:
        yield from statements(inner)


def within(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it has inside."""
    yield expr
    for arg in expr.args:
        yield from within(arg)


def calls_in(stmt: Stmt) -> Iterator[Expr]:
    """Every call of a function in a statement and its body."""
    for each in statements(stmt):
        for expr in expressions(each):
            yield from (inner for inner in within(expr) if inner.kind is ExprKind.CALL)
