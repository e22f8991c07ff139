"""The benchmarks' tools: what is drawn, how answers are judged, floors, reports, and a small run from end to end."""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT

import staticgrad as sg
from staticgrad.runtime.measured import machine
from staticgrad.tools import cli

HERE = ROOT / "benchmarks"
TOOLS = (
    "answers", "calls", "catalog", "chart", "collectives", "compile_time", "convolutions", "exported", "figures",
    "gemm", "growing", "from_jax", "history", "hot_functions", "instruction_sets", "interpreters",
    "kernel_cases", "kernels", "measure", "models", "peers", "report", "run", "sizes", "sparse",
    "sparse_problems", "spread", "systems", "turns", "workloads",
)  # fmt: skip


class Tools:
    """The benchmarks' modules, which lie on no path but their own."""

    def __getattr__(self, name: str) -> Any:
        return importlib.import_module(name)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(HERE))
    yield Tools()
    for name in [name for name in sys.modules if name.split(".")[0] in TOOLS]:
        del sys.modules[name]


def bench(*arguments: str, **switches: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "run.py"), *arguments], capture_output=True, text=True, check=False,
        env=os.environ | switches,
    )  # fmt: skip


# -- workloads --------------------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Two workloads, array by array."""
    first, second = (
        [*(x for feed in w.feeds for x in feed), *w.parameters.values(), *w.buffers.values()] for w in (a, b)
    )
    if (a.about, a.model, a.optimizer, len(first)) != (b.about, b.model, b.optimizer, len(second)):
        return False
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("number", range(24))
def test_a_drawn_workload_depends_on_its_seed_alone(tools: Any, number: int) -> None:
    name = f"drawn_{number}"
    first = tools.catalog.load(name, 3)
    assert same(first, tools.catalog.load(name, 3))
    assert not same(first, tools.catalog.load(name, 4))
    assert first.about
    assert first.traffic > 0


def test_names_that_there_are_not_are_refused(tools: Any) -> None:
    for name in ("gemm_65", "drawn_x", "drawn", "drawn_-1"):
        with pytest.raises(KeyError):
            tools.catalog.load(name)


def test_flops_and_traffic_of_known_workloads(tools: Any) -> None:
    gemm = tools.catalog.load("gemm_64")
    assert (gemm.flops, gemm.traffic) == (2 * 64**3, 3 * 4 * 64 * 64)
    mlp = tools.catalog.load("mlp_small")
    layers = [64 * 32, 32 * 32, 32 * 10]
    assert mlp.flops == 2 * 32 * (3 * sum(layers) - layers[0])
    parameters = sum(layers) + 32 + 32 + 10
    assert mlp.traffic == 4 * (4 * parameters) + 4 * 32 * 64 + 8 * 32 + 4
    assert tools.catalog.load("copy").traffic == 2 * 4 * 4_000_000


def test_the_grid_of_products_has_sixty_shapes_of_known_forms(tools: Any) -> None:
    gemm = tools.gemm
    texts = gemm.grid_texts(())
    assert len(texts) == len(set(texts)) == 60
    assert gemm.grid_texts(("vector",)) == gemm.GRID["vector"].split()
    for text in texts:
        shape = gemm.named_shape(text, "float32")
        assert str(shape).split()[0].replace(":nn", "") in (text, f"{text}x{text}x{text}")
        assert shape.flops > 0
        assert {*shape.ways} <= {*"nt"}
    dense = gemm.named_shape("2x3x4x5:nt+relu", "float64")
    assert (dense.m, dense.n, dense.k, dense.batch, dense.ways, dense.relu) == (2, 3, 4, 5, "nt", True)
    assert dense.traffic == 8 * 5 * (2 * 4 + 4 * 3 + 2 * 3)


# -- answers ----------------------------------------------------------------------------------------------------------


def test_answers_are_judged_by_the_largest_of_the_reference(tools: Any) -> None:
    mismatch = tools.answers.mismatch
    assert mismatch([[100.0, 1.0]], [[100.0, 1.005]], 1e-4) is None
    assert "result 0" in mismatch([[100.0, 1.02]], [[100.0, 1.0]], 1e-4)
    assert "result 1" in mismatch([[1.0], [math.nan]], [[1.0], [1.0]], 1e-4)
    assert "expected 2 results" in mismatch([[1.0]], [[1.0], [1.0]], 1e-4)
    assert mismatch([[2.0]], [[2.0]], 0.0) is None


