"""The session: state for a graph, and the programs that run on it.

Input: fetches and feeds by tensor. Output: arrays. Programs are compiled when first needed and kept in an LRU
cache, by graph version, fetches, feeds with their types, and the session's options. What a session has are values of
their own: its state (``runtime.running.state``), its ``compiler``, the programs of its ``tapes``, the ``inspection`` of
new ones; ``checks`` are those of what it is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from staticgrad.base import config, hints
from staticgrad.base.boundary import boundary, end_at_user
from staticgrad.base.errors import refuse_copies
from staticgrad.base.recent import KEPT_PROGRAMS, Recent
from staticgrad.base.types import Precision, Shape
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.naming import Holder, Unmatched
from staticgrad.graph.optable import Array
from staticgrad.runtime.running.binding import as_array, as_arrays, as_gradient
from staticgrad.runtime.running.fetches import leaves_of, structure_of
from staticgrad.runtime.running.state import CLOSED, SessionState
from staticgrad.runtime.session.checks import (
    check_adds_up,
    check_budget,
    check_precision,
    check_sizes,
    checked_feeds,
    chosen_graph,
    chosen_seed,
    chosen_threads,
    declared_feeds,
    key_of,
    key_of_gradient,
    keys_in_file,
)
from staticgrad.runtime.session.compiler import Compiler
from staticgrad.runtime.session.executable import Executable
from staticgrad.runtime.session.inspection import Inspection
from staticgrad.runtime.session.tapes import Tapes

if TYPE_CHECKING:
    from staticgrad.runtime.callers.cfunction import CFunction
    from staticgrad.runtime.callers.cfunction_text import SignatureName
    from staticgrad.runtime.session.tape import Tape

K = TypeVar("K")


class Session(metaclass=hints.Answering):
    """Variables, gradients and compiled programs of one graph.

    Args:
        graph: default: the current one.
        num_threads: how many threads a program may use; default: ``STATICGRAD_THREADS``, else the cores this process
            may use. Results do not depend on it.
        seed: from which variables are initialised and random numbers follow.
        check_numerics: raise ``NumericsError`` at the first op that makes a NaN or an infinity.
        matmul_precision: of products and convolutions of float32: ``"highest"`` computes them in float32; ``"high"``
            allows ways of computing that lose a few of its digits, ``"medium"`` also rounds operands to bfloat16.
            Either is taken where it is faster on this processor. float64 is always computed as it is.
        sizes: for what a program is compiled where sizes are open when declared: ``"ranges"``, for all sizes of a range
            (``sg.dim`` says which those are), or ``"exact"``, for the sizes of a call.

    May be used from several threads: runs that write state take turns.

    Ctrl-C, or any signal handler that raises, ends a long run of the main thread between two steps, turns of a loop or
    chunks of a kernel, with state as before the run; a run that has begun to write variables or gradients ends first.
    A process that is forked has the session as it was between two runs; where another thread was writing it, the child
    refuses it.

    Example:
        >>> x = sg.placeholder((2,))
        >>> w = sg.Variable([1.0, 2.0])
        >>> with sg.Session(num_threads=1, seed=0) as sess:
        ...     sess.run(sg.sum(w * x), {x: [10.0, 100.0]})
        array(210., dtype=float32)
    """

    __reduce_ex__ = refuse_copies(
        "a session",
        "make another one on the graph, and take the variables over by sess.save and sess.restore, or with"
        " module.state_dict(sess)",
    )

    @boundary
    def __init__(
        self,
        graph: Graph | None = None,
        *,
        num_threads: int | None = None,
        seed: int = 0,
        check_numerics: bool = False,
        matmul_precision: Precision = "highest",
        sizes: Literal["ranges", "exact"] = "ranges",
    ) -> None:
        check_sizes(sizes)
        config.refuse_unknown()
        check_precision(matmul_precision)
        self.num_threads = chosen_threads(num_threads)
        seed = chosen_seed(seed)
        self.graph = chosen_graph(graph)
        self.check_numerics = check_numerics
        self.matmul_precision = matmul_precision
        self.store = SessionState(self.graph, seed)
        self.sizes = sizes
        self.compiler = Compiler(
            self.store, num_threads=self.num_threads, check_numerics=check_numerics, sizes=sizes,
            precision=matmul_precision,
        )  # fmt: skip
        self._executables: Recent[Executable] = Recent(KEPT_PROGRAMS)
        self._tapes = Tapes(self.compiler, check_numerics)
        self._inspection = Inspection(self.store)
        self.graph.looked_up.add(self._executables)

    @property
    def seed(self) -> int:
        """The seed, from which first values of variables and random numbers follow.

        Example:
            >>> sess = sg.Session(seed=7)
            >>> sess.seed
            7
        """
        return self.store.seed

    @property
    def compile_count(self) -> int:
        """The number of programs that the session has compiled so far.

        Example:
            >>> x = sg.placeholder((None,))
            >>> y = x * 2
            >>> sess = sg.Session()
            >>> results = [sess.run(y, {x: values}) for values in ([1.0], [2.0, 3.0], [0.0] * 20)]
            >>> sess.compile_count  # one for the sizes from 1 to 16, one for those from 17 to 32
            2
        """
        return self.compiler.count

    # -- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        self.store.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up programs and refuse every further call. Executables and tapes of the session end with it, and the
        making of optimised code for them. Memory of results that are not held goes back to the system; results that are
        held stay as they are.

        Example:
            >>> sess = sg.Session()
            >>> sess.close()
            >>> sess.run(sg.constant(1.0))
            Traceback (most recent call last):
                ...
            staticgrad.errors.StaticGradError: the session is closed
        """
        from staticgrad.runtime.parts import results

        self.store.closed[0] = CLOSED
        self.compiler.forget()
        self._executables.clear()
        self._tapes.clear()
        results.trim()

    # -- running ----------------------------------------------------------------------------------------------------

    @overload
    def run(self, fetches: Tensor, feeds: Mapping[Tensor, Any] | None = None) -> Array: ...
    @overload
    def run(self, fetches: Node, feeds: Mapping[Tensor, Any] | None = None) -> None: ...
    @overload
    def run(self, fetches: list[Tensor], feeds: Mapping[Tensor, Any] | None = None) -> list[Array]: ...
    @overload
    def run(self, fetches: dict[K, Tensor], feeds: Mapping[Tensor, Any] | None = None) -> dict[K, Array]: ...
    @overload
    def run(self, fetches: Any, feeds: Mapping[Tensor, Any] | None = None) -> Any: ...
    def run(self, fetches: Any, feeds: Mapping[Tensor, Any] | None = None, **named: Any) -> Any:
        """The values of ``fetches``, a nest of tensors and ops of the graph; None in the place of ops.

        Args:
            feeds: arrays by tensor; any tensor may be fed, the graph is cut there. They are read until the call
                returns, and never written.
            named: refused: feeds go by tensor, in one dict.

        Returns:
            The nest of ``fetches`` with fresh, writable arrays that own their memory.

        Raises:
            FetchError, FeedError: not of this graph, a missing placeholder, a wrong shape or dtype.
            BoundsError, NumericsError: found during the run; no state has changed.

        Example:
            >>> x = sg.placeholder((2,), name="x")
            >>> y = x * 10
            >>> sess = sg.Session()
            >>> sess.run({"y": y, "parts": (y[0], y[1])}, {x: [1.0, 2.0]})
            {'y': array([10., 20.], dtype=float32), 'parts': (array(10., dtype=float32), array(20., dtype=float32))}
            >>> sess.run(y + 1, {y: [0.0, 1.0]})
            array([1., 2.], dtype=float32)
        """
        try:
            if named:
                names = ", ".join(map(repr, named))
                raise TypeError(
                    f"Session.run() has no {names}: write sess.run(fetches, feeds) with a dict from tensors to arrays,"
                    " {x: array}"
                )
            fed: Mapping[Tensor, Any] = {} if feeds is None else feeds
            try:
                key = (self.graph.version, structure_of(fetches), tuple(map(id, fed.keys())))
                executable = self._executables.get(key)
            except (AttributeError, TypeError):  # something that can't be part of a key: said below
                key, executable = None, None
            if executable is None:
                self.store.check_open()
                tensors, leaves = tuple(checked_feeds(self.graph, feeds)), leaves_of(fetches)
                note_use = self._inspection.look(leaves, tensors)
                executable = Executable(self.compiler, fetches, leaves, tensors, self.compiler.options(), self)
                self._executables.put(key, executable, note_use)
            return executable(*fed.values())
        except Exception as error:
            end_at_user(error)
            raise

    @boundary
    def compile(
        self,
        fetches: Any,
        feeds: Tensor | Sequence[Tensor] | Mapping[Tensor, Shape] = (),
        *,
        memory_budget: int | float | None = None,
        planning_seconds: float | None = None,
        autotune: bool = False,
        sizes: Literal["ranges", "exact"] | None = None,
        wait: bool = False,
    ) -> Executable:
        """Compile once what shall be called often.

        Args:
            feeds: a tensor or a list of tensors, or a dict from tensor to shape that gives the sizes of ``None``
                dimensions. The executable takes arrays in this order. With all sizes known the program is compiled
                now, else at the first call of each range of sizes.
            memory_budget: bytes that the program's arena (``exe.memory.arena_bytes``) may have, or as a float the part
                of what it needs otherwise. Where that is less, values are computed again instead of being kept, at the
                least cost that is found, and those of loops as with ``sg.scan(…, checkpoint=…)``; they are the same to
                the bit, save those of loops: sums over the turns may be added up in another order.
            planning_seconds: how long a better placement of the buffers may be searched for; default: not at all.
            autotune: whether the program's matrix products are timed in several blockings before it is compiled, on a
                copy of the session's state and on feeds of random floats and zeros of other types; the fastest is taken
                where it is more than 5 % faster than the one that is estimated to be. Results are the same to the bit.
                What was found is kept with the compiled programs. A program that calls Python functions, or that fails
                on such feeds, is compiled as without. Open sizes are compiled for as with ``sizes="exact"``.
            sizes: ``"ranges"`` or ``"exact"``, as the session's; default: what that says. Sizes that are known here are
                those of the program in any case.
            wait: whether its programs are optimised before their first call. Else quickly made code runs until a thread
                has made the optimised one (``exe.ready()``, ``exe.wait()``); results are the same to the bit.

        Raises:
            FetchError, FeedError: not of this graph, doubled, a placeholder that is needed and missing.

        Example:
            >>> x, n = sg.placeholder((None, 2)), sg.placeholder(())
            >>> exe = sg.Session().compile({"sum": sg.sum(x), "power": x**n}, [x, n])
            >>> exe([[1.0, 2.0]], 3)
            {'sum': array(3., dtype=float32), 'power': array([[1., 8.]], dtype=float32)}
        """
        check_budget(memory_budget)
        check_sizes(sizes)
        options = replace(
            self.compiler.options(),
            memory_budget=memory_budget,
            planning_seconds=planning_seconds or 0.0,
            autotune=autotune,
            sizes=self.sizes if sizes is None else sizes,
            tiers=not (wait or autotune),
        )
        self.store.check_open()
        leaves = leaves_of(fetches)
        tensors, shapes = declared_feeds(self.graph, feeds)
        note_use = self._inspection.look(leaves, tensors)
        if note_use is not None:
            note_use()  # how often an executable is called, nothing tells
        return Executable(self.compiler, fetches, leaves, tensors, options, self, shapes)

    def _c_function(
        self, fetches: Any, feeds: Sequence[Tensor], signature: SignatureName, *, wrt: Tensor | None = None
    ) -> CFunction:
        """``exe.cfunc`` of a program of known sizes that is called from C alone: for Python nothing is compiled."""
        self.store.check_open()
        leaves = leaves_of(fetches)
        tensors, _ = declared_feeds(self.graph, feeds)
        self._inspection.look(leaves, tensors)
        executable = Executable(self.compiler, fetches, leaves, tensors, self.compiler.options(), self)
        return executable.cfunc(signature, wrt=wrt)

    # -- tapes ------------------------------------------------------------------------------------------------------

    @boundary
    def forward(
        self,
        outputs: Any,
        feeds: Mapping[Tensor, Any] | None = None,
        *,
        backward_order: Sequence[Tensor | Sequence[Tensor]] | None = None,
        memory_budget: int | float | None = None,
    ) -> Tape:
        """Run the forward of ``outputs`` (a tensor or a nest of them) and keep what their backwards need.

        Args:
            backward_order: the order in which backwards of the outputs will be called; each value is then kept
                exactly until the last of them that reads it, and no ``retain_graph`` is needed.
            memory_budget: bytes that the kept values (``tape.memory.saved_bytes``) may not exceed, or as a float the
                part of what would be kept otherwise; where they would, as much as that takes is computed again in the
                backward, loops too. A budget that cannot be met is warned of (``MemoryBudgetWarning``), and the least
                is kept. With a budget programs are compiled for the sizes of the call alone.

        Programs serve ranges of the sizes that were open when declared, as those of ``run`` do. Of such a tape values
        are kept in the bytes of the greatest sizes.

        Raises:
            FetchError, FeedError: as for ``run``.

        Example:
            >>> x = sg.placeholder((3,))
            >>> w = sg.Variable([1.0, 2.0, 3.0])
            >>> loss = sg.sum((w * x) ** 2)
            >>> sess = sg.Session()
            >>> with sess.forward(loss, {x: [1.0, 0.0, 1.0]}) as tape:
            ...     tape.backward(loss)
            ...     tape[loss]
            array(10., dtype=float32)
            >>> sess.grad(w)
            array([2., 0., 6.], dtype=float32)
        """
        self.store.check_open()
        check_budget(memory_budget)
        leaves = leaves_of(outputs)
        fed = checked_feeds(self.graph, feeds)
        arrays = as_arrays(fed, fed.values())
        shapes = tuple([array.shape for array in arrays])
        kind = (self.graph.version, tuple(map(id, leaves)), tuple(map(id, fed)), repr(memory_budget))
        programs = self._tapes.get((*kind, shapes))
        if programs is None:
            note_use, tensors = None, tuple(fed)
            if self._tapes.kinds.get(kind) is None:
                note_use = self._inspection.look(leaves, tensors)
                self._tapes.kinds.put(kind, True, note_use)
            programs = self._tapes.make(kind, leaves, tensors, shapes, memory_budget, note_use)
        return programs.tape(arrays, backward_order)

    @boundary
    def grad(self, x: Tensor) -> Array | None:
        """The gradient that backwards have added up for ``x`` since ``zero_grad``, a fresh array; None before the
        first backward and for tensors that keep none. Of a tensor with ``retain_grad`` runs of ``sg.gradients`` that
        pass it add up too.

        Raises:
            FetchError: ``x`` is no tensor of this graph.

        Example:
            >>> w = sg.Variable(3.0)
            >>> sess = sg.Session()
            >>> sess.grad(w) is None
            True
            >>> for _ in range(2):
            ...     with sess.forward(loss := w**2) as tape:
            ...         tape.backward(loss)
            >>> sess.grad(w)
            array(12., dtype=float32)
        """
        self.store.check_open()
        return self.store.gradient(key_of_gradient(self.graph, x))

    @boundary
    def set_grad(self, x: Tensor, value: Any) -> None:
        """Let a copy of ``value`` be the gradient that backwards have added up for ``x``, or None be none.

        Raises:
            FetchError: ``x`` is no tensor of this graph.
            GradientError: no gradient adds up for ``x``, or the value has another shape or dtype.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> update = sg.optim.SGD(lr=0.5).step([w])
            >>> sess = sg.Session()
            >>> sess.set_grad(w, np.array([1.0, 2.0], np.float32))
            >>> sess.run(update)
            >>> sess.get(w)
            array([0.5, 1. ], dtype=float32)
        """
        self.store.check_open()
        key = key_of_gradient(self.graph, x)
        if value is None:
            return self.store.set_gradient(key, None)
        check_adds_up(x)
        self.store.set_gradient(key, as_gradient(x, value, f"gradient of {x.name!r}"))

    def zero_grad(self) -> None:
        """Forget all accumulated gradients: ``grad`` gives None until the next backward.

        Example:
            >>> w = sg.Variable(3.0)
            >>> sess = sg.Session()
            >>> with sess.forward(loss := w**2) as tape:
            ...     tape.backward(loss)
            >>> sess.zero_grad()
            >>> sess.grad(w) is None
            True
        """
        self.store.check_open()
        self.store.zero_gradients()

    # -- state ------------------------------------------------------------------------------------------------------

    @boundary
    def get(self, variable: Tensor) -> Array:
        """A copy of a variable's value, as the runs so far have left it.

        Nothing is compiled for it. ``run(variable)`` gives the same array by a program, in which it is fetched together
        with other things; beside an op that writes the variable that is its value at the start of the run.

        Raises:
            FetchError: it is no variable of this graph.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> sess = sg.Session()
            >>> value = sess.get(w)
            >>> value[0] = 10.0
            >>> sess.get(w)
            array([1., 2.], dtype=float32)
        """
        self.store.check_open()
        return self.store.read(key_of(self.graph, variable))

    @boundary
    def set(self, variable: Tensor, value: Any) -> None:
        """Give a variable another value.

        Raises:
            FetchError: it is no variable of this graph.
            FeedError: another shape, or a dtype that does not cast safely.

        Example:
            >>> w = sg.Variable([1.0, 2.0])
            >>> sess = sg.Session()
            >>> sess.set(w, [3.0, 4.0])
            >>> sess.run(w * 2)
            array([6., 8.], dtype=float32)
        """
        self.store.check_open()
        key = key_of(self.graph, variable)
        self.store.write({key: as_array(variable, value)})

    @boundary
    def set_all(self, values: Mapping[Tensor, Any]) -> None:
        """Give several variables other values: all in one step, or none where one is refused.

        Raises:
            FetchError: one is no variable of this graph.
            FeedError: another shape, or a dtype that does not cast safely.

        Example:
            >>> a, b = sg.Variable(1.0), sg.Variable([1.0, 2.0])
            >>> sess = sg.Session()
            >>> sess.set_all({a: 10.0, b: [3.0, 4.0]})
            >>> sess.run([a, b])
            [array(10., dtype=float32), array([3., 4.], dtype=float32)]
        """
        self.store.check_open()
        self.store.write({key_of(self.graph, x): as_array(x, value) for x, value in values.items()})

    @boundary
    def save(
        self,
        path: str | os.PathLike[str],
        *,
        variables: Tensor | Holder | Iterable[Tensor] | Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write variables and the random state to a safetensors file, whole or not at all. A file that is there keeps
        its mode and owner; of a link, the file that it names is replaced.

        Args:
            variables: which variables to write, or a module for all of its own; by a dict also under other names.
                The random state is then left out. By default all are written, optimizer slots among them.

        ``restore`` reads it, matching variables by name: hold the modules of a program in one module, whose attributes
        then name them. (``sg.checkpoint`` is not about files: it lets a backward compute again what it would keep.)

        Raises:
            FormatError: the path is empty or names what is no regular file.
            FetchError: what is no variable of this graph.
            OSError: the file or its folder cannot be written.

        Example:
            >>> net = sg.nn.Linear(2, 1)
            >>> train = sg.optim.Adam().minimize(sg.sum(net([[1.0, 2.0]])))
            >>> sess = sg.Session()
            >>> sess.save("state.safetensors")
            >>> sess.save("weights.safetensors", variables=net)
            >>> from safetensors.numpy import load_file
            >>> sorted(load_file("weights.safetensors"))
            ['bias', 'weight']
            >>> len(load_file("state.safetensors"))
            9
        """
        from staticgrad.runtime.files.checkpoint import save

        self.store.check_open()
        save(self.store, path, None if variables is None else keys_in_file(self.graph, variables))

    @boundary
    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        strict: bool = True,
        variables: Tensor | Holder | Iterable[Tensor] | Mapping[str, Tensor] | None = None,
    ) -> Unmatched:
        """Take variables and the random state, if it is there, from a file that ``save`` wrote.

        Compared are names, shapes and dtypes. A name with a number follows the order of declaration: that of the second
        unnamed ``Linear`` is ``linear_1``. Where such variables have equal shapes and dtypes, the text of the line that
        declared each is compared, too. What one line declares several times, in a loop or in a function that is called
        twice, nothing in the file tells apart: declared in another order, those variables get each other's values. So
        hold several nets in one ``sg.nn.Module``, whose attributes name them, or give variables names.

        Args:
            strict: refuse variables that the file does not have and, where ``variables`` does not choose among them,
                variables of the file that the graph does not have. Otherwise they are passed over.
            variables: which variables to take, or a module for all of its own; by a dict also from under other names in
                the file. The random state then stays as it is.

        Returns:
            ``(missing_keys, unexpected_keys)``: names of wanted variables that the file does not have, and names in the
            file that are not wanted.

        Raises:
            FormatError: the file is damaged or foreign, names are refused or none agrees, shapes or dtypes differ, or
                other lines declared variables that are named by their order: nothing has changed.
            FetchError: what is no variable of this graph.

        Example:
            >>> w = sg.Variable([1.0, 2.0], name="w")
            >>> sess = sg.Session()
            >>> sess.save("model.safetensors")
            >>> sess.set(w, [0.0, 0.0])
            >>> sess.restore("model.safetensors")
            Unmatched(missing_keys=[], unexpected_keys=[])
            >>> sess.get(w)
            array([1., 2.], dtype=float32)
        """
        from staticgrad.runtime.files.checkpoint import restore

        self.store.check_open()
        if variables is None:
            return restore(self.store, path, strict)
        chosen = keys_in_file(self.graph, variables)
        return restore(self.store, path, strict, chosen, isinstance(variables, Mapping))

    def __repr__(self) -> str:
        state = "closed" if self.store.closed[0] else f"{self.compile_count} programs compiled"
        return f"<session on {self.graph!r}, {state}>"


hints.answer(Session, ("compiler", "store"))
