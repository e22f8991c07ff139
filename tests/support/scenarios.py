"""Programs that tests run over scenarios, with every executor."""

from __future__ import annotations

from typing import Any

import numpy as np

import staticgrad as sg

Array = np.ndarray[Any, np.dtype[Any]]


def bits(results: Any) -> list[bytes]:
    return [np.asarray(one).tobytes() for one in (results if isinstance(results, list | tuple) else [results])]


def of_one(threads: int = 1) -> sg.Executable:
    """An option's payoff and two derivatives, for one scenario."""
    with sg.Graph() as graph:
        spot, vol, z = (sg.placeholder((), sg.float64, name=name) for name in ("spot", "vol", "z"))
        payoff = sg.maximum(spot * sg.exp(vol * z - vol * vol / 2) - 100.0, 0.0)
        slopes = sg.gradients(payoff, [spot, vol])
    return sg.Session(graph, num_threads=threads).compile([payoff, *slopes], [spot, vol, z])


def of_rows(threads: int = 1) -> sg.Executable:
    """Sums and means over the scenarios of a call, and a value of each."""
    with sg.Graph() as graph:
        w = sg.placeholder((3,), sg.float64, name="w")
        x = sg.placeholder((sg.dim("scenarios"), 3), sg.float64, name="x")
        y = sg.exp(-(sg.tanh(x) @ w))
        (slope,) = sg.gradients(y.sum(), [w])
    return sg.Session(graph, num_threads=threads).compile({"y": y, "sum": y.sum(), "slope": slope}, [w, x])


def numbers(n: int, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(n, *shape))


def check(executor: Any, **how: Any) -> None:
    """Sums and results of an executor are those of this process."""
    w, x, zs = numbers(3, seed=1), numbers(30_011, 3), numbers(30_011)
    rows, one = of_rows(), of_one()
    found = rows.map(w, x, reduce="sum", executor=executor, **how)
    assert bits([*found.values()]) == bits([*rows.map(w, x, reduce="sum").values()])
    assert bits(one.map(100.0, 0.2, zs, executor=executor, **how)) == bits(one.map(100.0, 0.2, zs))