def test_a_peer_that_is_not_installed_is_left_out_with_one_line(tools: Any) -> None:
    why = tools.answers.missing("numpy", "/nowhere/python")
    assert why == "numpy not installed for /nowhere/python (pip install numpy)"
    assert tools.answers.missing("numpy", sys.executable) is None


@pytest.mark.parametrize("name", ["mlp_small", "logreg_f64", "seed_scalar", "mlp_infer_b1", "layer_norm_512"])
def test_numpy_and_staticgrad_agree(tools: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path))
    workload = tools.catalog.load(name)
    expected = tools.measure.Measurement("numpy", workload, 1, True).started["answers"]
    actual = tools.measure.Measurement("staticgrad", workload, 1, False).started["answers"]
    assert tools.answers.mismatch(actual, expected, workload.tolerance) is None
    worse = [[x * (1 + 10 * workload.tolerance) for x in result] for result in actual]
    assert tools.answers.mismatch(worse, expected, workload.tolerance) is not None


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "silu"])
def test_slopes_by_hand_are_those_of_differences(tools: Any, activation: str) -> None:
    formulas = importlib.import_module("peers.numpy_formulas")
    x, step = np.linspace(-3, 3, 20), 1e-6  # no kink among them

    def value(at: Any) -> Any:
        return formulas.activate(activation, at.copy())

    expected = (value(x + step) - value(x - step)) / (2 * step)
    np.testing.assert_allclose(formulas.slope(activation, x, value(x)), expected, atol=1e-8)


# -- floors -----------------------------------------------------------------------------------------------------------


def test_the_floor_is_the_larger_of_arithmetic_and_memory() -> None:
    found = machine.from_json({"flops": {"float32": 1e9}, "copies": [[1000, 1e-6], [1000000, 1e-2]]})
    assert found.bandwidth(10) == pytest.approx(1e9)
    assert found.bandwidth(10**9) == pytest.approx(1e8)
    assert 1e8 < found.bandwidth(30000) < 1e9
    assert found.floor(10**6, 1000, "float32") == pytest.approx(1e-3)
    assert found.floor(10, 10**6, "float32") == pytest.approx(1e-2)


def test_peaks_are_measured_with_code_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TURN_SECONDS", 1e-4)
    monkeypatch.setattr(machine, "TURNS", 1)
    monkeypatch.setattr(machine, "COPIES", (4096, 65536))
    found = machine.from_json(machine.measure(1))
    assert set(found.flops) == {"float32", "float64"}
    assert all(rate > 0 for rate in found.flops.values())
    assert [size for size, _ in found.copies] == [8192, 131072]
    assert all(seconds > 0 for _, seconds in found.copies)


def test_a_turn_that_other_processes_hold_up_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held_up = itertools.chain([0.02], itertools.repeat(0.0))
    seconds = 1e-6  # of one turn
    monkeypatch.setattr(machine, "_together", lambda turns: turns * seconds + next(held_up))
    assert machine._seconds(lambda turns: turns, 1) == pytest.approx(seconds)  # type: ignore[arg-type,return-value]


# -- reports ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def results(tools: Any) -> Any:
    """One workload on which staticgrad is twice as fast, one on which it takes twice as long, one that failed."""
    rows, row = {}, tools.turns.Row
    for name, theirs in (("gemm_64", 20.0), ("gemm_256", 5.0)):
        mine = row(name, "staticgrad", "1.0", rounds_us=[10.0, 10.0], ratio=1.0, same_bits=True)
        other = row(name, "numpy", "2.0", rounds_us=[theirs, theirs], ratio=10 / theirs)
        rows[name] = [mine, other, row(name, "torch", error="no | answer")]
    rows["copy"] = [row("copy", "staticgrad", error="broken")]
    found = machine.from_json({"flops": {"float32": 1e11, "float64": 1e11}, "copies": [[1, 1e-9], [2, 1e-9]]})
    plan = tools.turns.Plan(tuple(rows), ("staticgrad", "numpy", "torch"))
    return tools.report.Results(plan, found, rows)


