"""Files of state: what saving does to what was there before, what damage is found, which names go where."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.declaring import f32

import staticgrad as sg
from staticgrad.base import files
from staticgrad.graph.graph import Tensor
from staticgrad.runtime.files import checkpoint_file, tensorfile

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
        for call in (saved[0].save, saved[0].restore, tensorfile.headers):
            try:
                call(path)
            except sg.FormatError as error:
                refusals.append(str(error))

    thread = threading.Thread(target=use, daemon=True)  # a FIFO would be waited for
    thread.start()
    thread.join(60)
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
import numpy as np, staticgrad as sg, staticgrad.runtime.session.session
sg.Variable(np.ones(3, np.float32), name="w")
session = sg.Session()
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
session.save(sys.argv[1])
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


@POSIX
def test_a_file_is_renamed_when_it_is_closed_where_open_ones_are_not(
    saved: tuple[sg.Session, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, locked = os.replace, []

    def replace(source: str, target: str) -> None:
        with open(source, "rb") as file:
            locked.append(not files._lock(file.fileno(), wait=False))
        honest(source, target)

    monkeypatch.setattr(os, "replace", replace)
    for renames in (True, False):
        monkeypatch.setattr(files, "RENAMES_OPEN_FILES", renames)
        saved[0].save(tmp_path / "state")
    assert locked == [True, False]
    saved[0].restore(tmp_path / "state")


def test_ctrl_c_while_a_new_file_is_locked_is_what_is_raised_and_closes_it(
    saved: tuple[sg.Session, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def interrupted(descriptor: int, wait: bool) -> bool:
        opened.append(descriptor)
        raise KeyboardInterrupt

    def refuse(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(files, "_lock", interrupted)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(KeyboardInterrupt):
        saved[0].save(tmp_path / "state")
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(*opened)


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
    notes = {"format": checkpoint_file.WITHOUT_DIGEST, "seed": "3", "runs_drawn": "2"}
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


# -- names ------------------------------------------------------------------------------------------------------------


class Pair(sg.nn.Module):
    """Two equal layers, declared in an order of the caller's."""

    def __init__(self, order: str) -> None:
        for name in order:
            setattr(self, name, sg.nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return vars(self)["b"](sg.tanh(vars(self)["a"](x)))


def keys_of(path: Path) -> set[str]:
    return {entry.name for entry in tensorfile.headers(path)[0]}


def test_equal_layers_keep_their_weights_in_another_order_of_declaration(tmp_path: Path) -> None:
    values = []
    for order, seed in (("ab", 1), ("ba", 2)):
        with sg.Graph() as graph:
            x = sg.constant(np.ones((2, 4), np.float32))
            y = Pair(order)(x)
        sess = sg.Session(graph, seed=seed)
        if order == "ab":
            sess.save(tmp_path / "state")
        else:
            assert sess.restore(tmp_path / "state") == ([], [])
        values.append(sess.run(y))
    np.testing.assert_array_equal(*values)


def test_names_in_the_file_are_those_of_state_dict(g: sg.Graph, tmp_path: Path) -> None:
    class Net(sg.nn.Module):
        def __init__(self) -> None:
            self.scale = sg.Variable(f32(1, 2, 3, 4))
            self.layers = sg.nn.ModuleList([sg.nn.Sequential(sg.nn.Linear(4, 4), Pair("ab")) for _ in range(3)])
            self.norm = sg.nn.BatchNorm1d(4)
            self.encoder = sg.nn.LSTM(4, 4)

    net = Net()
    sess = sg.Session(g)
    sess.save(tmp_path / "state")
    assert keys_of(tmp_path / "state") == set(net.state_dict(sess)) == set(g.variables)
    assert {"scale", "layers.2.1.b.weight", "norm.running_mean", "encoder.weight_ih_l0"} < set(g.variables)
    assert all(net._state()[name].name == name for name in g.variables)


def test_slots_are_named_after_the_path_of_their_variable(g: sg.Graph) -> None:
    net = sg.nn.Sequential(sg.nn.Linear(2, 2))
    sg.optim.Adam().minimize(sg.sum(net(sg.ones((1, 2)))))
    assert {"0.weight", "0.weight/adam/exp_avg", "0.bias/adam/step", "adam/lr"} < set(g.variables)


def test_a_variable_that_changes_its_place_changes_its_name(g: sg.Graph) -> None:
    one, two = sg.nn.Linear(2, 2), sg.nn.Linear(2, 2)
    assert [v.name for v in (one.weight, two.weight)] == ["linear.weight", "linear_1.weight"]
    net = sg.nn.Sequential(one)
    assert [v.name for v in (one.weight, two.weight)] == ["0.weight", "weight"]
    setattr(net, "0", two)
    assert [v.name for v in (one.weight, two.weight)] == ["weight", "0.weight"]
    delattr(net, "0")
    assert [v.name for v in (one.weight, two.weight)] == ["linear.weight", "linear_1.weight"]
    tied = Pair("ab")
    vars(tied)["a"].weight = vars(tied)["b"].weight
    assert set(g.variables) >= {"a.bias", "b.weight", "b.bias", "variable"}
    assert list(g.variables) == [x.name for x in g.variables.values()]


def test_a_module_that_was_dropped_is_freed_and_names_nothing_that_another_one_holds(g: sg.Graph) -> None:
    one, net = sg.nn.Linear(2, 2), sg.nn.Sequential()
    trial = sg.nn.Sequential(one)
    dropped = weakref.ref(trial)
    assert one.weight.name == "0.weight"
    del trial
    gc.collect()
    assert dropped() is None
    net.enc = one
    assert one.weight.name == "enc.weight"
    inner = vars(sg.nn.Sequential(sg.nn.Sequential(sg.nn.Linear(1, 1))))["0"]
    assert vars(inner)["0"].weight.name == "0.weight"


def test_variables_of_modules_that_a_function_declared_keep_their_paths(g: sg.Graph) -> None:
    def declare() -> Tensor:
        net = sg.nn.Sequential(sg.nn.Linear(2, 2), sg.nn.Sequential(sg.nn.Linear(2, 2)))
        return net(sg.ones((1, 2)))

    y = declare()
    gc.collect()
    assert list(y.graph.variables) == ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]


