"""Routines, loops and draws of open sizes beside NumPy, at all sizes of the first range and some of the second.

Kernels of a target are compiled as one module, and run on every target of this machine. Scratch memory is filled with
NaN patterns first, and such patterns lie around operands and results. Programs run beside the interpreter, and at some
sizes beside programs that are compiled for these.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.selection import rotating
from support.targets import EVERY

import staticgrad as sg
from staticgrad.base.extents import OpenSize, at_sizes, extent_of, open_sizes
from staticgrad.compiler.emit.families import plan_kernel
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.emit.routines.batch import emit_batch
from staticgrad.compiler.kernels.routines import (
    Batch,
    Block,
    Cholesky,
    Cumulation,
    Elimination,
    Householder,
    Singular,
    Sort,
    Symmetric,
    TriangularSolve,
)
from staticgrad.compiler.machine.target import SMALL_TARGETS, TARGETS
from staticgrad.compiler.native.module import NativeModule
from staticgrad.runtime.parts.threads import pool_address

F32, F64, I16, I32, I64 = (np.dtype(name) for name in ("float32", "float64", "int16", "int32", "int64"))
APART = 64  # bytes before and behind each array
FIRST, SECOND, LONG = (1, 16), (17, 32), (129, 700)
Array = np.ndarray[Any, Any]


def opened(number: int, bounds: tuple[int, int], name: str) -> int:
    return extent_of(OpenSize(number, *bounds, name))


# -- kernels --------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A batch of open sizes: ``operands`` draws the operands at some sizes, ``check`` refuses wrong results."""

    kernel: Batch
    operands: Callable[[Batch, np.random.Generator], list[Array]]
    check: Callable[[Batch, list[Array], list[Array]], None]

    @property
    def samples(self) -> list[tuple[int, ...]]:
        """All sizes of one of the first range; of others, and of several, the ends and some."""
        open_ = {size.number: size for size in open_sizes(self.kernel)}
        ranges: list[list[int]] = [[0]] * (1 + max(open_))
        for number, size in open_.items():
            middle = (size.low + size.high) // 2
            ranges[number] = sorted({size.low, size.low + 1, middle, size.high - 1, size.high})
            if len(open_) == 1 and size.high == FIRST[1]:
                ranges[number] = list(range(size.low, size.high + 1))
        return list(itertools.product(*ranges))


def drawn(batch: Batch, rng: np.random.Generator) -> list[Array]:
    """Any numbers for each operand of all pieces, (count, elements)."""
    blocks = batch.routine.blocks[: len(batch.routine.blocks) - len(batch.results)]
    return [values(rng, block, batch.count) for block in blocks]


def values(rng: np.random.Generator, block: Block, count: int) -> Array:
    shape = (count, block.elements)
    if block.dtype.kind == "f":
        return rng.uniform(0.5, 1.5, shape).astype(block.dtype)
    return rng.integers(1, 4, shape).astype(block.dtype)


def close(got: Array, want: Array, factor: float = 50) -> None:
    eps = np.finfo(got.dtype).eps if got.dtype.kind == "f" else 0
    np.testing.assert_allclose(got.astype(F64), want.astype(F64), rtol=factor * eps, atol=factor * eps)


