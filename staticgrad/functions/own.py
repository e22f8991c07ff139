"""``sg.op``: an elementwise op of the user's own, declared in one place.

Input: an expression of scalars, a NumPy function, a derivative. Output: a function of tensors that declares one node
of the op's name. What the node is, and how it is computed and derived, is in ``staticgrad.ops.own``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import (
    GradientError,
    GraphError,
    PromotionWarning,
    SourceLine,
    StaticGradError,
    called_for,
    silent,
    user_source,
)
from staticgrad.base.types import bool_, float32, float64, int64, is_floating, is_weak
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.functions.checking import check_gradients
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.lifting import TensorLike, graph_of, lift, promote
from staticgrad.graph.optable import FUNCTIONS, Array, Op
from staticgrad.graph.text import print_graph
from staticgrad.ops.control.bodies import Body, require_function
from staticgrad.ops.own import DERIVED, NONE, OwnAttributes, computed_in, derivative_of, entry, is_taken, value_of
from staticgrad.ops.sources import placeholder
from staticgrad.runtime.session.session import Session

Domain = tuple[float, float]
PROBED = (float32, int64, bool_)  # the dtypes with which an expression is tried when it is declared
POINTS = 500  # at which an op is checked by default
# Of a result, as a part of the largest one: some units in the last place for each op of an expression.
TOLERANCES = {float32: 2e-5, float64: 1e-12}
INSIDE = 1e-3  # of a domain's width, between its ends and what is drawn, for the steps of differences


def op(
    name: str,
    expression: Callable[..., Any],
    *,
    reference: Callable[..., Any] | None = None,
    derivative: Callable[..., Any] | Literal["derived"] | None = "derived",
    domain: Domain | Sequence[Domain] = (-2.0, 2.0),
    doc: str = "",
) -> OwnOp:
    """Declare an elementwise op of your own: a function of tensors, each call of which is one node of that name.

    The node is one op in graphs, their texts and files, in errors and for ``vmap``. Compilation puts the expression in
    its place before kernels are made, so that it is fused as the same ops are where they are written out, in the same
    kernels with the same bits; kernels with parts of it have its name, those of its derivative one that ends in
    ``_derivative``, in texts, costs and profiles.

    Operands broadcast. Each keeps its dtype, and the expression is traced once for each combination of them; Python
    numbers take the dtype that the others have. Which dtypes there are follows from the functions in the expression.
    Of 16-bit floats it is computed in float32 and rounded once, as built-in ops are.

    ``sg.save_graph`` and ``str(graph)`` write the op as its expression and that of its derivative, so that a graph is
    read, run and derived where the Python functions are not.

    Args:
        name: an identifier, which no function or op of this package has. It may be declared again with an equal
            expression; in a notebook, with another one.
        expression: a function of one scalar tensor or more that gives a scalar, made by elementwise functions of
            ``sg``, ``sg.nn`` and other ops of one's own; no Python decision depends on a value.
        reference: the same by NumPy, of arrays, floats in float64: what the interpreter computes
            (``STATICGRAD_BACKEND=reference``), and what ``check`` compares with. Default: the expression, by the
            references of its ops.
        derivative: a function ``(g, *operands, result)`` of scalars that gives the cotangent of each operand for the
            cotangent ``g`` of the result: a tuple, or the lone one; None where there is none. It is elementwise
            and linear in ``g``, so that it serves forward mode as well, and is derived itself for further orders. By
            default it is derived from the expression. None: the op is not differentiable.
        domain: ``(low, high)``, or one for each operand: where ``check`` draws operands.
        doc: what the op computes, the docstring of the function.

    Raises:
        GraphError: the name is taken, or declared with another expression (both lines are named); the expression or
            the derivative uses what is no elementwise function (its line is named), or something besides its operands.

    Example:
        >>> squareplus = sg.op(
        ...     "squareplus",
        ...     lambda x: (x + sg.sqrt(x * x + 4.0)) / 2.0,
        ...     reference=lambda x: (x + np.sqrt(x * x + 4.0)) / 2.0,
        ...     derivative=lambda g, x, y: g * y / (2.0 * y - x),
        ... )
        >>> squareplus.check()
        >>> x = sg.placeholder((2,), name="x")
        >>> y = squareplus(x)
        >>> y.op.op.name
        'squareplus'
        >>> (dx,) = sg.gradients(y, [x])
        >>> sg.Session().run([y, dx], {x: [0.0, 1.5]})
        [array([1., 2.], dtype=float32), array([0.5, 0.8], dtype=float32)]
    """
    made = OwnOp(name, expression, reference, derivative, domain, doc)
    made._enter()
    return made


class OwnOp:
    """An op of a user's own, which ``sg.op`` makes: called with tensors, arrays or numbers, it declares a node.

    Example:
        >>> halved = sg.op("halved", lambda x: x / 2.0)
        >>> sg.Session().run(halved([1.0, 3.0]))
        array([0.5, 1.5], dtype=float32)
    """

    def __init__(
        self,
        name: str,
        expression: Callable[..., Any],
        reference: Callable[..., Any] | None,
        derivative: Callable[..., Any] | Literal["derived"] | None,
        domain: Domain | Sequence[Domain],
        doc: str,
    ) -> None:
        """Ops are made by ``sg.op``."""
        if not isinstance(name, str) or not name.isidentifier() or is_taken(name):
            whose = ", which a function or op of this package has" if isinstance(name, str) and is_taken(name) else ""
            raise GraphError(f"op: expected an identifier as a name of its own, actual {name!r}{whose}")
        self.__name__ = self.__qualname__ = name
        self._source = user_source()
        self._expression, self._reference = expression, reference
        self._derivative = NONE if derivative is None else derivative
        self._operands = _operands_of(name, expression)
        if reference is not None:
            require_function(f"op {name!r}: the reference", reference, *self._operands)
        if self._derivative not in (DERIVED, NONE):
            require_function(f"op {name!r}: the derivative", self._derivative, "g", *self._operands, "result")
        self._domains = _domains(name, domain, len(self._operands))
        self.__doc__ = doc or f"The op {name} of {', '.join(self._operands)}, elementwise."
        self._known: dict[tuple[np.dtype, ...], OwnAttributes] = {}
        self._entries: dict[str, Op] = {}

    def __repr__(self) -> str:
        return f"<op {self.__name__!r} of {', '.join(self._operands)}, declared at {self._source}>"

    @boundary
    def __call__(self, *operands: TensorLike) -> Tensor:
        """Declare the op of these operands.

        Raises:
            GraphError: another number of operands, or ones of dtypes or shapes for which it is not defined.
        """
        if len(operands) != len(self._operands):
            expected = ", ".join(self._operands)
            raise GraphError(f"{self.__name__}: expected operands ({expected}), actual {len(operands)}")
        graph = graph_of(operands)
        with graph:
            xs = _lifted(self.__name__, operands, graph)
            attrs = self._attributes(tuple(computed_in(x.dtype) for x in xs))
            return graph.add(self._entry(attrs), xs, attrs).outputs[0]

    def _attributes(self, dtypes: tuple[np.dtype, ...]) -> OwnAttributes:
        """The expressions for operands of these dtypes, which are traced once."""
        known = self._known.get(dtypes)
        if known is None:
            with called_for(f"the expression of op {self.__name__!r}", self._source):
                value = value_of(self._expression, self._operands, dtypes)
            derivative: Any = self._derivative
            if not is_floating(value.fetches[0].dtype):
                derivative = NONE
            elif callable(derivative):
                with called_for(f"the derivative of op {self.__name__!r}", self._source):
                    derivative = derivative_of(derivative, self._operands, value)
            known = self._known.setdefault(dtypes, OwnAttributes(value, derivative))
        return known

    def _entry(self, attrs: OwnAttributes) -> Op:
        kind = "rule" if isinstance(attrs.derivative, Body) else attrs.derivative
        if kind not in self._entries:
            self._entries[kind] = entry(self.__name__, attrs, self.__doc__ or "", self._reference)
        return self._entries[kind]

    def _enter(self) -> None:
        """Trace the expression for the first dtype for which it is defined, and claim the name.

        Raises:
            GraphError: it is defined for none, or the name was declared with another expression.
        """
        text = self._text()
        before, known = _DECLARED.setdefault(self.__name__, (self, text))
        if known != text and not (_is_of_notebook(before._source) and _is_of_notebook(self._source)):
            raise GraphError(
                f"op {self.__name__!r}: declared before with another expression, at {before._source}",
                source=self._source,
            )
        if known != text:
            _DECLARED[self.__name__] = self, text

    def _text(self) -> str:
        """The expression and the derivative as text, for the first dtype for which there is one."""
        first = next((dtype for dtype in PROBED if self._is_defined_for(dtype)), PROBED[0])
        attrs = self._attributes((first,) * len(self._operands))
        parts = [attrs.value, attrs.derivative]
        return "\n".join(print_graph(p.graph, full=True) if isinstance(p, Body) else p for p in parts)

    @boundary
    def check(self, points: int = POINTS, seed: int = 0) -> None:
        """Compare the compiled expression with the reference, and derivatives with differences, at random operands of
        the domain; where they agree nothing happens.

        Values are compared in float32 and float64: all within 2e-5 and 1e-12 of the largest one. First and second
        derivatives are compared in float64, as ``sg.check_gradients`` does, in reverse and forward mode, and those of
        float32 with those of float64. An expression that is not defined for floats is compared for integers, or bools.

        Args:
            points: how many operands are drawn.
            seed: of the random operands.

        Raises:
            GraphError: a value differs; the message has the operands, both values and the dtype.
            GradientError: a derivative differs.

        Example:
            >>> cubed = sg.op("cubed", lambda x: x * x * x, derivative=lambda g, x, y: g * x * x)
            >>> cubed.check()
            Traceback (most recent call last):
                ...
            staticgrad.errors.GradientError: check_gradients: order 1, reverse mode, of 'cubed': wrong derivative...
        """
        rng = np.random.default_rng(seed)
        drawn = [_drawn(rng, low, high, points) for low, high in self._domains]
        floats = [dtype for dtype in (float32, float64) if self._is_defined_for(dtype)]
        others = [dtype for dtype in (int64, bool_) if not floats and self._is_defined_for(dtype)]
        for dtype in floats or others:
            xs = [np.asarray(x, dtype) for x in drawn]
            self._check_values(dtype, xs)
        differentiable = [d for d in floats if self._attributes((d,) * len(drawn)).derivative != NONE]
        if float64 in differentiable:
            rounded = [np.asarray(np.asarray(x, float32), float64) for x in drawn]  # which both dtypes have
            check_gradients(self, rounded)
            exact = self._gradients([*rounded])
            if float32 in differentiable:
                found = self._gradients([np.asarray(x, float32) for x in rounded])
                for i, (got, want) in enumerate(zip(found, exact, strict=True)):
                    what = f"the gradient of {self._operands[i]!r}"
                    self._compare(GradientError, what, "by float64", rounded, got, want, TOLERANCES[float32])

    def _is_defined_for(self, dtype: np.dtype) -> bool:
        try:
            with silent(PromotionWarning):
                value_of(self._expression, self._operands, (dtype,) * len(self._operands))
        except StaticGradError:
            return False
        return True

    def _check_values(self, dtype: np.dtype, xs: Sequence[Array]) -> None:
        attrs = self._attributes((dtype,) * len(xs))
        want = np.asarray(self._entry(attrs).reference(attrs, *xs))
        with Graph() as graph:
            feeds = [placeholder(x.shape, x.dtype) for x in xs]
            y = self(*feeds)
        with Session(graph) as session:
            got = session.run(y, dict(zip(feeds, xs, strict=True)))
        tolerance = TOLERANCES.get(want.dtype, 0.0)
        self._compare(GraphError, f"its value in {dtype.name}", "by the reference", xs, got, want, tolerance)

    def _gradients(self, xs: Sequence[Array]) -> list[Array]:
        with Graph() as graph:
            feeds = [placeholder(x.shape, x.dtype) for x in xs]
            found = gradients(FUNCTIONS.sum(self(*feeds)), feeds, unconnected_gradients="zero")
        with Session(graph) as session:
            return session.run(found, dict(zip(feeds, xs, strict=True)))

    def _compare(
        self,
        kind: type[GraphError | GradientError],
        what: str,
        by: str,
        xs: Sequence[Array],
        got: Array,
        want: Array,
        tolerance: float,
    ) -> None:
        """Compare values at points: all to within a part of the largest one that is finite."""
        with np.errstate(all="ignore"):
            finite = np.isfinite(want)
            scale = float(np.abs(want[finite]).max(initial=0.0))
            off = np.abs(np.subtract(got, want, dtype=np.float64))
        wrong = ~((got == want) | (np.isnan(got) & np.isnan(want)) | (off <= tolerance * scale))
        if wrong.any():
            place = int(np.argmax(wrong * np.where(np.isfinite(off), off, np.inf)))
            operands = ", ".join(f"{n} = {x[place]}" for n, x in zip(self._operands, xs, strict=True))
            raise kind(
                f"op {self.__name__!r}: {what} is wrong at {operands}\n  expected {want[place]} ({by})"
                f"\n  actual   {got[place]}\n  at {int(wrong.sum())} of {len(wrong)} points",
                source=self._source,
            )


_DECLARED: dict[str, tuple[OwnOp, str]] = {}  # by name: the latest one and its text


def _is_of_notebook(source: SourceLine | None) -> bool:
    return source is not None and source.cell is not None


def _operands_of(name: str, expression: Callable[..., Any]) -> tuple[str, ...]:
    """The names of an expression's operands."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = list(inspect.signature(expression).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if not parameters or not all(p.kind in kinds and p.default is p.empty for p in parameters):
        raise GraphError(f"op {name!r}: expected a function of named operands as expression, actual {expression!r}")
    return tuple(p.name for p in parameters)


