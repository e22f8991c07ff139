"""The command line: what each command prints, and one line with status 2 for what is wrong."""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

import staticgrad as sg
from staticgrad.base.config import PREFIX, SWITCHES
from staticgrad.graph.optable import OPS
from staticgrad.tools import cli

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
    assert line == 'staticgrad: error: the demo needs scikit-learn: pip install ".[demo]" in a checkout\n'


@pytest.mark.wide
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


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A graph with two entries of an open size and the state of a session, as a text; beside it as a binary file."""
    with sg.Graph() as graph:
        x = sg.placeholder((sg.dim("n"), 16), name="x")
        w = sg.Variable(np.zeros((16, 24), np.float32), name="w")
        loss = sg.sum((x @ w - 1) ** 2)
        train = sg.optim.SGD(lr=0.1).minimize(loss)
    with sg.Session(graph, seed=5) as sess:
        sess.set(w, np.arange(16 * 24, dtype=np.float32).reshape(16, 24))
        entries = {"train": ([loss, train], x), "predict": (x @ w, x)}
        sg.save_graph(tmp_path / "net.sgt", entries=entries, session=sess)
        sg.save_graph(tmp_path / "net.sgb", entries=entries, session=sess)
        sess.save(tmp_path / "state.safetensors")
    return tmp_path / "net.sgt"


def rows(printed: str) -> dict[str, str]:
    """What is printed before the first blank line, by its first word."""
    return {line.split()[0]: line[12:] for line in printed.split("\n\n")[0].splitlines()}


def test_info_of_a_graph(capsys: pytest.CaptureFixture[str], net: Path) -> None:
    text = output(capsys, "info", net)
    said = rows(text)
    assert re.fullmatch(r"version 1, \d+ ops, 2 variables", said["graph"])
    assert said["feeds"] == "x float32[n, 16]"
    assert said["entries"] == "train(x[n, 16]) -> 2, predict(x[n, 16]) -> 1"
    assert said["ops"].startswith("matmul 4, constant 3, ")
    assert said["state"] == "2 variables, seed 5"
    (beside,) = net.parent.glob("net.sgt.*")
    assert ["w", "float32[16,", "24]", "1536"] in [line.split() for line in text.splitlines()]
    binary = rows(output(capsys, "info", net.with_suffix(".sgb")))
    assert {**binary, "arrays": ""} == {**said, "arrays": ""}
    assert output(capsys, "info", beside).startswith("name ")


def test_info_of_other_files(capsys: pytest.CaptureFixture[str], net: Path, problem: Path) -> None:
    state = net.parent / "state.safetensors"
    assert output(capsys, "info", state) == output(capsys, "inspect", state)
    assert "3 buffers" in rows(output(capsys, "info", problem))["problem"]
    (net.parent / "own.txt").write_text("# mine\n%x = placeholder() Source : float32[2]\n")
    assert rows(output(capsys, "info", net.parent / "own.txt"))["feeds"] == "x float32[2]"
    ir = net.parent / "module.ll"
    ir.write_text(IR % "x86_64-unknown-linux-gnu")
    said = rows(output(capsys, "info", ir))
    assert (said["functions"], said["needs"]) == ("first, second", "other")


IR = """target triple = "%s"
@table = constant [100 x i32] zeroinitializer
@counter = global i32 7
@space = global [50 x i64] zeroinitializer
declare void @other(ptr)
define i32 @first(i32 %%x) {
  call void @other(ptr @table)
  ret i32 %%x
}
define internal i32 @hidden(i32 %%x) {
  ret i32 %%x
}
define i32 @second(ptr %%p) {
  %%v = load i32, ptr @counter
  ret i32 %%v
}
"""


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64, 64 bits"), ("aarch64-unknown-linux-gnu", "aarch64, 64 bits"),
        ("thumbv7em-none-eabi", "arm, 32 bits"), ("powerpc64-unknown-linux-gnu", "machine 21, 64 bits"),
    ],
)  # fmt: skip
def test_info_of_an_object(capsys: pytest.CaptureFixture[str], tmp_path: Path, triple: str, machine: str) -> None:
    """In both orders of bytes, 32 and 64 bits; compared with LLVM's own reader of objects."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = binding.parse_assembly(IR % triple)
    content = binding.Target.from_triple(triple).create_target_machine(reloc="static").emit_object(module)
    path = tmp_path / "net.o"
    path.write_bytes(content)
    sizes = {"NET_STATE_BYTES": 128, "FIT_WORKSPACE_BYTES": 64, "RUN_WORKSPACE_BYTES": 4096, "NET_INS": 2}
    (tmp_path / "net.h").write_text("".join(f"#define {name} {size}\n" for name, size in sizes.items()))
    said = output(capsys, "info", path)
    found = rows(said)
    code = sum(s.size() for s in binding.ObjectFileRef.from_data(content).sections() if s.is_text())
    assert found["file"] == f"object, {machine}"
    assert int(found["text"]) == code
    assert int(found["bss"]) == 400
    assert int(found["rodata"]) >= 400
    text, rodata, data = (int(found[name]) for name in ("text", "rodata", "data"))
    assert found["flash"] == f"{text + rodata + data} bytes: text, rodata and data"
    expected = f"{data + 400 + 128 + 4096} bytes: data {data}, bss 400, state 128, the largest workspace 4096"
    assert found["RAM"] == expected
    assert f"{'':12}NET_STATE_BYTES 128\n{'':12}FIT_WORKSPACE_BYTES 64\n" in said
    assert [name.rstrip(",") for name in found["functions"].split()[::2]] == ["first", "second"]
    assert "other" in found["needs"].split(", ")
    draw = np.random.default_rng(0)
    for _ in range(300):  # damage is refused, or something else is read
        damaged = bytearray(content)
        damaged[int(draw.integers(4, 64 if draw.random() < 0.5 else len(content)))] = int(draw.integers(256))
        path.unlink()
        path.write_bytes(damaged[: int(draw.integers(len(content))) if draw.random() < 0.2 else None])
        assert cli.main(["info", str(path)]) in (0, 2)
    capsys.readouterr()


