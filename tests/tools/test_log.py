"""What is told of compilations: to those who listen to ``logging``; else, where a switch asks, on standard error."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import staticgrad as sg


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")  # what is found is not compiled


def compile_one(size: int) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((size,), name="x")
        sg.Session(graph).compile(sg.tanh(x) * 2, [x])


def test_a_program_is_a_line_and_stages_are_lines_below_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "staticgrad.compile"):
        compile_one(31)
    (line,) = caplog.records
    assert line.name == "staticgrad.compile"
    assert line.getMessage().startswith("program ")
    assert " steps, arena " in line.getMessage()
    with caplog.at_level(logging.DEBUG, "staticgrad.compile"):
        compile_one(33)
    texts = [record.getMessage().split(":")[0].strip() for record in caplog.records[1:]]
    assert {"cut", "emit"} & set(texts)
    assert [record.levelname for record in caplog.records[1:]].count("INFO") == 1


def test_a_program_that_is_found_on_disk_is_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "1")
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("STATICGRAD_TIERS", "0")  # what is kept is optimised code
    compile_one(35)
    with caplog.at_level(logging.INFO, "staticgrad.compile"):
        compile_one(35)
    (line,) = caplog.records
    assert line.getMessage().startswith("program of x: found on disk, ")


PROGRAM = """
import logging, sys
import staticgrad as sg
if sys.argv[1] == "handled":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s|%(message)s")
x = sg.placeholder((5,), name="x")
sg.Session().compile(x * 2, [x])
"""


@pytest.mark.parametrize(("how", "level"), [("plain", "0"), ("plain", "1"), ("handled", "0"), ("handled", "1")])
def test_lines_go_to_handlers_or_where_a_switch_asks_to_standard_error(
    how: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_DEBUG", level)
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    assert ("program 0: " in done.stderr) == (how == "plain" and level == "1")
    assert ("staticgrad.compile|program 0: " in done.stdout) == (how == "handled")


def test_a_graph_that_a_switch_asks_for_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATICGRAD_PRINT_AFTER", "simplify")
    compile_one(37)
    assert "after simplify:\n" in capfd.readouterr().err


def test_results_are_the_same_whoever_listens(caplog: pytest.LogCaptureFixture) -> None:
    found = []
    for level in (logging.WARNING, logging.DEBUG):
        with caplog.at_level(level, "staticgrad"), sg.Graph() as graph:
            x = sg.placeholder((41,), name="x")
            found.append(sg.Session(graph).compile(sg.exp(x), [x])(np.linspace(0, 1, 41, dtype=np.float32)))
    assert found[0].tobytes() == found[1].tobytes()
