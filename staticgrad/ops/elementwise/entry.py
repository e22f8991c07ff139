"""From a compact declaration to an entry and its public function: how elementwise ops are made.

Input: one line an op — name, sentence, how one element is computed, a NumPy oracle, which dtypes it takes, and for
each operand a *rule*. Output: an ``Op`` in the table and a function in the namespace.

A rule is the linear map ``t -> t * dy/dx`` of one operand. It is diagonal, so it is its own transpose: with a cotangent
it is the vjp (up to undoing the broadcasting), with a tangent the jvp. ``PASS`` is the map for a derivative of one,
``NEGATE`` for minus one, ``None`` says that the derivative is zero, and ``scaled(partial)`` multiplies.

Cotangents that are exactly zero stay zero whatever they are multiplied with: so the branch that a ``where`` did not
choose contributes nothing, even where its derivative is infinite or not a number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import GraphError
from staticgrad.base.extents import is_same
from staticgrad.base.types import INTEGERS, Shape, TensorType, broadcast_shapes, is_floating, takes
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import (
    FUNCTIONS,
    NO_ATTRIBUTES,
    REAL,
    Array,
    Case,
    Namespace,
    NoAttributes,
    Op,
    Primal,
    Range,
    register,
)
from staticgrad.graph.scalar import ScalarBuilder, V
from staticgrad.ops.batch_rules import broadcasting
from staticgrad.ops.declare import ANY, BOOL, FLOAT, INTEGRAL, NUMERIC, Accepts, accepted, declare, refuse_in_place
from staticgrad.ops.sources import CONSTANT

Rule = Callable[..., Tensor | None]  # rule(o, t, y, *xs): None where the derivative is zero
Rules = Sequence[Rule | None] | Callable[[Any], Sequence[Rule | None]]  # or, by the op's attributes
UnaryRule = Callable[[Namespace, Tensor, Tensor, Tensor], Tensor | None]
BinaryRule = Callable[[Namespace, Tensor, Tensor, Tensor, Tensor], Tensor | None]

Example = tuple[str, str]  # of a public function in its docstring: an expression, and what a run of it shows

Scalar = str | Callable[..., Any]  # the builder's method, or f(builder, attrs, *values)
UnaryScalar = str | Callable[[ScalarBuilder[Any], NoAttributes, Any], Any]
BinaryScalar = str | Callable[[ScalarBuilder[Any], NoAttributes, Any, Any], Any]


# -- derivatives from rules -----------------------------------------------------------------------------------------


def PASS(o: Namespace, t: Tensor, y: Tensor, *xs: Tensor) -> Tensor:
    """The rule of a derivative that is one."""
    return t


def NEGATE(o: Namespace, t: Tensor, y: Tensor, *xs: Tensor) -> Tensor:
    """The rule of a derivative that is minus one."""
    return o.negative(t)


def scaled(partial: Callable[..., Tensor]) -> Rule:
    """The rule of the derivative ``partial(o, y, *xs)``; a zero stays a zero whatever the derivative is."""

    def rule(o: Namespace, t: Tensor, y: Tensor, *xs: Tensor) -> Tensor:
        return weighted(o, partial(o, y, *xs), t)

    return rule


def weighted(o: Namespace, factor: Tensor, t: Tensor) -> Tensor:
    """``factor * t``, and zero where ``t`` is zero; a plain product where the factor is known to be finite."""
    values = constant_value(factor)
    finite = values is not None and np.isfinite(values).all()
    return o.multiply(factor, t) if finite else o.multiply_no_nan(factor, t)


def constant_value(x: Tensor) -> Array | None:
    """The value of a small constant, where rules may look at it: saving analysis shows such constants as they are."""
    small = x.op.op is CONSTANT and isinstance(x.size, int) and x.size <= 64
    return x.op.attrs.value if small else None


def _rules(rules: Rules, node: Primal[object]) -> Sequence[Rule | None]:
    return rules(node.attrs) if callable(rules) else rules


def vjp_of(rules: Rules) -> Callable[..., Sequence[Tensor | None]]:
    """Pull a cotangent back to each operand, in the operand's shape."""

    def vjp(o: Namespace, node: Primal[object], ct: Tensor | None) -> Sequence[Tensor | None]:
        result: list[Tensor | None] = []
        for rule, x, need in zip(_rules(rules, node), node.inputs, node.wanted, strict=True):
            pulled = None
            if need and rule is not None and ct is not None and is_floating(x.dtype):
                pulled = rule(o, ct, node.outputs[0], *node.inputs)
            result.append(None if pulled is None else o.unbroadcast(pulled, x.shape))
        return result

    return vjp


