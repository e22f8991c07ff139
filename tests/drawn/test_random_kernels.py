"""Kernels that an earlier process kept on disk give drawn programs the bits that kernels compiled anew give them,
whatever has become of the files."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.damage import change_bytes
from support.kept_kernels import KINDS, in_a_process
from support.selection import rotating
from support.targets import EVERY

from staticgrad.base import image

pytestmark = pytest.mark.skipif(not image.loads_here(), reason="images are not loaded here")
COUNT = int(os.environ.pop("STATICGRAD_RANDOM_KERNELS", "12"))  # processes of each test, a seed each
Damage = Callable[[random.Random, list[Path]], None]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sge"))


def bits(found: dict[str, tuple[str, int, int]]) -> dict[str, str]:
    return {name: digest for name, (digest, *_) in found.items()}


def environment(folder: Path | None, seed: int) -> dict[str, str]:
    kept = (
        {"STATICGRAD_CACHE": "0"} if folder is None else {"STATICGRAD_CACHE": "1", "STATICGRAD_CACHE_DIR": str(folder)}
    )
    return {"STATICGRAD_TARGET": EVERY[seed % len(EVERY)], "STATICGRAD_TIERS": "01"[seed % 2], **kept}


@pytest.mark.parametrize("seed", rotating(range(COUNT), 6))
def test_another_process_gives_the_same_bits_with_kernels_from_disk(seed: int, tmp_path: Path) -> None:
    """The first process compiles programs; the second the same and related ones; the third keeps nothing."""
    first = in_a_process(seed, 2, ["whole"], environment(tmp_path, seed))
    second = in_a_process(seed, 2, KINDS, environment(tmp_path, seed))
    anew = in_a_process(seed, 2, KINDS, environment(None, seed))
    assert bits(second) == bits(anew)
    assert bits(first).items() <= bits(second).items()
    related = [counts for name, (_, *counts) in second.items() if not name.endswith("whole")]
    assert sum(on_disk for _, on_disk in related) > 0, f"no kernel was found on disk: {related}"
    assert sum(on_disk for _, _, on_disk in anew.values()) == 0


def _truncated(draw: random.Random, paths: list[Path]) -> None:
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content[: draw.randrange(len(content))])


def _changed(draw: random.Random, paths: list[Path]) -> None:
    for path in paths:
        path.write_bytes(change_bytes(draw, path.read_bytes()))


def _exchanged(draw: random.Random, paths: list[Path]) -> None:
    """Each entry has the contents of another one."""
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


def _some_removed(draw: random.Random, paths: list[Path]) -> None:
    """The index is of entries that are gone."""
    for path in paths:
        if draw.random() < 0.5:
            path.unlink()


@pytest.mark.parametrize("damage", [_truncated, _changed, _exchanged, _some_removed], ids=lambda d: d.__name__[1:])
@pytest.mark.parametrize("seed", rotating(range(100, 100 + COUNT), 12))
def test_damaged_entries_on_disk_change_no_bit(seed: int, damage: Damage, tmp_path: Path) -> None:
    draw = random.Random(seed)
    first = in_a_process(seed, 1, KINDS, environment(tmp_path, seed))
    paths = entries(tmp_path)
    assert len(paths) > 3
    damage(draw, paths if seed % 2 else draw.sample(paths, len(paths) // 2))
    again = in_a_process(seed, 1, KINDS, environment(tmp_path, seed))
    assert bits(again) == bits(first)
    third = in_a_process(seed, 1, KINDS, environment(tmp_path, seed))
    assert bits(third) == bits(first), "what was written anew is right"
