"""The executors that guides name: each gives the bits of this process's threads, on any number of workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.ranks import run
from support.scenarios import bits, check, numbers, of_one


@contextmanager
def loky(workers: int) -> Iterator[Any]:
    module = pytest.importorskip("loky")
    with module.ProcessPoolExecutor(workers) as pool:
        yield pool


@contextmanager
def dask(workers: int) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("kind", [loky, dask])
@pytest.mark.filterwarnings("ignore")  # of these packages
def test_pools(kind: Any, workers: int) -> None:
    with kind(workers) as executor:
        check(executor)


@pytest.mark.filterwarnings("ignore")
def test_jobs(tmp_path: Path) -> None:
    check(pytest.importorskip("submitit").LocalExecutor(tmp_path), block=16384)


@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_loky_that_is_killed() -> None:
    module = pytest.importorskip("loky")
    exe, zs, made = of_one(), numbers(200_000), []

    def make() -> Any:
        made.append(module.ProcessPoolExecutor(2))
        return made[-1]

    def killing(done: int, total: int) -> None:
        if len(made) == 1 and done < total and made[0]._processes:
            os.kill(next(iter(made[0]._processes)), signal.SIGKILL)

    found = exe.map(100.0, 0.2, zs, reduce="mean", block=1, executor=make, progress=killing)
    assert bits(found) == bits(exe.map(100.0, 0.2, zs, reduce="mean"))
    assert len(made) >= 2


RANKS = """
    import sys
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor
    sys.path.insert(0, sys.argv[1])
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        if executor is not None:
            from support.scenarios import check
            check(executor)
            print("checked")
    """


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks(ranks: int) -> None:
    assert run(ranks, RANKS, str(Path(__file__).parents[1])) == "checked\n"
