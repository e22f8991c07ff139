"""Programs of other systems, declared here: what all importers have in common.

A program of another system is nodes, each of which applies an op to operands and gives results. Operands and results
are *variables*: what names one value there, an object or a string. A node may hold *bodies*: the programs of inner
functions, of the turns of loops, of branches.

    Dialect      how programs of a system are read, with its table of converters: one entry for each op
    SourceBody   inputs, nodes in an order in which they can be computed, outputs
    Objection    the reason why a node cannot be converted, as far as its op and its types tell it
    SourceScope  the values of a body's variables here: tensors, or what is known, such as an array

``Dialect.require`` raises the objections to all nodes, those of bodies included, in one error before anything is
declared. ``SourceScope.walk`` goes through the nodes: one of few known elements is computed by the source's own code,
so that sizes are numbers; any other is declared by the converter of its op. The dtype and shape of each result are
compared with what the source declares.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from staticgrad.base.errors import GraphError, SourceLine, UnsupportedError, UnsupportedOp
from staticgrad.base.frozen import frozen
from staticgrad.bridges.arrays import LARGEST_KNOWN, as_tensor, cast
from staticgrad.graph.graph import Tensor

Converter = Callable[[Any, Any], Any]
C = TypeVar("C", bound=Converter)


class Converters(dict[Any, Converter]):
    """The table of a dialect: for each op, by its key, a function of a scope and a node, which gives a value for each
    result of the node, or a lone one."""

    def enter(self, *keys: Hashable) -> Callable[[C], C]:
        """A decorator that enters a function under these keys."""

        def enter(function: C) -> C:
            for key in keys:
                if key in self:
                    raise ValueError(f"{key} is converted twice")
                self[key] = function
            return function

        return enter


class RefusedError(UnsupportedError):
    """A program has a node without a counterpart here, or several.

    Attributes:
        reason: why.
        node: the node, the first of several; of a node inside a body the outer one, as soon as the body is left.
        needs: the variable whose value would have to be known when the program is converted, if this is the reason.
        ops: what is not supported, each op with its reason, its count and its lines in the source.
    """

    def __init__(
        self,
        reason: str,
        node: Any = None,
        needs: Any = None,
        *,
        name: str = "",
        shown: str = "",
        ops: Sequence[UnsupportedOp] = (),
        source: SourceLine | None = None,
    ) -> None:
        self.reason, self.node, self.needs = reason, node, needs
        super().__init__(f"{name} ({shown}): {reason}" if name else reason, ops=ops, source=source)


@frozen
class SourceBody:
    """A program, or a part of one with results of its own: variables and nodes, as the source has them."""

    inputs: Sequence[Any]
    nodes: Sequence[Any]
    outputs: Sequence[Any]


@frozen
class SourceType:
    """The type that a source gives a variable; None stands for a size, or a whole shape, that it leaves open."""

    dtype: np.dtype
    shape: tuple[int | None, ...] | None = None

    def fits(self, value: Any) -> bool:
        """True if a tensor or an array is of this type."""
        if self.dtype != value.dtype or self.shape is None:
            return bool(self.dtype == value.dtype)
        sizes = zip(self.shape, value.shape)
        return len(self.shape) == len(value.shape) and all(
            expected is None or not isinstance(size, int) or size == expected for expected, size in sizes
        )

    def __str__(self) -> str:
        sizes = ["…"] if self.shape is None else ["?" if size is None else str(size) for size in self.shape]
        return f"{self.dtype.name}[{', '.join(sizes)}]"


@frozen
class Objection:
    """A node that cannot be converted: the ``name`` of the op at fault, the reason, and the node of the whole program
    in which it lies."""

    name: str
    reason: str
    node: Any
    outer: Any

    @property
    def text(self) -> str:
        """The reason, as one of the outer node."""
        return self.reason if self.node is self.outer else f"{self.name}: {self.reason}"


class Dialect(ABC):
    """A reader of the programs of a system, with a converter for each op.

    Attributes:
        system: its name in messages.
        converters: its table.
        lexical: True if bodies read variables around them; else all that a body reads are its inputs.
        casts: True if results are cast to the dtype that the source declares; else another one is refused.
    """

    system: str
    converters: Converters
    lexical = False
    casts = False

    # -- what a dialect says of its nodes and variables ---------------------------------------------------------------

    @abstractmethod
    def name(self, node: Any) -> str:
        """The name of a node's op in messages, and by default its key in the table."""

    def key(self, node: Any) -> Any:
        """The key of a node's op in the table."""
        return self.name(node)

    def shown(self, node: Any) -> str:
        """A node as text in messages."""
        return str(node)

    def operands(self, node: Any) -> Sequence[Any]:
        """The variables that a node reads."""
        return list(node.inputs)

    def results(self, node: Any) -> Sequence[Any]:
        """The variables that a node gives."""
        return list(node.outputs)

    def constant(self, variable: Any) -> Any:
        """The value of a variable that no node gives, such as a literal.

        Raises:
            GraphError: there is none.
        """
        raise GraphError(f"{self.system}: {variable} is neither an input nor a result of an earlier node")

    def declared(self, variable: Any) -> SourceType | None:
        """The type that the source gives a variable, if it gives one."""
        return None

    def bodies(self, node: Any) -> Iterable[SourceBody]:
        """The bodies that a node holds."""
        return ()

    def source(self, node: Any) -> SourceLine | None:
        """The line of the user's program that made a node, where the source knows it."""
        return None

    def compute(self, node: Any, given: Sequence[Any]) -> Sequence[Any] | None:
        """The results of a node whose operands are known, by the source's own code; None to have it converted."""
        return None

    def objects_to(self, node: Any) -> Iterator[tuple[str, str]]:
        """Reasons why a node itself cannot be converted, each after the name of the op that it is about."""
        if self.key(node) not in self.converters:
            yield self.name(node), "this op is not converted"

    # -- what follows from it -----------------------------------------------------------------------------------------

    def objections(self, nodes: Iterable[Any], outer: Any = None) -> list[Objection]:
        """The first objection to each of these nodes, and to each node in their bodies."""
        found = []
        for node in nodes:
            whole = node if outer is None else outer
            reason = next(self.objects_to(node), None)
            found += [] if reason is None else [Objection(*reason, node, whole)]
            for body in self.bodies(node):
                found += self.objections(body.nodes, whole)
        return found

    def require(self, program: SourceBody) -> None:
        """Raise one error for all that is objected to in a program.

        Raises:
            RefusedError: there are objections; it has each op with its count and its lines.
        """
        found = self.objections(program.nodes)
        if found:
            raise self.refusal(found)

    def refusal(self, found: Sequence[Objection]) -> RefusedError:
        """One error for several objections."""
        ops_found: dict[tuple[str, str], list[Objection]] = {}
        for each in found:
            ops_found.setdefault((each.name, each.reason), []).append(each)
        ops = [UnsupportedOp(*op, len(each), self._sources(each)) for op, each in ops_found.items()]
        text = "\n  ".join([f"{self.system}: the program has ops that are not supported here", *map(str, ops)])
        return RefusedError(text, found[0].outer, ops=ops)

    def refused_at(self, node: Any, error: RefusedError) -> RefusedError:
        """The error of a converter, or of a node in a body, as one of this node."""
        inner = "" if error.node is None or error.node is node else f"{self.name(error.node)}: "
        source = error.source if error.source is not None else self.source(node)
        op = UnsupportedOp(self.name(node), inner + error.reason, 1, () if source is None else (source,))
        return RefusedError(op.reason, node, error.needs, name=op.name, shown=self.shown(node), ops=[op], source=source)

    def _sources(self, found: Iterable[Objection]) -> tuple[SourceLine, ...]:
        """The lines of nodes, or of the outer nodes where the source knows no lines inside."""
        lines = [self.source(each.node) or self.source(each.outer) for each in found]
        return tuple(dict.fromkeys(line for line in lines if line is not None))


