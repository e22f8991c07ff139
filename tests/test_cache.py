"""The cache of machine code: hits in a fresh process, misses for anything that differs, damage is a miss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.emit import cache
from staticgrad.compiler.emit.native import NativeModule
from staticgrad.compiler.emit.target import GENERIC, current_target
from staticgrad.graph import Graph

TEXT = "define i64 @answer() {\nentry:\n  ret i64 42\n}\n"

PROGRAM = """
import numpy as np, staticgrad as sg
from staticgrad.compiler.emit import native
hits = []
honest = native.cache.load
native.cache.load = lambda key: hits.append(honest(key)) or hits[-1]
with sg.Graph() as graph:
    x = sg.placeholder((3,))
    y = sg.exp(x) * 2.0
value = sg.Session(graph).run(y, {x: np.array([0, 1, 2], np.float32)})
print(len(hits), sum(hit is not None for hit in hits), float(value[0]))
"""


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("STATICGRAD_CACHE", raising=False)
    return tmp_path / "cache"


def test_the_second_module_is_a_hit_and_shows_the_same_assembly(fresh: Path) -> None:
    first, second = (NativeModule(TEXT, current_target()) for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert second.exports == ("answer",)
    assert second.address("answer")
    assert first.assembly() == second.assembly()
    assert len(cache.entries(fresh)) == 1


def test_another_text_or_target_is_a_miss() -> None:
    NativeModule(TEXT, current_target())
    assert not NativeModule(TEXT.replace("42", "43"), current_target()).cached
    if current_target() != GENERIC:
        assert not NativeModule(TEXT, GENERIC).cached


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_entry_is_a_miss(fresh: Path, damage: str) -> None:
    NativeModule(TEXT, current_target())
    ((_, _, path),) = cache.entries(fresh)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes({"cut": content[:-9], "flip": content, "empty": b"", "foreign": b"something else"}[damage])
    again = NativeModule(TEXT, current_target())
    assert not again.cached
    assert again.address("answer")


def test_a_fresh_process_compiles_nothing_again() -> None:
    def run() -> list[str]:
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        return done.stdout.split()

    modules, hits, value = run()
    assert (hits, value) == ("0", "2.0")
    assert run() == [modules, modules, value]


def test_off_means_nothing_is_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    NativeModule(TEXT, current_target())
    assert not NativeModule(TEXT, current_target()).cached
    assert not fresh.exists()


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path / "file"))
    with Graph() as graph:
        x = sg.placeholder((2,))
        np.testing.assert_array_equal(sg.Session(graph).run(x + 1.0, {x: np.zeros(2, np.float32)}), [1, 1])


def test_the_oldest_entries_go_first(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    keys = []
    for number in range(4):
        key = cache.key_of(str(number), GENERIC, "test")
        cache.save(key, cache.CachedObject(bytes(1000), ()))
        os.utime(fresh / f"{key}{cache.SUFFIX}", (number, number))
        keys.append(key)
    monkeypatch.setattr(cache, "LIMIT", 3000)
    cache.save(cache.key_of("new", GENERIC, "test"), cache.CachedObject(bytes(500), ()))
    assert cache.load(keys[0]) is None
    assert cache.load(keys[3]) is not None
    assert cache.clear() == 3
    assert cache.entries(fresh) == []


def test_the_command_says_what_is_kept_and_drops_it(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from staticgrad.cli import main

    NativeModule(TEXT, current_target())
    assert main(["cache", "--clear"]) == 0
    said = capsys.readouterr().out
    assert f"{fresh}: 1 programs" in said
    assert "dropped 1" in said
    assert cache.entries(fresh) == []