def jvp_of(rules: Rules) -> Callable[..., Sequence[Tensor | None]]:
    """Push the operands' tangents forward, to the shape of the result."""

    def jvp(o: Namespace, node: Primal[object], *tangents: Tensor | None) -> Sequence[Tensor | None]:
        y = node.outputs[0]
        if not is_floating(y.dtype):
            return (None,)
        pairs = zip(_rules(rules, node), tangents, strict=True)
        pushed = [rule(o, t, y, *node.inputs) for rule, t in pairs if rule is not None and t is not None]
        terms = [term for term in pushed if term is not None]
        if not terms:
            return (None,)
        total = functools.reduce(o.add, terms)
        return (total if is_same(total.shape, y.shape) else o.broadcast_to(total, y.shape),)

    return jvp


# -- where tests sample ------------------------------------------------------------------------------------------

POSITIVE = Range(0.1, 3.0)
AWAY_FROM_ZERO = Range(-3.0, 3.0, kinks=(0.0,), margin=0.3)
WIDE = Range(-6.0, 6.0)
INSIDE_UNIT = Range(-0.9, 0.9)

UNARY_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (1, 5), (0, 3), (2, 3, 17))
BINARY_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((), (2, 3)), ((1,), (7,)), ((0, 3), (3,)), ((33,), (33,)),
)  # fmt: skip


def unary_cases(values: Range = REAL, attributes: Sequence[Any] = (NO_ATTRIBUTES,)) -> tuple[Case, ...]:
    """The shapes of unary ops for the first attributes, one shape for each further ones."""
    first, *rest = attributes
    cases = [Case((shape,), first, (values,)) for shape in UNARY_SHAPES]
    return (*cases, *(Case(((2, 7),), attrs, (values,)) for attrs in rest))


def binary_cases(a: Range = REAL, b: Range = REAL, *, distinct: bool = False) -> tuple[Case, ...]:
    return tuple(Case(shapes, ranges=(a, b), distinct=distinct) for shapes in BINARY_SHAPES)


# -- entries --------------------------------------------------------------------------------------------------------


def elementwise(
    name: str,
    doc: str,
    scalar: Scalar,
    reference: Callable[..., Array],
    accepts: Accepts,
    rules: Rules | None,
    cases: tuple[Case, ...],
    *,
    result: np.dtype | None = None,
    grad_name: str | Callable[[Node], str] = "",
    tolerance: float = 1.0,
    cheap: bool = False,
) -> Op:
    """Register an elementwise op over operands of one dtype.

    Args:
        scalar: ``f(builder, attrs, *values)``, or the name of the builder's method.
        reference: ``f(attrs, *arrays)``; functions of floats are computed in float64 and rounded once.
        rules: one for each operand; None altogether says "not differentiable".
        result: the dtype of the result where it is not that of the operands.
    """
    return register(
        Op(
            name,
            doc,
            infer=_type_rule(name, accepts, result),
            reference=_oracle(reference, result, wide=accepts is FLOAT),
            role="elementwise",
            batch=broadcasting,
            scalar=_method(scalar) if isinstance(scalar, str) else scalar,
            vjp=None if rules is None else vjp_of(rules),
            jvp=None if rules is None else jvp_of(rules),
            differentiable=rules is not None,
            dtypes=accepts,
            cases=cases,
            grad_name=grad_name,
            tolerance=tolerance,
            cheap=cheap,
        )
    )


def _method(name: str) -> Callable[..., Any]:
    def scalar(b: ScalarBuilder[V], attrs: object, *values: V) -> Any:
        return getattr(b, name)(*values)

    return scalar


def _type_rule(name: str, accepts: Accepts, result: np.dtype | None) -> Callable[..., TensorType]:
    def infer(attrs: object, *types: TensorType) -> TensorType:
        dtype = types[0].dtype
        if not takes(accepts, dtype) or False in [t.dtype == dtype for t in types]:
            listed = ", ".join(map(str, types))
            raise GraphError(
                f"{name}: expected operands of one dtype among {', '.join(d.name for d in accepts)}"
                f"\n  actual   {listed}"
            )
        return TensorType(broadcast_types(types, name), result or dtype)

    return infer


