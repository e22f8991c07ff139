"""The op table: one entry an op, and everything about the op in that entry.

    Op ::= name, doc, type rule, NumPy reference,
           how it is computed    (its role; scalar: one element over a ScalarBuilder | expand: into others | a kernel)
           traits                what the compiler may do with it: it asks them, and not the name
           how it is derived     (rules | linear vjp | vjp and jvp | through its expansion | not differentiable)
           cases                 where tests may sample it

Four forms carry all ops. *Elementwise*: ``scalar`` and a rule for each operand, from which vjp and jvp follow.
*Linear*: the vjp is given, the jvp is the op itself. *Composed*: an expansion, optionally with a vjp of its own.
*Primitive*: vjp and jvp written out. "Not differentiable" is said (``differentiable=False``), never omitted.

Rules are written with the op namespace they are handed (``o.exp(x)``), so an entry needs to import no other op. What
the derivative reads — what the op *saves* — follows from its rule and is declared nowhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np

from staticgrad.base.collection import importing
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Size, TensorType, is_short_float

if TYPE_CHECKING:
    from staticgrad.graph.graph import Node, Tensor
    from staticgrad.graph.results import (
        ComplexResult,
        EighResult,
        LstsqResult,
        LUFactorResult,
        LUResult,
        QRResult,
        SlogdetResult,
        SVDResult,
    )

Array = np.ndarray[Any, np.dtype[Any]]


@frozen
class NoAttributes:
    """The attributes of an op that has none."""


NO_ATTRIBUTES = NoAttributes()


A = TypeVar("A")


def with_python_integers(attrs: A) -> A:
    """Attributes with Python's integers in the place of NumPy's, also in tuples and in attributes of attributes;
    ``attrs`` itself where there are none. The compiler asks of integers what NumPy's do not know (``bit_length``)."""
    changed: dict[str, Any] = {}
    for name in getattr(attrs, "__dataclass_fields__", ()):
        value = getattr(attrs, name)
        if type(value) not in _PLAIN and (new := _python(value)) is not value:
            changed[name] = new
    made: Any = replace(attrs, **changed) if changed else attrs  # type: ignore[type-var]
    return cast(A, made)


_PLAIN = {int, bool, float, str, type(None)}


def _python(value: Any) -> Any:
    if type(value) is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return value
        new = tuple([_python(part) for part in value])
        return new if any(a is not b for a, b in zip(new, value)) else value
    return int(value) if isinstance(value, np.integer) else with_python_integers(value)


A_co = TypeVar("A_co", covariant=True)


