"""Files of state: what saving does to what was there before, what damage is found, which names go where."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg
from staticgrad.graph import Tensor
from staticgrad.runtime import checkpoint, files

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners, modes and links of files")


@pytest.fixture
def saved(g: sg.Graph) -> Iterator[tuple[sg.Session, Tensor]]:
    """A session with a variable."""
    w = sg.Variable(f32(1, 2, 3), name="w")
    with sg.Session(g, seed=5) as sess:
        yield sess, w


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- what was there before ------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666])
def test_saving_keeps_the_mode_of_the_file(saved: tuple[sg.Session, Tensor], tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"earlier")
    path.chmod(mode)
    saved[0].save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    saved[0].restore(path)


@POSIX
def test_a_new_file_has_the_mode_that_any_file_gets(saved: tuple[sg.Session, Tensor], tmp_path: Path) -> None:
    (tmp_path / "any").write_bytes(b"")
    saved[0].save(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode == (tmp_path / "any").stat().st_mode


@POSIX
def test_saving_keeps_the_owner_of_the_file(
    saved: tuple[sg.Session, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"earlier")
    if os.geteuid() == 0:  # who may give files away
        os.chown(path, 1, 2)
        saved[0].save(path)
        assert (path.stat().st_uid, path.stat().st_gid) == (1, 2)
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError

    honest = os.stat
    other = os.stat_result((*honest(path)[:4], honest(path).st_uid + 1, *honest(path)[5:]))
    monkeypatch.setattr(files, "check_regular", lambda _: other)
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(PermissionError, match=r"owner .* cannot be kept"):
        saved[0].save(path)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {"state"}


@POSIX
def test_saving_through_a_link_replaces_what_it_names(saved: tuple[sg.Session, Tensor], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    target, link, chain = tmp_path / "run" / "state", tmp_path / "latest", tmp_path / "chain"
    link.symlink_to(Path("run") / "state")
    chain.symlink_to("latest")
    for path in (link, chain):  # to nothing, then to a file
        saved[0].save(path)
        assert path.is_symlink()
        assert not target.is_symlink()
        saved[0].restore(target)
        target.chmod(0o600)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert names_in(tmp_path) == {"run", "latest", "chain"}
    assert names_in(tmp_path / "run") == {"state"}


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no right to make devices")


def _socket(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


@POSIX
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("make", "actual"),
    [(Path.mkdir, "a directory"), (os.mkfifo, "a FIFO"), (_device, "a character device"), (_socket, "a socket")],
    ids=["folder", "fifo", "device", "socket"],
)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_regular_file_is_refused_and_stays(
    saved: tuple[sg.Session, Tensor], tmp_path: Path, make: Callable[[Path], None], actual: str, linked: bool
) -> None:
    path = place = tmp_path / "place"
    make(place)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(place)
    before = place.lstat()
    refusals: list[str] = []

    def use() -> None:
        for call in (saved[0].save, saved[0].restore, checkpoint.contents):
            try:
                call(path)
            except sg.FormatError as error:
                refusals.append(str(error))

    thread = threading.Thread(target=use, daemon=True)  # a FIFO would be waited for
    thread.start()
    thread.join(20)
    assert refusals == [f"{path}: expected a regular file, actual {actual}"] * 3
    assert (place.lstat().st_mode, place.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert names_in(tmp_path) == {place.name, path.name}


def test_the_empty_path_is_refused(saved: tuple[sg.Session, Tensor]) -> None:
    for call in (saved[0].save, saved[0].restore):
        with pytest.raises(sg.FormatError, match="expected the path of a file, actual ''"):
            call("")


@POSIX
def test_a_file_that_may_not_be_written_is_not_replaced(saved: tuple[sg.Session, Tensor], tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write to every file")
    path = tmp_path / "state"
    path.write_bytes(b"earlier")
    path.chmod(0o400)
    with pytest.raises(PermissionError):
        saved[0].save(path)
    assert path.read_bytes() == b"earlier"
    assert names_in(tmp_path) == {"state"}


def test_a_save_that_fails_leaves_what_was_there(
    saved: tuple[sg.Session, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"earlier")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise OSError("no space")

            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="no space"):
                saved[0].save(path)
        assert path.read_bytes() == b"earlier"
        assert names_in(tmp_path) == {"state"}


KILLED = """
import os, signal, sys
import numpy as np, staticgrad as sg
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sg.Variable(np.ones(3, np.float32), name="w")
sg.Session().save(sys.argv[1])
"""


@POSIX
def test_what_a_killed_save_left_is_removed_by_the_next(saved: tuple[sg.Session, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "state"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names_in(tmp_path)) == 1
    others = {".other.0123456789abcdef", ".state.short", "state.0123456789abcdef"}
    for name in others:
        (tmp_path / name).write_bytes(b"")
    saved[0].save(path)
    assert names_in(tmp_path) == {"state", *others}


@POSIX
def test_a_save_that_is_being_written_is_left_alone(
    saved: tuple[sg.Session, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, honest, inner = tmp_path / "state", os.replace, []

    def replace(source: str, target: str) -> None:
        if not inner:
            inner.append(source)
            saved[0].save(path)
            assert Path(source).exists()
        honest(source, target)

    monkeypatch.setattr(os, "replace", replace)
    saved[0].save(path)
    assert inner
    assert names_in(tmp_path) == {"state"}


# -- damage -----------------------------------------------------------------------------------------------------------


def test_flipped_bits_are_found(g: sg.Graph, tmp_path: Path) -> None:
    values = {"w": f32(1, 2, 3), "n": np.array(7), "on": np.array([True, False]), "empty": np.zeros((0, 2), np.float32)}
    variables = [sg.Variable(value, name=name, trainable=False) for name, value in values.items()]
    path = tmp_path / "state"
    written, sess = sg.Session(g, seed=5), sg.Session(g, seed=6)
    written.save(path)
    for variable in variables:
        sess.set(variable, np.zeros(variable.shape, variable.dtype))
    whole, accepted = path.read_bytes(), []
    data = 8 + int.from_bytes(whole[:8], "little")
    for position in range(len(whole)):
        for bit in range(8) if position >= data else [position % 8]:
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :])
            try:
                sess.restore(path)
                accepted.append(position)
            except sg.FormatError:
                assert sess.seed == 6
                assert not any(np.any(sess.get(variable)) for variable in variables)
    assert accepted == []
    path.write_bytes(whole)
    sess.restore(path)
    assert sess.seed == 5
    for variable, value in zip(variables, values.values(), strict=True):
        np.testing.assert_array_equal(sess.get(variable), value)


def rewritten(whole: bytes, change: Callable[[dict[str, dict[str, object]]], object]) -> bytes:
    """The file with another header over the same data."""
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + length :]


def test_values_that_changed_places_are_found(g: sg.Graph, tmp_path: Path) -> None:
    for name in "ab":
        sg.Variable(sg.init.normal(), shape=(3,), name=name)
    path, sess = tmp_path / "state", sg.Session(g)
    sess.save(path)
    whole = path.read_bytes()

    def swap(header: dict[str, dict[str, object]]) -> None:
        header["a"], header["b"] = header["b"], header["a"]

    for change in (swap, lambda h: h["__metadata__"].pop("digest"), lambda h: h["__metadata__"].update(seed="1")):
        path.write_bytes(rewritten(whole, change))
        with pytest.raises(sg.FormatError, match="damaged"):
            sess.restore(path)
    path.write_bytes(rewritten(whole, lambda _: None))  # in another order or with other spaces, it is the same file
    sess.restore(path)


def test_a_file_of_an_earlier_version_has_no_digest(saved: tuple[sg.Session, Tensor], tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    sess, w = saved
    notes = {"format": checkpoint.WITHOUT_DIGEST, "seed": "3", "runs_drawn": "2"}
    save_file({"w": f32(7, 8, 9)}, tmp_path / "state", notes)
    sess.restore(tmp_path / "state")
    assert sess.get(w).tolist() == [7, 8, 9]
    assert (sess.seed, sess.store.runs_drawn) == (3, 2)


def test_every_dtype_comes_back(g: sg.Graph, tmp_path: Path) -> None:
    names = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
             "float32", "float64")  # fmt: skip
    variables = [sg.Variable(np.arange(4), dtype=getattr(sg, name, name), name=name, trainable=False) for name in names]
    sess = sg.Session(g)
    sess.save(tmp_path / "state")
    expected = [sess.get(v) for v in variables]
    for v in variables:
        sess.set(v, np.ones((4,), v.dtype))
    sess.restore(tmp_path / "state")
    for v, value in zip(variables, expected, strict=True):
        np.testing.assert_array_equal(sess.get(v), value, strict=True)
