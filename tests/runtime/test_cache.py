"""What is kept on disk: hits for equal programs under any names, misses for anything that differs, damage is a miss."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad import init
from staticgrad.base.config import told_features
from staticgrad.base.types import TensorType
from staticgrad.compiler.binary import Binary
from staticgrad.compiler.kernels.matrix import Blocking, Contraction
from staticgrad.compiler.machine import target
from staticgrad.compiler.machine.isa import AVX512_NEEDS
from staticgrad.compiler.machine.target import GENERIC, current_target
from staticgrad.compiler.native import cache, private
from staticgrad.compiler.native.module import NativeModule
from staticgrad.compiler.native.private import NotPrivate
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.digest import NoDigest, digest
from staticgrad.errors import BoundsError, NumericsError, StaticGradError
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.runtime.session import compiler as compilers

TEXT = "define i64 @answer() {\nentry:\n  ret i64 42\n}\n"

Program = Callable[[], tuple[Any, dict[Tensor, np.ndarray]]]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("STATICGRAD_TIERS", "0")  # programs are kept before their first call
    for name in ("CACHE", "DEBUG", "EXPLAIN", "VERIFY", "PRINT_AFTER", "DUMP_DIR", "BACKEND"):
        monkeypatch.delenv(f"STATICGRAD_{name}", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def binaries(monkeypatch: pytest.MonkeyPatch) -> list[Binary]:
    """The programs that sessions load, as they come."""
    from staticgrad.compiler import binary

    made: list[Binary] = []
    honest = binary.binary

    def noted(*args: Any, **kwargs: Any) -> Binary:
        made.append(honest(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(binary, "binary", noted)
    return made


# -- modules --------------------------------------------------------------------------------------------------------


def test_the_second_module_is_a_hit_and_shows_the_same_assembly(fresh: Path) -> None:
    first, second = (NativeModule(TEXT, current_target()) for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert second.address("answer")
    assert first.assembly() == second.assembly()
    assert len(cache.entries(str(fresh))) == 1


def test_another_text_or_target_is_a_miss() -> None:
    NativeModule(TEXT, current_target())
    assert not NativeModule(TEXT.replace("42", "43"), current_target()).cached
    if current_target() != GENERIC:
        assert not NativeModule(TEXT, GENERIC).cached


def test_a_module_with_a_key_is_written_only_where_it_is_not_kept() -> None:
    texts: list[str] = []

    def write() -> str:
        texts.append(TEXT)
        return TEXT

    found = [NativeModule(write, current_target(), key=key) for key in ("a", "a", "b")]
    assert [module.cached for module in found] == [False, True, False]
    assert len(texts) == 2


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path / "file"))
    with Graph() as graph:
        x = sg.placeholder((2,))
        np.testing.assert_array_equal(sg.Session(graph).run(x + 1.0, {x: np.zeros(2, np.float32)}), [1, 1])


def test_off_means_nothing_is_written(fresh: Path, monkeypatch: pytest.MonkeyPatch, binaries: list[Binary]) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    for _ in range(2):
        run(small)
    assert [b.was_kept for b in binaries] == [False, False]
    assert not fresh.exists()


def test_the_oldest_entries_go_first(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for number in range(4):
        key = cache.key_of(str(number))
        cache.save(key, bytes(1000))
        os.utime(fresh / f"{key}{cache.SUFFIX}", (number, number))
        keys.append(key)
    abandoned, present = fresh / f"a{cache.TEMPORARY}", fresh / f"b{cache.TEMPORARY}"
    for path, age in ((abandoned, 2 * cache.ABANDONED), (present, 0.0)):
        path.write_bytes(b"")
        os.utime(path, (time.time() - age,) * 2)
    monkeypatch.setattr(cache, "LIMIT", 3000)
    cache.save(cache.key_of("new"), bytes(500))
    cache.shrink(str(fresh))
    assert (abandoned.exists(), present.exists()) == (False, True)
    assert cache.load(keys[0]) is None
    assert cache.load(keys[3]) == bytes(1000)
    assert cache.clear() == 3
    assert cache.entries(str(fresh)) == []


def test_the_place_does_not_grow_without_bound(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT", 4000)
    for number in range(400):
        cache.save(cache.key_of(str(number)), bytes(100))
    assert 0 < len(cache.entries(str(fresh))) < 200


def test_what_is_too_large_is_not_kept(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGEST", 100)
    cache.save(cache.key_of("large"), bytes(200))
    assert cache.load(cache.key_of("large")) is None


def test_an_entry_of_another_format_is_a_miss(fresh: Path) -> None:
    key = cache.key_of("x")
    cache.save(key, b"content")
    path = fresh / f"{key}{cache.SUFFIX}"
    path.write_bytes(path.read_bytes().replace(b"entry 3", b"entry 2"))
    assert cache.load(key) is None


def test_the_command_says_what_is_kept_and_drops_it(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from staticgrad.tools.cli import main

    NativeModule(TEXT, current_target())
    assert main(["cache", "--clear"]) == 0
    said = capsys.readouterr().out
    assert f"{fresh}: 1 entries" in said
    assert "dropped 1" in said
    assert cache.entries(str(fresh)) == []


def test_the_place_follows_the_system_s_conventions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATICGRAD_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
        assert cache.directory() == str(tmp_path / "x" / "staticgrad")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative: to be ignored")
        assert cache.directory() == str(tmp_path / ".cache" / "staticgrad")


def test_keys_change_with_the_sources_and_with_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    key, module = cache.key_of("x"), cache.key_of("x", needs_sources=False)
    monkeypatch.setattr(cache, "sources", lambda: "changed")
    assert cache.key_of("x") != key
    assert cache.key_of("x", needs_sources=False) == module
    monkeypatch.setattr(cache, "toolchain", lambda: "changed")
    assert cache.key_of("x", needs_sources=False) != module
    monkeypatch.setattr(cache, "toolchain", lambda: None)
    assert cache.key_of("x") is None
    cache.save(None, b"")
    assert cache.load(None) is None


def test_the_sources_are_all_of_them(tmp_path: Path) -> None:
    listed = cache.sources()
    assert listed is not None
    for name in ("graph.py", "fuse.py", "entry.py", "arithmetic.py", "llvm.py", "foreign.ll"):
        assert f"{os.sep}{name} " in listed
    assert cache._state_of([str(tmp_path)], (".py",)) is None
    assert cache._state_of([str(tmp_path / "nowhere")], (".py",)) is None


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="needs Linux")
def test_the_system_and_llvm_agree_about_the_processor() -> None:
    import llvmlite.binding as llvm

    told = told_features()
    if told is not None:
        known = {name for name, on in llvm.get_host_cpu_features().items() if on}
        wanted = {*AVX512_NEEDS, "avx", "avx2"}
        assert told & wanted == known & wanted


# -- programs: what is a hit ----------------------------------------------------------------------------------------


def small() -> tuple[Any, dict[Tensor, np.ndarray]]:
    x = sg.placeholder((3, 5), name="x")
    w = sg.constant(np.arange(15, dtype=np.float32).reshape(5, 3))
    return [sg.exp(x) * 2.0 + 1.0, x @ w], {x: np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)}


def statistics() -> tuple[Any, dict[Tensor, np.ndarray]]:
    x = sg.placeholder((40, 7))
    i = sg.placeholder((4,), sg.int64)
    big = sg.constant(np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32))
    rows = sg.take(big, i, axis=0)
    arrays = {x: np.arange(280, dtype=np.float32).reshape(40, 7) / 100, i: np.array([3, 0, 39, 1])}
    return {"s": sg.nn.softmax(x, 1), "m": x.mean(0), "r": rows, "v": sg.lgamma(x + 1.0)}, arrays


def loop() -> tuple[Any, dict[Tensor, np.ndarray]]:
    x = sg.placeholder((6, 4))
    scale = sg.constant(np.float32(0.5))
    carry, rows = sg.scan(lambda c, r: (sg.tanh(c * scale + r), c.sum()), sg.zeros((4,)), x)
    chosen = sg.cond(carry.sum() > 0, lambda: carry * 2.0, lambda: carry - 1.0)
    return (carry, rows, chosen), {x: np.arange(24, dtype=np.float32).reshape(6, 4) / 24}


def empty() -> tuple[Any, dict[Tensor, np.ndarray]]:
    x = sg.placeholder((0, 3))
    return (x.sum(0), sg.concat([x, sg.ones((2, 3))], axis=0)), {x: np.zeros((0, 3), np.float32)}


def draws() -> tuple[Any, dict[Tensor, np.ndarray]]:
    x = sg.placeholder((50,))
    return sg.random.uniform((50,)) + x, {x: np.zeros(50, np.float32)}


def run(declare: Program, **options: Any) -> Any:
    with Graph() as graph:
        fetches, feeds = declare()
    return sg.Session(graph, seed=3, **options).run(fetches, feeds)


PROGRAMS = (small, statistics, loop, empty, draws)


@pytest.mark.parametrize("name", ["avx512", "avx2", "generic"])
@pytest.mark.parametrize("declare", PROGRAMS, ids=lambda f: f.__name__)
def test_a_kept_program_gives_the_same_bits(
    declare: Program, name: str, binaries: list[Binary], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not target.runs_here(target.TARGETS[name]):
        pytest.skip(f"no {name} here")
    monkeypatch.setenv("STATICGRAD_TARGET", name)
    first, second = (sg.nest.flatten(run(declare)) for _ in range(2))
    assert [b.was_kept for b in binaries] == [False, True]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def test_names_and_lines_do_not_count_but_are_the_present_ones(binaries: list[Binary]) -> None:
    def declared(name: str) -> tuple[Graph, Tensor, Tensor]:
        with Graph() as graph:
            x = sg.placeholder((4, 4), name=name)
            y = x @ sg.exp(x)
        return graph, x, y

    for name in ("first", "second"):
        graph, x, y = declared(name)
        executable = sg.Session(graph).compile(y, [x])
        assert name in executable.text("graph")
        assert "main" in executable.text("asm")
        assert executable.cost.flops > 0
        assert str(executable.memory).startswith("arena")
        assert all(b.source is None or b.source.file == __file__ for b in executable.memory.buffers)
    assert [b.was_kept for b in binaries] == [False, True]


def variants() -> dict[str, Callable[[Tensor], Any]]:
    ones, twos = np.ones((4, 4), np.float32), np.full((4, 4), 2, np.float32)
    return {
        "sum": lambda x: x.sum(0),
        "another axis": lambda x: x.sum(1),
        "another op": lambda x: x.max(0),
        "a constant": lambda x: x + ones,
        "another constant": lambda x: x + twos,
        "a number": lambda x: x + 1.5,
        "another number": lambda x: x + 2.5,
        "operands in order": lambda x: x - sg.exp(x),
        "operands turned round": lambda x: sg.exp(x) - x,
        "two results": lambda x: (sg.exp(x), sg.log(x)),
        "two results turned round": lambda x: (sg.log(x), sg.exp(x)),
        "loop": lambda x: sg.scan(lambda c, r: (c + r, None), sg.zeros((4,)), x)[0],
        "loop of another body": lambda x: sg.scan(lambda c, r: (c - r, None), sg.zeros((4,)), x)[0],
        "reversed loop": lambda x: sg.scan(lambda c, r: (c + r, None), sg.zeros((4,)), x, reverse=True)[0],
        "nan": lambda x: sg.where(x > 0, x, float("nan")),
        "infinity": lambda x: sg.where(x > 0, x, float("inf")),
    }


def text_of(declare: Callable[[Tensor], Any], *others: object, shape: tuple[int, ...] = (4, 4)) -> str:
    with Graph() as graph:
        x = sg.placeholder(shape)
        y = sg.nest.flatten(declare(x))
    return digest(cut(graph, y, {x: TensorType(shape, np.dtype("float32"))}), *others).text


def test_whatever_differs_has_another_digest() -> None:
    texts = [text_of(declare) for declare in variants().values()]
    assert len(set(texts)) == len(texts)
    assert texts == [text_of(declare) for declare in variants().values()]
    assert text_of(lambda x: x + 1.0) != text_of(lambda x: x + 1.0, shape=(4, 5))


def test_whatever_differs_in_the_options_has_another_digest() -> None:
    from staticgrad.compiler.options import CompileOptions

    here, product = current_target(), Contraction(np.dtype(np.float32), (), 8, 8, 8, (8, 1), (8, 1), (8, 1))
    other = replace(here, isa=replace(here.isa, fma=not here.isa.fma))
    slower = replace(here, machine=replace(here.machine, product_flops_per_lane=1e9))
    ahead = replace(here, machine=replace(here.machine, products=replace(here.machine.products, prefetch_turns=7)))
    asked: list[dict[str, Any]] = [
        {}, {"memory": "none"}, {"disabled": frozenset({"fuse"})}, {"disabled": frozenset({"cse", "fuse", "dce"})},
        {"workers": 2}, {"planning_seconds": 1.0}, {"memory_budget": 1}, {"memory_budget": 1.0},
        {"blockings": ((product, Blocking(False, 2, 1, False, False)),)},
        {"blockings": ((product, Blocking(False, 3, 1, False, False)),)},
    ]  # fmt: skip
    several = [CompileOptions(here, **options) for options in asked]
    several += map(CompileOptions, (other, slower, ahead))
    texts = [text_of(lambda x: x + 1.0, options) for options in several]
    assert len(set(texts)) == len(texts)
    assert text_of(lambda x: x, frozenset({"a", "b", "c"})) == text_of(lambda x: x, frozenset({"c", "b", "a"}))


def test_a_region_with_a_python_function_has_no_digest() -> None:
    with pytest.raises(NoDigest):
        text_of(lambda x: sg.py_call(lambda a: a, [x], [(np.float32, (4, 4))]))


def test_programs_that_call_python_run_and_only_their_code_is_kept(
    binaries: list[Binary], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1.0, 2.0):
        with Graph() as graph:
            x = sg.placeholder((2,))
            (y,) = sg.py_call(lambda a, n=number: a + n, [x], [(np.float32, (2,))])
            shown = sg.print(y, f"{number} gives ")
        value = sg.Session(graph).run(shown * 1.0, {x: np.zeros(2, np.float32)})
        np.testing.assert_array_equal(value, [number, number])
    assert [b.was_kept for b in binaries] == [False, False]
    assert capsys.readouterr().out.count("gives") == 2


def test_who_watches_the_stages_sees_them(
    binaries: list[Binary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small)
    monkeypatch.setenv("STATICGRAD_DUMP_DIR", str(tmp_path / "dump"))
    run(small)
    assert [b.was_kept for b in binaries] == [False, False]
    assert list((tmp_path / "dump").glob("*cut*"))


# -- programs: state, errors ----------------------------------------------------------------------------------------


def test_variables_and_gradients_are_those_of_the_present_graph(binaries: list[Binary]) -> None:
    def trained(first: str, second: str) -> list[np.ndarray]:
        with Graph() as graph:
            x = sg.placeholder((8, 3))
            w = sg.Variable(np.full((3, 2), 0.5, np.float32), name=first)
            b = sg.Variable(np.array([1, -1], np.float32), name=second)
            loss = sg.square(sg.tanh(x @ w) + b).mean()
            step = sg.optim.SGD(0.1, momentum=0.9).minimize(loss)
        with sg.Session(graph, seed=1) as session:
            data = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
            losses = [session.run([loss, step], {x: data})[0] for _ in range(3)]
            tape = session.forward(loss, {x: data})
            tape.backward(loss)
            gradients = [session.grad(v) for v in (w, b)]
            return [*losses, session.get(w), session.get(b), *gradients]

    before = trained("w", "b")
    compiled = len(binaries)
    after = trained("b", "another")
    assert [b.was_kept for b in binaries] == [False] * compiled + [True] * compiled
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y, strict=True)


def test_tapes_that_retain_and_consume_load_what_was_kept(binaries: list[Binary]) -> None:
    def gradients() -> list[np.ndarray]:
        with Graph() as graph:
            x = sg.placeholder((5, 5), requires_grad=True)
            y = sg.sin(sg.exp(x) @ sg.cos(x)).sum()
        with sg.Session(graph) as session:
            tape = session.forward(y, {x: np.linspace(0, 1, 25, dtype=np.float32).reshape(5, 5)})
            tape.backward(y, retain_graph=True)
            kept = tape.memory.saved_bytes
            tape.backward(y)
            return [session.grad(x), np.array(kept)]

    before = gradients()
    compiled = len(binaries)
    after = gradients()
    assert [b.was_kept for b in binaries] == [False] * compiled + [True] * compiled
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("fetched", ["bounds", "assertion", "numerics"])
def test_errors_of_a_kept_program_name_the_present_tensors_and_lines(fetched: str, binaries: list[Binary]) -> None:
    def fail(name: str) -> str:
        with Graph() as graph:
            x = sg.placeholder((3,), name=name)
            i = sg.placeholder((2,), sg.int64, name=f"{name}_index")
            if fetched == "bounds":
                y = sg.take(sg.exp(x), i, axis=0)
            elif fetched == "assertion":
                positive = sg.assert_((x > 0).all(), f"{name} is positive")
                with sg.control_dependencies([positive]):
                    y = x + sg.astype(i.sum(), sg.float32)
            else:
                y = sg.log(x) + sg.astype(i.sum(), sg.float32)
        session = sg.Session(graph, check_numerics=fetched == "numerics")
        expected = {"bounds": BoundsError, "assertion": StaticGradError, "numerics": NumericsError}[fetched]
        feeds = {x: np.array([1, -1, 2], np.float32), i: np.array([0, 7])}
        with pytest.raises(expected) as caught:
            session.run(y, feeds)
        assert caught.value.source is not None
        return str(caught.value).replace(name, "NAME")

    assert fail("alpha") == fail("beta")
    assert [b.was_kept for b in binaries] == [False, True]


def test_a_range_of_sizes_is_kept_once(binaries: list[Binary]) -> None:
    def sums() -> list[float]:
        with Graph() as graph:
            x = sg.placeholder((None, 2))
            y = (x * 2.0).sum()
        session = sg.Session(graph)
        return [float(session.run(y, {x: np.ones((n, 2), np.float32)})) for n in (3, 4, 20)]

    assert sums() == sums() == [12.0, 16.0, 80.0]
    assert [b.was_kept for b in binaries] == [False, False, True, True]


def test_initial_values_are_not_part_of_a_program(binaries: list[Binary]) -> None:
    for scale in (1.0, 2.0):
        with Graph() as graph:
            w = sg.Variable(init.normal(std=scale), shape=(3,), name="w")
            y = w * 1.0
        session = sg.Session(graph)
        np.testing.assert_array_equal(session.run(y), session.get(w))
    assert [b.was_kept for b in binaries] == [False, True]


# -- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_module_is_a_miss(fresh: Path, damage: str) -> None:
    NativeModule(TEXT, current_target())
    ((_, _, path),) = cache.entries(str(fresh))
    content = bytearray(Path(path).read_bytes())
    content[-1] ^= 1
    Path(path).write_bytes({"cut": content[:-9], "flip": content, "empty": b"", "foreign": b"something else"}[damage])
    again = NativeModule(TEXT, current_target())
    assert not again.cached
    assert again.address("answer")


def test_a_damaged_program_is_compiled_again(fresh: Path, binaries: list[Binary]) -> None:
    expected = run(loop)
    whole = {path: Path(path).read_bytes() for _, _, path in cache.entries(str(fresh))}
    draw = random.Random(0)
    for turn in range(8):
        for path, content in whole.items():
            damaged = bytearray(content[: draw.randrange(len(content))] if turn % 2 else content)
            if not turn % 2:
                damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            Path(path).write_bytes(damaged)
        for a, b in zip(expected, run(loop), strict=True):
            np.testing.assert_array_equal(a, b)
    assert not any(b.was_kept for b in binaries)


def test_data_that_pass_the_digest_and_make_no_program_are_a_miss(
    binaries: list[Binary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a later version of the format might leave them: every part of an entry is checked when it is read."""
    run(statistics)
    kept = next(data for data in map(cache.load, _keys()) if isinstance(data, tuple) and isinstance(data[0], tuple))
    draw = random.Random(1)
    for _ in range(60):
        broken = _broken(kept, draw)
        if repr(broken) == repr(kept):
            continue
        with monkeypatch.context() as patch:
            patch.setattr(cache, "load", lambda key, broken=broken: broken)
            from staticgrad.compiler import binary

            names = binary.Digest("", (), (), ())
            assert binary._loaded(broken, names) is None