def test_the_summary_counts_wins_and_losses(tools: Any, results: Any) -> None:
    text = tools.figures.summary(tools.report.ratios_to_best(results))
    assert "1.00 of its time in the geometric mean of 2" in text
    assert "faster on 1, level within 15% on 0, slower on 1: gemm_256" in text


def test_markdown_has_a_line_for_each_workload_and_failure(tools: Any, results: Any) -> None:
    text = tools.report.as_markdown(results)
    assert "| gemm_64 | 10 | 20 | failed |" in text
    assert "- copy, staticgrad: broken" in text
    tables = [line.count("|") for line in text.splitlines() if line.startswith("| gemm_256")]
    assert len(tables) == 4


def test_json_says_null_where_nothing_was_measured(tools: Any, results: Any) -> None:
    text = json.dumps(tools.report.as_json(results), allow_nan=False)
    found = json.loads(text)
    assert found["workloads"]["gemm_64"]["best_peer"] == "numpy"
    assert found["workloads"]["gemm_64"]["ratio"] == 0.5
    assert found["workloads"]["copy"]["ratio"] is None
    assert found["geometric_mean"] == pytest.approx(1.0)
    assert [row["median_us"] for row in found["rows"]][:3] == [10.0, 20.0, None]


def test_the_history_keeps_medians_of_what_succeeded_and_the_ratio(tools: Any, results: Any) -> None:
    assert tools.report.tables_of(results) == {
        "µs of a call": {
            "gemm_64": {"staticgrad": 10.0, "numpy": 20.0, "over the best": 0.5},
            "gemm_256": {"staticgrad": 10.0, "numpy": 5.0, "over the best": 2.0},
        }
    }
    assert tools.report.versions(results) == {"numpy": "2.0"}


