"""Files that several processes write and read at once: whoever reads finds what one of them has written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base import files
from staticgrad.graph.graph import Graph
from staticgrad.runtime.files import graphfile, tensorfile

POSIX = pytest.mark.skipif(os.name != "posix", reason="files are locked by flock")
LENGTH = 300  # elements of an array that lies beside a text


def graph_of(value: int) -> Graph:
    with Graph() as graph:
        sg.constant(np.arange(float(LENGTH)) + value, name="c")
    return graph


def value_of(path: Path) -> int:
    return int(np.frombuffer(sg.load_graph(path).nodes[0].attrs.data)[0])


def arrays_beside(path: Path) -> set[str]:
    return {other.name for other in path.parent.iterdir() if other.name.endswith(".safetensors")}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def after_first(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, then: Callable[[], object]) -> None:
    """Call ``then`` once, when the function of this name has returned for the first time."""
    honest, done = getattr(place, name), list[bool]()

    def call(*args: Any, **kwargs: Any) -> Any:
        result = honest(*args, **kwargs)
        if not done:
            done.append(True)
            then()
        return result

    monkeypatch.setattr(place, name, call)


def before_first(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, first: Callable[[], object]) -> None:
    """Call ``first`` once, when the function of this name is called for the first time."""
    honest, done = getattr(place, name), list[bool]()

    def call(*args: Any, **kwargs: Any) -> Any:
        if not done:
            done.append(True)
            first()
        return honest(*args, **kwargs)

    monkeypatch.setattr(place, name, call)


# -- one step inside another ------------------------------------------------------------------------------------------


def test_a_writer_leaves_the_arrays_that_another_one_has_named_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    with monkeypatch.context() as patch:
        after_first(patch, files, "replace", lambda: sg.save_graph(path, graph_of(1)))
        sg.save_graph(path, graph_of(2))
    assert value_of(path) == 1
    assert len(arrays_beside(path)) == 1


@POSIX
def test_a_writer_leaves_the_arrays_that_another_one_is_about_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    with monkeypatch.context() as patch:
        # The second writer begins and ends between the arrays and the text of the first; both name the same arrays.
        before_first(patch, files, "replace", lambda: [sg.save_graph(path, graph_of(value)) for value in (2, 3)])
        sg.save_graph(path, graph_of(2))
    assert value_of(path) == 2
    assert len(arrays_beside(path)) == 1


def test_a_reader_whose_arrays_are_gone_reads_the_next_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.sgt"
    for value in (1, 2, 3):
        sg.save_graph(path, graph_of(1))
        with monkeypatch.context() as patch:
            before_first(patch, tensorfile, "read", lambda value=value: sg.save_graph(path, graph_of(value)))
            assert value_of(path) == value


def test_a_reader_finds_a_text_that_was_published_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    honest, turns = tensorfile.read, list[int]()

    def read(there: str) -> Any:
        turns.append(1)
        if len(turns) <= 3:  # the arrays are gone, and at once the text that names them is there again
            sg.save_graph(path, graph_of(2))
            try:
                return honest(there)
            finally:
                sg.save_graph(path, graph_of(1))
        return honest(there)

    monkeypatch.setattr(tensorfile, "read", read)
    assert value_of(path) == 1
    assert len(turns) == 4


def test_arrays_that_are_missing_are_missed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    (name,) = arrays_beside(path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        sg.load_graph(path)


def test_a_graph_that_grows_while_it_is_opened_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.sgb"
    with Graph() as small:
        sg.zeros(())
    sg.save_graph(path, small)
    before_first(monkeypatch, os, "open", lambda: sg.save_graph(path, graph_of(5)))
    assert value_of(path) == 5


# -- what is removed --------------------------------------------------------------------------------------------------


@POSIX
def test_arrays_of_writers_that_were_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    code = """
import os, signal, sys
import numpy as np, staticgrad as sg
from staticgrad.base import files
places = {"text": (files, "replace"), "arrays": (os, "link")}
setattr(*places[sys.argv[2]], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
sg.constant(np.arange(300.0) + 7)
sg.save_graph(sys.argv[1])
"""
    for where in ("text", "arrays"):
        child = subprocess.run([sys.executable, "-c", code, str(path), where], check=False, timeout=120)
        assert child.returncode < 0
        assert len(names_in(tmp_path)) == 3
        sg.save_graph(path, graph_of(1))
        assert len(names_in(tmp_path)) == 2
    assert value_of(path) == 1


def test_texts_that_were_copied_or_renamed_keep_their_arrays(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    (tmp_path / "copy.sgt").write_bytes(path.read_bytes())
    sg.save_graph(path, graph_of(2))
    path.rename(tmp_path / "renamed.sgt")
    sg.save_graph(path, graph_of(3))
    sg.save_graph(path, graph_of(4))
    assert [value_of(tmp_path / name) for name in ("copy.sgt", "renamed.sgt", "net.sgt")] == [1, 2, 4]
    assert len(arrays_beside(path)) == 3
    (tmp_path / "copy.sgt").unlink()
    sg.save_graph(path, graph_of(4))
    assert len(arrays_beside(path)) == 2


@POSIX
def test_where_files_cannot_be_locked_none_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.sgt"
    monkeypatch.setattr(files, "_lock", lambda *_, **__: False)
    for value in (1, 2, 1):
        sg.save_graph(path, graph_of(value))
        assert value_of(path) == value
    assert len(arrays_beside(path)) == 2


@POSIX
def test_arrays_are_published_where_files_have_one_name_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError("no links")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "net.sgt"
    for value in (1, 1, 2):
        sg.save_graph(path, graph_of(value))
        assert value_of(path) == value
    assert len(names_in(tmp_path)) == 2


def test_damaged_arrays_are_mended_by_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    (name,) = arrays_beside(path)
    (tmp_path / name).write_bytes(b"damaged")
    sg.save_graph(path, graph_of(1))
    assert value_of(path) == 1
    assert arrays_beside(path) == {name}


@POSIX
def test_arrays_are_as_private_as_the_text_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    path.chmod(0o600)
    sg.save_graph(path, graph_of(2))
    (name,) = arrays_beside(path)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@POSIX
def test_a_child_that_was_forked_during_a_save_keeps_nothing_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, children = tmp_path / "net.sgt", list[int]()
    read, write = os.pipe()

    def fork() -> None:
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # until the test closes its end
            os._exit(0)
        children.append(child)

    with monkeypatch.context() as patch:
        before_first(patch, files, "replace", fork)
        sg.save_graph(path, graph_of(1))
    try:
        sg.save_graph(path, graph_of(2))
        assert len(arrays_beside(path)) == 1
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(children[0], 0)


# -- files that are published together --------------------------------------------------------------------------------


def test_an_export_that_cannot_write_one_of_its_files_leaves_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = sg.placeholder((2,), name="x")
    executable = sg.Session().compile(x * 2, x)
    executable.export(tmp_path / "one.o")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    honest = files._written

    def refused(target: str, *rest: Any) -> Any:
        if target.endswith(".h"):
            raise OSError(28, "No space left on device", target)
        return honest(target, *rest)

    monkeypatch.setattr(files, "_written", refused)
    with pytest.raises(OSError, match="No space left"):
        sg.Session().compile(x * 3, x).export(tmp_path / "one.o")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# -- processes --------------------------------------------------------------------------------------------------------

WRITER = """
import sys
import numpy as np, staticgrad as sg
from staticgrad.graph.graph import Graph
graphs = []
for value in (1, 2):
    with Graph() as graph:
        sg.constant(np.arange(300.0) + value)
    graphs.append(graph)
for turn in range(int(sys.argv[2])):
    sg.save_graph(sys.argv[1], graphs[(turn + int(sys.argv[3])) % 2])
"""


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_two_writers_and_a_reader_of_one_graph(count: int, tmp_path: Path) -> None:
    path = tmp_path / "net.sgt"
    sg.save_graph(path, graph_of(1))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count), str(number)]) for number in range(2)
    ]
    read = set[int]()
    while any(writer.poll() is None for writer in writers):
        read.add(value_of(path))
    assert [writer.wait() for writer in writers] == [0, 0]
    assert read <= {1, 2}
    assert value_of(path) in (1, 2)
    sg.save_graph(path, graph_of(3))  # what writers that met could not remove goes now
    assert len(names_in(tmp_path)) == 2
    assert graphfile.read(path).arrays.keys() == {"c"}
