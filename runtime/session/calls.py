"""Calls of executables: through Python, with any kind of feeds and any sizes, and in machine code.

Input: the programs of an executable, later the values of a call. Output: results in the nest of the fetches. The first
call with arrays of some shapes goes through Python, and so does what the functions in machine code do not know; then
the executable is called by such a function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from staticgrad.base.boundary import end_at_user
from staticgrad.base.errors import FeedError
from staticgrad.base.types import Shape, TensorType, check_bindable, sizes
from staticgrad.graph.optable import Array
from staticgrad.runtime.parts import vectorcall
from staticgrad.runtime.running.binding import as_arrays, known_symbols, types_of
from staticgrad.runtime.running.fetches import filled, flatten_like
from staticgrad.runtime.session.compiler import Chosen
from staticgrad.runtime.session.fetched import Fetched
from staticgrad.runtime.session.programs import Programs, Shapes, SizedProgram, Way, native_of

if TYPE_CHECKING:
    from staticgrad.runtime.running.entries import FastEntry
    from staticgrad.runtime.running.native import NativeRunner
    from staticgrad.runtime.running.runner import Runner

MOST_FEEDS = 256  # of a fast entry that serves many sizes


class Called(Protocol):
    """An object that is called by what its ``__call__`` is at the time."""

    __call__: Callable[..., Any]


class Calls:
    """The calls of one executable. ``run`` is the implementation of ``exe(…)`` in Python, which sets what the
    executable's ``__call__`` is.

    Args:
        start: has calls of the executable go to its ``__call__`` without a detour; called when there is a function in
            machine code.
    """

    __slots__ = (
        "_by_shapes", "_check_open", "_executable", "_fast", "_feeds", "_fetched", "_is_single", "_pack", "_programs",
        "_spread", "_start",
    )  # fmt: skip

    def __init__(self, executable: Called, programs: Programs, start: Callable[[], None]) -> None:
        fetched = programs.fetched
        self._executable = executable
        self._programs = programs
        self._start = start
        self._feeds = programs.feeds
        self._by_shapes = programs.by_shapes
        self._check_open = programs.compiler.store.check_open
        self._fetched = fetched
        self._is_single, self._pack, self._spread = fetched.is_single, fetched.pack, fetched.spread
        self._fast = FastCalls(fetched, self.run)

    def prepare(self, shapes: Sequence[Shape]) -> None:
        """Compile for these shapes now if every size in them is a number."""
        check_bindable(self._feeds)
        types = types_of(self._feeds, shapes).values()
        self._programs.fixed = known_symbols(self._feeds, shapes)
        if all(t.static for t in types):
            self._turn_to(self._compiled(tuple(sizes(t.shape) for t in types)))

    def run(self, *values: Any, out: Any = None, **named: Any) -> Any:
        """The results for what is fed, in the order of the feeds."""
        try:
            if named:
                raise TypeError(f"an executable has no {', '.join(map(repr, named))}: {self._given_in_order()}")
            arrays = self.given(values)
            shapes = tuple([array.shape for array in arrays])
            program = self._by_shapes.get(shapes) or self._compiled(shapes)
            if program is not self._programs.latest:
                self._turn_to(program)
            if any(map(operator.is_not, arrays, values)):
                # Now they may be what the fast entry knows; if not, it comes back with arrays that need no conversion.
                again = self._executable.__call__
                return again(*arrays) if out is None else again(*arrays, out=out)
            if vectorcall.IS_FREE_THREADED and program.way.fast is not None:
                program.way.fast.widen()
            if out is None:
                results = self._spread(program.runner.run(arrays), None)
                return results[0] if self._is_single else self._pack(results)
            fetched, runner = self._fetched, program.runner
            outs = [out] if self._is_single else flatten_like(fetched.nest, out, "out")
            lying = fetched.out_arrays(outs)
            results = self._spread(runner.run(arrays, fetched.out_by_tensor(lying, runner.types, arrays)), lying)
            results = [result if given is None else given for given, result in zip(outs, results, strict=True)]
            return filled(fetched.nest, out, iter(results))
        except Exception as error:
            end_at_user(error)
            raise

    def given(self, values: Sequence[Any]) -> list[Array]:
        """The arrays that are fed, in a form that the program can read.

        Raises:
            FeedError: a wrong number of arrays, a wrong shape or dtype.
        """
        self._check_open()
        feeds = self._feeds
        if len(values) != len(feeds) or (len(values) == 1 and isinstance(values[0], dict)):
            if len(values) == 1 and isinstance(values[0], Mapping):
                raise FeedError(f"expected arrays, actual a dict: {self._given_in_order()}")
            names = ", ".join(repr(x.name) for x in feeds) or "none"
            missing = feeds[len(values) :]
            raise FeedError(
                f"expected {len(feeds)} arrays (for {names}), actual {len(values)}",
                source=missing[0].source if missing else None,
            )
        return as_arrays(feeds, values)

    def _given_in_order(self) -> str:
        """A text for messages: how the executable is called."""
        names = ", ".join(x.name for x in self._feeds)
        return (
            f"it is called with arrays in the order of its feeds, exe({names}); sess.run(fetches, feeds) takes a dict"
        )

    def _turn_to(self, program: SizedProgram) -> None:
        """Have the executable called in the way of this program."""
        self._programs.latest, way = program, program.way
        point = way.point
        self._executable.__call__ = way.function if point is None or point() else self.run

    def _compiled(self, shapes: Shapes) -> SizedProgram:
        return self._programs.compiled(shapes, self._enter)

    def _enter(self, chosen: Chosen, types: Sequence[TensorType]) -> Way:
        way = self._fast.way(chosen, types)
        if way.function != self.run:
            self._start()
        return way


class FastCalls:
    """Makes the functions by which one executable is called; they do what ``slow`` does, which is called wherever they
    do not know what to do."""

    __slots__ = ("_fetched", "_shared", "_slow")

    def __init__(self, fetched: Fetched, slow: Callable[..., Any]) -> None:
        self._fetched = fetched
        self._slow = slow
        self._shared: dict[int, tuple[Runner, FastEntry, Callable[..., Any]]] = {}  # by programs that serve many sizes

    def way(self, chosen: Chosen, types: Sequence[TensorType]) -> Way:
        """The way to call a program with arrays of these types. Programs that serve many sizes have one function, which
        is pointed at those of each call."""
        fetched, native, served = self._fetched, native_of(chosen.runner), chosen.served
        mentioned = [place for _, place in fetched.mentioned]
        if native is None or len(set(mentioned)) != len(mentioned):
            return Way(self._slow)
        if served is None:
            made = self._make(native, types)
            return Way(self._slow) if made is None else Way(made[1], fast=made[0])
        if len(types) > MOST_FEEDS:
            return Way(self._slow)
        if id(served) not in self._shared:
            made = self._make(native, types)
            if made is None:
                return Way(self._slow)
            self._shared[id(served)] = served, *made
        _, entry, function = self._shared[id(served)]
        return Way(function, native.pointing(entry, types, fetched.places))

    def _make(self, native: NativeRunner, types: Sequence[TensorType]) -> tuple[FastEntry, Callable[..., Any]] | None:
        """An entry for arrays of these types, and the function that puts its results into the nest."""
        fetched, call = self._fetched, self._slow
        flat, missed = fetched.is_single or fetched.is_flat, object()
        slow = call if flat else lambda *arrays, out=None: missed
        fast = native.entry(types, fetched.places, fetched.is_single, slow, fetched.kind if fetched.is_flat else None)
        if fast is None or flat:
            return None if fast is None else (fast, fast.function)
        entry, nest, pack = fast.function, fetched.nest, fetched.pack

        def packed(*arrays: Any, out: Any = None, **named: Any) -> Any:
            if named:
                return call(*arrays, out=out, **named)
            if out is None:
                results = entry(*arrays)
                return call(*arrays) if results is missed else pack(results)
            results = entry(*arrays, out=flatten_like(nest, out, "out"))
            return call(*arrays, out=out) if results is missed else out

        return fast, packed