def broadcast_types(types: Sequence[TensorType], what: str) -> Shape:
    return broadcast_shapes([t.shape for t in types], what)


def _oracle(reference: Callable[..., Array], result: np.dtype | None, wide: bool) -> Callable[..., Array]:
    def evaluate(attrs: object, *xs: Array) -> Array:
        dtype = result or xs[0].dtype
        with np.errstate(all="ignore"):
            values = [x.astype(np.float64) for x in xs] if wide else list(xs)
            return np.asarray(reference(attrs, *values)).astype(dtype)

    return evaluate


_NOTES = {
    ANY: "",
    NUMERIC: "Bools are refused.",
    FLOAT: "Integers and bools are computed as float64.",
    INTEGRAL: "Floats are refused.",
    INTEGERS: "Floats and bools are refused.",
    BOOL: "Operands that are not bools are compared with zero.",
}


def publish(
    function: Callable[..., Tensor], name: str, doc: str, notes: str, example: Example | None = None
) -> Callable[..., Tensor]:
    """Name and document a function, and make it part of the op namespace."""
    function.__name__ = function.__qualname__ = name
    parts = [doc, notes]
    if example is not None:
        source, result = example
        parts.append(f"Example:\n    >>> sg.Session().run({source})\n    {result}")
    function.__doc__ = "\n\n".join(parts)
    FUNCTIONS.register(function)
    return function


NOT_DIFFERENTIABLE = "not differentiable"


def is_number(x: Tensor) -> bool:
    """True if an operand is one number of the program, as Python numbers are."""
    return x.op.op is CONSTANT and x.ndim == 0


def unary(
    name: str,
    doc: str,
    scalar: UnaryScalar,
    reference: Callable[[Array], Array],
    accepts: Accepts,
    rule: UnaryRule | str | None,
    values: Range = REAL,
    *,
    result: np.dtype | None = None,
    grad_name: str | Callable[[Node], str] = "",
    tolerance: float = 1.0,
    cheap: bool = False,
    activation: bool = False,
    example: Example | None = None,
) -> Callable[[TensorLike], Tensor]:
    """An op of one operand and its public function, which for an activation has PyTorch's ``input`` and ``inplace``."""
    rules = None if isinstance(rule, str) else (rule,)
    op = elementwise(
        name, doc, scalar, lambda attrs, x: reference(x), accepts, rules, unary_cases(values),
        result=result, grad_name=grad_name, tolerance=tolerance, cheap=cheap,
    )  # fmt: skip

    def function(x: TensorLike) -> Tensor:
        return declare(op, accepted(name, accepts, x))

    def of_input(input: TensorLike, inplace: bool = False) -> Tensor:
        refuse_in_place(name, inplace)
        return function(input)

    notes = f"Elementwise. {_NOTES[accepts]}".rstrip()
    return publish(of_input if activation else function, name, doc, notes, example)


def binary(
    name: str,
    doc: str,
    scalar: BinaryScalar,
    reference: Callable[[Array, Array], Array],
    accepts: Accepts,
    rules: tuple[BinaryRule | None, BinaryRule | None] | None,
    cases: tuple[Case, ...] | None = None,
    *,
    result: np.dtype | None = None,
    grad_name: str | Callable[[Node], str] = "",
    tolerance: float = 1.0,
    cheap: bool = False,
    example: Example | None = None,
) -> Callable[[TensorLike, TensorLike], Tensor]:
    """An op of two operands, broadcast against each other, and its public function."""
    op = elementwise(
        name, doc, scalar, lambda attrs, x1, x2: reference(x1, x2), accepts, rules, cases or binary_cases(),
        result=result, grad_name=grad_name, tolerance=tolerance, cheap=cheap,
    )  # fmt: skip

    def function(x1: TensorLike, x2: TensorLike) -> Tensor:
        return declare(op, accepted(name, accepts, x1, x2, quiet=result is not None))

    notes = f"Elementwise, with NumPy's broadcasting and promotion. {_NOTES[accepts]}"
    return publish(function, name, doc, notes.rstrip(), example)