def test_copies_and_properties_have_places_of_their_own(g: sg.Graph) -> None:
    class Scaled(sg.nn.Module):
        @property
        def scale(self) -> Tensor:
            return self._scale

        @scale.setter
        def scale(self, value: Tensor) -> None:
            self._scale = value

    module = Scaled()
    module.scale = sg.Variable(f32(1))
    module.inner = sg.nn.Linear(1, 1)
    outer = sg.nn.Sequential(module, copy.copy(module))
    names = ["0._scale", "0.inner.weight", "0.inner.bias"]
    assert list(g.variables) == names
    assert list(outer._state()) == [*names, *(name.replace("0", "1", 1) for name in names)]


def test_names_stay_once_a_session_has_used_them(g: sg.Graph) -> None:
    layer = sg.nn.Linear(2, 2)
    sess = sg.Session(g)
    sess.set(layer.weight, np.ones((2, 2), np.float32))
    net = sg.nn.Sequential(sg.nn.Linear(2, 2), layer)
    assert list(g.variables) == ["weight", "bias", "0.weight", "0.bias"]
    np.testing.assert_array_equal(net.state_dict(sess)["1.weight"], np.ones((2, 2)))


def test_an_optimizer_steps_from_gradients_of_variables_without_names(g: sg.Graph) -> None:
    net = sg.nn.Sequential(sg.nn.Linear(2, 1, bias=False))
    y = sg.sum(net(sg.constant(f32(1, 2))))
    step = sg.optim.SGD(1.0).step()
    sess = sg.Session(g)
    before = net.state_dict(sess)["0.weight"]
    sess.forward(y).backward(y)
    sess.run(step)
    np.testing.assert_allclose(net.state_dict(sess)["0.weight"], before - f32(1, 2), rtol=1e-6)


def test_texts_of_loops_name_what_they_capture(g: sg.Graph) -> None:
    w = sg.Variable(f32(2), trainable=False)
    (y, _) = sg.scan(lambda c, x: (c + x * w, None), sg.zeros((1,)), sg.ones((3, 1)))
    assert w.op.name == "variable"
    assert "  %variable = placeholder() Source : float32[1]" in str(g)
    assert sg.Session(g).run(y) == 6


