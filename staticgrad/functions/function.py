"""Python functions of tensors as functions of arrays: ``sg.function``, ``sg.value_and_grad``, ``sg.hvp``.

Input: a function that declares ops on the tensors that it is given. Output: a function that may be called with arrays,
which declares, compiles and runs, or with tensors, which only declares. Arrays of other shapes or dtypes are another
declaration; what was compiled is kept by these.

Derivatives are by an argument, not by a tensor: each argument that is derived by becomes a tensor of its own first, so
``f(x, x)`` has two gradients, and what ``f`` reads of ``x`` by itself, from outside, is constant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.recent import Recent
from staticgrad.base.types import TensorType, dtype_of, is_floating, is_weak, scalar_dtype
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.reverse import gradients, tensor_list
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.lifting import graph_of, lift
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.sources import placeholder
from staticgrad.runtime.session.executable import Executable
from staticgrad.runtime.session.session import Session

KEPT = 64  # declarations of one function


class ArrayFunction:
    """A function of tensors that is called with arrays: ``sg.function(fn)``. With tensors it is ``fn`` itself.

    Attributes:
        executable: the executable of the latest call, or of the types that were given; None before.
    """

    is_called_with_tensors = True  # which functions for NumPy ask of what they find around them

    def __init__(
        self, fn: Callable[..., Any], types: Sequence[TensorType], options: dict[str, Any], numpy: bool = False
    ) -> None:
        """These are made by ``sg.function``."""
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._options = options
        self._is_numpy = numpy
        self._known: Recent[Executable] = Recent(KEPT)
        self._declared: Executable | None = None
        self.executable: Executable | None = None
        if types:
            self._declared = self.executable = self._declare([0] * len(types), types)

    def __repr__(self) -> str:
        return f"<function of arrays {getattr(self._fn, '__qualname__', self._fn)!r}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given: Any = list(arguments)
        if named:
            if self._declared is not None:
                by_position, rest = _by_position(self._fn, arguments, named)
                if rest:
                    raise GraphError(f"{self!r}: specs are of positional arguments, actual {', '.join(rest)}")
                given = list(by_position)
            else:
                given = [given, dict(sorted(named.items()))]
        leaves = nests.flatten(given)
        if any(isinstance(leaf, (Tensor, Node)) for leaf in leaves):
            return self._fn(*arguments, **named)
        executable = self._declared
        if self._is_numpy:
            return self._called_for_numpy(given, leaves, bool(named))
        if executable is None:
            leaves = [leaf if type(leaf) is np.ndarray else _array(leaf) for leaf in leaves]
            plain = not named and len(leaves) == len(arguments) and all(map(_is_array, arguments))
            key = (plain or tuple(nests.paths(given)), *[(leaf.shape, leaf.dtype) for leaf in leaves])
            executable = self._known.get(key)
            if executable is None:
                types = [TensorType(leaf.shape, leaf.dtype) for leaf in leaves]
                executable = self._known.put(key, self._declare(given, types, bool(named)))
            self.executable = executable
        return executable(*leaves)

    def _called_for_numpy(self, given: list[Any], leaves: list[Any], has_named: bool) -> Any:
        """As a call of the function for NumPy: floats and arrays are fed, all else is part of the program."""
        leaves = [leaf if is_weak(leaf) else _array_or_other(leaf) for leaf in leaves]
        fed = [leaf for leaf in leaves if _is_fed(leaf)]
        if self._declared is not None:
            return self._declared(*fed)
        kinds = [_kind_of(leaf) for leaf in leaves]
        key = (tuple(nests.paths(given)), *kinds)
        executable = self._known.get(key)
        if executable is None:
            executable = self._known.put(key, self._declare_for_numpy(given, leaves, has_named))
        self.executable = executable
        return executable(*fed)

    def _declare_for_numpy(self, given: list[Any], leaves: list[Any], has_named: bool) -> Executable:
        from staticgrad.bridges.numpy.adapter import at_examples

        with _OwnGraph() as graph:
            feeds, inputs = list[Tensor](), list[Any]()
            for leaf in leaves:
                if _is_fed(leaf):
                    feeds.append(placeholder(np.shape(leaf), np.asarray(leaf).dtype))
                inputs.append(feeds[-1] if _is_fed(leaf) else leaf)
            packed: list[Any] = nests.pack(list(given), inputs)
            with at_examples(feeds, [leaf for leaf in leaves if _is_fed(leaf)]):
                value = self._fn(*packed[0], **packed[1]) if has_named else self._fn(*packed)
            results = nests.map(lambda leaf: leaf if leaf is None else lift(leaf), value)
        return Session(graph, **self._options).compile(results, feeds)

    def _declare(self, arguments: Sequence[Any], types: Sequence[TensorType], has_named: bool = False) -> Executable:
        graph = _OwnGraph()
        with graph:
            feeds = [placeholder(t.shape, t.dtype) for t in types]
            given: list[Any] = nests.pack(list(arguments), feeds)
            value = self._fn(*given[0], **given[1]) if has_named else self._fn(*given)
            results = nests.map(lambda leaf: leaf if leaf is None else lift(leaf), value)
        return Session(graph, **self._options).compile(results, feeds)


class _OwnGraph(Graph):
    """The graph of one declaration of a function of arrays."""

    def adopt(self, x: Tensor, what: str) -> Tensor:
        if self.holds(x):
            return x
        raise GraphError(
            f"{what}: {x.name!r} belongs to another graph: a function that is called with arrays is declared in a graph"
            f" of its own, without a session's variables; hand {x.name!r} over as an argument (its value is"
            " sess.get(variable)), or call the function with tensors, in their graph",
            source=x.source,
        )


def _by_position(
    fn: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call as far as they can be given by position, and the rest."""
    if not named:
        return tuple(arguments), {}
    bound = inspect.signature(fn).bind(*arguments, **named)
    return bound.args, bound.kwargs