def _keys() -> list[str]:
    place = cache.directory()
    assert place is not None
    return [os.path.basename(path).removesuffix(cache.SUFFIX) for _, _, path in cache.entries(place)]


def _broken(data: Any, draw: random.Random) -> Any:
    """The data with one part of them, somewhere, of another kind."""
    if not isinstance(data, tuple) or not data or draw.random() < 0.2:
        return {int: "text", str: 3, bytes: None, bool: (), tuple: b""}.get(type(data), 1.5)
    position = draw.randrange(len(data))
    return (*data[:position], _broken(data[position], draw), *data[position + 1 :])


# -- trust ----------------------------------------------------------------------------------------------------------

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes of files")


def _entry(fresh: Path, name: str, data: Any) -> tuple[str, Path]:
    key = cache.key_of(name)
    assert key is not None
    cache.save(key, data)
    return key, fresh / f"{key}{cache.SUFFIX}"


def test_an_entry_under_another_name_is_a_miss(fresh: Path) -> None:
    (first, one), (second, two) = _entry(fresh, "first", 1), _entry(fresh, "second", 2)
    one.replace(two)
    assert (cache.load(first), cache.load(second)) == (None, None)


def test_programs_under_each_other_s_names_are_compiled_again(fresh: Path, binaries: list[Binary]) -> None:
    def added(number: float) -> Program:
        def declare() -> tuple[Any, dict[Tensor, np.ndarray]]:
            x = sg.placeholder((3,))
            return x + number, {x: np.zeros(3, np.float32)}

        return declare

    several = [added(number) for number in (1.0, 2.0, 3.0)]
    files = [{path for _, _, path in cache.entries(str(fresh))} for declare in several if run(declare) is not None]
    written = sorted(files[-1])  # programs, their kernels, the index of these
    contents = [Path(path).read_bytes() for path in written]
    for path, content in zip(written, contents[1:] + contents[:1], strict=True):
        Path(path).write_bytes(content)
    assert [run(declare)[0] for declare in several] == [1, 2, 3]
    assert not any(b.was_kept for b in binaries)


