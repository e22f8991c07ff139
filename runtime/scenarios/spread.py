"""Blocks on their way to whoever computes them: numbered blocks come in, their results come out in the same order.

A ``Spreader`` has a limited number of blocks handed out at any time, some for each worker, so that memory does not grow
with the number of blocks. It asks of an executor what ``concurrent.futures`` says: ``submit(function, *arguments)``
gives a future with ``result()``. That is what pools of threads and processes, ``mpi4py.futures``, loky, Dask's
``Client`` and submitit have in common; nothing else is used but ``cancel`` of futures, and ``shutdown`` of those made
here.

What goes wrong:

    an error of the program        (``StaticGradError``) is raised here, and what was handed out is cancelled
    any other exception            a worker that died, an array that was lost on its way: the block is handed out again,
                                   ``ATTEMPTS`` times in all
    the executor takes no more     it is broken, as a pool of processes is when one of them is killed, or it was shut
                                   down: where a function that makes executors was given, it makes another one, at most
                                   ``RENEWALS`` times; else what remains is computed by threads of this process, and
                                   a warning says so

A block's result depends on its scenarios alone, so that none of this changes results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from staticgrad.base.errors import ExecutorWarning, StaticGradError, warn
from staticgrad.base.frozen import frozen

ATTEMPTS = 3
RENEWALS = 3
R = TypeVar("R")


@frozen
class ScenarioBlock:
    """Scenarios from ``start`` to ``stop``, which are the leaves from ``first`` on."""

    first: int
    start: int
    stop: int


@frozen(eq=False)
class _Handed:
    """A block that was handed out: its future, and whether a thread of this process computes it."""

    future: Any
    is_local: bool


class Spreader(Generic[R]):
    """See the module's docstring.

    Args:
        executor: one, or a function without arguments that makes one; None for threads of this process.
        here: computes a block in this process; ``there`` gives the function and the arguments by which a worker does,
            with the work itself if the second argument says so; its result is None where the worker lacks that.
        threads: of this process.
        window: the most blocks that are handed out and not taken.
    """

    def __init__(
        self,
        executor: Any,
        here: Callable[[ScenarioBlock], R],
        there: Callable[[ScenarioBlock, bool], tuple[Any, ...]],
        threads: int,
        window: int,
    ) -> None:
        self._here = here
        self._there = there
        self._number_of_threads = threads
        self._threads: Any = None  # an executor of this process, once there is one
        self._window = max(window, 1)
        self._make: Callable[[], Any] | None = None
        self._executor = executor
        self._made: list[Any] = []  # executors to be shut down
        self._renewals = 0
        if executor is None:
            self._compute_here()
        elif not hasattr(executor, "submit"):
            if not callable(executor):
                raise StaticGradError(
                    "map: executor: expected one with submit(function, *arguments), as those of concurrent.futures"
                    f" have, or a function that makes one, actual {type(executor).__name__}"
                )
            self._make = executor
            self._renew()

    def results(self, blocks: Iterable[ScenarioBlock]) -> Iterator[tuple[ScenarioBlock, R]]:
        """Blocks with their results, in order."""
        waiting: deque[tuple[ScenarioBlock, _Handed]] = deque()
        remaining = iter(blocks)
        try:
            while True:
                while len(waiting) < self._window and (block := next(remaining, None)) is not None:
                    waiting.append((block, self._submit(block)))
                if not waiting:
                    return
                yield waiting[0][0], self._result(*waiting.popleft())
        finally:
            for _, handed in waiting:
                getattr(handed.future, "cancel", bool)()
            for executor in self._made:
                _shut_down(executor)

    def _submit(self, block: ScenarioBlock, whole: bool = False) -> _Handed:
        while self._executor is not self._threads:
            try:
                return _Handed(self._executor.submit(*self._there(block, whole)), False)
            except Exception as error:
                self._give_up(error)
        return _Handed(self._executor.submit(self._here, block), True)

    def _result(self, block: ScenarioBlock, handed: _Handed) -> R:
        failures = 0
        while True:
            try:
                found: R | None = handed.future.result()
            except (StaticGradError, KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException as error:  # that a future was cancelled is no Exception to some
                failures += 1
                if handed.is_local or failures == ATTEMPTS:
                    error.add_note(f"  in scenarios {block.start} to {block.stop - 1}, attempt {failures}")
                    raise
                handed = self._submit(block)
            else:
                if found is not None:
                    return found
                handed = self._submit(block, whole=True)

    def _give_up(self, error: Exception) -> None:
        """Go on without the executor, which takes no more."""
        if self._make is not None and self._renewals < RENEWALS:
            self._renewals += 1
            self._renew()
            return
        warn(
            ExecutorWarning,
            f"map: the executor takes no more work ({type(error).__name__}: {error}): the rest is computed by threads"
            " of this process. Give a function that makes an executor, executor=lambda: …, for another one to be made",
        )
        self._compute_here()

    def _renew(self) -> None:
        assert self._make is not None
        self._executor = self._make()
        self._made.append(self._executor)

    def _compute_here(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._threads = self._executor = ThreadPoolExecutor(self._number_of_threads, "staticgrad-map")
        self._made.append(self._executor)


def _shut_down(executor: Any) -> None:
    """End an executor that was made here; some have no argument that says to wait."""
    try:
        executor.shutdown(wait=True)
    except TypeError:
        executor.shutdown()