def test_batch_norm_writes_the_variables_that_its_module_names(g: sg.Graph) -> None:
    norm = sg.nn.BatchNorm1d(3)
    y = norm(sg.constant(f32(*range(12)).reshape(4, 3)))
    first = norm.running_mean.name
    net = sg.nn.Sequential(norm)
    sess = sg.Session(g)
    sess.run(y)
    assert (first, norm.running_mean.name) == ("running_mean", "0.running_mean")
    assert sess.get(norm.num_batches_tracked) == 1
    assert np.all(net.state_dict(sess)["0.running_mean"] > 0)


def test_an_explicit_name_is_that_of_the_file(g: sg.Graph, tmp_path: Path) -> None:
    layer = sg.nn.Linear(2, 2)
    layer.extra = sg.Variable(f32(1), name="mine")
    other = sg.Variable(f32(1), name="weight")
    assert [v.name for v in (layer.extra, other, layer.weight)] == ["mine", "weight", "linear.weight"]
    with pytest.raises(sg.GraphError, match="'mine' exists already"):
        sg.Variable(f32(1), name="mine")


def roots(lines: str) -> tuple[sg.Graph, dict[str, Tensor]]:
    """Declarations as a user's program, in a graph of their own."""
    import linecache

    known: dict[str, object] = {"sg": sg, "np": np, "Pair": Pair}
    file = f"<program {lines!r}>"
    linecache.cache[file] = (len(lines), None, lines.splitlines(keepends=True), file)
    with sg.Graph() as graph:
        exec(compile(lines, file, "exec"), known)
    found = {name: getattr(x, "weight", x) for name, x in known.items() if name in ("one", "two")}
    return graph, found


