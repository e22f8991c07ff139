"""The executable: fetches and feeds bound once, called often.

Input: a compiler, a nest of fetches, the fed tensors in the order of the call, options. Output: a callable from
arrays to the same nest of arrays. For each new combination of sizes it asks the compiler for another program.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from staticgrad.base import config, files, nests
from staticgrad.base.boundary import boundary, end_at_user
from staticgrad.base.errors import FeedError, GraphError, StaticGradError, refuse_copies
from staticgrad.base.extents import largest
from staticgrad.base.recent import KEPT_PROGRAMS
from staticgrad.base.tables import abridged, byte_text
from staticgrad.base.types import Shape, Symbol, TensorType, sizes
from staticgrad.graph.graph import Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.graph.warned import warn_of_sizes
from staticgrad.runtime.export.source import ExportSource
from staticgrad.runtime.parts import vectorcall
from staticgrad.runtime.parts.foreign import as_numpy
from staticgrad.runtime.running.binding import as_arrays, bind_sizes, check_out, known_symbols, types_of
from staticgrad.runtime.running.fetches import filled, flatten_like, packer
from staticgrad.runtime.session.compiler import Chosen, Compiler

VIEW_HEIGHT = 800  # pixels, in a notebook

if TYPE_CHECKING:
    from staticgrad.compiler.machine.target import Target
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.compiler.prices import Price
    from staticgrad.compiler.program.program import Program
    from staticgrad.graph.html.markup import Picture
    from staticgrad.runtime.callers.cfunction import CFunction
    from staticgrad.runtime.callers.cfunction_text import SignatureName
    from staticgrad.runtime.export.options import Format, Optimize
    from staticgrad.runtime.export.report import ExportReport
    from staticgrad.runtime.measured.profile import Profile
    from staticgrad.runtime.measured.reports import CostReport, MemoryReport
    from staticgrad.runtime.running.native import FastEntry, NativeRunner
    from staticgrad.runtime.running.runner import Runner

Level = Literal["graph", "kernels", "llvm", "asm"]
Shapes = tuple[tuple[int, ...], ...]
MANY_SIZES = 5  # that have programs of their own, though they are open: from then on it is warned of
MOST_FEEDS = 256  # of a fast entry that serves many sizes
LEVELS: tuple[Level, ...] = ("graph", "kernels", "llvm", "asm")


class Executable(vectorcall.Forwarding):
    """A compiled computation. ``exe(*arrays)`` runs it; ``exe(*arrays, out=nest)`` writes results into given arrays.

    Arrays are given in the order of the feeds that it was compiled for and come back in the nest of its fetches, None
    in the place of ops; where ``out`` has None for a tensor, a fresh array is put. May be called from several threads.

    Fed arrays stay the caller's: they are read until the call returns, and never written. Results are fresh arrays that
    own their memory and that nothing later changes; memory of results that are no longer held is recycled
    (``runtime.parts.results``). Arrays given as ``out`` stay the caller's, too. What a program works in is the
    executable's.

    Tensors of PyTorch and other arrays that have DLPack's protocol are read, and as ``out`` written, where they lie.
    ``exe(…)`` is, where possible, a function in machine code (``runtime.parts.entry``) for the sizes of the latest
    program, called without a detour (``runtime.parts.vectorcall``); what that does not know comes back to ``_call``.

    Raises:
        FeedError: (when called) a wrong number of arrays, a wrong shape or dtype, an ``out`` that results can't be
            written to.

    Example:
        >>> x = sg.placeholder((2,))
        >>> exe = sg.Session().compile([x * 2, x * 10], x)
        >>> exe([1.0, 2.0])
        [array([2., 4.], dtype=float32), array([10., 20.], dtype=float32)]
        >>> results = [np.empty(2, np.float32), None]
        >>> doubled, tenfold = exe([1.0, 2.0], out=results)
        >>> doubled is results[0], doubled
        (True, array([2., 4.], dtype=float32))
    """

    __slots__ = {
        **dict.fromkeys(
            ("__call__", "__weakref__", "_compiler", "_entries", "_exact", "_fast", "_fixed", "_latest", "_leaves")
        ),
        **dict.fromkeys(("_list", "_made", "_options", "_pack", "_places", "_plain", "_points", "_runners", "_shared")),
        **dict.fromkeys(("_single", "_tensors")),
        "feeds": "The tensors that are fed, in the order of the arrays.",
        "fetches": "The nest of tensors and ops whose values a call gives.",
        "session": "The session whose state it reads and writes.",
    }

    __reduce_ex__ = refuse_copies(
        "an executable", "compile it again: compiled programs are kept on disk (sess.compile)"
    )

    def __init__(
        self,
        compiler: Compiler,
        fetches: Any,
        leaves: Sequence[Tensor | Node],
        feeds: Sequence[Tensor],
        options: CompileOptions,
        session: object,
    ) -> None:
        """Executables are made by ``sess.compile``."""
        self.session: Any = session  # for users: nothing here reads it
        self._compiler = compiler
        self._options = options
        self.fetches = nests.map(lambda leaf: leaf, fetches)  # the caller may change the containers later
        self.feeds = tuple(feeds)
        self._leaves = tuple(leaves)
        self._tensors: tuple[Tensor, ...] = tuple({id(x): x for x in leaves if isinstance(x, Tensor)}.values())
        places = {id(x): i for i, x in enumerate(self._tensors)}
        self._places = [places.get(id(leaf), -1) for leaf in leaves]
        self._plain = self._places == list(range(len(self._tensors)))  # results are the leaves, one for one
        self._runners: dict[Shapes, Runner] = {}
        self._entries: dict[Shapes, Callable[..., Any]] = {}
        self._shared: dict[int, tuple[Runner, FastEntry, Callable[..., Any]]] = {}  # by programs that serve many sizes
        self._points: dict[Shapes, Callable[[], bool]] = {}
        self._fast: dict[Shapes, FastEntry] = {}  # of programs for these sizes alone
        self._latest: Runner | None = None
        self._fixed: frozenset[Symbol] = frozenset()
        self._made: dict[Shapes, Chosen] = {}
        self._exact: dict[Shapes, None] | None = {}  # shapes whose sizes had to be known; None once that was warned of
        self._single = isinstance(fetches, Tensor)
        flat = type(fetches) is list and len(fetches) == len(leaves)
        self._list = flat and all(a is b for a, b in zip(fetches, leaves, strict=True))
        self._pack = packer(self.fetches)
        self.__call__ = self._call

    def _prepare(self, shapes: Sequence[Shape]) -> None:
        """Compile for these shapes now if every size in them is a number."""
        types = types_of(self.feeds, shapes).values()
        self._fixed = known_symbols(self.feeds, shapes)
        if all(t.static for t in types):
            self._runner(tuple(sizes(t.shape) for t in types))

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, *values: Any, out: Any = None, **named: Any) -> Any:
        """The implementation of ``exe(…)`` in Python: any kind of feeds, any sizes."""
        try:
            if named:
                raise TypeError(f"an executable has no {', '.join(map(repr, named))}: {self._given_in_order()}")
            arrays = self._given(values)
            shapes = tuple([array.shape for array in arrays])
            runner = self._runner(shapes)
            if any(map(operator.is_not, arrays, values)):
                # Now they may be what the fast entry knows; if not, it comes back with arrays that need no conversion.
                return self.__call__(*arrays) if out is None else self.__call__(*arrays, out=out)
            if vectorcall.IS_FREE_THREADED and shapes in self._fast:
                self._fast[shapes].widen()
            if out is None:
                results = self._spread(runner.run(arrays), None)
                return results[0] if self._single else self._pack(results)
            outs = [out] if self._single else flatten_like(self.fetches, out, "out")
            lying = self._out_arrays(outs)
            results = self._spread(self._run_out(runner, arrays, lying), lying)
            results = [result if given is None else given for given, result in zip(outs, results, strict=True)]
            return filled(self.fetches, out, iter(results))
        except Exception as error:
            end_at_user(error)
            raise

    def _given(self, values: Sequence[Any]) -> list[Array]:
        """The arrays that are fed, in a form that the program can read."""
        self._compiler.store.check_open()
        if len(values) != len(self.feeds) or (len(values) == 1 and isinstance(values[0], dict)):
            if len(values) == 1 and isinstance(values[0], Mapping):
                raise FeedError(f"expected arrays, actual a dict: {self._given_in_order()}")
            names = ", ".join(repr(x.name) for x in self.feeds) or "none"
            missing = self.feeds[len(values) :]
            raise FeedError(
                f"expected {len(self.feeds)} arrays (for {names}), actual {len(values)}",
                source=missing[0].source if missing else None,
            )
        return as_arrays(self.feeds, values)

    def _given_in_order(self) -> str:
        """A text for messages: how the executable is called."""
        names = ", ".join(x.name for x in self.feeds)
        return (
            f"it is called with arrays in the order of its feeds, exe({names}); sess.run(fetches, feeds) takes a dict"
        )

    def _out_arrays(self, outs: Sequence[Any]) -> list[Any]:
        """Arrays over the memory of what is given as ``out``, where it is no array and has such memory."""
        found = []
        for place, given in zip(self._places, outs, strict=True):
            array = None
            if given is not None and place >= 0 and not isinstance(given, np.ndarray):
                x = self._tensors[place]
                array = as_numpy(given, f"out for {x.name!r}", x.source)
            found.append(given if array is None else array)
        return found

    def _run_out(self, runner: Runner, arrays: Sequence[Array], outs: Sequence[Any]) -> list[Array]:
        leaves = [(place, given) for place, given in zip(self._places, outs, strict=True)]
        for place, given in leaves:
            if place < 0 and given is not None:
                raise FeedError("out: an op has no result; expected None in its place")
        kept = [(place, given) for place, given in leaves if place >= 0]
        check_out(
            [given for _, given in kept],
            [runner.types[place] for place, _ in kept],
            [self._tensors[place] for place, _ in kept],
            arrays,
        )
        first: list[Array | None] = [None] * len(self._tensors)
        for place, given in reversed(kept):
            first[place] = given
        return runner.run(arrays, first)

    def _spread(self, results: Sequence[Array], outs: Sequence[Any] | None) -> list[Array | None]:
        """A result for each leaf: None for ops, an array of its own for each mention of a tensor."""
        if self._plain:
            return list(results)
        spread: list[Array | None] = []
        used: set[int] = set()
        for leaf, place in enumerate(self._places):
            if place < 0:
                spread.append(None)
                continue
            value = results[place]
            given = None if outs is None else outs[leaf]
            if given is not None and given is not value:
                given[...] = value
                value = given
            elif place in used and given is None:
                value = value.copy()
            used.add(place)
            spread.append(value)
        return spread

    def _runner(self, shapes: Shapes) -> Runner:
        runner = self._runners.get(shapes) or self._compile(shapes)
        if runner is not self._latest:
            self._latest = runner
            point = self._points.get(shapes)
            self.__call__ = self._entries.get(shapes, self._call) if point is None or point() else self._call
        return runner

    def _start(self) -> None:
        from staticgrad.runtime.parts.entry import forward_address

        vectorcall.start(self, forward_address(), _SLOT)

    def _compile(self, shapes: Shapes) -> Runner:
        bind_sizes(self.feeds, shapes)
        return self._compiler.lock.exclusive(self._compile_now, shapes, types_of(self.feeds, shapes))

    def _compile_now(self, shapes: Shapes, feeds: Mapping[Tensor, TensorType]) -> Runner:
        made = self._compiler.runner(self._leaves, self._tensors, feeds, self._options, self._fixed)
        runner = made.runner
        if len(self._runners) >= KEPT_PROGRAMS:
            oldest = next(iter(self._runners))
            for known in (self._runners, self._entries, self._fast, self._points, self._made):
                known.pop(oldest, None)
        self._made[shapes] = made
        self._note(made, shapes)
        types = tuple(feeds.values())
        if made.served is None:
            fast: list[FastEntry] = []
            entry = self._entry(runner, types, fast)
            self._fast.update((shapes, one) for one in fast)
        else:
            entry = self._sized_entry(made.served, runner, types, shapes)
        self._entries[shapes] = entry
        if entry != self._call:
            self._start()
        self._runners[shapes] = runner
        return runner

    def _note(self, made: Chosen, shapes: Shapes) -> None:
        """Warn once where sizes go on needing programs of their own."""
        if not made.refused or self._exact is None:
            return
        self._exact[shapes] = None
        if len(self._exact) >= MANY_SIZES:
            warn_of_sizes(self.feeds, made.refused, list(self._exact))
            self._exact = None

    def _sized_entry(
        self, served: Runner, runner: Runner, types: Sequence[TensorType], shapes: Shapes
    ) -> Callable[..., Any]:
        """``_entry`` of a program that serves many sizes: one, which is pointed at those of each call."""
        native = self._as_native(runner)
        if native is None or len(types) > MOST_FEEDS:
            return self._call
        if id(served) not in self._shared:
            made: list[FastEntry] = []
            function = self._entry(runner, types, made)
            if not made:
                return self._call
            self._shared[id(served)] = served, made[0], function
        _, fast, function = self._shared[id(served)]
        self._points[shapes] = native.pointing(fast, types, self._places)
        return function

    def _entry(self, runner: Runner, types: Sequence[TensorType], made: list[FastEntry]) -> Callable[..., Any]:
        """The fastest function that does what ``_call`` does for arrays of these types; what it stands on is added to
        ``made``."""
        mentioned = [place for place in self._places if place >= 0]
        native = self._as_native(runner)
        if native is None or len(set(mentioned)) != len(mentioned):
            return self._call
        missed = object()
        flat = self._single or self._list
        slow = self._call if flat else lambda *arrays, out=None: missed
        fast = native.entry(types, self._places, self._single, slow)
        if fast is None:
            return self._call
        made.append(fast)
        entry = fast.function
        if flat:
            return entry
        fetches, pack, call = self.fetches, self._pack, self._call

        def packed(*arrays: Any, out: Any = None, **named: Any) -> Any:
            if named:
                return call(*arrays, out=out, **named)
            if out is None:
                results = entry(*arrays)
                return call(*arrays) if results is missed else pack(results)
            results = entry(*arrays, out=flatten_like(fetches, out, "out"))
            return call(*arrays, out=out) if results is missed else out

        return packed

    # -- from C -------------------------------------------------------------------------------------------------------

    @boundary
    def cfunc(self, signature: SignatureName = "logp", *, wrt: Tensor | None = None) -> CFunction:
        """The program as a C function that needs no Python: for samplers, solvers and optimizers that call one very
        often, from any thread.

        ==========  ===================================================================  =============================
        signature   C                                                                    the program
        ==========  ===================================================================  =============================
        "slots"     ``int(const void *const *in, void *const *out, void *user)``         any; in and out are addresses
                                                                                         of feeds and fetches, in order
        "logp"      ``int(size_t n, const double *x, double *grad, double *value,        fetches a float64 number, and
                    void *user)``; grad may be null                                      perhaps its gradient, by one
                                                                                         float64 feed of n elements
        "nlopt"     ``double(unsigned n, const double *x, double *grad, void *user)``    the same
        "vector"    ``int(size_t n, size_t m, const double *x, double *y, void *user)``  from n float64 numbers to m
        "ode"       ``void(double t, const double *u, double *du, const double *p)``     is fed t, u and perhaps p, and
                                                                                         fetches du of u's size
        "scalar"    ``double(double, void *)``                                           from one float64 number to one
        "scalars"   ``double(int, double *, void *)``                                    from one float64 feed, or from
                                                                                         float64 numbers, to one
        ==========  ===================================================================  =============================

        Where "logp", "nlopt", "vector", "scalar" and "scalars" have a further feed, ``user`` is its address; of several
        it is the address of a table of their addresses, in order. Open sizes are those of the latest call.

        Args:
            wrt: the feed that is x, and by which the gradient of a lone number is derived; default: the first.

        Raises:
            GraphError: a program that writes variables or calls Python, or that the signature does not fit; open sizes
                before the first call.
            StaticGradError: the reference backend has no machine code.

        Example:
            >>> x = sg.placeholder((3,), sg.float64, name="x")
            >>> logp = sg.Session().compile(-0.5 * sg.sum(x * x), x).cfunc("logp")
            >>> at, slope, value = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(1)
            >>> logp.ctypes(3, *(array.ctypes.data for array in (at, slope, value)), None)
            0
            >>> value, slope
            (array([-7.]), array([-1., -2., -3.]))
        """
        from staticgrad.runtime.callers.cfunction import CFunction, form_of

        with_gradient = self._with_gradient(signature, wrt, "cfunc")
        if with_gradient is not None:
            return with_gradient.cfunc(signature, wrt=wrt)
        types = self._latest_types("cfunc")
        binary = self._compiler.independent(self._wanted(), types, self._options)
        feeds, fetched = list(types.items()), self._fetched()
        form, results = form_of(signature, binary.interface, feeds, fetched, wrt)
        return CFunction(self, binary, self._compiler.store, self._options.target, form, feeds, results)

    def _with_gradient(self, signature: str, wrt: Tensor | None, caller: str) -> Executable | None:
        """The executable of a lone number and its gradient, where a signature wants one; None elsewhere."""
        from staticgrad.runtime.callers.cfunction import GRADIENTS

        if config.get("BACKEND") == "reference":
            raise StaticGradError("the reference backend compiles nothing: there is no function for C")
        if signature not in GRADIENTS or len(self._leaves) != 1 or not self._tensors:
            return None
        from staticgrad.compiler.autodiff.reverse import gradients

        (value,), x = self._tensors, self.feeds[0] if wrt is None and self.feeds else wrt
        slopes = gradients(value, [x])
        shapes = {feed: t.shape for feed, t in self._latest_types(caller).items()}
        found: Executable = self.session.compile([value, *slopes], shapes)
        return found

    def _wanted(self) -> list[Tensor | Node]:
        """The tensors and ops whose values a program computes, each once."""
        ops = {id(leaf): leaf for leaf in self._leaves if isinstance(leaf, Node)}
        return [*self._tensors, *ops.values()]

    def _fetched(self) -> list[tuple[Tensor, int]]:
        """The tensors that are fetched, as often as they are mentioned, and which result each is."""
        return [(self._tensors[place], place) for place in self._places if place >= 0]

    @boundary
    def export(
        self,
        path: str | PathLike[str],
        format: Format = "object",
        target: str | Sequence[str] | None = None,
        name: str | None = None,
        optimize: Optimize = "speed",
        *,
        signature: SignatureName | Literal["casadi"] = "slots",
        wrt: Tensor | None = None,
        initial_state: Literal["data", "file"] = "data",
        threads: int = 0,
    ) -> ExportReport:
        """Write the program to files that run where there is no compiler and no Python: ``sg.export`` of one function.

        The function is called ``name``, by default as the file. Sizes that are open are those of the latest call, and
        the state is that of the session now.

        Args:
            signature: the function's type, of those that ``cfunc`` has; ``"slots"`` is given its memory. ``"casadi"``
                is CasADi's external function, with the Jacobian, which is declared in the graph for that.
            wrt: the feed that is x, as ``cfunc`` has it.

        See ``sg.export`` for the other arguments, and for what is raised.

        Example:
            >>> import pathlib, tempfile
            >>> x, w = sg.placeholder((3,), name="x"), sg.Variable([1.0, 2.0, 3.0], name="w")
            >>> y = sg.Session().compile({"y": x * w}, x)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     report = y.export(pathlib.Path(folder) / "scale.o")
            ...     print(*(file.name for file in report.files))
            scale.o scale.h
        """
        from staticgrad.runtime.export.export import export_one
        from staticgrad.runtime.export.options import ExportOptions

        options = ExportOptions(format, optimize, signature, wrt, initial_state, threads)
        return export_one(path, self._export_source(), target, name, options)

    def _export_source(self) -> ExportSource:
        """The part of it that exports need."""
        compiler, compile_, fetched = self._compiler, self.session.compile, self._fetched()
        types = functools.partial(self._latest_types, "export")

        def program(target: Target, threads: int) -> Program:
            return compiler.unloaded(self._wanted(), types(), replace(self._options, target=target, workers=threads))

        def with_gradient(signature: str, wrt: Tensor | None) -> ExportSource:
            return (self._with_gradient(signature, wrt, "export") or self)._export_source()

        def compiled(fetches: Sequence[Tensor], feeds: Sequence[Tensor]) -> ExportSource:
            made: Executable = compile_(fetches, feeds)
            return made._export_source()

        has_ops = len(fetched) != len(self._leaves)
        return ExportSource(
            self.feeds, self.fetches, fetched, has_ops, compiler.store, types, program, with_gradient, compiled
        )

    def _latest_shapes(self) -> Shapes | None:
        """The shapes of the feeds of the latest program; None before there was one."""
        return next((known for known, runner in self._runners.items() if runner is self._latest), None)

    def _latest_types(self, caller: str) -> dict[Tensor, TensorType]:
        """The types of the feeds of the latest program; before there was one those that are declared."""
        shapes = self._latest_shapes()
        if shapes is None and all(x.type.static for x in self.feeds):
            return {x: x.type for x in self.feeds}
        if shapes is None:
            raise GraphError(
                f"{caller}: the sizes of the feeds are open and there was no call yet: say them when you compile, as in"
                " sess.compile(fetches, {x: (100,)})"
            )
        return dict(types_of(self.feeds, shapes))

    # -- reports ------------------------------------------------------------------------------------------------------

    @property
    @boundary
    def memory(self) -> MemoryReport:
        """The memory plan of the latest program, with ``arena_bytes``, ``lower_bound_bytes`` (most bytes alive at once)
        and ``buffers``; ``str()`` is a table with a line for each buffer, ``plot(path)`` draws it. Its first line names
        the sizes that the feeds of the latest call have bound.

        Example:
            >>> x = sg.placeholder((100, 100))
            >>> exe = sg.Session().compile(sg.sort(x @ x) @ x, x)
            >>> exe.memory.arena_bytes >= exe.memory.lower_bound_bytes > 0
            True
            >>> print(exe.memory)
            arena ... KiB, ... KiB of it scratch, at least ... KiB alive at once
            buffer             bytes  offset  steps   why                      source
            ...
            dot                40000  ...  [0, 2)  read by sort_rows        ...
            ...
        """
        from staticgrad.runtime.measured.reports import MemoryReport

        program, runner = self._program(), self._latest
        assert runner is not None
        prices = functools.cache(functools.partial(self._prices, runner))
        return MemoryReport(program.arena_bytes, program.lower_bound_bytes, program.buffers, self._bound, prices)

    @property
    def _bound(self) -> str:
        """The open sizes of the feeds that the latest program is for, and why not for more of them: ``batch from 33 to
        64, steps = 10 (the number of steps is needed)``."""
        shapes = self._latest_shapes()
        if shapes is None:
            return ""
        made, bindings = self._made[shapes], bind_sizes(self.feeds, shapes)
        why = {symbol: error for error in made.refused for symbol in error.symbols}
        said = []
        for symbol, number in bindings.items():
            if symbol in made.ranges:
                said.append("{} from {} to {}".format(symbol, *made.ranges[symbol]))
            else:
                said.append(f"{symbol} = {number}{f' ({why[symbol]})' if symbol in why else ''}")
        return ", ".join(said)

    def _prices(self, runner: Runner) -> tuple[Price, ...]:
        from staticgrad.compiler.prices import program_prices

        shapes = next(known for known, other in self._runners.items() if other is runner)
        graph = self._compiler.store.graph
        return program_prices(graph, self._leaves, types_of(self.feeds, shapes), self._options)

    @property
    @boundary
    def cost(self) -> CostReport:
        """Floating-point operations (``flops``) and bytes moved (``bytes``) by each kernel of the latest program
        (``kernels``), and in all; ``str()`` is a table.

        Example:
            >>> x = sg.placeholder((64, 64))
            >>> exe = sg.Session().compile(x @ x, x)
            >>> exe.cost.flops, exe.cost.bytes
            (524288, 32768)
        """
        from staticgrad.runtime.measured.reports import CostReport

        return CostReport(largest(self._program().costs), self._bound)

    @boundary
    def profile(self, *arrays: Any) -> Profile:
        """Measure how long each kernel takes on these arrays: a program that notes the time after each step is
        compiled and run repeatedly, on a copy of the session's state.

        Raises:
            FeedError: as a call.
            StaticGradError: the reference backend has no kernels.

        Example:
            >>> x = sg.placeholder((100, 100))
            >>> exe = sg.Session().compile(x @ x, x)
            >>> profile = exe.profile(np.ones((100, 100), np.float32))
            >>> profile.seconds > 0.0
            True
            >>> profile.save("trace.json")
        """
        from staticgrad.runtime.measured.profile import profile

        given = self._given(arrays)
        if config.get("BACKEND") == "reference":
            raise StaticGradError("the reference backend compiles nothing: there are no kernels to time")
        shapes = [array.shape for array in given]
        bind_sizes(self.feeds, shapes)
        types = types_of(self.feeds, shapes)
        ranges = self._compiler.runner(self._leaves, self._tensors, types, self._options, self._fixed).ranges
        runner = self._compiler.lock.exclusive(self._compiler.timed_runner, self._leaves, types, self._options, ranges)
        return profile(runner, given)

    @boundary
    def view(self, path: str | PathLike[str] | None = None, profile: Profile | None = None) -> Picture | None:
        """Write one HTML file that shows the latest program in a browser, without a server: its kernels as a graph, its
        buffers over time, your source lines, prices, and the profile if one is given (``exe.profile(*arrays)``).

        Args:
            path: the file. Without it the page comes back, and a notebook shows it as the last value of a cell.
            profile: how long each kernel takes.

        Example:
            >>> x = sg.placeholder((4,), name="x")
            >>> step = sg.Session().compile(sg.exp(x).sum(), x)
            >>> step.view("step.html")  # doctest: +SKIP
        """
        from staticgrad.runtime.measured.view import page

        place = None if path is None else files.path_of(path)
        names = [x.name for x in self.feeds], [x.name for x in self._tensors]
        title = ", ".join(leaf.name for leaf in self._leaves)
        text = page(self._program(), *names, title=title, prices=self.memory.prices, profile=profile)
        if place is None:
            from staticgrad.graph.html.markup import Picture, framed

            return Picture(framed(text, VIEW_HEIGHT))
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
        return None

    @boundary
    def text(self, level: Level = "graph") -> str:
        """The latest program as text: ``"graph"``, ``"kernels"``, ``"llvm"`` or ``"asm"``.

        Example:
            >>> x = sg.placeholder((2,), name="x")
            >>> exe = sg.Session().compile(sg.exp(x), x)
            >>> print(exe.text())
            %x = placeholder() Source : float32[2]
            %exp = exp(%x) : float32[2]
            >>> print(exe.text("kernels"))
            0: pointwise exp(feed0, fetch0)  # ...
                for (2,) × ()
                  v0 = load arg0[0 + (1,)] : float32
                  v1 = exp(v0) : float32
                  v2 = store v1 to arg1[0 + (1,)]
                plan: loops 0:2; vectors of ... along 0
        """
        if level not in LEVELS:
            raise StaticGradError(f"text level {level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        if level == "graph":
            from staticgrad.runtime.running.reference import ReferenceRunner

            if isinstance(self._latest, ReferenceRunner):
                return str(self._latest.region.graph)
        program = self._program()
        if level == "asm":
            return self._native().assembly()
        return {"graph": program.graph_text, "kernels": program.kernels_text, "llvm": program.llvm_text}[level]

    @staticmethod
    def _as_native(runner: Runner | None) -> NativeRunner | None:
        from staticgrad.runtime.running.native import NativeRunner

        return runner if isinstance(runner, NativeRunner) else None

    def __repr__(self) -> str:
        feeds = abridged([f"{x.name} {x.type}" for x in self.feeds])
        return f"<executable ({feeds}) -> ({abridged([leaf.name for leaf in self._leaves])}), {self._state}>"

    def _repr_html_(self) -> str:
        from staticgrad.runtime.measured.overview import executable_html

        return executable_html(self.feeds, self._leaves, self._state, lambda: (self.memory, self.cost))

    @property
    def _state(self) -> str:
        """A text on the state of the program, made without compiling it."""
        if self._latest is None:
            return "not compiled yet"
        native = self._as_native(self._latest)
        if native is None:
            return "interpreted"
        bound = self._bound
        return f"arena {byte_text(native.interface.arena_bytes)}{bound and f' for {bound}'}"

    def _native(self) -> NativeRunner:
        from staticgrad.runtime.running.gradients import GradientReader

        runner = self._latest
        if runner is None:
            raise StaticGradError("nothing is compiled yet: the feeds of the first call bind the sizes")
        native = self._as_native(runner.current() if isinstance(runner, GradientReader) else runner)
        if native is None:
            raise StaticGradError("the reference backend compiles nothing: no plan, no costs, no code")
        return native

    def _program(self) -> Program:
        return self._native().program


_SLOT = vectorcall.enable(Executable)