def test_info_refuses(capsys: pytest.CaptureFixture[str], net: Path) -> None:
    foreign = net.parent / "foreign.bin"
    foreign.write_bytes(b"\0\1\2\3 nothing")
    assert "expected a graph, a checkpoint or" in refusal(capsys, "info", foreign)
    assert "No such file" in refusal(capsys, "info", net.parent / "nowhere")
    assert "actual a directory" in refusal(capsys, "info", net.parent)
    foreign.write_bytes(b"\x7fELF\2\1")
    assert "no ELF file, or a damaged one" in refusal(capsys, "info", foreign)
    net.write_text(net.read_text() + "%x\n")
    assert "damaged, or was edited" in refusal(capsys, "info", net)


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, sg.Executable], dict[str, Any]]]:
    """What the command exports, in a list that grows with each call."""
    calls: list[tuple[dict[str, sg.Executable], dict[str, Any]]] = []
    name = "staticgrad.runtime.export.export"
    real = importlib.import_module(name).export

    def export(path: Path, entries: dict[str, sg.Executable], **options: Any) -> object:
        calls.append((entries, options))
        return real(path, entries, **options)

    monkeypatch.setattr(f"{name}.export", export)
    return calls


def test_compile_exports_the_entries_of_a_graph(
    capsys: pytest.CaptureFixture[str], net: Path, exported: list[Any]
) -> None:
    out = net.parent / "net.o"
    said = output(capsys, "compile", net, "-o", out, "--size", "n=3", "--optimize", "size", "--name", "small")
    assert str(out) in said
    assert "flash" in said
    ((entries, options),) = exported
    assert options == {"format": "object", "target": None, "name": "small", "optimize": "size"}
    assert list(entries) == ["train", "predict"]
    x = np.ones((3, 16), np.float32)
    w = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)  # of the state in the file
    np.testing.assert_allclose(entries["predict"](x), x @ w)
    report = output(capsys, "info", out)
    assert [name.rstrip(",") for name in rows(report)["functions"].split()[::2]] == ["predict", "train"]
    assert "SMALL_STATE_BYTES " in report


