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
    stmt      = kind:u8, by kind as ``FIELDS`` has it, then raw:text but for breaks
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
from typing import TypeVar

from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import frozen

T = TypeVar("T")
HEADER = "STANLI2:"
ASKS_FOR_TERMS = ("target", "FnTarget", "get_lp")


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
    reads: frozenset[str] = frozenset()  # its variables, and ``target`` where it asks for the log density

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
    leaves: bool = False  # it may leave the loop or the function around it

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


# The fields of each kind of statement in their order, and by which method they are read.
FIELDS: dict[Act, dict[str, str]] = {
    Act.DECLARE: {
        "name": "text", "sized": "sized", "": "byte", "value": "optional", "constraint": "constraint", "args": "exprs",
    },
    Act.ASSIGN: {"name": "text", "args": "exprs", "value": "expr"},
    Act.TARGET: {"value": "expr"},
    Act.BLOCK: {"body": "statements"},
    Act.LIST: {"body": "statements"},
    Act.FOR: {"name": "text", "args": "bounds", "body": "statements"},
    Act.IF: {"value": "expr", "body": "statements"},
    Act.WHILE: {"value": "expr", "body": "statements"},
    Act.CALL: {"name": "text", "args": "exprs", "constraint": "constraint", "subject": "text"},
    Act.RETURN: {"value": "optional"},
    Act.BREAK: {},
    Act.CONTINUE: {},
    Act.SKIP: {},
}  # fmt: skip


def _leaves(stmt: Stmt) -> bool:
    """True if a statement may leave the loop or the function around it."""
    if stmt.kind in (Act.FOR, Act.WHILE):
        return any(inner.kind is Act.RETURN for inner in statements(stmt))
    return stmt.kind in (Act.RETURN, Act.BREAK, Act.CONTINUE) or any(inner.leaves for inner in stmt.body)


def _reads(kind: ExprKind, name: str, args: tuple[Expr, ...]) -> frozenset[str]:
    own = {name} if kind is ExprKind.NAME else {"target"} if name in ASKS_FOR_TERMS else set()
    return frozenset(own).union(*(arg.reads for arg in args))


def _call(name: str, *args: Expr) -> Expr:
    return Expr(ExprKind.CALL, name, 0, args, Leaf.INT, 0, True, 0, "", _reads(ExprKind.CALL, name, args))


def _between(first: Expr, count: Expr) -> Expr:
    return _call("IndexBetween", first, _call("Minus__", _call("Plus__", first, count), ONE))


def _single(at: Expr) -> Expr:
    return _call("IndexSingle", at)


ONE = Expr(ExprKind.INT, "", 1, (), Leaf.INT, 0, True, 0, "")
# Functions that take a part of an array, as the indices that they stand for.
PARTS: dict[str, Callable[..., tuple[Expr, ...]]] = {
    "col": lambda j: (_call("IndexAll"), _single(j)),
    "row": lambda i: (_single(i),),
    "sub_col": lambda i, j, rows: (_between(i, rows), _single(j)),
    "sub_row": lambda i, j, cols: (_single(i), _between(j, cols)),
    "segment": lambda i, count: (_between(i, count),),
    "head": lambda count: (_between(ONE, count),),
    "block": lambda i, j, rows, cols: (_between(i, rows), _between(j, cols)),
}


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
                args = self.exprs()
            case _ if kind is not ExprKind.UNSUPPORTED:
                args = self.exprs()
        self.text()  # the type's name
        depth, leaf, data = self.byte(), Leaf(self.byte()), bool(self.byte())
        self.byte()  # whether the value was promoted
        if kind is ExprKind.CALL and name in PARTS:
            kind, name, args = ExprKind.INDEXED, "", (args[0], *PARTS[name](*args[1:]))
        return Expr(kind, name, value, args, leaf, depth, data, library, self.text(), _reads(kind, name, args))

    def sized(self) -> Sized:
        return Sized(self.text(), self.exprs(), self.text(), self.text())

    def constraint(self) -> Constraint | None:
        if not self.byte():
            return None
        kind, args, raw = self.byte(), self.exprs(), self.text()
        return Constraint(TRANSFORMS[kind] if kind < len(TRANSFORMS) else raw, args)

    def exprs(self) -> tuple[Expr, ...]:
        return self.list(self.expr)

    def bounds(self) -> tuple[Expr, Expr]:
        return self.expr(), self.expr()

    def optional(self) -> Expr | None:
        return self.expr() if self.byte() else None

    def statements(self) -> tuple[Stmt, ...]:
        return self.list(self.statement)

    def statement(self) -> Stmt:
        kind = Act(self.byte())
        fields = dict(zip(FIELDS[kind], (getattr(self, how)() for how in FIELDS[kind].values())))
        if kind not in (Act.BREAK, Act.CONTINUE):
            self.text()
        fields.pop("", None)
        stmt = Stmt(kind, **fields)
        return replace(stmt, leaves=_leaves(stmt))

    def function(self) -> StanFunction:
        name, parameters = self.text(), self.list(self.text)
        self.list(self.text)  # the types' names
        types = self.list(lambda: (self.byte(), self.byte()))
        self.list(self.byte)  # which depend on data alone
        return StanFunction(name, parameters, types, self.statements())

    def program(self) -> StanProgram:
        inputs = self.list(lambda: (self.text(), self.sized()))
        data, log_prob, quantities = (self.statements() for _ in range(3))
        program = StanProgram(inputs, data, log_prob, quantities, self.list(self.function), self.list(self.text))
        self.statements()  # how parameters are unconstrained
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