def cumulated(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    r: Any = batch.routine
    blocks = [x.reshape(batch.count, r.length, r.width) for x in operands]
    blocks = [x[:, ::-1] for x in blocks] if r.reverse else blocks
    if r.kind == "recurrence":
        state, rows = np.zeros_like(blocks[0][:, 0]), []
        for k in range(r.length):
            state = blocks[0][:, k] * state + blocks[1][:, k]
            rows.append(state)
        want = np.stack(rows, 1)
    else:
        ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[r.kind]
        want = ufunc.accumulate(blocks[0], 1, dtype=r.dtype)
    close(results[0].reshape(want.shape), want[:, ::-1] if r.reverse else want)


def some_equal(batch: Batch, rng: np.random.Generator) -> list[Array]:
    block = batch.routine.blocks[0]
    x = rng.integers(-6, 7, (batch.count, block.elements)).astype(block.dtype)
    if block.dtype.kind == "f":
        x[rng.random(x.shape) < 0.1] = np.nan
    return [x]


def sorted_(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    r, (x,) = batch.routine, operands
    assert isinstance(r, Sort)
    order = np.argsort(x, -1, stable=True)
    if r.descending:  # NaN first, equal ones in their order
        order = x.shape[1] - 1 - np.argsort(x[:, ::-1], -1, stable=True)[:, ::-1]
    if r.indices:
        np.testing.assert_array_equal(results[-1], order)
    if r.values:
        np.testing.assert_array_equal(results[0], np.take_along_axis(x, order, -1))


def square(x: Array, size: int) -> Array:
    return x.reshape(-1, size, size).astype(F64)


def definite(batch: Batch, rng: np.random.Generator) -> list[Array]:
    n, dtype = batch.routine.size, batch.routine.dtype  # type: ignore[attr-defined]
    x = rng.uniform(-1, 1, (batch.count, n, n))
    return [(x + x.transpose(0, 2, 1) + 2 * n * np.eye(n)).astype(dtype).reshape(batch.count, -1)]


def factored(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    n = batch.routine.size  # type: ignore[attr-defined]
    want = np.linalg.cholesky(square(operands[0], n)).transpose(0, 2, 1)
    close(results[0].reshape(want.shape), want)


def system(batch: Batch, rng: np.random.Generator) -> list[Array]:
    r: Any = batch.routine
    t = rng.uniform(-1, 1, (batch.count, r.size, r.size)) / (r.size if r.unit else 1) + 2 * np.eye(r.size)
    return [t.astype(r.dtype).reshape(batch.count, -1), drawn(batch, rng)[1]]


def solved(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    r: Any = batch.routine
    t = square(operands[0], r.size)
    t = np.tril(t) if r.lower else np.triu(t)
    if r.unit:
        t[:, range(r.size), range(r.size)] = 1
    t = t.transpose(0, 2, 1) if r.transposed else t
    b, x = (y.reshape(batch.count, r.size, r.width) for y in (operands[1], results[0]))
    close(x, np.linalg.solve(t, b.astype(F64)), 500)


def eliminated(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    n = batch.routine.size  # type: ignore[attr-defined]
    a, lu, order = square(operands[0], n), square(results[0], n), results[1]
    lower, upper = np.tril(lu, -1) + np.eye(n), np.triu(lu)
    assert np.abs(np.tril(lu, -1)).max(initial=0) <= 1
    close((lower @ upper).astype(results[0].dtype), np.take_along_axis(a, order[:, :, None], 1), 500)
    parity = [np.linalg.det(np.eye(n)[row]) for row in order]
    close(results[2][:, 0], np.round(parity))


def orthogonal(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    r: Any = batch.routine
    q, triangle = (y.reshape(batch.count, r.columns, -1).transpose(0, 2, 1) for y in results)
    close(q @ triangle, operands[0].reshape(batch.count, r.columns, r.rows).transpose(0, 2, 1), 500)


def eigen(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    close(results[0], np.linalg.eigvalsh(square(operands[0], batch.routine.size)), 2000)  # type: ignore[attr-defined]


def singular(batch: Batch, operands: list[Array], results: list[Array]) -> None:
    r: Any = batch.routine
    a = operands[0].reshape(batch.count, r.columns, r.rows).astype(F64)
    close(results[1], np.linalg.svd(a, compute_uv=False), 2000)


def sized(shape: Sequence[int | str], bounds: tuple[int, int]) -> list[int]:
    """Sizes, of which "n" is open in a range and "b" in the first one."""
    extents = {"n": opened(0, bounds, "n"), "b": opened(1, FIRST, "b")}
    return [extents[size] if isinstance(size, str) else size for size in shape]


def cumulations() -> Iterator[Case]:
    shapes = ((1, "n", 1), (13, "n", 1), ("b", "n", 1), (3, "n", 5), (2, 7, "n"), (2, "b", "n"), ("n", 11, 1))
    ways = itertools.cycle(itertools.product(("sum", "prod", "recurrence", "max", "min"), (False, True)))
    dtypes = itertools.cycle((F64, F32, I32, I64, I16))
    for bounds, shape in itertools.product((FIRST, FIRST, FIRST, SECOND, (33, 64)), shapes):
        count, length, width = sized(shape, bounds)
        kind, reverse = next(ways)
        yield Case(Batch(Cumulation(kind, next(dtypes), length, width, reverse), count), drawn, cumulated)


def sorts() -> Iterator[Case]:
    shapes: tuple[tuple[int | str, ...], ...] = ((1, "n"), (3, "n"), (21, "n"), ("b", "n"), ("n", 9))
    wants = itertools.cycle(((True, False), (False, True), (True, True)))
    orders, dtypes = itertools.cycle((False, True)), itertools.cycle((F64, F32, I32, I16))
    for bounds, shape in itertools.product((FIRST, FIRST, SECOND, (33, 64), LONG), shapes):
        count, length = sized(shape, bounds)
        if bounds != LONG or shape in shapes[1:3]:
            routine = Sort(next(dtypes), length, next(orders), *next(wants))
            results = (0, 1) if routine.values and routine.indices else (0,)
            yield Case(Batch(routine, count, results), some_equal, sorted_)


def matrices() -> Iterator[Case]:
    shapes: tuple[tuple[int | str, ...], ...] = ((1, "n"), ("b", 6), ("b", "n"))
    for (bounds, dtype), shape in itertools.product(
        ((FIRST, F64), (FIRST, F32), (SECOND, F64), ((33, 64), F64)), shapes
    ):
        count, size = sized(shape, bounds)
        yield Case(Batch(Cholesky(dtype, size), count), definite, factored)
        yield Case(Batch(Elimination(dtype, size), count, (0, 1, 2)), drawn_square, eliminated)
    systems = ((1, "n", 1), (2, "n", 3), (1, "n", "b"), (1, "n", 40), (1, 5, "n"), ("b", 6, 2), ("b", "n", 9))
    flags = itertools.cycle(itertools.product((False, True), repeat=3))
    for (bounds, dtype), system_ in itertools.product(((FIRST, F64), (FIRST, F32), (SECOND, F64)), systems):
        count, size, width = sized(system_, bounds)
        yield Case(Batch(TriangularSolve(dtype, size, width, *next(flags)), count), system, solved)
    b = opened(0, FIRST, "b")
    yield Case(Batch(Householder(F64, 7, 4, 4), b, (0, 1)), drawn, orthogonal)
    yield Case(Batch(Symmetric(F64, 5, vectors=True), b, (0, 1)), definite, eigen)
    yield Case(Batch(Singular(F64, 6, 4, vectors=True), b, (0, 1, 2)), drawn, singular)


def drawn_square(batch: Batch, rng: np.random.Generator) -> list[Array]:
    return [rng.uniform(-1, 1, (batch.count, batch.routine.blocks[0].elements)).astype(batch.routine.blocks[0].dtype)]


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "cumulations": cumulations, "sorts": sorts, "matrices": matrices,
}  # fmt: skip


@functools.cache
def cases(group: str) -> list[Case]:
    return list(GROUPS[group]())


@functools.cache
def compiled(group: str, name: str) -> NativeModule:
    """All kernels of a group as one module, with functions ``run0``, …; the last argument are the sizes of a call."""
    target = (TARGETS | SMALL_TARGETS)[name]
    module = IRModule(target, has_sizes=True)
    for number, case in enumerate(cases(group)):
        planned: Any = plan_kernel(case.kernel, target)
        emit_batch(module, planned, f"kernel{number}")
        pointers = len(case.kernel.routine.blocks) + 1 + planned.is_shared + 1
        f = module.function(f"run{number}", ["ptr"] * pointers, internal=False)
        own = f.params if module.takes_sizes(f"kernel{number}") else f.params[:-1]
        address, arguments = f.symbol(f"kernel{number}"), ", ".join(map(str, own))
        f.line(f"call void {address.text}({arguments})")
        f.finish()
    return NativeModule(module.texts(), target)


class Guarded:
    """An array between patterns that are NaN."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype) -> None:
        nbytes = math.prod(shape) * dtype.itemsize
        self.block = np.full(nbytes + 2 * APART, 0xFF, np.uint8)
        self.array = self.block[APART : APART + nbytes].view(dtype).reshape(shape)

    @property
    def address(self) -> int:
        return self.block.ctypes.data + APART

    @property
    def is_whole(self) -> bool:
        return bool((self.block[:APART] == 0xFF).all() and (self.block[-APART:] == 0xFF).all())


def run(native: NativeModule, case: Case, number: int, sizes: tuple[int, ...], threads: int) -> list[Array]:
    """Run a kernel at some sizes and check it; gives its results."""
    planned, batch = plan_kernel(case.kernel, native.target), at_sizes(case.kernel, sizes)
    what = f"{native.target.name}: {case.kernel.text} at {sizes}"
    operands = case.operands(batch, np.random.default_rng([number, *sizes]))
    arrays = [Guarded((batch.count, block.elements), block.dtype) for block in batch.routine.blocks]
    for memory, x in zip(arrays, operands, strict=False):
        memory.array[:] = x
    nbytes = planned.scratch_bytes(threads)
    scratch = np.full(nbytes + 128, 0xFF, np.uint8)
    start = -scratch.ctypes.data % 64
    table = np.array(sizes, np.int64)
    pointers = [memory.address for memory in arrays] + [scratch.ctypes.data + start]
    pointers += [pool_address(threads)] * planned.is_shared + [table.ctypes.data]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(native.address(f"run{number}"))(*pointers)
    assert all(memory.is_whole for memory in arrays), f"{what}: wrote behind an array"
    assert (scratch[start + nbytes :] == 0xFF).all(), f"{what}: wrote behind its scratch memory"
    results = [memory.array for memory in arrays[len(operands) :]]
    try:
        case.check(batch, operands, results)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    return results


@pytest.mark.parametrize(("group", "name"), rotating((group, name) for group in GROUPS for name in EVERY))
def test_routines_of_open_sizes_match_numpy(group: str, name: str) -> None:
    native = compiled(group, name)
    for number, case in enumerate(cases(group)):
        for sizes in case.samples:
            results = run(native, case, number, sizes, threads=1)
            if plan_kernel(case.kernel, native.target).is_shared:
                for one, two in zip(results, run(native, case, number, sizes, threads=2), strict=True):
                    np.testing.assert_array_equal(one, two)


# -- programs -------------------------------------------------------------------------------------------------------

Declared = tuple[list[sg.Tensor], dict[sg.Tensor, Callable[[int, int], tuple[int, ...]]]]
SPOTS = [(7, 3), (23, 17)]  # sizes of which each also has an exact program
SIZES = [*SPOTS, *((n, (5 * n) % 16 + 1) for n in range(1, 17)), (17, 2), (32, 32), (9, 20)]


def placeholder(*shape: Any) -> sg.Tensor:
    return sg.placeholder(shape, sg.float64)


def orders() -> Declared:
    x = placeholder(None, None)
    y = sg.sort(x, axis=1)
    total = sg.sum(y * y * sg.arange(x.shape[1], dtype=sg.float64))
    return [y, sg.argsort(x, axis=0, descending=True), *sg.gradients(total, x)], {x: lambda n, m: (n, m)}


def largest_and_search() -> Declared:
    x, row = placeholder(None, 12), placeholder(None)
    found, places = sg.topk(x, 3)
    return (
        [found, places, sg.searchsorted(sg.sort(row), row * 0.9), *sg.gradients(sg.sum(found * found), x)],
        {x: lambda n, m: (n, 12), row: lambda n, m: (m,)},
    )


def running() -> Declared:
    x = placeholder(None, None)
    y, z = sg.cumulative_sum(x, axis=1), sg.cumulative_prod(x * 0.5 + 1, axis=0)
    return [y, z, *sg.gradients(sg.sum(y * y) + sg.sum(z), x)], {x: lambda n, m: (n, m)}


def scan_of_both() -> Declared:
    x, w = placeholder(None, None, 4), placeholder(4, 4)
    start = sg.zeros((x.shape[1], 4), sg.float64)
    last, rows = sg.scan(lambda c, v: (sg.tanh(c @ w + v), c), start, x)
    return (
        [last, rows, *sg.gradients(sg.sum(last) + sg.sum(rows * rows), [x, w])],
        {x: lambda n, m: (n, m, 4), w: lambda n, m: (4, 4)},
    )


def reverse_scan() -> Declared:
    x, q = placeholder(None, None), placeholder(None)
    last, rows = sg.scan(lambda c, v: (sg.logaddexp(c, v * q), c + q), q * 0, x, reverse=True)
    return (
        [last, rows, *sg.gradients(sg.sum(last) + sg.sum(rows * rows), [x, q])],
        {x: lambda n, m: (n, m), q: lambda n, m: (m,)},
    )


def mapped() -> Declared:
    x, q = placeholder(None, 4), placeholder(None, 4)
    y = sg.map(lambda v: sg.sum(sg.exp(-((q - v) ** 2)), axis=0), x)
    return [y, *sg.gradients(sg.sum(y * y), [x])], {x: lambda n, m: (n, 4), q: lambda n, m: (m, 4)}


def loops_and_branches() -> Declared:
    x = placeholder(None)
    y = sg.while_loop(lambda s: sg.sum(s * s) < 10.0, lambda s: s * 1.5 + 0.1 * x, x, max_steps=12)
    z = sg.cond(sg.sum(x) > 0, lambda: x * x, lambda: sg.exp(x))
    _, turns = sg.scan(lambda c, _: (c * 1.1 + 0.1, c), sg.constant(1.0, sg.float64), length=x.shape[0])
    return [y, z, turns, *sg.gradients(sg.sum(y * y) + sg.sum(z), x)], {x: lambda n, m: (n,)}


def ode() -> Declared:
    t, y0, w = placeholder(None), placeholder(None, 3), placeholder(3, 3)

    def step(y: sg.Tensor, h: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        middle = y + 0.5 * h * sg.tanh(y @ w)
        return y + h * sg.tanh(middle @ w), y

    last, rows = sg.scan(step, y0, t * 0.1)
    return (
        [last, rows, *sg.gradients(sg.sum(last * last) + sg.sum(rows), [y0, w, t])],
        {t: lambda n, m: (n,), y0: lambda n, m: (m, 3), w: lambda n, m: (3, 3)},
    )


def gaussian_process() -> Declared:
    x, y, scale = placeholder(None, 2), placeholder(None), placeholder()
    difference = x[:, None, :] - x[None, :, :]
    kernel = sg.exp(-0.5 * sg.sum(difference**2, axis=2) * scale * scale) + 0.1 * sg.eye(x.shape[0], dtype=sg.float64)
    factor = sg.linalg.cholesky(kernel)
    a = sg.linalg.solve_triangular(factor, y[:, None])
    diagonal = sg.sum(factor * sg.eye(x.shape[0], dtype=sg.float64), axis=1)
    loss = 0.5 * sg.sum(a * a) + sg.sum(sg.log(diagonal))
    return [loss, *sg.gradients(loss, [x, scale])], {
        x: lambda n, m: (n, 2),
        y: lambda n, m: (n,),
        scale: lambda n, m: (),
    }


def solutions() -> Declared:
    size = sg.dim("size")
    a, b = placeholder(size, size), placeholder(size, None)
    matrix = a + 3 * sg.eye(size, dtype=sg.float64) * (sg.sum(sg.abs(a)) + 1)
    x = sg.linalg.solve(matrix, b)
    return [x, *sg.gradients(sg.sum(x * x), [a, b])], {a: lambda n, m: (n, n), b: lambda n, m: (n, m)}


def batch_of_matrices() -> Declared:
    x = placeholder(None, 4, 4)
    a = x + 5 * sg.eye(4, dtype=sg.float64)
    sign, log = sg.linalg.slogdet(a)
    values_, _ = sg.linalg.eigh(a + sg.matrix_transpose(a))
    q, r = sg.linalg.qr(a)
    total = sg.sum(log) + sg.sum(values_) + sg.sum(sg.linalg.inv(a)) + sg.sum(sg.linalg.svdvals(a)) + sg.sum(r * r)
    return [sign, log, values_, sg.abs(q), sg.linalg.det(a), *sg.gradients(total, x)], {x: lambda n, m: (n, 4, 4)}


def draws() -> Declared:
    x = placeholder(None, None)
    order = sg.random.permutation(x.shape[0], seed=3)
    return (
        [order, sg.take(x, order, axis=0), x + sg.random.normal(x.shape, dtype=sg.float64, seed=4),
         sg.random.uniform((x.shape[1], 3), dtype=sg.float64, seed=5), sg.random.randint((x.shape[0],), 0, 10, seed=6),
         sg.random.categorical(x, seed=7)],
        {x: lambda n, m: (n, m)},
    )  # fmt: skip


def lstm() -> Declared:
    x = placeholder(None, None, 3)
    net = sg.nn.LSTM(3, 4, dtype=sg.float64)
    y = net(x)[0]
    return [y, *sg.gradients(sg.sum(y * y), x)], {x: lambda n, m: (n, m, 3)}


PROGRAMS = [orders, largest_and_search, running, scan_of_both, reverse_scan, mapped, loops_and_branches, ode,
            gaussian_process, solutions, batch_of_matrices, draws, lstm]  # fmt: skip


def results_of(session: sg.Session, declared: Declared, sizes: Sequence[tuple[int, int]]) -> list[list[Array]]:
    fetches, feeds = declared
    executable = session.compile(fetches, list(feeds))
    found = []
    for n, m in sizes:
        rng = np.random.default_rng([n, m])
        found.append(executable(*(rng.uniform(-1, 1, shape(n, m)) for shape in feeds.values())))
    return found


def compare(got: list[list[Array]], want: list[list[Array]], sizes: Sequence[tuple[int, int]]) -> None:
    for at, results, others in zip(sizes, got, want, strict=True):
        for number, (a, b) in enumerate(zip(results, others, strict=True)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), f"result {number} at {at}"
            most = np.abs(b).max(initial=0) if b.dtype.kind == "f" else 0
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * most, err_msg=f"result {number} at {at}")


@pytest.mark.parametrize("declare", rotating(PROGRAMS, 3), ids=lambda declare: declare.__name__)
def test_programs_of_open_sizes_match_the_interpreter(declare: Callable[[], Declared], monkeypatch: Any) -> None:
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    graph = sg.Graph()
    with graph:
        declared = declare()
    with sg.Session(graph, num_threads=2, seed=1) as session:
        got = results_of(session, declared, SIZES)
        assert session.compile_count <= 5  # a program for each of the ranges that are touched
    with sg.Session(graph, num_threads=1, seed=1, sizes="exact") as session:
        compare(got[: len(SPOTS)], results_of(session, declared, SPOTS), SPOTS)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with sg.Session(graph, num_threads=1, seed=1) as session:
        compare(got, results_of(session, declared, SIZES), SIZES)
