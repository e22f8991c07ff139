"""Targets: a new one is a table, estimates do not depend on who reads them, and small twins differ in sizes alone."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from source_tree import ROOT
from support.large_checks import SCALE, check, environment
from support.large_programs import LAYERS
from support.nests import check as check_nests
from support.random_graphs import random_graph
from support.random_nests import draw, slow_op  # noqa: F401
from support.sampling import relative_error

import staticgrad as sg
from staticgrad.base import config
from staticgrad.base.types import dtype_of
from staticgrad.compiler.emit.llvm import IRModule, value_type
from staticgrad.compiler.emit.scalars.builder import Scalars
from staticgrad.compiler.emit.scalars.lane import Lane
from staticgrad.compiler.machine import target as targets
from staticgrad.compiler.machine.isa import AVX2_ISA
from staticgrad.compiler.machine.machine import HIGH_TILES, Machine
from staticgrad.compiler.machine.op_costs import FREE, OF_FLOATS, cast_cost, method_cost, op_cost
from staticgrad.compiler.machine.target import AVX2, SMALL_TARGETS, TARGETS, Target, runs_here
from staticgrad.graph.optable import NO_ATTRIBUTES
from staticgrad.graph.scalar import ScalarBuilder

COMPILER = ROOT / "compiler"
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)

# -- a new target ---------------------------------------------------------------------------------------------------

# NEON's capabilities with machine code of AVX2: short vectors, no masks, more registers than there are.
LIKE_NEON = Target(
    "like-neon",
    replace(AVX2_ISA, name="like-neon", vector_bytes=16, registers=32, masked_loads=False),
    Machine("a core with 1 MiB", own_cache_bytes=1 << 20, products=HIGH_TILES, interleaved=2),
)


@pytest.fixture
def like_neon(monkeypatch: pytest.MonkeyPatch) -> str:
    """The new target's name, under which programs are compiled for it."""
    if not runs_here(LIKE_NEON):
        pytest.skip("this processor lacks the instructions that stand for NEON's")
    monkeypatch.setitem(targets.TARGETS, LIKE_NEON.name, LIKE_NEON)
    switch = config.SWITCHES["TARGET"]
    monkeypatch.setitem(config.SWITCHES, "TARGET", replace(switch, values=(*switch.values, LIKE_NEON.name)))
    return LIKE_NEON.name


@pytest.mark.usefixtures("like_neon", "slow_op")
def test_nests_are_right_on_a_new_target() -> None:
    drawn = [draw(seed) for seed in range(150)]
    check_nests([d.nest() for d in drawn], [d.data for d in drawn], [LIKE_NEON])


@pytest.mark.parametrize("first", [0, 20, LAYERS, LAYERS + 20, LAYERS + 40])
def test_programs_are_right_on_a_new_target(first: int, like_neon: str) -> None:
    for seed in range(first, first + 6):
        check(seed, [like_neon], SCALE)


@pytest.mark.parametrize("first", [0, 10])
def test_random_graphs_are_right_on_a_new_target(first: int, like_neon: str) -> None:
    for seed in range(first, first + 10):
        case = random_graph(seed, advanced=seed % 2 == 1, dtype=sg.float64)
        found = []
        for backend in ("compiled", "reference"):
            with environment(BACKEND=backend, TARGET=like_neon, CACHE="0"), sg.Session(case.graph) as session:
                found.append(session.run(case.results, case.feeds))
        for number, (a, b) in enumerate(zip(*map(sg.nest.flatten, found), strict=True)):
            assert relative_error(a, b, floor=1e-4) <= 1e-8, f"graph {seed}, result {number}"


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("sizes", [(1, 70, 33), (33, 1, 200), (5, 7, 300), (64, 48, 40), (130, 66, 9), (3, 200, 65)])
def test_products_are_right_on_a_new_target(sizes: tuple[int, int, int], dtype: np.dtype, like_neon: str) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    with sg.Graph() as graph, environment(TARGET=like_neon, CACHE="0"), sg.Session(graph) as session:
        x, y = sg.placeholder((m, k), dtype), sg.placeholder((k, n), dtype)
        u, v = sg.placeholder((k, m), dtype), sg.placeholder((n, k), dtype)
        found = session.run([x @ y, u.T @ y, x @ v.T, sg.nn.relu(x @ y)], {x: a, y: b, u: a.T.copy(), v: b.T.copy()})
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    for got, want in zip(found, (wanted, wanted, wanted, np.maximum(wanted, 0)), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4 if dtype == F32 else 1e-12)


