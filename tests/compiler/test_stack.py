"""The stack that programs take: a few KiB for frames and tables, as what kernels pack and stage is in the workspace."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import small_stacks
from support.callers import COMPILER
from support.frames import depth
from support.large_programs import LAYERS, large_program
from support.op_cases import TESTED, declare, typed, varied
from support.selection import slow
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.types import is_floating
from staticgrad.compiler.machine.target import OTHER_TARGETS, TARGETS
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import Op
from staticgrad.runtime.callers.cfunction_text import MOST_ON_STACK, Form, text

VECTORS = [TARGETS[name] for name in ("avx512", "avx2", "generic")]


# -- by LLVM's figures ------------------------------------------------------------------------------------------------


def check_depths(exe: sg.Executable, feeds: Sequence[Tensor], what: object) -> None:
    """The program takes no more than machines say, compiled for each target and two threads."""
    for target in VECTORS:
        how = replace(exe._programs.options, target=target, workers=2)
        program = exe._programs.compiler.unloaded(exe._programs.fetched.wanted, {x: x.type for x in feeds}, how)
        taken = depth(program.modules, target)
        assert taken <= target.machine.frame_bytes < MOST_ON_STACK, f"{target.name}: {what}: {taken} bytes"


def check_drawn(seed: int, scale: int = 1) -> None:
    program = large_program(seed, scale=scale)
    exe = sg.Session(program.graph, num_threads=2).compile(program.fetches, list(program.feeds))
    check_depths(exe, list(program.feeds), program)


@pytest.mark.parametrize("seed", [14, LAYERS + 3])
def test_a_drawn_program_takes_a_few_kib_of_the_stack(seed: int) -> None:
    check_drawn(seed)


@pytest.mark.parametrize("first", [slow(first) for first in (*range(0, 400, 20), *range(LAYERS, LAYERS + 200, 20))])
def test_drawn_programs_take_a_few_kib_of_the_stack(first: int) -> None:
    for seed in range(first, first + 20):
        check_drawn(seed)


def check_op(op: Op) -> None:
    """All cases of an op with their gradients, in one program for each dtype."""
    for dtype in typed(op)[-2:]:
        feeds: list[Tensor] = []
        fetches: list[Tensor] = []
        wanted: list[Tensor] = []
        with Graph() as graph:
            for case in op.cases:
                xs, ys = declare(graph, op, case, dtype)
                wanted += [xs[i] for i in varied(case) if is_floating(xs[i].dtype)]
                feeds += xs
                fetches += ys
            values = [sg.astype(sg.sum(y), sg.float64) for y in fetches if is_floating(y.dtype)]
            if values and wanted and op.differentiable:
                loss = sum(values[1:], values[0])
                fetches += [x for x in sg.gradients(loss, wanted, unconnected_gradients="zero") if x is not None]
        check_depths(sg.Session(graph).compile(fetches, feeds), feeds, f"{op.name} of {dtype}")


QUICK = ("matmul", "lgamma")


@pytest.mark.parametrize("op", [op if op.name in QUICK else slow(op) for op in TESTED], ids=lambda op: op.name)
def test_an_op_takes_a_few_kib_of_the_stack(op: Op) -> None:
    check_op(op)


@pytest.mark.parametrize("target", ["avx512", "generic", "cortex-m4", "riscv32"])
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_an_exported_function_takes_no_more_of_the_stack_than_its_header_says(
    target: str, optimize: Any, tmp_path: Path
) -> None:
    with Graph() as graph:
        fetches, feeds, _ = small_stacks.products(200)
    exe = sg.Session(graph).compile(fetches, feeds)
    report = exe.export(tmp_path / "net.ll", format="llvm", target=target, name="net", optimize=optimize)
    (entry,) = report.interface.entries
    known = {**TARGETS, **OTHER_TARGETS}[target]
    assert depth([(tmp_path / "net.ll").read_text()], known, entry.name) <= entry.stack_bytes == report.stack_bytes
    header = (tmp_path / "net.h").read_text()
    assert re.search(rf"_STACK_BYTES {entry.stack_bytes} ", header)
    assert f"{entry.stack_bytes:>12}" in str(report)
    if target == "avx512":  # which packs at this size
        assert entry.workspace_bytes > exe.memory.lower_bound_bytes - exe.memory.scratch_bytes + (100 << 10)


@pytest.mark.parametrize("slots", [10, 100_000])
def test_a_long_table_of_slots_is_not_on_the_stack(slots: int) -> None:
    form = Form("slots", slots, 10 << 10, 1, (8,), ((0, 0),), ((1, 0),))
    for target in VECTORS:
        assert depth([text(form, target)], target, "entry") + target.machine.frame_bytes <= MOST_ON_STACK


# -- by calls ---------------------------------------------------------------------------------------------------------


EACH = len(small_stacks.PROGRAMS)
WAYS = [("exe", 2, 1), ("cfunc", 1, 1), ("load", 1, 1), ("shared", 1, 1)]
ALL = [slow(way, threads, EACH) for way, threads, _ in (*WAYS, ("exe", 1, 1))]


@pytest.mark.parametrize(("way", "threads", "count"), [*WAYS, *ALL])
def test_threads_of_little_stack_run_what_packs(way: str, threads: int, count: int) -> None:
    if way == "shared" and COMPILER is None:
        pytest.skip("there is no C compiler")
    command = [sys.executable, small_stacks.__file__, way, str(threads), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"
    assert done.stdout == f"{count} right\n"


def test_calls_at_once_pack_in_memory_of_their_own(g: Graph) -> None:
    fetches, feeds, (x,) = small_stacks.products(150)
    exe = sg.Session(g, num_threads=1).compile(fetches, feeds)
    arrays = [x * number for number in range(1, 5)]
    want = [exe(each) for each in arrays]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            got = exe(arrays[number])
            if not all(map(np.array_equal, got, want[number])):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- the place of scratch memory --------------------------------------------------------------------------------------


def test_products_pack_into_one_place(g: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in a cache from one product to the next, as the stack did."""
    monkeypatch.setenv("STATICGRAD_TARGET", HERE[0])  # where the cache is no small one
    fetches, feeds, _ = small_stacks.products(300)
    memory = sg.Session(g, num_threads=1).compile(fetches, feeds).memory
    (packing,) = [b for b in memory.buffers if b.name == "packing"]
    assert packing.last - packing.first > 1
    assert memory.scratch_bytes == packing.nbytes > 100 << 10
    assert f"{packing.nbytes >> 10}" in str(memory).partition(" of it scratch")[0]


def test_under_a_budget_each_product_packs_where_memory_is_free(g: Graph) -> None:
    fetches, feeds, (x,) = small_stacks.products(300)
    session = sg.Session(g, num_threads=1)
    plain = session.compile(fetches, feeds)
    tight = session.compile(fetches, feeds, memory_budget=plain.memory.arena_bytes)
    assert not [b for b in tight.memory.buffers if b.name == "packing"]
    assert tight.memory.arena_bytes <= plain.memory.arena_bytes
    for got, want in itertools.zip_longest(tight(x), plain(x)):
        np.testing.assert_array_equal(got, want)
