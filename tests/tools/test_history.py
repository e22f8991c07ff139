"""The history of figures: records, the instruction set that all systems are held to, and what pages show of it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import chart
import figures
import history
from history import Record

from staticgrad.compiler.machine.target import AVX512, runs_here

CALLS = {"mlp_small": {"staticgrad": 1.0, "numpy": 10.0, "over the best": 0.1}}
MACHINE = {"processor": "A processor", "isa": "avx512", "cores": 2, "caches": {"L2": 1048576}}


def record(**fields: Any) -> Record:
    known = {
        "benchmark": "run", "commit": "a" * 40, "clean": True, "date": "2026-01-01T00:00:00+00:00",
        "machine": MACHINE, "isa": "avx512", "threads": 1, "figures": {figures.CALLS: CALLS},
    }  # fmt: skip
    return Record(**(known | fields))


@pytest.fixture
def empty_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, which benchmarks take for theirs."""
    for name in ("staticgrad", "compiler", "runtime", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").touch()
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "First"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(history, "HERE", tmp_path / "benchmarks")
    return tmp_path


# -- what the repository holds ----------------------------------------------------------------------------------------


def test_the_figures_of_the_readme_are_those_of_the_newest_records() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert figures.rendered(text, history.load()) == text, "python benchmarks/figures.py writes them"


def test_every_record_of_the_repository_is_one_and_lies_in_the_file_of_its_machine() -> None:
    records = history.load()
    assert {found.benchmark for found in records} >= {"run", "from_jax"}
    for path in history.FOLDER.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            found = Record(**json.loads(line))
            assert path.name == history.file_name(found.machine)
            assert history.line_of(found) == line + "\n"
            assert (ROOT / "benchmarks" / f"{found.benchmark}.py").exists()
            assert found.imported or found.clean is not None


def test_the_suite_runs_benchmarks_that_append(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = importlib.import_module("suite")
    for isa, number in (("avx512", 7), ("avx2", 6)):
        asked = suite.commands(None, isa)
        assert len(asked) == number
        for script, *_ in asked:
            assert ".append(" in (ROOT / "benchmarks" / script).read_text(encoding="utf-8")
    assert [words[words.index("--isa") + 1] for words in suite.commands("run", "avx512")] == ["native", "avx2"]
    with pytest.raises(SystemExit, match=r"--only nothing: expected some of run, from_jax"):
        suite.commands("nothing", "avx2")


# -- records ----------------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_appended(empty_checkout: Path) -> None:
    folder = empty_checkout / "history"
    tables = {figures.CALLS: {"a": {"staticgrad": 1.23456, "numpy": float("nan")}}, "empty": {}}
    kept = history.History(folder)
    written = kept.append("run", tables, ("numpy",), threads=2, settings={"rounds": 5})
    (empty_checkout / "compiler" / "a.py").write_text("changed")
    second = history.History(folder).append("run", tables, isa="avx2")
    assert history.load(folder) == [written, second]
    assert written.figures == {figures.CALLS: {"a": {"staticgrad": 1.235}}}
    assert (written.clean, second.clean) == (True, False)
    assert written.commit == second.commit
    assert (written.isa, second.isa) == (written.machine["isa"], "avx2")
    assert written.threads == 2
    assert written.versions["numpy"]
    assert [path.name for path in folder.iterdir()] == [history.file_name(written.machine)]


def test_a_run_does_not_make_the_tree_another(empty_checkout: Path) -> None:
    """What one benchmark appends is no change to the code that the next one measures."""
    folder = empty_checkout / "benchmarks" / "history"
    for _ in range(2):
        assert history.History(folder).append("run", {figures.CALLS: CALLS}).clean


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"commit": "abc"}, "commit 'abc': expected 40 hexadecimal digits"),
        ({"machine": {"processor": "a"}}, "machine lacks caches, cores, isa"),
        ({"figures": {}}, "expected numbers by title, row and column"),
        ({"figures": {"a": {"b": {"c": "1"}}}}, "expected numbers by title, row and column"),
        ({"date": "yesterday"}, "isoformat"),
        ({"what": 1}, "what"),
    ],
)
def test_what_is_no_record_is_named_by_file_and_line(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    line = history.line_of(record())
    path = tmp_path / "machine.jsonl"
    path.write_text(line + json.dumps(json.loads(line) | fields) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"machine\.jsonl:2: .*{said}"):
        history.load(tmp_path)


def test_the_newest_record_is_that_of_an_instruction_set_and_threads() -> None:
    records = [
        record(date="2026-01-02"), record(date="2026-01-03", isa="avx2"), record(date="2026-01-04", threads=2),
        record(date="2026-01-01"),
    ]  # fmt: skip
    assert history.newest(records, "run") == records[2]
    assert history.newest(records, "run", "avx2") == records[1]
    assert history.newest(records, "run", "avx512", 1) == records[0]
    assert history.newest(records, "startup") is None


# -- one instruction set ----------------------------------------------------------------------------------------------

LIMITED = {"OPENBLAS_CORETYPE": "Zen", "OPENBLAS_L2_SIZE": "512", "XLA_FLAGS": "--xla_a=1", "OTHER": "x"}


def test_a_native_run_is_limited_by_nothing_in_the_environment() -> None:
    sets = importlib.import_module("instruction_sets")
    assert sets.environment("", LIMITED) == LIMITED
    assert sets.environment("native", LIMITED) == {"XLA_FLAGS": "--xla_a=1", "OTHER": "x"}
    held = sets.environment("avx2", LIMITED)
    assert held["OPENBLAS_CORETYPE"] == "Haswell"
    assert "OPENBLAS_L2_SIZE" not in held
    assert held["XLA_FLAGS"].startswith("--xla_a=1 --xla_cpu_max_isa=AVX2")


ASKED = {
    "staticgrad": "from staticgrad.compiler.machine.target import current_target; print(current_target().name)",
    "numpy": "import numpy; print(*numpy.show_config(mode='dicts')['SIMD Extensions']['found'])",
    "torch": "import torch; print(torch.backends.cpu.get_cpu_capability())",
}
WIDER = {"staticgrad": "avx512", "numpy": "AVX512", "torch": "AVX512"}


@pytest.mark.skipif(not runs_here(AVX512), reason="there is nothing to hold back")
@pytest.mark.parametrize("system", ASKED)
def test_each_system_is_held_to_avx2(system: str) -> None:
    pytest.importorskip(system)
    sets = importlib.import_module("instruction_sets")
    present = {name: value for name, value in os.environ.items() if name != "STATICGRAD_TARGET"}

    def said(isa: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", ASKED[system]], env=sets.environment(isa, present), capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        return done.stdout

    assert WIDER[system] in said("native")
    assert WIDER[system] not in said("avx2")


# -- what pages show --------------------------------------------------------------------------------------------------


def readme(*claims: str) -> str:
    marks = [f"- An item. <!-- claim of {name}.py -->old<!-- end of claim --> The rest.\n" for name in claims]
    return f"before\n\n{''.join(marks)}\n<!-- figures: written by make bench -->old<!-- figures: end -->\nafter\n"


def test_a_readme_is_written_between_its_marks() -> None:
    held = record(isa="avx2", figures={figures.CALLS: {"mlp_small": {**CALLS["mlp_small"], "over the best": 0.4}}})
    records = [
        record(),
        held,
        record(benchmark="from_jax", figures=from_jax()),
        record(benchmark="exported", figures=EXPORTED),
    ]
    text = readme(*figures.CLAIMS)
    for _ in range(2):  # the second time it finds what it wrote
        text = figures.rendered(text, records)
        assert text.startswith("before\n\n- An item. <!-- claim of run.py -->A call")
        assert text.endswith("<!-- figures: end -->\nafter\n")
        assert "old" not in text
    assert "| mlp_small | 1 | 10 | 0.10 |" in text
    assert "**A processor (AVX-512), held to AVX2, one thread**, commit aaaaaaaa, 2026-01-01." in text
    said = " ".join(text.split())
    assert "takes 0.10 of the time of the best of NumPy" in said
    assert "is 0.10 with AVX-512 and 0.40 with AVX2.<!-- end of claim --> The rest." in said
    assert "take 0.5 of the processor time of a call of `jax.jit` when they are small, and 2 when" in said
    assert "takes 0.5 to 2 of the time of the C that CasADi generates, and 0.25 of its bytes" in said
    assert max(map(len, text.splitlines())) <= 120


EXPORTED = {
    figures.GRADIENTS: {
        "a": {"staticgrad speed": 1.0, "staticgrad size": 2.0, "CasADi SX -O3": 2.0, "CasADi MX -O3": 4.0},
        "b": {"staticgrad speed": 9.0, "staticgrad size": 8.0, "CasADi SX -O3": 4.0, "CasADi MX -O3": 5.0},
    },
    figures.BYTES: {
        "a": {"staticgrad speed": 10, "staticgrad size": 5, "CasADi SX -O3": 40, "CasADi MX -O3": 20},
        "b": {"staticgrad speed": 10, "staticgrad size": 5, "CasADi SX -O3": 20, "CasADi MX -O3": 10},
    },
}


def from_jax() -> dict[str, history.Table]:
    return {figures.MEDIANS: {"small": {"functions": 2, "call": 0.5}, "large": {"functions": 2, "call": 2.0}}}


def test_no_line_of_a_readme_begins_with_a_comment_in_a_paragraph() -> None:
    """A line that does is HTML to Markdown, so what follows in it has no emphasis and no code."""
    claim = "end. <!-- claim of run.py -->A `claim`<!-- end of claim --> more"
    for words in range(10, 40):
        text = figures.filled("word " * words + claim, "  ")
        assert not any(line.lstrip().startswith("<!--") for line in text.splitlines())


def test_a_claim_without_a_record_says_nothing() -> None:
    text = figures.rendered(readme(*figures.CLAIMS), [])
    assert text.count("--><!-- end of claim --> The rest.") == len(figures.CLAIMS)


def test_a_readme_without_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected <!-- claim of exported\.py --> and <!-- end of claim -->"):
        figures.rendered(readme("run", "from_jax"), [])


def test_the_page_of_figures_has_the_newest_record_of_each_benchmark() -> None:
    old = record(benchmark="from_jax", figures={figures.MEDIANS: {"small": {"call": 0.123}}}, date="2025-01-01")
    text = figures.expanded("above\n\n```{measured}\n```\n", [old, record(benchmark="from_jax", figures=from_jax())])
    assert "## Functions of JAX\n\nValues" in text
    assert "`benchmarks/from_jax.py` on **A processor" in text
    assert "| small | 2 | 0.5 |" in text
    assert "0.123" not in text
    assert "```" not in text


@pytest.mark.parametrize("number", [1, 2, 9])
def test_a_picture_over_commits_has_a_point_for_each_and_names_some(number: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [record(commit=f"{n:x}" * 40, date=f"2026-01-0{n + 1}") for n in range(number)]
    other = replace(records[-1], isa="avx2")
    for draw in (chart.draw_mean, chart.draw_workloads):
        draw([*records, other], tmp_path / "a.svg")  # a warning is an error
        text = (tmp_path / "a.svg").read_text(encoding="utf-8")
        assert records[-1].commit[:8] in text
        assert "held to AVX2" in text
        assert text.count("2026-01-0") >= min(number, 3)