def test_the_chart_has_a_bar_for_each_ratio(tools: Any, results: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "figures.svg"
    tools.chart.draw(results, path)
    text = path.read_text(encoding="utf-8")
    assert text.count('<g id="patch_') > 2
    assert "gemm_256" in text


def test_a_chart_without_peers_warns_of_no_legend(tools: Any, results: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    alone = replace(results, plan=replace(results.plan, peers=(tools.turns.OURS,)))
    tools.chart.draw(alone, tmp_path / "figures.svg")  # a warning is an error
    assert (tmp_path / "figures.svg").stat().st_size > 0


# -- the command ------------------------------------------------------------------------------------------------------


def test_names_are_chosen_by_pattern_and_refused_by_name(tools: Any) -> None:
    known = ("copy", "gemm_64", "gemm_256")
    assert tools.run.chosen("gemm_*,copy", known, "--workload") == known
    assert tools.run.chosen("gemm_256", known, "--workload") == ("gemm_256",)
    with pytest.raises(SystemExit, match=r"--workload 'gemm_7': expected some of copy"):
        tools.run.chosen("gemm_7", known, "--workload")
    assert tools.run.interpreters(["jax,tf1=/p/python"]) == {"jax": "/p/python", "tf1": "/p/python"}
    with pytest.raises(SystemExit, match="expected NAMES=INTERPRETER"):
        tools.run.interpreters(["jax"])


def test_a_small_run_from_end_to_end(tmp_path: Path) -> None:
    """A named workload and a drawn one: answers checked, bits compared, every file written."""
    done = bench(
        "--quick", "--workload", "seed_scalar", "--drawn", "1", "--peer", "staticgrad,numpy,tf1",
        "--python", "tf1=/nowhere/python", "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tf1: left out: tensorflow not installed for /nowhere/python" in done.stderr
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert list(found["workloads"]) == ["seed_scalar", "drawn_0"]
    for row in found["rows"]:
        assert row["peer"] == "numpy" or row["same_bits"] is not False
        assert row["checked"] or row["workload"] == "drawn_0"
        assert row["median_us"] > 0
    assert found["geometric_mean"] > 0
    assert (tmp_path / "figures.md").read_text(encoding="utf-8").strip() in done.stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="there is no commit to tell of")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--quick", "--isa", "native"], "expected everything to be measured, not --quick"),
        (["--workload", "copy", "--isa", "native"], "expected everything to be measured, not --workload"),
        (["--peer", "staticgrad,numpy", "--isa", "native"], "expected jax, torch among the peers"),
        ([], "expected --isa"),
    ],
)
def test_no_part_of_a_run_comes_into_the_history(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = bench("--history", str(tmp_path / "history"), *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "history").exists()


def test_a_second_process_finds_what_the_first_one_compiled(tools: Any) -> None:
    plan = tools.turns.Plan(("mlp_small",), ("staticgrad", "numpy"), rounds=1, seconds=0.01)
    ours, theirs = tools.turns.measure(plan, "mlp_small")
    assert (ours.error, theirs.error) == ("", "")
    assert ours.warm_first_call_s > 0
    assert ours.first_call_s > 0
    assert ours.temporary_bytes > 0 > theirs.temporary_bytes
    assert ours.ratio == pytest.approx(1)
    assert theirs.ratio == pytest.approx(ours.median_us / theirs.median_us)


def test_a_peer_that_does_not_answer_is_given_up(tools: Any) -> None:
    plan = tools.turns.Plan(("mlp_small",), ("numpy",), patience=0.0)
    with pytest.raises(RuntimeError, match="no answer within 0 s"):
        tools.turns.measure(plan, "mlp_small")


def test_a_wrong_answer_is_reported_and_not_timed(tmp_path: Path) -> None:
    """NumPy, told to take means that are wrong by a hundredth in float32; the reference is in float64."""
    shadow = tmp_path / "sitecustomize.py"
    shadow.write_text(
        "import numpy as np\n_mean = np.mean\n"
        "np.mean = lambda *a, **k: _mean(*a, **k) * (1 if a[0].dtype == np.float64 else 1.01)\n"
    )
    done = bench(
        "--quick", "--workload", "mlp_small", "--peer", "staticgrad,numpy", "--json", str(tmp_path / "all.json"),
        PYTHONPATH=str(tmp_path),
    )  # fmt: skip
    found = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    by_peer = {row["peer"]: row for row in found["rows"]}
    assert done.returncode == 1
    assert "relative error" in by_peer["numpy"]["error"]
    assert by_peer["numpy"]["rounds_us"] == []
    assert by_peer["staticgrad"]["error"] == ""


def test_bench_runs_the_benchmarks_of_the_checkout(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", "--workload", "gemm_7", "--peer", "numpy"])
    assert stopped.value.code == 1
    assert "--workload 'gemm_7': expected some of seed_scalar" in capfd.readouterr().err


def test_bench_without_a_checkout_says_where_the_benchmarks_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "staticgrad" / "cli.py"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--quick"]) == 2
    said = capsys.readouterr().err
    assert "they come with the source tree" in said
    assert said.count("\n") == 1


def test_options_of_other_commands_are_still_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["ops", "--quick"])
    assert stopped.value.code == 2
    assert "unrecognized arguments: --quick" in capsys.readouterr().err


# -- kernels ----------------------------------------------------------------------------------------------------------


def test_kernel_cases_give_every_operand_a_kind_and_each_system_what_it_takes(tools: Any) -> None:
    rng = np.random.default_rng(0)
    for cases in tools.kernel_cases.FAMILIES.values():
        for name, case in cases.items():
            least = min(case.sizes, key=lambda shapes: sum(map(np.prod, shapes)))
            arrays = case.arrays(least, np.dtype(np.float32), rng)
            assert len(arrays) == len(least), name
            if "numpy" not in case.without and sum(a.size for a in arrays) <= 100_000:
                assert np.size(case.function(tools.systems.installed()["numpy"], *arrays)) > 0, name


def test_kernels_reports_ratios_and_what_is_slower(tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    row = tools.kernels.Row("sum", ((4, 3),), {"staticgrad": 2e-6, "out=": 1e-6, "numpy": 1e-6, "torch": 4e-6})
    tools.kernels.report(iter([row]), ("numpy", "torch", "jax"), 0.95)
    said = capsys.readouterr().out
    assert "| sum | 4x3 | 2.0 | 1.0 | 0.50 | 2.00 | |" in said
    assert "below 0.95: sum 4x3: 0.50" in said


@pytest.mark.parametrize("gradient", [False, True])
def test_kernels_times_nothing_but_right_answers(tools: Any, gradient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = tools.kernel_cases.Case(lambda m, x: m.sum(x * x, 1), [((5, 7),)])
    given = argparse.Namespace(seed=0, dtype="float64", gradient=gradient, threads=1, peer=["numpy"], seconds=0.0)
    row = tools.kernels.measured("squares", case, ((5, 7),), given, tools.systems.installed())
    assert set(row.seconds) == {"staticgrad", "out="} | ({"numpy"} if not gradient else set())
    monkeypatch.setattr(tools.systems.NumPy, "sum", lambda self, x, axis: np.sum(x, axis) * 1.01, raising=False)
    if not gradient:
        with pytest.raises(SystemExit, match=r"squares .*: staticgrad and numpy differ"):
            tools.kernels.measured("squares", case, ((5, 7),), given, tools.systems.installed())


# -- many processes ---------------------------------------------------------------------------------------------------


def test_collectives_fit_the_model_of_a_message_and_run_on_one_process(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = tools.collectives
    rows = [bench.Row(str(n), 2e-6 + n / 1e9, 1.0, 1.0) for n in (4, 64, 4096, 1 << 20)]
    np.testing.assert_allclose(bench.fitted(rows), (2e-6, 1e-9))
    monkeypatch.setattr(bench, "SIZES", (1, 16))
    monkeypatch.setattr(bench, "SECONDS", 1e-4)
    written = tmp_path / "rows.json"
    assert bench.main(["reduce", "--inside", "--rounds", "2", "--json", str(written)]) == 0
    assert [row["name"] for row in json.loads(written.read_text())] == ["4", "64"]
    small = ["--width", "8", "--layers", "2", "--batch", "4", "--rounds", "2"]
    assert bench.main(["step", "--inside", *small]) == 0
    assert "buckets=4" in capsys.readouterr().out


# -- open sizes -------------------------------------------------------------------------------------------------------


def test_a_spread_is_of_processes_and_not_of_rounds(tools: Any) -> None:
    load = [1.0, 3.0, 1.5, 2.0]  # of the machine, in four rounds
    times = [[own * busy for busy in load] for own in (1.0, 1.0, 1.25)]
    assert tools.spread.relative(times) == pytest.approx([1.0, 1.0, 1.25])
    assert tools.spread.noise(times) == pytest.approx(1.0)
    times[1][::2] = [2 * t for t in times[1][::2]]
    assert tools.spread.noise(times) > 1.5


def test_sizes_reports_ratios_and_first_calls(tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [tools.sizes.Row("mlp", (16,), 1e-6, 2e-6, None), tools.sizes.Row("mlp", (9,), 2e-6, 1e-6, 2e-3)]
    assert tools.sizes.report_ratios(iter(rows)) == rows
    said = capsys.readouterr().out
    assert "| mlp | 9 | 2.0 | 1.0 | 2.00 | 2.000 |" in said
    assert "mlp: geometric mean 1.00, worst 0.50 at 16" in said
    assert "1 of 1" in said


def test_sizes_measures_the_largest_of_ranges_and_drawn_ones(tools: Any) -> None:
    given = argparse.Namespace(drawn=2, seed=0, threads=1, seconds=0.0)
    pairs, training = tools.sizes.sized_programs.distances(most=(32, 16)), tools.sizes.sized_programs.mlp(trains=True)
    rows = list(tools.sizes.measured(pairs, given))
    assert [row.sizes for row in rows[:2]] == [(16, 16), (32, 16)]
    assert [row.new is None for row in rows] == [True, True, False, False]
    assert all(row.ratio > 0 for row in [*rows, *tools.sizes.measured(training, given)])
    assert tools.sizes.maxima(training) == [(16,), (32,), (64,), (128,)]


def test_programs_of_realistic_sizes_are_declared_without_a_warning(tools: Any) -> None:
    for program in tools.sizes.programs():
        assert program.declare().fetches
        assert len(program.arrays(tools.sizes.maxima(program)[0])) == len(program.declare().feeds)


def test_a_growing_text_is_the_references_or_is_refused(tools: Any) -> None:
    given = argparse.Namespace(tokens=4, width=8, layers=1, threads=1, seed=0)
    want, got = (tools.growing.write(system, given) for system in ("numpy", "staticgrad"))
    assert tools.sizes.mismatch(got, want) == ""
    assert len(got.tokens) == 5
    assert 0 < got.first_s <= got.total_s
    assert tools.sizes.mismatch(replace(got, tokens=[0, 0, 0, 0, 0]), replace(want, tokens=[0, 0, 1, 0, 0])) != ""
    wrong = [[x + 0.01 for x in scores] for scores in got.scores]
    assert tools.sizes.mismatch(replace(got, scores=wrong), want).startswith("scores differ")


# -- programs in JAX ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cable", "barrier", "oscillators", "kernel"])
def test_hot_functions_of_ours_give_what_jax_gives(tools: Any, name: str) -> None:
    pytest.importorskip("jax").config.update("jax_enable_x64", True)
    program = tools.hot_functions.PROGRAMS[name](7)
    rows = tools.hot_functions.rows_of(name, replace(program, variants=program.variants[:1]), 0.0)
    assert [row["by"] for row in rows[1:3]] == ["step", "whole"]
    assert all(row["ratio"] > 0 for row in rows)


def test_converted_functions_are_timed_beside_jax(tools: Any) -> None:
    pytest.importorskip("jax")
    row = tools.from_jax.measure("logistic_regression", 0, 1, 0.0)
    assert row["difference"] < 1e-12
    text = tools.from_jax.table([row, {**row, "size": 1, "function": "other"}], {"staticgrad": 0.1, "jax": 0.4})
    assert "| `logistic_regression` | small |" in text
    assert "Import: 0.10 s, JAX 0.40 s, ratio 0.25." in text


def test_hot_functions_times_nothing_but_right_values(tools: Any) -> None:
    pytest.importorskip("jax").config.update("jax_enable_x64", True)
    contestants = {"one": lambda: np.array([1.0, 2.0]), "other": lambda: np.array([1.0, 2.0 + 1e-9])}
    with pytest.raises(SystemExit, match=r"other gives another result: relative error 5.0e-10"):
        tools.hot_functions.measured(contestants, "one", 0.0)
    contestants["other"] = contestants["one"]
    assert {len(took) for took in tools.hot_functions.measured(contestants, "one", 0.0).values()} == {3}


# -- warnings: what the suite makes errors of them ---------------------------------------------------------------------


def smallest(tools: Any) -> list[Any]:
    """A workload of each kind, and each optimizer and dtype, as small as they come."""
    w, m, r = tools.workloads, tools.models, np.random.default_rng(0)
    plain, heavy, adam, decayed = m.Momentum(0.01, 0.0), m.Momentum(0.01, 0.9), m.Adam(1e-3), m.Adam(1e-3, 0.01)
    return [
        w.squares(r, "squares", 4),
        *(w.logistic(r, "logistic", 9, 3, dtype) for dtype in ("float32", "float64")),
        *(w.black_scholes(r, "black_scholes", 5, dtype) for dtype in ("float32", "float64")),
        *(w.product(r, "product", 3, 4, 5, dtype) for dtype in ("float32", "float64")),
        w.softmax(r, "softmax", 3, 4),
        w.layer_norm(r, "layer_norm", 3, 4),
        w.chain(r, "chain", 7),
        w.copy(r, "copy", 7),
        *(w.perceptron(r, "perceptron", (6, 5, 4), 3, adam, kind) for kind in ("relu", "tanh", "sigmoid")),
        *(w.inference(r, "inference", (6, 5, 4), 1, kind) for kind in ("silu", "gelu")),
        w.convnet(r, "convnet", (1, 8, 8), (w.Convolution(2, 3, 1),), (5, 3), 2, heavy),
        w.resnet(r, "resnet", (2, 4, 8), 1, 8, 2, heavy),
        *(w.transformer(r, "transformer", 2, 4, 8, 2, 5, decayed, causal) for causal in (False, True)),
        w.lstm(r, "lstm", 2, 3, 4, 5, 3, plain),
    ]


def test_every_workload_of_ours_runs_without_a_warning(tools: Any) -> None:
    workloads = smallest(tools)
    program = importlib.import_module("peers.staticgrad_program")
    assert {type(workload.model) for workload in workloads} == {*program.FUNCTIONS, *program.NETWORKS}
    for workload in workloads:
        tools.measure.Measurement("staticgrad", workload, 1, False)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kernel_case_of_ours_is_declared_without_a_warning(tools: Any, dtype: str) -> None:
    system, rng = tools.systems.Own(sg), np.random.default_rng(0)
    for case in (case for cases in tools.kernel_cases.FAMILIES.values() for case in cases.values()):
        least = min(case.sizes, key=lambda shapes: sum(map(np.prod, shapes)))
        with sg.Graph():
            inputs = [sg.placeholder(x.shape, x.dtype) for x in case.arrays(least, np.dtype(dtype), rng)]
            result = case.function(system, *inputs)
            if case.gradient:
                sg.gradients(
                    result, [x for x in inputs if x.dtype == dtype], grad_ys=sg.ones(result.shape, dtype=dtype)
                )


@pytest.mark.slow
def test_every_kernel_case_of_ours_runs_without_a_warning(tools: Any) -> None:
    systems = {"staticgrad": tools.systems.Own(sg)}
    for cases in tools.kernel_cases.FAMILIES.values():
        for name, case in cases.items():
            least = min(case.sizes, key=lambda shapes: sum(map(np.prod, shapes)))
            for gradient in {False, case.gradient}:
                given = argparse.Namespace(dtype="float32", gradient=gradient, threads=1, peer=[], seconds=0.0, seed=0)
                assert tools.kernels.measured(name, case, least, given, systems).seconds


def test_every_other_benchmark_of_ours_runs_without_a_warning(tools: Any) -> None:
    for case in (*tools.calls.ours(8, small=True), *tools.calls.ours(8, small=False), *tools.calls.our_tapes()):
        exec(case.statement, case.names)  # statements of that file
    times = tools.interpreters.measure(1, 0.0)
    assert f"{tools.interpreters.label()} |" in tools.interpreters.table({tools.interpreters.label(): times})
    for graph in tools.compile_time.GRAPHS:
        assert tools.compile_time.ours(graph, 30, 0).answer
    for text in ("4x5x6:tn", "4x1x6", "4x5x6x2:nt"):
        problem = tools.gemm.problem_of(tools.gemm.named_shape(text, "float32"), fresh=True)
        tools.gemm.by_staticgrad(problem, 1)()
    layer = tools.convolutions.Layer(4, 4, 6, 3, 2, 2)
    data = tools.convolutions.Operands.draw(layer, 2, 0)
    for direction in ("forward", "input_grad", "weight_grad"):
        tools.convolutions.Program(layer, 2, direction, 1, data).call()


# -- sparse derivatives -----------------------------------------------------------------------------------------------


def test_sparse_evaluations_are_compared_and_counted(tools: Any) -> None:
    sparse, problems = tools.sparse, tools.sparse_problems
    problem = problems.PROBLEMS["hanging_chain"](24)
    x, multipliers = problem.start, np.cos(np.arange(14.0))
    built = sparse.staticgrad(problem, x, multipliers)
    with sg.Graph() as graph:
        at = sg.placeholder(x.shape, sg.float64)
        limits = problem.constraints(sg, at)
        energy = problem.objective(sg, at) + sg.sum(multipliers * limits)
        wanted = [sg.hessian(energy, at), sg.jacobian(limits, at)]
    v = np.cos(np.arange(24.0))
    for found, matrix in zip(sparse.products(built, x), sg.Session(graph).run(wanted, {at: x}), strict=True):
        np.testing.assert_allclose(found[: len(matrix)], matrix @ v, rtol=1e-10, atol=1e-12)
    assert built.facts["hessian"] == 24
    assert built.facts["colors"] >= 3


def test_a_report_of_sparse_evaluations_has_means_and_failures(tools: Any) -> None:
    row = {"problem": "a", "asked": 10, "size": 10, "hessian": 1, "jacobian": 0, "colors": 1, "ready": 2.0}
    times = {"staticgrad": 1.0, "casadi": 4.0, "asdex": 2.0}
    rows = [row | {"us": times, "setup": times, "failed": {}}]
    rows.append(row | {"us": {"staticgrad": 4.0, "casadi": 1.0}, "setup": times, "failed": {"asdex": "no rule"}})
    said = tools.sparse.report(rows)
    assert "n = 10, evaluations: of the time of casadi 1.00 in the geometric mean of 2, at most 4.00; less on 1" in said
    assert "a, 10: asdex: no rule" in said
    kept = tools.sparse.tables(rows)
    assert kept[tools.sparse.MEANS]["n = 10"]["evaluation over asdex's"] == 0.5
    assert kept[tools.sparse.EVALUATIONS]["a, n = 10"][tools.figures.RATIO] == 4.0
