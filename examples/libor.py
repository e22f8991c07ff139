"""A book of swaptions in the LIBOR market model, its price and 160 sensitivities over a million paths.

    python examples/libor.py
    python examples/libor.py --paths 1000000 --executor processes --workers 4

The book of Giles and Glasserman (*Smoking adjoints*, Risk, 2006): 80 forward rates, moved over 40 quarters, and 15
swaptions of 5 maturities and 3 rates. The program is declared for any number of paths and draws their random numbers
itself. ``exe.map`` runs it over all of them, some dozens at a time, so that memory does not depend on how many there
are; price and sensitivities are the same to the bit on any number of threads, processes or machines.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import staticgrad as sg

RATES, STEPS, PERIOD = 80, 40, 0.25
MATURITIES = np.repeat([4, 8, 20, 28, 40], 3)
FIXED = np.tile([0.045, 0.05, 0.055], 5)
FORWARDS, VOLATILITIES = np.full(RATES, 0.05), np.full(RATES, 0.2)
PATHS = 65_536


def values(forwards: sg.Tensor, volatilities: sg.Tensor, z: sg.Tensor) -> sg.Tensor:
    """The discounted value of the book on each path.

    Args:
        forwards, volatilities: of all rates, by which it is differentiated.
        z: normal random numbers, float64[steps, paths].
    """
    rates = sg.broadcast_to(forwards[:, None], (RATES, z.shape[1]))
    for step in range(STEPS):
        volatility = volatilities[: RATES - step - 1, None]
        alive, drift = rates[step + 1 :], PERIOD * volatility
        summed = sg.cumulative_sum(drift * alive / (1 + PERIOD * alive), axis=0)
        moved = alive * sg.exp(drift * summed + volatility * (PERIOD**0.5 * z[step] - 0.5 * drift))
        rates = sg.concat([rates[: step + 1], moved], axis=0)
    bonds = sg.cumulative_prod(1 / (1 + PERIOD * rates[STEPS:]), axis=0)
    annuities = sg.cumulative_sum(PERIOD * bonds, axis=0)
    ends = sg.take(bonds, MATURITIES - 1, axis=0)
    swaps = ends + FIXED[:, None] * sg.take(annuities, MATURITIES - 1, axis=0) - 1
    return (-100 * sg.minimum(swaps, 0)).sum(axis=0) / sg.prod(1 + PERIOD * rates[:STEPS], axis=0)


def pricer(threads: int | None = None, seed: int = 0) -> sg.Executable:
    """From (forwards, volatilities, numbers of paths) to the mean of the value, of its square, and the derivatives of
    the former by forwards and volatilities."""
    with sg.Graph() as graph:
        forwards = sg.placeholder((RATES,), sg.float64, name="forwards")
        volatilities = sg.placeholder((RATES,), sg.float64, name="volatilities")
        path = sg.placeholder((sg.dim("paths"),), sg.int64, name="path")
        value = values(forwards, volatilities, sg.random.normal((STEPS, path.shape[0]), dtype=sg.float64))
        mean = value.mean()
        slopes = sg.gradients(mean, [forwards, volatilities])
        fetches = {"price": mean, "square": (value * value).mean(), "forwards": slopes[0], "volatilities": slopes[1]}
    session = sg.Session(graph, num_threads=threads, seed=seed)
    return session.compile(fetches, [forwards, volatilities, path])


def executor_of(name: str, workers: int) -> Callable[[], Any] | None:
    """A function that makes an executor; None for the threads of this process."""
    if name == "processes":
        return lambda: ProcessPoolExecutor(workers, get_context("spawn"))
    if name == "loky":
        from loky import ProcessPoolExecutor as Pool

        return lambda: Pool(workers)
    if name == "dask":
        from distributed import Client

        return lambda: Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    if name == "mpi":
        from mpi4py.futures import MPIPoolExecutor

        return lambda: MPIPoolExecutor(workers)
    return None


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--paths", type=int, default=PATHS)
    parser.add_argument("--executor", default="threads", choices=["threads", "processes", "loky", "dask", "mpi"])
    parser.add_argument("--workers", type=int)
    asked = parser.parse_args(arguments)
    book = pricer(asked.workers if asked.executor == "threads" else 1)
    found = book.map(
        FORWARDS, VOLATILITIES, range(asked.paths), reduce="mean", progress=asked.paths > PATHS,
        executor=executor_of(asked.executor, asked.workers or 2),
    )  # fmt: skip
    error = ((found["square"] - found["price"] ** 2) / asked.paths) ** 0.5
    print(f"price {found['price']:.6f} ± {error:.6f} by {asked.paths:,} paths")
    for name in ("forwards", "volatilities"):
        slopes = found[name]
        print(f"by {name}: {slopes.sum():.4f} if all move together; the largest {slopes[np.abs(slopes).argmax()]:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
