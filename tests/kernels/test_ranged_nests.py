"""Loops over open sizes that move rows through registers: short rows of which each lane takes one, and transposes.

Each program runs on every target of this machine at sizes around those of vectors and tiles, beside NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.targets import EVERY

import staticgrad as sg
from staticgrad.base.extents import is_open
from staticgrad.compiler.emit.nest.tiles import Tiles
from staticgrad.graph.graph import Tensor

ROWS = (53, 16, 3, 1)  # of the ranges 33 to 64 and 1 to 16
SHORT = (1, 2, 3, 7, 8, 9, 15, 16, 17, 21, 32, 33, 50, 64)  # the third range still passes through tiles
EDGES = ((1, 1), (16, 16), (3, 15), (17, 16), (32, 17), (31, 33), (64, 40), (33, 64), (130, 70), (1, 40), (70, 255))


def opened(dtype: str, *shape: int | None) -> Tensor:
    return sg.placeholder(tuple(sg.dim("nm"[i]) if size is None else size for i, size in enumerate(shape)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", EVERY)
def test_short_rows_of_open_lengths(target: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    with sg.Graph() as graph:
        x, shift = opened(dtype, None, None), sg.placeholder((sg.dim("m"),), dtype)
        y = x * x - shift
        fetches = [sg.nn.softmax(y, 1), sg.argmin(y, 1), sg.min(y, 1), sg.sum(y, 1)]
    with sg.Session(graph, num_threads=1) as session:
        executable, staged = session.compile(fetches, [x, shift]), False
        for rows in ROWS:
            for length in SHORT:
                rng = np.random.default_rng([rows, length])
                a, b = rng.normal(size=(rows, length)).astype(dtype), rng.normal(size=length).astype(dtype)
                soft, nearest, least, total = executable(a, b)
                want = a * a - b
                powers = np.exp(want - want.max(1, keepdims=True))
                limit = 1e-5 if dtype == "float32" else 1e-13
                np.testing.assert_allclose(soft, powers / powers.sum(1, keepdims=True), limit, err_msg=str(a.shape))
                np.testing.assert_array_equal(nearest, want.argmin(1), str(a.shape))
                np.testing.assert_allclose(least, want.min(1), limit, limit)
                np.testing.assert_allclose(total, want.sum(1), limit, limit * length)
                staged = staged or "short rows staged" in executable.text("kernels")
        assert session.compile_count == 6
        assert staged or "avx512" not in target  # elsewhere rows of the first range fill no vector


def open_tiles(monkeypatch: pytest.MonkeyPatch) -> set[bool]:
    """A set that tells of the tiles of open rows that are made from now on, whether they are masked."""
    seen: set[bool] = set()
    make = Tiles.__init__

    def noted(self: Tiles, *arguments: Any) -> None:
        make(self, *arguments)
        if is_open(self.size):
            seen.add(self.is_masked)

    monkeypatch.setattr(Tiles, "__init__", noted)
    return seen


@pytest.mark.parametrize("target", [target for target in EVERY if "avx512" in target])
def test_tiles_of_open_lengths_that_end_with_their_row(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at least as long as a tile is wide: the last tile repeats columns of the one before and is not masked."""
    seen = open_tiles(monkeypatch)
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    with sg.Graph() as graph:
        x = opened("float32", None, None)
        fetches = [sg.argmin(x * x, 1), sg.min(x * x, 1)]
    executable = sg.Session(graph, num_threads=1).compile(fetches, [x])
    for rows, length in ((500, 20), (500, 17), (497, 31), (40, 32), (3, 23)):
        a = np.random.default_rng([rows, length]).normal(size=(rows, length)).astype(np.float32)
        nearest, least = executable(a)
        np.testing.assert_array_equal(nearest, (a * a).argmin(1), f"{rows} x {length}")
        np.testing.assert_array_equal(least, (a * a).min(1), f"{rows} x {length}")
    assert seen == {False}


MOVES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "transposed": (lambda x: sg.transpose(x, (0, 2, 1)), lambda a: a.transpose(0, 2, 1)),
    "numbered": (
        lambda x: sg.transpose(x, (0, 2, 1)) + sg.arange(x.shape[1], dtype=x.dtype),
        lambda a: a.transpose(0, 2, 1) + np.arange(a.shape[1], dtype=a.dtype),
    ),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("target", EVERY)
def test_transposes_of_open_sizes_go_in_strips(
    target: str, move: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    declare, numpy = MOVES[move]
    with sg.Graph() as graph:
        x = sg.placeholder((2, sg.dim("n"), sg.dim("m")), dtype)
        y = declare(x)
    seen = set()
    with sg.Session(graph, num_threads=1) as session:
        executable = session.compile(y, x)
        for rows, columns in EDGES:
            a = np.random.default_rng(rows).normal(size=(2, rows, columns)).astype(dtype)
            np.testing.assert_array_equal(executable(a), numpy(a), f"{rows} x {columns}")
            seen |= set(re.findall(r"strips of (\d+) rows", executable.text("kernels")))
    assert seen, "no plan had strips"


def drawn_rows(rng: np.random.Generator, x: Tensor, shift: Tensor) -> list[Tensor]:
    """Results of short rows: some reductions of a chain of ops, and for every second program what is computed from them
    for each element. Without that a tile may end with its row, and needs no mask."""
    y = x
    for _ in range(rng.integers(1, 4)):
        y = [lambda y: y * x, lambda y: y - shift, lambda y: sg.abs(y) + x, lambda y: 0.5 * y + shift][rng.integers(4)](
            y
        )
    kinds = [sg.min, sg.max, sg.sum, sg.mean, lambda y, axis: sg.nn.softmax(y, axis), sg.argmax, sg.argmin]
    found = [kinds[kind](y, 1) for kind in rng.choice(len(kinds), size=rng.integers(1, 4), replace=False)]
    return [*found, y - sg.max(y, 1, keepdims=True)] if rng.integers(2) else found


def test_drawn_row_programs_pass_through_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of which the last tile is masked, and rows whose last tile ends with them."""
    seen = open_tiles(monkeypatch)
    monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    for seed in range(2 * len(EVERY)):
        rng = np.random.default_rng([seed, 7])
        dtype, target = ("float32", "float64")[seed % 2], EVERY[seed // 2 % len(EVERY)]
        monkeypatch.setenv("STATICGRAD_TARGET", target)
        with sg.Graph() as graph:
            x, shift = opened(dtype, None, None), sg.placeholder((sg.dim("m"),), dtype)
            fetches = drawn_rows(rng, x, shift)
        ranged, exact = (sg.Session(graph, num_threads=1, sizes=kind) for kind in ("ranges", "exact"))
        executables = [session.compile(fetches, [x, shift]) for session in (ranged, exact)]
        drawn = zip(rng.integers(1, 65, 4), rng.choice(SHORT, 4), strict=True)
        for rows, length in ((500, 20), *drawn):
            arrays = rng.normal(size=(rows, length)).astype(dtype), rng.normal(size=length).astype(dtype)
            got, want = (executable(*arrays) for executable in executables)
            limit = 1e-5 if dtype == "float32" else 1e-13
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, limit, limit * length, err_msg=f"seed {seed}: {rows} x {length}")
    if any("avx512" in target for target in EVERY):
        assert seen == {True, False}