# -- the model ------------------------------------------------------------------------------------------------------


def test_emitters_ask_for_capabilities() -> None:
    """No choice hangs on the name of a target, nor on how many registers come with something else."""
    asked = re.compile(
        r"target\.name\b.*[=!]=|\.(isa|machine)\.name|[\"']\+?avx|registers (==|<=|>) ?\d|\[.*\.registers\]"
    )
    own = ("isa.py", "machine.py", "target.py")
    found = [
        f"{path.relative_to(COMPILER)}:{number}: {line.strip()}"
        for path in sorted(COMPILER.rglob("*.py"))
        if path.name not in own
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asked.search(line)
    ]
    assert not found, "\n".join(found)


def test_rates_stand_in_the_model() -> None:
    rate = re.compile(r"^[A-Z_]*(SECONDS|PER_SECOND|PER_LANE|CYCLES|RATE)\b.* = [0-9.]")
    found = [
        f"{path.relative_to(COMPILER)}: {line}"
        for path in sorted(COMPILER.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if rate.match(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", TARGETS)
def test_a_small_twin_differs_in_sizes_alone(name: str) -> None:
    usual, small = TARGETS[name], SMALL_TARGETS[f"{name}-small"]
    assert small.isa is usual.isa
    assert (small.sized(6400), usual.sized(6400)) == (100, 6400)
    changed = {
        field
        for field in Machine.__dataclass_fields__
        if getattr(small.machine, field) != getattr(usual.machine, field)
    }
    sizes = {"own_cache_bytes", "page", "far_bytes", "near_bytes", "middle_bytes"}
    assert changed == {"name", "divisor", "products", *sizes}
    assert all(getattr(small.machine, size) * 64 == getattr(usual.machine, size) for size in sizes)


# -- what ops cost --------------------------------------------------------------------------------------------------


def written(method: str, operands: int, dtype: np.dtype) -> int:
    """How many lines a method writes for AVX2, with those of functions that it calls; divisions and roots count six."""
    module = IRModule(AVX2)
    f = module.function("cost", [value_type(dtype)] * operands)
    getattr(Scalars(f, 8), method)(*(Lane(f.splat(param, 8), dtype) for param in f.params))
    f.finish()
    lines = module.text().splitlines()[1:]
    slow = sum("fdiv" in line or "llvm.sqrt" in line for line in lines)
    return len(lines) - 3 - 2 * operands + 5 * slow  # without what begins and ends, and two lines for each operand


OF_OTHERS = re.compile("_|const|cast|select|either|loop|outlined|threefry|(logical|bit|bits|shift)_")
METHODS = [name for name in vars(ScalarBuilder) if not OF_OTHERS.match(name)]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("method", METHODS)
def test_numbers_of_methods_are_about_what_is_written(method: str, dtype: np.dtype) -> None:
    operands = len(inspect.signature(getattr(ScalarBuilder, method)).parameters) - 1
    assert written(method, operands, dtype) == pytest.approx(method_cost(method, dtype), rel=0.1, abs=2)


def test_ops_cost_what_their_methods_do() -> None:
    bools = np.dtype(np.bool_)
    assert op_cost("add", "", NO_ATTRIBUTES, (F32, F32)) == 1
    assert op_cost("exp", "", NO_ATTRIBUTES, (F64,)) == OF_FLOATS["exp"][1] - FREE
    assert op_cost("where", "", NO_ATTRIBUTES, (bools, F32, F32)) == 1
    assert op_cost("hypot", "", NO_ATTRIBUTES, (F32, F32)) > 2 * method_cost("div", F32)


@pytest.mark.parametrize(("given", "to", "cost"), [
    ("float32", "float32", 0), ("float32", "int32", 6), ("int64", "uint64", 0), ("bool", "float16", 25),
    ("float16", "bfloat16", 23), ("float64", "float16", 34),
])  # fmt: skip
def test_conversions_cost_what_their_parts_do(given: str, to: str, cost: int) -> None:
    assert cast_cost(dtype_of(given), dtype_of(to)) == cost
