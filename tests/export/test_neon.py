"""aarch64: programs compiled for NEON, run by an emulator of its processors, equal the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.cross import Run, emulated, missing
from support.cross_checks import check_drawn, check_edges, check_table, check_training

import staticgrad as sg
from staticgrad.compiler.machine.target import NEON, TARGETS, current_target, runs_here
from staticgrad.compiler.native.codegen import assembly, objects
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.runtime.parts import machinery, threads

emulator = pytest.mark.skipif(bool(missing()), reason=missing())


# -- machine code, which needs no emulator ------------------------------------------------------------------------


def loops_of(x: Tensor, *feeds: Tensor) -> list[list[str]]:
    """The instructions of the innermost loops of a program, without those around them."""
    region = cut(x.graph, [x], {feed: feed.type for feed in feeds})
    lines = assembly(compile_region(region, CompileOptions(NEON)).modules, NEON).splitlines()
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    ends = [(labels[m[1]], number) for number, line in enumerate(lines) if (m := re.match(r"\tb\.lt\t(\.L\w+)$", line))]
    return [
        [line.strip() for line in lines[first + 1 : last + 1]]
        for first, last in ends
        if first < last and not any(first < other < last for other, _ in ends)
    ]


def test_code_is_for_aarch64() -> None:
    (content,) = objects(["define void @f() {\n  ret void\n}\n"], NEON)
    assert content[:4] == b"\x7fELF"
    assert int.from_bytes(content[18:20], "little") == 183  # EM_AARCH64


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("dtype", "lanes"), [(sg.float32, "4s"), (sg.float64, "2d")])
def test_a_product_multiplies_by_lanes_and_keeps_all_sums_in_registers(
    transposed: bool, dtype: np.dtype, lanes: str, g: Graph
) -> None:
    """Of a tile of 8 rows and 3 vectors: a load of each row of A, of two rows where A is transposed, and two of B."""
    x, y = sg.placeholder((256, 256), dtype), sg.placeholder((256, 256), dtype)
    loop = next(loop for loop in loops_of((x.T if transposed else x) @ y, x, y) if "fmla" in " ".join(loop))
    by_lane = [line for line in loop if re.fullmatch(rf"fmla\tv\d+\.{lanes}, v\d+\.{lanes}, v\d+\.[sd]\[0\]", line)]
    loads = [line for line in loop if line.startswith("ld")]
    assert len(by_lane) == sum("fmla" in line for line in loop) == 8 * 3
    assert len(loads) == 2 + (4 if transposed else 8)
    assert len(loop) <= 24 + len(loads) + 5
    assert "sp" not in " ".join(loop)


def test_an_exponential_stays_in_registers(g: Graph) -> None:
    x = sg.placeholder((1000,))
    (loop,) = loops_of(sg.exp(x), x)
    assert sum(line.startswith("ld") for line in loop) == sum(line.startswith("st") for line in loop) == 1
    assert len(loop) <= 33
    assert {"fmin", "fmax", "fmla"} <= {line.split()[0] for line in loop}


def test_a_profiled_program_reads_a_clock_that_programs_may_read(g: Graph) -> None:
    x = sg.placeholder((100,))
    region = cut(g, [sg.exp(x)], {x: x.type})
    text = assembly(compile_region(region, CompileOptions(NEON, timed=True)).modules, NEON)
    assert "CNTVCT_EL0" in text
    assert "PMCCNTR_EL0" not in text


@pytest.mark.parametrize("name", ["small", "neon", "generic"])
def test_an_aarch64_host_runs_neon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")  # as macOS says it
    assert [t.name for t in TARGETS.values() if runs_here(t)] == ["neon", "generic"]
    monkeypatch.delenv("STATICGRAD_TARGET", raising=False)
    assert current_target() is NEON
    monkeypatch.setenv("STATICGRAD_TARGET", name)
    assert current_target().name == {"small": "neon-small"}.get(name, name)


def test_another_machine_does_not_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("STATICGRAD_TARGET", "neon")
    with pytest.raises(sg.StaticGradError, match="this processor lacks its instructions"):
        current_target()


def test_workers_take_over_the_floating_point_modes_of_aarch64(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []

    def part(file: str, *names: str, quick: bool, **numbers: int) -> None:
        texts.extend(machinery.part_text(file, name, **numbers) for name in names)
        raise NotImplementedError

    monkeypatch.setattr(threads, "host_arch", lambda: "aarch64")
    monkeypatch.setattr(threads, "native_part", part)
    with pytest.raises(NotImplementedError):
        threads._module.__wrapped__()
    text = assembly(texts, NEON)
    assert re.search(r"mrs\tx\d+, FPCR", text)
    assert re.search(r"msr\tFPCR, x\d+", text)
    assert re.search(r"^\tyield$", text, re.MULTILINE)


# -- programs -----------------------------------------------------------------------------------------------------


@emulator
def test_the_first_case_of_each_op(tmp_path: Path) -> None:
    check_table("neon", tmp_path, whole=False)


@emulator
@pytest.mark.slow
def test_all_cases_of_each_op(tmp_path: Path) -> None:
    check_table("neon", tmp_path, whole=True)


@emulator
@pytest.mark.slow
def test_edge_values_of_each_elementwise_op(tmp_path: Path) -> None:
    """Also conversions of floats that no integer is near, for which this processor has other results than x86."""
    check_edges("neon", tmp_path)


@emulator
def test_floats_become_integers_as_on_other_processors(tmp_path: Path) -> None:
    values = [0.0, -0.5, 1.7, -2.9, 128.5, -129.0, 255.7, 65536.0, 2.0**31, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30,
              -1e30, np.inf, -np.inf, np.nan]  # fmt: skip
    with sg.Graph() as graph:
        xs = [sg.placeholder((len(values),), dtype) for dtype in (sg.float32, sg.float64)]
        integers = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
        ys = [sg.astype(x, dtype) for x in xs for dtype in integers]
    run = Run(graph, ys, {x: np.array(values, x.dtype) for x in xs})
    (found,) = emulated([run], tmp_path)
    for got, want in zip(found.results, run.interpreted().results, strict=True):
        np.testing.assert_array_equal(got, want)


@emulator
@pytest.mark.parametrize("name", ["conv", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_training_step_of_the_demo(name: str, tmp_path: Path) -> None:
    check_training("neon", name, 32, tmp_path)


@emulator
def test_a_few_drawn_programs(tmp_path: Path) -> None:
    check_drawn("neon", range(1), tmp_path)


@emulator
@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 81, 20))
def test_drawn_programs(first: int, tmp_path: Path) -> None:
    check_drawn("neon", range(first, first + 20), tmp_path)


@emulator
def test_an_error_of_the_emulated_program_is_told(tmp_path: Path) -> None:
    """A check of the program, and a read behind the last byte of a feed."""
    with sg.Graph() as graph:
        x, i = sg.placeholder((5,)), sg.placeholder((1,), sg.int64)
        y = sg.take(x, i)
    feeds = {x: np.arange(5, dtype=np.float32), i: np.array([4])}
    (found,) = emulated([Run(graph, [y], feeds)], tmp_path)
    assert found.results[0].tolist() == [4.0]
    with pytest.raises(RuntimeError, match="a check of a program has failed"):
        emulated([Run(graph, [y], {**feeds, i: np.array([5])})], tmp_path)
    short = Run(graph, [y], feeds)
    short.feeds[x] = short.feeds[x][:4]
    with pytest.raises(RuntimeError, match="status"):
        emulated([short], tmp_path)