def test_compile_of_one_entry_with_another_state(
    capsys: pytest.CaptureFixture[str], net: Path, exported: list[Any]
) -> None:
    state, out = net.parent / "other.safetensors", net.parent / "net.ll"
    graph = sg.load_graph(net)
    with sg.Session(graph) as sess:
        sess.set(graph.variables["w"], np.ones((16, 24), np.float32))
        sess.save(state)
    arguments = (net.with_suffix(".sgb"), "-o", out, "--size", "n=2", "--entry", "predict", "--state", state)
    output(capsys, "compile", *arguments, "--format", "llvm", "--target", "generic")
    ((entries, options),) = exported
    assert (list(entries), options["format"], options["target"]) == (["predict"], "llvm", "generic")
    assert entries["predict"](np.ones((2, 16), np.float32)).tolist() == [[16] * 24] * 2
    assert rows(output(capsys, "info", out))["functions"] == "predict"


def test_compile_to_a_program(capsys: pytest.CaptureFixture[str], net: Path) -> None:
    loaded = pytest.importorskip("staticgrad.runtime.export.program_file")
    out = net.parent / "net.sgp"
    targets = ("--target", "generic", "--target", "avx2") if platform.machine() == "x86_64" else ()
    output(capsys, "compile", net, "-o", out, "--format", "program", "--size", "n=2", *targets)
    said = output(capsys, "info", out)
    assert loaded.digest_of(out.read_bytes()) in said
    assert "predict(x: float32[2, 16])" in said
    assert not targets or "avx2" in said


def test_compile_of_a_graph_without_entries(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, exported: list[Any]
) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((2,), name="x")
        sg.exp(x), sg.sum(x)
    (tmp_path / "graph.txt").write_text(str(graph))
    output(capsys, "compile", tmp_path / "graph.txt", "-o", tmp_path / "graph.o")
    ((entries, _),) = exported
    exponentials, total = entries["run"]([0.0, 0.0])
    assert (exponentials.tolist(), total) == ([1, 1], 0)


def test_compile_refuses(capsys: pytest.CaptureFixture[str], net: Path) -> None:
    out = net.parent / "net.o"
    assert "-o/--out" in refusal(capsys, "compile", net)
    assert "invalid choice: 'exe'" in refusal(capsys, "compile", net, "-o", out, "--format", "exe")
    assert "expected NAME=N, actual 'n'" in refusal(capsys, "compile", net, "-o", out, "--size", "n")
    assert "expected a size, actual '-1'" in refusal(capsys, "compile", net, "-o", out, "--size", "n=-1")
    assert "no entry 'test', expected one of 'train', 'predict'" in refusal(
        capsys, "compile", net, "-o", out, "--entry", "test"
    )
    assert "for each open size of the feeds, actual none for 'n'" in refusal(capsys, "compile", net, "-o", out)
    assert "actual one for 'm', which no feed has" in refusal(
        capsys, "compile", net, "-o", out, "--size", "n=1", "--size", "m=1"
    )
    assert "no entry" not in refusal(capsys, "compile", net.parent / "nowhere", "-o", out)
    assert not out.exists()


def test_an_error_of_a_module_that_is_run_names_no_line_of_pythons_own(net: Path) -> None:
    command = [sys.executable, "-m", "staticgrad", "compile", net, "-o", net.parent / "net.o", "--size", "n=2"]
    done = subprocess.run([*command, "--name", "for"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a name that C" in done.stderr
    assert "frozen" not in done.stderr


def test_plan_and_view_of_saved_graphs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((8, 16), name="x")
        sg.sort(sg.exp(x) @ np.random.default_rng(0).normal(size=(16, 40)).astype(np.float32))
    for name in ("net.sgt", "net.sgb"):
        sg.save_graph(tmp_path / name, graph)
        assert json.loads(output(capsys, "plan", tmp_path / name, "--json"))["arena_bytes"] > 0
        assert "kernels" in output(capsys, "view", tmp_path / name)
