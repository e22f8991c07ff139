"""Open sizes of ours as symbolic dimensions of JAX, and back.

To JAX an open size is a polynomial of variables. Each symbol of ours is one, and so is each quotient or positive part,
so that sizes go there and come back as they were. What JAX makes of them, such as ``max(d0 - 1, 3)``, is read from its
text, which has the grammar of ``jax.export.symbolic_shape``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.base.types import Atom, Dim, Size, larger, smaller
from staticgrad.bridges.importer import RefusedError
from staticgrad.bridges.jaxpr import versions


def _remainder(a: Size, b: Size) -> Size:
    return a - a // b * b


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": lambda a, b: a // b,
    "max": larger,
    "min": smaller,
    "mod": _remainder,
}
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Pow: lambda a, b: math.prod([a] * b),
}  # fmt: skip


class OpenSizes:
    """The variables of JAX that stand for open sizes in one trace.

    Attributes:
        sizes: of ours, by the names of the variables.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, Size] = {}
        self._variables: dict[Atom, Any] = {}
        self._scope: Any = None
        self._known: dict[Any, Size] = {}

    def dimensions(self, shape: Sequence[Size]) -> tuple[Any, ...]:
        """A shape of ours for JAX."""
        return tuple(size if isinstance(size, int) else self._dimension(size) for size in shape)

    def size(self, dimension: Any) -> Size:
        """The size that a dimension of JAX stands for.

        Raises:
            RefusedError: it is of an operation that sizes of ours do not have.
        """
        if isinstance(dimension, int) or not self.sizes:
            return int(dimension)
        if dimension not in self._known:
            self._known[dimension] = self._read(ast.parse(str(dimension).replace("^", "**"), mode="eval").body)
        return self._known[dimension]

    def shape(self, dimensions: Sequence[Any]) -> tuple[Size, ...]:
        return tuple(map(self.size, dimensions))

    def _dimension(self, size: Dim) -> Any:
        return sum(math.prod((self._variable(atom) for atom in atoms), start=n) for atoms, n in size.terms)

    def _variable(self, atom: Atom) -> Any:
        if atom not in self._variables:
            if self._scope is None:
                self._scope = versions.symbolic_scope()
            name = f"d{len(self.sizes)}"
            self.sizes[name] = Dim((((atom,), 1),))
            self._variables[atom] = versions.symbolic_size(name, self._scope)
        return self._variables[atom]

    def _read(self, node: ast.expr) -> Any:
        match node:
            case ast.Name():
                return self.sizes[node.id]
            case ast.Constant():
                return node.value
            case ast.UnaryOp(op=ast.USub()):
                return -self._read(node.operand)
            case ast.BinOp() if type(node.op) in OPERATORS:
                return OPERATORS[type(node.op)](self._read(node.left), self._read(node.right))
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                return CALLS[name](*map(self._read, node.args))
        raise RefusedError(f"the size {ast.unparse(node)}")
