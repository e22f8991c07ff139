"""Paths that no file can have: every function that takes a path refuses them by name, before it does anything else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.placement.problems import read_csv, write_csv
from staticgrad.graph.graph import Graph
from staticgrad.runtime.session.executable import Executable
from staticgrad.tools import cli

WRONG = {
    "": "path: expected the path of a file, actual ''",
    "a\0b": r"path: expected the path of a file, actual 'a\\x00b', which has a NUL character",
    "a\ud800b": r"path: expected the path of a file, actual 'a\\ud800b', which the file system cannot encode",
}


class Made:
    """What has functions that take paths."""

    def __init__(self, folder: Path) -> None:
        with Graph() as self.graph:
            x = sg.placeholder((2,), name="x")
            y = x * sg.Variable([1.0, 2.0], name="w")
            loss = sg.sum(y)
        self.session = sg.Session(self.graph)
        self.executable: Executable = self.session.compile(y, x)
        self.tape = self.session.forward(loss, {x: [1.0, 2.0]})
        self.executable(np.zeros(2, np.float32))
        self.executable.export(folder / "one.sgp", format="program")
        self.loaded = sg.load(folder / "one.sgp")
        self.profile = self.executable.profile(np.zeros(2, np.float32))


TAKE: dict[str, Callable[[Made, Any], object]] = {
    "sess.save": lambda made, path: made.session.save(path),
    "sess.restore": lambda made, path: made.session.restore(path),
    "sg.save_graph": lambda made, path: sg.save_graph(path, made.graph),
    "sg.load_graph": lambda made, path: sg.load_graph(path),
    "sg.export": lambda made, path: sg.export(path, {"f": made.executable}),
    "exe.export": lambda made, path: made.executable.export(path),
    "exe.export of a program": lambda made, path: made.executable.export(path, format="program"),
    "exe.view": lambda made, path: made.executable.view(path),
    "exe.memory.plot": lambda made, path: made.executable.memory.plot(path),
    "tape.memory.plot": lambda made, path: made.tape.memory.plot(path),
    "profile.save": lambda made, path: made.profile.save(path),
    "sg.load": lambda made, path: sg.load(path),
    "sg.load with a digest": lambda made, path: sg.load(path, digest="0" * 64),
    "program.save": lambda made, path: made.loaded.save(path),
    "program.restore": lambda made, path: made.loaded.restore(path),
    "read_csv": lambda made, path: read_csv(path),
    "write_csv": lambda made, path: write_csv(path, []),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("take", TAKE)
def test_a_path_that_no_file_can_have_is_refused_by_name(
    take: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, message in WRONG.items():
        with pytest.raises(sg.FormatError, match=message) as caught:
            TAKE[take](made, path)
        assert str(caught.value).startswith("path: "), "the argument is named first"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("take", TAKE)
def test_a_folder_a_missing_folder_and_a_wrong_type_are_named(
    take: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing" / "file"
    for path in (missing,) if "plot" in take else (missing, tmp_path):  # matplotlib makes a name with an ending
        with pytest.raises((OSError, sg.FormatError), match=str(path)):
            TAKE[take](made, path)
    with pytest.raises(TypeError, match="not int"):
        TAKE[take](made, 3)
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(os.name != "posix", reason="bytes are paths of POSIX")
def test_bytes_are_paths(made: Made, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff."  # no UTF-8
    made.session.save(folder + b"state")
    made.session.restore(folder + b"state")
    for form in (b"sgt", b"sgb"):
        sg.save_graph(folder + form, made.graph)
        assert sg.load_graph(folder + form).variables.keys() == {"w"}
    made.executable.export(folder + b"sgp", format="program")
    assert sg.load(folder + b"sgp").name


@pytest.mark.parametrize(
    "command",
    [["info", "PATH"], ["inspect", "PATH"], ["plan", "PATH"], ["compile", "PATH", "-o", "f.o"], ["view", "PATH"],
     ["compile", "net.sgt", "-o", "PATH"], ["compile", "net.sgt", "-o", "f.o", "--state", "PATH"],
     ["view", "net.sgt", "-o", "PATH"]],
    ids=" ".join,
)  # fmt: skip
def test_commands_say_which_path_is_wrong(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Graph() as graph:
        sg.Variable([1.0, 2.0], name="w") * 2
    sg.save_graph("net.sgt", graph)
    before = {path.name for path in tmp_path.iterdir()}
    assert cli.main([{"PATH": "a\0b"}.get(part, part) for part in command]) == cli.BAD_INPUT
    assert "path: expected the path of a file, actual 'a\\x00b', which has a NUL" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == before
