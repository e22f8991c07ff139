"""The executable: fetches and feeds bound once, called often.

Input: a compiler, a nest of fetches, the fed tensors in the order of the call, options. Output: a callable from
arrays to the same nest of arrays. What it does is done by values of its own: its programs by the shapes of feeds
(``programs``), its ``calls``, the nest of its results (``fetched``), and where they are asked for its reports
(``reporting``) and what is made for callers other than Python (``exporting``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from staticgrad.base import files
from staticgrad.base.boundary import boundary
from staticgrad.base.errors import refuse_copies
from staticgrad.base.types import Shape
from staticgrad.graph.graph import Node, Tensor
from staticgrad.runtime.parts import vectorcall
from staticgrad.runtime.session.calls import Calls
from staticgrad.runtime.session.compiler import Compiler
from staticgrad.runtime.session.fetched import Fetched
from staticgrad.runtime.session.programs import Programs

VIEW_HEIGHT = 800  # pixels, in a notebook

if TYPE_CHECKING:
    from staticgrad.compiler.options import CompileOptions
    from staticgrad.graph.html.markup import Picture
    from staticgrad.runtime.callers.cfunction import CFunction
    from staticgrad.runtime.callers.cfunction_text import SignatureName
    from staticgrad.runtime.export.options import Format, Optimize
    from staticgrad.runtime.export.report import ExportReport
    from staticgrad.runtime.export.source import ExportSource
    from staticgrad.runtime.measured.profile import Profile
    from staticgrad.runtime.measured.reports import CostReport, MemoryReport
    from staticgrad.runtime.measured.setup import SetupReport
    from staticgrad.runtime.scenarios.work import Reduce
    from staticgrad.runtime.session.mapping import Mapping
    from staticgrad.runtime.session.reporting import Level, Reports


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
    program, called without a detour (``runtime.parts.vectorcall``); what that does not know comes back to Python
    (``runtime.session.calls``).

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
        **dict.fromkeys(("__call__", "__weakref__", "_calls", "_mapping", "_programs")),
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
        shapes: Sequence[Shape] | None = None,
    ) -> None:
        """Executables are made by ``sess.compile``. With ``shapes`` of the feeds it is compiled now if all sizes in
        them are numbers."""
        self.session: Any = session
        fetched = Fetched(fetches, leaves)
        self.fetches, self.feeds = fetched.nest, tuple(feeds)
        self._programs = Programs(compiler, fetched, self.feeds, options)
        self._calls = Calls(self, self._programs, self._start)
        self._mapping: Mapping | None = None
        self.__call__ = self._calls.run
        if shapes is not None:
            self._calls.prepare(shapes)

    def _start(self) -> None:
        """Have calls go to ``__call__`` without a detour."""
        from staticgrad.runtime.parts.entry import forward_address

        vectorcall.start(self, forward_address(), _SLOT)

    # -- many scenarios -----------------------------------------------------------------------------------------------

    @boundary
    def map(
        self,
        *arrays: Any,
        reduce: Reduce | None = None,
        block: int | None = None,
        executor: Any = None,
        progress: bool | Callable[[int, int], object] | None = None,
        out: Any = None,
    ) -> Any:
        """Run the program over the scenarios along axis 0 of ``arrays``, on all threads or the workers of an executor.

        Which arrays have scenarios their shapes say. Where arrays have one axis more than their feeds, the program is
        of one scenario: it is run over many at once, as ``sg.vmap`` would. Else those have whose feeds have the open
        first size, ``sg.dim("scenarios")``, say: the program is called with some rows at a time. All other arrays are
        the same for every scenario. Arrays may lie in files (``np.memmap``); a ``range`` serves as numbers of
        scenarios. Memory does not depend on the number of scenarios.

        Sums are taken in float64 (of integers in int64) in a tree that depends on the program and on the number of
        scenarios alone: the same bits come out for any number of threads or workers, any ``block``, and whichever
        worker died meanwhile.

        Args:
            reduce: ``"sum"`` or ``"mean"`` of each result over the scenarios. A result without the axis of scenarios is
                one that the program itself has summed or averaged over the rows of a call: ``"sum"`` adds these up,
                ``"mean"`` weighs each by its rows. Default: results of all scenarios along axis 0.
            block: about how many scenarios a thread or worker is given at a time, rounded up; default: chosen.
            executor: who computes: anything with ``submit`` as in ``concurrent.futures`` (pools of processes,
                ``mpi4py.futures``, loky, Dask's client), or a function that makes one, again if it breaks. Workers
                load the program with NumPy alone. Default: the threads of the session.
            progress: True for a bar (by tqdm where it is installed), or a function of the numbers of scenarios done and
                in all, which is called after each block.
            out: the nest of arrays, perhaps in files, into which results are written that are not reduced.

        Raises:
            FeedError: a wrong shape or dtype, no array with scenarios, different numbers of them.
            FetchError: an op is fetched, or a result lacks the axis of scenarios and ``reduce`` is None.
            GraphError: the program writes variables or calls Python.
            StaticGradError: a check of the program failed; the reference backend, which compiles nothing.

        Example:
            >>> spot, vol = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
            >>> z = sg.placeholder((), sg.float64)  # of one scenario
            >>> payoff = sg.maximum(spot * sg.exp(vol * z - vol * vol / 2) - 100.0, 0.0)
            >>> exe = sg.Session().compile([payoff, *sg.gradients(payoff, [spot, vol])], [spot, vol, z])
            >>> zs = np.random.default_rng(0).normal(size=100_000)
            >>> [float(value.round(1)) for value in exe.map(100.0, 0.2, zs, reduce="mean")]  # price, delta, vega
            [8.0, 0.5, 39.6]
            >>> exe.map(100.0, 0.2, zs)[0].shape
            (100000,)
        """
        if self._mapping is None:
            from staticgrad.runtime.session.mapping import Mapping

            self._mapping = Mapping(self._programs)
        return self._mapping.run(arrays, reduce, block, executor, progress, out)

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
        from staticgrad.runtime.session import exporting

        made = self._with_gradient(signature, wrt, "cfunc")
        return exporting.c_function(made._programs, made, signature, wrt)

    def _with_gradient(self, signature: str, wrt: Tensor | None, caller: str) -> Executable:
        """The executable of a lone number and its gradient where a signature wants both, elsewhere this one."""
        from staticgrad.runtime.session import exporting

        asked = exporting.with_gradient(self._programs, signature, wrt, caller)
        made: Executable = self if asked is None else self.session.compile(*asked)
        return made

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
                is CasADi's external function, with its sparse first and second derivatives, as far as there are any,
                which are declared in the graph for that.
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
        from staticgrad.runtime.session import exporting

        compile_ = self.session.compile

        def with_gradient(signature: str, wrt: Tensor | None) -> ExportSource:
            return self._with_gradient(signature, wrt, "export")._export_source()

        def compiled(fetches: Sequence[Tensor], feeds: Sequence[Tensor]) -> ExportSource:
            made: Executable = compile_(fetches, feeds)
            return made._export_source()

        return exporting.export_source(self._programs, with_gradient, compiled)

    # -- reports ------------------------------------------------------------------------------------------------------

    @property
    def _reports(self) -> Reports:
        from staticgrad.runtime.session.reporting import Reports

        return Reports(self._programs)

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
        """
        return self._reports.memory()

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
        return self._reports.cost()

    @property
    @boundary
    def setup(self) -> SetupReport:
        """The seconds of each phase of the set-up, and how many programs were compiled or found; ``str()`` is a table.

        Example:
            >>> x = sg.placeholder((64, 64))
            >>> exe = sg.Session().compile(x @ x, x)
            >>> exe.setup.compiled + exe.setup.found_on_disk, exe.setup.seconds > 0.0
            (1, True)
            >>> "machine code" in exe.setup.phases or exe.setup.found_on_disk == 1
            True
        """
        return self._programs.setup()

    @boundary
    def ready(self) -> bool:
        """True if the next call runs optimised code. Until that is made, which a thread does beside the calls, the
        program runs code that was made quickly; results are the same to the bit.

        Example:
            >>> x = sg.placeholder((64, 64))
            >>> exe = sg.Session().compile(x @ x, x)
            >>> exe.wait()
            >>> exe.ready()
            True
        """
        return self._programs.is_ready

    @boundary
    def wait(self) -> None:
        """Return when ``ready``: before the first call that is to be fast, such as one that is timed.

        Raises:
            RuntimeError: LLVM could not make it; what was made quickly goes on running.

        Example:
            >>> x = sg.placeholder((8, 8))
            >>> exe = sg.Session().compile(sg.linalg.inv(x), x)
            >>> exe.wait()
        """
        self._programs.wait()

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
        return self._reports.profile(self._calls.given(arrays))

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
        place = None if path is None else files.path_of(path)
        text = self._reports.page(profile)
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
        return self._reports.text(level)

    def __repr__(self) -> str:
        return self._reports.summary()

    def _repr_html_(self) -> str:
        return self._reports.html()


_SLOT = vectorcall.enable(Executable)