def _is_array(value: object) -> bool:
    return type(value) is np.ndarray


def _is_fed(leaf: Any) -> bool:
    """True if an argument of a function for NumPy is fed; all others are part of the program."""
    return type(leaf) is float or isinstance(leaf, (np.ndarray, np.floating))


def _array_or_other(leaf: Any) -> Any:
    """An argument of a function for NumPy: NumPy's array of what has one, such as a tensor of another library."""
    if type(leaf) is not np.ndarray and not isinstance(leaf, np.generic) and hasattr(leaf, "__array__"):
        leaf = np.asarray(leaf)
    return leaf


def _kind_of(leaf: Any) -> Any:
    """The part of an argument of a function for NumPy on which the program depends."""
    if not _is_fed(leaf):
        return type(leaf), leaf if isinstance(leaf, Hashable) else id(leaf), leaf
    return (float,) if type(leaf) is float else (type(leaf), leaf.shape, leaf.dtype)


def _array(value: Any) -> Any:
    """The array of a number or of an object that has one, in the dtype that it has as an operand."""
    if is_weak(value):
        return np.asarray(value, scalar_dtype(value))
    array = np.asarray(value)
    if array.dtype.kind in "USOMm":
        raise GraphError(
            f"expected arrays and numbers as arguments, actual {value!r}: what is none is bound beforehand, by"
            " functools.partial(fn, …) or a lambda"
        )
    return array