def _domains(name: str, domain: Any, count: int) -> list[Domain]:
    """The ends of each operand's domain."""
    given = list(domain) if isinstance(domain, (tuple, list)) else []
    pairs = [tuple(given)] * count if all(map(_is_number, given)) else given
    if len(pairs) != count or not all(_is_pair(pair) for pair in pairs):
        raise GraphError(
            f"op {name!r}: domain: expected (low, high), or one for each of {count} operands, actual {domain!r}"
        )
    return [(float(low), float(high)) for low, high in pairs]


def _is_number(x: object) -> bool:
    return isinstance(x, (int, float))


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(_is_number, pair)) and pair[0] < pair[1]


def _drawn(rng: np.random.Generator, low: float, high: float, points: int) -> Array:
    margin = INSIDE * (high - low)
    return rng.uniform(low + margin, high - margin, points)


def _lifted(name: str, operands: Sequence[Any], graph: Graph) -> list[Tensor]:
    """The operands as tensors; Python numbers but bools have the dtype of the others, of floats if there are some."""
    xs = [None if is_weak(x) else lift(x, graph) for x in operands]
    dtypes = [x.dtype for x in xs if x is not None]
    common = [dtype for dtype in dtypes if is_floating(dtype)] or [dtype for dtype in dtypes if dtype != bool_]
    number = [x for x in operands if is_weak(x) and not isinstance(x, bool)]
    dtype = promote(common, number, name) if common and number else None
    return [
        x if x is not None else lift(value, graph, None if isinstance(value, bool) else dtype)
        for x, value in zip(xs, operands, strict=True)
    ]
