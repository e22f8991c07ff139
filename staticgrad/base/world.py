"""The processes that compute together: their number, this one's rank, and MPI as far as it is needed for them.

``world()`` is asked for the first time by whoever declares or loads something of many processes. Then mpi4py is
imported, if it is installed, and with it MPI initialized; in a process that no ``mpiexec`` started, or without mpi4py,
the world is this process alone. All that is sent goes through a communicator of this package's own, so that it never
meets what the user sends. From then on an exception that ends one of several processes ends them all.

MPI matches collective operations by their order alone: ranks that are at different ones get each other's data. So each
rank sends its right neighbour a *header* before it takes part in one, and compares what the left neighbour sends with
its own. All ranks are at the same operation exactly if each is where its neighbour is, whatever their number; where
they are not, a rank that finds out raises an error, and takes no part.

    header ::= place, kind, count       three int64
    place  ::= the number of the program on this rank << 32 | the number of the operation in the program
    kind   ::= root << 24 | dtype << 16 | reduction << 8 | operation, numbers in the tables of this module

A header is no collective operation, as those of different lengths end MPI's processes without an error of ours. A rank
that ends sends one as well, so that a rank that waits for it learns of it at once. What else keeps a rank from coming
is found by ``STATICGRAD_MPI_TIMEOUT``: no wait is MPI's own, all of them test and look at a clock.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any

import numpy as np

from staticgrad.base import config, log
from staticgrad.base.errors import GraphError, SourceLine, StaticGradError
from staticgrad.base.forks import reentrant_lock
from staticgrad.base.frozen import frozen

Array = np.ndarray[Any, np.dtype[Any]]

# What launchers tell the processes that they start: how many there are.
LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
REDUCTIONS = ("sum", "max", "min")

# The names of MPI's datatypes by NumPy's; bools are ordered as the numbers 0 and 1, and short floats only moved.
_DATATYPES = {
    "float32": "FLOAT", "float64": "DOUBLE", "bool": "UINT8_T", "float16": "UINT16_T", "bfloat16": "UINT16_T",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}_T" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_DTYPES = tuple(_DATATYPES)

# What headers say that a rank is at; "agree": a comparison of what programs do, "leave": its end.
OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "reduce_start", "reduce_wait", "barrier",
    "agree", "leave",
)  # fmt: skip
REDUCED = ("all_reduce", "reduce_start")  # by what their reduction says
TAG = 1  # of headers
HEADER = 3  # words
BLOCK = 2048  # bytes of a buffer that holds any header, with what may follow it
GRACE = 10.0  # seconds in which other ranks may say what went wrong, after which a rank that left ends all
PARTING = 0.5  # seconds between a rank's last words and the end of all
FINISHED = "an earlier operation of the ranks has failed, after which they are out of step: end the process"

Header = tuple[int, int, int]


class OutOfStepError(StaticGradError):
    """Ranks are not at the same operation, or one has not come: no other attempt makes that good."""


def kind_of(operation: str, dtype: np.dtype, reduction: str = "sum", root: int = 0) -> int:
    """The word of a header for an operation."""
    numbers = OPERATIONS.index(operation), REDUCTIONS.index(reduction), _DTYPES.index(dtype.name), root
    return sum(number << 8 * place for place, number in enumerate(numbers))


def described(header: Header) -> str:
    """The words for what a rank is at."""
    place, kind, count = header
    name, reduction = OPERATIONS[kind & 255], REDUCTIONS[kind >> 8 & 255]
    if name == "leave":
        return "has ended its script"
    if name == "agree":
        return "loads a program"
    how = f"({reduction})" if name in REDUCED else f"(root {kind >> 24})" if name in ("broadcast", "reduce") else ""
    what = "" if name == "barrier" else f" of {count} {_DTYPES[kind >> 16 & 255]}"
    where = f", number {place & 0xFFFFFFFF} in program {place >> 32}" if place else ""
    return f"is at {name}{how}{what}{where}"


def patience() -> float:
    """The seconds that a rank waits for others, infinity for ever.

    Raises:
        ValueError: the switch is no number.
    """
    given = config.get("MPI_TIMEOUT")
    try:
        seconds = float(given)
    except ValueError:
        raise ValueError(f"{config.PREFIX}MPI_TIMEOUT={given!r}: expected seconds, 0 for no limit") from None
    return seconds if seconds > 0 else float("inf")


@frozen(eq=False)
class World:
    """The processes: ``rank`` of ``size``, and MPI's communicator, None where there is one process."""

    rank: int
    size: int
    mpi: Any = None
    comm: Any = None
    programs: list[None] = field(default_factory=list)  # one for each program of this rank that others take part in
    failed: np.ndarray[Any, np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros(1, np.int64)
    )  # whether one did

    # -- for compiled programs ----------------------------------------------------------------------------------------

    def function(self, name: str) -> int:
        """The address of a function of the MPI library that mpi4py has loaded."""
        library = ctypes.CDLL(self.mpi.__file__)
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    @property
    def handle_bits(self) -> int:
        """The width of MPI's handles: 32 where they are ints (MPICH), 64 where they are pointers (Open MPI, the
        standard's ABI)."""
        return 8 * int(self.mpi._sizeof(self.mpi.Comm))

    def handle(self, thing: Any) -> int:
        """The handle of an object of mpi4py, as the library takes it."""
        kind = ctypes.c_uint32 if self.handle_bits == 32 else ctypes.c_uint64
        return kind.from_address(self.mpi._addressof(thing)).value

    def datatype(self, dtype: np.dtype) -> Any:
        """MPI's name of a dtype."""
        return getattr(self.mpi, _DATATYPES[dtype.name])

    def reduction(self, name: str) -> Any:
        """MPI's operation of that name."""
        return getattr(self.mpi, name.upper())

    def error_text(self, status: int) -> str:
        """MPI's words for a status."""
        return str(self.mpi.Get_error_string(status))

    @property
    def left(self) -> int:
        """The rank whose headers this one gets."""
        return (self.rank - 1) % self.size

    def count(self) -> int:
        """The number, from 1, of another program of this rank in which others take part."""
        self.programs.append(None)
        return len(self.programs)

    # -- meeting ------------------------------------------------------------------------------------------------------

    def meet(self, operation: str, x: Array, reduction: str = "sum", root: int = 0) -> None:
        """Find out that the left neighbour is at the same operation of NumPy's arrays.

        Raises:
            OutOfStepError: it is not, or does not come.
        """
        if self.failed[0]:
            raise OutOfStepError(FINISHED)
        header = (0, kind_of(operation, x.dtype, reduction, root), x.size)
        found = self.exchange(header)
        if found != header:
            self.failed[0] = 1
            raise OutOfStepError(self.differing(header, found, self.left))

    def exchange(self, header: Header, *, patient: bool = False) -> Header:
        """The header of the left neighbour, for this rank's own. ``patient``: it may take any time."""
        found = np.zeros(BLOCK // 8, np.int64)
        given = np.array(header, np.int64)
        receiving = self.comm.Irecv([found, self.mpi.BYTE], self.left, TAG)
        sending = self.comm.Isend([given, self.mpi.BYTE], (self.rank + 1) % self.size, TAG)
        self.wait([receiving, sending], described(header), patient=patient)
        return tuple(found[:HEADER].tolist())

    def wait(self, requests: Sequence[Any], what: str, *, patient: bool = False) -> None:
        """Wait until what was begun has ended.

        Raises:
            OutOfStepError: it has not, and the time is up.
        """
        begun, turns, most = time.monotonic(), 0, float("inf") if patient else patience()
        while not self.mpi.Request.Testall(requests):
            turns += 1
            if turns > 1000:
                time.sleep(1e-4 if turns < 10_000 else 1e-2)
                if time.monotonic() - begun > most:
                    self.failed[0] = 1
                    raise OutOfStepError(f"this rank {what}: {self.late()}")

    def differing(self, own: Header, other: Header, whose: int) -> str:
        """The words for ranks that are at different operations."""
        lines = [(self.rank, own), (whose, other)]
        return "the ranks are not at the same operation" + "".join(
            f"\n  rank {rank} {described(header)}" for rank, header in sorted(lines)
        )

    @staticmethod
    def late() -> str:
        """The words for ranks that have not come."""
        return (
            f"waited {patience():g} seconds for the other ranks, of which one or more have not come: they do something"
            f" else, fewer steps, or need more time ({config.PREFIX}MPI_TIMEOUT is how many seconds they have)"
        )

    def leave(self) -> None:
        """Tell the right neighbour that this process ends, and wait until the left one does. If that is at an operation
        instead, all processes end."""
        if self.mpi.Is_finalized():
            return
        header = (0, kind_of("leave", np.dtype(bool)), 0)
        found = self.exchange(header, patient=True)
        if found != header:
            sys.stdout.flush()
            time.sleep(GRACE)  # the neighbours see it as well, and say more; one that raises ends this process
            why = f"rank {self.rank} of {self.size}: {self.differing(header, found, self.left)}"
            log.tell("distributed", log.ERROR, why, asked=True)
            _end_all(self.mpi)

    # -- for the interpreter ------------------------------------------------------------------------------------------

    def all_reduce(self, x: Array, reduction: str) -> Array:
        """The sum, maximum or minimum over the ranks."""
        if self.size == 1:
            return x.copy()
        self.meet("all_reduce", x, reduction)
        result = np.empty_like(x, order="C")
        given, got = self._buffer(x), self._buffer(result)
        self.wait([self.comm.Iallreduce(given, got, self.reduction(reduction))], "is at all_reduce")
        return result

    def all_gather(self, x: Array) -> Array:
        """The arrays of all ranks, one after the other."""
        result = np.empty((self.size * x.shape[0], *x.shape[1:]), x.dtype)
        if self.size == 1:
            result[...] = x
        else:
            self.meet("all_gather", x)
            given, got = self._buffer(x), self._buffer(result)
            self.wait([self.comm.Iallgather(given, got)], "is at all_gather")
        return result

    def reduce_scatter(self, x: Array) -> Array:
        """This rank's part of the sum over the ranks."""
        if self.size == 1:
            return x.copy()
        self.meet("reduce_scatter", x)
        result = np.empty((x.shape[0] // self.size, *x.shape[1:]), x.dtype)
        given, got = self._buffer(x), self._buffer(result)
        self.wait([self.comm.Ireduce_scatter_block(given, got, self.mpi.SUM)], "is at reduce_scatter")
        return result

    def broadcast(self, x: Array, root: int) -> Array:
        """The array of rank ``root``."""
        result = np.array(x, order="C")
        if self.size > 1:
            self.meet("broadcast", x, root=root)
            self.wait([self.comm.Ibcast(self._buffer(result), root)], "is at broadcast")
        return result

    def reduce(self, x: Array, root: int) -> Array:
        """The sum over the ranks on rank ``root``, elsewhere zeros."""
        if self.size == 1:
            return x.copy()
        self.meet("reduce", x, root=root)
        result = np.zeros(x.shape, x.dtype)
        given, got = self._buffer(x), self._buffer(result) if self.rank == root else None
        self.wait([self.comm.Ireduce(given, got, self.mpi.SUM, root)], "is at reduce")
        return result

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.size > 1:
            self.meet("barrier", np.zeros(0, bool))
            self.wait([self.comm.Ibarrier()], "is at barrier")

    def _buffer(self, x: Array) -> list[Any]:
        return [np.ascontiguousarray(x) if not x.flags.c_contiguous else x, self.datatype(x.dtype)]

    # -- agreement ----------------------------------------------------------------------------------------------------

    def agree(self, what: Sequence[str], source_of: Callable[[int], SourceLine | None] = lambda place: None) -> None:
        """Find out that all ranks are about to do the same, which a list of lines describes.

        Args:
            source_of: gives the user's line that a line of the list is about.

        Raises:
            GraphError: on all ranks: they are not.
            OutOfStepError: one of them does something else, or does not come.
        """
        if self.size == 1:
            return
        self.meet("agree", np.zeros(0, bool))
        key = np.frombuffer(hashlib.sha256("\n".join(what).encode()).digest(), np.int64)
        keys = np.empty((self.size, len(key)), np.int64)
        self.wait([self.comm.Iallgather(key.copy(), keys)], "loads a program")
        if (keys == key).all():
            return
        lists = self.comm.allgather(list(what))
        other = next(rank for rank in range(1, self.size) if lists[rank] != lists[0])
        longest = max(len(lists[0]), len(lists[other]))
        first, second = ([*lines, *["nothing"] * (longest - len(lines))] for lines in (lists[0], lists[other]))
        place = next(i for i in range(longest) if first[i] != second[i])
        raise GraphError(
            f"the ranks' programs differ, so that they would wait for each other for ever: number {place} of what they"
            f" do together\n  rank 0: {first[place]}\n  rank {other}: {second[place]}",
            source=source_of(place),
        )


_making = reentrant_lock()


def world() -> World:
    """The processes that compute together with this one.

    Raises:
        StaticGradError: this process was started as one of several, and mpi4py is not installed or knows no others.
    """
    with _making:
        return _world()


@functools.cache
def _world() -> World:
    launched = next((name for name in LAUNCHED if os.environ.get(name, "1") not in ("", "1")), None)
    several = f"this process is one of several ({launched}={os.environ.get(launched or '')})"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where there is no MPI library
        if launched is None:
            return World(0, 1)
        raise StaticGradError(
            f"{several}, for which mpi4py and an MPI library are needed: pip install '.[mpi]' in a checkout ({error})"
        ) from error
    if MPI.COMM_WORLD.Get_size() == 1:
        if launched is None:
            return World(0, 1)
        library = MPI.Get_library_version().splitlines()[0]
        raise StaticGradError(
            f"{several}, and mpi4py knows no other: start them with the mpiexec of its MPI, {library}"
        )
    comm = MPI.COMM_WORLD.Dup()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    sys.excepthook = _ending_all(sys.excepthook, MPI)
    here = World(comm.Get_rank(), comm.Get_size(), MPI, comm)
    atexit.register(_leave, here, os.getpid())
    return here


def _leave(here: World, process: int) -> None:
    if os.getpid() == process:  # not in a child that was forked
        here.leave()


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _ending_all(hook: _Hook, mpi: Any) -> _Hook:
    """A function for exceptions that are not caught: ``hook`` prints them, then all ranks end, which may be waiting for
    this one."""

    def end_all(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        try:
            sys.stderr.write(f"rank {mpi.COMM_WORLD.Get_rank()} of {mpi.COMM_WORLD.Get_size()}:\n")
            hook(kind, value, trace)
        finally:
            _end_all(mpi)

    return end_all


def _end_all(mpi: Any) -> None:
    """End the processes of all ranks, once the launcher has had time to pass on what this one wrote: it takes what
    comes through pipes, and on an abort it ends without looking whether there is more in them."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(PARTING)
    finally:
        mpi.COMM_WORLD.Abort(1)