def function(
    fn: Callable[..., Any], *specs: Any, numpy: bool = False, freeze: bool = False, **options: Any
) -> ArrayFunction:
    """A function of arrays from one of tensors: it is declared, compiled and run in one step.

    Args:
        fn: declares ops on tensors, or on nests of tensors, and gives a nest of them. It must not keep them, and reads
            no tensors of other graphs: variables of a session are handed over. What is no array (an axis, a name) is
            bound beforehand, by ``functools.partial``.
        specs: what each argument is: an array like it, a shape, whose sizes may be None, or a pair of shape and dtype
            (default: float32). Without them the arrays of a call say it, and each new combination of shapes and dtypes
            is declared and compiled for; Python floats are float32 then, as everywhere.
        numpy: ``fn`` is written for NumPy, as in ``docs/ways-in/numpy.md``: it takes arrays and numbers, which it may
            also write to, and is traced at those of the first call. Dtypes are NumPy's. Arguments that are neither
            arrays nor floats (ints, texts, None) are part of the program.
        freeze: with ``numpy``: what depends on a value (``if x > 0``, ``float(x)``, a draw of ``np.random``) keeps what
            it is at the arguments of the first call, with a warning that counts each such line.
        options: of the session, such as ``num_threads`` or ``seed``.

    Returns:
        A callable, of positional and keyword arguments. ``.executable`` is the executable of the latest call, from
        which memory, cost and ``cfunc`` come.

    Raises:
        GraphError: a spec that is none of these; what ``fn`` raises.
        UnsupportedError: (when called) ``fn`` is for NumPy and does what is not supported, or depends on values.

    Example:
        >>> norm = sg.function(lambda x: sg.sqrt(sg.sum(x * x)))
        >>> norm(np.array([3.0, 4.0]))
        array(5.)
        >>> mean = sg.function(lambda x: sg.mean(x, axis=0), (None, 2))
        >>> [mean(np.ones((n, 2), np.float32)).tolist() for n in (1, 10)]
        [[1.0, 1.0], [1.0, 1.0]]
        >>> def running(x):
        ...     total = np.zeros(3)
        ...     total[0] = x[0]
        ...     for i in range(1, 3):
        ...         total[i] = total[i - 1] + x[i]
        ...     return total
        >>> sg.function(running, numpy=True)(np.array([1.0, 2.0, 3.0]))
        array([1., 3., 6.])
    """
    if not callable(fn):
        raise GraphError(f"function: expected a function of tensors, actual {fn!r}")
    return ArrayFunction(
        _for_tensors(fn, numpy, freeze), [_spec(number, spec) for number, spec in enumerate(specs)], options, numpy
    )


def _for_tensors(fn: Callable[..., Any], numpy: bool, freeze: bool) -> Callable[..., Any]:
    """A function of tensors: ``fn``, or what traces it.

    Raises:
        GraphError: something is to be frozen in a function of tensors.
    """
    if freeze and not numpy:
        raise GraphError("freeze: only functions for NumPy (numpy=True) are traced at values that can be kept")
    if not numpy:
        return fn
    from staticgrad.bridges.numpy.adapter import of_tensors

    return of_tensors(fn, freeze)


def _spec(number: int, spec: Any) -> TensorType:
    """The type that a spec says."""
    if isinstance(spec, np.ndarray):
        return TensorType(spec.shape, dtype_of(spec.dtype))
    if isinstance(spec, (tuple, list)):
        is_pair = len(spec) == 2 and isinstance(spec[0], (tuple, list))
        shape, dtype = spec if is_pair else (spec, np.float32)
        with Graph():
            return placeholder(tuple(shape), dtype).type
    raise GraphError(
        f"function: argument {number}: expected an array, a shape, or a shape and a dtype, actual {spec!r}"
    )


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    numpy: bool = False,
    freeze: bool = False,
    **options: Any,
) -> Callable[..., Any]:
    """A function that gives the value of ``fn`` and its gradient by arguments.

    With tensors it declares both, in the graph of these; with arrays it is compiled, as ``sg.function`` does.

    Args:
        fn: a function of tensors, or nests of them, to one floating number.
        argnums: by which argument, or arguments, it is derived. Their leaves are floating.
        has_aux: ``fn`` gives a pair, the number and a nest of other results, by which nothing is derived.
        numpy: ``fn`` is written for NumPy, see ``sg.function``; so is ``freeze``.
        freeze: what depends on values keeps what it is at the first call.
        options: of the session, for calls with arrays.

    Returns:
        A function of the same arguments that gives ``(value, gradient)``, or ``(value, gradients)`` where ``argnums``
        is a sequence. A gradient is a nest like its argument, zeros where the value does not depend on it. With
        ``has_aux`` the value is the pair.

    Raises:
        GraphError: ``fn`` cannot be called, ``argnums`` are no ints.
        GradientError: (when called) ``fn`` gives no lone floating number, an argument is not floating or not there.

    Example:
        >>> area = sg.value_and_grad(lambda a, b: a * b, argnums=(0, 1))
        >>> area(np.float64(3.0), b=np.float64(5.0))
        (array(15.), (array(5.), array(3.)))
        >>> x = sg.constant(2.0)
        >>> sg.Session().run(area(x, x))
        (array(4., dtype=float32), (array(2., dtype=float32), array(2., dtype=float32)))
        >>> (value, doubled), slope = sg.value_and_grad(lambda a: (a * a, 2 * a), has_aux=True)(np.float64(3.0))
        >>> float(value), float(doubled), float(slope)
        (9.0, 6.0, 6.0)
    """
    if not callable(fn):
        raise GraphError(f"value_and_grad: expected a function of tensors, actual {fn!r}")
    is_one = not isinstance(argnums, Sequence)
    wanted: list[Any] = [argnums] if is_one else list(argnums)  # type: ignore[arg-type]
    if isinstance(argnums, str) or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in wanted):
        raise GraphError(f"value_and_grad: argnums: expected an int or a sequence of ints, actual {argnums!r}")
    numbers = [int(n) for n in wanted]
    of_tensors = _for_tensors(fn, numpy, freeze)

    @functools.wraps(fn)
    def declared(*arguments: Any, **named: Any) -> tuple[Any, Any]:
        arguments, named = _by_position(fn, arguments, named)
        graph = graph_of(nests.flatten([list(arguments), named]))
        with graph:
            given, places = list(arguments), []
            for number in numbers:
                if not -len(given) <= number < len(given):
                    raise GradientError(f"value_and_grad: there is no argument {number} of {len(given)}")
                places.append(number % len(given))
            for place in set(places):
                given[place] = nests.map(functools.partial(_independent, place, numpy), arguments[place])
            result = of_tensors(*given, **named)
            is_pair = isinstance(result, tuple) and len(result) == 2
            if has_aux and not is_pair:
                shown = _shown(result)
                raise GradientError(f"value_and_grad: has_aux: expected a function to a pair, actual {shown}")
            value = result[0] if has_aux else result
            if not isinstance(value, Tensor) or value.shape != ():
                hint = "; has_aux=True derives the first of two" if is_pair and not has_aux else ""
                raise GradientError(f"value_and_grad: expected a function to one number, actual {_shown(value)}{hint}")
            xs = [nests.flatten(given[place]) for place in places]
            found = iter(gradients(value, [x for group in xs for x in group], unconnected_gradients="zero"))
            slopes = tuple(nests.map(lambda _: next(found), given[place]) for place in places)
        return result, slopes[0] if is_one else slopes

    return ArrayFunction(declared, (), options, numpy)


