"""The C callers of ``callers.c`` and programs for them: one for each signature, as what calls from many threads."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.runtime.callers.cfunction import SIGNATURES

Array = np.ndarray[Any, Any]
COMPILER = shutil.which("gcc") or shutil.which("cc")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
SOURCE = Path(__file__).with_name("callers.c")
THREADS, MOST = 8, 16
_TABLE = ctypes.c_void_p * MOST


def built(folder: Path, *flags: str) -> Path:
    """The callers as a library in a folder."""
    assert COMPILER is not None
    library = folder / "callers.so"
    command = [COMPILER, "-std=c99", *STRICT, "-O1", "-shared", "-fPIC", "-pthread", *flags, str(SOURCE)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


def loaded(library: Path) -> ctypes.CDLL:
    """Its functions, which compiled programs may call as well."""
    found = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    found.call_at_once.restype = ctypes.c_long
    found.maximize.restype = ctypes.c_double
    return found


def doubles(*values: float) -> Array:
    return np.array(values, np.float64)


def address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data


def call_at_once(
    callers: ctypes.CDLL, function: sg.CFunction, arrays: Sequence[Array], expected: Sequence[Array], *,
    shared: Sequence[Array] = (), sizes: Sequence[int] = (), calls: int = 50,
) -> int:  # fmt: skip
    """How many results of eight threads differ. What goes in and out is in the order of ``callers.c``.

    Args:
        shared: arrays that all threads write; otherwise each has its own.
        sizes: the bytes of what goes out, where they shall be others than those of ``expected``.
    """
    signature = next(i for i, name in enumerate(SIGNATURES) if SIGNATURES[name].text == function.signature)
    nbytes = [x.nbytes for x in arrays] + (list(sizes) or [x.nbytes for x in expected])
    into, out, all_ = (_TABLE(*map(address, group)) for group in (arrays, expected, shared))
    found: int = callers.call_at_once(
        signature, ctypes.c_void_p(function.address), len(arrays), len(expected), (ctypes.c_size_t * MOST)(*nbytes),
        into, out, all_ if shared else None, THREADS, calls,
    )  # fmt: skip
    return found


Program = tuple[sg.CFunction, list[Array], list[Array]]  # with what goes in, and what comes out


def slots(width: int) -> Program:
    """Matrix products, a softmax, a gradient, a sort: memory of a call on the stack, or in a block of the thread."""
    x = sg.placeholder((7, width), name="x")
    order = sg.placeholder((width,), sg.int64, name="order")
    w = sg.Variable(np.random.default_rng(0).normal(size=(width, width)).astype(np.float32) / width)
    y = sg.nn.softmax(sg.tanh(x @ w) @ w, 1)
    loss = sg.sum(y * y)
    fetches = [y, loss, *sg.gradients(loss, [x]), sg.take(sg.sort(x, 1), order, axis=1), y, x[0, 0] > 0]
    executable = sg.Session().compile(fetches, [x, order])
    rng = np.random.default_rng(width)
    arrays = [rng.normal(size=(7, width)).astype(np.float32), rng.permutation(width)]
    return executable.cfunc("slots"), arrays, list(executable(*arrays))


def density(signature: Any, n: int = 11) -> Program:
    """A logistic regression of ``user`` rows: value and gradient by its weights."""
    x, rows = sg.placeholder((n,), sg.float64), sg.placeholder((20, n), sg.float64)
    y = sg.sum(sg.nn.softplus(rows @ x)) + 0.5 * sg.sum(x * x)
    executable = sg.Session().compile([y, *sg.gradients(y, [x])], [x, rows])
    rng = np.random.default_rng(n)
    arrays = [rng.normal(size=n), rng.normal(size=(20, n))]
    return executable.cfunc(signature), arrays, list(executable(*arrays))


def transformed() -> Program:
    """Numbers from numbers, with parameters."""
    x, user = sg.placeholder((5,), sg.float64), sg.placeholder((3, 5), sg.float64)
    executable = sg.Session().compile(sg.cumulative_sum(sg.exp(user @ x)), [x, user])
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=5), rng.normal(size=(3, 5))]
    return executable.cfunc("vector"), arrays, [executable(*arrays)]


def equation() -> Program:
    """Three species: growth and competition."""
    t, u, p = (sg.placeholder(shape, sg.float64) for shape in ((), (3,), (3, 3)))
    executable = sg.Session().compile(u * (1 - p @ u) * (1 + 0.1 * sg.sin(t)), [t, u, p])
    rng = np.random.default_rng(3)
    arrays = [doubles(0.5).reshape(()), rng.random(3), rng.random((3, 3))]
    return executable.cfunc("ode"), arrays, [executable(*arrays)]


def number() -> Program:
    """A function of one number, with parameters."""
    x, user = sg.placeholder((), sg.float64), sg.placeholder((2,), sg.float64)
    executable = sg.Session().compile(sg.exp(-user[0] * x) * sg.sin(user[1] * x), [x, user])
    arrays = [np.array(0.75), doubles(0.5, 3.0)]
    return executable.cfunc("scalar"), arrays, [executable(*arrays)]


def numbers() -> Program:
    """A function of several, with parameters."""
    x, user = sg.placeholder((9,), sg.float64), sg.placeholder((4,), sg.float64)
    executable = sg.Session().compile(sg.sum(sg.sort(x) ** 2) * sg.prod(user), [x, user])
    arrays = [np.random.default_rng(9).normal(size=9), doubles(1, 2, 3, 4)]
    return executable.cfunc("scalars"), arrays, [executable(*arrays)]


def programs() -> dict[str, Program]:
    """One for each signature, and for each place where a call may have its memory."""
    return {
        "slots on the stack": slots(5), "slots in a block": slots(300), "logp": density("logp"),
        "nlopt": density("nlopt"), "vector": transformed(), "ode": equation(), "scalar": number(),
        "scalars": numbers(),
    }  # fmt: skip


__all__ = [
    "COMPILER",
    "STRICT",
    "address",
    "built",
    "call_at_once",
    "density",
    "doubles",
    "loaded",
    "programs",
    "slots",
]
