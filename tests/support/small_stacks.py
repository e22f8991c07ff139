"""Calls programs from threads of little stack: ``python small_stacks.py WAY THREADS COUNT``, which prints how many of
the first COUNT programs were right.

The process ends where a stack is too short, so it is one of its own. ``WAY``: "exe", "cfunc", "load" for an exported
program, "shared" for a library of C.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.base.addresses import aligned_empty

KIB = {"cfunc": 128, "shared": 128}  # of the stack; else 256, of which Python takes some
Array = np.ndarray[Any, np.dtype[Any]]
Declared = tuple[list[sg.Tensor], list[sg.Tensor], list[Array]]


def products(n: int) -> Declared:
    x = sg.placeholder((n, n), sg.float64)
    y = sg.sum(sg.tanh(x @ x) @ x.T)
    return [y, *sg.gradients(y, [x])], [x], [np.random.default_rng(0).normal(size=(n, n)) / n]


def routines(n: int) -> Declared:
    x = sg.placeholder((n, n), sg.float64)
    spd = x @ x.T + 2.0 * sg.eye(n, dtype=sg.float64)
    values = [sg.sum(y * y) for y in (sg.linalg.cholesky(spd), sg.linalg.solve(spd, x[:, 0]), sg.sort(x, 1),
                                      sg.nn.softmax(x, dim=1), sg.cumulative_sum(x, axis=0))]  # fmt: skip
    loss = sum(values[1:], values[0])
    return [loss, *sg.gradients(loss, [x])], [x], [np.random.default_rng(1).normal(size=(n, n)) / n]


def images(n: int) -> Declared:
    x = sg.placeholder((8, 3, n, n))
    rng = np.random.default_rng(2)
    first, second = (
        sg.Variable(rng.normal(size=shape).astype(np.float32)) for shape in ((16, 3, 3, 3), (32, 16, 5, 5))
    )
    y = sg.nn.relu(sg.nn.conv2d(sg.nn.relu(sg.nn.conv2d(x, first)), second))
    loss = sg.mean(y * y)
    return [loss, *sg.gradients(loss, [x, first, second])], [x], [rng.normal(size=(8, 3, n, n)).astype(np.float32)]


def recurrence(n: int) -> Declared:
    x, w = sg.placeholder((6, n, n)), sg.placeholder((n, n))
    last, _ = sg.scan(lambda h, row: (sg.tanh(row @ w + h @ w),) * 2, x[0], x)
    loss = sg.sum(last)
    rng = np.random.default_rng(3)
    arrays = [(rng.normal(size=shape) / n).astype(np.float32) for shape in ((6, n, n), (n, n))]
    return [loss, *sg.gradients(loss, [w])], [x, w], arrays


PROGRAMS: tuple[tuple[Callable[[int], Declared], int], ...] = (
    (products, 300), (products, 40), (routines, 60), (images, 40), (recurrence, 150),
)  # fmt: skip


def caller(way: str, exe: sg.Executable, folder: Path) -> Callable[[list[Array]], list[Array]]:
    """The function that calls a program in one way."""
    if way == "cfunc":
        called = exe.cfunc("slots")
        return lambda arrays: by_table(called.ctypes, arrays, exe(*arrays), None)
    if way == "load":
        exe.export(folder / "p.sgp", format="program")
        program = sg.load(folder / "p.sgp")
        return lambda arrays: list(program(*arrays))
    if way == "shared":
        report = exe.export(folder / f"p{id(exe)}.so", format="shared", name=f"p{id(exe)}")
        (entry,) = report.interface.entries
        library = ctypes.CDLL(str(report.files[0]))
        nbytes = report.interface.state.nbytes
        work, state = (aligned_empty((size,), np.dtype(np.uint8)) for size in (entry.workspace_bytes, max(nbytes, 1)))
        if nbytes:
            state[:] = (ctypes.c_ubyte * nbytes).in_dll(library, f"{report.interface.name}_initial_state")
        function = library[entry.name]
        return lambda arrays: by_table(function, arrays, exe(*arrays), *map(address, (work, state)))
    return lambda arrays: list(exe(*arrays))


def address(memory: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(memory.ctypes.data)


def by_table(function: Any, arrays: list[Array], like: list[Array], *rest: Any) -> list[Array]:
    """The results of a function that takes tables of addresses."""
    results = [np.zeros_like(np.asarray(y)) for y in like]
    tables = [(ctypes.c_void_p * len(some))(*(x.ctypes.data for x in some)) for some in (arrays, results)]
    assert function(*tables, *rest) == 0
    return results


def main(way: str, threads: int, count: int) -> None:
    right = []
    threading.stack_size(KIB.get(way, 256) << 10)
    with tempfile.TemporaryDirectory() as folder:
        for make, n in PROGRAMS[:count]:
            with sg.Graph() as graph:
                fetches, feeds, arrays = make(n)
            session = sg.Session(graph, num_threads=threads)
            exe = session.compile(fetches, feeds)
            call = caller(way, exe, Path(folder))
            want = list(exe(*arrays))

            def work() -> None:
                for x, y in zip(call(arrays), want, strict=True):  # noqa: B023
                    np.testing.assert_array_equal(x, y)
                right.append(1)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    print(len(right), "right")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