@frozen
class Primal(Generic[A_co]):
    """The view that a rule has of the node that it expands or derives: tensors of the graph in which it writes.

    ``Primal[ReduceAttributes]`` is a node whose op has these attributes, ``Primal[object]`` one of any op. A vjp may
    look at ``wanted``: which operands' cotangents are used.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: A_co
    needs: tuple[bool, ...] = ()  # nothing: all

    @property
    def wanted(self) -> tuple[bool, ...]:
        return self.needs or (True,) * len(self.inputs)


@frozen
class BatchedNode(Generic[A_co]):
    """The view that a batch rule has of a node that goes over ``size`` examples: operands that are ``batched`` have an
    axis of examples in front, the others are the same for all."""

    op: Op
    inputs: tuple[Tensor, ...]
    batched: tuple[bool, ...]
    attrs: A_co
    size: Size


class Namespace:
    """The public functions that declare ops, by name: those of the modules that were imported, and those that modules
    are expected to define, which are imported when one is asked for.

    A function gives a tensor, unless it is one of those named here. Their annotations are compared with the functions'.
    """

    adaptive_max_pool1d: Callable[..., Tensor | tuple[Tensor, Tensor]]
    adaptive_max_pool2d: Callable[..., Tensor | tuple[Tensor, Tensor]]
    adaptive_max_pool3d: Callable[..., Tensor | tuple[Tensor, Tensor]]
    assert_: Callable[..., Node]
    assign: Callable[..., Node]
    associative_scan: Callable[..., Any]
    bounds_check: Callable[..., Node]
    broadcast_arrays: Callable[..., list[Tensor]]
    checkpoint: Callable[..., Any]
    cond: Callable[..., Any]
    cummax: Callable[..., Tensor | tuple[Tensor, Tensor]]
    cummin: Callable[..., Tensor | tuple[Tensor, Tensor]]
    custom_gradient: Callable[..., Callable[..., Any]]
    eigh: Callable[..., EighResult]
    gradient: Callable[..., Tensor | list[Tensor]]
    fft: Callable[..., ComplexResult]
    group: Callable[..., Node]
    ifft: Callable[..., ComplexResult]
    histogram: Callable[..., tuple[Tensor, Tensor]]
    lstsq: Callable[..., LstsqResult]
    lu: Callable[..., LUResult]
    lu_factor: Callable[..., LUFactorResult]
    map: Callable[..., Any]
    max_pool1d: Callable[..., Tensor | tuple[Tensor, Tensor]]
    max_pool2d: Callable[..., Tensor | tuple[Tensor, Tensor]]
    max_pool3d: Callable[..., Tensor | tuple[Tensor, Tensor]]
    meshgrid: Callable[..., list[Tensor]]
    nonzero: Callable[..., tuple[Tensor, ...]]
    once_differentiable: Callable[..., Callable[..., Any]]
    py_call: Callable[..., list[Tensor] | Node]
    qr: Callable[..., QRResult]
    rfft: Callable[..., ComplexResult]
    scan: Callable[..., tuple[Any, Any]]
    slogdet: Callable[..., SlogdetResult]
    split: Callable[..., list[Tensor]]
    svd: Callable[..., SVDResult]
    topk: Callable[..., tuple[Tensor, Tensor]]
    unique: Callable[..., Tensor | tuple[Tensor, ...]]
    unstack: Callable[..., tuple[Tensor, ...]]
    while_loop: Callable[..., Any]

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._places: dict[str, str] = {}  # the module of each function that is expected
        self._modules: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        functions: dict[str, Callable[..., Tensor]] = self.__dict__["_functions"]
        if name not in functions and (place := self._expected().get(name)):
            with importing():
                importlib.import_module(place)
        try:
            function = self.__dict__[name] = functions[name]  # the next time it is found without this
        except KeyError:
            raise AttributeError(f"no op function named {name!r}") from None
        return function

    def __contains__(self, name: str) -> bool:
        return name in self._functions or name in self._expected()

    def names(self) -> list[str]:
        return sorted({*self._functions, *self._expected()})

    def expect(self, modules: Mapping[str, Sequence[str]]) -> None:
        """Say which functions are defined by modules that need not have been imported yet."""
        self._modules += modules
        self._places |= {name: module for module, names in modules.items() for name in names}

    def complete(self) -> None:
        """Import all modules that are expected to define functions or ops."""
        self._expected()
        for module in self._modules:
            importlib.import_module(module)

    def _expected(self) -> dict[str, str]:
        importlib.import_module("staticgrad.ops")  # says what to expect
        return self._places

    def register(self, function: Callable[..., Any], name: str | None = None) -> None:
        name = name or function.__name__
        if name in self._functions:
            raise ValueError(f"op function {name} is defined twice")
        self._functions[name] = function


FUNCTIONS = Namespace()

F = TypeVar("F", bound=Callable[..., Any])


def public(function: F) -> F:
    """Make a function part of the op namespace under its own name."""
    FUNCTIONS.register(function)
    return function


# -- where tests may sample ---------------------------------------------------------------------------------------


@frozen
class Range:
    """Values for one operand: uniform in [low, high], no nearer than ``margin`` to a kink. Integers are inclusive."""

    low: float = -2.0
    high: float = 2.0
    kinks: tuple[float, ...] = ()
    margin: float = 0.05


REAL = Range()


@frozen
class Case:
    """One way to call an op: operand shapes, attributes, where each operand is sampled, the operands' dtypes.

    ``dtypes`` None means: every operand has the tested dtype. A dtype in the tuple fixes that operand's. ``distinct``
    asks for values without near ties (max, sort). ``differentiable`` lists the operands that finite differences vary
    (None: every floating one). ``prepared`` makes of the drawn first operand one that the op is defined for (a matrix
    that is positive definite).
    """

    shapes: tuple[tuple[int, ...], ...]
    attrs: Any = NO_ATTRIBUTES
    ranges: tuple[Range, ...] | None = None
    dtypes: tuple[np.dtype | None, ...] | None = None
    distinct: bool = False
    differentiable: tuple[int, ...] | None = None
    prepared: Callable[[Array], Array] | None = None


# -- the entry ----------------------------------------------------------------------------------------------------

TypeRule = Callable[..., "TensorType | tuple[TensorType, ...]"]

BatchRule = Callable[[Namespace, BatchedNode[Any]], "Sequence[Tensor]"]

# How the result of an op comes about: each op has one role.
Role = Literal[
    "source",  # has no operands: it is fed, kept by the session, or part of the program
    "view",  # the operand's memory under another index map
    "alias",  # the operand's memory itself
    "store",  # an alias that the kernel of its operand also stores into the session's memory
    "elementwise",  # element by element, by ``scalar``
    "reduction",  # over some axes of its operand
    "gather",  # elements of its first operand at the indices that the others give
    "matrix",  # sums of products, by the kernels of matrices
    "write",  # memory into which the kernels of its operands store
    "routine",  # by a kernel that runs on each piece of a batch
    "control",  # runs the bodies that its attributes hold
    "effect",  # by a check or a call between kernels, or by nothing
    "composed",  # by the ops that ``expand`` gives
]


@frozen(eq=False)
class Op:
    """An entry of the table. Fields that are functions take the attributes first:

    ``infer(attrs, *types)``, ``reference(attrs, *arrays)``, ``scalar(builder, attrs, *values)``; derivative rules take
    the namespace and the primal node: ``vjp(o, node, *cotangents)`` gives a cotangent or None for each input (an output
    that is not needed has the cotangent None), ``jvp(o, node, *tangents)`` gives a tangent or None for each output (an
    input that does not vary has the tangent None); ``expand(o, node)`` gives the outputs in terms of other ops, of a
    node that has no outputs yet; ``batch(o, batched_node)`` gives the outputs for all examples (``ops/batch_rules.py``
    has those that are shared), or says why there are none. Without one a composed op goes over examples through its
    expansion, a loop through its bodies.
    """

    name: str
    doc: str
    infer: TypeRule
    reference: Callable[..., Array | Sequence[Array]]
    role: Role = "composed"
    scalar: Callable[..., Any] | None = None
    expand: Callable[[Namespace, Primal[Any]], Sequence[Tensor]] | None = None
    vjp: Callable[..., Sequence[Tensor | None]] | None = None
    jvp: Callable[..., Sequence[Tensor | None]] | None = None
    batch: BatchRule | str | None = None
    differentiable: bool = True
    linear: bool = False  # in all differentiable inputs together: the jvp is the op itself
    effect: bool = False  # runs for what it does: keeps its order, never merged, never dropped when named
    own_rule: bool = False  # derived by its vjp alone, whatever it expands into
    values: Callable[[Any], int] | None = None  # how many first operands its value is made of, by attributes; None: all
    ordered: bool = False  # happens in order with others that are, and in a body once a turn, used or not
    state: bool = False  # reads or writes what a session keeps from run to run
    draws: bool = False  # takes random numbers
    rematerializable: bool = False  # its value follows from the program and from sizes: keeping it saves nothing
    cheap: bool = False  # made again in about the time of reading its result from main memory
    fill: bool = False  # each element follows from its indices: a source that needs no memory
    filled: int | None = None  # the operand that is stored into the result of a write after this has been filled
    moves: bool = False  # hands its operands' elements on, if in another dtype, and computes nothing of them
    dtypes: tuple[np.dtype, ...] = ()  # the dtypes that tests run it with
    cases: tuple[Case, ...] = ()
    grad_name: str | Callable[[Node], str] = ""  # its backward node's name, without "Backward0" where it is text
    own: bool = False  # a user's: in no table, told apart by its attributes; kernels with parts of it have its name
    tolerance: float = 1.0  # of compiled against reference, in units of the test's default

    def __repr__(self) -> str:
        return f"<entry {self.name!r} of the op table>"

    @property
    def elementwise(self) -> bool:
        return self.role == "elementwise"

    @property
    def view(self) -> bool:
        return self.role == "view"

    @property
    def nest(self) -> bool:
        """True if it is computed by a nest, element by element or by reduction."""
        return self.role in ("elementwise", "reduction", "gather")

    def widens(self, operands: Sequence[Tensor] | Sequence[Array]) -> bool:
        """True if it is computed in float32 of these operands: short floats are kept and moved as they are, and
        computed with in float32, each result rounded."""
        short = any(is_short_float(x.dtype) for x in operands)
        return short and not (self.moves or self.role in ("view", "control"))

    def backward_name(self, node: Node) -> str:
        """The name of a node's backward node, in PyTorch's spelling."""
        if callable(self.grad_name):
            return self.grad_name(node)
        stem = self.grad_name or "".join(part.capitalize() for part in self.name.split("_"))
        return f"{stem}Backward0"


class OpTable(dict[str, Op]):
    """The entries by name. Which module enters an op is not known before it does: when one is missing, they are all
    imported."""

    def __missing__(self, name: str) -> Op:
        FUNCTIONS.complete()
        if name in self:
            return self[name]
        raise KeyError(name)


OPS: dict[str, Op] = OpTable()


def register(op: Op) -> Op:
    """Add an entry to the table; its name must be new."""
    if op.name in OPS:
        raise ValueError(f"op {op.name} is defined twice")
    derived = op.vjp or op.jvp or op.expand or op.role == "control"  # whose bodies are derived
    if op.differentiable and not derived:
        raise ValueError(f"op {op.name}: give a derivative, or say differentiable=False")
    if (op.scalar is not None, op.expand is not None) != (op.role == "elementwise", op.role == "composed"):
        raise ValueError(f"op {op.name}: say how it is computed, by role, scalar or expand")
    OPS[op.name] = op
    return op
