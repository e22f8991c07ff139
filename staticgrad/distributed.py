"""Many processes that compute together: ``sg.distributed.all_reduce`` and others, on MPI.

A script is started as ``mpiexec -n 4 python train.py``; each process runs all of it, with data of its own, and these
functions put ops into its graph that all processes compute together. Without ``mpiexec``, or without mpi4py, there is
one process, and they change nothing.
"""

from __future__ import annotations

from typing import NoReturn

from staticgrad.base.boundary import expose
from staticgrad.base.hints import missing_from_module
from staticgrad.ops.collectives import all_gather, all_reduce, barrier, broadcast, rank, reduce_scatter, size

__all__ = ["all_gather", "all_reduce", "barrier", "broadcast", "rank", "reduce_scatter", "size"]

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