ORDERS = {
    "layers": ("one = sg.nn.Linear(4, 4)\ntwo = sg.nn.Linear(4, 4)\n",
               "two = sg.nn.Linear(4, 4)\none = sg.nn.Linear(4, 4)\n"),
    "variables": ("one = sg.Variable(np.zeros(3))\ntwo = sg.Variable(np.ones(3))\n",
                  "two = sg.Variable(np.ones(3))\none = sg.Variable(np.zeros(3))\n"),
    "models": ("one = Pair('ab').a\ntwo = Pair('ab') .a\n", "two = Pair('ab') .a\none = Pair('ab').a\n"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ORDERS)
def test_names_by_another_order_of_declaration_are_refused(tmp_path: Path, kind: str) -> None:
    first, second = ORDERS[kind]
    (graph, saved), (same, _), (other, found) = roots(first), roots("\n\n" + first), roots(second)
    sess = sg.Session(graph, seed=1)
    sess.save(tmp_path / "state")
    assert sg.Session(same).restore(tmp_path / "state") == ([], [])  # the same lines, though elsewhere
    swapped = sg.Session(other, seed=2)
    before = [swapped.get(v) for v in found.values()]
    for strict in (True, False):
        with pytest.raises(sg.FormatError, match=r"(?s)order of declaration.*in the file  one =.*in the graph two ="):
            swapped.restore(tmp_path / "state", strict=strict)
    for v, value in zip(found.values(), before, strict=True):
        np.testing.assert_array_equal(swapped.get(v), value)
    swapped.restore(tmp_path / "state", variables={saved[name].name: found[name] for name in found})
    for name, v in found.items():
        np.testing.assert_array_equal(swapped.get(v), sess.get(saved[name]))


def test_names_by_order_that_shapes_tell_apart_are_no_matter(tmp_path: Path) -> None:
    first, second = (
        f"{name} = sg.Variable(np.zeros(3))\nb = sg.Variable(np.zeros({size}))\n" for name, size in ("a2", "c2")
    )
    (graph, _), (other, _) = roots(first), roots(second)
    sg.Session(graph).save(tmp_path / "state")
    sg.Session(other).restore(tmp_path / "state")


def test_learning_rates_are_not_exchanged(tmp_path: Path) -> None:
    lines = [
        "w = sg.Variable(np.zeros(3), name='w')\nv = sg.Variable(np.zeros(3), name='v')\n",
        "fast = sg.optim.SGD(1.0).minimize(sg.sum(w))\n",
        "slow = sg.optim.SGD(0.1).minimize(sg.sum(v))\n",
    ]
    (graph, _), (other, _) = (roots("".join(order)) for order in (lines, [lines[0], lines[2], lines[1]]))
    sg.Session(graph).save(tmp_path / "state")
    with pytest.raises(sg.FormatError, match="'sgd/lr' is named by its place"):
        sg.Session(other).restore(tmp_path / "state")


def tree(draw: random.Random, depth: int) -> dict[str, Any]:
    """A module as attributes: a layer, a variable, or a module again."""
    kinds = ["layer", "variable", "module"] if depth else ["layer", "variable"]
    chosen = {name: draw.choice(kinds) for name in draw.sample(["a", "b", "weight", "bias"], draw.randint(1, 3))}
    return {name: tree(draw, depth - 1) if kind == "module" else kind for name, kind in chosen.items()}


def module_of(kind: str, attributes: Any, draw: random.Random) -> sg.nn.Module:
    """The module of a class of its own, whose attributes are declared and set in an order that is drawn."""
    module: sg.nn.Module = type(kind, (sg.nn.Module,), {})()
    made: dict[str, Any] = {}
    for order in (0, 1):
        for name in draw.sample(sorted(attributes), len(attributes)):
            what = attributes[name]
            if order == 0 and what == "layer":
                made[name] = sg.nn.Linear(2, 2)
            elif order == 0 and what == "variable":
                made[name] = sg.Variable(sg.init.normal(), shape=(2, 2))
            elif order == 0:
                made[name] = module_of(name, what, draw)
            else:
                setattr(module, name, made[name])
    return module


@pytest.mark.parametrize("seed", range(30))
def test_drawn_modules_get_their_values_back_in_whatever_order_they_are_declared(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    trees = {kind: tree(draw, 2) for kind in draw.sample(["Encoder", "Decoder", "Critic"], draw.randint(1, 3))}
    values = []
    for number in range(2):
        with sg.Graph() as graph:
            kinds = draw.sample(sorted(trees), len(trees))
            models = {kind: module_of(kind, trees[kind], draw) for kind in kinds}
        sess = sg.Session(graph, seed=number)
        if number == 0:
            sess.save(tmp_path / "state")
        else:
            assert sess.restore(tmp_path / "state") == ([], [])
        values.append({(kind, name): v for kind, m in models.items() for name, v in m.state_dict(sess).items()})
        if len(models) == 1:
            assert keys_of(tmp_path / "state") == {name for _, name in values[-1]}
    assert values[0].keys() == values[1].keys()
    for key, value in values[0].items():
        np.testing.assert_array_equal(value, values[1][key])


# -- parts ------------------------------------------------------------------------------------------------------------


def training_and_inference(tmp_path: Path) -> tuple[sg.Session, sg.nn.Module, sg.Graph, sg.nn.Module]:
    """A session that has trained and saved, its net, and another graph of the net alone."""
    with sg.Graph() as graph:
        net = Pair("ab")
        train = sg.optim.Adam(0.1).minimize(sg.sum(net(sg.ones((2, 4))) + sg.random.uniform((4,))))
    trained = sg.Session(graph, seed=1)
    trained.run(train)
    trained.save(tmp_path / "state")
    with sg.Graph() as other:
        alone = Pair("ab")
    return trained, net, other, alone


def test_a_training_checkpoint_loads_into_an_inference_graph(tmp_path: Path) -> None:
    trained, net, other, alone = training_and_inference(tmp_path)
    expected = net.state_dict(trained)
    slots = {"adam/lr"} | {f"{v}/adam/{slot}" for v in expected for slot in ("exp_avg", "exp_avg_sq", "step")}
    for arguments in ({"strict": False}, {"variables": alone.parameters()}):
        sess = sg.Session(other, seed=9)
        with pytest.raises(sg.FormatError, match=r"other variables than the graph's\n  not in the graph: 'a.*adam"):
            sess.restore(tmp_path / "state")
        rest = sess.restore(tmp_path / "state", **arguments)
        missing, unexpected = rest
        assert (missing, set(unexpected)) == ([], slots)
        assert (rest.missing_keys, rest.unexpected_keys) == (missing, unexpected)
        assert sess.seed == (1 if "strict" in arguments else 9)  # the random state is not a variable that was chosen
        for name, value in alone.state_dict(sess).items():
            np.testing.assert_array_equal(value, expected[name])


def test_weights_alone_are_saved_without_the_random_state(tmp_path: Path) -> None:
    trained, net, other, alone = training_and_inference(tmp_path)
    expected = net.state_dict(trained)
    for variables in (net, net.parameters(), {v.name: v for v in net.parameters()}):
        trained.save(tmp_path / "weights", variables=variables)
        assert keys_of(tmp_path / "weights") == {*expected}
        serving = sg.Session(other, seed=9)
        assert serving.restore(tmp_path / "weights") == ([], [])
        assert serving.seed == 9
        for name, value in alone.state_dict(serving).items():
            np.testing.assert_array_equal(value, expected[name])
    with pytest.raises(sg.FormatError, match="missing in the file: 'adam/lr'"):
        trained.restore(tmp_path / "weights")
    trained.restore(tmp_path / "weights", variables=net)


def test_variables_are_saved_under_other_names(g: sg.Graph, tmp_path: Path) -> None:
    w, v = sg.Variable(f32(1, 2)), sg.Variable(f32(3, 4))
    sess = sg.Session(g)
    sess.save(tmp_path / "state", variables={"best.w": w})
    assert keys_of(tmp_path / "state") == {"best.w"}
    sess.restore(tmp_path / "state", variables={"best.w": v})
    assert sess.get(v).tolist() == [1, 2]
    sess.save(tmp_path / "one", variables=w)
    assert keys_of(tmp_path / "one") == {"variable"}
    with pytest.raises(sg.FetchError, match="no variable of this graph"):
        sess.save(tmp_path / "one", variables=[w * 2])
    assert keys_of(tmp_path / "one") == {"variable"}


def test_chosen_variables_without_names_keep_their_lines(tmp_path: Path) -> None:
    first, second = ORDERS["layers"]
    (graph, saved), (other, _) = roots(first), roots(second)
    sg.Session(graph).save(tmp_path / "state", variables=list(saved.values()))
    with pytest.raises(sg.FormatError, match="order of declaration"):
        sg.Session(other).restore(tmp_path / "state", strict=False)


def nets(count: int) -> tuple[sg.Session, list[sg.nn.Sequential]]:
    """A session of a graph of this many equal nets, and the nets."""
    with sg.Graph() as graph:
        made = [sg.nn.Sequential(sg.nn.Linear(3, 4), sg.nn.Linear(4, 1)) for _ in range(count)]
        sg.optim.Adam().minimize(sg.sum(sum(net(sg.ones((2, 3))) for net in made)))
    return sg.Session(graph, seed=count), made


@pytest.mark.parametrize("saved", [1, 2])
def test_names_that_differ_by_how_many_nets_there_are_say_what_to_write(saved: int, tmp_path: Path) -> None:
    sess, (net, *_) = nets(saved)
    sess.save(tmp_path / "state")
    target, (other, *_) = nets(3 - saved)
    for variables in (None, other):
        with pytest.raises(sg.FormatError, match=r"begin with 'sequential\.'") as caught:
            target.restore(tmp_path / "state", variables=variables)
        expression = str(caught.value).split("variables=")[1].split("} takes")[0] + "}"
        target.restore(tmp_path / "state", variables=eval(expression, {"net": other}))
        for name, value in other.state_dict(target).items():
            np.testing.assert_array_equal(value, net.state_dict(sess)[name])


def test_other_names_are_told_nothing_of_several_nets(g: sg.Graph, tmp_path: Path) -> None:
    training_and_inference(tmp_path)
    sg.Variable(f32(1), name="w")
    with pytest.raises(sg.FormatError) as caught:
        sg.Session(g).restore(tmp_path / "state")
    assert "begin with" not in str(caught.value)


def test_a_file_with_another_such_net_beside_the_one_that_is_taken_warns(tmp_path: Path) -> None:
    with sg.Graph() as graph:
        first = Pair("ab")
        assert first.parameters()[0].name == "a.weight"
        sg.Session(graph).run(first(sg.ones((2, 4))))  # its names are settled
        second = Pair("ab")
        train = sg.optim.SGD(1.0).minimize(sg.sum(second(sg.ones((2, 4)))))
    sess = sg.Session(graph)
    sess.run(train)
    sess.save(tmp_path / "state")
    sess.restore(tmp_path / "state")  # all of it
    with sg.Graph() as serving:
        net = Pair("ab")
    target = sg.Session(serving)
    for arguments in ({"strict": False}, {"variables": net}):
        with pytest.warns(sg.DuplicateLayerWarning, match=r"'a\.weight' is taken, 'pair\.a\.weight' is not") as caught:
            target.restore(tmp_path / "state", **arguments)
        assert caught[0].filename == __file__
    expression = str(caught[0].message).split("variables=")[1].split("} takes")[0] + "}"
    target.restore(tmp_path / "state", variables=eval(expression, {"net": net}))
    np.testing.assert_array_equal(target.get(net.a.weight), sess.get(second.a.weight))
    target.restore(tmp_path / "state", variables={v.name: v for v in net.parameters()})
    np.testing.assert_array_equal(target.get(net.a.weight), sess.get(first.a.weight))


def test_what_is_missing_is_returned_or_refused(tmp_path: Path) -> None:
    _, _, other, alone = training_and_inference(tmp_path)
    with other:
        more = sg.Variable(f32(1), name="more")
    sess = sg.Session(other)
    with pytest.raises(sg.FormatError, match="missing in the file: 'more'"):
        sess.restore(tmp_path / "state", variables=[more, *alone.parameters()])
    assert sess.restore(tmp_path / "state", variables=[more, *alone.parameters()], strict=False).missing_keys == [
        "more"
    ]
    assert sess.restore(tmp_path / "state", strict=False)[0] == ["more"]
    assert sess.get(more) == 1
    with pytest.raises(sg.FetchError, match="no variable of this graph"):
        sess.restore(tmp_path / "state", variables=[sg.Variable(f32(1), name="foreign")])


def test_no_name_that_agrees_is_refused(g: sg.Graph, tmp_path: Path) -> None:
    training_and_inference(tmp_path)
    w = sg.Variable(f32(1), name="w")
    layer = sg.nn.Sequential(sg.nn.Linear(2, 2))
    sess = sg.Session(g)
    for arguments in ({"strict": False}, {"variables": [w], "strict": False}, {"variables": []}):
        with pytest.raises(sg.FormatError, match="none of the graph's variables"):
            sess.restore(tmp_path / "state", **arguments)
    for values in ({}, {"weight": np.zeros((2, 2))}):
        with pytest.raises(sg.FormatError, match=r"load_state_dict of Sequential: none of the module's variables"):
            layer.load_state_dict(sess, values, strict=False)
    rest = layer.load_state_dict(sess, {"0.bias": np.ones(2), "more": 1}, strict=False)
    assert rest == (["0.weight"], ["more"])
    assert layer.load_state_dict(sess, layer.state_dict(sess)) == ([], [])
    assert sg.nn.ReLU().load_state_dict(sess, {}) == ([], [])


def test_a_graph_without_variables_has_a_random_state(tmp_path: Path) -> None:
    one, two = sg.Session(sg.Graph(), seed=3), sg.Session(sg.Graph(), seed=4)
    one.save(tmp_path / "state")
    assert two.restore(tmp_path / "state") == ([], [])
    assert two.seed == 3


def test_a_file_of_another_program_is_refused_with_the_way_to_its_arrays(tmp_path: Path, g: sg.Graph) -> None:
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "other.safetensors"
    net = sg.nn.Linear(3, 2)
    save_file({"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)}, path)
    sess = sg.Session(g)
    with pytest.raises(
        sg.FormatError, match=r"module\.load_state_dict\(sess, load_file\(path\)\), with load_file from"
    ):
        sess.restore(path)
    net.load_state_dict(sess, load_file(path))
    np.testing.assert_array_equal(sess.get(net.weight), np.ones((2, 3)))
