"""The command line: what each command prints, and one line with status 2 for what is wrong."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import staticgrad as sg
from staticgrad import cli
from staticgrad.config import PREFIX, SWITCHES
from staticgrad.optable import OPS

PROBLEM = "id,lower,upper,size\na,0,3,10\nb,1,4,20\nc,3,5,10\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.csv"
    path.write_text(PROBLEM)
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints that goes well."""
    assert cli.main([str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a command prints that goes wrong."""
    try:
        status = cli.main([str(argument) for argument in arguments])
    except SystemExit as error:  # argparse's own way
        status = error.code
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")
    return captured.err


def test_ops_lists_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    header, *lines = output(capsys, "ops").splitlines()
    assert header.split()[:3] == ["op", "kind", "dtypes"]
    assert [line.split()[0] for line in lines] == sorted(OPS)
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["tanh"].split()[1:3] == ["elementwise", "floats"]
    assert by_name["reshape"].split()[1] == "view"
    assert by_name["softmax"].split()[1] == "composed"
    assert by_name["dot"].split()[1] == "matrix"
    assert by_name["sort_rows"].split()[1] == "routine"
    assert by_name["assign"].split()[1] == "effect"
    assert by_name["add"].endswith(OPS["add"].doc)


def test_info_says_versions_target_cores_and_switches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATICGRAD_MEMORY", raising=False)
    monkeypatch.setenv("STATICGRAD_TARGET", "generic")
    printed = output(capsys, "info")
    assert f"staticgrad  {sg.__version__}\n" in printed
    assert f"numpy       {np.__version__}\n" in printed
    assert "target      generic" in printed
    assert "cores " in printed
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.startswith(PREFIX)}
    assert set(lines) == {PREFIX + name for name in SWITCHES}
    assert lines["STATICGRAD_TARGET"][1:3] == ["generic", "set"]
    assert lines["STATICGRAD_MEMORY"][1] == "plan"


def test_plan_prints_a_table(capsys: pytest.CaptureFixture[str], problem: Path) -> None:
    printed = output(capsys, "plan", problem)
    assert [line.split() for line in printed.splitlines()[1:4]] == [
        ["a", "10", "0", "0", "3"], ["b", "20", "10", "1", "4"], ["c", "10", "0", "3", "5"],
    ]  # fmt: skip
    assert "arena 30 bytes" in printed
    assert "lower bound of 30; 3 buffers" in printed


def test_plan_as_json(capsys: pytest.CaptureFixture[str], problem: Path) -> None:
    plan = json.loads(output(capsys, "plan", problem, "--json", "--seconds", "0.1"))
    assert plan == {"arena_bytes": 30, "lower_bound_bytes": 30, "offsets": {"a": 0, "b": 10, "c": 0}}
    aligned = json.loads(output(capsys, "plan", problem, "--json", "--alignment", "64"))
    assert aligned["arena_bytes"] == aligned["lower_bound_bytes"] == 128
    assert all(offset % 64 == 0 for offset in aligned["offsets"].values())


def test_plan_of_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("id,lower,upper,size\n")
    assert "0 buffers" in output(capsys, "plan", path)
    assert json.loads(output(capsys, "plan", path, "--json"))["offsets"] == {}


def test_plan_refuses(capsys: pytest.CaptureFixture[str], problem: Path, tmp_path: Path) -> None:
    assert "nowhere.csv: No such file" in refusal(capsys, "plan", tmp_path / "nowhere.csv")
    problem.write_text("id,lower,upper,size\na,0,3,x\n")
    assert "problem.csv:2: column size: expected a whole number" in refusal(capsys, "plan", problem)
    problem.write_text("a,b\n1,2\n")
    assert "expected the columns" in refusal(capsys, "plan", problem)
    assert "expected seconds of at least 0, actual '-1'" in refusal(capsys, "plan", problem, "--seconds", "-1")
    assert "expected seconds" in refusal(capsys, "plan", problem, "--seconds", "nan")
    assert "expected a power of two" in refusal(capsys, "plan", problem, "--alignment", "48")
    assert "FILE" in refusal(capsys, "plan")


def test_inspect_lists_a_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    g = sg.Graph()
    with g:
        sg.Variable(np.zeros((2, 3), np.float32), name="layer.weight")
        sg.Variable(np.zeros((), np.int64), name="odd\x1bname", trainable=False)
    with sg.Session(g, seed=7) as sess:
        sess.save(tmp_path / "state.safetensors")
    printed = output(capsys, "inspect", tmp_path / "state.safetensors")
    assert ["layer.weight", "[2,", "3]", "F32", "24"] in [line.split() for line in printed.splitlines()]
    assert "\x1b" not in printed
    assert "2 arrays, 32 B" in printed
    assert "seed: 7" in printed


def test_inspect_refuses(capsys: pytest.CaptureFixture[str], problem: Path, tmp_path: Path) -> None:
    assert "no safetensors file" in refusal(capsys, "inspect", problem)
    assert "No such file" in refusal(capsys, "inspect", tmp_path / "nowhere")
    assert "actual a directory" in refusal(capsys, "inspect", tmp_path)


def test_arguments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert "COMMAND" in refusal(capsys)
    assert "invalid choice: 'fly'" in refusal(capsys, "fly")
    assert "invalid choice: 'transformer'" in refusal(capsys, "demo", "--model", "transformer")
    assert "at least 1, actual '0'" in refusal(capsys, "demo", "--epochs", "0")
    assert "actual '-3'" in refusal(capsys, "demo", "--seed", "-3")


def test_switches_are_checked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_MEMROY", "poison")
    assert "unknown switch STATICGRAD_MEMROY" in refusal(capsys, "info")
    monkeypatch.delenv("STATICGRAD_MEMROY")
    monkeypatch.setenv("STATICGRAD_BACKEND", "fast")
    assert "STATICGRAD_BACKEND='fast': expected one of" in refusal(capsys, "ops")


def test_the_demo_resumes_only_what_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no checkpoint to resume" in refusal(capsys, "demo", "--resume", "--out", tmp_path)


def test_a_missing_extra_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name))
    line = refusal(capsys, "demo")
    assert line == 'staticgrad: error: the demo needs scikit-learn: pip install "staticgrad[demo]"\n'


def test_the_demo_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["demo", "--model", "mlp", "--epochs", "1", "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "test accuracy" in captured.out
    assert "epoch 1/1" in captured.err  # the progress bar
    assert (tmp_path / "out" / "mlp.safetensors").exists()


def test_python_m_staticgrad(problem: Path) -> None:
    command = [sys.executable, "-m", "staticgrad", "plan", "problem.csv", "--json"]
    done = subprocess.run(command, cwd=problem.parent, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["arena_bytes"] == 30


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m staticgrad ops | head -n 1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("op ")
    assert done.stderr == ""


def test_plan_places_the_buffers_of_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((8, 16), name="x")
        w = sg.Variable(np.zeros((16, 4), np.float32), name="w")
        loss = sg.sum(sg.nn.softmax(sg.exp(x) @ w, -1) ** 2)
        sg.optim.SGD(lr=0.1).minimize(loss)
    file = tmp_path / "graph.txt"
    file.write_text(str(graph))
    assert cli.main(["plan", str(file), "--json", "--alignment", "64"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["offsets"]
    assert plan["lower_bound_bytes"] <= plan["arena_bytes"]


def test_plan_of_a_graph_with_an_open_size_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sg.Graph() as graph:
        sg.exp(sg.placeholder((None, 3), name="rows"))
    file = tmp_path / "graph.txt"
    file.write_text(str(graph))
    assert cli.main(["plan", str(file)]) == 2
    assert "'rows'" in capsys.readouterr().err
