"""Nests drawn by chance: compiled equals a plain NumPy evaluation, on every target of this machine."""

from __future__ import annotations

import pytest
from support.nests import check
from support.random_nests import draw, slow_op  # noqa: F401
from support.targets import EVERY

from staticgrad.compiler.machine.target import named


@pytest.mark.usefixtures("slow_op")
@pytest.mark.parametrize("target", EVERY)
def test_random_nests(target: str) -> None:
    drawn = [draw(seed) for seed in range(150)]
    check([d.nest() for d in drawn], [d.data for d in drawn], [named(target)])