class SourceScope:
    """The values of the variables of a program, or of one of its bodies.

    Attributes:
        dialect: how the program is read.
        values: for each variable a tensor, or what is known: an array, or a value of the source's own.
    """

    def __init__(self, dialect: Dialect, values: Mapping[Any, Any]) -> None:
        self.dialect = dialect
        self.values = ChainMap(dict(values))
        self._constants: dict[Any, Tensor] = {}  # of variables that are known

    # -- what converters ask ------------------------------------------------------------------------------------------

    def value(self, variable: Any) -> Any:
        """A tensor, or what the variable is known to be."""
        if variable not in self.values:
            self.values[variable] = self.dialect.constant(variable)
        return self.values[variable]

    def tensor(self, variable: Any) -> Tensor:
        """The tensor, a constant where the value is known."""
        value = self.value(variable)
        if isinstance(value, Tensor):
            return value
        if variable not in self._constants:
            self._constants[variable] = as_tensor(value)
        return self._constants[variable]

    def tensors(self, variables: Iterable[Any]) -> list[Tensor]:
        return [self.tensor(variable) for variable in variables]

    def shape(self, variable: Any) -> tuple[int, ...]:
        return tuple(self.value(variable).shape)

    def is_known(self, variable: Any) -> bool:
        return not isinstance(self.value(variable), Tensor)

    def known(self, variable: Any, what: str) -> Any:
        """The value that a variable is known to have; ``what`` depends on it.

        Raises:
            RefusedError: only a run knows it.
        """
        value = self.value(variable)
        if isinstance(value, Tensor):
            raise RefusedError(f"{what} depends on values that only a run knows", needs=variable)
        return value

    def known_sizes(self, variables: Iterable[Any], what: str = "the shape of the result") -> tuple[int, ...]:
        return tuple(int(self.known(variable, what)) for variable in variables)

    def inner(self, inputs: Sequence[Any], values: Sequence[Any]) -> Self:
        """The scope of a body, given what its inputs are."""
        scope, own = copy.copy(self), dict(zip(inputs, values, strict=True))
        scope.values = self.values.new_child(own) if self.dialect.lexical else ChainMap(own)
        scope._constants = {}
        return scope

    def call(self, body: SourceBody, values: Sequence[Any]) -> list[Any]:
        """The results of a body, given what its inputs are."""
        return self.inner(body.inputs, values).walk(body)

    # -- the walk -----------------------------------------------------------------------------------------------------

    def walk(self, body: SourceBody) -> list[Any]:
        """Declare the nodes of a body whose inputs have their values; the values of its outputs.

        Raises:
            RefusedError: a converter finds that its node has no counterpart.
        """
        for node in body.nodes:
            self.declare_node(node)
        return [self.value(variable) for variable in body.outputs]

    def declare_node(self, node: Any) -> None:
        """Enter what the results of a node are.

        Raises:
            RefusedError: the node has no counterpart.
        """
        dialect = self.dialect
        try:
            values = self._computed(node)
            if values is None:
                values = dialect.converters[dialect.key(node)](self, node)
            values = list(values) if isinstance(values, (list, tuple)) else [values]
            checked = [self._as_declared(*pair) for pair in zip(dialect.results(node), values, strict=True)]
        except RefusedError as error:
            raise dialect.refused_at(node, error) from error
        except Exception as error:
            error.add_note(f"in the conversion of {dialect.system}'s node {dialect.shown(node)}")
            raise
        self.values.update(zip(dialect.results(node), checked))

    def _computed(self, node: Any) -> Sequence[Any] | None:
        """The results of a node where they, and the operands, are known and few."""
        given = [self.value(variable) for variable in self.dialect.operands(node)]
        if any(isinstance(value, Tensor) or np.size(value) > LARGEST_KNOWN for value in given):
            return None
        results = self.dialect.compute(node, given)
        return None if results is None or any(np.size(x) > LARGEST_KNOWN for x in results) else results

    def _as_declared(self, variable: Any, value: Any) -> Any:
        """A result of the type that the source declares.

        Raises:
            RefusedError: it is of another type.
        """
        declared = self.dialect.declared(variable)
        if declared is None or not isinstance(value, (Tensor, np.ndarray, np.generic)):
            return value
        if self.dialect.casts:
            dtype = declared.dtype
            value = cast(value, dtype) if isinstance(value, Tensor) else np.asarray(value, dtype)
        if not declared.fits(value):
            actual = SourceType(value.dtype, value.shape)
            raise RefusedError(f"result {variable}: {self.dialect.system} declares {declared}, actual {actual}")
        return value