@POSIX
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(
    fresh: Path, mode: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from staticgrad.tools.cli import main

    key, path = _entry(fresh, "kept", 1)
    fresh.chmod(mode)
    monkeypatch.setenv("STATICGRAD_DEBUG", "1")
    cache._say_once.cache_clear()
    assert cache.load(key) is None
    path.unlink()
    cache.save(key, 2)
    assert not path.exists()
    assert capsys.readouterr().err.count("others than its owner may write to it") == 1
    assert main(["cache", "--clear"]) == 0
    assert "may write to it" in capsys.readouterr().out
    fresh.chmod(0o755)
    cache.save(key, 3)
    assert cache.load(key) == 3


@POSIX
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_can_write_to_is_a_miss(fresh: Path, mode: int) -> None:
    key, path = _entry(fresh, "kept", 1)
    path.chmod(mode)
    assert cache.load(key) is None
    cache.save(key, 2)
    assert cache.load(key) == 2
    assert path.stat().st_mode & 0o777 == 0o600


@POSIX
def test_what_somebody_else_owns_is_a_miss(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    key, path = _entry(fresh, "kept", 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: owner + 1)
        assert cache.load(key) is None
        path.unlink()
        cache.save(key, 2)
        with pytest.raises(NotPrivate, match="owned by user"):
            cache.clear()
    assert not path.exists()
    cache.save(key, 2)
    assert cache.load(key) == 2
    if os.geteuid() == 0:  # who may give files away: a file of somebody else in a folder of one's own
        os.chown(path, 1, 1)
        assert cache.load(key) is None


@POSIX
@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "too long"])
def test_what_is_no_regular_file_of_a_right_size_is_a_miss_at_once(
    fresh: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, path = _entry(fresh, "kept", 1)
    aside = path.replace(fresh / "aside")
    if kind == "fifo":
        os.mkfifo(path, 0o600)
    elif kind == "link":
        path.symlink_to(aside)
    elif kind == "folder":
        path.mkdir()
    else:
        monkeypatch.setattr(cache, "LARGEST", 8)
        path.write_bytes(bytes(1000))
        path.chmod(0o600)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(cache.load(key)), daemon=True)
    thread.start()
    thread.join(60)
    assert found == [None]
    cache.save(key, None)
    assert aside.exists()
    assert len(cache.entries(str(fresh))) == (0 if kind == "folder" else 1)


