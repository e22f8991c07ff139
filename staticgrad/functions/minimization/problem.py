"""Problems, and where they come from: a function of tensors, or a tensor that is declared in a graph.

Input: either of them, where to begin, data. Output: a ``Problem``, which declares a search over it as a program of its
own, keeps that, and runs it. How a search evaluates the one or the other at a point is said by its ``Forms``.

Of a declared tensor nothing is written: derivatives are declared in a continuation of the user's graph, with its hooks
and rules, and cut out of it; the graph stays as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base import nests
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import TensorType, computed, dtype_of, is_floating
from staticgrad.compiler.autodiff.substitution import substituted
from staticgrad.compiler.regions.cut import cut, needed_for
from staticgrad.functions.function import KEPT, ArrayFunction
from staticgrad.functions.minimization.flat import Layout
from staticgrad.functions.minimization.limits import nest_of_bounds
from staticgrad.graph.graph import Derivation, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as O
from staticgrad.graph.optable import Array
from staticgrad.graph.scopes import isolated
from staticgrad.ops.control.bodies import why_written
from staticgrad.ops.effects import ASSIGN
from staticgrad.ops.sources import PLACEHOLDER, VARIABLE, placeholder
from staticgrad.optim.arguments import depends_on
from staticgrad.optim.quasi_newton import State, Vector
from staticgrad.runtime.running.binding import as_array
from staticgrad.runtime.session.executable import Executable
from staticgrad.runtime.session.session import Session

STARTS = ("float64", "float32")  # dtypes of the first point of a function

_KNOWN: weakref.WeakKeyDictionary[Callable[..., Any], dict[object, ArrayFunction]] = weakref.WeakKeyDictionary()


class DeclaredValues:
    """Tensors of a region at other points. The search has one dtype, the places that are given have their own."""

    def __init__(self, fetches: Sequence[Tensor], places: Sequence[Tensor], dtype: np.dtype, what: str) -> None:
        self.fetches, self._places, self._dtype, self._what = fetches, places, dtype, what

    def __call__(self, values: Sequence[Tensor], chosen: slice) -> list[Tensor]:
        """Some of the fetches, where the first places have these values."""
        places = zip(self._places, values, strict=False)
        given = {place: O.astype(value, place.dtype) for place, value in places}
        return [O.astype(y, self._dtype) for y in substituted(self.fetches[chosen], given, self._what)]


@frozen(eq=False)
class Forms:
    """The ways in which a search evaluates what it minimizes, ``E`` standing for its own way to say that.

    Attributes:
        of_function: E of a function of a point, a vector of tensors.
        derived: of a declared tensor, and the leaves by which it is minimized: what is evaluated at each point, and
            places other than the point's that this depends on.
        of_declared: E of these.
    """

    of_function: Callable[[Callable[[Vector], Any]], Any]
    derived: Callable[[Tensor, list[Tensor]], tuple[list[Tensor], list[Tensor]]]
    of_declared: Callable[[DeclaredValues], Any]


# Of E, the first point and the settings of a search: its last state.
Search = Callable[[Any, Vector, Mapping[str, Tensor]], State]


class Problem:
    """A function and its further arguments.

    Attributes:
        wrt: a nest like x; of a function, whose x is one array, a leaf.
        starts: the first point, an array for each leaf. ``layout``: of these in a vector, in the dtype of the search.
    """

    def __init__(self, fn: Callable[..., Any], x0: Any, args: Sequence[Any], what: str) -> None:
        if not callable(fn):
            raise GraphError(f"{what}: expected a function of tensors or a declared tensor, actual {fn!r}")
        first = np.asarray(x0)
        if first.dtype.name not in STARTS:
            raise GraphError(f"{what}: x0: expected float32 or float64, actual {first.dtype}")
        self.wrt: Any = 0
        self.starts = [first]
        self.layout = Layout.of([first], first.dtype)
        self._fn, self._args = fn, tuple(args)

    def like_x(self, parts: Sequence[Array]) -> Any:
        """Arrays, one for each leaf, in the form of x."""
        return nests.pack(self.wrt, list(parts))

    def bounds(self, bounds: Any, what: str, by_element: bool) -> tuple[Array, Array]:
        """The lower and the upper ones of the vector."""
        pairs = nest_of_bounds(bounds, self.wrt, self.starts, what, by_element)
        lower, upper = (self.layout.joined([pair[side] for pair in pairs]) for side in (0, 1))
        return lower, upper

    def run(
        self, starts: Sequence[Array], settings: Mapping[str, Array], forms: Forms, search: Search,
        key: tuple[Any, ...], threads: int | None,
    ) -> State:  # fmt: skip
        """The last state of a search, whose program is kept under ``key``. That stands for all that ``search`` and
        ``forms`` depend on, but the shapes of the point; both are kept with the program."""
        fn, key = self._fn, (*key, self.layout, threads)
        known = _KNOWN.setdefault(fn, {})
        if key not in known:
            weak = weakref.ref(fn)  # what is kept under the function must not keep it

            def declared(x: Tensor, settings: dict[str, Tensor], args: tuple[Any, ...]) -> State:
                function = weak()
                assert function is not None
                return search(forms.of_function(lambda point: function(*point, *args)), (x,), settings)

            known[key] = ArrayFunction(declared, (), {"num_threads": threads})
        found: State = known[key](starts[0], dict(settings), self._args)
        return found


class DeclaredProblem(Problem):
    """A tensor of a graph.

    Raises:
        GraphError: it is minimized by nothing, or by what cannot be; it writes a variable.
        FeedError: a placeholder without a value, or with one of another type.
    """

    def __init__(
        self, y: Tensor, x0: Any, wrt: Any, feeds: Mapping[Tensor, Any], session: Session | None, what: str
    ) -> None:
        graph = y.graph
        graph.settle_names()
        if wrt is None:
            wrt = {x.op.attrs.key: x for x in depends_on(y)}
        xs: list[Tensor] = nests.flatten(wrt)
        _check_places(y, xs, feeds, what)
        reader = Session(graph) if session is None else session
        given: list[Any] = [None] * len(xs)
        if x0 is not None:
            nests.map(lambda x, value: given.__setitem__(xs.index(x), value), wrt, x0)
        self.wrt, self._y, self._xs, self._what = wrt, y, xs, what
        self.starts = [_start(x, value, reader, what) for x, value in zip(xs, given, strict=True)]
        self.layout = Layout.of(self.starts, np.result_type(*[computed(x.dtype) for x in xs]))
        read = {x: as_array(x, value) for x, value in feeds.items()}
        fed = {**dict(zip(xs, self.starts, strict=True)), **read}
        needed = needed_for(graph, [y], {x: TensorType(value.shape, x.dtype) for x, value in fed.items()})
        _check_writes(needed, what)
        variables = [node.outputs[0] for node in needed if node.op is VARIABLE and node.outputs[0] not in fed]
        self._read = read | {x: reader.get(x) for x in variables}

    def run(
        self, starts: Sequence[Array], settings: Mapping[str, Array], forms: Forms, search: Search,
        key: tuple[Any, ...], threads: int | None,
    ) -> State:  # fmt: skip
        graph, fed = self._y.graph, {**dict(zip(self._xs, starts, strict=True)), **self._read}
        types = {x: TensorType(value.shape, x.dtype) for x, value in fed.items()}
        known = (graph.version, self._y, *self._xs, tuple(types.items()), *key, threads)
        executable: Executable | None = graph.searches.get(known)
        if executable is None:
            if len(graph.searches) >= KEPT:
                graph.searches.clear()
            executable = graph.searches[known] = self._declared(types, settings, forms, search, threads)
        found: State = executable(*fed.values(), *settings.values())
        return found

    def _declared(
        self, types: dict[Tensor, TensorType], settings: Mapping[str, Array], forms: Forms, search: Search,
        threads: int | None,
    ) -> Executable:  # fmt: skip
        """The search as a program of its own."""
        read, count = len(types), len(self._xs)
        with Derivation(self._y.graph) as derivation, isolated():
            fetches, further = forms.derived(self._y, self._xs)
            types = types | {v: TensorType(self.starts[i].shape, v.dtype) for i, v in enumerate(further)}
            region = cut(derivation, fetches, types)
        dtype = self.layout.dtype
        at = DeclaredValues(region.fetches, [*region.feeds[:count], *region.feeds[read:]], dtype, self._what)
        with region.graph as graph:
            given = {name: placeholder(value.shape, dtype_of(value.dtype)) for name, value in settings.items()}
            first = tuple(O.astype(x, dtype) for x in region.feeds[:count])
            found = search(forms.of_declared(at), first, given)
        return Session(graph, num_threads=threads).compile(found, [*region.feeds[:read], *given.values()])


def problem_of(
    fn: Callable[..., Any] | Tensor, x0: Any, args: Sequence[Any], wrt: Any, feeds: Mapping[Tensor, Any] | None,
    session: Session | None, what: str, kind: str,
) -> Problem:  # fmt: skip
    """The problem of the arguments of ``what``, which go with a function or with a declared ``kind``."""
    if isinstance(fn, Tensor):
        if args:
            raise GraphError(f"{what}: args are for functions; a {kind} takes feeds={{placeholder: array}}")
        return DeclaredProblem(fn, x0, wrt, feeds or {}, session, what)
    for name, value in (("wrt", wrt), ("feeds", feeds), ("session", session)):
        if value is not None:
            raise GraphError(f"{what}: {name} is for a declared {kind}, a tensor; a function takes x0 and args")
    return Problem(fn, x0, args, what)


def _check_places(y: Tensor, xs: Sequence[Tensor], feeds: Mapping[Tensor, Any], what: str) -> None:
    """Refuse what a tensor cannot be minimized by."""
    if not xs:
        raise GraphError(f"{what}: {y.name!r} depends on no trainable variable; wrt= says by what it is minimized",
                         source=y.source)  # fmt: skip
    for x in xs:
        if not isinstance(x, Tensor) or x.op.op not in (VARIABLE, PLACEHOLDER) or not is_floating(x.dtype):
            raise GraphError(f"{what}: wrt: expected floating variables or placeholders, actual {x!r}")
        if x in feeds:
            raise GraphError(f"{what}: {x.name!r} is fed and in wrt; x0 says where to begin", source=x.source)
    if len(set(xs)) < len(xs):
        raise GraphError(f"{what}: wrt: a tensor is there twice")


def _check_writes(needed: Sequence[Node], what: str) -> None:
    """Refuse what cannot be evaluated many times without being a step of training."""
    for node in needed:
        if node.op is ASSIGN:
            raise GraphError(
                f"{what}: the loss writes a variable, {node.inputs[0].name!r}{why_written(needed)}", source=node.source
            )


def _start(x: Tensor, value: Any, session: Session, what: str) -> Array:
    """The value with which the search begins for one tensor."""
    if value is None:
        if x.op.op is not VARIABLE:
            raise GraphError(f"{what}: {x.name!r} is no variable: x0 says where to begin", source=x.source)
        return session.get(x)
    return np.asarray(value, x.dtype)