def _independent(place: int, numpy: bool, value: Any) -> Tensor:
    """A tensor of its own, so that a gradient is by the argument alone."""
    if numpy and not isinstance(value, Tensor):
        hint = ": ints are part of the program of a function for NumPy, write a float" if type(value) is int else ""
        raise GradientError(f"value_and_grad: argument {place}: expected a float or an array, actual {value!r}{hint}")
    x = lift(value)
    if not is_floating(x.dtype):
        raise GradientError(f"value_and_grad: argument {place}: expected floating values to derive by, actual {x.type}")
    return FUNCTIONS.identity(x)


def _shown(value: object) -> str:
    return str(value.type) if isinstance(value, Tensor) else repr(value)


def hvp(y: Any, x: Any, v: Any) -> Any:
    """The product of the Hessian of ``y`` by ``x`` with a vector ``v``, at about the cost of two gradients.

    The derivative of the gradient in the direction v is taken forward over reverse (Pearlmutter, Fast Exact
    Multiplication by the Hessian, 1994).

    Args:
        y: a floating tensor of shape ().
        x: a floating tensor or a nest of them.
        v: like ``x``: a tensor or array of its shape, or a nest of them; None is zero.

    Returns:
        A tensor of the shape of ``x``, or a nest of them.

    Raises:
        GradientError: y is no number, something is not floating or has no derivative.
        GraphError: x and v are other nests, or a part of v has another shape.

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> sg.Session().run(sg.hvp(x[0] ** 2 * x[1], x, [1.0, 0.0]))
        array([4., 2.], dtype=float32)
    """
    ys = tensor_list(y, "y")
    if len(ys) != 1 or ys[0].shape != ():
        shown = ", ".join(str(each.type) for each in ys)
        raise GradientError(f"hvp: y: expected one number, actual {shown}", source=ys[0].source if ys else None)
    xs, vs = nests.flatten(x), list[Any]()
    nests.map(lambda _, part: vs.append(part), x, v)
    slopes = gradients(ys[0], xs, unconnected_gradients="zero")
    return nests.pack(x, jvp(slopes, xs, vs))


__all__ = ["ArrayFunction", "function", "hvp", "value_and_grad"]