@POSIX
def test_folders_and_files_are_made_for_their_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "above" / "cache"
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(place))
    before = os.umask(0)
    try:
        cache.save(cache.key_of("x"), 1)
    finally:
        os.umask(before)
    (entry,) = place.iterdir()
    modes = [path.stat().st_mode & 0o777 for path in (place.parent, place, entry)]
    assert modes == [0o700, 0o700, 0o600]


def test_an_entry_whose_writing_is_interrupted_leaves_no_file(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    key = cache.key_of("x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.save(key, 1)
    assert not list(fresh.iterdir())


def test_entries_are_kept_where_folders_have_no_descriptors(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "HAS_DESCRIPTORS", False)
    key, path = _entry(fresh, "kept", 1)
    assert cache.load(key) == 1
    assert cache.clear() == 1
    assert not path.exists()


def test_any_damage_of_an_entry_is_a_miss(fresh: Path) -> None:
    data = ("text", (1, -(2**70), 2.5, None, True), b"\0\1", ())
    keys = [_entry(fresh, str(number), (number, data)) for number in range(3)]
    (key, path), others = keys[0], [other.read_bytes() for _, other in keys[1:]]
    whole = path.read_bytes()
    damaged = [whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :]
               for position in range(len(whole)) for bit in range(8)]  # fmt: skip
    damaged += [whole[:position] for position in range(len(whole))]
    damaged += [whole + b"\0", b"", *others, *(whole[:20] + other[20:] for other in others)]
    for content in damaged:
        path.write_bytes(content)
        assert cache.load(key) is None
    path.write_bytes(whole)
    assert cache.load(key) == (0, data)


# -- fresh processes ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np, staticgrad as sg
from staticgrad.compiler import binary
made, honest = [], binary.binary
binary.binary = lambda *args: made.append(honest(*args)) or made[-1]
with sg.Graph() as graph:
    x = sg.placeholder((3,))
    w = sg.Variable(np.ones((3, 3), np.float32))
    y = sg.exp(x) @ w * 2.0
    z = sg.nn.softmax(y)
value = sg.Session(graph, num_threads=2).run(y, {x: np.array([0, 1, 2], np.float32)})
print(value.sum(), made[0].was_kept, *sys.modules)
"""
COMPILING = ("llvmlite", *(f"staticgrad.compiler.{name}" for name in ("pipeline", "kernels", "emit.llvm")))
UNUSED = tuple(
    f"staticgrad.{name}"
    for name in ("interpreter", "runtime.threads", "runtime.reference", "ops.control.loops", "compiler.regions.merge")
)
NEEDLESS = (  # by this program: compilers of other kernels, and of other options; llvmlite beside its library
    "concurrent.futures",
    "llvmlite.binding",
    *(
        f"staticgrad.compiler.{name}"
        for name in (
            "emit.convolution",
            "emit.elementary.circular",
            "emit.routines",
            "plans.routines",
            "steps.recompute",
            "memory.search",
        )
    ),
)


def test_a_fresh_process_compiles_nothing_again_and_imports_no_compiler() -> None:
    def process() -> list[str]:
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        return done.stdout.split()

    value, kept, *imported = process()
    assert kept == "False"
    assert set(COMPILING) <= set(imported)
    assert not set(NEEDLESS) & set(imported)
    again, kept, *imported = process()
    assert (again, kept) == (value, "True")
    assert not {*COMPILING, *UNUSED} & set(imported)


SMALLEST = """
import sys
import numpy as np, staticgrad as sg
x = sg.placeholder((4,))
y = sg.mean(4 * (x * x))
exe = sg.Session().compile([y, *sg.gradients(y, [x])], [x])
print(exe(np.arange(4, dtype=np.float32))[0], *sys.modules)
"""


def test_the_smallest_program_imports_the_compiler_of_nests_alone(tmp_path: Path) -> None:
    """Importing modules is half of what its first call takes."""
    environment = {**os.environ, "STATICGRAD_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SMALLEST]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    value, *imported = done.stdout.split()
    assert value == "14.0"
    compiling = ("emit.microkernel", "emit.contraction", "autodiff.residuals", "regions.verify", "tapes", "pipeline")
    found = {f"staticgrad.compiler.{name}" for name in compiling} & set(imported)
    assert found == {"staticgrad.compiler.pipeline"}
    assert not {"llvmlite.binding", "staticgrad.ops.interpreter", "staticgrad.ops.control.branches"} & set(imported)
    assert sum(name.startswith("staticgrad") for name in imported) < 240


IMPORTING = """
import gc, sys
searches = []
gc.callbacks.append(lambda phase, info: searches.append(info["generation"]))
gc.collect()
import staticgrad as sg
old = len(gc.get_objects(2))
searches.clear()
sg.Session, sg.scan, sg.optim, sg.linalg.svd, sg.nn.cross_entropy
print(len(gc.get_objects(2)) - old, len(searches), gc.get_freeze_count(), gc.isenabled())
gc.freeze()
frozen = gc.get_freeze_count()
sg.vmap
print(gc.get_freeze_count() > frozen // 2)
"""


def test_imports_are_not_searched_for_garbage_and_leave_what_is_frozen_alone() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=True)
    grown, searches, frozen, enabled, *kept = done.stdout.split()
    assert int(grown) > 5000
    assert (int(searches), frozen, enabled, kept) == (0, "0", "True", ["True"])


def test_compilers_of_sessions_name_what_they_load() -> None:
    """The tests above count what goes through this one name."""
    assert "binary(" in Path(compilers.__file__).read_text(encoding="utf-8")


def test_the_state_of_the_sources_is_that_of_the_package_alone() -> None:
    """That of a checkout was that of all that lies in it, environments too: it took half a second."""
    folders = [Path(str(module.__file__)).parent for module in (sg, sg.compiler, sg.runtime)]
    listed = cache.sources()
    assert listed is not None
    files = [Path(line.rsplit(" ", 2)[0]) for line in listed.split("\n")]
    assert Path(cache.__file__) in files
    assert all(any(file.is_relative_to(folder) for folder in folders) for file in files)
