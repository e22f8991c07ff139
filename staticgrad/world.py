"""The processes that compute together: their number, this one's rank, and MPI as far as it is needed for them.

``world()`` is asked for the first time by whoever declares or loads something of many processes. Then mpi4py is
imported, if it is installed, and with it MPI initialized; in a process that no ``mpiexec`` started, or without mpi4py,
the world is this process alone. All that is sent goes through a communicator of this package's own, so that it never
meets what the user sends. From then on an exception that ends one of several processes ends them all.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any

import numpy as np

from staticgrad.errors import GraphError, SourceLine, StaticGradError
from staticgrad.forks import reentrant_lock
from staticgrad.frozen import frozen

Array = np.ndarray[Any, np.dtype[Any]]

# What launchers tell the processes that they start: how many there are.
LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
REDUCTIONS = ("sum", "max", "min")

# The names of MPI's datatypes by NumPy's; bools are ordered as the numbers 0 and 1, and short floats only moved.
_DATATYPES = {
    "float32": "FLOAT", "float64": "DOUBLE", "bool": "UINT8_T", "float16": "UINT16_T", "bfloat16": "UINT16_T",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}_T" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


@frozen(eq=False)
class World:
    """The processes: ``rank`` of ``size``, and MPI's communicator, None where there is one process."""

    rank: int
    size: int
    mpi: Any = None
    comm: Any = None
    agreed: set[str] = field(default_factory=set)  # digests of what all ranks have been found to have in common

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

    # -- for the interpreter ------------------------------------------------------------------------------------------

    def all_reduce(self, x: Array, reduction: str) -> Array:
        """The sum, maximum or minimum over the ranks."""
        if self.size == 1:
            return x.copy()
        result = np.empty_like(x, order="C")
        self.comm.Allreduce(self._buffer(x), self._buffer(result), self.reduction(reduction))
        return result

    def all_gather(self, x: Array) -> Array:
        """The arrays of all ranks, one behind the other."""
        result = np.empty((self.size * x.shape[0], *x.shape[1:]), x.dtype)
        if self.size == 1:
            result[...] = x
        else:
            self.comm.Allgather(self._buffer(x), self._buffer(result))
        return result

    def reduce_scatter(self, x: Array) -> Array:
        """This rank's part of the sum over the ranks."""
        if self.size == 1:
            return x.copy()
        result = np.empty((x.shape[0] // self.size, *x.shape[1:]), x.dtype)
        self.comm.Reduce_scatter_block(self._buffer(x), self._buffer(result), self.mpi.SUM)
        return result

    def broadcast(self, x: Array, root: int) -> Array:
        """The array of rank ``root``."""
        result = np.array(x, order="C")
        if self.size > 1:
            self.comm.Bcast(self._buffer(result), root)
        return result

    def reduce(self, x: Array, root: int) -> Array:
        """The sum over the ranks on rank ``root``, elsewhere zeros."""
        if self.size == 1:
            return x.copy()
        result = np.zeros(x.shape, x.dtype)
        self.comm.Reduce(self._buffer(x), self._buffer(result) if self.rank == root else None, self.mpi.SUM, root)
        return result

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.size > 1:
            self.comm.Barrier()

    def _buffer(self, x: Array) -> list[Any]:
        return [np.ascontiguousarray(x) if not x.flags.c_contiguous else x, self.datatype(x.dtype)]

    # -- agreement ----------------------------------------------------------------------------------------------------

    def agree(self, what: Sequence[str], source_of: Callable[[int], SourceLine | None] = lambda place: None) -> None:
        """Find out that all ranks are about to do the same, which a list of lines describes. It is asked once for each
        list, as ranks that have begun to do the same may load programs for other sizes at other times.

        Args:
            source_of: gives the user's line that a line of the list is about.

        Raises:
            GraphError: on all ranks: they are not.
        """
        key = hashlib.sha256("\n".join(what).encode()).hexdigest()
        if self.size == 1 or key in self.agreed:
            return
        self.agreed.add(key)
        if len(set(self.comm.allgather(key))) == 1:
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
            f"{several}, for which mpi4py and an MPI library are needed: pip install 'staticgrad[mpi]' ({error})"
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
    return World(comm.Get_rank(), comm.Get_size(), MPI, comm)


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _ending_all(hook: _Hook, mpi: Any) -> _Hook:
    """A function for exceptions that nobody catches: ``hook`` prints them, then all ranks end, which may be waiting for
    this one."""

    def end_all(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        try:
            sys.stderr.write(f"rank {mpi.COMM_WORLD.Get_rank()} of {mpi.COMM_WORLD.Get_size()}:\n")
            hook(kind, value, trace)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            mpi.COMM_WORLD.Abort(1)

    return end_all
